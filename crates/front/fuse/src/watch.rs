//! A thread that sees to it that someone reads requests although all readers hang in calls of the volume. Never
//! reads a request, and never ends a call.
//!
//! A volume that knows when it is slow says so before (`handover`), and then this is not needed. A native call to
//! a disk that does not answer says nothing.

use crate::adapter::Core;
use crate::session::Readers;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// For so long no reader is idle before more are added.
const TICK: Duration = Duration::from_millis(100);
/// Most readers that are added at once.
const STEP_MAX: usize = 16;
/// After so many ticks without a request the thread sleeps until the next one.
const CALM_TICKS: u32 = 10;

/// What readers tell the thread.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Requests so far.
    received: AtomicU64,
    /// The thread sleeps, or is about to.
    calm: AtomicBool,
}

impl Watch {
    /// A reader has a request, and is not idle any more. True if the thread must be woken.
    pub(crate) fn received(&self) -> bool {
        self.received.fetch_add(1, SeqCst);
        self.calm.load(SeqCst) && self.calm.swap(false, SeqCst)
    }

    /// Whether the thread may sleep on.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(SeqCst)
    }
}

/// Watches until the mount has ended.
pub(crate) fn run(core: &Arc<Core>, watch: &Watch) {
    let (mut last, mut quiet, mut step) = (0, 0, 1);
    loop {
        let was_idle = core.readers.is_any_idle();
        if !core.readers.pause(TICK) {
            return;
        }
        let received = watch.received.load(SeqCst);
        if received != last {
            (last, quiet) = (received, 0);
        } else if !was_idle && !core.readers.is_any_idle() {
            // Whoever is idle becomes busy only by a request. So none was idle meanwhile.
            Readers::add_stuck(core, step);
            // Twice as many each time that these did not suffice.
            (quiet, step) = (0, (step * 2).min(STEP_MAX));
        } else {
            (quiet, step) = (quiet + 1, 1);
        }
        if quiet >= CALM_TICKS {
            quiet = 0;
            watch.calm.store(true, SeqCst);
            // A reader that came before the store has not seen it.
            if watch.received.load(SeqCst) != last {
                watch.calm.store(false, SeqCst);
            } else if !core.readers.sleep(watch) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_wakes_the_thread_once_and_only_if_it_sleeps() {
        let watch = Watch::default();
        assert!(!watch.received());
        watch.calm.store(true, SeqCst);
        assert!(watch.received() && !watch.received() && !watch.is_calm());
    }
}
