//! What a log keeps behind its owner's checkpoint, and for how long; the epochs that it tells; and where a cut ends.

mod common;

use std::sync::Arc;

use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_log::{Config, Cursor, Damage, Log, LogError, Opened, Position};

use common::{CONFIG, IDENTITY, START, sim, sync, write};

const SEGMENT: u64 = CONFIG.segment_bytes;
/// As much as the tests ever write.
const KEEPING: Config = Config { keep_bytes: 100 * SEGMENT, ..CONFIG };
/// Two of them fill a segment.
const HALF: [u8; 1900] = [7; 1900];

fn create(disk: &Arc<SimDisk>, config: Config) -> Log<SimDisk> {
    Log::create(Arc::clone(disk), b"log", config, IDENTITY, START).unwrap()
}

fn open(
    disk: &Arc<SimDisk>,
    config: Config,
    checkpoint: Position,
) -> Result<(Log<SimDisk>, Opened), LogError> {
    Log::open(Arc::clone(disk), b"log", config, IDENTITY, checkpoint, 0, &mut |_| Ok(()))
}

/// Appends records of these epochs, half a segment each, and syncs each; returns all positions, with the one before the first.
fn fill(log: &mut Log<SimDisk>, epochs: &[u32]) -> Vec<Position> {
    let mut all = vec![log.last()];
    for epoch in epochs {
        all.push(log.append(*epoch, &[&HALF]).unwrap());
        sync(log);
    }
    all
}

fn release(log: &mut Log<SimDisk>, upto: u64) {
    if let Some(removal) = log.release(upto) {
        log.removed(removal.perform()).unwrap();
    }
}

/// Positions of all records behind this one.
fn read(log: &Log<SimDisk>, after: Position) -> Result<Vec<Position>, LogError> {
    let (mut cursor, mut found) = (Cursor::after(after), Vec::new());
    while let Some(work) = log.take_read(&cursor, 10_000)? {
        let records = log.read(work.perform())?;
        found.extend(records.iter().map(|record| record.position));
        cursor = records.into_cursor();
    }
    Ok(found)
}

fn segments(disk: &Arc<SimDisk>) -> usize {
    disk.list(b"log").unwrap().iter().filter(|(name, _)| name.ends_with(b".log")).count()
}

fn path(first_seq: u64) -> Vec<u8> {
    format!("log/{first_seq:016x}.log").into_bytes()
}

#[test]
fn what_somebody_is_about_to_read_is_held_beyond_the_bytes_that_are_kept() {
    let disk = sim();
    let mut log = create(&disk, Config { keep_bytes: 2 * SEGMENT, ..CONFIG });
    let all = fill(&mut log, &[1; 20]);
    log.hold(5);
    release(&mut log, 20);
    assert_eq!(read(&log, all[4]).unwrap(), all[5..], "from the one that is held on");
    assert!(read(&log, all[1]).is_err(), "those before it go");
    log.hold(u64::MAX);
    release(&mut log, 20);
    assert!(read(&log, all[4]).is_err() && read(&log, all[18]).is_ok());
}

#[test]
fn what_is_kept_outlives_a_start() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let all = fill(&mut log, &[1; 12]);
    assert!(log.release(12).is_none(), "all of it is kept");
    assert_eq!(log.first_seq(), 1);
    drop(log);
    for checkpoint in [all[12], all[7], all[12]] {
        let (log, opened) = open(&disk, KEEPING, checkpoint).unwrap();
        assert_eq!((log.first_seq(), opened.base), (1, START));
        assert_eq!(opened.records, 12 - checkpoint.seq, "the owner gets what it does not have");
        assert_eq!(read(&log, START).unwrap(), all[1..]);
        assert_eq!(read(&log, all[5]).unwrap(), all[6..]);
    }
    // Without other copies nothing of it is of use.
    let (log, opened) = open(&disk, CONFIG, all[12]).unwrap();
    assert_eq!((log.first_seq(), opened.base, segments(&disk)), (11, all[10], 1));
}

#[test]
fn no_more_is_kept_than_there_are_bytes_for() {
    let config = Config { keep_bytes: 3 * SEGMENT, ..CONFIG };
    let disk = sim();
    let mut log = create(&disk, config);
    let all = fill(&mut log, &[1; 12]);
    release(&mut log, 4);
    assert_eq!(log.first_seq(), 1, "two segments are kept, and the owner needs four");
    release(&mut log, 12);
    assert_eq!((log.first_seq(), segments(&disk)), (5, 4));
    assert!(matches!(read(&log, START), Err(LogError::Released { first: 5 })));
    assert_eq!(read(&log, all[4]).unwrap(), all[5..]);
    drop(log);
    let less = Config { keep_bytes: 2 * SEGMENT + SEGMENT / 2, ..CONFIG };
    let (log, opened) = open(&disk, less, all[12]).unwrap();
    assert_eq!((log.first_seq(), segments(&disk), opened.base), (7, 3, all[6]));
}

