//! The plan of a rebuild: an owner, key and id for each directory, a home and id for each file. Changes
//! nothing on a disk. Reads bytes only to tell whether two files of one name are the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use atoll_core::{Ino, IslandId, Key, Name, PathHash, Table};
use atoll_disk::{Disk, FileKind};
use atoll_proto::VolumeConfig;

use crate::read::same_content;
use crate::unite::{DirAt, DirNode, FileAt, Tree};
use crate::{Disks, RebuildError, Summary, Why};

/// Ids that are passed over: more than an island can have minted that no tree shows any more, because
/// what had them is gone. Ids are never used again.
const IDS_PASSED_OVER: u64 = 1 << 32;

/// A directory's place among the islands.
pub(crate) struct DirPlan {
    pub(crate) ino: Ino,
    pub(crate) key: Key,
    pub(crate) owner: IslandId,
    /// Islands that have it in their skeletons, in order.
    pub(crate) skeleton: Vec<IslandId>,
}

impl DirPlan {
    /// Its id, if the island has it.
    pub(crate) fn id_at(&self, island: IslandId) -> Option<Ino> {
        self.skeleton.binary_search(&island).is_ok().then_some(self.ino)
    }
}

/// A file of the new state.
pub(crate) struct FilePlan {
    /// Its native object.
    pub(crate) file: FileAt,
    /// The island that has that.
    pub(crate) home: IslandId,
    pub(crate) ino: Ino,
    pub(crate) nlink: u32,
    /// One name of it.
    pub(crate) name: (DirAt, Name),
}

/// The new state, and native files that will be left over.
pub(crate) struct Plan {
    pub(crate) tree: Tree,
    /// In the order of [`Tree::dirs`].
    pub(crate) dirs: Vec<DirPlan>,
    pub(crate) files: Vec<FilePlan>,
    /// Which file each name stands for, in the order of the names.
    pub(crate) names: Vec<Vec<(Name, usize)>>,
    /// For each island the counter below which ids may have been minted.
    pub(crate) mint_limits: BTreeMap<IslandId, u64>,
    /// Names in trees of islands that do not have them any more.
    pub(crate) left_names: Vec<(FileAt, DirAt, Name)>,
    /// Objects whose place among the bodies is another one now, or none.
    pub(crate) left_bodies: Vec<(FileAt, Ino)>,
}

struct Planning<'a, D: Disk> {
    disks: &'a Disks<D>,
    tree: Tree,
    dirs: Vec<DirPlan>,
    files: Vec<FilePlan>,
    names: Vec<Vec<(Name, usize)>>,
    /// Which file each native object is.
    became: HashMap<FileAt, usize>,
    /// Native objects that keep a name although the state has none of it.
    kept: HashSet<FileAt>,
    left_names: Vec<(FileAt, DirAt, Name)>,
    next: BTreeMap<IslandId, u64>,
    used: HashSet<Ino>,
    summary: &'a mut Summary,
}

pub(crate) fn plan<D: Disk>(
    volume: &VolumeConfig,
    disks: &Disks<D>,
    tree: Tree,
    summary: &mut Summary,
) -> Result<Plan, RebuildError> {
    let first = |island: &IslandId| {
        let seen = tree.counters.get(island).copied().unwrap_or_default();
        (*island, seen.max(Ino::FIRST_COUNTER) + IDS_PASSED_OVER)
    };
    let next = disks.keys().map(first).collect();
    let mut planning = Planning {
        disks,
        tree,
        dirs: Vec::new(),
        files: Vec::new(),
        names: Vec::new(),
        became: HashMap::new(),
        kept: HashSet::new(),
        left_names: Vec::new(),
        next,
        used: HashSet::new(),
        summary,
    };
    planning.directories(volume);
    for dir in 0..planning.tree.dirs.len() {
        planning.names_of(dir)?;
    }
    planning.skeletons();
    let left_bodies = planning.leftovers();
    planning.summary.dirs = planning.dirs.len() as u64;
    planning.summary.files = planning.files.len() as u64;
    Ok(Plan {
        tree: planning.tree,
        dirs: planning.dirs,
        files: planning.files,
        names: planning.names,
        mint_limits: planning.next,
        left_names: planning.left_names,
        left_bodies,
    })
}

