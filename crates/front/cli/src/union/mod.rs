//! `atoll union`: show existing directories of this machine as one tree, and manage such unions.

mod conflicts;
mod roster;
mod show;
mod start;
mod status;
mod stop;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_union::Settings;
use atoll_volume::union::{self as unions, state_dir};

use show::Exported;
pub(crate) use show::{NFS_NAME, Showing};

use crate::log::Log;
use crate::mount_options::Options;
use crate::say;

/// Arguments of `atoll union`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "atoll union DIR... MOUNT [-o OPTIONS]\n       atoll union COMMAND",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "Files stay where they are; nothing is stored in the directories. When the mount ends, the union is gone. \
        A union that is started by a name is remembered, and its members are recognised.\n\n\
        A directory may be named as DIR:ro (nothing is changed in it), DIR:empty-ok (it may be empty although others are \
        mounted disks) or DIR@UUID (it must lie on this file system).\n\nOptions, beside those of `atoll mount`:\n  \
        place=dir|manager|room|existing|first   where new files go (dir: where their directory is)\n  \
        same=newest|first|both                  which of several files of one name is shown\n  \
        unlink=shown|all                        what an unlink removes\n  \
        away=fail|hide                          what is said of names on a missing disk (hide: that they do not exist)\n  \
        locks=local|native                      against whom locks hold (native: programs that use the directories, too)\n  \
        grace=SECONDS                           how long a deleted file can be copied back (atoll union undelete); default 0"
)]
pub(crate) struct UnionCommand {
    #[command(subcommand)]
    command: Option<Command>,
    /// The directories to show as one, then the directory to mount them on
    #[arg(required = true, num_args = 2.., value_names = ["DIR", "MOUNT"])]
    places: Vec<PathBuf>,
    /// Options of the union and of the mount, with commas between them
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Stay in the foreground, as under a supervisor
    #[arg(long, short)]
    foreground: bool,
    /// The folder in which unions keep what outlives their processes, outside of all members. The default is
    /// /var/lib/atoll/union for root, and atoll/union in $XDG_STATE_HOME for other users
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    /// Serve the union to NFS clients too, as /union; by default at 127.0.0.1:2049
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:2049")]
    nfs: Option<SocketAddr>,
    /// With --nfs: who may use what, as "[/PATH] CLIENT[(OPTION,...)]"; by default this machine. May be given again
    #[arg(long, value_name = "RULE", requires = "nfs")]
    export: Vec<String>,
    /// With --nfs: the file with the key that signs handles; made if it is not there
    #[arg(long, value_name = "FILE", requires = "nfs")]
    key: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show a union that is remembered under a name, or define it
    Start(start::Start),
    /// Take a union away, and wait until its process has ended
    Stop(stop::Stop),
    /// Show a directory, too, in a union that is shown
    Join(roster::Join),
    /// Show a member of a union no longer; its files stay in it
    Leave(roster::Leave),
    /// List names that several members have with different contents
    Conflicts(conflicts::Conflicts),
    /// Remove the files of a name in all members but one
    Resolve(conflicts::Resolve),
    /// Copy a file back that was just deleted through a union with grace=SECONDS
    Undelete(conflicts::Undelete),
    /// Show how unions and their members are
    Status(status::Status),
    /// Finish renames of directories that a process left half made, without showing a union
    Finish,
}

impl UnionCommand {
    pub(crate) fn run(self) -> Result<()> {
        let state = self.state.as_deref();
        match self.command {
            Some(Command::Start(command)) => command.run(state),
            Some(Command::Stop(command)) => command.run(state),
            Some(Command::Join(command)) => command.run(state),
            Some(Command::Leave(command)) => command.run(state),
            Some(Command::Conflicts(command)) => command.run(state),
            Some(Command::Resolve(command)) => command.run(),
            Some(Command::Undelete(command)) => command.run(),
            Some(Command::Status(command)) => command.run(state),
            Some(Command::Finish) => finish(state),
            None => {
                let (settings, rest) = settings(&self.options)?;
                let mut showing = Showing::new(&self.places, settings, Options::default().with(rest)?)?;
                showing.nfs =
                    self.nfs.map(|listen| Exported::new(listen, &self.export, self.key)).transpose()?;
                showing.show(state, None, self.foreground, &self.log)
            }
        }
    }
}

/// The union's settings among the options, and the other options.
pub(crate) fn settings(words: &[String]) -> Result<(Settings, Vec<&str>)> {
    let (mut settings, mut rest) = (Settings::default(), Vec::new());
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            rest.push(word.as_str());
            continue;
        };
        match settings.set(key, value) {
            Some(true) => {}
            Some(false) => bail!("The option {key} does not know \"{value}\".\nSee: atoll union --help"),
            None => rest.push(word.as_str()),
        }
    }
    Ok((settings, rest))
}

/// Settles what was left, and says what became of it.
fn finish(state: Option<&Path>) -> Result<()> {
    let settled = unions::finish(&state_dir(state, &[])?)?;
    let (done, waiting): (Vec<_>, Vec<_>) = settled.iter().partition(|rename| rename.missing.is_empty());
    done.iter().for_each(|rename| say::line(format_args!("{}", unions::told(rename))));
    if settled.is_empty() {
        say::line(format_args!("nothing was left half made"));
    }
    if !waiting.is_empty() {
        let told: Vec<String> = waiting.iter().map(|rename| unions::told(rename)).collect();
        bail!("{}.\nMount what is missing, and run this again: atoll union finish", told.join("\n"));
    }
    Ok(())
}
