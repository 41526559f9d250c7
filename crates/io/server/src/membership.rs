//! What a node knows of its cluster: who is a node, a client or invited, what each may ask, and the certificates that the CA
//! issues (`docs/design/019-machines.md`).
//!
//! One node keeps the list. The others ask it every two seconds and note what they hear, so that they know whom to let in while
//! it is away. Whoever is not in the list is not let in, however good the certificate is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant, SystemTime};

use crate::served::Served;
use atoll_ca::{Authority, Holder, Key};
use atoll_control::{ClusterStore, ControlStore, ServedStore, seconds_now};
use atoll_core::{Ino, VolumeId};
use atoll_proto::cluster::{
    CertificateFor, Cluster, ClusterNode, Grant, Invitation, Issued, NODES_MAX, PUBLIC_KEY_BYTES_MAX,
    StoredCluster, UNKNOWN_CHANGE, check_name,
};
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{Address, DaemonId, Goodbye, Peer, Reason, Role, Security, Shown, guest_number, sha256};

/// How long a question to the node that keeps the list may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two times at which the list is read because of somebody who is not in it.
const PAUSE: Duration = Duration::from_millis(200);

/// How often a change is tried again when somebody else was faster.
const TRIES: u32 = 20;

/// Nodes that keep a copy of the CA's private key: so the loss of one is not that of the CA.
const CA_KEYS: usize = 3;

/// What a node is told that is not in the list.
const NOT_IN_LIST: &str =
    "this node is not in the list of the cluster: it was removed, or joined a moment ago";

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Principal {
    /// Whoever reaches this node's Unix socket, or a cluster without certificates.
    Trusted,
    /// A node of the cluster.
    Node(DaemonId),
    /// A client, and what it may do.
    Client(u64, Grant),
    /// Whoever is invited to join, by the number of its key.
    Guest(u64),
}

impl Principal {
    /// Whether an order may be given. Orders about one volume name it; whether a client sees the volume is asked apart.
    pub(crate) fn may_order(&self, order: &Control) -> bool {
        match self {
            Self::Trusted | Self::Node(_) => match order {
                Control::Certify { purpose, .. } => match purpose {
                    CertificateFor::Join { .. } => false,
                    CertificateFor::Renewal | CertificateFor::Etcd => matches!(self, Self::Node(_)),
                    CertificateFor::Client { .. } => true,
                },
                _ => true,
            },
            Self::Client(..) => {
                matches!(
                    order,
                    Control::Volume { .. } | Control::Certify { purpose: CertificateFor::Renewal, .. }
                )
            }
            Self::Guest(_) => matches!(order, Control::Certify { purpose: CertificateFor::Join { .. }, .. }),
        }
    }

    /// The directory that it sees only, with what is below it, and the directory's placement key; none: all of its volumes.
    pub(crate) fn root(&self) -> Option<(Ino, atoll_core::Key)> {
        match self {
            Self::Trusted | Self::Node(_) | Self::Guest(_) => None,
            Self::Client(_, grant) => grant.subtree.as_ref().map(|subtree| (subtree.dir, subtree.key)),
        }
    }

    /// Whether it sees a volume.
    pub(crate) fn sees(&self, volume: VolumeId) -> bool {
        match self {
            Self::Trusted | Self::Node(_) => true,
            Self::Client(_, grant) => grant.volume.is_none_or(|only| only == volume),
            Self::Guest(_) => false,
        }
    }
}

/// The upper half of the ids of a client's sessions, so that nobody can speak for another one's: the lower half of the number in
/// its certificate.
pub const fn session_prefix(holder: u64) -> u32 {
    holder as u32
}

/// A volume that a link was let in to, and the limits of whoever is on it.
pub(crate) struct LetIn {
    pub(crate) volume: Arc<dyn Served>,
    /// None: it is not limited.
    pub(crate) grant: Option<Grant>,
}

