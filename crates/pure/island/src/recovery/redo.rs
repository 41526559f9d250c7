//! What a power cut has taken out of this island's log, and others have carried out: done again, in
//! the order of this island's own clock, before it serves (`DESIGN` 5).
//!
//! A log loses a tail, so what is brought back met exactly the state that is left, but for changes
//! that no other island took part in: those are gone, and a name may be taken by what they removed.

use atoll_core::{Ino, IslandId, Name, Stamp, Time, TxnId};
use atoll_posix::Errno;
use atoll_proto::{
    Ancestor, Chain, Change, Entry, JournalEntry, Moments, Origin, Part, Peer, Place, PlaceVersion,
    Remembered, Renaming, Spot, Static, Stub, Txn, TxnState, Work, Xattrs,
};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Next, Stop};
use crate::island::Island;
use crate::journal::outbox::is_pair;
use crate::ops::dirs::new_owned;
use crate::recovery::Recovery;
use crate::recovery::start::Phase;
use crate::recovery::start::Replaced;
use crate::rows::look::Look;
use crate::rows::path::DEPTH_MAX;
use crate::rows::staged_dir;

/// A record of this island that is gone.
#[derive(Debug, Clone)]
pub(crate) enum Lost {
    /// The commit of a transaction that it coordinated.
    Commit { from: IslandId, txn: TxnId, prepared: Stamp, part: Part },
    /// Its own part of another's transaction.
    Part(LostPart),
    /// An entry of its journal.
    Entry(JournalEntry),
}

/// See [`Lost::Part`].
#[derive(Debug, Clone)]
pub(crate) struct LostPart {
    pub(crate) from: IslandId,
    pub(crate) txn: TxnId,
    pub(crate) moments: Moments,
    pub(crate) part: Part,
}

impl Island {
    /// Does again what was lost; a starting island serves afterwards.
    pub(crate) fn redo_lost(&mut self) {
        if self.recovery.is_waiting() {
            return;
        }
        while let Some((stamp, lost)) = self.recovery.lost.pop_first() {
            self.ctx.state.look_away();
            match (self.redo(stamp, &lost), lost) {
                (Ok(()), _) => {}
                (Err(Stop::Load(loads)), lost) => {
                    self.recovery.lost.insert(stamp, lost);
                    return self.ctx.load(loads, Next::Redo);
                }
                // Something that it needs is in doubt: it is tried again, and nobody may forget it.
                (Err(_), Lost::Entry(entry)) => drop(self.recovery.places.insert(stamp, entry)),
                (Err(_), Lost::Part(lost)) => drop(self.recovery.unfinished.insert(lost.txn, (stamp, lost))),
                // It is not confirmed, so it is told again.
                (Err(_), Lost::Commit { .. }) => {}
            }
        }
        if self.recovery.phase == Phase::Hidden {
            for journal in self.recovery.journals.take() {
                self.ctx.next(Next::Peer(journal));
            }
            self.ctx.next(Next::MoveOn);
        }
        self.ctx.next(Next::CompareSkipped);
    }

    fn redo(&mut self, stamp: Stamp, lost: &Lost) -> Result<(), Stop> {
        match lost {
            Lost::Commit { from, txn, prepared, part } => self.redo_commit(*from, *txn, *prepared, part),
            Lost::Part(lost) => {
                if self.redo_part(stamp, lost)? {
                    self.recovery.unfinished.remove(&lost.txn);
                    self.recovery.lost_again();
                } else {
                    self.recovery.unfinished.insert(lost.txn, (stamp, lost.clone()));
                }
                Ok(())
            }
            Lost::Entry(entry @ JournalEntry::Place { place, .. }) => {
                let is_held = self.look().is_held_for(entry);
                if is_held
                    || !self.recovery.place_fits(&self.ctx, entry)?
                        && self.recovery.is_preceded(&self.ctx, stamp, place.parent)
                {
                    self.recovery.places.insert(stamp, entry.clone());
                    return Ok(());
                }
                self.redo_place(stamp, entry)?;
                self.recovery.lost_again();
                Ok(())
            }
            Lost::Entry(JournalEntry::Fixed { ino, place, fixed, xattrs }) => {
                self.redo_fixed(stamp, *ino, place, fixed, xattrs)
            }
            Lost::Entry(JournalEntry::Onward) => self.ctx.pass(stamp),
        }
    }

