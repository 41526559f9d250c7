//! The home of a file whose names are in directories that other islands own (`DESIGN` 6). It counts the
//! names, lays them, and loses them, each as a participant of a transaction that the name's owner
//! coordinates.
//!
//! Such a name is a row here too: an entry in a directory of the skeleton, which stays as long as it has one
//! (`Dir::homes`). Invariant: a file's link count is the number of these names and of its names in
//! directories owned here.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, SessionId, Stamp, Time, TxnId};
use atoll_proto::{
    Ancestor, Chain, Entry, EntryRef, Inode, ParticipantWork, PeerOp, RowChange, Vote, VoteInfo,
};

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, Entails};
use crate::ctx::request::Blocked;
use crate::rows::chains::VectorOrder;

/// Names that one file may have: native file systems hold each as a hard link.
pub(crate) const LINKS_MAX: u32 = 60_000;

impl Ctx {
    /// Puts a chain of ancestors into the skeleton, but for those above a directory that is known to be elsewhere by
    /// now. A directory that one of them leaves is pruned by a later record: ancestors that were told at different moments
    /// may go in a circle, and then pruning it would take away others of the chain.
    pub(crate) fn merge_ancestors(&mut self, decision: &mut Decision, dirs: &[Ancestor]) {
        let prunes_nothing = std::mem::replace(&mut decision.prunes_nothing, true);
        for above in dirs {
            let old = self.dir_now(decision, above.ino).map(|row| row.place.parent);
            self.add_skeleton(decision, above, None);
            if let Some(old) = old.filter(|old| *old != above.place.parent) {
                self.skeleton.prune_later(old);
            }
        }
        decision.prunes_nothing = prunes_nothing;
        for above in dirs.iter().rev().skip(1) {
            self.prune(decision, above.ino);
        }
    }

    /// The same of a chain that may be ahead of the journals that were applied here, which then has known directories only
    /// ([`Ctx::order_of_chain`]). These change by the journal alone: what an island has from a chain alone it cannot bring back to an owner
    /// that has lost it.
    pub(crate) fn merge_ancestors_if_applied(&mut self, decision: &mut Decision, chain: &Chain) {
        if self.order_of(&chain.vector) == VectorOrder::Same {
            self.merge_ancestors(decision, &chain.dirs);
        }
    }

    /// Carries out, or takes back, a home's prepared work. The rows that it reads are in memory.
    pub(crate) fn finish_home(&mut self, decision: &mut Decision, work: &ParticipantWork, commit: bool) {
        if commit {
            self.do_home(decision, work);
        }
        if let Some(at) = work.brings() {
            self.release_name(decision, at);
        }
    }

    /// Undoes `pin` of `ops/prepare.rs`.
    pub(crate) fn release_name(&mut self, decision: &mut Decision, at: &EntryRef) {
        let row = self.dir_now(decision, at.dir);
        if row.is_some_and(|row| row.owned.is_none()) {
            self.count_homes(decision, at.dir, -1);
            self.prune(decision, at.dir);
        }
    }

    /// Does a home's part, if the directories are known.
    pub(crate) fn do_home(&mut self, decision: &mut Decision, work: &ParticipantWork) {
        match work {
            ParticipantWork::AddName { ino, at, time, .. } => {
                let Some(mut row) = self.file_now(*ino) else { return };
                self.note_name_added(decision, at, &row);
                self.gain_name(decision, &mut row);
                row.attr.ctime = row.attr.ctime.max(*time);
                decision.inode(row);
            }
            ParticipantWork::RemoveName { had: false, .. } => {}
            ParticipantWork::RemoveName { ino, at, time, .. } => {
                self.note_name_removed(decision, at, *ino);
                if let Some(row) = self.file_now(*ino).filter(|row| row.attr.nlink > 0) {
                    self.drop_name(decision, row, at.dir, None, *time);
                }
            }
            ParticipantWork::MoveName { ino, from, to, had, time, .. } => {
                // What comes first keeps the skeleton that both may share.
                if let Some(mut row) = self.file_now(*ino) {
                    self.note_name_added(decision, to, &row);
                    if !had {
                        self.gain_name(decision, &mut row);
                    }
                    row.attr.ctime = row.attr.ctime.max(*time);
                    decision.inode(row);
                }
                if *had {
                    self.note_name_removed(decision, from, *ino);
                }
            }
            _ => unreachable!("not a home's"),
        }
    }

