//! Making volumes with copies: what cannot be made is told at once, with its cause and the next step, and nothing is left.

mod common;

use common::{Cluster, bad, free_port, good};

/// What the command says, which must fail and leave nothing at any node of the cluster.
fn refused(cluster: &Cluster, nodes: &[&str], options: &[&str]) -> String {
    let nodes = nodes.join(",");
    let said = bad(["volume", "create", "home", "--nodes", nodes.as_str()].iter().chain(options));
    for (at, address) in cluster.addresses.iter().enumerate() {
        assert_eq!(good(["volume", "list", address]).trim(), "No volumes.", "{said}");
        let left = std::fs::read_dir(cluster.data(at).join("islands")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "folders are left: {said}");
    }
    said
}

#[test]
fn copies_that_cannot_be_are_refused_with_the_next_step_and_nothing_is_left() {
    let cluster = Cluster::bare(4);
    let all: Vec<&str> = cluster.addresses.iter().map(String::as_str).collect();
    let down = format!("127.0.0.1:{}", free_port());
    let (localhost, long) = (all[0].replace("127.0.0.1", "localhost"), "r".repeat(256));
    for (nodes, options, cause, next) in [
        (&all[..], &["--replicas", "0"][..], "one copy at least", "Use --replicas 1"),
        (&all, &["--replicas", "5"], "5 copies need 5 nodes, and there are 4", "Name more nodes"),
        (&all, &["--replicas", "17"], "17 copies are too many: 16 are possible", "Lower --replicas"),
        (&all, &["--racks", "a,b,c,d"], "one copy of each island", "--replicas 2"),
        (&all, &["--replicas", "2", "--racks", "a,b,c"], "3 racks for 4 nodes", "one rack for each node"),
        (
            &all,
            &["--replicas", "2", "--racks", "a,b,,b"],
            "\"\" cannot name a rack",
            "one rack for each node",
        ),
        (
            &all,
            &["--replicas", "2", "--racks", &format!("a,b,c,{long}")],
            "1 to 255 bytes",
            "one rack for each",
        ),
        (&all, &["--replicas", "3", "--racks", "a,a,b,b"], "need 3 racks", "Name nodes in more racks"),
        (
            &all,
            &["--replicas", "2", "--racks", "a,b,b,b"],
            "need 2 racks",
            "name a node first whose rack has others",
        ),
        (&[all[0], all[1], &localhost], &["--replicas", "2"], "are the same node", "Name each node once"),
        (&[all[0], all[1], all[0]], &["--replicas", "2"], "are the same node", "Name each node once"),
        (&[all[0], all[1], &down], &["--replicas", "2"], &down, "Is the daemon running there"),
    ] {
        let said = refused(&cluster, nodes, options);
        assert!(said.contains(cause) && said.contains(next), "{options:?}: {said}");
    }
    // The name was not lost by any of these.
    let made = good(["volume", "create", "home", "--nodes", &all.join(","), "--replicas", "1"]);
    assert!(made.starts_with("volume   home (4 islands on 4 nodes)\nmount "), "{made}");
}