    // -------------------------------------------------------------- transactions

    fn redo_commit(&mut self, from: IslandId, txn: TxnId, prepared: Stamp, part: &Part) -> Result<(), Stop> {
        if self.ctx.state.txn(txn).is_some() {
            return Ok(());
        }
        let mut decision = Decision::new();
        match &part.work {
            Work::Adopt { dir, time, chain } => {
                for above in chain.iter().chain([dir]) {
                    self.ctx.need_ancestor(above)?;
                    self.look().may_name(above)?;
                }
                self.ctx.doubt_new(&mut decision, chain);
                for above in chain {
                    self.ctx.add_ancestor(&mut decision, above, *time);
                    self.ctx.name_ancestor(&mut decision, above, *time);
                }
                self.ctx.name_ancestor(&mut decision, dir, *time);
                self.ctx.remember_lost(&mut decision, part.origin, Remembered::Ino { ino: dir.ino });
            }
            Work::Seal { ino, parent, name } => {
                let place =
                    Place { version: PlaceVersion::default(), parent: *parent, name: Some(name.clone()) };
                self.ctx.need_child(&place, *ino)?;
                // It may have got another name since.
                let is_it = self.ctx.state.entry(*parent, name)?.is_some_and(|entry| entry.ino == *ino);
                let name = if is_it {
                    Some(name.clone())
                } else {
                    self.ctx.child_by_ino(*parent, *ino).map(|c| c.0)
                };
                let row = self.ctx.state.dir(*parent)?.filter(|row| row.owned.is_some()).cloned();
                if let (Some(name), Some(row)) = (name, row) {
                    let now = self.ctx.time();
                    decision.entry(*parent, &name, None);
                    decision.names_changed(*parent, &row, -1, -1, (now, now));
                }
                self.ctx.remember_lost(&mut decision, part.origin, Remembered::Done);
            }
            // Nobody is told of others before they are synced: they cannot be lost.
            _ => return Ok(()),
        }
        let moments = self.ctx.committed_txn(&mut decision, txn, from, prepared, part);
        let seq = self.ctx.decide(decision);
        self.confirm(from, txn, moments.committed);
        self.ctx.send(seq, from, Peer::Decided { txn, moments: Some(moments), part: None });
        Ok(())
    }

