//! Rows that are read from the snapshot: what needs a damaged one ends, and one that comes late holds up nothing for
//! good.

mod snapshot;

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Name, SessionId, Stamp, Table};
use atoll_island::{Config, Damage, Effect, Event, Island, LinkId, Now, Phase, PreviousEnd};
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::{
    ClientOp, DirPlace, JournalEntry, Outcome, PeerMessage, PeerOp, PlaceVersion, Request, RowChange,
    StaticAttrs, Vote, VoteInfo, Xattrs,
};
use atoll_state::{LoadedRows, RowKey, RowLoad, State};
use bytes::Bytes;
use snapshot::Snapshot;

const ME: IslandId = IslandId(0);
const OTHER: IslandId = IslandId(1);
const THIRD: IslandId = IslandId(2);
const DIR: Ino = Ino(77);
/// How often one thing may be read in one of these tests.
const READS_MAX: usize = 20;

/// How the snapshot answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Disk {
    /// With what was written.
    Whole,
    /// No row can be read.
    Damaged,
    /// Not yet.
    Slow,
}

/// One of three islands, with its snapshot.
struct World {
    island: Island,
    snapshot: Snapshot,
    disk: Disk,
    /// What was asked for and not answered.
    late: Vec<(RowLoad, u64)>,
    reads: BTreeMap<String, usize>,
    damaged: Vec<Damage>,
    replies: Vec<(u64, Outcome)>,
    sent: Vec<(IslandId, PeerOp)>,
    next: u64,
    ms: u64,
}

fn config() -> Config {
    Config { rows_max: 0, ..Config::new(ME, 1, Table::new(3), vec![ME, OTHER, THIRD]) }
}

impl World {
    /// An island that serves.
    fn new() -> Self {
        let island = Island::new(config(), State::new(1), PreviousEnd::Orderly, Now::default());
        let mut world = Self {
            island,
            snapshot: Snapshot::default(),
            disk: Disk::Whole,
            late: Vec::new(),
            reads: BTreeMap::new(),
            damaged: Vec::new(),
            replies: Vec::new(),
            sent: Vec::new(),
            next: 0,
            ms: 0,
        };
        for island in [OTHER, THIRD] {
            world.event(Event::PeerReachable { island, up: true });
            world.tell_all(island);
        }
        world.pass(0);
        world.ask(0, ClientOp::Attach { mount: false });
        world
    }

