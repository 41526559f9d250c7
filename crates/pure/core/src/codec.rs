//! The one codec: messages, log records and state rows are all written with it.
//!
//! Little-endian, no padding, no self-description: the frame, segment or database around the
//! bytes carries magic and version. Every length is checked against the bytes that are there, so
//! a lying peer costs an error and never an allocation. `docs/FORMATS.md` lists the layouts.

use bytes::Bytes;

/// Bytes that are not what their header says they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what}")]
pub struct Malformed {
    /// The field or type that could not be read.
    pub what: &'static str,
}

impl Malformed {
    /// An error that names `what` could not be read.
    pub const fn new(what: &'static str) -> Self {
        Self { what }
    }
}

/// A type that can be encoded.
pub trait Encode {
    /// Appends the encoded form to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Bytes that `encode` appends. Encodes and allocates nothing.
    fn encoded_len(&self) -> usize;

    /// The encoded form in a buffer of its own.
    fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.encode(&mut out);
        out
    }
}

/// Bytes of the length field of bytes, texts and lists.
const COUNT_BYTES: usize = size_of::<u32>();

/// How many of the first `items` fit in `bytes_max` encoded bytes together; at least one if there is any. So
/// an item that is too long by itself must be refused before it comes into a list.
pub fn fitting<T: Encode>(items: &[T], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += item.encoded_len();
        bytes <= bytes_max
    };
    let count = items.iter().map(fits).take_while(|fits| *fits).count();
    count.max(1).min(items.len())
}

/// Cuts `items` into runs of at most `bytes_max` encoded bytes, as [`fitting`] does.
pub fn portions<T: Encode>(items: &[T], bytes_max: usize) -> impl Iterator<Item = &[T]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let (portion, more) = rest.split_at(fitting(rest, bytes_max));
        rest = more;
        (!portion.is_empty()).then_some(portion)
    })
}

/// A type that can be decoded from untrusted bytes.
pub trait Decode: Sized {
    /// Takes the encoded form from the front of `r`.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Decodes all of `bytes`. Bytes that are left over are an error.
    fn from_slice(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// A cursor over untrusted bytes.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet taken.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next byte, without taking it.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes exactly `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed { what })?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes everything that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes a `u32` length and so many bytes.
    pub fn take_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let n = u32::decode(self)? as usize;
        self.take(n, what)
    }

    /// An error unless everything was taken.
    pub const fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::new("end of message")) }
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Encode for $int {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn encoded_len(&self) -> usize {
                size_of::<$int>()
            }
        }
        impl Decode for $int {
            fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                let raw = r.take(size_of::<$int>(), stringify!($int))?;
                Ok(<$int>::from_le_bytes(raw.try_into().expect("take gives the length asked for")))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128, i32, i64);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn encoded_len(&self) -> usize {
        1
    }
}

impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::decode(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::new("bool")),
        }
    }
}

impl Encode for [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        let n = u32::try_from(self.len()).expect("fields are far below 4 GiB");
        n.encode(out);
        out.extend_from_slice(self);
    }

    fn encoded_len(&self) -> usize {
        COUNT_BYTES + self.len()
    }
}

impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.as_ref().encoded_len()
    }
}

impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::copy_from_slice(r.take_bytes("bytes")?))
    }
}

impl Encode for Box<[u8]> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.as_ref().encoded_len()
    }
}

impl Decode for Box<[u8]> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(r.take_bytes("bytes")?.into())
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.as_bytes().encoded_len()
    }
}

