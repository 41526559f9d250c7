//! A small world of sites that hold files and directories: users work at each, states and changes go between them in any order,
//! power fails. Owns the sites and the history of what users did. Judges nothing itself (`judge.rs`).

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod judge;
pub mod machine;
pub mod ops;
pub mod random;
pub mod site;

use std::collections::BTreeMap;
use std::rc::Rc;

use atoll_causal::{
    Context, DirChange, DirPart, Dot, FileChange, FileId, FilePart, HybridStamp, LinkPlace, Taken,
};
use atoll_core::Name;
use atoll_model::Rng;
use atoll_model::life::{Did, History, PlaceGiven, Seen};
use site::{Known, Moved, Site, What};

/// Sites, and what their users did.
pub struct World {
    pub sites: Vec<Site>,
    pub history: History,
    /// Microseconds since 1970 by a clock that is right.
    pub now_us: u64,
    /// A stamp up to which every site has everything.
    pub cut: HybridStamp,
    /// The number by which the history knows an object.
    pub numbers: BTreeMap<FileId, usize>,
    /// Copies of versions, whatever their ids: the number, and the two events of the birth.
    pub copies: BTreeMap<(usize, Dot), (usize, [usize; 2])>,
    /// Files that were unlinked behind a cut because another one is shown for them.
    pub cleaned: Vec<(FileId, FileId)>,
    /// Removals of links: the file, and the files that were known where it happened.
    pub unlinked: Vec<(FileId, Vec<FileId>)>,
    /// Versions that users saw when they wrote over them or removed the file: events.
    pub ended: Vec<usize>,
    /// The last stamp that was given at any site.
    given: HybridStamp,
    /// Stamps are above this.
    pub floor: HybridStamp,
    next: usize,
}

/// Any name.
pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A dot as the history's number of a link.
pub fn number_of(dot: Dot) -> u64 {
    dot.writer.0 << 32 | dot.n
}

impl World {
    /// So many sites, whose clocks differ by up to `skew_us`, with a root directory.
    pub fn new(count: usize, skew_us: u64, rng: &mut Rng) -> Self {
        let mut sites: Vec<Site> = Vec::new();
        for at in 0..count {
            let skew = if skew_us == 0 { 0 } else { rng.below(skew_us) };
            sites.push(Site::new(at as u64 + 1, skew));
        }
        Self {
            sites,
            history: History::default(),
            now_us: 1_770_000_000_000_000,
            cut: HybridStamp::ZERO,
            numbers: BTreeMap::new(),
            copies: BTreeMap::new(),
            cleaned: Vec::new(),
            unlinked: Vec::new(),
            ended: Vec::new(),
            given: HybridStamp::ZERO,
            floor: HybridStamp::ZERO,
            next: 0,
        }
    }

    /// A later stamp than those of these objects, at a site.
    pub fn stamp(&mut self, at: usize, of: &[FileId]) -> HybridStamp {
        self.now_us += 300_000;
        let site = &mut self.sites[at];
        let latest = of.iter().map(|id| site.latest(*id)).fold(self.floor, HybridStamp::max);
        self.given = site.clock.give(self.now_us + site.skew_us, site.writer, latest);
        self.given
    }

