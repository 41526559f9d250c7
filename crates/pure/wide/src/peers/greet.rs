//! What two sites say to each other first, and why a site ends a link. Owns the rule by which it is noticed that one of them has gone back
//! to an earlier state (`docs/design/023-wide.md`, W3). Changes nothing.

use std::collections::BTreeMap;

use atoll_causal::Writer;
use atoll_core::planted::{Bug, planted};

use super::FeedUpto;
use super::message::Hello;
use crate::lives::{KnownWriters, OwnDots, OwnLife, WriterHistories, WriterLife, are_others};

/// Why a site ends a link. Nothing of what comes on that link is taken any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The other one is a site of another volume.
    #[error("the other site belongs to another volume")]
    Volume,
    /// The other site has seen more of this site than there is.
    #[error("this site has gone back to an earlier state: the other site has seen later changes of it")]
    ThisWentBack,
    /// This site has seen more of the other site than there is.
    #[error("the other site has gone back to an earlier state: this site has seen later changes of it")]
    OtherWentBack,
    /// Both sites have taken changes of a third one, and not the same.
    #[error(
        "the site of {0:?} has gone back to an earlier state: this site and the other one have taken different changes of it"
    )]
    ThirdWentBack(Writer),
    /// A message comes that has no place here.
    #[error("the other site breaks the order of messages: {0}")]
    Order(&'static str),
    /// More comes than a site may send.
    #[error("the other site sends too much: {0}")]
    Bound(&'static str),
    /// A move of directories cannot be taken before the next cut.
    #[error("too many moves of directories wait for the next cut")]
    Busy,
}

/// What a site remembers of another one, and has itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remembered {
    pub(super) volume: u64,
    /// Up to where others may be told of this site's feed ([`OwnLives::upto`](crate::lives::OwnLives::upto)).
    pub(super) tellable: u64,
    /// Up to where this site has the other one's feed.
    pub(super) taken: FeedUpto,
    /// Up to where the other one has said that it has this site's feed, synced.
    pub(super) acked: u64,
}

/// What a linked site has told of writers.
#[derive(Debug, Clone)]
pub(super) struct Theirs {
    /// Its own writer.
    writer: Writer,
    /// The lives of that, by the positions of their first records.
    feed: BTreeMap<u64, u64>,
    /// What it knows of writers, its own one with it.
    pub(super) writers: WriterHistories,
}

impl Theirs {
    /// As it says first.
    pub(super) fn of(hello: &Hello) -> Result<Self, Refused> {
        let mut theirs =
            Self { writer: hello.writer, feed: BTreeMap::new(), writers: WriterHistories::default() };
        theirs.add(&hello.own, &hello.lives)?;
        for (writer, n) in hello.writers.iter().chain([&(hello.writer, hello.n)]) {
            theirs.writers.raise(*writer, *n);
        }
        Ok(theirs)
    }

    fn add(&mut self, own: &[OwnLife], others: &[WriterLife]) -> Result<(), Refused> {
        self.feed.extend(own.iter().map(|life| (life.position, life.life)));
        let own =
            own.iter().map(|OwnLife { n, life, .. }| WriterLife { writer: self.writer, n: *n, life: *life });
        for life in own.chain(others.iter().copied()) {
            self.writers.add(life).map_err(|()| Refused::Bound("lives of writers"))?;
        }
        Ok(())
    }

    /// It tells of more lives. They have given nothing that it has told before.
    pub(super) fn more(&mut self, own: &[OwnLife], others: &[WriterLife]) -> Result<(), Refused> {
        let is_behind = |life: &OwnLife| {
            life.n > self.writers.n(self.writer)
                && self.feed.last_key_value().is_none_or(|(last, _)| life.position > *last)
        };
        if !(own.iter().all(is_behind) && others.iter().all(|life| life.n > self.writers.n(life.writer))) {
            return Err(Refused::Order("a life begins before what it has given was told"));
        }
        self.add(own, others)
    }

