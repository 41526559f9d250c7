//! Renames of directories that lie in several members: all of it moves or nothing, whatever dies in between.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_core::{Ino, Name};
use atoll_federal::{Federation, settle};
use atoll_intents::{Intents, SimIntents};
use atoll_member::{SimTree, Tree};
use atoll_posix::{Errno, Kind, Op, RenameMode};
use atoll_union::{Intent, NativeCall, NativeEntry, NativeId, NativeReply, Settings, Who};
use common::{
    Around, Called, Direct, Outcome, create, ino, lives, moment, name, opened, run, tree, trees, walk,
};

/// What happens to a member at its next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its disk goes before the change.
    GoneBefore,
    /// Its disk goes behind the change, and nobody is told of that.
    GoneBehind,
    /// It refuses the change.
    Refuses,
}

/// What else happens just before a member's next rename.
type Hook = Box<dyn FnOnce() + Send>;

/// A member of a process that dies after so many changes, its intents counted too.
struct Mortal {
    life: Arc<AtomicU64>,
    fate: Mutex<Option<Fate>>,
    before: Mutex<Option<Hook>>,
}

fn is_change(call: &NativeCall) -> bool {
    matches!(
        call,
        NativeCall::Rename { .. }
            | NativeCall::Rmdir { .. }
            | NativeCall::Unlink { .. }
            | NativeCall::MkdirLike { .. }
    )
}

impl Called for Mortal {
    fn call(&self, tree: &SimTree, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        if !lives(&self.life, is_change(call)) {
            return Err(Errno::EIO);
        }
        if let NativeCall::Rename { .. } = call {
            let before = self.before.lock().unwrap().take();
            before.into_iter().for_each(|hook| hook());
        }
        let is_fated = matches!(call, NativeCall::Rename { .. } | NativeCall::Make { .. });
        let fate = if is_fated { self.fate.lock().unwrap().take() } else { None };
        match fate {
            Some(Fate::Refuses) => Err(Errno::EPERM),
            Some(fate) => {
                if fate == Fate::GoneBehind {
                    tree.call(who, call, bytes).unwrap();
                }
                tree.set_faults(|faults| faults.away = true);
                Err(Errno::EIO)
            }
            None => tree.call(who, call, bytes),
        }
    }
}

/// Intents of that process.
struct MortalIntents {
    kept: Arc<SimIntents>,
    life: Arc<AtomicU64>,
}

impl Intents for MortalIntents {
    fn keep(&self, id: u64, intent: &Intent) -> Result<(), Errno> {
        if lives(&self.life, true) { self.kept.keep(id, intent) } else { Err(Errno::EIO) }
    }

    fn over(&self, id: u64) {
        if lives(&self.life, true) {
            self.kept.over(id);
        }
    }
}

struct World {
    members: Vec<Arc<Around<Mortal>>>,
    intents: Arc<SimIntents>,
    life: Arc<AtomicU64>,
    union: Arc<Federation>,
}

impl World {
    fn new(members: u16) -> Self {
        let life = Arc::new(AtomicU64::new(u64::MAX));
        let member = |n| {
            let called = Mortal { life: Arc::clone(&life), fate: Mutex::default(), before: Mutex::default() };
            Arc::new(Around { tree: tree(n), called })
        };
        let members: Vec<_> = (0..members).map(member).collect();
        let intents = Arc::new(SimIntents::default());
        let union = Self::union(&members, &intents, &life);
        Self { members, intents, life, union }
    }

    fn union(
        members: &[Arc<Around<Mortal>>],
        kept: &Arc<SimIntents>,
        life: &Arc<AtomicU64>,
    ) -> Arc<Federation> {
        let union = Federation::stepped(Settings::default(), opened(members), moment(0));
        let (kept, life) = (Arc::clone(kept), Arc::clone(life));
        union.keep_intents_in(Arc::new(MortalIntents { kept, life }));
        union
    }

