//! The skeleton (`DESIGN` 5): the directories above those that are owned here, and their names, so that paths
//! can be walked. The owners of their parents decide about the names; here they follow by journals, chains
//! and comparisons.

use atoll_core::map::IdSet;
use atoll_core::{Ino, Stamp, Time, TxnId};
use atoll_posix::{Errno, Kind};
use atoll_proto::{Ancestor, Dir, DirPlace, Entry, OwnedDir, Xattrs};

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, Entails};
use crate::ctx::request::{Blocked, Next};

/// Directories that one record takes out of the skeleton because nothing needs them: those above one that goes may be
/// very many. Each takes its row, its name and the new count of the one above: some 650 bytes at most.
const PRUNED_PER_RECORD: usize = 1024;

impl Ctx {
    /// Becomes a directory's owner, with its ancestors as skeleton.
    pub(crate) fn adopt(
        &mut self,
        decision: &mut Decision,
        new: &Ancestor,
        chain: &[Ancestor],
        time: Time,
        txn: Option<TxnId>,
    ) {
        self.merge_ancestors(decision, chain);
        self.add_skeleton(decision, new, Some(OwnedDir { adopted: txn, ..OwnedDir::empty(time) }));
    }

    /// Carries out, or takes back, prepared work.
    pub(crate) fn finish_dir(
        &mut self,
        decision: &mut Decision,
        ino: Ino,
        adopted: bool,
        commit: bool,
    ) -> Result<(), Blocked> {
        let Some(mut row) = self.state.dir(ino)?.cloned() else { return Ok(()) };
        if adopted == commit {
            let Some(owned) = row.owned.as_mut() else {
                decision.misfit(ino, "what was prepared of it ends, and another island owns it");
                return Ok(());
            };
            owned.sealed = None;
            owned.adopted = None;
            decision.dir(ino, row);
            if !adopted {
                // Its name may be another's since.
                decision.displaced.push(ino);
            }
        } else {
            if row.owned.is_some_and(|owned| owned.entries > 0) {
                decision.misfit(ino, "it goes, and has names");
                return Ok(());
            }
            self.skeleton_must_be_loaded(ino)?;
            if adopted {
                self.remove_dir(decision, ino);
            } else {
                let time = self.time();
                self.remove_named_dir(decision, ino, time);
            }
        }
        Ok(())
    }

    /// Adds or updates a directory of the skeleton; `owned` makes this island its owner. The directories
    /// above must be there.
    pub(crate) fn add_skeleton(&mut self, decision: &mut Decision, new: &Ancestor, owned: Option<OwnedDir>) {
        if let Some(mut row) = self.dir_now(decision, new.ino) {
            let mut changed = owned.is_some();
            if row.fixed.version < new.fixed.version {
                row.fixed = new.fixed;
                self.follow_acls(decision, new.ino, &mut row, &new.xattrs);
                changed = true;
            }
            let moved = row.place.version < new.place.version;
            row.owned = owned.or(row.owned);
            if changed {
                decision.dir(new.ino, row);
            }
            if moved {
                self.move_in_skeleton(decision, new.ino, &new.place, Time::default());
            }
            return;
        }
        let parent = new.place.parent;
        if self.dir_now(decision, parent).is_none() {
            return decision.misfit(parent, "a directory is placed in it, and it is not known");
        }
        let mut row = new_row(new, owned);
        if row.owned.is_some() || !self.is_kept_removed(new.ino) {
            set_xattrs(decision, new.ino, &mut row, new.xattrs.acls());
        }
        decision.dir(new.ino, row);
        if new.suspected {
            self.suspect_stale(decision);
        }
        decision.entails(Entails::DirPlaced(new.ino));
        self.skeleton_name(decision, &new.place, new.ino, true);
        self.count_below(decision, parent, 1);
    }

    /// Directories of the skeleton below one: more or fewer. Prunes nothing.
    pub(crate) fn count_below(&mut self, decision: &mut Decision, dir: Ino, by: i32) {
        let Some(mut row) = self.dir_now(decision, dir) else {
            return decision.misfit(dir, "a directory comes to it or leaves it, and it is not known");
        };
        row.children = decision.counted(dir, row.children, by);
        decision.dir(dir, row);
    }

    /// Takes a directory out of the skeleton, and prunes directories that were there only for its sake.
    pub(crate) fn remove_dir(&mut self, decision: &mut Decision, ino: Ino) {
        self.remove_dir_but(decision, ino, false);
    }

    /// The same. `is_kept`: but for its locks and extended attributes, which a mount may still use.
    pub(super) fn remove_dir_but(&mut self, decision: &mut Decision, ino: Ino, is_kept: bool) {
        let mut at = ino;
        loop {
            let Some(mut row) = self.dir_now(decision, at) else {
                return decision.misfit(at, "it goes, and is not known");
            };
            if is_kept && at == ino {
                (row.has_xattrs, row.has_acl) = (false, false);
            } else if row.owned.is_some() {
                self.drop_locks(decision, at);
            }
            if row.children > 0 || row.foreign_names > 0 {
                // What is below is gone at its owner; that is on its way here, and takes this along.
                decision.dir(at, Dir { owned: None, ..row });
                break;
            }
            decision.no_dir(at);
            if row.has_xattrs {
                decision.xattrs(at, None);
            }
            self.skeleton_name(decision, &row.place, at, false);
            let parent = row.place.parent;
            self.count_below(decision, parent, -1);
            if !self.dir_now(decision, parent).is_some_and(|above| is_needless(parent, &above)) {
                break;
            }
            if decision.pruned >= PRUNED_PER_RECORD {
                self.skeleton.prune_later(parent);
                break;
            }
            decision.pruned += 1;
            at = parent;
        }
    }

