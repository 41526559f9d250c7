//! Makes a volume over running nodes: on all of them, or on none. Adopts one that a control store has lost.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use atoll_control::{ControlStore, DataDir, EmbeddedStore, check_volume_name};
use atoll_core::placement::{NoPlace, Ring};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_proto::control::VolumeSummary;
use atoll_proto::copies::RACK_BYTES_MAX;
use atoll_proto::group::GROUP_MEMBERS_MAX;
use atoll_proto::{Control, ControlReply, Copies, IslandGroup, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::{Address, Security};

use crate::ask::{NoAnswer, ORDER, QUESTION, ask, ask_all, strange, try_ask};
use crate::kind;
use crate::node::random;

/// Most islands of a volume.
const ISLANDS_MAX: usize = 4096;

/// The node whose control store has the groups of a volume with copies: the one that is named first.
const STORE: NodeId = NodeId(0);

/// A volume that is to be made.
#[derive(Debug)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// Its contract.
    pub kind: VolumeKind,
    /// Its nodes, as mounts and the other nodes reach them.
    pub nodes: Vec<Address>,
    /// How many islands each node gets: to lead at first, if there are copies.
    pub islands_per_node: u16,
    /// How many nodes keep each island.
    pub replicas: usize,
    /// The rack of each node; none, if each node fails by itself.
    pub racks: Vec<String>,
}

/// A volume that was made.
#[derive(Debug)]
pub struct Created {
    /// The volume.
    pub config: VolumeConfig,
    /// Why nodes did not confirm that they serve it, each in its own words.
    pub late: Vec<String>,
    /// All its nodes reach the records of its groups by themselves.
    pub is_for_all: bool,
}

/// A name that a volume may have.
fn check_name(name: &str) -> Result<()> {
    check_volume_name(name).map_err(|e| anyhow!("\"{}\" cannot name a volume: {}.", e.text, e.why))
}

impl Create {
    /// Makes it.
    pub fn run(&self) -> Result<Created> {
        check_name(&self.name)?;
        kind::of(self.kind).map_err(|why| anyhow!("Volume {} was not made: {why}", self.name))?;
        self.check_addresses()?;
        let (daemons, is_for_all) = self.check_nodes()?;
        let mut config = self.config(is_for_all)?;
        if Security::of_process().is_some() {
            // Their certificates name them: nobody else can say that it is one of these nodes.
            config.nodes.iter_mut().zip(daemons).for_each(|(node, daemon)| node.daemon = daemon);
        }
        self.prepare(&config)?;
        let late = self.activate(&config)?;
        Ok(Created { config, late, is_for_all })
    }

    /// Refuses what cannot work before any node is asked.
    fn check_addresses(&self) -> Result<()> {
        if let Some(unix) = self.nodes.iter().find(|a| matches!(a, Address::Unix { .. })) {
            bail!("{unix} reaches no other machine.\nName each node as HOST:PORT.");
        }
        // One of both is made.
        self.config(true).or_else(|_| self.config(false)).map(|_| ())
    }

    /// `is_for_all`: no node has the control store of all, so that the first one need not be spared.
    fn config(&self, is_for_all: bool) -> Result<VolumeConfig> {
        self.check_racks()?;
        let numbers: Vec<NodeId> = (0..self.nodes.len()).map(|at| NodeId(at as u16)).collect();
        let store = (!is_for_all).then_some(STORE);
        let ring = Ring { nodes: &numbers, racks: &self.racks, replicas: self.replicas, store };
        let islands = usize::from(self.islands_per_node) * ring.keepers().len();
        if islands > ISLANDS_MAX {
            bail!("{islands} islands are too many: {ISLANDS_MAX} are allowed.\nLower --islands-per-node.");
        }
        let placed = ring.place(islands).map_err(|why| self.not_placed(&why))?;
        let groups = (0..).map(IslandId).zip(placed).map(|(island, nodes)| IslandGroup { island, nodes });
        let groups: Vec<IslandGroup> = groups.collect();
        let led_by = |node: NodeId| groups.iter().filter(move |group| group.nodes[0] == node);
        let nodes = self.nodes.iter().zip(&numbers).map(|(address, node)| NodeConfig {
            daemon: 0,
            node: *node,
            address: address.to_string(),
            islands: led_by(*node).map(|group| group.island).collect(),
        });
        let nodes: Vec<NodeConfig> = nodes.collect();
        let (wanted, racks) = (self.replicas as u8, self.racks.clone());
        Ok(VolumeConfig {
            id: VolumeId(random()?),
            name: self.name.clone(),
            seed: random()?,
            table: Table::new(islands as u16),
            nodes,
            kind: self.kind,
            copies: (wanted > 1).then_some(Copies {
                wanted,
                store: STORE,
                groups,
                racks,
                ..Copies::default()
            }),
            site: None,
        })
    }

