//! The plain tree, which follows the log (`DESIGN` 4): skeleton directories, and each name of each body as a
//! hard link to it. Reads the state through [`Source`], and never changes it. No answer waits for it.
//!
//! [`View::lay`] gets the set of ids and names that have changed, and makes the native objects agree with the
//! present state. It may do so again at any time: an object that is already right costs one look. Changes
//! that people made by hand are reported, and never undone silently: if a name has an object that Atoll did
//! not put there, the object stays.
//!
//! How a crash is survived, whichever part of the native operations it lets through:
//! - Before an object gets its first name in `tree/`, its native inode number is durable in the index. So
//!   every object of ours in `tree/` is known to be ours, also when its id is gone.
//! - Before a directory moves, its new place is durable in the index, beside the older ones. So it is found
//!   by its inode number in one of these places, or in `limbo/` under its id. A directory that is removed
//!   moves to `limbo/` too, and is removed when that is durable.
//! - [`View::settle`] makes everything that was laid durable, and only then forgets removed objects and older
//!   places. The caller keeps the ids and names until then, and lays them again after a crash.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod attributes;
mod audit;
mod dirs;
mod files;
mod index;
mod lay;
pub mod plain;
mod report;
mod source;
mod spill;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Ino, IslandId, Name, Time};
use atoll_disk::{Disk, DiskFile, OpenHow, Stat};
use atoll_snapshot::SnapshotError;

pub use audit::Finding;
pub use report::{Conflict, Report, Subject, Why};
pub use source::{Source, Whole};
pub use spill::{Spilled, XATTRS, spill_of, spill_path};

use dirs::At;
use index::Index;
use spill::Spills;

/// The folder of the plain tree, beneath the island's.
pub const TREE: &[u8] = b"tree";
/// The folder of directories that have no place at the moment, and of links in the making.
pub const LIMBO: &[u8] = b"limbo";
/// The index.
pub const INDEX: &[u8] = b"view.redb";

/// An empty file that is made once and never touched: its inode number and change time tell a copy of
/// the folder from the original.
const ORIGIN: &[u8] = b"view.origin";

/// An empty file that says that names and bodies of records that are gone may have been laid.
const AGAIN: &[u8] = b"view.again";

/// Memory for the index.
const INDEX_CACHE_BYTES: usize = 4 << 20;
/// Directories whose places and paths are kept in memory.
const PLACES_MAX: usize = 1 << 14;
/// Names that the native file system refused, and that are remembered.
const REFUSED_MAX: usize = 1 << 10;
/// Permission bits of a directory until its own are laid.
const NEW_DIR_MODE: u32 = 0o700;

/// Notes durably, for a view that is not open: what was laid may be of records that are gone. The next one that is opened
/// lays everything again, and removes what the index knows and the state does not.
pub fn lay_again<D: Disk>(disk: &D) -> io::Result<()> {
    disk.open(AGAIN, OpenHow::Create { mode: 0o600 })?.sync()?;
    disk.sync_dir(b"")
}

/// Options of a [`View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The island that it shows.
    pub island: IslandId,
    /// The daemon is root: owners are laid, and all modes and extended attributes. Otherwise owners
    /// are not, modes keep what the daemon needs, and `security.` and `trusted.` attributes are left.
    pub root: bool,
    /// Device files are made, which needs root too.
    pub devices: bool,
}

/// The plain tree of one island.
pub struct View<D: Disk> {
    disk: Arc<D>,
    bodies: Arc<Bodies<D>>,
    options: Options,
    index: Index,
    /// Places of directories that this process has found or made.
    at: IdMap<Ino, At>,
    paths: IdMap<Ino, Vec<u8>>,
    /// Directories that the index has with more places than one.
    moved: IdSet<Ino>,
    /// Directories that are gone, and in limbo until that is durable.
    leaving: IdSet<Ino>,
    /// What the native file system refused.
    spills: Spills,
    /// Names that it refused when they were laid last: [`REFUSED_MAX`] at most. In the index when all is settled.
    refused_names: BTreeSet<(Ino, Name)>,
    /// Files that the index has with more native objects than one, as the last laying found.
    remade: IdSet<Ino>,
    /// The same, found by earlier layings. What had taken away names of their older objects by then was laid since.
    remade_before: IdSet<Ino>,
    /// Directories that could not go yet, and how often that was tried: again with the next laying.
    again: IdMap<Ino, u32>,
    /// The same before this laying.
    tried_before: IdMap<Ino, u32>,
    /// Names to be laid again: of files that a directory had until now, and in directories that must go.
    again_names: BTreeSet<(Ino, Name)>,
    /// The same before this laying.
    tried_names: BTreeSet<(Ino, Name)>,
    /// All that an earlier life left to do has been done: a change from outside can be told now.
    settled_once: bool,
    index_was_lost: bool,
    /// The file that says that everything is to be laid again is there yet.
    is_told_again: bool,
    /// Identifies this folder, to notice a copy. It is in the index once the index is about this folder.
    origin: (u64, Time),
}

