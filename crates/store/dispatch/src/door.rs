//! The one way out of an island: everything that it tells clients and other islands passes here. Decides only whether
//! it may still be told, never what.

use atoll_disk::Disk;
use atoll_island::{Effect, LinkId};
use atoll_proto::Reply;

use crate::engine::Engine;

impl<D: Disk> Engine<D> {
    /// An answer, a notice or a message leaves, unless the island has halted.
    pub(crate) fn leave(&self, effect: Effect) {
        match effect {
            Effect::Reply { link, id, reply, data } => self.answer(link, id, reply, &data),
            Effect::Notice(link, notice) if !self.is_halted() => self.net.notice(self.id, link, notice),
            Effect::Send(to, message) if !self.is_halted() => self.net.send(to, message),
            Effect::Notice(..) | Effect::Send(..) => {}
            _ => unreachable!("it stays here"),
        }
    }

    /// An answer leaves, whose bytes were read apart from the machine, unless the island has halted: then its clients
    /// were told so.
    pub fn answer(&self, link: LinkId, id: u64, reply: Reply, data: &[u8]) {
        if !self.is_halted() {
            self.net.reply(self.id, link, id, reply, data);
        }
    }
}
