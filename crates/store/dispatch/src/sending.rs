//! A primary sends its log to the other copies: what is in memory at once, in order; what has to be read from the disk by a thread
//! that may wait. Never decides what they get.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use atoll_core::planted::{Bug, planted};
use atoll_core::{NodeId, Position};
use atoll_disk::Disk;
use atoll_handover::slow;
use atoll_proto::GroupMessage;
use bytes::Bytes;

use crate::copy::{GroupCopy, Task};
use crate::engine::Engine;
use crate::ship::{Shipment, ends_of};

/// Bytes of records in one frame, or one record.
const FRAME_BYTES: usize = 1 << 20;

/// What waits for a member until something that is read from the disk was sent.
#[derive(Default)]
pub(crate) struct Behind {
    wanted: Option<Wanted>,
    /// The first of these records. They were read and may not leave yet.
    held: Option<HeldFrame>,
    /// A thread reads or sends them.
    is_busy: bool,
}

/// Records that a member is to have: an `Append` that has none yet. What is wanted later joins it. So a copy that catches up gets
/// large frames, however small the pieces are that clients make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    epoch: u32,
    /// The record before the first.
    after: Position,
    /// The last one. The same: a question.
    upto: Position,
    commit: u64,
    synced: u64,
    keep: u64,
}

impl Wanted {
    /// As a frame with these records.
    const fn frame(self, after: Position, ends: Vec<Position>) -> GroupMessage {
        let Self { epoch, commit, synced, keep, .. } = self;
        GroupMessage::Append { epoch, after, ends, commit, synced, keep }
    }

    /// More is wanted, or some of it again, as it may be lost on the way. A question adds nothing: the records ask it too.
    fn and(self, later: Self) -> Self {
        if later.epoch != self.epoch || later.after > self.upto {
            return later;
        }
        let is_question = later.after == later.upto;
        let after = if is_question { self.after } else { self.after.min(later.after) };
        Self { after, upto: self.upto.max(later.upto), ..later }
    }

    /// The records between these have left: what is still wanted.
    fn without(self, before: Position, last: Position) -> Option<Self> {
        if self.after < before {
            return Some(self);
        }
        let after = self.after.max(last);
        (after < self.upto).then_some(Self { after, ..self })
    }
}

/// Records with bytes as their bodies had them when they were read. They tell of later records, so they leave when all members
/// have synced these: else the next primary need not have what made the bytes so.
struct HeldFrame {
    until: u64,
    before: Position,
    last: Position,
    message: GroupMessage,
    payload: Bytes,
}

