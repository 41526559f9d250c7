//! A small volume in memory to mount in tests, which can be changed behind the kernel's back. It
//! checks no permissions (the kernel does) but one that tells whether groups were looked up.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]

pub mod opening;

use atoll_core::{Ino, Name, Time};
use atoll_fuse::{Config, MountOptions, Mounted};
use atoll_posix::{
    Answer, Attr, Caller, DirEntry, Errno, Kind, LockKind, LockRange, NamedObject, Op, RenameMode, SetAttr,
    SetTime,
};
use atoll_vfs::handover::Gate;
use atoll_vfs::{
    AnswerExtras, AttrsAround, Caching, Done, Files, Handle, OpenDone, OpenFor, RequestOptions, Scope,
    Ticket, Watcher,
};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

struct Node {
    attr: Attr,
    data: Vec<u8>,
    /// Names by cookie.
    entries: BTreeMap<u64, (Name, Ino)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    fn find(&self, name: &Name) -> Option<(u64, Ino)> {
        self.entries.iter().find(|(_, (n, _))| n == name).map(|(cookie, (_, ino))| (*cookie, *ino))
    }
}

struct Waiter {
    ticket: Ticket,
    ino: Ino,
    lock: LockRange,
    done: Done,
}

struct State {
    nodes: HashMap<Ino, Node>,
    /// Names by directory and name, to find one in a large directory at once.
    names: HashMap<(Ino, Name), u64>,
    next: u64,
    locks: Vec<(Ino, LockRange)>,
    waiters: Vec<Waiter>,
    /// How often somebody asked for a file's capabilities.
    capabilities_asked: u64,
    /// Lookups of names that are not there.
    absent_asked: u64,
    /// Questions for a directory's attributes.
    attr_asked: u64,
    /// Files were synced so often.
    synced: u64,
}

/// The volume.
pub struct Memory {
    state: Mutex<State>,
    pub caching: Mutex<Caching>,
    /// Passed when every promise that was given before has been passed on.
    promises: Gate,
    pub watcher: OnceLock<Arc<dyn Watcher>>,
    pub forgotten: Mutex<Vec<Ino>>,
    pub cancelled: AtomicU64,
    /// If not 0, changes in directories of this group need it among the caller's groups.
    pub guarded_group: AtomicU32,
    /// How long each read takes.
    pub read_delay_ms: AtomicU64,
    /// Reads and writes of these, and what makes directories in them, are not answered while they are here.
    pub held: Mutex<Vec<Ino>>,
    /// No answer tells the attributes of this directory that were asked for beside.
    pub untold: Mutex<Option<Ino>>,
    /// How many of them wait for that.
    pub holding: AtomicU64,
    /// Lookups in this directory are not answered until they are cancelled, but for so many.
    pub stuck: Mutex<Option<(Ino, u32)>>,
    pub looking: Mutex<Vec<(Ticket, Done)>>,
    /// What another mount does just before the next removal or rename of a directory is decided.
    pub first: Mutex<Vec<Op>>,
    /// The same for each of the next ones, from the last on.
    pub races: Mutex<Vec<Vec<Op>>>,
    /// The next directory is not made, for now, and nobody knows.
    pub loses: AtomicBool,
    /// Claim to have no operations at all.
    pub broken: AtomicBool,
    pub opening: Mutex<opening::Opening>,
    /// Tells the mount that calls may hang. Before it is mounted.
    pub may_hang: AtomicBool,
    /// Every call for these hangs until it is taken from here.
    pub hanging: Mutex<Vec<Ino>>,
    pub let_go: Condvar,
    /// How many calls hang.
    pub hung: AtomicU64,
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap())
}

fn attr(ino: Ino, kind: Kind, mode: u32, caller: &Caller, rdev: u32) -> Attr {
    let time = now();
    let nlink = if kind == Kind::Directory { 2 } else { 1 };
    let (uid, gid) = (caller.uid, caller.gid);
    let (atime, mtime, ctime, btime) = (time, time, time, time);
    Attr { ino, kind, mode, nlink, uid, gid, rdev, size: 0, blocks: 0, atime, mtime, ctime, btime }
}

