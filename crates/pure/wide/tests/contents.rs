//! Bytes of files at several sites, by sequences: what comes, how much is sent for it, and what becomes of bytes of which somebody did not know.

mod bytes;
mod site;

use atoll_core::Ino;
use atoll_model::Rng;
use atoll_posix::{Allocation, Errno, Op, SetAttr};
use atoll_proto::RowChange;
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::contents::FetchedBytes;
use atoll_wide::contents::pieces::{FILE_BYTES_MAX, PIECE_BYTES};
use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::Most;
use atoll_wide::rows::{SiteId, UNCUT};
use bytes::{World, noise};
use site::{Site, named};

#[test]
fn a_file_that_is_written_at_one_site_is_at_all_of_them() {
    let mut world = World::new(3);
    let large = noise(1, 2 * PIECE_BYTES + 77);
    world.put(0, "small", b"some bytes");
    world.put(1, "large", &large);
    world.put(2, "empty", b"");
    world.rest();
    world.all_have(&[("small", b"some bytes"), ("large", &large), ("empty", b"")]);
}

#[test]
fn a_later_version_comes_in_place_of_the_earlier_one() {
    let mut world = World::new(2);
    world.put(0, "a", b"one");
    world.rest();
    world.put(1, "a", b"another, and longer");
    world.rest();
    world.all_have(&[("a", b"another, and longer")]);
    world.put(0, "a", b"");
    world.rest();
    world.all_have(&[("a", b"")]);
}

#[test]
fn of_a_large_file_only_what_has_changed_is_sent() {
    let mut world = World::new(2);
    let mut bytes = noise(2, 5 * PIECE_BYTES + 10);
    world.put(0, "a", &bytes);
    world.rest();
    world.sent();
    let ino = world.find(0, "a");
    let change = noise(3, 4096);
    world.write(0, ino, PIECE_BYTES + 5, &change);
    bytes[PIECE_BYTES as usize + 5..][..4096].copy_from_slice(&change);
    world.rest();
    let sent = world.sent();
    assert!((4096..6000).contains(&sent), "{sent} bytes for 4096 within the file");
    world.all_have(&[("a", &bytes)]);
    let more = noise(4, 20_000);
    world.write(0, ino, bytes.len() as u64, &more);
    bytes.extend_from_slice(&more);
    world.rest();
    let sent = world.sent();
    assert!((20_000..22_000).contains(&sent), "{sent} bytes for 20,000 at the end");
    world.all_have(&[("a", &bytes)]);
}

/// Each row that is not in memory is read from the snapshot before the file is made.
#[test]
fn files_are_made_and_written_without_a_look_at_rows_that_are_not_there() {
    let mut world = World::new(1);
    world.put(0, "first", b"bytes");
    let before = world.sites[0].loads;
    for nth in 0..20 {
        world.put(0, &format!("file {nth}"), b"bytes");
    }
    assert_eq!(world.sites[0].loads - before, 0);
}

/// A new ctime has programs such as git read a file again, and mounts drop its pages.
#[test]
fn a_version_that_is_cut_changes_nothing_that_users_see() {
    let mut world = World::new(2);
    world.put(0, "a", b"some bytes");
    let ino = world.find(0, "a");
    let attr = |world: &mut World| world.run(0, Op::GetAttr { ino }, b"").expect("it is there").0;
    let written = attr(&mut world);
    world.rest();
    assert_eq!(attr(&mut world), written);
    let there = world.find(1, "a");
    world.write(1, there, 0, b"other");
    world.rest();
    assert_ne!(attr(&mut world), written);
}

