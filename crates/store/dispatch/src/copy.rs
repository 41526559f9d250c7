//! A copy of an island that has a group: its place there, and the engine that it has at the moment. Does what the group's
//! machine wants done.
//!
//! An engine lives once. When the copy is deposed or cut back, its engine is closed, and another one is opened over the
//! same folder.
//!
//! Whoever brings an event does what follows from it, on its own thread: first what must be done in order, unless another
//! thread is at it; then what takes long, while others go on. A simulation does both step by step
//! ([`GroupSetup::in_steps`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};

use atoll_core::{Ino, IslandId, NodeId, Position};
use atoll_disk::Disk;
use atoll_group::{
    Config, Given, Group, GroupEffect, GroupEvent, LeadBy, OpenedLog, Role, SeatFile, SwapOutcome,
};
use atoll_handover::slow;
use atoll_island::Event;
use atoll_proto::control::GroupStatus;
use atoll_proto::{BodyBlocks, FetchedPiece, GroupMessage, GroupRecord, NodeLife};
use bytes::Bytes;

use crate::engine::{Clock, Engine, Net};
use crate::fetch::Answer;
use crate::fill::{self, Taking};
use crate::filling::Weighed;
use crate::fills::Fills;
use crate::follow::NotTaken;
use crate::grouped::{Grouped, Owner};
use crate::leaves::{self, LeavesFilling};
use crate::membership::{Membership, Source, Todo};
use crate::open::{OpenError, Report, Setup, cut_log};
use crate::seat::SeatStore;
use crate::sending::Behind;
use crate::ship::Shipment;
use crate::walk::FillSize;
use crate::work::Work;

/// A copy that could not be opened for lack of space is opened again after so long.
const OPEN_AGAIN_MS: u64 = 2_000;

/// The other copies of a group, and its record. Called on the thread that performs an effect; none of these may wait.
pub trait GroupNet: Send + Sync + 'static {
    /// Sends a message to the copy of an island on another node. `payload`: the records of an `Append`. What cannot be
    /// delivered is dropped: the machines repeat what matters.
    fn tell(&self, island: IslandId, to: NodeId, message: GroupMessage, payload: Bytes);
    /// Reads the record of an island's group: ends with [`GroupCopy::read_done`].
    fn read(&self, island: IslandId, number: u64);
    /// Swaps it: ends with [`GroupCopy::swapped`].
    fn swap(&self, island: IslandId, number: u64, expect: u64, record: GroupRecord);
    /// The log of a copy is about to be cut back to this record: whoever remembers how far it has come is to know it first.
    fn cut(&self, island: IslandId, to: Position);
    /// The copy leads, or follows. Told after each change; and again when answers were dropped, so that clients ask again.
    fn leads(&self, island: IslandId, epoch: Option<u32>);
    /// Something that an administrator must know.
    fn trouble(&self, island: IslandId, why: String);
}

/// The part of a copy's options that is its group's.
#[derive(Debug, Clone)]
pub struct GroupSetup {
    /// The process, the nodes of the group, and how many copies there shall be.
    pub group: Config,
    /// Nothing that follows from an event is done before [`GroupCopy::do_next`] and [`GroupCopy::take_task`] say so.
    pub in_steps: bool,
    /// The copies of this node that are filled, or fill others.
    pub fills: Arc<Fills>,
}

/// Something that takes long.
pub enum Task<D: Disk> {
    /// Effects of the island's machine.
    Work(Arc<Engine<D>>, Box<Work>),
    /// The same, behind others: what leaves at once has left.
    Rest(Arc<Engine<D>>, Box<Work>),
    /// This copy's part of a sync at all members.
    Sync {
        /// By this engine.
        engine: Arc<Engine<D>>,
        /// The epoch of whoever asks.
        epoch: u32,
        /// Number of the round.
        number: u64,
        /// The log is synced up to here.
        seq: u64,
        /// And these bodies. None: all that were named since the snapshot.
        bodies: Option<Vec<Ino>>,
    },
    /// The engine is closed, and the copy opened again.
    Reopen(Anew),
    /// A member is sent records that are no longer in memory.
    Ship(NodeId),
    /// A member is sent bytes of these blocks: the number of its question.
    Fetch(NodeId, Arc<Engine<D>>, u64, Vec<BodyBlocks>),
    /// A copy is sent rows behind this key of the snapshot of this record.
    Rows(NodeId, Arc<Engine<D>>, Position, Vec<u8>),
    /// Bodies are compared with rows that are another copy's.
    Walk(Arc<Engine<D>>),
    /// The primary's bytes have come: the number of the question, what there is of each of its blocks, and they.
    Fetched(Arc<Engine<D>>, u64, Vec<FetchedPiece>, Bytes),
    /// Rows of the primary's snapshot have come.
    TakeRows {
        /// They are as of this record.
        at: Position,
        /// The key behind which they begin.
        after: Vec<u8>,
        /// There are no more.
        last: bool,
        /// They.
        rows: Bytes,
    },
    /// A copy is told how much there is to fill.
    Weigh(NodeId, Arc<Engine<D>>),
}

