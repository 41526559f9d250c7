//! The log dies at every effect, by process death and by power cut, again and again. What was
//! synced is there, in order; what else is there was appended, and nothing is left out between.

use std::sync::Arc;

use atoll_disk::sim::{Fault, SimDisk, is_died};
use atoll_log::{Config, Identity, Log, LogError, Opened, Position};
use proptest::prelude::*;

const IDENTITY: Identity = Identity { volume: 7, island: 3 };
const CONFIG: Config =
    Config { segment_bytes: 4096, record_bytes_max: 1500, buffer_bytes_max: 16 << 10, boot: 0 };

#[derive(Debug, Clone, Copy)]
enum Step {
    Append(usize),
    Write,
    Sync,
    Prepare,
    /// Releases this share, in percent, of what is synced.
    Release(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..1500usize).prop_map(Step::Append),
        3 => (0..40usize).prop_map(Step::Append),
        6 => Just(Step::Write),
        3 => Just(Step::Sync),
        2 => Just(Step::Prepare),
        1 => (0..=100u64).prop_map(Step::Release),
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
    let config = Config { boot: model.boot, ..CONFIG };
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
                if let Some(removal) = log.release(upto) {
                    log.removed(removal.perform()).map_err(|error| died(error.into()))?;
                }
            }
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
    [blind, knows_boot]: [bool; 2],
) -> bool {
    let mut disk = SimDisk::new(seed);
    let mut model = Model { epoch: 1, boot: u128::from(knows_boot), ..Model::default() };
    let config = Config { boot: model.boot, ..CONFIG };
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
        knowledge in any::<[bool; 2]>(),
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
        for death in 1.. {
            let disk = SimDisk::new(seed + death);
            let mut model = Model { epoch: 1, ..Model::default() };
            let create =
                || Log::create(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, Position::default());
            let mut log = create().unwrap();
            let steps: Vec<Step> =
                (0..9).flat_map(|n| [Step::Append(1200 - n * 20), Step::Write, Step::Sync]).collect();
            run(&mut log, &disk, &mut model, &steps).unwrap();
            drop(log);
            disk.die_after(death);
            let cut = |disk: &SimDisk| {
                Log::cut_back(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, model.at(to))
            };
            let done = cut(&disk).is_ok();
            let fault = if seed % 2 == 0 { Fault::PowerCut { seed } } else { Fault::ProcessDeath };
            let disk = disk.revive(fault);
            disk.die_after(death % 7 + 1);
            let _ = open(&disk, &mut Model { records: model.records.clone(), ..Model::default() }, 0, to);
            let disk = disk.revive(Fault::PowerCut { seed: seed + 1 });
            let mut found = Model { records: model.records.clone(), ..Model::default() };
            let (mut log, opened) = open(&disk, &mut found, 0, to).unwrap();
            let reach = opened.last.seq;
            assert!(reach == to || reach == 9 && !done, "cut to {to}, found {reach}");
            // What is appended then is not cut again.
            found.epoch = 5;
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
    let cut = |to| Log::cut_back(Arc::new(disk.clone()), b"log", CONFIG, IDENTITY, to).unwrap_err();
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
