//! Opening an island: puts snapshot, log and bodies together again, whatever ended its last run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_body::{Bodies, BodyError, Correction, Redo};
use atoll_core::planted::{Bug, planted};
use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Decode, Ino, IslandId, SessionId, VolumeId};
use atoll_disk::{Disk, is_no_space};
use atoll_group::{Epochs, OpenedLog};
use atoll_island::{Config, PreviousEnd};
use atoll_log::{Damage, Identity, Log, LogError, Opened, Position};
use atoll_posix::Kind;
use atoll_proto::{BodyBlocks, BodyChange, EpochTable, Inode, Record, RowChange};
use atoll_snapshot::{Snapshot, SnapshotError};
use atoll_state::{LoadedRows, RowKey, RowLoad, State};

use crate::beside::BesideMaker;
use crate::cut;
use crate::engine::{Clock, Engine, Net};
use crate::fetch::blocks_of;
use crate::fill;
use crate::follow::Following;
use crate::perform::{born_of, load_from};
use crate::role::{Follower, Role};
use crate::walk::Walk;

/// Options of an island besides its machine's configuration.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The volume.
    pub volume: VolumeId,
    /// The machine's part.
    pub island: Config,
    /// Sizes of the log.
    pub log: atoll_log::Config,
    /// Bytes of the snapshot that stay in memory.
    pub snapshot_cache_bytes: usize,
    /// The daemon is root, so that bodies get their true owner.
    pub root: bool,
    /// The island may not have been made yet: missing parts are made. Otherwise a missing part is lost, and
    /// the island is refused: it must never be taken for an empty one.
    pub is_new: bool,
    /// How far it is known to have come, from another place.
    pub reached: Option<Reached>,
    /// Makes the machine beside the island, while a copy of it leads.
    pub beside: Option<Arc<dyn BesideMaker>>,
}

/// How far an island is known to have come: its snapshot and log must reach this point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The incarnation of that life.
    pub incarnation: u32,
    /// Position of a record that was synced.
    pub seq: u64,
}

/// Why an island cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log is damaged, or of a newer version, or the disk failed.
    #[error("island {0}: {1}")]
    Log(IslandId, #[source] LogError),
    /// The snapshot is.
    #[error("island {0}: {1}")]
    Snapshot(IslandId, #[source] SnapshotError),
    /// A body cannot be brought in order.
    #[error("island {0}: {1}")]
    Body(IslandId, #[source] BodyError),
    /// A row or record that passed its checksum says something impossible.
    #[error("island {0}: {1}; run `atoll check`")]
    Malformed(IslandId, String),
    /// Its rows are those of an older version.
    #[error(
        "island {0} was written by an older version of Atoll: `atoll rebuild` makes its state anew from the plain trees"
    )]
    OlderVersion(IslandId),
    /// Something is not there although the island was made.
    #[error("island {0}: its {1} is missing")]
    Missing(IslandId, &'static str),
    /// The island is whole, and older than it is known to have been.
    #[error(
        "island {island}: its folder ends before record {first}, and was known to hold record {known}: an older \
         copy lies in its place"
    )]
    Older {
        /// The island.
        island: IslandId,
        /// The first record that it has not.
        first: u64,
        /// The last that it is known to have had.
        known: u64,
    },
    /// The disk failed.
    #[error("island {0}: {1}")]
    Io(IslandId, #[source] std::io::Error),
}

impl OpenError {
    /// The island.
    pub const fn island(&self) -> IslandId {
        match self {
            Self::Log(id, _)
            | Self::Snapshot(id, _)
            | Self::Body(id, _)
            | Self::Malformed(id, _)
            | Self::Missing(id, _)
            | Self::OlderVersion(id)
            | Self::Io(id, _)
            | Self::Older { island: id, .. } => *id,
        }
    }

    /// True if a part of the island is lost or damaged: trying again is no use.
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Log(_, why) => matches!(why, LogError::Damaged(_) | LogError::Refused { .. }),
            Self::Snapshot(_, why) => matches!(why, SnapshotError::Damaged(_)),
            Self::Body(..) | Self::Io(..) => false,
            Self::Malformed(..) | Self::Missing(..) | Self::OlderVersion(_) | Self::Older { .. } => true,
        }
    }

    /// The disk, or somebody's part of it, is full: the copy can be opened when there is room.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Body(_, why) => why.is_no_space(),
            Self::Snapshot(_, why) => why.is_no_space(),
            Self::Log(_, LogError::Io(error)) | Self::Io(_, error) => is_no_space(error),
            _ => false,
        }
    }
}

