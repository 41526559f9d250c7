//! The names of a directory that were read: which members have each. Bounded in bytes: of a directory with too many names, one
//! section is kept at a time, in the order of listings.
//!
//! Never says that a name outside of the section is absent.

use std::collections::BTreeMap;

use atoll_core::{Name, cookie_of};
use atoll_posix::Kind;

use crate::native::{NativeEntry, Tag};

/// The key of cookies. It is the same for all unions, so a listing goes on at the right place after a restart.
const COOKIE_SEED: u64 = 0x6174_6f6c_6c75_6e69;
/// What a name costs beside its own bytes, about: its place in the tree and the allocation of the name.
const NAME_BYTES: usize = 88;

fn cookie(name: &Name) -> u64 {
    cookie_of(COOKIE_SEED, name.as_bytes()) | 1
}

/// A cookie as a frontend has it: a place in a listing, and whether names before it may be missing. Such a listing must not end
/// as if it were whole, also if the member that has those names answers by then. The place is an odd number, or 0 at the
/// beginning; the even number before it says that names are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The cookie of the name before it.
    pub after: u64,
    /// Names before it may be missing.
    pub lacks: bool,
}

impl Cookie {
    /// What a frontend tells.
    pub(crate) const fn of(cookie: u64) -> Self {
        if cookie == 0 {
            Self { after: 0, lacks: false }
        } else {
            Self { after: cookie | 1, lacks: cookie & 1 == 0 }
        }
    }

    /// What a frontend is told.
    pub(crate) const fn told(self) -> u64 {
        if self.lacks { self.after & !1 } else { self.after }
    }
}

/// The last name that can have a cookie.
fn last_of(cookie: u64) -> (u64, Name) {
    (cookie, Name::new(&[0xff; Name::BYTES_MAX]).expect("bytes without NUL and slash"))
}

fn bytes_of(name: &Name) -> usize {
    NAME_BYTES + name.as_bytes().len()
}

/// A member that has a name, and what it has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameHome {
    /// Which member.
    pub tag: Tag,
    /// Type.
    pub kind: Kind,
    /// Native inode number.
    pub ino: u64,
}

/// The members that have a name. Nearly always there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NameHomes {
    One(NameHome),
    Many(Box<[NameHome]>),
}

impl NameHomes {
    /// None of none.
    fn new(homes: &[NameHome]) -> Option<Self> {
        match homes {
            [] => None,
            [one] => Some(Self::One(*one)),
            many => Some(Self::Many(many.into())),
        }
    }

    /// All but that of a member.
    fn without(&self, tag: Tag) -> Vec<NameHome> {
        self.all().iter().filter(|home| home.tag != tag).copied().collect()
    }

    fn all(&self) -> &[NameHome] {
        match self {
            Self::One(home) => std::slice::from_ref(home),
            Self::Many(homes) => homes,
        }
    }
}

/// Names whose cookies lie behind one and not behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Behind this cookie; 0 from the beginning.
    pub after: u64,
    /// Up to this one; the greatest number to the end.
    pub to: u64,
}

impl Section {
    /// From there to the end.
    pub const fn behind(after: u64) -> Self {
        Self { after, to: u64::MAX }
    }

    fn has(self, cookie: u64) -> bool {
        cookie > self.after && cookie <= self.to
    }

    /// Whether a listing can go on behind this cookie.
    pub fn goes_on(self, after: u64) -> bool {
        after >= self.after && (after < self.to || self.to == u64::MAX)
    }
}

/// Names of a member that are being read: those of a section, and so many of the first that they fit.
#[derive(Debug, Clone)]
pub(crate) struct Gathered {
    names: Vec<(u64, NativeEntry)>,
    bytes: usize,
    section: Section,
}

impl Gathered {
    /// None yet.
    pub(crate) fn new(section: Section) -> Self {
        Self { names: Vec::new(), bytes: 0, section }
    }

    /// The section that they are of.
    pub(crate) const fn section(&self) -> Section {
        self.section
    }

