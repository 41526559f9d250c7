//! Cluster volumes: islands on nodes, and a client that is connected to each node.

mod attach;
mod check;
mod copies;
mod explain;
mod files;
mod list;
pub mod lost;
mod rooted;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use atoll_control::DataDir;
use atoll_disk::real::RealDisk;
use atoll_proto::VolumeConfig;
use atoll_server::{Serve, VolumeOptions};

use crate::findings::{Checking, Outcome};
use crate::kind::{Attached, Kind, Manner};
use crate::node::open_island;
use crate::reach::Reached;

/// The kind.
#[derive(Debug)]
pub(crate) struct Cluster;

/// Serves islands on the disks of this machine.
pub(crate) fn islands(options: &VolumeOptions) -> atoll_server::Cluster<RealDisk> {
    let shelf = Arc::new(open_island);
    let beside = Arc::new(|folder: &Path| RealDisk::open(folder).map(Arc::new));
    atoll_server::Cluster { options: options.clone(), shelf, beside, fills: Arc::default() }
}

impl Kind for Cluster {
    fn attach(&self, volume: Reached, manner: Manner) -> Result<Arc<dyn Attached>> {
        let volume = Arc::new(attach::attach(volume, manner)?);
        attach::follow(&volume)?;
        Ok(volume)
    }

    fn serve(&self, options: &VolumeOptions) -> std::result::Result<Arc<dyn Serve>, String> {
        Ok(Arc::new(islands(options)))
    }

    fn check(
        &self,
        dirs: &[&DataDir],
        volume: &VolumeConfig,
        how: &Checking,
        outcome: &mut Outcome,
    ) -> Result<()> {
        check::check(dirs, volume, how, outcome)
    }
}
