//! Keys of paths whose directories were renamed after they were made (`DESIGN` 3). This is only a cache and
//! answers nothing by itself. A wrong hint leads to the wrong island first, which sends the request on.
//!
//! A hint is stored by a hash of its path, not by the path. If two paths share a hash, one of them costs one
//! more request.

use std::collections::VecDeque;

use atoll_core::{H3, IdMap, Key, Name, PathHash, VolumePath};
use atoll_proto::{Hint, KeyOverride};

/// Hints that are kept; then the oldest go.
pub const HINTS_MAX: usize = 16_384;

/// Where a directory was made.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The number of its entry in the queue.
    turn: u64,
    key: Key,
    birth_bytes: u16,
}

/// See the module.
#[derive(Debug)]
pub struct Hints {
    seed: u64,
    kept: IdMap<u64, Kept>,
    /// Hints in the order in which they were learned, with those that were forgotten since.
    turns: VecDeque<(u64, u64)>,
    next_turn: u64,
}

impl Hints {
    /// No hints. `seed` is the volume's, so that no set of names is bad for all volumes.
    pub fn new(seed: u64) -> Self {
        Self { seed, kept: IdMap::default(), turns: VecDeque::new(), next_turn: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// None is known.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The key of the directory at this path, as far as the hints know: the key of the deepest directory on
    /// the way that has a hint, extended by the names below it. None if the path is too long.
    pub fn key(&self, h3: &H3, names: &[Name]) -> Option<Key> {
        let mut deepest = None;
        if !self.kept.is_empty() {
            let mut at = self.seed;
            for (i, name) in names.iter().enumerate() {
                at = below(at, name);
                if let Some(kept) = self.kept.get(&at) {
                    deepest = Some((i + 1, *kept));
                }
            }
        }
        let Some((depth, kept)) = deepest else { return h3.path(names).map(PathHash::key) };
        let birth = match PathHash::of_birth(kept.key, kept.birth_bytes) {
            _ if depth == names.len() => return Some(kept.key),
            Some(birth) => birth,
            // Of this key nothing follows: below it keys are those of paths.
            None => return h3.path(names).map(PathHash::key),
        };
        names[depth..].iter().try_fold(birth, |at, name| h3.child(at, name)).map(PathHash::key)
    }

    /// Learns a hint from an island's list of all its hints.
    pub fn learn(&mut self, hint: &Hint) {
        let at = hint.path.names().iter().fold(self.seed, below);
        self.keep(at, hint.key, hint.birth_bytes);
    }

    /// A walk has passed the first `depth` directories of a path. `births` lists all of them that were
    /// renamed. If `ends`, the next name does not exist.
    pub fn walked(&mut self, path: &VolumePath, depth: usize, key_overrides: &[KeyOverride], ends: bool) {
        if self.kept.is_empty() && key_overrides.is_empty() {
            return;
        }
        let mut key_overrides = key_overrides.iter().peekable();
        let mut at = self.seed;
        for (i, name) in path.names().iter().take(depth + usize::from(ends)).enumerate() {
            at = below(at, name);
            match key_overrides.next_if(|born| born.depth as usize == i + 1) {
                Some(born) => self.keep(at, born.key, born.birth_bytes),
                None => drop(self.kept.remove(&at)),
            }
        }
    }

    fn keep(&mut self, at: u64, key: Key, birth_bytes: u16) {
        if let Some(kept) = self.kept.get_mut(&at) {
            (kept.key, kept.birth_bytes) = (key, birth_bytes);
            return;
        }
        self.next_turn += 1;
        let turn = self.next_turn;
        self.kept.insert(at, Kept { turn, key, birth_bytes });
        self.turns.push_back((turn, at));
        while self.kept.len() > HINTS_MAX || self.turns.len() > 2 * HINTS_MAX {
            let Some((turn, at)) = self.turns.pop_front() else { return };
            if self.kept.get(&at).is_some_and(|kept| kept.turn == turn) {
                self.kept.remove(&at);
            }
        }
    }
}

/// The hash of the path `at` extended by `name`.
fn below(at: u64, name: &Name) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |at: u64, word: u64| {
        let wide = u128::from(at.rotate_left(23) ^ word) * u128::from(ODD);
        (wide as u64) ^ ((wide >> 64) as u64)
    };
    let bytes = name.as_bytes();
    // The length tells names apart that differ in where they end.
    let mut at = mix(at, bytes.len() as u64 ^ ODD);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        at = mix(at, u64::from_le_bytes(word.try_into().expect("chunks of 8")));
    }
    if !words.remainder().is_empty() {
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        at = mix(at, u64::from_le_bytes(last));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> VolumePath {
        VolumePath::parse(text.as_bytes()).unwrap()
    }

    fn hash(h3: &H3, text: &str) -> PathHash {
        h3.path(path(text).names()).unwrap()
    }

    fn hint(h3: &H3, now: &str, birth: &str) -> Hint {
        let birth = hash(h3, birth);
        Hint { path: path(now), key: birth.key(), birth_bytes: birth.bytes() }
    }

    fn key(hints: &Hints, h3: &H3, text: &str) -> Key {
        hints.key(h3, path(text).names()).unwrap()
    }

    #[test]
    fn the_longest_prefix_that_is_known_decides() {
        let h3 = H3::new(5);
        let mut hints = Hints::new(5);
        hints.learn(&hint(&h3, "/new", "/some/old"));
        hints.learn(&hint(&h3, "/new/later/deep", "/new/later/deep"));
        for (now, birth) in [
            ("/", "/"),
            ("/new", "/some/old"),
            ("/new/a/b", "/some/old/a/b"),
            ("/new/later", "/some/old/later"),
            ("/new/later/deep/er", "/new/later/deep/er"),
            ("/newer/a", "/newer/a"),
            ("/x/new", "/x/new"),
        ] {
            assert_eq!(key(&hints, &h3, now), hash(&h3, birth).key(), "{now}");
        }
    }

    #[test]
    fn of_a_key_that_is_no_paths_hash_nothing_follows() {
        let h3 = H3::new(5);
        let mut hints = Hints::new(5);
        hints.learn(&Hint { path: path("/a/b"), key: Key(77), birth_bytes: 0 });
        assert_eq!(key(&hints, &h3, "/a/b"), Key(77));
        assert_eq!(key(&hints, &h3, "/a/b/c"), hash(&h3, "/a/b/c").key());
    }

    #[test]
    fn a_walk_corrects_what_it_came_through_and_no_more() {
        let h3 = H3::new(5);
        let mut hints = Hints::new(5);
        for (now, birth) in [("/a", "/x"), ("/a/b", "/y"), ("/a/b/c", "/z")] {
            hints.learn(&hint(&h3, now, birth));
        }
        let born = hash(&h3, "/w/b");
        let key_overrides = [KeyOverride { depth: 2, key: born.key(), birth_bytes: born.bytes() }];
        hints.walked(&path("/a/b/c"), 2, &key_overrides, false);
        assert_eq!(key(&hints, &h3, "/a"), hash(&h3, "/a").key());
        assert_eq!(key(&hints, &h3, "/a/b/d"), hash(&h3, "/w/b/d").key());
        assert_eq!(key(&hints, &h3, "/a/b/c"), hash(&h3, "/z").key());
        hints.walked(&path("/a/b/c/d"), 2, &key_overrides, true);
        assert_eq!(key(&hints, &h3, "/a/b/c"), hash(&h3, "/w/b/c").key(), "it is not there any more");
    }

    #[test]
    fn the_oldest_go_and_those_learned_again_stay_one() {
        let h3 = H3::new(5);
        let mut hints = Hints::new(5);
        let at = |n: usize| hint(&h3, &format!("/now/{n}"), &format!("/birth/{n}"));
        for n in 0..HINTS_MAX + 10 {
            hints.learn(&at(n));
            hints.learn(&at(n));
        }
        assert_eq!(hints.len(), HINTS_MAX);
        assert_eq!(key(&hints, &h3, "/now/9"), hash(&h3, "/now/9").key());
        assert_eq!(key(&hints, &h3, "/now/10"), hash(&h3, "/birth/10").key());
        // Forgotten and learned for ever: the queue has a bound too.
        for n in 0..4 * HINTS_MAX {
            hints.walked(&path("/now/20/x"), 2, &[], false);
            hints.learn(&at(20));
            assert!(hints.turns.len() <= 2 * HINTS_MAX, "{n}");
        }
        assert_eq!(key(&hints, &h3, "/now/20"), hash(&h3, "/birth/20").key());
    }
}
