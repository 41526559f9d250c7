//! The machine beside an island brings bytes of files through the real engine, and power cuts come in between.

mod common;

use std::collections::VecDeque;

use atoll_core::{Ino, IslandId, Name};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_island::{Beside, BesideEvent, BesideRecord, BesideStep, BesideView, Now};
use atoll_posix::{Answer, Attr, Errno, Kind, Op};
use atoll_proto::{ClientOp, Entry, EntryRef, Inode, Outcome, Record, RowChange};
use atoll_state::{NotInMemory, RowKey, RowLoad, State};
use bytes::Bytes;
use common::Life;

const SIZE: u64 = 100_000;
const ROOT: Ino = Ino::ROOT;

/// How an operation has ended.
type Done = Result<(Answer, Bytes), Errno>;

#[derive(Debug, Clone)]
enum Todo {
    /// A file that is absent and has this name, or an empty one that has none.
    Make(Option<Name>),
    /// On the file that was made.
    Do(fn(Ino, Bytes) -> Op, Bytes),
    /// Its bytes are here.
    Arrives,
}

/// Does one thing after the other, as long as all goes well.
#[derive(Debug, Clone, Default)]
struct Bringing {
    ino: Option<Ino>,
    todo: VecDeque<Todo>,
    waits: bool,
    done: Vec<Done>,
}

impl Bringing {
    fn record(&self, state: &State, todo: &Todo, ino: Ino) -> Result<BesideRecord, NotInMemory> {
        let (mut changes, mut made) = (Vec::new(), Vec::new());
        match todo {
            Todo::Make(name) => {
                let (nlink, size) = if name.is_some() { (1, SIZE) } else { (0, 0) };
                let row = Inode {
                    attr: Attr { mode: 0o644, nlink, size, ..Attr::blank(ino, Kind::Regular) },
                    target: None,
                    has_xattrs: false,
                    has_acl: false,
                    moves: 0,
                    orphan_of: Vec::new(),
                    beside: Some("state".into()),
                    is_absent: name.is_some(),
                };
                changes.push(RowChange::Inode { ino, row: Some(Box::new(row)) });
                if let Some(name) = name.clone() {
                    let mut root = state.dir(ROOT)?.expect("it is there").clone();
                    root.owned.as_mut().expect("it is owned").entries += 1;
                    let entry = Entry { ino, kind: Kind::Regular, home: IslandId(0), stub: None };
                    changes.push(RowChange::Entry { dir: ROOT, name, row: Some(entry) });
                    changes.push(RowChange::Dir { ino: ROOT, row: Some(Box::new(root)) });
                }
                made.push(ino);
            }
            Todo::Arrives => {
                let row = Inode { is_absent: false, ..state.inode(ino)?.expect("it is there").clone() };
                changes.push(RowChange::Inode { ino, row: Some(Box::new(row)) });
            }
            Todo::Do(..) => unreachable!("it is no record"),
        }
        Ok(BesideRecord { record: Record { changes, bodies: Vec::new() }, made })
    }
}

impl Beside for Bringing {
    fn witness(&mut self, _: &State, _: Now, _: u64, _: &mut Record) {}

    fn allows_moves(&self, _: &State, _: Now, _: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        Ok(true)
    }

    fn hear(&mut self, event: BesideEvent) {
        if let BesideEvent::Did { id, done } = event {
            assert_eq!((id, self.waits), (self.done.len() as u64, true), "each is told once");
            self.waits = false;
            if done.is_err() {
                self.todo.clear();
            }
            self.done.push(done);
        }
    }

