//! Three islands that tell each other everything at once, and a client of all of them. How they hear each other is the
//! test's matter.

use atoll_core::{Ino, IslandId, Key, Name, SessionId, Stamp, Table};
use atoll_island::{BodyDone, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use atoll_proto::{ClientOp, Outcome, Request};
use atoll_state::State;
use bytes::Bytes;

pub(crate) const ISLANDS: u16 = 3;
const SESSION: SessionId = SessionId(1);

/// What the client has sent and heard.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) replies: Vec<(u64, Outcome)>,
    pub(crate) ms: u64,
    next: u64,
}

/// The islands, which keep so many bytes of their journals for others.
pub(crate) fn islands(outbox_bytes_max: u64) -> Vec<Island> {
    let all: Vec<IslandId> = (0..ISLANDS).map(IslandId).collect();
    let island = |id: &IslandId| {
        // All rows stay in memory: there is no snapshot.
        let config = Config::new(*id, 1, Table::new(ISLANDS), all.clone());
        let config = Config { rows_max: 1 << 40, outbox_bytes_max, ..config };
        Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default())
    };
    all.iter().map(island).collect()
}

/// What an island hears at once of an effect, where disks do at once what they are asked for. `synced`: the last record so far.
#[allow(dead_code, reason = "not every test has such disks")]
pub(crate) fn done_at_once(effect: Effect, synced: u64) -> Option<Event> {
    match effect {
        Effect::Append(seq, ..) => Some(Event::Committed(seq)),
        Effect::Sync => Some(Event::Synced(synced)),
        Effect::Load { load, generation } => Some(Event::Loaded { loaded: load.nothing(), load, generation }),
        Effect::Checkpoint { .. } => Some(Event::CheckpointDone),
        Effect::Body(ticket, _) => Some(Event::BodyDone(ticket, Ok(BodyDone::Done))),
        Effect::Reply { .. } | Effect::Send(..) => unreachable!("the test's to take"),
        Effect::Notice(..) | Effect::Damaged(_) | Effect::Beside(..) => None,
    }
}

pub(crate) trait Three {
    /// An answer comes at the latest when time has passed so often.
    const PASSES: usize;

    fn islands(&self) -> &[Island];
    fn client(&mut self) -> &mut Client;
    /// Has an island take an event, and all that follows from it there.
    fn event(&mut self, at: u16, event: Event);
    /// Messages arrive until there are none.
    fn deliver(&mut self);
    /// The stamps that the client says with its next request that it has seen.
    fn seen(&mut self) -> Vec<(IslandId, Stamp)> {
        Vec::new()
    }

    /// An operation has found or made something.
    fn found(&mut self, _ino: Ino) {}

    /// Time passes, so that what waits is tried again.
    fn pass(&mut self) {
        self.client().ms += 250;
        for at in 0..ISLANDS {
            self.event(at, Event::Tick { bytes_available: 1 << 40 });
        }
        self.deliver();
    }

    /// All islands hear each other from here on.
    fn connect(&mut self) {
        for at in 0..ISLANDS {
            for other in (0..ISLANDS).filter(|other| *other != at) {
                self.event(at, Event::PeerReachable { island: IslandId(other), up: true });
            }
        }
    }

    /// The client attaches to all islands.
    fn attach(&mut self) {
        self.pass();
        for at in 0..ISLANDS {
            self.send(at, 0, ClientOp::Attach { mount: false });
        }
    }

    /// Sends a request, and waits for the answer.
    fn send(&mut self, to: u16, seq: u64, op: ClientOp) -> Outcome {
        self.client().next += 1;
        let (id, table) = (self.client().next, 1);
        let (vector, caller, session) = (self.seen(), Caller::ROOT, SESSION);
        let request = Request { session, seq, acked: seq, table, vector, caller, op };
        self.event(to, Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        self.deliver();
        for _ in 0..Self::PASSES {
            let replies = &mut self.client().replies;
            if let Some(at) = replies.iter().position(|(of, _)| *of == id) {
                return replies.remove(at).1;
            }
            self.pass();
        }
        panic!("no answer");
    }

    fn state(&self, at: u16) -> &State {
        self.islands()[usize::from(at)].state()
    }

    /// The owner of a directory, and its key.
    fn owner(&self, dir: Ino) -> (u16, Key) {
        let row = |at: u16| Some((at, self.state(at).dir(dir).ok()??)).filter(|(_, row)| row.owned.is_some());
        let (at, row) = (0..ISLANDS).find_map(row).expect("every directory has an owner");
        (at, row.key)
    }

    /// An operation at the owner of a directory. The id in the answer, if it tells one.
    fn ask(&mut self, dir: Ino, op: Op) -> Result<Option<Ino>, Errno> {
        let to_dir = match &op {
            Op::Rename { dir, new_dir, .. } if dir != new_dir => Some(*new_dir),
            _ => None,
        };
        let op = match to_dir {
            Some(to_dir) => ClientOp::Rename { op, key: self.owner(to_dir).1 },
            None => ClientOp::Fs { op },
        };
        let (to, _) = self.owner(dir);
        let seq = self.client().next + 1;
        match self.send(to, seq, op) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => {
                self.found(found.attr.ino);
                Ok(Some(found.attr.ino))
            }
            Outcome::Ok { .. } => Ok(None),
            Outcome::Failed { errno } => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&mut self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        let (name, mode, umask) = (name.clone(), 0o755, 0);
        Ok(self.ask(dir, Op::Mkdir { dir, name, mode, umask })?.expect("a directory that is made is told of"))
    }

    fn fifo(&mut self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        let (name, kind, target) = (name.clone(), Kind::Fifo, Bytes::new());
        let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
        Ok(self.ask(dir, op)?.expect("a file that is made is told of"))
    }

    fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), mode: RenameMode) -> Result<(), Errno> {
        self.ask(from.0, rename_of(from, to, mode)).map(drop)
    }
}

pub(crate) fn rename_of(from: (Ino, &Name), to: (Ino, &Name), mode: RenameMode) -> Op {
    let (dir, name, new_dir, new_name) = (from.0, from.1.clone(), to.0, to.1.clone());
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}
