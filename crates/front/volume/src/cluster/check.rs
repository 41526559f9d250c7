//! Names every broken invariant in stopped nodes' islands of a cluster volume, and has damage mended if
//! nothing is lost by it.
//!
//! Opens each island as its daemon would, so a recovery finishes first what an unclean end has left. Changes
//! nothing else unless told to repair, and decides nothing about the repair. Islands that have copies are looked at by
//! [`super::copies`], which changes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use atoll_body::Bodies;
use atoll_check::{Rows, Volume};
use atoll_control::{DataDir, EmbeddedStore};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, IslandId, NodeId};
use atoll_disk::Disk;
use atoll_disk::real::RealDisk;
use atoll_dispatch::{Clock, Engine, Laying, Nobody, WholeState};
use atoll_posix::Kind;
use atoll_proto::VolumeConfig;
use atoll_repair::{Plan, plain_again, read_rows};
use atoll_server::{Member, VolumeOptions, WallClock};
use atoll_state::{RowKey, key::SUMS_PER_CHUNK};
use atoll_view::{Finding, View};

use crate::findings::{Checking, Mended, Outcome, Place, Spilled, Wrong, body_of_no_file};
use crate::node::{open_island, options};

/// Bytes of a body that are read at once.
const READ_BYTES: u64 = SUMS_PER_CHUNK * BLOCK_BYTES;

/// An island that has come to rest, and what its plain tree shows.
pub(super) struct AtRest<D: Disk> {
    place: Place,
    engine: Arc<Engine<D>>,
    /// Where the bytes of its files are read.
    bodies: Arc<Bodies<D>>,
    laying: std::io::Result<Laying<D>>,
    findings: Vec<Finding>,
    rows: Rows,
}

impl<D: Disk> AtRest<D> {
    /// Compares the plain tree with the state.
    fn audit(&mut self) {
        let audited = match &self.laying {
            Ok(laying) => laying.audit(),
            Err(_) => return,
        };
        match audited {
            Ok(found) => self.findings = found,
            Err(why) => self.laying = Err(why),
        }
    }

    /// The same with files of a copy as its stop has left them: nothing of what a recovery does is done there.
    fn audit_files(&mut self, disk: Arc<D>, options: &VolumeOptions) {
        let of_bodies = atoll_body::Options { root: options.root, ..Default::default() };
        let (id, root) = (self.engine.id(), options.root);
        let of_view = atoll_view::Options { island: id, root, devices: root && options.devices };
        let audited = Bodies::open(Arc::clone(&disk), b"bodies", of_bodies).and_then(|bodies| {
            self.bodies = Arc::new(bodies);
            let view = View::open(disk, Arc::clone(&self.bodies), of_view)?;
            if view.index_was_lost() { Ok(None) } else { view.audit(&WholeState(&self.engine)).map(Some) }
        });
        match audited {
            Ok(Some(found)) => self.findings = found,
            // The next start lays all of it.
            Ok(None) => self.audit(),
            Err(why) => self.laying = Err(why),
        }
    }

    /// Brings it to rest again after it was changed, and looks anew.
    fn rest(&mut self) -> Result<()> {
        let again = match &mut self.laying {
            Ok(laying) => laying.drain().map(drop),
            Err(_) => Ok(()),
        };
        if let Err(why) = again {
            self.laying = Err(why);
        }
        self.engine.stop()?;
        self.rows = read_rows(&self.engine)?;
        self.findings.clear();
        self.audit();
        Ok(())
    }
}

fn volume_of(config: &VolumeConfig) -> Volume {
    Volume { table: config.table.clone(), seed: config.seed }
}

fn say_fixes(config: &VolumeConfig, plan: &Plan, outcome: &mut Outcome) {
    let wanted = plan.fixes.iter().filter_map(|fix| fix.ino).collect();
    let paths = atoll_check::paths(&plan.rows, &wanted);
    outcome.mended.extend(plan.fixes.iter().map(|fix| Mended {
        volume: config.name.clone(),
        rule: fix.rule,
        island: fix.island,
        ino: fix.ino,
        what: fix.what.clone(),
        paths: fix.ino.and_then(|ino| paths.get(&ino)).cloned().unwrap_or_default(),
    }));
}

fn say_plain<D: Disk>(
    config: &VolumeConfig,
    island: &AtRest<D>,
    told: Vec<(Ino, String)>,
    outcome: &mut Outcome,
) {
    outcome.mended.extend(told.into_iter().map(|(ino, what)| Mended {
        volume: config.name.clone(),
        rule: "plain-name",
        island: island.engine.id(),
        ino: Some(ino),
        what,
        paths: Vec::new(),
    }));
}

