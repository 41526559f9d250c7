//! Islands that lie: every field of every answer is set to extreme values, and given as the answer to every kind of
//! question. The client goes on, its calls end, and what cannot be is not believed.

#[path = "../../proto/tests/samples/mod.rs"]
mod samples;

use atoll_core::{Decode, Ino, IslandId, SessionId, Table, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_proto::{ClientOp, Lease, MayKeep, Notice, Outcome, Reply, Request};
use atoll_route::{Config, Route, RouteOut};
use bytes::Bytes;

const ISLANDS: [IslandId; 3] = [IslandId(0), IslandId(1), IslandId(2)];
/// What bytes of a field are replaced by.
const EXTREMES: [u8; 5] = [0x00, 0x01, 0x7f, 0x80, 0xff];
/// How many at once: integers have so many.
const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// The encoded values of one golden file.
fn encoded(file: &str) -> Vec<(String, Vec<u8>)> {
    let all = samples::all();
    all.into_iter().find(|s| s.file == file).unwrap_or_else(|| panic!("no file {file}")).samples
}

/// Everything that bytes of a message can be made to be by setting one field, and that is still such a message.
fn lies<T: Decode>(honest: &[u8]) -> Vec<T> {
    let mut found = Vec::new();
    for at in 0..honest.len() {
        for width in WIDTHS.into_iter().filter(|width| at + width <= honest.len()) {
            for extreme in EXTREMES {
                let mut bytes = honest.to_vec();
                bytes[at..at + width].fill(extreme);
                found.extend(T::from_slice(&bytes).ok());
            }
        }
    }
    found
}

struct Client {
    route: Route<u64>,
    out: RouteOut<u64>,
    now_ms: u64,
    token: u64,
    misfits: usize,
}

impl Client {
    fn new() -> Self {
        let config = Config {
            seed: 1,
            table: Table::new(3),
            islands: ISLANDS.to_vec(),
            session: SessionId(7),
            mount: true,
            keeps: true,
            patience_ms: Some(10_000),
            scope: None,
        };
        let route = Route::new(config);
        let mut client = Self { route, out: RouteOut::default(), now_ms: 1, token: 0, misfits: 0 };
        for island in ISLANDS {
            client.route.reachable(island, true, &mut client.out);
        }
        client.honest();
        client
    }

    /// Everything that is asked is answered as an island does that can do nothing.
    fn honest(&mut self) {
        for _ in 0..200 {
            for sent in std::mem::take(&mut self.out.send) {
                let outcome = match sent.request.op {
                    ClientOp::Attach { .. } | ClientOp::Renew | ClientOp::Lease | ClientOp::Dropped => {
                        Outcome::Attached { lease: Lease::No, power: 1 }
                    }
                    ClientOp::Release { .. } | ClientOp::Detach | ClientOp::Cancel { .. } => {
                        Outcome::Ok { answer: Answer::Done, keys: Vec::new() }
                    }
                    _ => Outcome::Failed { errno: Errno::EIO },
                };
                self.reply(
                    sent.island,
                    sent.id,
                    Reply { vector: Vec::new(), may_keep: MayKeep::Yes, outcome },
                );
            }
            if std::mem::take(&mut self.out.recall) {
                self.route.recalled(&mut self.out);
            }
            self.now_ms += 100;
            self.route.tick(self.now_ms, &mut self.out);
        }
    }

    fn reply(&mut self, island: IslandId, id: u64, reply: Reply) {
        self.route.on_reply(self.now_ms, island, id, reply, &mut self.out);
        self.misfits += std::mem::take(&mut self.out.misfits).len();
    }

    /// Calls are made, their answers are `lie`, and then honest ones: all calls have ended.
    fn hears(&mut self, begin: impl Fn(&mut Self), lie: &Reply, about: &str) {
        begin(self);
        let token = self.token;
        for sent in std::mem::take(&mut self.out.send) {
            self.reply(sent.island, sent.id, lie.clone());
        }
        self.honest();
        let ended = std::mem::take(&mut self.out.finished);
        assert!(ended.iter().any(|f| f.token == token), "the call never ends: {about}: {lie:?}");
        assert!(self.route.is_ready(), "no island is attached to any more: {about}: {lie:?}");
    }
}

#[test]
fn every_call_ends_whatever_it_is_answered() {
    let path = VolumePath::parse(b"/a/b/c").unwrap();
    let requests: Vec<Request> =
        encoded("request").iter().filter_map(|(_, bytes)| Request::from_slice(bytes).ok()).collect();
    let ops: Vec<_> = requests
        .into_iter()
        .filter_map(|request| match request.op {
            ClientOp::Fs { op } => Some(op),
            _ => None,
        })
        .collect();
    assert!(ops.len() >= 20, "every operation is among the samples");
    let mut client = Client::new();
    let (mut told, mut at) = (0, 0);
    for (name, honest) in encoded("reply") {
        for lie in lies::<Reply>(&honest) {
            // Each lie to one operation, in turn, so that each field meets many of them; and to a walk.
            at += 1;
            let op = ops[at % ops.len()].clone();
            let about = format!("{name} to {op:?}");
            let call = |client: &mut Client| {
                client.token += 1;
                let (op, data) = (op.clone(), Bytes::from_static(b"data"));
                client.route.call(client.now_ms, &Caller::ROOT, op, data, client.token, &mut client.out);
            };
            client.hears(call, &lie, &about);
            if at.is_multiple_of(7) {
                let walk = |client: &mut Client| {
                    client.token += 1;
                    let (now_ms, token) = (client.now_ms, client.token);
                    client.route.walk(now_ms, &Caller::ROOT, path.clone(), token, &mut client.out);
                };
                client.hears(walk, &lie, &format!("{name} to a walk"));
            }
            told += 1;
        }
    }
    assert!(told > 10_000, "only {told} lies");
    assert!(client.misfits > told / 4, "{} of {told} lies were not believed", client.misfits);
}

#[test]
fn signs_of_life_are_given_again_when_their_answer_is_none() {
    let mut client = Client::new();
    for (_, honest) in encoded("reply") {
        for lie in lies::<Reply>(&honest).into_iter().step_by(17) {
            client.now_ms += 3_000;
            client.route.tick(client.now_ms, &mut client.out);
            for sent in std::mem::take(&mut client.out.send) {
                client.reply(sent.island, sent.id, lie.clone());
            }
            for island in ISLANDS {
                client.route.reachable(island, false, &mut client.out);
                client.route.reachable(island, true, &mut client.out);
            }
            for sent in std::mem::take(&mut client.out.send) {
                client.reply(sent.island, sent.id, lie.clone());
            }
            client.honest();
            assert!(client.route.is_ready(), "{lie:?}");
        }
    }
}

#[test]
fn notices_of_anything_do_no_harm() {
    let mut client = Client::new();
    for (_, honest) in encoded("notice") {
        for lie in lies::<Notice>(&honest) {
            client.route.on_notice(ISLANDS[0], lie, &mut client.out);
            let unknown: Vec<Ino> = client.out.orphans.drain(..).chain(client.out.moved.drain(..)).collect();
            client.route.forget(client.now_ms, &unknown, &mut client.out);
        }
    }
    client.honest();
    assert!(client.route.is_ready());
}

#[test]
fn a_call_that_is_sent_on_without_end_ends_with_an_error() {
    let file = Ino::mint(IslandId(1), 9);
    let lies: [fn(u64, Ino) -> Outcome; 4] = [
        |n, _| Outcome::Moved { to: ISLANDS[(n % 3) as usize], moves: n as u32 },
        |_, _| Outcome::StaleTable { table: Table::new(3) },
        |n, ino| Outcome::Elsewhere { ino, kind: Kind::Regular, home: ISLANDS[(n % 3) as usize] },
        |n, ino| Outcome::DoneTo { ino, kind: Kind::Regular, home: ISLANDS[(n % 3) as usize] },
    ];
    for lie in lies {
        let mut client = Client::new();
        client.token += 1;
        let (token, op) = (client.token, Op::GetAttr { ino: file });
        client.route.call(client.now_ms, &Caller::ROOT, op, Bytes::new(), token, &mut client.out);
        let mut asked = 0;
        for _ in 0..100_000 {
            for sent in std::mem::take(&mut client.out.send) {
                let outcome = match sent.request.op {
                    ClientOp::Fs { .. } => {
                        asked += 1;
                        lie(asked, file)
                    }
                    _ => Outcome::Attached { lease: Lease::No, power: 1 },
                };
                client.reply(
                    sent.island,
                    sent.id,
                    Reply { vector: Vec::new(), may_keep: MayKeep::Yes, outcome },
                );
            }
            if asked > 1_000 || !client.out.finished.is_empty() {
                break;
            }
            if client.out.send.is_empty() {
                client.now_ms += 10;
                client.route.tick(client.now_ms, &mut client.out);
            }
        }
        let ended = client.out.finished.iter().find(|finished| finished.token == token);
        let ended = ended.unwrap_or_else(|| panic!("{asked} times: {:?}", lie(1, file)));
        assert_eq!(ended.result.as_ref().err(), Some(&Errno::EIO), "{:?}", lie(1, file));
        assert!(asked <= 40 && client.misfits > 0, "{asked} times: {:?}", lie(1, file));
    }
}
