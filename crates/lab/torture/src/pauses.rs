//! How long a client waits when the node that leads an island dies or falls silent. Two mounts make small changes in a
//! directory of each island, a few hundred a second. Again and again the node that leads one of the islands is killed, or
//! stands still. The pause of a fault is the longest call to the islands that were led there. Islands of which the node has
//! another copy wait until that is dropped, and are told apart. The calls to all other islands meanwhile are compared with
//! those of quiet times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_model::Rng;

use crate::cluster::Cluster;
use crate::fault::SYNC_MAX;

const MOUNTS: usize = 2;
/// Between two calls of a client: the load is light.
const PAUSE: Duration = Duration::from_millis(8);
/// Quiet time before each fault, in milliseconds.
const QUIET_MS: (u64, u64) = (600, 1600);
/// How long a node is dead, or stands still: longer than it takes until another one leads.
const AWAY: Duration = Duration::from_millis(3500);
/// A daemon that has lived for so long is no crash loop.
const LIFE_MIN: Duration = Duration::from_secs(10);
/// Directories that are made until each island owns one.
const DIRS_MAX: usize = 256;
/// A call that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Its processes are killed, and started again when another node leads.
    Kill,
    /// Its daemon is killed, and started again at once by its parent.
    Restart,
    /// Its processes stand still, as a machine that falls silent.
    Freeze,
}

impl Mode {
    /// The longest pause that 99 of a hundred faults may make.
    pub fn pause_max(self) -> Duration {
        match self {
            Self::Restart => Duration::from_millis(500),
            Self::Kill | Self::Freeze => Duration::from_secs(2),
        }
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Pauses {
    /// Nodes; the first one has the control store, and no copies.
    pub nodes: usize,
    /// Copies of each island.
    pub replicas: usize,
    /// So many faults.
    pub faults: u64,
    /// Of this kind.
    pub mode: Mode,
    /// Repeats which nodes are met.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Report {
    mode: Mode,
    /// The pause of each fault, sorted.
    pub pauses: Vec<Duration>,
    /// The longest call of each fault to islands of which the node has a copy that does not lead, sorted.
    pub followed: Vec<Duration>,
    /// Calls to other islands meanwhile, sorted.
    pub others: Vec<Duration>,
    /// Calls in quiet times, sorted.
    pub quiet: Vec<Duration>,
}

/// Of sorted times the one that so many of a hundred do not pass.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or_default()
}

impl Report {
    /// How much longer calls to other islands take, at p99.
    pub fn slowdown(&self) -> f64 {
        let quiet = percentile(&self.quiet, 99).as_secs_f64();
        if quiet > 0.0 { percentile(&self.others, 99).as_secs_f64() / quiet } else { 0.0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |sorted: &[Duration], percent| percentile(sorted, percent).as_secs_f64() * 1e3;
        let Self { mode, pauses, followed, others, quiet } = self;
        write!(
            f,
            "{mode:?}: {} faults, pauses p50 {:.0} ms, p99 {:.0} ms, longest {:.0} ms (wanted: p99 {} ms); \
            where it followed p50 {:.0} ms, p99 {:.0} ms, longest {:.0} ms; other islands: {} calls, p50 {:.1} ms, p99 {:.1} ms; in quiet times: {} calls, p50 {:.1} ms, p99 {:.1} ms \
            ({:.2} x at p99, wanted: 1.5 x)",
            pauses.len(),
            ms(pauses, 50),
            ms(pauses, 99),
            ms(pauses, 100),
            mode.pause_max().as_millis(),
            ms(followed, 50),
            ms(followed, 99),
            ms(followed, 100),
            others.len(),
            ms(others, 50),
            ms(others, 99),
            quiet.len(),
            ms(quiet, 50),
            ms(quiet, 99),
            self.slowdown(),
        )
    }
}

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    island: u64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// What clients have done.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    stop: AtomicBool,
    done: Mutex<Vec<Call>>,
    failed: Mutex<Option<String>>,
}

impl Calls {
    pub(crate) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.done.lock().expect("no panic while it is held"))
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failed.lock().expect("no panic while it is held") {
            Some(why) => bail!("a call failed: {why}"),
            None => Ok(()),
        }
    }
}

