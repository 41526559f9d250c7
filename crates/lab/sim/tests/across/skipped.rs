//! Islands that were away for longer than others kept their journals for them, and have lost something themselves.

use atoll_core::{Ino, Name};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Op, RenameMode};
use atoll_sim::{Config, Scenario, run};

use crate::bench::{Bench, H, S, T, name, node, owned_by};

/// A directory at the end of this path, whose last name is to be found, owned by `owner`.
fn below(bench: &mut Bench, dir: Ino, path: &[Name], owner: usize) -> (Ino, String) {
    let (islands, seed) = (bench.world.config.islands, bench.world.config.seed);
    let n = owned_by(islands, seed, path, "below", owner);
    let op = Op::Mkdir { dir, name: n.clone(), mode: 0o755, umask: 0 };
    let Ok((Answer::Found { found }, _)) = bench.run(0, op) else { panic!("{n} is not made") };
    (found.attr.ino, n.to_string())
}

/// A directory in an island's own one.
fn below_own(bench: &mut Bench, island: usize, owner: usize) -> (Ino, String) {
    let (dir, path) = (bench.dirs[island], vec![bench.names[island].clone()]);
    below(bench, dir, &path, owner)
}

fn keeps_nothing(seed: u64) -> Bench {
    let mut config = Config::new(seed, 3);
    (config.clients, config.delay_us_max, config.outbox_max) = (2, 300, 0);
    Bench::with(config)
}

#[test]
fn a_directory_whose_name_was_lent_and_lost_is_compared_when_that_is_done_again() {
    for seed in 0..12 {
        let mut bench = keeps_nothing(seed);
        // Both are owned by the lender, so that it has them whatever it does not know of their places.
        let (one, there) = (below_own(&mut bench, S, T), below_own(&mut bench, T, T));
        // A first lend is synced by itself.
        bench.file(S, "f");
        bench.ok(bench.rename((S, "f"), (T, "f")));
        bench.rest();
        let (dir, new_dir) = (bench.dirs[S], bench.dirs[T]);
        let (from, to, mode) = (name(&one.1), name(&there.1), RenameMode::Exchange);
        bench.ok(Op::Rename { dir, name: from, new_dir, new_name: to, mode, meant: None, new_meant: None });
        // It has carried out all of it, and written nothing.
        bench.world.stay_away(node(T), Fault::PowerCut { seed });
        bench.wait(3_000_000);
        bench.back(T);
        bench.settle();
        assert_eq!(bench.at(S, &one.1), Ok(there.0), "seed {seed}");
        assert_eq!(bench.at(T, &there.1), Ok(one.0), "seed {seed}");
    }
}

#[test]
fn a_name_that_was_lent_twice_and_lost_after_the_first_time_is_not_waited_for_by_itself() {
    for seed in 0..30 {
        let mut bench = keeps_nothing(seed);
        let first = below_own(&mut bench, S, S);
        let second = below_own(&mut bench, H, H);
        // The lender has this one, so that it looks for the place of the second.
        let path = [bench.names[H].clone(), name(&second.1)];
        below(&mut bench, second.0, &path, T);
        bench.rest();
        let moved = |bench: &Bench, (from, n): (usize, &str), mode| {
            let (dir, new_dir) = (bench.dirs[from], bench.dirs[T]);
            Op::Rename {
                dir,
                name: name(n),
                new_dir,
                new_name: name("x"),
                mode,
                meant: None,
                new_meant: None,
            }
        };
        // This lend is synced by itself, and not its outcome, nor the next one.
        bench.ok(moved(&bench, (S, &first.1), RenameMode::NoReplace));
        bench.ok(moved(&bench, (H, &second.1), RenameMode::Exchange));
        bench.world.stay_away(node(T), Fault::PowerCut { seed });
        bench.wait(3_000_000);
        bench.back(T);
        bench.settle();
        assert_eq!(bench.at(T, "x"), Ok(second.0), "seed {seed}");
        assert_eq!(bench.at(H, &second.1), Ok(first.0), "seed {seed}");
    }
}

#[test]
fn a_directory_whose_name_a_file_has_by_now_is_compared() {
    for seed in 0..12 {
        let mut bench = keeps_nothing(seed);
        let gone = below_own(&mut bench, S, S);
        let path = [bench.names[S].clone(), name(&gone.1)];
        // The file's home has the directory only for the sake of this one.
        below(&mut bench, gone.0, &path, H);
        let file = bench.pointer(H, T, "f");
        bench.rest();
        let (dir, new_dir, mode) = (bench.dirs[S], bench.dirs[T], RenameMode::Exchange);
        bench.ok(Op::Rename {
            dir,
            name: name(&gone.1),
            new_dir,
            new_name: name("f"),
            mode,
            meant: None,
            new_meant: None,
        });
        bench.world.stay_away(node(H), Fault::PowerCut { seed });
        bench.wait(3_000_000);
        bench.back(H);
        bench.settle();
        assert_eq!(bench.at(T, "f"), Ok(gone.0), "seed {seed}");
        bench.has(S, &gone.1, file, 1);
    }
}

#[test]
fn what_a_directory_is_like_is_asked_for_although_it_was_renamed_since_its_name_was_lent_again() {
    let report = run(Scenario::named("absences_power").unwrap(), 213, Some(25));
    assert!(report.failure.is_none(), "{}\n{}", report.failure.unwrap(), report.command);
}
