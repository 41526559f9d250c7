//! What other sites take away, by sequences: what rests, what comes back, and what goes for good.

mod bytes;
mod site;

use ::bytes::Bytes;
use atoll_causal::Writer;
use atoll_core::Ino;
use atoll_posix::{Answer, Errno, Kind, Op, SetAttr, XattrMode};
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::peers::Window;
use atoll_wide::rows::TrashCause;
use bytes::World;
use site::{named, opened_with};

/// Bytes that a small file takes.
const BLOCK: u64 = 4_096;

fn restored(world: &mut World, at: usize, key: u128, name: &str) -> SiteAnswers {
    world.ask(at, &SiteAsks::TrashRestore { key, dir: Ino::ROOT, name: named(name) })
}

#[test]
fn what_another_site_removes_rests_and_what_the_own_user_removes_does_not() {
    let mut world = World::new(3);
    world.put(0, "a", b"some bytes");
    world.sites[1].mkdir(Ino::ROOT, "d");
    world.rest();
    world.unlink(0, "a");
    world.rest();
    assert_eq!(world.rests(0), []);
    for at in [1, 2] {
        assert_eq!(world.rests(at), [("/a".to_owned(), b"some bytes".to_vec())]);
        let entry = world.trash(at).remove(0);
        assert_eq!((entry.kind, entry.rested.size, entry.rested.takes), (Kind::Regular, 10, BLOCK));
        assert_eq!((entry.rested.by, entry.rested.why), (Writer(1), TrashCause::Removed {}));
        assert_eq!(entry.rested.version.map(|version| version.size), Some(10));
    }
    world.all_have(&[]);
    world.sites[0].release_all();
    assert!(world.sites[0].bodies().is_empty(), "{:?}", world.sites[0].bodies());
}

#[test]
fn an_earlier_version_rests_at_sites_where_nobody_has_written_over_it() {
    let mut world = World::new(2);
    world.put(0, "a", b"one");
    world.rest();
    world.put(1, "a", b"another");
    world.rest();
    assert_eq!(world.rests(0), [("/a".to_owned(), b"one".to_vec())]);
    assert_eq!(world.rests(1), []);
    let entry = world.trash(0).remove(0);
    assert_eq!((entry.rested.by, entry.rested.why), (Writer(2), TrashCause::Replaced {}));
    // What had no bytes leaves none.
    world.put(1, "b", b"");
    world.rest();
    world.put(1, "b", b"some");
    world.rest();
    assert_eq!(world.trash(0).len(), 1);
}

#[test]
fn what_rests_is_a_file_again_at_all_sites() {
    let mut world = World::new(2);
    let ino = world.create(0, "a");
    world.write(0, ino, 0, b"some bytes");
    let set = SetAttr { mode: Some(0o640), uid: Some(5), gid: Some(6), ..SetAttr::default() };
    world.run(0, Op::SetAttr { ino, set }, b"").expect("it is set");
    let (name, value) = (Bytes::from_static(b"user.x"), Bytes::from_static(b"y"));
    let op = Op::SetXattr { ino, name: name.clone(), value, mode: XattrMode::Any, kill_sgid: false };
    world.run(0, op, b"").expect("it is set");
    world.sites[0].create(Ino::ROOT, "link", Kind::Symlink, b"target");
    world.put(0, "taken", b"other");
    world.rest();
    world.unlink(0, "a");
    world.unlink(0, "link");
    world.rest();
    let trash = world.trash(1);
    let keys: Vec<u128> = trash.iter().map(|entry| entry.key).collect();
    assert_eq!(trash.iter().map(|entry| entry.kind).collect::<Vec<_>>(), [Kind::Regular, Kind::Symlink]);
    assert_eq!(restored(&mut world, 1, 1, "b"), SiteAnswers::Failed { errno: Errno::ENOENT });
    assert_eq!(restored(&mut world, 1, keys[0], "taken"), SiteAnswers::Failed { errno: Errno::EEXIST });
    assert!(matches!(restored(&mut world, 1, keys[0], "b"), SiteAnswers::Restored { .. }));
    assert!(matches!(restored(&mut world, 1, keys[1], "a link"), SiteAnswers::Restored { .. }));
    assert_eq!(restored(&mut world, 1, keys[0], "c"), SiteAnswers::Failed { errno: Errno::ENOENT });
    world.rest();
    world.all_have(&[("b", b"some bytes"), ("taken", b"other")]);
    assert_eq!((world.rests(0), world.rests(1)), (vec![], vec![]));
    for at in 0..2 {
        let ino = world.find(at, "b");
        let Ok((Answer::Attr { attr, .. }, _)) = world.run(at, Op::GetAttr { ino }, b"") else {
            panic!("attributes")
        };
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.nlink), (0o640, 5, 6, 1));
        let value = world.run(at, Op::GetXattr { ino, name: name.clone() }, b"").expect("it has it");
        assert_eq!(value.1, b"y"[..]);
        let ino = world.find(at, "a link");
        assert_eq!(world.run(at, Op::Readlink { ino }, b"").expect("a link").1, b"target"[..]);
    }
    // It is a file like others.
    world.put(0, "b", b"changed");
    world.rest();
    world.all_have(&[("b", b"changed"), ("taken", b"other")]);
}

