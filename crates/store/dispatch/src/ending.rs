//! The end of an island's process, or a copy's, in order.

use std::time::Duration;

use atoll_disk::Disk;
use atoll_group::{Group, GroupEvent, Role};
use atoll_island::Event;
use atoll_state::State;

use crate::copy::GroupCopy;
use crate::engine::{Engine, Halted};
use crate::space::Lack;

/// An orderly stop waits so long for another copy to lead, and looks so often.
const LEAVE_MS: u64 = 1_000;
const LEAVE_LOOK: Duration = Duration::from_millis(2);

impl<D: Disk> GroupCopy<D> {
    /// Before an orderly end. Has another copy lead, if this one does and there is one, and tells whoever leads not to wait for
    /// this one: returns when it leads no longer, or cannot be replaced.
    pub fn leave(&self) {
        self.tell(GroupEvent::Leave { to: None });
        let until = self.clock.boot_ms() + LEAVE_MS;
        let others =
            || self.with_group(|group| group.record().is_some_and(|(_, record)| record.in_sync.len() > 1));
        while matches!(self.role(), Role::Leading { .. }) && others() && self.clock.boot_ms() < until {
            self.clock.pass(LEAVE_LOOK);
            self.follow_up();
        }
        if !matches!(self.role(), Role::Leading { .. }) {
            self.tell(GroupEvent::Stopped);
        }
    }

    /// It is not opened again, whatever its group says, so that what is laid of its rows stays as it is: to open a copy puts bytes
    /// in place. Waits for an opening that is under way.
    pub fn end(&self) {
        *self.ended.lock().expect("no panic while it is held") = true;
    }

    /// Ends it in order, when nothing more is brought to it: what it has survives a power cut.
    pub fn stop(&self) -> Result<(), Halted> {
        let Some(engine) = self.engine() else { return Ok(()) };
        let stopped = match self.role() {
            Role::Leading { .. } if !self.with_group(Group::counts_others) => engine.stop(),
            // What others must agree to cannot be ended without them: it begins anew at the next start, from the log.
            _ => engine.sync_all_here(),
        };
        engine.close();
        stopped
    }
}

impl<D: Disk> Engine<D> {
    /// Stops in order: everything synced, a checkpoint made, nothing left for a recovery to do, unless the disk is
    /// full. The caller lets no more events in.
    pub fn stop(&self) -> Result<(), Halted> {
        const ROUNDS_MAX: u32 = 10_000;
        let mut clean = false;
        for _ in 0..ROUNDS_MAX {
            if self.is_halted() {
                break;
            }
            self.tick();
            self.housekeep();
            let (idle, at_rest) = self.with_island(|island| {
                let idle = island.is_idle();
                let at_rest = idle && island.state().seq() == island.state().meta().seq;
                (idle, at_rest && island.state().meta().clean)
            });
            if at_rest {
                clean = true;
                break;
            }
            if self.space.lacks(Lack::Checkpoint) || self.space.lacks(Lack::Bodies) {
                // What waits for space is in the log, from where it comes back as after the death of a process.
                let seq = self.with_state(|state| state.seq());
                clean = self.sync_upto(seq).is_ok();
                break;
            }
            if idle {
                self.with_state(State::stop_clean);
                self.enter(Event::CheckpointWanted);
            } else {
                // Bodies that go wait until their records are durable, and nobody else asks for it.
                let seq = self.with_state(|state| state.seq());
                if self.sync_upto(seq).is_err() {
                    break;
                }
                std::thread::yield_now();
            }
        }
        let why = "it did not come to rest".to_owned();
        if clean { Ok(()) } else { Err(Halted { island: self.id, why }) }
    }
}
