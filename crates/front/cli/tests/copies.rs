//! Volumes whose islands have copies, over processes: a node that dies takes nothing along, and nobody is told of an error.

mod common;

use std::time::{Duration, Instant};

use atoll_needs::needs;
use common::{Cluster, eventually, good};

/// How long a call may take while another copy begins to lead, on a machine that is busy.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Whether all copies of all islands are in sync, as those say that lead.
fn in_sync(cluster: &Cluster) -> bool {
    let mut led = 0;
    for address in &cluster.addresses[1..] {
        let status: serde_json::Value = serde_json::from_str(&good(["status", address, "--json"])).unwrap();
        let islands = status["processes"][0]["volumes"][0]["islands"].as_array().cloned().unwrap_or_default();
        for island in islands.iter().filter(|island| island["leads"] == 1) {
            led += usize::from(island["copies_in_sync"] == island["copies_wanted"]);
        }
    }
    led == 3
}

#[test]
fn a_node_that_is_killed_takes_nothing_along_and_comes_back() {
    needs!(Mounts);
    let mut cluster = Cluster::bare(4);
    let nodes = cluster.addresses.join(",");
    let made = good(["volume", "create", "home", "--nodes", nodes.as_str(), "--replicas", "2"]);
    assert!(made.contains("2 copies of each"), "{made}");
    let mount = cluster.mount("mount", "");
    let dirs: Vec<_> = (0..8).map(|n| mount.path(&format!("dir{n}"))).collect();
    for dir in &dirs {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("large"), vec![7; 300_000]).unwrap();
    }
    // The first one has the control store, and no copies.
    for victim in [1, 2, 3, 1] {
        cluster.kill(victim);
        for (n, dir) in dirs.iter().enumerate() {
            let since = Instant::now();
            let content = format!("{victim} {n}");
            std::fs::write(dir.join("small"), &content).unwrap();
            assert_eq!(std::fs::read_to_string(dir.join("small")).unwrap(), content);
            assert!(since.elapsed() < PAUSE_MAX, "{:?}", since.elapsed());
            assert_eq!(std::fs::read(dir.join("large")).unwrap(), vec![7; 300_000]);
        }
        cluster.start(victim);
        eventually("all copies are in sync again", || in_sync(&cluster));
    }
}
