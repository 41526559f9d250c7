//! The island of a site, with bodies and a snapshot in memory. Everything that it decides is watched; nothing fails, and nothing waits.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_causal::Writer;
use atoll_core::sum::{self, BLOCK_BYTES};
use atoll_core::{Encode, Ino, IslandId, Malformed, Name, SessionId, Table, Time};
use atoll_island::{
    Beside, BesideEvent, BesideSays, BodyDone, BodyOp, Config, Effect, Event, Island, LinkId, Now,
    PreviousEnd,
};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, Whence};
use atoll_proto::{ClientOp, Notice, Outcome, Record, Request, RowChange};
use atoll_shown::COPIES_MAX;
use atoll_state::{CheckpointRows, LoadedRows, NotInMemory, RowKey, RowLoad, State};
use atoll_wide::members::{MemberRow, SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::{Hello, Most};
use atoll_wide::rows::{MEMBERS, SiteId};
use atoll_wide::site::{Site as Machine, SiteConfig};
use atoll_wide::watch::{Happened, happened};
use bytes::Bytes;

/// An answer comes at the latest when time has passed so often.
const PASSES: usize = 40;
/// Lives that were drawn.
static LIVES: AtomicU64 = AtomicU64::new(1);
/// Sites of a volume, if there are fewer: only when all of them are known to lack a version is it lost.
pub(crate) const SITES: u64 = 3;
/// The wall clock between two operations: more than two times that one operation gives are apart.
const STEP_NS: u64 = 1_000_000;

/// Which rows the island has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All.
    Whole,
    /// Those that it has read for what it does. All others leave memory at each [`Site::forget`].
    Swept,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Site {
    island: Island,
    memory: Memory,
    /// The rows after the records so far.
    shadow: State,
    /// Those of them that belong to the machine beside the island.
    sides: BTreeMap<(u8, u128), Bytes>,
    /// The records since the last [`Site::take_records`], if a machine is beside the island.
    log: Option<Vec<(u64, Record)>>,
    snapshot: BTreeMap<Vec<u8>, Vec<u8>>,
    bodies: BTreeMap<Ino, Vec<u8>>,
    queue: VecDeque<Event>,
    replies: BTreeMap<u64, (Outcome, Bytes)>,
    happened: Vec<Happened>,
    said: Vec<BesideSays>,
    /// What is done in bodies, and is told later; none if it is told at once.
    later: Option<Vec<Event>>,
    /// Only users change something: what each record does is read from it.
    is_watched: bool,
    sessions: BTreeMap<SessionId, u64>,
    wall_ns: u64,
    ms: u64,
    /// Bytes that are free on its disk.
    free: u64,
    next_id: u64,
    pub(crate) records: u64,
    /// Records of which all rows that were needed were in the island's memory.
    pub(crate) watched_in_memory: u64,
    pub(crate) loads: u64,
}

impl Site {
    /// A new site with these clients. As mounts they may have files open that have no name.
    pub(crate) fn new(
        memory: Memory,
        sessions: &[SessionId],
        is_mount: bool,
        beside: Option<Box<dyn Beside>>,
    ) -> Self {
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let rows_max = if memory == Memory::Whole { 1 << 40 } else { 0 };
        let wall_ns = 1_000_000_000_000;
        // Later than anything waits.
        let ms = 1 << 20;
        let now = Now { wall: Time::from_nanos(wall_ns), ms };
        let mut island = Island::new(Config { rows_max, ..config }, State::new(1), PreviousEnd::Orderly, now);
        let log = beside.is_some().then(Vec::new);
        if let Some(beside) = beside {
            island.set_beside(beside);
        }
        let mut site = Self {
            island,
            memory,
            shadow: State::new(1),
            sides: BTreeMap::new(),
            log,
            snapshot: BTreeMap::new(),
            bodies: BTreeMap::new(),
            queue: VecDeque::new(),
            replies: BTreeMap::new(),
            happened: Vec::new(),
            said: Vec::new(),
            later: None,
            is_watched: true,
            sessions: sessions.iter().map(|session| (*session, 0)).collect(),
            wall_ns,
            ms,
            free: 1 << 40,
            next_id: 0,
            records: 0,
            watched_in_memory: 0,
            loads: 0,
        };
        site.pass();
        for session in sessions {
            site.send(*session, Caller::ROOT, 0, ClientOp::Attach { mount: is_mount }, Bytes::new());
        }
        assert_eq!(site.take_happened(), [], "nobody has done anything");
        site
    }

    /// The time that operations have now.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.wall_ns)
    }

    /// The bytes of a file.
    pub(crate) fn body(&self, ino: Ino) -> &[u8] {
        self.bodies.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// All that has happened since the last call.
    pub(crate) fn take_happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.happened)
    }

    /// Does an operation at a later time than all before. What is answered, and the bytes beside it.
    pub(crate) fn run(
        &mut self,
        session: SessionId,
        caller: &Caller,
        op: Op,
        data: Bytes,
    ) -> Result<(Answer, Bytes), Errno> {
        self.wall_ns += STEP_NS;
        let count = self.sessions.get_mut(&session).expect("it is attached");
        *count += 1;
        let seq = if op.changes() { *count } else { 0 };
        let answer = self.send(session, caller.clone(), seq, ClientOp::Fs { op }, data);
        // Bytes that are put in place when their record is synced are there at the next tick.
        self.tick(1);
        match answer {
            (Outcome::Ok { answer, .. }, data) => Ok((answer, data)),
            (Outcome::Data { data }, _) => Ok((Answer::Data, data)),
            (Outcome::Failed { errno }, _) => Err(errno),
            (other, _) => panic!("{other:?}"),
        }
    }

    /// The superuser of the first client begins an operation. What is done in bodies takes until [`Self::ends`].
    pub(crate) fn begins(&mut self, op: Op, data: Vec<u8>) -> u64 {
        self.wall_ns += STEP_NS;
        self.later = Some(Vec::new());
        let session = self.session();
        let count = self.sessions.get_mut(&session).expect("it is attached");
        *count += 1;
        let seq = *count;
        let id = self.ask(session, Caller::ROOT, seq, ClientOp::Fs { op }, data.into());
        self.settle();
        assert!(!self.replies.contains_key(&id), "it is under way");
        id
    }

    /// An operation that was begun ends. What is answered.
    pub(crate) fn ends(&mut self, id: u64) -> Outcome {
        self.queue.extend(self.later.take().expect("it was begun"));
        self.settle();
        (0..PASSES).for_each(|_| self.pass());
        self.replies.remove(&id).expect("it is answered").0
    }

    /// The first client.
    pub(crate) fn session(&self) -> SessionId {
        *self.sessions.keys().next().expect("somebody is attached")
    }

    /// Does an operation as the superuser of the first client, which succeeds. The id in the answer, if it tells one.
    pub(crate) fn does(&mut self, op: Op, data: &'static [u8]) -> Option<Ino> {
        let session = self.session();
        let told = format!("{op:?}");
        match self.run(session, &Caller::ROOT, op, Bytes::from_static(data)) {
            Ok((Answer::Found { found }, _)) => Some(found.attr.ino),
            Ok((Answer::Removed { orphan }, _)) => orphan,
            Ok(_) => None,
            Err(errno) => panic!("{told}: {errno:?}"),
        }
    }

    /// A file of the superuser's.
    pub(crate) fn create(&mut self, dir: Ino, name: &str, kind: Kind, target: &'static [u8]) -> Ino {
        let (name, target) = (named(name), Bytes::from_static(target));
        let (mode, umask, rdev, exclusive) = (0o644, 0, 7, true);
        self.does(Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }, b"")
            .expect("it is made")
    }

    /// A directory of the superuser's.
    pub(crate) fn mkdir(&mut self, dir: Ino, name: &str) -> Ino {
        let (name, mode, umask) = (named(name), 0o755, 0);
        self.does(Op::Mkdir { dir, name, mode, umask }, b"").expect("it is made")
    }

    /// All clients have let go of these.
    pub(crate) fn release(&mut self, inos: &[Ino]) {
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            let op = ClientOp::Release { inos: inos.to_vec() };
            let (outcome, _) = self.send(session, Caller::ROOT, 0, op, Bytes::new());
            assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
        }
    }

    /// All clients have let go of what they keep.
    pub(crate) fn release_all(&mut self) {
        let kept = self.kept();
        self.release(&kept);
        (0..4).for_each(|_| self.pass());
    }

    /// What clients keep that has no name.
    pub(crate) fn kept(&self) -> Vec<Ino> {
        let rows = self.sessions.keys().filter_map(|session| self.shadow.session(*session));
        rows.flat_map(|row| row.held.clone()).collect()
    }

    /// The only client goes, with its locks and what it had open.
    pub(crate) fn detach(&mut self) {
        let (session, _) = self.sessions.pop_first().expect("it is attached");
        let (outcome, _) = self.send(session, Caller::ROOT, 0, ClientOp::Detach, Bytes::new());
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    }

    /// All clients say that they are there.
    pub(crate) fn renew(&mut self) {
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            let (outcome, _) = self.send(session, Caller::ROOT, 0, ClientOp::Renew, Bytes::new());
            assert!(matches!(outcome, Outcome::Attached { .. }), "{outcome:?}");
        }
    }

    /// What nobody has used lately leaves memory, as far as memory may not hold all.
    pub(crate) fn forget(&mut self) {
        self.queue.push_back(Event::CheckpointWanted);
        self.settle();
        (0..4).for_each(|_| self.pass());
        self.renew();
    }

    /// The island opens, and its bodies are not as its rows say.
    pub(crate) fn correct(&mut self, changes: Vec<RowChange>) {
        self.island.correct(changes, Vec::new());
        self.pass();
    }

    /// Other sites change something too.
    pub(crate) const fn watch_no_more(&mut self) {
        self.is_watched = false;
    }

    /// Something comes for the machine beside the island.
    pub(crate) fn hear(&mut self, event: BesideEvent) {
        self.wall_ns += STEP_NS;
        self.queue.push_back(Event::Beside(event));
        self.settle();
    }

    /// What it has said since the last call.
    pub(crate) fn take_said(&mut self) -> Vec<BesideSays> {
        std::mem::take(&mut self.said)
    }

    /// Whether changes may be decided from here on.
    pub(crate) fn decides(&mut self, may: bool) {
        self.queue.push_back(Event::Decides(may));
        self.settle();
    }

    /// So many bytes are free on its disk from here on, beyond those that nobody may use.
    pub(crate) fn has_free(&mut self, bytes: u64) {
        self.free = self.island.config().reserve_bytes + bytes;
        self.pass();
    }

    /// Days pass by the wall clock.
    pub(crate) fn days_pass(&mut self, days: u64) {
        self.wall_ns += days * 24 * 3_600 * 1_000_000_000;
        self.pass();
    }

    /// The bodies that it has.
    pub(crate) const fn bodies(&self) -> &BTreeMap<Ino, Vec<u8>> {
        &self.bodies
    }

    /// Time passes.
    pub(crate) fn waits(&mut self) {
        self.pass();
    }

    /// The machine beside the island.
    pub(crate) fn beside<B: Beside>(&self) -> &B {
        self.island.beside().expect("it was set")
    }

    /// Puts another one in its place.
    pub(crate) fn set_beside(&mut self, beside: impl Beside) {
        self.island.set_beside(Box::new(beside));
    }

    /// The records since the last call.
    pub(crate) fn take_records(&mut self) -> Vec<(u64, Record)> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The side rows.
    pub(crate) const fn sides(&self) -> &BTreeMap<(u8, u128), Bytes> {
        &self.sides
    }

    /// What a record would do.
    pub(crate) fn would_do(&self, record: &Record) -> Result<Vec<Happened>, NotInMemory> {
        happened(&self.shadow, record)
    }

    /// The rows.
    pub(crate) const fn state(&self) -> &State {
        &self.shadow
    }

    /// Loads a row of those that are [known](Self::state).
    pub(crate) fn load_known(&mut self, load: RowLoad) {
        let loaded = self.load(&load);
        self.shadow.load(load, loaded).expect("it was written by this code");
    }

    fn send(
        &mut self,
        session: SessionId,
        caller: Caller,
        seq: u64,
        op: ClientOp,
        data: Bytes,
    ) -> (Outcome, Bytes) {
        let id = self.ask(session, caller, seq, op, data);
        self.settle();
        for _ in 0..PASSES {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.pass();
        }
        panic!("no answer");
    }

    fn ask(&mut self, session: SessionId, caller: Caller, seq: u64, op: ClientOp, data: Bytes) -> u64 {
        self.next_id += 1;
        let (id, table) = (self.next_id, self.island.config().table.version());
        let request = Request { session, seq, acked: seq, table, vector: Vec::new(), caller, op };
        self.queue.push_back(Event::Request { link: LinkId(session.0), id, request, data });
        id
    }

    fn pass(&mut self) {
        self.tick(250);
    }

    /// So many milliseconds pass.
    pub(crate) fn tick(&mut self, ms: u64) {
        self.ms += ms;
        self.queue.push_back(Event::Tick { bytes_available: self.free });
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(event) = self.queue.pop_front() {
            // The rows with which the event is decided, those that it brings among them. What was decided before the event, when the
            // island began, is told with it: then they are too new.
            let is_told = self.island.state().seq() == self.shadow.seq();
            let mut before = (self.memory == Memory::Swept && is_told).then(|| self.island.state().clone());
            if let (Some(before), Event::Loaded { load, loaded, .. }) = (&mut before, &event) {
                before.load(load.clone(), loaded.clone()).expect("it was written by this code");
            }
            let mut out = Vec::new();
            self.island.handle(Now { wall: self.now(), ms: self.ms }, event, &mut out);
            for effect in out {
                self.perform(effect, &mut before);
            }
        }
    }

    fn watch(&mut self, seq: u64, record: &Record, before: Option<&mut State>) {
        assert_eq!(seq, self.shadow.seq() + 1);
        let told = if self.is_watched {
            happened(&self.shadow, record).expect("all of it is in memory")
        } else {
            Vec::new()
        };
        if let Some(before) = before.filter(|_| self.is_watched) {
            assert_eq!(happened(before, record).as_ref(), Ok(&told), "of {record:?}");
            self.apply(before, seq, record);
            self.watched_in_memory += 1;
        }
        let mut shadow = std::mem::take(&mut self.shadow);
        self.apply(&mut shadow, seq, record);
        self.shadow = shadow;
        for change in &record.changes {
            if let RowChange::Side { table, id, row } = change {
                match row {
                    Some(row) => drop(self.sides.insert((*table, *id), row.clone())),
                    None => assert!(self.sides.remove(&(*table, *id)).is_some(), "{change:?} was not there"),
                }
            }
        }
        self.log.iter_mut().for_each(|log| log.push((seq, record.clone())));
        self.happened.extend(told);
        self.records += 1;
    }

    /// Applies a record. The checksums of a file that is new are not there, which nobody has said of these rows.
    fn apply(&self, rows: &mut State, seq: u64, record: &Record) {
        for change in &record.changes {
            if let Some(load) = rows.needs(change) {
                rows.load(load.clone(), self.load(&load)).expect("it was written by this code");
            }
            rows.apply(seq, change);
        }
    }

    fn perform(&mut self, effect: Effect, before: &mut Option<State>) {
        match effect {
            Effect::Append(seq, record, _) => {
                self.watch(seq, &record, before.as_mut());
                self.queue.push_back(Event::Committed(seq));
            }
            Effect::Sync => self.queue.push_back(Event::Synced(self.island.state().seq())),
            Effect::Reply { link: LinkId::BESIDE, id, reply, data } => {
                self.queue.push_back(Event::Beside(BesideEvent::did(id, reply.outcome, data)));
            }
            Effect::Reply { id, reply, data, .. } => drop(self.replies.insert(id, (reply.outcome, data))),
            Effect::Notice(link, Notice::Recall | Notice::RecallOf { .. }) => {
                self.ask(SessionId(link.0), Caller::ROOT, 0, ClientOp::Dropped, Bytes::new());
            }
            Effect::Notice(..) => {}
            Effect::Damaged(damage) => panic!("{damage}"),
            Effect::Send(..) => unreachable!("there is no other island"),
            Effect::Beside(_, says) => self.said.push(says),
            Effect::Load { load, generation } => {
                self.loads += 1;
                let loaded = self.load(&load);
                self.queue.push_back(Event::Loaded { load, generation, loaded });
            }
            Effect::Body(ticket, op) => {
                let done = self.in_body(op);
                let done = Event::BodyDone(ticket, Ok(done));
                match &mut self.later {
                    Some(later) => later.push(done),
                    None => self.queue.push_back(done),
                }
            }
            Effect::Checkpoint { frozen, .. } => {
                self.commit(frozen);
                self.queue.push_back(Event::CheckpointDone);
            }
        }
    }

    // ----------------------------------------------------------------- snapshot

    fn commit(&mut self, frozen: CheckpointRows) {
        for (key, row) in frozen.rows {
            match row {
                Some(row) => drop(self.snapshot.insert(key, row)),
                None => drop(self.snapshot.remove(&key)),
            }
        }
    }

    fn load(&self, load: &RowLoad) -> LoadedRows {
        loaded(&self.snapshot, load)
    }

    // ------------------------------------------------------------------- bodies

    fn in_body(&mut self, op: BodyOp) -> BodyDone {
        match op {
            BodyOp::Read { id, reply, ino, offset, len, size, .. } => {
                let data = read(self.body(ino), size, offset, u64::from(len));
                self.replies.insert(id, (reply.outcome, data.into()));
            }
            BodyOp::SumsAfter { ino, offset, data, size, old } => {
                return BodyDone::Sums(sums_after(self.body(ino), offset, &data, size, &old));
            }
            BodyOp::Write { ino, offset, data, size, old, .. } => {
                let sums = old.map(|old| sums_after(self.body(ino), offset, &data, size, &old));
                self.put(ino, offset, &data);
                return sums.map_or(BodyDone::Done, BodyDone::Sums);
            }
            BodyOp::SumAfterCut { ino, len, .. } => {
                let block = len / BLOCK_BYTES;
                let left = read(self.body(ino), len, block * BLOCK_BYTES, BLOCK_BYTES);
                return BodyDone::Edges(vec![(block, sum::sum(&left))]);
            }
            BodyOp::Cut { ino, len, .. } => self.bodies.entry(ino).or_default().resize(len as usize, 0),
            BodyOp::SumsAfterZero { ino, offset, len, size, .. } => {
                let mut after = read(self.body(ino), size, 0, size);
                zero(&mut after, offset, len);
                let sum = |block| sum::sum(&read(&after, size, block * BLOCK_BYTES, BLOCK_BYTES));
                let edges = sum::edges_of_zero(offset, len, size).into_iter();
                return BodyDone::Edges(edges.map(|block| (block, sum(block))).collect());
            }
            BodyOp::Zero { ino, offset, len, .. } => {
                zero(self.bodies.entry(ino).or_default(), offset, len);
            }
            BodyOp::Allocate { ino, offset, len, keep_size, .. } => {
                let body = self.bodies.entry(ino).or_default();
                if !keep_size {
                    body.resize(body.len().max((offset + len) as usize), 0);
                }
            }
            BodyOp::Copy { from: (from, at, from_size, _), to: (to, offset, size, old), len, .. } => {
                let data = read(self.body(from), from_size, at, len);
                let sums = sums_after(self.body(to), offset, &data, size, &old);
                self.put(to, offset, &data);
                return BodyDone::Copied(sums, data.into());
            }
            BodyOp::Seek { offset, whence, size, .. } => {
                return BodyDone::Offset(Some(if whence == Whence::Data { offset } else { size }));
            }
            BodyOp::Fetch { ino, offset, len, size, .. } => {
                return BodyDone::Bytes(read(self.body(ino), size, offset, u64::from(len)).into());
            }
            BodyOp::Sync { .. } => {}
            BodyOp::Drop { ino } => drop(self.bodies.remove(&ino)),
        }
        BodyDone::Done
    }

    fn put(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let (body, end) = (self.bodies.entry(ino).or_default(), offset as usize + data.len());
        body.resize(body.len().max(end), 0);
        body[offset as usize..end].copy_from_slice(data);
    }
}

