//! What `atoll check` found and mended, as it is told: to people with the next step, to programs as JSON.

use atoll_core::{Ino, IslandId};
use atoll_dispatch::Report;
use atoll_proto::VolumeConfig;
use atoll_view::Finding;
use serde_json::{Value, json};

use crate::say;

/// Something wrong, whatever found it.
pub(crate) struct Wrong {
    pub(crate) volume: String,
    pub(crate) rule: String,
    pub(crate) island: Option<IslandId>,
    pub(crate) ino: Option<Ino>,
    pub(crate) what: String,
    /// In the volume, as far as the islands here know them.
    pub(crate) paths: Vec<String>,
    /// `--repair` would mend it.
    pub(crate) mendable: bool,
}

/// Something that was mended, or would be.
pub(crate) struct Mended {
    pub(crate) volume: String,
    pub(crate) rule: &'static str,
    pub(crate) island: IslandId,
    pub(crate) ino: Option<Ino>,
    pub(crate) what: String,
    pub(crate) paths: Vec<String>,
}

impl Wrong {
    pub(crate) const fn new(
        volume: String,
        rule: String,
        island: Option<IslandId>,
        ino: Option<Ino>,
        what: String,
    ) -> Self {
        Self { volume, rule, island, ino, what, paths: Vec::new(), mendable: false }
    }

    /// What to do about it.
    fn next(&self, data: &str) -> String {
        let volume = &self.volume;
        let folder = || {
            let island = self.island.map(|i| i.to_string()).unwrap_or_default();
            format!("{data}/{}/{volume}/{island}", atoll_server::ISLANDS)
        };
        if self.mendable {
            return format!("atoll check --data {data} --repair mends it");
        }
        match self.rule.as_str() {
            "volume-known" => format!("take it up again: atoll volume adopt {volume} --data {data}"),
            "body-matches" | "body-there" if self.ino.is_some() => {
                "reading it gives an error; write it anew from a backup through a mount, or remove it there"
                    .to_owned()
            }
            "body-there" => {
                "no file needs it: look at it, then remove it while the daemon is stopped".to_owned()
            }
            "plain-name" if self.ino.is_none() => {
                "copy it into the volume through a mount if it is wanted, then remove it".to_owned()
            }
            "plain-name" | "plain-attributes" => format!(
                "mounts are not affected; to have the plain tree laid anew: rm {}/view.redb, and start the node",
                folder()
            ),
            "changed-by-hand" => {
                "mounts read these very bytes: see what --read says, and change files through a mount only"
                    .to_owned()
            }
            "file-there" => format!(
                "its bytes are nowhere: if no backup of {data} has them, this takes the name away: \
                atoll check --data {data} --repair --forget"
            ),
            "plain-tree" => format!("see to the disk under {}, then check again", folder()),
            _ => format!(
                "restore {data} from a backup, or make the state anew from the plain trees: \
                atoll rebuild --data {data} --volume {volume}"
            ),
        }
    }
}

#[derive(Default)]
pub(crate) struct Outcome {
    /// The data directory, for people.
    pub(crate) data: String,
    pub(crate) wrong: Vec<Wrong>,
    pub(crate) mended: Vec<Mended>,
    /// What is in `mended` was not done.
    pub(crate) dry_run: bool,
    pub(crate) islands: u64,
    pub(crate) files: u64,
    pub(crate) dirs: u64,
    pub(crate) bytes_read: u64,
    pub(crate) recovered: Vec<String>,
}

/// How a body is told of that no file has.
pub(crate) fn body_of_no_file(path: &[u8]) -> String {
    format!("{} belongs to no file", String::from_utf8_lossy(path))
}

impl Outcome {
    /// A volume whose folder is there, and of which the control store knows nothing.
    pub(crate) fn unknown(&mut self, name: String, what: String) {
        self.wrong.push(Wrong::new(name, "volume-known".to_owned(), None, None, what));
    }

    pub(crate) fn add(
        &mut self,
        config: &VolumeConfig,
        rule: &str,
        island: Option<IslandId>,
        ino: Option<Ino>,
        what: String,
    ) {
        self.wrong.push(Wrong::new(config.name.clone(), rule.to_owned(), island, ino, what));
    }

