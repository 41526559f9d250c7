//! The log dies at every effect, by process death and by power cut, again and again. What was
//! synced is there, in order; what else is there was appended, and nothing is left out between.

use std::sync::Arc;

use atoll_disk::Disk;
use atoll_disk::sim::{Fault, SimDisk, is_died};
use atoll_log::{Config, Cursor, Identity, Log, LogError, Opened, Position};
use proptest::prelude::*;

const IDENTITY: Identity = Identity { volume: 7, island: 3 };
const CONFIG: Config = Config {
    segment_bytes: 4096,
    record_bytes_max: 1500,
    buffer_bytes_max: 16 << 10,
    keep_bytes: 0,
    boot: 0,
};
const START: Position = Position { epoch: 0, seq: 0 };

#[derive(Debug, Clone, Copy)]
enum Step {
    Append(usize),
    Write,
    Sync,
    Prepare,
    /// Releases this share, in percent, of what is synced.
    Release(u64),
    /// Keeps what lies behind this share of the last record.
    Keep(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..1500usize).prop_map(Step::Append),
        3 => (0..40usize).prop_map(Step::Append),
        6 => Just(Step::Write),
        3 => Just(Step::Sync),
        2 => Just(Step::Prepare),
        2 => (0..=100u64).prop_map(Step::Release),
        1 => (0..=100u64).prop_map(Step::Keep),
        1 => Just(Step::Reopen),
    ]
}

/// What the owner of the log believes.
#[derive(Debug, Default)]
struct Model {
    /// Every record, from sequence number 1 on.
    records: Vec<(Position, Vec<u8>)>,
    written: u64,
    synced: u64,
    checkpoint: Position,
    epoch: u32,
    /// Counts power cuts; 0 if the log is not told.
    boot: u128,
    /// Bytes that are kept behind the checkpoint.
    keep_bytes: u64,
    /// The first record that could be read before.
    first: u64,
}

impl Model {
    fn payload(&self, n: usize) -> Vec<u8> {
        let salt = self.records.len() as u64 * 31 + u64::from(self.epoch);
        (0..n as u64).map(|i| ((i * 7 + salt) % 251) as u8 + 1).collect()
    }

    fn at(&self, seq: u64) -> Position {
        if seq == 0 { Position::default() } else { self.records[seq as usize - 1].0 }
    }
}

/// What can be read is what was appended, and the epochs are told as they are. As much is kept as there may be.
fn check_kept(disk: &SimDisk, log: &Log<SimDisk>, opened: &Opened, model: &Model) {
    let (base, last) = (opened.base.seq, opened.last.seq);
    assert_eq!((opened.base, log.first_seq()), (model.at(base), base + 1));
    let mut ends: Vec<Position> = Vec::new();
    for seq in base + 1..=last {
        ends.retain(|end| end.epoch < model.at(seq).epoch);
        ends.push(model.at(seq));
    }
    assert_eq!(opened.ends, ends);
    let (mut cursor, mut read) = (Cursor::after(opened.base), Vec::new());
    while let Some(work) = log.take_read(&cursor, 3000).unwrap() {
        let records = log.read(work.perform()).unwrap();
        read.extend(records.iter().map(|record| (record.position, record.payload.to_vec())));
        cursor = records.into_cursor();
    }
    assert!(read == model.records[base as usize..last as usize], "what is read is what was appended");
    let names = disk.list(b"log").unwrap().into_iter().map(|(name, _)| String::from_utf8(name).unwrap());
    let mut segments: Vec<u64> = names
        .filter_map(|name| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok())
        .filter(|first| *first <= model.checkpoint.seq + 1)
        .collect();
    segments.sort_unstable();
    assert_eq!(segments[0], log.first_seq(), "nothing lies there that cannot be read");
    let kept = (segments.len() as u64 - 1) * CONFIG.segment_bytes;
    assert!(kept <= model.keep_bytes, "{kept} bytes are kept");
    let is_full = kept + CONFIG.segment_bytes > model.keep_bytes;
    assert!(is_full || log.first_seq() <= model.first, "from {} on, {}", model.first, log.first_seq());
}

fn died(error: LogError) -> LogError {
    match &error {
        LogError::Io(inner) if is_died(inner) => {}
        LogError::Stopped { reason } if reason.contains("died") => {}
        other => panic!("not the death of the disk: {other:?}"),
    }
    error
}

