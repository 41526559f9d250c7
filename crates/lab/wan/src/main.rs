//! `atoll-wan`: prints what links cost sites. Parses arguments; the measuring is the library's.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use atoll_torture::place::Place;
use atoll_wan::pair::Pair;
use atoll_wan::sites::Sites;
use atoll_wan::syncthing::Syncthing;
use atoll_wan::table::Figures;
use atoll_wan::wire::{LinkTerms, Wire};
use atoll_wan::{andrew, bytes, fill, hour, moves, visible};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Two sites behind a link, measured: the atoll binary (ATOLL_BIN, or the workspace's). Needs root, /dev/fuse and /dev/net/tun.
#[derive(Debug, Parser)]
#[command(name = "atoll-wan")]
struct Cli {
    /// Figures for programs
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// What keeps the two folders equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keeper {
    Atoll,
    Syncthing,
}

/// The two folders.
#[derive(Debug, Clone, Copy, Args)]
struct Kept {
    /// What keeps them equal
    #[arg(long, value_enum, default_value = "atoll")]
    of: Keeper,
    /// Seconds after which Syncthing looks at a change: 10 if nobody sets it, 1 at least
    #[arg(long, default_value_t = 1)]
    delay: u64,
}

/// The link.
#[derive(Debug, Clone, Copy, Args)]
struct Link {
    /// Milliseconds there and back
    #[arg(long)]
    round_trip: Option<u64>,
    /// Kilobits a second, each way; 0: any number
    #[arg(long)]
    rate: Option<u64>,
    /// So many of a million packets are lost, each way
    #[arg(long)]
    loss: Option<u32>,
}

impl Link {
    /// What is not said is as here.
    fn or(self, terms: (u64, u64, u32)) -> LinkTerms {
        let rate = self.rate.unwrap_or(terms.1);
        LinkTerms {
            round_trip: Duration::from_millis(self.round_trip.unwrap_or(terms.0)),
            rate: (rate > 0).then_some(rate * 1000),
            loss_ppm: self.loss.unwrap_or(terms.2),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A benchmark like Andrew's at a site whose link is bad, against a cluster volume of one island
    Andrew {
        #[command(flatten)]
        link: Link,
        /// So often on each
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// Directories of sources, of 20 files each
        #[arg(long, default_value_t = 20)]
        dirs: usize,
        /// So many files are compiled
        #[arg(long, default_value_t = 60)]
        compiled: usize,
    },
    /// A site that joins: its rate against the link's and the disk's, in one go and killed half-way
    Fill {
        #[command(flatten)]
        link: Link,
        /// So many files
        #[arg(long, default_value_t = 100_000)]
        files: u64,
        /// MB in all
        #[arg(long, default_value_t = 1000)]
        large: u64,
    },
    /// Both sites work while they are cut off, and meet again; nothing may be lost, back or doubled
    Hour {
        #[command(flatten)]
        link: Link,
        /// So long
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Operations at each site
        #[arg(long, default_value_t = 36_000)]
        operations: u64,
        /// Files before
        #[arg(long, default_value_t = 2000)]
        files: u64,
        /// Repeats the operations, though not their timing
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What becomes of names that both change while they are cut off from each other
    Moves {
        #[command(flatten)]
        of: Kept,
        #[command(flatten)]
        link: Link,
        /// For so many seconds both have time to notice what their own users did
        #[arg(long, default_value_t = 10)]
        noticed: u64,
    },
    /// Bytes that are sent for one change of large files and of names
    Bytes {
        #[command(flatten)]
        of: Kept,
        #[command(flatten)]
        link: Link,
        /// MB of the large file, and of the directory
        #[arg(long, default_value_t = 1000)]
        large: u64,
        /// Files of the directory
        #[arg(long, default_value_t = 1000)]
        files: u64,
        /// How often each change is made
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds for which the link is watched after a change was seen
        #[arg(long, default_value_t = 5)]
        watched: u64,
    },
    /// The time from close at one host until the other one can read it
    Visible {
        #[command(flatten)]
        of: Kept,
        #[command(flatten)]
        link: Link,
        /// So many files
        #[arg(long, default_value_t = 50)]
        files: usize,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(figures) if cli.json => println!("{:#}", figures.json()),
        Ok(figures) => println!("\n{figures}"),
        Err(why) => {
            println!("FAILED: {why:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Two folders that are kept equal, behind a link that holds nothing up.
fn pair(kept: Kept, place: &Place) -> Result<Box<dyn Pair>> {
    let wire = Wire::new(LinkTerms::FREE)?;
    Ok(match kept.of {
        Keeper::Atoll => Box::new(Sites::both(wire, place.path())?),
        Keeper::Syncthing => Box::new(Syncthing::start(wire, place.path(), kept.delay)?),
    })
}

fn run(command: &Command) -> Result<Figures> {
    let mut said = |line: String| eprintln!("{line}");
    match *command {
        Command::Andrew { link, rounds, dirs, compiled } => {
            let place = Place::new("wan")?;
            let terms = link.or((300, 1000, 10_000));
            let what = andrew::Andrew { terms, rounds, dirs, files: 20, compiled };
            kept(place, |place| andrew::run(&what, place, &mut said))
        }
        Command::Fill { link, files, large } => {
            let place = Place::new("wan")?;
            let what = fill::Fill { terms: link.or((20, 100_000, 0)), files, bytes: large * 1_000_000 };
            kept(place, |place| fill::run(&what, place, &mut said))
        }
        Command::Hour { link, minutes, operations, files, seed } => {
            let place = Place::new("wan")?;
            let (terms, cut) = (link.or((20, 100_000, 0)), Duration::from_secs(minutes * 60));
            let what = hour::Hour { terms, cut, operations, files, seed };
            kept(place, |place| {
                let sites = Sites::both(Wire::new(LinkTerms::FREE)?, place.path())?;
                hour::run(&what, &sites, &mut said)
            })
        }
        Command::Moves { of, link, noticed } => {
            let place = Place::new("wan")?;
            let what = moves::Moves { terms: link.or((20, 0, 0)), noticed: Duration::from_secs(noticed) };
            kept(place, |place| moves::run(&what, &*pair(of, place)?, &mut said))
        }
        Command::Bytes { of, link, large, files, rounds, watched } => {
            let place = Place::new("wan")?;
            let terms = link.or((20, 0, 0));
            let watched = Duration::from_secs(watched);
            let what = bytes::Bytes { terms, large: large * 1_000_000, files, rounds, watched };
            kept(place, |place| bytes::run(&what, &*pair(of, place)?, &mut said))
        }
        Command::Visible { of, link, files } => {
            let place = Place::new("wan")?;
            let what = visible::Visible { terms: link.or((300, 0, 0)), files };
            kept(place, |place| visible::run(&what, &*pair(of, place)?, &mut said))
        }
    }
}

/// If a measurement fails, its files stay.
fn kept(place: Place, measure: impl FnOnce(&Place) -> Result<Figures>) -> Result<Figures> {
    let measured = measure(&place);
    if measured.is_err() {
        let path: PathBuf = place.keep();
        eprintln!("data and what was said: {}", path.display());
    }
    measured
}
