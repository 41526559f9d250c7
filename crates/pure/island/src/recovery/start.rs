//! Starting: a new incarnation, the root, and the messages to and from the other islands before the first
//! client is served (`DESIGN` 5; Archipelago 9).

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Key, Stamp};
use atoll_proto::{
    Dir, DirPlace, EntryRef, LifeEnd, OwnedDir, PeerMessage, PeerOp, PlaceVersion, RowChange, Session,
    StaticAttrs, TxnState,
};

use crate::ctx::Ctx;
use crate::ctx::RECOVERY_SESSION;
use crate::ctx::decision::Decision;
use crate::ctx::request::Next;
use crate::look::Missing;
use crate::recovery::Recovery;

/// Milliseconds that a starting island compares before it serves requests that do not depend on the
/// comparison.
pub(crate) const COMPARE_MS: u64 = 10_000;

/// How an island's last life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousEnd {
    /// It was stopped in order: nothing is missing.
    Orderly,
    /// Its process died: everything that it had told others is in its log. Messages to it may be missing, and
    /// are told again.
    Death,
    /// The power may have failed: unsynced records may be missing, and others may rely on them.
    PowerCut,
    /// Another copy led, and is gone. This one had everything that it had told others, and goes on with the rows that are
    /// in memory. Records up to `synced` survive a power cut.
    Promoted {
        /// See above.
        synced: u64,
    },
}

impl From<PreviousEnd> for LifeEnd {
    fn from(ended: PreviousEnd) -> Self {
        match ended {
            PreviousEnd::Orderly | PreviousEnd::Death => Self::Whole,
            PreviousEnd::PowerCut => Self::PowerCut,
            PreviousEnd::Promoted { .. } => Self::Promoted,
        }
    }
}

/// Whether an island lets requests in (Archipelago 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Reading its log and exchanging journals with the others; requests wait.
    #[default]
    Hidden,
    /// Everything.
    Normal,
}

/// See [`Recovery::replaced`].
#[derive(Debug, Clone)]
pub(crate) struct Superseded {
    /// When it was, or when it was done again if that was in an earlier life.
    pub(crate) stamp: Stamp,
    pub(crate) at: EntryRef,
    /// The file that had this name before.
    pub(crate) file: Ino,
    /// The two have changed places: it has another name since.
    pub(crate) swaps: bool,
}

/// How much of this island's lost records another island has told. Silent -> Told -> Redone; when that is
/// synced: removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witness {
    /// It has not told all.
    Silent,
    /// It has; that may wait to be done again.
    Told,
    /// It is done again by the record at this position.
    Redone { seq: u64 },
}

