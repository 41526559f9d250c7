//! `atoll serve`: a node that other machines mount from.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use atoll_control::DataDir;
use atoll_etcd::MemberPlan;
use atoll_rpc::{Address, Bound, ListenError, Listener, Options};

use crate::log::Log;
use crate::{parent, say};
use atoll_volume::node::Daemon;

/// How long a node that has served before waits for its port. It may still be that of a process which is ending.
const PORT_FREE_MAX: Duration = Duration::from_secs(1);

/// Arguments of `atoll serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The data directory; made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The address to listen on. Without certificates there is no authentication: trusted networks only
    #[arg(long, value_name = "HOST:PORT")]
    listen: Address,
    /// Serve metrics at http://ADDR/metrics. There is no authentication: trusted networks only
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<std::net::SocketAddr>,
    /// Run in one process, which nobody starts again when it is killed: for debuggers, and for supervisors
    /// that do that. Otherwise a parent process starts the daemon again at once
    #[arg(long)]
    no_restart: bool,
    #[command(flatten)]
    log: Log,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        self.log.start(false)?;
        // The child of a parent that was killed just now is ending. It still has the directory, and the port.
        DataDir::await_free(&self.data)?;
        let bound = self.bind()?;
        let process = std::process::id();
        if self.no_restart {
            if self.data.join(MemberPlan::FILE).exists() {
                tracing::warn!(
                    "this node's member of etcd does not run: its supervisor is the parent that --no-restart leaves out"
                );
            }
            self.serve(bound, process)
        } else {
            let data = self.data.clone();
            parent::keep_alive(&data, bound, |bound| self.serve(bound, process))
        }
    }

    /// The address to listen on, from now on this process's. One that ended just now gives the directory free, and its port a moment later.
    fn bind(&self) -> Result<Bound, ListenError> {
        let until = Instant::now() + if self.data.exists() { PORT_FREE_MAX } else { Duration::ZERO };
        loop {
            match Listener::bind(&self.listen, &Options::default()) {
                Err(ListenError::PortInUse { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                bound => return bound,
            }
        }
    }

    /// Serves until it is told to end. The data directory is used in the name of `process`.
    fn serve(self, bound: Bound, process: u32) -> Result<()> {
        let stop = crate::signals::block()?;
        crate::memory::keep_small();
        let mut daemon = Daemon::take_for(&self.data, process)?;
        // Others hear of this life of the node before its islands are open, which may take long.
        daemon.node.greet_all()?.iter().for_each(|why| tracing::error!("{why}"));
        daemon.node.unknown().iter().for_each(|why| tracing::warn!("{why}"));
        if let Err(why) = daemon.listen(Some(bound)) {
            daemon.stop()?;
            return Err(why);
        }
        let metrics = match self.metrics.map(|address| daemon.show_metrics(address)).transpose() {
            Ok(metrics) => metrics,
            Err(why) => {
                daemon.stop()?;
                return Err(why);
            }
        };
        let tcp = daemon.tcp.clone().unwrap_or(self.listen);
        let is_new = daemon.dir.identity().incarnation == 1;
        let word = if is_new { "  (NEW: made just now, it has no volumes)" } else { "" };
        say::line(format_args!("node     {}{word}", daemon.dir.identity().node));
        say::line(format_args!("data     {}", daemon.dir.path().display()));
        say::line(format_args!("listens  {tcp}"));
        if let Some(address) = metrics {
            say::line(format_args!("metrics  http://{address}/metrics"));
        }
        daemon.node.open_all().iter().for_each(|why| tracing::error!("{why}"));
        let names = daemon.node.names();
        if names.is_empty() {
            say::line(format_args!("volumes  none yet: atoll volume create NAME --nodes {tcp}"));
        } else {
            say::line(format_args!("volumes  {}", names.join(", ")));
        }
        warn_of_addresses(&daemon, &tcp);
        stop.wait();
        daemon.stop()
    }
}

/// Says if others look for this node at another port than the one on which it listens.
fn warn_of_addresses(daemon: &Daemon, tcp: &Address) {
    let Address::Tcp { port, .. } = tcp else { return };
    let is_other = |address: &str| {
        !address.parse().is_ok_and(|address| matches!(address, Address::Tcp { port: p, .. } if p == *port))
    };
    if let Some(list) = daemon.node.cluster_list() {
        // Its volumes follow the list.
        if let Some(own) = list.cluster.node(daemon.node.id().0).filter(|own| is_other(&own.address)) {
            tracing::warn!(
                "the cluster has this node at {}, but it listens on {tcp}.\n\
                If it has moved, tell the others: atoll node set-address {} HOST:PORT",
                own.address,
                own.name
            );
        }
        return;
    }
    for (volume, address) in daemon.node.own_addresses().iter().filter(|(_, address)| is_other(address)) {
        tracing::warn!(
            "volume {volume} has this node at {address}, but it listens on {tcp}.\n\
            Its mounts and other nodes will not find it there."
        );
    }
}
