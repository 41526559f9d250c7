//! `atoll rebuild`: makes the state of a volume from its plain trees alone, when states and logs are lost or
//! damaged.
//!
//! The trees are the truth here. All of them are read and united. If the trees do not tell an id or a
//! placement key, a new one is given. Checksums are computed from the bytes that are there. Everything that
//! is not in a tree is lost: locks, sessions, owners that a daemon without root could not lay, and names that
//! were not laid yet. Nothing is deleted. The old state, index and log are set aside. A file that cannot be
//! taken in stays where it is and is reported ([`LeftOut`]).
//!
//! Where things go:
//! - A directory belongs to the island whose tree has most of its files. A directory without files belongs to
//!   an island whose tree has nothing below it, because only there does a skeleton have it for its own sake.
//!   So a directory with names mostly of another island's files goes to that island. Its key is the H3 hash
//!   of its path if the table gives that to this island, otherwise a key in one of the island's buckets. Keys
//!   are only used to find the owner, so neither a renamed directory nor anything below it has to move.
//! - A file stays at the island in whose tree it is, with its id and with all its names, whichever
//!   directories they are in. A name in a directory of another island becomes a pointer there, and a row at
//!   the file's home. So nothing is copied, a file with names in directories of several islands stays one
//!   file, and a file that somebody put into another island's tree is taken in where it lies.
//!
//! A site of a wide volume is not rebuilt: no plain tree tells what sites know of each other.
//!
//! Whatever ends a rebuild, it may be run again. Until the new states are in place, the old ones are
//! untouched. From then on no island opens until everything is done, because the logs come last.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod places;
mod plan;
mod read;
mod rows;
mod sites;
mod switch;
mod unite;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use atoll_core::IslandId;
use atoll_disk::Disk;
use atoll_log::LogError;
use atoll_proto::{VolumeConfig, VolumeKind};
use atoll_snapshot::SnapshotError;

/// Folder of the bodies in an island's.
const BODIES: &[u8] = b"bodies";
/// Folder of the log.
const LOG: &[u8] = b"log";
/// The state.
const STATE: &[u8] = b"state.redb";
/// The state while it is made.
const STATE_NEW: &[u8] = b"state.redb.rebuild";
/// Folder in the tree that takes in directories that were between two places.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Most things that a summary lists as left out; all are counted.
pub const LEFT_OUT_MAX: usize = 1000;

/// Options of a rebuild.
#[derive(Debug, Clone)]
pub struct Options {
    /// The daemon is root: as in the view and the bodies.
    pub root: bool,
    /// Device files are laid out in the plain trees.
    pub devices: bool,
    /// Sizes of the logs.
    pub log: atoll_log::Config,
}

/// Progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A tree has been read.
    Scanned {
        /// Whose.
        island: IslandId,
        /// Directories in all trees so far.
        dirs: u64,
        /// Files in all trees so far.
        files: u64,
    },
    /// The bytes of a file have been read.
    Read {
        /// Files done.
        files: u64,
        /// Files in all.
        of_files: u64,
        /// Bytes done.
        bytes: u64,
    },
    /// The new state of an island is in place, and its tree agrees with it.
    Laid {
        /// Whose.
        island: IslandId,
    },
}

/// Something in a tree that is not in the new state. It stays where it is; of a file that was taken in
/// under other names only this name goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// In whose tree.
    pub island: IslandId,
    /// Path in the volume, beginning with a slash. If it is in no tree, the native path beneath the island's
    /// folder.
    pub path: Vec<u8>,
    /// Why.
    pub why: Why,
}

/// Why something is not in the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Another island's tree has another file of this name, which was taken in.
    #[error("another island's tree has another file of this name")]
    Other,
    /// Another island's tree has a directory of this name.
    #[error("another island's tree has a directory of this name")]
    Directory,
    /// Extended attributes that the native file system had refused: `path` is that of the file in which they are kept.
    #[error("extended attributes that were kept beside the tree: {0}")]
    Xattrs(&'static str),
    /// The path is longer than paths may be in a volume.
    #[error("the path is longer than 4,096 bytes")]
    TooLong,
}

