//! Disks of the world that are slow, full, or fail: the faults, the next step of an island that stopped
//! because of one, and the answers that its clients may get meanwhile.

use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_dispatch::SpaceState;
use atoll_posix::{Errno, Op};
use rustix::io::Errno as Native;

use crate::client::Done;
use crate::thread::Thread;
use crate::world::{Choice, Happening, Node, World};

/// Microseconds after there is room again within which an island may still refuse what grows: it looks
/// when it keeps house.
const FULL_US: u64 = 1_000_000;
/// Microseconds until an island is started that could not be.
const RETRY_US_MAX: u64 = 400_000;

/// Bytes of extended attributes that ext4 holds of one file: a block, less its header.
const XATTR_BYTES_OF_EXT4: usize = 4064;

/// The disk of one island. With the limits of a native disk it holds as few extended attributes as ext4.
pub(crate) fn new(seed: u64, limits: bool) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.limit_xattrs(limits.then_some(XATTR_BYTES_OF_EXT4));
    disk
}

/// What is wrong with an island's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ailment {
    /// What may take long takes up to so many microseconds; 0: no time.
    pub(crate) slow_us: u64,
    /// Space is limited; and it was in this life of the island.
    pub(crate) full: bool,
    pub(crate) was_full: bool,
    /// Some effects or reads fail, or have failed in this life.
    pub(crate) fails: bool,
    /// Bits have changed at rest.
    pub(crate) flipped: bool,
}

impl Node {
    /// An error of the disk is what was to be expected.
    pub(crate) const fn is_excused(&self) -> bool {
        let Ailment { full, was_full, fails, flipped, .. } = self.ailment;
        full || was_full || fails || flipped
    }

    /// A life begins: what failed in the last one is over, if nothing is told to fail any more.
    pub(crate) fn life_ails(&mut self) {
        self.ailment.was_full = false;
        self.ailment.fails &= self.disk.is_told_to_fail();
    }

    /// All files on its disk, whatever they are for.
    pub(crate) fn files(&self) -> Vec<Vec<u8>> {
        let mut files = Vec::new();
        let mut dirs = vec![Vec::new()];
        while let Some(dir) = dirs.pop() {
            let Ok(mut names) = self.disk.list(&dir) else { return Vec::new() };
            names.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (name, kind) in names {
                let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
                match kind {
                    FileKind::Directory => dirs.push(path),
                    FileKind::Regular => files.push(path),
                    _ => {}
                }
            }
        }
        files
    }
}

impl World {
    /// Adds an island's files to the hash of the run, if that takes everything.
    pub(crate) fn hash_files(&mut self, island: usize) {
        if !self.transcript.takes_everything() {
            return;
        }
        for path in self.nodes[island].files() {
            let disk = &self.nodes[island].disk;
            let size = disk.stat(&path).map_or(0, |stat| stat.size);
            let mut bytes = vec![0; size as usize];
            if let Ok(file) = disk.open(&path, OpenHow::Read) {
                // Parts that cannot be read stay zeros: so they do in every run of this seed.
                let _ = file.read_at(&mut bytes, 0);
            }
            self.transcript.hash_bytes(&path);
            self.transcript.hash_bytes(&bytes);
        }
    }

    /// From now on what may take long on an island's disk takes up to so long.
    pub fn slow_disk(&mut self, island: usize, us_max: u64) {
        self.note(format_args!("island {island}: its disk is slow, up to {us_max} us"));
        self.nodes[island].ailment.slow_us = us_max;
        self.injected.slow += 1;
    }

    /// An island's disk has room for so many bytes more than it holds.
    pub fn fill_disk(&mut self, island: usize, left: u64) {
        self.note(format_args!("island {island}: its disk has {left} bytes left"));
        let node = &mut self.nodes[island];
        node.disk.set_space(Some(node.disk.used() + left));
        node.ailment.full = true;
        self.full_until_us = u64::MAX;
        self.injected.full += 1;
    }

    /// Space is no longer limited.
    pub fn free_disk(&mut self, island: usize) {
        self.nodes[island].disk.set_space(None);
        if std::mem::take(&mut self.nodes[island].ailment.full) {
            // Until it has looked, and what it has refused is told.
            self.nodes[island].ailment.was_full = true;
            self.note(format_args!("island {island}: its disk has room again"));
            self.full_until_us = self.now_us() + FULL_US;
        }
    }

