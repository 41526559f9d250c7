//! Changes a volume that is in use: how many copies its islands have, and on which nodes (`docs/design/020-filling.md`).
//!
//! Each change is one swap of the volume's configuration. What follows from it the nodes do, whether this process lives or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use atoll_core::placement::NoPlace;
use atoll_core::{IslandId, NodeId};
use atoll_proto::control::Daemon;
use atoll_proto::group::{GROUP_MEMBERS_MAX, GroupRecord, Revision, Swapped};
use atoll_proto::{Control, ControlReply, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::{Address, Security};

use crate::ask::{NoAnswer, ORDER, QUESTION, ask, ask_all, strange};
use crate::places::{SocketPlace, data_socket};
use crate::status::explain_down;

/// How often a change is tried again when somebody else was faster.
const TRIES: u32 = 20;

/// Nodes read the newest configuration every two seconds. How long that is waited for, and how often it is looked.
const TAKEN_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);

/// A node that is asked about volumes, and by which they are changed.
#[derive(Debug)]
pub struct Changer {
    address: Address,
    /// Keeps the folder open through which the address may lead.
    _place: Option<SocketPlace>,
    /// All nodes reach the records of groups by themselves.
    is_for_all: bool,
}

impl Changer {
    /// By the node of a data directory of this machine.
    pub fn of_data(data: &Path) -> Result<Self> {
        let place = data_socket(data)?;
        let asked = Self::at(place.address.clone()).map_err(|why| explain_down(why, Some(data)))?;
        Ok(Self { _place: Some(place), ..asked })
    }

    /// By the node at an address.
    pub fn at(address: Address) -> Result<Self> {
        let is_for_all = !describe(&address)?.control.is_empty();
        Ok(Self { address, _place: None, is_for_all })
    }

    /// The newest configuration of a volume.
    pub fn config(&self, name: &str) -> Result<VolumeConfig> {
        let order = Control::Volume { name: name.to_owned() };
        let ControlReply::Volume { config, .. } = ask(&self.address, order, QUESTION)? else {
            return Err(strange(&self.address));
        };
        match ask(&self.address, Control::Config { volume: config.id }, ORDER)? {
            ControlReply::Volume { config, .. } => Ok(*config),
            _ => Err(strange(&self.address)),
        }
    }

    /// All nodes reach the records of groups by themselves.
    pub(crate) const fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    /// The records of a volume's groups.
    pub(crate) fn records(&self, config: &VolumeConfig) -> Result<BTreeMap<IslandId, GroupRecord>> {
        let store = config.nodes.iter().find(|node| node.node == config.store_node());
        let address = match store {
            Some(node) if !self.is_for_all => node.address.parse()?,
            _ => self.address.clone(),
        };
        let order = Control::Groups { volume: config.id, since: Revision::NONE, wait_ms: 0 };
        match ask(&address, order, ORDER)? {
            ControlReply::Groups { changed } => {
                Ok(changed.groups.into_iter().map(|group| (group.island, group.record)).collect())
            }
            _ => Err(strange(&address)),
        }
    }

    /// Changes a volume by `change`, which is given it again if somebody else was faster, and says nothing if it is as it should be.
    /// The volume then.
    pub fn change(
        &self,
        name: &str,
        mut change: impl FnMut(&VolumeConfig, bool) -> Result<Option<VolumeConfig>>,
    ) -> Result<VolumeConfig> {
        for _ in 0..TRIES {
            let config = self.config(name)?;
            if config.kind != VolumeKind::Cluster {
                bail!(
                    "Volume {name} is of the kind {}: it has no copies.\nNothing was changed.",
                    config.kind
                );
            }
            let Some(next) = change(&config, self.is_for_all)? else { return Ok(config) };
            if self.swap(&config, &next)? {
                return Ok(next);
            }
        }
        bail!("Volume {name} changes all the time.\nTry again.")
    }

