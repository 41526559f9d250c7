//! Bugs that are planted in what is shown and in the joins below it, one at a time: random histories find them, and for those that
//! they find late or not at all there is a sequence. `cargo xtask planted` runs this.
#![cfg(feature = "planted")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

#[path = "sequences.rs"]
mod sequences;

use std::panic::catch_unwind;

use atoll_core::planted::{Bug, plant};
use sequences::world::random;

/// Bugs that random histories find soon.
const BY_HISTORIES: &[Bug] = &[Bug::AbsentIsRemoved, Bug::RemovalSeesAll, Bug::CopyIsNew, Bug::TwinGoesEarly];

/// Bugs that make a sequence fail.
const BY_SEQUENCES: &[(Bug, fn())] = &[
    (Bug::RemovalSeesAll, sequences::an_edit_that_a_removal_had_not_seen_survives_it),
    (
        Bug::RevivedByAnyChild,
        sequences::a_removed_directory_is_not_shown_for_a_child_that_the_removal_had_seen,
    ),
    (Bug::CopyIsNew, sequences::a_copy_that_was_removed_stays_removed_whoever_makes_it_again),
    (
        Bug::OldStaysDead,
        sequences::a_file_that_a_removal_had_not_seen_where_it_is_now_makes_its_directory_shown,
    ),
    (Bug::TwinGoesEarly, sequences::a_file_does_not_go_for_its_twin_before_all_know_of_both),
];

/// Histories in which a bug is looked for.
const HISTORIES: u64 = 400;

fn failure(seed: u64) -> Option<String> {
    catch_unwind(|| random::run(seed)).err().map(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[test]
fn random_histories_find_each_of_these_bugs() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in BY_HISTORIES {
        plant(Some(*bug));
        let found = (1..=HISTORIES).find_map(|seed| failure(seed).map(|why| (seed, why)));
        plant(None);
        match found {
            Some((seed, why)) => {
                println!("{bug}: history {seed}: {}", why.chars().take(150).collect::<String>());
                assert_eq!(failure(seed), None, "{bug}: history {seed} fails without it");
            }
            None => missed.push(*bug),
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found in {HISTORIES} histories: {missed:?}");
}

#[test]
fn each_bug_makes_the_sequence_fail_that_is_for_it() {
    for (bug, sequence) in BY_SEQUENCES {
        plant(Some(*bug));
        let done = catch_unwind(sequence);
        plant(None);
        assert!(done.is_err(), "{bug}: its sequence passes");
        sequence();
    }
}
