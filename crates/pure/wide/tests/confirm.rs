//! Which sites have a file durably: asked directly, through others, and while something is missing.

mod bytes;
mod site;

use std::collections::BTreeMap;

use atoll_core::Ino;
use atoll_posix::Op;
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::confirm::{CONFIRM_MAX, Confirmed};
use atoll_wide::contents::pieces::PIECE_BYTES;
use atoll_wide::peers::message::Most;
use atoll_wide::rows::SiteId;
use bytes::{World, noise};
use site::named;

/// Asks at a site, and gives others a little time.
fn asked(world: &mut World, at: usize, number: u64, inos: &[Ino]) -> Confirmed {
    world.asks(at, number, &SiteAsks::Confirm { inos: Most::new(inos.to_vec()) });
    world.passes(3);
    let told = world.machine(at).confirmed(number).expect("it was looked at").clone();
    assert_eq!(world.answers.get(&number), Some(&SiteAnswers::Asking { not_ready: told.not_ready }));
    told
}

fn lacks(of: &[(u64, u32)]) -> BTreeMap<SiteId, u32> {
    of.iter().map(|(site, lacks)| (SiteId(*site), *lacks)).collect()
}

#[test]
fn a_file_is_confirmed_by_those_that_have_all_of_it() {
    let mut world = World::new(3);
    world.put(0, "a", b"bytes");
    let ino = world.find(0, "a");
    let told = asked(&mut world, 0, 1, &[ino]);
    assert_eq!(told.not_ready, 1, "no version was cut yet");
    world.rest();
    let told = asked(&mut world, 0, 2, &[ino, Ino::ROOT]);
    assert_eq!((told.not_ready, told.lacks), (0, lacks(&[(2, 0), (3, 0)])));
    // A site has heard of a change, and cannot take it for now.
    world.sites[1].decides(false);
    world.put(0, "a", &noise(3, 3 * PIECE_BYTES));
    world.passes(20);
    let told = asked(&mut world, 0, 3, &[ino, Ino::ROOT]);
    assert_eq!((told.not_ready, told.lacks), (0, lacks(&[(2, 1), (3, 0)])));
    world.sites[1].decides(true);
    world.rest();
    assert_eq!(asked(&mut world, 0, 4, &[ino]).lacks, lacks(&[(2, 0), (3, 0)]));
}

#[test]
fn a_question_goes_on_to_sites_without_a_link_and_does_not_go_in_circles() {
    let mut world = World::new(3);
    world.put(0, "a", b"bytes");
    world.rest();
    let ino = world.find(0, "a");
    world.sent();
    let told = asked(&mut world, 0, 1, &[ino]);
    assert_eq!(told.lacks, lacks(&[(2, 0), (3, 0)]));
    assert!(world.sent() < 2_000, "each site is asked by each other once");
    world.link(0, 2, false);
    let told = asked(&mut world, 0, 2, &[ino]);
    assert_eq!(told.lacks, lacks(&[(2, 0), (3, 0)]), "through the second");
    world.link(1, 2, false);
    let told = asked(&mut world, 0, 3, &[ino]);
    assert_eq!(told.lacks, lacks(&[(2, 0)]), "the third is not reached");
}

#[test]
fn what_another_site_has_removed_is_no_reason_to_wait() {
    let mut world = World::new(2);
    world.put(0, "a", b"bytes");
    world.rest();
    let ino = world.find(0, "a");
    world.sites[0].decides(false);
    world.run(1, Op::Unlink { dir: Ino::ROOT, name: named("a") }, b"").expect("it is removed");
    world.passes(20);
    let told = asked(&mut world, 0, 1, &[ino]);
    assert_eq!(told.lacks, lacks(&[(2, 0)]), "it knows all of it, and more");
}

#[test]
fn a_body_that_has_lost_its_name_meanwhile_is_told_as_not_ready() {
    let mut world = World::new(2);
    world.put(0, "a", b"bytes");
    world.rest();
    let ino = world.find(0, "a");
    world.put(1, "a", b"other bytes");
    world.rest();
    assert_ne!(world.find(0, "a"), ino, "the later version has another body");
    let dir = world.sites[0].mkdir(Ino::ROOT, "d");
    let op = Op::Rmdir { dir: Ino::ROOT, name: named("d"), meant: None };
    world.run(0, op, b"").expect("it is removed");
    world.passes(8);
    let now = world.find(0, "a");
    let told = asked(&mut world, 0, 1, &[ino, now, dir, Ino(99)]);
    assert_eq!((told.not_ready, told.lacks), (3, lacks(&[(2, 0)])));
}

#[test]
fn many_questions_and_objects_have_bounds() {
    let mut world = World::new(2);
    let inos: Vec<Ino> = (0..CONFIRM_MAX as u64).map(|n| Ino(1_000 + n)).collect();
    for number in 0..300 {
        world.asks(0, number, &SiteAsks::Confirm { inos: Most::new(inos.clone()) });
    }
    world.passes(3);
    assert!(world.machine(0).confirmed(0).is_none(), "the oldest answer went");
    world.put(0, "a", b"and all goes on");
    world.rest();
    world.all_have(&[("a", b"and all goes on")]);
}
