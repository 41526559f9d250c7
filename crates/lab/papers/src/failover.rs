//! Ring FS's Figure 4: how many metadata operations succeed in each second, while the nodes that lead are killed one after
//! another. The paper's client sends 150 operations a second to three metaservers; one is killed after 20 s, another one
//! after 30 s, and after 60 s they run again. This does the same over three nodes with one, two and three copies of each
//! island, and a fourth node that has the control store and no copies.
//!
//! Each operation has a time at which it is due, whether or not the one before was answered in time. What a client could
//! not send in time it sends as soon as it can, so the answers that were late come as a spike, as in the paper. Every
//! operation asks a node, and none may fail. In the end each name that was made and not removed must be there.

mod chart;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use atoll_torture::cluster::{Cluster, CopyStatus};

use crate::folder::Folder;

/// The nodes that keep the volume.
const NODES: usize = 3;
/// Directories in which names are made, of each island; as many have names looked up.
const DIRS: usize = 2;
/// Directories that are tried out for that.
const TRIES: usize = 256;
/// One in so many files stays.
const KEPT: u64 = 10;
/// How long copies may take to be in sync, at first and in the end.
const SYNC_MAX: Duration = Duration::from_secs(60);

/// When something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Operations a second.
    pub rate: u32,
    /// When a node that leads is killed, then the one that leads in its place; in seconds.
    pub kills: [u64; 2],
    /// When both are started again.
    pub restart: u64,
    /// When the last operation is due.
    pub end: u64,
    /// Copies of each island, for each curve.
    pub copies: &'static [usize],
}

impl Plan {
    /// As in the paper.
    pub const PAPER: Self = Self { rate: 150, kills: [20, 30], restart: 60, end: 90, copies: &[1, 2, 3] };
    /// To see that it works.
    pub const SHORT: Self = Self { rate: 60, kills: [3, 6], restart: 10, end: 14, copies: &[2] };

    /// What the time is divided into: a name, and the seconds from when to when.
    fn phases(&self) -> [(&'static str, u64, u64); 4] {
        let [first, second] = self.kills;
        [
            ("all nodes", 0, first),
            ("one killed", first, second),
            ("two killed", second, self.restart),
            ("started again", self.restart, self.end),
        ]
    }
}

/// An operation that was answered: when it began and ended, since the start.
#[derive(Debug, Clone, Copy)]
struct Call {
    began: Duration,
    ended: Duration,
}

/// What happened with so many copies.
#[derive(Debug)]
pub struct Curve {
    /// Copies of each island.
    pub copies: usize,
    /// Operations that succeeded in each second.
    pub succeeded: Vec<u32>,
    /// The longest call of each phase: of those that began in it.
    pub longest: [Duration; 4],
}

impl Curve {
    fn of(copies: usize, plan: &Plan, calls: &[Call]) -> Self {
        let last = calls.iter().map(|call| call.ended.as_secs()).max().unwrap_or(0).max(plan.end - 1);
        let mut succeeded = vec![0; last as usize + 1];
        calls.iter().for_each(|call| succeeded[call.ended.as_secs() as usize] += 1);
        let longest = plan.phases().map(|(_, from, to)| {
            let began = calls.iter().filter(|call| (from..to).contains(&call.began.as_secs()));
            began.map(|call| call.ended - call.began).max().unwrap_or_default()
        });
        Self { copies, succeeded, longest }
    }

    /// Operations a second that succeeded from one second to another.
    pub fn mean(&self, from: u64, to: u64) -> f64 {
        let seconds = self.succeeded.iter().take(to as usize).skip(from as usize);
        seconds.map(|n| f64::from(*n)).sum::<f64>() / (to - from) as f64
    }

    /// Its name in the figure.
    fn name(&self) -> String {
        if self.copies == 1 { "one copy".to_owned() } else { format!("{} copies", self.copies) }
    }
}

/// All curves.
#[derive(Debug)]
pub struct Report {
    plan: Plan,
    /// One for each number of copies.
    pub curves: Vec<Curve>,
}

/// A client that does one operation after another, each when it is due.
struct Worker {
    dir: PathBuf,
    /// It makes and removes names, or else looks names up.
    changes: bool,
    /// Names that must be there.
    kept: BTreeSet<String>,
}

impl Worker {
    /// The `number`-th operation. The kernel knows none of the answers.
    fn act(&mut self, number: u64) -> std::io::Result<()> {
        if !self.changes {
            let absent = self.dir.join(format!("absent-{number}"));
            return match fs::symlink_metadata(absent) {
                Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
                Err(why) => Err(why),
                Ok(_) => Err(std::io::Error::other("a name is there that nobody has made")),
            };
        }
        let name = format!("file-{}", number / 2);
        let path = self.dir.join(&name);
        if number.is_multiple_of(2) {
            fs::File::create_new(path)?;
            self.kept.insert(name);
        } else if (number / 2).is_multiple_of(KEPT) {
            fs::rename(path, self.dir.join(format!("kept-{name}")))?;
            self.kept.remove(&name);
            self.kept.insert(format!("kept-{name}"));
        } else {
            fs::remove_file(path)?;
            self.kept.remove(&name);
        }
        Ok(())
    }