/// See the module.
pub struct Membership {
    me: DaemonId,
    security: Arc<Security>,
    own: Arc<dyn ControlStore>,
    ca: Vec<u8>,
    authority: Option<Authority>,
    known: RwLock<Arc<StoredCluster>>,
    /// The way to the node that keeps the list, and its address.
    keeper: Mutex<Option<(String, Arc<ServedStore>)>>,
    /// When the list was begun to be read last because of somebody who is not in it.
    read_for_unknown: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("me", &self.me).finish_non_exhaustive()
    }
}

/// Which nodes know where the one is that keeps the list.
#[derive(Debug, Default)]
pub struct Told {
    /// Where it is.
    address: String,
    /// The nodes; those of the list at most.
    nodes: BTreeSet<u64>,
}

/// What a node with certificates has of them.
pub struct Secured {
    /// Those of its links.
    pub security: Arc<Security>,
    /// The CA's certificate, DER.
    pub ca: Vec<u8>,
    /// The CA, if this node keeps its private key.
    pub authority: Option<Authority>,
}

impl Membership {
    /// The cluster as this node's own store has it.
    pub(crate) fn new(me: DaemonId, secured: Secured, own: Arc<dyn ControlStore>) -> Result<Self, String> {
        let Secured { security, ca, authority } = secured;
        let list = own.cluster().map_err(|why| why.to_string())?;
        let list = list.ok_or("the control store has no list of the cluster's nodes.")?;
        let known = RwLock::new(Arc::new(list));
        let this = Self {
            me,
            security,
            own,
            ca,
            authority,
            known,
            keeper: Mutex::default(),
            read_for_unknown: Mutex::default(),
        };
        this.invite();
        Ok(this)
    }

    /// The list as it is known here.
    pub(crate) fn list(&self) -> Arc<StoredCluster> {
        Arc::clone(&self.known.read().expect("no panic while it is held"))
    }

    /// Whose certificate this is, if its owner is in the list.
    pub(crate) fn principal(&self, shown: Option<&Shown>) -> Option<Principal> {
        let list = self.list();
        match shown.map(|shown| shown.peer) {
            None => Some(Principal::Trusted),
            Some(Peer::Node(node)) => {
                // Whoever had the CA's private key once could name himself anything; the list says whose key it is.
                let is_own =
                    |known: &&ClusterNode| shown.is_some_and(|shown| sha256(&known.key) == shown.key);
                list.cluster.node(node.0).filter(is_own).map(|_| Principal::Node(node))
            }
            Some(Peer::Client(client)) => {
                list.cluster.client(client).map(|known| Principal::Client(client, known.grant.clone()))
            }
            Some(Peer::Guest(guest)) => {
                let now = seconds_now();
                let is_open = |of: &Invitation| of.until >= now && guest_number(&of.guest) == guest;
                list.cluster.invitations.iter().any(is_open).then_some(Principal::Guest(guest))
            }
        }
    }

    /// The same for a greeting; an error says why it is not let in. What volumes it may greet for is asked apart.
    pub(crate) fn admit(&self, shown: Option<&Shown>, role: &Role) -> Result<Principal, Goodbye> {
        let refused = |text: &str| Goodbye::new(Reason::NotAllowed, text);
        let principal = self.principal(shown).or_else(|| {
            // It may have come into the list a moment ago.
            self.refresh_for_unknown();
            self.principal(shown)
        });
        let principal = principal.ok_or_else(|| match shown.map(|shown| shown.peer) {
            Some(Peer::Node(_)) => refused(NOT_IN_LIST),
            _ => refused(
                "this client is not in the list of the cluster: it was removed, or added a moment ago",
            ),
        })?;
        let volume = match role {
            Role::Client { volume, session } => {
                let holder = match &principal {
                    Principal::Trusted => None,
                    Principal::Node(node) => Some(node.0),
                    Principal::Client(client, _) => Some(*client),
                    Principal::Guest(_) => None,
                };
                if holder.is_some_and(|holder| session.0 >> 32 != u64::from(session_prefix(holder))) {
                    return Err(refused("the session belongs to another client"));
                }
                Some(*volume)
            }
            Role::Relay { volume, .. } => Some(*volume),
            Role::Node { .. } | Role::Relayed { .. } | Role::Tool => None,
        };
        match volume {
            Some(volume) if !principal.sees(volume) => {
                Err(Goodbye::new(Reason::NoSuchVolume, "it is not served here"))
            }
            _ => Ok(principal),
        }
    }