    /// An effect of an island's disk will fail, or from then on all do until it is mended.
    pub fn fail_disk(&mut self, island: usize, effects: u64, for_good: bool) {
        self.note(format_args!("island {island}: effect {effects} of its disk will fail, {for_good}"));
        let node = &mut self.nodes[island];
        node.ailment.fails = true;
        if for_good {
            node.disk.fail_all(Some(Native::IO));
        } else {
            node.disk.fail_after(effects, Native::IO);
        }
    }

    /// Some bytes of a file on an island's disk cannot be read.
    pub fn spoil_disk(&mut self, island: usize) {
        let files = self.nodes[island].files();
        if files.is_empty() {
            return;
        }
        let path = &files[self.rng.index(files.len())];
        let node = &mut self.nodes[island];
        let size = node.disk.stat(path).map_or(0, |stat| stat.size);
        let from = self.rng.below(size.max(1));
        let len = 1 + self.rng.below(8192);
        if node.disk.fail_reads(path, from..from + len).is_ok() {
            node.ailment.fails = true;
            self.injected.unreadable += 1;
            let shown = path.escape_ascii().to_string();
            self.note(format_args!("island {island}: {len} bytes at {from} of {shown} cannot be read"));
        }
    }

    /// Disks are quick, have room, and do what they are told. Islands whose disks have failed start again, as
    /// whoever mends a disk has them.
    pub fn mend_disks(&mut self) {
        for island in 0..self.nodes.len() {
            self.free_disk(island);
            let node = &mut self.nodes[island];
            node.ailment.slow_us = 0;
            if node.ailment.fails {
                node.disk.fail_all(None);
                node.disk.heal_all_reads();
                self.kill(island, Fault::ProcessDeath);
            }
        }
    }

    /// Whether a disk fails, or has failed in a life of its island that goes on.
    pub(crate) fn is_ailing(&self) -> bool {
        self.nodes.iter().any(Node::is_excused)
    }

    /// Whether a client may be told so for lack of space.
    pub(crate) fn excuses(&self, done: &Done, began_us: u64) -> bool {
        matches!(done, Err(Errno::ENOSPC)) && began_us <= self.full_until_us
    }

    /// Whether what it makes sure of may be lost.
    pub(crate) fn may_have_lost(&self, op: &Op) -> bool {
        matches!(op, Op::Fsync { .. } | Op::FsyncDir { .. }) && self.halts + self.injected.power_cuts > 0
    }

    /// Effects that failed because they were told to.
    pub(crate) fn failed_effects(&self) -> u64 {
        self.nodes.iter().map(|node| node.disk.failed()).sum()
    }

    /// An island takes only what makes room, or everything again.
    pub(crate) fn space_told(&mut self, island: usize, state: SpaceState) {
        self.note(format_args!("island {island}: {state:?}"));
        if state != SpaceState::Normal {
            self.injected.read_only += 1;
        }
    }

    /// An island has stopped. Over its disk: its process ends, and is started again.
    pub(crate) fn halted(&mut self, island: usize, why: &str) {
        // A disk that is full stops no island.
        let Ailment { fails, flipped, .. } = self.nodes[island].ailment;
        if !fails && !flipped {
            return self.fail(format!("island {island} has halted: {why}"));
        }
        self.note(format_args!("island {island}: has halted: {why}"));
        self.nodes[island].fault = Fault::ProcessDeath;
        self.nodes[island].halted = true;
        self.halts += 1;
    }

    /// An island could not be opened for its disk: it is tried again.
    pub(crate) fn open_later(&mut self, island: usize) {
        let life = self.nodes[island].life;
        let pause = 1_000 + self.rng.below(RETRY_US_MAX);
        self.schedule(pause, Happening::Start { island, life });
    }

    /// A thread of an island waits for its slow disk.
    pub(crate) fn wait_for_disk(&mut self, island: usize, thread: Thread) {
        let node = &mut self.nodes[island];
        node.waiting += 1;
        let (life, slow_us) = (node.life, node.ailment.slow_us);
        let pause = 1 + self.rng.below(slow_us);
        self.schedule(pause, Happening::DiskDone { island, life, thread: Box::new(thread) });
    }

    /// Its disk got around to it.
    pub(crate) fn disk_done(&mut self, island: usize, life: u64, mut thread: Thread) {
        let apart = self.is_chosen(Choice::Apart);
        let node = &mut self.nodes[island];
        if node.life != life {
            return;
        }
        node.waiting -= 1;
        let Some(engine) = &node.engine else { return };
        thread.go_on(engine, apart);
        node.threads.push(thread);
        self.after_effects(island);
        self.let_read(island);
        self.keep_going(island);
    }
}
