//! `atoll island force`, over processes: a copy leads that may lack something, because a person says that the better one is gone
//! for good.

mod common;

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_needs::needs;
use atoll_proto::{Control, ControlReply};
use atoll_volume::ask::{QUESTION, try_ask};
use common::{Cluster, Mounted, bad, eventually, good, run, text};

/// What `atoll status` says of a node's copies: role and epoch of each island.
fn copies(cluster: &Cluster, node: usize) -> Vec<(String, u64)> {
    let status: serde_json::Value =
        serde_json::from_str(&good(["status", &cluster.addresses[node], "--json"])).unwrap();
    let islands = status["processes"][0]["volumes"][0]["islands"].as_array().unwrap().iter();
    let copies = islands.map(|island| &island["copies"]);
    copies
        .map(|c| (c["role"].as_str().unwrap_or_default().to_owned(), c["epoch"].as_u64().unwrap_or(0)))
        .collect()
}

fn all_are(cluster: &Cluster, node: usize, role: &str) -> bool {
    copies(cluster, node).iter().all(|(is, _)| is == role)
}

/// Nodes 1 and 2 keep the copies of both islands, and both have the file `both`.
fn written() -> (Cluster, Mounted) {
    let cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    std::fs::write(mount.path("both"), b"both have it").unwrap();
    eventually("all copies are in sync", || cluster.in_sync(2));
    (cluster, mount)
}

/// Node 1 is started again, and no copy on it leads.
fn start_alone(cluster: &mut Cluster) {
    cluster.start(1);
    eventually("node 1 has opened its copies", || all_are(cluster, 1, "comesback"));
}

/// Has node 1 lead both islands, and looks at what each order says.
fn force_all(cluster: &Cluster, mount: &Mounted) {
    let before = copies(cluster, 1);
    for island in ["0", "1"] {
        let asked = ["island", "force", text(&mount.0), island, "1"];
        // Without --yes it only says what it costs,
        let said = bad(asked);
        assert!(said.contains("only the copies on nodes 2 have would be lost, synced ones too"), "{said}");
        assert!(
            said.contains("start them instead") && said.contains(&format!(" {island} 1 --yes")),
            "{said}"
        );
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(copies(cluster, 1)[island.parse::<usize>().unwrap()].0, "comesback");
        // and then it returns when the copy leads.
        let told = good(asked.into_iter().chain(["--yes"]));
        let (role, epoch) = copies(cluster, 1)[island.parse::<usize>().unwrap()].clone();
        assert_eq!(role, "leads");
        assert!(told.contains("node 1: ") && told.contains("COMES BACK"), "{told}");
        assert!(told.contains("node 2: does not answer"), "{told}");
        assert!(told.contains("are lost from here on, synced ones too"), "{told}");
        assert!(told.contains(&format!("island {island} is led by node 1, in epoch {epoch}")), "{told}");
    }
    let after = copies(cluster, 1);
    assert!(before.iter().zip(&after).all(|(before, after)| before.1 < after.1), "{before:?} {after:?}");
}

