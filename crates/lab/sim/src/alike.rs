//! Copies of an island at rest: they have the same rows and the same bodies. Their plain trees are each compared with the rows.

use std::collections::BTreeMap;

use atoll_core::{Decode, IslandId};
use atoll_disk::sim::SimDisk;
use atoll_dispatch::Engine;
use atoll_state::RowKey;
use atoll_state::state::Meta;

use crate::cause::Failure;
use crate::invariants::{bodies, read};
use crate::machines::IslandCopy;
use crate::world::World;

type Bytes = BTreeMap<Vec<u8>, Vec<u8>>;

/// The record that a snapshot is as of.
pub(crate) fn snapshot_seq(engine: &Engine<SimDisk>) -> u64 {
    let row = engine.snapshot().get(&RowKey::Meta.to_bytes()).ok().flatten();
    row.and_then(|row| Meta::from_slice(&row).ok()).map_or(0, |meta| meta.seq)
}

/// What differs between copies of an island, whose snapshots have everything.
pub(crate) fn differences(world: &World) -> Result<Vec<String>, Failure> {
    let mut broken = Vec::new();
    for island in world.islands() {
        let leader = world.leader(island);
        let rows = rows_of(leader, island)?;
        for copy in world
            .copies
            .iter()
            .filter(|copy| copy.island == island && copy.node != leader.node && world.is_kept(copy))
        {
            let place = format!("island {island} on {}, led on {}", copy.node, leader.node);
            let own = rows_of(copy, island)?;
            let keys = rows.keys().chain(own.keys().filter(|key| !rows.contains_key(*key)));
            let differ = keys.filter(|key| rows.get(*key) != own.get(*key));
            broken.extend(differ.map(|key| {
                let (row, other) = (rows.get(key), own.get(key));
                format!("{place}: row {:?} is {other:?}, not {row:?}", RowKey::from_bytes(key))
            }));
            if meta_of(leader)? != meta_of(copy)? {
                broken.push(format!("{place}: {:?}, not {:?}", meta_of(copy)?, meta_of(leader)?));
            }
            let engine = copy.engine().ok_or_else(|| Failure::new(format!("{place}: is down")))?;
            let (rows, sums) = read(&engine, island)?;
            broken.extend(bodies(&engine, &rows, &sums).into_iter().map(|what| format!("{place}: {what}")));
        }
    }
    Ok(broken)
}

/// What a snapshot says of the island, whichever copy has it: both are as of one record.
fn meta_of(copy: &IslandCopy) -> Result<Option<Meta>, Failure> {
    let engine = copy.engine().ok_or_else(|| Failure::new("a copy is down".to_owned()))?;
    let row = engine.snapshot().get(&RowKey::Meta.to_bytes());
    let row = row.map_err(|e| Failure::new(format!("a snapshot: {e}")))?;
    Ok(row.and_then(|row| Meta::from_slice(&row).ok()).map(|meta| Meta { clean: false, ..meta }))
}

/// All rows of a snapshot but those that each copy has of its own.
fn rows_of(copy: &IslandCopy, island: IslandId) -> Result<Bytes, Failure> {
    let engine = copy.engine().ok_or_else(|| Failure::new(format!("a copy of island {island} is down")))?;
    let rows = engine.snapshot().range(&[0], &[255], usize::MAX);
    let rows = rows.map_err(|e| Failure::new(format!("snapshot of island {island}: {e}")))?;
    let is_own = |key: &[u8]| {
        matches!(RowKey::from_bytes(key), Some(RowKey::View(_) | RowKey::ViewName(..) | RowKey::Meta))
    };
    Ok(rows.into_iter().filter(|(key, _)| !is_own(key)).collect())
}
