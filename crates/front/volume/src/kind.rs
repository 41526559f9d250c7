//! The kinds of volumes: which of them this program can open.

use anyhow::{Result, anyhow};
use atoll_proto::{VolumeConfig, VolumeKind};

/// The same of a volume, which is named.
pub fn check_volume(config: &VolumeConfig) -> Result<()> {
    check(config.kind).map_err(|why| anyhow!("Volume {} cannot be opened: {why}", config.name))
}

/// Refuses a kind that this program cannot open: why, and what to do next.
pub fn check(kind: VolumeKind) -> std::result::Result<(), String> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    match kind {
        VolumeKind::Cluster => Ok(()),
        VolumeKind::Union | VolumeKind::Wide => Err(format!(
            "volumes of the kind {kind} are not built yet in atoll {VERSION}.\n\
            Only volumes of the kind cluster can be made and used."
        )),
        VolumeKind::Unknown(tag) => Err(format!(
            "it is of a kind (number {tag}) that atoll {VERSION} does not know.\n\
            Use the version of atoll that made it, or a newer one. Nothing was changed."
        )),
    }
}
