//! Repairs directories: their owners, and stubs and copies that must agree with the owners. Names and places
//! are in [`crate::places`].

use std::collections::BTreeMap;

use atoll_check::{Rows, Rule};
use atoll_core::{Ino, IslandId, Key, Stamp, Time};
use atoll_posix::Kind;
use atoll_proto::{Dir, DirPlace, Entry, KnownToOthers, OwnedDir, RowChange, StaticAttrs, Stub, Xattrs};

use crate::work::{Named, Work, show};

impl Work<'_> {
    /// Directories are where the table says, under one name, and all islands say the same of them.
    pub(crate) fn directories(&mut self) {
        self.stubs_there();
        self.keys();
        self.owned_twice();
        self.owned_again();
        self.places();
        self.stubs_agree();
        self.copies_agree();
    }

    // -------------------------------------------------------------------- stubs

    /// The name of a directory has a stub where it is owned, and no other name has one.
    fn stubs_there(&mut self) {
        for island in self.islands() {
            let mut wrong = Vec::new();
            for (dir, names) in &self.rows[&island].names {
                let Some(row) = self.rows[&island].dirs.get(dir) else { continue };
                for (_, name, entry) in names {
                    let needs = row.owned.is_some() && entry.kind == Kind::Directory;
                    if needs == entry.stub.is_some() || self.name_in_doubt(*dir, name, entry.ino) {
                        continue;
                    }
                    let stub = self.owned(entry.ino).map(|(_, child)| stub_of(child)).filter(|_| needs);
                    if stub.is_some() == needs {
                        let row = Entry { stub: stub.map(Box::new), ..entry.clone() };
                        wrong.push((*dir, name.clone(), row));
                    }
                }
            }
            for (dir, name, row) in wrong {
                let what = match row.stub {
                    Some(_) => format!("its name {} has a stub again, as its owner has it", show(&name)),
                    None => format!("the name {} has no stub any more: it needs none", show(&name)),
                };
                let ino = Some(row.ino);
                let change = RowChange::Entry { dir, name, row: Some(row) };
                self.fix(Rule::StubThere, island, ino, what, vec![(island, change)]);
            }
        }
    }

    // ------------------------------------------------------------------- owners

    /// A directory whose key is another island's, although its stub has one of this island's.
    fn keys(&mut self) {
        let stubs = self.stubs();
        for island in self.islands() {
            let mut wrong = Vec::new();
            for (ino, row) in &self.rows[&island].dirs {
                if row.owned.is_none() || self.is_owners(island, row) || self.in_doubt(*ino) {
                    continue;
                }
                let Some([named]) = stubs.get(ino).map(Vec::as_slice) else { continue };
                if self.volume.owner(named.stub.key) == island {
                    wrong.push((*ino, named.stub.key));
                }
            }
            for (ino, key) in wrong {
                let what = "it has the key of its stub, which is this island's".to_owned();
                let change = self.dir_with(island, ino, |dir| dir.key = key);
                self.fix(Rule::OwnerByTable, island, Some(ino), what, vec![change]);
            }
        }
    }

    /// Another island also claims a directory that its owner has. Its row becomes a copy, if it tells nothing
    /// that the owner's does not.
    fn owned_twice(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let too_many = rows.dirs.iter().filter(|(_, row)| row.owned.is_some());
            let too_many = too_many.filter(|(_, row)| !self.is_owners(island, row)).map(|(ino, _)| *ino);
            for ino in too_many.collect::<Vec<_>>() {
                let Some((owner, _)) = self.owned(ino) else { continue };
                let (theirs, names) = (&self.rows[&owner], self.rows[&island].names_of(ino));
                let same = |entry: &Entry, other: &Entry| (entry.ino, entry.kind) == (other.ino, other.kind);
                let known = names.iter().all(|(_, name, entry)| {
                    (entry.kind != Kind::Directory && entry.home == island)
                        || theirs.name(ino, name).is_some_and(|other| same(entry, other))
                });
                if !known || self.in_doubt(ino) {
                    continue;
                }
                let mut changes = Vec::new();
                for (_, name, entry) in names {
                    let row = match entry.kind {
                        Kind::Directory => Some(Entry { stub: None, ..entry.clone() }),
                        _ => Some(entry.clone()).filter(|entry| entry.home == island),
                    };
                    changes.push((island, RowChange::Entry { dir: ino, name: name.clone(), row }));
                }
                changes.push(self.dir_with(island, ino, |dir| dir.owned = None));
                let what = format!("it is owned by island {owner} alone, by the table");
                self.fix(Rule::OwnerByTable, island, Some(ino), what, changes);
            }
        }
    }

    /// A named directory that its owner has lost is made again, if its contents are known.
    fn owned_again(&mut self) {
        let stubs = self.stubs();
        let root = (Ino::ROOT, None);
        let named =
            stubs.iter().filter(|(_, named)| named.len() == 1).map(|(ino, named)| (*ino, named.first()));
        for (ino, named) in named.chain([root]) {
            let is_owned =
                self.rows.values().any(|rows| rows.dirs.get(&ino).is_some_and(|d| d.owned.is_some()));
            if is_owned || self.in_doubt(ino) {
                continue;
            }
            let key = named.map_or(Key(0), |named| named.stub.key);
            let Some(owner) = self.table_owner(key) else { continue };
            if !self.is_known_what_is_in(owner, ino, named) {
                continue;
            }
            let Some(row) = self.made_again(owner, ino, key, named) else { continue };
            let count = row.owned.as_ref().map_or(0, |owned| owned.entries);
            let mut changes = Vec::new();
            if !self.rows[&owner].xattrs.contains_key(&ino)
                && let Some(xattrs) = self.rows.values().find_map(|rows| rows.xattrs.get(&ino))
            {
                changes.push((owner, RowChange::Xattrs { ino, row: Some(xattrs.clone()) }));
            }
            changes.push((owner, RowChange::Dir { ino, row: Some(Box::new(row)) }));
            let what = format!("it is made again at its owner, with the {count} names that are left in it");
            let rule = if ino == Ino::ROOT { Rule::RootThere } else { Rule::DirThere };
            self.fix(rule, owner, Some(ino), what, changes);
            // Copies that are needed no longer may have been all that was left of it.
            self.after_all = true;
        }
    }

    /// Whether names are left in it, or the plain tree shows that there were none. An empty directory must
    /// never stand for one whose names are lost.
    fn is_known_what_is_in(&self, owner: IslandId, ino: Ino, named: Option<&Named>) -> bool {
        if !self.rows[&owner].names_of(ino).is_empty() {
            return true;
        }
        let path = named.and_then(|named| {
            let mut path = self.path(named.dir)?;
            path.push(named.name.clone());
            Some(path)
        });
        path.is_some_and(|path| self.native.is_empty_dir(owner, &path))
    }

    /// The owner's row of a directory, made from what is left: its copies, its name.
    fn made_again(&self, owner: IslandId, ino: Ino, key: Key, named: Option<&Named>) -> Option<Dir> {
        let known = self.known(ino).map(|(_, row)| row);
        let (place, fixed, time) = match named {
            Some(Named { dir, name, stub, .. }) => {
                let place = DirPlace { version: stub.place, parent: *dir, name: Some(name.clone()) };
                let copy = known.map(|row| row.fixed).filter(|fixed| fixed.version > stub.fixed.version);
                (place, copy.unwrap_or(stub.fixed), stub.time)
            }
            None => (known?.place.clone(), known?.fixed, self.options.now),
        };
        let names = self.rows[&owner].names_of(ino);
        let subdirs = names.iter().filter(|(_, _, e)| e.kind == Kind::Directory).count() as u32;
        let owned = OwnedDir {
            entries: names.len() as u64,
            subdirs,
            // Nobody knows: then those who might know of a name are asked.
            others: KnownToOthers { ever_borrowed: true, has_pointers: true },
            ..OwnedDir::empty(time)
        };
        let (has_xattrs, has_acl) = known.map_or((false, false), |row| (row.has_xattrs, row.has_acl));
        // Nobody else tells the path of which the key is.
        let birth_bytes = known.map_or(0, |row| row.birth_bytes);
        let (below, homes, owned) = (0, 0, Some(owned));
        Some(Dir {
            key,
            birth_bytes,
            place,
            fixed,
            has_xattrs,
            has_acl,
            children: below,
            foreign_names: homes,
            owned,
            beside: None,
        })
    }

    // ----------------------------------------------------------------- agreeing

    /// Stubs have the key and the attributes of their directories.
    fn stubs_agree(&mut self) {
        for (ino, all) in self.stubs() {
            let Some((owner, row)) = self.owned(ino) else { continue };
            let (key, fixed) = (row.key, row.fixed);
            for Named { at, dir, name, stub } in all {
                let mut changed = stub.clone();
                let mut rule = Rule::StubAgrees;
                changed.key = key;
                if stub.fixed.version == fixed.version {
                    changed.fixed = fixed;
                } else if self.is_stale(at, owner, &stub.fixed, &fixed) {
                    changed.fixed = fixed;
                    rule = Rule::CopyCurrent;
                }
                if changed == stub || self.name_in_doubt(dir, &name, ino) {
                    continue;
                }
                let Some(entry) = self.rows[&at].name(dir, &name).cloned() else { continue };
                let row = Entry { stub: Some(Box::new(changed)), ..entry };
                let what = format!("its stub {} is as its owner {owner} has it", show(&name));
                let change = RowChange::Entry { dir, name, row: Some(row) };
                self.fix(rule, at, Some(ino), what, vec![(at, change)]);
            }
        }
    }

    /// Copies have the key and the attributes that the owners have.
    fn copies_agree(&mut self) {
        for island in self.islands() {
            let mut wrong = Vec::new();
            for (ino, copy) in &self.rows[&island].dirs {
                let Some((owner, row)) = self.owned(*ino) else { continue };
                if owner == island || self.in_doubt(*ino) {
                    continue;
                }
                let stale = self.is_stale(island, owner, &copy.fixed, &row.fixed);
                let differs = copy.fixed.version == row.fixed.version && copy.fixed != row.fixed;
                if stale || differs || copy.key != row.key {
                    let rule = if stale { Rule::CopyCurrent } else { Rule::SkeletonsAgree };
                    let fixed = if stale || differs { row.fixed } else { copy.fixed };
                    wrong.push((*ino, owner, rule, Dir { key: row.key, fixed, ..copy.clone() }));
                }
            }
            for (ino, owner, rule, row) in wrong {
                let mut changes = vec![self.dir_with(island, ino, |dir| *dir = row)];
                // Its other extended attributes are its owner's alone.
                let theirs = self.rows[&owner].xattrs.get(&ino).map(Xattrs::acls).filter(|x| !x.0.is_empty());
                if rule == Rule::CopyCurrent && theirs.as_ref() != self.rows[&island].xattrs.get(&ino) {
                    changes.push((island, RowChange::Xattrs { ino, row: theirs }));
                }
                let what = format!("its copy is as its owner {owner} has it");
                self.fix(rule, island, Some(ino), what, changes);
            }
        }
    }

    fn is_stale(&self, holder: IslandId, owner: IslandId, has: &StaticAttrs, there: &StaticAttrs) -> bool {
        is_stale(&self.rows, holder, owner, has.version, there.version)
    }
}

/// As the rule: it is older than what its island has applied of the journal.
pub(crate) fn is_stale(
    rows: &BTreeMap<IslandId, Rows>,
    holder: IslandId,
    of: IslandId,
    has: Stamp,
    there: Stamp,
) -> bool {
    has < there && (holder == of || rows[&holder].clocks.get(of) >= there)
}

/// The stub of a directory, for its parent owner.
pub(crate) fn stub_of(row: &Dir) -> Stub {
    let time = row.owned.as_ref().map_or(Time::default(), |owned| owned.ctime);
    Stub { key: row.key, place: row.place.version, fixed: row.fixed, time }
}