/// Its hashes would not fit into one record, so it would stay where it was made.
#[test]
fn a_file_longer_than_what_sites_tell_each_other_cannot_be_made() {
    let mut world = World::new(2);
    let ino = world.create(0, "a");
    let of_size = |size| Op::SetAttr { ino, set: SetAttr { size: Some(size), ..SetAttr::default() } };
    let at = |offset| Op::Write { ino, offset, append: false, kill_set_id: false };
    let what = Allocation::ZeroRange { keep_size: false };
    let zeros = |offset| Op::Fallocate { ino, offset, len: 10, what };
    for too_long in [of_size(FILE_BYTES_MAX + 1), at(FILE_BYTES_MAX - 2), zeros(FILE_BYTES_MAX - 2)] {
        assert_eq!(world.run(0, too_long, b"abc").err(), Some(Errno::EFBIG));
    }
    world.write(0, ino, 0, b"short");
    world.rest();
    world.all_have(&[("a", b"short")]);
}

/// Each alone would cost a sync and a record.
#[test]
fn versions_of_files_that_are_changed_one_soon_after_the_other_are_decided_together() {
    let mut world = World::new(2);
    // A site that has begun cuts no version for some seconds.
    world.passes(20);
    let names: Vec<String> = (0..90).map(|nth| format!("f{nth:02}")).collect();
    world.sites[0].take_records();
    for name in &names {
        world.put(0, name, name.as_bytes());
        world.sites[0].tick(10);
    }
    world.rest();
    let is_cut = |change: &&RowChange| matches!(change, RowChange::Side { table: UNCUT, row: None, .. });
    let records = world.sites[0].take_records();
    let mut cut: Vec<usize> =
        records.iter().map(|(_, record)| record.changes.iter().filter(is_cut).count()).collect();
    cut.retain(|versions| *versions > 0);
    assert!(cut.iter().sum::<usize>() == names.len() && cut.len() <= 5, "{cut:?}");
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    world.all_have(&files);
}

#[test]
fn a_site_that_lacks_many_small_parts_has_no_more_questions_open_than_the_other_one_takes() {
    let mut world = World::new(2);
    let mut files: Vec<(String, Vec<u8>)> =
        (0..20).map(|nth| (format!("f{nth:02}"), noise(nth, PIECE_BYTES))).collect();
    files.iter().for_each(|(name, bytes)| world.put(0, name, bytes));
    world.rest();
    world.link(0, 1, false);
    for (name, bytes) in &mut files {
        let ino = world.find(0, name);
        for at in (0..PIECE_BYTES).step_by(5_000) {
            world.write(0, ino, at, b"changed");
            bytes[at as usize..][..7].copy_from_slice(b"changed");
        }
    }
    world.passes(20);
    world.bytes_a_look = Some(2_000);
    world.link(0, 1, true);
    let mut most = 0;
    for _ in 0..300 {
        world.passes(1);
        most = most.max(world.under_way(1, 0));
    }
    assert!((100..=256).contains(&most), "{most} questions are open");
    world.bytes_a_look = None;
    world.rest();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    world.all_have(&files);
}

#[test]
fn bytes_that_came_before_a_link_broke_are_not_sent_again() {
    let mut world = World::new(2);
    world.link(0, 1, false);
    let bytes = noise(5, 8 * PIECE_BYTES);
    world.put(0, "a", &bytes);
    world.passes(20);
    world.sent();
    world.breaks_after = Some(12);
    world.link(0, 1, true);
    world.passes(20);
    assert!(world.linked.is_empty(), "the link is broken");
    let first = world.sent();
    assert!(first > 3 * PIECE_BYTES as usize, "{first}");
    world.link(0, 1, true);
    world.rest();
    let then = world.sent();
    assert!(first + then < 9 * PIECE_BYTES as usize + 50_000, "{first} bytes, and {then} after that");
    world.all_have(&[("a", &bytes)]);
}

