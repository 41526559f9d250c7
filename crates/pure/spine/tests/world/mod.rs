//! Sites with parts of one tree, which move directories, lose their power, and hear of each other late, twice and in
//! any order. After each event the spine of the site is compared with Kleppmann's algorithm over all moves that the
//! site knows.

mod site;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_causal::{FileId, HybridStamp, Writer};
use atoll_core::{Decode, Encode, Name};
use atoll_model::Rng;
use atoll_model::moves::{MoveStamp, Moved, Moves};
use atoll_spine::{Evidence, MoveRefused, MovedDir, NotTaken, SpineCut, SpineMove, SpinePlace};
use site::{Machine, Report, Site};

/// How often what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Many directories, few moves of each.
    Plain,
    /// Few directories, many moves and cuts.
    Dense,
    /// As dense, with far fewer syncs, more deaths, evictions and clocks that are hours off.
    Rough,
}

impl Variant {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Dense, Self::Rough];

    /// Weights of: births, fetches, moves, records, reports, folds, renames, evictions, syncs, power cuts, evidence
    /// that arrives, sites that join.
    const fn weights(self) -> [u32; 12] {
        match self {
            Self::Plain => [18, 24, 28, 25, 8, 3, 4, 3, 5, 1, 3, 1],
            Self::Dense => [6, 14, 36, 24, 24, 12, 3, 2, 4, 1, 1, 1],
            Self::Rough => [5, 14, 34, 22, 20, 9, 3, 6, 1, 5, 1, 1],
        }
    }

    const fn dirs_max(self) -> usize {
        match self {
            Self::Plain => usize::MAX,
            Self::Dense => 8,
            Self::Rough => 10,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) moves: u64,
    pub(crate) together: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
    pub(crate) cuts: u64,
    pub(crate) stale: u64,
    pub(crate) deaths: u64,
    pub(crate) dropped: u64,
    pub(crate) joined: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.moves += other.moves;
        self.together += other.together;
        self.lost += other.lost;
        self.late += other.late;
        self.refused += other.refused;
        self.cuts += other.cuts;
        self.stale += other.stale;
        self.deaths += other.deaths;
        self.dropped += other.dropped;
        self.joined += other.joined;
    }
}

/// A fetched directory on its way.
struct Fetched {
    to: usize,
    made: HybridStamp,
    evidence: Vec<u8>,
    dir: FileId,
    renamed: Option<(HybridStamp, Name)>,
}

pub(crate) struct World {
    rng: Rng,
    variant: Variant,
    now_us: u64,
    machines: Vec<Machine>,
    /// Births and moves that somebody has, or may get.
    moves: Moves,
    /// The records that have left their sites, as bytes.
    sent: BTreeMap<HybridStamp, Vec<u8>>,
    fetched: VecDeque<Fetched>,
    dirs: u64,
    pub(crate) counts: Counts,
}

pub(crate) const fn stamp_of(stamp: HybridStamp) -> MoveStamp {
    (stamp.time_us, stamp.writer.0)
}

pub(crate) fn name(nth: u64) -> Name {
    Name::new(format!("n{nth}").as_bytes()).expect("a name")
}

impl World {
    pub(crate) fn new(seed: u64, variant: Variant) -> Self {
        let mut rng = Rng::new(seed);
        let machines = (0..2 + rng.below(4)).map(|nth| {
            let wrong_us = match variant {
                Variant::Rough if rng.percent(30) => rng.below(40 * 3_600_000_000),
                _ if rng.percent(30) => rng.below(3_000),
                _ => 0,
            };
            Machine::new(Site::new(Writer(nth + 1)), wrong_us)
        });
        let machines = machines.collect();
        Self {
            rng,
            variant,
            now_us: 1_000,
            machines,
            moves: Moves::default(),
            sent: BTreeMap::new(),
            fetched: VecDeque::new(),
            dirs: 0,
            counts: Counts::default(),
        }
    }

    /// A while of everything, then rest: all hear of everything, and nothing is left but the tree.
    pub(crate) fn run(&mut self) {
        let steps = match self.variant {
            Variant::Plain => 20 + self.rng.below(120),
            Variant::Dense | Variant::Rough => 60 + self.rng.below(200),
        };
        for _ in 0..steps {
            self.step();
        }
        self.rest();
    }

