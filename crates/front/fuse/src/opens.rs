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
    open: HashMap<u64, Open>,
    ended: bool,
}

/// An open of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    /// The file.
    pub(crate) ino: Ino,
    /// The volume's number of the open.
    pub(crate) open: u64,
    /// For writing too.
    pub(crate) write: bool,
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
    pub(crate) fn add(&self, handle: u64, open: Open) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.ended || state.open.len() >= OPENS_MAX {
            return Err(Refused);
        }
        state.open.insert(handle, open);
        Ok(())
    }

    /// The open that ends with this handle. None if they have ended already.
    pub(crate) fn take(&self, handle: u64) -> Option<Open> {
        self.lock().open.remove(&handle)
    }

    /// The mount has ended: every open that is left. None is added from here on.
    pub(crate) fn end(&self) -> Vec<Open> {
        let mut state = self.lock();
        state.ended = true;
        state.open.drain().map(|(_, open)| open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn open(open: u64) -> Open {
        Open { ino: Ino(5), open, write: false }
    }

    #[test]
    fn each_open_is_taken_once_and_none_is_added_after_the_end() {
        let opens = Opens::default();
        assert_eq!(opens.add(1, open(10)), Ok(()));
        assert_eq!(opens.add(2, open(11)), Ok(()));
        assert_eq!(opens.take(1), Some(open(10)));
        assert_eq!(opens.take(1), None);
        assert_eq!(opens.end(), [open(11)]);
        assert_eq!(opens.take(2), None);
        assert_eq!(opens.add(3, open(12)), Err(Refused));
    }

    #[test]
    fn opens_are_bounded_and_one_that_ends_makes_room() {
        let opens = Opens::default();
        (0..OPENS_MAX as u64).for_each(|handle| assert_eq!(opens.add(handle, open(0)), Ok(())));
        assert_eq!(opens.add(u64::MAX, open(0)), Err(Refused));
        assert!(opens.take(7).is_some());
        assert_eq!(opens.add(u64::MAX, open(0)), Ok(()));
    }
}
