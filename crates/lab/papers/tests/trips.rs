//! What operations ask for: what can be counted exactly also in a short time.

use atoll_needs::needs;
use atoll_papers::trips::{Counts, Plan, Report, trips};
use atoll_torture::daemon::is_fuse;
use atoll_torture::place::Place;

/// Other tests have the kernel forget what it knows, of all file systems: it may be that they do so just then.
const TRIES: usize = 3;

/// What the kernel answers by itself because it knows it: an operation, and a request that is not made.
const KNOWN: [(&str, Option<&str>); 3] = [
    ("stat, warm", None),
    ("lookup of an absent name, warm", None),
    ("open, read 16 KiB, close, warm", Some("READ")),
];

/// Whether the kernel has not asked for anything that it knows.
fn is_known(report: &Report) -> bool {
    KNOWN.iter().all(|(name, request)| {
        let counts = report.of(name).unwrap();
        request.map_or_else(|| counts.fuse_total(), |request| fuse(counts, request)) == 0.0
    })
}

/// Requests of the kernel of one kind for each operation.
fn fuse(counts: &Counts, operation: &str) -> f64 {
    counts.fuse.get(operation).copied().unwrap_or(0.0)
}

#[test]
fn operations_ask_for_what_they_need_and_for_nothing_that_is_known() {
    needs!(Mounts);
    let place = Place::new("trips").unwrap();
    let mut reports = (0..TRIES).map(|_| trips(place.path(), Plan::SHORT).unwrap());
    let report = reports.find(is_known).expect("the kernel has asked each time for what it knows");
    let of = |name: &str| report.of(name).unwrap();
    assert_eq!(report.operations.len(), 30, "{report}");

    // The kernel asks for a name that it does not know, and perhaps for the directories above it.
    for unknown in ["stat, cold", "lookup of an absent name, cold"] {
        assert!(fuse(of(unknown), "LOOKUP") >= 1.0, "{unknown}: {report}");
    }
    assert!(of("stat, cold").requests > 0.5, "{report}");
    // A mount that is alone knows that there is no such name yet, and what the change before has left of the directory.
    for once in ["create, close", "rename in a directory", "link", "unlink"] {
        assert!(of(once).fuse_total() > 1.5 && of(once).requests < 1.5, "{once}: {report}");
    }
    for (name, operation) in [
        ("mkdir", "MKDIR"),
        ("create, close", "CREATE"),
        ("chmod of a file", "SETATTR"),
        ("rename in a directory", "RENAME"),
        ("append 4 bytes to an open file, fsync", "FSYNC"),
    ] {
        assert_eq!(fuse(of(name), operation), 1.0, "{name}: {report}");
        assert!(of(name).requests > 0.5, "{name}: {report}");
    }
    assert_eq!(fuse(of("open, read 16 KiB, close, cold"), "READ"), 1.0, "{report}");

    // Three of four new directories belong to another island than their names. A file belongs to its name's island.
    for between in ["mkdir", "rename to a directory of another island"] {
        assert!(of(between).messages > 0.5, "{between}: {report}");
    }
    for within in ["create, close", "rename in a directory", "rename to a directory of the same island"] {
        assert!(of(within).messages < of("mkdir").messages / 2.0, "{within}: {report}");
    }
    assert!(of("create, write 16 KiB, close").bytes > 16_384.0, "{report}");
    assert!(report.of("sleep").is_err());

    let text = report.to_string();
    assert!(text.contains("\n| stat, warm | 0.0 |  | "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["rows"][0]["operation"], "mkdir");
    assert_eq!(json["rows"][0]["by"]["MKDIR"], 1.0, "{json}");

    assert!(!is_fuse(&place.join("mnt")));
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 2, "the folder is removed; the place has two of its own");
}

#[test]
fn what_cannot_be_measured_leaves_nothing_behind() {
    needs!(Mounts);
    let place = Place::new("trips-vain").unwrap();
    let why = trips(&place.join("absent"), Plan::SHORT).unwrap_err();
    assert!(why.to_string().contains("absent"), "{why:#}");
    // The daemon refuses so many islands, after the folder was made.
    let why = trips(place.path(), Plan { islands: 1_000, ..Plan::SHORT }).unwrap_err();
    assert!(format!("{why:#}").contains("1000"), "{why:#}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
}
