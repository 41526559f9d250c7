//! The state: typed access to rows, applying changes, freezing for a checkpoint, loading.
//!
//! Invariant: a row in memory that is not clean is newer than the snapshot; a clean one equals it.

mod checkpoint;

use atoll_core::map::{IdMap, IdSet};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{ClockVector, Decode, Ino, IslandId, Malformed, Name, SessionId, Stamp, TxnId};
use atoll_posix::locks::Locks;
use atoll_proto::{
    CarriedLink, Dir, Entry, Forward, Inode, JournalClock, JournalEntry, LifeEnd, RowChange, Session, Txn,
    Xattrs,
};
use bytes::Bytes;

use crate::cache::{Cached, Names};
use crate::cuts::Cuts;
use crate::journal::JournalRows;
use crate::key::RowKey;
use crate::links::LinkRows;
use crate::load::{LoadedRows, RowLoad};
pub use crate::meta::Meta;
use crate::pending::{Pending, ToLay};
use crate::renamed::Renamed;
use crate::sessions::{hold, remember};
use crate::sides::SideRows;
use atoll_core::cookie_of;

pub use checkpoint::CheckpointRows;
pub(crate) use checkpoint::row_bytes;

/// Names that one load of a listing brings.
pub const NAMES_PER_PAGE: usize = 1024;

/// Rows that are loaded between two sweeps at least, unless time passes: more than any one request needs.
const LOADS_MIN: usize = 4 * NAMES_PER_PAGE;

/// Something that is not in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotInMemory(pub RowLoad);

/// Ends that are remembered: nobody brings back what was lost so many lives ago.
const SURVIVED_MAX: usize = 256;

/// An island's state. See the module.
#[derive(Debug, Clone, Default)]
pub struct State {
    seed: u64,
    seq: u64,
    meta: Meta,
    pub(crate) inodes: Cached<Ino, Inode>,
    pub(crate) dirs: Cached<Ino, Dir>,
    xattrs: Cached<Ino, Xattrs>,
    locks: Cached<Ino, Locks>,
    pub(crate) sums: Cached<(Ino, u64), Vec<u32>>,
    pub(crate) names: IdMap<Ino, Names>,
    names_dirty: Vec<Ino>,
    names_frozen: Vec<Ino>,
    // What is small and always in memory.
    txns: Cached<TxnId, Txn>,
    txn_ids: BTreeSet<TxnId>,
    sessions: Cached<SessionId, Session>,
    session_ids: BTreeSet<SessionId>,
    pub(crate) outbox: JournalRows,
    delivered: BTreeMap<IslandId, Stamp>,
    delivered_dirty: BTreeSet<IslandId>,
    skipped: BTreeMap<IslandId, Stamp>,
    skipped_dirty: BTreeSet<IslandId>,
    clocks: ClockVector,
    public_clocks: ClockVector,
    clocks_dirty: BTreeSet<IslandId>,
    inboxes: BTreeMap<IslandId, JournalRows>,
    moved: ClockVector,
    moved_dirty: BTreeSet<IslandId>,
    forwards: BTreeMap<Ino, Forward>,
    forwards_dirty: BTreeSet<Ino>,
    survived: BTreeMap<u32, Stamp>,
    survived_dirty: BTreeSet<u32>,
    renamed: Renamed,
    pub(crate) links: LinkRows,
    sides: SideRows,
    /// Bodies that may differ from their checksums.
    dirty_bodies: IdSet<Ino>,
    view: Pending,
    pub(crate) seen: Cell<u64>,
    /// What the last sweep left room for; none before the first.
    rows_max: Option<usize>,
    /// Rows loaded since.
    loads: usize,
    /// What listings need of what has changed since they began.
    pub(crate) cuts: Cuts,
}

impl State {
    /// An empty state of an island of the volume with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Position of the last record applied.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// What the island knows of itself.
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The cookie of a name in this volume.
    pub fn cookie(&self, name: &[u8]) -> u64 {
        cookie_of(self.seed, name)
    }

    /// Forgets what was seen so far, before a request is decided.
    pub fn begin_reads(&self) {
        self.seen.set(0);
    }

