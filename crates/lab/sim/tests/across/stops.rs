//! Islands that are stopped in order: nothing is missing afterwards, and nothing is given twice.

use atoll_core::SessionId;
use atoll_disk::sim::Fault;
use atoll_sim::Config;

use crate::bench::{Bench, S, T, id, node};

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
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.wait(300_000);
        bench.world.stop_in_order(node(S));
        stops += bench.world.injected.stops;
        bench.wait(30_000);
        bench.world.come_back(node(T));
        let renamed = bench.answer(0, rename).is_ok();
        bench.settle();
        let (island, name) = if renamed { (T, "b") } else { (S, "a") };
        bench.has(island, name, ino, 1);
    }
    assert!(stops > 6, "{stops} orderly stops");
}

/// A mount asks an island that starts, and dies before that serves: what it held is let go of as soon as if the island had
/// run all the time. Its question must not count as a sign of life afterwards.
#[test]
pub(crate) fn a_mount_that_dies_while_its_island_starts_is_not_waited_for_any_longer() {
    for seed in 0..12 {
        let mut config = Config::new(seed, 2);
        (config.clients, config.mounts, config.delay_us_max) = (2, true, 300);
        let mut bench = Bench::with(config);
        bench.file(S, "a");
        bench.world.stay_away(node(T), Fault::ProcessDeath);
        bench.world.kill(node(S), Fault::ProcessDeath);
        // For 3 s it waits for the other one.
        bench.wait(1_000_000);
        bench.world.mount_dies(0);
        bench.wait(40_000_000);
        assert!(bench.world.serves(id(S)), "seed {seed}");
        assert_eq!(bench.world.held_by(id(S), SessionId(1)), None, "seed {seed}: the session goes on");
        bench.back(T);
        bench.settle();
    }
}
