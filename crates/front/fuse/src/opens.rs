//! The opens that a volume was told of, so that each is closed once: when the kernel releases it, when the
//! kernel did not take it, or when the mount ends. Never opens anything itself.

use atoll_core::Ino;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Most opens of one mount at a time. The next open fails with `ENFILE`.
pub(crate) const OPENS_MAX: usize = 1 << 20;

/// Opens by the kernel's handle.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The file, and the volume's number of its open.
    open: HashMap<u64, (Ino, u64)>,
    ended: bool,
}

/// An open was not added, and is to be closed: there are too many, or the mount has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Opens {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// The volume has opened a file. To be called before the kernel hears of it, so that the release that
    /// follows finds it.
    pub(crate) fn add(&self, handle: u64, ino: Ino, open: u64) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.ended || state.open.len() >= OPENS_MAX {
            return Err(Refused);
        }
        state.open.insert(handle, (ino, open));
        Ok(())
    }

    /// The file and the volume's open that end with this handle. None if they have ended already.
    pub(crate) fn take(&self, handle: u64) -> Option<(Ino, u64)> {
        self.lock().open.remove(&handle)
    }

    /// The mount has ended: every open that is left. None is added from here on.
    pub(crate) fn end(&self) -> Vec<(Ino, u64)> {
        let mut state = self.lock();
        state.ended = true;
        state.open.drain().map(|(_, open)| open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_is_taken_once_and_none_is_added_after_the_end() {
        let opens = Opens::default();
        assert_eq!(opens.add(1, Ino(5), 10), Ok(()));
        assert_eq!(opens.add(2, Ino(5), 11), Ok(()));
        assert_eq!(opens.take(1), Some((Ino(5), 10)));
        assert_eq!(opens.take(1), None);
        assert_eq!(opens.end(), [(Ino(5), 11)]);
        assert_eq!(opens.take(2), None);
        assert_eq!(opens.add(3, Ino(5), 12), Err(Refused));
    }

    #[test]
    fn opens_are_bounded_and_one_that_ends_makes_room() {
        let opens = Opens::default();
        (0..OPENS_MAX as u64).for_each(|handle| assert_eq!(opens.add(handle, Ino(5), 0), Ok(())));
        assert_eq!(opens.add(u64::MAX, Ino(5), 0), Err(Refused));
        assert!(opens.take(7).is_some());
        assert_eq!(opens.add(u64::MAX, Ino(5), 0), Ok(()));
    }
}
