//! Checkpoints: how many are made, and what an orderly stop leaves.

mod common;

use atoll_core::{Ino, Name};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::Report;
use atoll_island::Event;
use atoll_posix::{Kind, Op};
use atoll_proto::ClientOp;
use bytes::Bytes;
use common::Life;

fn make(life: &mut Life, seq: u64, name: &[u8]) {
    let name = Name::new(name).unwrap();
    let (kind, mode, umask, rdev, exclusive, target) = (Kind::Regular, 0o644, 0, 0, true, Bytes::new());
    let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
    life.ask(seq, ClientOp::Fs { op }, &[]);
}

#[test]
fn a_stop_is_orderly_and_makes_one_checkpoint() {
    let disk = SimDisk::new(1);
    let mut life = Life::new(disk.clone(), true, 1);
    life.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    life.ask(0, ClientOp::Attach { mount: true }, &[]);
    make(&mut life, 1, b"file");
    life.engine.stop().unwrap();
    assert_eq!(life.engine.counters().checkpoints, 1);
    drop(life);
    // Whatever is not synced by then may be lost.
    let life = Life::new(disk.revive(Fault::PowerCut { seed: 1 }), false, 2);
    assert_eq!(life.report, Report::default());
}

#[test]
fn an_idle_island_has_nothing_behind_its_checkpoint() {
    let mut life = Life::new(SimDisk::new(1), true, 1);
    life.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    life.ask(0, ClientOp::Attach { mount: true }, &[]);
    make(&mut life, 1, b"file");
    life.engine.enter(Event::CheckpointWanted);
    for _ in 0..4 {
        life.engine.tick();
        life.engine.housekeep();
    }
    assert_eq!(life.engine.counters().checkpoints, 1);
    life.engine.with_island(|island| assert_eq!(island.state().seq(), island.state().meta().seq));
}