#[test]
fn what_nobody_wants_is_not_kept() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let all = fill(&mut log, &[1; 12]);
    log.keep(6);
    release(&mut log, 10);
    assert_eq!((log.first_seq(), segments(&disk)), (5, 4), "record 6 is in the third segment");
    log.keep(7);
    release(&mut log, 10);
    assert_eq!(log.first_seq(), 7);
    // A start knows of no member: it keeps what is there.
    drop(log);
    let (mut log, _) = open(&disk, KEEPING, all[10]).unwrap();
    assert_eq!(log.first_seq(), 7);
    log.keep(u64::MAX);
    release(&mut log, 0);
    assert_eq!((log.first_seq(), segments(&disk)), (11, 1), "what the owner needs stays");
}

#[test]
fn segments_of_other_sizes_are_counted_as_they_are() {
    let disk = sim();
    let mut log = create(&disk, Config { segment_bytes: 3 * SEGMENT, ..KEEPING });
    let mut all = fill(&mut log, &[1; 6]);
    drop(log);
    let (mut log, _) = open(&disk, KEEPING, all[6]).unwrap();
    all.extend(&fill(&mut log, &[1; 4])[1..]);
    release(&mut log, 10);
    drop(log);
    let keeps = |keep_bytes| {
        let (log, _) = open(&disk, Config { keep_bytes, ..CONFIG }, all[10]).unwrap();
        log.first_seq()
    };
    assert_eq!(keeps(4 * SEGMENT), 1);
    assert_eq!(keeps(4 * SEGMENT - 1), 7);
}

#[test]
fn a_segment_that_is_kept_becomes_the_next_one_on_a_full_disk() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    fill(&mut log, &[1; 6]);
    release(&mut log, 4);
    disk.set_space(Some(disk.used()));
    for first in [3, 5] {
        // The space is asked for first: what is kept goes only if there is none.
        let before = log.first_seq();
        let preparation = log.preparation().unwrap();
        log.prepared(preparation.perform()).unwrap();
        assert_eq!((log.has_spare(), log.first_seq()), (false, before));
        let preparation = log.preparation().unwrap();
        assert_eq!(log.first_seq(), first);
        log.prepared(preparation.perform()).unwrap();
        assert!(log.has_spare());
        fill(&mut log, &[1, 1]);
        assert!(!log.has_spare());
    }
    // The owner needs all that is left.
    let preparation = log.preparation().unwrap();
    assert!(log.prepared(preparation.perform()).is_err());
    assert_eq!(log.first_seq(), 5);
}

#[test]
fn records_take_the_space_of_what_is_kept() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let mut all = fill(&mut log, &[1; 6]);
    release(&mut log, 4);
    let under_way = log.take_read(&Cursor::after(START), 1000).unwrap().unwrap().perform();
    disk.set_space(Some(disk.used()));
    for first in [3, 5] {
        for _ in 0..2 {
            all.push(log.append(1, &[&HALF]).unwrap());
        }
        let batch = log.take_batch().unwrap().unwrap();
        let before = log.written_upto();
        assert_eq!(log.written(batch.perform()).unwrap(), before);
        assert!(!log.is_stuck(), "there is something to give up");
        write(&mut log);
        assert_eq!((log.written_upto(), log.first_seq()), (all[all.len() - 1].seq, first));
    }
    assert!(matches!(log.read(under_way), Err(LogError::Released { first: 5 })));
    sync(&mut log);
    log.append(1, &[&HALF]).unwrap();
    let batch = log.take_batch().unwrap().unwrap();
    log.written(batch.perform()).unwrap();
    assert!(log.is_stuck(), "the owner needs all that is left");
    assert!(log.take_batch().unwrap().is_none());
    drop(log);
    let (log, _) = open(&disk, KEEPING, all[4]).unwrap();
    assert_eq!(read(&log, all[4]).unwrap(), all[5..]);
}

