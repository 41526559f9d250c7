//! Recovery of a body: whatever a power cut left of it, it matches the state afterwards, or the state
//! is told how to give way, never in bytes that were synced.

use std::sync::Arc;

use atoll_body::{Bodies, BodyError, Correction, Options, Redo};
use atoll_core::Ino;
use atoll_core::sum::{BLOCK_BYTES, sum};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_proto::BodyChange;
use bytes::Bytes;
use proptest::prelude::*;

const INO: Ino = Ino(77);

fn open(disk: &SimDisk) -> Bodies<SimDisk> {
    Bodies::open(Arc::new(disk.clone()), b"bodies", Options::default()).unwrap()
}

fn sums(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK_BYTES as usize).map(sum).collect()
}

fn redo(disk: &SimDisk, ops: &[BodyChange], old_size: u64, bytes: &[u8], dirty: bool) -> Vec<Correction> {
    let (ino, size) = (INO, bytes.len() as u64);
    redo_what(disk, Redo { ino, ops, ends: &[], old_size, size, dirty, cut: false, born: None }, bytes)
}

fn redo_what(disk: &SimDisk, what: Redo<'_>, bytes: &[u8]) -> Vec<Correction> {
    let all = sums(bytes);
    let sums =
        |first: u64, count: u64| Ok::<_, BodyError>(all[first as usize..(first + count) as usize].to_vec());
    open(disk).redo(what, sums).unwrap()
}

