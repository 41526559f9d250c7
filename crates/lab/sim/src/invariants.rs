//! What must be true of all islands' rows when nothing is under way, whatever happened before.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, IslandId, Name, Stamp};
use atoll_posix::{Kind, acl};
use atoll_proto::{Dir, Entry};

use crate::cause::Failure;
use crate::rows::Rows;
use crate::world::World;

/// Every broken invariant of a world at rest, after it has made checkpoints of all islands.
pub fn invariants(world: &mut World) -> Result<(), Failure> {
    world.settle()?;
    // Carried bytes are put in place a moment later.
    world.run_for(1_000_000)?;
    world.checkpoint_all()?;
    world.audit_all()?;
    let all: Vec<Rows> =
        (0..world.nodes.len()).map(|island| Rows::read(world, island)).collect::<Result<_, _>>()?;
    let check = Check { world, all: &all, broken: Vec::new() };
    let broken = check.everything();
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("invariants:\n  {}", broken.join("\n  "))))
}

struct Check<'a> {
    world: &'a World,
    all: &'a [Rows],
    broken: Vec<String>,
}

impl Check<'_> {
    fn everything(mut self) -> Vec<String> {
        for island in 0..self.all.len() {
            self.at_rest(island);
            self.names(island);
            self.skeleton(island);
            self.files(island);
            self.sessions(island);
            self.bodies(island);
        }
        self.directories();
        self.clocks();
        self.links();
        self.broken
    }

    /// Links to directories are as their homes have them, and known to all.
    fn links(&mut self) {
        for island in 0..self.all.len() {
            for (ino, link) in &self.all[island].links {
                let home = usize::from(link.home.0);
                if self.all[home].links.get(ino) != Some(link) {
                    self.say(island, format!("keeps link {ino}, of which its home {home} does not tell so"));
                }
                for other in (0..self.all.len()).filter(|_| home == island) {
                    if self.all[other].links.get(ino) != Some(link) {
                        self.say(other, format!("does not know link {ino} of island {home} as it is"));
                    }
                }
                if home != island {
                    continue;
                }
                let there = self.all[home].inodes.get(ino).and_then(|row| row.target.as_ref());
                if there != Some(&link.target) {
                    self.say(island, format!("tells of link {ino}, which is not there with this target"));
                }
                for spot in &link.names {
                    let entry = self.all[home].entries.get(&(spot.dir, spot.name.clone()));
                    if entry.is_none_or(|entry| entry.ino != *ino) {
                        self.say(
                            island,
                            format!("tells of a name of link {ino} that is not there: {spot:?}"),
                        );
                    }
                }
            }
        }
    }

    fn say(&mut self, island: usize, what: String) {
        self.broken.push(format!("island {island}: {what}"));
    }

    fn owner(&self, dir: &Dir) -> usize {
        usize::from(self.world.table.owner(dir.key).0)
    }

    fn at_rest(&mut self, island: usize) {
        let rows = &self.all[island];
        for (id, txn) in &rows.txns {
            self.say(island, format!("transaction {id:?} has no end: {txn:?}"));
        }
        for stamp in rows.outbox.keys() {
            let waits = |(to, upto): (&IslandId, &Stamp)| (upto < stamp).then_some(*to);
            let late: Vec<_> = rows.delivered.iter().filter_map(waits).collect();
            self.say(island, format!("journal entry {stamp:?} waits for islands {late:?}"));
        }
        for (of, upto) in &rows.skipped {
            if rows.delivered.get(of).is_none_or(|delivered| delivered < upto) {
                self.say(island, format!("island {of} has not caught up with its journal to {upto:?}"));
            }
        }
        for (of, stamp) in rows.inbox.keys() {
            self.say(island, format!("entry {stamp:?} of island {of}'s journal is never safe there"));
        }
        for (ino, forward) in &rows.forwards {
            if rows.inodes.contains_key(ino) {
                self.say(island, format!("{ino} is homed here, and has gone to {}", forward.to));
            }
            for client in forward.sessions.iter().filter(|client| !rows.sessions.contains_key(client)) {
                self.say(island, format!("{ino} has gone, and waits for {client:?}, which is not known"));
            }
        }
        for (ino, dir) in &rows.dirs {
            if let Some(owned) = &dir.owned
                && (owned.sealed.is_some() || owned.adopted.is_some())
            {
                self.say(island, format!("directory {ino} is {:?} {:?}", owned.sealed, owned.adopted));
            }
        }
    }

    /// Counts of owned directories, and what names lead to.
    fn names(&mut self, island: usize) {
        let rows = &self.all[island];
        let mut counts: BTreeMap<Ino, (u64, u32)> = BTreeMap::new();
        let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut homes: BTreeMap<Ino, u32> = BTreeMap::new();
        for ((dir, name), entry) in &rows.entries {
            let count = counts.entry(*dir).or_default();
            count.0 += 1;
            let directory = entry.kind == Kind::Directory;
            count.1 += u32::from(directory);
            if directory {
                self.name_of_directory(island, *dir, name, entry);
                continue;
            }
            if usize::from(entry.home.0) == island {
                *links.entry(entry.ino).or_default() += 1;
            }
            let owned = rows.dirs.get(dir).is_some_and(|dir| dir.owned.is_some());
            if !owned {
                *homes.entry(*dir).or_default() += 1;
            }
            self.name_elsewhere(island, owned, (*dir, name), entry);
            let home = usize::from(entry.home.0);
            match self.all.get(home).and_then(|r| r.inodes.get(&entry.ino)) {
                Some(row) if row.attr.kind == entry.kind => {}
                Some(row) => self.say(
                    island,
                    format!("{name} in {dir} is {:?}, its file {:?}", entry.kind, row.attr.kind),
                ),
                None => self.say(island, format!("{name} in {dir} names {}, which is gone", entry.ino)),
            }
        }
        for (ino, dir) in &rows.dirs {
            let (entries, subdirs) = counts.remove(ino).unwrap_or_default();
            match &dir.owned {
                Some(owned) if (owned.entries, owned.subdirs) != (entries, subdirs) => self.say(
                    island,
                    format!(
                        "{ino} counts {} names {} directories, it has {entries} {subdirs}",
                        owned.entries, owned.subdirs
                    ),
                ),
                Some(_) if self.owner(dir) != island => {
                    self.say(island, format!("{ino} is owned here, but not by the table"))
                }
                None if self.owner(dir) == island => {
                    self.say(island, format!("{ino} is not owned here, but by the table"))
                }
                _ if homes.get(ino).copied().unwrap_or(0) != dir.homes => {
                    let names = homes.get(ino);
                    self.say(
                        island,
                        format!("{ino} counts {} names of files homed here, it has {names:?}", dir.homes),
                    );
                }
                None if u64::from(dir.below + dir.homes) != entries => {
                    self.say(
                        island,
                        format!("{ino} of the skeleton has {} below and {entries} names", dir.below),
                    );
                }
                _ => {}
            }
        }
        for ino in counts.keys() {
            self.say(island, format!("names are left of {ino}, which is no directory here"));
        }
        for (ino, row) in &rows.inodes {
            let names = links.remove(ino).unwrap_or(0);
            if names != row.attr.nlink {
                self.say(island, format!("{ino} has {names} names, but a link count of {}", row.attr.nlink));
            }
        }
    }

    /// A name and its file are at two islands: both have it.
    fn name_elsewhere(&mut self, island: usize, owned: bool, (dir, name): (Ino, &Name), entry: &Entry) {
        let home = usize::from(entry.home.0);
        let at = if !owned && home == island {
            let owner = |rows: &&Rows| rows.dirs.get(&dir).is_some_and(|dir| dir.owned.is_some());
            self.all.iter().find(owner)
        } else if owned && home != island {
            self.all.get(home)
        } else if owned {
            return;
        } else {
            None
        };
        let there = at.and_then(|rows| rows.entries.get(&(dir, name.clone())));
        if there != Some(entry) {
            self.say(island, format!("{name} in {dir} is {entry:?}, at the other island {there:?}"));
        }
    }

    fn name_of_directory(&mut self, island: usize, dir: Ino, name: &Name, entry: &Entry) {
        let rows = &self.all[island];
        let owned = rows.dirs.get(&dir).is_some_and(|d| d.owned.is_some());
        match (&entry.stub, owned) {
            (Some(stub), true) => {
                let owner = usize::from(self.world.table.owner(stub.key).0);
                match self.all[owner].dirs.get(&entry.ino) {
                    Some(child) if child.owned.is_some() => {
                        if child.fixed != stub.fixed {
                            self.say(
                                island,
                                format!(
                                    "stub of {} has {:?}, its owner {:?}",
                                    entry.ino, stub.fixed, child.fixed
                                ),
                            );
                        }
                        if child.place.version != stub.place
                            || child.place.parent != dir
                            || child.place.name.as_ref() != Some(name)
                        {
                            self.say(
                                island,
                                format!(
                                    "stub {name} in {dir} ({:?}), its owner {owner} has {:?}",
                                    stub.place, child.place
                                ),
                            );
                        }
                        if child.key != stub.key {
                            self.say(island, format!("stub of {} has another key than its owner", entry.ino));
                        }
                    }
                    _ => self.say(
                        island,
                        format!(
                            "{name} in {dir} is directory {}, which island {owner} does not own",
                            entry.ino
                        ),
                    ),
                }
            }
            (None, false) => {
                let child = rows.dirs.get(&entry.ino);
                if child.is_none_or(|c| c.place.parent != dir || c.place.name.as_ref() != Some(name)) {
                    self.say(
                        island,
                        format!(
                            "skeleton name {name} in {dir} leads to {}: {:?}",
                            entry.ino,
                            child.map(|c| &c.place)
                        ),
                    );
                }
            }
            (stub, owned) => self.say(
                island,
                format!(
                    "{name} in {dir} (owned: {owned}) has {}",
                    if stub.is_some() { "a stub" } else { "no stub" }
                ),
            ),
        }
    }

    /// The skeleton is what is owned, with all above it, and nothing else.
    fn skeleton(&mut self, island: usize) {
        let rows = &self.all[island];
        let mut needed: BTreeSet<Ino> = BTreeSet::from([Ino::ROOT]);
        let mut below: BTreeMap<Ino, u32> = BTreeMap::new();
        for (ino, dir) in &rows.dirs {
            if *ino != Ino::ROOT {
                *below.entry(dir.place.parent).or_default() += 1;
            }
            let mut at = *ino;
            while (dir.owned.is_some() || dir.homes > 0) && needed.insert(at) {
                match rows.dirs.get(&at) {
                    Some(above) => at = above.place.parent,
                    None => self.say(island, format!("{at} above {ino} is missing")),
                }
            }
        }
        for (ino, dir) in &rows.dirs {
            if !needed.contains(ino) {
                self.say(island, format!("{ino} is in the skeleton for nothing"));
            }
            let count = below.get(ino).copied().unwrap_or(0);
            if count != dir.below {
                self.say(island, format!("{ino} counts {} below, it has {count}", dir.below));
            }
            let has = rows.xattrs.get(ino);
            if dir.has_xattrs != has.is_some() {
                self.say(island, format!("{ino} says has_xattrs {}, and has {has:?}", dir.has_xattrs));
            }
            let acl = has
                .is_some_and(|x| x.get(acl::ACCESS_XATTR).is_some() || x.get(acl::DEFAULT_XATTR).is_some());
            if dir.has_acl != acl {
                self.say(island, format!("{ino} says has_acl {}, which is {acl}", dir.has_acl));
            }
        }
    }

    /// Every directory is the same on all islands, and every one that is owned has its name.
    fn directories(&mut self) {
        for island in 0..self.all.len() {
            let rows = &self.all[island];
            for (ino, dir) in &rows.dirs {
                let owner = self.owner(dir);
                let Some(there) = self.all[owner].dirs.get(ino) else {
                    self.say(island, format!("{ino} is in the skeleton, but not at its owner {owner}"));
                    continue;
                };
                if there.fixed != dir.fixed || there.place != dir.place {
                    let what = format!(
                        "{ino} is {:?} {:?}, at its owner {:?} {:?}",
                        dir.place, dir.fixed, there.place, there.fixed
                    );
                    self.say(island, what);
                }
                let of = |i: usize| self.all[i].xattrs.get(ino).cloned().unwrap_or_default();
                if island != owner && of(island) != of(owner).acls() {
                    self.say(island, format!("xattrs of {ino} are not the ACLs of its owner"));
                }
                if owner != island || *ino == Ino::ROOT {
                    continue;
                }
                let parent = self
                    .all
                    .iter()
                    .find_map(|r| r.dirs.get(&dir.place.parent).filter(|d| d.owned.is_some()).map(|_| r));
                let named = parent
                    .zip(dir.place.name.as_ref())
                    .and_then(|(r, name)| r.entries.get(&(dir.place.parent, name.clone())));
                if named.is_none_or(|entry| entry.ino != *ino) {
                    self.say(
                        island,
                        format!("directory {ino} is owned here, but {:?} does not lead to it", dir.place),
                    );
                }
            }
        }
    }

    fn files(&mut self, island: usize) {
        let rows = &self.all[island];
        for (ino, row) in &rows.inodes {
            let has = rows.xattrs.get(ino);
            if row.has_xattrs != has.is_some_and(|x| !x.0.is_empty()) {
                self.say(island, format!("{ino} says has_xattrs {}, and has {has:?}", row.has_xattrs));
            }
            if row.has_acl != has.is_some_and(|x| x.get(acl::ACCESS_XATTR).is_some()) {
                self.say(island, format!("{ino} says has_acl {}", row.has_acl));
            }
            if row.attr.nlink == 0 {
                let alive = row.orphan_of.iter().filter(|s| rows.sessions.contains_key(s)).count();
                if alive == 0 || alive != row.orphan_of.len() {
                    self.say(island, format!("orphan {ino} is kept by {:?}", row.orphan_of));
                }
            } else if !row.orphan_of.is_empty() {
                self.say(island, format!("{ino} has names and is kept by {:?}", row.orphan_of));
            }
        }
        for ino in rows.xattrs.keys() {
            if !rows.inodes.contains_key(ino) && !rows.dirs.contains_key(ino) {
                self.say(island, format!("xattrs are left of {ino}"));
            }
        }
        for (ino, chunk) in rows.sums.keys() {
            let size = rows.inodes.get(ino).map_or(0, |row| row.attr.size);
            let first = chunk * atoll_state::key::SUMS_PER_CHUNK * BLOCK_BYTES;
            if first >= size {
                self.say(island, format!("checksums are left of {ino}, chunk {chunk}, length {size}"));
            }
        }
    }

    fn sessions(&mut self, island: usize) {
        let rows = &self.all[island];
        for (ino, locks) in &rows.locks {
            if !rows.inodes.contains_key(ino) && !rows.dirs.contains_key(ino) {
                self.say(island, format!("locks are left of {ino}"));
            }
            for (who, _) in locks.held() {
                let session = rows.sessions.get(&who.session);
                if session.is_none_or(|s| !s.held.contains(ino)) {
                    self.say(island, format!("session {} does not know of its lock on {ino}", who.session));
                }
            }
        }
        for (id, session) in &rows.sessions {
            for ino in &session.held {
                let locked = rows.locks.get(ino).is_some_and(|l| l.held().any(|(who, _)| who.session == *id));
                let orphan = rows.inodes.get(ino).is_some_and(|row| row.orphan_of.contains(id));
                if !locked && !orphan {
                    self.say(island, format!("session {id} holds {ino} for nothing"));
                }
            }
        }
    }

    fn clocks(&mut self) {
        for island in 0..self.all.len() {
            let me = IslandId(island as u16);
            let own = self.all[island].clocks.get(&me).copied().unwrap_or_default();
            for other in 0..self.all.len() {
                let seen = self.all[other].clocks.get(&me).copied().unwrap_or_default();
                if seen != own {
                    self.say(
                        other,
                        format!("has applied {seen:?} of island {island}'s journal, which is at {own:?}"),
                    );
                }
            }
        }
    }

    /// Every block of every body has its checksum, and no body is left over.
    fn bodies(&mut self, island: usize) {
        let rows = &self.all[island];
        let engine = self.world.nodes[island].engine.as_ref().expect("it is up");
        let mut buffer = Vec::new();
        for (ino, row) in rows.inodes.iter().filter(|(_, row)| row.attr.kind == Kind::Regular) {
            let size = row.attr.size;
            let sums: Vec<u32> = (0..size.div_ceil(BLOCK_BYTES)).map(|b| rows.sum(*ino, b)).collect();
            if size > 0
                && let Err(error) = engine.bodies().read(*ino, 0, size, size, &sums, &mut buffer)
            {
                self.say(island, format!("body {ino}, {size} bytes: {error}"));
            }
        }
    }
}
