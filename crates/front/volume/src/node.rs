//! A node in this process: data directory, control store, volumes, and the addresses where it listens.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_control::{DataDir, EmbeddedStore};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_etcd::{EtcdAdmin, EtcdControl, EtcdSource};
use atoll_proto::{Control, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::{Address, Bound, Listener, Options, Security};
use atoll_server::{Desk, Node, NodeSetup, NodeSites, VolumeError, VolumeOptions};

use crate::control;
use crate::credentials::{self, Watched};
use crate::own_etcd::Tending;
use crate::places::{SocketPlace, data_socket};

/// The control store of volumes that are being made, in a data directory.
const PREPARED: &str = "prepared.redb";

/// How often the newest configurations of volumes are read, and it is looked whether copies are to come or go.
const CARE: Duration = Duration::from_secs(2);

/// A daemon: a data directory in use, its volumes, and where it listens.
pub struct Daemon {
    /// Its volumes.
    pub node: Arc<Node>,
    /// The data directory, locked.
    pub dir: DataDir,
    listeners: Arc<Mutex<Vec<Listener>>>,
    /// Where commands of this machine ask it.
    pub socket: SocketPlace,
    /// Where it can be reached by TCP.
    pub tcp: Option<Address>,
    /// The store and its members, if the cluster runs an etcd of its own.
    own_etcd: Option<(Arc<EtcdControl>, EtcdSource)>,
}

/// The runtime options of this process for every volume.
pub fn options(dir: &DataDir, incarnation: u32) -> VolumeOptions {
    let uid = rustix::process::geteuid();
    VolumeOptions {
        rows_max: 40_000,
        snapshot_cache_bytes: 4 << 20,
        log: atoll_log::Config { boot: boot(), ..atoll_log::Config::default() },
        root: uid.is_root(),
        devices: uid.is_root(),
        owner: (uid.as_raw(), rustix::process::getegid().as_raw()),
        daemon: dir.identity().node,
        incarnation,
        directory: directory(dir.path()),
        is_new: false,
        reached: std::collections::BTreeMap::new(),
        beside: None,
        sites: NodeSites::default(),
    }
}

/// Number of a data directory in its file system; 0 if the system does not tell.
fn directory(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |stat| stat.ino())
}

/// Which boot of the machine this is; 0 where the system does not tell.
fn boot() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}

/// Opens the folder of an island, making it if the volume is new.
pub fn open_island(folder: &Path, island: IslandId, is_new: bool) -> Result<Arc<RealDisk>, VolumeError> {
    let path = folder.join(island.to_string());
    let io = |e| VolumeError::Open(atoll_dispatch::OpenError::Io(island, e));
    if is_new {
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(e)),
            _ => {}
        }
    } else if !path.is_dir() {
        return Err(VolumeError::Open(atoll_dispatch::OpenError::Missing(island, "folder")));
    }
    RealDisk::open(&path).map(Arc::new).map_err(io)
}

impl Daemon {
    /// Takes the data directory at `path`, making it if there is none. Serves nothing yet.
    pub fn take(path: &Path) -> Result<Self> {
        Self::take_for(path, std::process::id())
    }

    /// The same, in the name of the process that has begun this one ([`DataDir::open_or_create_for`]).
    pub fn take_for(path: &Path, process: u32) -> Result<Self> {
        let mut dir = DataDir::open_or_create_for(path, process)?;
        let secured = credentials::of_node(&dir)?;
        let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
        let prepared = EmbeddedStore::open(&dir.path().join(PREPARED))?;
        let incarnation = dir.begin_incarnation()?;
        let data = std::fs::canonicalize(dir.path())
            .with_context(|| format!("The data directory {} cannot be used", path.display()))?;
        control::read_list(&store, dir.identity().node)?;
        let control::Opened { store, own } = control::open(&data, store, dir.identity().cluster)?;
        let socket = data_socket(&data)?;
        let options = options(&dir, incarnation);
        let node = Node::new(NodeSetup {
            identity: dir.identity(),
            incarnation,
            sites: options.sites.clone(),
            data,
            store,
            secured,
            prepared: Box::new(prepared),
            kinds: Box::new(move |config| crate::kind::of(config.kind)?.serve(&options)),
        })?;
        if node.was_removed() {
            anyhow::bail!(
                "The node of {0} was removed from its cluster. Nothing was changed in {0}.\n\
                To join again, give another, empty data directory: atoll join LINE --data DIR",
                path.display()
            );
        }
        Ok(Self { node, dir, listeners: Arc::default(), socket, tcp: None, own_etcd: own })
    }

