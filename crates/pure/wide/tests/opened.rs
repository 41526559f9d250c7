//! Files that somebody has open at one site while another one replaces or removes them: what is written to them then is not lost.

mod bytes;
mod site;

use atoll_core::Ino;
use atoll_posix::{Allocation, Answer, Errno, Kind, LockKind, LockRange, Op, RenameMode, SetAttr};
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use bytes::World;
use site::{Site, named};

/// The files of all sites, which are the same, by their bytes.
fn all_have(world: &mut World, wanted: &[(&str, &[u8])]) {
    world.rest();
    world.all_have(wanted);
}

/// The only name beside this one.
fn beside(world: &mut World, at: usize, name: &str) -> String {
    let names: Vec<String> = world.files(at).into_keys().filter(|other| other != name).collect();
    let [beside] = &names[..] else { panic!("{names:?}") };
    beside.clone()
}

fn unlink(world: &mut World, at: usize, name: &str) {
    world.run(at, Op::Unlink { dir: Ino::ROOT, name: named(name) }, b"").expect("it is removed");
}

fn rename(world: &mut World, at: usize, name: &str, new_name: &str) {
    let (dir, new_dir, name, new_name) = (Ino::ROOT, Ino::ROOT, named(name), named(new_name));
    let (mode, meant, new_meant) = (RenameMode::Replace, None, None);
    let op = Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant };
    world.run(at, op, b"").expect("it is renamed");
}

fn append(world: &mut World, at: usize, ino: Ino, data: &[u8]) {
    let op = Op::Write { ino, offset: 0, append: true, kill_set_id: false };
    world.run(at, op, data).expect("it is written");
}

/// What becomes of a body that another site's change has taken the names of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is more than the trash may take: it is there for those who have it open.
    Kept,
    /// It rests in the trash.
    Rests,
    /// It has rested, and has gone from there.
    Went,
}

const WAYS: [Way; 3] = [Way::Kept, Way::Rests, Way::Went];

impl Way {
    fn world(self, count: usize) -> World {
        World::with_trash(count, if self == Self::Kept { 0 } else { 1 << 20 })
    }

    /// Two sites have a file, and the one of the number that is told has it open.
    fn with_an_open_file(self) -> (World, Ino) {
        let mut world = self.world(2);
        world.put(0, "a.txt", b"at first");
        world.rest();
        let open = world.find(0, "a.txt");
        (world, open)
    }

    /// All has come, and what has lost its names at the first site by that is where it is to be.
    fn rest(self, world: &mut World) {
        world.rest();
        let rests = world.trash(0).len();
        assert_eq!(rests > 0, self != Self::Kept, "{self:?}");
        if self == Self::Went {
            let emptied = world.ask(0, &SiteAsks::TrashEmpty { upto: u128::MAX });
            assert!(matches!(emptied, SiteAnswers::Emptied { bodies, .. } if bodies == rests as u64));
        }
    }
}

#[test]
fn what_is_written_to_a_file_that_another_site_has_replaced_is_beside_it() {
    for way in WAYS {
        let (mut world, open) = way.with_an_open_file();
        world.put(1, "a.txt", b"by site 1");
        way.rest(&mut world);
        assert_ne!(world.find(0, "a.txt"), open, "it has another body");
        assert_eq!(world.get(0, open), b"at first", "who has it open reads on");
        append(&mut world, 0, open, b", and more");
        let copy = beside(&mut world, 0, "a.txt");
        assert!(copy.starts_with("a.~s1-") && copy.ends_with(".txt"), "{copy}");
        assert_eq!(world.find(0, &copy), open, "it goes on in the same file");
        append(&mut world, 0, open, b" and more");
        world.sites[0].release(&[open]);
        all_have(&mut world, &[("a.txt", b"by site 1"), (&copy, b"at first, and more and more")]);
        assert_eq!(world.sites[0].kept(), []);
    }
}

