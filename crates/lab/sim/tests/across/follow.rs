//! Files that follow their names: what must be true while they are on their way, and afterwards.

use atoll_core::Ino;
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Errno, Kind, LockKind, LockRange, Op, SetAttr};
use atoll_proto::{FileHandle, ParticipantWork, TxnState};
use atoll_sim::crash_points::{Point, Script, count, one, world};
use atoll_sim::{Config, Done, SlowDisks, World};
use bytes::Bytes;

use crate::bench::{Bench, CONTENT, H, S, T, has_work, id, name, node, power};

/// Longer than a file needs to follow its name.
const FOLLOWED_US: u64 = 3_000_000;
/// Longer than one needs that could not move at first: its pauses, and the plain tree that is laid without it.
const AGAIN_US: u64 = 70_000_000;

fn bench(seed: u64, islands: u16) -> Bench {
    let mut config = Config::new(seed, islands);
    (config.clients, config.delay_us_max, config.mounts) = (2, 300, true);
    // A file comes back when the tree is laid without it.
    (config.moves, config.lays) = (true, true);
    Bench::with(config)
}

/// A file of island S, known to both clients, gets its name at T.
fn renamed(bench: &mut Bench) -> Ino {
    let ino = bench.file(S, "a");
    bench.run(1, bench.lookup(S, "a")).unwrap();
    bench.rest();
    bench.ok(bench.rename((S, "a"), (T, "b")));
    ino
}

const fn is_arrival(work: &ParticipantWork) -> bool {
    matches!(work, ParticipantWork::ReceiveFile { .. })
}

fn write(bench: &mut Bench, client: usize, ino: Ino, offset: u64, data: &'static [u8]) {
    let op = Op::Write { ino, offset, append: false, kill_set_id: false };
    let done = bench.world.run(client, &atoll_posix::Caller::ROOT, op, Bytes::from_static(data)).unwrap();
    assert_eq!(done.unwrap().0, Answer::Wrote { len: data.len() as u64, offset });
}

fn bytes(bench: &mut Bench, client: usize, ino: Ino) -> Vec<u8> {
    bench.run(client, Op::Read { ino, offset: 0, len: 1 << 20 }).unwrap().1
}

#[test]
fn a_file_follows_its_name_and_who_has_it_open_goes_on() {
    for seed in 0..6 {
        let mut bench = bench(seed, 3);
        let ino = renamed(&mut bench);
        bench.wait(FOLLOWED_US);
        assert_eq!(bench.world.homes(ino), [id(T)], "it is homed with its name");
        // The second client has not looked it up since.
        bench.read(1, ino);
        write(&mut bench, 1, ino, 0, b"new");
        assert!(bytes(&mut bench, 0, ino).starts_with(b"new"));
        bench.ok(bench.unlink(T, "b"));
        assert!(bytes(&mut bench, 1, ino).starts_with(b"new"));
        for client in [0, 1] {
            bench.world.forget(client, &[ino]);
        }
        bench.settle();
        assert!(bench.world.homes(ino).is_empty(), "nothing is left of it");
    }
}

#[test]
fn a_write_through_an_old_handle_while_the_file_moves_is_kept() {
    let mut met = 0;
    for at in 0..20 {
        let mut bench = bench(at, 3);
        let ino = renamed(&mut bench);
        let arrives = |w: &World| has_work(w, T, TxnState::Prepared, is_arrival);
        met += u32::from(bench.step_until(1_000_000, arrives));
        bench.wait(at * 60);
        write(&mut bench, 1, ino, 10, b"late");
        let mut expected = CONTENT;
        expected[10..14].copy_from_slice(b"late");
        assert_eq!(bytes(&mut bench, 0, ino), expected, "after {} us", at * 60);
        bench.wait(AGAIN_US);
        assert_eq!(bytes(&mut bench, 1, ino), expected);
        bench.settle();
        assert_eq!(bench.world.homes(ino), [id(T)]);
    }
    assert!(met > 15, "moves were met under way: {met}");
}

