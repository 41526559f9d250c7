//! The certificates of this process: where they are found, and how they are renewed.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use atoll_ca::{Authority, Key, LIFETIME_DAYS, to_pem, valid_until};
use atoll_control::{DataDir, replace_file, seconds_now};
use atoll_proto::cluster::CertificateFor;
use atoll_proto::{Control, ControlReply, Issued};
use atoll_rpc::{Address, Credentials, Goodbye, Listener, Peer, Reason, Security, Trust};
use atoll_server::{Node, Secured, Told};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use crate::ask::{QUESTION, ask};

/// Where commands and mounts look for credentials if none are named: a client's, then those of a node of this machine.
const DEFAULTS: [&str; 2] = ["/etc/atoll/credentials.pem", "/var/lib/atoll/credentials.pem"];

/// Name of the file in a data directory.
pub const FILE: &str = "credentials.pem";

/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How often a node reads the cluster's list.
const REFRESH: Duration = Duration::from_secs(2);

/// How often a mount looks whether its certificate ends soon.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// For so many such pauses a node does not try again to renew its certificate when that has failed.
const RENEW_AGAIN: u32 = 300;

/// Credentials as text (PEM).
pub fn to_text(issued: &Issued, key: &Key) -> String {
    [
        to_pem("CERTIFICATE", &issued.certificate),
        to_pem("CERTIFICATE", &issued.ca),
        to_pem("PRIVATE KEY", &key.der()),
    ]
    .concat()
}

/// Reads a file of credentials.
pub fn read(file: &Path) -> Result<Credentials> {
    let mut text = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_end(&mut text))
        .with_context(|| format!("The credentials {} cannot be read", file.display()))?;
    Credentials::from_pem(&text).map_err(|why| {
        anyhow!(
            "{} has no credentials: {why}.\nMake such a file on a node: atoll client add NAME --out FILE",
            file.display()
        )
    })
}

/// The credentials that this machine has and this user may read.
pub fn of_machine() -> Option<&'static Path> {
    let may_read = |path: &&&str| match File::open(path) {
        Ok(_) => true,
        Err(e) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied),
    };
    DEFAULTS.iter().find(may_read).map(Path::new)
}

/// Uses the certificates of a file for all links of this process. If none is named, those in the data directory that a command is
/// about, or else those of this machine, if there are any that this user may read.
pub fn use_for_process(file: Option<&Path>, data: Option<&Path>) -> Result<()> {
    let of_data = data.map(|data| data.join(FILE)).filter(|file| file.exists());
    let used = file.map(Path::to_owned).or(of_data).or_else(|| of_machine().map(Path::to_owned));
    let Some(used) = used else { return Ok(()) };
    let credentials = read(&used)?;
    Security::new(&credentials)?.install();
    *OF_PROCESS.lock().expect("no panic while it is held") = Some(std::path::absolute(&used)?);
    Ok(())
}

/// The file of the certificates that this process uses, until somebody keeps them renewed.
static OF_PROCESS: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Renews the certificate of this process in time, as long as it lives: a client asks the nodes at these addresses, and a process
/// of a node takes what the node has renewed.
pub fn keep_renewed(addresses: Vec<Address>) -> Result<()> {
    let Some(security) = Security::of_process() else { return Ok(()) };
    // Once a process, whatever it mounts.
    let Some(file) = OF_PROCESS.lock().expect("no panic while it is held").take() else { return Ok(()) };
    let run = move || {
        loop {
            if let Err(why) = renew(&security, &file, &addresses) {
                tracing::warn!("the certificate in {} is not renewed: {why:#}", file.display());
            }
            thread::sleep(LOOK);
        }
    };
    thread::Builder::new()
        .name("atoll-renew".into())
        .spawn(run)
        .context("no thread to renew the certificate")?;
    Ok(())
}

