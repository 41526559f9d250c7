//! The stamps of the islands' journals that this client has seen. It tells them to each island, which answers nothing
//! older. An island may lie about the journal of another, so a stamp that was made up is found out and forgotten.
//!
//! Invariant: no stamp is forgotten that its island had given when this client heard of it.

use std::collections::BTreeMap;

use atoll_core::{ClockVector, IslandId, Stamp};

/// What was heard about one journal from other islands than its own.
#[derive(Debug, Clone, Copy, Default)]
struct Hearsay {
    /// How many replies had come with the one that told the highest stamp.
    since: u64,
    /// The highest stamp below that one, which would hide behind it if it is a lie.
    below: Stamp,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SeenStamps {
    highest: ClockVector,
    hearsay: BTreeMap<IslandId, Hearsay>,
    /// Counts the changes of the highest ones.
    version: u64,
    replies: u64,
}

impl Default for SeenStamps {
    fn default() -> Self {
        Self { highest: ClockVector::default(), hearsay: BTreeMap::new(), version: 1, replies: 0 }
    }
}

impl SeenStamps {
    /// Which of them were told last is remembered by this number.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// How many replies have come.
    pub(crate) const fn replies(&self) -> u64 {
        self.replies
    }

    /// The highest one of each journal.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (IslandId, Stamp)> + '_ {
        self.highest.iter()
    }

    /// A reply of `from` tells these stamps. `asked_after`: it answers a sign of life, which was sent when so many replies
    /// had come. Then the island's own stamp in it is the end of its journal, at that time or later.
    pub(crate) fn told(
        &mut self,
        from: IslandId,
        stamps: impl Iterator<Item = (IslandId, Stamp)>,
        asked_after: Option<u64>,
    ) {
        self.replies += 1;
        for (of, stamp) in stamps {
            let before = self.highest.get(of);
            let hearsay = self.hearsay.entry(of).or_default();
            if self.highest.raise(of, stamp) {
                self.version += 1;
                *hearsay = Hearsay { since: self.replies, below: before };
            } else if stamp < before {
                hearsay.below = hearsay.below.max(stamp);
                if of == from && asked_after.is_some_and(|after| hearsay.since <= after) {
                    // It was heard before the question, so its island had not given it.
                    self.highest.set(of, hearsay.below);
                    *hearsay = Hearsay { since: self.replies, below: Stamp::default() };
                    self.version += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: IslandId = IslandId(0);
    const Y: IslandId = IslandId(1);
    const LIE: Stamp = Stamp(1 << 39);

    fn highest(seen: &SeenStamps) -> Stamp {
        seen.highest.get(X)
    }

    fn told(seen: &mut SeenStamps, from: IslandId, stamp: Stamp, asked_after: Option<u64>) {
        seen.told(from, [(X, stamp)].into_iter(), asked_after);
    }

    #[test]
    fn a_stamp_that_was_made_up_is_forgotten_when_its_island_is_heard() {
        let mut seen = SeenStamps::default();
        told(&mut seen, X, Stamp(5), None);
        let before = seen.replies();
        told(&mut seen, Y, LIE, None);
        told(&mut seen, X, Stamp(6), Some(before));
        assert_eq!(highest(&seen), LIE, "the island was asked before that was heard");
        told(&mut seen, Y, Stamp(8), None);
        let (after, version) = (seen.replies(), seen.version());
        told(&mut seen, X, Stamp(7), Some(after));
        assert_eq!(highest(&seen), Stamp(8), "another island has told this");
        assert!(seen.version() > version, "all islands are told");
    }

    #[test]
    fn a_lie_behind_another_is_found_out_next() {
        let mut seen = SeenStamps::default();
        told(&mut seen, Y, Stamp(LIE.0 - 1), None);
        told(&mut seen, Y, LIE, None);
        for _ in 0..2 {
            let after = seen.replies();
            told(&mut seen, X, Stamp(7), Some(after));
        }
        assert_eq!(highest(&seen), Stamp(7));
    }

    #[test]
    fn what_an_island_has_given_stays_although_its_answers_overtake_each_other() {
        let mut seen = SeenStamps::default();
        let before = seen.replies();
        told(&mut seen, Y, Stamp(9), None);
        // It was said before.
        told(&mut seen, X, Stamp(8), Some(before));
        // No answer to a sign of life.
        told(&mut seen, X, Stamp(8), None);
        assert_eq!(highest(&seen), Stamp(9));
    }
}
