//! The etcd that a cluster runs itself (`docs/design/021-etcd.md`): which member a node has, its certificates, and the growth from one
//! member to three.
//!
//! The nodes that keep the CA's private key have the members, so the loss of one machine is that of neither. Only the node that keeps
//! the cluster's list adds and removes members: no other one knows the newest list for certain. A member's process belongs to
//! the daemon's parent; here is only written what it shall run.

use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use atoll_ca::{Authority, Holder, Key, names_host, to_pem, valid_until};
use atoll_control::replace_file;
use atoll_etcd::{
    Beginning, EtcdAdmin, EtcdCare, EtcdControl, EtcdSource, EtcdStore, Grown, MemberPlan, MemberTls,
    SNAPSHOT_EVERY, Supervised, Tls, grow,
};
use atoll_proto::cluster::{CertificateFor, Cluster, ClusterNode};
use atoll_rpc::{Address, ClusterId};
use atoll_server::Node;
use rustix::process::{Signal, getppid, kill_process};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::credentials::{self, is_due};

/// Etcd's program, as Debian's package `etcd-server` names it.
const PROGRAM: &str = "etcd";

/// Files in the data directory.
const CA: &str = "etcd-ca.pem";
const CERTIFICATE: &str = "etcd-cert.pem";
const SNAPSHOT: &str = "etcd-snapshot.db";
const LOG: &str = "etcd.log";

/// How far above the node's own port those of its member are: for clients, and for other members.
const CLIENT_PORT: u16 = 2;
const PEER_PORT: u16 = 3;

/// How long a first member may take until it answers.
const FIRST_MAX: Duration = Duration::from_secs(20);

/// Time between two looks at what there is to do.
const PAUSE: Duration = Duration::from_secs(1);

/// After so many failures in a row it is said that there are some: once.
const FAILURES_TOLD: u32 = 10;

/// The program, if it is installed.
pub(crate) fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

fn host_and_port(address: &str) -> Result<(String, u16)> {
    match address.parse()? {
        Address::Tcp { host, port } if port <= u16::MAX - PEER_PORT => Ok((host, port)),
        Address::Tcp { .. } => bail!(
            "{address} leaves no ports for etcd, which has those {CLIENT_PORT} and {PEER_PORT} above it.\nUse a lower port."
        ),
        Address::Unix { .. } => bail!("{address} reaches no other machine.\nName HOST:PORT."),
    }
}

