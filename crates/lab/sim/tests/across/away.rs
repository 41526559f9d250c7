//! After a power cut, what only an island that is away knows: nobody builds on that it is not so, and nobody waits for
//! what cannot come.

use atoll_core::{Ino, Name, SessionId};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Errno, Kind, Op};
use bytes::Bytes;

use crate::bench::{Bench, H, R, S, T, id, name, node, owned_by};

/// Makes a directory in that of an island, which it owns itself.
fn below(bench: &mut Bench, seed: u64, islands: u16, at: usize, owner: usize) -> (Ino, Name, Ino) {
    let n = owned_by(islands, seed, &[bench.names[at].clone()], "below", owner);
    let dir = bench.dirs[at];
    match bench.run(0, Op::Mkdir { dir, name: n.clone(), mode: 0o755, umask: 0 }) {
        Ok((Answer::Found { found }, _)) => (dir, n, found.attr.ino),
        other => panic!("{other:?}"),
    }
}

/// A home has lost that its file got another name. The island of the name before is away, and the file is renamed to the
/// home itself, which does not know the name that goes.
#[test]
fn a_home_to_which_a_file_comes_back_knows_what_name_it_had() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 4);
        let ino = bench.pointer(T, R, "x");
        bench.file(T, "stays");
        below(&mut bench, seed, 4, S, T);
        bench.rest();
        bench.ok(bench.rename((R, "x"), (S, "a")));
        bench.ok(Op::FsyncDir { dir: bench.dirs[S] });
        bench.world.stay_away(node(R), Fault::ProcessDeath);
        bench.lose(T, seed);
        bench.back(T);
        bench.wait(3_000_000);
        let renamed = bench.run(1, bench.rename((S, "a"), (T, "b")));
        bench.back(R);
        bench.settle();
        bench.wait(10_000_000);
        let now = if renamed.is_ok() { (Err(Errno::ENOENT), Ok(ino)) } else { (Ok(ino), Err(Errno::ENOENT)) };
        assert_eq!((bench.at(S, "a"), bench.at(T, "b")), now, "seed {seed}: {renamed:?}");
        assert_eq!(bench.nlink(ino), 1, "seed {seed}");
    }
}

/// The same with a file that is replaced, and whose home coordinates.
#[test]
fn a_home_that_replaces_its_file_knows_what_name_that_had() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 4);
        let old = bench.pointer(S, R, "x");
        let new = bench.pointer(H, S, "a");
        below(&mut bench, seed, 4, T, S);
        bench.rest();
        bench.ok(bench.rename((R, "x"), (T, "b")));
        bench.ok(Op::FsyncDir { dir: bench.dirs[T] });
        bench.world.stay_away(node(R), Fault::ProcessDeath);
        bench.lose(S, seed);
        bench.back(S);
        bench.wait(3_000_000);
        let renamed = bench.run(1, bench.rename((S, "a"), (T, "b")));
        bench.back(R);
        bench.settle();
        bench.wait(10_000_000);
        let now = if renamed.is_ok() { (Err(Errno::ENOENT), Ok(new)) } else { (Ok(new), Ok(old)) };
        assert_eq!((bench.at(S, "a"), bench.at(T, "b")), now, "seed {seed}: {renamed:?}");
    }
}

/// A file had got a name in a directory that has gone since, with that name. Its home has lost all of it, and is told by
/// one that cannot tell of the directory any more.
#[test]
fn what_came_to_a_directory_that_is_gone_is_not_waited_for() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let file = bench.file(H, "a");
        let (above, n, dir) = below(&mut bench, seed, 3, T, T);
        let (_, _, empty) = below(&mut bench, seed, 3, H, H);
        bench.rest();
        bench.ok(Op::Link { ino: file, dir, name: name("b") });
        bench.ok(Op::Unlink { dir, name: name("b") });
        bench.ok(Op::Rmdir { dir: above, name: n, meant: None });
        bench.ok(Op::FsyncDir { dir: above });
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.lose(H, seed);
        bench.back(H);
        bench.wait(3_000_000);
        bench.back(T);
        bench.settle();
        bench.wait(10_000_000);
        let (kind, target) = (Kind::Regular, Bytes::new());
        bench.ok(Op::Create {
            dir: empty,
            name: name("new"),
            kind,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target,
        });
        bench.has(H, "a", file, 1);
    }
}

/// A directory was removed, which the island of its name has lost; it is renamed there before that is told again.
#[test]
fn a_directory_that_was_renamed_after_its_lost_removal_goes_by_its_id() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed, 3);
        let (dir, n, _) = below(&mut bench, seed, 3, S, T);
        bench.rest();
        bench.ok(Op::Rmdir { dir, name: n.clone(), meant: None });
        bench.wait(50_000);
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.lose(S, seed);
        bench.back(S);
        bench.wait(3_000_000);
        let mut rename = bench.rename((S, "x"), (S, "y"));
        if let Op::Rename { name: old, .. } = &mut rename {
            *old = n;
        }
        let _ = bench.run(1, rename);
        bench.back(T);
        bench.settle();
        bench.wait(10_000_000);
        // It was not removed, if its owner had not heard of that.
        if let Ok(ino) = bench.at(S, "y") {
            let list = Op::ReadDir { dir: ino, after: 0, bytes: 1 << 20, plus: false };
            let listed = bench.run(0, list).map(|_| ());
            assert_eq!(listed, Ok(()), "seed {seed}: a name of nothing");
        }
    }
}

/// A home has lost its power while another island is away that may know more than it. Files that lose their last name go
/// all the same, those from before the power cut too: their space comes back.
#[test]
fn space_comes_back_while_one_that_may_know_more_is_away() {
    for seed in 0..20 {
        let mut bench = Bench::new(seed, 3);
        let old = bench.file(H, "old");
        bench.rest();
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.lose(H, seed);
        bench.back(H);
        let new = bench.file(H, "new");
        for n in ["old", "new"] {
            bench.ok(bench.unlink(H, n));
        }
        bench.wait(3_000_000);
        // The session that stands for what was lost is there, and holds nothing.
        assert_eq!(bench.world.held_by(id(H), SessionId(0)), Some(0), "seed {seed}: {old} or {new} is kept");
        bench.back(T);
        bench.settle();
    }
}

/// A file got a name elsewhere. Its home loses its power just then, the island of that name is away, and the file's other
/// name goes: what the link was answered for is still there.
#[test]
fn a_link_of_which_its_home_may_have_lost_all_keeps_the_file() {
    for seed in 0..60 {
        let mut bench = Bench::new(seed, 3);
        let ino = bench.file(H, "a");
        bench.rest();
        bench.ok(bench.link(ino, T, "b"));
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.lose(H, seed);
        bench.back(H);
        bench.wait(3_000_000);
        let gone = bench.run(1, bench.unlink(H, "a"));
        bench.wait(3_000_000);
        bench.back(T);
        bench.settle();
        bench.has(T, "b", ino, if gone.is_ok() { 1 } else { 2 });
    }
}
