//! A snapshot as its users see it, and every crash of a row of commits.

use std::collections::BTreeMap;

use atoll_disk::real::RealDisk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_snapshot::{Snapshot, SnapshotError};

const CACHE_BYTES: usize = 1 << 20;
const PATH: &[u8] = b"state.redb";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn all(snapshot: &Snapshot) -> Model {
    snapshot.range(b"", b"\xff", usize::MAX).unwrap().into_iter().collect()
}

fn apply(model: &mut Model, batch: &Batch) {
    for (key, value) in batch {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

/// Commits that set, overwrite and remove, with values of very different lengths.
fn batches() -> Vec<Batch> {
    (0..6u32)
        .map(|round| {
            let row = |i: u32| {
                let key = format!("k{:03}", (i * 7 + round * 3) % 60).into_bytes();
                let value =
                    vec![(i + round) as u8; if i.is_multiple_of(11) { 3000 } else { (i * 5) as usize }];
                (key, (i % 4 != round % 4).then_some(value))
            };
            (0..30).map(row).collect()
        })
        .collect()
}

fn real(test: &str) -> (std::path::PathBuf, RealDisk) {
    let path = std::env::temp_dir().join(format!("atoll-snapshot-{}-{test}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let disk = RealDisk::create(&path).unwrap();
    (path, disk)
}

fn rows_come_back_after_reopening<D: Disk>(disk: &D) {
    let mut model = Model::new();
    let snapshot = Snapshot::open(disk, PATH, CACHE_BYTES).unwrap();
    assert!(snapshot.is_empty().unwrap());
    for batch in batches() {
        snapshot.commit(batch.clone()).unwrap();
        apply(&mut model, &batch);
        assert_eq!(all(&snapshot), model);
    }
    drop(snapshot);
    let mut snapshot = Snapshot::open(disk, PATH, CACHE_BYTES).unwrap();
    assert_eq!(all(&snapshot), model);
    assert!(snapshot.verify().unwrap());
    assert_eq!(all(&snapshot), model);
    let (key, value) = model.first_key_value().unwrap();
    assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    assert_eq!(snapshot.get(b"absent").unwrap(), None);
    let three: Vec<_> = model.clone().into_iter().take(3).collect();
    assert_eq!(snapshot.range(b"", b"z", 3).unwrap(), three);
    assert_eq!(snapshot.range(b"z", b"a", 3).unwrap(), []);
}

#[test]
fn rows_come_back_on_both_disks() {
    rows_come_back_after_reopening(&SimDisk::new(1));
    let (path, disk) = real("rows");
    rows_come_back_after_reopening(&disk);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn readers_on_other_threads_see_whole_commits_while_one_runs() {
    let disk = SimDisk::new(1);
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    let rows = |n: u8| (0..50u8).map(move |i| ([i], Some([n])));
    snapshot.commit(rows(0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seen: Vec<u8> =
                        snapshot.range(b"", b"\xff", 100).unwrap().into_iter().map(|(_, v)| v[0]).collect();
                    assert!(
                        seen.len() == 50 && seen.iter().all(|v| *v == seen[0]),
                        "a torn commit: {seen:?}"
                    );
                    if seen[0] == 20 {
                        break;
                    }
                }
            });
        }
        for n in 1..=20 {
            snapshot.commit(rows(n)).unwrap();
        }
    });
}

#[test]
fn after_any_crash_the_snapshot_is_one_of_the_commits_and_none_that_was_acknowledged_is_lost() {
    let batches = batches();
    let mut states = vec![Model::new()];
    for batch in &batches {
        let mut next = states.last().unwrap().clone();
        apply(&mut next, batch);
        states.push(next);
    }
    let mut crashes = 0;
    for effect in 1.. {
        let mut finished = false;
        for fault in 0..3 {
            let seed = effect * 10 + fault;
            let disk = SimDisk::new(seed);
            disk.die_after(effect);
            let mut acknowledged = 0;
            let run = || -> Result<(), SnapshotError> {
                let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES)?;
                for batch in &batches {
                    snapshot.commit(batch.clone())?;
                    acknowledged += 1;
                }
                Ok(())
            };
            let mut run = run;
            finished = run().is_ok() && !disk.is_dead();
            let fault = if fault == 0 { Fault::ProcessDeath } else { Fault::PowerCut { seed } };
            let disk = disk.revive(fault);
            let repeat = format!("effect {effect}, {fault:?}, acknowledged {acknowledged}");
            let mut snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES)
                .unwrap_or_else(|e| panic!("cannot open after {repeat}: {e}"));
            let found = all(&snapshot);
            let at = states.iter().position(|s| *s == found);
            let at = at.unwrap_or_else(|| panic!("a state that never was after {repeat}"));
            assert!(at >= acknowledged && at <= acknowledged + 1, "state {at} after {repeat}");
            assert!(snapshot.verify().unwrap(), "unsound after {repeat}");
            snapshot.commit([(b"more", Some(b"x"))]).unwrap();
            crashes += 1;
        }
        if finished {
            break;
        }
    }
    assert!(crashes > 100, "only {crashes} crashes were tried");
}

