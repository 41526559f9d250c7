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
pub(crate) fn planted(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["planted"], args) && (args.contains(&"--bug") || planted_tests(root))
}

/// So many programs plant bugs.
const PLANTED_PROGRAMS: usize = 6;

/// The tests that plant bugs: built together, since each package would be built anew for another choice of packages.
fn planted_tests(root: &Path) -> bool {
    let build = "test --quiet --locked --profile sim --features planted --no-run --message-format json-render-diagnostics \
                 --package atoll-sim --package atoll-group --package atoll-spine --package atoll-island --package atoll-dispatch \
                 --package atoll-shown --test planted --test across";
    let Some(programs) = crate::run_tests::built(cargo(root).args(build.split_whitespace())) else {
        return false;
    };
    let passes = |program: &Program| {
        // The others of its tests have run without bugs.
        let filter = program.name().ends_with(" across").then_some("planted::");
        let status = program.command().arg("--quiet").args(filter).status();
        let passed = status.is_ok_and(|status| status.success());
        if !passed {
            println!("FAILED: {}", program.name());
        }
        passed
    };
    programs.len() == PLANTED_PROGRAMS && programs.iter().all(passes)
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