/// The summary of a rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Directories, each counted once.
    pub dirs: u64,
    /// Files of any type but directories.
    pub files: u64,
    /// Names of files.
    pub names: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Files that had no body: put into a tree by hand, and taken in.
    pub adopted: u64,
    /// Names, among [`Summary::names`], of files that lie at another island than owns their directory.
    pub pointers: u64,
    /// Directories that were on their way between two places: they are in `/lost+found` now.
    pub rescued: u64,
    /// Bodies without a name. They stay among the bodies; no file of the volume has them.
    pub nameless: u64,
    /// Things that were not taken in, at most [`LEFT_OUT_MAX`].
    pub left_out: Vec<LeftOut>,
    /// The number of things that were not taken in.
    pub left_out_count: u64,
    /// Number behind the names of files that were set aside: `state.redb.old-N`, `view.redb.old-N`,
    /// `log.old-N`.
    pub set_aside: u32,
    /// Attributes that could not be laid, in words for people. The state has them.
    pub not_laid: Vec<String>,
}

impl Summary {
    fn left_out(&mut self, island: IslandId, path: Vec<u8>, why: Why) {
        self.left_out_count += 1;
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(LeftOut { island, path, why });
        }
    }
}

/// Why a volume cannot be rebuilt. Run it again when the cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The files of these islands would be missing from the new tree for ever.
    #[error("the folders of islands {} are needed too", list(.missing))]
    Incomplete {
        /// Islands of the volume whose folders were not given.
        missing: Vec<IslandId>,
    },
    /// No plain tree tells what sites know of each other, nor has it files whose bytes have not come yet.
    #[error(
        "island {island} is a site of a wide volume: its plain tree does not tell what sites know of each other, so \
         it is not made anew from that. Nothing was changed"
    )]
    Site {
        /// Which.
        island: IslandId,
    },
    /// The volume has no such island.
    #[error("the volume has no island {island}")]
    Stranger {
        /// Which.
        island: IslandId,
    },
    /// An island has no tree to rebuild it from.
    #[error("island {island} has no folder \"tree\"")]
    NoTree {
        /// Which.
        island: IslandId,
    },
    /// A process writes to the trees.
    #[error("island {island}: {} changed while it was read", .path.escape_ascii())]
    Changed {
        /// Which.
        island: IslandId,
        /// Native path.
        path: Vec<u8>,
    },
    /// The disk failed, or does not let this process read something.
    #[error("island {island}: {}: {source}", .path.escape_ascii())]
    Disk {
        /// Which.
        island: IslandId,
        /// Native path, or what was done.
        path: Vec<u8>,
        /// The error.
        source: io::Error,
    },
    /// The new state cannot be written.
    #[error("island {0}: {1}")]
    Snapshot(IslandId, #[source] SnapshotError),
    /// The new log cannot be made.
    #[error("island {0}: {1}")]
    Log(IslandId, #[source] LogError),
}

fn list(islands: &[IslandId]) -> String {
    islands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Tells where an error of a disk happened.
fn at(island: IslandId, path: &[u8]) -> impl FnOnce(io::Error) -> RebuildError {
    let path = path.to_vec();
    move |source| RebuildError::Disk { island, path, source }
}

/// The folders of a volume's islands.
type Disks<D> = BTreeMap<IslandId, Arc<D>>;

/// Makes the state of a volume from its plain trees. `islands` has the folder of each island of the
/// volume; nobody else uses any of them meanwhile. When this returns, the volume can be served.
pub fn rebuild<D: Disk>(
    volume: &VolumeConfig,
    islands: &BTreeMap<IslandId, Arc<D>>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, RebuildError> {
    let all = volume.islands();
    if let Some(island) = islands.keys().find(|island| !all.contains(island)) {
        return Err(RebuildError::Stranger { island: *island });
    }
    let missing: Vec<IslandId> = all.into_iter().filter(|island| !islands.contains_key(island)).collect();
    if !missing.is_empty() {
        return Err(RebuildError::Incomplete { missing });
    }
    let is_wide = volume.kind == VolumeKind::Wide;
    if let Some(island) = islands.iter().find(|(_, disk)| is_wide || sites::is_site(disk)) {
        return Err(RebuildError::Site { island: *island.0 });
    }
    let mut summary = Summary::default();
    let tree = unite::unite(volume, islands, &mut summary, progress)?;
    let plan = plan::plan(volume, islands, tree, &mut summary)?;
    places::place_bodies(islands, &plan, &mut summary)?;
    rows::write(volume, islands, &plan, &mut summary, progress)?;
    switch::switch(volume, islands, options, &plan, &mut summary, progress)?;
    Ok(summary)
}
