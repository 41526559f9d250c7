//! One island's part of a listing: who is held, for how long, and when a cut is refused.

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{BodyFault, BodyOpId, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_proto::{ClientOp, CutLost, ListedName, Outcome, Request};
use atoll_state::State;
use bytes::Bytes;

/// Milliseconds for which an island is held at most, and in which it is not held again.
const HOLD_MS: u64 = 300;
const REST_MS: u64 = 100;

/// An island alone, that writes and syncs at once.
struct World {
    island: Island,
    ms: u64,
    next: u64,
    /// Answers, with the numbers of their requests.
    replies: Vec<(u64, Outcome)>,
    /// Work on bodies that is held back.
    bodies: Vec<BodyOpId>,
}

impl World {
    fn new() -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let island = Island::new(config, State::new(1), PreviousEnd::PowerCut, Now::default());
        let mut world = Self { island, ms: 0, next: 0, replies: Vec::new(), bodies: Vec::new() };
        world.pass(1_000);
        for session in [1, 2] {
            world.ask(session, ClientOp::Attach { mount: false });
        }
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        let now = Now { wall: Time::default(), ms: self.ms };
        self.island.handle(now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => self.replies.push((id, reply.outcome)),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(Event::Loaded { load, generation, loaded });
                }
                // All rows stay in memory.
                Effect::Checkpoint { .. } => self.event(Event::CheckpointDone),
                Effect::Body(ticket, _) => self.bodies.push(ticket),
                other => panic!("{other:?}"),
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    /// Sends a request of a session over its own link. Its number.
    fn send(&mut self, session: u64, op: ClientOp) -> u64 {
        self.next += 1;
        let changes = matches!(op, ClientOp::Fs { op: Op::Create { .. } | Op::Write { .. } });
        let bytes: &[u8] =
            if matches!(op, ClientOp::Fs { op: Op::Write { .. } }) { &[7; 100_000] } else { &[] };
        let request = Request {
            session: SessionId(session),
            seq: if changes { self.next } else { 0 },
            acked: 0,
            table: self.island.config().table.version(),
            vector: Vec::new(),
            caller: Caller::ROOT,
            op,
        };
        let (link, id) = (LinkId(session), self.next);
        self.event(Event::Request { link, id, request, data: Bytes::from_static(bytes) });
        id
    }

    /// What a request was answered, if it was.
    fn answer(&self, id: u64) -> Option<&Outcome> {
        self.replies.iter().find(|(of, _)| *of == id).map(|(_, outcome)| outcome)
    }

    fn ask(&mut self, session: u64, op: ClientOp) -> Outcome {
        let id = self.send(session, op);
        self.answer(id).cloned().expect("it is answered at once")
    }

    fn hold(&mut self, session: u64, cut: u64, again: bool) -> bool {
        match self.ask(session, ClientOp::Hold { cut, again }) {
            Outcome::Held { quiet, .. } => quiet,
            other => panic!("{other:?}"),
        }
    }

    fn cut(&mut self, session: u64, cut: u64) -> bool {
        self.ask(session, ClientOp::Cut { cut }) == Outcome::CutMade { made: true }
    }

    fn listed(&mut self, session: u64, cut: u64) -> Result<Vec<ListedName>, CutLost> {
        match self.ask(session, ClientOp::ListAt { cut, dir: Ino::ROOT, after: 0 }) {
            Outcome::ListedAt { names, next: None, attr: Some(_) } => Ok(names),
            Outcome::CutLost { why } => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, name: &str) -> u64 {
        let (name, target) = (Name::new(name.as_bytes()).unwrap(), Bytes::new());
        let (dir, kind) = (Ino::ROOT, Kind::Regular);
        let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
        self.send(2, ClientOp::Fs { op })
    }

    fn is_made(&self, id: u64) -> bool {
        matches!(self.answer(id), Some(Outcome::Ok { answer: Answer::Found { .. }, .. }))
    }
}

#[test]
fn changes_wait_for_the_cut_and_are_not_in_it() {
    let mut world = World::new();
    let before = world.create("before");
    assert!(world.is_made(before) && world.hold(1, 5, false));
    let after = world.create("after");
    assert!(world.answer(after).is_none(), "it waits");
    let look = ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } };
    assert!(matches!(world.ask(2, look), Outcome::Ok { .. }), "who only looks does not");
    assert!(world.hold(1, 5, true) && world.cut(1, 5));
    assert!(world.is_made(after), "it goes on at once");
    let names = world.listed(1, 5).unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(names[0].name.as_bytes(), b"before");
    assert!(world.cut(1, 5), "a repetition is answered as the first");
    assert!(matches!(world.ask(1, ClientOp::EndCut { cut: 5 }), Outcome::Ok { .. }));
    assert_eq!(world.listed(1, 5), Err(CutLost::Unknown));
}

