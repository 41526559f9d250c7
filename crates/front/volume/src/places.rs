//! Places on this machine: sockets of data directories and mounts, and the mounts themselves.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_rpc::Address;
use atoll_rpc::address::UNIX_PATH_BYTES_MAX;
use rustix::fs::{Mode, OFlags};

/// The socket of a daemon, in its data directory.
const SOCKET: &str = "atoll.sock";

/// For how long a socket that no process serves may be one that is just being made.
const SOCKET_NEW: Duration = Duration::from_secs(60);

/// Type of our mounts in the system's table.
const TYPE: &str = "fuse.atoll";

/// A Unix socket's address. One whose path is too long for the system is reached through its open
/// folder, which stays open as long as this is kept.
#[derive(Debug)]
pub struct SocketPlace {
    /// What to connect to.
    pub address: Address,
    /// The text for people.
    pub shown: PathBuf,
    _folder: Option<OwnedFd>,
}

/// Everything at a path and below, as far as it is on the same file system: what is mounted there is not looked at. What goes meanwhile is
/// passed over.
pub fn walk(path: &Path, found: &mut dyn FnMut(&Path, &Metadata)) -> Result<()> {
    let device = std::fs::symlink_metadata(path).with_context(|| not_looked_at(path))?.dev();
    walk_where(path, &|meta| meta.dev() == device, found)
}

/// Everything at a path and below, also what is mounted there. What goes meanwhile is passed over.
pub(crate) fn walk_all(path: &Path, found: &mut dyn FnMut(&Path, &Metadata)) -> Result<()> {
    walk_where(path, &|_| true, found)
}

fn not_looked_at(path: &Path) -> String {
    format!("{} cannot be looked at", path.display())
}

fn walk_where(
    path: &Path,
    is_meant: &dyn Fn(&Metadata) -> bool,
    found: &mut dyn FnMut(&Path, &Metadata),
) -> Result<()> {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let meta = match std::fs::symlink_metadata(&path) {
            Ok(meta) if is_meant(&meta) => meta,
            Err(why) if why.kind() != ErrorKind::NotFound => {
                return Err(why).with_context(|| not_looked_at(&path));
            }
            _ => continue,
        };
        found(&path, &meta);
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path).with_context(|| not_looked_at(&path))? {
                left.push(entry.with_context(|| not_looked_at(&path))?.path());
            }
        }
    }
    Ok(())
}

/// The socket of the daemon on a data directory.
pub fn data_socket(data: &Path) -> Result<SocketPlace> {
    let data = std::fs::canonicalize(data)
        .with_context(|| format!("The data directory {} cannot be used", data.display()))?;
    socket_in(&data, SOCKET)
}

/// An address as it was shown to people.
pub fn reach(shown: &str) -> Result<SocketPlace> {
    let path = shown.strip_prefix("unix:").map(Path::new);
    match path.and_then(|p| Some((p.parent()?, p.file_name()?.to_str()?))) {
        Some((folder, name)) => socket_in(folder, name),
        None => Ok(SocketPlace { address: shown.parse()?, shown: shown.into(), _folder: None }),
    }
}

fn socket_in(folder: &Path, name: &str) -> Result<SocketPlace> {
    let shown = folder.join(name);
    if shown.as_os_str().len() <= UNIX_PATH_BYTES_MAX {
        return Ok(SocketPlace { address: Address::Unix { path: shown.clone() }, shown, _folder: None });
    }
    let open = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("{} cannot be opened", folder.display()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    Ok(SocketPlace { address: Address::Unix { path }, shown, _folder: Some(open) })
}

/// The folder of mounts' sockets, made if it is not there.
fn runtime_folder() -> Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let folder = if uid.is_root() {
        PathBuf::from("/run/atoll")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_dir()) {
            Some(dir) => dir.join("atoll"),
            None => std::env::temp_dir().join(format!("atoll-{}", uid.as_raw())),
        }
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("{} cannot be made", folder.display()));
        }
        _ => {}
    }
    let meta = std::fs::symlink_metadata(&folder)?;
    // Whoever else owns it could put sockets there in our name.
    if !meta.is_dir() || meta.uid() != uid.as_raw() {
        bail!("{} belongs to somebody else.\nRemove it, or set XDG_RUNTIME_DIR.", folder.display());
    }
    Ok(folder)
}

/// The socket of the process that serves the mount on `point`, an absolute path without links.
pub fn mount_socket(point: &Path) -> Result<SocketPlace> {
    // FNV-1a: spreads well enough, and a collision only refuses a second status socket.
    let hash = point.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    socket_in(&runtime_folder()?, &format!("mount-{hash:016x}.sock"))
}

