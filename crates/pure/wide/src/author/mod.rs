//! Writes down what users do at a site: as changes of objects, in the record that does it, and as bundles for other sites. Never
//! refuses an operation but a move of directories, and knows no change of another site.
//!
//! An object has at most one change a record. Its dot is the next number of the writer: no numbers are reserved, since nothing leaves
//! before its record is synced. A dot whose record a power cut took was seen by nobody, and is given again.

mod draft;
mod made;
mod named;

use std::collections::BTreeMap;

use atoll_causal::{Dot, FileId, HybridClock, HybridStamp, Writer};
use atoll_core::{Decode, Ino, Malformed, Time};
use atoll_island::Now;
use atoll_proto::{EntryRef, Record, RowChange};
use atoll_shown::DirGroup;
use atoll_spine::{MoveRefused, MovedDir, Spine, SpineMove, SpinePlace};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

pub use made::{Bundle, BundleChange, Made, MadeRecord};

use crate::foreign::SpineNews;
use crate::held::{HeldChanges, HeldObjects, SiteRows};
use crate::lives::{OwnDots, OwnLives};
use crate::rows::{
    DIRS, DirRow, FeedPlace, FeedRow, MOVES, MoveRow, WRITERS, WriterRow, fed, set, stamp_key,
};
use crate::watch::{Happened, LocalObject, happened};
use draft::{Draft, OtherDirs, dir_of};
pub(crate) use named::highest;

/// See the module.
#[derive(Debug, Clone)]
pub struct Author {
    writer: Writer,
    /// The number of the last dot.
    n: u64,
    clock: HybridClock,
    spine: Spine,
    made: Made,
    lives: OwnLives,
    /// What goes with the record that is decided now, and is set before its rows.
    first: Vec<BundleChange>,
}

