//! Lives of writers: which start of a site's machine has given a dot, or a position of the site's feed. Owns the rule by which it is seen
//! that two sites know different changes under the same dot (`docs/design/023-wide.md`, W3). Knows no message, and decides nothing.
//!
//! Each start of a machine draws a number, its life. The life has all dots and positions from that start on, until the next one begins. It is
//! written with the first record of the machine that changes objects. Before that is synced, nobody is told of a position from the start on.
//! If a disk is an older copy, its next life begins where another one has given dots already, or before. What comes before a life never
//! changes. So two sites know the same changes of a writer, as far as both know some, if the last dot of these has the same life at both.

use std::collections::BTreeMap;

use atoll_causal::{Context, Writer};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Malformed, wire_struct};
use atoll_proto::RowChange;
use bytes::Bytes;

use crate::author::{BundleChange, highest};
use crate::peers::message::{SITES_MAX, WRITERS_MAX};
use crate::rows::{FEED, LIVES, LifeRow, life_key, remove, set};

/// Lives of one writer that are kept. Beyond, the oldest go: of dots that they gave only the number is compared.
pub const LIVES_MAX: usize = 1_024;
/// Lives of all other writers: as many as all sites of a volume may have. Others are not taken.
pub const ALL_LIVES_MAX: usize = LIVES_MAX * SITES_MAX;

wire_struct! {
    /// A life of the writer whose site tells it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OwnLife {
        /// The position from which on it has all records.
        pub position: u64,
        /// The number of the dot that it gives first.
        pub n: u64,
        /// It.
        pub life: u64,
    }
}

wire_struct! {
    /// A life of another writer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriterLife {
        /// Of this one.
        pub writer: Writer,
        /// The number of the dot that it has given first.
        pub n: u64,
        /// It.
        pub life: u64,
    }
}

/// The lives of the writer of this site, with the one of this machine.
#[derive(Debug, Clone)]
pub struct OwnLives {
    writer: Writer,
    /// That of this machine.
    drawn: OwnLife,
    /// The record that has said so; none yet if none has changed objects.
    begun_with: Option<u64>,
    /// All that have begun, by the positions from which on they have all records.
    begun: BTreeMap<u64, OwnLife>,
}

impl OwnLives {
    /// Those of the rows of [`LIVES`]. `drawn`: the life of this machine, which nobody has had before. The last record before it is that at
    /// `position`, and the last dot that was given has the number `n`.
    pub fn open<'a>(
        writer: Writer,
        drawn: u64,
        (position, n): (u64, u64),
        rows: impl IntoIterator<Item = &'a (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let mut begun = BTreeMap::new();
        for (_, key, row) in rows.into_iter().filter(|(table, ..)| *table == LIVES) {
            let (of, position) = life_of_key(*key);
            if of == writer {
                let LifeRow::Own { n, life } = LifeRow::from_slice(row)? else {
                    return Err(Malformed::new("a life of this site's writer"));
                };
                begun.insert(position, OwnLife { position, n, life });
            }
        }
        let drawn = OwnLife { position: position + 1, n: n + 1, life: drawn };
        Ok(Self { writer, drawn, begun_with: None, begun })
    }

    /// The record at this position changes objects. The rows that it gets, if no record of this machine has before.
    pub fn begins(&mut self, position: u64) -> Vec<RowChange> {
        if self.begun_with.is_some() {
            return Vec::new();
        }
        self.begun_with = Some(position);
        let OwnLife { position, n, life } = self.drawn;
        self.begun.insert(position, self.drawn);
        let mut rows = vec![set(LIVES, life_key(self.writer, position), &LifeRow::Own { n, life })];
        if self.begun.len() > LIVES_MAX
            && let Some((oldest, _)) = self.begun.pop_first()
        {
            rows.push(remove(LIVES, life_key(self.writer, oldest)));
        }
        rows
    }

    /// The record at this position may change objects: then it gets these rows too.
    pub fn begins_with(&mut self, position: u64, changes: &mut Vec<RowChange>) {
        let is_fed = |change: &RowChange| matches!(change, RowChange::Side { table: FEED, row: Some(_), .. });
        if changes.iter().any(is_fed) {
            changes.extend(self.begins(position));
        }
    }

    /// Up to which position others may be told of this writer's feed, if this site is synced up to `synced`: what comes behind the start of
    /// this machine may be told with its life only.
    pub(crate) fn upto(&self, synced: u64) -> u64 {
        let is_known = self.begun_with.is_some_and(|record| record <= synced);
        if is_known { synced } else { synced.min(self.drawn.position - 1) }
    }

    /// Those that have begun behind a position and up to another one, in order.
    pub(crate) fn between(&self, after: u64, upto: u64) -> Vec<OwnLife> {
        if after >= upto {
            return Vec::new();
        }
        self.begun.range(after + 1..=upto).map(|(_, life)| *life).collect()
    }

    /// Which one has given a dot; none if that is not known any more.
    pub(crate) fn of_dot(&self, n: u64) -> Option<u64> {
        // One that gave none has the same first dot as the next one.
        self.begun.values().rfind(|life| life.n <= n).map(|life| life.life)
    }

    /// Which one has made the record at a position, if that changes objects; none if that is not known any more.
    pub(crate) fn of_position(&self, position: u64) -> Option<u64> {
        self.begun.range(..=position).next_back().map(|(_, life)| life.life)
    }
}

