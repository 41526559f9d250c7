//! The one source of chance: SplitMix64, whose whole state is the seed that a failure prints.

/// A stream of numbers that a seed repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        // The bias of multiply-shift is below bound / 2^64: nothing for a test.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into something of `len` items, which is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// The place of one of `weights`, each as likely as it is heavy; their sum is not 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = self.below(sum);
        for (at, &weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        unreachable!("a number below the sum of the weights falls on one of them")
    }
}

/// Spreads every bit of `x` over all bits.
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        // The reference vector of the published algorithm for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn weights_of_nothing_are_never_drawn_and_others_are() {
        let mut rng = Rng::new(1);
        let mut drawn = [0; 4];
        for _ in 0..1000 {
            drawn[rng.weighted(&[0, 1, 0, 9])] += 1;
        }
        assert_eq!((drawn[0], drawn[2]), (0, 0));
        assert!(drawn[1] > 50 && drawn[3] > 800, "{drawn:?}");
    }
}
