//! What waits for the log to be synced.

use atoll_posix::Answer;
use atoll_proto::Outcome;

use crate::ctx::Ctx;
use crate::ctx::request::PendingRequest;
use crate::island::Island;

impl Island {
    pub(crate) fn synced(&mut self, upto: u64) {
        self.ctx.log_synced(upto);
        let durability = &self.ctx.durability;
        for call in self.requests.synced(|seq| durability.is_synced(seq)) {
            self.ctx.finish_sync(&call);
        }
        self.bodies.synced(&mut self.ctx);
        self.bodies.continue_checkpoint(&mut self.ctx);
        self.ctx.send_posted();
        self.ctx.durability.leave_synced();
        self.migration.tell_moved(&mut self.ctx);
        self.stable();
    }
}

impl Ctx {
    pub(super) fn finish_sync(&mut self, call: &PendingRequest) {
        self.answer(call, 0, Outcome::Ok { answer: Answer::Done, keys: Vec::new() });
    }
}
