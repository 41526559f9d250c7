//! By what a process proves who it is, and how it knows others: certificates of the cluster's CA.
//!
//! Reads no files and issues nothing. A certificate names a node or a client by id and never by address, so an address may
//! change (`docs/design/019-machines.md`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

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

/// The name in the certificate that a node makes for itself, to join by.
pub const GUEST: &str = "guest.atoll";

/// The number of the guest with this public key (SubjectPublicKeyInfo, DER).
pub fn guest_number(key: &[u8]) -> u64 {
    let front = sha256(key).first_chunk().copied();
    u64::from_be_bytes(front.expect("a digest has 32 bytes"))
}

/// Whom a certificate names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A node of the cluster.
    Node(DaemonId),
    /// A client; its number was drawn when it was added.
    Client(u64),
    /// Whoever has a line to join by, and no certificate of the CA yet; the number follows from its public key.
    Guest(u64),
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
            [GUEST] => Some(Self::Guest(guest_number(&end.subject_public_key_info()))),
            [name] => id(name, "client-").map(Self::Client),
            _ => None,
        }
    }
}

/// What the other side of a link has shown: whom its certificate names, and the SHA-256 of its public key
/// (SubjectPublicKeyInfo, DER).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Whom the certificate names.
    pub peer: Peer,
    /// The digest of the public key.
    pub key: [u8; 32],
}

/// SHA-256 of some bytes: by it CAs and public keys are known.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client:016x}"),
            Self::Guest(guest) => write!(f, "guest {guest:016x}"),
        }
    }
}

/// Credentials that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadCredentials(pub String);

/// Whose certificates are good.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Those of this CA.
    Ca(CertificateDer<'static>),
    /// Those of the CA whose certificate has this SHA-256. The other side sends it.
    Digest([u8; 32]),
}

/// A certificate with its private key, and whom its owner trusts.
pub struct Credentials {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// Whose certificates are good.
    pub trust: Trust,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("peer", &self.peer().ok()).finish_non_exhaustive()
    }
}

impl Clone for Credentials {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), trust: self.trust.clone(), key: self.key.clone_key() }
    }
}

impl Credentials {
    /// Reads PEM text: the certificate, then the CA's, and a private key.
    pub fn from_pem(text: &[u8]) -> Result<Self, BadCredentials> {
        let bad = |why: &str| BadCredentials(why.to_owned());
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = certificates.map_err(|_| bad("a certificate in it is damaged"))?;
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| bad("it has no private key"))?;
        let [certificate, ca] = <[_; 2]>::try_from(certificates).map_err(|found| {
            BadCredentials(format!("it has {} certificates, and two are wanted", found.len()))
        })?;
        let credentials = Self { certificate, trust: Trust::Ca(ca), key };
        credentials.peer()?;
        Ok(credentials)
    }

    /// Whom the certificate names.
    pub fn peer(&self) -> Result<Peer, BadCredentials> {
        Peer::from_certificate(&self.certificate)
            .ok_or_else(|| BadCredentials("its certificate names neither a node nor a client".to_owned()))
    }
}

struct Configs {
    client: Arc<ClientConfig>,
    /// Only nodes accept connections over TCP.
    server: Option<Arc<ServerConfig>>,
    /// Who is let in there.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    certificate: CertificateDer<'static>,
}

/// Public keys (SubjectPublicKeyInfo, DER) of those who are invited.
type Guests = Arc<ArcSwap<Vec<Vec<u8>>>>;

/// That of this process. A link for which somebody forgot to name it is not made in the clear.
static OF_PROCESS: OnceLock<Arc<Security>> = OnceLock::new();

/// The proof of this process, for all its links. Renewing it touches no link that is up.
pub struct Security {
    configs: ArcSwap<Configs>,
    guests: Guests,
    /// The nodes of the cluster and the SHA-256 of their public keys, once they are known.
    nodes: ArcSwapOption<BTreeMap<DaemonId, [u8; 32]>>,
    me: Peer,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Security {
    /// Uses credentials.
    pub fn new(credentials: &Credentials) -> Result<Self, BadCredentials> {
        let guests = Guests::default();
        let configs = ArcSwap::from_pointee(configs(credentials, &guests)?);
        Ok(Self { configs, guests, nodes: ArcSwapOption::empty(), me: credentials.peer()? })
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

    /// Uses another certificate from now on, of the same node or client.
    pub fn renew(&self, credentials: &Credentials) -> Result<(), BadCredentials> {
        if credentials.peer()? != self.me {
            return Err(BadCredentials(format!("it is of {}, not of {}", credentials.peer()?, self.me)));
        }
        self.configs.store(Arc::new(configs(credentials, &self.guests)?));
        Ok(())
    }

    /// Lets those in as guests who have one of these public keys (SubjectPublicKeyInfo, DER), and no others.
    pub fn invite(&self, guests: Vec<Vec<u8>>) {
        self.guests.store(Arc::new(guests));
    }

    /// Connects to these nodes from now on, each with the SHA-256 of its public key, and to no others, however good their certificates
    /// are: they were removed, or somebody has made them up. Links that are up are not touched.
    pub fn know_nodes(&self, nodes: BTreeMap<DaemonId, [u8; 32]>) {
        self.nodes.store(Some(Arc::new(nodes)));
    }

    /// Whether a node may be one of the cluster, as far as its nodes are known here.
    pub(crate) fn may_be(&self, shown: &Shown) -> bool {
        let Peer::Node(node) = shown.peer else { return false };
        self.nodes.load().as_ref().is_none_or(|nodes| nodes.get(&node) == Some(&shown.key))
    }

    /// The certificate that it shows now, DER.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.configs.load().certificate.clone()
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

    /// What a certificate shows, if its owner is let in at this time.
    pub(crate) fn verified(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Option<Shown> {
        let configs = self.configs.load();
        configs.verifier.as_ref()?.verify_client_cert(certificate, &[], now).ok()?;
        self.shown_by(Some(certificate)).ok()
    }

    /// What the certificate of the other side shows. Its signature was verified.
    pub(crate) fn shown_by(&self, certificate: Option<&CertificateDer<'_>>) -> Result<Shown, rustls::Error> {
        let unnamed = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let certificate = certificate.ok_or_else(unnamed)?;
        let peer = Peer::from_certificate(certificate).ok_or_else(unnamed)?;
        let end = webpki::EndEntityCert::try_from(certificate).map_err(|_| unnamed())?;
        Ok(Shown { peer, key: sha256(&end.subject_public_key_info()) })
    }
}

/// The ways of encryption. The first of each is the fastest that this library has.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519],
        ..default_provider()
    })
}

