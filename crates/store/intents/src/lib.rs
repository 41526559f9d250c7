//! What a union writes down before it renames a directory in several members, in a folder outside all of them.
//!
//! Each process that needs it has one file there, and holds it locked. A file that nobody holds was left by a process that
//! died: whoever shows one of its members next settles what it says. Decides nothing; knows no member.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use atoll_core::wire_struct;
use atoll_posix::Errno;
use atoll_union::{Intent, Tag};
use bytes::Bytes;

use file::IntentFile;
pub use file::LeftIntents;

/// Keeps intents of a running union.
pub trait Intents: Send + Sync {
    /// Writes an intent down so that it survives a power cut, in place of the one that had this number.
    fn keep(&self, id: u64, intent: &Intent) -> Result<(), Errno>;

    /// This one is not needed any more. That may be forgotten by a power cut.
    fn over(&self, id: u64);
}

wire_struct! {
    /// How a member is found again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IntentMember {
        /// Its number in the intents.
        pub tag: Tag,
        /// Where it was.
        pub path: Bytes,
        /// What tells its file system from all others.
        pub file_system: Bytes,
        /// What tells its root from all other directories there.
        pub root: Bytes,
        /// What tells its machine from all others.
        pub host: Bytes,
    }
}

/// The intents of a running union, in a file that is made with the first one.
pub struct KeptIntents {
    dir: PathBuf,
    kept: Mutex<Kept>,
}

struct Kept {
    members: Vec<IntentMember>,
    file: Option<IntentFile>,
}

impl KeptIntents {
    /// Those of a union with these members, to be kept in `dir`, which is made when it is needed.
    pub fn new(dir: PathBuf, members: Vec<IntentMember>) -> Self {
        Self { dir, kept: Mutex::new(Kept { members, file: None }) }
    }

    /// Its members are these from now on. Members that intents still speak of must be among them.
    pub fn set_members(&self, members: Vec<IntentMember>) -> io::Result<()> {
        let mut kept = self.kept();
        if let Some(file) = &mut kept.file {
            file.set_members(&members)?;
        }
        kept.members = members;
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no holder panics")
    }
}

impl Intents for KeptIntents {
    fn keep(&self, id: u64, intent: &Intent) -> Result<(), Errno> {
        let Kept { members, file } = &mut *self.kept();
        let keep = |file: &mut Option<IntentFile>| -> io::Result<()> {
            let file = match file {
                Some(file) => file,
                None => file.insert(IntentFile::make(&self.dir, members)?),
            };
            file.keep(id, intent)
        };
        keep(file).map_err(|why| {
            let shown = self.dir.display();
            tracing::error!("a directory in several members is not renamed: cannot write in {shown}: {why}");
            *file = None; // What was written last may be torn. The next one begins a new file.
            why.raw_os_error().map_or(Errno::EIO, Errno)
        })
    }

    fn over(&self, id: u64) {
        if let Some(file) = &mut self.kept().file
            && let Err(why) = file.over(id)
        {
            // The next start finds that the rename was made.
            tracing::warn!("cannot write in {}: {why}", self.dir.display());
        }
    }
}

impl Drop for KeptIntents {
    fn drop(&mut self) {
        if let Some(file) = self.kept().file.take() {
            file.remove_if_over();
        }
    }
}

/// What processes that died have left in a folder. Files that a process holds are not touched; files that say nothing
/// are removed. An error names the file.
pub fn left_in(dir: &Path) -> io::Result<Vec<LeftIntents>> {
    let names = match std::fs::read_dir(dir) {
        Ok(names) => names,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let mut left = Vec::new();
    for entry in names {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == file::EXTENSION)
            && let Some(found) = LeftIntents::open(&path)
                .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))?
        {
            left.push(found);
        }
    }
    Ok(left)
}

/// Intents in memory: they survive the union that wrote them, as a file does.
#[derive(Debug, Default)]
pub struct SimIntents(Mutex<BTreeMap<u64, Intent>>);

impl SimIntents {
    /// Those that are not over, by their numbers.
    pub fn open(&self) -> BTreeMap<u64, Intent> {
        self.0.lock().expect("no holder panics").clone()
    }
}

impl Intents for SimIntents {
    fn keep(&self, id: u64, intent: &Intent) -> Result<(), Errno> {
        self.0.lock().expect("no holder panics").insert(id, intent.clone());
        Ok(())
    }

    fn over(&self, id: u64) {
        self.0.lock().expect("no holder panics").remove(&id);
    }
}
