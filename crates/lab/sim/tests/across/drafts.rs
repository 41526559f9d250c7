//! The sequences that broke a draft of design 002, by their numbers there.

use atoll_core::{Ino, SessionId};
use atoll_disk::sim::Fault;
use atoll_model::{Step, Strictness};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_proto::TxnState;
use atoll_sim::{Config, Done, Judge, SlowDisks, World, invariants};
use bytes::Bytes;

use crate::bench::{Bench, H, S, T, has_work, is_home, name, node, owned_by, power};

/// [1], [2b]: S loses its commit, and restarts without the file's home, or without T.
fn a_coordinator_loses_its_commit(home: usize, without: usize) {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 4);
        let ino = if home == S { bench.file(S, "a") } else { bench.pointer(home, S, "a") };
        bench.rest();
        let token = bench.call(0, bench.rename((S, "a"), (T, "b")));
        if seed % 2 == 0 {
            // As soon as the commit is there.
            assert!(bench.step_until(5_000_000, |w| has_work(w, S, TxnState::Committed, |_| true)));
        } else {
            bench.wait(seed * 60);
        }
        bench.lose(S, seed);
        bench.world.stay_away(node(without), Fault::ProcessDeath);
        bench.back(S);
        bench.wait(1_500_000);
        bench.back(without);
        bench.settle();
        bench.answer(0, token).unwrap();
        // The request is repeated after the power cut, and done again if it was lost; unless it had been
        // answered, and not been synced yet: then it has not happened at all.
        if bench.at(S, "a").is_ok() {
            bench.has(S, "a", ino, 1);
            bench.has_not(T, "b");
        } else {
            bench.has_not(S, "a");
            bench.has(T, "b", ino, 1);
        }
    }
}

#[test]
fn a_rename_whose_commit_is_lost_while_the_home_is_away_leaves_one_name() {
    a_coordinator_loses_its_commit(H, H);
    a_coordinator_loses_its_commit(S, T);
}

#[test]
fn a_file_with_a_name_that_only_another_island_knows_of_is_not_removed() {
    // [2a]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(H, "a");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        if seed % 2 == 0 {
            assert!(bench.step_until(5_000_000, |w| !has_work(w, H, TxnState::Prepared, is_home)));
        }
        bench.lose(H, seed);
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.back(H);
        let unlink = bench.call(0, bench.unlink(H, "a"));
        bench.wait(3_000_000);
        bench.back(T);
        bench.answer(0, unlink).unwrap();
        bench.settle();
        bench.has_not(H, "a");
        bench.has(T, "b", ino, 1);
        bench.ok(bench.unlink(T, "b"));
        bench.settle();
    }
}

#[test]
fn a_coordinator_without_its_commit_may_remove_the_old_name() {
    // [2b]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(S, "a");
        bench.rest();
        let mut slow = SlowDisks::new(&[node(S)]);
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        while !has_work(&bench.world, S, TxnState::Committed, |_| true) {
            bench.world.step_slowly(&mut slow).unwrap();
        }
        bench.world.break_client_links(0);
        bench.lose(S, seed);
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.back(S);
        let unlink = bench.call(1, bench.unlink(S, "a"));
        bench.wait(2_000_000);
        bench.back(T);
        bench.settle();
        let (rename, unlink) = (bench.answer(0, rename), bench.answer(1, unlink));
        // One of them came first. It was renamed, or removed; never both, nor neither.
        match (&rename, &unlink) {
            (Ok(_), Err(Errno::ENOENT)) => bench.has(T, "b", ino, 1),
            (Err(Errno::ENOENT), Ok(_)) => bench.has_not(T, "b"),
            other => panic!("seed {seed}: {other:?}"),
        }
        bench.has_not(S, "a");
    }
}

#[test]
fn an_acknowledged_name_that_its_owner_has_lost_is_never_told_to_be_absent() {
    // [2c]
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(S, "a");
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.ok(Op::FsyncDir { dir: bench.dirs[S] });
        bench.lose(T, seed);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.back(T);
        let look = bench.call(1, bench.lookup(T, "b"));
        bench.wait(3_000_000);
        if let Some(done) = bench.world.poll(1, look) {
            assert_ne!(done.map(|_| ()), Err(Errno::ENOENT), "seed {seed}");
        }
        bench.settle();
        bench.has(T, "b", ino, 1);
    }
}

