//! What each operation means in a union. One file for each family; this one has their table.

mod attrs;
mod chain;
mod data;
mod grow;
mod list;
mod look;
mod make;
mod remove;
mod rename;
mod several;
mod shown;

use atoll_posix::Op;

use crate::task::{Decided, Finished, Task};
use crate::union::Union;
pub(crate) use grow::Growing;
pub(crate) use several::Several;
pub(crate) use shown::Shown;

/// Decides an operation as far as what is known goes.
pub(crate) fn decide(union: &mut Union, task: &mut Task) -> Decided<Finished> {
    if let Some(ino) = grow::changes_file(&task.request.op) {
        union.holds.not_growing(task.id, ino)?;
    }
    attrs::check_skipped(union, task)?;
    match task.request.op.clone() {
        Op::Lookup { dir, name } => look::lookup(union, task, dir, &name),
        Op::Parent { dir } => look::parent(union, task, dir),
        Op::GetAttr { ino } => look::getattr(union, task, ino),
        Op::ReadDir { dir, after, bytes, plus } => list::read_dir(union, task, dir, after, bytes, plus),
        Op::Create { dir, name, .. } => make::make(union, task, dir, &name),
        Op::Tmpfile { dir, .. } => make::tmpfile(union, task, dir),
        Op::Mkdir { dir, name, .. } => make::make(union, task, dir, &name),
        Op::Link { ino, dir, name } => make::link(union, task, ino, dir, &name),
        Op::Unlink { dir, name } => remove::unlink(union, task, dir, &name),
        Op::Rmdir { dir, name, meant } => remove::rmdir(union, task, dir, &name, meant),
        Op::Rename { .. } => rename::rename(union, task),
        Op::SetAttr { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. }
        | Op::GetXattr { ino, .. }
        | Op::ListXattr { ino } => attrs::attrs(union, task, ino),
        Op::Access { ino } => attrs::access(union, task, ino),
        Op::FsyncDir { dir } => data::fsync_dir(union, task, dir),
        Op::Statfs => data::statfs(union, task),
        Op::Accessed { .. } => Ok(atoll_posix::Answer::Done.into()),
        Op::GetLock { ino, lock } | Op::SetLock { ino, lock, .. } => data::lock(union, task, ino, lock),
        Op::CopyRange { from, to, .. } => data::copy_range(union, task, from, to),
        Op::Readlink { ino }
        | Op::Read { ino, .. }
        | Op::Write { ino, .. }
        | Op::Fallocate { ino, .. }
        | Op::Seek { ino, .. }
        | Op::Fsync { ino } => data::data(union, task, ino),
    }
}