/// What is known of one writer.
#[derive(Debug, Clone, Default)]
struct WriterHistory {
    /// The highest number of a dot.
    n: u64,
    /// By the dots that they gave first, each with its place in the order in which they became known.
    lives: BTreeMap<u64, (u64, u64)>,
}

impl WriterHistory {
    fn of_dot(&self, n: u64) -> Option<u64> {
        self.lives.range(..=n).next_back().map(|(_, (life, _))| *life)
    }
}

/// What a site knows of writers: the highest number of a dot of each, and the lives that have given dots up to there.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterHistories {
    all: BTreeMap<Writer, WriterHistory>,
    /// Lives that are kept, and all that ever became known.
    lives: usize,
    known: u64,
}

impl WriterHistories {
    /// The highest number of a dot of a writer that is known to be given.
    pub(crate) fn n(&self, writer: Writer) -> u64 {
        self.all.get(&writer).map_or(0, |history| history.n)
    }

    /// Of each writer the highest number of a dot.
    pub(crate) fn all(&self) -> Vec<(Writer, u64)> {
        self.all.iter().map(|(writer, history)| (*writer, history.n)).filter(|(_, n)| *n > 0).collect()
    }

    /// Which life of a writer has given a dot; none if that is not known.
    pub(crate) fn of_dot(&self, writer: Writer, n: u64) -> Option<u64> {
        self.all.get(&writer)?.of_dot(n)
    }

    /// The dots that a change names: those that it says are known, and others if it is known here which life has given them. So it is with
    /// the dot of the directory in which a file is: who takes the file may never get the directory.
    pub(crate) fn named(&self, change: &BundleChange) -> Vec<(Writer, u64)> {
        let mut dots = dots_of(change);
        let others = highest(change).into_iter();
        dots.extend(others.filter(|(writer, n)| self.of_dot(*writer, *n).is_some()));
        dots
    }

    /// A dot of a writer is known. Whether it is a higher one than before, and there is room for it.
    pub(crate) fn raise(&mut self, writer: Writer, n: u64) -> bool {
        if n <= self.n(writer) || (self.all.len() >= WRITERS_MAX && !self.all.contains_key(&writer)) {
            return false;
        }
        self.all.entry(writer).or_default().n = n;
        true
    }

    /// A life becomes known. The number of the dot that the oldest one gave first, if that one goes; an error if there is no room.
    pub(crate) fn add(&mut self, WriterLife { writer, n, life }: WriterLife) -> Result<Option<u64>, ()> {
        let has_room =
            self.lives < ALL_LIVES_MAX && (self.all.len() < WRITERS_MAX || self.all.contains_key(&writer));
        if !has_room {
            return Err(());
        }
        self.known += 1;
        let history = self.all.entry(writer).or_default();
        self.lives += usize::from(history.lives.insert(n, (life, self.known)).is_none());
        let oldest = if history.lives.len() > LIVES_MAX { history.lives.pop_first() } else { None };
        self.lives -= usize::from(oldest.is_some());
        Ok(oldest.map(|(n, _)| n))
    }

