//! What a power cut has taken from one island and others tell again: in what order, how often, and what has
//! happened meanwhile.

use std::collections::BTreeSet;

use atoll_core::{Ino, Table};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_proto::{ParticipantWork, TxnState};
use atoll_sim::{Config, Party, SlowDisks};
use bytes::Bytes;

use crate::bench::{Bench, H, R, S, T, has_work, id, is_home, is_lend, name, node, owned_by, power};

/// Another island than the root's owner, and not `but`.
fn root_owner() -> usize {
    usize::from(Table::new(4).owner(atoll_core::Key(0)).0)
}

#[test]
fn what_a_coordinator_has_not_synced_yet_is_told_before_it_says_that_this_was_all() {
    let mut met = 0;
    for seed in 0..30 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(H, "a");
        bench.rest();
        let mut slow = SlowDisks::new(&[node(T)]);
        let link = bench.call(0, bench.link(ino, T, "b"));
        let mut end = bench.world.now_us() + 800_000;
        let (mut answered, mut unlink, mut back_us) = (None, None, u64::MAX);
        while bench.world.now_us() < end {
            bench.world.step_slowly(&mut slow).unwrap();
            if answered.is_none() {
                answered = bench.world.poll(0, link);
                if answered.is_some() {
                    bench.world.stay_away(node(H), power(seed));
                    back_us = bench.world.now_us() + 30_000;
                }
            } else if bench.world.now_us() > back_us {
                back_us = u64::MAX;
                bench.world.come_back(node(H));
            } else if unlink.is_none() && bench.world.serves(id(H)) {
                unlink = Some(bench.call(1, bench.unlink(H, "a")));
                end = bench.world.now_us() + 200_000;
            }
        }
        bench.world.disks_catch_up(slow);
        answered.expect("a link is answered before it is synced").unwrap();
        let Some(unlink) = unlink else { continue };
        met += 1;
        bench.answer(1, unlink).unwrap();
        bench.settle();
        bench.has_not(H, "a");
        bench.has(T, "b", ino, 1);
    }
    assert!(met > 5);
}

#[test]
fn what_was_done_again_is_not_done_again_after_another_death() {
    for effect in 1..60 {
        let second = if effect % 2 == 0 { Fault::ProcessDeath } else { power(effect) };
        let mut bench = Bench::new(effect, 2);
        let ino = bench.file(S, "a");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        bench.lose(S, effect);
        bench.dies_again(S, effect, second);
        bench.settle();
        bench.has(S, "a", ino, 2);
        bench.has(T, "b", ino, 2);
    }
}

#[test]
fn what_was_done_again_and_confirmed_by_one_side_is_not_done_again_in_the_next_life() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 2);
        let ino = bench.file(S, "a");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        bench.lose(S, seed);
        // S hears what it has lost before it can say anything itself.
        bench.world.cut_link(node(S), node(T), true);
        bench.back(S);
        bench.world.cut_link(node(S), node(T), false);
        // T says that its part is safe; that S's is, T never hears.
        if !bench.step_until(400_000, |w| w.works(id(S)).is_empty()) {
            continue;
        }
        bench.world.cut_link(node(S), node(T), true);
        bench.wait(2_000_000);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.world.cut_link(node(S), node(T), false);
        bench.wait(30_000);
        bench.world.come_back(node(S));
        bench.settle();
        bench.has(S, "a", ino, 2);
        bench.has(T, "b", ino, 2);
    }
}

#[test]
fn a_lent_name_that_came_back_and_was_removed_does_not_come_back_again() {
    for effect in 1..60 {
        let mut bench = Bench::new(effect, 2);
        let ino = bench.file(S, "a");
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.lose(T, effect);
        let unlink = bench.call(0, bench.unlink(T, "b"));
        bench.dies_again(T, effect, Fault::ProcessDeath);
        bench.answer(0, unlink).unwrap();
        bench.settle();
        bench.has_not(T, "b");
        assert!(bench.run(0, Op::GetAttr { ino }).is_err());
    }
}

