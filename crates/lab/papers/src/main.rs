//! `atoll-papers`: prints the papers' analyses. Parses arguments; the measuring is the library's.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use atoll_papers::bloom::{SEEDS_MAX, bloom};
use atoll_papers::borrow::{Apart, Effort, borrow};
use atoll_papers::failover::{Plan, failover};
use atoll_papers::scale::{self, scale};
use atoll_papers::table3::{Compared, MEMBERS_MAX, OPERATIONS_MAX, Size, table3};
use atoll_papers::trips::{self, trips};
use atoll_papers::{Options, imbalance};
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: atoll-papers imbalance DIR [--buckets 256] [--islands 4] [--seed 0] [--json]
       atoll-papers borrow DIR [--times 2000] [--blocks 7] [--any] [--json]
       atoll-papers bloom [--seeds 20] [--json]
       atoll-papers table3 DIR [--members 4] [--operations 15000] [--ganesha] [--short] [--json]
       atoll-papers failover DIR [--short] [--json]
       atoll-papers trips DIR [--islands 4] [--times 1000] [--short] [--json]
       atoll-papers scale DIR [--short] [--json]

imbalance: shows how evenly the directories and bytes below DIR would spread over the buckets and
islands of a volume (Archipelago, Tables 2 and 3). Reads names and lengths only.

borrow: measures in the mounted directory DIR what operations that span islands cost (Ursa Minor,
Table 3 and Figure 5). Makes a folder in DIR and removes it. --any: takes all directories for apart,
so that other file systems can be measured too.

bloom: shows how often a summary of names is wrong (FedFS, section 2.2). Needs no directory.

table3: measures how long NFS calls take over a plain tree and over unions of trees with the same files
(FedFS, Table 3). Root only. Makes a folder in DIR with 1.5 GiB and removes it. --ganesha: measures
nfs-ganesha too. --short: few files.

failover: counts the metadata operations that succeed while the nodes that lead are killed one after another (Ring FS,
Figure 4). Root only. Writes failover.svg and failover.tsv into DIR; takes five minutes. --short: 14 s, two copies only.

trips: counts what each operation of the benchmark asks for: requests of the kernel and to islands, messages between islands,
records, threads that are woken, bytes. Root only: it has the kernel forget what it knows. Makes a folder in DIR with a volume
of its own, and removes it; takes seven minutes. --short: half a minute, 20 times, without all that the daemon does later.

scale: measures what operations cost with 1 to 64 islands in one process, and computes the speed-up on as many machines (Archipelago,
Figures 13 and 15), and messages, stamps and memory of a volume with 10,000 islands. Root only. Makes a folder in DIR and removes it;
takes a quarter of an hour. --short: up to 8 islands, a minute.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Imbalance(Options),
    Borrow { effort: Effort, apart: Apart },
    Bloom { seeds: u32 },
    Table3 { size: Size, compared: Compared },
    Failover(Plan),
    Trips(trips::Plan),
    Scale(scale::Plan),
}

#[derive(Debug)]
struct Arguments {
    root: PathBuf,
    command: Command,
    json: bool,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
    let mut command = match args.next().as_deref().and_then(|a| a.to_str()) {
        Some("imbalance") => Command::Imbalance(Options::default()),
        Some("borrow") => Command::Borrow { effort: Effort::default(), apart: Apart::Islands },
        Some("bloom") => Command::Bloom { seeds: 20 },
        Some("table3") => {
            Command::Table3 { size: Size::PAPER, compared: Compared { members: 4, ganesha: false } }
        }
        Some("failover") => Command::Failover(Plan::PAPER),
        Some("trips") => Command::Trips(trips::Plan::FULL),
        Some("scale") => Command::Scale(scale::Plan::FULL),
        Some(other) => return Err(format!("no command {other:?}")),
        None => return Err("a command is missing".into()),
    };
    let (mut root, mut json) = (None, false);
    while let Some(arg) = args.next() {
        let mut number = |name: &str| {
            let value = args.next().ok_or(format!("{name} needs a number"))?;
            value
                .to_str()
                .and_then(|v| v.parse::<u64>().ok())
                .ok_or(format!("{name} needs a number, not {value:?}"))
        };
        let too_large = |e: std::num::TryFromIntError| e.to_string();
        match (arg.to_str(), &mut command) {
            (Some("--json"), _) => json = true,
            (Some(name @ "--buckets"), Command::Imbalance(options)) => {
                options.buckets = usize::try_from(number(name)?).map_err(too_large)?;
            }
            (Some(name @ "--islands"), Command::Imbalance(options)) => {
                options.islands = u16::try_from(number(name)?).map_err(|e| format!("{name}: {e}"))?;
            }
            (Some(name @ "--seed"), Command::Imbalance(options)) => options.seed = number(name)?,
            (Some(name @ "--times"), Command::Borrow { effort, .. }) => {
                effort.times = u32::try_from(number(name)?.max(1)).map_err(too_large)?;
            }
            (Some(name @ "--blocks"), Command::Borrow { effort, .. }) => {
                effort.blocks = u32::try_from(number(name)?.max(1)).map_err(too_large)?;
            }
            (Some(name @ "--seeds"), Command::Bloom { seeds }) => {
                *seeds = u32::try_from(number(name)?)
                    .ok()
                    .filter(|n| (1..=SEEDS_MAX).contains(n))
                    .ok_or(format!("{name} is between 1 and {SEEDS_MAX}"))?;
            }
            (Some(name @ "--members"), Command::Table3 { compared, .. }) => {
                compared.members = usize::try_from(number(name)?)
                    .ok()
                    .filter(|n| (2..=MEMBERS_MAX).contains(n))
                    .ok_or(format!("{name} is between 2 and {MEMBERS_MAX}"))?;
            }
            (Some(name @ "--operations"), Command::Table3 { size, .. }) => {
                size.operations = usize::try_from(number(name)?)
                    .ok()
                    .filter(|n| (1..=OPERATIONS_MAX).contains(n))
                    .ok_or(format!("{name} is between 1 and {OPERATIONS_MAX}"))?;
            }
            (Some("--ganesha"), Command::Table3 { compared, .. }) => compared.ganesha = true,
            (Some("--short"), Command::Table3 { size, .. }) => {
                *size = Size { operations: size.operations, ..Size::SHORT };
            }
            (Some("--short"), Command::Failover(plan)) => *plan = Plan::SHORT,
            (Some(name @ "--islands"), Command::Trips(plan)) => {
                plan.islands = u16::try_from(number(name)?)
                    .ok()
                    .filter(|n| (1..=trips::ISLANDS_MAX).contains(n))
                    .ok_or(format!("{name} is between 1 and {}", trips::ISLANDS_MAX))?;
            }
            (Some(name @ "--times"), Command::Trips(plan)) => {
                plan.times = usize::try_from(number(name)?)
                    .ok()
                    .filter(|n| (1..=trips::TIMES_MAX).contains(n))
                    .ok_or(format!("{name} is between 1 and {}", trips::TIMES_MAX))?;
            }
            (Some("--short"), Command::Trips(plan)) => {
                *plan = trips::Plan { islands: plan.islands, ..trips::Plan::SHORT };
            }
            (Some("--short"), Command::Scale(plan)) => *plan = scale::Plan::SHORT,
            (Some("--any"), Command::Borrow { apart, .. }) => *apart = Apart::Any,
            (Some(option), _) if option.starts_with('-') => return Err(format!("no option {option}")),
            (_, Command::Bloom { .. }) => return Err(format!("bloom needs no directory, such as {arg:?}")),
            _ if root.is_none() => root = Some(PathBuf::from(arg)),
            _ => return Err(format!("one directory at a time, not also {arg:?}")),
        }
    }
    if matches!(command, Command::Bloom { .. }) {
        root = Some(PathBuf::new());
    }
    Ok(Arguments { root: root.ok_or("a directory is missing")?, command, json })
}

