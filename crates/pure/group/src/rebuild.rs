//! The record of a group, made anew from what its copies remember, when the control store has lost it or was put back.
//!
//! Only values: reads no file and writes nothing. The new record is of an epoch that nobody has begun, and names a life that never
//! was. So whoever leads steps down, nobody takes the record for its own, and one of those in sync claims the next epoch.

use std::collections::BTreeMap;

use atoll_core::NodeId;
use atoll_proto::{GroupRecord, Host, Primary};

use crate::seat::SeatFile;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// The new record.
    pub record: GroupRecord,
    /// The greatest revision that a copy has seen. The new one must be greater, else copies take it for an old one.
    pub above: u64,
}

/// Why there is no new record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotRebuild {
    /// The newest record may be one of theirs: whoever it has dropped would lead with a part of the data.
    #[error("nodes of the group have not been heard: {0:?}")]
    NotHeard(Vec<NodeId>),
    /// No copy has ever read a record: the group is as it was made.
    #[error("no copy has ever read a record of the group")]
    NoRecord,
}

/// The record of a group of these nodes, by the seats of all its copies.
pub fn rebuilt(nodes: &[NodeId], seats: &BTreeMap<NodeId, SeatFile>) -> Result<Rebuilt, CannotRebuild> {
    let records = || seats.values().filter_map(|seat| seat.record.as_ref());
    let newest = records().max_by_key(|(revision, record)| (record.epoch, *revision));
    let sits = newest.iter().flat_map(|(_, record)| &record.in_sync).map(|seat| seat.node);
    let mut missing: Vec<NodeId> =
        nodes.iter().copied().chain(sits).filter(|node| !seats.contains_key(node)).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        return Err(CannotRebuild::NotHeard(missing));
    }
    let (_, newest) = newest.ok_or(CannotRebuild::NoRecord)?;
    let seen = seats.values().map(|seat| seat.seen).max().unwrap_or(0).max(newest.epoch);
    let epoch = seen.checked_add(1).expect("there are fewer epochs than numbers");
    let node = newest.primary.map_or(newest.in_sync[0].node, |primary| primary.node);
    let primary = Primary { node, life: 0, host: Host { boot: 0, inode: 0 }, attempt: 0 };
    // That something was lost in the newest epoch is rather said once too often than never.
    let record = GroupRecord { epoch, primary: Some(primary), ..newest.clone() };
    let above = records().map(|(revision, _)| *revision).max().unwrap_or(0);
    Ok(Rebuilt { record, above })
}