#[test]
fn a_home_that_has_lost_a_rename_does_not_lose_the_file_to_an_unlink_of_the_new_name() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(H, "keeps");
        bench.ok(bench.link(ino, S, "a"));
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        assert!(bench.step_until(5_000_000, |w| !has_work(w, T, TxnState::Prepared, is_lend)));
        bench.lose(H, seed);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.back(H);
        let unlink = bench.call(0, bench.unlink(T, "b"));
        bench.wait(3_000_000);
        bench.back(S);
        let unlink = bench.answer(0, unlink);
        bench.settle();
        match unlink {
            Ok(_) => {
                bench.has_not(T, "b");
                bench.has(H, "keeps", ino, 1);
            }
            Err(Errno::EIO) => bench.has(T, "b", ino, 2),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_a_home_has_lost_of_several_coordinators_is_done_again_in_any_order() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.file(H, "keeps");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        bench.ok(bench.rename((T, "b"), (R, "c")));
        bench.ok(bench.unlink(R, "c"));
        bench.wait(20_000);
        bench.lose(H, seed);
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.back(H);
        bench.wait(1_500_000);
        bench.back(T);
        bench.settle();
        bench.has(H, "keeps", ino, 1);
        bench.has_not(T, "b");
        bench.has_not(R, "c");
    }
}

#[test]
fn what_a_lender_has_lost_of_several_coordinators_is_done_again_in_any_order() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let (first, second) = (bench.file(S, "a"), bench.file(R, "x"));
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.ok(bench.rename((R, "x"), (T, "b")));
        bench.wait(20_000);
        bench.lose(T, seed);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.back(T);
        bench.wait(1_500_000);
        bench.back(S);
        bench.settle();
        bench.has(T, "b", second, 1);
        assert!(bench.run(0, Op::GetAttr { ino: first }).is_err());
    }
}

#[test]
fn an_island_that_has_not_heard_all_prepares_nothing_that_depends_on_it() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.file(H, "keeps");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        bench.wait(5_000);
        // Somebody else is away, and keeps the home waiting when it starts.
        bench.world.stay_away(node(R), Fault::ProcessDeath);
        bench.lose(H, seed);
        bench.world.come_back(node(H));
        bench.ok(bench.unlink(T, "b"));
        bench.settle();
        bench.has_not(T, "b");
        bench.has(H, "keeps", ino, 1);
    }
}

/// T has lost a name that was lent to S, which is away; the root's owner is another island.
fn a_lender_that_has_lost_a_name(seed: u64, s: usize, t: usize) -> (Bench, Ino) {
    let mut bench = Bench::new(seed, 4);
    let ino = bench.file(s, "a");
    bench.rest();
    bench.ok(bench.rename((s, "a"), (t, "b")));
    bench.ok(Op::FsyncDir { dir: bench.dirs[s] });
    bench.lose(t, seed);
    bench.world.stay_away(node(s), Fault::ProcessDeath);
    bench.back(t);
    (bench, ino)
}

#[test]
fn a_directory_does_not_go_while_it_may_have_lost_a_name() {
    let p = root_owner();
    let (t, s) = ((p + 1) % 4, (p + 2) % 4);
    for seed in 0..16 {
        let (mut bench, ino) = a_lender_that_has_lost_a_name(seed, s, t);
        let rmdir = bench.call(1, Op::Rmdir { dir: Ino::ROOT, name: bench.names[t].clone(), meant: None });
        bench.wait(3_000_000);
        bench.back(s);
        let rmdir = bench.answer(1, rmdir);
        bench.settle();
        assert!(matches!(rmdir, Err(Errno::ENOTEMPTY | Errno::EIO)), "seed {seed}: {rmdir:?}");
        bench.has(t, "b", ino, 1);
    }
}

#[test]
fn a_name_comes_back_into_a_directory_that_is_being_removed() {
    let p = root_owner();
    let (t, s) = ((p + 1) % 4, (p + 2) % 4);
    for seed in 0..16 {
        let (mut bench, ino) = a_lender_that_has_lost_a_name(seed, s, t);
        let rmdir = bench.call(1, Op::Rmdir { dir: Ino::ROOT, name: bench.names[t].clone(), meant: None });
        let is_seal = |work: &ParticipantWork| matches!(work, ParticipantWork::Seal { .. });
        let sealed = bench.step_until(3_000_000, |w| {
            has_work(w, p, TxnState::Committed, is_seal) && has_work(w, t, TxnState::Prepared, is_seal)
        });
        if sealed {
            bench.world.cut_between(node(p), node(t), true);
        }
        bench.back(s);
        bench.wait(1_000_000);
        bench.world.cut_between(node(p), node(t), false);
        let rmdir = bench.answer(1, rmdir);
        bench.settle();
        assert!(matches!(rmdir, Err(Errno::ENOTEMPTY | Errno::EIO)), "seed {seed}: {rmdir:?}");
        bench.has(t, "b", ino, 1);
    }
}

