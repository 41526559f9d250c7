//! Makes a volume over running nodes: on all of them, or on none. Adopts one that a control store has lost.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use atoll_control::{ControlStore, DataDir, EmbeddedStore, check_volume_name};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_proto::{Control, ControlReply, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::Address;

use crate::ask::{NoAnswer, ORDER, QUESTION, ask, ask_all, strange, try_ask};
use crate::kind;
use crate::node::random;

/// Most islands of a volume.
const ISLANDS_MAX: usize = 4096;

/// A volume that is to be made.
#[derive(Debug)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// Its contract.
    pub kind: VolumeKind,
    /// Its nodes, as mounts and the other nodes reach them.
    pub nodes: Vec<Address>,
    /// How many islands each node gets.
    pub islands_per_node: u16,
}

/// A volume that was made.
#[derive(Debug)]
pub struct Created {
    /// The volume.
    pub config: VolumeConfig,
    /// Why nodes did not confirm that they serve it, each in its own words.
    pub late: Vec<String>,
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
        let config = self.config()?;
        self.check_nodes()?;
        self.prepare(&config)?;
        let late = self.activate(&config)?;
        Ok(Created { config, late })
    }

    fn config(&self) -> Result<VolumeConfig> {
        if let Some(unix) = self.nodes.iter().find(|a| matches!(a, Address::Unix { .. })) {
            bail!("{unix} reaches no other machine.\nName each node as HOST:PORT.");
        }
        let per_node = usize::from(self.islands_per_node);
        let islands = per_node * self.nodes.len();
        if islands > ISLANDS_MAX {
            bail!("{islands} islands are too many: {ISLANDS_MAX} are allowed.\nLower --islands-per-node.");
        }
        let nodes = self.nodes.iter().enumerate().map(|(at, address)| NodeConfig {
            node: NodeId(at as u16),
            address: address.to_string(),
            islands: (at * per_node..(at + 1) * per_node).map(|i| IslandId(i as u16)).collect(),
        });
        Ok(VolumeConfig {
            id: VolumeId(random()?),
            name: self.name.clone(),
            seed: random()?,
            table: Table::new(islands as u16),
            nodes: nodes.collect(),
            kind: self.kind,
            copies: None,
        })
    }

    /// Every node answers, and no two addresses lead to the same one.
    fn check_nodes(&self) -> Result<()> {
        let mut seen: Vec<(u64, &Address)> = Vec::new();
        for (address, answer) in self.nodes.iter().zip(ask_all(&self.nodes, &Control::Describe, QUESTION)) {
            let daemon = match answer {
                Ok(ControlReply::Described { daemon, .. }) => daemon.daemon,
                Ok(ControlReply::Refused { text }) => bail!("{text}"),
                Ok(_) => return Err(strange(address)),
                Err(why) => return Err(why.into_error()),
            };
            if let Some((_, other)) = seen.iter().find(|(known, _)| *known == daemon) {
                bail!("{other} and {address} are the same node.\nName each node once.");
            }
            seen.push((daemon, address));
        }
        Ok(())
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
    let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
    store.create_volume(&config)?;
    Ok(config)
}
