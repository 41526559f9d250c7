//! Repairs places of directories: each has one name, at the owner of the directory above, and all islands
//! know it. That owner decides. Nothing here removes the last name of a directory.

use atoll_check::Rule;
use atoll_core::{Ino, IslandId, Name, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Chain, DirPlace, Entry, EntryRef, JournalEntry, PlaceVersion, RowChange, Stub};

use crate::dirs::{is_stale, stub_of};
use crate::work::{Named, Work, show};

impl Work<'_> {
    pub(crate) fn places(&mut self) {
        self.one_name_each();
        self.places_known();
        self.names_back();
    }

    /// If a directory has several names, the latest stays; of equally late ones, the one in the directory's
    /// own row.
    fn one_name_each(&mut self) {
        for (ino, all) in self.stubs() {
            if all.len() < 2 {
                continue;
            }
            let latest = all.iter().map(|named| named.stub.place).max();
            let says = self.owned(ino).map(|(_, row)| (row.place.parent, row.place.name.clone()));
            let mut best = all.iter().filter(|named| Some(named.stub.place) == latest);
            let (first, second) = (best.next(), best.next());
            let is_said = |named: &&Named| says.as_ref() == Some(&(named.dir, Some(named.name.clone())));
            let stays = if second.is_none() { first } else { all.iter().find(is_said) };
            let Some(stays) = stays.cloned() else { continue };
            for Named { at, dir, name, .. } in all {
                if (dir, &name) == (stays.dir, &stays.name) || self.name_in_doubt(dir, &name, ino) {
                    continue;
                }
                let what =
                    format!("its name {} in {dir} is dropped: it is {}", show(&name), show(&stays.name));
                let changes = self.name_at_owner(at, dir, &name, None);
                self.fix(Rule::DirNamedOnce, at, Some(ino), what, changes);
            }
        }
    }

    /// An island that has a directory knows its place, or an older place if it has not heard of the latest.
    fn places_known(&mut self) {
        for (ino, all) in self.stubs() {
            let [Named { at, dir, name, stub }] = all.as_slice() else { continue };
            let place = DirPlace { version: stub.place, parent: *dir, name: Some(name.clone()) };
            for island in self.islands() {
                let Some(copy) = self.rows[&island].dirs.get(&ino) else { continue };
                if copy.place == place || self.name_in_doubt(*dir, name, ino) || self.is_above(ino, *dir) {
                    continue;
                }
                let has = copy.place.version;
                let by_name = has.moves == stub.place.moves && stub.place.stamp != Stamp::default();
                let stale = by_name && is_stale(&self.rows, island, *at, has.stamp, stub.place.stamp);
                if !stale && has != stub.place {
                    continue;
                }
                let rule = if stale { Rule::CopyCurrent } else { Rule::DirNamedOnce };
                let what = format!("it is {} in {dir}, as that one's owner {at} has it", show(name));
                let place = place.clone();
                let change = self.dir_with(island, ino, |dir| dir.place = place);
                self.fix(rule, island, Some(ino), what, vec![change]);
            }
        }
    }

    /// Whether a directory is above another, or is it.
    fn is_above(&self, ino: Ino, mut below: Ino) -> bool {
        for _ in 0..4096 {
            if below == ino {
                return true;
            }
            let Some((_, row)) = self.known(below).filter(|_| below != Ino::ROOT) else { return false };
            below = row.place.parent;
        }
        true
    }

    /// A directory without a name gets back the name in its own row, or one beside it.
    fn names_back(&mut self) {
        let stubs = self.stubs();
        for island in self.islands() {
            let rows = &self.rows[&island];
            let nameless = rows.dirs.iter().filter(|(ino, row)| {
                **ino != Ino::ROOT && !stubs.contains_key(ino) && self.is_owners(island, row)
            });
            for ino in nameless.map(|(ino, _)| *ino).collect::<Vec<_>>() {
                let row = &self.rows[&island].dirs[&ino];
                let (Some(name), dir) = (row.place.name.clone(), row.place.parent) else { continue };
                let Some((above, _)) = self.owned(dir) else { continue };
                if self.name_in_doubt(dir, &name, ino) || self.is_above(ino, dir) {
                    continue;
                }
                let stub = stub_of(row);
                match self.rows[&above].name(dir, &name) {
                    None => self.name_back(above, dir, &name, ino, stub),
                    // It is it, and lacks its stub.
                    Some(there) if there.ino == ino => {}
                    Some(_) => self.name_beside(island, above, dir, &name, ino, stub),
                }
            }
        }
    }

    fn name_back(&mut self, above: IslandId, dir: Ino, name: &Name, ino: Ino, stub: Stub) {
        let row = Entry { ino, kind: Kind::Directory, home: above, stub: Some(Box::new(stub)) };
        let changes = self.name_at_owner(above, dir, name, Some(row));
        let what = format!("it has its name {} in {dir} back", show(name));
        self.fix(Rule::DirNamed, above, Some(ino), what, changes);
    }

    /// A rename, as the owner of the directory above would do it: the others learn of it by its journal.
    fn name_beside(&mut self, owner: IslandId, above: IslandId, dir: Ino, name: &Name, ino: Ino, stub: Stub) {
        let beside = self.free_beside(above, dir, name, ino);
        let (Some(stamp), now) = (self.next_stamp(above), self.options.now) else { return };
        let version = PlaceVersion { moves: stub.place.moves, stamp };
        let place = DirPlace { version, parent: dir, name: Some(beside.clone()) };
        let stub = Stub { place: version, time: now, ..stub };
        let row = Entry { ino, kind: Kind::Directory, home: above, stub: Some(Box::new(stub)) };
        let mut changes = vec![(above, RowChange::Stamp { stamp })];
        changes.extend(self.name_at_owner(above, dir, &beside, Some(row)));
        if self.rows[&above].dirs.contains_key(&ino) {
            let place = place.clone();
            changes.push(self.dir_with(above, ino, |dir| dir.place = place));
        }
        changes.push((above, RowChange::Clock { island: above, stamp }));
        if self.volume.table.owners().iter().any(|other| *other != above) {
            let chain = Chain { vector: self.rows[&above].clocks.iter().collect(), dirs: Vec::new() };
            let from = EntryRef { dir, name: name.clone() };
            let entry = JournalEntry::Place { ino, place, from, replaced: None, chain, time: now };
            changes.push((above, RowChange::Posted { stamp, entry }));
        }
        let what = format!(
            "it is {} in {dir} now, because {} is taken there; its owner {owner} hears of it",
            show(&beside),
            show(name)
        );
        self.fix(Rule::DirNamed, above, Some(ino), what, changes);
    }
}
