//! The tree of a simulated disk as running programs see it, and beside it the synced tree. Decides no faults:
//! [`super::crash`] does.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::content::{Change, Content, PAGE};
use super::names::{NameChange, NameOp, Names};
use super::rng::Rng;
use crate::{FileKind, NAME_BYTES_MAX, Stat, check_path, check_range, check_xattr, split_last};

/// The folder itself.
pub(super) const ROOT: u64 = 1;
/// Space that an inode takes.
pub(super) const INODE_BYTES: u64 = 512;
/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = 4095;
/// Largest file, as on ext4.
const SIM_FILE_BYTES_MAX: u64 = 1 << 44;
/// Unsynced bytes of one file; beyond, the oldest half is written back as a kernel would do.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;
/// Unsynced attribute changes of one inode, likewise.
const UNSYNCED_ATTRS_MAX: usize = 1024;
/// Unsynced name operations of the disk; beyond, all of them are written back.
const UNSYNCED_NAMES_MAX: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attr {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) ctime: (i64, u32),
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// One explicit change of attributes, which a power cut keeps or not.
#[derive(Debug, Clone)]
pub(super) enum AttrChange {
    Mode(u32),
    Owner(u32, u32),
    Times((i64, u32), (i64, u32)),
    Xattr(Vec<u8>, Option<Vec<u8>>),
}

impl Attr {
    pub(super) fn apply(&mut self, change: &AttrChange) {
        match change {
            AttrChange::Mode(mode) => self.mode = mode & 0o7777,
            AttrChange::Owner(uid, gid) => (self.uid, self.gid) = (*uid, *gid),
            AttrChange::Times(atime, mtime) => (self.atime, self.mtime) = (*atime, *mtime),
            AttrChange::Xattr(name, Some(value)) => {
                self.xattrs.insert(name.clone(), value.clone());
            }
            AttrChange::Xattr(name, None) => {
                self.xattrs.remove(name);
            }
        }
    }
}

/// The state that surely survives a power cut.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) attr: Attr,
    pub(super) content: Content,
    pub(super) entries: BTreeMap<Vec<u8>, u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) kind: FileKind,
    pub(super) rdev: u32,
    pub(super) target: Vec<u8>,
    pub(super) attr: Attr,
    pub(super) content: Content,
    pub(super) entries: BTreeMap<Vec<u8>, u64>,
    /// The directory that a directory is in.
    pub(super) parent: u64,
    /// Names; a directory has one.
    pub(super) names: u64,
    /// Directories in a directory.
    pub(super) subdirs: u64,
    pub(super) opens: u64,
    /// True while it counts as space in use: it is named or open.
    pub(super) counted: bool,
    pub(super) stored: Stored,
    pub(super) changes: Vec<Change>,
    pub(super) changes_bytes: u64,
    pub(super) attr_changes: Vec<AttrChange>,
    /// Stored entries and unsynced name operations that speak of this inode.
    pub(super) pins: u64,
    /// Ranges that cannot be read.
    pub(super) unreadable: Vec<Range<u64>>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: Names,
    next_ino: u64,
    pub(super) ticks: u64,
    pub(super) used: u64,
    pub(super) limit: Option<u64>,
    /// Bytes of extended attributes that one file or directory may have.
    pub(super) xattrs_limit: Option<usize>,
    /// Nothing gets a name with this byte.
    pub(super) refused_byte: Option<u8>,
    pub(super) rng: Rng,
    pub(super) effects: u64,
    pub(super) die_in: Option<u64>,
    pub(super) dead: bool,
    pub(super) generation: u64,
    pub(super) failing_sync: bool,
    /// The effect that fails, counted from now, and how; and how all fail.
    pub(super) fail_in: Option<(u64, Errno)>,
    pub(super) failing: Option<Errno>,
    pub(super) failed: u64,
    /// The write under way fails after some of its bytes.
    pub(super) tears: bool,
}

/// What an effect is, as far as its failure goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Change,
    Write,
    Sync,
}

