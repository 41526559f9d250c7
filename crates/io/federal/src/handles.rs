//! Handles of files and directories in their members' own form. Remembers which object a handle names, and the handle of an object,
//! so that a frontend whose every request names one (NFS) does not have it made and opened each time. Never answers with an object
//! that has been removed.

use std::collections::HashMap;
use std::sync::Mutex;

use atoll_core::{Ino, Time};
use atoll_posix::Errno;
use atoll_union::{FrontendId, NativeCall, NativeId, NativeReply, Tag, Who};
use bytes::Bytes;

use crate::Federation;

/// A directory that moves all the time is walked to so often.
const WALKS_MAX: usize = 8;

/// Most objects whose handles are remembered: about 10 MiB. Past that all are forgotten, and are asked for again.
const HANDLES_MAX: usize = 65_536;

/// The objects of handles. A handle never names another object later, and an object never gets another handle.
#[derive(Default)]
pub(crate) struct Handles(Mutex<Table>);

#[derive(Default)]
struct Table {
    objects: HashMap<(Tag, Bytes), NativeId>,
    handles: HashMap<(Tag, NativeId), Bytes>,
}

impl Handles {
    fn object(&self, tag: Tag, handle: &Bytes) -> Option<NativeId> {
        self.0.lock().expect("no holder panics").objects.get(&(tag, handle.clone())).copied()
    }

    fn handle(&self, tag: Tag, id: NativeId) -> Option<Bytes> {
        self.0.lock().expect("no holder panics").handles.get(&(tag, id)).cloned()
    }

    fn note(&self, tag: Tag, handle: &Bytes, id: NativeId) {
        // It may be a part of a whole request, which must not stay for it.
        let handle = Bytes::copy_from_slice(handle);
        let mut table = self.0.lock().expect("no holder panics");
        if table.objects.len() >= HANDLES_MAX || table.handles.len() >= HANDLES_MAX {
            *table = Table::default();
        }
        if is_told_apart(id) {
            table.handles.insert((tag, id), handle.clone());
        }
        table.objects.insert((tag, handle), id);
    }
}

/// Whether another object with this number later has another identity. Where a file system does not tell when an object was made,
/// only its handles tell.
fn is_told_apart(id: NativeId) -> bool {
    id.btime != Time::default()
}

impl Federation {
    /// A handle of a file or directory, in its member's own form. None if it is not known, or its file system has none.
    pub fn handle_of(&self, ino: Ino) -> Option<(Tag, Bytes)> {
        let (tag, of) = self.machine().place_of(ino)?;
        if let Some(handle) = self.handles.handle(tag, of.id) {
            return Some((tag, handle));
        }
        let id = of.id;
        match self.call(tag, &Who::Daemon, &NativeCall::HandleOf { of }, &[]) {
            Ok(NativeReply::Data(handle)) => {
                if is_told_apart(id) {
                    self.handles.note(tag, &handle, id);
                }
                Some((tag, handle))
            }
            _ => None,
        }
    }

    /// The file or directory of a handle. `ESTALE` if it is gone; the error of a member that does not answer.
    pub fn by_handle(&self, frontend: FrontendId, tag: Tag, handle: Bytes) -> Result<Ino, Errno> {
        if let Some(ino) = self.known_by_handle(frontend, tag, &handle) {
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
            // A directory is held open, so nothing else gets its number.
            if path.is_some() || is_told_apart(stat.id) {
                self.handles.note(tag, &handle, stat.id);
            }
            let Some(path) = path else { return Ok(self.machine().know_file(frontend, tag, &stat)) };
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

    /// The object of a handle that was given out or used before, by one look at it. None if it must be asked for: it is not known any
    /// more, or has been removed.
    fn known_by_handle(&self, frontend: FrontendId, tag: Tag, handle: &Bytes) -> Option<Ino> {
        let id = self.handles.object(tag, handle)?;
        let of = self.machine().known().object_at(tag, id)?;
        match self.call(tag, &Who::Daemon, &NativeCall::Stat { of }, &[]) {
            Ok(NativeReply::Stat(stat)) if stat.id == id && stat.nlink > 0 => {
                self.machine().know_again(frontend, tag, &stat)
            }
            _ => None,
        }
    }
}
