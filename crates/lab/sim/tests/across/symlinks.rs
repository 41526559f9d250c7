//! Symbolic links to directories while islands are away: they lead on, what is carried of them follows what is
//! so, and nothing stays of what is gone.

use atoll_core::{Ino, Name};
use atoll_disk::sim::Fault;
use atoll_model::Rng;
use atoll_posix::{Answer, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_sim::crash_points::{Point, Script, count, one, scripts, world};
use atoll_sim::{Config, Party, invariants};
use bytes::Bytes;

use crate::bench::{Bench, H, R, S, T, id, name, node, power};

/// Longer than telling all of a link takes.
const TOLD_US: u64 = 3_000_000;

fn make(bench: &mut Bench, dir: Ino, n: &str, target: &str) -> Ino {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
    let target = Bytes::copy_from_slice(target.as_bytes());
    let create = Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target };
    let Ok((Answer::Found { found }, _)) = bench.run(0, create) else { panic!("{n} is not made") };
    found.attr.ino
}

/// A link in an island's directory to the directory of another.
fn link_to(bench: &mut Bench, at: usize, n: &str, to: usize) -> Ino {
    let target = format!("../{}", bench.names[to]);
    make(bench, bench.dirs[at], n, &target)
}

/// How an operation ends while something is away; none if it waits.
fn soon(bench: &mut Bench, client: usize, op: Op) -> Option<atoll_sim::Done> {
    let token = bench.call(client, op);
    bench.wait(TOLD_US);
    bench.world.poll(client, token)
}

/// What a name leads to, and whether that is told by who knows.
fn looked_up(bench: &mut Bench, client: usize, dir: Ino, n: &str) -> Option<(Ino, bool)> {
    match soon(bench, client, Op::Lookup { dir, name: name(n) })? {
        Ok((Answer::Found { found }, _)) => {
            assert_eq!(found.attr.kind, Kind::Symlink);
            Some((found.attr.ino, found.attr_current))
        }
        other => panic!("{n}: {other:?}"),
    }
}

fn target(bench: &mut Bench, client: usize, ino: Ino) -> Option<String> {
    match soon(bench, client, Op::Readlink { ino })? {
        Ok((Answer::Data, bytes)) => Some(String::from_utf8(bytes).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn down(bench: &mut Bench, island: usize) {
    bench.world.stay_away(node(island), Fault::ProcessDeath);
    bench.wait(100_000);
}

#[test]
fn a_path_leads_through_a_link_while_the_owner_of_its_directory_is_dead() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let (dir, called) = (bench.dirs[S], bench.names[T].clone());
        bench.file(T, "x");
        let ino = link_to(&mut bench, S, "link", T);
        bench.settle();
        down(&mut bench, S);
        // One mount has used it before, the other has not.
        for client in 0..2 {
            assert_eq!(looked_up(&mut bench, client, dir, "link"), Some((ino, false)));
            assert_eq!(target(&mut bench, client, ino), Some(format!("../{called}")));
            let stat = soon(&mut bench, client, Op::GetAttr { ino });
            let Some(Ok((Answer::Attr { attr }, _))) = stat else { panic!("{stat:?}") };
            assert_eq!(
                (attr.ino, attr.kind, attr.size),
                (ino, Kind::Symlink, 3 + called.as_bytes().len() as u64)
            );
        }
        let x = Op::Lookup { dir: bench.dirs[T], name: name("x") };
        assert!(matches!(soon(&mut bench, 1, x), Some(Ok(_))), "what it leads to is there");
        bench.back(S);
        bench.settle();
        assert_eq!(looked_up(&mut bench, 1, dir, "link"), Some((ino, true)));
    }
}

#[test]
fn a_link_whose_home_is_not_the_owner_of_its_directory_leads_on_without_either() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let dir = bench.dirs[S];
        let ino = link_to(&mut bench, H, "link", T);
        let (old, new) = ((H, "link"), (S, "link"));
        bench.ok(bench.rename(old, new));
        bench.settle();
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 0, dir, "link"), Some((ino, true)), "its home tells");
        bench.back(S);
        bench.settle();
        down(&mut bench, H);
        for client in 0..2 {
            assert_eq!(looked_up(&mut bench, client, dir, "link"), Some((ino, false)));
            assert!(target(&mut bench, client, ino).is_some());
        }
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 1, dir, "link"), Some((ino, false)), "{R} and {T} know it");
    }
}

#[test]
fn a_link_to_nothing_is_told_of_when_it_leads_to_a_directory_and_is_used() {
    for seed in 0..10 {
        let mut bench = Bench::new(seed, 3);
        let dir = bench.dirs[S];
        let ino = make(&mut bench, dir, "link", "later");
        bench.settle();
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 0, dir, "link"), None, "nobody else knows of it");
        bench.back(S);
        bench.settle();
        bench.ok(Op::Mkdir { dir, name: name("later"), mode: 0o755, umask: 0 });
        bench.wait(11_000_000);
        assert_eq!(looked_up(&mut bench, 0, dir, "link"), Some((ino, true)));
        bench.settle();
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 1, dir, "link"), Some((ino, false)));
    }
}

