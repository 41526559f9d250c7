//! A client of a volume in this process, with a way to each of the volume's nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::Result;
use atoll_client::{Client, Remote, Wire};
use atoll_core::{NodeId, SessionId};
use atoll_proto::VolumeConfig;
use atoll_proto::control::NodeLink;
use atoll_rpc::{Address, Relays};
use atoll_server::{LocalWay, Served};

use crate::node::random;

/// How long a node that is up may take to be connected.
const CONNECT: Duration = Duration::from_secs(5);
/// How long islands may take to know the session; a node that starts is not ready for some seconds.
const READY: Duration = Duration::from_secs(10);

/// How a client works.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// It is a mount, and not a tool.
    pub mount: bool,
    /// Milliseconds that an operation waits for a node that is away; none: for ever.
    pub patience_ms: Option<u64>,
}

/// A way to a node.
enum Way {
    /// In this process; others reach it by this address.
    Local(Arc<dyn LocalWay>, String),
    Remote(Arc<Remote>, Address),
}

/// A client and its ways.
pub struct Attached {
    /// The session.
    pub client: Arc<Client>,
    /// The volume.
    pub config: VolumeConfig,
    ways: BTreeMap<NodeId, Way>,
}

/// A node that is in another process.
pub struct Other {
    /// Its number in the volume.
    pub node: NodeId,
    /// Where it is reached from here.
    pub address: Address,
    /// It answered a moment ago, so it is worth waiting for.
    pub alive: bool,
}

/// Makes a client. Nodes that are down are connected when they return.
pub fn attach(
    config: VolumeConfig,
    here: Option<(&dyn Served, String)>,
    others: Vec<Other>,
    manner: Manner,
) -> Result<Attached> {
    crate::kind::check_volume(&config)?;
    let session = SessionId(random()?);
    let later: Arc<OnceLock<Weak<Client>>> = Arc::default();
    let (mut ways, mut wires, mut alive) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    if let Some((volume, address)) = here {
        let local = volume.local();
        for island in volume.islands() {
            wires.insert(island, Arc::clone(&local) as Arc<dyn Wire>);
        }
        ways.insert(volume.node(), Way::Local(local, address));
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
            Way::Local(local, _) => local.connect(Arc::clone(&client) as _),
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
    Ok(Attached { client, config, ways })
}

impl Attached {
    /// The volume's nodes, and whether they are connected.
    pub fn nodes(&self) -> Vec<NodeLink> {
        let node = |n: &atoll_proto::NodeConfig| {
            let (address, up) = match self.ways.get(&n.node) {
                Some(Way::Local(_, address)) => (address.clone(), true),
                Some(Way::Remote(remote, address)) => (address.to_string(), remote.is_up()),
                None => (n.address.clone(), false),
            };
            NodeLink { node: n.node, address, islands: n.islands.clone(), up }
        };
        self.config.nodes.iter().map(node).collect()
    }

    /// Ends the session: its locks and orphans go.
    pub fn stop(&self) {
        self.client.stop();
        for way in self.ways.values() {
            match way {
                Way::Local(local, _) => local.disconnect(),
                Way::Remote(remote, _) => remote.stop(),
            }
        }
    }
}
