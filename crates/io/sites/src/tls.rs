//! TLS 1.3 between sites: each shows a certificate that it has signed itself, and is known by the SHA-256 of its public key. Names, dates
//! and issuers say nothing.

use std::sync::Arc;

use atoll_ca::public_key_of;
use atoll_rpc::sha256;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName,
    ServerConfig, ServerConnection, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::key::SiteKey;

/// Says which application protocol follows (ALPN).
const PROTOCOL: &[u8] = b"atoll-site/1";

/// Both ends of connections of a node.
#[derive(Debug, Clone)]
pub(crate) struct SiteTls {
    key: Arc<SiteKey>,
    server: Arc<ServerConfig>,
}

/// Accepts a certificate of this key, or of any: then whoever asked looks at the key.
#[derive(Debug)]
struct OfKey {
    digest: Option<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl SiteTls {
    pub(crate) fn new(key: Arc<SiteKey>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let anybody = Arc::new(OfKey { digest: None, provider: Arc::clone(&provider) });
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(anybody)
            .with_single_cert(vec![key.certificate.clone()], key.private.clone_key())?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { key, server: Arc::new(server) })
    }

    /// The end that was connected to.
    pub(crate) fn accept(&self) -> Result<Connection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(Connection::from)
    }

    /// The end that connects to whoever has the key of this digest.
    pub(crate) fn connect(&self, digest: [u8; 32]) -> Result<Connection, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(OfKey { digest: Some(digest), provider: Arc::clone(&provider) });
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![self.key.certificate.clone()], self.key.private.clone_key())?;
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_sni = false;
        let name = ServerName::try_from("site.atoll").expect("it is a name");
        ClientConnection::new(Arc::new(client), name).map(Connection::from)
    }
}

/// By what the other end of a connection is known; none before the handshake is done.
pub(crate) fn digest_of(connection: &Connection) -> Option<[u8; 32]> {
    let certificate = connection.peer_certificates()?.first()?;
    Some(sha256(&public_key_of(certificate)?))
}

impl OfKey {
    fn is_good(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let key = public_key_of(certificate).ok_or(CertificateError::BadEncoding)?;
        match self.digest {
            Some(digest) if sha256(&key) != digest => Err(CertificateError::UnknownIssuer.into()),
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

const NO_TLS12: rustls::Error = rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered);

impl ServerCertVerifier for OfKey {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.is_good(end).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for OfKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.is_good(end).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