impl<D: Disk> Planning<'_, D> {
    fn mint(&mut self, island: IslandId) -> Ino {
        let next = self.next.get_mut(&island).expect("all islands of the table are there");
        *next += 1;
        Ino::mint(island, *next - 1)
    }

    // -------------------------------------------------------------- directories

    fn directories(&mut self, volume: &VolumeConfig) {
        let mut buckets: BTreeMap<IslandId, Vec<u32>> = BTreeMap::new();
        for (bucket, owner) in (0..).zip(volume.table.owners()) {
            buckets.entry(*owner).or_default().push(bucket);
        }
        for at in 0..self.tree.dirs.len() {
            let node = &self.tree.dirs[at];
            let (owner, key) = owner_of(at, node, volume, &buckets);
            let ino = match at {
                0 => Ino::ROOT,
                // As mkdir does: by the owner of the directory above.
                _ => self.mint(self.dirs[self.tree.dirs[at].parent].owner),
            };
            self.dirs.push(DirPlan { ino, key, owner, skeleton: vec![owner] });
        }
    }

    /// An island has the directories that it owns, those with names of its files, and all above them.
    fn skeletons(&mut self) {
        for (dir, names) in self.dirs.iter_mut().zip(&self.names) {
            dir.skeleton.extend(names.iter().map(|(_, file)| self.files[*file].home));
            dir.skeleton.sort();
            dir.skeleton.dedup();
        }
        // The root is in every skeleton, whatever is below it.
        self.dirs[0].skeleton = self.disks.keys().copied().collect();
        for at in (1..self.dirs.len()).rev() {
            let below = std::mem::take(&mut self.dirs[at].skeleton);
            let above = &mut self.dirs[self.tree.dirs[at].parent].skeleton;
            for island in &below {
                if let Err(i) = above.binary_search(island) {
                    above.insert(i, *island);
                }
            }
            self.dirs[at].skeleton = below;
        }
    }

    // -------------------------------------------------------------------- files

    fn names_of(&mut self, dir: DirAt) -> Result<(), RebuildError> {
        let owner = self.dirs[dir].owner;
        let children: Vec<(Name, Option<DirAt>, Vec<FileAt>)> = self.tree.dirs[dir]
            .children
            .iter()
            .map(|(name, child)| (name.clone(), child.dir, child.files.clone()))
            .collect();
        let mut names = Vec::new();
        for (name, below, mut files) in children {
            if below.is_some() {
                for file in files {
                    self.leave(file, dir, &name, Why::Directory);
                }
                continue;
            }
            // Who owns the directory is the one judge of its names.
            let tree = &self.tree;
            files.sort_by_key(|at| {
                let file = &tree.files[*at];
                (file.island != owner, std::cmp::Reverse(file.stat.mtime), file.island)
            });
            let Some((chosen, others)) = files.split_first() else { continue };
            for other in others {
                if same_content(self.disks, &self.tree, *chosen, *other, dir, &name)? {
                    self.left_names.push((*other, dir, name.clone()));
                } else {
                    self.leave(*other, dir, &name, Why::Other);
                }
            }
            let at = self.file_at(*chosen, (dir, &name));
            self.files[at].nlink += 1;
            self.summary.names += 1;
            self.summary.pointers += u64::from(self.files[at].home != owner);
            names.push((name, at));
        }
        self.names.push(names);
        Ok(())
    }

    fn leave(&mut self, file: FileAt, dir: DirAt, name: &Name, why: Why) {
        self.kept.insert(file);
        let path = self.tree.path(dir, name.as_bytes());
        self.summary.left_out(self.tree.files[file].island, path, why);
    }

    /// The file of a native object: one, however many names it has in directories of whichever island.
    fn file_at(&mut self, file: FileAt, (dir, name): (DirAt, &Name)) -> usize {
        if let Some(at) = self.became.get(&file) {
            return *at;
        }
        let home = self.tree.files[file].island;
        // A client reads a file's home off its id.
        let kept = self.tree.files[file].body.filter(|ino| ino.minted_by() == home);
        let kept = kept.filter(|ino| self.used.insert(*ino));
        let ino = kept.unwrap_or_else(|| self.mint(home));
        let name = (dir, name.clone());
        self.files.push(FilePlan { file, home, ino, nlink: 0, name });
        let at = self.files.len() - 1;
        self.became.insert(file, at);
        at
    }

    /// Objects that have another id now, or no name that was taken in, with the id that they had.
    fn leftovers(&self) -> Vec<(FileAt, Ino)> {
        let mut left = Vec::new();
        for (at, file) in self.tree.files.iter().enumerate() {
            let Some(body) = file.body else { continue };
            let stays = match self.became.get(&at) {
                Some(i) => self.files[*i].ino == body,
                None => self.kept.contains(&at),
            };
            if !stays {
                left.push((at, body));
            }
        }
        left
    }
}

