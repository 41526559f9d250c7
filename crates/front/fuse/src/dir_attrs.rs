//! Attributes of directories as the last change of their names through this mount has left them. The kernel asks for them before the next
//! change, since a change makes void what it had. Never asks a volume.
//!
//! What is here holds as long as the volume lets the kernel keep what it is told, and goes with a recall. Whatever changes a directory in
//! a way that its answer does not tell takes it out. Of answers that overtake each other the one with the later time of change counts: an
//! island gives no time twice.

use atoll_core::Ino;
use atoll_posix::{Attr, AttrsAround};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Most directories of a shard, in about 150 bytes each: 10 MiB for all. If there are more, all of a shard go.
const SHARD_MAX: usize = 1 << 12;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DirAttrs {
    shards: [Mutex<HashMap<Ino, Attr>>; SHARDS],
    /// Counts what may make an answer that is under way untrue.
    changes: AtomicU64,
}

impl DirAttrs {
    fn of(&self, dir: Ino) -> MutexGuard<'_, HashMap<Ino, Attr>> {
        self.shards[(dir.0 % SHARDS as u64) as usize].lock().expect("no holder of this lock panics")
    }

    /// How many changes there were of which no answer tells. To be noted when the volume is asked.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// These may have changed, by an operation that began when there had been so many changes. Its answer tells what they are like now, or
    /// does not.
    pub(crate) fn changed(&self, dirs: [Option<Ino>; 2], asked: u64, told: &[AttrsAround]) {
        for dir in dirs.into_iter().flatten() {
            match told.iter().find(|told| told.after.ino == dir) {
                Some(told) => self.learn(told.after, asked),
                None => self.may_change(dir),
            }
        }
    }

    fn learn(&self, attr: Attr, asked: u64) {
        let mut known = self.of(attr.ino);
        if self.changes() != asked || known.get(&attr.ino).is_some_and(|had| had.ctime > attr.ctime) {
            return;
        }
        if known.len() >= SHARD_MAX {
            known.clear();
        }
        known.insert(attr.ino, attr);
    }

    /// Those of a directory, if they are known.
    pub(crate) fn get(&self, dir: Ino) -> Option<Attr> {
        self.of(dir).get(&dir).copied()
    }

    /// A directory may be another one from here on.
    pub(crate) fn may_change(&self, dir: Ino) {
        self.changes.fetch_add(1, SeqCst);
        self.of(dir).remove(&dir);
    }

    /// The kernel has forgotten a directory.
    pub(crate) fn forget(&self, dir: Ino) {
        self.of(dir).remove(&dir);
    }

    /// Any directory may be another one from here on.
    pub(crate) fn clear(&self) {
        self.changes.fetch_add(1, SeqCst);
        for shard in &self.shards {
            std::mem::take(&mut *shard.lock().expect("no holder of this lock panics"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Time;
    use atoll_posix::Kind;

    fn told(ino: u64, secs: i64) -> AttrsAround {
        let (ino, kind, time) = (Ino(ino), Kind::Directory, Time { secs, nanos: 0 });
        let [atime, mtime, ctime, btime] = [time; 4];
        let (mode, nlink, uid, gid, rdev, size, blocks) = (0o755, 2, 0, 0, 0, 0, 0);
        let attr = Attr { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime };
        AttrsAround::new(None, attr)
    }

    fn known(attrs: &DirAttrs, dir: u64) -> Option<i64> {
        attrs.get(Ino(dir)).map(|attr| attr.ctime.secs)
    }

    #[test]
    fn the_latest_answer_counts_and_none_that_a_change_without_one_has_overtaken() {
        let (attrs, both) = (DirAttrs::default(), [Some(Ino(7)), Some(Ino(8))]);
        let asked = attrs.changes();
        attrs.changed(both, asked, &[told(7, 2), told(8, 2)]);
        attrs.changed([Some(Ino(7)), None], asked, &[told(7, 1)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (Some(2), Some(2)));
        // One that does not tell of both.
        attrs.changed(both, asked, &[told(7, 3)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (Some(3), None));
        attrs.changed(both, asked, &[told(7, 4), told(8, 4)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (Some(3), None), "it began before");
        attrs.changed(both, attrs.changes(), &[told(7, 5), told(8, 5)]);
        attrs.forget(Ino(7));
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (None, Some(5)));
        attrs.clear();
        assert_eq!(known(&attrs, 8), None);
    }

    #[test]
    fn only_so_many_are_known() {
        let attrs = DirAttrs::default();
        for n in 0..=SHARD_MAX as u64 {
            let dir = 16 * (n + 1);
            attrs.changed([Some(Ino(dir)), None], 0, &[told(dir, 1)]);
        }
        assert!(known(&attrs, 16).is_none() && attrs.of(Ino(16)).len() == 1);
    }
}