/// [3]: a file is written, synced, renamed, and `sync`ed as its name asks for; then S loses what it can.
fn renamed_and_synced(home: usize, sync: impl Fn(&Bench, Ino) -> Op) {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        let ino = if home == S { bench.file(S, "tmp") } else { bench.pointer(home, S, "tmp") };
        bench.ok(Op::Fsync { ino });
        bench.rest();
        let mut slow = SlowDisks::new(&[node(S)]);
        let rename = bench.call(0, bench.rename((S, "tmp"), (T, "b")));
        let end = bench.world.now_us() + 400_000;
        let mut synced = None;
        while bench.world.now_us() < end {
            bench.world.step_slowly(&mut slow).unwrap();
            if bench.world.poll(0, rename).is_some() {
                let op = sync(&bench, ino);
                synced = Some(bench.call(0, op));
            }
        }
        let token = synced.expect("answered before it is synced");
        // Who was told that it is safe finds it, whatever S loses.
        let is_told = bench.world.poll(0, token).is_some();
        if !is_told {
            bench.world.disks_catch_up(slow);
            bench.answer(0, token).unwrap();
        }
        bench.lose(S, seed);
        bench.back(S);
        bench.settle();
        bench.has(T, "b", ino, 1);
        bench.has_not(S, "tmp");
    }
}

#[test]
fn a_rename_whose_new_directory_was_fsynced_survives_its_coordinator() {
    // [3]
    renamed_and_synced(S, |bench, _| Op::FsyncDir { dir: bench.dirs[T] });
    renamed_and_synced(H, |bench, _| Op::FsyncDir { dir: bench.dirs[T] });
}

#[test]
fn a_rename_whose_old_directory_was_fsynced_survives_its_coordinator() {
    renamed_and_synced(H, |bench, _| Op::FsyncDir { dir: bench.dirs[S] });
}

#[test]
fn a_rename_whose_file_was_fsynced_at_its_home_survives_its_coordinator() {
    renamed_and_synced(H, |_, ino| Op::Fsync { ino });
    renamed_and_synced(T, |_, ino| Op::Fsync { ino });
}

#[test]
fn a_rename_over_a_link_that_its_home_has_only_prepared_counts_right() {
    // [4]
    for seed in 0..40 {
        for by_home in [false, true] {
            let mut bench = Bench::new(seed, 3);
            let (old, new) = (bench.file(H, "old"), bench.file(if by_home { H } else { S }, "new"));
            bench.rest();
            bench.ok(bench.link(old, T, "b"));
            let from = if by_home { H } else { S };
            let rename = bench.call(1, bench.rename((from, "new"), (T, "b")));
            bench.wait(seed * 50);
            bench.restart(if seed % 2 == 0 { H } else { T }, power(seed));
            bench.answer(1, rename).unwrap();
            bench.settle();
            bench.has(H, "old", old, 1);
            bench.has(T, "b", new, 1);
        }
    }
}

#[test]
fn both_files_of_a_rename_may_be_homed_at_one_third_island() {
    // [5]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let (old, new) = (bench.pointer(H, T, "b"), bench.pointer(H, S, "a"));
        bench.rest();
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        bench.wait(seed * 60);
        bench.restart((seed % 3) as usize, power(seed));
        bench.answer(0, rename).unwrap();
        bench.settle();
        if bench.at(S, "a").is_ok() {
            // It was answered, and lost before it was synced: it has not happened at all.
            bench.has(S, "a", new, 1);
            bench.has(T, "b", old, 1);
            continue;
        }
        bench.has_not(S, "a");
        bench.has(T, "b", new, 1);
        let gone = bench.run(0, Op::GetAttr { ino: old });
        assert_eq!(gone.map(|_| ()), Err(Errno::ESTALE), "what was replaced goes");
    }
}