    /// The life of its own that has made a position of its feed.
    pub(super) fn of_position(&self, position: u64) -> Option<u64> {
        self.feed.range(..=position).next_back().map(|(_, life)| *life)
    }
}

/// Why a link ends on account of a writer of which both ends know different changes.
pub(super) fn differ(own: OwnDots<'_>, theirs: &Theirs, writer: Writer) -> Refused {
    match writer {
        writer if writer == own.writer => Refused::ThisWentBack,
        writer if writer == theirs.writer => Refused::OtherWentBack,
        writer => Refused::ThirdWentBack(writer),
    }
}

/// Judges what the other site says first.
pub(super) fn judge(
    own: OwnDots<'_>,
    others: &WriterHistories,
    here: Remembered,
    hello: &Hello,
) -> Result<Theirs, Refused> {
    if hello.volume != here.volume {
        return Err(Refused::Volume);
    }
    let theirs = Theirs::of(hello)?;
    if planted(Bug::GoneBackUnseen) {
        return Ok(theirs);
    }
    let has_more = hello.has > here.tellable || theirs.writers.n(own.writer) > own.n;
    if has_more || are_others(own.lives.of_position(hello.has), hello.life) {
        return Err(Refused::ThisWentBack);
    }
    let has_less = hello.synced < here.taken.position || hello.has < here.acked;
    if has_less || are_others(theirs.of_position(here.taken.position), here.taken.life) {
        return Err(Refused::OtherWentBack);
    }
    let known = KnownWriters { own, others };
    let both = [own.writer, hello.writer].into_iter().chain(hello.writers.iter().map(|(writer, _)| *writer));
    match both.into_iter().find(|writer| known.differs(&theirs.writers, *writer)) {
        Some(writer) => Err(differ(own, &theirs, writer)),
        None => Ok(theirs),
    }
}

#[cfg(test)]
mod tests {
    use atoll_causal::Writer;

    use super::*;
    use crate::lives::OwnLives;
    use crate::peers::message::Most;

    const HERE: Remembered =
        Remembered { volume: 1, tellable: 10, taken: FeedUpto { position: 20, life: Some(82) }, acked: 5 };

    /// The site 8 greets the site 7: each has begun with a life, and goes on with another one behind it.
    fn judged_with(change: impl FnOnce(&mut Hello)) -> Result<(), Refused> {
        let mut lives = OwnLives::open(Writer(7), 71, (0, 0), []).unwrap();
        let first = lives.begins(1);
        let rows = first.into_iter().map(|row| match row {
            atoll_proto::RowChange::Side { table, id, row: Some(row) } => (table, id, row),
            other => panic!("{other:?}"),
        });
        let mut lives = OwnLives::open(Writer(7), 72, (7, 20), &rows.collect::<Vec<_>>()).unwrap();
        assert_eq!(lives.begins(8).len(), 1);
        let own = OwnDots { writer: Writer(7), n: 30, lives: &lives };
        let mut others = WriterHistories::default();
        let life = |writer, n, life| WriterLife { writer: Writer(writer), n, life };
        for known in [life(6, 1, 61), life(6, 900, 62), life(8, 1, 81), life(8, 40, 82)] {
            others.add(known).unwrap();
        }
        others.raise(Writer(6), 1_000);
        others.raise(Writer(8), 50);
        let mut hello = Hello {
            volume: 1,
            writer: Writer(8),
            n: 60,
            own: Most::new(vec![
                OwnLife { position: 1, n: 1, life: 81 },
                OwnLife { position: 15, n: 40, life: 82 },
            ]),
            writers: Most::new(vec![(Writer(6), 950), (Writer(7), 25)]),
            lives: Most::new(vec![life(6, 1, 61), life(6, 900, 62), life(7, 1, 71), life(7, 21, 72)]),
            has: 9,
            life: Some(72),
            synced: 1_000,
        };
        change(&mut hello);
        judge(own, &others, HERE, &hello).map(|_| ())
    }