/// What is done with the files of a copy before it is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anew {
    /// Nothing.
    AsItIs,
    /// Its log is cut back to this record.
    Cut(Position),
    /// The rows that have come take the place of the own ones.
    Filled,
}

impl<D: Disk> std::fmt::Debug for Task<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Work(_, work) | Self::Rest(_, work) => f.debug_tuple("Work").field(work).finish(),
            Self::Sync { epoch, number, seq, .. } => write!(f, "Sync {epoch}.{number} to {seq}"),
            Self::Reopen(cut) => write!(f, "Reopen {cut:?}"),
            Self::Ship(to) => write!(f, "Ship {to}"),
            Self::Fetch(to, _, number, blocks) => write!(f, "Fetch {number} {blocks:?} for {to}"),
            Self::Rows(to, _, at, after) => write!(f, "Rows {at:?} {} for {to}", after.escape_ascii()),
            Self::Walk(_) => write!(f, "Walk"),
            Self::Fetched(_, number, pieces, _) => write!(f, "Fetched {number}, {} pieces", pieces.len()),
            Self::TakeRows { at, after, .. } => write!(f, "TakeRows {at:?} {}", after.escape_ascii()),
            Self::Weigh(to, _) => write!(f, "Weigh for {to}"),
        }
    }
}

/// See the module.
pub struct GroupCopy<D: Disk> {
    id: IslandId,
    pub(crate) setup: Setup,
    pub(crate) in_steps: bool,
    pub(crate) disk: Arc<D>,
    seats: Mutex<SeatStore<D>>,
    pub(crate) place: Arc<Membership>,
    /// None while the copy is opened again, and when that has failed.
    engine: RwLock<Option<Arc<Engine<D>>>>,
    tasks: Mutex<VecDeque<Task<D>>>,
    /// When it is tried to open it again, because its disk had no room for that.
    opens_ms: Mutex<Option<u64>>,
    /// Held while it is opened again. True: it is not any more.
    pub(crate) ended: Mutex<bool>,
    pub(crate) behind: Mutex<BTreeMap<NodeId, Behind>>,
    /// When the primary was asked for rows or bytes last.
    pub(crate) asked_ms: Mutex<Option<u64>>,
    /// Uses by clients when the node was told of them last.
    pub(crate) uses_seen: AtomicU64,
    /// The number of the last question for bytes.
    pub(crate) questions: AtomicU64,
    /// Rows that have come, while the copy is being filled.
    pub(crate) taking: Mutex<Option<Taking>>,
    /// How much there is to fill, as the primary says, or this copy as a primary.
    pub(crate) weighed: Mutex<Weighed>,
    /// What of this node is filled beside it, and whose copy this is.
    pub(crate) fills: (Arc<Fills>, NodeId),
    /// Bytes for others that wait for a sync.
    pub(crate) answers: Mutex<Vec<Answer>>,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) group_net: Arc<dyn GroupNet>,
    pub(crate) clock: Arc<dyn Clock>,
    me: Weak<Self>,
}

impl<D: Disk> std::fmt::Debug for GroupCopy<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCopy").field("island", &self.id).finish_non_exhaustive()
    }
}

