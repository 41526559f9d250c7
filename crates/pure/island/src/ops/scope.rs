//! What a session may ask that sees one directory only, and what is below it (`docs/design/022-subtrees.md`). The one place
//! where that is decided, but for the parts of other islands (`prepare.rs`, `between.rs`).
//!
//! Everything is named: a new request or operation may not be asked until somebody has thought about it.

use atoll_core::Ino;
use atoll_posix::{Answer, Errno, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, EntryRef, Outcome};

use crate::ctx::request::{Blocked, PendingRequest, Step};
use crate::island::Island;
use crate::look::Look;

impl Look<'_> {
    /// Whether the session of a request may ask it. `ESTALE` for what it does not see, as for an id that never was.
    pub(crate) fn may_ask(self, call: &PendingRequest) -> Result<(), Blocked> {
        let Some(scope) = self.ctx.scope_of(call.session()) else { return Ok(()) };
        match &call.request.op {
            ClientOp::Fs { op } | ClientOp::Rename { op, .. } | ClientOp::Link { op, .. } => {
                self.may_do(call, op, scope)
            }
            ClientOp::Skeleton { parent, .. } => self.is_dir_inside(*parent, scope),
            // A link to a directory has no list of its names, and nobody tells one here.
            ClientOp::SkeletonAttr { ino } => self.is_dir_inside(*ino, scope),
            ClientOp::SkeletonTarget { .. } => Err(Errno::ESTALE.into()),
            // About the session itself, and what it holds.
            ClientOp::Attach { .. }
            | ClientOp::AttachWithin { .. }
            | ClientOp::Detach
            | ClientOp::Release { .. }
            | ClientOp::Renew
            | ClientOp::Lease
            | ClientOp::Cancel { .. }
            | ClientOp::Dropped
            | ClientOp::DroppedOf { .. } => Ok(()),
            // Walks begin at the root. The others tell of the whole tree, or hold it back.
            ClientOp::Resolve { .. }
            | ClientOp::Hints { .. }
            | ClientOp::Hold { .. }
            | ClientOp::Cut { .. }
            | ClientOp::ListAt { .. }
            | ClientOp::EntryAt { .. }
            | ClientOp::FilesAt { .. }
            | ClientOp::EndCut { .. } => Err(Errno::EPERM.into()),
            ClientOp::WithOptions { .. } | ClientOp::Found { .. } => unreachable!("taken apart when it came"),
        }
    }

    fn may_do(self, call: &PendingRequest, op: &Op, scope: Ino) -> Result<(), Blocked> {
        let by = call.by.as_deref();
        let object = |ino: Ino, by: Option<&EntryRef>| self.is_inside(ino, by, scope, Some(call.session()));
        let about = |ino: Ino| object(ino, by.map(|by| &by.file));
        match op {
            Op::Lookup { dir, .. }
            | Op::Create { dir, .. }
            | Op::Mkdir { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::Rmdir { dir, .. }
            | Op::FsyncDir { dir }
            | Op::ReadDir { dir, .. }
            | Op::Tmpfile { dir, .. } => self.is_dir_inside(*dir, scope),
            // What is above it is told.
            Op::Parent { dir } if *dir == scope => Err(Errno::ESTALE.into()),
            Op::Parent { dir } => self.is_dir_inside(*dir, scope),
            Op::Rename { dir, new_dir, .. } => {
                self.is_dir_inside(*dir, scope)?;
                match &call.request.op {
                    // Its owner looks whether it is inside, when it is asked for the name.
                    ClientOp::Rename { key, .. } if self.ctx.config.owner(*key) != self.ctx.config.id => {
                        Ok(())
                    }
                    _ => self.is_dir_inside(*new_dir, scope),
                }
            }
            Op::Link { ino, dir, .. } => {
                self.is_dir_inside(*dir, scope)?;
                // Otherwise its home looks.
                let is_known = self.homed(*ino)?.is_some() || self.ctx.state.dir(*ino)?.is_some();
                if is_known { about(*ino) } else { Ok(()) }
            }
            // What it has locked it may let go, wherever the file has gone since.
            Op::SetLock { ino, lock, .. } if lock.kind == LockKind::Unlock && self.holds(call, *ino) => {
                Ok(())
            }
            Op::GetAttr { ino }
            | Op::SetAttr { ino, .. }
            | Op::Readlink { ino }
            | Op::Read { ino, .. }
            | Op::Write { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::Seek { ino, .. }
            | Op::Fsync { ino }
            | Op::GetXattr { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::ListXattr { ino }
            | Op::RemoveXattr { ino, .. }
            | Op::GetLock { ino, .. }
            | Op::SetLock { ino, .. }
            | Op::Accessed { ino, .. }
            | Op::Access { ino } => about(*ino),
            Op::CopyRange { from, to, .. } => {
                about(*to)?;
                match object(*from, by.and_then(|by| by.from.as_ref())) {
                    // As about a file that is homed elsewhere, which this island may know nothing of.
                    Err(Blocked::Fail(Errno::ESTALE)) if self.ctx.config.islands.len() > 1 => {
                        Err(Errno::EXDEV.into())
                    }
                    told => told,
                }
            }
            Op::Statfs => Ok(()),
        }
    }

    /// Whether the session has locks on a file, or keeps it alive.
    fn holds(self, call: &PendingRequest, ino: Ino) -> bool {
        let row = self.ctx.state.session(call.session());
        row.is_some_and(|row| row.held.binary_search(&ino).is_ok())
    }

    /// Whether what an operation made or linked before has still the name that it was given.
    pub(crate) fn is_still_named(self, call: &PendingRequest, ino: Ino) -> Result<bool, Blocked> {
        let Some(Op::Create { dir, name, .. } | Op::Mkdir { dir, name, .. } | Op::Link { dir, name, .. }) =
            call.request.op.operation()
        else {
            return Ok(false);
        };
        Ok(self.ctx.state.entry(*dir, name)?.is_some_and(|entry| entry.ino == ino))
    }
}

impl Island {
    /// Would a lock be granted? Who sees a part of the tree is not told which process has the one that stands in the way.
    pub(crate) fn get_lock(
        &self,
        call: &PendingRequest,
        ino: Ino,
        lock: &LockRange,
    ) -> Result<Step, Blocked> {
        let mut step = self.ctx.get_lock(call.session(), ino, lock)?;
        if self.ctx.scope_of(call.session()).is_some()
            && let Step::Looked(Outcome::Ok { answer: Answer::Lock { lock: shown }, .. }) = &mut step
            && shown.kind != LockKind::Unlock
        {
            (shown.pid, shown.owner) = (0, 0);
        }
        Ok(step)
    }
}
