//! Further sequences: requests that are repeated, files that are open, names that are lent, what was synced.

use atoll_core::{Ino, Key, Table};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_proto::TxnState;
use atoll_sim::{Config, SlowDisks, World};
use bytes::Bytes;

use crate::bench::{Bench, H, S, T, has_work, id, is_home, is_lend, name, node, power};

#[test]
fn a_repeated_unlink_does_not_remove_anothers_new_file() {
    for at in 0..40 {
        let mut bench = Bench::new(at, 3);
        bench.pointer(H, T, "b");
        bench.rest();
        let unlink = bench.call(0, bench.unlink(T, "b"));
        let gone = |w: &World| has_work(w, T, TxnState::Committed, is_home);
        assert!(bench.step_until(1_000_000, gone));
        bench.world.break_client_links(0);
        bench.wait(at * 20);
        if at % 2 == 0 {
            bench.restart(T, Fault::ProcessDeath);
        }
        // Another client makes a file of this name, while the first one repeats its request.
        let (dir, target) = (bench.dirs[T], Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let create = Op::Create { dir, name: name("b"), kind, mode, umask, rdev, exclusive, target };
        let create = bench.call(1, create);
        let made = match bench.answer(1, create) {
            Ok((Answer::Found { found }, _)) => found.attr.ino,
            other => panic!("{other:?}"),
        };
        bench.answer(0, unlink).unwrap();
        bench.settle();
        assert_eq!(bench.at(T, "b"), Ok(made), "after {} us", at * 20);
    }
}

/// Its answer is lost, and when it is asked for again something is prepared for the file: it waits for that as what has
/// been done, and is not done once more, which would take away what somebody has appended since.
#[test]
fn a_repeated_truncation_that_has_to_wait_is_not_made_twice() {
    let mut waited = 0;
    for at in 0..30 {
        let mut bench = Bench::new(at, 3);
        let ino = bench.file(T, "f");
        bench.rest();
        let set = SetAttr { size: Some(10), ..SetAttr::default() };
        let cut = bench.call(1, Op::SetAttr { ino, set });
        bench.wait(at * 30);
        bench.world.break_client_links(1);
        let append = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
        let done = bench.world.run(0, &Caller::ROOT, append, Bytes::from_static(b"mine")).unwrap();
        let Ok((Answer::Wrote { offset, .. }, _)) = done else { panic!("{done:?}") };
        let link = bench.call(0, bench.link(ino, S, "g"));
        if bench.step_until(1_000_000, |w| has_work(w, T, TxnState::Prepared, is_home)) {
            bench.world.stay_away(node(S), Fault::ProcessDeath);
            bench.wait(500_000);
            waited += u32::from(offset == 10);
            bench.back(S);
        }
        bench.answer(1, cut).unwrap();
        bench.answer(0, link).unwrap();
        bench.settle();
        let Ok((Answer::Attr { attr }, _)) = bench.run(0, Op::GetAttr { ino }) else { panic!("it is gone") };
        assert_eq!(attr.size, if offset == 10 { 14 } else { 10 }, "after {} us", at * 30);
    }
    assert!(waited > 0);
}

#[test]
fn the_first_of_two_hard_links_goes_while_the_second_is_open() {
    for seed in 0..20 {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max, config.mounts) = (2, 300, true);
        let mut bench = Bench::with(config);
        let ino = bench.file(H, "a");
        bench.ok(bench.link(ino, T, "b"));
        bench.run(1, bench.lookup(T, "b")).unwrap();
        bench.ok(bench.unlink(H, "a"));
        bench.restart((seed % 3) as usize, Fault::ProcessDeath);
        bench.read(1, ino);
        bench.has(T, "b", ino, 1);
        bench.ok(bench.unlink(T, "b"));
        bench.wait(1_000_000);
        bench.read(1, ino);
        for client in [0, 1] {
            bench.world.forget(client, &[ino]);
        }
        bench.wait(3_000_000);
        bench.settle();
    }
}

