//! Bugs that no scenario finds in the time that a test may take, each with the sequence that was written for it: with the
//! bug the sequence fails. `cargo xtask planted` runs this.

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};
use atoll_sim::planted::{Shown, shown_by};

use crate::{again, dirs, stops, synced};

const SEQUENCES: &[(Bug, fn())] = &[
    (Bug::DoneIsGone, again::a_change_of_a_file_that_others_have_removed_is_answered_as_done),
    (Bug::LostIsGone, again::a_directory_that_may_be_lost_is_not_taken_for_removed),
    (Bug::LostRemovalIgnored, again::a_directory_whose_removal_may_be_lost_gets_no_names),
    (
        Bug::PermittedUntold,
        dirs::a_move_that_was_permitted_and_lost_is_not_crossed_while_its_coordinator_is_away,
    ),
    (Bug::FreshTooLong, synced::what_was_synced_lies_safe_below_a_large_write_that_began_before_the_sync),
    (Bug::LateSignOfLife, stops::a_mount_that_dies_while_its_island_starts_is_not_waited_for_any_longer),
];

#[test]
fn each_bug_makes_the_sequence_fail_that_is_for_it() {
    for (bug, sequence) in SEQUENCES {
        plant(Some(*bug));
        let done = catch_unwind(sequence);
        plant(None);
        assert!(done.is_err(), "{bug}: its sequence passes");
    }
}

#[test]
fn each_bug_has_a_scenario_or_a_sequence() {
    for bug in Bug::ALL {
        let has_sequence = SEQUENCES.iter().any(|(of, _)| of == bug);
        assert_eq!(has_sequence, shown_by(*bug) == Shown::Sequence, "{bug}");
    }
}
