//! The machine beside an island: it sees each record before its rows are set, adds to it, and is asked before directories get another
//! parent.

use atoll_core::{Ino, IslandId, Name, SessionId, Table};
use atoll_island::{Beside, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode};
use atoll_proto::{ClientOp, EntryRef, Outcome, Record, Request, RowChange};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;

const ROOT: Ino = Ino::ROOT;
const TABLE: u8 = b'z';

/// Counts records, writes the count beside each directory and into a row of each record's own, and keeps directories where they are.
#[derive(Debug, Clone, Default)]
struct Counting {
    records: u64,
    moves: Vec<(Ino, EntryRef)>,
    keeps: bool,
}

impl Beside for Counting {
    fn witness(&mut self, state: &State, _: Now, seq: u64, record: &mut Record) {
        assert_eq!(state.seq() + 1, seq, "these are the rows of before");
        self.records += 1;
        let count = Bytes::copy_from_slice(&self.records.to_le_bytes());
        for change in &mut record.changes {
            if let RowChange::Dir { ino, row: Some(row) } = change {
                // Of one that is made nothing is in memory.
                let before = state.dir(*ino).ok().flatten();
                assert_eq!(before.and_then(|row| row.beside.as_ref()), row.beside.as_ref(), "of {ino}");
                row.beside = Some(count.clone());
            }
        }
        record.changes.push(RowChange::Side { table: TABLE, id: seq.into(), row: Some(count) });
    }