impl<D: Disk> GroupCopy<D> {
    /// Opens the copy on `disk`, or makes an empty one where there is none and it is new. It follows until it is made to lead.
    /// `seats` lies beside the island's folder, so that one that is put back from a backup has not its seat with it.
    pub fn open(
        disk: Arc<D>,
        mut seats: SeatStore<D>,
        setup: Setup,
        group: GroupSetup,
        (net, group_net): (Arc<dyn Net>, Arc<dyn GroupNet>),
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, Report), OpenError> {
        let id = setup.island.id;
        let found = seats.load().map_err(|e| OpenError::Io(id, e))?;
        let (seat, setup) = match found {
            None if setup.is_new => (atoll_group::SeatFile::of_a_new_member(), setup),
            // The last start may have ended before the log of an empty copy was made. Nobody counts on such a copy.
            Some(seat) if setup.is_new || fill::is_made(&*disk) => {
                let is_new = setup.is_new || seat.lacks;
                (seat, Setup { is_new, ..setup })
            }
            found => {
                // Something was wiped. It must not be taken for what the group counts on, so that is written down first.
                let seat = match found {
                    Some(seat) => SeatFile { lacks: true, tenure: seat.tenure + 1, ..seat },
                    None => SeatFile::of_an_empty_copy(),
                };
                seats.save(&seat).map_err(|e| OpenError::Io(id, e))?;
                let is_new = !fill::is_made(&*disk);
                if is_new {
                    group_net.cut(id, Position::default());
                    fill::clear(&*disk, id)?;
                }
                group_net.trouble(
                    id,
                    "this copy has no files yet, or not all: it is filled from another one".to_owned(),
                );
                (seat, Setup { is_new, reached: None, ..setup })
            }
        };
        let opened =
            Engine::open_following(Arc::clone(&disk), setup.clone(), Arc::clone(&net), Arc::clone(&clock))?;
        let (engine, report, log) = opened;
        let fills = (group.fills, group.group.me.node);
        let place = Arc::new(Membership::new(group.group, seat, log, Arc::clone(&clock)));
        let setup = Setup { is_new: false, reached: None, ..setup };
        let copy = Arc::new_cyclic(|me: &Weak<Self>| Self {
            id,
            setup,
            in_steps: group.in_steps,
            disk,
            seats: Mutex::new(seats),
            place,
            engine: RwLock::new(None),
            tasks: Mutex::default(),
            opens_ms: Mutex::default(),
            ended: Mutex::default(),
            behind: Mutex::default(),
            asked_ms: Mutex::default(),
            uses_seen: AtomicU64::new(0),
            questions: AtomicU64::new(clock.boot_ms() << 20),
            taking: Mutex::default(),
            weighed: Mutex::default(),
            fills,
            answers: Mutex::default(),
            net,
            group_net,
            clock,
            me: me.clone(),
        });
        copy.set_engine(engine);
        copy.follow_up();
        Ok((copy, report))
    }

    fn set_engine(&self, engine: Engine<D>) {
        let owner: Weak<Self> = self.me.clone();
        let place = Arc::clone(&self.place);
        let grouped = Grouped { number: place.engine(), owner: owner as Weak<dyn Owner>, place };
        assert!(engine.grouped.set(grouped).is_ok(), "an engine has one copy");
        *self.engine.write().expect("no panic while it is held") = Some(Arc::new(engine));
    }

    /// The island.
    pub const fn island(&self) -> IslandId {
        self.id
    }

    /// The engine that it has now. None while it is opened again.
    pub fn engine(&self) -> Option<Arc<Engine<D>>> {
        self.engine.read().expect("no panic while it is held").clone()
    }

    /// What it is doing in its group.
    pub fn role(&self) -> Role {
        self.place.role()
    }

    /// What it knows of its group, for people.
    pub fn status(&self) -> GroupStatus {
        self.place.status()
    }

    /// Whether it may tell others something now: it leads, and no other copy can.
    pub fn may_tell(&self) -> bool {
        self.place.may_tell()
    }

    /// Looks at the group's machine.
    pub fn with_group<R>(&self, look: impl FnOnce(&Group) -> R) -> R {
        self.place.with_group(look)
    }

    // -------------------------------------------------------------------- events

    /// Something has happened.
    pub fn tell(&self, event: GroupEvent) {
        self.place.handle(Source::Copy, event, Vec::new());
        self.follow_up();
    }