fn err<T>(errno: Errno) -> io::Result<T> {
    Err(errno.into())
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut world = Self {
            inodes: BTreeMap::new(),
            names: Names::default(),
            next_ino: ROOT,
            ticks: 0,
            used: 0,
            limit: None,
            xattrs_limit: None,
            refused_byte: None,
            rng: Rng::new(seed),
            effects: 0,
            die_in: None,
            dead: false,
            generation: 0,
            failing_sync: false,
            fail_in: None,
            failing: None,
            failed: 0,
            tears: false,
        };
        let root = world.make(FileKind::Directory, 0o755, 0, Vec::new(), None);
        let root = world.inode(root.expect("an empty disk has room for its root"));
        (root.names, root.pins, root.parent) = (1, 1, ROOT);
        world
    }

    /// Does a call, unless it is one that fails.
    pub(super) fn call<T>(
        &mut self,
        kind: Call,
        call: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let ordered = match &mut self.fail_in {
            Some((1, errno)) => {
                let errno = *errno;
                self.fail_in = None;
                Some(errno)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        let Some(errno) = self.failing.or(ordered) else { return call(self) };
        self.failed += 1;
        match kind {
            Call::Change => {}
            Call::Write => {
                self.tears = true;
                let _ = call(self);
                self.tears = false;
            }
            Call::Sync => {
                self.failing_sync = true;
                let done = call(self);
                self.failing_sync = false;
                return done;
            }
        }
        err(errno)
    }

    /// Time goes on by a microsecond with each thing done, so that runs repeat.
    pub(super) fn now(&self) -> (i64, u32) {
        (1_700_000_000 + (self.ticks / 1_000_000) as i64, (self.ticks % 1_000_000) as u32 * 1000)
    }

    pub(super) fn inode(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("names and open files keep their inodes")
    }

    pub(super) fn node(&self, ino: u64) -> &Inode {
        &self.inodes[&ino]
    }

    // Paths.

    fn step(&self, dir: u64, name: &[u8]) -> io::Result<Option<u64>> {
        let node = self.node(dir);
        match node.kind {
            FileKind::Directory if name.len() > NAME_BYTES_MAX => err(Errno::NAMETOOLONG),
            FileKind::Directory => Ok(node.entries.get(name).copied()),
            FileKind::Symlink => err(Errno::LOOP),
            _ => err(Errno::NOTDIR),
        }
    }

    fn walk(&self, path: &[u8]) -> io::Result<u64> {
        let mut at = ROOT;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = self.step(at, name)?.ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The inode that a path names, not following it.
    pub(super) fn find(&self, path: &[u8]) -> io::Result<u64> {
        check_path(path)?;
        self.walk(path)
    }

    /// The directory of a name that is about to change, the name, and what it names now.
    pub(super) fn slot<'p>(&self, path: &'p [u8], root: Errno) -> io::Result<(u64, &'p [u8], Option<u64>)> {
        if path.is_empty() {
            return err(root);
        }
        check_path(path)?;
        let (dir, name) = split_last(path);
        let dir = self.walk(dir)?;
        Ok((dir, name, self.step(dir, name)?))
    }

    /// The directory that a path names, for listing and syncing.
    pub(super) fn find_dir(&self, path: &[u8]) -> io::Result<u64> {
        let ino = self.find(path)?;
        match self.node(ino).kind {
            FileKind::Directory => Ok(ino),
            FileKind::Symlink => err(Errno::LOOP),
            _ => err(Errno::NOTDIR),
        }
    }

    // Names.

    fn may_be_given(&self, name: &[u8]) -> io::Result<()> {
        if self.refused_byte.is_some_and(|byte| name.contains(&byte)) { err(Errno::INVAL) } else { Ok(()) }
    }

    /// Makes an inode that has no name yet.
    fn make(
        &mut self,
        kind: FileKind,
        mode: u32,
        rdev: u32,
        target: Vec<u8>,
        dir: Option<u64>,
    ) -> io::Result<u64> {
        if self.room() < INODE_BYTES {
            return err(Errno::NOSPC);
        }
        self.used += INODE_BYTES;
        let ino = self.next_ino;
        self.next_ino += 1;
        let now = self.now();
        let gid = dir.map(|dir| &self.node(dir).attr).filter(|d| d.mode & 0o2000 != 0).map_or(0, |d| d.gid);
        let mode = mode & 0o7777;
        let attr = Attr { mode, uid: 0, gid, atime: now, mtime: now, ctime: now, xattrs: BTreeMap::new() };
        let stored = Stored { attr: attr.clone(), content: Content::default(), entries: BTreeMap::new() };
        let inode = Inode {
            kind,
            rdev,
            target,
            attr,
            content: Content::default(),
            entries: BTreeMap::new(),
            parent: dir.unwrap_or(ino),
            names: 0,
            subdirs: 0,
            opens: 0,
            counted: true,
            stored,
            changes: Vec::new(),
            changes_bytes: 0,
            attr_changes: Vec::new(),
            pins: 0,
            unreadable: Vec::new(),
        };
        self.inodes.insert(ino, inode);
        Ok(ino)
    }

    /// Makes something at a path; `EEXIST` if the name is taken.
    pub(super) fn create(
        &mut self,
        path: &[u8],
        kind: FileKind,
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> io::Result<u64> {
        let (dir, name, old) = self.slot(path, Errno::EXIST)?;
        if old.is_some() {
            return err(Errno::EXIST);
        }
        self.may_be_given(name)?;
        let ino = self.make(kind, mode, rdev, target.to_vec(), Some(dir))?;
        let placed_dir = (kind == FileKind::Directory).then_some(ino);
        let changes = vec![NameChange { dir, name: name.to_vec(), ino: Some(ino) }];
        self.rename_all(NameOp { changes, placed_dir, ..NameOp::default() });
        Ok(ino)
    }

    pub(super) fn symlink(&mut self, target: &[u8], path: &[u8]) -> io::Result<()> {
        if target.contains(&0) {
            return err(Errno::INVAL);
        }
        if target.is_empty() {
            return err(Errno::NOENT);
        }
        if target.len() > TARGET_BYTES_MAX {
            return err(Errno::NAMETOOLONG);
        }
        self.create(path, FileKind::Symlink, 0o777, 0, target).map(|_| ())
    }

    /// Removes a name: of a directory if `want_dir`, else of anything else.
    pub(super) fn remove(&mut self, path: &[u8], want_dir: bool) -> io::Result<()> {
        let (dir, name, old) = self.slot(path, if want_dir { Errno::BUSY } else { Errno::ISDIR })?;
        let ino = old.ok_or(Errno::NOENT)?;
        let node = self.node(ino);
        let is_dir = node.kind == FileKind::Directory;
        if want_dir && !is_dir {
            return err(Errno::NOTDIR);
        }
        if !want_dir && is_dir {
            return err(Errno::ISDIR);
        }
        if !node.entries.is_empty() {
            return err(Errno::NOTEMPTY);
        }
        let changes = vec![NameChange { dir, name: name.to_vec(), ino: None }];
        self.rename_all(NameOp { changes, removed_dir: is_dir.then_some(ino), ..NameOp::default() });
        Ok(())
    }

    pub(super) fn link(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        let (_, _, ino) = self.slot(old, Errno::PERM)?;
        let (dir, name, taken) = self.slot(new, Errno::EXIST)?;
        let ino = ino.ok_or(Errno::NOENT)?;
        if taken.is_some() {
            return err(Errno::EXIST);
        }
        if self.node(ino).kind == FileKind::Directory {
            return err(Errno::PERM);
        }
        self.may_be_given(name)?;
        let changes = vec![NameChange { dir, name: name.to_vec(), ino: Some(ino) }];
        self.rename_all(NameOp { changes, ..NameOp::default() });
        Ok(())
    }

    pub(super) fn rename(&mut self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()> {
        if old.is_empty() || new.is_empty() {
            return err(Errno::BUSY);
        }
        let (old_dir, old_name, ino) = self.slot(old, Errno::BUSY)?;
        let (new_dir, new_name, target) = self.slot(new, Errno::BUSY)?;
        let ino = ino.ok_or(Errno::NOENT)?;
        let above = self.with_ancestors(new_dir);
        let moves_dir = self.node(ino).kind == FileKind::Directory;
        if target.is_some() && !replace {
            return err(Errno::EXIST);
        }
        if above.contains(&ino) {
            return err(Errno::INVAL);
        }
        self.may_be_given(new_name)?;
        if let Some(target) = target {
            if self.with_ancestors(old_dir).contains(&target) {
                return err(Errno::NOTEMPTY);
            }
            if target == ino {
                return Ok(()); // Two names of one file: POSIX wants nothing done.
            }
            let node = self.node(target);
            match (moves_dir, node.kind == FileKind::Directory) {
                (true, false) => return err(Errno::NOTDIR),
                (false, true) => return err(Errno::ISDIR),
                _ if !node.entries.is_empty() => return err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        let changes = vec![
            NameChange { dir: old_dir, name: old_name.to_vec(), ino: None },
            NameChange { dir: new_dir, name: new_name.to_vec(), ino: Some(ino) },
        ];
        self.rename_all(NameOp {
            changes,
            placed_dir: moves_dir.then_some(ino),
            removed_dir: target.filter(|_| moves_dir),
            moved_into: above,
        });
        Ok(())
    }

    fn with_ancestors(&self, mut dir: u64) -> Vec<u64> {
        let mut all = vec![dir];
        while dir != ROOT && self.node(dir).parent != dir {
            dir = self.node(dir).parent;
            all.push(dir);
        }
        all
    }

    /// Does a name operation in the living tree and remembers it as unsynced.
    fn rename_all(&mut self, op: NameOp) {
        let now = self.now();
        let mut freed = Vec::new();
        for change in &op.changes {
            let dir = self.inode(change.dir);
            (dir.attr.mtime, dir.attr.ctime) = (now, now);
            let old = match change.ino {
                Some(ino) => dir.entries.insert(change.name.clone(), ino),
                None => dir.entries.remove(&change.name),
            };
            if let Some(old) = old {
                let node = self.inode(old);
                node.names -= 1;
                node.attr.ctime = now;
                let is_dir = node.kind == FileKind::Directory;
                self.inode(change.dir).subdirs -= u64::from(is_dir);
                freed.push(old);
            }
            if let Some(ino) = change.ino {
                let node = self.inode(ino);
                node.names += 1;
                node.attr.ctime = now;
                node.parent = change.dir;
                let is_dir = node.kind == FileKind::Directory;
                self.inode(change.dir).subdirs += u64::from(is_dir);
            }
        }
        for change in &op.changes {
            self.pin(change);
        }
        self.names.push(op);
        for ino in freed {
            self.collect(ino);
        }
        if self.names.len() > UNSYNCED_NAMES_MAX {
            let all = self.names.take_rest();
            self.store_names(all);
        }
    }

    pub(super) fn pin(&mut self, change: &NameChange) {
        self.inode(change.dir).pins += 1;
        if let Some(ino) = change.ino {
            self.inode(ino).pins += 1;
        }
    }

    pub(super) fn unpin(&mut self, ino: u64) {
        self.inode(ino).pins -= 1;
        self.collect(ino);
    }

    /// Makes name changes survive for certain, in order.
    pub(super) fn store_names(&mut self, changes: Vec<NameChange>) {
        for change in &changes {
            let stored = &mut self.inode(change.dir).stored.entries;
            let old = match change.ino {
                Some(ino) => stored.insert(change.name.clone(), ino),
                None => stored.remove(&change.name),
            };
            if let Some(ino) = change.ino {
                self.inode(ino).pins += 1;
            }
            if let Some(old) = old {
                self.unpin(old);
            }
        }
        for change in changes {
            self.unpin(change.dir);
            if let Some(ino) = change.ino {
                self.unpin(ino);
            }
        }
    }

    /// Frees space that cannot be reached any more, and forgets changes that no power cut can bring back.
    pub(super) fn collect(&mut self, ino: u64) {
        let Some(node) = self.inodes.get_mut(&ino) else { return };
        if node.names > 0 || node.opens > 0 || ino == ROOT {
            return;
        }
        let space = node.content.space();
        node.content = Content::default();
        let counted = std::mem::take(&mut node.counted);
        self.used -= space + if counted { INODE_BYTES } else { 0 };
        if node.pins == 0 {
            let gone = self.inodes.remove(&ino).expect("it was there just now");
            for child in gone.stored.entries.into_values() {
                self.unpin(child);
            }
        }
    }

    // Content.

    pub(super) fn room(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.used))
    }

    /// Does and remembers a change that is known to fit.
    fn change(&mut self, ino: u64, change: Change) {
        let now = self.now();
        let node = self.inode(ino);
        let before = node.content.space();
        node.content.apply(&change);
        let after = node.content.space();
        (node.attr.mtime, node.attr.ctime) = (now, now);
        node.changes_bytes += change.bytes();
        node.changes.push(change);
        if node.changes_bytes > UNSYNCED_BYTES_MAX {
            let half = node.changes.len().div_ceil(2);
            for change in node.changes.drain(..half) {
                node.changes_bytes -= change.bytes();
                node.stored.content.apply(&change);
            }
        }
        self.used = self.used - before + after;
    }

    /// How many of these bytes there is space for.
    fn fitting(&self, ino: u64, offset: u64, len: u64) -> u64 {
        let (content, mut room) = (&self.node(ino).content, self.room());
        if room == u64::MAX {
            return len;
        }
        for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
            if !content.has_page(page) {
                if room < PAGE {
                    return (page * PAGE).saturating_sub(offset).min(len);
                }
                room -= PAGE;
            }
        }
        len
    }

    /// Writes the bytes that fit; `ENOSPC` if these are not all.
    pub(super) fn write(&mut self, ino: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_size(offset, bytes.len() as u64)?;
        let fits = self.fitting(ino, offset, bytes.len() as u64) as usize;
        if fits > 0 {
            self.change(ino, Change::write(offset, &bytes[..fits]));
        }
        if fits < bytes.len() { err(Errno::NOSPC) } else { Ok(()) }
    }

    pub(super) fn set_len(&mut self, ino: u64, len: u64) -> io::Result<()> {
        if len > i64::MAX as u64 {
            return err(Errno::INVAL);
        }
        check_size(len, 0)?;
        self.change(ino, Change::SetLen(len));
        Ok(())
    }

    pub(super) fn allocate(&mut self, ino: u64, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        check_size(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.fitting(ino, offset, len) < len {
            return err(Errno::NOSPC);
        }
        self.change(ino, Change::Allocate { offset, len, keep_size });
        Ok(())
    }

    pub(super) fn punch(&mut self, ino: u64, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        if len > 0 {
            self.change(ino, Change::Punch { offset, len });
        }
        Ok(())
    }

    pub(super) fn read(&self, ino: u64, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        check_range(offset, 0)?;
        let node = self.node(ino);
        let end = offset.saturating_add(buf.len() as u64);
        if node.unreadable.iter().any(|bad| bad.start < end && offset < bad.end) {
            return err(Errno::IO);
        }
        Ok(node.content.read(buf, offset))
    }

    // Attributes.

    pub(super) fn set_attr(&mut self, ino: u64, change: AttrChange) {
        let now = self.now();
        let node = self.inode(ino);
        node.attr.apply(&change);
        node.attr.ctime = now;
        node.attr_changes.push(change);
        if node.attr_changes.len() > UNSYNCED_ATTRS_MAX {
            for change in node.attr_changes.drain(..UNSYNCED_ATTRS_MAX / 2) {
                node.stored.attr.apply(&change);
            }
        }
    }

    pub(super) fn set_mode(&mut self, ino: u64, mode: u32) -> io::Result<()> {
        if self.node(ino).kind == FileKind::Symlink {
            return err(Errno::OPNOTSUPP);
        }
        self.set_attr(ino, AttrChange::Mode(mode & 0o7777));
        Ok(())
    }

    pub(super) fn set_owner(&mut self, ino: u64, uid: u32, gid: u32) {
        self.set_attr(ino, AttrChange::Owner(uid, gid));
        let node = self.node(ino);
        let mode = node.attr.mode;
        // As Linux does: a change of owner takes the set-id bits of what can be executed.
        let group_id = if mode & 0o010 != 0 { 0o2000 } else { 0 };
        let cleared = mode & !(0o4000 | group_id);
        if cleared != mode && !matches!(node.kind, FileKind::Directory | FileKind::Symlink) {
            self.set_attr(ino, AttrChange::Mode(cleared));
        }
    }

    pub(super) fn set_xattr(&mut self, ino: u64, name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        check_xattr(name, value)?;
        let node = self.node(ino);
        let takes_user = matches!(node.kind, FileKind::Regular | FileKind::Directory);
        if name.starts_with(b"user.") && !takes_user {
            return err(Errno::PERM);
        }
        if let (Some(limit), Some(value)) = (self.xattrs_limit, value) {
            let others = node.attr.xattrs.iter().filter(|(n, _)| &n[..] != name);
            let bytes = others.map(|(n, v)| n.len() + v.len()).sum::<usize>() + name.len() + value.len();
            if bytes > limit {
                return err(Errno::NOSPC);
            }
        }
        if value.is_some() || node.attr.xattrs.contains_key(name) {
            self.set_attr(ino, AttrChange::Xattr(name.to_vec(), value.map(<[u8]>::to_vec)));
        }
        Ok(())
    }

    pub(super) fn stat(&self, ino: u64) -> Stat {
        let node = self.node(ino);
        let is_dir = node.kind == FileKind::Directory;
        let size = match node.kind {
            FileKind::Symlink => node.target.len() as u64,
            FileKind::Directory => PAGE,
            _ => node.content.len(),
        };
        let Attr { mode, uid, gid, atime, mtime, ctime, .. } = node.attr;
        Stat {
            kind: node.kind,
            ino,
            mode,
            uid,
            gid,
            nlink: if is_dir && node.names > 0 { 2 + node.subdirs } else { node.names },
            rdev: node.rdev,
            size,
            blocks: node.content.space() / 512,
            atime,
            mtime,
            ctime,
        }
    }
}

fn check_size(offset: u64, len: u64) -> io::Result<()> {
    check_range(offset, len)?;
    if offset + len > SIM_FILE_BYTES_MAX { err(Errno::FBIG) } else { Ok(()) }
}
