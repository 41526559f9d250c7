//! Readers loop over `open(name)` while a writer does write-temp, fsync, rename-over, from the same and from
//! other directories, over several mounts. A reader finds the name each time, whole, with the bytes of one
//! round, which is not older than the last that was promised when it opened.
//!
//! With kills, nodes die by `kill -9` in turn and are started again meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use atoll_model::Rng;
use atoll_model::rng::mix;

use crate::cluster::{Cluster, is_away};

/// Names that are replaced, each in a directory of another node.
const TARGETS: usize = 2;
/// Magic, round, target, length of the rest, checksum of the rest.
const HEADER_BYTES: usize = 8 + 8 + 4 + 4 + 4;
const MAGIC: &[u8; 8] = b"ROUNDOF\n";
/// Most bodies are shorter than this.
const SMALL_BYTES: u64 = 6000;
/// One of so many bodies is longer than what a log record carries.
const LARGE_EVERY: u64 = 16;
const LARGE_BYTES: u64 = 80_000;
/// How often it is said how far it is.
const SAID: Duration = Duration::from_secs(20);
/// Steps that take so long are noted.
const NOTED_MS: u64 = 5;
/// Times that are kept of what went wrong.
const SHOWN: usize = 10;
/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// How often the writer replaces a name.
    pub rounds: u64,
    /// Repeats contents and pauses.
    pub seed: u64,
    /// Kill nodes in turn, at least so many times: the writer goes on until then. 0: none is killed.
    pub kills: u64,
    /// The writer syncs what it has written each so many rounds.
    pub fsync_every: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    /// Rounds of the writer.
    pub rounds: u64,
    /// Readings by each mount, in their order.
    pub reads: Vec<u64>,
    /// Nodes killed and started again.
    pub kills: u64,
    /// What must not be: what, and how often.
    pub wrong: BTreeMap<String, u64>,
    /// Of these the first few, with what was found.
    pub shown: Vec<String>,
    /// Errors that say that a node did not answer, which are honest while one is down.
    pub honest: BTreeMap<String, u64>,
    /// Longest time of each step of writer and readers, in milliseconds.
    pub slowest_ms: BTreeMap<&'static str, u64>,
    /// All of it.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.took.as_secs_f64();
        writeln!(
            f,
            "{} rounds, readings by mount {:?}, {} kills, {s:.0} s",
            self.rounds, self.reads, self.kills
        )?;
        let slowest: Vec<_> = self.slowest_ms.iter().map(|(step, ms)| format!("{step} {ms} ms")).collect();
        writeln!(f, "slowest: {}", slowest.join(", "))?;
        for (what, count) in &self.honest {
            writeln!(f, "while a node was down, {count} times: {what}")?;
        }
        for (what, count) in &self.wrong {
            writeln!(f, "WRONG, {count} times: {what}")?;
        }
        self.shown.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What the writer has promised of each name.
struct Shared {
    /// Rounds whose rename has returned, by target.
    promised: [AtomicU64; TARGETS],
    /// The round that is under way, or was last.
    begun: AtomicU64,
    stop: AtomicBool,
    report: Mutex<Report>,
}

impl Shared {
    /// Does a step, and notes how long it took.
    fn timed<T>(&self, step: &'static str, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = act();
        let ms = begun.elapsed().as_millis() as u64;
        if ms >= NOTED_MS {
            let mut report = self.report.lock().expect("nobody panics with it");
            let slowest = report.slowest_ms.entry(step).or_default();
            *slowest = (*slowest).max(ms);
        }
        result
    }

    fn wrong(&self, what: &str, more: &str) {
        let mut report = self.report.lock().expect("nobody panics with it");
        *report.wrong.entry(what.to_owned()).or_default() += 1;
        if report.shown.len() < SHOWN {
            report.shown.push(format!("{what}: {more}"));
        }
    }

