//! Kinds of volumes: which can be made, how they are shown, and what happens to those that are not known.

mod common;

use atoll_control::{ControlStore, EmbeddedStore};
use atoll_proto::VolumeKind;
use common::{Cluster, bad, eventually, good, text};

#[test]
fn a_kind_that_no_node_keeps_is_refused_and_nothing_is_made() {
    let cluster = Cluster::bare(1);
    let node = &cluster.addresses[0];
    let said = bad(["volume", "create", "new", "--nodes", node, "--kind", "union"]);
    assert!(said.contains("atoll union start"), "{said}");
    let said = common::run(["volume", "create", "new", "--nodes", node, "--kind", "flat"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("[possible values: cluster, union, wide]"), "{said}");
    assert_eq!(good(["volume", "list", node]), "No volumes.\n");
}

#[test]
fn the_kind_is_shown_wherever_a_volume_is() {
    let cluster = Cluster::bare(1);
    let node = &cluster.addresses[0];
    good(["volume", "create", "new", "--nodes", node, "--kind", "cluster"]);
    assert!(good(["volume", "list", node]).contains(" cluster "));
    let json = |words: &[&str]| serde_json::from_str::<serde_json::Value>(&good(words)).unwrap();
    assert_eq!(json(&["volume", "list", node, "--json"])[0]["kind"], "cluster");
    let status = json(&["status", node, "--json"]);
    assert_eq!(status["processes"][0]["volumes"][0]["volume"]["kind"], "cluster");
    assert!(good(["status", node]).contains("volume new  cluster  node 0"));
}

#[test]
fn a_volume_of_an_unknown_kind_is_refused_with_the_version_and_the_others_are_served() {
    let mut cluster = Cluster::bare(1);
    good(["volume", "create", "old", "--nodes", &cluster.addresses[0]]);
    cluster.nodes[0].take().unwrap().stop();
    let file = cluster.data(0).join(EmbeddedStore::FILE);
    let store = EmbeddedStore::open(&file).unwrap();
    let mut config = store.volume(&"old".into()).unwrap();
    config.id.0 += 1;
    config.name = "new".to_owned();
    config.kind = VolumeKind::Unknown(250);
    store.create_volume(&config).unwrap();
    drop(store);
    std::fs::create_dir(cluster.data(0).join("islands/new")).unwrap();
    let folder = cluster.data(0);
    let said = bad(["rebuild", "--volume", "new", "--yes", "--data", text(&folder)]);
    assert!(said.contains("kind (number 250)"), "{said}");
    assert!(said.contains(concat!("atoll ", env!("CARGO_PKG_VERSION"), " does not know")), "{said}");
    cluster.start(0);
    let node = &cluster.addresses[0];
    eventually("the known volume is served", || good(["status", node]).contains("volume old  cluster"));
    let listed = good(["volume", "list", node]);
    assert!(listed.contains(" unknown-250 ") && listed.contains("does not know"), "{listed}");
    let point = cluster.data(0).with_file_name("point");
    std::fs::create_dir(&point).unwrap();
    let said = bad(["mount", &format!("{node}:/new"), text(&point)]);
    assert!(said.contains("does not know"), "{said}");
}

/// A stopped node with a volume `old` and, in its store, one `new` that is made from it.
fn with_another(change: impl FnOnce(&EmbeddedStore, &mut atoll_proto::VolumeConfig)) -> Cluster {
    let mut cluster = Cluster::bare(1);
    good(["volume", "create", "old", "--nodes", &cluster.addresses[0]]);
    cluster.nodes[0].take().unwrap().stop();
    let store = EmbeddedStore::open(&cluster.data(0).join(EmbeddedStore::FILE)).unwrap();
    let mut config = store.volume(&"old".into()).unwrap();
    config.id.0 += 1;
    config.name = "new".to_owned();
    change(&store, &mut config);
    drop(store);
    cluster
}

#[test]
fn a_check_names_a_volume_of_an_unknown_kind_and_looks_at_the_others() {
    let cluster = with_another(|store, config| {
        config.kind = VolumeKind::Unknown(250);
        store.create_volume(config).unwrap();
    });
    let folder = cluster.data(0);
    let output = common::run(["check", "--data", text(&folder), "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told["islands"].as_u64().unwrap() > 0, "the other volume was looked at: {told:#}");
    let found = told["findings"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{told:#}");
    assert_eq!((found[0]["volume"].as_str(), found[0]["rule"].as_str()), (Some("new"), Some("kind-known")));
    let shown = String::from_utf8(common::run(["check", "--data", text(&folder)]).stdout).unwrap();
    assert!(shown.contains("volume new: it is of a kind (number 250)"), "{shown}");
    assert!(shown.contains("next: use the version of atoll that made it"), "{shown}");
}

#[test]
fn a_configuration_of_a_newer_version_is_called_newer_and_not_damaged() {
    let cluster = with_another(|store, config| store.create_volume(config).unwrap());
    let file = cluster.data(0).join(EmbeddedStore::FILE);
    let volumes = redb::TableDefinition::<u64, &[u8]>::new("volumes");
    let db = redb::Database::open(&file).unwrap();
    let change = db.begin_write().unwrap();
    {
        let mut table = change.open_table(volumes).unwrap();
        let last =
            redb::ReadableTable::last(&table).unwrap().map(|(id, row)| (id.value(), row.value().to_vec()));
        let (id, row) = last.unwrap();
        table.insert(id, &[&row[..], b"settings"].concat()[..]).unwrap();
    }
    change.commit().unwrap();
    drop(db);
    let said = bad(["check", "--data", text(&cluster.data(0))]);
    assert!(said.contains("newer") && said.contains("volume new") && !said.contains("damaged"), "{said}");
}
