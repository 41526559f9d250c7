//! Notes which files and directories were read through this mount, so that their access times follow. A read
//! only leaves a note; a thread of this file tells the volume later. The mount's options decide, as on Linux,
//! whether a read counts; `atoll_posix::Access` decides whether it changes the time.
//!
//! Nobody waits for any of this. If this process is killed, notes that were not told yet are lost, as with a
//! local file system's `lazytime`. Until a note is told, this mount's answers show its time already.

use crate::adapter::Core;
use crate::mount::{AccessTimes, Table};
use atoll_core::{Ino, Time};
use atoll_posix::{AtimeRule, Attr, Caller, Kind, Op, Readings};
use atoll_vfs::AnswerExtras;
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SHARDS: usize = 16;
/// Most files and directories that are noted, of about 64 bytes each. Reads of further ones are not noted.
const NOTED_MAX: usize = 65_536;
/// If so many are noted, they are told at once.
const NOTED_MANY: usize = NOTED_MAX / 2;
/// How long a note waits until it is told.
const DELAY: Duration = Duration::from_secs(10);
/// Most notes that are told and not answered yet.
const TOLD_AT_ONCE: usize = 64;
/// The pause after so many, because others use the islands too.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the end of a mount waits for the last notes to be told.
const END_MAX: Duration = Duration::from_secs(2);

/// Notes that are not told yet. Bounded by `NOTED_MAX`.
#[derive(Debug)]
pub(crate) struct Accesses {
    noted: [Mutex<HashMap<Ino, Noted>>; SHARDS],
    /// Number of notes. While it is 0, an answer looks at nothing else.
    count: AtomicUsize,
    /// The mount's options, as `Mode`.
    mode: AtomicU8,
    table: Option<Table>,
    /// When the options were looked at last, in milliseconds.
    looked_ms: AtomicU64,
    /// Notes that are told and not answered yet.
    under_way: AtomicUsize,
    told: AtomicU64,
    lost: AtomicU64,
    has_thread: AtomicBool,
    ended: Mutex<bool>,
    wake: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    first: Time,
    last: Time,
}

