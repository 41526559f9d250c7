//! `atoll-sim NAME --seed N [--steps N]` repeats one run; `atoll-sim soak --minutes M` looks for
//! failures. Prints what happened last and the one line that repeats a failure.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use atoll_sim::explore::by_hand;
use atoll_sim::{Injected, Report, SCENARIOS, Scenario, run};

/// What was asked for.
struct Args {
    name: String,
    seed: u64,
    seeds: u64,
    steps: Option<u64>,
    minutes: u64,
    renames: usize,
    orders: u64,
    tail: bool,
}

fn usage() -> String {
    let names: Vec<String> = SCENARIOS.iter().map(|s| format!("  {:14}{}", s.name, s.what)).collect();
    format!(
        "usage: atoll-sim NAME [--seed N] [--seeds COUNT] [--steps N] [--tail]\n       atoll-sim soak [--minutes M] [--seed FIRST]\n       atoll-sim explore [--minutes M] [--seed N] [--renames N] [--orders N] [--steps STATES]\n{}",
        names.join("\n")
    )
}

fn parse() -> Option<Args> {
    let mut words = std::env::args().skip(1);
    let name = words.next()?;
    let mut args =
        Args { name, seed: 1, seeds: 1, steps: None, minutes: 1, renames: 3, orders: 0, tail: false };
    while let Some(word) = words.next() {
        if word == "--tail" {
            args.tail = true;
            continue;
        }
        let value: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seed" => args.seed = value,
            "--seeds" => args.seeds = value,
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
        return soak(args.seed, Duration::from_secs(args.minutes * 60));
    }
    let Some(scenario) = Scenario::named(&args.name) else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    let mut total = Total::new();
    let mut failed = false;
    for seed in args.seed..args.seed + args.seeds {
        let report = one(scenario, seed, args.steps);
        total.add(&report);
        if args.tail && report.failure.is_none() {
            print!("{}", report.tail);
        }
        failed |= told(&report, args.seeds == 1);
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

fn told(report: &Report, whole: bool) -> bool {
    let Some(failure) = &report.failure else { return false };
    if whole {
        print!("{}", report.tail);
    }
    println!("{failure}");
    println!("{}", report.command);
    true
}

/// Interleavings of renames of directories. `--orders 0`: every one, up to `--steps` states of each set.
fn explore(args: &Args) -> ExitCode {
    let time = Duration::from_secs(args.minutes * 60);
    let states_max = args.steps.unwrap_or(u64::MAX);
    match by_hand(args.seed, time, args.renames, args.orders, states_max) {
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

fn soak(first: u64, time: Duration) -> ExitCode {
    let mut total = Total::new();
    for seed in first.. {
        for scenario in SCENARIOS {
            if total.began.elapsed() >= time {
                println!("{total}");
                return ExitCode::SUCCESS;
            }
            let report = one(scenario, seed, None);
            total.add(&report);
            if told(&report, true) {
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
