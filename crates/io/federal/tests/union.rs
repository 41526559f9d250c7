//! Unions over simulated members: what is shown, where new files go, and that a missing member never looks empty.

mod common;

use std::sync::Arc;

use atoll_core::{Ino, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Errno, Op, RenameMode};
use atoll_union::{PlaceRule, SameRule, Settings};
use bytes::Bytes;
use common::{Direct, Outcome, create, ino, list, lookup, mkdir, moment, name, opened, run, tree, walk};

struct World {
    trees: Vec<Arc<SimTree>>,
    union: Arc<Federation>,
}

impl World {
    fn new(members: u16, settings: Settings) -> Self {
        Self::over((0..members).map(|n| Arc::new(tree(n))).collect(), settings)
    }

    fn over(trees: Vec<Arc<SimTree>>, settings: Settings) -> Self {
        let union = Federation::start(settings, opened(&trees));
        Self { trees, union }
    }

    /// A union whose clock stands until the test sets it, so that nothing is seen but what the test has it see.
    fn stepped(members: u16) -> Self {
        let trees: Vec<_> = (0..members).map(|n| Arc::new(tree(n))).collect();
        let union = Federation::stepped(Settings::default(), opened(&trees), moment(0));
        Self { trees, union }
    }

    /// It is this long after the beginning, and what members have told is heard.
    fn step(&self, ms: u64) {
        self.union.step(moment(ms));
    }

    fn op(&self, op: Op) -> Outcome {
        run(&self.union, op, b"")
    }

    fn write(&self, op: Op, bytes: &[u8]) -> Outcome {
        run(&self.union, op, bytes)
    }

    fn lookup(&self, dir: Ino, text: &str) -> Result<Ino, Errno> {
        ino(self.op(lookup(dir, text)))
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        walk(&self.union, path)
    }

    fn create(&self, dir: Ino, text: &str) -> Result<Ino, Errno> {
        ino(self.op(create(dir, text)))
    }

    fn mkdir(&self, dir: Ino, text: &str) -> Result<Ino, Errno> {
        ino(self.op(mkdir(dir, text)))
    }

    fn unlink(&self, dir: Ino, text: &str) -> Result<(), Errno> {
        self.op(Op::Unlink { dir, name: name(text) }).map(|_| ())
    }

    fn rename(&self, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<(), Errno> {
        let (dir, new_dir, new_name) = (from.0, to.0, name(to.1));
        let name = name(from.1);
        let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
        self.op(op).map(|_| ())
    }

    fn read(&self, ino: Ino) -> Result<Bytes, Errno> {
        Ok(self.op(Op::Read { ino, offset: 0, len: 4096 })?.bytes)
    }

    /// The names, and whether the listing has an end.
    fn list(&self, dir: Ino) -> (Vec<String>, Result<(), Errno>) {
        list(&self.union, dir)
    }

    fn direct(&self, member: usize) -> Direct<'_> {
        Direct(&self.trees[member])
    }
}

#[test]
fn directories_of_one_name_are_one_and_files_are_found_where_they_are() {
    let world = World::new(3, Settings::default());
    world.direct(0).mkdir("d");
    world.direct(0).put("d/a", "in the first");
    world.direct(1).mkdir("d");
    world.direct(1).put("d/b", "in the second");
    world.direct(2).put("c", "in the third");
    assert_eq!(world.list(Ino::ROOT), (vec!["c".into(), "d".into()], Ok(())));
    let dir = world.walk("d").unwrap();
    assert_eq!(world.list(dir), (vec!["a".into(), "b".into()], Ok(())));
    assert_eq!(world.read(world.walk("d/b").unwrap()).unwrap(), "in the second");
    assert_eq!(world.walk("d/none"), Err(Errno::ENOENT));
}

#[test]
fn a_new_file_goes_to_a_member_that_has_its_directory() {
    let world = World::new(3, Settings::default());
    world.direct(1).mkdir("d");
    let dir = world.walk("d").unwrap();
    for n in 0..20 {
        world.create(dir, &format!("f{n}")).unwrap();
    }
    assert!(world.direct(1).has("d/f19") && !world.direct(0).has("d") && !world.direct(2).has("d"));
    assert_eq!(world.create(dir, "f3"), Err(Errno::EEXIST));
}

#[test]
fn directories_that_are_made_spread_over_the_members() {
    let world = World::new(3, Settings::default());
    (0..30).for_each(|n| _ = world.mkdir(Ino::ROOT, &format!("d{n}")).unwrap());
    for member in 0..3 {
        let here = (0..30).filter(|n| world.direct(member).has(&format!("d{n}"))).count();
        assert!(here > 2, "member {member} has {here}");
    }
}

