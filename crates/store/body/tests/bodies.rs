//! Bodies against a plain vector of bytes, over the simulated and the real disk.

use std::sync::Arc;

use atoll_body::{Bodies, BodyError, Born, Options};
use atoll_core::Ino;
use atoll_core::sum::{BLOCK_BYTES, BlockSums, block_of_cut, blocks_of, edges_of_zero, sum, touched};
use atoll_disk::real::RealDisk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use proptest::prelude::*;

const INO: Ino = Ino(0x0001_0000_0000_0a42);

/// What a body should hold, and its checksums as the state would keep them.
#[derive(Default, Clone)]
struct Model {
    bytes: Vec<u8>,
    sums: Vec<u32>,
}

impl Model {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn sums(&self, first: u64, count: u64) -> Vec<u32> {
        (first..first + count).map(|b| self.sums.get(b as usize).copied().unwrap_or(0)).collect()
    }

    fn set(&mut self, block: u64, sum: u32) {
        let block = block as usize;
        if self.sums.len() <= block {
            self.sums.resize(block + 1, 0);
        }
        self.sums[block] = sum;
    }

    fn old(&self, offset: u64, len: u64) -> BlockSums {
        let t = touched(offset, len, self.size());
        BlockSums {
            tail: t.tail.map(|b| (b, self.sums(b, 1)[0])),
            first: t.first,
            sums: self.sums(t.first, t.count),
        }
    }

    fn take(&mut self, new: BlockSums) {
        for (block, sum) in new.tail.into_iter().chain((new.first..).zip(new.sums)) {
            self.set(block, sum);
        }
    }

