//! Every message goes through the product's codec and its frames' limits, as it does between processes: the
//! bytes are made, measured, and read again. The receiver gets the message that was read.

use std::fmt::Debug;

use atoll_core::{Decode, Encode, IslandId};
use atoll_links::header::{FrameKind, HEADER_BYTES, VERSION_HIGHEST, encode_head};

use crate::net::{Frame, ToClient, ToIsland};

/// Most bytes of records in one frame between copies.
const GROUP_PAYLOAD_BYTES_MAX: usize = (4 << 20) + (64 << 10);

/// Turns messages into bytes and back.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    frame: Vec<u8>,
    /// Bytes of the longest message so far.
    pub(crate) bytes_max: usize,
}

impl Wire {
    /// A message to an island, as that reads it.
    ///
    /// # Errors
    /// The product does not send it, or another message would arrive. Says why.
    pub(crate) fn for_island(&mut self, frame: Frame<ToIsland>) -> Result<Frame<ToIsland>, String> {
        let Frame { island, message } = frame;
        let message = match message {
            ToIsland::Request { link, id, request, data } => {
                let request = self.carry(FrameKind::Request, island, request, &data)?;
                ToIsland::Request { link, id, request, data }
            }
            ToIsland::Peer(message) => ToIsland::Peer(self.carry(FrameKind::Peer, island, message, &[])?),
            ToIsland::Group { link, message, payload } => {
                if payload.len() > GROUP_PAYLOAD_BYTES_MAX {
                    return Err(format!("{} bytes of records in a frame", payload.len()));
                }
                ToIsland::Group { link, message: self.carry_bare(message)?, payload }
            }
            ToIsland::Leads { epoch } => ToIsland::Leads { epoch },
        };
        Ok(Frame { island, message })
    }

    /// A message to a client, as that reads it.
    ///
    /// # Errors
    /// As [`Wire::for_island`].
    pub(crate) fn for_client(&mut self, frame: Frame<ToClient>) -> Result<Frame<ToClient>, String> {
        let Frame { island, message } = frame;
        let message = match message {
            ToClient::Reply { id, reply, data } => {
                let reply = self.carry(FrameKind::Reply, island, reply, &data)?;
                ToClient::Reply { id, reply, data }
            }
            ToClient::Notice(notice) => {
                ToClient::Notice(self.carry(FrameKind::Notice, island, notice, &[])?)
            }
            ToClient::Leads { epoch } => ToClient::Leads { epoch },
        };
        Ok(Frame { island, message })
    }

    fn carry<T>(&mut self, kind: FrameKind, island: IslandId, message: T, payload: &[u8]) -> Result<T, String>
    where
        T: Encode + Decode + PartialEq + Debug,
    {
        let brief = |message: &T| format!("{message:.200?}").chars().take(300).collect::<String>();
        self.frame.clear();
        encode_head(VERSION_HIGHEST, kind, island, 0, &message, payload, false, &mut self.frame)
            .map_err(|why| format!("the product does not send a {kind:?}: {why}: {}", brief(&message)))?;
        let meta = &self.frame[HEADER_BYTES..];
        self.bytes_max = self.bytes_max.max(meta.len());
        let read = T::from_slice(meta)
            .map_err(|why| format!("a {kind:?} cannot be read: {why}: {}", brief(&message)))?;
        if read != message {
            return Err(format!("a {kind:?} arrives as another: {} as {}", brief(&message), brief(&read)));
        }
        Ok(read)
    }

    /// A message that has no kind of frame yet: only its own bytes are made and read.
    fn carry_bare<T: Encode + Decode + PartialEq + Debug>(&mut self, message: T) -> Result<T, String> {
        self.frame.clear();
        message.encode(&mut self.frame);
        let read =
            T::from_slice(&self.frame).map_err(|why| format!("{message:.200?} cannot be read: {why}"))?;
        if read != message {
            return Err(format!("{message:.200?} arrives as {read:.200?}"));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Ino;
    use atoll_links::header::{META_BYTES_MAX, PAYLOAD_BYTES_MAX};
    use atoll_proto::{JournalEntry, Notice, Outcome, PeerMessage, PeerOp, Reply};

    const fn from_first<M>(message: M) -> Frame<M> {
        Frame { island: IslandId(0), message }
    }

    #[test]
    fn what_arrives_is_what_was_sent() {
        let mut wire = Wire::default();
        let sent = ToClient::Notice(Notice::Orphan { ino: Ino(7) });
        let got = wire.for_client(from_first(sent));
        assert!(
            matches!(got, Ok(Frame { message: ToClient::Notice(Notice::Orphan { ino: Ino(7) }), .. })),
            "{got:?}"
        );
        assert!(wire.bytes_max > 0);
    }

    #[test]
    fn what_the_product_does_not_send_is_told() {
        let mut wire = Wire::default();
        let entries = vec![Default::default(); META_BYTES_MAX / 9 + 1];
        let entries = entries.into_iter().map(|stamp| (stamp, JournalEntry::ClockBump)).collect();
        let peer = PeerOp::Journal { after: Default::default(), entries, private: false };
        let message = PeerMessage { from: IslandId(0), incarnation: 1, vector: Vec::new(), op: peer };
        let why = wire.for_island(from_first(ToIsland::Peer(message))).expect_err("it is too long");
        assert!(why.contains("a meta part of"), "{why}");
        assert!(why.len() < 600, "{why}");
        let outcome = Outcome::Data { data: bytes::Bytes::new() };
        let reply = Reply::bare(outcome);
        let data = vec![0; PAYLOAD_BYTES_MAX + 1];
        let why =
            wire.for_client(from_first(ToClient::Reply { id: 1, reply, data })).expect_err("it is too long");
        assert!(why.contains("a payload part of"), "{why}");
    }
}
