//! Sequences in which programs and unions change one directory at nearly the same time: nothing is hidden for long, and no directory
//! that was removed comes back.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Time};
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_posix::{Answer, Errno, Op, SetAttr, SetTime};
use atoll_union::{At, Moment, NativeCall, NativeReply, PlaceRule, Settings, Who};
use common::{
    Around, Called, Direct, Outcome, create, ino, list, mkdir, moment, name, opened, request, run, tree, walk,
};

/// Two members and a union over them that hears and sees only when a test lets time pass.
struct World {
    trees: [Arc<SimTree>; 2],
    union: Arc<Federation>,
}

impl World {
    fn new() -> Self {
        let trees = [0, 1].map(|n| Arc::new(tree(n)));
        let union = Federation::stepped(Settings::default(), opened(&trees), moment(0));
        let world = Self { trees, union };
        world.set_clocks(moment(0));
        world
    }

    /// One whose members tell of no changes.
    fn unfed() -> Self {
        let world = Self::new();
        world.trees.iter().for_each(|tree| tree.set_faults(|faults| faults.feed_none = true));
        world
    }

    /// The members' clocks stand there, so what happens has this time.
    fn set_clocks(&self, now: Moment) {
        self.trees.iter().for_each(|tree| tree.set_clock(now.wall, 0));
    }

    fn step(&self, ms: u64) {
        self.set_clocks(moment(ms));
        self.union.step(moment(ms));
    }

    fn direct(&self, member: usize) -> Direct<'_> {
        Direct(&self.trees[member])
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        walk(&self.union, path)
    }

    fn list(&self, dir: Ino) -> (Vec<String>, Result<(), Errno>) {
        list(&self.union, dir)
    }
}

#[test]
fn what_a_program_makes_is_seen_although_the_feed_has_overflowed() {
    // The other member has the directory already, or gets it together with what is made in it.
    for is_home in [true, false] {
        let world = World::new();
        world.direct(0).mkdir("x");
        if is_home {
            world.direct(1).mkdir("x");
        }
        let dir = world.walk("x").unwrap();
        assert_eq!(world.list(Ino::ROOT).1, Ok(()));
        assert_eq!(world.list(dir), (vec![], Ok(())));
        world.trees[1].set_faults(|faults| faults.feed_max = 0);
        world.step(1_000);
        assert_eq!(world.list(dir), (vec![], Ok(())), "its names are known");
        if !is_home {
            world.direct(1).mkdir("x");
        }
        world.direct(1).mkdir("x/new");
        world.direct(1).put("x/new/f", "x");
        world.step(1_100);
        assert!(world.walk("x/new/f").is_ok(), "it is seen within 100 ms: {is_home}");
        assert_eq!(world.list(dir), (vec!["new".into()], Ok(())));
        // The directory is watched again.
        world.trees[1].set_faults(|faults| faults.feed_max = usize::MAX);
        world.direct(1).put("x/later", "x");
        world.step(1_200);
        assert_eq!(world.list(dir), (vec!["later".into(), "new".into()], Ok(())));
    }
}

#[test]
fn what_a_program_makes_is_seen_within_a_second_where_nobody_tells_of_it() {
    for is_home in [true, false] {
        let world = World::unfed();
        world.direct(0).mkdir("x");
        if is_home {
            world.direct(1).mkdir("x");
        }
        let dir = world.walk("x").unwrap();
        for ms in [2_500, 5_000] {
            world.step(ms);
            assert_eq!(world.list(Ino::ROOT).1, Ok(()));
            assert_eq!(world.list(dir), (vec![], Ok(())));
        }
        if !is_home {
            world.direct(1).mkdir("x");
        }
        world.direct(1).mkdir("x/new");
        world.direct(1).put("x/new/f", "x");
        world.step(6_000);
        assert!(world.walk("x/new/f").is_ok(), "{is_home}");
        assert_eq!(world.list(dir), (vec!["new".into()], Ok(())));
    }
}

#[test]
fn a_change_in_the_tick_of_a_reading_is_seen_where_nobody_tells_of_it() {
    let world = World::unfed();
    world.direct(0).put("a", "x");
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into()], Ok(())));
    world.direct(0).put("b", "x");
    world.step(200);
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into(), "b".into()], Ok(())));
    // What was read in a later tick counts.
    world.step(5_000);
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into(), "b".into()], Ok(())));
    world.direct(0).put("c", "x");
    world.step(5_200);
    assert_eq!(world.walk("c").map(|_| ()), Ok(()));
}

