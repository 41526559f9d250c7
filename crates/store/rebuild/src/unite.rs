//! Reads all trees and unites them: what there is, and in which islands' trees. Decides nothing.
//!
//! Keeps everything but bytes in memory: some hundred bytes a name.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::h3::PathHash;
use atoll_core::{H3, Ino, IslandId, Name};
use atoll_disk::{Disk, FileKind, Stat};
use atoll_posix::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use atoll_posix::xattr::CAPABILITY;
use atoll_proto::{VolumeConfig, Xattrs};
use atoll_view::plain::{Found, PlainXattrs, scan};
use atoll_view::{LIMBO, TREE, spill_of};
use bytes::Bytes;

use crate::{BODIES, Disks, LOST_AND_FOUND, Progress, RebuildError, STATE_NEW, Summary, Why, at};

/// Permission bits of folders that are made.
const FOLDER_MODE: u32 = 0o700;

/// Index of a directory in [`Tree::dirs`]; the root is 0, and parents come before children.
pub(crate) type DirAt = usize;
/// Index of a file in [`Tree::files`].
pub(crate) type FileAt = usize;

/// A directory in one island's tree.
pub(crate) struct Seen {
    pub(crate) island: IslandId,
    pub(crate) stat: Stat,
    pub(crate) xattrs: Xattrs,
    /// The ids under which those were kept that the native file system refused.
    pub(crate) spilled: Vec<Ino>,
    /// Names of files in it.
    pub(crate) files: u64,
    /// Directories in it.
    pub(crate) subdirs: u64,
}

/// A directory, in whichever trees it is.
pub(crate) struct DirNode {
    pub(crate) parent: DirAt,
    /// None for the root.
    pub(crate) name: Option<Name>,
    pub(crate) hash: PathHash,
    pub(crate) seen: Vec<Seen>,
    pub(crate) children: BTreeMap<Name, Child>,
}

/// The file or directory of a name, in all trees together.
#[derive(Default)]
pub(crate) struct Child {
    pub(crate) dir: Option<DirAt>,
    /// One for each tree that has a file of this name.
    pub(crate) files: Vec<FileAt>,
}

/// A native object that is no directory.
pub(crate) struct FileNode {
    pub(crate) island: IslandId,
    /// The id of its body, if it has one.
    pub(crate) body: Option<Ino>,
    pub(crate) stat: Stat,
    pub(crate) xattrs: Xattrs,
    pub(crate) target: Option<Bytes>,
}

/// All trees in one.
pub(crate) struct Tree {
    pub(crate) dirs: Vec<DirNode>,
    pub(crate) files: Vec<FileNode>,
    /// For each island the highest counter of ids that it has minted, as far as can be seen.
    pub(crate) counters: BTreeMap<IslandId, u64>,
}

impl Tree {
    /// The path of a name in the volume, beginning with a slash.
    pub(crate) fn path(&self, dir: DirAt, name: &[u8]) -> Vec<u8> {
        let mut names = vec![name];
        let mut at = dir;
        while let Some(name) = &self.dirs[at].name {
            names.push(name.as_bytes());
            at = self.dirs[at].parent;
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev().filter(|name| !name.is_empty()) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        path
    }

    /// The native path of a name in each tree that has it.
    pub(crate) fn native(&self, dir: DirAt, name: &[u8]) -> Vec<u8> {
        [TREE, &self.path(dir, name)].concat()
    }
}

/// Reads the trees of all islands.
pub(crate) fn unite<D: Disk>(
    volume: &VolumeConfig,
    disks: &Disks<D>,
    summary: &mut Summary,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tree, RebuildError> {
    let root =
        DirNode { parent: 0, name: None, hash: PathHash::ROOT, seen: Vec::new(), children: BTreeMap::new() };
    let tree = Tree { dirs: vec![root], files: Vec::new(), counters: BTreeMap::new() };
    let mut uniting = Uniting { tree, h3: H3::new(volume.seed), natives: HashMap::new(), summary };
    for (&island, disk) in disks {
        prepare(island, disk, uniting.summary)?;
        uniting.natives.clear();
        let rescued = [TREE, b"/", LOST_AND_FOUND].concat();
        scan(&**disk, BODIES, Some(&rescued), &mut |found| {
            uniting.take(island, found);
            Ok(())
        })
        .map_err(at(island, TREE))?;
        let (dirs, files) = (uniting.tree.dirs.len() as u64, uniting.tree.files.len() as u64);
        progress(Progress::Scanned { island, dirs, files });
    }
    Ok(uniting.tree)
}

/// Removes files that an earlier run left half done, and brings directories that were between two places into
/// the tree.
fn prepare<D: Disk>(island: IslandId, disk: &Arc<D>, summary: &mut Summary) -> Result<(), RebuildError> {
    match disk.stat(TREE) {
        Ok(stat) if stat.kind == FileKind::Directory => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(island, TREE)(error)),
        _ => return Err(RebuildError::NoTree { island }),
    }
    for stale in [STATE_NEW.to_vec(), [STATE_NEW, b".new"].concat()] {
        match disk.unlink(&stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(island, &stale)(error)),
            _ => {}
        }
    }
    Bodies::open(Arc::clone(disk), BODIES, atoll_body::Options::default()).map_err(at(island, BODIES))?;
    make_dir(&**disk, LIMBO).map_err(at(island, LIMBO))?;
    rescue(&**disk, summary).map_err(at(island, LIMBO))
}

