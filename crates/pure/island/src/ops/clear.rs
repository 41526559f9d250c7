//! Changes are cleared before they begin: nobody else may use what he has kept of what they change (`docs/design/024-leases.md`).

use atoll_core::planted::{Bug, planted};

use crate::ctx::request::{Blocked, PendingRequest};
use crate::ctx::write_set::WriteSet;
use crate::island::Island;

impl Island {
    /// A request that changes something waits until no other mount may use what it has kept of that. None if it waits.
    pub(crate) fn clear(&mut self, call: PendingRequest) -> Option<PendingRequest> {
        if !call.changes() || self.ctx.replies.is_under_way(&call) || planted(Bug::NotRecalled) {
            return Some(call);
        }
        let writes = if self.ctx.has_other_mounts(call.session()) {
            self.ctx.state.begin_reads();
            let look = self.look();
            // Who may not ask for it has nobody wait. It is judged again when this island has seen what its client has, and cleared
            // then if it may.
            let writes = match look.may_ask(&call) {
                Ok(()) => look.write_set(&call),
                Err(stop @ Blocked::Load(_)) => Err(stop),
                Err(_) => Ok(WriteSet::NOTHING),
            };
            match writes {
                Ok(writes) => writes,
                Err(stop @ Blocked::Load(_)) => {
                    self.park(PendingRequest { again: true, ..call }, stop, false);
                    return None;
                }
                Err(_) => WriteSet::Everything,
            }
        } else {
            WriteSet::Everything
        };
        self.sessions.clear(&mut self.ctx, call, writes)
    }

    /// Whether a request that has waited since it was cleared is to be cleared once more: it would change something else now, or others may
    /// have kept something of what it changes.
    pub(crate) fn must_be_cleared_again(&self, call: &PendingRequest) -> bool {
        let Some(writes @ WriteSet::Of(_)) = call.writes else { return false };
        !self.ctx.keepers.who_must_drop(call.session(), &writes, self.ctx.now.ms).is_empty()
            || self.look().write_set(call).is_ok_and(|now| !now.is_within(&writes))
    }
}
