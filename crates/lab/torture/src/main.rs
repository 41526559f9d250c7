//! `atoll-torture`: the long forms of what the tests of this crate do shortly.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use atoll_torture::daemon::Launch;
use atoll_torture::kill9::{self, Kill9};
use atoll_torture::million::{self, Million};
use atoll_torture::place::Place;
use atoll_torture::{pjdfstest, programs};
use clap::{Parser, Subcommand};

/// Tortures the atoll binary (ATOLL_BIN, or the workspace's): needs root and /dev/fuse.
#[derive(Debug, Parser)]
#[command(name = "atoll-torture")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill the daemon again and again under load; nothing that was acknowledged may be lost
    Kill9 {
        /// How often
        #[arg(long, default_value_t = 200)]
        rounds: u32,
        /// Repeats the operations, though not their timing
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// An empty folder for data and mount point, kept afterwards
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Real programs inside the mount: fsx, fio, git, SQLite, builds, copies
    Work {
        /// All of them
        #[arg(long)]
        all: bool,
        /// Only these
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Smaller, as in the tests
        #[arg(long)]
        short: bool,
    },
    /// A directory of many entries, listed while it changes, and many files in many directories
    Million {
        /// How many
        #[arg(long, default_value_t = 1_000_000)]
        files: u32,
    },
    /// pjdfstest over the mount; prints what fails and is not expected to
    Pjdfstest {
        /// Only tests with this in their name
        pattern: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Kill9 { rounds, seed, dir } => {
            let place = Place::new("kill9")?;
            let dir = dir.unwrap_or_else(|| place.path().to_owned());
            for name in ["mnt", "data"] {
                std::fs::create_dir_all(dir.join(name))?;
            }
            let what = Kill9::new(rounds, seed, Launch::new(&dir));
            let summary = kill9::run(&what, &mut |line| println!("{line}"))?;
            println!("{summary:#?}");
        }
        Command::Work { all, names, short } => {
            ensure!(all != names.is_empty() || all, "say --all, or some of: {}", programs::names().join(" "));
            let place = Place::new("work")?;
            let daemon = Launch::new(place.path()).start()?;
            let scale = if short { programs::Scale::Short } else { programs::Scale::Long };
            programs::run_all(daemon.mount(), place.path(), scale, &names, &mut |line| println!("{line}"))?;
            daemon.stop()?;
        }
        Command::Million { files } => {
            let place = Place::new("million")?;
            let report = million::run(&Million { files, launch: Launch::new(place.path()) }, &mut |line| {
                println!("{line}")
            })?;
            println!("{report:#?}");
        }
        Command::Pjdfstest { pattern } => {
            let place = Place::new("pjdfstest")?;
            let daemon = Launch::new(place.path()).start()?;
            let report = pjdfstest::run(daemon.mount(), place.path(), pattern.as_deref())?;
            print!("{report}");
            daemon.stop()?;
            ensure!(report.is_expected(), "not as expected");
        }
    }
    Ok(())
}