/// Found by `wide_sites` 3300148: its name stayed, and whoever read it waited for ever.
#[test]
fn a_file_whose_bytes_only_a_forgotten_site_has_is_empty_at_the_one_that_is_left() {
    let mut world = World::new(2);
    world.breaks_after = Some(6);
    world.put(0, "a", &noise(6, 8 * PIECE_BYTES));
    world.passes(20);
    assert!(world.linked.is_empty() && !world.machine(1).has_all_bytes(), "the link breaks before");
    let all: Vec<_> = world.machine(1).members().all().map(|(id, member)| (id, member.clone())).collect();
    for (SiteId(site), known) in all.into_iter().filter(|(id, member)| *id != SiteId(2) && member.is_active())
    {
        let member = SiteMember { version: known.version + 1, state: SiteStanding::Forgotten, ..known };
        let asks = SiteAsks::Know { sites: Most::new(vec![NumberedSite { site, member }]) };
        assert_eq!(world.ask(1, &asks), SiteAnswers::Known);
    }
    world.rest_of(&[1]);
    assert_eq!(world.files(1), [("a".to_owned(), Vec::new())].into());
}

#[test]
fn of_two_versions_that_did_not_know_of_each_other_one_becomes_a_file_beside_the_other() {
    let mut world = World::new(3);
    world.put(0, "a.txt", b"at first");
    world.rest();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    world.put(0, "a.txt", b"by site 0");
    world.passes(10);
    // The clock of each site goes on with what its users do.
    world.put(1, "b", b"something else");
    world.put(1, "a.txt", b"by site 1, later");
    world.passes(10);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, true);
    }
    world.rest();
    let files = world.files(2);
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(files["a.txt"], b"by site 1, later");
    let (copy, bytes) = files.iter().find(|(name, _)| name.contains('~')).expect("there is one more");
    assert!(copy.starts_with("a.~s1-") && copy.ends_with(".txt"), "{copy}");
    assert_eq!(bytes, b"by site 0");
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    world.all_have(&files);
}

#[test]
fn a_file_that_is_changed_at_one_site_and_removed_at_another_is_there_with_the_change() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    world.link(0, 1, false);
    world.run(0, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
    world.put(1, "a", b"changed");
    world.passes(10);
    world.link(0, 1, true);
    world.rest();
    world.all_have(&[("a", b"changed")]);
}

#[test]
fn what_somebody_writes_over_bytes_that_are_out_of_date_is_kept_beside_the_later_ones() {
    let mut world = World::new(2);
    world.put(0, "a", b"at first");
    world.rest();
    // Site 1 hears of a version whose bytes do not come.
    world.put(0, "a", b"by site 0");
    world.breaks_after = Some(0);
    world.passes(10);
    assert!(world.linked.is_empty());
    let fetched = world.machine(1).fetched();
    assert_eq!((fetched.files_left, fetched.bytes_left, fetched.files), (1, 9, 0));
    let ino = world.find(1, "a");
    assert_eq!(world.get(1, ino), b"at first", "the bytes that are here are served");
    world.put(1, "a", b"by site 1");
    world.passes(10);
    world.link(0, 1, true);
    world.rest();
    let bytes: Vec<Vec<u8>> = world.files(0).into_values().collect();
    assert_eq!(bytes, [b"by site 1".to_vec(), b"by site 0".to_vec()]);
    assert_eq!(world.files(0), world.files(1));
    assert_eq!(world.machine(1).fetched(), FetchedBytes::default());
}

#[test]
fn two_sites_that_make_the_same_file_show_one_and_send_none_of_its_bytes() {
    let mut world = World::new(2);
    world.link(0, 1, false);
    let bytes = noise(6, 3 * PIECE_BYTES);
    for at in [0, 1] {
        world.put(at, "a", &bytes);
        world.passes(10);
    }
    world.sent();
    world.link(0, 1, true);
    world.rest();
    let sent = world.sent();
    assert!(sent < 20_000, "{sent} bytes");
    world.all_have(&[("a", &bytes)]);
}