/// The report of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records behind the checkpoint.
    pub records: u64,
    /// Bytes of a torn tail that were cut.
    pub torn_bytes: u64,
    /// Bodies that had to be looked at.
    pub bodies: u64,
    /// Files whose bytes were not those of the state, each with the correction of the state.
    pub corrected: Vec<(Ino, String)>,
}

impl<D: Disk> Engine<D> {
    /// Opens the island on `disk`, or makes an empty one where there is none and it is new. It leads at once: it has no
    /// other copies.
    pub fn open(
        disk: Arc<D>,
        setup: Setup,
        net: Arc<dyn Net>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Report), OpenError> {
        let (engine, report, _) = Self::open_following(disk, setup, net, clock)?;
        let id = engine.id();
        engine.lead().map_err(|why| OpenError::Malformed(id, why))?;
        Ok((engine, report))
    }

    /// Opens a copy of the island that follows, or makes an empty one. Tells the group what its log has.
    pub fn open_following(
        disk: Arc<D>,
        setup: Setup,
        net: Arc<dyn Net>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Report, OpenedLog), OpenError> {
        let id = setup.island.id;
        let is_there = |name: &[u8]| match disk.stat(name) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            other => other.map(|_| true).map_err(|e| OpenError::Io(id, e)),
        };
        let unfilled = fill::go_on(&disk, &setup)?;
        if !setup.is_new {
            for (name, what) in [(&b"state.redb"[..], "state (state.redb)"), (b"log", "log (the folder log)")]
            {
                if !is_there(name)? {
                    return Err(OpenError::Missing(id, what));
                }
            }
        }
        let snapshot = Snapshot::open(&*disk, b"state.redb", setup.snapshot_cache_bytes)
            .map_err(|e| OpenError::Snapshot(id, e))?;
        let mut state = open_state(&snapshot, id, setup.island.seed)?;
        let meta = *state.meta();
        let mut changes = BodyChanges::default();
        let mut last_body = 0;
        let (log, opened) = open_log(&disk, &setup, &meta, &mut |position, payload| {
            let record = Record::decode_whole(payload).map_err(|e| e.to_string())?;
            if !record.bodies.is_empty() {
                last_body = position.seq;
            }
            redo_record(&mut state, &snapshot, record, &mut changes)
        })?;
        let options = atoll_body::Options { root: setup.root, ..Default::default() };
        let bodies = Bodies::open(Arc::clone(&disk), b"bodies", options).map_err(|e| OpenError::Io(id, e))?;
        let cut = cut::files(&*disk, id)?;
        if cut.is_some() || unfilled.is_some_and(|unfilled| unfilled.from == Ino(0)) {
            drop_strays(&state, &snapshot, &bodies, id)?;
        }
        if let Some(files) = &cut {
            files.iter().for_each(|ino| changes.of(*ino).cut = true);
        }
        let mut report =
            Report { records: opened.records, torn_bytes: opened.torn_bytes, ..Report::default() };
        let mut missing = Vec::new();
        let (corrections, touched) =
            changes.redo(&mut state, &snapshot, &bodies, (&mut report, &mut missing), id)?;
        if cut.is_some() && missing.is_empty() {
            cut::forget(&*disk, id)?;
        }
        let ended = if meta.clean && opened.records == 0 && opened.torn_bytes == 0 {
            PreviousEnd::Orderly
        } else if opened.whole {
            PreviousEnd::Death
        } else {
            PreviousEnd::PowerCut
        };
        // The plain tree must not take what was redone for a change by hand, also while the copy follows.
        touched.iter().for_each(|body| state.view_disturbed(body.ino));
        if planted(Bug::CutForgetsExtents) {
            missing.clear();
        }
        let walk = unfilled.map(|unfilled| Walk::begin(unfilled, setup.log.boot, &snapshot)).transpose();
        let walk = walk.map_err(|e| OpenError::Snapshot(id, e))?;
        let walk = walk.filter(|_| !planted(Bug::MissingForgotten));
        let following = Following::opened(&touched, log.last().seq, missing, walk);
        let opened_log = OpenedLog {
            whole: opened.whole,
            epochs: Epochs::new(EpochTable { base: opened.base, ends: opened.ends })
                .ok_or_else(|| OpenError::Malformed(id, "the epochs of its log do not rise".to_owned()))?,
            checkpoint: meta.seq,
            first: log.first_seq(),
            last_body,
            differs: following.differs(),
        };
        let (config, makes_checkpoint) = (setup.island, false);
        let touched = touched.iter().map(|body| body.ino).collect();
        let role =
            Follower { config, state, ended, touched, corrections, given_way: Vec::new(), makes_checkpoint };
        let role = Role::Following(Box::new(role));
        let mut engine = Self::assemble(id, role, log, disk, Arc::new(bodies), snapshot, (net, clock));
        engine.beside = setup.beside;
        engine.differs = following.differs().into();
        engine.fills = following.walk.is_some().into();
        engine.following = following.into();
        engine.lock().last_body = last_body;
        Ok((engine, report, opened_log))
    }
}

