//! A body that answers late: whatever memory has let go of meanwhile, the request goes on with what
//! the body has said, and nothing is asked of the body twice.

mod snapshot;

use atoll_core::sum::sums_after_write;
use atoll_core::{Ino, IslandId, Name, SessionId, Table, Time};
use atoll_island::{
    BodyDone, BodyFault, BodyOp, BodyOpId, Config, Effect, Event, Island, LinkId, Now, PreviousEnd,
};
use atoll_posix::{Answer, Caller, Kind, Op, XattrMode, xattr};
use atoll_proto::{ClientOp, Outcome, Request};
use atoll_state::{RowLoad, State};
use bytes::Bytes;
use snapshot::Snapshot;

/// An island whose snapshot is a map, and whose bodies are held back.
struct World {
    island: Island,
    snapshot: Snapshot,
    ms: u64,
    seq: u64,
    bodies: Vec<(BodyOpId, BodyOp)>,
    loads: usize,
    replies: Vec<Outcome>,
    /// Syncs of the log are asked for, and do not end.
    hold_syncs: bool,
    checkpoints: usize,
}

impl World {
    fn new() -> Self {
        let config = Config { rows_max: 0, ..Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]) };
        let now = Now { wall: Time::default(), ms: 0 };
        let island = Island::new(config, State::new(1), PreviousEnd::PowerCut, now);
        let (snapshot, bodies, replies) = (Snapshot::default(), Vec::new(), Vec::new());
        let (hold_syncs, checkpoints) = (false, 0);
        let mut world =
            Self { island, snapshot, ms: 0, seq: 0, bodies, loads: 0, replies, hold_syncs, checkpoints };
        world.tick();
        world.ask(0, ClientOp::Attach { mount: false }, b"");
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        let now = Now { wall: Time::default(), ms: self.ms };
        self.island.handle(now, event, &mut out);
        let mut next = Vec::new();
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => next.push(Event::Committed(seq)),
                Effect::Sync if self.hold_syncs => {}
                Effect::Sync => next.push(Event::Synced(self.island.state().seq())),
                Effect::Reply { reply, .. } => self.replies.push(reply.outcome),
                Effect::Notice(..) | Effect::Send(..) | Effect::Beside(..) => {
                    unreachable!("nobody else is there")
                }
                Effect::Damaged(damage) => panic!("{damage}"),
                Effect::Load { load, generation } => {
                    self.loads += 1;
                    let loaded = match &load {
                        RowLoad::Row(key) => self.snapshot.row(key),
                        RowLoad::Dirs { .. } | RowLoad::Sides { .. } => load.nothing(),
                        RowLoad::Names { dir, .. } => self.snapshot.names(*dir),
                    };
                    next.push(Event::Loaded { load, generation, loaded });
                }
                Effect::Body(ticket, op) => self.bodies.push((ticket, op)),
                Effect::Checkpoint { frozen, .. } => {
                    self.snapshot.commit(frozen);
                    self.checkpoints += 1;
                    next.push(Event::CheckpointDone);
                }
            }
        }
        next.into_iter().for_each(|event| self.event(event));
    }

    fn tick(&mut self) {
        self.ms += 1_000;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    /// Everything that is clean leaves memory.
    fn forget(&mut self) {
        self.event(Event::CheckpointWanted);
        (0..4).for_each(|_| self.tick());
    }

    fn ask(&mut self, seq: u64, op: ClientOp, data: &'static [u8]) {
        let request = Request {
            session: SessionId(7),
            seq,
            acked: 0,
            table: self.island.config().table.version(),
            vector: Vec::new(),
            caller: Caller::ROOT,
            op,
        };
        let (link, id, data) = (LinkId(1), self.ms, Bytes::from_static(data));
        self.event(Event::Request { link, id, request, data });
    }

    fn fs(&mut self, op: Op, data: &'static [u8]) {
        self.seq += 1;
        self.ask(self.seq, ClientOp::Fs { op }, data);
    }

    fn answer(&mut self) -> Answer {
        match self.replies.pop() {
            Some(Outcome::Ok { answer, .. }) => answer,
            other => panic!("{other:?} is no answer"),
        }
    }

    fn body(&mut self) -> (BodyOpId, BodyOp) {
        if self.bodies.is_empty() {
            self.tick();
        }
        assert_eq!(self.bodies.len(), 1, "one thing is asked of the body, once");
        self.bodies.remove(0)
    }

    fn done(&mut self) {
        let (ticket, _) = self.body();
        self.event(Event::BodyDone(ticket, Ok(BodyDone::Done)));
    }

    /// A file with these bytes.
    fn file(&mut self, bytes: &'static [u8]) -> Ino {
        self.named(b"file", bytes)
    }

    fn named(&mut self, name: &[u8], bytes: &'static [u8]) -> Ino {
        let (name, target) = (Name::new(name).unwrap(), Bytes::new());
        let kind = Kind::Regular;
        let (mode, umask, rdev, exclusive) = (0o755, 0, 0, true);
        self.fs(Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target }, b"");
        let Answer::Found { found } = self.answer() else { panic!("a create answers what it made") };
        if !bytes.is_empty() {
            self.write(found.attr.ino, 0, bytes);
            self.done();
        }
        found.attr.ino
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: &'static [u8]) {
        self.fs(Op::Write { ino, offset, append: false, kill_set_id: true }, bytes);
    }

    /// What a write of these bytes leaves, of a file that held `before`.
    fn sums(op: &BodyOp, before: &[u8]) -> BodyDone {
        let (BodyOp::SumsAfter { offset, data, size, old, .. }
        | BodyOp::Write { offset, data, size, old: Some(old), .. }) = op
        else {
            panic!("{op:?} asks for no checksums")
        };
        let mut after = before.to_vec();
        after.resize(before.len().max(*offset as usize + data.len()), 0);
        after[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
        let whole = |_, _| Ok::<_, ()>(atoll_core::sum::sum(&after[..4096.min(after.len())]));
        BodyDone::Sums(sums_after_write(*offset, data, *size, old, whole).unwrap())
    }
}

