//! `atoll volume`: make volumes over several nodes, and list them.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_proto::control::VolumeSummary;
use atoll_proto::{Copies, VolumeKind};
use atoll_rpc::Address;
use atoll_volume::change::{self, Changer, Wish};
use atoll_volume::create::{Created, adopt, hangs_on_store};
use atoll_volume::machines::DATA;
use atoll_volume::members::Members;
use atoll_volume::places::data_socket;
use atoll_volume::source::WHOM;
use atoll_volume::status::{explain_down, first_line, volumes_of, volumes_of_mount};
use atoll_volume::wide;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;

use crate::say;
use crate::site::NewSite;

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
    /// Change a volume while it is in use: how many nodes keep each island, its nodes, its grace
    Set(Set),
    /// List the volumes that a node has
    List(List),
    /// Register a volume again if its folder is in a data directory and the control store has lost it
    Adopt(Adopt),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Name of the volume: letters, digits, hyphens, underscores and dots
    name: String,
    /// The nodes, as mounts and the other nodes reach them
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    nodes: Vec<Address>,
    /// The data directory of a node of this machine: without --nodes, all nodes of its cluster are taken
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Number of islands of each node; about one for two cores
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    islands_per_node: u16,
    /// The kind of the volume: cluster, or wide, whose first site the node of --data gets
    #[arg(long, default_value = "cluster", value_name = "KIND", value_parser = kinds())]
    kind: VolumeKind,
    /// Number of nodes that keep each island
    #[arg(long, value_name = "N", default_value_t = 1)]
    replicas: usize,
    /// The rack of each node: copies of an island lie in different racks
    #[arg(long, value_name = "RACK,...", value_delimiter = ',')]
    racks: Vec<String>,
    /// The name of the first site of a wide volume; by default that of this machine
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    #[command(flatten)]
    place: NewSite,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
struct Set {
    /// Name of the volume
    name: String,
    /// Number of nodes that shall keep each island. Returns at once: "atoll status" shows how far the copies are
    #[arg(long, alias = "copies", value_name = "N", group = "what")]
    replicas: Option<usize>,
    /// For so many seconds a node may be away before another one, if one is spare, keeps its islands in its place
    #[arg(long, value_name = "SECONDS", group = "what", value_parser = clap::value_parser!(u32).range(1..))]
    grace: Option<u32>,
    /// More nodes for the volume, as mounts and the other nodes reach them. They keep nothing until copies are wanted there
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', group = "what")]
    add: Vec<Address>,
    /// The node to ask; by default the one of --data
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "data")]
    at: Option<Address>,
    /// The data directory of a node of this machine, which is asked
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    /// The node to ask, or a mount point: then the nodes of its volume are asked
    #[arg(value_name = "HOST:PORT|DIR", conflicts_with = "data")]
    whom: Option<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// Print JSON, for programs
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
    /// The data directory of the node that is asked, if one is named or meant.
    pub(crate) fn data(&self) -> Option<&Path> {
        match &self.command {
            Command::Create(create) => Some(&create.data),
            Command::Set(set) => set.at.is_none().then_some(set.data.as_path()),
            Command::List(list) => list.data.as_deref(),
            Command::Adopt(_) => None,
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Create(create) => create.run(),
            Command::Set(set) => set.run(),
            Command::List(list) => list.run(),
            Command::Adopt(adopt) => adopt.run(),
        }
    }
}

/// The kinds, as a user writes them.
/// The nodes of the cluster of a node of this machine.
fn all_nodes(data: &Path) -> Result<Vec<Address>> {
    if !data.exists() {
        bail!(
            "Name the nodes of the volume: --nodes HOST:PORT,...\nOr name a data directory of a node of this machine: --data DIR"
        );
    }
    Members::of_data(data)?.addresses(data)
}

fn kinds() -> impl TypedValueParser<Value = VolumeKind> {
    let named = |text: String| VolumeKind::ALL.into_iter().find(|kind| kind.name() == text);
    PossibleValuesParser::new(VolumeKind::ALL.map(VolumeKind::name))
        .map(move |text| named(text).unwrap_or_default())
}

