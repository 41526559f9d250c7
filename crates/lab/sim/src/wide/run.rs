//! A run: users at all sites, and what happens to processes, disks and links, in an order that the seed draws.
//!
//! What is written has a token in it, as the target of each symbolic link is one. So what becomes of it is known wherever it is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_causal::{FileId, Writer};
use atoll_core::{Decode, Encode, Ino, Name};
use atoll_disk::sim::Fault;
use atoll_island::{BesideEvent, Event};
use atoll_model::rng::Rng;
use atoll_posix::{Answer, Kind, Op, RenameMode, SetAttr, XattrMode};
use atoll_wide::asks::SiteAsks;
use atoll_wide::contents::pieces::PIECE_BYTES;
use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::{Most, WideMessage};
use atoll_wide::rows::{SiteId, trash_of};
use atoll_wide::site::Site;
use bytes::Bytes;

use super::place::{Place, name};
use super::rest::{Removed, Tokens, judge, judge_tokens, judge_trash, tokens_in};
use super::ways::{Ways, WentBack, number};
use crate::cause::Failure;
use crate::clocks::{Paces, SimClock, TrueTime};
use crate::scenario::Run;

/// Names for which sites quarrel.
const NAMES: [&str; 4] = ["a", "b", "c", "d.txt"];
/// Copies of a file that stay in the product. Runs with fewer look at those that go.
const COPIES_MAX: usize = 10;
/// Effects within which a process dies once it is going to.
const EFFECTS_MAX: u64 = 25;
/// All is told after so many looks, 300 ms apart.
const LOOKS_MAX: u32 = 2_000;
/// Microseconds between two of them.
const LOOK_US: u64 = 300_000;

/// Files that the user of a site has open.
const OPEN_MAX: usize = 3;

/// A file that a user has open, also when it has no name any more.
#[derive(Debug, Clone, Copy)]
struct OpenFile {
    at: usize,
    ino: Ino,
    /// A user of this site has removed a name of it, or may have: what is written to it then may go with it.
    is_removed: bool,
}

/// See the module.
struct Sim<'r> {
    rng: Rng,
    run: &'r mut Run,
    time: Arc<TrueTime>,
    /// Copies of one file that stay.
    copies_max: usize,
    places: Vec<Place>,
    ways: Ways,
    /// Tokens that were made, each once.
    made: Tokens,
    /// Those of them of which somebody has removed a name, or over which somebody has written who had seen them, or may have.
    removed: Removed,
    /// What users have open.
    open: Vec<OpenFile>,
    /// By files, the tokens that were written there.
    written: BTreeMap<FileId, Tokens>,
    /// Tokens in files that were acknowledged since all sites were at rest, and where: no power cut has taken them.
    fresh: Vec<(usize, Vec<u8>)>,
    /// Sites whose power has failed since then, or is going to.
    at_risk: BTreeSet<usize>,
    /// Those that all sites had at rest, and those that one has had from another since.
    told: Tokens,
    /// Those that all sites had at rest.
    had: Tokens,
    /// Those that no site had at rest any more.
    gone: Tokens,
    /// Sites that had little room since all were at rest: they have given up what rests there.
    were_full: BTreeSet<usize>,
    /// Disks are full now and then.
    fills: bool,
    /// Disks are restored from backups.
    restores: bool,
    /// The most that each site has ever known of each other one.
    known: BTreeMap<usize, BTreeMap<usize, KnownOf>>,
    /// Sites whose disks are older copies, of which another one knew more.
    went_back: BTreeSet<usize>,
    /// Sites whose disks are older copies, as they were when they last started from one.
    restored: BTreeMap<usize, Restored>,
    /// Sites whose disks were replaced since all were at rest.
    replaced: BTreeSet<usize>,
}

/// A site when it has started from a backup.
#[derive(Debug)]
struct Restored {
    /// The position of the backup's last record.
    position: u64,
    /// The number of its last dot.
    n: u64,
    /// Up to where it has the feed of each other site.
    taken: BTreeMap<usize, u64>,
    /// Sites that were down then. What they know of it is judged when they start.
    unseen: BTreeSet<usize>,
}