#[test]
fn bytes_of_a_move_that_has_ended_do_not_get_into_the_next_one() {
    let mut met = 0;
    for seed in 0..12 {
        let mut bench = bench(seed, 3);
        let ino = renamed(&mut bench);
        bench.step_until(1_000_000, |w| has_work(w, T, TxnState::Prepared, is_arrival));
        // Its bytes are not in place yet when the file changes at its home, which ends the move.
        let mut slow = SlowDisks::new(&[node(T)]);
        while !slow.is_awaited() && bench.world.homes(ino) == [id(S)] {
            bench.world.step_slowly(&mut slow).unwrap();
        }
        write(&mut bench, 1, ino, 10, b"late");
        bench.wait(AGAIN_US);
        met += u32::from(slow.is_awaited() && bench.world.homes(ino) == [id(S)]);
        bench.world.disks_catch_up(slow);
        bench.wait(AGAIN_US);
        let mut expected = CONTENT;
        expected[10..14].copy_from_slice(b"late");
        assert_eq!(bytes(&mut bench, 0, ino), expected, "seed {seed}");
        bench.settle();
        assert_eq!(bench.world.homes(ino), [id(T)]);
    }
    assert!(met > 6, "moves ended while their bytes were on their way: {met}");
}

#[test]
fn names_that_change_while_the_file_moves_go_first() {
    for at in 0..24 {
        let mut bench = bench(at, 3);
        let ino = renamed(&mut bench);
        let arrives = |w: &World| has_work(w, T, TxnState::Prepared, is_arrival);
        bench.step_until(1_000_000, arrives);
        bench.wait(at * 50);
        match at % 4 {
            0 => {
                bench.ok(bench.unlink(T, "b"));
                bench.has_not(T, "b");
            }
            1 => {
                bench.ok(bench.rename((T, "b"), (H, "c")));
                bench.has(H, "c", ino, 1);
            }
            2 => {
                bench.ok(bench.link(ino, H, "c"));
                bench.has(H, "c", ino, 2);
                bench.has(T, "b", ino, 2);
            }
            _ => {
                let other = bench.file(H, "other");
                bench.ok(bench.rename((H, "other"), (T, "b")));
                bench.has(T, "b", other, 1);
            }
        }
        bench.wait(AGAIN_US);
        bench.settle();
        if at % 4 == 1 {
            bench.has(H, "c", ino, 1);
            assert_eq!(bench.world.homes(ino), [id(H)]);
        }
    }
}

#[test]
fn a_locked_file_stays_until_its_lock_is_given_up() {
    let mut bench = bench(1, 3);
    let ino = bench.file(S, "a");
    let lock = |kind| LockRange { kind, start: 0, end: u64::MAX, owner: 1, pid: 1, flock: false };
    let take = |kind| Op::SetLock { ino, lock: lock(kind), wait: false };
    bench.ok(take(LockKind::Write));
    bench.ok(bench.rename((S, "a"), (T, "b")));
    bench.wait(FOLLOWED_US);
    assert_eq!(bench.world.homes(ino), [id(S)]);
    bench.ok(take(LockKind::Unlock));
    bench.wait(20_000_000);
    assert_eq!(bench.world.homes(ino), [id(T)]);
    bench.settle();
}

#[test]
fn a_file_that_was_to_move_is_found_again_after_a_restart() {
    for seed in 0..4 {
        let mut bench = bench(seed, 3);
        // Nobody can take it yet.
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.world.come_back(node(T));
        let ino = renamed(&mut bench);
        if seed % 2 == 0 {
            bench.rest();
        }
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.restart(S, Fault::ProcessDeath);
        bench.wait(1_000_000);
        bench.back(T);
        bench.wait(30_000_000);
        assert_eq!(bench.world.homes(ino), [id(T)]);
        bench.has(T, "b", ino, 1);
        bench.settle();
    }
}

#[test]
fn a_file_that_moves_again_and_again_is_found_by_who_has_an_old_handle() {
    for seed in 0..4 {
        let mut bench = bench(seed, 3);
        let ino = renamed(&mut bench);
        let mut from = (T, "b");
        for (round, to) in [H, S, T, S, H, T].into_iter().enumerate() {
            bench.wait(if seed % 2 == 0 { FOLLOWED_US } else { 40_000 });
            bench.ok(bench.rename(from, (to, "x")));
            // That something before it may be lost is said once.
            let _ = bench.run(0, Op::FsyncDir { dir: bench.dirs[to] });
            bench.ok(Op::FsyncDir { dir: bench.dirs[to] });
            from = (to, "x");
            if round % 3 == 2 {
                bench.restart(round % 3, power(seed));
            }
        }
        bench.wait(AGAIN_US);
        bench.read(1, ino);
        bench.has(T, "x", ino, 1);
        assert_eq!(bench.world.homes(ino), [id(T)]);
        bench.settle();
    }
}

