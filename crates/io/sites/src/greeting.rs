//! What is said on a connection between sites: who greets whom first, then messages. Owns the form of frames and their bounds.
//!
//! A frame is the length of what follows, in four bytes, and a [`LinkFrame`].

use atoll_core::{Decode, Encode, Malformed, wire_enum, wire_struct};
use atoll_wide::members::NumberedSite;
use atoll_wide::peers::message::{Most, SITES_MAX, WideMessage};
use bytes::{Buf, Bytes, BytesMut};

/// The version of what sites say to each other.
pub(crate) const VERSION: u32 = 2;

/// Bytes in front of a frame.
pub(crate) const FRONT: usize = 4;
/// Bytes of a frame in which a message is.
pub(crate) const FRAME_BYTES_MAX: usize = WideMessage::BYTES_MAX + 64;
/// Bytes of a frame before both ends know each other.
pub(crate) const GREETING_BYTES_MAX: usize = 64 << 10;
/// Bytes of a reason that is sent.
const WHY_BYTES_MAX: usize = 1_000;

wire_struct! {
    /// A site asks to be let into a volume.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JoinAsk {
        /// The secret of the line.
        pub secret: u128,
        /// The site, as it wants to be known.
        pub site: NumberedSite,
    }
}

wire_struct! {
    /// What a site that was let in is to know.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Joined {
        /// The volume's name.
        pub name: String,
        /// Its id.
        pub volume: u64,
        /// Its seed.
        pub seed: u64,
        /// The number of the site that was let in: an earlier one, if its key came before with the same line.
        pub site: u64,
        /// Owner of the volume's root when it was made,
        pub uid: u32,
        /// and its group. All sites begin with the same root.
        pub gid: u32,
        /// Its sites.
        pub sites: Most<NumberedSite, SITES_MAX>,
    }
}

wire_enum! {
    /// What a connection is for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Purpose {
        /// One of the two of a link.
        1 => Lane {
            /// The volume.
            volume: u64,
            /// The site that connects.
            site: u64,
            /// The site to which it connects.
            to: u64,
            /// Both connections of a link have the same number.
            link: u64,
            /// Which of the two.
            lane: u32,
        },
        /// A site wants to be let in.
        2 => Join { /// It.
            ask: JoinAsk },
    }
}

wire_enum! {
    /// See the module.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum LinkFrame {
        /// Who connects says first what for.
        1 => Greet { /// [`VERSION`].
            version: u32, /// What for.
            purpose: Purpose },
        /// It is let in.
        2 => Welcome,
        /// It is not.
        3 => Refused { /// Why, for people.
            why: String },
        /// It is a site of the volume now.
        4 => Joined { /// What it is to know.
            joined: Joined },
        /// A message of its machine.
        5 => Message { /// It.
            bytes: Bytes },
        /// The other end lives.
        6 => Alive { /// Its time of day, in microseconds since 1970.
            wall_us: u64 },
    }
}

impl LinkFrame {
    /// Its bytes, with those in front.
    pub(crate) fn framed(&self) -> Bytes {
        let len = self.encoded_len();
        let mut out = Vec::with_capacity(FRONT + len);
        (len as u32).encode(&mut out);
        self.encode(&mut out);
        out.into()
    }

    /// Says why not, in as many bytes as a reason may have.
    pub(crate) fn refused(why: &str) -> Self {
        let mut end = why.len().min(WHY_BYTES_MAX);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        Self::Refused { why: why[..end].to_owned() }
    }
}

/// The next frame of what has arrived, of at most so many bytes; none if it is not whole.
pub(crate) fn next_frame(arrived: &mut BytesMut, most: usize) -> Result<Option<LinkFrame>, Malformed> {
    let Some(front) = arrived.first_chunk::<FRONT>() else { return Ok(None) };
    let len = u32::from_le_bytes(*front) as usize;
    if len > most {
        return Err(Malformed::new("length of a frame between sites"));
    }
    if arrived.len() < FRONT + len {
        // At most what one frame may have.
        arrived.reserve(FRONT + len - arrived.len());
        return Ok(None);
    }
    arrived.advance(FRONT);
    LinkFrame::from_slice(&arrived.split_to(len)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_one_by_one_however_they_arrive() {
        let frames = [
            LinkFrame::Greet {
                version: VERSION,
                purpose: Purpose::Lane { volume: 1, site: 2, to: 3, link: 4, lane: 1 },
            },
            LinkFrame::Welcome,
            LinkFrame::refused("ä".repeat(2_000).as_str()),
            LinkFrame::Message { bytes: Bytes::from(vec![7; 3_000]) },
            LinkFrame::Alive { wall_us: 5 },
        ];
        let all: Vec<u8> = frames.iter().flat_map(LinkFrame::framed).collect();
        for chunk in [1, 7, 5_000] {
            let (mut arrived, mut read) = (BytesMut::new(), Vec::new());
            for part in all.chunks(chunk) {
                arrived.extend_from_slice(part);
                while let Some(frame) = next_frame(&mut arrived, GREETING_BYTES_MAX).unwrap() {
                    read.push(frame);
                }
            }
            assert_eq!(read, frames);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_malformed_is_refused() {
        let too_long = (GREETING_BYTES_MAX as u32 + 1).to_le_bytes();
        assert!(next_frame(&mut BytesMut::from(&too_long[..]), GREETING_BYTES_MAX).is_err());
        assert!(next_frame(&mut BytesMut::from(&[1, 0, 0, 0, 77][..]), GREETING_BYTES_MAX).is_err());
    }
}
