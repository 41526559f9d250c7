//! `atoll status`: how nodes, islands and mounts are, and what they have done.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use atoll_proto::control::{Daemon, IslandStatus, Metric, MountStatus, VolumeStatus};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::Address;
use serde_json::{Value, json};

use crate::say;
use atoll_volume::ask::{NoAnswer, QUESTION, ask, ask_all, strange};
use atoll_volume::places::{self, SocketPlace, data_socket, mount_socket};

/// Operations of the kernel that are shown without --json.
const FUSE_SHOWN: usize = 6;

/// Arguments of `atoll status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// A node's HOST:PORT, or where a volume is mounted. Without it: all mounts of this machine
    #[arg(value_name = "HOST:PORT|DIR", conflicts_with = "data")]
    target: Option<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// What one process said.
struct Told {
    daemon: Daemon,
    volumes: Vec<VolumeStatus>,
    mounts: Vec<MountStatus>,
}

#[derive(Default)]
struct Collected {
    told: Vec<Told>,
    /// Nodes that did not answer, and why.
    down: Vec<(Address, String)>,
}

impl Status {
    pub(crate) fn run(self) -> Result<()> {
        let mut all = Collected::default();
        match (&self.target, &self.data) {
            (_, Some(data)) => {
                let socket = data_socket(data)?;
                let told = told(&socket.address).map_err(|why| explain_down(why, Some(data)))?;
                all.told.push(told);
            }
            (Some(target), None) => all.told.push(ask_target(target)?),
            (None, None) => {
                for mount in places::mounts()? {
                    match mount_socket(&mount.path).and_then(|s| told(&s.address)) {
                        Ok(told) => all.told.push(told),
                        Err(_) => match mount.not_ours() {
                            Some(why) => eprintln!("atoll: {}", first_line(&why.to_string())),
                            None => eprintln!("atoll: the mount {} does not answer.", mount.path.display()),
                        },
                    }
                }
                if all.told.is_empty() {
                    say::line("Nothing of Atoll is mounted here. To ask a node: atoll status HOST:PORT");
                    return Ok(());
                }
            }
        }
        all.ask_others();
        if self.json {
            say::json(&all.json())
        } else {
            all.show()
        }
        Ok(())
    }
}

/// A mount point, or else an address.
fn ask_target(target: &str) -> Result<Told> {
    let path = places::absolute(Path::new(target))?;
    if let Some((mount, true)) = places::mounted_at(&path)? {
        let socket = mount_socket(&path)?;
        return told(&socket.address).map_err(|_| {
            mount.not_ours().unwrap_or_else(|| {
                anyhow!(
                    "The process of the mount {} does not answer.\nWas it killed? Then mount anew.",
                    path.display()
                )
            })
        });
    }
    if path.is_dir() {
        bail!("{} is not a mount of Atoll.\nNothing is mounted there, or something else is.", path.display());
    }
    told(&target.parse()?)
}

/// Tells the usual reason why a data directory's daemon does not answer.
pub(crate) fn explain_down(why: anyhow::Error, data: Option<&Path>) -> anyhow::Error {
    match data {
        Some(data) if why.to_string().contains("cannot be reached") => anyhow!(
            "No daemon runs on the data directory {0}.\nStart it: atoll serve --data {0} --listen HOST:PORT, or atoll up",
            data.display()
        ),
        _ => why,
    }
}

fn told(address: &Address) -> Result<Told> {
    match ask(address, Control::Status, QUESTION)? {
        ControlReply::Status { daemon, volumes, mounts } => Ok(Told { daemon, volumes, mounts }),
        _ => Err(strange(address)),
    }
}

