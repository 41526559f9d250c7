//! `atoll check`: names every broken invariant in the data directory of a stopped node.
//!
//! Opens each island as its daemon would, so what an unclean end left to be done is done first; never
//! repairs anything else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use atoll_check::{Rows, Volume};
use atoll_control::{ControlStore, DataDir, EmbeddedStore};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, IslandId};
use atoll_disk::real::RealDisk;
use atoll_dispatch::{Engine, Laying, Net, Report};
use atoll_island::LinkId;
use atoll_posix::Kind;
use atoll_proto::{Notice, PeerMessage, Reply, VolumeConfig};
use atoll_server::WallClock;
use atoll_state::{RowKey, key::SUMS_PER_CHUNK};
use atoll_view::Finding;
use serde_json::{Value, json};

use crate::node::{open_island, options};
use crate::say;

/// Exit code when something is wrong with the data, as of fsck(8): "errors left uncorrected".
const WRONG: u8 = 4;

/// Rows that are read at once.
const PAGE: usize = 4096;

/// Bytes of a body that are read at once.
const READ_BYTES: u64 = SUMS_PER_CHUNK * BLOCK_BYTES;

/// Arguments of `atoll check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The data directory; its daemon must not run
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Read every byte of every file and compare checksums
    #[arg(long)]
    read: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// Something wrong, whatever found it.
struct Wrong {
    volume: String,
    rule: String,
    island: Option<IslandId>,
    ino: Option<Ino>,
    what: String,
    /// In the volume, as far as the islands here know them.
    paths: Vec<String>,
}

impl Wrong {
    const fn new(
        volume: String,
        rule: String,
        island: Option<IslandId>,
        ino: Option<Ino>,
        what: String,
    ) -> Self {
        Self { volume, rule, island, ino, what, paths: Vec::new() }
    }

    /// What to do about it.
    fn next(&self, data: &str) -> String {
        let volume = &self.volume;
        let folder = || {
            let island = self.island.map(|i| i.to_string()).unwrap_or_default();
            format!("{data}/{}/{volume}/{island}", atoll_server::ISLANDS)
        };
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
            "plain-tree" => format!("see to the disk under {}, then check again", folder()),
            _ => format!(
                "restore {data} from a backup, or make the state anew from the plain trees: \
                atoll rebuild --data {data} --volume {volume}"
            ),
        }
    }
}

#[derive(Default)]
struct Outcome {
    /// The data directory, for people.
    data: String,
    wrong: Vec<Wrong>,
    islands: u64,
    files: u64,
    dirs: u64,
    bytes_read: u64,
    recovered: Vec<String>,
}

/// An island at rest talks to nobody.
struct Nobody;

