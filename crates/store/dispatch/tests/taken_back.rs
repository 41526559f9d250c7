//! A large write whose bytes a power cut has taken, although its record is there: whoever has not heard the answer, and
//! asks again, has them written again.

mod common;

use atoll_core::{Ino, Name};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_island::Event;
use atoll_posix::{Answer, Kind, Op};
use atoll_proto::{ClientOp, Outcome};
use bytes::Bytes;
use common::Life;

/// Runs in which the power cut takes bytes.
const RUNS: u32 = 5;
/// More than a record carries.
const LARGE: usize = 64 * 1024;

/// There is room, and a mount.
fn start(life: &mut Life) {
    life.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    life.ask(0, ClientOp::Attach { mount: true }, &[]);
}

fn fs(life: &mut Life, seq: u64, op: Op, data: &[u8]) -> (Outcome, Vec<u8>) {
    life.ask(seq, ClientOp::Fs { op }, data)
}

fn create() -> Op {
    let (name, target) = (Name::new(b"file").unwrap(), Bytes::new());
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target }
}

#[test]
fn a_large_write_whose_bytes_a_power_cut_took_is_done_again_when_it_is_asked_for_again() {
    let mut met = 0;
    for seed in 0..200 {
        if met == RUNS {
            return;
        }
        let disk = SimDisk::new(seed);
        let mut life = Life::new(disk.clone(), true, 1);
        start(&mut life);
        let (made, _) = fs(&mut life, 1, create(), &[]);
        let Outcome::Ok { answer: Answer::Found { found }, .. } = made else { panic!("{made:?}") };
        let ino = found.attr.ino;
        fs(&mut life, 0, Op::Fsync { ino }, &[]);
        let bytes = vec![7; LARGE];
        let write = || Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        fs(&mut life, 2, write(), &bytes);
        assert_eq!(life.damage(), [""; 0]);
        // The power fails before the answer arrives.
        drop(life);
        let mut life = Life::new(disk.revive(Fault::PowerCut { seed }), false, 2);
        start(&mut life);
        assert_eq!(life.damage(), [""; 0]);
        if life.report.corrected.is_empty() {
            continue;
        }
        met += 1;
        let (again, _) = fs(&mut life, 2, write(), &bytes);
        assert!(matches!(again, Outcome::Ok { answer: Answer::Wrote { .. }, .. }), "{again:?}");
        let (_, read) = fs(&mut life, 0, Op::Read { ino, offset: 0, len: LARGE as u32 }, &[]);
        assert!(read == bytes, "seed {seed}: it was answered, and {} bytes are not there", {
            LARGE - read.iter().filter(|byte| **byte == 7).count()
        });
        assert_eq!(life.damage(), [""; 0]);
    }
    panic!("in {met} runs of 200 the power cut took bytes");
}
