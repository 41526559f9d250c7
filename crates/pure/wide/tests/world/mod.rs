//! Sites with links between them that lose their connection, and with power cuts that take what is not synced.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_causal::{Context, Writer};
use atoll_core::{Decode, Encode, Ino, IslandId, Time};
use atoll_model::Rng;
use atoll_spine::Spine;
use atoll_state::{RowLoad, State};
use atoll_wide::author::{Bundle, BundleChange, Made, MadeRecord};
use atoll_wide::foreign::{Here, Waits, decide};
use atoll_wide::lives::{OwnDots, OwnLives};
use atoll_wide::peers::message::WideMessage;
use atoll_wide::peers::{Own, PeerStep, Refused, WidePeers, Window};
use atoll_wide::rows::{FEED, FeedRow, SiteId, UNCUT};
use atoll_wide::site::Site as Machine;
use bytes::Bytes;

use crate::drive::Driver;
use crate::receiver::{Receiver, Tree};
use crate::replica::{Rows, WRITER, reopened};
use crate::site::{Site, site_name};

pub(crate) const VOLUME: u64 = 77;

/// Lives that were drawn.
static LIVES: AtomicU64 = AtomicU64::new(0);

pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The rows of a site, and who changes them.
#[derive(Clone)]
pub(crate) enum Inside {
    /// Changes of others become its rows, and so do those of an author who sits elsewhere: users who know nothing of the others.
    Taker {
        rows: Box<Receiver>,
        made: Made,
        /// How many bundles of its author are done.
        done: usize,
        /// The number of the last dot of these, and the position of the last record of them.
        n: u64,
        last: u64,
        lives: OwnLives,
    },
    /// An island with users. It takes nothing from others: its rows of peers are kept here.
    Island { driver: Box<Driver>, rows: BTreeMap<(u8, u128), Bytes> },
}

/// A site.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: SiteId,
    pub(crate) writer: Writer,
    pub(crate) inside: Inside,
    /// What its users do, if it is a taker.
    bundles: Vec<Bundle>,
    /// Records in memory.
    memory: usize,
    window: Window,
    pub(crate) peers: WidePeers,
    synced: u64,
    /// What is there after a power cut.
    saved: Inside,
    /// The spine has too many moves.
    pub(crate) is_busy: bool,
    /// What holds between all calls is asserted: this takes long if much is wanted.
    pub(crate) is_checked: bool,
    pub(crate) counts: Counts,
}

impl Node {
    fn new(id: u64, writer: Writer, inside: Inside, memory: usize, window: Window) -> Self {
        let (id, saved) = (SiteId(id), inside.clone());
        let peers = WidePeers::open(VOLUME, writer, window, 0, []).expect("no rows");
        let (bundles, is_busy, is_checked, counts) = (Vec::new(), false, true, Counts::new());
        let mut node = Self {
            id,
            writer,
            inside,
            bundles,
            memory,
            window,
            peers,
            synced: 0,
            saved,
            is_busy,
            is_checked,
            counts,
        };
        node.sync();
        node.open();
        node
    }

    /// One that takes, and whose users do what is in these bundles.
    pub(crate) fn taker(
        id: u64,
        is_swept: bool,
        bundles: Vec<Bundle>,
        memory: usize,
        window: Window,
    ) -> Self {
        let (rows, made) = (Box::new(Receiver::new(is_swept)), Made::at_most(memory, 0));
        let writer = Writer(100 + id);
        let lives = OwnLives::open(writer, 0, (0, 0), []).expect("no rows");
        let inside = Inside::Taker { rows, made, done: 0, n: 0, last: 0, lives };
        Self { bundles, ..Self::new(id, writer, inside, memory, window) }
    }

    /// One with an island.
    pub(crate) fn island(id: u64, driver: Driver, window: Window) -> Self {
        let inside = Inside::Island { driver: Box::new(driver), rows: BTreeMap::new() };
        Self::new(id, WRITER, inside, Made::COUNT_MAX, window)
    }