    fn step(&mut self) {
        self.now_us += 1 + self.rng.below(50);
        let at = self.rng.index(self.machines.len());
        match self.rng.weighted(&self.variant.weights()) {
            _ if self.dirs < 3 => self.birth(at),
            0 => self.birth(at),
            1 => self.fetch(at),
            2 => self.make_move(at),
            3 => self.deliver(at),
            4 => self.report(at),
            5 => self.fold(at),
            6 => self.rename(at),
            7 => self.evict(at),
            8 => self.sync(at),
            9 => self.power_cut(at),
            10 => self.arrive(),
            _ => self.join(at),
        }
        self.judge(at);
    }

    fn site(&mut self, at: usize) -> &mut Site {
        &mut self.machines[at].site
    }

    /// The stamp of a change that is made now at a site.
    fn give(&mut self, at: usize, above: HybridStamp) -> HybridStamp {
        let now_us = self.machines[at].now_us(self.now_us);
        self.machines[at].site.give(now_us, above)
    }

    fn birth(&mut self, at: usize) {
        if self.dirs as usize >= self.variant.dirs_max() {
            return;
        }
        self.dirs += 1;
        let dir = FileId(0xd000 + u128::from(self.dirs));
        let mut parents: Vec<FileId> = self.site(at).held.iter().copied().collect();
        parents.push(FileId::ROOT);
        let parent = *self.rng.pick(&parents);
        let name = name(self.rng.below(5));
        // As any change of a directory, that of the parent is later than all that the parent has.
        let above = self.site(at).spine.place(parent).map_or(HybridStamp::ZERO, |place| place.since);
        let since = self.give(at, above);
        self.moves.birth(dir.0, parent.0, name.clone(), stamp_of(since));
        let site = self.site(at);
        site.spine.born(dir, SpinePlace { parent, name, since });
        site.held.insert(dir);
        site.unsent_births.push(dir);
    }

    /// A site asks another one for a directory. The answer may take long.
    fn fetch(&mut self, at: usize) {
        let from = self.rng.index(self.machines.len());
        let held: Vec<FileId> = self.site(from).held.iter().copied().collect();
        if from == at || held.is_empty() {
            return;
        }
        let dir = *self.rng.pick(&held);
        let made = self.give(from, HybridStamp::ZERO);
        // Nothing leaves before it is synced.
        self.sync(from);
        let site = self.site(from);
        let evidence = site.spine.evidence(&[dir]).expect("few directories").to_vec();
        let renamed = site.renamed.get(&dir).cloned();
        self.fetched.push_back(Fetched { to: at, made, evidence, dir, renamed });
        if self.rng.percent(60) {
            self.arrive();
        }
    }

    fn arrive(&mut self) {
        if self.fetched.is_empty() {
            return;
        }
        let nth = self.rng.index(self.fetched.len());
        let fetched = self.fetched.remove(nth).expect("one of them");
        let now_us = self.machines[fetched.to].now_us(self.now_us);
        let site = self.site(fetched.to);
        let evidence = Evidence::from_slice(&fetched.evidence).expect("what a site sends");
        match site.spine.learn(fetched.made, &evidence) {
            Ok(()) => {
                site.clock.hear(now_us, fetched.made);
                site.hold_with_all_above(fetched.dir);
                site.hear_of_name(fetched.dir, fetched.renamed);
            }
            Err(NotTaken::BelowCut) => self.counts.stale += 1,
            Err(other) => panic!("evidence is refused: {other}"),
        }
        self.judge(fetched.to);
    }

    fn make_move(&mut self, at: usize) {
        let held: Vec<FileId> = self.site(at).held.iter().copied().collect();
        if held.is_empty() {
            return;
        }
        let dirs = self.draw_move(at, &held);
        let (machines, now_us) = (&mut self.machines, self.now_us);
        let machine = &mut machines[at];
        let now_us = machine.now_us(now_us);
        let plain: Vec<_> =
            dirs.iter().map(|moved| (moved.dir.0, moved.parent.0, moved.name.clone())).collect();
        let tree = self.moves.tree(|stamp| machine.site.known.contains(&stamp));
        let is_tree = tree.after((0, 0), &plain).is_some();
        let mut clock = machine.site.clock;
        let writer = machine.site.writer;
        let decided =
            machine.site.spine.decide(writer, dirs.clone(), |above| clock.give(now_us, writer, above));
        let record = match decided {
            Ok(record) => record,
            Err(MoveRefused::Below(dir)) => {
                assert!(!is_tree, "{dir:?} would not be below itself");
                self.counts.refused += 1;
                return;
            }
            Err(other) => panic!("a move is refused: {other}"),
        };
        assert!(is_tree, "{record:?} makes a circle");
        machine.site.clock = clock;
        machine.site.given = machine.site.given.max(record.stamp());
        self.moves.issue(stamp_of(record.stamp()), plain);
        self.counts.moves += 1;
        self.counts.together += u64::from(dirs.len() > 1);
        machine.site.take_own(record);
    }

