//! A session of a cluster volume in this process, connected to each of the volume's nodes.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use atoll_client::{Client, NodePlace, Nodes, Sink, Wire};
use atoll_core::{Ino, IslandId, Key, SessionId, VolumePath};
use atoll_posix::{Answer, AnswerExtras, Caller, Errno, Op};
use atoll_proto::control::{Connection, Metric, NodeLink, Trace};
use atoll_proto::{Control, ControlReply, FileHandle, NodeConfig, Notice, Reply, VolumeConfig};
use atoll_route::ListedFile;
use atoll_rpc::{Address, Peer, Security};
use atoll_server::{LocalWay, Served, session_prefix};
use atoll_vfs::Files;
use bytes::Bytes;

use super::files::ClusterFiles;
use super::rooted::Rooted;
use crate::ask::{QUESTION, ask_all};
use crate::explain::Explanation;
use crate::kind::{Attached, AttachedStatus, Manner};
use crate::node::random;
use crate::places::SocketPlace;
use crate::reach::{self, Reached};

/// How long a node that is up may take to be connected.
const CONNECT: Duration = Duration::from_secs(5);
/// How long islands may take to know the session; a node that starts is not ready for some seconds.
const READY: Duration = Duration::from_secs(10);

/// How soon nodes are asked again for a configuration that one of them has.
const LOOK: Duration = Duration::from_secs(1);

/// The part of the volume that this process serves.
struct Here {
    local: Arc<dyn LocalWay>,
    served: Arc<dyn Served>,
    /// Where other processes reach it.
    address: String,
}

/// A session of a cluster volume, with a way to each of the nodes.
pub(super) struct ClusterVolume {
    pub(super) client: Arc<Client>,
    /// As in [`Reached`].
    root: Option<(Ino, Key)>,
    config: RwLock<Arc<VolumeConfig>>,
    here: Option<Here>,
    nodes: Arc<Nodes>,
    /// The versions of the configuration that nodes have.
    versions: Mutex<Option<Receiver<u64>>>,
    /// Keeps the folders open through which addresses may lead.
    _places: Vec<SocketPlace>,
}

/// Begins a session. Nodes that are down are connected when they return.
pub(super) fn attach(volume: Reached, manner: Manner) -> Result<ClusterVolume> {
    let Reached { config, here, others, root } = volume;
    // Whoever lets this process in looks whether the front of the id is its own.
    let prefix = match Security::of_process().map(|security| security.me()) {
        Some(Peer::Node(node)) => Some(session_prefix(node.0)),
        Some(Peer::Client(client)) => Some(session_prefix(client)),
        Some(Peer::Guest(_)) | None => None,
    };
    let drawn = random()?;
    let session = SessionId(prefix.map_or(drawn, |prefix| u64::from(prefix) << 32 | u64::from(drawn as u32)));
    let has_copies = config.copies.is_some();
    let places: Vec<NodePlace> = others
        .iter()
        .filter_map(|other| {
            let of_volume = config.nodes.iter().find(|n| n.node == other.node)?;
            Some(place(&config, of_volume, other.address.clone()))
        })
        .collect();
    let nodes = Nodes::new(config.id, session, &places);
    let mut wires = nodes.wires();
    let here = here.map(|reach::Here { served, address }| Here { local: served.local(), served, address });
    if let Some(Here { served, local, .. }) = &here {
        for island in served.islands().into_iter().filter(|_| !has_copies) {
            wires.insert(island, Arc::clone(local) as Arc<dyn Wire>);
        }
    }
    let route = atoll_route::Config {
        seed: config.seed,
        table: config.table.clone(),
        islands: config.islands(),
        session,
        mount: manner.mount,
        keeps: manner.keeps,
        patience_ms: manner.patience_ms,
        scope: root,
    };
    let client = Client::new(route, wires);
    let (told, versions) = channel();
    // Nobody listens any more when the volume is gone.
    nodes.on_config(Box::new(move |version| _ = told.send(version)));
    nodes.connect(&client);
    if let Some(Here { local, .. }) = &here {
        match has_copies {
            true => {
                let (client, nodes, wire) = (Arc::clone(&client), Arc::clone(&nodes), Arc::clone(local) as _);
                local.connect(Arc::new(HereSink { client, nodes, wire }));
            }
            false => local.connect(Arc::clone(&client) as _),
        }
    }
    for remote in others.iter().filter(|other| other.alive).filter_map(|other| nodes.get(other.node)) {
        // One that died meanwhile is waited for like the others: not here.
        let _ = remote.connect(CONNECT);
    }
    client.wait_ready(READY);
    let places = others.into_iter().filter_map(|other| other.place).collect();
    let (config, versions) = (RwLock::new(Arc::new(config)), Mutex::new(Some(versions)));
    let volume = ClusterVolume { client, root, config, here, nodes, versions, _places: places };
    if let Some((dir, _)) = root
        && volume.is_dir_gone(dir)
    {
        volume.stop();
        bail!(
            "The directory that this client sees does not exist any more.\n\
            Give it another one: atoll client remove, then atoll client add."
        );
    }
    Ok(volume)
}