    /// This island's own part of another's transaction, unless it was carried out already. False if it has
    /// to wait.
    pub(crate) fn redo_part(&mut self, stamp: Stamp, lost: &LostPart) -> Result<bool, Stop> {
        let LostPart { from, txn, moments, mut part } = lost.clone();
        if self.ctx.state.txn(txn).is_some() || self.recovery.redone.contains(&txn) {
            return Ok(true);
        }
        if !self.may_redo(stamp, &mut part.work)? {
            return Ok(false);
        }
        let mut decision = Decision::new();
        match &part.work {
            Work::Adopt { dir, time, chain } => {
                for above in chain.iter().chain([dir]) {
                    self.ctx.need_ancestor(above)?;
                }
                if self.ctx.state.dir(dir.ino)?.is_none_or(|row| row.owned.is_none()) {
                    self.ctx.doubt_new(&mut decision, chain);
                    self.ctx.adopt(&mut decision, dir, chain, *time, None);
                }
            }
            Work::Seal { ino, .. } => {
                if self.ctx.state.dir(*ino)?.is_some_and(|row| row.owned.is_some()) {
                    self.ctx.need_skeleton(*ino)?;
                    self.ctx.remove_dir(&mut decision, *ino);
                }
            }
            Work::Lend { renaming, chain, .. } => {
                // What has replaced it may have come back already.
                match self.recovery.replaced_by(stamp, renaming) {
                    None => self.ctx.redo_lend(&mut decision, renaming, chain.as_ref())?,
                    Some(by) => self.ctx.redo_replaced(&mut decision, renaming, by)?,
                }
            }
            Work::Count { ino, chain, .. } | Work::Renamed { ino, chain, .. } => {
                self.ctx.need_home(&part.work)?;
                self.ctx.need_chain(chain)?;
                self.ctx.need_own_over(chain)?;
                if self.ctx.state.inode(*ino)?.is_some() {
                    self.ctx.lay_chain_over(&mut decision, chain);
                }
                self.ctx.do_home(&mut decision, &part.work);
            }
            Work::Drop { .. } => {
                self.ctx.need_home(&part.work)?;
                self.ctx.do_home(&mut decision, &part.work);
            }
            Work::Hold { ino, to, .. } => {
                let row = self.ctx.state.dir(*ino)?.filter(|row| row.owned.is_some());
                if let Some(row) = row.filter(|row| row.place.version < to.version) {
                    // How it was when it was held first is lost, and may come back later, or has come back without
                    // its being known that it has moved.
                    let (fixed, has_acl) = (row.fixed, row.has_acl);
                    let xattrs = if has_acl { self.ctx.state.xattrs(*ino)?.map(Xattrs::acls) } else { None };
                    self.ctx.fix_stub_again(&mut decision, *ino, to, fixed, xattrs.unwrap_or_default())?;
                }
            }
            // Its vote leaves when it is synced, so it cannot be lost; and without it there are no bytes.
            Work::Arrive { .. } => return Ok(true),
            Work::Ticket { .. } => {
                decision.push(Change::Moved { island: from, stamp: moments.committed });
            }
        }
        // As late as it was: what was lost with it is known by its own moment.
        let prepared = self.ctx.stamp();
        decision.stamp(prepared);
        let moments = Moments { prepared, ..moments };
        let row = Txn { state: TxnState::Committed, partner: from, moments, part };
        decision.txn(txn, Some(row));
        self.recovery.remember_replaced(&self.ctx, stamp, txn, &lost.part.work);
        self.ctx.decide(decision);
        self.recovery.redone.insert(txn);
        self.confirm(from, txn, moments.committed);
        Ok(true)
    }

    /// Whether what a work builds on is there: names that it takes away, unless nobody can bring them back
    /// any more; a chain of ancestors that is not older than what this island has seen; nothing that is in
    /// its way and will end.
    fn may_redo(&mut self, stamp: Stamp, work: &mut Work) -> Result<bool, Stop> {
        let knows = self.ctx.knows(work)? || self.ctx.is_taken(work)?;
        if !knows && (self.recovery.has_witnesses() || self.recovery.comes_before(&self.ctx, stamp, work)) {
            return Ok(false);
        }
        match work {
            Work::Drop { had, .. } => *had = knows,
            Work::Renamed { had, chain, to, .. } => {
                *had = knows;
                let at = to.dir;
                return self.ctx.freshen(at, chain);
            }
            Work::Count { at, chain, .. } => {
                let at = at.dir;
                return self.ctx.freshen(at, chain);
            }
            Work::Lend { renaming, .. } => {
                let to = &renaming.to;
                if !self.ctx.lend_fits(renaming)? && self.recovery.is_preceded(&self.ctx, stamp, to.dir) {
                    return Ok(false);
                }
                let dir = self.ctx.state.dir(to.dir)?.and_then(|dir| dir.owned.as_ref());
                let is_sealed = dir.is_some_and(|owned| owned.sealed.is_some());
                return Ok(!is_sealed && self.txns.locks.holder(to.dir, &to.name).is_none());
            }
            _ => {}
        }
        Ok(true)
    }

    // ------------------------------------------------------------------- journal

