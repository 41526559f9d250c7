//! Where the records of groups are for a node: in its own store, or in an etcd (`docs/design/021-etcd.md`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_control::{ClusterStore, ControlStore, EmbeddedStore, ServedStore};
use atoll_etcd::{
    EtcdAdmin, EtcdAlarm, EtcdControl, EtcdError, EtcdSource, EtcdSourceError, EtcdStore, MemberStatus,
    Password,
};
use atoll_proto::{Cluster, ControlPlace};
use atoll_rpc::{Address, ClusterId, DaemonId};

use crate::own_etcd;

/// How long a node that starts waits for the list of its cluster.
const LIST_MAX: Duration = Duration::from_secs(2);

/// The etcd that a text names which an administrator has written, fit for the list of a cluster: each node reads the same text.
pub fn named(text: &str) -> Result<EtcdSource> {
    let source: EtcdSource = text.parse()?;
    let mut files = Vec::new();
    match &source.user {
        Some((_, Password::Text(_))) => bail!(
            "All nodes of the cluster get this text, and a password would stand in it in the clear.\n\
            Write the password to a file on each node, and name that: etcd://USER@HOST:PORT?password-file=FILE"
        ),
        Some((_, Password::File(file))) => files.push(file),
        None => {}
    }
    if let Some(tls) = &source.tls {
        files.push(&tls.ca);
        files.extend(tls.own.iter().flat_map(|(certificate, key)| [certificate, key]));
    }
    match files.into_iter().find(|file| file.is_relative()) {
        Some(file) => bail!(
            "All nodes of the cluster get this text, and {} is another file in each directory.\n\
            Name files by their whole paths. They must be there on each node.",
            file.display()
        ),
        None => Ok(source),
    }
}

/// Whether this machine has the program for a member of the cluster's own etcd.
pub fn is_installed() -> bool {
    own_etcd::program().is_some()
}

/// Whether this machine can use it.
pub(crate) fn check(source: &EtcdSource) -> Result<()> {
    Ok(EtcdAdmin::open(source)?.check()?)
}

/// Makes the store of a new cluster in it.
pub(crate) fn make(source: &EtcdSource, cluster: ClusterId) -> Result<()> {
    EtcdStore::open(source, cluster).context("no thread for etcd")?.make()?;
    Ok(())
}

/// The etcd that the list of a cluster says, for a node with this data directory.
pub fn source(data: &Path, cluster: &Cluster) -> Result<Option<EtcdSource>> {
    match &cluster.control {
        ControlPlace::Nodes => Ok(None),
        ControlPlace::Etcd { text } => match text.parse() {
            Ok(source) => Ok(Some(source)),
            Err(EtcdSourceError { why }) => {
                bail!("The list of the cluster names no etcd that can be used: {why}.")
            }
        },
        ControlPlace::OwnEtcd => own_etcd::source(data, cluster).map(Some),
    }
}

/// The control store of a node, and how the cluster's own etcd is asked if it is in that.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn ControlStore>,
    pub(crate) own: Option<(Arc<EtcdControl>, EtcdSource)>,
}

/// Reads the newest list of the cluster into a node's own store, before anything follows from it: the records may have moved while the node
/// was away. If the node that keeps the list does not answer, what is known counts.
pub(crate) fn read_list(own: &EmbeddedStore, me: DaemonId) -> Result<()> {
    let Some(known) = own.cluster()? else { return Ok(()) };
    let keeper = known.cluster.store;
    let Some(node) = known.cluster.node(keeper).filter(|_| keeper != me.0) else { return Ok(()) };
    let store = ServedStore::of_node(node.address.parse()?, LIST_MAX, Some(DaemonId(keeper)));
    match store.cluster() {
        Ok(Some(newest)) if newest.cluster.id == known.cluster.id && newest.revision > known.revision => {
            Ok(own.note_cluster(&newest)?)
        }
        Ok(_) => Ok(()),
        Err(why) => {
            tracing::debug!("the cluster's list is not read: {why}");
            Ok(())
        }
    }
}

/// Opens the control store of a node: where its cluster's list says that the records of groups are.
pub(crate) fn open(data: &Path, own: EmbeddedStore, cluster: ClusterId) -> Result<Opened> {
    let list = own.cluster()?.map(|list| list.cluster).unwrap_or_default();
    let Some(source) = source(data, &list)? else { return Ok(Opened { store: Arc::new(own), own: None }) };
    let groups = EtcdStore::open(&source, cluster).context("no thread for etcd")?;
    let store = Arc::new(EtcdControl::new(Box::new(own), groups));
    let is_own = list.control == ControlPlace::OwnEtcd;
    Ok(Opened { store: Arc::clone(&store) as _, own: is_own.then_some((store, source)) })
}

/// What each member of the etcd says of itself that has a cluster's groups, or why it says nothing.
pub struct Told {
    /// Where it is, for people.
    pub place: String,
    /// Members, by their addresses.
    pub members: Vec<(Address, Result<MemberStatus, EtcdError>)>,
    /// How many have a vote, if a member tells it.
    pub voters: Option<usize>,
    /// The alarms that are on.
    pub alarms: Vec<EtcdAlarm>,
    /// It is the cluster's own.
    pub is_own: bool,
}

/// Asks etcd how it is, as a node with this data directory; none if nodes have the records.
pub fn status(data: &Path, cluster: &Cluster) -> Result<Option<Told>> {
    let Some(source) = source(data, cluster)? else { return Ok(None) };
    let admin = EtcdAdmin::open(&source)?;
    let mut members = admin.status();
    let known = admin.members().ok();
    let voters = known.as_ref().map(|known| known.iter().filter(|member| !member.is_learner).count());
    let is_own = cluster.control == ControlPlace::OwnEtcd;
    // Of the cluster's own etcd: nodes that shall have no member yet are none that fails.
    if let Some(known) = known.filter(|_| is_own) {
        let is_known = |host: &Address| {
            let url = format!("https://{host}");
            known.iter().any(|member| member.client_urls.contains(&url))
        };
        members.retain(|(host, told)| told.is_ok() || is_known(host));
    }
    // If nobody answers, that is told of each member.
    let alarms = admin.alarms().unwrap_or_default().into_iter().map(|(_, alarm)| alarm).collect();
    Ok(Some(Told { place: source.to_string(), members, voters, alarms, is_own }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_nodes_read_has_no_password_and_no_path_that_differs() {
        for (text, why) in [
            ("n1:2379", "names no etcd"),
            ("etcd://ann:secret@n1:2379", "password-file=FILE"),
            ("etcd://n1:2379?ca=ca.pem", "ca.pem is another file"),
            ("etcd://n1:2379?ca=/ca.pem&cert=/c.pem&key=k.pem", "k.pem is another file"),
            ("etcd://ann@n1:2379?password-file=p", "p is another file"),
        ] {
            let said = named(text).unwrap_err().to_string();
            assert!(said.contains(why) && !said.contains("secret"), "{text}: {said}");
            assert!(said.lines().count() <= 3, "{said}");
        }
        named("etcd://ann@n1:2379,n2:2379?ca=/ca.pem&password-file=/p").unwrap();
    }
}