#[test]
fn a_write_whose_rows_were_swept_away_while_the_body_was_read_is_decided_once() {
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    world.forget();
    world.write(ino, 3, b"abc");
    let (ticket, op) = world.body();
    assert!(matches!(op, BodyOp::SumsAfter { .. }), "{op:?}");
    world.forget();
    let loads = world.loads;
    world.event(Event::BodyDone(ticket, Ok(World::sums(&op, b"0123456789"))));
    assert!(world.loads > loads, "the rows were not there any more");
    assert!(matches!(world.answer(), Answer::Wrote { len: 3, offset: 3 }));
    let (_, op) = world.body();
    assert!(matches!(&op, BodyOp::Write { offset: 3, old: None, .. }), "{op:?}");
}

#[test]
fn bytes_in_place_are_decided_although_their_rows_were_swept_away() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    world.forget();
    world.write(ino, 0, &LARGE);
    let (ticket, op) = world.body();
    world.forget();
    world.event(Event::BodyDone(ticket, Ok(World::sums(&op, b"0123456789"))));
    assert!(matches!(world.answer(), Answer::Wrote { len: 40_000, offset: 0 }));
    assert!(world.bodies.is_empty(), "they are not put in place again");
    world.fs(Op::GetAttr { ino }, b"");
    let Answer::Attr { attr } = world.answer() else { panic!("attributes were asked for") };
    assert_eq!(attr.size, 40_000);
}

/// Found as `groups_store --seed 601226`: it waited behind a body that goes when a later record is synced.
#[test]
fn bytes_are_put_in_place_when_their_own_record_is_synced() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    let mut world = World::new();
    world.named(b"b", b"0123456789");
    let ino = world.named(b"a", b"0123456789");
    world.hold_syncs = true;
    let seq = world.island.state().seq();
    // From here on a power cut must not take what the file has.
    world.fs(Op::Fsync { ino }, b"");
    world.bodies.clear();
    world.fs(Op::Unlink { dir: Ino::ROOT, name: Name::new(b"b").unwrap() }, b"");
    world.write(ino, 10, &LARGE);
    assert!(world.bodies.is_empty(), "{:?}", world.bodies);
    world.event(Event::Synced(seq));
    world.island.check();
    let is_large = |op: &BodyOp| matches!(op, BodyOp::Write { offset: 10, .. });
    assert!(world.bodies.iter().any(|(_, op)| is_large(op)), "{:?}", world.bodies);
}

