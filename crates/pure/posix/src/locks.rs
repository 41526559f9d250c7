//! The lock table of one file: byte ranges of `fcntl(2)` and whole-file locks of `flock(2)`. Grants a lock,
//! or names the lock in the way. The caller decides who waits, and for how long.
//!
//! Invariant: both tables are sorted by (start, owner). So the same locks give the same table in whichever
//! order they were taken, and the same lock is named as the one in the way. Ranges of one owner do not
//! overlap, and do not touch if they are of one kind. An owner has one flock at most. A write lock shares no
//! byte with another owner's lock.

use crate::op::{LockKind, LockRange};
use atoll_core::{Decode, Encode, Malformed, Reader, SessionId, wire_struct};

/// Most locks on one file; one more gives `ENOLCK`.
pub const HELD_MAX: usize = 8192;

wire_struct! {
    /// The owner of a lock: the kernel's lock owner within a session. The number may stand for a process
    /// (`fcntl(2)`) or for an open file (`flock(2)`). These two kinds are kept apart.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct LockOwner {
        /// The client that took it.
        pub session: SessionId,
        /// The owner at that client.
        pub owner: u64,
    }
}

wire_struct! {
    /// A range that is locked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HeldLock {
        /// First byte.
        pub start: u64,
        /// Last byte, inclusive.
        pub end: u64,
        /// Whose it is.
        pub who: LockOwner,
        /// The process to show.
        pub pid: u32,
        /// Nobody else may lock any of it; otherwise others may read-lock.
        pub exclusive: bool,
    }
}

/// Why a lock was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockRefused {
    /// Another lock is in the way: wait, or `EAGAIN`.
    Blocked {
        /// The first lock that conflicts.
        by: LockRange,
        /// A request for another kind of flock has freed the old one first, as on Linux. Requests that wait
        /// for it may go on.
        released: bool,
    },
    /// The file has `HELD_MAX` locks: `ENOLCK`.
    TooMany,
    /// The range ends before it starts: `EINVAL`.
    BadRange,
}

impl HeldLock {
    const fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }

    /// Overlaps the range, or ends right before it, or starts right behind it.
    const fn touches(&self, start: u64, end: u64) -> bool {
        self.start <= end.saturating_add(1) && start <= self.end.saturating_add(1)
    }

    const fn show(&self, flock: bool) -> LockRange {
        LockRange {
            start: self.start,
            end: self.end,
            kind: if self.exclusive { LockKind::Write } else { LockKind::Read },
            owner: self.who.owner,
            pid: self.pid,
            flock,
        }
    }

    const fn key(&self) -> (u64, LockOwner) {
        (self.start, self.who)
    }
}

wire_struct! {
    /// The locks that are held on one file.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct LockRows {
        /// Ranges of `fcntl(2)`.
        pub posix: Vec<HeldLock>,
        /// Locks of `flock(2)`, each from 0 to `u64::MAX`.
        pub flock: Vec<HeldLock>,
    }
}

/// The lock table of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locks(LockRows);

impl Locks {
    /// Whether there are no locks, so that nothing need be stored.
    pub const fn is_empty(&self) -> bool {
        self.0.posix.is_empty() && self.0.flock.is_empty()
    }

    /// How many locks are held.
    pub const fn len(&self) -> usize {
        self.0.posix.len() + self.0.flock.len()
    }

