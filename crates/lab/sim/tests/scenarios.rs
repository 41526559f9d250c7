//! Each scenario in a debug build. The gate runs seeds 1 to 50 of all of them, built for speed (`cargo xtask soak`): here are
//! two of each, those behind 50 where 50 are too few, and seeds that have failed once.

use atoll_sim::{Scenario, run};

fn seeds(name: &str, from: u64, count: u64) {
    (from..from + count).for_each(|seed| one(name, seed, None));
}

fn run_steps(name: &str, seed: u64, steps: u64) {
    one(name, seed, Some(steps));
}

fn one(name: &str, seed: u64, steps: Option<u64>) {
    let scenario = Scenario::named(name).expect("a scenario of that name");
    let report = run(scenario, seed, steps);
    if let Some(failure) = report.failure {
        let tail: Vec<&str> = report.tail.lines().rev().take(60).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        panic!("{}\n{failure}\n{}", tail.join("\n"), report.command);
    }
}

#[test]
fn one_client_at_a_time_sees_what_the_model_says() {
    seeds("sequential", 51, 10);
}

#[test]
fn deaths_and_broken_links_change_no_answer() {
    seeds("faults", 1, 2);
}

#[test]
fn a_power_cut_leaves_a_state_that_was() {
    seeds("power", 51, 30);
}

#[test]
fn some_order_explains_what_clients_see_at_once() {
    seeds("concurrent", 1, 2);
}

#[test]
fn some_order_explains_it_when_islands_die() {
    seeds("deaths", 1, 2);
}

#[test]
fn some_order_explains_it_when_islands_are_cut_apart() {
    seeds("partition", 1, 2);
}

#[test]
fn one_order_explains_all_that_clients_see_who_never_wait() {
    seeds("histories", 1, 2);
}

#[test]
fn one_order_explains_it_when_islands_die() {
    seeds("history_deaths", 1, 2);
}

#[test]
fn one_order_explains_it_when_islands_are_cut_apart() {
    seeds("history_partition", 1, 2);
}

#[test]
fn one_order_explains_it_when_machines_stand_still() {
    seeds("frozen", 1, 2);
    seeds("history_frozen", 1, 2);
}

/// The answer to a create was lost, and the file was removed before it was asked for again: it was made a second time.
#[test]
fn what_was_made_and_removed_is_not_made_again() {
    run_steps("history_partition", 231, 10);
    run_steps("history_partition", 191, 400);
}

/// A mkdir was prepared at the owner of the new directory, whose skeleton then showed it to who could not reach the
/// coordinator; but that had died, and the directory was never made.
#[test]
fn a_directory_that_may_never_be_made_is_not_shown() {
    run_steps("history_deaths", 29, 30);
    run_steps("history_partition", 6, 400);
}

#[test]
fn an_operation_between_islands_happens_or_not_wherever_one_dies() {
    seeds("crash_points", 1, 2);
}

#[test]
fn what_a_power_cut_takes_from_one_island_the_others_bring_back() {
    seeds("power_points", 1, 2);
}

#[test]
fn a_listing_is_the_tree_at_a_moment_that_explains_all_other_answers() {
    seeds("listings", 1, 2);
}

#[test]
fn a_listing_is_whole_or_fails_when_islands_die_or_are_cut_apart() {
    seeds("listing_deaths", 1, 2);
    seeds("listing_partition", 1, 2);
}

#[test]
fn a_listing_under_load_shows_nothing_without_what_came_before_it() {
    seeds("storm", 1, 2);
    seeds("storm_deaths", 1, 2);
}

#[test]
fn a_listing_shows_an_operation_between_islands_whole_or_not_wherever_the_power_fails() {
    seeds("listing_points", 1, 2);
}

#[test]
fn whoever_was_away_past_the_bound_of_an_outbox_has_what_the_others_have() {
    seeds("absences", 1, 2);
}

#[test]
fn disks_that_are_slow_full_or_failing_lose_nothing_and_everybody_goes_on() {
    seeds("slow", 1, 2);
    seeds("full", 1, 2);
    seeds("errors", 1, 2);
}

#[test]
fn what_was_fsynced_outlives_failed_effects_and_then_the_power() {
    seeds("errors_power", 51, 10);
}

#[test]
fn bits_that_change_at_rest_are_told_or_change_no_answer() {
    seeds("flips", 51, 100);
}

#[test]
fn whoever_waits_for_a_lock_gets_it_and_nobody_else_has_it() {
    seeds("locks", 1, 2);
    seeds("lock_deaths", 1, 2);
    seeds("lock_partition", 1, 2);
}

#[test]
fn nothing_is_changed_by_another_while_a_mount_keeps_what_it_was() {
    seeds("recalls", 51, 250);
}

#[test]
fn what_was_saved_with_care_outlives_power_cuts() {
    seeds("saves", 51, 10);
}

#[test]
fn what_was_promised_outlives_a_process_while_the_other_is_away() {
    seeds("votes", 51, 50);
}

#[test]
fn a_union_shows_what_its_members_have_whatever_happens_at_once() {
    seeds("union", 51, 10);
    seeds("union_direct", 51, 10);
    seeds("union_two", 51, 10);
}

#[test]
fn a_union_tells_of_members_that_are_away_or_hang() {
    seeds("union_away", 51, 50);
    seeds("union_hang", 51, 50);
}

#[test]
fn copies_of_an_island_are_as_good_as_one() {
    seeds("groups", 1, 2);
    seeds("groups_deaths", 1, 2);
    seeds("groups_history", 1, 2);
}

#[test]
fn copies_of_an_island_outlive_what_one_does_not() {
    seeds("groups_power", 1, 2);
}

#[test]
fn a_copy_whose_disk_was_wiped_is_filled_by_the_others() {
    seeds("groups_fill", 1, 2);
}

#[test]
fn copies_that_move_to_other_machines_are_never_fewer_than_are_needed() {
    seeds("groups_rings", 1, 2);
}

#[test]
fn what_happens_to_copies_at_once_is_what_happens_to_them_alone() {
    seeds("groups_disks", 1, 10);
    seeds("groups_all", 1, 6);
}

#[test]
fn at_most_one_copy_leads_whatever_is_cut_or_away() {
    seeds("groups_partition", 1, 2);
    seeds("groups_store", 1, 2);
}

#[test]
fn an_operation_between_islands_with_copies_happens_or_not_wherever_one_dies() {
    run_steps("groups_points", 1, 4);
    run_steps("groups_points", 2, 4);
}

/// A link lost its name, and its island died before it had told another one, which showed the link.
#[test]
fn a_link_that_lost_its_name_in_the_last_moment_may_be_shown_while_its_island_is_away() {
    one("limited_deaths", 1890, None);
}

/// A follower took a FIFO of its plain tree for a body to be synced, and a symbolic link that went.
#[test]
fn a_follower_syncs_only_what_has_bytes() {
    run_steps("groups", 4, 60);
    run_steps("groups_power", 16, 60);
}

/// Names that only records had which were cut back stayed in the plain tree.
#[test]
fn no_tree_has_a_name_that_was_cut() {
    run_steps("groups_store", 4, 60);
    run_steps("groups_history", 12, 300);
}