    fn check_racks(&self) -> Result<()> {
        if self.replicas > GROUP_MEMBERS_MAX {
            bail!(
                "{} copies are too many: {GROUP_MEMBERS_MAX} are possible.\nLower --replicas.",
                self.replicas
            );
        }
        if !self.racks.is_empty() && self.replicas < 2 {
            bail!(
                "Racks keep copies apart, and there is one copy of each island.\nName --replicas 2 too, or no racks."
            );
        }
        match self.racks.iter().find(|rack| rack.is_empty() || rack.len() > RACK_BYTES_MAX) {
            Some(rack) => bail!(
                "\"{}\" cannot name a rack: a name has 1 to {RACK_BYTES_MAX} bytes.\nName one rack for each node.",
                rack.escape_debug()
            ),
            None => Ok(()),
        }
    }

    /// Why islands cannot be placed, and what to do next.
    fn not_placed(&self, why: &NoPlace) -> anyhow::Error {
        let next = match why {
            NoPlace::NoCopy => "Use --replicas 1, or more.".to_owned(),
            NoPlace::Nodes { .. } => "Name more nodes, or lower --replicas.".to_owned(),
            NoPlace::RackList { .. } => "Name one rack for each node, in the order of the nodes.".to_owned(),
            NoPlace::Racks { replicas, all, .. } if all >= replicas => format!(
                "{}, which is named first, has the control store and keeps none: name a node first whose rack has others.",
                self.nodes[0]
            ),
            NoPlace::Racks { .. } => "Name nodes in more racks, or lower --replicas.".to_owned(),
            NoPlace::Twice { .. } | NoPlace::Store { .. } => "This is a mistake in Atoll.".to_owned(),
        };
        anyhow!("The volume cannot be made so: {why}.\n{next}")
    }

    /// Every node answers, and no two addresses lead to the same one. With copies, all are in the same cluster. Their daemons, in
    /// their order, and whether all reach the same control store by themselves.
    fn check_nodes(&self) -> Result<(Vec<u64>, bool)> {
        let mut reach: Vec<Option<u64>> = Vec::new();
        let mut seen: Vec<(u64, &Address)> = Vec::new();
        let mut known: Vec<(&Address, VolumeSummary)> = Vec::new();
        for (address, answer) in self.nodes.iter().zip(ask_all(&self.nodes, &Control::Describe, QUESTION)) {
            let daemon = match answer {
                Ok(ControlReply::Described { daemon, volumes }) => {
                    known.extend(volumes.into_iter().map(|volume| (address, volume)));
                    reach.push((!daemon.control.is_empty()).then_some(daemon.cluster));
                    daemon.daemon
                }
                Ok(ControlReply::Refused { text }) => bail!("{text}"),
                Ok(_) => return Err(strange(address)),
                Err(why) => return Err(why.into_error()),
            };
            if let Some((_, other)) = seen.iter().find(|(other, _)| *other == daemon) {
                bail!("{other} and {address} are the same node.\nName each node once.");
            }
            seen.push((daemon, address));
        }
        let is_for_all = reach[0].is_some() && reach.iter().all(|cluster| *cluster == reach[0]);
        if self.replicas > 1 && !is_for_all {
            if reach.iter().any(Option::is_some) {
                bail!(
                    "Some of these nodes have their control store in an etcd, and others have another one or none.\n\
                    Name nodes of one cluster."
                );
            }
            known.iter().try_for_each(|(address, volume)| self.check_cluster(address, volume))?;
        }
        Ok((seen.into_iter().map(|(daemon, _)| daemon).collect(), is_for_all))
    }

    /// The nodes of volumes with copies that have their groups in one store are one cluster. A node of another one would depend
    /// on two stores, and its administrators on both.
    fn check_cluster(&self, address: &Address, volume: &VolumeSummary) -> Result<()> {
        let ask_for = |whom: &Address| {
            let order = Control::Volume { name: volume.name.clone() };
            match try_ask(whom, order, QUESTION) {
                Ok(ControlReply::Volume { config, node, .. }) if config.id == volume.id => {
                    Ok(Some((config, node)))
                }
                // It has no such volume, or another one of that name.
                Ok(ControlReply::Volume { .. } | ControlReply::Refused { .. }) => Ok(None),
                Ok(_) => Err(strange(whom)),
                Err(why) => Err(why.into_error()),
            }
        };
        let Some((config, _)) = ask_for(address)? else { return Ok(()) };
        let Some(copies) = &config.copies else { return Ok(()) };
        let first = &self.nodes[0];
        if ask_for(first)?.is_some_and(|(_, node)| node == Some(copies.store)) {
            return Ok(());
        }
        let store = config.nodes.iter().find(|n| n.node == copies.store).map_or("", |n| &n.address);
        bail!(
            "{address} is in another cluster: its volume {} has its control store at {store}, and not at {first}.\n\
            Name nodes of one cluster, and first the one that has its control store.",
            volume.name
        )
    }

