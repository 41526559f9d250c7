//! What a change may change of what mounts keep (`docs/design/024-leases.md`).

use atoll_core::{Ino, Name};
use atoll_posix::{Kind, Op};
use atoll_proto::{ClientOp, Entry};

use super::Look;
use crate::ctx::keepers::ChangeScope;
use crate::ctx::request::{Blocked, PendingRequest};

impl Look<'_> {
    /// What a change that arrives now changes, as far as mounts keep it. If others decide on a part of it, that may be anything. What a request
    /// is about it changes only if that is here.
    pub(crate) fn scope_of_change(self, call: &PendingRequest) -> Result<ChangeScope, Blocked> {
        let op = match &call.request.op {
            ClientOp::Fs { op } | ClientOp::Rename { op, .. } | ClientOp::Link { op, .. } => op,
            _ => return Ok(ChangeScope::Everything),
        };
        let mut scope = Scope { look: self, of: [None; 4], is_known: true };
        match op {
            Op::Create { dir, .. } | Op::Mkdir { dir, .. } => scope.add(*dir, true),
            Op::Unlink { dir, name } => {
                scope.add(*dir, true);
                scope.named_file(*dir, name)?;
            }
            Op::Rmdir { dir, name, .. } => {
                scope.add(*dir, true);
                if let Some(entry) = self.entry(*dir, name)?.filter(|entry| entry.kind == Kind::Directory) {
                    scope.dir(entry.ino)?;
                }
            }
            Op::Link { ino, dir, .. } => {
                scope.add(*dir, true);
                scope.file(*ino)?;
            }
            // The name of a directory is told to all islands, and its owner changes its times.
            Op::Rename { dir, name, new_dir, new_name, .. } => {
                for (dir, name) in [(*dir, name), (*new_dir, new_name)] {
                    scope.dir(dir)?;
                    if scope.is_known {
                        scope.named_file(dir, name)?;
                        let entry = self.entry(dir, name)?;
                        scope.is_known &= entry.is_none_or(|entry| entry.kind != Kind::Directory);
                    }
                }
            }
            Op::SetAttr { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::CopyRange { to: ino, .. } => scope.add(*ino, true),
            _ => scope.is_known = false,
        }
        Ok(if scope.is_known { ChangeScope::Of(scope.of) } else { ChangeScope::Everything })
    }

    fn entry(&self, dir: Ino, name: &Name) -> Result<Option<&Entry>, Blocked> {
        Ok(self.ctx.state.entry(dir, name)?)
    }
}

/// What a change changes, as far as one has looked.
struct Scope<'a> {
    look: Look<'a>,
    of: [Option<Ino>; 4],
    /// This island alone decides on all of it.
    is_known: bool,
}

impl Scope<'_> {
    fn add(&mut self, ino: Ino, is_decided_here: bool) {
        self.is_known &= is_decided_here;
        if self.is_known && !self.of.contains(&Some(ino)) {
            let free = self.of.iter_mut().find(|of| of.is_none());
            *free.expect("two directories and two files at most") = Some(ino);
        }
    }

    fn dir(&mut self, ino: Ino) -> Result<(), Blocked> {
        let owned = self.look.ctx.state.dir(ino)?.is_some_and(|dir| dir.owned.is_some());
        self.add(ino, owned);
        Ok(())
    }

    fn file(&mut self, ino: Ino) -> Result<(), Blocked> {
        let homed = self.look.homed(ino)?.is_some();
        self.add(ino, homed);
        Ok(())
    }

    /// The file that a name names, if it names one.
    fn named_file(&mut self, dir: Ino, name: &Name) -> Result<(), Blocked> {
        match self.look.ctx.state.entry(dir, name)? {
            Some(entry) if entry.kind != Kind::Directory => {
                let ino = entry.ino;
                self.file(ino)
            }
            _ => Ok(()),
        }
    }
}