/// Opens and compares with the model; the model then goes on from what was found.
fn open(
    disk: &SimDisk,
    model: &mut Model,
    must: u64,
    floor: u64,
) -> Result<(Log<SimDisk>, Opened), LogError> {
    let mut found = Vec::new();
    let config = Config { boot: model.boot, keep_bytes: model.keep_bytes, ..CONFIG };
    let opened =
        Log::open(Arc::new(disk.clone()), b"log", config, IDENTITY, model.checkpoint, must, &mut |record| {
            found.push((record.position, record.payload.to_vec()));
            Ok(())
        });
    let (log, opened) = opened?;
    let from = model.checkpoint.seq as usize;
    let reach = from + found.len();
    assert!(reach as u64 >= floor, "{floor} records must be there, {reach} are");
    assert!(reach <= model.records.len(), "records were invented");
    assert!(found == model.records[from..reach], "records are not those that were appended");
    assert_eq!(opened.last, model.at(reach as u64));
    assert_eq!(opened.records, found.len() as u64);
    assert_eq!(log.last(), opened.last);
    assert_eq!((log.written_upto(), log.synced_upto()), (opened.last.seq, opened.last.seq));
    model.records.truncate(reach);
    check_kept(disk, &log, &opened, model);
    model.first = log.first_seq();
    (model.written, model.synced) = (reach as u64, reach as u64);
    model.epoch += 1;
    Ok((log, opened))
}

fn run(log: &mut Log<SimDisk>, disk: &SimDisk, model: &mut Model, steps: &[Step]) -> Result<(), LogError> {
    for step in steps {
        match *step {
            Step::Append(n) => {
                let (payload, last) = (model.payload(n), log.last());
                match log.append(model.epoch, &[&payload[..n / 3], &payload[n / 3..]]) {
                    Ok(position) => {
                        assert_eq!(position.seq, last.seq + 1);
                        model.records.push((position, payload));
                    }
                    Err(LogError::Full) => assert_eq!(log.last(), last),
                    Err(error) => return Err(died(error)),
                }
            }
            Step::Write => {
                if let Some(batch) = log.take_batch().map_err(died)? {
                    let upto = batch.last().seq;
                    assert!(log.take_batch().unwrap().is_none(), "two batches are under way");
                    model.written = log.written(batch.perform()).map_err(died)?;
                    assert_eq!(model.written, upto);
                }
            }
            Step::Sync => {
                if let Some(sync) = log.take_sync().map_err(died)? {
                    assert!(log.take_sync().unwrap().is_none(), "two syncs are under way");
                    model.synced = log.synced(sync.perform()).map_err(died)?;
                    assert_eq!(model.synced, model.written);
                }
            }
            Step::Prepare => {
                if let Some(preparation) = log.preparation() {
                    log.prepared(preparation.perform()).map_err(|error| died(error.into()))?;
                }
            }
            Step::Release(percent) => {
                let upto = model.checkpoint.seq.max(model.synced * percent / 100);
                model.checkpoint = model.at(upto);
                let removal = log.release(upto);
                model.first = log.first_seq();
                if let Some(removal) = removal {
                    log.removed(removal.perform()).map_err(|error| died(error.into()))?;
                }
            }
            Step::Keep(percent) => log.keep(log.last().seq * percent / 100),
            Step::Reopen => {
                let (must, floor) = (model.synced, model.written);
                *log = open(disk, model, must, floor).map_err(died)?.0;
            }
        }
    }
    Ok(())
}

