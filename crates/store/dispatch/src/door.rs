//! The one way out of an island: everything that it tells clients and other islands passes here. Decides only whether
//! it may be told, never what.
//!
//! An island that may have other copies tells something only while no other copy can lead. Until then it is held.

use std::collections::VecDeque;
use std::sync::MutexGuard;

use atoll_core::planted::{Bug, planted};
use atoll_disk::Disk;
use atoll_island::{Effect, LinkId};
use atoll_proto::Reply;
use bytes::Bytes;

use crate::engine::Engine;

/// So many answers and messages are held at most,
const HELD_MAX: usize = 4_096;
/// with so many bytes of files in all. What is beyond that is dropped.
const HELD_BYTES_MAX: usize = 16 << 20;

/// What waits to leave.
#[derive(Debug, Default)]
pub(crate) struct Held {
    effects: VecDeque<Effect>,
    /// Bytes of files in them.
    bytes: usize,
    /// Something was dropped.
    overflowed: bool,
}

impl<D: Disk> Engine<D> {
    /// An answer, a notice or a message leaves, unless the island has halted.
    pub(crate) fn leave(&self, effect: Effect) {
        if self.may_tell() {
            self.tell_now(effect);
        } else {
            self.hold(effect);
        }
    }

    /// An answer leaves, whose bytes were read apart from the machine, unless the island has halted: then its clients
    /// were told so.
    pub fn answer(&self, link: LinkId, id: u64, reply: Reply, data: &[u8]) {
        if self.may_tell() || planted(Bug::ReadBesideLease) {
            if !self.is_halted() {
                self.net.reply(self.id, link, id, reply, data);
            }
        } else {
            self.hold(Effect::Reply { link, id, reply, data: Bytes::copy_from_slice(data) });
        }
    }

    /// What is held leaves, if it may be told now. True if something was dropped: whoever waits for it must ask again. Islands
    /// do so by themselves.
    pub(crate) fn tell_held(&self) -> bool {
        if !self.is_grouped() || !self.may_tell() {
            return false;
        }
        // The lock is not kept: what is told here may come back to this door, by way of another island of this process.
        let held = std::mem::take(&mut *self.lock_held());
        held.effects.into_iter().for_each(|effect| self.tell_now(effect));
        held.overflowed
    }

    /// Asked after the rows were read, so that what was read was right within the request.
    fn may_tell(&self) -> bool {
        self.grouped.get().is_none_or(|grouped| grouped.place.may_tell())
    }

    fn tell_now(&self, effect: Effect) {
        match effect {
            _ if self.is_halted() => {}
            Effect::Reply { link, id, reply, data } => self.net.reply(self.id, link, id, reply, &data),
            Effect::Notice(link, notice) => self.net.notice(self.id, link, notice),
            Effect::Send(to, message) => self.net.send(to, message),
            Effect::Beside(number, says) => self.net.beside(self.id, number, says),
            _ => unreachable!("it stays here"),
        }
    }

    fn hold(&self, effect: Effect) {
        if self.is_halted() {
            return;
        }
        let bytes = if let Effect::Reply { data, .. } = &effect { data.len() } else { 0 };
        let mut held = self.lock_held();
        if held.effects.len() < HELD_MAX && held.bytes + bytes <= HELD_BYTES_MAX {
            held.bytes += bytes;
            held.effects.push_back(effect);
        } else {
            held.overflowed = true;
        }
    }

    fn lock_held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic while it is held")
    }
}
