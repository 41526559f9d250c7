//! Redoes changes that a power cut took out of this island's log and that other islands have carried out: in
//! the order of this island's own clock, before it serves (`DESIGN` 5).
//!
//! A log loses its end. So a change that is redone meets exactly the state in which it was made, except for
//! changes in which no other island took part: those are gone, and a file that they removed may have a name
//! that is needed.

use atoll_core::map::IdSet;
use atoll_core::{Ino, IslandId, Stamp, TxnId};
use atoll_proto::{
    Ancestor, Chain, DirPlace, Entry, EntryRef, JournalEntry, ParticipantWork, PeerOp, PlaceVersion,
    RenameSpec, RequestId, RequestResult, RowChange, Txn, TxnPart, TxnStamps, TxnState, Xattrs,
};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::lost::{LostPart, LostRecord};
use crate::ctx::request::{Blocked, Next};
use crate::locks::names::NameLocks;
use crate::look::Missing;
use crate::recovery::Recovery;
use crate::recovery::places::is_held_for;
use crate::recovery::start::Superseded;

/// Whether a record that was lost is done again.
enum Redone {
    /// It is, and nothing waited for it.
    All,
    /// It is, and others may have waited for it.
    Unblocks,
    /// It waits for something.
    No,
}

impl Recovery {
    /// Redoes lost changes. A starting island serves afterwards.
    pub(crate) fn redo_lost(&mut self, ctx: &mut Ctx, locks: &NameLocks) {
        if self.is_waiting() {
            return;
        }
        while let Some((stamp, lost)) = self.redo.pop() {
            ctx.state.begin_reads();
            match (self.redo_one(ctx, locks, stamp, &lost), lost) {
                (Ok(Redone::All), _) => {}
                (Ok(Redone::Unblocks), _) => self.redo.unblock(),
                // What needs a row that is damaged is tried again, like all else that cannot be done yet.
                (Err(Blocked::Load(loads)), lost) if !ctx.loads.are_damaged(&loads) => {
                    self.redo.push(stamp, lost);
                    return ctx.load(loads, Next::Redo);
                }
                // It is not confirmed, so it is told again.
                (Err(_), LostRecord::Commit { .. }) => {}
                // Something that it needs is in doubt: it is tried again, and nobody may forget it.
                (Ok(Redone::No) | Err(_), lost) => self.redo.block(stamp, lost),
            }
        }
        // Also of an island that serves meanwhile, since rows were read for too long.
        for journal in self.journals.take() {
            ctx.next(Next::Peer(journal));
        }
        ctx.next(Next::MoveOn);
        ctx.next(Next::CompareSkipped);
    }

    fn redo_one(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        stamp: Stamp,
        lost: &LostRecord,
    ) -> Result<Redone, Blocked> {
        match lost {
            LostRecord::Commit { from, txn, prepared, part } => {
                self.redo_commit(ctx, locks, *from, *txn, *prepared, part)?;
            }
            LostRecord::Part(lost) => {
                let is_done = self.redo_part(ctx, locks, stamp, lost)?;
                return Ok(if is_done { Redone::Unblocks } else { Redone::No });
            }
            LostRecord::Entry(entry @ JournalEntry::Place { place, .. }) => {
                let is_held = is_held_for(locks, entry);
                if is_held || !self.place_fits(ctx, entry)? && self.is_preceded(ctx, stamp, place.parent) {
                    return Ok(Redone::No);
                }
                self.redo_place(ctx, locks, stamp, entry)?;
                return Ok(Redone::Unblocks);
            }
            LostRecord::Entry(JournalEntry::StaticAttrs { ino, place, fixed, xattrs }) => {
                self.redo_fixed(ctx, locks, stamp, *ino, place, fixed, xattrs)?;
            }
            LostRecord::Entry(JournalEntry::ClockBump) => ctx.pass(stamp)?,
        }
        Ok(Redone::All)
    }

    // -------------------------------------------------------------- transactions

