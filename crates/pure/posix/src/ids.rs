//! The ids in operations and answers, for whoever knows files and directories by other ids than the volume.

use atoll_core::Ino;

use crate::op::{Answer, Op};

impl Op {
    /// Changes each id that it names something by.
    pub fn change_ids(&mut self, mut change: impl FnMut(&mut Ino)) {
        match self {
            Self::Lookup { dir, .. }
            | Self::Create { dir, .. }
            | Self::Mkdir { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::FsyncDir { dir }
            | Self::ReadDir { dir, .. }
            | Self::Parent { dir }
            | Self::Tmpfile { dir, .. } => change(dir),
            Self::Rmdir { dir, meant, .. } => {
                change(dir);
                meant.iter_mut().for_each(change);
            }
            Self::Rename { dir, new_dir, meant, new_meant, .. } => {
                change(dir);
                change(new_dir);
                meant.iter_mut().chain(new_meant).for_each(change);
            }
            Self::Link { ino, dir, .. } => {
                change(ino);
                change(dir);
            }
            Self::CopyRange { from, to, .. } => {
                change(from);
                change(to);
            }
            Self::GetAttr { ino }
            | Self::SetAttr { ino, .. }
            | Self::Readlink { ino }
            | Self::Read { ino, .. }
            | Self::Write { ino, .. }
            | Self::Fallocate { ino, .. }
            | Self::Seek { ino, .. }
            | Self::Fsync { ino }
            | Self::GetXattr { ino, .. }
            | Self::SetXattr { ino, .. }
            | Self::ListXattr { ino }
            | Self::RemoveXattr { ino, .. }
            | Self::GetLock { ino, .. }
            | Self::SetLock { ino, .. }
            | Self::Accessed { ino, .. }
            | Self::Access { ino } => change(ino),
            Self::Statfs => {}
        }
    }
}

impl Answer {
    /// Changes each id in it.
    pub fn change_ids(&mut self, mut change: impl FnMut(&mut Ino)) {
        match self {
            Self::Found { found } => change(&mut found.attr.ino),
            Self::Attr { attr } => change(&mut attr.ino),
            Self::Entries { entries, .. } => {
                for entry in entries {
                    change(&mut entry.ino);
                    entry.found.iter_mut().for_each(|found| change(&mut found.attr.ino));
                }
            }
            Self::Removed { orphan } => orphan.iter_mut().for_each(change),
            Self::Done
            | Self::Data
            | Self::Wrote { .. }
            | Self::Offset { .. }
            | Self::Statfs { .. }
            | Self::Lock { .. }
            | Self::Access { .. } => {}
        }
    }
}
