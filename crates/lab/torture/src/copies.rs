//! Volumes whose islands have copies: clients and workers go on while nodes die, stand still, are cut off, have no space or
//! a disk that fails ([`crate::fault`]). The checker looks for an order of what clients were told. Each worker has a tree of
//! its own, with files of some hundred KiB, and finds everything that was acknowledged. In the end all copies are in sync,
//! and after an orderly stop the plain trees of the copies of an island are the same, and all together what the mount
//! showed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::Cluster;
use crate::fault::{Counts, Faults, Kind, SYNC_MAX};
use crate::history::{HANG, Histories, Report as Judged, judge, record};
use crate::mishap::Trouble;
use crate::place::run as run_program;
use crate::plain;
use crate::tree::{Detail, Tree, differences, list};
use crate::worker::{Rules, Stopped, Worker};

/// Options of mounts, in turn. Whoever does not wait for ever waits longer than a fault takes.
const OPTIONS: [&str; 2] = ["hard", "soft=20"];
/// Workers, all at the first mount, which waits for ever.
const WORKERS: u64 = 2;
/// A pause of a worker after each operation, so that clients are not slowed down much.
const PAUSE: Duration = Duration::from_millis(4);

/// What to do.
#[derive(Debug, Clone)]
pub struct Copies {
    /// Nodes, mounts, seed, operations and rounds; crashes do not count.
    pub histories: Histories,
    /// Copies of each island.
    pub replicas: usize,
    /// So many faults at least.
    pub faults: u64,
    /// Of these kinds.
    pub kinds: Vec<Kind>,
    /// Each node has a disk of its own of so many MiB; 0: none has.
    pub disk_mib: u64,
    /// After an orderly stop the plain trees are compared.
    pub compares: bool,
    /// How long everything is left as it is when something has failed, for people who look at it.
    pub stay: Duration,
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Operations that were judged.
    pub judged: Judged,
    /// What went wrong.
    pub faults: Counts,
    /// Operations of workers that were acknowledged.
    pub acknowledged: u64,
    /// Comparisons of all that a worker must find.
    pub verified: u64,
    /// Comparisons of the plain trees of all copies.
    pub compared: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { judged, faults, acknowledged, verified, compared } = self;
        write!(
            f,
            "{} operations ({} of unknown outcome, slowest {:.1} s), {faults}; {} rounds judged ({} broken, {} undecided); \
            workers: {acknowledged} acknowledged, {verified} comparisons; {compared} comparisons of plain trees",
            judged.operations,
            judged.unknown,
            judged.slowest.as_secs_f64(),
            judged.rounds,
            judged.broken,
            judged.undecided,
        )
    }
}

/// Runs it in the folder `top`, where everything is left.
///
/// # Errors
///
/// What was wrong, with the seed.
pub fn run(what: &Copies, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let histories = &what.histories;
    let options: Vec<_> = (0..histories.mounts).map(|mount| OPTIONS[mount % OPTIONS.len()]).collect();
    let mut report = Report::default();
    let mut faults = Faults::new(histories.seed, &what.kinds, what.replicas, what.faults, what.stay);
    let mut cluster =
        Cluster::start_with_copies(top, histories.nodes, what.replicas, what.disk_mib, &options)?;
    let result = rounds(what, top, &options, &mut cluster, &mut faults, &mut report, say);
    report.faults = faults.counts().clone();
    result.with_context(|| {
        format!("seed {}, {report}\nwhat was done last:\n{}", histories.seed, faults.last())
    })?;
    Ok(report)
}

fn rounds(
    what: &Copies,
    top: &Path,
    options: &[&str],
    cluster: &mut Cluster,
    faults: &mut Faults,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let histories = &what.histories;
    let begun = Instant::now();
    faults.settle(cluster)?;
    let mount = cluster.mounts()[0].clone();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let top = mount.join(format!("worker-{number}"));
        std::fs::create_dir(&top)?;
        let worker = Worker::new(histories.seed ^ (number << 32), (0, 0), Rules::default());
        workers.push(Works { worker, top });
    }
    while report.judged.operations < histories.operations || faults.counts().all() < what.faults {
        report.judged.rounds += 1;
        let context = || format!("round {}", report.judged.rounds);
        let live = histories.live(report.judged.rounds, cluster.mounts());
        let working = Working::begin(std::mem::take(&mut workers));
        let recorded = record(&live, cluster, faults);
        let (back, worked) = working.end(cluster, faults);
        workers = back;
        let (history, ended) = recorded.with_context(context)?;
        judge(histories, &history, ended.and(worked), &mut report.judged, say)?;
        report.verified += workers.len() as u64;
        report.acknowledged = workers.iter().map(|works| works.worker.acknowledged()).sum();
        report.faults = faults.counts().clone();
        let is_last = report.judged.operations >= histories.operations && report.faults.all() >= what.faults;
        if is_last || report.judged.rounds.is_multiple_of(histories.check_every) {
            let context = || format!("after round {}", report.judged.rounds);
            if what.compares {
                at_rest(cluster, &top.join("merged")).with_context(context)?;
                report.compared += 1;
            } else {
                cluster.rest().with_context(context)?;
            }
            if !is_last {
                cluster.go_on(options).with_context(context)?;
                faults.settle(cluster).with_context(context)?;
            }
        }
        let took = begun.elapsed().as_secs_f64();
        say(&format!("{took:.0} s: {report}"));
    }
    Ok(())
}

