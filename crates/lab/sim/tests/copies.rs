//! Dangerous sequences of `docs/design/018-copies.md`, by their names there: those of several islands that have copies, with
//! clients that follow whoever leads.

#[allow(dead_code, reason = "a part of it is used")]
#[path = "across/bench.rs"]
mod bench;

use atoll_core::{Ino, NodeId};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Op, SetAttr};
use atoll_sim::Config;

use atoll_route::{ListError, ListedFile};
use bytes::Bytes;

use bench::{Bench, H, S, id, owned_by};

/// Longer than another copy needs to lead, and less than an island waits for one that does not answer.
const SOON_US: u64 = 6_000_000;

/// Two copies of each of three islands, on five machines. `S` and `H` share none.
fn copies(seed: u64) -> Bench {
    let mut config = Config::new(seed, 3);
    (config.clients, config.delay_us_max, config.copies, config.lays) = (2, 300, 2, false);
    Bench::with(config)
}

/// The machine that leads an island dies, and stays away. It is told which one that was.
fn leader_dies(bench: &mut Bench, island: usize) -> NodeId {
    let node = bench.world.machine_of(id(island));
    bench.world.stay_away(node, Fault::ProcessDeath);
    node
}

/// A directory's mode is changed while an island with a directory below it changes its primary: the answer waits for the next one.
#[test]
fn a_chmod_waits_for_an_island_that_fails_over() {
    for seed in 0..3 {
        let mut bench = copies(seed);
        let below = owned_by(3, seed, &[bench.names[S].clone()], "below", H);
        bench.ok(Op::Mkdir { dir: bench.dirs[S], name: below, mode: 0o755, umask: 0 });
        bench.settle();
        let old = leader_dies(&mut bench, H);
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let token = bench.call(0, Op::SetAttr { ino: bench.dirs[S], set });
        assert!(bench.answer(0, token).is_ok());
        assert_ne!(bench.world.machine_of(id(H)), old, "seed {seed}: the old mode may be served yet");
    }
}

/// The next life of a primary claims its island, and its machine stands still before it hears that it has won. It hears of it when the
/// other copy leads a later epoch and has committed a record of it: the late one lacks that, and tells nothing.
#[test]
fn a_primary_that_hears_late_of_its_claim() {
    let mut bench = copies(7);
    bench.settle();
    let old = leader_dies(&mut bench, S);
    let other = NodeId(old.0 + 1);
    // Else the other copy hears of the next life, and is quicker.
    bench.world.cut_between(old, other, true);
    bench.world.come_back(old);
    assert!(bench.step_until(SOON_US, |world| world.swaps(old, id(S))));
    bench.world.freeze(old, 2_500_000);
    assert!(bench.step_until(SOON_US, |world| world.leads(other, id(S))));
    let is_late = bench.step_until(SOON_US, |world| world.leads(old, id(S)));
    assert!(is_late && bench.world.leads(other, id(S)), "two copies lead, in two epochs");
    bench.world.cut_between(old, other, false);
    bench.settle();
    assert!(!bench.world.leads(old, id(S)));
    let ino = bench.file(S, "a");
    bench.has(S, "a", ino, 1);
}

/// The files of one copy fail until the disk is mended. Its machine goes on with the other island that it keeps, and the other copy
/// leads.
#[test]
fn a_copy_whose_files_fail_hides_its_own_island_on_its_machine_only() {
    for seed in 0..3 {
        let mut bench = copies(seed);
        bench.settle();
        // The only machine that keeps two islands: it leads one, and follows the other.
        let (led, followed, node) = (1, 0, NodeId(1));
        assert_eq!(
            (bench.world.machine_of(id(led)), bench.world.machine_of(id(followed))),
            (node, NodeId(0))
        );
        bench.world.fail_copy(id(led), node, 1, true);
        for (island, name) in [(led, "first"), (followed, "second")] {
            let began_us = bench.world.now_us();
            bench.file(island, name);
            assert!(bench.world.now_us() < began_us + SOON_US, "seed {seed}: {name}");
        }
        assert!(!bench.world.leads(node, id(led)) && bench.world.is_up(node), "seed {seed}");
        let old = leader_dies(&mut bench, followed);
        bench.file(followed, "third");
        assert!(bench.world.leads(node, id(followed)), "seed {seed}");
        bench.world.come_back(old);
        bench.settle();
        let follows = bench.world.machine_of(id(led)) != node;
        assert!(follows, "seed {seed}: it is back, and follows");
    }
}

/// A rename between two islands is asked, and `island` changes its primary after so many steps.
fn rename_over_a_promotion(island: usize, steps: usize) {
    let mut bench = copies(steps as u64);
    let ino = bench.file(S, "a");
    bench.settle();
    let token = bench.call(0, bench.rename((S, "a"), (H, "b")));
    for _ in 0..steps {
        bench.world.step().unwrap();
    }
    let died_us = bench.world.now_us();
    let old = leader_dies(&mut bench, island);
    let done = bench.answer(0, token);
    assert!(done.is_ok(), "{steps} steps: {done:?}");
    let took_us = bench.world.now_us() - died_us;
    assert!(took_us < SOON_US, "{steps} steps: it has taken {took_us} us");
    bench.world.come_back(old);
    bench.settle();
    bench.has_not(S, "a");
    bench.has(H, "b", ino, 1);
}

