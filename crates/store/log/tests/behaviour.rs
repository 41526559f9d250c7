//! What the log promises, one behaviour at a time, on simulated and real disks.

mod common;

use std::sync::Arc;

use atoll_disk::real::RealDisk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_log::{
    Config, Damage, HEADER_BYTES, Identity, Log, LogError, Opened, Position, RECORD_HEADER_BYTES,
};

use common::{CONFIG, IDENTITY, START, create, put, sim, sync, write};

fn prepare<D: Disk>(log: &mut Log<D>) {
    let preparation = log.preparation().unwrap();
    log.prepared(preparation.perform()).unwrap();
}

type Found = (Opened, Vec<(Position, Vec<u8>)>);

fn open_from<D: Disk>(disk: &Arc<D>, checkpoint: Position, must: u64) -> Result<(Log<D>, Found), LogError> {
    let mut found = Vec::new();
    let (log, opened) =
        Log::open(Arc::clone(disk), b"log", CONFIG, IDENTITY, checkpoint, must, &mut |record| {
            found.push((record.position, record.payload.to_vec()));
            Ok(())
        })?;
    Ok((log, (opened, found)))
}

fn open<D: Disk>(disk: &Arc<D>) -> (Log<D>, Found) {
    open_from(disk, START, 0).unwrap()
}

#[track_caller]
fn damage<T>(result: Result<T, LogError>) -> Damage {
    match result.err() {
        Some(LogError::Damaged(damage)) => damage,
        other => panic!("not damaged: {other:?}"),
    }
}

/// Offsets of `n` records of 100 bytes in the first segment.
fn offset_of(nth: usize) -> u64 {
    (HEADER_BYTES + nth * (RECORD_HEADER_BYTES + 104)) as u64
}

const FIRST: &[u8] = b"log/0000000000000001.log";

fn a_log_comes_back<D: Disk>(disk: Arc<D>) {
    let mut log = create(&disk);
    let mut want = Vec::new();
    for n in 0..100u8 {
        if n % 10 == 3 && !log.has_spare() {
            log.preparation().map(|p| log.prepared(p.perform()));
        }
        let payload = vec![n; usize::from(n) * 17];
        want.push((
            log.append(2, &[&payload[..1.min(payload.len())], b"", &payload[1.min(payload.len())..]])
                .unwrap(),
            payload,
        ));
        if n % 7 == 0 {
            write(&mut log);
        }
        if n % 20 == 0 {
            sync(&mut log);
        }
    }
    write(&mut log);
    drop(log);
    let (mut log, (opened, found)) = open(&disk);
    assert_eq!(found, want);
    let (last, ends) = (want[99].0, vec![want[99].0]);
    let want_opened =
        Opened { last, records: 100, torn_bytes: 0, clean: true, whole: false, base: START, ends };
    assert_eq!(opened, want_opened);
    let removal = log.release(50).unwrap();
    log.removed(removal.perform()).unwrap();
    assert!((2..=51).contains(&log.first_seq()));
    prepare(&mut log);
    let next = log.append(3, &[b"next"]).unwrap();
    assert_eq!(next, Position { epoch: 3, seq: 101 });
    sync(&mut log);
    drop(log);
    let (log, (_, found)) = open_from(&disk, want[49].0, 101).unwrap();
    assert_eq!((&found[..50], &found[50]), (&want[50..], &(next, b"next".to_vec())));
    assert_eq!(log.last(), next);
    assert_eq!(damage(open_from(&disk, START, 0)), Damage::NoSegment { seq: 1 });
    assert!(matches!(Log::create(disk, b"log", CONFIG, IDENTITY, START).err(), Some(LogError::Exists)));
}

#[test]
fn a_log_comes_back_on_a_simulated_disk() {
    a_log_comes_back(sim());
}

