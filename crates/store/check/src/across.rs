//! Rules that several islands of a volume keep together.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Stub};

use crate::{Finding, Rows, Rule, Volume};

/// Everything that is wrong between these islands.
pub fn check(volume: &Volume, islands: &[Rows], findings: &mut Vec<Finding>) {
    let by_id = islands.iter().map(|rows| (rows.island, rows)).collect();
    let mut look = Look { volume, by_id, findings };
    for rows in islands {
        look.names(rows);
        look.directories(rows);
    }
}

struct Look<'a> {
    volume: &'a Volume,
    by_id: BTreeMap<IslandId, &'a Rows>,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Look<'a> {
    fn found(&mut self, rule: Rule, island: IslandId, ino: Ino, what: String) {
        self.findings.push(Finding { rule, island, ino: Some(ino), what });
    }

    /// The island that owns a directory, if it is among these.
    fn owner(&self, key: atoll_core::Key) -> Option<&'a Rows> {
        self.by_id.get(&self.volume.table.owner(key)).copied()
    }

    /// Something is under way at one of these: what it is about may be seen half.
    fn in_doubt(&self, ino: Ino) -> bool {
        self.by_id.values().any(|rows| rows.in_doubt(ino))
    }

    fn names(&mut self, rows: &Rows) {
        for (dir, names) in &rows.names {
            for (_, name, entry) in names {
                let shown = name.as_bytes().escape_ascii().to_string();
                match (&entry.stub, entry.kind) {
                    (Some(stub), Kind::Directory) => self.stub(rows.island, *dir, &shown, entry, stub),
                    (None, kind) if kind != Kind::Directory && entry.home != rows.island => {
                        self.pointer(rows.island, *dir, &shown, entry);
                    }
                    _ => {}
                }
            }
        }
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
        if child.place.version == stub.place && says != (dir, Some(shown.to_owned())) {
            let what = format!("it stands in {dir} as \"{shown}\", but says that it is elsewhere");
            self.found(Rule::DirNamedOnce, island, entry.ino, what);
        }
    }

    fn pointer(&mut self, island: IslandId, dir: Ino, shown: &str, entry: &Entry) {
        let Some(home) = self.by_id.get(&entry.home) else { return };
        match home.inodes.get(&entry.ino) {
            Some(row) if row.attr.kind == entry.kind => {}
            Some(_) => {
                let what = format!("\"{shown}\" in {dir} has another type than its file");
                self.found(Rule::KindAgrees, island, entry.ino, what);
            }
            None => {
                let what = format!("\"{shown}\" in {dir} names it, but it is not at its home {}", entry.home);
                self.found(Rule::FileThere, island, entry.ino, what);
            }
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
            if fixed || place {
                let what =
                    format!("it is not as at its owner {}, although at the same version", owner.island);
                self.found(Rule::SkeletonsAgree, rows.island, *ino, what);
            }
        }
    }

    /// A name of it stands somewhere that is newer than what it knows: the journal is on its way.
    fn was_moved_since(&self, ino: Ino, dir: &Dir) -> bool {
        let names = self.by_id.values().flat_map(|rows| rows.names.values().flatten());
        let mut stubs = names.filter(|(_, _, e)| e.ino == ino).filter_map(|(_, _, e)| e.stub.as_ref());
        stubs.any(|stub| stub.place > dir.place.version)
    }

    /// The directory's name stands where it says, if the island that has it is among these.
    fn has_its_name(&mut self, island: IslandId, ino: Ino, dir: &Dir) {
        let (Some(name), true) = (&dir.place.name, ino != Ino::ROOT) else { return };
        let parent = self.by_id.values().find_map(|rows| Some(rows.dirs.get(&dir.place.parent)?.key));
        let Some(owner) = parent.and_then(|key| self.owner(key)) else { return };
        let named = owner.names_of(dir.place.parent).iter().any(|(_, n, e)| n == name && e.ino == ino);
        if !named && !self.in_doubt(ino) && !self.was_moved_since(ino, dir) {
            let shown = name.as_bytes().escape_ascii();
            let what =
                format!("it says that it is \"{shown}\" in {}, where no such name is", dir.place.parent);
            self.found(Rule::DirNamedOnce, island, ino, what);
        }
    }
}