#[test]
fn what_takes_too_much_goes_the_oldest_first() {
    let mut world = World::with_trash(2, 3 * BLOCK);
    for name in ["a", "b", "c", "d"] {
        world.put(0, name, name.as_bytes());
    }
    world.put(0, "large", &[7; 4 * BLOCK as usize]);
    world.rest();
    for name in ["large", "b", "a", "d"] {
        world.unlink(0, name);
        world.rest();
    }
    let names = |world: &mut World| world.rests(1).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(names(&mut world), ["/b", "/a", "/d"]);
    world.unlink(0, "c");
    world.rest();
    assert_eq!(names(&mut world), ["/a", "/d", "/c"]);
    assert_eq!((world.machine(1).trash().bodies(), world.machine(1).trash().bytes()), (3, 3 * BLOCK));
    world.sites[1].release_all();
    assert_eq!(world.sites[1].bodies().len(), 3);
}

#[test]
fn what_has_rested_for_thirty_days_goes() {
    let mut world = World::new(2);
    for name in ["a", "b"] {
        world.put(0, name, b"some bytes");
        world.rest();
        world.unlink(0, name);
        world.rest();
        world.sites[1].days_pass(20);
    }
    assert_eq!(world.rests(1), [("/b".to_owned(), b"some bytes".to_vec())]);
    world.sites[1].days_pass(9);
    assert_eq!(world.trash(1).len(), 1);
    world.sites[1].days_pass(1);
    assert_eq!(world.rests(1), []);
    world.sites[1].release_all();
    assert!(world.sites[1].bodies().is_empty());
}

#[test]
fn the_trash_is_emptied_up_to_a_key() {
    let mut world = World::new(2);
    for nth in 0..70 {
        world.put(0, &nth.to_string(), b"some bytes");
    }
    world.rest();
    for nth in 0..70 {
        world.unlink(0, &nth.to_string());
    }
    world.rest();
    let last = world.trash(1)[68].key;
    let emptied = world.ask(1, &SiteAsks::TrashEmpty { upto: last });
    assert_eq!(emptied, SiteAnswers::Emptied { bodies: 69, bytes: 69 * BLOCK });
    assert_eq!(world.trash(1).len(), 1);
    let emptied = world.ask(1, &SiteAsks::TrashEmpty { upto: 0 });
    assert_eq!(emptied, SiteAnswers::Emptied { bodies: 0, bytes: 0 });
    world.sites[1].release_all();
    assert_eq!(world.sites[1].bodies().len(), 1);
}

