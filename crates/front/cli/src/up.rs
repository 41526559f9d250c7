//! `atoll up`: serve and mount a volume in one process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use atoll_control::check_volume_name;
use atoll_fuse::MountOptions;
use atoll_rpc::{Address, Listener, Options};

use crate::log::Log;
use crate::say;
use atoll_volume::kind::{Manner, attach};
use atoll_volume::mounting::{Mount, check_point};
use atoll_volume::nfs;
use atoll_volume::node::Daemon;
use atoll_volume::reach::Here;
use atoll_volume::source::Found;

/// Arguments of `atoll up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// The data directory; made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The directory to mount the volume on; made if it is not there, with the directories above it
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    /// Name of the volume; made if there is none
    #[arg(long, default_value = "main", value_name = "NAME")]
    volume: String,
    /// Number of islands of a new volume
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    islands: u16,
    /// Let other machines mount the volume too. There is no authentication: trusted networks only
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<Address>,
    /// Serve metrics at http://ADDR/metrics. There is no authentication: trusted networks only
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Serve the volume to NFS clients of this machine too, by default at 127.0.0.1:2049
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:2049")]
    nfs: Option<std::net::SocketAddr>,
    #[command(flatten)]
    log: Log,
}

impl Up {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        self.log.start(false)?;
        let stop = crate::signals::block()?;
        crate::memory::keep_small();
        check_volume_name(&self.volume)
            .map_err(|e| anyhow!("\"{}\" cannot name a volume: {}.", e.text, e.why))?;
        let point = check_point(&self.mount, true)?;
        if std::path::absolute(&self.data)?.starts_with(&point) {
            bail!(
                "The data directory {} would be hidden by the mount on {}.\nPut one of them elsewhere.",
                self.data.display(),
                point.display()
            );
        }
        // Before anything is made that would be left behind if the address is taken.
        let bound =
            self.listen.as_ref().map(|address| Listener::bind(address, &Options::default())).transpose()?;
        let nfs = self.nfs.map(nfs::listener).transpose()?;
        let mut daemon = Daemon::take(&self.data)?;
        let mut failed = daemon.node.greet_all()?;
        // Others hear of this life of the node before its islands are open, which may take long.
        if let Err(why) = daemon.listen(bound) {
            daemon.stop()?;
            return Err(why);
        }
        failed.extend(daemon.node.open_all());
        if let Some(why) = daemon.node.problem(&self.volume) {
            // Alone: what fails with the others is no answer to this command.
            daemon.stop()?;
            bail!(why);
        }
        failed.iter().for_each(|why| tracing::error!("{why}"));
        let result = self.serve(&daemon, &point, nfs, &stop);
        let stopped = daemon.stop();
        result.and(stopped)
    }

    fn serve(
        &self,
        daemon: &Daemon,
        point: &std::path::Path,
        nfs: Option<std::net::TcpListener>,
        stop: &crate::signals::Signals,
    ) -> Result<()> {
        let mut is_new = false;
        let volume = match daemon.node.volume(&self.volume) {
            Some(volume) => volume,
            None => {
                let address = daemon.tcp.as_ref().map(ToString::to_string).unwrap_or_default();
                daemon.make_volume(&self.volume, self.islands, address)?;
                is_new = true;
                daemon.node.volume(&self.volume).ok_or_else(|| anyhow!("The new volume is not served."))?
            }
        };
        let found = || Found {
            config: (*volume.config()).clone(),
            teller: daemon.socket.address.clone(),
            node: Some(volume.node()),
            root: None,
        };
        let manner = Manner { mount: true, keeps: true, patience_ms: Some(10_000) };
        let socket = format!("unix:{}", daemon.socket.shown.display());
        let here = || Here { served: Arc::clone(&volume), address: socket.clone() };
        let attached = attach(found().reach(Some(here()))?, manner)?;
        // Others on this machine can mount the volume by it.
        let options = MountOptions::new(&format!("{socket}:/{}", self.volume));
        let mount = Mount::new(attached, point, &options, atoll_fuse::Config::default())?;
        daemon.node.mounted(mount.status());
        let metrics = self.metrics.map(|address| daemon.show_metrics(address)).transpose()?;
        let mut nfs_server = None;
        if let Some(listener) = nfs {
            let key = nfs::signing_key(&daemon.dir.path().join(nfs::KEY_FILE));
            // A session of its own: a session has one watcher.
            let served = key.and_then(|key| {
                let attached = attach(found().reach(Some(here()))?, manner)?;
                match nfs::serve(&*attached, key, nfs::rules(&[])?, listener) {
                    Ok(server) => Ok((server, attached)),
                    Err(why) => {
                        attached.stop();
                        Err(why)
                    }
                }
            });
            match served {
                Ok(served) => nfs_server = Some(served),
                Err(why) => {
                    daemon.node.forget_process();
                    mount.end();
                    return Err(why);
                }
            }
        }
        // Whoever unmounts it ends the process as a signal does.
        mount.when_ended(crate::signals::end_this_process)?;
        let data = std::fs::canonicalize(daemon.dir.path()).unwrap_or_else(|_| self.data.clone());
        let islands = volume.islands().len();
        let how = if is_new { "new" } else { "found" };
        let word = if islands == 1 { "island" } else { "islands" };
        say::line(format_args!("volume   {} ({how}, {islands} {word})", self.volume));
        say::line(format_args!("mounted  {}", mount.point().display()));
        say::line(format_args!("data     {}", data.display()));
        say::line(format_args!(
            "plain    {}/*/tree",
            data.join(atoll_server::ISLANDS).join(&self.volume).display()
        ));
        say::line(format_args!("socket   {socket}"));
        if let Some(tcp) = &daemon.tcp {
            say::line(format_args!("listens  {tcp}"));
        }
        if let Some(address) = metrics {
            say::line(format_args!("metrics  http://{address}/metrics"));
        }
        if let Some((server, _)) = &nfs_server {
            say::line(format_args!("nfs      {}", nfs::mount_line(server.address(), &self.volume)));
        }
        say::line(format_args!("stop     Ctrl-C, or: atoll umount {}", mount.point().display()));
        stop.wait();
        if let Some((server, attached)) = nfs_server {
            server.stop();
            attached.stop();
        }
        daemon.node.forget_process();
        mount.end();
        Ok(())
    }
}
