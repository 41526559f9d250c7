//! What a node tells of itself, and the orders that it takes.

use std::sync::Arc;

use atoll_core::Ino;
use atoll_disk::Disk;
use atoll_dispatch::SpaceState;
use atoll_island::Phase;
use atoll_proto::control::{Daemon, IslandStatus, Metric, MountStatus, Trace, VolumeStatus, VolumeSummary};
use atoll_proto::{Control, ControlReply};
use atoll_state::{Load, Loaded, RowKey};

use crate::desk::Desk;
use crate::member;
use crate::node::{Node, NodeError, Part};
use crate::volume::Volume;

/// What a node is told of its process, to tell it to others.
#[derive(Default)]
pub(crate) struct About {
    addresses: Vec<String>,
    links: Option<Box<dyn Fn() -> u32 + Send>>,
    mounts: Vec<Box<dyn Fn() -> MountStatus + Send>>,
}

impl<D: Disk> Node<D> {
    /// Tells where the node listens, and how many are connected.
    pub fn listens(&self, addresses: Vec<String>, links: impl Fn() -> u32 + Send + 'static) {
        let mut about = self.about.lock().expect("no panic while it is held");
        about.addresses = addresses;
        about.links = Some(Box::new(links));
    }

    /// Tells of a mount of this process, as `status` describes it whenever it is asked.
    pub fn mounted(&self, status: impl Fn() -> MountStatus + Send + 'static) {
        self.about.lock().expect("no panic while it is held").mounts.push(Box::new(status));
    }

    /// Names of the volumes that it serves or should serve, in order.
    pub fn names(&self) -> Vec<String> {
        let parts = self.parts.read().expect("no panic while it is held");
        let mut names: Vec<_> = parts.values().map(|part| part.config().name.clone()).collect();
        names.sort();
        names
    }

    /// Where each volume's configuration has this node, if others are to reach it.
    pub fn own_addresses(&self) -> Vec<(String, String)> {
        let parts = self.parts.read().expect("no panic while it is held");
        let own = parts.values().filter_map(|part| {
            let me = part.config().nodes.iter().find(|n| Some(n.node) == part.node())?;
            Some((part.config().name.clone(), me.address.clone()))
        });
        own.filter(|(_, address)| !address.is_empty()).collect()
    }

    /// Forgets what it was told of its process. The mounts and listeners are gone.
    pub fn forget_process(&self) {
        *self.about.lock().expect("no panic while it is held") = About::default();
    }

    fn daemon(&self) -> Daemon {
        let about = self.about.lock().expect("no panic while it is held");
        let identity = &self.setup.identity;
        Daemon {
            daemon: identity.node.0,
            cluster: identity.cluster.0,
            incarnation: self.setup.options.incarnation,
            pid: std::process::id(),
            up_ms: self.started.elapsed().as_millis() as u64,
            software: concat!("atoll ", env!("CARGO_PKG_VERSION")).to_owned(),
            data: self.setup.data.display().to_string(),
            addresses: about.addresses.clone(),
            links: about.links.as_ref().map_or(0, |links| links()),
        }
    }

    fn describe(&self) -> ControlReply {
        let mut volumes: Vec<VolumeSummary> =
            self.parts.read().expect("no panic while it is held").values().map(summary).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        ControlReply::Described { daemon: self.daemon(), volumes }
    }

    fn tell_volume(&self, name: &str) -> ControlReply {
        let parts = self.parts.read().expect("no panic while it is held");
        match parts.values().find(|part| part.config().name == name) {
            Some(part) => {
                let config = Box::new(part.config().clone());
                ControlReply::Volume { config, node: part.node(), from: Vec::new() }
            }
            None => {
                let volume = name.into();
                ControlReply::Refused { text: atoll_control::ControlError::NotFound { volume }.to_string() }
            }
        }
    }

    fn status(&self) -> ControlReply {
        let daemon = self.daemon();
        let mut volumes: Vec<VolumeStatus> = Vec::new();
        for part in self.parts.read().expect("no panic while it is held").values() {
            volumes.push(match part {
                Part::Served(volume) => served_status(volume, summary(part)),
                Part::Failed { node, .. } => VolumeStatus {
                    volume: summary(part),
                    node: node.unwrap_or_default(),
                    islands: Vec::new(),
                    others: Vec::new(),
                    bytes: 0,
                    bytes_available: 0,
                },
            });
        }
        volumes.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
        let about = self.about.lock().expect("no panic while it is held");
        let mounts = about.mounts.iter().map(|status| status()).collect();
        ControlReply::Status { daemon, volumes, mounts }
    }

