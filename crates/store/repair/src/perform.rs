//! Carries out a plan, by records in the logs of the islands, which are at rest. Decides nothing.
//!
//! A record holds all changes of one island up to the next point at which everything must be safe. So an
//! island has all of them or none, and another repair goes on from there.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::{Encode, IslandId};
use atoll_disk::Disk;
use atoll_dispatch::{Engine, Halted};
use atoll_proto::RowChange;

use crate::Plan;

/// Bytes of changes in one record, about: it must fit the log with one more, which may be as large.
const RECORD_BYTES: usize = 256 << 10;

/// Carries a plan out. When this returns, all of it survives a power cut. The islands still have to be
/// stopped in order.
pub fn perform<D: Disk>(engines: &[Arc<Engine<D>>], plan: &Plan) -> Result<(), Halted> {
    let mut records: BTreeMap<IslandId, Vec<RowChange>> = BTreeMap::new();
    for fix in &plan.fixes {
        if fix.after_all {
            write(engines, &mut records)?;
        }
        for (island, change) in &fix.changes {
            records.entry(*island).or_default().push(change.clone());
        }
    }
    write(engines, &mut records)
}

fn write<D: Disk>(
    engines: &[Arc<Engine<D>>],
    records: &mut BTreeMap<IslandId, Vec<RowChange>>,
) -> Result<(), Halted> {
    for (island, changes) in std::mem::take(records) {
        let Some(engine) = engines.iter().find(|engine| engine.id() == island) else { continue };
        if changes.iter().any(|change| matches!(change, RowChange::Sums { .. })) {
            // Bytes that are summed anew may have been written by a process that was killed.
            engine.disk().sync_everything().map_err(|why| Halted { island, why: why.to_string() })?;
        }
        let (mut record, mut bytes) = (Vec::new(), 0);
        for change in changes {
            bytes += change.to_vec().len();
            record.push(change);
            if bytes > RECORD_BYTES {
                engine.amend(std::mem::take(&mut record))?;
                bytes = 0;
            }
        }
        if !record.is_empty() {
            engine.amend(record)?;
        }
    }
    Ok(())
}