    /// The power fails; the island starts again with what others know not told yet.
    fn lose_power(&mut self) {
        self.island.correct(vec![RowChange::Clock { island: ME, stamp: Stamp::new(1, 5) }], Vec::new());
        self.pass(0);
        let state = self.island.state().clone();
        self.island =
            Island::new(config(), state, PreviousEnd::PowerCut, Now { ms: self.ms, ..Now::default() });
        self.sent.clear();
        for island in [OTHER, THIRD] {
            self.event(Event::PeerReachable { island, up: true });
        }
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(Now { ms: self.ms, ..Now::default() }, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { id, reply, .. } => self.replies.push((id, reply.outcome)),
                Effect::Load { load, generation } => self.read(load, generation),
                Effect::Damaged(damage) => self.damaged.push(damage),
                Effect::Send(to, message) => self.sent.push((to, message.op)),
                Effect::Checkpoint { frozen, .. } => {
                    self.snapshot.commit(frozen);
                    self.event(Event::CheckpointDone);
                }
                Effect::Notice(..) => {}
                other => panic!("{other:?}"),
            }
        }
        self.island.check();
    }

    fn read(&mut self, load: RowLoad, generation: u64) {
        let reads = self.reads.entry(format!("{load:?}")).or_default();
        *reads += 1;
        assert!(*reads <= READS_MAX, "{load:?} is read again and again");
        let garbage = vec![0xff; 3];
        let loaded = match (&load, self.disk) {
            (_, Disk::Slow) => return self.late.push((load, generation)),
            (RowLoad::Row(_), Disk::Damaged) => LoadedRows::Row(Some(garbage)),
            (RowLoad::Row(key), Disk::Whole) => self.snapshot.row(key),
            (RowLoad::Dirs { from }, Disk::Damaged) if *from <= DIR => {
                LoadedRows::Dirs { dirs: vec![(DIR, garbage)], more: false }
            }
            _ => load.nothing(),
        };
        self.event(Event::Loaded { load, generation, loaded });
    }

    /// What was slow comes.
    fn answer_late(&mut self) {
        self.disk = Disk::Whole;
        for (load, generation) in std::mem::take(&mut self.late) {
            self.read(load, generation);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    /// That island has told this life everything.
    fn tell_all(&mut self, from: IslandId) {
        let to = self.island.state().meta().incarnation;
        self.tell(from, PeerOp::HelloDone { to });
    }

    fn tell(&mut self, from: IslandId, peer: PeerOp) {
        self.event(Event::Peer(PeerMessage { from, incarnation: 1, vector: Vec::new(), op: peer }));
    }

    fn ask(&mut self, seq: u64, op: ClientOp) -> u64 {
        self.next += 1;
        let (id, table) = (self.next, self.island.config().table.version());
        let (session, caller, vector) = (SessionId(1), Caller::ROOT, Vec::new());
        let request = Request { session, seq, acked: 0, table, vector, caller, op };
        self.event(Event::Request { link: LinkId(1), id, request, data: Bytes::new() });
        id
    }

    fn answer(&self, id: u64) -> Option<&Outcome> {
        self.replies.iter().find(|(of, _)| *of == id).map(|(_, outcome)| outcome)
    }

    fn is_damaged(&self, key: &RowKey) -> bool {
        self.damaged.iter().filter(|damage| **damage == Damage::Row(RowLoad::Row(key.clone()))).count() == 1
    }
}

fn chmod(stamp: Stamp) -> (Stamp, JournalEntry) {
    let name = Some(Name::new(b"d").unwrap());
    let place = DirPlace { version: PlaceVersion::default(), parent: Ino::ROOT, name };
    let fixed = StaticAttrs { version: stamp, mode: 0o700, uid: 0, gid: 0 };
    (stamp, JournalEntry::StaticAttrs { ino: DIR, place, fixed, xattrs: Xattrs::default() })
}

#[test]
fn a_start_ends_although_a_row_that_it_does_again_is_damaged() {
    let mut world = World::new();
    world.lose_power();
    world.disk = Disk::Damaged;
    world.tell(OTHER, PeerOp::ReturnedJournal { entries: vec![chmod(Stamp::new(1, 7))] });
    for island in [OTHER, THIRD] {
        world.tell_all(island);
    }
    for _ in 0..40 {
        world.pass(200);
    }
    assert!(world.is_damaged(&RowKey::Dir(DIR)), "it is told once: {:?}", world.damaged);
    assert_eq!(world.island.phase(), Phase::Normal);
    // It may be replaced by a checkpoint: what was lost is done again then.
    world.disk = Disk::Whole;
    world.event(Event::CheckpointWanted);
    world.pass(200);
    world.pass(200);
    assert!(
        world.sent.iter().any(|(_, peer)| matches!(peer, PeerOp::JournalDurable { .. })),
        "all is done again"
    );
}

#[test]
fn a_comparison_does_not_read_a_damaged_row_again_and_again() {
    let mut world = World::new();
    world.disk = Disk::Damaged;
    world.tell(OTHER, PeerOp::JournalSkipped { upto: Stamp::new(1, 9) });
    for _ in 0..40 {
        world.pass(200);
    }
    assert!(world.is_damaged(&RowKey::Dir(DIR)), "it is told once: {:?}", world.damaged);
    // It is asked for by its id; nothing is said of what it is.
    let id = world.ask(0, ClientOp::Fs { op: Op::GetAttr { ino: DIR } });
    assert!(matches!(world.answer(id), Some(Outcome::Failed { errno: Errno::EIO })));
}

#[test]
fn a_transaction_whose_row_is_damaged_is_aborted_with_an_error() {
    let mut world = World::new();
    // One of the directories will be owned by another island.
    let begun = (1..100).find_map(|n| {
        let name = Name::new(format!("d{n}").as_bytes()).unwrap();
        let id = world.ask(n, ClientOp::Fs { op: Op::Mkdir { dir: Ino::ROOT, name, mode: 0o755, umask: 0 } });
        let prepare = |(to, peer): &(IslandId, PeerOp)| match peer {
            PeerOp::Prepare { txn, .. } if *to == OTHER => Some((id, *txn)),
            _ => None,
        };
        world.sent.iter().find_map(prepare)
    });
    let (id, txn) = begun.expect("the owner of some is asked");
    // The rows that were read for it leave memory before it is decided.
    world.event(Event::CheckpointWanted);
    world.pass(1_000);
    world.pass(1_000);
    world.disk = Disk::Damaged;
    world.tell(
        OTHER,
        PeerOp::Voted { txn, vote: Vote::Yes { prepared: Stamp::new(1, 3), seen: VoteInfo::Nothing } },
    );
    assert!(world.is_damaged(&RowKey::Dir(Ino::ROOT)), "{:?}", world.damaged);
    assert!(matches!(world.answer(id), Some(Outcome::Failed { errno: Errno::EIO })), "{:?}", world.replies);
    let aborted = |(to, peer): &(IslandId, PeerOp)| {
        *to == OTHER && matches!(peer, PeerOp::Decided { txn: of, stamps: None, .. } if *of == txn)
    };
    assert!(world.sent.iter().any(aborted), "the one that has prepared is told");
}

#[test]
fn a_deferred_journal_that_fails_is_asked_for_again() {
    let mut world = World::new();
    world.lose_power();
    let entries = vec![chmod(Stamp::new(1, 2))];
    world.tell(OTHER, PeerOp::Journal { after: Stamp::default(), entries, private: false });
    assert_eq!(world.island.phase(), Phase::Hidden);
    world.disk = Disk::Damaged;
    for island in [OTHER, THIRD] {
        world.tell_all(island);
    }
    world.pass(200);
    assert!(world.is_damaged(&RowKey::Dir(DIR)), "{:?}", world.damaged);
    world.sent.clear();
    world.disk = Disk::Whole;
    world.event(Event::CheckpointWanted);
    world.pass(200);
    let again = |(to, peer): &(IslandId, PeerOp)| *to == OTHER && matches!(peer, PeerOp::Resend { .. });
    assert!(world.sent.iter().any(again), "{:?}", world.sent);
}

#[test]
fn an_island_that_serves_while_rows_are_read_does_the_rest_of_its_start_then() {
    let mut world = World::new();
    world.lose_power();
    world.tell(
        THIRD,
        PeerOp::Journal { after: Stamp::default(), entries: vec![chmod(Stamp::new(1, 2))], private: false },
    );
    world.disk = Disk::Slow;
    world.tell(OTHER, PeerOp::ReturnedJournal { entries: vec![chmod(Stamp::new(1, 7))] });
    for island in [OTHER, THIRD] {
        world.tell_all(island);
    }
    world.pass(12_100);
    assert_eq!(world.island.phase(), Phase::Normal, "it has waited long enough");
    world.answer_late();
    world.pass(200);
    let posts = |(_, peer): &(IslandId, PeerOp)| match peer {
        PeerOp::Journal { entries, .. } => entries.iter().any(|(_, entry)| *entry == JournalEntry::ClockBump),
        _ => false,
    };
    assert!(world.sent.iter().any(posts), "its clock moves on behind what was lost: {:?}", world.sent);
    assert_eq!(world.island.state().clocks().get(THIRD), Stamp::new(1, 2), "the deferred journal is applied");
}

/// Found as `groups_store --seed 500168`: the request had waited here while its file moved away, and was told EXDEV.
#[test]
fn a_copy_within_a_file_that_has_moved_away_is_not_one_between_islands() {
    let mut world = World::new();
    let gone = Ino(4711);
    let op = Op::CopyRange { from: gone, from_offset: 0, to: gone, to_offset: 9_000, len: 4 };
    let id = world.ask(1, ClientOp::Fs { op });
    assert!(
        matches!(world.answer(id), Some(Outcome::Failed { errno: Errno::ESTALE })),
        "{:?}",
        world.answer(id)
    );
}
