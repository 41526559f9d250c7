//! Logical clocks (Archipelago 8.1): stamps that an island gives, and vectors of them.
//!
//! Orders events. Never reads a wall clock, and never decides what a stamp stands for.

use crate::codec::{Decode, Encode, Malformed, Reader};
use crate::id::IslandId;

/// An island's logical clock value: (incarnation, n) in one ordered number.
///
/// The upper 24 bits are the incarnation, so that a log tail that was lost in a power cut never
/// makes a number twice (`DESIGN` 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    const N_BITS: u32 = 40;

    /// The `n`-th stamp of an incarnation.
    pub const fn new(incarnation: u32, n: u64) -> Self {
        assert!(incarnation < 1 << 24 && n < 1 << Self::N_BITS, "a stamp overflowed");
        Self(((incarnation as u64) << Self::N_BITS) | n)
    }

    /// The incarnation that gave it.
    pub const fn incarnation(self) -> u32 {
        (self.0 >> Self::N_BITS) as u32
    }

    /// Its number within the incarnation.
    pub const fn n(self) -> u64 {
        self.0 & ((1 << Self::N_BITS) - 1)
    }
}

impl Encode for Stamp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Stamp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u64::decode(r)?))
    }
}

/// For each coordinator, the highest stamp of its journal that was seen (Archipelago 8.1). A missing island
/// means zero.
///
/// A vector never ends in zeros, so equal vectors have equal bytes and `==` compares them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ClockVector(Vec<Stamp>);

impl ClockVector {
    /// The highest stamp of `island` that was seen.
    pub fn get(&self, island: IslandId) -> Stamp {
        self.0.get(usize::from(island.0)).copied().unwrap_or_default()
    }

    /// Raises `island`'s value to `stamp`; true if it was lower.
    pub fn raise(&mut self, island: IslandId, stamp: Stamp) -> bool {
        let i = usize::from(island.0);
        if self.get(island) >= stamp {
            return false;
        }
        if self.0.len() <= i {
            self.0.resize(i + 1, Stamp::default());
        }
        self.0[i] = stamp;
        true
    }

    /// Sets `island`'s value, which may be lower than before.
    pub fn set(&mut self, island: IslandId, stamp: Stamp) {
        if let Some(value) = self.0.get_mut(usize::from(island.0)) {
            *value = stamp;
        } else {
            self.raise(island, stamp);
        }
        while self.0.last() == Some(&Stamp::default()) {
            self.0.pop();
        }
    }

    /// Raises every value to `other`'s. True if one was lower.
    pub fn join(&mut self, other: &Self) -> bool {
        other.iter().fold(false, |news, (island, stamp)| self.raise(island, stamp) | news)
    }

    /// True if this has seen everything that `other` has: `self >= other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(i, stamp)| self.0.get(i).copied().unwrap_or_default() >= *stamp)
    }

    /// Every island with a stamp that is not zero.
    pub fn iter(&self) -> impl Iterator<Item = (IslandId, Stamp)> + '_ {
        (0u16..).zip(&self.0).filter(|(_, s)| **s != Stamp::default()).map(|(i, s)| (IslandId(i), *s))
    }
}

impl Encode for ClockVector {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for ClockVector {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let list = Vec::<Stamp>::decode(r)?;
        let ends_in_zero = list.last() == Some(&Stamp::default());
        if ends_in_zero || list.len() > usize::from(u16::MAX) + 1 {
            return Err(Malformed::new("clock vector"));
        }
        Ok(Self(list))
    }
}
