//! `atoll union`: show existing directories of this machine as one tree.

mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use atoll_union::Settings;
use atoll_volume::mounting::{Mount, check_point};
use atoll_volume::union::{self, MemberPath, UnionVolume, check_members, state_dir};

use crate::daemonize::{Parent, Waiting, fork};
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
    after_help = "Files stay where they are; nothing is stored in the directories. When the mount ends, the union is gone.\n\n\
        A directory may be named as DIR:ro (nothing is changed in it) or DIR:empty-ok (it may be empty although others are \
        mounted disks).\n\nOptions, beside those of `atoll mount`:\n  \
        place=dir|manager|room|existing|first   where new files go (dir: where their directory is)\n  \
        same=newest|first|both                  which of several files of one name is shown\n  \
        unlink=shown|all                        what an unlink removes\n  \
        away=fail|hide                          what is said of names on a missing disk (hide: that they do not exist)"
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
    /// Where unions keep what must outlive their processes, outside of all members
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show how unions and their members are
    Status(status::Status),
    /// Finish renames of directories that a process left half made, without showing a union
    Finish,
}

impl UnionCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Some(Command::Status(command)) => command.run(),
            Some(Command::Finish) => finish(self.state.as_deref()),
            None => self.show(),
        }
    }

    /// Shows directories without keeping anything of it.
    fn show(self) -> Result<()> {
        let (settings, rest) = settings(&self.options)?;
        let options = Options::default().with(rest)?;
        let (point, members) = self.places.split_last().expect("clap asks for two");
        let members: Vec<MemberPath> =
            members.iter().map(|text| MemberPath::parse(text)).collect::<Result<_>>()?;
        // Before the mount point is looked at: it may be a member that is about to be hidden.
        check_members(&members, Some(&absolute(point)?))?;
        let state = state_dir(self.state.as_deref(), &members)?;
        let point = check_point(point, false)?;
        let serve = |parent| serve(&members, settings, &state, &point, &options, parent, &self.log);
        if self.foreground {
            return serve(None);
        }
        match fork()? {
            Parent::Me(child) => child.wait(),
            Parent::Child(parent) => {
                let result = serve(Some(&parent));
                if parent.failed_if(&result) {
                    std::process::exit(1);
                }
                result
            }
        }
    }
}

/// Where a path leads, as far as it exists.
fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?)
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

/// Nobody else has this union mounted, so the kernel keeps its locks.
fn fuse_config(options: &Options) -> atoll_fuse::Config {
    atoll_fuse::Config { locks: atoll_fuse::Locks::Local, ..options.fuse_config() }
}

/// Settles what was left, and says what became of it.
fn finish(state: Option<&Path>) -> Result<()> {
    let settled = union::finish(&state_dir(state, &[])?)?;
    let (done, waiting): (Vec<_>, Vec<_>) = settled.iter().partition(|rename| rename.missing.is_empty());
    done.iter().for_each(|rename| say::line(format_args!("{}", union::told(rename))));
    if settled.is_empty() {
        say::line(format_args!("nothing was left half made"));
    }
    if !waiting.is_empty() {
        let told: Vec<String> = waiting.iter().map(|rename| union::told(rename)).collect();
        bail!("{}.\nMount what is missing, and run this again: atoll union finish", told.join("\n"));
    }
    Ok(())
}

fn serve(
    members: &[MemberPath],
    settings: Settings,
    state: &Path,
    point: &Path,
    options: &Options,
    parent: Option<&Waiting>,
    log: &Log,
) -> Result<()> {
    log.start(parent.is_some())?;
    let stop = crate::signals::block()?;
    crate::memory::keep_small();
    let source = members.iter().map(|member| member.path.display().to_string()).collect::<Vec<_>>().join(":");
    let volume = Arc::new(UnionVolume::open(source.clone(), members, settings, state)?);
    let mount = Mount::new(volume, point, &options.mount_options(&source), fuse_config(options))?;
    mount.when_ended(crate::signals::end_this_process)?;
    match parent {
        Some(parent) => parent.ready()?,
        None => {
            members.iter().for_each(|member| say::line(format_args!("member   {}", member.path.display())));
            say::line(format_args!("mounted  {}", mount.point().display()));
            say::line(format_args!("stop     Ctrl-C, or: atoll umount {}", mount.point().display()));
        }
    }
    stop.wait();
    mount.end();
    Ok(())
}