/// A client in a directory of an island: makes a name and removes it again.
fn work(calls: &Calls, rounds: &AtomicU64, island: u64, file: &Path) {
    let act = |act: &dyn Fn() -> std::io::Result<()>| {
        let began = Instant::now();
        let result = act();
        let call = Call { island, began, ended: Instant::now() };
        calls.done.lock().expect("no panic while it is held").push(call);
        if let Err(why) = result {
            let told = format!("{}: {why}", file.display());
            calls.failed.lock().expect("no panic while it is held").get_or_insert(told);
        }
        std::thread::sleep(PAUSE);
    };
    while !calls.stop.load(Ordering::Relaxed) {
        act(&|| std::fs::File::create_new(file).map(drop));
        act(&|| std::fs::remove_file(file));
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// A directory of each island, by its number.
fn dirs(cluster: &Cluster, islands: usize) -> Result<BTreeMap<u64, String>> {
    let mount = cluster.mounts()[0].clone();
    let mut found = BTreeMap::new();
    for at in 0..DIRS_MAX {
        let name = format!("dir{at}");
        std::fs::create_dir(mount.join(&name))?;
        found.entry(cluster.owner(&mount.join(&name))?).or_insert(name);
        if found.len() == islands {
            return Ok(found);
        }
    }
    bail!("{DIRS_MAX} directories do not reach all islands: {found:?}")
}

/// Runs it in the folder `top`.
///
/// # Errors
///
/// A call fails or hangs, or the copies do not come back in sync.
pub fn run(what: &Pauses, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let options = ["hard"; MOUNTS];
    let mut cluster = Cluster::start_with_copies(top, what.nodes, what.replicas, 0, &options)?;
    cluster.wait_in_sync(SYNC_MAX)?;
    let report =
        under_load(&mut cluster, |cluster, calls, rounds| measure(what, cluster, calls, rounds, say))
            .with_context(|| format!("seed {}", what.seed))?;
    cluster.stop().context("in the end")?;
    Ok(report)
}

/// While two mounts make small changes in a directory of each island.
pub(crate) fn under_load<T>(
    cluster: &mut Cluster,
    act: impl FnOnce(&mut Cluster, &Calls, &[&AtomicU64]) -> Result<T>,
) -> Result<T> {
    let islands: BTreeSet<u64> = cluster.copies()?.iter().map(|(_, copy)| copy.island).collect();
    let dirs = dirs(cluster, islands.len())?;
    let calls = Calls::default();
    let mut clients: Vec<(u64, PathBuf, AtomicU64)> = Vec::new();
    for (number, mount) in cluster.mounts().iter().enumerate() {
        for (island, dir) in &dirs {
            clients.push((*island, mount.join(dir).join(format!("of-{number}")), AtomicU64::new(0)));
        }
    }
    let rounds: Vec<&AtomicU64> = clients.iter().map(|(.., rounds)| rounds).collect();
    std::thread::scope(|scope| {
        for (island, file, rounds) in &clients {
            scope.spawn(|| work(&calls, rounds, *island, file));
        }
        let result = act(cluster, &calls, &rounds);
        calls.stop.store(true, Ordering::Relaxed);
        if result.is_err() {
            // Whoever waits for something that will not come gets an error.
            cluster.abandon_mounts();
        }
        result
    })
}

fn measure(
    what: &Pauses,
    cluster: &mut Cluster,
    calls: &Calls,
    rounds: &[&AtomicU64],
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    let mut rng = Rng::new(what.seed);
    let none = Vec::new;
    let mut report =
        Report { mode: what.mode, pauses: none(), followed: none(), others: none(), quiet: none() };
    let mut met = BTreeMap::new();
    for number in 1..=what.faults {
        calls.take();
        std::thread::sleep(Duration::from_millis(QUIET_MS.0 + rng.below(QUIET_MS.1 - QUIET_MS.0)));
        report.quiet.extend(calls.take().iter().map(|call| call.ended - call.began));
        let all = cluster.copies()?;
        let leaders: BTreeSet<usize> =
            all.iter().filter(|(_, copy)| copy.leads).map(|(node, _)| *node).collect();
        // A parent gives up when five daemons in a row have lived for less.
        let has_lived = |node: &usize| met.get(node).is_none_or(|at: &Instant| at.elapsed() > LIFE_MIN);
        let mut settled: Vec<usize> = leaders.iter().copied().filter(has_lived).collect();
        if settled.is_empty() {
            std::thread::sleep(LIFE_MIN);
            settled.extend(leaders);
            calls.take();
        }
        let node = *rng.pick(&settled);
        met.insert(node, Instant::now() + AWAY);
        let of_node = |leads| {
            let copies = all.iter().filter(move |(at, copy)| *at == node && copy.leads == leads);
            copies.map(|(_, copy)| copy.island).collect::<BTreeSet<u64>>()
        };
        let (led, followed) = (of_node(true), of_node(false));
        let began = Instant::now();
        match what.mode {
            Mode::Kill => cluster.kill9_node(node)?,
            Mode::Restart => cluster.kill9_daemon(node)?,
            Mode::Freeze => cluster.freeze_node(node, true)?,
        }
        std::thread::sleep(AWAY);
        let ended = Instant::now();
        match what.mode {
            Mode::Kill => cluster.spawn_node(node)?,
            Mode::Restart => {}
            Mode::Freeze => cluster.freeze_node(node, false)?,
        }
        cluster.wait_node(node)?;
        cluster.wait_in_sync(SYNC_MAX)?;
        wait_rounds(rounds)?;
        calls.check()?;
        cluster.alive()?;
        let all = calls.take();
        let meanwhile: Vec<&Call> = all.iter().filter(|c| c.ended >= began && c.began <= ended).collect();
        let took = |call: &&Call| call.ended - call.began;
        let pause = meanwhile.iter().filter(|c| led.contains(&c.island)).map(took).max();
        let pause = pause.context("nobody has called an island that was led there")?;
        report.followed.extend(meanwhile.iter().filter(|c| followed.contains(&c.island)).map(took).max());
        let is_apart = |c: &&&Call| !led.contains(&c.island) && !followed.contains(&c.island);
        report.others.extend(meanwhile.iter().filter(is_apart).map(took));
        say(&format!(
            "{number}: {:?} of node {node}, which led {led:?}: the longest call took {:.0} ms",
            what.mode,
            pause.as_secs_f64() * 1e3
        ));
        report.pauses.push(pause);
    }
    let Report { pauses, followed, others, quiet, .. } = &mut report;
    [pauses, followed, others, quiet].into_iter().for_each(|times| times.sort_unstable());
    Ok(report)
}

/// Waits until each client has ended a round that it began after this.
fn wait_rounds(rounds: &[&AtomicU64]) -> Result<()> {
    let count = || rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed));
    let before: Vec<u64> = count().collect();
    let until = Instant::now() + HANG;
    while count().zip(&before).any(|(now, before)| now < before + 2) {
        ensure!(
            Instant::now() < until,
            "a call has not ended {} s after all copies were in sync",
            HANG.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_time_that_so_many_do_not_pass() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&times, 100), Duration::from_millis(200));
        assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
