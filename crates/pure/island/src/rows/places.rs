//! Changes of directories by journals: their places and static attributes, in the skeleton and in stubs.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_posix::Kind;
use atoll_proto::{Dir, DirPlace, Entry, JournalEntry, ParticipantWork, StaticAttrs, Xattrs};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::Blocked;
use crate::rows::skeleton::set_xattrs;

impl Ctx {
    pub(crate) fn apply_entry(&mut self, decision: &mut Decision, entry: &JournalEntry) {
        match entry {
            JournalEntry::Place { ino, place, time, .. } => {
                let newer = self.dir_now(decision, *ino).is_some_and(|row| row.place.version < place.version);
                // What is not known here went since: the directory has moved on, which comes next.
                if newer && self.dir_now(decision, place.parent).is_some() {
                    self.move_in_skeleton(decision, *ino, place, *time);
                }
            }
            JournalEntry::StaticAttrs { ino, place, fixed, xattrs } => {
                if let Some(mut row) = self.dir_now(decision, *ino)
                    && row.fixed.version < fixed.version
                {
                    row.fixed = *fixed;
                    self.follow_acls(decision, *ino, &mut row, xattrs);
                    decision.dir(*ino, row);
                }
                self.apply_to_stub(decision, *ino, place, fixed);
            }
            JournalEntry::ClockBump => {}
        }
    }

    /// The stub of a child directory follows its static attributes, where its parent is owned.
    pub(crate) fn apply_to_stub(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        place: &DirPlace,
        fixed: &StaticAttrs,
    ) {
        let owned = self.in_memory(place.parent).is_some_and(|dir| dir.owned.is_some());
        let follows = owned && !planted(Bug::StubStays);
        let Some(name) = place.name.as_ref().filter(|_| follows) else { return };
        let found = match self.state.entry(place.parent, name) {
            Ok(Some(entry)) if entry.ino == ino => Some((name.clone(), entry.clone())),
            // Its owner did not know its latest name: look through all of them.
            _ => self.child_by_ino(place.parent, ino),
        };
        let Some((name, mut entry)) = found else { return self.apply_to_lent(decision, ino, fixed) };
        if let Some(stub) = entry.stub.as_mut()
            && stub.fixed.version < fixed.version
        {
            stub.fixed = *fixed;
            decision.entry(place.parent, &name, Some(entry));
        }
    }

    /// A directory is on its way to a name that is lent for it: its stub comes with it.
    pub(crate) fn apply_to_lent(&mut self, decision: &mut Decision, ino: Ino, fixed: &StaticAttrs) {
        for txn in self.lent_txns() {
            let Some(mut row) = self.state.txn(txn).cloned() else { continue };
            let ParticipantWork::BorrowName { renaming, .. } = &mut row.part.work else { continue };
            if let Some(stub) = renaming.file.stub.as_mut().filter(|_| renaming.file.ino == ino)
                && stub.fixed.version < fixed.version
            {
                stub.fixed = *fixed;
                decision.txn(txn, Some(row));
            }
        }
    }

    /// A stub whose name is another one by now is looked for among all.
    pub(crate) fn child_must_be_loaded(&self, place: &DirPlace, ino: Ino) -> Result<(), Blocked> {
        let Some(name) = &place.name else { return Ok(()) };
        if self.state.dir(place.parent)?.is_none_or(|dir| dir.owned.is_none())
            || self.state.entry(place.parent, name)?.is_some_and(|entry| entry.ino == ino)
        {
            return Ok(());
        }
        self.state.entries_after(place.parent, 0).map(|_| ()).map_err(Blocked::from)
    }

    pub(crate) fn entry_must_be_loaded(&self, place: &DirPlace) -> Result<(), Blocked> {
        if let (Some(name), Some(_)) = (&place.name, self.state.dir(place.parent)?) {
            let entry = self.state.entry(place.parent, name)?;
            if let Some(skeleton) = entry.filter(|e| e.kind == Kind::Directory && e.stub.is_none()) {
                self.state.dir(skeleton.ino)?;
            }
        }
        Ok(())
    }

    /// A directory gets the ACLs that are told of it. Its other extended attributes are its owner's alone.
    pub(crate) fn follow_acls(&self, decision: &mut Decision, ino: Ino, row: &mut Dir, told: &Xattrs) {
        if row.owned.is_none() && self.is_kept_removed(ino) {
            return;
        }
        let acls = if row.owned.is_some() && row.has_xattrs {
            let own = self.state.xattrs(ino).expect("see `need_acls`");
            own.map_or_else(|| told.acls(), |own| own.with_acls_of(told))
        } else {
            told.acls()
        };
        set_xattrs(decision, ino, row, acls);
    }

    /// Makes sure that the rows which [`Ctx::follow_acls`] reads are in memory.
    pub(crate) fn acls_must_be_loaded(&self, ino: Ino) -> Result<(), Blocked> {
        if self.state.dir(ino)?.is_some_and(|row| row.owned.is_some() && row.has_xattrs) {
            self.state.xattrs(ino)?;
        }
        Ok(())
    }

    pub(crate) fn child_by_ino(&self, parent: Ino, ino: Ino) -> Option<(Name, Entry)> {
        let (mut rows, _) = self.state.entries_after(parent, 0).ok()?;
        rows.find(|(_, _, e)| e.ino == ino).map(|(_, name, entry)| (name.clone(), entry.clone()))
    }
}
