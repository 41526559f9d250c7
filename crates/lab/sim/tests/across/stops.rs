//! Islands that are stopped in order: nothing is missing afterwards, and nothing is given twice.

use atoll_disk::sim::Fault;

use crate::bench::{Bench, S, T};

/// A rename asks an island that dies, so it comes to nothing; its coordinator is stopped in order. The world compares
/// the stamps of each life with those of the one before.
#[test]
fn no_stamp_of_a_transaction_that_came_to_nothing_is_given_again_after_an_orderly_stop() {
    let mut stops = 0;
    for seed in 0..12 {
        let mut bench = Bench::new(seed, 2);
        let ino = bench.file(S, "a");
        bench.rest();
        let rename = bench.call(0, bench.rename((S, "a"), (T, "b")));
        bench.wait(seed * 60);
        bench.world.stay_away(T, Fault::ProcessDeath);
        bench.wait(300_000);
        bench.world.stop_in_order(S);
        stops += bench.world.injected.stops;
        bench.wait(30_000);
        bench.world.come_back(T);
        let renamed = bench.answer(0, rename).is_ok();
        bench.settle();
        let (island, name) = if renamed { (T, "b") } else { (S, "a") };
        bench.has(island, name, ino, 1);
    }
    assert!(stops > 6, "{stops} orderly stops");
}
