//! Serves a volume to NFS clients: the key that signs handles, and the server over whatever gives `Files`.
//!
//! The volume's session must be the server's own, because a session has one watcher.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use atoll_nfs::{KEY_BYTES, Served, SigningKey};
pub use atoll_nfs::{PORTMAP_PORT, Rule, Server};
use atoll_proto::{VolumeConfig, VolumeKind};
pub use atoll_vfs::Files;

use crate::kind::Attached;
use crate::node::random;

/// The key's file, in a data directory or a state folder.
pub const KEY_FILE: &str = "nfs.key";

/// Where a server without a data directory keeps its key.
pub fn state_key() -> Result<PathBuf> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/lib/atoll")
    } else if let Some(state) = std::env::var_os("XDG_STATE_HOME") {
        PathBuf::from(state).join("atoll")
    } else {
        let home =
            std::env::var_os("HOME").context("No place for the key is known.\nName one with --key FILE.")?;
        PathBuf::from(home).join(".local/state/atoll")
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("{} cannot be made", folder.display()))?;
    Ok(folder.join(KEY_FILE))
}

/// The key in a file; a new one if there is none.
pub fn signing_key(path: &Path) -> Result<SigningKey> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let text = text.trim();
            let is_key = text.len() == 2 * KEY_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
            let Some(number) = is_key.then(|| u128::from_str_radix(text, 16).ok()).flatten() else {
                bail!(
                    "{} is no key: it must have {} hexadecimal digits.\n\
                    Restore it, or remove it: then clients must mount again.",
                    path.display(),
                    2 * KEY_BYTES
                );
            };
            Ok(SigningKey::new(number.to_be_bytes()))
        }
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => make_key(path),
        Err(why) => Err(why).with_context(|| format!("The key {} cannot be read", path.display())),
    }
}

/// Makes a key. It is whole under its name, or not there.
fn make_key(path: &Path) -> Result<SigningKey> {
    let number = u128::from(random()?) << 64 | u128::from(random()?);
    let new = path.with_extension(format!("key.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        writeln!(file, "{number:032x}")?;
        file.sync_all()?;
        // Not a rename: another server may have made one meanwhile, and clients may have handles by it.
        std::fs::hard_link(&new, path)
    };
    let made = write();
    // It is there, unless it could not be made at all.
    let _ = std::fs::remove_file(&new);
    match made {
        Ok(()) => Ok(SigningKey::new(number.to_be_bytes())),
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists && path.exists() => signing_key(path),
        Err(why) => Err(why).with_context(|| format!("The key {} cannot be made", path.display())),
    }
}

/// Takes the port.
pub fn listener(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|why| {
        anyhow!("NFS cannot be served on {address}: {why}.\nName another address with a free port, such as 127.0.0.1:12049.")
    })
}

/// The rules that hold if none are given: this machine, with root as nobody.
pub fn rules(given: &[String]) -> Result<Vec<Rule>> {
    let own = ["127.0.0.0/8".to_owned(), "::1".to_owned()];
    let given = if given.is_empty() { &own[..] } else { given };
    given.iter().map(|rule| rule.parse().map_err(anyhow::Error::new)).collect()
}

/// Serves a volume until the server is stopped.
pub fn serve(
    attached: &dyn Attached,
    key: SigningKey,
    rules: Vec<Rule>,
    listener: TcpListener,
) -> Result<Server> {
    let config = attached.config();
    serve_as(&config.name, &config, attached.files(), key, rules, listener)
}

/// The same under another name, on a session of the volume.
pub fn serve_as(
    name: &str,
    config: &VolumeConfig,
    files: Arc<dyn Files>,
    key: SigningKey,
    rules: Vec<Rule>,
    listener: TcpListener,
) -> Result<Server> {
    let kind = match config.kind {
        VolumeKind::Cluster => 1,
        VolumeKind::Union => 2,
        VolumeKind::Wide => 3,
        VolumeKind::Unknown(tag) => tag,
    };
    let served = Served { id: config.id.0, kind, name: name.to_owned(), key, rules, start: random()? };
    atoll_nfs::serve(files, served, listener).map_err(|why| anyhow!(why))
}

/// What a user does to mount it.
pub fn mount_line(address: SocketAddr, volume: &str) -> String {
    let (host, port) = (address.ip(), address.port());
    let host = match host {
        ip if ip.is_unspecified() => "HOST".to_owned(),
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!(
        "mount -t nfs -o vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock,hard {host}:/{volume} DIR"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(KEY_FILE);
        signing_key(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.len(), std::fs::metadata(&path).unwrap().permissions().mode() & 0o777), (33, 0o600));
        signing_key(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::write(&path, "+123456789012345678901234567890ab").unwrap();
        assert!(signing_key(&path).unwrap_err().to_string().contains("is no key"));
    }
}
