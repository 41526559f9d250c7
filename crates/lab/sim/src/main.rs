//! `atoll-sim NAME --seed N [--steps N]` repeats one run; `atoll-sim soak --minutes M` looks for
//! failures; `atoll-sim planted` whether it would find some (with the feature `planted`); `atoll-sim hashes` shows
//! whether two builds do the same. Prints what happened last and the one line that repeats a failure.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use atoll_sim::explore::by_hand;
use atoll_sim::{Injected, Report, SCENARIOS, Scenario, hash_everything, run};

/// Runs are mostly small things that are made and dropped: a tenth to a fifth more of them in the same time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs after which a soak tells how far it is.
const PROGRESS_RUNS: u64 = 5_000;

/// What was asked for.
struct Args {
    name: String,
    seed: Option<u64>,
    seeds: Option<u64>,
    steps: Option<u64>,
    minutes: u64,
    renames: usize,
    orders: u64,
    tail: bool,
    bug: Option<String>,
    quick: bool,
}

fn usage() -> String {
    let names: Vec<String> = SCENARIOS.iter().map(|s| format!("  {:18} {}", s.name, s.what)).collect();
    format!(
        "usage: atoll-sim NAME [--seed N] [--seeds COUNT] [--steps N] [--tail] [--bug NAME]\n       atoll-sim soak [--minutes M] [--seed FIRST] [--seeds COUNT]\n       atoll-sim explore [--minutes M] [--seed N] [--renames N] [--orders N] [--steps STATES]\n       atoll-sim planted [--quick] [--bug NAME] [--seed FIRST] [--seeds RUNS]\n       atoll-sim hashes [--seed FIRST] [--seeds COUNT]\n{}",
        names.join("\n")
    )
}

fn parse() -> Option<Args> {
    let mut words = std::env::args().skip(1);
    let name = words.next()?;
    let mut args = Args {
        name,
        seed: None,
        seeds: None,
        steps: None,
        minutes: 1,
        renames: 3,
        orders: 0,
        tail: false,
        bug: None,
        quick: false,
    };
    while let Some(word) = words.next() {
        if word == "--tail" {
            args.tail = true;
            continue;
        }
        if word == "--quick" {
            args.quick = true;
            continue;
        }
        if word == "--bug" {
            args.bug = Some(words.next()?);
            continue;
        }
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seed" => args.seed = Some(value),
            "--seeds" => args.seeds = Some(value),
            "--steps" => args.steps = Some(value),
            "--minutes" => args.minutes = value,
            "--renames" => args.renames = value as usize,
            "--orders" => args.orders = value,
            _ => return None,
        }
    }
    Some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    if args.name == "explore" {
        return explore(&args);
    }
    if args.name == "soak" {
        return soak(&args);
    }
    if args.name == "hashes" {
        return hashes(&args);
    }
    if args.name == "planted" {
        return planted(&args);
    }
    let Some(scenario) = Scenario::named(&args.name) else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    if let Some(name) = &args.bug
        && !plant(name)
    {
        return ExitCode::from(2);
    }
    let mut total = Total::new();
    let mut failed = false;
    let (first, seeds) = (args.seed.unwrap_or(1), args.seeds.unwrap_or(1));
    for seed in first..first + seeds {
        let report = one(scenario, seed, args.steps);
        total.add(&report);
        if args.tail && report.failure.is_none() {
            print!("{}", report.tail);
        }
        failed |= told(&report, seeds == 1, args.bug.as_deref());
    }
    println!("{total}");
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What many runs come to. They have one thread, so the time that passes is about the processor's.
struct Total {
    began: Instant,
    runs: u64,
    failures: u64,
    operations: u64,
    virtual_us: u64,
    injected: Injected,
}

impl Total {
    fn new() -> Self {
        let (runs, failures, operations, virtual_us) = (0, 0, 0, 0);
        Self { began: Instant::now(), runs, failures, operations, virtual_us, injected: Injected::default() }
    }

    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.failures += u64::from(report.failure.is_some());
        self.operations += report.operations;
        self.virtual_us += report.virtual_us;
        self.injected += report.injected;
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (real, simulated) = (self.began.elapsed().as_secs_f64(), self.virtual_us as f64 / 1e6);
        write!(
            f,
            "{} runs, {} failed; {} operations, {simulated:.0} simulated seconds in {real:.1} s, {:.0} in one; {}",
            self.runs,
            self.failures,
            self.operations,
            simulated / real,
            self.injected
        )
    }
}

/// Where panics end the process, the line that repeats the run must be out before.
fn one(scenario: &Scenario, seed: u64, steps: Option<u64>) -> Report {
    if cfg!(panic = "abort") {
        let steps = steps.unwrap_or(scenario.steps);
        let command = format!("cargo xtask sim {} --seed {seed} --steps {steps}", scenario.name);
        std::panic::set_hook(Box::new(move |info| eprintln!("{info}\n{command}")));
    }
    run(scenario, seed, steps)
}

fn told(report: &Report, whole: bool, bug: Option<&str>) -> bool {
    let Some(failure) = &report.failure else { return false };
    if whole {
        print!("{}", report.tail);
    }
    println!("{failure}");
    let planted = bug.map(|bug| format!(" --bug {bug}")).unwrap_or_default();
    println!("{}{planted}", report.command);
    true
}