#[test]
fn a_full_member_is_passed_over_with_its_directories_made_elsewhere() {
    let world = World::new(2, Settings { place: PlaceRule::Dir, ..Settings::default() });
    world.direct(0).mkdir("d");
    world.direct(0).mkdir("d/e");
    let dir = world.walk("d/e").unwrap();
    world.trees[0].set_faults(|faults| faults.inodes_max = 0);
    let ino = world.create(dir, "f").unwrap();
    assert!(world.direct(1).has("d/e/f") && !world.direct(0).has("d/e/f"));
    world.write(Op::Write { ino, offset: 0, append: true, kill_set_id: false }, b"bytes").unwrap();
    assert_eq!(world.read(world.walk("d/e/f").unwrap()).unwrap(), "bytes");
}

#[test]
fn a_missing_member_is_an_error_and_never_an_absence() {
    let world = World::new(2, Settings::default());
    world.direct(0).mkdir("both");
    world.direct(1).mkdir("both");
    world.direct(1).put("both/there", "x");
    let dir = world.walk("both").unwrap();
    world.trees[1].set_faults(|faults| faults.away = true);
    assert_eq!(world.walk("both/there"), Err(Errno::EIO));
    assert_eq!(world.lookup(dir, "none"), Err(Errno::EIO), "it may be there");
    assert_eq!(world.list(dir).1, Err(Errno::EIO));
    assert_eq!(world.unlink(dir, "there"), Err(Errno::EIO));
}

#[test]
fn what_was_known_of_a_member_when_it_went_still_holds() {
    let world = World::new(2, Settings::default());
    world.direct(0).mkdir("both");
    world.direct(1).mkdir("both");
    world.direct(1).put("both/there", "x");
    let dir = world.walk("both").unwrap();
    world.trees.iter().for_each(|tree| tree.set_clock(Time { secs: 5_000, nanos: 0 }, 1_000));
    assert_eq!(world.list(dir), (vec!["there".into()], Ok(())));
    world.trees[1].set_faults(|faults| faults.away = true);
    assert_eq!(world.lookup(dir, "there"), Err(Errno::EIO), "it is there, but cannot be read");
    assert_eq!(world.list(dir), (vec!["there".into()], Err(Errno::EIO)));
    assert_eq!(world.lookup(dir, "new"), Err(Errno::ENOENT), "the missing disk is known to lack it");
    world.create(dir, "new").unwrap();
    assert!(world.direct(0).has("both/new"));
}

#[test]
fn unlink_removes_what_was_shown_and_a_fresh_copy_stays() {
    // `mv MOUNT/f MEMBER/` copies into the member and then unlinks MOUNT/f.
    let world = World::new(2, Settings::default());
    world.direct(0).put("f", "moved");
    assert_eq!(world.read(world.walk("f").unwrap()).unwrap(), "moved");
    world.trees[1].set_clock(Time { secs: 4_000_000_000, nanos: 0 }, 1_000);
    world.direct(1).put("f", "moved");
    // The copy is newer, so it is shown by now, or the old one is: either way one of them stays.
    world.unlink(Ino::ROOT, "f").unwrap();
    let left = (0..2).filter(|member| world.direct(*member).has("f")).count();
    assert_eq!(left, 1);
    assert_eq!(world.read(world.walk("f").unwrap()).unwrap(), "moved");
}

#[test]
fn of_several_files_one_is_shown_by_rule_and_the_others_beside_if_asked_for() {
    for (same, shown) in [(SameRule::First, "first"), (SameRule::Both, "first"), (SameRule::Newest, "second")]
    {
        let world = World::new(2, Settings { same, ..Settings::default() });
        world.direct(0).put("f", "first");
        world.direct(1).put("f", "second");
        assert_eq!(world.read(world.walk("f").unwrap()).unwrap(), shown, "{same:?}");
        let (names, end) = world.list(Ino::ROOT);
        assert_eq!((names.len(), end), (if same == SameRule::Both { 2 } else { 1 }, Ok(())));
        if let Some(beside) = names.iter().find(|name| *name != "f") {
            assert_eq!(world.read(world.walk(beside).unwrap()).unwrap(), "second");
        }
    }
}