/// Found by `wide_sites` 525: the sites asked each other for ever.
#[test]
fn a_file_whose_latest_version_went_with_its_maker_has_what_is_left() {
    let mut world = World::new(3);
    world.put(0, "a", b"at first");
    world.rest();
    (0..2).for_each(|other| world.link(other, 2, false));
    world.put(2, "a", b"seen by nobody else");
    world.passes(10);
    world.run(2, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
    world.rename(0, "a", "b");
    world.passes(10);
    (0..2).for_each(|other| world.link(other, 2, true));
    world.rest();
    world.all_have(&[("b", b"at first")]);
}

/// Found by `atoll-wan hour`: what one site had was there twice. The other one had written something later and removed it. That was told as
/// bytes that nobody has, and could be had again as soon as the file was there again. Which of the two was first depends on the link.
#[test]
fn what_went_with_a_file_is_not_served_when_the_file_is_there_again() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(3);
        world.put(0, "a", b"at first");
        world.rest();
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            world.link(one, other, false);
        }
        world.put(0, "a", b"by site 0");
        world.passes(10);
        world.rename(0, "a", "b");
        // Later than what site 0 has done.
        (0..9).for_each(|nth| world.put(1, "c", &[nth; 3]));
        for bytes in [&b"seen by nobody else"[..], b"nor was this"] {
            world.put(1, "a", bytes);
            world.passes(10 * rng.index(2));
        }
        world.run(1, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
        world.passes(10);
        world.bytes_a_look = Some(10 + rng.index(400));
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            world.link(one, other, true);
            world.passes(rng.index(100));
        }
        world.bytes_a_look = None;
        world.rest();
        world.all_have(&[("b", b"by site 0"), ("c", &[8; 3])]);
    }
}

