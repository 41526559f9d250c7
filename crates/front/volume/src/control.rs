//! Where the records of groups are for a node: in its own store, or in an etcd (`docs/design/021-etcd.md`).

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use atoll_control::{ClusterStore, ControlStore, EmbeddedStore};
use atoll_etcd::{EtcdAdmin, EtcdControl, EtcdSource, EtcdSourceError, EtcdStore, Password};
use atoll_proto::ControlPlace;
use atoll_rpc::ClusterId;

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

/// Whether this machine can use it.
pub(crate) fn check(source: &EtcdSource) -> Result<()> {
    Ok(EtcdAdmin::open(source)?.check()?)
}

/// Makes the store of a new cluster in it.
pub(crate) fn make(source: &EtcdSource, cluster: ClusterId) -> Result<()> {
    EtcdStore::open(source, cluster).context("no thread for etcd")?.make()?;
    Ok(())
}

/// The etcd that the list of a cluster says.
pub(crate) fn source(place: &ControlPlace) -> Result<Option<EtcdSource>> {
    match place {
        ControlPlace::Nodes => Ok(None),
        ControlPlace::Etcd { text } => match text.parse() {
            Ok(source) => Ok(Some(source)),
            Err(EtcdSourceError { why }) => {
                bail!("The list of the cluster names no etcd that can be used: {why}.")
            }
        },
        ControlPlace::OwnEtcd => {
            bail!("The cluster runs an etcd of its own, which this version cannot use.")
        }
    }
}

/// The control store of a node: where its cluster's list says that the records of groups are.
pub(crate) fn open(own: EmbeddedStore, cluster: ClusterId) -> Result<Arc<dyn ControlStore>> {
    let place = own.cluster()?.map(|list| list.cluster.control).unwrap_or_default();
    let Some(source) = source(&place)? else { return Ok(Arc::new(own)) };
    let groups = EtcdStore::open(&source, cluster).context("no thread for etcd")?;
    Ok(Arc::new(EtcdControl::new(Box::new(own), groups)))
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
