//! Names and paths: any bytes but NUL and '/', checked where they enter.

use crate::Ino;
use crate::codec::{Decode, Encode, Malformed, Reader};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why bytes are no name or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A component or path of no bytes.
    #[error("name is empty")]
    Empty,
    /// Longer than 255 bytes (a component) or 4096 (a path): `ENAMETOOLONG`.
    #[error("name is too long")]
    TooLong,
    /// Contains NUL or '/', or is "." or "..".
    #[error("name contains NUL or '/', or is '.' or '..'")]
    Forbidden,
    /// A path that does not start with '/'.
    #[error("path does not start with '/'")]
    Relative,
}

/// One component of a path: 1 to 255 bytes, none of them NUL or '/', and neither "." nor "..".
/// Cloning copies no bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Longest component in bytes (POSIX `NAME_MAX`).
    pub const BYTES_MAX: usize = 255;

    /// Checks and takes over `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            _ if bytes.len() > Self::BYTES_MAX => Err(NameError::TooLong),
            b"." | b".." => Err(NameError::Forbidden),
            _ if bytes.iter().any(|&b| b == 0 || b == b'/') => Err(NameError::Forbidden),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Endless names for a file that has lost this name to another one: `NAME.atoll-ID`, then with a number
    /// behind. `NAME` is cut if that would be too long.
    pub fn beside(&self, ino: Ino) -> impl Iterator<Item = Self> + '_ {
        (1..).map(move |nth: u64| {
            let suffix = match nth {
                1 => format!(".atoll-{:x}", ino.0),
                _ => format!(".atoll-{:x}-{nth}", ino.0),
            };
            let kept = self.0.len().min(Self::BYTES_MAX - suffix.len());
            Self([&self.0[..kept], suffix.as_bytes()].concat().into())
        })
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.0.len()).expect("a name has at most 255 bytes"));
        out.extend_from_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        1 + self.0.len()
    }
}

impl Decode for Name {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u8::decode(r)? as usize;
        Self::new(r.take(n, "name")?).map_err(|_| Malformed::new("name"))
    }
}

/// An absolute path in a volume, as its components: `/` has none.
///
/// Repeated and trailing slashes and "." vanish; ".." is refused, because only the directory that
/// the client is in can say what it means.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct VolumePath(Vec<Name>);

impl VolumePath {
    /// Longest path in bytes (POSIX `PATH_MAX`).
    pub const BYTES_MAX: usize = 4096;

    /// Parses `/a/b`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if bytes.first() != Some(&b'/') {
            return Err(NameError::Relative);
        }
        bytes
            .split(|&b| b == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .map(Name::new)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The path made of `names`, if it is short enough.
    pub fn from_names(names: Vec<Name>) -> Result<Self, NameError> {
        let bytes: usize = names.iter().map(|n| n.as_bytes().len() + 1).sum();
        if bytes > Self::BYTES_MAX { Err(NameError::TooLong) } else { Ok(Self(names)) }
    }

    /// The components from the root down.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// The directory above and the last component; none for the root.
    pub fn split_last(&self) -> Option<(&[Name], &Name)> {
        self.0.split_last().map(|(last, above)| (above, last))
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ShownPath(&self.0).fmt(f)
    }
}

/// Names from the root down, as text for people. The path may also be too long for a [`VolumePath`].
#[derive(Debug, Clone, Copy)]
pub struct ShownPath<'a>(pub &'a [Name]);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

impl Encode for VolumePath {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for VolumePath {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::from_names(Vec::decode(r)?).map_err(|_| Malformed::new("path"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_posix_allows_is_a_name() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        for good in [&b"a"[..], b"...", b"\xff\n", &[b'x'; 255]] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn names_beside_a_name_are_names_and_all_differ() {
        for long in [&b"a"[..], &[b'x'; 250], &[b'x'; 255]] {
            let name = Name::new(long).unwrap();
            let beside: Vec<Name> = name.beside(Ino(u64::MAX)).take(12).collect();
            let differ: std::collections::BTreeSet<&[u8]> = beside.iter().map(Name::as_bytes).collect();
            assert_eq!(differ.len(), 12);
            assert!(beside.iter().all(|n| Name::new(n.as_bytes()).as_ref() == Ok(n)), "{beside:?}");
        }
    }

    #[test]
    fn a_path_loses_empty_and_dot_components_and_refuses_dot_dot() {
        let path = VolumePath::parse(b"//a/./b//").unwrap();
        assert_eq!(path.to_string(), "/a/b");
        assert_eq!(VolumePath::parse(b"/").unwrap().names(), &[]);
        assert_eq!(VolumePath::parse(b"/a/../b"), Err(NameError::Forbidden));
        assert_eq!(VolumePath::parse(b"a"), Err(NameError::Relative));
        assert_eq!(VolumePath::parse(&[b'/'; 4097]), Err(NameError::TooLong));
    }

    #[test]
    fn a_peer_cannot_send_a_name_that_climbs() {
        assert!(Name::from_slice(&[2, b'.', b'.']).is_err());
        assert!(Name::from_slice(&[3, b'a', b'/', b'b']).is_err());
        assert!(Name::from_slice(&[0]).is_err());
    }
}
