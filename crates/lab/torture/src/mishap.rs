//! Faults while clients work: nodes die by `kill -9` and come back, two at once or one during the other's
//! recovery, and links between hosts are cut for a while. Each fault has its own times, so that they meet in
//! all stages.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use atoll_model::Rng;

use crate::cluster::Cluster;

/// From one crash to the next. The paper has 60 to 120 s, at 0.3 operations a second; this is at a thousand.
const LIFE_MS: Range<u64> = 1000..2000;
/// How long a node is dead.
const DEATH_MS: Range<u64> = 50..1200;
/// Of a hundred crashes, so many take a second node along.
const PAIRS: u64 = 15;
/// From one cut to the next: one for four crashes, as in the paper.
const WHOLE_MS: Range<u64> = 4000..8000;
/// How long a way is cut; a side that hears nothing for 4 s takes the other for lost, and TCP tries again the later the
/// longer it was in vain.
const CUT_MS: Range<u64> = 1000..4000;

/// What goes wrong while clients work.
pub trait Trouble {
    /// Clients begin to work.
    fn begin(&mut self);

    /// Does what is due. Every process that should run must.
    ///
    /// # Errors
    ///
    /// Something is wrong.
    fn step(&mut self, cluster: &mut Cluster) -> Result<()>;

    /// All is well again, and every node is ready.
    ///
    /// # Errors
    ///
    /// Something stays wrong.
    fn end(&mut self, cluster: &mut Cluster) -> Result<()>;

    /// Something has failed, and everything is about to be taken away.
    fn failed(&mut self, _cluster: &Cluster) {}
}

/// What is cut.
#[derive(Debug)]
enum Cut {
    /// A node's plug is pulled.
    Plug(usize),
    /// From the one to the other.
    Ways(Vec<(usize, usize)>),
}

/// What went wrong so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Nodes killed.
    pub crashes: u64,
    /// Of these, before they were ready after the last crash.
    pub early: u64,
    /// Cuts of any kind.
    pub cuts: u64,
    /// Of these, in one direction only.
    pub one_way: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crashes, early, cuts, one_way } = self;
        write!(f, "{crashes} crashes ({early} while starting), {cuts} cuts ({one_way} one-way)")
    }
}

/// Makes things go wrong, and right again.
#[derive(Debug)]
pub struct Mishaps {
    rng: Rng,
    with_crashes: bool,
    with_cuts: bool,
    /// Each is due after so much more time in which clients work.
    crash_in: Duration,
    cut_in: Duration,
    /// Until when that was counted.
    counted: Instant,
    /// Nodes, and until when they are dead.
    dead: Vec<(Instant, usize)>,
    cut: Vec<(Instant, Cut)>,
    counts: Counts,
}

impl Mishaps {
    /// By a seed.
    pub fn new(seed: u64, with_crashes: bool, with_cuts: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (crash_in, cut_in) = (some(&mut rng, LIFE_MS), some(&mut rng, LIFE_MS));
        let (dead, cut, counts) = (Vec::new(), Vec::new(), Counts::default());
        let counted = Instant::now();
        Self { rng, with_crashes, with_cuts, crash_in, cut_in, counted, dead, cut, counts }
    }

    /// What went wrong so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn until(&mut self, range: Range<u64>) -> Instant {
        Instant::now() + some(&mut self.rng, range)
    }

    /// What is over at this time is over.
    fn mend(&mut self, cluster: &mut Cluster, now: Instant) -> Result<()> {
        for (_, node) in self.dead.extract_if(.., |(until, _)| *until <= now) {
            cluster.spawn_node(node)?;
        }
        for (_, cut) in self.cut.extract_if(.., |(until, _)| *until <= now) {
            // Where two cuts meet, the first that ends mends both.
            set(cluster, &cut, false)?;
        }
        Ok(())
    }

    fn crash(&mut self, cluster: &mut Cluster) -> Result<()> {
        let node = self.rng.index(cluster.nodes());
        if self.dead.iter().any(|(_, dead)| *dead == node) {
            return Ok(());
        }
        self.counts.early += u64::from(!cluster.is_ready(node));
        cluster.kill9_node(node)?;
        self.counts.crashes += 1;
        let until = self.until(DEATH_MS);
        self.dead.push((until, node));
        Ok(())
    }

    fn make_cut(&mut self, cluster: &Cluster) -> Result<()> {
        let node = self.rng.index(cluster.nodes());
        // A mount, too.
        let other = (node + 1 + self.rng.index(cluster.hosts() - 1)) % cluster.hosts();
        let others: Vec<usize> = (0..cluster.hosts()).filter(|host| *host != node).collect();
        let (cut, one_way) = match self.rng.below(6) {
            0 => (Cut::Plug(node), false),
            1 => (Cut::Ways(vec![(node, other), (other, node)]), false),
            2 => (Cut::Ways(vec![(node, other)]), true),
            3 => (Cut::Ways(vec![(other, node)]), true),
            4 => (Cut::Ways(others.iter().map(|host| (node, *host)).collect()), true),
            _ => (Cut::Ways(others.iter().map(|host| (*host, node)).collect()), true),
        };
        set(cluster, &cut, true)?;
        self.counts.cuts += 1;
        self.counts.one_way += u64::from(one_way);
        let until = self.until(CUT_MS);
        self.cut.push((until, cut));
        Ok(())
    }
}

impl Trouble for Mishaps {
    fn begin(&mut self) {
        self.counted = Instant::now();
    }

    fn step(&mut self, cluster: &mut Cluster) -> Result<()> {
        cluster.alive()?;
        let now = Instant::now();
        self.mend(cluster, now)?;
        let worked = now.saturating_duration_since(self.counted);
        self.counted = now;
        self.crash_in = self.crash_in.saturating_sub(worked);
        self.cut_in = self.cut_in.saturating_sub(worked);
        if self.with_crashes && self.crash_in.is_zero() {
            self.crash_in = some(&mut self.rng, LIFE_MS);
            let victims = if self.rng.percent(PAIRS) { 2 } else { 1 };
            (0..victims).try_for_each(|_| self.crash(cluster))?;
        }
        if self.with_cuts && self.cut_in.is_zero() {
            self.cut_in = some(&mut self.rng, WHOLE_MS);
            self.make_cut(cluster)?;
        }
        Ok(())
    }

    fn end(&mut self, cluster: &mut Cluster) -> Result<()> {
        let ever = Instant::now() + Duration::from_secs(3600);
        self.mend(cluster, ever)?;
        (0..cluster.nodes()).try_for_each(|node| cluster.wait_node(node))
    }
}

pub(crate) fn some(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(range.start + rng.below(range.end - range.start))
}

fn set(cluster: &Cluster, cut: &Cut, is_cut: bool) -> Result<()> {
    let network = cluster.network()?;
    let set = match cut {
        Cut::Plug(host) => network.unplug(*host, is_cut),
        Cut::Ways(ways) => ways.iter().try_for_each(|(from, to)| network.cut(*from, *to, is_cut)),
    };
    set.context("a way cannot be cut or mended")
}
