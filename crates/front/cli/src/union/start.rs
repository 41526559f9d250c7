//! `atoll union start`: show a union that is remembered under a name, or define it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use atoll_union::Settings;
use atoll_volume::union::{Definition, Kept, UnionHome, check_union_name, state_dir};

use super::{Showing, settings};
use crate::log::Log;
use crate::mount_options::Options;

/// Arguments of `atoll union start`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "atoll union start NAME\n       \
    atoll union start NAME DIR... MOUNT [-o OPTIONS]")]
pub(super) struct Start {
    /// The union's name: letters, digits, hyphens, underscores and dots
    name: String,
    /// To define it, or to define it anew: the directories to show as one, then the directory to mount them on
    #[arg(value_names = ["DIR", "MOUNT"], num_args = 0..)]
    places: Vec<PathBuf>,
    /// Options of the union and of the mount, with commas between them. They are remembered, too
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',', requires = "places")]
    options: Vec<String>,
    /// Stay in the foreground, as under a supervisor
    #[arg(long, short)]
    foreground: bool,
    #[command(flatten)]
    log: Log,
}

impl Start {
    pub(super) fn run(self, chosen: Option<&Path>) -> Result<()> {
        check_union_name(&self.name)?;
        let parsed = |words: &[String]| -> Result<(Settings, Options)> {
            let (settings, rest) = settings(words)?;
            Ok((settings, Options::default().with(rest)?))
        };
        let (showing, home, words, before) = if self.places.is_empty() {
            let Some(definition) = Definition::recall(chosen, &self.name)? else {
                bail!(
                    "Nothing is remembered of a union {0}.\nDefine it: atoll union start {0} DIR... MOUNT",
                    self.name
                )
            };
            let members = definition.members();
            let home = UnionHome::take(&state_dir(chosen, &members)?, &self.name)?;
            let (settings, options) = parsed(&definition.options)?;
            let showing = Showing::of(members, &definition.mount, settings, options)?;
            (showing, home, definition.options.clone(), Some(definition))
        } else {
            let (settings, options) = parsed(&self.options)?;
            let showing = Showing::new(&self.places, settings, options)?;
            let home = UnionHome::take(&state_dir(chosen, &showing.members)?, &self.name)?;
            (showing, home, self.options, None)
        };
        let kept = Kept { home, mount: showing.point.clone(), options: words, before };
        showing.show(chosen, Some(kept), self.foreground, &self.log)
    }
}