/// A rename was begun at the old primary. The next one is asked again, while the partner holds the names for the first.
#[test]
fn a_rename_is_repeated_while_its_first_is_prepared() {
    (0..200).step_by(20).for_each(|steps| rename_over_a_promotion(S, steps));
}

/// The partner's old primary has taken a question along, and nobody says that the partner is away: its next life says so.
#[test]
fn a_prepare_that_the_old_primary_took_along() {
    (0..20).step_by(2).for_each(|steps| rename_over_a_promotion(H, steps));
}

/// The partner of a rename changes its primary, between its vote and the outcome too.
#[test]
fn a_partner_changes_its_primary_at_each_step() {
    (0..200).step_by(20).for_each(|steps| rename_over_a_promotion(H, steps));
}

/// A file follows its name to another island, while either of them changes its primary.
#[test]
fn a_file_that_moves_arrives_once() {
    for (step, island) in (0..10).zip([S, H].into_iter().cycle()) {
        let mut config = Config::new(step, 3);
        (config.clients, config.delay_us_max, config.copies, config.lays) = (2, 300, 2, false);
        (config.moves, config.mounts) = (true, true);
        let mut bench = Bench::with(config);
        let ino = bench.file(S, "a");
        bench.settle();
        bench.ok(bench.rename((S, "a"), (H, "b")));
        bench.wait(step * 100_000);
        let old = leader_dies(&mut bench, island);
        bench.wait(5_000_000);
        bench.world.come_back(old);
        bench.settle();
        let end = bench.world.now_us() + 70_000_000;
        while bench.world.homes(ino) != [id(H)] {
            assert!(bench.world.now_us() < end, "step {step}: it is homed at {:?}", bench.world.homes(ino));
            bench.wait(1_000_000);
        }
        bench.settle();
        bench.has(H, "b", ino, 1);
        bench.has_not(S, "a");
    }
}

/// A primary whose lease is over holds an answer at its door, on a link that lives, and is deposed.
#[test]
fn what_the_door_drops_is_asked_again() {
    let mut config = Config::new(1, 1);
    (config.clients, config.copies, config.lays) = (1, 2, false);
    let mut bench = Bench::with(config);
    let old = bench.world.machine_of(id(0));
    let other = NodeId(1 - old.0);
    bench.world.cut_between(old, other, true);
    bench.world.cut_store(old, true);
    bench.wait(950_000);
    let token = bench.call(0, Op::GetAttr { ino: Ino::ROOT });
    bench.wait(100_000);
    assert!(bench.world.poll(0, token).is_none() && bench.world.leads(old, id(0)), "it may not be told");
    let done = bench.answer(0, token);
    assert!(matches!(done, Ok((Answer::Attr { .. }, _))), "{done:?}");
    assert!(bench.world.leads(other, id(0)), "by the next primary");
    bench.world.cut_between(old, other, false);
    bench.world.cut_store(old, false);
    bench.settle();
    assert!(!bench.world.leads(old, id(0)));
}

/// The whole tree is listed at one moment, while one of its islands changes its primary and a file changes its name between islands.
/// The listing goes on behind that, and asks a primary that knows no such moment: it is whole, or it fails, and the next one is whole.
#[test]
fn a_listing_over_a_promotion() {
    let (mut whole, mut failed) = (0, 0);
    // A listing reads after so many steps, for some.
    for steps in 20..40 {
        let mut bench = copies(steps);
        bench.file(S, "a");
        bench.settle();
        let rename = bench.rename((S, "a"), (H, "b"));
        let (mut left, mut done) = (steps, false);
        let listed = bench.world.list(1, |world| {
            if left == 0 && !done {
                done = true;
                let node = world.machine_of(id(H));
                world.stay_away(node, Fault::ProcessDeath);
                let renamed = world.run(0, &Caller::ROOT, rename.clone(), Bytes::new()).unwrap();
                assert!(renamed.is_ok(), "{renamed:?}");
            }
            left = left.saturating_sub(1);
        });
        // It may have been over before.
        if !done {
            break;
        }
        let has = |listed: &[ListedFile], end: &[u8]| listed.iter().any(|row| row.path.ends_with(end));
        match listed.unwrap() {
            Ok(listed) => {
                let (before, behind) = (has(&listed, b"/a"), has(&listed, b"/b"));
                assert_ne!(before, behind, "{steps} steps: neither before nor behind the rename");
                whole += 1;
            }
            Err(ListError::Away(_) | ListError::Lost { .. }) => failed += 1,
            Err(why) => panic!("{steps} steps: {why:?}"),
        }
        let next = bench.world.list(1, |_| {}).unwrap().unwrap();
        assert!(!has(&next, b"/a") && has(&next, b"/b"), "{steps} steps");
    }
    assert!(whole > 0 && failed > 0, "{whole} {failed}");
}