    /// False if somebody else was faster.
    fn swap(&self, config: &VolumeConfig, next: &VolumeConfig) -> Result<bool> {
        let new = next.nodes.iter().filter(|node| config.daemon_of(node.node).is_none());
        let new: Vec<(NodeId, Address)> =
            new.map(|node| Ok((node.node, node.address.parse()?))).collect::<Result<_>>()?;
        for (node, address) in &new {
            let order = Control::Prepare { config: Box::new(next.clone()), node: *node };
            if let Err(why) = ask(address, order, ORDER) {
                discard(next, &new);
                let said = why.to_string();
                let mut lines = said.lines();
                let first = lines.next().unwrap_or_default();
                let then = lines.next().unwrap_or("Nothing was changed. Try again when that is mended.");
                bail!("{address} cannot keep a part of volume {}: {first}\n{then}", next.name);
            }
        }
        let expected = config.table.version();
        let order = Control::SwapConfig { expected, next: Box::new(next.clone()) };
        match ask(&self.address, order, ORDER)? {
            ControlReply::Swapped { swapped: Swapped::Done { .. } } => {}
            ControlReply::Swapped { swapped: Swapped::Conflict } => {
                discard(next, &new);
                return Ok(false);
            }
            ControlReply::Swapped { swapped: Swapped::Unknown { why } } => bail!(
                "The place where volume {} is changed did not answer: {why}.\n\
                The change may have been made: give the order again, which then says how it is.",
                next.name
            ),
            _ => return Err(strange(&self.address)),
        }
        if !new.is_empty() {
            await_taken(config, next);
        }
        for (_, address) in &new {
            // One that misses it learns of it from the others.
            if let Err(why) = ask(address, Control::Activate { volume: next.id }, ORDER) {
                tracing::warn!("{address} does not serve volume {} yet: {why:#}", next.name);
            }
        }
        Ok(true)
    }
}

/// Waits until the nodes of a volume that answer have its next configuration, so that they let a new node in.
fn await_taken(config: &VolumeConfig, next: &VolumeConfig) {
    let addresses: Vec<Address> = config.nodes.iter().filter_map(|node| node.address.parse().ok()).collect();
    let order = Control::Volume { name: config.name.clone() };
    let is_behind = |answer: &Result<ControlReply, NoAnswer>| match answer {
        Ok(ControlReply::Volume { config, .. }) => config.table.version() < next.table.version(),
        _ => false,
    };
    let until = Instant::now() + TAKEN_MAX;
    while Instant::now() < until && ask_all(&addresses, &order, QUESTION).iter().any(is_behind) {
        std::thread::sleep(LOOK);
    }
}

fn discard(next: &VolumeConfig, nodes: &[(NodeId, Address)]) {
    let addresses: Vec<Address> = nodes.iter().map(|(_, address)| address.clone()).collect();
    // One that cannot be told makes room for the volume by itself.
    ask_all(&addresses, &Control::Discard { volume: next.id }, QUESTION);
}

fn describe(address: &Address) -> Result<Daemon> {
    match ask(address, Control::Describe, QUESTION)? {
        ControlReply::Described { daemon, .. } => Ok(daemon),
        _ => Err(strange(address)),
    }
}

/// The nodes of a volume that answer.
pub fn answering(config: &VolumeConfig) -> BTreeSet<NodeId> {
    let with: Vec<(NodeId, Address)> =
        config.nodes.iter().filter_map(|node| Some((node.node, node.address.parse().ok()?))).collect();
    let addresses: Vec<Address> = with.iter().map(|(_, address)| address.clone()).collect();
    let answers = ask_all(&addresses, &Control::Describe, QUESTION);
    with.iter().zip(answers).filter(|(_, answer)| answer.is_ok()).map(|((node, _), _)| *node).collect()
}

/// The same volume with one more node, which keeps nothing yet. Its number is one that no node has.
pub fn with_node(config: &VolumeConfig, address: &Address) -> Result<VolumeConfig> {
    if let Address::Unix { .. } = address {
        bail!("{address} reaches no other machine.\nName the node as HOST:PORT.");
    }
    let daemon = describe(address)?.daemon;
    let is_known = |node: &NodeConfig| {
        node.address == address.to_string() || (node.daemon != 0 && node.daemon == daemon)
    };
    if config.nodes.iter().any(is_known) {
        bail!("{address} is a node of volume {} already.\nNothing was changed.", config.name);
    }
    if config.copies.as_ref().is_some_and(|copies| !copies.racks.is_empty()) {
        bail!(
            "Volume {} has racks, and which one {address} is in cannot be said yet.\nNothing was changed.",
            config.name
        );
    }
    let last = config.nodes.iter().map(|node| node.node.0).max().unwrap_or(0);
    let Some(node) = last.checked_add(1).map(NodeId) else {
        bail!("Volume {} has no number left.", config.name)
    };
    let daemon = if Security::of_process().is_some() { daemon } else { 0 };
    let mut next = config.clone();
    next.nodes.push(NodeConfig { node, daemon, address: address.to_string(), islands: Vec::new() });
    Ok(next)
}