#[test]
fn a_file_is_renamed_in_its_member_and_its_new_directory_is_made_there() {
    let world = World::new(2, Settings::default());
    world.direct(0).put("f", "bytes");
    world.direct(1).mkdir("d");
    let dir = world.walk("d").unwrap();
    world.walk("f").unwrap();
    world.rename((Ino::ROOT, "f"), (dir, "g"), RenameMode::Replace).unwrap();
    assert!(world.direct(0).has("d/g") && !world.direct(0).has("f") && !world.direct(1).has("d/g"));
    assert_eq!(world.read(world.walk("d/g").unwrap()).unwrap(), "bytes");
}

#[test]
fn a_rename_over_a_file_of_another_member_leaves_one_file() {
    let world = World::new(2, Settings::default());
    world.direct(0).put("new", "new");
    world.direct(1).put("old", "old");
    world.rename((Ino::ROOT, "new"), (Ino::ROOT, "old"), RenameMode::NoReplace).unwrap_err();
    world.rename((Ino::ROOT, "new"), (Ino::ROOT, "old"), RenameMode::Replace).unwrap();
    assert_eq!(world.read(world.walk("old").unwrap()).unwrap(), "new");
    assert!(!world.direct(1).has("old") && world.direct(0).has("old"));
    assert_eq!(world.walk("new"), Err(Errno::ENOENT));
}

#[test]
fn a_file_that_stands_behind_another_one_follows_it() {
    let world = World::new(3, Settings { same: SameRule::First, ..Settings::default() });
    world.direct(0).put("f", "shown");
    world.direct(1).put("f", "behind");
    world.direct(2).mkdir("d");
    let dir = world.walk("d").unwrap();
    world.rename((Ino::ROOT, "f"), (dir, "g"), RenameMode::Replace).unwrap();
    assert_eq!(world.walk("f"), Err(Errno::ENOENT));
    assert!(world.direct(0).has("d/g") && world.direct(1).has("d/g"));
    assert_eq!(world.read(world.walk("d/g").unwrap()).unwrap(), "shown");
}

#[test]
fn an_unlinked_file_can_be_used_until_it_is_forgotten() {
    let world = World::new(1, Settings::default());
    let ino = world.create(Ino::ROOT, "f").unwrap();
    world.write(Op::Write { ino, offset: 0, append: false, kill_set_id: false }, b"still").unwrap();
    world.unlink(Ino::ROOT, "f").unwrap();
    assert_eq!(world.read(ino).unwrap(), "still");
    world.union.forget(&[ino]);
    assert_eq!(world.read(ino), Err(Errno::ESTALE));
}

#[test]
fn a_directory_that_is_not_empty_in_any_member_stays() {
    let world = World::new(2, Settings::default());
    world.direct(0).mkdir("d");
    world.direct(1).mkdir("d");
    world.direct(1).put("d/f", "x");
    let rmdir = || world.op(Op::Rmdir { dir: Ino::ROOT, name: name("d"), meant: None }).map(|_| ());
    assert_eq!(rmdir(), Err(Errno::ENOTEMPTY));
    let dir = world.walk("d").unwrap();
    world.unlink(dir, "f").unwrap();
    rmdir().unwrap();
    assert!(!world.direct(0).has("d") && !world.direct(1).has("d"));
    assert_eq!(world.walk("d"), Err(Errno::ENOENT));
}

#[test]
fn a_directory_in_several_members_is_not_renamed_in_part() {
    let world = World::new(2, Settings::default());
    world.direct(0).mkdir("d");
    world.direct(1).mkdir("d");
    let renamed = world.rename((Ino::ROOT, "d"), (Ino::ROOT, "e"), RenameMode::Replace);
    assert_eq!(renamed, Err(Errno::EXDEV));
    assert!(world.direct(0).has("d") && world.direct(1).has("d"));
    world.direct(0).mkdir("only");
    world.rename((Ino::ROOT, "only"), (Ino::ROOT, "moved"), RenameMode::Replace).unwrap();
    assert!(world.direct(0).has("moved") && world.walk("moved").is_ok());
}

#[test]
fn a_hard_link_is_made_where_its_file_is() {
    let world = World::new(2, Settings::default());
    world.direct(0).put("f", "x");
    world.direct(1).mkdir("d");
    let (ino, dir) = (world.walk("f").unwrap(), world.walk("d").unwrap());
    world.op(Op::Link { ino, dir, name: name("g") }).unwrap();
    assert!(world.direct(0).has("d/g"));
    assert_eq!(world.walk("d/g"), Ok(ino));
}

#[test]
fn a_name_that_a_member_told_of_before_it_went_may_be_there() {
    let world = World::stepped(2);
    assert_eq!(world.list(Ino::ROOT), (vec![], Ok(())));
    world.direct(0).mkdir("a");
    world.step(100);
    world.trees[0].set_faults(|faults| faults.away = true);
    world.step(200);
    assert_eq!(world.list(Ino::ROOT).1, Err(Errno::EIO));
    assert_eq!(world.walk("a"), Err(Errno::EIO));
    assert_eq!(world.walk("b"), Err(Errno::ENOENT), "the missing disk is known to lack it");
}