    fn redo_place(&mut self, stamp: Stamp, lost: &JournalEntry) -> Result<(), Stop> {
        let JournalEntry::Place { ino, place, from, replaced, time, .. } = lost else {
            return self.ctx.pass(stamp);
        };
        let (ino, time, dir, to) = (*ino, *time, place.parent, place.name.as_ref());
        let to = to.expect("the root has no other place");
        self.ctx.need_to_move(ino, dir)?;
        let here = |entry: Option<&Entry>| entry.filter(|entry| entry.ino == ino).cloned();
        let (old, there) =
            (self.ctx.state.entry(dir, &from.name)?.cloned(), self.ctx.state.entry(dir, to)?.cloned());
        let owned = self.ctx.state.dir(dir)?.filter(|row| row.owned.is_some()).cloned();
        let entry = here(old.as_ref()).or_else(|| here(there.as_ref()));
        let (Some(parent), Some(entry)) = (owned, entry) else { return self.ctx.pass(stamp) };
        if entry.stub.as_ref().is_none_or(|stub| stub.place >= place.version) {
            return self.ctx.pass(stamp);
        }
        let mut decision = Decision::new();
        let leaves = here(old.as_ref()).is_some() && from.name != *to;
        let (left, gone) = match there.filter(|there| there.ino != ino) {
            None => (None, 0),
            Some(there) if *replaced == Some(there.ino) && self.look().may_go(there.ino)? => {
                self.ctx.remove_dir(&mut decision, there.ino);
                (None, 1)
            }
            Some(there) if self.recovery.swapped_with(lost) == Some(there.ino) => (Some(there), 0),
            // Nobody can tell any more how that came there, or that it has gone.
            Some(_) => {
                let beside = self.ctx.free_beside(dir, to, ino)?;
                decision.entry(dir, &from.name, None);
                decision.names_changed(dir, &parent, 0, 0, (time, time));
                self.ctx.place_beside(&mut decision, &entry, from.clone(), beside, time);
                self.ctx.decide(decision);
                return self.ctx.pass(stamp);
            }
        };
        if leaves {
            decision.entry(dir, &from.name, left);
        }
        let parent = staged_dir(&decision, dir).unwrap_or(parent);
        decision.names_changed(dir, &parent, -i64::from(gone), -gone, (time, time));
        self.ctx.take_place(&mut decision, &entry, place, time);
        let (place, from, replaced) = (place.clone(), from.clone(), *replaced);
        let chain = self.ctx.chain_seen();
        self.ctx.post_again(&mut decision, &JournalEntry::Place { ino, place, from, replaced, chain, time });
        self.ctx.decide(decision);
        Ok(())
    }

    fn redo_fixed(
        &mut self,
        stamp: Stamp,
        ino: Ino,
        place: &Place,
        fixed: &Static,
        xattrs: &Xattrs,
    ) -> Result<(), Stop> {
        let row = self.ctx.state.dir(ino)?.filter(|row| row.owned.is_some()).cloned();
        let Some(mut row) = row.filter(|row| row.fixed.version < fixed.version) else {
            return self.ctx.pass(stamp);
        };
        self.ctx.need_acls(ino)?;
        let mut decision = Decision::new();
        row.fixed = *fixed;
        self.ctx.follow_acls(&mut decision, ino, &mut row, xattrs);
        // Its stub has moved since, or before that, and this is not known again.
        let place = self.place_to_be(ino, std::cmp::max_by_key(&row.place, place, |place| place.version));
        decision.dir(ino, row);
        self.ctx.fix_stub_again(&mut decision, ino, &place, *fixed, xattrs.acls())?;
        self.ctx.decide(decision);
        Ok(())
    }
}

impl<'a> Look<'a> {
    /// Nothing that is under way counts on that the name of a directory is not there, or does not come. Else it is told
    /// again when that has ended.
    fn may_name(self, new: &Ancestor) -> Result<(), Stop> {
        let (Some(name), Some(dir)) = (&new.place.name, self.ctx.state.dir(new.place.parent)?) else {
            return Ok(());
        };
        let Some(owned) = &dir.owned else { return Ok(()) };
        let is_there =
            self.ctx.state.entry(new.place.parent, name)?.is_some_and(|there| there.ino == new.ino);
        let holder = self.txns.locks.holder(new.place.parent, name);
        match owned.sealed.or(holder) {
            Some(txn) if !is_there => Err(Stop::Txn(txn)),
            _ => Ok(()),
        }
    }