    /// A message has come from another copy, with its payload.
    pub fn hear(&self, from: NodeId, link: u64, message: GroupMessage, payload: &Bytes) {
        let records = match &message {
            GroupMessage::Append { after, ends, .. } => match Shipment::decode(*after, ends, payload) {
                Ok(shipment) => shipment.records,
                Err(why) => {
                    let why = format!("node {from} has sent records that cannot be read: {why}");
                    return self.group_net.trouble(self.id, why);
                }
            },
            GroupMessage::Fetch { number, blocks } => {
                let Some(engine) = self.engine() else { return };
                return self.answer(from, Task::Fetch(from, engine, *number, blocks.clone()));
            }
            GroupMessage::FillFrom { at, after } => {
                let Some(engine) = self.engine() else { return };
                return self.answer(from, Task::Rows(from, engine, *at, after.clone()));
            }
            GroupMessage::Weigh => {
                let Some(engine) = self.engine() else { return };
                return self.answer(from, Task::Weigh(from, engine));
            }
            GroupMessage::Weight { epoch, files, bytes } => {
                return self.take_weight(from, *epoch, FillSize { files: *files, bytes: *bytes });
            }
            GroupMessage::Fetched { epoch, number, pieces } => {
                if self.with_group(Group::follows) == Some((from, *epoch)) {
                    let Some(engine) = self.engine() else { return };
                    self.push_task(Task::Fetched(engine, *number, pieces.clone(), payload.clone()));
                    self.follow_up();
                }
                return;
            }
            GroupMessage::Rows { epoch, at, after, last } => {
                if self.with_group(Group::fills_from) == Some((from, *epoch)) {
                    let (at, after, last, rows) = (*at, after.clone(), *last, payload.clone());
                    self.push_task(Task::TakeRows { at, after, last, rows });
                    self.follow_up();
                }
                return;
            }
            _ => Vec::new(),
        };
        self.place.handle(Source::Copy, GroupEvent::Heard { from, link, message }, records);
        self.follow_up();
    }

    /// A read of the record has ended. None: the store was not reached.
    pub fn read_done(&self, number: u64, found: Option<(u64, Option<GroupRecord>)>) {
        self.tell(GroupEvent::ReadDone { number, found });
    }

    /// A swap has ended.
    pub fn swapped(&self, number: u64, outcome: SwapOutcome) {
        self.tell(GroupEvent::Swapped { number, outcome });
    }

    /// Time has passed: called each 100 ms at the least. What takes long is left to others, as nothing may stop the clock.
    pub fn tick(&self) {
        if let Some(engine) = self.engine().filter(|engine| !engine.is_halted()) {
            let event = engine.time();
            let work = engine.begin(event);
            self.take_work(&engine, work);
        }
        self.place.handle(Source::Copy, GroupEvent::Tick, Vec::new());
        if !self.in_steps {
            self.do_all();
        }
        self.open_if_due();
        self.ask_for_rows(false);
        self.ask_for_missing(false);
        self.tell_synced();
        self.tell_uses();
        self.tell_progress();
        if let Some(engine) = self.engine() {
            engine.give_up_pins();
        }
        if self.in_steps {
            self.tell_held();
        }
    }

    /// What is held at the door leaves, if it may be told now. If too much was held, whoever waits for an answer is told to ask
    /// again.
    fn tell_held(&self) {
        let has_dropped = self.engine().is_some_and(|engine| engine.tell_held());
        if let (true, Role::Leading { epoch, .. }) = (has_dropped, self.role()) {
            self.group_net.leads(self.id, Some(epoch));
        }
    }

    /// Takes an event to the island's machine. At a copy that does not lead it is lost.
    pub fn enter(&self, event: Event) {
        if let Some(engine) = self.engine() {
            let work = engine.begin(event);
            self.take_work(&engine, work);
        }
        self.follow_up();
    }

    /// The epoch that a beacon of this node names now, if this copy leads. Takes no lock that is held during I/O.
    pub fn named(&self) -> Option<u32> {
        self.place.named()
    }

    /// A beacon of another node has come. The answer may leave when this returns.
    pub fn beacon(&self, from: NodeLife, epoch: u32) -> Given {
        self.place.beacon(from, epoch)
    }

    /// The nodes to which beacons go.
    pub fn beacons_to(&self) -> Vec<NodeId> {
        self.place.beacons_to()
    }

    // ---------------------------------------------------------- what follows from them

    pub(crate) fn follow_up(&self) {
        if self.in_steps {
            return;
        }
        self.do_all();
        self.finish();
    }

    /// Does what is to be done in order, unless another thread is at it.
    fn do_all(&self) {
        while self.do_next() {}
    }

