//! Reading a log that is open: order, bounds, what is released or cut off, and damage.

mod common;

use std::sync::Arc;

use atoll_disk::Disk;
use atoll_disk::real::RealDisk;
use atoll_disk::sim::SimDisk;
use atoll_log::{Cursor, Damage, HEADER_BYTES, Log, LogError, Position, RECORD_HEADER_BYTES, Records};

use common::{CONFIG, IDENTITY, START, create, put, sim, sync, write};

const FIRST: &[u8] = b"log/0000000000000001.log";

/// One read; none if there is nothing to read.
fn step<D: Disk>(log: &Log<D>, cursor: &Cursor, bytes_max: usize) -> Result<Option<Records>, LogError> {
    log.take_read(cursor, bytes_max)?.map(|work| log.read(work.perform())).transpose()
}

/// Reads on to the end of what is written.
fn read_on<D: Disk>(
    log: &Log<D>,
    cursor: &mut Cursor,
    bytes_max: usize,
    read: &mut Vec<(Position, Vec<u8>)>,
) -> Result<(), LogError> {
    while let Some(records) = step(log, cursor, bytes_max)? {
        let framed: usize =
            records.iter().map(|r| (RECORD_HEADER_BYTES + r.payload.len()).next_multiple_of(8)).sum();
        assert!(
            records.iter().count() < 2 || framed <= bytes_max + 7,
            "{framed} bytes in one read of {bytes_max}"
        );
        for record in records.iter() {
            assert_eq!(record.predecessor, read.last().map_or(cursor.position(), |(position, _)| *position));
            read.push((record.position, record.payload.to_vec()));
        }
        *cursor = records.into_cursor();
    }
    Ok(())
}

fn follows_while_it_grows<D: Disk>(disk: Arc<D>, bytes_max: usize) {
    let mut log = create(&disk);
    let (mut want, mut read, mut cursor) = (Vec::new(), Vec::new(), Cursor::after(START));
    for n in 0..120u8 {
        let payload = vec![n; usize::from(n) * 16];
        want.push((put(&mut log, &payload), payload));
        if n % 5 == 0 {
            write(&mut log);
        }
        if n % 17 == 0 {
            read_on(&log, &mut cursor, bytes_max, &mut read).unwrap();
            let written = log.written_upto() as usize;
            assert_eq!(read, want[..written], "what is written, and no more");
        }
    }
    write(&mut log);
    read_on(&log, &mut cursor, bytes_max, &mut read).unwrap();
    assert_eq!(read, want);
    assert_eq!(cursor.position(), log.last());
    // Another reader begins in the midst of a segment.
    let (mut cursor, mut read) = (Cursor::after(want[70].0), vec![want[70].clone()]);
    read_on(&log, &mut cursor, bytes_max, &mut read).unwrap();
    assert_eq!(read, want[70..]);
}

#[test]
fn a_reader_gets_each_written_record_once_and_in_order_over_many_segments() {
    for bytes_max in [0, 1, 100, 700, 4096, 1 << 20] {
        follows_while_it_grows(sim(), bytes_max);
    }
}

#[test]
fn a_reader_goes_on_behind_any_record_of_a_read_at_once() {
    let mut log = create(&sim());
    let all: Vec<Position> = (0..20u8).map(|n| put(&mut log, &[n; 40])).collect();
    write(&mut log);
    let records = step(&log, &Cursor::after(START), 1 << 20).unwrap().unwrap();
    for pair in all.windows(2) {
        let cursor = records.cursor_behind(pair[0]).unwrap();
        assert_eq!(cursor.position(), pair[0]);
        let next = step(&log, &cursor, 1).unwrap().unwrap();
        assert_eq!(next.iter().map(|record| record.position).collect::<Vec<_>>(), [pair[1]]);
    }
    assert!(records.cursor_behind(START).is_none());
}