impl Collected {
    /// Asks the other nodes of the volumes that were told of.
    fn ask_others(&mut self) {
        let mut asked: Vec<String> = self.told.iter().flat_map(|t| t.daemon.addresses.clone()).collect();
        let mut wanted: Vec<String> = Vec::new();
        for told in &self.told {
            for volume in &told.volumes {
                let nodes = volume.volume.nodes.iter().enumerate();
                wanted.extend(
                    nodes.filter(|(at, _)| *at != usize::from(volume.node.0)).map(|(_, a)| a.clone()),
                );
            }
            wanted.extend(told.mounts.iter().flat_map(|m| m.nodes.iter().map(|n| n.address.clone())));
        }
        let mut places: Vec<SocketPlace> = Vec::new();
        for text in wanted.into_iter().filter(|text| !text.is_empty()) {
            if !asked.contains(&text) {
                places.extend(places::reach(&text));
                asked.push(text);
            }
        }
        let addresses: Vec<Address> = places.iter().map(|p| p.address.clone()).collect();
        for (address, answer) in addresses.iter().zip(ask_all(&addresses, &Control::Status, QUESTION)) {
            match answer {
                Ok(ControlReply::Status { daemon, volumes, mounts }) => {
                    let known = |t: &Told| t.daemon.daemon == daemon.daemon && daemon.daemon != 0;
                    if !self.told.iter().any(known) {
                        self.told.push(Told { daemon, volumes, mounts });
                    }
                }
                Ok(_) => self.down.push((address.clone(), "it answers something else".to_owned())),
                Err(NoAnswer::Unreachable(why)) => {
                    self.down.push((address.clone(), first_line(&why.to_string())))
                }
                Err(NoAnswer::Unknown(why)) => self.down.push((address.clone(), first_line(&why))),
            }
        }
    }

    fn show(&self) {
        for told in &self.told {
            let daemon = &told.daemon;
            let up = say::span(daemon.up_ms);
            if daemon.daemon != 0 {
                say::line(format_args!(
                    "node {:016x}  {}  pid {}  up {up}  start {}  links {}",
                    daemon.daemon,
                    daemon.addresses.join(" "),
                    daemon.pid,
                    daemon.incarnation,
                    daemon.links
                ));
                say::line(format_args!("  data   {}", daemon.data));
            } else {
                say::line(format_args!("mount process  pid {}  up {up}", daemon.pid));
            }
            told.volumes.iter().for_each(show_volume);
            told.mounts.iter().for_each(show_mount);
        }
        for (_, why) in &self.down {
            say::line(format_args!("down: {why}"));
        }
    }

