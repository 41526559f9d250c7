//! What a change may change of what mounts keep (`docs/design/024-leases.md`).

use atoll_core::{Ino, Name};
use atoll_posix::{Kind, Op, RenameMode};
use atoll_proto::ClientOp;

use super::Look;
use crate::ctx::request::{Blocked, PendingRequest};
use crate::ctx::write_set::WriteSet;

impl Look<'_> {
    /// What a change that arrives now changes here, as far as mounts keep it. What a request is about it changes only if that is here. What others
    /// change for it they find out by what they are asked to do ([`crate::ctx::Ctx::write_set_of_work`]), but for directories that move: all islands
    /// hear of these.
    pub(crate) fn write_set(self, call: &PendingRequest) -> Result<WriteSet, Blocked> {
        let op = match &call.request.op {
            ClientOp::Fs { op } | ClientOp::Rename { op, .. } | ClientOp::Link { op, .. } => op,
            _ => return Ok(WriteSet::Everything),
        };
        let mut writes = Writes { look: self, of: WriteSet::NOTHING };
        match op {
            Op::Create { dir, .. } | Op::Mkdir { dir, .. } => writes.add(*dir),
            Op::Unlink { dir, name } => {
                writes.add(*dir);
                writes.named(*dir, name)?;
            }
            Op::Rmdir { dir, name, .. } => {
                writes.add(*dir);
                if let Some(child) = writes.named(*dir, name)? {
                    writes.add(child);
                }
            }
            Op::Link { ino, dir, .. } => {
                writes.add(*dir);
                writes.file(*ino)?;
            }
            Op::Rename { dir, name, new_dir, new_name, mode, .. } => {
                let is_known = self.owned_here(*new_dir)? || *mode != RenameMode::Exchange;
                for (dir, name) in [(*dir, name), (*new_dir, new_name)] {
                    writes.add(dir);
                    if !is_known || writes.named(dir, name)?.is_some() {
                        return Ok(WriteSet::Everything);
                    }
                }
            }
            Op::SetAttr { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::CopyRange { to: ino, .. } => writes.add(*ino),
            _ => return Ok(WriteSet::Everything),
        }
        Ok(writes.of)
    }

    fn owned_here(self, dir: Ino) -> Result<bool, Blocked> {
        Ok(self.ctx.state.dir(dir)?.is_some_and(|dir| dir.owned.is_some()))
    }
}

/// What a change changes, as far as one has looked.
struct Writes<'a> {
    look: Look<'a>,
    of: WriteSet,
}

impl Writes<'_> {
    fn add(&mut self, ino: Ino) {
        self.of.add(ino);
    }

    /// A file, if it is homed here.
    fn file(&mut self, ino: Ino) -> Result<(), Blocked> {
        if self.look.homed(ino)?.is_some() {
            self.add(ino);
        }
        Ok(())
    }

    /// The file that a name names, if it is homed here; a directory is told.
    fn named(&mut self, dir: Ino, name: &Name) -> Result<Option<Ino>, Blocked> {
        match self.look.ctx.state.entry(dir, name)?.map(|entry| (entry.ino, entry.kind)) {
            Some((ino, Kind::Directory)) => Ok(Some(ino)),
            Some((ino, _)) => self.file(ino).map(|()| None),
            None => Ok(None),
        }
    }
}
