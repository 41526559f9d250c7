//! What could not be reached if nodes were down: asked, and then done.

mod common;

use atoll_needs::needs;
use common::{Cluster, bad, eventually, good};
use serde_json::Value;

/// What becomes of each island if these nodes are down.
fn fates(cluster: &Cluster, down: &str) -> Vec<String> {
    let told = told(cluster, down);
    told["islands"].as_array().unwrap().iter().map(|i| i["fate"].as_str().unwrap().to_owned()).collect()
}

fn told(cluster: &Cluster, down: &str) -> Value {
    let mut arguments = vec!["whatif", cluster.addresses[1].as_str(), "--json"];
    if !down.is_empty() {
        arguments.extend(["--down", down]);
    }
    serde_json::from_str(&good(arguments)).unwrap()
}

#[test]
fn it_says_what_would_be_lost_and_that_is_what_is_lost() {
    needs!(Mounts);
    // Node 0 has the control store; nodes 1 and 2 keep both islands.
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "soft=1");
    for n in 0..40 {
        let dir = mount.path(&format!("dir{n}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("file"), vec![7; 100_000]).unwrap();
    }
    eventually("what was written is in checkpoints, and counted", || {
        let told = told(&cluster, "");
        let sum = |key: &str| {
            told["islands"].as_array().unwrap().iter().map(|i| i[key].as_u64().unwrap()).sum::<u64>()
        };
        (sum("directories"), sum("files")) == (41, 40) && sum("bytes") >= 4_000_000
    });
    let all = |fate: &str| vec![fate.to_owned(); 2];
    assert_eq!(fates(&cluster, ""), all("fine"));
    assert_eq!(fates(&cluster, "1"), all("last copy"));
    assert_eq!(fates(&cluster, &format!("1,{}", cluster.addresses[2])), all("unreachable"));
    assert_eq!(fates(&cluster, "0,1"), all("waits"));
    let said = good(["whatif", cluster.addresses[1].as_str(), "--down", "1,2"]);
    assert!(
        said.contains("UNREACHABLE") && said.contains("41 of 41") && said.contains("islands      0, 1"),
        "{said}"
    );
    let said = bad(["whatif", cluster.addresses[1].as_str(), "--down", "n9"]);
    assert!(said.contains("has no node \"n9\""), "{said}");
    // Now it happens, and the one that is left says what is next.
    cluster.kill(2);
    eventually("everything is in one copy", || fates(&cluster, "") == all("last copy"));
    assert_eq!(fates(&cluster, "1"), all("unreachable"));
    let read = |n: u32| std::fs::read(mount.path(&format!("dir{n}/file")));
    eventually("all of it is there", || (0..40).all(|n| read(n).is_ok_and(|bytes| bytes.len() == 100_000)));
    cluster.kill(1);
    eventually("none of it is", || (0..3).all(|n| read(n).is_err()));
}
