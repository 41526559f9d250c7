//! Private keys, the text in which credentials are kept, and the key that follows from a join line's secret.

use atoll_rpc::{Credentials, GUEST, Trust};
use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::BASE64;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::CaError;

/// A private key: ECDSA over P-256, or that of a guest.
pub struct Key(pub(crate) KeyPair);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A new key.
    pub fn generate() -> Result<Self, CaError> {
        Ok(Self(KeyPair::generate()?))
    }

    /// From its form PKCS #8, DER.
    pub fn from_der(der: &[u8]) -> Result<Self, CaError> {
        Ok(Self(KeyPair::try_from(der)?))
    }

    /// PKCS #8, DER.
    pub fn der(&self) -> Vec<u8> {
        self.0.serialize_der()
    }

    /// The public key (SubjectPublicKeyInfo, DER).
    pub fn public(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// A certificate for this key that it has signed itself, with this name, and the private key.
    pub fn self_signed(
        &self,
        name: &str,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CaError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        Ok((params.self_signed(&self.0)?.der().clone(), private(&self.0)))
    }

    /// Whether a certificate is for this key.
    pub fn is_of(&self, certificate: &CertificateDer<'_>) -> bool {
        public_key_of(certificate).is_some_and(|key| key == self.public())
    }

    /// With a certificate for it: credentials.
    pub fn with(self, certificate: &[u8], ca: &[u8]) -> Credentials {
        let own = |der: &[u8]| CertificateDer::from(der.to_vec());
        Credentials { certificate: own(certificate), trust: Trust::Ca(own(ca)), key: private(&self.0) }
    }
}

/// The public key (SubjectPublicKeyInfo, DER) of a certificate.
pub fn public_key_of(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let end = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(end.subject_public_key_info().to_vec())
}

/// When the validity of a certificate ends, in seconds since 1970.
pub fn valid_until(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok()
}

/// Whether a certificate names a host: a name, or an address.
pub fn names_host(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let (Ok(end), Ok(name)) = (webpki::EndEntityCert::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    end.verify_is_valid_for_subject_name(&name).is_ok()
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

/// How an Ed25519 private key begins in its form PKCS #8, DER (RFC 8410, 7). Its 32 bytes follow.
const ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The key that follows from a secret, for one purpose.
pub(crate) fn derived(purpose: &[u8], secret: &[u8]) -> Result<KeyPair, CaError> {
    let mut seed = Context::new(&SHA256);
    seed.update(purpose);
    seed.update(secret);
    let der = PrivatePkcs8KeyDer::from([&ED25519[..], seed.finish().as_ref()].concat());
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519)?)
}

/// What a guest shows, and whom it trusts. The key follows from the secret of its line, so whoever made the line knows the public
/// key without keeping the secret.
pub fn guest(secret: &[u8; 16], ca: [u8; 32]) -> Result<(Credentials, Vec<u8>), CaError> {
    let key = derived(b"atoll join 1", secret)?;
    let mut params = CertificateParams::new(vec![GUEST.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let certificate = params.self_signed(&key)?.der().clone();
    let public = key.subject_public_key_info();
    Ok((Credentials { certificate, trust: Trust::Digest(ca), key: private(&key) }, public))
}

/// The text of PEM (RFC 7468).
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let body = BASE64.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("base64 is ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
