//! Sequences of directories that move, and of new ones below and in place of them.

use atoll_core::{Ino, Key, Name, Table, VolumePath};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode, SetAttr};
use atoll_proto::{ParticipantWork, TxnState};
use atoll_sim::World;

use crate::bench::{Bench, H, S, T, has_work, id, name, node, owned_by, power};

const ISLANDS: u16 = 3;

/// A directory: what it is in and its name.
type At = (Ino, Name);

impl Bench {
    /// Makes a directory below this path, on an island.
    fn below_path(&mut self, seed: u64, path: &[Name], dir: Ino, owner: usize) -> (At, Ino) {
        let n = owned_by(ISLANDS, seed, path, "below", owner);
        let ino = self.mkdir(dir, &n, 0o755);
        ((dir, n), ino)
    }

    /// The same in the directory that `above` has owned from the beginning.
    fn below(&mut self, seed: u64, above: usize, owner: usize) -> (At, Ino) {
        self.below_path(seed, &[self.names[above].clone()], self.dirs[above], owner)
    }

    /// The same, with a name of this prefix, in a world of four islands.
    fn below_as(&mut self, seed: u64, above: usize, prefix: &str, owner: usize) -> (At, Ino) {
        let at = (self.dirs[above], owned_by(4, seed, &[self.names[above].clone()], prefix, owner));
        let ino = self.mkdir(at.0, &at.1, 0o755);
        (at, ino)
    }

    /// The coordinator of a move has written that it has happened, and dies before anybody has heard. The root's owner loses its
    /// power, and comes back.
    fn decides_and_permit_is_lost(&mut self, coordinator: usize, root: usize, seed: u64) {
        let is_decided = |world: &World| has_work(world, coordinator, TxnState::Committed, is_permit);
        assert!(self.step_until(5_000_000, is_decided));
        self.world.stay_away(node(coordinator), Fault::ProcessDeath);
        self.lose(root, seed);
        self.back(root);
    }

    fn mkdir(&mut self, dir: Ino, n: &Name, mode: u32) -> Ino {
        let done = self.run(0, Op::Mkdir { dir, name: n.clone(), mode, umask: 0 });
        let Ok((Answer::Found { found }, _)) = done else { panic!("{n}: {done:?}") };
        found.attr.ino
    }

    /// The directory that an island owns from the beginning.
    fn first(&self, island: usize) -> At {
        (Ino::ROOT, self.names[island].clone())
    }

    /// What a name leads to; none if it is surely not there.
    fn named(&mut self, at: &At) -> Option<Ino> {
        match self.run(0, Op::Lookup { dir: at.0, name: at.1.clone() }) {
            Ok((Answer::Found { found }, _)) => Some(found.attr.ino),
            Err(Errno::ENOENT) => None,
            other => panic!("{at:?}: {other:?}"),
        }
    }

    fn knows(&mut self, client: usize, at: &At) {
        self.run(client, Op::Lookup { dir: at.0, name: at.1.clone() }).unwrap();
    }

    fn mode(&mut self, ino: Ino) -> u32 {
        match self.run(0, Op::GetAttr { ino }) {
            Ok((Answer::Attr { attr }, _)) => attr.mode,
            other => panic!("{other:?}"),
        }
    }
}

const fn is_permit(work: &ParticipantWork) -> bool {
    matches!(work, ParticipantWork::PermitMove { .. })
}

fn moved(from: &At, to: &At) -> Op {
    let mode = RenameMode::Replace;
    Op::Rename {
        dir: from.0,
        name: from.1.clone(),
        new_dir: to.0,
        new_name: to.1.clone(),
        mode,
        meant: None,
        new_meant: None,
    }
}

fn chmod(ino: Ino, mode: u32) -> Op {
    Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

#[test]
fn nobody_doubts_directories_that_replace_each_other_while_all_are_there() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, ISLANDS);
        for round in 0..8 {
            let (there, _) = bench.below(seed, S, round % 3);
            let new = (bench.dirs[S], name("new"));
            let ino = bench.mkdir(new.0, &new.1, 0o755);
            bench.ok(moved(&new, &there));
            assert_eq!(bench.named(&there), Some(ino));
            bench.ok(Op::Rmdir { dir: there.0, name: there.1, meant: None });
        }
        bench.settle();
        let suspected = (0..3).filter(|island| bench.world.has_doubted(id(*island))).collect::<Vec<_>>();
        assert_eq!(suspected, [0; 0], "seed {seed}: each compares all its directories for it");
    }
}