impl Net for Nobody {
    fn reply(&self, _: IslandId, _: LinkId, _: u64, _: Reply, _: &[u8]) {}
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn halted(&self, _: IslandId, _: &str) {}
    fn damaged(&self, _: IslandId, _: &str) {}
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        match self.check() {
            Ok(outcome) => {
                if self.json {
                    say::json(&outcome.json())
                } else {
                    outcome.show(self.read)
                }
                if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG) }
            }
            Err(why) => {
                crate::complain(&why);
                ExitCode::FAILURE
            }
        }
    }

    fn check(&self) -> Result<Outcome> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let dir = DataDir::open(&self.data)?;
        let file = dir.path().join(EmbeddedStore::FILE);
        // A store that is lost is found to be, not made.
        let volumes = if file.exists() { EmbeddedStore::open(&file)?.volumes()? } else { Vec::new() };
        let mut outcome = Outcome { data: dir.path().display().to_string(), ..Outcome::default() };
        for config in &volumes {
            self.volume(&dir, config, &mut outcome)?;
        }
        for name in atoll_server::volumes_kept(dir.path())? {
            if !volumes.iter().any(|config| config.name == name) {
                let what =
                    "its folder is there, but the control store (control.redb) does not know it".to_owned();
                outcome.wrong.push(Wrong::new(name, "volume-known".to_owned(), None, None, what));
            }
        }
        Ok(outcome)
    }

    fn volume(&self, dir: &DataDir, config: &VolumeConfig, outcome: &mut Outcome) -> Result<()> {
        let mut options = options(dir, dir.identity().incarnation);
        let folder = dir.path().join(atoll_server::ISLANDS).join(&config.name);
        if !folder.is_dir() {
            bail!("Volume {} has no folder {}.\nIs its disk mounted?", config.name, folder.display());
        }
        let member = atoll_server::member(&folder)
            .with_context(|| format!("Volume {} cannot be checked", config.name))?;
        options.is_new = !member.made;
        let is_new = options.is_new;
        let mut all = Vec::new();
        let first = outcome.wrong.len();
        let nodes = config.nodes.iter().filter(|n| n.node == member.node || is_whole(&folder, &n.islands));
        for island in nodes.flat_map(|n| n.islands.iter().copied()) {
            outcome.islands += 1;
            let opened = open_island(&folder, island, is_new).map_err(anyhow::Error::from).and_then(|disk| {
                let setup = atoll_server::setup(config, island, &*disk, &options);
                Ok(Engine::open(disk, setup, Arc::new(Nobody), Arc::new(WallClock::default()))?)
            });
            let (engine, report) = match opened {
                Ok(opened) => opened,
                Err(why) => {
                    outcome.add(config, "opens", Some(island), None, format!("it cannot be opened: {why:#}"));
                    continue;
                }
            };
            outcome.recovery(config, island, &report);
            let engine = Arc::new(engine);
            // What the node had not laid out yet is laid out, as its next start would do it.
            let laid = Laying::open(Arc::clone(&engine), options.root, options.devices)
                .and_then(|mut laying| laying.drain().map(|_| laying));
            if let Err(why) = engine.stop() {
                let what = format!("it does not come to rest: {}", why.why);
                outcome.add(config, "opens", Some(island), None, what);
                continue;
            }
            let mut findings = Vec::new();
            match laid.and_then(|laying| laying.audit()) {
                Ok(found) => findings = found,
                Err(why) => {
                    let what = format!("its plain tree cannot be compared: {why}");
                    outcome.add(config, "plain-tree", Some(island), None, what);
                }
            }
            let rows = read_rows(&engine)?;
            outcome.files += rows.inodes.len() as u64;
            outcome.dirs += rows.dirs.values().filter(|d| d.owned.is_some()).count() as u64;
            let before = outcome.wrong.len();
            let touched = touched_only(&findings);
            self.bodies(config, &engine, &rows, &touched, outcome);
            // Touched, and with the bytes and attributes that it should have: a link more, a backup.
            let differs: Vec<_> = outcome.wrong[before..].iter().filter_map(|wrong| wrong.ino).collect();
            findings.retain(|finding| match finding {
                Finding::ChangedByHand { ino } => !touched.contains(ino) || differs.contains(ino),
                _ => true,
            });
            findings.into_iter().for_each(|finding| outcome.view(config, island, finding));
            all.push(rows);
        }
        let volume = Volume { table: config.table.clone(), seed: config.seed };
        for finding in atoll_check::check(&volume, &all) {
            let rule = finding.rule.name();
            outcome.add(config, rule, Some(finding.island), finding.ino, finding.what);
        }
        let wanted = outcome.wrong[first..].iter().filter_map(|wrong| wrong.ino).collect();
        let paths = atoll_check::paths(&all, &wanted);
        for wrong in &mut outcome.wrong[first..] {
            wrong.paths = wrong.ino.and_then(|ino| paths.get(&ino)).cloned().unwrap_or_default();
        }
        Ok(())
    }

    /// With `--read`, every byte of every file is as its checksum; without, of those in `touched`.
    fn bodies(
        &self,
        config: &VolumeConfig,
        engine: &Engine<RealDisk>,
        rows: &Rows,
        touched: &BTreeSet<Ino>,
        outcome: &mut Outcome,
    ) {
        let mut buffer = Vec::new();
        for (ino, row) in rows.inodes.iter().filter(|(_, row)| row.attr.kind == Kind::Regular) {
            let size = row.attr.size;
            let mut offset = 0;
            let is_read = self.read || touched.contains(ino);
            while is_read && offset < size {
                let len = READ_BYTES.min(size - offset);
                let sums = match sums(engine, *ino, offset / BLOCK_BYTES, len.div_ceil(BLOCK_BYTES)) {
                    Ok(sums) => sums,
                    Err(why) => {
                        outcome.add(config, "row-readable", Some(rows.island), Some(*ino), why.to_string());
                        break;
                    }
                };
                if let Err(why) = engine.bodies().read(*ino, offset, len, size, &sums, &mut buffer) {
                    outcome.add(config, "body-matches", Some(rows.island), Some(*ino), why.to_string());
                }
                outcome.bytes_read += len;
                offset += len;
            }
        }
    }
}

/// Files of which nothing but the native change time is known to differ.
fn touched_only(findings: &[Finding]) -> BTreeSet<Ino> {
    let mut touched = BTreeSet::new();
    let mut differ = BTreeSet::new();
    for finding in findings {
        match finding {
            Finding::ChangedByHand { ino } => drop(touched.insert(*ino)),
            Finding::Attribute { ino, .. }
            | Finding::WrongObject { ino, .. }
            | Finding::BodyMissing { ino } => drop(differ.insert(*ino)),
            Finding::MissingName { .. }
            | Finding::ForeignName { .. }
            | Finding::OrphanBody { .. }
            | Finding::NoPath { .. } => {}
        }
    }
    touched.difference(&differ).copied().collect()
}