#[test]
fn after_a_failed_sync_every_call_gives_the_error() {
    let disk = SimDisk::new(1);
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    snapshot.commit([(b"a", Some(b"1"))]).unwrap();
    disk.fail_next_sync();
    assert!(matches!(snapshot.commit([(b"a", Some(b"2"))]), Err(SnapshotError::Io(_))));
    assert!(matches!(snapshot.get(b"a"), Err(SnapshotError::Io(_))));
    assert!(matches!(snapshot.range(b"a", b"b", 1), Err(SnapshotError::Io(_))));
    assert!(matches!(snapshot.commit([(b"a", Some(b"3"))]), Err(SnapshotError::Io(_))));
    drop(snapshot);
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    let found = snapshot.get(b"a").unwrap().unwrap();
    assert!(found == b"1" || found == b"2");
}

#[test]
fn a_block_that_the_disk_cannot_read_is_no_damage_wherever_it_is() {
    const BLOCK: u64 = 4096;
    let disk = SimDisk::new(1);
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    for round in 0..4u8 {
        snapshot.commit((0..200u64).map(|n| (n.to_be_bytes(), Some([round; 100])))).unwrap();
    }
    drop(snapshot);
    let size = disk.stat(PATH).unwrap().size;
    let is_io = |error: SnapshotError| assert!(matches!(error, SnapshotError::Io(_)), "{error}");
    let mut failed = [0; 2];
    for at in (0..size).step_by(BLOCK as usize) {
        let fails = || disk.fail_reads(PATH, at..at + BLOCK).unwrap();
        // While it is opened, and while it is open.
        fails();
        failed[0] += Snapshot::open(&disk, PATH, 0).map_err(is_io).is_err() as u32;
        disk.heal_all_reads();
        let snapshot = Snapshot::open(&disk, PATH, 0).unwrap();
        fails();
        failed[1] += snapshot.commit([(b"a", Some(b"1"))]).map_err(is_io).is_err() as u32;
        disk.heal_all_reads();
    }
    assert!(failed.iter().all(|failed| *failed > 1), "{failed:?}");
}

