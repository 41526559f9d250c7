//! One listing of a tree over all islands as of one moment (`docs/design/003-enumerate.md`): this island's
//! part of the cut, and the rows as of it.
//!
//! While an island is held, no change of a client begins, and nothing is prepared for others; everything that
//! has begun comes to its end. Invariant: an island that has said twice that it is quiescent changes nothing
//! that is listed before the cut. If it must, the cut is not made.

use std::collections::BTreeMap;

use atoll_core::{Encode, Ino, IslandId, Name, SessionId, Stamp};
use atoll_posix::{Kind, Op};
use atoll_proto::{ClientOp, CutLost, Entry, FileAt, ListedName, Outcome, Record, RowChange};
use atoll_state::{CutId, CutRowError, NamesAt, RowLoad};

use crate::ctx::Bounded;
use crate::ctx::Ctx;
use crate::ctx::request::{Blocked, Next, PendingRequest, Step};
use crate::ctx::shown::dir_attr;
use crate::event::LinkId;
use crate::rows::path::done;

/// Milliseconds for which an island is held at most, however many listings begin meanwhile.
pub(crate) const HOLD_MS: u64 = 300;
/// Milliseconds after that in which no listing holds it again: waiting requests come first.
const REST_MS: u64 = 100;
/// Milliseconds after which a cut goes of which nobody has asked anything.
const CUT_IDLE_MS: u64 = 30_000;
/// Names in one answer.
const NAMES_PER_ANSWER: usize = 1024;
/// Bytes of names or files in one answer; the last one, with a target of 4,095 bytes, may lie beyond.
const BYTES_PER_ANSWER: usize = 256 << 10;
/// Milliseconds after which a cut of which nothing is heard gives way to another.
const GIVES_WAY_MS: u64 = 3_000;
/// Files asked for with one request.
const FILES_PER_REQUEST: usize = 4096;

/// A listing that holds this island.
#[derive(Debug, Clone)]
struct Hold {
    link: LinkId,
    /// How far this island's own journal was when it was quiet for the first time.
    quiet_at: Option<Stamp>,
    /// It was quiet a second time: from here on nothing may change.
    firm: bool,
    /// Something has changed all the same.
    broken: bool,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quiesce {
    holds: BTreeMap<CutId, Hold>,
    /// When the present holding ends; none if nobody holds.
    until_ms: Option<u64>,
    rest_until_ms: u64,
    /// Listings that want to hear that it is quiet.
    waiting: Vec<PendingRequest>,
    /// Changes that wait for the end.
    held: Bounded<PendingRequest>,
    /// When something was asked of each cut.
    used_ms: BTreeMap<CutId, u64>,
}

impl From<CutRowError> for Blocked {
    fn from(not: CutRowError) -> Self {
        match not {
            CutRowError::Miss(miss) => miss.into(),
            CutRowError::Lost(why) => Self::CutLost(why),
        }
    }
}

impl Quiesce {
    /// The requests that wait for this island to be quiet, or for the end of a hold.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        self.waiting.iter().chain(self.held.iter())
    }

    /// A change that is decided now would be seen in a listing that takes this island for quiet.
    pub(crate) fn record_decided(&mut self, record: &Record) {
        let shows = |change: &RowChange| match change {
            RowChange::Entry { .. } | RowChange::Dir { .. } => true,
            // A file without a name is in no listing.
            RowChange::Inode { row, .. } => row.as_ref().is_some_and(|row| row.attr.nlink > 0),
            _ => false,
        };
        if record.changes.iter().any(shows) {
            for hold in self.holds.values_mut() {
                hold.broken |= hold.firm;
            }
        }
    }

    /// Panics unless requests are held back only while something holds the island.
    pub(crate) fn check(&self) {
        assert_eq!(self.holds.is_empty(), self.until_ms.is_none(), "listings hold the island until then");
        assert!(!self.holds.is_empty() || self.calls().next().is_none(), "requests are held back by nothing");
        for hold in self.holds.values() {
            assert!(
                !hold.firm || hold.quiet_at.is_some(),
                "a listing is firm that was never quiet: {hold:?}"
            );
            assert!(!hold.broken || hold.firm, "a listing is broken that was not firm: {hold:?}");
        }
    }

    /// Nothing that is listed begins to change.
    pub(crate) const fn is_quiescing(&self) -> bool {
        self.until_ms.is_some()
    }