#[test]
fn a_hold_ends_by_itself_and_then_there_is_no_cut() {
    let mut world = World::new();
    assert!(world.hold(1, 5, false) && world.hold(1, 5, true));
    let waits = world.create("waits");
    world.pass(HOLD_MS - 1);
    assert!(world.answer(waits).is_none());
    world.pass(1);
    assert!(world.is_made(waits));
    assert!(!world.cut(1, 5), "something has changed since");
    assert!(!world.hold(1, 5, true), "nor can it be taken up again");
    assert!(!world.hold(1, 6, false), "those who waited come first");
    world.pass(REST_MS);
    assert!(world.hold(1, 6, false));
    assert!(!world.cut(1, 6), "it was not quiet twice");
}

#[test]
fn listings_that_begin_while_another_holds_prolong_nothing() {
    let mut world = World::new();
    assert!(world.hold(1, 5, false));
    world.pass(HOLD_MS / 2);
    assert!(world.hold(2, 5, false) && world.hold(2, 5, true));
    let waits = world.create("waits");
    assert!(world.cut(2, 5));
    assert!(world.answer(waits).is_none(), "the first one still holds");
    world.pass(HOLD_MS / 2);
    assert!(world.is_made(waits));
    assert_eq!(world.listed(2, 5).unwrap().len(), 0);
}

#[test]
fn whoever_holds_and_is_gone_holds_nobody() {
    let mut world = World::new();
    assert!(world.hold(1, 5, false) && world.hold(1, 5, true));
    let waits = world.create("waits");
    world.event(Event::LinkClosed { link: LinkId(1), ended: false });
    assert!(world.is_made(waits) && !world.cut(1, 5));
}

#[test]
fn bytes_on_their_way_are_waited_for() {
    let mut world = World::new();
    let file = world.create("file");
    let Some(Outcome::Ok { answer: Answer::Found { found }, .. }) = world.answer(file) else { panic!() };
    let ino = found.attr.ino;
    world.send(2, ClientOp::Fs { op: Op::Write { ino, offset: 0, append: false, kill_set_id: false } });
    let hold = world.send(1, ClientOp::Hold { cut: 5, again: false });
    let ticket = world.bodies.pop().expect("the bytes are put in place first");
    assert!(world.answer(hold).is_none(), "the record that says so is still to come");
    world.event(Event::BodyDone(ticket, Err(BodyFault(Errno::EIO))));
    assert!(matches!(world.answer(hold), Some(Outcome::Held { quiet: true, .. })));
}

#[test]
fn a_cut_goes_with_its_session_and_when_nobody_asks() {
    let mut world = World::new();
    for cut in [5, 6] {
        assert!(world.hold(1, cut, false) && world.hold(1, cut, true) && world.cut(1, cut));
        world.pass(REST_MS);
    }
    world.pass(29_000);
    assert!(world.listed(1, 5).is_ok(), "it is used");
    world.pass(29_000);
    assert!(world.listed(1, 5).is_ok() && world.listed(1, 6) == Err(CutLost::Unknown));
    let gone = world.create("gone");
    assert!(world.is_made(gone) && world.island.state().cut_rows() > 0);
    world.ask(1, ClientOp::Detach);
    assert_eq!(world.island.state().cut_rows(), 0);
}
