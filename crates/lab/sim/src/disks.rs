//! Disks of the world that are slow, full, or fail: the faults, the next step of an island that stopped
//! because of one, and the answers that its clients may get meanwhile.

use atoll_core::{IslandId, NodeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_dispatch::SpaceState;
use atoll_posix::{Errno, Op};
use rustix::io::Errno as Native;

use crate::client::Done;
use crate::machines::{CopyId, IslandCopy};
use crate::thread::Thread;
use crate::world::{Choice, Happening, World};

/// Microseconds after there is room again within which an island may still refuse what grows: it looks
/// when it keeps house.
const FULL_US: u64 = 1_000_000;
/// A disk with less room is full, or was when somebody told of it: one that is not limited has far more.
const FULL_BYTES: u64 = 1 << 40;
/// Microseconds until an island is started that could not be.
const RETRY_US_MAX: u64 = 400_000;

/// Bytes of extended attributes that ext4 holds of one file: a block, less its header.
const XATTR_BYTES_OF_EXT4: usize = 4064;

/// The folder of one copy. With the limits of a native disk it holds as few extended attributes as ext4.
pub(crate) fn new(seed: u64, limits: bool) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.limit_xattrs(limits.then_some(XATTR_BYTES_OF_EXT4));
    disk
}

/// What is wrong with a machine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ailment {
    /// What may take long takes up to so many microseconds; 0: no time.
    pub(crate) slow_us: u64,
    /// Space is limited; and it was in this life of the machine.
    pub(crate) full: bool,
    pub(crate) was_full: bool,
    /// Some effects or reads fail, or have failed in this life.
    pub(crate) fails: bool,
    /// Bits have changed at rest.
    pub(crate) flipped: bool,
}

impl Ailment {
    /// An error of the disk is what was to be expected.
    pub(crate) const fn excuses(&self) -> bool {
        let Self { full, was_full, fails, flipped, .. } = *self;
        full || was_full || fails || flipped
    }
}

impl IslandCopy {
    /// All its files, whatever they are for.
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
    /// A life begins: what failed in the last one is over, if nothing is told to fail any more.
    pub(crate) fn life_ails(&mut self, node: NodeId) {
        let told = self.copies_on(node).iter().any(|copy| {
            let IslandCopy { disk, seat, .. } = &self.copies[*copy];
            disk.is_told_to_fail() || seat.as_ref().is_some_and(SimDisk::is_told_to_fail)
        });
        let ailment = &mut self.machines[node].ailment;
        ailment.was_full = false;
        ailment.fails &= told;
    }

