//! A node that gets a small part of the processor, while two mounts make small changes in a directory of each island. It is slow,
//! and it is not dead: no island may change its primary. Of each hundred milliseconds its processes stand still for all but some,
//! which is stricter than a quota of processor time: they may run in no other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::fault::SYNC_MAX;
use crate::pauses::under_load;

const MOUNTS: usize = 2;
/// How often the node stands still.
const PERIOD: Duration = Duration::from_millis(100);
/// How often epochs are compared. The answer of the node takes its time.
const LOOK: Duration = Duration::from_secs(20);

/// What to do.
#[derive(Debug, Clone)]
pub struct Starved {
    /// Nodes; the first one has the control store, and no copies.
    pub nodes: usize,
    /// Copies of each island.
    pub replicas: usize,
    /// For so long.
    pub time: Duration,
    /// So many of a hundred milliseconds the node runs.
    pub percent: u64,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Report {
    /// The epoch of each island, at the beginning and in the end.
    pub epochs: BTreeMap<u64, (u64, u64)>,
    /// Calls of clients meanwhile.
    pub calls: usize,
    /// The longest of them.
    pub longest: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epochs, calls, longest } = self;
        write!(f, "{calls} calls, the longest took {:.1} s; epochs", longest.as_secs_f64())?;
        epochs.iter().try_for_each(|(island, (from, to))| write!(f, " {island}: {from} to {to}"))
    }
}

fn epochs(cluster: &Cluster) -> Result<BTreeMap<u64, u64>> {
    let all = cluster.copies()?;
    let mut epochs = BTreeMap::new();
    for (_, copy) in all {
        let epoch = epochs.entry(copy.island).or_insert(0);
        *epoch = copy.epoch.max(*epoch);
    }
    Ok(epochs)
}

/// Runs it in the folder `top`.
///
/// # Errors
///
/// An island has changed its primary, a call fails, or the copies do not come back in sync.
pub fn run(what: &Starved, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let options = ["hard"; MOUNTS];
    let mut cluster = Cluster::start_with_copies(top, what.nodes, what.replicas, 0, &options)?;
    cluster.wait_in_sync(SYNC_MAX)?;
    let before = epochs(&cluster)?;
    let all = cluster.copies()?;
    let leader = all.iter().find(|(_, copy)| copy.leads);
    let (node, _) = *leader.context("nobody leads")?;
    let mut report = Report { epochs: BTreeMap::new(), calls: 0, longest: Duration::ZERO };
    under_load(&mut cluster, |cluster, calls, _| {
        let (begun, mut looked) = (Instant::now(), Instant::now());
        let runs = PERIOD * u32::try_from(what.percent.min(100))? / 100;
        while begun.elapsed() < what.time {
            cluster.freeze_node(node, true)?;
            std::thread::sleep(PERIOD - runs);
            cluster.freeze_node(node, false)?;
            std::thread::sleep(runs);
            if looked.elapsed() > LOOK || begun.elapsed() >= what.time {
                calls.check()?;
                cluster.alive()?;
                let all = calls.take();
                report.calls += all.len();
                let longest = all.iter().map(|call| call.ended - call.began).max();
                report.longest = report.longest.max(longest.unwrap_or_default());
                let now = epochs(cluster)?;
                report.epochs = now.into_iter().map(|(i, now)| (i, (before[&i], now))).collect();
                say(&format!(
                    "{:.0} s, node {node} at {} %: {report}",
                    begun.elapsed().as_secs_f64(),
                    what.percent
                ));
                let is_same = report.epochs.values().all(|(from, to)| from == to);
                ensure!(is_same, "an island has changed its primary although no node was dead: {report}");
                looked = Instant::now();
            }
        }
        Ok(())
    })?;
    cluster.wait_in_sync(SYNC_MAX)?;
    cluster.stop().context("in the end")?;
    Ok(report)
}