    /// It has taken these before.
    pub(crate) fn knows(&mut self, bundles: &[Bundle]) {
        let Inside::Taker { rows, .. } = &mut self.inside else { panic!("an island takes nothing") };
        bundles.iter().for_each(|bundle| assert!(rows.take(&bundle.changes).is_empty()));
        self.sync();
        self.open();
    }

    /// Its users do these things instead of those that they have not done yet; it has done the first of them.
    pub(crate) fn users_do(&mut self, bundles: Vec<Bundle>) {
        self.bundles = bundles;
    }

    fn assert_sound(&self) {
        if self.is_checked {
            self.peers.check();
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn state(&self) -> &State {
        match &self.inside {
            Inside::Taker { rows, .. } => &rows.state,
            Inside::Island { driver, .. } => driver.site.state(),
        }
    }

    /// What its peers are told of.
    fn own(inside: &Inside, writer: Writer) -> Own<'_> {
        match inside {
            Inside::Taker { rows, made, n, lives, .. } => {
                let given = OwnDots { writer, n: *n, lives };
                Own { state: &rows.state, spine: &rows.spine, made, given }
            }
            Inside::Island { driver, .. } => {
                let author = driver.site.beside::<Machine>().author();
                let (state, given) = (driver.site.state(), author.own_dots());
                Own { state, spine: author.spine(), made: author.made(), given }
            }
        }
    }

    fn load(&mut self, loads: Vec<RowLoad>) {
        assert!(!loads.is_empty());
        self.count("loads");
        for load in loads {
            match &mut self.inside {
                Inside::Taker { rows, .. } => rows.load(load),
                Inside::Island { driver, .. } => driver.site.load_known(load),
            }
        }
    }

    fn asking<T>(&mut self, ask: impl Fn(&mut WidePeers, Own<'_>) -> Result<T, Vec<RowLoad>>) -> T {
        for _ in 0..10_000 {
            match ask(&mut self.peers, Self::own(&self.inside, self.writer)) {
                Ok(answer) => {
                    self.assert_sound();
                    return answer;
                }
                Err(loads) => self.load(loads),
            }
        }
        panic!("no end of loads");
    }

    // ---------------------------------------------------------------- what it does

    /// Its users do something. Whether they did.
    pub(crate) fn work(&mut self) -> bool {
        match &mut self.inside {
            Inside::Taker { rows, made, done, n, last, lives } => {
                let Some(bundle) = self.bundles.get(*done) else { return false };
                let took = rows.take_with(&bundle.changes, |position, decision| {
                    decision.record.changes.extend(lives.begins(position));
                });
                assert!(took.wants.is_empty(), "users know what they change: {:?}", took.wants);
                let changes = bundle.changes.clone();
                made.push(MadeRecord::Own(Bundle { position: took.position, changes }));
                (*done, *last) = (*done + 1, took.position);
                *n = (*n)
                    .max(bundle.changes.iter().map(|change| dot_of(change, self.writer)).max().unwrap_or(0));
                true
            }
            Inside::Island { driver, .. } => {
                driver.operation();
                driver.let_go();
                true
            }
        }
    }

    /// Everything is synced.
    pub(crate) fn sync(&mut self) {
        self.saved = self.inside.clone();
        self.synced = self.state().seq();
        self.peers.synced(self.synced);
        self.assert_sound();
    }

    /// Decides what has come. Whether there was something.
    pub(crate) fn step(&mut self) -> bool {
        let Some(step) = self.asking(|peers, own| peers.next(own)) else { return false };
        let is_only_rows = step.changes.is_empty();
        self.count(if is_only_rows { "records of rows only" } else { "decisions" });
        self.take(&step).expect("nobody is refused");
        self.assert_sound();
        true
    }

    fn take(&mut self, step: &PeerStep) -> Result<(), Refused> {
        let (peers, writer) = (&mut self.peers, self.writer);
        let mut taken = Ok(());
        match &mut self.inside {
            Inside::Taker { rows, made, n, lives, .. } => {
                let took = rows.take_with(&step.changes, |position, decision| {
                    decision.is_busy |= self.is_busy;
                    taken = peers.decided(OwnDots { writer, n: *n, lives }, step, position, decision);
                    lives.begins_with(position, &mut decision.record.changes);
                });
                if !took.wants.is_empty() {
                    *self.counts.entry("gaps").or_default() += 1;
                }
                if !took.changed.is_empty() {
                    let (position, changed) = (took.position, took.changed);
                    made.push(MadeRecord::Foreign { position, from: step.from, changed });
                }
            }
            Inside::Island { driver, rows } => {
                let (state, spine) = (driver.site.state(), driver.site.beside::<Machine>().author().spine());
                let (island, position, now) = (IslandId(0), state.seq(), Time::default());
                let here = Here { state, spine, site: &site_name, island, position, now };
                let mut mint = || Some(Ino(1 << 40));
                let mut decision = match decide(here, &step.changes, &mut mint) {
                    Ok(decision) => decision,
                    Err(Waits::Rows(loads)) => {
                        self.load(loads);
                        return self.take(step);
                    }
                    Err(waits) => panic!("{waits:?}"),
                };
                assert!(decision.record.changes.is_empty(), "others only tell it what it has made");
                let own = driver.site.beside::<Machine>().author().own_dots();
                taken = peers.decided(own, step, position, &mut decision);
                for change in decision.record.changes {
                    let atoll_proto::RowChange::Side { table, id, row: Some(row) } = change else {
                        panic!("{change:?}")
                    };
                    rows.insert((table, id), row);
                }
            }
        }
        taken
    }

    /// As [`Self::step`], if what comes may be refused; none if there is nothing.
    pub(crate) fn tries(&mut self) -> Option<Result<(), Refused>> {
        let step = self.asking(|peers, own| peers.next(own))?;
        let taken = self.take(&step);
        self.assert_sound();
        Some(taken)
    }

    /// The next message for another site, which keeps the rules.
    pub(crate) fn tell(&mut self, to: SiteId) -> Option<WideMessage> {
        let message = self.tell_raw(to)?;
        if let WideMessage::State { unknown, .. } = &message {
            assert!(unknown.is_empty(), "what was told is there: {unknown:?}");
        }
        Some(message)
    }

    /// The next message for another site.
    pub(crate) fn tell_raw(&mut self, to: SiteId) -> Option<WideMessage> {
        let message = self.asking(|peers, own| peers.tell(own, to))?;
        let bytes = message.to_vec();
        assert_eq!(bytes.len(), message.encoded_len());
        assert!(bytes.len() <= WideMessage::BYTES_MAX);
        self.count(match &message {
            WideMessage::Hello { .. } => "greetings",
            WideMessage::Bundle { .. } => "bundles",
            WideMessage::Feed { .. } => "feeds",
            WideMessage::Ack { .. } => "acks",
            WideMessage::Want { .. } => "wants",
            WideMessage::State { .. } => "states",
            WideMessage::Lives { .. } => "lives",
            other => panic!("{other:?} is about bytes"),
        });
        if let WideMessage::State { changes, known, .. } = &message {
            let moves =
                changes.iter().filter(|change| matches!(change, BundleChange::DirsMoved { .. })).count();
            *self.counts.entry("moves by want").or_default() += moves as u64;
            *self.counts.entry("states of objects").or_default() += changes.len() as u64;
            *self.counts.entry("known meanwhile").or_default() += known.len() as u64;
        }
        Some(WideMessage::from_slice(&bytes).expect("it is read again"))
    }

    pub(crate) fn hears(&mut self, from: SiteId, message: WideMessage) -> Result<(), Refused> {
        let heard = self.peers.heard(Self::own(&self.inside, self.writer), from, message);
        self.assert_sound();
        heard
    }

    /// The process ends, behind a sync or by a power cut, and begins again.
    pub(crate) fn restart(&mut self, is_power_cut: bool) {
        if !is_power_cut {
            self.sync();
        }
        self.count(if is_power_cut { "power cuts" } else { "restarts" });
        let saved = self.saved.clone();
        match (&mut self.inside, saved) {
            (Inside::Island { driver, rows }, Inside::Island { driver: saved, rows: saved_rows }) => {
                // What comes next is drawn as if nothing had happened.
                driver.go_back(*saved);
                *rows = saved_rows;
            }
            (inside, saved) => *inside = saved,
        }
        self.open();
    }

    /// The machine begins from rows.
    fn open(&mut self) {
        let position = self.state().seq();
        assert_eq!(position, self.synced);
        let rows: Vec<_> = match &mut self.inside {
            Inside::Taker { rows, made, n, last, lives, .. } => {
                // As an author says in his row.
                *made = Made::at_most(self.memory, *last);
                let rows: Vec<_> =
                    rows.sides.iter().map(|((table, id), row)| (*table, *id, row.clone())).collect();
                let drawn = LIVES.fetch_add(1, Ordering::Relaxed);
                *lives =
                    OwnLives::open(self.writer, drawn, (position, *n), &rows).expect("it has written them");
                rows
            }
            Inside::Island { driver, rows } => {
                let author = reopened(&driver.site);
                driver.site.set_beside(author);
                rows.iter().map(|((table, id), row)| (*table, *id, row.clone())).collect()
            }
        };
        self.peers =
            WidePeers::open(VOLUME, self.writer, self.window, position, rows).expect("it has written them");
        self.saved = self.inside.clone();
    }

    /// A site as it was some time ago, from a copy of its disk.
    pub(crate) fn from_copy(copy: &Self) -> Self {
        let mut node = copy.clone();
        node.inside = node.saved.clone();
        node.open();
        node
    }

    // ----------------------------------------------------------------- what it has

    /// The bytes of all states.
    pub(crate) fn states(&mut self) -> BTreeMap<FeedRow, Vec<u8>> {
        match &mut self.inside {
            Inside::Taker { rows, .. } => {
                let plain = rows.plain();
                let files = plain.files.iter().map(|(id, state)| (FeedRow::File { id: *id }, state.to_vec()));
                let dirs = plain.dirs.iter().map(|(id, head)| (FeedRow::Dir { id: *id }, head.to_vec()));
                files.chain(dirs).chain(moves(&rows.spine)).collect()
            }
            Inside::Island { driver, .. } => {
                let rows = Rows::of(&driver.site);
                let files =
                    rows.files.iter().map(|(id, file)| (FeedRow::File { id: *id }, file.state.to_vec()));
                let dirs = rows.dirs.iter().map(|(id, dir)| (FeedRow::Dir { id: *id }, dir.head.to_vec()));
                files.chain(dirs).chain(moves(driver.site.beside::<Machine>().author().spine())).collect()
            }
        }
    }

    /// The highest number of a dot of a writer in all its states.
    fn highest(&mut self, writer: Writer) -> u64 {
        let Inside::Taker { rows, .. } = &mut self.inside else { return 0 };
        let plain = rows.plain();
        let contexts = plain.files.values().map(|state| &state.context);
        let contexts = contexts.chain(plain.dirs.values().map(|head| &head.context));
        contexts.map(|context: &Context| context.get(writer)).max().unwrap_or(0)
    }

    /// Its island sets a record that changes no objects, as each start of a process does.
    pub(crate) fn sets_other_record(&mut self) {
        let Inside::Taker { rows, .. } = &mut self.inside else { panic!("an island sets its own") };
        let row = atoll_proto::RowChange::Side { table: UNCUT, id: 0, row: Some(Bytes::new()) };
        rows.take_with(&[], |_, decision| decision.record.changes.push(row.clone()));
        self.sync();
    }

    /// The position of its last record.
    pub(crate) fn records(&self) -> u64 {
        self.state().seq()
    }

    /// The rows hold together.
    pub(crate) fn check(&mut self) {
        if let Inside::Taker { rows, .. } = &mut self.inside {
            rows.check();
            assert_eq!(rows.refused, 0);
        }
        assert_eq!(self.peers.refused(), 0);
    }
}

fn moves(spine: &Spine) -> impl Iterator<Item = (FeedRow, Vec<u8>)> {
    spine.records().map(|record| (FeedRow::Move { stamp: record.stamp() }, record.to_vec()))
}

/// The number of the dot of a change.
fn dot_of(change: &BundleChange, writer: Writer) -> u64 {
    match change {
        BundleChange::FileBorn { state, .. } => state.context.get(writer),
        BundleChange::DirBorn { head, .. } => head.context.get(writer),
        BundleChange::FileChanged { change, .. } => change.dot.n,
        BundleChange::DirChanged { change, .. } => change.dot.n,
        BundleChange::DirsMoved { .. } => 0,
    }
}

/// All bundles of a site with an island.
pub(crate) fn bundles(site: &Site, after: u64) -> Vec<Bundle> {
    site.beside::<Machine>()
        .author()
        .bundles(after, u64::MAX)
        .expect("all of it is in memory")
        .cloned()
        .collect()
}

/// A link between two sites: what is under way from the lower to the higher one, and back.
#[derive(Default)]
struct Wire([VecDeque<WideMessage>; 2]);

/// See the module.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    /// Which sites have links with each other, by their places.
    edges: Vec<(usize, usize)>,
    wires: BTreeMap<(usize, usize), Wire>,
    pub(crate) counts: Counts,
}

/// Messages under way in one direction.
const WIRE_MAX: usize = 6;

impl World {
    pub(crate) fn new(nodes: Vec<Node>, edges: &[(usize, usize)]) -> Self {
        Self { nodes, edges: edges.to_vec(), wires: BTreeMap::new(), counts: Counts::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn connect(&mut self, edge: (usize, usize)) {
        if let Entry::Vacant(place) = self.wires.entry(edge) {
            place.insert(Wire::default());
            let (a, b) = (self.nodes[edge.0].id, self.nodes[edge.1].id);
            self.nodes[edge.0].peers.link_up(b);
            self.nodes[edge.1].peers.link_up(a);
        }
    }

    /// What is under way is lost.
    pub(crate) fn cut(&mut self, edge: (usize, usize)) {
        let Some(wire) = self.wires.remove(&edge) else { return };
        self.count("cuts");
        *self.counts.entry("lost messages").or_default() +=
            wire.0.iter().map(VecDeque::len).sum::<usize>() as u64;
        let (a, b) = (self.nodes[edge.0].id, self.nodes[edge.1].id);
        self.nodes[edge.0].peers.link_down(b);
        self.nodes[edge.1].peers.link_down(a);
    }

    fn cut_all(&mut self, of: usize) {
        for edge in self.edges.clone() {
            if edge.0 == of || edge.1 == of {
                self.cut(edge);
            }
        }
    }

    /// A site puts a message on a link. Whether it had one.
    fn say(&mut self, edge: (usize, usize), back: bool) -> bool {
        let Some(wire) = self.wires.get_mut(&edge) else { return false };
        let (from, to) = if back { (edge.1, edge.0) } else { (edge.0, edge.1) };
        if wire.0[usize::from(back)].len() >= WIRE_MAX {
            return false;
        }
        let to = self.nodes[to].id;
        let message = self.nodes[from].tell(to);
        let said = message.is_some();
        wire.0[usize::from(back)].extend(message);
        said
    }

    /// A message comes. Whether there was one.
    pub(crate) fn deliver(&mut self, edge: (usize, usize), back: bool) -> Result<bool, Refused> {
        let Some(wire) = self.wires.get_mut(&edge) else { return Ok(false) };
        let Some(message) = wire.0[usize::from(back)].pop_front() else { return Ok(false) };
        let (from, to) = if back { (edge.1, edge.0) } else { (edge.0, edge.1) };
        let from = self.nodes[from].id;
        self.nodes[to].hears(from, message)?;
        Ok(true)
    }

    /// Something happens somewhere. What goes wrong is as likely as these weights say: links are cut, power is cut, a process begins anew.
    /// That a message is sent weighs 400.
    pub(crate) fn happen(&mut self, rng: &mut Rng, [cuts, power_cuts, restarts]: [u32; 3]) {
        let (node, edge, back) = (rng.index(self.nodes.len()), *rng.pick(&self.edges), rng.percent(50));
        match rng.weighted(&[200, 120, 300, 400, 400, 60, cuts, power_cuts, restarts]) {
            0 => drop(self.nodes[node].work()),
            1 => self.nodes[node].sync(),
            2 => drop(self.nodes[node].step()),
            3 => drop(self.say(edge, back)),
            4 => drop(self.deliver(edge, back).expect("nobody is refused")),
            5 => self.connect(edge),
            6 => self.cut(edge),
            7 => {
                self.cut_all(node);
                self.nodes[node].restart(true);
                self.nobody_has_what_is_lost(node);
            }
            _ => {
                self.cut_all(node);
                self.nodes[node].restart(false);
            }
        }
    }

    /// W2: nothing of what a power cut has taken has left.
    fn nobody_has_what_is_lost(&mut self, node: usize) {
        let OwnDots { writer, n, .. } = Node::own(&self.nodes[node].inside, self.nodes[node].writer).given;
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let highest = self.nodes[other].highest(writer);
            assert!(highest <= n, "a site has dot {highest} of {writer:?}, which has given {n}");
        }
    }

    /// All links are up, and time passes until nothing happens. `is_done`: users do all that they have to do first.
    pub(crate) fn settle(&mut self, is_done: bool) {
        if is_done {
            for node in &mut self.nodes {
                while matches!(node.inside, Inside::Taker { .. }) && node.work() {}
            }
        }
        self.edges.clone().into_iter().for_each(|edge| self.connect(edge));
        for _ in 0..100_000 {
            if !self.pass() {
                return;
            }
        }
        panic!("no rest");
    }

    /// Some time passes.
    pub(crate) fn passes(&mut self, count: usize) {
        for _ in 0..count {
            self.pass();
        }
    }

    /// Each site and each link does what there is to do. Whether there was something.
    pub(crate) fn pass(&mut self) -> bool {
        let mut did = false;
        for node in &mut self.nodes {
            did |= node.step();
            node.sync();
        }
        for edge in self.edges.clone() {
            for back in [false, true] {
                did |= self.say(edge, back);
                did |= self.deliver(edge, back).expect("nobody is refused");
            }
        }
        did
    }

    /// All sites have the same, and say no more.
    pub(crate) fn compare(&mut self) {
        let expected = self.nodes[0].states();
        for node in &mut self.nodes {
            node.check();
            let states = node.states();
            let differs: Vec<_> =
                expected.keys().filter(|object| states.get(object) != expected.get(object)).collect();
            assert!(states == expected, "{:?} has others: {differs:?}", node.id);
        }
        for (a, b) in self.edges.clone() {
            let ids = (self.nodes[a].id, self.nodes[b].id);
            assert!(self.nodes[a].peers.is_quiet(ids.1) && self.nodes[b].peers.is_quiet(ids.0));
        }
        let records: Vec<u64> = self.nodes.iter().map(Node::records).collect();
        for _ in 0..4 {
            assert!(!self.pass(), "nothing is to be told");
        }
        assert_eq!(records, self.nodes.iter().map(Node::records).collect::<Vec<_>>(), "no growth");
    }

    /// All sites have the same trees.
    pub(crate) fn compare_trees(&mut self) {
        let trees = self.nodes.iter_mut().filter_map(|node| match &mut node.inside {
            Inside::Taker { rows, .. } => Some(rows.tree()),
            Inside::Island { .. } => None,
        });
        let trees: Vec<_> = trees.collect();
        for pair in trees.windows(2) {
            let only = |one: &Tree, other: &Tree| -> Vec<_> {
                one.iter()
                    .filter(|(path, at)| other.get(*path) != Some(at))
                    .map(|(path, at)| format!("{path}: {at:?}"))
                    .collect()
            };
            assert!(
                pair[0] == pair[1],
                "{:#?} and {:#?}",
                only(&pair[0], &pair[1]),
                only(&pair[1], &pair[0])
            );
        }
    }

    /// All counts.
    pub(crate) fn counted(mut self) -> Counts {
        for node in self.nodes {
            node.counts.into_iter().for_each(|(what, by)| *self.counts.entry(what).or_default() += by);
            *self.counts.entry("feed rows").or_default() += match &node.inside {
                Inside::Taker { rows, .. } => {
                    rows.sides.keys().filter(|(table, _)| *table == FEED).count() as u64
                }
                Inside::Island { .. } => 0,
            };
        }
        self.counts
    }
}