    /// An error is wrong, unless it is honest while nodes are killed.
    fn error(&self, step: &str, why: &std::io::Error, kill: bool, more: &str) {
        let what = format!("{step}: {why}");
        if kill && is_away(why) {
            let mut report = self.report.lock().expect("nobody panics with it");
            *report.honest.entry(what).or_default() += 1;
        } else {
            self.wrong(&what, more);
        }
    }
}

fn content(round: u64, target: usize) -> Vec<u8> {
    let mut rng = Rng::new(mix(round) ^ target as u64);
    let bound = if rng.below(LARGE_EVERY) == 0 { LARGE_BYTES } else { SMALL_BYTES };
    let len = rng.below(bound) as usize;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + len + 8);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes.extend_from_slice(&(target as u32).to_le_bytes());
    bytes.extend_from_slice(&(len as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    while bytes.len() < HEADER_BYTES + len {
        bytes.extend_from_slice(&rng.bits().to_le_bytes());
    }
    bytes.truncate(HEADER_BYTES + len);
    let sum = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The round of a whole content; else what is wrong with it.
fn judge(bytes: &[u8], target: usize) -> Result<u64, &'static str> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Err("short: no header") };
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    match rest.len() {
        _ if header[..8] != *MAGIC => Err("mixed: no header where one should be"),
        _ if number(16) != target as u32 => Err("the bytes of another name"),
        len if len < number(20) as usize => Err("short"),
        len if len > number(20) as usize => Err("long"),
        _ if crc32c::crc32c(rest) != number(24) => Err("mixed: another checksum"),
        _ => Ok(u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))),
    }
}

/// Runs it over an empty volume: the writer on the first mount, readers on all. What is wrong is counted.
pub fn run(what: &Reader, cluster: &mut Cluster, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mounts = cluster.mounts();
    let dirs: Vec<PathBuf> = cluster.spread(&mounts[0], "dir")?;
    let below = |dir: &PathBuf| dir.strip_prefix(&mounts[0]).map(Path::to_path_buf);
    let dirs = dirs.iter().map(below).collect::<Result<Vec<_>, _>>()?;
    ensure!(dirs.len() >= TARGETS, "each name needs a node of its own");
    let targets: Vec<PathBuf> = dirs[..TARGETS].iter().map(|dir| dir.join("name")).collect();
    for (at, target) in targets.iter().enumerate() {
        std::fs::write(mounts[0].join(target), content(0, at))?;
    }
    let shared = Shared {
        promised: Default::default(),
        begun: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        report: Mutex::default(),
    };
    let begun = Instant::now();
    let mut all = |kills: &dyn Fn() -> u64| {
        std::thread::scope(|scope| {
            let (shared, targets) = (&shared, &targets);
            let readers: Vec<_> =
                mounts.iter().map(|mount| scope.spawn(move || read(mount, targets, shared, what))).collect();
            write(&mounts[0], &dirs, targets, shared, what, kills, say);
            shared.stop.store(true, Ordering::SeqCst);
            readers.into_iter().map(|reader| reader.join().expect("no reader panics")).collect()
        })
    };
    let (reads, kills) = match what.kills {
        0 => (all(&|| 0), 0),
        _ => cluster.while_killing(what.seed, |kills| Ok(all(kills)))?,
    };
    let report = shared.report.into_inner().expect("nobody panics with it");
    Ok(Report { rounds: shared.begun.into_inner(), reads, kills, took: begun.elapsed(), ..report })
}

