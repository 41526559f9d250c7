//! An NFS export as a volume: each operation becomes one or several calls. What every operation needs: handles,
//! ids, attributes, errors. Names are in `names`, bytes in `data`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_core::{Decode, Encode, Ino};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, NamedObject, Op, mode};
use atoll_vfs::{
    AnswerExtras, Caching, Done, Files, Handle, OpenDone, OpenFor, Opened, RequestOptions, Ticket, Watcher,
    handover,
};
use bytes::Bytes;
use nfs3_types::nfs3::*;

use crate::attrs::{self, errno};
use crate::client::Client;
use crate::rpc::RpcError;
use crate::table::Table;
use crate::unstable::Unstable;

/// How long to wait before a call is sent again that was to come again later (`JUKEBOX`).
const LATER: Duration = Duration::from_millis(100);

/// How the export is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ways {
    /// A file that is removed while somebody has it open gets another name until it is forgotten, as Linux's client does it.
    /// Otherwise it is gone at once for whoever has it open.
    pub silly: bool,
    /// New files are made by `EXCLUSIVE` and then get their attributes. Otherwise by `GUARDED`, with one call.
    pub exclusive: bool,
    /// After a directory was removed or replaced by its name, asks whether it was the one that the frontend meant: `EIO` if not, because
    /// nobody knows then what it was. Linux's client does not ask. It takes the wrong one for removed when another client has moved
    /// that since it was looked up, and says `ENOENT` of everything in it.
    pub meant: bool,
    /// Each write is stable when it is answered.
    pub sync: bool,
    /// How long the frontend may keep answers without asking, as a client with `ac` does. 0: it always asks.
    pub cache_ms: u32,
    /// Most connections to the server.
    pub connections: usize,
    /// A call fails when the server has not answered for so long.
    pub patience: Duration,
}

impl Default for Ways {
    fn default() -> Self {
        let patience = Duration::from_secs(120);
        Self {
            silly: true,
            exclusive: true,
            meant: false,
            sync: false,
            cache_ms: 0,
            connections: 4,
            patience,
        }
    }
}

/// An export of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Where NFS is.
    pub nfs: SocketAddr,
    /// Where MOUNT is.
    pub mount: SocketAddr,
    /// The path of the export.
    pub path: String,
}

impl Export {
    /// Parses `HOST:PORT[,MOUNTPORT]/PATH`. The path begins with the slash.
    ///
    /// # Errors
    ///
    /// If it has another form, or the host has no address.
    pub fn parse(text: &str) -> Result<Self> {
        let form = || format!("{text} is not HOST:PORT[,MOUNTPORT]/PATH");
        let slash = text.find('/').with_context(form)?;
        let (host, path) = text.split_at(slash);
        let (host, ports) = host.rsplit_once(':').with_context(form)?;
        let (port, mount_port) = ports.split_once(',').unwrap_or((ports, ports));
        let address = |port: &str| -> Result<SocketAddr> {
            let port: u16 = port.parse().with_context(form)?;
            (host, port).to_socket_addrs()?.next().with_context(|| format!("{host} has no address"))
        };
        Ok(Self { nfs: address(port)?, mount: address(mount_port)?, path: path.to_owned() })
    }
}

/// The limits that the server has told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) read_bytes: u32,
    pub(crate) write_bytes: u32,
    pub(crate) list_bytes: u32,
}

/// An export of an NFS server as a volume.
pub struct NfsFiles {
    pub(crate) client: Client,
    pub(crate) ways: Ways,
    pub(crate) limits: Limits,
    pub(crate) table: Mutex<Table>,
    pub(crate) unstable: Mutex<Unstable>,
    /// A silly name has gone.
    pub(crate) swept: Condvar,
}