    /// Whether a name that a directory was renamed from or to is held: who holds it has it as it is, and ends.
    fn is_held_for(self, entry: &JournalEntry) -> bool {
        let JournalEntry::Place { place, from, .. } = entry else { return false };
        let to = place.name.as_ref();
        to.into_iter().chain([&from.name]).any(|name| self.txns.locks.holder(place.parent, name).is_some())
    }

    /// Whether this is an empty directory that is owned here.
    fn may_go(self, ino: Ino) -> Result<bool, Stop> {
        if self.ctx.state.dir(ino)?.is_none_or(|row| row.owned.is_none()) {
            return Ok(false);
        }
        self.ctx.need_skeleton(ino)?;
        match self.may_seal(ino) {
            Err(Stop::Fail(Errno::ENOTEMPTY)) => Ok(false),
            // Whether it is empty may be known later.
            other => other.map(|()| true),
        }
    }
}

impl Recovery {
    /// Takes in what was lost at `stamp`. While others may still bring more it waits, for its order.
    pub(crate) fn bring_back(&mut self, ctx: &mut Ctx, stamp: Stamp, lost: Lost) {
        self.lost.insert(stamp, lost);
        ctx.next(Next::Redo);
    }

    /// Entries of this island's journal that another has applied.
    pub(crate) fn on_returned(&mut self, ctx: &mut Ctx, entries: &[(Stamp, JournalEntry)]) {
        for (stamp, entry) in entries {
            if ctx.state.lost(*stamp) {
                self.lost.insert(*stamp, Lost::Entry(entry.clone()));
            }
        }
        ctx.next(Next::RedoAgain);
    }

    /// After an unclean end: whoever has seen what was lost, and nobody has brought back, waits for no more than
    /// this.
    pub(crate) fn go_onward(&mut self, ctx: &mut Ctx) {
        if std::mem::take(&mut self.goes_onward) {
            let mut decision = Decision::new();
            ctx.post_again(&mut decision, &JournalEntry::Onward);
            ctx.decide(decision);
        }
    }

    /// Remembers what something that was lost has replaced, as long as others may bring that back.
    pub(crate) fn remember_replaced(&mut self, ctx: &Ctx, stamp: Stamp, txn: TxnId, work: &Work) {
        if let Work::Lend { renaming, .. } = work
            && let Some(there) = &renaming.there
            && txn.coordinator != ctx.config.id
            && self.may_miss_something()
        {
            let (at, file, swaps) = (renaming.to.clone(), there.ino, renaming.swaps());
            self.replaced.insert(txn, Replaced { stamp, at, file, swaps });
        }
    }

    /// What has replaced the file that a renaming brings, and was done again before.
    fn replaced_by(&self, stamp: Stamp, renaming: &Renaming) -> Option<Replaced> {
        let is_it = |by: &&Replaced| stamp < by.stamp && by.file == renaming.file.ino && by.at == renaming.to;
        self.replaced.values().find(is_it).cloned()
    }

    /// Whether something that was earlier and is not done again yet brings the name that a work takes away.
    fn comes_before(&self, ctx: &Ctx, stamp: Stamp, work: &Work) -> bool {
        let Some((_, at)) = ctx.takes_away(work) else { return false };
        self.lost_parts().any(|(when, lost)| when < stamp && lost.part.work.brings() == Some(at))
    }

    /// Whether something that was earlier may still change names of directories in a directory, by what is done
    /// again: all that is told has an order, but not that in which it is told.
    fn is_preceded(&self, ctx: &Ctx, stamp: Stamp, dir: Ino) -> bool {
        let lent = ctx.lent_txns();
        let lent = lent.iter().filter_map(|txn| ctx.state.txn(*txn));
        let lent = lent.map(|row| (row.moments.prepared, &row.part.work));
        let lost = self.lost_parts().map(|(when, lost)| (when, &lost.part.work));
        let mut works = lent.chain(lost);
        let is_in = |entry: &JournalEntry| entry.about().is_some_and(|(_, place)| place.parent == dir);
        let mut places = self.places.range(..stamp).map(|(_, entry)| entry);
        let mut lost = self.lost.range(..stamp);
        self.has_witnesses()
            || works.any(|(when, work)| {
                when < stamp && matches!(work, Work::Lend { renaming, .. } if renaming.to.dir == dir)
            })
            || places.any(is_in)
            || lost.any(|(_, lost)| matches!(lost, Lost::Entry(entry) if is_in(entry)))
    }

