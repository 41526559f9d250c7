//! Several clients on several mounts, while nodes are killed and links are cut. Afterwards the checker looks
//! for an order of all their operations. This is Archipelago's randomized test engine (section 12), with a
//! judge.
//!
//! Each round has a directory and a history of its own. When its operations are done, everything is mended,
//! must answer, and is looked at over each mount. After some rounds everything is stopped in order, and
//! `atoll check` must be clean.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use atoll_history::live::{Begun, Live, Mix, save};
use atoll_history::{History, Lenience, Verdict, check_with};

use crate::cluster::Cluster;
use crate::mishap::{Counts, Mishaps, Trouble};

/// How often it is looked at what is due.
const LOOK: Duration = Duration::from_millis(10);
/// An operation may wait for nodes and ways that are mended one after the other, but not longer.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// Operations of unknown outcome in a round.
const UNKNOWN_MAX: u64 = 16;
/// Clients: the paper has as many as islands, 4. With more than 8 the orders are now and then too many to try.
const CLIENTS: u32 = 8;
/// Options of mounts, in turn: one tells its callers that nobody answers, the other waits.
const OPTIONS: [&str; 2] = ["soft=2", "hard"];

/// What to do.
#[derive(Debug, Clone)]
pub struct Histories {
    /// Nodes, with an island each.
    pub nodes: usize,
    /// Mounts.
    pub mounts: usize,
    /// At least so many operations.
    pub operations: u64,
    /// And so many crashes; 0: nobody is killed.
    pub crashes: u64,
    /// Repeats what is called, killed and cut, though not when.
    pub seed: u64,
    /// Ways are cut, too.
    pub cuts: bool,
    /// Only the paper's operations, which move no name; otherwise every other round has others.
    pub paper: bool,
    /// Operations of a round.
    pub round: u64,
    /// After so many rounds, and in the end, everything is stopped in order and checked.
    pub check_every: u64,
    /// Rounds that have no order are kept and counted; otherwise the first one ends it.
    pub go_on: bool,
    /// Where their histories are kept.
    pub keep: PathBuf,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Operations.
    pub operations: u64,
    /// Of these, of unknown outcome.
    pub unknown: u64,
    /// What went wrong.
    pub mishaps: Counts,
    /// Rounds that were judged.
    pub rounds: u64,
    /// Of these, without an order.
    pub broken: u64,
    /// Of these, with too many orders to try.
    pub undecided: u64,
    /// `atoll check` of all nodes.
    pub checks: u64,
    /// The longest operation.
    pub slowest: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations ({} of unknown outcome), {}; {} rounds judged ({} broken, {} undecided), {} checks, slowest {:.1} s",
            self.operations,
            self.unknown,
            self.mishaps,
            self.rounds,
            self.broken,
            self.undecided,
            self.checks,
            self.slowest.as_secs_f64()
        )
    }
}

impl Histories {
    fn is_enough(&self, report: &Report) -> bool {
        report.operations >= self.operations && report.mishaps.crashes >= self.crashes
    }

    /// What is left, if it goes on as so far.
    fn left(&self, report: &Report, took: Duration) -> String {
        let part = |done: u64, all: u64| if all == 0 { 1.0 } else { done as f64 / all as f64 };
        let done = part(report.operations, self.operations).min(part(report.mishaps.crashes, self.crashes));
        match took.as_secs_f64() / 60.0 * (1.0 / done - 1.0) {
            left if left.is_finite() => format!("{:.0} min left", left.max(0.0)),
            _ => "no crash yet".to_owned(),
        }
    }

    /// Options of the mounts in a period between checks.
    fn options(&self, period: u64) -> Vec<&'static str> {
        (0..self.mounts).map(|mount| OPTIONS[(mount + period as usize) % OPTIONS.len()]).collect()
    }

    pub(crate) fn live(&self, round: u64, dirs: Vec<PathBuf>) -> Live {
        Live {
            appends: true,
            dirs,
            clients: CLIENTS,
            operations: self.round,
            seed: self.seed.wrapping_mul(1_000_003).wrapping_add(round),
            names: 12,
            block: 8,
            blocks: 1,
            mix: if self.paper || !round.is_multiple_of(2) { Mix::Paper } else { Mix::Names },
            unknown_max: UNKNOWN_MAX,
        }
    }
}

/// Runs it in the folder `top`, where everything is left.
pub fn run(what: &Histories, top: &Path, say: &mut dyn FnMut(&str)) -> Result<Report> {
    ensure!(what.nodes > 1 && what.mounts > 0, "several nodes and at least one mount");
    let mut report = Report::default();
    let mut mishaps = Mishaps::new(what.seed, what.crashes > 0, what.cuts);
    let mut cluster = Cluster::start_apart(top, what.nodes, &what.options(0))?;
    let begun = Instant::now();
    while !what.is_enough(&report) {
        report.rounds += 1;
        let context = || format!("round {} of seed {}", report.rounds, what.seed);
        let live = what.live(report.rounds, cluster.mounts());
        let (history, ended) = record(&live, &mut cluster, &mut mishaps).with_context(context)?;
        report.mishaps = mishaps.counts();
        judge(what, &history, ended, &mut report, say)?;
        if report.rounds.is_multiple_of(what.check_every) {
            let options = what.options(report.rounds / what.check_every);
            cluster.check_and_go_on(&options).with_context(|| format!("after round {}", report.rounds))?;
            report.checks += 1;
        }
        let took = begun.elapsed();
        say(&format!(
            "{report}; {:.0} a second, {}",
            report.operations as f64 / took.as_secs_f64(),
            what.left(&report, took)
        ));
    }
    cluster.stop().context("in the end")?;
    report.checks += 1;
    Ok(report)
}

