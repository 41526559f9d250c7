//! The oracle of life and death in a wide volume: which links, versions and directories are left, told by the history of
//! events alone. Each event has the set of events of its object that had been seen where it happened. An event counts against
//! another one only if it had seen it. Slow and plain; knows no dots, contexts, states or joins.

use std::collections::BTreeMap;

/// A set of events of one object: those that a site has heard of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen(Vec<u64>);

impl Seen {
    /// The set with `event` in it.
    pub fn add(&mut self, event: usize) {
        let word = event / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (event % 64);
    }

    /// The set with all of `other` in it.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// Whether `event` is in it.
    pub fn has(&self, event: usize) -> bool {
        self.0.get(event / 64).is_some_and(|word| word >> (event % 64) & 1 == 1)
    }
}

/// A place that a link was given, with the order of such places in front. The oracle does not know what the rest means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceGiven {
    /// When: time, and the writer for places of one time.
    pub stamp: (u64, u64),
    /// The directory.
    pub dir: u128,
    /// The name.
    pub name: Vec<u8>,
}

/// What a user did to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Did {
    /// Of a file: a link was made or moved.
    Linked {
        /// Which link.
        link: u64,
        /// To where.
        place: PlaceGiven,
    },
    /// Of a file: a link was removed.
    Unlinked {
        /// Which link.
        link: u64,
    },
    /// Of a file: a version was written over those that had been seen.
    Wrote {
        /// Which version, by a number.
        version: u64,
        /// The bytes, by a number.
        bytes: u64,
    },
    /// Of a file: a version became a file of its own.
    Settled {
        /// Which version.
        version: u64,
    },
    /// Of a directory: it was made, renamed, or kept because somebody worked in it.
    Kept,
    /// Of a directory: it was removed.
    Removed,
}

/// An event of the history.
#[derive(Debug, Clone)]
pub struct LifeEvent {
    /// The object, by a number.
    pub object: usize,
    /// What was done.
    pub did: Did,
    /// What had been seen of the object.
    pub seen: Seen,
}

/// A history of events.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: Vec<LifeEvent>,
}

/// What is left of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLeft {
    /// Links that no removal had seen, each with its latest place.
    pub links: BTreeMap<u64, PlaceGiven>,
    /// Whether it has no link left, and a version that no removal had seen.
    pub is_rescued: bool,
    /// Versions that are not settled and that nobody has written over who had seen them, and if there is no link, those that no removal had seen: events.
    pub versions: Vec<usize>,
}

impl History {
    /// Takes in an event, and gives its number.
    pub fn add(&mut self, object: usize, did: Did, seen: &Seen) -> usize {
        self.events.push(LifeEvent { object, did, seen: seen.clone() });
        self.events.len() - 1
    }

    /// An event.
    pub fn event(&self, event: usize) -> &LifeEvent {
        &self.events[event]
    }

    /// The events of an object that are among `heard`: others were lost with the site that had them.
    pub fn of(&self, object: usize, heard: &Seen) -> Vec<usize> {
        (0..self.events.len()).filter(|at| self.events[*at].object == object && heard.has(*at)).collect()
    }

    /// What is left of a file by the events among `heard`.
    pub fn file(&self, object: usize, heard: &Seen) -> FileLeft {
        let events = self.of(object, heard);
        let has_seen = |by: usize, event: usize| by != event && self.events[by].seen.has(event);
        let of_link = |event: usize| match &self.events[event].did {
            Did::Linked { link, .. } | Did::Unlinked { link } => Some(*link),
            _ => None,
        };
        let mut links: BTreeMap<u64, PlaceGiven> = BTreeMap::new();
        for &event in &events {
            let Did::Linked { link, place } = &self.events[event].did else { continue };
            if events.iter().any(|&by| of_link(by) == Some(*link) && has_seen(by, event)) {
                continue;
            }
            let there = links.entry(*link).or_insert_with(|| place.clone());
            if place > there {
                *there = place.clone();
            }
        }
        let wrote = |event: usize| matches!(self.events[event].did, Did::Wrote { .. });
        let removed = |event: usize| matches!(self.events[event].did, Did::Unlinked { .. });
        let is_settled = |event: usize| {
            let Did::Wrote { version, .. } = self.events[event].did else { return false };
            events.iter().any(|&by| self.events[by].did == Did::Settled { version })
        };
        let is_last = |event: usize| {
            let is_over = |&by: &usize| wrote(by) && has_seen(by, event);
            wrote(event) && !is_settled(event) && !events.iter().any(is_over)
        };
        let is_unseen = |event: usize| !events.iter().any(|&by| removed(by) && has_seen(by, event));
        let last = events.iter().copied().filter(|&event| is_last(event));
        let versions: Vec<usize> =
            if links.is_empty() { last.filter(|&event| is_unseen(event)).collect() } else { last.collect() };
        FileLeft { is_rescued: links.is_empty() && !versions.is_empty(), links, versions }
    }

    /// Whether something keeps a directory that no removal had seen.
    pub fn is_kept(&self, object: usize, heard: &Seen) -> bool {
        let events = self.of(object, heard);
        let did = |event: usize, what: &Did| self.events[event].did == *what;
        let is_unseen = |event: usize| {
            !events.iter().any(|&by| did(by, &Did::Removed) && self.events[by].seen.has(event))
        };
        events.iter().any(|&event| did(event, &Did::Kept) && is_unseen(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(time: u64, name: &str) -> PlaceGiven {
        PlaceGiven { stamp: (time, 0), dir: 1, name: name.as_bytes().to_vec() }
    }

    fn seen(events: &[usize]) -> Seen {
        let mut seen = Seen::default();
        events.iter().for_each(|event| seen.add(*event));
        seen
    }

    #[test]
    fn a_removal_counts_for_what_it_had_seen() {
        let mut history = History::default();
        let born = history.add(0, Did::Linked { link: 1, place: place(1, "a") }, &seen(&[]));
        let wrote = history.add(0, Did::Wrote { version: 1, bytes: 1 }, &seen(&[0]));
        let gone = history.add(0, Did::Unlinked { link: 1 }, &seen(&[born, wrote]));
        let over = history.add(0, Did::Wrote { version: 2, bytes: 2 }, &seen(&[born, wrote]));
        let moved = history.add(0, Did::Linked { link: 1, place: place(3, "b") }, &seen(&[born]));
        let all = [born, wrote, gone, over, moved];
        assert_eq!(history.file(0, &seen(&all[..2])).links[&1].name, b"a");
        let dead = history.file(0, &seen(&all[..3]));
        assert!(dead.links.is_empty() && !dead.is_rescued);
        let rescued = history.file(0, &seen(&all[..4]));
        assert_eq!((rescued.is_rescued, rescued.versions), (true, vec![over]));
        let renamed = history.file(0, &seen(&all));
        assert_eq!((renamed.links[&1].name.as_slice(), renamed.is_rescued), (&b"b"[..], false));
    }

    #[test]
    fn a_directory_is_kept_by_what_no_removal_had_seen() {
        let mut history = History::default();
        let born = history.add(7, Did::Kept, &seen(&[]));
        let gone = history.add(7, Did::Removed, &seen(&[born]));
        let kept = history.add(7, Did::Kept, &seen(&[born]));
        assert!(history.is_kept(7, &seen(&[born])));
        assert!(!history.is_kept(7, &seen(&[born, gone])));
        assert!(history.is_kept(7, &seen(&[born, gone, kept])));
    }
}
