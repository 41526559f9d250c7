//! Paths of files and directories in their volume, for the texts of findings.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use atoll_core::{Ino, Name, ShownPath};
use atoll_posix::Kind;
use atoll_proto::names_of;

use crate::Rows;

/// All paths of these ids that the islands know, from the root of the volume, escaped. A file has none if it
/// has no name, or lies in a directory that no island here knows.
pub fn paths(islands: &[Rows], wanted: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<String>> {
    let mut found: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    for ino in wanted {
        if let Some(path) = dir_path(islands, *ino) {
            found.entry(*ino).or_default().push(ShownPath(&path).to_string());
        }
    }
    // One walk over all names, whatever the number of ids.
    for (dir, names) in islands.iter().flat_map(|rows| &rows.names) {
        for (_, name, entry) in names.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory) {
            if wanted.contains(&entry.ino)
                && let Some(mut path) = dir_path(islands, *dir)
            {
                path.push(name.clone());
                found.entry(entry.ino).or_default().push(ShownPath(&path).to_string());
            }
        }
    }
    for paths in found.values_mut() {
        paths.sort();
        paths.dedup();
    }
    found
}

fn dir_path(islands: &[Rows], dir: Ino) -> Option<Vec<Name>> {
    let row = |at| islands.iter().find_map(|rows| rows.dirs.get(&at));
    let Ok(names) = names_of::<Infallible>(dir, |at| Ok(row(at).map(|row| row.place.clone())));
    names
}
