//! Repairs names of files: they lead to files, have their types, and are known at both islands concerned. A
//! name that only one of two islands has stays. A name that leads to nothing stays too, unless the options
//! say otherwise.

use std::collections::BTreeMap;

use atoll_check::Rule;
use atoll_core::{Ino, IslandId, Name};
use atoll_posix::Kind;
use atoll_proto::{Entry, RowChange};

use crate::skeleton::gone;
use crate::work::{Work, show};

/// A name in a directory.
type Spot = (Ino, Name);

impl Work<'_> {
    // -------------------------------------------------------------------- types

    /// Names have the type of their file: the one on which two of name, inode and native file agree.
    pub(crate) fn kinds(&mut self) {
        for island in self.islands() {
            let mut wrong = Vec::new();
            for (dir, names) in &self.rows[&island].names {
                for (_, name, entry) in names {
                    let file = self.rows.get(&entry.home).and_then(|home| home.inodes.get(&entry.ino));
                    let Some(file) = file.filter(|file| file.attr.kind != entry.kind) else { continue };
                    let native = self.native.body(entry.home, entry.ino).map(|body| body.kind);
                    let is_link = |kind| (kind == Kind::Symlink) == file.target.is_some();
                    let kind = if native.is_none_or(|kind| kind == file.attr.kind) && is_link(file.attr.kind)
                    {
                        (file.attr.kind, native.is_some() || self.others_say(entry.ino, file.attr.kind))
                    } else {
                        (entry.kind, native == Some(entry.kind) && is_link(entry.kind))
                    };
                    if kind.1 && !self.name_in_doubt(*dir, name, entry.ino) {
                        wrong.push((*dir, name.clone(), entry.clone(), kind.0));
                    }
                }
            }
            for (dir, name, entry, kind) in wrong {
                let ino = entry.ino;
                let mut changes = Vec::new();
                if entry.kind != kind {
                    let row = Some(Entry { kind, stub: None, ..entry.clone() });
                    changes.push((island, RowChange::Entry { dir, name: name.clone(), row }));
                }
                let mut file = self.rows[&entry.home].inodes[&ino].clone();
                if file.attr.kind != kind {
                    file.attr.kind = kind;
                    changes.push((entry.home, RowChange::Inode { ino, row: Some(Box::new(file)) }));
                }
                if !changes.is_empty() {
                    let what = format!("it and its name {} are of type {kind:?}", show(&name));
                    self.fix(Rule::KindAgrees, island, Some(ino), what, changes);
                }
            }
        }
    }

    /// Another name of the file has this type.
    fn others_say(&self, ino: Ino, kind: Kind) -> bool {
        let names = self.rows.values().flat_map(|rows| rows.names.values().flatten());
        names.filter(|(_, _, entry)| entry.ino == ino).any(|(_, _, entry)| entry.kind == kind)
    }

    // ----------------------------------------------------------- between islands

    /// If a file's home and the owner of its name's directory are different islands, both have the name.
    pub(crate) fn names(&mut self) {
        self.homes();
        self.misled();
        let (pointers, foreign) = (self.pointers(), self.foreign());
        self.meet(&pointers, &foreign);
        self.dangling();
    }

    /// A name that leads to nothing at its home gets another home, if an island has the file: ids are never
    /// given twice.
    fn homes(&mut self) {
        for island in self.islands() {
            let mut wrong = Vec::new();
            for (dir, names) in &self.rows[&island].names {
                let files = names.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory);
                for (_, name, entry) in files.filter(|(_, _, entry)| !self.is_file(entry.home, entry.ino)) {
                    let away = self.is_away(entry.home) || self.name_in_doubt(*dir, name, entry.ino);
                    let home = self.rows.keys().find(|home| self.is_file(**home, entry.ino));
                    if let Some(home) = home.filter(|_| !away) {
                        wrong.push((*dir, name.clone(), Entry { home: *home, ..entry.clone() }));
                    }
                }
            }
            for (dir, name, row) in wrong {
                let (ino, home) = (row.ino, row.home);
                let what = format!("{} in {dir} leads to it at island {home}, which has it", show(&name));
                let change = RowChange::Entry { dir, name, row: Some(row) };
                self.fix(Rule::FileThere, island, Some(ino), what, vec![(island, change)]);
            }
        }
    }

    /// An island of the volume that is not here.
    fn is_away(&self, island: IslandId) -> bool {
        !self.rows.contains_key(&island) && self.volume.table.owners().contains(&island)
    }

    /// A name at its directory's owner that leads to nothing, although a file's home has this very name for
    /// it.
    fn misled(&mut self) {
        let foreign = self.foreign();
        for owner in self.islands() {
            for (entry_ref, entry) in self.at_owner(owner, |entry| !self.is_file(entry.home, entry.ino)) {
                if self.is_away(entry.home) || self.name_in_doubt(entry_ref.0, &entry_ref.1, entry.ino) {
                    continue;
                }
                let mut homes = foreign.iter().filter(|((home, s), _)| *home != owner && *s == entry_ref);
                let (Some((_, known)), None) = (homes.next(), homes.next()) else { continue };
                let what = format!("{} in {} leads to it, as its home says", show(&entry_ref.1), entry_ref.0);
                let changes = self.name_at_owner(owner, entry_ref.0, &entry_ref.1, Some(known.clone()));
                self.fix(Rule::FileThere, owner, Some(known.ino), what, changes);
            }
        }
    }

    /// Names of files in directories that are owned by this island.
    fn at_owner(&self, owner: IslandId, wanted: impl Fn(&Entry) -> bool) -> Vec<(Spot, Entry)> {
        let rows = &self.rows[&owner];
        let owned = rows
            .names
            .iter()
            .filter(|(dir, _)| rows.dirs.get(dir).is_some_and(|row| self.is_owners(owner, row)));
        let files = owned.flat_map(|(dir, names)| names.iter().map(move |named| (dir, named)));
        let files = files.filter(|(_, (_, _, entry))| entry.kind != Kind::Directory && wanted(entry));
        files.map(|(dir, (_, name, entry))| ((*dir, name.clone()), entry.clone())).collect()
    }

    /// Names at their directories' owners of files that other islands have.
    fn pointers(&self) -> BTreeMap<Spot, (IslandId, Entry)> {
        let mut all = BTreeMap::new();
        for owner in self.islands() {
            let pointers =
                self.at_owner(owner, |entry| entry.home != owner && self.is_file(entry.home, entry.ino));
            all.extend(pointers.into_iter().map(|(entry_ref, entry)| (entry_ref, (owner, entry))));
        }
        all
    }

    /// Names that homes have of their files in directories of other islands.
    fn foreign(&self) -> BTreeMap<(IslandId, Spot), Entry> {
        let mut all = BTreeMap::new();
        for (&home, rows) in &self.rows {
            for (dir, names) in &rows.names {
                // Also where the skeleton has lost the directory.
                let is_here = rows.dirs.get(dir).is_some_and(|row| row.owned.is_some());
                let files = names.iter().filter(|(_, _, entry)| {
                    !is_here
                        && entry.kind != Kind::Directory
                        && entry.home == home
                        && rows.inodes.contains_key(&entry.ino)
                });
                all.extend(files.map(|(_, name, entry)| ((home, (*dir, name.clone())), entry.clone())));
            }
        }
        all
    }

    fn meet(
        &mut self,
        pointers: &BTreeMap<Spot, (IslandId, Entry)>,
        foreign: &BTreeMap<(IslandId, Spot), Entry>,
    ) {
        // What only one of the two has, by directory and file.
        let mut at_owner: BTreeMap<(Ino, Ino), Vec<&Spot>> = BTreeMap::new();
        for (entry_ref, (_, entry)) in pointers {
            let at_home = foreign.get(&(entry.home, entry_ref.clone()));
            if at_home.is_none_or(|known| known.ino != entry.ino) {
                at_owner.entry((entry_ref.0, entry.ino)).or_default().push(entry_ref);
            }
        }
        for ((home, entry_ref), entry) in foreign {
            let stands = pointers.get(entry_ref).is_some_and(|(_, p)| (p.home, p.ino) == (*home, entry.ino));
            let owner = self.key_of(entry_ref.0).and_then(|key| self.table_owner(key));
            let Some(owner) = owner.filter(|owner| owner != home && !stands) else { continue };
            let is_owned = self.rows[&owner].dirs.get(&entry_ref.0).is_some_and(|row| row.owned.is_some());
            if !is_owned || self.name_in_doubt(entry_ref.0, &entry_ref.1, entry.ino) {
                continue;
            }
            let renamed = at_owner.get_mut(&(entry_ref.0, entry.ino)).and_then(Vec::pop);
            match renamed {
                Some(new) => self.rename_at_home(*home, entry_ref, new, entry),
                None => self.name_stays(owner, *home, entry_ref, entry),
            }
        }
        for entry_ref in at_owner.into_values().flatten() {
            let (_, entry) = &pointers[entry_ref];
            if self.name_in_doubt(entry_ref.0, &entry_ref.1, entry.ino) {
                continue;
            }
            // What the home has under this name was another file's, which has its own by now.
            let row = Some(Entry { stub: None, ..entry.clone() });
            let change = RowChange::Entry { dir: entry_ref.0, name: entry_ref.1.clone(), row };
            let what = format!("its home knows its name {} in {}", show(&entry_ref.1), entry_ref.0);
            self.fix(Rule::NameAtHome, entry.home, Some(entry.ino), what, vec![(entry.home, change)]);
        }
    }

    /// The owner has another name for it, which is the one that counts.
    fn rename_at_home(&mut self, home: IslandId, from: &Spot, to: &Spot, entry: &Entry) {
        let row = Some(entry.clone());
        let changes = vec![
            (home, gone(from.0, &from.1)),
            (home, RowChange::Entry { dir: to.0, name: to.1.clone(), row }),
        ];
        let what =
            format!("its home knows it as {} in {}, no longer as {}", show(&to.1), to.0, show(&from.1));
        self.fix(Rule::NameAtOwner, home, Some(entry.ino), what, changes);
    }

    /// Only the file's home has the name: the owner gets it again, or a name beside it if another file has
    /// the name there.
    fn name_stays(&mut self, owner: IslandId, home: IslandId, entry_ref: &Spot, entry: &Entry) {
        let (dir, name) = (entry_ref.0, &entry_ref.1);
        let taken = self.rows[&owner].name(dir, name).is_some();
        let new = if taken { self.free_beside(owner, dir, name, entry.ino) } else { name.clone() };
        let mut changes = self.name_at_owner(owner, dir, &new, Some(entry.clone()));
        if taken {
            let row = Some(entry.clone());
            changes.push((home, gone(dir, name)));
            changes.push((home, RowChange::Entry { dir, name: new.clone(), row }));
        }
        let what = format!("it is {} in {dir}, which only its home knew", show(&new));
        self.fix(Rule::NameAtOwner, owner, Some(entry.ino), what, changes);
    }

    // ----------------------------------------------------------------- dangling

    /// Names that lead to nothing. If only the home has one, removing it loses nothing. Others go if the
    /// options say so.
    fn dangling(&mut self) {
        let mut names = Vec::new();
        for (&island, rows) in &self.rows {
            for (dir, all) in &rows.names {
                let is_owners = rows.dirs.get(dir).is_some_and(|row| self.is_owners(island, row));
                for (_, name, entry) in all.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory) {
                    let away = self.is_away(entry.home);
                    let there = self.is_file(entry.home, entry.ino);
                    let stray = self.strays.contains_key(&(entry.home, entry.ino));
                    if !there && !away && !stray && !self.name_in_doubt(*dir, name, entry.ino) {
                        names.push((island, is_owners, *dir, name.clone(), entry.clone()));
                    }
                }
            }
        }
        for (island, is_owners, dir, name, entry) in names {
            let ino = Some(entry.ino);
            if is_owners {
                if self.options.forget && self.whole {
                    let changes = self.name_at_owner(island, dir, &name, None);
                    let what = format!("its name {} in {dir} is taken away: it is nowhere", show(&name));
                    self.fix(Rule::FileThere, island, ino, what, changes);
                }
                continue;
            }
            let Some((owner, _)) = self.owned(dir).filter(|(owner, _)| *owner != island) else { continue };
            // What stands at the owner is what counts.
            let stands = self.rows[&owner].name(dir, &name);
            if stands.is_none_or(|stands| stands.ino != entry.ino || self.is_file(stands.home, stands.ino)) {
                let what = format!("{} in {dir} is dropped here: there is no such file", show(&name));
                self.fix(Rule::FileThere, island, ino, what, vec![(island, gone(dir, &name))]);
            }
        }
    }
}
