//! Shell completions and manual pages, made from the command's own definition.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::{helper, pages};

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
    /// The folder for the pages; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let cannot = || format!("The pages cannot be written to {}", self.out.display());
        std::fs::create_dir_all(&self.out).with_context(cannot)?;
        let mut command = crate::Cli::command().disable_help_subcommand(true);
        command.build();
        self.write(&command).with_context(cannot)?;
        // mount(8)'s users look for these names.
        for name in helper::NAMES {
            std::fs::write(self.out.join(format!("{name}.8")), ".so man1/atoll-mount.1\n")
                .with_context(cannot)?;
        }
        Ok(())
    }

    /// Writes the page of a command, and those of the commands below it.
    fn write(&self, command: &clap::Command) -> std::io::Result<()> {
        for below in command.get_subcommands() {
            self.write(below)?;
        }
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render_title(&mut text)?;
        page.render_name_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        if command.has_subcommands() {
            page.render_subcommands_section(&mut text)?;
        }
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        for section in pages::sections(name) {
            text.extend(section.roff().into_bytes());
        }
        if command.get_version().is_some() {
            page.render_version_section(&mut text)?;
        }
        std::fs::write(self.out.join(page.get_filename()), text)
    }
}
