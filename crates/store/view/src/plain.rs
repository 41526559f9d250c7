//! Reads a plain tree back, for making a state from trees alone (`atoll rebuild`). Yields what is there;
//! decides and changes nothing.

use std::collections::HashMap;
use std::io;

use atoll_core::Ino;
use atoll_disk::{Disk, FileKind, Stat};

use crate::{LIMBO, Spilled, TREE, XATTRS, join, spill_of, spill_path};

/// Extended attributes: names and values, those among them that the native file system refused.
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
        /// The ids under which extended attributes of it were kept that the native file system refused.
        spilled: Vec<Ino>,
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
    /// Extended attributes that the native file system refused, and of which nothing tells whose they are.
    Stray {
        /// The file in which they are kept.
        path: Vec<u8>,
        /// Why, in words for people.
        why: &'static str,
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
///
/// `rescued` is the folder, if there is one, to which directories were brought that were in `limbo/`.
pub fn scan<D: Disk>(
    disk: &D,
    bodies_prefix: &[u8],
    rescued: Option<&[u8]>,
    found: &mut dyn FnMut(Found) -> io::Result<()>,
) -> io::Result<()> {
    let bodies = read_bodies(disk, bodies_prefix)?;
    let mut spills = Spills::read(disk, rescued)?;
    let (stat, xattrs) = (disk.stat(TREE)?, disk.xattrs(TREE)?);
    let (xattrs, spilled) = spills.with_those_of_dir(disk, TREE, xattrs)?;
    found(Found::Dir { path: Vec::new(), stat, xattrs, spilled })?;
    let mut scanning = Scanning { disk, bodies, spills };
    scanning.walk(TREE, Vec::new(), found)?;
    for (name, kind) in disk.list(LIMBO)? {
        let Some(ino) = name.strip_prefix(b"d").and_then(atoll_body::ino_of) else { continue };
        if kind == FileKind::Directory {
            let path = join(LIMBO, &name);
            let (stat, xattrs) = (disk.stat(&path)?, disk.xattrs(&path)?);
            found(Found::Limbo { ino, name: name.clone(), stat, xattrs })?;
            scanning.walk(LIMBO, vec![name], found)?;
        }
    }
    let Scanning { bodies, spills, .. } = scanning;
    let mut nameless: Vec<_> = bodies.into_values().filter(|body| !body.named).collect();
    nameless.sort_by_key(|body| body.ino);
    for Body { ino, stat, .. } in nameless {
        found(Found::Nameless { ino, stat })?;
    }
    for (path, why) in spills.strays() {
        found(Found::Stray { path, why })?;
    }
    Ok(())
}

/// Refused attributes whose file is not found yet.
struct Spills {
    /// Of bodies, and whether one was found.
    files: HashMap<Ino, bool>,
    /// By the native paths of directories.
    dirs: HashMap<Vec<u8>, Vec<Ino>>,
    /// Files that cannot be read.
    bad: Vec<(Vec<u8>, &'static str)>,
}

impl Spills {
    fn read<D: Disk>(disk: &D, rescued: Option<&[u8]>) -> io::Result<Self> {
        let mut spills = Self { files: HashMap::new(), dirs: HashMap::new(), bad: Vec::new() };
        for name in crate::spill::list(disk)? {
            let path = join(XATTRS, &name);
            match spill_of(&name) {
                None => spills.bad.push((path, "it was not put there by Atoll")),
                Some((ino, false)) => drop(spills.files.insert(ino, false)),
                Some((ino, true)) => match Spilled::read(disk, &path)? {
                    None => {}
                    Some(Err(why)) => spills.bad.push((path, why)),
                    Some(Ok(spilled)) => {
                        let in_limbo =
                            spilled.path.strip_prefix(LIMBO).filter(|rest| rest.first() == Some(&b'/'));
                        let path = match (in_limbo, rescued) {
                            (Some(rest), Some(folder)) => [folder, rest].concat(),
                            _ => spilled.path,
                        };
                        spills.dirs.entry(path).or_default().push(ino);
                    }
                },
            }
        }
        Ok(spills)
    }

    /// Extended attributes of a directory, with those that were refused, and the ids under which these were kept.
    fn with_those_of_dir<D: Disk>(
        &mut self,
        disk: &D,
        path: &[u8],
        native: PlainXattrs,
    ) -> io::Result<(PlainXattrs, Vec<Ino>)> {
        // An interrupted rebuild may have left one under an older id.
        let ids = self.dirs.remove(path).unwrap_or_default();
        let mut all = native;
        for ino in &ids {
            let spilled = Spilled::read(disk, &spill_path(*ino, true))?.and_then(Result::ok);
            all = crate::audit::merged(all, spilled.as_ref());
        }
        Ok((all, ids))
    }

    /// Extended attributes of what is no directory, with those that were refused.
    fn with_those_of_file<D: Disk>(
        &mut self,
        disk: &D,
        ino: Ino,
        native: PlainXattrs,
    ) -> io::Result<PlainXattrs> {
        match self.files.get_mut(&ino) {
            Some(is_found) => *is_found = true,
            None => return Ok(native),
        }
        let path = spill_path(ino, false);
        Ok(match Spilled::read(disk, &path)? {
            Some(Ok(spilled)) => crate::audit::merged(native, Some(&spilled)),
            Some(Err(why)) => {
                self.files.remove(&ino);
                self.bad.push((path, why));
                native
            }
            None => native,
        })
    }

    fn strays(self) -> Vec<(Vec<u8>, &'static str)> {
        const NOBODYS: &str = "nothing is there that has these extended attributes";
        let dirs = self.dirs.into_values().flatten().map(|ino| (ino, true));
        let files = self.files.into_iter().filter(|(_, is_found)| !is_found).map(|(ino, _)| (ino, false));
        let lost = dirs.chain(files).map(|(ino, is_dir)| (spill_path(ino, is_dir), NOBODYS));
        let mut all: Vec<_> = self.bad.into_iter().chain(lost).collect();
        all.sort();
        all
    }
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

struct Scanning<'a, D: Disk> {
    disk: &'a D,
    bodies: HashMap<u64, Body>,
    spills: Spills,
}

impl<D: Disk> Scanning<'_, D> {
    fn walk(
        &mut self,
        base: &[u8],
        start: Vec<Vec<u8>>,
        found: &mut dyn FnMut(Found) -> io::Result<()>,
    ) -> io::Result<()> {
        let disk = self.disk;
        let mut left = vec![start];
        while let Some(dir) = left.pop() {
            let native = dir.iter().fold(base.to_vec(), |path, name| join(&path, name));
            for (name, kind) in disk.list(&native)? {
                let at = join(&native, &name);
                let (stat, xattrs) = (disk.stat(&at)?, disk.xattrs(&at)?);
                let mut path = dir.clone();
                path.push(name);
                if kind == FileKind::Directory {
                    let (xattrs, spilled) = self.spills.with_those_of_dir(disk, &at, xattrs)?;
                    found(Found::Dir { path: path.clone(), stat, xattrs, spilled })?;
                    left.push(path);
                    continue;
                }
                let ino = self.bodies.get_mut(&stat.ino).map(|body| {
                    body.named = true;
                    body.ino
                });
                let xattrs = match ino {
                    Some(ino) => self.spills.with_those_of_file(disk, ino, xattrs)?,
                    None => xattrs,
                };
                let target = if kind == FileKind::Symlink { Some(disk.readlink(&at)?) } else { None };
                found(Found::File { path, ino, stat, xattrs, target })?;
            }
        }
        Ok(())
    }
}
