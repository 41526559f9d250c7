//! Faults that take copies of islands away, one at a time: a node dies, stands still, is cut off, has no space, or has a
//! disk that fails or is wiped. Each begins when all copies are in sync after the last one; so what is left has everything.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_model::Rng;

use crate::cluster::{Cluster, CopyStatus};
use crate::mishap::{Trouble, some};

/// From the moment when all copies are in sync to the next fault.
const LIFE_MS: Range<u64> = 200..1500;
/// How long a node is dead, or its disk has failed.
const DEATH_MS: Range<u64> = 50..4000;
/// How long a node stands still: shorter than a lease, and longer.
const SHORT_MS: Range<u64> = 100..1000;
const LONG_MS: Range<u64> = 1000..6000;
/// How long a way is cut; a side that hears nothing for 4 s takes the other for lost.
const CUT_MS: Range<u64> = 500..6000;
/// How long a disk has no space.
const FULL_MS: Range<u64> = 500..5000;
/// Of a hundred faults with three copies and more, so many meet two nodes.
const PAIRS: u64 = 20;
/// How often it is asked whether all copies are in sync.
const ASK: Duration = Duration::from_millis(250);
/// How long they may take after a fault. A member that is dropped again and again is let in after a minute.
pub const SYNC_MAX: Duration = Duration::from_secs(150);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9` of a node's processes.
    Kill,
    /// `kill -9` of its daemon, which its parent starts again at once.
    Restart,
    /// They stand still.
    Freeze,
    /// A node's plug is pulled.
    Plug,
    /// A way between two nodes, or a node and a mount.
    Cut,
    /// The same, in one direction only.
    OneWay,
    /// The node of the control store dies, which has no copies. No group may change by it.
    Store,
    /// A node dies, and all that it keeps of its islands is gone: it is filled by the others.
    Wiped,
    /// A disk has no space.
    Full,
    /// A disk takes no writes any more. Then the node dies too, and what has reached the disk is there again.
    Broken,
}

impl Kind {
    /// Those that need no disk of one's own.
    pub const PLAIN: [Self; 8] = [
        Self::Kill,
        Self::Restart,
        Self::Freeze,
        Self::Plug,
        Self::Cut,
        Self::OneWay,
        Self::Store,
        Self::Wiped,
    ];
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Kill,
        Self::Restart,
        Self::Freeze,
        Self::Plug,
        Self::Cut,
        Self::OneWay,
        Self::Store,
        Self::Wiped,
        Self::Full,
        Self::Broken,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::Freeze => "freeze",
            Self::Plug => "plug",
            Self::Cut => "cut",
            Self::OneWay => "one-way",
            Self::Store => "store",
            Self::Wiped => "wiped",
            Self::Full => "full",
            Self::Broken => "broken",
        }
    }

    /// The kind of this name.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn of_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.with_context(|| {
            format!("no kind of fault: {name}. There are: {}", Self::ALL.map(Self::name).join(" "))
        })
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    kind: Kind,
    node: usize,
    /// The other end of a way.
    other: Option<usize>,
    /// Whether the way to the node is cut, not that from it.
    is_back: bool,
    time: Duration,
}

impl Fault {
    fn ways(&self) -> Vec<(usize, usize)> {
        let Some(other) = self.other else { return Vec::new() };
        let (there, back) = ((self.node, other), (other, self.node));
        match (self.kind, self.is_back) {
            (Kind::Cut, _) => vec![there, back],
            (_, false) => vec![there],
            (_, true) => vec![back],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind.name(), self.node)?;
        for (from, to) in self.ways() {
            write!(f, " {from}->{to}")?;
        }
        write!(f, " for {} ms", self.time.as_millis())
    }
}

/// How many there were of each kind.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// By kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Pairs at once.
    pub pairs: u64,
    /// Epochs that have begun.
    pub epochs: u64,
    /// The longest time until all copies were in sync again, after a fault was over.
    pub slowest_sync: Duration,
}

impl Counts {
    /// Of all kinds.
    pub fn all(&self) -> u64 {
        self.kinds.values().sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> =
            self.kinds.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        write!(
            f,
            "{} faults ({}; {} pairs), {} epochs, in sync again after {:.1} s at most",
            self.all(),
            kinds.join(", "),
            self.pairs,
            self.epochs,
            self.slowest_sync.as_secs_f64()
        )
    }
}

/// Where it stands: Whole -> Wrong -> Healing -> Whole.
#[derive(Debug)]
enum Phase {
    /// All copies are in sync. Until when that was counted as work.
    Whole { counted: Instant },
    /// These are under way, each until then.
    Wrong(Vec<(Instant, Fault)>),
    /// All is mended, since then.
    Healing { since: Instant, asked: Instant },
}

/// Makes faults, and mends them.
#[derive(Debug)]
pub struct Faults {
    rng: Rng,
    kinds: Vec<Kind>,
    /// With more copies than two, two nodes are met at once now and then.
    replicas: usize,
    /// No more than so many.
    most: u64,
    phase: Phase,
    /// The next fault is due after so much more time in which clients work and all copies are in sync.
    left: Duration,
    counts: Counts,
    /// The epoch of each island when all copies were in sync the last time.
    epochs: BTreeMap<u64, u64>,
    /// Of which kinds the faults since then were.
    since: Vec<Kind>,
    /// What was done, with the time since the start.
    told: Vec<String>,
    start: Instant,
    /// How long everything is left as it is when something has failed, for people who look at it.
    stay: Duration,
}

impl Faults {
    /// By a seed.
    pub fn new(seed: u64, kinds: &[Kind], replicas: usize, most: u64, stay: Duration) -> Self {
        let mut rng = Rng::new(seed);
        let left = some(&mut rng, LIFE_MS);
        let now = Instant::now();
        Self {
            rng,
            kinds: kinds.to_vec(),
            replicas,
            most,
            phase: Phase::Whole { counted: now },
            left,
            counts: Counts::default(),
            epochs: BTreeMap::new(),
            since: Vec::new(),
            told: Vec::new(),
            start: now,
            stay,
        }
    }

    /// What went wrong so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What was done last, a line each.
    pub fn last(&self) -> String {
        const LINES: usize = 20;
        self.told[self.told.len().saturating_sub(LINES)..].join("\n")
    }

    fn tell(&mut self, what: String) {
        self.told.push(format!("{:9.3} s: {what}", self.start.elapsed().as_secs_f64()));
    }

    /// Waits until all copies are in sync for the first time, or after all nodes were started.
    ///
    /// # Errors
    ///
    /// They are not.
    pub fn settle(&mut self, cluster: &mut Cluster) -> Result<()> {
        self.phase = Phase::Healing { since: Instant::now(), asked: Instant::now() };
        while !matches!(self.phase, Phase::Whole { .. }) {
            self.step(cluster)?;
            std::thread::sleep(ASK);
        }
        Ok(())
    }

    fn draw(&mut self, cluster: &Cluster, apart_from: Option<&Fault>) -> Fault {
        let nodes = cluster.nodes();
        let mut kind = *self.rng.pick(&self.kinds);
        // The store may be missed beside another fault, but then that may not be over before it is back.
        while apart_from.is_some() && !matches!(kind, Kind::Kill | Kind::Freeze | Kind::Plug) {
            kind = *self.rng.pick(&[Kind::Kill, Kind::Freeze, Kind::Plug]);
        }
        let mut node = 1 + self.rng.index(nodes - 1);
        if let Some(first) = apart_from {
            while node == first.node {
                node = 1 + self.rng.index(nodes - 1);
            }
        }
        let mut other = None;
        let time = match kind {
            Kind::Kill | Kind::Restart | Kind::Wiped | Kind::Broken => DEATH_MS,
            Kind::Store => {
                node = 0;
                DEATH_MS
            }
            Kind::Freeze | Kind::Plug if self.rng.percent(40) => SHORT_MS,
            Kind::Freeze | Kind::Plug => LONG_MS,
            Kind::Full => FULL_MS,
            Kind::Cut | Kind::OneWay => {
                // Most of them between two that may have copies of the same island.
                let hosts = if self.rng.percent(70) { 1..nodes } else { 0..cluster.hosts() };
                let mut host = node;
                while host == node {
                    host = hosts.start + self.rng.index(hosts.end - hosts.start);
                }
                other = Some(host);
                CUT_MS
            }
        };
        let time = some(&mut self.rng, time);
        Fault { kind, node, other, is_back: self.rng.percent(50), time }
    }

    fn begin_fault(&mut self, cluster: &mut Cluster) -> Result<()> {
        let mut faults = vec![self.draw(cluster, None)];
        let may_be_two = matches!(faults[0].kind, Kind::Kill | Kind::Freeze | Kind::Plug | Kind::Broken);
        if self.replicas > 2 && may_be_two && self.rng.percent(PAIRS) {
            let second = self.draw(cluster, Some(&faults[0]));
            faults.push(second);
            self.counts.pairs += 1;
        }
        let mut wrong = Vec::new();
        for fault in faults {
            self.tell(fault.to_string());
            begin(cluster, &fault).with_context(|| fault.to_string())?;
            *self.counts.kinds.entry(fault.kind).or_insert(0) += 1;
            self.since.push(fault.kind);
            wrong.push((Instant::now() + fault.time, fault));
        }
        self.phase = Phase::Wrong(wrong);
        Ok(())
    }

    /// Mends what is over at this time.
    fn mend(&mut self, cluster: &mut Cluster, now: Instant) -> Result<()> {
        let Phase::Wrong(wrong) = &mut self.phase else { return Ok(()) };
        let over: Vec<_> = wrong.extract_if(.., |(until, _)| *until <= now).collect();
        let is_last = wrong.is_empty();
        for (_, fault) in over {
            self.tell(format!("end of {fault}"));
            mend(cluster, &fault).with_context(|| format!("end of {fault}"))?;
        }
        if is_last {
            self.phase = Phase::Healing { since: Instant::now(), asked: Instant::now() };
        }
        Ok(())
    }

    fn heal(&mut self, cluster: &mut Cluster) -> Result<()> {
        let Phase::Healing { since, asked } = self.phase else { return Ok(()) };
        if asked.elapsed() < ASK || (0..cluster.nodes()).any(|node| !cluster.is_ready(node)) {
            ensure!(
                since.elapsed() < SYNC_MAX,
                "a node is not ready {} s after\n{}",
                SYNC_MAX.as_secs(),
                self.last()
            );
            return Ok(());
        }
        let all = cluster.copies();
        let wrong = match &all {
            Ok(all) => cluster.not_in_sync(all),
            Err(why) => vec![format!("{why:#}")],
        };
        if let (Ok(all), true) = (all, wrong.is_empty()) {
            self.counts.slowest_sync = self.counts.slowest_sync.max(since.elapsed());
            self.tell(format!("all copies are in sync after {} ms", since.elapsed().as_millis()));
            self.compare_epochs(&all)?;
            self.phase = Phase::Whole { counted: Instant::now() };
            return Ok(());
        }
        if since.elapsed() > SYNC_MAX {
            self.failed(cluster);
            bail!(
                "not all copies are in sync {} s after\n{}\n{}",
                SYNC_MAX.as_secs(),
                self.last(),
                wrong.join("\n")
            );
        }
        self.phase = Phase::Healing { since, asked: Instant::now() };
        Ok(())
    }

    /// Epochs only rise, and not because the control store was away: who loses it loses nothing until a group must change.
    fn compare_epochs(&mut self, all: &[(usize, CopyStatus)]) -> Result<()> {
        let since = std::mem::take(&mut self.since);
        for (_, copy) in all.iter().filter(|(_, copy)| copy.leads) {
            let before = self.epochs.insert(copy.island, copy.epoch);
            let Some(before) = before else { continue };
            ensure!(
                copy.epoch >= before,
                "island {} went back from epoch {before} to {}",
                copy.island,
                copy.epoch
            );
            if copy.epoch > before {
                ensure!(
                    since != [Kind::Store],
                    "island {} went from epoch {before} to {} although only the control store was away\n{}",
                    copy.island,
                    copy.epoch,
                    self.last()
                );
                self.counts.epochs += copy.epoch - before;
                self.tell(format!("island {} is at epoch {}, was at {before}", copy.island, copy.epoch));
            }
        }
        Ok(())
    }
}

impl Trouble for Faults {
    fn begin(&mut self) {
        if let Phase::Whole { counted } = &mut self.phase {
            *counted = Instant::now();
        }
    }

    fn step(&mut self, cluster: &mut Cluster) -> Result<()> {
        cluster.alive().with_context(|| self.last())?;
        let now = Instant::now();
        match &mut self.phase {
            Phase::Whole { counted } => {
                self.left = self.left.saturating_sub(now.saturating_duration_since(*counted));
                *counted = now;
                if self.left.is_zero() && self.counts.all() < self.most {
                    self.left = some(&mut self.rng, LIFE_MS);
                    self.begin_fault(cluster)?;
                }
                Ok(())
            }
            Phase::Wrong(_) => self.mend(cluster, now),
            Phase::Healing { .. } => self.heal(cluster),
        }
    }

    fn end(&mut self, cluster: &mut Cluster) -> Result<()> {
        let ever = Instant::now() + Duration::from_secs(3600);
        self.mend(cluster, ever)?;
        (0..cluster.nodes()).try_for_each(|node| cluster.wait_node(node))?;
        self.settle(cluster)
    }

    fn failed(&mut self, cluster: &Cluster) {
        let said = match cluster.copies() {
            Ok(copies) => copies.iter().map(|(node, copy)| format!("\n  node {node}: {copy:?}")).collect(),
            Err(why) => format!("{why:#}"),
        };
        self.tell(format!("the nodes say: {said}"));
        if !self.stay.is_zero() {
            eprintln!("it has failed, and stays for {} s:\n{}", self.stay.as_secs(), self.last());
            std::thread::sleep(std::mem::take(&mut self.stay));
        }
    }
}

/// A file that takes all space of a disk.
fn filler(cluster: &mut Cluster, node: usize) -> Result<std::path::PathBuf> {
    Ok(cluster.disk(node)?.point().join("filler"))
}

fn begin(cluster: &mut Cluster, fault: &Fault) -> Result<()> {
    match fault.kind {
        Kind::Kill | Kind::Store => cluster.kill9_node(fault.node),
        Kind::Restart => cluster.kill9_daemon(fault.node),
        Kind::Wiped => {
            cluster.kill9_node(fault.node)?;
            cluster.wipe_node(fault.node)
        }
        Kind::Freeze => cluster.freeze_node(fault.node, true),
        Kind::Plug => cluster.network()?.unplug(fault.node, true),
        Kind::Cut | Kind::OneWay => {
            let network = cluster.network()?;
            fault.ways().into_iter().try_for_each(|(from, to)| network.cut(from, to, true))
        }
        Kind::Full => {
            let mut file = File::create(filler(cluster, fault.node)?)?;
            for piece in [1 << 20, 4096, 1] {
                let piece = vec![7; piece];
                while file.write_all(&piece).is_ok() {}
            }
            Ok(())
        }
        Kind::Broken => cluster.disk(fault.node)?.fail(),
    }
}

fn mend(cluster: &mut Cluster, fault: &Fault) -> Result<()> {
    match fault.kind {
        Kind::Kill | Kind::Store | Kind::Wiped => cluster.spawn_node(fault.node),
        Kind::Restart => Ok(()),
        Kind::Freeze => cluster.freeze_node(fault.node, false),
        Kind::Plug => cluster.network()?.unplug(fault.node, false),
        Kind::Cut | Kind::OneWay => {
            let network = cluster.network()?;
            fault.ways().into_iter().try_for_each(|(from, to)| network.cut(from, to, false))
        }
        Kind::Full => Ok(std::fs::remove_file(filler(cluster, fault.node)?)?),
        Kind::Broken => {
            cluster.kill9_node(fault.node)?;
            cluster.disk(fault.node)?.mount_again()?;
            cluster.spawn_node(fault.node)
        }
    }
}
