//! What an `fsync` has made sure of while another client changes the same file: after a power cut every byte is one
//! that somebody wrote, and none is missing.

use atoll_core::Ino;
use atoll_posix::{Answer, Caller, Kind, Op};
use bytes::Bytes;

use crate::bench::{Bench, name, node, power};

/// More than a record carries.
const LARGE: usize = 64 * 1024;
/// As much as a record carries easily.
const SMALL: usize = 5_000;

fn empty_file(bench: &mut Bench, n: &str) -> Ino {
    let (dir, target) = (bench.dirs[0], Bytes::new());
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    let create = Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target };
    let Ok((Answer::Found { found }, _)) = bench.run(0, create) else { panic!("{n} is not made") };
    bench.run(1, bench.lookup(0, n)).unwrap();
    found.attr.ino
}

fn write(bench: &mut Bench, client: usize, ino: Ino, byte: u8, len: usize) -> u64 {
    let op = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
    bench.world.call(client, &Caller::ROOT, op, Bytes::from(vec![byte; len]), 0)
}

/// Client 0 makes a file, writes `first` bytes of 1 and syncs it, while client 1 writes `second` bytes of 2 over
/// them. When the sync is answered the power fails, after so long. Every byte must be a 1 or a 2.
fn synced_while_overwritten(first: usize, second: usize, seed: u64, before: bool, after_us: u64) {
    let mut bench = Bench::new(seed, 1);
    let ino = empty_file(&mut bench, "f");
    let other = empty_file(&mut bench, "other");
    let wrote = write(&mut bench, 0, ino, 1, first);
    bench.answer(0, wrote).unwrap();
    bench.world.slow_disk(node(0), 1_000);
    let early = before.then(|| write(&mut bench, 1, ino, 2, second));
    if before {
        bench.wait(seed % 40 * 50);
    }
    let fsync = bench.call(0, Op::Fsync { ino });
    if early.is_none() {
        bench.wait(seed % 40 * 50);
    }
    let late = early.unwrap_or_else(|| write(&mut bench, 1, ino, 2, second));
    bench.answer(0, fsync).unwrap();
    if after_us > 0 {
        // Somebody else has the log synced, and not this file's bytes.
        bench.answer(1, late).unwrap();
        bench.run(1, Op::Fsync { ino: other }).unwrap();
    }
    bench.wait(after_us);
    bench.restart(0, power(seed));
    bench.world.mend_disks();
    bench.settle();
    let read = Op::Read { ino, offset: 0, len: u32::try_from(LARGE).unwrap() };
    let (_, bytes) = bench.run(0, read).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(bytes.len() >= first, "seed {seed}: {} bytes of {first} are left", bytes.len());
    let strange = bytes[..first].iter().position(|b| ![1, 2].contains(b));
    assert_eq!(strange, None, "seed {seed}: a byte that nobody wrote");
}

#[test]
fn a_new_file_that_was_synced_is_not_cut_because_another_writes_over_it() {
    for seed in 0..120 {
        synced_while_overwritten(LARGE, LARGE, seed, false, 0);
        synced_while_overwritten(LARGE, SMALL, seed, false, 0);
    }
}

#[test]
pub(crate) fn what_was_synced_lies_safe_below_a_large_write_that_began_before_the_sync() {
    for seed in 0..120 {
        synced_while_overwritten(SMALL, LARGE, seed, true, 1);
        synced_while_overwritten(SMALL, LARGE, seed, false, 1);
    }
}
