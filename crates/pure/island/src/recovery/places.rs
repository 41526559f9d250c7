//! Redoes lost entries of this island's journal: places and attributes of directories.

use atoll_core::map::IdSet;
use atoll_core::{Ino, Name, Stamp, Time};
use atoll_posix::Errno;
use atoll_proto::{
    Ancestor, DirPlace, Entry, EntryRef, JournalEntry, OwnedDir, ParticipantWork, PlaceVersion, RowChange,
    StaticAttrs, Stub, Xattrs,
};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::posts::{Audience, is_pair};
use crate::ctx::request::Blocked;
use crate::ctx::staged_dir;
use crate::locks::names::NameLocks;
use crate::look::Look;
use crate::recovery::Recovery;
use crate::rows::path::DEPTH_MAX;

impl Recovery {
    pub(super) fn redo_place(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        stamp: Stamp,
        lost: &JournalEntry,
    ) -> Result<(), Blocked> {
        let JournalEntry::Place { ino, place, from, replaced, time, .. } = lost else {
            return ctx.pass(stamp);
        };
        let (ino, time, dir, to) = (*ino, *time, place.parent, place.name.as_ref());
        let to = to.expect("the root has no other place");
        ctx.rows_of_move_must_be_loaded(ino, dir, &mut IdSet::default())?;
        let here = |entry: Option<&Entry>| entry.filter(|entry| entry.ino == ino).cloned();
        let (old, there) = (ctx.state.entry(dir, &from.name)?.cloned(), ctx.state.entry(dir, to)?.cloned());
        let owned = ctx.state.dir(dir)?.filter(|row| row.owned.is_some()).cloned();
        let entry = here(old.as_ref()).or_else(|| here(there.as_ref()));
        let (Some(parent), Some(entry)) = (owned, entry) else { return ctx.pass(stamp) };
        if entry.stub.as_ref().is_none_or(|stub| stub.place >= place.version) {
            return ctx.pass(stamp);
        }
        let mut decision = Decision::new();
        let leaves = here(old.as_ref()).is_some() && from.name != *to;
        let (left, gone) = match there.filter(|there| there.ino != ino) {
            None => (None, 0),
            Some(there) if *replaced == Some(there.ino) && self.may_go(ctx, locks, there.ino)? => {
                ctx.remove_named_dir(&mut decision, there.ino, time);
                (None, 1)
            }
            Some(there) if self.swapped_with(lost) == Some(there.ino) => (Some(there), 0),
            // Nobody can tell any more how that came there, or that it has gone.
            Some(_) => {
                let beside = ctx.free_beside(dir, to, ino)?;
                decision.entry(dir, &from.name, None);
                decision.names_changed(dir, &parent, 0, 0, (time, time));
                ctx.place_beside(&mut decision, &entry, from.clone(), beside, time);
                ctx.decide(decision);
                return ctx.pass(stamp);
            }
        };
        if leaves {
            decision.entry(dir, &from.name, left);
        }
        let parent = staged_dir(&decision, dir).unwrap_or(parent);
        decision.names_changed(dir, &parent, -i64::from(gone), -gone, (time, time));
        ctx.take_place(&mut decision, &entry, place, time);
        let (place, from, replaced) = (place.clone(), from.clone(), *replaced);
        let chain = ctx.chain_seen();
        ctx.repost(&mut decision, &JournalEntry::Place { ino, place, from, replaced, chain, time });
        ctx.decide(decision);
        Ok(())
    }

    pub(super) fn redo_fixed(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        stamp: Stamp,
        ino: Ino,
        place: &DirPlace,
        fixed: &StaticAttrs,
        xattrs: &Xattrs,
    ) -> Result<(), Blocked> {
        let row = ctx.state.dir(ino)?.filter(|row| row.owned.is_some()).cloned();
        let Some(mut row) = row.filter(|row| row.fixed.version < fixed.version) else {
            return ctx.pass(stamp);
        };
        ctx.acls_must_be_loaded(ino)?;
        let mut decision = Decision::new();
        row.fixed = *fixed;
        ctx.follow_acls(&mut decision, ino, &mut row, xattrs);
        // Its stub has moved since, or before that, and this is not known again.
        let place =
            self.place_to_be(ctx, locks, ino, std::cmp::max_by_key(&row.place, place, |place| place.version));
        decision.dir(ino, row);
        ctx.fix_stub_again(&mut decision, ino, &place, *fixed, xattrs.acls())?;
        ctx.decide(decision);
        Ok(())
    }

