//! The promise of plain files: with everything stopped, `cp -a` of the islands' trees into one folder
//! is what the mount showed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::place::run;
use crate::tree::{Detail, Tree, differences, list};

/// The tree as the mount shows it.
pub fn mounted(mount: &Path) -> Result<Tree> {
    list(mount, Detail { bytes: false, atime: true }).context("the mount cannot be listed")
}

/// The plain trees of all islands of all volumes of a data directory.
pub fn trees(data: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for volume in std::fs::read_dir(data.join("islands"))? {
        for island in std::fs::read_dir(volume?.path())? {
            let tree = island?.path().join("tree");
            if tree.is_dir() {
                found.push(tree);
            }
        }
    }
    ensure!(!found.is_empty(), "there is no plain tree in {}", data.display());
    found.sort();
    Ok(found)
}

/// Copies the plain trees of a stopped daemon together, and says in which way that is not `shown`.
/// Reading them marks native accesses, so times of access are only compared the `first` time.
pub fn compare(shown: &Tree, data: &Path, first: bool) -> Result<Vec<String>> {
    let merged = data.with_extension("merged");
    std::fs::create_dir(&merged)?;
    let copied = trees(data)?.iter().try_for_each(|tree| {
        // A directory that two islands have is met twice; both have the same attributes.
        run(Command::new("cp").arg("-a").arg(tree.join(".")).arg(&merged)).map(drop)
    });
    let found = copied.and_then(|()| Ok(list(&merged, Detail { bytes: false, atime: first })?));
    std::fs::remove_dir_all(&merged)?;
    let mut shown = shown.clone();
    if !first {
        shown.values_mut().for_each(|item| item.atime = None);
    }
    Ok(differences(&shown, &found?))
}
