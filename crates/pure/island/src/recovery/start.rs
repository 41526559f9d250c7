//! Starting: a new incarnation, the root, and what is exchanged with the others before the first
//! client is served (`DESIGN` 5; Archipelago 9). Also the door for all messages of islands.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Key, Stamp};
use atoll_posix::Errno;
use atoll_proto::{
    Change, Dir, Owned, Peer, PeerMessage, Place, PlaceVersion, Session, Spot, Static, TxnState,
};

use crate::ctx::Ctx;
use crate::ctx::Life;
use crate::ctx::WITNESS;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::island::Island;
use crate::look::Missing;
use crate::recovery::Recovery;

/// Milliseconds that a starting island waits for the others' answers.
pub(crate) const HELLO_MS: u64 = 2_000;
/// Milliseconds that a starting island compares before it serves what does not depend on it.
pub(crate) const COMPARE_MS: u64 = 10_000;

/// How an island's last life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped in order: nothing is missing.
    Orderly,
    /// Its process died: what it had told anybody is in its log. What it was told may be missing, and is told again.
    Death,
    /// The power may have failed: what was not synced may be missing, and others may have built on it.
    PowerCut,
}

/// What an island lets in (Archipelago 9).
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
pub(crate) struct Replaced {
    /// When it was, or when it was done again if that was in an earlier life.
    pub(crate) stamp: Stamp,
    pub(crate) at: Spot,
    /// The file that had this name before.
    pub(crate) file: Ino,
    /// The two have changed places: it has another name since.
    pub(crate) swaps: bool,
}

/// How far an island is with telling what it knows of this one's lost records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It has not told all.
    No,
    /// It has; that may wait to be done again.
    Yes,
    /// It is done again by the record at this position.
    Done(u64),
}

impl Recovery {
    /// Panics if something is remembered for others to tell that nobody tells any more.
    pub(crate) fn check_whole(&self) {
        assert!(self.adopted.is_empty(), "directories are remembered as new, and nothing is missing");
        assert!(self.replaced.is_empty(), "files are remembered as replaced, and nothing is missing");
        assert!(self.unkept.is_empty() || self.witnesses.is_empty(), "others are to tell what was lost");
    }

    /// Some island has not answered `Hello`, and was not given up.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn heard(&mut self, ctx: &mut Ctx, island: IslandId) {
        if self.waiting.remove(&island) {
            ctx.next(Next::Redo);
        }
    }

    /// An island has told all that it knows of what this one has lost.
    pub(crate) fn told_all(&mut self, ctx: &mut Ctx, island: IslandId) {
        self.witnesses.remove(&island);
        if let Some(told) = self.unkept.get_mut(&island).filter(|told| **told == Told::No) {
            *told = Told::Yes;
        }
        ctx.next(Next::CompareSkipped);
    }

    /// Whether an island has told what it knows of this one since an unclean end.
    pub(crate) fn told_of_lost(&self, island: IslandId) -> bool {
        !self.witnesses.contains(&island)
    }

    /// After an unclean end some island has not told yet what it knows of this one.
    pub(crate) fn has_witnesses(&self) -> bool {
        !self.witnesses.is_empty() && !planted(Bug::ServesAtOnce)
    }

    /// Whether an island need not bring back any more what is said to be kept: as long as it has not told what it
    /// knows of what was lost, or that is not synced here, a later entry that is kept says nothing of that.
    pub(crate) fn may_tell_kept(&self, island: IslandId) -> bool {
        !self.unkept.contains_key(&island)
    }

    /// Whoever has told all that it knew of what was lost, which is synced here: these may forget it.
    pub(crate) fn newly_kept(&mut self, ctx: &mut Ctx) -> Vec<IslandId> {
        let (seq, is_done) = (ctx.state.seq(), self.is_done_again());
        let is_synced = |seq: u64| ctx.durability.is_synced(seq);
        for told in self.unkept.values_mut().filter(|told| **told == Told::Yes && is_done) {
            *told = Told::Done(seq);
        }
        if self.unkept.values().any(|told| matches!(told, Told::Done(seq) if !is_synced(*seq))) {
            ctx.want_sync();
        }
        let is_kept = |told: &Told| matches!(told, Told::Done(seq) if ctx.durability.is_synced(*seq));
        let kept = self.unkept.iter().filter(|(_, told)| is_kept(told)).map(|(island, _)| *island);
        let kept: Vec<IslandId> = kept.collect();
        self.unkept.retain(|island, _| !kept.contains(island));
        kept
    }

    /// All entries of this island's journal that were lost, and were told, are done again.
    fn is_done_again(&self) -> bool {
        self.lost.is_empty() && self.places.is_empty()
    }

    /// Something that was lost, and was told, is not done again.
    pub(super) fn is_lost_waiting(&self) -> bool {
        let Recovery { lost, places, unfinished, .. } = &self;
        !lost.is_empty() || !places.is_empty() || !unfinished.is_empty()
    }

    /// A directory is made.
    pub(crate) fn note_adopted(&mut self, ino: Ino) {
        if self.is_incomplete() {
            self.adopted.insert(ino);
        }
    }

    /// Nobody is waited for: what was lost is put in order, and then requests are served.
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
        for island in ctx.config.others().filter(|i| ctx.peers.is_reachable(*i)).collect::<Vec<_>>() {
            if newly.contains(&island) || (upto > before && self.may_tell_kept(island)) {
                ctx.send(0, island, Peer::Kept { upto });
            }
        }
    }
}

