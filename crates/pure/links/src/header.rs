//! The fixed header in front of every frame, and its limits.
//!
//! This file handles bytes only, and never touches a socket. It checks a header before anything is allocated
//! for its frame.

use atoll_core::{Encode, IslandId, Malformed};

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"ATOL";

/// Length of a header.
pub const HEADER_BYTES: usize = 36;

/// Oldest protocol version that this code speaks.
pub const VERSION_LOWEST: u16 = 1;

/// Newest protocol version that this code speaks.
pub const VERSION_HIGHEST: u16 = 1;

/// Longest meta part of a frame of the handshake. It is small, because nothing is known of the sender.
pub const HANDSHAKE_META_BYTES_MAX: usize = 16 * 1024;

/// Longest meta part of any other frame: a listing with attributes, a table, or a request with
/// 65,536 groups (256 KiB) and the value of an extended attribute (64 KiB).
pub const META_BYTES_MAX: usize = atoll_core::limits::MESSAGE_BYTES_MAX;

/// Longest payload: a write of 1 MiB, and room for one that is not aligned to it.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;

/// Longest payload between copies of an island: a record, and the bytes that it names.
pub const GROUP_PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024 + PAYLOAD_BYTES_MAX;

/// Longest frame.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + META_BYTES_MAX + GROUP_PAYLOAD_BYTES_MAX;

/// Flag: the payload has a checksum. Left out only on Unix sockets, where no wire can change it.
pub const FLAG_PAYLOAD_CHECKED: u8 = 1;

const HEAD_CRC_AT: usize = 32;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of the side that connects.
    Hello = 1,
    /// First frame of the side that accepts.
    HelloOk = 2,
    /// A client asks an island.
    Request = 3,
    /// An island answers; the id is the request's.
    Reply = 4,
    /// An island tells a client something that is no answer.
    Notice = 5,
    /// One island to another.
    Peer = 6,
    /// A question about volumes and nodes, or an order of an administrator.
    Control = 7,
    /// Its answer; the id is the question's.
    ControlReply = 8,
    /// The last frame of a link, with the reason why it ends.
    Goodbye = 9,
    /// The sender lives. Sent if nothing else was sent for a while. It has no content.
    Alive = 10,
    /// The island cannot be asked at the sender's node, although the node can be reached: it has stopped, or is not
    /// there, or not yet.
    Gone = 11,
    /// One copy of an island to another.
    Group = 12,
    /// The sender's node leads the island: it can be asked there, from now on or again. Its content is the epoch; 0 if the
    /// island has no other copies.
    Primary = 13,
    /// A node says which islands it leads, and wants a promise of each of their copies.
    Beacon = 14,
    /// The answer to a beacon.
    Promised = 15,
    /// The sender's node knows a configuration of the volume that is newer than the first one: its version.
    Config = 16,
}

impl FrameKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::HelloOk,
            3 => Self::Request,
            4 => Self::Reply,
            5 => Self::Notice,
            6 => Self::Peer,
            7 => Self::Control,
            8 => Self::ControlReply,
            9 => Self::Goodbye,
            10 => Self::Alive,
            11 => Self::Gone,
            12 => Self::Group,
            13 => Self::Primary,
            14 => Self::Beacon,
            15 => Self::Promised,
            16 => Self::Config,
            _ => return None,
        })
    }

    /// Whether the kind makes or ends a link. Its layout is the same in every protocol version, so that two
    /// sides that share none can still say so.
    pub const fn is_handshake(self) -> bool {
        matches!(self, Self::Hello | Self::HelloOk | Self::Goodbye)
    }

    /// Longest meta part, in bytes.
    pub const fn meta_bytes_max(self) -> usize {
        if self.is_handshake() { HANDSHAKE_META_BYTES_MAX } else { META_BYTES_MAX }
    }

    /// Longest payload, in bytes.
    pub const fn payload_bytes_max(self) -> usize {
        match self {
            Self::Hello | Self::HelloOk | Self::Goodbye => 0,
            Self::Group => GROUP_PAYLOAD_BYTES_MAX,
            _ => PAYLOAD_BYTES_MAX,
        }
    }
}

/// A header, checked as far as that is possible without the bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version that the frame is written in.
    pub version: u16,
    /// The frame's kind.
    pub kind: FrameKind,
    /// [`FLAG_PAYLOAD_CHECKED`] or nothing.
    pub flags: u8,
    /// The number of the request, answer or message; the sender chooses it.
    pub id: u64,
    /// Length of the meta part.
    pub meta_bytes: u32,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The island that is meant or that speaks.
    pub island: IslandId,
    /// CRC-32C of the payload, or 0.
    pub payload_crc: u32,
    /// CRC-32C of the header up to here, and the meta part.
    pub head_crc: u32,
}

impl Header {
    /// Length of the whole frame.
    pub const fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.meta_bytes as usize + self.payload_bytes as usize
    }

    /// Whether the payload has a checksum.
    pub const fn payload_checked(&self) -> bool {
        self.flags & FLAG_PAYLOAD_CHECKED != 0
    }
}

