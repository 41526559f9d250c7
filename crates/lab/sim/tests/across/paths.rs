//! Clients that have only paths, while directories are renamed: the answer is right at once, and one
//! request is enough as soon as the renames are known.

use std::collections::BTreeMap;

use atoll_core::{H3, Ino, Table, VolumePath};
use atoll_disk::sim::Fault;
use atoll_model::Rng;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use atoll_sim::Config;
use bytes::Bytes;

use crate::bench::{Bench, name, node, power};

/// The client that works by ids, and the one that walks.
const WORKS: usize = 0;
const WALKS: usize = 1;

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text.as_bytes()).unwrap()
}

/// A bench with words for paths.
struct Tree {
    bench: Bench,
    dirs: BTreeMap<String, Ino>,
}

impl Tree {
    fn new(seed: u64, islands: u16) -> Self {
        let mut config = Config::new(seed, islands);
        (config.clients, config.delay_us_max) = (2, 300);
        Self { bench: Bench::with(config), dirs: [(String::new(), Ino::ROOT)].into() }
    }

    fn split(at: &str) -> (&str, &str) {
        at.rsplit_once('/').expect("a path below the root")
    }

    /// Makes a directory with a file `f` in it.
    fn mkdir(&mut self, at: &str) {
        let (above, last) = Self::split(at);
        let mkdir = Op::Mkdir { dir: self.dirs[above], name: name(last), mode: 0o755, umask: 0 };
        let Ok((Answer::Found { found }, _)) = self.bench.run(WORKS, mkdir) else { panic!("no {at}") };
        let dir = found.attr.ino;
        self.dirs.insert(at.to_owned(), dir);
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let target = Bytes::new();
        self.bench.ok(Op::Create { dir, name: name("f"), kind, mode, umask, rdev, exclusive, target });
    }

    fn rename(&mut self, from: &str, to: &str) {
        let ((a, old), (b, new)) = (Self::split(from), Self::split(to));
        let mode = RenameMode::NoReplace;
        let (dir, new_dir) = (self.dirs[a], self.dirs[b]);
        self.bench.ok(Op::Rename {
            dir,
            name: name(old),
            new_dir,
            new_name: name(new),
            mode,
            meant: None,
            new_meant: None,
        });
        let moved: Vec<(String, Ino)> = self
            .dirs
            .iter()
            .filter(|(at, _)| *at == from || at.starts_with(&format!("{from}/")))
            .map(|(at, ino)| (at.clone(), *ino))
            .collect();
        for (at, ino) in moved {
            self.dirs.remove(&at);
            self.dirs.insert(format!("{to}{}", &at[from.len()..]), ino);
        }
    }

