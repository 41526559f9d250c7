//! A table that changes while islands serve: some know it earlier than others, and clients learn it from whoever they ask.

use atoll_disk::sim::Fault;

use crate::bench::{Bench, H, S, T, id};

/// With each number of islands that know the new table already: files go between an island that does and one that does not,
/// then one dies and comes back with it.
#[test]
fn while_some_islands_know_a_new_table_every_operation_goes_on() {
    for told in 0..=3 {
        let mut bench = Bench::new(told as u64, 3);
        let (a, b) = (bench.file(S, "a"), bench.file(T, "b"));
        bench.world.double_table();
        (0..told).for_each(|island| bench.world.tell_table(id(island)));
        bench.wait(1_000);
        bench.ok(bench.rename((S, "a"), (T, "a")));
        bench.ok(bench.rename((T, "b"), (H, "b")));
        bench.ok(bench.link(a, H, "c"));
        let known = if told > 0 { 2 } else { 1 };
        assert_eq!(bench.world.table_version(0), known, "{told} islands know the new table");
        bench.restart(S, Fault::ProcessDeath);
        bench.ok(bench.rename((H, "c"), (S, "c")));
        assert_eq!(bench.world.table_version(0), 2, "an island that starts has it");
        (0..3).for_each(|island| bench.world.tell_table(id(island)));
        bench.settle();
        bench.has(T, "a", a, 2);
        bench.has(S, "c", a, 2);
        bench.has(H, "b", b, 1);
        bench.has_not(S, "a");
    }
}
