//! The names of an overlay, and what was changed: directories of which some names are others now, files with other bytes or
//! attributes, and what was made here.
//!
//! Whatever lies below is known by its native number, so that all names of a file lead to one. What is made here gets numbers
//! that no file system gives.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::bytes::Bytes;
use super::err;
use crate::{Disk, FileKind, NAME_BYTES_MAX, Stat, check_path, split_last};

/// Numbers of what is made here begin here.
const FIRST_INO: u64 = 1 << 63;
/// Length that a directory is said to have.
const DIR_BYTES: u64 = 4096;

/// What a path names.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Its attributes now.
    pub(super) stat: Stat,
    /// A path of it below, if it is there.
    pub(super) base: Option<Vec<u8>>,
}

impl Found {
    pub(super) const fn ino(&self) -> u64 {
        self.stat.ino
    }
}

/// The place of a name that is about to change.
pub(super) struct Slot<'p> {
    dir: Found,
    name: &'p [u8],
    /// What it names now.
    pub(super) old: Option<Found>,
}

/// Something that was changed or made.
#[derive(Debug)]
pub(super) struct Node {
    /// A path of it below. None: it was made here, or is known by an open file only.
    base: Option<Vec<u8>>,
    pub(super) stat: Stat,
    pub(super) bytes: Bytes,
    /// Names of a directory that are not as below; none: removed.
    names: BTreeMap<Vec<u8>, Option<u64>>,
    pub(super) xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Of a symbolic link that was made here.
    pub(super) target: Vec<u8>,
}

impl Node {
    const fn of(stat: Stat, base: Option<Vec<u8>>, bytes: Bytes) -> Self {
        Self { base, stat, bytes, names: BTreeMap::new(), xattrs: None, target: Vec::new() }
    }

    /// Its attributes, with the space that it takes.
    pub(super) fn stat_now(&self) -> Stat {
        Stat { blocks: self.bytes.space(self.stat.blocks), ..self.stat }
    }

    /// Its content has changed.
    pub(super) fn touch(&mut self) {
        let now = now();
        (self.stat.mtime, self.stat.ctime) = (now, now);
    }

    pub(super) fn grow_to(&mut self, len: u64) {
        self.stat.size = self.stat.size.max(len);
        self.touch();
    }
}

/// The time of a change.
pub(super) fn now() -> (i64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i64, since.subsec_nanos())
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Names {
    nodes: HashMap<u64, Node>,
    made: u64,
    /// Some name is not as below.
    has_changed_names: bool,
}