#[test]
fn a_directory_that_a_missing_member_may_have_too_is_not_known_to_lack_names() {
    // The missing member is known to have the directory, or nothing is known of it.
    for is_listed in [true, false] {
        let world = World::stepped(2);
        (0..2).for_each(|member| world.direct(member).mkdir("d"));
        world.direct(1).put("d/there", "x");
        if is_listed {
            assert_eq!(world.list(Ino::ROOT).1, Ok(()));
        }
        world.trees[1].set_faults(|faults| faults.away = true);
        world.step(100);
        assert_eq!(world.walk("d/there"), Err(Errno::EIO), "{is_listed}");
        assert_eq!(world.list(world.walk("d").unwrap()).1, Err(Errno::EIO), "{is_listed}");
        assert_eq!(world.create(world.walk("d").unwrap(), "there"), Err(Errno::EIO), "{is_listed}");
        world.step(2_000);
        assert_eq!(world.walk("d/there"), Err(Errno::EIO), "{is_listed}");
        world.trees[1].set_faults(|faults| faults.away = false);
        world.step(2_100);
        assert!(world.walk("d/there").is_ok(), "it is there at once");
    }
}

#[test]
fn a_name_that_was_told_of_before_its_member_went_is_not_listed() {
    let world = World::stepped(2);
    world.direct(0).mkdir("a");
    world.direct(1).mkdir("b");
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into(), "b".into()], Ok(())));
    world.direct(0).rmdir("a");
    world.step(100);
    world.trees[0].set_faults(|faults| faults.away = true);
    world.step(200);
    assert_eq!(world.list(Ino::ROOT), (vec!["b".into()], Err(Errno::EIO)));
}

/// Two members with a file of each of these names. The second one's are shown.
fn doubled(names: &[&str]) -> World {
    let world = World::stepped(2);
    for member in 0..2 {
        world.trees[member].set_clock(Time { secs: 20_000 + 1_000 * member as i64, nanos: 0 }, 1_000);
        names.iter().for_each(|name| world.direct(member).put(name, format!("{name}{member}")));
    }
    world.trees.iter().for_each(|tree| tree.set_clock(Time { secs: 30_000, nanos: 0 }, 1_000));
    world
}

#[test]
fn what_was_renamed_is_shown_and_not_what_stood_behind_it() {
    let world = doubled(&["f"]);
    assert_eq!(world.read(world.walk("f").unwrap()).unwrap(), "f1");
    // What follows is changed between two changes of what is shown.
    for (member, nanos) in [(0, 500), (1, 0)] {
        world.trees[member].set_clock(Time { secs: 31_000, nanos }, 1_000);
    }
    world.rename((Ino::ROOT, "f"), (Ino::ROOT, "g"), RenameMode::Replace).unwrap();
    assert_eq!(world.read(world.walk("g").unwrap()).unwrap(), "f1");
    assert_eq!(world.walk("f"), Err(Errno::ENOENT));
}

#[test]
fn what_stands_behind_a_file_follows_it_into_a_directory_that_its_member_lacks() {
    let world = doubled(&["f"]);
    world.direct(1).mkdir("d");
    let dir = world.walk("d").unwrap();
    world.rename((Ino::ROOT, "f"), (dir, "g"), RenameMode::Replace).unwrap();
    assert_eq!(world.walk("f"), Err(Errno::ENOENT));
    assert_eq!(world.read(world.walk("d/g").unwrap()).unwrap(), "f1");
    assert!(world.direct(0).has("d/g"));
}

#[test]
fn an_exchange_keeps_what_stands_behind_both_files() {
    let world = doubled(&["f", "g"]);
    world.rename((Ino::ROOT, "f"), (Ino::ROOT, "g"), RenameMode::Exchange).unwrap();
    for (name, shown) in [("f", "g1"), ("g", "f1")] {
        assert_eq!(world.read(world.walk(name).unwrap()).unwrap(), shown);
        assert!((0..2).all(|member| world.direct(member).has(name)));
    }
}