#[test]
fn a_directory_that_was_renamed_since_is_brought_back_where_it_is() {
    let p = root_owner();
    let (t, h) = ((p + 1) % 4, (p + 2) % 4);
    for seed in 0..16 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.file(h, "a");
        bench.rest();
        bench.ok(bench.link(ino, t, "b"));
        bench.lose(h, seed);
        bench.world.stay_away(node(t), Fault::ProcessDeath);
        bench.back(h);
        let (dir, new_dir, mode) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
        let (from, new_name) = (bench.names[t].clone(), name("renamed"));
        bench.ok(Op::Rename { dir, name: from, new_dir, new_name, mode, meant: None, new_meant: None });
        bench.wait(1_000_000);
        bench.back(t);
        bench.settle();
        bench.has(h, "a", ino, 2);
        bench.has(t, "b", ino, 2);
    }
}

#[test]
fn a_name_comes_back_where_a_new_file_was_made() {
    for seed in 0..16 {
        let (mut bench, ino) = a_lender_that_has_lost_a_name(seed, S, T);
        let (dir, target) = (bench.dirs[T], Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let create = Op::Create { dir, name: name("b"), kind, mode, umask, rdev, exclusive, target };
        let create = bench.call(1, create);
        bench.wait(1_000_000);
        bench.back(S);
        let made = bench.answer(1, create).is_ok();
        bench.settle();
        // Neither is lost. (`EEXIST` if it waited.)
        let list = Op::ReadDir { dir: bench.dirs[T], after: 0, bytes: 1 << 16, plus: false };
        let Ok((Answer::Entries { entries, .. }, _)) = bench.run(0, list) else { panic!("not listed") };
        assert!(entries.iter().any(|entry| entry.ino == ino));
        assert_eq!(entries.len(), 1 + usize::from(made));
    }
}

#[test]
fn a_name_comes_back_while_it_is_lent_to_another() {
    for seed in 0..16 {
        let (mut bench, ino) = a_lender_that_has_lost_a_name(seed, S, T);
        let other = bench.file(R, "x");
        bench.ok(Op::Fsync { ino: other });
        let mut slow = SlowDisks::new(&[node(R)]);
        let rename = bench.call(1, bench.rename((R, "x"), (T, "b")));
        let end = bench.world.now_us() + 900_000;
        let mut returned = false;
        while bench.world.now_us() < end {
            bench.world.step_slowly(&mut slow).unwrap();
            if !returned && has_work(&bench.world, R, TxnState::Committed, is_lend) {
                returned = true;
                bench.world.come_back(node(S));
            }
        }
        bench.world.disks_catch_up(slow);
        if !returned {
            bench.world.come_back(node(S));
        }
        let rename = bench.answer(1, rename).map(|_| ());
        assert!(matches!(rename, Ok(()) | Err(Errno::EIO)), "seed {seed}: {rename:?}");
        bench.settle();
        let list = Op::ReadDir { dir: bench.dirs[T], after: 0, bytes: 1 << 16, plus: false };
        let Ok((Answer::Entries { entries, .. }, _)) = bench.run(0, list) else { panic!("not listed") };
        assert_eq!(entries.iter().any(|entry| entry.ino == other), rename.is_ok(), "seed {seed}");
        // What was there is replaced, or beside it.
        assert!(entries.iter().any(|entry| entry.ino == ino) || bench.run(0, Op::GetAttr { ino }).is_err());
    }
}

/// `one` renames its file to `other`; `loses` loses its part while `away` is away; the directory of `moved`
/// gets another name before that one comes back.
fn a_directory_moves_meanwhile(mode: RenameMode, loses: usize, away: usize, moved: usize) {
    let p = root_owner();
    let [s, t, h] = [1, 2, 3].map(|i| (p + i) % 4);
    let of = |role: usize| [s, t, h][role];
    for seed in 0..12 {
        let mut bench = Bench::new(seed, 4);
        let ino = if mode == RenameMode::Exchange { bench.file(s, "a") } else { bench.pointer(h, s, "a") };
        let other = bench.file(t, if mode == RenameMode::Exchange { "b" } else { "c" });
        bench.rest();
        let (dir, new_dir) = (bench.dirs[s], bench.dirs[t]);
        bench.ok(Op::Rename {
            dir,
            name: name("a"),
            new_dir,
            new_name: name("b"),
            mode,
            meant: None,
            new_meant: None,
        });
        assert!(bench.step_until(5_000_000, |w| !has_work(w, t, TxnState::Prepared, is_lend)));
        bench.lose(of(loses), seed);
        bench.world.stay_away(node(of(away)), Fault::ProcessDeath);
        bench.back(of(loses));
        let (dir, new_dir, mode_of_dir) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
        let (from, new_name) = (bench.names[of(moved)].clone(), name("renamed"));
        bench.ok(Op::Rename {
            dir,
            name: from,
            new_dir,
            new_name,
            mode: mode_of_dir,
            meant: None,
            new_meant: None,
        });
        bench.wait(1_000_000);
        bench.back(of(away));
        bench.settle();
        bench.has(t, "b", ino, 1);
        if mode == RenameMode::Exchange {
            bench.has(s, "a", other, 1);
        }
    }
}

#[test]
fn a_directory_that_was_renamed_since_an_exchange_is_brought_back_where_it_is() {
    a_directory_moves_meanwhile(RenameMode::Exchange, T, S, S);
}

#[test]
fn a_directory_that_only_its_owner_knows_is_brought_back_where_it_is() {
    a_directory_moves_meanwhile(RenameMode::Replace, H, S, T);
}

#[test]
fn a_directory_that_came_and_was_renamed_then_is_renamed_again_when_it_has_come_again() {
    for seed in 0..30 {
        let mut bench = Bench::new(seed, 3);
        let dir = bench.dirs[S];
        bench.ok(Op::Mkdir { dir, name: name("a"), mode: 0o755, umask: 0 });
        let ino = bench.at(S, "a").unwrap();
        // It is no leaf: all islands hear at once where it is.
        bench.ok(Op::Mkdir { dir: ino, name: name("within"), mode: 0o755, umask: 0 });
        bench.rest();
        // What is prepared for the first lend of a directory is synced by itself. Its outcome is not, nor what follows.
        bench.ok(bench.rename((S, "a"), (T, "x")));
        bench.ok(bench.rename((T, "x"), (T, "y")));
        bench.lose(T, seed);
        bench.back(T);
        bench.settle();
        assert_eq!(bench.at(T, "y"), Ok(ino), "seed {seed}");
        bench.has_not(T, "x");
    }
}

/// A rename of a leaf within one directory is told to others within a second: until then it is lost in a power cut like
/// that of a file, and brought back afterwards.
#[test]
fn a_rename_of_a_leaf_that_nobody_has_heard_is_lost_as_a_whole() {
    let run = |seed: u64, is_told: bool| {
        let mut bench = Bench::new(seed, 3);
        let dir = bench.dirs[T];
        bench.ok(Op::Mkdir { dir, name: name("x"), mode: 0o755, umask: 0 });
        let ino = bench.at(T, "x").unwrap();
        bench.rest();
        bench.ok(bench.rename((T, "x"), (T, "y")));
        if is_told {
            bench.wait(1_500_000);
        }
        bench.lose(T, seed);
        bench.back(T);
        bench.settle();
        let [x, y] = ["x", "y"].map(|n| bench.at(T, n));
        assert!(
            [(Ok(ino), Err(Errno::ENOENT)), (Err(Errno::ENOENT), Ok(ino))].contains(&(x, y)),
            "seed {seed}: {x:?}, {y:?}"
        );
        y.is_ok()
    };
    let kept = |is_told| (0..30).filter(|seed| run(*seed, is_told)).count();
    assert!(kept(false) < 30);
    assert_eq!(kept(true), 30);
}

/// The answer to a link is lost, if it does not arrive yet, and until the client asks again others remove what it
/// has made. Tells whether the file was gone when it was answered.
fn a_link_that_was_undone(seed: u64, home: usize, file_goes: bool) -> bool {
    let mut bench = Bench::new(seed, 3);
    let ino = bench.file(home, "a");
    bench.rest();
    bench.run(1, bench.lookup(home, "a")).unwrap();
    let link = bench.call(0, bench.link(ino, T, "b"));
    while bench.run(1, bench.lookup(T, "b")).is_err() {}
    bench.world.partition(|party| party == Party::Client(0));
    bench.run(1, bench.unlink(T, "b")).unwrap();
    if file_goes {
        bench.run(1, bench.unlink(home, "a")).unwrap();
    }
    bench.wait(100_000);
    bench.world.partition(|_| true);
    let link = bench.answer(0, link);
    let Ok((Answer::Found { found }, _)) = link else { panic!("seed {seed}: {link:?}") };
    assert_eq!(found.attr.ino, ino);
    bench.settle();
    bench.has_not(T, "b");
    !found.attr_current
}

#[test]
fn a_link_whose_name_others_have_removed_is_answered_as_done() {
    for home in [H, T] {
        let gone = |seed: &u64| a_link_that_was_undone(*seed, home, true);
        assert!((0..120).filter(gone).count() > 0);
        (0..30).for_each(|seed| assert!(!a_link_that_was_undone(seed, home, false)));
    }
}

#[test]
pub(crate) fn a_change_of_a_file_that_others_have_removed_is_answered_as_done() {
    let changed = |seed: &u64| {
        let mut bench = Bench::new(*seed, 3);
        let ino = bench.file(H, "a");
        bench.run(1, bench.lookup(H, "a")).unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let call = bench.call(0, Op::SetAttr { ino, set });
        let mode = |bench: &mut Bench| match bench.run(1, Op::GetAttr { ino }) {
            Ok((Answer::Attr { attr }, _)) => attr.mode,
            other => panic!("{other:?}"),
        };
        while mode(&mut bench) != 0o600 {}
        bench.world.partition(|party| party == Party::Client(0));
        bench.run(1, bench.unlink(H, "a")).unwrap();
        bench.wait(100_000);
        bench.world.partition(|_| true);
        let Ok((Answer::Attr { attr }, _)) = bench.answer(0, call) else {
            panic!("seed {seed}: it was changed")
        };
        assert_eq!((attr.ino, attr.kind), (ino, Kind::Regular));
        attr.mode != 0o600
    };
    assert!((0..60).filter(changed).count() > 0);
}

#[test]
fn a_create_whose_file_others_have_moved_and_removed_is_answered_as_done() {
    let made = |seed: &u64| {
        let mut config = Config::new(*seed, 3);
        (config.clients, config.delay_us_max, config.moves) = (2, 300, true);
        let mut bench = Bench::with(config);
        let (dir, target) = (bench.dirs[S], Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, false);
        let create = Op::Create { dir, name: name("a"), kind, mode, umask, rdev, exclusive, target };
        let create = bench.call(0, create);
        let ino = loop {
            if let Ok((Answer::Found { found }, _)) = bench.run(1, bench.lookup(S, "a")) {
                break found.attr.ino;
            }
        };
        bench.world.partition(|party| party == Party::Client(0));
        if bench.world.poll(0, create).is_some() {
            return false;
        }
        bench.run(1, bench.rename((S, "a"), (T, "b"))).unwrap();
        bench.wait(3_000_000);
        assert_eq!(bench.world.homes(ino), [id(T)], "it has followed its name");
        bench.run(1, bench.unlink(T, "b")).unwrap();
        bench.wait(100_000);
        bench.world.partition(|_| true);
        let Ok((Answer::Found { found }, _)) = bench.answer(0, create) else {
            panic!("seed {seed}: it was made")
        };
        assert_eq!(found.attr.ino, ino, "seed {seed}: it was made twice");
        bench.settle();
        bench.has_not(S, "a");
        !found.attr_current
    };
    assert!((0..160).filter(made).count() > 0);
}

/// Makes a file in a directory.
fn create(dir: Ino, n: &str) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target: Bytes::new() }
}

