//! `atoll up`: serve and mount a volume in one process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_client::{Client, Wire};
use atoll_core::{NodeId, SessionId};
use atoll_fuse::{MountOptions, Mounted};

use crate::files::ClusterFiles;
use crate::node::{Node, random};

/// Arguments of `atoll up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Where everything is kept; made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to mount the volume; made if it is not there
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    /// Name of the volume
    #[arg(long, default_value = "main")]
    volume: String,
    /// How many islands a new volume gets
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    islands: u16,
}

impl Up {
    pub(crate) fn run(self) -> Result<()> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let stop = crate::signals::block()?;
        let node = Node::take(&self.data)?;
        let (config, created) = node.volume_or_create(&self.volume, self.islands)?;
        let volume = node.serve(config.clone(), NodeId(0))?;
        let local = volume.local();
        let wires = volume.islands().into_iter().map(|i| (i, Arc::clone(&local) as Arc<dyn Wire>)).collect();
        let route = atoll_route::Config {
            seed: config.seed,
            table: config.table.clone(),
            islands: config.islands(),
            session: SessionId(random()?),
            mount: true,
            patience_ms: Some(10_000),
        };
        let client = Client::new(route, wires);
        local.connect(Arc::clone(&client) as _);
        client.wait_ready(Duration::from_secs(10));
        if !self.mount.exists() {
            std::fs::create_dir(&self.mount)
                .with_context(|| format!("cannot make the mount point {}", self.mount.display()))?;
        }
        let options = MountOptions::new(&self.volume);
        let files = Arc::new(ClusterFiles(Arc::clone(&client)));
        let mounted = Mounted::new(files, &self.mount, &options, atoll_fuse::Config::default())?;
        println!("volume   {} ({})", self.volume, if created { "new" } else { "found" });
        println!("mounted  {}", self.mount.display());
        println!("data     {}", self.data.display());
        stop.wait();
        mounted.unmount();
        client.stop();
        local.disconnect();
        volume.stop()?;
        Ok(())
    }
}
