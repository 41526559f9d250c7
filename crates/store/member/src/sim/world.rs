//! The nodes of a simulated member, what of them has reached the disk, and what the process holds. Knows no call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use atoll_core::{Ino, Name, Time};
use atoll_posix::acl::Acl;
use atoll_posix::locks::Locks;
use atoll_posix::perm::{AccessMode, Denied, ObjectPerms, check};
use atoll_posix::{Attr, Caller, Errno, Kind};
use atoll_union::{NativeId, NativeStat};
use bytes::Bytes;

use super::Faults;

/// The root's inode number.
pub(super) const ROOT: u64 = 2;

/// Bytes of a block, which is a hole when all of them are 0.
pub(super) const BLOCK_BYTES: usize = 4_096;

/// One file or directory.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) btime: Time,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) rdev: u32,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    /// Bytes of a file, target of a link.
    pub(super) data: Arc<Vec<u8>>,
    pub(super) entries: BTreeMap<Name, Entry>,
    /// The directory above, of a directory.
    pub(super) above: u64,
    pub(super) xattrs: BTreeMap<Bytes, Bytes>,
    pub(super) acl: Option<Acl>,
    pub(super) default_acl: Option<Acl>,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) ino: u64,
    /// Where it stands in listings.
    pub(super) place: u64,
}

impl Node {
    pub(super) const fn perms(&self) -> ObjectPerms {
        ObjectPerms { uid: self.uid, gid: self.gid, mode: self.mode, kind: self.kind }
    }

    pub(super) fn attr(&self, ino: u64) -> Attr {
        Attr {
            ino: Ino(ino),
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.data.len() as u64,
            blocks: 0,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }
}

/// All nodes.
#[derive(Debug, Clone)]
pub(super) struct Nodes {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) next_place: u64,
}

/// What one process holds of the member.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) dirs: BTreeSet<NativeId>,
    pub(super) opens: BTreeMap<u64, u64>,
    pub(super) handles: BTreeSet<NativeId>,
    pub(super) watched: BTreeSet<NativeId>,
    pub(super) feed: VecDeque<(Time, NativeId, Name)>,
    pub(super) feed_lost: bool,
    /// The disk has gone since it was opened. A disk that is mounted again is not the one that this process has open.
    pub(super) gone: bool,
}

impl Process {
    /// One that holds nothing but the root.
    fn new(root: NativeId) -> Self {
        Self {
            dirs: BTreeSet::from([root]),
            opens: BTreeMap::new(),
            handles: BTreeSet::new(),
            watched: BTreeSet::new(),
            feed: VecDeque::new(),
            feed_lost: false,
            gone: false,
        }
    }
}

/// The whole simulation of a member.
#[derive(Debug)]
pub(super) struct World {
    pub(super) fs: u64,
    pub(super) clock: Time,
    pub(super) step_ns: u32,
    pub(super) faults: Faults,
    pub(super) mounts: BTreeSet<(u64, Name)>,
    pub(super) tree: Nodes,
    /// Names and attributes as they are on the disk.
    disk: Nodes,
    /// Bytes of files as they are on the disk.
    disk_bytes: BTreeMap<(u64, Time), Arc<Vec<u8>>>,
    /// A direct program's call is under way.
    pub(super) direct: bool,
    /// Opens that are leases, and whether somebody waits to open the file for writing.
    pub(super) leases: BTreeMap<u64, bool>,
    /// The processes that use the member, and which of them makes the call.
    pub(super) processes: Vec<Process>,
    pub(super) here: usize,
    next_open: u64,
    pub(super) locks: BTreeMap<u64, Locks>,
}

impl World {
    pub(super) fn new(fs: u64, clock: Time) -> Self {
        let root = Node {
            btime: clock,
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            atime: clock,
            mtime: clock,
            ctime: clock,
            data: Arc::default(),
            entries: BTreeMap::new(),
            above: ROOT,
            xattrs: BTreeMap::new(),
            acl: None,
            default_acl: None,
        };
        let tree = Nodes { nodes: BTreeMap::from([(ROOT, root)]), next_place: 1 };
        Self {
            fs,
            clock,
            step_ns: 1_000,
            faults: Faults::default(),
            mounts: BTreeSet::new(),
            disk: tree.clone(),
            tree,
            disk_bytes: BTreeMap::new(),
            direct: false,
            leases: BTreeMap::new(),
            processes: vec![Process::new(NativeId { ino: ROOT, btime: clock })],
            here: 0,
            next_open: 1,
            locks: BTreeMap::new(),
        }
    }

    /// One more process uses the member. Its number.
    pub(super) fn add_process(&mut self) -> usize {
        self.processes.push(Process::new(self.id(ROOT)));
        self.processes.len() - 1
    }

