//! The simulated disk: a POSIX tree in memory with a crash model. Deterministic: one seed and one
//! order of calls give one outcome. Uses no clock, no thread and no file of its own.
//!
//! A disk dies at a chosen effect ([`SimDisk::die_after`]) and comes back with [`SimDisk::revive`];
//! handles of the life before give [`Died`] for ever. See [`Fault`] for what survives.

mod content;
mod crash;
mod names;
mod rng;
mod world;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

pub use crash::Fault;
use world::{AttrChange, Call, World};

use crate::{Disk, DiskFile, FileKind, OpenHow, Space, Stat, check_range};

/// Bytes that one simulated `copy_file_range` copies at most.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// Space that an unlimited disk reports.
const UNLIMITED_BYTES: u64 = 1 << 50;
/// Inodes that a disk reports.
const INODES: u64 = 1 << 32;

/// The error of every call on a disk that has died, inside an [`io::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Died;

impl std::fmt::Display for Died {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the simulated disk has died")
    }
}

impl std::error::Error for Died {}

/// True if an error says that the simulated disk has died.
pub fn is_died(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Died>())
}

fn died() -> io::Error {
    io::Error::other(Died)
}

/// A simulated disk. A clone is the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
    generation: u64,
}

/// An open regular file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    ino: u64,
    writable: bool,
}

