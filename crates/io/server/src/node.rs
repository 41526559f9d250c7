//! A node: the volumes of its control store, who is let in to them, and orders.
//!
//! A volume is made in two steps, so that either all of its nodes have it or none: first it is prepared
//! (stored, but not served to anybody), then active. If a node hears nothing after the first step, it learns
//! the outcome from the others: a node that connects for that volume has it active.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use atoll_control::{ControlError, ControlStore, Identity, VolumeRef};
use atoll_core::{Malformed, NodeId, VolumeId};
use atoll_proto::{CertificateFor, Grant, VolumeConfig};
use atoll_rpc::{
    Acceptor, Address, Closed, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link, Onward,
    Reason, Role, Shown,
};

use crate::desk;
use crate::member;
use crate::membership::{LetIn, Membership, Principal, Secured, Told};
use crate::served::{Place, Serve, Served};
use crate::volume::VolumeError;
use crate::wide::NodeSites;

/// After this a volume that was prepared and not heard of again makes room for another of its name.
const PREPARED_MAX: Duration = Duration::from_secs(60);

/// Gives the server of a volume, by its kind. The error says why it cannot be served, and what to do next.
pub type Kinds = Box<dyn Fn(&VolumeConfig) -> Result<Arc<dyn Serve>, String> + Send + Sync>;

/// Why a node does not carry out an order.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The control store says no, or fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The volume's islands cannot be opened.
    #[error("Volume {volume} cannot be served: {why}.\n{next}")]
    Volume {
        /// Its name.
        volume: String,
        /// Why.
        why: String,
        /// What to do: one or two lines.
        next: String,
    },
    /// The folder of a volume that the control store does not know.
    #[error(
        "{} holds a volume that the control store of {} does not know: was control.redb lost or replaced?\n\
        Nothing was changed. To take the volume up again as it is: atoll volume adopt {volume} --data {}",
        folder.display(), data.display(), data.display()
    )]
    Unknown {
        /// Its name.
        volume: String,
        /// The folder.
        folder: PathBuf,
        /// The data directory.
        data: PathBuf,
    },
    /// The folder that should hold the islands is not there.
    #[error("Volume {volume} cannot be served: its folder {} is missing.\n\
            Is its disk mounted? Nothing was made in its place.", folder.display())]
    FolderMissing {
        /// The volume's name.
        volume: String,
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("Volume {volume} cannot be served: {} cannot be used: {why}.", folder.display())]
    Folder {
        /// The volume's name.
        volume: String,
        /// The folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// The volume is of a kind that cannot be served.
    #[error("Volume {volume} cannot be served: {why}")]
    Kind {
        /// Its name.
        volume: String,
        /// Why, and what to do next.
        why: String,
    },
    /// What is known of the cluster cannot be used.
    #[error("The node of {} cannot be started: {why}\nRestore control.redb from a backup.", data.display())]
    Cluster {
        /// The data directory.
        data: PathBuf,
        /// The reason.
        why: String,
    },
    /// The volume cannot get such a configuration while it is served.
    #[error("Volume {volume} cannot be changed so: {why}.\nNothing was changed.")]
    Config {
        /// Its name.
        volume: String,
        /// Why.
        why: String,
    },
    /// Another command makes a volume of this name.
    #[error("Volume {volume} is being made by another command.\nWait for it, or try again in a minute.")]
    BeingMade {
        /// Its name.
        volume: String,
    },
    /// The second step without the first.
    #[error("Volume {volume} was not prepared here.\nStart again with \"atoll volume create\".")]
    NotPrepared {
        /// The volume.
        volume: VolumeRef,
    },
}