    /// What the process holds that makes the call.
    pub(super) fn held(&self) -> &Process {
        &self.processes[self.here]
    }

    pub(super) fn held_mut(&mut self) -> &mut Process {
        &mut self.processes[self.here]
    }

    pub(super) fn tick(&mut self) {
        let nanos = u64::from(self.clock.nanos) + u64::from(self.step_ns);
        let later = Time::from_nanos(nanos);
        self.clock = Time { secs: self.clock.secs + later.secs, nanos: later.nanos };
    }

    pub(super) fn id(&self, ino: u64) -> NativeId {
        NativeId { ino, btime: self.tree.nodes[&ino].btime }
    }

    pub(super) fn node(&self, ino: u64) -> &Node {
        &self.tree.nodes[&ino]
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.tree.nodes.get_mut(&ino).expect("a number that was found stays while a call is made")
    }

    pub(super) fn stat(&self, ino: u64) -> NativeStat {
        let node = self.node(ino);
        let full = node.data.chunks(BLOCK_BYTES).filter(|block| block.iter().any(|b| *b != 0)).count();
        let size = if node.kind == Kind::Directory { BLOCK_BYTES as u64 } else { node.data.len() as u64 };
        NativeStat {
            id: self.id(ino),
            kind: node.kind,
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size,
            blocks: full as u64 * 8,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
        }
    }

    /// The number of a directory that is open. `ESTALE`.
    pub(super) fn dir(&self, id: NativeId) -> Result<u64, Errno> {
        let alive = self.tree.nodes.get(&id.ino).is_some_and(|node| node.btime == id.btime);
        let open = self.direct || self.held().dirs.contains(&id);
        if alive && open { Ok(id.ino) } else { Err(Errno::ESTALE) }
    }

    pub(super) fn may(&self, by: &Caller, ino: u64, want: AccessMode) -> Result<(), Errno> {
        let node = self.node(ino);
        check(by, node.perms(), want, node.acl.as_ref()).map_err(native)
    }

    /// A number for a new node: the smallest that is free, as native file systems do. `ENOSPC`.
    pub(super) fn free_ino(&self) -> Result<u64, Errno> {
        if self.tree.nodes.len() as u64 >= self.faults.inodes_max {
            return Err(Errno::ENOSPC);
        }
        Ok((ROOT + 1..).find(|ino| !self.tree.nodes.contains_key(ino)).expect("there are more numbers"))
    }