fn make_dir<D: Disk>(disk: &D, path: &[u8]) -> io::Result<()> {
    match disk.mkdir(path, FOLDER_MODE) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A directory in limbo was on its way when the daemon died, and only the state knew where to.
fn rescue<D: Disk>(disk: &D, summary: &mut Summary) -> io::Result<()> {
    for (name, kind) in disk.list(LIMBO)? {
        let from = [LIMBO, b"/", &name].concat();
        if !name.starts_with(b"d") || kind != FileKind::Directory || disk.list(&from)?.is_empty() {
            continue;
        }
        let folder = [TREE, b"/", LOST_AND_FOUND].concat();
        make_dir(disk, &folder)?;
        let mut to = [&folder[..], b"/", &name].concat();
        // Taken, if an earlier rescue brought another directory of this id.
        while let Err(error) = disk.rename(&from, &to, false) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            to.push(b'+');
        }
        summary.rescued += 1;
    }
    Ok(())
}

struct Uniting<'a> {
    tree: Tree,
    h3: H3,
    /// Files of the island that is being read, by native inode number.
    natives: HashMap<u64, FileAt>,
    summary: &'a mut Summary,
}

impl Uniting<'_> {
    fn take(&mut self, island: IslandId, found: Found) {
        match found {
            Found::Dir { path, stat, xattrs, spilled } => {
                // Ids of directories are given out anew: never one under which something lies.
                spilled.iter().for_each(|ino| self.see_id(*ino));
                self.take_dir(island, &path, stat, xattrs, spilled);
            }
            Found::File { path, ino, stat, xattrs, target } => {
                self.take_file(island, &path, ino, stat, xattrs, target);
            }
            Found::Nameless { ino, .. } => {
                self.see_id(ino);
                self.summary.nameless += 1;
            }
            Found::Stray { path, why } => {
                let ino = path.rsplit(|byte| *byte == b'/').next().and_then(spill_of);
                ino.into_iter().for_each(|(ino, _)| self.see_id(ino));
                self.summary.left_out(island, path, Why::Xattrs(why));
            }
            // Empty: others were brought into the tree.
            Found::Limbo { ino, .. } => self.see_id(ino),
        }
    }

    fn see_id(&mut self, ino: Ino) {
        let counter = ino.0 & ((1 << Ino::COUNTER_BITS) - 1);
        let highest = self.tree.counters.entry(ino.minted_by()).or_default();
        *highest = (*highest).max(counter);
    }

    /// The directory of a path, which was found before everything in it; none below one that was
    /// left out.
    fn find(&self, names: &[Vec<u8>]) -> Option<DirAt> {
        names.iter().try_fold(0, |dir, name| self.tree.dirs[dir].children.get(&name[..])?.dir)
    }

    /// Counts something found in a directory.
    fn seen(&mut self, dir: DirAt, island: IslandId) -> Option<&mut Seen> {
        self.tree.dirs[dir].seen.iter_mut().find(|seen| seen.island == island)
    }

    fn take_dir(
        &mut self,
        island: IslandId,
        path: &[Vec<u8>],
        stat: Stat,
        xattrs: PlainXattrs,
        spilled: Vec<Ino>,
    ) {
        let at = match path.split_last() {
            None => 0,
            Some((name, above)) => {
                let Some(parent) = self.find(above) else { return };
                let name = Name::new(name).expect("a native name is one");
                let Some(hash) = self.h3.child(self.tree.dirs[parent].hash, &name) else {
                    return self.too_long(island, parent, &name);
                };
                if let Some(seen) = self.seen(parent, island) {
                    seen.subdirs += 1;
                }
                let next = self.tree.dirs.len();
                let child = self.tree.dirs[parent].children.entry(name.clone()).or_default();
                let at = *child.dir.get_or_insert(next);
                if at == next {
                    let (seen, children) = (Vec::new(), BTreeMap::new());
                    self.tree.dirs.push(DirNode { parent, name: Some(name), hash, seen, children });
                }
                at
            }
        };
        let xattrs = managed(xattrs);
        self.tree.dirs[at].seen.push(Seen { island, stat, xattrs, spilled, files: 0, subdirs: 0 });
    }

    fn take_file(
        &mut self,
        island: IslandId,
        path: &[Vec<u8>],
        body: Option<Ino>,
        stat: Stat,
        xattrs: PlainXattrs,
        target: Option<Vec<u8>>,
    ) {
        let Some((name, above)) = path.split_last() else { return };
        let Some(dir) = self.find(above) else { return };
        let name = Name::new(name).expect("a native name is one");
        if self.h3.child(self.tree.dirs[dir].hash, &name).is_none() {
            return self.too_long(island, dir, &name);
        }
        if let Some(ino) = body {
            self.see_id(ino);
        }
        if let Some(seen) = self.seen(dir, island) {
            seen.files += 1;
        }
        let at = *self.natives.entry(stat.ino).or_insert_with(|| {
            let target = target.map(Bytes::from);
            self.tree.files.push(FileNode { island, body, stat, xattrs: managed(xattrs), target });
            self.tree.files.len() - 1
        });
        self.tree.dirs[dir].children.entry(name).or_default().files.push(at);
    }

    fn too_long(&mut self, island: IslandId, dir: DirAt, name: &Name) {
        let path = self.tree.path(dir, name.as_bytes());
        self.summary.left_out(island, path, Why::TooLong);
    }
}

/// The extended attributes that a state keeps, in order. ACLs that say nothing are none.
fn managed(plain: PlainXattrs) -> Xattrs {
    let mut xattrs = Xattrs::default();
    for (name, value) in plain {
        let kept = match &name[..] {
            ACCESS_XATTR | DEFAULT_XATTR => match Acl::parse(&value) {
                Ok(Some(acl)) => Some(acl.to_xattr()),
                _ => None,
            },
            CAPABILITY => Some(value),
            name if name.starts_with(b"user.") || name.starts_with(b"trusted.") => Some(value),
            _ => None,
        };
        if let Some(value) = kept {
            xattrs.set(name.into(), value.into());
        }
    }
    xattrs
}