/// A round: its history, and whether it came to its end.
pub(crate) fn record(
    live: &Live,
    cluster: &mut Cluster,
    mishaps: &mut dyn Trouble,
) -> Result<(History, Result<()>)> {
    let mut begun = live.begin()?;
    let left = AtomicU64::new(live.operations);
    mishaps.begin();
    let ended = std::thread::scope(|scope| {
        let working = scope.spawn(|| begun.work(&left));
        let mut moved = (live.operations, Instant::now());
        let mut ended = Ok(());
        while !working.is_finished() && ended.is_ok() {
            std::thread::sleep(LOOK);
            ended = mishaps.step(cluster);
            let now = left.load(Ordering::Relaxed);
            if now != moved.0 {
                moved = (now, Instant::now());
            } else if moved.1.elapsed() > HANG {
                ended = Err(anyhow::anyhow!("no operation has begun for {} s", HANG.as_secs()));
            }
        }
        if ended.is_err() {
            mishaps.failed(cluster);
            // Whoever waits for something that will not come gets an error.
            left.store(0, Ordering::Relaxed);
            cluster.abandon_mounts();
        }
        working.join().expect("the clients do not panic").and(ended)
    });
    let ended = ended.and_then(|()| mishaps.end(cluster)).and_then(|()| look_over(&mut begun));
    Ok((begun.into_history(), ended))
}

/// Everything answers, after a while.
fn look_over(begun: &mut Begun<'_>) -> Result<()> {
    let until = Instant::now() + HANG;
    while begun.look_over()? > 0 {
        if Instant::now() > until {
            bail!("all is mended, but not everything answers after {} s", HANG.as_secs());
        }
    }
    Ok(())
}

pub(crate) fn judge(
    what: &Histories,
    history: &History,
    ended: Result<()>,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    report.operations += history.records.len() as u64;
    let unknown = history.records.iter().filter(|record| record.is_unknown()).count() as u64;
    report.unknown += unknown;
    let took = |record: &atoll_history::Record| record.end.map_or(0, |end| end - record.start);
    let slowest = history.records.iter().map(took).max().unwrap_or(0);
    report.slowest = report.slowest.max(Duration::from_nanos(slowest));
    // A rename that was given up and has happened is to Linux what another mount has done.
    let stale = what.mounts > 1 || unknown > 0;
    let verdict = check_with(history, Lenience { stale, apart: stale });
    if ended.is_ok() && verdict.fits() {
        return Ok(());
    }
    let file = what.keep.join(format!("history-{}-round-{}.jsonl", what.seed, report.rounds));
    save(history, &file)?;
    say(&format!("round {} of seed {}, kept as {}: {verdict}", report.rounds, what.seed, file.display()));
    ended?;
    match verdict {
        Verdict::Undecided(_) => report.undecided += 1,
        _ => report.broken += 1,
    }
    ensure!(what.go_on, "round {} of seed {} has no order that was found", report.rounds, what.seed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use atoll_history::{Answer, Op, Record};

    use super::*;
    use crate::place::Place;

    #[test]
    fn a_round_without_an_order_is_kept_explained_and_ends_it_unless_told_otherwise() {
        let place = Place::new("broken").unwrap();
        let op = Op::Unlink { dir: 1, name: "n".into() };
        // Nobody has made it.
        let records = vec![Record { client: 0, start: 1, end: Some(2), op, answer: Answer::Ok }];
        let history = History { root: 1, records };
        let mut what = Histories {
            nodes: 4,
            mounts: 1,
            operations: 1,
            crashes: 0,
            seed: 5,
            cuts: false,
            paper: true,
            round: 1,
            check_every: 1,
            go_on: false,
            keep: place.path().to_owned(),
        };
        let (mut report, mut said) = (Report { rounds: 3, ..Report::default() }, String::new());
        let why = judge(&what, &history, Ok(()), &mut report, &mut |line| said += line).unwrap_err();
        assert!(why.to_string().contains("round 3 of seed 5"), "{why}");
        assert!(said.contains("nothing was at /n"), "{said}");
        let kept = std::fs::File::open(place.join("history-5-round-3.jsonl")).unwrap();
        assert_eq!(History::read(std::io::BufReader::new(kept)).unwrap(), history);
        what.go_on = true;
        judge(&what, &history, Ok(()), &mut report, &mut |_| ()).unwrap();
        assert_eq!((report.operations, report.broken), (2, 2));
    }
}