/// Looks for damage in nodes' islands of a volume.
pub(super) fn check(
    dirs: &[&DataDir],
    config: &VolumeConfig,
    how: &Checking,
    outcome: &mut Outcome,
) -> Result<()> {
    let parts = dirs.iter().map(|dir| Part::of(dir, config)).collect::<Result<Vec<_>>>()?;
    let check = Check { how, config };
    match config.copies {
        None => check.volume(&parts, outcome),
        Some(_) => super::copies::check(&check, &parts, outcome),
    }
}

/// What a node has of a volume.
pub(super) struct Part {
    pub(super) place: Place,
    /// The file of its control store.
    pub(super) store: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) member: Member,
    pub(super) options: VolumeOptions,
}

impl Part {
    pub(super) fn of(dir: &DataDir, config: &VolumeConfig) -> Result<Self> {
        let mut options = options(dir, dir.identity().incarnation);
        let folder = dir.path().join(atoll_server::ISLANDS).join(&config.name);
        if !folder.is_dir() {
            bail!("Volume {} has no folder {}.\nIs its disk mounted?", config.name, folder.display());
        }
        let member = atoll_server::member(&folder)
            .with_context(|| format!("Volume {} cannot be checked", config.name))?;
        options.is_new = !member.made;
        options.reached = atoll_server::reached(&folder)?;
        let node = config.copies.is_some().then_some(member.node);
        let place = Place { node, ..Place::of(dir) };
        Ok(Self { place, store: dir.path().join(EmbeddedStore::FILE), folder, member, options })
    }

    /// The disk of an island.
    pub(super) fn disk(&self, island: IslandId) -> Result<Arc<RealDisk>> {
        Ok(open_island(&self.folder, island, self.options.is_new)?)
    }
}

/// A check, as it is to be done.
pub(super) struct Check<'a> {
    pub(super) how: &'a Checking,
    pub(super) config: &'a VolumeConfig,
}