    pub(crate) fn recovery(&mut self, config: &VolumeConfig, island: IslandId, report: &Report) {
        if report.records > 0 || report.torn_bytes > 0 {
            self.recovered.push(format!(
                "volume {} island {island}: {} records and {} torn bytes behind the checkpoint",
                config.name, report.records, report.torn_bytes
            ));
        }
        for (ino, what) in &report.corrected {
            self.recovered.push(format!("volume {} island {island}: id {ino}: {what}", config.name));
        }
    }

    /// What is natively not as in the state.
    pub(crate) fn view(&mut self, config: &VolumeConfig, island: IslandId, finding: &Finding) {
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let (rule, ino, what) = match finding {
            Finding::MissingName { path, ino } => {
                ("plain-name", Some(*ino), format!("{} is missing", shown(path)))
            }
            Finding::ForeignName { path } => {
                ("plain-name", None, format!("{} was not put there by Atoll", shown(path)))
            }
            Finding::WrongObject { path, ino } => {
                ("plain-name", Some(*ino), format!("{} is something else than it should be", shown(path)))
            }
            Finding::Attribute { ino, what } => {
                ("plain-attributes", Some(*ino), format!("the {what} of its plain file differs"))
            }
            Finding::BodyMissing { ino } => ("body-there", Some(*ino), "its bytes are missing".to_owned()),
            Finding::OrphanBody { path } => ("body-there", None, body_of_no_file(path)),
            Finding::ChangedByHand { ino } => (
                "changed-by-hand",
                Some(*ino),
                "its plain file was changed by something else than Atoll".to_owned(),
            ),
            Finding::NoPath { ino } => {
                ("skeleton-whole", Some(*ino), "nothing leads to it from the root".to_owned())
            }
        };
        self.add(config, rule, Some(island), ino, what);
    }

    pub(crate) fn show(&self, read: bool) {
        if !self.recovered.is_empty() {
            say::line("The node was not stopped in order; its recovery was done first:");
            self.recovered.iter().for_each(|line| say::line(format_args!("  {line}")));
        }
        let about = |ino: Option<Ino>, paths: &[String]| {
            let ino = ino.map(|i| format!(" id {i}")).unwrap_or_default();
            if paths.is_empty() { ino } else { format!("{ino} {}", paths.join(" = ")) }
        };
        let done = if self.dry_run { "would mend" } else { "mended" };
        for mended in &self.mended {
            say::line(format_args!(
                "{done}: volume {} island {}{}: {} [{}]",
                mended.volume,
                mended.island,
                about(mended.ino, &mended.paths),
                mended.what,
                mended.rule
            ));
        }
        for (at, wrong) in self.wrong.iter().enumerate() {
            let island = wrong.island.map(|i| format!(" island {i}")).unwrap_or_default();
            let about = about(wrong.ino, &wrong.paths);
            say::line(format_args!(
                "volume {}{island}{about}: {} [{}]",
                wrong.volume, wrong.what, wrong.rule
            ));
            // The same step once for all that follow each other with it.
            let next = wrong.next(&self.data);
            if self.wrong.get(at + 1).is_none_or(|other| other.next(&self.data) != next) {
                say::line(format_args!("  next: {next}"));
            }
        }
        let checked = format!("{} islands, {} directories, {} files", self.islands, self.dirs, self.files);
        let bytes = if read { format!(", {} read", say::bytes(self.bytes_read)) } else { String::new() };
        let mended = match self.mended.len() {
            0 => String::new(),
            n => format!(" {n} {done},"),
        };
        match self.wrong.len() {
            0 => say::line(format_args!("{checked}{bytes}:{mended} nothing wrong.")),
            n => say::line(format_args!("{checked}{bytes}:{mended} {n} things wrong.")),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let wrong = self.wrong.iter().map(|w| {
            json!({
                "volume": w.volume, "rule": w.rule, "island": w.island.map(|i| i.0), "id": w.ino.map(|i| i.0),
                "what": w.what, "paths": w.paths, "mendable": w.mendable, "next": w.next(&self.data),
            })
        });
        let mended = self.mended.iter().map(|m| {
            json!({
                "volume": m.volume, "rule": m.rule, "island": m.island.0, "id": m.ino.map(|i| i.0),
                "what": m.what, "paths": m.paths,
            })
        });
        json!({
            "islands": self.islands, "directories": self.dirs, "files": self.files,
            "bytes_read": self.bytes_read, "recovered": self.recovered, "findings": wrong.collect::<Vec<_>>(),
            "mended": mended.collect::<Vec<_>>(), "dry_run": self.dry_run,
        })
    }
}
