//! Bugs that are planted in the machine and that no world of the simulator has the means to show, each with the test that
//! fails with it. `cargo xtask planted` runs this.
#![cfg(feature = "planted")]

#[path = "audience.rs"]
mod audience;
#[path = "ending.rs"]
mod ending;
#[path = "journal.rs"]
mod journal;
#[path = "leases.rs"]
mod leases;
#[path = "parts.rs"]
mod parts;
#[path = "scope.rs"]
mod scope;

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};

/// Mounts of the simulator have processes of their own, so none is local to a primary.
const TESTS: &[(Bug, fn())] = &[
    (Bug::LocalEndsAtOnce, ending::a_local_mount_of_a_deposed_primary_keeps_its_locks),
    (
        Bug::LinkedWithoutScope,
        scope::no_file_comes_in_by_a_link_whoever_owns_the_name_and_whoever_is_its_home,
    ),
    (Bug::LentToScope, scope::nothing_comes_in_or_goes_out_by_a_rename_whoever_owns_the_other_directory),
    (
        Bug::FoundAnywhere,
        scope::every_operation_about_something_outside_is_answered_as_about_an_id_that_never_was,
    ),
    (Bug::NotLeaf, audience::attributes_of_a_directory_that_others_know_go_to_all),
    (Bug::ToldEarlierLife, journal::what_was_said_to_an_earlier_life_is_not_all_that_others_know),
    (Bug::PartNotCleared, parts::an_island_recalls_for_its_part_of_a_change),
    (Bug::ToldUnnoted, leases::a_change_waits_for_those_who_were_told_what_it_changes_and_for_nobody_else),
    (Bug::ForgottenWithRecall, leases::a_recall_names_what_changes_and_what_else_is_kept_is_kept),
    (Bug::KeptDuringChange, leases::while_another_one_changes_something_a_mount_may_keep_nothing),
    (
        Bug::KeepsNotSynced,
        leases::a_mount_is_told_that_it_may_keep_something_when_that_survives_a_power_cut,
    ),
    (Bug::KeepsNotLogged, leases::an_island_that_starts_waits_for_mounts_that_may_keep_something),
    (
        Bug::OrphanOfAll,
        scope::a_limited_mount_hears_of_files_and_directories_that_lose_their_last_name_inside_and_of_no_others,
    ),
];

#[test]
fn each_bug_makes_the_test_fail_that_is_for_it() {
    for (bug, test) in TESTS {
        plant(Some(*bug));
        let done = catch_unwind(test);
        plant(None);
        assert!(done.is_err(), "{bug}: its test passes");
    }
}
