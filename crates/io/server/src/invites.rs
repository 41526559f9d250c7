//! The lines by which sites may join a volume, at the site that has made them. Owns their file: of each line the digest of its secret,
//! until when it holds, and who has used it. Whoever has used one may use it again: its process may have died before it had the answer.

use std::io;
use std::path::Path;

use atoll_core::{Decode, Encode, Malformed, wire_struct};
use atoll_rpc::sha256;
use bytes::Bytes;

/// Its file in the folder of a volume.
const FILE: &str = "invites";
const FILE_NEW: &str = "invites.new";
/// Lines that may be open at once.
const LINES_MAX: usize = 256;

wire_struct! {
    /// A line.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InviteNote {
        /// SHA-256 of its secret.
        pub digest: Bytes,
        /// Until when it holds, in seconds since 1970.
        pub until: u64,
        /// The key and the number of the site that has used it; empty and 0 if none has.
        pub key: Bytes,
        /// As above.
        pub site: u64,
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Invites(Vec<InviteNote>);

impl Invites {
    /// Those of a volume's folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => {
                let bad = |why: Malformed| io::Error::other(format!("{FILE}: {why}"));
                Ok(Self(Vec::from_slice(&bytes).map_err(bad)?))
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(why) => Err(why),
        }
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        crate::member::replace(folder, FILE_NEW, FILE, &self.0.to_vec())
    }

    /// A new line. Those that hold no longer go.
    pub(crate) fn add(&mut self, folder: &Path, secret: &[u8], until: u64, now: u64) -> io::Result<()> {
        self.0.retain(|note| note.until > now);
        if self.0.len() >= LINES_MAX {
            return Err(io::Error::other(format!("{LINES_MAX} lines are open already")));
        }
        let digest = Bytes::copy_from_slice(&sha256(secret));
        self.0.push(InviteNote { digest, until, key: Bytes::new(), site: 0 });
        self.write(folder).inspect_err(|_| _ = self.0.pop())
    }

    /// Whether whoever has this key may join by a secret: the number of the site that it has made with that, or none yet. The error
    /// says why not; it is empty if the line is of another site.
    pub(crate) fn find(&self, secret: &[u8], key: [u8; 32], now: u64) -> Result<Option<u64>, String> {
        let digest = sha256(secret);
        let Some(note) = self.0.iter().find(|note| note.digest == digest[..]) else {
            return Err(String::new());
        };
        if note.until <= now {
            return Err("The line holds no longer.\nMake a new one: atoll site invite".to_owned());
        }
        match note.key.is_empty() {
            true => Ok(None),
            false if note.key == key[..] => Ok(Some(note.site)),
            false => Err("The line was used by another site.\nMake a new one: atoll site invite".to_owned()),
        }
    }

    /// A site has used a line.
    pub(crate) fn used(&mut self, folder: &Path, secret: &[u8], key: [u8; 32], site: u64) -> io::Result<()> {
        let digest = sha256(secret);
        if let Some(note) = self.0.iter_mut().find(|note| note.digest == digest[..]) {
            (note.key, note.site) = (Bytes::copy_from_slice(&key), site);
        }
        self.write(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_one_site_and_for_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut invites = Invites::read(dir.path()).unwrap();
        invites.add(dir.path(), b"one", 100, 10).unwrap();
        assert_eq!(invites.find(b"other", [1; 32], 10), Err(String::new()));
        assert_eq!(invites.find(b"one", [1; 32], 10), Ok(None));
        assert!(invites.find(b"one", [1; 32], 100).is_err());
        invites.used(dir.path(), b"one", [1; 32], 7).unwrap();
        let invites = Invites::read(dir.path()).unwrap();
        assert_eq!(invites.find(b"one", [1; 32], 10), Ok(Some(7)), "who has used it may use it again");
        assert!(invites.find(b"one", [2; 32], 10).is_err());
        std::fs::write(dir.path().join(FILE), b"x").unwrap();
        assert!(Invites::read(dir.path()).is_err());
    }

    #[test]
    fn lines_have_a_bound_and_those_that_hold_no_longer_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut invites = Invites::default();
        for n in 0..LINES_MAX as u64 {
            invites.add(dir.path(), &n.to_le_bytes(), 100, 10).unwrap();
        }
        assert!(invites.add(dir.path(), b"more", 100, 10).is_err());
        invites.add(dir.path(), b"more", 200, 100).unwrap();
    }
}