fn configs(credentials: &Credentials, guests: &Guests) -> Result<Configs, BadCredentials> {
    let bad = |why: rustls::Error| BadCredentials(why.to_string());
    let (peer, provider) = (credentials.peer()?, provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(bad)?;
    let (client, chain) = match &credentials.trust {
        Trust::Ca(ca) => {
            let chain = vec![credentials.certificate.clone(), ca.clone()];
            (client.with_root_certificates(roots(ca).map_err(bad)?), chain)
        }
        Trust::Digest(digest) => {
            let pinned = Arc::new(PinnedCa { digest: *digest, provider: Arc::clone(&provider) });
            let client = client.dangerous().with_custom_certificate_verifier(pinned);
            (client, vec![credentials.certificate.clone()])
        }
    };
    let mut client = client.with_client_auth_cert(chain.clone(), credentials.key.clone_key()).map_err(bad)?;
    // A link lives long: resumption would save nothing, and a ticket would be one more secret.
    client.resumption = Resumption::disabled();
    let (server, verifier) = match (peer, &credentials.trust) {
        (Peer::Node(_), Trust::Ca(ca)) => {
            let known =
                WebPkiClientVerifier::builder_with_provider(roots(ca).map_err(bad)?, Arc::clone(&provider));
            let known = known.build().map_err(|why| BadCredentials(why.to_string()))?;
            let verifier: Arc<dyn ClientCertVerifier> =
                Arc::new(KnownOrInvited { known, guests: Arc::clone(guests) });
            let mut server = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(bad)?
                .with_client_cert_verifier(Arc::clone(&verifier))
                .with_single_cert(chain, credentials.key.clone_key())
                .map_err(bad)?;
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
            (Some(Arc::new(server)), Some(verifier))
        }
        _ => (None, None),
    };
    Ok(Configs { client: Arc::new(client), server, verifier, certificate: credentials.certificate.clone() })
}

fn roots(ca: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
    Ok(Arc::new(roots))
}

/// Accepts nodes of the CA whose certificate has a digest.
#[derive(Debug)]
struct PinnedCa {
    digest: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_pinned = |ca: &&CertificateDer<'_>| sha256(ca) == self.digest;
        let Some(ca) = others.iter().find(is_pinned) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let roots = roots(&ca.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|why| rustls::Error::General(why.to_string()))?;
        verifier.verify_server_cert(end, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts whoever has a certificate of the CA, and guests: they have made theirs themselves, and show by its key that they
/// are invited.
#[derive(Debug)]
struct KnownOrInvited {
    known: Arc<dyn ClientCertVerifier>,
    guests: Guests,
}

impl ClientCertVerifier for KnownOrInvited {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Everybody has one certificate: a hint would only name the CA to strangers.
        &[]
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if !matches!(Peer::from_certificate(end), Some(Peer::Guest(_))) {
            return self.known.verify_client_cert(end, others, now);
        }
        let key = webpki::EndEntityCert::try_from(end).map(|end| end.subject_public_key_info().to_vec());
        match key {
            Ok(key) if self.guests.load().contains(&key) => Ok(ClientCertVerified::assertion()),
            _ => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}

/// Why TLS failed, in words; with the next step for whoever connects.
pub(crate) fn explain(why: &rustls::Error, accepts: bool) -> String {
    use rustls::AlertDescription as Alert;
    let clock = "Compare the clocks of the two machines, or see when the certificate ends.";
    let credentials = "Check the address, and which credentials this program uses.";
    let (what, next) = match why {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::NotValidYet
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYetContext { .. },
        ) => (format!("by the clock of this machine its certificate is not valid now: {why}"), clock),
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => ("its certificate is of another cluster".to_owned(), credentials),
        rustls::Error::InvalidCertificate(_) if !accepts => {
            (format!("its certificate is not that of a node: {why}"), "Check the address.")
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            ("by its clock the certificate of this program is not valid now".to_owned(), clock)
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA | Alert::DecryptError | Alert::BadCertificate | Alert::CertificateUnknown,
        ) => {
            let what = "it does not accept the certificate of this program: it is of another cluster, or was removed";
            (what.to_owned(), credentials)
        }
        rustls::Error::InvalidMessage(_) if accepts => ("it does not speak TLS".to_owned(), ""),
        rustls::Error::InvalidMessage(_) => (
            "it does not speak TLS: its cluster has no certificates".to_owned(),
            "Leave the credentials away for it, or check the address.",
        ),
        why => (why.to_string(), credentials),
    };
    if accepts { what } else { format!("{what}.\n{next}") }
}