/// Bytes that are no frame, or a frame that may not come now. The sender is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else than Atoll speaks.
    #[error("it does not speak Atoll's protocol")]
    NotAtoll,
    /// TLS, where none is expected.
    #[error("it speaks TLS")]
    Encrypted,
    /// A version that was not agreed on.
    #[error("it uses protocol version {theirs}; this side speaks {VERSION_LOWEST} to {VERSION_HIGHEST}")]
    Version {
        /// The version in the header.
        theirs: u16,
    },
    /// No such kind of frame.
    #[error("frames of kind {kind} do not exist")]
    UnknownKind {
        /// The byte in the header.
        kind: u8,
    },
    /// A flag or reserved byte that means nothing.
    #[error("the header has unknown flags")]
    UnknownFlags,
    /// Longer than frames of this kind may be.
    #[error("a {part} part of {bytes} bytes; {max} are allowed")]
    TooLong {
        /// "meta" or "payload".
        part: &'static str,
        /// Length in bytes.
        bytes: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// Header or meta part changed on the way.
    #[error("wrong checksum of header and meta part")]
    HeadChecksum,
    /// The payload changed on the way.
    #[error("wrong checksum of the payload")]
    PayloadChecksum,
    /// A payload without a checksum where one is asked for.
    #[error("a payload without a checksum")]
    PayloadUnchecked,
    /// A frame that has no place here, such as a request before the handshake.
    #[error("a frame of kind {kind:?} is out of place here")]
    Unexpected {
        /// Its kind.
        kind: FrameKind,
    },
    /// The meta part does not fit the kind.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a header's fields lie inside it")
}

/// Reads a header, and refuses one that announces more than its kind may have.
pub fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
    if field(bytes, 0) != MAGIC {
        return Err(FrameError::NotAtoll);
    }
    let version = u16::from_le_bytes(field(bytes, 4));
    let Some(kind) = FrameKind::from_byte(bytes[6]) else {
        // A newer protocol may have more kinds; that is the thing to say then.
        return Err(match version {
            VERSION_LOWEST..=VERSION_HIGHEST => FrameError::UnknownKind { kind: bytes[6] },
            _ => FrameError::Version { theirs: version },
        });
    };
    if !kind.is_handshake() && !(VERSION_LOWEST..=VERSION_HIGHEST).contains(&version) {
        return Err(FrameError::Version { theirs: version });
    }
    let flags = bytes[7];
    if flags & !FLAG_PAYLOAD_CHECKED != 0 || field::<2>(bytes, 26) != [0, 0] {
        return Err(FrameError::UnknownFlags);
    }
    let header = Header {
        version,
        kind,
        flags,
        id: u64::from_le_bytes(field(bytes, 8)),
        meta_bytes: u32::from_le_bytes(field(bytes, 16)),
        payload_bytes: u32::from_le_bytes(field(bytes, 20)),
        island: IslandId(u16::from_le_bytes(field(bytes, 24))),
        payload_crc: u32::from_le_bytes(field(bytes, 28)),
        head_crc: u32::from_le_bytes(field(bytes, HEAD_CRC_AT)),
    };
    check_lengths(kind, header.meta_bytes as usize, header.payload_bytes as usize)?;
    Ok(header)
}

/// Refuses lengths that no frame of this kind may have.
fn check_lengths(kind: FrameKind, meta: usize, payload: usize) -> Result<(), FrameError> {
    for (part, bytes, max) in
        [("meta", meta, kind.meta_bytes_max()), ("payload", payload, kind.payload_bytes_max())]
    {
        if bytes > max {
            return Err(FrameError::TooLong { part, bytes, max });
        }
    }
    Ok(())
}

/// The checksum over a header and the meta part behind it.
pub fn head_crc(header: &[u8; HEADER_BYTES], meta: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..HEAD_CRC_AT]), meta)
}

/// Appends header and meta part of a frame to `out`; the payload is to follow them. Fails, with
/// `out` as it was, if meta or payload is longer than the kind allows.
pub fn encode_head(
    version: u16,
    kind: FrameKind,
    island: IslandId,
    id: u64,
    meta: &impl Encode,
    payload: &[u8],
    check_payload: bool,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    meta.encode(out);
    let meta_bytes = out.len() - start - HEADER_BYTES;
    if let Err(too_long) = check_lengths(kind, meta_bytes, payload.len()) {
        out.truncate(start);
        return Err(too_long);
    }
    let checked = check_payload && !payload.is_empty();
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&version.to_le_bytes());
    header[6] = kind as u8;
    header[7] = if checked { FLAG_PAYLOAD_CHECKED } else { 0 };
    header[8..16].copy_from_slice(&id.to_le_bytes());
    // Both lengths were checked against limits far below 4 GiB.
    header[16..20].copy_from_slice(&(meta_bytes as u32).to_le_bytes());
    header[20..24].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[24..26].copy_from_slice(&island.0.to_le_bytes());
    if checked {
        header[28..32].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    }
    let crc = head_crc(&header, &out[start + HEADER_BYTES..]);
    header[HEAD_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    out[start..start + HEADER_BYTES].copy_from_slice(&header);
    Ok(())
}
