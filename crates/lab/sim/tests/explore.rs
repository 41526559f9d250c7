//! Renames of directories that meet in every order: `atoll_sim::explore`.

use atoll_model::Rng;
use atoll_sim::explore::{Covered, Rename, Shape, To, drawn, every_order, some_orders};

/// Directories `what` that move `into` others.
fn moves(pairs: &[(usize, usize)]) -> Vec<Rename> {
    pairs.iter().map(|(what, into)| Rename { what: *what, to: To::Into(*into) }).collect()
}

fn all(shape: &[(usize, u16)], renames: &[Rename], states_max: u64) -> Covered {
    every_order(&Shape(shape.to_vec()), renames, states_max).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn of_two_directories_that_move_into_each_other_one_does_in_every_order() {
    let covered = all(&[(0, 1), (0, 2)], &moves(&[(1, 2), (2, 1)]), u64::MAX);
    assert!(covered.complete);
    assert_eq!((covered.done, covered.circles, covered.failed), (covered.ends, covered.ends, 0));
}

#[test]
fn three_directories_never_go_round_in_a_circle() {
    let covered = all(&[(0, 0), (0, 1), (0, 2)], &moves(&[(1, 2), (2, 3), (3, 1)]), 12_000);
    assert_eq!((covered.done, covered.circles, covered.failed), (2 * covered.ends, covered.ends, 0));
}

#[test]
fn two_renames_drawn_by_chance_meet_in_every_order() {
    let mut rng = Rng::new(1);
    let mut complete = 0;
    for _ in 0..12 {
        let (shape, renames) = drawn(&mut rng, 2);
        complete += u32::from(all(&shape.0, &renames, 2_000).complete);
    }
    assert!(complete > 6, "{complete} sets of 12 are covered whole");
}

/// Two islands may each ask the other for a chain of ancestors that the other can tell only when it has applied
/// the asker's journal.
#[test]
fn three_renames_drawn_by_chance_meet_in_many_orders() {
    let mut rng = Rng::new(2);
    for set in 0..25 {
        let (shape, renames) = drawn(&mut rng, 3);
        some_orders(&shape, &renames, set, 20, set % 7).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// An exchange posts two places. Where the second had to wait, the commit was taken as seen after the first;
/// so the root's owner let a rename through that it judged by the ancestors from before.
#[test]
fn who_has_seen_half_of_an_exchange_has_not_seen_it() {
    let renames = [Rename { what: 3, to: To::Swap(4) }, Rename { what: 2, to: To::Into(5) }];
    let covered = all(&[(0, 0), (0, 1), (2, 1), (1, 1), (4, 0)], &renames, u64::MAX);
    assert!(covered.complete);
    assert_eq!((covered.done, covered.circles), (covered.ends, covered.ends), "only one of the two can be");
}

/// Its own name in the directory that it is to replace was taken for another's, for which it waited.
#[test]
fn a_directory_that_is_to_replace_the_one_that_it_is_in_is_refused_at_once() {
    let renames = [Rename { what: 2, to: To::Over(1) }];
    let covered = all(&[(0, 1), (1, 2)], &renames, u64::MAX);
    assert_eq!((covered.complete, covered.ends, covered.failed), (true, 1, 1));
}
