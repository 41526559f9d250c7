//! Symbolic links to directories, of all islands, as their homes have told of them. They are always in
//! memory; each home bounds how many it tells of.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Encode, IdMap, Ino, IslandId, Name};
use atoll_proto::CarriedLink;

use crate::key::RowKey;
use crate::state::{State, row_bytes};
use atoll_core::cookie_of;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkRows {
    rows: BTreeMap<Ino, CarriedLink>,
    /// By directory and name. Two may claim one name while news of one is on its way: the latest counts.
    names: IdMap<Ino, BTreeMap<Name, Vec<Ino>>>,
    /// Of each home: how many there are, and all their hashes in one.
    digests: BTreeMap<IslandId, (u64, u64)>,
    dirty: BTreeSet<Ino>,
    /// The digest of this island's that each island has said it has.
    told: BTreeMap<IslandId, u64>,
    told_dirty: BTreeSet<IslandId>,
    /// Position of the last record that changed any.
    seq: u64,
}

impl LinkRows {
    pub(crate) fn get(&self, ino: Ino) -> Option<&CarriedLink> {
        self.rows.get(&ino)
    }

    pub(crate) fn at(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.names.get(&dir)?.get(name)?.last().copied()
    }

    /// Those of one home with ids above this, in their order.
    pub(crate) fn of_after(&self, home: IslandId, after: Ino) -> impl Iterator<Item = (Ino, &CarriedLink)> {
        let above = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.rows.range(above).filter(move |(_, link)| link.home == home).map(|(ino, link)| (*ino, link))
    }

    /// Tells apart two sets of links of one home. 0 if there are none.
    pub(crate) fn digest(&self, home: IslandId) -> u64 {
        self.digests.get(&home).map_or(0, |(count, all)| all ^ count.rotate_left(40))
    }

    pub(crate) fn count(&self, home: IslandId) -> u64 {
        self.digests.get(&home).map_or(0, |(count, _)| *count)
    }

    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn set(&mut self, seed: u64, ino: Ino, row: Option<CarriedLink>, seq: u64) {
        self.seq = seq;
        self.dirty.insert(ino);
        self.put(seed, ino, row);
    }

    pub(crate) fn tell(&mut self, island: IslandId, digest: u64) {
        self.told.insert(island, digest);
        self.told_dirty.insert(island);
    }

    /// Rows of the snapshot.
    pub(crate) fn open_told(&mut self, island: IslandId, digest: u64) {
        self.told.insert(island, digest);
    }

    /// See [`Links::open_told`].
    pub(crate) fn open(&mut self, seed: u64, ino: Ino, row: CarriedLink) {
        self.put(seed, ino, Some(row));
    }

    fn put(&mut self, seed: u64, ino: Ino, row: Option<CarriedLink>) {
        if let Some(old) = self.rows.remove(&ino) {
            let (count, all) = self.digests.entry(old.home).or_default();
            (*count, *all) = (*count - 1, *all ^ hash(seed, ino, &old));
            for entry_ref in &old.names {
                let Some(names) = self.names.get_mut(&entry_ref.dir) else { continue };
                if let Some(inos) = names.get_mut(&entry_ref.name) {
                    inos.retain(|i| *i != ino);
                    if inos.is_empty() {
                        names.remove(&entry_ref.name);
                    }
                }
                if names.is_empty() {
                    self.names.remove(&entry_ref.dir);
                }
            }
        }
        let Some(row) = row else { return };
        let (count, all) = self.digests.entry(row.home).or_default();
        (*count, *all) = (*count + 1, *all ^ hash(seed, ino, &row));
        for entry_ref in &row.names {
            self.names.entry(entry_ref.dir).or_default().entry(entry_ref.name.clone()).or_default().push(ino);
        }
        self.rows.insert(ino, row);
    }

    /// Rows that changed since the last checkpoint.
    pub(crate) fn freeze(&mut self, rows: &mut Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        for ino in std::mem::take(&mut self.dirty) {
            let key = RowKey::Link(ino);
            rows.push((key.to_bytes(), self.rows.get(&ino).map(|row| row_bytes(&key, row))));
        }
        for island in std::mem::take(&mut self.told_dirty) {
            rows.push((RowKey::LinksTold(island).to_bytes(), self.told.get(&island).map(Encode::to_vec)));
        }
    }
}

impl State {
    /// A symbolic link to a directory, of any island.
    pub fn link(&self, ino: Ino) -> Option<&CarriedLink> {
        self.see(self.links.seq());
        self.links.get(ino)
    }

