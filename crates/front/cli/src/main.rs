//! The `atoll` command: reads arguments, composes the parts, prints what happened.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod check;
mod client;
mod confirm;
mod conflicts;
mod control;
mod daemonize;
mod doctor;
mod explain;
mod helper;
mod island;
mod log;
mod ls;
mod machines;
mod memory;
mod mount;
mod mount_options;
mod nfs;
mod node;
mod pages;
mod papers;
mod parent;
mod rebuild;
mod say;
mod serve;
mod signals;
mod site;
mod status;
mod table;
mod trash;
mod umount;
mod union;
mod up;
mod volume;
mod whatif;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Longest message about an error, in lines: what, why, what to do next.
const LINES_MAX: usize = 3;

/// One POSIX file tree out of the disks of several machines.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The credentials of this program, in a cluster with certificates; by default /etc/atoll/credentials.pem, or those of this
    /// machine's node. ATOLL_CREDENTIALS names them too
    #[arg(long, global = true, value_name = "FILE")]
    credentials: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve and mount a volume on this machine: everything in one process
    Up(up::Up),
    /// Make a cluster with encrypted links, and its first node on this machine
    Init(machines::Init),
    /// Make this machine a node of a cluster
    Join(machines::Join),
    /// Run a node: serve its part of volumes to other nodes and to mounts
    Serve(serve::Serve),
    /// Mount a volume
    Mount(mount::MountCommand),
    /// Serve a volume to NFS clients
    Nfs(nfs::Nfs),
    /// Show existing directories of this machine as one, without changing them
    Union(union::UnionCommand),
    /// Unmount a volume, and wait until its process has ended
    Umount(umount::Umount),
    /// List, invite, rename and remove nodes
    Node(node::Node),
    /// Add, list and remove machines that mount volumes and are no nodes
    Client(client::Client),
    /// Show where the records are of which copy leads
    Control(control::Control),
    /// Make and list volumes
    Volume(volume::Volume),
    /// Wait until every site of a wide volume has something durably, or say which have not
    Confirm(confirm::ConfirmCommand),
    /// List, show and resolve conflicts of wide volumes
    Conflicts(conflicts::ConflictsCommand),
    /// List and restore what other sites of a wide volume have removed or replaced, or remove it for good
    Trash(trash::TrashCommand),
    /// List, invite, join and remove sites of wide volumes
    Site(site::SiteCommand),
    /// Show the status of nodes, islands and mounts
    Status(status::Status),
    /// Look for what is wrong with this machine, its node and the others, and say what to do
    Doctor(doctor::Doctor),
    /// Show which island owns which part of the hash table
    Table(table::Table),
    /// Say which copy of an island leads
    Island(island::Island),
    /// Show where a file or directory is, and why there
    Explain(explain::Explain),
    /// Show what could not be reached if some nodes were down, and what has one copy left then
    Whatif(whatif::WhatIfCommand),
    /// List a whole tree as of one moment, while it may be changed
    Ls(ls::Ls),
    /// Look for damage in the data directory of a stopped node, and mend it
    Check(check::Check),
    /// Make the state of a volume from its plain trees alone, after it was lost or damaged
    Rebuild(rebuild::Rebuild),
    /// Print completions for a shell
    Completions(papers::Completions),
    /// Write the manual pages, for packagers
    Man(papers::Man),
}

fn main() -> ExitCode {
    log::end_with_a_panic();
    let mut arguments = std::env::args_os();
    let name = arguments.next().map(std::path::PathBuf::from);
    if name
        .as_deref()
        .and_then(|path| path.file_name())
        .is_some_and(|name| helper::NAMES.iter().any(|n| name == *n))
    {
        return helper::main(arguments);
    }
    let matches = pages::with_help(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|why| why.exit());
    let result = match use_credentials(&cli) {
        Ok(()) => run(cli.command),
        Err(why) => Err(why),
    };
    atoll_telemetry::finish();
    match result {
        Ok(code) => code,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// The certificates by which this process shows who it is. A node has those of its data directory.
fn use_credentials(cli: &Cli) -> anyhow::Result<()> {
    if matches!(cli.command, Command::Up(_) | Command::Serve(_) | Command::Init(_) | Command::Join(_)) {
        return Ok(());
    }
    let of_option = match &cli.command {
        Command::Mount(command) => command.credentials(),
        _ => None,
    };
    let named = cli.credentials.clone().or(of_option).or_else(credentials_of_environment);
    let data = match &cli.command {
        Command::Mount(command) => command.data(),
        Command::Volume(command) => command.data(),
        Command::Status(command) => command.data(),
        Command::Whatif(command) => command.data(),
        Command::Doctor(command) => command.data(),
        Command::Node(command) => Some(command.data()),
        Command::Client(command) => Some(command.data()),
        Command::Control(command) => Some(command.data()),
        Command::Site(command) => Some(command.data()),
        _ => None,
    };
    match atoll_volume::credentials::use_for_process(named.as_deref(), data) {
        // The doctor examines them itself.
        Err(_) if matches!(cli.command, Command::Doctor(_)) => Ok(()),
        used => used,
    }
}

/// The file of credentials that the environment names.
fn credentials_of_environment() -> Option<std::path::PathBuf> {
    std::env::var_os("ATOLL_CREDENTIALS").filter(|named| !named.is_empty()).map(std::path::PathBuf::from)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(command) => command.run(),
        Command::Init(command) => command.run(),
        Command::Join(command) => command.run(),
        Command::Node(command) => command.run(),
        Command::Client(command) => command.run(),
        Command::Control(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Mount(command) => command.run(),
        Command::Nfs(command) => command.run(),
        Command::Union(command) => command.run(),
        Command::Umount(command) => return Ok(command.run()),
        Command::Volume(command) => command.run(),
        Command::Conflicts(command) => command.run(),
        Command::Trash(command) => command.run(),
        Command::Site(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Doctor(command) => return command.run(),
        Command::Table(command) => command.run(),
        Command::Island(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Whatif(command) => command.run(),
        Command::Ls(command) => command.run(),
        Command::Check(command) => return Ok(command.run()),
        Command::Confirm(command) => {
            return Ok(if command.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Rebuild(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Says what went wrong.
fn complain(why: &anyhow::Error) {
    let text = format!("{why:#}");
    let lines: Vec<&str> = text.lines().take(LINES_MAX).collect();
    eprintln!("atoll: {}", lines.join("\n"));
}
