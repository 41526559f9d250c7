//! Makes a cluster, and nodes that join it: each wholly or not at all.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow, bail};
use atoll_ca::{Authority, Holder, JoinLine, Key, guest, to_pem};
use atoll_control::{ClusterStore, ControlStore, EmbeddedStore, NewNode, replace_file, seconds_now};
use atoll_proto::cluster::{
    CertificateFor, Cluster, ClusterNode, ControlPlace, Invitation, Issued, StoredCluster, UNKNOWN_CHANGE,
    check_name,
};
use atoll_proto::group::{Revision, Swapped};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{Address, ClusterId, Listener, Options, Security, sha256};

use crate::ask::{NoAnswer, ORDER, strange, try_ask_with};
use crate::control;
use crate::credentials::{FILE, to_text};
use crate::node::random;
use crate::own_etcd;

/// Where a node listens if nothing else is said.
pub const LISTEN: &str = "0.0.0.0:7100";

/// The data directory of a machine's node if no other one is named.
pub const DATA: &str = "/var/lib/atoll";

/// How long a line to join by holds if nothing else is said.
pub const LINE_HOURS: u64 = 24;

/// A node that is to be made.
#[derive(Debug)]
pub struct Place {
    /// Its data directory.
    pub data: PathBuf,
    /// Where it listens.
    pub listen: Address,
    /// Where others reach it; none: where it listens, or the address that it connects from.
    pub address: Option<Address>,
    /// Its name; none: one is made.
    pub name: Option<String>,
}

/// A node that was made.
#[derive(Debug)]
pub struct Made {
    /// The list of its cluster.
    pub cluster: Cluster,
    /// It.
    pub node: ClusterNode,
    /// Where the records of groups are, for people, if all nodes reach them by themselves.
    pub control: Option<String>,
    /// Why this machine cannot use the control store now. It tries again and again.
    pub warning: Option<String>,
}

fn host_and_port(address: &Address) -> Result<(&str, u16)> {
    match address {
        Address::Tcp { host, port } => Ok((host, *port)),
        Address::Unix { .. } => bail!("{address} reaches no other machine.\nName HOST:PORT."),
    }
}

/// Whether a node that listens there can be reached at any address of its machine.
fn is_any(host: &str) -> bool {
    matches!(host, "0.0.0.0" | "::")
}

/// Refuses an address that others cannot reach. `next`: what to do.
pub(crate) fn check_reached(address: &Address, next: &str) -> Result<()> {
    if is_any(host_and_port(address)?.0) {
        bail!("{address} is no address that others can reach.\n{next}");
    }
    Ok(())
}

impl Place {
    /// Refuses what cannot work before anything is made: the port must be free, and the name one.
    fn check(&self) -> Result<()> {
        host_and_port(&self.listen)?;
        if let Some(name) = &self.name {
            check_name(name)
                .map_err(|why| anyhow!("\"{}\" cannot name a node: {why}.", name.escape_debug()))?;
        }
        if let Some(address) = &self.address {
            check_reached(address, "Name one of this machine: --address HOST:PORT")?;
        }
        Listener::bind(&self.listen, &Options::default())?;
        Ok(())
    }

    /// Where others reach it, as the list has it. With an empty host: where the connection to another node comes from.
    fn reached(&self) -> Result<String> {
        if let Some(address) = &self.address {
            return Ok(address.to_string());
        }
        let (host, port) = host_and_port(&self.listen)?;
        Ok(if is_any(host) { format!(":{port}") } else { self.listen.to_string() })
    }

    /// The same for the first node, which connects to nobody: the address of this machine by which it reaches others.
    fn reached_of_first(&self) -> Result<String> {
        let reached = self.reached()?;
        let Some(port) = reached.strip_prefix(':') else { return Ok(reached) };
        let Some(host) = own_address() else {
            bail!(
                "This machine has no way to others, so its address is not known.\nName the one that others reach: --address HOST:{port}"
            );
        };
        Ok(match host {
            std::net::IpAddr::V4(host) => format!("{host}:{port}"),
            std::net::IpAddr::V6(host) => format!("[{host}]:{port}"),
        })
    }
}

/// The address from which this machine reaches others. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849): only the way to them matters.
    for (from, to) in [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")] {
        let Ok(socket) = UdpSocket::bind(from) else { continue };
        if socket.connect(to).is_ok()
            && let Ok(own) = socket.local_addr()
            && !own.ip().is_unspecified()
        {
            return Some(own.ip());
        }
    }
    None
}

/// Begins a data directory. Text of a new key that it keeps from then on.
fn begin(data: &Path) -> Result<(NewNode, Key)> {
    let fresh = Key::generate()?;
    let node = NewNode::begin(data, std::process::id(), || fresh.der())?;
    let key = Key::from_der(node.key())?;
    Ok((node, key))
}

