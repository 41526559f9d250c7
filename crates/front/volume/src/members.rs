//! The list of a cluster, as an administrator sees and changes it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use atoll_ca::{JoinLine, Key};
use atoll_control::seconds_now;
use atoll_core::{Ino, VolumeId, VolumePath};
use atoll_proto::cluster::{
    CLIENTS_MAX, CertificateFor, Cluster, ClusterClient, Grant, INVITATIONS_MAX, StoredCluster, Subtree,
    check_name,
};
use atoll_proto::group::Swapped;
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{Address, Security, Trust};
use atoll_server::{node_keys, session_prefix};

use crate::ask::{ORDER, QUESTION, ask, strange};
use crate::credentials::{self, to_text};
use crate::drain::Leaving;
use crate::kind::{Manner, attach};
use crate::machines::{check_reached, invitation};
use crate::node::random;
use crate::places::{SocketPlace, data_socket};
use crate::source::Source;
use crate::status::{explain_down, first_line, volumes_of};

/// How often a change is tried again when somebody else was faster.
const TRIES: u32 = 20;

/// Milliseconds that a command waits for an island that is away.
const PATIENCE_MS: u64 = 10_000;

/// A node that is asked about its cluster, and by which the list is changed.
#[derive(Debug)]
pub struct Members {
    address: Address,
    /// Keeps the folder open through which the address may lead.
    _place: Option<SocketPlace>,
}

impl Members {
    /// The node of a data directory of this machine.
    pub fn of_data(data: &Path) -> Result<Self> {
        let place = data_socket(data)?;
        Ok(Self { address: place.address.clone(), _place: Some(place) })
    }

    /// The node at an address.
    pub fn at(address: Address) -> Self {
        Self { address, _place: None }
    }

    fn ask(&self, order: Control, data: Option<&Path>) -> Result<ControlReply> {
        let time_max = if matches!(order, Control::Cluster) { QUESTION } else { ORDER };
        ask(&self.address, order, time_max).map_err(|why| explain_down(why, data))
    }

    /// The list.
    pub fn list(&self, data: Option<&Path>) -> Result<StoredCluster> {
        match self.ask(Control::Cluster, data)? {
            ControlReply::Cluster { cluster: Some(list) } => {
                // From here on this command asks none that was removed.
                if let Some(security) = Security::of_process() {
                    security.know_nodes(node_keys(&list.cluster));
                }
                Ok(*list)
            }
            ControlReply::Cluster { cluster: None } => bail!(
                "This node is in no cluster with certificates.\nSuch a cluster is made by \"atoll init\", in an empty data directory."
            ),
            _ => Err(strange(&self.address)),
        }
    }

    /// Changes the list by `change`, which is given it again if somebody else was faster.
    fn change<T>(&self, change: impl Fn(&mut Cluster) -> Result<T>) -> Result<(T, Cluster)> {
        for _ in 0..TRIES {
            let list = self.list(None)?;
            let mut next = list.cluster.clone();
            let value = change(&mut next)?;
            next.check().map_err(|why| anyhow!("The cluster's list cannot be so: {why}."))?;
            let order = Control::SwapCluster { expected: list.revision, next: Box::new(next.clone()) };
            match self.ask(order, None)? {
                ControlReply::Swapped { swapped: Swapped::Done { .. } } => return Ok((value, next)),
                ControlReply::Swapped { swapped: Swapped::Conflict } => {}
                ControlReply::Swapped { swapped: Swapped::Unknown { why } } => bail!(
                    "The node that keeps the cluster's list did not answer: {why}.\n\
                    The change may have been made: see \"atoll node list\"."
                ),
                _ => return Err(strange(&self.address)),
            }
        }
        bail!("The cluster's list changes all the time.\nTry again.")
    }

    /// Where the nodes are reached, in the order in which they joined.
    pub fn addresses(&self, data: &Path) -> Result<Vec<Address>> {
        let list = self.list(Some(data))?;
        list.cluster.nodes.iter().map(|node| Ok(node.address.parse()?)).collect()
    }