    fn json(&self) -> Value {
        let processes: Vec<Value> = self.told.iter().map(told_json).collect();
        let down: Vec<Value> =
            self.down.iter().map(|(a, why)| json!({ "address": a.to_string(), "why": why })).collect();
        json!({ "processes": processes, "down": down })
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn show_volume(volume: &VolumeStatus) {
    say::line(format_args!(
        "  volume {}  {}  node {}  table {}  free {} of {}",
        volume.volume.name,
        volume.volume.kind,
        volume.node,
        volume.volume.table,
        say::bytes(volume.bytes_available),
        say::bytes(volume.bytes)
    ));
    if let Some(problem) = &volume.volume.problem {
        say::line(format_args!("    NOT SERVED: {}", first_line(problem)));
    }
    for (node, up) in &volume.others {
        if !up {
            say::line(format_args!("    node {node} cannot be reached from here"));
        }
    }
    for island in &volume.islands {
        let phase = phase(island);
        say::line(format_args!(
            "    island {:<4} {phase:<8} {}",
            island.island.to_string(),
            listed(&island.metrics)
        ));
        if let Some(why) = &island.halted {
            say::line(format_args!("      {why}"));
        }
        if let Some((lack, ms)) = &island.read_only {
            say::line(format_args!(
                "      READ-ONLY for {} s: the disk has no space for {lack}; it goes on by itself when there is some",
                ms / 1000
            ));
        }
        let too_long = island.metrics.iter().find(|m| m.name == "too_long").map_or(0, |m| m.value);
        if too_long > 0 {
            say::line(format_args!("      TOO LONG to be sent: {too_long} messages or answers"));
        }
    }
}

/// Names with their values, on one line.
fn listed(metrics: &[Metric]) -> String {
    let shown: Vec<String> =
        metrics.iter().map(|m| format!("{} {}", m.name.replace('_', " "), m.value)).collect();
    shown.join("  ")
}

/// Adds each metric to an object, under its name.
fn with_metrics(mut object: Value, metrics: &[Metric]) -> Value {
    for metric in metrics {
        object[&metric.name] = metric.value.into();
    }
    object
}

fn phase(island: &IslandStatus) -> &'static str {
    match (&island.halted, island.normal) {
        (Some(_), _) => "HALTED",
        (None, true) => "normal",
        (None, false) => "starting",
    }
}

fn show_mount(mount: &MountStatus) {
    say::line(format_args!("  mount {}  volume {}  {}", mount.point, mount.volume, mount.kind));
    say::line(format_args!("    {}", listed(&mount.metrics)));
    for node in &mount.nodes {
        let islands: Vec<String> = node.islands.iter().map(ToString::to_string).collect();
        let state = if node.up { "connected" } else { "AWAY" };
        say::line(format_args!(
            "    node {:<3} {state:<9} islands {}  {}",
            node.node.to_string(),
            islands.join(","),
            node.address
        ));
    }
    let mut fuse: Vec<_> = mount.fuse.iter().collect();
    fuse.sort_by_key(|count| std::cmp::Reverse(count.requests));
    let total: u64 = fuse.iter().map(|c| c.requests).sum();
    let most: Vec<String> =
        fuse.iter().take(FUSE_SHOWN).map(|c| format!("{} {}", c.operation, c.requests)).collect();
    say::line(format_args!("    kernel {total} requests: {}", most.join("  ")));
}

fn told_json(told: &Told) -> Value {
    let daemon = &told.daemon;
    json!({
        "node": (daemon.daemon != 0).then(|| format!("{:016x}", daemon.daemon)),
        "cluster": (daemon.cluster != 0).then(|| format!("{:016x}", daemon.cluster)),
        "incarnation": daemon.incarnation,
        "pid": daemon.pid,
        "up_ms": daemon.up_ms,
        "software": daemon.software,
        "data": (!daemon.data.is_empty()).then_some(&daemon.data),
        "addresses": daemon.addresses,
        "links": daemon.links,
        "volumes": told.volumes.iter().map(volume_json).collect::<Vec<_>>(),
        "mounts": told.mounts.iter().map(mount_json).collect::<Vec<_>>(),
    })
}

fn volume_json(volume: &VolumeStatus) -> Value {
    let islands = volume.islands.iter().map(|i| {
        let object = json!({
            "island": i.island.0, "phase": phase(i).to_lowercase(), "halted": i.halted,
            "read_only": i.read_only.as_ref().map(|(lack, ms)| json!({ "lacks": lack, "ms": ms })),
        });
        with_metrics(object, &i.metrics)
    });
    let others = volume.others.iter().map(|(node, up)| json!({ "node": node.0, "reachable": up }));
    json!({
        "volume": crate::volume::summary(&volume.volume),
        "node": volume.node.0,
        "islands": islands.collect::<Vec<_>>(),
        "others": others.collect::<Vec<_>>(),
        "bytes": volume.bytes,
        "bytes_available": volume.bytes_available,
    })
}

fn mount_json(mount: &MountStatus) -> Value {
    let fuse = mount
        .fuse
        .iter()
        .map(|c| json!({ "operation": c.operation, "requests": c.requests, "errors": c.errors }));
    let nodes = mount.nodes.iter().map(|n| {
        let islands: Vec<u16> = n.islands.iter().map(|i| i.0).collect();
        json!({ "node": n.node.0, "address": n.address, "islands": islands, "up": n.up })
    });
    let object = json!({
        "point": mount.point, "volume": mount.volume, "kind": mount.kind.to_string(),
        "fuse": fuse.collect::<Vec<_>>(), "nodes": nodes.collect::<Vec<_>>(),
    });
    with_metrics(object, &mount.metrics)
}