impl Author {
    /// An author who goes on where the rows of a site end, with the record at `position`. The site has this writer, in a life that nobody
    /// has had before. Of all side rows those of [`DIRS`], [`MOVES`], [`WRITERS`] and [`LIVES`](crate::rows::LIVES) are used.
    pub fn open(
        writer: Writer,
        life: u64,
        position: u64,
        rows: Vec<(u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let (mut n, mut clock, mut made) = (0, HybridClock::default(), Made::behind(0));
        let (mut bases, mut removed, mut moves) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (table, id, row) in &rows {
            match *table {
                DIRS => match DirRow::from_slice(row)? {
                    DirRow::Shown { base, .. } => drop(bases.insert(FileId(*id), base)),
                    DirRow::Hidden { head, base, .. } => {
                        bases.insert(FileId(*id), base);
                        removed.extend(head.is_removed().then_some(FileId(*id)));
                    }
                },
                MOVES => {
                    let MoveRow::Logged { record } = MoveRow::from_slice(row)?;
                    moves.push(record);
                }
                WRITERS if *id == u128::from(writer.0) => {
                    let WriterRow::Own { n: last, latest_us, position } = WriterRow::from_slice(row)? else {
                        return Err(Malformed::new("the row of this site's writer"));
                    };
                    (n, clock, made) = (last, HybridClock::new(latest_us), Made::behind(position));
                }
                _ => {}
            }
        }
        let mut spine = Spine::default();
        learn_bases(&mut spine, bases)?;
        let (_, refused) = spine.receive_all(moves);
        removed.into_iter().for_each(|dir| spine.release(dir));
        if !refused.is_empty() {
            return Err(Malformed::new("moves of directories"));
        }
        let lives = OwnLives::open(writer, life, (position, n), &rows)?;
        Ok(Self { writer, n, clock, spine, made, lives, first: Vec::new() })
    }

    /// What the records behind `after` have changed, in order, up to the synced position `synced`. None if some of it is not in memory
    /// any more: then the feed has to tell of it. In memory are 4,096 bundles, or 8 MiB of them if that is less, since the start.
    pub fn bundles<'a>(&'a self, after: u64, synced: u64) -> Option<impl Iterator<Item = &'a Bundle>> {
        let own = |record: &'a MadeRecord| match record {
            MadeRecord::Own(bundle) => Some(bundle),
            MadeRecord::Foreign { .. } => None,
        };
        Some(self.made.between(after, synced)?.filter_map(own))
    }

    /// What the last records have changed.
    pub const fn made(&self) -> &Made {
        &self.made
    }

    /// The writer of the site, and the number of its last dot.
    pub const fn given(&self) -> (Writer, u64) {
        (self.writer, self.n)
    }

    /// What the writer of the site has given.
    pub const fn own_dots(&self) -> OwnDots<'_> {
        OwnDots { writer: self.writer, n: self.n, lives: &self.lives }
    }

    /// The record at this position has these changes, which other sites have made.
    pub(crate) fn begins_with(&mut self, position: u64, changes: &mut Vec<RowChange>) {
        self.lives.begins_with(position, changes);
    }

    /// What gives the dots and stamps of changes that are about to be made.
    pub(crate) fn pen(&self, now: Now) -> Pen {
        Pen { writer: self.writer, n: self.n, clock: self.clock, now_us: micros(now.wall) }
    }

    /// These changes are made, with what this pen has given. The rows that say so.
    pub(crate) fn wrote(&mut self, pen: Pen, bundle: Bundle) -> Vec<RowChange> {
        (self.n, self.clock) = (pen.n, pen.clock);
        let rows = self.rows(bundle.position);
        self.made.push(MadeRecord::Own(bundle));
        rows
    }

    /// The rows of the record at a position, which changes objects.
    fn rows(&mut self, position: u64) -> Vec<RowChange> {
        let row = WriterRow::Own { n: self.n, latest_us: self.clock.latest_us(), position };
        let mut rows = self.lives.begins(position);
        rows.push(set(WRITERS, self.writer.0.into(), &row));
        rows
    }

    /// These changes go with the record that is decided now, which [`Author::witness`] gets next, with what this pen has given.
    pub(crate) fn wrote_first(&mut self, pen: Pen, changes: Vec<BundleChange>) {
        (self.n, self.clock) = (pen.n, pen.clock);
        self.first = changes;
    }

    /// A record of what another site has made.
    pub(crate) fn took(&mut self, record: MadeRecord) {
        self.made.push(record);
    }

    /// Takes note of what other sites have made: of what the spine is to be told, and of stamps.
    pub(crate) fn hear(&mut self, now: Now, news: SpineNews, heard: &[HybridStamp]) {
        news.tell(&mut self.spine);
        for stamp in heard {
            self.clock.hear(micros(now.wall), *stamp);
        }
    }

    /// Whether each dot of this writer in a change was given: also those that a removal says that it had seen, and those with which the
    /// objects were born of which it tells. Else the spine would know a directory that this site is to make later.
    pub(crate) fn has_given(&self, change: &BundleChange) -> bool {
        let is_own_move = match change {
            BundleChange::DirsMoved { record } => {
                record.stamp().writer != self.writer || self.spine.record(record.stamp()) == Some(record)
            }
            _ => true,
        };
        is_own_move && highest(change).get(&self.writer).is_none_or(|n| *n <= self.n)
    }

    /// Where directories are.
    pub const fn spine(&self) -> &Spine {
        &self.spine
    }

    /// Judges a move of directories to other parents, with a clock that gives its stamp.
    fn judge(
        &self,
        clock: &mut HybridClock,
        now: Now,
        state: &State,
        moves: &[(Ino, EntryRef)],
    ) -> Result<Result<SpineMove, MoveRefused>, NotInMemory> {
        // A move is later than what has named the directory before, so that it names it.
        let mut named = HybridStamp::ZERO;
        let mut dirs = Vec::new();
        for (ino, to) in moves {
            let parent = dir_of(state, to.dir)?;
            for (dir, latest) in self.shown_as(state, *ino)? {
                named = named.max(latest);
                dirs.push(MovedDir { dir, parent: parent.id, name: to.name.clone() });
            }
        }
        let give = |above: HybridStamp| clock.give(micros(now.wall), self.writer, above.max(named));
        Ok(self.spine.decide(self.writer, dirs, give))
    }

    /// The directories that are shown as one under this number, the first one first, each with its latest stamp.
    fn shown_as(&self, state: &State, ino: Ino) -> Result<Vec<(FileId, HybridStamp)>, NotInMemory> {
        let first = dir_of(state, ino)?.id;
        let rows = SiteRows::new(state);
        let (as_is, nobody) = (HeldChanges::default(), |_| String::new());
        let held = HeldObjects::new(&rows, &self.spine, &as_is, &nobody);
        let group = DirGroup::of(&held, first);
        let members = group.as_ref().map_or(&[][..], DirGroup::members).iter();
        let members = members.filter_map(|dir| Some((*dir, rows.dir(*dir)?.head.latest()))).collect();
        match rows.missing().into_iter().next() {
            Some(load) => Err(NotInMemory(load)),
            None => Ok(members),
        }
    }

    /// Of each directory that gets another name or other attributes the others that are shown as one with it, and in which directories these are.
    fn others(&self, state: &State, happened: &[Happened]) -> OtherDirs {
        let parent = |dir| self.spine.place(dir).expect("it is in the spine").parent;
        let others = |ino: Ino| {
            let shown = self.shown_as(state, ino).expect("what comes before an operation has looked at them");
            (ino, shown.into_iter().skip(1).map(|(dir, _)| (dir, parent(dir))).collect())
        };
        let dirs = happened.iter().flat_map(|happened| match happened {
            Happened::Moved { object, .. } => [Some(object), None],
            Happened::Exchanged { one, other, .. } => [Some(one), Some(other)],
            Happened::AttrChanged { object, .. } => [Some(object), None],
            _ => [None, None],
        });
        // What is born is shown as one with nothing.
        let is_born = |dir: &LocalObject| {
            let mut born = happened.iter();
            born.any(|happened| matches!(happened, Happened::Born { object, .. } if object == dir))
        };
        let dirs = dirs.flatten().filter(|dir| matches!(dir, LocalObject::Dir(_)) && !is_born(dir));
        dirs.map(|object| others(object.ino())).collect()
    }

    /// Takes note of the directories that get other parents.
    fn move_dirs(&mut self, state: &State, now: Now, happened: &[Happened]) -> Option<SpineMove> {
        let moves = moves_of(happened);
        if moves.is_empty() {
            return None;
        }
        let mut clock = self.clock;
        let judged = self.judge(&mut clock, now, state, &moves).expect("rows of what moves are in memory");
        let record = judged.expect("it was asked before");
        self.clock = clock;
        self.spine.receive(record.clone()).expect("what is decided here is taken here");
        Some(record)
    }

    /// As [`atoll_island::Beside::witness`]. What users have done.
    pub(crate) fn witness(
        &mut self,
        state: &State,
        now: Now,
        seq: u64,
        record: &mut Record,
    ) -> Vec<Happened> {
        let happened = happened(state, record).expect("the island has read what it changes");
        let others = self.others(state, &happened);
        let moved = self.move_dirs(state, now, &happened);
        let mut changes = std::mem::take(&mut self.first);
        let Self { writer, n, clock, spine, .. } = self;
        let now_us = micros(now.wall);
        let from = FeedPlace { position: seq, number: changes.len() as u64 };
        let mut draft = Draft::new(state, (*writer, n), (clock, now_us), (spine, others), from);
        happened.iter().for_each(|happened| draft.add(happened));
        changes.extend(draft.finish(record));
        if changes.is_empty() {
            return happened;
        }
        if let Some(moved) = moved {
            let (stamp, row) = (moved.stamp(), MoveRow::Logged { record: moved.clone() });
            let at = FeedPlace { position: seq, number: changes.len() as u64 };
            record.changes.extend(fed(None, at, FeedRow::Move { stamp }));
            record.changes.push(set(MOVES, stamp_key(stamp), &row));
            changes.push(BundleChange::DirsMoved { record: moved });
        }
        record.changes.extend(self.rows(seq));
        self.made.push(MadeRecord::Own(Bundle { position: seq, changes }));
        happened
    }

    /// As [`atoll_island::Beside::allows_moves`].
    pub(crate) fn allows_moves(
        &self,
        state: &State,
        now: Now,
        moves: &[(Ino, EntryRef)],
    ) -> Result<bool, NotInMemory> {
        Ok(self.judge(&mut self.clock.clone(), now, state, moves)?.is_ok())
    }
}