#[test]
fn a_change_of_bytes_takes_the_programs_capabilities_away() {
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    let set = |world: &mut World| {
        let (name, value) = (Bytes::from_static(xattr::CAPABILITY), Bytes::from_static(b"all"));
        world.fs(Op::SetXattr { ino, name, value, mode: XattrMode::Any, kill_sgid: false }, b"");
        assert!(matches!(world.answer(), Answer::Done));
    };
    let has = |world: &mut World| {
        world.fs(Op::GetXattr { ino, name: Bytes::from_static(xattr::CAPABILITY) }, b"");
        matches!(world.replies.pop(), Some(Outcome::Data { .. }))
    };
    set(&mut world);
    world.fs(
        Op::SetXattr {
            ino,
            name: "user.kept".into(),
            value: "x".into(),
            mode: XattrMode::Any,
            kill_sgid: false,
        },
        b"",
    );
    assert!(has(&mut world));
    world.forget();
    world.write(ino, 10, b"more");
    world.done();
    assert!(!has(&mut world), "after a write");
    set(&mut world);
    let smaller = atoll_posix::SetAttr { size: Some(0), ..Default::default() };
    world.fs(Op::SetAttr { ino, set: smaller }, b"");
    world.done();
    assert!(!has(&mut world), "after a truncate");
    set(&mut world);
    let given = atoll_posix::SetAttr { uid: Some(7), ..Default::default() };
    world.fs(Op::SetAttr { ino, set: given }, b"");
    assert!(!has(&mut world), "after a chown");
    world.fs(Op::GetXattr { ino, name: "user.kept".into() }, b"");
    assert!(matches!(world.replies.pop(), Some(Outcome::Data { .. })));
}

/// The file goes while something is under way in its body. Its body goes when that has ended, and not before. What was
/// answered then.
fn goes_when_it_has_ended(
    begin: impl FnOnce(&mut World, Ino),
    result: impl FnOnce(&BodyOp) -> BodyDone,
) -> Vec<Outcome> {
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    begin(&mut world, ino);
    let (ticket, op) = world.body();
    world.fs(Op::Unlink { dir: Ino::ROOT, name: Name::new(b"file").unwrap() }, b"");
    world.forget();
    assert!(world.bodies.is_empty(), "{:?} during {op:?}", world.bodies);
    world.replies.clear();
    world.event(Event::BodyDone(ticket, Ok(result(&op))));
    let answered = std::mem::take(&mut world.replies);
    let (_, after) = world.body();
    assert!(matches!(after, BodyOp::Drop { ino: of } if of == ino), "{after:?}");
    answered
}

#[test]
fn a_body_goes_when_nobody_reads_it_any_more() {
    let read = |world: &mut World, ino| world.fs(Op::Read { ino, offset: 0, len: 10 }, b"");
    goes_when_it_has_ended(read, |_| BodyDone::Done);
}

#[test]
fn a_body_goes_when_nobody_writes_it_any_more() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    goes_when_it_has_ended(|world, ino| world.write(ino, 10, b"carried"), |_| BodyDone::Done);
    goes_when_it_has_ended(|world, ino| world.write(ino, 0, &LARGE), |op| World::sums(op, b"0123456789"));
    goes_when_it_has_ended(|world, ino| world.write(ino, 3, b"abc"), |op| World::sums(op, b"0123456789"));
}

#[test]
fn a_write_ends_whose_file_is_removed_while_its_bytes_are_put_in_place() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    // Behind the end, where the file has no checksums. That it has none there leaves memory meanwhile.
    let write = |world: &mut World, ino| world.write(ino, 8 << 20, &LARGE);
    let answered = goes_when_it_has_ended(write, |op| World::sums(op, b"0123456789"));
    assert_eq!(answered, [Outcome::Failed { errno: atoll_posix::Errno::ESTALE }]);
}