    /// Whether this is an empty directory that is owned here.
    pub(super) fn may_go(&self, ctx: &Ctx, locks: &NameLocks, ino: Ino) -> Result<bool, Blocked> {
        if ctx.state.dir(ino)?.is_none_or(|row| row.owned.is_none()) {
            return Ok(false);
        }
        ctx.skeleton_must_be_loaded(ino)?;
        match (Look { ctx, locks, missing: self }).may_seal(ino) {
            Err(Blocked::Fail(Errno::ENOTEMPTY)) => Ok(false),
            // Whether it is empty may be known later.
            other => other.map(|()| true),
        }
    }

    /// Whether something that was earlier may still change names of directories in a directory, by what is done
    /// again: all that is told has an order, but not that in which it is told.
    pub(super) fn is_preceded(&self, ctx: &Ctx, stamp: Stamp, dir: Ino) -> bool {
        let lent = ctx.lent_txns();
        let lent = lent.iter().filter_map(|txn| ctx.state.txn(*txn));
        let lent = lent.map(|row| (row.stamps.prepared, &row.part.work));
        let lost = self.redo.parts().map(|(when, lost)| (when, &lost.part.work));
        let mut works = lent.chain(lost);
        let is_in = |entry: &JournalEntry| entry.about().is_some_and(|(_, place)| place.parent == dir);
        let mut before = self.redo.entries().take_while(|(when, _)| *when < stamp);
        self.has_witnesses()
            || works.any(|(when, work)| {
                when < stamp
                    && matches!(work, ParticipantWork::BorrowName { renaming, .. } if renaming.to.dir == dir)
            })
            || before.any(|(_, entry)| is_in(entry))
    }

    /// Whether a directory that was renamed within another is there, and its new name is free, as it was then.
    pub(super) fn place_fits(&self, ctx: &Ctx, entry: &JournalEntry) -> Result<bool, Blocked> {
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
    pub(super) fn swapped_with(&self, entry: &JournalEntry) -> Option<Ino> {
        let mut others = self.redo.entries().map(|(_, other)| other);
        others.find(|other| is_pair(entry, other))?.about().map(|(ino, _)| ino)
    }
}

impl Ctx {
    /// The stub of a directory of this island's may have missed how that is.
    pub(super) fn fix_stub_again(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        place: &DirPlace,
        fixed: StaticAttrs,
        xattrs: Xattrs,
    ) -> Result<(), Blocked> {
        self.entry_must_be_loaded(place)?;
        self.child_must_be_loaded(place, ino)?;
        self.apply_to_stub(decision, ino, place, &fixed);
        let place = place.clone();
        self.repost(decision, &JournalEntry::StaticAttrs { ino, place, fixed, xattrs });
        Ok(())
    }

    /// Nothing is there that the entry was about: only the clock moves, to where the others have it.
    pub(super) fn pass(&mut self, stamp: Stamp) -> Result<(), Blocked> {
        let me = self.config.id;
        if self.state.clocks().get(me) < stamp {
            let mut decision = Decision::new();
            decision.push(RowChange::Clock { island: me, stamp });
            self.decide(decision);
            self.posts.durable_after(self.state.seq(), stamp);
        }
        Ok(())
    }

    /// A directory above one that was made: there again, and owned if the table says so.
    pub(super) fn add_ancestor(&mut self, decision: &mut Decision, above: &Ancestor, time: Time) {
        let row = self.dir_now(decision, above.ino);
        let mine = self.config.owner(above.key) == self.config.id;
        let owned = row.as_ref().is_some_and(|row| row.owned.is_some());
        if row.is_none() || (mine && !owned) {
            self.add_skeleton(decision, above, (mine && !owned).then(|| OwnedDir::empty(time)));
        }
    }