    fn redo_commit(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        from: IslandId,
        txn: TxnId,
        prepared: Stamp,
        part: &TxnPart,
    ) -> Result<(), Blocked> {
        if ctx.state.txn(txn).is_some() {
            return Ok(());
        }
        let mut decision = Decision::new();
        match &part.work {
            ParticipantWork::Adopt { dir, time, chain } => {
                let mut seen = IdSet::default();
                for above in chain.iter().chain([dir]) {
                    ctx.need_ancestor(above, &mut seen)?;
                    may_name(ctx, locks, above)?;
                }
                ctx.suspect_new(&mut decision, chain);
                for above in chain {
                    ctx.add_ancestor(&mut decision, above, *time);
                    ctx.name_ancestor(&mut decision, above, *time);
                }
                ctx.name_ancestor(&mut decision, dir, *time);
                ctx.remember_lost(&mut decision, part.request, RequestResult::Ino { ino: dir.ino });
            }
            ParticipantWork::Seal { ino, parent, name } => {
                let place =
                    DirPlace { version: PlaceVersion::default(), parent: *parent, name: Some(name.clone()) };
                ctx.child_must_be_loaded(&place, *ino)?;
                // It may have got another name since.
                let is_it = ctx.state.entry(*parent, name)?.is_some_and(|entry| entry.ino == *ino);
                let name =
                    if is_it { Some(name.clone()) } else { ctx.child_by_ino(*parent, *ino).map(|c| c.0) };
                let row = ctx.state.dir(*parent)?.filter(|row| row.owned.is_some()).cloned();
                if let (Some(name), Some(row)) = (name, row) {
                    let now = ctx.time();
                    decision.entry(*parent, &name, None);
                    decision.names_changed(*parent, &row, -1, -1, (now, now));
                }
                ctx.remember_lost(&mut decision, part.request, RequestResult::Done);
            }
            // Nobody is told of others before they are synced: they cannot be lost.
            _ => return Ok(()),
        }
        let stamps = ctx.committed_txn(&mut decision, txn, from, prepared, part);
        let seq = ctx.decide(decision);
        ctx.next(Next::Confirm { partner: from, txn, committed: stamps.committed });
        ctx.send(seq, from, PeerOp::Decided { txn, stamps: Some(stamps), part: None });
        Ok(())
    }

    /// This island's own part of another's transaction, unless it was carried out already. False if it has
    /// to wait.
    pub(crate) fn redo_part(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        stamp: Stamp,
        lost: &LostPart,
    ) -> Result<bool, Blocked> {
        let LostPart { from, txn, stamps, mut part } = lost.clone();
        if ctx.state.txn(txn).is_some() || self.redone.contains(&txn) {
            return Ok(true);
        }
        if !self.may_redo(ctx, locks, stamp, &mut part.work)? {
            return Ok(false);
        }
        let mut decision = Decision::new();
        match &part.work {
            ParticipantWork::Adopt { dir, time, chain } => {
                let mut seen = IdSet::default();
                for above in chain.iter().chain([dir]) {
                    ctx.need_ancestor(above, &mut seen)?;
                }
                if ctx.state.dir(dir.ino)?.is_none_or(|row| row.owned.is_none()) {
                    ctx.suspect_new(&mut decision, chain);
                    ctx.adopt(&mut decision, dir, chain, *time, None);
                }
            }
            ParticipantWork::Seal { ino, .. } => {
                if ctx.state.dir(*ino)?.is_some_and(|row| row.owned.is_some()) {
                    ctx.skeleton_must_be_loaded(*ino)?;
                    let time = ctx.time();
                    ctx.remove_named_dir(&mut decision, *ino, time);
                }
            }
            ParticipantWork::BorrowName { renaming, chain, .. } => {
                // What has replaced it may have come back already.
                match self.replaced_by(stamp, renaming) {
                    None => ctx.redo_lend(&mut decision, renaming, chain.as_ref())?,
                    Some(by) => ctx.redo_replaced(&mut decision, renaming, by)?,
                }
            }
            ParticipantWork::AddName { ino, chain, .. } | ParticipantWork::MoveName { ino, chain, .. } => {
                ctx.home_must_be_loaded(&part.work)?;
                ctx.chain_must_be_loaded(chain)?;
                ctx.own_over_must_be_loaded(chain)?;
                if ctx.state.inode(*ino)?.is_some() {
                    ctx.merge_ancestors_over(&mut decision, chain);
                }
                ctx.do_home(&mut decision, &part.work);
            }
            ParticipantWork::RemoveName { .. } => {
                ctx.home_must_be_loaded(&part.work)?;
                ctx.do_home(&mut decision, &part.work);
            }
            ParticipantWork::FreezeDir { ino, to, .. } => {
                let row = ctx.state.dir(*ino)?.filter(|row| row.owned.is_some());
                if let Some(row) = row.filter(|row| row.place.version < to.version) {
                    // How it was when it was held first is lost, and may come back later, or has come back without
                    // its being known that it has moved.
                    let (fixed, has_acl) = (row.fixed, row.has_acl);
                    let xattrs = if has_acl { ctx.state.xattrs(*ino)?.map(Xattrs::acls) } else { None };
                    ctx.fix_stub_again(&mut decision, *ino, to, fixed, xattrs.unwrap_or_default())?;
                }
            }
            // Its vote leaves when it is synced, so it cannot be lost; and without it there are no bytes.
            ParticipantWork::ReceiveFile { .. } => return Ok(true),
            ParticipantWork::PermitMove { .. } => {
                decision.push(RowChange::Moved { island: from, stamp: stamps.committed });
            }
        }
        // As late as it was: what was lost with it is known by its own moment.
        let prepared = ctx.stamp();
        decision.stamp(prepared);
        let stamps = TxnStamps { prepared, ..stamps };
        let row = Txn { state: TxnState::Committed, partner: from, stamps, part };
        decision.txn(txn, Some(row));
        self.remember_replaced(ctx, stamp, txn, &lost.part.work);
        ctx.decide(decision);
        self.redone.insert(txn);
        ctx.next(Next::Confirm { partner: from, txn, committed: stamps.committed });
        Ok(true)
    }

