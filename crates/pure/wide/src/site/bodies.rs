//! What a site decides about bytes: versions that it has cut, and those of other sites that have come. Owns their records. Reads no body.

use atoll_causal::{FileId, FileState};
use atoll_core::{Encode, Ino};
use atoll_island::{BesideRecord, BesideSays, BesideStep, BesideView};
use atoll_posix::{Attr, Kind};
use atoll_proto::{Inode, Record, RowChange};
use atoll_shown::{NewCopy, copy_id, live_versions, places};

use super::steps::Steps;
use super::{NotYet, Site};
use crate::author::{Bundle, BundleChange, Pen};
use crate::contents::{Arrival, ContentsNow, ContentsStep, CutBefore, CutVersion, WorkOp, pieces};
use crate::foreign::bodies::{NewBodies, NewBody, latest, latest_bytes};
use crate::foreign::{ForeignDecision, OBJECTS_MAX};
use crate::held::{HeldChanges, HeldFile, HeldObjects, SiteRows};
use crate::rows::{
    BEHIND, BehindRow, BesideRow, BodyVersion, FILES, FileBeside, FileBytes, FileRow, UNCUT, VersionDelta,
    remove, set,
};

/// Changes by which one conflict is settled: of the file, of the directory, and the copy.
const SETTLED_BY: usize = 3;

/// Numbers for what is new.
type MintIno<'a> = &'a mut dyn FnMut() -> Option<Ino>;

impl Site {
    /// The next thing that is to be done on account of bytes.
    pub(super) fn act_on_bytes(
        &mut self,
        view: BesideView<'_>,
        mint: MintIno<'_>,
    ) -> Result<BesideStep, NotYet> {
        let rows = SiteRows::new(view.state);
        let room = view.room.map_or(u64::MAX, |left| self.trash.room(left));
        let (ms, may_decide, busy) = (view.now.ms, view.may_decide, view.busy);
        let moment = ContentsNow { ms, may_decide, busy, room, peers: &self.peers };
        let Some(step) = self.contents.step(&rows, moment)? else { return Ok(BesideStep::Rest) };
        match step {
            ContentsStep::Say(site, message) => {
                let bytes = message.to_vec().into();
                Ok(BesideStep::Say(BesideSays::Send { peer: site.0, bytes }))
            }
            ContentsStep::Do(WorkOp { id, op, data }) => Ok(BesideStep::Do { id, op, data }),
            ContentsStep::Cut(versions) => self.cut(view, &versions, mint),
            ContentsStep::Stage(file) => stage(view, file, mint),
            ContentsStep::Arrived(arrived) => self.arrived(view, &arrived, mint),
            ContentsStep::Lost(file) => self.lost(view, file, mint),
            ContentsStep::Forget(file) => self.forget(&rows, file),
        }
    }

    /// Versions of files become part of their states.
    fn cut(
        &mut self,
        view: BesideView<'_>,
        versions: &[CutVersion],
        mint: MintIno<'_>,
    ) -> Result<BesideStep, NotYet> {
        let rows = SiteRows::new(view.state);
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        let (mut bodies, mut sides, mut kept) = (NewBodies::new(), Vec::new(), Vec::new());
        for CutVersion { ino, size, hashes } in versions {
            let Some(row) = rows.inode(*ino) else { continue };
            let Some(beside) = row.beside.as_ref().filter(|_| row.attr.nlink > 0 && row.attr.size == *size)
            else {
                continue;
            };
            let FileBeside { id, bytes, .. } = FileBeside::read(beside).expect("this site has written it");
            let has = steps.version(id, &bytes, (*size, pieces::root(hashes)), row.attr.mtime);
            let base = bytes.has.filter(|has| has.size > 0);
            let since = base.map(|has| VersionDelta { base: has.root, ranges: bytes.written.clone() });
            sides.push(remove(UNCUT, ino.0.into()));
            sides.extend(pieces::new_rows(*ino, bytes.has, hashes));
            kept.extend(has.map(|has| {
                let (hashes, since, pieces) = (hashes.clone(), since.clone(), self.contents.read(*ino));
                (id, CutBefore { has, hashes, since, pieces })
            }));
            let bytes = FileBytes { has, is_uncut: false, written: Default::default(), since };
            bodies.insert(id, NewBody { ino: None, bytes });
        }
        let made = steps.finish();
        let inos = versions.iter().map(|version| version.ino);
        match self.record_of(view, &rows, made, (&bodies, sides), mint) {
            Ok(record) => {
                self.contents.cut(inos, kept);
                Ok(record)
            }
            Err(NotYet::Version(ino)) => {
                self.contents.cut_later(inos);
                Err(NotYet::Version(ino))
            }
            Err(other) => Err(other),
        }
    }

