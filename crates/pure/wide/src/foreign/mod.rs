//! What another site has made becomes rows: one record for the island, by which users see what the states show. Owns the steps
//! (`docs/design/023-wide.md`, "From states to rows"). Never sets bytes of files, and never changes a state but by what has come.
//!
//! Nothing is kept between attempts: one that needs a row that is not in memory changes nothing, and is done anew when the row is there.

mod affected;
pub(crate) mod bodies;
mod draft;
mod judge;
mod names;
mod near;
mod numbers;
mod objects;
mod rests;
mod settled;

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Context, FileId, HybridStamp, Writer};
use atoll_core::{Ino, IslandId, Time};
use atoll_proto::Record;
use atoll_spine::{Spine, SpineMove, SpinePlace};
use atoll_state::{RowLoad, State};

use crate::author::BundleChange;
use crate::held::{HeldChanges, HeldObjects, SiteRows};
use crate::rows::FeedRow;
pub(crate) use affected::avoiding;
use affected::{Affected, BesideRows};
use bodies::NewBodies;
use judge::{Judged, tell_born};
use numbers::Numbers;
use objects::Writing;

/// Changes of objects in one record.
pub const OBJECTS_MAX: usize = 64;

/// What is known at a site when changes of another one come.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    /// The rows of its island.
    pub state: &'a State,
    /// Where its directories are.
    pub spine: &'a Spine,
    /// The name of the site to which a writer belongs.
    pub site: &'a dyn Fn(Writer) -> String,
    /// Its island.
    pub island: IslandId,
    /// The position of the record that is made.
    pub position: u64,
    /// Its wall clock.
    pub now: Time,
}

/// What becomes of changes of another site.
#[derive(Debug)]
pub struct ForeignDecision {
    /// The rows that they set; empty if all of it was known.
    pub record: Record,
    /// The objects that it changes, and then the moves that are new: in the order of the feed.
    pub changed: Vec<FeedRow>,
    /// Numbers of new files, of which no snapshot has rows.
    pub files: Vec<Ino>,
    /// What the spine is to be told when the record is decided.
    pub spine: SpineNews,
    /// The latest stamp of each object that changes, and those of moves.
    pub heard: Vec<HybridStamp>,
    /// Objects whose whole state is to be asked for, with what is known of them. A directory without which another one cannot be taken
    /// is among them: its state has to come first.
    pub wants: BTreeMap<FeedRow, Context>,
    /// Objects whose changes cannot be decided yet: their whole states are to be asked for later.
    pub later: BTreeSet<FeedRow>,
    /// How many of the changes were refused: no site that keeps the rules makes them, or they do not fit what is here.
    pub refused: usize,
    /// A move of directories was not taken because its writer has too many in the log. It is taken after the next cut.
    pub is_busy: bool,
    /// How often a name was looked up for it: what it costs.
    pub looked_up: u64,
}

/// Why nothing can be decided yet.
#[derive(Debug, PartialEq, Eq)]
pub enum Waits {
    /// These rows are not in memory.
    Rows(Vec<RowLoad>),
    /// There are no numbers for what is new here.
    Numbers,
    /// The file of this number goes, and has bytes that no version has: a version is to be cut first. Or somebody is in its body, and it
    /// goes or would be shown as one with another. Without the changes of these files that need not be so.
    Version(Ino, BTreeSet<FileId>),
    /// There are more than [`OBJECTS_MAX`] changes.
    TooMany,
}

/// What has come to the spine.
#[derive(Debug, Default)]
pub struct SpineNews {
    born: Vec<(FileId, Option<SpinePlace>)>,
    moves: Vec<SpineMove>,
    removed: Vec<FileId>,
    kept: Vec<FileId>,
}

impl SpineNews {
    /// Tells the spine by which it was decided.
    pub fn tell(self, spine: &mut Spine) {
        tell_born(spine, &self.born);
        for record in self.moves {
            spine.receive(record).expect("it was tried on a copy");
        }
        self.kept.into_iter().for_each(|dir| spine.hold(dir));
        self.removed.into_iter().for_each(|dir| spine.release(dir));
    }
}

