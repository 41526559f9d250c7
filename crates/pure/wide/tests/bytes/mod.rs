//! Sites whose users write files, with all that they tell each other. Nothing fails unless a test says so.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, VecDeque};

use atoll_causal::Writer;
use atoll_core::{Decode, Ino, SessionId};
use atoll_island::{BesideEvent, BesideSays};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::{Most, WideMessage};
use atoll_wide::rows::trash_of;
use atoll_wide::site::Site as Machine;
use atoll_wide::trash::TrashEntry;
use bytes::Bytes;

use crate::site::{Memory, SITES, Site, member, named, opened_with};

/// Sites that tell each other everything within so many looks.
const LOOKS_MAX: usize = 400;

pub(crate) struct World {
    pub(crate) sites: Vec<Site>,
    pub(crate) linked: Vec<(usize, usize)>,
    /// Bytes of messages since the last call of [`World::sent`].
    pub(crate) sent: usize,
    /// Messages about bytes that arrive before the link of their sites breaks; none: it does not.
    pub(crate) breaks_after: Option<usize>,
    /// Bytes that a link carries from one look to the next in each direction; none: all.
    pub(crate) bytes_a_look: Option<usize>,
    /// What is on its way on such links, and how much of it has been carried.
    slow: BTreeMap<(usize, usize), (VecDeque<Bytes>, usize)>,
    /// Answers to those who have asked a site, by their numbers.
    pub(crate) answers: BTreeMap<u64, SiteAnswers>,
}

impl World {
    pub(crate) fn new(count: usize) -> Self {
        Self::with(count, Window::MOST, 1 << 20)
    }

    /// Each site has a trash of so many bytes.
    pub(crate) fn with_trash(count: usize, trash_bytes: u64) -> Self {
        Self::with(count, Window::MOST, trash_bytes)
    }

    /// Sites that tell each other so much at once.
    pub(crate) fn within(count: usize, window: Window) -> Self {
        Self::with(count, window, 1 << 20)
    }

    fn with(count: usize, window: Window, trash_bytes: u64) -> Self {
        let site = |at: usize| {
            let machine = opened_with(Writer(1 + at as u64), 0, (window, trash_bytes), []);
            let machine = machine.expect("no rows");
            let mut site = Site::new(Memory::Swept, &[SessionId(1)], true, Some(Box::new(machine)));
            site.watch_no_more();
            site
        };
        let mut world = Self {
            sites: (0..count).map(site).collect(),
            linked: Vec::new(),
            sent: 0,
            breaks_after: None,
            bytes_a_look: None,
            slow: BTreeMap::new(),
            answers: BTreeMap::new(),
        };
        // All take part.
        for site in SITES + 1..=count as u64 {
            let member = SiteMember { version: 2, state: SiteStanding::Active, ..member(Writer(site)) };
            let sites = Most::new(vec![NumberedSite { site, member }]);
            for at in 0..count {
                world.asks(at, 1_000 * site + at as u64, &SiteAsks::Know { sites: sites.clone() });
            }
        }
        for to in 0..count {
            (0..to).for_each(|from| world.link(from, to, true));
        }
        world
    }

    pub(crate) fn link(&mut self, one: usize, other: usize, up: bool) {
        self.linked.retain(|link| *link != (one, other));
        if up {
            self.linked.push((one, other));
        }
        for (at, peer) in [(one, other), (other, one)] {
            self.sites[at].hear(BesideEvent::Link { peer: 1 + peer as u64, up });
        }
    }