/// The dots and stamps of a writer's next changes. They count when these are made.
#[derive(Debug, Clone)]
pub(crate) struct Pen {
    writer: Writer,
    n: u64,
    clock: HybridClock,
    now_us: u64,
}

impl Pen {
    pub(crate) const fn dot(&mut self) -> Dot {
        self.n += 1;
        Dot { writer: self.writer, n: self.n }
    }

    /// A stamp that is later than this one, and than each before.
    pub(crate) fn stamp(&mut self, above: HybridStamp) -> HybridStamp {
        self.clock.give(self.now_us, self.writer, above)
    }
}

/// Directories that get another parent.
fn moves_of(happened: &[Happened]) -> Vec<(Ino, EntryRef)> {
    let moved = |object: &LocalObject, from: &EntryRef, to: &EntryRef| match object {
        LocalObject::Dir(ino) if from.dir != to.dir => Some((*ino, to.clone())),
        _ => None,
    };
    let of = |happened: &Happened| match happened {
        Happened::Moved { object, from, to } => [moved(object, from, to), None],
        Happened::Exchanged { one, one_from, other, other_from } => {
            [moved(one, one_from, other_from), moved(other, other_from, one_from)]
        }
        _ => [None, None],
    };
    happened.iter().flat_map(of).flatten().collect()
}

/// Tells a spine of directories with their bases: each behind the one in which it is.
fn learn_bases(spine: &mut Spine, mut bases: BTreeMap<FileId, SpinePlace>) -> Result<(), Malformed> {
    while let Some((first, base)) = bases.pop_first() {
        let mut way = vec![(first, base)];
        while let Some((_, SpinePlace { parent, .. })) = way.last()
            && *parent != FileId::ROOT
            && spine.place(*parent).is_none()
        {
            // One that is on the way already is gone from these too.
            let above = bases.remove_entry(parent).ok_or(Malformed::new("bases of directories"))?;
            way.push(above);
        }
        way.into_iter().rev().for_each(|(dir, base)| spine.born(dir, base));
    }
    Ok(())
}

/// Microseconds since 1970.
pub(crate) fn micros(time: Time) -> u64 {
    let secs = u64::try_from(time.secs).unwrap_or(0);
    secs.saturating_mul(1_000_000).saturating_add(u64::from(time.nanos / 1_000))
}