    fn allows_moves(&self, state: &State, _: Now, moves: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        assert!(moves.iter().all(|(ino, _)| state.dir(*ino).unwrap().is_some()));
        Ok(!self.keeps || moves.iter().all(|moved| !self.moves.contains(moved)))
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

struct World {
    island: Island,
    records: Vec<(u64, Record)>,
    next: u64,
}

impl World {
    fn new(beside: Option<Counting>) -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let config = Config { rows_max: 1 << 40, ..config };
        let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        if let Some(beside) = beside {
            island.set_beside(Box::new(beside));
        }
        let mut world = Self { island, records: Vec::new(), next: 0 };
        world.event(Event::Tick { bytes_available: 1 << 40 });
        assert!(matches!(world.ask(ClientOp::Attach { mount: false }), Outcome::Attached { .. }));
        world
    }

    fn event(&mut self, event: Event) -> Option<Outcome> {
        let (mut out, mut answer) = (Vec::new(), None);
        self.island.handle(Now::default(), event, &mut out);
        for effect in out {
            let more = match effect {
                Effect::Append(seq, record, _) => {
                    self.records.push((seq, record));
                    self.event(Event::Committed(seq))
                }
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { reply, .. } => Some(reply.outcome),
                Effect::Notice(..) => None,
                other => panic!("{other:?}"),
            };
            answer = more.or(answer);
        }
        self.island.check();
        answer
    }

    fn ask(&mut self, op: ClientOp) -> Outcome {
        self.next += 1;
        let (id, session, caller) = (self.next, SessionId(1), Caller::ROOT);
        let request = Request { session, seq: id, acked: id, table: 1, vector: Vec::new(), caller, op };
        let event = Event::Request { link: LinkId(1), id, request, data: Bytes::new() };
        self.event(event).expect("it is answered")
    }

    fn does(&mut self, op: Op) -> Result<Option<Ino>, Errno> {
        match self.ask(ClientOp::Fs { op }) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => Ok(Some(found.attr.ino)),
            Outcome::Ok { .. } => Ok(None),
            Outcome::Failed { errno } => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    fn mkdir(&mut self, dir: Ino, name: &str) -> Ino {
        let op = Op::Mkdir { dir, name: named(name), mode: 0o755, umask: 0 };
        self.does(op).expect("it is made").expect("its id is told")
    }

    fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<(), Errno> {
        let (dir, name, new_dir, new_name) = (from.0, named(from.1), to.0, named(to.1));
        self.does(Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }).map(drop)
    }

    fn counting(&self) -> &Counting {
        self.island.beside().expect("it was set")
    }
}

fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

#[test]
fn each_record_is_seen_with_the_rows_of_before_and_has_what_was_added() {
    let mut world = World::new(Some(Counting::default()));
    let first = world.records.len() as u64 - world.counting().records;
    assert_eq!(first, world.records.iter().filter(|(_, record)| !has_side(record)).count() as u64);
    let dir = world.mkdir(ROOT, "d");
    let below = world.mkdir(dir, "below");
    world.rename((dir, "below"), (ROOT, "moved"), RenameMode::NoReplace).unwrap();
    let all = world.counting().records;
    assert_eq!(all, world.records.len() as u64 - first);
    for (at, (seq, record)) in (1..).zip(world.records.iter().skip(first as usize)) {
        let count = Bytes::copy_from_slice(&u64::to_le_bytes(at));
        let side = RowChange::Side { table: TABLE, id: u128::from(*seq), row: Some(count.clone()) };
        assert_eq!(record.changes.last(), Some(&side), "the record goes to the log with it");
        assert_eq!(world.island.state().side(TABLE, u128::from(*seq)), Ok(Some(&count)));
    }
    let beside = |ino| world.island.state().dir(ino).unwrap().unwrap().beside.clone();
    assert_eq!(beside(dir), beside(below), "the last record has the rows of both");
    assert!(beside(ROOT).is_some());
}

fn has_side(record: &Record) -> bool {
    record.changes.iter().any(|change| matches!(change, RowChange::Side { .. }))
}

#[test]
fn the_records_that_begin_an_island_come_before_it() {
    let world = World::new(None);
    let first = world.island.state().seq();
    let root = |(_, record): &(u64, Record)| {
        record.changes.iter().any(|change| matches!(change, RowChange::Dir { ino: ROOT, .. }))
    };
    assert!(world.records.iter().any(root));
    assert_eq!(world.records.len() as u64, first);
    let with = World::new(Some(Counting::default()));
    assert!(!with.records.iter().any(|record| root(record) && has_side(&record.1)), "the root's is not seen");
    assert_eq!(with.island.state().seq(), first, "it makes no records");
}

#[test]
fn directories_that_may_not_get_another_parent_stay_and_are_busy() {
    let mut world = World::new(None);
    let (a, b) = (world.mkdir(ROOT, "a"), world.mkdir(ROOT, "b"));
    let (c, d) = (world.mkdir(a, "c"), world.mkdir(b, "d"));
    let moved = |ino, dir, name| (ino, EntryRef { dir, name: named(name) });
    let moves = vec![moved(c, b, "c"), moved(d, a, "c")];
    world.island.set_beside(Box::new(Counting { moves, keeps: true, ..Counting::default() }));
    let before = world.records.len();
    assert_eq!(world.rename((a, "c"), (b, "c"), RenameMode::NoReplace), Err(Errno::EBUSY));
    assert_eq!(world.rename((a, "c"), (b, "d"), RenameMode::Exchange), Err(Errno::EBUSY));
    let place = |world: &World, ino| world.island.state().dir(ino).unwrap().unwrap().place.parent;
    assert_eq!((place(&world, c), place(&world, d)), (a, b));
    assert_eq!(world.records.len(), before, "nothing is decided");
    world.rename((a, "c"), (a, "e"), RenameMode::NoReplace).expect("in place nothing is asked");
    world.rename((a, "e"), (b, "e"), RenameMode::NoReplace).expect("it is allowed");
    assert_eq!(place(&world, c), b);
}

#[test]
fn a_copy_of_an_island_has_a_machine_of_its_own_beside_it() {
    let mut world = World::new(Some(Counting::default()));
    let copy = world.island.clone();
    let records = world.counting().records;
    world.mkdir(ROOT, "d");
    assert!(world.counting().records > records);
    assert_eq!(copy.beside::<Counting>().map(|beside| beside.records), Some(records));
}
