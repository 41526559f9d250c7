//! What an `fsync` says after a power cut, with the island played by the test: its answers may come between the
//! beginning and the end of an `fsync`.

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_posix::{Answer, Caller, Errno, Op};
use atoll_proto::{ClientOp, Lease, MayKeep, Outcome, Reply};
use atoll_route::{Config, Route, RouteOut};
use bytes::Bytes;

const ISLAND: IslandId = IslandId(0);
const DONE: Outcome = Outcome::Ok { answer: Answer::Done, keys: Vec::new() };

struct Client {
    route: Route<u32>,
    out: RouteOut<u32>,
    power: u32,
}

impl Client {
    fn new() -> Self {
        let config = Config {
            seed: 1,
            table: Table::new(1),
            islands: vec![ISLAND],
            session: SessionId(7),
            mount: true,
            keeps: true,
            patience_ms: None,
            scope: None,
        };
        let mut client = Self { route: Route::new(config), out: RouteOut::default(), power: 0 };
        client.cut();
        client
    }

    /// The island loses its power, if it had any, and is back.
    fn cut(&mut self) {
        self.power += 1;
        self.route.reachable(ISLAND, false, &mut self.out);
        self.route.reachable(ISLAND, true, &mut self.out);
        for sent in std::mem::take(&mut self.out.send) {
            if matches!(sent.request.op, ClientOp::Attach { .. } | ClientOp::Dropped) {
                self.reply(sent.id, Outcome::Attached { lease: Lease::No, power: self.power });
            }
        }
    }

    fn reply(&mut self, id: u64, outcome: Outcome) {
        let reply = Reply { vector: Vec::new(), may_keep: MayKeep::Yes, outcome };
        self.route.on_reply(0, ISLAND, id, reply, &mut self.out);
    }

    fn call(&mut self, op: Op) -> u64 {
        self.route.call(0, &Caller::ROOT, op, Bytes::new(), 1, &mut self.out)
    }

    /// What the call ends with when it is answered.
    fn done(&mut self, id: u64) -> Option<Errno> {
        self.reply(id, DONE);
        let mut ended = self.out.finished.drain(..);
        ended.next_back().expect("it ends").result.err()
    }

    fn change(&mut self) {
        let id = self.call(Op::Unlink { dir: Ino::ROOT, name: Name::new(b"x").unwrap() });
        assert_eq!(self.done(id), None);
    }

    fn fsync(&mut self) -> Option<Errno> {
        let id = self.call(SYNC);
        self.done(id)
    }
}

const SYNC: Op = Op::FsyncDir { dir: Ino::ROOT };

#[test]
fn an_fsync_fails_once_if_a_change_before_it_may_be_lost() {
    let mut client = Client::new();
    client.change();
    client.cut();
    assert_eq!([client.fsync(), client.fsync()], [Some(Errno::EIO), None]);
    client.change();
    assert_eq!(client.fsync(), None);
    client.cut();
    assert_eq!(client.fsync(), None, "it was synced");
}

#[test]
fn an_fsync_under_way_does_not_cover_what_was_answered_meanwhile() {
    let mut client = Client::new();
    let sync = client.call(SYNC);
    client.change();
    assert_eq!(client.done(sync), None);
    client.cut();
    assert_eq!([client.fsync(), client.fsync()], [Some(Errno::EIO), None]);
}

#[test]
fn an_fsync_under_way_that_fails_has_said_it() {
    let mut client = Client::new();
    client.change();
    client.cut();
    let sync = client.call(SYNC);
    client.change();
    assert_eq!(client.done(sync), Some(Errno::EIO));
    assert_eq!(client.fsync(), None, "nothing was lost since");
}
