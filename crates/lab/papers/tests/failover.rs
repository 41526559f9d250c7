//! Ring FS's Figure 4 in a few seconds: what is measured is right, whatever the times are.

use atoll_needs::needs;
use atoll_papers::failover::{Plan, failover};
use atoll_torture::place::Place;

#[test]
fn operations_go_on_while_the_nodes_that_lead_are_killed_one_after_another() {
    needs!(Mounts, Networks);
    let plan = Plan::SHORT;
    let place = Place::new("failover").unwrap();
    let report = failover(place.path(), plan).unwrap();
    let curve = &report.curves[0];
    // None has failed, so each is counted once.
    let all: u64 = curve.succeeded.iter().map(|n| u64::from(*n)).sum();
    assert_eq!(all, u64::from(plan.rate) * plan.end);
    let rate = f64::from(plan.rate);
    let [first, second] = plan.kills;
    // With one node lost all islands go on; with the second one the island that both kept waits, and two others go on.
    let (one, two) = (curve.mean(first + 1, second), curve.mean(second + 2, plan.restart));
    assert!(one > 0.8 * rate, "{report}");
    assert!((0.4 * rate..0.8 * rate).contains(&two), "{report}");
    assert!(curve.longest[2].as_secs() >= 2, "the island that waits is the one that is asked: {report}");
    let text = report.to_string();
    assert!(["one killed, 3-6 s", "2 copies"].iter().all(|word| text.contains(word)), "{text}");
    assert!(report.to_json().starts_with("{\"rate\":60,\"curves\":[{\"copies\":2,\"succeeded\":["));
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    assert!(read("failover.svg").contains("<polyline"));
    let table = read("failover.tsv");
    assert!(
        table.starts_with("second\t2 copies\n0\t") && table.lines().count() > plan.end as usize,
        "{table}"
    );
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 4, "the folder is removed; the place has two of its own");
}
