//! Islands that lie: what three islands tell each other is changed in one field, told at another moment, or told by
//! another one. Whoever hears it goes on (`docs/design/013-core.md`, "A peer that lies").

#[path = "../../proto/tests/samples/mod.rs"]
mod samples;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::{Decode, Encode, Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time};
use atoll_island::{BodyDone, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Kind, Op, RenameMode, SetAttr};
use atoll_proto::{ClientOp, Outcome, PeerMessage, PeerOp, Request, TxnStamps};
use atoll_state::State;
use bytes::Bytes;

const ISLANDS: u16 = 3;
const SESSION: SessionId = SessionId(1);
/// What bytes of a field are replaced by, and how many.
const EXTREMES: [u8; 5] = [0x00, 0x01, 0x7f, 0x80, 0xff];
const WIDTHS: [usize; 4] = [1, 2, 4, 8];
/// Lies that are told for each message.
const LIES: usize = 60;
/// Effects that follow from one event at most.
const EFFECTS_MAX: usize = 10_000;

/// Deterministic choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Three islands that write and sync at once, and a client of all of them.
struct World {
    islands: Vec<Island>,
    mail: VecDeque<(IslandId, PeerMessage)>,
    replies: Vec<(u64, Outcome)>,
    next: u64,
    ms: u64,
    dice: Dice,
    /// What was told so far.
    told: Vec<PeerMessage>,
    /// Ids of files and directories.
    inos: Vec<Ino>,
    lies: usize,
    /// Lies that have ended an island.
    ended: Vec<String>,
}

/// What an island sends.
#[derive(Default)]
struct Said {
    mail: Vec<(IslandId, PeerMessage)>,
    replies: Vec<(u64, Outcome)>,
}

/// Has an island take an event, and all that follows.
fn handle(island: &mut Island, ms: u64, event: Event) -> Said {
    let mut said = Said::default();
    let mut events = VecDeque::from([event]);
    let mut effects = 0;
    while let Some(event) = events.pop_front() {
        let mut out = Vec::new();
        island.handle(Now { wall: Time::default(), ms }, event, &mut out);
        effects += out.len();
        assert!(effects < EFFECTS_MAX, "something happens without end");
        for effect in out {
            match effect {
                Effect::Append(seq, _) => events.push_back(Event::Committed(seq)),
                Effect::Sync => events.push_back(Event::Synced(island.state().seq())),
                Effect::Reply { id, reply, .. } => said.replies.push((id, reply.outcome)),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    events.push_back(Event::Loaded { load, generation, loaded });
                }
                Effect::Send(to, message) => said.mail.push((to, message)),
                Effect::Checkpoint { .. } => events.push_back(Event::CheckpointDone),
                Effect::Body(ticket, _) => events.push_back(Event::BodyDone(ticket, Ok(BodyDone::Done))),
                Effect::Notice(..) | Effect::Damaged(_) => {}
            }
        }
    }
    said
}

