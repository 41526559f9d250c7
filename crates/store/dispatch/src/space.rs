//! Whether an island finds the space that it needs itself: for its log, its checkpoints and the bytes that it
//! has promised.
//!
//! Normal <-> ReadOnly. While one of these finds no space, the island takes only operations that make room,
//! and tries again. Nothing is lost, and nobody has to restart it. A failed sync is different: it stops the
//! island.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Milliseconds until a step that found no space is tried again.
const RETRY_MS: u64 = 1_000;

/// A step that finds no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// A record: the log needs a new segment. Nothing at all can be changed meanwhile.
    Record,
    /// The log's next segment; the last one is half full.
    Segment,
    /// A checkpoint.
    Checkpoint,
    /// Bytes of the log that must go into their files.
    Bodies,
}

impl Lack {
    const ALL: [Self; 4] = [Self::Record, Self::Segment, Self::Checkpoint, Self::Bodies];
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Record => "a record of its log",
            Self::Segment => "the next segment of its log",
            Self::Checkpoint => "a checkpoint of its state",
            Self::Bodies => "bytes on their way into files",
        })
    }
}

/// Which operations an island takes, by the space on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceState {
    /// Everything.
    Normal,
    /// Only operations that make room.
    ReadOnly {
        /// When that began, by the island's clock.
        since_ms: u64,
        /// The step that finds no space; the most urgent one.
        lack: Lack,
    },
}

#[derive(Debug, Default)]
struct Lacks {
    /// Whether each step finds no space.
    lacks: [bool; Lack::ALL.len()],
    since_ms: u64,
    /// Times before which a step is not tried again.
    retry_ms: [u64; Lack::ALL.len()],
}

impl Lacks {
    fn state(&self) -> SpaceState {
        let lack = Lack::ALL.into_iter().find(|lack| self.lacks[*lack as usize]);
        lack.map_or(SpaceState::Normal, |lack| SpaceState::ReadOnly { since_ms: self.since_ms, lack })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Space(Mutex<Lacks>);

impl Space {
    fn lock(&self) -> MutexGuard<'_, Lacks> {
        self.0.lock().expect("no panic while it is held")
    }

    pub(crate) fn state(&self) -> SpaceState {
        self.lock().state()
    }

    pub(crate) fn lacks(&self, lack: Lack) -> bool {
        self.lock().lacks[lack as usize]
    }

    /// Whether it is worth trying.
    pub(crate) fn is_due(&self, lack: Lack, now_ms: u64) -> bool {
        let lacks = self.lock();
        !lacks.lacks[lack as usize] || now_ms >= lacks.retry_ms[lack as usize]
    }

    /// Notes whether a step has found space. Returns the new state if the island goes from one to the other.
    pub(crate) fn note(&self, lack: Lack, found_none: bool, now_ms: u64) -> Option<SpaceState> {
        let mut lacks = self.lock();
        let before = lacks.state();
        lacks.lacks[lack as usize] = found_none;
        lacks.retry_ms[lack as usize] = now_ms + RETRY_MS;
        if before == SpaceState::Normal {
            lacks.since_ms = now_ms;
        }
        let after = lacks.state();
        ((before == SpaceState::Normal) != (after == SpaceState::Normal)).then_some(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_when_space_is_gone_and_once_when_all_have_found_some() {
        let space = Space::default();
        let read_only = |since_ms, lack| SpaceState::ReadOnly { since_ms, lack };
        assert_eq!(space.note(Lack::Bodies, false, 1), None);
        assert_eq!(space.note(Lack::Checkpoint, true, 10), Some(read_only(10, Lack::Checkpoint)));
        assert_eq!(space.note(Lack::Record, true, 20), None);
        assert_eq!(space.state(), read_only(10, Lack::Record));
        assert!(!space.is_due(Lack::Checkpoint, 1_009) && space.is_due(Lack::Checkpoint, 1_010));
        assert_eq!(space.note(Lack::Record, false, 30), None);
        assert_eq!(space.note(Lack::Checkpoint, false, 40), Some(SpaceState::Normal));
        assert_eq!(space.note(Lack::Segment, true, 50), Some(read_only(50, Lack::Segment)));
    }
}
