//! The machine itself: takes events, runs requests, holds answers back until what they show is
//! committed, and knows where every request waits.

use atoll_core::map::{IdMap, IdSet};
use std::collections::{BTreeMap, VecDeque};

use atoll_core::planted::{Bug, planted};
use atoll_core::{H3, Ino, IslandId, Key, SessionId, Stamp, Table, Time, TxnId};
use atoll_posix::perm::Denied;
use atoll_posix::{Caller, Errno, Op};
use atoll_proto::{ClientOp, CutLost, Outcome, Reply, Request, Spot};
use atoll_state::{Load, Miss, State};
use bytes::Bytes;

use crate::bounded::Bounded;
use crate::checkpoint::Checkpointing;
use crate::counters::Counters;
use crate::data::InBody;
use crate::decision::Decision;
use crate::enumerate::Enumerating;
use crate::event::{BodyDone, BodyFault, Effect, Event, LinkId, Now, Ticket};
use crate::gate::Gates;
use crate::holds::Holds;
use crate::journal::Journal;
use crate::mover::{Mover, Moving};
use crate::recovery::{Ended, Recovery};
use crate::sessions::{Asker, Sessions};
use crate::skeleton::Unpruned;
use crate::symlinks::Symlinks;
use crate::txn::Txns;

/// Milliseconds after which what waits for another island fails with `EIO`.
pub(crate) const PATIENCE_MS: u64 = 10_000;
/// Milliseconds that a starting island waits for the others' answers.
pub(crate) const HELLO_MS: u64 = 2_000;
/// Records between two checkpoints, in changed rows.
const CHECKPOINT_ROWS: usize = 40_000;
/// Time between two looks at which rows in memory are unused.
const SWEEP_MS: u64 = 1_000;
/// Changed rows are memory too: a checkpoint does not wait for more than may stay. But not for fewer.
const CHECKPOINT_ROWS_MIN: usize = 5_000;
/// Milliseconds between two checkpoints, if anything has changed.
const CHECKPOINT_MS: u64 = 10_000;
/// Milliseconds after which what nobody has synced is synced.
pub(crate) const SYNC_MS: u64 = 1_000;

/// What an island needs to know of itself and of its volume.
#[derive(Debug, Clone)]
pub struct Config {
    /// This island.
    pub id: IslandId,
    /// The volume's seed.
    pub seed: u64,
    /// Who owns what.
    pub table: Table,
    /// All islands of the volume, this one too.
    pub islands: Vec<IslandId>,
    /// Permission bits, owner and group of the root directory when the volume is made.
    pub root_mode: u32,
    /// See `root_mode`.
    pub root_uid: u32,
    /// See `root_mode`.
    pub root_gid: u32,
    /// Rows of each kind that may stay in memory although the snapshot has them.
    pub rows_max: usize,
    /// Bytes that must stay free on the disk, so that deletes and checkpoints still work.
    pub reserve_bytes: u64,
    /// Entries of its journal that an island keeps for one that is away.
    pub outbox_max: usize,
    /// Encoded bytes of these at most.
    pub outbox_bytes_max: u64,
    /// When files follow their names to other islands; none if they stay where they are.
    pub moving: Option<Moving>,
}

impl Config {
    /// An island that keeps a thousand rows, leaves a full disk to others and moves no files; the root is
    /// user 0's.
    pub const fn new(id: IslandId, seed: u64, table: Table, islands: Vec<IslandId>) -> Self {
        Self {
            id,
            seed,
            table,
            islands,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            rows_max: 1000,
            reserve_bytes: 0,
            outbox_max: crate::OUTBOX_MAX,
            outbox_bytes_max: crate::OUTBOX_BYTES_MAX,
            moving: None,
        }
    }
}

/// What an island lets in (Archipelago 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Reading its log and exchanging journals with the others; requests wait.
    Hidden,
    /// Everything.
    Normal,
}

/// A request under way.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) link: LinkId,
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) data: Bytes,
    pub(crate) since_ms: u64,
    /// How often it was begun again because of others.
    pub(crate) attempts: u32,
    /// Position of the last record before it came.
    pub(crate) upto: u64,
    /// It was carried out before, and waits for something to be answered as it was then.
    pub(crate) again: bool,
}