    /// A move of one directory, of two that change places, or of several to one parent.
    fn draw_move(&mut self, at: usize, held: &[FileId]) -> Vec<MovedDir> {
        let first = *self.rng.pick(held);
        let second = *self.rng.pick(held);
        let kind = self.rng.below(10);
        if kind == 0 && first != second {
            let spine = &self.machines[at].site.spine;
            let place = |dir| spine.place(dir).expect("held").clone();
            let (one, other) = (place(first), place(second));
            let change = [(first, other), (second, one)];
            return change.map(|(dir, to)| MovedDir { dir, parent: to.parent, name: to.name }).into();
        }
        let parent = if self.rng.percent(15) { FileId::ROOT } else { *self.rng.pick(held) };
        let name = name(self.rng.below(5));
        let count = if kind < 3 { 1 + self.rng.index(4) } else { 1 };
        let mut dirs = BTreeSet::from([first]);
        dirs.extend((1..count).map(|_| *self.rng.pick(held)));
        let moved = dirs.into_iter().filter(|dir| *dir != parent);
        let moved: Vec<MovedDir> = moved.map(|dir| MovedDir { dir, parent, name: name.clone() }).collect();
        if moved.is_empty() {
            return vec![MovedDir { dir: first, parent: FileId::ROOT, name }];
        }
        moved
    }

    fn deliver(&mut self, at: usize) {
        if self.sent.is_empty() {
            return;
        }
        let known = &self.machines[at].site.known;
        let new: Vec<HybridStamp> =
            self.sent.keys().filter(|stamp| !known.contains(&stamp_of(**stamp))).copied().collect();
        let all: Vec<HybridStamp> = self.sent.keys().copied().collect();
        let is_again = new.is_empty() || self.rng.percent(5);
        let stamp = *self.rng.pick(if is_again { &all } else { &new });
        self.deliver_one(at, stamp);
    }

    fn deliver_one(&mut self, at: usize, stamp: HybridStamp) {
        let record = SpineMove::from_slice(&self.sent[&stamp]).expect("what a site sends");
        let now_us = self.machines[at].now_us(self.now_us);
        let site = &mut self.machines[at].site;
        let is_late = site.spine.records().last().is_some_and(|last| last.stamp() > stamp);
        let is_known = site.known.contains(&stamp_of(stamp));
        let before: BTreeMap<FileId, Option<SpinePlace>> =
            site.held.iter().map(|dir| (*dir, site.spine.place(*dir).cloned())).collect();
        match site.spine.receive(record) {
            Ok(changed) => {
                for (dir, place) in before {
                    assert_eq!(
                        site.spine.place(dir) != place.as_ref(),
                        changed.contains(&dir),
                        "{dir:?} is told of if it has another place"
                    );
                }
                assert!(!is_known || changed.is_empty(), "what comes twice changes nothing");
                site.clock.hear(now_us, stamp);
                self.counts.late += u64::from(is_late && !is_known);
                site.known.insert(stamp_of(stamp));
            }
            Err(NotTaken::BelowCut) if is_known && stamp <= site.spine.cut().upto => {}
            Err(other) => panic!("{stamp:?} is refused: {other}"),
        }
    }

    /// What has gathered comes at once.
    fn deliver_all(&mut self, at: usize, stamps: &[HybridStamp]) {
        let records = stamps.iter().map(|stamp| SpineMove::from_slice(&self.sent[stamp]).expect("a record"));
        let records = records.collect();
        let site = &mut self.machines[at].site;
        let (_, refused) = site.spine.receive_all(records);
        let upto = site.spine.cut().upto;
        assert!(refused.iter().all(|(stamp, why)| *why == NotTaken::BelowCut && *stamp <= upto));
        site.known.extend(stamps.iter().map(|stamp| stamp_of(*stamp)));
        self.judge(at);
    }