impl Names {
    pub(super) fn node(&self, ino: u64) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&ino)
    }

    /// A file below that is about to change, and is open.
    pub(super) fn add(&mut self, stat: Stat) {
        self.nodes.insert(stat.ino, Node::of(stat, None, Bytes::over(stat.size)));
    }

    /// The same, by its name.
    pub(super) fn changed(&mut self, found: &Found) -> &mut Node {
        let new = || Node::of(found.stat, found.base.clone(), Bytes::over(found.stat.size));
        let node = self.nodes.entry(found.ino()).or_insert_with(new);
        if node.base.is_none() {
            node.base.clone_from(&found.base);
        }
        node
    }

    // --------------------------------------------------------------------- paths

    fn root<D: Disk>(&self, base: &D) -> io::Result<Found> {
        self.as_now(base.stat(b"")?, Vec::new())
    }

    /// What lies below at this path, as it is now.
    fn as_now(&self, stat: Stat, path: Vec<u8>) -> io::Result<Found> {
        let stat = self.nodes.get(&stat.ino).map_or(stat, Node::stat_now);
        Ok(Found { stat, base: Some(path) })
    }

    fn step<D: Disk>(&self, base: &D, dir: &Found, name: &[u8]) -> io::Result<Option<Found>> {
        match dir.stat.kind {
            FileKind::Directory if name.len() > NAME_BYTES_MAX => return err(Errno::NAMETOOLONG),
            FileKind::Directory => {}
            FileKind::Symlink => return err(Errno::LOOP),
            _ => return err(Errno::NOTDIR),
        }
        match self.nodes.get(&dir.ino()).and_then(|node| node.names.get(name)) {
            Some(Some(ino)) => {
                let node = self.nodes.get(ino).expect("what has a name here is a node");
                return Ok(Some(Found { stat: node.stat_now(), base: node.base.clone() }));
            }
            Some(None) => return Ok(None),
            None => {}
        }
        let Some(below) = &dir.base else { return Ok(None) };
        let path = if below.is_empty() { name.to_vec() } else { [below, &b"/"[..], name].concat() };
        match base.stat(&path) {
            Ok(stat) => self.as_now(stat, path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn walk<D: Disk>(&self, base: &D, path: &[u8]) -> io::Result<Found> {
        let mut at = self.root(base)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.step(base, &at, name)?.ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// What a path names, not following it.
    pub(super) fn find<D: Disk>(&self, base: &D, path: &[u8]) -> io::Result<Found> {
        check_path(path)?;
        // While no name has changed the kernel finds it in one step.
        if !self.has_changed_names {
            return self.as_now(base.stat(path)?, path.to_vec());
        }
        self.walk(base, path)
    }

    pub(super) fn find_dir<D: Disk>(&self, base: &D, path: &[u8]) -> io::Result<Found> {
        let found = self.find(base, path)?;
        match found.stat.kind {
            FileKind::Directory => Ok(found),
            FileKind::Symlink => err(Errno::LOOP),
            _ => err(Errno::NOTDIR),
        }
    }

    /// `root`: the answer for the folder itself.
    pub(super) fn slot<'p, D: Disk>(&self, base: &D, path: &'p [u8], root: Errno) -> io::Result<Slot<'p>> {
        if path.is_empty() {
            return err(root);
        }
        check_path(path)?;
        let (dir, name) = split_last(path);
        let dir = self.walk(base, dir)?;
        let old = self.step(base, &dir, name)?;
        Ok(Slot { dir, name, old })
    }

    pub(super) fn list<D: Disk>(&self, base: &D, dir: &Found) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        let below = dir.base.as_deref().map(|path| base.list(path)).transpose()?;
        let mut list = below.unwrap_or_default();
        if let Some(node) = self.nodes.get(&dir.ino()) {
            list.retain(|(name, _)| !node.names.contains_key(name));
            let added = node.names.iter().filter_map(|(name, ino)| Some((name, (*ino)?)));
            list.extend(added.map(|(name, ino)| (name.clone(), self.nodes[&ino].stat.kind)));
        }
        Ok(list)
    }

    fn is_empty<D: Disk>(&self, base: &D, found: &Found) -> io::Result<bool> {
        Ok(found.stat.kind != FileKind::Directory || self.list(base, found)?.is_empty())
    }

    // ------------------------------------------------------------------- changes

    /// Gives a name to something, or takes it away.
    fn set(&mut self, dir: &Found, name: &[u8], old: Option<&Found>, new: Option<&Found>) {
        let now = now();
        for (found, more) in old.map(|found| (found, false)).into_iter().chain(new.map(|found| (found, true)))
        {
            let node = self.changed(found);
            let is_dir = node.stat.kind == FileKind::Directory;
            let change = |count: &mut u64| *count = if more { *count + 1 } else { count.saturating_sub(1) };
            if !is_dir {
                change(&mut node.stat.nlink);
            }
            node.stat.ctime = now;
            if is_dir {
                change(&mut self.changed(dir).stat.nlink);
            }
        }
        self.has_changed_names = true;
        let node = self.changed(dir);
        node.names.insert(name.to_vec(), new.map(Found::ino));
        (node.stat.mtime, node.stat.ctime) = (now, now);
    }

    pub(super) fn create<D: Disk>(
        &mut self,
        base: &D,
        path: &[u8],
        kind: FileKind,
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> io::Result<Found> {
        let slot = self.slot(base, path, Errno::EXIST)?;
        if slot.old.is_some() {
            return err(Errno::EXIST);
        }
        let (now, own) = (now(), base.stat(b"")?);
        let above = &slot.dir.stat;
        let is_dir = kind == FileKind::Directory;
        let stat = Stat {
            kind,
            ino: FIRST_INO + self.made,
            mode: mode & 0o7777,
            uid: own.uid,
            gid: if above.mode & 0o2000 != 0 { above.gid } else { own.gid },
            nlink: if is_dir { 2 } else { 0 },
            rdev,
            size: if is_dir { DIR_BYTES } else { target.len() as u64 },
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
        };
        self.made += 1;
        let node = Node { target: target.to_vec(), ..Node::of(stat, None, Bytes::over(0)) };
        self.nodes.insert(stat.ino, node);
        let made = Found { stat, base: None };
        self.set(&slot.dir, slot.name, None, Some(&made));
        Ok(Found { stat: self.nodes[&stat.ino].stat, base: None })
    }

    /// Removes a name: of a directory if `want_dir`, else of anything else.
    pub(super) fn remove<D: Disk>(&mut self, base: &D, path: &[u8], want_dir: bool) -> io::Result<()> {
        let slot = self.slot(base, path, if want_dir { Errno::BUSY } else { Errno::ISDIR })?;
        let old = slot.old.ok_or(Errno::NOENT)?;
        match (want_dir, old.stat.kind == FileKind::Directory) {
            (true, false) => return err(Errno::NOTDIR),
            (false, true) => return err(Errno::ISDIR),
            _ if !self.is_empty(base, &old)? => return err(Errno::NOTEMPTY),
            _ => {}
        }
        self.set(&slot.dir, slot.name, Some(&old), None);
        Ok(())
    }

    pub(super) fn link<D: Disk>(&mut self, base: &D, old: &[u8], new: &[u8]) -> io::Result<()> {
        let from = self.slot(base, old, Errno::PERM)?;
        let to = self.slot(base, new, Errno::EXIST)?;
        let found = from.old.ok_or(Errno::NOENT)?;
        if to.old.is_some() {
            return err(Errno::EXIST);
        }
        if found.stat.kind == FileKind::Directory {
            return err(Errno::PERM);
        }
        self.set(&to.dir, to.name, None, Some(&found));
        Ok(())
    }

    pub(super) fn rename<D: Disk>(
        &mut self,
        base: &D,
        old: &[u8],
        new: &[u8],
        replace: bool,
    ) -> io::Result<()> {
        let from = self.slot(base, old, Errno::BUSY)?;
        let to = self.slot(base, new, Errno::BUSY)?;
        let found = from.old.ok_or(Errno::NOENT)?;
        if to.old.is_some() && !replace {
            return err(Errno::EXIST);
        }
        // No path leads through a link, so a path below another one begins with it.
        let is_below = |path: &[u8], above: &[u8]| {
            path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
        };
        if is_below(new, old) {
            return err(Errno::INVAL);
        }
        if let Some(target) = &to.old {
            if is_below(old, new) {
                return err(Errno::NOTEMPTY);
            }
            if target.ino() == found.ino() {
                return Ok(()); // Two names of one file: POSIX wants nothing done.
            }
            match (found.stat.kind == FileKind::Directory, target.stat.kind == FileKind::Directory) {
                (true, false) => return err(Errno::NOTDIR),
                (false, true) => return err(Errno::ISDIR),
                _ if !self.is_empty(base, target)? => return err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        self.set(&from.dir, from.name, Some(&found), None);
        // As it is without that name.
        let found = Found { stat: self.changed(&found).stat, ..found };
        self.set(&to.dir, to.name, to.old.as_ref(), Some(&found));
        Ok(())
    }
}