    /// Whether a directory that was renamed within another is there, and its new name is free, as it was then.
    fn place_fits(&self, ctx: &Ctx, entry: &JournalEntry) -> Result<bool, Stop> {
        let JournalEntry::Place { ino, place, from, replaced, .. } = entry else { return Ok(true) };
        let Some(to) = &place.name else { return Ok(true) };
        if ctx.state.dir(place.parent)?.is_none_or(|dir| dir.owned.is_none()) {
            return Ok(true);
        }
        let there = ctx.state.entry(place.parent, to)?.map(|entry| entry.ino);
        let old = ctx.state.entry(place.parent, &from.name)?.map(|entry| entry.ino);
        let was_there = replaced.or_else(|| self.swapped_with(entry));
        Ok(there == Some(*ino) || old == Some(*ino) && there == was_there)
    }

    /// The directory that one has changed places with, if that is not done again either.
    fn swapped_with(&self, entry: &JournalEntry) -> Option<Ino> {
        let lost = self.lost.values().filter_map(|lost| match lost {
            Lost::Entry(other) => Some(other),
            _ => None,
        });
        let mut others = lost.chain(self.places.values());
        others.find(|other| is_pair(entry, other))?.about().map(|(ino, _)| ino)
    }

    /// Something has come, or has ended, for which what could not be done again yet may have waited.
    pub(crate) fn lost_again(&mut self) {
        let places = std::mem::take(&mut self.places);
        self.lost.extend(places.into_iter().map(|(stamp, entry)| (stamp, Lost::Entry(entry))));
        let parts = std::mem::take(&mut self.unfinished);
        self.lost.extend(parts.into_values().map(|(stamp, lost)| (stamp, Lost::Part(lost))));
    }

    /// Parts of others' transactions that are lost, and not done again yet.
    pub(crate) fn lost_parts(&self) -> impl Iterator<Item = (Stamp, &LostPart)> {
        let lost = self.lost.iter().filter_map(|(stamp, lost)| match lost {
            Lost::Part(part) => Some((*stamp, part)),
            _ => None,
        });
        lost.chain(self.unfinished.values().map(|(stamp, part)| (*stamp, part)))
    }
}

impl Ctx {
    /// The stub of a directory of this island's may have missed how that is.
    fn fix_stub_again(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        place: &Place,
        fixed: Static,
        xattrs: Xattrs,
    ) -> Result<(), Stop> {
        self.need_name(place)?;
        self.need_child(place, ino)?;
        self.apply_to_stub(decision, ino, place, &fixed);
        let place = place.clone();
        self.post_again(decision, &JournalEntry::Fixed { ino, place, fixed, xattrs });
        Ok(())
    }

    /// Nothing is there that the entry was about: only the clock moves, to where the others have it.
    fn pass(&mut self, stamp: Stamp) -> Result<(), Stop> {
        let me = self.config.id;
        if self.state.clocks().get(me) < stamp {
            let mut decision = Decision::new();
            decision.push(Change::Clock { island: me, stamp });
            self.decide(decision);
            self.posts.durable_after(self.state.seq(), stamp);
        }
        Ok(())
    }
}

