//! Where directories are after all moves that were ever made: the algorithm of Kleppmann et al. 2021 ("A
//! highly-available move operation for replicated trees") as a slow list. Judges `pure/spine`, and shares no code
//! with it.
//!
//! Moves stand in the order of their stamps. Each is tried on the tree that those before it have made; if some
//! directory would be below itself then, the move has no effect.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::Name;

/// A directory. 0 is the root, which has no place.
pub type DirId = u128;

/// When a move was made, and by whom: the order of moves.
pub type MoveStamp = (u64, u64);

/// Where a directory is, and since which birth or move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The directory in which it is.
    pub parent: DirId,
    /// Its name there.
    pub name: Name,
    /// The birth or the move that brought it there.
    pub since: MoveStamp,
}

/// All births of directories and all moves, of all sites.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    births: BTreeMap<DirId, Located>,
    moves: BTreeMap<MoveStamp, Vec<(DirId, DirId, Name)>>,
}

/// What comes of births and moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The place of each directory but the root.
    pub places: BTreeMap<DirId, Located>,
    /// The moves without effect.
    pub lost: BTreeSet<MoveStamp>,
}

impl Moves {
    /// A directory is made.
    pub fn birth(&mut self, dir: DirId, parent: DirId, name: Name, since: MoveStamp) {
        let other = self.births.insert(dir, Located { parent, name, since });
        assert_eq!(other, None, "directory {dir:x} is born twice");
    }

    /// Directories are moved together: each to a parent, under a name.
    pub fn issue(&mut self, stamp: MoveStamp, moves: Vec<(DirId, DirId, Name)>) {
        let other = self.moves.insert(stamp, moves);
        assert_eq!(other, None, "two moves have the stamp {stamp:?}");
    }

    /// Forgets what nobody has seen, since its site has lost its power.
    pub fn forget(&mut self, births: &[DirId], moves: &[MoveStamp]) {
        births.iter().for_each(|dir| drop(self.births.remove(dir)));
        moves.iter().for_each(|stamp| drop(self.moves.remove(stamp)));
    }

    /// The stamps of all moves.
    pub fn stamps(&self) -> impl Iterator<Item = MoveStamp> {
        self.moves.keys().copied()
    }

    /// The tree of somebody who knows these moves.
    pub fn tree(&self, is_known: impl Fn(MoveStamp) -> bool) -> Moved {
        let mut moved = Moved { places: self.births.clone(), lost: BTreeSet::new() };
        for (&stamp, moves) in self.moves.iter().filter(|(stamp, _)| is_known(**stamp)) {
            match moved.after(stamp, moves) {
                Some(places) => moved.places = places,
                None => drop(moved.lost.insert(stamp)),
            }
        }
        moved
    }
}

impl Moved {
    /// The places after one more move; none if some directory would be below itself.
    pub fn after(
        &self,
        since: MoveStamp,
        moves: &[(DirId, DirId, Name)],
    ) -> Option<BTreeMap<DirId, Located>> {
        let mut places = self.places.clone();
        for (dir, parent, name) in moves {
            places.insert(*dir, Located { parent: *parent, name: name.clone(), since });
        }
        let is_tree = places.keys().all(|dir| !is_below_itself(&places, *dir));
        is_tree.then_some(places)
    }
}

fn is_below_itself(places: &BTreeMap<DirId, Located>, dir: DirId) -> bool {
    let mut at = dir;
    // A way that is longer than there are directories goes round a circle, which is that of another directory.
    for _ in 0..=places.len() {
        match places.get(&at) {
            None => return false,
            Some(located) if located.parent == dir => return true,
            Some(located) => at = located.parent,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new(b"d").expect("a name")
    }

    /// Directories 1, 2 and 3 in the root.
    fn three() -> Moves {
        let mut all = Moves::default();
        (1..=3).for_each(|dir| all.birth(dir, 0, name(), (u64::try_from(dir).expect("small"), 0)));
        all
    }

    fn parents(moved: &Moved) -> Vec<DirId> {
        moved.places.values().map(|at| at.parent).collect()
    }

    #[test]
    fn the_last_of_three_moves_in_a_ring_has_no_effect() {
        let mut all = three();
        for (dir, parent, stamp) in [(1, 2, 10), (2, 3, 11), (3, 1, 12)] {
            all.issue((stamp, 0), vec![(dir, parent, name())]);
        }
        let moved = all.tree(|_| true);
        assert_eq!((parents(&moved), moved.lost), (vec![2, 3, 0], BTreeSet::from([(12, 0)])));
        // Whoever does not know the second one has another tree.
        assert_eq!(parents(&all.tree(|stamp| stamp.0 != 11)), [2, 0, 1]);
    }

    #[test]
    fn a_move_without_effect_stays_so_when_the_other_is_moved_away() {
        let mut all = three();
        for (dir, parent, stamp) in [(1, 2, 10), (2, 1, 11), (1, 3, 12)] {
            all.issue((stamp, 0), vec![(dir, parent, name())]);
        }
        assert_eq!(parents(&all.tree(|_| true)), [3, 0, 0]);
    }

    #[test]
    fn moves_made_together_have_an_effect_together_or_none() {
        let mut all = three();
        // 1 and 2 change places with each other, one of them in 3: that is no circle.
        all.issue((10, 0), vec![(1, 3, name())]);
        all.issue((11, 0), vec![(1, 0, name()), (2, 3, name())]);
        // 2 would come below itself, so 1 stays too.
        all.issue((12, 0), vec![(1, 3, name()), (3, 2, name())]);
        let moved = all.tree(|_| true);
        assert_eq!((parents(&moved), moved.lost), (vec![0, 3, 0], BTreeSet::from([(12, 0)])));
    }

    #[test]
    fn a_circle_above_a_directory_is_not_its_own() {
        let at = |parent| Located { parent, name: name(), since: (1, 0) };
        let places = BTreeMap::from([(1, at(2)), (2, at(3)), (3, at(2))]);
        assert_eq!([1, 2, 3].map(|dir| is_below_itself(&places, dir)), [false, true, true]);
    }
}
