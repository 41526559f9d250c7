//! `atoll mount`: mount a volume of other processes or machines.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::daemonize::{Waiting, in_background};
use crate::log::Log;
use crate::mount_options::Options;
use crate::say;
use atoll_volume::kind::{Manner, attach};
use atoll_volume::mounting::{Mount, check_point};
use atoll_volume::places::data_socket;
use atoll_volume::source::Source;

/// Arguments of `atoll mount`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "atoll mount HOST:PORT[,HOST:PORT...]:/VOLUME DIR [-o OPTIONS]\n       \
    atoll mount unix:/PATH/atoll.sock:/VOLUME DIR [-o OPTIONS]\n       \
    atoll mount --data DATA [--volume NAME] DIR [-o OPTIONS]")]
pub(crate) struct MountCommand {
    /// The volume to mount, then the directory to mount it on; with --data only the directory
    #[arg(required = true, num_args = 1..=2, value_names = ["SOURCE", "DIR"])]
    places: Vec<PathBuf>,
    /// Mount from the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// With --data: which volume, if there are several
    #[arg(long, value_name = "NAME", requires = "data")]
    volume: Option<String>,
    /// Options of the mount, with commas between them; --help lists them
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Stay in the foreground, as under a supervisor
    #[arg(long, short)]
    foreground: bool,
    #[command(flatten)]
    log: Log,
}

impl MountCommand {
    /// The data directory of the node that is asked, if one is named.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The credentials that an option of the mount names. Options that are wrong are refused when the command runs.
    pub(crate) fn credentials(&self) -> Option<PathBuf> {
        self.mount_options().ok().and_then(|options| options.credentials)
    }

    fn mount_options(&self) -> Result<Options> {
        Options::default().with(self.options.iter().map(String::as_str))
    }

    pub(crate) fn run(self) -> Result<()> {
        let options = self.mount_options()?;
        let (source, point) = match (&self.data, self.places.as_slice()) {
            (None, [source, point]) => {
                let Some(text) = source.to_str() else { bail!("{} names no volume.", source.display()) };
                (text.parse()?, point)
            }
            (None, _) => {
                bail!("The directory to mount on is missing.\nWrite: atoll mount HOST:PORT:/VOLUME DIR")
            }
            (Some(data), [point]) => {
                let socket = data_socket(data)?;
                // Kept open for the life of the process: its address may lead through it.
                let socket = Box::leak(Box::new(socket));
                (Source::of_socket(socket, self.volume.clone()), point)
            }
            (Some(_), _) => bail!("With --data only the directory to mount on is named."),
        };
        mount(&source, point, &options, self.foreground, &self.log)
    }
}

/// Mounts, and serves the mount: in the background unless told otherwise.
pub(crate) fn mount(
    source: &Source,
    point: &Path,
    options: &Options,
    foreground: bool,
    log: &Log,
) -> Result<()> {
    let point = check_point(point, false)?;
    in_background(foreground, |parent| serve(source, &point, options, parent, log))
}

fn serve(
    source: &Source,
    point: &Path,
    options: &Options,
    parent: Option<&Waiting>,
    log: &Log,
) -> Result<()> {
    log.start(parent.is_some())?;
    let stop = crate::signals::block()?;
    crate::memory::keep_small();
    let found = source.find()?;
    let manner = Manner { mount: true, keeps: options.keeps(), patience_ms: options.patience_ms };
    let name = found.config.name.clone();
    let attached = attach(found.reach(None)?, manner)?;
    let mount =
        Mount::new(attached, point, &options.mount_options(&source.shown(&name)), options.fuse_config())?;
    mount.when_ended(crate::signals::end_this_process)?;
    match parent {
        Some(parent) => parent.ready()?,
        None => {
            say::line(format_args!("volume   {name}"));
            say::line(format_args!("mounted  {}", mount.point().display()));
            say::line(format_args!("stop     Ctrl-C, or: atoll umount {}", mount.point().display()));
        }
    }
    stop.wait();
    mount.end();
    Ok(())
}
