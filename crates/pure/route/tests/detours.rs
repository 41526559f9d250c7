//! What a client does that asks other islands for one that is away.

use atoll_core::{Ino, IslandId, Key, SessionId, Table};
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::{ClientOp, Outcome, Reply};
use atoll_route::{Config, OutgoingRequest, Route, RouteOut};
use bytes::Bytes;

/// Answers what attaches the session; the other requests.
fn attached(route: &mut Route<u32>, out: &mut RouteOut<u32>) -> Vec<OutgoingRequest> {
    let (attaching, others): (Vec<OutgoingRequest>, Vec<OutgoingRequest>) = std::mem::take(&mut out.send)
        .into_iter()
        .partition(|sent| matches!(sent.request.op, ClientOp::Attach { .. } | ClientOp::Dropped));
    for sent in attaching {
        let reply = Reply { vector: Vec::new(), outcome: Outcome::Attached { exclusive: false, power: 1 } };
        route.on_reply(0, sent.island, sent.id, reply, out);
    }
    others
}

/// A node that keeps several islands takes all of them along. One of them is back before the one that was asked.
#[test]
fn a_call_that_nobody_could_answer_asks_an_island_that_is_back_before_its_own() {
    let table = Table::new(3);
    let islands: Vec<IslandId> = (0..3).map(IslandId).collect();
    let owner = table.owner(Key(0));
    let config = Config {
        seed: 1,
        table,
        islands: islands.clone(),
        session: SessionId(7),
        mount: true,
        patience_ms: None,
    };
    let (mut route, mut out) = (Route::new(config), RouteOut::default());
    islands.iter().for_each(|island| route.reachable(*island, true, &mut out));
    attached(&mut route, &mut out);
    islands.iter().for_each(|island| route.reachable(*island, false, &mut out));
    if std::mem::take(&mut out.recall) {
        route.recalled(&mut out);
    }
    route.call(0, &Caller::ROOT, Op::GetAttr { ino: Ino::ROOT }, Bytes::new(), 1, &mut out);
    assert!(attached(&mut route, &mut out).is_empty(), "nobody is there");
    for back in islands.into_iter().filter(|island| *island != owner) {
        route.reachable(back, true, &mut out);
        assert!(attached(&mut route, &mut out).is_empty(), "its session is taken up first");
        let mut asked = Vec::new();
        while let Some(sent) = attached(&mut route, &mut out).first() {
            asked.push(sent.island);
            // It does not know.
            let reply = Reply { vector: Vec::new(), outcome: Outcome::Failed { errno: Errno::ENOENT } };
            route.on_reply(0, sent.island, sent.id, reply, &mut out);
        }
        assert!(asked.contains(&back) && !asked.contains(&owner), "{asked:?}");
        assert!(out.finished.is_empty(), "that proves nothing");
    }
    // Its own island answers it once, although it has waited there again and again.
    route.reachable(owner, true, &mut out);
    attached(&mut route, &mut out);
    let sent = attached(&mut route, &mut out);
    assert_eq!(sent.iter().map(|sent| sent.island).collect::<Vec<_>>(), [owner]);
}
