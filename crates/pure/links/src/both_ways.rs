//! Whether another node can be reached. Each node sends on the links that it opens itself, so a question and its
//! answer travel on two links: a node that hears us and cannot answer is as good as away.
//!
//! Invariant: reachable means that the link to the node is up, and that a link from it is.

use std::collections::BTreeSet;

use atoll_core::planted::{Bug, planted};

/// The two directions between this node and another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BothWays {
    /// This node's own link to the other is up.
    outgoing: bool,
    /// Links that the other node has opened, by number. A new one may be up before the old one's end is noticed.
    accepted: BTreeSet<u64>,
}

impl BothWays {
    /// Whether the other node can be asked and can answer.
    pub fn is_reachable(&self) -> bool {
        self.outgoing && (!self.accepted.is_empty() || planted(Bug::OneWayCounts))
    }

    /// This node's own link has come up or has gone down. Whether the other node can be reached now, if that changes.
    pub fn outgoing(&mut self, up: bool) -> Option<bool> {
        self.change(|both| both.outgoing = up)
    }

    /// Another link has taken the place of this node's own, without a moment without one. What was under way may be
    /// lost: whoever can reach the other node is to hear anew that it can, and says again what may have been lost.
    pub fn replaced(&self) -> Option<bool> {
        self.is_reachable().then_some(true)
    }

    /// The other node has opened a link. As [`Self::outgoing`].
    pub fn accepted(&mut self, link: u64) -> Option<bool> {
        self.change(|both| _ = both.accepted.insert(link))
    }

    /// A link that the other node had opened has ended. As [`Self::outgoing`].
    pub fn ended(&mut self, link: u64) -> Option<bool> {
        self.change(|both| _ = both.accepted.remove(&link))
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Option<bool> {
        let before = self.is_reachable();
        change(self);
        let after = self.is_reachable();
        (before != after).then_some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_reachable_while_both_directions_are_up() {
        let mut both = BothWays::default();
        assert_eq!(both.outgoing(true), None, "it cannot answer");
        assert_eq!(both.accepted(1), Some(true));
        assert_eq!(both.outgoing(false), Some(false));
        assert_eq!(both.outgoing(true), Some(true));
        assert_eq!(both.ended(1), Some(false));
    }

    #[test]
    fn a_link_that_is_opened_before_the_old_ones_end_is_noticed_keeps_it_reachable() {
        let mut both = BothWays::default();
        both.outgoing(true);
        both.accepted(1);
        assert_eq!(both.accepted(2), None);
        assert_eq!(both.ended(1), None);
        assert!(both.is_reachable());
        assert_eq!(both.ended(2), Some(false));
        assert_eq!(both.ended(2), None, "an end that is told twice changes nothing");
    }
}
