//! Files that move to the island that owns their only name (`DESIGN` 6; `docs/design/002-across-islands.md`).
//! A pointer costs a request. So if nobody uses the file, its home sends it after its name, in the
//! background.
//!
//! Nothing is frozen: a request that changes the file goes first, and the move begins again later.
//! Invariants: the home gives up only bytes that it has read, that have not changed since, and that survive a
//! power cut at the new home. Nobody hears of the new home before the old one cannot take the file back any
//! more.

mod incoming;
mod outgoing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Decode, Ino, IslandId, SessionId, Stamp, TxnId};
use atoll_posix::{Errno, Kind, Op};
use atoll_proto::{Dir, EntryRef, Forward, Inode, ParticipantWork, PeerMessage, RowChange, TxnState, Xattrs};
use atoll_state::RowLoad;

use crate::bodies::Bodies;
use crate::ctx::Ctx;
use crate::ctx::PATIENCE_MS;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::locks::files::FileLocks;
use crate::locks::names::NameLocks;

/// Files that wait to move at most; when there were more, the skeleton is looked through again.
const QUEUE_MAX: usize = 10_000;
/// Files that move at the same time.
const SHIPPING_MAX: usize = 16;
/// Milliseconds after which a file is looked at again that could not move, at first; then twice as long.
const PAUSE_MS: u64 = 1_000;
/// How often that pause is doubled at most.
const DOUBLINGS: u32 = 8;
/// How often a file with several names is looked at before it is left where it is.
const TRIES_MAX: u32 = 4;
/// Milliseconds after which a transfer of which nothing is heard is given up.
const SILENT_MS: u64 = 2_000;

/// A file that may move.
#[derive(Debug, Clone)]
struct Waiting {
    at: EntryRef,
    due_ms: u64,
    tries: u32,
}

/// A file on its way from here.
#[derive(Debug, Clone)]
struct Shipping {
    to: IslandId,
    at: EntryRef,
    file: Box<Inode>,
    xattrs: Option<Xattrs>,
    mounts: Vec<SessionId>,
    heard_ms: u64,
    tries: u32,
}

/// A file on its way to here.
#[derive(Debug, Clone)]
struct Pulling {
    from: IslandId,
    ino: Ino,
    size: u64,
    /// Up to here its bytes are here.
    next: u64,
    prepared: Stamp,
    heard_ms: u64,
}

/// How far the skeleton was looked through for names of files that are homed here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Search {
    #[default]
    Begin,
    Wanted(Ino),
    Asked(Ino),
    Done,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Migration {
    waiting: IdMap<Ino, Waiting>,
    due: BTreeSet<(u64, Ino)>,
    /// Some were not noted, because too many waited.
    missed: bool,
    search: Search,
    /// Directories of others with names of files homed here, of which the names are still to be read.
    dirs: Vec<(Ino, u64)>,
    shipping: BTreeMap<TxnId, Shipping>,
    pulling: IdMap<TxnId, Pulling>,
    /// Bytes that may be sent now. If more were sent, the next piece waits.
    allowance: i64,
    allowed_ms: u64,
    /// Requests for bytes that wait until more may be sent.
    slowed: VecDeque<PeerMessage>,
    /// Files that have gone, and of which the new home has not said that it has them for good.
    leaving: IdSet<Ino>,
    /// Files that have gone, by records that are not synced yet.
    unsynced: VecDeque<(u64, TxnId, Ino)>,
}

/// Whom a move asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs<'a> {
    pub(crate) locks: &'a NameLocks,
    pub(crate) file_locks: &'a FileLocks,
    pub(crate) bodies: &'a Bodies,
    pub(crate) is_quiescing: bool,
}

impl Needs<'_> {
    /// A file that is homed here, and not only on its way.
    fn homed(self, ctx: &Ctx, ino: Ino) -> Result<Option<&Inode>, Blocked> {
        if self.locks.arriving(ino).is_some() {
            return Ok(None);
        }
        Ok(ctx.state.inode(ino)?)
    }
}

