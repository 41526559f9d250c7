//! `atoll union stop`: takes a union's mount away and waits until its process has ended.

use std::path::{Path, PathBuf};

use anyhow::Result;
use atoll_volume::union::ask::ShownUnion;

use crate::umount::Umount;

/// Arguments of `atoll union stop`.
#[derive(Debug, clap::Args)]
pub(super) struct Stop {
    /// The union's name, or its mount point
    #[arg(value_name = "NAME|MOUNT")]
    which: PathBuf,
}

impl Stop {
    pub(super) fn run(self, state: Option<&Path>) -> Result<()> {
        let union = ShownUnion::named(state, &self.which)?;
        union.check()?;
        Umount::of(union.mount.path).try_run()
    }
}