/// Makes a cluster of one node, with a CA of its own. Its daemon has yet to be started. `control`: where the records of groups shall
/// be.
pub fn init(place: &Place, control: &ControlPlace) -> Result<Made> {
    place.check()?;
    let address = place.reached_of_first()?;
    let (listen, _) = host_and_port(&place.listen)?;
    match control {
        ControlPlace::Nodes => {}
        ControlPlace::Etcd { text } => control::check(&control::named(text)?)?,
        ControlPlace::OwnEtcd => own_etcd::check(listen, &address)?,
    }
    let (new, key) = begin(&place.data)?;
    let result = first_node(place, &new, &key, address).and_then(|(authority, mut issued)| {
        let cluster = &mut issued.cluster.cluster;
        cluster.control = control.clone();
        match control {
            ControlPlace::Nodes => {}
            ControlPlace::Etcd { text } => control::make(&control::named(text)?, ClusterId(cluster.id))?,
            ControlPlace::OwnEtcd => {
                let cluster = cluster.clone();
                // etcd needs the key in it.
                replace_file(new.path(), "credentials.pem.new", FILE, to_text(&issued, &key).as_bytes())?;
                own_etcd::make_first(
                    new.path(),
                    &cluster,
                    &cluster.nodes[0],
                    listen,
                    (&authority, &key),
                    |_| Ok(()),
                )?;
            }
        }
        Ok(issued)
    });
    finish(new, &key, result.map_err(NotMade::Nothing))
}

fn first_node(place: &Place, new: &NewNode, key: &Key, address: String) -> Result<(Authority, Issued)> {
    let now = SystemTime::now();
    let authority = Authority::new(now)?;
    let name = place.name.clone().unwrap_or_else(|| "node1".to_owned());
    let (daemon, public) = (new.daemon(), key.public());
    let certificate = authority.issue(Holder::Node(daemon), &public, now)?;
    let joined = seconds_now();
    let node = ClusterNode { daemon: daemon.0, name, address, joined, key: public.into(), has_ca_key: true };
    let cluster = Cluster { id: random()?, store: daemon.0, nodes: vec![node], ..Cluster::default() };
    let issued = Issued {
        certificate: certificate.to_vec().into(),
        ca: authority.certificate().to_vec().into(),
        ca_key: authority.key_der().into(),
        cluster: StoredCluster { revision: Revision::NONE, cluster },
    };
    Ok((authority, issued))
}

/// Joins the cluster of a line. The node's daemon has yet to be started.
pub fn join(line: &JoinLine, place: &Place) -> Result<Made> {
    place.check()?;
    let address = place.reached()?;
    let (new, key) = begin(&place.data)?;
    let result = ask_to_join(line, place, &new, &key, address);
    finish(new, &key, result)
}

