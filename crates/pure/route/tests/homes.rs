//! Where calls for files go that have moved, with islands played by the test: what they tell may come in
//! another order than they told it.

mod common;

use atoll_core::{Ino, IslandId, Key, Name, Table, Time};
use atoll_posix::{Answer, Attr, Caller, DirEntry, Errno, Kind, NamedObject, Op};
use atoll_proto::{ClientOp, Notice, Outcome};
use atoll_route::OutgoingRequest;
use bytes::Bytes;
use common::Client;

impl Client {
    fn call(&mut self, op: Op) -> OutgoingRequest {
        self.route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut self.out);
        self.out.send.pop().expect("it is sent")
    }
}

/// A file that was made `there`, with a name in the root, which is owned `here`.
struct Scene {
    client: Client,
    here: IslandId,
    there: IslandId,
    ino: Ino,
}

impl Scene {
    fn new() -> Self {
        let here = Table::new(2).owner(Key(0));
        let there = IslandId(1 - here.0);
        Self { client: Client::new(2, None), here, there, ino: Ino::mint(there, 77) }
    }
}

fn lookup() -> Op {
    Op::Lookup { dir: Ino::ROOT, name: Name::new(b"f").unwrap() }
}

/// Its home is the island that says so.
fn found(ino: Ino) -> Outcome {
    Outcome::Ok { answer: Answer::Found { found: told(ino) }, keys: Vec::new() }
}

fn told(ino: Ino) -> NamedObject {
    let (kind, time) = (Kind::Regular, Time::default());
    let (mode, nlink, uid, gid, rdev, size, blocks) = (0o644, 1, 0, 0, 0, 0, 0);
    let (atime, mtime, ctime, btime) = (time, time, time, time);
    let attr = Attr { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime };
    NamedObject { attr, attr_current: true }
}

#[test]
fn a_lookup_that_was_answered_before_the_file_moved_does_not_lead_back_when_it_is_heard_after() {
    let Scene { mut client, here, there, ino } = Scene::new();
    // It was made there, and has followed its name.
    let first = client.call(lookup());
    client.reply(&first, found(ino));
    assert_eq!(client.call(Op::GetAttr { ino }).island, here);
    let second = client.call(lookup());
    client.route.on_notice(here, Notice::Moved { ino, to: there, moves: 2 }, &mut client.out);
    client.reply(&second, found(ino));
    assert_eq!(client.call(Op::GetAttr { ino }).island, there);
}

#[test]
fn an_island_that_says_where_a_file_has_gone_is_not_asked_again() {
    let Scene { mut client, here, there, ino } = Scene::new();
    client.route.on_notice(here, Notice::Moved { ino, to: there, moves: 2 }, &mut client.out);
    let first = client.call(lookup());
    client.reply(&first, found(ino));
    let asked = client.call(Op::GetAttr { ino });
    assert_eq!(asked.island, here);
    client.reply(&asked, Outcome::Moved { to: there, moves: 2 });
    let again = client.out.send.pop().expect("it is asked again");
    assert_eq!((again.island, again.id), (there, asked.id));
}

#[test]
fn a_link_that_names_a_home_from_before_a_move_is_asked_again_with_the_new_one() {
    let Scene { mut client, here, there, ino } = Scene::new();
    let first = client.call(Op::Link { ino, dir: Ino::ROOT, name: Name::new(b"x").unwrap() });
    assert!(matches!(first.request.op, ClientOp::Fs { .. }), "the home that follows from the id is meant");
    // The owner waits for something. Meanwhile the file moves, and its old home forgets it, since all
    // clients say that they know.
    client.route.on_notice(there, Notice::Moved { ino, to: here, moves: 1 }, &mut client.out);
    let gone = || Outcome::Failed { errno: Errno::ESTALE };
    client.reply(&first, gone());
    let again = client.out.send.pop().expect("it may be at its new home");
    assert!(matches!(again.request.op, ClientOp::Link { home, .. } if home == here), "{:?}", again.request);
    assert!(again.request.seq > first.request.seq, "the first one has its result");
    assert!(client.out.finished.is_empty());
    client.reply(&again, gone());
    assert_eq!(client.out.finished.len(), 1, "nothing is newer than that");
}

#[test]
fn a_link_that_is_put_off_asks_the_home_that_is_known_where_the_file_is() {
    let Scene { mut client, here, there, ino } = Scene::new();
    let first = client.call(Op::Link { ino, dir: Ino::ROOT, name: Name::new(b"x").unwrap() });
    client.reply(&first, Outcome::NotNow);
    let asked = client.out.send.pop().expect("its home is asked");
    assert_eq!((asked.island, &asked.request.op), (there, &ClientOp::Fs { op: Op::GetAttr { ino } }));
    // An island that is away is not asked: nothing would end that.
    client.route.reachable(there, false, &mut client.out);
    client.route.tick(100, &mut client.out);
    let again = client.out.send.pop().expect("it is asked again");
    client.reply(&again, Outcome::NotNow);
    assert!(client.out.send.is_empty());
    client.route.reachable(there, true, &mut client.out);
    client.out.send.clear();
    client.route.on_notice(there, Notice::Moved { ino, to: here, moves: 1 }, &mut client.out);
    client.out.send.clear();
    client.route.tick(200, &mut client.out);
    let again = client.out.send.pop().expect("it is asked again");
    assert!(matches!(again.request.op, ClientOp::Link { home, .. } if home == here), "{:?}", again.request);
}

#[test]
fn a_file_that_a_listing_tells_of_is_asked_for_where_the_listing_found_it() {
    let Scene { mut client, here, there, ino } = Scene::new();
    let list = Op::ReadDir { dir: Ino::ROOT, after: 0, bytes: 4096, plus: true };
    // Its attributes are told by its home alone; of what is homed elsewhere a listing tells only the number.
    for (found, home) in [(None, there), (Some(told(ino)), here)] {
        let asked = client.call(list.clone());
        let name = Name::new(b"f").unwrap();
        let entries = vec![DirEntry { name, ino, kind: Kind::Regular, cookie: 100, found }];
        let answer = Answer::Entries { entries, eof: true };
        client.reply(&asked, Outcome::Ok { answer, keys: Vec::new() });
        assert_eq!(client.call(Op::GetAttr { ino }).island, home);
    }
}