impl Check<'_> {
    fn volume(&self, parts: &[Part], outcome: &mut Outcome) -> Result<()> {
        let config = self.config;
        let mut islands: Vec<AtRest<RealDisk>> = Vec::new();
        for part in parts {
            outcome.at = part.place.clone();
            let is_here = |n: &&atoll_proto::NodeConfig| {
                n.node == part.member.node || is_whole(&part.folder, &n.islands)
            };
            let here = config.nodes.iter().filter(is_here);
            for (node, island) in here.flat_map(|n| n.islands.iter().map(|island| (n.node, *island))) {
                outcome.islands += 1;
                let disk = match part.disk(island) {
                    Ok(disk) => disk,
                    Err(why) => {
                        self.add_unopened(island, &why, outcome);
                        continue;
                    }
                };
                islands.extend(self.bring_to_rest(part, node, island, (disk, None), outcome)?);
            }
        }
        let before = outcome.wrong.len();
        if self.how.repair && !self.how.dry_run {
            self.mend(config, &mut islands, outcome)?;
            self.look(config, &mut islands, outcome);
        } else {
            self.look(config, &mut islands, outcome);
            self.say_mendable(config, &islands, outcome, before)?;
        }
        Ok(())
    }

    pub(super) fn add_unopened(&self, island: IslandId, why: &anyhow::Error, outcome: &mut Outcome) {
        outcome.add(self.config, "opens", Some(island), None, format!("it cannot be opened: {why:#}"));
    }

    /// Opens an island as its daemon would, and stops it again. None: it cannot be, as the outcome says. `files`: the same disk
    /// once more, if the island was stopped in order, so that its files are as they should be before anything is recovered.
    pub(super) fn bring_to_rest<D: Disk>(
        &self,
        part: &Part,
        node: NodeId,
        island: IslandId,
        (disk, files): (Arc<D>, Option<Arc<D>>),
        outcome: &mut Outcome,
    ) -> Result<Option<AtRest<D>>> {
        let (config, options) = (self.config, &part.options);
        let setup = atoll_server::setup(config, node, island, &*disk, options);
        let opened = Engine::open(disk, setup, Arc::new(Nobody), Arc::new(WallClock::default()));
        let (engine, report) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                self.add_unopened(island, &why.into(), outcome);
                return Ok(None);
            }
        };
        // Of a copy it was done in memory only.
        if config.copies.is_none() {
            outcome.recovery(config, island, &report);
        }
        let engine = Arc::new(engine);
        // What the node had not laid out yet is laid out, as its next start would do it.
        let laying = Laying::open(Arc::clone(&engine), options.root, options.devices)
            .and_then(|mut laying| laying.drain().map(|_| laying));
        if let Err(why) = engine.stop() {
            let what = format!("it does not come to rest: {}", why.why);
            outcome.add(config, "opens", Some(island), None, what);
            return Ok(None);
        }
        let rows = read_rows(&engine)?;
        let place = outcome.at.clone();
        let (bodies, findings) = (Arc::clone(engine.bodies()), Vec::new());
        let mut island = AtRest { place, engine, bodies, laying, findings, rows };
        match files {
            Some(disk) => island.audit_files(disk, options),
            None => island.audit(),
        }
        Ok(Some(island))
    }

    /// Names the files by their paths of which something was found before the rows of this island were known.
    pub(super) fn name_paths<D: Disk>(&self, island: &AtRest<D>, outcome: &mut Outcome) {
        let (id, config) = (Some(island.engine.id()), self.config);
        let is_its = |wrong: &&mut Wrong| {
            wrong.volume == config.name
                && wrong.place == island.place
                && wrong.island == id
                && wrong.paths.is_empty()
        };
        let wanted = outcome.wrong.iter_mut().filter(is_its).filter_map(|wrong| wrong.ino).collect();
        let paths = atoll_check::paths(std::slice::from_ref(&island.rows), &wanted);
        for wrong in outcome.wrong.iter_mut().filter(is_its) {
            wrong.paths = wrong.ino.and_then(|ino| paths.get(&ino)).cloned().unwrap_or_default();
        }
    }

    /// Everything that is wrong with these islands now.
    pub(super) fn look<D: Disk>(
        &self,
        config: &VolumeConfig,
        islands: &mut [AtRest<D>],
        outcome: &mut Outcome,
    ) {
        let first = outcome.wrong.len();
        for AtRest { place, engine, bodies, laying, findings, rows } in islands.iter_mut() {
            outcome.at = place.clone();
            if let Err(why) = laying {
                let what = format!("its plain tree cannot be compared: {why}");
                outcome.add(config, "plain-tree", Some(engine.id()), None, what);
            }
            outcome.files += rows.inodes.len() as u64;
            outcome.dirs += rows.dirs.values().filter(|d| d.owned.is_some()).count() as u64;
            let before = outcome.wrong.len();
            let touched = touched_only(findings);
            self.bodies(config, (engine, bodies), rows, &touched, outcome);
            // Touched, and with the bytes and attributes that it should have: a link more, a backup.
            let differs: Vec<_> = outcome.wrong[before..].iter().filter_map(|wrong| wrong.ino).collect();
            findings.retain(|finding| match finding {
                Finding::ChangedByHand { ino } => !touched.contains(ino) || differs.contains(ino),
                _ => true,
            });
            findings.iter().for_each(|finding| outcome.view(config, engine.id(), finding));
        }
        let all: Vec<Rows> = islands.iter_mut().map(|island| std::mem::take(&mut island.rows)).collect();
        for finding in atoll_check::check(&volume_of(config), &all) {
            let rule = finding.rule.name();
            let at = islands.iter().find(|island| island.engine.id() == finding.island);
            outcome.at = at.map(|island| island.place.clone()).unwrap_or_default();
            outcome.add(config, rule, Some(finding.island), finding.ino, finding.what);
        }
        let mut wanted: BTreeSet<Ino> = outcome.wrong[first..].iter().filter_map(|wrong| wrong.ino).collect();
        let spilled: Vec<(IslandId, Ino)> = islands
            .iter()
            .filter_map(|island| {
                Some((island.engine.id(), island.laying.as_ref().ok()?.spilled(usize::MAX).1))
            })
            .flat_map(|(island, inos)| inos.into_iter().map(move |ino| (island, ino)))
            .collect();
        wanted.extend(spilled.iter().map(|(_, ino)| *ino));
        let paths = atoll_check::paths(&all, &wanted);
        let spilled = spilled.into_iter().map(|(island, ino)| Spilled {
            volume: config.name.clone(),
            island,
            ino,
            paths: paths.get(&ino).cloned().unwrap_or_default(),
        });
        outcome.spilled.extend(spilled);
        for wrong in &mut outcome.wrong[first..] {
            wrong.paths = wrong.ino.and_then(|ino| paths.get(&ino)).cloned().unwrap_or_default();
        }
        for (island, rows) in islands.iter_mut().zip(all) {
            island.rows = rows;
        }
    }

    // ------------------------------------------------------------------- repair

    /// What can be mended of the rows.
    fn plan(&self, config: &VolumeConfig, islands: &[AtRest<RealDisk>]) -> Result<Plan> {
        let engines: Vec<_> = islands.iter().map(|island| Arc::clone(&island.engine)).collect();
        let mut strays = Vec::new();
        for island in islands {
            strays.extend(atoll_repair::strays(&island.engine, &island.findings)?);
        }
        let rows = islands.iter().map(|island| island.rows.clone()).collect();
        let options = atoll_repair::Options { now: WallClock::default().now().wall, forget: self.how.forget };
        Ok(atoll_repair::plan(&volume_of(config), rows, &engines, strays, &options))
    }

    /// Mends what can be, in the rows and then in the plain trees that show them.
    fn mend(
        &self,
        config: &VolumeConfig,
        islands: &mut [AtRest<RealDisk>],
        outcome: &mut Outcome,
    ) -> Result<()> {
        let plan = self.plan(config, islands)?;
        if let Some(island) = plan.refused {
            bail!(
                "Volume {}: island {island} is a site of a wide volume, and nothing was changed. A repair cannot keep what sites know of each other.",
                config.name
            );
        }
        let engines: Vec<_> = islands.iter().map(|island| Arc::clone(&island.engine)).collect();
        atoll_repair::perform(&engines, &plan)?;
        say_fixes(config, &plan, outcome);
        for island in islands {
            island.rest()?;
            let told = plain_again(&island.engine, &island.rows, &island.findings, false);
            say_plain(config, island, told, outcome);
            island.rest()?;
        }
        Ok(())
    }

    /// Marks what a repair would mend; with `--dry-run`, tells how.
    fn say_mendable(
        &self,
        config: &VolumeConfig,
        islands: &[AtRest<RealDisk>],
        outcome: &mut Outcome,
        first: usize,
    ) -> Result<()> {
        if outcome.wrong.len() == first {
            return Ok(());
        }
        let plan = self.plan(config, islands)?;
        let left = atoll_check::check(&volume_of(config), &plan.rows);
        let left: BTreeSet<_> = left.into_iter().map(|f| (f.rule.name(), f.island, f.ino)).collect();
        let rules: BTreeSet<_> = atoll_check::Rule::ALL.iter().map(|rule| rule.name()).collect();
        let mut plain = BTreeSet::new();
        let mut found = BTreeSet::new();
        for island in islands.iter().filter(|_| plan.refused.is_none()) {
            let told = plain_again(&island.engine, &island.rows, &island.findings, true);
            plain.extend(told.iter().map(|(ino, _)| (island.engine.id(), *ino)));
            if self.how.dry_run {
                say_plain(config, island, told, outcome);
            }
            for stray in atoll_repair::strays(&island.engine, &island.findings)? {
                let rows = plan.rows.iter().find(|rows| rows.island == stray.island);
                if rows.is_some_and(|rows| rows.inodes.contains_key(&stray.attr.ino)) {
                    found.insert(body_of_no_file(&island.engine.bodies().path(stray.attr.ino)));
                }
            }
        }
        for wrong in &mut outcome.wrong[first..] {
            let Some(island) = wrong.island else { continue };
            wrong.mendable = match (wrong.rule.as_str(), wrong.ino) {
                _ if plan.refused.is_some() => false,
                (rule, ino) if rules.contains(rule) => !left.contains(&(rule, island, ino)),
                ("plain-name" | "plain-attributes" | "body-there", Some(ino)) => {
                    plain.contains(&(island, ino))
                }
                ("body-there", None) => found.contains(&wrong.what),
                _ => false,
            };
        }
        if self.how.dry_run {
            say_fixes(config, &plan, outcome);
        }
        Ok(())
    }

    /// With `--read`, every byte of every file is as its checksum; without, of those in `touched`.
    fn bodies<D: Disk>(
        &self,
        config: &VolumeConfig,
        (engine, bodies): (&Engine<D>, &Bodies<D>),
        rows: &Rows,
        touched: &BTreeSet<Ino>,
        outcome: &mut Outcome,
    ) {
        let mut buffer = Vec::new();
        for (ino, row) in rows.inodes.iter().filter(|(_, row)| row.attr.kind == Kind::Regular) {
            let size = row.attr.size;
            let mut offset = 0;
            let is_read = self.how.read || touched.contains(ino);
            while is_read && offset < size {
                let len = READ_BYTES.min(size - offset);
                let sums = match sums(engine, *ino, offset / BLOCK_BYTES, len.div_ceil(BLOCK_BYTES)) {
                    Ok(sums) => sums,
                    Err(why) => {
                        outcome.add(config, "row-readable", Some(rows.island), Some(*ino), why.to_string());
                        break;
                    }
                };
                if let Err(why) = bodies.read(*ino, offset, len, size, &sums, &mut buffer) {
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
            | Finding::OrphanXattrs { .. }
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
fn sums<D: Disk>(engine: &Engine<D>, ino: Ino, first: u64, count: u64) -> Result<Vec<u32>> {
    use atoll_core::Decode;
    let key = RowKey::Sums(ino, first / SUMS_PER_CHUNK).to_bytes();
    let row = engine.snapshot().get(&key)?;
    let mut sums = row.map(|row| Vec::<u32>::from_slice(&row)).transpose()?.unwrap_or_default();
    sums.resize(count as usize, 0);
    Ok(sums)
}