#[test]
fn a_newer_version_and_a_foreign_file_are_told_apart() {
    let disk = SimDisk::new(1);
    let file = disk.open(b"foreign", OpenHow::CreateNew { mode: 0o600 }).unwrap();
    file.write_at(&[7; 100_000], 0).unwrap();
    assert!(matches!(Snapshot::open(&disk, b"foreign", CACHE_BYTES), Err(SnapshotError::Damaged(_))));

    let (path, disk) = real("version");
    drop(Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap());
    let about = redb::TableDefinition::<&str, u32>::new("about");
    let db = redb::Database::open(path.join("state.redb")).unwrap();
    let write = db.begin_write().unwrap();
    write.open_table(about).unwrap().insert("version", 99).unwrap();
    write.commit().unwrap();
    drop(db);
    let error = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap_err();
    assert!(matches!(error, SnapshotError::Version { found: 99, .. }), "{error}");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_flipped_bit_in_a_value_is_told_and_not_handed_out() {
    let disk = SimDisk::new(1);
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    snapshot.commit([(b"key", Some(b"a value that can be found"))]).unwrap();
    drop(snapshot);
    let file = disk.open(PATH, OpenHow::Read).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().size as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let needle = b"a value that";
    let hits = (0..bytes.len() - needle.len()).filter(|&i| bytes[i..].starts_with(needle));
    for at in hits.collect::<Vec<_>>() {
        assert!(disk.flip(PATH, at as u64, 3).unwrap());
    }
    let snapshot = Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap();
    assert!(matches!(snapshot.get(b"key"), Err(SnapshotError::Damaged(_))));
}

#[test]
fn a_damaged_page_is_an_error_wherever_it_is_met() {
    const PAGE: usize = 4096;
    let disk = SimDisk::new(7);
    let rows = |n: u32| (0..n).map(|n| (format!("key {n:06}").into_bytes(), Some(vec![n as u8; 200])));
    Snapshot::open(&disk, PATH, CACHE_BYTES).unwrap().commit(rows(1000)).unwrap();
    let file = disk.open(PATH, OpenHow::Write).unwrap();
    let mut sound = vec![0; usize::try_from(file.stat().unwrap().size).unwrap()];
    file.read_at(&mut sound, 0).unwrap();
    let mut told = 0;
    let damages = (0..sound.len() / PAGE).flat_map(|page| [0x00, 0x02, 0x5a, 0xff].map(|byte| (page, byte)));
    for (n, (page, byte)) in damages.enumerate() {
        let path = format!("damaged-{n}").into_bytes();
        let mut damaged = sound.clone();
        damaged[page * PAGE..(page + 1) * PAGE].fill(byte);
        disk.open(&path, OpenHow::CreateNew { mode: 0o600 }).unwrap().write_at(&damaged, 0).unwrap();
        let used = || -> Result<(), SnapshotError> {
            let snapshot = Snapshot::open(&disk, &path, CACHE_BYTES)?;
            let one = snapshot.get(b"key 000500").map(drop);
            let all = snapshot.range(&[0], &[255], usize::MAX).map(drop);
            let more = snapshot.commit(rows(1)).and_then(|()| snapshot.get(b"key 000999").map(drop));
            one.and(all).and(more)
        };
        told += u32::from(used().is_err());
        disk.unlink(&path).unwrap();
    }
    assert!(told > 100, "{told} damages were told");
}

#[test]
fn a_commit_that_finds_no_space_is_made_when_there_is_some_and_readers_notice_nothing() {
    let disk = SimDisk::new(5);
    let snapshot = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    let row = |n: u32, value: u8| (n.to_be_bytes().to_vec(), Some(vec![value; 900]));
    snapshot.commit((0..500).map(|n| row(n, 1))).unwrap();
    let before = all(&snapshot);
    for left in [0, 4096, 20_000, 100_000, 300_000] {
        disk.set_space(Some(disk.used() + left));
        assert!(!snapshot.commit_if_space(&disk, (0..3000).map(|n| row(n, 2))).unwrap(), "{left}");
        assert_eq!(all(&snapshot), before);
        assert!(!snapshot.has_failed());
    }
    disk.set_space(None);
    assert!(snapshot.commit_if_space(&disk, (0..3000).map(|n| row(n, 2))).unwrap());
    assert_eq!(all(&snapshot).len(), 3000);
    let mut snapshot = snapshot;
    assert!(snapshot.verify().unwrap());
    drop(snapshot);
    let snapshot = Snapshot::open(&disk.revive(Fault::PowerCut { seed: 1 }), b"state.redb", 1 << 20).unwrap();
    assert_eq!(all(&snapshot).len(), 3000);
}

#[test]
fn a_sync_that_finds_no_space_is_a_failed_sync() {
    let disk = SimDisk::new(5);
    let snapshot = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    disk.fail_next_sync();
    assert!(snapshot.commit_if_space(&disk, [(b"a", Some(b"b"))]).is_err());
    assert!(snapshot.has_failed());
}

#[test]
fn a_pinned_commit_is_read_on_while_later_ones_are_made_and_given_up_when_the_file_is_opened_again() {
    let disk = SimDisk::new(5);
    let snapshot = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    let row = |n: u32, value: u8| (n.to_be_bytes().to_vec(), Some(vec![value; 900]));
    snapshot.commit((0..500).map(|n| row(n, 1))).unwrap();
    let (before, pin) = (all(&snapshot), snapshot.pin().unwrap());
    snapshot.commit((200..900).map(|n| row(n, 2))).unwrap();
    let (mut read, mut from) = (Model::new(), Vec::new());
    loop {
        let page = pin.range(&from, &[255], 10_000).unwrap().expect("it is pinned");
        let Some((last, _)) = page.last() else { break };
        assert!(page.len() < 20, "{} rows at once", page.len());
        from = [last, &[0][..]].concat();
        read.extend(page);
    }
    assert_eq!(read, before);
    let later = snapshot.pin().unwrap();
    disk.set_space(Some(disk.used()));
    assert!(!snapshot.commit_if_space(&disk, (0..9_000).map(|n| row(n, 3))).unwrap());
    disk.set_space(None);
    for pin in [&pin, &later] {
        assert_eq!(pin.range(&[0], &[255], 10_000).unwrap(), None, "two databases of one file destroy it");
    }
    let last = snapshot.pin().unwrap();
    assert_eq!(last.range(&899_u32.to_be_bytes(), &[255], 1).unwrap().unwrap().len(), 1);
    snapshot.close();
    assert_eq!(last.range(&[0], &[255], 10_000).unwrap(), None);
    let mut again = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    assert!(again.verify().unwrap());
}
