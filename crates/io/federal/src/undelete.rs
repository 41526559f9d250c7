//! Copies a file back that has lost its last name, while its member still holds it open.

use atoll_core::{Ino, Name, VolumePath};
use atoll_posix::Errno;
use atoll_union::{At, Grave, NativeCall, NativeId, NativeReply, Planned, Tag, Who};

use crate::Federation;
use crate::explain::Looked;

/// Permission bits of a copy that is not complete.
const COPY_MODE: u32 = 0o600;

/// Why a file is not copied back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBack {
    /// No file of this name is held.
    NotHeld,
    /// Something has this name, or a member that cannot be asked may have it.
    Taken,
    /// Its directory is not there.
    NoDir(Errno),
    /// Its member cannot make the copy.
    Failed(Tag, Errno),
}

impl Federation {
    /// Copies the file back that has lost this name last, if it is held: into its member, with everything that it had but its number
    /// and its other names. Its member.
    pub fn undelete(&self, path: &VolumePath) -> Result<Tag, NotBack> {
        let (name, above) = path.names().split_last().ok_or(NotBack::NotHeld)?;
        let dir = self.walk(above).map_err(NotBack::NoDir)?;
        let grave = self.machine().grave_of(dir, name).ok_or(NotBack::NotHeld)?;
        let Looked { seen, unasked, .. } = self.look_everywhere(dir, name).map_err(NotBack::NoDir)?;
        if !seen.is_empty() || !unasked.is_empty() {
            return Err(NotBack::Taken);
        }
        let homes = self.machine().dir_homes(dir).0;
        let there = homes.iter().find(|(tag, _)| *tag == grave.tag).map(|(_, id)| *id);
        let there = there.ok_or(NotBack::NoDir(Errno::ENOENT))?;
        self.copy_back(&grave, there, (dir, name)).map_err(|errno| match errno {
            Errno::EEXIST => NotBack::Taken,
            errno => NotBack::Failed(grave.tag, errno),
        })?;
        let close = self.machine().dig_up(&grave);
        self.close_opens(close.into_iter().collect());
        Ok(grave.tag)
    }

    /// The copy has no name until it is complete.
    fn copy_back(&self, grave: &Grave, dir: NativeId, (of, name): (Ino, &Name)) -> Result<(), Errno> {
        let call = |call: NativeCall| self.call(grave.tag, &Who::Daemon, &call, &[]);
        let tmpfile = NativeCall::Tmpfile { dir, mode: COPY_MODE, umask: 0 };
        let NativeReply::Opened { open, stat } = call(tmpfile)? else {
            return Err(Errno::EPROTO);
        };
        let [from, to] = [grave.stat.id, stat.id].map(|id| At { id, seen: None });
        let copied = (|| {
            let mut at = 0;
            loop {
                let (from, to, len) = (from.clone(), to.clone(), u64::MAX >> 1);
                let copy = NativeCall::CopyRange { from, from_offset: at, to, to_offset: at, len };
                match call(copy)? {
                    NativeReply::Wrote { len: 0, .. } => break,
                    NativeReply::Wrote { len, .. } => at += len,
                    _ => return Err(Errno::EPROTO),
                }
            }
            let NativeReply::Copied(like) = call(NativeCall::CopyOf { of: from.clone() })? else {
                return Err(Errno::EPROTO);
            };
            call(NativeCall::Become { of: to.clone(), like })?;
            call(NativeCall::Link { of: to.clone(), dir, name: name.clone() })
        })();
        // The copy stays if it has its name by now.
        let close = NativeCall::Close { open };
        self.close_opens(vec![Planned { tag: grave.tag, who: Who::Daemon, call: close }]);
        copied?;
        self.changed_by_hand(of, grave.tag, name);
        Ok(())
    }
}