    /// All operations that are due until `end`.
    fn run(&mut self, start: Instant, first: Duration, period: Duration, end: Duration) -> Result<Vec<Call>> {
        let mut calls = Vec::new();
        let mut due = first;
        while due < end {
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let began = start.elapsed();
            self.act(calls.len() as u64).with_context(|| self.dir.display().to_string())?;
            calls.push(Call { began, ended: start.elapsed() });
            due += period;
        }
        Ok(calls)
    }

    /// Exactly what was made and not removed is there.
    fn check(&self) -> Result<()> {
        let names =
            fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: BTreeSet<String> = names.collect::<Result<_>>()?;
        ensure!(names == self.kept, "{} has other names than were made", self.dir.display());
        Ok(())
    }
}

/// Measures in a new folder in `base`, which is removed at the end. Writes `failover.svg` and `failover.tsv` there. Root
/// only, because each node has a network of its own.
///
/// # Errors
///
/// If a process does not start, an operation fails, or a name is lost.
pub fn failover(base: &Path, plan: Plan) -> Result<Report> {
    let mut curves = Vec::new();
    for copies in plan.copies {
        let place = Folder::new(base, "failover")?;
        let curve = measure(place.path(), &plan, *copies).with_context(|| format!("{copies} copies"))?;
        curves.push(curve);
    }
    let report = Report { plan, curves };
    for (name, text) in [("failover.svg", chart::svg(&report)), ("failover.tsv", report.table())] {
        fs::write(base.join(name), text).with_context(|| base.join(name).display().to_string())?;
    }
    Ok(report)
}

fn start(top: &Path, copies: usize) -> Result<Cluster> {
    match copies {
        1 => Cluster::start_apart(top, NODES, &["hard"]),
        _ => Cluster::start_with_copies(top, NODES + 1, copies, 0, &["hard"]),
    }
}

fn measure(top: &Path, plan: &Plan, copies: usize) -> Result<Curve> {
    let mut cluster = start(top, copies)?;
    cluster.wait_in_sync(SYNC_MAX)?;
    let mut workers = workers(&cluster)?;
    let count = workers.len() as u32;
    let (period, end) = (Duration::from_secs(1) * count / plan.rate, Duration::from_secs(plan.end));
    let (start, failed, calls) = (Instant::now(), Mutex::new(None), Mutex::new(Vec::new()));
    std::thread::scope(|scope| -> Result<()> {
        for (at, worker) in workers.iter_mut().enumerate() {
            let (failed, calls, first) = (&failed, &calls, period * at as u32 / count);
            scope.spawn(move || match worker.run(start, first, period, end) {
                Ok(all) => calls.lock().expect("nobody panics").extend(all),
                Err(why) => drop(failed.lock().expect("nobody panics").get_or_insert(why)),
            });
        }
        let done = kill_and_start(&mut cluster, plan, copies, start);
        if done.is_err() {
            // Whoever waits for something that will not come gets an error.
            cluster.abandon_mounts();
        }
        done
    })?;
    if let Some(why) = failed.into_inner().expect("nobody panics") {
        return Err(why.context("an operation failed"));
    }
    cluster.wait_in_sync(SYNC_MAX)?;
    workers.iter().try_for_each(Worker::check)?;
    cluster.stop().context("in the end")?;
    Ok(Curve::of(copies, plan, &calls.into_inner().expect("nobody panics")))
}

/// In each directory names are made or looked up; of each there are as many at each island.
fn workers(cluster: &Cluster) -> Result<Vec<Worker>> {
    let mount = cluster.mounts()[0].clone();
    let mut found: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    for at in 0..TRIES {
        let dir = mount.join(format!("dir{at}"));
        fs::create_dir(&dir)?;
        let of_island = found.entry(cluster.owner(&dir)?).or_default();
        if of_island.len() < 2 * DIRS {
            of_island.push(dir);
        }
        if found.len() == NODES && found.values().all(|dirs| dirs.len() == 2 * DIRS) {
            let dirs = (0..2 * DIRS).flat_map(|nth| found.values().map(move |dirs| (nth, dirs[nth].clone())));
            return Ok(dirs
                .map(|(nth, dir)| Worker { dir, changes: nth < DIRS, kept: BTreeSet::new() })
                .collect());
        }
    }
    bail!("{TRIES} directories do not reach all islands: {found:?}")
}

/// Kills the nodes, and starts them again.
fn kill_and_start(cluster: &mut Cluster, plan: &Plan, copies: usize, start: Instant) -> Result<()> {
    let wait = |at: Duration| std::thread::sleep(at.saturating_sub(start.elapsed()));
    let mut victims = Vec::new();
    for at in plan.kills.map(Duration::from_secs) {
        // Asked before, since to ask takes a moment.
        wait(at.saturating_sub(Duration::from_millis(500)));
        let victim = match copies {
            // Each node has one island.
            1 => 1 + victims.len(),
            _ => leads_first(&cluster.copies()?).context("nobody leads the first island")?,
        };
        wait(at);
        cluster.kill9_node(victim)?;
        victims.push(victim);
    }
    wait(Duration::from_secs(plan.restart));
    victims.iter().try_for_each(|node| cluster.spawn_node(*node))?;
    victims.iter().try_for_each(|node| cluster.wait_node(*node))
}

/// The node that leads the first island, so that each kill takes away who led it.
fn leads_first(all: &[(usize, CopyStatus)]) -> Option<usize> {
    let first = all
        .iter()
        .filter(|(_, copy)| copy.leads)
        .min_by_key(|(_, copy)| (copy.island, u64::MAX - copy.epoch));
    first.map(|(node, _)| *node)
}

impl Report {
    /// The data of the figure: a line for each second.
    fn table(&self) -> String {
        let names: Vec<String> = self.curves.iter().map(Curve::name).collect();
        let mut text = format!("second\t{}\n", names.join("\t"));
        let seconds = self.curves.iter().map(|curve| curve.succeeded.len()).max().unwrap_or(0);
        for second in 0..seconds {
            let counts =
                self.curves.iter().map(|curve| curve.succeeded.get(second).copied().unwrap_or(0).to_string());
            text += &format!("{second}\t{}\n", counts.collect::<Vec<_>>().join("\t"));
        }
        text
    }