    pub(crate) fn deliver(&mut self) -> bool {
        let mut is_some = false;
        if self.bytes_a_look.is_none() {
            for ((from, to), (queue, _)) in std::mem::take(&mut self.slow) {
                for bytes in queue {
                    is_some = true;
                    self.sites[to].hear(BesideEvent::Message { peer: 1 + from as u64, bytes });
                }
            }
        }
        for at in 0..self.sites.len() {
            for says in self.sites[at].take_said() {
                let (peer, bytes) = match says {
                    BesideSays::Send { peer, bytes } => (peer as usize - 1, bytes),
                    BesideSays::Answers { id, bytes } => {
                        let answer = SiteAnswers::from_slice(&bytes).expect("a site has written it");
                        assert_eq!(self.answers.insert(id, answer), None, "one answer to each question");
                        continue;
                    }
                    BesideSays::End { peer, why } => panic!("site {at} ends its link with {peer}: {why}"),
                };
                let pair = (at.min(peer), at.max(peer));
                if !self.linked.contains(&pair) {
                    continue;
                }
                is_some = true;
                self.sent += bytes.len();
                if self.bytes_a_look.is_some() {
                    self.slow.entry((at, peer)).or_default().0.push_back(bytes);
                    continue;
                }
                let message = WideMessage::from_slice(&bytes).expect("a site has written it");
                if message.is_about_bytes()
                    && let Some(left) = &mut self.breaks_after
                {
                    if *left == 0 {
                        self.breaks_after = None;
                        self.link(pair.0, pair.1, false);
                        continue;
                    }
                    *left -= 1;
                }
                self.sites[peer].hear(BesideEvent::Message { peer: 1 + at as u64, bytes });
            }
        }
        is_some
    }

    /// Somebody asks a site.
    pub(crate) fn ask(&mut self, at: usize, asks: &SiteAsks) -> SiteAnswers {
        self.asks(at, u64::MAX, asks);
        for _ in 0..LOOKS_MAX {
            if let Some(answer) = self.answers.remove(&u64::MAX) {
                return answer;
            }
            self.passes(1);
        }
        panic!("no answer to {asks:?}");
    }

    /// Somebody asks a site by a number, and does not wait.
    pub(crate) fn asks(&mut self, at: usize, id: u64, asks: &SiteAsks) {
        self.asks_bytes(at, id, &atoll_core::Encode::to_vec(asks));
    }

    /// The same of what need be no question.
    pub(crate) fn asks_bytes(&mut self, at: usize, id: u64, bytes: &[u8]) {
        self.sites[at].hear(BesideEvent::Asked { id, bytes: Bytes::copy_from_slice(bytes) });
    }

    /// What rests at a site, the oldest first, with its bytes, or its target.
    pub(crate) fn rests(&mut self, at: usize) -> Vec<(String, Vec<u8>)> {
        self.trash(at).into_iter().map(|entry| self.told(at, &entry)).collect()
    }

    pub(crate) fn trash(&mut self, at: usize) -> Vec<TrashEntry> {
        match self.ask(at, &SiteAsks::TrashList { from: 0 }) {
            SiteAnswers::TrashList { entries, next: None } => entries,
            other => panic!("{other:?}"),
        }
    }

    fn told(&self, at: usize, entry: &TrashEntry) -> (String, Vec<u8>) {
        let path = String::from_utf8(entry.rested.path.to_vec()).expect("names are text");
        (path, self.sites[at].body(trash_of(entry.key).1).to_vec())
    }

    pub(crate) fn unlink(&mut self, at: usize, name: &str) {
        self.run(at, Op::Unlink { dir: Ino::ROOT, name: named(name) }, b"").expect("it is removed");
    }

    pub(crate) fn machine(&self, at: usize) -> &Machine {
        self.sites[at].beside::<Machine>()
    }

    /// Time passes, and what is said arrives.
    pub(crate) fn passes(&mut self, looks: usize) {
        for _ in 0..looks {
            self.sites.iter_mut().for_each(Site::waits);
            while self.deliver() {}
            self.carry();
        }
    }

    /// Messages that are on their way on a slow link.
    pub(crate) fn under_way(&self, from: usize, to: usize) -> usize {
        self.slow.get(&(from, to)).map_or(0, |(queue, _)| queue.len())
    }

    /// Slow links carry as much as they do from one look to the next.
    fn carry(&mut self) {
        let Some(most) = self.bytes_a_look else { return };
        let mut arrived = Vec::new();
        for ((from, to), (queue, carried)) in &mut self.slow {
            *carried += most;
            while let Some(first) = queue.front()
                && first.len() <= *carried
            {
                *carried -= first.len();
                arrived.extend(queue.pop_front().map(|bytes| (*from, *to, bytes)));
            }
            // What was not used is gone.
            *carried = if queue.is_empty() { 0 } else { *carried };
        }
        for (from, to, bytes) in arrived {
            self.sites[to].hear(BesideEvent::Message { peer: 1 + from as u64, bytes });
        }
        while self.deliver() {}
    }

