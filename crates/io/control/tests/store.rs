//! The control store: one test body for every implementation, and what is particular to the
//! embedded one.

use std::fs;
use std::sync::Arc;
use std::thread;

use atoll_control::{ControlError, ControlStore, EmbeddedStore, VolumeRef};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Copies, IslandGroup, NodeConfig, VolumeConfig, VolumeKind};
use redb::ReadableTable;

fn volume(id: u64, name: &str) -> VolumeConfig {
    let node = |n: u16| NodeConfig {
        daemon: 0,
        node: NodeId(n),
        address: format!("node{n}:7100"),
        islands: vec![IslandId(2 * n), IslandId(2 * n + 1)],
    };
    VolumeConfig {
        id: VolumeId(id),
        name: name.into(),
        seed: 7,
        table: Table::new(4),
        nodes: vec![node(0), node(1)],
        kind: atoll_proto::VolumeKind::Cluster,
        copies: None,
        site: None,
    }
}

fn next(config: &VolumeConfig) -> VolumeConfig {
    VolumeConfig { table: config.table.reassigned([]), ..config.clone() }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ControlError>) -> ControlError {
    let error = result.expect_err("it must be refused");
    assert!(error.to_string().lines().count() <= 3, "{error}");
    error
}

/// What every control store does.
fn behaves(store: &dyn ControlStore) {
    assert!(store.volumes().unwrap().is_empty());
    let (home, work) = (volume(1, "home"), volume(2, "work"));
    store.create_volume(&work).unwrap();
    store.create_volume(&home).unwrap();
    assert_eq!(store.volumes().unwrap(), [home.clone(), work.clone()]);
    assert_eq!(store.volume(&"home".into()).unwrap(), home);
    assert_eq!(store.volume(&VolumeId(2).into()).unwrap(), work);

    // Names and ids are unique.
    let name_taken = refused(store.create_volume(&volume(3, "home")));
    assert!(matches!(&name_taken, ControlError::Taken { volume: VolumeRef::Name(n) } if n == "home"));
    let id_taken = refused(store.create_volume(&volume(1, "other")));
    assert!(matches!(id_taken, ControlError::Taken { volume: VolumeRef::Id(VolumeId(1)) }));
    assert!(matches!(refused(store.volume(&"other".into())), ControlError::NotFound { .. }));

    // Changes are made to what was seen.
    let home2 = next(&home);
    store.replace_volume(&home2, 1).unwrap();
    assert_eq!(store.volume(&"home".into()).unwrap(), home2);
    let late = refused(store.replace_volume(&home2, 1));
    assert!(matches!(late, ControlError::Conflict { expected: 1, found: 2, .. }), "{late}");
    let same = refused(store.replace_volume(&home2, 2));
    assert!(matches!(same, ControlError::Invalid { .. }), "{same}");
    let unknown = refused(store.replace_volume(&next(&volume(9, "nine")), 1));
    assert!(matches!(unknown, ControlError::NotFound { .. }), "{unknown}");

    // A volume may get another name, but no other volume's.
    let stolen = VolumeConfig { name: "work".into(), ..next(&home2) };
    assert!(matches!(refused(store.replace_volume(&stolen, 2)), ControlError::Taken { .. }));
    let renamed = VolumeConfig { name: "attic".into(), ..next(&home2) };
    store.replace_volume(&renamed, 2).unwrap();
    assert_eq!(store.volumes().unwrap(), [renamed, work.clone()]);
    assert!(matches!(refused(store.volume(&"home".into())), ControlError::NotFound { .. }));

    // What is gone leaves its name free.
    store.remove_volume(VolumeId(1)).unwrap();
    assert!(matches!(refused(store.remove_volume(VolumeId(1))), ControlError::NotFound { .. }));
    store.create_volume(&volume(4, "attic")).unwrap();
    assert_eq!(store.volumes().unwrap(), [volume(4, "attic"), work.clone()]);

    // The newest configuration is what the volume has.
    assert_eq!(store.newest_config(VolumeId(2)).unwrap(), work);
    let (later, done) = (next(&next(&work)), |version| Swapped::Done { revision: Revision(version) });
    assert_eq!(store.swap_config(&next(&work), 1), done(2));
    assert_eq!(store.swap_config(&later, 1), Swapped::Conflict);
    assert_eq!(store.swap_config(&later, 2), done(3));
    assert_eq!(store.newest_config(VolumeId(2)).unwrap(), later);
    let unknown = store.swap_config(&next(&volume(9, "nine")), 1);
    assert!(matches!(unknown, Swapped::Unknown { .. }), "{unknown:?}");
}

