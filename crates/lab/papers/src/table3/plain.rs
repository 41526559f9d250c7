//! One native tree as `Files`, each operation as one native call: our NFS server with the federal layer left out. It has what
//! the mix of Table 3 needs, and keeps all names it has seen, so it serves nobody but the measurement.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use atoll_core::{Ino, Name};
use atoll_member::{NativeTree, Tree};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, NamedObject, Op};
use atoll_union::{At, NativeCall, NativeId, NativeReply, NativeStat, Who};
use atoll_vfs::{AnswerExtras, Caching, Done, Files, Handle, RequestOptions, Ticket, Watcher};
use bytes::Bytes;

/// A native tree, and what was seen of it.
pub(super) struct PlainFiles {
    tree: NativeTree,
    seen: Mutex<HashMap<Ino, At>>,
}

impl PlainFiles {
    /// Native errors.
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let tree = NativeTree::open(path)?;
        let root = At { id: tree.root().id, seen: None };
        Ok(Self { tree, seen: Mutex::new([(Ino::ROOT, root)].into()) })
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Ino, At>> {
        self.seen.lock().expect("no holder panics")
    }

    fn at(&self, ino: Ino) -> Result<At, Errno> {
        self.seen().get(&ino).cloned().ok_or(Errno::ESTALE)
    }

    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.tree.call(who, call, bytes)
    }

    fn stat(&self, who: &Who, call: &NativeCall) -> Result<NativeStat, Errno> {
        match self.call(who, call, &[])? {
            NativeReply::Stat(stat) => Ok(stat),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Notes what a name has, so that it is found by its id.
    fn found(&self, dir: NativeId, name: &Name, stat: &NativeStat) -> Result<(Answer, Bytes), Errno> {
        if stat.kind == Kind::Directory {
            self.stat(&Who::Daemon, &NativeCall::OpenDir { dir, name: name.clone() })?;
        }
        let ino = Ino(stat.id.ino);
        self.seen().entry(ino).or_insert_with(|| At { id: stat.id, seen: Some((dir, name.clone())) });
        let found = NamedObject { attr: attr(ino, stat), attr_current: true };
        Ok((Answer::Found { found }, Bytes::new()))
    }

    /// NFS has no open, so nobody has checked this: the caller is the owner, or has the right.
    fn may(&self, who: &Who, caller: &Caller, of: &At, right: u8) -> Result<(), Errno> {
        if self.stat(&Who::Daemon, &NativeCall::Stat { of: of.clone() })?.uid == caller.uid {
            return Ok(());
        }
        match self.call(who, &NativeCall::Access { of: of.clone(), want: right }, &[])? {
            NativeReply::Access(granted) if granted & right == right => Ok(()),
            _ => Err(Errno::EACCES),
        }
    }

    fn run(&self, caller: &Caller, op: Op, bytes: &[u8]) -> Result<(Answer, Bytes), Errno> {
        let who = Who::Caller(caller.clone());
        match op {
            Op::GetAttr { ino } => {
                let stat = self.stat(&Who::Daemon, &NativeCall::Stat { of: self.at(ino)? })?;
                Ok((Answer::Attr { attr: attr(ino, &stat) }, Bytes::new()))
            }
            Op::Lookup { dir, name } => {
                let dir = self.at(dir)?.id;
                let stat = self.stat(&who, &NativeCall::Look { dir, name: name.clone() })?;
                self.found(dir, &name, &stat)
            }
            Op::Read { ino, offset, len } => {
                let of = self.at(ino)?;
                self.may(&who, caller, &of, 4)?;
                match self.call(&who, &NativeCall::Read { of, offset, len }, &[])? {
                    NativeReply::Data(bytes) => Ok((Answer::Data, bytes)),
                    _ => Err(Errno::EPROTO),
                }
            }
            Op::Write { ino, offset, append, kill_set_id } => {
                let of = self.at(ino)?;
                self.may(&who, caller, &of, 2)?;
                match self.call(&who, &NativeCall::Write { of, offset, append, kill_set_id }, bytes)? {
                    NativeReply::Wrote { len, offset } => Ok((Answer::Wrote { len, offset }, Bytes::new())),
                    _ => Err(Errno::EPROTO),
                }
            }
            Op::Create { dir, name, kind, mode, umask, rdev, target, exclusive: true } => {
                let dir = self.at(dir)?.id;
                let make = NativeCall::Make { dir, name: name.clone(), kind, mode, umask, rdev, target };
                let stat = self.stat(&who, &make)?;
                self.found(dir, &name, &stat)
            }
            Op::Unlink { dir, name } => {
                let dir = self.at(dir)?.id;
                let id = self.stat(&who, &NativeCall::Look { dir, name: name.clone() })?.id;
                self.call(&who, &NativeCall::Unlink { dir, name, id }, &[])?;
                Ok((Answer::Removed { orphan: Some(Ino(id.ino)) }, Bytes::new()))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn attr(ino: Ino, stat: &NativeStat) -> Attr {
    let NativeStat { id, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime } = *stat;
    Attr { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime: id.btime }
}

impl Files for PlainFiles {
    fn start(&self, caller: &Caller, _: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        match self.run(caller, op, &data) {
            Ok((answer, bytes)) => done(Ok(answer), AnswerExtras::bytes(&bytes)),
            Err(why) => done(Err(why), AnswerExtras::default()),
        }
        Ticket::default()
    }

    fn cancel(&self, _: Ticket) {}

    fn forget(&self, inos: &[Ino]) {
        let mut seen = self.seen();
        inos.iter().for_each(|ino| _ = seen.remove(ino));
    }

    fn handle_of(&self, ino: Ino, _: Kind) -> Option<Handle> {
        Handle::new(Bytes::copy_from_slice(&ino.0.to_le_bytes()))
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        let ino = Ino(u64::from_le_bytes(handle.as_bytes().try_into().map_err(|_| Errno::ESTALE)?));
        self.at(ino).map(|_| ino)
    }

    fn find(&self, _: &Handle, done: Done) -> Ticket {
        done(Err(Errno::ESTALE), AnswerExtras::default());
        Ticket::default()
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        tell(Caching::Never);
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn set_watcher(&self, _: Arc<dyn Watcher>) {}
}