#[test]
fn of_two_directories_that_move_into_each_other_one_does_whatever_is_lost() {
    // [6]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, ISLANDS);
        let (a, b) = (bench.dirs[S], bench.dirs[T]);
        let (into_b, into_a) = ((b, name("a")), (a, name("b")));
        let (old_a, old_b) = (bench.first(S), bench.first(T));
        bench.rest();
        let first = bench.call(0, moved(&old_a, &into_b));
        let second = bench.call(1, moved(&old_b, &into_a));
        bench.wait(seed * 37);
        let victim = (seed % 3) as usize;
        bench.lose(victim, seed);
        if seed % 2 == 0 {
            bench.restart((victim + 1) % 3, power(seed));
        }
        bench.back(victim);
        let done = [bench.answer(0, first), bench.answer(1, second)].map(|done| done.is_ok());
        bench.settle();
        let there = [&old_a, &old_b, &into_b, &into_a].map(|at| bench.named(at).is_some());
        // Where both are in each other neither can be reached: one of them is where it was.
        assert!(done != [true, true] && (there[0] || there[1]), "{seed}: {done:?} {there:?}");
        assert_eq!(there.iter().filter(|there| **there).count(), 2, "{seed}: {done:?} {there:?}");
    }
}

#[test]
pub(crate) fn a_move_that_was_permitted_and_lost_is_not_crossed_while_its_coordinator_is_away() {
    let root = usize::from(Table::new(4).owner(Key(0)).0);
    let [s, t, h] = [1, 2, 3].map(|i| (root + i) % 4);
    let mut lost = 0;
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        let [(old_a, a), (old_b, b), (old_c, c)] =
            [(s, "a"), (t, "b"), (t, "c")].map(|(above, prefix)| bench.below_as(seed, above, prefix, h));
        let [into_b, into_a, beside] = [(b, name("a")), (a, name("b")), (bench.dirs[h], name("c"))];
        [&old_a, &old_b].into_iter().for_each(|at| bench.knows(1, at));
        bench.rest();
        let first = bench.call(0, moved(&old_a, &into_b));
        bench.decides_and_permit_is_lost(s, root, seed);
        lost += u32::from(!has_work(&bench.world, root, TxnState::Prepared, is_permit));
        let second = bench.call(1, moved(&old_b, &into_a));
        bench.wait(500_000);
        // Nothing above this one's new place can have moved.
        bench.ok(moved(&old_c, &beside));
        bench.back(s);
        bench.answer(0, first).unwrap();
        assert_eq!(bench.answer(1, second), Err(Errno::EINVAL));
        bench.settle();
        let there = [&old_a, &old_b, &into_b, &into_a, &beside].map(|at| bench.named(at));
        assert_eq!(there, [None, Some(b), Some(a), None, Some(c)], "seed {seed}");
    }
    assert!(lost > 5, "lost {lost} times");
}

#[test]
fn a_directory_that_an_exchange_took_from_another_island_is_not_crossed_while_its_coordinator_is_away() {
    let root = usize::from(Table::new(4).owner(Key(0)).0);
    let [s, t, h] = [1, 2, 3].map(|i| (root + i) % 4);
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 4);
        // The second is in a directory of T's, and goes to one of S's that is in H's.
        let [(_, within), (there, b)] = [(h, "s", s), (t, "b", h)]
            .map(|(above, prefix, owner)| bench.below_as(seed, above, prefix, owner));
        let here = (within, name("a"));
        let a = bench.mkdir(within, &here.1, 0o755);
        let (above, into_b) = (bench.first(h), (b, name("u")));
        [&above, &there].into_iter().for_each(|at| bench.knows(1, at));
        bench.rest();
        let (dir, name, new_dir, new_name) = (here.0, here.1.clone(), there.0, there.1.clone());
        let (mode, meant, new_meant) = (RenameMode::Exchange, None, None);
        let first = bench.call(0, Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant });
        bench.decides_and_permit_is_lost(s, root, seed);
        let second = bench.call(1, moved(&above, &into_b));
        bench.wait(500_000);
        bench.back(s);
        bench.answer(0, first).unwrap();
        assert_eq!(bench.answer(1, second), Err(Errno::EINVAL), "seed {seed}");
        bench.settle();
        assert_eq!(
            [&here, &there, &into_b].map(|at| bench.named(at)),
            [Some(b), Some(a), None],
            "seed {seed}"
        );
    }
}

