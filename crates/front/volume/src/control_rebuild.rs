//! Makes the records of groups in etcd anew from what copies remember, after etcd has lost them or was restored from a copy.
//!
//! Nothing is written that could take the place of a later record: while copies are asked, etcd is empty and no group can change. They
//! are asked before that too, so that an order that cannot be done changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_etcd::EtcdStore;
use atoll_group::{CannotRebuild, SeatFile, rebuilt};
use atoll_proto::control::ToldSeat;
use atoll_proto::group::Revision;
use atoll_proto::{Control, ControlReply, GroupRecord, VolumeConfig};
use atoll_rpc::{Address, ClusterId};

use crate::ask::{QUESTION, ask, ask_all, strange};
use crate::control;
use crate::members::Members;
use crate::status::first_line;

/// After this no node waits for the answer to a change from before, or acts on one that it has not noted.
const SETTLED: Duration = Duration::from_secs(3);

/// What was written.
#[derive(Debug)]
pub struct Anew {
    /// Where, for people.
    pub place: String,
    /// How many records.
    pub groups: usize,
}

type Groups = Vec<(VolumeId, IslandId, GroupRecord)>;

/// Makes them anew, by the node of this machine with this data directory. All nodes must run.
pub fn rebuild(data: &Path) -> Result<Anew> {
    let list = Members::of_data(data)?.list(Some(data))?;
    let Some(source) = control::source(data, &list.cluster)? else {
        bail!(
            "The records of groups are in nodes, and in no etcd.\nNothing was changed. Restore control.redb from a backup."
        );
    };
    control::check(&source)?;
    let nodes: Vec<Address> =
        list.cluster.nodes.iter().map(|node| node.address.parse()).collect::<Result<_, _>>()?;
    let volumes = volumes(&nodes)?;
    records(&volumes).map_err(|why| why.context("Nothing was changed"))?;
    let store = EtcdStore::open(&source, ClusterId(list.cluster.id)).context("no thread for etcd")?;
    let before = store.empty()?;
    thread::sleep(SETTLED);
    let done = records(&volumes).and_then(|(above, groups)| {
        store.rebuild(above.max(before), &groups)?;
        Ok(groups.len())
    });
    let groups = done.map_err(|why| {
        let why = first_line(&format!("{why:#}"));
        anyhow::anyhow!("{why}\netcd has no records now, so no other copy can begin to lead. Give the order again when all nodes run.")
    })?;
    Ok(Anew { place: source.to_string(), groups })
}

/// All volumes with copies.
fn volumes(nodes: &[Address]) -> Result<Vec<VolumeConfig>> {
    let mut all: BTreeMap<VolumeId, VolumeConfig> = BTreeMap::new();
    for (address, answer) in nodes.iter().zip(ask_all(nodes, &Control::Describe, QUESTION)) {
        let volumes = match answer {
            Ok(ControlReply::Described { volumes, .. }) => volumes,
            Ok(_) => return Err(strange(address)),
            Err(why) => {
                let why = first_line(&why.into_error().to_string());
                bail!(
                    "{why}\nAll nodes must run, since the newest record may be known to one alone. Nothing was changed."
                );
            }
        };
        for volume in volumes.into_iter().filter(|volume| !all.contains_key(&volume.id)).collect::<Vec<_>>() {
            match ask(address, Control::Volume { name: volume.name }, QUESTION)? {
                ControlReply::Volume { config, .. } if config.copies.is_some() => {
                    all.insert(config.id, *config);
                }
                ControlReply::Volume { .. } => {}
                _ => return Err(strange(address)),
            }
        }
    }
    Ok(all.into_values().collect())
}

/// The new records, and the greatest revision that any copy has seen.
fn records(volumes: &[VolumeConfig]) -> Result<(Revision, Groups)> {
    let (mut above, mut all) = (0, Vec::new());
    for volume in volumes {
        let Some(copies) = &volume.copies else { continue };
        let told = seats(volume)?;
        for group in &copies.groups {
            let of: BTreeMap<NodeId, SeatFile> = told
                .iter()
                .filter_map(|(node, seats)| Some((*node, seats.iter().find(|s| s.island == group.island)?)))
                .map(|(node, seat)| (node, remembered(seat)))
                .collect();
            let record = match rebuilt(&group.nodes, &of) {
                Ok(anew) => {
                    above = above.max(anew.above);
                    anew.record
                }
                Err(CannotRebuild::NoRecord) => copies.first_record(group),
                Err(why) => bail!(
                    "Island {} of volume {}: {why}.\n\"atoll status\" shows its copies.",
                    group.island,
                    volume.name
                ),
            };
            all.push((volume.id, group.island, record));
        }
    }
    Ok((Revision(above), all))
}

fn seats(volume: &VolumeConfig) -> Result<Vec<(NodeId, Vec<ToldSeat>)>> {
    let addresses: Vec<Address> =
        volume.nodes.iter().map(|node| node.address.parse()).collect::<Result<_, _>>()?;
    let answers = ask_all(&addresses, &Control::Seats { volume: volume.id }, QUESTION);
    let of = |(node, answer): (NodeId, _)| match answer {
        Ok(ControlReply::Seats { seats }) => Ok((node, seats)),
        Ok(ControlReply::Refused { text }) => bail!("Node {node} of volume {}: {text}", volume.name),
        Ok(_) => bail!("Node {node} of volume {} gives another answer.", volume.name),
        Err(why) => Err(crate::ask::NoAnswer::into_error(why)),
    };
    volume.nodes.iter().map(|node| node.node).zip(answers).map(of).collect()
}

fn remembered(told: &ToldSeat) -> SeatFile {
    let record = told.record.as_ref().map(|stored| (stored.revision.0, stored.record.clone()));
    SeatFile { seen: told.seen, record, ..SeatFile::of_a_new_member() }
}