    fn walk(&mut self, at: &str) -> (Result<Ino, Errno>, u64) {
        self.bench.world.walk(WALKS, &Caller::ROOT, &path(at)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The file in a directory is found; how many requests that took.
    fn finds(&mut self, at: &str) -> u64 {
        let op = Op::Lookup { dir: self.dirs[at], name: name("f") };
        let Ok((Answer::Found { found }, _)) = self.bench.run(WORKS, op) else { panic!("no {at}/f") };
        let (walked, requests) = self.walk(&format!("{at}/f"));
        assert_eq!(walked, Ok(found.attr.ino), "{at}\n{}", self.bench.world.tail(120));
        requests
    }

    /// At the first time perhaps with more than one request, then with one.
    fn learns(&mut self, at: &str) {
        self.finds(at);
        assert_eq!(self.finds(at), 1, "{at}");
    }
}

#[test]
fn a_renamed_prefix_is_learned_with_one_walk_for_all_below() {
    for seed in 0..20 {
        let mut tree = Tree::new(seed, 4);
        for at in ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/e", "/a/e/g"] {
            tree.mkdir(at);
        }
        tree.rename("/a", "/z");
        tree.learns("/z/b");
        for at in ["/z", "/z/b/c/d", "/z/e/g", "/z/b/c"] {
            assert_eq!(tree.finds(at), 1, "{at} follows from what is known of /z");
        }
        assert_eq!(tree.walk("/a/b/f").0, Err(Errno::ENOENT));
    }
}

#[test]
fn a_directory_renamed_twice_and_back_is_found_each_time() {
    for seed in 0..20 {
        let mut tree = Tree::new(seed, 4);
        for at in ["/a", "/a/b", "/a/b/c", "/w"] {
            tree.mkdir(at);
        }
        for (from, to) in
            [("/a", "/y"), ("/y", "/w/y"), ("/w/y/b", "/w/b"), ("/w/b", "/w/y/b"), ("/w/y", "/a")]
        {
            tree.rename(from, to);
            let all: Vec<String> = tree.dirs.keys().filter(|at| !at.is_empty()).cloned().collect();
            for at in all {
                tree.learns(&at);
            }
            assert_eq!(tree.walk(&format!("{from}/f")).0, Err(Errno::ENOENT));
        }
    }
}

#[test]
fn a_new_directory_at_the_old_path_is_not_taken_for_the_old_one() {
    for seed in 0..20 {
        let mut tree = Tree::new(seed, 4);
        for at in ["/a", "/a/b", "/a/b/c"] {
            tree.mkdir(at);
        }
        tree.rename("/a", "/z");
        tree.learns("/z/b/c");
        for at in ["/a", "/a/b", "/a/b/c", "/z/new", "/z/new/er"] {
            tree.mkdir(at);
        }
        for at in ["/a", "/a/b/c", "/z/b/c", "/z/new/er", "/z/new", "/a/b", "/z/b"] {
            tree.learns(at);
        }
        // The hint of the one that is at /z leads to a third by now.
        tree.rename("/z", "/q");
        tree.rename("/a", "/z");
        for at in ["/q/b/c", "/z/b/c", "/q/new/er", "/z/b"] {
            tree.learns(at);
        }
        assert_eq!(tree.walk("/a/b/c/f").0, Err(Errno::ENOENT));
        assert_eq!(tree.walk("/z/new/er/f").0, Err(Errno::ENOENT));
    }
}

#[test]
fn a_client_that_attaches_is_told_of_renamed_prefixes() {
    for seed in 0..10 {
        let mut tree = Tree::new(seed, 4);
        for at in ["/a", "/a/b", "/a/b/c", "/a/e"] {
            tree.mkdir(at);
        }
        tree.rename("/a", "/z");
        tree.rename("/z/b", "/z/x");
        tree.rename("/z/e", "/z/k");
        tree.rename("/z/k", "/z/e");
        // Also after the islands have started again; the link breaks then, and is made anew.
        tree.bench.rest();
        for island in 0..4 {
            tree.bench.restart(island, power(seed));
            tree.bench.settle();
        }
        assert_eq!(tree.bench.world.hints(WALKS), 2, "/z/e has its old name again");
        for at in ["/z/x/c", "/z/x", "/z/e", "/z"] {
            assert_eq!(tree.finds(at), 1, "{at}");
        }
    }
}

#[test]
fn a_path_below_a_renamed_directory_is_walked_while_the_owner_of_the_root_is_away() {
    for seed in 0..20 {
        let mut tree = Tree::new(seed, 4);
        for at in ["/a", "/a/b", "/a/b/c", "/a/e"] {
            tree.mkdir(at);
        }
        tree.rename("/a", "/z");
        tree.bench.rest();
        let owner = |tree: &Tree, at: &str| {
            usize::from(
                Table::new(4)
                    .owner(H3::new(tree.bench.world.config.seed).path(path(at).names()).unwrap().key())
                    .0,
            )
        };
        let root = owner(&tree, "/");
        let here: Vec<&str> =
            ["/b", "/b/c", "/e"].into_iter().filter(|at| owner(&tree, &format!("/a{at}")) != root).collect();
        for at in &here {
            tree.finds(&format!("/z{at}"));
        }
        tree.bench.world.stay_away(node(root), Fault::ProcessDeath);
        tree.bench.wait(100_000);
        for at in here {
            let (walked, requests) = tree.walk(&format!("/z{at}/f"));
            assert!(walked.is_ok() && requests == 1, "{at}: {walked:?} after {requests}");
        }
        tree.bench.back(root);
        tree.bench.settle();
    }
}

#[test]
fn whatever_is_renamed_walks_find_what_is_there_and_then_with_one_request() {
    for seed in 0..15 {
        let mut rng = Rng::new(seed);
        let mut tree = Tree::new(seed, 3);
        let mut made = 0;
        for _ in 0..60 {
            let all: Vec<String> = tree.dirs.keys().cloned().collect();
            let at = all[rng.index(all.len())].clone();
            let to = format!("{}/{}", all[rng.index(all.len())], ["a", "b", "c"][rng.index(3)]);
            let is_below = to.starts_with(&format!("{at}/"));
            if tree.dirs.contains_key(&to) || to.matches('/').count() > 5 {
                // A walk that may have learned what is no longer so.
                let gone = format!("{at}/a/b/f");
                let there = tree.dirs.contains_key(&format!("{at}/a/b"));
                assert_eq!(tree.walk(&gone).0.is_ok(), there, "{gone}");
            } else if at.is_empty() || is_below || made < 6 || rng.percent(30) {
                made += 1;
                tree.mkdir(&to);
            } else {
                tree.rename(&at, &to);
            }
            for at in tree.dirs.keys().filter(|at| !at.is_empty()).cloned().collect::<Vec<_>>() {
                if rng.percent(30) {
                    tree.learns(&at);
                }
            }
        }
    }
}
