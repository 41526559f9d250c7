//! Changes of this island's rows when names are given, removed and exchanged.

use atoll_core::{Ino, IslandId, Time};
use atoll_proto::{Chain, Entry, ParticipantWork, RenameSpec};

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, names_changed_at};
use crate::ctx::request::{Blocked, PendingRequest};
use crate::rows::moves::{arrived, replaced_dir};

impl Ctx {
    /// The lender's end of a rename. The rows that it reads are in memory.
    pub(crate) fn finish_lend(&mut self, decision: &mut Decision, renaming: &RenameSpec, commit: bool) {
        if commit {
            self.apply_renaming(decision, renaming, true, None);
            if let Some((there, _)) = replaced_dir(renaming) {
                self.forget_adoption_of(decision, there.ino);
            }
        }
        if self.homed_here(renaming.there.as_ref()).is_some() && renaming.swaps() {
            self.release_name(decision, &renaming.from);
        }
    }

    /// All that happens here: the names that are owned here, and the files that are homed here. The
    /// orphan that it leaves to the caller. `had`: the file's home has it under the old name.
    pub(crate) fn apply_renaming(
        &mut self,
        decision: &mut Decision,
        renaming: &RenameSpec,
        had: bool,
        call: Option<&PendingRequest>,
    ) -> Option<Ino> {
        let RenameSpec { from, to, file, there, time, .. } = renaming;
        let (time, swaps) = (*time, renaming.swaps());
        let owned = |island: &Self, dir| island.in_memory(dir).is_some_and(|dir| dir.owned.is_some());
        let dirs = |entry: Option<&Entry>| i32::from(entry.is_some_and(|entry| entry.stub.is_some()));
        let (goes, comes) = (dirs(Some(file)), dirs(there.as_ref()));
        if owned(self, from.dir) {
            let left = there.as_ref().filter(|_| swaps).map(|there| arrived(there, renaming));
            let subdirs = if swaps { comes - goes } else { -goes };
            self.change_names(decision, from.dir, if swaps { 0 } else { -1 }, subdirs, time);
            decision.entry(from.dir, &from.name, left);
        }
        if owned(self, to.dir) {
            self.change_names(decision, to.dir, i64::from(there.is_none()), goes - comes, time);
            decision.entry(to.dir, &to.name, Some(arrived(file, renaming)));
        }
        if self.homed_here(Some(file)).is_some() {
            let (ino, from, to) = (file.ino, from.clone(), to.clone());
            let chain = Chain::default();
            self.do_home(decision, &ParticipantWork::MoveName { ino, from, to, by: None, had, time, chain });
        }
        let there = self.homed_here(there.as_ref())?;
        let (ino, at) = (there.ino, to.clone());
        if swaps {
            let (to, chain) = (from.clone(), Chain::default());
            self.do_home(
                decision,
                &ParticipantWork::MoveName { ino, from: at, to, by: None, had: true, time, chain },
            );
            return None;
        }
        self.note_name_removed(decision, &at, ino);
        let row = self.state.inode(ino).ok().flatten().cloned()?;
        self.drop_name(decision, row, to.dir, call.map(PendingRequest::session), time)
    }

    /// The work of homes that are neither this island nor the lender of the new name.
    pub(crate) fn works_elsewhere(
        &self,
        renaming: &RenameSpec,
        there_by: Option<u32>,
        lender: Option<(IslandId, &Chain)>,
    ) -> Result<Vec<(IslandId, ParticipantWork)>, Blocked> {
        let RenameSpec { from, to, file, there, time, .. } = renaming;
        let elsewhere = |entry: &Entry| {
            let home = entry.home;
            entry.stub.is_none() && home != self.config.id && lender.is_none_or(|(l, _)| l != home)
        };
        let mut works = Vec::new();
        if elsewhere(file) {
            let chain = match lender {
                Some((_, chain)) => chain.clone(),
                None => self.chain_to(to.dir)?,
            };
            let (from, to, by) = (from.clone(), to.clone(), renaming.by);
            works.push((
                file.home,
                ParticipantWork::MoveName { ino: file.ino, from, to, by, had: true, time: *time, chain },
            ));
        }
        if let Some(there) = there.as_ref().filter(|there| elsewhere(there)) {
            let (ino, by, time) = (there.ino, there_by, *time);
            works.push((
                there.home,
                if renaming.swaps() {
                    let chain = self.chain_to(from.dir)?;
                    ParticipantWork::MoveName {
                        ino,
                        from: to.clone(),
                        to: from.clone(),
                        by,
                        had: true,
                        time,
                        chain,
                    }
                } else {
                    ParticipantWork::RemoveName { ino, at: to.clone(), by, had: true, time }
                },
            ));
        }
        Ok(works)
    }

    /// Names of a directory were lent before.
    pub(crate) fn is_lent(&self, dir: Ino) -> Result<bool, Blocked> {
        Ok(self
            .state
            .dir(dir)?
            .and_then(|row| row.owned.as_ref())
            .is_some_and(|owned| owned.others.ever_borrowed))
    }

    /// Makes sure that the rows which [`Ctx::apply_renaming`] reads are in memory.
    pub(crate) fn renaming_must_be_loaded(&self, renaming: &RenameSpec) -> Result<(), Blocked> {
        for entry in [Some(&renaming.file), renaming.there.as_ref()] {
            if let Some(entry) = self.homed_here(entry) {
                self.state.inode(entry.ino)?;
            }
        }
        self.name_must_be_loaded(&renaming.from)?;
        self.name_must_be_loaded(&renaming.to)
    }

    /// An entry of a file that is homed here.
    pub(crate) fn homed_here<'a>(&self, entry: Option<&'a Entry>) -> Option<&'a Entry> {
        entry.filter(|entry| entry.stub.is_none() && entry.home == self.config.id)
    }

    /// The ancestors of a directory, with the journals that were seen when they were read. `ENAMETOOLONG` as
    /// for [`Ctx::chain`].
    pub(crate) fn chain_to(&self, dir: Ino) -> Result<Chain, Blocked> {
        Ok(Chain { vector: self.state.public_clocks().iter().collect(), dirs: self.chain(dir)? })
    }

    /// A directory that is owned here has got names, or has lost them, at `time`. It may have changed since.
    pub(crate) fn change_names(
        &mut self,
        decision: &mut Decision,
        dir: Ino,
        entries: i64,
        subdirs: i32,
        time: Time,
    ) {
        let row = self.dir_now(decision, dir).expect("owned here");
        let owned = row.owned.as_ref().expect("owned here");
        let times = (names_changed_at(owned.mtime, owned.ctime, time), owned.ctime.max(time));
        decision.names_changed(dir, &row, entries, subdirs, times);
    }
}