/// A node as a client reaches it. Where an island with copies is, its primary says.
fn place(config: &VolumeConfig, node: &NodeConfig, address: Address) -> NodePlace {
    let (islands, copies) = match config.copies {
        Some(_) => (Vec::new(), config.islands_at(node.node)),
        None => (node.islands.clone(), Vec::new()),
    };
    NodePlace { node: node.node, daemon: node.daemon, address, islands, copies }
}

/// What the islands of this process tell the client, where any of their copies may lead.
struct HereSink {
    client: Arc<Client>,
    nodes: Arc<Nodes>,
    /// The way to them.
    wire: Arc<dyn Wire>,
}

impl Sink for HereSink {
    fn reply(&self, island: IslandId, id: u64, reply: Reply, data: &[u8]) {
        self.client.reply(island, id, reply, data);
    }

    fn notice(&self, island: IslandId, notice: Notice) {
        self.client.notice(island, notice);
    }

    fn reachable(&self, island: IslandId, up: bool) {
        if !up {
            self.nodes.ceases_here(island);
        }
    }

    fn replaced(&self, island: IslandId) {
        self.client.replaced(island);
    }

    fn leads(&self, island: IslandId, epoch: u32) {
        self.nodes.leads_here(island, epoch, Arc::clone(&self.wire));
    }

    fn config(&self, version: u64) {
        self.nodes.config(version);
    }
}

/// Follows the volume's configuration as long as the volume is there: nodes say which version they have.
pub(super) fn follow(volume: &Arc<ClusterVolume>) -> Result<()> {
    let taken = volume.versions.lock().expect("no panic while it is held").take();
    let (versions, volume) = (taken.expect("it is followed once"), Arc::downgrade(volume));
    let run = move || {
        let mut wanted = 0;
        loop {
            match versions.recv_timeout(LOOK) {
                Ok(version) => wanted = wanted.max(version),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(volume) = volume.upgrade() else { return };
            if volume.config().table.version() < wanted {
                volume.ask_for(wanted);
            }
        }
    };
    std::thread::Builder::new().name("atoll-config".into()).spawn(run)?;
    Ok(())
}

impl ClusterVolume {
    /// Whether an island says that a directory is gone. One that is away says nothing.
    fn is_dir_gone(&self, dir: Ino) -> bool {
        let (send, told) = sync_channel(1);
        let done = Box::new(move |outcome: Result<Answer, Errno>, _: AnswerExtras<'_>| {
            // Who asked may have given up.
            let _ = send.send(match outcome {
                // It may be kept for a mount that has it open.
                Ok(Answer::Attr { attr }) => attr.nlink == 0,
                outcome => outcome == Err(Errno::ESTALE),
            });
        });
        let ticket = self.client.submit(&Caller::ROOT, Op::GetAttr { ino: dir }, Bytes::new(), done);
        told.recv_timeout(READY).unwrap_or_else(|_| {
            self.client.abandon(ticket);
            false
        })
    }

    /// The volume's nodes, and whether they are connected.
    fn node_links(&self) -> Vec<NodeLink> {
        let here = |node| self.here.as_ref().filter(|here| here.served.node() == node);
        let link = |n: &NodeConfig| {
            let (address, connection) = match (here(n.node), self.nodes.get(n.node)) {
                (Some(here), _) => (here.address.clone(), Connection::Direct),
                (None, Some(remote)) => (remote.address().to_string(), remote.connection()),
                (None, None) => (n.address.clone(), Connection::Down),
            };
            NodeLink { node: n.node, address, islands: self.islands_of(n), connection }
        };
        self.config().nodes.iter().map(link).collect()
    }

    /// Asks the nodes for a configuration of this version, or a later one.
    fn ask_for(&self, version: u64) {
        let config = self.config();
        let own = self.here.iter().map(|here| VolumeConfig::clone(&here.served.config()));
        let addresses: Vec<Address> = self.nodes.addresses();
        let order = Control::Volume { name: config.name.clone() };
        let told = ask_all(&addresses, &order, QUESTION).into_iter().filter_map(|answer| match answer {
            Ok(ControlReply::Volume { config, .. }) => Some(*config),
            _ => None,
        });
        let newest = own.chain(told).max_by_key(|config| config.table.version());
        if let Some(next) = newest.filter(|next| next.table.version() >= version)
            && let Err(why) = self.take_config(&next)
        {
            tracing::error!("{why:#}");
        }
    }

    /// The islands that are asked at a node.
    fn islands_of(&self, n: &NodeConfig) -> Vec<IslandId> {
        if self.config().copies.is_none() {
            return n.islands.clone();
        }
        let is_here = self.here.as_ref().is_some_and(|here| here.served.node() == n.node);
        self.nodes.led_by((!is_here).then_some(n.node))
    }

    /// The node at which an island is asked.
    pub(super) fn node_of(&self, island: IslandId) -> Option<NodeConfig> {
        self.config().nodes.iter().find(|n| self.islands_of(n).contains(&island)).cloned()
    }

    /// The traces of a file or directory at the islands of all nodes that answer.
    pub(super) fn traces(&self, ino: Ino) -> Vec<Trace> {
        let mut traces: Vec<Trace> = self.here.iter().flat_map(|here| here.served.trace(ino)).collect();
        let config = self.config();
        let remotes = config.nodes.iter().filter_map(|n| self.nodes.get(n.node));
        let addresses: Vec<Address> = remotes.map(|remote| remote.address().clone()).collect();
        for answer in ask_all(&addresses, &Control::Trace { volume: config.id, ino }, QUESTION) {
            if let Ok(ControlReply::Traces { traces: more }) = answer {
                traces.extend(more);
            }
        }
        traces
    }
}

