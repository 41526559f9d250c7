//! The simulated twin of a member: a POSIX tree in memory, with a clock, a feed and faults that a test sets. Owns the tree and what
//! the member's process holds of it; never asks the time and never waits.

mod attrs;
mod bytes;
mod names;
mod world;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use atoll_core::{Name, Time};
use atoll_posix::Errno;
use atoll_union::{At, Changed, Changes, NativeCall, NativeId, NativeReply, NativeStat, Space, Who};

use crate::who::caller_of;
use crate::{Tree, TreeState};
use world::{ROOT, World};

/// A member in memory, as one process uses it. Every method may be called from any thread.
#[derive(Debug)]
pub struct SimTree {
    world: Arc<Mutex<World>>,
    process: usize,
}

/// What is wrong with a simulated member, and how its feed behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// The disk is gone: every call is `EIO`, and stays so when it is back until the process opens it again.
    pub away: bool,
    /// Calls do not return. A simulator keeps them, and makes them when the hang ends; one that is made all the same is
    /// `ETIMEDOUT` and changes nothing.
    pub hung: bool,
    /// Changes are `EROFS`.
    pub read_only: bool,
    /// Bytes that the files may have together: `ENOSPC` past that.
    pub bytes_max: u64,
    /// Inodes that there may be: `ENOSPC` past that.
    pub inodes_max: u64,
    /// The file system keeps no order: a sync of a file saves its bytes, and a sync of a directory the names in it, and neither of
    /// them what was done before elsewhere.
    pub unordered: bool,
    /// Somebody has every file open for writing: none can be leased.
    pub writers: bool,
    /// The member tells of no changes, and says so.
    pub feed_none: bool,
    /// How much later the feed tells of a change.
    pub feed_delay_ms: u64,
    /// The feed forgets changes, and says nothing of that.
    pub feed_drops: bool,
    /// Changes that the feed keeps: past that it says that some are lost.
    pub feed_max: usize,
}

impl Default for Faults {
    /// None.
    fn default() -> Self {
        Self {
            away: false,
            hung: false,
            read_only: false,
            bytes_max: u64::MAX,
            inodes_max: u64::MAX,
            unordered: false,
            writers: false,
            feed_none: false,
            feed_delay_ms: 0,
            feed_drops: false,
            feed_max: usize::MAX,
        }
    }
}

impl SimTree {
    /// An empty tree whose root is owned by root and has the mode 0755, made at `clock`. `fs` is what [`Space::fs`] says.
    pub fn new(fs: u64, clock: Time) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(fs, clock))), process: 0 }
    }

    /// The same member, as another process uses it.
    pub fn another(&self) -> Self {
        let process = self.world().add_process();
        Self { world: Arc::clone(&self.world), process }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().expect("a panic ends the simulation");
        world.here = self.process;
        world
    }

    /// Everything that has a name: its path from the root, its attributes, and the bytes of a file or the target of a link. In the
    /// order of paths; the root first, with an empty one.
    pub fn everything(&self) -> Vec<(Vec<Name>, NativeStat, Arc<Vec<u8>>)> {
        self.world().everything()
    }

    /// How many directories the process has opened, the root among them.
    pub fn opened_dirs(&self) -> usize {
        self.world().held().dirs.len()
    }

    /// Sets the clock, and by how many nanoseconds each call moves it (1,000 at first). With 0, what happens in one tick
    /// gets one time.
    pub fn set_clock(&self, clock: Time, step_ns: u32) {
        let mut world = self.world();
        world.clock = clock;
        world.step_ns = step_ns;
    }

    /// Changes what is wrong.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut world = self.world();
        change(&mut world.faults);
        if world.faults.away {
            world.processes.iter_mut().for_each(|process| process.gone = true);
        }
    }

    /// A program of this machine makes a call, without the union. It needs no directory to be opened, and is served whatever
    /// the member's process does.
    pub fn direct(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let mut world = self.world();
        world.direct = true;
        let told = world.call(who, call, bytes);
        world.direct = false;
        told
    }

    /// From now on something is mounted on a name, or no longer: `EXDEV` there.
    pub fn set_mount(&self, dir: NativeId, name: &Name, mounted: bool) {
        let mut world = self.world();
        if mounted {
            world.mounts.insert((dir.ino, name.clone()));
        } else {
            world.mounts.remove(&(dir.ino, name.clone()));
        }
    }

    /// The process dies: its opens, opened directories, locks and watches are gone. What has no name any more is freed.
    pub fn kill_process(&self) {
        self.world().kill_process();
    }

    /// A power cut: `keeps` says for the names and attributes, then for each file's bytes, in the order of inode numbers, whether
    /// what was not synced has reached the disk. The process is gone, too.
    pub fn cut_power(&self, keeps: &mut dyn FnMut() -> bool) {
        self.world().cut_power(keeps);
    }
}