    /// The process has died: another one settles what it left, and shows the members.
    fn restart(&mut self) {
        self.life.store(u64::MAX, Ordering::Relaxed);
        self.members.iter().for_each(|member| member.tree.kill_process());
        for (id, mut intent) in self.intents.open() {
            let intents = Arc::clone(&self.intents);
            let missing =
                settle(&mut intent, &trees(&self.members), &mut |intent| intents.keep(id, intent)).unwrap();
            if missing.is_empty() {
                self.intents.over(id);
            }
        }
        self.union = Self::union(&self.members, &self.intents, &self.life);
    }

    fn op(&self, op: Op) -> Outcome {
        run(&self.union, op, b"")
    }

    fn walk(&self, path: &str) -> Result<Ino, Errno> {
        walk(&self.union, path)
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<(), Errno> {
        let split = |path: &str| -> Result<(Ino, Name), Errno> {
            let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
            Ok((self.walk(above)?, name(last)))
        };
        let ((dir, name), (new_dir, new_name)) = (split(from)?, split(to)?);
        let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
        self.op(op).map(|_| ())
    }

    /// A program makes these directly in a member: directories end with a slash.
    fn make(&self, member: usize, paths: &[&str]) {
        let direct = Direct(&self.members[member].tree);
        for path in paths {
            match path.strip_suffix('/') {
                Some(path) => direct.mkdir(path),
                None => direct.put(path, ""),
            }
        }
    }

    /// Everything that each member has, as the user would see it with find(1).
    fn have(&self) -> Vec<Vec<String>> {
        self.members.iter().map(|member| below(&member.tree, member.tree.root().id, "")).collect()
    }
}

fn below(tree: &SimTree, dir: NativeId, path: &str) -> Vec<String> {
    let list = NativeCall::List { dir, from: 0, bytes: 1 << 20 };
    let Ok(NativeReply::Names { names, .. }) = tree.direct(&Who::Daemon, &list, &[]) else {
        panic!("no names")
    };
    let mut all = Vec::new();
    for NativeEntry { name, kind, .. } in names {
        let path = format!("{path}{name}");
        if kind == Kind::Directory {
            let Ok(NativeReply::Stat(stat)) = tree.direct(&Who::Daemon, &NativeCall::Look { dir, name }, &[])
            else {
                panic!("no attributes")
            };
            all.extend(below(tree, stat.id, &format!("{path}/")));
            all.push(path + "/");
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// Three members have `d`; `to/` is in the first alone.
fn three() -> World {
    let world = World::new(3);
    world.make(0, &["d/", "d/a", "to/"]);
    world.make(1, &["d/", "d/b", "d/sub/", "d/sub/c"]);
    world.make(2, &["d/", "d/e"]);
    world
}

fn moved(paths: &[Vec<String>], from: &str, to: &str) -> Vec<Vec<String>> {
    let at = |path: &String| match path.strip_prefix(from) {
        Some(rest) => format!("{to}{rest}"),
        None => path.clone(),
    };
    let all = |paths: &Vec<String>| {
        let mut paths: Vec<String> = paths.iter().map(at).collect();
        paths.sort();
        paths
    };
    paths.iter().map(all).collect()
}

#[test]
fn a_directory_in_several_members_is_renamed_in_each_and_keeps_its_number() {
    let world = three();
    let (ino, before) = (world.walk("d").unwrap(), world.have());
    world.rename("d", "e", RenameMode::Replace).unwrap();
    assert_eq!(world.have(), moved(&before, "d/", "e/"));
    assert_eq!((world.walk("e"), world.walk("d")), (Ok(ino), Err(Errno::ENOENT)));
    assert!(world.walk("e/a").is_ok() && world.walk("e/sub/c").is_ok() && world.walk("e/e").is_ok());
    assert_eq!(world.intents.open().len(), 1, "no disk is known to have it");
    world.union.step(moment(100));
    assert_eq!(world.intents.open().len(), 0);
}

#[test]
fn its_new_parent_is_made_in_each_member() {
    let world = three();
    let mut after = moved(&world.have(), "d/", "to/d/");
    world.rename("d", "to/d", RenameMode::NoReplace).unwrap();
    after[1].push("to/".into());
    after[2].push("to/".into());
    after.iter_mut().for_each(|paths| paths.sort());
    assert_eq!(world.have(), after);
    assert_eq!(world.rename("to", "to/d/to", RenameMode::Replace), Err(Errno::EINVAL), "into itself");
}

#[test]
fn it_replaces_an_empty_directory_wherever_that_is_and_no_other() {
    let world = three();
    world.make(1, &["new/"]);
    world.make(2, &["full/", "full/x"]);
    let before = world.have();
    assert_eq!(world.rename("d", "full", RenameMode::Replace), Err(Errno::ENOTEMPTY));
    assert_eq!(world.rename("d", "new", RenameMode::NoReplace), Err(Errno::EEXIST));
    assert_eq!(world.have(), before);
    world.make(0, &["new/"]);
    world.rename("d", "new", RenameMode::Replace).unwrap();
    assert_eq!(world.have(), moved(&before, "d/", "new/").into_iter().map(once).collect::<Vec<_>>());
    assert_eq!(world.walk("d"), Err(Errno::ENOENT));
}

fn once(mut paths: Vec<String>) -> Vec<String> {
    paths.dedup();
    paths
}

#[test]
fn an_empty_directory_that_only_another_member_has_is_replaced_too() {
    let world = World::new(3);
    world.make(0, &["d/", "d/a"]);
    world.make(1, &["d/", "d/b"]);
    world.make(2, &["new/"]);
    world.rename("d", "new", RenameMode::Replace).unwrap();
    let none: [&str; 0] = [];
    assert_eq!(world.have(), [vec!["new/", "new/a"], vec!["new/", "new/b"], none.to_vec()]);
}

#[test]
fn what_lies_in_several_members_is_exchanged() {
    let world = World::new(3);
    world.make(0, &["d/", "d/a", "e/", "e/x"]);
    world.make(1, &["d/", "d/b"]);
    world.make(2, &["e/", "e/y", "f"]);
    let (d, e, f) = (world.walk("d").unwrap(), world.walk("e").unwrap(), world.walk("f").unwrap());
    world.rename("d", "e", RenameMode::Exchange).unwrap();
    let after = [vec!["d/", "d/x", "e/", "e/a"], vec!["e/", "e/b"], vec!["d/", "d/y", "f"]];
    assert_eq!(world.have(), after);
    assert_eq!((world.walk("d"), world.walk("e")), (Ok(e), Ok(d)));
    // A file and a directory, and then back.
    world.rename("f", "e", RenameMode::Exchange).unwrap();
    assert_eq!(world.have(), [vec!["d/", "d/x", "f/", "f/a"], vec!["f/", "f/b"], vec!["d/", "d/y", "e"]]);
    assert_eq!((world.walk("f"), world.walk("e")), (Ok(d), Ok(f)));
    world.rename("f", "e", RenameMode::Exchange).unwrap();
    assert_eq!(world.have(), after);
}

#[test]
fn two_files_of_different_members_are_exchanged() {
    let world = World::new(2);
    world.make(0, &["a"]);
    world.make(1, &["to/", "to/b"]);
    let (a, b) = (world.walk("a").unwrap(), world.walk("to/b").unwrap());
    world.rename("a", "to/b", RenameMode::Exchange).unwrap();
    assert_eq!(world.have(), [vec!["to/", "to/b"], vec!["a", "to/"]]);
    assert_eq!((world.walk("a"), world.walk("to/b")), (Ok(b), Ok(a)));
}

#[test]
fn if_a_member_refuses_nothing_is_changed() {
    for member in 0..3 {
        let world = three();
        world.make(1, &["new/"]);
        let before = world.have();
        world.walk("d").unwrap();
        *world.members[member].called.fate.lock().unwrap() = Some(Fate::Refuses);
        assert_eq!(world.rename("d", "new", RenameMode::Replace), Err(Errno::EPERM), "member {member}");
        assert_eq!(world.have(), before);
        assert!(world.walk("d/a").is_ok() && world.walk("d/b").is_ok() && world.walk("new").is_ok());
        world.rename("d", "new", RenameMode::Replace).unwrap();
        world.union.step(moment(100));
        assert!(world.intents.open().is_empty());
    }
}

#[test]
fn a_name_that_somebody_makes_meanwhile_is_not_replaced() {
    let world = three();
    let before = world.have();
    world.walk("d").unwrap();
    assert_eq!(world.walk("new"), Err(Errno::ENOENT));
    // Nothing has been told of it yet.
    world.make(2, &["new"]);
    assert_eq!(world.rename("d", "new", RenameMode::Replace), Err(Errno::ENOTDIR));
    let mut after = before;
    after[2].push("new".into());
    assert_eq!(world.have(), after);
}

/// Sequence 5: the process dies at each of its changes, and another one settles what it left.
#[test]
fn a_process_that_dies_leaves_all_of_it_under_one_name() {
    let mut ends = [0, 0];
    for changes in 0.. {
        let mut world = three();
        world.make(1, &["to/", "to/new/"]);
        let before = world.have();
        world.life.store(changes, Ordering::Relaxed);
        let outcome = world.rename("d", "to/new", RenameMode::Replace);
        let lived = world.life.load(Ordering::Relaxed) > 0;
        world.restart();
        let mut have = world.have();
        // A parent that was made, and the empty directory that was replaced, are nothing that is lost.
        have.iter_mut().for_each(|paths| paths.retain(|path| path != "to/" && path != "to/new/"));
        let mut expected = [before.clone(), moved(&before, "d/", "to/new/")];
        expected
            .iter_mut()
            .flatten()
            .for_each(|paths| paths.retain(|path| path != "to/" && path != "to/new/"));
        let at = expected.iter().position(|paths| *paths == have);
        assert!(at.is_some(), "after {changes} changes: {have:?}");
        ends[at.unwrap()] += 1;
        let shown = ["d", "to/new"][at.unwrap()];
        for path in ["a", "b", "e", "sub/c"] {
            assert!(world.walk(&format!("{shown}/{path}")).is_ok(), "{path} after {changes} changes");
        }
        assert!(world.intents.open().is_empty(), "after {changes} changes");
        if lived {
            outcome.unwrap();
            break;
        }
    }
    assert!(ends.iter().all(|n| *n > 2), "at the old and at the new name: {ends:?}");
}

#[test]
fn a_disk_that_goes_meanwhile_is_settled_before_it_serves_again() {
    for member in 0..3 {
        for fate in [Fate::GoneBefore, Fate::GoneBehind] {
            let world = three();
            let before = world.have();
            world.walk("d/sub/c").unwrap();
            *world.members[member].called.fate.lock().unwrap() = Some(fate);
            assert_eq!(world.rename("d", "new", RenameMode::Replace), Err(Errno::EIO));
            let have = world.have();
            let others = (0..3).filter(|other| *other != member);
            others.for_each(|other| assert_eq!(have[other], before[other], "{member} {fate:?}"));
            assert_eq!(world.walk("d/x"), Err(Errno::EIO), "it may be there");
            assert_eq!(world.walk("new"), Err(Errno::EIO), "it may be there");
            world.members[member].tree.set_faults(|faults| faults.away = false);
            world.union.step(moment(100));
            assert_eq!(world.have(), before, "{member} {fate:?}");
            assert_eq!((world.walk("d/x"), world.walk("new")), (Err(Errno::ENOENT), Err(Errno::ENOENT)));
            assert!(world.intents.open().is_empty());
            world.rename("d", "new", RenameMode::Replace).unwrap();
        }
    }
}

/// Two of them come back at the same time: none serves before the rename is settled in it, whoever settles it.
#[test]
fn a_member_that_comes_back_while_another_one_settles_waits_for_it() {
    let world = three();
    let before = world.have();
    world.walk("d").unwrap();
    let first = Arc::clone(&world.members[0]);
    *world.members[1].called.fate.lock().unwrap() = Some(Fate::GoneBehind);
    let gone = move || first.tree.set_faults(|faults| faults.away = true);
    *world.members[1].called.before.lock().unwrap() = Some(Box::new(gone));
    assert_eq!(world.rename("d", "new", RenameMode::Replace), Err(Errno::EIO));
    assert!(world.have()[..2].iter().all(|paths| paths.contains(&"new/".into())), "it could not go back");
    world.members.iter().for_each(|member| member.tree.set_faults(|faults| faults.away = false));
    let (send, shown) = channel();
    let union = Arc::clone(&world.union);
    let comes_too = move || {
        let (ended, end) = channel::<()>();
        std::thread::spawn(move || {
            union.step(moment(100));
            send.send(["d/a", "d/b", "new"].map(|path| walk(&union, path).map(|_| ()))).unwrap();
            drop(ended);
        });
        // It ends now if nothing keeps it back.
        let _ended = end.recv_timeout(Duration::from_millis(200));
    };
    *world.members[0].called.before.lock().unwrap() = Some(Box::new(comes_too));
    world.union.step(moment(100));
    assert_eq!(shown.recv().unwrap(), [Ok(()), Ok(()), Err(Errno::ENOENT)]);
    assert_eq!(world.have(), before);
    assert!(world.intents.open().is_empty());
}

/// A start without one of the members decides, and the member follows when it is there again.
#[test]
fn a_member_that_is_missing_at_the_settling_follows_later() {
    for missing in 0..3 {
        for changes in 1..4 {
            let mut world = three();
            let before = world.have();
            world.walk("d").unwrap();
            world.life.store(changes, Ordering::Relaxed);
            world.rename("d", "new", RenameMode::Replace).unwrap_err();
            world.members[missing].tree.set_faults(|faults| faults.away = true);
            world.restart();
            let open = world.intents.open();
            assert_eq!(open.len(), 1);
            assert!(open.values().all(|intent| intent.direction.is_some()), "it is written down");
            world.members[missing].tree.set_faults(|faults| faults.away = false);
            world.restart();
            let have = world.have();
            assert!(have == before || have == moved(&before, "d/", "new/"), "{missing} {changes}: {have:?}");
            assert!(world.intents.open().is_empty());
        }
    }
}

#[test]
fn without_a_place_for_intents_it_is_exdev_so_that_programs_copy() {
    let world = three();
    let union = Federation::stepped(Settings::default(), opened(&world.members), moment(0));
    let world = World { union, ..world };
    let before = world.have();
    assert_eq!(world.rename("d", "e", RenameMode::Replace), Err(Errno::EXDEV));
    assert_eq!(world.have(), before);
}

#[test]
fn a_file_that_is_shown_beside_the_replaced_directory_is_in_the_way_in_its_member() {
    let world = three();
    world.make(0, &["new/"]);
    world.make(1, &["new"]);
    let before = world.have();
    assert_eq!(world.rename("d", "new", RenameMode::Replace), Err(Errno::ENOTDIR));
    assert_eq!(world.have(), before);
}

#[test]
fn a_name_that_was_made_just_before_its_disk_went_is_never_absent() {
    let world = World::new(1);
    assert_eq!(world.walk("new"), Err(Errno::ENOENT));
    *world.members[0].called.fate.lock().unwrap() = Some(Fate::GoneBehind);
    assert_eq!(ino(world.op(create(Ino::ROOT, "new"))), Err(Errno::EIO));
    assert_eq!(world.walk("new"), Err(Errno::EIO), "it is there, and nobody was told");
}
