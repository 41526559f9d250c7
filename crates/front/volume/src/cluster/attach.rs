//! A session of a cluster volume in this process, connected to each of the volume's nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::Result;
use atoll_client::{Client, Remote, Wire};
use atoll_core::{Ino, NodeId, SessionId, VolumePath};
use atoll_proto::control::{Connection, Metric, NodeLink, Trace};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_route::Listed;
use atoll_rpc::{Address, Relays};
use atoll_server::{LocalWay, Served};
use atoll_vfs::Files;

use super::files::ClusterFiles;
use crate::ask::{QUESTION, ask_all};
use crate::explain::Explanation;
use crate::kind::{Attached, AttachedStatus, Manner};
use crate::node::random;
use crate::places::SocketPlace;
use crate::reach::{Here, Reached};

/// How long a node that is up may take to be connected.
const CONNECT: Duration = Duration::from_secs(5);
/// How long islands may take to know the session; a node that starts is not ready for some seconds.
const READY: Duration = Duration::from_secs(10);

/// A way to a node.
enum Way {
    /// In this process; others reach it by this address.
    Local {
        local: Arc<dyn LocalWay>,
        served: Arc<dyn Served>,
        address: String,
    },
    Remote(Arc<Remote>, Address),
}

/// A session of a cluster volume, with a way to each of the nodes.
pub(super) struct ClusterVolume {
    pub(super) client: Arc<Client>,
    pub(super) config: VolumeConfig,
    ways: BTreeMap<NodeId, Way>,
    /// Keeps the folders open through which addresses may lead.
    _places: Vec<SocketPlace>,
}

/// Begins a session. Nodes that are down are connected when they return.
pub(super) fn attach(volume: Reached, manner: Manner) -> Result<ClusterVolume> {
    let Reached { config, here, others } = volume;
    let session = SessionId(random()?);
    let later: Arc<OnceLock<Weak<Client>>> = Arc::default();
    let (mut ways, mut wires) = (BTreeMap::new(), BTreeMap::new());
    let (mut alive, mut places) = (Vec::new(), Vec::new());
    if let Some(Here { served, address }) = here {
        let local = served.local();
        for island in served.islands() {
            wires.insert(island, Arc::clone(&local) as Arc<dyn Wire>);
        }
        ways.insert(served.node(), Way::Local { local, served, address });
    }
    let addresses: Vec<(NodeId, Address)> =
        others.iter().map(|other| (other.node, other.address.clone())).collect();
    for other in others {
        let Some(node) = config.nodes.iter().find(|n| n.node == other.node) else { continue };
        let relays = Relays {
            volume: config.id,
            to: other.node,
            others: addresses.iter().filter(|(relay, _)| *relay != other.node).cloned().collect(),
        };
        let islands = node.islands.clone();
        let remote = Remote::new(other.address.clone(), relays, islands, session, Arc::clone(&later));
        for island in &node.islands {
            wires.insert(*island, Arc::clone(&remote) as Arc<dyn Wire>);
        }
        alive.extend(other.alive.then(|| Arc::clone(&remote)));
        places.extend(other.place);
        ways.insert(other.node, Way::Remote(remote, other.address));
    }
    let route = atoll_route::Config {
        seed: config.seed,
        table: config.table.clone(),
        islands: config.islands(),
        session,
        mount: manner.mount,
        patience_ms: manner.patience_ms,
    };
    let client = Client::new(route, wires);
    let _ = later.set(Arc::downgrade(&client));
    for way in ways.values() {
        match way {
            Way::Local { local, .. } => local.connect(Arc::clone(&client) as _),
            Way::Remote(remote, _) => {
                let _ = remote.connect(Duration::ZERO);
            }
        }
    }
    for remote in alive {
        // One that died meanwhile is waited for like the others: not here.
        let _ = remote.connect(CONNECT);
    }
    client.wait_ready(READY);
    Ok(ClusterVolume { client, config, ways, _places: places })
}

impl ClusterVolume {
    /// The volume's nodes, and whether they are connected.
    fn nodes(&self) -> Vec<NodeLink> {
        let node = |n: &atoll_proto::NodeConfig| {
            let (address, connection) = match self.ways.get(&n.node) {
                Some(Way::Local { address, .. }) => (address.clone(), Connection::Direct),
                Some(Way::Remote(remote, address)) => (address.to_string(), remote.connection()),
                None => (n.address.clone(), Connection::Down),
            };
            NodeLink { node: n.node, address, islands: n.islands.clone(), connection }
        };
        self.config.nodes.iter().map(node).collect()
    }

    /// The traces of a file or directory at the islands of all nodes that answer.
    pub(super) fn traces(&self, ino: Ino) -> Vec<Trace> {
        let (mut traces, mut addresses) = (Vec::new(), Vec::new());
        for way in self.ways.values() {
            match way {
                Way::Local { served, .. } => traces.extend(served.trace(ino)),
                Way::Remote(_, address) => addresses.push(address.clone()),
            }
        }
        for answer in ask_all(&addresses, &Control::Trace { volume: self.config.id, ino }, QUESTION) {
            if let Ok(ControlReply::Traces { traces: more }) = answer {
                traces.extend(more);
            }
        }
        traces
    }
}

impl Attached for ClusterVolume {
    fn config(&self) -> &VolumeConfig {
        &self.config
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::new(ClusterFiles(Arc::clone(&self.client)))
    }

    fn status(&self) -> AttachedStatus {
        let mut metrics: Vec<Metric> = self.client.counters().list().map(Metric::count).collect();
        metrics.push(Metric::now("directories", self.client.dirs_len() as u64));
        AttachedStatus { metrics, nodes: self.nodes() }
    }

    fn explain(&self, names: &VolumePath, root: &Path) -> Result<Explanation> {
        super::explain::explain(self, names, root)
    }

    fn list(&self, names: VolumePath, shown: &Path) -> Result<Vec<Listed>> {
        super::list::list(self, names, shown)
    }

    /// Its locks and orphans go.
    fn stop(&self) {
        self.client.stop();
        for way in self.ways.values() {
            match way {
                Way::Local { local, .. } => local.disconnect(),
                Way::Remote(remote, _) => remote.stop(),
            }
        }
    }
}