/// What an operation answers, and the bytes beside it.
pub(crate) type Outcome = Result<(Answer, Vec<u8>), Errno>;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NfsFiles {
    /// Mounts the export.
    ///
    /// # Errors
    ///
    /// If the server does not answer or refuses.
    pub fn connect(export: &Export, ways: Ways) -> Result<Self> {
        let client = Client::new(export.nfs, export.mount, ways.connections, ways.patience);
        let root = client
            .mount(&Caller::ROOT, export.path.as_bytes())
            .with_context(|| format!("{} at {} cannot be mounted", export.path, export.mount))?;
        let limits = client.fsinfo(&Caller::ROOT, &FSINFO3args { fsroot: root.clone() })?;
        let Nfs3Result::Ok(told) = limits else { anyhow::bail!("FSINFO: {limits:?}") };
        let attributes = client.getattr(&Caller::ROOT, &GETATTR3args { object: root.clone() })?;
        let Nfs3Result::Ok(found) = attributes else { anyhow::bail!("GETATTR: {attributes:?}") };
        let limits = Limits {
            read_bytes: told.rtmax.clamp(512, 1 << 20),
            write_bytes: told.wtmax.clamp(512, 1 << 20),
            list_bytes: told.dtpref.clamp(4096, 1 << 16),
        };
        let table = Mutex::new(Table::new(found.obj_attributes.fileid, root));
        Ok(Self { client, ways, limits, table, unstable: Mutex::default(), swept: Condvar::new() })
    }

    /// The handle of an id that the frontend was told of.
    pub(crate) fn handle(&self, ino: Ino) -> Result<nfs_fh3, Errno> {
        locked(&self.table).handle(ino).ok_or(Errno::ESTALE)
    }

    pub(crate) fn place<'a>(&self, dir: Ino, name: &'a [u8]) -> Result<diropargs3<'a>, Errno> {
        Ok(diropargs3 { dir: self.handle(dir)?, name: name.into() })
    }

    /// Runs a call until the server does not tell it to come again later.
    pub(crate) fn ask<T, E>(
        &self,
        mut call: impl FnMut() -> Result<Nfs3Result<T, E>, RpcError>,
    ) -> Result<T, Errno> {
        let until = self.client.until();
        loop {
            match call() {
                Ok(Nfs3Result::Ok(result)) => return Ok(result),
                Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_JUKEBOX, _))) if Instant::now() < until => sleep(LATER),
                Ok(Nfs3Result::Err((why, _))) => return Err(errno(why)),
                Err(why) => {
                    eprintln!("atoll-lab-nfs: {why}");
                    return Err(Errno::EIO);
                }
            }
        }
    }

    /// Attributes as the frontend is told of them.
    pub(crate) fn attr(&self, of: &fattr3) -> Attr {
        let table = locked(&self.table);
        let mut attr = attrs::attr(table.ino(of.fileid), of);
        // Its last name is one that the server only has for our sake.
        if table.is_silly(attr.ino) {
            attr.nlink = attr.nlink.saturating_sub(1);
        }
        attr
    }

    /// What has this handle, of which the frontend is told now.
    pub(crate) fn found(
        &self,
        caller: &Caller,
        handle: nfs_fh3,
        of: post_op_attr,
    ) -> Result<NamedObject, Errno> {
        let of = match of {
            Nfs3Option::Some(of) => of,
            Nfs3Option::None => self.getattr(caller, &handle)?,
        };
        let attr = self.attr(&of);
        let mut table = locked(&self.table);
        table.note(attr.ino, handle);
        match attr.kind {
            Kind::Directory => table.note_dir(attr),
            Kind::Regular => {}
            _ => table.note_special(attr.ino),
        }
        Ok(NamedObject { attr, attr_current: true })
    }

    pub(crate) fn getattr(&self, caller: &Caller, handle: &nfs_fh3) -> Result<fattr3, Errno> {
        let args = GETATTR3args { object: handle.clone() };
        Ok(self.ask(|| self.client.getattr(caller, &args))?.obj_attributes)
    }

    fn run(&self, caller: &Caller, op: &Op, data: &Bytes) -> Outcome {
        if wants_groups(caller, op) {
            return Err(Errno::EACCES);
        }
        let answer = match op {
            Op::GetAttr { ino } => self.get_attr(caller, *ino),
            Op::SetAttr { ino, set } => self.set_attr(caller, *ino, set),
            Op::Access { ino } => self.access(caller, *ino),
            Op::Statfs => self.statfs(caller),
            Op::Readlink { ino } => return self.readlink(caller, *ino),
            Op::Read { ino, offset, len } => return self.read(caller, *ino, *offset, *len),
            Op::Write { ino, offset, append, .. } => self.write(caller, *ino, *offset, *append, data),
            Op::Fsync { ino } => self.commit(caller, *ino).map(|()| Answer::Done),
            Op::Seek { ino, offset, whence } => self.seek(caller, *ino, *offset, *whence),
            Op::Lookup { dir, name } => self.lookup(caller, *dir, name.as_bytes()),
            Op::Parent { dir } => self.lookup(caller, *dir, b".."),
            Op::Create { .. } => self.create(caller, op),
            Op::Mkdir { dir, name, mode, umask } => self.mkdir(caller, *dir, name, mode & !umask),
            Op::Unlink { dir, name } => self.unlink(caller, *dir, name),
            Op::Rmdir { dir, name, meant } => {
                self.rmdir(caller, *dir, name).and_then(|done| self.was_meant(*meant, done))
            }
            Op::Rename { dir, name, new_dir, new_name, mode, new_meant, .. } => {
                let done = self.rename(caller, (*dir, name), (*new_dir, new_name), *mode);
                done.and_then(|done| self.was_meant(*new_meant, done))
            }
            Op::Link { ino, dir, name } => self.link(caller, *ino, *dir, name),
            Op::ReadDir { dir, after, bytes, plus } => self.read_dir(caller, *dir, *after, *bytes, *plus),
            // NFSv3 makes every change of names and attributes stable before it is answered. Times of access are
            // the server's.
            Op::FsyncDir { .. } | Op::Accessed { .. } => Ok(Answer::Done),
            Op::CopyRange { .. } => Err(Errno::EXDEV),
            // Nothing else: the kernel gives any other error to whoever wants to use the file.
            Op::GetXattr { name, .. } if name.starts_with(b"system.posix_acl") => Err(Errno::ENODATA),
            // NFSv3 has no such thing. Locks are the kernel's, for this mount alone.
            Op::Fallocate { .. }
            | Op::GetXattr { .. }
            | Op::SetXattr { .. }
            | Op::ListXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::GetLock { .. }
            | Op::SetLock { .. }
            | Op::Tmpfile { .. } => Err(Errno::EOPNOTSUPP),
        };
        answer.map(|answer| (answer, Vec::new()))
    }

    fn get_attr(&self, caller: &Caller, ino: Ino) -> Result<Answer, Errno> {
        let told = self.getattr(caller, &self.handle(ino)?);
        // A FUSE kernel that keeps no attributes asks for them before it opens what it has made, and makes a file once more if it is
        // told ESTALE, because somebody has removed it. Linux's client goes by what it was told when it was made. Of a removed directory
        // that is open a volume tells the attributes, which NFS does not.
        let mut table = locked(&self.table);
        let made = table.take_made(ino).or_else(|| table.dir(ino));
        drop(table);
        match (told, made) {
            (Err(Errno::ESTALE), Some(made)) => Ok(Answer::Attr { attr: Attr { nlink: 0, ..made } }),
            (told, _) => Ok(Answer::Attr { attr: self.attr(&told?) }),
        }
    }

    fn set_attr(&self, caller: &Caller, ino: Ino, set: &atoll_posix::SetAttr) -> Result<Answer, Errno> {
        if set.size.is_some() {
            // Else a write that is sent again could lengthen the file again.
            self.commit(caller, ino)?;
        }
        let object = self.handle(ino)?;
        let args = SETATTR3args { object, new_attributes: attrs::set(set), guard: Nfs3Option::None };
        match self.ask(|| self.client.setattr(caller, &args))?.obj_wcc.after {
            Nfs3Option::Some(after) => Ok(Answer::Attr { attr: self.attr(&after) }),
            Nfs3Option::None => self.get_attr(caller, ino),
        }
    }

    fn access(&self, caller: &Caller, ino: Ino) -> Result<Answer, Errno> {
        let all = ACCESS3_READ
            | ACCESS3_LOOKUP
            | ACCESS3_MODIFY
            | ACCESS3_EXTEND
            | ACCESS3_DELETE
            | ACCESS3_EXECUTE;
        let args = ACCESS3args { object: self.handle(ino)?, access: all };
        let told = self.ask(|| self.client.access(caller, &args))?.access;
        let bit = |any: u32, bit: u8| if told & any == 0 { 0 } else { bit };
        let granted = bit(ACCESS3_READ, 4)
            | bit(ACCESS3_MODIFY | ACCESS3_EXTEND, 2)
            | bit(ACCESS3_LOOKUP | ACCESS3_EXECUTE, 1);
        Ok(Answer::Access { granted })
    }

    fn statfs(&self, caller: &Caller) -> Result<Answer, Errno> {
        let args = FSSTAT3args { fsroot: self.handle(Ino::ROOT)? };
        let told = self.ask(|| self.client.fsstat(caller, &args))?;
        Ok(Answer::Statfs {
            bytes: told.tbytes,
            bytes_free: told.fbytes,
            bytes_available: told.abytes,
            inodes: told.tfiles,
            inodes_free: told.ffiles,
            fs_id: 0,
        })
    }
}

