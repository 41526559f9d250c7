//! Repairs skeletons: each island has the directories that it needs, under their names, and no others.
//! Changes nothing that others can see.

use std::collections::{BTreeMap, BTreeSet};

use atoll_check::Rule;
use atoll_core::{Ino, IslandId, Key, Name};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, RowChange, Xattrs};

use crate::work::{Work, show};

impl Work<'_> {
    /// Every island has the directories that it needs.
    pub(crate) fn skeletons(&mut self) {
        for island in self.islands() {
            self.add_missing(island);
            self.drop_left_names(island);
            self.prune(island);
            self.walkable_names(island);
        }
    }

    /// Directories that an island needs: those that it owns, those with names of its files, all above them.
    fn needed(&self, island: IslandId) -> BTreeSet<Ino> {
        let rows = &self.rows[&island];
        let owned = rows.dirs.iter().filter(|(_, dir)| dir.owned.is_some()).map(|(ino, _)| *ino);
        let of_files = rows.names.iter().filter(|(_, names)| {
            let mut files = names.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory);
            files.any(|(_, _, entry)| entry.home == island && rows.inodes.contains_key(&entry.ino))
        });
        let promised = rows.dirs.iter().filter(|(_, dir)| dir.owned.is_none() && dir.foreign_names > 0);
        let promised = promised.filter(|(ino, _)| rows.in_doubt(**ino)).map(|(ino, _)| *ino);
        let mut needed = BTreeSet::from([Ino::ROOT]);
        for first in owned.chain(of_files.map(|(dir, _)| *dir)).chain(promised) {
            let mut at = first;
            while needed.insert(at) {
                let row = rows.dirs.get(&at).or_else(|| self.known(at).map(|(_, row)| row));
                match row {
                    Some(row) => at = row.place.parent,
                    None => break,
                }
            }
        }
        needed
    }

    /// A directory that is needed and missing is copied from an island that has it.
    fn add_missing(&mut self, island: IslandId) {
        for ino in self.needed(island) {
            if self.rows[&island].dirs.contains_key(&ino) || self.in_doubt(ino) {
                continue;
            }
            let Some((from, row)) = self.known(ino) else { continue };
            // Its owner's is more than a copy.
            if self.volume.owner(row.key) == island {
                continue;
            }
            let acls = self.rows[&from].xattrs.get(&ino).map(Xattrs::acls).filter(|acls| !acls.0.is_empty());
            let has_xattrs = acls.is_some();
            let row = Dir { has_xattrs, children: 0, foreign_names: 0, owned: None, ..row.clone() };
            let mut changes = vec![(island, RowChange::Dir { ino, row: Some(Box::new(row)) })];
            if has_xattrs {
                changes.push((island, RowChange::Xattrs { ino, row: acls }));
            }
            let rule = if ino == Ino::ROOT { Rule::RootThere } else { Rule::SkeletonWhole };
            let what = format!("it is in the skeleton again, as island {from} has it");
            self.fix(rule, island, Some(ino), what, changes);
        }
    }

    /// Removes names in a directory that this island does not have, if other islands know everything that
    /// they say.
    fn drop_left_names(&mut self, island: IslandId) {
        let needed = self.needed(island);
        let rows = &self.rows[&island];
        let left = rows.names.keys().filter(|dir| !rows.dirs.contains_key(dir) && !needed.contains(dir));
        for dir in left.copied().collect::<Vec<_>>() {
            let Some((owner, _)) = self.owned(dir) else { continue };
            if owner == island || self.in_doubt(dir) {
                continue;
            }
            let known =
                |name: &Name, ino: Ino| self.rows[&owner].name(dir, name).is_some_and(|e| e.ino == ino);
            let names = self.rows[&island].names_of(dir);
            if names.iter().any(|(_, name, entry)| !known(name, entry.ino)) {
                continue;
            }
            let changes = names.iter().map(|(_, name, _)| (island, gone(dir, name))).collect();
            let what = format!("names are left of it, which its owner {owner} has too: they are dropped");
            self.fix(Rule::NamesOwned, island, Some(dir), what, changes);
        }
    }

    /// Removes a directory that is not needed, if its owner has it, or if it has no owner at all.
    fn prune(&mut self, island: IslandId) {
        let needed = self.needed(island);
        let rows = &self.rows[&island];
        let idle: Vec<Ino> = rows.dirs.keys().filter(|ino| !needed.contains(ino)).copied().collect();
        let stubs = if idle.is_empty() { BTreeMap::new() } else { self.stubs() };
        for ino in idle {
            let owner = self.owned(ino).map(|(owner, _)| owner);
            let is_nobodys = owner.is_none() && self.whole && !stubs.contains_key(&ino);
            let is_anothers = owner.is_some_and(|owner| owner != island);
            let names = self.rows[&island].names_of(ino);
            // Its owner's names are there; here are only those of directories of the skeleton.
            let only_dirs = names.iter().all(|(_, _, entry)| entry.kind == Kind::Directory);
            if self.in_doubt(ino) || !only_dirs || !(is_nobodys || is_anothers) {
                continue;
            }
            let mut changes: Vec<_> = names.iter().map(|(_, name, _)| (island, gone(ino, name))).collect();
            changes.push((island, RowChange::Dir { ino, row: None }));
            if self.rows[&island].xattrs.contains_key(&ino) {
                changes.push((island, RowChange::Xattrs { ino, row: None }));
            }
            let what = "it leaves the skeleton, which needs it for nothing".to_owned();
            self.fix(Rule::SkeletonNeeded, island, Some(ino), what, changes);
        }
    }

    /// A directory that another island owns has the names of skeleton directories, for walking.
    fn walkable_names(&mut self, island: IslandId) {
        let rows = &self.rows[&island];
        let is_others = |dir: &Ino| rows.dirs.get(dir).is_some_and(|row| row.owned.is_none());
        let mut wanted: BTreeMap<(Ino, Name), Ino> = BTreeMap::new();
        for (ino, dir) in rows.dirs.iter().filter(|(ino, _)| **ino != Ino::ROOT) {
            if let (Some(name), true) = (&dir.place.name, is_others(&dir.place.parent)) {
                wanted.insert((dir.place.parent, name.clone()), *ino);
            }
        }
        let mut wrong = Vec::new();
        for (dir, names) in rows.names.iter().filter(|(dir, _)| is_others(dir)) {
            for (_, name, entry) in names {
                let entry_ref = (*dir, name.clone());
                if wanted.get(&entry_ref) == Some(&entry.ino) && entry.kind == Kind::Directory {
                    wanted.remove(&entry_ref);
                } else if entry.kind == Kind::Directory && !self.name_in_doubt(*dir, name, entry.ino) {
                    wrong.push((*dir, name.clone(), entry.ino));
                } else {
                    // A file of here has it.
                    wanted.remove(&entry_ref);
                }
            }
        }
        for (dir, name, ino) in wrong {
            let what = format!("its name {} in {dir} is dropped here: it is not there", show(&name));
            self.fix(Rule::DirNamedOnce, island, Some(ino), what, vec![(island, gone(dir, &name))]);
        }
        for ((dir, name), ino) in wanted {
            if self.name_in_doubt(dir, &name, ino) {
                continue;
            }
            let row = Some(Entry { ino, kind: Kind::Directory, home: island, stub: None });
            let what = format!("its name {} in {dir} is here again", show(&name));
            let change = RowChange::Entry { dir, name, row };
            self.fix(Rule::DirNamedOnce, island, Some(ino), what, vec![(island, change)]);
        }
    }

    /// The key of a directory, from any island that knows it.
    pub(crate) fn key_of(&self, ino: Ino) -> Option<Key> {
        if ino == Ino::ROOT { Some(Key(0)) } else { self.known(ino).map(|(_, row)| row.key) }
    }
}

pub(crate) fn gone(dir: Ino, name: &Name) -> RowChange {
    RowChange::Entry { dir, name: name.clone(), row: None }
}