    /// A file that is homed here has a name; in another island's directory that is a row here too.
    pub(crate) fn note_name_added(&mut self, decision: &mut Decision, at: &EntryRef, file: &Inode) {
        let dir = self.dir_now(decision, at.dir);
        if dir.is_none_or(|dir| dir.owned.is_some()) {
            return;
        }
        self.count_homes(decision, at.dir, 1);
        let entry = Entry { ino: file.attr.ino, kind: file.attr.kind, home: self.config.id, stub: None };
        decision.entry(at.dir, &at.name, Some(entry));
        decision.entails(Entails::NameElsewhere { ino: file.attr.ino, at: at.clone() });
    }

    /// It has lost that name.
    pub(crate) fn note_name_removed(&mut self, decision: &mut Decision, at: &EntryRef, ino: Ino) {
        let dir = self.dir_now(decision, at.dir);
        if dir.is_none_or(|dir| dir.owned.is_some()) {
            return;
        }
        // Another may have taken the name already: the order of their outcomes is not that of the names.
        if self.entry_now(decision, at.dir, &at.name).is_some_and(|entry| entry.ino == ino) {
            decision.entry(at.dir, &at.name, None);
        }
        self.skeleton.forget_shadowed(at.dir, &at.name, ino);
        self.count_homes(decision, at.dir, -1);
        self.prune(decision, at.dir);
    }

    /// A file loses a name in a directory. If it was the last one, the file goes, or stays as an orphan while a
    /// mount may have it open. Tells which orphan was left to `by`; the other mounts are told of it.
    pub(crate) fn drop_name(
        &mut self,
        decision: &mut Decision,
        mut row: Inode,
        dir: Ino,
        by: Option<SessionId>,
        now: Time,
    ) -> Option<Ino> {
        row.attr.nlink = row.attr.nlink.saturating_sub(1);
        row.attr.ctime = row.attr.ctime.max(now);
        if row.attr.nlink > 0 {
            decision.inode(row);
            return None;
        }
        let holders = self.possible_openers(dir);
        self.file_without_name(decision, row, holders, by)
    }

    /// A file that has no name any more goes, or stays as an orphan for these. Tells which orphan was left to `by`; the other ones are
    /// told of it.
    pub(crate) fn file_without_name(
        &mut self,
        decision: &mut Decision,
        mut row: Inode,
        holders: Vec<SessionId>,
        by: Option<SessionId>,
    ) -> Option<Ino> {
        let ino = row.attr.ino;
        if holders.is_empty() || planted(Bug::OrphanDropped) {
            self.drop_file(decision, &row);
            return None;
        }
        for session in &holders {
            decision.push(RowChange::Held { session: *session, ino, on: true });
        }
        self.notify_unlinked(&holders, by, ino);
        let mine = by.is_some_and(|by| holders.contains(&by));
        row.orphan_of = holders;
        decision.inode(row);
        mine.then_some(ino)
    }