/// Found by reading: the site looked at the file again and again within one event.
#[test]
fn a_version_that_is_lost_waits_while_nothing_may_be_decided() {
    let (mut waited, mut at) = (0, 0);
    while waited == at {
        let mut world = World::new(3);
        world.put(0, "a", b"at first");
        world.rest();
        (0..2).for_each(|other| world.link(other, 2, false));
        world.put(2, "a", b"seen by nobody else");
        world.passes(10);
        world.run(2, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
        world.rename(0, "a", "b");
        world.passes(10);
        (0..2).for_each(|other| world.link(other, 2, true));
        // After each message until site 1 makes a version of what is left.
        let knows = |world: &mut World| {
            world.passes(1);
            world.machine(1).fetched().files_left == 1
        };
        assert!((0..100).any(|_| knows(&mut world)));
        world.sites.iter_mut().for_each(Site::waits);
        for _ in 0..at {
            if !world.deliver() {
                world.sites.iter_mut().for_each(Site::waits);
            }
        }
        at += 1;
        if world.machine(1).fetched().files_left == 0 {
            continue;
        }
        waited += 1;
        world.sites[1].decides(false);
        world.passes(40);
        world.sites[1].decides(true);
        world.rest();
        world.all_have(&[("b", b"at first")]);
    }
    assert!(waited > 1, "{waited}");
}

/// Found by `atoll-wan hour`: the other site took the bytes for lost before it had heard that the file was removed. It made a version of
/// what was left, which the removal had not seen, so the file was there again.
#[test]
fn a_file_that_was_removed_does_not_come_back_where_that_is_heard_later_than_of_its_bytes() {
    for (count, earlier) in [(2, None), (2, Some(b"at first")), (3, None), (3, Some(b"at first"))] {
        // One message at a time.
        let mut world = World::within(count, Window { messages: 1, ..Window::MOST });
        if let Some(bytes) = earlier {
            world.put(0, "a", bytes);
            world.rest();
        }
        (1..count).for_each(|other| world.link(0, other, false));
        world.put(0, "a", b"seen by nobody else");
        world.rest_of(&[0]);
        let others: Vec<String> = (0..30).map(|nth| format!("b{nth:02}")).collect();
        for name in &others {
            world.create(0, name);
        }
        world.run(0, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
        world.bytes_a_look = Some(400);
        (1..count).for_each(|other| world.link(0, other, true));
        world.passes(200);
        world.bytes_a_look = None;
        world.rest();
        let files: Vec<String> = world.files(1).into_keys().collect();
        assert_eq!(files, others, "{count} sites, {earlier:?}");
        assert_eq!(world.files(0), world.files(1));
    }
}

/// Found by `wide_sites` 86: each of the two sites took the other's copy for its own.
#[test]
fn a_copy_that_two_sites_make_at_different_places_is_at_one_of_them_everywhere() {
    let mut world = World::new(3);
    world.put(0, "a", b"at first");
    world.rest();
    (0..2).for_each(|other| world.link(other, 2, false));
    world.put(0, "a", b"by site 0");
    world.rest_of(&[0, 1]);
    world.link(0, 1, false);
    world.rename(0, "a", "b");
    (0..9).for_each(|nth| world.put(2, "c", &[nth; 3]));
    world.put(2, "a", b"by site 2, later");
    world.passes(10);
    // Each of the two meets the third one, and not the other.
    world.link(0, 2, true);
    world.passes(20);
    world.link(0, 2, false);
    world.link(1, 2, true);
    world.passes(20);
    world.link(0, 1, true);
    world.link(0, 2, true);
    world.rest();
    let files = world.files(0);
    assert_eq!(files.len(), 3, "{:?}", files.keys());
    assert!(
        files.values().any(|bytes| bytes == b"by site 0")
            && files.values().any(|bytes| bytes == b"by site 2, later")
    );
    assert_eq!(files, world.files(1));
    assert_eq!(files, world.files(2));
}

/// Found by `wide_sites` 103398: the bytes of site 0 were gone, which nobody at site 1 had seen.
#[test]
fn a_version_over_an_earlier_one_than_that_for_which_a_file_is_rescued_leaves_both() {
    let mut world = World::new(3);
    world.put(0, "a", b"at first");
    world.rest();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    world.run(2, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
    world.put(0, "a", b"by site 0");
    world.passes(10);
    // Site 1 hears of the version and of the removal, and has not got the bytes.
    world.breaks_after = Some(0);
    world.link(0, 1, true);
    world.passes(10);
    world.link(1, 2, true);
    world.passes(10);
    assert_eq!(world.files(1)["a"], b"at first");
    world.rename(1, "a", "b");
    world.put(1, "b", b"by site 1");
    world.passes(10);
    world.link(0, 1, true);
    world.rest();
    let files = world.files(0);
    for bytes in [&b"by site 0"[..], b"by site 1"] {
        assert!(files.values().any(|there| there == bytes), "{:?}", files.keys());
    }
}

/// Found by `wide_sites` 5519: the other version was gone, which nobody had seen.
#[test]
fn what_keeps_a_rescued_file_takes_no_version_along_that_nobody_has_seen() {
    let mut world = World::new(3);
    world.put(0, "a", b"at first");
    world.rest();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        world.link(one, other, false);
    }
    world.run(2, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
    world.put(0, "a", b"by site 0");
    world.passes(10);
    // Later than what site 0 has done.
    (0..9).for_each(|nth| world.put(1, "c", &[nth; 3]));
    world.put(1, "a", b"by site 1");
    world.passes(10);
    world.link(1, 2, true);
    world.rest_of(&[1, 2]);
    // Site 1 hears of the other version, and has not got its bytes.
    world.breaks_after = Some(0);
    world.link(0, 1, true);
    world.passes(10);
    world.rename(1, "a", "b");
    world.link(0, 1, true);
    world.rest();
    let files = world.files(0);
    for bytes in [&b"by site 0"[..], b"by site 1"] {
        assert!(files.values().any(|there| there == bytes), "{:?}", files.keys());
    }
    assert_eq!(files["b"], b"by site 1");
}
