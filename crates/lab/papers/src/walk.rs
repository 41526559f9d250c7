//! Reads the directories below a root: what each holds, and the key that it would have in a volume.
//!
//! Follows no symbolic link and opens no file; what cannot be read is skipped and counted.

use atoll_core::{H3, Key, Name, PathHash};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One directory, without what is in the directories below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// Hash of its path below the root, which is taken as the root of a volume.
    pub key: Key,
    /// Names in it that are no directories.
    pub files: u64,
    /// Lengths of the regular files in it, in bytes.
    pub bytes: u64,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// Every directory, the root first.
    pub directories: Vec<Directory>,
    /// Directories and files that could not be read, and paths too long for a volume.
    pub skipped: u64,
}

/// Walks everything below `root`, on whatever file systems it lies.
///
/// A file with several names counts as several files, but its bytes only where its first name is met, as
/// they have one home in a volume. Directories are visited in the order of their names.
///
/// # Errors
/// If `root` itself is no directory that can be read.
pub fn walk(root: &Path, h3: &H3) -> io::Result<Tree> {
    let mut tree = Tree::default();
    let mut linked = HashSet::new();
    let mut todo: Vec<(PathBuf, PathHash)> = Vec::new();
    visit(root, PathHash::ROOT, h3, &mut tree, &mut linked, &mut todo)?;
    while let Some((path, hash)) = todo.pop() {
        if visit(&path, hash, h3, &mut tree, &mut linked, &mut todo).is_err() {
            tree.skipped += 1;
        }
    }
    Ok(tree)
}

/// Counts one directory and notes those in it.
fn visit(
    path: &Path,
    hash: PathHash,
    h3: &H3,
    tree: &mut Tree,
    linked: &mut HashSet<(u64, u64)>,
    todo: &mut Vec<(PathBuf, PathHash)>,
) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(_) => tree.skipped += 1,
        }
    }
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    let mut directory = Directory { key: hash.key(), files: 0, bytes: 0 };
    let below = todo.len();
    for entry in entries {
        let Ok(meta) = entry.metadata() else {
            tree.skipped += 1;
            continue;
        };
        if meta.is_dir() {
            let name = Name::new(entry.file_name().as_bytes()).ok();
            match name.and_then(|name| h3.child(hash, &name)) {
                Some(child) => todo.push((entry.path(), child)),
                None => tree.skipped += 1,
            }
            continue;
        }
        directory.files += 1;
        if meta.is_file() && (meta.nlink() == 1 || linked.insert((meta.dev(), meta.ino()))) {
            directory.bytes += meta.len();
        }
    }
    // The stack gives back the last first.
    todo[below..].reverse();
    tree.directories.push(directory);
    Ok(())
}