/// The last copy that was in sync is lost. The other one had been away, so it lacks what was done meanwhile.
#[test]
fn a_copy_that_was_not_in_sync_leads_when_it_must_and_the_lost_one_may_come_back() {
    needs!(Mounts);
    let (mut cluster, mount) = written();
    cluster.kill(1);
    std::fs::write(mount.path("lost"), b"only node 2 has it").unwrap();
    assert!(all_are(&cluster, 2, "leads"));
    cluster.kill(2);
    start_alone(&mut cluster);
    // Nobody leads, however long it takes.
    std::thread::sleep(Duration::from_secs(3));
    assert!(all_are(&cluster, 1, "comesback"));
    force_all(&cluster, &mount);
    assert_eq!(std::fs::read(mount.path("both")).unwrap(), b"both have it");
    let error = std::fs::read(mount.path("lost")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    std::fs::write(mount.path("new"), b"after it").unwrap();
    // The one that was lost comes back after all, and is brought to what was chosen.
    cluster.start(2);
    eventually("all copies are in sync", || cluster.in_sync(2));
    cluster.kill(1);
    assert_eq!(std::fs::read(mount.path("new")).unwrap(), b"after it");
    assert_eq!(std::fs::read(mount.path("both")).unwrap(), b"both have it");
    assert!(std::fs::read(mount.path("lost")).is_err());
}

/// The lost copy was stopped in order, so its snapshot has what only it had: it is not thrown away.
#[test]
fn a_lost_copy_that_cannot_be_cut_back_stays_out_and_keeps_its_files() {
    needs!(Mounts);
    let (mut cluster, mount) = written();
    cluster.kill(1);
    std::fs::write(mount.path("lost"), b"only node 2 has it").unwrap();
    cluster.nodes[2].take().unwrap().stop();
    start_alone(&mut cluster);
    force_all(&cluster, &mount);
    std::fs::write(mount.path("new"), b"after it").unwrap();
    cluster.start(2);
    eventually("node 2 says that it has more", || {
        good(["status", &cluster.addresses[2]]).contains("HAS MORE THAN THE ONE THAT LEADS")
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(all_are(&cluster, 1, "leads"));
    assert_eq!(std::fs::read(mount.path("new")).unwrap(), b"after it");
    assert_eq!(
        std::fs::read(cluster.data(2).join("islands/home/0/tree/lost")).unwrap(),
        b"only node 2 has it"
    );
}

/// All copies lose their power, and one machine burns: the seat of a data directory that lies on another disk is void, as after a
/// power cut, because what was not synced may be missing.
#[test]
fn a_copy_whose_seat_is_void_leads_when_the_other_machine_has_burned() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    std::fs::write(mount.path("file"), b"content").unwrap();
    let open = std::fs::File::options().append(true).open(mount.path("file")).unwrap();
    eventually("all copies are in sync", || cluster.in_sync(2));
    (&open).write_all(b", not synced").unwrap();
    cluster.kill(1);
    cluster.kill(2);
    let (data, other) = (cluster.data(1), cluster.scratch.path("elsewhere"));
    assert!(Command::new("cp").arg("-a").args([&data, &other]).status().unwrap().success());
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&other, &data).unwrap();
    start_alone(&mut cluster);
    std::thread::sleep(Duration::from_secs(3));
    assert!(all_are(&cluster, 1, "comesback"), "a copy that may have lost something leads by itself");
    force_all(&cluster, &mount);
    assert_eq!(std::fs::read(mount.path("file")).unwrap(), b"content, not synced");
    // Whoever has not synced is told once that something may be lost.
    assert_eq!(open.sync_all().unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    (&open).write_all(b", more").unwrap();
    open.sync_all().unwrap();
}

/// What a node says to the order alone, without what the command looks at before.
fn ordered(cluster: &Cluster, node: usize, volume: Option<VolumeId>, as_node: u16) -> String {
    let address = cluster.addresses[node].parse().unwrap();
    let config = match try_ask(&address, Control::Volume { name: "home".to_owned() }, QUESTION).unwrap() {
        ControlReply::Volume { config, .. } => config,
        reply => panic!("{reply:?}"),
    };
    let volume = volume.unwrap_or(config.id);
    let order = Control::ForceIsland { volume, island: IslandId(0), node: NodeId(as_node) };
    match try_ask(&address, order, QUESTION).unwrap() {
        ControlReply::Refused { text } => text,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn a_node_takes_no_order_while_a_copy_leads() {
    let cluster = Cluster::with_copies(3, 2);
    eventually("node 1 leads", || copies(&cluster, 1).first().is_some_and(|copy| copy.0 == "leads"));
    eventually("node 2 hears it", || copies(&cluster, 2)[0].0 == "follows");
    for (node, as_node, why) in [
        (1, 1, "The copy of island 0 on node 1 leads already, in epoch 1."),
        (2, 2, "The copy of island 0 on node 2 hears another one that leads"),
        (0, 0, "Node 0 has no copy of island 0"),
        (1, 2, "This is node 1 of the volume, and not node 2."),
    ] {
        let said = ordered(&cluster, node, None, as_node);
        assert!(said.contains(why), "{said}");
    }
    let said = ordered(&cluster, 1, Some(VolumeId(1)), 1);
    assert!(said.contains("Node 1 does not serve the volume"), "{said}");
    assert_eq!(
        (&copies(&cluster, 1)[0], &copies(&cluster, 2)[0]),
        (&("leads".into(), 1), &("follows".into(), 1))
    );
}

#[test]
fn an_order_that_takes_no_effect_says_why_and_is_over() {
    let mut cluster = Cluster::with_copies(3, 2);
    eventually("all copies are in sync", || cluster.in_sync(2));
    cluster.kill(1);
    eventually("node 2 leads alone", || {
        good(["status", &cluster.addresses[2]]).matches("in sync 1 of 2").count() == 2
    });
    cluster.kill(2);
    start_alone(&mut cluster);
    let source = format!("{}:/home", cluster.addresses[1]);
    // The node with the control store hangs: at first nobody notices.
    cluster.freeze(0);
    let output = run(["island", "force", &source, "0", "1", "--yes"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has taken the order, and does not lead island 0 after 10 s"), "{said}");
    assert!(said.contains("cannot reach node 0, which has the control store"), "{said}");
    // Nobody thinks of the order any more when it goes on.
    cluster.thaw(0);
    std::thread::sleep(Duration::from_secs(3));
    assert!(all_are(&cluster, 1, "comesback"));
    let told = good(["island", "force", &source, "0", "1", "--yes"]);
    assert!(told.contains("island 0 is led by node 1"), "{told}");
}

/// Of three copies the two that were in sync are lost.
#[test]
fn of_three_copies_one_alone_is_read_only_until_a_second_one_is_there() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(4, 3);
    let mount = cluster.mount("mount", "soft=3");
    std::fs::write(mount.path("file"), b"content").unwrap();
    eventually("all copies are in sync", || {
        good(["status", &cluster.addresses[1]]).matches("in sync 3 of 3").count() == 9
    });
    cluster.kill(1);
    eventually("the others go on without it", || {
        good(["status", &cluster.addresses[2]]).matches("in sync 2 of 3: nodes 2, 3").count() == 6
    });
    cluster.kill(2);
    cluster.kill(3);
    start_alone(&mut cluster);
    for island in 0..copies(&cluster, 1).len() {
        let island = island.to_string();
        let told = good(["island", "force", text(&mount.0), island.as_str(), "1", "--yes"]);
        assert!(told.contains("only the copies on nodes 2, 3 have are lost"), "{told}");
        assert!(told.contains("Changes wait until a second copy is in sync"), "{told}");
    }
    assert_eq!(std::fs::read(mount.path("file")).unwrap(), b"content");
    std::fs::write(mount.path("file"), b"more").unwrap_err();
    cluster.start(2);
    eventually("files can be changed again", || std::fs::write(mount.path("file"), b"more").is_ok());
}

#[test]
fn an_order_that_is_needless_or_cannot_be_is_refused_and_changes_nothing() {
    needs!(Mounts);
    let mut cluster = Cluster::with_copies(3, 2);
    let mount = cluster.mount("mount", "");
    std::fs::write(mount.path("file"), b"content").unwrap();
    eventually("all copies are in sync", || cluster.in_sync(2));
    let before = (copies(&cluster, 1), copies(&cluster, 2));
    let force = |island, node| ["island", "force", text(&mount.0), island, node, "--yes"];
    for (island, node, why) in [
        ("7", "1", "has no island 7"),
        ("0", "0", "Its copies are on nodes 1, 2"),
        ("0", "9", "Node 9 keeps no copy of island 0"),
        ("0", "1", "The copy of island 0 on node 1 leads already, in epoch 1"),
        ("1", "1", "The copy of island 1 on node 2 leads already, in epoch 1"),
    ] {
        let said = bad(force(island, node));
        assert!(said.contains(why), "{said}");
    }
    let said = bad(["island", "force", &cluster.source().replace(":/home", ":/none"), "0", "1", "--yes"]);
    assert!(said.contains("none"), "{said}");
    assert_eq!((copies(&cluster, 1), copies(&cluster, 2)), before, "the epochs are the same");
    // Whoever has everything leads by itself.
    cluster.kill(0);
    cluster.kill(1);
    eventually("node 2 hears nobody who leads island 0", || copies(&cluster, 2)[0].0 == "stands");
    let said = bad(force("0", "1"));
    assert!(said.contains("Node 1: does not answer"), "{said}");
    // Without the control store no copy can begin to lead.
    let said = bad(force("0", "2"));
    assert!(said.contains("cannot reach node 0, which has the control store"), "{said}");
    cluster.start(0);
    eventually("node 2 leads", || all_are(&cluster, 2, "leads"));
    // A volume without copies.
    let addresses = [&cluster.addresses[0]];
    good(["volume", "create", "plain", "--nodes", addresses[0]]);
    let said = bad(["island", "force", &format!("{}:/plain", addresses[0]), "0", "0", "--yes"]);
    assert!(said.contains("have one copy each"), "{said}");
    assert_eq!(run(["island", "force", text(&mount.0), "x", "1"]).status.code(), Some(2));
}
