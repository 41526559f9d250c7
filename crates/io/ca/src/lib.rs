//! The cluster's own CA: it issues certificates for nodes and clients, and makes the line that a node joins by
//! (`docs/design/019-machines.md`).
//!
//! Only values: other crates keep them in files and send them. Never decides who gets a certificate.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod authority;
mod key;
mod line;

pub use authority::{Authority, Holder, LIFETIME_DAYS};
pub use key::{Key, guest, names_host, public_key_of, to_pem, valid_until};
pub use line::{BadLine, JoinLine, SiteLine};

/// What went wrong in a library of certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CaError(pub String);

impl From<rcgen::Error> for CaError {
    fn from(e: rcgen::Error) -> Self {
        Self(e.to_string())
    }
}
