//! Reading a plain tree back, for making a state from trees alone (`atoll rebuild`). Yields what is
//! there; decides and changes nothing.

use std::collections::HashMap;
use std::io;

use atoll_core::Ino;
use atoll_disk::{Disk, FileKind, Stat};

use crate::{LIMBO, TREE, join};

/// Extended attributes: names and values.
pub type PlainXattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Something that a scan finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A directory, before everything in it. The root has no names.
    Dir {
        /// Names from the root of the tree down.
        path: Vec<Vec<u8>>,
        /// Native attributes.
        stat: Stat,
        /// Extended attributes.
        xattrs: PlainXattrs,
    },
    /// A name of anything but a directory. Names of one file have the same native inode number.
    File {
        /// Names from the root of the tree down.
        path: Vec<Vec<u8>>,
        /// The id of the body that it is a link to; none if somebody put it there by hand.
        ino: Option<Ino>,
        /// Native attributes.
        stat: Stat,
        /// Extended attributes.
        xattrs: PlainXattrs,
        /// Target of a symbolic link.
        target: Option<Vec<u8>>,
    },
    /// A body that has no name in the tree.
    Nameless {
        /// Its id.
        ino: Ino,
        /// Native attributes.
        stat: Stat,
    },
    /// A directory that was on its way between two places, with its id; what is in it follows like
    /// that of others, with this name as the first of the path.
    Limbo {
        /// Its id.
        ino: Ino,
        /// Its name in limbo, first of the paths of what is in it.
        name: Vec<u8>,
        /// Native attributes.
        stat: Stat,
        /// Extended attributes.
        xattrs: PlainXattrs,
    },
}

/// Walks `tree/`, what is in `limbo/`, and the bodies beneath `bodies_prefix`, and hands everything
/// to `found`; its first error ends the walk. Keeps one entry a body in memory.
pub fn scan<D: Disk>(
    disk: &D,
    bodies_prefix: &[u8],
    found: &mut dyn FnMut(Found) -> io::Result<()>,
) -> io::Result<()> {
    let mut bodies = read_bodies(disk, bodies_prefix)?;
    let root = Found::Dir { path: Vec::new(), stat: disk.stat(TREE)?, xattrs: disk.xattrs(TREE)? };
    found(root)?;
    walk(disk, TREE, Vec::new(), &mut bodies, found)?;
    for (name, kind) in disk.list(LIMBO)? {
        let Some(ino) = name.strip_prefix(b"d").and_then(atoll_body::ino_of) else { continue };
        if kind == FileKind::Directory {
            let path = join(LIMBO, &name);
            let (stat, xattrs) = (disk.stat(&path)?, disk.xattrs(&path)?);
            found(Found::Limbo { ino, name: name.clone(), stat, xattrs })?;
            walk(disk, LIMBO, vec![name], &mut bodies, found)?;
        }
    }
    let mut nameless: Vec<_> = bodies.into_values().filter(|body| !body.named).collect();
    nameless.sort_by_key(|body| body.ino);
    for Body { ino, stat, .. } in nameless {
        found(Found::Nameless { ino, stat })?;
    }
    Ok(())
}

struct Body {
    ino: Ino,
    stat: Stat,
    named: bool,
}

fn read_bodies<D: Disk>(disk: &D, prefix: &[u8]) -> io::Result<HashMap<u64, Body>> {
    let mut bodies = HashMap::new();
    for (folder, kind) in disk.list(prefix)? {
        if kind != FileKind::Directory {
            continue;
        }
        let folder = join(prefix, &folder);
        for (name, _) in disk.list(&folder)? {
            if let Some(ino) = atoll_body::ino_of(&name) {
                let stat = disk.stat(&join(&folder, &name))?;
                bodies.insert(stat.ino, Body { ino, stat, named: false });
            }
        }
    }
    Ok(bodies)
}

fn walk<D: Disk>(
    disk: &D,
    base: &[u8],
    start: Vec<Vec<u8>>,
    bodies: &mut HashMap<u64, Body>,
    found: &mut dyn FnMut(Found) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = vec![start];
    while let Some(dir) = left.pop() {
        let native = dir.iter().fold(base.to_vec(), |path, name| join(&path, name));
        for (name, kind) in disk.list(&native)? {
            let at = join(&native, &name);
            let (stat, xattrs) = (disk.stat(&at)?, disk.xattrs(&at)?);
            let mut path = dir.clone();
            path.push(name);
            if kind == FileKind::Directory {
                found(Found::Dir { path: path.clone(), stat, xattrs })?;
                left.push(path);
                continue;
            }
            let ino = bodies.get_mut(&stat.ino).map(|body| {
                body.named = true;
                body.ino
            });
            let target = if kind == FileKind::Symlink { Some(disk.readlink(&at)?) } else { None };
            found(Found::File { path, ino, stat, xattrs, target })?;
        }
    }
    Ok(())
}
