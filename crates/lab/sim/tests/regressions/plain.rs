//! What it has found of plain trees.

use atoll_core::{Ino, IslandId, NodeId};
use atoll_disk::sim::Fault;
use atoll_posix::{Allocation, Caller, Errno, Op};
use atoll_sim::Config;
use bytes::Bytes;

use crate::Bench;

/// A daemon is killed while bytes are put behind the end of a file that nobody has touched since the last
/// checkpoint: its plain file is as long as the file again, though no record tells of them and nobody reads it.
#[test]
fn a_plain_file_is_not_longer_than_its_file_after_a_death() {
    let long = Bytes::from_static(&[7; 50_000]);
    let allocate = |ino| {
        let what = Allocation::Allocate { keep_size: false };
        (Op::Fallocate { ino, offset: 0, len: 50_000, what }, Bytes::new())
    };
    let append = |ino| (Op::Write { ino, offset: 0, append: true, kill_set_id: false }, long.clone());
    let mut deaths = 0;
    for effect in 1..12 {
        for makes in [&append as &dyn Fn(Ino) -> (Op, Bytes), &allocate] {
            let mut config = Config::new(effect, 1);
            (config.clients, config.lays) = (1, true);
            let mut bench = Bench::new(config);
            let ino = bench.file(Ino::ROOT, "f", 0o644);
            bench.write(ino, 0, &[1; 100]);
            bench.world.settle().unwrap();
            bench.world.checkpoint_all().unwrap();
            bench.world.settle().unwrap();
            let (op, data) = makes(ino);
            bench.world.arm(NodeId(0), effect, Fault::ProcessDeath);
            bench.world.call(0, &Caller::ROOT, op, data, 0);
            let end = bench.world.now_us() + 1_000_000;
            while bench.world.is_up(NodeId(0)) && bench.world.now_us() < end {
                bench.world.step().unwrap();
            }
            if bench.world.is_up(NodeId(0)) {
                continue;
            }
            deaths += 1;
            // Before the request comes again.
            while !bench.world.serves(IslandId(0)) {
                bench.world.step().unwrap();
            }
            bench.world.audit_all().unwrap_or_else(|why| panic!("death at effect {effect}: {why}"));
        }
    }
    assert!(deaths >= 6, "{deaths}");
}

/// It has changed the plain file, and no record tells of it.
#[test]
fn a_write_that_failed_is_no_change_by_hand() {
    let mut failed = 0;
    for effect in 1..6 {
        let mut config = Config::new(effect, 1);
        (config.clients, config.lays) = (1, true);
        let mut bench = Bench::new(config);
        let ino = bench.file(Ino::ROOT, "f", 0o644);
        bench.world.checkpoint_all().unwrap();
        bench.world.audit_all().unwrap();
        bench.world.fail_disk(NodeId(0), effect, false);
        let op = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
        let token = bench.world.call(0, &Caller::ROOT, op, Bytes::from_static(&[2; 90_000]), 0);
        bench.world.run_for(1_000_000).unwrap();
        failed += usize::from(bench.world.poll(0, token) == Some(Err(Errno::EIO)));
        bench.world.settle().unwrap();
        bench.world.checkpoint_all().unwrap();
        bench.world.audit_all().unwrap_or_else(|why| panic!("effect {effect}: {why}"));
    }
    assert!(failed > 0);
}
