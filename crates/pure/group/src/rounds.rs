//! Syncs that all counted members make together: a round ends when each of them has answered. Never syncs.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, NodeId};

/// One round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SyncRound {
    pub(crate) seq: u64,
    pub(crate) bodies: Vec<Ino>,
    done: BTreeSet<NodeId>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rounds(BTreeMap<u64, SyncRound>);

impl Rounds {
    pub(crate) fn begin(&mut self, number: u64, seq: u64, bodies: Vec<Ino>) {
        self.0.insert(number, SyncRound { seq, bodies, done: BTreeSet::new() });
    }

    /// A member has answered a round of this number and record: the primary's own rounds have one number.
    pub(crate) fn done(&mut self, number: u64, seq: u64, node: NodeId) {
        if let Some(round) = self.0.get_mut(&number).filter(|round| seq >= round.seq) {
            round.done.insert(node);
        }
    }

    /// Whether a round of this number is under way up to this record.
    pub(crate) fn is_open(&self, number: u64, seq: u64) -> bool {
        self.0.get(&number).is_some_and(|round| round.seq >= seq)
    }

    /// Takes the rounds that all of these have answered and whose record is synced.
    pub(crate) fn ended(&mut self, counted: &BTreeSet<NodeId>, synced: u64) -> Vec<u64> {
        let is_done = |round: &SyncRound| round.seq <= synced && counted.is_subset(&round.done);
        let ended: Vec<u64> =
            self.0.iter().filter(|(_, round)| is_done(round)).map(|(number, _)| *number).collect();
        ended.iter().for_each(|number| drop(self.0.remove(number)));
        ended
    }

    /// Rounds that a member has not answered: a link may have lost the question.
    pub(crate) fn open(&self, node: NodeId) -> impl Iterator<Item = (u64, &SyncRound)> {
        self.0
            .iter()
            .filter(move |(_, round)| !round.done.contains(&node))
            .map(|(number, round)| (*number, round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_all_who_are_counted_then_have_answered() {
        let (a, b, c) = (NodeId(1), NodeId(2), NodeId(3));
        let mut rounds = Rounds::default();
        rounds.begin(1, 10, Vec::new());
        rounds.done(1, 10, a);
        rounds.done(1, 10, b);
        rounds.done(1, 9, c);
        assert_eq!(rounds.ended(&[a, b, c].into(), 10), [0; 0], "the third is counted meanwhile");
        assert_eq!(rounds.open(c).map(|(number, _)| number).collect::<Vec<_>>(), [1]);
        assert_eq!(rounds.ended(&[a, b].into(), 9), [0; 0], "its record is not committed");
        assert_eq!(rounds.ended(&[a, b].into(), 10), [1]);
        assert_eq!(rounds.ended(&[a].into(), 10), [0; 0]);
    }
}
