//! A plan in the making: the rows of all islands as it leaves them so far, and questions that every pass asks
//! about them. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use atoll_check::{Rows, Rule, Volume};
use atoll_core::cookie_of;
use atoll_core::{Ino, IslandId, Key, Name, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, RowChange, Stub, names_of};

use crate::{Fix, Native, Options, Plan, Stray};

/// A plan under construction.
pub(crate) struct Work<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) native: &'a dyn Native,
    pub(crate) options: &'a Options,
    /// The rows of the islands that are there, if every row can be read and set.
    pub(crate) rows: BTreeMap<IslandId, Rows>,
    /// Islands with rows that cannot be read or set. Nothing is known of their rows, and nothing is done to
    /// them.
    unread: Vec<Rows>,
    pub(crate) strays: BTreeMap<(IslandId, Ino), Stray>,
    /// All islands of the volume are among `rows`.
    pub(crate) whole: bool,
    /// The next repair must not be on disk before the ones so far.
    pub(crate) after_all: bool,
    pub(crate) fixes: Vec<Fix>,
}

/// A name of a directory, as the owner of the one above has it.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) at: IslandId,
    pub(crate) dir: Ino,
    pub(crate) name: Name,
    pub(crate) stub: Stub,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        volume: &'a Volume,
        islands: Vec<Rows>,
        native: &'a dyn Native,
        strays: Vec<Stray>,
        options: &'a Options,
    ) -> Self {
        let (rows, unread): (Vec<_>, Vec<_>) = islands.into_iter().partition(|rows| is_read(volume, rows));
        let rows: BTreeMap<_, _> = rows.into_iter().map(|rows| (rows.island, rows)).collect();
        let whole = volume.table.owners().iter().all(|island| rows.contains_key(island));
        let strays = strays.into_iter().map(|stray| ((stray.island, stray.attr.ino), stray)).collect();
        let fixes = Vec::new();
        Self { volume, native, options, rows, unread, strays, whole, after_all: false, fixes }
    }

    pub(crate) fn into_plan(self) -> Plan {
        let mut rows: Vec<Rows> = self.rows.into_values().chain(self.unread).collect();
        rows.sort_by_key(|rows| rows.island);
        Plan { fixes: self.fixes, rows, refused: None }
    }

    /// Adds a repair to the plan.
    pub(crate) fn fix(
        &mut self,
        rule: Rule,
        island: IslandId,
        ino: Option<Ino>,
        what: String,
        changes: Vec<(IslandId, RowChange)>,
    ) {
        for (at, change) in &changes {
            let rows = self.rows.get_mut(at).expect("only islands that are there are changed");
            rows.apply(self.volume.seed, change);
        }
        let after_all = std::mem::take(&mut self.after_all);
        self.fixes.push(Fix { rule: rule.name(), island, ino, what, changes, after_all });
    }

    // ------------------------------------------------------------------ looking

    pub(crate) fn islands(&self) -> Vec<IslandId> {
        self.rows.keys().copied().collect()
    }

    /// The owner by the table, if that island is there.
    pub(crate) fn table_owner(&self, key: Key) -> Option<IslandId> {
        Some(self.volume.owner(key)).filter(|island| self.rows.contains_key(island))
    }

    /// Whether this row is the one of its owner.
    pub(crate) fn is_owners(&self, island: IslandId, row: &Dir) -> bool {
        row.owned.is_some() && self.volume.owner(row.key) == island
    }

    /// A directory as its owner has it.
    pub(crate) fn owned(&self, ino: Ino) -> Option<(IslandId, &Dir)> {
        let mut all = self.rows.iter().filter_map(|(island, rows)| Some((*island, rows.dirs.get(&ino)?)));
        all.find(|(island, row)| self.is_owners(*island, row))
    }

    /// A directory as its owner has it, or else as another island has it.
    pub(crate) fn known(&self, ino: Ino) -> Option<(IslandId, &Dir)> {
        let all = self.rows.iter().filter_map(|(island, rows)| Some((*island, rows.dirs.get(&ino)?)));
        self.owned(ino).or_else(|| all.max_by_key(|(_, row)| (row.place.version, row.fixed.version)))
    }

    /// A transaction under way is about this id.
    pub(crate) fn in_doubt(&self, ino: Ino) -> bool {
        self.rows.values().chain(&self.unread).any(|rows| rows.in_doubt(ino))
    }

    pub(crate) fn name_in_doubt(&self, dir: Ino, name: &Name, ino: Ino) -> bool {
        self.in_doubt(ino) || self.rows.values().chain(&self.unread).any(|rows| rows.name_in_doubt(dir, name))
    }

    /// Whether this is a file of that island, of that type.
    pub(crate) fn is_file(&self, home: IslandId, ino: Ino) -> bool {
        self.rows.get(&home).is_some_and(|rows| rows.inodes.contains_key(&ino))
    }

    /// All names of directories, as the owners of the directories above have them, by id.
    pub(crate) fn stubs(&self) -> BTreeMap<Ino, Vec<Named>> {
        let mut stubs: BTreeMap<Ino, Vec<Named>> = BTreeMap::new();
        for (&at, rows) in &self.rows {
            for (&dir, names) in &rows.names {
                if rows.dirs.get(&dir).is_some_and(|row| self.is_owners(at, row)) {
                    for (_, name, entry) in names {
                        if let Some(stub) = &entry.stub {
                            let named = Named { at, dir, name: name.clone(), stub: (**stub).clone() };
                            stubs.entry(entry.ino).or_default().push(named);
                        }
                    }
                }
            }
        }
        stubs
    }

    /// The names that lead to a directory from the root, if all are known.
    pub(crate) fn path(&self, dir: Ino) -> Option<Vec<Name>> {
        let place = |at| Ok::<_, std::convert::Infallible>(self.known(at).map(|(_, row)| row.place.clone()));
        names_of(dir, place).unwrap_or_else(|never| match never {})
    }

    /// Every id that some name leads to.
    pub(crate) fn named_ids(&self) -> BTreeSet<Ino> {
        let names = self.rows.values().flat_map(|rows| rows.names.values().flatten());
        names.map(|(_, _, entry)| entry.ino).collect()
    }

    /// The first free name beside this one at an island.
    pub(crate) fn free_beside(&self, at: IslandId, dir: Ino, name: &Name, ino: Ino) -> Name {
        let is_free = |beside: &Name| self.rows[&at].name(dir, beside).is_none();
        name.beside(ino).find(is_free).expect("there is no end of them")
    }

    /// The next stamp of an island's clock; none if the clock's row must be damaged.
    pub(crate) fn next_stamp(&self, island: IslandId) -> Option<Stamp> {
        /// Stamps of one incarnation that are believed: more would be a damaged row.
        const N_MAX: u64 = 1 << 39;
        let rows = &self.rows[&island];
        let incarnation = rows.meta.incarnation;
        let last = rows.meta.stamp.max(rows.clocks.get(island));
        if last.incarnation() == incarnation {
            Some(last.n() + 1).filter(|n| *n < N_MAX).map(|n| Stamp::new(incarnation, n))
        } else {
            (last.incarnation() < incarnation && incarnation < 1 << 23).then(|| Stamp::new(incarnation, 1))
        }
    }

    // ----------------------------------------------------------------- changing

    /// A directory's row with something changed.
    pub(crate) fn dir_with(
        &self,
        at: IslandId,
        ino: Ino,
        change: impl FnOnce(&mut Dir),
    ) -> (IslandId, RowChange) {
        let mut row = self.rows[&at].dirs[&ino].clone();
        change(&mut row);
        (at, RowChange::Dir { ino, row: Some(Box::new(row)) })
    }

    /// A name at a directory's owner, with the counts and times of that.
    pub(crate) fn name_at_owner(
        &self,
        at: IslandId,
        dir: Ino,
        name: &Name,
        row: Option<Entry>,
    ) -> Vec<(IslandId, RowChange)> {
        let is_dir = |entry: &Entry| u32::from(entry.kind == Kind::Directory);
        let others = self.rows[&at].names_of(dir).iter().filter(|(_, n, _)| n != name).map(|(_, _, e)| e);
        let all: Vec<u32> = others.chain(&row).map(is_dir).collect();
        let counted = self.dir_with(at, dir, |dir| {
            let owned = dir.owned.as_mut().expect("the directory's owner is asked");
            (owned.entries, owned.subdirs) = (all.len() as u64, all.iter().sum());
            (owned.mtime, owned.ctime) = (self.options.now, self.options.now);
        });
        vec![(at, RowChange::Entry { dir, name: name.clone(), row }), counted]
    }
}

/// Every row can be read, and a record can set it. No record can set a row whose key is not its own.
fn is_read(volume: &Volume, rows: &Rows) -> bool {
    let mut names = rows.names.values().flatten();
    rows.bad.is_empty() && names.all(|(cookie, name, _)| *cookie == cookie_of(volume.seed, name.as_bytes()))
}

/// For people.
pub(crate) fn show(name: &Name) -> String {
    format!("\"{}\"", name.as_bytes().escape_ascii())
}
