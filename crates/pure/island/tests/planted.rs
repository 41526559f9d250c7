//! Bugs that are planted in the machine and that no world of the simulator has the means to show, each with the test that
//! fails with it. `cargo xtask planted` runs this.
#![cfg(feature = "planted")]

#[path = "ending.rs"]
mod ending;

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};

/// Mounts of the simulator have processes of their own, so none is local to a primary.
const TESTS: &[(Bug, fn())] =
    &[(Bug::LocalEndsAtOnce, ending::a_local_mount_of_a_deposed_primary_keeps_its_locks)];

#[test]
fn each_bug_makes_the_test_fail_that_is_for_it() {
    for (bug, test) in TESTS {
        plant(Some(*bug));
        let done = catch_unwind(test);
        plant(None);
        assert!(done.is_err(), "{bug}: its test passes");
    }
}
