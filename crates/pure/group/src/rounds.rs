//! Syncs that all counted members make together: a round ends when each of them has answered. Never syncs.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, NodeId};

/// One round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SyncRound {
    pub(crate) seq: u64,
    pub(crate) bodies: Vec<Ino>,
    done: BTreeSet<NodeId>,
    /// When it was asked for last.
    asked_ms: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rounds(BTreeMap<u64, SyncRound>);

impl SyncRound {
    /// Whether a member has not answered it.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        !self.done.contains(&node)
    }
}

impl Rounds {
    pub(crate) fn begin(&mut self, now_ms: u64, number: u64, seq: u64, bodies: Vec<Ino>) {
        self.0.insert(number, SyncRound { seq, bodies, done: BTreeSet::new(), asked_ms: now_ms });
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

    /// Rounds that were asked for so long ago: a link may have lost the question. They count as asked for now.
    pub(crate) fn again(&mut self, now_ms: u64, after_ms: u64) -> Vec<(u64, SyncRound)> {
        let late = self.0.iter_mut().filter(|(_, round)| now_ms >= round.asked_ms + after_ms);
        let late = late.map(|(number, round)| {
            round.asked_ms = now_ms;
            (*number, round.clone())
        });
        late.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_all_who_are_counted_then_have_answered() {
        let (a, b, c) = (NodeId(1), NodeId(2), NodeId(3));
        let mut rounds = Rounds::default();
        rounds.begin(0, 1, 10, Vec::new());
        rounds.done(1, 10, a);
        rounds.done(1, 10, b);
        rounds.done(1, 9, c);
        assert_eq!(rounds.ended(&[a, b, c].into(), 10), [0; 0], "the third is counted meanwhile");
        let again = |rounds: &mut Rounds, now| {
            rounds
                .again(now, 300)
                .iter()
                .map(|(number, round)| (*number, round.is_open(c)))
                .collect::<Vec<_>>()
        };
        assert_eq!(again(&mut rounds, 299), []);
        assert_eq!(again(&mut rounds, 300), [(1, true)]);
        assert_eq!(again(&mut rounds, 599), []);
        assert_eq!(rounds.ended(&[a, b].into(), 9), [0; 0], "its record is not committed");
        assert_eq!(rounds.ended(&[a, b].into(), 10), [1]);
        assert_eq!(rounds.ended(&[a].into(), 10), [0; 0]);
    }
}
