//! Attributes of directories as the last change of their names through this mount has left them. The kernel asks for them before the next
//! change, since a change makes void what it had. Never asks a volume.
//!
//! Whatever changes a directory in a way that its answer does not tell takes it out. Of answers that overtake each other the one with the
//! later time of change counts: an island gives no time twice.

use crate::learnt::Learnt;
use atoll_core::Ino;
use atoll_posix::{Attr, AttrsAround};

/// See the module. A directory takes about 150 bytes, and all take 10 MiB at most.
pub(crate) type DirAttrs = Learnt<Attr>;

impl DirAttrs {
    /// These may have changed, by an operation that began when there had been so many changes. Its answer tells what they are like now, or
    /// does not.
    pub(crate) fn changed(&self, dirs: [Option<Ino>; 2], asked: u64, told: &[AttrsAround]) {
        let is_one = |told: &&AttrsAround| dirs.contains(&Some(told.after.ino));
        for AttrsAround { after, .. } in told.iter().filter(is_one) {
            self.learn(after.ino, *after, asked, |had| had.ctime <= after.ctime);
        }
        // Behind the others: it counts as a change that may overtake them.
        let is_untold = |dir: &Ino| told.iter().all(|told| told.after.ino != *dir);
        dirs.into_iter().flatten().filter(is_untold).for_each(|dir| self.may_change(dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Time;
    use atoll_posix::Kind;

    fn told(ino: u64, secs: i64) -> AttrsAround {
        let time = Time { secs, nanos: 0 };
        AttrsAround::new(None, Attr { ctime: time, ..Attr::blank(Ino(ino), Kind::Directory) })
    }

    fn known(attrs: &DirAttrs, dir: u64) -> Option<i64> {
        attrs.get(Ino(dir)).map(|attr| attr.ctime.secs)
    }

    #[test]
    fn the_latest_answer_counts_and_nothing_is_known_behind_one_that_may_be_overtaken() {
        let (attrs, both) = (DirAttrs::default(), [Some(Ino(7)), Some(Ino(8))]);
        let asked = attrs.changes();
        attrs.changed(both, asked, &[told(7, 2), told(8, 2)]);
        attrs.changed([Some(Ino(7)), None], asked, &[told(7, 1)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (Some(2), Some(2)));
        // One that does not tell of both.
        attrs.changed([both[1], both[0]], asked, &[told(7, 3)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (Some(3), None));
        attrs.changed(both, asked, &[told(7, 4), told(8, 4)]);
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (None, None), "it began before");
        attrs.changed(both, attrs.changes(), &[told(7, 5), told(8, 5)]);
        attrs.forget(Ino(7));
        assert_eq!((known(&attrs, 7), known(&attrs, 8)), (None, Some(5)));
        attrs.clear();
        assert_eq!(known(&attrs, 8), None);
    }
}
