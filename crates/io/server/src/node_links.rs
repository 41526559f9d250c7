//! Which link of each other node counts for the copies here, and its number. What comes on an earlier one was said by who knew
//! less, and is dropped. Never sends, and never waits.
//!
//! A node may open two links at once, directly and through a relay. It uses one of them, and that need not be the one that was
//! accepted last. So neither the order in which links are opened nor their ids say which one counts: a link counts from the first
//! frame on it. Numbers are given in the order in which links begin to count.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::NodeId;
use atoll_proto::NodeLife;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeLinks {
    /// The last number that was given.
    last: u64,
    nodes: BTreeMap<NodeId, OfNode>,
}

/// The links of one node.
#[derive(Debug)]
struct OfNode {
    /// The process that has opened the link that counts.
    who: NodeLife,
    /// The number of the link that counts, or that was the last one to count.
    number: u64,
    current: Current,
    /// Links that the node has used before it went to the one that counts. They end soon.
    passed: BTreeSet<u64>,
}

/// The link that counts. Opened -> Used -> None. Whatever link is used next counts after None.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Current {
    /// Nothing has come on it. It counts because it is the first link of a process.
    Opened(u64),
    /// Something has come on it.
    Used(u64),
    /// It has ended, and nothing has come on another one.
    None,
}

/// Whose link something has come on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// The number of the link; 0 if the node has gone to another one.
    pub(crate) number: u64,
    /// It counts from now on.
    pub(crate) is_new: bool,
}

impl NodeLinks {
    /// A node has opened a link. It gets a number if it counts before anything comes on it. The first link of a process does,
    /// because it may prove that the process before has ended.
    pub(crate) fn opened(&mut self, link: u64, who: NodeLife) -> Option<u64> {
        if self.nodes.get(&who.node).is_some_and(|node| node.who == who) {
            return None;
        }
        Some(self.count(Current::Opened(link), who))
    }

    /// Something has come on a link that a node has opened.
    pub(crate) fn used(&mut self, link: u64, who: NodeLife) -> Used {
        match self.nodes.get_mut(&who.node) {
            Some(node) if [Current::Opened(link), Current::Used(link)].contains(&node.current) => {
                node.current = Current::Used(link);
                Used { number: node.number, is_new: false }
            }
            Some(node) if node.passed.contains(&link) => Used { number: 0, is_new: false },
            _ => Used { number: self.count(Current::Used(link), who), is_new: true },
        }
    }

    /// A link of a node has ended. If it was the one that counts, the next one that is used does: two frames on two links may
    /// come in another order than they were sent in, and then a link was passed that the node goes on using.
    pub(crate) fn ended(&mut self, link: u64, node: NodeId) {
        let Some(node) = self.nodes.get_mut(&node) else { return };
        node.passed.remove(&link);
        if [Current::Opened(link), Current::Used(link)].contains(&node.current) {
            node.current = Current::None;
            node.passed.clear();
        }
    }

    fn count(&mut self, current: Current, who: NodeLife) -> u64 {
        self.last += 1;
        let number = self.last;
        let new = || OfNode { who, number, current, passed: BTreeSet::new() };
        let node = self.nodes.entry(who.node).or_insert_with(new);
        if let Current::Used(before) = node.current {
            node.passed.insert(before);
        }
        (node.who, node.number, node.current) = (who, number, current);
        number
    }

    /// The number of the link of each node that counts, or has counted last, and the process that has opened it.
    pub(crate) fn all(&self) -> Vec<(u64, NodeLife)> {
        self.nodes.values().map(|node| (node.number, node.who)).collect()
    }
}

#[cfg(test)]
mod tests {
    use atoll_proto::group::Host;

    use super::*;

    const NODE: NodeId = NodeId(1);

    fn life(life: u32) -> NodeLife {
        NodeLife { node: NODE, life, host: Host { boot: 1, inode: 1 } }
    }

    const fn known(number: u64) -> Used {
        Used { number, is_new: false }
    }

    const fn new(number: u64) -> Used {
        Used { number, is_new: true }
    }

