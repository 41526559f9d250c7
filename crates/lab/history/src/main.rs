//! `atoll-check-history`: runs operations in a mounted directory, or reads what another program recorded, and judges.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use atoll_history::live::{self, Live, Mix};
use atoll_history::{History, Lenience, Verdict, check_with};
use clap::Parser;

/// Does a file system keep the rules of POSIX when many use it at once?
///
/// Clients work in a new directory inside DIR, and every call is recorded with its start, its end and its answer. Then an
/// order of all calls is looked for, in which a POSIX tree gives just these answers. If there is none, the call that
/// has no place is shown, and what stood against it. Exits with 0 if there is an order, 1 if there is none, 3 if
/// there are too many to try.
#[derive(Debug, Parser)]
#[command(name = "atoll-check-history", version)]
struct Cli {
    /// A directory to work in; of several, all are mounts of the same tree, and clients take them in turn
    #[arg(value_name = "DIR", required_unless_present = "file")]
    dirs: Vec<PathBuf>,
    /// Judge this history, a line of JSON for each operation, instead of making one
    #[arg(long, value_name = "FILE", conflicts_with = "dirs")]
    file: Option<PathBuf>,
    /// How many call at once
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// How many operations, all together
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Repeats what is called, though not when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Names used in each directory: the fewer, the more they meet
    #[arg(long, default_value_t = 12)]
    names: u64,
    /// Bytes of a block of data, which is filled with one number
    #[arg(long, default_value_t = 8)]
    block: usize,
    /// Blocks that are written and read at once, at most, which then must be atomic (POSIX says so, ext4 does not
    /// do it). With more than 1, files shrink too
    #[arg(long, default_value_t = 1)]
    blocks: u64,
    /// The operations of Table 5 of Archipelago, in which no name is moved
    #[arg(long)]
    paper: bool,
    /// Do not hold against it what Linux itself says where another mount changes names at the same time: ESTALE, ELOOP,
    /// and to renames EINVAL, ENOTEMPTY, EISDIR, ENOTDIR, and that one is done that another mount has done
    #[arg(long)]
    stale: bool,
    /// Keep the history in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("atoll-check-history: {why:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    let history = match &cli.file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            History::read(BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => made(&cli)?,
    };
    if let Some(path) = &cli.save {
        live::save(&history, path)?;
    }
    if history.records.is_empty() {
        bail!("there are no operations to judge");
    }
    let began = Instant::now();
    let verdict = check_with(&history, Lenience { stale: cli.stale, apart: cli.stale });
    println!(
        "{} operations judged in {:.1} s: {verdict}",
        history.records.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(match verdict {
        Verdict::Fits { .. } => ExitCode::SUCCESS,
        Verdict::Broken(_) => ExitCode::from(1),
        Verdict::Undecided(_) => ExitCode::from(3),
    })
}

fn made(cli: &Cli) -> Result<History> {
    let live = Live {
        appends: true,
        dirs: cli.dirs.clone(),
        clients: cli.clients,
        operations: cli.operations,
        seed: cli.seed,
        names: cli.names,
        block: cli.block,
        blocks: cli.blocks,
        mix: if cli.paper { Mix::Paper } else { Mix::Names },
        unknown_max: u64::MAX,
    };
    let began = Instant::now();
    let history = live.run()?;
    println!(
        "{} operations by {} clients in {:.1} s",
        history.records.len(),
        cli.clients,
        began.elapsed().as_secs_f64()
    );
    let mut line = String::new();
    for ((op, answer), count) in live::tally(&history) {
        let next = format!("{op} {answer} {count}");
        if line.len() + next.len() > 110 {
            println!("  {line}");
            line.clear();
        }
        line = if line.is_empty() { next } else { format!("{line}, {next}") };
    }
    println!("  {line}");
    Ok(history)
}
