//! `atoll-torture`: the long forms of this crate's tests.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use atoll_torture::cluster::{Cluster, Shape, Volume};
use atoll_torture::copies::{self, Copies};
use atoll_torture::daemon::Launch;
use atoll_torture::fault::Kind;
use atoll_torture::filling::{self, Filling};
use atoll_torture::history::{self, Histories};
use atoll_torture::kill9::{self, Kill9};
use atoll_torture::large::{self, Large, Sizes};
use atoll_torture::link::{self, Links};
use atoll_torture::million::{self, Million};
use atoll_torture::pauses::{self, Mode, Pauses};
use atoll_torture::place::Place;
use atoll_torture::starved::{self, Starved};
use atoll_torture::{pjdfstest, programs, race, reader};
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
    /// Real programs inside the mount: fsx, fio, git, SQLite, builds, copies, and what tools do with directories
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
        #[command(flatten)]
        over: Over,
        /// Kill nodes in turn, of several, and start them again; programs must not notice
        #[arg(long)]
        kill: bool,
    },
    /// Clients on several mounts, while nodes are killed and ways between them cut; there must be an order of all that
    /// they were told, and `atoll check` must be clean. Needs `ip`; its networks cannot be seen from outside
    History {
        #[command(flatten)]
        over: Many,
        /// At least so many operations, all together
        #[arg(long, default_value_t = 1_000_000)]
        operations: u64,
        /// And so many crashes; 0: nobody is killed
        #[arg(long, default_value_t = 500)]
        crashes: u64,
        /// Repeats what is called, killed and cut, though not when
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Kill, but do not cut
        #[arg(long)]
        no_cuts: bool,
        /// Only the operations of Table 5 of Archipelago, which move no name: otherwise every other round has others
        #[arg(long)]
        paper: bool,
        /// Operations of a round, whose history is judged
        #[arg(long, default_value_t = 15_000)]
        round: u64,
        /// After so many rounds everything is stopped and checked
        #[arg(long, default_value_t = 8)]
        check_every: u64,
        /// Do not end at the first round without an order
        #[arg(long)]
        go_on: bool,
        /// Where histories without an order are kept
        #[arg(long, value_name = "DIR", default_value = ".")]
        keep: PathBuf,
    },
    /// What a filling costs clients, and whether the time that `atoll status` tells of it is right: figures of two copies on three
    /// nodes, whose disks are wiped. Needs `ip`, and a release build
    Filling {
        /// So many files of 8 KiB
        #[arg(long, default_value_t = 10_000)]
        small: usize,
        /// So many files of 4 MiB
        #[arg(long, default_value_t = 200)]
        large: usize,
        /// So often a disk is wiped
        #[arg(long, default_value_t = 2)]
        rounds: usize,
        /// So many seconds of each round clients are watched with all copies, and with one
        #[arg(long, default_value_t = 10)]
        quiet: u64,
    },
    /// Clients and workers on a volume whose islands have copies, while nodes die, stand still, are cut off, or have disks
    /// without space or that fail; nothing that was acknowledged may be lost, and all copies are the same in the end. Needs
    /// `ip`; its networks cannot be seen from outside
    Copies {
        /// So many nodes over TCP; the first one has the control store, and no copies
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// So many copies of each island
        #[arg(long, default_value_t = 2)]
        replicas: usize,
        /// So many mounts of these nodes
        #[arg(long, default_value_t = 3)]
        mounts: usize,
        /// At least so many operations, all together
        #[arg(long, default_value_t = 20_000)]
        ops: u64,
        /// And so many faults
        #[arg(long, default_value_t = 20)]
        faults: u64,
        /// Repeats what is called and what goes wrong, though not when
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only faults of these kinds: kill restart freeze plug cut one-way store wiped full broken
        #[arg(long, value_delimiter = ',')]
        kinds: Vec<String>,
        /// Each node has a disk of its own of so many MiB, which gets full or fails; 0: none has
        #[arg(long, default_value_t = 0)]
        disk_mib: u64,
        /// Do not compare the plain trees of stopped nodes
        #[arg(long)]
        no_trees: bool,
        /// When an operation hangs, everything is left as it is for so many seconds
        #[arg(long, default_value_t = 0)]
        stay: u64,
        /// Operations of a round, whose history is judged
        #[arg(long, default_value_t = 4_000)]
        round: u64,
        /// After so many rounds everything is stopped, and plain trees are compared
        #[arg(long, default_value_t = 3)]
        check_every: u64,
        /// Only operations that move no name: otherwise every other round has others
        #[arg(long)]
        paper: bool,
        /// Where histories without an order are kept
        #[arg(long, value_name = "DIR", default_value = ".")]
        keep: PathBuf,
    },
    /// How long a client waits when the node that leads an island dies or falls silent, many times; with calls to other islands
    /// meanwhile. Needs `ip`; its networks cannot be seen from outside
    Pauses {
        /// So many nodes over TCP; the first one has the control store, and no copies
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// So many copies of each island
        #[arg(long, default_value_t = 2)]
        replicas: usize,
        /// How often
        #[arg(long, default_value_t = 30)]
        faults: u64,
        /// What happens to the node
        #[arg(long, value_enum, default_value = "restart")]
        mode: Mode,
        /// Repeats which nodes are met
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// One node gets a part of the processor only, under load: no island may change its primary. Needs `ip`; its networks cannot
    /// be seen from outside
    Starved {
        /// So many nodes over TCP; the first one has the control store, and no copies
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// So many copies of each island
        #[arg(long, default_value_t = 2)]
        replicas: usize,
        /// For so long
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// So many of a hundred milliseconds it may run
        #[arg(long, default_value_t = 10)]
        percent: u64,
    },
    /// Each single way between nodes, and between the mount and a node, is cut in turn while programs work; nothing may
    /// fail, and `atoll check` must be clean. Needs `ip`; its networks cannot be seen from outside
    Links {
        /// So many nodes over TCP
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// How long it is measured with each way cut, in seconds
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Only the first so many ways
        #[arg(long)]
        ways: Option<usize>,
    },
    /// A user without rights makes everything as large as it may be, and the mount is killed while it holds all of that
    Large {
        /// How long
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Smaller, as in the tests
        #[arg(long)]
        short: bool,
        /// So many nodes over TCP
        #[arg(long, default_value_t = 4)]
        nodes: usize,
    },
    /// What that user does
    #[command(hide = true)]
    LargeUser {
        /// Where
        dir: PathBuf,
        #[command(flatten)]
        sizes: Sizes,
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
        #[command(flatten)]
        over: Over,
    },
    /// Two mounts race mv a b/d/e against mv b a/c/e
    Race {
        /// How often
        #[arg(long, default_value_t = 10_000)]
        rounds: u32,
        /// Repeats who begins when
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// So many nodes over TCP
        #[arg(long, default_value_t = 4)]
        nodes: usize,
        /// Kill nodes in turn, and start them again
        #[arg(long)]
        kill: bool,
    },
    /// Readers open a name that a writer replaces again and again
    Reader {
        /// How often it is replaced
        #[arg(long, default_value_t = 100_000)]
        rounds: u64,
        /// Repeats contents and pauses
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Kill nodes in turn, and start them again
        #[arg(long)]
        kill: bool,
        /// The writer syncs each so many rounds
        #[arg(long, default_value_t = 1)]
        fsync_every: u64,
        #[command(flatten)]
        over: Many,
    },
}