#[test]
fn a_link_through_a_link_and_one_to_a_renamed_directory_are_told_of_and_no_others() {
    for seed in 0..10 {
        let mut bench = Bench::new(seed, 4);
        let dir = bench.dirs[S];
        let mkdir = |dir, n: &str| Op::Mkdir { dir, name: name(n), mode: 0o755, umask: 0 };
        bench.ok(mkdir(bench.dirs[T], "sub"));
        link_to(&mut bench, S, "first", T);
        bench.settle();
        let through = make(&mut bench, dir, "second", "first/sub");
        let rename = Op::Rename {
            dir: bench.dirs[T],
            name: name("sub"),
            new_dir: bench.dirs[T],
            new_name: name("renamed"),
            mode: RenameMode::NoReplace,
            meant: None,
            new_meant: None,
        };
        bench.settle();
        bench.ok(rename);
        let called = bench.names[T].clone();
        let renamed = make(&mut bench, dir, "third", &format!("./..//{called}/renamed/"));
        bench.file(T, "file");
        for (n, target) in [
            ("absolute", format!("/{called}")),
            ("out", "../../x".to_owned()),
            ("missing", "no".to_owned()),
            ("file", format!("../{called}/file")),
            ("itself", "itself".to_owned()),
        ] {
            make(&mut bench, dir, n, &target);
        }
        bench.settle();
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 1, dir, "second"), Some((through, false)));
        assert_eq!(looked_up(&mut bench, 1, dir, "third"), Some((renamed, false)));
        for n in ["absolute", "out", "missing", "file", "itself"] {
            assert_eq!(looked_up(&mut bench, 1, dir, n), None, "{n}");
        }
    }
}

#[test]
fn a_link_that_is_gone_or_has_another_name_leaves_nothing_behind() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let dir = bench.dirs[S];
        let inos: Vec<Ino> = ["gone", "old", "over", "moved"].map(|n| link_to(&mut bench, S, n, T)).into();
        bench.file(S, "file");
        bench.settle();
        bench.ok(bench.unlink(S, "gone"));
        bench.ok(bench.rename((S, "old"), (S, "new")));
        bench.ok(bench.rename((S, "file"), (S, "over")));
        bench.ok(bench.rename((S, "moved"), (H, "moved")));
        bench.ok(Op::SetAttr { ino: inos[1], set: SetAttr { uid: Some(7), ..SetAttr::default() } });
        // The directory's own name is nothing to them.
        let (from, to) = (bench.names[S].clone(), name("another"));
        bench.ok(rename_dir(from, to));
        bench.settle();
        down(&mut bench, S);
        for n in ["gone", "old", "over", "moved"] {
            assert_eq!(looked_up(&mut bench, 1, dir, n), None, "{n}");
        }
        assert_eq!(looked_up(&mut bench, 1, dir, "new"), Some((inos[1], false)));
        let stat = soon(&mut bench, 1, Op::GetAttr { ino: inos[1] });
        let Some(Ok((Answer::Attr { attr }, _))) = stat else { panic!("{stat:?}") };
        assert_eq!(attr.uid, 7);
        let moved = bench.dirs[H];
        assert_eq!(looked_up(&mut bench, 1, moved, "moved").map(|(ino, _)| ino), Some(inos[3]));
    }
}

fn rename_dir(from: Name, to: Name) -> Op {
    let mode = RenameMode::NoReplace;
    Op::Rename {
        dir: Ino::ROOT,
        name: from,
        new_dir: Ino::ROOT,
        new_name: to,
        mode,
        meant: None,
        new_meant: None,
    }
}

#[test]
fn an_island_that_was_cut_off_answers_as_before_the_cut_and_then_as_all() {
    for seed in 0..10 {
        let mut bench = Bench::new(seed, 3);
        let dir = bench.dirs[S];
        let gone = link_to(&mut bench, S, "gone", T);
        bench.settle();
        bench.world.partition(|party| party == Party::Machine(node(H)) || party == Party::Client(1));
        bench.wait(6_000_000);
        bench.ok(bench.unlink(S, "gone"));
        let new = link_to(&mut bench, S, "new", T);
        bench.wait(TOLD_US);
        assert_eq!(looked_up(&mut bench, 1, dir, "gone"), Some((gone, false)), "it was there before the cut");
        bench.settle();
        assert_eq!(bench.run(1, bench.lookup(S, "gone")).map(|_| ()), Err(Errno::ENOENT));
        down(&mut bench, S);
        assert_eq!(looked_up(&mut bench, 1, dir, "gone"), None);
        assert_eq!(looked_up(&mut bench, 1, dir, "new"), Some((new, false)));
    }
}

