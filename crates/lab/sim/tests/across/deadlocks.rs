//! Owners of locks that would wait for each other: who would close the circle is refused.

use atoll_core::Ino;
use atoll_posix::{Errno, LockKind, LockRange, Op};

use crate::bench::{Bench, H, T};

/// The lock of an owner on a byte.
fn lock(ino: Ino, owner: u64, byte: u64, kind: LockKind) -> Op {
    let lock = LockRange { start: byte, end: byte, kind, owner, pid: 1, flock: false };
    Op::SetLock { ino, lock, wait: true }
}

fn write(ino: Ino, owner: u64, byte: u64) -> Op {
    lock(ino, owner, byte, LockKind::Write)
}

fn begins(bench: &mut Bench, client: usize, op: Op) -> u64 {
    let token = bench.call(client, op);
    bench.wait(100_000);
    token
}

fn ends(bench: &mut Bench, client: usize, token: u64) -> Result<(), Errno> {
    bench.answer(client, token).map(drop)
}

#[test]
fn who_would_wait_for_himself_is_told_so_and_the_others_go_on() {
    let mut bench = Bench::new(1, 3);
    // Of one island.
    let (file, other) = (bench.file(T, "f"), bench.file(T, "g"));
    bench.run(0, write(file, 1, 0)).unwrap();
    bench.run(1, write(file, 2, 1)).unwrap();
    bench.run(1, write(other, 3, 0)).unwrap();
    // 1 waits for 2, and 2 for 3, in another file.
    let first = begins(&mut bench, 0, write(file, 1, 1));
    let second = begins(&mut bench, 1, write(other, 2, 0));
    assert_eq!(bench.run(1, write(file, 3, 0)).map(drop), Err(Errno::EDEADLK));
    // A number of another client is another owner.
    let stranger = begins(&mut bench, 0, write(file, 3, 0));
    bench.run(1, lock(other, 3, 0, LockKind::Unlock)).unwrap();
    assert_eq!(ends(&mut bench, 1, second), Ok(()));
    bench.run(1, lock(file, 2, 1, LockKind::Unlock)).unwrap();
    assert_eq!(ends(&mut bench, 0, first), Ok(()));
    bench.run(0, lock(file, 1, 0, LockKind::Unlock)).unwrap();
    assert_eq!(ends(&mut bench, 0, stranger), Ok(()));
}

#[test]
fn a_circle_through_a_lock_that_several_read_is_found() {
    let mut bench = Bench::new(2, 3);
    let file = bench.file(T, "f");
    for owner in [1, 2, 3] {
        bench.run(0, lock(file, owner, 0, LockKind::Read)).unwrap();
    }
    // All have it for reading, and the last of them waits too.
    let third = begins(&mut bench, 0, write(file, 3, 0));
    assert_eq!(bench.run(0, write(file, 1, 0)).map(drop), Err(Errno::EDEADLK));
    for owner in [1, 2] {
        bench.run(0, lock(file, owner, 0, LockKind::Unlock)).unwrap();
    }
    assert_eq!(ends(&mut bench, 0, third), Ok(()));
}

/// Of flock(2) Linux does not look for circles either. Of two islands nobody does.
#[test]
fn who_waits_for_locks_of_flock_or_of_another_island_waits() {
    let mut bench = Bench::new(3, 3);
    let files = [bench.file(T, "f"), bench.file(T, "g")];
    let flock = |ino, owner, kind| {
        let lock = LockRange { start: 0, end: u64::MAX, kind, owner, pid: 1, flock: true };
        Op::SetLock { ino, lock, wait: true }
    };
    for (ino, owner) in [(files[0], 1), (files[1], 2)] {
        bench.run(0, flock(ino, owner, LockKind::Write)).unwrap();
    }
    let first = begins(&mut bench, 0, flock(files[1], 1, LockKind::Write));
    let second = begins(&mut bench, 0, flock(files[0], 2, LockKind::Write));
    assert_eq!([first, second].map(|token| bench.world.poll(0, token)), [None, None]);
    let elsewhere = bench.file(H, "h");
    bench.run(1, write(files[0], 1, 9)).unwrap();
    bench.run(1, write(elsewhere, 2, 9)).unwrap();
    let first = begins(&mut bench, 1, write(elsewhere, 1, 9));
    let second = begins(&mut bench, 1, write(files[0], 2, 9));
    assert_eq!([first, second].map(|token| bench.world.poll(1, token)), [None, None]);
}
