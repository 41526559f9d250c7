//! Whether another node can be reached. Each node sends on the links that it opens itself, so a question and
//! its answer travel on two links. A node that hears us and cannot answer counts as away.
//!
//! Invariant: a node is reachable if the link to it is up, and a link from it is up.

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
    /// Whether the other node gets our questions and can answer them.
    pub fn is_reachable(&self) -> bool {
        self.outgoing && (!self.accepted.is_empty() || planted(Bug::OneWayCounts))
    }

    /// This node's own link has come up or gone down. Returns whether the other node can be reached now, if
    /// that has changed.
    pub fn outgoing(&mut self, up: bool) -> Option<bool> {
        self.change(|both| both.outgoing = up)
    }

    /// A new link has replaced this node's own, without a moment in which there was none. Messages under way
    /// may be lost. So if the other node can be reached, this is told again, and what may have been lost is
    /// sent again.
    pub fn replaced(&self) -> Option<bool> {
        self.is_reachable().then_some(true)
    }

    /// The other node has opened a link. The result is as for [`Self::outgoing`].
    pub fn accepted(&mut self, link: u64) -> Option<bool> {
        self.change(|both| _ = both.accepted.insert(link))
    }

    /// A link that the other node had opened has ended. The result is as for [`Self::outgoing`].
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
