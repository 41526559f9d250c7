//! The rows of one island, read once and kept where every rule finds them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::cookie_of;
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{ClockVector, Decode, Ino, IslandId, Malformed, Name, SessionId, Stamp, TxnId};
use atoll_posix::locks::Locks;
use atoll_proto::{
    CarriedLink, Dir, Entry, Forward, Inode, JournalClock, JournalEntry, RowChange, Session, Txn, Xattrs,
};
use atoll_state::state::Meta;
use atoll_state::{RowKey, key::SUMS_PER_CHUNK};

/// A row that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Its key's bytes.
    pub key: Vec<u8>,
    /// What cannot be read.
    pub why: Malformed,
}

/// The rows about journals.
#[derive(Debug, Clone, Default)]
pub struct Journals {
    /// Entries of the island's own journal that others may not have.
    pub outbox: BTreeSet<Stamp>,
    /// For each other island, how far it has synced this island's journal.
    pub delivered: BTreeMap<IslandId, Stamp>,
    /// For each other island, how far this island's journal is not kept for it.
    pub skipped: BTreeMap<IslandId, Stamp>,
    /// Entries of other islands' journals that those islands may still lose.
    pub inbox: BTreeSet<(IslandId, Stamp)>,
}

/// All rows of an island at rest.
#[derive(Debug, Clone, Default)]
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
    /// For each file that has checksums: the first block behind them.
    pub sums_end: BTreeMap<Ino, u64>,
    /// Locks.
    pub locks: BTreeMap<Ino, Locks>,
    /// Transactions under way.
    pub txns: BTreeMap<TxnId, Txn>,
    /// Clients.
    pub sessions: BTreeMap<SessionId, Session>,
    /// How far this island has applied every journal.
    pub clocks: ClockVector,
    /// Symbolic links to directories, of all islands.
    pub links: BTreeMap<Ino, CarriedLink>,
    /// For each other island, the digest of this island's links which it says it has.
    pub links_told: BTreeMap<IslandId, u64>,
    /// The new homes of files that have moved away. As they were read: [`Self::apply`] leaves them.
    pub forwards: BTreeMap<Ino, Forward>,
    /// Journals. As they were read: [`Self::apply`] leaves them.
    pub journals: Journals,
    /// The island's row about itself.
    pub meta: Meta,
    /// A machine beside the island keeps rows of its own here, or bytes beside other rows: the island is a site of a wide volume. As it was
    /// read: [`Self::apply`] leaves it.
    pub has_beside: bool,
    /// Rows that could not be read.
    pub bad: Vec<BadRow>,
}

