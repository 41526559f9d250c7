//! The kind `wide`: the whole tree at each site, read and written also when cut off (`docs/design/023-wide.md`). At its site a volume of it
//! is used as a cluster volume of one island. How sites are made, and what is asked of them.

mod adopt;
mod conflicts;
mod sites;
mod trash;

pub use adopt::Adopted;
pub use conflicts::{Keep, WideConflict, conflicts, conflicts_of, resolve, settled};
pub use sites::{Adopting, Place, SiteAsk, SiteWish, create, host_name, join, join_and_adopt};
pub use trash::{Emptied, WideTrash};

use std::sync::Arc;

use anyhow::Result;
use atoll_control::DataDir;
use atoll_proto::VolumeConfig;
use atoll_server::{Serve, VolumeOptions};

use crate::cluster::{Cluster, islands};
use crate::findings::{Checking, Outcome};
use crate::kind::{Attached, Kind, Manner};
use crate::reach::Reached;

/// The kind.
#[derive(Debug)]
pub(crate) struct Wide;

impl Kind for Wide {
    fn attach(&self, volume: Reached, manner: Manner) -> Result<Arc<dyn Attached>> {
        Cluster.attach(volume, manner)
    }

    fn serve(&self, options: &VolumeOptions) -> std::result::Result<Arc<dyn Serve>, String> {
        Ok(Arc::new(atoll_server::Wide { cluster: islands(options), sites: options.sites.clone() }))
    }

    fn check(
        &self,
        dirs: &[&DataDir],
        volume: &VolumeConfig,
        how: &Checking,
        outcome: &mut Outcome,
    ) -> Result<()> {
        Cluster.check(dirs, volume, how, outcome)
    }
}