    /// All sites have everything.
    pub(crate) fn rest(&mut self) {
        let all: Vec<usize> = (0..self.sites.len()).collect();
        self.rest_of(&all);
    }

    /// These sites have everything.
    pub(crate) fn rest_of(&mut self, sites: &[usize]) {
        let mut quiet = 0;
        for _ in 0..LOOKS_MAX {
            self.sites.iter_mut().for_each(Site::waits);
            let mut is_silent = true;
            while self.deliver() {
                is_silent = false;
            }
            let is_quiet = is_silent && sites.iter().all(|at| self.machine(*at).has_all_bytes());
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 8 {
                return;
            }
        }
        panic!("sites do not come to rest");
    }

    /// Bytes of messages since the last call.
    pub(crate) fn sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    // ------------------------------------------------------------------- users

    pub(crate) fn run(&mut self, at: usize, op: Op, data: &[u8]) -> Result<(Answer, Bytes), Errno> {
        self.sites[at].run(SessionId(1), &Caller::ROOT, op, Bytes::copy_from_slice(data))
    }

    pub(crate) fn find(&mut self, at: usize, name: &str) -> Ino {
        match self.run(at, Op::Lookup { dir: Ino::ROOT, name: named(name) }, b"") {
            Ok((Answer::Found { found }, _)) => found.attr.ino,
            other => panic!("{name} at site {at}: {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, at: usize, name: &str) -> Ino {
        self.sites[at].create(Ino::ROOT, name, Kind::Regular, b"")
    }

    pub(crate) fn write(&mut self, at: usize, ino: Ino, offset: u64, data: &[u8]) {
        let op = Op::Write { ino, offset, append: false, kill_set_id: false };
        self.run(at, op, data).expect("it is written");
    }

    pub(crate) fn rename(&mut self, at: usize, from: &str, to: &str) {
        let (dir, new_dir, mode) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
        let (name, new_name) = (named(from), named(to));
        let op = Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None };
        self.run(at, op, b"").expect("it is renamed");
    }

    /// A file with these bytes and no others.
    pub(crate) fn put(&mut self, at: usize, name: &str, data: &[u8]) {
        let found = self.run(at, Op::Lookup { dir: Ino::ROOT, name: named(name) }, b"");
        let ino = match found {
            Ok((Answer::Found { found }, _)) => found.attr.ino,
            _ => self.create(at, name),
        };
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        self.run(at, Op::SetAttr { ino, set }, b"").expect("it is cut");
        for (nth, part) in data.chunks(100_000).enumerate() {
            self.write(at, ino, nth as u64 * 100_000, part);
        }
    }

    pub(crate) fn get(&mut self, at: usize, ino: Ino) -> Vec<u8> {
        let (mut all, len) = (Vec::new(), 100_000);
        loop {
            let read = self.run(at, Op::Read { ino, offset: all.len() as u64, len }, b"");
            let (_, data) = read.expect("it is read");
            if data.is_empty() {
                return all;
            }
            all.extend_from_slice(&data);
        }
    }

    /// The files of the root, with their bytes.
    pub(crate) fn files(&mut self, at: usize) -> BTreeMap<String, Vec<u8>> {
        let op = Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 1 << 16, plus: false };
        let Ok((Answer::Entries { entries, eof: true }, _)) = self.run(at, op, b"") else {
            panic!("a listing")
        };
        let entries: Vec<_> = entries.into_iter().filter(|entry| entry.kind == Kind::Regular).collect();
        let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("names are text");
        entries.into_iter().map(|entry| (name(entry.name.as_bytes()), self.get(at, entry.ino))).collect()
    }

    /// All sites have these files.
    pub(crate) fn all_have(&mut self, files: &[(&str, &[u8])]) {
        let wanted: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        for at in 0..self.sites.len() {
            let files = self.files(at);
            let told: Vec<_> = files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
            assert!(files == wanted, "site {at} has {told:?}");
        }
    }
}

/// Bytes without a pattern.
pub(crate) fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut bits = seed | 1;
    let byte = |_| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (bits >> 56) as u8
    };
    (0..len).map(byte).collect()
}