/// Numbers that nothing has had, as an attempt needs them.
struct Mint<'a> {
    give: &'a mut dyn FnMut() -> Option<Ino>,
    /// How many there were not.
    lacks: u64,
}

impl Mint<'_> {
    /// A number. If there is none the attempt fails in the end, and goes on with one that nothing else has until then.
    fn next(&mut self) -> Ino {
        (self.give)().unwrap_or_else(|| {
            self.lacks += 1;
            Ino(u64::MAX - self.lacks)
        })
    }
}

/// What is to be done at a site when these changes come, in one record. `mint` gives numbers that nothing has had, or none for now: an
/// attempt that waits may have used some.
pub fn decide(
    here: Here<'_>,
    changes: &[BundleChange],
    mint: &mut dyn FnMut() -> Option<Ino>,
) -> Result<ForeignDecision, Waits> {
    if changes.len() > OBJECTS_MAX {
        return Err(Waits::TooMany);
    }
    let bodies = HereBodies { new: &NewBodies::new(), busy: &BTreeSet::new(), rest: None };
    decide_all(here, changes, bodies, mint)
}

/// What is known of bodies.
#[derive(Clone, Copy)]
pub(crate) struct HereBodies<'a> {
    /// What is new in them.
    pub(crate) new: &'a NewBodies,
    /// Files in whose bodies somebody is. They count as those that have bytes which no version has, and are not shown as one with others.
    pub(crate) busy: &'a BTreeSet<Ino>,
    /// Bodies that go rest in the trash, if they take at most so many bytes; none if no body rests.
    pub(crate) rest: Option<u64>,
}

/// The same, of however many changes: those of this site are counted elsewhere.
pub(crate) fn decide_all(
    here: Here<'_>,
    changes: &[BundleChange],
    bodies: HereBodies<'_>,
    mint: &mut dyn FnMut() -> Option<Ino>,
) -> Result<ForeignDecision, Waits> {
    let rows = SiteRows::new(here.state);
    let loaded = || rows.loaded().map_err(Waits::Rows);
    let mut judged = Judged::new(&rows, here.spine);
    judged.judge(changes);
    loaded()?;
    let (as_before, site) = (HeldChanges::default(), BesideRows { spine: here.spine, name: here.site });
    let before = HeldObjects::new(&rows, here.spine, &as_before, here.site);
    let start = Affected::start(&before, &rows, &mut judged, bodies.new, site);
    loaded()?;
    let after = HeldObjects::new(&rows, here.spine, &judged.changes, here.site);
    let affected = start.close(&before, &after);
    loaded()?;
    let mut mint = Mint { give: mint, lacks: 0 };
    let numbers = Numbers::new(&rows, &before, &after, &affected, &mut mint);
    loaded()?;
    let mut writing = Writing::new(here, &rows, (&before, &after), &judged, &affected, &numbers, bodies);
    writing.write(&mut mint);
    loaded()?;
    if mint.lacks > 0 {
        return Err(Waits::Numbers);
    }
    if let Some((ino, files)) = writing.unversioned.take() {
        return Err(Waits::Version(ino, files));
    }
    let (record, files) = writing.finish();
    let is_removed = |dir: &FileId| judged.changes.dirs[dir].is_removed();
    let was_removed = |dir: &FileId| rows.dir(*dir).is_some_and(|dir| dir.head.is_removed());
    let (removed, kept): (Vec<FileId>, Vec<FileId>) =
        judged.changes.dirs.keys().filter(|dir| **dir != FileId::ROOT).partition(|dir| is_removed(dir));
    let kept = kept.into_iter().filter(was_removed).collect();
    let heard = judged.heard();
    let Judged { born, mut changed, moves, wants, refused, is_busy, .. } = judged;
    changed.extend(moves.iter().map(|record| FeedRow::Move { stamp: record.stamp() }));
    let spine = SpineNews { born, moves, removed, kept };
    let (later, looked_up) = (BTreeSet::new(), rows.looked_up());
    Ok(ForeignDecision { record, changed, files, spine, heard, wants, later, refused, is_busy, looked_up })
}