    /// A site reports in the next round, if it has the reports of the last one, and the moves that they name.
    fn report(&mut self, at: usize) {
        let round = self.machines[at].site.next_round();
        let last = round.checked_sub(1).map(|last| self.reports(last));
        let known = &self.machines[at].site.known;
        let has_all = last.is_none_or(|last| {
            last.is_some_and(|reports| reports.iter().all(|report| report.made.is_subset(known)))
        });
        if !has_all {
            return;
        }
        let clock = self.give(at, HybridStamp::ZERO);
        let site = self.site(at);
        site.reports.push(Report { clock, given: site.given, made: site.made.clone() });
        self.sync(at);
        if self.cut_of(round).is_some() {
            self.counts.cuts += 1;
        }
    }

    /// The reports of a round, if all are there whose sites were let in before it.
    fn reports(&self, round: usize) -> Option<Vec<&Report>> {
        let members = self.machines.iter().filter(|machine| machine.site.first_round <= round);
        members.map(|machine| machine.synced.report_of(round)).collect()
    }

    /// The cut that the reports of a round and the one before make, if all are there.
    fn cut_of(&self, round: usize) -> Option<SpineCut> {
        let last = self.reports(round.checked_sub(1)?)?;
        let upto_us = last.iter().map(|report| report.clock.time_us).min()?;
        let horizon = self.reports(round)?.iter().map(|report| report.given).max()?;
        let upto = HybridStamp { time_us: upto_us, writer: Writer(u64::MAX) };
        Some(SpineCut { upto, horizon: horizon.max(upto) })
    }

    /// A new site is let in.
    fn join(&mut self, at: usize) {
        if self.machines.len() >= 6 {
            return;
        }
        let made = self.give(at, HybridStamp::ZERO);
        self.sync(at);
        let writer = Writer(self.machines.len() as u64 + 1);
        let site = self.site(at).let_in(writer, made);
        self.machines.push(Machine::new(site, 0));
        self.counts.joined += 1;
        self.judge(self.machines.len() - 1);
    }

    /// A site hears of the next cut that it does not know, or of a later one.
    fn fold(&mut self, at: usize) {
        let known = self.machines[at].site.rounds_folded;
        let last = (known + 1..).take_while(|round| self.cut_of(*round).is_some()).last();
        let Some(last) = last else { return };
        let round = if self.rng.percent(50) { known + 1 } else { last };
        self.fold_to(at, round);
    }

    fn fold_to(&mut self, at: usize, round: usize) {
        let cut = self.cut_of(round).expect("a cut that is known");
        let site = self.site(at);
        let before = site.spine.known();
        site.spine.fold(cut);
        site.rounds_folded = round;
        let after = site.spine.known();
        self.counts.dropped += (before - after) as u64;
    }

    fn rename(&mut self, at: usize) {
        let held: Vec<FileId> = self.site(at).held.iter().copied().collect();
        if held.is_empty() {
            return;
        }
        let dir = *self.rng.pick(&held);
        let name = name(self.rng.below(9));
        let site = &self.machines[at].site;
        let renamed = site.renamed.get(&dir).map(|(stamp, _)| *stamp);
        let above = site.spine.place(dir).map(|place| place.since).max(renamed);
        let stamp = self.give(at, above.expect("a held directory has a place"));
        self.site(at).renamed.insert(dir, (stamp, name));
    }

    /// A site drops a directory in which it holds no other.
    fn evict(&mut self, at: usize) {
        let site = &mut self.machines[at].site;
        let parents: BTreeSet<FileId> =
            site.held.iter().filter_map(|dir| Some(site.spine.place(*dir)?.parent)).collect();
        let mut leaves: Vec<FileId> = site.held.difference(&parents).copied().collect();
        leaves.retain(|dir| !site.unsent_births.contains(dir));
        // Somebody must hold it after a power cut.
        let held_elsewhere = |dir: &FileId| {
            let others = self.machines.iter().enumerate().filter(|(other, _)| *other != at);
            others
                .into_iter()
                .any(|(_, other)| other.site.held.contains(dir) && other.synced.held.contains(dir))
        };
        leaves.retain(held_elsewhere);
        if !leaves.is_empty() {
            let dir = *self.rng.pick(&leaves);
            let site = self.site(at);
            site.held.remove(&dir);
            site.spine.release(dir);
        }
    }

    /// What a site has made is safe from here on, and may leave it.
    fn sync(&mut self, at: usize) {
        for record in self.machines[at].sync() {
            self.sent.insert(record.stamp(), record.to_vec());
        }
    }

