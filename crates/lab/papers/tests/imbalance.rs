//! The papers' tables, on a tree made here and on trees as large as the paper's.

use atoll_core::{H3, Key};
use atoll_papers::imbalance::measure;
use atoll_papers::walk::{Directory, Tree, walk};
use atoll_papers::{Options, imbalance};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An empty folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn file(path: &Path, bytes: usize) {
    fs::write(path, vec![b'x'; bytes]).unwrap();
}

#[test]
fn a_walk_counts_each_directory_alone_follows_no_link_and_counts_linked_bytes_once() {
    let root = folder("walk");
    for dir in ["a/b", "c"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    file(&root.join("top"), 7);
    file(&root.join("a/one"), 100);
    file(&root.join("a/b/two"), 2000);
    fs::hard_link(root.join("a/b/two"), root.join("c/two-again")).unwrap();
    symlink("/", root.join("c/everything")).unwrap();
    symlink("../a", root.join("c/loop")).unwrap();

    let h3 = H3::new(5);
    let tree = walk(&root, &h3).unwrap();
    let key =
        |path: &str| h3.path(atoll_core::VolumePath::parse(path.as_bytes()).unwrap().names()).unwrap().key();
    let directory = |path: &str, files, bytes| Directory { key: key(path), files, bytes };
    assert_eq!(
        tree,
        Tree {
            directories: vec![
                directory("/", 1, 7),
                directory("/a", 1, 100),
                directory("/a/b", 1, 2000),
                directory("/c", 3, 0),
            ],
            skipped: 0,
        }
    );
}

#[test]
fn what_is_deeper_than_a_volume_allows_is_skipped_and_counted() {
    let root = folder("deep");
    let shell = |script: &str| {
        let status = Command::new("sh").arg("-ec").arg(script).current_dir(&root).status();
        assert!(status.unwrap().success(), "{script}");
    };
    // Twenty levels of 256 bytes are more than any path may have, so a shell goes down step by step.
    let name = "d".repeat(255);
    shell(&format!("for i in $(seq 20); do mkdir {name}; echo x > file; cd -P ./{name}; done"));
    let tree = walk(&root, &H3::new(0)).unwrap();
    let bytes: u64 = tree.directories.iter().map(|d| d.bytes).sum();
    assert_eq!(tree.skipped, 1, "the first directory that is too deep, which hides the rest");
    assert!((14..=16).contains(&tree.directories.len()), "{} directories", tree.directories.len());
    assert_eq!(bytes, 2 * tree.directories.len() as u64, "what is above it counts");
    shell("rm -rf d*");
}

#[test]
fn a_report_of_a_small_tree_is_what_a_hand_computes() {
    let root = folder("report");
    fs::create_dir(root.join("a")).unwrap();
    file(&root.join("big"), 300);
    file(&root.join("a/small"), 100);
    let one = imbalance(&root, Options { buckets: 1, islands: 1, seed: 0 }).unwrap();
    assert_eq!((one.directories, one.files, one.bytes, one.skipped), (2, 2, 400, 0));
    // Mean 200, deviation 100; all in one bucket of one island.
    assert_eq!((one.i_wd, one.h_wd), (0.5, 1.5));
    assert_eq!((one.i_db, one.i_db_expected, one.i_wb, one.i_ws, one.h_ws), (0.0, 0.0, 0.0, 0.0, 1.0));
    // Two buckets at one island each: the root is in bucket 0, whatever the seed.
    let seed = (0..).find(|&s| {
        let a = atoll_core::Name::new(b"a").unwrap();
        H3::new(s).path([&a]).unwrap().key() >= Key(1 << 31)
    });
    let two = imbalance(&root, Options { buckets: 2, islands: 2, seed: seed.unwrap() }).unwrap();
    assert_eq!((two.i_db, two.h_db, two.i_wb, two.h_wb), (0.0, 1.0, 0.5, 1.5));
    assert_eq!((two.i_ws_initial, two.i_ws, two.buckets_moved), (0.5, 0.5, 0));
    let json = two.to_json();
    for member in ["\"bytes\": 400", "\"islands\": 2", "\"i_wb\": 0.500000", "\"h_wd\": 1.500000"] {
        assert!(json.contains(member), "{json}");
    }
    let text = two.to_string();
    assert!(text.contains("I_WB") && text.contains("H_WS 1.5000"), "{text}");
}

#[test]
fn an_empty_directory_is_perfectly_even_in_bytes() {
    let report = imbalance(&folder("empty"), Options::default()).unwrap();
    assert_eq!((report.directories, report.bytes, report.i_wb, report.h_wb), (1, 0, 0.0, 1.0));
    assert!(!report.to_json().contains("NaN") && !report.to_json().contains("inf"));
}

#[test]
fn a_root_that_is_not_there_and_a_table_that_cannot_be_are_errors() {
    let root = folder("errors");
    assert!(imbalance(&root.join("absent"), Options::default()).is_err());
    for bad in [Options { buckets: 100, ..Options::default() }, Options { islands: 0, ..Options::default() }]
    {
        assert!(imbalance(&root, bad).is_err(), "{bad:?}");
    }
}

/// A tree as large as one of the paper's: `directories` with lengths of a heavy tail.
fn synthetic(directories: usize, h3: &H3) -> Tree {
    let mut state = 81u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let directory = |i: usize| {
        let path = format!("/home/user{}/project{}/part{}", i % 97, i / 97 % 89, i / (97 * 89));
        let key = h3.path(atoll_core::VolumePath::parse(path.as_bytes()).unwrap().names()).unwrap().key();
        // Pareto with exponent 1.3, cut off: a few directories have thousands of times the average.
        Directory { key, files: 1, bytes: (10_000.0 * (1.0 - next()).powf(-1.0 / 1.3)).min(3e9) as u64 }
    };
    let directories = (0..directories).map(directory).collect();
    Tree { directories, skipped: 0 }
}

#[test]
fn trees_as_large_as_the_papers_come_out_as_in_its_tables() {
    for (directories, islands) in [(16_233, 3), (25_195, 4), (178_974, 15)] {
        let options = Options { buckets: 256, islands, seed: 1 };
        let report = measure(&synthetic(directories, &H3::new(1)), options);
        println!("{report}");
        assert!((report.i_db / report.i_db_expected - 1.0).abs() < 0.5, "{report}");
        assert!((report.i_wb / report.i_wb_expected - 1.0).abs() < 0.6, "{report}");
        // The paper has 0.0001 to 0.03 here.
        assert!(report.i_ws < 0.03 && report.h_ws < 1.06, "{report}");
        assert!(report.i_ws <= report.i_ws_initial, "{report}");
    }
}
