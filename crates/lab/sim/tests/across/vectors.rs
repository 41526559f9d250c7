//! What a client has seen, and islands that have not: no request by path is answered with a tree from before.

use atoll_core::{Ino, Name, Table, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode};
use atoll_sim::Config;

use crate::bench::{Bench, name, node, owned_by};

/// A directory in another, at an island that does not own the root, with a file: the island, and the path.
struct Deep {
    bench: Bench,
    island: usize,
    root: usize,
    path: Vec<Name>,
}

fn path(names: &[Name]) -> VolumePath {
    let names: Vec<&[u8]> = names.iter().map(Name::as_bytes).collect();
    VolumePath::parse(&[b"/".to_vec(), names.join(&b'/')].concat()).unwrap()
}

impl Deep {
    fn new(seed: u64) -> Self {
        let mut config = Config::new(seed, 3);
        (config.clients, config.delay_us_max) = (2, 300);
        let mut bench = Bench::with(config);
        let root = usize::from(Table::new(3).owner(atoll_core::Key(0)).0);
        let (island, above) = ((root + 1) % 3, (root + 2) % 3);
        let top = bench.names[above].clone();
        let below = owned_by(3, seed, std::slice::from_ref(&top), "x", island);
        bench.ok(Op::Mkdir { dir: bench.dirs[above], name: below.clone(), mode: 0o755, umask: 0 });
        let found = bench.run(0, Op::Lookup { dir: bench.dirs[above], name: below.clone() });
        let Ok((Answer::Found { found }, _)) = found else { panic!("{found:?}") };
        bench.dirs[above] = found.attr.ino;
        bench.file(above, "f");
        bench.rest();
        Self { bench, island, root, path: vec![top, below, name("f")] }
    }

    /// The directory above is called otherwise from here on.
    fn rename(&self) -> Op {
        let (from, new_name) = (self.path[0].clone(), name("elsewhere"));
        let mode = RenameMode::Replace;
        Op::Rename {
            dir: Ino::ROOT,
            name: from,
            new_dir: Ino::ROOT,
            new_name,
            mode,
            meant: None,
            new_meant: None,
        }
    }
}

#[test]
fn a_path_is_not_walked_by_what_it_was_before_the_clients_own_rename() {
    for seed in 0..10 {
        let mut deep = Deep::new(seed);
        let (island, root) = (deep.island, deep.root);
        deep.bench.world.cut_between(node(island), node(root), true);
        deep.bench.wait(30_000);
        let rename = deep.rename();
        deep.bench.ok(rename);
        // The island is told what the client has seen by the first of them only.
        let walks: Vec<u64> =
            (0..3).map(|_| deep.bench.world.begin_walk(0, &Caller::ROOT, &path(&deep.path))).collect();
        for token in walks {
            let done = deep.bench.answer(0, token);
            assert_eq!(done, Err(Errno::EIO), "seed {seed}: it cannot know");
        }
        deep.bench.world.cut_between(node(island), node(root), false);
        deep.bench.settle();
        let token = deep.bench.world.begin_walk(0, &Caller::ROOT, &path(&deep.path));
        assert_eq!(deep.bench.answer(0, token), Err(Errno::ENOENT));
        let now: Vec<Name> = [&[name("elsewhere")], &deep.path[1..]].concat();
        let token = deep.bench.world.begin_walk(0, &Caller::ROOT, &path(&now));
        assert!(deep.bench.answer(0, token).is_ok());
    }
}

#[test]
fn what_was_news_in_an_answer_that_a_broken_link_lost_is_told_again() {
    let mut met = 0;
    for at in 0..60 {
        let mut deep = Deep::new(at % 4);
        let (island, root) = (deep.island, deep.root);
        deep.bench.world.cut_between(node(island), node(root), true);
        deep.bench.wait(30_000);
        let rename = deep.rename();
        let token = deep.bench.call(0, rename);
        deep.bench.wait(at * 25);
        if deep.bench.world.poll(0, token).is_some() {
            continue;
        }
        // The answer is lost perhaps, and given again to the request that is repeated.
        deep.bench.world.break_client_links(0);
        deep.bench.answer(0, token).unwrap();
        met += 1;
        let token = deep.bench.world.begin_walk(0, &Caller::ROOT, &path(&deep.path));
        // Another island than the one that is behind may have told.
        let done = deep.bench.answer(0, token);
        assert!(matches!(done, Err(Errno::EIO | Errno::ENOENT)), "{} us: {done:?}", at * 25);
        deep.bench.world.cut_between(node(island), node(root), false);
        deep.bench.settle();
    }
    assert!(met > 5, "{met}");
}

#[test]
fn a_clients_view_does_not_wait_for_ever_for_what_a_power_cut_has_taken() {
    for seed in 0..10 {
        let mut deep = Deep::new(seed);
        let (island, root) = (deep.island, deep.root);
        for other in (0..3).filter(|other| *other != root) {
            deep.bench.world.cut_between(node(other), node(root), true);
        }
        deep.bench.wait(30_000);
        let rename = deep.rename();
        deep.bench.ok(rename);
        // Nobody but the client knows of it.
        deep.bench.lose(root, seed);
        for other in (0..3).filter(|other| *other != root) {
            deep.bench.world.cut_between(node(other), node(root), false);
        }
        deep.bench.back(root);
        deep.bench.settle();
        let found = deep.bench.run(0, Op::Lookup { dir: Ino::ROOT, name: deep.path[0].clone() });
        let token = deep.bench.world.begin_walk(0, &Caller::ROOT, &path(&deep.path));
        let walked = deep.bench.answer(0, token);
        match found {
            Ok(_) => assert!(walked.is_ok(), "seed {seed}: {walked:?} at island {island}"),
            Err(_) => assert_eq!(walked, Err(Errno::ENOENT), "seed {seed}: at island {island}"),
        }
    }
}