    /// Does the next of what is to be done in order. False if there is nothing, or another thread is at it.
    pub fn do_next(&self) -> bool {
        let Some(todo) = self.place.take() else { return false };
        self.do_one(todo);
        if let Some(engine) = self.engine()
            && let Some(work) = engine.tell_decides()
        {
            self.take_work(&engine, work);
        }
        self.place.done();
        true
    }

    /// Whether something is to be done in order.
    pub fn has_todo(&self) -> bool {
        self.place.has_todo()
    }

    /// Something that takes long, for [`GroupCopy::perform`].
    pub fn take_task(&self) -> Option<Task<D>> {
        self.lock_tasks().pop_front()
    }

    /// Whether something that takes long waits for a thread.
    pub fn has_tasks(&self) -> bool {
        !self.lock_tasks().is_empty()
    }

    /// Does what takes long and waits for a thread, and tells what is held. Of what fills copies it does one piece, because this
    /// thread is for other copies too: true if more is to be done.
    pub fn run_tasks(&self) -> bool {
        let _leaves = LeavesFilling::begin();
        self.finish();
        if !self.in_steps
            && let Some(piece) = self.take_task()
        {
            self.perform(piece);
        }
        self.has_tasks()
    }

    pub(crate) fn lock_tasks(&self) -> MutexGuard<'_, VecDeque<Task<D>>> {
        self.tasks.lock().expect("no panic while it is held")
    }

    pub(crate) fn push_task(&self, task: Task<D>) {
        self.lock_tasks().push_back(task);
    }

    /// Effects of the island's machine. Also what leaves at once is left to the end: a socket that takes nothing must not stop
    /// what is done in order.
    fn take_work(&self, engine: &Arc<Engine<D>>, work: Work) {
        if !work.is_done() {
            self.push_task(Task::Work(Arc::clone(engine), Box::new(work)));
        }
    }

    fn do_one(&self, todo: Todo) {
        let engine = self.engine();
        match todo {
            Todo::Take { after, upto, records } => self.take_records(after, upto, records),
            Todo::Apply => {
                if let Some(engine) = engine {
                    // What fails here has stopped the engine.
                    _ = engine.apply();
                }
            }
            Todo::Effect(effect) => self.do_effect(engine, effect),
        }
    }

    fn do_effect(&self, engine: Option<Arc<Engine<D>>>, effect: GroupEffect) {
        match effect {
            GroupEffect::SaveSeat(seat) => {
                let saved = self.seats.lock().expect("no panic while it is held").save(&seat);
                if let (Err(error), Some(engine)) = (saved, &engine) {
                    engine.halt(&format!("its seat cannot be saved: {error}"));
                }
            }
            GroupEffect::NoteWhole => {
                if let Some(engine) = engine {
                    engine.note_whole();
                }
            }
            GroupEffect::Read { number } => self.group_net.read(self.id, number),
            GroupEffect::Swap { number, expect, record } => {
                self.group_net.swap(self.id, number, expect, record);
            }
            GroupEffect::Tell { to, message } => self.send(engine, to, message),
            GroupEffect::Committed { seq } => {
                let Some(engine) = engine else { return };
                engine.acknowledged(seq);
                let work = engine.begin(Event::Committed(seq));
                self.take_work(&engine, work);
            }
            GroupEffect::SyncedAll { seq } => {
                let Some(engine) = engine else { return };
                engine.know_synced(seq);
                self.tell_synced();
                self.ship_synced();
                let work = engine.begin(Event::Synced(seq));
                self.take_work(&engine, work);
            }
            GroupEffect::Sync { epoch, number, seq, bodies } => {
                let Some(engine) = engine else { return };
                let bodies = (number != 0).then_some(bodies);
                self.push_task(Task::Sync { engine, epoch, number, seq, bodies });
            }
            GroupEffect::RoundDone { number } => {
                let Some(engine) = engine else { return };
                for event in engine.round_done(number) {
                    let work = engine.begin(event);
                    self.take_work(&engine, work);
                }
            }
            GroupEffect::Lead { epoch, by, synced, soon, .. } => {
                let Some(engine) = engine else { return };
                self.lead(&engine, (epoch, by, synced, soon));
            }
            GroupEffect::Close => self.push_task(Task::Reopen(Anew::AsItIs)),
            GroupEffect::CutTo { to } => self.push_task(Task::Reopen(Anew::Cut(to))),
            GroupEffect::Refill => self.push_task(Task::Reopen(Anew::Filled)),
            GroupEffect::StoreWentBack { has, seen } => self.group_net.trouble(
                self.id,
                format!(
                    "the control store has epoch {has}, and epoch {seen} was seen: it was put back, and nothing is changed by it. \
                     If it is etcd, \"atoll control rebuild\" makes its records anew"
                ),
            ),
            GroupEffect::FillAnew => {
                let why = match self.with_group(Group::fills_from) {
                    Some((primary, _)) => {
                        format!("no log reaches back to what this copy has: node {primary} fills it")
                    }
                    None => "this copy has what was promised, and its primary has not: it stays as it is"
                        .to_owned(),
                };
                self.group_net.trouble(self.id, why);
            }
            GroupEffect::TwoHosts { node } => self
                .group_net
                .trouble(self.id, format!("two machines say that they are node {node}: one is a copy")),
            GroupEffect::Take { .. } => unreachable!("it comes with its records"),
        }
    }

    fn lead(&self, engine: &Arc<Engine<D>>, (epoch, by, synced, soon): (u32, LeadBy, u64, bool)) {
        let mut led = engine.lead_epoch(epoch, by, synced, soon).map(|work| (Arc::clone(engine), work));
        if matches!(led, Err(NotTaken::Differs(_))) {
            // Nobody else has the bytes that it lacks: it is opened again, and gives way to what its bodies have.
            engine.close();
            led = match self.open_again() {
                Ok(_) => {
                    let engine = self.engine().expect("it was opened");
                    engine.lead_epoch(epoch, by, synced, soon).map(|work| (engine, work))
                }
                Err(why) if why.is_no_space() => {
                    // It leads no more, and is opened as any copy that has stepped down.
                    return self.place.handle(Source::Copy, GroupEvent::NoRoomToLead, Vec::new());
                }
                Err(why) => return self.cannot_open(&why),
            };
        }
        match led {
            Ok((engine, work)) => {
                self.take_work(&engine, work);
                self.group_net.leads(self.id, Some(epoch));
            }
            // It has stopped already.
            Err(NotTaken::Halted(_)) => {}
            Err(why @ NotTaken::NoSpace { .. }) => {
                self.group_net.trouble(self.id, format!("this copy cannot lead: {why}"));
                self.place.handle(Source::Copy, GroupEvent::NoRoomToLead, Vec::new());
            }
            Err(why) => engine.halt(&format!("it cannot lead: {why}")),
        }
    }

    fn cannot_open(&self, why: &OpenError) {
        if why.is_no_space() {
            // A full disk stops no island. Until there is room the others go on without this copy.
            self.group_net.trouble(self.id, format!("this copy is opened when its disk has room: {why}"));
            *self.opens_ms.lock().expect("no panic while it is held") =
                Some(self.clock.boot_ms() + OPEN_AGAIN_MS);
            return;
        }
        self.net.halted(self.id, &why.to_string());
        self.place.handle(Source::Copy, GroupEvent::Stopped, Vec::new());
    }

    fn take_records(&self, after: Position, upto: Position, records: Vec<crate::ship::Shipped>) {
        let Some(engine) = self.engine() else { return };
        if !engine.is_filling() {
            // A client of another node waits for this copy, if it is counted.
            self.fills.0.used(self.clock.boot_ms());
        }
        let taken = engine.take(Shipment { after, records });
        let last = engine.last();
        match taken {
            // What came before did not find its place, and that was told.
            Err(NotTaken::Mismatch { .. } | NotTaken::Halted(_) | NotTaken::Leads) => return,
            Ok(()) if last >= upto => {}
            _ => self.place.handle(Source::Copy, GroupEvent::NotTaken { last: last.seq }, Vec::new()),
        }
        self.place.push(Todo::Apply);
    }

    // ------------------------------------------------------------------ what takes long

    /// Effects of the island's machine: first what leaves at once. If others wait too, the rest is left behind them.
    fn work(&self, engine: &Arc<Engine<D>>, mut work: Box<Work>) {
        while work.has_messages() {
            engine.go_on_here(&mut work);
        }
        if !work.is_done() && self.has_tasks() && !self.in_steps {
            return self.push_task(Task::Rest(Arc::clone(engine), work));
        }
        while engine.go_on_here(&mut work) {}
    }

    /// Does something that takes long.
    pub fn perform(&self, task: Task<D>) {
        match task {
            Task::Work(engine, work) => self.work(&engine, work),
            Task::Rest(engine, mut work) => while engine.go_on_here(&mut work) {},
            Task::Sync { engine, epoch, number, seq, bodies } => {
                slow();
                // A client waits for it, here or at another node.
                self.fills.0.used(self.clock.boot_ms());
                let bodies = bodies.unwrap_or_else(|| engine.all_named());
                if engine.sync_here(seq, &bodies).is_ok() {
                    engine.tell_group(GroupEvent::SyncDone { epoch, number, seq });
                }
            }
            Task::Reopen(cut) => self.reopen(cut),
            Task::Ship(to) => self.ship(to),
            Task::Fetch(to, engine, number, blocks) => self.fetch(to, &engine, number, &blocks),
            Task::Rows(to, engine, at, after) => self.send_rows(to, &engine, at, after),
            Task::Walk(engine) => self.walk(&engine),
            Task::Weigh(to, engine) => self.weigh(to, &engine),
            Task::Fetched(engine, number, pieces, bytes) => {
                self.take_fetched(&engine, number, &pieces, &bytes);
            }
            Task::TakeRows { at, after, last, rows } => self.take_rows((at, &after, last), &rows),
        }
        if !self.in_steps {
            self.do_all();
        }
    }

    /// Closes the engine, cuts the log back if it is to be, and opens the copy again.
    fn reopen(&self, anew: Anew) {
        slow();
        let ended = self.ended.lock().expect("no panic while it is held");
        if *ended {
            return;
        }
        self.group_net.leads(self.id, None);
        let old = self.engine.write().expect("no panic while it is held").take();
        if let Some(old) = old {
            old.close();
        }
        self.behind.lock().expect("no panic while it is held").clear();
        self.answers.lock().expect("no panic while it is held").clear();
        match self.change_files(anew).and_then(|()| self.open_again()) {
            Ok(log) => self.place.handle(Source::Copy, GroupEvent::Opened { log }, Vec::new()),
            Err(why) => self.cannot_open(&why),
        }
    }

    fn open_if_due(&self) {
        let mut opens_ms = self.opens_ms.lock().expect("no panic while it is held");
        if opens_ms.take_if(|at| self.clock.boot_ms() >= *at).is_some() {
            drop(opens_ms);
            self.push_task(Task::Reopen(Anew::AsItIs));
        }
    }

    fn change_files(&self, anew: Anew) -> Result<(), OpenError> {
        let taken = self.taking.lock().expect("no panic while it is held").take();
        match anew {
            Anew::AsItIs => Ok(()),
            Anew::Cut(to) => {
                self.group_net.cut(self.id, to);
                // Names of records that go may have been laid: only a look at everything finds them.
                atoll_view::lay_again(&*self.disk).map_err(|e| OpenError::Io(self.id, e))?;
                cut_log(&self.disk, &self.setup, to)
            }
            Anew::Filled => {
                let at = taken.as_ref().map(|taking| taking.at);
                // Its database is closed.
                drop(taken);
                // None: another one has begun meanwhile. It is filled once more.
                let Some(at) = at else { return Ok(()) };
                self.group_net.cut(self.id, at);
                fill::begin(&*self.disk, self.id, at)
            }
        }
    }

    fn open_again(&self) -> Result<OpenedLog, OpenError> {
        let (engine, _, log) = Engine::open_following(
            Arc::clone(&self.disk),
            self.setup.clone(),
            Arc::clone(&self.net),
            Arc::clone(&self.clock),
        )?;
        self.set_engine(engine);
        Ok(log)
    }

    /// Does the work that nobody waits for. Called by one thread, after each [`GroupCopy::tick`].
    pub fn housekeep(&self) {
        if let Some(engine) = self.engine() {
            engine.housekeep();
        }
        self.follow_up();
    }
}

impl<D: Disk> Owner for GroupCopy<D> {
    fn tell(&self, engine: u64, event: GroupEvent) {
        self.place.handle(Source::Engine(engine), event, Vec::new());
        if !self.in_steps {
            self.do_all();
        }
    }

    fn finish(&self) {
        if self.in_steps {
            return;
        }
        loop {
            let Some(task) = leaves::take_own(&mut self.lock_tasks()) else { break };
            self.perform(task);
        }
        self.tell_held();
    }
}