    /// Not all that come next are known. So the lives of a writer are known no more: an earlier one would be taken for that of later dots.
    /// The numbers of the dots that they gave first.
    pub(crate) fn forget_lives(&mut self, writer: Writer) -> Vec<u64> {
        let lives = self.all.get_mut(&writer).map(|history| std::mem::take(&mut history.lives));
        let numbers: Vec<u64> = lives.into_iter().flatten().map(|(n, _)| n).collect();
        self.lives -= numbers.len();
        numbers
    }

    /// The lives of a writer that begin behind a dot and up to another one.
    pub(crate) fn between(&self, writer: Writer, after: u64, upto: u64) -> Vec<WriterLife> {
        let Some(history) = self.all.get(&writer).filter(|_| after < upto) else { return Vec::new() };
        let lives = history.lives.range(after + 1..=upto);
        lives.map(|(n, (life, _))| WriterLife { writer, n: *n, life: *life }).collect()
    }

    /// How many lives ever became known.
    pub(crate) const fn known(&self) -> u64 {
        self.known
    }

    /// The lives that became known behind so many.
    pub(crate) fn since(&self, known: u64) -> Vec<WriterLife> {
        let all = self.all.iter().flat_map(|(writer, history)| {
            history
                .lives
                .iter()
                .map(|(n, (life, at))| (*at, WriterLife { writer: *writer, n: *n, life: *life }))
        });
        let mut new: Vec<(u64, WriterLife)> = all.filter(|(at, _)| *at > known).collect();
        new.sort_by_key(|(at, _)| *at);
        new.into_iter().map(|(_, life)| life).collect()
    }
}

/// What the writer of a site has given.
#[derive(Debug, Clone, Copy)]
pub struct OwnDots<'a> {
    /// The writer.
    pub writer: Writer,
    /// The number of its last dot.
    pub n: u64,
    /// Its lives.
    pub lives: &'a OwnLives,
}

/// What a site knows of all writers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownWriters<'a> {
    pub(crate) own: OwnDots<'a>,
    pub(crate) others: &'a WriterHistories,
}

impl KnownWriters<'_> {
    /// Whether another site, which knows this, knows other changes of a writer under the dots that both know.
    pub(crate) fn differs(self, theirs: &WriterHistories, writer: Writer) -> bool {
        let is_own = writer == self.own.writer;
        let both = theirs.n(writer).min(if is_own { self.own.n } else { self.others.n(writer) });
        let here = if is_own { self.own.lives.of_dot(both) } else { self.others.of_dot(writer, both) };
        are_others(here, theirs.of_dot(writer, both))
    }

    /// Whether another site knows of dots that this site's writer has not given yet, and which life has given them. If it does not say which,
    /// somebody may have lied to it.
    pub(crate) fn is_behind(self, theirs: &WriterHistories, writer: Writer) -> bool {
        let n = theirs.n(writer);
        let is_behind = writer == self.own.writer && n > self.own.n && theirs.of_dot(writer, n).is_some();
        is_behind && !(planted(Bug::LifeIsNotCompared) || planted(Bug::GoneBackUnseen))
    }
}

