//! Cuts frames out of a stream of untrusted bytes.
//!
//! Bytes in, frames out: this file never touches a socket. One buffer holds a frame. Its meta part and
//! payload are slices of the buffer and are not copied again.

use atoll_core::{Decode, IslandId, Malformed};
use bytes::{Bytes, BytesMut};

use crate::FrameKind;
use crate::header::{FrameError, HEADER_BYTES, Header, MAGIC, decode_header, head_crc};
use crate::pool;

/// Bytes asked of a socket at once while no large frame is under way, and the largest frame that
/// is put together there. Of a larger frame at most so many bytes are copied, once.
pub(crate) const READ_AHEAD_BYTES: usize = 16 * 1024;

/// Size of the buffer that small frames are cut from.
const SMALL_BUFFER_BYTES: usize = 64 * 1024;

/// One message.
///
/// Meta part and payload share a buffer with each other, and small frames share one with their neighbours. A
/// user that keeps a few bytes for long should copy them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: FrameKind,
    /// The island that is meant or that speaks.
    pub island: IslandId,
    /// The number of the request, answer or message.
    pub id: u64,
    /// The encoded message.
    pub meta: Bytes,
    /// Bytes beside it.
    pub payload: Bytes,
}

impl Frame {
    /// The message. If it is malformed, the link should be closed with
    /// [`Link::malformed`](crate::Link::malformed).
    pub fn decode<T: Decode>(&self) -> Result<T, Malformed> {
        T::from_slice(&self.meta)
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct FrameReader {
    /// Bytes that were read and not cut yet.
    small: BytesMut,
    /// A frame that is larger than those that are assembled in `small`. While there is one, `small` holds
    /// only the bytes behind it.
    large: Option<(Header, Vec<u8>)>,
    /// The version that was agreed on. Until then only frames of the handshake are let in.
    version: Option<u16>,
    needs_payload_checks: bool,
}

impl FrameReader {
    /// Starts before the handshake. With `needs_payload_checks`, a payload without a checksum is an
    /// error.
    pub fn new(needs_payload_checks: bool) -> Self {
        Self {
            small: BytesMut::with_capacity(SMALL_BUFFER_BYTES),
            large: None,
            version: None,
            needs_payload_checks,
        }
    }

    /// The handshake is over: from now on frames have this version.
    pub fn agree(&mut self, version: u16) {
        self.version = Some(version);
    }

    /// Takes bytes in, in any portions.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if let Some((header, buffer)) = &mut self.large {
            let missing = header.frame_bytes() - buffer.len();
            let (own, rest) = bytes.split_at(missing.min(bytes.len()));
            buffer.extend_from_slice(own);
            bytes = rest;
        }
        self.small.extend_from_slice(bytes);
    }

    /// True if the stream may end here: no frame is cut short.
    pub fn is_between_frames(&self) -> bool {
        self.small.is_empty() && self.large.is_none()
    }

    /// The next whole frame, if it is there. After an error the stream is of no more use.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some((header, buffer)) = self.large.take() {
            if buffer.len() < header.frame_bytes() {
                self.large = Some((header, buffer));
                return Ok(None);
            }
            return self.finish(header, pool::freeze(buffer)).map(Some);
        }
        let Some(header) = self.peek_header()? else {
            return Ok(None);
        };
        let bytes = header.frame_bytes();
        if self.small.len() >= bytes {
            let whole = self.small.split_to(bytes).freeze();
            return self.finish(header, whole).map(Some);
        }
        if bytes > READ_AHEAD_BYTES {
            let mut buffer = pool::take(bytes);
            buffer.extend_from_slice(&self.small);
            self.small.clear();
            self.large = Some((header, buffer));
        }
        Ok(None)
    }

    /// The place for the next bytes from a socket.
    pub(crate) fn target(&mut self) -> Target<'_> {
        match &mut self.large {
            Some((header, buffer)) if buffer.len() < header.frame_bytes() => {
                Target::Large { bytes: header.frame_bytes() - buffer.len(), buffer }
            }
            _ => {
                // Reuses the buffer from its start as soon as no frame refers to it any more.
                self.small.reserve(READ_AHEAD_BYTES);
                Target::Small { buffer: &mut self.small }
            }
        }
    }

    fn peek_header(&self) -> Result<Option<Header>, FrameError> {
        let Some(bytes) = self.small.first_chunk::<HEADER_BYTES>() else {
            // Another protocol's greeting may be shorter than a header, and nothing may follow it.
            if is_tls(&self.small) {
                return Err(FrameError::Encrypted);
            }
            let seen = self.small.len().min(MAGIC.len());
            return if self.small[..seen] == MAGIC[..seen] { Ok(None) } else { Err(FrameError::NotAtoll) };
        };
        if is_tls(bytes) {
            return Err(FrameError::Encrypted);
        }
        let header = decode_header(bytes)?;
        match self.version {
            None if !header.kind.is_handshake() => return Err(FrameError::Unexpected { kind: header.kind }),
            Some(agreed) if !header.kind.is_handshake() && header.version != agreed => {
                return Err(FrameError::Version { theirs: header.version });
            }
            _ => {}
        }
        if self.needs_payload_checks && header.payload_bytes > 0 && !header.payload_checked() {
            return Err(FrameError::PayloadUnchecked);
        }
        Ok(Some(header))
    }

    fn finish(&self, header: Header, whole: Bytes) -> Result<Frame, FrameError> {
        let meta_end = HEADER_BYTES + header.meta_bytes as usize;
        let head = whole.first_chunk::<HEADER_BYTES>().expect("a whole frame has a header");
        if head_crc(head, &whole[HEADER_BYTES..meta_end]) != header.head_crc {
            return Err(FrameError::HeadChecksum);
        }
        if header.payload_checked() && crc32c::crc32c(&whole[meta_end..]) != header.payload_crc {
            return Err(FrameError::PayloadChecksum);
        }
        let meta = whole.slice(HEADER_BYTES..meta_end);
        let payload = if header.payload_bytes == 0 { Bytes::new() } else { whole.slice(meta_end..) };
        Ok(Frame { kind: header.kind, island: header.island, id: header.id, meta, payload })
    }
}

/// Whether these bytes begin as an alert or a greeting of TLS does (RFC 8446, 5.1).
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}

/// A place for bytes from a socket.
pub(crate) enum Target<'a> {
    /// At most [`READ_AHEAD_BYTES`], for which there is room.
    Small {
        /// To be appended to.
        buffer: &'a mut BytesMut,
    },
    /// Exactly so many, for which there is room.
    Large {
        /// To be appended to.
        buffer: &'a mut Vec<u8>,
        /// How many.
        bytes: usize,
    },
}
