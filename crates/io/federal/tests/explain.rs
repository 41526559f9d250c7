//! What is told of names that several members have, and how such a conflict is resolved, over simulated trees.

mod common;

use std::sync::Arc;

use atoll_core::{Time, VolumePath};
use atoll_federal::{Federation, NotResolved};
use atoll_member::SimTree;
use atoll_posix::Errno;
use atoll_union::{HomeRole, SameRule, Settings, Tag};
use common::{Direct, moment, opened, tree};

struct World {
    trees: Vec<Arc<SimTree>>,
    union: Arc<Federation>,
}

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text.as_bytes()).unwrap()
}

impl World {
    fn new(same: SameRule, read_only: &[u16]) -> Self {
        let trees: Vec<_> = (0..3).map(|n| Arc::new(tree(n))).collect();
        let mut opened = opened(&trees);
        opened.iter_mut().for_each(|(tag, is_read_only, _)| *is_read_only = read_only.contains(&tag.0));
        let settings = Settings { same, ..Settings::default() };
        let union = Federation::stepped(settings, opened, moment(0));
        Self { trees, union }
    }

    /// Makes directories and a file with these bytes in a member, without the union. `at` is the time of the change.
    fn make(&self, member: usize, path: &str, bytes: &[u8], at: i64) {
        let direct = Direct(&self.trees[member]);
        direct.0.set_clock(Time { secs: at, nanos: 0 }, 0);
        for dir in path.match_indices('/').map(|(end, _)| &path[..end]) {
            if !direct.has(dir) {
                direct.mkdir(dir);
            }
        }
        direct.put(path, bytes);
    }

    fn roles(&self, of: &str) -> Vec<(u16, HomeRole)> {
        let told = self.union.explain(&path(of)).unwrap();
        told.homes.into_iter().map(|(tag, _, role)| (tag.0, role)).collect()
    }

    fn conflicts(&self, dir: &str) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let (more, next) = self.union.conflicts(&path(dir), after, 1).unwrap();
            names.extend(more.iter().map(|told| told.name.as_ref().unwrap().to_string()));
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        names.sort();
        names
    }
}

#[test]
fn all_homes_of_a_name_are_told_and_which_is_shown() {
    let world = World::new(SameRule::Newest, &[]);
    world.make(0, "d/f", b"old", 2_000);
    world.make(1, "d/f", b"newest", 3_000);
    world.make(2, "d/f/below", b"", 1_500);
    assert_eq!(world.roles("/d"), [(1, HomeRole::Part), (2, HomeRole::Part), (3, HomeRole::Part)]);
    let beside = |role: &HomeRole| matches!(role, HomeRole::Beside(_));
    let roles = world.roles("/d/f");
    assert!(beside(&roles[0].1) && beside(&roles[1].1) && roles[2].1 == HomeRole::Part, "{roles:?}");
    let HomeRole::Beside(name) = &roles[1].1 else { panic!() };
    assert_eq!(world.roles(&format!("/d/{name}")), roles, "its other name tells the same");
    world.make(0, "g", b"old", 2_000);
    world.make(1, "g", b"newest", 3_000);
    world.make(2, "g", b"middle", 2_500);
    assert_eq!(world.roles("/g"), [(1, HomeRole::Behind), (2, HomeRole::Shown), (3, HomeRole::Behind)]);
    let told = world.union.explain(&path("/new")).unwrap();
    assert_eq!((told.homes.len(), told.place.len()), (0, 3), "where it would go");
    assert_eq!(told.dir_homes[0], Tag(1), "the oldest root is the anchor");
    assert_eq!(world.union.explain(&path("/none/f")), Err(Errno::ENOENT));
    let root = world.union.explain(&path("/")).unwrap();
    assert_eq!(root.homes.len(), 3);
    let machine = world.union.machine();
    assert_eq!(machine.known().untold().len(), machine.known().len(), "no frontend was told of anything");
}

#[test]
fn a_member_that_is_away_is_named() {
    let world = World::new(SameRule::First, &[]);
    world.make(0, "f", b"1", 2_000);
    world.make(1, "f", b"2", 2_000);
    world.trees[1].set_faults(|faults| faults.away = true);
    world.union.step(moment(300));
    let told = world.union.explain(&path("/f")).unwrap();
    assert_eq!(told.unasked, [(Tag(2), Errno::EIO)]);
    assert_eq!(world.union.conflicts(&path("/"), 0, 9), Err(Errno::EIO), "some may be missing");
    assert_eq!(world.union.resolve(&path("/f"), Tag(1)), Err(NotResolved::Failed(Tag(2), Errno::EIO)));
}

#[test]
fn names_with_different_contents_are_conflicts_and_copies_are_not() {
    let world = World::new(SameRule::Newest, &[]);
    for (name, other, at) in [("same", &b"x"[..], 2_000), ("longer", b"xx", 2_000), ("later", b"x", 2_001)] {
        world.make(0, &format!("d/{name}"), b"x", 2_000);
        world.make(2, &format!("d/{name}"), other, at);
    }
    world.make(0, "d/only", b"x", 2_000);
    world.make(1, "d/kinds/f", b"x", 2_000);
    world.make(2, "d/kinds", b"x", 2_000);
    assert_eq!(world.conflicts("/d"), ["kinds", "later", "longer"]);
    assert!(world.conflicts("/").is_empty(), "directories are shown as one");
}

#[test]
fn a_resolved_name_is_left_in_one_member_alone() {
    let world = World::new(SameRule::Newest, &[3]);
    world.make(0, "d/f", b"old", 2_000);
    world.make(1, "d/f", b"newest", 3_000);
    assert_eq!(world.conflicts("/d"), ["f"]);
    assert_eq!(world.union.resolve(&path("/d/f"), Tag(3)), Err(NotResolved::NotThere));
    assert_eq!(world.union.resolve(&path("/d/f"), Tag(1)), Ok(vec![Tag(2)]));
    assert_eq!(world.roles("/d/f"), [(1, HomeRole::Shown)]);
    assert!(world.conflicts("/d").is_empty());
    world.make(2, "d/f", b"in a member that is only read", 4_000);
    world.union.step(moment(300));
    assert_eq!(world.union.resolve(&path("/d/f"), Tag(1)), Err(NotResolved::Failed(Tag(3), Errno::EROFS)));
    world.make(0, "d/k", b"a file", 2_000);
    world.make(1, "d/k/f", b"below a directory", 2_000);
    assert_eq!(world.union.resolve(&path("/d/k"), Tag(1)), Err(NotResolved::Directory(Tag(2))));
    assert_eq!(world.roles("/d/k").len(), 2);
}
