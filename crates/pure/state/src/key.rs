//! Keys of rows, in the byte order in which a snapshot keeps them.

use atoll_core::{Ino, IslandId, Name, SessionId, Stamp, TxnId};

/// Blocks of a file whose checksums share one row.
pub const SUMS_PER_CHUNK: u64 = 1024;

/// Which row. The bytes sort so that a directory's names lie together in the order of their
/// cookies, and a file's checksums in the order of its blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKey {
    /// A file.
    Inode(Ino),
    /// A directory.
    Dir(Ino),
    /// A name: directory, cookie, name.
    Entry(Ino, u64, Name),
    /// Extended attributes.
    Xattrs(Ino),
    /// Block checksums: file, chunk.
    Sums(Ino, u64),
    /// Locks.
    Locks(Ino),
    /// A transaction.
    Txn(TxnId),
    /// A client.
    Session(SessionId),
    /// An entry of this island's journal.
    Outbox(Stamp),
    /// How far an island has applied and synced this island's journal.
    Delivered(IslandId),
    /// How far this island's journal is not kept for an island.
    Skipped(IslandId),
    /// How far an island's journal was applied.
    Clock(IslandId),
    /// An entry of another island's journal, which that island may lose yet.
    Inbox(IslandId, Stamp),
    /// The last move of a directory to another parent that an island has coordinated.
    Moved(IslandId),
    /// Where a file is that was homed here.
    Forward(Ino),
    /// The last stamp of an earlier incarnation that its end has left.
    Survived(u32),
    /// Mint limit, incarnation and the position that the snapshot stands for.
    Meta,
    /// A directory that was renamed.
    Renamed(Ino),
    /// A symbolic link to a directory, of any island.
    Link(Ino),
    /// Which of this island's links an island has said it has.
    LinksTold(IslandId),
    /// A row of a machine beside the island: its table, and which of its rows.
    Side(u8, u128),
    /// What the view has not laid out yet: an id.
    View(Ino),
    /// What the view has not laid out yet: a name.
    ViewName(Ino, Name),
}

