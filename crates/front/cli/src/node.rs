//! A node in this process: data directory, control store, and the volumes that it serves.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use atoll_control::{ControlStore, DataDir, EmbeddedStore};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_disk::real::RealDisk;
use atoll_proto::{NodeConfig, VolumeConfig};
use atoll_server::{Volume, VolumeError, VolumeOptions};

/// A data directory in use.
pub(crate) struct Node {
    pub(crate) dir: DataDir,
    pub(crate) store: EmbeddedStore,
    incarnation: u32,
}

impl Node {
    /// Takes the data directory at `path`, making it if there is none.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let mut dir = DataDir::open_or_create(path)?;
        let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
        let incarnation = dir.begin_incarnation()?;
        Ok(Self { dir, store, incarnation })
    }

    /// The volume of this name, made with so many islands if there is none.
    pub(crate) fn volume_or_create(&self, name: &str, islands: u16) -> Result<(VolumeConfig, bool)> {
        if let Some(config) = self.store.volumes()?.into_iter().find(|v| v.name == name) {
            return Ok((config, false));
        }
        let config = VolumeConfig {
            id: VolumeId(random()?),
            name: name.to_owned(),
            seed: random()?,
            table: Table::new(islands),
            nodes: vec![NodeConfig {
                node: NodeId(0),
                address: String::new(),
                islands: (0..islands).map(IslandId).collect(),
            }],
        };
        self.store.create_volume(&config)?;
        Ok((config, true))
    }

    /// Serves this node's part of a volume.
    pub(crate) fn serve(&self, config: VolumeConfig, node: NodeId) -> Result<Arc<Volume<RealDisk>>> {
        let root = rustix::process::geteuid().is_root();
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let options = VolumeOptions {
            rows_max: 40_000,
            snapshot_cache_bytes: 4 << 20,
            log: atoll_log::Config::default(),
            root,
            devices: root,
            owner,
            daemon: self.dir.identity().node,
            incarnation: self.incarnation,
        };
        let base = self.dir.path().join("islands").join(&config.name);
        std::fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
        let name = config.name.clone();
        let volume = Volume::open(config, node, &options, |island| {
            let path = base.join(island.to_string());
            let io = |e| VolumeError::Open(atoll_dispatch::OpenError::Io(island, e));
            match std::fs::create_dir(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(e)),
                _ => {}
            }
            RealDisk::open(&path).map(Arc::new).map_err(io)
        })
        .with_context(|| format!("cannot serve volume {name}"))?;
        Ok(volume)
    }
}

/// 64 bits that nobody can guess; never 0.
pub(crate) fn random() -> Result<u64> {
    use std::io::Read;
    let mut raw = [0; 8];
    std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut raw)).context("no random numbers")?;
    Ok(u64::from_le_bytes(raw).max(1))
}