/// What is to be different about a volume.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// How many copies of each island.
    pub replicas: Option<usize>,
    /// For so many seconds a node may be away before another one keeps its islands too.
    pub grace_s: Option<u32>,
    /// Nodes that the volume shall have too.
    pub add: Vec<Address>,
}

/// Changes a volume. The volume then.
pub fn set(changer: &Changer, name: &str, wish: &Wish) -> Result<VolumeConfig> {
    if let Some(replicas) = wish.replicas
        && !(1..=GROUP_MEMBERS_MAX).contains(&replicas)
    {
        bail!("{replicas} copies are not possible: 1 to {GROUP_MEMBERS_MAX} are.\nNothing was changed.");
    }
    changer.change(name, |config, is_for_all| {
        let mut next = config.clone();
        for address in &wish.add {
            next = with_node(&next, address)?;
        }
        has_addresses(&next)?;
        let has = next.with_groups().copies.map_or(1, |copies| copies.wanted);
        if config.copies.is_none()
            && wish.replicas.is_none_or(|replicas| replicas == 1)
            && wish.grace_s.is_none()
        {
            // Its islands need no groups for that.
            let table = config.table.reassigned([]);
            return Ok((next.nodes != config.nodes).then_some(VolumeConfig { table, ..next }));
        }
        let wanted = wish.replicas.map_or(has, |replicas| replicas as u8);
        let mut copies = if wanted == has {
            next.with_groups().copies.expect("it has groups")
        } else {
            let alive = answering(&next);
            let may_get = |_, node| alive.contains(&node);
            let wanted = next.with_wanted(wanted, is_for_all, &|_| false, &may_get);
            wanted.map_err(|why| no_place(&next, &alive, &why))?.copies.expect("it has groups")
        };
        copies.grace_s = wish.grace_s.or(copies.grace_s);
        let is_same = next == *config && config.copies.as_ref() == Some(&copies);
        Ok((!is_same).then(|| next.with_copies(copies)))
    })
}

/// Refuses a volume whose nodes cannot reach each other.
fn has_addresses(config: &VolumeConfig) -> Result<()> {
    if config.nodes.iter().any(|node| node.address.is_empty()) {
        bail!(
            "Volume {} is on a node that other machines do not reach: its islands have one copy each.\n\
            Start the node with \"atoll serve --listen HOST:PORT\", and make a volume on that address.",
            config.name
        );
    }
    Ok(())
}

/// Why no node is found for a copy, and what to do next.
pub(crate) fn no_place(config: &VolumeConfig, alive: &BTreeSet<NodeId>, why: &NoPlace) -> anyhow::Error {
    let silent: Vec<&str> = config
        .nodes
        .iter()
        .filter(|node| !alive.contains(&node.node))
        .map(|node| node.address.as_str())
        .collect();
    let drained = config.copies.as_ref().map_or(0, |copies| copies.drained.len());
    let name = &config.name;
    match why {
        NoPlace::Nodes { replicas, .. } if !silent.is_empty() => anyhow!(
            "{replicas} copies need {replicas} nodes, and {} of volume {name} do not answer: {}.\n\
            Start them, or add a node: atoll volume set {name} --add HOST:PORT. Nothing was changed.",
            silent.len(),
            silent.join(", ")
        ),
        NoPlace::Nodes { replicas, .. } => anyhow!(
            "{replicas} copies need {replicas} nodes, and volume {name} has {}{}.\n\
            Add one: atoll volume set {name} --add HOST:PORT. Nothing was changed.",
            config.nodes.len(),
            if drained > 0 { format!(", of which {drained} are drained or to be") } else { String::new() }
        ),
        why => anyhow!("Volume {name} cannot be so: {why}.\nNothing was changed."),
    }
}