#[test]
fn a_directory_whose_moves_were_lost_moves_again_and_changes() {
    // [7]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, ISLANDS);
        let (first, ino) = bench.below(seed, S, H);
        let mut places = vec![first];
        places.extend([(T, "m0"), (H, "m1"), (S, "m2")].map(|(island, n)| (bench.dirs[island], name(n))));
        bench.rest();
        for step in places.windows(2) {
            bench.ok(moved(&step[0], &step[1]));
        }
        bench.wait(seed * 90);
        let victim = (seed % 3) as usize;
        bench.lose(victim, seed);
        bench.restart((victim + 1) % 3, power(seed));
        bench.back(victim);
        bench.settle();
        let found: Vec<&At> = places.iter().filter(|at| bench.named(at) == Some(ino)).collect();
        assert_eq!(found.len(), 1, "{seed}: {found:?}");
        bench.ok(moved(found[0], &(bench.dirs[T], name("again"))));
        bench.ok(chmod(ino, 0o711));
        bench.settle();
        assert_eq!(bench.mode(ino), 0o711);
    }
}

#[test]
fn a_directory_goes_below_one_that_an_island_with_its_skeleton_does_not_know() {
    // [8]
    for seed in 0..40 {
        let mut bench = Bench::new(seed, ISLANDS);
        // H has `moves` in its skeleton, because it owns something in it, and nobody but S has `new`.
        let (from, moves) = bench.below(seed, S, T);
        let path = [bench.names[S].clone(), from.1.clone()];
        let (_, low) = bench.below_path(seed, &path, moves, H);
        bench.rest();
        bench.knows(1, &from);
        let new = bench.mkdir(bench.dirs[S], &name("new"), 0o755);
        bench.ok(chmod(new, 0o700));
        let renamed = bench.call(0, moved(&from, &(new, name("n"))));
        bench.wait(seed * 20);
        let changed = bench.call(1, chmod(moves, 0o750));
        if seed % 2 == 0 {
            bench.restart(H, if seed % 4 == 0 { power(seed) } else { Fault::ProcessDeath });
        }
        bench.answer(0, renamed).unwrap();
        bench.answer(1, changed).unwrap();
        bench.settle();
        assert_eq!((bench.named(&from), bench.named(&(new, name("n")))), (None, Some(moves)));
        assert_eq!((bench.mode(moves), bench.mode(new)), (0o750, 0o700));
        bench.ok(Op::GetAttr { ino: low });
    }
}

#[test]
fn a_directory_is_changed_while_it_moves() {
    // [10]
    for at in 0..40 {
        let mut bench = Bench::new(at, ISLANDS);
        let (from, ino) = bench.below(at, S, H);
        bench.knows(1, &from);
        bench.rest();
        let to = (bench.dirs[T], name("to"));
        let renamed = bench.call(0, moved(&from, &to));
        bench.wait(at * 25);
        let changed = bench.call(1, chmod(ino, 0o711));
        bench.answer(0, renamed).unwrap();
        bench.answer(1, changed).unwrap();
        if at % 3 == 0 {
            bench.restart((at % 9 / 3) as usize, Fault::ProcessDeath);
        }
        // The stub in the new place is compared with the directory.
        bench.settle();
        assert_eq!((bench.named(&from), bench.named(&to), bench.mode(ino)), (None, Some(ino), 0o711));
    }
}

