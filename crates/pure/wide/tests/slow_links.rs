//! Files that are changed faster than a slow link carries them: the other site shows later and later versions nevertheless.

mod bytes;
mod site;

use std::collections::BTreeSet;

use atoll_core::Ino;
use atoll_wide::contents::pieces::PIECE_BYTES;
use bytes::{World, noise};

/// Looks between two changes of a file, a quarter of a second apart: a version is cut of each.
const LOOKS: usize = 6;

/// What site 1 has of a file that site 0 changes so often, one after the other. Its first bytes say which change it was.
fn shown(world: &mut World, changes: u8, mut change: impl FnMut(&mut World, Ino, u8)) -> Vec<u8> {
    let ino = world.find(0, "a");
    let mut shown: Vec<u8> = Vec::new();
    for nth in 1..=changes {
        change(world, ino, nth);
        world.passes(LOOKS);
        let there = world.find(1, "a");
        let bytes = world.get(1, there);
        if shown.last() != Some(&bytes[0]) {
            shown.push(bytes[0]);
        }
    }
    shown
}

#[test]
fn a_small_file_that_changes_before_it_has_come_is_shown_as_it_was_a_while_ago() {
    let mut world = World::new(2);
    world.put(0, "a", &[0; 3_000]);
    world.rest();
    // About three versions are made while one is carried.
    world.bytes_a_look = Some(200);
    let shown = shown(&mut world, 40, |world, ino, nth| world.write(0, ino, 0, &[nth; 3_000]));
    assert!(shown.len() > 6 && shown.is_sorted(), "{shown:?}");
    assert!(*shown.last().unwrap() > 30, "it is not long ago: {shown:?}");
    world.bytes_a_look = None;
    world.rest();
    world.all_have(&[("a", &[40; 3_000])]);
}

#[test]
fn a_large_file_that_changes_here_and_there_comes_piece_by_piece() {
    let mut world = World::new(2);
    world.put(0, "a", &[0]);
    world.rest();
    world.bytes_a_look = Some(20_000);
    let mut wanted = noise(7, 6 * PIECE_BYTES);
    wanted[0] = 0;
    let ino = world.find(0, "a");
    for (nth, part) in wanted.chunks(100_000).enumerate() {
        world.write(0, ino, nth as u64 * 100_000, part);
    }
    let mut at = 5;
    let shown = shown(&mut world, 90, |world, ino, nth| {
        at = (at * 29 + 7) % (6 * PIECE_BYTES);
        for (offset, byte) in [(0, nth), (at.max(1), nth)] {
            world.write(0, ino, offset, &[byte]);
            wanted[offset as usize] = byte;
        }
    });
    assert!(shown.len() > 4 && shown.is_sorted(), "{shown:?}");
    world.bytes_a_look = None;
    world.rest();
    world.all_have(&[("a", &wanted)]);
}

#[test]
fn a_file_to_which_somebody_appends_without_a_pause_comes_nevertheless() {
    let mut world = World::new(2);
    world.put(0, "a", b"0");
    world.rest();
    let ino = world.find(0, "a");
    let mut seen = BTreeSet::new();
    let mut len = 1;
    // A version is cut each half minute, and at once the file is another one.
    for _ in 0..1_000 {
        world.write(0, ino, len, &[b'x'; 10]);
        len += 10;
        world.passes(1);
        let there = world.find(1, "a");
        seen.insert(world.get(1, there).len());
    }
    assert!(seen.len() > 5, "{seen:?}");
    world.rest();
}

#[test]
fn what_is_written_over_a_version_that_is_not_the_latest_is_a_conflict() {
    let mut world = World::new(2);
    world.put(0, "a", &[0; 3_000]);
    world.rest();
    world.bytes_a_look = Some(200);
    let earlier = shown(&mut world, 20, |world, ino, nth| world.write(0, ino, 0, &[nth; 3_000]));
    let last = *earlier.last().expect("some are shown");
    assert!((1..20).contains(&last), "{earlier:?}");
    let there = world.find(1, "a");
    world.write(1, there, 1, b"here");
    world.bytes_a_look = None;
    world.rest();
    let files: BTreeSet<Vec<u8>> = world.files(0).into_values().collect();
    let mut mine = vec![last; 3_000];
    mine[1..5].copy_from_slice(b"here");
    assert_eq!(files, BTreeSet::from([mine, vec![20; 3_000]]));
    assert_eq!(world.files(0), world.files(1));
}