/// Why a node was not made.
enum NotMade {
    /// Nobody has taken it into a list.
    Nothing(anyhow::Error),
    /// It may be in the list: the same node asks again, with the same key.
    Perhaps(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for NotMade {
    fn from(why: E) -> Self {
        Self::Nothing(why.into())
    }
}

fn ask_to_join(
    line: &JoinLine,
    place: &Place,
    new: &NewNode,
    key: &Key,
    address: String,
) -> Result<Issued, NotMade> {
    let (credentials, _) = guest(&line.secret, line.ca)?;
    let security = Arc::new(Security::new(&credentials)?);
    let purpose = CertificateFor::Join {
        daemon: new.daemon().0,
        name: place.name.clone().unwrap_or_default(),
        address,
    };
    let order = Control::Certify { purpose, key: key.public().into() };
    let mut last = NotMade::Nothing(anyhow!("The line to join by names no node."));
    for node in &line.addresses {
        last = match try_ask_with(node, order.clone(), ORDER, Some(security.clone())) {
            Ok(ControlReply::Issued { issued }) => {
                return with_own(node, &issued, key).map_err(NotMade::Perhaps);
            }
            Ok(ControlReply::Refused { text }) if text.starts_with(UNKNOWN_CHANGE) => {
                return Err(NotMade::Perhaps(anyhow!("{text}")));
            }
            Ok(ControlReply::Refused { text }) => return Err(NotMade::Nothing(anyhow!("{text}"))),
            Ok(_) => return Err(NotMade::Perhaps(strange(node))),
            Err(NoAnswer::Unreachable(atoll_rpc::ConnectError::NotTrusted { why, .. })) => {
                NotMade::Nothing(not_trusted(line, node, &why))
            }
            Err(why @ NoAnswer::Unreachable(_)) => NotMade::Nothing(why.into_error()),
            Err(why @ NoAnswer::Unknown(_)) => return Err(NotMade::Perhaps(why.into_error())),
        };
    }
    Err(last)
}

/// What only the node itself is told: it asks by the certificate that it has now.
fn with_own(node: &Address, issued: &Issued, key: &Key) -> Result<Issued> {
    let own = Key::from_der(&key.der())?.with(&issued.certificate, &issued.ca);
    let security = Arc::new(Security::new(&own)?);
    let order = Control::Certify { purpose: CertificateFor::Renewal, key: key.public().into() };
    match try_ask_with(node, order, ORDER, Some(security)).map_err(NoAnswer::into_error)? {
        ControlReply::Issued { issued } => Ok(*issued),
        ControlReply::Refused { text } => bail!("{text}"),
        _ => Err(strange(node)),
    }
}

/// Why a node does not let a guest in, as far as the line tells.
fn not_trusted(line: &JoinLine, node: &Address, why: &str) -> anyhow::Error {
    let (now, until) = (seconds_now(), line.until);
    if until < now {
        let ago = (now - until) / 60;
        return anyhow!(
            "The line to join by has expired, {ago} min ago by the clock of this machine.\nMake another one: atoll node invite"
        );
    }
    if why.contains("certificate of this program") {
        return anyhow!(
            "{node} does not know this line to join by: it was used by another node, or has expired by the clock there.\n\
            Make another one: atoll node invite"
        );
    }
    anyhow!("{node} cannot be trusted: {why}")
}

/// The directory is a node's, or as it was before.
fn finish(new: NewNode, key: &Key, result: Result<Issued, NotMade>) -> Result<Made> {
    let data = new.path().to_owned();
    let kept = result.and_then(|issued| match keep_list(&new, &issued) {
        Ok(()) => Ok(issued),
        Err(why) => Err(NotMade::Perhaps(why)),
    });
    let issued = match kept {
        Ok(issued) => issued,
        Err(NotMade::Nothing(why)) => {
            // Why it was not made is worth more than what is left behind.
            let _ = new.discard();
            return Err(why);
        }
        Err(NotMade::Perhaps(why)) => {
            let what = why.to_string();
            let what = what.lines().next().unwrap_or_default();
            bail!(
                "{what}\nThe node may be in the cluster already. Give the same command again: {} keeps its key.",
                data.display()
            );
        }
    };
    let cluster = issued.cluster.cluster.clone();
    let node = cluster.node(new.daemon().0).cloned();
    let node = node.ok_or_else(|| anyhow!("The cluster's list does not have the new node."))?;
    let ca_key = (!issued.ca_key.is_empty()).then(|| to_pem("PRIVATE KEY", &issued.ca_key));
    let text = to_text(&issued, key);
    new.finish(
        ClusterId(cluster.id),
        sha256(&issued.ca),
        text.as_bytes(),
        ca_key.as_ref().map(String::as_bytes),
    )?;
    let source = control::source(&data, &cluster)?;
    let warning = match (&source, &cluster.control) {
        (Some(source), ControlPlace::Etcd { .. }) => control::check(source).err().map(|why| why.to_string()),
        (_, ControlPlace::OwnEtcd) if node.has_ca_key => own_etcd::not_there().map(|why| why.to_string()),
        _ => None,
    };
    let control = source.map(|source| source.to_string());
    Ok(Made { cluster, node, control, warning })
}

/// Writes the list to the store of the directory.
fn keep_list(new: &NewNode, issued: &Issued) -> Result<()> {
    let list = &issued.cluster;
    list.cluster.check().map_err(|why| anyhow!("The cluster's list cannot be read: {why}."))?;
    let store = EmbeddedStore::open(&new.path().join(EmbeddedStore::FILE))?;
    if list.revision != Revision::NONE {
        return Ok(store.note_cluster(list)?);
    }
    match store.swap_cluster(Revision::NONE, &list.cluster) {
        Swapped::Done { .. } => Ok(()),
        // Of a beginning that was cut short.
        Swapped::Conflict => {
            let known = store.cluster()?.map_or(Revision::NONE, |known| known.revision);
            let revision = Revision(known.0 + 1);
            Ok(store.note_cluster(&StoredCluster { revision, cluster: list.cluster.clone() })?)
        }
        Swapped::Unknown { why } => bail!("The cluster's list cannot be stored: {why}."),
    }
}

/// A line to join by, and the invitation that belongs to it. `ca`: the CA's certificate.
pub(crate) fn invitation(
    ca: &[u8],
    addresses: Vec<Address>,
    valid: Duration,
) -> Result<(JoinLine, Invitation)> {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&random()?.to_le_bytes());
    secret[8..].copy_from_slice(&random()?.to_le_bytes());
    let (ca, until) = (sha256(ca), seconds_now() + valid.as_secs());
    let (_, public) = guest(&secret, ca)?;
    let line = JoinLine { addresses, secret, ca, until };
    Ok((line, Invitation { guest: public.into(), until, used_by: None }))
}
