//! A disk over another one, which it only reads: whatever is changed stays in memory, and is gone with it. So a recovery can be
//! carried out on files that must stay as they are. Nobody else may change these meanwhile.
//!
//! Memory is taken by what was changed, in blocks of 4 KiB, and by nothing else. There is no crash model: nothing that is
//! written here survives.

mod bytes;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::{Disk, DiskFile, FileKind, OpenHow, Space, Stat, check_range, check_xattr};
use names::{Found, Names};

/// Bytes that one call copies at most.
const COPY_BYTES_MAX: u64 = 1 << 20;
/// Largest file, as on ext4.
const BYTES_MAX: u64 = 1 << 44;
/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = 4095;

/// See the module.
#[derive(Debug)]
pub struct Overlay<D: Disk> {
    shared: Arc<Shared<D>>,
}

#[derive(Debug)]
struct Shared<D> {
    base: Arc<D>,
    names: Mutex<Names>,
}

/// An open regular file of an [`Overlay`].
pub struct OverlayFile<D: Disk> {
    shared: Arc<Shared<D>>,
    ino: u64,
    /// The file below, unless it was made here.
    base: Option<D::File>,
    writable: bool,
}

impl<D: Disk> std::fmt::Debug for OverlayFile<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayFile").field("ino", &self.ino).finish_non_exhaustive()
    }
}

/// Refuses a file that would be too large.
fn check_size(offset: u64, len: u64) -> io::Result<()> {
    check_range(offset, len)?;
    if offset + len > BYTES_MAX { err(Errno::FBIG) } else { Ok(()) }
}

fn err<T>(errno: Errno) -> io::Result<T> {
    Err(errno.into())
}

impl<D: Disk> Shared<D> {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> Overlay<D> {
    /// Over this disk.
    pub fn new(base: Arc<D>) -> Self {
        Self { shared: Arc::new(Shared { base, names: Mutex::default() }) }
    }

    fn look<T>(&self, look: impl FnOnce(&mut Names, &D) -> io::Result<T>) -> io::Result<T> {
        look(&mut self.shared.names(), &self.shared.base)
    }

    /// Changes the attributes of what a path names.
    fn change(&self, path: &[u8], change: impl FnOnce(&mut Stat) -> io::Result<()>) -> io::Result<()> {
        self.look(|names, base| {
            let found = names.find(base, path)?;
            change_attributes(names, &found, change)
        })
    }
}

fn change_attributes(
    names: &mut Names,
    found: &Found,
    change: impl FnOnce(&mut Stat) -> io::Result<()>,
) -> io::Result<()> {
    let stat = &mut names.changed(found).stat;
    change(stat)?;
    stat.ctime = names::now();
    Ok(())
}

fn set_mode(stat: &mut Stat, mode: u32) -> io::Result<()> {
    if stat.kind == FileKind::Symlink {
        return err(Errno::OPNOTSUPP);
    }
    stat.mode = mode & 0o7777;
    Ok(())
}

fn set_owner(stat: &mut Stat, uid: u32, gid: u32) {
    (stat.uid, stat.gid) = (uid, gid);
    // As Linux does: a change of owner takes the set-id bits of what can be executed.
    if !matches!(stat.kind, FileKind::Directory | FileKind::Symlink) {
        let group_id = if stat.mode & 0o010 != 0 { 0o2000 } else { 0 };
        stat.mode &= !(0o4000 | group_id);
    }
}

impl<D: Disk> Disk for Overlay<D> {
    type File = OverlayFile<D>;