/// Whether two lives are known and are not the same.
pub(crate) fn are_others(one: Option<u64>, other: Option<u64>) -> bool {
    let is_blind = planted(Bug::LifeIsNotCompared) || planted(Bug::GoneBackUnseen);
    !is_blind && one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The dots that a change names as known.
pub(crate) fn dots_of(change: &BundleChange) -> Vec<(Writer, u64)> {
    let all = |context: &Context| context.iter().collect();
    match change {
        BundleChange::FileBorn { state, .. } => all(&state.context),
        BundleChange::DirBorn { head, .. } => all(&head.context),
        BundleChange::FileChanged { change, .. } => vec![(change.dot.writer, change.dot.n)],
        BundleChange::DirChanged { change, .. } => vec![(change.dot.writer, change.dot.n)],
        BundleChange::DirsMoved { .. } => Vec::new(),
    }
}

/// The writer of a key in [`LIVES`], and the number in it.
pub(crate) const fn life_of_key(key: u128) -> (Writer, u64) {
    (Writer((key >> 64) as u64), key as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The side rows that are there when these changes are made.
    fn apply(rows: &mut BTreeMap<(u8, u128), Bytes>, changes: Vec<RowChange>) {
        for change in changes {
            match change {
                RowChange::Side { table, id, row: Some(row) } => drop(rows.insert((table, id), row)),
                RowChange::Side { table, id, row: None } => drop(rows.remove(&(table, id))),
                other => panic!("{other:?}"),
            }
        }
    }

    fn of(rows: &BTreeMap<(u8, u128), Bytes>) -> Vec<(u8, u128, Bytes)> {
        rows.iter().map(|((table, id), row)| (*table, *id, row.clone())).collect()
    }

    #[test]
    fn a_life_is_written_once_and_not_before_it_changes_something() {
        let mut rows = BTreeMap::new();
        let mut lives = OwnLives::open(Writer(7), 71, (0, 0), []).unwrap();
        assert_eq!((lives.of_dot(9), lives.of_position(9)), (None, None));
        // The records before change no objects, and nobody is told of them before the life is synced.
        assert_eq!((lives.upto(0), lives.upto(2)), (0, 0));
        apply(&mut rows, lives.begins(3));
        assert_eq!(lives.begins(4), []);
        assert_eq!((lives.upto(2), lives.upto(3), lives.upto(4)), (0, 3, 4));
        // This one takes what others have made, and gives no dot.
        let mut lives = OwnLives::open(Writer(7), 72, (8, 5), &of(&rows)).unwrap();
        apply(&mut rows, lives.begins(10));
        OwnLives::open(Writer(7), 73, (12, 5), &of(&rows)).unwrap();
        let mut lives = OwnLives::open(Writer(7), 74, (15, 5), &of(&rows)).unwrap();
        assert_eq!((lives.upto(14), lives.upto(19)), (14, 15));
        apply(&mut rows, lives.begins(20));
        let lives = OwnLives::open(Writer(7), 75, (20, 8), &of(&rows)).unwrap();
        let of_positions = [0, 1, 8, 9, 15, 16].map(|position| lives.of_position(position));
        assert_eq!(of_positions, [None, Some(71), Some(71), Some(72), Some(72), Some(74)]);
        assert_eq!([1, 5, 6, 8].map(|n| lives.of_dot(n)), [Some(71), Some(71), Some(74), Some(74)]);
        assert_eq!(lives.between(1, 9), [OwnLife { position: 9, n: 6, life: 72 }]);
        let others = [(LIVES, life_key(Writer(7), 3), set(LIVES, 0, &LifeRow::Seen { life: 1 }))];
        let others = others.map(|(table, id, row)| match row {
            RowChange::Side { row: Some(row), .. } => (table, id, row),
            other => panic!("{other:?}"),
        });
        assert!(OwnLives::open(Writer(7), 76, (20, 8), &others).is_err());
    }

    #[test]
    fn of_more_lives_than_are_kept_the_oldest_go() {
        let mut rows = BTreeMap::new();
        let mut others = WriterHistories::default();
        for start in 1..=LIVES_MAX as u64 + 2 {
            let mut lives = OwnLives::open(Writer(7), start, (start - 1, start - 1), &of(&rows)).unwrap();
            apply(&mut rows, lives.begins(start));
            let oldest = others.add(WriterLife { writer: Writer(8), n: start, life: start }).unwrap();
            assert_eq!(oldest, start.checked_sub(LIVES_MAX as u64).filter(|oldest| *oldest > 0));
        }
        assert_eq!(rows.len(), LIVES_MAX);
        let last = LIVES_MAX as u64 + 2;
        others.raise(Writer(8), last);
        let lives = OwnLives::open(Writer(7), 0, (last, last), &of(&rows)).unwrap();
        let known =
            KnownWriters { own: OwnDots { writer: Writer(7), n: last, lives: &lives }, others: &others };
        for writer in [Writer(7), Writer(8)] {
            let differs = |n| {
                let mut theirs = WriterHistories::default();
                theirs.add(WriterLife { writer, n: 1, life: 9_999 }).unwrap();
                theirs.raise(writer, n);
                known.differs(&theirs, writer)
            };
            assert_eq!([1, 2, 3, last, last + 1].map(differs), [false, false, true, true, true]);
        }
    }

    #[test]
    fn lives_of_others_have_a_bound() {
        let mut others = WriterHistories::default();
        for writer in 0..SITES_MAX as u64 {
            for n in 1..=LIVES_MAX as u64 {
                others.add(WriterLife { writer: Writer(writer), n, life: n }).unwrap();
            }
        }
        assert_eq!(others.since(0).len(), ALL_LIVES_MAX);
        assert_eq!(others.add(WriterLife { writer: Writer(1_000), n: 1, life: 1 }), Err(()));
    }
}