impl Default for Memory {
    fn default() -> Self {
        let root = attr(Ino::ROOT, Kind::Directory, 0o755, &Caller::ROOT, 0);
        let root = Node { attr: root, data: Vec::new(), entries: BTreeMap::new(), xattrs: BTreeMap::new() };
        let nodes = HashMap::from([(Ino::ROOT, root)]);
        let state = State {
            nodes,
            names: HashMap::new(),
            next: 100,
            locks: Vec::new(),
            waiters: Vec::new(),
            capabilities_asked: 0,
            absent_asked: 0,
            attr_asked: 0,
            synced: 0,
        };
        Self {
            state: Mutex::new(state),
            caching: Mutex::new(Caching::UntilRecalled),
            promises: Gate::default(),
            watcher: OnceLock::new(),
            forgotten: Mutex::default(),
            stuck: Mutex::default(),
            looking: Mutex::default(),
            cancelled: 0.into(),
            guarded_group: 0.into(),
            read_delay_ms: 0.into(),
            held: Mutex::default(),
            untold: Mutex::default(),
            holding: 0.into(),
            first: Mutex::default(),
            races: Mutex::default(),
            loses: false.into(),
            broken: false.into(),
            opening: Mutex::default(),
            may_hang: false.into(),
            hanging: Mutex::default(),
            let_go: Condvar::new(),
            hung: 0.into(),
        }
    }
}

fn is_meant(meant: Option<Ino>, there: Option<Ino>) -> Result<(), Errno> {
    if meant.is_none() || meant == there { Ok(()) } else { Err(Errno::ESTALE) }
}

impl State {
    fn node(&mut self, ino: Ino) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    fn find(&self, dir: Ino, name: &Name) -> Option<Ino> {
        let cookie = self.names.get(&(dir, name.clone()))?;
        self.nodes.get(&dir)?.entries.get(cookie).map(|(_, ino)| *ino)
    }

    fn add(&mut self, dir: Ino, name: Name, ino: Ino) -> Result<(), Errno> {
        self.next += 1;
        let cookie = self.next;
        let node = self.node(dir)?;
        node.attr.mtime = now();
        node.attr.ctime = node.attr.mtime;
        node.entries.insert(cookie, (name.clone(), ino));
        self.names.insert((dir, name), cookie);
        Ok(())
    }

    fn remove(&mut self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        let cookie = self.names.remove(&(dir, name.clone())).ok_or(Errno::ENOENT)?;
        let node = self.node(dir)?;
        node.attr.mtime = now();
        let (_, ino) = node.entries.remove(&cookie).expect("both maps agree");
        Ok(ino)
    }

    fn unlink(&mut self, dir: Ino, name: &Name) -> Result<Answer, Errno> {
        let ino = self.remove(dir, name)?;
        let node = self.node(ino)?;
        node.attr.nlink -= 1;
        Ok(Answer::Removed { orphan: (node.attr.nlink == 0).then_some(ino) })
    }

