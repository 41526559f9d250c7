//! What a client does when a direct link takes the place of one that another node has passed on.

use std::collections::BTreeSet;

use atoll_core::{Ino, IslandId, Key, Name, SessionId, Table};
use atoll_posix::{Caller, Op};
use atoll_proto::{ClientOp, Outcome, Reply};
use atoll_route::{Config, OutgoingRequest, Route, RouteOut};
use bytes::Bytes;

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

#[test]
fn what_is_under_way_on_a_link_that_is_replaced_is_asked_again_there_and_nobody_else_is() {
    let table = Table::new(2);
    let (owner, islands) = (table.owner(Key(0)), vec![IslandId(0), IslandId(1)]);
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
    // A stat: while the owner is away, it is answered from another island's skeleton.
    let stat = Op::GetAttr { ino: Ino::ROOT };
    let make = Op::Mkdir { dir: Ino::ROOT, name: Name::new(b"d").unwrap(), mode: 0o755, umask: 0 };
    for op in [stat, make] {
        route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut out);
    }
    let first: Vec<(u64, u64)> =
        std::mem::take(&mut out.send).iter().map(|sent| (sent.id, sent.request.seq)).collect();
    assert_eq!(first.len(), 2);
    route.replaced(owner, &mut out);
    let asked: BTreeSet<IslandId> = out.send.iter().map(|sent| sent.island).collect();
    assert_eq!(asked, BTreeSet::from([owner]), "its session is taken up again first");
    assert!(attached(&mut route, &mut out).is_empty());
    let again = attached(&mut route, &mut out);
    assert!(again.iter().all(|sent| sent.island == owner), "{again:?}");
    let numbers: Vec<(u64, u64)> = again.iter().map(|sent| (sent.id, sent.request.seq)).collect();
    assert_eq!(numbers, first, "with the same numbers, so that nothing is done twice");
    assert!(out.finished.is_empty());
}
