//! An island whose life changes, or that changes its primary: what an earlier life says late.

use atoll_core::{IslandId, Table};
use atoll_island::{Config, Effect, Event, Island, Now, PreviousEnd};
use atoll_proto::{PeerMessage, PeerOp};
use atoll_state::State;

const OTHER: IslandId = IslandId(1);

/// What an island says when another one greets it in this life.
fn says(island: &mut Island, incarnation: u32) -> usize {
    let message = PeerMessage { from: OTHER, incarnation, vector: Vec::new(), op: PeerOp::Hello };
    let mut out = Vec::new();
    island.handle(Now::default(), Event::Peer(message), &mut out);
    island.handle(Now::default(), Event::Tick { bytes_available: 1 << 40 }, &mut out);
    out.iter().filter(|effect| matches!(effect, Effect::Send(OTHER, _))).count()
}

/// A deposed primary is heard first, then the next one, and then the first one again.
#[test]
fn what_an_earlier_life_says_late_is_not_heard() {
    let all = vec![IslandId(0), OTHER];
    let config = Config::new(IslandId(0), 1, Table::new(2), all);
    let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
    let mut out = Vec::new();
    island.handle(Now::default(), Event::PeerReachable { island: OTHER, up: true }, &mut out);
    out.clear();
    for seq in 1..=island.state().seq() {
        island.handle(Now::default(), Event::Committed(seq), &mut out);
        island.handle(Now::default(), Event::Synced(seq), &mut out);
    }
    assert!(says(&mut island, 7) > 0, "nothing later is known");
    assert!(says(&mut island, 8) > 0);
    assert_eq!(says(&mut island, 7), 0);
    assert!(says(&mut island, 8) > 0);
}
