//! A small seeded generator (SplitMix64), so that one number repeats a run. Not for secrets.

/// The generator.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which is above 0.
    pub(super) const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) const fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

/// Spreads every bit over all others.
pub(super) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