    /// A volume of this node alone, with so many islands, if there is none of that name. True if it
    /// was made. `address`: where other machines reach it; empty if they do not.
    pub fn make_volume(&self, name: &str, islands: u16, address: String) -> Result<()> {
        let config = VolumeConfig {
            id: VolumeId(random()?),
            name: name.to_owned(),
            seed: random()?,
            table: Table::new(islands),
            nodes: vec![NodeConfig {
                daemon: 0,
                node: NodeId(0),
                address,
                islands: (0..islands).map(IslandId).collect(),
            }],
            kind: VolumeKind::Cluster,
            copies: None,
            site: None,
        };
        self.node.prepare(&config, NodeId(0))?;
        self.node.activate(config.id)?;
        Ok(())
    }

    /// Takes connections on the data directory's socket, and on another one if it is given.
    pub fn listen(&mut self, bound: Option<Bound>) -> Result<()> {
        let mut places = vec![format!("unix:{}", self.socket.shown.display())];
        let mut listeners = Vec::new();
        if let Some(bound) = bound {
            let listener = Listener::start_on(bound, Arc::clone(&self.node) as _, Options::default())?;
            places.push(listener.address().to_string());
            self.tcp = Some(listener.address().clone());
            listeners.push(listener);
        }
        listeners.push(Listener::start(
            &self.socket.address,
            Arc::clone(&self.node) as _,
            Options::default(),
        )?);
        *self.listeners.lock().expect("no panic while it is held") = listeners;
        if let Some(security) = Security::of_process() {
            let watched = Watched {
                node: Arc::downgrade(&self.node),
                listeners: Arc::downgrade(&self.listeners),
                data: self.dir.path().to_owned(),
                security,
            };
            credentials::watch(watched)?;
            credentials::tell_place(Arc::downgrade(&self.node))?;
        }
        if let (Some((control, source)), Some(Address::Tcp { host, .. })) = (self.own_etcd.take(), &self.tcp)
        {
            let admin = EtcdAdmin::open(&source)?;
            let (node, data, listen) =
                (Arc::downgrade(&self.node), std::path::absolute(self.dir.path())?, host.clone());
            Tending { node, control, data, listen, source, admin, care: None }.start()?;
        }
        let node = Arc::downgrade(&self.node);
        let care = move || {
            while let Some(node) = node.upgrade() {
                node.care();
                drop(node);
                std::thread::sleep(CARE);
            }
        };
        std::thread::Builder::new().name("atoll-care".into()).spawn(care).context("no thread to be had")?;
        let counted = Arc::downgrade(&self.listeners);
        self.node.listens(places, move || {
            let Some(listeners) = counted.upgrade() else { return 0 };
            // While all links are being ended nobody is counted.
            listeners.try_lock().map_or(0, |all| all.iter().map(|l| l.links().len() as u32).sum())
        });
        Ok(())
    }

    /// Shows the node's metrics on an address from here on, as long as the process lives. The address, with its port.
    pub fn show_metrics(&self, address: std::net::SocketAddr) -> Result<std::net::SocketAddr> {
        let node = Arc::downgrade(&self.node);
        let page = move || match node.upgrade() {
            Some(node) => atoll_metrics::text(&node.answer(Control::Status)),
            None => String::new(),
        };
        atoll_metrics::serve(address, page).with_context(|| {
            format!("Metrics cannot be shown on {address}: is the address this machine's, and the port free?")
        })
    }

    /// Stops in order: other nodes lead, no more connections, then every volume synced and at rest.
    pub fn stop(self) -> Result<()> {
        self.node.leave();
        for listener in self.listeners.lock().expect("no panic while it is held").iter_mut() {
            listener.stop();
        }
        self.node.forget_process();
        let failed = self.node.stop();
        match failed.as_slice() {
            [] => Ok(()),
            all => anyhow::bail!(
                "{}.\nWhat was acknowledged is in the log, and comes back at the next start.",
                all.join("; ")
            ),
        }
    }
}

/// 64 bits that nobody can guess; never 0.
pub fn random() -> Result<u64> {
    use std::io::Read;
    let mut raw = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut raw))
        .context("no random numbers")?;
    Ok(u64::from_le_bytes(raw).max(1))
}