/// [11]: with the judge, because it is about who may do what.
#[test]
fn permissions_are_those_of_one_island() {
    const OWNER: Caller = Caller { uid: 2000, gid: 2000, groups: Some(Vec::new()) };
    let member = Caller { uid: 1000, gid: 1000, groups: Some(vec![50]) };
    for seed in 0..12 {
        let config = Config::new(seed, 3);
        let mut world = World::new(config).unwrap();
        let mut judge = Judge::new(&mut world).unwrap();
        let mut by = |caller: &Caller, op: Op| {
            let session = SessionId(1);
            let step = Step { session, caller: caller.clone(), op, data: Bytes::new() };
            judge.run(&mut world, 0, &step).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            judge.model.clone()
        };
        let mut dirs = Vec::new();
        for island in 0..3 {
            let n = owned_by(3, seed, &[], &format!("d{island}-"), island);
            // S is sticky, T is its group's, H is everybody's.
            let mode = [0o1777, 0o770, 0o777][island];
            let mkdir = Op::Mkdir { dir: Ino::ROOT, name: n.clone(), mode, umask: 0 };
            let model = by(&Caller::ROOT, mkdir);
            let ino = model.children(Ino::ROOT).find(|(other, _)| **other == n).unwrap().1;
            dirs.push(ino);
        }
        let set = SetAttr { gid: Some(50), ..SetAttr::default() };
        by(&Caller::ROOT, Op::SetAttr { ino: dirs[T], set });
        let create = |n: &str| {
            let (dir, target) = (dirs[H], Bytes::new());
            let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
            Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target }
        };
        let rename = |from: (usize, &str), to: (usize, &str), mode| {
            let (dir, new_dir) = (dirs[from.0], dirs[to.0]);
            Op::Rename {
                dir,
                name: name(from.1),
                new_dir,
                new_name: name(to.1),
                mode,
                meant: None,
                new_meant: None,
            }
        };
        for n in ["f", "g", "h"] {
            let model = by(&OWNER, create(n));
            let ino = model.children(dirs[H]).find(|(other, _)| other.as_bytes() == n.as_bytes()).unwrap().1;
            by(&Caller::ROOT, Op::Link { ino, dir: dirs[S], name: name(n) });
        }
        by(&member, create("mine"));
        let stranger = Caller { uid: 1001, gid: 1001, groups: Some(Vec::new()) };
        for caller in [&member, &stranger] {
            // Another's pointer out of a sticky directory, and over one.
            by(caller, rename((S, "f"), (H, "stolen"), RenameMode::Replace));
            by(caller, rename((S, "f"), (T, "stolen"), RenameMode::Replace));
            by(caller, rename((H, "mine"), (S, "f"), RenameMode::Replace));
            by(caller, rename((H, "mine"), (S, "f"), RenameMode::Exchange));
            by(caller, Op::Unlink { dir: dirs[S], name: name("g") });
        }
        // The group decides: into T, and out of it again.
        by(&stranger, rename((H, "mine"), (T, "in"), RenameMode::Replace));
        by(&member, rename((H, "mine"), (T, "in"), RenameMode::Replace));
        by(&stranger, rename((T, "in"), (H, "mine"), RenameMode::Replace));
        by(&member, rename((T, "in"), (H, "mine"), RenameMode::NoReplace));
        // Whoever owns it may.
        by(&OWNER, rename((S, "f"), (H, "taken"), RenameMode::Replace));
        by(&OWNER, Op::Unlink { dir: dirs[S], name: name("g") });
        by(&Caller::ROOT, rename((S, "h"), (T, "root"), RenameMode::Replace));
        world.settle().unwrap();
        judge.compare_trees(&mut world, Strictness::FULL).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        invariants(&mut world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn a_file_does_not_change_places_with_a_directory_above_it() {
    // [12]
    for seed in 0..12 {
        let mut bench = Bench::new(seed, 3);
        let mkdir = Op::Mkdir { dir: bench.dirs[T], name: name("below"), mode: 0o755, umask: 0 };
        let Ok((Answer::Found { found }, _)) = bench.run(0, mkdir) else { panic!("not made") };
        let (below, ino) = (found.attr.ino, bench.file(S, "f"));
        bench.ok(Op::Link { ino, dir: below, name: name("f") });
        let (above, mode) = (bench.names[T].clone(), RenameMode::Exchange);
        let down = Op::Rename {
            dir: below,
            name: name("f"),
            new_dir: Ino::ROOT,
            new_name: above.clone(),
            mode,
            meant: None,
            new_meant: None,
        };
        let up = Op::Rename {
            dir: Ino::ROOT,
            name: above,
            new_dir: below,
            new_name: name("f"),
            mode,
            meant: None,
            new_meant: None,
        };
        for op in [down, up] {
            let done = bench.run(0, op).map(|_| ());
            assert_eq!(done, Err(Errno::EINVAL));
        }
        bench.settle();
        let there = bench.run(0, Op::Lookup { dir: Ino::ROOT, name: bench.names[T].clone() });
        let Ok((Answer::Found { found }, _)) = there else { panic!("{there:?}") };
        assert_eq!(found.attr.ino, bench.dirs[T]);
        assert_eq!(bench.nlink(ino), 2);
    }
}

#[test]
fn fifty_clients_rename_into_one_directory_that_is_listed() {
    // [13]
    const CLIENTS: usize = 50;
    for seed in 0..3 {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max) = (CLIENTS + 1, 300);
        let mut bench = Bench::with(config);
        for client in 0..CLIENTS {
            bench.file(if client % 2 == 0 { S } else { H }, &format!("f{client}"));
        }
        bench.rest();
        let list = Op::ReadDir { dir: bench.dirs[T], after: 0, bytes: 1 << 16, plus: true };
        let mut tokens = Vec::new();
        for client in 0..CLIENTS {
            let from = if client % 2 == 0 { S } else { H };
            let (n, one) = (format!("f{client}"), format!("to{}", client % 7));
            tokens.push(bench.call(client, bench.rename((from, &n), (T, &one))));
        }
        let mut lists = 0;
        for (client, token) in tokens.into_iter().enumerate() {
            let done = loop {
                if let Some(done) = bench.world.poll(client, token) {
                    break done;
                }
                bench.run(CLIENTS, list.clone()).expect("a healthy cluster lists");
                lists += 1;
            };
            done.expect("a healthy cluster renames");
        }
        assert!(lists > 5);
        bench.settle();
        let names = (0..7).filter(|i| bench.at(T, &format!("to{i}")).is_ok()).count();
        assert_eq!(names, 7);
    }
}

#[test]
fn a_rename_to_an_island_that_is_away_ends_although_the_mount_waits_for_ever() {
    // [13]
    for away in [T, H] {
        let mut bench = Bench::new(7, 3);
        let ino = bench.pointer(H, S, "a");
        bench.rest();
        bench.world.stay_away(node(away), Fault::ProcessDeath);
        let before = bench.world.now_us();
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        assert_eq!(bench.answer(0, rename).map(|_| ()), Err(Errno::EIO));
        assert!(bench.world.now_us() < before + 25_000_000);
        bench.back(away);
        bench.settle();
        bench.has(S, "a", ino, 1);
        bench.has_not(T, "b");
    }
}

#[test]
fn the_last_name_goes_through_a_pointer_while_the_file_is_open() {
    // [14]
    for seed in 0..20 {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max, config.mounts) = (2, 300, true);
        let mut bench = Bench::with(config);
        let ino = bench.pointer(H, S, "a");
        bench.rest();
        // The second mount has it open.
        bench.run(1, bench.lookup(S, "a")).unwrap();
        bench.ok(bench.unlink(S, "a"));
        bench.wait(1_500_000);
        bench.read(1, ino);
        bench.has_not(S, "a");
        for client in [0, 1] {
            bench.world.forget(client, &[ino]);
        }
        bench.wait(5_000_000);
        bench.settle();
        assert!(bench.run(0, Op::GetAttr { ino }).is_err(), "seed {seed}: nobody has it open");
    }
}