impl Island {
    /// The first records of a life. Each has an incarnation of its own, also after an orderly end: stamps are given
    /// to what is never recorded, such as transactions that are aborted, and must not be given again.
    pub(crate) fn begin(&mut self, ended: Ended) {
        let first = self.ctx.state.meta().incarnation == 0;
        let mut decision = Decision::new();
        let keeps = match ended {
            Ended::Orderly => planted(Bug::OrderlyEndKeepsIncarnation),
            Ended::Death | Ended::PowerCut => planted(Bug::IncarnationKept),
        };
        if first || !keeps {
            let incarnation = self.ctx.state.meta().incarnation + 1;
            decision.push(Change::Incarnation { incarnation, power: ended == Ended::PowerCut });
        }
        if ended != Ended::Orderly {
            self.recovery.must_move_on = !first && self.ctx.config.islands.len() > 1;
            let is_marked = self.ctx.state.session(WITNESS).is_some();
            if self.recovery.must_move_on && ended == Ended::PowerCut && !is_marked {
                let (results, held) = (Vec::new(), Vec::new());
                let row = Session { mount: false, local: false, results, acked: 0, held };
                decision.session(WITNESS, Some(row));
            }
        }
        if first {
            self.ctx.make_root(&mut decision);
        }
        if !decision.record.changes.is_empty() {
            self.ctx.decide(decision);
            self.ctx.want_sync();
        }
        // What is posted first in this life follows what the last one has posted: some may not have that yet.
        self.ctx.posts.resume(self.ctx.state.clocks().get(self.ctx.config.id));
        self.ctx.reserve_ids();
        self.recovery.since_ms = self.ctx.now.ms;
        self.recovery.waiting = self.ctx.config.others().collect();
        if self.ctx.state.session(WITNESS).is_some() {
            self.recovery.witnesses = self.ctx.config.others().collect();
            self.recovery.unkept = self.ctx.config.others().map(|island| (island, Told::No)).collect();
        }
        for txn in self.ctx.state.txn_ids().collect::<Vec<_>>() {
            let Some(row) = self.ctx.state.txn(txn) else { continue };
            let (state, prepared, work) = (row.state, row.moments.prepared, row.part.work.clone());
            self.recovery.redone.insert(txn);
            match state {
                TxnState::Prepared => self.txns.lock_again(&self.ctx, txn, &work),
                TxnState::Committed => {
                    self.migration.remember_leaving(&self.ctx, txn, &work);
                    self.recovery.remember_replaced(&self.ctx, prepared, txn, &work);
                }
            }
        }
        self.ctx.posts.durable_after(self.ctx.state.seq(), self.ctx.state.clocks().get(self.ctx.config.id));
        self.links.resume(&self.ctx);
        self.ctx.begin_skeleton();
        self.ctx.next(Next::Redo);
    }