#[test]
fn of_a_file_that_was_replaced_nothing_is_left_if_nobody_writes_to_it() {
    for way in WAYS {
        let (mut world, open) = way.with_an_open_file();
        world.put(1, "a.txt", b"by site 1");
        way.rest(&mut world);
        assert_eq!(world.sites[0].kept(), if way == Way::Rests { vec![] } else { vec![open] });
        world.sites[0].release(&[open]);
        if way == Way::Rests {
            assert_eq!(world.rests(0), [("/a.txt".to_owned(), b"at first".to_vec())]);
        } else {
            assert_eq!(world.run(0, Op::GetAttr { ino: open }, b""), Err(Errno::ESTALE));
        }
        all_have(&mut world, &[("a.txt", b"by site 1")]);
    }
}

#[test]
fn whatever_changes_the_bytes_of_a_file_that_was_replaced_keeps_it() {
    for way in WAYS {
        let cut = SetAttr { size: Some(3), ..SetAttr::default() };
        let what = Allocation::Allocate { keep_size: false };
        for (is_cut, left) in [(true, &b"at "[..]), (false, b"at first\0\0")] {
            let (mut world, open) = way.with_an_open_file();
            world.put(1, "a.txt", b"by site 1");
            way.rest(&mut world);
            let ino = open;
            let op = if is_cut {
                Op::SetAttr { ino, set: cut }
            } else {
                Op::Fallocate { ino, offset: 8, len: 2, what }
            };
            world.run(0, op, b"").expect("it is done");
            let copy = beside(&mut world, 0, "a.txt");
            all_have(&mut world, &[("a.txt", b"by site 1"), (&copy, left)]);
        }
    }
}

#[test]
fn what_is_written_to_a_file_that_another_site_has_removed_is_there_under_its_name() {
    for way in WAYS {
        let (mut world, open) = way.with_an_open_file();
        unlink(&mut world, 1, "a.txt");
        way.rest(&mut world);
        assert!(world.files(0).is_empty());
        append(&mut world, 0, open, b", and more");
        world.sites[0].release(&[open]);
        all_have(&mut world, &[("a.txt", b"at first, and more")]);
        // Somebody else has the name meanwhile, with a file as empty as this one is when it is made.
        for bytes in [&b"another"[..], b""] {
            let (mut world, open) = way.with_an_open_file();
            unlink(&mut world, 1, "a.txt");
            world.put(1, "a.txt", bytes);
            way.rest(&mut world);
            append(&mut world, 0, open, b", and more");
            let copy = beside(&mut world, 0, "a.txt");
            all_have(&mut world, &[("a.txt", bytes), (&copy, b"at first, and more")]);
        }
    }
}

#[test]
fn what_is_written_to_a_file_whose_directory_another_site_has_removed_is_there_with_that() {
    for way in WAYS {
        let mut world = way.world(2);
        let dir = world.sites[0].mkdir(Ino::ROOT, "d");
        let open = world.sites[0].create(dir, "a", Kind::Regular, b"");
        world.write(0, open, 0, b"at first");
        world.rest();
        let found = world.find(1, "d");
        world.run(1, Op::Unlink { dir: found, name: named("a") }, b"").expect("it is removed");
        world
            .run(1, Op::Rmdir { dir: Ino::ROOT, name: named("d"), meant: None }, b"")
            .expect("it is removed");
        way.rest(&mut world);
        append(&mut world, 0, open, b", and more");
        world.rest();
        for at in [0, 1] {
            let dir = world.find(at, "d");
            let found = world.run(at, Op::Lookup { dir, name: named("a") }, b"");
            let Ok((Answer::Found { found }, _)) = found else { panic!("{found:?}") };
            assert_eq!(world.get(at, found.attr.ino), b"at first, and more");
        }
    }
}

#[test]
fn what_is_written_to_a_file_that_a_user_of_the_same_site_has_removed_goes_with_it() {
    let (mut world, open) = Way::Rests.with_an_open_file();
    unlink(&mut world, 0, "a.txt");
    append(&mut world, 0, open, b", and more");
    all_have(&mut world, &[]);
    // If another site has replaced it before, the user has removed what came from there.
    for way in WAYS {
        let (mut world, open) = way.with_an_open_file();
        world.put(1, "a.txt", b"by site 1");
        way.rest(&mut world);
        unlink(&mut world, 0, "a.txt");
        append(&mut world, 0, open, b", and more");
        world.sites[0].release(&[open]);
        all_have(&mut world, &[("a.txt", b"at first, and more")]);
    }
}