#[test]
fn a_link_that_aborts_leaves_a_file_with_its_users() {
    // [14]
    for seed in 0..30 {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max, config.mounts) = (2, 300, true);
        let mut bench = Bench::with(config);
        let ino = bench.file(H, "a");
        bench.rest();
        bench.run(1, bench.lookup(H, "a")).unwrap();
        let link = bench.call(0, bench.link(ino, T, "b"));
        if !bench.step_until(1_000_000, |w| has_work(w, H, TxnState::Prepared, is_home)) {
            panic!("never prepared");
        }
        // Its coordinator goes, and the other name too.
        bench.world.stay_away(node(T), power(seed));
        let unlink = bench.call(1, bench.unlink(H, "a"));
        bench.wait(500_000);
        bench.back(T);
        let (link, unlink) = (bench.answer(0, link), bench.answer(1, unlink));
        unlink.unwrap();
        bench.wait(1_500_000);
        bench.read(1, ino);
        bench.settle();
        match link {
            Ok(_) => bench.has(T, "b", ino, 1),
            Err(Errno::ENOENT) => bench.has_not(T, "b"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_repeated_link_is_answered_as_the_first_one() {
    // [14]
    for at in 0..60 {
        let mut bench = Bench::new(at, 3);
        let ino = bench.file(H, "a");
        bench.rest();
        let link = bench.call(0, bench.link(ino, T, "b"));
        bench.wait(at * 40);
        bench.world.break_client_links(0);
        match bench.answer(0, link) {
            Ok((Answer::Found { found }, _)) => {
                assert_eq!((found.attr.ino, found.attr.nlink), (ino, 2), "broken after {} us", at * 40);
            }
            other => panic!("broken after {} us: {other:?}", at * 40),
        }
        bench.settle();
        bench.has(T, "b", ino, 2);
    }
}

#[test]
fn two_links_of_one_file_are_answered_with_different_counts_although_one_is_undone_first() {
    // Found by groups_disks 200447: the home counted a link that was prepared, and was undone and made once more.
    let counted = |done: Done| match done {
        Ok((Answer::Found { found }, _)) => found.attr.nlink,
        other => panic!("{other:?}"),
    };
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.file(H, "a");
        bench.rest();
        let one = bench.call(0, bench.link(ino, T, "b"));
        if !bench.step_until(1_000_000, |w| has_work(w, H, TxnState::Prepared, is_home)) {
            panic!("never prepared");
        }
        let other = bench.call(1, bench.link(ino, S, "c"));
        // The coordinator of the first one loses it.
        bench.world.stay_away(node(T), power(seed));
        bench.wait(500_000);
        bench.back(T);
        let (other, one) = (bench.answer(1, other), bench.answer(0, one));
        let counts = [counted(one), counted(other)];
        assert!(counts == [2, 3] || counts == [3, 2], "seed {seed}: {counts:?}");
        bench.settle();
        bench.has(T, "b", ino, 3);
        bench.has(S, "c", ino, 3);
    }
}

#[test]
fn an_abort_that_overtakes_its_prepare_leaves_nothing_locked() {
    // [14]: links break at any moment of a rename, so that what was sent before and after changes places.
    for at in 0..80 {
        let mut bench = Bench::new(at, 3);
        let ino = bench.pointer(H, S, "a");
        bench.rest();
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        bench.wait(at * 30);
        let other = if at % 2 == 0 { T } else { H };
        bench.world.cut_between(node(S), node(other), true);
        bench.wait(at * 25);
        bench.world.cut_between(node(S), node(other), false);
        bench.answer(0, rename).unwrap();
        bench.settle();
        bench.has_not(S, "a");
        bench.has(T, "b", ino, 1);
        bench.ok(bench.rename((T, "b"), (S, "a")));
        bench.settle();
    }
}

#[test]
fn links_into_new_directories_get_through_beside_many_changes_of_attributes() {
    // [9], as far as files are concerned.
    const BUSY: usize = 8;
    for seed in 0..2 {
        let mut config = Config::new(seed, 4);
        (config.clients, config.delay_us_max) = (BUSY + 1, 300);
        let mut bench = Bench::with(config);
        let ino = bench.file(H, "a");
        let mut busy: Vec<u64> = Vec::new();
        let chmod = |bench: &mut Bench, client: usize, i: usize| {
            let set = SetAttr { mode: Some(0o700 + (i % 8) as u32), ..SetAttr::default() };
            bench.call(client, Op::SetAttr { ino: bench.dirs[(client + i) % 4], set })
        };
        for client in 0..BUSY {
            let token = chmod(&mut bench, client + 1, 0);
            busy.push(token);
        }
        let mut changes = 0;
        for i in 0..20 {
            let n = format!("new{i}");
            let mkdir = Op::Mkdir { dir: bench.dirs[i % 4], name: name(&n), mode: 0o755, umask: 0 };
            let mut tokens = vec![bench.call(0, mkdir)];
            let mut dir = None;
            while !tokens.is_empty() {
                bench.world.step().unwrap();
                for (client, token) in busy.iter_mut().enumerate() {
                    if let Some(done) = bench.world.poll(client + 1, *token) {
                        done.unwrap();
                        changes += 1;
                        *token = chmod(&mut bench, client + 1, changes);
                    }
                }
                let Some(done) = bench.world.poll(0, tokens[0]) else { continue };
                tokens.clear();
                match (dir, done) {
                    (None, Ok((Answer::Found { found }, _))) => {
                        dir = Some(found.attr.ino);
                        let link = Op::Link { ino, dir: found.attr.ino, name: name("l") };
                        tokens.push(bench.call(0, link));
                    }
                    (_, done) => drop(done.expect("a healthy cluster links")),
                }
            }
        }
        assert!(changes > 500, "{changes}");
        for (client, token) in busy.into_iter().enumerate() {
            bench.answer(client + 1, token).unwrap();
        }
        bench.settle();
        assert_eq!(bench.nlink(ino), 21);
    }
}