    /// Whether the rows that a work relies on are there: names that it removes, unless nobody can bring them
    /// back any more; a chain of ancestors that is not older than this island's journals; and nothing that is
    /// in its way and will end.
    fn may_redo(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        stamp: Stamp,
        work: &mut ParticipantWork,
    ) -> Result<bool, Blocked> {
        let knows = ctx.knows(work)? || ctx.is_taken(work)?;
        if !knows && (self.has_witnesses() || self.comes_before(ctx, stamp, work)) {
            return Ok(false);
        }
        match work {
            ParticipantWork::RemoveName { had, .. } => *had = knows,
            ParticipantWork::MoveName { had, chain, to, .. } => {
                *had = knows;
                let at = to.dir;
                return ctx.freshen(at, chain);
            }
            ParticipantWork::AddName { at, chain, .. } => {
                let at = at.dir;
                return ctx.freshen(at, chain);
            }
            ParticipantWork::BorrowName { renaming, .. } => {
                let to = &renaming.to;
                if !ctx.lend_fits(renaming)? && self.is_preceded(ctx, stamp, to.dir) {
                    return Ok(false);
                }
                let dir = ctx.state.dir(to.dir)?.and_then(|dir| dir.owned.as_ref());
                let is_sealed = dir.is_some_and(|owned| owned.sealed.is_some());
                return Ok(!is_sealed && locks.holder(to.dir, &to.name).is_none());
            }
            _ => {}
        }
        Ok(true)
    }

    /// Takes in the lost change of `stamp`. While others may still bring more it waits, to keep the order.
    pub(crate) fn add_lost(&mut self, ctx: &mut Ctx, stamp: Stamp, lost: LostRecord) {
        self.redo.push(stamp, lost);
        ctx.next(Next::Redo);
    }

    /// Entries of this island's journal that another has applied.
    pub(crate) fn on_returned(&mut self, ctx: &mut Ctx, entries: &[(Stamp, JournalEntry)]) {
        for (stamp, entry) in entries {
            if ctx.state.lost(*stamp) {
                self.redo.push(*stamp, LostRecord::Entry(entry.clone()));
            }
        }
        ctx.next(Next::RedoAgain);
    }

    /// After an unclean end: an island that has seen a lost change which nobody has brought back waits for no
    /// more than this.
    pub(crate) fn move_on(&mut self, ctx: &mut Ctx) {
        if std::mem::take(&mut self.must_move_on) {
            let mut decision = Decision::new();
            ctx.repost(&mut decision, &JournalEntry::ClockBump);
            ctx.decide(decision);
        }
    }

    /// Remembers which file a lost change has replaced, as long as others may bring that file back.
    pub(crate) fn remember_replaced(&mut self, ctx: &Ctx, stamp: Stamp, txn: TxnId, work: &ParticipantWork) {
        if let ParticipantWork::BorrowName { renaming, .. } = work
            && let Some(there) = &renaming.there
            && txn.coordinator != ctx.config.id
            && self.is_incomplete()
        {
            let (at, file, swaps) = (renaming.to.clone(), there.ino, renaming.swaps());
            self.replaced.insert(txn, Superseded { stamp, at, file, swaps });
        }
    }

    /// The change that has replaced the file which a renaming brings, and that was redone before.
    fn replaced_by(&self, stamp: Stamp, renaming: &RenameSpec) -> Option<Superseded> {
        let is_it =
            |by: &&Superseded| stamp < by.stamp && by.file == renaming.file.ino && by.at == renaming.to;
        self.replaced.values().find(is_it).cloned()
    }