impl World {
    fn new(seed: u64) -> Self {
        let all: Vec<IslandId> = (0..ISLANDS).map(IslandId).collect();
        let island = |id: &IslandId| {
            // All rows stay in memory: there is no snapshot.
            let config =
                Config { rows_max: 1 << 40, ..Config::new(*id, 1, Table::new(ISLANDS), all.clone()) };
            Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default())
        };
        let islands = all.iter().map(island).collect();
        let mut world = Self {
            islands,
            mail: VecDeque::new(),
            replies: Vec::new(),
            next: 0,
            ms: 0,
            dice: Dice(seed),
            told: samples_of_all(),
            inos: vec![Ino::ROOT],
            lies: 0,
            ended: Vec::new(),
        };
        for at in 0..ISLANDS {
            for other in (0..ISLANDS).filter(|other| *other != at) {
                world.event(at, Event::PeerReachable { island: IslandId(other), up: true });
            }
        }
        world.pass();
        for at in 0..ISLANDS {
            world.send(at, 0, ClientOp::Attach { mount: false });
        }
        world
    }

    fn event(&mut self, at: u16, event: Event) {
        let said = handle(&mut self.islands[usize::from(at)], self.ms, event);
        self.mail.extend(said.mail);
        self.replies.extend(said.replies);
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.mail.pop_front() {
            self.told.push(message.clone());
            self.attack(to, &message);
            self.event(to.0, Event::Peer(message));
        }
    }

    /// Tells an island lies, each instead of this message and before it, and lets some time pass.
    fn attack(&mut self, to: IslandId, honest: &PeerMessage) {
        for _ in 0..LIES {
            let lies = (0..1 + self.dice.below(3)).filter_map(|_| self.lie(to, honest));
            let lies: Vec<PeerMessage> = lies.flat_map(with_its_end).collect();
            self.lies += lies.len();
            let (island, ms) = (&self.islands[usize::from(to.0)], self.ms);
            let hears = || {
                let mut island = island.clone();
                for lie in &lies {
                    handle(&mut island, ms, Event::Peer(lie.clone()));
                }
                handle(&mut island, ms, Event::Peer(honest.clone()));
                for n in 1..=4 {
                    handle(&mut island, ms + 400 * n, Event::Tick { bytes_available: 1 << 40 });
                }
            };
            if catch_unwind(AssertUnwindSafe(hears)).is_err() {
                self.ended.push(one_line(&lies));
            }
        }
    }

    /// Something that is not what an honest island tells now.
    fn lie(&mut self, to: IslandId, honest: &PeerMessage) -> Option<PeerMessage> {
        let from = IslandId((to.0 + 1 + self.dice.below(2) as u16) % ISLANDS);
        let told = self.told[self.dice.below(self.told.len())].clone();
        match self.dice.below(6) {
            // It was so once, or is so of another.
            0 => Some(PeerMessage { from, ..told }),
            1 if told.from != to => self.with_other_ids(&told.to_vec()),
            1 => self.with_other_ids(&PeerMessage { from, ..told }.to_vec()),
            2 | 3 => self.with_other_ids(&honest.to_vec()),
            _ => self.with_extreme(&honest.to_vec()),
        }
    }

    /// One field has an extreme value.
    fn with_extreme(&mut self, honest: &[u8]) -> Option<PeerMessage> {
        let width = WIDTHS[self.dice.below(WIDTHS.len())];
        let at = self.dice.below(honest.len().checked_sub(width)?);
        let mut bytes = honest.to_vec();
        bytes[at..at + width].fill(EXTREMES[self.dice.below(EXTREMES.len())]);
        PeerMessage::from_slice(&bytes).ok()
    }

    /// One id is that of another file or directory.
    fn with_other_ids(&mut self, honest: &[u8]) -> Option<PeerMessage> {
        let is_id = |at: &usize| self.inos.iter().any(|ino| honest[*at..*at + 8] == ino.0.to_le_bytes());
        let places: Vec<usize> = (0..honest.len().saturating_sub(8)).filter(is_id).collect();
        let at = *places.get(self.dice.below(places.len()))?;
        let other = self.inos[self.dice.below(self.inos.len())];
        let mut bytes = honest.to_vec();
        bytes[at..at + 8].copy_from_slice(&other.0.to_le_bytes());
        PeerMessage::from_slice(&bytes).ok()
    }

    /// Time passes, so that what waits is tried again.
    fn pass(&mut self) {
        self.ms += 250;
        for at in 0..ISLANDS {
            self.event(at, Event::Tick { bytes_available: 1 << 40 });
        }
        self.deliver();
    }

    /// Sends a request, and waits for the answer.
    fn send(&mut self, to: u16, seq: u64, op: ClientOp) -> Outcome {
        self.next += 1;
        let (id, table) = (self.next, 1);
        let (vector, caller, session) = (Vec::new(), Caller::ROOT, SESSION);
        let request = Request { session, seq, acked: seq, table, vector, caller, op };
        self.event(to, Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        self.deliver();
        for _ in 0..30 {
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.remove(at).1;
            }
            self.pass();
        }
        panic!("no answer");
    }

    /// The owner of a directory, and its key.
    fn owner(&self, dir: Ino) -> (u16, Key) {
        let row = |at: u16| {
            let state = self.islands[usize::from(at)].state();
            Some((at, state.dir(dir).ok()??)).filter(|(_, row)| row.owned.is_some())
        };
        let (at, row) = (0..ISLANDS).find_map(row).expect("every directory has an owner");
        (at, row.key)
    }

    /// An operation at the owner of a directory. The id in the answer, if it tells one.
    fn ask(&mut self, dir: Ino, op: Op) -> Option<Ino> {
        let to_dir = match &op {
            Op::Rename { dir, new_dir, .. } if dir != new_dir => Some(*new_dir),
            _ => None,
        };
        let op = match to_dir {
            Some(to_dir) => ClientOp::Rename { op, key: self.owner(to_dir).1 },
            None => ClientOp::Fs { op },
        };
        let (to, _) = self.owner(dir);
        let seq = self.next + 1;
        match self.send(to, seq, op) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => {
                self.inos.push(found.attr.ino);
                Some(found.attr.ino)
            }
            Outcome::Ok { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&mut self, dir: Ino, n: usize) -> Ino {
        self.ask(dir, Op::Mkdir { dir, name: name(n), mode: 0o755, umask: 0 }).unwrap()
    }

    fn fifo(&mut self, dir: Ino, n: usize) -> Ino {
        let (name, kind, target) = (name(n), Kind::Fifo, Bytes::new());
        let op = Op::Create { dir, name, kind, mode: 0o644, umask: 0, rdev: 0, exclusive: true, target };
        self.ask(dir, op).unwrap()
    }

    fn rename(&mut self, from: (Ino, usize), to: (Ino, usize), mode: RenameMode) {
        let (name, new_name) = (name(from.1), name(to.1));
        let (dir, new_dir, meant, new_meant) = (from.0, to.0, None, None);
        self.ask(dir, Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant });
    }
}