    pub(crate) fn peer_reachable(&mut self, island: IslandId, up: bool) {
        if island == self.ctx.config.id {
            return;
        }
        self.journal.set_reachable(&mut self.ctx, island, up);
        if !up {
            self.links.forget_told(island);
            self.abort_with(island);
            self.anti_entropy.forget_skipped(island);
            self.anti_entropy.compare_without(&mut self.ctx, island);
            self.migration.lost_link(island);
            self.recovery.heard(&mut self.ctx, island);
            self.ctx.next(Next::CompareSkipped);
            return;
        }
        // Whichever side was away: both ask and both tell.
        self.ctx.send(self.ctx.state.seq(), island, Peer::Hello);
        self.tell_all(island);
    }

    /// Everything that an island may have missed or lost, and then that this was all. Over a link that
    /// is not up yet the beginning could be dropped and the end arrive: then it is told when it is.
    fn tell_all(&mut self, island: IslandId) {
        if !self.ctx.peers.is_reachable(island) {
            return;
        }
        self.retell(island, |_| true);
        self.ctx.resend(island, Stamp::default());
        self.ctx.return_journal(island);
        self.links.compare_links(&mut self.ctx, island);
        if self.recovery.may_tell_kept(island) {
            self.ctx.send(self.ctx.state.seq(), island, Peer::Kept { upto: self.ctx.posts.durable_to() });
        }
        // Behind all that waits for the log to be synced.
        self.ctx.send_behind_synced(island, Peer::HelloDone);
    }

    /// A message of another island.
    pub(crate) fn peer(&mut self, message: PeerMessage) {
        self.ctx.state.look_away();
        match self.run_peer(&message) {
            Ok(()) => {}
            Err(Blocked::Load(loads)) => self.ctx.load(loads, Next::Peer(message)),
            Err(Blocked::Txn(txn)) => {
                // Held by a transaction that ends by itself; the sender repeats what matters.
                debug_assert!(self.ctx.state.txn(txn).is_some() || self.txns.is_begun(txn));
            }
            Err(_) => {}
        }
    }

    fn run_peer(&mut self, message: &PeerMessage) -> Result<(), Blocked> {
        let from = message.from;
        if from == self.ctx.config.id || !self.ctx.config.islands.contains(&from) {
            return Ok(());
        }
        match self.ctx.peers.speaks(from, message.incarnation) {
            // It has waited here meanwhile. What its sender has lost was told before this: nobody would bring it back.
            Life::Earlier => return Ok(()),
            // What its last life had said may have come late, and be lost there since.
            Life::New => self.links.forget_told(from),
            Life::Same => {}
        }
        match &message.peer {
            Peer::Hello => {
                self.tell_all(from);
                Ok(())
            }
            Peer::HelloDone => {
                self.recovery.heard(&mut self.ctx, from);
                self.ctx.next(Next::ToldAll(from));
                Ok(())
            }
            // It would build on what may be missing yet.
            Peer::Prepare { .. } | Peer::Journal { .. } | Peer::Compare { .. }
                if self.recovery.is_waiting() =>
            {
                if let Err(message) = self.recovery.journals.push(message.clone()) {
                    self.turn_away(&message);
                }
                Ok(())
            }
            Peer::Prepare { txn, origin, work } => self.on_prepare(message, *txn, *origin, work),
            Peer::Voted { txn, vote } => self.on_voted(message, *txn, vote),
            Peer::Decided { txn, moments, part } => self.on_decided(message, *txn, *moments, part.as_deref()),
            Peer::Stable { txns } => {
                self.on_stable(from, txns);
                Ok(())
            }
            Peer::Ask { txn } => {
                self.on_ask(from, *txn);
                Ok(())
            }
            Peer::Journal { after, entries } => self.on_journal(from, *after, entries),
            Peer::Applied { upto, synced } => {
                self.journal.on_applied(&mut self.ctx, from, *upto, *synced);
                Ok(())
            }
            Peer::Resend { after } => {
                self.ctx.resend(from, *after);
                Ok(())
            }
            Peer::Carried { txn, moments, part } => {
                self.on_carried(from, *txn, *moments, part);
                Ok(())
            }
            Peer::Returned { entries } => {
                self.recovery.on_returned(&mut self.ctx, entries);
                Ok(())
            }
            Peer::Happened { txn } => {
                self.txns.on_happened(&mut self.ctx, from, *txn);
                Ok(())
            }
            Peer::Skipped { upto } => {
                self.on_skipped(from, *upto);
                Ok(())
            }
            Peer::Compare { round, missed, asks } => self.on_compare(from, *round, missed, asks),
            Peer::Compared { round, told } => {
                self.on_compared(from, *round, told);
                Ok(())
            }
            Peer::WantChain { dir } => self.ctx.on_want_chain(message, *dir),
            Peer::ChainOf { dir, chain } => {
                self.journal.on_chain_of(&mut self.ctx, *dir, chain.as_ref());
                Ok(())
            }
            Peer::Pull { txn, offset } => self.on_pull(message, *txn, *offset),
            Peer::Chunk { txn, offset, bytes } => self.on_chunk(from, *txn, *offset, bytes),
            Peer::Links { before, links, after } => {
                self.ctx.on_links(from, *before, links, *after);
                Ok(())
            }
            Peer::LinksHeld { digest } => {
                self.links.on_links_held(&mut self.ctx, from, *digest);
                Ok(())
            }
            Peer::WantLinks { after } => {
                self.ctx.on_want_links(from, *after);
                Ok(())
            }
            Peer::AllLinks { after, upto, links } => {
                self.ctx.on_all_links(from, *after, *upto, links);
                Ok(())
            }
            Peer::LinkUsed { link, at } => {
                let me = self.ctx.config.id;
                self.links.link_used(&mut self.ctx, at.dir, &at.name, *link, me);
                Ok(())
            }
            Peer::Leads { link, path } => self.ctx.on_leads(from, *link, path),
            Peer::LeadsTo { link, led } => self.links.on_leads_to(&mut self.ctx, from, *link, led),
            Peer::Kept { upto } => {
                self.journal.on_kept(&mut self.ctx, from, *upto);
                Ok(())
            }
        }
    }