    /// Whether something that was earlier and is not done again yet brings the name that a work takes away.
    fn comes_before(&self, ctx: &Ctx, stamp: Stamp, work: &ParticipantWork) -> bool {
        let Some((_, at)) = ctx.takes_away(work) else { return false };
        self.redo.parts().any(|(when, lost)| when < stamp && lost.part.work.brings() == Some(at))
    }

    /// As [`Recovery::redo_lost`], when something has come, or has ended, for which what could not be done again yet may have
    /// waited.
    pub(crate) fn redo_again(&mut self, ctx: &mut Ctx, locks: &NameLocks) {
        self.redo.unblock();
        self.redo_lost(ctx, locks);
    }

    /// The last lend that was lost, and is not done again yet, of a name in `parent` that is about a directory.
    pub(crate) fn lost_lend(&self, parent: Ino, ino: Ino) -> Option<&RenameSpec> {
        let lends = self.redo.parts().filter_map(|(stamp, lost)| match &lost.part.work {
            ParticipantWork::BorrowName { renaming, .. } if renaming.to.dir == parent => {
                Some((stamp, &**renaming))
            }
            _ => None,
        });
        let is_about = |renaming: &RenameSpec| {
            renaming.file.ino == ino || renaming.there.as_ref().is_some_and(|there| there.ino == ino)
        };
        let last = lends.filter(|(_, renaming)| is_about(renaming)).max_by_key(|(stamp, _)| *stamp);
        last.map(|(_, renaming)| renaming)
    }
}

impl Ctx {
    /// As [`Ctx::redo_lend`], if the file that it brings was replaced, and that was done again before: nothing comes,
    /// and what it replaced itself goes, which was laid beside the last one.
    fn redo_replaced(
        &mut self,
        decision: &mut Decision,
        renaming: &RenameSpec,
        by: Superseded,
    ) -> Result<(), Blocked> {
        self.renaming_must_be_loaded(renaming)?;
        let RenameSpec { from, to, file, there, time, .. } = renaming;
        let goes = |ino, at| ParticipantWork::RemoveName { ino, at, by: None, had: true, time: *time };
        if self.homed_here(Some(file)).is_some() && !by.swaps && self.knows_name(file.ino, from)? {
            self.do_home(decision, &goes(file.ino, from.clone()));
        }
        let Some(there) = there.as_ref().filter(|there| there.stub.is_none() && !renaming.swaps()) else {
            return Ok(());
        };
        for name in to.name.beside(there.ino) {
            let Some(entry) = self.state.entry(to.dir, &name)? else { break };
            if entry.ino == there.ino {
                decision.entry(to.dir, &name, None);
                self.change_names(decision, to.dir, -1, 0, *time);
                if self.homed_here(Some(there)).is_some() {
                    self.do_home(decision, &goes(there.ino, EntryRef { dir: to.dir, name }));
                }
                break;
            }
        }
        Ok(())
    }

    /// Takes the ancestors of a directory as its owner knows them now, if these are old; asks for them, if
    /// it has not told. False if there are none that will do.
    fn freshen(&mut self, dir: Ino, chain: &mut Chain) -> Result<bool, Blocked> {
        match self.skeleton.take_chain(dir) {
            // Its owner has it no more: what came with the work must do.
            Some(None) => return Ok(true),
            Some(Some(told)) => *chain = told,
            None => {}
        }
        if self.is_new_enough(chain)? {
            return Ok(true);
        }
        if let Some(last) = chain.dirs.last() {
            let owner = self.config.owner(last.key);
            self.send(self.state.seq(), owner, PeerOp::WantChain { dir });
        }
        Ok(false)
    }

