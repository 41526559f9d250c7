//! Bugs that are planted in the machine, each with the test that fails with it. `cargo xtask planted` runs this.
#![cfg(feature = "planted")]

#[path = "changes.rs"]
mod changes;

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};

const TESTS: &[(Bug, fn())] =
    &[(Bug::KeptOvertaken, changes::an_answer_that_was_asked_for_before_answers_may_be_kept_is_not_recent)];

#[test]
fn each_bug_makes_the_test_fail_that_is_for_it() {
    for (bug, test) in TESTS {
        plant(Some(*bug));
        let done = catch_unwind(test);
        plant(None);
        assert!(done.is_err(), "{bug}: its test passes");
    }
}
