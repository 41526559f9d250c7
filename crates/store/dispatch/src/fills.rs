//! How many copies are filled at once at a node: so many that take, and so many that are given to. Shared by all copies of the node,
//! of whatever volume. Never knows what is sent.
//!
//! Whoever was not heard of for a while has ended. A copy whose island has one copy left goes before others.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_proto::control::{FillStatus, Filling};

use crate::progress::{Copy, FillProgress, Meter};

/// Copies that take at once, and that are given to.
const AT_ONCE: usize = 2;
/// Who has not asked for so long has ended.
const ENDED_MS: u64 = 2_000;
/// Clients that used the node so long ago are at work.
const AT_WORK_MS: u64 = 200;

/// See the module.
#[derive(Debug, Default)]
pub struct Fills {
    takes: Mutex<Slots>,
    gives: Mutex<Slots>,
    meter: Mutex<Meter>,
    /// When a client has used an island of the node last.
    used_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    /// When each has asked last.
    busy: BTreeMap<Copy, u64>,
    /// Those that go before others and have no place yet.
    urgent: BTreeMap<Copy, u64>,
}

impl Slots {
    fn may(&mut self, now_ms: u64, copy: Copy, is_urgent: bool) -> bool {
        let asks = |at: &u64| now_ms < at + ENDED_MS;
        self.busy.retain(|_, at| asks(at));
        self.urgent.retain(|_, at| asks(at));
        let waits_for_others = !is_urgent && !self.urgent.is_empty();
        if self.busy.contains_key(&copy) || (self.busy.len() < AT_ONCE && !waits_for_others) {
            self.urgent.remove(&copy);
            self.busy.insert(copy, now_ms);
            return true;
        }
        if is_urgent {
            self.urgent.insert(copy, now_ms);
        }
        false
    }
}

impl Fills {
    /// Whether a copy of this node may ask for rows or bytes now. `is_urgent`: its island has one copy.
    pub(crate) fn may_take(&self, now_ms: u64, copy: Copy, is_urgent: bool) -> bool {
        self.takes.lock().expect("no panic while it is held").may(now_ms, copy, is_urgent)
    }

    /// A client uses an island of this node.
    pub fn used(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether clients are at work here.
    pub(crate) fn is_used(&self, now_ms: u64) -> bool {
        let at = self.used_ms.load(Ordering::Relaxed);
        at != 0 && now_ms < at + AT_WORK_MS
    }

    /// Whether it was allowed to a moment ago.
    pub(crate) fn takes(&self, copy: Copy) -> bool {
        self.takes.lock().expect("no panic while it is held").busy.contains_key(&copy)
    }

    /// A copy of this node says how far it is. None: it is not filled.
    pub(crate) fn note(&self, now_ms: u64, copy: Copy, progress: Option<FillProgress>) {
        self.meter.lock().expect("no panic while it is held").note(now_ms, copy, progress);
    }

    /// An island of this node that gets bytes of files from elsewhere says how far it is. None: it has them all.
    pub fn note_bytes(&self, now_ms: u64, island: (VolumeId, IslandId, NodeId), status: Option<FillStatus>) {
        self.note(now_ms, island, status.map(|status| FillProgress { status, rows: status.files }));
    }

    /// How far a copy of this node is; none if it is not filled.
    pub(crate) fn of(&self, copy: Copy) -> Option<FillStatus> {
        self.meter.lock().expect("no panic while it is held").of(copy)
    }

    /// How far all copies of this node are that are filled; none if none is.
    pub fn all(&self, now_ms: u64) -> Option<Filling> {
        self.meter.lock().expect("no panic while it is held").all(now_ms)
    }

    /// Whether a copy of another node may be given some now.
    pub(crate) fn may_give(&self, now_ms: u64, copy: Copy) -> bool {
        self.gives.lock().expect("no panic while it is held").may(now_ms, copy, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn copy(island: u16) -> Copy {
        (VolumeId(1), IslandId(island), NodeId(3))
    }

    #[test]
    fn two_are_filled_at_once_until_one_has_ended() {
        let mut slots = Slots::default();
        assert!(slots.may(0, copy(1), false) && slots.may(0, copy(2), false));
        assert!(!slots.may(0, copy(3), false));
        assert!(!slots.may(0, (VolumeId(2), IslandId(1), NodeId(3)), false), "of another volume");
        assert!(slots.may(1_500, copy(1), false), "it goes on");
        assert!(slots.may(2_000, copy(3), false), "the second one was not heard of");
        assert!(!slots.may(2_000, copy(2), false));
    }

    #[test]
    fn an_island_with_one_copy_goes_before_others() {
        let mut slots = Slots::default();
        assert!(slots.may(0, copy(1), false) && slots.may(0, copy(2), true));
        assert!(!slots.may(1_900, copy(4), true));
        assert!(slots.may(1_900, copy(2), false));
        assert!(!slots.may(2_500, copy(3), false), "the urgent one is waited for");
        assert!(slots.may(2_500, copy(4), true));
        assert!(!slots.may(2_500, copy(3), false));
    }
}