    /// As one JSON object. Times are in milliseconds.
    pub fn to_json(&self) -> String {
        let curve = |curve: &Curve| {
            let longest = curve.longest.map(|took| took.as_millis().to_string());
            format!(
                "{{\"copies\":{},\"succeeded\":{:?},\"longest_ms\":[{}]}}",
                curve.copies,
                curve.succeeded,
                longest.join(",")
            )
        };
        let curves: Vec<String> = self.curves.iter().map(curve).collect();
        format!("{{\"rate\":{},\"curves\":[{}]}}", self.plan.rate, curves.join(","))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} metadata operations a second, half of them change something", self.plan.rate)?;
        write!(f, "operations a second that succeeded (longest call in ms)\n{:9}", "")?;
        self.plan
            .phases()
            .iter()
            .try_for_each(|(name, from, to)| write!(f, "  {:>24}", format!("{name}, {from}-{to} s")))?;
        for curve in &self.curves {
            write!(f, "\n{:9}", curve.name())?;
            for ((_, from, to), longest) in self.plan.phases().iter().zip(curve.longest) {
                let cell = format!("{:.1} ({})", curve.mean(*from, *to), longest.as_millis());
                write!(f, "  {cell:>24}")?;
            }
        }
        write!(f, "\nfailover.svg is the figure, failover.tsv its data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(began: u64, ended: u64) -> Call {
        Call { began: Duration::from_millis(began), ended: Duration::from_millis(ended) }
    }

    #[test]
    fn what_was_late_counts_when_it_ended_and_is_long_where_it_began() {
        let plan = Plan { rate: 1, kills: [1, 2], restart: 3, end: 4, copies: &[2] };
        let curve =
            Curve::of(2, &plan, &[call(100, 200), call(1100, 3300), call(2100, 3400), call(3500, 5100)]);
        assert_eq!(curve.succeeded, [1, 0, 0, 2, 0, 1]);
        assert_eq!(curve.longest.map(|took| took.as_millis()), [100, 2200, 1300, 1600]);
        assert_eq!((curve.mean(0, 2), curve.mean(3, 4)), (0.5, 2.0));
    }
}