fn open_state(snapshot: &Snapshot, id: IslandId, seed: u64) -> Result<State, OpenError> {
    const PAGE: usize = 4096;
    let meta = snapshot.get(&RowKey::Meta.to_bytes()).map_err(|e| OpenError::Snapshot(id, e))?;
    if meta.is_some_and(|meta| atoll_state::state::Meta::is_of_older_version(&meta)) {
        return Err(OpenError::OlderVersion(id));
    }
    let mut state = State::new(seed);
    for &tag in State::ALWAYS_IN_MEMORY {
        let mut from = vec![tag];
        loop {
            let rows = snapshot.range(&from, &[tag + 1], PAGE).map_err(|e| OpenError::Snapshot(id, e))?;
            for (key, row) in &rows {
                let bad = || OpenError::Malformed(id, format!("row {}", key.escape_ascii()));
                let key = RowKey::from_bytes(key).ok_or_else(bad)?;
                state.open_row(&key, row).map_err(|_| bad())?;
            }
            match rows.last() {
                Some((last, _)) if rows.len() == PAGE => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => break,
            }
        }
    }
    Ok(state)
}

/// Removes bodies of which no row knows: files that only cut records had made. Their ids are not given again.
fn drop_strays<D: Disk>(
    state: &State,
    snapshot: &Snapshot,
    bodies: &Bodies<D>,
    id: IslandId,
) -> Result<(), OpenError> {
    let mut strays = Vec::new();
    for ino in bodies.all().map_err(|e| OpenError::Io(id, e))? {
        let is_known = match state.inode(ino) {
            Ok(row) => row.is_some(),
            Err(_) => {
                let row = snapshot.get(&RowKey::Inode(ino).to_bytes());
                row.map_err(|e| OpenError::Snapshot(id, e))?.is_some()
            }
        };
        if !is_known {
            strays.push(ino);
        }
    }
    bodies.drop_for_good(&strays).map_err(|e| OpenError::Body(id, e))
}

/// Cuts the log of an island that is not open back to this record, which its snapshot does not go beyond.
pub(crate) fn cut_log<D: Disk>(disk: &Arc<D>, setup: &Setup, to: Position) -> Result<(), OpenError> {
    let id = setup.island.id;
    let snapshot = Snapshot::open(&**disk, b"state.redb", setup.snapshot_cache_bytes)
        .map_err(|e| OpenError::Snapshot(id, e))?;
    let meta = *open_state(&snapshot, id, setup.island.seed)?.meta();
    let mut files = BTreeSet::new();
    let setup_now = Setup { is_new: false, reached: None, ..setup.clone() };
    open_log(disk, &setup_now, &meta, &mut |position, payload| {
        if position.seq > to.seq {
            let record = Record::decode_whole(payload).map_err(|e| e.to_string())?;
            files.extend(record.changes.iter().filter_map(body_named_by));
            files.extend(record.bodies.iter().map(BodyChange::ino));
        }
        Ok(())
    })?;
    cut::note(&**disk, id, files)?;
    let identity = Identity { volume: setup.volume.0, island: id.0 };
    let checkpoint = Position { epoch: meta.incarnation, seq: meta.seq };
    Log::cut_back(Arc::clone(disk), b"log", setup.log, identity, checkpoint, to)
        .map_err(|e| OpenError::Log(id, e))
}

type Visit<'a> = &'a mut dyn FnMut(Position, &[u8]) -> Result<(), String>;