    fn trace(&self, volume: atoll_core::VolumeId, ino: Ino) -> ControlReply {
        let parts = self.parts.read().expect("no panic while it is held");
        let Some(Part::Served(volume)) = parts.get(&volume) else {
            return ControlReply::Refused { text: "The volume is not served here.".to_owned() };
        };
        let folder = member::folder(&self.setup.data, &volume.config().name);
        let mut traces = Vec::new();
        for engine in volume.engines() {
            // What changed since the last checkpoint is in memory only, the rest maybe only below.
            let known = engine.with_island(|island| {
                let dir = island.state().dir(ino).map(|row| row.map(|dir| dir.owned.is_some()));
                let inode = island.state().inode(ino).map(|row| row.is_some());
                (dir, inode)
            });
            let below = |key: RowKey| match engine.load(&Load::Row(key)) {
                Ok(Loaded::Row(row)) => row,
                _ => None,
            };
            let owns = known.0.unwrap_or_else(|_| {
                use atoll_core::Decode;
                let row = below(RowKey::Dir(ino))?;
                Some(atoll_proto::Dir::from_slice(&row).ok()?.owned.is_some())
            });
            let home = known.1.unwrap_or_else(|_| below(RowKey::Inode(ino)).is_some());
            let place = folder.join(engine.id().to_string());
            let body = || {
                use std::os::unix::ffi::OsStrExt;
                let path = engine.bodies().path(ino);
                place.join(std::ffi::OsStr::from_bytes(&path)).display().to_string()
            };
            traces.push(Trace {
                island: engine.id(),
                owns: owns == Some(true),
                skeleton: owns.is_some(),
                home,
                tree: place.join("tree").display().to_string(),
                body: home.then(body),
            });
        }
        ControlReply::Traces { traces }
    }
}

fn summary<D: Disk>(part: &Part<D>) -> VolumeSummary {
    let config = part.config();
    VolumeSummary {
        id: config.id,
        name: config.name.clone(),
        kind: config.kind,
        table: config.table.version(),
        islands: config.islands().len() as u32,
        nodes: config.nodes.iter().map(|n| n.address.clone()).collect(),
        problem: part.problem().map(str::to_owned),
    }
}

fn served_status<D: Disk>(volume: &Arc<Volume<D>>, summary: VolumeSummary) -> VolumeStatus {
    let halted = volume.switch().halted_islands();
    let mut islands = Vec::new();
    for engine in volume.engines() {
        let (counters, phase) = (engine.counters(), engine.phase());
        let (sessions, mounts) = engine.with_island(|island| {
            let state = island.state();
            let mounts = state.session_ids().filter(|s| state.session(*s).is_some_and(|row| row.mount));
            (state.session_ids().count() as u64, mounts.count() as u64)
        });
        let mut metrics: Vec<Metric> = counters.list().map(Metric::count).collect();
        metrics.push(Metric::count(("too_long", volume.switch().too_long(engine.id()))));
        metrics.push(Metric::now("sessions", sessions));
        metrics.push(Metric::now("mounts", mounts));
        islands.push(IslandStatus {
            island: engine.id(),
            normal: phase == Phase::Normal,
            halted: halted.get(&engine.id()).cloned(),
            read_only: match engine.space_state() {
                SpaceState::Normal => None,
                SpaceState::ReadOnly { since_ms, lack } => {
                    Some((lack.to_string(), engine.now_ms().saturating_sub(since_ms)))
                }
            },
            metrics,
        });
    }
    // All islands of a node lie on one file system.
    let space = volume.engines().next().and_then(|engine| engine.disk().space().ok());
    VolumeStatus {
        volume: summary,
        node: volume.node(),
        islands,
        others: volume.others(),
        bytes: space.as_ref().map_or(0, |s| s.bytes),
        bytes_available: space
            .as_ref()
            .map_or(0, |s| s.bytes_available.saturating_sub(atoll_proto::reserve_bytes(s.bytes))),
    }
}

fn done(result: Result<(), NodeError>) -> ControlReply {
    match result {
        Ok(()) => ControlReply::Done,
        Err(why) => ControlReply::Refused { text: why.to_string() },
    }
}

impl<D: Disk> Desk for Node<D> {
    fn answer(&self, order: Control) -> ControlReply {
        match order {
            Control::Describe => self.describe(),
            Control::Volume { name } => self.tell_volume(&name),
            Control::Prepare { config, node } => done(self.prepare(&config, node)),
            Control::Activate { volume } => done(self.activate(volume)),
            Control::Discard { volume } => done(self.discard(volume)),
            Control::Status => self.status(),
            Control::Trace { volume, ino } => self.trace(volume, ino),
        }
    }
}