/// Removes sockets of mounts whose processes were killed.
pub fn sweep_sockets() {
    use std::io::ErrorKind::ConnectionRefused;
    let Ok(folder) = runtime_folder() else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // One that is being made refuses, too, for a moment.
        let age = entry.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > SOCKET_NEW));
        let is_dead = || UnixStream::connect(&path).is_err_and(|e| e.kind() == ConnectionRefused);
        if is_old && is_dead() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// A mount of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// The directory that it is on.
    pub path: PathBuf,
    /// What is mounted, as it was given: `node1:7100:/home`.
    pub source: String,
    /// The user who mounted it, if the table says so.
    pub user: Option<u32>,
}

impl MountPoint {
    /// The process that serves a mount answers only the user who mounted it. This is the text for other
    /// users.
    pub fn not_ours(&self) -> Option<anyhow::Error> {
        let user = self.user.filter(|user| *user != rustix::process::geteuid().as_raw())?;
        let who = if user == 0 { "root".to_owned() } else { format!("the user with number {user}") };
        let sudo = if user == 0 { String::new() } else { format!("-u '#{user}' ") };
        Some(anyhow::anyhow!(
            "The mount {} is another user's: {who} mounted it, and only that user can ask about it.\n\
             If you may: sudo {sudo}atoll ...",
            self.path.display()
        ))
    }
}

/// All mounts of ours, in the order in which they were made.
pub fn mounts() -> Result<Vec<MountPoint>> {
    let table = std::fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo cannot be read")?;
    Ok(table
        .split(|b| *b == b'\n')
        .filter_map(parse_line)
        .filter(|(_, kind)| kind == TYPE)
        .map(|(m, _)| m)
        .collect())
}

/// The mount of any type on exactly this path, the topmost.
pub fn mounted_at(path: &Path) -> Result<Option<(MountPoint, bool)>> {
    let table = std::fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo cannot be read")?;
    let mut all = table.split(|b| *b == b'\n').filter_map(parse_line).filter(|(m, _)| m.path == path);
    Ok(all.next_back().map(|(mount, kind)| (mount, kind == TYPE)))
}

/// The mount of ours that a path is in.
pub fn mount_of(path: &Path) -> Result<Option<MountPoint>> {
    let all = mounts()?;
    Ok(all.into_iter().filter(|m| path.starts_with(&m.path)).max_by_key(|m| m.path.as_os_str().len()))
}

fn parse_line(line: &[u8]) -> Option<(MountPoint, String)> {
    let mut fields = line.split(|b| *b == b' ');
    let path = unescape(fields.by_ref().nth(4)?);
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = String::from_utf8_lossy(&unescape(rest.next()?)).into_owned();
    let mut options = rest.next().unwrap_or_default().split(|b| *b == b',');
    let user = options.find_map(|o| std::str::from_utf8(o.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    Some((MountPoint { path: OsString::from_vec(path).into(), source, user }, kind))
}

/// The table writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| text[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// An absolute path without links. Its target need not be reachable, such as a dead mount.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    Ok(match (path.parent().map(std::fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    })
}

/// An absolute path whose last part is not followed if it is a link.
pub fn absolute_nofollow(path: &Path) -> Result<PathBuf> {
    let cannot = || format!("{} cannot be looked at", path.display());
    match path.file_name() {
        Some(name) => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(std::fs::canonicalize(parent).with_context(cannot)?.join::<&OsStr>(name))
        }
        None => std::fs::canonicalize(path).with_context(cannot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes_and_optional_fields() {
        let line =
            br"36 35 98:0 / /mnt/a\040b rw,noatime master:1 shared:2 - fuse.atoll a:1,b\\134:1:/main rw,user_id=7,x";
        let (mount, kind) = parse_line(line).unwrap();
        assert_eq!(mount.path, Path::new("/mnt/a b"));
        assert_eq!((mount.source.as_str(), kind.as_str()), (r"a:1,b\\:1:/main", "fuse.atoll"));
        assert_eq!(mount.user, Some(7));
        assert!(mount.not_ours().is_none_or(|why| why.to_string().contains("sudo -u '#7'")));
        assert_eq!(parse_line(b"36 35"), None);
        assert_eq!(unescape(br"a\13"), br"a\13");
    }

    #[test]
    fn a_socket_with_a_long_path_is_reached_through_its_folder() {
        let folder = std::env::temp_dir().join(format!("atoll-places-{}", std::process::id()));
        let deep = folder.join("x".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let place = data_socket(&deep).unwrap();
        let Address::Unix { path } = &place.address else { panic!("a Unix socket") };
        assert!(path.as_os_str().len() <= UNIX_PATH_BYTES_MAX);
        std::os::unix::net::UnixListener::bind(path).unwrap();
        assert!(deep.join(SOCKET).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
