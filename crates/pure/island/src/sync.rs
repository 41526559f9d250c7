//! What of the log is written and what survives a power cut, and who waits for which.

use atoll_core::planted::{Bug, planted};
use atoll_posix::Answer;
use atoll_proto::Outcome;

use crate::event::{BodyOp, Effect};
use crate::machine::{Call, Island, SYNC_MS};

impl Island {
    pub(crate) fn written(&mut self, upto: u64) {
        // One replica: what is written here is committed.
        self.committed = self.committed.max(upto);
        while self.gated.front().is_some_and(|(need, _)| *need <= self.committed) {
            let (_, effect) = self.gated.pop_front().expect("looked at");
            self.out.push(effect);
        }
    }

    /// Asks for a sync of everything decided so far.
    pub(crate) fn want_sync(&mut self) {
        self.want_sync_of(self.state.seq());
    }

    /// The next tick syncs.
    pub(crate) fn want_sync_soon(&mut self) {
        self.unsynced_since_ms = Some(self.now.ms.saturating_sub(SYNC_MS));
    }

    fn want_sync_of(&mut self, seq: u64) {
        if self.sync_wanted < seq {
            self.sync_wanted = seq;
            self.when_committed(seq, Effect::Sync);
        }
    }

    pub(crate) fn await_synced(&mut self, seq: u64, call: Call) {
        if seq <= self.synced || planted(Bug::FsyncBeforeSync) {
            return self.finish_sync(&call);
        }
        self.sync_waiting.push((seq, call));
        self.want_sync_of(seq);
    }

    fn finish_sync(&mut self, call: &Call) {
        self.answer(call, 0, Outcome::Ok { answer: Answer::Done, keys: Vec::new() });
    }

    pub(crate) fn synced(&mut self, upto: u64) {
        self.synced = self.synced.max(upto);
        if self.synced >= self.state.seq() {
            self.unsynced_since_ms = None;
        }
        if self.sync_wanted > self.synced {
            // Asked for while the last sync was under way.
            self.when_committed(self.sync_wanted, Effect::Sync);
        }
        if self.state.meta().mint_limit != self.mint_limit && self.synced >= self.sync_wanted {
            self.mint_limit = self.state.meta().mint_limit;
        }
        let (ready, waiting) =
            std::mem::take(&mut self.sync_waiting).into_iter().partition(|(seq, _)| *seq <= self.synced);
        self.sync_waiting = waiting;
        let ready: Vec<(u64, Call)> = ready;
        for (_, call) in ready {
            self.finish_sync(&call);
        }
        while self.after_sync.front().is_some_and(|(seq, ..)| *seq <= self.synced) {
            let (_, ticket, op) = self.after_sync.pop_front().expect("looked at");
            match op {
                BodyOp::Drop { ino } if self.gates.is_inside(ino) && !planted(Bug::BodyGoesEarly) => {
                    self.going.push((ino, ticket))
                }
                _ => self.out.push(Effect::Body(ticket, op)),
            }
        }
        self.continue_checkpoint();
        self.send_posted();
        self.sends_synced();
        self.tell_moved();
        self.stable();
    }
}
