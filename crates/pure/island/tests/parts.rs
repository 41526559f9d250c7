//! Changes of several islands while a mount keeps what one of them has told: each island recalls it for its part.

mod common;

use std::collections::VecDeque;

use atoll_core::{Ino, Name, SessionId};
use atoll_island::{Effect, Event, Island, LinkId, Now};
use atoll_posix::{Caller, Op, RenameMode};
use atoll_proto::{ClientOp, MayKeep, Notice, Outcome, PeerMessage, Request};
use bytes::Bytes;
use common::{Client, ISLANDS, Three, done_at_once};

/// The mount that keeps something.
const MOUNT: SessionId = SessionId(2);

/// Three islands that write and sync at once, a client that changes things, and a mount.
struct World {
    islands: Vec<Island>,
    mail: VecDeque<(u16, PeerMessage)>,
    client: Client,
    next: u64,
    /// Who has recalled the mount.
    recalled: Vec<u16>,
    /// Whether the mount may keep the last answer.
    may_keep: MayKeep,
}

impl World {
    fn new() -> Self {
        let (islands, client) = (common::islands(atoll_island::OUTBOX_BYTES_MAX), Client::default());
        let (mail, recalled, may_keep) = (VecDeque::new(), Vec::new(), MayKeep::No);
        let mut world = Self { islands, mail, client, next: 1 << 32, recalled, may_keep };
        world.connect();
        world.attach();
        world
    }

    /// A request of the mount, or of the client, whose answer is not waited for.
    fn asks(&mut self, session: SessionId, to: u16, op: ClientOp) -> u64 {
        self.next += 1;
        let (id, vector, caller) = (self.next, Vec::new(), Caller::ROOT);
        let seq = if session == MOUNT { 0 } else { id };
        let request = Request { session, seq, acked: 0, table: 1, vector, caller, op };
        self.event(to, Event::Request { link: LinkId(session.0), id, request, data: Bytes::new() });
        self.deliver();
        id
    }

    fn is_answered(&self, id: u64) -> bool {
        self.client.replies.iter().any(|(of, outcome)| *of == id && matches!(outcome, Outcome::Ok { .. }))
    }
}

impl Three for World {
    const PASSES: usize = 30;

    fn islands(&self) -> &[Island] {
        &self.islands
    }

    fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn event(&mut self, at: u16, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (mut out, island) = (Vec::new(), &mut self.islands[usize::from(at)]);
            island.handle(Now { ms: self.client.ms, ..Now::default() }, event, &mut out);
            island.check();
            let synced = island.state().seq();
            for effect in out {
                match effect {
                    Effect::Reply { id, reply, .. } => {
                        self.may_keep = reply.may_keep;
                        self.client.replies.push((id, reply.outcome));
                    }
                    Effect::Send(to, message) => self.mail.push_back((to.0, message)),
                    Effect::Notice(LinkId(2), Notice::Recall | Notice::RecallOf { .. }) => {
                        self.recalled.push(at)
                    }
                    effect => events.extend(done_at_once(effect, synced)),
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.mail.pop_front() {
            self.event(to, Event::Peer(message));
        }
    }
}

/// The mount has looked at a directory of another island than the root's. That directory and its name, the root's owner, and its own.
fn looked_at() -> (World, (Ino, Name), (u16, u16)) {
    let mut world = World::new();
    let (above, _) = world.owner(Ino::ROOT);
    let mut made = (0..).map(|n: u32| Name::new(n.to_string().as_bytes()).unwrap());
    let (name, dir) = loop {
        let name = made.next().expect("there is no end of names");
        let dir = world.mkdir(Ino::ROOT, &name).unwrap();
        if world.owner(dir).0 != above {
            break (name, dir);
        }
    };
    let (owner, _) = world.owner(dir);
    for at in 0..ISLANDS {
        world.asks(MOUNT, at, ClientOp::Attach { mount: true });
        world.asks(MOUNT, at, ClientOp::Lease);
    }
    world.asks(MOUNT, owner, ClientOp::Fs { op: Op::GetAttr { ino: dir } });
    assert_eq!(world.may_keep, MayKeep::Yes);
    (world, (dir, name), (above, owner))
}

/// Sequence n of `docs/design/024-leases.md`.
pub(crate) fn an_island_recalls_for_its_part_of_a_change() {
    let (mut world, (dir, name), (above, owner)) = looked_at();
    // What it has not looked at is changed without it.
    let file = Name::new(b"file").unwrap();
    world.fifo(Ino::ROOT, &file).unwrap();
    assert_eq!(world.recalled, []);
    let (mode, key) = (RenameMode::Replace, world.owner(dir).1);
    let (meant, new_meant, new_name) = (None, None, file.clone());
    let op =
        Op::Rename { dir: Ino::ROOT, name: file.clone(), new_dir: dir, new_name, mode, meant, new_meant };
    let moved = world.asks(SessionId(1), above, ClientOp::Rename { op, key });
    (0..4).for_each(|_| world.pass());
    assert_eq!(world.recalled, [owner]);
    assert!(!world.is_answered(moved));
    world.asks(MOUNT, owner, ClientOp::Dropped);
    (0..4).for_each(|_| world.pass());
    assert!(world.is_answered(moved));
    world.rename((dir, &file), (Ino::ROOT, &file), mode).unwrap();
    // The same for a directory that goes.
    (0..40).for_each(|_| world.pass());
    world.asks(MOUNT, owner, ClientOp::Lease);
    world.asks(MOUNT, owner, ClientOp::Fs { op: Op::GetAttr { ino: dir } });
    assert_eq!(world.may_keep, MayKeep::Yes);
    let op = Op::Rmdir { dir: Ino::ROOT, name, meant: None };
    let removed = world.asks(SessionId(1), above, ClientOp::Fs { op });
    (0..4).for_each(|_| world.pass());
    assert_eq!(world.recalled, [owner, owner]);
    assert!(!world.is_answered(removed));
    world.asks(MOUNT, owner, ClientOp::Dropped);
    (0..4).for_each(|_| world.pass());
    assert!(world.is_answered(removed));
}

#[test]
fn the_sequence_holds() {
    an_island_recalls_for_its_part_of_a_change();
}
