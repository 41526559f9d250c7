//! What each operation of the benchmark asks for: requests of the kernel, requests to islands, messages between islands,
//! records, threads that are woken, and bytes. Starts a volume in one process, does each operation many times on its mount,
//! one after another, and counts for all of them together.
//!
//! The daemon does something each second also when nobody asks for anything. That is measured first, and taken away from what
//! is counted, by the time that it took.

pub(crate) mod counts;
mod operations;

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_needs::Need;
use atoll_torture::daemon::{Daemon, Launch, PATIENCE};
use atoll_wan::table::Figures;
use serde_json::{Map, Value, json};

use crate::borrow::island_of;
use crate::folder::Folder;
pub use counts::Counts;
use operations::{Dirs, Kernel, Operation, Place, all};

/// Islands at most.
pub const ISLANDS_MAX: u16 = 256;
/// Times at most, so that all fits into a small disk.
pub const TIMES_MAX: usize = 10_000;
/// How often the daemon is looked at until it rests.
const POLL: Duration = Duration::from_millis(250);
/// It rests while it reads and writes no more than this between two looks: signs of life take less, and a record more.
const RESTING_BYTES_MAX: f64 = 256.0;
/// How long it may take until it rests.
const REST_MAX: Duration = Duration::from_secs(120);
/// How long it is watched while nobody asks for anything, and how long it is left alone before that at least.
const IDLE: Duration = Duration::from_secs(6);
/// Directories that are tried out to find two of one island and one of another.
const DIRS_MAX: usize = 256;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Islands of the volume.
    pub islands: u16,
    /// How often each operation is done.
    pub times: usize,
    /// How long is waited at least for what the daemon does later.
    pub rest: Duration,
}

impl Plan {
    /// For the table. Plain files are laid within two seconds, access times are told after ten, and an island writes its
    /// snapshot each ten seconds.
    pub const FULL: Self = Self { islands: 4, times: 1_000, rest: Duration::from_secs(12) };
    /// To see that it works. Bytes and waits are not exact.
    pub const SHORT: Self = Self { islands: 4, times: 20, rest: POLL };
}

/// What was counted.
#[derive(Debug)]
pub struct Report {
    plan: Plan,
    /// What the daemon does in a second while nobody asks for anything.
    pub idle: Counts,
    /// Operations, and what one of each asks for.
    pub operations: Vec<(&'static str, Counts)>,
}

/// Measures in a new folder in `base`, which is removed at the end. Root only, because the kernel is told to forget what it
/// knows.
///
/// # Errors
///
/// If root or FUSE is missing, the daemon does not start, or an operation fails.
pub fn trips(base: &Path, plan: Plan) -> Result<Report> {
    if let Some(missing) = Need::Mounts.missing() {
        bail!("this needs {missing}");
    }
    measure(base, plan, all())
}

/// The same of the operations with these names only.
pub(crate) fn of_these(base: &Path, plan: Plan, names: &[&str]) -> Result<Report> {
    measure(base, plan, all().into_iter().filter(|operation| names.contains(&operation.name)).collect())
}

fn measure(base: &Path, plan: Plan, operations: Vec<Operation>) -> Result<Report> {
    let folder = Folder::new(base, "trips")?;
    let bench = Bench::start(folder.path(), plan)?;
    let dirs = Dirs::find(bench.mount(), plan.islands)?;
    // They stay open, so that the kernel does not forget them.
    let held = [&dirs.home, &dirs.beside].into_iter().chain(&dirs.away).map(File::open);
    let held: Vec<File> = held.collect::<std::io::Result<_>>()?;
    let idle = bench.idle()?;
    let mut prepared = Vec::new();
    for (tag, operation) in operations.into_iter().enumerate() {
        if operation.apart && dirs.away.is_none() {
            continue;
        }
        let mut place = Place::new(dirs.clone(), tag);
        let times = (plan.times / operation.rarer).max(1);
        let done = (operation.prepare)(&mut place, times);
        done.with_context(|| format!("the preparation of {}", operation.name))?;
        prepared.push((operation, place, times));
    }
    bench.wait_rested(plan.rest)?;
    let mut operations = Vec::new();
    for (operation, place, times) in &prepared {
        let counts = bench.measure(operation, place, *times, &idle).context(operation.name)?;
        operations.push((operation.name, counts));
    }
    // The mount ends only when nobody has anything open.
    drop((prepared, held));
    bench.stop()?;
    Ok(Report { plan, idle, operations })
}

/// A daemon that counts.
pub(crate) struct Bench {
    plan: Plan,
    daemon: Daemon,
    /// Address of its metrics.
    address: String,
}

impl Bench {
    /// Starts it with a new volume in this folder.
    pub(crate) fn start(folder: &Path, plan: Plan) -> Result<Self> {
        let launch = Launch {
            islands: plan.islands,
            more: ["--metrics", "127.0.0.1:0"].map(str::to_owned).into(),
            ..Launch::new(folder)
        };
        let mut daemon = launch.start()?;
        let url = daemon.wait_said("metrics", PATIENCE)?;
        let address = url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
        Ok(Self { plan, daemon, address })
    }

    /// Where the volume is mounted.
    pub(crate) fn mount(&self) -> &Path {
        self.daemon.mount()
    }

    /// The address of its metrics.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn counts(&self) -> Result<Counts> {
        Counts::now(self.daemon.id(), &self.address)
    }

