//! Rules that the rows of several islands keep together.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Stub};

use crate::{Finding, Rows, Rule, Volume};

/// Everything that is wrong between these islands.
pub fn check(volume: &Volume, islands: &[Rows], findings: &mut Vec<Finding>) {
    let by_id = islands.iter().map(|rows| (rows.island, rows)).collect();
    let elsewhere = islands.iter().map(|rows| (rows.island, elsewhere(rows))).collect();
    let mut look = Look { volume, by_id, elsewhere, findings };
    for rows in islands {
        look.names(rows);
        look.directories(rows);
    }
    crate::links::across(volume, &look.by_id, look.findings);
}

/// Names of files that are homed at another island than owns the directory, as one of the two has them.
type Elsewhere<'a> = BTreeMap<(Ino, &'a Name), &'a Entry>;

fn elsewhere(rows: &Rows) -> Elsewhere<'_> {
    let mut found = Elsewhere::new();
    for (dir, names) in &rows.names {
        let owned = rows.dirs.get(dir).is_some_and(|row| row.owned.is_some());
        let files = names.iter().filter(|(_, _, entry)| entry.kind != Kind::Directory);
        let apart = files.filter(|(_, _, entry)| owned != (entry.home == rows.island));
        found.extend(apart.map(|(_, name, entry)| ((*dir, name), entry)));
    }
    found
}

