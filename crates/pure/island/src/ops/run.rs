//! The table of operations: which handler a request runs.

use atoll_core::Key;
use atoll_core::planted::{Bug, planted};
use atoll_posix::{Errno, Op};
use atoll_proto::{ClientOp, EntryRef};

use crate::ctx::request::{Blocked, PendingRequest, Step, WaitFor};
use crate::island::Island;

impl Island {
    /// Runs a request as far as it goes. `turn`: it was the first in a body's queue.
    pub(crate) fn run(&mut self, call: &PendingRequest, turn: bool) -> Result<Step, Blocked> {
        match &call.request.op {
            ClientOp::Fs { op } | ClientOp::Link { op, .. } => self.run_fs(call, op, None, turn),
            ClientOp::Rename { op, key } => self.run_fs(call, op, Some(*key), turn),
            ClientOp::Resolve { path } => self.look().resolve(call.caller(), path),
            ClientOp::Skeleton { parent, name } => self.ctx.skeleton(*parent, name),
            ClientOp::SkeletonAttr { ino } => self.ctx.skeleton_attr(*ino),
            ClientOp::SkeletonTarget { ino } => self.ctx.skeleton_target(*ino),
            ClientOp::Hints { after } => self.ctx.hints(*after),
            ClientOp::Release { inos } => self.ctx.release_orphans(call, inos),
            ClientOp::ListAt { .. } | ClientOp::EntryAt { .. } | ClientOp::FilesAt { .. } => {
                self.quiesce.run_at(&self.ctx, call)
            }
            ClientOp::Attach { .. }
            | ClientOp::AttachWithin { .. }
            | ClientOp::Detach
            | ClientOp::Renew
            | ClientOp::Lease
            | ClientOp::Dropped
            | ClientOp::DroppedOf { .. }
            | ClientOp::Hold { .. }
            | ClientOp::Cut { .. }
            | ClientOp::EndCut { .. }
            | ClientOp::Cancel { .. }
            | ClientOp::WithOptions { .. }
            | ClientOp::Found { .. } => {
                unreachable!("answered when it arrived")
            }
        }
    }

    /// `key`: of the directory that a name goes to, if that is another one.
    fn run_fs(
        &mut self,
        call: &PendingRequest,
        op: &Op,
        key: Option<Key>,
        turn: bool,
    ) -> Result<Step, Blocked> {
        self.migration.is_here(&self.ctx, self.txns.locks(), op)?;
        if call.options.unchecked && !planted(Bug::UncheckedIsTrusted) {
            self.look().may_use(call.caller(), op)?;
        }
        self.ctx.may_use_bytes(call, op)?;
        match op {
            Op::Lookup { dir, name } => self.lookup(*dir, name),
            Op::GetAttr { ino } => self.look().get_attr(*ino),
            Op::SetAttr { ino, set } => self.set_attr(call, *ino, set, turn),
            Op::Create { dir, name, .. } => self.create(call, *dir, name, op),
            Op::Mkdir { dir, name, mode, umask } => self.mkdir(call, *dir, name, *mode, *umask),
            Op::Unlink { dir, name } => self.unlink(call, *dir, name),
            Op::Rmdir { dir, name, meant } => self.rmdir(call, *dir, name, *meant),
            Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant } => {
                let from = EntryRef { dir: *dir, name: name.clone() };
                let to = EntryRef { dir: *new_dir, name: new_name.clone() };
                self.rename(call, from, to, *mode, (*meant, *new_meant), key)
            }
            Op::Link { ino, dir, name } => self.link(call, *ino, *dir, name),
            Op::Readlink { ino } => self.ctx.readlink(*ino),
            Op::Read { ino, offset, len } => self.bodies.read(&mut self.ctx, call, *ino, *offset, *len, turn),
            Op::Write { ino, offset, append, kill_set_id } => {
                self.bodies.write(&mut self.ctx, call, *ino, *offset, *append, *kill_set_id, turn)
            }
            Op::Fallocate { ino, offset, len, what } => {
                self.ctx.groups_suffice(call, *ino)?;
                self.bodies.fallocate(&mut self.ctx, *ino, *offset, *len, *what, turn)
            }
            Op::Seek { ino, offset, whence } => self.bodies.seek(&mut self.ctx, *ino, *offset, *whence, turn),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.ctx.groups_suffice(call, *to)?;
                // If the file to write is not here either, both may have moved while this waited: it is asked elsewhere.
                if self.look().homed(*from)?.is_none() && self.look().homed(*to)?.is_some() {
                    // Its home cannot be read off its id.
                    let one = self.ctx.config.islands.len() == 1;
                    return Err(if one { Errno::ESTALE } else { Errno::EXDEV }.into());
                }
                let (from, to) = ((*from, *from_offset), (*to, *to_offset));
                self.bodies.copy_range(&mut self.ctx, from, to, *len, turn)
            }
            Op::Fsync { ino } => {
                // A name that it has got may be shown already.
                self.look().require_durable_file(*ino)?;
                self.bodies.fsync(&mut self.ctx, *ino)
            }
            Op::FsyncDir { dir } => {
                // What was moved into it may be shown already.
                self.look().require_durable_names(*dir)?;
                Ok(Step::Wait(WaitFor::Synced(self.ctx.state.seq())))
            }
            Op::ReadDir { dir, after, bytes, plus } => self.look().read_dir(*dir, *after, *bytes, *plus),
            Op::GetXattr { ino, name } => self.look().get_xattr(call.caller(), *ino, name),
            Op::SetXattr { ino, name, value, mode, kill_sgid } => {
                self.set_xattr(call, *ino, name, Some((value, *mode)), *kill_sgid)
            }
            Op::ListXattr { ino } => self.look().list_xattr(call.caller(), *ino),
            Op::RemoveXattr { ino, name } => self.set_xattr(call, *ino, name, None, false),
            // Space is the node's to tell, without the machine.
            Op::Statfs => Err(Errno::ENOSYS.into()),
            Op::GetLock { ino, lock } => self.get_lock(call, *ino, lock),
            Op::SetLock { ino, lock, wait } => self.ctx.set_lock(call, *ino, lock, *wait),
            Op::Accessed { ino, access } => self.accessed(*ino, access),
            Op::Access { ino } => self.look().access(call.caller(), *ino),
            Op::Parent { dir } => self.look().parent(*dir),
            Op::Tmpfile { .. } => Err(Errno::EOPNOTSUPP.into()),
        }
    }
}
