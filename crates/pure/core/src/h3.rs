//! H3 universal hashing of pathnames (Archipelago 5.1, after Carter and Wegman). Never knows a key's owner.
//!
//! Every bit of the input selects one random 32-bit word, and the hash is the xor of the selected words. So
//! the hash is linear: the hash of `/a/b` is the hash of `/a`, xor the words that the bytes `/b` select at
//! their position. Hashing a child costs only its own name.

use crate::id::Key;
use crate::name::{Name, VolumePath};

/// The hash function of one volume: its matrix of random words, made from the volume's seed.
#[derive(Clone)]
pub struct H3 {
    /// For each byte position of a path, one word for each bit.
    words: std::sync::Arc<[[u32; 8]]>,
}

/// The hash of a path, from which the hash of a longer path follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathHash {
    hash: u32,
    len: u32,
}

impl PathHash {
    /// The hash of the root: its path is empty, and its key is 0 under every seed.
    pub const ROOT: Self = Self { hash: 0, len: 0 };

    /// The placement key of a directory with this path.
    pub const fn key(self) -> Key {
        Key(self.hash)
    }

    /// Bytes of the path.
    pub const fn bytes(self) -> u16 {
        self.len as u16
    }

    /// The hash of a directory's path, from its key and the length of the path. None if the length is unknown
    /// (0, except for the root). Keys of directories below follow from it.
    pub const fn of_birth(key: Key, bytes: u16) -> Option<Self> {
        match (key.0, bytes) {
            (0, 0) => Some(Self::ROOT),
            (_, 0) => None,
            (hash, _) => Some(Self { hash, len: bytes as u32 }),
        }
    }
}

impl H3 {
    /// The function that belongs to `seed`. SplitMix64 fills the matrix.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 32) as u32
        };
        Self { words: (0..VolumePath::BYTES_MAX).map(|_| std::array::from_fn(|_| next())).collect() }
    }

    /// The hash of `at`'s path extended by `/name`. None if that is longer than a path may be.
    pub fn child(&self, at: PathHash, name: &Name) -> Option<PathHash> {
        let mut next = self.byte(at, b'/')?;
        for &b in name.as_bytes() {
            next = self.byte(next, b)?;
        }
        Some(next)
    }

    /// The hash of a whole path, given as its components.
    pub fn path<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Option<PathHash> {
        names.into_iter().try_fold(PathHash::ROOT, |at, name| self.child(at, name))
    }

    fn byte(&self, at: PathHash, byte: u8) -> Option<PathHash> {
        let words = self.words.get(at.len as usize)?;
        let mut hash = at.hash;
        for (bit, word) in words.iter().enumerate() {
            // A mask instead of a branch: name bytes are unpredictable.
            hash ^= word & (u32::from(byte >> bit) & 1).wrapping_neg();
        }
        Some(PathHash { hash, len: at.len + 1 })
    }
}

impl std::fmt::Debug for H3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("H3")
    }
}