#[test]
fn a_rename_over_another_name_of_the_same_file_that_is_not_shown_removes_the_old_name() {
    let world = World::stepped(2);
    world.direct(0).put("f", "both");
    let ino = world.walk("f").unwrap();
    world.op(Op::Link { ino, dir: Ino::ROOT, name: name("g") }).unwrap();
    world.trees[1].set_clock(Time { secs: 20_000, nanos: 0 }, 1_000);
    world.direct(1).put("g", "other");
    world.trees[0].set_clock(Time { secs: 30_000, nanos: 0 }, 1_000);
    assert_eq!(world.read(world.walk("g").unwrap()).unwrap(), "other");
    world.rename((Ino::ROOT, "f"), (Ino::ROOT, "g"), RenameMode::Replace).unwrap();
    assert_eq!(world.walk("f"), Err(Errno::ENOENT));
    assert!(!world.direct(0).has("f"));
    assert_eq!(world.read(world.walk("g").unwrap()).unwrap(), "both");
}

#[test]
fn a_rename_into_a_directory_that_a_file_hides_in_its_member_does_not_say_that_the_name_is_taken() {
    let world = World::stepped(2);
    world.direct(0).put("f", "x");
    world.direct(0).put("d", "in the way");
    world.direct(1).mkdir("d");
    let (ino, dir) = (world.walk("f").unwrap(), world.walk("d").unwrap());
    let rename = |mode| world.rename((Ino::ROOT, "f"), (dir, "g"), mode);
    assert_eq!(rename(RenameMode::NoReplace), Err(Errno::EXDEV));
    assert_eq!(rename(RenameMode::Replace), Err(Errno::EXDEV));
    assert_eq!(world.op(Op::Link { ino, dir, name: name("g") }).map(|_| ()), Err(Errno::EXDEV));
    assert_eq!(world.read(world.walk("f").unwrap()).unwrap(), "x");
}

#[test]
fn a_file_that_is_shown_beside_a_directory_can_be_renamed_away() {
    let world = World::stepped(2);
    world.direct(0).mkdir("d");
    world.direct(1).put("d", "file");
    let (names, _) = world.list(Ino::ROOT);
    let beside = names.iter().find(|name| *name != "d").unwrap();
    world.rename((Ino::ROOT, beside), (Ino::ROOT, "d"), RenameMode::Replace).unwrap_err();
    world.rename((Ino::ROOT, beside), (Ino::ROOT, "g"), RenameMode::Replace).unwrap();
    assert_eq!(world.list(Ino::ROOT), (vec!["d".into(), "g".into()], Ok(())));
    assert_eq!(world.read(world.walk("g").unwrap()).unwrap(), "file");
    assert!(world.direct(0).has("d") && !world.direct(1).has("d"));
}

#[test]
fn a_listing_ends_where_another_file_system_is_mounted_in_a_member() {
    let world = World::stepped(2);
    (0..2).for_each(|member| world.direct(member).mkdir("d"));
    world.trees[1].set_mount(world.trees[1].root().id, &name("d"), true);
    assert_eq!(world.list(Ino::ROOT), (vec!["d".into()], Ok(())));
}

#[test]
fn a_directory_that_is_renamed_in_one_member_becomes_another_one() {
    let world = World::stepped(2);
    (0..2).for_each(|member| world.direct(member).mkdir("d"));
    world.walk("d").unwrap();
    world.direct(0).rename("d", "e");
    world.step(1_100);
    world.walk("d").unwrap();
    world.walk("e").unwrap();
    assert_ne!(world.walk("d").unwrap(), world.walk("e").unwrap());
}

#[test]
fn what_no_frontend_knows_is_forgotten() {
    let world = World::new(2, Settings::default());
    let mut inos = Vec::new();
    let mut dir = Ino::ROOT;
    for depth in 0..50 {
        dir = world.mkdir(dir, &format!("d{depth}")).unwrap();
        inos.push(dir);
        inos.push(world.create(dir, "f").unwrap());
    }
    assert!(world.union.machine().known().len() > 100);
    // The kernel forgets from below; in any other order the directories above wait for those below.
    inos.sort();
    world.union.forget(&inos);
    assert_eq!(world.union.machine().known().len(), 1, "the root is left");
    assert_eq!(world.walk("d0/d1/d2/f").map(|_| ()), Ok(()), "and everything is found again");
}

#[test]
fn directories_that_a_listing_only_passed_by_are_swept() {
    let world = World::stepped(2);
    for n in 0..atoll_union::PASSED_MAX + 10 {
        (0..2).for_each(|member| world.direct(member).mkdir(&format!("d{n}")));
    }
    assert!(world.list(Ino::ROOT).0.len() > atoll_union::PASSED_MAX);
    world.step(5_000);
    assert!(world.union.machine().known().len() <= atoll_union::PASSED_MAX);
    assert!(world.walk("d7").is_ok());
}
