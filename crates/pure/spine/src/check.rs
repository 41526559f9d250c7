//! What is always true of a spine. Tests ask after each event; the answer of a healthy spine is silence.

use std::collections::BTreeMap;

use atoll_causal::{FileId, Writer};
use atoll_core::Encode;

use crate::receive::apply;
use crate::spine::{Share, Spine};
use crate::tree::SpineTree;

impl Spine {
    /// Panics if the spine contradicts itself. Slow: does all moves again.
    pub fn check(&self) {
        self.check_closed();
        self.check_counts();
        self.check_outcomes();
        for (dir, _) in self.tree.iter() {
            assert!(self.up(dir).count() > 0, "a way up begins with its directory");
        }
    }

    /// What is or might be above a known directory is known, and so is all that the log names and what is kept.
    fn check_closed(&self) {
        for (dir, known) in self.tree.iter() {
            assert!(known.parents().all(|parent| self.tree.has(parent)), "a parent of {dir:?} is not known");
            assert!(known.places.is_sorted_by(|a, b| a.since < b.since), "the places of {dir:?}: {known:?}");
            assert!(known.moves.is_sorted(), "the moves of {dir:?}: {known:?}");
        }
        for (stamp, logged) in &self.log {
            assert!(*stamp > self.cut.upto, "{stamp:?} is below {:?}", self.cut);
            for moved in logged.record.dirs() {
                let known = self.tree.get(moved.dir).expect("what moves is known");
                assert!(known.moves.contains(&(*stamp, moved.parent)), "{stamp:?} is no move of {known:?}");
            }
        }
        for (dir, horizon) in &self.kept {
            assert!(self.tree.has(*dir), "{dir:?} is kept and not known");
            assert!(*horizon > self.cut.upto, "{dir:?} is kept for ever");
        }
    }

    fn check_counts(&self) {
        let mut named: BTreeMap<FileId, u32> = BTreeMap::new();
        let parents = self.tree.iter().flat_map(|(_, known)| known.parents());
        parents.for_each(|parent| *named.entry(parent).or_default() += 1);
        for (dir, known) in self.tree.iter() {
            assert_eq!(known.named, named.get(&dir).copied().unwrap_or(0), "how often {dir:?} is named");
        }
        let moves: usize = self.tree.iter().map(|(_, known)| known.moves.len()).sum();
        assert_eq!(moves, self.records().map(|record| record.dirs().len()).sum(), "moves of directories");
        let mut shares: BTreeMap<Writer, Share> = BTreeMap::new();
        for record in self.records() {
            let last = record.stamp();
            let share = shares.entry(last.writer).or_insert(Share { bytes: 0, last });
            *share = Share { bytes: share.bytes + record.encoded_len(), last };
        }
        assert_eq!(self.shares, shares, "what each writer has in the log");
    }

    /// The bases are a tree, and the moves of the log, done in order, give each directory the places that it has.
    fn check_outcomes(&self) {
        let mut tree = SpineTree::default();
        let bases = self.tree.iter().map(|(dir, known)| (dir, known.places[0].clone()));
        tree.add(bases.collect(), false);
        assert!(tree.iter().all(|(dir, _)| tree.up(dir).count() > 0), "the bases are a tree");
        for (stamp, logged) in &self.log {
            let mut again = logged.clone();
            apply(&mut again, &mut tree);
            assert_eq!(again.outcome, logged.outcome, "the outcome of {stamp:?}");
        }
        for ((dir, known), (_, again)) in self.tree.iter().zip(tree.iter()) {
            assert_eq!(known.places, again.places, "the places of {dir:?}");
        }
    }
}