    fn judged(volume: u64, n: u64, has: u64, synced: u64) -> Result<(), Refused> {
        judged_with(|hello| {
            (hello.volume, hello.has, hello.synced, hello.life) = (volume, has, synced, None);
            hello.writers = Most::new(vec![(Writer(6), 950), (Writer(7), n)]);
        })
    }

    #[test]
    fn who_has_gone_back_is_noticed_by_lives_also_of_positions_and_of_a_third_site() {
        let lives = |hello: &mut Hello, at: usize, life: WriterLife| {
            let mut lives = hello.lives.to_vec();
            lives[at] = life;
            hello.lives = Most::new(lives);
        };
        let life = |writer, n, life| WriterLife { writer: Writer(writer), n, life };
        assert_eq!(judged_with(|_| {}), Ok(()));
        assert_eq!(judged_with(|hello| hello.life = Some(71)), Err(Refused::ThisWentBack));
        assert_eq!(judged_with(|hello| lives(hello, 3, life(7, 21, 73))), Err(Refused::ThisWentBack));
        assert_eq!(
            judged_with(|hello| lives(hello, 1, life(6, 900, 63))),
            Err(Refused::ThirdWentBack(Writer(6)))
        );
        let own = |lives: &[(u64, u64, u64)]| {
            let lives =
                lives.iter().map(|(position, n, life)| OwnLife { position: *position, n: *n, life: *life });
            let lives = Most::new(lives.collect());
            move |hello: &mut Hello| hello.own = lives
        };
        let of_its_feed = judged_with(own(&[(1, 1, 81), (15, 51, 83)]));
        assert_eq!(of_its_feed, Err(Refused::OtherWentBack));
        let of_its_dots = judged_with(own(&[(1, 1, 81), (15, 40, 82), (21, 50, 83)]));
        assert_eq!(of_its_dots, Err(Refused::OtherWentBack));
        assert_eq!(judged_with(own(&[(1, 1, 81), (15, 40, 82), (21, 51, 83)])), Ok(()));
        // What is not known any more is not compared.
        assert_eq!(judged_with(|hello| hello.lives = Most::default()), Ok(()));
    }

    #[test]
    fn a_site_that_has_seen_no_more_than_there_is_and_has_not_gone_back_is_greeted() {
        assert_eq!(judged(1, 30, 10, 20), Ok(()));
        assert_eq!(judged(1, 0, 5, 1_000), Ok(()));
    }

    #[test]
    fn who_has_gone_back_is_noticed_by_positions_and_by_dots() {
        assert_eq!(judged(1, 30, 11, 20), Err(Refused::ThisWentBack));
        assert_eq!(judged(1, 31, 10, 20), Err(Refused::ThisWentBack));
        assert_eq!(judged(1, 30, 10, 19), Err(Refused::OtherWentBack));
        assert_eq!(judged(1, 30, 4, 20), Err(Refused::OtherWentBack));
        assert_eq!(judged(2, 30, 10, 20), Err(Refused::Volume));
    }

    #[test]
    fn a_life_is_told_before_what_it_has_given() {
        let mut theirs = None;
        judged_with(|hello| theirs = Theirs::of(hello).ok()).unwrap();
        let mut theirs = theirs.unwrap();
        let own = |position, n| [OwnLife { position, n, life: 84 }];
        let other = |n| [WriterLife { writer: Writer(6), n, life: 64 }];
        let late = Err(Refused::Order("a life begins before what it has given was told"));
        assert_eq!(theirs.more(&own(15, 61), &[]), late);
        assert_eq!(theirs.more(&own(16, 60), &[]), late);
        assert_eq!(theirs.more(&[], &other(950)), late);
        assert_eq!(theirs.more(&own(16, 61), &other(951)), Ok(()));
        assert_eq!((theirs.of_position(15), theirs.of_position(16)), (Some(82), Some(84)));
    }
}
