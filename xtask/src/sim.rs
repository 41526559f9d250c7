//! `cargo xtask sim`, `soak` and `planted`: hand their arguments to the simulator, built for speed and with
//! the checks of debug builds, so that overflows and debug assertions judge along.

use std::path::Path;
use std::process::Command;

/// Runs one scenario, or several seeds of it; whether nothing failed.
pub(crate) fn sim(root: &Path, args: &[&str]) -> bool {
    simulator(root, &[], args)
}

/// Looks for failures; whether there was none.
pub(crate) fn soak(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["soak"], args)
}

/// Plants bugs; whether all are found: by runs of the simulator, by the sequences that are written down for them,
/// by the small world of `pure/group`, or by a test of `pure/island` or `store/dispatch`.
pub(crate) fn planted(root: &Path, args: &[&str]) -> bool {
    let is_found = simulator(root, &["planted"], args);
    let test =
        ["test", "--quiet", "--locked", "--profile", "sim", "-p", "atoll-sim", "--features", "planted"];
    let group =
        ["test", "--quiet", "--locked", "--profile", "sim", "-p", "atoll-group", "--features", "planted"];
    let island =
        ["test", "--quiet", "--locked", "--profile", "sim", "-p", "atoll-island", "--features", "planted"];
    let copies =
        ["test", "--quiet", "--locked", "--profile", "sim", "-p", "atoll-dispatch", "--features", "planted"];
    is_found
        && (args.contains(&"--bug")
            || (cargo(root, &test, &["--test", "across", "planted::"])
                && cargo(root, &group, &["--test", "planted"])
                && cargo(root, &island, &["--test", "planted"])
                && cargo(root, &copies, &["--test", "planted"])))
}

/// Prints a hash of each run of some seeds; whether that could be done.
pub(crate) fn hashes(root: &Path, args: &[&str]) -> bool {
    simulator(root, &["hashes"], args)
}

fn simulator(root: &Path, what: &[&str], args: &[&str]) -> bool {
    let run = ["run", "--quiet", "--locked", "--profile", "sim", "-p", "atoll-sim"];
    // Always: one build serves all of them.
    cargo(root, &run, &[&["--features", "planted", "--"], what, args].concat())
}

fn cargo(root: &Path, what: &[&str], args: &[&str]) -> bool {
    // The cargo that runs this, if one does.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(what).args(args);
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("sim: cargo cannot be run: {error}");
            false
        }
    }
}