#[test]
pub(crate) fn a_directory_that_may_be_lost_is_not_taken_for_removed() {
    let p = root_owner();
    let t = (p + 1) % 4;
    for seed in 0..16 {
        let mut bench = Bench::new(seed, 4);
        bench.rest();
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: owned_by(4, seed, &[], "e", t), mode: 0o755, umask: 0 };
        let Ok((Answer::Found { found }, _)) = bench.run(0, mkdir) else { panic!("not made") };
        let dir = found.attr.ino;
        bench.lose(t, seed);
        bench.world.stay_away(node(p), Fault::ProcessDeath);
        bench.back(t);
        let first = bench.call(0, create(dir, "a"));
        bench.wait(1_000_000);
        bench.back(p);
        let first = bench.answer(0, first).map(|_| ());
        assert!(matches!(first, Ok(()) | Err(Errno::EIO)), "seed {seed}: {first:?}");
        bench.settle();
        bench.ok(create(dir, "b"));
    }
}

/// T has lost that its directory in the root was removed, and the root's owner, who knows, is away.
#[test]
pub(crate) fn a_directory_whose_removal_may_be_lost_gets_no_names() {
    let p = root_owner();
    let t = (p + 1) % 4;
    for seed in 0..16 {
        let mut bench = Bench::new(seed, 4);
        let n = owned_by(4, seed, &[], "e", t);
        let mkdir = Op::Mkdir { dir: Ino::ROOT, name: n.clone(), mode: 0o755, umask: 0 };
        let Ok((Answer::Found { found }, _)) = bench.run(0, mkdir) else { panic!("not made") };
        let dir = found.attr.ino;
        bench.run(1, Op::Lookup { dir: Ino::ROOT, name: n.clone() }).unwrap();
        bench.rest();
        bench.ok(Op::Rmdir { dir: Ino::ROOT, name: n, meant: None });
        bench.lose(t, seed);
        bench.world.stay_away(node(p), Fault::ProcessDeath);
        bench.back(t);
        let create = bench.call(1, create(dir, "a"));
        bench.wait(1_000_000);
        bench.back(p);
        let create = bench.answer(1, create).map(|_| ());
        assert!(matches!(create, Err(Errno::EIO | Errno::ESTALE)), "seed {seed}: {create:?}");
        bench.settle();
    }
}

