//! Rules that one island's rows keep by themselves.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::cookie_of;
use atoll_core::{Ino, Name};
use atoll_posix::{Kind, acl};
use atoll_proto::{Dir, Entry, TxnState};

use crate::{Finding, Rows, Rule, Volume};

/// Everything that is wrong with one island.
pub fn check(volume: &Volume, rows: &Rows, findings: &mut Vec<Finding>) {
    let mut look = Look { volume, rows, findings };
    look.readable();
    look.names();
    look.skeleton();
    look.files();
    look.sessions();
    look.transactions();
    look.ids();
    crate::links::within(rows, look.findings);
}

struct Look<'a> {
    volume: &'a Volume,
    rows: &'a Rows,
    findings: &'a mut Vec<Finding>,
}

impl Look<'_> {
    fn found(&mut self, rule: Rule, ino: Option<Ino>, what: String) {
        self.findings.push(Finding { rule, island: self.rows.island, ino, what });
    }

    fn readable(&mut self) {
        for bad in &self.rows.bad {
            self.found(Rule::RowReadable, None, format!("row {} is {}", bad.key.escape_ascii(), bad.why));
        }
        if !self.rows.dirs.contains_key(&Ino::ROOT) && self.rows.meta.incarnation > 0 {
            self.found(Rule::RootThere, Some(Ino::ROOT), "the root is missing".to_owned());
        }
    }

    // -------------------------------------------------------------------- names

    fn names(&mut self) {
        let rows = self.rows;
        let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
        for (dir, names) in &rows.names {
            let Some(row) = rows.dirs.get(dir) else {
                let what = format!("{} names are left of it, which is no directory here", names.len());
                self.found(Rule::NamesOwned, Some(*dir), what);
                continue;
            };
            for (cookie, name, entry) in names {
                if *cookie != cookie_of(self.volume.seed, name.as_bytes()) {
                    self.found(
                        Rule::CookieOfName,
                        Some(*dir),
                        format!("{} has another's cookie", show(name)),
                    );
                }
                self.name(*dir, row, name, entry);
                if entry.kind != Kind::Directory && entry.home == rows.island {
                    *links.entry(entry.ino).or_default() += 1;
                }
            }
        }
        for (ino, dir) in &rows.dirs {
            self.counts(*ino, dir);
        }
        for (ino, row) in &rows.inodes {
            let names = links.get(ino).copied().unwrap_or(0);
            // A name that another file has taken here may still be counted: its loss is prepared.
            let waits = names < row.attr.nlink && rows.is_promised(*ino);
            if names != row.attr.nlink && !waits {
                let what = format!("it has {names} names, but a link count of {}", row.attr.nlink);
                self.found(Rule::LinksCounted, Some(*ino), what);
            }
        }
    }

    fn name(&mut self, dir: Ino, row: &Dir, name: &Name, entry: &Entry) {
        let rows = self.rows;
        let shown = show(name);
        if entry.kind == Kind::Directory {
            if entry.stub.is_some() != row.owned.is_some() {
                let has = if entry.stub.is_some() { "a" } else { "no" };
                self.found(
                    Rule::StubThere,
                    Some(dir),
                    format!("the name {shown} of a directory has {has} stub"),
                );
            }
            let child = rows.dirs.get(&entry.ino);
            let is_there = |c: &Dir| c.place.parent == dir && c.place.name.as_ref() == Some(name);
            // A name in a directory that others own is there only for the sake of what is below it.
            let wrong = match child {
                Some(child) => !is_there(child) && !rows.in_doubt(entry.ino),
                None => row.owned.is_none(),
            };
            if wrong {
                let what =
                    format!("the name {shown} leads to {}, which says that it is elsewhere", entry.ino);
                self.found(Rule::DirNamedOnce, Some(dir), what);
            }
            return;
        }
        if entry.stub.is_some() {
            self.found(Rule::StubThere, Some(dir), format!("the name {shown} of a file has a stub"));
        }
        if entry.home != rows.island {
            if row.owned.is_none() {
                let what = format!("it has the name {shown}, but neither it nor the file is this island's");
                self.found(Rule::NamesOwned, Some(dir), what);
            }
            return;
        }
        match rows.inodes.get(&entry.ino) {
            Some(file) if file.attr.kind != entry.kind => {
                let what =
                    format!("the name {shown} is of type {:?}, its file {:?}", entry.kind, file.attr.kind);
                self.found(Rule::KindAgrees, Some(entry.ino), what);
            }
            Some(_) => {}
            None => {
                let what = format!("the name {shown} in {dir} names it, but it is gone");
                self.found(Rule::FileThere, Some(entry.ino), what);
            }
        }
    }

    fn counts(&mut self, ino: Ino, dir: &Dir) {
        let names = self.rows.names_of(ino);
        let dirs = names.iter().filter(|(_, _, e)| e.kind == Kind::Directory).count() as u32;
        if let Some(owned) = &dir.owned
            && (owned.entries, owned.subdirs) != (names.len() as u64, dirs)
        {
            let what = format!(
                "it counts {} names and {} directories, but has {} and {dirs}",
                owned.entries,
                owned.subdirs,
                names.len()
            );
            self.found(Rule::NamesCounted, Some(ino), what);
        }
        let files = names.iter().filter(|(_, _, e)| e.kind != Kind::Directory);
        let at_home = files.filter(|(_, _, e)| dir.owned.is_none() && e.home == self.rows.island).count();
        // A name that is promised counts before it is there.
        let waits = at_home < dir.foreign_names as usize && dir.owned.is_none() && self.rows.is_promised(ino);
        if at_home != dir.foreign_names as usize && !waits {
            let what = format!(
                "it counts {} names of files that are homed here, but has {at_home}",
                dir.foreign_names
            );
            self.found(Rule::HomesCounted, Some(ino), what);
        }
        let by_table = self.volume.owner(dir.key) == self.rows.island;
        if dir.owned.is_some() && !by_table {
            self.found(Rule::OwnerByTable, Some(ino), "it is owned here, but not by the table".to_owned());
        } else if dir.owned.is_none() && by_table && !self.rows.in_doubt(ino) {
            self.found(Rule::OwnerByTable, Some(ino), "it is not owned here, but by the table".to_owned());
        }
    }

    // ----------------------------------------------------------------- skeleton

    fn skeleton(&mut self) {
        let rows = self.rows;
        let mut needed: BTreeSet<Ino> = BTreeSet::from([Ino::ROOT]);
        let mut below: BTreeMap<Ino, u32> = BTreeMap::new();
        for (ino, dir) in &rows.dirs {
            if *ino != Ino::ROOT {
                *below.entry(dir.place.parent).or_default() += 1;
            }
            let mut at = *ino;
            while (dir.owned.is_some() || dir.foreign_names > 0) && needed.insert(at) {
                match rows.dirs.get(&at) {
                    Some(above) => at = above.place.parent,
                    None => {
                        self.found(Rule::SkeletonWhole, Some(*ino), format!("{at} above it is missing"));
                        break;
                    }
                }
            }
        }
        for ino in self.circling() {
            self.found(Rule::SkeletonWhole, Some(ino), "it lies below itself".to_owned());
        }
        for (ino, dir) in &rows.dirs {
            if !needed.contains(ino) && !rows.in_doubt(*ino) {
                self.found(Rule::SkeletonNeeded, Some(*ino), "it is in the skeleton for nothing".to_owned());
            }
            let count = below.get(ino).copied().unwrap_or(0);
            if count != dir.children {
                let what =
                    format!("it counts {} directories of the skeleton below, but has {count}", dir.children);
                self.found(Rule::BelowCounted, Some(*ino), what);
            }
            // Those of a removed directory that is kept are not the skeleton's.
            let has = rows.xattrs.get(ino).filter(|_| !rows.inodes.contains_key(ino));
            let is_acl = |name| has.is_some_and(|x| x.get(name).is_some());
            let acl = is_acl(acl::ACCESS_XATTR) || is_acl(acl::DEFAULT_XATTR);
            self.xattrs(*ino, (dir.has_xattrs, has.is_some()), (dir.has_acl, acl));
        }
    }

    /// Directories that are their own ancestors.
    fn circling(&self) -> Vec<Ino> {
        let dirs = &self.rows.dirs;
        let mut seen = BTreeSet::from([Ino::ROOT]);
        let mut circling = Vec::new();
        for ino in dirs.keys() {
            let (mut way, mut at) = (Vec::new(), *ino);
            while seen.insert(at) {
                way.push(at);
                let Some(dir) = dirs.get(&at) else { break };
                at = dir.place.parent;
            }
            // Back at one of this very way, unless that is where it ended.
            let first = way.iter().position(|on_it| *on_it == at).filter(|_| dirs.contains_key(&at));
            circling.extend(first.into_iter().flat_map(|first| &way[first..]));
        }
        circling
    }

    fn xattrs(&mut self, ino: Ino, xattrs: (bool, bool), acl: (bool, bool)) {
        for (what, (says, has)) in [("extended attributes", xattrs), ("an ACL", acl)] {
            if says != has {
                let (says, has) = (word(says), word(has));
                self.found(
                    Rule::XattrsAnnounced,
                    Some(ino),
                    format!("it says that it {says} {what}, but it {has}"),
                );
            }
        }
    }

    // -------------------------------------------------------------------- files

    fn files(&mut self) {
        let rows = self.rows;
        for (ino, row) in &rows.inodes {
            let has = rows.xattrs.get(ino);
            let is_acl = |name| has.is_some_and(|x| x.get(name).is_some());
            let is_dir = row.attr.kind == Kind::Directory;
            let acl = is_acl(acl::ACCESS_XATTR) || (is_dir && is_acl(acl::DEFAULT_XATTR));
            self.xattrs(*ino, (row.has_xattrs, has.is_some_and(|x| !x.0.is_empty())), (row.has_acl, acl));
            if is_dir && rows.dirs.get(ino).is_some_and(|dir| dir.owned.is_some()) {
                let what = "it is there, and is kept as if it were removed".to_owned();
                self.found(Rule::OrphanHeld, Some(*ino), what);
            }
            let alive = row.orphan_of.iter().filter(|s| rows.sessions.contains_key(s)).count();
            // What comes from another island gets its name last.
            let comes = row.orphan_of.is_empty() && rows.is_promised(*ino);
            // The machine beside the island brings its bytes, and then gives it a name.
            let is_brought = row.orphan_of.is_empty() && row.beside.is_some() && !is_dir;
            if row.attr.nlink == 0 && !comes && !is_brought && (alive == 0 || alive != row.orphan_of.len()) {
                let what =
                    format!("it has no name, and of {} that keep it {alive} are known", row.orphan_of.len());
                self.found(Rule::OrphanHeld, Some(*ino), what);
            } else if row.attr.nlink > 0 && !row.orphan_of.is_empty() {
                self.found(
                    Rule::OrphanHeld,
                    Some(*ino),
                    "it has a name, and is kept as if it had none".to_owned(),
                );
            }
        }
        for ino in rows.xattrs.keys() {
            if !rows.inodes.contains_key(ino) && !rows.dirs.contains_key(ino) {
                self.found(
                    Rule::XattrsAnnounced,
                    Some(*ino),
                    "extended attributes are left of it".to_owned(),
                );
            }
        }
        for ino in rows.sums_end.keys() {
            if let Some((end, blocks)) = rows.sums_beyond(*ino) {
                let what = format!("checksums cover {end} blocks, but it has {blocks}");
                self.found(Rule::SumsFit, Some(*ino), what);
            }
        }
    }

    fn sessions(&mut self) {
        let rows = self.rows;
        for (ino, locks) in &rows.locks {
            if !rows.inodes.contains_key(ino) && !rows.dirs.contains_key(ino) {
                self.found(Rule::LocksHeld, Some(*ino), "locks are left of it".to_owned());
            }
            for (who, _) in locks.held() {
                if !rows.sessions.get(&who.session).is_some_and(|s| s.held.contains(ino)) {
                    let what = format!("client {:016x} does not know of its lock", who.session.0);
                    self.found(Rule::LocksHeld, Some(*ino), what);
                }
            }
        }
    }

    /// Every transaction has another side, and a sealed or adopted row has its transaction.
    fn transactions(&mut self) {
        let rows = self.rows;
        for (id, txn) in &rows.txns {
            let mine = id.coordinator == rows.island;
            let what = if txn.partner == rows.island {
                "is with itself".to_owned()
            } else if !mine && txn.partner != id.coordinator {
                format!("is coordinated by island {}, but with island {}", id.coordinator, txn.partner)
            } else if mine && txn.state == TxnState::Prepared {
                "waits at its coordinator for an outcome".to_owned()
            } else {
                continue;
            };
            let what = format!("transaction {:x} of island {} {what}", id.stamp.0, id.coordinator);
            self.found(Rule::TxnCaused, None, what);
        }
        for (ino, dir) in &rows.dirs {
            let Some(owned) = &dir.owned else { continue };
            for (mark, what) in [(owned.sealed, "sealed"), (owned.adopted, "adopted")] {
                if mark.is_some_and(|txn| !rows.txns.contains_key(&txn)) {
                    let what = format!("it is {what} for a transaction that is not there");
                    self.found(Rule::TxnCaused, Some(*ino), what);
                }
            }
        }
    }

    fn ids(&mut self) {
        let counter = |ino: Ino| ino.0 & ((1 << Ino::COUNTER_BITS) - 1);
        let limit = self.rows.meta.mint_limit;
        let mine = |ino: &Ino| ino.minted_by() == self.rows.island && *ino != Ino::ROOT;
        let all = self.rows.inodes.keys().chain(self.rows.dirs.keys());
        let beyond: Vec<Ino> = all.copied().filter(mine).filter(|ino| counter(*ino) >= limit).collect();
        for ino in beyond {
            self.found(Rule::IdMinted, Some(ino), format!("it is beyond the limit {limit} of ids"));
        }
    }
}

const fn word(has: bool) -> &'static str {
    if has { "has" } else { "has not" }
}

fn show(name: &Name) -> String {
    format!("\"{}\"", name.as_bytes().escape_ascii())
}