    /// All orders: which of the two is used, and which is heard of first.
    #[test]
    fn of_two_links_that_a_node_opens_at_once_the_one_that_it_uses_counts() {
        for (used, unused) in [(5, 6), (6, 5)] {
            for first in [used, unused] {
                let mut links = NodeLinks::default();
                assert_eq!(links.opened(first, life(1)), Some(1), "the first one of a process");
                assert_eq!(links.opened(used + unused - first, life(1)), None);
                let number = links.used(used, life(1)).number;
                assert!(number > 0, "{used} is used, {unused} is not");
                assert_eq!(links.used(used, life(1)), known(number));
                assert_eq!(links.all(), [(number, life(1))]);
                links.ended(unused, NODE);
                assert_eq!(links.used(used, life(1)), known(number));
            }
        }
    }

    #[test]
    fn a_node_that_goes_to_a_link_with_a_lower_id_is_heard_on_it() {
        let mut links = NodeLinks::default();
        assert_eq!(links.opened(5, life(1)), Some(1));
        assert_eq!(links.opened(6, life(1)), None);
        assert_eq!(links.used(6, life(1)), new(2), "the relay is up first");
        assert_eq!(links.used(5, life(1)), new(3), "then the direct way is");
        assert_eq!(links.used(6, life(1)), known(0));
        links.ended(6, NODE);
        assert_eq!(links.used(5, life(1)), known(3));
    }

    #[test]
    fn a_node_that_goes_to_another_link_is_not_heard_on_the_earlier_one() {
        let mut links = NodeLinks::default();
        assert_eq!(links.opened(1, life(1)), Some(1));
        assert_eq!(links.used(1, life(1)), known(1));
        assert_eq!(links.opened(2, life(1)), None);
        assert_eq!(links.used(1, life(1)), known(1), "it has not gone to it yet");
        assert_eq!(links.used(2, life(1)), new(2));
        assert_eq!(links.used(1, life(1)), known(0));
        assert_eq!(links.all(), [(2, life(1))]);
    }

    #[test]
    fn frames_that_overtake_each_other_silence_no_node_for_ever() {
        let mut links = NodeLinks::default();
        links.opened(1, life(1));
        links.opened(2, life(1));
        assert_eq!(links.used(2, life(1)), new(2));
        assert_eq!(links.used(1, life(1)), new(3), "sent before the node went to 2, and late");
        assert_eq!(links.used(2, life(1)), known(0));
        links.ended(1, NODE);
        assert_eq!(links.used(2, life(1)), new(4));
        assert_eq!(links.used(2, life(1)), known(4));
    }

    #[test]
    fn the_first_link_of_a_process_counts_before_it_is_used() {
        let mut links = NodeLinks::default();
        links.opened(1, life(1));
        links.used(1, life(1));
        assert_eq!(links.opened(2, life(2)), Some(2));
        assert_eq!(links.all(), [(2, life(2))]);
        assert_eq!(links.used(1, life(1)), known(0), "a frame of the process that has ended");
        links.ended(1, NODE);
        assert_eq!(links.all(), [(2, life(2))]);
        assert_eq!(links.used(2, life(2)), known(2));
    }

    #[test]
    fn a_link_that_has_ended_still_says_which_process_was_heard_last() {
        let mut links = NodeLinks::default();
        links.opened(1, life(1));
        links.used(1, life(1));
        links.ended(1, NODE);
        assert_eq!(links.all(), [(1, life(1))]);
        assert_eq!(links.opened(2, life(1)), None);
        assert_eq!(links.used(2, life(1)), new(2));
        links.ended(7, NodeId(9));
    }

    #[test]
    fn links_that_a_node_has_left_are_forgotten_when_they_end() {
        let mut links = NodeLinks::default();
        for link in 1..100 {
            links.opened(link, life(1));
            links.used(link, life(1));
            links.ended(link.saturating_sub(1), NODE);
            assert!(links.nodes[&NODE].passed.is_empty());
        }
    }
}
