//! Repairs files: each has as many names as it counts, or is held by a client, or gets a name in
//! `lost+found`. Never removes a file.

use std::collections::BTreeMap;

use atoll_check::{Rows, Rule};
use atoll_core::{H3, Ino, IslandId, Name, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Dir, DirPlace, Entry, Inode, OwnedDir, PlaceVersion, RowChange, StaticAttrs};

use crate::dirs::stub_of;
use crate::marks::{COUNTER_MAX, counter};
use crate::work::Work;
use crate::{LOST_AND_FOUND, Stray};

/// Permission bits of `lost+found`.
const LOST_AND_FOUND_MODE: u32 = 0o700;

/// Whether an island owns this directory.
fn is_owned(rows: &Rows, ino: Ino) -> bool {
    rows.dirs.get(&ino).is_some_and(|dir| dir.owned.is_some())
}

impl Work<'_> {
    /// Files count their names. A file without a name is held by a client, or is found again.
    pub(crate) fn files(&mut self) {
        for island in self.islands() {
            let rows = &self.rows[&island];
            let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
            for (_, _, entry) in rows.names.values().flatten() {
                if entry.kind != Kind::Directory && entry.home == island {
                    *names.entry(entry.ino).or_default() += 1;
                }
            }
            let files: Vec<Inode> = rows
                .inodes
                .iter()
                .filter(|(ino, row)| {
                    let count = names.get(ino).copied().unwrap_or(0);
                    let is_known = |session| rows.sessions.contains_key(session);
                    row.attr.kind == Kind::Directory && is_owned(rows, **ino)
                        || count != row.attr.nlink
                        || (count > 0) != row.orphan_of.is_empty()
                        || !row.orphan_of.iter().all(is_known)
                })
                .map(|(_, row)| row.clone())
                .collect();
            for file in files {
                let count = names.get(&file.attr.ino).copied().unwrap_or(0);
                self.file(island, file, count);
            }
        }
    }

    fn file(&mut self, island: IslandId, mut row: Inode, names: u32) {
        let ino = row.attr.ino;
        if self.in_doubt(ino) {
            return;
        }
        let sessions = &self.rows[&island].sessions;
        let holders: Vec<_> = row.orphan_of.iter().copied().filter(|s| sessions.contains_key(s)).collect();
        if row.attr.kind == Kind::Directory && (holders.is_empty() || is_owned(&self.rows[&island], ino)) {
            return self.removed_dir(island, &row);
        }
        let (rule, what) = if names > 0 && row.attr.nlink == names {
            row.orphan_of.clear();
            (Rule::OrphanHeld, "it has a name, and is not kept as if it had none".to_owned())
        } else if names > row.attr.nlink || (names > 0 && self.whole) {
            let before = std::mem::replace(&mut row.attr.nlink, names);
            row.orphan_of.clear();
            (Rule::LinksCounted, format!("it counts {names} names, no longer {before}"))
        } else if names == 0 && row.attr.nlink == 0 && !holders.is_empty() {
            row.orphan_of = holders;
            (Rule::OrphanHeld, "it is kept by the clients that are known".to_owned())
        } else if names == 0 && self.whole {
            return self.name_lost(island, row);
        } else {
            // Whoever is not here may have a name of it: a count that is too low would lose it.
            return;
        };
        let change = RowChange::Inode { ino, row: Some(Box::new(row)) };
        self.fix(rule, island, Some(ino), what, vec![(island, change)]);
    }

    /// A removed directory that no known client keeps goes: it has nothing that anyone could miss.
    fn removed_dir(&mut self, island: IslandId, row: &Inode) {
        let ino = row.attr.ino;
        let mut changes = vec![(island, RowChange::Inode { ino, row: None })];
        let is_there = is_owned(&self.rows[&island], ino);
        if row.has_xattrs && !is_there {
            changes.push((island, RowChange::Xattrs { ino, row: None }));
        }
        let what = match is_there {
            true => "it is there, and is not kept as if it were removed",
            false => "it was removed, and no client keeps it: it goes",
        };
        let what = what.to_owned();
        self.fix(Rule::OrphanHeld, island, Some(ino), what, changes);
    }

    // --------------------------------------------------------------- lost+found

    /// A file that has lost its names gets one in `lost+found`.
    fn name_lost(&mut self, island: IslandId, mut row: Inode) {
        let Some((dir, owner)) = self.lost_and_found() else { return };
        let (ino, kind) = (row.attr.ino, row.attr.kind);
        let name = Name::new(format!("atoll-{:x}", ino.0).as_bytes()).expect("hexadecimal");
        if self.rows[&owner].name(dir, &name).is_some_and(|there| there.ino != ino) {
            return;
        }
        let entry = Entry { ino, kind, home: island, stub: None };
        let rule = if row.attr.nlink > 0 { Rule::LinksCounted } else { Rule::OrphanHeld };
        row.attr.nlink = 1;
        row.orphan_of.clear();
        let mut changes = vec![(island, RowChange::Inode { ino, row: Some(Box::new(row)) })];
        changes.extend(self.name_at_owner(owner, dir, &name, Some(entry.clone())));
        if owner != island {
            changes.push((island, RowChange::Entry { dir, name: name.clone(), row: Some(entry) }));
        }
        let what = format!("it had no name; now it is /{LOST_AND_FOUND}/{name}");
        self.fix(rule, island, Some(ino), what, changes);
    }

    /// The directory for lost files, and its owner. It is made if it is not there.
    fn lost_and_found(&mut self) -> Option<(Ino, IslandId)> {
        let name = Name::new(LOST_AND_FOUND.as_bytes()).expect("a name");
        let (root_owner, root) = self.owned(Ino::ROOT)?;
        if self.name_in_doubt(Ino::ROOT, &name, Ino::ROOT) {
            return None;
        }
        if let Some(there) = self.rows[&root_owner].name(Ino::ROOT, &name) {
            let dir = there.ino;
            return self.owned(dir).map(|(owner, _)| (dir, owner));
        }
        let StaticAttrs { uid, gid, .. } = root.fixed;
        let hash = H3::new(self.volume.seed).path([&name])?;
        let (key, birth_bytes) = (hash.key(), hash.bytes());
        let owner = self.table_owner(key)?;
        let limit = self.rows[&owner].meta.mint_limit.max(Ino::FIRST_COUNTER);
        if limit >= COUNTER_MAX {
            return None;
        }
        let (ino, now) = (Ino::mint(owner, limit), self.options.now);
        let stamp = self.next_stamp(root_owner)?;
        let owned = OwnedDir::empty(now);
        let row = Dir {
            key,
            birth_bytes,
            place: DirPlace {
                version: PlaceVersion { moves: 0, stamp },
                parent: Ino::ROOT,
                name: Some(name.clone()),
            },
            fixed: StaticAttrs { version: Stamp::default(), mode: LOST_AND_FOUND_MODE, uid, gid },
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 0,
            owned: Some(owned),
            beside: None,
        };
        let stub = stub_of(&row);
        let mut changes = vec![(owner, RowChange::MintLimit { limit: limit + 1 })];
        changes.push((owner, RowChange::Dir { ino, row: Some(Box::new(row)) }));
        changes.push(self.dir_with(owner, Ino::ROOT, |root| root.children += 1));
        if owner != root_owner {
            let row = Some(Entry { ino, kind: Kind::Directory, home: owner, stub: None });
            changes.push((owner, RowChange::Entry { dir: Ino::ROOT, name: name.clone(), row }));
        }
        let what = format!("/{LOST_AND_FOUND} is made");
        self.fix(Rule::DirThere, owner, Some(ino), what, changes);
        // Its name must not be there before it: without names in it, it would not be made again.
        self.after_all = true;
        let entry = Entry { ino, kind: Kind::Directory, home: root_owner, stub: Some(Box::new(stub)) };
        let mut changes = vec![(root_owner, RowChange::Stamp { stamp })];
        changes.extend(self.name_at_owner(root_owner, Ino::ROOT, &name, Some(entry)));
        let what = format!("/{LOST_AND_FOUND} has its name");
        self.fix(Rule::DirNamed, root_owner, Some(ino), what, changes);
        Some((ino, owner))
    }

    // ------------------------------------------------------------------- bodies

    /// A body that belongs to no file becomes a file again: under the names that lead to it, or in
    /// `lost+found`.
    pub(crate) fn remake_files(&mut self) {
        for ((island, ino), stray) in self.strays.clone() {
            let Some(rows) = self.rows.get(&island) else { continue };
            // It may have moved, and have left its bytes.
            let has = |rows: &atoll_check::Rows| rows.inodes.contains_key(&ino);
            let is_known = rows.dirs.contains_key(&ino) || self.rows.values().any(has);
            let mut names = self.rows.values().flat_map(|rows| rows.names.values().flatten());
            let named = names.any(|(_, _, entry)| (entry.ino, entry.home) == (ino, island));
            let is_id = (named || ino.minted_by() == island)
                && (Ino::FIRST_COUNTER..COUNTER_MAX).contains(&counter(ino));
            // Without a name it needs one, and whoever is not here may have it.
            if is_known || !is_id || self.in_doubt(ino) || !(named || self.whole) {
                continue;
            }
            let Stray { attr, target, sums, .. } = stray;
            let row = Inode {
                attr,
                target,
                has_xattrs: false,
                has_acl: false,
                moves: 0,
                orphan_of: Vec::new(),
                beside: None,
                is_absent: false,
            };
            let mut changes = Vec::new();
            if !rows.sums_end.contains_key(&ino) {
                let sums = sums.into_iter();
                changes.extend(sums.map(|(first, sums)| (island, RowChange::Sums { ino, first, sums })));
            }
            changes.push((island, RowChange::Inode { ino, row: Some(Box::new(row)) }));
            self.strays.remove(&(island, ino));
            let what = format!("it is a file again, of the {} bytes that are there", attr.size);
            self.fix(Rule::FileThere, island, Some(ino), what, changes);
            // It is named, or counted, in the same round.
        }
    }
}