    /// Some more, in any order. If they are more than so many bytes together, the section ends earlier.
    pub(crate) fn add(&mut self, names: Vec<NativeEntry>, bytes_max: usize) {
        for entry in names {
            let cookie = cookie(&entry.name);
            if self.section.has(cookie) {
                self.bytes += bytes_of(&entry.name);
                self.names.push((cookie, entry));
            }
        }
        if self.bytes <= bytes_max {
            return;
        }
        self.names.sort_unstable_by_key(|(cookie, _)| *cookie);
        let mut bytes = 0;
        let fits = |(_, entry): &&(u64, NativeEntry)| {
            bytes += bytes_of(&entry.name);
            bytes <= bytes_max / 2
        };
        // One at least, and all of one cookie.
        let last = self.names.iter().take_while(fits).count().saturating_sub(1);
        let to = self.names[last].0;
        let keep = self.names.partition_point(|(cookie, _)| *cookie <= to);
        self.names.truncate(keep);
        self.names.shrink_to_fit();
        self.bytes = self.names.iter().map(|(_, entry)| bytes_of(&entry.name)).sum();
        self.section.to = to;
    }
}

/// The names of a directory that were read, in the order of listings.
#[derive(Debug, Clone)]
pub struct DirNames {
    names: BTreeMap<(u64, Name), NameHomes>,
    bytes: usize,
    section: Section,
}

impl Default for DirNames {
    fn default() -> Self {
        Self { names: BTreeMap::new(), bytes: 0, section: Section::behind(0) }
    }
}

impl DirNames {
    fn key(name: &Name) -> (u64, Name) {
        (cookie(name), name.clone())
    }

    /// What of them is kept.
    pub const fn section(&self) -> Section {
        self.section
    }

    /// Whether this name is in the section that is kept.
    pub fn keeps(&self, name: &Name) -> bool {
        self.section == Section::behind(0) || self.section.has(cookie(name))
    }

    /// The members that have it, as far as they were read.
    pub fn of(&self, name: &Name) -> &[NameHome] {
        self.names.get(&Self::key(name)).map_or(&[], NameHomes::all)
    }