impl Tree for SimTree {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let mut world = self.world();
        let asks = !matches!(call, NativeCall::ForgetDirs { .. });
        if world.held().gone && asks {
            return Err(Errno::EIO);
        }
        if world.faults.hung && asks {
            return Err(Errno::ETIMEDOUT);
        }
        world.call(who, call, bytes)
    }

    fn root(&self) -> NativeStat {
        self.world().stat(ROOT)
    }

    fn changes(&self) -> Changes {
        self.world().changes()
    }

    fn backing(&self, _: u64) -> Option<Arc<OwnedFd>> {
        None
    }

    fn state(&self) -> TreeState {
        let world = self.world();
        match world.faults {
            _ if world.held().gone => TreeState::Away,
            Faults { hung: true, .. } => TreeState::Stuck,
            _ => TreeState::Serving,
        }
    }

    fn reopen(&self) -> Result<bool, Errno> {
        let mut world = self.world();
        if world.faults.away {
            return Ok(false);
        }
        world.reopen();
        Ok(true)
    }
}

/// Whether a call changes anything natively.
fn changes(call: &NativeCall) -> bool {
    matches!(
        call,
        NativeCall::Make { .. }
            | NativeCall::Mkdir { .. }
            | NativeCall::MkdirLike { .. }
            | NativeCall::Tmpfile { .. }
            | NativeCall::Become { .. }
            | NativeCall::Unlink { .. }
            | NativeCall::Rmdir { .. }
            | NativeCall::Rename { .. }
            | NativeCall::Link { .. }
            | NativeCall::SetAttr { .. }
            | NativeCall::Write { .. }
            | NativeCall::Fallocate { .. }
            | NativeCall::CopyRange { .. }
            | NativeCall::Open { write: true, .. }
            | NativeCall::SetXattr { .. }
            | NativeCall::RemoveXattr { .. }
    )
}