/// All of these islands lie here: those of another node, whose folders were put beside.
fn is_whole(folder: &Path, islands: &[IslandId]) -> bool {
    islands.iter().all(|island| folder.join(island.to_string()).is_dir())
}

/// Checksums of so many blocks, all of one row.
fn sums(engine: &Engine<RealDisk>, ino: Ino, first: u64, count: u64) -> Result<Vec<u32>> {
    use atoll_core::Decode;
    let key = RowKey::Sums(ino, first / SUMS_PER_CHUNK).to_bytes();
    let row = engine.snapshot().get(&key)?;
    let mut sums = row.map(|row| Vec::<u32>::from_slice(&row)).transpose()?.unwrap_or_default();
    sums.resize(count as usize, 0);
    Ok(sums)
}

/// All rows of an island that has come to rest, so that its snapshot has them.
fn read_rows(engine: &Engine<RealDisk>) -> Result<Rows> {
    let mut rows = Rows::new(engine.id());
    let mut from = Vec::new();
    loop {
        let page = engine.snapshot().range(&from, &[0xff], PAGE)?;
        for (key, row) in &page {
            rows.take(key, row);
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => {
                from.clone_from(last);
                from.push(0);
            }
            _ => return Ok(rows),
        }
    }
}

impl Outcome {
    fn add(
        &mut self,
        config: &VolumeConfig,
        rule: &str,
        island: Option<IslandId>,
        ino: Option<Ino>,
        what: String,
    ) {
        self.wrong.push(Wrong::new(config.name.clone(), rule.to_owned(), island, ino, what));
    }

    fn recovery(&mut self, config: &VolumeConfig, island: IslandId, report: &Report) {
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
    fn view(&mut self, config: &VolumeConfig, island: IslandId, finding: Finding) {
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let (rule, ino, what) = match finding {
            Finding::MissingName { path, ino } => {
                ("plain-name", Some(ino), format!("{} is missing", shown(&path)))
            }
            Finding::ForeignName { path } => {
                ("plain-name", None, format!("{} was not put there by Atoll", shown(&path)))
            }
            Finding::WrongObject { path, ino } => {
                ("plain-name", Some(ino), format!("{} is something else than it should be", shown(&path)))
            }
            Finding::Attribute { ino, what } => {
                ("plain-attributes", Some(ino), format!("the {what} of its plain file differs"))
            }
            Finding::BodyMissing { ino } => ("body-there", Some(ino), "its bytes are missing".to_owned()),
            Finding::OrphanBody { path } => {
                ("body-there", None, format!("{} belongs to no file", shown(&path)))
            }
            Finding::ChangedByHand { ino } => (
                "changed-by-hand",
                Some(ino),
                "its plain file was changed by something else than Atoll".to_owned(),
            ),
            Finding::NoPath { ino } => {
                ("skeleton-whole", Some(ino), "nothing leads to it from the root".to_owned())
            }
        };
        self.add(config, rule, Some(island), ino, what);
    }

    fn show(&self, read: bool) {
        if !self.recovered.is_empty() {
            say::line("The node was not stopped in order; its recovery was done first:");
            self.recovered.iter().for_each(|line| say::line(format_args!("  {line}")));
        }
        for (at, wrong) in self.wrong.iter().enumerate() {
            let island = wrong.island.map(|i| format!(" island {i}")).unwrap_or_default();
            let ino = wrong.ino.map(|i| format!(" id {i}")).unwrap_or_default();
            let paths = match wrong.paths.as_slice() {
                [] => String::new(),
                all => format!(" {}", all.join(" = ")),
            };
            say::line(format_args!(
                "volume {}{island}{ino}{paths}: {} [{}]",
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
        match self.wrong.len() {
            0 => say::line(format_args!("{checked}{bytes}: nothing wrong.")),
            n => say::line(format_args!("{checked}{bytes}: {n} things wrong.")),
        }
    }

    fn json(&self) -> Value {
        let wrong = self.wrong.iter().map(|w| {
            json!({
                "volume": w.volume, "rule": w.rule, "island": w.island.map(|i| i.0), "id": w.ino.map(|i| i.0),
                "what": w.what, "paths": w.paths, "next": w.next(&self.data),
            })
        });
        json!({
            "islands": self.islands, "directories": self.dirs, "files": self.files,
            "bytes_read": self.bytes_read, "recovered": self.recovered, "findings": wrong.collect::<Vec<_>>(),
        })
    }
}