struct Look<'a> {
    volume: &'a Volume,
    by_id: BTreeMap<IslandId, &'a Rows>,
    elsewhere: BTreeMap<IslandId, Elsewhere<'a>>,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Look<'a> {
    fn found(&mut self, rule: Rule, island: IslandId, ino: Ino, what: String) {
        self.findings.push(Finding { rule, island, ino: Some(ino), what });
    }

    /// The island that owns a directory, if it is among these.
    fn owner(&self, key: atoll_core::Key) -> Option<&'a Rows> {
        self.by_id.get(&self.volume.owner(key)).copied()
    }

    /// A transaction is under way at one of these islands that is about this id: its rows may show half of
    /// it.
    fn in_doubt(&self, ino: Ino) -> bool {
        self.by_id.values().any(|rows| rows.in_doubt(ino))
    }

    /// The same of a name in a directory, or of the file that it names.
    fn name_in_doubt(&self, dir: Ino, name: &Name, ino: Ino) -> bool {
        self.by_id.values().any(|rows| rows.in_doubt(ino) || rows.name_in_doubt(dir, name))
    }

    fn names(&mut self, rows: &Rows) {
        for (dir, names) in &rows.names {
            let row = rows.dirs.get(dir);
            for (_, name, entry) in names {
                match (&entry.stub, entry.kind) {
                    (Some(stub), Kind::Directory) => {
                        let shown = name.as_bytes().escape_ascii().to_string();
                        self.stub(rows.island, *dir, &shown, entry, stub);
                    }
                    (None, kind) if kind != Kind::Directory => match row {
                        Some(row) if row.owned.is_none() && entry.home == rows.island => {
                            self.foreign(rows.island, *dir, row, name, entry);
                        }
                        Some(row) if row.owned.is_some() && entry.home != rows.island => {
                            self.pointer(rows.island, *dir, name, entry);
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
    }

    /// The entry that an island has for a name whose file and directory are not both its own.
    fn has_elsewhere(&self, island: IslandId, dir: Ino, name: &Name) -> Option<&'a Entry> {
        self.elsewhere.get(&island)?.get(&(dir, name)).copied()
    }

    fn stub(&mut self, island: IslandId, dir: Ino, shown: &str, entry: &Entry, stub: &Stub) {
        let Some(owner) = self.owner(stub.key) else { return };
        let Some(child) = owner.dirs.get(&entry.ino).filter(|child| child.owned.is_some()) else {
            if !self.in_doubt(entry.ino) {
                let what =
                    format!("\"{shown}\" in {dir} names it, but island {} does not have it", owner.island);
                self.found(Rule::DirThere, island, entry.ino, what);
            }
            return;
        };
        if child.key != stub.key {
            self.found(Rule::StubAgrees, island, entry.ino, "its stub has another key".to_owned());
        }
        if child.fixed.version == stub.fixed.version && child.fixed != stub.fixed {
            self.found(Rule::StubAgrees, island, entry.ino, "its stub has other attributes".to_owned());
        }
        let says =
            (child.place.parent, child.place.name.as_ref().map(|n| n.as_bytes().escape_ascii().to_string()));
        if self.is_stale(island, owner.island, stub.fixed.version, child.fixed.version) {
            self.found(Rule::CopyCurrent, island, entry.ino, "its stub has old attributes".to_owned());
        }
        if child.place.version == stub.place && says != (dir, Some(shown.to_owned())) {
            let what = format!("it stands in {dir} as \"{shown}\", but says that it is elsewhere");
            self.found(Rule::DirNamedOnce, island, entry.ino, what);
        }
    }

    /// Whether an island's copy as of stamp `has` of another's clock should be as of stamp `there`: it has
    /// applied that island's journal so far, or is that island.
    fn is_stale(&self, holder: IslandId, of: IslandId, has: Stamp, there: Stamp) -> bool {
        let applied = self.by_id.get(&holder).is_some_and(|rows| rows.clocks.get(of) >= there);
        has < there && (applied || holder == of)
    }

    /// A name in a directory that is owned here, of a file that is homed elsewhere.
    fn pointer(&mut self, island: IslandId, dir: Ino, name: &Name, entry: &Entry) {
        let Some(home) = self.by_id.get(&entry.home) else {
            if !self.volume.table.owners().contains(&entry.home) {
                let shown = name.as_bytes().escape_ascii();
                let what = format!("\"{shown}\" in {dir} names it, at island {}, which is none", entry.home);
                self.found(Rule::FileThere, island, entry.ino, what);
            }
            return;
        };
        let known = self.has_elsewhere(entry.home, dir, name) == Some(entry);
        let row = home.inodes.get(&entry.ino);
        if (known && row.is_some_and(|row| row.attr.kind == entry.kind))
            || self.name_in_doubt(dir, name, entry.ino)
        {
            return;
        }
        let shown = name.as_bytes().escape_ascii();
        let (rule, what) = match row {
            None => (
                Rule::FileThere,
                format!("\"{shown}\" in {dir} names it, but it is not at its home {}", entry.home),
            ),
            Some(row) if row.attr.kind != entry.kind => {
                (Rule::KindAgrees, format!("\"{shown}\" in {dir} has another type than its file"))
            }
            Some(_) => (
                Rule::NameAtHome,
                format!("\"{shown}\" in {dir} names it, but its home {} does not know that name", entry.home),
            ),
        };
        self.found(rule, island, entry.ino, what);
    }

    /// A name of a file that is homed here, in a directory that is owned elsewhere.
    fn foreign(&mut self, island: IslandId, dir: Ino, row: &Dir, name: &Name, entry: &Entry) {
        let Some(owner) = self.owner(row.key).filter(|owner| owner.island != island) else { return };
        let stands = self.has_elsewhere(owner.island, dir, name) == Some(entry);
        if !stands && !self.name_in_doubt(dir, name, entry.ino) {
            let shown = name.as_bytes().escape_ascii();
            let owner = owner.island;
            let what = format!("it has the name \"{shown}\" in {dir}, but at its owner {owner} it has not");
            self.found(Rule::NameAtOwner, island, entry.ino, what);
        }
    }

    fn directories(&mut self, rows: &Rows) {
        for (ino, dir) in &rows.dirs {
            let Some(owner) = self.owner(dir.key) else { continue };
            if owner.island == rows.island {
                self.has_its_name(rows.island, *ino, dir);
                continue;
            }
            let Some(there) = owner.dirs.get(ino) else {
                if !self.in_doubt(*ino) {
                    let what = format!("it is in the skeleton, but not at its owner {}", owner.island);
                    self.found(Rule::DirThere, rows.island, *ino, what);
                }
                continue;
            };
            // Versions differ while a journal is on its way.
            let fixed = there.fixed.version == dir.fixed.version && there.fixed != dir.fixed;
            let place = there.place.version == dir.place.version && there.place != dir.place;
            let born = (there.key, there.birth_bytes) != (dir.key, dir.birth_bytes);
            if fixed || place || born {
                let what =
                    format!("it is not as at its owner {}, although at the same version", owner.island);
                self.found(Rule::SkeletonsAgree, rows.island, *ino, what);
            }
            if self.is_stale(rows.island, owner.island, dir.fixed.version, there.fixed.version) {
                let what = format!("its attributes are older than at its owner {}", owner.island);
                self.found(Rule::CopyCurrent, rows.island, *ino, what);
            }
        }
        self.places(rows);
    }

    /// Every directory has the place that these rows say, on each island that has heard of it.
    fn places(&mut self, rows: &Rows) {
        let islands: Vec<&Rows> = self.by_id.values().copied().collect();
        let owned =
            rows.names.iter().filter(|(dir, _)| rows.dirs.get(dir).is_some_and(|d| d.owned.is_some()));
        for (dir, names) in owned {
            for (_, name, entry) in names {
                let Some(stub) = &entry.stub else { continue };
                for other in &islands {
                    let Some(copy) = other.dirs.get(&entry.ino) else { continue };
                    let place = &copy.place;
                    // A place that came with a move has no stamp of its own.
                    let moved =
                        place.version.moves != stub.place.moves || stub.place.stamp == Stamp::default();
                    let old = self.is_stale(other.island, rows.island, place.version.stamp, stub.place.stamp);
                    if old && !moved && !self.name_in_doubt(*dir, name, entry.ino) {
                        let shown = name.as_bytes().escape_ascii();
                        let what = format!("it does not know that it is \"{shown}\" in {dir}");
                        self.found(Rule::CopyCurrent, other.island, entry.ino, what);
                    }
                }
            }
        }
    }

    /// An island has a newer name of the directory: the journal is on its way.
    fn was_moved_since(&self, ino: Ino, dir: &Dir) -> bool {
        let names = self.by_id.values().flat_map(|rows| rows.names.values().flatten());
        let mut stubs = names.filter(|(_, _, e)| e.ino == ino).filter_map(|(_, _, e)| e.stub.as_ref());
        stubs.any(|stub| stub.place > dir.place.version)
    }

    /// The directory's name is where its row says, if the island that has it is among these.
    fn has_its_name(&mut self, island: IslandId, ino: Ino, dir: &Dir) {
        let (Some(name), true) = (&dir.place.name, ino != Ino::ROOT) else { return };
        let parent = self.by_id.values().find_map(|rows| Some(rows.dirs.get(&dir.place.parent)?.key));
        let Some(owner) = parent.and_then(|key| self.owner(key)) else { return };
        let named = owner.names_of(dir.place.parent).iter().any(|(_, n, e)| n == name && e.ino == ino);
        if !named && !self.in_doubt(ino) && !self.was_moved_since(ino, dir) {
            let shown = name.as_bytes().escape_ascii();
            let what =
                format!("it says that it is \"{shown}\" in {}, where no such name is", dir.place.parent);
            self.found(Rule::DirNamed, island, ino, what);
        }
    }
}
