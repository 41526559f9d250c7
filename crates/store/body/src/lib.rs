//! The bytes of files, by id, checked block by block (`DESIGN` 4).
//!
//! A body is one plain file, `PREFIX/<2 hex>/<16 hex id>`. This crate knows no names or attributes, does not
//! decide what a file holds, and does not order operations. The island's machine does all that, and runs two
//! calls on one body at once only if neither can see the other's bytes.
//!
//! Every call gets the file's length before the operation, by the state (`size`). Native bytes beyond it come
//! from a lost end of the log: no call returns them, and the first call that changes a body cuts them off. A
//! body without a native file, or with a shorter one, reads as zeros up to `size`. [`Born`] has the mode and
//! owner of a new native file.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod compare;
mod error;
mod io;
mod names;
mod redo;
mod shape;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_core::Ino;
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};

pub use error::BodyError;
pub use redo::{Correction, Redo};

use names::FreshNames;
use table::{Open, Table};

/// Files that are kept open unless told otherwise.
pub const OPEN_FILES_DEFAULT: usize = 512;

/// Bodies that are synced one by one; more of them with one call for the whole file system.
pub const SYNC_EACH_MAX: usize = 32;

/// Permission bits of the folders, which only the daemon enters.
const FOLDER_MODE: u32 = 0o700;
/// The permission bits that a daemon needs on each file if it is not root.
const DAEMON_MODE: u32 = 0o600;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// Attributes that a native file is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Born {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// How [`Bodies`] work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Files kept open at most, apart from those in use at the moment.
    pub open_files_max: usize,
    /// The daemon is root: it gives files their owner and exact mode. Otherwise they stay its own,
    /// readable and writable for it.
    pub root: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { open_files_max: OPEN_FILES_DEFAULT, root: false }
    }
}

/// The path of a body's native file beneath the disk's folder.
pub fn path_of(prefix: &[u8], ino: Ino) -> Vec<u8> {
    let mut path = folder_path(prefix, folder_of(ino));
    path.extend_from_slice(format!("/{:016x}", ino.0).as_bytes());
    path
}

/// The id whose body has this file name; none if it is no body's.
pub fn ino_of(name: &[u8]) -> Option<Ino> {
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    if name.len() != 16 || !name.iter().all(hex) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok().map(Ino)
}

/// Files that are made one after the other lie together, so that a native file system keeps them
/// near each other; over time all folders fill evenly.
const fn folder_of(ino: Ino) -> u8 {
    (ino.0 >> 8) as u8
}

fn folder_path(prefix: &[u8], folder: u8) -> Vec<u8> {
    let mut path = prefix.to_vec();
    path.extend_from_slice(format!("/{folder:02x}").as_bytes());
    path
}

/// All bodies of an island.
pub struct Bodies<D: Disk> {
    disk: Arc<D>,
    prefix: Vec<u8>,
    options: Options,
    table: Table<D::File>,
    names: FreshNames,
    sync_failed: AtomicBool,
}

/// An open body: stays usable however long it is held, even when the body was dropped.
pub struct BodyFile<F>(Arc<Open<F>>);

impl<F> std::ops::Deref for BodyFile<F> {
    type Target = F;
    fn deref(&self) -> &F {
        &self.0.file
    }
}