impl Attached for ClusterVolume {
    fn config(&self) -> Arc<VolumeConfig> {
        Arc::clone(&self.config.read().expect("no panic while it is held"))
    }

    fn take_config(&self, next: &VolumeConfig) -> Result<()> {
        let mut config = self.config.write().expect("no panic while it is held");
        let refused = |why: &dyn std::fmt::Display| anyhow!("Volume {} cannot be used so: {why}.", next.name);
        if !config.is_replaced_by(next).map_err(|why| refused(&why))? {
            return Ok(());
        }
        let me = self.here.as_ref().map(|here| here.served.node());
        let mut places = Vec::new();
        for node in next.nodes.iter().filter(|n| Some(n.node) != me) {
            // One that stays where it was may be reached from here in another way than from elsewhere.
            let stays =
                config.nodes.iter().any(|known| (known.node, &known.address) == (node.node, &node.address));
            let known = self.nodes.get(node.node).filter(|_| stays).map(|remote| remote.address().clone());
            let address = known.map_or_else(|| node.address.parse(), Ok).map_err(|why| refused(&why))?;
            places.push(place(next, node, address));
        }
        if let Some(here) = &self.here
            && next.copies.is_none()
            && next.islands_at(here.served.node()) != here.served.islands()
        {
            return Err(refused(&"islands of this process cannot come or go while they are used"));
        }
        self.nodes.change(&places);
        self.client.take_table(next.table.clone());
        *config = Arc::new(next.clone());
        Ok(())
    }

    fn files(&self) -> Arc<dyn Files> {
        let files = ClusterFiles(Arc::clone(&self.client));
        match self.root {
            None => Arc::new(files),
            Some((root, _)) => Arc::new(Rooted { files, root }),
        }
    }

    fn root(&self) -> Option<(Ino, Key)> {
        self.root
    }

    fn status(&self) -> AttachedStatus {
        let mut metrics: Vec<Metric> = self.client.counters().list().map(Metric::count).collect();
        metrics.push(Metric::now("directories", self.client.dirs_len() as u64));
        AttachedStatus { metrics, nodes: self.node_links() }
    }

    fn directory(&self, names: &VolumePath, shown: &str) -> Result<(Ino, Key)> {
        super::explain::directory(self, names, shown)
    }

    fn is_gone(&self, dir: Ino, key: Key) -> bool {
        self.client.know(&FileHandle::Dir { ino: dir, key }).is_ok_and(|dir| self.is_dir_gone(dir))
    }

    fn explain(&self, names: &VolumePath, root: &Path) -> Result<Explanation> {
        super::explain::explain(self, names, root)
    }

    fn list(&self, names: VolumePath, shown: &Path) -> Result<Vec<ListedFile>> {
        if self.root.is_some() {
            bail!(
                "This client sees a part of volume {} only, and a listing as of one moment is one of all of it.\nUse ls(1).",
                self.config().name
            );
        }
        super::list::list(self, names, shown)
    }

    /// Its locks and orphans go.
    fn stop(&self) {
        self.client.stop();
        if let Some(here) = &self.here {
            here.local.disconnect();
        }
        self.nodes.stop();
    }
}
