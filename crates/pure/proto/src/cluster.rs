//! A cluster: its nodes, its clients, and who is invited (`docs/design/019-machines.md`).
//!
//! Only shapes and their bounds. A node or client is let in because it is in this list, and not because its certificate is
//! good: so whoever is removed stays out, and nobody needs a list of certificates that were taken back.

use atoll_core::limits::MESSAGE_BYTES_MAX;
use atoll_core::{Encode, Ino, Key, Malformed, VolumeId, VolumePath, wire_enum, wire_struct};
use bytes::Bytes;

use crate::group::Revision;

/// Most nodes of a cluster.
pub const NODES_MAX: usize = 1024;

/// Most clients that have certificates of their own.
pub const CLIENTS_MAX: usize = 4096;

/// Most invitations that are open or were used.
pub const INVITATIONS_MAX: usize = 256;

/// Longest name of a node or client, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Longest address of a node, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 300;

/// Longest text that names an etcd, in bytes.
pub const ETCD_BYTES_MAX: usize = 4096;

/// Most bytes of the list: it goes in one message, with an issued certificate.
pub const LIST_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (16 << 10);

/// How an answer begins that cannot say whether the list was changed. Whoever asks again finds out.
pub const UNKNOWN_CHANGE: &str = "It is not known whether the list of the cluster was changed";

/// Longest public key, in bytes: that of an elliptic curve, with its header (RFC 5480).
pub const PUBLIC_KEY_BYTES_MAX: usize = 128;

wire_struct! {
    /// A node of a cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClusterNode {
        /// Its daemon, drawn when its data directory was made. Its certificate names it.
        pub daemon: u64,
        /// Its name, for people; unique among the nodes.
        pub name: String,
        /// Where others reach it, `HOST:PORT`.
        pub address: String,
        /// When it joined, in seconds since 1970.
        pub joined: u64,
        /// Its public key (SubjectPublicKeyInfo, DER): whoever joins twice in its name must have the same.
        pub key: Bytes,
        /// It keeps a copy of the CA's private key.
        pub has_ca_key: bool,
    }
}

wire_struct! {
    /// A client of a cluster, and what it may do.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ClusterClient {
        /// Drawn when it was added. Its certificate names it.
        pub client: u64,
        /// Its name, for people; unique among the clients.
        pub name: String,
        /// When it was added, in seconds since 1970.
        pub added: u64,
        /// What it may do.
        pub grant: Grant,
    }
}

wire_struct! {
    /// What a client may do.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Grant {
        /// The only volume that it sees; none: all.
        pub volume: Option<VolumeId>,
        /// It changes nothing.
        pub read_only: bool,
        /// All its users are this one: uid and gid. Then islands check every permission themselves.
        pub squash: Option<(u32, u32)>,
        /// The only directory of its volume that it sees, with what is below it.
        pub subtree: Option<Subtree>,
    }
}

wire_struct! {
    /// A directory of a volume that a client sees only.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Subtree {
        /// Its id: another directory that is made at its place is not it.
        pub dir: Ino,
        /// Its placement key, which tells where it is found.
        pub key: Key,
        /// Where it was when the client was added, for people.
        pub path: VolumePath,
    }
}

wire_struct! {
    /// A line that a node may join by, once.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Invitation {
        /// The public key (SubjectPublicKeyInfo, DER) that follows from the line's secret. The secret itself is nowhere but
        /// in the line.
        pub guest: Bytes,
        /// Until when it holds, in seconds since 1970, by the clock of the node that has the list.
        pub until: u64,
        /// The node that has joined by it. It may ask again, if the answer was lost; others may not.
        pub used_by: Option<u64>,
    }
}

wire_enum! {
    /// Where the records of groups are. All nodes of the cluster use the same place.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub enum ControlPlace {
        /// In the store of the node that each volume names for it.
        #[default]
        1 => Nodes,
        /// In an etcd that was there before.
        2 => Etcd { /// As `etcd://...` says it, without a password. Files in it are at each node.
            text: String },
        /// In the etcd that the cluster runs itself: on the nodes that keep the CA's private key.
        3 => OwnEtcd,
    }
}

wire_struct! {
    /// The list of a cluster.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Cluster {
        /// Drawn when the cluster was made; never 0.
        pub id: u64,
        /// The node that keeps this list for all.
        pub store: u64,
        /// Its nodes.
        pub nodes: Vec<ClusterNode>,
        /// Its clients.
        pub clients: Vec<ClusterClient>,
        /// Who is invited.
        pub invitations: Vec<Invitation>,
        /// Where the records of groups are.
        pub control: ControlPlace,
    }
}

wire_struct! {
    /// The list, and when it was written.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct StoredCluster {
        /// Counts its changes.
        pub revision: Revision,
        /// It.
        pub cluster: Cluster,
    }
}

/// Why a name cannot be one of a node or client.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match name.len() {
        0 => Err("it is empty"),
        n if n > NAME_BYTES_MAX => Err("it is longer than 64 bytes"),
        _ if !name.bytes().all(is_good) => {
            Err("it has other characters than letters, digits, dots, hyphens and underscores")
        }
        _ if name.starts_with(['-', '.']) => Err("it begins with a hyphen or a dot"),
        _ => Ok(()),
    }
}