#[test]
fn a_body_goes_when_nobody_changes_its_length_any_more() {
    let cut = |world: &mut World, ino| {
        let set = atoll_posix::SetAttr { size: Some(0), ..Default::default() };
        world.fs(Op::SetAttr { ino, set }, b"");
    };
    goes_when_it_has_ended(cut, |_| BodyDone::Done);
}

#[test]
fn a_body_goes_when_nobody_syncs_it_any_more() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    let sync = |world: &mut World, ino| {
        world.write(ino, 0, &LARGE);
        let (ticket, op) = world.body();
        world.event(Event::BodyDone(ticket, Ok(World::sums(&op, b"0123456789"))));
        world.fs(Op::Fsync { ino }, b"");
    };
    goes_when_it_has_ended(sync, |_| BodyDone::Done);
}

#[test]
fn who_waits_for_a_body_that_goes_is_told_so() {
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    let read = Op::Read { ino, offset: 0, len: 10 };
    world.fs(read.clone(), b"");
    let (ticket, _) = world.body();
    world.write(ino, 10, b"more");
    world.fs(read, b"");
    world.fs(Op::Unlink { dir: Ino::ROOT, name: Name::new(b"file").unwrap() }, b"");
    world.forget();
    world.replies.clear();
    world.event(Event::BodyDone(ticket, Ok(BodyDone::Done)));
    let gone = Outcome::Failed { errno: atoll_posix::Errno::ESTALE };
    assert_eq!(world.replies, [gone.clone(), gone]);
    let (_, op) = world.body();
    assert!(matches!(op, BodyOp::Drop { .. }), "{op:?}");
}

#[test]
fn an_answered_write_waits_for_the_next_tick_or_whoever_comes_next() {
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.answer();
    for (end, comes) in [(10, false), (13, true)] {
        world.forget();
        world.write(ino, end, b"abc");
        assert!(matches!(world.answer(), Answer::Wrote { len: 3, .. }));
        assert!(
            world.bodies.is_empty(),
            "the record must be synced first, or the body may be longer than the file"
        );
        if comes {
            world.fs(Op::Read { ino, offset: 0, len: 3 }, b"");
            let (_, op) = &world.bodies[0];
            assert!(matches!(op, BodyOp::Write { .. }), "{op:?}");
        }
        world.done();
    }
}

#[test]
fn a_large_write_syncs_what_lies_below_it_also_when_the_one_before_it_failed() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.forget();
    world.write(ino, 10, b"carried");
    world.done();
    for _ in 0..2 {
        world.write(ino, 0, &LARGE);
        let (ticket, op) = world.body();
        assert!(matches!(op, BodyOp::Write { sync_first: true, .. }), "{op:?}");
        world.event(Event::BodyDone(ticket, Err(BodyFault(atoll_posix::Errno::ENOSPC))));
    }
}

#[test]
fn a_checkpoint_is_written_when_it_is_synced_that_bytes_were_being_put_in_place() {
    static LARGE: [u8; 40_000] = [7; 40_000];
    let mut world = World::new();
    let ino = world.file(b"0123456789");
    world.forget();
    world.write(ino, 0, &LARGE);
    let (ticket, op) = world.body();
    // All that the checkpoint holds is synced, and what it says of the write under way is not.
    world.fs(Op::FsyncDir { dir: Ino::ROOT }, b"");
    world.hold_syncs = true;
    world.event(Event::CheckpointWanted);
    let before = world.checkpoints;
    world.event(Event::BodyDone(ticket, Ok(World::sums(&op, b"0123456789"))));
    assert_eq!(world.checkpoints, before, "the log that announced the write would go with it");
    world.hold_syncs = false;
    let upto = world.island.state().seq();
    world.event(Event::Synced(upto));
    assert_eq!(world.checkpoints, before + 1);
}