    /// Puts a request aside that would change listed rows, while the island is held.
    pub(crate) fn hold_back(&mut self, ctx: &mut Ctx, call: PendingRequest) -> Option<PendingRequest> {
        if !self.is_quiescing() || !changes_listing(&call.request.op) {
            return Some(call);
        }
        if let Err(call) = self.held.push(call) {
            ctx.answer(&call, 0, Outcome::NotNow);
        }
        None
    }

    fn make_cut(&mut self, ctx: &mut Ctx, id: CutId, call: &PendingRequest) {
        self.end_late_hold(ctx);
        let holds = self.holds.get(&id).is_some_and(|hold| hold.firm && !hold.broken);
        if holds {
            self.make_room_for_cut(ctx);
        }
        // A repetition is answered as the first.
        let made = ctx.state.has_cut(id) || (holds && ctx.state.begin_cut(id));
        if made {
            self.used_ms.insert(id, ctx.now.ms);
        }
        ctx.answer(call, ctx.state.seq(), Outcome::CutMade { made });
        self.end_hold(ctx, id);
    }

    /// A reader asks all the time. A cut that nobody asks for is given up, because the end of its listing was
    /// lost with a link.
    fn make_room_for_cut(&mut self, ctx: &mut Ctx) {
        let used = &self.used_ms;
        let oldest = used.iter().min_by_key(|(_, ms)| **ms).map(|(id, ms)| (*id, *ms));
        if let Some((id, ms)) = oldest.filter(|_| used.len() >= atoll_state::CUTS_MAX)
            && ctx.now.ms >= ms + GIVES_WAY_MS
        {
            self.end_cut(ctx, id);
        }
    }

    /// A listing is over, or goes on without holding.
    fn end_hold(&mut self, ctx: &mut Ctx, id: CutId) {
        self.holds.remove(&id);
        if self.holds.is_empty() {
            self.end_holding(ctx);
        }
    }

    /// Changes go on.
    fn end_holding(&mut self, ctx: &mut Ctx) {
        self.holds.clear();
        if self.until_ms.take().is_some() {
            self.rest_until_ms = ctx.now.ms + REST_MS;
        }
        for call in std::mem::take(&mut self.waiting) {
            ctx.tell_held(&call, false);
        }
        for call in self.held.take() {
            ctx.next(Next::Start(call));
        }
    }

    fn end_late_hold(&mut self, ctx: &mut Ctx) {
        if self.until_ms.is_some_and(|until| ctx.now.ms >= until) {
            self.end_holding(ctx);
        }
    }

    fn end_cut(&mut self, ctx: &mut Ctx, id: CutId) {
        ctx.state.end_cut(id);
        self.used_ms.remove(&id);
        if self.holds.contains_key(&id) {
            self.end_hold(ctx, id);
        }
    }

    /// The listing that held over this link is gone, or does not know that it holds.
    pub(crate) fn link_closed(&mut self, ctx: &mut Ctx, link: LinkId) {
        self.waiting.retain(|call| call.link != link);
        let gone: Vec<CutId> =
            self.holds.iter().filter(|(_, hold)| hold.link == link).map(|(id, _)| *id).collect();
        for id in gone {
            self.end_hold(ctx, id);
        }
    }