#[test]
fn a_file_that_was_synced_long_ago_is_not_lost_by_the_island_it_is_renamed_to() {
    for seed in 0..60 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(S, "a");
        bench.ok(Op::Fsync { ino });
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.wait(seed * 40);
        bench.lose(T, seed);
        if seed % 3 == 0 {
            bench.restart(S, power(seed));
        }
        bench.back(T);
        bench.settle();
        // S may have lost its part with T's: then it is where it was.
        match (bench.at(S, "a"), bench.at(T, "b")) {
            (Ok(there), Err(Errno::ENOENT)) if seed % 3 == 0 => assert_eq!(there, ino),
            (Err(Errno::ENOENT), Ok(there)) => assert_eq!(there, ino),
            other => panic!("seed {seed}: {other:?}"),
        }
        bench.read(0, ino);
    }
}

#[test]
fn a_directory_whose_absent_name_is_lent_is_not_removed() {
    for seed in 0..30 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.file(S, "a");
        bench.rest();
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        assert!(bench.step_until(1_000_000, |w| has_work(w, T, TxnState::Prepared, is_lend)));
        if seed % 2 == 0 {
            bench.restart(if seed % 4 == 0 { S } else { T }, Fault::ProcessDeath);
        }
        let rmdir = bench.call(1, Op::Rmdir { dir: Ino::ROOT, name: bench.names[T].clone(), meant: None });
        let (rename, rmdir) = (bench.answer(0, rename), bench.answer(1, rmdir));
        bench.settle();
        match (rename, rmdir) {
            (Ok(_), Err(Errno::ENOTEMPTY)) => bench.has(T, "b", ino, 1),
            (Err(Errno::ENOENT | Errno::ESTALE), Ok(_)) => bench.has(S, "a", ino, 1),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn a_file_without_a_name_goes_although_nobody_was_told_that_it_is_an_orphan() {
    for seed in 0..12 {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max, config.mounts) = (1, 300, true);
        let mut bench = Bench::with(config);
        let ino = bench.pointer(H, S, "a");
        bench.rest();
        let unlink = bench.call(0, bench.unlink(S, "a"));
        assert!(bench.step_until(1_000_000, |w| has_work(w, S, TxnState::Committed, is_home)));
        // The home does not get to tell its mounts.
        bench.restart(H, Fault::ProcessDeath);
        bench.answer(0, unlink).unwrap();
        bench.world.settle().unwrap();
        bench.world.forget(0, &[ino]);
        bench.wait(10_000_000);
        bench.settle();
        assert!(bench.run(0, Op::GetAttr { ino }).is_err(), "seed {seed}: nobody has it open");
    }
}

#[test]
fn a_new_file_that_gets_a_name_elsewhere_while_a_checkpoint_begins_is_not_lost() {
    let mut met = 0;
    for seed in 0..30 {
        let mut bench = Bench::new(seed, 3);
        bench.rest();
        let mut slow = SlowDisks::new(&[node(H)]);
        let ino = bench.file(H, "a");
        bench.world.step_slowly(&mut slow).unwrap();
        bench.world.checkpoint(id(H));
        let link = bench.call(0, bench.link(ino, T, "b"));
        let end = bench.world.now_us() + 300_000;
        let mut done = None;
        while bench.world.now_us() < end && done.is_none() {
            bench.world.step_slowly(&mut slow).unwrap();
            done = bench.world.poll(0, link);
        }
        let Some(done) = done else {
            // It waits, as it should.
            bench.world.disks_catch_up(slow);
            bench.answer(0, link).unwrap();
            continue;
        };
        done.unwrap();
        met += 1;
        let fsync = bench.call(0, Op::FsyncDir { dir: bench.dirs[T] });
        bench.answer(0, fsync).unwrap();
        bench.lose(H, seed);
        drop(slow);
        bench.back(H);
        bench.settle();
        assert_eq!(bench.at(T, "b"), Ok(ino), "seed {seed}, {met} met");
    }
}

#[test]
fn attributes_that_change_while_a_directory_gets_another_name_beside_it_stay_in_its_stub() {
    // Whose directory it is: the island's that coordinates the rename, as the root's owner, or another's.
    let root = usize::from(Table::new(4).owner(Key(0)).0);
    for (seed, mode) in (0..60).zip([RenameMode::Replace, RenameMode::Exchange].into_iter().cycle()) {
        let (moved, other) =
            [(root, (root + 1) % 4), ((root + 1) % 4, (root + 2) % 4)][seed as usize / 2 % 2];
        let mut bench = Bench::new(seed, 4);
        let (dir, names) = (Ino::ROOT, bench.names.clone());
        let beside = match mode {
            RenameMode::Exchange => {
                let ino = bench.file(other, "a");
                bench.ok(Op::Link { ino, dir, name: name("b") });
                name("b")
            }
            _ => names[other].clone(),
        };
        bench.rest();
        let ino = bench.dirs[moved];
        let rename = Op::Rename {
            dir,
            name: names[moved].clone(),
            new_dir: dir,
            new_name: beside,
            mode,
            meant: None,
            new_meant: None,
        };
        let rename = bench.call(0, rename);
        bench.wait(100 + seed * 17);
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let chmod = bench.call(1, Op::SetAttr { ino, set });
        bench.answer(0, rename).unwrap();
        bench.answer(1, chmod).unwrap();
        // The stub tells what the directory has.
        bench.settle();
    }
}

#[test]
fn a_vote_outlives_the_process_that_gave_it_though_its_coordinator_is_away() {
    for effect in 1..6 {
        let mut bench = Bench::new(effect, 3);
        // A directory's first name that is lent is synced before the vote.
        bench.file(S, "first");
        bench.ok(bench.rename((S, "first"), (T, "first")));
        let ino = bench.file(S, "a");
        bench.rest();
        bench.world.arm(node(T), effect, Fault::ProcessDeath);
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        if !bench.step_until(500_000, |world| !world.is_up(node(T))) {
            continue;
        }
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.wait(300_000);
        let told = bench.world.poll(0, rename);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.back(T);
        if told.is_some() {
            assert!([Ok(ino), Err(Errno::EIO)].contains(&bench.at(T, "b")), "effect {effect}: {told:?}");
        }
        bench.back(S);
        told.unwrap_or_else(|| bench.answer(0, rename)).unwrap();
        bench.has(T, "b", ino, 1);
        bench.settle();
    }
}

#[test]
fn what_gives_way_to_a_name_that_comes_again_gets_one_that_is_free() {
    let mut met = 0;
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        // A directory's first name that is lent is synced before the vote.
        bench.file(S, "first");
        bench.ok(bench.rename((S, "first"), (T, "first")));
        let (old, new) = (bench.file(T, "b"), bench.file(S, "a"));
        // The name that it would get beside its own.
        let beside = format!("b.atoll-{:x}", old.0);
        bench.ok(bench.link(old, T, &beside));
        bench.rest();
        bench.ok(bench.rename((T, "b"), (T, "c")));
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.lose(T, seed);
        bench.back(T);
        bench.settle();
        bench.has(T, "b", new, 1);
        assert_eq!(bench.at(T, &beside), Ok(old));
        let other = format!("{beside}-2");
        let is_beside = bench.at(T, &other).is_ok();
        met += usize::from(is_beside);
        bench.has(T, if is_beside { &other } else { "c" }, old, 2);
    }
    assert!(met > 5, "{met}");
}

#[test]
fn an_fsync_fails_if_what_was_written_before_is_lost() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(S, "a");
        bench.rest();
        let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        let written = bench.world.run(0, &Caller::ROOT, write, Bytes::from_static(&[8; 5000])).unwrap();
        assert!(written.is_ok());
        bench.lose(S, seed);
        bench.back(S);
        let synced = bench.run(0, Op::Fsync { ino });
        let read = bench.run(0, Op::Read { ino, offset: 0, len: 5000 });
        let is_there = read.is_ok_and(|(_, bytes)| bytes == [8; 5000]);
        assert!(is_there || synced.is_err(), "seed {seed}");
    }
}