fn write(
    mount: &Path,
    dirs: &[PathBuf],
    targets: &[PathBuf],
    shared: &Shared,
    what: &Reader,
    kills: &dyn Fn() -> u64,
    say: &mut dyn FnMut(&str),
) {
    let mut said = Instant::now();
    for round in 1.. {
        if round > what.rounds && kills() >= what.kills {
            return;
        }
        if said.elapsed() > SAID {
            say(&format!("{} rounds", round - 1));
            said = Instant::now();
        }
        let (target, dir) = (round as usize % TARGETS, round as usize / TARGETS % dirs.len());
        let temporary = mount.join(&dirs[dir]).join("temporary");
        shared.begun.store(round, Ordering::SeqCst);
        let done = write_one(shared, &temporary, &mount.join(&targets[target]), &content(round, target), {
            round.is_multiple_of(what.fsync_every)
        });
        match done {
            Ok(()) => shared.promised[target].store(round, Ordering::SeqCst),
            Err((step, why)) => {
                let (from, to) = (dirs[dir].display(), targets[target].display());
                shared.error(step, &why, what.kills > 0, &format!("round {round}, from {from} to {to}"));
            }
        }
    }
}

/// Where an error came up, and which.
type StepError = (&'static str, std::io::Error);

fn write_one(shared: &Shared, new: &Path, name: &Path, bytes: &[u8], sync: bool) -> Result<(), StepError> {
    let step = |what: &'static str, act: &mut dyn FnMut() -> std::io::Result<()>| {
        shared.timed(what, act).map_err(|why| (what, why))
    };
    let mut file = None;
    step("create", &mut || File::create(new).map(|made| file = Some(made)))?;
    let mut file = file.expect("it was made");
    step("write", &mut || file.write_all(bytes))?;
    if sync {
        step("fsync", &mut || file.sync_all())?;
    }
    drop(file);
    step("rename", &mut || std::fs::rename(new, name))
}

/// How often it has read.
fn read(mount: &Path, targets: &[PathBuf], shared: &Shared, what: &Reader) -> u64 {
    let mut reads = 0;
    let mut seen = [0; TARGETS];
    while !shared.stop.load(Ordering::Relaxed) {
        let target = reads as usize % TARGETS;
        let path = mount.join(&targets[target]);
        let promised = shared.promised[target].load(Ordering::SeqCst);
        let result = read_one(shared, &path);
        reads += 1;
        let more = || format!("{}, {promised} was promised", path.display());
        match result {
            Err((step, why)) => shared.error(step, &why, what.kills > 0, &more()),
            Ok(bytes) => match judge(&bytes, target) {
                Err(why) => shared.wrong(why, &format!("{} bytes of {}", bytes.len(), more())),
                Ok(round) => {
                    if round < promised.max(seen[target]) {
                        shared.wrong(
                            "old content",
                            &format!("round {round}, {} seen, {}", seen[target], more()),
                        );
                    }
                    if round > shared.begun.load(Ordering::SeqCst) {
                        shared.wrong("content of the future", &more());
                    }
                    seen[target] = round.max(seen[target]);
                }
            },
        }
    }
    reads
}

fn read_one(shared: &Shared, path: &Path) -> Result<Vec<u8>, StepError> {
    let mut file = shared.timed("open", || File::open(path)).map_err(|why| ("open", why))?;
    let mut bytes = Vec::new();
    shared.timed("read", || file.read_to_end(&mut bytes)).map_err(|why| ("read", why))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_one_whole_round_is_told() {
        let (one, two) = (content(4, 0), content(6, 0));
        assert_eq!(judge(&one, 0), Ok(4));
        assert_eq!(judge(&one, 1), Err("the bytes of another name"));
        assert_eq!(judge(&one[..20], 0), Err("short: no header"));
        assert_eq!(judge(&one[..one.len() - 1], 0), Err("short"));
        let longer: Vec<u8> = one.iter().chain(&two).copied().collect();
        assert_eq!(judge(&longer, 0), Err("long"));
        let half = one.len() / 2 + HEADER_BYTES / 2;
        let mixed: Vec<u8> = one[..half].iter().chain(&vec![0; one.len() - half]).copied().collect();
        assert_eq!(judge(&mixed, 0), Err("mixed: another checksum"));
        assert!(one[HEADER_BYTES..].len() > 100, "too short to say anything");
    }
}