    /// A name that was lent, and has come to what another owner's record says. What this island had done to
    /// the name since the last sync, and what led to it, may be gone.
    fn redo_lend(
        &mut self,
        decision: &mut Decision,
        renaming: &RenameSpec,
        chain: Option<&Chain>,
    ) -> Result<(), Blocked> {
        let mut renaming = renaming.clone();
        let to = renaming.to.clone();
        if self.state.dir(to.dir)?.is_none_or(|dir| dir.owned.is_none()) {
            return Ok(());
        }
        let now = self.state.entry(to.dir, &to.name)?.cloned();
        if now.as_ref().is_some_and(|now| now.ino == renaming.file.ino) {
            return Ok(());
        }
        self.freshen_stub(&mut renaming.file)?;
        self.renaming_must_be_loaded(&renaming)?;
        let comes = renaming.there.as_ref().is_some_and(|there| there.home == self.config.id);
        let chain = chain.filter(|_| comes && renaming.swaps());
        if let Some(chain) = chain {
            self.chain_must_be_loaded(chain)?;
            self.suspect_new(decision, &chain.dirs);
            self.merge_ancestors(decision, &chain.dirs);
            self.count_homes(decision, renaming.from.dir, 1);
        }
        match now {
            None => renaming.there = None,
            Some(now) if renaming.there.as_ref().is_some_and(|there| there.ino == now.ino) => {}
            // Its removal is lost: it must not be lost with it.
            Some(now) => {
                let beside = self.free_beside(to.dir, &to.name, now.ino)?;
                match &now.stub {
                    Some(_) => {
                        self.rows_of_move_must_be_loaded(now.ino, to.dir, &mut IdSet::default())?;
                        let time = renaming.time;
                        self.place_beside(decision, &now, to, beside, time);
                    }
                    None => decision.entry(to.dir, &beside, Some(now)),
                }
                renaming.there = None;
            }
        }
        let had = self.homed_here(Some(&renaming.file)).is_none()
            || self.knows_name(renaming.file.ino, &renaming.from)?;
        self.apply_renaming(decision, &renaming, had, None);
        if renaming.file.stub.is_some() {
            // What its owner has told of it meanwhile met no stub here.
            self.suspect_stale(decision);
        }
        if chain.is_some() {
            self.release_name(decision, &renaming.from);
        }
        Ok(())
    }

    /// A client that has not heard of it asks again, and gets this.
    fn remember_lost(&self, decision: &mut Decision, origin: RequestId, result: RequestResult) {
        if self.state.session(origin.session).is_some() {
            decision.remember(origin.session, origin.seq, 0, result);
        }
    }

    /// Whether the name that a work removes leads to another file by now: a later change of it has come back
    /// before.
    fn is_taken(&self, work: &ParticipantWork) -> Result<bool, Blocked> {
        let Some((ino, at)) = self.takes_away(work) else { return Ok(false) };
        if self.state.dir(at.dir)?.is_none() {
            return Ok(false);
        }
        Ok(self.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino != ino))
    }

    /// Ancestors as they were when what is done again was done first: of those that are new here, what has
    /// happened since may have been told, and met nothing.
    fn suspect_new(&mut self, decision: &mut Decision, above: &[Ancestor]) {
        if above.iter().any(|dir| self.in_memory(dir.ino).is_none()) {
            self.suspect_stale(decision);
        }
    }

    /// Makes sure that the rows which [`Ctx::add_ancestor`] and [`Ctx::name_ancestor`] read are in memory. Directories
    /// whose ancestors are in memory are `seen`.
    fn need_ancestor(&self, above: &Ancestor, seen: &mut IdSet<Ino>) -> Result<(), Blocked> {
        self.acls_must_be_loaded(above.ino)?;
        if let Some(name) = &above.place.name {
            self.rows_of_move_must_be_loaded(above.ino, above.place.parent, seen)?;
            self.state.entry(above.place.parent, name)?;
            self.free_beside(above.place.parent, name, above.ino)?;
        }
        Ok(())
    }

    /// Whether the name that is lent to a directory, or by one, leads to the same file as then.
    fn lend_fits(&self, renaming: &RenameSpec) -> Result<bool, Blocked> {
        let RenameSpec { to, file, there, .. } = renaming;
        if self.state.dir(to.dir)?.is_none_or(|dir| dir.owned.is_none()) {
            return Ok(true);
        }
        let now = self.state.entry(to.dir, &to.name)?;
        let is_about_dirs = [Some(file), there.as_ref(), now].into_iter().flatten().any(|e| e.stub.is_some());
        let ino = |entry: Option<&Entry>| entry.map(|entry| entry.ino);
        Ok(!is_about_dirs || ino(now) == Some(file.ino) || ino(now) == ino(there.as_ref()))
    }
}

/// Nothing that is under way counts on that the name of a directory is not there, or does not come. Else it is told
/// again when that has ended.
fn may_name(ctx: &Ctx, locks: &NameLocks, new: &Ancestor) -> Result<(), Blocked> {
    let (Some(name), Some(dir)) = (&new.place.name, ctx.state.dir(new.place.parent)?) else {
        return Ok(());
    };
    let Some(owned) = &dir.owned else { return Ok(()) };
    let is_there = ctx.state.entry(new.place.parent, name)?.is_some_and(|there| there.ino == new.ino);
    let holder = locks.holder(new.place.parent, name);
    match owned.sealed.or(holder) {
        Some(txn) if !is_there => Err(Blocked::Txn(txn)),
        _ => Ok(()),
    }
}
