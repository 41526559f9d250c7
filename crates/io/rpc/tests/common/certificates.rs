//! Certificates for tests: a CA, and whom it names.

use std::sync::Arc;

use atoll_rpc::{ANY_NODE, BadCredentials, Credentials, DaemonId, Options, Security, client_name, node_name};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A CA of its own.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with these names, changed by the caller.
    pub(crate) fn issue(
        &self,
        names: Vec<String>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credentials {
        self.try_issue(names, change).unwrap()
    }

    pub(crate) fn try_issue(
        &self,
        names: Vec<String>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Credentials, BadCredentials> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let pem = [certificate.pem(), self.0.pem(), key.serialize_pem()].concat();
        Credentials::from_pem(pem.as_bytes())
    }

    pub(crate) fn node(&self, node: u64) -> Credentials {
        self.issue(vec![ANY_NODE.to_owned(), node_name(DaemonId(node))], |_| {})
    }

    pub(crate) fn client(&self, client: u64) -> Credentials {
        self.issue(vec![client_name(client)], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }
}

/// Options of a process with these credentials.
pub(crate) fn secure(credentials: &Credentials) -> Options {
    Options { security: Some(Arc::new(Security::new(credentials).unwrap())), ..Options::default() }
}