/// There are twelve bits of them.
fn permissions(mode: u32) -> Result<(), Malformed> {
    if mode > 0o7777 { Err(Malformed::new("permission bits")) } else { Ok(()) }
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
                let row = Inode::from_slice(row)?;
                if row.attr.ino != ino {
                    return Err(Malformed::new("id of a file"));
                }
                permissions(row.attr.mode)?;
                self.has_beside |= row.beside.is_some();
                self.inodes.insert(ino, row);
            }
            RowKey::Dir(ino) => {
                let row = Dir::from_slice(row)?;
                permissions(row.fixed.mode)?;
                self.has_beside |= row.beside.is_some();
                self.dirs.insert(ino, row);
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
            RowKey::Link(ino) => {
                self.links.insert(ino, CarriedLink::from_slice(row)?);
            }
            RowKey::LinksTold(island) => {
                self.links_told.insert(island, u64::from_slice(row)?);
            }
            RowKey::Meta => self.meta = Meta::from_slice(row)?,
            RowKey::Clock(island) => {
                self.clocks.raise(island, JournalClock::from_slice(row)?.applied);
            }
            RowKey::Forward(ino) => drop(self.forwards.insert(ino, Forward::from_slice(row)?)),
            RowKey::Outbox(stamp) => {
                JournalEntry::from_slice(row)?;
                self.journals.outbox.insert(stamp);
            }
            RowKey::Delivered(island) => {
                self.journals.delivered.insert(island, Stamp::from_slice(row)?);
            }
            RowKey::Skipped(island) => {
                self.journals.skipped.insert(island, Stamp::from_slice(row)?);
            }
            RowKey::Inbox(island, stamp) => {
                JournalEntry::from_slice(row)?;
                self.journals.inbox.insert((island, stamp));
            }
            RowKey::Side(..) => self.has_beside = true,
            // What is heard, and the view's backlog: no rule is about them.
            RowKey::Survived(_)
            | RowKey::Moved(_)
            | RowKey::Renamed(_)
            | RowKey::View(_)
            | RowKey::ViewName(..) => {}
        }
        Ok(())
    }

    /// Takes in a change of a record, as the island will when it applies it.
    pub fn apply(&mut self, seed: u64, change: &RowChange) {
        fn set<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: Option<V>) {
            match row {
                Some(row) => drop(rows.insert(key, row)),
                None => drop(rows.remove(&key)),
            }
        }
        match change {
            RowChange::Inode { ino, row } => set(&mut self.inodes, *ino, row.as_deref().cloned()),
            RowChange::Dir { ino, row } => set(&mut self.dirs, *ino, row.as_deref().cloned()),
            RowChange::Entry { dir, name, row } => self.set_name(seed, *dir, name, row.as_ref()),
            RowChange::Xattrs { ino, row } => set(&mut self.xattrs, *ino, row.clone()),
            RowChange::Locks { ino, row } => set(&mut self.locks, *ino, row.clone()),
            RowChange::Txn { txn, row } => set(&mut self.txns, *txn, row.as_deref().cloned()),
            RowChange::Session { session, row } => set(&mut self.sessions, *session, row.clone()),
            RowChange::Sums { ino, first, sums } => {
                let end = self.sums_end.entry(*ino).or_default();
                *end = (*end).max(first + sums.len() as u64);
            }
            RowChange::SumsCut { ino, first, .. } => {
                if let Some(end) = self.sums_end.get_mut(ino) {
                    *end = (*end).min(*first);
                }
                self.sums_end.retain(|_, end| *end > 0);
            }
            RowChange::Held { session, ino, on } => {
                let Some(session) = self.sessions.get_mut(session) else { return };
                match (session.held.binary_search(ino), on) {
                    (Err(at), true) => session.held.insert(at, *ino),
                    (Ok(at), false) => drop(session.held.remove(at)),
                    _ => {}
                }
            }
            RowChange::Link { ino, row } => set(&mut self.links, *ino, row.as_deref().cloned()),
            RowChange::LinksTold { island, digest } => drop(self.links_told.insert(*island, *digest)),
            RowChange::Clock { island, stamp } | RowChange::PrivateClock { island, stamp } => {
                self.clocks.raise(*island, *stamp);
            }
            RowChange::Stamp { stamp } => self.meta.stamp = self.meta.stamp.max(*stamp),
            RowChange::MintLimit { limit } => self.meta.mint_limit = self.meta.mint_limit.max(*limit),
            RowChange::Incarnation { incarnation, .. } => self.meta.incarnation = *incarnation,
            RowChange::Checkpoint { clean } => self.meta.clean = *clean,
            // No rule is about them.
            RowChange::Ending { .. }
            | RowChange::Keeps { .. }
            | RowChange::Result { .. }
            | RowChange::TakenBack { .. }
            | RowChange::Posted { .. }
            | RowChange::Delivered { .. }
            | RowChange::Skipped { .. }
            | RowChange::Unposted { .. }
            | RowChange::Received { .. }
            | RowChange::Unreceived { .. }
            | RowChange::Moved { .. }
            | RowChange::Forward { .. }
            | RowChange::Renamed { .. }
            | RowChange::Side { .. }
            | RowChange::Dirty { .. } => {}
        }
    }

    fn set_name(&mut self, seed: u64, dir: Ino, name: &Name, row: Option<&Entry>) {
        let cookie = cookie_of(seed, name.as_bytes());
        let names = self.names.entry(dir).or_default();
        names.retain(|(c, n, _)| (*c, n) != (cookie, name));
        if let Some(row) = row {
            let at = names.partition_point(|(c, n, _)| (*c, n) < (cookie, name));
            names.insert(at, (cookie, name.clone(), row.clone()));
        }
        if names.is_empty() {
            self.names.remove(&dir);
        }
    }

    /// The entry of a directory under a name.
    pub fn name(&self, dir: Ino, name: &Name) -> Option<&Entry> {
        self.names_of(dir).iter().find(|(_, n, _)| n == name).map(|(_, _, entry)| entry)
    }

    /// Checksums cover more blocks than the file has.
    pub fn sums_beyond(&self, ino: Ino) -> Option<(u64, u64)> {
        let blocks = self.inodes.get(&ino).map_or(0, |row| row.attr.size.div_ceil(BLOCK_BYTES));
        self.sums_end.get(&ino).filter(|end| **end > blocks).map(|end| (*end, blocks))
    }

    /// Names of a directory.
    pub fn names_of(&self, dir: Ino) -> &[(u64, Name, Entry)] {
        self.names.get(&dir).map_or(&[], Vec::as_slice)
    }
}
