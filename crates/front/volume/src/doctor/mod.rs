//! Looks at a machine and its node: what is wrong, and what to do about it. Changes nothing.
//!
//! `measure` finds out what is so, and `judge` decides from that alone what it means.

mod judge;
mod measure;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use atoll_ca::valid_until;
use atoll_etcd::{EtcdError, MemberStatus};
use atoll_proto::control::{Connection, Daemon, VolumeStatus};
use atoll_proto::{Cluster, Control, ControlReply};
use atoll_rpc::{Address, Peer};
use serde_json::{Value, json};

use crate::ask::{NoAnswer, QUESTION, try_ask};
use crate::members::Members;
use crate::places::{data_socket, reach};
use crate::status::first_line;
use crate::{control, credentials};
use judge::{Member, Offset, Speed};

/// How long the disk is tried.
const SYNC_TIME_MAX: Duration = Duration::from_secs(5);

/// How often a block is synced, at most.
const SYNCS_MAX: usize = 200;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, and could be better.
    Advice,
    /// It must be mended.
    Wrong,
}

/// What was found about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The subject.
    pub about: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// What to do; empty if all is good.
    pub next: String,
}

impl Diagnosis {
    fn good(about: &'static str, what: impl Into<String>) -> Self {
        Self { about, level: Level::Good, what: what.into(), next: String::new() }
    }

    fn advice(about: &'static str, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { about, level: Level::Advice, what: what.into(), next: next.into() }
    }

    fn wrong(about: &'static str, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { about, level: Level::Wrong, what: what.into(), next: next.into() }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let level = match self.level {
            Level::Good => "good",
            Level::Advice => "advice",
            Level::Wrong => "wrong",
        };
        let next = (!self.next.is_empty()).then_some(&self.next);
        json!({ "about": self.about, "level": level, "what": self.what, "next": next })
    }
}

/// The worst of all.
pub fn worst(all: &[Diagnosis]) -> Level {
    all.iter().map(|one| one.level).max().unwrap_or(Level::Good)
}

/// Examines this machine, and the node of a data directory if there is one.
pub fn examine(data: &Path) -> Result<Vec<Diagnosis>> {
    let mut all = vec![judge::fuse(&measure::fuse(Path::new("/dev/fuse")))];
    let mut offsets = Vec::new();
    if data.join("node.toml").exists() {
        all.push(judge::memory(measure::is_in_memory(data)?));
        all.push(match sync_speed(data) {
            Ok(speed) => judge::sync(&speed),
            Err(why) => judge::not_written(&why),
        });
        all.push(judge::space(&measure::space(data)?));
        all.extend(certificate(&data.join(credentials::FILE)));
        offsets = node(data, &mut all)?;
    } else {
        all.push(Diagnosis::good("node", format!("no node has its data in {}", data.display())));
        all.extend(credentials::of_machine().and_then(certificate));
    }
    all.push(judge::clock(measure::is_clock_synchronised(), &offsets));
    Ok(all)
}

fn sync_speed(data: &Path) -> Result<Speed> {
    let mut times = measure::syncs(data, SYNCS_MAX, SYNC_TIME_MAX)?;
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    Ok(Speed { p50: at(50), p99: at(99), count: times.len() })
}

fn certificate(file: &Path) -> Option<Diagnosis> {
    if !file.exists() {
        return None;
    }
    match credentials::read(file) {
        Ok(credentials) => {
            let is_node = matches!(credentials.peer(), Ok(Peer::Node(_)));
            let until = valid_until(&credentials.certificate).unwrap_or(0);
            Some(judge::certificate(file, until, atoll_server::clock_ms() / 1000, is_node))
        }
        Err(why) => {
            let why = why.to_string();
            let (what, next) = why.split_once('\n').unwrap_or((&why, "Restore the file from a backup."));
            Some(Diagnosis::wrong("certificate", what, next))
        }
    }
}

/// The etcd with the records of groups, if they are in one.
fn etcd(data: &Path, cluster: &Cluster) -> Result<Vec<Diagnosis>> {
    let Some(told) = control::status(data, cluster)? else { return Ok(Vec::new()) };
    let member = |(host, told): &(Address, Result<MemberStatus, EtcdError>)| {
        let told = told.as_ref().map_err(|why| first_line(&why.to_string()).trim_end_matches('.').to_owned());
        let told = told.map(|told| (told.version.clone(), told.leader.is_some()));
        Member { host: host.to_string(), told }
    };
    let members: Vec<Member> = told.members.iter().map(member).collect();
    let mut all = judge::etcd_members(&members);
    all.extend(told.alarms.iter().map(|alarm| judge::etcd_alarm(*alarm)));
    if all.is_empty() {
        let version = members.iter().find_map(|member| member.told.as_ref().ok()).map(|told| told.0.as_str());
        let voters = told.voters.unwrap_or(members.len());
        all.push(judge::etcd_voters(voters, version.unwrap_or_default(), told.is_own));
    }
    Ok(all)
}

