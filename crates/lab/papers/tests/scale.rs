//! What larger volumes would cost: what shows also in a short run.

use atoll_needs::needs;
use atoll_papers::scale::{Plan, scale};
use atoll_torture::place::Place;
use serde_json::Value;

#[test]
fn the_mix_hardly_needs_messages_and_each_figure_is_there() {
    needs!(Mounts);
    let place = Place::new("scale").unwrap();
    let report = scale(place.path(), Plan::SHORT).unwrap();
    let tables: Vec<Value> = serde_json::from_str(&report.to_json()).unwrap();
    let rows = |table: usize| tables[table]["rows"].as_array().unwrap();
    assert_eq!([0, 1, 2, 3].map(|table| rows(table).len()), [1, 9, 2, 5], "{report}");

    // A thousandth of the operations of the mix concern two islands.
    let (by_messages, _) = report.speed_up().unwrap();
    assert!(by_messages > 3.9, "{report}");
    let messages = |name: &str| {
        let row = rows(1).iter().find(|row| row["operation"] == name).unwrap();
        row["measured"].as_str().unwrap().trim_start_matches("4: ").parse::<f64>().unwrap()
    };
    for within_one in ["create, close", "chmod of a file", "rename in a directory", "unlink"] {
        assert!(messages(within_one) < 0.5, "{within_one}: {report}");
    }
    assert!(messages("chmod of a directory") < 2.5, "{report}");
    assert!(messages("chmod of a directory with directories") > 5.5, "{report}");
    assert!(rows(2).iter().all(|row| row["node MiB"].as_f64() > Some(1.0)), "{report}");
    let mut left = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.all(|name| !name.to_string_lossy().starts_with("atoll-scale")));
}
