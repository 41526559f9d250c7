//! A primary sends its log to the other copies: what is in memory at once, in order; what has to be read from the disk by a thread
//! that may wait. Never decides what they get.

use std::collections::{BTreeMap, VecDeque};
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
    /// Frames, each with the last record that it is to have.
    frames: VecDeque<(GroupMessage, Position)>,
    /// A part of the first one.
    held: Option<HeldFrame>,
    /// A thread is at the first one.
    is_busy: bool,
}

/// Records with bytes as their bodies had them when they were read. They tell of later records, so they leave when all members
/// have synced these: else the next primary need not have what made the bytes so.
struct HeldFrame {
    until: u64,
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
        let upto = match &message {
            GroupMessage::Append { after, ends, .. } => ends.last().copied().unwrap_or(*after),
            _ => return self.group_net.tell(self.island(), to, message, Bytes::new()),
        };
        let mut behind = self.lock_behind();
        if let Some(waiting) = behind.get_mut(&to) {
            waiting.frames.push_back((message, upto));
            return;
        }
        let Some(engine) = engine else { return };
        if let Some((rest, upto)) = self.send_records(&engine, to, message, upto) {
            behind.insert(to, Behind { frames: [(rest, upto)].into(), ..Behind::default() });
            drop(behind);
            self.push_task(Task::Ship(to));
        }
    }

    /// Sends the records of an `Append` that are in memory, in as many frames as they need. Returns the rest.
    fn send_records(
        &self,
        engine: &Engine<D>,
        to: NodeId,
        mut message: GroupMessage,
        upto: Position,
    ) -> Option<(GroupMessage, Position)> {
        loop {
            let GroupMessage::Append { after, ends, .. } = &mut message else { return None };
            if *after == upto {
                // A question, or all of it was sent.
                ends.clear();
                self.group_net.tell(self.island(), to, message, Bytes::new());
                return None;
            }
            let Some(shipment) = engine.shipment_in_memory(*after, FRAME_BYTES) else {
                return Some((message, upto));
            };
            let (frame, payload, last) = frame_of(&message, shipment, upto)?;
            self.group_net.tell(self.island(), to, frame, payload);
            if last == upto {
                return None;
            }
            go_on(&mut message, last);
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
        if let Some(HeldFrame { last, message, payload, .. }) = waiting.held.take() {
            self.group_net.tell(self.island(), to, message, payload);
            if let Some((first, upto)) = waiting.frames.front_mut() {
                go_on(first, last);
                if last >= *upto {
                    waiting.frames.pop_front();
                }
            }
            return true;
        }
        let Some((message, upto)) = waiting.frames.front().cloned() else {
            behind.remove(&to);
            return false;
        };
        waiting.is_busy = true;
        drop(behind);
        let rest = self.send_records(engine, to, message, upto);
        let read = rest.and_then(|(message, upto)| self.read_frame(engine, to, &message, upto));
        let mut behind = self.lock_behind();
        let Some(waiting) = behind.get_mut(&to) else { return false };
        waiting.is_busy = false;
        match read {
            Some(held) => {
                let until = held.until;
                waiting.held = Some(held);
                drop(behind);
                if self.place.synced() < until {
                    engine.stays(until);
                }
            }
            // All of it was sent, or cannot be: the member asks again, or is dropped.
            None => drop(waiting.frames.pop_front()),
        }
        true
    }

    /// Reads the next part of a frame from the log.
    fn read_frame(
        &self,
        engine: &Engine<D>,
        to: NodeId,
        message: &GroupMessage,
        upto: Position,
    ) -> Option<HeldFrame> {
        let GroupMessage::Append { after, .. } = message else { return None };
        let shipment = match engine.shipment_upto(*after, upto.seq, FRAME_BYTES) {
            Ok(shipment) => shipment,
            Err(why) => {
                self.group_net.trouble(self.island(), format!("records for node {to}: {why}"));
                return None;
            }
        };
        let has_bytes = shipment.records.iter().any(|shipped| shipped.placed.is_some());
        let until = if has_bytes { engine.last().seq } else { 0 };
        let (message, payload, last) = frame_of(message, shipment, upto)?;
        Some(HeldFrame { until, last, message, payload })
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

/// These records as a frame, up to the last one that it is to have.
fn frame_of(
    message: &GroupMessage,
    shipment: Shipment,
    upto: Position,
) -> Option<(GroupMessage, Bytes, Position)> {
    let Shipment { after, mut records } = shipment;
    records.retain(|shipped| shipped.position <= upto);
    let last = records.last()?.position;
    let mut frame = message.clone();
    if let GroupMessage::Append { after: before, ends, .. } = &mut frame {
        *before = after;
        *ends = ends_of(&records);
    }
    Some((frame, Shipment { after, records }.encode(), last))
}

/// The rest of a frame of which the records up to this one were sent.
fn go_on(message: &mut GroupMessage, last: Position) {
    if let GroupMessage::Append { after, .. } = message {
        *after = last;
    }
}