    /// Makes a line by which one node may join.
    pub fn invite(&self, data: &Path, valid: Duration) -> Result<JoinLine> {
        let Trust::Ca(ca) = credentials::read(&data.join(credentials::FILE))?.trust else {
            bail!("{} names no CA.", data.join(credentials::FILE).display());
        };
        let list = self.list(Some(data))?;
        // Whoever keeps the CA's private key can answer, and the one that keeps the list first.
        let mut nodes: Vec<_> = list.cluster.nodes.iter().filter(|node| node.has_ca_key).collect();
        nodes.sort_by_key(|node| node.daemon != list.cluster.store);
        let addresses: Vec<Address> = nodes.iter().filter_map(|node| node.address.parse().ok()).collect();
        let (line, invitation) = invitation(&ca, addresses, valid)?;
        self.change(|cluster| {
            let now = seconds_now();
            cluster.invitations.retain(|other| other.until >= now);
            if cluster.invitations.len() == INVITATIONS_MAX {
                bail!("{INVITATIONS_MAX} lines to join by are open.\nWait until some have expired.");
            }
            cluster.invitations.push(invitation.clone());
            Ok(())
        })?;
        Ok(line)
    }

    /// Gives a node another name.
    pub fn rename(&self, node: &str, name: &str) -> Result<()> {
        check_name(name).map_err(|why| anyhow!("\"{}\" cannot name a node: {why}.", name.escape_debug()))?;
        self.change(|cluster| {
            let daemon = cluster.node_named(node).ok_or_else(|| no_node(node))?.daemon;
            if cluster.nodes.iter().any(|other| other.name == name && other.daemon != daemon) {
                bail!("There is a node {name} already.\nChoose another name.");
            }
            cluster.nodes.iter_mut().filter(|n| n.daemon == daemon).for_each(|n| n.name = name.to_owned());
            Ok(())
        })?;
        Ok(())
    }

    /// Takes a node out of its volumes, of which it must keep no copy any more, and then out of the list: nobody lets it in any more.
    pub fn remove(&self, node: &str) -> Result<()> {
        let leaving = self.find_leaving(node)?;
        leaving.leave()?;
        self.remove_listed(leaving.node.daemon)
    }

    /// A node is reached at another address from now on, at which it must answer. It says so itself: if it keeps the list, nobody else
    /// could.
    pub fn set_address(&self, node: &str, address: &Address) -> Result<()> {
        check_reached(address, "Name one of the node's machine.")?;
        let list = self.list(None)?;
        let daemon = list.cluster.node_named(node).ok_or_else(|| no_node(node))?.daemon;
        let text = address.to_string();
        if let Some(other) = list.cluster.nodes.iter().find(|n| n.address == text && n.daemon != daemon) {
            bail!("{address} is the address of node {}.\nNothing was changed.", other.name);
        }
        let there = match ask(address, Control::Describe, QUESTION) {
            Ok(ControlReply::Described { daemon, .. }) => daemon.daemon,
            Ok(_) => return Err(strange(address)),
            Err(why) => bail!(
                "{}\nStart {node} there first: atoll serve --data DIR --listen HOST:PORT. Nothing was changed.",
                first_line(&why.to_string())
            ),
        };
        if there != daemon {
            bail!("Another node answers at {address}, not {node}.\nNothing was changed.");
        }
        Self::at(address.clone()).change(|cluster| {
            let Some(node) = cluster.nodes.iter_mut().find(|other| other.daemon == daemon) else {
                return Err(no_node(node));
            };
            node.address.clone_from(&text);
            Ok(())
        })?;
        Ok(())
    }

    /// The same of a node that never comes back. `yes`: also if something is lost by that.
    pub fn remove_lost(&self, node: &str, yes: bool) -> Result<()> {
        let leaving = self.find_leaving(node)?;
        leaving.give_up(yes)?;
        self.remove_listed(leaving.node.daemon)
    }

    fn find_leaving(&self, node: &str) -> Result<Leaving> {
        let list = self.list(None)?;
        let known = list.cluster.node_named(node).ok_or_else(|| no_node(node))?;
        if known.daemon == list.cluster.store {
            bail!("{node} keeps the list of the cluster, so it cannot be removed.");
        }
        Leaving::find(self, node)
    }

    fn remove_listed(&self, daemon: u64) -> Result<()> {
        self.change(|cluster| {
            cluster.nodes.retain(|other| other.daemon != daemon);
            Ok(())
        })?;
        Ok(())
    }

