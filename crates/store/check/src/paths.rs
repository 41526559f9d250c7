//! Where files and directories are in their volume, for people who are told what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Name};
use atoll_posix::Kind;

use crate::Rows;

/// Names of a path at most; a longer one goes in a circle.
const DEPTH_MAX: usize = 4096;

/// All paths of these ids that the islands know, from the root of the volume, escaped. Of what has no
/// name, or lies in a directory that no island here knows, there is none.
pub fn paths(islands: &[Rows], wanted: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<String>> {
    let mut found: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    for ino in wanted {
        if let Some(path) = dir_path(islands, *ino) {
            found.entry(*ino).or_default().push(shown(&path));
        }
    }
    // One walk over all names, whatever the number of ids.
    for (dir, names) in islands.iter().flat_map(|rows| &rows.names) {
        for (_, name, entry) in names.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory) {
            if wanted.contains(&entry.ino)
                && let Some(mut path) = dir_path(islands, *dir)
            {
                path.push(name);
                found.entry(entry.ino).or_default().push(shown(&path));
            }
        }
    }
    for paths in found.values_mut() {
        paths.sort();
        paths.dedup();
    }
    found
}

fn dir_path(islands: &[Rows], ino: Ino) -> Option<Vec<&Name>> {
    let (mut names, mut at) = (Vec::new(), ino);
    while at != Ino::ROOT {
        let place = &islands.iter().find_map(|rows| rows.dirs.get(&at))?.place;
        names.push(place.name.as_ref()?);
        at = place.parent;
        if names.len() > DEPTH_MAX {
            return None;
        }
    }
    names.reverse();
    Some(names)
}

fn shown(names: &[&Name]) -> String {
    match names {
        [] => "/".to_owned(),
        all => all.iter().map(|name| format!("/{name}")).collect(),
    }
}
