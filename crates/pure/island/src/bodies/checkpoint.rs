//! Between memory and snapshot: rows that are loaded, and checkpoints.
//!
//! Invariant: a checkpoint's rows go to the snapshot only when the log is synced up to them and the
//! bodies hold what they say.

use atoll_core::Ino;
use atoll_posix::Errno;
use atoll_proto::{Change, Outcome};
use atoll_state::{Load, Loaded};

use crate::bodies::data::InBody;
use crate::ctx::decision::Decision;
use crate::ctx::request::Next;
use crate::event::{BodyFault, Effect, Ticket};
use crate::island::Island;

/// A checkpoint that has begun.
#[derive(Debug, Clone)]
pub(crate) enum Checkpointing {
    /// Body operations up to this ticket must end first.
    Waiting { ticket: Ticket, frozen: atoll_state::Frozen, bodies: Vec<Ino> },
    /// It is being written.
    Writing,
}

impl Island {
    // ------------------------------------------------------------------ loading

    pub(crate) fn loaded(&mut self, load: Load, generation: u64, loaded: Loaded) {
        if generation != self.ctx.loads.generation() {
            // A checkpoint came between: this may be older than what memory has let go of.
            return self.ctx.read(load);
        }
        let waiting = self.ctx.loads.take(&load);
        if let (Load::Dirs { from }, Loaded::Dirs { dirs, more }) = (&load, &loaded) {
            self.found_dirs(*from, dirs, *more);
            self.compare_rows(*from, dirs, *more);
        }
        let damaged = self.ctx.state.load(load, loaded).is_err();
        for next in waiting {
            match next {
                Next::Start(call) if damaged => {
                    self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EIO });
                }
                Next::Peer(_) if damaged => {}
                // What cannot be read is asked for again at the next tick, and not at once.
                Next::EndSession(session) if damaged => self.sessions.reads_no_more(session),
                Next::BodyDone(ticket, _) if damaged => {
                    self.ctx.next(Next::BodyDone(ticket, Err(BodyFault(Errno::EIO))));
                }
                next => self.ctx.next(next),
            }
        }
    }

    // -------------------------------------------------------------- checkpoints

    pub(crate) fn begin_checkpoint(&mut self) {
        if self.bodies.checkpoint.is_some() {
            return;
        }
        self.bodies.checkpoint_ms = self.ctx.now.ms;
        let frozen = self.ctx.state.freeze();
        let mut bodies: Vec<_> = self.bodies.touched.drain().map(|(ino, _)| ino).collect();
        bodies.sort_unstable();
        self.bodies.fresh.clear();
        // What is being put in place now was announced before this checkpoint, whose log may go before it is
        // decided. What is overwritten next in these bodies waits until this is synced.
        let mut decision = Decision::new();
        for ino in self.bodies.in_body.values().filter_map(InBody::is_ahead) {
            decision.push(Change::Dirty { ino });
        }
        self.bodies.announced = self.ctx.decide(decision);
        // Everything put in place before is synced with this checkpoint.
        self.bodies.syncing_bodies = std::mem::take(&mut self.bodies.unsynced_bodies);
        self.bodies.syncing_carried = std::mem::take(&mut self.bodies.carried);
        let ticket = Ticket(self.bodies.next_ticket - 1);
        self.bodies.checkpoint = Some(Checkpointing::Waiting { ticket, frozen, bodies });
        self.ctx.want_sync();
        self.continue_checkpoint();
    }

    /// Begins to write the checkpoint when the bodies hold what its rows say, and what was announced is synced: the
    /// log that said so before goes with it.
    pub(crate) fn continue_checkpoint(&mut self) {
        let first = self.bodies.in_body.first_key_value().map(|(t, _)| *t);
        match self.bodies.checkpoint.take() {
            Some(Checkpointing::Waiting { ticket, frozen, bodies })
                if first.is_none_or(|t| t > ticket)
                    && self.ctx.durability.is_synced(self.bodies.announced.max(frozen.seq)) =>
            {
                self.bodies.checkpoint = Some(Checkpointing::Writing);
                self.ctx.durability.emit(Effect::Checkpoint { frozen, bodies });
            }
            other => self.bodies.checkpoint = other,
        }
    }

    pub(crate) fn checkpoint_done(&mut self) {
        assert!(
            matches!(self.bodies.checkpoint, Some(Checkpointing::Writing)),
            "no checkpoint was being written"
        );
        self.bodies.checkpoint = None;
        self.bodies.syncing_bodies.clear();
        self.bodies.syncing_carried.clear();
        self.ctx.loads.begin_generation();
        self.ctx.counters.checkpoints += 1;
        self.ctx.state.thaw();
        self.ctx.state.sweep(self.ctx.config.rows_max);
    }
}