    /// Later versions of files are shown.
    fn arrived(
        &mut self,
        view: BesideView<'_>,
        arrived: &[Arrival],
        mint: MintIno<'_>,
    ) -> Result<BesideStep, NotYet> {
        let rows = SiteRows::new(view.state);
        let (as_is, name_of) = (HeldChanges::default(), |writer| self.name_of(writer));
        let objects = HeldObjects::new(&rows, self.author.spine(), &as_is, &name_of);
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        let (mut bodies, mut sides) = (NewBodies::new(), Vec::new());
        let (mut done, mut other, mut conflicts) = (Vec::new(), Vec::new(), 0);
        let mut behind = Vec::new();
        for Arrival { file, version, over, ino, is_staged, is_lost, hashes } in arrived {
            let fits = rows.file(*file).filter(|held| {
                let is_it =
                    if *is_staged { rows.staged(*file) == Some(*ino) } else { held.ino == Some(*ino) };
                let is_free = held.bytes.has.is_some() == *is_staged && !held.bytes.is_uncut;
                held.ino.is_some() && is_it && is_free && held.bytes.has == *over
            });
            let is_latest = |held: &HeldFile| {
                let latest = latest(&held.state);
                latest.is_some_and(|(dot, _)| dot == version.dot)
            };
            let is_earlier = |held: &HeldFile| !*is_lost && is_later_than(*file, &held.state, *over);
            let fits = fits.filter(|held| is_latest(held) || is_earlier(held));
            let Some(held) = fits else {
                other.push(*file);
                continue;
            };
            if (conflicts + 1) * SETTLED_BY > OBJECTS_MAX {
                continue;
            }
            done.push(*file);
            if is_latest(&held) {
                sides.push(remove(BEHIND, file.0));
            } else {
                // There is a later one already, which comes next.
                let bytes = latest_bytes(&held.state);
                sides.push(set(BEHIND, file.0, &BehindRow::Behind { staged: None, bytes }));
                behind.push((*file, bytes));
            }
            // Where they were gathered before the file went, and came back without bytes.
            let other = rows.staged(*file).filter(|other| other != ino && rows.inode(*other).is_some());
            sides.extend(other.map(|ino| RowChange::Inode { ino, row: None }));
            sides.extend(pieces::new_rows(*ino, None, hashes));
            let has = if *is_lost {
                steps.version(*file, &held.bytes, (0, pieces::NO_BYTES), view.now.wall)
            } else {
                Some(*version)
            };
            let bytes = FileBytes { has, ..FileBytes::default() };
            bodies.insert(*file, NewBody { ino: is_staged.then_some(*ino), bytes });
            let had = held.bytes.has.filter(|_| is_latest(&held));
            let lost = had.and_then(|has| in_conflict(*file, &held.state, has, *version));
            let (Some((copy, dots)), Some(old)) = (lost, held.ino) else { continue };
            conflicts += 1;
            steps.settle(*file, dots, version.dot);
            let known = rows.file(copy.id);
            let place = copy.place(&objects, *file, &held.state);
            let gets_it = match (&known, place) {
                (None, Some((dir, name))) => {
                    steps.copy(*file, &copy, dir, name);
                    true
                }
                (None, None) => false,
                // Another site has made the copy, and its bytes are not here.
                (Some(known), _) => {
                    let is_coming = arrived.iter().any(|arrival| arrival.file == copy.id);
                    known.ino.is_some() && known.bytes.has.is_none() && !known.bytes.is_uncut && !is_coming
                }
            };
            if gets_it {
                let has = Some(BodyVersion::of(copy.dot, &copy.version));
                let bytes = FileBytes { has, since: held.bytes.since.clone(), ..FileBytes::default() };
                bodies.insert(copy.id, NewBody { ino: Some(old), bytes });
            }
        }
        rows.loaded()?;
        let made = steps.finish();
        other.into_iter().for_each(|file| self.contents.again(file));
        if done.is_empty() {
            return Ok(BesideStep::Rest);
        }
        match self.record_of(view, &rows, made, (&bodies, sides), mint) {
            Ok(record) => {
                done.into_iter().for_each(|file| self.contents.is_done(file));
                behind.into_iter().for_each(|(file, bytes)| self.contents.goes_on(file, bytes));
                Ok(record)
            }
            Err(NotYet::Version(ino)) => {
                done.into_iter().for_each(|file| self.contents.again(file));
                Err(NotYet::Version(ino))
            }
            Err(other) => Err(other),
        }
    }

