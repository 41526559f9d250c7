//! A site of the small world, and the machine on which it runs: what is synced there comes back after a power cut.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{FileId, HybridClock, HybridStamp, Writer};
use atoll_core::Name;
use atoll_model::moves::MoveStamp;
use atoll_spine::{Spine, SpineMove};

use super::stamp_of;

/// What a site says in a round.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// A stamp that its clock gave for it.
    pub(crate) clock: HybridStamp,
    /// The latest stamp that it has given.
    pub(crate) given: HybridStamp,
    /// The moves that it has made.
    pub(crate) made: BTreeSet<MoveStamp>,
}

#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) writer: Writer,
    pub(crate) spine: Spine,
    pub(crate) held: BTreeSet<FileId>,
    pub(crate) clock: HybridClock,
    pub(crate) given: HybridStamp,
    /// All moves that it has, or had before it folded them.
    pub(crate) known: BTreeSet<MoveStamp>,
    pub(crate) made: BTreeSet<MoveStamp>,
    /// Names by renames in place, of directories that it holds or held.
    pub(crate) renamed: BTreeMap<FileId, (HybridStamp, Name)>,
    /// The first round in which it reports.
    pub(crate) first_round: usize,
    /// What it reported in that round and those behind it.
    pub(crate) reports: Vec<Report>,
    /// The round whose reports made its last cut.
    pub(crate) rounds_folded: usize,
    pub(crate) unsent_births: Vec<FileId>,
    unsent: Vec<SpineMove>,
}

impl Site {
    pub(crate) fn new(writer: Writer) -> Self {
        Self {
            writer,
            spine: Spine::default(),
            held: BTreeSet::new(),
            clock: HybridClock::default(),
            given: HybridStamp::ZERO,
            known: BTreeSet::new(),
            made: BTreeSet::new(),
            renamed: BTreeMap::new(),
            first_round: 0,
            reports: Vec::new(),
            rounds_folded: 0,
            unsent_births: Vec::new(),
            unsent: Vec::new(),
        }
    }

    pub(crate) fn give(&mut self, now_us: u64, above: HybridStamp) -> HybridStamp {
        let stamp = self.clock.give(now_us, self.writer, above);
        self.given = self.given.max(stamp);
        stamp
    }

    /// A site that joins, let in by this one.
    pub(crate) fn let_in(&self, writer: Writer, made: HybridStamp) -> Self {
        let mut site = Self::new(writer);
        site.spine = Spine::begin(self.spine.cut());
        for (dir, horizon) in self.spine.kept() {
            let evidence = self.spine.evidence(&[dir]).expect("few directories");
            site.spine.learn(made, &evidence).expect("not too late");
            site.spine.keep(dir, horizon);
        }
        for record in self.spine.records() {
            site.spine.receive(record.clone()).expect("a record");
        }
        site.known = self.known.clone();
        site.clock = HybridClock::new(made.time_us);
        site.first_round = self.next_round();
        site.rounds_folded = self.rounds_folded;
        site
    }

    pub(crate) fn next_round(&self) -> usize {
        self.first_round + self.reports.len()
    }

    /// What it reported in a round, if it has, and was a member.
    pub(crate) fn report_of(&self, round: usize) -> Option<&Report> {
        self.reports.get(round.checked_sub(self.first_round)?)
    }

    /// Takes in a move that was decided here.
    pub(crate) fn take_own(&mut self, record: SpineMove) {
        let stamp = record.stamp();
        let changed = self.spine.receive(record.clone()).expect("its own move");
        assert_eq!(changed.len(), record.dirs().len(), "each moved directory has a new place");
        assert!(self.spine.lost().all(|lost| lost.stamp != stamp), "a local move has an effect");
        self.known.insert(stamp_of(stamp));
        self.made.insert(stamp_of(stamp));
        self.unsent.push(record);
    }

    /// All directories above one that is held are held.
    pub(crate) fn hold_with_all_above(&mut self, dir: FileId) {
        let way: Vec<FileId> = self.spine.up(dir).map(|(dir, _)| dir).collect();
        for dir in way {
            self.spine.hold(dir);
            self.held.insert(dir);
        }
    }

    pub(crate) fn hear_of_name(&mut self, dir: FileId, renamed: Option<(HybridStamp, Name)>) {
        let mine = self.renamed.get(&dir);
        if let Some(renamed) = renamed.filter(|renamed| mine.is_none_or(|mine| mine < renamed)) {
            self.renamed.insert(dir, renamed);
        }
    }

    /// The name of a held directory: that of the later one of its last move and its last rename.
    pub(crate) fn shown_name(&self, dir: FileId) -> Name {
        let place = self.spine.place(dir).expect("a held directory has a place");
        match self.renamed.get(&dir) {
            Some((stamp, name)) if *stamp > place.since => name.clone(),
            _ => place.name.clone(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) site: Site,
    pub(crate) synced: Site,
    /// How far its clock is ahead, in microseconds.
    wrong_us: u64,
}

impl Machine {
    pub(crate) fn new(site: Site, wrong_us: u64) -> Self {
        Self { synced: site.clone(), site, wrong_us }
    }

    pub(crate) const fn now_us(&self, now_us: u64) -> u64 {
        now_us + self.wrong_us
    }

    /// Syncs everything; gives the moves that may leave now.
    pub(crate) fn sync(&mut self) -> Vec<SpineMove> {
        let sent = std::mem::take(&mut self.site.unsent);
        self.site.unsent_births.clear();
        self.synced = self.site.clone();
        sent
    }

    /// Goes back to what is synced; gives the births and moves that nobody has seen.
    pub(crate) fn power_cut(&mut self) -> (Vec<FileId>, Vec<MoveStamp>) {
        let births = self.site.unsent_births.clone();
        let moves = self.site.unsent.iter().map(|record| stamp_of(record.stamp())).collect();
        self.site = self.synced.clone();
        (births, moves)
    }
}