/// What a frontend does for a caller of whose file it knows only a handle from before a move: if the volume says
/// `ESTALE`, it looks everywhere, and asks again.
fn link_by_old_handle(bench: &mut Bench, ino: Ino, to: usize, n: &str) -> Done {
    let link = bench.link(ino, to, n);
    bench.world.forget(0, &[ino]);
    let first = bench.run(0, link.clone());
    if first != Err(Errno::ESTALE) {
        return first;
    }
    let token = bench.world.find(0, &FileHandle::File { ino, home: ino.minted_by() });
    bench.answer(0, token)?;
    bench.run(0, link)
}

/// All islands die, and start again.
fn restart_all(bench: &mut Bench, islands: usize) {
    (0..islands).for_each(|island| bench.world.stay_away(node(island), Fault::ProcessDeath));
    bench.wait(30_000);
    (0..islands).for_each(|island| bench.back(island));
}

#[test]
fn a_link_by_a_handle_from_before_the_file_moved_is_made_wherever_its_name_is_owned() {
    for (seed, to) in [S, T, H].into_iter().cycle().take(12).enumerate() {
        let mut bench = bench(seed as u64, 3);
        let ino = renamed(&mut bench);
        match seed / 3 {
            0 => bench.wait(FOLLOWED_US),
            1 => {
                bench.wait(FOLLOWED_US);
                restart_all(&mut bench, 3);
            }
            // It moves after the restart, or while it is linked.
            2 => restart_all(&mut bench, 3),
            _ => assert!(bench.step_until(FOLLOWED_US, |world| world.homes(ino) == [id(T)])),
        }
        let done = link_by_old_handle(&mut bench, ino, to, "link");
        assert!(matches!(done, Ok((Answer::Found { .. }, _))), "seed {seed}, at {to}: {done:?}");
        bench.has(to, "link", ino, 2);
        bench.settle();
    }
}

#[test]
fn a_link_by_an_old_handle_does_not_wait_for_another_mount_to_hear_of_the_move() {
    for to in [S, T, H] {
        let mut bench = bench(to as u64, 3);
        let ino = renamed(&mut bench);
        // Mounts keep nothing for a moment behind the rename of a directory: a change would wait for one that may have kept the file.
        let dir = bench.dirs[S];
        bench.ok(Op::Mkdir { dir, name: name("d"), mode: 0o755, umask: 0 });
        bench.ok(bench.rename((S, "d"), (S, "e")));
        // The old home remembers the move for this mount, and the other one has heard of it.
        bench.world.suspend(1, 10_000_000);
        bench.wait(FOLLOWED_US);
        assert_eq!(bench.world.homes(ino), [id(T)]);
        let begun_us = bench.world.now_us();
        let done = link_by_old_handle(&mut bench, ino, to, "link");
        assert!(matches!(done, Ok((Answer::Found { .. }, _))), "at {to}: {done:?}");
        assert!(bench.world.now_us() < begun_us + 500_000, "at {to}: it has waited");
        bench.has(to, "link", ino, 2);
    }
}

#[test]
fn a_link_of_a_file_that_is_gone_is_refused_as_stale() {
    for to in [S, T, H] {
        let mut bench = bench(to as u64, 3);
        let ino = renamed(&mut bench);
        bench.wait(FOLLOWED_US);
        bench.ok(bench.unlink(T, "b"));
        bench.world.forget(1, &[ino]);
        bench.world.forget(0, &[ino]);
        bench.settle();
        assert!(bench.world.homes(ino).is_empty());
        assert_eq!(link_by_old_handle(&mut bench, ino, to, "link"), Err(Errno::ESTALE), "at {to}");
        bench.has_not(to, "link");
    }
}

