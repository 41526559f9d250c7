//! The `atoll` command: reads arguments, composes the parts, prints what happened.

mod files;
mod node;
mod signals;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// One POSIX file tree out of the disks of several machines.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve and mount a volume on this machine: everything in one process
    Up(up::Up),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(up) => up.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error:#}");
            ExitCode::FAILURE
        }
    }
}