impl Decode for String {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let raw = r.take_bytes("text")?;
        Ok(std::str::from_utf8(raw).map_err(|_| Malformed::new("text"))?.to_owned())
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }

    fn encoded_len(&self) -> usize {
        1 + self.as_ref().map_or(0, T::encoded_len)
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::decode(r)? {
            0 => Ok(None),
            1 => Ok(Some(T::decode(r)?)),
            _ => Err(Malformed::new("option")),
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        let n = u32::try_from(self.len()).expect("lists are far below 2^32 long");
        n.encode(out);
        for item in self {
            item.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        COUNT_BYTES + self.iter().map(T::encoded_len).sum::<usize>()
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u32::decode(r)? as usize;
        // Every item takes a byte at least: a count beyond what is there is a lie.
        if n > r.remaining() {
            return Err(Malformed::new("list length"));
        }
        let mut list = Self::with_capacity(n.min(1024));
        for _ in 0..n {
            list.push(T::decode(r)?);
        }
        Ok(list)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }

    fn encoded_len(&self) -> usize {
        (**self).encoded_len()
    }
}

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.as_ref().encoded_len()
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::new(T::decode(r)?))
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len() + self.1.encoded_len()
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// Declares a struct and encodes its fields in the order in which they stand.
///
/// ```
/// atoll_core::wire_struct! {
///     /// A point.
///     #[derive(Debug, Clone, PartialEq, Eq)]
///     pub struct Point { /// East.
///         pub x: u32, /// North.
///         pub y: u32 }
/// }
/// ```
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* }
        impl $crate::Encode for $name {
            #[allow(unused_variables)]
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::Encode::encode(&self.$field, out);)*
            }
            fn encoded_len(&self) -> usize {
                0 $(+ $crate::Encode::encoded_len(&self.$field))*
            }
        }
        impl $crate::Decode for $name {
            #[allow(unused_variables)]
            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                Ok(Self { $($field: $crate::Decode::decode(r)?),* })
            }
        }
    };
}

/// Declares an enum whose variants are told apart by a one-byte tag.
///
/// Tags are never used again for another meaning. Variants are units or have named fields.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $tag:literal => $variant:ident $({ $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? })?),* $(,)? }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$vmeta])* $variant $({ $($(#[$fmeta])* $field: $ty),* })?),* }
        impl $crate::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        out.push($tag);
                        $($($crate::Encode::encode($field, out);)*)?
                    })*
                }
            }
            fn encoded_len(&self) -> usize {
                match self {
                    $(Self::$variant $({ $($field),* })? => 1 $($(+ $crate::Encode::encoded_len($field))*)?,)*
                }
            }
        }
        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                match <u8 as $crate::Decode>::decode(r)? {
                    $($tag => Ok(Self::$variant $({ $($field: $crate::Decode::decode(r)?),* })?),)*
                    _ => Err($crate::Malformed::new(stringify!($name))),
                }
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub)]
mod tests {
    use super::*;

    wire_enum! {
        /// Two shapes.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Shape {
            /// Nothing.
            1 => Empty,
            /// Something.
            2 => Named { /// Its name.
                name: Bytes, /// Others.
                others: Vec<u16> },
        }
    }

    #[test]
    fn an_enum_comes_back_as_it_went() {
        for shape in [Shape::Empty, Shape::Named { name: Bytes::from_static(b"x"), others: vec![1, 2] }] {
            assert_eq!(shape.encoded_len(), shape.to_vec().len());
            assert_eq!(Shape::from_slice(&shape.to_vec()), Ok(shape));
        }
    }

    #[test]
    fn portions_are_as_long_as_they_may_be_and_one_item_is_never_cut() {
        let bytes = |n: usize| Bytes::from(vec![0; n]);
        let items = [bytes(6), bytes(6), bytes(7), bytes(100), bytes(0)];
        let portions: Vec<usize> = portions(&items, 20).map(<[Bytes]>::len).collect();
        assert_eq!(portions, [2, 1, 1, 1]);
        assert_eq!(fitting::<Bytes>(&[], 20), 0);
        assert_eq!(fitting(&items, 0), 1);
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused_before_anything_is_allocated() {
        let lie = [2, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Shape::from_slice(&lie), Err(Malformed::new("bytes")));
        assert_eq!(Vec::<u64>::from_slice(&[0xff, 0xff, 0xff, 0x7f, 1]), Err(Malformed::new("list length")));
    }

    #[test]
    fn left_over_bytes_and_unknown_tags_are_refused() {
        assert!(Shape::from_slice(&[1, 0]).is_err());
        assert!(Shape::from_slice(&[9]).is_err());
        assert!(bool::from_slice(&[2]).is_err());
    }
}