impl Call {
    pub(crate) fn caller(&self) -> &Caller {
        &self.request.caller
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.request.session
    }
}

/// How far a request got.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// It only looked: the answer waits until what it saw is committed.
    Looked(Outcome),
    /// It decided a record: the answer waits for that.
    Decided(Outcome),
    /// It goes on when something else has happened.
    Later(Later),
    /// Its answer is on the way.
    Answered,
}

/// What a request waits for, that goes on from where it is.
#[derive(Debug, Clone)]
pub(crate) enum Later {
    /// The outcome of its transaction.
    Txn(TxnId),
    /// A body operation.
    Body(Ticket),
    /// All reachable islands to apply this much of the journal; then the answer.
    Applied(Stamp, Outcome),
    /// The log to be synced up to here.
    Synced(u64),
}

/// Why a request did not get through.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    Fail(Errno),
    NeedGroups,
    /// Another island is needed that is away: nothing was done, and the client asks again as long as
    /// it has patience.
    NotNow,
    /// What is missing here may have been lost, and all others are about to tell: the client asks again.
    Unheard,
    /// Begin again when these are in memory.
    Load(Vec<Load>),
    /// Begin again when the body is free.
    Gate(Ino),
    /// Begin again when the transaction has ended.
    Txn(TxnId),
    /// Begin again when a lock on the file was given up.
    Locked(Ino),
    /// The file is homed there now.
    Moved {
        to: IslandId,
        moves: u32,
    },
    /// A listing cannot go on: its cut is gone.
    CutLost(CutLost),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno)
    }
}

impl From<Miss> for Stop {
    fn from(Miss(load): Miss) -> Self {
        Self::Load(vec![load])
    }
}

impl From<Denied> for Stop {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Errno(errno) => Self::Fail(errno),
            Denied::NeedGroups => Self::NeedGroups,
        }
    }
}

/// Something that waits for rows.
#[derive(Debug, Clone)]
pub(crate) enum Parked {
    /// Something that looks again by itself.
    Nobody,
    Call(Call),
    Peer(atoll_proto::PeerMessage),
    /// A request whose body operation is done.
    Body(Ticket, Result<BodyDone, BodyFault>),
    /// What was lost, and is done again.
    Lost,
    /// All have prepared.
    Commit(TxnId),
    /// A comparison of this island's.
    Compare,
    /// The end of a session.
    Ending(SessionId),
}

/// An island. See the crate.
#[derive(Debug, Clone)]
pub struct Island {
    pub(crate) config: Config,
    pub(crate) h3: H3,
    pub(crate) state: State,
    pub(crate) phase: Phase,
    pub(crate) now: Now,
    /// Position of the last record before the request that is run came.
    pub(crate) upto: u64,
    last_time: Time,
    pub(crate) committed: u64,
    pub(crate) synced: u64,
    pub(crate) sync_wanted: u64,
    pub(crate) unsynced_since_ms: Option<u64>,
    pub(crate) last_stamp: Stamp,
    pub(crate) mint_next: u64,
    pub(crate) mint_limit: u64,
    /// Bytes that may still be used up before only deletes are let through.
    pub(crate) room: u64,
    /// Records find no space: what would change something is refused before it is decided.
    log_stuck: bool,
    pub(crate) out: Vec<Effect>,
    /// Effects that wait until a record is committed, in the order of the records.
    pub(crate) gated: VecDeque<(u64, Effect)>,
    pub(crate) loading: IdMap<Load, Vec<Parked>>,
    pub(crate) generation: u64,
    /// Where the answer to a request that changes something goes: its latest repetition.
    pub(crate) active: IdMap<(SessionId, u64), Asker>,
    pub(crate) gates: Gates<Call>,
    pub(crate) in_body: BTreeMap<Ticket, InBody>,
    pub(crate) next_ticket: u64,
    /// Body operations that wait until a record is synced.
    pub(crate) after_sync: VecDeque<(u64, Ticket, crate::event::BodyOp)>,
    /// Bodies that go when nobody is inside any more.
    pub(crate) going: Vec<(Ino, Ticket)>,
    pub(crate) sync_waiting: Vec<(u64, Call)>,
    pub(crate) lock_waiting: IdMap<Ino, VecDeque<Call>>,
    pub(crate) txn_waiting: BTreeMap<TxnId, Vec<Call>>,
    pub(crate) retry_at: Vec<(u64, Call)>,
    pub(crate) txns: Txns,
    pub(crate) holds: Holds,
    pub(crate) journal: Journal,
    pub(crate) sessions: Sessions,
    /// Files made since the last checkpoint began, of which no sync has begun: their bytes may be lost.
    pub(crate) fresh: IdSet<Ino>,
    /// Files whose bodies changed since the last checkpoint began, with the first record that says so.
    pub(crate) touched: IdMap<Ino, u64>,
    /// The record with which the last checkpoint announced what was being put in place then.
    pub(crate) announced: u64,
    /// Files with bytes in place that no body sync has covered.
    pub(crate) unsynced_bodies: IdSet<Ino>,
    /// Those that the checkpoint under way will sync.
    pub(crate) syncing_bodies: IdSet<Ino>,
    /// Files with changes that are done, or done again by a recovery, as their records say, and that
    /// no body sync has covered.
    pub(crate) carried: IdSet<Ino>,
    /// Those of them that the checkpoint under way covers.
    pub(crate) syncing_carried: IdSet<Ino>,
    pub(crate) recovery: Recovery,
    pub(crate) enumerating: Enumerating,
    pub(crate) mover: Mover,
    pub(crate) symlinks: Symlinks,
    pub(crate) unpruned: Unpruned,
    pub(crate) checkpoint: Option<Checkpointing>,
    pub(crate) checkpoint_ms: u64,
    swept_ms: u64,
    /// Requests that wait for the island to start.
    hidden: Bounded<Call>,
    pub(crate) counters: Counters,
}