    /// All locks.
    pub fn held(&self) -> impl Iterator<Item = (LockOwner, LockRange)> + '_ {
        let posix = self.0.posix.iter().map(|held| (held.who, held.show(false)));
        posix.chain(self.0.flock.iter().map(|held| (held.who, held.show(true))))
    }

    /// The first lock of another owner that `lock` of `who` would have to wait for.
    pub fn conflicts(&self, lock: &LockRange, who: LockOwner) -> Option<LockRange> {
        self.in_the_way(lock, who).next().map(|held| held.show(lock.flock))
    }

    /// Who has a lock for which `lock` of `who` would have to wait.
    pub fn blockers(&self, lock: &LockRange, who: LockOwner) -> impl Iterator<Item = LockOwner> {
        self.in_the_way(lock, who).map(|held| held.who)
    }

    fn in_the_way(&self, lock: &LockRange, who: LockOwner) -> impl Iterator<Item = &HeldLock> {
        let exclusive = lock.kind == LockKind::Write;
        let unlocks = lock.kind == LockKind::Unlock;
        let (table, start, end) = self.table(lock);
        table.iter().filter(move |held| {
            !unlocks && held.who != who && held.overlaps(start, end) && (exclusive || held.exclusive)
        })
    }

    /// The answer to `F_GETLK`: the first lock in the way, or `lock` as unlocked.
    pub fn test(&self, session: SessionId, lock: &LockRange) -> LockRange {
        let who = LockOwner { session, owner: lock.owner };
        self.conflicts(lock, who).unwrap_or(LockRange { kind: LockKind::Unlock, ..*lock })
    }

    /// Takes `lock`, converting its owner's locks in the range; `LockKind::Unlock` frees them. True if a lock
    /// was freed, so that waiting requests may try again.
    pub fn set(&mut self, session: SessionId, lock: &LockRange) -> Result<bool, LockRefused> {
        if lock.start > lock.end && !lock.flock {
            return Err(LockRefused::BadRange);
        }
        let who = LockOwner { session, owner: lock.owner };
        if lock.flock { self.set_flock(who, lock) } else { self.set_posix(who, lock) }
    }

    /// Frees all locks of `session`, because the client is gone. True if there were any.
    pub fn drop_session(&mut self, session: SessionId) -> bool {
        self.retain(|held| held.who.session != session)
    }

    fn retain(&mut self, keep: impl Fn(&HeldLock) -> bool) -> bool {
        let before = self.len();
        self.0.posix.retain(&keep);
        self.0.flock.retain(&keep);
        self.len() != before
    }

    fn table(&self, lock: &LockRange) -> (&[HeldLock], u64, u64) {
        if lock.flock { (&self.0.flock, 0, u64::MAX) } else { (&self.0.posix, lock.start, lock.end) }
    }

    fn set_flock(&mut self, who: LockOwner, lock: &LockRange) -> Result<bool, LockRefused> {
        let exclusive = lock.kind == LockKind::Write;
        let mine = self.0.flock.iter().position(|held| held.who == who);
        if let Some(at) = mine {
            if lock.kind != LockKind::Unlock && self.0.flock[at].exclusive == exclusive {
                return Ok(false);
            }
            // Linux converts in two steps: whoever cannot get the new lock has lost the old one.
            self.0.flock.remove(at);
        }
        let released = mine.is_some();
        if lock.kind == LockKind::Unlock {
            return Ok(released);
        }
        if let Some(by) = self.conflicts(lock, who) {
            return Err(LockRefused::Blocked { by, released });
        }
        if self.len() >= HELD_MAX {
            return Err(LockRefused::TooMany);
        }
        insert(&mut self.0.flock, HeldLock { start: 0, end: u64::MAX, who, pid: lock.pid, exclusive });
        Ok(released)
    }

    fn set_posix(&mut self, who: LockOwner, lock: &LockRange) -> Result<bool, LockRefused> {
        if let Some(by) = self.conflicts(lock, who) {
            return Err(LockRefused::Blocked { by, released: false });
        }
        let unlock = lock.kind == LockKind::Unlock;
        let splits = |held: &HeldLock| held.who == who && held.start < lock.start && held.end > lock.end;
        let more = usize::from(self.0.posix.iter().any(splits)) + usize::from(!unlock);
        if more > 0 && self.len() + more > HELD_MAX {
            return Err(LockRefused::TooMany);
        }
        let mut new = HeldLock {
            start: lock.start,
            end: lock.end,
            who,
            pid: lock.pid,
            exclusive: lock.kind == LockKind::Write,
        };
        let mut released = false;
        let mut cut = Vec::new();
        self.0.posix.retain(|held| {
            if held.who != who {
                return true;
            }
            if !unlock && held.exclusive == new.exclusive && held.touches(lock.start, lock.end) {
                new.start = new.start.min(held.start);
                new.end = new.end.max(held.end);
                return false;
            }
            if !held.overlaps(lock.start, lock.end) {
                return true;
            }
            released |= unlock || held.exclusive;
            if held.start < lock.start {
                cut.push(HeldLock { end: lock.start - 1, ..*held });
            }
            if held.end > lock.end {
                cut.push(HeldLock { start: lock.end + 1, ..*held });
            }
            false
        });
        if !unlock {
            cut.push(new);
        }
        for held in cut {
            insert(&mut self.0.posix, held);
        }
        Ok(released)
    }

    /// Panics if an invariant of the table is broken.
    pub fn check(&self) {
        assert!(self.is_sound(), "lock table is unsound: {self:?}");
    }

    fn is_sound(&self) -> bool {
        let LockRows { posix, flock } = &self.0;
        let sorted = [posix, flock].iter().all(|t| t.windows(2).all(|pair| pair[0].key() < pair[1].key()));
        let whole = flock.iter().all(|held| held.start == 0 && held.end == u64::MAX);
        sorted
            && whole
            && posix.iter().all(|held| held.start <= held.end)
            && ranges_fit(posix)
            && flocks_fit(flock)
    }
}

fn insert(table: &mut Vec<HeldLock>, held: HeldLock) {
    let at = table.partition_point(|other| other.key() < held.key());
    table.insert(at, held);
}