    fn check(&self) {
        let blocks = self.bytes.chunks(BLOCK_BYTES as usize).map(sum).collect::<Vec<_>>();
        assert_eq!(self.sums(0, blocks.len() as u64), blocks, "checksums do not tell the bytes");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Write { offset: u64, data: Vec<u8> },
    Read { offset: u64, len: u64 },
    Cut { len: u64 },
    Zero { offset: u64, len: u64 },
    CopyWithin { offset: u64, to: u64, len: u64 },
    Reopen { junk: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let offset = prop_oneof![0u64..20_000, (0u64..5).prop_map(|b| b * BLOCK_BYTES)];
    let len = prop_oneof![1usize..300, 1usize..9000, Just(4096), Just(8192)];
    let data =
        (len.clone(), any::<u8>()).prop_map(|(n, b)| (0..n).map(|i| b ^ (i * 31) as u8).collect::<Vec<u8>>());
    let len = len.prop_map(|n| n as u64);
    let op = prop_oneof![
        4 => (offset.clone(), data).prop_map(|(offset, data)| Op::Write { offset, data }),
        3 => (offset.clone(), len.clone()).prop_map(|(offset, len)| Op::Read { offset, len }),
        1 => offset.clone().prop_map(|len| Op::Cut { len }),
        1 => (offset.clone(), len.clone()).prop_map(|(offset, len)| Op::Zero { offset, len }),
        1 => (offset.clone(), offset, len).prop_map(|(offset, to, len)| Op::CopyWithin { offset, to, len }),
        1 => (0usize..6000).prop_map(|junk| Op::Reopen { junk }),
    ];
    prop::collection::vec(op, 1..25)
}

fn open<D: Disk>(disk: &Arc<D>) -> Bodies<D> {
    Bodies::open(Arc::clone(disk), b"bodies", Options::default()).unwrap()
}

fn read<D: Disk>(bodies: &Bodies<D>, model: &Model, offset: u64, len: u64, buf: &mut Vec<u8>) -> Vec<u8> {
    let here = model.size().saturating_sub(offset).min(len);
    let (first, count) = blocks_of(offset, here);
    let range = bodies.read(INO, offset, len, model.size(), &model.sums(first, count), buf).unwrap();
    buf[range].to_vec()
}

fn run<D: Disk>(disk: &Arc<D>, ops: Vec<Op>) {
    let mut bodies = open(disk);
    let mut model = Model::default();
    let mut buf = Vec::new();
    for op in ops {
        let size = model.size();
        match op {
            Op::Write { offset, data } => {
                let old = model.old(offset, data.len() as u64);
                let new = bodies.sums_after(INO, offset, &data, size, &old).unwrap();
                bodies.write(INO, offset, &data, size, None).unwrap();
                let end = offset as usize + data.len();
                model.bytes.resize(model.bytes.len().max(end), 0);
                model.bytes[offset as usize..end].copy_from_slice(&data);
                model.take(new);
            }
            Op::Read { offset, len } => {
                let from = model.bytes.len().min(offset as usize);
                let to = model.bytes.len().min((offset + len) as usize);
                assert_eq!(read(&bodies, &model, offset, len, &mut buf), model.bytes[from..to]);
            }
            Op::Cut { len } => {
                let old = block_of_cut(len, size).map_or(0, |b| model.sums(b, 1)[0]);
                let new = bodies.sum_after_cut(INO, len, size, old).unwrap();
                bodies.cut(INO, len, size, None).unwrap();
                model.bytes.resize(len as usize, 0);
                model.sums.truncate(len.div_ceil(BLOCK_BYTES) as usize);
                if let Some((block, sum)) = new {
                    model.set(block, sum);
                }
            }
            Op::Zero { offset, len } => {
                let edges = edges_of_zero(offset, len, size);
                let old: Vec<u32> = edges.iter().map(|b| model.sums(*b, 1)[0]).collect();
                let new = bodies.sums_after_zero(INO, offset, len, size, &old).unwrap();
                bodies.zero(INO, offset, len, size).unwrap();
                let end = (offset + len).min(size);
                if offset < end {
                    model.bytes[offset as usize..end as usize].fill(0);
                    let (first, count) = blocks_of(offset, end - offset);
                    (first..first + count).for_each(|b| model.set(b, 0));
                    new.into_iter().for_each(|(b, sum)| model.set(b, sum));
                }
            }
            Op::CopyWithin { offset, to, len } => {
                let len = len.min(size.saturating_sub(offset)).min(to.abs_diff(offset));
                if len == 0 {
                    continue;
                }
                let (first, count) = blocks_of(offset, len);
                let from = (INO, offset, size, &model.sums(first, count)[..]);
                let target = (INO, to, size, &model.old(to, len));
                let (new, range) = bodies.sums_after_copy(from, target, len, &mut buf).unwrap();
                let data = buf[range].to_vec();
                bodies.copy((INO, offset, size), (INO, to, size), len, None).unwrap();
                let end = (to + len) as usize;
                model.bytes.resize(model.bytes.len().max(end), 0);
                model.bytes[to as usize..end].copy_from_slice(&data);
                model.take(new);
            }
            Op::Reopen { junk } => {
                drop(bodies);
                // What a lost log tail may have left.
                if let Ok(file) = disk.open(&atoll_body::path_of(b"bodies", INO), OpenHow::Write) {
                    file.write_at(&vec![0xee; junk], size).unwrap();
                }
                bodies = open(disk);
            }
        }
        model.check();
    }
    assert_eq!(read(&bodies, &model, 0, u64::MAX, &mut buf), model.bytes);
    bodies.cut(INO, model.size(), model.size(), None).unwrap();
    if let Some(file) = bodies.file(INO).unwrap() {
        assert_eq!(file.stat().unwrap().size, model.size(), "the plain file has another length");
    }
}

fn real(test: &str) -> (std::path::PathBuf, Arc<RealDisk>) {
    let path = std::env::temp_dir().join(format!("atoll-body-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let disk = RealDisk::create(&path).unwrap();
    (path, Arc::new(disk))
}

proptest! {
    #[test]
    fn a_body_holds_what_was_written_and_its_checksums_follow(ops in ops()) {
        run(&Arc::new(SimDisk::new(1)), ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn on_a_real_disk_too(ops in ops()) {
        let (path, disk) = real("ops");
        run(&disk, ops);
        std::fs::remove_dir_all(path).unwrap();
    }
}

fn written<D: Disk>(bodies: &Bodies<D>, bytes: Vec<u8>) -> Model {
    let mut model = Model::default();
    let old = model.old(0, bytes.len() as u64);
    model.take(bodies.sums_after(INO, 0, &bytes, 0, &old).unwrap());
    bodies.write(INO, 0, &bytes, 0, None).unwrap();
    model.bytes = bytes;
    model
}

#[test]
fn a_flipped_bit_is_told_with_its_block_and_never_served_or_merged() {
    let disk = Arc::new(SimDisk::new(1));
    let bodies = open(&disk);
    let model = written(&bodies, vec![7; 20_000]);
    assert!(disk.flip(&bodies.path(INO), 9000, 2).unwrap());
    let mut buf = Vec::new();
    let error = bodies.read(INO, 5000, 10_000, 20_000, &model.sums(1, 3), &mut buf).unwrap_err();
    assert!(matches!(error, BodyError::Damaged { ino: INO, block: 2 }), "{error}");
    assert_eq!(read(&bodies, &model, 0, 8192, &mut buf).len(), 8192, "the blocks beside it are fine");
    let merge = bodies.sums_after(INO, 9000, b"x", 20_000, &model.old(9000, 1));
    assert!(matches!(merge, Err(BodyError::Damaged { block: 2, .. })));
}

#[test]
fn a_body_that_vanished_is_damage_and_not_zeros() {
    let disk = Arc::new(SimDisk::new(1));
    let bodies = open(&disk);
    let model = written(&bodies, vec![7; 100]);
    bodies.drop_body(INO).unwrap();
    let error = bodies.read(INO, 0, 100, 100, &model.sums(0, 1), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, BodyError::Damaged { block: 0, .. }), "{error}");
    bodies.drop_body(INO).unwrap();
}

#[test]
fn a_read_leaves_native_bytes_beyond_the_end_alone_and_hands_none_out() {
    let disk = Arc::new(SimDisk::new(1));
    let model = written(&open(&disk), vec![7; 100]);
    let file = disk.open(&atoll_body::path_of(b"bodies", INO), OpenHow::Write).unwrap();
    file.write_at(&[9; 50], 100).unwrap();
    let bodies = open(&disk);
    let mut buf = Vec::new();
    assert_eq!(read(&bodies, &model, 0, 1000, &mut buf), vec![7; 100]);
    assert_eq!(file.stat().unwrap().size, 150);
    bodies.cut(INO, 200, 100, None).unwrap();
    let range =
        bodies.read(INO, 0, 200, 200, &[sum(&[vec![7; 100], vec![0; 100]].concat())], &mut buf).unwrap();
    assert_eq!(buf[range][100..], [0; 100]);
}

#[test]
fn holes_are_found_up_to_the_end_that_the_state_tells() {
    let disk = Arc::new(SimDisk::new(1));
    let bodies = open(&disk);
    assert_eq!(bodies.seek(INO, 0, false, 100).unwrap(), None);
    assert_eq!(bodies.seek(INO, 10, true, 100).unwrap(), Some(10));
    bodies.write(INO, 8192, &[1; 4096], 0, None).unwrap();
    assert_eq!(bodies.seek(INO, 0, false, 20_000).unwrap(), Some(8192));
    assert_eq!(bodies.seek(INO, 8192, true, 20_000).unwrap(), Some(12_288));
    assert_eq!(bodies.seek(INO, 15_000, true, 20_000).unwrap(), Some(15_000));
    assert_eq!(bodies.seek(INO, 20_000, true, 20_000).unwrap(), None);
}

#[test]
fn a_native_file_is_born_with_mode_and_owner_and_stays_usable_for_its_daemon() {
    let disk = Arc::new(SimDisk::new(1));
    let born = Some(Born { mode: 0o4050, uid: 7, gid: 8 });
    let root =
        Bodies::open(Arc::clone(&disk), b"bodies", Options { root: true, ..Options::default() }).unwrap();
    root.write(Ino(1), 0, b"x", 0, born).unwrap();
    let stat = disk.stat(&root.path(Ino(1))).unwrap();
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o4050, 7, 8));
    let other = open(&disk);
    other.write(Ino(2), 0, b"x", 0, born).unwrap();
    let stat = disk.stat(&other.path(Ino(2))).unwrap();
    assert_eq!((stat.mode & 0o777, stat.uid), (0o650, 0));
}

#[test]
fn more_bodies_than_may_be_open_are_read_and_written_at_once() {
    let disk = Arc::new(SimDisk::new(1));
    let options = Options { open_files_max: 3, ..Options::default() };
    let bodies = Bodies::open(Arc::clone(&disk), b"bodies", options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let bodies = &bodies;
            scope.spawn(move || {
                let mut buf = Vec::new();
                for round in 0..200u64 {
                    let ino = Ino(thread * 1000 + round % 10);
                    let (size, byte) = (round / 10 * 8, (thread * 50 + round / 10) as u8);
                    bodies.write(ino, size, &[byte; 8], size, None).unwrap();
                    let all: Vec<u8> = (0..=round / 10).flat_map(|r| [(thread * 50 + r) as u8; 8]).collect();
                    let range = bodies.read(ino, 0, 9999, size + 8, &[sum(&all)], &mut buf).unwrap();
                    assert_eq!(buf[range], all);
                }
            });
        }
    });
}

#[test]
fn what_was_synced_is_there_after_a_power_cut_file_and_all() {
    for seed in 0..200 {
        let disk = Arc::new(SimDisk::new(seed));
        let bodies = open(&disk);
        let mut model = Model::default();
        for part in 0..3u8 {
            model = written(&bodies, vec![part + 1; 5000]);
            // The one that made the file may have died before it synced anything.
            if part == 0 && seed % 2 == 0 {
                let bodies = open(&disk);
                bodies.sync_many(&[INO]).unwrap();
            }
        }
        bodies.sync(INO).unwrap();
        bodies.write(Ino(9), 0, b"never synced", 0, None).unwrap();
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        assert_eq!(read(&open(&disk), &model, 0, 9999, &mut Vec::new()), model.bytes, "seed {seed}");
    }
}

#[test]
fn a_file_made_after_its_folder_was_synced_is_synced_with_its_name() {
    for seed in 0..50 {
        let disk = Arc::new(SimDisk::new(seed));
        let bodies = open(&disk);
        let neighbour = Ino(INO.0 & 0xff);
        bodies.write(neighbour, 0, b"x", 0, None).unwrap();
        bodies.sync(neighbour).unwrap();
        let model = written(&bodies, vec![3; 100]);
        bodies.sync(INO).unwrap();
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        assert_eq!(read(&open(&disk), &model, 0, 100, &mut Vec::new()), model.bytes, "seed {seed}");
    }
}

#[test]
fn many_bodies_are_synced_at_once() {
    let many: Vec<Ino> = (0..atoll_body::SYNC_EACH_MAX as u64 + 1).map(Ino).collect();
    for seed in 0..20 {
        let disk = Arc::new(SimDisk::new(seed));
        let bodies = open(&disk);
        many.iter().for_each(|ino| bodies.write(*ino, 0, b"x", 0, None).unwrap());
        bodies.sync_many(&many).unwrap();
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        let bodies = open(&disk);
        for ino in &many {
            let range = bodies.read(*ino, 0, 1, 1, &[sum(b"x")], &mut Vec::new()).unwrap();
            assert_eq!(range, 0..1);
        }
    }
}

#[test]
fn after_a_failed_sync_no_sync_succeeds() {
    let disk = Arc::new(SimDisk::new(1));
    let bodies = open(&disk);
    bodies.write(INO, 0, b"x", 0, None).unwrap();
    disk.fail_next_sync();
    assert!(matches!(bodies.sync(INO), Err(BodyError::Io { .. })));
    assert!(matches!(bodies.sync(INO), Err(BodyError::SyncFailed)));
}

/// Bytes up to `size`, as a body has them, compared with the model's checksums.
fn whole(bodies: &Bodies<SimDisk>, model: &Model) -> Vec<u8> {
    let (size, mut buf) = (model.size(), Vec::new());
    let range = bodies.read(INO, 0, size, size, &model.sums(0, size.div_ceil(BLOCK_BYTES)), &mut buf);
    buf[range.unwrap()].to_vec()
}

#[test]
fn a_write_in_place_for_which_there_is_no_space_leaves_the_file_as_it_was() {
    for left in 0..12 {
        let disk = Arc::new(SimDisk::new(left));
        let bodies = Bodies::open(Arc::clone(&disk), b"bodies", Options::default()).unwrap();
        // Two blocks, a hole of six, one block.
        let mut model = Model::default();
        for (offset, n) in [(0, 8192), (8 * BLOCK_BYTES, 4096)] {
            let data = vec![7; n];
            let (size, old) = (model.size(), model.old(offset, n as u64));
            let sums = bodies.sums_after(INO, offset, &data, size, &old).unwrap();
            bodies.write(INO, offset, &data, size, None).unwrap();
            model.bytes.resize(offset as usize, 0);
            model.bytes.extend(&data);
            model.take(sums);
        }
        disk.set_space(Some(disk.used() + left * 4096));
        // Over all of it, and four blocks more.
        let (size, data) = (model.size(), vec![9; 12 * 4096 - 100]);
        let old = model.old(100, data.len() as u64);
        let done = bodies.write_in_place(INO, 100, &data, size, &old, None);
        if left < 9 {
            assert_eq!(done.unwrap_err().errno(), Some(28), "{left} blocks");
            assert_eq!(whole(&bodies, &model), model.bytes, "{left} blocks");
            disk.set_space(None);
            // What grows afterwards grows with zeros.
            let grown = 13 * BLOCK_BYTES;
            bodies.cut(INO, grown, size, None).unwrap();
            model.bytes.resize(grown as usize, 0);
            assert_eq!(whole(&bodies, &model), model.bytes, "{left} blocks");
        } else {
            done.unwrap();
        }
    }
}

#[test]
fn a_write_in_place_that_fails_half_way_says_so() {
    let mut torn = 0;
    for seed in 0..40 {
        let disk = Arc::new(SimDisk::new(seed));
        let bodies = Bodies::open(Arc::clone(&disk), b"bodies", Options::default()).unwrap();
        let mut model = Model::default();
        let old = model.old(0, 40_960);
        let sums = bodies.sums_after(INO, 0, &[7; 40_960], 0, &old).unwrap();
        bodies.write(INO, 0, &[7; 40_960], 0, None).unwrap();
        model.bytes = vec![7; 40_960];
        model.take(sums);
        disk.fail_after(1, rustix::io::Errno::IO);
        let old = model.old(0, 40_960);
        match bodies.write_in_place(INO, 0, &[9; 40_960], 40_960, &old, None).unwrap_err() {
            BodyError::Torn { .. } => torn += 1,
            _ => assert_eq!(whole(&bodies, &model), model.bytes, "seed {seed}"),
        }
    }
    assert!(torn > 20, "{torn} of 40");
}

#[test]
fn blocks_that_differ_from_their_sums_are_told_and_the_others_are_written_again_if_that_is_wanted() {
    let disk = Arc::new(SimDisk::new(3));
    let bodies = Bodies::open(Arc::clone(&disk), b"bodies", Options::default()).unwrap();
    let size = 6 * BLOCK_BYTES + 100;
    let mut bytes = vec![7; size as usize];
    bytes[2 * BLOCK_BYTES as usize..3 * BLOCK_BYTES as usize].fill(0);
    let sums: Vec<u32> = bytes.chunks(BLOCK_BYTES as usize).map(sum).collect();
    assert_eq!(
        bodies.differing((INO, size), 0, &sums, false).unwrap(),
        [0, 1, 3, 4, 5, 6],
        "nothing is there"
    );
    // Something else lies there.
    disk.symlink(b"elsewhere", &bodies.path(INO)).unwrap();
    bodies.fit(INO, size, None).unwrap();
    assert_eq!(bodies.differing((INO, size), 1, &sums[1..4], false).unwrap(), [1, 3], "a hole");
    bodies.write(INO, 0, &bytes, size, None).unwrap();
    bodies.write(INO, size, b"longer than the row says", size, None).unwrap();
    bodies.write(INO, 5 * BLOCK_BYTES, b"x", size, None).unwrap();
    bodies.fit(INO, size, None).unwrap();
    assert_eq!(disk.stat(&bodies.path(INO)).unwrap().size, size);
    let before = disk.effects();
    assert_eq!(bodies.differing((INO, size), 0, &sums, false).unwrap(), [5]);
    assert_eq!(disk.effects(), before);
    assert_eq!(bodies.differing((INO, size), 0, &sums, true).unwrap(), [5]);
    assert_eq!(disk.effects(), before + 5, "all but the hole and the one that differs");
    assert_eq!(bodies.differing((INO, size), 0, &[], true).unwrap(), []);
}