fn open_log<D: Disk>(
    disk: &Arc<D>,
    setup: &Setup,
    meta: &atoll_state::state::Meta,
    visit: Visit<'_>,
) -> Result<(Log<D>, Opened), OpenError> {
    let id = setup.island.id;
    let identity = Identity { volume: setup.volume.0, island: id.0 };
    // A state that was made anew since, or mended, is of a later life, and counts as it does.
    let reached = setup.reached.filter(|reached| meta.incarnation <= reached.incarnation);
    let failed = |e| match (e, reached) {
        (LogError::Damaged(Damage::Lost { first, known }), Some(reached)) if known == reached.seq => {
            OpenError::Older { island: id, first, known }
        }
        (e, _) => OpenError::Log(id, e),
    };
    if setup.is_new && meta.seq == 0 {
        let base = Position::default();
        match Log::create(Arc::clone(disk), b"log", setup.log, identity, base) {
            // An earlier start has got further.
            Err(LogError::Exists) => {}
            made => {
                let (last, records, torn_bytes, clean, whole) = (base, 0, 0, true, true);
                let opened = Opened { last, records, torn_bytes, clean, whole, base, ends: Vec::new() };
                return Ok((made.map_err(failed)?, opened));
            }
        }
    }
    let checkpoint = Position { epoch: meta.incarnation, seq: meta.seq };
    let must_reach = reached.map_or(0, |reached| reached.seq);
    Log::open(Arc::clone(disk), b"log", setup.log, identity, checkpoint, must_reach, &mut |record| {
        visit(record.position, record.payload).map_err(Into::into)
    })
    .map_err(failed)
}

pub(crate) fn load(state: &mut State, snapshot: &Snapshot, load: RowLoad) -> Result<(), String> {
    let loaded = load_from(snapshot, &load)?;
    state.load(load, loaded).map_err(|e| e.to_string())
}

/// Loads the rows that must be in memory before this change is applied.
fn load_needed(state: &mut State, snapshot: &Snapshot, change: &RowChange) -> Result<(), String> {
    while let Some(missing) = state.needs(change) {
        load(state, snapshot, missing)?;
    }
    Ok(())
}

/// Files whose bodies a recovery looks at because of this change of a row.
pub(crate) fn body_named_by(change: &RowChange) -> Option<Ino> {
    match change {
        RowChange::Dirty { ino } => Some(*ino),
        // Of the first bytes of a file the records may be lost alone. An absent one is as long as it will be before it has any.
        RowChange::Inode { ino, row: Some(row) } if row.attr.size == 0 || row.is_absent => Some(*ino),
        _ => None,
    }
}

fn redo_record(
    state: &mut State,
    snapshot: &Snapshot,
    record: Record,
    bodies: &mut BodyChanges,
) -> Result<(), String> {
    let seq = state.seq() + 1;
    for change in &record.changes {
        load_needed(state, snapshot, change)?;
        if let Some(ino) = body_named_by(change) {
            bodies.of(ino).dirty |= matches!(change, RowChange::Dirty { .. });
        }
        state.apply(seq, change);
    }
    let result = record.changes.iter().find_map(|change| match change {
        RowChange::Result { session, seq, .. } => Some((*session, *seq)),
        _ => None,
    });
    for change in record.bodies {
        if let (BodyChange::Extent { ino, .. }, Some(result)) = (&change, result) {
            bodies.results.push((*ino, result));
        }
        let ino = bodies.add(change);
        // What a record changes is in memory: if its last block is not, that block is as it was.
        if let Ok(Some(row)) = state.inode(ino)
            && !row.attr.size.is_multiple_of(BLOCK_BYTES)
            && let Ok(sums) = state.sums(ino, row.attr.size / BLOCK_BYTES, 1)
        {
            bodies.of(ino).ends.push((row.attr.size, sums[0]));
        }
    }
    Ok(())
}

/// The changes of one body. See [`Redo`].
#[derive(Debug, Default)]
struct ChangesOfOne {
    ops: Vec<BodyChange>,
    ends: Vec<(u64, u32)>,
    dirty: bool,
    /// Records that were cut off had changed it.
    cut: bool,
}

/// A body that the records since the checkpoint name.
pub(crate) struct Touched {
    pub(crate) ino: Ino,
    /// One of them has announced an overwrite.
    pub(crate) is_announced: bool,
    /// The file was made by one of them.
    pub(crate) is_new: bool,
}

/// The changes of bodies by the records since the checkpoint.
#[derive(Debug, Default)]
struct BodyChanges {
    by_file: BTreeMap<Ino, ChangesOfOne>,
    /// Results of writes whose bytes are not in their record: the bytes may have been lost.
    results: Vec<(Ino, (SessionId, u64))>,
}

impl BodyChanges {
    fn of(&mut self, ino: Ino) -> &mut ChangesOfOne {
        self.by_file.entry(ino).or_default()
    }

    /// Adds a change; returns its file.
    fn add(&mut self, change: BodyChange) -> Ino {
        let ino = change.ino();
        let cut = match &change {
            BodyChange::Cut { len, .. } => Some(*len),
            BodyChange::Drop { .. } => Some(0),
            _ => None,
        };
        let of_one = self.of(ino);
        if let Some(len) = cut {
            of_one.ends.retain(|(end, _)| *end <= len);
        }
        of_one.ops.push(change);
        ino
    }

