//! Numbers and names of machines, islands, files, sessions and transactions.

use crate::clock::Stamp;
use crate::codec::{Decode, Encode, Malformed, Reader};

macro_rules! newtype {
    ($(#[$meta:meta])* $name:ident($int:ty)) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);
        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }

            fn encoded_len(&self) -> usize {
                self.0.encoded_len()
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self(<$int>::decode(r)?))
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype!(/// A logical server of part of a volume (Archipelago 3). Dense from 0 in a volume.
    IslandId(u16));
newtype!(/// One daemon on one machine with one data directory.
    NodeId(u16));
newtype!(/// A volume, drawn at random when it is created.
    VolumeId(u64));
newtype!(/// A client's connection to a volume, drawn at random by the client; never 0.
    SessionId(u64));
newtype!(/// A directory's placement key: the H3 hash of its pathname when it was made (`DESIGN` 3).
    Key(u32));
newtype!(/// The id of a file or directory, which users see as its inode number.
    ///
    /// The upper 16 bits are the island that minted it, so that a file's usual home can be read
    /// off its id; the lower 48 count up and are never used again.
    Ino(u64));

impl Ino {
    /// The root directory of every volume.
    pub const ROOT: Self = Self(1);
    /// Number of bits that an island counts.
    pub const COUNTER_BITS: u32 = 48;
    /// The first counter value that an island may mint; smaller ones are reserved.
    pub const FIRST_COUNTER: u64 = 16;

    /// The id that `island` mints as its `counter`-th.
    pub const fn mint(island: IslandId, counter: u64) -> Self {
        assert!(counter < 1 << Self::COUNTER_BITS, "an island minted 2^48 ids");
        Self(((island.0 as u64) << Self::COUNTER_BITS) | counter)
    }

    /// The island that minted this id: a file's home unless it was moved.
    pub const fn minted_by(self) -> IslandId {
        IslandId((self.0 >> Self::COUNTER_BITS) as u16)
    }
}

crate::wire_struct! {
    /// A transaction between islands: its coordinator, and its number there.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct TxnId {
        /// The island that decides the outcome.
        pub coordinator: IslandId,
        /// Its stamp: (incarnation, n). So no number is given twice, even if the end of the log was lost.
        pub stamp: Stamp,
    }
}