impl SimDisk {
    /// An empty disk without a space limit. The seed decides how the effect at which it dies is torn.
    pub fn new(seed: u64) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(seed))), generation: 0 }
    }

    /// Dies at the `n`-th effect from now (1 is the next): that call and all later ones, reads
    /// included, fail with [`Died`]. The dying call may have been done, or not, or a write in part.
    pub fn die_after(&self, n: u64) {
        assert!(n > 0, "the effect at which a disk dies is counted from 1");
        self.world().die_in = Some(n);
    }

    /// True once it has died.
    pub fn is_dead(&self) -> bool {
        let world = self.world();
        world.dead || world.generation != self.generation
    }

    /// Ends this life, dead already or not, and gives the disk as the next one finds it. Open files
    /// and faults that wait to happen end with it; the space limit, flipped bits and unreadable
    /// ranges stay.
    pub fn revive(&self, fault: Fault) -> Self {
        let mut world = self.world();
        world.revive(fault);
        Self { world: Arc::clone(&self.world), generation: world.generation }
    }

    /// Another disk with all that is on this one: a backup, as a snapshot of the device makes it. Faults that wait to happen stay behind.
    pub fn image(&self) -> Self {
        let mut world = self.world().clone();
        world.revive(Fault::ProcessDeath);
        let generation = world.generation;
        Self { world: Arc::new(Mutex::new(world)), generation }
    }

    /// Calls so far that change something or sync, over all lives.
    pub fn effects(&self) -> u64 {
        self.world().effects
    }

    /// Limits space; `None` lifts the limit. Nothing is lost if more is used already.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.world().limit = bytes;
    }

    /// Limits the names and values of all extended attributes of one file or directory together; `None` lifts the limit.
    /// What is more fails with `ENOSPC`, as on ext4.
    pub fn limit_xattrs(&self, bytes: Option<usize>) {
        self.world().xattrs_limit = bytes;
    }

    /// Nothing gets a name with this byte any more: `EINVAL`, as on NTFS; `None` lifts that.
    pub fn refuse_names(&self, byte: Option<u8>) {
        self.world().refused_byte = byte;
    }

    /// Bytes of space in use.
    pub fn used(&self) -> u64 {
        self.world().used
    }

    /// The next sync of a file or directory fails with `EIO`, once. What a file had unsynced is then
    /// on the disk in part, and no later sync brings the rest there.
    pub fn fail_next_sync(&self) {
        self.world().failing_sync = true;
    }

    /// The `n`-th effect from now (1 is the next) fails with `errno`, once: a sync as in
    /// [`SimDisk::fail_next_sync`], a write after some of its bytes, anything else without having done
    /// anything.
    pub fn fail_after(&self, n: u64, errno: Errno) {
        assert!(n > 0, "the effect that fails is counted from 1");
        self.world().fail_in = Some((n, errno));
    }

    /// Every effect fails so from now on; `None` ends that, and what [`SimDisk::fail_after`] has ordered.
    pub fn fail_all(&self, errno: Option<Errno>) {
        let mut world = self.world();
        (world.failing, world.fail_in, world.failing_sync) = (errno, None, false);
    }

    /// Whether an effect or a read will fail.
    pub fn is_told_to_fail(&self) -> bool {
        let world = self.world();
        let unreadable = || world.inodes.values().any(|node| !node.unreadable.is_empty());
        world.failing.is_some() || world.fail_in.is_some() || world.failing_sync || unreadable()
    }

    /// Effects that have failed because they were told to, over all lives.
    pub fn failed(&self) -> u64 {
        self.world().failed
    }

    /// Reads that touch these bytes of a file fail with `EIO` until [`SimDisk::heal_reads`].
    pub fn fail_reads(&self, path: &[u8], bytes: Range<u64>) -> io::Result<()> {
        let mut world = self.world();
        let ino = world.find(path)?;
        world.inode(ino).unreadable.push(bytes);
        Ok(())
    }

    /// Makes all of all files readable again.
    pub fn heal_all_reads(&self) {
        self.world().inodes.values_mut().for_each(|node| node.unreadable.clear());
    }

    /// Makes all of a file readable again.
    pub fn heal_reads(&self, path: &[u8]) -> io::Result<()> {
        let mut world = self.world();
        let ino = world.find(path)?;
        world.inode(ino).unreadable.clear();
        Ok(())
    }

    /// Changes one bit of a file at rest, with no trace in its attributes. False beyond its end.
    pub fn flip(&self, path: &[u8], byte: u64, bit: u8) -> io::Result<bool> {
        let mut world = self.world();
        let ino = world.find(path)?;
        let node = world.inode(ino);
        node.stored.content.flip(byte, bit);
        Ok(node.content.flip(byte, bit))
    }

    /// Changes one permission bit of a file or directory at rest, with no other trace.
    pub fn flip_mode(&self, path: &[u8], bit: u8) -> io::Result<()> {
        let mut world = self.world();
        let ino = world.find(path)?;
        let node = world.inode(ino);
        node.attr.mode ^= 1 << (bit % 12);
        node.stored.attr.mode = node.attr.mode;
        Ok(())
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A panic of another test thread leaves nothing half done that matters here.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(&self, call: impl FnOnce(&World) -> io::Result<T>) -> io::Result<T> {
        let world = self.world();
        if world.dead || world.generation != self.generation {
            return Err(died());
        }
        call(&world)
    }

    /// Does an effect, which may be the last one.
    fn effect<T>(&self, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        self.perform(Call::Change, call)
    }

    fn perform<T>(&self, kind: Call, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        let mut world = self.world();
        if world.dead || world.generation != self.generation {
            return Err(died());
        }
        world.effects += 1;
        world.ticks += 1;
        match &mut world.die_in {
            Some(1) => {
                world.dead = true;
                if world.rng.coin() {
                    let _ = call(&mut world);
                }
                Err(died())
            }
            Some(left) => {
                *left -= 1;
                world.call(kind, call)
            }
            None => world.call(kind, call),
        }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn open(&self, path: &[u8], how: OpenHow) -> io::Result<SimFile> {
        let existing = |world: &World, ino: u64| match world.node(ino).kind {
            FileKind::Regular => Ok(ino),
            FileKind::Directory => Err(Errno::ISDIR.into()),
            FileKind::Symlink => Err(Errno::LOOP.into()),
            _ => Err::<u64, io::Error>(Errno::NXIO.into()),
        };
        let open = |world: &mut World, ino: u64| {
            world.inode(ino).opens += 1;
            ino
        };
        let ino = match how {
            OpenHow::Read | OpenHow::Write => {
                let mut world = self.world();
                if world.dead || world.generation != self.generation {
                    return Err(died());
                }
                let ino = existing(&world, world.find(path)?)?;
                open(&mut world, ino)
            }
            OpenHow::CreateNew { mode } => self.effect(|world| {
                let ino = world.create(path, FileKind::Regular, mode, 0, b"")?;
                Ok(open(world, ino))
            })?,
            OpenHow::Create { mode } => self.effect(|world| {
                let ino = match world.slot(path, Errno::ISDIR)?.2 {
                    Some(ino) => existing(world, ino)?,
                    None => world.create(path, FileKind::Regular, mode, 0, b"")?,
                };
                Ok(open(world, ino))
            })?,
        };
        Ok(SimFile { disk: self.clone(), ino, writable: how != OpenHow::Read })
    }

    fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        self.look(|world| Ok(world.stat(world.find(path)?)))
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        self.look(|world| {
            let entries = &world.node(world.find_dir(path)?).entries;
            Ok(entries.iter().map(|(name, ino)| (name.clone(), world.node(*ino).kind)).collect())
        })
    }

    fn mkdir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.effect(|world| world.create(path, FileKind::Directory, mode, 0, b"").map(|_| ()))
    }

    fn rmdir(&self, path: &[u8]) -> io::Result<()> {
        self.effect(|world| world.remove(path, true))
    }

    fn unlink(&self, path: &[u8]) -> io::Result<()> {
        self.effect(|world| world.remove(path, false))
    }

    fn link(&self, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.effect(|world| world.link(old, new))
    }

    fn rename(&self, old: &[u8], new: &[u8], replace: bool) -> io::Result<()> {
        self.effect(|world| world.rename(old, new, replace))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        self.effect(|world| world.symlink(target, path))
    }

    fn readlink(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        self.look(|world| {
            let node = world.node(world.find(path)?);
            match node.kind {
                FileKind::Symlink => Ok(node.target.clone()),
                _ => Err(Errno::INVAL.into()),
            }
        })
    }

    fn mknod(&self, path: &[u8], kind: FileKind, mode: u32, rdev: u32) -> io::Result<()> {
        self.effect(|world| {
            let rdev = match kind {
                FileKind::Fifo | FileKind::Socket => 0,
                FileKind::CharDevice | FileKind::BlockDevice => rdev,
                FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                    return Err(Errno::INVAL.into());
                }
            };
            world.create(path, kind, mode, rdev, b"").map(|_| ())
        })
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.effect(|world| world.set_mode(world.find(path)?, mode))
    }

    fn set_owner(&self, path: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        self.effect(|world| {
            world.set_owner(world.find(path)?, uid, gid);
            Ok(())
        })
    }

    fn set_times(&self, path: &[u8], atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()> {
        self.effect(|world| {
            let ino = world.find(path)?;
            if atime.1 >= 1_000_000_000 || mtime.1 >= 1_000_000_000 {
                return Err(Errno::INVAL.into());
            }
            world.set_attr(ino, AttrChange::Times(atime, mtime));
            Ok(())
        })
    }

    fn xattrs(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.look(|world| {
            let xattrs = &world.node(world.find(path)?).attr.xattrs;
            Ok(xattrs.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
        })
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        self.effect(|world| world.set_xattr(world.find(path)?, name, value))
    }

    fn sync_dir(&self, path: &[u8]) -> io::Result<()> {
        self.perform(Call::Sync, |world| world.sync_dir(world.find_dir(path)?))
    }

    fn sync_everything(&self) -> io::Result<()> {
        self.perform(Call::Sync, World::sync_everything)
    }

    fn space(&self) -> io::Result<Space> {
        self.look(|world| {
            let bytes = world.limit.unwrap_or(UNLIMITED_BYTES);
            let free = bytes.saturating_sub(world.used);
            Ok(Space {
                bytes,
                bytes_free: free,
                bytes_available: free,
                inodes: INODES,
                inodes_free: INODES - world.inodes.len() as u64,
                fs_id: Arc::as_ptr(&self.world) as usize as u64,
            })
        })
    }
}

impl SimFile {
    fn change<T>(&self, errno: Errno, call: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        self.change_by(Call::Change, errno, call)
    }

    fn change_by<T>(
        &self,
        kind: Call,
        errno: Errno,
        call: impl FnOnce(&mut World) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.perform(kind, |world| if self.writable { call(world) } else { Err(errno.into()) })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.look(|world| world.read(self.ino, buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change_by(Call::Write, Errno::BADF, |world| {
            // The dying write is torn at any byte, and so is one that fails.
            let n = if world.dead || world.tears {
                world.rng.below(bytes.len() as u64 + 1) as usize
            } else {
                bytes.len()
            };
            world.write(self.ino, &bytes[..n], offset)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.perform(Call::Sync, |world| world.sync_file(self.ino, false))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.perform(Call::Sync, |world| world.sync_file(self.ino, true))
    }

    fn stat(&self) -> io::Result<Stat> {
        self.disk.look(|world| Ok(world.stat(self.ino)))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Errno::INVAL, |world| world.set_len(self.ino, len))
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        check_range(offset, len)?;
        self.change(Errno::BADF, |world| world.allocate(self.ino, offset, len, keep_size))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len)?;
        self.change(Errno::BADF, |world| world.punch(self.ino, offset, len))
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>> {
        check_range(offset, 0)?;
        self.disk.look(|world| Ok(world.node(self.ino).content.seek(offset, hole)))
    }

    fn copy_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> io::Result<u64> {
        check_range(offset, 0)?;
        check_range(to_offset, 0)?;
        if !Arc::ptr_eq(&self.disk.world, &to.disk.world) {
            return Err(Errno::XDEV.into());
        }
        to.change(Errno::BADF, |world| {
            let size = world.node(self.ino).content.len();
            let len = len.min(size.saturating_sub(offset)).min(COPY_BYTES_MAX);
            if self.ino == to.ino && offset < to_offset + len && to_offset < offset + len {
                return Err(Errno::INVAL.into());
            }
            let mut bytes = vec![0; len as usize];
            let n = world.read(self.ino, &mut bytes, offset)?;
            world.write(to.ino, &bytes[..n], to_offset)?;
            Ok(n as u64)
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.disk.effect(|world| world.set_mode(self.ino, mode))
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.disk.effect(|world| {
            world.set_owner(self.ino, uid, gid);
            Ok(())
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.generation == self.disk.generation {
            world.inode(self.ino).opens -= 1;
            world.collect(self.ino);
        }
    }
}
