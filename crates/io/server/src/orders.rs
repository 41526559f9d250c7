//! A node's answers about itself, and the orders that it takes.

use std::time::Duration;

use atoll_core::{Ino, IslandId, NodeId, VolumeId};
use atoll_proto::control::{Daemon, MountStatus, VolumeStatus, VolumeSummary};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::Link;

use crate::desk::Desk;
use crate::membership::{Membership, clock_ms};
use crate::node::{Node, NodeError, Part};
use crate::served::ServedStatus;

/// What a node without certificates says.
const NO_CERTIFICATES: &str = "This node is in no cluster with certificates.\nMake one with \"atoll init\".";

/// Facts about the process, which the node tells to others.
#[derive(Default)]
pub(crate) struct About {
    addresses: Vec<String>,
    links: Option<Box<dyn Fn() -> u32 + Send>>,
    mounts: Vec<Box<dyn Fn() -> MountStatus + Send>>,
}

impl Node {
    /// Sets where the node listens, and how many are connected.
    pub fn listens(&self, addresses: Vec<String>, links: impl Fn() -> u32 + Send + 'static) {
        let mut about = self.about.lock().expect("no panic while it is held");
        about.addresses = addresses;
        about.links = Some(Box::new(links));
    }

    /// Adds a mount of this process; `status` is called for each question.
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

    /// This node's address in each volume's configuration, if others must reach it.
    pub fn own_addresses(&self) -> Vec<(String, String)> {
        let parts = self.parts.read().expect("no panic while it is held");
        let own = parts.values().filter_map(|part| {
            let config = part.config();
            let me = config.nodes.iter().find(|n| Some(n.node) == part.node())?;
            Some((config.name.clone(), me.address.clone()))
        });
        own.filter(|(_, address)| !address.is_empty()).collect()
    }

    /// Forgets the facts about its process. The mounts and listeners are gone.
    pub fn forget_process(&self) {
        *self.about.lock().expect("no panic while it is held") = About::default();
    }

    fn daemon(&self) -> Daemon {
        let about = self.about.lock().expect("no panic while it is held");
        let identity = &self.setup.identity;
        Daemon {
            daemon: identity.node.0,
            cluster: identity.cluster.0,
            incarnation: self.setup.incarnation,
            pid: std::process::id(),
            up_ms: self.started.elapsed().as_millis() as u64,
            software: concat!("atoll ", env!("CARGO_PKG_VERSION")).to_owned(),
            data: self.setup.data.display().to_string(),
            addresses: about.addresses.clone(),
            links: about.links.as_ref().map_or(0, |links| links()),
            clock_ms: clock_ms(),
            certificate_until: self.cluster.as_ref().and_then(Membership::certificate_until),
            control: self.setup.store.for_all().unwrap_or_default(),
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
                let config = Box::new((*part.config()).clone());
                ControlReply::Volume { config, node: part.node(), from: Vec::new(), root: None }
            }
            None => self.no_volume(name),
        }
    }

    fn no_volume(&self, name: &str) -> ControlReply {
        let volume = name.into();
        ControlReply::Refused { text: atoll_control::ControlError::NotFound { volume }.to_string() }
    }

    fn status(&self) -> ControlReply {
        let daemon = self.daemon();
        let is_of_one = daemon.control.is_empty();
        let mut volumes: Vec<VolumeStatus> = Vec::new();
        let mut filling = None;
        for part in self.parts.read().expect("no panic while it is held").values() {
            let ServedStatus { islands, others, bytes, bytes_available, filling: told } = match part {
                Part::Served(volume) | Part::Opening { served: volume, .. } => volume.status(),
                Part::Failed { .. } => ServedStatus::default(),
            };
            filling = filling.or(told);
            let (volume, node) = (summary(part), part.node().unwrap_or_default());
            let store = part.config().copies.as_ref().map(|copies| copies.store).filter(|_| is_of_one);
            volumes.push(VolumeStatus { volume, node, store, islands, others, bytes, bytes_available });
        }
        volumes.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
        let about = self.about.lock().expect("no panic while it is held");
        let mounts = about.mounts.iter().map(|status| status()).collect();
        ControlReply::Status { daemon, volumes, mounts, filling }
    }

    fn move_island(&self, volume: VolumeId, island: IslandId, to: NodeId) -> ControlReply {
        let parts = self.parts.read().expect("no panic while it is held");
        ordered(match parts.get(&volume) {
            Some(Part::Served(volume)) => volume.move_island(island, to),
            _ => Err(String::new()),
        })
    }

    fn force_island(&self, volume: VolumeId, island: IslandId, node: NodeId) -> ControlReply {
        let parts = self.parts.read().expect("no panic while it is held");
        ordered(match parts.get(&volume) {
            Some(Part::Served(volume)) if volume.node() != node => {
                Err(format!("This is node {} of the volume, and not node {node}.", volume.node()))
            }
            Some(Part::Served(volume)) => volume.force_island(island),
            _ => Err(format!("Node {node} does not serve the volume.\n\"atoll status\" says why.")),
        })
    }

    fn trace(&self, volume: atoll_core::VolumeId, ino: Ino) -> ControlReply {
        let parts = self.parts.read().expect("no panic while it is held");
        match parts.get(&volume) {
            Some(Part::Served(volume)) => ControlReply::Traces { traces: volume.trace(ino) },
            _ => ControlReply::Refused { text: "The volume is not served here.".to_owned() },
        }
    }
}