fn content(disk: &SimDisk) -> Vec<u8> {
    let Ok(file) = disk.open(&atoll_body::path_of(b"bodies", INO), OpenHow::Read) else { return Vec::new() };
    let mut bytes = vec![0; file.stat().unwrap().size as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// What the operation makes of the bytes.
fn apply(op: &BodyChange, bytes: &mut Vec<u8>, extent: u8) {
    let mut put = |offset: u64, data: &[u8]| {
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
    };
    match op {
        BodyChange::Bytes { offset, bytes, .. } => put(*offset, bytes),
        BodyChange::Extent { offset, len, .. } => put(*offset, &vec![extent; *len as usize]),
        BodyChange::Cut { len, .. } => bytes.resize(*len as usize, 0),
        BodyChange::Zero { offset, len, .. } => {
            let end = ((offset + len) as usize).min(bytes.len());
            bytes[(*offset as usize).min(end)..end].fill(0);
        }
        BodyChange::Allocate { .. } | BodyChange::Drop { .. } => {}
    }
}

fn perform(bodies: &Bodies<SimDisk>, op: &BodyChange, size: u64, extent: u8) {
    match op {
        BodyChange::Bytes { offset, bytes, .. } => bodies.write(INO, *offset, bytes, size, None).unwrap(),
        BodyChange::Extent { offset, len, .. } => {
            bodies.write(INO, *offset, &vec![extent; *len as usize], size, None).unwrap();
        }
        BodyChange::Cut { len, .. } => bodies.cut(INO, *len, size, None).unwrap(),
        BodyChange::Zero { offset, len, .. } => bodies.zero(INO, *offset, *len, size).unwrap(),
        BodyChange::Allocate { .. } | BodyChange::Drop { .. } => {}
    }
}

fn ops() -> impl Strategy<Value = Vec<BodyChange>> {
    let offset = prop_oneof![0u64..16_000, (0u64..4).prop_map(|b| b * BLOCK_BYTES)];
    let len = 1u64..6000;
    let op = prop_oneof![
        (offset.clone(), 1usize..3000, 1u8..).prop_map(|(offset, n, b)| BodyChange::Bytes {
            ino: INO,
            offset,
            bytes: Bytes::from(vec![b; n])
        }),
        (offset.clone(), len.clone()).prop_map(|(offset, len)| BodyChange::Extent {
            ino: INO,
            offset,
            len,
            promised: false
        }),
        offset.clone().prop_map(|len| BodyChange::Cut { ino: INO, len }),
        (offset, len).prop_map(|(offset, len)| BodyChange::Zero { ino: INO, offset, len }),
    ];
    prop::collection::vec(op, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Records without bytes are synced before the cut here, so that everything can be made again.
    #[test]
    fn all_that_is_carried_or_synced_is_there_after_any_power_cut(
        old in 0usize..12_000, ops in ops(), seed in any::<u64>(), effects in 1u64..40,
    ) {
        let disk = SimDisk::new(seed);
        let bodies = open(&disk);
        let mut want = vec![5; old];
        bodies.write(INO, 0, &want, 0, None).unwrap();
        bodies.sync(INO).unwrap();
        for (i, op) in (100u8..).zip(&ops) {
            // The body's side may be behind: what is carried is written after the answer.
            if u64::from(i - 100) < effects || matches!(op, BodyChange::Extent { .. }) {
                perform(&bodies, op, want.len() as u64, i);
            }
            apply(op, &mut want, i);
            if matches!(op, BodyChange::Extent { .. }) {
                bodies.sync(INO).unwrap();
            }
        }
        let disk = disk.revive(Fault::PowerCut { seed });
        // What an earlier crash may have left behind the end.
        if let Ok(file) = disk.open(&atoll_body::path_of(b"bodies", INO), OpenHow::Write)
            && file.stat().unwrap().size == old as u64
            && !ops.iter().any(|op| matches!(op, BodyChange::Extent { .. }))
        {
            file.write_at(&[0xee; 3000], old as u64).unwrap();
        }
        prop_assert_eq!(redo(&disk, &ops, old as u64, &want, false), []);
        prop_assert!(content(&disk) == want, "the bytes differ");
        prop_assert_eq!(redo(&disk, &ops, old as u64, &want, false), [], "again");
        prop_assert!(content(&disk) == want, "the bytes differ after a second time");
    }
}

#[test]
fn a_torn_append_is_cut_off_and_what_was_synced_before_it_stays() {
    let mut cuts = 0;
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let bodies = open(&disk);
        bodies.write(INO, 0, &[5; 5000], 0, None).unwrap();
        bodies.sync(INO).unwrap();
        bodies.write(INO, 5000, &[6; 30_000], 5000, None).unwrap();
        let disk = disk.revive(Fault::PowerCut { seed });
        let want = [vec![5; 5000], vec![6; 30_000]].concat();
        let ops = [BodyChange::Extent { ino: INO, offset: 5000, len: 30_000, promised: false }];
        let corrections = redo(&disk, &ops, 5000, &want, false);
        let found = content(&disk);
        match corrections[..] {
            [] => assert_eq!(found, want),
            [Correction::Cut { len, last }] => {
                cuts += 1;
                assert!(len >= 5000, "seed {seed}: synced bytes were cut");
                assert_eq!(found, want[..len as usize]);
                let rest = &want[(len / BLOCK_BYTES * BLOCK_BYTES) as usize..len as usize];
                assert_eq!(last, (!rest.is_empty()).then(|| (len / BLOCK_BYTES, sum(rest))));
            }
            _ => panic!("seed {seed}: {corrections:?}"),
        }
    }
    assert!(cuts > 50, "only {cuts} of 300 power cuts tore the append");
}

#[test]
fn what_was_synced_since_the_checkpoint_stays_when_a_later_append_is_torn() {
    let (mut cuts, mut at_the_sync) = (0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let bodies = open(&disk);
        bodies.write(INO, 0, &[5; 35_000], 0, None).unwrap();
        bodies.sync(INO).unwrap();
        bodies.write(INO, 35_000, &[6; 30_000], 35_000, None).unwrap();
        let disk = disk.revive(Fault::PowerCut { seed });
        let want = [vec![5; 35_000], vec![6; 30_000]].concat();
        let extent = |offset, len| BodyChange::Extent { ino: INO, offset, len, promised: false };
        let ops = [extent(0, 35_000), extent(35_000, 30_000)];
        let last = (35_000 / BLOCK_BYTES * BLOCK_BYTES) as usize;
        let ends = [(35_000, sum(&want[last..35_000]))];
        let (old_size, size) = (0, want.len() as u64);
        let what =
            Redo { ino: INO, ops: &ops, ends: &ends, old_size, size, dirty: false, cut: false, born: None };
        let corrections = redo_what(&disk, what, &want);
        if let [Correction::Cut { len, .. }] = corrections[..] {
            cuts += 1;
            at_the_sync += u32::from(len == 35_000);
            assert!(len >= 35_000, "seed {seed}: {} synced bytes were cut", 35_000 - len);
        }
        let found = content(&disk);
        assert_eq!(found, want[..found.len()]);
    }
    assert!(cuts > 50 && at_the_sync > 10, "only {cuts} and {at_the_sync} of 300 power cuts tore the append");
}

#[test]
fn torn_overwrites_of_a_dirty_body_get_new_checksums() {
    let mut resums = 0;
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let bodies = open(&disk);
        bodies.write(INO, 0, &[5; 20_000], 0, None).unwrap();
        bodies.sync(INO).unwrap();
        bodies.write(INO, 0, &[6; 16_384], 20_000, None).unwrap();
        // Its record was lost.
        let disk = disk.revive(Fault::PowerCut { seed });
        let corrections = redo(&disk, &[], 20_000, &[5; 20_000], true);
        let found = content(&disk);
        assert_eq!(found.len(), 20_000);
        let mut all = sums(&[5; 20_000]);
        for correction in corrections {
            let Correction::Resum { block, sum } = correction else { panic!("{correction:?}") };
            all[block as usize] = sum;
            resums += 1;
        }
        assert_eq!(all, sums(&found), "seed {seed}");
    }
    assert!(resums > 50);
}

#[test]
fn damage_that_no_record_explains_is_told_and_nothing_is_cut() {
    let disk = SimDisk::new(1);
    let bodies = open(&disk);
    bodies.write(INO, 0, &[5; 9000], 0, None).unwrap();
    assert!(disk.flip(&bodies.path(INO), 8500, 0).unwrap());
    let ops = [BodyChange::Cut { ino: INO, len: 9000 }];
    assert_eq!(redo(&disk, &ops, 9000, &[5; 9000], false), [Correction::Damaged { block: 2 }]);
    assert_eq!(content(&disk).len(), 9000);
}

#[test]
fn a_dropped_body_goes_and_a_missing_one_gets_its_length() {
    let disk = SimDisk::new(1);
    open(&disk).write(INO, 0, b"x", 0, None).unwrap();
    redo(&disk, &[BodyChange::Drop { ino: INO }], 1, &[], false);
    assert!(disk.stat(&atoll_body::path_of(b"bodies", INO)).is_err());
    assert_eq!(redo(&disk, &[], 0, &[0; 10_000], false), []);
    assert_eq!(content(&disk), [0; 10_000]);
}
