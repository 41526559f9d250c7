//! Hash maps for ids. They are fast, and iterate in the same order in every run, so that a simulation can be
//! repeated.
//!
//! Do not use them for keys that somebody outside can choose, such as names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are ids of our own making.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
/// A set of ids of our own making.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Multiplies and folds; ids count up, so their low bits must reach all bits of the hash.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0.rotate_left(5) ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ids_spread_over_high_and_low_bits() {
        let hash = |n: u64| {
            let mut h = IdHasher::default();
            h.write_u64(n);
            h.finish()
        };
        let low: HashSet<u64> = (0..1000).map(|n| hash(n) & 0xffff).collect();
        let high: HashSet<u64> = (0..1000).map(|n| hash(n) >> 48).collect();
        assert!(low.len() > 980 && high.len() > 980, "{} {}", low.len(), high.len());
    }
}
