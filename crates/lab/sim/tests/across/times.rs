//! Times of changes, where islands have clocks of their own.

use atoll_core::{Ino, Time};
use atoll_posix::{Answer, Op, SetAttr};
use atoll_sim::Config;

use crate::bench::Bench;

fn ctime(bench: &mut Bench, ino: Ino) -> Time {
    match bench.run(0, Op::GetAttr { ino }) {
        Ok((Answer::Attr { attr }, _)) => attr.ctime,
        other => panic!("{other:?}"),
    }
}

/// A name of a file comes and goes at another island, which tells when that was, by its own clock.
#[test]
fn each_change_of_a_file_is_later_than_the_one_before_though_other_islands_give_times_to_some() {
    let mut foreign = 0;
    for seed in 0..8 {
        let mut config = Config::new(seed, 3);
        config.drifts = true;
        let mut bench = Bench::with(config);
        let ino = bench.file(0, "f");
        let mut last = ctime(&mut bench, ino);
        for n in 0..6 {
            bench.ok(bench.rename((n % 3, "f"), ((n + 1) % 3, "f")));
            let renamed = ctime(&mut bench, ino);
            assert!(renamed >= last, "seed {seed}: a rename at {renamed:?} after {last:?}");
            foreign += usize::from(renamed > last);
            let set = SetAttr { mode: Some(0o600 + n as u32), ..SetAttr::default() };
            bench.ok(Op::SetAttr { ino, set });
            last = ctime(&mut bench, ino);
            assert!(last > renamed, "seed {seed}: a change at {last:?} after a rename at {renamed:?}");
        }
    }
    assert!(foreign > 8, "few times of other islands counted");
}
