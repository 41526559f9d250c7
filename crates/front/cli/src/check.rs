//! `atoll check`: names every broken invariant in the data directories of stopped nodes, and has damage mended
//! if nothing is lost by it.

use std::path::PathBuf;
use std::process::ExitCode;

use atoll_core::Ino;
use atoll_volume::findings::{Checking, Compared, Outcome, check};

use crate::say;

/// Exit code when something is wrong with the data, as of fsck(8): "errors left uncorrected".
const WRONG: u8 = 4;

/// Arguments of `atoll check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Data directories; no daemon of them may run. Copies of an island in several of them are compared
    #[arg(long, value_name = "DIR", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// Read every byte of every file and compare checksums
    #[arg(long)]
    read: bool,
    /// Mend damage if nothing is lost by it, and say what was mended
    #[arg(long)]
    repair: bool,
    /// With --repair: say what would be mended, and change nothing
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// With --repair: remove names of files of which no byte is left anywhere
    #[arg(long, requires = "repair")]
    forget: bool,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        rustix::process::umask(rustix::fs::Mode::empty());
        let Self { read, repair, dry_run, forget, .. } = self;
        match check(&self.data, &Checking { read, repair, dry_run, forget }) {
            Ok(outcome) => {
                if self.json {
                    say::json(&outcome.json())
                } else {
                    show(&outcome, self.read)
                }
                if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG) }
            }
            Err(why) => {
                crate::complain(&why);
                ExitCode::FAILURE
            }
        }
    }
}

/// Tells people.
fn show(outcome: &Outcome, read: bool) {
    if !outcome.recovered.is_empty() {
        say::line("The node was not stopped in order; its recovery was done first:");
        outcome.recovered.iter().for_each(|line| say::line(format_args!("  {line}")));
    }
    let about = |ino: Option<Ino>, paths: &[String]| {
        let ino = ino.map(|i| format!(" id {i}")).unwrap_or_default();
        if paths.is_empty() { ino } else { format!("{ino} {}", paths.join(" = ")) }
    };
    for spilled in &outcome.spilled {
        say::line(format_args!(
            "volume {} island {}{}: the native file system refuses extended attributes of it: they are kept in xattrs/",
            spilled.volume,
            spilled.island,
            about(Some(spilled.ino), &spilled.paths)
        ));
    }
    let done = if outcome.dry_run { "would mend" } else { "mended" };
    for mended in &outcome.mended {
        say::line(format_args!(
            "{done}: volume {} island {}{}: {} [{}]",
            mended.volume,
            mended.island,
            about(mended.ino, &mended.paths),
            mended.what,
            mended.rule
        ));
    }
    outcome.notes.iter().for_each(say::line);
    show_copies(outcome);
    for (at, wrong) in outcome.wrong.iter().enumerate() {
        let island = wrong.island.map(|i| format!(" island {i}")).unwrap_or_default();
        let about = about(wrong.ino, &wrong.paths);
        let node = wrong.place.node.map(|node| format!(" node {node}")).unwrap_or_default();
        let (volume, what, rule) = (&wrong.volume, &wrong.what, &wrong.rule);
        say::line(format_args!("volume {volume}{island}{node}{about}: {what} [{rule}]"));
        // The same step once for all that follow each other with it.
        let next = wrong.next();
        if outcome.wrong.get(at + 1).is_none_or(|other| other.next() != next) {
            say::line(format_args!("  next: {next}"));
        }
    }
    let copies = match outcome.copies.len() {
        0 => String::new(),
        n => format!(" in {n} copies"),
    };
    let checked =
        format!("{} islands{copies}, {} directories, {} files", outcome.islands, outcome.dirs, outcome.files);
    let bytes = if read { format!(", {} read", say::bytes(outcome.bytes_read)) } else { String::new() };
    let mended = match outcome.mended.len() {
        0 => String::new(),
        n => format!(" {n} {done},"),
    };
    match outcome.wrong.len() {
        0 => say::line(format_args!("{checked}{bytes}:{mended} nothing wrong.")),
        n => say::line(format_args!("{checked}{bytes}:{mended} {n} things wrong.")),
    }
}

/// Tells of copies that are not at the record of the others.
fn show_copies(outcome: &Outcome) {
    for copy in &outcome.copies {
        let node = copy.place.node.map(|node| node.to_string()).unwrap_or_default();
        let about = format!("volume {} island {} node {node}", copy.volume, copy.island);
        match &copy.compared {
            Compared::With { node, behind } if *behind > 0 => say::line(format_args!(
                "{about}: it lacks {behind} records that node {node} has, and takes them when it starts; it was compared as it will be then"
            )),
            Compared::Filled => say::line(format_args!(
                "{about}: it is being filled from another copy, and has not everything yet. That goes on when its node runs"
            )),
            Compared::Not { why } => say::line(format_args!("{about}: it was not compared: {why}")),
            Compared::With { .. } | Compared::Reference | Compared::Alone => {}
        }
    }
}