/// Whether no two byte ranges of a table that is sorted by start contradict each other.
fn ranges_fit(table: &[HeldLock]) -> bool {
    let fits = |a: &HeldLock, b: &HeldLock| {
        if a.who == b.who {
            !a.overlaps(b.start, b.end) && a.exclusive != b.exclusive
        } else {
            !(a.exclusive || b.exclusive) || !a.overlaps(b.start, b.end)
        }
    };
    table.iter().enumerate().all(|(at, a)| {
        let mut near = table[at + 1..].iter().take_while(|b| b.start <= a.end.saturating_add(1));
        near.all(|b| fits(a, b))
    })
}

/// Whether an exclusive flock is alone.
fn flocks_fit(table: &[HeldLock]) -> bool {
    table.len() < 2 || table.iter().all(|held| !held.exclusive)
}

impl Encode for Locks {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for Locks {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let locks = Self(LockRows::decode(r)?);
        if locks.len() <= HELD_MAX && locks.is_sound() { Ok(locks) } else { Err(Malformed::new("locks")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockRange {
        LockRange { start, end, kind, owner, pid: owner as u32, flock: false }
    }

    fn flock(owner: u64, kind: LockKind) -> LockRange {
        LockRange { flock: true, end: u64::MAX, ..lock(owner, kind, 0, 0) }
    }

    fn shown(locks: &Locks) -> Vec<(u64, u64, LockKind)> {
        locks.held().map(|(_, range)| (range.start, range.end, range.kind)).collect()
    }

    #[test]
    fn who_is_told_to_be_in_the_way_does_not_depend_on_who_came_first() {
        use LockKind::{Read, Write};
        let mut told = Vec::new();
        for order in [[(A, 1), (A, 2), (B, 1)], [(B, 1), (A, 2), (A, 1)]] {
            let mut locks = Locks::default();
            for (session, owner) in order {
                locks.set(session, &flock(owner, Read)).unwrap();
                locks.set(session, &lock(owner, Read, 5, 9)).unwrap();
            }
            told.push((locks.test(B, &flock(7, Write)), locks.test(B, &lock(7, Write, 0, 99)), locks));
        }
        assert_eq!(told[0], told[1]);
    }

    #[test]
    fn a_range_is_cut_converted_and_merged() {
        use LockKind::{Read, Unlock, Write};
        let mut locks = Locks::default();
        locks.set(A, &lock(1, Write, 0, 99)).unwrap();
        assert_eq!(locks.set(A, &lock(1, Unlock, 40, 49)), Ok(true));
        assert_eq!(shown(&locks), [(0, 39, Write), (50, 99, Write)]);
        assert_eq!(locks.set(A, &lock(1, Read, 30, 59)), Ok(true), "a downgrade lets readers in");
        assert_eq!(shown(&locks), [(0, 29, Write), (30, 59, Read), (60, 99, Write)]);
        assert_eq!(locks.set(A, &lock(1, Write, 30, u64::MAX)), Ok(false));
        assert_eq!(shown(&locks), [(0, u64::MAX, Write)]);
        assert_eq!(locks.set(A, &lock(1, Unlock, 0, u64::MAX)), Ok(true));
        assert!(locks.is_empty());
        assert_eq!(locks.set(A, &lock(1, Write, 5, 4)), Err(LockRefused::BadRange));
    }

    #[test]
    fn the_first_in_the_way_is_named_and_equal_owners_of_two_sessions_differ() {
        use LockKind::{Read, Unlock, Write};
        let mut locks = Locks::default();
        locks.set(A, &lock(1, Write, 50, 59)).unwrap();
        locks.set(A, &lock(1, Read, 10, 19)).unwrap();
        let by = lock(1, Write, 50, 59);
        assert_eq!(locks.set(B, &lock(1, Read, 0, 99)), Err(LockRefused::Blocked { by, released: false }));
        assert_eq!(locks.test(B, &lock(1, Write, 0, 99)), lock(1, Read, 10, 19));
        assert_eq!(locks.test(A, &lock(1, Write, 0, 99)).kind, Unlock);
        locks.set(B, &flock(1, Write)).unwrap();
        assert!(locks.drop_session(A));
        assert!(!locks.drop_session(A));
        assert_eq!(locks.set(B, &lock(1, Write, 0, 99)), Ok(false));
        assert!(locks.drop_session(B));
        assert!(locks.is_empty(), "both kinds go with their session");
    }

    #[test]
    fn a_flock_that_cannot_be_converted_is_lost() {
        // Measured on Linux: after the EWOULDBLOCK a third descriptor gets the file.
        use LockKind::{Read, Unlock, Write};
        let mut locks = Locks::default();
        locks.set(A, &flock(1, Read)).unwrap();
        locks.set(A, &flock(2, Read)).unwrap();
        let by = flock(2, Read);
        assert_eq!(locks.set(A, &flock(1, Write)), Err(LockRefused::Blocked { by, released: true }));
        assert_eq!(locks.set(A, &flock(2, Unlock)), Ok(true));
        assert_eq!(locks.set(A, &flock(3, Write)), Ok(false));
        assert_eq!(locks.set(A, &flock(3, Write)), Ok(false), "again is nothing");
        assert_eq!(locks.set(A, &flock(3, Read)), Ok(true));
    }

    #[test]
    fn a_full_table_refuses_more_but_can_be_emptied() {
        use LockKind::{Read, Unlock, Write};
        let mut locks = Locks::default();
        for at in 0..HELD_MAX as u64 {
            locks.set(A, &lock(1, Write, at * 10, at * 10 + 4)).unwrap();
        }
        assert_eq!(locks.set(A, &lock(1, Write, 5_000_000, 5_000_001)), Err(LockRefused::TooMany));
        assert_eq!(locks.set(A, &flock(1, Read)), Err(LockRefused::TooMany));
        assert_eq!(locks.set(A, &lock(1, Unlock, 1, 2)), Err(LockRefused::TooMany), "a cut makes one more");
        assert_eq!(locks.len(), HELD_MAX);
        assert_eq!(Locks::from_slice(&locks.to_vec()).as_ref(), Ok(&locks));
        assert_eq!(locks.set(A, &lock(1, Unlock, 0, 4)), Ok(true));
        assert_eq!(locks.set(A, &flock(1, Read)), Ok(false));
    }

    #[test]
    fn a_table_that_contradicts_itself_is_not_read() {
        let held = |start, end, owner, exclusive| HeldLock {
            start,
            end,
            who: LockOwner { session: A, owner },
            pid: 1,
            exclusive,
        };
        let refused = [
            (vec![held(5, 4, 1, true)], vec![]),
            (vec![held(5, 9, 1, true), held(0, 1, 1, true)], vec![]),
            (vec![held(0, 9, 1, true), held(5, 9, 2, false)], vec![]),
            (vec![held(0, 4, 1, true), held(5, 9, 1, true)], vec![]),
            (vec![], vec![held(0, 9, 1, true)]),
            (vec![], vec![held(0, u64::MAX, 1, false), held(0, u64::MAX, 1, false)]),
            (vec![], vec![held(0, u64::MAX, 1, true), held(0, u64::MAX, 2, false)]),
        ];
        for (posix, flock) in refused {
            let rows = LockRows { posix, flock };
            assert!(Locks::from_slice(&rows.to_vec()).is_err(), "{rows:?}");
        }
    }

    /// The obvious table: for every byte, who holds it and how.
    #[derive(Default)]
    struct Bytes(BTreeMap<(u64, LockOwner), bool>);

    impl Bytes {
        fn blocked(&self, who: LockOwner, lock: &LockRange) -> bool {
            let exclusive = lock.kind == LockKind::Write;
            lock.kind != LockKind::Unlock
                && self.0.iter().any(|((byte, owner), held)| {
                    (lock.start..=lock.end).contains(byte) && *owner != who && (exclusive || *held)
                })
        }

        fn set(&mut self, who: LockOwner, lock: &LockRange) {
            for byte in lock.start..=lock.end {
                match lock.kind {
                    LockKind::Unlock => self.0.remove(&(byte, who)),
                    kind => self.0.insert((byte, who), kind == LockKind::Write),
                };
            }
        }
    }

    fn any_lock() -> impl Strategy<Value = (SessionId, LockRange)> {
        let kind = prop_oneof![Just(LockKind::Read), Just(LockKind::Write), Just(LockKind::Unlock)];
        (1u64..3, 1u64..3, kind, 0u64..24, 0u64..24).prop_map(|(session, owner, kind, a, b)| {
            (SessionId(session), lock(owner, kind, a.min(b), a.max(b)))
        })
    }

    proptest! {
        #[test]
        fn ranges_do_what_single_bytes_would(steps in proptest::collection::vec(any_lock(), 1..60)) {
            let (mut locks, mut bytes) = (Locks::default(), Bytes::default());
            for (session, lock) in steps {
                let who = LockOwner { session, owner: lock.owner };
                let blocked = bytes.blocked(who, &lock);
                prop_assert_eq!(locks.conflicts(&lock, who).is_some(), blocked);
                prop_assert_eq!(locks.set(session, &lock).is_err(), blocked);
                if !blocked {
                    bytes.set(who, &lock);
                }
                locks.check();
                let mut spread = BTreeMap::new();
                for (who, range) in locks.held() {
                    for byte in range.start..=range.end {
                        prop_assert!(spread.insert((byte, who), range.kind == LockKind::Write).is_none());
                    }
                }
                prop_assert_eq!(&spread, &bytes.0);
                prop_assert_eq!(Locks::from_slice(&locks.to_vec()), Ok(locks.clone()));
            }
        }
    }
}