/// The same nodes with two copies of each island, and one more, which has the store.
fn with_copies(change: impl FnOnce(&mut VolumeConfig, &mut Copies)) -> VolumeConfig {
    let mut config = volume(1, "vol");
    let group = |island: u16| {
        let leader = island / 2;
        IslandGroup { island: IslandId(island), nodes: vec![NodeId(leader), NodeId(1 - leader)] }
    };
    config.nodes.push(NodeConfig {
        daemon: 0,
        node: NodeId(2),
        address: "node2:7100".into(),
        islands: Vec::new(),
    });
    let racks = ["a", "b", "b"].map(str::to_owned).to_vec();
    let mut copies = Copies {
        wanted: 2,
        store: NodeId(2),
        groups: (0..4).map(group).collect(),
        racks,
        ..Copies::default()
    };
    change(&mut config, &mut copies);
    VolumeConfig { copies: Some(copies), ..config }
}

/// Whatever is stored must make sense to every node.
fn refuses_nonsense(store: &dyn ControlStore) {
    let mut twice = volume(1, "vol");
    twice.nodes[1].islands[0] = IslandId(0);
    let mut orphan = volume(1, "vol");
    orphan.nodes.pop();
    let mut numbers = volume(1, "vol");
    numbers.nodes[1].node = NodeId(0);
    let mut address = volume(1, "vol");
    address.nodes[0].address = "node0".into();
    for (config, why) in [
        (volume(1, "a/b"), "letters, digits"),
        (volume(1, ""), "missing"),
        (twice, "island 0 is on two nodes"),
        (orphan, "which no node holds"),
        (numbers, "two nodes with the number 0"),
        (address, "is no address: the port is missing"),
        (with_copies(|config, _| config.kind = VolumeKind::Union), "of the kind union have no copies"),
        (with_copies(|_, copies| copies.wanted = 0), "it wants 0 copies, and 1 to 16 are possible"),
        (with_copies(|_, copies| copies.wanted = 17), "it wants 17 copies, and 1 to 16 are possible"),
        (with_copies(|_, copies| copies.drained = vec![NodeId(3)]), "node 3 is drained, which it has not"),
        (with_copies(|_, copies| copies.store = NodeId(3)), "control store is on node 3, which it has not"),
        (with_copies(|_, copies| drop(copies.racks.pop())), "it names 2 racks for 3 nodes"),
        (with_copies(|_, copies| copies.racks[1].clear()), "a rack's name has 0 bytes"),
        (with_copies(|_, copies| copies.racks[1] = "r".repeat(256)), "a rack's name has 256 bytes"),
        (with_copies(|_, copies| drop(copies.groups.pop())), "not one group for each island"),
        (with_copies(|_, copies| copies.groups.swap(0, 1)), "not one group for each island"),
        (with_copies(|_, copies| copies.groups[1].island = IslandId(0)), "not one group for each island"),
        (with_copies(|_, copies| copies.groups[1].nodes[1] = NodeId(0)), "island 1 is not of 2 different"),
        (with_copies(|_, copies| copies.groups[1].nodes.push(NodeId(1))), "island 1 is not of 2 different"),
        (
            with_copies(|_, copies| copies.groups[1].nodes[1] = NodeId(9)),
            "has node 9, which the volume has not",
        ),
        (
            with_copies(|_, copies| copies.groups[1].nodes.reverse()),
            "begins with node 1, which does not lead it",
        ),
    ] {
        let error = refused(store.create_volume(&config)).to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(store.volumes().unwrap().is_empty());
    let good = with_copies(|_, _| {});
    store.create_volume(&good).unwrap();
    assert_eq!(store.volume(&good.id.into()).unwrap(), good);
    store.remove_volume(good.id).unwrap();
}

#[test]
fn the_embedded_store_behaves() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&folder.path().join(EmbeddedStore::FILE)).unwrap();
    refuses_nonsense(&store);
    behaves(&store);
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    EmbeddedStore::open(&file).unwrap().create_volume(&volume(1, "home")).unwrap();
    assert_eq!(EmbeddedStore::open(&file).unwrap().volumes().unwrap(), [volume(1, "home")]);
}

