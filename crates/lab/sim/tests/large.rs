//! Each thing that a user can make large, once, without faults: nothing stops, and nothing fails but what is beyond the
//! limits. Those that a test has no time for are reached by seeds.

use atoll_sim::large::{Large, alone};

/// In the time that a test may take.
fn reaches(what: Large, count: u64) {
    alone(7, what, count).unwrap_or_else(|failure| panic!("{what:?} {count}: {failure}"));
}

#[test]
fn as_many_locks_as_a_file_may_have_go_with_their_mount() {
    reaches(Large::Locks, Large::Locks.most());
}

/// All 60,000, and one more: `cargo xtask sim large --seed 314`, which takes half a minute.
#[test]
fn a_file_gets_very_many_names() {
    reaches(Large::Links, 2_000);
}

/// A hundred thousand: `-p atoll-island --test ending`.
#[test]
fn very_many_files_that_a_mount_has_open_without_names_go_with_it() {
    reaches(Large::Open, 3_000);
}

#[test]
fn a_thousand_levels_of_longest_names_are_made_and_renamed() {
    reaches(Large::Levels, Large::Levels.most());
}

#[test]
fn nested_directories_with_four_longest_attributes_each_are_made_and_renamed() {
    reaches(Large::Xattrs, Large::Xattrs.most());
}

#[test]
fn many_symbolic_links_with_longest_targets_are_listed_and_told_of() {
    reaches(Large::Targets, 1_000);
}

#[test]
fn many_longest_names_are_listed() {
    reaches(Large::Names, 1_500);
}

#[test]
fn an_acl_of_as_many_entries_as_there_may_be_is_handed_on() {
    reaches(Large::Acls, Large::Acls.most());
}
