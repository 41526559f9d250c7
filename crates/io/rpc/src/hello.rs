//! The messages of two sides before and after they work together.
//!
//! This file has only the shapes; the acceptor decides who is let in. The two version numbers at the front of
//! a [`Hello`] never move, so sides that share no version can say so.

use std::fmt;

use atoll_core::{Decode, Encode, Malformed, NodeId, Reader, SessionId, VolumeId, wire_enum, wire_struct};

use crate::header::{VERSION_HIGHEST, VERSION_LOWEST};

macro_rules! drawn_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);
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
                Ok(Self(u64::decode(r)?))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
    };
}

drawn_id!(/// A cluster, drawn at random when its first node is made; never 0.
    ClusterId);
drawn_id!(/// A data directory and the daemon on it, drawn at random when it is made; never 0.
    DaemonId);

impl DaemonId {
    /// The daemon that a configuration names by this number; 0: it names none.
    pub fn named(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }
}

wire_struct! {
    /// The protocol versions that a side speaks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Versions {
        /// Oldest.
        pub lowest: u16,
        /// Newest.
        pub highest: u16,
    }
}

impl Versions {
    /// The versions of this code.
    pub const OURS: Self = Self { lowest: VERSION_LOWEST, highest: VERSION_HIGHEST };

    /// The newest version that both sides speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lowest == self.highest {
            write!(f, "{}", self.lowest)
        } else {
            write!(f, "{} to {}", self.lowest, self.highest)
        }
    }
}

wire_enum! {
    /// The role of the side that connects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Role {
        /// A daemon, for its islands.
        1 => Node { /// Which daemon.
            daemon: DaemonId, /// Counts up with every start of it.
            incarnation: u32, /// The boot of its machine, drawn by the kernel; 0 if it is not known.
            boot: u128, /// Number of the data directory in its file system. A later incarnation of the same boot and directory proves
            /// that the one before it has ended.
            directory: u64, /// The volumes that it holds part of, and its number in each.
            members: Vec<(VolumeId, NodeId)> },
        /// A mount or a library.
        2 => Client { /// The volume that it will ask for.
            volume: VolumeId, /// Its session there.
            session: SessionId },
        /// An administrator's command, or a client that has yet to find its volume.
        3 => Tool,
        /// A process that cannot reach another node of a volume and asks this one to pass on its bytes. When
        /// this one has agreed, the process greets the other node on the same connection.
        4 => Relay { /// The volume.
            volume: VolumeId, /// The node that is to be reached.
            to: NodeId },
        /// A relay that passes on another process's bytes: the next greeting on the connection is that
        /// process's.
        5 => Relayed { /// The volume.
            volume: VolumeId, /// The node that passes it on.
            by: NodeId },
    }
}

wire_struct! {
    /// The first message of the side that connects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hello {
        /// Protocol versions that it speaks.
        pub versions: Versions,
        /// The cluster that it expects to find, if it knows.
        pub cluster: Option<ClusterId>,
        /// Its role.
        pub role: Role,
        /// Name and version of its program, for people.
        pub software: String,
    }
}

impl Hello {
    /// A greeting in the versions that this code speaks.
    pub fn new(role: Role, cluster: Option<ClusterId>) -> Self {
        Self { versions: Versions::OURS, cluster, role, software: software() }
    }
}

wire_struct! {
    /// The answer of the side that accepts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HelloOk {
        /// Protocol versions that it speaks.
        pub versions: Versions,
        /// The version that both use from now on.
        pub version: u16,
        /// Its cluster.
        pub cluster: ClusterId,
        /// Its daemon id.
        pub daemon: DaemonId,
        /// Counts up with every start of it.
        pub incarnation: u32,
        /// Name and version of its program, for people.
        pub software: String,
    }
}

impl HelloOk {
    /// An answer. The handshake fills in the version that is used.
    pub fn new(cluster: ClusterId, daemon: DaemonId, incarnation: u32) -> Self {
        let version = VERSION_HIGHEST;
        Self { versions: Versions::OURS, version, cluster, daemon, incarnation, software: software() }
    }
}

/// Name and version of this program.
fn software() -> String {
    concat!("atoll ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// Reads the versions that every `Hello` starts with, whatever version it is written in.
pub(crate) fn versions_of(meta: &[u8]) -> Result<Versions, Malformed> {
    Versions::decode(&mut Reader::new(meta))
}

wire_enum! {
    /// Why a link ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Reason {
        /// No protocol version in common.
        1 => Version { /// What the sender speaks.
            ours: Versions },
        /// The sender belongs to another cluster.
        2 => WrongCluster { /// The sender's.
            cluster: ClusterId },
        /// The sender has no such volume.
        3 => NoSuchVolume,
        /// The sender takes no more connections.
        4 => Full,
        /// The sender stops, or ends this link in good order.
        5 => Stopping,
        /// The receiver broke the protocol.
        6 => Malformed,
        /// The receiver is not let in.
        7 => NotAllowed,
        /// The receiver did not read, or did not greet, in time.
        8 => TooSlow,
        /// The sender cannot reach the node to which it is asked to pass something on.
        9 => NotReached,
    }
}

wire_struct! {
    /// The last words on a link.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Goodbye {
        /// Why.
        pub reason: Reason,
        /// The same for people; may be empty.
        pub text: String,
    }
}

/// Longest text of a goodbye, in bytes; the rest is cut off.
const GOODBYE_TEXT_BYTES_MAX: usize = 1024;

impl Goodbye {
    /// A goodbye; a text that is too long is cut.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let mut end = text.len().min(GOODBYE_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Self { reason, text }
    }
}

impl fmt::Display for Goodbye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Version { ours } => write!(f, "it speaks protocol versions {ours}")?,
            Reason::WrongCluster { cluster } => write!(f, "it belongs to cluster {cluster}")?,
            Reason::NoSuchVolume => f.write_str("it has no such volume")?,
            Reason::Full => f.write_str("it takes no more connections")?,
            Reason::Stopping => f.write_str("it stops")?,
            Reason::Malformed => f.write_str("it could not read what was sent")?,
            Reason::NotAllowed => f.write_str("access is not allowed")?,
            Reason::TooSlow => f.write_str("it waited too long")?,
            Reason::NotReached => f.write_str("it cannot reach that node")?,
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text.escape_default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_both_speak_is_used() {
        let v = |lowest, highest| Versions { lowest, highest };
        assert_eq!(v(1, 3).common(v(2, 5)), Some(3));
        assert_eq!(v(4, 4).common(v(1, 9)), Some(4));
        assert_eq!(v(1, 2).common(v(3, 4)), None);
        assert_eq!(v(5, 5).common(v(1, 4)), None);
    }

    #[test]
    fn versions_are_read_from_a_hello_that_cannot_be_understood() {
        let mut meta = Versions { lowest: 7, highest: 9 }.to_vec();
        meta.extend_from_slice(b"whatever comes then");
        assert_eq!(versions_of(&meta), Ok(Versions { lowest: 7, highest: 9 }));
        assert!(Hello::from_slice(&meta).is_err());
    }

    #[test]
    fn a_long_goodbye_is_cut_between_characters() {
        let cut = Goodbye::new(Reason::Full, "ü".repeat(2000));
        assert_eq!(cut.text.len(), GOODBYE_TEXT_BYTES_MAX);
        let odd = Goodbye::new(Reason::Full, format!("x{}", "ü".repeat(2000)));
        assert_eq!(odd.text.len(), GOODBYE_TEXT_BYTES_MAX - 1);
    }
}
