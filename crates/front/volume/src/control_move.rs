//! Moves the records of groups from the store of a node into an etcd, while that node is stopped.
//!
//! The list of the cluster decides which place counts, and it changes last. So an order that was cut short is given again, and
//! copies the records anew. The other nodes may run: they ask the node that each volume names, and that one asks etcd from then on.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_control::{ClusterStore, ControlStore, DataDir, EmbeddedStore, GroupStore};
use atoll_core::{IslandId, VolumeId};
use atoll_etcd::EtcdStore;
use atoll_proto::cluster::{Cluster, ClusterNode, StoredCluster};
use atoll_proto::control::VolumeSummary;
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Control, ControlPlace, ControlReply, GroupRecord, VolumeConfig};
use atoll_rpc::Address;

use crate::ask::{NoAnswer, QUESTION, ask_all, strange, try_ask};
use crate::{control, credentials, own_etcd};

/// What was moved.
#[derive(Debug)]
pub struct Moved {
    /// Where to, for people.
    pub place: String,
    /// How many records.
    pub groups: usize,
    /// The other nodes of the cluster: they ask etcd themselves once they were started again.
    pub others: Vec<String>,
}

type Groups = Vec<(VolumeId, IslandId, GroupRecord)>;

/// Moves the records that the stopped node with this data directory has. `listen`: where its member of the cluster's own etcd shall
/// listen.
pub fn move_groups(data: &Path, to: &ControlPlace, listen: &str) -> Result<Moved> {
    let dir = DataDir::open(data)?;
    let own = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
    let Some(list) = own.cluster()? else {
        bail!(
            "This node is in no cluster with certificates.\nSuch a cluster is made by \"atoll init\", in an empty data directory."
        );
    };
    let me = dir.identity().node.0;
    let StoredCluster { revision, cluster } = &list;
    if let Some(source) = control::source(dir.path(), cluster)? {
        bail!("The records of groups are in {source} already.\nNothing was changed.");
    }
    if cluster.store != me {
        let keeper = cluster.node(cluster.store).map_or("another node", |node| &node.name);
        bail!(
            "{keeper} keeps the list of the cluster, so that is where to give this order.\nNothing was changed."
        );
    }
    let volumes = own.volumes()?;
    for volume in &volumes {
        check_store(volume, me)?;
    }
    check_others(cluster, me, &volumes)?;
    let (above, groups) = groups(&own, &volumes)?;
    let mut next = cluster.clone();
    next.control = to.clone();
    match to {
        ControlPlace::Nodes => bail!("They are there already.\nNothing was changed."),
        ControlPlace::Etcd { text } => {
            let source = control::named(text)?;
            control::check(&source)?;
            let store = EtcdStore::open(&source, dir.identity().cluster).context("no thread for etcd")?;
            store.rebuild(above, &groups)?;
        }
        ControlPlace::OwnEtcd => {
            let node = own_node(cluster, me)?;
            own_etcd::check(listen, &node.address)?;
            let (authority, key) = credentials::authority_and_key(&dir)?;
            own_etcd::make_first(dir.path(), &next, node, listen, (&authority, &key), |store| {
                Ok(store.rebuild(above, &groups)?)
            })?;
        }
    }
    // From here on etcd counts.
    match own.swap_cluster(*revision, &next) {
        Swapped::Done { .. } => {}
        Swapped::Conflict => {
            bail!("The cluster's list was changed meanwhile.\nNothing was moved. Try again.")
        }
        Swapped::Unknown { why } => bail!("The cluster's list cannot be stored: {why}."),
    }
    let place = control::source(dir.path(), &next)?.map_or(String::new(), |source| source.to_string());
    let others = next.nodes.iter().filter(|node| node.daemon != me).map(|node| node.name.clone()).collect();
    Ok(Moved { place, groups: groups.len(), others })
}

fn own_node(cluster: &Cluster, me: u64) -> Result<&ClusterNode> {
    cluster.node(me).context("the list of the cluster does not have this node")
}

/// The records of a volume must be here.
fn check_store(volume: &VolumeConfig, me: u64) -> Result<()> {
    let Some(copies) = &volume.copies else { return Ok(()) };
    let store = volume.nodes.iter().find(|node| node.node == copies.store);
    if store.is_some_and(|node| node.daemon == me) {
        return Ok(());
    }
    bail!(
        "Volume {} has its records at {}, and only those of this node can be moved.\nNothing was changed.",
        volume.name,
        store.map_or("another node", |node| &node.address)
    )
}

/// No volume that this node does not know has its records elsewhere. All other nodes must answer.
fn check_others(cluster: &Cluster, me: u64, known: &[VolumeConfig]) -> Result<()> {
    let others = cluster.nodes.iter().filter(|node| node.daemon != me);
    let addresses: Vec<Address> = others.map(|node| node.address.parse()).collect::<Result<_, _>>()?;
    for (address, answer) in addresses.iter().zip(ask_all(&addresses, &Control::Describe, QUESTION)) {
        let volumes = match answer {
            Ok(ControlReply::Described { volumes, .. }) => volumes,
            Ok(_) => return Err(strange(address)),
            Err(why) => bail!(
                "{}\nAll other nodes must run, since each may have a volume that this one does not know. Nothing was changed.",
                first_line(why)
            ),
        };
        let is_known = |volume: &VolumeSummary| known.iter().any(|other| other.id == volume.id);
        for volume in volumes.iter().filter(|volume| !is_known(volume)) {
            match try_ask(address, Control::Volume { name: volume.name.clone() }, QUESTION) {
                Ok(ControlReply::Volume { config, .. }) => check_store(&config, me)?,
                Ok(_) => return Err(strange(address)),
                Err(why) => return Err(why.into_error()),
            }
        }
    }
    Ok(())
}

fn first_line(why: NoAnswer) -> String {
    crate::status::first_line(&why.into_error().to_string())
}

/// All records that are here, and the greatest revision that was given.
fn groups(own: &EmbeddedStore, volumes: &[VolumeConfig]) -> Result<(Revision, Groups)> {
    let (mut above, mut all) = (Revision::NONE, Vec::new());
    for volume in volumes.iter().filter(|volume| volume.copies.is_some()) {
        let found = own.groups(volume.id, Revision::NONE, Duration::ZERO)?;
        above = above.max(found.upto);
        all.extend(found.groups.into_iter().map(|stored| (volume.id, stored.island, stored.record)));
    }
    Ok((above, all))
}
