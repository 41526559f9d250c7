//! The home of a file whose names are in directories that other islands own (`DESIGN` 6). It counts the
//! names, lays them, and loses them, each as a participant of a transaction that the name's owner
//! coordinates.
//!
//! Such a name is a row here too: an entry in a directory of the skeleton, which stays as long as it has one
//! (`Dir::homes`). Invariant: a file's link count is the number of these names and of its names in
//! directories owned here.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, SessionId, Stamp, Time, TxnId};
use atoll_proto::{Ancestor, Chain, Change, Entry, Inode, Peer, Seen, Spot, Vote, Work};

use crate::ctx::Ctx;
use crate::ctx::decision::{Decision, Entails};
use crate::ctx::request::Blocked;

/// Names that one file may have: native file systems hold each as a hard link.
pub(crate) const LINKS_MAX: u32 = 60_000;

impl Ctx {
    /// Puts a chain of ancestors into the skeleton, but for those above a directory that is known to be elsewhere by
    /// now.
    pub(crate) fn lay_chain(&mut self, decision: &mut Decision, dirs: &[Ancestor]) {
        for above in dirs {
            self.add_skeleton(decision, above, None);
        }
        for above in dirs.iter().rev().skip(1) {
            self.prune(decision, above.ino);
        }
    }

    /// Carries out, or takes back, a home's prepared work. The rows that it reads are in memory.
    pub(crate) fn finish_home(&mut self, decision: &mut Decision, work: &Work, commit: bool) {
        if commit {
            self.do_home(decision, work);
        }
        if let Some(at) = work.brings() {
            self.unpin(decision, at);
        }
    }

    /// Undoes `pin` of `ops/prepare.rs`.
    pub(crate) fn unpin(&mut self, decision: &mut Decision, at: &Spot) {
        let row = self.dir_now(decision, at.dir);
        if row.is_some_and(|row| row.owned.is_none()) {
            self.count_homes(decision, at.dir, -1);
            self.prune(decision, at.dir);
        }
    }

    /// Does a home's part, if the directories are known.
    pub(crate) fn do_home(&mut self, decision: &mut Decision, work: &Work) {
        match work {
            Work::Count { ino, at, time, .. } => {
                let Some(mut row) = self.file_now(*ino) else { return };
                self.name_comes(decision, at, &row);
                self.gain_name(decision, &mut row);
                row.attr.ctime = row.attr.ctime.max(*time);
                decision.inode(row);
            }
            Work::Drop { had: false, .. } => {}
            Work::Drop { ino, at, time, .. } => {
                self.name_goes(decision, at, *ino);
                if let Some(row) = self.file_now(*ino).filter(|row| row.attr.nlink > 0) {
                    self.drop_name(decision, row, None, *time);
                }
            }
            Work::Renamed { ino, from, to, had, time, .. } => {
                // What comes first keeps the skeleton that both may share.
                if let Some(mut row) = self.file_now(*ino) {
                    self.name_comes(decision, to, &row);
                    if !had {
                        self.gain_name(decision, &mut row);
                    }
                    row.attr.ctime = row.attr.ctime.max(*time);
                    decision.inode(row);
                }
                if *had {
                    self.name_goes(decision, from, *ino);
                }
            }
            _ => unreachable!("not a home's"),
        }
    }

