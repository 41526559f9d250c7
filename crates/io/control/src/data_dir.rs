//! A node's data directory: its identity, and the lock by which only one daemon uses it.
//!
//! Owns `node.toml` and `lock`; everything else in the directory belongs to other parts. Never makes anything
//! in a folder that holds foreign files.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use atoll_rpc::{ClusterId, DaemonId};

use crate::node_file::{BadNodeFile, Identity, NODE_FORMAT, seconds_now};

const NODE_FILE: &str = "node.toml";
const NODE_FILE_NEW: &str = "node.toml.new";
pub(crate) const LOCK_FILE: &str = "lock";

/// Names that may be in a folder that becomes a data directory: leftovers of an attempt that was cut short,
/// and files of a fresh file system.
const NOTHING_OF_WORTH: [&str; 4] = [LOCK_FILE, NODE_FILE_NEW, JOIN_FILE_NEW, "lost+found"];

/// A directory that is being made for a cluster has this file, and `node.toml` not yet.
pub(crate) const JOIN_FILE: &str = "join.toml";
pub(crate) const JOIN_FILE_NEW: &str = "join.toml.new";

/// The certificate of the node, that of the CA, and the private key, in a directory of a node with certificates.
pub(crate) const CREDENTIALS_FILE: &str = "credentials.pem";

/// The CA's private key, at some nodes of a cluster.
pub(crate) const CA_KEY_FILE: &str = "ca.key";

/// Longest of these files, in bytes.
pub(crate) const KEYS_BYTES_MAX: u64 = 64 * 1024;

/// Longest `node.toml`, in bytes.
const NODE_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why a data directory cannot be used. The text has at most three lines: what failed, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Nothing is there.
    #[error("There is no data directory {}.\n\
            Check the path; starting a daemon with it makes a new one.", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// Making it for a cluster has not ended.
    #[error("The data directory {} is of a node that has not joined its cluster yet.\n\
            Give the line again: atoll join LINE --data {}", path.display(), path.display())]
    NotJoined {
        /// The directory.
        path: PathBuf,
    },
    /// It is a node's already.
    #[error("The data directory {} is one of a node already.\n\
            Nothing was changed there. Choose another directory, or start that node: atoll serve --data {}",
        path.display(), path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be made, because the folder above is missing.
    #[error("The data directory {} cannot be made: {} does not exist.\n\
            Is its disk mounted? Otherwise make it first: mkdir -p {}",
        path.display(), parent.display(), parent.display())]
    ParentMissing {
        /// The directory.
        path: PathBuf,
        /// The missing folder.
        parent: PathBuf,
    },
    /// It is no directory.
    #[error("{} is not a directory.\nA data directory is needed here: choose another path.", path.display())]
    NotADirectory {
        /// The path that should be the directory.
        path: PathBuf,
    },
    /// It is empty, but was expected not to be.
    #[error("{} is empty: it holds no data of Atoll.\n\
            Is its disk mounted? Otherwise check the path.", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// It holds foreign files.
    #[error("{} is not a data directory of Atoll, and not empty: it holds \"{}\".\n\
            Nothing was changed there. Choose an empty folder or a new one.",
        path.display(), found.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the names in it.
        found: OsString,
    },
    /// A daemon uses it.
    #[error("The data directory {} is in use by {}.\n\
            Stop that daemon first, or choose another directory.", path.display(), holder(*pid))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process, if it said so.
        pid: Option<u32>,
    },
    /// The process that used it is gone, but what it had begun has not ended.
    #[error("The data directory {} is still held by what the killed process {pid} has left behind.\n\
            Its disk may not answer: see \"dmesg\", and \"fuser {}/{LOCK_FILE}\" for who holds it.",
        path.display(), path.display())]
    Ending {
        /// The directory.
        path: PathBuf,
        /// The process that is gone.
        pid: u32,
    },
    /// A newer program made it.
    #[error("The data directory {} has format {theirs}; this program knows formats up to {ours}.\n\
            Use the version of atoll that wrote it, or a newer one.", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The newest format that this program reads.
        ours: u64,
        /// The format that was found.
        theirs: u64,
    },
    /// Its `node.toml` is damaged.
    #[error("{} is damaged: {why}.\n\
            Restore that file from a backup; the data beside it is not affected.", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Nothing can be written there.
    #[error("The data directory {} is on a read-only file system.\n\
            If it was mounted so because of a disk error, see \"dmesg\"; otherwise: mount -o remount,rw",
        path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// This user has no permission.
    #[error("Permission denied for {}.\n\
            Run atoll as the user to whom it belongs, or change its owner.", path.display())]
    NotAllowed {
        /// The file or directory.
        path: PathBuf,
    },
    /// No space or quota left.
    #[error("No space is left for {}.\nFree some space on that file system.", path.display())]
    Full {
        /// The file or directory.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{} cannot be used: {source}.", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The system's error about `path`, in words that help.
pub(crate) fn told(path: &Path, source: io::Error) -> DataDirError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::ReadOnlyFilesystem => DataDirError::ReadOnly { path },
        ErrorKind::PermissionDenied => DataDirError::NotAllowed { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DataDirError::Full { path },
        ErrorKind::NotADirectory => DataDirError::NotADirectory { path },
        _ => DataDirError::Io { path, source },
    }
}

