//! What the members of a group tell each other.

use atoll_core::{IslandId, NodeId, Position, VolumeId};
use atoll_proto::{Beacon, BodyBlocks, EpochTable, FetchedPiece, GroupMessage, Promised};

use super::{FILE, Samples, samples};

const fn position(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

fn messages() -> Vec<(&'static str, GroupMessage)> {
    let ends = vec![position(6, 105), position(7, 110)];
    let epochs = EpochTable { base: position(3, 50), ends: ends.clone() };
    vec![
        (
            "append",
            GroupMessage::Append {
                epoch: 7,
                after: position(6, 100),
                ends,
                commit: 99,
                synced: 90,
                keep: 60,
            },
        ),
        (
            "has",
            GroupMessage::Has {
                epoch: 7,
                tenure: 4,
                written: 110,
                synced: 100,
                room: 1 << 30,
                stuck: true,
                differs: 3,
            },
        ),
        ("sync to", GroupMessage::SyncTo { epoch: 7, number: 12, seq: 110, bodies: vec![FILE] }),
        ("synced to", GroupMessage::SyncedTo { epoch: 7, tenure: 4, number: 12, seq: 110 }),
        ("join", GroupMessage::Join { tenure: 4, checkpoint: 80, epochs }),
        ("released", GroupMessage::Released { epoch: 7, common: Some(position(6, 105)) }),
        ("refused", GroupMessage::Refused { epoch: 8 }),
        (
            "standing",
            GroupMessage::Standing { last: position(7, 110), tenure: 4, void: true, cut: true, asks: false },
        ),
        ("resign", GroupMessage::Resign { epoch: 7, to: Some(NodeId(2)), last: position(7, 110) }),
        ("halted", GroupMessage::Halted { epoch: 7 }),
        (
            "fetch",
            GroupMessage::Fetch { number: 5, blocks: vec![BodyBlocks { ino: FILE, first: 16, count: 2 }] },
        ),
        (
            "fetched",
            GroupMessage::Fetched {
                epoch: 7,
                number: 5,
                pieces: vec![FetchedPiece { len: 8_192, damaged: false }],
            },
        ),
        ("fill from", GroupMessage::FillFrom { at: position(6, 100), after: b"i1".to_vec() }),
        ("rows", GroupMessage::Rows { epoch: 7, at: position(6, 100), after: b"i1".to_vec(), last: true }),
        ("weigh", GroupMessage::Weigh),
        ("weight", GroupMessage::Weight { epoch: 7, files: 300, bytes: 1 << 40 }),
    ]
}

pub fn all() -> Vec<Samples> {
    let island = |epoch| (VolumeId(7), (IslandId(3), epoch));
    vec![
        samples("group_message", 1..=16, messages()),
        samples("beacon", [], vec![("beacon", Beacon { token: 9, leads: vec![island(7)] })]),
        samples("promised", [], vec![("promised", Promised { token: 9, refused: vec![island(8)] })]),
    ]
}
