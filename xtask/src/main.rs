//! Chores of the repository: `cargo xtask tidy` checks its rules, `cargo xtask ci` is the whole gate.
//!
//! Reads and judges; never changes a file of the repository.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod ci;
mod repo;
mod rules;
mod run_tests;
mod sim;
mod text;

use repo::Repo;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  tidy    check the rules of the repository that no compiler checks
  ci      everything that a change must pass, in order: formatting, tidy, licences, lints, docs, tests
  sim NAME --seed N [--seeds COUNT] [--steps N]
          run a simulated scenario; without a name, the list of them
  soak [--minutes M] [--seed FIRST] [--seeds COUNT]
          run all scenarios with fresh seeds for some minutes, or so many seeds of each
  planted [--quick] [--bug NAME] [--seed FIRST] [--seeds RUNS]
          plant bugs one at a time, and tell how each is found; quick: by the scenario that finds it soonest
  hashes [--seed FIRST] [--seeds COUNT]
          hash every byte of what happens in each scenario: a build that behaves the same prints the same lines";

/// The folder of the workspace: the one above this crate's.
fn root() -> PathBuf {
    // As cargo says now, not as it was said at compile time: clones may share a target folder.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().expect("xtask lies in the workspace").to_owned()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let passed = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(&root()),
        ["ci"] => ci::run(&root()),
        ["sim", ref args @ ..] => sim::sim(&root(), args),
        ["soak", ref args @ ..] => sim::soak(&root(), args),
        ["planted", ref args @ ..] => sim::planted(&root(), args),
        ["hashes", ref args @ ..] => sim::hashes(&root(), args),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints every broken rule; whether there was none.
fn tidy(root: &Path) -> bool {
    let repo = match Repo::read(root) {
        Ok(repo) => repo,
        Err(why) => {
            eprintln!("tidy: {why}");
            return false;
        }
    };
    let violations = rules::check(&repo);
    for violation in &violations {
        eprintln!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files keep {} rules", repo.len(), rules::RULES.len());
    } else {
        eprintln!("tidy: {} violations", violations.len());
    }
    violations.is_empty()
}