    /// The name that a work takes away from a file that is homed here.
    pub(crate) fn takes_away<'a>(&self, work: &'a ParticipantWork) -> Option<(Ino, &'a EntryRef)> {
        match work {
            ParticipantWork::RemoveName { ino, at, .. } | ParticipantWork::MoveName { ino, from: at, .. } => {
                Some((*ino, at))
            }
            ParticipantWork::BorrowName { renaming, .. } => {
                self.homed_here(Some(&renaming.file)).map(|file| (file.ino, &renaming.from))
            }
            _ => None,
        }
    }

    /// Whether the home has the name that a work takes away.
    pub(crate) fn knows(&self, work: &ParticipantWork) -> Result<bool, Blocked> {
        self.takes_away(work).map_or(Ok(true), |(ino, at)| self.knows_name(ino, at))
    }

    /// Whether the home of a file has it under a name.
    pub(crate) fn knows_name(&self, ino: Ino, at: &EntryRef) -> Result<bool, Blocked> {
        Ok(match self.state.dir(at.dir)? {
            Some(dir) if dir.owned.is_some() => true,
            Some(_) => self.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino),
            None => false,
        })
    }

    /// Makes sure that the rows which [`Ctx::merge_ancestors`] reads are in memory.
    pub(crate) fn chain_must_be_loaded(&self, chain: &Chain) -> Result<(), Blocked> {
        for above in &chain.dirs {
            self.acls_must_be_loaded(above.ino)?;
            self.entry_must_be_loaded(&above.place)?;
            if let Some(row) = self.state.dir(above.ino)?
                && row.place.version < above.place.version
            {
                self.entry_must_be_loaded(&row.place)?;
                self.skeleton_must_be_loaded(above.ino)?;
            }
        }
        Ok(())
    }

    /// Names of files in a directory of another's: more or fewer. Prunes nothing.
    pub(crate) fn count_homes(&mut self, decision: &mut Decision, dir: Ino, by: i32) {
        let Some(mut row) = self.dir_now(decision, dir) else {
            return decision.misfit(dir, "a name comes to it or leaves it, and it is not known");
        };
        row.foreign_names = decision.counted(dir, row.foreign_names, by);
        decision.dir(dir, row);
    }

    /// Makes sure that the rows which [`Ctx::finish_home`] reads are in memory.
    pub(crate) fn home_must_be_loaded(&self, work: &ParticipantWork) -> Result<(), Blocked> {
        let (ino, entry_refs) = match work {
            ParticipantWork::AddName { ino, at, .. } | ParticipantWork::RemoveName { ino, at, .. } => {
                (*ino, [Some(at), None])
            }
            ParticipantWork::MoveName { ino, from, to, .. } => (*ino, [Some(from), Some(to)]),
            _ => unreachable!("not a home's"),
        };
        if self.state.inode(ino)?.is_some_and(|row| row.attr.nlink == 0) {
            self.state.locks(ino)?;
        }
        entry_refs.into_iter().flatten().try_for_each(|at| self.name_must_be_loaded(at))
    }

    /// What a name that comes or goes reads, and what a listing of an earlier moment tells of it.
    pub(crate) fn name_must_be_loaded(&self, at: &EntryRef) -> Result<(), Blocked> {
        let Some(dir) = self.state.dir(at.dir)? else { return Ok(()) };
        let is_owned = dir.owned.is_some();
        self.openers_must_be_loaded(at.dir)?;
        self.state.entry(at.dir, &at.name)?;
        if is_owned { Ok(()) } else { self.skeleton_must_be_loaded(at.dir) }
    }

    /// A file's row, which is in memory. No decision changes one twice.
    fn file_now(&self, ino: Ino) -> Option<Inode> {
        self.state.inode(ino).ok().flatten().cloned()
    }

    /// A file gets a name: sessions that kept it alive without one need not any more.
    fn gain_name(&mut self, decision: &mut Decision, row: &mut Inode) {
        row.attr.nlink = row.attr.nlink.saturating_add(1);
        self.nobody_keeps(decision, row);
    }

    /// A file has a name, so no session keeps it alive any more. Its locks are in memory.
    pub(crate) fn nobody_keeps(&self, decision: &mut Decision, row: &mut Inode) {
        for session in std::mem::take(&mut row.orphan_of) {
            // A lock keeps it in the session's list.
            let locks = self.state.locks(row.attr.ino).ok().flatten();
            if !locks.is_some_and(|locks| locks.held().any(|(who, _)| who.session == session)) {
                decision.push(RowChange::Held { session, ino: row.attr.ino, on: false });
            }
        }
    }

    /// Votes that a work is prepared: when its record is written, or synced if the rows that it relies on
    /// could be lost in a power cut. `marks`: a mark was set that must survive the change for which it is.
    pub(crate) fn vote_yes(
        &mut self,
        to: IslandId,
        txn: TxnId,
        work: &ParticipantWork,
        prepared: Stamp,
        seen: VoteInfo,
        marks: bool,
    ) {
        let peer = PeerOp::Voted { txn, vote: Vote::Yes { prepared, seen } };
        // A file that gets a name may lose all that are known here, and goes then: whatever is away, that one must be known.
        // The coordinator of an exchange need not own the directory that something leaves, so who is asked next would not know from
        // whom it must hear first.
        let needs_sync = matches!(
            work,
            ParticipantWork::AddName { .. } | ParticipantWork::PermitMove { exchange: true, .. }
        );
        if marks || needs_sync {
            self.send_synced(self.state.seq(), to, peer);
        } else {
            // The death of this process must not take what the coordinator builds on.
            let seq = if planted(Bug::VoteBeforeLog) { 0 } else { self.state.seq() };
            self.send(seq, to, peer);
        }
    }
}