#[test]
fn a_rename_whose_island_dies_stops_no_others() {
    // [15]
    for at in 0..40 {
        let mut bench = Bench::new(at, ISLANDS);
        let root = usize::from(Table::new(ISLANDS).owner(Key(0)).0);
        let (dead, other) = ((root + 1) % 3, (root + 2) % 3);
        let (stuck, _) = bench.below(at, dead, other);
        let (goes, ino) = bench.below(at, other, other);
        bench.rest();
        bench.call(0, moved(&stuck, &(bench.dirs[other], name("s"))));
        bench.wait(at * 15);
        bench.world.stay_away(node(dead), Fault::ProcessDeath);
        // Neither the ticket of the one in doubt nor what it waits for concerns this one.
        let to = (bench.dirs[root], name("g"));
        let renamed = bench.call(1, moved(&goes, &to));
        bench.answer(1, renamed).unwrap_or_else(|e| panic!("{at}: {e:?}"));
        bench.back(dead);
        bench.settle();
        assert_eq!(bench.named(&to), Some(ino));
    }
}

#[test]
fn a_directory_is_made_below_one_that_is_renamed_by_an_island_that_had_not_heard_of_either() {
    for at in 0..40 {
        let mut bench = Bench::new(at, ISLANDS);
        let (from, above) = bench.below(at, S, S);
        bench.rest();
        let path = [bench.names[S].clone(), from.1.clone()];
        let low = owned_by(ISLANDS, at, &path, "below", H);
        let renamed = bench.call(1, moved(&from, &(bench.dirs[T], name("to"))));
        bench.wait(at * 15);
        let mkdir = Op::Mkdir { dir: above, name: low.clone(), mode: 0o755, umask: 0 };
        let made = bench.call(0, mkdir);
        if at % 3 == 0 {
            bench.restart(H, Fault::ProcessDeath);
        }
        bench.answer(1, renamed).unwrap();
        let Ok((Answer::Found { found }, _)) = bench.answer(0, made) else { panic!("{at}: not made") };
        // Every island has the same above it, or the rows do not hold together.
        bench.settle();
        assert_eq!(bench.named(&(above, low)), Some(found.attr.ino));
    }
}

#[test]
fn who_may_not_enter_the_new_directory_does_not_enter_by_what_is_known_of_the_old_one() {
    let user = Caller { uid: 1000, gid: 1000, groups: Some(Vec::new()) };
    for seed in 0..40 {
        let mut bench = Bench::new(seed, ISLANDS);
        let above = [bench.names[S].clone()];
        // H has a skeleton of /S/d, which everybody may enter.
        let d = (bench.dirs[S], owned_by(ISLANDS, seed, &above, "below", T));
        let old = bench.mkdir(d.0, &d.1, 0o777);
        let path = [above[0].clone(), d.1.clone()];
        let (low, _) = bench.below_path(seed, &path, old, H);
        bench.rest();
        let walked = VolumePath::from_names([&path[..], std::slice::from_ref(&low.1)].concat()).unwrap();
        assert!(bench.world.walk(1, &user, &walked).unwrap().0.is_ok());
        bench.ok(Op::Rmdir { dir: old, name: low.1.clone(), meant: None });
        if seed % 2 == 0 {
            bench.world.stay_away(node(H), Fault::ProcessDeath);
            bench.wait(30_000);
            bench.world.come_back(node(H));
        }
        bench.ok(Op::Rmdir { dir: d.0, name: d.1.clone(), meant: None });
        let new = bench.mkdir(d.0, &d.1, 0o700);
        assert_ne!(old, new);
        bench.mkdir(new, &low.1, 0o777);
        // The client that made it has walked there already.
        assert!(bench.world.walk(0, &Caller::ROOT, &walked).unwrap().0.is_ok());
        assert_eq!(bench.world.walk(0, &user, &walked).unwrap().0, Err(Errno::EACCES), "{seed}");
        bench.settle();
        assert_eq!(bench.world.walk(1, &user, &walked).unwrap().0, Err(Errno::EACCES), "{seed}");
    }
}