#[test]
fn whatever_dies_among_changes_of_links_all_islands_keep_the_same_in_the_end() {
    for seed in 0..24 {
        let islands = 2 + (seed % 3) as u16;
        let mut bench = Bench::new(seed, islands);
        let mut rng = Rng::new(seed);
        let names = ["a", "b", "c"];
        let mut tokens = Vec::new();
        for _ in 0..30 {
            let (one, other) = (rng.index(usize::from(islands)), rng.index(usize::from(islands)));
            let (n, m) = (names[rng.index(3)], names[rng.index(3)]);
            let op = match rng.index(5) {
                0 | 1 => {
                    let target = format!("../{}", bench.names[other]).into();
                    let (kind, mode, umask, rdev, exclusive) = (Kind::Symlink, 0o777, 0, 0, true);
                    Op::Create {
                        dir: bench.dirs[one],
                        name: name(n),
                        kind,
                        mode,
                        umask,
                        rdev,
                        exclusive,
                        target,
                    }
                }
                2 => bench.unlink(one, n),
                _ => bench.rename((one, n), (other, m)),
            };
            tokens.push(bench.call(0, op));
            bench.wait(rng.below(200_000));
            if rng.percent(20) {
                let fault = if rng.percent(50) { power(rng.bits()) } else { Fault::ProcessDeath };
                bench.restart(one, fault);
            }
            if rng.percent(10) {
                bench.world.partition(|party| party == Party::Machine(node(other)));
                bench.wait(500_000);
                bench.world.heal();
            }
        }
        bench.settle();
        for token in tokens {
            bench.answer(0, token).ok();
        }
        bench.settle();
        // What is there is told of as soon as it is used, and then found without its owner.
        let mut there = Vec::new();
        bench.wait(11_000_000);
        for island in 0..usize::from(islands) {
            for n in names {
                if let Ok(ino) = bench.at(island, n) {
                    there.push((island, n, ino));
                }
            }
        }
        bench.settle();
        let lost = rng.index(usize::from(islands));
        down(&mut bench, lost);
        for n in names {
            let expected =
                there.iter().find(|(island, m, _)| *island == lost && *m == n).map(|(.., ino)| *ino);
            let dir = bench.dirs[lost];
            let found = looked_up(&mut bench, 1, dir, n).map(|(ino, _)| ino);
            assert_eq!(found, expected, "seed {seed}: {n} of {lost}");
        }
        bench.back(lost);
        invariants(&mut bench.world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn an_island_that_dies_at_any_effect_of_a_change_of_a_link_leaves_all_islands_alike() {
    let mut points = 0;
    for (seed, script) in scripts().into_iter().filter(|s| matches!(s, Script::Link(_))).enumerate() {
        let (seed, islands) = (seed as u64, 3);
        let counts = count(script, islands, seed).unwrap_or_else(|e| panic!("{script:?}: {e}"));
        for (island, effects) in counts.into_iter().enumerate() {
            for effect in 1..=effects {
                let cut = (effect / 2 + seed).is_multiple_of(2);
                let fault = if cut { power(effect) } else { Fault::ProcessDeath };
                let point = Point { node: node(island), effect, fault };
                let mut world = world(script, islands, seed).unwrap();
                one(&mut world, script, Some(point)).unwrap_or_else(|e| panic!("{script:?} {point:?}: {e}"));
                points += 1;
            }
        }
    }
    assert!(points > 50, "{points}");
}

#[test]
fn a_link_that_has_followed_its_name_is_told_of_by_its_new_home() {
    for seed in 0..6 {
        let mut config = Config::new(seed, 4);
        (config.clients, config.delay_us_max, config.moves) = (2, 300, true);
        let mut bench = Bench::with(config);
        let called = bench.names[T].clone();
        let ino = link_to(&mut bench, S, "link", T);
        bench.settle();
        bench.ok(bench.rename((S, "link"), (H, "other")));
        bench.wait(TOLD_US);
        assert_eq!(bench.world.homes(ino), [id(H)]);
        // Who uses it has it told of.
        let dir = bench.dirs[H];
        assert_eq!(looked_up(&mut bench, 0, dir, "other"), Some((ino, true)));
        bench.wait(20_000_000);
        assert_eq!(looked_up(&mut bench, 0, dir, "other"), Some((ino, true)));
        bench.settle();
        down(&mut bench, H);
        assert_eq!(looked_up(&mut bench, 1, dir, "other"), Some((ino, false)));
        assert_eq!(target(&mut bench, 1, ino), Some(format!("../{called}")));
        bench.back(H);
        bench.settle();
        bench.ok(bench.unlink(H, "other"));
        bench.settle();
    }
}
