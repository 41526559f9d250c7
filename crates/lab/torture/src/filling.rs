//! What a filling costs clients, and whether the time is right that `atoll status` tells of it: three nodes with two copies, clients
//! that write, sync and read, and a node that loses its copy of one island and leads the other one, several times. Prints figures; judges only that all copies come back.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::{Cluster, FillStatus};

/// The node that is wiped. The first one has the control store.
const WIPED: usize = 2;
/// The island whose copy there is wiped, and the one that the node leads meanwhile.
const ISLAND: u16 = 0;
const OTHER: u16 = 1;
/// A filling that takes longer has failed.
const FILLED_MAX: Duration = Duration::from_secs(1_800);
/// How often it is asked how far it is.
const ASK: Duration = Duration::from_millis(250);
/// Bytes of a small file, and of a large one.
const SMALL: usize = 8 << 10;
const LARGE: usize = 4 << 20;

/// What to do.
#[derive(Debug, Clone)]
pub struct Filling {
    /// Small files.
    pub small: usize,
    /// Large ones.
    pub large: usize,
    /// How often a disk is wiped.
    pub rounds: usize,
    /// How long clients are watched before each filling: with all copies, and without those of the wiped node.
    pub quiet: Duration,
}

/// When something was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// While nothing is measured.
    Between = 0,
    /// All copies are in sync.
    Whole = 1,
    /// The node is away.
    Away = 2,
    /// Its copies are filled.
    Filled = 3,
}

/// What a client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// A new file of 2 KB, and each other one removed.
    Create,
    /// 4 KiB of a file, and an fsync.
    Sync,
    /// 4 KiB of a file that the kernel does not have.
    Read,
}

const CALLS: [Call; 3] = [Call::Create, Call::Sync, Call::Read];

/// How long calls took, by what and when.
type Times = BTreeMap<(Call, When), Vec<Duration>>;

/// A time that was told, and the true one.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// When so many per cent were done.
    share: u64,
    told_s: f64,
    is_s: f64,
}

/// A filling: how long it took, and what was told meanwhile.
#[derive(Debug)]
struct Filled {
    took: Duration,
    told: Vec<Told>,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Report {
    times: Times,
    fillings: Vec<Filled>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Filled { took, told } in &self.fillings {
            writeln!(f, "filled in {:.1} s", took.as_secs_f64())?;
            for Told { share, told_s, is_s } in told {
                let off = (told_s / is_s.max(0.001) - 1.0) * 100.0;
                writeln!(f, "  at {share} %: told {told_s:.1} s, it took {is_s:.1} s ({off:+.0} %)")?;
            }
        }
        writeln!(f, "milliseconds: half of the calls, 99 of 100, all")?;
        for ((call, when), times) in &self.times {
            if *when == When::Between || times.is_empty() {
                continue;
            }
            let mut times = times.clone();
            times.sort_unstable();
            let at =
                |share: usize| times[(times.len() * share / 1_000).min(times.len() - 1)].as_secs_f64() * 1e3;
            let (half, most, all) = (at(500), at(990), at(1_000));
            let (call, when) = (format!("{call:?}"), format!("{when:?}"));
            writeln!(f, "  {call:<7}{when:<8}{half:8.2}{most:8.2}{all:8.0}  of {}", times.len())?;
        }
        Ok(())
    }
}

/// Runs it.
///
/// # Errors
///
/// Something did not work, or a filling did not end.
pub fn run(what: &Filling, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut cluster = Cluster::start_with_copies(top, 3, 2, 0, &["hard"])?;
    cluster.wait_in_sync(FILLED_MAX)?;
    let mount = cluster.mounts().pop().context("there is a mount")?;
    let dirs = dirs_of_islands(&cluster, &mount)?;
    write_files(&dirs, what)?;
    say(&format!("{} small files and {} large ones are written", what.small, what.large));
    let (when, ends) = (AtomicU8::new(When::Between as u8), AtomicBool::new(false));
    let times = Mutex::new(Times::new());
    let mut report = Report::default();
    let done = std::thread::scope(|scope| {
        for dir in &dirs {
            for call in CALLS {
                let (when, ends, times) = (&when, &ends, &times);
                scope.spawn(move || client(dir, call, (when, ends), times));
            }
        }
        let set = |now: When| when.store(now as u8, Ordering::Relaxed);
        let mut rounds = || -> Result<()> {
            for round in 0..what.rounds {
                set(When::Whole);
                std::thread::sleep(what.quiet);
                set(When::Between);
                cluster.kill9_node(WIPED)?;
                std::thread::sleep(Duration::from_secs(3));
                set(When::Away);
                std::thread::sleep(what.quiet);
                set(When::Between);
                cluster.wipe_copy(WIPED, ISLAND)?;
                cluster.start_node(WIPED)?;
                // The node that is filled leads the other island, so that clients use it, too.
                let since = Instant::now();
                while cluster.move_island(OTHER, WIPED).is_err() {
                    ensure!(since.elapsed() < FILLED_MAX, "the other island does not come back");
                    std::thread::sleep(ASK);
                }
                set(When::Filled);
                let filled = watch(&cluster, since)?;
                set(When::Between);
                say(&format!("round {round}: filled in {:.1} s", filled.took.as_secs_f64()));
                report.fillings.push(filled);
                std::thread::sleep(Duration::from_secs(3));
            }
            Ok(())
        };
        let done = rounds();
        ends.store(true, Ordering::Relaxed);
        done
    });
    done?;
    report.times = times.into_inner().expect("no client has panicked");
    cluster.stop()?;
    Ok(report)
}

