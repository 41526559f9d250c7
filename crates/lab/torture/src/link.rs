//! Each single link between two hosts of a cluster is cut in turn, in both directions and in one, while
//! programs work on a mount. No operation may fail, and none may stand still for longer than it takes to
//! notice the cut. As much must be done as without the cut, by order of magnitude. In the end `atoll check`
//! must be clean.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;

/// Programs that work at once.
const WORKERS: usize = 4;
/// How long a cut may make an operation wait: a side that hears nothing for 4 s takes the other for lost, may have heard
/// something just before, and then asks around.
pub const STALL_MAX: Duration = Duration::from_secs(9);
/// With a way cut at least one of so many operations is done, once that is noticed.
const SLOWDOWN_MAX: u64 = 10;
/// Failures that are told.
const TOLD_MAX: usize = 10;

/// What to do.
#[derive(Debug, Clone)]
pub struct Links {
    /// Nodes, with an island each; one mount.
    pub nodes: usize,
    /// How long each way is cut; first comes [`STALL_MAX`], in which nothing is measured.
    pub measured: Duration,
    /// Which ways are cut, of those that [`ways`] lists; none: all of them.
    pub only: Option<Vec<Way>>,
}

/// What is cut between two hosts. The mount is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// What this one sends is lost,
    pub from: usize,
    /// on the way to this one,
    pub to: usize,
    /// and back.
    pub both: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, both } = self;
        write!(f, "{from} {} {to}", if *both { "<->" } else { "->" })
    }
}

/// All single ways between hosts, of which the last is the mount: both directions, then each. No pair of hosts comes twice
/// in a row, so that each way is used directly again when it is cut.
pub fn ways(nodes: usize) -> Vec<Way> {
    let pairs = || (0..=nodes).flat_map(|to| (0..to).map(move |from| (from, to)));
    let both = pairs().map(|(from, to)| Way { from, to, both: true });
    let there = pairs().map(|(from, to)| Way { from, to, both: false });
    let back = pairs().map(|(to, from)| Way { from, to, both: false });
    both.chain(there).chain(back).collect()
}

/// What was done while one way was cut.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The way; none: all were whole.
    pub way: Option<Way>,
    /// Operations.
    pub operations: u64,
    /// Of these, in the measured time.
    pub measured: u64,
    /// The longest one.
    pub slowest: Duration,
    /// Failures.
    pub failed: u64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.way {
            Some(way) => write!(f, "{way} cut: ")?,
            None => write!(f, "all whole: ")?,
        }
        let Self { operations, measured, slowest, failed, .. } = self;
        write!(
            f,
            "{operations} operations, {measured} while it was measured, slowest {:.1} s, {failed} failed",
            slowest.as_secs_f64()
        )
    }
}

/// What the programs have done so far.
#[derive(Debug, Default)]
struct Done {
    stop: AtomicBool,
    operations: AtomicU64,
    failed: AtomicU64,
    /// The longest operation since this was asked last, in microseconds.
    slowest_us: AtomicU64,
    /// When each worker's operation began, in microseconds since the start; 0: none is under way.
    since_us: [AtomicU64; WORKERS],
    told: Mutex<Vec<String>>,
}

/// One program: its numbers and what it counts.
struct Worker<'a> {
    number: usize,
    dirs: &'a [PathBuf],
    done: &'a Done,
    start: Instant,
    round: u64,
}

impl Worker<'_> {
    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64 + 1
    }

    fn act<T>(&self, what: &str, at: &Path, act: impl FnOnce(&Path) -> std::io::Result<T>) {
        let began_us = self.now_us();
        self.done.since_us[self.number].store(began_us, Ordering::Relaxed);
        let result = act(at);
        self.done.since_us[self.number].store(0, Ordering::Relaxed);
        let took_us = self.now_us() - began_us;
        self.done.slowest_us.fetch_max(took_us, Ordering::Relaxed);
        self.done.operations.fetch_add(1, Ordering::Relaxed);
        if let Err(why) = result {
            self.done.failed.fetch_add(1, Ordering::Relaxed);
            let mut told = self.done.told.lock().expect("no panic while it is held");
            if told.len() < TOLD_MAX {
                told.push(format!("{what} {}: {why} after {:.1} s", at.display(), took_us as f64 / 1e6));
            }
        }
    }

    /// What programs do with names, in a directory of each node in turn, and from one to another.
    fn round(&mut self) {
        self.round += 1;
        let at = self.round as usize + self.number;
        let (here, there) =
            (&self.dirs[at % self.dirs.len()], &self.dirs[(at + at / self.dirs.len() + 1) % self.dirs.len()]);
        let (number, round) = (self.number, self.round % 8);
        let file = here.join(format!("f{number}-{round}"));
        let (other, moved) =
            (here.join(format!("g{number}-{round}")), there.join(format!("h{number}-{round}")));
        self.act("write", &file, |path| std::fs::write(path, b"some bytes"));
        self.act("rename", &file, |path| std::fs::rename(path, &other));
        self.act("rename to another directory", &other, |path| std::fs::rename(path, &moved));
        self.act("read", &moved, |path| std::fs::read(path));
        self.act("unlink", &moved, |path| std::fs::remove_file(path));
        let dir = here.join(format!("d{number}-{round}"));
        self.act("mkdir", &dir, |path| std::fs::create_dir(path));
        self.act("chmod", &dir, |path| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711))
        });
        let moved = there.join(format!("e{number}-{round}"));
        self.act("rename of a directory", &dir, |path| std::fs::rename(path, &moved));
        self.act("ls", there, |path| path.read_dir()?.try_for_each(|entry| entry.map(drop)));
        self.act("rmdir", &moved, |path| std::fs::remove_dir(path));
    }
}

