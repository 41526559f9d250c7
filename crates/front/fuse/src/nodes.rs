//! The ids that the kernel knows: for each, how many times it was told of it without having forgotten it
//! since. Exact; never asks a volume.
//!
//! Counts are stored in chunks of neighbouring ids. A chunk of few ids is a short sorted list; a chunk of
//! many is an array of 4 bytes per id.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CHUNK_BITS: u32 = 10;
const CHUNK_IDS: usize = 1 << CHUNK_BITS;
/// From so many ids on a chunk is an array.
const SPARSE_IDS_MAX: usize = 128;
const SHARDS: usize = 16;
/// What an array's count gives to `spilled` when it is full.
const SPILL: u32 = 1 << 31;

/// Lookup counts of every id that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    shards: [Mutex<Shard>; SHARDS],
    /// How many ids of new objects were known already.
    reused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    chunks: HashMap<u64, Chunk>,
    /// Counts beyond 32 bits, in units of `SPILL`: a busy directory is looked up that often.
    spilled: HashMap<u64, u64>,
    /// Generations that are not 0, of ids that the kernel knows.
    generations: HashMap<u64, u64>,
}

#[derive(Debug)]
enum Chunk {
    Sparse(Vec<(u16, u32)>),
    Dense { counts: Box<[u32; CHUNK_IDS]>, known: u16 },
}

impl Chunk {
    fn get(&self, slot: u16) -> u32 {
        match self {
            Self::Sparse(list) => list.binary_search_by_key(&slot, |e| e.0).map_or(0, |at| list[at].1),
            Self::Dense { counts, .. } => counts[usize::from(slot)],
        }
    }

