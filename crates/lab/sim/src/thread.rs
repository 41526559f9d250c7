//! A thread of an island's process: the effects that it has begun and not finished.

use std::sync::Arc;

use atoll_disk::sim::SimDisk;
use atoll_dispatch::{Engine, Work};
use atoll_island::Event;

/// A thread of an island that has brought an event and performs what came of it.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The engine that it works for.
    pub(crate) engine: Arc<Engine<SimDisk>>,
    pub(crate) work: Work,
    /// It reads this link, and nothing more of it before it is done.
    pub(crate) reads: Option<usize>,
    /// What came of its last effect, of which the machine has not been told yet.
    pub(crate) came: Option<Event>,
}

impl Thread {
    pub(crate) fn is_done(&self) -> bool {
        self.came.is_none() && self.work.is_done()
    }

    /// What it does next may take long.
    pub(crate) fn is_slow(&self) -> bool {
        self.came.is_none() && self.work.is_slow()
    }

    /// Performs its next effect, or, `apart` from that, tells the machine what came of the last one.
    pub(crate) fn go_on(&mut self, apart: bool) {
        match self.came.take() {
            Some(event) => self.engine.tell(event, &mut self.work),
            None if apart => self.came = self.engine.perform_next(&mut self.work),
            None => {
                self.engine.go_on(&mut self.work);
            }
        }
    }
}
