//! The death of a process and a power cut are told apart, however little a log did in between.

mod common;

use std::sync::Arc;

use atoll_disk::sim::{Fault, SimDisk};
use atoll_log::{Config, Log, LogError, Opened};

use common::{CONFIG, IDENTITY, START, put, sync, write};

/// Opens as a machine does in this boot.
fn open(disk: &SimDisk, boot: u128) -> Result<(Log<SimDisk>, Opened), LogError> {
    let config = Config { boot, ..CONFIG };
    Log::open(Arc::new(disk.clone()), b"log", config, IDENTITY, START, 0, &mut |_| Ok(()))
}

fn die(disk: &SimDisk) -> SimDisk {
    disk.revive(Fault::ProcessDeath)
}

/// A log with a record, after a power cut: it is opened in boot 2 next.
fn after_a_power_cut(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let config = Config { boot: 1, ..CONFIG };
    let mut log = Log::create(Arc::new(disk.clone()), b"log", config, IDENTITY, START).unwrap();
    put(&mut log, b"first");
    sync(&mut log);
    disk.revive(Fault::PowerCut { seed })
}

#[test]
fn two_quick_kills_of_a_whole_log_are_no_power_cut() {
    let mut disk = after_a_power_cut(1);
    let (mut log, opened) = open(&disk, 2).unwrap();
    assert!(!opened.whole);
    put(&mut log, b"what was lost");
    sync(&mut log);
    for _ in 0..3 {
        disk = die(&disk);
        assert!(open(&disk, 2).unwrap().1.whole);
    }
    disk = disk.revive(Fault::PowerCut { seed: 1 });
    assert!(!open(&disk, 3).unwrap().1.whole);
}

#[test]
fn a_process_that_dies_before_it_has_told_of_a_power_cut_leaves_that_to_the_next() {
    let mut disk = after_a_power_cut(1);
    for _ in 0..3 {
        assert!(!open(&disk, 2).unwrap().1.whole);
        disk = die(&disk);
    }
}

#[test]
fn a_log_that_is_noted_as_whole_is_so_without_a_sync() {
    let mut disk = after_a_power_cut(1);
    let (log, _) = open(&disk, 2).unwrap();
    log.note_whole().unwrap().perform().unwrap();
    for n in 0..3 {
        disk = die(&disk);
        let (mut log, opened) = open(&disk, 2).unwrap();
        assert!(opened.whole);
        assert_eq!(opened.records, 1 + n, "what was written is there");
        put(&mut log, b"written and not synced");
        write(&mut log);
        put(&mut log, b"nobody was told of this one");
    }
}

#[test]
fn a_power_cut_is_one_although_the_log_was_noted_as_whole() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = after_a_power_cut(seed);
        let (mut log, _) = open(&disk, 2).unwrap();
        put(&mut log, &[7; 1000]);
        write(&mut log);
        log.note_whole().unwrap().perform().unwrap();
        put(&mut log, &[8; 1000]);
        write(&mut log);
        let disk = disk.revive(Fault::PowerCut { seed });
        let (_, opened) = open(&disk, 3).unwrap();
        assert!(!opened.whole);
        lost += usize::from(opened.records < 3);
    }
    assert!(lost > 0, "no power cut has taken anything");
}

#[test]
fn a_log_that_has_stopped_is_not_noted_as_whole_any_more() {
    let disk = after_a_power_cut(1);
    let (mut log, _) = open(&disk, 2).unwrap();
    put(&mut log, b"a");
    write(&mut log);
    let note = log.note_whole().unwrap();
    log.note_whole().unwrap().perform().unwrap();
    disk.fail_next_sync();
    let syncing = log.take_sync().unwrap().unwrap();
    log.synced(syncing.perform()).unwrap_err();
    // Another thread had taken it before.
    note.perform().unwrap();
    assert!(matches!(log.note_whole().err(), Some(LogError::Stopped { .. })));
    assert!(!open(&die(&disk), 2).unwrap().1.whole);
}

#[test]
fn a_log_that_does_not_know_its_boot_is_never_whole() {
    let disk = after_a_power_cut(1);
    let (log, _) = open(&disk, 0).unwrap();
    log.note_whole().unwrap().perform().unwrap();
    let disk = die(&disk);
    assert!(!open(&disk, 0).unwrap().1.whole);
    assert!(!open(&die(&disk), 2).unwrap().1.whole);
}

/// One life that opens, and appends, and syncs if it comes so far.
fn life(disk: &SimDisk, boot: u128) -> Result<(), LogError> {
    let (mut log, opened) = open(disk, boot)?;
    if !opened.whole {
        log.note_whole()?.perform()?;
    }
    for n in 0..4 {
        log.append(1, &[&[n; 1500]])?;
        if let Some(batch) = log.take_batch()? {
            log.written(batch.perform())?;
        }
    }
    if let Some(work) = log.take_sync()? {
        log.synced(work.perform())?;
    }
    Ok(())
}

#[test]
fn no_death_of_a_process_makes_a_whole_log_one_that_lost_its_power() {
    for seed in 0..10 {
        for death in 1.. {
            let mut disk = after_a_power_cut(seed);
            life(&disk, 2).unwrap();
            // Two lives die in a row, each a step later than the one before.
            for n in 0..2 {
                disk = die(&disk);
                disk.die_after(death + n);
                let _ = life(&disk, 2);
            }
            let done = !disk.is_dead();
            disk = die(&disk);
            assert!(open(&disk, 2).unwrap().1.whole, "seed {seed}, death {death}");
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_death_while_the_note_is_made_leaves_it_made_or_not() {
    let (mut made, mut not) = (0, 0);
    for seed in 0..40 {
        let disk = after_a_power_cut(seed);
        let (log, _) = open(&disk, 2).unwrap();
        let effects = disk.effects();
        log.note_whole().unwrap().perform().unwrap();
        for death in 1..=disk.effects() - effects {
            let disk = after_a_power_cut(seed);
            let (log, _) = open(&disk, 2).unwrap();
            disk.die_after(death);
            log.note_whole().unwrap().perform().unwrap_err();
            let disk = die(&disk);
            let (log, opened) = open(&disk, 2).unwrap();
            *if opened.whole { &mut made } else { &mut not } += 1;
            // Where it was not made, it can be made again.
            log.note_whole().unwrap().perform().unwrap();
            assert!(open(&die(&disk), 2).unwrap().1.whole);
        }
    }
    assert!(made > 0 && not > 0, "made {made}, not {not}");
}