#[test]
fn a_change_in_the_tick_in_which_its_directory_is_made_is_seen() {
    let world = World::unfed();
    let dir = ino(run(&world.union, mkdir(Ino::ROOT, "d"), b"")).unwrap();
    let at = (0..2).find(|member| world.direct(*member).has("d")).unwrap();
    world.direct(at).put("d/f", "x");
    world.step(200);
    assert_eq!(world.list(dir), (vec!["f".into()], Ok(())));
    // The same for a directory that is made in one more member, for a file.
    world.direct(at).put("d/e", "x");
    world.trees[at].set_faults(|faults| faults.inodes_max = 0);
    ino(run(&world.union, create(dir, "g"), b"")).unwrap();
    world.direct(1 - at).put("d/h", "x");
    world.step(400);
    assert_eq!(world.list(dir), (["e", "f", "g", "h"].map(String::from).into(), Ok(())));
}

#[test]
fn a_change_in_the_second_of_a_reading_is_seen_where_times_are_whole_seconds() {
    let world = World::unfed();
    let second = moment(0).wall;
    world.direct(0).put("a", "x");
    // The file system tells the time of its last whole second only.
    world.union.set_clock(moment(400));
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into()], Ok(())));
    world.direct(0).put("b", "x");
    assert_eq!(world.trees[0].root().mtime, second);
    world.union.set_clock(moment(1_500));
    assert_eq!(world.list(Ino::ROOT), (vec!["a".into(), "b".into()], Ok(())));
}

#[test]
fn what_is_moved_out_of_the_union_into_a_member_stays_there_although_the_copy_is_shown_by_then() {
    // A copy is a file of the same size and time. Of anything else, what is shown goes.
    for (content, stays) in [("moved", 1), ("other!", 0)] {
        let world = World::new();
        world.direct(0).put("f", "moved");
        let original = world.direct(0).look("f").unwrap();
        world.walk("f").unwrap();
        world.step(5_000);
        world.direct(1).put("f", content);
        let copy = world.direct(1).look("f").unwrap();
        let of = At { id: copy.id, seen: None };
        let set = SetAttr { mtime: Some(SetTime::To { time: original.mtime }), ..SetAttr::default() };
        world.direct(1).call(&NativeCall::SetAttr { of, set }, &[]).unwrap();
        world.step(5_200);
        let shown = list(&world.union, Ino::ROOT);
        assert_eq!(shown, (vec!["f".into()], Ok(())));
        run(&world.union, Op::Unlink { dir: Ino::ROOT, name: name("f") }, b"").unwrap();
        let there = [0, 1].map(|member| world.direct(member).has("f"));
        assert_eq!(there, [stays == 0, stays == 1], "{content}");
        assert!(world.walk("f").is_ok(), "it is shown now");
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A member that does something else just before the `n`th call that is made in any of them.
struct Between(Arc<(AtomicUsize, Mutex<Option<Hook>>)>);

impl Called for Between {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let (left, hook) = &*self.0;
        if left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let hook = hook.lock().unwrap().take();
            hook.into_iter().for_each(|hook| hook());
        }
        tree.call(who, call, bytes)
    }
}

/// A directory that the second member has, or both, and a union that puts every file into the first one.
struct Spread {
    members: [Arc<Around<Between>>; 2],
    union: Arc<Federation>,
    dir: Ino,
    between: Arc<(AtomicUsize, Mutex<Option<Hook>>)>,
}

/// Who removes the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    SameUnion,
    AnotherUnion,
    Program,
}

fn rmdir() -> Op {
    Op::Rmdir { dir: Ino::ROOT, name: name("d"), meant: None }
}

fn places() -> Settings {
    Settings { place: PlaceRule::First, ..Settings::default() }
}

impl Spread {
    fn new(in_both: bool) -> Self {
        let between = Arc::new((AtomicUsize::new(usize::MAX), Mutex::default()));
        let member = |n| Arc::new(Around { tree: tree(n), called: Between(Arc::clone(&between)) });
        let members = [0, 1].map(member);
        Direct(&members[1].tree).mkdir("d");
        members[0].tree.set_clock(Time { secs: 2_000, nanos: 0 }, 1_000);
        if in_both {
            Direct(&members[0].tree).mkdir("d");
        }
        let union = Federation::stepped(places(), opened(&members), moment(0));
        let dir = walk(&union, "d").unwrap();
        Self { members, union, dir, between }
    }

    /// Runs one thing, and another one just before its `n`th call. None if it makes fewer.
    fn both(
        &self,
        n: usize,
        first: impl FnOnce() -> Option<Outcome>,
        second: impl FnOnce() -> Outcome + Send + 'static,
    ) -> Option<[Outcome; 2]> {
        let (send, outcome) = channel();
        *self.between.1.lock().unwrap() = Some(Box::new(move || send.send(second()).unwrap()));
        self.between.0.store(n, Ordering::Relaxed);
        let first = first();
        self.between.0.store(usize::MAX, Ordering::Relaxed);
        let second = outcome.try_recv().ok()?;
        Some([first.expect("nothing is left that it waits for"), second])
    }