    /// A file that is homed here has a name; in another island's directory that is a row here too.
    pub(crate) fn name_comes(&mut self, decision: &mut Decision, at: &Spot, file: &Inode) {
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
    pub(crate) fn name_goes(&mut self, decision: &mut Decision, at: &Spot, ino: Ino) {
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

    /// A file loses a name. If it was the last one, the file goes, or stays as an orphan while a
    /// mount may have it open. Tells which orphan was left to `by`; the other mounts are told of it.
    pub(crate) fn drop_name(
        &mut self,
        decision: &mut Decision,
        mut row: Inode,
        by: Option<SessionId>,
        now: Time,
    ) -> Option<Ino> {
        let ino = row.attr.ino;
        row.attr.nlink = row.attr.nlink.saturating_sub(1);
        row.attr.ctime = row.attr.ctime.max(now);
        if row.attr.nlink > 0 {
            decision.inode(row);
            return None;
        }
        let holders = self.holders();
        if holders.is_empty() || planted(Bug::OrphanDropped) {
            self.drop_file(decision, &row);
            return None;
        }
        for session in &holders {
            decision.push(Change::Held { session: *session, ino, on: true });
        }
        self.tell_orphan(&holders, by, ino);
        let mine = by.is_some_and(|by| holders.contains(&by));
        row.orphan_of = holders;
        decision.inode(row);
        mine.then_some(ino)
    }

    /// The name that a work takes away from a file that is homed here.
    pub(crate) fn takes_away<'a>(&self, work: &'a Work) -> Option<(Ino, &'a Spot)> {
        match work {
            Work::Drop { ino, at, .. } | Work::Renamed { ino, from: at, .. } => Some((*ino, at)),
            Work::Lend { renaming, .. } => {
                self.homed_here(Some(&renaming.file)).map(|file| (file.ino, &renaming.from))
            }
            _ => None,
        }
    }

    /// Whether the home has the name that a work takes away.
    pub(crate) fn knows(&self, work: &Work) -> Result<bool, Blocked> {
        self.takes_away(work).map_or(Ok(true), |(ino, at)| self.knows_name(ino, at))
    }

    /// Whether the home of a file has it under a name.
    pub(crate) fn knows_name(&self, ino: Ino, at: &Spot) -> Result<bool, Blocked> {
        Ok(match self.state.dir(at.dir)? {
            Some(dir) if dir.owned.is_some() => true,
            Some(_) => self.state.entry(at.dir, &at.name)?.is_some_and(|entry| entry.ino == ino),
            None => false,
        })
    }

    /// Makes sure that the rows which [`Ctx::lay_chain`] reads are in memory.
    pub(crate) fn need_chain(&self, chain: &Chain) -> Result<(), Blocked> {
        for above in &chain.dirs {
            self.need_acls(above.ino)?;
            self.need_name(&above.place)?;
            if let Some(row) = self.state.dir(above.ino)?
                && row.place.version < above.place.version
            {
                self.need_name(&row.place)?;
                self.need_skeleton(above.ino)?;
            }
        }
        Ok(())
    }

    /// Names of files in a directory of another's: more or fewer. Prunes nothing.
    pub(crate) fn count_homes(&mut self, decision: &mut Decision, dir: Ino, by: i32) {
        let Some(mut row) = self.dir_now(decision, dir) else {
            return decision.misfit(dir, "a name comes to it or leaves it, and it is not known");
        };
        row.homes = decision.counted(dir, row.homes, by);
        decision.dir(dir, row);
    }

    /// Makes sure that the rows which [`Ctx::finish_home`] reads are in memory.
    pub(crate) fn need_home(&self, work: &Work) -> Result<(), Blocked> {
        let (ino, spots) = match work {
            Work::Count { ino, at, .. } | Work::Drop { ino, at, .. } => (*ino, [Some(at), None]),
            Work::Renamed { ino, from, to, .. } => (*ino, [Some(from), Some(to)]),
            _ => unreachable!("not a home's"),
        };
        if self.state.inode(ino)?.is_some_and(|row| row.attr.nlink == 0) {
            self.state.locks(ino)?;
        }
        spots.into_iter().flatten().try_for_each(|at| self.need_spot(at))
    }

    /// What a name that comes or goes reads, and what a listing of an earlier moment tells of it.
    pub(crate) fn need_spot(&self, at: &Spot) -> Result<(), Blocked> {
        let Some(dir) = self.state.dir(at.dir)? else { return Ok(()) };
        let is_owned = dir.owned.is_some();
        self.state.entry(at.dir, &at.name)?;
        if is_owned { Ok(()) } else { self.need_skeleton(at.dir) }
    }

    /// A file's row, which is in memory. No decision changes one twice.
    fn file_now(&self, ino: Ino) -> Option<Inode> {
        self.state.inode(ino).ok().flatten().cloned()
    }

    /// A file gets a name: sessions that kept it alive without one need not any more.
    fn gain_name(&mut self, decision: &mut Decision, row: &mut Inode) {
        row.attr.nlink = row.attr.nlink.saturating_add(1);
        for session in std::mem::take(&mut row.orphan_of) {
            // A lock keeps it in the session's list.
            let locks = self.state.locks(row.attr.ino).ok().flatten();
            if !locks.is_some_and(|locks| locks.held().any(|(who, _)| who.session == session)) {
                decision.push(Change::Held { session, ino: row.attr.ino, on: false });
            }
        }
    }

    /// Votes that a work is prepared: when its record is written, or synced if the rows that it relies on
    /// could be lost in a power cut. `marks`: a mark was set that must survive the change for which it is.
    pub(crate) fn vote_yes(
        &mut self,
        to: IslandId,
        txn: TxnId,
        work: &Work,
        prepared: Stamp,
        seen: Seen,
        marks: bool,
    ) {
        let peer = Peer::Voted { txn, vote: Vote::Yes { prepared, seen } };
        // What was let through must be known to whoever asks next, and that may be after a power cut. A file that gets a
        // name may lose all that are known here, and goes then: whatever is away, that one must be known.
        let needs_sync = matches!(work, Work::Ticket { .. } | Work::Count { .. });
        if marks || needs_sync {
            self.send_synced(self.state.seq(), to, peer);
        } else {
            // The death of this process must not take what the coordinator builds on.
            let seq = if planted(Bug::VoteBeforeLog) { 0 } else { self.state.seq() };
            self.send(seq, to, peer);
        }
    }
}
