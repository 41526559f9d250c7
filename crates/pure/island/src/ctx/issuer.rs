//! Gives numbers that are never given twice: ids, minted from ranges that are synced before use (`DESIGN` 2),
//! and stamps, of an incarnation that each start takes anew. Also gives times of changes, each later than the
//! one before.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Stamp, Time};
use atoll_state::state::Meta;

/// Ids that one record reserves.
const RANGE: u64 = 1 << 20;
/// Seconds by which a time of an earlier life or of another island may be ahead of this life's clock, so that it still counts. Clocks of
/// machines, and one that is set by hand, differ by less. A clock that was further ahead was wrong, and a start is where the
/// times that it gave end: otherwise every change after them would have a time of then, for years.
const AHEAD_SECS_MAX: i64 = 86_400;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Issuer {
    last_time: Time,
    last_stamp: Stamp,
    mint_next: u64,
    /// Ids below this may be given: the record that reserves them is synced.
    mint_limit: u64,
    /// The record that reserves the next range, and the end of that.
    reserving: Option<(u64, u64)>,
}

impl Issuer {
    /// Goes on behind the numbers that the rows say were given.
    pub(crate) fn resume(meta: &Meta, wall: Time) -> Self {
        let given =
            if planted(Bug::IdsGivenAgain) { meta.mint_limit.saturating_sub(RANGE) } else { meta.mint_limit };
        let last_time = if counts(meta.time, wall) { wall.max(meta.time) } else { wall };
        Self {
            last_time,
            last_stamp: meta.stamp,
            mint_next: given.max(Ino::FIRST_COUNTER),
            mint_limit: meta.mint_limit,
            reserving: None,
        }
    }

    /// A new id; none if the next range of them is not synced yet.
    pub(crate) fn mint(&mut self, island: IslandId) -> Option<Ino> {
        if !self.has_ids() {
            return None;
        }
        self.mint_next += 1;
        Some(Ino::mint(island, self.mint_next - 1))
    }

    /// The end of the range of ids to be reserved next, while half of the last one is left: up to `reserved`.
    pub(crate) fn next_range(&self, reserved: u64) -> Option<u64> {
        let is_due = reserved.saturating_sub(self.mint_next) < RANGE / 2;
        is_due.then(|| reserved.max(self.mint_next) + RANGE)
    }

    /// The record at `seq` reserves ids up to `limit`.
    pub(crate) const fn reserve(&mut self, seq: u64, limit: u64) {
        self.reserving = Some((seq, limit));
    }

    /// Ids that a record reserves may be given if it is synced.
    pub(crate) fn synced(&mut self, is_synced: impl Fn(u64) -> bool) {
        if let Some((_, limit)) = self.reserving.take_if(|(seq, _)| is_synced(*seq)) {
            self.mint_limit = limit;
        }
    }

    /// Whether an id can be given.
    pub(crate) const fn has_ids(&self) -> bool {
        self.mint_next < self.mint_limit
    }

    /// Whatever stamp is given from here on in this incarnation is later than this one.
    pub(crate) fn stamps_after(&self, incarnation: u32) -> Stamp {
        self.last_stamp.max(Stamp::new(incarnation, 0))
    }

    /// Whatever time is given from here on is later than this one. `greatest`: the latest time that a record has set.
    pub(crate) fn times_after(&self, wall: Time, greatest: Time) -> Time {
        if counts(greatest, wall) { self.last_time.max(greatest) } else { self.last_time }
    }

    /// The next stamp of this island's clock; goes into the record that uses it.
    pub(crate) fn stamp(&mut self, incarnation: u32) -> Stamp {
        self.last_stamp = if self.last_stamp.incarnation() == incarnation {
            Stamp::new(incarnation, self.last_stamp.n() + u64::from(!planted(Bug::StampTwice)))
        } else {
            Stamp::new(incarnation, 1)
        };
        self.last_stamp
    }

    /// The time of a change: later than every one before it, so that a changed file always shows. Other islands give times by
    /// their own clocks to what they change here, so `greatest` is the latest that a record has set.
    pub(crate) fn time(&mut self, wall: Time, greatest: Time) -> Time {
        self.last_time = self.next_time(wall, greatest);
        self.last_time
    }

    /// The time that [`Issuer::time`] gives next.
    pub(crate) fn next_time(&self, wall: Time, greatest: Time) -> Time {
        wall.max(self.times_after(wall, greatest).next())
    }

    /// Panics if ids may be given that no synced record reserves.
    pub(crate) fn check(&self, meta: &Meta) {
        assert!(self.mint_limit <= meta.mint_limit, "more ids may be given than are reserved");
    }
}

/// Whether times go on behind one that was given: by an earlier life, or by another island.
fn counts(given: Time, wall: Time) -> bool {
    given.secs.saturating_sub(wall.secs) <= AHEAD_SECS_MAX && !planted(Bug::TimeGoesBack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_before_the_range_that_has_it_is_reserved() {
        let meta = Meta::default();
        let mut issuer = Issuer::resume(&meta, Time::default());
        assert_eq!(issuer.mint(IslandId(3)), None);
        let end = issuer.next_range(0).expect("nothing is left");
        issuer.reserve(5, end);
        issuer.synced(|seq| seq < 5);
        assert_eq!(issuer.mint(IslandId(3)), None, "a power cut may take the record that reserves them");
        issuer.synced(|seq| seq <= 5);
        let (first, second) = (issuer.mint(IslandId(3)), issuer.mint(IslandId(3)));
        assert!(first.is_some() && first < second);
        assert_eq!(issuer.next_range(end), None, "half of it is left");
    }

    #[test]
    fn a_life_gives_later_times_than_the_one_before_unless_that_had_a_clock_that_was_wrong() {
        let wall = Time { secs: 1_000_000, nanos: 7 };
        let first =
            |time: Time| Issuer::resume(&Meta { time, ..Meta::default() }, wall).time(wall, Time::default());
        let later = |secs: i64| Time { secs: wall.secs + secs, nanos: 0 };
        for ahead in [1, 3_600, AHEAD_SECS_MAX] {
            assert_eq!(first(later(ahead)), later(ahead).next());
        }
        for other in [-1, AHEAD_SECS_MAX + 1, 1 << 40] {
            assert_eq!(first(later(other)), wall.next());
        }
        assert_eq!(first(Time { secs: i64::MIN, nanos: 0 }), wall.next());
    }

    #[test]
    fn stamps_and_times_only_grow_also_when_the_clock_goes_back() {
        let mut issuer = Issuer::resume(&Meta::default(), Time::default());
        let (one, two, three) = (issuer.stamp(4), issuer.stamp(4), issuer.stamp(5));
        assert!(one < two && two < three && issuer.stamps_after(5) == three);
        let late = issuer.time(Time::default().plus_millis(50), Time::default());
        assert!(issuer.time(Time::default(), Time::default()) > late);
    }

    #[test]
    fn a_time_that_another_island_has_given_is_before_the_next_one() {
        let wall = Time { secs: 1_000_000, nanos: 7 };
        let mut issuer = Issuer::resume(&Meta::default(), wall);
        let given = wall.plus_millis(50);
        assert_eq!(issuer.time(wall, given), given.next());
        // A clock that is years ahead spoils its own times only.
        assert!(issuer.time(wall, Time { secs: 1 << 40, nanos: 0 }) < wall.plus_millis(60));
    }
}