/// A report, as it is shown and for programs.
fn shown<R: Display>(report: R, json: bool, to_json: impl Fn(&R) -> String) -> String {
    if json { to_json(&report) } else { report.to_string() }
}

fn run(Arguments { root, command, json }: &Arguments) -> io::Result<String> {
    match *command {
        Command::Imbalance(options) => {
            imbalance(root, options).map(|report| shown(report, *json, |report| report.to_json()))
        }
        Command::Borrow { effort, apart } => {
            borrow(root, effort, apart).map(|report| shown(report, *json, |report| report.to_json()))
        }
        Command::Table3 { size, compared } => table3(root, size, compared)
            .map(|report| shown(report, *json, |report| report.to_json()))
            .map_err(|why| io::Error::other(format!("{why:#}"))),
        Command::Failover(plan) => failover(root, plan)
            .map(|report| shown(report, *json, |report| report.to_json()))
            .map_err(|why| io::Error::other(format!("{why:#}"))),
        Command::Trips(plan) => trips(root, plan)
            .map(|report| shown(report, *json, |report| report.to_json()))
            .map_err(|why| io::Error::other(format!("{why:#}"))),
        Command::Scale(plan) => scale(root, plan)
            .map(|report| shown(report, *json, |report| report.to_json()))
            .map_err(|why| io::Error::other(format!("{why:#}"))),
        Command::Bloom { seeds } => Ok(shown(bloom(seeds), *json, |report| report.to_json())),
    }
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("atoll-papers: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(report) => println!("{report}"),
        Err(why) => {
            eprintln!("atoll-papers: {}: {why}", arguments.root.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let got = parsed("imbalance --json --islands 3 /x --buckets 64 --seed 9").unwrap();
        assert_eq!(got.command, Command::Imbalance(Options { buckets: 64, islands: 3, seed: 9 }));
        assert_eq!((got.root, got.json), (PathBuf::from("/x"), true));
        let got = parsed("borrow /x --any --times 5 --blocks 0").unwrap();
        assert_eq!(
            got.command,
            Command::Borrow {
                effort: Effort { times: 5, blocks: 1, ..Effort::default() },
                apart: Apart::Any
            }
        );
        let got = parsed("trips --islands 16 /x --short").unwrap();
        assert_eq!(got.command, Command::Trips(trips::Plan { islands: 16, ..trips::Plan::SHORT }));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_ignored() {
        for bad in [
            "",
            "spread /x",
            "imbalance",
            "imbalance /x /y",
            "imbalance /x --bucket 3",
            "imbalance /x --islands",
            "imbalance /x --islands many",
            "imbalance /x --islands 70000",
            "imbalance /x --any",
            "borrow /x --seed 3",
            "bloom /x",
            "bloom --seeds 0",
            "bloom --seeds 1001",
            "bloom --seed 3",
            "table3",
            "table3 /x --members 1",
            "table3 /x --members 17",
            "table3 /x --operations 0",
            "table3 /x --seeds 3",
            "failover",
            "failover /x --operations 3",
            "trips",
            "trips /x --islands 0",
            "trips /x --islands 257",
            "trips /x --times 0",
            "trips /x --times 10001",
            "trips /x --blocks 3",
            "scale",
            "scale /x --islands 4",
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
