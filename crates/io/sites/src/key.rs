//! The key by which other sites know the sites of a node. Owns its file.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use atoll_ca::{CaError, Key, to_pem};
use atoll_control::replace_file;
use atoll_rpc::sha256;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The file of a key while it is written.
const FILE_NEW: &str = "site.pem.new";
/// Longest file of a key, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its file is missing, and others know this site by it.
    #[error("the key of this node's sites is missing: there is no {}", .0.display())]
    Missing(PathBuf),
    /// Its file has something else.
    #[error("{} has no private key: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system fails.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its error.
        why: io::Error,
    },
    /// No key can be made.
    #[error("no key can be made: {0}")]
    Ca(#[from] CaError),
}

/// See the module.
pub struct SiteKey {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) private: PrivateKeyDer<'static>,
    digest: [u8; 32],
}

impl std::fmt::Debug for SiteKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SiteKey")
    }
}

impl SiteKey {
    /// Its file in a data directory.
    pub const FILE: &'static str = "site.pem";

    /// Reads the key of a data directory.
    pub fn read(data: &Path) -> Result<Self, KeyError> {
        let path = data.join(Self::FILE);
        let io = |why: io::Error| match why.kind() {
            ErrorKind::NotFound => KeyError::Missing(path.clone()),
            _ => KeyError::Io { path: path.clone(), why },
        };
        let bad = |why: String| KeyError::Bad { path: path.clone(), why };
        if fs::metadata(&path).map_err(io)?.len() > FILE_BYTES_MAX {
            return Err(bad("it is too long".to_owned()));
        }
        let text = fs::read(&path).map_err(io)?;
        let der = PrivateKeyDer::from_pem_slice(&text).map_err(|why| bad(why.to_string()))?;
        let key = Key::from_der(der.secret_der()).map_err(|why| bad(why.to_string()))?;
        Self::of(&key)
    }

    /// The same; if there is none it is made, by one thread at a time.
    pub fn read_or_make(data: &Path) -> Result<Self, KeyError> {
        match Self::read(data) {
            Err(KeyError::Missing(path)) => {
                let key = Key::generate()?;
                let pem = to_pem("PRIVATE KEY", &key.der());
                replace_file(data, FILE_NEW, Self::FILE, pem.as_bytes())
                    .and_then(|()| File::open(data)?.sync_all())
                    .map_err(|why| KeyError::Io { path, why })?;
                Self::of(&key)
            }
            read => read,
        }
    }

    pub(crate) fn of(key: &Key) -> Result<Self, KeyError> {
        let (certificate, private) = key.self_signed("site.atoll")?;
        Ok(Self { certificate, private, digest: sha256(&key.public()) })
    }

    /// SHA-256 of the public key (SubjectPublicKeyInfo, DER).
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(SiteKey::read(dir.path()), Err(KeyError::Missing(_))));
        let made = SiteKey::read_or_make(dir.path()).unwrap().digest();
        assert_eq!(SiteKey::read_or_make(dir.path()).unwrap().digest(), made);
        assert_eq!(SiteKey::read(dir.path()).unwrap().digest(), made);
        let mode = fs::metadata(dir.path().join(SiteKey::FILE)).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_without_a_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "nothing", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            fs::write(dir.path().join(SiteKey::FILE), text).unwrap();
            assert!(matches!(SiteKey::read_or_make(dir.path()), Err(KeyError::Bad { .. })), "{text}");
        }
    }
}
