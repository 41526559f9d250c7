//! The members of an island's group, and how much of the log each has. Never decides who is a member: with one copy of an
//! island there is one.
//!
//! Invariant: neither what is committed nor what is synced goes back.

use std::collections::BTreeMap;

use atoll_core::NodeId;

/// How much of the log a member has.
#[derive(Debug, Clone, Copy, Default)]
struct Has {
    /// Records up to this one are written there: process death cannot take them.
    written: u64,
    /// Records up to this one are synced there: a power cut cannot take them.
    synced: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Members(BTreeMap<NodeId, Has>);

impl Members {
    /// These nodes, each of which has the log up to `seq`, synced.
    pub(crate) fn new(nodes: impl IntoIterator<Item = NodeId>, seq: u64) -> Self {
        let has = Has { written: seq, synced: seq };
        let members: BTreeMap<NodeId, Has> = nodes.into_iter().map(|node| (node, has)).collect();
        assert!(!members.is_empty(), "an island is on a node at least");
        Self(members)
    }

    fn of(&mut self, node: NodeId) -> &mut Has {
        self.0.get_mut(&node).expect("only members tell what they have")
    }

    /// A member has written records up to `upto`. Up to where records are committed: every member has written them.
    pub(crate) fn written(&mut self, node: NodeId, upto: u64) -> u64 {
        let has = self.of(node);
        has.written = has.written.max(upto);
        self.least(|has| has.written)
    }

    /// A member has synced records up to `upto`. Up to where every member has.
    pub(crate) fn synced(&mut self, node: NodeId, upto: u64) -> u64 {
        let has = self.of(node);
        has.synced = has.synced.max(upto);
        self.least(|has| has.synced)
    }

    /// Up to where every member has synced records.
    pub(crate) fn synced_upto(&self) -> u64 {
        self.least(|has| has.synced)
    }

    fn least(&self, of: impl Fn(&Has) -> u64) -> u64 {
        self.0.values().map(of).min().expect("there is a member")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    #[test]
    fn what_the_slowest_of_three_members_has_written_is_committed() {
        let mut members = Members::new([A, B, C], 10);
        assert_eq!(members.written(A, 15), 10);
        assert_eq!(members.written(C, 12), 10, "two of three are not enough");
        assert_eq!(members.written(B, 11), 11);
        assert_eq!(members.written(B, 20), 12);
        assert_eq!(members.written(C, 20), 15);
        // What a member said earlier may come later.
        assert_eq!(members.written(C, 13), 15);
    }

    #[test]
    fn what_every_member_has_synced_counts_beside_what_is_committed() {
        let mut members = Members::new([A, B, C], 0);
        for member in [A, B, C] {
            members.written(member, 5);
        }
        assert_eq!([(A, 5), (B, 3), (C, 4)].map(|(member, upto)| members.synced(member, upto)), [0, 0, 3]);
        assert_eq!(members.written(A, 6), 5, "a sync is no write");
    }

    #[test]
    fn with_one_member_its_own_log_decides() {
        let mut members = Members::new([A], 7);
        assert_eq!((members.written(A, 9), members.synced(A, 8)), (9, 8));
    }
}