/// What it is done over.
#[derive(Debug, clap::Args)]
struct Over {
    /// One process with four islands; or so many nodes over TCP, if more than 1
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// So many mounts of these nodes
    #[arg(long, default_value_t = 1)]
    mounts: usize,
}

impl Over {
    fn shape(&self, kill: bool) -> Shape {
        Shape { nodes: self.nodes, mounts: self.mounts, kill }
    }
}

/// The same, over TCP in any case.
#[derive(Debug, clap::Args)]
struct Many {
    /// So many nodes over TCP
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// So many mounts of these nodes
    #[arg(long, default_value_t = 2)]
    mounts: usize,
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
        Command::Work { all, names, short, over, kill } => {
            ensure!(all || !names.is_empty(), "say --all, or some of: {}", programs::names().join(" "));
            let place = Place::new("work")?;
            let mut volume = Volume::start(place.path(), &over.shape(kill))?;
            let scale = if short { programs::Scale::Short } else { programs::Scale::Long };
            let mounts = volume.mounts();
            let run =
                || programs::run_all(&mounts, place.path(), scale, &names, &mut |line| println!("{line}"));
            match &mut volume {
                Volume::Many(cluster) if kill => {
                    let ((), kills) = cluster.while_killing(1, |_| run())?;
                    println!("{kills} kills");
                }
                _ => run()?,
            }
            volume.stop()?;
        }
        Command::History {
            over: Many { nodes, mounts },
            operations,
            crashes,
            seed,
            no_cuts,
            paper,
            round,
            check_every,
            go_on,
            keep,
        } => {
            let cuts = !no_cuts;
            let what = Histories {
                nodes,
                mounts,
                operations,
                crashes,
                seed,
                cuts,
                paper,
                round,
                check_every,
                go_on,
                keep,
            };
            let place = Place::new("history")?;
            let report = match history::run(&what, place.path(), &mut |line| println!("{line}")) {
                Ok(report) => report,
                Err(why) => {
                    println!("data and what was said: {}", place.keep().display());
                    return Err(why);
                }
            };
            println!("{report}");
            ensure!(report.broken + report.undecided == 0, "not all rounds have an order");
        }
        Command::Copies {
            nodes,
            replicas,
            mounts,
            ops,
            faults,
            seed,
            kinds,
            disk_mib,
            no_trees,
            stay,
            round,
            check_every,
            paper,
            keep,
        } => {
            let kinds = match (kinds.is_empty(), disk_mib) {
                (true, 0) => Kind::PLAIN.to_vec(),
                (true, _) => Kind::ALL.to_vec(),
                _ => kinds.iter().map(|name| Kind::of_name(name)).collect::<Result<_>>()?,
            };
            let histories = Histories {
                nodes,
                mounts,
                operations: ops,
                crashes: 0,
                seed,
                cuts: false,
                paper,
                round,
                check_every,
                go_on: false,
                keep,
            };
            println!("seed {seed}: {nodes} nodes, {replicas} copies, {mounts} mounts");
            let what = Copies {
                histories,
                replicas,
                faults,
                kinds,
                disk_mib,
                compares: !no_trees,
                stay: Duration::from_secs(stay),
            };
            let place = Place::new("copies")?;
            match copies::run(&what, place.path(), &mut |line| println!("{line}")) {
                Ok(report) => println!("{report}"),
                Err(why) => {
                    println!("data and what was said: {}", place.keep().display());
                    return Err(why);
                }
            }
        }
        Command::Filling { small, large, rounds, quiet } => {
            let place = Place::new("filling")?;
            let what = Filling { small, large, rounds, quiet: Duration::from_secs(quiet) };
            println!("{}", filling::run(&what, place.path(), &mut |line| println!("{line}"))?);
        }
        Command::Pauses { nodes, replicas, faults, mode, seed } => {
            let place = Place::new("pauses")?;
            let what = Pauses { nodes, replicas, faults, mode, seed };
            match pauses::run(&what, place.path(), &mut |line| println!("{line}")) {
                Ok(report) => println!("{report}"),
                Err(why) => {
                    println!("data and what was said: {}", place.keep().display());
                    return Err(why);
                }
            }
        }
        Command::Starved { nodes, replicas, seconds, percent } => {
            let place = Place::new("starved")?;
            let what = Starved { nodes, replicas, time: Duration::from_secs(seconds), percent };
            match starved::run(&what, place.path(), &mut |line| println!("{line}")) {
                Ok(report) => println!("{report}"),
                Err(why) => {
                    println!("data and what was said: {}", place.keep().display());
                    return Err(why);
                }
            }
        }
        Command::Links { nodes, seconds, ways } => {
            let place = Place::new("links")?;
            let only = ways.map(|count| link::ways(nodes).into_iter().take(count).collect());
            let what = Links { nodes, measured: std::time::Duration::from_secs(seconds), only };
            if let Err(why) = link::run(&what, place.path(), &mut |line| println!("{line}")) {
                println!("data and what was said: {}", place.keep().display());
                return Err(why);
            }
        }
        Command::Million { files } => {
            let place = Place::new("million")?;
            let report = million::run(&Million { files, launch: Launch::new(place.path()) }, &mut |line| {
                println!("{line}")
            })?;
            println!("{report:#?}");
        }
        Command::Pjdfstest { pattern, over } => {
            let place = Place::new("pjdfstest")?;
            let volume = Volume::start(place.path(), &over.shape(false))?;
            let mount = &volume.mounts()[0];
            let report = pjdfstest::run(mount, place.path(), pattern.as_deref())?;
            print!("{report}");
            ensure!(report.is_expected(), "not as expected");
            if pattern.is_none() {
                pjdfstest::link_count_max(mount)?;
                println!("as many names of a file as are promised: fine");
            }
            volume.stop()?;
        }
        Command::Race { rounds, seed, nodes, kill } => {
            let place = Place::new("race")?;
            let mut cluster = Cluster::start(place.path(), &Shape { nodes, mounts: 2, kill })?;
            let what = race::Race { rounds, seed, kills: u64::from(kill), read_every: 20 };
            let report = race::run(&what, &mut cluster, &mut |line| println!("{line}"))?;
            print!("{report}");
            cluster.stop()?;
        }
        Command::Large { minutes, short, nodes } => {
            let place = Place::new("large")?;
            let mut cluster = Cluster::start(place.path(), &Shape { nodes, mounts: 2, kill: false })?;
            let sizes = if short { Sizes::SHORT } else { Sizes::LONG };
            let program = large::for_everyone(&std::env::current_exe()?, place.path())?;
            let what = Large { time: Duration::from_secs(minutes * 60), sizes, program };
            let report = large::run(&what, &mut cluster, &mut |line| println!("{line}"))?;
            println!("{report}");
            cluster.stop()?;
        }
        Command::LargeUser { dir, sizes } => large::user(&dir, &sizes)?,
        Command::Reader { rounds, seed, kill, fsync_every, over: Many { nodes, mounts } } => {
            let place = Place::new("reader")?;
            let mut cluster = Cluster::start(place.path(), &Shape { nodes, mounts, kill })?;
            let what = reader::Reader { rounds, seed, kills: u64::from(kill), fsync_every };
            let report = reader::run(&what, &mut cluster, &mut |line| println!("{line}"))?;
            print!("{report}");
            cluster.stop()?;
            ensure!(report.wrong.is_empty(), "a reader or the writer met what must not be");
        }
    }
    Ok(())
}