    /// First step: each node keeps the volume, and promises to serve it. If one does not, none does.
    fn prepare(&self, config: &VolumeConfig) -> Result<()> {
        for (at, address) in self.nodes.iter().enumerate() {
            let order = Control::Prepare { config: Box::new(config.clone()), node: NodeId(at as u16) };
            if let Err(why) = ask(address, order, ORDER) {
                // This one too: its answer may only have been lost.
                self.discard(config, &self.nodes[..=at]);
                let why = why.to_string();
                let mut lines = why.lines();
                let first = lines.next().unwrap_or_default();
                let next = lines.next().unwrap_or("Nothing was made. Try again when that is mended.");
                bail!("The volume was not made: {address} says: {first}\n{next}");
            }
        }
        Ok(())
    }

    fn discard(&self, config: &VolumeConfig, nodes: &[Address]) {
        // One that cannot be told makes room for another volume of that name by itself.
        ask_all(nodes, &Control::Discard { volume: config.id }, QUESTION);
    }

    /// Second step. The first node that takes it decides: from then on the volume is there, and a
    /// node that misses the order learns of it from the others.
    fn activate(&self, config: &VolumeConfig) -> Result<Vec<String>> {
        let order = || Control::Activate { volume: config.id };
        let mut decided = false;
        let mut late = Vec::new();
        for address in &self.nodes {
            match try_ask(address, order(), ORDER) {
                Ok(ControlReply::Done) => decided = true,
                Ok(ControlReply::Refused { text }) if !decided => {
                    // The node may have it in its store although it cannot serve it.
                    self.discard(config, &self.nodes);
                    bail!("The volume was not made: {address} says: {text}");
                }
                Ok(ControlReply::Refused { text }) => late.push(format!("{address}: {text}")),
                Ok(_) => return Err(strange(address)),
                Err(NoAnswer::Unreachable(_)) if !decided => {
                    self.discard(config, &self.nodes);
                    bail!(
                        "The volume was not made: {address} went away meanwhile.\nTry again when it is back."
                    );
                }
                Err(NoAnswer::Unreachable(why)) => late.push(why.to_string()),
                Err(NoAnswer::Unknown(why)) => {
                    // It may have decided, so nothing may be taken back.
                    decided = true;
                    late.push(why);
                }
            }
        }
        Ok(late)
    }
}

/// What depends on the node that has the control store of a volume with copies, if one of them has it, in two sentences for its administrator. None without
/// copies: then each node starts and serves by itself.
pub fn hangs_on_store(config: &VolumeConfig) -> Option<[String; 2]> {
    let copies = config.copies.as_ref()?;
    let store = config.nodes.iter().find(|n| n.node == copies.store)?;
    let address = &store.address;
    Some(if config.islands_at(store.node).is_empty() {
        [
            format!("{address} keeps the control store, and no copies"),
            "While it is away the others serve on, but if one of them stops then, the islands that it keeps wait: \
            some until the control store is back."
                .to_owned(),
        ]
    } else {
        [
            format!("{address} keeps the control store, and copies too: it must not be lost"),
            "While it is away nothing of the volume can be read or changed. With one node more, named first, the others \
            would serve on."
                .to_owned(),
        ]
    })
}

/// Takes up a volume whose folder lies in the data directory of a stopped node, but which its control store has lost.
pub fn adopt(data: &Path, name: &str) -> Result<VolumeConfig> {
    check_name(name)?;
    let dir = DataDir::open(data)?;
    let folder = dir.path().join(atoll_server::ISLANDS).join(name);
    let member = atoll_server::member(&folder).map_err(|why| {
        anyhow!("{} holds no volume: {why}.\nCheck the name and the data directory.", folder.display())
    })?;
    let config = atoll_server::kept_config(&folder).map_err(|why| {
        anyhow!(
            "The volume's configuration cannot be read from {}: {why}.\n\
            Restore control.redb from a backup; the volume's own data is not affected.",
            folder.join("volume").display()
        )
    })?;
    if (member.volume, config.name.as_str()) != (config.id, name) {
        bail!("{} holds the files of different volumes.\nRestore it from a backup.", folder.display());
    }
    if let Some(copies) = &config.copies
        && copies.store == member.node
    {
        bail!(
            "Volume {name} has copies, and this node's control store had the records of their groups: they are lost with it.\n\
            Restore control.redb from a backup. Nothing was changed."
        );
    }
    let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
    store.create_volume(&config)?;
    Ok(config)
}
