//! Metrics as Prometheus text, format 0.0.4. Knows names and labels, and not what a metric means.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use atoll_proto::ControlReply;
use atoll_proto::control::{Connection, Daemon, Filling, IslandPhase, Metric, MountStatus, VolumeStatus};

/// The lines of one metric: whether it is a count, then labels and value of each.
#[derive(Default)]
struct Family {
    is_count: bool,
    samples: Vec<(String, u64)>,
}

/// By full name.
#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    /// `labels`: names with values.
    fn add(&mut self, of: &str, metric: &Metric, labels: &[(&str, &str)]) {
        let end = if metric.is_count { "_total" } else { "" };
        let family = self.0.entry(format!("atoll_{of}_{}{end}", metric.name)).or_default();
        family.is_count = metric.is_count;
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        family.samples.push((labels, metric.value));
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, family) in self.0 {
            let kind = if family.is_count { "counter" } else { "gauge" };
            writeln!(text, "# TYPE {name} {kind}").expect("a string takes everything");
            for (labels, value) in family.samples {
                writeln!(text, "{name}{labels} {value}").expect("a string takes everything");
            }
        }
        text
    }
}

/// As the format wants it between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The page of a process whose status this is; nothing for any other answer.
pub fn text(status: &ControlReply) -> String {
    let mut families = Families::default();
    if let ControlReply::Status { daemon, volumes, mounts, filling } = status {
        of_daemon(daemon, &mut families);
        if let Some(filling) = filling {
            of_filling(filling, &mut families);
        }
        volumes.iter().for_each(|volume| of_volume(volume, &mut families));
        mounts.iter().for_each(|mount| of_mount(mount, &mut families));
    }
    families.text()
}

fn of_daemon(daemon: &Daemon, families: &mut Families) {
    for metric in [
        Metric::now("up_ms", daemon.up_ms),
        Metric::now("incarnation", daemon.incarnation.into()),
        Metric::now("links", daemon.links.into()),
        Metric::now("clock_ms", daemon.clock_ms),
    ] {
        families.add("node", &metric, &[]);
    }
    if let Some(until) = daemon.certificate_until {
        families.add("node", &Metric::now("certificate_until_s", until), &[]);
    }
}

/// The copies of a node that are filled. Without any there is none of these lines.
fn of_filling(filling: &Filling, families: &mut Families) {
    let left_ms = filling.left_ms.map(|ms| Metric::now("filling_left_ms", ms));
    for metric in [
        Metric::now("filling_copies_left", filling.copies_left.into()),
        Metric::now("filling_files_left", filling.files_left),
        Metric::now("filling_bytes_left", filling.bytes_left),
        Metric::now("filling_bytes_per_s", filling.bytes_per_s),
    ]
    .iter()
    .chain(&left_ms)
    {
        families.add("node", metric, &[]);
    }
}

fn of_volume(volume: &VolumeStatus, families: &mut Families) {
    let name = volume.volume.name.as_str();
    for metric in [
        Metric::now("served", u64::from(volume.volume.problem.is_none())),
        Metric::now("bytes", volume.bytes),
        Metric::now("bytes_available", volume.bytes_available),
    ] {
        families.add("volume", &metric, &[("volume", name)]);
    }
    for (node, connection) in &volume.others {
        let labels = [("volume", name), ("node", &*node.to_string())];
        families.add("volume", &Metric::now("node_reachable", u64::from(connection.is_up())), &labels);
        let relayed = u64::from(*connection == Connection::Relayed);
        families.add("volume", &Metric::now("node_relayed", relayed), &labels);
    }
    for island in &volume.islands {
        let labels = [("volume", name), ("island", &*island.island.to_string())];
        let serves = matches!(island.phase, IslandPhase::Normal | IslandPhase::Follows);
        let states = [
            Metric::now("normal", u64::from(serves && island.halted.is_none())),
            Metric::now("halted", u64::from(island.halted.is_some())),
            Metric::now("read_only", u64::from(island.read_only.is_some())),
        ];
        states.iter().chain(&island.metrics).for_each(|metric| families.add("island", metric, &labels));
    }
}

fn of_mount(mount: &MountStatus, families: &mut Families) {
    let labels = [("volume", mount.volume.as_str()), ("point", mount.point.as_str())];
    mount.metrics.iter().for_each(|metric| families.add("mount", metric, &labels));
    for node in &mount.nodes {
        let labels = [labels[0], labels[1], ("node", &*node.node.to_string())];
        families.add("mount", &Metric::now("node_connected", u64::from(node.connection.is_up())), &labels);
        let relayed = u64::from(node.connection == Connection::Relayed);
        families.add("mount", &Metric::now("node_relayed", relayed), &labels);
    }
    for count in &mount.fuse {
        let labels = [labels[0], labels[1], ("operation", count.operation.as_str())];
        families.add("mount", &Metric::count(("kernel_requests", count.requests)), &labels);
        families.add("mount", &Metric::count(("kernel_errors", count.errors)), &labels);
    }
}