#[test]
fn a_link_to_a_file_that_has_just_moved_is_answered_as_done_when_its_answer_is_lost() {
    let linked = |seed: &u64| {
        let mut config = Config::new(*seed, 3);
        (config.clients, config.delay_us_max, config.moves) = (2, 300, true);
        let mut bench = Bench::with(config);
        let ino = bench.file(S, "a");
        bench.run(1, bench.lookup(S, "a")).unwrap();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        // The client asks while it is told that the file has moved: it names the old home, and is sent to the new one.
        assert!(bench.step_until(5_000_000, |w| has_work(w, S, TxnState::Committed, is_arrival)));
        let link = bench.call(1, bench.link(ino, H, "c"));
        assert!(bench.step_until(1_000_000, |w| has_work(w, H, TxnState::Committed, is_home)));
        bench.world.partition(|party| party == Party::Client(1));
        if bench.world.poll(1, link).is_some() {
            return false;
        }
        bench.wait(100_000);
        bench.world.partition(|_| true);
        let link = bench.answer(1, link);
        assert!(link.is_ok(), "seed {seed}: {link:?}");
        bench.settle();
        bench.has(H, "c", ino, 2);
        true
    };
    assert!((0..16).filter(linked).count() > 4);
}

const fn is_arrival(work: &ParticipantWork) -> bool {
    matches!(work, ParticipantWork::ReceiveFile { .. })
}