/// The parts of a node.
pub struct NodeSetup {
    /// Whose data directory it is.
    pub identity: Identity,
    /// Its data directory.
    pub data: PathBuf,
    /// The store of its volumes.
    pub store: Arc<dyn ControlStore>,
    /// Its certificates; none in a cluster that trusts its network.
    pub secured: Option<Secured>,
    /// The store of volumes that are being made.
    pub prepared: Box<dyn ControlStore>,
    /// Number of the node's starts.
    pub incarnation: u32,
    /// The servers of its volumes.
    pub kinds: Kinds,
    /// What its sites share.
    pub sites: NodeSites,
}

/// A node's part of a volume, or why it is not served.
///
/// Opening -> Served; Opening -> Failed.
pub(crate) enum Part {
    /// It greets, and its islands are not open. `is_new`: its member file does not say yet that they were made.
    Opening {
        served: Arc<dyn Served>,
        is_new: bool,
    },
    Served(Arc<dyn Served>),
    Failed {
        config: Arc<VolumeConfig>,
        node: Option<NodeId>,
        why: String,
    },
}

impl Part {
    pub(crate) fn config(&self) -> Arc<VolumeConfig> {
        match self {
            Self::Served(volume) | Self::Opening { served: volume, .. } => volume.config(),
            Self::Failed { config, .. } => Arc::clone(config),
        }
    }

    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Served(volume) | Self::Opening { served: volume, .. } => Some(volume.node()),
            Self::Failed { node, .. } => *node,
        }
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Served(_) | Self::Opening { .. } => None,
            Self::Failed { why, .. } => Some(why),
        }
    }
}

/// A daemon's volumes.
pub struct Node {
    pub(crate) setup: NodeSetup,
    /// The cluster, if it has certificates.
    pub(crate) cluster: Option<Membership>,
    pub(crate) parts: RwLock<BTreeMap<VolumeId, Part>>,
    pub(crate) keepers: crate::changes::Keepers,
    /// One change of the set of volumes at a time; when each volume was prepared.
    changing: Mutex<BTreeMap<VolumeId, Instant>>,
    pub(crate) about: Mutex<crate::orders::About>,
    pub(crate) started: Instant,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("data", &self.setup.data).finish_non_exhaustive()
    }
}

impl Node {
    /// A node that serves nothing yet.
    pub fn new(mut setup: NodeSetup) -> Result<Arc<Self>, NodeError> {
        let membership = |secured| Membership::new(setup.identity.node, secured, Arc::clone(&setup.store));
        let cluster = setup.secured.take().map(membership).transpose();
        let cluster = cluster.map_err(|why| NodeError::Cluster { data: setup.data.clone(), why })?;
        Ok(Arc::new(Self {
            setup,
            cluster,
            parts: RwLock::default(),
            keepers: Mutex::default(),
            changing: Mutex::default(),
            about: Mutex::default(),
            started: Instant::now(),
        }))
    }