    /// Reads the list anew. An error says why the node that keeps it does not answer.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        let list = self.kept_by()?.cluster().map_err(|why| why.to_string())?;
        let list = list.ok_or("the node that keeps the list has none")?;
        self.take(list)
    }

    /// Reads the list because of somebody with a good certificate who is not in it. Many of them ask for it as often as one.
    fn refresh_for_unknown(&self) {
        let asked = Instant::now();
        let mut last = self.read_for_unknown.lock().expect("no panic while it is held");
        if last.is_some_and(|began| began > asked) {
            return;
        }
        if let Some(began) = *last {
            std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
        }
        *last = Some(Instant::now());
        if let Err(why) = self.refresh() {
            tracing::debug!("the cluster's list is not read: {why}");
        }
    }

    /// Whether the node that keeps the list says that this one is not in it.
    pub(crate) fn was_removed(&self) -> bool {
        self.refresh().is_err_and(|why| why.contains(NOT_IN_LIST))
            || self.list().cluster.node(self.me.0).is_none()
    }

    /// When this node's certificate ends, in seconds since 1970.
    pub(crate) fn certificate_until(&self) -> Option<u64> {
        atoll_ca::valid_until(&self.security.certificate())
    }

    /// This list is the newest one, unless a newer one is known.
    fn take(&self, list: StoredCluster) -> Result<(), String> {
        let mut known = self.known.write().expect("no panic while it is held");
        if list.cluster.id != known.cluster.id {
            return Err(format!(
                "it is of cluster {:016x}, not of {:016x}",
                list.cluster.id, known.cluster.id
            ));
        }
        if list.revision > known.revision {
            self.own.note_cluster(&list).map_err(|why| why.to_string())?;
            *known = Arc::new(list);
        }
        drop(known);
        self.invite();
        Ok(())
    }

    /// Lets those in who are invited now, and connects to those who are nodes.
    fn invite(&self) {
        let (list, now) = (self.list(), seconds_now());
        self.security.know_nodes(node_keys(&list.cluster));
        let open = list.cluster.invitations.iter().filter(|invitation| invitation.until >= now);
        self.security.invite(open.map(|invitation| invitation.guest.to_vec()).collect());
    }

    fn keeper(&self) -> MutexGuard<'_, Option<(String, Arc<ServedStore>)>> {
        self.keeper.lock().expect("no panic while it is held")
    }

    /// The store with the list, here or at the node that keeps it.
    fn kept_by(&self) -> Result<Arc<dyn ClusterStore>, String> {
        let list = self.list();
        if list.cluster.store == self.me.0 {
            return Ok(Arc::clone(&self.own) as _);
        }
        let node =
            list.cluster.node(list.cluster.store).ok_or("the node that keeps the list is not in it")?;
        let mut keeper = self.keeper();
        if let Some((address, store)) = &*keeper
            && *address == node.address
        {
            return Ok(Arc::clone(store) as _);
        }
        let address: Address =
            node.address.parse().map_err(|why: atoll_rpc::AddressError| why.to_string())?;
        let keeper_is = Some(DaemonId(list.cluster.store));
        let store = Arc::new(ServedStore::of_node(address, PATIENCE, keeper_is));
        *keeper = Some((node.address.clone(), Arc::clone(&store)));
        Ok(store)
    }

    /// Reads the list at an address at which the node that keeps it is said to be. Another node there is not believed.
    pub(crate) fn read_at(&self, address: &str) -> Result<(), String> {
        let list = self.list();
        let keeper = list.cluster.store;
        if keeper == self.me.0 || list.cluster.node(keeper).is_some_and(|node| node.address == address) {
            return Ok(());
        }
        let place: Address = address.parse().map_err(|why: atoll_rpc::AddressError| why.to_string())?;
        let list = ServedStore::of_node(place, PATIENCE, Some(DaemonId(keeper))).cluster();
        let list = list.map_err(|why| why.to_string())?;
        self.take(list.ok_or("the node that keeps the list has none")?)
    }

    /// If the list is kept here: tells the other nodes where this one is, each until it has answered. They could not find out, since
    /// they ask at the address that they know.
    pub(crate) fn tell_place(&self, told: &mut Told) {
        let list = self.list();
        let own = list.cluster.node(self.me.0);
        let Some(own) = own.filter(|own| own.daemon == list.cluster.store) else { return };
        if told.address != own.address {
            *told = Told { address: own.address.clone(), nodes: BTreeSet::new() };
        }
        let order = Control::ListAt { address: own.address.clone() };
        for node in &list.cluster.nodes {
            if node.daemon == self.me.0 || told.nodes.contains(&node.daemon) {
                continue;
            }
            let Ok(address) = node.address.parse() else { continue };
            let node = node.daemon;
            let answer = ServedStore::of_node(address, PATIENCE, Some(DaemonId(node))).order(&order);
            // One that does not do it is told again.
            if answer == Ok(ControlReply::Done) {
                told.nodes.insert(node);
            }
        }
    }

    /// The list, from the node that keeps it if it answers.
    pub(crate) fn answer_list(&self) -> ControlReply {
        if let Err(why) = self.refresh() {
            tracing::debug!("the cluster's list is not read: {why}");
        }
        ControlReply::Cluster { cluster: Some(Box::new((*self.list()).clone())) }
    }

    /// Puts a list in the place of another one, here or at the node that keeps it.
    pub(crate) fn swap(&self, expected: Revision, next: &Cluster) -> Swapped {
        if let Err(why) = next.check() {
            return Swapped::Unknown { why: why.to_string() };
        }
        match self.kept_by() {
            Ok(store) => {
                let swapped = store.swap_cluster(expected, next);
                if let Swapped::Done { revision } = swapped
                    && let Err(why) = self.take(StoredCluster { revision, cluster: next.clone() })
                {
                    tracing::warn!("the cluster's list is not noted: {why}");
                }
                swapped
            }
            Err(why) => Swapped::Unknown { why },
        }
    }

    /// Changes the list by `change`, which is given it again if somebody else was faster.
    fn change<T>(&self, change: impl Fn(&mut Cluster) -> Result<T, String>) -> Result<T, String> {
        for _ in 0..TRIES {
            self.refresh()?;
            let list = self.list();
            let mut next = list.cluster.clone();
            let value = change(&mut next)?;
            if next == list.cluster {
                return Ok(value);
            }
            match self.swap(list.revision, &next) {
                Swapped::Done { .. } => return Ok(value),
                Swapped::Conflict => {}
                // It may have been made: whoever asks again finds it so.
                Swapped::Unknown { why } => return Err(format!("{UNKNOWN_CHANGE}: {why}.")),
            }
        }
        Err("the cluster's list changes all the time. Try again.".to_owned())
    }

    /// Issues a certificate. `from`: where the question comes from.
    pub(crate) fn certify(
        &self,
        who: &Principal,
        from: Option<SocketAddr>,
        purpose: CertificateFor,
        key: &[u8],
    ) -> Result<Issued, String> {
        if key.len() > PUBLIC_KEY_BYTES_MAX {
            return Err("The public key is too long.".to_owned());
        }
        let Some(authority) = &self.authority else { return self.pass_on(who, purpose, key) };
        // A guest may have taken the line from somebody: it gets a certificate for a key, and what it must not know only when it has
        // shown by that certificate that the key is its own.
        let (holder, is_node, keeps_key) = match (who, purpose) {
            (Principal::Guest(guest), CertificateFor::Join { daemon, name, address }) => {
                let address = reached_at(&address, from)?;
                self.join(*guest, daemon, &name, &address, key)?;
                (Holder::Node(DaemonId(daemon)), false, false)
            }
            (Principal::Node(node), CertificateFor::Renewal) => {
                let list = self.list();
                let known =
                    list.cluster.node(node.0).ok_or("This node is not in the list of the cluster.")?;
                if known.key[..] != *key {
                    return Err("The public key is not the one that this node has joined with.".to_owned());
                }
                (Holder::Node(*node), true, known.has_ca_key)
            }
            (Principal::Node(node), CertificateFor::Etcd) => return self.certify_etcd(authority, *node, key),
            (Principal::Client(client, _), CertificateFor::Renewal) => {
                (Holder::Client(*client), false, false)
            }
            (Principal::Trusted | Principal::Node(_), CertificateFor::Client { client }) => {
                let known = self.list().cluster.client(client).is_some();
                (Holder::Client(client), false, known.then_some(false).ok_or("There is no such client.")?)
            }
            _ => return Err("That is not for whoever asks.".to_owned()),
        };
        let certificate = authority.issue(holder, key, SystemTime::now()).map_err(|why| why.to_string())?;
        Ok(Issued {
            certificate: certificate.to_vec().into(),
            ca: self.ca.clone().into(),
            ca_key: if keeps_key { authority.key_der().into() } else { bytes::Bytes::new() },
            cluster: if is_node { (*self.list()).clone() } else { StoredCluster::default() },
        })
    }

    /// As [`Self::certify`], where the CA's private key is not. A client may know no other node, so a node that keeps the key is asked for it;
    /// what another node asks is never passed on, so it does not go round.
    fn pass_on(&self, who: &Principal, purpose: CertificateFor, key: &[u8]) -> Result<Issued, String> {
        let client = match (who, &purpose) {
            (Principal::Client(client, _), CertificateFor::Renewal)
            | (Principal::Trusted, CertificateFor::Client { client }) => *client,
            _ => {
                let list = self.list();
                let all = list.cluster.nodes.iter().filter(|node| node.has_ca_key);
                let names: Vec<_> = all.map(|node| node.name.as_str()).collect();
                return Err(format!(
                    "This node does not keep the CA's private key.\nAsk one that does: {}.",
                    names.join(", ")
                ));
            }
        };
        self.ask_keepers(&CertificateFor::Client { client }, key)
    }

    /// A certificate of etcd's CA, for the host of the node's address in the list.
    fn certify_etcd(&self, authority: &Authority, node: DaemonId, key: &[u8]) -> Result<Issued, String> {
        let list = self.list();
        let known = list.cluster.node(node.0).ok_or("This node is not in the list of the cluster.")?;
        if known.key[..] != *key {
            return Err("The public key is not the one that this node has joined with.".to_owned());
        }
        let Ok(Address::Tcp { host, .. }) = known.address.parse() else {
            return Err(format!("{} has no host.", known.address));
        };
        let now = SystemTime::now();
        let of_etcd = authority.of_etcd(now).map_err(|why| why.to_string())?;
        let issued = of_etcd.issue(Holder::Etcd(&host), key, now).map_err(|why| why.to_string())?;
        Ok(Issued {
            certificate: issued.to_vec().into(),
            ca: of_etcd.certificate().to_vec().into(),
            ca_key: bytes::Bytes::new(),
            cluster: (*list).clone(),
        })
    }

    /// Takes a node into the list, by the invitation of a guest.
    fn join(&self, guest: u64, daemon: u64, name: &str, address: &str, key: &[u8]) -> Result<(), String> {
        self.change(|cluster| {
            let now = seconds_now();
            let is_listed = cluster.node(daemon).is_some();
            let of_guest = |invitation: &&mut Invitation| guest_number(&invitation.guest) == guest;
            let invitation = cluster.invitations.iter_mut().find(of_guest);
            let invitation = invitation.ok_or("The line to join by is not known here any more.\nMake another one: atoll node invite")?;
            if invitation.until < now {
                return Err("The line to join by has expired.\nMake another one: atoll node invite".to_owned());
            }
            match invitation.used_by {
                None => invitation.used_by = Some(daemon),
                // The answer was lost.
                Some(by) if by == daemon && is_listed => {}
                Some(by) if by == daemon => {
                    return Err("This node was removed from the cluster.\nTo join again, use a new line and an empty data directory.".to_owned());
                }
                Some(_) => {
                    return Err("The line to join by was used already, by another node.\nMake another one: atoll node invite".to_owned());
                }
            }
            if let Some(known) = cluster.node(daemon) {
                // The answer was lost, or the node has begun to join again.
                return match known.key[..] == *key {
                    true => Ok(()),
                    false => Err("A node with this id, and another key, is in the cluster.\nJoin with an empty data directory.".to_owned()),
                };
            }
            if cluster.nodes.len() == NODES_MAX {
                return Err(format!("A cluster has {NODES_MAX} nodes at most."));
            }
            if let Some(other) = cluster.nodes.iter().find(|node| node.address == address) {
                return Err(format!(
                    "{address} is the address of node {}.\nIf that node is gone: atoll node remove {}. Otherwise choose another port.",
                    other.name, other.name
                ));
            }
            let name = free_name(cluster, name)?;
            let has_ca_key = cluster.nodes.iter().filter(|node| node.has_ca_key).count() < CA_KEYS;
            let (key, address) = (key.to_vec().into(), address.to_owned());
            cluster.nodes.push(ClusterNode { daemon, name, address, joined: now, key, has_ca_key });
            Ok(())
        })
    }

    /// Asks for a new certificate of this node, with the key that it has.
    pub(crate) fn renew(&self, purpose: CertificateFor, key: &Key) -> Result<Issued, String> {
        let public = key.public();
        match self.authority {
            Some(_) => self.certify(&Principal::Node(self.me), None, purpose, &public),
            None => self.ask_keepers(&purpose, &public),
        }
    }

    /// Asks the other nodes that keep the CA's private key for a certificate, one after the other.
    fn ask_keepers(&self, purpose: &CertificateFor, key: &[u8]) -> Result<Issued, String> {
        let list = self.list();
        let mut last = "no other node keeps the CA's private key".to_owned();
        let keepers = list.cluster.nodes.iter().filter(|node| node.has_ca_key && node.daemon != self.me.0);
        for node in keepers {
            let asked = node.address.parse().map_err(|why: atoll_rpc::AddressError| why.to_string());
            let order = Control::Certify { purpose: purpose.clone(), key: key.to_vec().into() };
            let of_node = Some(DaemonId(node.daemon));
            let asked =
                asked.and_then(|address| ServedStore::of_node(address, PATIENCE, of_node).order(&order));
            match asked {
                Ok(ControlReply::Issued { issued }) => return Ok(*issued),
                Ok(ControlReply::Refused { text }) => last = text,
                Ok(_) => last = "the answer does not fit the question".to_owned(),
                Err(why) => last = why,
            }
        }
        Err(last)
    }
}