    /// No site has the latest version of a file: what is here of an earlier one becomes the latest.
    fn lost(&mut self, view: BesideView<'_>, file: FileId, mint: MintIno<'_>) -> Result<BesideStep, NotYet> {
        let rows = SiteRows::new(view.state);
        let mut steps = Steps::new(&rows, self.author.spine(), self.author.pen(view.now));
        let mut bodies = NewBodies::new();
        let held = rows.file(file);
        let here = held.as_ref().and_then(|held| Some((held, held.bytes.has?, rows.inode(held.ino?)?)));
        if let Some((held, has, row)) = here.filter(|(held, ..)| !held.bytes.is_uncut) {
            let has = steps.version(file, &held.bytes, (has.size, has.root), row.attr.mtime);
            bodies.insert(file, NewBody { ino: None, bytes: FileBytes { has, ..held.bytes.clone() } });
        }
        let made = steps.finish();
        if bodies.is_empty() && rows.missing().is_empty() {
            self.contents.again(file);
            return Ok(BesideStep::Rest);
        }
        let record = self.record_of(view, &rows, made, (&bodies, Vec::new()), mint);
        if let Err(NotYet::Version(_)) = record {
            self.contents.again(file);
        }
        record
    }

    /// The record of changes of this site, and of what is new in bodies. What goes by it goes on account of other sites.
    pub(super) fn record_of(
        &mut self,
        view: BesideView<'_>,
        rows: &SiteRows<'_>,
        (changes, pen): (Vec<BundleChange>, Pen),
        (bodies, sides): (&NewBodies, Vec<RowChange>),
        mint: MintIno<'_>,
    ) -> Result<BesideStep, NotYet> {
        rows.loaded()?;
        let decision = self.decide(view, &changes, (bodies, true), mint)?;
        assert!(decision.wants.is_empty() && decision.refused == 0, "a site takes its own changes");
        let ForeignDecision { mut record, files, spine, .. } = decision;
        self.author.hear(view.now, spine, &[]);
        record.changes.extend(sides);
        if !changes.is_empty() {
            let bundle = Bundle { position: view.position(), changes };
            record.changes.extend(self.author.wrote(pen, bundle));
        }
        self.noted(&mut record, view.now.ms);
        Ok(BesideStep::Decide(BesideRecord { record, made: files }))
    }