/// A directory of each island.
fn dirs_of_islands(cluster: &Cluster, mount: &Path) -> Result<Vec<PathBuf>> {
    let islands = cluster.islands(1)?.len();
    let mut found = BTreeMap::new();
    for n in 0..256 {
        let dir = mount.join(format!("d{n}"));
        std::fs::create_dir(&dir)?;
        found.entry(cluster.owner(&dir)?).or_insert(dir);
        if found.len() == islands {
            return Ok(found.into_values().collect());
        }
    }
    anyhow::bail!("the directories do not reach all islands")
}

fn write_files(dirs: &[PathBuf], what: &Filling) -> Result<()> {
    // No two blocks are the same, nor zero.
    let bytes: Vec<u8> = (0..LARGE as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    for n in 0..what.small.max(what.large) {
        let dir = &dirs[n % dirs.len()];
        if n < what.small {
            std::fs::write(dir.join(format!("s{n}")), &bytes[..SMALL])?;
        }
        if n < what.large {
            std::fs::write(dir.join(format!("l{n}")), &bytes)?;
        }
    }
    rustix::fs::sync();
    Ok(())
}

/// Watches until all copies are in sync: how long it takes, and what was told meanwhile.
fn watch(cluster: &Cluster, since: Instant) -> Result<Filled> {
    let mut told: Vec<(Duration, FillStatus)> = Vec::new();
    loop {
        ensure!(since.elapsed() < FILLED_MAX, "it does not end: {told:?}");
        told.extend(cluster.filling()?.map(|status| (since.elapsed(), status)));
        if cluster.not_in_sync(&cluster.copies()?).is_empty() {
            break;
        }
        std::thread::sleep(ASK);
    }
    let took = since.elapsed();
    let shares = (1..10).filter_map(|tenth| {
        let (at, status) = told.iter().find(|(_, status)| status.done_permille >= tenth * 100)?;
        let (told_s, is_s) = (status.left_ms? as f64 / 1e3, (took - *at).as_secs_f64());
        Some(Told { share: tenth * 10, told_s, is_s })
    });
    Ok(Filled { took, told: shares.collect() })
}

/// Calls again and again, and notes how long each call takes.
fn client(dir: &Path, call: Call, (when, ends): (&AtomicU8, &AtomicBool), times: &Mutex<Times>) {
    let bytes = [7; 64 << 10];
    let path = dir.join(format!("client-{call:?}"));
    let file = File::create_new(&path).expect("nobody else has made it");
    (0..16).for_each(|at| file.write_all_at(&bytes, at << 16).expect("a hard mount gives no errors"));
    file.sync_all().expect("a hard mount gives no errors");
    let (mut own, mut block) = (Times::new(), [0; 4096]);
    for n in 0u64.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let at = (n.wrapping_mul(0x9e37_79b9) % 256) << 12;
        let since = Instant::now();
        let done = match call {
            Call::Create => {
                let path = dir.join(format!("c{}", n % 64));
                let made = std::fs::write(&path, &bytes[..2_000]);
                if n % 2 == 1 { made.and_then(|()| std::fs::remove_file(&path)) } else { made }
            }
            Call::Sync => file.write_all_at(&bytes[..4096], at).and_then(|()| file.sync_all()),
            Call::Read => {
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                file.read_exact_at(&mut block, at)
            }
        };
        done.expect("a hard mount gives no errors");
        let now = match when.load(Ordering::Relaxed) {
            1 => When::Whole,
            2 => When::Away,
            3 => When::Filled,
            _ => When::Between,
        };
        own.entry((call, now)).or_default().push(since.elapsed());
        std::thread::sleep(Duration::from_millis(if call == Call::Sync { 20 } else { 3 }));
    }
    let mut all = times.lock().expect("no client has panicked");
    for (key, mut times) in own {
        all.entry(key).or_default().append(&mut times);
    }
}
