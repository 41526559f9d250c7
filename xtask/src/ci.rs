//! The gate: what every change must pass, in one order, on a developer's machine and in CI alike.
//!
//! Stops at the first step that fails and names it. Cheap steps come first; tests are last.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The version of cargo-deny that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

/// Seeds of each scenario of the simulator: about two minutes on two cores.
const SEEDS: &str = "25";

/// How a step ended.
enum Outcome {
    Passed,
    /// Passed but for these tests, which were skipped: each with what it needs.
    PassedBut(Vec<String>),
    Failed,
    /// Not checked, and why: shown, so that nobody takes it for passed.
    Skipped(&'static str),
}

/// A step's name and what it does in the workspace's folder.
type Step = (&'static str, fn(&Path) -> Outcome);

const STEPS: &[Step] = &[
    ("format", |root| cargo(root, "fmt --all --check", &[])),
    ("tidy", |root| if crate::tidy(root) { Outcome::Passed } else { Outcome::Failed }),
    ("licences and bans", licences),
    ("advisories", advisories),
    ("lints", |root| cargo(root, "clippy --workspace --all-targets --locked -- -D warnings", &[])),
    ("docs", |root| cargo(root, "doc --workspace --no-deps --locked", &[("RUSTDOCFLAGS", "-D warnings")])),
    // The same seeds each time, so that whoever broke something knows it.
    ("seeds", |root| simulated(crate::sim::soak(root, &["--seed", "1", "--seeds", SEEDS]))),
    ("planted bugs", |root| simulated(crate::sim::planted(root, &["--quick"]))),
    // All of them: one run says everything that is wrong.
    ("tests", tests),
];

/// Below the target folder: one line for each test of the run that was skipped (`atoll_needs::LIST`).
const SKIPPED: &str = "skipped-tests";

/// Runs every step and says how long each took; whether all passed.
pub(crate) fn run(root: &Path) -> bool {
    let mut summary = String::new();
    let mut passed = true;
    for (name, step) in STEPS {
        println!("== {name}");
        let start = Instant::now();
        let outcome = step(root);
        let line = summary_line(name, &outcome, start.elapsed());
        summary.push_str(&line);
        if matches!(outcome, Outcome::Failed) {
            passed = false;
            break;
        }
    }
    println!("== summary\n{summary}");
    passed
}

/// All tests; then the names of those that were skipped, because something is missing that they need.
fn tests(root: &Path) -> Outcome {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let list = target.join(SKIPPED);
    if let Err(why) = std::fs::create_dir_all(&target).and_then(|()| std::fs::write(&list, "")) {
        eprintln!("{}: {why}", list.display());
        return Outcome::Failed;
    }
    let passed = crate::run_tests::run(&|args| command(root, args), &list);
    match (passed, std::fs::read_to_string(&list)) {
        (true, Ok(skipped)) => passed_but(&skipped),
        (true, Err(why)) => {
            eprintln!("{}: {why}", list.display());
            Outcome::Failed
        }
        (false, skipped) => {
            eprint!("{}", skipped.unwrap_or_default());
            Outcome::Failed
        }
    }
}

/// What tests that passed are worth when those in this list, a line each, were skipped.
fn passed_but(skipped: &str) -> Outcome {
    let mut lines: Vec<String> = skipped.lines().map(|line| line.replacen("SKIPPED ", "", 1)).collect();
    lines.sort();
    if lines.is_empty() { Outcome::Passed } else { Outcome::PassedBut(lines) }
}

fn summary_line(name: &str, outcome: &Outcome, took: Duration) -> String {
    let verdict = match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::PassedBut(skipped) => {
            format!("passed, {} skipped:\n    {}", skipped.len(), skipped.join("\n    "))
        }
        Outcome::Failed => "FAILED".to_owned(),
        Outcome::Skipped(why) => format!("not checked: {why}"),
    };
    let mut line = String::new();
    writeln!(line, "  {name:<18} {:>7.1} s  {verdict}", took.as_secs_f64())
        .expect("a string takes everything");
    line
}

/// Runs cargo with these arguments (none has a blank in it).
fn cargo(root: &Path, args: &str, env: &[(&str, &str)]) -> Outcome {
    outcome(args, command(root, args).envs(env.iter().copied()).status())
}

const fn simulated(passed: bool) -> Outcome {
    if passed { Outcome::Passed } else { Outcome::Failed }
}

/// What the end of a command means. One that could not be started has not passed.
fn outcome(args: &str, ended: io::Result<ExitStatus>) -> Outcome {
    match ended {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(why) => {
            eprintln!("cargo {args}: {why}");
            Outcome::Failed
        }
    }
}

fn command(root: &Path, args: &str) -> Command {
    // The cargo that runs this, so that a chosen toolchain stays chosen.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(args.split(' ')).stdin(Stdio::null());
    command
}

/// Licences, bans and sources of everything that is linked. Installs cargo-deny if it is missing.
fn licences(root: &Path) -> Outcome {
    let there = command(root, "deny --version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        println!("installing cargo-deny {CARGO_DENY}, once; two minutes on two cores");
        let installed = cargo(root, &format!("install --quiet --locked cargo-deny@{CARGO_DENY}"), &[]);
        if !matches!(installed, Outcome::Passed) {
            return Outcome::Failed;
        }
    }
    cargo(root, "deny --log-level error check bans licenses sources", &[])
}

/// Known vulnerabilities. Their database lies outside the registry; a machine that cannot reach it cannot check.
fn advisories(root: &Path) -> Outcome {
    let fetched = command(root, "deny fetch db").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !fetched.is_ok_and(|status| status.success()) {
        return Outcome::Skipped("the advisory database cannot be reached from here");
    }
    cargo(root, "deny --log-level error check advisories --disable-fetch", &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_or_cannot_start_is_no_pass() {
        assert!(matches!(outcome("x", Command::new("true").status()), Outcome::Passed));
        assert!(matches!(outcome("x", Command::new("false").status()), Outcome::Failed));
        assert!(matches!(outcome("x", Command::new("/nonexistent").status()), Outcome::Failed));
    }

    #[test]
    fn the_summary_does_not_call_a_skipped_step_passed() {
        let line = summary_line("advisories", &Outcome::Skipped("no network"), Duration::from_millis(1250));
        assert_eq!(line, "  advisories             1.2 s  not checked: no network\n");
    }

    #[test]
    fn skipped_tests_are_counted_and_named() {
        assert!(matches!(passed_but(""), Outcome::Passed));
        let outcome = passed_but("SKIPPED b::c: needs root\nSKIPPED a::b: needs root\n");
        let line = summary_line("tests", &outcome, Duration::from_secs(2));
        let expected = "  tests                  2.0 s  passed, 2 skipped:\n    a::b: needs root\n    b::c: needs root\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn tests_come_last() {
        assert_eq!(STEPS.last().map(|(name, _)| *name), Some("tests"));
    }
}
