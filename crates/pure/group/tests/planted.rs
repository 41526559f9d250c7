//! Bugs that are planted in the machine, one at a time: the small world finds each of them.
//!
//! `cargo test --profile sim -p atoll-group --features planted --test planted` runs it; so does `cargo xtask planted`.
#![cfg(feature = "planted")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test may read its environment, and print"
)]

#[allow(clippy::duplicate_mod, reason = "both files of sequences look at one machine by hand")]
#[path = "filling.rs"]
mod filling;
#[path = "sequences.rs"]
mod sequences;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::planted::{Bug, plant};
use world::World;

/// The bugs of this machine that chance finds soon, each with a seed not far before one that finds it.
const BUGS: &[(Bug, u64)] = &[
    (Bug::HasBeforeWrite, 1),
    (Bug::CommitByMost, 1),
    (Bug::DropUnasked, 1),
    (Bug::UnknownIsDone, 1),
    (Bug::UnknownIsNotDone, 1),
    (Bug::RecordNamesMe, 1),
    (Bug::LeaseFromAnswer, 1),
    (Bug::PromiseForgotten, 1),
    (Bug::PromiseBesideClaim, 400),
    (Bug::ProofByAnyLife, 1),
    (Bug::SeatAfterPower, 1),
    (Bug::CutKeepsSeat, 2_700),
    (Bug::ColdForgotten, 1_400),
    (Bug::SilenceIsVoid, 150),
    (Bug::AdmittedUnsynced, 1),
    (Bug::FsyncOfOne, 1),
];

/// Those that need more steps in one order than chance brings about in the time of a test, each with the sequence that was
/// written for it: with the bug the sequence fails.
const SEQUENCES: &[(Bug, fn())] = &[
    (Bug::OldEpochCommits, sequences::an_older_epoch_commits_nothing),
    (Bug::OldPromiseFree, sequences::a_proof_frees_no_older_promise),
    (Bug::LedEpochForgotten, sequences::an_epoch_that_was_led_is_not_forgotten),
    (Bug::CutMayLead, sequences::a_copy_that_was_cut_leads_no_cold_start),
    (Bug::NotedBeforeTenure, sequences::whole_is_noted_behind_the_tenure),
    (Bug::OldRecordBelieved, sequences::a_store_that_went_back_is_refused),
    (Bug::LessIsCounted, sequences::less_than_was_counted_is_void),
    (Bug::OwesForEver, sequences::a_member_that_owes_is_dropped),
    (Bug::WipedKeepsSeat, filling::a_wiped_copy_has_no_seat),
    (Bug::LackingLeads, filling::a_copy_that_lacks_bytes_leads_no_cold_start),
    (Bug::FilledOverPromised, filling::the_better_history_is_not_thrown_away),
    (Bug::WantedAtOnce, filling::an_island_with_one_copy_goes_on_when_three_are_wanted),
    (Bug::DrainedGoesFirst, filling::a_copy_goes_when_the_one_in_its_place_has_a_seat),
    (Bug::SyncedToldOnce, sequences::a_sync_ahead_of_the_commit_is_told),
];

/// Seeds in which a bug is looked for.
const SEEDS: u64 = 400;

fn failure(seed: u64) -> Option<String> {
    let done = catch_unwind(AssertUnwindSafe(|| World::new(seed).run()));
    done.err().map(|why| {
        let text = why.downcast_ref::<String>().cloned();
        text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

#[test]
fn the_small_world_finds_each_planted_bug() {
    let wanted = std::env::var("ATOLL_BUG").ok();
    let seeds = std::env::var("ATOLL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (bug, first) in
        BUGS.iter().filter(|(bug, _)| wanted.as_ref().is_none_or(|name| *name == bug.to_string()))
    {
        plant(Some(*bug));
        let found = (*first..first + seeds).find_map(|seed| failure(seed).map(|why| (seed, why)));
        plant(None);
        match found {
            Some((seed, why)) => {
                println!(
                    "{bug}: seed {seed}: {}",
                    why.lines().next().unwrap_or_default().chars().take(150).collect::<String>()
                );
                assert_eq!(failure(seed), None, "{bug}: seed {seed} fails without it");
            }
            None => missed.push(*bug),
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found in {seeds} seeds: {missed:?}");
}

#[test]
fn each_other_bug_makes_the_sequence_fail_that_is_for_it() {
    for (bug, sequence) in SEQUENCES {
        plant(Some(*bug));
        let done = catch_unwind(sequence);
        plant(None);
        assert!(done.is_err(), "{bug}: its sequence passes");
    }
}
