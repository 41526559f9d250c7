//! `atoll status`: the status of nodes, islands and mounts, and their counters.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use atoll_proto::SiteTold;
use atoll_proto::control::{
    Connection, FillStage, FillStatus, Filling, IslandPhase, IslandStatus, Metric, MountStatus, VolumeStatus,
};
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
        if let Some(filling) = &told.filling {
            say::line(format_args!("  filling {}", filling_line(filling, std::io::stdout().is_terminal())));
        }
        for volume in &told.volumes {
            show_volume(volume);
            let sites = told.sites.iter().filter(|(name, _)| *name == volume.volume.name);
            for site in sites.flat_map(|(_, sites)| sites) {
                say::line(format_args!("    site {}", crate::site::line(site)));
            }
        }
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
            why.lines().for_each(|line| say::line(format_args!("      {line}")));
        }
        if let Some(group) = &island.group {
            say::line(format_args!("      copies: {}", copies(group)));
        }
        if let Some(fill) = &island.fill {
            say::line(format_args!("      {}", fill_line(fill)));
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
        let refused = island.metrics.iter().find(|m| m.name == "names_refused").map_or(0, |m| m.value);
        if refused > 0 {
            say::line(format_args!(
                "      NAMES that the native file system refuses are not in the plain tree: {refused}; the log says which"
            ));
        }
        let too_long = island.metrics.iter().find(|m| m.name == "too_long").map_or(0, |m| m.value);
        if too_long > 0 {
            say::line(format_args!("      TOO LONG to be sent: {too_long} messages or answers"));
        }
    }
}

/// Places of the progress bar.
const BAR: u32 = 30;

/// How far a node is with the copies that it fills; with a bar on a terminal.
fn filling_line(filling: &Filling, has_bar: bool) -> String {
    let full = filling.done.min(1_000) * BAR / 1_000;
    let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
    let bar = if has_bar { format!("[{bar}] ") } else { String::new() };
    let copies = match filling.copies_left {
        1 => "1 copy".to_owned(),
        n => format!("{n} copies"),
    };
    let left = filling.left_ms.map_or("how long it takes cannot be told yet".to_owned(), |ms| {
        format!("about {} left", span(ms.next_multiple_of(1_000)))
    });
    format!(
        "{bar}{}.{} %  {copies} of {} to go: {} files, {}  {}/s  {left}",
        filling.done / 10,
        filling.done % 10,
        filling.copies,
        filling.files_left,
        say::bytes(filling.bytes_left),
        say::bytes(filling.bytes_per_s),
    )
}

/// How far a copy is that is filled.
fn fill_line(fill: &FillStatus) -> String {
    let of = format!("{} files, {}", fill.files, say::bytes(fill.bytes));
    match fill.stage {
        FillStage::Waits if fill.files == 0 => {
            "is to be filled, and waits for the copy that leads, or for others".to_owned()
        }
        FillStage::Waits => format!("is to be filled with {of}, and waits until others are"),
        FillStage::Rows if fill.files == 0 => "is filled: rows come".to_owned(),
        FillStage::Rows => format!("is filled: rows of {of} come"),
        FillStage::Bytes => {
            format!("is filled: {} files, {} left of {of}", fill.files_left, say::bytes(fill.bytes_left))
        }
        FillStage::Ends => format!("is filled with {of}, and about to be in sync"),
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
        "filling": told.filling.as_ref().map(filling_json),
        "volumes": told.volumes.iter().map(volume_json).collect::<Vec<_>>(),
        "mounts": told.mounts.iter().map(mount_json).collect::<Vec<_>>(),
        "sites": told.sites.iter().map(sites_json).collect::<serde_json::Map<_, _>>(),
    })
}

/// A wide volume's name, and its sites.
fn sites_json((volume, sites): &(String, Vec<SiteTold>)) -> (String, Value) {
    (volume.clone(), sites.iter().map(crate::site::for_programs).collect())
}

fn filling_json(filling: &Filling) -> Value {
    json!({
        "copies": filling.copies, "copies_left": filling.copies_left,
        "files": filling.files, "files_left": filling.files_left,
        "bytes": filling.bytes, "bytes_left": filling.bytes_left,
        "done_permille": filling.done, "bytes_per_s": filling.bytes_per_s, "left_ms": filling.left_ms,
    })
}

fn fill_json(fill: &FillStatus) -> Value {
    json!({
        "stage": format!("{:?}", fill.stage).to_lowercase(),
        "files": fill.files, "files_left": fill.files_left,
        "bytes": fill.bytes, "bytes_left": fill.bytes_left,
    })
}

fn volume_json(volume: &VolumeStatus) -> Value {
    let islands = volume.islands.iter().map(|i| {
        let object = json!({
            "island": i.island.0, "phase": phase(i).to_lowercase(), "halted": i.halted,
            "read_only": i.read_only.as_ref().map(|(lack, ms)| json!({ "lacks": lack, "ms": ms })),
            "spilled": i.spilled, "copies": i.group.as_ref().map(copies_json),
            "filling": i.fill.as_ref().map(fill_json),
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
            fill: None,
        };
        let shown = [IslandPhase::Opening, IslandPhase::Starting, IslandPhase::Normal];
        assert_eq!(shown.map(|at| phase(&island(at, None))), ["opening", "starting", "normal"]);
        assert_eq!(phase(&island(IslandPhase::Normal, Some("its disk fails"))), "HALTED");
    }

    #[test]
    fn a_bar_says_how_far_the_copies_are_that_are_filled() {
        let mut filling = Filling {
            copies: 3,
            copies_left: 2,
            files: 300,
            bytes: 4 << 30,
            files_left: 120,
            bytes_left: 1 << 30,
            done: 666,
            bytes_per_s: 10 << 20,
            left_ms: Some(102_400),
        };
        assert_eq!(
            filling_line(&filling, true),
            "[###################...........] 66.6 %  2 copies of 3 to go: 120 files, 1.0 GiB  10.0 MiB/s  about 1 min 43 s left"
        );
        (filling.done, filling.copies_left, filling.files_left, filling.bytes_left) = (1_000, 1, 0, 0);
        filling.left_ms = Some(0);
        assert_eq!(
            filling_line(&filling, false),
            "100.0 %  1 copy of 3 to go: 0 files, 0 B  10.0 MiB/s  about 0 s left"
        );
        filling.left_ms = None;
        assert!(filling_line(&filling, false).ends_with("how long it takes cannot be told yet"));
    }
}
