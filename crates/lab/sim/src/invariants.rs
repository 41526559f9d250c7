//! Invariants when nothing is under way, whatever happened before: the rules of `store/check` about rows, and
//! rules about bodies, which the simulator reads.

use std::collections::BTreeMap;

use atoll_check::{Rows, Volume, check_at_rest};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Decode, Ino, IslandId};
use atoll_disk::sim::SimDisk;
use atoll_dispatch::Engine;
use atoll_posix::Kind;
use atoll_state::RowKey;
use atoll_state::key::SUMS_PER_CHUNK;

use crate::cause::Failure;
use crate::world::World;

/// Block checksums of an island, by file and chunk.
pub(crate) type Sums = BTreeMap<(Ino, u64), Vec<u32>>;

/// Every broken invariant of a world at rest, after it has made checkpoints of all islands.
pub fn invariants(world: &mut World) -> Result<(), Failure> {
    world.settle()?;
    // Carried bytes are put in place a moment later.
    world.run_for(1_000_000)?;
    world.checkpoint_all()?;
    world.audit_all()?;
    let (mut islands, mut all_sums) = (Vec::new(), Vec::new());
    for island in world.islands() {
        let engine = world.engine_of(island).ok_or_else(|| Failure::new("an island is down"))?;
        let (rows, sums) = read(&engine, island)?;
        islands.push(rows);
        all_sums.push(sums);
    }
    let volume = Volume { table: world.table.clone(), seed: world.config.seed };
    let mut broken: Vec<String> = check_at_rest(&volume, &islands).iter().map(ToString::to_string).collect();
    for ((island, rows), sums) in world.islands().into_iter().zip(&islands).zip(&all_sums) {
        let engine = world.engine_of(island).expect("it is up");
        broken.extend(bodies(&engine, rows, sums).iter().map(|what| format!("island {island}: {what}")));
    }
    if world.has_groups() {
        broken.extend(crate::alike::differences(world)?);
    }
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("invariants:\n  {}", broken.join("\n  "))))
}

/// Reads all rows of an island that has just made a checkpoint and is at rest.
pub(crate) fn read(engine: &Engine<SimDisk>, island: IslandId) -> Result<(Rows, Sums), Failure> {
    let failed = |why: String| Failure::new(format!("snapshot of island {island}: {why}"));
    let all = engine.snapshot().range(&[0], &[255], usize::MAX).map_err(|e| failed(e.to_string()))?;
    let mut rows = Rows::new(island);
    let mut sums = Sums::new();
    for (key, value) in all {
        rows.take(&key, &value);
        if let Some(RowKey::Sums(ino, chunk)) = RowKey::from_bytes(&key) {
            sums.insert((ino, chunk), Vec::from_slice(&value).map_err(|e| failed(e.to_string()))?);
        }
    }
    Ok((rows, sums))
}

/// Every block of every body has its checksum, and no chunk of checksums is left over.
pub(crate) fn bodies(engine: &Engine<SimDisk>, rows: &Rows, sums: &Sums) -> Vec<String> {
    let mut broken = Vec::new();
    for (ino, chunk) in sums.keys() {
        let size = rows.inodes.get(ino).map_or(0, |row| row.attr.size);
        if chunk * SUMS_PER_CHUNK * BLOCK_BYTES >= size {
            broken.push(format!("checksums are left of {ino}, chunk {chunk}, length {size}"));
        }
    }
    let sum = |ino: Ino, block: u64| {
        let chunk = sums.get(&(ino, block / SUMS_PER_CHUNK));
        chunk.and_then(|sums| sums.get((block % SUMS_PER_CHUNK) as usize)).copied().unwrap_or(0)
    };
    let mut buffer = Vec::new();
    for (ino, row) in rows.inodes.iter().filter(|(_, row)| row.attr.kind == Kind::Regular) {
        let size = row.attr.size;
        let expected: Vec<u32> = (0..size.div_ceil(BLOCK_BYTES)).map(|block| sum(*ino, block)).collect();
        if size > 0
            && let Err(error) = engine.bodies().read(*ino, 0, size, size, &expected, &mut buffer)
        {
            broken.push(format!("body {ino}, {size} bytes: {error}"));
        }
    }
    broken
}