    /// Waits for so long, and then until the daemon rests.
    pub(crate) fn wait_rested(&self, rest: Duration) -> Result<()> {
        let (began, mut bytes) = (Instant::now(), counts::bytes(self.daemon.id())?);
        loop {
            std::thread::sleep(POLL);
            let now = counts::bytes(self.daemon.id())?;
            if began.elapsed() >= rest && now - bytes <= RESTING_BYTES_MAX {
                return Ok(());
            }
            bytes = now;
            ensure!(
                began.elapsed() < REST_MAX,
                "the daemon does not come to rest in {} s",
                REST_MAX.as_secs()
            );
        }
    }

    /// What was added while something is done and until the daemon rests, and how many seconds that took.
    pub(crate) fn during(&self, act: impl FnOnce() -> std::io::Result<()>) -> Result<(Counts, f64)> {
        let (before, began) = (self.counts()?, Instant::now());
        act()?;
        self.wait_rested(self.plan.rest)?;
        // Whole seconds have as many signs of life each.
        let seconds = began.elapsed().as_secs() + 1;
        std::thread::sleep(Duration::from_secs(seconds).saturating_sub(began.elapsed()));
        Ok((self.counts()?.since(&before), seconds as f64))
    }

    /// What the daemon does in a second by itself.
    pub(crate) fn idle(&self) -> Result<Counts> {
        // Twice, since the snapshot of what is told late is written still later.
        self.wait_rested(IDLE.max(2 * self.plan.rest))?;
        let (added, seconds) = self.during(|| {
            std::thread::sleep(IDLE);
            Ok(())
        })?;
        Ok(added.with(&Counts::default(), |added, _| added / seconds))
    }

    /// What one operation asks for.
    fn measure(&self, operation: &Operation, place: &Place, times: usize, idle: &Counts) -> Result<Counts> {
        let act = || (0..times).try_for_each(|n| (operation.act)(place, n));
        match operation.kernel {
            Kernel::KnowsNames => place.know()?,
            Kernel::KnowsAll => act()?,
            Kernel::ForgotNames => forget("2")?,
            Kernel::ForgotAll => forget("3")?,
        }
        // The kernel tells later what it has forgotten, and knows a name for some seconds only.
        self.wait_rested(POLL)?;
        let (added, seconds) = self.during(act)?;
        Ok(added.with(idle, |added, idle| (added - idle * seconds).max(0.0) / times as f64))
    }

    /// Stops the daemon in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }
}

/// Has the kernel forget names and attributes (2), or bytes of files too (3), of all file systems.
fn forget(what: &str) -> Result<()> {
    let path = "/proc/sys/vm/drop_caches";
    fs::write(path, what).with_context(|| format!("{path} cannot be written"))
}

impl Dirs {
    /// Makes two directories of one island, and one of another if there are several.
    fn find(mount: &Path, islands: u16) -> Result<Self> {
        let mut all: Vec<(PathBuf, usize)> = Vec::new();
        for n in 0..DIRS_MAX {
            let dir = mount.join(format!("dir{n}"));
            fs::create_dir(&dir)?;
            let island = island_of(&dir)?;
            all.push((dir, island));
            let (home, first) = &all[0];
            let beside = all[1..].iter().find(|(_, island)| island == first);
            let away = all.iter().find(|(_, island)| island != first);
            if let Some((beside, _)) = beside
                && (away.is_some() || islands == 1)
            {
                let away = away.map(|(dir, _)| dir.clone());
                return Ok(Self { home: home.clone(), beside: beside.clone(), away });
            }
        }
        bail!("{DIRS_MAX} directories are not at two islands")
    }
}

/// With two digits, which is what a difference over some hundred times is worth.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Report {
    /// What one of the operations asks for.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub fn of(&self, name: &str) -> Result<&Counts> {
        let found = self.operations.iter().find(|(operation, _)| *operation == name);
        Ok(&found.with_context(|| format!("{name:?} is not measured"))?.1)
    }

    fn figures(&self) -> Figures {
        let (Plan { islands, times, .. }, idle) = (self.plan, &self.idle);
        let about = format!(
            "what one operation asks for, of {times}, one thread, {islands} islands in one process\n\
            fuse, by: requests of the kernel. requests: to islands. messages: between islands. records: in their logs.\n\
            woken: how often a thread of the daemon has waited. bytes: read and written by the daemon. disk: of these for disks.\n\
            processor: microseconds of all its threads.\n\
            Taken away is what the daemon does in a second by itself: {} requests, {} messages, {} records, {} times woken, {} bytes, {} us of processors",
            rounded(idle.requests),
            rounded(idle.messages),
            rounded(idle.records),
            rounded(idle.woken),
            rounded(idle.bytes),
            rounded(idle.processor)
        );
        let columns = [
            "operation",
            "fuse",
            "by",
            "requests",
            "messages",
            "records",
            "woken",
            "bytes",
            "disk",
            "processor",
        ];
        let mut figures = Figures::new(about, &columns);
        for (name, counts) in &self.operations {
            let by = counts.fuse.iter().map(|(name, count)| (name.clone(), json!(rounded(*count))));
            let by: Map<String, Value> = by.filter(|(_, count)| *count != json!(0.0)).collect();
            figures.push(vec![
                json!(name),
                json!(rounded(counts.fuse_total())),
                Value::Object(by),
                json!(rounded(counts.requests)),
                json!(rounded(counts.messages)),
                json!(rounded(counts.records)),
                json!(rounded(counts.woken)),
                json!(counts.bytes.round() as u64),
                json!(counts.disk.round() as u64),
                json!(rounded(counts.processor)),
            ]);
        }
        figures
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.figures().json().to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.figures())
    }
}