    fn make(&mut self, dir: Ino, name: Name, mut attr: Attr, data: &[u8]) -> Result<Answer, Errno> {
        if self.find(dir, &name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.next += 1;
        attr.ino = Ino(self.next);
        attr.size = data.len() as u64;
        let data = data.to_vec();
        let node = Node { attr, data, entries: BTreeMap::new(), xattrs: BTreeMap::new() };
        self.nodes.insert(attr.ino, node);
        self.add(dir, name, attr.ino)?;
        Ok(Answer::Found { found: NamedObject { attr, attr_current: true } })
    }

    fn conflict(&self, ino: Ino, lock: &LockRange) -> Option<LockRange> {
        let meets = |held: &LockRange| {
            held.flock == lock.flock
                && held.owner != lock.owner
                && held.start <= lock.end
                && lock.start <= held.end
                && lock.kind != LockKind::Unlock
                && (held.kind == LockKind::Write || lock.kind == LockKind::Write)
        };
        self.locks.iter().find(|(at, held)| *at == ino && meets(held)).map(|(_, held)| *held)
    }

    fn set_lock(&mut self, ino: Ino, lock: LockRange) {
        let mut kept = Vec::new();
        for (at, held) in self.locks.drain(..) {
            let same = at == ino && held.owner == lock.owner && held.flock == lock.flock;
            if !same || held.start > lock.end || lock.start > held.end {
                kept.push((at, held));
                continue;
            }
            if held.start < lock.start {
                kept.push((at, LockRange { end: lock.start - 1, ..held }));
            }
            if held.end > lock.end {
                kept.push((at, LockRange { start: lock.end + 1, ..held }));
            }
        }
        if lock.kind != LockKind::Unlock {
            kept.push((ino, lock));
        }
        self.locks = kept;
    }

    /// Waiters whose lock is granted now.
    fn granted(&mut self) -> Vec<Waiter> {
        let mut granted = Vec::new();
        while let Some(at) = self.waiters.iter().position(|w| self.conflict(w.ino, &w.lock).is_none()) {
            let waiter = self.waiters.remove(at);
            self.set_lock(waiter.ino, waiter.lock);
            granted.push(waiter);
        }
        granted
    }

    fn set_attr(node: &mut Node, set: &SetAttr) {
        let time = |t: SetTime| match t {
            SetTime::Now => now(),
            SetTime::To { time } => time,
        };
        let a = &mut node.attr;
        a.mode = set.mode.unwrap_or(a.mode);
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        if let Some(size) = set.size {
            node.data.resize(usize::try_from(size).unwrap(), 0);
            a.size = size;
            a.mtime = now();
        }
        a.atime = set.atime.map_or(a.atime, time);
        a.mtime = set.mtime.map_or(a.mtime, time);
        if set.kill_set_id {
            a.mode &= 0o1777;
        }
        a.ctime = now();
    }

    fn run(&mut self, caller: &Caller, op: Op, data: &Bytes) -> Result<(Answer, Vec<u8>), Errno> {
        let plain = |answer| Ok((answer, Vec::new()));
        for dir in op.dirs().into_iter().flatten() {
            if self.node(dir)?.attr.nlink == 0 {
                return Err(Errno::ESTALE);
            }
        }
        match op {
            Op::Lookup { dir, name } => {
                let found = self.find(dir, &name);
                self.absent_asked += u64::from(found.is_none());
                let attr = self.node(found.ok_or(Errno::ENOENT)?)?.attr;
                plain(Answer::Found { found: NamedObject { attr, attr_current: true } })
            }
            Op::GetAttr { ino } => plain(Answer::Attr { attr: self.node(ino)?.attr }),
            Op::SetAttr { ino, set } => {
                let node = self.node(ino)?;
                Self::set_attr(node, &set);
                plain(Answer::Attr { attr: node.attr })
            }
            Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target } => {
                assert!(exclusive, "only the kernel may open a file that is there");
                let attr = attr(Ino(0), kind, mode & !umask, caller, rdev);
                plain(self.make(dir, name, attr, &target)?)
            }
            Op::Mkdir { dir, name, mode, umask } => {
                let attr = attr(Ino(0), Kind::Directory, mode & !umask, caller, 0);
                let made = self.make(dir, name, attr, &[])?;
                self.node(dir)?.attr.nlink += 1;
                plain(made)
            }
            Op::Unlink { dir, name } => plain(self.unlink(dir, &name)?),
            Op::Rmdir { dir, name, meant } => {
                let ino = self.find(dir, &name).ok_or(Errno::ENOENT)?;
                is_meant(meant, Some(ino))?;
                if !self.node(ino)?.entries.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.remove(dir, &name)?;
                // As a volume does, it keeps the attributes for whoever has it open.
                self.node(ino)?.attr.nlink = 0;
                self.node(dir)?.attr.nlink -= 1;
                plain(Answer::Done)
            }
            Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant } => {
                is_meant(meant, self.find(dir, &name))?;
                is_meant(new_meant, self.find(new_dir, &new_name))?;
                self.node(new_dir)?;
                let taken = self.find(new_dir, &new_name).is_some();
                let mut removed = Answer::Removed { orphan: None };
                match mode {
                    RenameMode::NoReplace if taken => return Err(Errno::EEXIST),
                    RenameMode::Exchange => {
                        let old = self.remove(new_dir, &new_name)?;
                        let ino = self.remove(dir, &name)?;
                        self.add(dir, name, old)?;
                        self.add(new_dir, new_name, ino)?;
                        return plain(removed);
                    }
                    _ if taken => removed = self.unlink(new_dir, &new_name)?,
                    _ => {}
                }
                let ino = self.remove(dir, &name)?;
                self.add(new_dir, new_name, ino)?;
                plain(removed)
            }
            Op::Link { ino, dir, name } => {
                self.add(dir, name, ino)?;
                let node = self.node(ino)?;
                node.attr.nlink += 1;
                plain(Answer::Found { found: NamedObject { attr: node.attr, attr_current: true } })
            }
            Op::Readlink { ino } => Ok((Answer::Data, self.node(ino)?.data.clone())),
            Op::Read { ino, offset, len } => {
                let data = &self.node(ino)?.data;
                let start = (offset as usize).min(data.len());
                let end = (start + len as usize).min(data.len());
                Ok((Answer::Data, data[start..end].to_vec()))
            }
            Op::Write { ino, offset, append, kill_set_id } => {
                let node = self.node(ino)?;
                let offset = if append { node.data.len() } else { offset as usize };
                let end = offset + data.len();
                if node.data.len() < end {
                    node.data.resize(end, 0);
                }
                node.data[offset..end].copy_from_slice(data);
                node.attr.size = node.data.len() as u64;
                node.attr.blocks = node.attr.size.div_ceil(512);
                node.attr.mtime = now();
                node.attr.ctime = node.attr.mtime;
                if kill_set_id {
                    node.attr.mode &= 0o1777;
                }
                plain(Answer::Wrote { len: data.len() as u64, offset: offset as u64 })
            }
            Op::ReadDir { dir, after, bytes, plus } => {
                let list: Vec<_> = {
                    let room = (bytes as usize / if plus { 160 } else { 32 }).max(1);
                    let entries = &self.node(dir)?.entries;
                    entries.range(after + 1..).take(room + 1).map(|(c, (n, i))| (*c, n.clone(), *i)).collect()
                };
                let room = (bytes as usize / if plus { 160 } else { 32 }).max(1);
                let eof = list.len() <= room;
                let mut entries = Vec::new();
                for (cookie, name, ino) in list.into_iter().take(room) {
                    let attr = self.node(ino)?.attr;
                    let found = plus.then_some(NamedObject { attr, attr_current: true });
                    entries.push(DirEntry { name, ino, kind: attr.kind, cookie, found });
                }
                plain(Answer::Entries { entries, eof })
            }
            Op::GetXattr { ino, name } => {
                self.capabilities_asked += u64::from(&name[..] == b"security.capability");
                let value = self.node(ino)?.xattrs.get(&name[..]).cloned().ok_or(Errno::ENODATA)?;
                Ok((Answer::Data, value))
            }
            Op::SetXattr { ino, name, value, .. } => {
                self.node(ino)?.xattrs.insert(name.to_vec(), value.to_vec());
                plain(Answer::Done)
            }
            Op::ListXattr { ino } => {
                let names = self.node(ino)?.xattrs.keys().flat_map(|k| [&k[..], b"\0"].concat()).collect();
                Ok((Answer::Data, names))
            }
            Op::RemoveXattr { ino, name } => {
                self.node(ino)?.xattrs.remove(&name[..]).ok_or(Errno::ENODATA)?;
                plain(Answer::Done)
            }
            Op::Statfs => plain(Answer::Statfs {
                bytes: 1 << 40,
                bytes_free: 1 << 39,
                bytes_available: 1 << 38,
                inodes: 1000,
                inodes_free: 900,
                fs_id: 7,
            }),
            Op::GetLock { ino, lock } => {
                let free = LockRange { kind: LockKind::Unlock, ..lock };
                plain(Answer::Lock { lock: self.conflict(ino, &lock).unwrap_or(free) })
            }
            Op::Accessed { ino, access } => {
                let node = self.node(ino)?;
                node.attr.atime = access.atime(&node.attr);
                plain(Answer::Done)
            }
            Op::Fsync { ino } => {
                self.synced += u64::from(self.nodes.contains_key(&ino));
                plain(Answer::Done)
            }
            Op::FsyncDir { .. } => plain(Answer::Done),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl Memory {
    /// Changes the volume without the kernel.
    /// How often the volume was asked for a directory's attributes.
    pub fn attr_asked(&self) -> u64 {
        self.state.lock().unwrap().attr_asked
    }

    /// How often files were synced.
    pub fn synced(&self) -> u64 {
        self.state.lock().unwrap().synced
    }

    /// What they are.
    pub fn attr_of(&self, dir: Ino) -> Attr {
        self.state.lock().unwrap().node(dir).unwrap().attr
    }

    /// How often the volume was asked for a name that is not there.
    pub fn absent_asked(&self) -> u64 {
        self.state.lock().unwrap().absent_asked
    }

    /// How often the volume was asked for a file's capabilities.
    pub fn capabilities_asked(&self) -> u64 {
        self.state.lock().unwrap().capabilities_asked
    }

    pub fn behind(&self, op: Op, data: &[u8]) -> Answer {
        let outcome = self.state.lock().unwrap().run(&Caller::ROOT, op, &Bytes::copy_from_slice(data));
        outcome.unwrap().0
    }

    /// The file of this name in the root directory.
    pub fn id(&self, name: &str) -> Ino {
        self.id_in(Ino::ROOT, name)
    }

    /// The file of this name in a directory.
    pub fn id_in(&self, dir: Ino, name: &str) -> Ino {
        self.state.lock().unwrap().find(dir, &Name::new(name.as_bytes()).unwrap()).unwrap()
    }

    pub fn locks(&self) -> usize {
        self.state.lock().unwrap().locks.len()
    }

    pub fn waiters(&self) -> usize {
        self.state.lock().unwrap().waiters.len()
    }

    /// Nobody may keep anything from here on, and nothing that was kept is used any more.
    pub fn recall(&self) {
        *self.caching.lock().unwrap() = Caching::Never;
        self.promises.pass();
        let watcher = Arc::clone(self.watcher.get().unwrap());
        std::thread::spawn(move || watcher.recall(Scope::Everything)).join().unwrap();
    }

    /// Calls for this id hang from here on.
    pub fn hang(&self, ino: Ino) {
        self.hanging.lock().unwrap().push(ino);
    }

    /// Lets every call go that hangs.
    pub fn unhang(&self) {
        self.hanging.lock().unwrap().clear();
        self.let_go.notify_all();
    }

    fn complete(&self, done: Done, outcome: Result<Answer, Errno>, bytes: &[u8]) {
        self.complete_with(done, outcome, bytes, Vec::new());
    }

    fn complete_with(
        &self,
        done: Done,
        outcome: Result<Answer, Errno>,
        bytes: &[u8],
        around: Vec<AttrsAround>,
    ) {
        let _promise = self.promises.answer();
        let caching = *self.caching.lock().unwrap();
        done(outcome, AnswerExtras { bytes, caching, around: &around });
    }
}

impl Files for Memory {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        if self.broken.load(SeqCst) {
            self.complete(done, Err(Errno::ENOSYS), &[]);
            return Ticket(0);
        }
        if let Op::Read { ino, .. } | Op::GetAttr { ino } = op {
            // A native call hangs without a word.
            self.hung.fetch_add(1, SeqCst);
            let hangs = |hanging: &mut Vec<Ino>| hanging.contains(&ino);
            drop(self.let_go.wait_while(self.hanging.lock().unwrap(), hangs).unwrap());
            self.hung.fetch_sub(1, SeqCst);
        }
        if let Op::Read { .. } = op {
            atoll_vfs::handover::slow();
            std::thread::sleep(Duration::from_millis(self.read_delay_ms.load(SeqCst)));
        }
        if let Op::Read { ino, .. } | Op::Write { ino, .. } | Op::Mkdir { dir: ino, .. } = &op {
            self.holding.fetch_add(1, SeqCst);
            while self.held.lock().unwrap().contains(ino) {
                atoll_vfs::handover::slow();
                std::thread::sleep(Duration::from_millis(1));
            }
            self.holding.fetch_sub(1, SeqCst);
        }
        if let Op::Rmdir { .. } | Op::Rename { .. } = &op {
            let race = self.races.lock().unwrap().pop().unwrap_or_default();
            for first in std::mem::take(&mut *self.first.lock().unwrap()).into_iter().chain(race) {
                self.behind(first, b"");
            }
        }
        if let Op::Lookup { dir, .. } = &op
            && let Some((_, free)) = self.stuck.lock().unwrap().as_mut().filter(|(stuck, _)| stuck == dir)
        {
            if *free == 0 {
                let mut looking = self.looking.lock().unwrap();
                let ticket = Ticket((1 << 32) + looking.len() as u64);
                looking.push((ticket, done));
                return ticket;
            }
            *free -= 1;
        }
        if let Op::Mkdir { .. } = op
            && self.loses.swap(false, SeqCst)
        {
            self.complete(done, Err(Errno::EIO), &[]);
            return Ticket(0);
        }
        let mut state = self.state.lock().unwrap();
        if let (Op::Mkdir { dir, .. }, guarded @ 1..) = (&op, self.guarded_group.load(SeqCst)) {
            let may = caller.groups.as_ref().is_some_and(|groups| groups.contains(&guarded));
            if state.node(*dir).is_ok_and(|node| node.attr.gid == guarded) && !may {
                drop(state);
                self.complete(done, Err(Errno::EACCES), &[]);
                return Ticket(0);
            }
        }
        if let Op::SetLock { ino, lock, wait } = op {
            if state.conflict(ino, &lock).is_some() {
                if wait {
                    state.next += 1;
                    let ticket = Ticket(state.next);
                    state.waiters.push(Waiter { ticket, ino, lock, done });
                    return ticket;
                }
                drop(state);
                self.complete(done, Err(Errno::EAGAIN), &[]);
                return Ticket(0);
            }
            state.set_lock(ino, lock);
            let granted = state.granted();
            drop(state);
            self.complete(done, Ok(Answer::Done), &[]);
            granted.into_iter().for_each(|w| self.complete(w.done, Ok(Answer::Done), &[]));
            return Ticket(0);
        }
        let subjects = op.subjects();
        if let Op::GetAttr { ino } = op {
            let is_dir = state.node(ino).is_ok_and(|node| node.attr.kind == Kind::Directory);
            state.attr_asked += u64::from(is_dir);
        }
        let outcome = state.run(caller, op, &data);
        let after = |ino| Some(AttrsAround::new(None, state.node(ino).ok()?.attr));
        let around = subjects.into_iter().flatten().filter(|_| options.attributes).filter_map(after);
        let untold = *self.untold.lock().unwrap();
        let around = around.filter(|told| Some(told.after.ino) != untold).collect();
        drop(state);
        match outcome {
            Ok((answer, bytes)) => self.complete_with(done, Ok(answer), &bytes, around),
            Err(why) => self.complete(done, Err(why), &[]),
        }
        Ticket(0)
    }

    fn cancel(&self, ticket: Ticket) {
        self.cancelled.fetch_add(1, SeqCst);
        let looking = self.looking.lock().unwrap().extract_if(.., |(t, _)| *t == ticket).next();
        if let Some((_, done)) = looking {
            return self.complete(done, Err(Errno::EINTR), &[]);
        }
        let waiter = {
            let mut state = self.state.lock().unwrap();
            let at = state.waiters.iter().position(|w| w.ticket == ticket);
            at.map(|at| state.waiters.remove(at))
        };
        if let Some(waiter) = waiter {
            self.complete(waiter.done, Err(Errno::EINTR), &[]);
        }
    }

    fn forget(&self, inos: &[Ino]) {
        self.forgotten.lock().unwrap().extend_from_slice(inos);
    }

    fn handle_of(&self, _: Ino, _: Kind) -> Option<Handle> {
        None
    }

    fn known(&self, _: &Handle) -> Result<Ino, Errno> {
        Err(Errno::ESTALE)
    }

    fn find(&self, _: &Handle, done: Done) -> Ticket {
        done(Err(Errno::ESTALE), AnswerExtras::default());
        Ticket(0)
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        let _promise = self.promises.answer();
        let caching = *self.caching.lock().unwrap();
        tell(caching);
    }

    fn may_hang(&self) -> bool {
        self.may_hang.load(SeqCst)
    }

    fn hears_opens(&self) -> bool {
        self.opening.lock().unwrap().hears
    }

    fn open(&self, _: &Caller, ino: Ino, how: OpenFor, done: OpenDone) {
        opening::open(&self.opening, ino, how, done);
    }

    fn close(&self, ino: Ino, open: u64) {
        opening::close(&self.opening, ino, open);
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        let _ = self.watcher.set(watcher);
    }
}

/// Makes an empty file in the root.
pub fn create(text: &str) -> Op {
    create_in(Ino::ROOT, text)
}

/// The same in another directory.
pub fn create_in(dir: Ino, text: &str) -> Op {
    Op::Create {
        dir,
        name: Name::new(text.as_bytes()).unwrap(),
        kind: Kind::Regular,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        target: Bytes::new(),
    }
}

/// A new empty directory, removed with the mount.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("atoll-fuse-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A mounted volume in memory.
pub struct World {
    pub mounted: Option<Mounted>,
    pub files: Arc<Memory>,
    pub place: Place,
}

impl World {
    pub fn new(name: &str) -> Self {
        Self::with(name, Arc::new(Memory::default()), Config::default())
    }

    pub fn with(name: &str, files: Arc<Memory>, config: Config) -> Self {
        let place = Place::new(name);
        let options = MountOptions::new(name);
        let mounted = Mounted::new(files.clone(), &place.0, &options, config).unwrap();
        Self { mounted: Some(mounted), files, place }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.place.0.join(name)
    }

    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    /// Requests of this kind so far.
    pub fn requests(&self, operation: &str) -> u64 {
        let counts = self.mounted().counters();
        counts.iter().find(|c| c.operation == operation).map_or(0, |c| c.requests)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Before the directory is removed.
        self.mounted.take();
    }
}

/// How long a test waits for what comes soon. It only catches what never comes, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `what` holds; fails after `PATIENCE`.
pub fn eventually(what: impl Fn() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !what() {
        assert!(std::time::Instant::now() < until, "it did not happen in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a Python program with `dir` as its only argument, and returns what it printed.
pub fn python(program: &str, dir: &Path) -> String {
    let output = std::process::Command::new("python3").arg("-c").arg(program).arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python failed: {said}");
    String::from_utf8(output.stdout).unwrap()
}
