//! Handles of files and directories in their members' own form. Remembers which directory a handle names, so that a frontend whose
//! every request names one (NFS) does not have it opened and its path asked for each time. Never answers with a directory that has
//! been removed.

use std::collections::HashMap;
use std::sync::Mutex;

use atoll_core::Ino;
use atoll_posix::Errno;
use atoll_union::{At, FrontendId, NativeCall, NativeId, NativeReply, Tag, Who};
use bytes::Bytes;

use crate::Federation;

/// A directory that moves all the time is walked to so often.
const WALKS_MAX: usize = 8;

/// Most directories whose handles are remembered. Past that all are forgotten, and are asked for again.
const DIRS_MAX: usize = 65_536;

/// The directories of handles. A handle never names another directory later.
#[derive(Default)]
pub(crate) struct Handles(Mutex<HashMap<(Tag, Bytes), NativeId>>);

impl Handles {
    fn get(&self, tag: Tag, handle: &Bytes) -> Option<NativeId> {
        self.0.lock().expect("no holder panics").get(&(tag, handle.clone())).copied()
    }

    fn note(&self, tag: Tag, handle: Bytes, id: NativeId) {
        let mut dirs = self.0.lock().expect("no holder panics");
        if dirs.len() >= DIRS_MAX {
            dirs.clear();
        }
        dirs.insert((tag, handle), id);
    }
}

impl Federation {
    /// A handle of a file or directory, in its member's own form. None if it is not known, or its file system has none.
    pub fn handle_of(&self, ino: Ino) -> Option<(Tag, Bytes)> {
        let (tag, of) = self.machine().place_of(ino)?;
        match self.call(tag, &Who::Daemon, &NativeCall::HandleOf { of }, &[]) {
            Ok(NativeReply::Data(handle)) => Some((tag, handle)),
            _ => None,
        }
    }

    /// The file or directory of a handle. `ESTALE` if it is gone; the error of a member that does not answer.
    pub fn by_handle(&self, frontend: FrontendId, tag: Tag, handle: Bytes) -> Result<Ino, Errno> {
        if let Some(ino) = self.dir_by_handle(frontend, tag, &handle) {
            return Ok(ino);
        }
        let (mut tag, mut handle) = (tag, handle);
        for _ in 0..WALKS_MAX {
            let call = NativeCall::ByHandle { handle: handle.clone() };
            let (stat, path) = match self.call(tag, &Who::Daemon, &call, &[]) {
                Ok(NativeReply::Placed { stat, path }) => (stat, path),
                Ok(_) => return Err(Errno::EPROTO),
                // It may have grown on a full member, which has moved it to another one.
                Err(errno @ Errno::ESTALE) => {
                    let moved = self.machine().known().moved_handle(tag, &handle);
                    (tag, handle) = moved.ok_or(errno)?;
                    continue;
                }
                Err(errno) => return Err(errno),
            };
            let Some(path) = path else { return Ok(self.machine().know_file(frontend, tag, &stat)) };
            self.handles.note(tag, handle.clone(), stat.id);
            if let Some(ino) = self.machine().know_dir(frontend, tag, &stat) {
                return Ok(ino);
            }
            let mut steps = path.iter();
            match steps.try_fold(Ino::ROOT, |dir, name| self.look_up(frontend, dir, name.clone())) {
                // It may have moved during the walk: then another directory is there, or none.
                Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE) => {}
                Err(errno) => return Err(errno),
            }
            if let Some(ino) = self.machine().know_dir(frontend, tag, &stat) {
                return Ok(ino);
            }
        }
        Err(Errno::ESTALE)
    }

    /// The directory of a handle that was used before, by one look at it. None if it must be asked for: it is not known any more, or
    /// has been removed.
    fn dir_by_handle(&self, frontend: FrontendId, tag: Tag, handle: &Bytes) -> Option<Ino> {
        let id = self.handles.get(tag, handle)?;
        let look = NativeCall::Stat { of: At { id, seen: None } };
        match self.call(tag, &Who::Daemon, &look, &[]) {
            Ok(NativeReply::Stat(stat)) if stat.id == id && stat.nlink > 0 => {
                self.machine().know_dir(frontend, tag, &stat)
            }
            _ => None,
        }
    }
}