/// Stops everything in order. The copies of an island have the same plain tree then, and one of each island, all together,
/// is what the mount showed. A file that could not follow its name to another island tries again for a minute. If it does
/// while the nodes are stopped, one after another, their copies end at different records: then all is started and stopped again.
fn at_rest(cluster: &mut Cluster, merged: &Path) -> Result<()> {
    const TRIES: u32 = 3;
    let mut shown = plain::mounted(&cluster.mounts()[0])?;
    shown.values_mut().for_each(|item| item.atime = None);
    let mut tries = 0;
    loop {
        cluster.rest()?;
        let wrong = unlike(cluster, merged, &shown)?;
        if wrong.is_empty() {
            return Ok(());
        }
        tries += 1;
        ensure!(tries < TRIES, "{}", wrong.join("\n"));
        cluster.go_on(&[])?;
        cluster.wait_in_sync(SYNC_MAX)?;
    }
}

/// In what the plain trees of the copies differ, and all together from this tree.
fn unlike(cluster: &Cluster, merged: &Path, shown: &Tree) -> Result<Vec<String>> {
    let mut islands: BTreeMap<String, Vec<(usize, PathBuf)>> = BTreeMap::new();
    for node in 0..cluster.nodes() {
        for (island, folder) in cluster.islands(node)? {
            islands.entry(island).or_default().push((node, folder.join("tree")));
        }
    }
    ensure!(islands.len() + 1 >= cluster.nodes(), "only the islands {:?} are anywhere", islands.keys());
    let mut wrong = Vec::new();
    let look = |tree: &Path| list(tree, Detail { bytes: false, atime: false });
    std::fs::create_dir(merged)?;
    for (island, copies) in &islands {
        let mut first: Option<(usize, Tree)> = None;
        for (node, tree) in copies {
            let seen = look(tree).with_context(|| tree.display().to_string())?;
            match &first {
                None => {
                    run_program(Command::new("cp").arg("-a").arg(tree.join(".")).arg(merged))?;
                    first = Some((*node, seen));
                }
                Some((other, theirs)) if *theirs != seen => {
                    wrong.push(format!(
                        "island {island}: the trees at nodes {other} (left) and {node} (right) differ:"
                    ));
                    wrong.extend(differences(theirs, &seen));
                }
                Some(_) => {}
            }
        }
    }
    let together = look(merged)?;
    std::fs::remove_dir_all(merged)?;
    if together != *shown {
        wrong.push("mount (left) and plain trees (right) differ:".to_owned());
        wrong.extend(differences(shown, &together));
    }
    Ok(wrong)
}

/// A worker and where it works.
struct Works {
    worker: Worker,
    top: PathBuf,
}

/// Workers that work.
struct Working {
    stop: Arc<AtomicBool>,
    /// Operations that were begun, so that it is seen when there are no more.
    steps: Arc<AtomicU64>,
    threads: Vec<JoinHandle<(Works, Result<()>)>>,
}

impl Working {
    fn begin(workers: Vec<Works>) -> Self {
        let (stop, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = workers.into_iter().map(|mut works| {
            let (stop, steps) = (Arc::clone(&stop), Arc::clone(&steps));
            std::thread::spawn(move || {
                let result = works.work(&stop, &steps);
                (works, result)
            })
        });
        Self { threads: threads.collect(), stop, steps }
    }

    /// They stop, and each finds all that it must.
    fn end(self, cluster: &mut Cluster, faults: &mut Faults) -> (Vec<Works>, Result<()>) {
        self.stop.store(true, Ordering::SeqCst);
        let mut moved = (0, Instant::now());
        let mut hangs = false;
        while self.threads.iter().any(|thread| !thread.is_finished()) && !hangs {
            std::thread::sleep(Duration::from_millis(10));
            let steps = self.steps.load(Ordering::SeqCst);
            if steps != moved.0 {
                moved = (steps, Instant::now());
            }
            hangs = moved.1.elapsed() > HANG;
        }
        if hangs {
            faults.failed(cluster);
            // Whoever waits for something that will not come gets an error.
            cluster.abandon_mounts();
        }
        let mut wrong = Vec::new();
        let mut workers = Vec::new();
        for (number, thread) in self.threads.into_iter().enumerate() {
            let (works, result) = thread.join().expect("a worker does not panic");
            workers.push(works);
            wrong.extend(result.err().map(|why| format!("worker {number}: {why:#}")));
        }
        if hangs {
            wrong.push(format!("a worker has done nothing for {} s", HANG.as_secs()));
        }
        let result = if wrong.is_empty() { Ok(()) } else { Err(anyhow::anyhow!(wrong.join("\n"))) };
        (workers, result)
    }
}

impl Works {
    fn work(&mut self, stop: &AtomicBool, steps: &AtomicU64) -> Result<()> {
        while !stop.load(Ordering::SeqCst) {
            steps.fetch_add(1, Ordering::SeqCst);
            match self.worker.step(&self.top) {
                Ok(()) => std::thread::sleep(PAUSE),
                // What became of it is found out.
                Err(Stopped::Full) => self.verify()?,
                Err(Stopped::Dead) => bail!("its mount died"),
                Err(Stopped::Io(why) | Stopped::Failed(why)) => bail!("{why}"),
            }
        }
        steps.fetch_add(1, Ordering::SeqCst);
        self.verify()
    }

    fn verify(&mut self) -> Result<()> {
        let wrong = self.worker.verify(&self.top).context("its tree cannot be listed")?;
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}
