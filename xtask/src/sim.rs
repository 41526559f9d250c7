//! `cargo xtask sim`, `soak` and `planted`: hand their arguments to the simulator, built for speed and with
//! the checks of debug builds, so that overflows and debug assertions judge along.

use std::path::Path;
use std::process::Command;

use crate::run_tests::Program;

/// Runs one scenario, or several seeds of it; whether nothing failed.
pub(crate) fn sim(root: &Path, args: &[&str]) -> bool {
    simulator(root, &[], args)
}

/// Looks for failures; whether there was none.
pub(crate) fn soak(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["soak"], args)
}

/// Plants bugs; whether all are found: by runs of the simulator, by the sequences that are written down for them,
/// by the small worlds of `pure/group` and `pure/spine`, or by a test of `pure/island`, `pure/shown` or `store/dispatch`.
/// The simulator's other tests are run along.
pub(crate) fn planted(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["planted"], args) && (args.contains(&"--bug") || planted_tests(root))
}

/// The tests of these packages that plant bugs.
const PLANTED: &[&str] = &["dispatch", "group", "island", "route", "shown", "spine"];

/// The simulator's own tests. Their time is that of the engine, which is optimised here and not in the build of all other tests.
const SIMULATED: &[&str] =
    &["across", "copies", "determinism", "explore", "large", "recalls", "regressions", "scenarios"];

/// Runs them. They are built together, since each package would be built anew for another choice of packages.
fn planted_tests(root: &Path) -> bool {
    let build = "test --quiet --locked --profile sim --features planted --no-run --message-format json-render-diagnostics \
                 --package atoll-sim --test planted";
    let mut cargo = cargo(root);
    cargo.args(build.split_whitespace());
    cargo.args(PLANTED.iter().flat_map(|name| ["--package".to_owned(), format!("atoll-{name}")]));
    cargo.args(SIMULATED.iter().flat_map(|name| ["--test", name]));
    let Some(mut programs) = crate::run_tests::built(&mut cargo) else { return false };
    // Another package may have a test of the same name, which runs with all others.
    programs.retain(|program| program.is_of_simulator() || program.name().ends_with(" planted"));
    let passes = |program: &Program| {
        let status = program.command().arg("--quiet").status();
        let passed = status.is_ok_and(|status| status.success());
        if !passed {
            println!("FAILED: {}", program.name());
        }
        passed
    };
    programs.len() == PLANTED.len() + SIMULATED.len() && programs.iter().all(passes)
}

/// Prints a hash of each run of some seeds; whether that could be done.
pub(crate) fn hashes(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["hashes"], args)
}

fn simulator(root: &Path, what: &[&str], args: &[&str]) -> bool {
    // With the bugs in it, always: one build serves all of them.
    let run = "run --quiet --locked --profile sim --package atoll-sim --features planted --";
    match cargo(root).args(run.split(' ')).args(what).args(args).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("sim: cargo cannot be run: {error}");
            false
        }
    }
}

/// The cargo that runs this, if one does.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}
