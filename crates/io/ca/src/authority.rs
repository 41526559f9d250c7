//! The CA: its key, its certificate, and what it puts into those that it issues.

use std::time::{Duration, SystemTime};

use atoll_rpc::{ANY_NODE, DaemonId, client_name, node_name};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SubjectPublicKeyInfo,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::CaError;
use crate::key::{Key, derived};

/// How long a certificate of a node or client is valid, in days. It is renewed when a third of them is left.
pub const LIFETIME_DAYS: u32 = 90;

/// How far back a certificate's validity begins: clocks differ.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// How long the CA's own certificate is valid: longer than any cluster lives.
const CA_DAYS: u32 = 100 * 365;

/// For whom a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<'a> {
    /// A member of etcd, or a node that asks it: at this host. The members' programs check hosts, and know no other names.
    Etcd(&'a str),
    /// A node: others may connect to it, and it connects to others.
    Node(DaemonId),
    /// A client, by its number: it only connects.
    Client(u64),
}

/// The CA with its private key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new CA.
    pub fn new(now: SystemTime) -> Result<Self, CaError> {
        Self::of(KeyPair::generate()?, "Atoll CA", now)
    }

    /// The CA of the cluster's own etcd. etcd lets everybody in who has a certificate of its CA, so it is not the cluster's: clients
    /// have one of that. Its private key follows from that of the cluster's CA, so whoever keeps the one keeps the other.
    pub fn of_etcd(&self, now: SystemTime) -> Result<Self, CaError> {
        Self::of(derived(b"atoll etcd 1", &self.key_der())?, "Atoll etcd CA", now)
    }

    fn of(key: KeyPair, name: &str, now: SystemTime) -> Result<Self, CaError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        valid(&mut params, now, CA_DAYS);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The CA with this certificate and private key (PKCS #8, DER). An error if they do not belong together.
    pub fn from_parts(certificate: &[u8], key: &[u8]) -> Result<Self, CaError> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let key = Key::from_der(key)?;
        if !key.is_of(&certificate) {
            return Err(CaError("the CA's private key is not that of its certificate".to_owned()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key.0)?;
        Ok(Self { certificate, issuer })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its private key (PKCS #8, DER).
    pub fn key_der(&self) -> Vec<u8> {
        self.issuer.key().serialize_der()
    }

    /// A certificate for whoever has the private key of `key` (SubjectPublicKeyInfo, DER). Whatever else is in it follows from
    /// the holder alone.
    pub fn issue(
        &self,
        holder: Holder<'_>,
        key: &[u8],
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, CaError> {
        let key = SubjectPublicKeyInfo::from_der(key)?;
        let (names, usages) = match holder {
            Holder::Etcd(host) => (
                vec![host.to_owned()],
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            ),
            Holder::Node(node) => (
                vec![ANY_NODE.to_owned(), node_name(node)],
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            ),
            Holder::Client(client) => (vec![client_name(client)], vec![ExtendedKeyUsagePurpose::ClientAuth]),
        };
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params.extended_key_usages = usages;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        valid(&mut params, now, LIFETIME_DAYS);
        Ok(params.signed_by(&key, &self.issuer)?.der().clone())
    }
}

fn valid(params: &mut CertificateParams, now: SystemTime, days: u32) {
    params.not_before = OffsetDateTime::from(now - EARLIER);
    params.not_after = OffsetDateTime::from(now + Duration::from_secs(u64::from(days) * 24 * 60 * 60));
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}