#[test]
fn what_was_acknowledged_is_in_the_file_without_an_orderly_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    let store = EmbeddedStore::open(&file).unwrap();
    store.create_volume(&volume(1, "home")).unwrap();
    let copy = folder.path().join("as-after-a-kill.redb");
    fs::copy(&file, &copy).unwrap();
    assert_eq!(EmbeddedStore::open(&copy).unwrap().volumes().unwrap(), [volume(1, "home")]);
}

#[test]
fn of_many_who_change_the_same_version_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(&folder.path().join(EmbeddedStore::FILE)).unwrap());
    store.create_volume(&volume(1, "home")).unwrap();
    let won: usize = thread::scope(|scope| {
        let change = |seed| {
            let store = Arc::clone(&store);
            move || {
                let config = VolumeConfig { seed, ..next(&volume(1, "home")) };
                usize::from(store.replace_volume(&config, 1).is_ok())
            }
        };
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(change(seed))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!(store.volume(&"home".into()).unwrap().table.version(), 2);
}

#[test]
fn a_store_that_is_open_cannot_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    let _open = EmbeddedStore::open(&file).unwrap();
    let error = refused(EmbeddedStore::open(&file).map(|_| ()));
    assert!(error.to_string().contains("another process has it open"), "{error}");
}

/// A thread of a daemon that has stopped may be the last to have the store.
#[test]
fn a_store_that_is_closed_a_moment_later_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    let open = EmbeddedStore::open(&file).unwrap();
    let (opening, opens) = std::sync::mpsc::channel();
    let closing = std::thread::spawn(move || {
        opens.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(open);
    });
    opening.send(()).unwrap();
    EmbeddedStore::open(&file).unwrap();
    closing.join().unwrap();
}

#[test]
fn a_file_of_another_kind_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    let foreign = "not a database, ".repeat(1000);
    fs::write(&file, &foreign).unwrap();
    let error = refused(EmbeddedStore::open(&file).map(|_| ()));
    assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), foreign);
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    drop(EmbeddedStore::open(&file).unwrap());
    let db = redb::Database::open(&file).unwrap();
    let tx = db.begin_write().unwrap();
    tx.open_table(redb::TableDefinition::<&str, u64>::new("meta")).unwrap().insert("format", 9).unwrap();
    tx.commit().unwrap();
    drop(db);
    let error = refused(EmbeddedStore::open(&file).map(|_| ())).to_string();
    assert!(error.contains("has format 9; this program knows formats up to 3"), "{error}");
}

#[test]
fn a_volume_that_cannot_be_read_is_damage_and_not_absence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(EmbeddedStore::FILE);
    EmbeddedStore::open(&file).unwrap().create_volume(&volume(1, "home")).unwrap();
    let db = redb::Database::open(&file).unwrap();
    let tx = db.begin_write().unwrap();
    tx.open_table(redb::TableDefinition::<u64, &[u8]>::new("volumes"))
        .unwrap()
        .insert(1, &[1u8, 2][..])
        .unwrap();
    tx.commit().unwrap();
    drop(db);
    let store = EmbeddedStore::open(&file).unwrap();
    for error in [
        refused(store.volumes().map(|_| ())),
        refused(store.volume(&"home".into()).map(|_| ())),
        refused(store.replace_volume(&next(&volume(1, "home")), 1)),
        refused(store.remove_volume(VolumeId(1))),
    ] {
        assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_volume_that_was_stored_before_there_were_kinds_is_a_cluster_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(EmbeddedStore::FILE);
    EmbeddedStore::open(&path).unwrap().create_volume(&volume(1, "home")).unwrap();
    let volumes = redb::TableDefinition::<u64, &[u8]>::new("volumes");
    let db = redb::Database::open(&path).unwrap();
    let tx = db.begin_write().unwrap();
    {
        let mut volumes = tx.open_table(volumes).unwrap();
        let mut bytes = volumes.get(1).unwrap().unwrap().value().to_vec();
        assert_eq!(bytes.pop(), Some(1), "the kind is the last byte");
        volumes.insert(1, bytes.as_slice()).unwrap();
    }
    tx.commit().unwrap();
    drop(db);
    let store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.volumes().unwrap(), [volume(1, "home")]);
}