    /// The history's number of an object.
    pub fn number(&mut self, id: FileId) -> usize {
        let next = &mut self.next;
        *self.numbers.entry(id).or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// The history's number of the copy of a version, and the events of its birth.
    pub fn copy(&mut self, of: FileId, dot: Dot, id: FileId, stamp: HybridStamp, bytes: u64) -> [usize; 2] {
        let of = self.number(of);
        if !self.copies.contains_key(&(of, dot)) {
            let number = self.next;
            self.next += 1;
            let place = given(stamp, FileId::ROOT, &name("copy"));
            let none = Seen::default();
            let linked = self.history.add(number, Did::Linked { link: number_of(dot), place }, &none);
            let wrote = Did::Wrote { version: number_of(dot), bytes };
            let wrote = self.history.add(number, wrote, &none);
            self.copies.insert((of, dot), (number, [linked, wrote]));
        }
        let (number, events) = self.copies[&(of, dot)];
        self.numbers.insert(id, number);
        events
    }

    /// What a user did to an object at a site.
    fn tell(&mut self, at: usize, id: FileId, dids: Vec<Did>) -> Vec<usize> {
        let number = self.number(id);
        let ghost = self.sites[at].held.ghosts.entry(id).or_default();
        let mut events = Vec::new();
        for did in dids {
            let event = self.history.add(number, did, ghost);
            ghost.add(event);
            events.push(event);
        }
        events
    }

    /// A file changes at a site. `dids` is what a user did by it.
    pub fn change_file(&mut self, at: usize, id: FileId, dot: Dot, parts: Vec<FilePart>, dids: Vec<Did>) {
        let events = self.tell(at, id, dids);
        let site = &mut self.sites[at];
        let file = site.held.files.get_mut(&id).expect("a file that is held");
        let change: FileChange = file.change(dot, parts);
        assert_eq!(file.apply(&change), Taken::Applied);
        site.note(Known { object: id, what: What::FileChange(change), events });
    }

    /// A directory changes at a site.
    pub fn change_dir(&mut self, at: usize, id: FileId, dot: Dot, parts: Vec<DirPart>, dids: Vec<Did>) {
        let events = self.tell(at, id, dids);
        let site = &mut self.sites[at];
        let dir = site.held.dirs.get_mut(&id).expect("a directory that is held");
        let change: DirChange = dir.head.change(dot, parts);
        assert_eq!(dir.apply(&change), Taken::Applied);
        site.note(Known { object: id, what: What::DirChange(change), events });
    }

    /// An object is born at a site.
    pub fn born(&mut self, at: usize, id: FileId, what: What, dids: Vec<Did>) {
        let events = self.tell(at, id, dids);
        let site = &mut self.sites[at];
        match &what {
            What::File(state) => drop(site.held.files.insert(id, state.clone())),
            What::Dir(state) => drop(site.held.dirs.insert(id, state.clone())),
            What::FileChange(_) | What::DirChange(_) => unreachable!("a change is no birth"),
        }
        site.note(Known { object: id, what, events });
    }

    /// A directory moves to another parent: the spine's part of it.
    pub fn note_move(&mut self, at: usize, stamp: HybridStamp, moved: Moved) {
        self.sites[at].held.moves.insert((stamp, moved.dir), moved);
        self.sites[at].forget();
    }

    /// One site gets the whole state of an object from another one, which has synced it.
    pub fn send_state(&mut self, from: usize, to: usize, id: FileId) {
        self.sites[from].sync();
        let (sender, receiver) = two(&mut self.sites, from, to);
        let latest = sender.latest(id);
        receiver.clock.hear(self.now_us + receiver.skew_us, latest);
        receiver.take_state(&sender.held, id);
    }

    /// One site gets a change from another one. If something is missing before it, it asks for the state.
    pub fn send_change(&mut self, from: usize, to: usize, nth: usize) {
        self.sites[from].sync();
        let (sender, receiver) = two(&mut self.sites, from, to);
        let Some(known) = sender.held.log.get(nth).map(Rc::clone) else { return };
        receiver.held.moves.extend(sender.held.moves.iter().map(|(stamp, moved)| (*stamp, moved.clone())));
        receiver.forget();
        let latest = sender.latest(known.object);
        receiver.clock.hear(self.now_us + receiver.skew_us, latest);
        if receiver.take(&known) == Taken::Gap {
            self.send_state(from, to, known.object);
        }
    }

    /// All sites get everything.
    pub fn exchange(&mut self) {
        for _ in 0..2 {
            for from in 0..self.sites.len() {
                for to in 0..self.sites.len() {
                    if from == to {
                        continue;
                    }
                    for id in self.sites[from].ids() {
                        self.send_state(from, to, id);
                    }
                }
            }
        }
    }

    /// As [`Self::exchange`]; from then on every site is known to have what there is now.
    pub fn exchange_and_cut(&mut self) {
        self.exchange();
        self.sites.iter_mut().for_each(Site::sync);
        let site = &self.sites[0];
        self.cut = site.ids().into_iter().map(|id| site.latest(id)).max().unwrap_or(HybridStamp::ZERO);
    }
}

/// The history's word for a place.
pub fn given(stamp: HybridStamp, dir: FileId, name: &Name) -> PlaceGiven {
    PlaceGiven { stamp: (stamp.time_us, stamp.writer.0), dir: dir.0, name: name.as_bytes().to_vec() }
}

/// The history's word for the place of a link.
pub fn linked(link: Dot, place: &LinkPlace) -> Did {
    Did::Linked { link: number_of(link), place: given(place.stamp, place.dir, &place.name) }
}

/// A context with one more change.
pub fn with(context: &Context, dot: Dot) -> Context {
    let mut context = context.clone();
    context.add(dot);
    context
}

fn two(sites: &mut [Site], one: usize, other: usize) -> (&mut Site, &mut Site) {
    assert_ne!(one, other);
    let (low, high) = sites.split_at_mut(one.max(other));
    let (a, b) = (&mut low[one.min(other)], &mut high[0]);
    if one < other { (a, b) } else { (b, a) }
}
