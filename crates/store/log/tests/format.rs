//! The bytes on disk are those of the golden file, and any other bytes are survived.

use std::sync::Arc;

use atoll_disk::sim::SimDisk;
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_log::{Config, Identity, Log, Position, scan_segment};
use proptest::prelude::*;

const MAX: u32 = 4096;

/// A segment of four records in two epochs, with two markers.
fn segment() -> Vec<u8> {
    let disk = Arc::new(SimDisk::new(1));
    let config = Config { segment_bytes: 16 << 10, record_bytes_max: MAX, ..Config::default() };
    let identity = Identity { volume: 0x0102_0304_0506_0708, island: 0x0a0b };
    let base = Position { epoch: 3, seq: 40 };
    let mut log = Log::create(Arc::clone(&disk), b"", config, identity, base).unwrap();
    log.append(4, &[]).unwrap();
    log.append(4, &[b"one ", b"payload"]).unwrap();
    write(&mut log);
    let sync = log.take_sync().unwrap().unwrap();
    log.synced(sync.perform()).unwrap();
    log.append(6, &[&[0xee; 33]]).unwrap();
    log.append(6, &[b"last"]).unwrap();
    write(&mut log);
    let mut bytes = vec![0; 16 << 10];
    disk.open(b"0000000000000029.log", OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    let end = bytes.iter().rposition(|b| *b != 0).unwrap() + 1;
    bytes.truncate(end.next_multiple_of(8));
    bytes
}

fn write(log: &mut Log<SimDisk>) {
    let batch = log.take_batch().unwrap().unwrap();
    log.written(batch.perform()).unwrap();
}

fn scan(bytes: &[u8]) -> Vec<(Position, u64, Vec<u8>)> {
    let mut records = Vec::new();
    scan_segment(bytes, MAX, |_, r| records.push((r.position, r.synced, r.payload.to_vec())));
    records
}

#[test]
fn the_format_is_that_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/segment_v1.bin");
    if std::env::var_os("ATOLL_BLESS").is_some() {
        std::fs::write(path, segment()).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert_eq!(segment(), golden);
    let at = |epoch, seq| Position { epoch, seq };
    let want = [
        (at(4, 41), 40, Vec::new()),
        (at(4, 42), 40, b"one payload".to_vec()),
        (at(6, 43), 42, vec![0xee; 33]),
        (at(6, 44), 42, b"last".to_vec()),
    ];
    assert_eq!(scan(&golden), want);
}

#[test]
fn any_single_bit_error_ends_the_log_at_its_record_and_invents_nothing() {
    let bytes = segment();
    let whole = scan(&bytes);
    let mut starts = Vec::new();
    let (_, end) = scan_segment(&bytes, MAX, |at, _| starts.push(at)).unwrap();
    assert_eq!(end.last.seq, 44);
    assert_eq!(end.synced, 42);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = scan(&bad);
        let intact = starts.iter().filter(|start| **start <= bit / 8).count().saturating_sub(1);
        assert!(found == whole[..found.len()], "bit {bit} made a record");
        // The padding behind a payload is not checked: there, an error hurts nobody.
        assert!(found.len() == intact || found.len() == whole.len() || bit / 8 < 64, "bit {bit}");
        assert!(bit / 8 >= 64 || found.is_empty(), "bit {bit} of the header went unnoticed");
    }
    for len in 0..bytes.len() {
        let found = scan(&bytes[..len]);
        assert!(found == whole[..found.len()]);
    }
}

#[test]
fn a_record_that_follows_another_history_is_not_read() {
    let records = |epoch| {
        let disk = Arc::new(SimDisk::new(1));
        let config = Config { segment_bytes: 16 << 10, record_bytes_max: MAX, ..Config::default() };
        let identity = Identity { volume: 1, island: 1 };
        let mut log = Log::create(Arc::clone(&disk), b"", config, identity, Position::default()).unwrap();
        for _ in 0..3 {
            log.append(epoch, &[b"same length"]).unwrap();
        }
        write(&mut log);
        let mut bytes = vec![0; 64 + 3 * 64];
        disk.open(b"0000000000000001.log", OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let (mut mixed, newer) = (records(1), records(2));
    assert_eq!(scan(&mixed).len(), 3);
    mixed[64..128].copy_from_slice(&newer[64..128]);
    let found = scan(&mixed);
    assert_eq!((found.len(), found[0].0.epoch), (1, 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        scan(&bytes);
    }

    #[test]
    fn a_mutated_segment_never_panics_and_keeps_the_order(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = segment();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let found = scan(&bytes);
        prop_assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].0.seq + 1 == pair[1].0.seq));
    }
}

#[test]
fn the_file_that_names_the_boot_has_the_bytes_that_the_format_says() {
    let disk = std::sync::Arc::new(atoll_disk::sim::SimDisk::new(1));
    let boot = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
    let config = atoll_log::Config { boot, ..atoll_log::Config::default() };
    let identity = Identity { volume: 1, island: 2 };
    let shared = std::sync::Arc::clone(&disk);
    let mut log = atoll_log::Log::create(shared, b"log", config, identity, Position::default()).unwrap();
    let noted = |synced: u32| {
        let mut bytes = [0; 64];
        let n = disk.open(b"log/boot", OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        let mut want = b"ATOLLBUT".to_vec();
        want.extend(boot.to_le_bytes());
        want.extend(synced.to_le_bytes());
        want.extend(crc32c::crc32c(&want).to_le_bytes());
        assert_eq!(bytes[..n], want);
    };
    noted(0);
    log.append(1, &[b"one"]).unwrap();
    let batch = log.take_batch().unwrap().expect("a record").perform();
    log.written(batch).unwrap();
    noted(0);
    let sync = log.take_sync().unwrap().expect("it is not synced").perform();
    log.synced(sync).unwrap();
    noted(1);
}