/// Bytes of a file of `size` bytes. What a body does not have reads as zeros.
fn read(body: &[u8], size: u64, offset: u64, len: u64) -> Vec<u8> {
    let (from, end) = (offset.min(size) as usize, offset.saturating_add(len).min(size) as usize);
    (from..end).map(|at| body.get(at).copied().unwrap_or(0)).collect()
}

fn zero(body: &mut [u8], offset: u64, len: u64) {
    let len_of_all = body.len() as u64;
    body[offset.min(len_of_all) as usize..offset.saturating_add(len).min(len_of_all) as usize].fill(0);
}

fn sums_after(body: &[u8], offset: u64, data: &[u8], size: u64, old: &sum::BlockSums) -> sum::BlockSums {
    let whole = |part: sum::PartialBlock, _| {
        let start = part.block * BLOCK_BYTES;
        let end = (start + part.old_len).max((offset + data.len() as u64).min(start + BLOCK_BYTES));
        let mut after = read(body, size, start, part.old_len);
        after.resize((end - start) as usize, 0);
        for (at, byte) in (offset..).zip(data).filter(|(at, _)| (start..end).contains(at)) {
            after[(at - start) as usize] = *byte;
        }
        Ok::<_, ()>(sum::sum(&after))
    };
    sum::sums_after_write(offset, data, size, old, whole).expect("nothing fails")
}