    /// A file is not behind, or is not shown: what was gathered for it goes. So does what was kept of it, if it is dead.
    fn forget(&mut self, rows: &SiteRows<'_>, file: FileId) -> Result<BesideStep, NotYet> {
        let behind = rows.behind(file);
        let staged = rows.staged(file);
        let held = rows.file(file);
        let dead = held.filter(|held| held.ino.is_none() && places(file, &held.state).is_empty());
        let kept = dead.as_ref().and_then(|held| held.body);
        let bodies = staged.into_iter().chain(kept);
        let bodies: Vec<Ino> = bodies.filter(|ino| rows.inode(*ino).is_some()).collect();
        rows.loaded()?;
        self.contents.is_done(file);
        if behind.is_none() {
            return Ok(BesideStep::Rest);
        }
        let mut changes: Vec<RowChange> =
            bodies.into_iter().map(|ino| RowChange::Inode { ino, row: None }).collect();
        if let (Some(held), Some(ino)) = (dead, kept) {
            changes.extend(pieces::no_rows(ino, held.bytes.has));
            let row = FileRow::Hidden { state: Box::new(held.state.clone()), at: held.at, kept: None };
            changes.push(set(FILES, file.0, &row));
        }
        changes.push(remove(BEHIND, file.0));
        let record = Record { changes, bodies: Vec::new() };
        Ok(BesideStep::Decide(BesideRecord { record, made: Vec::new() }))
    }
}

/// Whether a version that was fetched over this one may be shown although there is a later one: that one is not here either, and nothing
/// of the bytes that are here has to become a file beside it.
fn is_later_than(file: FileId, state: &FileState, over: Option<BodyVersion>) -> bool {
    let Some((dot, version)) = latest(state) else { return false };
    let lost = over.and_then(|over| in_conflict(file, state, over, BodyVersion::of(dot, &version)));
    over.is_none_or(|over| over.dot != dot) && lost.is_none()
}

/// The version in the body of a file that did not know of a later one, as the copy that it becomes, and all versions with its bytes; none if
/// whoever made the later one had seen it.
fn in_conflict(
    file: FileId,
    state: &FileState,
    has: BodyVersion,
    kept: BodyVersion,
) -> Option<(NewCopy, Vec<atoll_causal::Dot>)> {
    let live = live_versions(state);
    let others = live.iter().filter(|(dot, version)| *dot != kept.dot && !kept.is_equal(version));
    let lost: Vec<_> = others.filter(|(dot, version)| *dot == has.dot || has.is_equal(version)).collect();
    let (dot, version) = **lost.first()?;
    let dots = lost.into_iter().map(|(dot, _)| *dot).collect();
    Some((NewCopy { id: copy_id(file, dot), dot, version }, dots))
}

/// A file gets a body without a name, in which the bytes of its latest version are gathered.
fn stage(view: BesideView<'_>, file: FileId, mint: MintIno<'_>) -> Result<BesideStep, NotYet> {
    let rows = SiteRows::new(view.state);
    let bytes = rows.behind(file).map_or(0, |BehindRow::Behind { bytes, .. }| bytes);
    rows.loaded()?;
    let ino = mint().ok_or(NotYet::Numbers)?;
    let now = view.now.wall;
    let attr = Attr {
        ino,
        kind: Kind::Regular,
        mode: 0o600,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    };
    let row = Inode {
        attr,
        target: None,
        has_xattrs: false,
        has_acl: false,
        moves: 0,
        orphan_of: Vec::new(),
        beside: Some(BesideRow::Nameless { of: file }.to_vec().into()),
        is_absent: true,
    };
    let changes = vec![
        RowChange::Inode { ino, row: Some(Box::new(row)) },
        set(BEHIND, file.0, &BehindRow::Behind { staged: Some(ino), bytes }),
    ];
    let record = Record { changes, bodies: Vec::new() };
    Ok(BesideStep::Decide(BesideRecord { record, made: vec![ino] }))
}
