//! Files that move to other islands while something about them is under way, with the islands played by the test.

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::{ClientOp, Notice, Outcome, Reply};
use atoll_route::{Config, Route, RouteOut, Sent};
use bytes::Bytes;

/// Owns all directories.
const OWNER: IslandId = IslandId(0);

fn reply(route: &mut Route<u32>, out: &mut RouteOut<u32>, id: u64, outcome: Outcome) {
    route.on_reply(0, OWNER, id, Reply { vector: Vec::new(), outcome }, out);
}

/// A client that is attached to the owner.
fn client() -> (Route<u32>, RouteOut<u32>) {
    let mut route = Route::new(Config {
        seed: 1,
        table: Table::new(1),
        islands: vec![OWNER],
        session: SessionId(7),
        mount: true,
        patience_ms: None,
    });
    let mut out = RouteOut::default();
    route.reachable(OWNER, true, &mut out);
    for sent in std::mem::take(&mut out.send) {
        reply(&mut route, &mut out, sent.id, Outcome::Attached { sole: false, incarnation: 1 });
    }
    out.send.clear();
    (route, out)
}

/// The link that was sent: its number, its number in the session, and the home that it names.
fn linked(out: &mut RouteOut<u32>, ino: Ino) -> Option<(u64, u64, IslandId)> {
    out.send.drain(..).find_map(|Sent { id, request, .. }| match request.op {
        ClientOp::Link { home, .. } => Some((id, request.seq, home)),
        ClientOp::Fs { op: Op::Link { .. } } => Some((id, request.seq, ino.minted_by())),
        _ => None,
    })
}

#[test]
fn a_link_that_names_a_home_from_before_a_move_is_asked_again_with_the_new_one() {
    let (mut route, mut out) = client();
    let ino = Ino::mint(IslandId(2), 77);
    let op = Op::Link { ino, dir: Ino::ROOT, name: Name::new(b"x").unwrap() };
    route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut out);
    let (id, first, home) = linked(&mut out, ino).expect("the owner of the name is asked");
    assert_eq!(home, IslandId(2));
    // The owner waits for something. Meanwhile the file moves, and its old home forgets it, since all
    // clients say that they know.
    let moved = Notice::Moved { ino, to: IslandId(1), moves: 1 };
    route.on_notice(IslandId(2), moved, &mut out);
    let gone = || Outcome::Failed { errno: Errno::ENOENT };
    reply(&mut route, &mut out, id, gone());
    let (id, second, home) = linked(&mut out, ino).expect("it may be at its new home");
    assert_eq!(home, IslandId(1));
    assert!(second > first, "the first one has its result");
    assert!(out.finished.is_empty());
    reply(&mut route, &mut out, id, gone());
    assert_eq!(out.finished.len(), 1, "nothing is newer than that");
}