#[test]
fn a_log_comes_back_on_a_real_disk() {
    let path = std::env::temp_dir().join(format!("atoll-log-{}", std::process::id()));
    a_log_comes_back(Arc::new(RealDisk::create(&path).unwrap()));
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn appending_makes_no_system_call_and_a_batch_is_one_write() {
    let disk = sim();
    let mut log = create(&disk);
    let before = disk.effects();
    for n in 0..10 {
        put(&mut log, &[n; 100]);
    }
    assert_eq!(disk.effects(), before);
    let batch = log.take_batch().unwrap().unwrap();
    assert_eq!((batch.last().seq, batch.bytes()), (10, 10 * (RECORD_HEADER_BYTES + 104)));
    assert_eq!((log.written_upto(), log.last().seq), (0, 10));
    log.written(batch.perform()).unwrap();
    assert_eq!(disk.effects(), before + 1);
    assert_eq!((log.written_upto(), log.synced_upto()), (10, 0));
    let sync = log.take_sync().unwrap().unwrap();
    log.synced(sync.perform()).unwrap();
    assert_eq!((disk.effects(), log.synced_upto()), (before + 2, 10));
    assert!(log.take_batch().unwrap().is_none());
    assert!(log.take_sync().unwrap().is_none());
}

#[test]
fn a_page_is_begun_with_a_whole_write() {
    const PAGE: u64 = 4096;
    let config = Config { segment_bytes: 4 * PAGE, ..CONFIG };
    let mut log = Log::create(sim(), b"log", config, IDENTITY, START).unwrap();
    let mut written = Vec::new();
    let mut write = |log: &mut Log<SimDisk>, payload: &[u8]| {
        let before = log.tail_room();
        log.append(1, &[payload]).unwrap();
        let batch = log.take_batch().unwrap().unwrap();
        let end = config.segment_bytes - log.tail_room();
        let from = config.segment_bytes - before;
        written.push((from, end, from + batch.bytes() as u64));
        log.written(batch.perform()).unwrap();
    };
    for payload in [1900, 100, 1900, 900, 1900].map(|n| vec![7; n]) {
        write(&mut log, &payload);
    }
    for (from, end, stop) in written {
        let begins = from % PAGE == 0 || from / PAGE < end / PAGE;
        assert_eq!(stop, if begins { end.next_multiple_of(PAGE) } else { end }, "from {from} to {end}");
    }
}

#[test]
fn records_go_on_being_appended_while_a_batch_and_a_sync_are_under_way() {
    let disk = sim();
    let mut log = create(&disk);
    put(&mut log, b"a");
    write(&mut log);
    let syncing = log.take_sync().unwrap().unwrap();
    put(&mut log, b"b");
    let batch = log.take_batch().unwrap().unwrap();
    put(&mut log, b"c");
    log.written(batch.perform()).unwrap();
    assert_eq!(syncing.upto(), 1);
    assert_eq!(log.synced(syncing.perform()).unwrap(), 1);
    assert_eq!((log.synced_upto(), log.written_upto(), log.last().seq), (1, 2, 3));
    sync(&mut log);
    assert_eq!(log.synced_upto(), 3);
}

#[test]
fn a_torn_tail_is_cut_and_the_log_goes_on_there() {
    let disk = sim();
    let mut log = create(&disk);
    for n in 1..=6 {
        put(&mut log, &[n; 100]);
        if n == 2 {
            sync(&mut log);
        }
    }
    write(&mut log);
    disk.flip(FIRST, offset_of(3) + 60, 0).unwrap();
    let (mut log, (opened, found)) = open(&disk);
    assert_eq!((found.len(), opened.last.seq, opened.clean), (3, 3, false));
    assert_eq!(opened.torn_bytes, offset_of(6) - offset_of(3) - 4);
    log.append(2, &[b"other"]).unwrap();
    write(&mut log);
    let (_, (opened, found)) = open(&disk);
    assert_eq!((found.len(), opened.clean, opened.torn_bytes), (4, true, 0));
    assert_eq!(found[3].1, b"other");
}

#[test]
fn a_synced_record_that_is_unreadable_is_damage_and_nothing_is_changed() {
    let disk = sim();
    let mut log = create(&disk);
    for n in 1..=6 {
        put(&mut log, &[n; 100]);
        if n == 4 {
            sync(&mut log);
        }
    }
    write(&mut log);
    let size = disk.stat(FIRST).unwrap().size as usize;
    disk.flip(FIRST, offset_of(2), 7).unwrap();
    let read = || {
        let mut bytes = vec![0; size];
        disk.open(FIRST, OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let before = read();
    // Records 5 and 6 say that 4 was synced.
    assert_eq!(damage(open_from(&disk, START, 0)), Damage::Lost { first: 3, known: 4 });
    assert_eq!(read(), before);
    disk.flip(FIRST, offset_of(2), 7).unwrap();
    assert_eq!(open(&disk).1.1.len(), 6);
}

#[test]
fn what_the_owner_knows_to_be_synced_must_be_there() {
    let disk = sim();
    let mut log = create(&disk);
    let first = put(&mut log, b"a");
    put(&mut log, b"b");
    sync(&mut log);
    assert_eq!(damage(open_from(&disk, START, 3)), Damage::Lost { first: 3, known: 3 });
    let beyond = Position { seq: 9, ..first };
    assert_eq!(damage(open_from(&disk, beyond, 0)), Damage::Lost { first: 3, known: 9 });
    let other = Position { epoch: 8, ..first };
    let want = Damage::OtherHistory { checkpoint: other, found: first };
    assert_eq!(damage(open_from(&disk, other, 0)), want);
    assert_eq!(open_from(&disk, first, 2).unwrap().1.1.len(), 1);
}

#[test]
fn a_lost_segment_is_damage_if_a_later_one_proves_it() {
    let disk = sim();
    let mut log = create(&disk);
    for n in 0..12 {
        put(&mut log, &[n; 1000]);
        sync(&mut log);
    }
    let names = disk.list(b"log").unwrap();
    assert_eq!(names.len(), 4);
    let second = [b"log/", &names[1].0[..]].concat();
    disk.unlink(&second).unwrap();
    // The header of the fourth segment says that record 9 was synced, a record in it says 11.
    assert_eq!(damage(open_from(&disk, START, 0)), Damage::Lost { first: 4, known: 11 });
    disk.unlink(FIRST).unwrap();
    assert_eq!(damage(open_from(&disk, START, 0)), Damage::NoSegment { seq: 1 });
    let empty = sim();
    empty.mkdir(b"log", 0o700).unwrap();
    assert_eq!(damage(open_from(&empty, START, 0)), Damage::NoSegment { seq: 1 });
}

/// Opens as a machine does that has not been started anew since boot 1, or was.
fn open_in_boot<D: Disk>(disk: &Arc<D>, boot: u128) -> Result<Opened, LogError> {
    let config = Config { boot, ..CONFIG };
    Log::open(Arc::clone(disk), b"log", config, IDENTITY, START, 0, &mut |_| Ok(())).map(|(_, opened)| opened)
}

/// Twelve records of 1000 bytes, three a segment, written in boot 1 and never synced.
fn never_synced() -> Arc<SimDisk> {
    let disk = sim();
    let config = Config { boot: 1, ..CONFIG };
    let mut log = Log::create(Arc::clone(&disk), b"log", config, IDENTITY, START).unwrap();
    for n in 0..12 {
        put(&mut log, &[n + 1; 1000]);
        write(&mut log);
    }
    disk
}

#[test]
fn a_flipped_byte_is_damage_and_no_torn_tail_if_only_the_process_has_died() {
    let disk = never_synced();
    disk.flip(FIRST, 1500, 1).unwrap();
    for _ in 0..2 {
        assert_eq!(damage(open_in_boot(&disk, 1)), Damage::Hole { first: 2, behind: 12 });
    }
    disk.flip(FIRST, 1500, 1).unwrap();
    assert_eq!(open_in_boot(&disk, 1).unwrap().records, 12);
}

#[test]
fn a_power_cut_may_leave_records_behind_a_hole_and_the_next_death_of_a_process_none() {
    let disk = never_synced();
    disk.flip(FIRST, 1500, 1).unwrap();
    let opened = open_in_boot(&disk, 2).unwrap();
    assert_eq!((opened.records, opened.clean), (1, false));
    assert!(opened.torn_bytes > 10_000, "{opened:?}");
    // The hole was cut: nothing hinders the next opening in this boot.
    assert!(open_in_boot(&disk, 2).unwrap().clean);
}

#[test]
fn without_a_power_cut_a_segment_that_is_gone_or_headless_is_damage() {
    for (at, first) in [(0, 4), (1, 4), (2, 7)] {
        let disk = never_synced();
        let names = disk.list(b"log").unwrap();
        let segments: Vec<_> = names.iter().filter(|(name, _)| name.ends_with(b".log")).collect();
        assert_eq!(segments.len(), 4);
        let path = [b"log/", &segments[at.max(1)].0[..]].concat();
        match at {
            0 => {
                disk.flip(&path, 20, 1).unwrap();
            }
            _ => disk.unlink(&path).unwrap(),
        }
        assert_eq!(damage(open_in_boot(&disk, 1)), Damage::Hole { first, behind: 12 });
    }
}

#[test]
fn a_record_that_is_torn_by_the_death_of_the_process_is_cut() {
    let disk = never_synced();
    let last = disk.list(b"log").unwrap().into_iter().map(|(name, _)| name);
    let last = last.filter(|name| name.ends_with(b".log")).max().unwrap();
    let file = disk.open(&[b"log/", &last[..]].concat(), OpenHow::Write).unwrap();
    let third = offset_of(0) + 2 * (RECORD_HEADER_BYTES as u64 + 1000);
    file.write_at(&[0; 600], third + 448).unwrap();
    let opened = open_in_boot(&disk, 1).unwrap();
    assert_eq!((opened.records, opened.torn_bytes), (11, 448));
}

#[test]
fn what_an_opening_was_not_told_it_does_not_leave_to_be_believed() {
    let disk = never_synced();
    open_in_boot(&disk, 0).unwrap();
    disk.flip(FIRST, 1500, 1).unwrap();
    // Between the two, the machine may have been another one; but this opening has synced all.
    assert_eq!(open_in_boot(&disk, 1).map_err(|e| e.to_string()).unwrap().records, 1);
}

#[test]
fn a_log_of_another_island_or_version_is_refused() {
    let disk = sim();
    create(&disk);
    let other = Identity { island: 10, ..IDENTITY };
    let result = Log::open(Arc::clone(&disk), b"log", CONFIG, other, START, 0, &mut |_| Ok(()));
    assert_eq!(damage(result), Damage::Foreign { first_seq: 1, found: IDENTITY });
    let file = disk.open(FIRST, OpenHow::Write).unwrap();
    let mut header = [0; HEADER_BYTES];
    file.read_at(&mut header, 0).unwrap();
    header[8] = 2;
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&header, 0).unwrap();
    let error = open_from(&disk, START, 0).err();
    assert!(matches!(error, Some(LogError::Unsupported { version: 2 })), "{error:?}");
}

#[test]
fn bytes_of_a_log_inside_a_payload_are_never_taken_for_records() {
    let donor = sim();
    let mut log =
        Log::create(Arc::clone(&donor), b"log", CONFIG, IDENTITY, Position { seq: 500, ..START }).unwrap();
    for _ in 0..3 {
        put(&mut log, b"later");
        sync(&mut log);
    }
    let mut bytes = vec![0; 300];
    donor.open(b"log/00000000000001f5.log", OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    let disk = sim();
    let mut log = create(&disk);
    put(&mut log, b"head");
    put(&mut log, &bytes);
    write(&mut log);
    // The record around them is torn, so the search behind the hole looks at the payload.
    disk.flip(FIRST, offset_of(0) + 56 + 4, 1).unwrap();
    assert_eq!(open(&disk).1.0.last.seq, 1);
}

#[test]
fn a_failed_write_or_sync_stops_the_log_for_good() {
    let disk = sim();
    let mut log = create(&disk);
    put(&mut log, b"a");
    write(&mut log);
    disk.fail_next_sync();
    let syncing = log.take_sync().unwrap().unwrap();
    assert!(matches!(log.synced(syncing.perform()), Err(LogError::Stopped { .. })));
    assert!(matches!(log.append(1, &[b"b"]), Err(LogError::Stopped { .. })));
    assert!(matches!(log.take_batch().err(), Some(LogError::Stopped { .. })));
    assert!(matches!(log.take_sync().err(), Some(LogError::Stopped { .. })));
    assert!(log.preparation().is_none());
    assert_eq!(log.synced_upto(), 0);
    let disk = sim();
    let mut log = create(&disk);
    for n in 0..4 {
        put(&mut log, &[n; 1500]);
    }
    disk.die_after(1);
    let batch = log.take_batch().unwrap().unwrap();
    assert!(matches!(log.written(batch.perform()), Err(LogError::Stopped { .. })));
    assert!(matches!(log.append(1, &[b"b"]), Err(LogError::Stopped { .. })));
}

#[test]
fn what_was_read_after_a_failed_sync_is_durable_once_the_log_is_open() {
    for seed in 0..60 {
        let disk = Arc::new(SimDisk::new(seed));
        let mut log = create(&disk);
        put(&mut log, b"synced");
        sync(&mut log);
        for n in 0..8 {
            put(&mut log, &[n; 1200]);
        }
        write(&mut log);
        disk.fail_next_sync();
        let syncing = log.take_sync().unwrap().unwrap();
        assert!(log.synced(syncing.perform()).is_err());
        // The pages are in memory, called clean, and perhaps not on the disk.
        let disk = Arc::new(disk.revive(Fault::ProcessDeath));
        let (_, (_, found)) = open(&disk);
        assert_eq!(found.len(), 9);
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        assert_eq!(open_from(&disk, START, 9).unwrap().1.1, found);
    }
}

#[test]
fn a_spare_begins_the_next_segment_on_a_full_disk() {
    let disk = sim();
    let mut log = create(&disk);
    prepare(&mut log);
    assert!(log.has_spare());
    assert!(log.preparation().is_none());
    disk.set_space(Some(disk.used()));
    for n in 0..3 {
        put(&mut log, &[n; 1800]);
    }
    assert!(!log.has_spare(), "what is buffered has claimed it");
    sync(&mut log);
    let preparation = log.preparation().unwrap();
    assert!(log.prepared(preparation.perform()).is_err());
    assert!(!log.has_spare());
    assert!(log.tail_room() > 1000);
    put(&mut log, b"still goes on");
    sync(&mut log);
    // A released segment becomes the next spare, without any new space.
    let removal = log.release(2).unwrap();
    assert!(log.preparation().is_none(), "its file is being renamed");
    log.removed(removal.perform()).unwrap();
    prepare(&mut log);
    assert!(log.has_spare());
    for n in 0..2 {
        put(&mut log, &[n; 1800]);
    }
    sync(&mut log);
    assert_eq!(open_from(&disk, Position { epoch: 1, seq: 2 }, 6).unwrap().1.1.len(), 4);
}

#[test]
fn the_spare_of_an_earlier_life_is_made_ready_again_without_new_space() {
    let disk = sim();
    let mut log = create(&disk);
    prepare(&mut log);
    put(&mut log, b"a");
    sync(&mut log);
    disk.set_space(Some(disk.used()));
    let (mut log, _) = open(&disk);
    assert!(!log.has_spare());
    prepare(&mut log);
    assert!(log.has_spare());
}

#[test]
fn a_segment_made_from_a_released_one_holds_nothing_of_it() {
    let disk = sim();
    let mut log = create(&disk);
    let mut checkpoint = START;
    for n in 0..6 {
        checkpoint = put(&mut log, &[n; 1900]);
        sync(&mut log);
    }
    let removal = log.release(4).unwrap();
    log.removed(removal.perform()).unwrap();
    prepare(&mut log);
    put(&mut log, &[1; 100]);
    put(&mut log, b"the second in the segment");
    sync(&mut log);
    assert_eq!(disk.list(b"log").unwrap().len(), 2, "the new one began in the old one");
    let (opened, found) = open_from(&disk, checkpoint, 0).unwrap().1;
    assert_eq!((found.len(), opened.clean, opened.torn_bytes), (2, true, 0));
}

#[test]
fn the_last_durable_segment_is_not_released_before_the_next_is_durable() {
    let disk = sim();
    let mut log = create(&disk);
    for n in 0..2 {
        put(&mut log, &[n; 1900]);
    }
    sync(&mut log);
    put(&mut log, &[2; 1900]);
    write(&mut log);
    assert!(log.release(2).is_none());
    sync(&mut log);
    assert!(log.release(2).is_some());
}

#[test]
fn a_segment_of_a_lost_history_does_not_go_on_from_this_one() {
    let history = |epoch| {
        let disk = sim();
        let mut log = create(&disk);
        for n in 0..3 {
            log.append(epoch, &[&[n; 1900]]).unwrap();
        }
        write(&mut log);
        disk
    };
    let (ours, theirs) = (history(2), history(1));
    let second = b"log/0000000000000003.log";
    let mut bytes = vec![0; 4096];
    theirs.open(second, OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    ours.open(second, OpenHow::Write).unwrap().write_at(&bytes, 0).unwrap();
    let (_, (opened, found)) = open(&ours);
    assert_eq!((found.len(), opened.last.epoch, opened.clean), (2, 2, false));
    assert!(opened.torn_bytes > 1900);
    assert!(ours.stat(second).is_err(), "it was cut");
}

#[test]
fn only_whole_segments_below_the_checkpoint_are_released() {
    let disk = sim();
    let mut log = create(&disk);
    for n in 0..9 {
        put(&mut log, &[n; 1000]);
    }
    sync(&mut log);
    assert_eq!(log.first_seq(), 1);
    assert!(log.release(2).is_none());
    let removal = log.release(3).unwrap();
    log.removed(removal.perform()).unwrap();
    assert_eq!(log.first_seq(), 4);
    let removal = log.release(9).unwrap();
    log.removed(removal.perform()).unwrap();
    assert_eq!(log.first_seq(), 7, "the last segment stays");
}

#[test]
#[should_panic(expected = "is released")]
fn releasing_what_is_not_synced_stops_the_node() {
    let mut log = create(&sim());
    put(&mut log, b"a");
    write(&mut log);
    let _ = log.release(1);
}

#[test]
fn records_of_a_primary_are_taken_only_in_their_place() {
    let mut log = create(&sim());
    let at = |epoch, seq| Position { epoch, seq };
    log.append_at(at(4, 1), START, &[b"a"]).unwrap();
    for (position, predecessor) in
        [(at(4, 3), at(4, 1)), (at(4, 2), at(3, 1)), (at(4, 2), at(4, 2)), (at(3, 2), at(4, 1))]
    {
        let error = log.append_at(position, predecessor, &[b"x"]).unwrap_err();
        assert!(matches!(error, LogError::Mismatch { last } if last == at(4, 1)));
    }
    log.append_at(at(5, 2), at(4, 1), &[b"b"]).unwrap();
    assert_eq!(log.last(), at(5, 2));
}

#[test]
fn bounds_are_reached_and_refused_without_a_trace() {
    let disk = sim();
    let mut log = create(&disk);
    assert!(matches!(log.append(1, &[&[0; 1000], &[0; 1001]]), Err(LogError::TooLarge { bytes: 2001 })));
    put(&mut log, &[1; 2000]);
    let error = loop {
        match log.append(1, &[&[1; 2000]]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Full));
    let last = log.last();
    write(&mut log);
    assert_eq!(put(&mut log, b"room again").seq, last.seq + 1);
    write(&mut log);
    assert_eq!(open(&disk).1.1.len() as u64, last.seq + 1);
}

#[test]
fn a_reader_that_refuses_a_record_ends_the_opening() {
    let disk = sim();
    let mut log = create(&disk);
    put(&mut log, b"a");
    write(&mut log);
    let result = Log::open(disk, b"log", CONFIG, IDENTITY, START, 0, &mut |_| Err("not for me".into())).err();
    assert!(matches!(result, Some(LogError::Refused { seq: 1, .. })), "{result:?}");
}

#[test]
fn a_log_goes_on_from_a_copied_checkpoint_and_with_other_segment_sizes() {
    let disk = sim();
    let base = Position { epoch: 2, seq: 1000 };
    let mut log = Log::create(Arc::clone(&disk), b"deep", CONFIG, IDENTITY, base).unwrap();
    log.append(3, &[b"x"]).unwrap();
    sync(&mut log);
    for segment_bytes in [8192, 2112, 100_000] {
        let config = Config { segment_bytes, ..CONFIG };
        let mut n = 0;
        let (mut log, _) = Log::open(Arc::clone(&disk), b"deep", config, IDENTITY, base, 0, &mut |_| {
            n += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(log.last().seq, base.seq + n);
        for _ in 0..5 {
            log.append(3, &[&[9; 1500]]).unwrap();
        }
        sync(&mut log);
    }
}

#[test]
fn a_batch_that_finds_no_space_waits_and_is_written_when_there_is_some() {
    let disk = Arc::new(SimDisk::new(1));
    let mut log = Log::create(Arc::clone(&disk), b"log", CONFIG, IDENTITY, Position::default()).unwrap();
    let append = |log: &mut Log<SimDisk>| {
        log.append(1, &[&[7; 1000]]).unwrap();
    };
    let write = |log: &mut Log<SimDisk>| {
        let batch = log.take_batch().unwrap()?;
        Some(log.written(batch.perform()).unwrap())
    };
    (0..3).for_each(|_| append(&mut log));
    assert_eq!(write(&mut log), Some(3));
    // The fourth needs a segment, and the disk has room for a half of one.
    disk.set_space(Some(disk.used() + 2048));
    append(&mut log);
    assert_eq!(write(&mut log), Some(3), "nothing is told as written");
    assert!(log.is_stuck());
    let used = disk.used();
    append(&mut log);
    assert_eq!(write(&mut log), None, "it is not tried by itself");
    for _ in 0..3 {
        log.try_again();
        assert_eq!(write(&mut log), Some(3));
        assert_eq!(disk.used(), used, "what the disk could give was not kept");
    }
    // What is there goes on to be synced.
    let sync = log.take_sync().unwrap().unwrap();
    assert_eq!(log.synced(sync.perform()).unwrap(), 3);
    disk.set_space(None);
    log.try_again();
    assert_eq!(write(&mut log), Some(4));
    assert!(!log.is_stuck());
    assert_eq!(write(&mut log), Some(5));
    drop(log);
    let (_, opened) =
        Log::open(disk, b"log", CONFIG, IDENTITY, Position::default(), 0, &mut |_| Ok(())).unwrap();
    assert_eq!(opened.records, 5);
}
