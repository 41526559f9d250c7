//! The kinds of volumes: what each offers to frontends, commands and nodes, and the one function that tells
//! them apart.
//!
//! All other code works with the traits. [014](../../../../docs/design/014-kinds.md) says what each kind
//! answers.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use atoll_control::DataDir;
use atoll_core::{Ino, Key, VolumePath};
use atoll_proto::control::{Metric, NodeLink};
use atoll_proto::{UnionOrder, UnionReply, VolumeConfig, VolumeKind};
use atoll_route::ListedFile;
use atoll_server::{Serve, VolumeOptions};
use atoll_vfs::Files;

use crate::cluster::Cluster;
use crate::credentials;
use crate::explain::Explanation;
use crate::findings::{Checking, Outcome};
use crate::reach::Reached;
use crate::wide::Wide;

/// A kind of volume: how volumes of it are opened.
pub trait Kind: Send + Sync + 'static {
    /// Opens a volume for a mount or a command of this process.
    fn attach(&self, volume: Reached, manner: Manner) -> Result<Arc<dyn Attached>>;

    /// The server of a node's part of volumes of this kind. The error says why a node cannot serve them, and
    /// what to do next.
    fn serve(&self, options: &VolumeOptions) -> std::result::Result<Arc<dyn Serve>, String>;

    /// Looks for damage in the parts of a volume that stopped nodes have, and mends it if told to.
    fn check(
        &self,
        dirs: &[&DataDir],
        volume: &VolumeConfig,
        how: &Checking,
        outcome: &mut Outcome,
    ) -> Result<()>;
}

/// A volume that a mount or a command of this process uses.
pub trait Attached: Send + Sync + 'static {
    /// The volume.
    fn config(&self) -> Arc<VolumeConfig>;

    /// Uses the volume by this configuration from now on, if it is newer: its nodes may be others, at other addresses,
    /// with other islands. What is under way with a node that changes is as after a lost link. An error says what cannot
    /// change.
    fn take_config(&self, next: &VolumeConfig) -> Result<()>;

    /// The volume as frontends see it.
    fn files(&self) -> Arc<dyn Files>;

    /// The volume's status, as this process sees it.
    fn status(&self) -> AttachedStatus;

    /// The directory that is used only, with what is below it, and its placement key; none: the whole volume.
    fn root(&self) -> Option<(Ino, Key)> {
        None
    }

    /// A directory of the volume, and its placement key. `shown` is how the user named it.
    fn directory(&self, _names: &VolumePath, _shown: &str) -> Result<(Ino, Key)> {
        let config = self.config();
        bail!("Volume {} is of the kind {}, whose clients see all of it.", config.name, config.kind)
    }

    /// Whether a directory with this placement key is known to be gone.
    fn is_gone(&self, _dir: Ino, _key: Key) -> bool {
        false
    }

    /// Where a file or directory is, and why there. `root` is how the volume's root is shown to the user who asks.
    fn explain(&self, names: &VolumePath, root: &Path) -> Result<Explanation>;

    /// Every name below a path as of one moment: all of them, or none. `shown` is how the user named the path.
    fn list(&self, _names: VolumePath, _shown: &Path) -> Result<Vec<ListedFile>> {
        let config = self.config();
        let (name, kind) = (&config.name, config.kind);
        bail!("Volume {name} is of the kind {kind}, which has no listing as of one moment.\nUse ls(1).")
    }

    /// Carries out an order to a union that is mounted on `_point`. An error says what to do next.
    fn union_order(&self, _order: UnionOrder, _point: &Path) -> Result<UnionReply> {
        let config = self.config();
        bail!("{} is no union: it is of the kind {}.\nName the mount of a union.", config.name, config.kind)
    }

    /// Ends the use: locks and open files are released.
    fn stop(&self);
}

/// How a volume is used.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Whether a mount uses it, and not a tool.
    pub mount: bool,
    /// Whether the frontend keeps answers, if it may: others wait for it then before they change something.
    pub keeps: bool,
    /// Milliseconds that an operation waits for a node that is away; none: for ever.
    pub patience_ms: Option<u64>,
}

impl Manner {
    /// A tool's, with so many milliseconds of patience.
    pub const fn tool(patience_ms: u64) -> Self {
        Self { mount: false, keeps: false, patience_ms: Some(patience_ms) }
    }
}

/// The status of a volume, as a process that uses it sees it.
#[derive(Debug, Default)]
pub struct AttachedStatus {
    /// Counters and sizes.
    pub metrics: Vec<Metric>,
    /// The volume's nodes, and whether they are connected.
    pub nodes: Vec<NodeLink>,
}

/// The kind's implementation. The error says why this program cannot open such volumes, and what to do next.
pub fn of(kind: VolumeKind) -> std::result::Result<&'static dyn Kind, String> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    match kind {
        VolumeKind::Cluster => Ok(&Cluster),
        VolumeKind::Wide => Ok(&Wide),
        VolumeKind::Union => Err(format!(
            "volumes of the kind {kind} are in no control store in atoll {VERSION}.\n\
            Show a union of directories of this machine: atoll union start"
        )),
        VolumeKind::Unknown(tag) => Err(format!(
            "it is of a kind (number {tag}) that atoll {VERSION} does not know.\n\
            Use the version of atoll that made it, or a newer one. Nothing was changed."
        )),
    }
}

/// The implementation for an existing volume, for a command.
pub fn of_volume(config: &VolumeConfig) -> Result<&'static dyn Kind> {
    of(config.kind).map_err(|why| anyhow!("Volume {} cannot be opened: {why}", config.name))
}

/// Opens a volume for a mount or a command of this process, whatever its kind.
pub fn attach(volume: Reached, manner: Manner) -> Result<Arc<dyn Attached>> {
    if manner.mount {
        credentials::keep_renewed(volume.others.iter().map(|other| other.address.clone()).collect())?;
    }
    of_volume(&volume.config)?.attach(volume, manner)
}
