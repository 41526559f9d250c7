//! Two copies that nobody uses are brought to the same record, over overlays: what lies there stays as it is.

mod common;

use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_disk::overlay::Overlay;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Engine, Nobody, NotLevel, NotShipped};
use atoll_group::OpenedLog;
use atoll_island::Event;
use atoll_log::LogError;
use atoll_posix::{Answer, Kind, Op};
use atoll_proto::{ClientOp, Outcome};
use atoll_state::RowKey;
use bytes::Bytes;
use common::{Life, Still};

/// More than a record carries.
const LARGE: usize = 64 * 1024;

fn write(primary: &mut Life, seq: u64, name: &str, bytes: &[u8]) {
    let (name, target) = (Name::new(name.as_bytes()).unwrap(), Bytes::new());
    let (mode, umask, rdev, exclusive, kind) = (0o644, 0, 0, true, Kind::Regular);
    let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
    let (made, _) = primary.ask(seq, ClientOp::Fs { op }, &[]);
    let Outcome::Ok { answer: Answer::Found { found }, .. } = made else { panic!("{made:?}") };
    let op = Op::Write { ino: found.attr.ino, offset: 0, append: false, kill_set_id: false };
    let (written, _) = primary.ask(seq + 1, ClientOp::Fs { op }, bytes);
    assert!(matches!(written, Outcome::Ok { .. }), "{written:?}");
}

fn ship(primary: &Life, follower: &Life) {
    let shipment = primary.engine.shipment(follower.engine.last(), usize::MAX).unwrap();
    follower.engine.take(shipment).unwrap();
    follower.engine.apply().unwrap();
    follower.engine.sync_here(follower.engine.last().seq, &[]).unwrap();
}

/// The disks of a primary and of a copy that has the first of its files only.
fn one_behind() -> [SimDisk; 2] {
    let disks = [SimDisk::new(1), SimDisk::new(2)];
    let mut primary = Life::new(disks[0].clone(), true, 1);
    let follower = Life::following(disks[1].clone(), true, 2);
    primary.engine.begin_shipping();
    primary.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    primary.ask(0, ClientOp::Attach { mount: true }, &[]);
    write(&mut primary, 1, "one", &[1; LARGE]);
    ship(&primary, &follower);
    primary.engine.enter(Event::CheckpointWanted);
    primary.engine.tick();
    primary.engine.housekeep();
    write(&mut primary, 3, "two", &[2; LARGE]);
    write(&mut primary, 5, "three", b"small");
    primary.engine.reach().unwrap();
    drop((primary, follower));
    disks.map(|disk| disk.revive(Fault::ProcessDeath))
}

type Copy = (Engine<Overlay<SimDisk>>, OpenedLog);

fn open(disk: &SimDisk, keep_bytes: u64) -> Copy {
    let mut setup = Life::setup_of(false);
    setup.log.keep_bytes = keep_bytes;
    let overlay = Arc::new(Overlay::new(Arc::new(disk.clone())));
    let (engine, _, log) = Engine::open_following(overlay, setup, Arc::new(Nobody), Arc::new(Still)).unwrap();
    (engine, log)
}

fn take_from(copy: &Copy, other: &Copy) -> Result<u64, NotLevel> {
    copy.0.take_from(&copy.1, (&other.0, &other.1))
}

fn rows(engine: &Engine<Overlay<SimDisk>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    engine.settle_rows().unwrap();
    let rows = engine.snapshot().range(&[0], &[255], usize::MAX).unwrap();
    let is_own = |key: &[u8]| {
        matches!(RowKey::from_bytes(key), Some(RowKey::View(_) | RowKey::ViewName(..) | RowKey::Meta))
    };
    rows.into_iter().filter(|(key, _)| !is_own(key)).collect()
}

#[test]
fn a_copy_that_is_behind_takes_what_it_lacks_and_has_the_same_rows() {
    let disks = one_behind();
    let effects = [0, 1].map(|n| disks[n].effects());
    let copies = [0, 1].map(|n| open(&disks[n], 1 << 30));
    let behind = copies[0].0.last().seq - copies[1].0.last().seq;
    assert!(behind >= 4, "{behind}");
    assert_ne!(rows(&copies[0].0), rows(&copies[1].0));
    assert_eq!(take_from(&copies[1], &copies[0]).unwrap(), behind);
    assert_eq!(rows(&copies[0].0), rows(&copies[1].0));
    // It goes on from there, and has all bytes.
    assert_eq!(take_from(&copies[1], &copies[0]).unwrap(), 0);
    let effects_now = [0, 1].map(|n| disks[n].effects());
    assert_eq!(effects, effects_now, "the disks are as they were");
}

#[test]
fn a_copy_that_is_ahead_takes_nothing_and_says_by_how_much() {
    let disks = one_behind();
    let copies = [0, 1].map(|n| open(&disks[n], 1 << 30));
    let more = copies[0].0.last().seq - copies[1].0.last().seq;
    let told = take_from(&copies[0], &copies[1]);
    assert!(matches!(told, Err(NotLevel::Apart { more: m }) if m == more), "{told:?}");
}

#[test]
fn a_copy_that_has_led_by_itself_is_told_from_one_that_is_behind() {
    let disks = one_behind();
    // It begins another epoch, on top of less.
    let mut alone = Life::new(disks[1].clone(), false, 7);
    alone.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    alone.ask(0, ClientOp::Attach { mount: true }, &[]);
    alone.engine.reach().unwrap();
    drop(alone);
    let copies = [0, 1].map(|n| open(&disks[n], 1 << 30));
    for (one, other) in [(0, 1), (1, 0)] {
        let told = take_from(&copies[one], &copies[other]);
        assert!(matches!(told, Err(NotLevel::Apart { more: 1.. })), "{told:?}");
    }
}

#[test]
fn records_that_the_log_has_let_go_of_are_told() {
    let disks = one_behind();
    let mut primary = Life::new(disks[0].clone(), false, 7);
    primary.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    primary.ask(0, ClientOp::Attach { mount: true }, &[]);
    // More than a segment of the log.
    (0..300).for_each(|n| write(&mut primary, 100 + 2 * n, &format!("more{n}"), &[4; 4000]));
    primary.engine.stop().unwrap();
    drop(primary);
    let copies = [open(&disks[0], 0), open(&disks[1], 0)];
    let told = take_from(&copies[1], &copies[0]);
    let is_told = matches!(
        told,
        Err(NotLevel::NotShipped(NotShipped::Log(LogError::Released { .. })) | NotLevel::Foreign)
    );
    assert!(is_told, "{told:?}");
}
