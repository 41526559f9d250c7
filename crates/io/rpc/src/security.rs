//! By what a process proves who it is, and how it knows others: certificates of the cluster's CA.
//!
//! Reads no files and issues nothing. A certificate names a node or a client by id and never by address, so an address may
//! change (`docs/design/019-machines.md`).

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::hello::DaemonId;

/// The name that every node's certificate has and no client's: whoever connects asks for it.
pub const ANY_NODE: &str = "node.atoll";

/// The name in the certificate of this node.
pub fn node_name(node: DaemonId) -> String {
    format!("node-{node}.atoll")
}

/// The name in the certificate of the client with this number.
pub fn client_name(client: u64) -> String {
    format!("client-{client:016x}.atoll")
}

/// Whom a certificate names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A node of the cluster.
    Node(DaemonId),
    /// A client; its number was drawn when it was added.
    Client(u64),
}

impl Peer {
    /// Reads the names of a certificate of the cluster's CA.
    fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let end = webpki::EndEntityCert::try_from(certificate).ok()?;
        let id = |name: &str, front: &str| {
            let digits = name.strip_prefix(front)?.strip_suffix(".atoll")?;
            (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
        };
        let names: Vec<&str> = end.valid_dns_names().collect();
        match names[..] {
            [ANY_NODE, name] | [name, ANY_NODE] => id(name, "node-").map(|node| Self::Node(DaemonId(node))),
            [name] => id(name, "client-").map(Self::Client),
            _ => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client:016x}"),
        }
    }
}

/// Text that is no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadIdentity(pub String);

/// A certificate with its private key, and the CA that it is from.
pub struct Identity {
    /// The certificate of the node or client.
    pub certificate: CertificateDer<'static>,
    /// The CA's.
    pub ca: CertificateDer<'static>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer().ok()).finish_non_exhaustive()
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), ca: self.ca.clone(), key: self.key.clone_key() }
    }
}

impl Identity {
    /// Reads PEM text: the certificate, then the CA's, and a private key.
    pub fn from_pem(text: &[u8]) -> Result<Self, BadIdentity> {
        let bad = |why: &str| BadIdentity(why.to_owned());
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = certificates.map_err(|_| bad("a certificate in it is damaged"))?;
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| bad("it has no private key"))?;
        let [certificate, ca] = <[_; 2]>::try_from(certificates).map_err(|found| {
            BadIdentity(format!("it has {} certificates, and two are wanted", found.len()))
        })?;
        let identity = Self { certificate, ca, key };
        identity.peer()?;
        Ok(identity)
    }

    /// Whom the certificate names.
    pub fn peer(&self) -> Result<Peer, BadIdentity> {
        Peer::from_certificate(&self.certificate)
            .ok_or_else(|| BadIdentity("its certificate names neither a node nor a client".to_owned()))
    }
}

struct Configs {
    client: Arc<ClientConfig>,
    /// Only nodes accept connections over TCP.
    server: Option<Arc<ServerConfig>>,
}

/// That of this process. A link for which somebody forgot to name it is not made in the clear.
static OF_PROCESS: OnceLock<Arc<Security>> = OnceLock::new();

/// The proof of this process, for all its links. Renewing it touches no link that is up.
pub struct Security {
    configs: ArcSwap<Configs>,
    me: Peer,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Security {
    /// Uses an identity.
    pub fn new(identity: &Identity) -> Result<Self, BadIdentity> {
        Ok(Self { configs: ArcSwap::from_pointee(configs(identity)?), me: identity.peer()? })
    }

    /// Uses these certificates for all links of this process that are made from now on. Only once: a process is one node or one
    /// client.
    pub fn install(self) -> Arc<Self> {
        let security = Arc::new(self);
        let was = OF_PROCESS.set(Arc::clone(&security));
        assert!(was.is_ok(), "this process has certificates already");
        security
    }

    /// Those that were installed.
    pub fn of_process() -> Option<Arc<Self>> {
        OF_PROCESS.get().cloned()
    }

    /// Uses another identity from now on, of the same node or client.
    pub fn renew(&self, identity: &Identity) -> Result<(), BadIdentity> {
        if identity.peer()? != self.me {
            return Err(BadIdentity(format!("it is of {}, not of {}", identity.peer()?, self.me)));
        }
        self.configs.store(Arc::new(configs(identity)?));
        Ok(())
    }

    /// Whom this process is.
    pub fn me(&self) -> Peer {
        self.me
    }

    /// The state of a connection that has not said anything yet.
    pub(crate) fn connection(&self, accepts: bool) -> Result<Connection, rustls::Error> {
        let configs = self.configs.load();
        match (accepts, &configs.server) {
            (false, _) => {
                let name = ServerName::try_from(ANY_NODE).expect("a name of DNS");
                ClientConnection::new(Arc::clone(&configs.client), name).map(Connection::from)
            }
            (true, Some(server)) => ServerConnection::new(Arc::clone(server)).map(Connection::from),
            (true, None) => Err(rustls::Error::General("a client accepts no connections".to_owned())),
        }
    }

    /// Whom the certificate of the other side names. Its signature was verified.
    pub(crate) fn peer_of(&self, certificate: Option<&CertificateDer<'_>>) -> Result<Peer, rustls::Error> {
        let unnamed = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        certificate.and_then(Peer::from_certificate).ok_or_else(unnamed)
    }
}

/// The ways of encryption. The first of each is the fastest that this library has.
fn provider() -> Arc<CryptoProvider> {
    use aws_lc_rs::{cipher_suite, kx_group};
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..aws_lc_rs::default_provider()
    })
}

fn configs(identity: &Identity) -> Result<Configs, BadIdentity> {
    let bad = |why: rustls::Error| BadIdentity(why.to_string());
    let mut roots = RootCertStore::empty();
    roots.add(identity.ca.clone()).map_err(bad)?;
    let (roots, provider) = (Arc::new(roots), provider());
    let chain = vec![identity.certificate.clone()];
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(bad)?
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain.clone(), identity.key.clone_key())
        .map_err(bad)?;
    // A link lives long: resumption would save nothing, and a ticket would be one more secret.
    client.resumption = Resumption::disabled();
    let server = match identity.peer()? {
        Peer::Client(_) => None,
        Peer::Node(_) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|why| BadIdentity(why.to_string()))?;
            let mut server = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(bad)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain, identity.key.clone_key())
                .map_err(bad)?;
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
            Some(Arc::new(server))
        }
    };
    Ok(Configs { client: Arc::new(client), server })
}

/// Why TLS failed, in words, with the next step.
pub(crate) fn explain(why: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    let clock = "Compare the clocks of the two machines, or see when the certificate ends.";
    match why {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::NotValidYet
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYetContext { .. },
        ) => format!("by the clock of this machine its certificate is not valid now: {why}.\n{clock}"),
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            "its certificate is of another cluster.\nCheck the address, and which identity this program uses."
                .to_owned()
        }
        rustls::Error::InvalidCertificate(_) => {
            format!("its certificate is not that of a node: {why}.\nCheck the address.")
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            format!("by its clock the certificate of this program is not valid now.\n{clock}")
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA | Alert::DecryptError | Alert::BadCertificate | Alert::CertificateUnknown,
        ) => {
            "it does not accept the certificate of this program: it is of another cluster, or was removed.\n\
              Check the address, and which identity this program uses."
                .to_owned()
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired) => {
            "it wants a certificate.\nAn identity is made by \"atoll client add\" on a node.".to_owned()
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: its cluster has no certificates.\n\
              Leave the identity away for it, or check the address."
            .to_owned(),
        why => format!("{why}."),
    }
}