/// A data directory that this process holds.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Identity,
    /// Held until this is dropped or the process ends, however it ends.
    _lock: File,
}

/// What a folder is.
pub(crate) enum Content {
    /// A data directory.
    Ours,
    /// One that is being made for a cluster.
    Joining,
    /// Nothing of worth.
    Nothing,
}

impl DataDir {
    /// Opens a data directory that is there.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        match look(path)? {
            None => Err(DataDirError::Missing { path: path.to_owned() }),
            Some(Content::Nothing) => Err(DataDirError::Empty { path: path.to_owned() }),
            Some(Content::Joining) => Err(DataDirError::NotJoined { path: path.to_owned() }),
            Some(Content::Ours) => {
                let lock = lock(path, std::process::id())?;
                Ok(Self { identity: read_identity(path)?, path: path.to_owned(), _lock: lock })
            }
        }
    }

    /// Opens a data directory, or makes one with an identity and a cluster of its own. The folder
    /// above must be there: a missing one is more often a disk that is not mounted.
    pub fn open_or_create(path: &Path) -> Result<Self, DataDirError> {
        Self::open_or_create_for(path, std::process::id())
    }

    /// The same, for a process that has begun this one: others are told that `process` has it. If that process is gone, whoever
    /// wants the directory waits for the end of this one, within bounds.
    pub fn open_or_create_for(path: &Path, process: u32) -> Result<Self, DataDirError> {
        if look(path)?.is_none() {
            make(path)?;
        }
        let lock = lock(path, process)?;
        // Again, under the lock: another process may have been making it.
        let identity = match look(path)? {
            None => return Err(DataDirError::Missing { path: path.to_owned() }),
            Some(Content::Ours) => read_identity(path)?,
            Some(Content::Joining) => return Err(DataDirError::NotJoined { path: path.to_owned() }),
            Some(Content::Nothing) => {
                let fail = |e| told(Path::new("/dev/urandom"), e);
                let identity = Identity {
                    node: DaemonId(draw().map_err(fail)?),
                    cluster: ClusterId(draw().map_err(fail)?),
                    created: seconds_now(),
                    incarnation: 0,
                    ca: None,
                };
                write_identity(path, identity)?;
                identity
            }
        };
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }

    /// Waits until nobody uses it any more who is ending, within bounds. An error if somebody uses it; what else may be wrong
    /// with it is not looked for.
    pub fn await_free(path: &Path) -> Result<(), DataDirError> {
        match File::open(path.join(LOCK_FILE)) {
            Ok(file) => take(&file, path, std::process::id()),
            Err(_) => Ok(()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn of(path: PathBuf, identity: Identity, lock: File) -> Self {
        Self { path, identity, _lock: lock }
    }

    /// The credentials of the node, as text (PEM); none if its links are not encrypted.
    pub fn credentials(&self) -> Result<Option<Vec<u8>>, DataDirError> {
        if self.identity.ca.is_none() {
            return Ok(None);
        }
        match read_keys(&self.path, CREDENTIALS_FILE)? {
            Some(text) => Ok(Some(text)),
            None => Err(DataDirError::Damaged {
                path: self.path.join(CREDENTIALS_FILE),
                why: "it is missing, and without it nobody lets this node in".to_owned(),
            }),
        }
    }

    /// The CA's private key, as text (PEM), if this node keeps it.
    pub fn ca_key(&self) -> Result<Option<Vec<u8>>, DataDirError> {
        read_keys(&self.path, CA_KEY_FILE)
    }

    /// Its identity.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// A daemon starts: counts its incarnation up, and returns it when it would survive a power cut.
    pub fn begin_incarnation(&mut self) -> Result<u32, DataDirError> {
        let incarnation = self.identity.incarnation.checked_add(1).ok_or_else(|| DataDirError::Damaged {
            path: self.path.join(NODE_FILE),
            why: "\"incarnation\" is at its end".to_owned(),
        })?;
        let next = Identity { incarnation, ..self.identity };
        write_identity(&self.path, next)?;
        self.identity = next;
        Ok(incarnation)
    }
}

/// The state of the path; none if it is free. An error if it cannot become a data directory.
pub(crate) fn look(path: &Path) -> Result<Option<Content>, DataDirError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(told(path, e)),
    };
    let (mut foreign, mut joining) = (None, false);
    for entry in entries {
        let name = entry.map_err(|e| told(path, e))?.file_name();
        if name == NODE_FILE {
            return Ok(Some(Content::Ours));
        }
        joining |= name == JOIN_FILE;
        if !NOTHING_OF_WORTH.iter().any(|known| name == *known) {
            foreign = Some(name);
        }
    }
    match foreign {
        _ if joining => Ok(Some(Content::Joining)),
        Some(found) => Err(DataDirError::Foreign { path: path.to_owned(), found }),
        None => Ok(Some(Content::Nothing)),
    }
}