impl Migration {
    /// Nothing is on its way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.shipping.is_empty()
            && self.pulling.is_empty()
            && self.leaving.is_empty()
            && self.unsynced.is_empty()
    }

    /// Panics unless every file that waits is due once, and each file on its way from here is begun.
    pub(crate) fn check(&self, is_begun: impl Fn(TxnId) -> bool) {
        assert_eq!(self.waiting.len(), self.due.len(), "files that wait, and when they are due");
        for (due_ms, ino) in &self.due {
            assert_eq!(self.waiting.get(ino).map(|of| of.due_ms), Some(*due_ms), "{ino} is due then");
        }
        assert!(
            self.waiting.len() <= QUEUE_MAX && self.shipping.len() <= SHIPPING_MAX,
            "too many files move"
        );
        for (txn, shipping) in &self.shipping {
            assert!(is_begun(*txn), "{:?} is on its way by {txn:?}, which is not begun", shipping.at);
        }
    }

    /// Bytes of it are still to come, so that its vote is not given.
    pub(crate) fn is_pulling(&self, txn: TxnId) -> bool {
        self.pulling.contains_key(&txn)
    }

    /// The move with which a file has gone, as long as that can be lost in a power cut.
    fn unsynced(&self, ino: Ino) -> Option<TxnId> {
        self.unsynced.iter().find(|(_, _, of)| *of == ino).map(|(_, txn, _)| *txn)
    }

    /// A link is gone: moves over it begin again.
    pub(crate) fn lost_link(&mut self, island: IslandId) {
        self.pulling.retain(|_, pulling| pulling.from != island);
        self.slowed.retain(|message| message.from != island);
    }

    /// A file that is homed here has a name in a directory of another's.
    pub(crate) fn may_move_to(&mut self, ctx: &Ctx, ino: Ino, at: &EntryRef) {
        let Some(moving) = ctx.config.moving else { return };
        // Those of a while together: they share syncs.
        let due_ms = (ctx.now.ms + moving.rests_ms).next_multiple_of(moving.rests_ms.max(1));
        self.wait_to_move(ino, Waiting { at: at.clone(), due_ms, tries: 0 });
    }

    fn wait_to_move(&mut self, ino: Ino, waiting: Waiting) {
        if let Some(old) = self.waiting.remove(&ino) {
            self.due.remove(&(old.due_ms, ino));
        }
        if self.waiting.len() >= QUEUE_MAX {
            self.missed = true;
            return;
        }
        self.due.insert((waiting.due_ms, ino));
        self.waiting.insert(ino, waiting);
    }

    fn try_again(&mut self, ctx: &Ctx, ino: Ino, at: EntryRef, tries: u32) {
        if self.waiting.contains_key(&ino) {
            // It has got another name meanwhile.
            return;
        }
        let due_ms = ctx.now.ms + (PAUSE_MS << tries.min(DOUBLINGS));
        self.wait_to_move(ino, Waiting { at, due_ms, tries: tries + 1 });
    }

    /// Looks through the skeleton for files that could move: after a start, and when too many waited.
    fn search_to_move(&mut self, ctx: &mut Ctx) {
        match self.search {
            Search::Begin => {
                // What the snapshot does not have yet is in memory.
                let in_memory = ctx.state.dirs_in_memory().filter(|(_, dir)| has_homes(dir));
                let dirs: Vec<(Ino, u64)> = in_memory.map(|(ino, _)| (ino, 0)).collect();
                self.dirs.extend(dirs);
                self.search = Search::Wanted(Ino(0));
            }
            Search::Wanted(from) => {
                self.search = Search::Asked(from);
                ctx.load(vec![RowLoad::Dirs { from }], Next::Nothing);
            }
            Search::Asked(_) => {}
            Search::Done => {
                if self.waiting.is_empty() && std::mem::take(&mut self.missed) {
                    self.search = Search::Begin;
                }
            }
        }
    }

    /// A page of the skeleton, as the last checkpoint has left it.
    pub(crate) fn found_dirs(&mut self, from: Ino, dirs: &[(Ino, Vec<u8>)], more: bool) {
        if self.search != Search::Asked(from) {
            return;
        }
        for (ino, row) in dirs {
            if Dir::from_slice(row).is_ok_and(|dir| has_homes(&dir)) {
                self.dirs.push((*ino, 0));
            }
        }
        self.search = match dirs.last() {
            Some((last, _)) if more => Search::Wanted(Ino(last.0 + 1)),
            _ => Search::Done,
        };
    }

    /// Notes the files that have their names in a directory of another's.
    fn read_names_to_move(&mut self, ctx: &Ctx) -> Result<(), Blocked> {
        let Some((dir, after)) = self.dirs.last().copied() else { return Ok(()) };
        let (mut found, mut last) = (Vec::new(), None);
        let (names, whole) = ctx.state.entries_after(dir, after)?;
        for (cookie, name, entry) in names {
            last = Some(cookie);
            if entry.kind != Kind::Directory && entry.home == ctx.config.id {
                found.push((entry.ino, EntryRef { dir, name: name.clone() }));
            }
        }
        self.dirs.pop();
        if let Some(last) = last.filter(|_| !whole) {
            self.dirs.push((dir, last));
        }
        for (ino, at) in found {
            if !self.waiting.contains_key(&ino) {
                self.may_move_to(ctx, ino, &at);
            }
        }
        Ok(())
    }

    /// Moves that a client has not heard of, of files with ids above `after`: so many at most.
    pub(crate) fn unheard_moves(
        &self,
        ctx: &Ctx,
        session: SessionId,
        after: Ino,
        max: usize,
    ) -> Vec<(Ino, Forward)> {
        let of = ctx.state.forwards_after(after).filter(|(_, row)| row.sessions.contains(&session));
        of.filter(|(ino, _)| self.unsynced(*ino).is_none())
            .map(|(ino, row)| (ino, row.clone()))
            .take(max)
            .collect()
    }

    /// It has gone for good, and all clients of that time have been told, or will be.
    pub(crate) fn has_gone(&self, ctx: &Ctx, ino: Ino) -> bool {
        self.unsynced(ino).is_none() && (self.leaving.contains(&ino) || ctx.state.forward(ino).is_some())
    }

    /// More bytes may be sent: islands that were slowed down get their pieces.
    pub(crate) fn allow(&mut self, ctx: &mut Ctx) {
        let Some(moving) = ctx.config.moving else { return };
        let passed = ctx.now.ms.saturating_sub(self.allowed_ms).min(1_000);
        self.allowed_ms = ctx.now.ms;
        let rate = i64::try_from(moving.bytes_per_s).unwrap_or(i64::MAX);
        self.allowance = (self.allowance + rate / 1_000 * passed as i64).min(rate);
        if self.allowance >= 0 {
            for message in self.slowed.drain(..) {
                ctx.next(Next::Peer(message));
            }
        }
    }

    /// No file is on its way, from here or to here, as far as this knows.
    pub(crate) fn moves_nothing(&self) -> bool {
        self.shipping.is_empty() && self.pulling.is_empty() && self.unsynced.is_empty()
    }

    /// Begins after a start, with the files that had moved and may not be safe at their new home.
    pub(crate) fn resume(&mut self, ctx: &Ctx) {
        for txn in ctx.state.txn_ids().filter(|txn| txn.coordinator == ctx.config.id) {
            let row = ctx.state.txn(txn).filter(|row| row.state == TxnState::Committed);
            if let Some(ParticipantWork::ReceiveFile { file, .. }) = row.map(|row| &row.part.work) {
                self.leaving.insert(file.attr.ino);
            }
        }
    }

    /// The new home of a file has it for good.
    pub(crate) fn has_left(&mut self, ino: Ino) {
        self.leaving.remove(&ino);
    }

    // ------------------------------------------------------------- at the home

    pub(crate) fn tick(&mut self, ctx: &mut Ctx, needs: Needs<'_>, may_begin: bool) {
        let Some(moving) = ctx.config.moving else { return };
        let now = ctx.now.ms;
        self.pulling.retain(|_, pulling| pulling.heard_ms + SILENT_MS > now);
        let silent = |shipping: &Shipping| shipping.heard_ms + PATIENCE_MS < now;
        let late: Vec<TxnId> = self.shipping.iter().filter(|(_, s)| silent(s)).map(|(txn, _)| *txn).collect();
        for txn in late {
            self.give_up(ctx, txn);
        }
        if !may_begin {
            return;
        }
        if self.waiting.len() < QUEUE_MAX / 2 {
            if self.dirs.is_empty() {
                self.search_to_move(ctx);
            }
            if let Err(Blocked::Load(loads)) = self.read_names_to_move(ctx) {
                ctx.load(loads, Next::Nothing);
            }
        }
        while self.shipping.len() < SHIPPING_MAX
            && self.allowance >= 0
            && let Some(&(due_ms, ino)) = self.due.first()
            && due_ms <= now
        {
            let waiting = self.waiting.remove(&ino).expect("whoever is due waits");
            self.due.remove(&(due_ms, ino));
            ctx.state.begin_reads();
            match self.to_ship(ctx, needs, moving, ino, &waiting.at, waiting.tries) {
                Ok(Some(shipping)) => self.ship(ctx, shipping),
                Ok(None) => {}
                Err(Blocked::Load(loads)) => {
                    self.wait_to_move(ino, Waiting { due_ms: now + 1, ..waiting });
                    ctx.load(loads, Next::Nothing);
                }
                Err(_) => self.try_again(ctx, ino, waiting.at, waiting.tries),
            }
        }
    }

    /// Whether a file is here, for a request that names it by its id.
    pub(crate) fn is_here(&self, ctx: &Ctx, locks: &NameLocks, op: &Op) -> Result<(), Blocked> {
        let Some(ino) = op.file() else { return Ok(()) };
        self.is_not_about_to_arrive(ctx, locks, ino)?;
        let arriving = locks.arriving(ino);
        match ctx.state.forward(ino) {
            Some(forward) if arriving.is_some() || ctx.state.inode(ino)?.is_none() => {
                match self.unsynced(ino) {
                    Some(txn) => Err(Blocked::Txn(txn)),
                    None => Err(Blocked::Moved { to: forward.to, moves: forward.moves }),
                }
            }
            _ if arriving.is_some() => Err(Errno::ESTALE.into()),
            _ => Ok(()),
        }
    }

    /// Nothing is voted for that brings it: where it was it may be gone already.
    pub(crate) fn is_not_about_to_arrive(
        &self,
        _ctx: &Ctx,
        locks: &NameLocks,
        ino: Ino,
    ) -> Result<(), Blocked> {
        match locks.arriving(ino) {
            Some(txn) if !self.is_pulling(txn) => Err(Blocked::Txn(txn)),
            _ => Ok(()),
        }
    }

    /// Whether a file was here and has moved, or is coming: a client that asks for its home asks again in a
    /// moment.
    pub(crate) fn is_moving(&self, locks: &NameLocks, ino: Ino) -> bool {
        locks.arriving(ino).is_some() || self.leaving.contains(&ino)
    }
}

impl Ctx {
    /// A client knows where a file has gone, or is gone itself.
    pub(crate) fn knows_of_move(&self, decision: &mut Decision, session: SessionId, ino: Ino) {
        let Some(forward) = self.state.forward(ino).filter(|row| row.sessions.contains(&session)) else {
            return;
        };
        let mut row = forward.clone();
        row.sessions.retain(|of| *of != session);
        let row = (!row.sessions.is_empty()).then_some(row);
        decision.push(RowChange::Forward { ino, row });
    }
}

/// A directory of another's in which files have names that are homed here.
fn has_homes(dir: &Dir) -> bool {
    dir.owned.is_none() && dir.foreign_names > 0
}