/// A directory was renamed away just before the owner of its old name died. Others, who know directories, are not
/// asked by who makes something of that name.
#[test]
fn what_makes_a_name_is_answered_by_its_owner_alone() {
    for seed in 0..12 {
        let mut bench = Bench::new(seed, 3);
        let (file, dir) = (bench.file(S, "a"), bench.dirs[T]);
        bench.run(1, bench.lookup(S, "a")).unwrap();
        let mkdir = Op::Mkdir { dir, name: name("x"), mode: 0o755, umask: 0 };
        bench.ok(mkdir.clone());
        bench.run(1, bench.lookup(T, "x")).unwrap();
        bench.rest();
        let to = if seed % 2 == 0 { S } else { T };
        bench.ok(bench.rename((T, "x"), (to, "y")));
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        let makes = [bench.link(file, T, "x"), create(dir, "x"), mkdir][seed as usize % 3].clone();
        let made = bench.call(1, makes);
        bench.wait(1_000_000);
        assert_eq!(bench.world.poll(1, made), None, "seed {seed}: its owner is away");
        bench.back(T);
        let made = bench.answer(1, made);
        assert!(made.is_ok(), "seed {seed}: {made:?}");
        bench.settle();
    }
}

/// T has lost that a name was replaced, and that what had held it before was given up: until both are told again, nobody
/// may build on what is there. What replaces it next, and is synced, would go for what came first.
#[test]
fn a_name_that_is_not_done_again_yet_is_not_given_away() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let other = bench.file(T, "other");
        bench.file(T, "b");
        bench.file(S, "a");
        let last = bench.file(H, "c");
        bench.rest();
        let write = Op::Write { ino: other, offset: 0, append: false, kill_set_id: false };
        let first = bench.call(0, bench.rename((S, "a"), (T, "b")));
        assert!(bench.step_until(1_000_000, |w| has_work(w, T, TxnState::Prepared, is_lend)));
        bench.lose(S, seed);
        // That it is prepared is safe.
        bench.run(1, write).unwrap();
        bench.run(1, Op::Fsync { ino: other }).unwrap();
        bench.back(S);
        bench.answer(0, first).unwrap();
        bench.lose(T, seed);
        bench.back(T);
        let _ = bench.run(1, bench.rename((H, "c"), (T, "b")));
        // The first may fail, since this client too has changed something before the power cut.
        while bench.run(1, Op::FsyncDir { dir: bench.dirs[T] }).is_err() {}
        bench.settle();
        bench.wait(10_000_000);
        assert_eq!(bench.at(T, "b"), Ok(last), "seed {seed}");
    }
}