    pub(crate) fn changing(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Instant>> {
        self.changing.lock().expect("no panic while it is held")
    }

    /// Begins every volume of the control store: its other nodes are greeted, and are let in if this node listens, so that
    /// they hear of this life of it before its islands are open. What fails is remembered, and the others are begun all the
    /// same. [`Node::open_all`] follows.
    pub fn greet_all(&self) -> Result<Vec<NodeError>, NodeError> {
        let _one = self.changing();
        let volumes = self.setup.store.volumes()?;
        Ok(volumes.into_iter().filter_map(|config| self.greet(config).err()).collect())
    }

    /// Opens the islands of all volumes that were begun, and serves these. What fails is remembered, and the others are
    /// served all the same.
    pub fn open_all(&self) -> Vec<NodeError> {
        let _one = self.changing();
        let parts = self.parts.read().expect("no panic while it is held");
        let mut volumes: Vec<_> = parts.values().map(Part::config).collect();
        drop(parts);
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes.into_iter().filter_map(|config| self.open(config.id).err()).collect()
    }

    /// Serves every volume of the control store: [`Node::greet_all`], then [`Node::open_all`].
    pub fn serve_all(&self) -> Result<Vec<NodeError>, NodeError> {
        let mut failed = self.greet_all()?;
        failed.extend(self.open_all());
        Ok(failed)
    }

    /// A volume that is served, by its name.
    pub fn volume(&self, name: &str) -> Option<Arc<dyn Served>> {
        let parts = self.parts.read().expect("no panic while it is held");
        parts.values().find_map(|part| match part {
            Part::Served(volume) if volume.config().name == name => Some(Arc::clone(volume)),
            _ => None,
        })
    }

    fn volume_by_id(&self, id: VolumeId) -> Option<Arc<dyn Served>> {
        match self.parts.read().expect("no panic while it is held").get(&id) {
            Some(Part::Served(volume) | Part::Opening { served: volume, .. }) => Some(Arc::clone(volume)),
            _ => None,
        }
    }

    /// First step: keeps what is needed to serve the volume, and promises to.
    pub fn prepare(&self, config: &VolumeConfig, node: NodeId) -> Result<(), NodeError> {
        self.kind(config)?;
        let mut since = self.changing();
        let by_name: VolumeRef = config.name.as_str().into();
        match self.setup.store.volume(&by_name) {
            Ok(_) => return Err(ControlError::Taken { volume: by_name }.into()),
            Err(ControlError::NotFound { .. }) => {}
            Err(why) => return Err(why.into()),
        }
        match self.setup.prepared.volume(&by_name) {
            Ok(other) => {
                if since.get(&other.id).is_some_and(|at| at.elapsed() < PREPARED_MAX) {
                    return Err(NodeError::BeingMade { volume: config.name.clone() });
                }
                self.discard_prepared(other.id)?;
            }
            Err(ControlError::NotFound { .. }) => {}
            Err(why) => return Err(why.into()),
        }
        // The name of an old volume whose folder was left behind is not free.
        let folder = member::folder(&self.setup.data, &config.name);
        if folder.exists() {
            let data = self.setup.data.clone();
            return Err(NodeError::Unknown { volume: config.name.clone(), folder, data });
        }
        self.setup.prepared.create_volume(config)?;
        if let Err(e) = member::make(&self.setup.data, config, node) {
            let _ = self.discard_prepared(config.id);
            let folder = self.setup.data.join(member::ISLANDS);
            return Err(NodeError::Folder { volume: config.name.clone(), folder, why: e.to_string() });
        }
        if let Err(why) = self.create_groups(config, node) {
            let _ = self.discard_prepared(config.id);
            return Err(why.into());
        }
        since.insert(config.id, Instant::now());
        Ok(())
    }

    /// Puts the first group records of a volume into the store, if this node has the volume's. All nodes have prepared before
    /// one activates, so the records are there before anybody leads an island.
    fn create_groups(&self, config: &VolumeConfig, node: NodeId) -> Result<(), ControlError> {
        match &config.copies {
            Some(copies) if copies.store == node => {
                let first = copies.groups.iter().map(|group| (group.island, copies.first_record(group)));
                self.setup.store.create_groups(config.id, &first.collect::<Vec<_>>())
            }
            _ => Ok(()),
        }
    }

    /// Second step: serves it. Fine if it is served already.
    pub fn activate(&self, id: VolumeId) -> Result<(), NodeError> {
        let mut since = self.changing();
        if self.volume_by_id(id).is_some() {
            return Ok(());
        }
        let config = match self.setup.store.volume(&id.into()) {
            // Decided in an earlier life of this process, or an earlier attempt failed.
            Ok(config) => config,
            Err(ControlError::NotFound { .. }) => {
                let config = match self.setup.prepared.volume(&id.into()) {
                    Err(ControlError::NotFound { volume }) => return Err(NodeError::NotPrepared { volume }),
                    other => other?,
                };
                // This is the moment from which on the node has the volume.
                self.setup.store.create_volume(&config)?;
                config
            }
            Err(why) => return Err(why.into()),
        };
        since.remove(&id);
        self.serve(config)
    }

    /// Instead of the second step. Does nothing to a volume that is active.
    pub fn discard(&self, id: VolumeId) -> Result<(), NodeError> {
        let mut since = self.changing();
        since.remove(&id);
        match self.setup.store.volume(&id.into()) {
            Ok(_) => Ok(()),
            Err(ControlError::NotFound { .. }) => self.discard_prepared(id),
            Err(why) => Err(why.into()),
        }
    }

    /// A volume that is served has this configuration from now on, if it is newer than the one that is known: other nodes,
    /// at other addresses, with other islands. It is stored first, so that it counts after a restart too. Copies come
    /// and go; islands of this node that are alone stay: stop it to give it others.
    pub fn take_config(&self, next: &VolumeConfig) -> Result<(), NodeError> {
        let _one = self.changing();
        let not_found = || NodeError::from(ControlError::NotFound { volume: next.id.into() });
        let served = self.volume_by_id(next.id).ok_or_else(not_found)?;
        let refused =
            |why: VolumeError| NodeError::Config { volume: next.name.clone(), why: why.to_string() };
        if !served.may_take(next).map_err(refused)? {
            return Ok(());
        }
        let stored = self.setup.store.volume(&next.id.into())?.table.version();
        // A command that was interrupted may have stored it already.
        if stored < next.table.version() {
            self.setup.store.replace_volume(next, stored)?;
        }
        // Islands that were alone look first at what the folder has.
        served.take_config(next).map_err(refused)?;
        let folder = member::folder(&self.setup.data, &next.name);
        let is_told =
            member::kept_config(&folder).is_ok_and(|kept| kept.copies.is_some() == next.copies.is_some());
        if !is_told {
            return Ok(());
        }
        member::keep_config(&folder, next).or_else(unless_full).map_err(|e| NodeError::Folder {
            volume: next.name.clone(),
            folder,
            why: e.to_string(),
        })
    }

    /// The server for volumes of this one's kind.
    fn kind(&self, config: &VolumeConfig) -> Result<Arc<dyn Serve>, NodeError> {
        let refused = |why| NodeError::Kind { volume: config.name.clone(), why };
        (self.setup.kinds)(config).map_err(refused)
    }

    fn discard_prepared(&self, id: VolumeId) -> Result<(), NodeError> {
        if let Err(e) = member::discard(&self.setup.data, id) {
            let folder = member::hidden_folder(&self.setup.data, id);
            let volume = format!("{:016x}", id.0);
            return Err(NodeError::Folder { volume, folder, why: e.to_string() });
        }
        self.setup.store.discard_groups(id)?;
        match self.setup.prepared.remove_volume(id) {
            Ok(()) | Err(ControlError::NotFound { .. }) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Serves a volume that the control store has. The caller holds `changing`.
    fn serve(&self, config: VolumeConfig) -> Result<(), NodeError> {
        let id = config.id;
        self.greet(config)?;
        self.open(id)
    }

    /// Begins a volume that the control store has. The caller holds `changing`.
    fn greet(&self, config: VolumeConfig) -> Result<(), NodeError> {
        let mut node = None;
        let (id, config) = (config.id, Arc::new(config));
        let (part, result) = match self.begin(&config, &mut node) {
            Ok(part) => (part, Ok(())),
            Err(why) => (Part::Failed { config, node, why: why.to_string() }, Err(why)),
        };
        self.parts.write().expect("no panic while it is held").insert(id, part);
        result
    }

    fn begin(&self, config: &VolumeConfig, number: &mut Option<NodeId>) -> Result<Part, NodeError> {
        let kind = self.kind(config)?;
        let name = || config.name.clone();
        let folder = member::folder(&self.setup.data, &config.name);
        let strange = |why: String| NodeError::Folder { volume: name(), folder: folder.clone(), why };
        member::decide(&self.setup.data, config).map_err(|e| strange(e.to_string()))?;
        // A volume that is served is in the other store, and usually no longer in this one. What cannot be removed
        // now is removed when the volume is opened again.
        let _ = self.setup.prepared.remove_volume(config.id);
        let member = match member::member(&folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !folder.exists() => {
                return Err(NodeError::FolderMissing { volume: name(), folder });
            }
            other => other.map_err(|e| strange(e.to_string()))?,
        };
        if member.volume != config.id {
            return Err(strange("it belongs to another volume".to_owned()));
        }
        *number = Some(member.node);
        let (data, is_new) = (&self.setup.data, !member.made);
        let store = &self.setup.store;
        let at = Place { config, node: member.node, data, folder: &folder, is_new, store };
        Ok(Part::Opening { served: kind.serve(&at)?, is_new })
    }

    /// Opens the islands of a volume that was begun. The caller holds `changing`.
    fn open(&self, id: VolumeId) -> Result<(), NodeError> {
        let (served, is_new) = match self.parts.read().expect("no panic while it is held").get(&id) {
            Some(Part::Opening { served, is_new }) => (Arc::clone(served), *is_new),
            _ => return Ok(()),
        };
        let opened = Self::let_in(&*served, is_new, &self.setup.data);
        let part = match &opened {
            Ok(()) => Part::Served(served),
            Err(why) => {
                // What went wrong is told already.
                let _ = served.stop();
                Part::Failed { config: served.config(), node: Some(served.node()), why: why.to_string() }
            }
        };
        self.parts.write().expect("no panic while it is held").insert(id, part);
        opened
    }

    fn let_in(served: &dyn Served, is_new: bool, data: &Path) -> Result<(), NodeError> {
        served.open()?;
        let config = served.config();
        let folder = member::folder(data, &config.name);
        let noted = member::keep_config(&folder, &config)
            .and_then(|()| if is_new { member::note_made(&folder, &config, served.node()) } else { Ok(()) });
        noted.or_else(unless_full).and_then(|()| served.begin()).map_err(|e| NodeError::Folder {
            volume: config.name.clone(),
            folder,
            why: e.to_string(),
        })
    }

    /// Why a volume of this name is not served, if it should be.
    pub fn problem(&self, name: &str) -> Option<String> {
        let parts = self.parts.read().expect("no panic while it is held");
        let part = parts.values().find(|part| part.config().name == name)?;
        part.problem().map(str::to_owned)
    }

    /// Volumes whose folders lie in the data directory, but which the control store does not know.
    pub fn unknown(&self) -> Vec<NodeError> {
        let kept = member::volumes_kept(&self.setup.data).unwrap_or_default();
        let known = self.names();
        let unknown = kept.into_iter().filter(|name| !known.contains(name));
        let data = &self.setup.data;
        unknown
            .map(|volume| NodeError::Unknown {
                folder: member::folder(data, &volume),
                volume,
                data: data.clone(),
            })
            .collect()
    }

    /// Before it stops, while links are up: other nodes lead what they can, and wait for none of this one.
    pub fn leave(&self) {
        let parts = self.parts.read().expect("no panic while it is held");
        let served: Vec<_> = parts
            .values()
            .filter_map(|part| if let Part::Served(volume) = part { Some(Arc::clone(volume)) } else { None })
            .collect();
        drop(parts);
        served.iter().for_each(|volume| volume.leave());
    }

    /// Stops all volumes in order; what went wrong.
    pub fn stop(&self) -> Vec<String> {
        let _one = self.changing();
        let parts = std::mem::take(&mut *self.parts.write().expect("no panic while it is held"));
        let mut failed = Vec::new();
        for part in parts.into_values() {
            if let Part::Served(volume) | Part::Opening { served: volume, .. } = part {
                failed.extend(volume.stop());
            }
        }
        failed
    }

    /// The volume that a link was let in to.
    fn of_link(link: &Arc<Link>) -> Option<&Arc<dyn Served>> {
        link.context::<LetIn>().map(|let_in| &let_in.volume)
    }
}

/// A step that is only a precaution finds no space: the disk is full, which is no reason not to serve its
/// files.
pub(crate) fn unless_full(error: std::io::Error) -> std::io::Result<()> {
    if atoll_disk::is_no_space(&error) { Ok(()) } else { Err(error) }
}

impl Node {
    /// Whom a greeting is from, and that it claims nothing that is not its own.
    fn check_claims(&self, principal: &Principal, role: &Role) -> Result<(), Goodbye> {
        let Principal::Node(daemon) = principal else { return Ok(()) };
        let claimed: &[(VolumeId, NodeId)] = match role {
            Role::Node { members, .. } => members,
            Role::Relayed { volume, by } => &[(*volume, *by)],
            Role::Client { .. } | Role::Tool | Role::Relay { .. } => &[],
        };
        for (volume, node) in claimed {
            // One that is being made counts too: its nodes greet each other first.
            let config = match self.volume_by_id(*volume) {
                Some(served) => (*served.config()).clone(),
                None => match self.setup.prepared.volume(&(*volume).into()) {
                    Ok(config) => config,
                    Err(_) => return Err(Goodbye::new(Reason::NoSuchVolume, "it is not served here")),
                },
            };
            if config.daemon_of(*node) != Some(daemon.0) {
                let what = format!("node {node} of volume {} is another node of the cluster", config.name);
                return Err(Goodbye::new(Reason::NotAllowed, what));
            }
        }
        Ok(())
    }

    /// Who asks on a link; none if its owner was removed.
    pub(crate) fn principal(&self, link: &Link) -> Option<Principal> {
        match &self.cluster {
            Some(cluster) => cluster.principal(link.shown()),
            None => Some(Principal::Trusted),
        }
    }

    /// Reads the cluster's list anew. True if the owner of a link's certificate is still in it, for each link that is asked about
    /// with the function.
    pub fn refresh_cluster(&self) -> Result<impl Fn(&Link) -> bool + '_, String> {
        if let Some(cluster) = &self.cluster {
            cluster.refresh()?;
        }
        Ok(|link: &Link| self.principal(link).is_some())
    }

    /// If this node keeps the cluster's list: tells the others where it is, each until it has answered.
    pub fn tell_place(&self, told: &mut Told) {
        if let Some(cluster) = &self.cluster {
            cluster.tell_place(told);
        }
    }

    /// Whether this node was removed from its cluster, as far as others can be asked.
    pub fn was_removed(&self) -> bool {
        self.cluster.as_ref().is_some_and(Membership::was_removed)
    }

    /// A new certificate for this node, with the key that it has: a renewal of the one of its links, or one for etcd.
    pub fn renew_certificate(
        &self,
        purpose: CertificateFor,
        key: &atoll_ca::Key,
    ) -> Result<atoll_proto::Issued, String> {
        self.cluster.as_ref().ok_or("this node has no certificate")?.renew(purpose, key)
    }

    /// Its id.
    pub fn id(&self) -> DaemonId {
        self.setup.identity.node
    }

    /// The cluster's list, as it is known here.
    pub fn cluster_list(&self) -> Option<Arc<atoll_proto::StoredCluster>> {
        self.cluster.as_ref().map(Membership::list)
    }
}

impl Acceptor for Node {
    fn admit(&self, shown: Option<&Shown>, hello: &Hello) -> Result<(), Goodbye> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let principal = cluster.admit(shown, &hello.role)?;
        self.check_claims(&principal, &hello.role)
    }

    /// The nodes of the cluster whose addresses in the list have no names.
    fn knows(&self, from: IpAddr) -> bool {
        let Some(list) = self.cluster_list() else { return false };
        let host = |address: &str| match address.parse() {
            Ok(Address::Tcp { host, .. }) => host.parse::<IpAddr>().ok(),
            _ => None,
        };
        list.cluster
            .nodes
            .iter()
            .filter_map(|node| host(&node.address))
            .any(|host| host.to_canonical() == from.to_canonical())
    }

    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye> {
        let wanted = match &hello.role {
            Role::Tool => None,
            Role::Client { volume, .. } | Role::Relay { volume, .. } | Role::Relayed { volume, .. } => {
                Some(*volume)
            }
            Role::Node { members, .. } => match members.first() {
                Some((volume, node)) => {
                    if self.volume_by_id(*volume).is_none()
                        && let Ok(config) = self.setup.prepared.volume(&(*volume).into())
                        && config.daemon_of(*node).is_some()
                        && let Err(why) = self.activate(*volume)
                    {
                        tracing::error!("a volume that other nodes have cannot be served: {why}");
                    }
                    Some(*volume)
                }
                None => return Err(Goodbye::new(Reason::NoSuchVolume, "no volume was named")),
            },
        };
        if wanted.is_some_and(|id| self.volume_by_id(id).is_none()) {
            return Err(Goodbye::new(Reason::NoSuchVolume, "it is not served here"));
        }
        if let Role::Node { members, .. } = &hello.role
            && let Some((volume, node)) = members.first()
            && !self.volume_by_id(*volume).is_some_and(|volume| volume.has_other(*node))
        {
            return Err(Goodbye::new(
                Reason::NotAllowed,
                "only other nodes of the volume may say that they are",
            ));
        }
        if let Role::Relayed { volume, by } = &hello.role
            && !self.volume_by_id(*volume).is_some_and(|volume| volume.has_other(*by))
        {
            return Err(Goodbye::new(Reason::NotAllowed, "only other nodes of the volume pass something on"));
        }
        let identity = &self.setup.identity;
        Ok(HelloOk::new(identity.cluster, identity.node, self.setup.incarnation))
    }

    fn onward(&self, volume: VolumeId, to: NodeId) -> Result<Onward, Goodbye> {
        let not_here = || Goodbye::new(Reason::NoSuchVolume, "it is not served here");
        let served = self.volume_by_id(volume).ok_or_else(not_here)?;
        // What is passed on once goes straight to its node: so it can never go in a circle.
        let not_reached = || Goodbye::new(Reason::NotReached, "");
        let address = served.direct_address(to).ok_or_else(not_reached)?;
        Ok(Onward { address, greeting: Hello::new(Role::Relayed { volume, by: served.node() }, None) })
    }
}

impl Handler for Node {
    fn opened(&self, link: &Arc<Link>) {
        let atoll_rpc::Remote::Accepted(hello) = link.remote() else { return };
        let wanted = match &hello.role {
            Role::Tool | Role::Relay { .. } | Role::Relayed { .. } => None,
            Role::Client { volume, .. } => Some(*volume),
            Role::Node { members, .. } => members.first().map(|(volume, _)| *volume),
        };
        let Some(id) = wanted else { return };
        match self.volume_by_id(id) {
            Some(volume) => {
                let grant = match self.principal(link) {
                    Some(Principal::Client(_, grant)) if grant != Grant::default() => Some(grant),
                    Some(Principal::Client(..) | Principal::Trusted | Principal::Node(_)) => None,
                    // Removed since it was let in.
                    Some(Principal::Guest(_)) | None => {
                        return link.close(Goodbye::new(
                            Reason::NotAllowed,
                            "its owner was removed from the cluster",
                        ));
                    }
                };
                volume.opened(link);
                link.set_context(LetIn { volume, grant });
            }
            None => link.close(Goodbye::new(Reason::NoSuchVolume, "it is no longer served here")),
        }
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        if frame.kind == FrameKind::Control {
            if let Err(what) = desk::serve(self, link, &frame) {
                link.malformed(what);
            }
            return;
        }
        match Self::of_link(link) {
            Some(volume) => volume.frame(link, frame),
            None => link.malformed(Malformed::new("a frame for a volume on a link for none")),
        }
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        if let Some(volume) = Self::of_link(link) {
            volume.closed(link, why);
        }
    }
}
