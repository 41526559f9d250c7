//! The rows of one island, read once and kept where every rule finds them.

use std::collections::BTreeMap;

use atoll_core::{Decode, Ino, IslandId, Malformed, Name, SessionId, TxnId};
use atoll_posix::locks::Locks;
use atoll_proto::{Dir, Entry, Inode, Session, Txn, Xattrs};
use atoll_state::state::Meta;
use atoll_state::{RowKey, key::SUMS_PER_CHUNK};

/// A row that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its key's bytes.
    pub key: Vec<u8>,
    /// What is wrong.
    pub why: Malformed,
}

/// All rows of an island at rest.
#[derive(Debug, Default)]
pub struct Rows {
    /// Whose.
    pub island: IslandId,
    /// Files.
    pub inodes: BTreeMap<Ino, Inode>,
    /// Directories of the skeleton.
    pub dirs: BTreeMap<Ino, Dir>,
    /// Names, by directory; with each its cookie.
    pub names: BTreeMap<Ino, Vec<(u64, Name, Entry)>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Ino, Xattrs>,
    /// For each file that has checksums: the first block that none of them is of.
    pub sums_end: BTreeMap<Ino, u64>,
    /// Locks.
    pub locks: BTreeMap<Ino, Locks>,
    /// Transactions under way.
    pub txns: BTreeMap<TxnId, Txn>,
    /// Clients.
    pub sessions: BTreeMap<SessionId, Session>,
    /// What the island knows of itself.
    pub meta: Meta,
    /// Rows that could not be read.
    pub bad: Vec<BadRow>,
}

impl Rows {
    /// No rows yet.
    pub fn new(island: IslandId) -> Self {
        Self { island, ..Self::default() }
    }

    /// Takes in a row of the snapshot, in any order.
    pub fn take(&mut self, key: &[u8], row: &[u8]) {
        if let Err(why) = self.try_take(key, row) {
            self.bad.push(BadRow { key: key.to_vec(), why });
        }
    }

    fn try_take(&mut self, key: &[u8], row: &[u8]) -> Result<(), Malformed> {
        let key = RowKey::from_bytes(key).ok_or(Malformed::new("key of a row"))?;
        match key {
            RowKey::Inode(ino) => {
                self.inodes.insert(ino, Inode::from_slice(row)?);
            }
            RowKey::Dir(ino) => {
                self.dirs.insert(ino, Dir::from_slice(row)?);
            }
            RowKey::Entry(dir, cookie, name) => {
                let entry = Entry::from_slice(row)?;
                self.names.entry(dir).or_default().push((cookie, name, entry));
            }
            RowKey::Xattrs(ino) => {
                self.xattrs.insert(ino, Xattrs::from_slice(row)?);
            }
            RowKey::Sums(ino, chunk) => {
                let sums = Vec::<u32>::from_slice(row)?;
                // Trailing zeros say nothing: a block of zeros has the sum 0.
                let used = sums.iter().rposition(|sum| *sum != 0).map_or(0, |last| last as u64 + 1);
                if used > 0 {
                    let end = self.sums_end.entry(ino).or_default();
                    *end = (*end).max(chunk * SUMS_PER_CHUNK + used);
                }
            }
            RowKey::Locks(ino) => {
                self.locks.insert(ino, Locks::from_slice(row)?);
            }
            RowKey::Txn(txn) => {
                self.txns.insert(txn, Txn::from_slice(row)?);
            }
            RowKey::Session(session) => {
                self.sessions.insert(session, Session::from_slice(row)?);
            }
            RowKey::Meta => self.meta = Meta::from_slice(row)?,
            // Journals and the view's backlog: no rule is about them.
            RowKey::Outbox(_)
            | RowKey::Delivered(_)
            | RowKey::Clock(_)
            | RowKey::Inbox(..)
            | RowKey::Forward(_)
            | RowKey::Survived(_)
            | RowKey::Moved(_)
            | RowKey::View(_)
            | RowKey::ViewName(..) => {}
        }
        Ok(())
    }

    /// Names of a directory.
    pub fn names_of(&self, dir: Ino) -> &[(u64, Name, Entry)] {
        self.names.get(&dir).map_or(&[], Vec::as_slice)
    }
}
