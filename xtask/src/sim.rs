//! `cargo xtask sim` and `cargo xtask soak`: hand their arguments to the simulator, built as tests
//! are, so that overflow checks and debug assertions judge along.

use std::path::Path;
use std::process::Command;

/// Runs one scenario, or several seeds of it; whether nothing failed.
pub(crate) fn sim(root: &Path, args: &[&str]) -> bool {
    simulator(root, args)
}

/// Looks for failures for some time; whether there was none.
pub(crate) fn soak(root: &Path, args: &[&str]) -> bool {
    let args: Vec<&str> = std::iter::once("soak").chain(args.iter().copied()).collect();
    simulator(root, &args)
}

fn simulator(root: &Path, args: &[&str]) -> bool {
    // The cargo that runs this, if one does.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["run", "--quiet", "--locked", "-p", "atoll-sim", "--"]).args(args);
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("sim: cargo cannot be run: {error}");
            false
        }
    }
}