impl<D: Disk> GroupCopy<D> {
    fn lock_behind(&self) -> MutexGuard<'_, BTreeMap<NodeId, Behind>> {
        self.behind.lock().expect("no panic while it is held")
    }

    /// Sends a message; with an `Append` the records that it names.
    pub(crate) fn send(&self, engine: Option<Arc<Engine<D>>>, to: NodeId, message: GroupMessage) {
        let GroupMessage::Append { epoch, after, ends, commit, synced, keep } = message else {
            return self.group_net.tell(self.island(), to, message, Bytes::new());
        };
        let upto = ends.last().copied().unwrap_or(after);
        let wanted = Wanted { epoch, after, upto, commit, synced, keep };
        let mut behind = self.lock_behind();
        if let Some(waiting) = behind.get_mut(&to) {
            waiting.wanted = Some(waiting.wanted.map_or(wanted, |before| before.and(wanted)));
            return;
        }
        let Some(engine) = engine else { return };
        if let Some(rest) = self.send_records(&engine, to, wanted) {
            behind.insert(to, Behind { wanted: Some(rest), ..Behind::default() });
            drop(behind);
            self.push_task(Task::Ship(to));
        }
    }

    /// Sends the records that are in memory, in as many frames as they need. Returns the rest.
    fn send_records(&self, engine: &Engine<D>, to: NodeId, mut wanted: Wanted) -> Option<Wanted> {
        if wanted.after == wanted.upto {
            self.group_net.tell(self.island(), to, wanted.frame(wanted.after, Vec::new()), Bytes::new());
            return None;
        }
        loop {
            let Some(shipment) = engine.shipment_in_memory(wanted.after, FRAME_BYTES) else {
                return Some(wanted);
            };
            let (frame, payload, last) = frame_of(wanted, shipment)?;
            self.group_net.tell(self.island(), to, frame, payload);
            wanted = wanted.without(wanted.after, last)?;
        }
    }

    /// Sends a member what had to be read, and all that has waited for that, as far as it may leave.
    pub(crate) fn ship(&self, to: NodeId) {
        slow();
        while let Some(engine) = self.engine()
            && self.ship_one(&engine, to)
        {}
    }

    /// The next frame. False: there is none, or it waits.
    fn ship_one(&self, engine: &Arc<Engine<D>>, to: NodeId) -> bool {
        let synced = if planted(Bug::BytesOfUnsynced) { u64::MAX } else { self.place.synced() };
        let mut behind = self.lock_behind();
        let Some(waiting) = behind.get_mut(&to) else { return false };
        if waiting.is_busy || waiting.held.as_ref().is_some_and(|held| held.until > synced) {
            return false;
        }
        if let Some(HeldFrame { before, last, message, payload, .. }) = waiting.held.take() {
            self.group_net.tell(self.island(), to, message, payload);
            waiting.wanted = waiting.wanted.and_then(|wanted| wanted.without(before, last));
            return true;
        }
        let Some(wanted) = waiting.wanted else {
            behind.remove(&to);
            return false;
        };
        waiting.is_busy = true;
        drop(behind);
        let rest = self.send_records(engine, to, wanted);
        let read = rest.and_then(|rest| self.read_frame(engine, to, rest));
        let mut behind = self.lock_behind();
        let Some(waiting) = behind.get_mut(&to) else { return false };
        waiting.is_busy = false;
        // All that is not read was sent. Or it cannot be: the member asks again, or is dropped.
        let upto = read.as_ref().map_or(wanted.upto, |held| held.before);
        waiting.wanted = waiting.wanted.and_then(|now| now.without(wanted.after, upto));
        if let Some(held) = read {
            let until = held.until;
            waiting.held = Some(held);
            drop(behind);
            if self.place.synced() < until {
                engine.stays(until);
            }
        }
        true
    }

    /// Reads the next part of a frame from the log.
    fn read_frame(&self, engine: &Engine<D>, to: NodeId, wanted: Wanted) -> Option<HeldFrame> {
        let shipment = match engine.shipment_upto(wanted.after, wanted.upto.seq, FRAME_BYTES) {
            Ok(shipment) => shipment,
            Err(why) => {
                self.group_net.trouble(self.island(), format!("records for node {to}: {why}"));
                return None;
            }
        };
        let has_bytes = shipment.records.iter().any(|shipped| shipped.placed.is_some());
        let until = if has_bytes { engine.last().seq } else { 0 };
        let (message, payload, last) = frame_of(wanted, shipment)?;
        Some(HeldFrame { until, before: wanted.after, last, message, payload })
    }

    /// All members have synced more: what has waited for that leaves.
    pub(crate) fn ship_synced(&self) {
        let synced = self.place.synced();
        let behind = self.lock_behind();
        let may_leave = |waiting: &Behind| waiting.held.as_ref().is_some_and(|held| held.until <= synced);
        let due: Vec<NodeId> =
            behind.iter().filter(|(_, waiting)| may_leave(waiting)).map(|(to, _)| *to).collect();
        drop(behind);
        due.into_iter().for_each(|to| self.push_task(Task::Ship(to)));
    }
}

/// These records as a frame, up to the last one that is wanted.
fn frame_of(wanted: Wanted, shipment: Shipment) -> Option<(GroupMessage, Bytes, Position)> {
    let Shipment { after, mut records } = shipment;
    records.retain(|shipped| shipped.position <= wanted.upto);
    let last = records.last()?.position;
    let message = wanted.frame(after, ends_of(&records));
    Some((message, Shipment { after, records }.encode(), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seq: u64) -> Position {
        Position { epoch: 1, seq }
    }

    fn wanted(after: u64, upto: u64) -> Wanted {
        Wanted { epoch: 1, after: at(after), upto: at(upto), commit: upto, synced: after, keep: 0 }
    }

    #[test]
    fn what_is_wanted_later_joins_what_waits() {
        assert_eq!(wanted(5, 8).and(wanted(8, 9)), Wanted { synced: 8, ..wanted(5, 9) });
        let again = wanted(5, 8).and(wanted(2, 6));
        assert_eq!((again.after, again.upto), (at(2), at(8)), "some of it may be lost");
        let question = wanted(5, 8).and(wanted(2, 2));
        assert_eq!((question.after, question.upto), (at(5), at(8)));
        assert_eq!(wanted(5, 8).and(wanted(20, 21)), wanted(20, 21), "the member has what is between");
        let epoch = Wanted { epoch: 2, ..wanted(6, 7) };
        assert_eq!(wanted(5, 8).and(epoch), epoch, "another epoch has another log");
    }

    #[test]
    fn what_has_left_is_wanted_no_more() {
        assert_eq!(wanted(5, 8).without(at(5), at(7)).map(|rest| rest.after), Some(at(7)));
        assert_eq!(wanted(5, 8).without(at(5), at(8)), None);
        assert_eq!(wanted(5, 8).without(at(5), at(9)), None);
        assert_eq!(wanted(2, 8).without(at(5), at(8)), Some(wanted(2, 8)), "it is wanted again");
    }
}