    /// Names behind a cookie, with their own cookies, to the end of the section.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name, &[NameHome])> {
        let range = (std::ops::Bound::Excluded(last_of(cookie)), std::ops::Bound::Unbounded);
        self.names.range(range).map(|((cookie, name), homes)| (*cookie, name, homes.all()))
    }

    /// A member has this there, or nothing.
    pub fn set(&mut self, tag: Tag, name: &Name, what: Option<(Kind, u64)>) {
        if !self.keeps(name) {
            return;
        }
        let key = Self::key(name);
        let mut homes = self.names.get(&key).map_or_else(Vec::new, |homes| homes.without(tag));
        homes.extend(what.map(|(kind, ino)| NameHome { tag, kind, ino }));
        let bytes = bytes_of(name);
        match NameHomes::new(&homes) {
            Some(homes) => self.bytes += if self.names.insert(key, homes).is_none() { bytes } else { 0 },
            None => self.bytes -= if self.names.remove(&key).is_some() { bytes } else { 0 },
        }
    }

    /// A member has none of them.
    pub fn remove_member(&mut self, tag: Tag) {
        let mut gone = 0;
        self.names.retain(|(_, name), homes| {
            let stays = match homes {
                NameHomes::One(home) => home.tag != tag,
                NameHomes::Many(_) => {
                    let rest = NameHomes::new(&homes.without(tag));
                    rest.map(|rest| *homes = rest).is_some()
                }
            };
            gone += if stays { 0 } else { bytes_of(name) };
            stays
        });
        self.bytes -= gone;
    }

    /// Whether a member is known to have exactly these.
    pub(crate) fn are(&self, tag: Tag, read: &Gathered) -> bool {
        let has = |name: &Name, kind, ino| self.of(name).contains(&NameHome { tag, kind, ino });
        let all = self.names.values().filter(|homes| homes.all().iter().any(|home| home.tag == tag)).count();
        read.section == self.section
            && all == read.names.len()
            && read.names.iter().all(|(_, entry)| has(&entry.name, entry.kind, entry.ino))
    }

    /// A member has exactly these.
    pub(crate) fn replace(&mut self, tag: Tag, read: Gathered) {
        self.remove_member(tag);
        if read.section.to < self.section.to {
            self.end_at(read.section.to);
        }
        let to = self.section.to;
        let names = read.names.into_iter().filter(|(cookie, _)| *cookie <= to);
        if self.names.is_empty() {
            let home = |e: &NativeEntry| NameHomes::One(NameHome { tag, kind: e.kind, ino: e.ino });
            self.names = names.map(|(cookie, e)| ((cookie, e.name.clone()), home(&e))).collect();
            self.bytes = self.names.keys().map(|(_, name)| bytes_of(name)).sum();
        } else {
            names.for_each(|(_, e)| self.set(tag, &e.name, Some((e.kind, e.ino))));
        }
    }

    /// The section ends there.
    fn end_at(&mut self, to: u64) {
        self.section.to = to;
        let behind = self.names.split_off(&last_of(to));
        self.bytes -= behind.keys().map(|(_, name)| bytes_of(name)).sum::<usize>();
    }

    /// Keeps so many of the first that they fit into so many bytes.
    pub fn narrow(&mut self, bytes_max: usize) {
        let mut bytes = 0;
        let fits = |(_, name): &&(u64, Name)| {
            bytes += bytes_of(name);
            bytes <= bytes_max
        };
        if let Some((to, _)) = self.names.keys().take_while(fits).last() {
            self.end_at(*to);
        }
    }

    /// Another section of them is to be read.
    pub fn restart(&mut self, after: u64) {
        *self = Self { section: Section::behind(after), ..Self::default() };
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The memory that they take, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> NativeEntry {
        let name = Name::new(format!("file-{n}").as_bytes()).unwrap();
        NativeEntry { name, ino: n, kind: Kind::Regular }
    }

    #[test]
    fn sections_that_follow_each_other_have_every_name_once() {
        let all: Vec<NativeEntry> = (0..10_000).map(entry).collect();
        let bytes_max = 100_000;
        let (mut after, mut seen, mut sections) = (0, Vec::new(), 0);
        loop {
            let mut names = DirNames::default();
            names.restart(after);
            for member in 0..2u16 {
                let mut read = Gathered::new(names.section());
                all.chunks(777).for_each(|chunk| read.add(chunk.to_vec(), bytes_max));
                assert!(read.bytes <= bytes_max);
                names.replace(Tag(member), read);
            }
            assert!(names.bytes() <= 2 * bytes_max);
            seen.extend(names.after(after).map(|(_, name, homes)| {
                assert_eq!(homes.len(), 2);
                name.clone()
            }));
            sections += 1;
            if names.section().to == u64::MAX {
                break;
            }
            assert!(names.section().goes_on(after) && !names.section().goes_on(names.section().to));
            after = names.section().to;
        }
        assert!(sections > 5, "{sections}");
        assert_eq!(seen.len(), all.len());
        let mut names: Vec<Name> = all.into_iter().map(|entry| entry.name).collect();
        names.sort();
        seen.sort();
        assert_eq!(seen, names);
    }

    #[test]
    fn bytes_are_those_of_the_names_that_are_there() {
        let mut names = DirNames::default();
        (0..100).for_each(|n| names.set(Tag(1), &entry(n).name, Some((Kind::Regular, n))));
        (0..50).for_each(|n| names.set(Tag(2), &entry(n).name, Some((Kind::Regular, n))));
        let full = names.bytes();
        names.remove_member(Tag(2));
        assert_eq!((names.len(), names.bytes()), (100, full));
        (0..100).for_each(|n| names.set(Tag(1), &entry(n).name, None));
        assert_eq!((names.is_empty(), names.bytes()), (true, 0));
    }
}