impl<D: Disk> std::fmt::Debug for Bodies<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bodies")
            .field("prefix", &self.prefix.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

impl<D: Disk> Bodies<D> {
    /// Opens the bodies beneath `prefix`, a path of one component or more, and makes the folders
    /// that are missing, durably.
    pub fn open(disk: Arc<D>, prefix: &[u8], options: Options) -> std::io::Result<Self> {
        let mkdir = |path: &[u8]| match disk.mkdir(path, FOLDER_MODE) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        };
        mkdir(prefix)?;
        let listed = disk.list(prefix)?;
        let is_there =
            |(name, kind): &(Vec<u8>, FileKind)| (*kind == FileKind::Directory).then(|| name.clone());
        let there: BTreeSet<Vec<u8>> = listed.iter().filter_map(is_there).collect();
        for folder in (0..=u8::MAX).filter(|folder| !there.contains(format!("{folder:02x}").as_bytes())) {
            mkdir(&folder_path(prefix, folder))?;
        }
        // Also when nothing is missing: whoever made them may have died before this.
        disk.sync_dir(prefix)?;
        let above = prefix.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &prefix[..at]);
        disk.sync_dir(above)?;
        Ok(Self {
            disk,
            prefix: prefix.to_vec(),
            options,
            table: Table::new(options.open_files_max),
            names: FreshNames::new(),
            sync_failed: AtomicBool::new(false),
        })
    }

    /// The path of a body's native file beneath the disk's folder.
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        path_of(&self.prefix, ino)
    }

    /// The folder of all bodies, beneath the disk's.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The ids of all bodies that there are, and what else the view has put beside them.
    pub fn all(&self) -> std::io::Result<Vec<Ino>> {
        let mut all = Vec::new();
        for folder in 0..=u8::MAX {
            let names = self.disk.list(&folder_path(&self.prefix, folder))?;
            all.extend(names.iter().filter_map(|(name, _)| ino_of(name)));
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Removes these bodies, so that they stay removed.
    pub fn drop_for_good(&self, inos: &[Ino]) -> Result<(), BodyError> {
        for ino in inos {
            self.drop_body(*ino)?;
        }
        let mut folders: Vec<u8> = inos.iter().map(|ino| folder_of(*ino)).collect();
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            let synced = self.disk.sync_dir(&folder_path(&self.prefix, folder));
            synced.map_err(|e| BodyError::io(inos[0], e))?;
        }
        Ok(())
    }

    /// The disk that they lie on.
    pub const fn disk(&self) -> &Arc<D> {
        &self.disk
    }

    /// The open native file, for readers that go past the checks; none if there is none.
    pub fn file(&self, ino: Ino) -> Result<Option<BodyFile<D::File>>, BodyError> {
        Ok(self.existing(ino)?.map(BodyFile))
    }

    /// The native file, made empty if it is not there.
    pub fn ensure(&self, ino: Ino, born: Option<Born>) -> Result<BodyFile<D::File>, BodyError> {
        self.existing_or_new(ino, born).map(BodyFile)
    }

    fn existing(&self, ino: Ino) -> Result<Option<Arc<Open<D::File>>>, BodyError> {
        if let Some(open) = self.table.get(ino) {
            return Ok(Some(open));
        }
        match self.disk.open(&self.path(ino), OpenHow::Write) {
            Ok(file) => Ok(Some(self.table.insert(ino, file, false))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BodyError::io(ino, error)),
        }
    }

    fn existing_or_new(&self, ino: Ino, born: Option<Born>) -> Result<Arc<Open<D::File>>, BodyError> {
        if let Some(open) = self.existing(ino)? {
            return Ok(open);
        }
        match self.create(ino, born) {
            // The view, or another write, was first.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let file = self.disk.open(&self.path(ino), OpenHow::Write);
                Ok(self.table.insert(ino, file.map_err(|e| BodyError::io(ino, e))?, false))
            }
            Err(error) => Err(BodyError::io(ino, error)),
            Ok(file) => Ok(self.table.insert(ino, file, true)),
        }
    }

    fn create(&self, ino: Ino, born: Option<Born>) -> std::io::Result<D::File> {
        let mode = match born {
            Some(born) if self.options.root => born.mode,
            Some(born) => born.mode | DAEMON_MODE,
            None => DAEMON_MODE,
        };
        // Never a moment with a set-id bit for the wrong owner; and chown takes such bits away.
        let file = self.disk.open(&self.path(ino), OpenHow::CreateNew { mode: mode & !SET_ID })?;
        self.names.made(ino);
        if let Some(born) = born
            && self.options.root
            && (born.uid, born.gid) != (0, 0)
        {
            file.set_owner(born.uid, born.gid)?;
        }
        if mode & SET_ID != 0 {
            file.set_mode(mode)?;
        }
        Ok(file)
    }

    /// Tells that somebody else made the native object of this id (a symbolic link, a fifo ...), so
    /// that the next sync of many covers its name, too ([`Bodies::sync_many`]).
    pub fn made_beside(&self, ino: Ino) {
        self.names.made(ino);
    }

    /// Removes the native file. Fine if there is none.
    pub fn drop_body(&self, ino: Ino) -> Result<(), BodyError> {
        self.table.remove(ino);
        self.names.dropped(ino);
        match self.disk.unlink(&self.path(ino)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BodyError::io(ino, error)),
            _ => Ok(()),
        }
    }

    // ------------------------------------------------------------------ syncing

    /// Makes a body's bytes, length and file survive a power cut.
    pub fn sync(&self, ino: Ino) -> Result<(), BodyError> {
        self.sync_bytes(ino)?;
        if self.names.must_sync(ino) {
            self.sync_folder(folder_of(ino)).map_err(|e| BodyError::io(ino, e))?;
        }
        Ok(())
    }

    /// [`Bodies::sync`] of many: each folder is synced once, or the whole file system if they are
    /// more than [`SYNC_EACH_MAX`].
    pub fn sync_many(&self, inos: &[Ino]) -> Result<(), BodyError> {
        if let Some(first) = inos.first().filter(|_| inos.len() > SYNC_EACH_MAX) {
            return self.sync_everything().map_err(|e| BodyError::io(*first, e));
        }
        for ino in inos {
            self.sync_bytes(*ino)?;
        }
        for ino in inos {
            if self.names.must_sync(*ino) {
                self.sync_folder(folder_of(*ino)).map_err(|e| BodyError::io(*ino, e))?;
            }
        }
        Ok(())
    }

    fn sync_everything(&self) -> std::io::Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(BodyError::SyncFailed.into());
        }
        let taken: Vec<_> = (0..=u8::MAX).map(|folder| (folder, self.names.take(folder))).collect();
        let done = self.disk.sync_everything();
        if done.is_err() {
            taken.into_iter().for_each(|(folder, fresh)| self.names.put_back(folder, fresh));
            self.sync_failed.store(true, Ordering::Release);
        }
        done
    }

    fn sync_bytes(&self, ino: Ino) -> Result<(), BodyError> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(BodyError::SyncFailed);
        }
        let Some(open) = self.existing(ino)? else { return Ok(()) };
        open.file.sync().map_err(|error| {
            self.sync_failed.store(true, Ordering::Release);
            BodyError::io(ino, error)
        })
    }

    fn sync_folder(&self, folder: u8) -> std::io::Result<()> {
        let taken = self.names.take(folder);
        let done = self.disk.sync_dir(&folder_path(&self.prefix, folder));
        if done.is_err() {
            self.names.put_back(folder, taken);
            self.sync_failed.store(true, Ordering::Release);
        }
        done
    }
}