fn renew(security: &Security, file: &Path, addresses: &[Address]) -> Result<()> {
    let credentials = read(file)?;
    if !valid_until(&credentials.certificate).is_none_or(is_due) || !matches!(security.me(), Peer::Client(_))
    {
        return Ok(security.renew(&credentials)?);
    }
    let key = Key::from_der(credentials.key.secret_der())?;
    let order = Control::Certify { purpose: CertificateFor::Renewal, key: key.public().into() };
    let mut last = anyhow!("no node is known");
    for address in addresses {
        match ask(address, order.clone(), QUESTION) {
            Ok(ControlReply::Issued { issued }) => {
                let text = to_text(&issued, &key);
                security.renew(&Credentials::from_pem(text.as_bytes())?)?;
                let folder = file.parent().unwrap_or(Path::new("/"));
                let name = file.file_name().and_then(|name| name.to_str()).unwrap_or(FILE);
                replace_file(folder, &format!("{name}.new"), name, text.as_bytes())
                    .with_context(|| format!("{} cannot be written", file.display()))?;
                tracing::info!("the certificate in {} is renewed", file.display());
                return Ok(());
            }
            Ok(_) => last = anyhow!("{address} gave an answer that does not fit the question"),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// The certificates of a node, and their use for all links of this process; none if the node's links are not encrypted.
pub(crate) fn of_node(dir: &DataDir) -> Result<Option<Secured>> {
    let Some(text) = dir.credentials()? else { return Ok(None) };
    let file = dir.path().join(FILE);
    let credentials =
        Credentials::from_pem(&text).with_context(|| format!("{} is damaged", file.display()))?;
    if credentials.peer()? != Peer::Node(dir.identity().node) {
        bail!(
            "{} is of another node.\nRestore that file from a backup of this data directory.",
            file.display()
        );
    }
    let Trust::Ca(ca) = &credentials.trust else { bail!("{} names no CA", file.display()) };
    let (authority, ca) = (authority(dir, ca)?, ca.to_vec());
    Ok(Some(Secured { security: Security::new(&credentials)?.install(), ca, authority }))
}

/// The CA, if the node keeps its private key. `ca`: its certificate.
fn authority(dir: &DataDir, ca: &[u8]) -> Result<Option<Authority>> {
    let key = dir.ca_key()?.map(|text| PrivateKeyDer::from_pem_slice(&text)).transpose();
    let key = key.map_err(|_| anyhow!("{} is damaged", dir.path().join("ca.key").display()))?;
    Ok(key.map(|key| Authority::from_parts(ca, key.secret_der())).transpose()?)
}

/// The CA and the key of a node that keeps the CA's private key.
pub(crate) fn authority_and_key(dir: &DataDir) -> Result<(Authority, Key)> {
    let credentials = read(&dir.path().join(FILE))?;
    let Trust::Ca(ca) = &credentials.trust else { bail!("{} names no CA", dir.path().join(FILE).display()) };
    let Some(authority) = authority(dir, ca)? else {
        bail!("This node does not keep the CA's private key.\n\"atoll node list\" shows those that do.");
    };
    Ok((authority, Key::from_der(credentials.key.secret_der())?))
}

/// A node whose cluster is watched.
pub(crate) struct Watched {
    pub(crate) node: Weak<Node>,
    pub(crate) listeners: Weak<Mutex<Vec<Listener>>>,
    pub(crate) data: PathBuf,
    pub(crate) security: Arc<Security>,
}

/// Reads the cluster's list from time to time, ends the links of whoever was removed, and renews the node's certificate, as long as
/// the node is there.
pub(crate) fn watch(watched: Watched) -> Result<()> {
    let run = move || {
        let mut renew_in = 0;
        loop {
            let Some(node) = watched.node.upgrade() else { return };
            match node.refresh_cluster() {
                Ok(is_known) => {
                    let Some(listeners) = watched.listeners.upgrade() else { return };
                    let listeners = listeners.lock().expect("no panic while it is held");
                    let links = listeners.iter().flat_map(Listener::links);
                    for link in links.filter(|link| !is_known(link)).collect::<Vec<_>>() {
                        link.close(Goodbye::new(
                            Reason::NotAllowed,
                            "its owner was removed from the cluster",
                        ));
                    }
                }
                Err(why) => tracing::debug!("the cluster's list is not read: {why}"),
            }
            if renew_in > 0 {
                renew_in -= 1;
            } else if let Err(why) = watched.renew_if_due(&node) {
                tracing::warn!("the node's certificate is not renewed: {why:#}");
                renew_in = RENEW_AGAIN;
            }
            drop(node);
            thread::sleep(REFRESH);
        }
    };
    thread::Builder::new()
        .name("atoll-cluster".into())
        .spawn(run)
        .context("no thread for the cluster's list")?;
    Ok(())
}

/// Has the node, if it keeps the cluster's list, tell the others where it is, as long as it is there. A node that does not answer holds up
/// nothing else.
pub(crate) fn tell_place(node: Weak<Node>) -> Result<()> {
    let run = move || {
        let mut told = Told::default();
        while let Some(node) = node.upgrade() {
            node.tell_place(&mut told);
            drop(node);
            thread::sleep(REFRESH);
        }
    };
    thread::Builder::new().name("atoll-place".into()).spawn(run).context("no thread to tell the address")?;
    Ok(())
}

/// Whether a certificate is to be renewed: a third of its life is left, or less.
pub(crate) fn is_due(until: u64) -> bool {
    until.saturating_sub(seconds_now()) < u64::from(LIFETIME_DAYS) * 24 * 60 * 60 / 3
}

impl Watched {
    fn renew_if_due(&self, node: &Node) -> Result<()> {
        let file = self.data.join(FILE);
        let credentials = read(&file)?;
        if !valid_until(&credentials.certificate).is_none_or(is_due) {
            return Ok(());
        }
        let key = Key::from_der(credentials.key.secret_der())?;
        let issued = node.renew_certificate(CertificateFor::Renewal, &key).map_err(|why| anyhow!("{why}"))?;
        let text = to_text(&issued, &key);
        let renewed = Credentials::from_pem(text.as_bytes())?;
        self.security.renew(&renewed)?;
        replace_file(&self.data, "credentials.pem.new", FILE, text.as_bytes())?;
        tracing::info!("the node's certificate is renewed");
        Ok(())
    }
}
