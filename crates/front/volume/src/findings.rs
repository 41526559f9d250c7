//! The result of a check of stopped nodes: findings and repairs, with the next step for each, also as JSON.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use atoll_control::{ControlStore, DataDir, EmbeddedStore};
use atoll_core::{Ino, IslandId, NodeId, Position};
use atoll_dispatch::Report;
use atoll_proto::VolumeConfig;
use atoll_view::Finding;
use serde_json::{Value, json};

use crate::kind::of;
use crate::status::first_line;

/// Options of a check.
#[derive(Debug, Clone, Default)]
pub struct Checking {
    /// Read every byte of every file and compare checksums.
    pub read: bool,
    /// Mend damage if nothing is lost by it.
    pub repair: bool,
    /// Only say what would be mended.
    pub dry_run: bool,
    /// Take away names of files of which no byte is left anywhere.
    pub forget: bool,
}

/// Looks for damage in the data directories of stopped nodes, in their volumes of every kind.
pub fn check(data: &[PathBuf], how: &Checking) -> Result<Outcome> {
    for (at, path) in data.iter().enumerate() {
        ensure!(
            !data[..at].contains(path),
            "{} is named twice.\nName each data directory once.",
            path.display()
        );
    }
    let dirs = data.iter().map(|path| DataDir::open(path)).collect::<Result<Vec<_>, _>>()?;
    let mut outcome = Outcome { dry_run: how.dry_run, ..Outcome::default() };
    let mut volumes: Vec<(VolumeConfig, Vec<&DataDir>)> = Vec::new();
    for dir in &dirs {
        let file = dir.path().join(EmbeddedStore::FILE);
        // A store that is lost is found to be, not made.
        let known = if file.exists() { EmbeddedStore::open(&file)?.volumes()? } else { Vec::new() };
        for name in atoll_server::volumes_kept(dir.path())? {
            if !known.iter().any(|config| config.name == name) {
                outcome.at = Place::of(dir);
                outcome.unknown(name);
            }
        }
        for config in known {
            match volumes.iter_mut().find(|(other, _)| other.id == config.id) {
                Some((_, dirs)) => dirs.push(dir),
                None => volumes.push((config, vec![dir])),
            }
        }
    }
    for (config, dirs) in &volumes {
        outcome.at = Place::of(dirs[0]);
        match of(config.kind) {
            Ok(kind) => kind.check(dirs, config, how, &mut outcome)?,
            // The others are looked at all the same.
            Err(why) => outcome.add(config, "kind-known", None, None, first_line(&why)),
        }
    }
    Ok(outcome)
}

/// Where something was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The data directory, for people.
    pub data: String,
    /// The node's number in the volume, if the islands have copies.
    pub node: Option<NodeId>,
}

impl Place {
    pub(crate) fn of(dir: &DataDir) -> Self {
        Self { data: dir.path().display().to_string(), node: None }
    }
}

/// A copy of an island, as it was looked at.
#[derive(Debug)]
pub struct Copy {
    /// The volume's name.
    pub volume: String,
    /// Of which island.
    pub island: IslandId,
    /// Where.
    pub place: Place,
    /// Its last record.
    pub last: Position,
    /// By its group's record, all that was ever acknowledged is here.
    pub has_all: bool,
    /// How it was compared with others.
    pub compared: Compared,
}

/// How a copy was compared.
#[derive(Debug, PartialEq, Eq)]
pub enum Compared {
    /// No other copy of the island was there.
    Alone,
    /// Others were compared with it.
    Reference,
    /// With the copy of this node, as it will be when it has the records that it lacks.
    With {
        /// The node.
        node: NodeId,
        /// How many records it lacks.
        behind: u64,
    },
    /// It is being filled from another one, and lacks what it lacks.
    Filled,
    /// It could not be compared.
    Not {
        /// Why.
        why: String,
    },
}