#[test]
fn a_reader_of_a_real_disk_gets_the_same() {
    let path = std::env::temp_dir().join(format!("atoll-log-reading-{}", std::process::id()));
    follows_while_it_grows(Arc::new(RealDisk::create(&path).unwrap()), 700);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_record_that_is_longer_than_the_bound_is_read_alone() {
    let mut log = create(&sim());
    put(&mut log, &[1; 2000]);
    put(&mut log, &[2; 10]);
    write(&mut log);
    let records = step(&log, &Cursor::after(START), 64).unwrap().unwrap();
    assert_eq!(records.iter().map(|r| r.payload.len()).collect::<Vec<_>>(), [2000]);
}

#[test]
fn what_is_not_written_is_not_read() {
    let mut log = create(&sim());
    let cursor = Cursor::after(START);
    assert!(step(&log, &cursor, 4096).unwrap().is_none());
    put(&mut log, b"a");
    assert!(step(&log, &cursor, 4096).unwrap().is_none());
    write(&mut log);
    let second = put(&mut log, b"b");
    let records = step(&log, &cursor, 4096).unwrap().unwrap();
    assert_eq!(records.iter().map(|r| r.payload.to_vec()).collect::<Vec<_>>(), [b"a"]);
    assert!(step(&log, &records.into_cursor(), 4096).unwrap().is_none());
    // A copy may have been sent what is not written here yet.
    assert!(step(&log, &Cursor::after(second), 4096).unwrap().is_none());
}

#[test]
fn a_reader_of_what_was_released_is_told_so_also_if_that_happens_while_it_reads() {
    let mut log = create(&sim());
    let all: Vec<_> = (0..9).map(|n| put(&mut log, &[n; 1000])).collect();
    sync(&mut log);
    let under_way = log.take_read(&Cursor::after(START), 4096).unwrap().unwrap();
    let removal = log.release(9).unwrap();
    log.removed(removal.perform()).unwrap();
    // The space of the first segment becomes the spare.
    let preparation = log.preparation().unwrap();
    log.prepared(preparation.perform()).unwrap();
    assert!(matches!(log.read(under_way.perform()), Err(LogError::Released { first: 7 })));
    for seq in [0, 1, 5] {
        let after = if seq == 0 { START } else { all[seq - 1] };
        assert!(matches!(step(&log, &Cursor::after(after), 4096), Err(LogError::Released { first: 7 })));
    }
    let (mut cursor, mut read) = (Cursor::after(all[5]), Vec::new());
    read_on(&log, &mut cursor, 4096, &mut read).unwrap();
    assert_eq!(read.iter().map(|(position, _)| *position).collect::<Vec<_>>(), all[6..]);
}

#[test]
fn a_reader_of_what_was_cut_off_is_told_what_is_there_instead() {
    let disk = sim();
    let mut log = create(&disk);
    let mut all: Vec<_> = (0..6).map(|n| put(&mut log, &[n; 1000])).collect();
    sync(&mut log);
    let mut cursor = Cursor::after(all[3]);
    let mut read = Vec::new();
    read_on(&log, &mut cursor, 4096, &mut read).unwrap();
    drop(log);
    Log::cut_back(Arc::clone(&disk), b"log", CONFIG, IDENTITY, START, all[3]).unwrap();
    let (mut log, _) =
        Log::open(Arc::clone(&disk), b"log", CONFIG, IDENTITY, START, 0, &mut |_| Ok(())).unwrap();
    let mismatch = |log: &Log<SimDisk>, after| match step(log, &Cursor::after(after), 4096) {
        Err(LogError::Mismatch { last }) => last,
        other => panic!("{other:?}"),
    };
    assert_eq!(mismatch(&log, all[5]), all[3], "nothing is there instead");
    let cut = all.split_off(4);
    for n in 10..16 {
        all.push(log.append(2, &[&[n; 700]]).unwrap());
    }
    write(&mut log);
    // The last of a segment, and one in its midst; what the reader remembers of its place is of no use any more.
    assert_eq!(mismatch(&log, cut[0]), all[4]);
    assert_eq!(mismatch(&log, cut[1]), all[5]);
    assert!(matches!(step(&log, &cursor, 4096), Err(LogError::Mismatch { last }) if last == all[5]));
    let (mut cursor, mut read) = (Cursor::after(all[3]), Vec::new());
    read_on(&log, &mut cursor, 300, &mut read).unwrap();
    assert_eq!(read.iter().map(|(position, _)| *position).collect::<Vec<_>>(), all[4..]);
}

#[test]
fn a_position_of_another_history_is_refused_wherever_it_stands() {
    let mut log = create(&sim());
    let all: Vec<_> = (0..5).map(|n| put(&mut log, &[n; 1000])).collect();
    write(&mut log);
    for (seq, position) in (1..).zip(&all) {
        let other = Position { epoch: 9, ..*position };
        let mut cursor = Cursor::after(other);
        let told = loop {
            match step(&log, &cursor, 100) {
                Ok(records) => {
                    let records = records.expect("the end is not reached");
                    assert_eq!(records.iter().count(), 0, "nothing follows record {seq} of another history");
                    cursor = records.into_cursor();
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(told, LogError::Mismatch { last } if last == *position), "{told}");
    }
}

#[test]
fn a_written_record_that_cannot_be_read_is_damage_and_the_log_goes_on() {
    let disk = sim();
    let mut log = create(&disk);
    (0..4).for_each(|n| _ = put(&mut log, &[n; 100]));
    sync(&mut log);
    let third = (HEADER_BYTES + 2 * (RECORD_HEADER_BYTES + 104)) as u64;
    disk.flip(FIRST, third + 60, 0).unwrap();
    let (mut cursor, mut read) = (Cursor::after(START), Vec::new());
    let error = read_on(&log, &mut cursor, 4096, &mut read).unwrap_err();
    assert!(matches!(error, LogError::Damaged(Damage::Hole { first: 3, behind: 4 })), "{error}");
    assert_eq!(read.len(), 2);
    put(&mut log, b"on");
    sync(&mut log);
    assert_eq!(log.synced_upto(), 5);
}
