//! Whether directories may get another parent.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId};
use atoll_posix::perm::{self, AccessMode};
use atoll_posix::{Caller, Errno, acl};
use atoll_proto::{Chain, Dir, ParticipantWork, RenameSpec, Vote, VoteInfo};

use super::Look;
use crate::ctx::request::Blocked;
use crate::rows::chains::seen_in;
use crate::rows::moves::{Ticket, is_leaf, moving, replaced_dir};
use crate::rows::path::owned_by;

impl<'a> Look<'a> {
    /// The same, as far as it is this island's: whether it may.
    pub(crate) fn check_dirs(
        self,
        caller: &Caller,
        renaming: &RenameSpec,
        chain: &Chain,
    ) -> Result<(), Blocked> {
        let me = self.ctx.config.id;
        let moves = renaming.from.dir != renaming.to.dir;
        for moving in moving(renaming).iter().filter(|m| moves && self.ctx.owner_of_stub(m.stub) == me) {
            self.may_move(caller, moving.entry.ino)?;
        }
        // As Linux has it: who may comes before what is in the way.
        if let Some((there, stub)) = replaced_dir(renaming)
            && self.ctx.owner_of_stub(stub) == me
        {
            self.may_seal(there.ino)?;
            self.ctx.skeleton_must_be_loaded(there.ino)?;
        }
        if !moves {
            return Ok(());
        }
        let Ticket { moved, above, owners, seen } = self.ctx.ticket_for(renaming, chain)?;
        if moved.is_empty() || !self.ctx.owns_root() {
            return Ok(());
        }
        match self.may_grant(&moved, &above, &owners, &seen) {
            Ok(()) => Ok(()),
            Err(Vote::No { errno }) => Err(errno.into()),
            Err(Vote::Busy) => match self.locks.ticket_against(&above) {
                Some(txn) => Err(Blocked::Txn(txn)),
                None => Err(Blocked::NotNow),
            },
            Err(_) => Err(Blocked::NotNow),
        }
    }

    /// A caller that moves a directory to another parent must be allowed to write it, because its `..`
    /// changes.
    fn may_move(self, caller: &Caller, ino: Ino) -> Result<(), Blocked> {
        let dir = self.owned(ino)?;
        if let Some(txn) = dir.owned.as_ref().and_then(|owned| owned.sealed.or(owned.adopted)) {
            return Err(Blocked::Txn(txn));
        }
        self.require_unfrozen_dir(ino)?;
        let acl = self.ctx.acl(ino, dir.has_acl, acl::ACCESS_XATTR)?;
        Ok(perm::check(caller, owned_by(&dir.fixed), AccessMode::WRITE, acl.as_ref())?)
    }

    /// At the root's owner: whether a rename may go on. The directories above its new place must not depend
    /// on a rename under way, and must include all renames that have happened. Then no order of outcomes
    /// makes a circle. Of a rename that was permitted here and lost in a power cut its coordinator tells, which owned the directory
    /// that it took something from.
    fn may_grant(
        self,
        moved: &[Ino],
        above: &[Ino],
        owners: &[IslandId],
        seen: &[Chain],
    ) -> Result<(), Vote> {
        let may_miss_one = owners.iter().any(|island| self.missing.may_have_moved(*island));
        if may_miss_one && !planted(Bug::PermittedUntold) {
            return Err(Vote::Busy);
        }
        for (island, stamp) in self.ctx.state.moved().iter() {
            if seen.iter().any(|chain| seen_in(&chain.vector, island) <= stamp) {
                return Err(Vote::Behind);
            }
        }
        if self.locks.ticket_against(above).is_some() {
            return Err(Vote::Busy);
        }
        if moved.iter().any(|ino| above.contains(ino)) {
            return Err(Vote::No { errno: Errno::EINVAL });
        }
        Ok(())
    }

    /// Whether only the owners of a directory, which is owned here, and of the one above it have anything of it.
    pub(crate) fn is_leaf(self, ino: Ino, dir: &Dir) -> bool {
        is_leaf(dir) && self.locks.in_dir(ino).is_none() && !self.missing.is_incomplete()
    }

    /// Prepares a directory's own owner, or the root's.
    pub(crate) fn prepare_move(self, work: &ParticipantWork) -> Result<Result<VoteInfo, Vote>, Blocked> {
        match work {
            ParticipantWork::FreezeDir { ino, caller, .. } => {
                self.may_move(caller, *ino)?;
                Ok(Ok(VoteInfo::Dir { fixed: self.owned(*ino)?.fixed }))
            }
            ParticipantWork::PermitMove { moved, above, owners, seen, .. } => {
                if !self.ctx.owns_root() {
                    return Ok(Err(Vote::Busy));
                }
                Ok(self.may_grant(moved, above, owners, seen).map(|()| VoteInfo::Nothing))
            }
            _ => unreachable!("called for moves of directories"),
        }
    }

    /// Makes sure that the rows which [`Ctx::move_dirs`] reads are in memory.
    pub(crate) fn moves_must_be_loaded(self, renaming: &RenameSpec) -> Result<(), Blocked> {
        if let Some((there, stub)) = replaced_dir(renaming)
            && self.ctx.owner_of_stub(stub) == self.ctx.config.id
        {
            self.may_seal(there.ino)?;
            self.ctx.skeleton_must_be_loaded(there.ino)?;
        }
        for moving in moving(renaming) {
            if let Some(row) = self.ctx.state.dir(moving.entry.ino)? {
                self.ctx.entry_must_be_loaded(&row.place)?;
                self.ctx.skeleton_must_be_loaded(moving.entry.ino)?;
                if self.ctx.state.dir(moving.to.dir)?.is_some() {
                    self.ctx.state.entry(moving.to.dir, &moving.to.name)?;
                }
            }
        }
        Ok(())
    }

    /// The name is lent: `renaming` knows by now which file it leads to. Returns the work that other islands
    /// must still prepare.
    pub(crate) fn lent(
        self,
        lender: IslandId,
        caller: &Caller,
        renaming: &RenameSpec,
        there_by: Option<u32>,
        chain: &Chain,
    ) -> Result<Vec<(IslandId, ParticipantWork)>, Blocked> {
        if let (Some(there), Some(by)) = (&renaming.there, there_by)
            && there.home == self.ctx.config.id
            && self.ctx.file(there.ino)?.attr.uid != by
        {
            return Err(Errno::EPERM.into());
        }
        self.check_dirs(caller, renaming, chain)?;
        let mut works = self.ctx.works_elsewhere(renaming, there_by, Some((lender, chain)))?;
        works.extend(self.ctx.dir_works(caller, renaming, chain)?);
        Ok(works)
    }
}