/// The island that gets a directory, and a key that leads to it.
fn owner_of(
    at: DirAt,
    node: &DirNode,
    volume: &VolumeConfig,
    buckets: &BTreeMap<IslandId, Vec<u32>>,
) -> (IslandId, Key) {
    let hashed = node.hash.key();
    let by_hash = volume.owner(hashed);
    if at == 0 {
        return (by_hash, hashed); // Everybody knows the root's key.
    }
    let may_own = node.seen.iter().filter(|seen| buckets.contains_key(&seen.island));
    let best = may_own.max_by_key(|seen| {
        // Among islands that have files of it as many as others, most likely it was where its path says.
        let for_its_own_sake = seen.files == 0 && seen.subdirs == 0;
        (seen.files, for_its_own_sake, seen.island == by_hash, std::cmp::Reverse(seen.island))
    });
    let owner = best.map_or(by_hash, |seen| seen.island);
    (owner, if owner == by_hash { hashed } else { key_for(node.hash, &volume.table, &buckets[&owner]) })
}

/// A key in one of these buckets, spread evenly over them and within them.
fn key_for(hash: PathHash, table: &Table, buckets: &[u32]) -> Key {
    let bits = table.buckets().trailing_zeros();
    let hash = hash.key().0;
    let bucket = buckets[hash as usize % buckets.len()];
    match bits {
        0 => Key(hash),
        _ => Key(bucket << (32 - bits) | (hash & (u32::MAX >> bits))),
    }
}

/// The facts to compare of a native object: everything but its bytes.
pub(crate) fn alike(tree: &Tree, a: FileAt, b: FileAt) -> bool {
    let (a, b) = (&tree.files[a], &tree.files[b]);
    let rdev = matches!(a.stat.kind, FileKind::CharDevice | FileKind::BlockDevice);
    a.stat.kind == b.stat.kind
        && a.stat.size == b.stat.size
        && a.target == b.target
        && (!rdev || a.stat.rdev == b.stat.rdev)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::H3;

    #[test]
    fn a_chosen_key_leads_to_the_island_that_it_was_chosen_for() {
        for (islands, buckets) in [(1, 1), (2, 2), (4, 256), (7, 512), (300, 32_768)] {
            let table = Table::with_buckets(islands, buckets);
            let h3 = H3::new(7);
            let mut hash = PathHash::ROOT;
            for i in 0..200u16 {
                hash = h3.child(hash, &Name::new(b"x").unwrap()).unwrap();
                let owner = IslandId(i % islands);
                let mine: Vec<u32> =
                    (0..).zip(table.owners()).filter(|(_, o)| **o == owner).map(|(b, _)| b).collect();
                if !mine.is_empty() {
                    assert_eq!(table.owner(key_for(hash, &table, &mine)), owner);
                }
            }
        }
    }
}
