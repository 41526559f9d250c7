//! `atoll nfs`: serve a volume to NFS clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::log::Log;
use crate::say;
use atoll_volume::kind::{Manner, attach};
use atoll_volume::nfs;
use atoll_volume::places::data_socket;
use atoll_volume::source::Source;

/// How long an operation waits for a node that is away, before the client gets an error.
const PATIENCE_MS: u64 = 10_000;

/// Arguments of `atoll nfs`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "atoll nfs HOST:PORT[,HOST:PORT...]:/VOLUME [OPTIONS]\n       \
    atoll nfs unix:/PATH/atoll.sock:/VOLUME [OPTIONS]\n       \
    atoll nfs --data DATA [--volume NAME] [OPTIONS]")]
pub(crate) struct Nfs {
    /// The volume to serve
    #[arg(required_unless_present = "data", conflicts_with = "data", value_name = "SOURCE")]
    source: Option<String>,
    /// Serve a volume of the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// With --data: which volume, if there are several
    #[arg(long, value_name = "NAME", requires = "data")]
    volume: Option<String>,
    /// The address to listen on, for NFS and for MOUNT. NFSv3 is clear text: trusted networks only
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2049")]
    listen: SocketAddr,
    /// Who may use what, as "[/PATH] CLIENT[(OPTION,...)]"; by default this machine. May be given again
    #[arg(long, value_name = "RULE")]
    export: Vec<String>,
    /// The file with the key that signs handles; made if it is not there. Servers of one volume share it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

impl Nfs {
    pub(crate) fn run(self) -> Result<()> {
        self.log.start(false)?;
        let stop = crate::signals::block()?;
        crate::memory::keep_small();
        let rules = nfs::rules(&self.export)?;
        let listener = nfs::listener(self.listen)?;
        let socket = self.data.as_deref().map(data_socket).transpose()?;
        let source = match (&self.source, &socket) {
            (Some(text), _) => text.parse()?,
            (None, Some(socket)) => Source::of_socket(socket, self.volume.clone()),
            (None, None) => bail!("The volume is missing.\nWrite: atoll nfs HOST:PORT:/VOLUME"),
        };
        let found = source.find()?;
        let key = match (&self.key, &self.data) {
            (Some(file), _) => file.clone(),
            (None, Some(data)) => data.join(nfs::KEY_FILE),
            (None, None) => nfs::state_key()?,
        };
        let key = nfs::signing_key(&key)?;
        let name = found.config.name.clone();
        let attached = attach(found.reach(None)?, Manner { mount: true, patience_ms: Some(PATIENCE_MS) })?;
        let server = match nfs::serve(&*attached, key, rules, listener) {
            Ok(server) => server,
            Err(why) => {
                attached.stop();
                return Err(why);
            }
        };
        if !self.listen.ip().is_loopback() {
            tracing::warn!(
                "NFSv3 is clear text and believes the user id that a client names.\n\
                Listen on {} in trusted networks only.",
                self.listen
            );
        }
        if !self.listen.ip().is_loopback() && self.export.is_empty() {
            tracing::warn!("no --export names another machine, so only this one may mount");
        }
        say::line(format_args!("volume   {name}"));
        say::line(format_args!("nfs      {}", server.address()));
        say::line(format_args!("mount    {}", nfs::mount_line(server.address(), &name)));
        say::line(format_args!("stop     Ctrl-C"));
        stop.wait();
        server.stop();
        attached.stop();
        Ok(())
    }
}