/// Bits of `Accesses::mode`.
mod mode {
    /// Some reads count.
    pub(super) const ON: u8 = 1;
    /// Every read counts.
    pub(super) const STRICT: u8 = 2;
    /// Reads of directories count.
    pub(super) const DIRS: u8 = 4;
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn bits(times: AccessTimes) -> u8 {
    let dirs = if times.directories { mode::DIRS } else { 0 };
    match times.rule {
        None => 0,
        Some(AtimeRule::Relative) => mode::ON | dirs,
        Some(AtimeRule::Strict) => mode::ON | mode::STRICT | dirs,
    }
}

impl Accesses {
    /// `table` tells the mount's options.
    pub(crate) fn new(table: Option<Table>) -> Self {
        let times =
            table.as_ref().map_or(AccessTimes::NEVER, |table| table.access_times().unwrap_or_default());
        Self {
            noted: std::array::from_fn(|_| Mutex::default()),
            count: 0.into(),
            mode: bits(times).into(),
            table,
            looked_ms: 0.into(),
            under_way: 0.into(),
            told: 0.into(),
            lost: 0.into(),
            has_thread: false.into(),
            ended: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    fn of(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Noted>> {
        self.noted[(ino.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// Numbers of reads that were told, and of reads that could not be told.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.told.load(Relaxed), self.lost.load(Relaxed))
    }

    /// Whether attributes are shown as they are.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Attributes as they are to be shown.
    pub(crate) fn shown(&self, attr: &Attr) -> Attr {
        let mut attr = *attr;
        if !self.is_empty()
            && let Some(noted) = self.of(attr.ino).get_mut(&attr.ino)
        {
            let atime = self.access(*noted).atime(&attr);
            if atime > attr.atime {
                // What was shown stays, whatever is read later.
                noted.first = atime;
                attr.atime = atime;
            }
        }
        attr
    }

    /// A caller has set the access time: earlier reads do not count.
    pub(crate) fn was_set(&self, ino: Ino) {
        if !self.is_empty() && self.of(ino).remove(&ino).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    fn access(&self, Noted { first, last }: Noted) -> Readings {
        let strict = self.mode.load(Relaxed) & mode::STRICT != 0;
        Readings { first, last, rule: if strict { AtimeRule::Strict } else { AtimeRule::Relative } }
    }

    /// Looks at the mount's options, if any mount's have changed; at most once a millisecond.
    fn look(&self, time: Time) {
        let ms = time.secs.unsigned_abs() * 1000 + u64::from(time.nanos) / 1_000_000;
        if self.looked_ms.swap(ms, Relaxed) != ms
            && let Some(table) = &self.table
            && table.has_changed()
            && let Some(times) = table.access_times()
        {
            self.mode.store(bits(times), Relaxed);
        }
    }

    fn counts_for(&self, kind: Kind) -> bool {
        let mode = self.mode.load(Relaxed);
        mode & mode::ON != 0 && (kind != Kind::Directory || mode & mode::DIRS != 0)
    }

    /// Notes a read; true if it is the first one of this file that is noted.
    fn note(&self, ino: Ino, kind: Kind) -> bool {
        let time = now();
        self.look(time);
        if !self.counts_for(kind) {
            return false;
        }
        if let Some(noted) = self.of(ino).get_mut(&ino) {
            noted.last = time;
            return false;
        }
        if self.count.load(Relaxed) >= NOTED_MAX {
            self.lost.fetch_add(1, Relaxed);
            return false;
        }
        match self.of(ino).entry(ino) {
            Entry::Occupied(mut noted) => {
                noted.get_mut().last = time;
                false
            }
            Entry::Vacant(free) => {
                free.insert(Noted { first: time, last: time });
                self.count.fetch_add(1, Relaxed) + 1 == NOTED_MANY || !self.has_thread.load(Relaxed)
            }
        }
    }

    /// At most `at_most` notes that have waited for `delay` at `now`.
    fn due(&self, now: Time, delay: Duration, at_most: usize) -> Vec<(Ino, Noted)> {
        let delay = i128::try_from(delay.as_nanos()).unwrap_or(i128::MAX);
        let mut due = Vec::new();
        for shard in &self.noted {
            let shard = shard.lock().expect("no holder of this lock panics");
            let old = shard.iter().filter(|(_, noted)| i128::from(now.nanos_from(noted.first)) >= delay);
            due.extend(old.take(at_most - due.len()).map(|(ino, noted)| (*ino, *noted)));
            if due.len() == at_most {
                break;
            }
        }
        due
    }

    /// A note is told, or never will be. A later read stays noted.
    fn done(&self, ino: Ino, told: Noted) {
        let mut shard = self.of(ino);
        match shard.get_mut(&ino) {
            Some(noted) if *noted == told => {
                shard.remove(&ino);
                self.count.fetch_sub(1, Relaxed);
            }
            Some(noted) => noted.first = noted.last,
            None => {}
        }
    }

    /// The mount has ended: only the notes that `rest` tells are told.
    pub(crate) fn end(core: &Arc<Core>) {
        let me = &core.accesses;
        *me.ended.lock().expect("no holder of this lock panics") = true;
        me.wake.notify_all();
        let until = Instant::now() + END_MAX;
        while me.count.load(SeqCst) > 0 && Instant::now() < until {
            if me.under_way.load(SeqCst) < TOLD_AT_ONCE {
                tell(core, me.due(now(), Duration::ZERO, TOLD_AT_ONCE));
            }
            std::thread::yield_now();
        }
    }
}

/// A file or directory was read.
pub(crate) fn read(core: &Arc<Core>, ino: Ino, kind: Kind) {
    let me = &core.accesses;
    if me.mode.load(Relaxed) == 0 && me.table.is_none() {
        return;
    }
    if !me.note(ino, kind) {
        return;
    }
    if me.has_thread.swap(true, SeqCst) {
        me.wake.notify_all();
        return;
    }
    let mine = Arc::clone(core);
    if std::thread::Builder::new().name("access-times".into()).spawn(move || tell_in_time(&mine)).is_err() {
        // The next reading tries again.
        me.has_thread.store(false, SeqCst);
    }
}

/// Tells due notes until there are none.
fn tell_in_time(core: &Arc<Core>) {
    let me = &core.accesses;
    loop {
        let mut ended = me.ended.lock().expect("no holder of this lock panics");
        if *ended {
            return;
        }
        let many = me.count.load(SeqCst) >= NOTED_MANY;
        let free = TOLD_AT_ONCE.saturating_sub(me.under_way.load(SeqCst));
        let delay = if many { Duration::ZERO } else { DELAY };
        let due = if free > 0 { me.due(now(), delay, free) } else { Vec::new() };
        if due.is_empty() && me.count.load(SeqCst) == 0 {
            me.has_thread.store(false, SeqCst);
            return;
        }
        let pause = if due.is_empty() && !many { DELAY / 10 } else { PAUSE };
        if !due.is_empty() {
            drop(ended);
            tell(core, due);
            ended = me.ended.lock().expect("no holder of this lock panics");
        }
        if !*ended {
            drop(me.wake.wait_timeout(ended, pause).expect("no holder of this lock panics"));
        }
    }
}

/// Tells the volume.
fn tell(core: &Arc<Core>, due: Vec<(Ino, Noted)>) {
    for (ino, noted) in due {
        let me = &core.accesses;
        me.under_way.fetch_add(1, SeqCst);
        let mine = Arc::clone(core);
        let done = move |outcome: Result<_, _>, _: AnswerExtras<'_>| {
            let me = &mine.accesses;
            let count = if outcome.is_ok() { &me.told } else { &me.lost };
            count.fetch_add(1, Relaxed);
            if mine.places.is_dir(ino) {
                mine.known.dir_attrs.may_change(ino);
            }
            me.done(ino, noted);
            me.under_way.fetch_sub(1, SeqCst);
        };
        let op = Op::Accessed { ino, access: me.access(noted) };
        core.files.submit(&Caller::ROOT, op, Bytes::new(), Box::new(done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses(mode: u8) -> Accesses {
        let it = Accesses::new(None);
        it.mode.store(mode, SeqCst);
        it
    }

    fn attr(ino: u64) -> Attr {
        let time = Time { secs: 1, nanos: 0 };
        Attr { atime: time, mtime: time, ctime: time, ..Attr::blank(Ino(ino), Kind::Regular) }
    }

    #[test]
    fn what_was_read_is_shown_until_the_time_is_set_otherwise() {
        let it = accesses(mode::ON | mode::DIRS);
        assert_eq!(it.shown(&attr(9)), attr(9));
        it.note(Ino(9), Kind::Regular);
        let read = it.shown(&attr(9)).atime;
        assert!(read.secs > 1 && it.shown(&attr(10)) == attr(10));
        std::thread::sleep(Duration::from_millis(1));
        it.note(Ino(9), Kind::Regular);
        assert_eq!(it.shown(&attr(9)).atime, read, "nothing has changed since");
        let changed = Attr { mtime: read.next(), ..attr(9) };
        assert!(it.shown(&changed).atime > read);
        it.was_set(Ino(9));
        assert_eq!((it.shown(&attr(9)), it.count.load(SeqCst)), (attr(9), 0));
    }

    #[test]
    fn a_reading_while_an_earlier_one_is_told_stays_noted() {
        let it = accesses(mode::ON | mode::STRICT);
        it.note(Ino(9), Kind::Regular);
        let [(ino, first)] = it.due(now(), Duration::ZERO, 5)[..] else { panic!("one is due") };
        std::thread::sleep(Duration::from_millis(1));
        it.note(Ino(9), Kind::Regular);
        it.done(ino, first);
        let [(_, second)] = it.due(now(), Duration::ZERO, 5)[..] else { panic!("one is due") };
        assert!(second.first > first.last && second.first == second.last);
        it.done(ino, second);
        assert!(it.due(now(), Duration::ZERO, 5).is_empty() && it.count.load(SeqCst) == 0);
    }

    #[test]
    fn nothing_is_noted_that_does_not_count_and_never_more_than_the_bound() {
        let it = accesses(mode::ON);
        it.note(Ino(9), Kind::Directory);
        assert_eq!(it.count.load(SeqCst), 0);
        (0..NOTED_MAX as u64 + 10).for_each(|ino| _ = it.note(Ino(ino), Kind::Regular));
        assert_eq!((it.count.load(SeqCst), it.counts()), (NOTED_MAX, (0, 10)));
        assert_eq!(it.due(now(), Duration::ZERO, 70).len(), 70);
        assert!(it.due(now(), DELAY, 70).is_empty(), "all of it is new");
        let off = accesses(0);
        off.note(Ino(9), Kind::Regular);
        assert_eq!(off.count.load(SeqCst), 0);
    }
}