/// The name of these bytes.
pub(crate) fn named(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("it is a name")
}

/// What a snapshot has. Pages of side tables have three rows, so that some tables need several.
pub(crate) fn loaded(snapshot: &BTreeMap<Vec<u8>, Vec<u8>>, load: &RowLoad) -> LoadedRows {
    match load {
        RowLoad::Row(key) => LoadedRows::Row(snapshot.get(&key.to_bytes()).cloned()),
        RowLoad::Dirs { .. } => load.nothing(),
        RowLoad::Names { dir, from } => {
            let end = RowKey::entries_from(Ino(dir.0 + 1), 0);
            let rows = snapshot.range(RowKey::entries_from(*dir, *from)..end);
            let names = rows.map(|(key, row)| match RowKey::from_bytes(key) {
                Some(RowKey::Entry(_, cookie, name)) => (cookie, name, row.clone()),
                other => panic!("{other:?} among the names"),
            });
            LoadedRows::Names { names: names.collect(), to: u64::MAX }
        }
        RowLoad::Sides { table, from } => {
            let first = RowKey::Side(*table, *from).to_bytes();
            let last = RowKey::Side(*table, u128::MAX).to_bytes();
            let rows = snapshot.range(first..=last).map(|(key, row)| match RowKey::from_bytes(key) {
                Some(RowKey::Side(_, id)) => (id, row.clone()),
                other => panic!("{other:?} in a table"),
            });
            let rows: Vec<_> = rows.take(3).collect();
            let to = if rows.len() < 3 { u128::MAX } else { rows[2].0 };
            LoadedRows::Sides { rows, to }
        }
    }
}