    /// Adds a copy's files to the hash of the run, if that takes everything.
    pub(crate) fn hash_files(&mut self, copy: CopyId) {
        if !self.transcript.takes_everything() {
            return;
        }
        for path in self.copies[copy].files() {
            let disk = &self.copies[copy].disk;
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

    /// From now on what may take long on a machine's disk takes up to so long.
    pub fn slow_disk(&mut self, node: NodeId, us_max: u64) {
        self.note(format_args!("machine {node}: its disk is slow, up to {us_max} us"));
        self.machines[node].ailment.slow_us = us_max;
        self.injected.slow += 1;
    }

    /// A machine's disk has room for so many bytes more than each copy on it holds.
    pub fn fill_disk(&mut self, node: NodeId, left: u64) {
        self.note(format_args!("machine {node}: its disk has {left} bytes left"));
        for copy in self.copies_on(node) {
            let disk = &self.copies[copy].disk;
            disk.set_space(Some(disk.used() + left));
        }
        self.machines[node].ailment.full = true;
        self.full_until_us = u64::MAX;
        self.injected.full += 1;
    }

    /// Space is no longer limited.
    pub fn free_disk(&mut self, node: NodeId) {
        for copy in self.copies_on(node) {
            self.copies[copy].disk.set_space(None);
        }
        let ailment = &mut self.machines[node].ailment;
        if std::mem::take(&mut ailment.full) {
            // Until it has looked, and what it has refused is told.
            ailment.was_full = true;
            self.note(format_args!("machine {node}: its disk has room again"));
            self.full_until_us = self.now_us() + FULL_US;
        }
    }

    /// A primary believes that the disks of its group have room for so many bytes. A copy may have told that its disk was full, and may
    /// not be heard since: the primary refuses until then, and until its next look.
    pub(crate) fn note_room(&mut self, bytes: u64) {
        if bytes < FULL_BYTES {
            self.full_until_us = self.full_until_us.max(self.now_us() + FULL_US);
        }
    }

    /// An effect on a machine's disk will fail for each copy, or from then on all do until it is mended.
    pub fn fail_disk(&mut self, node: NodeId, effects: u64, for_good: bool) {
        self.note(format_args!("machine {node}: effect {effects} of its disk will fail, {for_good}"));
        for copy in self.copies_on(node) {
            self.fail_files(copy, effects, for_good);
        }
    }

    /// The same, for the files of the copy of one island there, if there is one.
    pub fn fail_copy(&mut self, island: IslandId, node: NodeId, effects: u64, for_good: bool) {
        let Some(copy) = self.copy_at(island, node) else { return };
        self.note(format_args!("island {island} on {node}: effect {effects} will fail, {for_good}"));
        self.fail_files(copy, effects, for_good);
    }

    fn fail_files(&mut self, id: CopyId, effects: u64, for_good: bool) {
        let IslandCopy { node, disk, seat, .. } = &self.copies[id];
        self.machines[*node].ailment.fails = true;
        // Much less is written where its seat is.
        for (disk, effects) in [(Some(disk), effects), (seat.as_ref(), 1 + effects / 4)] {
            match disk {
                Some(disk) if for_good => disk.fail_all(Some(Native::IO)),
                Some(disk) => disk.fail_after(effects, Native::IO),
                None => {}
            }
        }
    }

    /// Some bytes of a file on a machine's disk cannot be read.
    pub fn spoil_disk(&mut self, node: NodeId) {
        let on_it = self.copies_on(node).into_iter();
        let files: Vec<(CopyId, Vec<u8>)> = on_it
            .flat_map(|copy| self.copies[copy].files().into_iter().map(move |path| (copy, path)))
            .collect();
        if files.is_empty() {
            return;
        }
        let (copy, path) = &files[self.rng.index(files.len())];
        let disk = &self.copies[*copy].disk;
        let size = disk.stat(path).map_or(0, |stat| stat.size);
        let from = self.rng.below(size.max(1));
        let len = 1 + self.rng.below(8192);
        if disk.fail_reads(path, from..from + len).is_ok() {
            self.machines[node].ailment.fails = true;
            self.injected.unreadable += 1;
            let shown = path.escape_ascii().to_string();
            self.note(format_args!("machine {node}: {len} bytes at {from} of {shown} cannot be read"));
        }
    }

    /// Disks are quick, have room, and do what they are told. Processes whose disks have failed start again, as
    /// whoever mends a disk has them.
    pub fn mend_disks(&mut self) {
        for node in self.machines.ids() {
            self.free_disk(node);
            let ailment = &mut self.machines[node].ailment;
            ailment.slow_us = 0;
            let fails = ailment.fails;
            let copies = self.copies_on(node);
            if fails {
                for copy in &copies {
                    let IslandCopy { disk, seat, .. } = &self.copies[*copy];
                    for disk in [Some(disk), seat.as_ref()].into_iter().flatten() {
                        disk.fail_all(None);
                        disk.heal_all_reads();
                    }
                }
            }
            // What has failed in an earlier life may have left a copy unopened in this one.
            if fails || self.is_up(node) && copies.into_iter().any(|copy| !self.copies[copy].is_open()) {
                self.kill(node, Fault::ProcessDeath);
            }
        }
    }

    /// Whether a disk fails, or has failed in a life of its machine that goes on.
    pub(crate) fn is_ailing(&self) -> bool {
        self.machines.iter().any(|machine| machine.ailment.excuses())
    }

    /// Whether a client may be told so for lack of space.
    pub(crate) fn excuses(&self, done: &Done, began_us: u64) -> bool {
        matches!(done, Err(Errno::ENOSPC)) && began_us <= self.full_until_us
    }

    /// Whether what it makes sure of may be lost.
    pub(crate) fn may_have_lost(&self, op: &Op) -> bool {
        // Of several copies one has kept it, unless all lose their power.
        let power_cuts = if self.has_groups() && !self.fails_together { 0 } else { self.injected.power_cuts };
        matches!(op, Op::Fsync { .. } | Op::FsyncDir { .. }) && self.halts + power_cuts > 0
    }

    /// Effects of each machine's disk so far.
    pub(crate) fn effects(&self) -> Vec<u64> {
        let on = |node| self.copies_on(node).iter().map(|copy| self.copies[*copy].disk.effects()).sum();
        self.machines.ids().map(on).collect()
    }

    /// Effects that failed because they were told to.
    pub(crate) fn failed_effects(&self) -> u64 {
        self.copies.iter().map(|copy| copy.disk.failed()).sum()
    }

    /// An island takes only what makes room, or everything again.
    pub(crate) fn space_told(&mut self, island: IslandId, state: SpaceState) {
        self.note(format_args!("island {island}: {state:?}"));
        if state != SpaceState::Normal {
            self.injected.read_only += 1;
        }
    }

    /// A copy has stopped. Over its disk: its process ends, and is started again. If it is one of several, its process goes on
    /// with others, and starts again when the disk is mended.
    pub(crate) fn halted(&mut self, id: CopyId, why: &str) {
        let IslandCopy { island, node, .. } = self.copies[id];
        // A disk that is full stops no island.
        let Ailment { fails, flipped, .. } = self.machines[node].ailment;
        if !fails && !flipped {
            return self.fail(format!("island {island} has halted: {why}"));
        }
        self.note(format_args!("island {island}: has halted: {why}"));
        self.halts += 1;
        if !self.has_groups() {
            self.machines[node].fault = Fault::ProcessDeath;
            self.copies[id].halted = true;
        }
    }

    /// A process has ended because it could not open a copy for its disk: it is tried again.
    pub(crate) fn start_later(&mut self, node: NodeId) {
        for copy in self.copies_on(node) {
            self.copies[copy].close();
        }
        let life = self.machines[node].life;
        let pause = 1_000 + self.rng.below(RETRY_US_MAX);
        self.schedule(pause, Happening::Start { node, life });
    }

    /// A thread of a copy waits for its slow disk.
    pub(crate) fn wait_for_disk(&mut self, id: CopyId, thread: Thread) {
        let copy = &mut self.copies[id];
        copy.waiting += 1;
        let machine = &self.machines[copy.node];
        let (life, slow_us) = (machine.life, machine.ailment.slow_us);
        let pause = 1 + self.rng.below(slow_us);
        self.schedule(pause, Happening::DiskDone { copy: id, life, thread: Box::new(thread) });
    }

    /// Its disk got around to it.
    pub(crate) fn disk_done(&mut self, id: CopyId, life: u64, mut thread: Thread) {
        let apart = self.is_chosen(Choice::Apart);
        let copy = &mut self.copies[id];
        if self.machines[copy.node].life != life {
            return;
        }
        copy.waiting -= 1;
        if !copy.is_open() {
            return;
        }
        thread.go_on(apart);
        copy.threads.push(thread);
        self.after_effects(id);
        self.let_read(id);
        self.keep_going(id);
    }
}
