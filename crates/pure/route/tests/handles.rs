//! How a file is found of which only a handle is known, and what is asked for callers for whom nobody has walked; with
//! islands played by the test.

mod common;

use atoll_core::{Ino, IslandId, Name};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Op, RequestOptions};
use atoll_proto::{ClientOp, FileHandle, Outcome};
use atoll_route::{OutgoingRequest, RouteOut};
use bytes::Bytes;
use common::Client;

impl Client {
    fn find(&mut self, handle: FileHandle) -> OutgoingRequest {
        self.route.find(0, &handle, 1, &mut self.out).unwrap();
        self.sent()
    }

    fn sent(&mut self) -> OutgoingRequest {
        self.route.check();
        self.out.send.pop().expect("somebody is asked")
    }

    fn ended(&mut self) -> Option<Result<Answer, Errno>> {
        self.route.check();
        self.out.finished.pop().map(|finished| finished.result)
    }
}

const STALE: Outcome = Outcome::Failed { errno: Errno::ESTALE };

fn attr(ino: Ino) -> Outcome {
    Outcome::Ok { answer: Answer::Attr { attr: Attr::blank(ino, Kind::Regular) }, keys: Vec::new() }
}

fn scene() -> (Client, Ino, FileHandle) {
    let ino = Ino::mint(IslandId(1), 77);
    (Client::new(3, Some(5_000)), ino, FileHandle::File { ino, home: IslandId(2) })
}

#[test]
fn a_file_is_looked_for_at_its_home_then_where_it_was_made_then_everywhere() {
    let (mut client, ino, handle) = scene();
    let mut sent = client.find(handle);
    for island in [2, 1] {
        assert_eq!(sent.island, IslandId(island));
        client.reply(&sent, STALE);
        sent = client.sent();
    }
    assert_eq!(sent.island, IslandId(0));
    client.reply(&sent, attr(ino));
    assert!(matches!(client.ended(), Some(Ok(Answer::Attr { .. }))));
    client.route.call(0, &Caller::ROOT, Op::GetAttr { ino }, Bytes::new(), 2, &mut client.out);
    assert_eq!(client.sent().island, IslandId(0), "it is known from here on where it is");
    assert_eq!(client.route.handle_of(ino, Kind::Regular), Some(FileHandle::File { ino, home: IslandId(0) }));
}

#[test]
fn nobody_is_told_that_a_file_is_gone_while_an_island_is_away_that_might_have_it() {
    let (mut client, _, handle) = scene();
    client.route.reachable(IslandId(0), false, &mut client.out);
    for _ in 0..2 {
        let sent = if client.out.send.is_empty() { client.find(handle) } else { client.sent() };
        client.reply(&sent, STALE);
    }
    assert!(client.out.send.is_empty() && client.ended().is_none());
    client.route.tick(5_001, &mut client.out);
    assert_eq!(client.ended(), Some(Err(Errno::EIO)));
}

#[test]
fn a_file_that_all_islands_do_not_have_is_gone() {
    let (mut client, _, handle) = scene();
    let mut sent = client.find(handle);
    for _ in 0..2 {
        client.reply(&sent, STALE);
        sent = client.sent();
    }
    client.reply(&sent, STALE);
    assert_eq!(client.ended(), Some(Err(Errno::ESTALE)));
}

#[test]
fn who_forwards_a_file_ends_the_search_for_it() {
    let (mut client, ino, handle) = scene();
    let sent = client.find(handle);
    client.reply(&sent, Outcome::Moved { to: IslandId(0), moves: 3 });
    let sent = client.sent();
    assert_eq!(sent.island, IslandId(0));
    client.reply(&sent, attr(ino));
    assert!(matches!(client.ended(), Some(Ok(_))));
}

#[test]
fn what_is_asked_for_an_unchecked_caller_is_judged_by_the_island_that_decides_and_by_no_skeleton() {
    let (mut client, ..) = scene();
    let options = RequestOptions { unchecked: true, attributes: false };
    let op = Op::Lookup { dir: Ino::ROOT, name: Name::new(b"f").unwrap() };
    let ask = |client: &mut Client, op: Op| {
        client.route.call_with_options(0, &Caller::ROOT, options, op, Bytes::new(), 1, &mut client.out)
    };
    ask(&mut client, op.clone());
    let sent = client.sent();
    assert_eq!(sent.request.op, ClientOp::WithOptions { options, op: op.clone(), key: None, home: None });
    // What needs nothing more is asked as ever.
    ask(&mut client, Op::GetAttr { ino: Ino::ROOT });
    assert!(matches!(client.sent().request.op, ClientOp::Fs { .. }));
    client.route.reachable(sent.island, false, &mut client.out);
    client.out = RouteOut::default();
    ask(&mut client, op);
    assert!(client.out.send.is_empty(), "others would know the directory, and not judge");
}