/// A finding, of any kind of volume.
pub struct Wrong {
    /// The volume's name.
    pub volume: String,
    /// Where it was found.
    pub place: Place,
    /// The islands of the volume have copies, on these nodes, each with its number.
    pub copies: bool,
    /// For a shell: puts another copy of the island, in which nothing is wrong, in the place of this one.
    pub exchange: Option<String>,
    /// Name of the rule that is broken.
    pub rule: String,
    /// Where.
    pub island: Option<IslandId>,
    /// Of which file or directory.
    pub ino: Option<Ino>,
    /// How the rule is broken.
    pub what: String,
    /// In the volume, as far as the islands here know them.
    pub paths: Vec<String>,
    /// `--repair` would mend it.
    pub mendable: bool,
}

/// Something that was mended, or would be.
pub struct Mended {
    /// The volume's name.
    pub volume: String,
    /// Name of the rule that was broken.
    pub rule: &'static str,
    /// Where.
    pub island: IslandId,
    /// Of which file or directory.
    pub ino: Option<Ino>,
    /// What was done.
    pub what: String,
    /// In the volume, as far as the islands here know them.
    pub paths: Vec<String>,
}

/// A file or directory with extended attributes that the native file system refused: they are kept beside its tree.
pub struct Spilled {
    /// The volume's name.
    pub volume: String,
    /// Where.
    pub island: IslandId,
    /// Which.
    pub ino: Ino,
    /// In the volume, as far as the islands here know them.
    pub paths: Vec<String>,
}

impl Wrong {
    /// The next step.
    pub fn next(&self) -> String {
        let (volume, data) = (&self.volume, &self.place.data);
        let folder = || {
            let island = self.island.map(|i| i.to_string()).unwrap_or_default();
            format!("{data}/{}/{volume}/{island}", atoll_server::ISLANDS)
        };
        if let (true, Some(exchange)) = (self.is_of_one_copy(), &self.exchange) {
            return format!("with all nodes stopped, put the other copy in its place: {exchange}");
        }
        if self.mendable {
            return format!("atoll check --data {data} --repair mends it");
        }
        match self.rule.as_str() {
            "kind-known" => {
                "use the version of atoll that made it, or a newer one; nothing of it was looked at"
                    .to_owned()
            }
            "volume-known" => format!("take it up again: atoll volume adopt {volume} --data {data}"),
            "body-matches" | "body-there" if self.ino.is_some() => {
                "reading it gives an error; write it anew from a backup through a mount, or remove it there"
                    .to_owned()
            }
            "body-there" => {
                "no file needs it: look at it, then remove it while the daemon is stopped".to_owned()
            }
            "xattrs-there" => {
                "nothing needs them: look, then remove the file while the daemon is stopped".to_owned()
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
            _ if self.copies => format!(
                "no other copy of it that was looked at is whole: name the data directories of all nodes (--data DIR...); \
                what the plain trees have says atoll rebuild --data {data} --volume {volume}"
            ),
            _ => format!(
                "restore {data} from a backup, or make the state anew from the plain trees: \
                atoll rebuild --data {data} --volume {volume}"
            ),
        }
    }

    /// Something that another copy of the island has whole, and that costs less to take from there than by hand.
    fn is_of_one_copy(&self) -> bool {
        let stays =
            ["kind-known", "volume-known", "plain-name", "plain-attributes", "plain-tree", "xattrs-there"];
        let is_left = matches!((self.rule.as_str(), self.ino), ("body-there", None));
        self.copies && !is_left && !stays.contains(&self.rule.as_str())
    }
}

/// The result of a check.
#[derive(Default)]
pub struct Outcome {
    /// Where what is added next was found.
    pub(crate) at: Place,
    /// Copies of islands that were looked at.
    pub copies: Vec<Copy>,
    /// What people should know, and is nothing wrong.
    pub notes: Vec<String>,
    /// Findings.
    pub wrong: Vec<Wrong>,
    /// Repairs.
    pub mended: Vec<Mended>,
    /// What no native file could be given. That is nothing wrong.
    pub spilled: Vec<Spilled>,
    /// The repairs in `mended` were not done, only planned.
    pub dry_run: bool,
    /// Islands that were looked at.
    pub islands: u64,
    /// Files at home in them.
    pub files: u64,
    /// Directories that they own.
    pub dirs: u64,
    /// Bytes of files that were read.
    pub bytes_read: u64,
    /// What recoveries did before the check, one line each.
    pub recovered: Vec<String>,
}

/// The text about a body that belongs to no file.
pub(crate) fn body_of_no_file(path: &[u8]) -> String {
    format!("{} belongs to no file", String::from_utf8_lossy(path))
}

impl Outcome {
    /// A volume whose folder is there, and of which the control store knows nothing.
    fn unknown(&mut self, name: String) {
        let what = "its folder is there, but the control store (control.redb) does not know it".to_owned();
        self.push(name, false, "volume-known", (None, None), what);
    }