/// A daemon and its part of volumes, or why it does not answer.
type Status = Result<(Daemon, Vec<VolumeStatus>), String>;

/// A node of the cluster.
struct Node {
    name: String,
    address: String,
    /// It is the one of the data directory.
    is_own: bool,
    status: Status,
    offset: Option<Offset>,
}

/// Asks the node of the data directory and all others, and says what is wrong with them. The clocks of the others.
fn node(data: &Path, all: &mut Vec<Diagnosis>) -> Result<Vec<(String, Offset)>> {
    let socket = data_socket(data)?;
    let (daemon, volumes) = match asked(&socket.address).0 {
        Ok(told) => told,
        Err(why) => {
            all.push(judge::daemon_down(data, &why));
            return Ok(Vec::new());
        }
    };
    all.push(Diagnosis::good("node", format!("the daemon of {} runs", data.display())));
    let mut nodes: Vec<Node> = Vec::new();
    let mut add = |name: &str, address: &str, is_own: bool| {
        if !address.is_empty() && !nodes.iter().any(|node| node.address == address) {
            let (name, address) = (name.to_owned(), address.to_owned());
            nodes.push(Node { name, address, is_own, status: Err(String::new()), offset: None });
        }
    };
    // A node without a list knows those of its volumes.
    match Members::of_data(data)?.list(Some(data)) {
        Ok(list) => {
            let listed = &list.cluster.nodes;
            listed.iter().for_each(|node| add(&node.name, &node.address, node.daemon == daemon.daemon));
            let keepers = listed.iter().filter(|node| node.has_ca_key).count();
            all.push(judge::ca_key(keepers, listed.len()));
            all.extend(etcd(data, &list.cluster)?);
        }
        Err(_) => {
            for volume in &volumes {
                let numbered = volume.volume.nodes.iter().enumerate();
                numbered.for_each(|(at, address)| add(address, address, at == usize::from(volume.node.0)));
            }
        }
    }
    std::thread::scope(|scope| {
        for node in &mut nodes {
            scope.spawn(move || match reach(&node.address) {
                Ok(place) => (node.status, node.offset) = asked(&place.address),
                Err(why) => node.status = Err(first_line(&why.to_string())),
            });
        }
    });
    for node in &nodes {
        match &node.status {
            Ok((told, _)) if node.is_own && told.daemon != daemon.daemon => {
                all.push(judge::other_at_own(&node.address))
            }
            Ok((_, theirs)) if !node.is_own => all.extend(judge::way(&node.name, &ways(theirs, &volumes))),
            Ok(_) => {}
            Err(why) if node.is_own => all.push(judge::own_port(&node.address, why)),
            Err(why) => all.push(judge::node_down(&node.name, why)),
        }
    }
    if nodes.iter().all(|node| node.status.is_ok()) {
        all.push(judge::all_answer(nodes.len()));
    }
    let software = |node: &Node| Some((node.name.clone(), node.status.as_ref().ok()?.0.software.clone()));
    let mut versions: Vec<(String, String)> = nodes.iter().filter_map(software).collect();
    versions.push(("the daemon here".to_owned(), daemon.software));
    all.push(judge::versions(&versions, concat!("atoll ", env!("CARGO_PKG_VERSION"))));
    all.extend(volumes.iter().flat_map(judge::volume));
    Ok(nodes.into_iter().filter(|node| !node.is_own).filter_map(|n| Some((n.name, n.offset?))).collect())
}

/// The ways from another node to this one, for each volume that both have.
fn ways(theirs: &[VolumeStatus], own: &[VolumeStatus]) -> Vec<Connection> {
    let way = |volume: &VolumeStatus| {
        let me = own.iter().find(|other| other.volume.id == volume.volume.id)?.node;
        volume.others.iter().find(|(node, _)| *node == me).map(|(_, way)| *way)
    };
    theirs.iter().filter_map(way).collect()
}

/// The status of a process, and how far its clock is from the one here.
fn asked(address: &Address) -> (Status, Option<Offset>) {
    let before = atoll_server::clock_ms();
    let answer = try_ask(address, Control::Status, QUESTION);
    let after = atoll_server::clock_ms();
    let why = match answer {
        Ok(ControlReply::Status { daemon, volumes, .. }) => {
            let offset = Offset::between(before, daemon.clock_ms, after);
            return (Ok((daemon, volumes)), Some(offset));
        }
        Ok(ControlReply::Refused { text }) => text,
        Ok(_) => "it answers something else".to_owned(),
        Err(NoAnswer::Unreachable(why)) => why.to_string(),
        Err(NoAnswer::Unknown(why)) => why,
    };
    (Err(first_line(&why).trim_end_matches('.').to_owned()), None)
}
