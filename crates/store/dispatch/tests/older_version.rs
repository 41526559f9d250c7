//! The folder of an island that an older version wrote.

mod common;

use std::sync::Arc;

use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Engine, Nobody, OpenError};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use common::{ISLAND, Life, Still};

/// Bytes of the row `Meta` before islands had copies, and before rows had a place for a machine beside the island.
const META_BYTES: [usize; 2] = [33, 45];

#[test]
fn an_island_of_an_older_version_is_refused_with_the_command_that_takes_it_up() {
    for meta_bytes in META_BYTES {
        is_refused(|meta| meta.truncate(meta_bytes));
    }
    // Before files could be absent.
    is_refused(|meta| *meta.last_mut().unwrap() = 1);
}

fn is_refused(as_written_before: impl FnOnce(&mut Vec<u8>)) {
    let disk = SimDisk::new(1);
    let life = Life::new(disk.clone(), true, 1);
    life.engine.stop().unwrap();
    drop(life);
    let disk = disk.revive(Fault::ProcessDeath);
    let snapshot = Snapshot::open(&disk, b"state.redb", 1 << 20).unwrap();
    let key = RowKey::Meta.to_bytes();
    let mut meta = snapshot.get(&key).unwrap().unwrap();
    as_written_before(&mut meta);
    snapshot.commit([(&key, Some(&meta))]).unwrap();
    drop(snapshot);
    let opened = Engine::open(Arc::new(disk), Life::setup_of(false), Arc::new(Nobody), Arc::new(Still));
    let error = opened.expect_err("it is refused");
    assert!(matches!(error, OpenError::OlderVersion(ISLAND)) && error.is_damage(), "{error}");
    assert!(error.to_string().contains("`atoll rebuild`"), "{error}");
}