/// The same, and the island that brought the name is away: what is there is not changed until it is back.
#[test]
fn a_name_that_may_have_been_replaced_is_not_given_away() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        bench.file(S, "first");
        bench.ok(bench.rename((S, "first"), (T, "first")));
        bench.file(T, "b");
        let brought = bench.file(S, "a");
        let last = bench.file(H, "c");
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.lose(T, seed);
        bench.back(T);
        let renamed = bench.run(1, bench.rename((H, "c"), (T, "b")));
        let removed = bench.run(1, bench.unlink(T, "b"));
        bench.back(S);
        bench.settle();
        bench.wait(10_000_000);
        assert_eq!((renamed.map(|_| ()), removed.map(|_| ())), (Err(Errno::EIO), Err(Errno::EIO)));
        assert_eq!((bench.at(T, "b"), bench.at(H, "c")), (Ok(brought), Ok(last)), "seed {seed}");
    }
}

/// A file came to a name and was replaced there by another island's. Both are lost, and he who brought the first tells it
/// last, when nobody else remembers the second: that has happened nevertheless, and the first file is gone.
#[test]
fn what_was_replaced_does_not_come_back_in_another_life() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        bench.file(S, "x");
        bench.ok(bench.rename((S, "x"), (T, "x")));
        bench.file(S, "a");
        let last = bench.file(H, "c");
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.ok(bench.rename((H, "c"), (T, "b")));
        bench.wait(3_000);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.lose(T, seed);
        bench.back(T);
        bench.wait(3_000_000);
        bench.restart(T, power(seed + 1));
        bench.wait(1_000_000);
        bench.back(S);
        bench.settle();
        bench.wait(10_000_000);
        assert_eq!(
            (names(&mut bench, T), bench.at(T, "b")),
            (vec!["b".to_owned(), "x".to_owned()], Ok(last)),
            "seed {seed}"
        );
    }
}

/// The same with three: what the first had replaced was laid beside the last one, and goes when the second is told.
#[test]
fn what_the_replaced_one_had_replaced_goes_with_it() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        bench.file(S, "x");
        bench.ok(bench.rename((S, "x"), (T, "b")));
        bench.file(S, "a");
        let last = bench.file(H, "c");
        bench.rest();
        bench.ok(bench.rename((S, "a"), (T, "b")));
        bench.ok(bench.rename((H, "c"), (T, "b")));
        bench.wait(100_000);
        bench.world.stay_away(node(S), Fault::ProcessDeath);
        bench.lose(T, seed);
        bench.back(T);
        bench.wait(3_000_000);
        bench.back(S);
        bench.settle();
        bench.wait(10_000_000);
        assert_eq!((names(&mut bench, T), bench.at(T, "b")), (vec!["b".to_owned()], Ok(last)), "seed {seed}");
    }
}

/// The names in an island's directory.
fn names(bench: &mut Bench, island: usize) -> Vec<String> {
    let list = Op::ReadDir { dir: bench.dirs[island], after: 0, bytes: 1 << 20, plus: false };
    let Ok((Answer::Entries { entries, .. }, _)) = bench.run(0, list) else { panic!("it is listed") };
    let names: BTreeSet<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
    names.into_iter().collect()
}
