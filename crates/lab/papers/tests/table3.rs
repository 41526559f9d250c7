//! FedFS's Table 3 on few files: what is measured is right, whatever the times are.

use atoll_needs::needs;
use atoll_papers::table3::{Compared, Size, table3};
use atoll_torture::place::Place;

#[test]
fn all_servers_do_the_same_operations_rightly_and_leave_the_same_files() {
    needs!(Root);
    let place = Place::new("table3").unwrap();
    let report = table3(place.path(), Size::SHORT, Compared { members: 3, ganesha: false }).unwrap();
    let names: Vec<&str> = report.columns.iter().map(|column| &column.name[..]).collect();
    assert_eq!(names, ["plain tree", "union of 1", "union of 3"]);
    let counts = report.columns[0].counts();
    assert_eq!(counts.iter().sum::<usize>(), Size::SHORT.operations);
    assert!(counts.is_sorted_by(|more, less| more > less) && counts[4] > 0, "{counts:?}");
    assert!(report.columns.iter().all(|column| column.counts() == counts));
    let text = report.to_string();
    assert!(["Lookup", "Average", "nion of 3: ", "1330"].iter().all(|word| text.contains(word)), "{text}");
    assert!(report.to_json().contains("{\"name\":\"union of 3\",\"Lookup\":{\"mean\":"));
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 2, "the folder is removed; the place has two of its own");
}
