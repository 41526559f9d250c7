//! For how long the kernel keeps what it is told: as each answer says. What has changed goes soon, and nobody waits for that.

mod common;

use atoll_needs::needs;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_core::{Ino, Name};
use atoll_posix::Op;
use atoll_vfs::{CHANGED_MAX, Caching, Scope, Watcher};
use common::{PATIENCE, World, create, create_in, eventually};
use std::sync::Arc;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn world(label: &str, caching: Caching) -> World {
    let world = World::new(label);
    *world.files.caching.lock().unwrap() = caching;
    world
}

fn watcher(world: &World) -> Arc<dyn Watcher> {
    Arc::clone(world.files.watcher.get().unwrap())
}

/// Makes a file longer without the kernel.
fn grow(world: &World, text: &str, bytes: &[u8]) {
    let write = Op::Write { ino: world.files.id(text), offset: 0, append: true, kill_set_id: false };
    world.files.behind(write, bytes);
}

fn len(at: &Path) -> u64 {
    fs::metadata(at).unwrap().len()
}

/// The bytes of a short file, without asking for its attributes.
fn bytes(at: &Path) -> Vec<u8> {
    let mut bytes = [0; 16];
    let len = fs::File::open(at).unwrap().read(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

#[test]
fn what_may_be_kept_for_a_time_is_asked_for_again_after_it() {
    needs!(Mounts);
    let world = world("for-a-time", Caching::ForMs(1500));
    world.files.behind(create("f"), b"");
    let at = world.at("f");
    assert_eq!((len(&at), fs::metadata(world.at("none")).is_err()), (0, true));
    let asked = || world.requests("LOOKUP") + world.requests("GETATTR");
    let before = asked();
    grow(&world, "f", b"abc");
    world.files.behind(create("none"), b"");
    assert_eq!((len(&at), fs::metadata(world.at("none")).is_err()), (0, true));
    assert_eq!(asked(), before, "the kernel asks for what it may keep");
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!((len(&at), fs::metadata(world.at("none")).is_err()), (3, false));
    // Bytes are not kept from one open to the next.
    assert_eq!(fs::read(&at).unwrap(), b"abc");
    grow(&world, "f", b"de");
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!(fs::read(&at).unwrap(), b"abcde");
}

#[test]
fn each_answer_says_for_itself_whether_it_may_be_kept() {
    needs!(Mounts);
    let world = world("each", Caching::UntilRecalled);
    for text in ["kept", "not"] {
        world.files.behind(create(text), b"");
    }
    assert_eq!(len(&world.at("kept")), 0);
    *world.files.caching.lock().unwrap() = Caching::Never;
    assert_eq!(len(&world.at("not")), 0);
    for text in ["kept", "not"] {
        grow(&world, text, b"abc");
    }
    assert_eq!((len(&world.at("kept")), len(&world.at("not"))), (0, 3));
}

#[test]
fn what_has_changed_is_dropped_although_it_might_be_kept() {
    needs!(Mounts);
    let world = world("changed", Caching::UntilRecalled);
    world.files.behind(create("f"), b"");
    grow(&world, "f", b"a");
    let at = world.at("f");
    assert_eq!(bytes(&at), b"a");
    assert!(fs::metadata(world.at("new")).is_err());
    grow(&world, "f", b"b");
    world.files.behind(create("new"), b"");
    assert_eq!(bytes(&at), b"a", "the kernel keeps it");
    assert!(fs::metadata(world.at("new")).is_err(), "the kernel keeps that it is absent");
    watcher(&world).changed(&[world.files.id("f")], &[]);
    eventually(|| bytes(&at) == b"ab");
    assert!(fs::metadata(world.at("new")).is_err(), "nothing was said of this name");
    watcher(&world).changed(&[], &[(Ino::ROOT, name("new"))]);
    eventually(|| fs::metadata(world.at("new")).is_ok());
}

/// The kernel may write down an answer of before when it has been told already that this has changed.
#[test]
fn what_the_kernel_learns_of_before_when_it_was_told_of_a_change_goes_too() {
    needs!(Mounts);
    let world = world("late", Caching::UntilRecalled);
    let kept = Duration::from_secs(5);
    let is_late = |n: usize| {
        let text = format!("f{n}");
        world.files.behind(create(&text), b"");
        let (ino, at, absent) = (world.files.id(&text), world.at(&text), world.at(&format!("new{n}")));
        let begun = Instant::now();
        watcher(&world).changed(&[ino], &[(Ino::ROOT, name(&text)), (Ino::ROOT, name(&format!("new{n}")))]);
        // As answers that were under way.
        assert_eq!((len(&at), absent.exists()), (0, false));
        grow(&world, &text, b"abc");
        world.files.behind(create(&format!("new{n}")), b"");
        eventually(|| len(&at) == 3 && absent.exists());
        // Then the kernel asks again in any case.
        begun.elapsed() >= kept
    };
    // A busy machine may take so long for one.
    assert!((0..10).any(|n| !is_late(n)), "it is shown for as long as the kernel keeps it");
}

/// Has the kernel drop what it keeps of these, as before a change of another mount.
fn recall(world: &World, inos: &[Ino]) {
    let (watcher, inos) = (watcher(world), inos.to_vec());
    std::thread::spawn(move || watcher.recall(Scope::Of(&inos))).join().unwrap();
}

/// How many requests the kernel has made.
fn asked(world: &World) -> u64 {
    ["LOOKUP", "GETATTR", "READ", "READDIRPLUS"].map(|of| world.requests(of)).iter().sum()
}

#[test]
fn what_a_recall_names_is_dropped_when_it_returns_and_the_rest_is_kept() {
    needs!(Mounts);
    let world = world("of", Caching::UntilRecalled);
    for dir in ["a", "b"] {
        fs::create_dir(world.at(dir)).unwrap();
    }
    let dirs = [world.files.id("a"), world.files.id("b")];
    for (dir, text) in [("a", "f"), ("a", "g"), ("b", "f")] {
        fs::write(world.at(&format!("{dir}/{text}")), b"old").unwrap();
    }
    recall(&world, &dirs);
    let see = || {
        let absent = |text: &str| !world.at(text).exists();
        let lens = ["a/f", "a/g", "b/f"].map(|text| len(&world.at(text)));
        (lens, absent("a/new"), absent("b/new"))
    };
    see();
    let (before, is) = (asked(&world), see());
    assert_eq!((is, asked(&world)), (([3; 3], true, true), before), "it is all kept");
    // A file, which keeps its name.
    let file = world.files.id_in(dirs[0], "f");
    let lookups = world.requests("LOOKUP");
    recall(&world, &[file]);
    world.files.behind(Op::Write { ino: file, offset: 3, append: false, kill_set_id: false }, b"er");
    assert_eq!(see(), ([5, 3, 3], true, true));
    assert_eq!((asked(&world), world.requests("LOOKUP")), (before + 1, lookups));
    assert_eq!(bytes(&world.at("a/f")), b"older");
    // The names of a directory, and those of no other one.
    recall(&world, &[dirs[0]]);
    for dir in dirs {
        world.files.behind(create_in(dir, "new"), b"");
    }
    assert_eq!(see(), ([5, 3, 3], false, true));
    let before = asked(&world);
    see();
    assert_eq!(asked(&world), before);
    // Of a directory with more names than are dropped one by one all names go.
    for n in 0..2_000 {
        assert!(!world.at(&format!("b/absent{n}")).exists());
    }
    recall(&world, &[dirs[1]]);
    world.files.behind(create_in(dirs[1], "absent1999"), b"");
    assert!(world.at("b/new").exists() && world.at("b/absent1999").exists());
}

#[test]
fn a_recall_of_a_directory_ends_although_a_request_holds_its_lock_and_its_names_are_gone() {
    needs!(Mounts);
    let world = world("held", Caching::UntilRecalled);
    assert!(!world.at("new").exists());
    *world.files.held.lock().unwrap() = vec![Ino::ROOT];
    std::thread::scope(|scope| {
        let made = scope.spawn(|| fs::create_dir(world.at("dir")));
        let makes = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            world.requests("MKDIR") > 0
        });
        recall(&world, &[Ino::ROOT]);
        world.files.behind(create("new"), b"");
        world.files.held.lock().unwrap().clear();
        let is_new = world.at("new").exists();
        made.join().unwrap().unwrap();
        assert!(makes && is_new);
    });
}