    /// All have told what they know: nothing that was lost comes back any more.
    fn ask_no_witness(&mut self) {
        if self.recovery.witnesses.is_empty()
            && self.recovery.phase == Phase::Normal
            && !self.recovery.is_lost_waiting()
            && self.ctx.is_attached(WITNESS)
        {
            self.end_session(WITNESS, None);
        }
    }

    /// It survives that all have told.
    pub(crate) fn witness_ended(&mut self) {
        self.recovery.adopted.clear();
        for txn in std::mem::take(&mut self.recovery.replaced).into_keys() {
            if let Some(row) = self.ctx.state.txn(txn) {
                self.confirm(row.partner, txn, row.moments.committed);
            }
        }
    }

    pub(crate) fn tick_recovery(&mut self) {
        if self.recovery.phase == Phase::Hidden && self.ctx.now.ms >= self.recovery.since_ms + HELLO_MS {
            // Who has not answered by now is away; what is in doubt with it stays locked.
            self.recovery.waiting.clear();
            self.ctx.next(Next::Redo);
        }
        if self.recovery.phase == Phase::Hidden
            && self.ctx.now.ms >= self.recovery.since_ms + HELLO_MS + COMPARE_MS
        {
            // It serves what does not depend on what it has missed.
            self.ctx.next(Next::Serve);
        }
        if self.recovery.is_lost_waiting() {
            self.ctx.next(Next::RedoAgain);
        }
        self.ask_no_witness();
        if !self.recovery.unkept.is_empty() {
            self.recovery.tell_kept(&mut self.ctx);
        }
    }
}

impl Ctx {
    /// Every island has the root in its skeleton; the table says who owns it.
    fn make_root(&mut self, decision: &mut Decision) {
        let now = self.time();
        let owner = self.config.owner(Key(0)) == self.config.id;
        let version = PlaceVersion::default();
        let owned = Owned::empty(now);
        let root = Dir {
            key: Key(0),
            birth_bytes: 0,
            place: Place { version, parent: Ino::ROOT, name: None },
            fixed: Static {
                version: Stamp::default(),
                mode: self.config.root_mode,
                uid: self.config.root_uid,
                gid: self.config.root_gid,
            },
            has_xattrs: false,
            has_acl: false,
            below: 0,
            homes: 0,
            owned: owner.then_some(owned),
        };
        decision.dir(Ino::ROOT, root);
    }

    /// How a request ends about what may be missing here, until these have told. Who is away may be so for ever.
    pub(crate) fn untold(&self, by: impl IntoIterator<Item = IslandId>) -> Blocked {
        let hears = by.into_iter().all(|island| island == self.config.id || self.peers.is_reachable(island));
        if hears { Blocked::Unheard } else { Errno::EIO.into() }
    }
}
