//! File handles: `version 1 | kind 1 | export 4 | opaque <= 50 | MAC 8`. The opaque part is the volume's. The MAC
//! is SipHash-2-4 under the server's key, so nobody can make a handle that no server has given out.

use atoll_core::siphash24;
use atoll_vfs::{HANDLE_BYTES_MAX, Handle};
use bytes::Bytes;

/// Most bytes of a handle of NFS version 3.
pub(crate) const HANDLE_MAX: usize = 64;
/// Bytes of a signing key.
pub const KEY_BYTES: usize = 16;
const VERSION: u8 = 1;
const HEAD: usize = 6;
const MAC: usize = 8;
const _: () = assert!(HEAD + HANDLE_BYTES_MAX + MAC == HANDLE_MAX);

/// The secret with which handles are signed. Servers that share it accept each other's handles.
#[derive(Clone)]
pub struct SigningKey(u64, u64);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// The key of these bytes.
    pub const fn new(raw: [u8; KEY_BYTES]) -> Self {
        let raw = u128::from_le_bytes(raw);
        Self(raw as u64, (raw >> 64) as u64)
    }

    /// A number that only holders of the key can compute.
    pub(crate) fn sign(&self, bytes: &[u8]) -> u64 {
        siphash24(self.0, self.1, bytes)
    }

    /// The handle that a client gets.
    pub(crate) fn seal(&self, kind: u8, export: u32, opaque: &Handle) -> Vec<u8> {
        let mut out = Vec::with_capacity(HANDLE_MAX);
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&export.to_le_bytes());
        out.extend_from_slice(opaque.as_bytes());
        let mac = self.sign(&out);
        out.extend_from_slice(&mac.to_le_bytes());
        out
    }

    /// The export and the volume's part of a handle; none if it is forged or of another volume's kind.
    pub(crate) fn open(&self, kind: u8, bytes: &Bytes) -> Option<(u32, Handle)> {
        let end = bytes.len().checked_sub(MAC).filter(|end| *end >= HEAD)?;
        let mac = u64::from_le_bytes(bytes[end..].try_into().ok()?);
        if self.sign(&bytes[..end]) != mac || bytes[..2] != [VERSION, kind] {
            return None;
        }
        let export = u32::from_le_bytes(bytes[2..HEAD].try_into().ok()?);
        Some((export, Handle::new(bytes.slice(HEAD..end))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_with_any_bit_changed_is_refused() {
        let key = SigningKey::new([7; 16]);
        let opaque = Handle::new(Bytes::from_static(b"opaque")).unwrap();
        let sealed = key.seal(1, 9, &opaque);
        assert_eq!(key.open(1, &sealed.clone().into()), Some((9, opaque)));
        assert_eq!(key.open(2, &sealed.clone().into()), None);
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(1, &forged.into()), None);
        }
        for len in 0..sealed.len() {
            assert_eq!(key.open(1, &Bytes::copy_from_slice(&sealed[..len])), None);
        }
        assert_eq!(SigningKey::new([8; 16]).open(1, &sealed.into()), None);
    }
}