impl Island {
    /// An island with a state recovered from its disk, whose last life ended so.
    pub fn new(config: Config, state: State, ended: Ended, now: Now) -> Self {
        let h3 = H3::new(config.seed);
        let meta = *state.meta();
        let seq = state.seq();
        let mut island = Self {
            h3,
            phase: Phase::Hidden,
            now,
            upto: 0,
            last_time: now.wall,
            committed: seq,
            synced: seq,
            sync_wanted: 0,
            unsynced_since_ms: None,
            last_stamp: meta.stamp,
            mint_next: meta.mint_limit.max(Ino::FIRST_COUNTER),
            mint_limit: meta.mint_limit,
            room: 0,
            log_stuck: false,
            out: Vec::new(),
            gated: VecDeque::new(),
            loading: IdMap::default(),
            generation: 0,
            active: IdMap::default(),
            gates: Gates::default(),
            in_body: BTreeMap::new(),
            next_ticket: 1,
            after_sync: VecDeque::new(),
            going: Vec::new(),
            sync_waiting: Vec::new(),
            lock_waiting: IdMap::default(),
            txn_waiting: BTreeMap::new(),
            retry_at: Vec::new(),
            txns: Txns::default(),
            holds: Holds::default(),
            journal: Journal::default(),
            sessions: Sessions::default(),
            fresh: IdSet::default(),
            touched: IdMap::default(),
            announced: 0,
            unsynced_bodies: IdSet::default(),
            syncing_bodies: IdSet::default(),
            carried: IdSet::default(),
            syncing_carried: IdSet::default(),
            recovery: Recovery::default(),
            enumerating: Enumerating::default(),
            mover: Mover::default(),
            symlinks: Symlinks::default(),
            unpruned: Unpruned::default(),
            checkpoint: None,
            checkpoint_ms: now.ms,
            swept_ms: now.ms,
            hidden: Bounded::default(),
            counters: Counters::default(),
            config,
            state,
        };
        island.begin(ended);
        island
    }

    /// Changes rows whose bodies could not be brought in line with them, when the island opens.
    pub fn correct(&mut self, changes: Vec<atoll_proto::Change>) {
        if !changes.is_empty() {
            let mut decision = Decision::new();
            changes.into_iter().for_each(|change| decision.push(change));
            self.decide(decision);
            self.want_sync();
        }
    }

    /// Bodies that a recovery has looked at: what was put in place in the last life, and what was done again, no
    /// sync has covered, so the next `fsync` of each, and the next checkpoint, must.
    pub fn recovered_bodies(&mut self, bodies: &[Ino]) {
        bodies.iter().for_each(|ino| self.state.view_disturbed(*ino));
        self.touched.extend(bodies.iter().map(|ino| (*ino, 0)));
        self.carried.extend(bodies);
        if !planted(Bug::RecoveredUnsynced) {
            self.unsynced_bodies.extend(bodies);
        }
    }