    /// Makes the bodies match the state. Returns the corrections of the state as changes, and the files that
    /// they are about.
    fn redo<D: Disk>(
        self,
        state: &mut State,
        snapshot: &Snapshot,
        bodies: &Bodies<D>,
        (report, missing): (&mut Report, &mut Vec<BodyBlocks>),
        id: IslandId,
    ) -> Result<(Vec<RowChange>, Vec<Touched>), OpenError> {
        let (mut changes, mut touched) = (Vec::new(), Vec::new());
        for (ino, ChangesOfOne { ops, ends, dirty, cut }) in self.by_file {
            report.bodies += 1;
            let malformed = |why| OpenError::Malformed(id, why);
            if state.inode(ino).is_err() {
                load(state, snapshot, RowLoad::Row(RowKey::Inode(ino))).map_err(malformed)?;
            }
            let row = state.inode(ino).ok().flatten().cloned();
            let old = match load_from(snapshot, &RowLoad::Row(RowKey::Inode(ino))).map_err(malformed)? {
                LoadedRows::Row(Some(bytes)) => Inode::from_slice(&bytes).ok(),
                _ => None,
            };
            let gone = [BodyChange::Drop { ino }];
            let attr = row.as_ref().map(|r| r.attr);
            let of_this = Touched { ino, is_announced: dirty, is_new: old.is_none() };
            match attr.map(|attr| attr.kind) {
                Some(Kind::Regular) => touched.push(of_this),
                // It was dropped, and has come back: what has no bytes is made by the view alone.
                Some(_) => {
                    if planted(Bug::NothingSynced) {
                        touched.push(of_this);
                    }
                    continue;
                }
                None => {}
            }
            let what = Redo {
                ino,
                ops: if row.is_some() { &ops } else { &gone },
                ends: &ends,
                old_size: old.map_or(0, |o| o.attr.size),
                size: attr.map_or(0, |a| a.size),
                dirty,
                cut,
                born: attr.as_ref().map(born_of),
            };
            let found = bodies.redo::<RedoError>(what, |first, count| {
                loop {
                    match state.sums(ino, first, count) {
                        Ok(sums) => return Ok(sums),
                        Err(miss) => load(state, snapshot, miss.0).map_err(RedoError::Load)?,
                    }
                }
            });
            let found = found.map_err(|e| match e {
                RedoError::Body(e) => OpenError::Body(id, e),
                RedoError::Load(why) => OpenError::Malformed(id, why),
            })?;
            if !found.is_empty() {
                // Whoever has not heard that they were written has to write them again.
                let results = self.results.iter().filter(|(of, _)| *of == ino);
                changes.extend(
                    results.map(|(_, (session, seq))| RowChange::TakenBack { session: *session, seq: *seq }),
                );
            }
            if let Some(row) = row {
                missing.extend(found.iter().flat_map(|c| blocks_of(ino, row.attr.size, c)));
                correct(ino, row, &found, state, snapshot, &mut changes).map_err(malformed)?;
            }
            report.corrected.extend(found.iter().map(|c| (ino, format!("{c:?}"))));
        }
        Ok((changes, touched))
    }
}

enum RedoError {
    Body(BodyError),
    Load(String),
}

impl From<BodyError> for RedoError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

/// Turns corrections of bodies into changes of rows. Their checksum rows are in memory then.
fn correct(
    ino: Ino,
    mut row: Inode,
    found: &[Correction],
    state: &mut State,
    snapshot: &Snapshot,
    changes: &mut Vec<RowChange>,
) -> Result<(), String> {
    for correction in found {
        let from = changes.len();
        match correction {
            Correction::Resum { block, sum } => {
                changes.push(RowChange::Sums { ino, first: *block, sums: vec![*sum] });
            }
            Correction::Cut { len, last } => {
                let end = row.attr.size.div_ceil(BLOCK_BYTES);
                changes.push(RowChange::SumsCut { ino, first: len.div_ceil(BLOCK_BYTES), end });
                if let Some((block, sum)) = last {
                    changes.push(RowChange::Sums { ino, first: *block, sums: vec![*sum] });
                }
                row.attr.size = *len;
                changes.push(RowChange::Inode { ino, row: Some(Box::new(row.clone())) });
            }
            // It stays as it is: readers get an error, and `atoll check` names it.
            Correction::Damaged { .. } => {}
        }
        for change in &changes[from..] {
            load_needed(state, snapshot, change)?;
        }
    }
    Ok(())
}
