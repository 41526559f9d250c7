//! `atoll nfs`: serve a volume to NFS clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};

use crate::log::Log;
use crate::say;
use atoll_union::Settings;
use atoll_volume::kind::{Attached, Manner, attach};
use atoll_volume::nfs;
use atoll_volume::places::data_socket;
use atoll_volume::source::Source;
use atoll_volume::union::{MemberPath, UnionVolume, check_members, state_dir};

/// How long an operation waits for a node that is away, before the client gets an error.
const PATIENCE_MS: u64 = 10_000;

/// Arguments of `atoll nfs`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "atoll nfs HOST:PORT[,HOST:PORT...]:/VOLUME [OPTIONS]\n       \
    atoll nfs unix:/PATH/atoll.sock:/VOLUME [OPTIONS]\n       \
    atoll nfs --data DATA [--volume NAME] [OPTIONS]\n       \
    atoll nfs --union DIR [--union DIR...] [OPTIONS]")]
pub(crate) struct Nfs {
    /// The volume to serve
    #[arg(required_unless_present_any = ["data", "union"], conflicts_with_all = ["data", "union"], value_name = "SOURCE")]
    source: Option<String>,
    /// Serve a volume of the daemon of this machine that uses this data directory
    #[arg(long, value_name = "DATA")]
    data: Option<PathBuf>,
    /// With --data: which volume, if there are several
    #[arg(long, value_name = "NAME", requires = "data")]
    volume: Option<String>,
    /// Serve directories of this machine as one, without a daemon; as /union. May be given again
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    union: Vec<PathBuf>,
    /// Where a union keeps what must outlive its process, outside of all members
    #[arg(long, requires = "union", value_name = "DIR")]
    state: Option<PathBuf>,
    /// The address to listen on, for NFS and for MOUNT. NFSv3 is clear text: trusted networks only
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2049")]
    listen: SocketAddr,
    /// Answer as a portmapper too, at this address; by default at port 111 of the address of --listen. Then clients need no
    /// port= and mountport=
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1)]
    portmap: Option<Option<SocketAddr>>,
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
        let attached = self.attach()?;
        let name = attached.config().name.clone();
        // The key is made when the volume is there: a command that is refused leaves nothing behind.
        let key = || match (&self.key, &self.data) {
            (Some(file), _) => nfs::signing_key(file),
            (None, Some(data)) => nfs::signing_key(&data.join(nfs::KEY_FILE)),
            (None, None) => nfs::signing_key(&nfs::state_key()?),
        };
        let server = match key().and_then(|key| nfs::serve(&*attached, key, rules, listener)) {
            Ok(server) => server,
            Err(why) => {
                attached.stop();
                return Err(why);
            }
        };
        let own = SocketAddr::new(self.listen.ip(), nfs::PORTMAP_PORT);
        let portmap = self.portmap.map(|at| server.portmap(at.unwrap_or(own)).map_err(|why| anyhow!(why)));
        let portmap = match portmap.transpose() {
            Ok(portmap) => portmap,
            Err(why) => {
                server.stop();
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
        if let Some(at) = portmap {
            say::line(format_args!("portmap  {at}"));
        }
        say::line(format_args!("mount    {}", nfs::mount_line(server.address(), &name)));
        say::line(format_args!("stop     Ctrl-C"));
        stop.wait();
        server.stop();
        attached.stop();
        Ok(())
    }

    /// The volume, on a session of its own.
    fn attach(&self) -> Result<Arc<dyn Attached>> {
        if !self.union.is_empty() {
            let members: Vec<MemberPath> =
                self.union.iter().map(|text| MemberPath::parse(text)).collect::<Result<_>>()?;
            check_members(&members, None)?;
            let state = state_dir(self.state.as_deref(), &members)?;
            return Ok(Arc::new(UnionVolume::open(
                crate::union::NFS_NAME.to_owned(),
                &members,
                Settings::default(),
                &state,
            )?));
        }
        let socket = self.data.as_deref().map(data_socket).transpose()?;
        let source = match (&self.source, &socket) {
            (Some(text), _) => text.parse()?,
            (None, Some(socket)) => Source::of_socket(socket, self.volume.clone()),
            (None, None) => bail!("The volume is missing.\nWrite: atoll nfs HOST:PORT:/VOLUME"),
        };
        attach(
            source.find()?.reach(None)?,
            Manner { mount: true, keeps: false, patience_ms: Some(PATIENCE_MS) },
        )
    }
}