    /// A client is gone, and its listings with it.
    pub(crate) fn session_ended(&mut self, ctx: &mut Ctx, session: SessionId) {
        let of = |id: &&CutId| id.0 == session;
        let Quiesce { holds, used_ms, .. } = &self;
        for id in holds.keys().chain(used_ms.keys()).filter(of).copied().collect::<Vec<_>>() {
            self.end_cut(ctx, id);
        }
    }

    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        self.end_late_hold(ctx);
        let now = ctx.now.ms;
        let idle = |(_, used): &(&CutId, &u64)| **used + CUT_IDLE_MS <= now;
        for id in self.used_ms.iter().filter(idle).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_cut(ctx, id);
        }
    }

    /// A listing's question about the tree as of its cut.
    pub(crate) fn run_at(&mut self, ctx: &Ctx, call: &PendingRequest) -> Result<Step, Blocked> {
        let id = |cut: &u64| (call.session(), *cut);
        let outcome = match &call.request.op {
            ClientOp::ListAt { cut, dir, after } => self.list_at(ctx, id(cut), *dir, *after),
            ClientOp::EntryAt { cut, dir, name } => self.name_at(ctx, id(cut), *dir, name),
            ClientOp::FilesAt { cut, inos } => self.files_at(ctx, id(cut), inos),
            _ => unreachable!("called for what is asked as of a cut"),
        };
        match outcome {
            Ok(outcome) => Ok(Step::Looked(outcome)),
            Err(Blocked::CutLost(why)) => Ok(Step::Looked(Outcome::CutLost { why })),
            Err(stop) => Err(stop),
        }
    }

    fn use_cut(&mut self, ctx: &Ctx, id: CutId) -> Result<(), Blocked> {
        let used = self.used_ms.get_mut(&id).ok_or(Blocked::CutLost(CutLost::Unknown))?;
        *used = ctx.now.ms;
        Ok(())
    }

    fn list_at(&mut self, ctx: &Ctx, id: CutId, dir: Ino, after: u64) -> Result<Outcome, Blocked> {
        self.use_cut(ctx, id)?;
        let Some(row) = ctx.state.dir_at(id, dir)?.filter(|row| row.owned.is_some()) else {
            return Ok(Outcome::ListedAt { attr: None, names: Vec::new(), next: None });
        };
        let attr = Some(dir_attr(dir, row));
        let NamesAt { names: rows, mut next } = ctx.state.names_at(id, dir, after, NAMES_PER_ANSWER)?;
        let (mut names, mut missing) = (Vec::with_capacity(rows.len()), Vec::new());
        let (mut bytes, mut last) = (0, None);
        for (cookie, name, entry) in rows {
            if bytes > BYTES_PER_ANSWER && last != Some(cookie) {
                // The next answer goes on behind the last cookie: names that share one stay together.
                next = last;
                break;
            }
            last = Some(cookie);
            match ctx.listed(id, name, &entry) {
                Ok(listed) => {
                    bytes += listed.encoded_len();
                    names.push(listed);
                }
                // One look at the snapshot for all that is not in memory.
                Err(CutRowError::Miss(miss)) => missing.push(miss.0),
                Err(lost) => return Err(lost.into()),
            }
        }
        if missing.is_empty() {
            Ok(Outcome::ListedAt { attr, names, next })
        } else {
            Err(Blocked::Load(missing))
        }
    }

    fn name_at(&mut self, ctx: &Ctx, id: CutId, dir: Ino, name: &Name) -> Result<Outcome, Blocked> {
        self.use_cut(ctx, id)?;
        let Some(row) = ctx.state.dir_at(id, dir)?.filter(|row| row.owned.is_some()) else {
            return Ok(Outcome::ListedAt { attr: None, names: Vec::new(), next: None });
        };
        let attr = Some(dir_attr(dir, row));
        let names = match ctx.state.entry_at(id, dir, name)?.cloned() {
            Some(entry) => vec![ctx.listed(id, name.clone(), &entry)?],
            None => Vec::new(),
        };
        Ok(Outcome::ListedAt { attr, names, next: None })
    }

    fn files_at(&mut self, ctx: &Ctx, id: CutId, inos: &[Ino]) -> Result<Outcome, Blocked> {
        self.use_cut(ctx, id)?;
        let (mut files, mut missing): (Vec<Option<FileAt>>, Vec<RowLoad>) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for ino in inos.iter().take(FILES_PER_REQUEST) {
            if bytes > BYTES_PER_ANSWER {
                // The rest is asked for again.
                break;
            }
            match ctx.file_at(id, *ino) {
                Ok(file) => {
                    bytes += file.encoded_len();
                    files.push(file);
                }
                Err(CutRowError::Miss(miss)) => missing.push(miss.0),
                Err(lost) => return Err(lost.into()),
            }
        }
        if missing.is_empty() { Ok(Outcome::FilesAt { files }) } else { Err(Blocked::Load(missing)) }
    }

    // -------------------------------------------------------------------- holding

    /// A listing's question about this island, and not about the tree.
    pub(crate) fn request(&mut self, ctx: &mut Ctx, call: PendingRequest) -> Option<PendingRequest> {
        let id = |cut| (call.session(), cut);
        match call.request.op {
            ClientOp::Hold { cut, again } => self.begin_hold(ctx, id(cut), again, call),
            ClientOp::Cut { cut } => self.make_cut(ctx, id(cut), &call),
            ClientOp::EndCut { cut } => {
                self.end_cut(ctx, id(cut));
                ctx.answer(&call, 0, done());
            }
            _ => return Some(call),
        }
        None
    }

    fn begin_hold(&mut self, ctx: &mut Ctx, id: CutId, again: bool, call: PendingRequest) {
        let now = ctx.now.ms;
        self.end_late_hold(ctx);
        let holds = self.holds.len();
        let known = self.holds.get_mut(&id);
        let may = if again {
            known.as_ref().is_some_and(|hold| hold.quiet_at.is_some())
        } else {
            let room = known.is_some() || holds < atoll_state::CUTS_MAX;
            room && (self.is_quiescing() || now >= self.rest_until_ms)
        };
        if !may {
            return ctx.tell_held(&call, false);
        }
        let link = call.link;
        let new = || Hold { link, quiet_at: None, firm: false, broken: false };
        self.holds.entry(id).or_insert_with(new).link = link;
        if self.until_ms.is_none() {
            self.until_ms = Some(now + HOLD_MS);
        }
        self.waiting.push(call);
        ctx.next(Next::ShipNothing);
    }

    /// Answers listings that wait until this island is quiet, if it is.
    pub(crate) fn tell_when_quiescent(&mut self, ctx: &mut Ctx, is_quiescent: impl FnOnce(&Ctx) -> bool) {
        if self.waiting.is_empty() || !is_quiescent(ctx) {
            return;
        }
        let mine = ctx.state.clocks().get(ctx.config.id);
        for call in std::mem::take(&mut self.waiting) {
            let ClientOp::Hold { cut, again } = call.request.op else { unreachable!("only holds wait") };
            let Some(hold) = self.holds.get_mut(&(call.session(), cut)) else {
                ctx.tell_held(&call, false);
                continue;
            };
            let holds = if again {
                // What it has told others of in between, those may not have applied yet.
                hold.firm = hold.quiet_at == Some(mine);
                hold.firm
            } else {
                hold.quiet_at = Some(mine);
                true
            };
            ctx.tell_held(&call, holds);
        }
    }
}

