//! The decoder against bytes that nobody vouches for: it never panics, never gives out a frame
//! that was not sent, and never allocates what a header merely announces.

use atoll_core::{Encode, IslandId};
use atoll_rpc::header::{
    FLAG_PAYLOAD_CHECKED, HANDSHAKE_META_BYTES_MAX, HEADER_BYTES, META_BYTES_MAX, PAYLOAD_BYTES_MAX,
    VERSION_HIGHEST, decode_header, encode_head,
};
use atoll_rpc::{ClusterId, DaemonId, Frame, FrameError, FrameKind, FrameReader, Hello, HelloOk, Role};
use bytes::Bytes;
use proptest::prelude::*;

struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}

fn encode(kind: FrameKind, id: u64, meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let meta = Raw(meta.to_vec());
    encode_head(VERSION_HIGHEST, kind, IslandId(0x0102), id, &meta, payload, true, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

fn greeted() -> FrameReader {
    let mut reader = FrameReader::new(true);
    reader.agree(VERSION_HIGHEST);
    reader
}

fn read_all(reader: &mut FrameReader, bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    reader.feed(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn the_header_has_the_bytes_that_the_format_says() {
    let bytes = encode(FrameKind::Request, 0x1122_3344_5566_7788, b"meta", b"payload");
    let golden = [
        b'A', b'T', b'O', b'L', // magic
        1, 0, // version
        3, 1, // kind, flags
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // id
        4, 0, 0, 0, // meta bytes
        7, 0, 0, 0, // payload bytes
        2, 1, 0, 0, // island, reserved
        0x70, 0x69, 0xe3, 0xf4, // payload crc
        0xf8, 0xdb, 0xe8, 0x15, // head crc
    ];
    assert_eq!(bytes[..HEADER_BYTES], golden, "{:02x?}", &bytes[..HEADER_BYTES]);
    assert_eq!(&bytes[HEADER_BYTES..], b"metapayload");
}

#[test]
fn the_greetings_have_the_bytes_that_the_format_says() {
    let hello = Hello {
        software: "x".into(),
        ..Hello::new(
            Role::Client { volume: atoll_core::VolumeId(3), session: atoll_core::SessionId(4) },
            Some(ClusterId(5)),
        )
    };
    let mut golden = vec![1, 0, 1, 0, 1];
    golden.extend_from_slice(&5u64.to_le_bytes());
    golden.push(2);
    golden.extend_from_slice(&3u64.to_le_bytes());
    golden.extend_from_slice(&4u64.to_le_bytes());
    golden.extend_from_slice(&[1, 0, 0, 0, b'x']);
    assert_eq!(hello.to_vec(), golden);

    let ok = HelloOk { software: "x".into(), ..HelloOk::new(ClusterId(5), DaemonId(6), 7) };
    let mut golden = vec![1, 0, 1, 0, 1, 0];
    golden.extend_from_slice(&5u64.to_le_bytes());
    golden.extend_from_slice(&6u64.to_le_bytes());
    golden.extend_from_slice(&[7, 0, 0, 0, 1, 0, 0, 0, b'x']);
    assert_eq!(ok.to_vec(), golden);
}

#[test]
fn lengths_are_refused_from_the_header_alone() {
    for (kind, at, max) in [
        (FrameKind::Reply, 16, META_BYTES_MAX),
        (FrameKind::Reply, 20, PAYLOAD_BYTES_MAX),
        (FrameKind::Hello, 16, HANDSHAKE_META_BYTES_MAX),
        (FrameKind::Hello, 20, 0),
    ] {
        let mut header: [u8; HEADER_BYTES] = encode(kind, 1, b"", b"")[..].try_into().unwrap();
        header[at..at + 4].copy_from_slice(&(max as u32).to_le_bytes());
        assert!(decode_header(&header).is_ok(), "{kind:?} may have {max}");
        for lie in [max as u32 + 1, u32::MAX] {
            header[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            let error = decode_header(&header).unwrap_err();
            assert!(matches!(error, FrameError::TooLong { .. }), "{error:?}");
        }
    }
}

#[test]
fn what_is_too_long_is_not_encoded() {
    let mut out = b"before".to_vec();
    let long = Raw(vec![0; META_BYTES_MAX + 1]);
    let result = encode_head(1, FrameKind::Reply, IslandId(0), 0, &long, &[], true, &mut out);
    assert!(matches!(result, Err(FrameError::TooLong { part: "meta", .. })));
    let payload = vec![0; PAYLOAD_BYTES_MAX + 1];
    let result = encode_head(1, FrameKind::Reply, IslandId(0), 0, &Raw(vec![]), &payload, true, &mut out);
    assert!(matches!(result, Err(FrameError::TooLong { part: "payload", .. })));
    assert_eq!(out, b"before");
}

#[test]
fn the_longest_frame_comes_through() {
    let (meta, payload) = (vec![7; META_BYTES_MAX], vec![9; PAYLOAD_BYTES_MAX]);
    let frames = read_all(&mut greeted(), &encode(FrameKind::Peer, 1, &meta, &payload)).unwrap();
    assert_eq!((&frames[0].meta[..], &frames[0].payload[..]), (&meta[..], &payload[..]));
}

#[test]
fn another_protocol_is_known_by_its_first_byte_and_another_version_by_its_number() {
    for greeting in
        [&b"G"[..], b"GET / HTTP/1.1\r\n\r\n", b"ATOM", b"SSH-2.0-OpenSSH_10.0 and more of it, far more"]
    {
        assert_eq!(read_all(&mut greeted(), greeting), Err(FrameError::NotAtoll));
    }
    let mut newer = encode(FrameKind::Request, 1, b"", b"");
    newer[4] = 9;
    let error = read_all(&mut greeted(), &newer).unwrap_err();
    assert_eq!(error, FrameError::Version { theirs: 9 });
    assert_eq!(error.to_string(), "it uses protocol version 9; this side speaks 1 to 1");
    newer[6] = 77;
    assert_eq!(read_all(&mut greeted(), &newer), Err(FrameError::Version { theirs: 9 }));
    newer[4] = 1;
    assert_eq!(read_all(&mut greeted(), &newer), Err(FrameError::UnknownKind { kind: 77 }));
}

#[test]
fn before_the_greeting_nothing_else_is_read() {
    let request = encode(FrameKind::Request, 1, b"", b"");
    let error = read_all(&mut FrameReader::new(true), &request).unwrap_err();
    assert_eq!(error, FrameError::Unexpected { kind: FrameKind::Request });
}

#[test]
fn a_payload_without_a_checksum_passes_only_where_none_is_asked_for() {
    let mut bytes = Vec::new();
    encode_head(1, FrameKind::Reply, IslandId(0), 0, &Raw(vec![]), b"body", false, &mut bytes).unwrap();
    assert_eq!(bytes[7] & FLAG_PAYLOAD_CHECKED, 0);
    bytes.extend_from_slice(b"body");
    assert_eq!(read_all(&mut greeted(), &bytes), Err(FrameError::PayloadUnchecked));
    let mut trusting = FrameReader::new(false);
    trusting.agree(1);
    assert_eq!(read_all(&mut trusting, &bytes).unwrap()[0].payload, Bytes::from_static(b"body"));
}

fn any_frame() -> impl Strategy<Value = (u64, Vec<u8>, Vec<u8>)> {
    let part = || {
        prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..100),
            1 => (any::<u8>(), 0usize..40_000).prop_map(|(byte, n)| vec![byte; n]),
        ]
    };
    (any::<u64>(), part(), part())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_portions(
        sent in proptest::collection::vec(any_frame(), 1..8),
        portions in proptest::collection::vec(1usize..50_000, 1..20),
    ) {
        let bytes: Vec<u8> = sent.iter().flat_map(|(id, m, p)| encode(FrameKind::Reply, *id, m, p)).collect();
        let mut reader = greeted();
        let mut got = Vec::new();
        let mut rest = &bytes[..];
        for portion in portions.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*portion).min(rest.len()));
            got.extend(read_all(&mut reader, now).unwrap());
            rest = later;
        }
        prop_assert!(reader.is_between_frames());
        let got: Vec<_> = got.iter().map(|f| (f.id, f.meta[..].to_vec(), f.payload[..].to_vec())).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn random_bytes_are_refused_or_wait_for_more(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!matches!(read_all(&mut greeted(), &bytes), Ok(frames) if !frames.is_empty()));
        // With the right front, every field behind it meets random values.
        let mut fronted = b"ATOL\x01\x00".to_vec();
        fronted.extend_from_slice(&bytes);
        prop_assert!(!matches!(read_all(&mut greeted(), &fronted), Ok(frames) if !frames.is_empty()));
    }

    #[test]
    fn a_changed_byte_never_makes_another_frame(
        sent in any_frame(), at in any::<prop::sample::Index>(), change in 1u8..,
    ) {
        let bytes = encode(FrameKind::Reply, sent.0, &sent.1, &sent.2);
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= change;
        let frames = read_all(&mut greeted(), &changed);
        prop_assert!(!matches!(&frames, Ok(f) if !f.is_empty()), "{:?}", frames);
    }

    #[test]
    fn greetings_of_random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        use atoll_core::Decode;
        let _ = Hello::from_slice(&bytes);
        let _ = HelloOk::from_slice(&bytes);
        let _ = atoll_rpc::Goodbye::from_slice(&bytes);
    }
}
