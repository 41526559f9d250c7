//! Lists of what a keeper of answers is told of, put together. They grow up to a bound. One that is at it stands for everything.

use atoll_core::{Ino, Name};
use atoll_posix::CHANGED_MAX;
use atoll_route::RecallOf;

/// Files and directories, and names of directories.
pub(crate) type ChangedParts = (Vec<Ino>, Vec<(Ino, Name)>);

/// Most entries of all: one more than may be told one by one.
const ENTRIES_MAX: usize = CHANGED_MAX + 1;

/// Adds to what has changed.
pub(crate) fn add_changes(all: &mut ChangedParts, new: ChangedParts) {
    if all.0.len() + all.1.len() < ENTRIES_MAX {
        add_each_once(&mut all.0, new.0);
        add_each_once(&mut all.1, new.1);
        all.0.truncate(ENTRIES_MAX);
        all.1.truncate(ENTRIES_MAX - all.0.len());
    }
}

/// Adds to what is recalled.
pub(crate) fn add_recall(all: &mut RecallOf, new: RecallOf) {
    all.number = all.number.max(new.number);
    if all.inos.len() < ENTRIES_MAX {
        add_each_once(&mut all.inos, new.inos);
        all.inos.truncate(ENTRIES_MAX);
    }
}

fn add_each_once<T: Ord>(list: &mut Vec<T>, new: Vec<T>) {
    list.extend(new);
    list.sort_unstable();
    list.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(dir: u64, text: &str) -> (Ino, Name) {
        (Ino(dir), Name::new(text.as_bytes()).unwrap())
    }

    #[test]
    fn each_is_told_once_and_too_much_stands_for_everything() {
        let mut all = (vec![Ino(3), Ino(2)], vec![name(2, "a")]);
        add_changes(&mut all, (vec![Ino(3)], Vec::new()));
        assert_eq!(all, (vec![Ino(2), Ino(3)], vec![name(2, "a")]));
        add_changes(&mut all, ((1..).take(2 * CHANGED_MAX).map(Ino).collect(), vec![name(2, "b")]));
        assert_eq!((all.0.len(), all.1.len()), (CHANGED_MAX + 1, 0));
        add_changes(&mut all, (vec![Ino(1)], Vec::new()));
        assert_eq!(all.0.len() + all.1.len(), CHANGED_MAX + 1);
    }

    #[test]
    fn the_answer_to_recalls_that_are_told_together_is_that_to_the_last() {
        let mut all = RecallOf { number: 4, inos: vec![Ino(3), Ino(2)] };
        add_recall(&mut all, RecallOf { number: 5, inos: vec![Ino(3)] });
        assert_eq!(all, RecallOf { number: 5, inos: vec![Ino(2), Ino(3)] });
        add_recall(&mut all, RecallOf { number: 6, inos: (1..).take(2 * CHANGED_MAX).map(Ino).collect() });
        assert_eq!((all.number, all.inos.len()), (6, CHANGED_MAX + 1));
    }
}
