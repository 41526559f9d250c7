//! `atoll volume`: make volumes over several nodes, and list them.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use atoll_control::{ControlStore, DataDir, EmbeddedStore, check_volume_name};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_proto::control::VolumeSummary;
use atoll_proto::{Control, ControlReply, NodeConfig, VolumeConfig, VolumeKind};
use atoll_rpc::Address;
use serde_json::json;

use crate::say;
use atoll_volume::ask::{NoAnswer, ORDER, QUESTION, ask, ask_all, strange, try_ask};
use atoll_volume::node::random;
use atoll_volume::places::{data_socket, reach};
use atoll_volume::source::{WHOM, mount_point, of_mount};

/// Most islands of a volume.
const ISLANDS_MAX: usize = 4096;

/// Arguments of `atoll volume`.
#[derive(Debug, clap::Args)]
pub(crate) struct Volume {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a volume over running nodes: on all of them, or on none
    Create(Create),
    /// List the volumes that a node has
    List(List),
    /// Take up a volume whose folder lies in a data directory, but which its control store has lost
    Adopt(Adopt),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Name of the volume: letters, digits, hyphens, underscores and dots
    name: String,
    /// The nodes, as mounts and the other nodes reach them
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    nodes: Vec<Address>,
    /// How many islands each node gets; about one for two cores
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    islands_per_node: u16,
    /// What the volume promises: cluster. The kinds union and wide are not built yet
    #[arg(long, default_value = "cluster", value_name = "KIND", value_parser = kind_named)]
    kind: VolumeKind,
}

#[derive(Debug, clap::Args)]
struct List {
    /// The node to ask, or where a volume is mounted whose nodes are asked
    #[arg(value_name = "HOST:PORT|DIR", conflicts_with = "data")]
    whom: Option<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Adopt {
    /// Name of the volume
    name: String,
    /// The data directory; its daemon must not run
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Volume {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Create(create) => create.run(),
            Command::List(list) => list.run(),
            Command::Adopt(adopt) => adopt.run(),
        }
    }
}

/// A kind, as a user writes it.
fn kind_named(text: &str) -> Result<VolumeKind, String> {
    let kinds = VolumeKind::ALL.map(|kind| kind.to_string());
    let found = VolumeKind::ALL.into_iter().find(|kind| kind.to_string() == text);
    found.ok_or_else(|| format!("there are the kinds {}", kinds.join(", ")))
}

impl Create {
    fn run(self) -> Result<()> {
        check_volume_name(&self.name)
            .map_err(|e| anyhow!("\"{}\" cannot name a volume: {}.", e.text, e.why))?;
        atoll_volume::kind::of(self.kind)
            .map_err(|why| anyhow!("Volume {} was not made: {why}", self.name))?;
        let config = self.config()?;
        self.check_nodes()?;
        self.prepare(&config)?;
        self.activate(&config)
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
    fn activate(&self, config: &VolumeConfig) -> Result<()> {
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
        let first = &self.nodes[0];
        for why in &late {
            eprintln!("atoll: {}", why.lines().next().unwrap_or_default());
        }
        if !late.is_empty() {
            eprintln!("What it keeps cannot be reached until it is back: see \"atoll status {first}\".");
        }
        let all: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        say::line(format_args!(
            "volume   {} ({} islands on {} nodes)",
            self.name,
            config.islands().len(),
            self.nodes.len()
        ));
        say::line(format_args!("mount    atoll mount {}:/{} DIR", all.join(","), self.name));
        Ok(())
    }
}

impl Adopt {
    fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        check_volume_name(&self.name)
            .map_err(|e| anyhow!("\"{}\" cannot name a volume: {}.", e.text, e.why))?;
        let dir = DataDir::open(&self.data)?;
        let folder = dir.path().join(atoll_server::ISLANDS).join(&self.name);
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
        if (member.volume, &config.name) != (config.id, &self.name) {
            bail!("{} holds the files of different volumes.\nRestore it from a backup.", folder.display());
        }
        let store = EmbeddedStore::open(&dir.path().join(EmbeddedStore::FILE))?;
        store.create_volume(&config)?;
        say::line(format_args!("volume   {} ({} islands)", self.name, config.islands().len()));
        say::line(format_args!("next     atoll check --data {} --read", dir.path().display()));
        Ok(())
    }
}

impl List {
    fn run(self) -> Result<()> {
        let volumes = match (&self.whom, &self.data) {
            (Some(whom), _) if whom.contains(':') => described(&whom.parse()?)?,
            (Some(point), _) => self.of_nodes(point)?,
            (None, Some(data)) => {
                let socket = data_socket(data)?;
                described(&socket.address).map_err(|why| crate::status::explain_down(why, Some(data)))?
            }
            (None, None) => bail!("Whom to ask?\n{WHOM}"),
        };
        if self.json {
            say::json(&json!(volumes.iter().map(summary).collect::<Vec<_>>()));
            return Ok(());
        }
        if volumes.is_empty() {
            say::line("No volumes.");
        }
        for volume in volumes {
            let nodes: Vec<&str> =
                volume.nodes.iter().map(|n| if n.is_empty() { "local" } else { n }).collect();
            say::line(format_args!(
                "{:<20} {:<8} {:>4} islands  {}",
                volume.name,
                volume.kind.to_string(),
                volume.islands,
                nodes.join(",")
            ));
            if let Some(problem) = &volume.problem {
                say::line(format_args!("  {problem}"));
            }
        }
        Ok(())
    }

    /// What the nodes of a mounted volume have, the first that answers.
    fn of_nodes(&self, point: &str) -> Result<Vec<VolumeSummary>> {
        let (_, from) = of_mount(&mount_point(point)?)?;
        let mut why = None;
        for address in from.iter().filter(|address| !address.is_empty()) {
            match reach(address).and_then(|place| described(&place.address)) {
                Ok(volumes) => return Ok(volumes),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| anyhow!("The nodes of {point} have no address.")))
    }
}

/// The volumes of a daemon.
fn described(address: &Address) -> Result<Vec<VolumeSummary>> {
    match ask(address, Control::Describe, QUESTION)? {
        ControlReply::Described { volumes, .. } => Ok(volumes),
        _ => Err(strange(address)),
    }
}

/// A volume for programs.
pub(crate) fn summary(volume: &VolumeSummary) -> serde_json::Value {
    json!({
        "name": volume.name,
        "id": format!("{:016x}", volume.id.0),
        "kind": volume.kind.to_string(),
        "islands": volume.islands,
        "table_version": volume.table,
        "nodes": volume.nodes,
        "problem": volume.problem,
    })
}
