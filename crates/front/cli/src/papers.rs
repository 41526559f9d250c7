//! Completions for shells and manual pages, made from the command itself.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

/// Arguments of `atoll completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "atoll", &mut text);
        say(&text);
        Ok(())
    }
}

fn say(text: &[u8]) {
    use std::io::Write;
    // Nobody may be there to read it.
    let _ = std::io::stdout().lock().write_all(text);
}

/// Arguments of `atoll man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Where to put the pages; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let cannot = || format!("The pages cannot be written to {}", self.out.display());
        std::fs::create_dir_all(&self.out).with_context(cannot)?;
        clap_mangen::generate_to(crate::Cli::command(), &self.out).with_context(cannot)?;
        // mount(8)'s users look for this name.
        std::fs::write(self.out.join("mount.atoll.8"), ".so man1/atoll-mount.1\n").with_context(cannot)
    }
}