    /// Adds a client. Its credentials, as text (PEM).
    pub fn add_client(&self, name: &str, grant: &Grant) -> Result<String> {
        check_name(name)
            .map_err(|why| anyhow!("\"{}\" cannot name a client: {why}.", name.escape_debug()))?;
        let key = Key::generate()?;
        let (client, _) = self.change(|cluster| {
            if cluster.clients.iter().any(|other| other.name == name) {
                bail!("There is a client {name} already.\nChoose another name, or remove it: atoll client remove {name}");
            }
            if cluster.clients.len() == CLIENTS_MAX {
                bail!("A cluster has {CLIENTS_MAX} clients at most.");
            }
            let client = free_number(cluster)?;
            let (name, grant) = (name.to_owned(), grant.clone());
            cluster.clients.push(ClusterClient { client, name, added: seconds_now(), grant });
            Ok(client)
        })?;
        let order = Control::Certify { purpose: CertificateFor::Client { client }, key: key.public().into() };
        match self.ask(order, None) {
            Ok(ControlReply::Issued { issued }) => Ok(to_text(&issued, &key)),
            refused => {
                // Nobody has its certificate.
                self.remove_client(name)?;
                Err(refused.err().unwrap_or_else(|| strange(&self.address)))
            }
        }
    }

    /// Takes a client out of the list: nobody lets it in any more.
    pub fn remove_client(&self, name: &str) -> Result<()> {
        self.change(|cluster| {
            let before = cluster.clients.len();
            cluster.clients.retain(|client| client.name != name);
            if cluster.clients.len() == before {
                bail!("There is no client {name}.\n\"atoll client list\" shows those that there are.");
            }
            Ok(())
        })?;
        Ok(())
    }

    /// A directory of a volume, for a client that is to see that only.
    pub fn subtree(&self, volume: &str, path: &str) -> Result<Subtree> {
        let shown = format!("{volume}:{path}");
        let names = VolumePath::parse(path.as_bytes())
            .map_err(|why| anyhow!("\"{shown}\" cannot be a path of a volume: {why}."))?;
        let found = Source::of_daemon(self.address.clone(), Some(volume.to_owned())).find()?;
        let attached = attach(found.reach(None)?, Manner::tool(PATIENCE_MS))?;
        let looked = attached.directory(&names, &shown);
        attached.stop();
        let (dir, key) = looked?;
        if dir == Ino::ROOT {
            bail!("{shown} is the whole volume.\nName it without a path, or name a directory below.");
        }
        Ok(Subtree { dir, key, path: names })
    }

    /// The clients whose directory is gone, by their numbers. One that cannot be looked at is taken to be there.
    pub fn without_subtree(&self, clients: &[ClusterClient]) -> Result<Vec<u64>> {
        let mut gone = Vec::new();
        let limited = |of: VolumeId| {
            clients.iter().filter_map(move |client| {
                let subtree = client.grant.subtree.as_ref().filter(|_| client.grant.volume == Some(of))?;
                Some((client.client, subtree))
            })
        };
        if clients.iter().all(|client| client.grant.subtree.is_none()) {
            return Ok(gone);
        }
        for volume in volumes_of(&self.address)? {
            if limited(volume.id).next().is_none() {
                continue;
            }
            let found = Source::of_daemon(self.address.clone(), Some(volume.name)).find()?;
            let manner = Manner::tool(PATIENCE_MS);
            let attached = attach(found.reach(None)?, manner)?;
            gone.extend(
                limited(volume.id)
                    .filter(|(_, subtree)| attached.is_gone(subtree.dir, subtree.key))
                    .map(|(client, _)| client),
            );
            attached.stop();
        }
        Ok(gone)
    }

    /// The id of a volume.
    pub fn volume_id(&self, name: &str) -> Result<VolumeId> {
        match self.ask(Control::Volume { name: name.to_owned() }, None)? {
            ControlReply::Volume { config, .. } => Ok(config.id),
            _ => Err(strange(&self.address)),
        }
    }
}

fn no_node(node: &str) -> anyhow::Error {
    anyhow!("There is no node {node}.\n\"atoll node list\" shows those that there are.")
}

/// A number for a client, whose sessions have ids that no other holder's have.
fn free_number(cluster: &Cluster) -> Result<u64> {
    let taken: Vec<u32> = cluster
        .clients
        .iter()
        .map(|client| client.client)
        .chain(cluster.nodes.iter().map(|node| node.daemon))
        .map(session_prefix)
        .collect();
    loop {
        let client = random()?;
        if !taken.contains(&session_prefix(client)) {
            return Ok(client);
        }
    }
}