/// Whether a server decides this by the caller's groups without saying so when it lacks them: it takes the set-group-id
/// bit away, or says `EPERM`. FUSE tells the groups after an `EACCES`.
fn wants_groups(caller: &Caller, op: &Op) -> bool {
    let by_group = match op {
        Op::SetAttr { set, .. } => set.gid.is_some() || set.mode.is_some_and(|bits| bits & mode::SETGID != 0),
        Op::Create { mode: bits, .. } => bits & mode::SETGID != 0,
        _ => false,
    };
    caller.uid != 0 && caller.groups.is_none() && by_group
}

impl Files for NfsFiles {
    fn start(&self, caller: &Caller, _: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        handover::slow();
        let caching =
            if self.ways.cache_ms == 0 { Caching::Never } else { Caching::ForMs(self.ways.cache_ms) };
        match self.run(caller, &op, &data) {
            Ok((answer, bytes)) => {
                done(Ok(answer), AnswerExtras { bytes: &bytes, caching, ..AnswerExtras::default() });
            }
            Err(errno) => done(Err(errno), AnswerExtras { caching, ..AnswerExtras::default() }),
        }
        Ticket::default()
    }

    fn cancel(&self, _: Ticket) {
        // Everything is over when `start` returns.
    }

    fn forget(&self, inos: &[Ino]) {
        for ino in inos {
            let silly = locked(&self.table).forget(*ino);
            if let Some(silly) = silly {
                handover::slow();
                self.sweep(*ino, &silly);
            }
        }
    }