#[test]
fn the_trash_gives_way_before_the_disk_is_full() {
    const FILE: u64 = 100 * BLOCK;
    let mut world = World::with_trash(2, 10 * FILE);
    for name in ["a", "b", "c", "d"] {
        world.put(0, name, &[b'x'; FILE as usize]);
    }
    world.rest();
    for name in ["a", "b", "c", "d"] {
        world.unlink(0, name);
        world.rest();
    }
    let left = |world: &World| world.machine(1).trash().bodies();
    world.sites[1].has_free(5 * FILE + FILE / 2);
    assert_eq!(left(&world), 4);
    // The disk does not show at once what has gone: no more goes for that.
    world.sites[1].has_free(3 * FILE + FILE / 2);
    world.sites[1].has_free(3 * FILE + FILE / 2);
    assert_eq!(left(&world), 2);
    world.sites[1].has_free(5 * FILE + FILE / 2);
    world.passes(8);
    assert_eq!(left(&world), 2);
    // Nobody can write, and it gives way all the same.
    world.sites[1].has_free(0);
    assert_eq!(left(&world), 0);
    world.sites[1].release_all();
    assert!(world.sites[1].bodies().is_empty());
}

#[test]
fn what_rests_is_there_when_the_machine_begins_anew() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    world.unlink(0, "a");
    world.rest();
    let before = world.trash(1);
    let (position, rows) = (world.sites[1].state().seq(), world.sites[1].sides().clone());
    let rows = rows.into_iter().map(|((table, id), row)| (table, id, row));
    let machine = opened_with(Writer(2), position, (Window::MOST, 1 << 20), rows).expect("it goes on");
    world.link(0, 1, false);
    world.sites[1].set_beside(machine);
    world.link(0, 1, true);
    assert_eq!(world.trash(1), before);
    assert!(matches!(restored(&mut world, 1, before[0].key, "a"), SiteAnswers::Restored { .. }));
    world.rest();
    world.all_have(&[("a", b"some bytes")]);
}

#[test]
fn of_files_that_are_shown_as_one_the_bytes_rest_when_another_site_removes_both() {
    let mut world = World::new(3);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    for at in [0, 1] {
        world.put(at, "a", b"the same");
        world.passes(10);
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, true);
    }
    world.rest();
    world.unlink(2, "a");
    world.rest();
    world.all_have(&[]);
    for at in [0, 1] {
        let rests = world.rests(at);
        assert!(!rests.is_empty() && rests.iter().all(|(_, bytes)| bytes == b"the same"), "{rests:?}");
    }
    assert_eq!(world.rests(2), []);
}

#[test]
fn whoever_has_open_what_rests_reads_on_when_it_goes() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    let ino = world.find(1, "a");
    world.unlink(0, "a");
    world.rest();
    assert_eq!(world.get(1, ino), b"some bytes");
    world.ask(1, &SiteAsks::TrashEmpty { upto: u128::MAX });
    assert_eq!(world.rests(1), []);
    assert_eq!(world.get(1, ino), b"some bytes");
    world.sites[1].release_all();
    assert!(world.sites[1].bodies().is_empty());
}

#[test]
fn what_rests_is_a_file_again_when_somebody_writes_to_it_who_has_it_open() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    let ino = world.find(1, "a");
    world.unlink(0, "a");
    world.rest();
    assert_eq!(world.trash(1).len(), 1);
    let op = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
    world.run(1, op, b", and more").expect("it is written");
    assert_eq!(world.rests(1), [], "it is a file, and not in the trash");
    world.rest();
    world.all_have(&[("a", b"some bytes, and more")]);
    // Another site takes it away again.
    world.unlink(0, "a");
    world.rest();
    assert_eq!(world.rests(1), [("/a".to_owned(), b"some bytes, and more".to_vec())]);
    assert_eq!(world.rests(0), []);
    world.ask(1, &SiteAsks::TrashEmpty { upto: u128::MAX });
    world.sites[1].release_all();
    assert!(world.sites[1].bodies().is_empty(), "nobody knows it any more");
}