#[test]
fn a_death_on_a_full_disk_leaves_everything_that_was_told() {
    for seed in 0..12 {
        for death in 1.. {
            let disk = Arc::new(SimDisk::new(seed + death * 100));
            let mut log = create(&disk, KEEPING);
            let mut all = fill(&mut log, &[1, 1, 2, 2, 2, 3, 3]);
            release(&mut log, 6);
            disk.set_space(Some(disk.used()));
            disk.die_after(death);
            let mut written = 7;
            let full = (|| {
                for epoch in [3, 4, 4, 5] {
                    // Once a record begins its segment by itself, once in a spare that was made.
                    for _ in 0..epoch % 2 * 2 {
                        if let Some(preparation) = log.preparation() {
                            log.prepared(preparation.perform())?;
                        }
                    }
                    all.push(log.append(epoch, &[&HALF])?);
                    while let Some(batch) = log.take_batch()? {
                        written = log.written(batch.perform())?;
                    }
                }
                Ok::<(), LogError>(())
            })();
            let first = log.first_seq();
            drop(log);
            let power = seed % 2 == 0;
            let fault = if power { Fault::PowerCut { seed } } else { Fault::ProcessDeath };
            let disk = Arc::new(disk.revive(fault));
            disk.set_space(None);
            let (log, opened) = open(&disk, KEEPING, all[6]).unwrap();
            assert!(opened.last.seq >= if power { 7 } else { written });
            assert!(log.first_seq() <= first, "from {first} on, {}", log.first_seq());
            assert_eq!(
                read(&log, opened.base).unwrap(),
                all[log.first_seq() as usize..][..opened.last.seq as usize + 1 - log.first_seq() as usize]
            );
            if full.is_ok() {
                assert_eq!((first, written), (5, 11), "two segments were given up");
                break;
            }
        }
    }
}

/// The last record of each epoch behind the first of these positions.
fn ends(all: &[Position]) -> Vec<Position> {
    let mut ends: Vec<Position> = Vec::new();
    for position in &all[1..] {
        ends.retain(|end| end.epoch != position.epoch);
        ends.push(*position);
    }
    ends
}

#[test]
fn the_epochs_of_all_that_can_be_read_are_told() {
    // One within a segment, one at its beginning, several in one, gaps between their numbers.
    for epochs in
        [&[1, 1, 1, 1, 1, 1][..], &[1, 2, 2, 2, 3, 3, 7, 8, 8, 8], &[5, 5, 6, 6, 9, 9], &[1, 2, 3, 4, 5, 6]]
    {
        let disk = sim();
        let mut log = create(&disk, KEEPING);
        let all = fill(&mut log, epochs);
        release(&mut log, all.len() as u64 - 1);
        drop(log);
        for checkpoint in &all {
            let (_, opened) = open(&disk, KEEPING, *checkpoint).unwrap();
            assert_eq!((opened.base, opened.ends), (START, ends(&all)), "{epochs:?} from {checkpoint:?} on");
        }
        // As far as it is kept.
        for n in (0..all.len() as u64 / 2).rev() {
            let config = Config { keep_bytes: n * SEGMENT, ..CONFIG };
            let (log, opened) = open(&disk, config, all[all.len() - 1]).unwrap();
            let base = log.first_seq() as usize - 1;
            assert_eq!((opened.base, opened.ends), (all[base], ends(&all[base..])), "{epochs:?} in {n}");
            assert_eq!(read(&log, all[base]).unwrap(), all[base + 1..]);
        }
    }
}

#[test]
fn a_log_without_records_tells_where_it_begins() {
    let disk = sim();
    let base = Position { epoch: 4, seq: 100 };
    drop(Log::create(Arc::clone(&disk), b"log", KEEPING, IDENTITY, base).unwrap());
    let (log, opened) = open(&disk, KEEPING, base).unwrap();
    assert_eq!((opened.base, opened.ends, log.first_seq()), (base, vec![], 101));
}

#[test]
fn of_many_epochs_the_last_are_told() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let mut all = vec![START];
    for epoch in 1..=300 {
        all.push(log.append(epoch, &[b"a"]).unwrap());
        all.push(log.append(epoch, &[b"b"]).unwrap());
        write(&mut log);
    }
    sync(&mut log);
    release(&mut log, 600);
    drop(log);
    for checkpoint in [all[0], all[300], all[600]] {
        let (log, opened) = open(&disk, KEEPING, checkpoint).unwrap();
        assert_eq!((opened.base, opened.ends.len(), opened.ends[0]), (all[88], 256, all[90]));
        assert_eq!(opened.ends, ends(&all[88..]));
        assert_eq!(log.first_seq(), 1, "older records can be read all the same");
    }
}