impl Create {
    fn run(self) -> Result<()> {
        if self.kind == VolumeKind::Wide {
            return self.run_wide();
        }
        let Self { name, nodes, data, islands_per_node, kind, replicas, racks, site, place } = self;
        if site.is_some() || !place.is_empty() {
            bail!(
                "--site, --at, --site-listen and --rate are for volumes of the kind wide.\nName that too: --kind wide"
            );
        }
        let nodes = if nodes.is_empty() { all_nodes(&data)? } else { nodes };
        let create = atoll_volume::create::Create { name, kind, nodes, islands_per_node, replicas, racks };
        let Created { config, late, is_for_all } = create.run()?;
        for why in &late {
            eprintln!("atoll: {}", first_line(why));
        }
        if !late.is_empty() {
            let first = &create.nodes[0];
            eprintln!("What it keeps cannot be reached until it is back: see \"atoll status {first}\".");
        }
        let all: Vec<String> = create.nodes.iter().map(ToString::to_string).collect();
        let (name, islands) = (&config.name, config.islands().len());
        let copies =
            config.copies.as_ref().map_or(String::new(), |c| format!(", {} copies of each", c.wanted));
        say::line(format_args!("volume   {name} ({islands} islands on {} nodes{copies})", all.len()));
        if !is_for_all && let Some([what, then]) = hangs_on_store(&config) {
            say::line(format_args!("store    {what}"));
            say::line(format_args!("         {then}"));
        }
        say::line(format_args!("mount    atoll mount {}:/{name} DIR", all.join(",")));
        Ok(())
    }
}

impl Create {
    fn run_wide(self) -> Result<()> {
        let Self { name, nodes, data, islands_per_node, replicas, racks, site, place, .. } = self;
        if !nodes.is_empty() || islands_per_node != 1 || replicas != 1 || !racks.is_empty() {
            bail!(
                "A wide volume begins with one site, at the node of --data: --nodes, --islands-per-node, --replicas and --racks are \
                not for it.\nMore sites join it: atoll site invite"
            );
        }
        let (_, place) = wide::create(&data, &name, &place.wish(site))?;
        say::line(format_args!("volume   {name}"));
        say::line(format_args!("site     {}", place.name));
        if !place.listen.is_empty() {
            say::line(format_args!("listens  {} for other sites", place.listen));
        }
        say::line(format_args!("mount    atoll mount --data {} --volume {name} DIR", data.display()));
        say::line(format_args!("invite   atoll site invite --data {} --volume {name}", data.display()));
        Ok(())
    }
}

impl Set {
    fn run(self) -> Result<()> {
        let Self { name, replicas, grace, add, at, data, json } = self;
        let changer = match at {
            Some(address) => Changer::at(address)?,
            None => Changer::of_data(&data)?,
        };
        let config = change::set(&changer, &name, &Wish { replicas, grace_s: grace, add })?;
        let copies = config.copies.clone().unwrap_or_default();
        let (wanted, grace) = (copies.wanted.max(1), copies.grace_s.unwrap_or(Copies::GRACE_S));
        let nodes: Vec<&str> = config.nodes.iter().map(|node| node.address.as_str()).collect();
        if json {
            say::json(&json!({
                "name": config.name, "version": config.table.version(), "replicas": wanted, "grace_s": grace, "nodes": nodes,
            }));
            return Ok(());
        }
        let islands = config.islands().len();
        say::line(format_args!(
            "volume   {name} ({islands} islands on {} nodes, {wanted} copies of each are wanted)",
            nodes.len()
        ));
        say::line(format_args!("grace    {grace} s"));
        let first = nodes.first().copied().unwrap_or_default();
        say::line(format_args!("next     atoll status {first} shows how far the copies are"));
        Ok(())
    }
}

impl Adopt {
    fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let config = adopt(&self.data, &self.name)?;
        say::line(format_args!("volume   {} ({} islands)", self.name, config.islands().len()));
        say::line(format_args!("next     atoll check --data {} --read", self.data.display()));
        Ok(())
    }
}

impl List {
    fn run(self) -> Result<()> {
        let volumes = match (&self.whom, &self.data) {
            (Some(whom), _) if whom.contains(':') => volumes_of(&whom.parse()?)?,
            (Some(point), _) => volumes_of_mount(point)?,
            (None, Some(data)) => {
                let socket = data_socket(data)?;
                volumes_of(&socket.address).map_err(|why| explain_down(why, Some(data)))?
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
