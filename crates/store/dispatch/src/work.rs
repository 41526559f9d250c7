//! Effects that a thread has to perform, and in which order. Performs none.

use std::collections::VecDeque;

use atoll_core::Ino;
use atoll_island::{BodyOp, BodyOpId, Effect, Event};

/// Effects to be performed: messages first, because others wait for them, then effects that may take long.
#[derive(Debug, Default)]
pub struct Work {
    /// The first message, without a heap allocation: mostly there is only one.
    first: Option<Effect>,
    messages: VecDeque<Effect>,
    rest: VecDeque<Effect>,
    /// What the machine is to hear next, of effects that were performed together.
    pub(crate) done: VecDeque<Event>,
}

impl Work {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { .. } | Effect::Notice(..) | Effect::Send(..) | Effect::Beside(..) => {
                if self.first.is_none() && self.messages.is_empty() {
                    self.first = Some(effect);
                } else {
                    self.messages.push_back(effect);
                }
            }
            _ => self.rest.push_back(effect),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Effect> {
        self.first.take().or_else(|| self.messages.pop_front()).or_else(|| self.rest.pop_front())
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.first.is_some() || !self.messages.is_empty()
    }

    /// This sync of a body, and those that come next: they are done together.
    pub(crate) fn syncs(&mut self, first: (BodyOpId, Ino)) -> Vec<(BodyOpId, Ino)> {
        let mut syncs = vec![first];
        while let Some(Effect::Body(ticket, BodyOp::Sync { ino })) = self.rest.front() {
            syncs.push((*ticket, *ino));
            self.rest.pop_front();
        }
        syncs
    }

    /// Whether no effect is left, and the machine has heard of all that were performed.
    pub fn is_done(&self) -> bool {
        self.done.is_empty() && !self.has_messages() && self.rest.is_empty()
    }

    /// Whether the next effect may take long, so that its thread should let others bring events meanwhile.
    pub fn is_slow(&self) -> bool {
        self.done.is_empty()
            && !self.has_messages()
            && matches!(self.rest.front(), Some(Effect::Sync | Effect::Body(..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(ticket: u64) -> Effect {
        Effect::Body(BodyOpId(ticket), BodyOp::Sync { ino: Ino(ticket) })
    }

    #[test]
    fn syncs_that_follow_each_other_are_done_together_and_nothing_overtakes() {
        let mut work = Work::default();
        [sync(1), sync(2), Effect::Sync, sync(3)].into_iter().for_each(|effect| work.push(effect));
        let Some(Effect::Body(ticket, BodyOp::Sync { ino })) = work.next() else {
            panic!("a sync comes first")
        };
        let syncs = work.syncs((ticket, ino));
        assert_eq!(syncs, [(BodyOpId(1), Ino(1)), (BodyOpId(2), Ino(2))]);
        assert!(matches!(work.next(), Some(Effect::Sync)));
        assert!(matches!(work.next(), Some(Effect::Body(BodyOpId(3), _))) && work.is_done());
    }
}