/// The folder that a path is in.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

pub(crate) fn make(path: &Path) -> Result<(), DataDirError> {
    let parent = parent_of(path);
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => sync_dir(parent),
        // Made by another process meanwhile; the lock decides.
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        // A symbolic link that leads nowhere, for one.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(DataDirError::NotADirectory { path: path.to_owned() })
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(DataDirError::ParentMissing { path: path.to_owned(), parent: parent.to_owned() })
        }
        Err(e) => Err(told(path, e)),
    }
}

/// Pause between two tries to take a lock.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a lock is tried that this process itself had.
const OWN_TRIES: u32 = 100;
/// How often one is tried whose process is gone: one that this had begun is ending. It ends when its disk has answered.
const ENDING_TRIES: u32 = 1000;

/// Takes the lock, which the kernel gives back when the process ends, in the name of `process`.
pub(crate) fn lock(path: &Path, process: u32) -> Result<File, DataDirError> {
    let file = path.join(LOCK_FILE);
    let fail = |e: io::Error| match e.kind() {
        // Said of the directory: nobody looks for a disk by the name of a lock.
        ErrorKind::ReadOnlyFilesystem => told(path, e),
        _ => told(&file, e),
    };
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut lock = how.open(&file).map_err(fail)?;
    take(&lock, path, process)?;
    lock.set_len(0).and_then(|()| lock.rewind()).map_err(fail)?;
    lock.write_all(format!("{process}\n").as_bytes()).map_err(fail)?;
    Ok(lock)
}

/// Takes the lock `lock` of `path`. Waits, within bounds, for who gives it back by itself.
fn take(mut lock: &File, path: &Path, process: u32) -> Result<(), DataDirError> {
    let mut tries = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Without the number the message is still true.
                let _ = lock.rewind().and_then(|()| lock.take(32).read_to_string(&mut text));
                let path = path.to_owned();
                match text.trim().parse().ok() {
                    // This process has given it back; a child that it has just begun has it until its program runs.
                    Some(pid) if pid == process && tries < OWN_TRIES => {}
                    Some(pid) if pid != process && is_gone(pid) => {
                        if tries >= ENDING_TRIES {
                            return Err(DataDirError::Ending { path, pid });
                        }
                    }
                    pid => return Err(DataDirError::Locked { path, pid }),
                }
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(TryLockError::Error(e)) => return Err(told(&path.join(LOCK_FILE), e)),
        }
    }
}

/// Whether a process has ended. If its parent has not asked how, the system still has its name.
fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in parentheses, and may have any.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn read_identity(path: &Path) -> Result<Identity, DataDirError> {
    let file = path.join(NODE_FILE);
    let mut bytes = Vec::new();
    let opened = File::open(&file).map_err(|e| told(&file, e))?;
    opened.take(NODE_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| told(&file, e))?;
    let damaged = |why: String| DataDirError::Damaged { path: file.clone(), why };
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is not text".to_owned()))?;
    Identity::from_text(text).map_err(|bad| match bad {
        BadNodeFile::Newer { theirs } => {
            DataDirError::Newer { path: path.to_owned(), ours: NODE_FORMAT, theirs }
        }
        BadNodeFile::Damaged(why) => damaged(why),
    })
}

/// Replaces `node.toml` in one step: after a crash there is the old one or the new one, whole.
pub(crate) fn write_identity(path: &Path, identity: Identity) -> Result<(), DataDirError> {
    replace_file(path, NODE_FILE_NEW, NODE_FILE, identity.to_text().as_bytes())
        .map_err(|e| told(&path.join(NODE_FILE), e))?;
    sync_dir(path)
}

/// A file of keys; none if it is missing.
fn read_keys(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
    let file = folder.join(name);
    let mut bytes = Vec::new();
    match File::open(&file).and_then(|opened| opened.take(KEYS_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(told(&file, e)),
    }
}

/// Writes a file of the directory's owner whole, or not at all.
pub(crate) fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), DataDirError> {
    replace_file(folder, &format!("{name}.new"), name, bytes).map_err(|e| told(&folder.join(name), e))?;
    sync_dir(folder)
}

/// Puts a small file in the place of another in one step, by way of the name `new`. It survives a power
/// cut when the folder is synced, too.
pub fn replace_file(folder: &Path, new: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(new);
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(true).mode(0o600);
    let mut file = how.open(&new)?;
    file.write_all(bytes)?;
    // Before the rename, or a power cut could leave the final name with nothing behind it.
    file.sync_all()?;
    std::fs::rename(&new, folder.join(name))
}

pub(crate) fn sync_dir(path: &Path) -> Result<(), DataDirError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| told(path, e))
}

/// A random number that is not 0.
pub(crate) fn draw() -> io::Result<u64> {
    let mut source = File::open("/dev/urandom")?;
    loop {
        let mut bytes = [0; 8];
        source.read_exact(&mut bytes)?;
        match u64::from_le_bytes(bytes) {
            0 => {}
            id => return Ok(id),
        }
    }
}
