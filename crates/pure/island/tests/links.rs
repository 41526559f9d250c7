//! A client that has taken up its session on a new link, while what it said on the old one still arrives.

use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Caller, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Lease, Notice, Outcome, Request};
use atoll_state::State;
use bytes::Bytes;

const OLD: LinkId = LinkId(1);
const NEW: LinkId = LinkId(2);
const OTHERS: LinkId = LinkId(3);
const ONE: SessionId = SessionId(7);
const OTHER: SessionId = SessionId(8);

struct World {
    island: Island,
    ms: u64,
    /// Where each reply went, by the number of its request.
    replies: Vec<(LinkId, u64, Outcome)>,
    notices: Vec<(LinkId, Notice)>,
    /// What is to be read is kept back here, if there is such a place.
    unread: Option<Vec<Event>>,
}

impl World {
    fn new() -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let now = Now { wall: Time::default(), ms: 0 };
        let island = Island::new(config, State::new(1), PreviousEnd::PowerCut, now);
        let (replies, notices) = (Vec::new(), Vec::new());
        let mut world = Self { island, ms: 0, replies, notices, unread: None };
        world.tick();
        world
    }

    fn tick(&mut self) {
        self.ms += 100;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(Now { wall: Time::default(), ms: self.ms }, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { link, id, reply, .. } => self.replies.push((link, id, reply.outcome)),
                Effect::Notice(link, notice) => self.notices.push((link, notice)),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    let read = Event::Loaded { load, generation, loaded };
                    match &mut self.unread {
                        Some(unread) => unread.push(read),
                        None => self.event(read),
                    }
                }
                Effect::Send(..)
                | Effect::Beside(..)
                | Effect::Body(..)
                | Effect::Checkpoint { .. }
                | Effect::Damaged(_) => {
                    unreachable!("nobody else is there, and no file")
                }
            }
        }
    }

    fn ask(&mut self, session: SessionId, link: LinkId, id: u64, seq: u64, op: ClientOp) {
        let table = self.island.config().table.version();
        let (acked, vector, caller) = (0, Vec::new(), Caller::ROOT);
        let request = Request { session, seq, acked, table, vector, caller, op };
        self.event(Event::Request { link, id, request, data: Bytes::new() });
    }

    fn lock(&mut self, session: SessionId, link: LinkId, (id, seq): (u64, u64), kind: LockKind) {
        let lock = LockRange { start: 0, end: u64::MAX, kind, owner: 1, pid: 1, flock: false };
        let op = Op::SetLock { ino: Ino::ROOT, lock, wait: true };
        self.ask(session, link, id, seq, ClientOp::Fs { op });
    }

    /// Where the request of this number was answered.
    fn answered(&self, id: u64) -> Vec<LinkId> {
        self.replies.iter().filter(|(_, of, _)| *of == id).map(|(link, ..)| *link).collect()
    }

    fn attached() -> Self {
        let mut world = Self::new();
        for (session, link) in [(ONE, OLD), (OTHER, OTHERS)] {
            world.ask(session, link, 10, 0, ClientOp::Attach { mount: false });
        }
        world
    }

    /// What was to be read has been.
    fn read(&mut self) {
        for event in self.unread.take().expect("something is kept back") {
            self.event(event);
        }
    }

    /// One of two sessions waits for a lock that the other has.
    fn waiting() -> Self {
        let mut world = Self::attached();
        world.lock(OTHER, OTHERS, (20, 1), LockKind::Write);
        world.lock(ONE, OLD, (30, 1), LockKind::Write);
        assert_eq!((world.answered(20), world.answered(30)), (vec![OTHERS], vec![]));
        world
    }
}

#[test]
fn what_is_asked_on_two_links_is_answered_on_the_later_one_whatever_order_it_came_in() {
    for late in [false, true] {
        let mut world = World::waiting();
        world.ask(ONE, NEW, 11, 0, ClientOp::Dropped);
        world.lock(ONE, NEW, (30, 1), LockKind::Write);
        if late {
            // Another thread has read it, and got to the island last.
            world.lock(ONE, OLD, (30, 1), LockKind::Write);
        }
        world.event(Event::LinkClosed { link: OLD, ended: true });
        world.lock(OTHER, OTHERS, (21, 2), LockKind::Unlock);
        assert_eq!(world.answered(30), [NEW], "late: {late}");
    }
}

#[test]
fn a_lock_that_was_asked_for_again_is_waited_for_until_that_is_given_up() {
    let mut world = World::waiting();
    world.lock(ONE, NEW, (30, 1), LockKind::Write);
    world.ask(ONE, NEW, 31, 0, ClientOp::Cancel { request: 30 });
    assert_eq!(world.answered(30), [NEW]);
    world.lock(OTHER, OTHERS, (21, 2), LockKind::Unlock);
    assert_eq!(world.answered(30), [NEW], "it waits no more");
}

#[test]
fn a_lock_that_is_given_up_before_it_is_waited_for_is_not_waited_for() {
    let mut world = World::attached();
    world.unread = Some(Vec::new());
    world.lock(OTHER, OTHERS, (20, 1), LockKind::Write);
    world.lock(ONE, OLD, (30, 1), LockKind::Write);
    world.ask(ONE, OLD, 31, 0, ClientOp::Cancel { request: 30 });
    world.read();
    assert_eq!((world.answered(20), world.answered(30)), (vec![OTHERS], vec![OLD]));
}

#[test]
fn a_session_that_ends_while_a_lock_is_asked_for_does_not_get_it() {
    let mut world = World::attached();
    world.unread = Some(Vec::new());
    world.lock(ONE, OLD, (30, 1), LockKind::Write);
    world.lock(OTHER, OTHERS, (20, 1), LockKind::Write);
    world.ask(ONE, OLD, 31, 0, ClientOp::Detach);
    world.read();
    assert_eq!(world.answered(20), [OTHERS], "nobody holds it");
}

#[test]
fn what_a_mount_has_said_of_what_it_keeps_is_void_when_it_has_another_link() {
    let mut world = World::new();
    world.ask(ONE, OLD, 10, 0, ClientOp::Attach { mount: true });
    world.ask(OTHER, OTHERS, 20, 0, ClientOp::Attach { mount: false });
    world.event(Event::Synced(world.island.state().seq()));
    world.ask(ONE, NEW, 11, 0, ClientOp::Dropped);
    world.ask(ONE, NEW, 12, 0, ClientOp::Lease);
    world.event(Event::Synced(world.island.state().seq()));
    world.ask(ONE, NEW, 13, 0, ClientOp::Lease);
    let may_keep = |world: &World| match world.replies.last() {
        Some((_, _, Outcome::Attached { lease, .. })) => *lease != Lease::No,
        other => panic!("{other:?}"),
    };
    assert!(may_keep(&world), "it may keep what it is told now");
    // This is about what it kept before.
    world.ask(ONE, OLD, 14, 0, ClientOp::Dropped);
    world.event(Event::LinkClosed { link: OLD, ended: true });
    let mkdir = Op::Mkdir { dir: Ino::ROOT, name: Name::new(b"d").unwrap(), mode: 0o755, umask: 0 };
    world.ask(OTHER, OTHERS, 21, 1, ClientOp::Fs { op: mkdir });
    assert_eq!(world.notices, [(NEW, Notice::Recall)]);
    for _ in 0..20 {
        world.tick();
    }
    assert_eq!(world.answered(21), [], "its link is not the one that ended");
    world.ask(ONE, NEW, 15, 0, ClientOp::Dropped);
    assert_eq!(world.answered(21), [OTHERS]);
}
