//! A peer's stream of bytes, cut into frames, and the messages in them.

use atoll_core::{Decode, Encode};
use atoll_proto::{
    Beacon, Control, ControlReply, GroupMessage, Notice, PeerMessage, Promised, Reply, Request,
};
use atoll_rpc::header::{FRAME_BYTES_MAX, HEADER_BYTES, META_BYTES_MAX, VERSION_HIGHEST, decode_header};
use atoll_rpc::{Frame, FrameKind, FrameReader, Goodbye, Hello, HelloOk};

/// Where the checksum of header and meta part stands in a header.
const HEAD_CRC_AT: usize = 32;
/// Where the payload's checksum stands.
const PAYLOAD_CRC_AT: usize = 28;

/// The stream of somebody who connects. The first byte says how it comes in: with checksums put
/// right or as it is, over TCP or not, before the handshake or after it. The next two seed the sizes
/// of the portions.
pub fn frame(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first_chunk::<3>() else { return };
    let (needs_checks, greeted, mended) = (how[0] & 1 != 0, how[0] & 2 != 0, how[0] & 4 != 0);
    let mut stream = rest.to_vec();
    if mended {
        mend(&mut stream);
    }
    let mut seed = u32::from(how[1]) << 8 | u32::from(how[2]) | 1 << 16;
    let mut reader = FrameReader::new(needs_checks);
    if greeted {
        reader.agree(VERSION_HIGHEST);
    }
    let mut rest = &stream[..];
    let mut taken = 0;
    loop {
        match reader.next_frame() {
            Err(_) => return,
            Ok(Some(frame)) => {
                taken += HEADER_BYTES + frame.meta.len() + frame.payload.len();
                assert!(taken <= stream.len(), "more came out than went in");
                check(&frame, greeted);
            }
            Ok(None) if rest.is_empty() => break,
            Ok(None) => {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let n = (1 + (seed >> 8) as usize % 97).min(rest.len());
                reader.feed(&rest[..n]);
                rest = &rest[n..];
            }
        }
    }
    assert_eq!(taken == stream.len(), reader.is_between_frames(), "bytes were lost between frames");
}

fn check(frame: &Frame, greeted: bool) {
    assert!(greeted || frame.kind.is_handshake(), "let in before the handshake");
    assert!(frame.meta.len() <= META_BYTES_MAX && frame.payload.len() <= frame.kind.payload_bytes_max());
    match frame.kind {
        FrameKind::Hello => same::<Hello>(frame),
        FrameKind::HelloOk => same::<HelloOk>(frame),
        FrameKind::Goodbye => same::<Goodbye>(frame),
        FrameKind::Request => same::<Request>(frame),
        FrameKind::Reply => same::<Reply>(frame),
        FrameKind::Notice => same::<Notice>(frame),
        FrameKind::Peer => same::<PeerMessage>(frame),
        FrameKind::Control => same::<Control>(frame),
        FrameKind::ControlReply => same::<ControlReply>(frame),
        FrameKind::Group => same::<GroupMessage>(frame),
        FrameKind::Beacon => same::<Beacon>(frame),
        FrameKind::Promised => same::<Promised>(frame),
        FrameKind::Config => same::<u64>(frame),
        FrameKind::Primary => same::<u32>(frame),
        // Their content means nothing.
        FrameKind::Alive | FrameKind::Gone => {}
    }
}

fn same<T: Decode + Encode>(frame: &Frame) {
    if let Ok(message) = frame.decode::<T>() {
        assert_eq!(message.to_vec(), frame.meta, "a message is written as it was read");
    }
}

/// Puts the checksums of all frames right, so that what is behind them is reached.
fn mend(stream: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = stream.get(at..).and_then(|rest| rest.first_chunk::<HEADER_BYTES>()) {
        let Ok(header) = decode_header(header) else { return };
        let (meta_at, end) = (at + HEADER_BYTES, at + header.frame_bytes());
        assert!(header.frame_bytes() <= FRAME_BYTES_MAX, "a frame of any length was let through");
        if end > stream.len() {
            return;
        }
        let payload_at = meta_at + header.meta_bytes as usize;
        if header.payload_checked() {
            let crc = crc32c::crc32c(&stream[payload_at..end]);
            stream[at + PAYLOAD_CRC_AT..at + HEAD_CRC_AT].copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&stream[at..at + HEAD_CRC_AT]);
        let crc = crc32c::crc32c_append(crc, &stream[meta_at..payload_at]);
        stream[at + HEAD_CRC_AT..meta_at].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
}
