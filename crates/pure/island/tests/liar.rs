//! Islands that lie: what three islands tell each other is changed in one field, told at another moment, or told by
//! another one. Whoever hears it goes on (`docs/design/013-core.md`, "A peer that lies").

mod common;
#[path = "../../proto/tests/samples/mod.rs"]
mod samples;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll_core::{Decode, Encode, Ino, IslandId, Name, Stamp, Time};
use atoll_island::{BodyDone, Effect, Event, Island, Now};
use atoll_posix::{Op, RenameMode, SetAttr};
use atoll_proto::{Outcome, PeerMessage, PeerOp, TxnStamps};

use common::{Client, ISLANDS, Three};

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
    client: Client,
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
                Effect::Append(seq, ..) => events.push_back(Event::Committed(seq)),
                Effect::Sync => events.push_back(Event::Synced(island.state().seq())),
                Effect::Reply { id, reply, .. } => said.replies.push((id, reply.outcome)),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    events.push_back(Event::Loaded { load, generation, loaded });
                }
                Effect::Send(to, message) => said.mail.push((to, message)),
                Effect::Checkpoint { .. } => events.push_back(Event::CheckpointDone),
                Effect::Body(ticket, _) => events.push_back(Event::BodyDone(ticket, Ok(BodyDone::Done))),
                Effect::Notice(..) | Effect::Damaged(_) | Effect::Beside(..) => {}
            }
        }
    }
    said
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            islands: common::islands(atoll_island::OUTBOX_BYTES_MAX),
            mail: VecDeque::new(),
            client: Client::default(),
            dice: Dice(seed),
            told: samples_of_all(),
            inos: vec![Ino::ROOT],
            lies: 0,
            ended: Vec::new(),
        };
        world.connect();
        world.attach();
        world
    }

    /// Tells an island lies, each instead of this message and before it, and lets some time pass.
    fn attack(&mut self, to: IslandId, honest: &PeerMessage) {
        for _ in 0..LIES {
            let lies = (0..1 + self.dice.below(3)).filter_map(|_| self.lie(to, honest));
            let lies: Vec<PeerMessage> = lies.flat_map(with_its_end).collect();
            self.lies += lies.len();
            let (island, ms) = (&self.islands[usize::from(to.0)], self.client.ms);
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
        let said = handle(&mut self.islands[usize::from(at)], self.client.ms, event);
        self.mail.extend(said.mail);
        self.client.replies.extend(said.replies);
    }

    fn deliver(&mut self) {
        while let Some((to, message)) = self.mail.pop_front() {
            self.told.push(message.clone());
            self.attack(to, &message);
            self.event(to.0, Event::Peer(message));
        }
    }

    /// One of three requests tells a stamp that somebody has made up: the client has believed it.
    fn seen(&mut self) -> Vec<(IslandId, Stamp)> {
        if self.dice.below(3) != 0 {
            return Vec::new();
        }
        let extremes = [Stamp(u64::MAX), Stamp::new(1, 1 << 39), Stamp::new(2, 0), Stamp::new(1, 200)];
        let of = IslandId(self.dice.below(usize::from(ISLANDS)) as u16);
        vec![(of, extremes[self.dice.below(extremes.len())])]
    }

    fn found(&mut self, ino: Ino) {
        self.inos.push(ino);
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
    let stamps =
        (!committed.0.is_multiple_of(3)).then(|| TxnStamps { prepared: Stamp::default(), committed });
    let peer = PeerOp::Decided { txn: *txn, stamps, part: None };
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
    let dirs: Vec<Ino> = (0..6).map(|n| world.mkdir(Ino::ROOT, &name(n)).unwrap()).collect();
    let below: Vec<Ino> = dirs.clone().into_iter().map(|dir| world.mkdir(dir, &name(10)).unwrap()).collect();
    for n in 0..5 {
        let (from, to) = (below[n], below[n + 1]);
        let file = world.fifo(from, &name(20)).unwrap();
        world.ask(to, Op::Link { ino: file, dir: to, name: name(30) }).unwrap();
        world.rename((from, &name(20)), (to, &name(21)), RenameMode::Replace).unwrap();
        world.ask(to, Op::Unlink { dir: to, name: name(30) }).unwrap();
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        world.ask(from, Op::SetAttr { ino: from, set }).unwrap();
        // Directories move, change places, and replace one another.
        world.mkdir(from, &name(40)).unwrap();
        world.mkdir(to, &name(41)).unwrap();
        world.rename((from, &name(40)), (to, &name(41)), RenameMode::Replace).unwrap();
        world.mkdir(from, &name(40)).unwrap();
        world.rename((from, &name(40)), (to, &name(41)), RenameMode::Exchange).unwrap();
        world.rename((to, &name(41)), (to, &name(42)), RenameMode::Replace).unwrap();
        world.ask(from, Op::Rmdir { dir: from, name: name(40), meant: None }).unwrap();
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