/// Runs it in the folder `top`, where everything is left; says what was done with each way cut.
pub fn run(what: &Links, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    ensure!(what.nodes > 2, "a relay needs a third node");
    let mut cluster = Cluster::start_apart(top, what.nodes, &["hard"])?;
    let dirs = cluster.spread(&cluster.mounts()[0], "dir")?;
    let (done, start) = (Done::default(), Instant::now());
    let parts = std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let mut worker = Worker { number, dirs: &dirs, done: &done, start, round: 0 };
            scope.spawn(move || {
                while !worker.done.stop.load(Ordering::Relaxed) {
                    worker.round();
                }
            });
        }
        let parts = cut_in_turn(what, &mut cluster, &done, start, say);
        done.stop.store(true, Ordering::Relaxed);
        if parts.is_err() {
            // Whoever waits for something that will not come gets an error.
            cluster.abandon_mounts();
        }
        parts
    })?;
    let told = done.told.lock().expect("no panic while it is held").join("\n");
    let failed: u64 = parts.iter().map(|part| part.failed).sum();
    ensure!(failed == 0, "{failed} operations failed:\n{told}");
    cluster.stop().context("in the end")?;
    Ok(parts)
}

fn cut_in_turn(
    what: &Links,
    cluster: &mut Cluster,
    done: &Done,
    start: Instant,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Part>> {
    let ways = what.only.clone().unwrap_or_else(|| ways(what.nodes));
    let mut parts = Vec::new();
    for way in ways {
        // Each time, since the machine may be busy with something else.
        let whole = part(what, cluster, done, start, None)?;
        ensure!(whole.failed == 0, "with all ways whole {} operations failed", whole.failed);
        say(&whole.to_string());
        let cut = part(what, cluster, done, start, Some(way))?;
        say(&cut.to_string());
        let told = || done.told.lock().expect("no panic while it is held").join("\n");
        ensure!(cut.failed == 0, "with {way} cut {} operations failed:\n{}", cut.failed, told());
        ensure!(cut.slowest <= STALL_MAX, "with {way} cut an operation took {:?}", cut.slowest);
        ensure!(
            cut.measured * SLOWDOWN_MAX >= whole.measured,
            "with {way} cut {} operations, and {} with all whole",
            cut.measured,
            whole.measured
        );
        parts.push(cut);
    }
    Ok(parts)
}

/// Cuts a way, lets the programs work, and mends it.
fn part(what: &Links, cluster: &mut Cluster, done: &Done, start: Instant, way: Option<Way>) -> Result<Part> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (before, failed) = (count(&done.operations), count(&done.failed));
    done.slowest_us.store(0, Ordering::Relaxed);
    set(cluster, way, true)?;
    std::thread::sleep(if way.is_some() { STALL_MAX } else { Duration::from_secs(1) });
    let noticed = count(&done.operations);
    std::thread::sleep(what.measured);
    let measured = count(&done.operations) - noticed;
    // One that is under way counts as well.
    let now_us = start.elapsed().as_micros() as u64;
    let waits_us = done.since_us.iter().map(count).filter(|since_us| *since_us > 0);
    let waits_us = waits_us.map(|since_us| now_us.saturating_sub(since_us)).max().unwrap_or(0);
    let slowest_us = count(&done.slowest_us).max(waits_us);
    cluster.alive()?;
    set(cluster, way, false)?;
    let operations = count(&done.operations) - before;
    let slowest = Duration::from_micros(slowest_us);
    Ok(Part { way, operations, measured, slowest, failed: count(&done.failed) - failed })
}

fn set(cluster: &Cluster, way: Option<Way>, is_cut: bool) -> Result<()> {
    let Some(Way { from, to, both }) = way else { return Ok(()) };
    let network = cluster.network()?;
    network.cut(from, to, is_cut)?;
    if both { network.cut(to, from, is_cut) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_hosts_is_cut_in_both_directions_and_in_each() {
        let ways = ways(4);
        assert_eq!(ways.len(), 10 * 3);
        assert!(ways.contains(&Way { from: 4, to: 2, both: false }), "the mount is a host");
        assert_eq!(ways.iter().filter(|way| way.both).count(), 10);
    }
}
