//! The extendible hash table: placement key -> island (Archipelago 5.2).
//!
//! The table has a version. Every request carries its sender's version, and a sender with an old one fetches
//! the new table. The table only says which island owns a directory: it never chooses owners (that is
//! [`crate::rebalance`]) and never moves data.

use crate::codec::{Decode, Encode, Malformed, Reader};
use crate::id::{IslandId, Key};

/// Which island owns the directories of each bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    version: u64,
    /// A power of two long; a key's upper bits are its index.
    owners: Vec<IslandId>,
}

/// Index of a table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub u32);

impl Table {
    /// Buckets for each island, so that the greedy rebalance has something to choose from.
    pub const BUCKETS_PER_ISLAND: usize = 64;
    /// Most buckets that a table may have.
    pub const BUCKETS_MAX: usize = 1 << 22;

    /// The first table of a volume with islands `0..islands`: equal shares, in turn.
    ///
    /// # Panics
    /// If `islands` is 0.
    pub fn new(islands: u16) -> Self {
        Self::with_buckets(islands, (usize::from(islands) * Self::BUCKETS_PER_ISLAND).next_power_of_two())
    }

    /// A first table of another size: islands `0..islands` own the buckets in turn.
    ///
    /// # Panics
    /// If `islands` is 0, or `buckets` is no power of two up to [`Self::BUCKETS_MAX`].
    pub fn with_buckets(islands: u16, buckets: usize) -> Self {
        assert!(islands > 0, "a volume has an island at least");
        assert!(buckets.is_power_of_two() && buckets <= Self::BUCKETS_MAX, "{buckets} buckets");
        let owners = (0..buckets).map(|i| IslandId((i % usize::from(islands)) as u16)).collect();
        Self { version: 1, owners }
    }

    /// Counts up with every change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// How many buckets there are: a power of two.
    pub const fn buckets(&self) -> usize {
        self.owners.len()
    }

    /// The bucket that `key` falls into.
    pub const fn bucket(&self, key: Key) -> Bucket {
        let bits = self.owners.len().trailing_zeros();
        Bucket(if bits == 0 { 0 } else { key.0 >> (32 - bits) })
    }

    /// The island that owns a directory with this key.
    ///
    /// Each part of Atoll calls this in one place, its own `owner`; `cargo xtask tidy` refuses a call
    /// anywhere else. So if a directory's owner one day depends on more than its key, each part changes in
    /// one place.
    pub fn owner(&self, key: Key) -> IslandId {
        self.owner_of(self.bucket(key))
    }

    /// The island that owns a bucket's directories.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn owner_of(&self, bucket: Bucket) -> IslandId {
        self.owners[bucket.0 as usize]
    }

    /// Whether both tables give every directory the same owner, however many buckets they have.
    pub fn has_owners_of(&self, other: &Self) -> bool {
        let (fine, coarse) = if self.buckets() < other.buckets() { (other, self) } else { (self, other) };
        let heirs = fine.buckets() / coarse.buckets();
        fine.owners
            .chunks(heirs)
            .zip(&coarse.owners)
            .all(|(heirs, owner)| heirs.iter().all(|heir| heir == owner))
    }

    /// All owners, by bucket.
    pub fn owners(&self) -> &[IslandId] {
        &self.owners
    }

    /// Twice as many buckets; every key keeps its owner, so nothing moves.
    ///
    /// # Panics
    /// If there are [`Self::BUCKETS_MAX`] already.
    #[must_use]
    pub fn doubled(&self) -> Self {
        // A table past the bound could be made but not sent: every peer would refuse it.
        assert!(self.buckets() < Self::BUCKETS_MAX, "a table cannot grow past {}", Self::BUCKETS_MAX);
        let owners = self.owners.iter().flat_map(|&o| [o, o]).collect();
        Self { version: self.version + 1, owners }
    }

    /// The next version, with these buckets given to other islands.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[must_use]
    pub fn reassigned(&self, moves: impl IntoIterator<Item = (Bucket, IslandId)>) -> Self {
        let mut next = Self { version: self.version + 1, owners: self.owners.clone() };
        for (bucket, island) in moves {
            next.owners[bucket.0 as usize] = island;
        }
        next
    }
}

impl Encode for Table {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.owners.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.version.encoded_len() + self.owners.encoded_len()
    }
}

impl Decode for Table {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let version = u64::decode(r)?;
        let owners = Vec::<IslandId>::decode(r)?;
        if version == 0 || !owners.len().is_power_of_two() || owners.len() > Self::BUCKETS_MAX {
            return Err(Malformed::new("table"));
        }
        Ok(Self { version, owners })
    }
}