    fn open(&self, path: &[u8], how: OpenHow) -> io::Result<OverlayFile<D>> {
        self.look(|names, base| {
            let existing = |found: Found| match found.stat.kind {
                FileKind::Regular => Ok(found),
                FileKind::Directory => err(Errno::ISDIR),
                FileKind::Symlink => err(Errno::LOOP),
                _ => err(Errno::NXIO),
            };
            let found = match how {
                OpenHow::Read | OpenHow::Write => existing(names.find(base, path)?)?,
                OpenHow::CreateNew { mode } => names.create(base, path, FileKind::Regular, mode, 0, b"")?,
                OpenHow::Create { mode } => match names.slot(base, path, Errno::ISDIR)?.old {
                    Some(found) => existing(found)?,
                    None => names.create(base, path, FileKind::Regular, mode, 0, b"")?,
                },
            };
            let below = found.base.as_deref().map(|path| base.open(path, OpenHow::Read)).transpose()?;
            let shared = Arc::clone(&self.shared);
            Ok(OverlayFile { shared, ino: found.ino(), base: below, writable: how != OpenHow::Read })
        })
    }

    fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        self.look(|names, base| Ok(names.find(base, path)?.stat))
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        self.look(|names, base| {
            let dir = names.find_dir(base, path)?;
            names.list(base, &dir)
        })
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.look(|names, base| names.create(base, path, FileKind::Directory, mode, 0, b"").map(drop))
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.look(|names, base| names.remove(base, path, true))
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.look(|names, base| names.remove(base, path, false))
    }

    fn link(&self, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.look(|names, base| names.link(base, old, new))
    }

    fn rename(&self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()> {
        self.look(|names, base| names.rename(base, old, new, replace))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        match target.len() {
            _ if target.contains(&0) => err(Errno::INVAL),
            0 => err(Errno::NOENT),
            n if n > TARGET_BYTES_MAX => err(Errno::NAMETOOLONG),
            _ => self
                .look(|names, base| names.create(base, path, FileKind::Symlink, 0o777, 0, target).map(drop)),
        }
    }

    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        self.look(|names, base| {
            let found = names.find(base, path)?;
            match (&found.base, found.stat.kind) {
                (Some(below), FileKind::Symlink) => base.readlink(below),
                (None, FileKind::Symlink) => Ok(names.changed(&found).target.clone()),
                _ => err(Errno::INVAL),
            }
        })
    }

    fn mknod(&self, path: &[u8], kind: FileKind, mode: u32, rdev: u32) -> io::Result<()> {
        let rdev = match kind {
            FileKind::Fifo | FileKind::Socket => 0,
            FileKind::CharDevice | FileKind::BlockDevice => rdev,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => return err(Errno::INVAL),
        };
        self.look(|names, base| names.create(base, path, kind, mode, rdev, b"").map(drop))
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.change(path, |stat| set_mode(stat, mode))
    }

    fn set_owner(&self, path: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        self.change(path, |stat| {
            set_owner(stat, uid, gid);
            Ok(())
        })
    }

    fn set_times(&self, path: &[u8], atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()> {
        if atime.1 >= 1_000_000_000 || mtime.1 >= 1_000_000_000 {
            return err(Errno::INVAL);
        }
        self.change(path, |stat| {
            (stat.atime, stat.mtime) = (atime, mtime);
            Ok(())
        })
    }

    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.look(|names, base| {
            let found = names.find(base, path)?;
            Ok(xattrs_of(names, base, &found)?.into_iter().collect())
        })
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        check_xattr(name, value)?;
        self.look(|names, base| {
            let found = names.find(base, path)?;
            let takes_user = matches!(found.stat.kind, FileKind::Regular | FileKind::Directory);
            if name.starts_with(b"user.") && !takes_user {
                return err(Errno::PERM);
            }
            let mut xattrs = xattrs_of(names, base, &found)?;
            match value {
                Some(value) => drop(xattrs.insert(name.to_vec(), value.to_vec())),
                None if xattrs.remove(name).is_none() => return Ok(()),
                None => {}
            }
            names.changed(&found).xattrs = Some(xattrs);
            change_attributes(names, &found, |_| Ok(()))
        })
    }

    fn sync_dir(&self, path: &[u8]) -> io::Result<()> {
        self.look(|names, base| names.find_dir(base, path).map(drop))
    }

    fn sync_everything(&self) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.shared.base.space()
    }
}