    fn hears_opens(&self) -> bool {
        self.ways.silly
    }

    fn open(&self, _: &Caller, ino: Ino, _: OpenFor, done: OpenDone) {
        loop {
            let mut table = locked(&self.table);
            while table.is_going(ino) {
                handover::slow();
                table = self.swept.wait(table).unwrap_or_else(PoisonError::into_inner);
            }
            if !table.may_be_gone(ino) {
                table.open(ino);
                break;
            }
            drop(table);
            handover::slow();
            // Told ESTALE, Linux looks the name up again.
            if let Err(why) = self.handle(ino).and_then(|handle| self.getattr(&Caller::ROOT, &handle)) {
                return done(Err(why));
            }
            locked(&self.table).is_there(ino);
        }
        done(Ok(Opened { open: 0, backing: None }));
    }

    fn close(&self, ino: Ino, _: u64) {
        locked(&self.table).close(ino);
    }

    fn handle_of(&self, ino: Ino, _: Kind) -> Option<Handle> {
        Handle::new(ino.to_vec().into())
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        Ino::from_slice(handle.as_bytes()).map_err(|_| Errno::ESTALE)
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        match self.known(handle) {
            Ok(ino) => self.submit(&Caller::ROOT, Op::GetAttr { ino }, Bytes::new(), done),
            Err(errno) => {
                done(Err(errno), AnswerExtras::default());
                Ticket::default()
            }
        }
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        tell(if self.ways.cache_ms == 0 { Caching::Never } else { Caching::ForMs(self.ways.cache_ms) });
    }

    fn set_watcher(&self, _: Arc<dyn Watcher>) {
        // NFSv3 tells of nothing.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_one_port_or_two() {
        let one = Export::parse("127.0.0.1:2049/main").unwrap();
        assert_eq!((one.nfs, one.mount, &one.path[..]), (one.mount, one.nfs, "/main"));
        let two = Export::parse("127.0.0.1:1,2/a/b").unwrap();
        assert_eq!((two.nfs.port(), two.mount.port(), &two.path[..]), (1, 2, "/a/b"));
        for bad in ["", "/main", "127.0.0.1/main", "127.0.0.1:x/main", "127.0.0.1:2049", "127.0.0.1:1,/x"] {
            assert!(Export::parse(bad).is_err(), "{bad}");
        }
    }
}