    /// Takes an event; what is to be done for it is added to `out`, in order.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        self.now = now;
        match event {
            Event::Request { link, id, request, data } => {
                self.counters.requests += 1;
                let since_ms = now.ms;
                let upto = self.state.seq();
                self.arrive(Call { link, id, request, data, since_ms, attempts: 0, upto, again: false });
            }
            Event::Peer(message) => {
                self.counters.peer_messages += 1;
                self.peer(message);
            }
            Event::PeerReachable { island, up } => self.peer_reachable(island, up),
            Event::LinkClosed { link, ended } => self.link_closed(link, ended),
            Event::Written(upto) => self.written(upto),
            Event::Synced(upto) => self.synced(upto),
            Event::Loaded { load, generation, loaded } => self.loaded(load, generation, loaded),
            Event::BodyDone(ticket, result) => self.body_done(ticket, result),
            Event::CheckpointDone => self.checkpoint_done(),
            Event::Tick { bytes_available } => {
                self.room = bytes_available.saturating_sub(self.config.reserve_bytes);
                self.tick();
            }
            Event::CheckpointWanted => self.begin_checkpoint(),
            Event::LogStuck(stuck) => self.log_stuck = stuck,
            Event::Stopping => self.stop_moving(),
        }
        self.prune_rest();
        self.bodies_go();
        self.tell_when_quiet();
        // With what was decided before the first event, when the island began.
        out.append(&mut self.out);
    }

    // --------------------------------------------------------------- inspection

    /// This island's id.
    pub const fn id(&self) -> IslandId {
        self.config.id
    }

    /// Its state, to be read.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Its state, for the view's lists.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// A checkpoint is being made, or waits for work on bodies.
    pub const fn is_making_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// The bytes of a file are being changed, ahead of the record that says so or behind it.
    pub fn is_body_changing(&self, ino: Ino) -> bool {
        self.gates.is_exclusive(ino)
    }

    /// Somebody is inside a body: it must not go, though its file may be gone.
    pub fn is_body_used(&self, ino: Ino) -> bool {
        self.gates.is_inside(ino)
    }

    /// What it lets in.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// What it has done.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What it knows of its volume.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// True if somebody waits for a record to be committed. What nobody waits for is written along
    /// with it, or a moment later: until it is, another island has it and tells it again.
    pub fn wants_write(&self) -> bool {
        !self.gated.is_empty()
    }

    /// True if nothing is under way: no record unwritten, no request waiting for a body.
    pub fn is_idle(&self) -> bool {
        let seq = self.state.seq();
        self.committed == seq
            && self.in_body.is_empty()
            && self.checkpoint.is_none()
            && !self.looks_at_links()
    }

    // ----------------------------------------------------------------- requests

    pub(crate) fn arrive(&mut self, call: Call) {
        if self.phase == Phase::Hidden {
            if let Err(call) = self.hidden.push(call) {
                self.answer(&call, 0, Outcome::NotNow);
            }
            return;
        }
        if call.request.table < self.config.table.version() {
            let table = self.config.table.clone();
            return self.answer(&call, 0, Outcome::StaleTable { table });
        }
        let Some(call) = self.session_request(call) else { return };
        let Some(call) = self.repeated(call) else { return };
        if self.log_stuck && call.request.seq != 0 {
            return self.answer(&call, 0, Outcome::Failed { errno: Errno::ENOSPC });
        }
        if let Some(call) = self.catch_up(call) {
            self.start(call, false);
        }
    }

    /// Lets in those who waited for the island to start.
    pub(crate) fn come_out(&mut self) {
        self.phase = Phase::Normal;
        for call in self.hidden.take() {
            self.arrive(call);
        }
    }

    /// Answers a request that was seen before with its first result; notes where a new one's
    /// answer goes.
    fn repeated(&mut self, call: Call) -> Option<Call> {
        let seq = call.request.seq;
        if seq == 0 {
            return Some(call);
        }
        if let Some(to) = self.active.get_mut(&(call.session(), seq))
            && !planted(Bug::RepeatedWhileUnderWay)
        {
            // The first one is still under way, perhaps decided already: its answer goes to where
            // this one came from.
            *to = Asker::of(&call);
            return None;
        }
        let session = self.state.session(call.session()).expect("checked by the caller");
        let waits_for_lock = matches!(&call.request.op, ClientOp::Fs { op: Op::SetLock { wait: true, .. } });
        if seq < session.acked && !waits_for_lock {
            // The client has this result already, or has done very much since: nobody waits for another. Of a lock
            // somebody may wait for so long; to set it twice is to set it once.
            self.answer(&call, 0, Outcome::Failed { errno: Errno::ESTALE });
            return None;
        }
        if let Ok(i) = session.results.binary_search_by_key(&seq, |(n, _)| *n) {
            let result = session.results[i].1.clone();
            self.state.look_away();
            self.upto = call.upto;
            match self.again(&call, &result) {
                // What was committed before is shown only when committed: wait for all there is.
                Ok(outcome) => self.answer(&call, self.state.seq(), outcome),
                Err(stop) => self.park(Call { again: true, ..call }, stop, false),
            }
            return None;
        }
        self.active.insert((call.session(), seq), Asker::of(&call));
        Some(call)
    }

    /// Runs a request as far as it goes. `turn`: it was the first in a body's queue.
    pub(crate) fn start(&mut self, call: Call, turn: bool) {
        if call.again {
            return self.arrive(Call { again: false, ..call });
        }
        if call.request.seq != 0 && !self.is_attached(call.session()) {
            // It ended while this waited: nobody would hold what this brings, or is told of it.
            return self.answer(&call, 0, Outcome::NoSession);
        }
        let Some(call) = self.hold_back(call).and_then(|call| self.enumerate_request(call)) else { return };
        self.state.look_away();
        self.upto = call.upto;
        match self.run(&call, turn) {
            Ok(Step::Looked(outcome)) => self.answer(&call, self.state.seen(), outcome),
            Ok(Step::Decided(outcome)) => self.answer(&call, self.state.seq(), outcome),
            Ok(Step::Later(later)) => self.keep(call, later),
            Ok(Step::Answered) => {}
            Err(stop) => self.park(call, stop, turn),
        }
    }

    fn keep(&mut self, call: Call, later: Later) {
        match later {
            Later::Txn(txn) => self.txns.keep(txn, call),
            Later::Body(ticket) => self.in_body.get_mut(&ticket).expect("just begun").keep(call),
            Later::Applied(stamp, outcome) => self.await_applied(call, stamp, outcome),
            Later::Synced(seq) => self.await_synced(seq, call),
        }
    }

    pub(crate) fn park(&mut self, mut call: Call, stop: Stop, turn: bool) {
        match stop {
            Stop::Fail(errno) => self.answer(&call, self.state.seen(), Outcome::Failed { errno }),
            Stop::NeedGroups => self.answer(&call, 0, Outcome::NeedGroups),
            Stop::NotNow | Stop::Unheard => self.answer(&call, 0, Outcome::NotNow),
            Stop::CutLost(why) => self.answer(&call, 0, Outcome::CutLost { why }),
            Stop::Moved { to, moves } => self.answer(&call, 0, Outcome::Moved { to, moves }),
            Stop::Load(loads) => self.load(loads, Parked::Call(call)),
            Stop::Gate(ino) => self.wait_at_gate(ino, call, turn),
            Stop::Txn(txn) => self.txn_waiting.entry(txn).or_default().push(call),
            Stop::Locked(_) if self.is_interrupted(&call) => {
                self.answer(&call, 0, Outcome::Failed { errno: Errno::EINTR });
            }
            Stop::Locked(ino) => {
                call.attempts += 1;
                self.lock_waiting.entry(ino).or_default().push_back(call);
            }
        }
    }

    fn run(&mut self, call: &Call, turn: bool) -> Result<Step, Stop> {
        match &call.request.op {
            ClientOp::Fs { op } | ClientOp::Link { op, .. } => self.run_fs(call, op, None, turn),
            ClientOp::Rename { op, key } => self.run_fs(call, op, Some(*key), turn),
            ClientOp::Resolve { path } => self.resolve(call.caller(), path),
            ClientOp::Skeleton { parent, name } => self.skeleton(*parent, name),
            ClientOp::SkeletonAttr { ino } => self.skeleton_attr(*ino),
            ClientOp::SkeletonTarget { ino } => self.skeleton_target(*ino),
            ClientOp::Hints { after } => self.hints(*after),
            ClientOp::Release { inos } => self.release(call, inos),
            ClientOp::ListAt { .. } | ClientOp::EntryAt { .. } | ClientOp::FilesAt { .. } => {
                self.run_at(call)
            }
            ClientOp::Attach { .. }
            | ClientOp::Detach
            | ClientOp::Renew
            | ClientOp::Dropped
            | ClientOp::Hold { .. }
            | ClientOp::Cut { .. }
            | ClientOp::EndCut { .. }
            | ClientOp::Cancel { .. } => {
                unreachable!("answered when it arrived")
            }
        }
    }

    /// `key`: of the directory that a name goes to, if that is another one.
    fn run_fs(&mut self, call: &Call, op: &Op, key: Option<Key>, turn: bool) -> Result<Step, Stop> {
        self.is_here(op)?;
        match op {
            Op::Lookup { dir, name } => self.lookup(*dir, name),
            Op::GetAttr { ino } => self.get_attr(*ino),
            Op::SetAttr { ino, set } => self.set_attr(call, *ino, set, turn),
            Op::Create { dir, name, .. } => self.create(call, *dir, name, op),
            Op::Mkdir { dir, name, mode, umask } => self.mkdir(call, *dir, name, *mode, *umask),
            Op::Unlink { dir, name } => self.unlink(call, *dir, name),
            Op::Rmdir { dir, name, meant } => self.rmdir(call, *dir, name, *meant),
            Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant } => {
                let from = Spot { dir: *dir, name: name.clone() };
                let to = Spot { dir: *new_dir, name: new_name.clone() };
                self.rename(call, from, to, *mode, (*meant, *new_meant), key)
            }
            Op::Link { ino, dir, name } => self.link(call, *ino, *dir, name),
            Op::Readlink { ino } => self.readlink(*ino),
            Op::Read { ino, offset, len } => self.read(call, *ino, *offset, *len, turn),
            Op::Write { ino, offset, append, kill_set_id } => {
                self.write(call, *ino, *offset, *append, *kill_set_id, turn)
            }
            Op::Fallocate { ino, offset, len, what } => {
                self.groups_suffice(call, *ino)?;
                self.fallocate(*ino, *offset, *len, *what, turn)
            }
            Op::Seek { ino, offset, whence } => self.seek(*ino, *offset, *whence, turn),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.groups_suffice(call, *to)?;
                self.copy_range((*from, *from_offset), (*to, *to_offset), *len, turn)
            }
            Op::Fsync { ino } => self.fsync(*ino),
            Op::FsyncDir { dir } => {
                // What was moved into it may be shown already.
                self.names_are_safe(*dir)?;
                Ok(Step::Later(Later::Synced(self.state.seq())))
            }
            Op::ReadDir { dir, after, bytes, plus } => self.read_dir(*dir, *after, *bytes, *plus),
            Op::GetXattr { ino, name } => self.get_xattr(call.caller(), *ino, name),
            Op::SetXattr { ino, name, value, mode, kill_sgid } => {
                self.set_xattr(call, *ino, name, Some((value, *mode)), *kill_sgid)
            }
            Op::ListXattr { ino } => self.list_xattr(call.caller(), *ino),
            Op::RemoveXattr { ino, name } => self.set_xattr(call, *ino, name, None, false),
            // Space is the node's to tell, without the machine.
            Op::Statfs => Err(Errno::ENOSYS.into()),
            Op::GetLock { ino, lock } => self.get_lock(call.session(), *ino, lock),
            Op::SetLock { ino, lock, wait } => self.set_lock(call, *ino, lock, *wait),
            Op::Accessed { ino, access } => self.accessed(*ino, access),
        }
    }

    // ------------------------------------------------------------------ answers

    /// Answers a request when the record at `need` is committed.
    pub(crate) fn answer(&mut self, call: &Call, need: u64, outcome: Outcome) {
        self.answer_data(call, need, outcome, Bytes::new());
    }

    /// As [`Island::answer`], with the bytes of `Answer::Data`.
    pub(crate) fn answer_data(&mut self, call: &Call, need: u64, outcome: Outcome, data: Bytes) {
        let (link, id) = self.address(call);
        let vector = self.sessions.news(call.session(), self.state.clocks());
        let need = if planted(Bug::AnswerBeforeLog) { 0 } else { need };
        self.when_committed(need, Effect::Reply { link, id, reply: Reply { vector, outcome }, data });
    }

    /// Where the answer to `call` goes; from here on a repetition is answered from memory.
    pub(crate) fn address(&mut self, call: &Call) -> (LinkId, u64) {
        match call.request.seq {
            0 => (call.link, call.id),
            seq => self.active.remove(&(call.session(), seq)).unwrap_or(Asker::of(call)).address(),
        }
    }

    /// Has `effect` happen when the record at `need` is committed.
    pub(crate) fn when_committed(&mut self, need: u64, effect: Effect) {
        if need <= self.committed {
            self.out.push(effect);
            return;
        }
        let at = self.gated.partition_point(|(n, _)| *n <= need);
        self.gated.insert(at, (need, effect));
    }

    // ---------------------------------------------------------------- decisions

    /// Decides: the state changes now, the record goes to the log. Its position.
    pub(crate) fn decide(&mut self, mut decision: Decision) -> u64 {
        self.doubt_met(&mut decision);
        if decision.record.changes.is_empty() {
            // What was asked for was so already, such as an orphan that is let go of twice. The state
            // counts records by their changes: one without any would share its number with the next.
            assert!(decision.record.bodies.is_empty(), "a body changes and no row does");
            return self.state.seq();
        }
        let seq = self.state.seq() + 1;
        self.break_holds(&decision.record);
        for change in &decision.record.changes {
            self.state.apply(seq, change);
        }
        self.links_changed(&decision.record);
        self.counters.records += 1;
        self.unsynced_since_ms.get_or_insert(self.now.ms);
        self.out.push(Effect::Append(seq, decision.record));
        seq
    }

    /// Remembers the first result of `call` in the record that decides it.
    pub(crate) fn remember(&self, decision: &mut Decision, call: &Call, result: atoll_proto::Remembered) {
        if planted(Bug::ResultForgotten) {
            return;
        }
        decision.remember(call.session(), call.request.seq, call.request.acked, result);
    }

    /// The time of a change: later than every one before it, so that a changed file always shows.
    pub(crate) fn time(&mut self) -> Time {
        self.last_time = self.now.wall.max(self.last_time.next());
        self.last_time
    }

    /// What is changed from here on is later than `time`.
    pub(crate) fn not_before(&mut self, time: Time) {
        self.last_time = self.last_time.max(time);
    }

    // --------------------------------------------------------------------- time

    fn tick(&mut self) {
        if self.unsynced_since_ms.is_some_and(|since| self.now.ms >= since + SYNC_MS) {
            self.want_sync();
        }
        let dirty = self.state.dirty_len();
        let due =
            self.now.ms >= self.checkpoint_ms + CHECKPOINT_MS && self.state.seq() > self.state.meta().seq;
        if dirty >= CHECKPOINT_ROWS.min(self.config.rows_max.max(CHECKPOINT_ROWS_MIN)) || due {
            self.begin_checkpoint();
        }
        self.continue_checkpoint();
        if self.now.ms >= self.swept_ms + SWEEP_MS {
            self.swept_ms = self.now.ms;
            self.state.sweep(self.config.rows_max);
        }
        let now = self.now.ms;
        let (ready, waiting) = std::mem::take(&mut self.retry_at).into_iter().partition(|(at, _)| *at <= now);
        self.retry_at = waiting;
        let ready: Vec<(u64, Call)> = ready;
        for (_, call) in ready {
            self.start(call, false);
        }
        self.tick_txns();
        self.tick_journal();
        self.tick_sessions();
        self.tick_recovery();
        self.tick_enumerate();
        self.tick_mover();
        self.tick_symlinks();
    }

    fn link_closed(&mut self, link: LinkId, ended: bool) {
        self.enumerate_link_closed(link);
        self.sessions.link_closed(link, ended, self.now.ms);
        self.lock_link_closed(link);
        self.gates.retain(|call| call.request.seq != 0 || call.link != link);
    }
}