/// Interleavings of renames of directories. `--orders 0`: every one, up to `--steps` states of each set.
fn explore(args: &Args) -> ExitCode {
    let time = Duration::from_secs(args.minutes * 60);
    let states_max = args.steps.unwrap_or(u64::MAX);
    match by_hand(args.seed.unwrap_or(1), time, args.renames, args.orders, states_max) {
        Ok((sets, complete, covered)) => {
            println!("{sets} sets of {} renames, {complete} of them complete: {covered:?}", args.renames);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// One line for each scenario and seed: a hash of every byte of what happens. A change that changes no behaviour
/// changes no line, so two builds can be compared with diff(1).
fn hashes(args: &Args) -> ExitCode {
    hash_everything();
    let (first, seeds) = (args.seed.unwrap_or(1), args.seeds.unwrap_or(50));
    let runs: Vec<(&Scenario, u64)> = SCENARIOS
        .iter()
        .flat_map(|scenario| (first..first + seeds).map(move |seed| (scenario, seed)))
        .collect();
    let (next, lines) = (AtomicU64::new(0), Mutex::new(vec![String::new(); runs.len()]));
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some((scenario, seed)) = runs.get(n) else { return };
            let report = one(scenario, *seed, args.steps);
            let failed = if report.failure.is_some() { " failed" } else { "" };
            let line = format!("{} {seed} {:016x}{failed}", scenario.name, report.hash);
            lines.lock().expect("no panic while it is held")[n] = line;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    for line in lines.into_inner().expect("no panic while it is held") {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

/// Fresh seeds of all scenarios, on all processors: for some minutes, or so many seeds of each. Goes on behind a failure.
fn soak(args: &Args) -> ExitCode {
    let first = args.seed.unwrap_or_else(fresh_seed);
    let seeds = args.seeds.unwrap_or(u64::MAX);
    let time = Duration::from_secs(if args.seeds.is_some() { u64::MAX } else { args.minutes * 60 });
    println!("seeds from {first} on");
    let per_scenario = SCENARIOS.len() as u64;
    let (next, total) = (AtomicU64::new(0), Mutex::new(Total::new()));
    let began = Instant::now();
    let work = || {
        while began.elapsed() < time {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (round, scenario) = (n / per_scenario, &SCENARIOS[(n % per_scenario) as usize]);
            if round >= seeds {
                return;
            }
            let report = one(scenario, first + round, None);
            let mut total = total.lock().expect("no panic while it is held");
            total.add(&report);
            told(&report, false, None);
            if total.runs.is_multiple_of(PROGRESS_RUNS) {
                eprintln!("{total}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let total = total.into_inner().expect("no panic while it is held");
    println!("{total}");
    if total.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds that nobody has tried: they are printed, so that they can be repeated.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20
}

/// Most runs until a planted bug has to be found.
#[cfg(feature = "planted")]
const RUNS_MAX: u64 = 10_000;

/// Everything from here on runs with a bug; false if that cannot be.
#[cfg(feature = "planted")]
fn plant(name: &str) -> bool {
    use atoll_core::planted::{Bug, plant};

    let bug = Bug::ALL.iter().find(|bug| bug.to_string() == name);
    match bug {
        Some(_) => plant(bug.copied()),
        None => eprintln!("There is no bug {name}; `cargo xtask planted` names them."),
    }
    bug.is_some()
}

#[cfg(not(feature = "planted"))]
fn plant(name: &str) -> bool {
    eprintln!("{name} cannot be planted in this build; use `cargo xtask sim` or `cargo xtask planted`.");
    false
}

/// Plants each bug, or one, and tells how it was found.
#[cfg(feature = "planted")]
fn planted(args: &Args) -> ExitCode {
    use atoll_core::planted::Bug;
    use atoll_sim::planted::{Shown, find, find_quickly, shown_by};

    std::panic::set_hook(Box::new(|_| {}));
    let wanted = |bug: &&Bug| args.bug.as_ref().is_none_or(|name| *name == bug.to_string());
    let runs_max = args.seeds.unwrap_or(RUNS_MAX);
    let find = |bug| match args.quick {
        true => find_quickly(bug, args.seed, runs_max),
        false => find(bug, args.seed.unwrap_or(1), runs_max),
    };
    let by_runs = |bug: &&Bug| matches!(shown_by(**bug), Shown::Scenario(_));
    let bugs: Vec<Bug> = Bug::ALL.iter().filter(wanted).filter(by_runs).copied().collect();
    let (next, told) = (AtomicU64::new(0), Mutex::new(vec![(String::new(), true); bugs.len()]));
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(bug) = bugs.get(n) else { return };
            let began = Instant::now();
            let found = find(*bug);
            let (how, why) = match &found {
                Some(found) => {
                    (format!("{} {} | {}", found.scenario, found.seed, found.runs), found.failure.to_string())
                }
                None => (format!("not found | {runs_max}"), String::new()),
            };
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("{bug}: {how}: {seconds:.1} s: {}", why.lines().next().unwrap_or_default());
            let line = format!("| `{bug}` | {} | {how} |", bug.what());
            told.lock().expect("no panic while it is held")[n] = (line, found.is_some());
        }
    };
    // Each thread has its own bug.
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let told = told.into_inner().expect("no panic while it is held");
    told.iter().for_each(|(line, _)| println!("{line}"));
    let missed = bugs.iter().zip(&told).filter(|(_, (_, is_found))| !is_found);
    let missed: Vec<String> = missed.map(|(bug, _)| bug.to_string()).collect();
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not found: {}", missed.join(", "));
    ExitCode::FAILURE
}

#[cfg(not(feature = "planted"))]
fn planted(_: &Args) -> ExitCode {
    plant("A bug");
    ExitCode::from(2)
}