    /// The latest change of anything that was read since [`State::begin_reads`]: who tells of it
    /// must wait until that record is committed.
    pub fn seen(&self) -> u64 {
        self.seen.get()
    }

    /// Something that this record has changed is read.
    pub(crate) fn see(&self, seq: u64) {
        self.seen.set(self.seen.get().max(seq));
    }

    // ------------------------------------------------------------------ reading

    /// A file.
    pub fn inode(&self, ino: Ino) -> Result<Option<&Inode>, NotInMemory> {
        self.inodes.get(ino, &self.seen).ok_or(NotInMemory(RowLoad::Row(RowKey::Inode(ino))))
    }

    /// A directory of the skeleton.
    pub fn dir(&self, ino: Ino) -> Result<Option<&Dir>, NotInMemory> {
        self.dirs.get(ino, &self.seen).ok_or(NotInMemory(RowLoad::Row(RowKey::Dir(ino))))
    }

    /// Directories of the skeleton that are in memory.
    pub fn dirs_in_memory(&self) -> impl Iterator<Item = (Ino, &Dir)> {
        self.dirs.in_memory()
    }

    /// A name. Asks for the whole of a small directory at once.
    pub fn entry(&self, dir: Ino, name: &Name) -> Result<Option<&Entry>, NotInMemory> {
        let cookie = self.cookie(name.as_bytes());
        let known = self.names.get(&dir).and_then(|n| n.get(cookie, name.as_bytes(), &self.seen));
        if let Some(row) = known {
            return Ok(row);
        }
        let small = self
            .dirs
            .get(dir, &self.seen)
            .flatten()
            .and_then(|d| d.owned.as_ref())
            .is_some_and(|o| o.entries < NAMES_PER_PAGE as u64);
        Err(NotInMemory(if small {
            RowLoad::Names { dir, from: 0 }
        } else {
            RowLoad::Row(RowKey::Entry(dir, cookie, name.clone()))
        }))
    }

    /// Names after `after`, as far as memory has them, and whether they end there for good.
    pub fn entries_after(
        &self,
        dir: Ino,
        after: u64,
    ) -> Result<(impl Iterator<Item = (u64, &Name, &Entry)>, bool), NotInMemory> {
        let miss = || NotInMemory(RowLoad::Names { dir, from: after.saturating_add(1) });
        self.names.get(&dir).and_then(|n| n.after(after, &self.seen)).ok_or_else(miss)
    }

    /// Extended attributes of a file or directory that has some.
    pub fn xattrs(&self, ino: Ino) -> Result<Option<&Xattrs>, NotInMemory> {
        self.xattrs.get(ino, &self.seen).ok_or(NotInMemory(RowLoad::Row(RowKey::Xattrs(ino))))
    }

    /// Locks on a file.
    pub fn locks(&self, ino: Ino) -> Result<Option<&Locks>, NotInMemory> {
        self.locks.get(ino, &self.seen).ok_or(NotInMemory(RowLoad::Row(RowKey::Locks(ino))))
    }

    /// A row of a machine beside the island.
    pub fn side(&self, table: u8, id: u128) -> Result<Option<&Bytes>, NotInMemory> {
        let miss = NotInMemory(RowLoad::Row(RowKey::Side(table, id)));
        self.sides.get((table, id), &self.seen).ok_or(miss)
    }

    /// Rows of such a table from this id on, in order, and the last id up to which these are all.
    pub fn sides_from(
        &self,
        table: u8,
        from: u128,
    ) -> Result<(impl Iterator<Item = (u128, &Bytes)>, u128), NotInMemory> {
        self.sides.page(table, from).ok_or(NotInMemory(RowLoad::Sides { table, from }))
    }

    /// A transaction under way.
    pub fn txn(&self, txn: TxnId) -> Option<&Txn> {
        self.txns.get(txn, &self.seen).flatten()
    }