/// As a URL has it.
fn in_url(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn peer_url(node: &ClusterNode) -> Result<String> {
    let (host, port) = host_and_port(&node.address)?;
    Ok(format!("https://{}:{}", in_url(&host), port + PEER_PORT))
}

/// The name of a node's member: also where the node has moved to.
fn member_name(node: &ClusterNode) -> String {
    format!("node-{:016x}", node.daemon)
}

/// The nodes that may have a member.
fn members(cluster: &Cluster) -> impl Iterator<Item = &ClusterNode> {
    cluster.nodes.iter().filter(|node| node.has_ca_key)
}

/// How a node with this data directory asks.
pub(crate) fn source(data: &Path, cluster: &Cluster) -> Result<EtcdSource> {
    let mut hosts = Vec::new();
    for node in members(cluster) {
        let (host, port) = host_and_port(&node.address)?;
        hosts.push(Address::Tcp { host, port: port + CLIENT_PORT });
    }
    let own = Some((data.join(CERTIFICATE), data.join(credentials::FILE)));
    let tls = Some(Tls { ca: data.join(CA), own, name: None });
    Ok(EtcdSource { tls, ..EtcdSource::plain(hosts) })
}

/// The member of a node.
fn plan(
    data: &Path,
    cluster: u64,
    node: &ClusterNode,
    listen: &str,
    beginning: Beginning,
) -> Result<MemberPlan> {
    let (host, port) = host_and_port(&node.address)?;
    let program = program().ok_or_else(not_installed)?;
    let tls = MemberTls {
        ca: data.join(CA),
        certificate: data.join(CERTIFICATE),
        key: data.join(credentials::FILE),
        name: None,
    };
    Ok(MemberPlan {
        program,
        name: member_name(node),
        cluster: format!("atoll-{cluster:016x}"),
        data: MemberPlan::data_in(data),
        host: in_url(&host),
        listen: listen_address(listen)?,
        client_port: port + CLIENT_PORT,
        peer_port: port + PEER_PORT,
        tls: Some(tls),
        beginning,
        quota_bytes: None,
        log: Some(data.join(LOG)),
    })
}

/// etcd listens at addresses, and not at names.
fn listen_address(host: &str) -> Result<String> {
    let found = match host.parse::<IpAddr>() {
        Ok(address) => Some(address),
        Err(_) => (host, 0).to_socket_addrs().ok().and_then(|mut all| all.next()).map(|found| found.ip()),
    };
    let found =
        found.ok_or_else(|| anyhow!("{host} has no address.\nName one of this machine: --listen IP:PORT"))?;
    Ok(in_url(&found.to_string()))
}

/// Why a node that shall have a member cannot have one yet.
pub(crate) fn not_there() -> Option<anyhow::Error> {
    program().is_none().then(not_installed)
}

fn not_installed() -> anyhow::Error {
    anyhow!(
        "etcd is not installed on this machine, so it cannot keep a part of the control store.\n\
        Install Debian's package etcd-server, or name another etcd: --control etcd://HOST:PORT,..."
    )
}

/// Refuses what cannot work before anything is made: `listen` and `address` are the node's.
pub(crate) fn check(listen: &str, address: &str) -> Result<()> {
    program().ok_or_else(not_installed)?;
    let (_, port) = host_and_port(address)?;
    let listen = listen_address(listen)?;
    for port in [port + CLIENT_PORT, port + PEER_PORT] {
        TcpListener::bind(format!("{listen}:{port}")).map_err(|why| {
            anyhow!(
                "etcd cannot listen on {listen}:{port}, since its ports are {CLIENT_PORT} and {PEER_PORT} above the node's: {why}.\n\
                Free it, use another --listen, or do without etcd: --control embedded"
            )
        })?;
    }
    Ok(())
}

fn write_certificate(data: &Path, certificate: &[u8], ca: &[u8]) -> Result<()> {
    for (name, der) in [(CA, ca), (CERTIFICATE, certificate)] {
        let text = to_pem("CERTIFICATE", der);
        replace_file(data, &format!("{name}.new"), name, text.as_bytes())
            .with_context(|| format!("{} cannot be written", data.join(name).display()))?;
    }
    Ok(())
}

/// The first member: it runs for a moment, in which `fill` writes what it shall have. The node's credentials are in the data directory
/// already.
pub(crate) fn make_first(
    data: &Path,
    cluster: &Cluster,
    node: &ClusterNode,
    listen: &str,
    (authority, key): (&Authority, &Key),
    fill: impl FnOnce(&EtcdStore) -> Result<()>,
) -> Result<()> {
    let data = &std::fs::canonicalize(data).with_context(|| format!("{} cannot be used", data.display()))?;
    let now = std::time::SystemTime::now();
    let (host, _) = host_and_port(&node.address)?;
    let of_etcd = authority.of_etcd(now)?;
    let certificate = of_etcd.issue(Holder::Etcd(&host), &key.public(), now)?;
    write_certificate(data, &certificate, of_etcd.certificate())?;
    let plan = plan(data, cluster.id, node, listen, Beginning::First)?;
    // Of a beginning that was cut short.
    match std::fs::remove_dir_all(&plan.data) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why.into()),
        _ => {}
    }
    let store =
        EtcdStore::open(&source(data, cluster)?, ClusterId(cluster.id)).context("no thread for etcd")?;
    let log = data.join(LOG);
    let mut member = Supervised::new(plan.clone());
    let until = Instant::now() + FIRST_MAX;
    loop {
        member.tend();
        match store.make() {
            Ok(_) => break,
            Err(why) if Instant::now() > until => {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                bail!(
                    "etcd does not begin on this machine: {why}\nIt said last: {}",
                    said.lines().last().unwrap_or("nothing")
                );
            }
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
    fill(&store)?;
    member.stop().context("etcd cannot be stopped")?;
    Ok(plan.write(data)?)
}

/// What a daemon does for its cluster's own etcd.
pub(crate) struct Tending {
    pub(crate) node: Weak<Node>,
    pub(crate) control: Arc<EtcdControl>,
    pub(crate) data: PathBuf,
    /// The host at which the node listens.
    pub(crate) listen: String,
    /// The members that are asked.
    pub(crate) source: EtcdSource,
    pub(crate) admin: EtcdAdmin,
    pub(crate) care: Option<EtcdCare>,
}

impl Tending {
    /// Goes on as long as the node is there.
    pub(crate) fn start(mut self) -> Result<()> {
        let run = move || {
            let mut failures = 0;
            while let Some(node) = self.node.upgrade() {
                let result = self.tend(&node);
                drop(node);
                match result {
                    Ok(()) => failures = 0,
                    Err(why) => {
                        failures += 1;
                        // While members begin it may not answer for some seconds.
                        if failures == FAILURES_TOLD {
                            tracing::warn!("the cluster's own etcd: {why:#}");
                        }
                    }
                }
                thread::sleep(PAUSE);
            }
        };
        thread::Builder::new().name("atoll-etcd-own".into()).spawn(run).context("no thread for etcd")?;
        Ok(())
    }

    fn tend(&mut self, node: &Node) -> Result<()> {
        let Some(list) = node.cluster_list() else { return Ok(()) };
        let cluster = &list.cluster;
        self.certify(node, cluster)?;
        let source = source(&self.data, cluster)?;
        if self.source != source {
            let groups = EtcdStore::open(&source, ClusterId(cluster.id)).context("no thread for etcd")?;
            self.control.go_on_with(groups);
            self.admin = EtcdAdmin::open(&source)?;
            self.care = None;
            self.source = source;
        }
        let me = node.id().0;
        let Some(own) = members(cluster).find(|member| member.daemon == me) else { return Ok(()) };
        let Some(planned) = MemberPlan::read(&self.data)? else { return self.join(cluster, own) };
        self.follow(cluster, own, &planned)?;
        if self.care.is_none() {
            let admin = EtcdAdmin::open(&self.source)?;
            self.care = Some(EtcdCare::start(admin, self.data.join(SNAPSHOT), SNAPSHOT_EVERY)?);
        }
        if cluster.store == me {
            self.grow(cluster)?;
        }
        Ok(())
    }

    /// A certificate of etcd's CA, before it is needed, before it ends, and when the node is at another host.
    fn certify(&self, node: &Node, cluster: &Cluster) -> Result<()> {
        let own = cluster.node(node.id().0).map(|own| host_and_port(&own.address)).transpose()?;
        let is_of_host =
            |found: &CertificateDer<'_>| own.as_ref().is_none_or(|(host, _)| names_host(found, host));
        let found = std::fs::read(self.data.join(CERTIFICATE)).unwrap_or_default();
        let found = CertificateDer::from_pem_slice(&found).ok();
        if found.is_some_and(|found| is_of_host(&found) && !valid_until(&found).is_none_or(is_due)) {
            return Ok(());
        }
        let credentials = credentials::read(&self.data.join(credentials::FILE))?;
        let key = Key::from_der(credentials.key.secret_der())?;
        let issued = node.renew_certificate(CertificateFor::Etcd, &key).map_err(|why| anyhow!("{why}"))?;
        write_certificate(&self.data, &issued.certificate, &issued.ca)
    }

    /// Has a member run on this node, if the others wait for it.
    fn join(&self, cluster: &Cluster, own: &ClusterNode) -> Result<()> {
        let url = peer_url(own)?;
        let all = self.admin.members()?;
        let is_own = |member: &&atoll_etcd::EtcdMember| member.peer_urls.contains(&url);
        if !all.iter().any(|member| is_own(&member) && member.name.is_empty()) {
            return Ok(());
        }
        let others = all.iter().filter(|member| !is_own(member));
        let others =
            others.flat_map(|m| m.peer_urls.iter().map(|url| (m.name.clone(), url.clone()))).collect();
        self.run(&plan(&self.data, cluster.id, own, &self.listen, Beginning::Joins(others))?)
    }

    /// Has the parent run a member by this plan.
    fn run(&self, plan: &MemberPlan) -> Result<()> {
        plan.write(&self.data)?;
        // The parent looks for the file when it hears of a child.
        if let Some(parent) = getppid() {
            kill_process(parent, Signal::CHILD)?;
        }
        Ok(())
    }

    /// The member is where its node is.
    fn follow(&self, cluster: &Cluster, own: &ClusterNode, planned: &MemberPlan) -> Result<()> {
        let now = plan(&self.data, cluster.id, own, &self.listen, Beginning::First)?;
        let MemberPlan { host, listen, client_port, peer_port, .. } = now;
        let moved = MemberPlan { host, listen, client_port, peer_port, ..planned.clone() };
        if moved == *planned {
            return Ok(());
        }
        tracing::info!("this node's member of etcd moves to {}", moved.client_url());
        self.run(&moved)
    }

    /// One step towards three members.
    fn grow(&self, cluster: &Cluster) -> Result<()> {
        let nodes: Vec<(String, String)> =
            members(cluster).map(|node| Ok((member_name(node), peer_url(node)?))).collect::<Result<_>>()?;
        match grow(&self.admin, &nodes)? {
            Grown::Done | Grown::Waits { .. } | Grown::Add { .. } => {}
            Grown::Changed => tracing::info!("etcd's members have changed"),
        }
        Ok(())
    }
}