impl World {
    fn call(&mut self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        use NativeReply::{Data, Done, Stat};
        self.tick();
        if self.faults.read_only && changes(call) {
            return Err(Errno::EROFS);
        }
        let by = &caller_of(who);
        Ok(match call {
            NativeCall::Look { dir, name } => Stat(self.look(by, *dir, name)?),
            NativeCall::OpenDir { dir, name } => Stat(self.open_dir(*dir, name)?),
            NativeCall::Stat { of } => {
                let ino = self.find(of)?;
                Stat(self.stat(ino))
            }
            NativeCall::List { dir, from, bytes } => self.list(by, *dir, *from, *bytes)?,
            NativeCall::Watch { dir } => {
                self.dir(*dir)?;
                let feeds = !self.faults.feed_none;
                if feeds {
                    self.held_mut().watched.insert(*dir);
                }
                NativeReply::Watched(feeds)
            }
            NativeCall::Make { dir, name, kind, mode, umask, rdev, target } => {
                Stat(self.make(by, *dir, name, *kind, (*mode, *umask), *rdev, target)?)
            }
            NativeCall::Mkdir { dir, name, mode, umask } => Stat(self.mkdir(by, *dir, name, *mode, *umask)?),
            NativeCall::MkdirLike { dir, name, like } => Stat(self.mkdir_like(*dir, name, like)?),
            NativeCall::Tmpfile { dir, mode, umask } => self.tmpfile(by, *dir, *mode, *umask)?,
            NativeCall::CopyOf { of } => NativeReply::Copied(self.copy_of(of)?),
            NativeCall::Become { of, like } => {
                let ino = self.find(of)?;
                self.make_like(ino, like).map(|()| Done)?
            }
            NativeCall::Unlink { dir, name, id } => self.unlink(by, *dir, name, *id).map(|()| Done)?,
            NativeCall::Rmdir { dir, name, id } => self.rmdir(by, *dir, name, *id).map(|()| Done)?,
            NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode } => {
                let (from, to) = ((*dir, name), (*new_dir, new_name));
                self.rename(by, from, *id, to, *new_id, *mode).map(|()| Done)?
            }
            NativeCall::Link { of, dir, name } => Stat(self.link(by, of, *dir, name)?),
            NativeCall::SetAttr { of, set } => Stat(self.set_attr(by, of, set)?),
            NativeCall::Readlink { of } => Data(self.readlink(of)?),
            NativeCall::Read { of, offset, len } => Data(self.read(of, *offset, *len)?),
            NativeCall::Write { of, offset, append, kill_set_id } => {
                self.write(by, of, *offset, *append, *kill_set_id, bytes)?
            }
            NativeCall::Fallocate { of, offset, len, what } => {
                self.fallocate(of, *offset, *len, *what).map(|()| Done)?
            }
            NativeCall::Seek { of, offset, whence } => NativeReply::Offset(self.seek(of, *offset, *whence)?),
            NativeCall::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range((from, *from_offset), (to, *to_offset), *len)?
            }
            NativeCall::Open { of, write: _ } => self.open(of)?,
            NativeCall::Hold { of } => self.hold_open(of)?,
            NativeCall::Lease { of } => self.lease(of)?,
            NativeCall::LeaseHolds { open } => self.lease_holds(*open).map(|()| Done)?,
            NativeCall::Close { open } => self.close(*open).map(|()| Done)?,
            NativeCall::Fsync { of } => {
                let ino = self.file(of)?;
                self.sync(Some(ino));
                Done
            }
            NativeCall::FsyncDir { dir } => {
                let ino = self.dir(*dir)?;
                self.sync_dir(ino);
                Done
            }
            NativeCall::GetXattr { of, name } => Data(self.get_xattr(by, of, name)?),
            NativeCall::SetXattr { of, name, value, mode, kill_sgid } => {
                self.set_xattr(by, of, name, value, *mode, *kill_sgid).map(|()| Done)?
            }
            NativeCall::ListXattr { of } => Data(self.list_xattr(by, of)?),
            NativeCall::RemoveXattr { of, name } => self.remove_xattr(by, of, name).map(|()| Done)?,
            NativeCall::Access { of, .. } => NativeReply::Access(self.access(by, of)?),
            NativeCall::Space => NativeReply::Space(self.space()),
            NativeCall::Lock { of, lock } => self.lock(of, lock).map(|()| Done)?,
            NativeCall::TestLock { of, lock } => NativeReply::Lock(self.test_lock(of, lock)?),
            NativeCall::HandleOf { of } => Data(self.handle_of(of)?),
            NativeCall::ByHandle { handle } => self.by_handle(handle)?,
            NativeCall::PlaceOf { dir } => self.place_of(*dir)?,
            NativeCall::ForgetDirs { dirs } => {
                self.forget_dirs(dirs);
                Done
            }
        })
    }

    fn space(&self) -> Space {
        const ALL: u64 = 1 << 40;
        let used: u64 = self.tree.nodes.values().map(|node| node.data.len() as u64).sum();
        let bytes = self.faults.bytes_max.min(ALL);
        let free = bytes.saturating_sub(used);
        let inodes = self.faults.inodes_max.min(ALL);
        let inodes_free = inodes.saturating_sub(self.tree.nodes.len() as u64);
        Space { fs: self.fs, bytes, bytes_free: free, bytes_available: free, inodes, inodes_free }
    }

    fn changes(&mut self) -> Changes {
        let clock = self.clock;
        let due = |at: Time| at <= clock;
        let held = &mut self.processes[self.here];
        let mut told = Changes { lost: std::mem::take(&mut held.feed_lost), dirs: Vec::new() };
        let (now, later): (Vec<_>, Vec<_>) = held.feed.drain(..).partition(|(at, _, _)| due(*at));
        held.feed = later.into();
        for (_, dir, name) in now {
            match told.dirs.iter_mut().find(|changed| changed.dir == dir) {
                Some(changed) => {
                    if let Err(at) = changed.names.binary_search(&name) {
                        changed.names.insert(at, name);
                    }
                }
                None => told.dirs.push(Changed { dir, names: vec![name] }),
            }
        }
        told.dirs.sort_by_key(|changed| changed.dir);
        told
    }

    /// The object, as [`At`] says.
    fn find(&self, of: &At) -> Result<u64, Errno> {
        let alive = self.tree.nodes.get(&of.id.ino).is_some_and(|node| node.btime == of.id.btime);
        let known = self.direct
            || self.held().dirs.contains(&of.id)
            || self.held().opens.values().any(|open| *open == of.id.ino)
            || self.held().handles.contains(&of.id);
        if alive && known {
            return Ok(of.id.ino);
        }
        let (dir, name) = of.seen.as_ref().ok_or(Errno::ESTALE)?;
        let dir = self.dir(*dir)?;
        let there = self.tree.nodes[&dir].entries.get(name).map(|entry| entry.ino);
        if alive && there == Some(of.id.ino) { Ok(of.id.ino) } else { Err(Errno::ESTALE) }
    }
}