impl Ctx {
    /// As [`Ctx::redo_lend`], if the file that it brings was replaced, and that was done again before: nothing comes,
    /// and what it replaced itself goes, which was laid beside the last one.
    fn redo_replaced(
        &mut self,
        decision: &mut Decision,
        renaming: &Renaming,
        by: Replaced,
    ) -> Result<(), Stop> {
        self.need_renaming(renaming)?;
        let Renaming { from, to, file, there, time, .. } = renaming;
        let goes = |ino, at| Work::Drop { ino, at, by: None, had: true, time: *time };
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
                    self.do_home(decision, &goes(there.ino, Spot { dir: to.dir, name }));
                }
                break;
            }
        }
        Ok(())
    }

    /// Takes the ancestors of a directory as its owner knows them now, if these are old; asks for them, if
    /// it has not told. False if there are none that will do.
    fn freshen(&mut self, dir: Ino, chain: &mut Chain) -> Result<bool, Stop> {
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
            self.send(self.state.seq(), owner, Peer::WantChain { dir });
        }
        Ok(false)
    }

    /// A name that was lent, and has come to what another owner's record says. What this island had done to
    /// the name since the last sync, and what led to it, may be gone.
    fn redo_lend(
        &mut self,
        decision: &mut Decision,
        renaming: &Renaming,
        chain: Option<&Chain>,
    ) -> Result<(), Stop> {
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
        self.need_renaming(&renaming)?;
        let comes = renaming.there.as_ref().is_some_and(|there| there.home == self.config.id);
        let chain = chain.filter(|_| comes && renaming.swaps());
        if let Some(chain) = chain {
            self.need_chain(chain)?;
            self.doubt_new(decision, &chain.dirs);
            self.lay_chain(decision, &chain.dirs);
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
                        self.need_to_move(now.ino, to.dir)?;
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
            self.doubt(decision);
        }
        if chain.is_some() {
            self.unpin(decision, &renaming.from);
        }
        Ok(())
    }

    /// A directory above one that was made: there again, and owned if the table says so.
    fn add_ancestor(&mut self, decision: &mut Decision, above: &Ancestor, time: Time) {
        let row = self.dir_now(decision, above.ino);
        let mine = self.config.owner(above.key) == self.config.id;
        let owned = row.as_ref().is_some_and(|row| row.owned.is_some());
        if row.is_none() || (mine && !owned) {
            self.add_skeleton(decision, above, (mine && !owned).then(|| new_owned(time, None)));
        }
    }

    /// Its name at the owner of the directory above: if another has it now, one beside it.
    fn name_ancestor(&mut self, decision: &mut Decision, new: &Ancestor, time: Time) {
        let Some(name) = new.place.name.clone() else { return };
        let parent = new.place.parent;
        let Some(row) = self.dir_now(decision, parent) else { return };
        if row.owned.is_none() {
            return;
        }
        let stub = Stub { key: new.key, place: new.place.version, fixed: new.fixed, time };
        let (ino, kind, home) = (new.ino, atoll_posix::Kind::Directory, self.config.id);
        let entry = Entry { ino, kind, home, stub: Some(Box::new(stub)) };
        match self.entry_now(decision, parent, &name) {
            Some(there) if there.ino == new.ino => {}
            None => {
                decision.names_changed(parent, &row, 1, 1, (time, time));
                decision.entry(parent, &name, Some(entry));
            }
            Some(_) => {
                let is_free = |beside: &Name| self.entry_now(decision, parent, beside).is_none();
                let beside = name.beside(new.ino).find(is_free).expect("there is no end of them");
                decision.names_changed(parent, &row, 1, 1, (time, time));
                self.place_beside(decision, &entry, Spot { dir: parent, name }, beside, time);
            }
        }
    }

    /// A directory gets a name beside its own.
    fn place_beside(&mut self, decision: &mut Decision, entry: &Entry, from: Spot, beside: Name, time: Time) {
        let stamp = self.stamp();
        decision.stamp(stamp);
        let moves = entry.stub.as_ref().expect("a directory has a stub").place.moves;
        let version = PlaceVersion { moves, stamp };
        let place = Place { version, parent: from.dir, name: Some(beside) };
        self.take_place(decision, entry, &place, time);
        let (ino, chain) = (entry.ino, self.chain_seen());
        let moved = JournalEntry::Place { ino, place, from, replaced: None, chain, time };
        self.post(decision, stamp, &moved, false);
    }

    /// The rows of a directory that is at `place` now, at the owner of the one above.
    fn take_place(&mut self, decision: &mut Decision, entry: &Entry, place: &Place, now: Time) {
        let mut entry = entry.clone();
        let stub = entry.stub.as_mut().expect("a directory has a stub");
        stub.place = place.version;
        stub.time = now;
        let ino = entry.ino;
        let name = place.name.as_ref().expect("the root has no other place");
        decision.entry(place.parent, name, Some(entry));
        // Its own row may be where it was before a move whose journal has not come again: what it is counted in
        // follows. What would be below itself on the way is told by that journal.
        let newer = self.dir_now(decision, ino).is_some_and(|row| row.place.version < place.version);
        if newer && !self.is_above(decision, ino, place.parent) {
            self.take_skeleton_place(decision, ino, place, now);
        }
    }
}