/// What a site knows of another one: the number of its last dot, up to where it has its feed, and up to where that one has this one's.
#[derive(Debug, Clone, Copy, Default)]
struct KnownOf {
    n: u64,
    taken: u64,
    acked: u64,
}

/// Runs one.
pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut rng = Rng::new(run.seed);
    let time = Arc::new(TrueTime::default());
    let mut paces = Paces::new(run.seed, rng.percent(80));
    let sites = 2 + rng.index(4);
    let (fills, restores) = (rng.percent(40), rng.percent(40));
    // Copies that are too many rest in the trash, which gives way on a full disk: there the bound is that of the product.
    let copies_max = *rng.pick(if fills { &[COPIES_MAX][..] } else { &[0, 1, COPIES_MAX] });
    let small = Window { messages: 3, bytes: 600, news: 4 };
    let places = (0..sites).map(|at| {
        let window = if rng.percent(30) { small } else { Window::MOST };
        let rows_max = *rng.pick(&[2, 100, 100_000]);
        let clock = SimClock::new(Arc::clone(&time), paces.next());
        Place::new(at, clock, window, (rows_max, copies_max), run.seed)
    });
    let places = places.collect();
    let ways = Ways::new(sites, rng.percent(30));
    let (made, removed, told, had, gone) = Default::default();
    let (open, written, fresh, at_risk, were_full) = Default::default();
    let (known, went_back, restored, replaced) = Default::default();
    let mut sim = Sim {
        rng,
        run,
        time,
        copies_max,
        places,
        ways,
        made,
        removed,
        open,
        written,
        fresh,
        at_risk,
        told,
        had,
        were_full,
        fills,
        restores,
        known,
        went_back,
        restored,
        replaced,
        gone,
    };
    for at in 0..sites {
        sim.start(at)?;
    }
    let steps = sim.run.steps;
    for n in 1..=steps {
        sim.step()?;
        // Half of the runs meet often, the others once.
        let rounds = if sim.run.seed.is_multiple_of(2) { 3 } else { 1 };
        if n % (steps / rounds).max(1) == 0 {
            sim.rest()?;
        }
    }
    sim.rest()
}