#[test]
fn nothing_is_kept_behind_a_segment_that_cannot_be_read() {
    type Break = fn(&Arc<SimDisk>);
    let gone: Break = |disk| disk.unlink(&path(5)).unwrap();
    let headless: Break = |disk| assert!(disk.flip(&path(5), 20, 1).unwrap());
    let unreadable: Break = |disk| disk.fail_reads(&path(5), 0..64).unwrap();
    let torn: Break = |disk| assert!(disk.flip(&path(5), 100, 1).unwrap());
    let foreign: Break = |disk| {
        let (from, to) =
            (disk.open(&path(3), OpenHow::Read).unwrap(), disk.open(&path(5), OpenHow::Write).unwrap());
        assert_eq!(from.copy_to(0, &to, 0, SEGMENT).unwrap(), SEGMENT);
    };
    for harm in [gone, headless, unreadable, torn, foreign] {
        let disk = sim();
        let mut log = create(&disk, KEEPING);
        // An epoch ends in the third segment, so that its records are looked at.
        let all = fill(&mut log, &[1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        drop(log);
        harm(&disk);
        let (log, opened) = open(&disk, KEEPING, all[10]).unwrap();
        disk.heal_all_reads();
        assert_eq!((log.first_seq(), opened.base, segments(&disk)), (7, all[6], 2));
        assert_eq!(read(&log, all[6]).unwrap(), all[7..]);
        // Where it is needed it is damage, as before.
        assert!(matches!(
            open(&disk, KEEPING, all[4]).err(),
            Some(LogError::Damaged(Damage::NoSegment { seq: 5 }))
        ));
    }
}

#[test]
fn a_record_that_is_kept_and_cannot_be_read_is_told_to_its_reader() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let all = fill(&mut log, &[1; 6]);
    drop(log);
    disk.flip(&path(3), 100, 1).unwrap();
    // Its epoch is known from the headers, so nobody has looked at it.
    let (log, _) = open(&disk, KEEPING, all[6]).unwrap();
    assert_eq!(log.first_seq(), 1);
    assert!(matches!(read(&log, all[2]), Err(LogError::Damaged(Damage::Hole { first: 3, .. }))));
    assert_eq!(read(&log, all[4]).unwrap(), all[5..]);
}

#[test]
fn a_cut_leaves_what_is_kept_and_goes_no_further_than_the_checkpoint() {
    let epochs = [1, 1, 2, 2, 2, 3, 3, 3];
    for (checkpoint, to) in [(0, 3), (3, 3), (4, 4), (4, 6), (5, 8), (6, 6)] {
        let disk = sim();
        let mut log = create(&disk, KEEPING);
        let all = fill(&mut log, &epochs);
        release(&mut log, checkpoint);
        drop(log);
        let cut =
            |to| Log::cut_back(Arc::clone(&disk), b"log", KEEPING, IDENTITY, all[checkpoint as usize], to);
        for below in &all[..checkpoint as usize] {
            let error = cut(*below).unwrap_err();
            let want = Damage::CutBelow { to: *below, checkpoint: all[checkpoint as usize] };
            assert!(matches!(error, LogError::Damaged(damage) if damage == want));
        }
        assert_eq!(
            open(&disk, KEEPING, all[checkpoint as usize]).unwrap().1.last,
            all[8],
            "nothing was changed"
        );
        cut(all[to]).unwrap();
        let mut all = all[..=to].to_vec();
        let (mut log, opened) = open(&disk, KEEPING, all[checkpoint as usize]).unwrap();
        assert_eq!((log.first_seq(), opened.base, opened.ends), (1, START, ends(&all)));
        assert_eq!(read(&log, START).unwrap(), all[1..]);
        all.extend(&fill(&mut log, &[5, 5, 6])[1..]);
        drop(log);
        let (log, opened) = open(&disk, KEEPING, all[checkpoint as usize]).unwrap();
        assert_eq!((log.first_seq(), opened.base, opened.ends), (1, START, ends(&all)));
        assert_eq!(read(&log, START).unwrap(), all[1..]);
    }
}

#[test]
fn a_cut_below_the_checkpoint_that_was_begun_is_refused_and_changes_nothing() {
    let disk = sim();
    let mut log = create(&disk, KEEPING);
    let all = fill(&mut log, &[1; 8]);
    drop(log);
    // A snapshot of later takes the place of the one that the cut knew.
    disk.die_after(5);
    assert!(Log::cut_back(Arc::clone(&disk), b"log", KEEPING, IDENTITY, START, all[3]).is_err());
    let disk = Arc::new(disk.revive(Fault::ProcessDeath));
    assert!(disk.stat(b"log/cut").is_ok(), "the cut was begun");
    let before = disk.effects();
    let error = open(&disk, KEEPING, all[4]).err().unwrap();
    let want = Damage::CutBelow { to: all[3], checkpoint: all[4] };
    assert!(matches!(error, LogError::Damaged(damage) if damage == want));
    assert_eq!(disk.effects(), before);
    assert_eq!(open(&disk, KEEPING, all[3]).unwrap().1.last, all[3]);
}
