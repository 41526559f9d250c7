//! `atoll serve`: a node that other machines mount from.

use std::path::PathBuf;

use anyhow::Result;
use atoll_rpc::Address;

use crate::node::Daemon;
use crate::say;

/// Arguments of `atoll serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where everything is kept; made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to take connections. There is no authentication: trusted networks only
    #[arg(long, value_name = "HOST:PORT")]
    listen: Address,
}

impl Serve {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let stop = crate::signals::block()?;
        crate::memory::keep_small();
        let mut daemon = Daemon::take(&self.data)?;
        for why in daemon.node.serve_all()? {
            eprintln!("atoll: {why}");
        }
        if let Err(why) = daemon.listen(Some(&self.listen)) {
            daemon.stop()?;
            return Err(why);
        }
        let tcp = daemon.tcp.clone().unwrap_or(self.listen);
        say::line(format_args!("node     {}", daemon.dir.identity().node));
        say::line(format_args!("data     {}", daemon.dir.path().display()));
        say::line(format_args!("listens  {tcp}"));
        let names = daemon.node.names();
        if names.is_empty() {
            say::line(format_args!("volumes  none yet: atoll volume create NAME --nodes {tcp}"));
        } else {
            say::line(format_args!("volumes  {}", names.join(", ")));
        }
        if let (Address::Tcp { port, .. }, Address::Tcp { .. }) = (&tcp, &tcp) {
            for (volume, address) in daemon.node.own_addresses() {
                let same =
                    address.parse().is_ok_and(|a| matches!(a, Address::Tcp { port: p, .. } if p == *port));
                if !same {
                    eprintln!("atoll: volume {volume} has this node at {address}, but it listens on {tcp}.");
                    eprintln!("Its mounts and other nodes will not find it there.");
                }
            }
        }
        stop.wait();
        daemon.stop()
    }
}