/// One story of several lives. True if the last one got to its end.
fn story(
    steps: &[Step],
    first_death: u64,
    faults: [bool; 3],
    seed: u64,
    [blind, knows_boot, keeps]: [bool; 3],
) -> bool {
    let mut disk = SimDisk::new(seed);
    let keep_bytes = if keeps { 3 * CONFIG.segment_bytes } else { 0 };
    let mut model =
        Model { epoch: 1, boot: u128::from(knows_boot), keep_bytes, first: 1, ..Model::default() };
    let config = Config { boot: model.boot, keep_bytes, ..CONFIG };
    let mut log = Log::create(Arc::new(disk.clone()), b"log", config, IDENTITY, Position::default()).unwrap();
    let mut death = first_death;
    for (life, power) in (0..).zip(faults) {
        disk.die_after(death);
        if run(&mut log, &disk, &mut model, steps).is_ok() {
            return true;
        }
        // Opening dies too, at each of its effects after the other.
        for n in 1.. {
            let fault =
                if power { Fault::PowerCut { seed: seed + life * 99 + n } } else { Fault::ProcessDeath };
            disk = disk.revive(fault);
            disk.die_after(n);
            if power && knows_boot {
                model.boot += 1;
            }
            let floor = if power { model.synced } else { model.written };
            let must = if blind { 0 } else { model.synced };
            let mut copy = Model {
                records: model.records.clone(),
                checkpoint: model.checkpoint,
                epoch: model.epoch,
                boot: model.boot,
                keep_bytes: model.keep_bytes,
                first: model.first,
                ..Model::default()
            };
            match open(&disk, &mut copy, must, floor) {
                Ok((opened, _)) => {
                    (log, model) = (opened, copy);
                    break;
                }
                Err(error) => drop(died(error)),
            }
        }
        death = first_death / 2 + life + 1;
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn synced_records_survive_a_death_at_every_effect(
        steps in prop::collection::vec(step(), 1..60),
        faults in any::<[bool; 3]>(),
        seed in any::<u32>(),
        knowledge in any::<[bool; 3]>(),
    ) {
        for death in 1.. {
            if story(&steps, death, faults, u64::from(seed) + death * 1000, knowledge) {
                break;
            }
        }
    }
}

#[test]
fn a_death_while_the_log_is_created_leaves_nothing_that_hinders_creating_it() {
    for power in [false, true] {
        for death in 1.. {
            let disk = SimDisk::new(death);
            disk.die_after(death);
            let create = |disk: &SimDisk| {
                Log::create(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, Position::default())
            };
            if create(&disk).is_ok() {
                assert!(death > 4, "creating takes more effects than that");
                break;
            }
            let disk = disk.revive(if power { Fault::PowerCut { seed: death } } else { Fault::ProcessDeath });
            create(&disk).unwrap();
            let disk = disk.revive(Fault::PowerCut { seed: death });
            open(&disk, &mut Model::default(), 0, 0).unwrap();
        }
    }
}

#[test]
fn a_cut_back_is_done_or_not_whatever_dies_in_it_and_never_looks_like_damage() {
    for (seed, to) in (0..).zip([0, 1, 4, 7, 8, 9].into_iter().cycle()).take(120) {
        // From time to time with a checkpoint, and segments that are kept behind it.
        let checkpoint = if seed % 3 == 0 { to } else { 0 };
        let keep_bytes = if seed % 4 < 2 { 2 * CONFIG.segment_bytes } else { 0 };
        for death in 1.. {
            let disk = SimDisk::new(seed + death);
            let mut model = Model { epoch: 1, keep_bytes, ..Model::default() };
            let config = Config { keep_bytes, ..CONFIG };
            let create = || Log::create(Arc::new(disk.clone()), b"log", config, IDENTITY, START);
            let mut log = create().unwrap();
            for n in 0..9 {
                // Epochs begin within segments, and at their beginning.
                model.epoch = 1 + n / 2;
                let step = [Step::Append(1200 - n as usize * 20), Step::Write, Step::Sync];
                run(&mut log, &disk, &mut model, &step).unwrap();
            }
            model.checkpoint = model.at(checkpoint);
            if let Some(removal) = log.release(checkpoint) {
                log.removed(removal.perform()).unwrap();
            }
            let first = log.first_seq();
            drop(log);
            disk.die_after(death);
            let at = model.checkpoint;
            let cut = |disk: &SimDisk| {
                Log::cut_back(Arc::new(disk.clone()), b"log", config, IDENTITY, at, model.at(to))
            };
            let done = cut(&disk).is_ok();
            let fault = if seed % 2 == 0 { Fault::PowerCut { seed } } else { Fault::ProcessDeath };
            let disk = disk.revive(fault);
            disk.die_after(death % 7 + 1);
            let again = || Model {
                records: model.records.clone(),
                checkpoint: model.checkpoint,
                keep_bytes,
                first,
                ..Model::default()
            };
            let _ = open(&disk, &mut again(), 0, to);
            let disk = disk.revive(Fault::PowerCut { seed: seed + 1 });
            let mut found = again();
            let (mut log, opened) = open(&disk, &mut found, 0, to).unwrap();
            let reach = opened.last.seq;
            assert!(reach == to || reach == 9 && !done, "cut to {to}, found {reach}");
            // What is appended then is not cut again.
            found.epoch = 7;
            run(&mut log, &disk, &mut found, &[Step::Append(900), Step::Write, Step::Sync]).unwrap();
            let disk = disk.revive(Fault::PowerCut { seed });
            open(&disk, &mut found, reach + 1, reach + 1).unwrap();
            if done {
                break;
            }
        }
    }
}

#[test]
fn only_a_record_that_is_there_can_be_cut_back_to() {
    let disk = SimDisk::new(1);
    let mut model = Model { epoch: 1, ..Model::default() };
    let mut log = Log::create(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, Position::default()).unwrap();
    run(&mut log, &disk, &mut model, &[Step::Append(9), Step::Append(9), Step::Write]).unwrap();
    let cut = |to| Log::cut_back(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, START, to).unwrap_err();
    let other = Position { epoch: 2, ..model.at(1) };
    assert!(matches!(cut(other), LogError::Mismatch { last } if last == model.at(1)));
    let beyond = Position { seq: 3, ..model.at(2) };
    assert!(matches!(cut(beyond), LogError::Mismatch { last } if last == model.at(2)));
    assert_eq!(open(&disk, &mut model, 0, 2).unwrap().1.records, 2);
}

#[test]
fn a_power_cut_while_a_log_is_opened_leaves_the_segment_before_one_that_was_never_synced() {
    use Step::{Append, Release, Sync, Write};
    let fill = [Append(1400), Append(1400), Append(1400), Append(1400), Write, Sync];
    for seed in 0..20 {
        for death in 1.. {
            let disk = SimDisk::new(seed);
            let mut model = Model { epoch: 1, ..Model::default() };
            let create = Log::create(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, Position::default());
            let mut log = create.unwrap();
            run(&mut log, &disk, &mut model, &fill).unwrap();
            run(&mut log, &disk, &mut model, &[Release(100), Append(1400), Write]).unwrap();
            drop(log);
            let disk = disk.revive(Fault::ProcessDeath);
            disk.die_after(death);
            let (must, written) = (model.synced, model.written);
            let mut opening = Model { records: model.records.clone(), ..model };
            let opened = open(&disk, &mut opening, must, written).is_ok();
            let disk = disk.revive(Fault::PowerCut { seed: seed * 1000 + death });
            open(&disk, &mut model, must, must).unwrap();
            if opened {
                break;
            }
        }
    }
}

#[test]
fn a_power_cut_while_segments_are_let_go_of_leaves_those_that_are_kept_without_a_gap_and_with_their_records()
{
    use Step::{Append, Keep, Prepare, Release, Sync, Write};
    let fill = [Append(1400), Append(1400), Write, Sync];
    let keep_bytes = 3 * CONFIG.segment_bytes;
    // The first segment alone becomes the spare; or the next one goes with it.
    for (percent, seed) in [40, 60].into_iter().flat_map(|percent| (0..40).map(move |seed| (percent, seed))) {
        for death in 1.. {
            let disk = SimDisk::new(seed);
            // All is of one epoch, so nothing but a segment's header is read of what is kept.
            let mut model = Model { keep_bytes, first: 1, ..Model::default() };
            let config = Config { keep_bytes, ..CONFIG };
            let create = Log::create(Arc::new(disk.clone()), b"log", config, IDENTITY, START);
            let mut log = create.unwrap();
            (0..4).for_each(|_| run(&mut log, &disk, &mut model, &fill).unwrap());
            disk.die_after(death);
            let steps = [Keep(percent), Release(percent), Prepare];
            let is_done = run(&mut log, &disk, &mut model, &steps).is_ok();
            drop(log);
            let disk = disk.revive(Fault::PowerCut { seed: seed * 1000 + death });
            // Less may be kept than could be: a removal that was under way may have been done.
            model.first = u64::MAX;
            let must = model.synced;
            open(&disk, &mut model, must, must).unwrap();
            if is_done {
                break;
            }
        }
    }
}