/// The nodes of a cluster, each with the digest of its public key: whom a process that knows the list connects to.
pub fn node_keys(cluster: &Cluster) -> BTreeMap<DaemonId, [u8; 32]> {
    cluster.nodes.iter().map(|node| (DaemonId(node.daemon), sha256(&node.key))).collect()
}

/// The name that was wished for, if it is free; or one that is.
fn free_name(cluster: &Cluster, wished: &str) -> Result<String, String> {
    let is_taken = |name: &str| cluster.nodes.iter().any(|node| node.name == name);
    if wished.is_empty() {
        let mut numbered = (1..).map(|n: u32| format!("node{n}"));
        return Ok(numbered.find(|name| !is_taken(name)).expect("there are more numbers than nodes"));
    }
    check_name(wished).map_err(|why| format!("\"{}\" cannot name a node: {why}.", wished.escape_debug()))?;
    if is_taken(wished) {
        return Err(format!("There is a node {wished} already.\nChoose another name: --name NAME"));
    }
    Ok(wished.to_owned())
}

/// An address without a host is where the question comes from.
fn reached_at(address: &str, from: Option<SocketAddr>) -> Result<String, String> {
    let whole = match (address.strip_prefix(':'), from) {
        (Some(port), Some(SocketAddr::V4(from))) => format!("{}:{port}", from.ip()),
        (Some(port), Some(SocketAddr::V6(from))) => format!("[{}]:{port}", from.ip()),
        _ => address.to_owned(),
    };
    match whole.parse() {
        Ok(Address::Tcp { .. }) => Ok(whole),
        Ok(Address::Unix { .. }) => Err("A node is reached by HOST:PORT.".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Milliseconds since 1970 by this machine's clock.
pub fn clock_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