impl RowKey {
    /// The key's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        let ino = |out: &mut Vec<u8>, tag: u8, ino: &Ino| {
            out.push(tag);
            out.extend_from_slice(&ino.0.to_be_bytes());
        };
        match self {
            Self::Inode(i) => ino(&mut out, b'i', i),
            Self::Dir(i) => ino(&mut out, b'd', i),
            Self::Entry(dir, cookie, name) => {
                out = Self::entries_from(*dir, *cookie);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Xattrs(i) => ino(&mut out, b'x', i),
            Self::Sums(i, chunk) => {
                ino(&mut out, b's', i);
                out.extend_from_slice(&chunk.to_be_bytes());
            }
            Self::Locks(i) => ino(&mut out, b'l', i),
            Self::Txn(txn) => {
                out.push(b't');
                out.extend_from_slice(&txn.coordinator.0.to_be_bytes());
                out.extend_from_slice(&txn.stamp.0.to_be_bytes());
            }
            Self::Session(s) => {
                out.push(b'c');
                out.extend_from_slice(&s.0.to_be_bytes());
            }
            Self::Outbox(stamp) => {
                out.push(b'o');
                out.extend_from_slice(&stamp.0.to_be_bytes());
            }
            Self::Delivered(island) => {
                out.push(b'q');
                out.extend_from_slice(&island.0.to_be_bytes());
            }
            Self::Skipped(island) => {
                out.push(b'j');
                out.extend_from_slice(&island.0.to_be_bytes());
            }
            Self::Clock(island) => {
                out.push(b'k');
                out.extend_from_slice(&island.0.to_be_bytes());
            }
            Self::Inbox(island, stamp) => {
                out.push(b'b');
                out.extend_from_slice(&island.0.to_be_bytes());
                out.extend_from_slice(&stamp.0.to_be_bytes());
            }
            Self::Moved(island) => {
                out.push(b'r');
                out.extend_from_slice(&island.0.to_be_bytes());
            }
            Self::Forward(i) => ino(&mut out, b'f', i),
            Self::Survived(incarnation) => {
                out.push(b'p');
                out.extend_from_slice(&incarnation.to_be_bytes());
            }
            Self::Meta => out.push(b'm'),
            Self::Link(i) => ino(&mut out, b'y', i),
            Self::LinksTold(island) => {
                out.push(b'g');
                out.extend_from_slice(&island.0.to_be_bytes());
            }
            Self::Renamed(i) => ino(&mut out, b'h', i),
            Self::Side(table, id) => {
                out.extend_from_slice(&[b'a', *table]);
                out.extend_from_slice(&id.to_be_bytes());
            }
            Self::View(i) => ino(&mut out, b'v', i),
            Self::ViewName(dir, name) => {
                ino(&mut out, b'w', dir);
                out.extend_from_slice(name.as_bytes());
            }
        }
        out
    }

    /// The smallest key of a name in `dir` with this cookie or a greater one.
    pub fn entries_from(dir: Ino, cookie: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(b'e');
        out.extend_from_slice(&dir.0.to_be_bytes());
        out.extend_from_slice(&cookie.to_be_bytes());
        out
    }

    /// Reads a key's bytes; none if they are no key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        fn int(bytes: &[u8]) -> Option<u64> {
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        }
        fn island(bytes: &[u8]) -> Option<IslandId> {
            Some(IslandId(u16::from_be_bytes(bytes.try_into().ok()?)))
        }
        let (&tag, rest) = bytes.split_first()?;
        Some(match tag {
            b'i' => Self::Inode(Ino(int(rest)?)),
            b'd' => Self::Dir(Ino(int(rest)?)),
            b'e' => Self::Entry(
                Ino(int(rest.get(..8)?)?),
                int(rest.get(8..16)?)?,
                Name::new(rest.get(16..)?).ok()?,
            ),
            b'x' => Self::Xattrs(Ino(int(rest)?)),
            b's' => Self::Sums(Ino(int(rest.get(..8)?)?), int(rest.get(8..)?)?),
            b'l' => Self::Locks(Ino(int(rest)?)),
            b't' => {
                Self::Txn(TxnId { coordinator: island(rest.get(..2)?)?, stamp: Stamp(int(rest.get(2..)?)?) })
            }
            b'c' => Self::Session(SessionId(int(rest)?)),
            b'o' => Self::Outbox(Stamp(int(rest)?)),
            b'q' => Self::Delivered(island(rest)?),
            b'j' => Self::Skipped(island(rest)?),
            b'k' => Self::Clock(island(rest)?),
            b'b' => Self::Inbox(island(rest.get(..2)?)?, Stamp(int(rest.get(2..)?)?)),
            b'r' => Self::Moved(island(rest)?),
            b'f' => Self::Forward(Ino(int(rest)?)),
            b'p' => Self::Survived(u32::from_be_bytes(rest.try_into().ok()?)),
            b'm' if rest.is_empty() => Self::Meta,
            b'y' => Self::Link(Ino(int(rest)?)),
            b'g' => Self::LinksTold(island(rest)?),
            b'h' => Self::Renamed(Ino(int(rest)?)),
            b'a' => Self::Side(*rest.first()?, u128::from_be_bytes(rest[1..].try_into().ok()?)),
            b'v' => Self::View(Ino(int(rest)?)),
            b'w' => Self::ViewName(Ino(int(rest.get(..8)?)?), Name::new(rest.get(8..)?).ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let name = Name::new(b"n").unwrap();
        for key in [
            RowKey::Inode(Ino(7)),
            RowKey::Dir(Ino::ROOT),
            RowKey::Entry(Ino(1), 99, name.clone()),
            RowKey::Xattrs(Ino(2)),
            RowKey::Sums(Ino(3), 4),
            RowKey::Locks(Ino(5)),
            RowKey::Txn(TxnId { coordinator: IslandId(1), stamp: Stamp::new(2, 3) }),
            RowKey::Session(SessionId(9)),
            RowKey::Outbox(Stamp(8)),
            RowKey::Delivered(IslandId(3)),
            RowKey::Skipped(IslandId(3)),
            RowKey::Clock(IslandId(4)),
            RowKey::Inbox(IslandId(5), Stamp(6)),
            RowKey::Forward(Ino(4)),
            RowKey::Survived(7),
            RowKey::Meta,
            RowKey::Renamed(Ino(10)),
            RowKey::Link(Ino(11)),
            RowKey::LinksTold(IslandId(6)),
            RowKey::Side(b'f', 7 << 64 | 9),
            RowKey::View(Ino(6)),
            RowKey::ViewName(Ino(6), name),
        ] {
            assert_eq!(RowKey::from_bytes(&key.to_bytes()), Some(key));
        }
    }
}