impl Node {
    fn weigh(&self, volume: VolumeId) -> ControlReply {
        // Not while the list of volumes is held: it reads all rows.
        let served = match self.parts.read().expect("no panic while it is held").get(&volume) {
            Some(Part::Served(volume)) => Some(std::sync::Arc::clone(volume)),
            _ => None,
        };
        match served {
            Some(volume) => ControlReply::Weights { weights: volume.weigh() },
            None => ControlReply::Refused { text: "The volume is not served here.".to_owned() },
        }
    }
}

fn summary(part: &Part) -> VolumeSummary {
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

fn ordered(result: Result<(), String>) -> ControlReply {
    match result {
        Ok(()) => ControlReply::Done,
        Err(text) => ControlReply::Refused { text },
    }
}

fn done(result: Result<(), NodeError>) -> ControlReply {
    ordered(result.map_err(|why| why.to_string()))
}

impl Desk for Node {
    fn answer_to(&self, link: &Link, order: Control) -> ControlReply {
        let refused = |text: &str| ControlReply::Refused { text: text.to_owned() };
        let Some(principal) = self.principal(link) else {
            return refused("Whoever asks is not in the list of the cluster any more.");
        };
        if !principal.may_order(&order) {
            return refused(
                "That is for nodes and administrators: the certificate of this program is a client's.",
            );
        }
        match (order, &self.cluster) {
            (Control::Certify { purpose, key }, Some(cluster)) => {
                match cluster.certify(&principal, link.name().parse().ok(), purpose, &key) {
                    Ok(issued) => ControlReply::Issued { issued: Box::new(issued) },
                    Err(text) => ControlReply::Refused { text },
                }
            }
            (Control::Volume { name }, _) => match self.tell_volume(&name) {
                ControlReply::Volume { config, .. } if !principal.sees(config.id) => self.no_volume(&name),
                ControlReply::Volume { config, node, from, .. } => {
                    ControlReply::Volume { config, node, from, root: principal.root() }
                }
                reply => reply,
            },
            (order, _) => self.answer(order),
        }
    }

    fn answer(&self, order: Control) -> ControlReply {
        match order {
            Control::Describe => self.describe(),
            Control::Volume { name } => self.tell_volume(&name),
            Control::Prepare { config, node } => done(self.prepare(&config, node)),
            Control::Activate { volume } => done(self.activate(volume)),
            Control::Discard { volume } => done(self.discard(volume)),
            Control::Status => self.status(),
            Control::Trace { volume, ino } => self.trace(volume, ino),
            Control::Weigh { volume } => self.weigh(volume),
            Control::Group { volume, island } => match self.setup.store.group(volume, island) {
                Ok(group) => ControlReply::Group { group },
                Err(why) => ControlReply::Refused { text: why.to_string() },
            },
            Control::SwapGroup { volume, island, expected, next } => ControlReply::Swapped {
                swapped: self.setup.store.swap_group(volume, island, expected, &next),
            },
            Control::Groups { volume, since, wait_ms } => {
                let wait = Duration::from_millis(wait_ms.into());
                match self.setup.store.groups(volume, since, wait) {
                    Ok(changed) => ControlReply::Groups { changed },
                    Err(why) => ControlReply::Refused { text: why.to_string() },
                }
            }
            Control::Seats { volume } => {
                let parts = self.parts.read().expect("no panic while it is held");
                match parts.get(&volume) {
                    Some(Part::Served(volume)) => ControlReply::Seats { seats: volume.seats() },
                    _ => ControlReply::Refused { text: "The volume is not served here.".to_owned() },
                }
            }
            Control::Config { volume } => self.tell_config(volume),
            Control::SwapConfig { expected, next } => {
                ControlReply::Swapped { swapped: self.swap_config(expected, &next) }
            }
            Control::MoveIsland { volume, island, to } => self.move_island(volume, island, to),
            Control::ForceIsland { volume, island, node } => self.force_island(volume, island, node),
            Control::Cluster => match &self.cluster {
                Some(cluster) => cluster.answer_list(),
                None => ControlReply::Cluster { cluster: None },
            },
            Control::SwapCluster { expected, next } => match &self.cluster {
                Some(cluster) => ControlReply::Swapped { swapped: cluster.swap(expected, &next) },
                None => ControlReply::Refused { text: NO_CERTIFICATES.to_owned() },
            },
            Control::ListAt { address } => match &self.cluster {
                Some(cluster) => match cluster.read_at(&address) {
                    Ok(()) => ControlReply::Done,
                    Err(text) => ControlReply::Refused { text },
                },
                None => ControlReply::Refused { text: NO_CERTIFICATES.to_owned() },
            },
            Control::Certify { .. } => ControlReply::Refused { text: NO_CERTIFICATES.to_owned() },
            Control::Site { order } => match self.order_site(order) {
                Ok(reply) => ControlReply::Site { reply },
                Err(text) => ControlReply::Refused { text },
            },
            Control::Union { .. } => {
                ControlReply::Refused { text: "A node shows no union: ask the union's mount.".to_owned() }
            }
        }
    }
}
