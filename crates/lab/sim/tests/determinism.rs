//! The same seed gives the same run, byte for byte.

use atoll_sim::{SCENARIOS, run};

#[test]
fn a_seed_repeats_its_run() {
    for scenario in SCENARIOS {
        let steps = Some(scenario.steps.min(25));
        for seed in [3, 4] {
            let (first, second) = (run(scenario, seed, steps), run(scenario, seed, steps));
            assert!(first.operations > 0, "{} did nothing", scenario.name);
            assert_eq!(first.tail, second.tail, "{} of seed {seed} went another way", scenario.name);
            assert_eq!(first.hash, second.hash, "{} of seed {seed} went another way", scenario.name);
            let (one, other) = ((first.injected, first.virtual_us), (second.injected, second.virtual_us));
            assert_eq!(one, other, "{} of seed {seed} did other things", scenario.name);
        }
    }
}

#[test]
fn another_seed_gives_another_run() {
    for scenario in SCENARIOS {
        let steps = Some(scenario.steps.min(25));
        let (first, second) = (run(scenario, 5, steps), run(scenario, 6, steps));
        assert_ne!(first.hash, second.hash, "{} takes no notice of its seed", scenario.name);
    }
}
