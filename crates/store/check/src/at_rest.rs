//! Rules that islands keep when all of them are up, have heard from each other, and nothing is under way. The
//! simulator checks them at the end of every run. `atoll check` cannot, because it may see one node alone.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, IslandId, Name, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry};

use crate::{Finding, Rows, Rule, Volume};

/// Everything that is wrong with all islands of a volume while nothing is under way: the findings of
/// [`crate::check`], and violations of the stricter rules.
pub fn check_at_rest(volume: &Volume, islands: &[Rows]) -> Vec<Finding> {
    let mut findings = crate::check(volume, islands);
    let by_id = islands.iter().map(|rows| (rows.island, rows)).collect();
    let mut look = Look { volume, by_id, findings: &mut findings };
    for rows in islands {
        look.ended(rows);
        look.delivered(rows);
        look.forwards(rows);
        look.skeleton_names(rows);
        look.copies(rows);
        look.held(rows);
        look.links(rows);
    }
    findings
}

struct Look<'a> {
    volume: &'a Volume,
    by_id: BTreeMap<IslandId, &'a Rows>,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Look<'a> {
    fn found(&mut self, rule: Rule, island: IslandId, ino: Option<Ino>, what: String) {
        self.findings.push(Finding { rule, island, ino, what });
    }

    fn owner(&self, dir: &Dir) -> Option<&'a Rows> {
        self.by_id.get(&self.volume.owner(dir.key)).copied()
    }

    fn ended(&mut self, rows: &Rows) {
        for (id, txn) in &rows.txns {
            let what = format!("transaction {id:?} has no end: {txn:?}");
            self.found(Rule::TxnEnded, rows.island, None, what);
        }
        for (ino, dir) in &rows.dirs {
            if let Some(owned) = &dir.owned
                && (owned.sealed.is_some() || owned.adopted.is_some())
            {
                let what = format!("it is sealed for {:?} and adopted for {:?}", owned.sealed, owned.adopted);
                self.found(Rule::TxnEnded, rows.island, Some(*ino), what);
            }
        }
    }

    /// Journals are empty, and all have applied all of them.
    fn delivered(&mut self, rows: &Rows) {
        let journal = &rows.journals;
        for stamp in &journal.outbox {
            let waits = |(to, upto): (&IslandId, &Stamp)| (upto < stamp).then_some(*to);
            let late: Vec<_> = journal.delivered.iter().filter_map(waits).collect();
            let what = format!("its journal's entry {stamp:?} waits for islands {late:?}");
            self.found(Rule::JournalDelivered, rows.island, None, what);
        }
        for (of, upto) in &journal.skipped {
            if journal.delivered.get(of).is_none_or(|delivered| delivered < upto) {
                let what = format!("island {of} has not caught up with its journal to {upto:?}");
                self.found(Rule::JournalDelivered, rows.island, None, what);
            }
        }
        for (of, stamp) in &journal.inbox {
            let what = format!("entry {stamp:?} of island {of}'s journal is never safe there");
            self.found(Rule::JournalDelivered, rows.island, None, what);
        }
        let own = rows.clocks.get(rows.island);
        let others: Vec<&Rows> = self.by_id.values().copied().collect();
        for other in others {
            let seen = other.clocks.get(rows.island);
            if seen != own {
                let what = format!(
                    "it has applied {seen:?} of island {}'s journal, which is at {own:?}",
                    rows.island
                );
                self.found(Rule::JournalDelivered, other.island, None, what);
            }
        }
    }

    fn forwards(&mut self, rows: &Rows) {
        for (ino, forward) in &rows.forwards {
            if rows.inodes.contains_key(ino) {
                let what = format!("it is homed here, and has gone to island {}", forward.to);
                self.found(Rule::ForwardKnown, rows.island, Some(*ino), what);
            }
            for client in forward.sessions.iter().filter(|client| !rows.sessions.contains_key(client)) {
                let what = format!("it has gone, and waits for {client:?}, which is not known");
                self.found(Rule::ForwardKnown, rows.island, Some(*ino), what);
            }
        }
    }

    /// A directory that another island owns has the names of what is below it here, and no others.
    fn skeleton_names(&mut self, rows: &Rows) {
        for (ino, dir) in rows.dirs.iter().filter(|(_, dir)| dir.owned.is_none()) {
            let names = rows.names_of(*ino).len() as u64;
            if names != u64::from(dir.children + dir.foreign_names) {
                let what = format!(
                    "it has {} below and {} files homed here, but {names} names",
                    dir.children, dir.foreign_names
                );
                self.found(Rule::SkeletonNamed, rows.island, Some(*ino), what);
            }
            let is_lost = |(_, name, entry): &&(u64, Name, Entry)| {
                let child = rows.dirs.get(&entry.ino);
                let is_there = |c: &Dir| c.place.parent == *ino && c.place.name.as_ref() == Some(name);
                entry.kind == Kind::Directory && !child.is_some_and(is_there)
            };
            let lost: BTreeSet<Ino> =
                rows.names_of(*ino).iter().filter(is_lost).map(|(_, _, e)| e.ino).collect();
            for child in lost {
                let what = format!("a name in {ino} of the skeleton leads to it, which is not below that");
                self.found(Rule::SkeletonNamed, rows.island, Some(child), what);
            }
        }
    }

    /// Directories are the same on all islands, stubs too.
    fn copies(&mut self, rows: &Rows) {
        for (ino, dir) in &rows.dirs {
            // Where there is no owner's row, `check` has said so.
            let Some((owner, there)) = self.owner(dir).and_then(|o| Some((o, o.dirs.get(ino)?))) else {
                continue;
            };
            if there.fixed != dir.fixed || there.place != dir.place {
                let what = format!(
                    "it is {:?} {:?}, at its owner {:?} {:?}",
                    dir.place, dir.fixed, there.place, there.fixed
                );
                self.found(Rule::CopyCurrent, rows.island, Some(*ino), what);
            }
            let of = |island: &Rows| island.xattrs.get(ino).cloned().unwrap_or_default();
            if owner.island != rows.island && of(rows) != of(owner).acls() {
                let what = "its extended attributes are not the ACLs at its owner".to_owned();
                self.found(Rule::CopyCurrent, rows.island, Some(*ino), what);
            }
            if owner.island == rows.island && *ino != Ino::ROOT && !self.is_named(*ino, dir) {
                let what = format!("{:?} does not lead to it", dir.place);
                self.found(Rule::DirNamed, rows.island, Some(*ino), what);
            }
        }
        for (dir, _, entry) in
            rows.names.iter().flat_map(|(dir, names)| names.iter().map(move |n| (dir, &n.1, &n.2)))
        {
            let Some(stub) = &entry.stub else { continue };
            let owner = self.by_id.get(&self.volume.owner(stub.key));
            let Some(child) = owner.and_then(|owner| owner.dirs.get(&entry.ino)) else { continue };
            if child.fixed != stub.fixed || child.place.version != stub.place {
                let what = format!(
                    "its stub in {dir} has {:?} {:?}, its owner {:?} {:?}",
                    stub.place, stub.fixed, child.place, child.fixed
                );
                self.found(Rule::StubAgrees, rows.island, Some(entry.ino), what);
            }
        }
    }

    fn is_named(&self, ino: Ino, dir: &Dir) -> bool {
        let owned =
            |rows: &&&Rows| rows.dirs.get(&dir.place.parent).is_some_and(|above| above.owned.is_some());
        let parent = self.by_id.values().find(owned);
        let named =
            parent.zip(dir.place.name.as_ref()).and_then(|(rows, name)| rows.name(dir.place.parent, name));
        named.is_some_and(|entry| entry.ino == ino)
    }

    /// A client holds a file for a lock, or because the file has no name.
    fn held(&mut self, rows: &Rows) {
        for (id, session) in &rows.sessions {
            for ino in &session.held {
                let locked = rows.locks.get(ino).is_some_and(|l| l.held().any(|(who, _)| who.session == *id));
                let orphan = rows.inodes.get(ino).is_some_and(|row| row.orphan_of.contains(id));
                if !locked && !orphan {
                    let what = format!("client {:016x} holds it for nothing", id.0);
                    self.found(Rule::HeldForCause, rows.island, Some(*ino), what);
                }
            }
        }
    }

    /// Links to directories are as their homes have them, and known to all.
    fn links(&mut self, rows: &Rows) {
        for (ino, link) in &rows.links {
            let Some(home) = self.by_id.get(&link.home).copied() else { continue };
            if home.links.get(ino) != Some(link) {
                let what = format!("it keeps a link of which its home {} does not tell so", link.home);
                self.found(Rule::LinksAgree, rows.island, Some(*ino), what);
            }
            if home.island != rows.island {
                continue;
            }
            let others: Vec<&Rows> = self.by_id.values().copied().collect();
            for other in others.iter().filter(|other| other.links.get(ino) != Some(link)) {
                let what = format!("it does not know the link of island {} as it is", rows.island);
                self.found(Rule::LinksAgree, other.island, Some(*ino), what);
            }
            if rows.inodes.get(ino).and_then(|row| row.target.as_ref()) != Some(&link.target) {
                let what = "others are told of a link, which is not there with this target".to_owned();
                self.found(Rule::LinkThere, rows.island, Some(*ino), what);
            }
            for entry_ref in &link.names {
                if rows.name(entry_ref.dir, &entry_ref.name).is_none_or(|entry| entry.ino != *ino) {
                    let what =
                        format!("others are told of a name of the link that is not there: {entry_ref:?}");
                    self.found(Rule::LinkThere, rows.island, Some(*ino), what);
                }
            }
        }
    }
}
