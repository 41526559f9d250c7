//! `atoll status`: the status of nodes, islands and mounts, and their counters.

use std::path::PathBuf;

use anyhow::Result;
use atoll_proto::control::{Connection, IslandPhase, IslandStatus, Metric, MountStatus, VolumeStatus};
use atoll_volume::group::{shown as copies, span, to_json as copies_json};
use atoll_volume::status::{Collected, Told, first_line};
use serde_json::{Value, json};

use crate::say;

/// Operations of the kernel that are shown without --json.
const FUSE_SHOWN: usize = 6;

/// Arguments of `atoll status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// A node's HOST:PORT, or a mount point. Without it: all mounts of this machine
    #[arg(value_name = "HOST:PORT|DIR", conflicts_with = "data")]
    target: Option<String>,
    /// Ask the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Status {
    /// The data directory of the node that is asked, if one is named.
    pub(crate) fn data(&self) -> Option<&std::path::Path> {
        self.data.as_deref()
    }

    pub(crate) fn run(self) -> Result<()> {
        let all = match (&self.target, &self.data) {
            (_, Some(data)) => Collected::of_data(data)?,
            (Some(target), None) => Collected::of(target)?,
            (None, None) => Collected::of_mounts()?,
        };
        all.silent.iter().for_each(|why| eprintln!("atoll: {why}"));
        if all.told.is_empty() {
            say::line("Nothing of Atoll is mounted here. To ask a node: atoll status HOST:PORT");
            return Ok(());
        }
        if self.json {
            say::json(&to_json(&all))
        } else {
            show(&all)
        }
        Ok(())
    }
}

/// Tells people.
fn show(all: &Collected) {
    for told in &all.told {
        let daemon = &told.daemon;
        let up = span(daemon.up_ms);
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
            if !daemon.control.is_empty() {
                say::line(format_args!("  groups {}", daemon.control));
            }
        } else {
            say::line(format_args!("mount process  pid {}  up {up}", daemon.pid));
        }
        told.volumes.iter().for_each(show_volume);
        told.mounts.iter().for_each(show_mount);
    }
    for (_, why) in &all.down {
        say::line(format_args!("down: {why}"));
    }
}

fn to_json(all: &Collected) -> Value {
    let processes: Vec<Value> = all.told.iter().map(told_json).collect();
    let down: Vec<Value> =
        all.down.iter().map(|(a, why)| json!({ "address": a.to_string(), "why": why })).collect();
    json!({ "processes": processes, "down": down })
}

fn show_volume(volume: &VolumeStatus) {
    let space = match (volume.bytes, volume.store == Some(volume.node)) {
        (0, true) => "keeps the control store, and no copies".to_owned(),
        (bytes, _) => format!("free {} of {}", say::bytes(volume.bytes_available), say::bytes(bytes)),
    };
    let store = volume.store.map_or(String::new(), |node| format!("  control store on node {node}"));
    say::line(format_args!(
        "  volume {}  {}  node {}  table {}{store}  {space}",
        volume.volume.name, volume.volume.kind, volume.node, volume.volume.table,
    ));
    if let Some(problem) = &volume.volume.problem {
        say::line(format_args!("    NOT SERVED: {}", first_line(problem)));
    }
    for (node, connection) in &volume.others {
        match connection {
            Connection::Direct => {}
            Connection::Relayed => {
                say::line(format_args!("    node {node} is reached through another node, not directly"));
            }
            Connection::Down if volume.store == Some(*node) => say::line(format_args!(
                "    node {node} cannot be reached from here, and has the CONTROL STORE: no other copy can begin to lead"
            )),
            Connection::Down => say::line(format_args!("    node {node} cannot be reached from here")),
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
        if let Some(group) = &island.group {
            say::line(format_args!("      copies: {}", copies(group)));
        }
        if let Some((lack, ms)) = &island.read_only {
            say::line(format_args!(
                "      READ-ONLY for {} s: the disk has no space for {lack}; it goes on by itself when there is some",
                ms / 1000
            ));
        }
        if !island.spilled.is_empty() {
            let count = island.metrics.iter().find(|m| m.name == "xattrs_spilled").map_or(0, |m| m.value);
            let more = count.saturating_sub(island.spilled.len() as u64);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            say::line(format_args!(
                "      XATTRS that the native file system refuses are kept beside the plain tree: {}{more}",
                island.spilled.join(", ")
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
    match (&island.halted, island.phase) {
        (Some(_), _) => "HALTED",
        (None, IslandPhase::Normal) => "normal",
        (None, IslandPhase::Starting) => "starting",
        (None, IslandPhase::Opening) => "opening",
        (None, IslandPhase::Follows) => "follows",
    }
}

fn show_mount(mount: &MountStatus) {
    say::line(format_args!("  mount {}  volume {}  {}", mount.point, mount.volume, mount.kind));
    say::line(format_args!("    {}", listed(&mount.metrics)));
    for node in &mount.nodes {
        let islands: Vec<String> = node.islands.iter().map(ToString::to_string).collect();
        let state = match node.connection {
            Connection::Direct => "connected",
            Connection::Relayed => "relayed",
            Connection::Down => "AWAY",
        };
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
        "groups_in": (!daemon.control.is_empty()).then_some(&daemon.control),
        "volumes": told.volumes.iter().map(volume_json).collect::<Vec<_>>(),
        "mounts": told.mounts.iter().map(mount_json).collect::<Vec<_>>(),
    })
}

fn volume_json(volume: &VolumeStatus) -> Value {
    let islands = volume.islands.iter().map(|i| {
        let object = json!({
            "island": i.island.0, "phase": phase(i).to_lowercase(), "halted": i.halted,
            "read_only": i.read_only.as_ref().map(|(lack, ms)| json!({ "lacks": lack, "ms": ms })),
            "spilled": i.spilled, "copies": i.group.as_ref().map(copies_json),
        });
        with_metrics(object, &i.metrics)
    });
    let others = volume.others.iter().map(|(node, connection)| {
        let relayed = *connection == Connection::Relayed;
        json!({ "node": node.0, "reachable": connection.is_up(), "relayed": relayed })
    });
    json!({
        "volume": crate::volume::summary(&volume.volume),
        "node": volume.node.0,
        "control_store": volume.store.map(|node| node.0),
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
        let (up, relayed) = (n.connection.is_up(), n.connection == Connection::Relayed);
        json!({ "node": n.node.0, "address": n.address, "islands": islands, "up": up, "relayed": relayed })
    });
    let object = json!({
        "point": mount.point, "volume": mount.volume, "kind": mount.kind.to_string(),
        "fuse": fuse.collect::<Vec<_>>(), "nodes": nodes.collect::<Vec<_>>(),
    });
    with_metrics(object, &mount.metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_island_is_said_to_open_to_start_to_serve_or_to_have_halted() {
        let island = |phase, halted: Option<&str>| IslandStatus {
            island: atoll_core::IslandId(1),
            phase,
            halted: halted.map(str::to_owned),
            read_only: None,
            spilled: Vec::new(),
            metrics: Vec::new(),
            group: None,
        };
        let shown = [IslandPhase::Opening, IslandPhase::Starting, IslandPhase::Normal];
        assert_eq!(shown.map(|at| phase(&island(at, None))), ["opening", "starting", "normal"]);
        assert_eq!(phase(&island(IslandPhase::Normal, Some("its disk fails"))), "HALTED");
    }
}