/// What a site without a writer says first that is none: of others it knows nothing.
pub(crate) fn greeting(volume: u64, has: u64, synced: u64) -> Hello {
    let (writer, n, own, writers, lives, life) =
        (Writer(99), 0, Most::default(), Most::default(), Most::default(), None);
    Hello { volume, writer, n, own, writers, lives, has, life, synced }
}

/// The name of the site of a writer.
pub(crate) fn site_name(writer: Writer) -> String {
    format!("s{}", writer.0)
}

/// The rows of a site from which another one is to go on: without the lives of its writer.
pub(crate) fn rows_for_another(site: &Site) -> Vec<(u8, u128, Bytes)> {
    let rows = site.sides().iter().filter(|((table, _), _)| *table != atoll_wide::rows::LIVES);
    rows.map(|((table, id), row)| (*table, *id, row.clone())).collect()
}

/// The machine of a site that goes on from these rows.
pub(crate) fn opened(
    writer: Writer,
    rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
) -> Result<Machine, Malformed> {
    opened_at(writer, 0, Window::MOST, rows)
}

/// The same, behind the record at this position.
pub(crate) fn opened_at(
    writer: Writer,
    position: u64,
    window: Window,
    rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
) -> Result<Machine, Malformed> {
    // A few small files.
    opened_with(writer, position, (window, 50_000), rows)
}

/// The same, with a trash of so many bytes.
pub(crate) fn opened_with(
    writer: Writer,
    position: u64,
    (window, trash_bytes): (Window, u64),
    rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
) -> Result<Machine, Malformed> {
    let site = SiteId(writer.0);
    let members = vec![(site, member(writer))];
    let (island, copies_max) = (IslandId(0), COPIES_MAX);
    let life = LIVES.fetch_add(1, Ordering::Relaxed);
    let config = SiteConfig { volume: 1, site, island, life, members, window, copies_max, trash_bytes };
    let known = (1..=120)
        .chain([5_000])
        .map(|n: u64| (MEMBERS, n.into(), MemberRow::Member { member: member(Writer(n)) }));
    Machine::open(
        config,
        position,
        known.map(|(table, id, row)| (table, id, row.to_vec().into())).chain(rows),
    )
}

/// A site of the volume.
pub(crate) fn member(writer: Writer) -> SiteMember {
    let state = if writer.0 <= SITES { SiteStanding::Active } else { SiteStanding::Left };
    let key = vec![1; 32].into();
    SiteMember { version: 1, state, writer, name: site_name(writer), addresses: Vec::new(), key }
}