/// Sequence u of `docs/design/024-leases.md`: the kernel keeps a new name as long as it would have kept the old one.
#[test]
fn a_name_that_a_rename_gives_is_not_kept_past_a_recall_nor_if_the_answer_may_not_be_kept() {
    needs!(Mounts);
    let world = world("renamed", Caching::UntilRecalled);
    let unlink = |text: &str| world.files.behind(Op::Unlink { dir: Ino::ROOT, name: name(text) }, b"");
    for n in 0..10 {
        let [from, to] = ["from", "to"].map(|text| format!("{text}{n}"));
        world.files.behind(create(&from), b"");
        assert_eq!(len(&world.at(&from)), 0);
        *world.files.held.lock().unwrap() = vec![Ino::ROOT];
        let before = world.requests("RENAME");
        std::thread::scope(|scope| {
            let renamed = scope.spawn(|| fs::rename(world.at(&from), world.at(&to)));
            eventually(|| world.requests("RENAME") > before);
            let recalled = scope.spawn(|| recall(&world, &[Ino::ROOT]));
            // The recall waits for names by now, most times.
            std::thread::sleep(Duration::from_millis(5));
            world.files.held.lock().unwrap().clear();
            renamed.join().unwrap().unwrap();
            recalled.join().unwrap();
        });
        unlink(&to);
        assert!(!world.at(&to).exists(), "{to}");
    }
    // Nobody recalls a directory of which nothing was told that may be kept.
    fs::create_dir(world.at("d")).unwrap();
    world.files.behind(create("f"), b"");
    assert_eq!(len(&world.at("f")), 0);
    *world.files.caching.lock().unwrap() = Caching::Never;
    fs::rename(world.at("f"), world.at("d/g")).unwrap();
    world.files.behind(Op::Unlink { dir: world.files.id("d"), name: name("g") }, b"");
    assert!(!world.at("d/g").exists());
    // The root is recalled.
    *world.files.caching.lock().unwrap() = Caching::UntilRecalled;
    world.files.behind(create("f"), b"");
    assert_eq!(len(&world.at("f")), 0);
    *world.files.caching.lock().unwrap() = Caching::Never;
    let lookups = world.requests("LOOKUP");
    fs::rename(world.at("f"), world.at("g")).unwrap();
    assert!(world.at("g").exists());
    assert!(world.requests("LOOKUP") <= lookups + 1, "it was looked for before, and is kept");
    recall(&world, &[Ino::ROOT]);
    unlink("g");
    assert!(!world.at("g").exists());
}