#[test]
fn what_rested_too_long_while_somebody_had_it_open_is_a_file_when_he_writes_to_it() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    let ino = world.find(1, "a");
    world.unlink(0, "a");
    world.rest();
    world.sites[1].days_pass(31);
    assert_eq!(world.rests(1), []);
    assert_eq!(world.sites[1].kept(), [ino]);
    let op = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
    world.run(1, op, b", and more").expect("it is written");
    world.rest();
    world.all_have(&[("a", b"some bytes, and more")]);
    assert_eq!(world.sites[1].kept(), []);
}

#[test]
fn whoever_has_open_what_rests_goes_on_in_it_when_it_has_a_name_again() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    let ino = world.find(1, "a");
    world.unlink(0, "a");
    world.rest();
    let key = world.trash(1)[0].key;
    assert_eq!(restored(&mut world, 1, key, "b"), SiteAnswers::Restored { ino });
    let op = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
    world.run(1, op, b", and more").expect("it is written");
    world.sites[1].release(&[ino]);
    world.rest();
    world.all_have(&[("b", b"some bytes, and more")]);
}

#[test]
fn a_path_that_is_too_long_is_told_from_below() {
    let mut world = World::new(2);
    let mut dir = Ino::ROOT;
    for _ in 0..10 {
        dir = world.sites[0].mkdir(dir, &"d".repeat(200));
    }
    let ino = world.sites[0].create(dir, "a", Kind::Regular, b"");
    world.write(0, ino, 0, b"deep");
    world.rest();
    world.run(0, Op::Unlink { dir, name: named("a") }, b"").expect("it is removed");
    world.rest();
    let rests = world.rests(1);
    let (path, _) = &rests[0];
    assert!(path.starts_with('d') && path.ends_with("d/a") && (800..=1_024).contains(&path.len()), "{path}");
}

/// Found by `wide_sites` 600570: the body in which it was gathered stayed for ever.
#[test]
fn what_was_gathered_for_a_file_goes_when_the_file_went_and_came_back_without_bytes() {
    let mut world = World::new(3);
    world.put(0, "a", b"at first");
    world.rest();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    // The others hear of a version whose bytes do not come, and look for them in longer and longer intervals.
    world.put(0, "a", b"the second");
    world.passes(10);
    for other in [1, 2] {
        world.breaks_after = Some(0);
        world.link(0, other, true);
        world.passes(10);
        assert!(world.linked.is_empty());
    }
    world.link(1, 2, true);
    world.passes(40);
    world.unlink(2, "a");
    world.passes(6);
    assert_eq!(world.rests(1), [("/a".to_owned(), b"at first".to_vec())]);
    world.put(0, "a", b"the third");
    world.passes(6);
    world.link(0, 2, true);
    world.rest();
    world.all_have(&[("a", b"the third")]);
    world.sites[1].release_all();
    assert_eq!(world.trash(1).len(), 1);
    let bodies: Vec<&Vec<u8>> = world.sites[1].bodies().values().collect();
    assert_eq!(bodies.len(), 2, "{bodies:?}");
}

#[test]
fn more_questions_than_a_site_takes_are_to_be_asked_again() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    world.rest();
    world.unlink(0, "a");
    world.rest();
    let key = world.trash(1)[0].key;
    // While nothing may be decided, they wait.
    world.sites[1].decides(false);
    let asks = SiteAsks::TrashRestore { key, dir: Ino::ROOT, name: named("a") };
    (0..64).for_each(|id| world.asks(1, id, &asks));
    assert_eq!(world.ask(1, &asks), SiteAnswers::Failed { errno: Errno::EAGAIN });
    world.sites[1].decides(true);
    world.rest();
    world.all_have(&[("a", b"some bytes")]);
    let restored = |answer: &&SiteAnswers| matches!(answer, SiteAnswers::Restored { .. });
    assert_eq!((world.answers.len(), world.answers.values().filter(restored).count()), (64, 1));
    world.asks_bytes(1, 64, b"no question");
    world.passes(1);
    assert_eq!(world.answers[&64], SiteAnswers::Failed { errno: Errno::EINVAL });
}