    /// Begins after a start: the last run may have ended before everything was pruned that its last record
    /// left behind.
    pub(crate) fn begin_skeleton(&mut self) {
        let needless = self.state.dirs_in_memory().filter(|(ino, dir)| is_needless(*ino, dir));
        let needless: Vec<Ino> = needless.map(|(ino, _)| ino).collect();
        needless.into_iter().for_each(|ino| self.skeleton.prune_later(ino));
    }

    /// Takes a directory out of the skeleton if nothing needs it any more.
    pub(crate) fn prune(&mut self, decision: &mut Decision, dir: Ino) {
        let row = self.dir_now(decision, dir);
        if !decision.prunes_nothing && row.is_some_and(|row| is_needless(dir, &row)) {
            self.remove_dir(decision, dir);
        }
    }

    /// In a directory that is not owned here, the names of skeleton directories are kept so that
    /// paths can be walked. (At the owner the entry is there anyway.)
    pub(crate) fn skeleton_name(&mut self, decision: &mut Decision, place: &DirPlace, ino: Ino, there: bool) {
        let Some(name) = &place.name else { return };
        let parent = self.dir_now(decision, place.parent);
        if parent.is_none_or(|dir| dir.owned.is_some()) {
            return;
        }
        let now = self.entry_now(decision, place.parent, name);
        if there {
            let other = now.as_ref().filter(|entry| entry.ino != ino);
            let other = other.and_then(|e| Some((e.ino, self.dir_now(decision, e.ino)?.place)));
            if let Some((other, its)) = other.filter(|(_, its)| is_one_name(its, place)) {
                // A name that was lost and given again is here before the journal of who had it first. All of this
                // directory's names are of one clock; a move's own stamp says nothing.
                let stamp = place.version.stamp;
                let is_later = stamp != Stamp::default() && stamp < its.version.stamp;
                decision.displaced.push(if is_later { ino } else { other });
                if is_later {
                    return;
                }
            }
            if let Some(file) = now.filter(|entry| entry.kind != Kind::Directory) {
                self.skeleton.shadow(place.parent, name, file);
            }
            let home = self.config.id;
            let entry = Entry { ino, kind: Kind::Directory, home, stub: None };
            decision.entry(place.parent, name, Some(entry));
            return;
        }
        // Another directory may have taken the name in the same journal.
        match now {
            // The plain tree could not have it there while the directory was.
            Some(entry) if entry.ino != ino => decision.entry(place.parent, name, Some(entry)),
            _ => {
                let file = self.skeleton.unshadow(place.parent, name);
                decision.entry(place.parent, name, file);
            }
        }
    }

    /// Everything that [`Ctx::remove_dir`] reads must be in memory. Ancestors that were told at different moments
    /// may go in a circle until they are compared, and pruning ends there: each has something below it.
    pub(crate) fn skeleton_must_be_loaded(&self, ino: Ino) -> Result<(), Blocked> {
        self.unseen_skeleton_must_be_loaded(ino, &mut IdSet::default())
    }

    /// The same for one directory of several: what is above one that was `seen` is in memory. So a chain of ancestors
    /// takes as many steps as it is long.
    pub(crate) fn unseen_skeleton_must_be_loaded(
        &self,
        ino: Ino,
        seen: &mut IdSet<Ino>,
    ) -> Result<(), Blocked> {
        let mut at = ino;
        while seen.insert(at) {
            let dir = self.state.dir(at)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
            self.entry_must_be_loaded(&dir.place)?;
            at = dir.place.parent;
        }
        Ok(())
    }

    /// Prunes directories that a record has left behind in the skeleton, by further records. Those of an
    /// earlier run are in memory: no checkpoint comes between the first record and the last.
    pub(crate) fn prune_rest(&mut self) {
        while let Some(ino) = self.skeleton.next_to_prune() {
            self.state.begin_reads();
            match self.skeleton_must_be_loaded(ino) {
                Ok(()) => {
                    let mut decision = Decision::new();
                    self.prune(&mut decision, ino);
                    self.decide(decision);
                }
                Err(Blocked::Load(loads)) => {
                    self.skeleton.prune_later(ino);
                    return self.load(loads, Next::Nothing);
                }
                // It is gone.
                Err(_) => {}
            }
        }
    }
}

/// Nothing below it, and no name in it, is this island's.
pub(crate) fn is_needless(ino: Ino, dir: &Dir) -> bool {
    dir.children == 0 && dir.foreign_names == 0 && dir.owned.is_none() && ino != Ino::ROOT
}

/// The row of a directory that nothing is known of but this, yet without its extended attributes.
pub(crate) fn new_row(new: &Ancestor, owned: Option<OwnedDir>) -> Dir {
    Dir {
        key: new.key,
        birth_bytes: new.birth_bytes,
        place: new.place.clone(),
        fixed: new.fixed,
        has_xattrs: false,
        has_acl: false,
        children: 0,
        foreign_names: 0,
        owned,
        beside: None,
    }
}

/// Whether two places are one name, whenever that was.
pub(crate) fn is_one_name(one: &DirPlace, other: &DirPlace) -> bool {
    (one.parent, &one.name) == (other.parent, &other.name)
}

/// Sets all extended attributes of a directory, with the flags in its row that tell of them.
pub(crate) fn set_xattrs(decision: &mut Decision, ino: Ino, row: &mut Dir, xattrs: Xattrs) {
    let had = std::mem::replace(&mut row.has_xattrs, !xattrs.0.is_empty());
    row.has_acl = xattrs.has_acls();
    if had || row.has_xattrs {
        decision.xattrs(ino, row.has_xattrs.then_some(xattrs));
    }
}
