//! Bugs that are planted in a copy and that runs of the simulator seldom show, each with the test that fails with it.
//! `cargo xtask planted` runs this.
#![cfg(feature = "planted")]
#![allow(dead_code, reason = "it uses a part of the tests")]

#[path = "filling.rs"]
mod filling;
#[path = "follower.rs"]
mod follower;

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};

const TESTS: &[(Bug, fn())] = &[
    (Bug::AnswerOverNewer, filling::an_answer_that_is_late_does_not_cover_what_came_since),
    (Bug::BytesOfUnsynced, filling::bytes_leave_when_no_later_primary_can_take_them_back),
    (Bug::BytesOfUnsynced, filling::bytes_beside_old_records_leave_when_no_later_primary_can_take_them_back),
    (Bug::OwnCheckpoints, follower::followers_freeze_at_markers_only),
    (Bug::MissingForgotten, filling::a_wiped_disk_is_filled),
    (Bug::FilledUnsynced, filling::a_copy_that_was_filled_survives_a_power_cut),
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