#[test]
fn if_more_has_changed_than_can_be_named_everything_is_dropped() {
    needs!(Mounts);
    let world = world("much", Caching::UntilRecalled);
    world.files.behind(create("f"), b"");
    assert_eq!(len(&world.at("f")), 0);
    assert!(fs::metadata(world.at("new")).is_err());
    grow(&world, "f", b"abc");
    world.files.behind(create("new"), b"");
    let others: Vec<(Ino, Name)> =
        (0..=CHANGED_MAX).map(|n| (Ino::ROOT, name(&format!("other{n}")))).collect();
    watcher(&world).changed(&[], &others);
    eventually(|| len(&world.at("f")) == 3 && fs::metadata(world.at("new")).is_ok());
}

#[test]
fn news_returns_at_once_although_the_kernel_waits_for_a_request() {
    needs!(Mounts);
    let world = world("at-once", Caching::UntilRecalled);
    world.files.behind(create("f"), b"");
    grow(&world, "f", b"a");
    let ino = world.files.id("f");
    *world.files.held.lock().unwrap() = vec![ino, Ino::ROOT];
    std::thread::scope(|scope| {
        // Both hold what the kernel needs to drop the file's pages and a name of the root.
        let read = scope.spawn(|| bytes(&world.at("f")));
        let waits_for = |operation| {
            (0..6000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                world.requests(operation) > 0
            })
        };
        let reads = waits_for("READ");
        let made = scope.spawn(|| fs::create_dir(world.at("dir")).unwrap());
        let makes = waits_for("MKDIR");
        let (sender, told) = std::sync::mpsc::channel();
        scope.spawn(|| {
            let sender = sender;
            watcher(&world).changed(&[ino], &[(Ino::ROOT, name("f"))]);
            sender.send(()).unwrap();
        });
        // It returns while both wait. The time only catches one that would wait for them.
        let returned = told.recv_timeout(PATIENCE).is_ok();
        world.files.held.lock().unwrap().clear();
        assert!(reads && makes && returned, "{reads} {makes} {returned}");
        assert_eq!(read.join().unwrap(), b"a");
        made.join().unwrap();
    });
}