    /// The same for two operations of the union. The second one may wait for the first one.
    fn both_begun(&self, n: usize, first: Op, second: Op) -> Option<[Outcome; 2]> {
        let (union, (send, waits)) = (Arc::clone(&self.union), channel());
        let begins = move || {
            send.send(begun(&union, second)).unwrap();
            Ok(Answer::Done.into())
        };
        let [first, _] = self.both(n, || begun(&self.union, first).try_recv().ok(), begins)?;
        Some([first, waits.recv().unwrap().try_recv().expect("nothing is left that it waits for")])
    }

    /// How often the directory is there, and the file.
    fn there(&self) -> [usize; 2] {
        ["d", "d/f"].map(|path| self.members.iter().filter(|m| Direct(&m.tree).has(path)).count())
    }
}

/// Begins an operation. What is told of its outcome.
fn begun(union: &Federation, op: Op) -> Receiver<Outcome> {
    let (send, outcome) = channel();
    union.submit(request(op, b""), Box::new(move |told| send.send(told).unwrap()));
    outcome
}

/// Removes the directory, as this one does it.
fn removes(world: &Spread, by: By) -> Box<dyn FnOnce() -> Outcome + Send> {
    let trees = world.members.each_ref().map(|member| Arc::new(member.tree.another()));
    match by {
        By::AnotherUnion => Box::new(move || {
            let union = Federation::stepped(places(), opened(&trees), moment(0));
            run(&union, rmdir(), b"")
        }),
        By::Program => Box::new(move || {
            let direct = Direct(&trees[1]);
            let id = direct.look("d")?.id;
            direct.call(&NativeCall::Rmdir { dir: direct.0.root().id, name: name("d"), id }, &[])?;
            Ok(Answer::Done.into())
        }),
        By::SameUnion => unreachable!("it is begun, and ends later"),
    }
}

fn judge(world: &Spread, [removed, created]: [Outcome; 2], at: (By, bool, usize)) {
    let [dirs, files] = world.there();
    match (removed, created) {
        (Ok(_), Err(Errno::ENOENT | Errno::ESTALE)) => assert_eq!([dirs, files], [0, 0], "{at:?}"),
        // What only one member had was removed, and the other one had it already.
        (Ok(_), Ok(_)) if at.0 == By::Program => assert_eq!([dirs, files], [1, 1], "{at:?}"),
        (Err(Errno::ENOTEMPTY), Ok(_)) => assert_eq!(files, 1, "{at:?}"),
        outcomes => panic!("{at:?}: {outcomes:?}, {dirs} directories, {files} files"),
    }
    world.union.step(moment(2_000));
    let is_there = dirs > 0;
    assert_eq!(walk(&world.union, "d").is_ok(), is_there, "{at:?}");
    assert_eq!(walk(&world.union, "d/f").is_ok(), is_there, "{at:?}");
    let end = list(&world.union, Ino::ROOT);
    assert_eq!(end, (if is_there { vec!["d".into()] } else { vec![] }, Ok(())), "{at:?}");
}

#[test]
fn a_directory_that_is_removed_while_a_file_is_made_in_it_does_not_come_back() {
    let by = [By::SameUnion, By::AnotherUnion, By::Program];
    for (by, in_both) in by.into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let mut calls = 0;
        for n in 0.. {
            let world = Spread::new(in_both);
            let make = || begun(&world.union, create(world.dir, "f")).try_recv().ok();
            let outcomes = if by == By::SameUnion {
                world.both_begun(n, create(world.dir, "f"), rmdir()).map(|[made, gone]| [gone, made])
            } else {
                world.both(n, make, removes(&world, by)).map(|[made, gone]| [gone, made])
            };
            let Some(outcomes) = outcomes else { break };
            judge(&world, outcomes, (by, in_both, n));
            calls += 1;
        }
        assert!(calls > 2 * usize::from(!in_both), "{by:?} {in_both}: {calls}");
    }
}

#[test]
fn a_file_that_is_made_in_another_member_while_its_directory_is_removed_keeps_it_or_is_refused() {
    for in_both in [false, true] {
        let mut calls = 0;
        for n in 0.. {
            let world = Spread::new(in_both);
            let outcomes = world.both_begun(n, rmdir(), create(world.dir, "f"));
            let Some(outcomes) = outcomes else { break };
            judge(&world, outcomes, (By::SameUnion, in_both, n));
            calls += 1;
        }
        assert!(calls >= 1, "{in_both}: {calls}");
    }
}
