//! A data directory that is being made for a cluster: what is written before the node is one, and in which order.
//!
//! `node.toml` comes last. Before that the directory holds `join.toml`, with the node's id and private key. So whoever has lost the
//! answer asks again with the same key, as the same node.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use atoll_rpc::{ClusterId, DaemonId};

use crate::EmbeddedStore;
use crate::data_dir::{
    CA_KEY_FILE, CREDENTIALS_FILE, Content, DataDir, DataDirError, JOIN_FILE, JOIN_FILE_NEW, KEYS_BYTES_MAX,
    LOCK_FILE, draw, lock, look, make, replace_file, sync_dir, told, write_file, write_identity,
};
use crate::node_file::{Identity, hex, seconds_now};

/// What a first member of the cluster's own etcd has in the directory.
const ETCD_FOLDER: &str = "etcd";
const ETCD_FILES: [&str; 4] = ["etcd.toml", "etcd-ca.pem", "etcd-cert.pem", "etcd.log"];

/// See the module. The directory is locked.
#[derive(Debug)]
pub struct NewNode {
    path: PathBuf,
    lock: File,
    daemon: DaemonId,
    key: Vec<u8>,
    /// The directory was not there before.
    is_made: bool,
}

impl NewNode {
    /// Begins to make the directory at `path`, or goes on with one that was begun. The private key is that of `make_key` if none
    /// was written yet. A directory that is a node's already, or holds something else, is refused.
    pub fn begin(
        path: &Path,
        process: u32,
        make_key: impl FnOnce() -> Vec<u8>,
    ) -> Result<Self, DataDirError> {
        let is_made = look(path)?.is_none();
        if is_made {
            make(path)?;
        }
        let lock = lock(path, process)?;
        let (daemon, key) = match look(path)? {
            None => return Err(DataDirError::Missing { path: path.to_owned() }),
            Some(Content::Ours) => return Err(DataDirError::Taken { path: path.to_owned() }),
            Some(Content::Joining) => {
                // What was made with it may be of another cluster.
                remove_made(path)?;
                read(path)?
            }
            Some(Content::Nothing) => {
                let daemon = draw().map_err(|e| told(Path::new("/dev/urandom"), e))?;
                let key = make_key();
                let text = format!(
                    "# A node that is being made here. Written by atoll.\nnode = \"{}\"\nkey = \"{}\"\n",
                    DaemonId(daemon),
                    hex(&key)
                );
                replace_file(path, JOIN_FILE_NEW, JOIN_FILE, text.as_bytes())
                    .map_err(|e| told(&path.join(JOIN_FILE), e))?;
                sync_dir(path)?;
                (daemon, key)
            }
        };
        Ok(Self { path: path.to_owned(), lock, daemon: DaemonId(daemon), key, is_made })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node that it becomes.
    pub fn daemon(&self) -> DaemonId {
        self.daemon
    }

    /// Its private key, as it was given.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The directory is a node's from here on. `credentials` and `ca_key` are text (PEM); `ca` is the SHA-256 of the CA's
    /// certificate.
    pub fn finish(
        self,
        cluster: ClusterId,
        ca: [u8; 32],
        credentials: &[u8],
        ca_key: Option<&[u8]>,
    ) -> Result<DataDir, DataDirError> {
        if let Some(key) = ca_key {
            write_file(&self.path, CA_KEY_FILE, key)?;
        }
        write_file(&self.path, CREDENTIALS_FILE, credentials)?;
        let identity =
            Identity { node: self.daemon, cluster, created: seconds_now(), incarnation: 0, ca: Some(ca) };
        write_identity(&self.path, identity)?;
        let begun = self.path.join(JOIN_FILE);
        std::fs::remove_file(&begun).map_err(|e| told(&begun, e))?;
        Ok(DataDir::of(self.path, identity, self.lock))
    }

    /// The directory is as it was before.
    pub fn discard(self) -> Result<(), DataDirError> {
        remove_made(&self.path)?;
        for name in [JOIN_FILE_NEW, JOIN_FILE, LOCK_FILE] {
            remove(&self.path.join(name))?;
        }
        match self.is_made {
            true => std::fs::remove_dir(&self.path).map_err(|e| told(&self.path, e)),
            false => Ok(()),
        }
    }
}

/// Removes all that is made of a node before it is one.
fn remove_made(path: &Path) -> Result<(), DataDirError> {
    let etcd = path.join(ETCD_FOLDER);
    match std::fs::remove_dir_all(&etcd) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(told(&etcd, e)),
        _ => {}
    }
    for name in ETCD_FILES.into_iter().chain([CREDENTIALS_FILE, CA_KEY_FILE, EmbeddedStore::FILE]) {
        remove(&path.join(name))?;
        // One that was being written.
        remove(&path.join(format!("{name}.new")))?;
    }
    Ok(())
}