#[test]
fn what_is_not_what_the_caller_means_is_neither_removed_nor_replaced() {
    for above in [S, T] {
        let mut bench = Bench::new(3, ISLANDS);
        let (from, moves) = bench.below(3, S, S);
        let (to, there) = bench.below(3, above, H);
        let free = (bench.dirs[above], name("free"));
        let rename = |to: &At, meant, new_meant| match moved(&from, to) {
            Op::Rename { dir, name, new_dir, new_name, mode, .. } => {
                Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }
            }
            _ => unreachable!("a rename"),
        };
        let rmdir = |meant| Op::Rmdir { dir: to.0, name: to.1.clone(), meant: Some(meant) };
        for wrong in [
            rename(&to, Some(there), None),
            rename(&to, Some(moves), Some(moves)),
            rename(&free, None, Some(there)),
            rmdir(moves),
        ] {
            assert_eq!(bench.run(0, wrong.clone()), Err(Errno::ESTALE), "{wrong:?}");
            assert_eq!([&from, &to, &free].map(|at| bench.named(at)), [Some(moves), Some(there), None]);
        }
        bench.ok(rename(&to, Some(moves), Some(there)));
        assert_eq!([&from, &to].map(|at| bench.named(at)), [None, Some(moves)]);
        bench.ok(rmdir(moves));
        bench.settle();
    }
}

#[test]
fn a_rename_over_an_empty_directory_is_done_again_or_waits_while_another_island_is_away() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut bench = Bench::new(seed, ISLANDS);
        let (old, ino) = bench.below(seed, S, S);
        let new = (bench.dirs[S], owned_by(ISLANDS, seed, &bench.names[S..=S], "new", S));
        let empty = bench.mkdir(new.0, &new.1, 0o755);
        // It had a name that was lent.
        bench.file(T, "file");
        bench.ok(moved(&(bench.dirs[T], name("file")), &(empty, name("came"))));
        bench.ok(Op::Unlink { dir: empty, name: name("came") });
        bench.rest();
        bench.ok(moved(&old, &new));
        bench.world.stay_away(node(H), Fault::ProcessDeath);
        bench.lose(S, seed);
        bench.world.come_back(node(S));
        bench.wait(5_000_000);
        bench.back(H);
        bench.settle();
        let found = (bench.named(&old), bench.named(&new));
        lost += usize::from(found.0.is_some());
        assert!([(None, Some(ino)), (Some(ino), Some(empty))].contains(&found), "seed {seed}: {found:?}");
    }
    assert!(lost < 20);
}

/// Its owner has not heard yet that it is removed, and waits with what it tells of it.
#[test]
fn a_directory_is_gone_for_all_when_its_removal_is_answered() {
    for seed in 0..60 {
        let mut bench = Bench::new(seed, ISLANDS);
        let dir = (bench.dirs[S], owned_by(ISLANDS, seed, &[bench.names[S].clone()], "below", T));
        let ino = bench.mkdir(dir.0, &dir.1, 0o777);
        bench.run(1, Op::Lookup { dir: dir.0, name: dir.1.clone() }).unwrap();
        bench.rest();
        bench.ok(Op::Rmdir { dir: dir.0, name: dir.1.clone(), meant: None });
        let op = match seed % 3 {
            0 => Op::ReadDir { dir: ino, after: 0, bytes: 1 << 20, plus: false },
            1 => Op::GetAttr { ino },
            _ => Op::Lookup { dir: ino, name: name("n") },
        };
        assert_eq!(bench.run(1, op).map(|_| ()), Err(Errno::ESTALE), "seed {seed}");
    }
}

/// A name comes to a directory, which is renamed before its owner has heard the outcome.
#[test]
fn a_directory_that_is_renamed_just_after_a_name_came_keeps_the_time_of_that() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, ISLANDS);
        bench.file(S, "f");
        bench.rest();
        bench.ok(bench.rename((S, "f"), (T, "f")));
        let at = bench.first(T);
        bench.ok(moved(&at, &(Ino::ROOT, name("renamed"))));
        bench.settle();
        let attr = match bench.run(0, Op::GetAttr { ino: bench.dirs[T] }) {
            Ok((Answer::Attr { attr }, _)) => attr,
            other => panic!("{other:?}"),
        };
        assert!(attr.mtime < attr.ctime, "seed {seed}: {attr:?}");
    }
}