impl Sim<'_> {
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.run.notes.note(self.time.us(), what);
    }

    fn step(&mut self) -> Result<(), Failure> {
        let at = self.rng.index(self.places.len());
        let pairs = self.ways.pairs();
        // One may be left alone.
        let pair = if pairs.is_empty() { (0, 0) } else { *self.rng.pick(&pairs) };
        let (fills, restores) = (u32::from(self.fills), u32::from(self.restores));
        match self.rng.weighted(&[
            60,
            30,
            15,
            3,
            8,
            1,
            1,
            1,
            10,
            2,
            2 * fills,
            4 * fills,
            3 * restores,
            3 * restores,
        ]) {
            0 => self.operation(at)?,
            1 => {
                for _ in 0..1 + self.rng.below(8) {
                    self.deliver()?;
                }
            }
            2 => self.pass()?,
            3 | 4 if pairs.is_empty() => {}
            3 => {
                self.note(format_args!("link {pair:?} breaks"));
                self.run.injected.breaks += u64::from(self.ways.is_up(pair));
                self.ways.set(&mut self.places, pair, false)?;
            }
            4 => self.ways.set(&mut self.places, pair, true)?,
            5 => {
                self.note(format_args!("site {at} dies"));
                self.run.injected.deaths += 1;
                self.places[at].die(Fault::ProcessDeath);
            }
            6 => {
                let effects = 1 + self.rng.below(EFFECTS_MAX);
                self.note(format_args!("the power of site {at} fails in {effects} effects"));
                self.run.injected.power_cuts += 1;
                // What is written from here on may be lost, too.
                self.at_risk.insert(at);
                let fault = Fault::PowerCut { seed: self.rng.bits() };
                self.places[at].dies_after(effects, fault);
            }
            7 => {
                self.note(format_args!("site {at} stops"));
                self.run.injected.stops += 1;
                self.places[at].stop()?;
            }
            8 => self.start(at)?,
            9 => self.places[at].enter(Event::CheckpointWanted)?,
            10 => {
                let left = self.rng.below(300_000);
                self.note(format_args!("site {at} has {left} bytes of room left"));
                self.run.injected.full += 1;
                self.were_full.insert(at);
                self.places[at].fill(left);
            }
            11 => {
                self.note(format_args!("site {at} has room"));
                self.places[at].empty();
            }
            12 => {
                self.note(format_args!("a backup of site {at} is made"));
                self.places[at].back_up();
            }
            _ => {
                let kept: Vec<usize> =
                    (0..self.places.len()).filter(|at| self.places[*at].has_backup()).collect();
                if !kept.is_empty() {
                    let at = *self.rng.pick(&kept);
                    self.restores_backup(at)?;
                }
            }
        }
        self.ways.take(&mut self.places)?;
        self.ways.look(&mut self.places)?;
        self.looks_at_known();
        self.settles_refusals()
    }

    /// Some message arrives. False if none is on its way.
    fn deliver(&mut self) -> Result<bool, Failure> {
        let Some((from, to, bytes)) = self.ways.arrives(&mut self.rng) else { return Ok(false) };
        let message = WideMessage::from_slice(&bytes);
        self.note(format_args!("site {from} to {to}: {message:?}"));
        if let Ok(WideMessage::Bytes { offset, bytes: Some(bytes), .. }) = message {
            // What another site has no power cut takes where it was made. Words at the edges may be parts of others.
            let first = if offset == 0 {
                0
            } else {
                bytes.iter().position(|byte| *byte == b';').unwrap_or(bytes.len())
            };
            let end = bytes.iter().rposition(|byte| *byte == b';').unwrap_or(first).max(first);
            self.told.extend(tokens_in(&bytes[first..end]));
        }
        self.ways.deliver(&mut self.places, (from, to), bytes)?;
        self.looks_at_known();
        self.settles_refusals()?;
        Ok(true)
    }

    fn start(&mut self, at: usize) -> Result<(), Failure> {
        if !self.places[at].is_up() {
            // Whoever was linked with it has noticed.
            self.ways.cut(&mut self.places, at)?;
            let up = self.places[at].start()?;
            self.note(format_args!("site {at} starts: {up}"));
            self.looks_at_known();
            let unseen = |(of, restored): (&usize, &mut Restored)| restored.unseen.remove(&at).then_some(*of);
            let since_down: Vec<usize> = self.restored.iter_mut().filter_map(unseen).collect();
            for of in since_down {
                if self.knows_more(at, of) {
                    self.went_back.insert(of);
                }
            }
        }
        Ok(())
    }

    /// The disk of a site is replaced by a backup, and its users go on.
    fn restores_backup(&mut self, at: usize) -> Result<(), Failure> {
        // Of two one would be left. And one site has all that all had at rest.
        let others = || self.places.iter().filter(|place| place.number != at && !place.is_out);
        if others().nth(1).is_none() || others().all(|place| self.replaced.contains(&place.number)) {
            return Ok(());
        }
        // Machines may have taken more since the last message came.
        self.looks_at_known();
        let seed = self.rng.bits();
        if !self.places[at].restore_backup(seed) {
            return Ok(());
        }
        self.ways.cut(&mut self.places, at)?;
        self.run.injected.wiped += 1;
        self.at_risk.insert(at);
        self.replaced.insert(at);
        if self.replaced.len() > 1 {
            // What one has told another one may be lost at both.
            self.forgets_told();
        }
        self.open.retain(|open| open.at != at);
        self.start(at)?;
        let site = &self.places[at];
        let taken = |machine: &Site| {
            let of = |other| (other, machine.peers().upto(SiteId(number(other))).0);
            (0..self.places.len()).map(of).collect::<BTreeMap<_, _>>()
        };
        let (Some(taken), (position, n)) = (site.with_site(taken), site.opened) else {
            return Err(Failure::new(format!("site {at} does not start from its backup")));
        };
        let others = self.places.iter().filter(|place| place.number != at);
        let unseen = others.filter(|place| place.with_site(|_| ()).is_none()).map(|place| place.number);
        let unseen = unseen.collect();
        self.restored.insert(at, Restored { position, n, taken, unseen });
        // Its users see again what it had forgotten. What they do there may keep it.
        let shown = self.shown(at)?;
        self.gone.retain(|token| !shown.contains(token));
        let is_back = (0..self.places.len()).any(|other| self.knows_more(other, at));
        self.note(format_args!("site {at} is restored from a backup, back: {is_back}"));
        if is_back {
            self.went_back.insert(at);
        }
        Ok(())
    }

    /// Whether a site knows more of another one than that had when it was restored.
    fn knows_more(&self, site: usize, of: usize) -> bool {
        let known = self.known.get(&site).and_then(|known| known.get(&of)).copied().unwrap_or_default();
        self.restored
            .get(&of)
            .filter(|_| site != of)
            .is_some_and(|of| known.n > of.n || known.taken > of.position || known.acked > of.taken[&site])
    }

    /// Notes what sites know of each other.
    fn looks_at_known(&mut self) {
        let sites = self.places.len();
        for (at, place) in self.places.iter().enumerate() {
            let known = self.known.entry(at).or_default();
            place.with_site(|machine| {
                for of in (0..sites).filter(|of| *of != at) {
                    let (taken, acked) = machine.peers().upto(SiteId(number(of)));
                    let n = machine.peers().last_dot(Writer(number(of)));
                    let before = known.entry(of).or_default();
                    *before = KnownOf {
                        n: before.n.max(n),
                        taken: before.taken.max(taken),
                        acked: before.acked.max(acked),
                    };
                }
            });
        }
    }

    /// Sites have refused each other since one has gone back. That one is out, or of two who have taken different changes of it the one that
    /// has the later ones: the others go on without it.
    fn settles_refusals(&mut self) -> Result<(), Failure> {
        for WentBack { by, to, who } in self.ways.take_refused() {
            self.note(format_args!("site {by} refuses site {to}: site {who} has gone back"));
            if !self.went_back.contains(&who) {
                return Err(Failure::new(format!(
                    "site {by} refuses site {to}, and nobody knows more of site {who} than that has"
                )));
            }
            if self.places[by].is_out || self.places[to].is_out {
                continue;
            }
            let at = if [by, to].contains(&who) { Some(who) } else { self.has_later(who, by, to)? };
            if let Some(at) = at {
                self.is_out(at)?;
            }
        }
        Ok(())
    }

    /// Which of two sites that refuse each other has the later changes of a third one; none if one of them has died meanwhile.
    fn has_later(&self, of: usize, one: usize, other: usize) -> Result<Option<usize>, Failure> {
        let writer = Writer(number(of));
        let n = |at: usize| self.places[at].with_site(|machine| machine.peers().last_dot(writer));
        let (Some(n_one), Some(n_other)) = (n(one), n(other)) else { return Ok(None) };
        let both = n_one.min(n_other);
        let life = |at: usize| self.places[at].with_site(|machine| machine.peers().life_of(writer, both));
        let lives = (life(one).flatten(), life(other).flatten());
        if lives.0 == lives.1 {
            let why = format!("sites {one} and {other} refuse each other, and know the same of site {of}");
            return Err(Failure::new(why));
        }
        Ok(Some(if lives.0 > lives.1 { one } else { other }))
    }

    /// The others go on without a site.
    fn is_out(&mut self, at: usize) -> Result<(), Failure> {
        self.note(format_args!("site {at} is out"));
        self.run.injected.removed += 1;
        self.places[at].die(Fault::ProcessDeath);
        self.places[at].is_out = true;
        self.ways.forget(&mut self.places, at)?;
        // What nobody else had is lost with it.
        self.fresh.retain(|(made_at, _)| *made_at != at);
        self.forgets_told();
        if self.places.iter().all(|place| place.is_out || self.replaced.contains(&place.number)) {
            // Those that are left need not know what all had at rest, and what was gone.
            [&mut self.told, &mut self.had, &mut self.gone].into_iter().for_each(Tokens::clear);
        }
        self.ways.look(&mut self.places)
    }

    /// What was told since all were at rest may be lost.
    fn forgets_told(&mut self) {
        let had = &self.had;
        self.told.retain(|token| had.contains(token));
    }

    /// Somebody of a site that goes on says that these others are out, unless it knows.
    fn forgets(&mut self) -> Result<(), Failure> {
        let out: Vec<u64> =
            self.places.iter().filter(|place| place.is_out).map(|place| number(place.number)).collect();
        let Some(at) = self.places.iter().position(|place| !place.is_out && place.is_up()) else {
            return Ok(());
        };
        for site in out {
            let known =
                self.places[at].with_site(|machine| machine.members().get(SiteId(site)).cloned()).flatten();
            let Some(member) = known.filter(SiteMember::is_active) else { continue };
            let member = SiteMember { version: member.version + 1, state: SiteStanding::Forgotten, ..member };
            let asks = SiteAsks::Know { sites: Most::new(vec![NumberedSite { site, member }]) };
            self.places[at].hear(BesideEvent::Asked { id: 2, bytes: asks.to_vec().into() })?;
        }
        Ok(())
    }

    /// Time passes everywhere.
    fn pass(&mut self) -> Result<(), Failure> {
        self.time.set(self.time.us() + 1_000 + self.rng.below(LOOK_US));
        self.places.iter_mut().try_for_each(Place::tick)?;
        self.ways.take(&mut self.places)?;
        self.ways.look(&mut self.places)
    }

    /// Everything works, and all sites tell each other everything. Then all is judged.
    fn rest(&mut self) -> Result<(), Failure> {
        self.places.iter_mut().for_each(Place::dies_now);
        self.places.iter_mut().for_each(Place::empty);
        self.ways.look(&mut self.places)?;
        let mut quiet = 0;
        for looks in 0.. {
            for at in 0..self.places.len() {
                self.start(at)?;
            }
            for pair in self.ways.pairs() {
                self.ways.set(&mut self.places, pair, true)?;
            }
            self.forgets()?;
            let mut is_silent = true;
            while self.deliver()? {
                is_silent = false;
            }
            self.time.set(self.time.us() + LOOK_US);
            self.places.iter_mut().try_for_each(Place::tick)?;
            self.ways.take(&mut self.places)?;
            self.ways.look(&mut self.places)?;
            self.looks_at_known();
            self.settles_refusals()?;
            // Machines hear of a sync with the next event.
            let mut places = self.places.iter().filter(|place| !place.is_out);
            let is_quiet = is_silent && places.all(|place| self.ways.are_quiet(place));
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
            if looks > LOOKS_MAX {
                let left = self.places.iter().filter(|place| !place.is_out);
                let left: Vec<String> = left.map(|place| self.ways.unrest(place)).collect();
                return Err(Failure::new(format!("sites do not come to rest: {}", left.join("; "))));
            }
        }
        self.run.virtual_us = self.time.us();
        let seed = self.run.seed;
        let (tree, now, rest) = judge(&mut self.places, (seed, self.copies_max))?;
        self.note(format_args!(
            "at rest: {:?}",
            tree.items.keys().map(|path| path.escape_ascii().to_string()).collect::<Vec<_>>()
        ));
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        self.told.extend(fresh.filter(|(at, _)| !self.at_risk.contains(at)).map(|(_, token)| token));
        self.at_risk.clear();
        let may_rest = self.copies_max < COPIES_MAX;
        judge_tokens((&now, &rest), &self.gone, &self.told, (&self.removed, may_rest))?;
        let mut out = std::mem::take(&mut self.were_full);
        // What rested there went with the disk, or is not there yet.
        out.append(&mut self.replaced);
        out.extend(self.places.iter().filter(|place| place.is_out).map(|place| place.number));
        judge_trash((&now, &rest), &self.had, &self.removed, &out)?;
        self.gone.extend(self.made.iter().filter(|token| !now.contains(*token)).cloned());
        self.had = now.clone();
        self.told = now;
        self.ways.take(&mut self.places)
    }

    /// A name of some directory of a site, and that directory. None if its process has ended.
    fn place(&mut self, at: usize) -> Result<Option<(Ino, Name)>, Failure> {
        let mut dir = Ino::ROOT;
        loop {
            let Some(entries) = self.places[at].list(dir)? else { return Ok(None) };
            let dirs: Vec<Ino> =
                entries.iter().filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.ino).collect();
            if !dirs.is_empty() && self.rng.percent(60) {
                dir = *self.rng.pick(&dirs);
                continue;
            }
            // Names that are there now and then, such as those beside others.
            let is_there = !entries.is_empty() && self.rng.percent(60);
            let at = if is_there {
                self.rng.pick(&entries).name.clone()
            } else {
                name(self.rng.pick::<&str>(&NAMES))
            };
            return Ok(Some((dir, at)));
        }
    }

    /// What is at a name, and the tokens that users see there.
    fn found(&mut self, at: usize, dir: Ino, name: &Name) -> Result<Option<(Ino, Kind, Tokens)>, Failure> {
        let looked = self.places[at].run(Op::Lookup { dir, name: name.clone() })?;
        let Some(Ok((Answer::Found { found }, _))) = looked else { return Ok(None) };
        let (ino, kind) = (found.attr.ino, found.attr.kind);
        let tokens = self.tokens(at, ino, kind)?;
        Ok(tokens.map(|tokens| (ino, kind, tokens)))
    }

    /// Those that users see in what is there; none if it is there no more.
    fn tokens(&mut self, at: usize, ino: Ino, kind: Kind) -> Result<Option<Tokens>, Failure> {
        Ok(Some(match kind {
            Kind::Symlink => {
                let read = self.places[at].run(Op::Readlink { ino })?;
                let Some(Ok((_, target))) = read else { return Ok(None) };
                Tokens::from([target])
            }
            Kind::Regular => self.places[at].bytes(ino)?.map(|bytes| tokens_in(&bytes)).unwrap_or_default(),
            _ => Tokens::new(),
        }))
    }

    /// All that users of a site see.
    fn shown(&mut self, at: usize) -> Result<Tokens, Failure> {
        let (mut all, mut dirs) = (Tokens::new(), vec![Ino::ROOT]);
        while let Some(dir) = dirs.pop() {
            for entry in self.places[at].list(dir)?.unwrap_or_default() {
                if entry.kind == Kind::Directory {
                    dirs.push(entry.ino);
                }
                all.extend(self.tokens(at, entry.ino, entry.kind)?.unwrap_or_default());
            }
        }
        Ok(all)
    }

    /// Of what a user removes also go the tokens that are not here yet: who removes a file removes all of it that his site knows of.
    fn known(&self, at: usize, ino: Ino) -> Tokens {
        let Some(file) = self.places[at].known(ino) else { return Tokens::new() };
        let ids = [Some(file.id), file.state.birth.copy_of].into_iter().flatten();
        ids.flat_map(|id| self.written.get(&id).cloned().unwrap_or_default()).collect()
    }

    /// The user of a site removes these, or may have.
    fn removes(&mut self, at: usize, tokens: Tokens) {
        for token in tokens {
            self.removed.entry(token).or_default().insert(at);
        }
    }

    /// Somebody gives a name to what rests at a site.
    fn restore(&mut self, at: usize, dir: Ino, name: Name) -> Result<(), Failure> {
        let keys = self.places[at].with_site(|site| site.trash().keys().collect::<Vec<_>>());
        let Some(keys) = keys.filter(|keys| !keys.is_empty()) else { return Ok(()) };
        let key = *self.rng.pick(&keys);
        let ino = trash_of(key).1;
        let Some(read) = self.places[at].run(Op::Readlink { ino })? else { return Ok(()) };
        let tokens = match read {
            Ok((_, target)) => Tokens::from([target]),
            Err(_) => self.places[at].bytes(ino)?.map(|bytes| tokens_in(&bytes)).unwrap_or_default(),
        };
        self.gone.retain(|token| !tokens.contains(token));
        self.note(format_args!("site {at} restores {ino} as {name:?} in {dir}"));
        let bytes = SiteAsks::TrashRestore { key, dir, name }.to_vec().into();
        self.places[at].hear(BesideEvent::Asked { id: 1, bytes })
    }

    /// A user opens a file, writes to one that he has open, whatever has become of its name, or closes it.
    fn uses_open(&mut self, at: usize, found: Option<(Ino, Kind, Tokens)>) -> Result<(), Failure> {
        let open: Vec<usize> = (0..self.open.len()).filter(|nth| self.open[*nth].at == at).collect();
        if let (Some((ino, Kind::Regular, _)), true) = (&found, open.len() < OPEN_MAX && self.rng.percent(50))
        {
            self.open.push(OpenFile { at, ino: *ino, is_removed: false });
            return Ok(());
        }
        let Some(nth) = (!open.is_empty()).then(|| *self.rng.pick(&open)) else { return Ok(()) };
        let OpenFile { ino, is_removed, .. } = self.open[nth];
        if self.rng.percent(15) {
            self.open.remove(nth);
            // The kernel may have opened it more than once.
            if !self.open.iter().any(|open| (open.at, open.ino) == (at, ino)) {
                self.places[at].release(ino)?;
            }
            return Ok(());
        }
        let Some(bytes) = self.places[at].bytes(ino)? else { return Ok(()) };
        let seen = tokens_in(&bytes);
        // It may become a file of its own, with all that is in it.
        self.gone.retain(|token| !seen.contains(token));
        self.write(at, ino, seen, is_removed)
    }

    /// A user changes the bytes of a file: overwrites them all, or appends. `may_go`: it may have no name any more, and go with what is
    /// written to it.
    fn write(&mut self, at: usize, ino: Ino, seen: Tokens, may_go: bool) -> Result<(), Failure> {
        let id = self.places[at].known(ino).map(|file| file.id);
        let place = &mut self.places[at];
        let overwrites = self.rng.percent(50);
        if overwrites {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let done = place.run(Op::SetAttr { ino, set })?;
            if !matches!(done, Some(Err(_))) {
                self.removes(at, seen);
            }
            if !matches!(done, Some(Ok(_))) {
                return Ok(());
            }
        }
        let token = format!("w{at}-{}", self.made.len()).into_bytes();
        // Some files are the same at several sites, and some have several pieces.
        let is_common = overwrites && self.rng.percent(20);
        let mut data = if is_common { b"common;".to_vec() } else { [&token[..], b";"].concat() };
        if self.rng.percent(20) {
            // More than a record carries.
            data.resize(data.len() + 40_000, b';');
        }
        let (offset, append) =
            if self.rng.percent(5) { (self.rng.below(3 * PIECE_BYTES), false) } else { (0, true) };
        if append || !overwrites {
            // Whatever is in the way is overwritten.
            let there = if append { None } else { self.places[at].bytes(ino)? };
            self.removes(at, there.map(|bytes| tokens_in(&bytes)).unwrap_or_default());
        }
        let done = self.places[at].run_with(Op::Write { ino, offset, append, kill_set_id: false }, &data)?;
        self.note(format_args!(
            "site {at} writes {} in {ino}: {:?}",
            data[..data.len().min(20)].escape_ascii(),
            done.as_ref().map(|done| done.as_ref().map(|_| ()))
        ));
        if !is_common && !matches!(done, Some(Err(_))) {
            self.made.insert(token.clone());
            // It may be another file than before.
            if let Some(id) = self.places[at].known(ino).map(|file| file.id).or(id) {
                self.written.entry(id).or_default().insert(token.clone());
            }
            if done.is_some() && !may_go {
                self.fresh.push((at, token));
            }
        }
        self.run.operations += 1;
        if self.rng.percent(10) {
            self.places[at].run(Op::Fsync { ino })?;
        }
        Ok(())
    }

    /// A user of a site is about to remove a name of what he may have open.
    fn removes_own(&mut self, at: usize, found: &Option<(Ino, Kind, Tokens)>) {
        let of_it =
            |open: &&mut OpenFile| open.at == at && found.as_ref().is_some_and(|(ino, ..)| *ino == open.ino);
        self.open.iter_mut().filter(of_it).for_each(|open| open.is_removed = true);
    }

    /// The user of a site does something.
    fn operation(&mut self, at: usize) -> Result<(), Failure> {
        if !self.places[at].is_up() {
            return Ok(());
        }
        let Some((dir, name)) = self.place(at)? else { return Ok(()) };
        let Some((new_dir, new_name)) = self.place(at)? else { return Ok(()) };
        let found = self.found(at, dir, &name)?;
        let replaced = self.found(at, new_dir, &new_name)?;
        let mode = *self.rng.pick(&[0o644, 0o600, 0o750]);
        let (umask, rdev, exclusive, target) = (0, 0, true, Bytes::new());
        let mut removes = Tokens::new();
        let what = self.rng.weighted(&[14, 14, 14, 30, 5, 12, 12, 6, 6, 6, 2, 40, 30, 4]);
        if let (11, Some((ino, Kind::Regular, seen))) = (what, &found) {
            return self.write(at, *ino, seen.clone(), false);
        }
        if what == 12 {
            return self.uses_open(at, found);
        }
        if what == 13 {
            return self.restore(at, dir, name);
        }
        let gone = |sim: &Self, found: &Option<(Ino, Kind, Tokens)>| -> Tokens {
            found.iter().flat_map(|(ino, _, seen)| seen.iter().cloned().chain(sim.known(at, *ino))).collect()
        };
        let op = match (what, found) {
            (0, _) => Op::Create { dir, name, kind: Kind::Regular, mode, umask, rdev, exclusive, target },
            (1, _) => Op::Mkdir { dir, name, mode: mode | 0o100, umask },
            (2, _) => {
                let token = format!("s{at}-{}", self.made.len()).into_bytes();
                self.made.insert(token.clone());
                let (kind, target) = (Kind::Symlink, Bytes::from(token));
                Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }
            }
            (what @ (3 | 4), _) => {
                let mode = if what == 3 { RenameMode::Replace } else { RenameMode::Exchange };
                if what == 3 {
                    removes.extend(gone(self, &replaced));
                    self.removes_own(at, &replaced);
                }
                Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
            }
            (5, found) => {
                removes.extend(gone(self, &found));
                self.removes_own(at, &found);
                Op::Unlink { dir, name }
            }
            (6, _) => Op::Rmdir { dir, name, meant: None },
            (7, Some((ino, _, _))) => Op::Link { ino, dir: new_dir, name: new_name },
            (8, Some((ino, _, _))) => {
                Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
            }
            (9, Some((ino, Kind::Regular | Kind::Directory, _))) => {
                let (name, value) =
                    (Bytes::from_static(b"user.x"), Bytes::from(vec![self.rng.index(9) as u8]));
                Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }
            }
            _ => Op::FsyncDir { dir },
        };
        let told = format!("{op:?}");
        let done = self.places[at].run(op)?;
        self.note(format_args!(
            "site {at} at {:?}: {told}: {:?}",
            self.places[at].now(),
            done.as_ref().map(|done| done.as_ref().map(|_| ()))
        ));
        self.run.operations += 1;
        if !matches!(done, Some(Err(_))) {
            self.removes(at, removes);
        }
        Ok(())
    }
}