    /// All transactions under way.
    pub fn txn_ids(&self) -> impl Iterator<Item = TxnId> + '_ {
        self.txn_ids.iter().copied()
    }

    /// A client.
    pub fn session(&self, session: SessionId) -> Option<&Session> {
        // A session's row changes with every request of its own: it is not "seen" by others.
        self.sessions.get(session, &Cell::new(0)).flatten()
    }

    /// All clients.
    pub fn session_ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.session_ids.iter().copied()
    }

    /// How far this island has applied every journal.
    pub const fn clocks(&self) -> &ClockVector {
        &self.clocks
    }

    /// The last entry of every journal that this island has applied and that others may need.
    pub const fn public_clocks(&self) -> &ClockVector {
        &self.public_clocks
    }

    /// At the root's owner: what had to be seen of each journal to know all moves of directories to another
    /// parent that have happened. Whoever has seen more than that has seen the moves.
    pub const fn moved(&self) -> &ClockVector {
        &self.moved
    }

    /// Where a file is that was homed here, as long as a mount may ask for it here.
    pub fn forward(&self, ino: Ino) -> Option<&Forward> {
        if self.forwards.is_empty() { None } else { self.forwards.get(&ino) }
    }

    /// All of those.
    pub fn forwards(&self) -> impl Iterator<Item = (Ino, &Forward)> {
        self.forwards.iter().map(|(ino, forward)| (*ino, forward))
    }

    /// Those of files with ids above this, in their order.
    pub fn forwards_after(&self, after: Ino) -> impl Iterator<Item = (Ino, &Forward)> {
        let behind = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.forwards.range(behind).map(|(ino, forward)| (*ino, forward))
    }

    /// Directories that were renamed while they were owned here, with ids above this.
    pub fn renamed_after(&self, after: Ino) -> impl Iterator<Item = Ino> + '_ {
        self.renamed.after(after)
    }

    /// What `island` may not have of this island's journal, in order.
    pub fn outbox(&self, island: IslandId) -> impl ExactSizeIterator<Item = (Stamp, &JournalEntry)> {
        self.outbox_behind(island, Stamp::default())
    }

    /// As [`State::outbox`], without what is not behind a stamp.
    pub fn outbox_behind(
        &self,
        island: IslandId,
        after: Stamp,
    ) -> impl ExactSizeIterator<Item = (Stamp, &JournalEntry)> {
        self.outbox.after(after.max(self.delivered(island)).max(self.skipped(island)))
    }

    /// This island's journal is not kept for `island` up to here.
    pub fn skipped(&self, island: IslandId) -> Stamp {
        self.skipped.get(&island).copied().unwrap_or_default()
    }

    /// The first entry that is kept of this island's journal.
    pub fn first_posted(&self) -> Option<Stamp> {
        self.outbox.first()
    }

    /// How far `island` has applied and synced this island's journal.
    pub fn delivered(&self, island: IslandId) -> Stamp {
        self.delivered.get(&island).copied().unwrap_or_default()
    }

    /// What this island has applied of `island`'s journal and `island` may lose yet, in order.
    pub fn inbox(&self, island: IslandId) -> impl Iterator<Item = (Stamp, &JournalEntry)> {
        self.inboxes.get(&island).into_iter().flat_map(|journal| journal.after(Stamp(0)))
    }

    /// Whether a record of this island with this stamp is gone: it was given in an earlier incarnation,
    /// whose end has left nothing so late.
    pub fn lost(&self, stamp: Stamp) -> bool {
        stamp.incarnation() < self.meta.incarnation
            && self.survived.range(stamp.incarnation()..).next().is_some_and(|(_, last)| stamp > *last)
    }

    /// Bodies that may differ from their checksums.
    pub const fn dirty_bodies(&self) -> &IdSet<Ino> {
        &self.dirty_bodies
    }

    // ----------------------------------------------------------------- applying

    /// Applies what the record at `seq` changes.
    ///
    /// # Panics
    /// If a row that [`State::needs`] names is not in memory.
    pub fn apply(&mut self, seq: u64, change: &RowChange) {
        self.seq = seq;
        self.meta.clean = false;
        if !self.cuts.is_empty() {
            self.keep_for_cuts(change);
        }
        match change {
            RowChange::Inode { ino, row } => {
                self.view.ino_changed(*ino);
                self.meta.changed_at(row.as_ref().map(|row| row.attr.ctime));
                self.inodes.set(*ino, row.as_deref().cloned(), seq);
            }
            RowChange::Dir { ino, row } => {
                let owned = row.as_ref().and_then(|row| row.owned.as_ref());
                self.meta.changed_at(owned.map(|owned| owned.ctime));
                self.apply_dir(seq, *ino, row.as_deref());
            }
            RowChange::Entry { dir, name, row } => {
                self.view.name_changed(*dir, name);
                let cookie = self.cookie(name.as_bytes());
                let names = self.names.entry(*dir).or_insert_with(Names::unknown);
                if !names.is_dirty() {
                    self.names_dirty.push(*dir);
                }
                names.set(cookie, name, row.clone(), seq);
            }
            RowChange::Xattrs { ino, row } => {
                self.view.ino_changed(*ino);
                self.xattrs.set(*ino, row.clone(), seq);
            }
            RowChange::Sums { ino, first, sums } => self.apply_sums(seq, *ino, *first, sums),
            RowChange::SumsCut { ino, first, end } => self.cut_sums(seq, *ino, *first, *end),
            RowChange::Locks { ino, row } => self.locks.set(*ino, row.clone(), seq),
            RowChange::Txn { txn, row } => {
                if row.is_some() {
                    self.txn_ids.insert(*txn)
                } else {
                    self.txn_ids.remove(txn)
                };
                self.txns.set(*txn, row.as_deref().cloned().map(Txn::shed), seq);
            }
            RowChange::Session { session, row } => {
                if row.is_some() {
                    self.session_ids.insert(*session)
                } else {
                    self.session_ids.remove(session)
                };
                self.sessions.set(*session, row.clone(), seq);
            }
            RowChange::Result { session, seq: request, acked, result } => {
                self.sessions.modify(*session, seq, |row| remember(row, *request, *acked, result.clone()));
            }
            RowChange::TakenBack { session, seq: request } => {
                self.sessions.modify(*session, seq, |s| s.results.retain(|(n, _)| n != request));
            }
            RowChange::Held { session, ino, on } => {
                self.sessions.modify(*session, seq, |row| hold(row, *ino, *on));
            }
            RowChange::Ending { session } => {
                self.sessions.modify(*session, seq, |row| row.ending = true);
            }
            RowChange::Keeps { session, on } => {
                self.sessions.modify(*session, seq, |row| row.keeps = *on);
            }
            RowChange::Posted { stamp, entry } => {
                self.outbox.push(*stamp, entry.clone());
            }
            RowChange::Delivered { island, upto } => {
                let known = self.delivered.entry(*island).or_default();
                *known = (*known).max(*upto);
                self.delivered_dirty.insert(*island);
            }
            RowChange::Skipped { island, upto } => {
                let known = self.skipped.entry(*island).or_default();
                *known = (*known).max(*upto);
                self.skipped_dirty.insert(*island);
            }
            RowChange::Unposted { upto } => {
                self.outbox.drop_upto(*upto);
            }
            RowChange::Clock { island, stamp } => {
                if self.clocks.raise(*island, *stamp) | self.public_clocks.raise(*island, *stamp) {
                    self.clocks_dirty.insert(*island);
                }
            }
            RowChange::PrivateClock { island, stamp } => {
                if self.clocks.raise(*island, *stamp) {
                    self.clocks_dirty.insert(*island);
                }
            }
            RowChange::Moved { island, stamp } => {
                if self.moved.raise(*island, *stamp) {
                    self.moved_dirty.insert(*island);
                }
            }
            RowChange::Forward { ino, row } => {
                match row {
                    Some(row) => self.forwards.insert(*ino, row.clone()),
                    None => self.forwards.remove(ino),
                };
                self.forwards_dirty.insert(*ino);
            }
            RowChange::MintLimit { limit } => {
                self.meta.mint_limit = self.meta.mint_limit.max(*limit);
            }
            RowChange::Received { island, stamp, entry } => {
                self.inboxes.entry(*island).or_default().push(*stamp, entry.clone());
            }
            RowChange::Unreceived { island, upto } => {
                self.inboxes.entry(*island).or_default().drop_upto(*upto);
            }
            RowChange::Incarnation { incarnation, ended } => {
                if *ended != LifeEnd::Promoted {
                    // Of incarnations that left no record, nothing has survived: they count with the last that did.
                    let last = incarnation.saturating_sub(1);
                    self.survived.insert(last, self.meta.stamp);
                    self.survived_dirty.insert(last);
                    if self.survived.len() > SURVIVED_MAX {
                        self.survived_dirty.extend(self.survived.pop_first().map(|(oldest, _)| oldest));
                    }
                }
                self.meta.incarnation = *incarnation;
                if *ended == LifeEnd::PowerCut {
                    self.meta.power = *incarnation;
                }
            }
            RowChange::Checkpoint { clean } => {
                // What is written to a body from here on is part of the next checkpoint.
                self.dirty_bodies.clear();
                self.meta.clean = *clean;
            }
            RowChange::Stamp { stamp } => {
                self.meta.stamp = self.meta.stamp.max(*stamp);
            }
            RowChange::Dirty { ino } => {
                self.dirty_bodies.insert(*ino);
            }
            RowChange::Link { ino, row } => self.links.set(self.seed, *ino, row.as_deref().cloned(), seq),
            RowChange::LinksTold { island, digest } => self.links.tell(*island, *digest),
            RowChange::Renamed { ino } => self.renamed.insert(*ino),
            RowChange::Side { table, id, row } => self.sides.set((*table, *id), row.clone(), seq),
        }
    }

    fn apply_dir(&mut self, seq: u64, ino: Ino, row: Option<&Dir>) {
        self.view.ino_changed(ino);
        match row {
            // A directory that begins to be owned here without names has none in the snapshot.
            Some(Dir { owned: Some(owned), .. }) if owned.entries == 0 && !self.names.contains_key(&ino) => {
                self.names.insert(ino, Names::of_new());
            }
            Some(_) => {}
            None => {
                self.renamed.remove(ino);
                // Ids are never used again: what memory knows of its names is not needed.
                if self.names.get(&ino).is_some_and(|n| !n.is_dirty()) && !self.names_frozen.contains(&ino) {
                    self.names.remove(&ino);
                }
            }
        }
        self.dirs.set(ino, row.cloned(), seq);
    }

    /// Says of an id that was minted now that the snapshot has no row of it.
    pub fn new_file(&mut self, ino: Ino) {
        self.make_room(1);
        self.sums.load((ino, 0), None);
        self.locks.load(ino, None);
        self.xattrs.load(ino, None);
    }

    /// The first cookie above those of which memory has every name.
    pub fn known_to(&self, dir: Ino) -> u64 {
        self.names.get(&dir).map_or(0, Names::known_to)
    }

    /// Clean rows that were not used lately leave memory: about `max` of each kind stay. Rows that
    /// are only read come without a checkpoint, so this is done from time to time too.
    pub fn sweep(&mut self, max: usize) {
        (self.rows_max, self.loads) = (Some(max), 0);
        self.inodes.sweep(max);
        self.dirs.sweep(max);
        self.xattrs.sweep(max / 8);
        self.locks.sweep(max / 8);
        self.sums.sweep(max);
        self.sides.sweep(max);
        if self.names.values().map(|n| n.len() + 1).sum::<usize>() > max {
            // A directory that is used stays whole, unless it alone is most of what may stay.
            self.names.retain(|_, names| !names.sweep(max / 2));
            self.names.shrink_to(max);
        }
    }

    /// Rows that the next checkpoint would write, about.
    pub fn dirty_len(&self) -> usize {
        self.inodes.dirty_len()
            + self.dirs.dirty_len()
            + self.sums.dirty_len()
            + self.sides.dirty_len()
            + self.names_dirty.len()
            + self.view.settled_len()
    }

    // ------------------------------------------------------------------ loading

    /// So many rows come that the snapshot has. A walk brings more between two ticks than may stay.
    fn make_room(&mut self, rows: usize) {
        self.loads += rows;
        // What came since the last sweep outlives this one, so that whoever asked for it finds it.
        if let Some(max) = self.rows_max.filter(|max| self.loads > LOADS_MIN.max(*max)) {
            self.sweep(max);
        }
    }

    /// Takes in what the snapshot has.
    pub fn load(&mut self, load: RowLoad, loaded: LoadedRows) -> Result<(), Malformed> {
        self.make_room(match &loaded {
            LoadedRows::Row(_) => 1,
            LoadedRows::Names { names, .. } => names.len() + 1,
            LoadedRows::Dirs { .. } => 0,
            LoadedRows::Sides { rows, .. } => rows.len() + 1,
        });
        fn row<V: Decode>(bytes: Option<Vec<u8>>) -> Result<Option<V>, Malformed> {
            bytes.map(|b| V::from_slice(&b)).transpose()
        }
        match (load, loaded) {
            (RowLoad::Row(key), LoadedRows::Row(bytes)) => match key {
                RowKey::Inode(ino) => self.inodes.load(ino, row(bytes)?),
                RowKey::Dir(ino) => self.dirs.load(ino, row(bytes)?),
                RowKey::Xattrs(ino) => self.xattrs.load(ino, row(bytes)?),
                RowKey::Locks(ino) => self.locks.load(ino, row(bytes)?),
                RowKey::Sums(ino, chunk) => self.sums.load((ino, chunk), row(bytes)?),
                RowKey::Entry(dir, cookie, name) => {
                    let names = self.names.entry(dir).or_insert_with(Names::unknown);
                    names.load(cookie, name, row(bytes)?);
                }
                RowKey::Side(table, id) => self.sides.load((table, id), bytes.map(Bytes::from)),
                _ => return Err(Malformed::new("load of a row that is always in memory")),
            },
            (RowLoad::Names { dir, from }, LoadedRows::Names { names, to }) => {
                let rows = names
                    .into_iter()
                    .map(|(cookie, name, bytes)| Ok((cookie, name, Entry::from_slice(&bytes)?)))
                    .collect::<Result<Vec<_>, Malformed>>()?;
                let names = self.names.entry(dir).or_insert_with(Names::unknown);
                for (cookie, name, entry) in rows {
                    names.load(cookie, name, Some(entry));
                }
                names.loaded(from, to);
            }
            (RowLoad::Dirs { .. }, LoadedRows::Dirs { .. }) => {}
            (RowLoad::Sides { table, from }, LoadedRows::Sides { rows, to }) => {
                self.sides.load_page(table, (from, to), rows);
            }
            _ => return Err(Malformed::new("load answered with something else")),
        }
        Ok(())
    }

    /// Takes in a row of a kind that is always in memory, when the snapshot is opened. Other kinds
    /// are left where they are. True if it was taken.
    pub fn open_row(&mut self, key: &RowKey, bytes: &[u8]) -> Result<bool, Malformed> {
        match key {
            RowKey::Txn(txn) => {
                self.txn_ids.insert(*txn);
                self.txns.load(*txn, Some(Txn::from_slice(bytes)?.shed()));
            }
            RowKey::Session(session) => {
                self.session_ids.insert(*session);
                self.sessions.load(*session, Some(Session::from_slice(bytes)?));
            }
            RowKey::Outbox(stamp) => {
                self.outbox.open(*stamp, JournalEntry::from_slice(bytes)?);
            }
            RowKey::Delivered(island) => {
                self.delivered.insert(*island, Stamp::from_slice(bytes)?);
            }
            RowKey::Skipped(island) => {
                self.skipped.insert(*island, Stamp::from_slice(bytes)?);
            }
            RowKey::Clock(island) => {
                let row = JournalClock::from_slice(bytes)?;
                self.clocks.raise(*island, row.applied);
                self.public_clocks.raise(*island, row.public);
            }
            RowKey::Inbox(island, stamp) => {
                self.inboxes.entry(*island).or_default().open(*stamp, JournalEntry::from_slice(bytes)?);
            }
            RowKey::Moved(island) => {
                self.moved.raise(*island, Stamp::from_slice(bytes)?);
            }
            RowKey::Forward(ino) => {
                self.forwards.insert(*ino, Forward::from_slice(bytes)?);
            }
            RowKey::Survived(incarnation) => {
                self.survived.insert(*incarnation, Stamp::from_slice(bytes)?);
            }
            RowKey::Link(ino) => self.links.open(self.seed, *ino, CarriedLink::from_slice(bytes)?),
            RowKey::LinksTold(island) => self.links.open_told(*island, u64::from_slice(bytes)?),
            RowKey::Renamed(ino) => self.renamed.open(*ino),
            RowKey::Meta => {
                self.meta = Meta::from_slice(bytes)?;
                self.seq = self.meta.seq;
            }
            RowKey::View(_) | RowKey::ViewName(..) => {
                // The first form of these rows was empty.
                let freeze = if bytes.is_empty() { 0 } else { u64::from_slice(bytes)? };
                self.view.open(key, freeze);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Tags of the rows that [`State::open_row`] takes.
    pub const ALWAYS_IN_MEMORY: &'static [u8] = b"tcoqjkbprfhygmvw";

    // --------------------------------------------------------------------- view

    /// The keys from which to which the snapshot has to be read next for [`State::take_view_page`], while
    /// more waits to be laid out than memory may hold.
    pub fn view_page_wanted(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.view.wanted()
    }

    /// Takes what the view has to lay out: ids and names. They stay part of the snapshot until
    /// [`State::view_settled`].
    ///
    /// # Panics
    /// If [`State::view_page_wanted`] says that the snapshot has to be read.
    pub fn take_view(&mut self) -> ToLay {
        self.view.take()
    }

    /// The same with rows that were read from the snapshot. `more`: there were more than were read. What
    /// is laid may meet what is natively in its way because another part was not laid yet.
    pub fn take_view_page(&mut self, rows: &[(Vec<u8>, Vec<u8>)], more: bool) -> Result<ToLay, Malformed> {
        let row = |(key, row): &(Vec<u8>, Vec<u8>)| {
            let key = RowKey::from_bytes(key).ok_or(Malformed::new("key of the view"))?;
            Ok((key, if row.is_empty() { 0 } else { u64::from_slice(row)? }))
        };
        let rows = rows.iter().map(row).collect::<Result<_, Malformed>>()?;
        Ok(self.view.take_page(rows, more))
    }

    /// The view lays this id too, because it lays a name of it.
    pub fn view_takes(&mut self, ino: Ino) {
        if self.view.is_far_behind() {
            self.view.take_ino(ino);
        }
    }

    /// These have to be laid again.
    pub fn view_again(&mut self, inos: &[Ino], names: &[(Ino, Name)]) {
        inos.iter().for_each(|ino| self.view.ino_changed(*ino));
        names.iter().for_each(|(dir, name)| self.view.name_changed(*dir, name));
    }

    /// The body of a file has changed, or may have, and there will be no record that says so: a write has failed. It is
    /// laid again, and how it looks natively says nothing until then.
    pub fn view_disturbed(&mut self, ino: Ino) {
        self.view.disturbed(ino);
    }

    /// It was, and the view has not looked at it since.
    pub fn view_is_disturbed(&self, ino: Ino) -> bool {
        self.view.is_disturbed(ino)
    }

    /// The view looks at what it has made of this id, and will know it as that.
    pub fn view_looks_at(&mut self, ino: Ino) {
        self.view.looked_at(ino);
    }

    /// The id has changed since the view has taken it.
    pub fn view_waits_for(&self, ino: Ino) -> bool {
        self.view.waits(ino)
    }

    /// What the view has taken is laid, or was given up.
    pub const fn view_laid(&mut self) {
        self.view.laid();
    }

    /// The view has nothing to do with an id, nor does it anything with it now.
    pub fn view_is_done_with(&self, ino: Ino) -> bool {
        self.view.is_done_with(ino)
    }

    /// What was laid out survives a power cut. Nothing was taken since it was made to.
    pub fn view_settled(&mut self) {
        self.view.settle();
    }

    /// The view has lost what it knew of what was laid out and is not settled: it has to be laid again.
    pub fn view_lost(&mut self) {
        self.view.lay_again();
    }

    /// What was taken and is not settled, in ids and names.
    pub fn view_laid_len(&self) -> usize {
        self.view.laid_len()
    }

    /// Nothing waits to be laid out.
    pub fn view_is_drained(&self) -> bool {
        self.view.is_drained()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Encode;
    use atoll_posix::Kind;

    #[test]
    fn a_stamp_of_an_epoch_that_left_no_record_is_lost() {
        let mut state = State::new(7);
        let begin = |incarnation, ended| RowChange::Incarnation { incarnation, ended };
        state.apply(1, &begin(7, LifeEnd::Whole));
        state.apply(2, &RowChange::Stamp { stamp: Stamp::new(7, 5) });
        // Epoch 8 was told to others, and a power cut has taken its records.
        state.apply(3, &begin(9, LifeEnd::PowerCut));
        assert!(!state.lost(Stamp::new(7, 5)) && state.lost(Stamp::new(7, 6)));
        assert!(state.lost(Stamp::new(8, 1)), "nobody would bring it back");
        assert!(!state.lost(Stamp::new(9, 1)), "it may be given yet");
    }

    #[test]
    fn a_promotion_loses_no_stamp() {
        let mut state = State::new(7);
        state.apply(1, &RowChange::Incarnation { incarnation: 7, ended: LifeEnd::Whole });
        state.apply(2, &RowChange::Stamp { stamp: Stamp::new(7, 5) });
        state.apply(3, &RowChange::Incarnation { incarnation: 8, ended: LifeEnd::Promoted });
        assert!(!state.lost(Stamp::new(7, 6)), "others were told of it when its record was everywhere");
        assert_eq!(state.meta().power, 0);
    }

    #[test]
    fn a_marker_ends_what_was_announced() {
        let mut state = State::new(7);
        state.apply(1, &RowChange::Dirty { ino: Ino(5) });
        state.apply(2, &RowChange::Checkpoint { clean: false });
        assert!(state.dirty_bodies().is_empty() && !state.meta().clean);
        state.apply(3, &RowChange::Checkpoint { clean: true });
        assert!(state.meta().clean && state.freeze().seq == 3);
    }

    #[test]
    fn a_side_row_comes_back_from_a_checkpoint_as_it_was_set() {
        let mut state = State::new(7);
        let bytes = Bytes::from_static(b"of a machine beside the island");
        state.apply(1, &RowChange::Side { table: b'f', id: 5, row: Some(bytes.clone()) });
        let key = RowKey::Side(b'f', 5);
        let row = state.freeze().rows.into_iter().find(|(other, _)| *other == key.to_bytes()).unwrap().1;
        let mut again = State::new(7);
        again.load(RowLoad::Row(key), LoadedRows::Row(row.clone())).unwrap();
        assert_eq!(again.side(b'f', 5), Ok(Some(&bytes)));
        let page = RowLoad::Sides { table: b'f', from: 0 };
        let rows = LoadedRows::Sides { rows: vec![(5, row.unwrap())], to: u128::MAX };
        let mut again = State::new(7);
        again.load(page, rows).unwrap();
        assert_eq!(again.side(b'f', 5), Ok(Some(&bytes)));
    }

    #[test]
    fn a_walk_that_loads_rows_without_end_does_not_fill_memory() {
        let max = 2 * LOADS_MIN;
        let mut state = State::new(7);
        state.sweep(max);
        let row = Entry { ino: Ino(5), kind: Kind::Regular, home: IslandId(0), stub: None }.to_vec();
        for n in 0..20 * max as u64 {
            state.load(RowLoad::Row(RowKey::Inode(Ino(n))), LoadedRows::Row(None)).unwrap();
            let name = Name::new(format!("n{n}").as_bytes()).unwrap();
            let key = RowKey::Entry(Ino(1), state.cookie(name.as_bytes()), name.clone());
            state.load(RowLoad::Row(key), LoadedRows::Row(Some(row.clone()))).unwrap();
            assert!(state.inode(Ino(n)).is_ok() && state.entry(Ino(1), &name).is_ok(), "it is there");
            assert!(state.inodes.len() <= 2 * max && state.names[&Ino(1)].len() <= 2 * max);
        }
    }
}