impl Ctx {
    /// A client that has not heard of it asks again, and gets this.
    fn remember_lost(&self, decision: &mut Decision, origin: Origin, result: Remembered) {
        if self.state.session(origin.session).is_some() {
            decision.remember(origin.session, origin.seq, 0, result);
        }
    }

    /// Whether the name that a work takes away has another file by now: what came to it later has come back
    /// before.
    fn is_taken(&self, work: &Work) -> Result<bool, Stop> {
        let Some((ino, at)) = self.takes_away(work) else { return Ok(false) };
        if self.state.dir(at.dir)?.is_none() {
            return Ok(false);
        }
        Ok(self.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino != ino))
    }

    /// Ancestors as they were when what is done again was done first: of those that are new here, what has
    /// happened since may have been told, and met nothing.
    fn doubt_new(&mut self, decision: &mut Decision, above: &[Ancestor]) {
        if above.iter().any(|dir| self.in_memory(dir.ino).is_none()) {
            self.doubt(decision);
        }
    }

    /// What [`Ctx::add_ancestor`] and [`Ctx::name_ancestor`] read must be in memory.
    fn need_ancestor(&self, above: &Ancestor) -> Result<(), Stop> {
        self.need_acls(above.ino)?;
        if let Some(name) = &above.place.name {
            self.need_to_move(above.ino, above.place.parent)?;
            self.state.entry(above.place.parent, name)?;
            self.free_beside(above.place.parent, name, above.ino)?;
        }
        Ok(())
    }

    /// What [`Ctx::take_place`] reads must be in memory.
    fn need_to_move(&self, ino: Ino, to: Ino) -> Result<(), Stop> {
        for dir in [ino, to] {
            if self.state.dir(dir)?.is_some() {
                self.need_skeleton(dir)?;
            }
        }
        Ok(())
    }

    /// Whether a directory is above another, or what is above that is not known.
    fn is_above(&self, decision: &Decision, ino: Ino, below: Ino) -> bool {
        let mut at = below;
        for _ in 0..DEPTH_MAX {
            match self.dir_now(decision, at) {
                _ if at == Ino::ROOT => return false,
                Some(row) if at != ino => at = row.place.parent,
                _ => return true,
            }
        }
        true
    }

    /// Whether the name that is lent to a directory, or by one, names what it named then.
    fn lend_fits(&self, renaming: &Renaming) -> Result<bool, Stop> {
        let Renaming { to, file, there, .. } = renaming;
        if self.state.dir(to.dir)?.is_none_or(|dir| dir.owned.is_none()) {
            return Ok(true);
        }
        let now = self.state.entry(to.dir, &to.name)?;
        let is_about_dirs = [Some(file), there.as_ref(), now].into_iter().flatten().any(|e| e.stub.is_some());
        let ino = |entry: Option<&Entry>| entry.map(|entry| entry.ino);
        Ok(!is_about_dirs || ino(now) == Some(file.ino) || ino(now) == ino(there.as_ref()))
    }

    /// A name beside one, for something that has to give way.
    fn free_beside(&self, dir: Ino, name: &Name, ino: Ino) -> Result<Name, Stop> {
        for beside in name.beside(ino) {
            if self.state.entry(dir, &beside)?.is_none() {
                return Ok(beside);
            }
        }
        unreachable!("there is no end of them")
    }

    /// An entry that has its version already goes to all once more, for those who missed it.
    fn post_again(&mut self, decision: &mut Decision, entry: &JournalEntry) {
        let stamp = self.stamp();
        decision.stamp(stamp);
        self.post(decision, stamp, entry, false);
    }
}