#[test]
fn a_symbolic_link_that_has_gone_and_come_back_before_a_crash_is_one_in_the_plain_tree() {
    let mut bench = bench(1, 3);
    let (dir, target) = (bench.dirs[S], Bytes::from_static(b"target"));
    let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
    let create = Op::Create { dir, name: name("a"), kind, mode, umask, rdev, exclusive, target };
    let Ok((Answer::Found { found }, _)) = bench.run(0, create) else { panic!("it is not made") };
    bench.rest();
    for (from, to) in [((S, "a"), (T, "b")), ((T, "b"), (S, "a"))] {
        bench.ok(bench.rename(from, to));
        // Not longer, so that the plain tree does not have it yet.
        assert!(bench.step_until(AGAIN_US, |world| world.homes(found.attr.ino) == [id(to.0)]));
    }
    bench.restart(S, Fault::ProcessDeath);
    bench.wait(FOLLOWED_US);
    bench.settle();
}

#[test]
fn a_repeated_change_of_a_file_that_has_moved_since_is_not_made_twice() {
    for at in 0..12 {
        let mut bench = bench(at, 3);
        let ino = renamed(&mut bench);
        // Cuts the file; the answer is lost, and the client comes back when the file has gone.
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let token = bench.call(1, Op::SetAttr { ino, set });
        bench.wait(at * 70);
        bench.world.break_client_links(1);
        write(&mut bench, 0, ino, 0, b"mine");
        bench.wait(FOLLOWED_US);
        bench.answer(1, token).unwrap();
        let left = bytes(&mut bench, 0, ino);
        assert!(left.is_empty() || left == b"mine", "{left:?}");
        bench.settle();
    }
}

#[test]
fn a_file_on_its_way_when_either_island_dies_is_at_one_of_them() {
    for at in 0..24 {
        let mut bench = bench(at, 3);
        let ino = renamed(&mut bench);
        bench.ok(Op::Fsync { ino });
        let arrives = |w: &World| has_work(w, T, TxnState::Prepared, is_arrival);
        bench.step_until(1_000_000, arrives);
        bench.wait(at * 50);
        let who = if at % 2 == 0 { S } else { T };
        let fault = if at % 4 < 2 { Fault::ProcessDeath } else { power(at) };
        bench.restart(who, fault);
        bench.read(1, ino);
        bench.wait(FOLLOWED_US);
        let b = bench.at(T, "b");
        let a = bench.at(S, "a");
        assert!(b == Ok(ino) || a == Ok(ino), "one name is left");
        bench.read(0, ino);
        bench.wait(20_000_000);
        bench.settle();
        assert_eq!(bench.world.homes(ino).len(), 1);
    }
}

/// Each island at each effect, from the rename to the last message of the move.
fn dies_everywhere(fault: impl Fn(u64) -> Fault) {
    let (islands, seed) = (2, 7);
    for (island, effects) in count(Script::Follow, islands, seed).unwrap().into_iter().enumerate() {
        for effect in 1..=effects {
            let mut world = world(Script::Follow, islands, seed).unwrap();
            let point = Point { node: node(island), effect, fault: fault(effect) };
            let told = one(&mut world, Script::Follow, Some(point));
            told.unwrap_or_else(|why| panic!("{point:?}: {why}"));
        }
    }
}

#[test]
fn a_file_that_follows_its_name_is_whole_whichever_process_dies_when() {
    dies_everywhere(|_| Fault::ProcessDeath);
}

#[test]
fn a_file_that_follows_its_name_is_whole_whichever_power_fails_when() {
    dies_everywhere(power);
}

#[test]
fn a_checkpoint_on_a_full_disk_waits_for_space() {
    let mut bench = Bench::new(1, 1);
    bench.rest();
    let ino = bench.file(S, "a");
    bench.world.fill_disk(node(S), 0);
    bench.world.checkpoint(id(S));
    bench.world.run_for(5_000_000).unwrap();
    assert_eq!(bytes(&mut bench, 0, ino), CONTENT);
    bench.world.free_disk(node(S));
    bench.rest();
    assert_eq!(bytes(&mut bench, 0, ino), CONTENT);
    let lives = bench.world.tail(4_000).matches("begins, Report").count();
    assert_eq!(lives, 1, "the island has stopped over a full disk");
}