impl Ctx {
    fn tell_held(&mut self, call: &PendingRequest, quiet: bool) {
        let incarnation = self.state.meta().incarnation;
        let keeps = if quiet { self.keeps() } else { Vec::new() };
        self.answer(call, self.state.seq(), Outcome::Held { quiet, incarnation, keeps });
    }

    /// For which lives of others something is kept that they may have lost: they are not as they were until
    /// they have it again.
    fn keeps(&self) -> Vec<(IslandId, u32)> {
        let mut keeps: BTreeMap<IslandId, u32> = BTreeMap::new();
        let mut keep = |island, stamp: Stamp| {
            let least = keeps.entry(island).or_insert(u32::MAX);
            *least = stamp.incarnation().min(*least);
        };
        for txn in self.state.txn_ids() {
            let Some(row) = self.state.txn(txn) else { continue };
            let mine = txn.coordinator == self.config.id;
            keep(row.partner, if mine { row.stamps.prepared } else { row.stamps.committed });
        }
        for island in self.config.others() {
            if let Some((first, _)) = self.state.inbox(island).next() {
                keep(island, first);
            }
        }
        keeps.into_iter().collect()
    }

    fn file_at(&self, id: CutId, ino: Ino) -> Result<Option<FileAt>, CutRowError> {
        let row = self.state.inode_at(id, ino)?;
        Ok(row.map(|row| FileAt { attr: row.attr, target: row.target.clone() }))
    }

    fn listed(&self, id: CutId, name: Name, entry: &Entry) -> Result<ListedName, CutRowError> {
        let here = entry.kind != Kind::Directory && entry.home == self.config.id;
        let file = if here { self.file_at(id, entry.ino)? } else { None };
        let key = entry.stub.as_ref().map(|stub| stub.key);
        Ok(ListedName { name, ino: entry.ino, kind: entry.kind, home: entry.home, key, file })
    }
}

/// Whether a request may change rows that a listing shows.
const fn changes_listing(op: &ClientOp) -> bool {
    match op {
        ClientOp::Rename { .. } | ClientOp::Link { .. } => true,
        // A lock is not in it.
        ClientOp::Fs { op: Op::Accessed { .. } } => true,
        ClientOp::Fs { op } => op.changes() && !matches!(op, Op::SetLock { .. }),
        _ => false,
    }
}