fn remove(file: &Path) -> Result<(), DataDirError> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(told(file, e)),
        _ => Ok(()),
    }
}

/// What `join.toml` says.
fn read(path: &Path) -> Result<(u64, Vec<u8>), DataDirError> {
    let file = path.join(JOIN_FILE);
    let mut text = String::new();
    let opened = File::open(&file).map_err(|e| told(&file, e))?;
    opened.take(KEYS_BYTES_MAX).read_to_string(&mut text).map_err(|e| told(&file, e))?;
    let damaged = || DataDirError::Damaged { path: file.clone(), why: "it has no node and key".to_owned() };
    let table: toml::Table = text.parse().map_err(|_| damaged())?;
    let of = |key: &str| table.get(key).and_then(toml::Value::as_str);
    let node = of("node").and_then(|text| u64::from_str_radix(text, 16).ok()).filter(|node| *node != 0);
    let key = of("key").and_then(unhex);
    node.zip(key).ok_or_else(damaged)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: [u8; 32] = [3; 32];

    fn begin(path: &Path, key: u8) -> Result<NewNode, DataDirError> {
        NewNode::begin(path, std::process::id(), || vec![key; 40])
    }

    #[test]
    fn a_join_that_was_cut_short_goes_on_as_the_same_node_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let first = begin(&path, 1).unwrap();
        let (daemon, key) = (first.daemon(), first.key().to_vec());
        drop(first);
        let why = DataDir::open_or_create(&path).unwrap_err().to_string();
        assert!(why.contains("atoll join"), "{why}");
        let again = begin(&path, 2).unwrap();
        assert_eq!((again.daemon(), again.key()), (daemon, &key[..]));
        let dir = again.finish(ClusterId(7), CA, b"credentials", Some(b"key")).unwrap();
        assert_eq!(dir.identity().node, daemon);
        assert_eq!(dir.credentials().unwrap().as_deref(), Some(&b"credentials"[..]));
        assert_eq!(dir.ca_key().unwrap().as_deref(), Some(&b"key"[..]));
        assert!(!path.join(JOIN_FILE).exists());
        drop(dir);
        assert!(matches!(begin(&path, 3), Err(DataDirError::Taken { .. })));
        let dir = DataDir::open(&path).unwrap();
        assert_eq!((dir.identity().cluster, dir.identity().ca), (ClusterId(7), Some(CA)));
        drop(dir);
        // Without them the node would be one that encrypts nothing.
        std::fs::remove_file(path.join(CREDENTIALS_FILE)).unwrap();
        let why = DataDir::open(&path).unwrap().credentials().unwrap_err().to_string();
        assert!(why.contains(CREDENTIALS_FILE), "{why}");
    }

    #[test]
    fn whatever_was_made_before_a_join_was_cut_short_is_not_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        drop(begin(&path, 1).unwrap());
        for left in ["control.redb", "ca.key", "credentials.pem.new", "join.toml.new"] {
            std::fs::write(path.join(left), b"of another cluster").unwrap();
        }
        std::fs::create_dir(path.join(ETCD_FOLDER)).unwrap();
        let again = begin(&path, 2).unwrap();
        for gone in ["control.redb", "ca.key", "credentials.pem.new", ETCD_FOLDER] {
            assert!(!path.join(gone).exists(), "{gone}");
        }
        again.discard().unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        // It was cut short while the first file was written.
        std::fs::write(path.join("join.toml.new"), b"node = ").unwrap();
        begin(&path, 1).unwrap().discard().unwrap();
    }

    #[test]
    fn a_join_that_is_refused_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        begin(&path, 1).unwrap().discard().unwrap();
        assert!(!path.exists());
        std::fs::create_dir(&path).unwrap();
        begin(&path, 1).unwrap().discard().unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::fs::write(path.join("photo.jpg"), b"mine").unwrap();
        assert!(matches!(begin(&path, 1), Err(DataDirError::Foreign { .. })));
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "not even a lock");
    }
}
