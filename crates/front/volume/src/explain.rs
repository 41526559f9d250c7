//! Where files and directories of mounted volumes are, and why there; paths that have an id.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value};

use crate::kind::{Manner, attach};
use crate::reach::InMount;
use crate::union::explain::explain_in;

/// Milliseconds that a question about a name waits for a node that is away.
const PATIENCE_MS: u64 = 2_000;

/// Where a file or directory is, and why there. What there is to say differs too much between kinds of volumes for
/// fields.
#[derive(Debug, Default)]
pub struct Explanation {
    /// For people: labels and texts, in the order in which they are read.
    pub rows: Vec<(&'static str, String)>,
    /// For programs.
    pub json: Map<String, Value>,
}

/// Explains where the file or directory at a path of a mounted volume is.
pub fn explain(path: &Path) -> Result<Explanation> {
    let place = InMount::of(path)?;
    let mut explained = match explain_in(&place.mount, &place.names)? {
        Some(explained) => explained,
        None => {
            let attached = attach(place.reach()?, Manner::tool(PATIENCE_MS))?;
            let explained = attached.explain(&place.names, &place.mount.path);
            attached.stop();
            explained?
        }
    };
    explained.rows.insert(0, ("path", place.path.display().to_string()));
    explained.json.insert("path".to_owned(), place.path.display().to_string().into());
    Ok(explained)
}

/// Paths below `top` that have the id, and how many directories could not be read.
pub fn paths_of(top: &Path, id: u64) -> (Vec<PathBuf>, u64) {
    use std::os::unix::fs::{DirEntryExt, MetadataExt};
    let (mut found, mut unread) = (Vec::new(), 0);
    if std::fs::symlink_metadata(top).is_ok_and(|about| about.ino() == id) {
        found.push(top.to_owned());
    }
    let mut left = vec![top.to_owned()];
    while let Some(dir) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            unread += 1;
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                unread += 1;
                break;
            };
            if entry.ino() == id {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    found.sort();
    (found, unread)
}
