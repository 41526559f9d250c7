//! Names of changes and of the objects that they are about.

use atoll_core::{Decode, Encode, Malformed, Reader};

/// Under this number a site gives out dots: random, never used by two sites, and retired when the site's disk may have
/// gone back to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(pub u64);

/// One change of one object: the `n`-th that `writer` made, counted over all objects. From 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// Who made it.
    pub writer: Writer,
    /// How many changes that writer had made with it.
    pub n: u64,
}

/// A file or directory, the same at all sites: the dot of its birth, or for the copy that a conflict makes a hash that all
/// sites compute alike. Sites mint the [`Ino`](atoll_core::Ino) that their users see each for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u128);

impl FileId {
    /// The root directory of a volume. No writer gives it, since a dot's number is at least 1.
    pub const ROOT: Self = Self(0);

    /// The id of what is born with `dot`.
    pub const fn born(dot: Dot) -> Self {
        Self(((dot.writer.0 as u128) << 64) | dot.n as u128)
    }

    /// The dot with which it was born. Of the root, and of a copy that a conflict has made, it is one that nobody gives.
    pub const fn birth(self) -> Dot {
        Dot { writer: Writer((self.0 >> 64) as u64), n: self.0 as u64 }
    }
}

impl Encode for Writer {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Writer {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u64::decode(r)?))
    }
}

impl Encode for Dot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.writer.encode(out);
        self.n.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.writer.encoded_len() + self.n.encoded_len()
    }
}

impl Decode for Dot {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let dot = Self { writer: Writer::decode(r)?, n: u64::decode(r)? };
        if dot.n == 0 { Err(Malformed::new("dot")) } else { Ok(dot) }
    }
}

impl Encode for FileId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for FileId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(u128::decode(r)?))
    }
}