    /// `ENOSPC` if files may not have so many more bytes.
    pub(super) fn room(&self, more: u64) -> Result<(), Errno> {
        if self.faults.bytes_max == u64::MAX {
            return Ok(());
        }
        let used: u64 = self.tree.nodes.values().map(|node| node.data.len() as u64).sum();
        if used.saturating_add(more) > self.faults.bytes_max { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Frees a node that has neither a name nor anybody who holds it.
    pub(super) fn free(&mut self, ino: u64) {
        let Some(node) = self.tree.nodes.get(&ino) else { return };
        let id = NativeId { ino, btime: node.btime };
        let holds =
            |process: &Process| process.opens.values().any(|open| *open == ino) || process.dirs.contains(&id);
        if node.nlink == 0 && !self.processes.iter().any(holds) {
            self.tree.nodes.remove(&ino);
            self.locks.remove(&ino);
            for process in &mut self.processes {
                process.watched.remove(&id);
                process.handles.remove(&id);
            }
        }
    }

    /// The feeds of others tell of a name that was made or removed.
    pub(super) fn tell_of_others(&mut self, dir: u64, name: &Name) {
        let by = if self.direct { None } else { Some(self.here) };
        self.tell_but(by, dir, name);
    }

    /// All feeds tell of a name in a directory.
    pub(super) fn tell(&mut self, dir: u64, name: &Name) {
        self.tell_but(None, dir, name);
    }

    fn tell_but(&mut self, by: Option<usize>, dir: u64, name: &Name) {
        let id = self.id(dir);
        if self.faults.feed_drops {
            return;
        }
        let due = self.clock.plus_millis(self.faults.feed_delay_ms);
        for (at, process) in self.processes.iter_mut().enumerate() {
            if by == Some(at) || !process.watched.contains(&id) {
                continue;
            }
            if process.feed.len() >= self.faults.feed_max {
                process.feed.clear();
                process.feed_lost = true;
            } else {
                process.feed.push_back((due, id, name.clone()));
            }
        }
    }

    /// See [`super::SimTree::everything`].
    pub(super) fn everything(&self) -> Vec<(Vec<Name>, NativeStat, Arc<Vec<u8>>)> {
        let (mut all, mut left) = (Vec::new(), vec![(Vec::new(), ROOT)]);
        while let Some((path, ino)) = left.pop() {
            let node = self.node(ino);
            for (name, entry) in node.entries.iter().rev() {
                left.push(([path.as_slice(), std::slice::from_ref(name)].concat(), entry.ino));
            }
            all.push((path, self.stat(ino), Arc::clone(&node.data)));
        }
        all
    }

    pub(super) fn opened(&mut self, ino: u64) -> u64 {
        let open = self.next_open;
        self.next_open += 1;
        self.held_mut().opens.insert(open, ino);
        open
    }

    /// A file system with a journal writes all names and attributes with any sync, but only this file's bytes.
    pub(super) fn sync(&mut self, file: Option<u64>) {
        if !self.faults.unordered {
            self.disk = self.tree.clone();
        }
        if let Some(ino) = file {
            let node = self.node(ino);
            let bytes = ((ino, node.btime), Arc::clone(&node.data));
            self.disk_bytes.insert(bytes.0, bytes.1);
        }
        let nodes = &self.tree.nodes;
        self.disk_bytes.retain(|(ino, btime), _| nodes.get(ino).is_some_and(|node| node.btime == *btime));
    }

    /// The names in a directory reach the disk, and what was done before if the file system keeps an order.
    pub(super) fn sync_dir(&mut self, dir: u64) {
        if !self.faults.unordered {
            return self.sync(None);
        }
        let now = self.node(dir).clone();
        for entry in now.entries.values() {
            let child = self.node(entry.ino).clone();
            let is_same = self.disk.nodes.get(&entry.ino).is_some_and(|there| there.btime == child.btime);
            if !is_same {
                self.disk.nodes.insert(entry.ino, Node { entries: BTreeMap::new(), ..child });
            }
        }
        self.disk.nodes.insert(dir, now);
        self.disk.next_place = self.tree.next_place;
    }

    /// What no directory leads to is not found after a power cut.
    fn drop_unreachable(&mut self) {
        let (mut left, mut found) = (vec![ROOT], BTreeSet::from([ROOT]));
        while let Some(node) = left.pop().and_then(|ino| self.tree.nodes.get(&ino)) {
            left.extend(node.entries.values().map(|entry| entry.ino).filter(|ino| found.insert(*ino)));
        }
        self.tree.nodes.retain(|ino, _| found.contains(ino));
    }

    /// The process opens the disk again. It knows where its directories are; what it had open is lost.
    pub(super) fn reopen(&mut self) {
        let held = self.held_mut();
        if !std::mem::take(&mut held.gone) {
            return;
        }
        (held.feed_lost, held.opens) = (true, BTreeMap::new());
        held.watched.clear();
        held.feed.clear();
        let nodes = &self.tree.nodes;
        self.processes[self.here].dirs.retain(|dir| nodes.get(&dir.ino).is_some_and(|node| node.nlink > 0));
        for ino in self.tree.nodes.keys().copied().collect::<Vec<_>>() {
            self.free(ino);
        }
    }

    pub(super) fn kill_process(&mut self) {
        *self.held_mut() = Process { gone: self.faults.away, ..Process::new(self.id(ROOT)) };
        self.locks.clear();
        for ino in self.tree.nodes.keys().copied().collect::<Vec<_>>() {
            self.free(ino);
        }
    }

    pub(super) fn cut_power(&mut self, keeps: &mut dyn FnMut() -> bool) {
        let before = self.tree.clone();
        if !keeps() {
            self.tree = self.disk.clone();
            self.drop_unreachable();
        }
        for (ino, node) in &mut self.tree.nodes {
            if node.kind != Kind::Regular {
                continue;
            }
            let now = before.nodes.get(ino).filter(|now| now.btime == node.btime);
            let synced = self.disk_bytes.get(&(*ino, node.btime));
            let size = node.data.len();
            let data = match now {
                Some(now) if keeps() => Some(&now.data),
                _ => synced,
            };
            // The length is an attribute; bytes that did not reach the disk read as zeros.
            let mut data = data.map_or_else(Vec::new, |data| data.to_vec());
            data.resize(size, 0);
            node.data = Arc::new(data);
        }
        let root = self.id(ROOT);
        self.processes.iter_mut().for_each(|process| *process = Process::new(root));
        self.kill_process();
        self.sync(None);
        let files = self.tree.nodes.iter().filter(|(_, node)| node.kind == Kind::Regular);
        self.disk_bytes = files.map(|(ino, node)| ((*ino, node.btime), Arc::clone(&node.data))).collect();
    }
}

/// A caller's groups are always told here, so nothing is left open.
pub(super) fn native(denied: Denied) -> Errno {
    match denied {
        Denied::Errno(errno) => errno,
        Denied::NeedGroups => Errno::EACCES,
    }
}