    fn push(
        &mut self,
        volume: String,
        copies: bool,
        rule: &str,
        (island, ino): (Option<IslandId>, Option<Ino>),
        what: String,
    ) {
        let (place, rule) = (self.at.clone(), rule.to_owned());
        let (paths, mendable, exchange) = (Vec::new(), false, None);
        self.wrong.push(Wrong { volume, place, copies, exchange, rule, island, ino, what, paths, mendable });
    }

    pub(crate) fn add(
        &mut self,
        config: &VolumeConfig,
        rule: &str,
        island: Option<IslandId>,
        ino: Option<Ino>,
        what: String,
    ) {
        self.push(config.name.clone(), config.copies.is_some(), rule, (island, ino), what);
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

    /// A native file that differs from the state.
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
            Finding::OrphanXattrs { path } => (
                "xattrs-there",
                None,
                format!("{}: extended attributes of no file or directory", shown(path)),
            ),
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

    /// For programs.
    pub fn json(&self) -> Value {
        let wrong = self.wrong.iter().map(|w| {
            json!({
                "volume": w.volume, "rule": w.rule, "island": w.island.map(|i| i.0), "id": w.ino.map(|i| i.0),
                "what": w.what, "paths": w.paths, "mendable": w.mendable, "next": w.next(),
                "data": w.place.data, "node": w.place.node.map(|n| n.0),
            })
        });
        let copies = self.copies.iter().map(|copy| {
            let (with, behind, why) = match &copy.compared {
                Compared::With { node, behind } => (Some(node.0), Some(*behind), None),
                Compared::Not { why } => (None, None, Some(why.as_str())),
                Compared::Filled => (None, None, Some("it is being filled")),
                Compared::Alone | Compared::Reference => (None, None, None),
            };
            json!({
                "volume": copy.volume, "island": copy.island.0, "data": copy.place.data,
                "node": copy.place.node.map(|n| n.0), "epoch": copy.last.epoch, "record": copy.last.seq,
                "has_all": copy.has_all, "is_reference": copy.compared == Compared::Reference, "compared_with": with, "behind": behind,
                "not_compared": why,
            })
        });
        let mended = self.mended.iter().map(|m| {
            json!({
                "volume": m.volume, "rule": m.rule, "island": m.island.0, "id": m.ino.map(|i| i.0),
                "what": m.what, "paths": m.paths,
            })
        });
        let spilled = self
            .spilled
            .iter()
            .map(|s| json!({ "volume": s.volume, "island": s.island.0, "id": s.ino.0, "paths": s.paths }));
        json!({
            "spilled": spilled.collect::<Vec<_>>(), "copies": copies.collect::<Vec<_>>(), "notes": self.notes,
            "islands": self.islands, "directories": self.dirs, "files": self.files,
            "bytes_read": self.bytes_read, "recovered": self.recovered, "findings": wrong.collect::<Vec<_>>(),
            "mended": mended.collect::<Vec<_>>(), "dry_run": self.dry_run,
        })
    }
}