fn xattrs_of<D: Disk>(names: &Names, base: &D, found: &Found) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    match (names.node(found.ino()).and_then(|node| node.xattrs.as_ref()), &found.base) {
        (Some(xattrs), _) => Ok(xattrs.clone()),
        (None, Some(below)) => Ok(base.xattrs(below)?.into_iter().collect()),
        (None, None) => Ok(BTreeMap::new()),
    }
}

impl<D: Disk> OverlayFile<D> {
    /// Looks at the file as it is below, or as it was changed.
    fn changed<T>(
        &self,
        errno: Errno,
        change: impl FnOnce(&mut names::Node, Option<&D::File>) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.writable {
            return err(errno);
        }
        self.node(change)
    }

    fn node<T>(
        &self,
        change: impl FnOnce(&mut names::Node, Option<&D::File>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut names = self.shared.names();
        if names.node(self.ino).is_none() {
            let below = self.base.as_ref().expect("what was made here is a node");
            // By its name it is found when somebody opens it again.
            names.add(below.stat()?);
        }
        change(names.node_mut(self.ino).expect("it was added"), self.base.as_ref())
    }
}

impl<D: Disk> DiskFile for OverlayFile<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        check_range(offset, 0)?;
        match (self.shared.names().node(self.ino), &self.base) {
            (Some(node), base) => node.bytes.read(node.stat.size, base.as_ref(), buf, offset),
            (None, Some(below)) => below.read_at(buf, offset),
            (None, None) => unreachable!("what was made here is a node"),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_size(offset, bytes.len() as u64)?;
        self.changed(Errno::BADF, |node, base| {
            node.bytes.write(base, bytes, offset)?;
            if !bytes.is_empty() {
                node.grow_to(offset + bytes.len() as u64);
            }
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self) -> io::Result<Stat> {
        match (self.shared.names().node(self.ino), &self.base) {
            (Some(node), _) => Ok(node.stat_now()),
            (None, Some(below)) => below.stat(),
            (None, None) => unreachable!("what was made here is a node"),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > i64::MAX as u64 {
            return err(Errno::INVAL);
        }
        check_size(len, 0)?;
        self.changed(Errno::INVAL, |node, _| {
            node.bytes.cut(len);
            node.stat.size = len;
            node.touch();
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        check_size(offset, len)?;
        self.changed(Errno::BADF, |node, _| {
            if len > 0 && !keep_size {
                node.grow_to(offset + len);
            }
            if len > 0 {
                node.bytes.reserve(offset + len);
            }
            Ok(())
        })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        self.changed(Errno::BADF, |node, base| {
            let end = (offset + len).min(node.stat.size);
            if offset < end {
                node.bytes.zero(base, offset, end)?;
                node.touch();
            }
            Ok(())
        })
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>> {
        check_range(offset, 0)?;
        match (self.shared.names().node(self.ino), &self.base) {
            (Some(node), base) => node.bytes.seek(node.stat.size, base.as_ref(), offset, hole),
            (None, Some(below)) => below.seek(offset, hole),
            (None, None) => unreachable!("what was made here is a node"),
        }
    }

    fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> io::Result<u64> {
        check_range(offset, 0)?;
        check_range(to_offset, 0)?;
        if !Arc::ptr_eq(&self.shared, &to.shared) {
            return err(Errno::XDEV);
        }
        if !to.writable {
            return err(Errno::BADF);
        }
        let len = len.min(self.stat()?.size.saturating_sub(offset)).min(COPY_BYTES_MAX);
        if self.ino == to.ino && offset < to_offset + len && to_offset < offset + len {
            return err(Errno::INVAL);
        }
        let mut bytes = vec![0; len as usize];
        let n = self.read_full(&mut bytes, offset)?;
        to.write_at(&bytes[..n], to_offset)?;
        Ok(n as u64)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.node(|node, _| {
            set_mode(&mut node.stat, mode)?;
            node.stat.ctime = names::now();
            Ok(())
        })
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.node(|node, _| {
            set_owner(&mut node.stat, uid, gid);
            node.stat.ctime = names::now();
            Ok(())
        })
    }
}