impl Cluster {
    /// Whether a list can be one: what is unique is, and all bounds are kept.
    pub fn check(&self) -> Result<(), Malformed> {
        let is = |good: bool, what| if good { Ok(()) } else { Err(Malformed::new(what)) };
        is(self.id != 0, "cluster without an id")?;
        is(self.nodes.len() <= NODES_MAX, "nodes of a cluster")?;
        is(self.clients.len() <= CLIENTS_MAX, "clients of a cluster")?;
        is(self.invitations.len() <= INVITATIONS_MAX, "invitations of a cluster")?;
        is(self.encoded_len() <= LIST_BYTES_MAX, "bytes of a cluster's list")?;
        is(self.nodes.iter().any(|node| node.daemon == self.store), "cluster whose list no node keeps")?;
        let names = |name: &str| check_name(name).is_ok();
        is(self.nodes.iter().all(|node| names(&node.name)), "name of a node")?;
        is(self.clients.iter().all(|client| names(&client.name)), "name of a client")?;
        let is_whole = |grant: &Grant| grant.subtree.is_none() || grant.volume.is_some();
        is(self.clients.iter().all(|client| is_whole(&client.grant)), "subtree of no volume")?;
        is(self.nodes.iter().all(|node| node.address.len() <= ADDRESS_BYTES_MAX), "address of a node")?;
        let keys = self.nodes.iter().map(|node| &node.key).chain(self.invitations.iter().map(|i| &i.guest));
        is(keys.into_iter().all(|key| key.len() <= PUBLIC_KEY_BYTES_MAX), "public key")?;
        let is_short = |place: &ControlPlace| match place {
            ControlPlace::Etcd { text } => text.len() <= ETCD_BYTES_MAX,
            ControlPlace::Nodes | ControlPlace::OwnEtcd => true,
        };
        is(is_short(&self.control), "place of the control store")?;
        is(unique(self.nodes.iter().map(|node| node.daemon)), "node that is there twice")?;
        is(unique(self.nodes.iter().map(|node| &node.name)), "name of two nodes")?;
        is(unique(self.clients.iter().map(|client| client.client)), "client that is there twice")?;
        is(unique(self.clients.iter().map(|client| &client.name)), "name of two clients")?;
        is(unique(self.invitations.iter().map(|i| &i.guest)), "invitation that is there twice")
    }

    /// A node, by its daemon.
    pub fn node(&self, daemon: u64) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.daemon == daemon)
    }

    /// A node, by its name or its daemon as it is shown.
    pub fn node_named(&self, text: &str) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.name == text || format!("{:016x}", node.daemon) == text)
    }

    /// A client, by its number.
    pub fn client(&self, client: u64) -> Option<&ClusterClient> {
        self.clients.iter().find(|known| known.client == client)
    }
}

fn unique<T: Ord>(of: impl Iterator<Item = T>) -> bool {
    let mut all: Vec<T> = of.collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    all.len() == count
}

wire_enum! {
    /// Why somebody wants a certificate.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum CertificateFor {
        /// A node joins by an invitation; the connection shows which. It comes into the list.
        1 => Join { /// Its daemon.
            daemon: u64, /// Its name; empty: one is made.
            name: String, /// Where it can be reached, `HOST:PORT`. An empty host: where its connection comes from.
            address: String },
        /// Whoever asks has one that ends soon; the connection shows who it is.
        2 => Renewal,
        /// A client that is in the list.
        3 => Client { /// Its number.
            client: u64 },
        /// A node that uses the cluster's own etcd, or has a member of it: a certificate of etcd's CA, for the host of the node's address.
        4 => Etcd,
    }
}

wire_struct! {
    /// A certificate that was issued.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Issued {
        /// The certificate, DER.
        pub certificate: Bytes,
        /// The CA's, DER.
        pub ca: Bytes,
        /// For a node that shall keep a copy of it: the CA's private key (PKCS #8, DER). Empty otherwise.
        pub ca_key: Bytes,
        /// The list as it is now.
        pub cluster: StoredCluster,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(daemon: u64, name: &str) -> ClusterNode {
        let (address, key) = ("n1:7100".to_owned(), Bytes::from_static(b"key"));
        ClusterNode { daemon, name: name.to_owned(), address, joined: 5, key, has_ca_key: false }
    }

    #[test]
    fn a_list_keeps_what_is_unique_and_its_bounds() {
        let good =
            Cluster { id: 1, store: 1, nodes: vec![node(1, "n1"), node(2, "n2")], ..Cluster::default() };
        assert_eq!(good.check(), Ok(()));
        let broken = |change: fn(&mut Cluster)| {
            let mut cluster = good.clone();
            change(&mut cluster);
            cluster.check().expect_err("it cannot be one").what
        };
        assert_eq!(broken(|c| c.id = 0), "cluster without an id");
        assert_eq!(broken(|c| c.store = 3), "cluster whose list no node keeps");
        assert_eq!(broken(|c| c.nodes[1].daemon = 1), "node that is there twice");
        assert_eq!(broken(|c| c.nodes[1].name = "n1".to_owned()), "name of two nodes");
        assert_eq!(broken(|c| c.nodes[1].name = "a b".to_owned()), "name of a node");
        assert_eq!(broken(|c| c.nodes[1].key = vec![0; 129].into()), "public key");
        assert_eq!(broken(|c| c.nodes[1].address = "x".repeat(301)), "address of a node");
        assert_eq!(
            broken(|c| c.nodes.extend((3..1026).map(|n| node(n, &n.to_string())))),
            "nodes of a cluster"
        );
        assert_eq!(
            broken(|c| c.control = ControlPlace::Etcd { text: "x".repeat(ETCD_BYTES_MAX + 1) }),
            "place of the control store"
        );
        let guest = || Invitation { guest: Bytes::from_static(b"g"), until: 7, used_by: None };
        let mut twice = good.clone();
        twice.invitations = vec![guest(), guest()];
        assert_eq!(twice.check().unwrap_err().what, "invitation that is there twice");
    }
}