    fn set(&mut self, slot: u16, count: u32) {
        match self {
            Self::Sparse(list) => match (list.binary_search_by_key(&slot, |e| e.0), count) {
                (Ok(at), 0) => _ = list.remove(at),
                (Ok(at), _) => list[at].1 = count,
                (Err(_), 0) => {}
                (Err(at), _) if list.len() < SPARSE_IDS_MAX => list.insert(at, (slot, count)),
                (Err(_), _) => {
                    let mut counts = Box::new([0; CHUNK_IDS]);
                    list.iter().for_each(|&(slot, count)| counts[usize::from(slot)] = count);
                    counts[usize::from(slot)] = count;
                    let known = u16::try_from(list.len() + 1).expect("a chunk has 1024 ids");
                    *self = Self::Dense { counts, known };
                }
            },
            Self::Dense { counts, known } => {
                let place = &mut counts[usize::from(slot)];
                match (*place, count) {
                    (0, 1..) => *known += 1,
                    (1.., 0) => *known -= 1,
                    _ => {}
                }
                *place = count;
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Sparse(list) => list.is_empty(),
            Self::Dense { known, .. } => *known == 0,
        }
    }
}

fn split(ino: Ino) -> (u64, u16) {
    (ino.0 >> CHUNK_BITS, u16::try_from(ino.0 % CHUNK_IDS as u64).expect("a slot has ten bits"))
}

impl Nodes {
    fn shard(&self, chunk: u64) -> std::sync::MutexGuard<'_, Shard> {
        self.shards[(chunk % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// The kernel is about to be told of this id once more.
    pub(crate) fn raise(&self, ino: Ino) {
        if ino == Ino::ROOT {
            return; // The kernel never forgets the root, and counts nothing for it.
        }
        let (key, slot) = split(ino);
        let mut shard = self.shard(key);
        let chunk = shard.chunks.entry(key).or_insert_with(|| Chunk::Sparse(Vec::new()));
        let count = chunk.get(slot);
        if count == u32::MAX {
            chunk.set(slot, count - SPILL + 1);
            *shard.spilled.entry(ino.0).or_default() += 1;
        } else {
            chunk.set(slot, count + 1);
        }
    }

    /// The kernel is about to be told of a new object. If the kernel knows its id, that is of one that is gone and that somebody
    /// still uses: file systems use their numbers again. The new generation has the kernel tell the two apart.
    pub(crate) fn raise_new(&self, ino: Ino) {
        if self.knows(ino) {
            let generation = self.reused.fetch_add(1, Relaxed) + 1;
            self.shard(split(ino).0).generations.insert(ino.0, generation);
        }
        self.raise(ino);
    }

    /// The generation of an id.
    pub(crate) fn generation(&self, ino: Ino) -> u64 {
        if self.reused.load(Relaxed) == 0 {
            return 0;
        }
        self.shard(split(ino).0).generations.get(&ino.0).copied().unwrap_or(0)
    }

    /// The kernel forgets this id `n` times. True if it does not know it any more.
    pub(crate) fn lower(&self, ino: Ino, mut n: u64) -> bool {
        if ino == Ino::ROOT {
            return false;
        }
        let (key, slot) = split(ino);
        let mut shard = self.shard(key);
        let Shard { chunks, spilled, generations } = &mut *shard;
        let Some(chunk) = chunks.get_mut(&key) else { return false };
        let mut count = u64::from(chunk.get(slot));
        if count == 0 {
            return false; // Not known: nothing is forgotten.
        }
        if !spilled.is_empty()
            && let Some(units) = spilled.get_mut(&ino.0)
        {
            // Rare: back to one number, and split again.
            let all = (count + *units * u64::from(SPILL)).saturating_sub(n);
            *units = all.saturating_sub(u64::from(u32::MAX)).div_ceil(u64::from(SPILL));
            count = all - *units * u64::from(SPILL);
            if *units == 0 {
                spilled.remove(&ino.0);
            }
            n = 0;
        }
        let left = count.saturating_sub(n);
        chunk.set(slot, u32::try_from(left).expect("the rest was spilled"));
        if chunk.is_empty() {
            chunks.remove(&key);
        }
        if left == 0 {
            generations.remove(&ino.0);
        }
        left == 0
    }

    /// Whether the kernel knows this id.
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        let (key, slot) = split(ino);
        ino == Ino::ROOT || self.shard(key).chunks.get(&key).is_some_and(|chunk| chunk.get(slot) > 0)
    }

    /// How many ids the kernel knows, without the root.
    pub(crate) fn count(&self) -> usize {
        let mut n = 0;
        self.each(|_| n += 1);
        n
    }

    /// Every id that the kernel knows, without the root; those that come and go meanwhile may be
    /// missing or in excess. No lock is held while `f` runs.
    pub(crate) fn each(&self, mut f: impl FnMut(Ino)) {
        for shard in &self.shards {
            let keys: Vec<u64> = {
                let shard = shard.lock().expect("no holder of this lock panics");
                shard.chunks.keys().copied().collect()
            };
            for key in keys {
                let slots: Vec<u16> = match self.shard(key).chunks.get(&key) {
                    None => continue,
                    Some(Chunk::Sparse(list)) => list.iter().map(|e| e.0).collect(),
                    Some(Chunk::Dense { counts, .. }) => (0..)
                        .zip(counts.iter())
                        .filter(|(_, count)| **count > 0)
                        .map(|(slot, _)| slot)
                        .collect(),
                };
                slots.into_iter().for_each(|slot| f(Ino((key << CHUNK_BITS) | u64::from(slot))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_object_with_an_id_that_is_known_is_another_generation() {
        let nodes = Nodes::default();
        nodes.raise_new(Ino(5));
        assert_eq!(nodes.generation(Ino(5)), 0);
        nodes.raise_new(Ino(5));
        let second = nodes.generation(Ino(5));
        assert_ne!(second, 0);
        nodes.raise(Ino(5));
        assert_eq!(nodes.generation(Ino(5)), second, "a lookup finds the same object");
        nodes.raise_new(Ino(5));
        assert!(![0, second].contains(&nodes.generation(Ino(5))));
        assert!(nodes.lower(Ino(5), 4));
        assert_eq!(nodes.generation(Ino(5)), 0, "the kernel knows none of them");
    }

    #[test]
    fn an_id_is_known_until_it_was_forgotten_as_often_as_it_was_told() {
        let nodes = Nodes::default();
        nodes.raise(Ino(5));
        nodes.raise(Ino(5));
        assert!(!nodes.lower(Ino(5), 1));
        assert!(nodes.knows(Ino(5)));
        assert!(nodes.lower(Ino(5), 1));
        assert!(!nodes.knows(Ino(5)) && nodes.count() == 0);
        assert!(!nodes.lower(Ino(5), 1), "what is not known is not forgotten");
    }

    #[test]
    fn the_root_is_known_without_being_told() {
        let nodes = Nodes::default();
        assert!(nodes.knows(Ino::ROOT) && !nodes.lower(Ino::ROOT, 9) && nodes.knows(Ino::ROOT));
    }

    #[test]
    fn a_count_beyond_32_bits_stays_exact() {
        let nodes = Nodes::default();
        let ino = Ino(77);
        nodes.raise(ino);
        let (key, slot) = split(ino);
        nodes.shard(key).chunks.get_mut(&key).unwrap().set(slot, u32::MAX);
        nodes.raise(ino);
        nodes.raise(ino);
        let all = u64::from(u32::MAX) + 2;
        assert!(!nodes.lower(ino, all - 1));
        assert!(nodes.knows(ino));
        assert!(nodes.lower(ino, 1));
    }

    proptest! {
        #[test]
        fn counts_agree_with_a_plain_map(steps in proptest::collection::vec((2u64..3000, 0u64..4), 0..800)) {
            let nodes = Nodes::default();
            let mut model: HashMap<u64, u64> = HashMap::new();
            for (id, n) in steps {
                if n == 0 {
                    nodes.raise(Ino(id));
                    *model.entry(id).or_default() += 1;
                } else if let Some(count) = model.get_mut(&id) {
                    *count = count.saturating_sub(n);
                    let gone = *count == 0;
                    if gone {
                        model.remove(&id);
                    }
                    prop_assert_eq!(nodes.lower(Ino(id), n), gone);
                }
                prop_assert_eq!(nodes.knows(Ino(id)), model.contains_key(&id));
            }
            let mut known = Vec::new();
            nodes.each(|ino| known.push(ino.0));
            known.sort_unstable();
            let mut expected: Vec<u64> = model.into_keys().collect();
            expected.sort_unstable();
            prop_assert_eq!(known, expected);
        }
    }
}