impl Recovery {
    /// The first records after a start. Each start takes an incarnation, also after an orderly end. Some
    /// stamps are never recorded, such as those of aborted transactions, and must not be given again.
    pub(crate) fn begin(&mut self, ctx: &mut Ctx, ended: PreviousEnd) {
        let first = ctx.state.meta().incarnation == 0;
        let mut decision = Decision::new();
        let keeps = match ended {
            PreviousEnd::Orderly => planted(Bug::OrderlyEndKeepsIncarnation),
            PreviousEnd::Death | PreviousEnd::PowerCut => planted(Bug::IncarnationKept),
            PreviousEnd::Promoted { .. } => planted(Bug::IncarnationOfLast),
        };
        if first || !keeps {
            let incarnation = ctx.config.epoch.unwrap_or(ctx.state.meta().incarnation + 1);
            decision.push(RowChange::Incarnation { incarnation, ended: ended.into() });
        }
        if matches!(ended, PreviousEnd::Death | PreviousEnd::PowerCut) {
            self.must_move_on = !first && ctx.config.islands.len() > 1;
            let is_marked = ctx.state.session(RECOVERY_SESSION).is_some();
            if self.must_move_on && ended == PreviousEnd::PowerCut && !is_marked {
                let (mount, local, ending, results, held) = (false, None, false, Vec::new(), Vec::new());
                let row =
                    Session { mount, local, ending, results, acked: 0, held, scope: None, keeps: false };
                decision.session(RECOVERY_SESSION, Some(row));
            }
        }
        if first {
            ctx.make_root(&mut decision);
        }
        if !decision.record.changes.is_empty() {
            ctx.decide(decision);
            ctx.want_sync();
        }
        // What is posted first in this life follows what the last one has posted: some may not have that yet.
        let me = ctx.config.id;
        ctx.posts.resume(ctx.state.clocks().get(me));
        // Who has applied the last of it is not known any more: it is for all, and what is posted next says so.
        self.must_move_on |= ctx.state.public_clocks().get(me) < ctx.state.clocks().get(me);
        ctx.reserve_ids();
        self.since_ms = ctx.now.ms;
        self.waiting = ctx.config.others().collect();
        if ctx.state.session(RECOVERY_SESSION).is_some() {
            self.witnesses = ctx.config.others().map(|island| (island, Witness::Silent)).collect();
        }
        for txn in ctx.state.txn_ids().collect::<Vec<_>>() {
            let Some(row) = ctx.state.txn(txn) else { continue };
            self.redone.insert(txn);
            if row.state == TxnState::Committed {
                let (prepared, work) = (row.stamps.prepared, row.part.work.clone());
                self.remember_replaced(ctx, prepared, txn, &work);
            }
        }
    }

    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        if self.phase == Phase::Hidden && ctx.now.ms >= self.since_ms + ctx.config.hello_ms {
            // Who has not answered by now is away; what is in doubt with it stays locked.
            self.waiting.clear();
            ctx.next(Next::Redo);
        }
        if self.phase == Phase::Hidden && ctx.now.ms >= self.since_ms + ctx.config.hello_ms + COMPARE_MS {
            // It serves what does not depend on what it has missed.
            ctx.next(Next::Serve);
        }
        if !self.redo.is_empty() {
            ctx.next(Next::RedoAgain);
        }
        self.ask_no_witness(ctx);
        if !self.witnesses.is_empty() {
            self.tell_kept(ctx);
        }
    }

    /// All islands have told what they know: no lost change comes back any more.
    fn ask_no_witness(&self, ctx: &mut Ctx) {
        if self.silent().next().is_none()
            && self.phase == Phase::Normal
            && self.redo.is_empty()
            && ctx.is_attached(RECOVERY_SESSION)
        {
            ctx.next(Next::AllTold);
        }
    }

    /// It survives that all have told.
    pub(crate) fn witness_ended(&mut self, ctx: &mut Ctx) {
        self.adopted.clear();
        for txn in std::mem::take(&mut self.replaced).into_keys() {
            if let Some(row) = ctx.state.txn(txn) {
                let (partner, committed) = (row.partner, row.stamps.committed);
                ctx.next(Next::Confirm { partner, txn, committed });
            }
        }
    }

    /// Has a message wait until others have told the lost changes. False if too many wait.
    pub(crate) fn defer(&mut self, message: &PeerMessage) -> bool {
        self.journals.push(message.clone()).is_ok()
    }

    /// Panics if something that can be done again would be passed over.
    pub(crate) fn check(&self) {
        self.redo.check();
    }

    /// Panics if something is remembered for others to tell that nobody tells any more.
    pub(crate) fn check_whole(&self) {
        assert!(self.adopted.is_empty(), "directories are remembered as new, and nothing is missing");
        assert!(self.replaced.is_empty(), "files are remembered as replaced, and nothing is missing");
        assert!(self.silent().next().is_none(), "others are to tell what was lost, and no session says so");
    }

    /// Some island has not answered `Hello`, and was not given up.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn heard(&mut self, ctx: &mut Ctx, island: IslandId) {
        if self.waiting.remove(&island) {
            ctx.next(Next::Redo);
        }
    }

    /// An island has told all that it knows of this one's lost records.
    pub(crate) fn told_all(&mut self, ctx: &mut Ctx, island: IslandId) {
        if let Some(witness) = self.witnesses.get_mut(&island).filter(|of| **of == Witness::Silent) {
            *witness = Witness::Told;
        }
        ctx.next(Next::CompareSkipped);
    }

    /// Whether an island has told what it knows of this one since an unclean end.
    pub(crate) fn told_of_lost(&self, island: IslandId) -> bool {
        self.witnesses.get(&island) != Some(&Witness::Silent)
    }

    /// After an unclean end some island has not told yet what it knows of this one.
    pub(crate) fn has_witnesses(&self) -> bool {
        self.silent().next().is_some() && !planted(Bug::ServesAtOnce)
    }

    /// Islands that have not told yet what they know of this one.
    pub(super) fn silent(&self) -> impl Iterator<Item = IslandId> {
        self.witnesses.iter().filter(|(_, of)| **of == Witness::Silent).map(|(island, _)| *island)
    }

    /// Whether an island need not bring back any more what is said to be kept: as long as it has not told what it
    /// knows of what was lost, or that is not synced here, a later entry that is kept says nothing of that.
    pub(crate) fn may_tell_kept(&self, island: IslandId) -> bool {
        !self.witnesses.contains_key(&island)
    }

    /// Islands that have told everything that they knew of the lost records, which is synced here: they may
    /// forget it.
    pub(crate) fn newly_kept(&mut self, ctx: &mut Ctx) -> Vec<IslandId> {
        let (seq, is_done) = (ctx.state.seq(), !self.redo.has_entries());
        for witness in self.witnesses.values_mut().filter(|of| **of == Witness::Told && is_done) {
            *witness = Witness::Redone { seq };
        }
        let is_synced =
            |of: &Witness| matches!(of, Witness::Redone { seq } if ctx.durability.is_synced(*seq));
        let kept = self.witnesses.iter().filter(|(_, of)| is_synced(of)).map(|(island, _)| *island);
        let kept: Vec<IslandId> = kept.collect();
        self.witnesses.retain(|island, _| !kept.contains(island));
        if self.witnesses.values().any(|of| matches!(of, Witness::Redone { .. })) {
            ctx.want_sync();
        }
        kept
    }

    /// A directory is made.
    pub(crate) fn note_adopted(&mut self, ino: Ino) {
        if self.is_incomplete() {
            self.adopted.insert(ino);
        }
    }

    /// No island is waited for any more: the lost changes are put in order, and then requests are served.
    pub(crate) fn is_waiting(&self) -> bool {
        self.phase == Phase::Hidden && !self.waiting.is_empty() && !planted(Bug::ServesAtOnce)
    }

    /// Tells all islands how much of this island's journal they need not bring back any more.
    pub(crate) fn tell_kept(&mut self, ctx: &mut Ctx) {
        let before = ctx.posts.durable_to();
        let durability = &ctx.durability;
        ctx.posts.synced(|seq| durability.is_synced(seq));
        let upto = ctx.posts.durable_to();
        let newly = self.newly_kept(ctx);
        tell_durable(ctx, |ctx, island| {
            // Who has not got the last entries is told with these.
            let is_news = upto > before && !ctx.posts.is_batched(island);
            newly.contains(&island) || (is_news && self.may_tell_kept(island))
        });
    }

    /// Tells all who were sent entries that were safe already, or may have been.
    pub(crate) fn tell_untold(&self, ctx: &mut Ctx) {
        if ctx.posts.take_untold() {
            tell_durable(ctx, |_, island| self.may_tell_kept(island));
        }
    }
}

/// Tells these islands, as far as they can be reached, how far this island's journal is safe.
fn tell_durable(ctx: &mut Ctx, is_told: impl Fn(&Ctx, IslandId) -> bool) {
    let upto = ctx.posts.durable_to();
    let told = ctx.config.others().filter(|i| ctx.peers.is_reachable(*i) && is_told(ctx, *i));
    for island in told.collect::<Vec<_>>() {
        ctx.send(0, island, PeerOp::JournalDurable { upto });
    }
}

impl Ctx {
    /// Puts the root into the skeleton, as in every island. The table says which island owns it.
    fn make_root(&mut self, decision: &mut Decision) {
        let now = self.time();
        let owner = self.config.owner(Key(0)) == self.config.id;
        let version = PlaceVersion::default();
        let owned = OwnedDir::empty(now);
        let root = Dir {
            key: Key(0),
            birth_bytes: 0,
            place: DirPlace { version, parent: Ino::ROOT, name: None },
            fixed: StaticAttrs {
                version: Stamp::default(),
                mode: self.config.root_mode,
                uid: self.config.root_uid,
                gid: self.config.root_gid,
            },
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 0,
            owned: owner.then_some(owned),
            beside: None,
        };
        decision.dir(Ino::ROOT, root);
    }
}
