//! What waits for the log to be synced.

use atoll_core::planted::{Bug, planted};
use atoll_posix::Answer;
use atoll_proto::Outcome;

use crate::client::requests::Requests;
use crate::ctx::Ctx;
use crate::ctx::request::Call;
use crate::event::{BodyOp, Effect};
use crate::island::Island;

impl Island {
    pub(crate) fn synced(&mut self, upto: u64) {
        self.ctx.log_synced(upto);
        let durability = &self.ctx.durability;
        let ready: Vec<(u64, Call)> =
            self.requests.sync_waiting.extract_if(.., |(seq, _)| durability.is_synced(*seq)).collect();
        for (_, call) in ready {
            self.ctx.finish_sync(&call);
        }
        while self.bodies.after_sync.front().is_some_and(|(seq, ..)| self.ctx.durability.is_synced(*seq)) {
            let (_, ticket, op) = self.bodies.after_sync.pop_front().expect("looked at");
            match op {
                BodyOp::Drop { ino } if self.bodies.gates.is_inside(ino) && !planted(Bug::BodyGoesEarly) => {
                    self.bodies.going.push((ino, ticket))
                }
                _ => self.ctx.durability.emit(Effect::Body(ticket, op)),
            }
        }
        self.bodies.continue_checkpoint(&mut self.ctx);
        self.ctx.send_posted();
        self.ctx.durability.leave_synced();
        self.mover.tell_moved(&mut self.ctx);
        self.stable();
    }
}

impl Requests {
    pub(crate) fn await_synced(&mut self, ctx: &mut Ctx, seq: u64, call: Call) {
        if ctx.durability.is_synced(seq) || planted(Bug::FsyncBeforeSync) {
            return ctx.finish_sync(&call);
        }
        self.sync_waiting.push((seq, call));
        ctx.durability.want_sync(seq);
    }
}

impl Ctx {
    fn finish_sync(&mut self, call: &Call) {
        self.answer(call, 0, Outcome::Ok { answer: Answer::Done, keys: Vec::new() });
    }
}