#[test]
fn what_is_written_to_a_file_that_is_shown_as_one_with_an_equal_one_is_beside_that() {
    let mut world = World::new(3);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    for (at, bytes) in [(0, b"by site 0"), (1, b"by site 1")] {
        world.put(at, "a", bytes);
        world.passes(10);
    }
    // Site 0 has both files, and site 1 does not know of the other one.
    world.link(1, 2, true);
    world.rest_of(&[1, 2]);
    world.link(1, 2, false);
    world.link(0, 2, true);
    world.rest_of(&[0, 2]);
    let names = [String::from("a"), beside(&mut world, 0, "a")];
    let open = names.map(|name| {
        let ino = world.find(0, &name);
        (ino, world.get(0, ino))
    });
    world.put(1, "a", b"by site 0");
    world.passes(10);
    world.link(1, 2, true);
    world.rest();
    world.all_have(&[("a", b"by site 0")]);
    let shown = world.find(0, "a");
    let (lost, bytes) = open.into_iter().find(|(ino, _)| *ino != shown).expect("one has lost its name");
    append(&mut world, 0, lost, b", and more");
    let copy = beside(&mut world, 0, "a");
    world.sites[0].release(&[lost]);
    all_have(&mut world, &[("a", b"by site 0"), (&copy, &[&bytes[..], b", and more"].concat())]);
}

/// Found by `wide_sites` 2004686: the file of before and the new one both had the body, if the new one's id was lower. Then the site tried to
/// cut a version for ever.
#[test]
fn the_body_of_a_file_that_is_shown_as_one_with_an_equal_one_is_one_files_when_it_is_written_to() {
    let mut lost = 0;
    for (here, other, third) in [(0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1)] {
        for is_first in [true, false] {
            let mut world = World::new(3);
            world.create(third, "d");
            world.rest();
            for site in [here, other] {
                world.link(site.min(third), site.max(third), false);
            }
            let makers = if is_first { [other, third] } else { [third, other] };
            for maker in makers {
                if maker == third {
                    rename(&mut world, third, "d", "a");
                } else {
                    world.create(other, "a");
                }
                world.passes(10);
            }
            world.rest_of(&[here, other]);
            let open = world.find(here, "a");
            for site in [here, other] {
                world.link(site.min(third), site.max(third), true);
            }
            world.rest();
            world.all_have(&[("a", b"")]);
            if world.find(here, "a") == open {
                continue;
            }
            lost += 1;
            append(&mut world, here, open, b"more");
            let copy = beside(&mut world, here, "a");
            world.sites[here].release(&[open]);
            all_have(&mut world, &[("a", b""), (&copy, b"more")]);
        }
    }
    assert!(lost > 0, "none has lost its name");
}

#[test]
fn two_files_that_were_replaced_one_after_the_other_are_both_kept_if_they_are_written_to() {
    for way in WAYS {
        let (mut world, first) = way.with_an_open_file();
        world.put(1, "a.txt", b"by site 1");
        way.rest(&mut world);
        let second = world.find(0, "a.txt");
        world.put(1, "a.txt", b"by site 1, later");
        way.rest(&mut world);
        append(&mut world, 0, second, b"; second");
        append(&mut world, 0, first, b"; first");
        world.rest();
        let mut bytes: Vec<Vec<u8>> = world.files(1).into_values().collect();
        bytes.sort();
        let wanted: [&[u8]; 3] = [b"at first; first", b"by site 1, later", b"by site 1; second"];
        assert_eq!(bytes, wanted);
    }
}

#[test]
fn locks_of_a_file_that_gets_a_name_again_are_freed_with_its_client() {
    for way in WAYS {
        let (mut world, open) = way.with_an_open_file();
        let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
        world.run(0, Op::SetLock { ino: open, lock, wait: false }, b"").expect("it is locked");
        world.put(1, "a.txt", b"by site 1");
        way.rest(&mut world);
        append(&mut world, 0, open, b", and more");
        assert_eq!(world.sites[0].kept(), [open], "on account of the lock");
        world.rest();
        world.sites.iter_mut().for_each(Site::waits);
        world.sites[0].detach();
        assert!(world.sites[0].state().locks(open).is_ok_and(|locks| locks.is_none()));
    }
}
