//! What changes for a mount that keeps answers although no client has done it: what the machine beside the island decides, and what it
//! has set with the records of clients. Never waits for a mount to drop anything.
//!
//! These notices go to the mounts that may keep anything, or are about to be told that they may.

use std::collections::BTreeSet;

use atoll_core::{Ino, Name, SessionId};
use atoll_posix::CHANGED_MAX;
use atoll_proto::{Dir, Entry, EntryRef, Inode, Notice, RowChange};

use super::Ctx;

/// Most bytes of the names and ids in one notice: far below what a frame may have.
const NOTICE_BYTES_MAX: usize = 256 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UntoldChanges {
    inos: BTreeSet<Ino>,
    names: BTreeSet<EntryRef>,
    bytes: usize,
}

impl UntoldChanges {
    /// Files and directories.
    pub(super) fn inos(&self) -> impl Iterator<Item = Ino> {
        self.inos.iter().copied()
    }

    fn ino(&mut self, ino: Ino) {
        if self.has_room() && self.inos.insert(ino) {
            self.bytes += size_of::<u64>();
        }
    }

    fn name(&mut self, name: EntryRef) {
        self.ino(name.dir);
        let bytes = size_of::<u64>() + size_of::<u16>() + name.name.as_bytes().len();
        if self.has_room() && self.names.insert(name) {
            self.bytes += bytes;
        }
    }

    /// Behind that it stands for everything, and takes no more.
    fn has_room(&self) -> bool {
        self.inos.len() + self.names.len() <= CHANGED_MAX && self.bytes <= NOTICE_BYTES_MAX
    }

    /// What a mount is told, if it must be told anything.
    fn notice(self) -> Option<Notice> {
        match (self.inos.is_empty(), self.has_room()) {
            (true, _) => None,
            (_, false) => Some(Notice::Recall),
            _ => {
                let (inos, names) = (self.inos.into_iter().collect(), self.names.into_iter().collect());
                Some(Notice::Changed { inos, names })
            }
        }
    }
}

impl Ctx {
    /// Whether a name would lead to something else with this row.
    fn leads_elsewhere(&self, dir: Ino, name: &Name, row: Option<&Entry>) -> bool {
        let before = self.state.entry(dir, name).map(|before| before.map(|entry| entry.ino));
        before != Ok(row.map(|entry| entry.ino))
    }

    /// Notes what users see of these rows that they do not see now.
    pub(super) fn note_changed(&self, changes: &[RowChange], changed: &mut UntoldChanges) {
        for change in changes {
            match change {
                RowChange::Inode { ino, row } => {
                    let same =
                        self.state.inode(*ino).is_ok_and(|before| is_same_file(before, row.as_deref()));
                    if !same {
                        changed.ino(*ino);
                    }
                }
                RowChange::Dir { ino, row } => {
                    let same = self.state.dir(*ino).is_ok_and(|before| is_same_dir(before, row.as_deref()));
                    if !same {
                        changed.ino(*ino);
                    }
                }
                RowChange::Entry { dir, name, row } if self.leads_elsewhere(*dir, name, row.as_ref()) => {
                    changed.name(EntryRef { dir: *dir, name: name.clone() });
                }
                RowChange::Xattrs { ino, .. } => changed.ino(*ino),
                _ => {}
            }
        }
    }

    /// Tells the mounts that may keep something of it, when the record at `need` is committed.
    pub(super) fn tell_changed(&mut self, need: u64, changed: UntoldChanges) {
        let Some(notice) = changed.notice() else { return };
        let keeps = |mount: &SessionId| self.state.session(*mount).is_some_and(|row| row.keeps);
        for mount in self.state.session_ids().filter(keeps).collect::<Vec<_>>() {
            self.notify(mount, need, notice.clone());
        }
    }
}

/// Whether what users see of a file is the same.
fn is_same_file(before: Option<&Inode>, after: Option<&Inode>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.attr == after.attr && before.target == after.target && before.is_absent == after.is_absent
        }
        (before, after) => before.is_none() && after.is_none(),
    }
}

/// Whether what users see of a directory, but for its names, is the same.
fn is_same_dir(before: Option<&Dir>, after: Option<&Dir>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.fixed == after.fixed
                && before.owned == after.owned
                && before.place.parent == after.place.parent
                && before.place.name == after.place.name
        }
        (before, after) => before.is_none() && after.is_none(),
    }
}