    /// The same by its name.
    pub fn link_at(&self, dir: Ino, name: &Name) -> Option<&CarriedLink> {
        self.see(self.links.seq());
        self.links.get(self.links.at(dir, name)?)
    }

    /// A symbolic link to a directory, for who only compares and tells nobody.
    pub fn carried(&self, ino: Ino) -> Option<&CarriedLink> {
        self.links.get(ino)
    }

    /// The same by its name.
    pub fn carried_at(&self, dir: Ino, name: &Name) -> Option<(Ino, &CarriedLink)> {
        let ino = self.links.at(dir, name)?;
        Some((ino, self.links.get(ino)?))
    }

    /// Those that `home` has told of, with ids above this, in their order.
    pub fn links_of(&self, home: IslandId, after: Ino) -> impl Iterator<Item = (Ino, &CarriedLink)> {
        self.links.of_after(home, after)
    }

    /// Tells apart two sets of links of one home. 0 if there are none.
    pub fn links_digest(&self, home: IslandId) -> u64 {
        self.links.digest(home)
    }

    /// The digest of this island's that another was last noted to have. It may have lost some since.
    pub fn links_told(&self, island: IslandId) -> u64 {
        self.links.told.get(&island).copied().unwrap_or(0)
    }

    /// Position of the last record that changed any.
    pub const fn links_seq(&self) -> u64 {
        self.links.seq()
    }

    /// How many `home` has told of.
    pub fn links_count(&self, home: IslandId) -> u64 {
        self.links.count(home)
    }
}

/// Tells apart two sets of links of one home, as [`State::links_digest`] does.
pub fn digest_of<'a>(seed: u64, links: impl Iterator<Item = (Ino, &'a CarriedLink)>) -> u64 {
    let mut all = LinkRows::default();
    links.for_each(|(ino, link)| all.open(seed, ino, link.clone()));
    all.digests.keys().next().map_or(0, |home| all.digest(*home))
}

fn hash(seed: u64, ino: Ino, row: &CarriedLink) -> u64 {
    let mut bytes = ino.0.to_le_bytes().to_vec();
    row.encode(&mut bytes);
    cookie_of(seed, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Time;
    use atoll_posix::{Attr, Kind};
    use atoll_proto::EntryRef;

    fn link(home: u16, ino: Ino, names: &[(u64, &str)]) -> CarriedLink {
        let time = Time::default();
        let attr = Attr {
            ino,
            kind: Kind::Symlink,
            mode: 0o777,
            nlink: names.len() as u32,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 1,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        let entry_ref = |(dir, name): &(u64, &str)| EntryRef { dir: Ino(*dir), name: called(name) };
        CarriedLink {
            home: IslandId(home),
            attr,
            target: "t".into(),
            names: names.iter().map(entry_ref).collect(),
        }
    }

    fn called(name: &str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn names_and_digests_follow_the_rows_in_any_order() {
        let (a, b) = (Ino(100), Ino(200));
        let mut links = LinkRows::default();
        links.set(7, a, Some(link(1, a, &[(1, "x"), (2, "y")])), 1);
        links.set(7, b, Some(link(1, b, &[(3, "z")])), 2);
        let mut other = LinkRows::default();
        other.set(7, b, Some(link(1, b, &[(9, "old")])), 1);
        other.set(7, b, Some(link(1, b, &[(3, "z")])), 2);
        other.set(7, a, Some(link(1, a, &[(1, "x"), (2, "y")])), 3);
        assert_eq!(links.digest(IslandId(1)), other.digest(IslandId(1)));
        assert_eq!((other.at(Ino(3), &called("z")), other.at(Ino(9), &called("old"))), (Some(b), None));
        other.set(7, a, Some(link(1, a, &[(1, "x")])), 4);
        assert_ne!(links.digest(IslandId(1)), other.digest(IslandId(1)));
        assert_eq!(other.at(Ino(2), &called("y")), None);
        other.set(7, a, None, 5);
        other.set(7, b, None, 6);
        assert_eq!((other.digest(IslandId(1)), other.names.len()), (0, 0));
    }

    #[test]
    fn of_two_that_claim_a_name_the_latest_counts_and_the_other_comes_back() {
        let (a, b) = (Ino(100), Ino(200));
        let mut links = LinkRows::default();
        links.set(7, a, Some(link(1, a, &[(1, "x")])), 1);
        links.set(7, b, Some(link(2, b, &[(1, "x")])), 2);
        assert_eq!(links.at(Ino(1), &called("x")), Some(b));
        links.set(7, b, None, 3);
        assert_eq!(links.at(Ino(1), &called("x")), Some(a));
    }
}