    fn step(&mut self, view: BesideView<'_>, mint: &mut dyn FnMut() -> Option<Ino>) -> BesideStep {
        if self.waits || !view.may_decide {
            return BesideStep::Rest;
        }
        let Some(todo) = self.todo.front().cloned() else { return BesideStep::Rest };
        if let Todo::Do(op, data) = todo {
            (self.waits, _) = (true, self.todo.pop_front());
            let (id, ino) = (self.done.len() as u64, self.ino.expect("it is made"));
            return BesideStep::Do { id, op: op(ino, data.clone()), data };
        }
        let Some(ino) = self.ino.or_else(mint) else { return BesideStep::Ids };
        self.ino = Some(ino);
        match self.record(view.state, &todo, ino) {
            Ok(record) => {
                self.todo.pop_front();
                BesideStep::Decide(record)
            }
            Err(NotInMemory(load)) => BesideStep::Load(vec![load]),
        }
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// What is written begins with where it goes.
fn write(ino: Ino, data: Bytes) -> Op {
    Op::Write { ino, offset: offset_of(&data), append: false, kill_set_id: false }
}

fn fsync(ino: Ino, _: Bytes) -> Op {
    Op::Fsync { ino }
}

fn read(ino: Ino, _: Bytes) -> Op {
    Op::Read { ino, offset: 0, len: 1 << 20 }
}

fn offset_of(data: &[u8]) -> u64 {
    u64::from_le_bytes(data[..8].try_into().unwrap())
}

/// These bytes of the file, which begin with their offset.
fn piece(offset: u64, len: usize) -> Bytes {
    let mut bytes = offset.to_le_bytes().to_vec();
    bytes.extend((offset..).skip(8).map(|at| (at % 251) as u8).take(len - 8));
    bytes.into()
}

/// The pieces, in the order in which they come: small ones lie in records, large ones do not.
fn pieces() -> Vec<Bytes> {
    [(60_000, 40_000), (0, 9_000), (9_000, 3_000), (12_000, 48_000)].map(|(at, len)| piece(at, len)).into()
}

fn whole() -> Bytes {
    let mut whole = vec![0; SIZE as usize];
    for piece in pieces() {
        let at = offset_of(&piece) as usize;
        whole[at..at + piece.len()].copy_from_slice(&piece);
    }
    whole.into()
}

/// A machine that goes on with these.
fn begin(life: &Life, ino: Option<Ino>, todo: Vec<Todo>) {
    let machine = Bringing { ino, todo: todo.into(), ..Bringing::default() };
    life.engine.with_island(|island| island.set_beside(Box::new(machine)));
    (0..4).for_each(|_| life.engine.tick());
}

fn machine(life: &Life) -> Bringing {
    life.engine.with_island(|island| island.beside::<Bringing>().expect("it was set").clone())
}

fn inode(life: &Life, ino: Ino) -> Option<Inode> {
    let load = RowLoad::Row(RowKey::Inode(ino));
    let loaded = life.engine.load(&load).unwrap();
    life.engine.with_state(|state| {
        if state.inode(ino).is_err() {
            state.load(load, loaded).unwrap();
        }
        state.inode(ino).unwrap().cloned()
    })
}

fn lookup(life: &mut Life, name: &str) -> Option<Ino> {
    life.ask(0, ClientOp::Attach { mount: false }, b"");
    let op = Op::Lookup { dir: ROOT, name: named(name) };
    match life.ask(0, ClientOp::Fs { op }, b"").0 {
        Outcome::Ok { answer: Answer::Found { found }, .. } => Some(found.attr.ino),
        Outcome::Failed { errno: Errno::ENOENT } => None,
        other => panic!("{other:?}"),
    }
}

/// Makes the file and brings its bytes: first those of two pieces, which are synced.
fn brings(name: Option<&str>) -> Vec<Todo> {
    let [a, b, c, d]: [Bytes; 4] = pieces().try_into().unwrap();
    let sync = || Todo::Do(fsync, Bytes::new());
    let mut todo = vec![Todo::Make(name.map(named)), Todo::Do(write, a), Todo::Do(write, b), sync()];
    todo.extend([Todo::Do(write, c), Todo::Do(write, d), sync(), Todo::Do(read, Bytes::new())]);
    todo
}

#[test]
fn bytes_are_brought_and_read_back_and_a_client_reads_them_when_all_are_here() {
    let mut life = Life::new(SimDisk::new(1), true, 1);
    begin(&life, None, brings(Some("f")));
    let done = machine(&life).done;
    assert_eq!(done.len(), 7, "{done:?}");
    assert_eq!(done[6], Ok((Answer::Data, whole())));
    let ino = lookup(&mut life, "f").unwrap();
    let ask = |op| ClientOp::Fs { op };
    let (seen, _) = life.ask(0, ask(Op::GetAttr { ino }), b"");
    assert!(
        matches!(seen, Outcome::Ok { answer: Answer::Attr { attr }, .. } if attr.size == SIZE),
        "{seen:?}"
    );
    assert_eq!(life.ask(0, ask(read(ino, Bytes::new())), b"").0, Outcome::NotNow);
    begin(&life, Some(ino), vec![Todo::Arrives]);
    assert_eq!(life.ask(0, ask(read(ino, Bytes::new())), b"").1, whole());
    assert_eq!(life.damage(), [""; 0]);
}

#[test]
fn a_file_without_a_name_survives_a_restart_and_a_power_cut() {
    let life = Life::new(SimDisk::new(2), true, 1);
    begin(&life, None, brings(None));
    let Bringing { ino, done, .. } = machine(&life);
    let ino = ino.unwrap();
    assert_eq!(done.last(), Some(&Ok((Answer::Data, whole()))));
    let mut disk = (**life.engine.disk()).clone();
    drop(life);
    for (n, fault) in [Fault::ProcessDeath, Fault::PowerCut { seed: 3 }].into_iter().enumerate() {
        disk = disk.revive(fault);
        let life = Life::new(disk.clone(), false, 2 + n as u64);
        assert_eq!(inode(&life, ino).map(|row| (row.attr.nlink, row.attr.size)), Some((0, SIZE)));
        begin(&life, Some(ino), vec![Todo::Do(read, Bytes::new())]);
        assert_eq!(machine(&life).done, [Ok((Answer::Data, whole()))]);
        life.engine.stop().unwrap();
    }
}

/// The power fails after so many effects on the disk. Whether there were so many.
fn dies(effects: u64, seed: u64) -> bool {
    let disk = SimDisk::new(seed);
    let mut life = Life::new(disk.clone(), true, 1);
    let mut todo = brings(Some("f"));
    begin(&life, None, vec![todo.remove(0)]);
    let ino = machine(&life).ino;
    if seed.is_multiple_of(2) {
        // Its row is synced, and no bytes were yet.
        lookup(&mut life, "f");
        life.ask(0, ClientOp::Fs { op: Op::FsyncDir { dir: ROOT } }, b"");
    }
    life.may_halt();
    disk.die_after(effects);
    todo.push(Todo::Arrives);
    begin(&life, ino, todo);
    let told = machine(&life).done;
    let died = disk.is_dead();
    drop(life);
    let context = format!("after {effects} effects, seed {seed}");
    let mut life = Life::new(disk.revive(Fault::PowerCut { seed }), false, 2);
    let Some(ino) = lookup(&mut life, "f") else {
        assert!(!told.iter().any(|done| matches!(done, Ok((Answer::Done, _)))), "it was synced: {context}");
        return died;
    };
    let row = inode(&life, ino).expect("it has a name");
    assert_eq!(row.attr.size, SIZE, "{context}");
    begin(&life, Some(ino), vec![Todo::Do(read, Bytes::new())]);
    let found = machine(&life).done.remove(0).unwrap_or_else(|errno| panic!("{errno:?} {context}")).1;
    assert_eq!(found.len() as u64, SIZE, "{context}");
    // Those that were synced when the machine was told so are there.
    let synced = told.iter().rposition(|done| matches!(done, Ok((Answer::Done, _)))).unwrap_or(0);
    let there = if row.is_absent { synced.div_ceil(3) * 2 } else { 4 };
    for piece in &pieces()[..there.min(4)] {
        let at = offset_of(piece) as usize;
        assert!(found[at..at + piece.len()] == piece[..], "at {at} {context}");
    }
    // And all the others can come once more.
    if row.is_absent {
        let mut todo: Vec<Todo> = pieces().into_iter().map(|piece| Todo::Do(write, piece)).collect();
        todo.extend([Todo::Do(fsync, Bytes::new()), Todo::Arrives]);
        begin(&life, Some(ino), todo);
    }
    let read = ClientOp::Fs { op: read(ino, Bytes::new()) };
    assert_eq!(life.ask(0, read, b"").1, whole(), "{context}");
    assert_eq!(life.damage(), [""; 0], "{context}");
    died
}

#[test]
fn after_a_power_cut_what_was_synced_is_there_and_the_rest_can_come_again() {
    for seed in 0..20 {
        let mut effects = 1;
        while dies(effects, seed) {
            effects += 1;
        }
        assert!(effects > 12, "only {effects} effects");
    }
}