    fn power_cut(&mut self, at: usize) {
        let (births, moves) = self.machines[at].power_cut();
        let births: Vec<u128> = births.into_iter().map(|dir| dir.0).collect();
        self.moves.forget(&births, &moves);
        self.counts.deaths += 1;
    }

    /// The spine of a site is what the oracle says, for all that it is to know.
    fn judge(&mut self, at: usize) {
        let site = &self.machines[at].site;
        site.spine.check();
        let tree = self.moves.tree(|stamp| site.known.contains(&stamp));
        judge_site(site, &tree);
    }

    fn rest(&mut self) {
        let all = 0..self.machines.len();
        all.clone().for_each(|at| self.sync(at));
        while !self.fetched.is_empty() {
            self.arrive();
        }
        all.clone().for_each(|at| self.sync(at));
        for at in all.clone() {
            let mut stamps: Vec<HybridStamp> = self.sent.keys().copied().collect();
            if self.rng.percent(50) {
                self.deliver_all(at, &stamps);
            }
            while !stamps.is_empty() {
                let nth = self.rng.index(stamps.len());
                self.deliver_one(at, stamps.swap_remove(nth));
            }
            self.judge(at);
        }
        let tree = self.moves.tree(|_| true);
        self.counts.lost += tree.lost.len() as u64;
        self.names_agree();
        self.all_is_folded(&tree);
    }

    /// The latest of the rename and the place gives the same name to a directory wherever it is held.
    fn names_agree(&mut self) {
        let mut renamed = BTreeMap::new();
        for machine in &self.machines {
            for (dir, (stamp, name)) in &machine.site.renamed {
                let latest = renamed.entry(*dir).or_insert((*stamp, name.clone()));
                *latest = latest.clone().max((*stamp, name.clone()));
            }
        }
        let mut names: BTreeMap<FileId, Name> = BTreeMap::new();
        for machine in &mut self.machines {
            for dir in machine.site.held.clone() {
                machine.site.hear_of_name(dir, renamed.get(&dir).cloned());
                let shown = machine.site.shown_name(dir);
                assert_eq!(*names.entry(dir).or_insert(shown.clone()), shown, "the name of {dir:?}");
            }
        }
    }

    /// After some rounds no move is left, and nothing is known but what is held and what is above it.
    fn all_is_folded(&mut self, tree: &Moved) {
        let all = 0..self.machines.len();
        let reports = self.machines.iter().map(|machine| machine.site.next_round()).max().expect("sites");
        for _ in 0..reports + 5 {
            // Later than all that any clock has given.
            self.now_us += 100 * 3_600_000_000;
            all.clone().for_each(|at| self.report(at));
        }
        let last = (1..).take_while(|round| self.cut_of(*round).is_some()).last().expect("rounds");
        assert!(last >= reports + 3, "rounds go on");
        for at in all {
            self.fold_to(at, last - 3);
            self.judge(at);
            self.fold_to(at, last);
            self.judge(at);
            let site = &self.machines[at].site;
            judge_site(site, tree);
            assert_eq!(site.spine.records().len(), 0, "no move is left");
            let needed: BTreeSet<FileId> = site
                .held
                .iter()
                .flat_map(|dir| site.spine.up(*dir).map(|(dir, _)| dir).collect::<Vec<_>>())
                .collect();
            assert_eq!(site.spine.known(), needed.len(), "nothing is known that is not needed");
        }
    }
}

fn judge_site(site: &Site, tree: &Moved) {
    let named = site.spine.records().flat_map(SpineMove::dirs).flat_map(|moved| [moved.dir, moved.parent]);
    let dirs = named.chain(site.held.iter().copied()).filter(|dir| *dir != FileId::ROOT);
    for dir in dirs.collect::<BTreeSet<_>>() {
        let place = site.spine.place(dir).expect("what is named or held is known");
        let wanted = &tree.places[&dir.0];
        assert_eq!(
            (place.parent.0, &place.name, stamp_of(place.since)),
            (wanted.parent, &wanted.name, wanted.since),
            "the place of {dir:?} at {:?}",
            site.writer
        );
    }
    let lost: BTreeSet<MoveStamp> = site.spine.lost().map(|lost| stamp_of(lost.stamp)).collect();
    let upto = stamp_of(site.spine.cut().upto);
    let wanted = tree.lost.iter().filter(|stamp| **stamp > upto).copied().collect();
    assert_eq!(lost, wanted, "the moves without effect at {:?}", site.writer);
    for lost in site.spine.lost() {
        assert!(lost.because < lost.stamp, "{lost:?}");
    }
}
