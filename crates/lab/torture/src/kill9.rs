//! `kill -9` at any moment, again and again: under load, while it starts, while it recovers. After each
//! start every worker finds what it had been promised.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_model::Rng;

use crate::daemon::{self, Daemon, Launch};
use crate::plain;
use crate::worker::{Rules, Stopped, Worker};

/// Workers that write at the same time.
const WORKERS: u64 = 4;
/// Longest load before a kill.
const LOAD_MS_MAX: u64 = 1500;
/// Kills that come while the daemon starts, in per cent.
const EARLY: u64 = 30;

/// What to do.
#[derive(Debug, Clone)]
pub struct Kill9 {
    /// How often to kill.
    pub rounds: u32,
    /// Repeats the operations, though not their timing.
    pub seed: u64,
    /// Data directory, mount point.
    pub launch: Launch,
    /// After so many rounds the daemon is stopped in order and its plain trees compared.
    pub plain_every: u32,
    /// After so many rounds `atoll check` looks at what the kill has left, and recovers it itself.
    pub check_every: u32,
    /// Longest load before a kill, in milliseconds.
    pub load_ms_max: u64,
}

impl Kill9 {
    /// With the daemon of `launch`.
    pub fn new(rounds: u32, seed: u64, launch: Launch) -> Self {
        Self { rounds, seed, launch, plain_every: 25, check_every: 10, load_ms_max: LOAD_MS_MAX }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    /// Kills.
    pub kills: u32,
    /// Of these, before the volume was mounted.
    pub early: u32,
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Comparisons of all that a worker must find.
    pub verified: u64,
    /// Comparisons of the plain trees with the mount.
    pub compared: u32,
    /// Longest start, in milliseconds.
    pub start_ms_max: u64,
    /// `atoll check` was run so often, and was clean.
    pub checked: u32,
}

/// Runs it. The first thing that is wrong ends it.
pub fn run(what: &Kill9, say: &mut dyn FnMut(&str)) -> Result<Summary> {
    let mut rng = Rng::new(what.seed);
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|n| Worker::new(rng.bits() ^ n, owner, Rules::default())).collect();
    let mut summary = Summary::default();
    make_tops(&what.launch)?;
    let check = daemon::has_command("check");
    if !check {
        say("this atoll has no \"check\": only what is seen is compared");
    }
    let mut start_ms = 500;
    for round in 1..=what.rounds {
        let context = || format!("round {round} of seed {}", what.seed);
        let begun = Instant::now();
        let mut daemon = what.launch.spawn().with_context(context)?;
        if rng.percent(EARLY) {
            std::thread::sleep(Duration::from_millis(rng.below(start_ms * 3 / 2)));
            ensure!(daemon.kill9()?, "{}: the daemon ended by itself:\n{}", context(), daemon.said());
            summary.early += 1;
        } else {
            daemon.wait_mounted(daemon::PATIENCE).with_context(context)?;
            start_ms = begun.elapsed().as_millis() as u64;
            summary.start_ms_max = summary.start_ms_max.max(start_ms);
            let load = Duration::from_millis(rng.below(what.load_ms_max));
            let (whole, verified) = load_and_kill(&mut daemon, &mut workers, load).with_context(context)?;
            summary.verified += verified;
            say(&format!("round {round}: mounted after {start_ms} ms, {whole} acknowledged, killed"));
        }
        summary.kills += 1;
        // Its dead mount goes with it.
        drop(daemon);
        if check && round % what.check_every == 0 {
            run_check(&what.launch, &mut summary).with_context(context)?;
        }
        if round % what.plain_every == 0 || round == what.rounds {
            stopped_in_order(what, &mut workers, check, &mut summary).with_context(context)?;
        }
    }
    summary.acknowledged = workers.iter().map(Worker::acknowledged).sum();
    Ok(summary)
}

fn top(mount: &Path, worker: usize) -> PathBuf {
    mount.join(format!("w{worker}"))
}

fn make_tops(launch: &Launch) -> Result<()> {
    let daemon = launch.start()?;
    for worker in 0..WORKERS as usize {
        std::fs::create_dir(top(daemon.mount(), worker))?;
    }
    daemon.stop()
}

/// Each worker verifies, then works, until the daemon is killed. Operations that were acknowledged in
/// this time, and how many workers have found all that they must.
fn load_and_kill(daemon: &mut Daemon, workers: &mut [Worker], load: Duration) -> Result<(u64, u64)> {
    let before: u64 = workers.iter().map(Worker::acknowledged).sum();
    let mount = daemon.mount().to_owned();
    let killed = AtomicBool::new(false);
    let (by_itself, outcomes) = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(at, worker)| {
                let (top, killed) = (top(&mount, at), &killed);
                scope.spawn(move || work(worker, &top, killed))
            })
            .collect();
        std::thread::sleep(load);
        // Said before it is done: what fails from now on may be the kill's doing.
        killed.store(true, Ordering::SeqCst);
        let by_itself = daemon.kill9().map(|killed| !killed);
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().expect("no worker panics")).collect();
        (by_itself, outcomes)
    });
    ensure!(!by_itself?, "the daemon ended by itself:\n{}", daemon.said());
    let mut verified = 0;
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let context = || format!("worker {at}, of a daemon that said:\n{}", daemon.said());
        verified += u64::from(outcome.with_context(context)?);
    }
    let after: u64 = workers.iter().map(Worker::acknowledged).sum();
    Ok((after - before, verified))
}

/// True if the tree was compared before the end.
fn work(worker: &mut Worker, top: &Path, killed: &AtomicBool) -> Result<bool> {
    match worker.verify(top) {
        Ok(wrong) => ensure!(wrong.is_empty(), "{}", wrong.join("\n")),
        Err(_) if killed.load(Ordering::SeqCst) => return Ok(false),
        Err(why) => bail!("its tree cannot be listed: {why}"),
    }
    loop {
        match worker.step(top) {
            Ok(()) => {}
            Err(Stopped::Dead | Stopped::Io(_)) if killed.load(Ordering::SeqCst) => return Ok(true),
            Err(Stopped::Dead) => bail!("the mount died"),
            Err(Stopped::Full) => bail!("there is no space"),
            Err(Stopped::Io(why) | Stopped::Failed(why)) => bail!("{why}"),
        }
    }
}

/// All that must be there is, `atoll check` is clean, and so are the plain trees of a daemon that has
/// stopped.
fn stopped_in_order(what: &Kill9, workers: &mut [Worker], check: bool, summary: &mut Summary) -> Result<()> {
    let daemon = what.launch.start()?;
    for (at, worker) in workers.iter_mut().enumerate() {
        let wrong = worker.verify(&top(daemon.mount(), at))?;
        ensure!(wrong.is_empty(), "worker {at}: {}", wrong.join("\n"));
        summary.verified += 1;
    }
    let shown = plain::mounted(daemon.mount())?;
    daemon.stop()?;
    let wrong = plain::compare(&shown, &what.launch.data, summary.compared == 0)?;
    summary.compared += 1;
    ensure!(wrong.is_empty(), "mount (left) and plain trees (right) differ:\n{}", wrong.join("\n"));
    if check { run_check(&what.launch, summary) } else { Ok(()) }
}

fn run_check(launch: &Launch, summary: &mut Summary) -> Result<()> {
    daemon::atoll(&["check", "--read", "--data", &launch.data.to_string_lossy()])?;
    summary.checked += 1;
    Ok(())
}