/// A message of every kind, about what does not exist here.
fn samples_of_all() -> Vec<PeerMessage> {
    let peers = samples::all().into_iter().find(|samples| samples.file == "peer").unwrap();
    let peer = |(_, bytes): &(String, Vec<u8>)| PeerOp::from_slice(bytes).unwrap();
    let message = |peer| PeerMessage { from: IslandId(0), incarnation: 1, vector: Vec::new(), op: peer };
    peers.samples.iter().map(peer).map(message).collect()
}

fn name(n: usize) -> Name {
    Name::new(format!("n{n}").as_bytes()).unwrap()
}

/// A message, and the outcome of the transaction that it asks to prepare: it is carried out, or taken back.
fn with_its_end(message: PeerMessage) -> Vec<PeerMessage> {
    let PeerOp::Prepare { txn, .. } = &message.op else { return vec![message] };
    let committed = Stamp(txn.stamp.0.saturating_add(1));
    let moments =
        (!committed.0.is_multiple_of(3)).then(|| TxnStamps { prepared: Stamp::default(), committed });
    let peer = PeerOp::Decided { txn: *txn, moments, part: None };
    let end = PeerMessage { op: peer, ..message.clone() };
    vec![message, end]
}

fn one_line(message: &[PeerMessage]) -> String {
    let mut text = format!("{message:?}");
    text.truncate(600);
    text
}

/// What three islands have to tell each other: every kind of transaction, and journals.
fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    let dirs: Vec<Ino> = (0..6).map(|n| world.mkdir(Ino::ROOT, n)).collect();
    let below: Vec<Ino> = dirs.clone().into_iter().map(|dir| world.mkdir(dir, 10)).collect();
    for n in 0..5 {
        let (from, to) = (below[n], below[n + 1]);
        let file = world.fifo(from, 20);
        world.ask(to, Op::Link { ino: file, dir: to, name: name(30) });
        world.rename((from, 20), (to, 21), RenameMode::Replace);
        world.ask(to, Op::Unlink { dir: to, name: name(30) });
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        world.ask(from, Op::SetAttr { ino: from, set });
        // Directories move, change places, and replace one another.
        world.mkdir(from, 40);
        world.mkdir(to, 41);
        world.rename((from, 40), (to, 41), RenameMode::Replace);
        world.mkdir(from, 40);
        world.rename((from, 40), (to, 41), RenameMode::Exchange);
        world.rename((to, 41), (to, 42), RenameMode::Replace);
        world.ask(from, Op::Rmdir { dir: from, name: name(40), meant: None });
    }
    world
}

#[test]
fn an_island_goes_on_whatever_others_tell_it() {
    for seed in 1..=2 {
        let world = run(seed);
        assert!(world.ended.is_empty(), "each of these ends an island:\n{}", world.ended.join("\n"));
        assert!(world.lies > 10_000, "it was told {} lies", world.lies);
    }
}