impl<D: Disk> std::fmt::Debug for View<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<D: Disk> View<D> {
    /// Opens the view, making `tree/`, `limbo/` and the index if they are missing. A damaged index is
    /// replaced by an empty one, see [`View::index_was_lost`].
    pub fn open(disk: Arc<D>, bodies: Arc<Bodies<D>>, options: Options) -> io::Result<Self> {
        for folder in [TREE, LIMBO] {
            match disk.mkdir(folder, NEW_DIR_MODE) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let here = Self::origin(&*disk)?;
        let opened = match Index::open(&*disk, INDEX_CACHE_BYTES) {
            Err(SnapshotError::Damaged(_)) => None,
            opened => Some(opened?),
        };
        let mut opened = opened;
        let is_told_again = disk.stat(AGAIN).is_ok();
        if let Some(index) = opened.as_mut().filter(|_| is_told_again) {
            index.forget_origin()?;
        }
        let of = opened.as_ref().map(Index::origin).transpose()?.flatten();
        let (mut index, index_was_lost) = match opened {
            Some(index) if of == Some(here) => (index, false),
            // It is new, or all was not laid again yet.
            Some(index) if of.is_none() => (index, is_told_again || !disk.list(TREE)?.is_empty()),
            // Native inode numbers and change times of another folder say nothing here.
            _ => {
                disk.unlink(INDEX)?;
                (Index::open(&*disk, INDEX_CACHE_BYTES)?, true)
            }
        };
        disk.sync_dir(b"")?;
        if of.is_none() && !index_was_lost {
            index.set_origin(&here)?;
            index.save()?;
        }
        let spills = Spills::open(&*disk)?;
        let refused_names = index.refused()?;
        let mut view = Self {
            disk,
            bodies,
            options,
            index,
            origin: here,
            at: IdMap::default(),
            paths: IdMap::default(),
            moved: IdSet::default(),
            leaving: IdSet::default(),
            spills,
            refused_names,
            remade: IdSet::default(),
            remade_before: IdSet::default(),
            again: IdMap::default(),
            tried_before: IdMap::default(),
            again_names: BTreeSet::new(),
            tried_names: BTreeSet::new(),
            settled_once: false,
            index_was_lost,
            is_told_again,
        };
        view.clear_limbo()?;
        Ok(view)
    }

    /// Identifies this folder among all copies of it.
    fn origin(disk: &D) -> io::Result<(u64, Time)> {
        let file = disk.open(ORIGIN, OpenHow::Create { mode: 0o600 })?;
        // Before the index speaks of it, or a power cut could make a copy of the original.
        file.sync()?;
        disk.sync_dir(b"")?;
        let stat = file.stat()?;
        Ok((stat.ino, files::time_of(stat.ctime)))
    }

    /// The index was missing, damaged, or a copy: [`View::lay_all`] must run, or moved directories and removed
    /// names are left where they were.
    pub const fn index_was_lost(&self) -> bool {
        self.index_was_lost
    }

    /// The disk has failed under the index. What was given to [`View::lay`] and not settled must be laid by
    /// another view, which can be opened when this one is dropped.
    pub fn has_failed(&self) -> bool {
        self.index.has_failed()
    }

    /// Something must be laid again although nothing has changed since: directories that still held
    /// what a later change takes away, and what such a directory kept out. Until it was, what was given to
    /// [`View::lay`] must be kept.
    pub fn is_behind(&self) -> bool {
        !self.again.is_empty() || !self.again_names.is_empty()
    }

    /// The ids and names for which [`View::is_behind`] is true.
    pub fn behind(&self) -> (Vec<Ino>, Vec<(Ino, Name)>) {
        (self.again.keys().copied().collect(), self.again_names.iter().cloned().collect())
    }

    /// Removes leftovers of a crash from limbo: links that were being made, and directories that are not in
    /// the index, new or removed ones.
    fn clear_limbo(&mut self) -> io::Result<()> {
        for (name, _) in self.disk.list(LIMBO)? {
            let path = join(LIMBO, &name);
            match name.first() {
                Some(b't') => self.disk.unlink(&path)?,
                Some(b'd') => {
                    let ino = name.get(1..).and_then(atoll_body::ino_of);
                    if let Some(ino) = ino
                        && let native = self.disk.stat(&path)?.ino
                        && self.index.dir(ino)?.is_none_or(|mark| mark.native != native)
                    {
                        // One that is not empty holds what a lost index knew: it is found by its name.
                        let _ = self.disk.rmdir(&path);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing waits to be laid: no name is left of what files had before.
    pub fn all_is_laid(&mut self) {
        self.remade_before.extend(std::mem::take(&mut self.remade));
    }

    /// Makes everything that was laid survive a power cut, and forgets data that was needed only until then.
    /// After it, the ids and names given to [`View::lay`] so far need not be kept. To be called before each
    /// checkpoint and at the end.
    pub fn settle(&mut self) -> io::Result<()> {
        self.refresh_spills()?;
        self.disk.sync_everything()?;
        for ino in std::mem::take(&mut self.moved) {
            if let Some(mut mark) = self.index.dir(ino)? {
                mark.places = match self.locate(ino)? {
                    Some(At::Tree { parent, name }) => vec![(parent, name)],
                    Some(At::Root | At::Limbo) | None => Vec::new(),
                };
                self.index.set_dir(ino, &mark)?;
            }
        }
        self.remove_left()?;
        for ino in std::mem::take(&mut self.remade_before) {
            self.index.forget_older(ino)?;
        }
        if !self.index_was_lost {
            self.index.set_origin(&self.origin)?;
        }
        self.index.set_refused(&self.refused_names)?;
        self.index.settle()?;
        if self.is_told_again && !self.index_was_lost {
            self.disk.unlink(AGAIN)?;
            self.is_told_again = false;
        }
        self.settled_once = true;
        if self.at.len() > PLACES_MAX {
            self.at.clear();
            self.paths.clear();
        }
        Ok(())
    }

    /// `lstat`; none if nothing has this name, or if something on the way is no directory.
    fn look(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        match self.disk.stat(path) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True for the error of a path at which nothing can exist.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    let looped = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    looped || matches!(error.kind(), NotFound | NotADirectory)
}

/// True for errors of the disk as a whole, after which going on makes no sense. Others concern one
/// object and are reported with it.
fn is_fatal(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let all = [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    match error.raw_os_error() {
        None => true,
        Some(raw) => all.iter().any(|errno| errno.raw_os_error() == raw),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}
