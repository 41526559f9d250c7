//! All rows of an island, read from its snapshot after a checkpoint.

use std::collections::BTreeMap;

use atoll_core::{Decode, Ino, IslandId, Name, SessionId, Stamp, TxnId};
use atoll_posix::locks::Locks;
use atoll_proto::{Dir, Entry, Forward, Inode, JournalEntry, Link, Session, Txn, Xattrs};
use atoll_state::RowKey;
use atoll_state::state::Meta;

use crate::cause::Failure;
use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub struct Rows {
    /// Files.
    pub inodes: BTreeMap<Ino, Inode>,
    /// Directories of the skeleton.
    pub dirs: BTreeMap<Ino, Dir>,
    /// Names.
    pub entries: BTreeMap<(Ino, Name), Entry>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Ino, Xattrs>,
    /// Block checksums by file and chunk.
    pub sums: BTreeMap<(Ino, u64), Vec<u32>>,
    /// Locks.
    pub locks: BTreeMap<Ino, Locks>,
    /// Transactions.
    pub txns: BTreeMap<TxnId, Txn>,
    /// Clients.
    pub sessions: BTreeMap<SessionId, Session>,
    /// Where files are that were homed here.
    pub forwards: BTreeMap<Ino, Forward>,
    /// Entries of its journal that others may not have.
    pub outbox: BTreeMap<Stamp, JournalEntry>,
    /// How far each island has this island's journal, synced.
    pub delivered: BTreeMap<IslandId, Stamp>,
    /// How far this island's journal is not kept for others.
    pub skipped: BTreeMap<IslandId, Stamp>,
    /// Entries of others' journals that those may lose yet.
    pub inbox: BTreeMap<(IslandId, Stamp), JournalEntry>,
    /// How far journals were applied.
    pub clocks: BTreeMap<IslandId, Stamp>,
    /// Symbolic links to directories, of all islands.
    pub links: BTreeMap<Ino, Link>,
    /// What the island knows of itself.
    pub meta: Meta,
}

impl Rows {
    /// Reads all rows of an island that has just made a checkpoint and is at rest.
    pub fn read(world: &World, island: usize) -> Result<Self, Failure> {
        let engine = world.nodes[island].engine.as_ref().ok_or_else(|| Failure::new("an island is down"))?;
        let failed = |why: String| Failure::new(format!("snapshot of island {island}: {why}"));
        let all = engine.snapshot().range(&[0], &[255], usize::MAX).map_err(|e| failed(e.to_string()))?;
        let mut rows = Self::default();
        for (key, value) in all {
            rows.take(&key, &value)
                .ok_or_else(|| failed(format!("row {} is malformed", key.escape_ascii())))?;
        }
        Ok(rows)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        fn row<T: Decode>(value: &[u8]) -> Option<T> {
            T::from_slice(value).ok()
        }
        match RowKey::from_bytes(key)? {
            RowKey::Inode(ino) => drop(self.inodes.insert(ino, row(value)?)),
            RowKey::Dir(ino) => drop(self.dirs.insert(ino, row(value)?)),
            RowKey::Entry(dir, _, name) => drop(self.entries.insert((dir, name), row(value)?)),
            RowKey::Xattrs(ino) => drop(self.xattrs.insert(ino, row(value)?)),
            RowKey::Sums(ino, chunk) => drop(self.sums.insert((ino, chunk), row(value)?)),
            RowKey::Locks(ino) => drop(self.locks.insert(ino, row(value)?)),
            RowKey::Txn(txn) => drop(self.txns.insert(txn, row(value)?)),
            RowKey::Session(session) => drop(self.sessions.insert(session, row(value)?)),
            RowKey::Forward(ino) => drop(self.forwards.insert(ino, row(value)?)),
            RowKey::Outbox(stamp) => drop(self.outbox.insert(stamp, row(value)?)),
            RowKey::Delivered(island) => drop(self.delivered.insert(island, row(value)?)),
            RowKey::Skipped(island) => drop(self.skipped.insert(island, row(value)?)),
            RowKey::Clock(island) => drop(self.clocks.insert(island, row(value)?)),
            RowKey::Inbox(island, stamp) => drop(self.inbox.insert((island, stamp), row(value)?)),
            RowKey::Link(ino) => drop(self.links.insert(ino, row(value)?)),
            RowKey::Survived(_) | RowKey::Moved(_) | RowKey::Renamed(_) | RowKey::LinksTold(_) => {}
            RowKey::Meta => self.meta = row(value)?,
            RowKey::View(_) | RowKey::ViewName(..) => {}
        }
        Some(())
    }

    /// The block checksum of a file.
    pub fn sum(&self, ino: Ino, block: u64) -> u32 {
        let per = atoll_state::key::SUMS_PER_CHUNK;
        let chunk = self.sums.get(&(ino, block / per));
        chunk.and_then(|sums| sums.get((block % per) as usize)).copied().unwrap_or(0)
    }
}