    /// Its name at the owner of the directory above: if another has it now, one beside it.
    pub(crate) fn name_ancestor(&mut self, decision: &mut Decision, new: &Ancestor, time: Time) {
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
            Some(there) if there.ino == new.ino && there.stub.is_some() => {}
            // It came as a directory of the skeleton, before its parent was owned here again. Such a name is not counted.
            Some(there) if there.ino == new.ino => {
                decision.names_changed(parent, &row, 1, 1, (time, time));
                decision.entry(parent, &name, Some(entry));
            }
            None => {
                decision.names_changed(parent, &row, 1, 1, (time, time));
                decision.entry(parent, &name, Some(entry));
            }
            Some(_) => {
                let is_free = |beside: &Name| self.entry_now(decision, parent, beside).is_none();
                let beside = name.beside(new.ino).find(is_free).expect("there is no end of them");
                decision.names_changed(parent, &row, 1, 1, (time, time));
                self.place_beside(decision, &entry, EntryRef { dir: parent, name }, beside, time);
            }
        }
    }

    /// A directory gets a name beside its own.
    pub(super) fn place_beside(
        &mut self,
        decision: &mut Decision,
        entry: &Entry,
        from: EntryRef,
        beside: Name,
        time: Time,
    ) {
        let stamp = self.stamp();
        decision.stamp(stamp);
        let moves = entry.stub.as_ref().expect("a directory has a stub").place.moves;
        let version = PlaceVersion { moves, stamp };
        let place = DirPlace { version, parent: from.dir, name: Some(beside) };
        self.take_place(decision, entry, &place, time);
        let (ino, chain) = (entry.ino, self.chain_seen());
        let moved = JournalEntry::Place { ino, place, from, replaced: None, chain, time };
        self.post(decision, stamp, &moved, Audience::All, false);
    }

    /// The rows of a directory that is at `place` now, at the owner of the one above.
    pub(super) fn take_place(&mut self, decision: &mut Decision, entry: &Entry, place: &DirPlace, now: Time) {
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
            self.move_in_skeleton(decision, ino, place, now);
        }
    }

    /// Makes sure that the rows which [`Ctx::take_place`] reads are in memory. Directories whose ancestors are in memory
    /// are `seen`.
    pub(super) fn rows_of_move_must_be_loaded(
        &self,
        ino: Ino,
        to: Ino,
        seen: &mut IdSet<Ino>,
    ) -> Result<(), Blocked> {
        for dir in [ino, to] {
            if self.state.dir(dir)?.is_some() {
                self.unseen_skeleton_must_be_loaded(dir, seen)?;
            }
        }
        Ok(())
    }

    /// Whether a directory is above another, or the ancestors of that one are not known.
    pub(super) fn is_above(&self, decision: &Decision, ino: Ino, below: Ino) -> bool {
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

    /// A name beside one, for something that has to give way.
    pub(super) fn free_beside(&self, dir: Ino, name: &Name, ino: Ino) -> Result<Name, Blocked> {
        for beside in name.beside(ino) {
            if self.state.entry(dir, &beside)?.is_none() {
                return Ok(beside);
            }
        }
        unreachable!("there is no end of them")
    }

    /// An entry that has its version already is sent to all islands once more, for those that missed it.
    pub(super) fn repost(&mut self, decision: &mut Decision, entry: &JournalEntry) {
        let stamp = self.stamp();
        decision.stamp(stamp);
        self.post(decision, stamp, entry, Audience::All, false);
    }
}

/// Whether a name that a directory was renamed from or to is locked. The transaction that has locked it sees
/// it as it is, and ends.
pub(super) fn is_held_for(locks: &NameLocks, entry: &JournalEntry) -> bool {
    let JournalEntry::Place { place, from, .. } = entry else { return false };
    let to = place.name.as_ref();
    to.into_iter().chain([&from.name]).any(|name| locks.holder(place.parent, name).is_some())
}
