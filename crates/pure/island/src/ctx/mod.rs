//! The context of all machines: the island's rows, and the parts through which records are decided and
//! effects leave. None of these parts asks a machine.

mod around;
mod beside;
mod bounded;
mod changed;
mod claims;
mod clients;
mod config;
pub(crate) mod decision;
mod durability;
mod issuer;
pub(crate) mod keepers;
mod keeping;
mod last_changes;
mod latest;
mod loads;
pub(crate) mod lost;
mod peers;
pub(crate) mod posts;
mod replies;
pub(crate) mod request;
mod room;
pub(crate) mod shown;
mod skeleton;
mod staged;
mod todo;
pub(crate) mod write_set;

use std::borrow::Cow;

use atoll_core::planted::{Bug, planted};
use atoll_core::{ClockVector, H3, Ino, IslandId, SessionId, Stamp, Time};
use atoll_posix::Errno;
use atoll_proto::{Entry, Outcome, ParticipantWork, PeerMessage, PeerOp, Reply, Vote, VoteInfo};
use atoll_state::{RowLoad, State};
use bytes::Bytes;

pub use beside::{Beside, BesideRecord, BesideStep, BesideView};
pub(crate) use bounded::Bounded;
use changed::UntoldChanges;
pub(crate) use claims::FileClaim;
pub(crate) use clients::DEPTH_MAX;
pub use config::{Config, HELLO_MS, HELLO_SOON_MS, MigrationConfig, OUTBOX_BYTES_MAX, OUTBOX_MAX};
use decision::{Decision, Entails};
use durability::Durability;
use issuer::Issuer;
use keepers::Keepers;
use last_changes::{CHANGES_MS, LastChanges, WHOLE_MS};
use latest::LatestNames;
use loads::Loads;
use peers::Peers;
pub(crate) use peers::SenderLife;
use posts::Posts;
use replies::Replies;
use request::{Blocked, Next, PendingRequest};
use room::Room;
use skeleton::Skeleton;
pub(crate) use staged::staged_dir;
use todo::Todo;

use crate::counters::Counters;
use crate::event::{Damage, Effect, LinkId, Now};

/// Milliseconds after which what waits for another island fails with `EIO`.
pub(crate) const PATIENCE_MS: u64 = 10_000;

/// The row of this session says that since a power cut not all other islands have told their part of this
/// one's lost records. It stays until they have, over restarts. It keeps no files: a lost name can be no name
/// of a file, because an island that links a file is told so when that survives a power cut here. (Rows of
/// the first versions keep some.)
pub(crate) const RECOVERY_SESSION: SessionId = SessionId(0);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Ctx {
    pub(crate) config: Config,
    pub(crate) h3: H3,
    pub(crate) now: Now,
    /// Position of the last record before the request that is run came.
    pub(crate) upto: u64,
    pub(crate) state: State,
    pub(crate) durability: Durability,
    pub(crate) issuer: Issuer,
    pub(crate) loads: Loads,
    pub(crate) peers: Peers,
    pub(crate) posts: Posts,
    pub(crate) replies: Replies,
    pub(crate) room: Room,
    pub(crate) skeleton: Skeleton,
    pub(crate) counters: Counters,
    pub(crate) latest: LatestNames,
    pub(crate) keepers: Keepers,
    /// Changes of which is not known file by file what they change.
    pub(crate) last_changes: LastChanges,
    /// All changes.
    pub(crate) last_of_all: LastChanges,
    /// What sees each record before its rows are set.
    pub(crate) beside: Option<Box<dyn Beside>>,
    /// Rows are being read for its next step.
    pub(crate) beside_waits: bool,
    /// It can do more at once: it acts behind the next event, whatever that is.
    pub(crate) beside_goes_on: bool,
    /// How often that one has said something.
    beside_said: u64,
    /// Changes that the records since the last [`Ctx::entailed`] entail, with their positions.
    entailed: Vec<(u64, Entails)>,
    pub(crate) todo: Todo,
}

impl Ctx {
    /// Of an island with these rows, which survive a power cut up to the record `synced`.
    pub(crate) fn new(config: Config, state: State, synced: u64, now: Now) -> Self {
        Self {
            h3: H3::new(config.seed),
            now,
            upto: 0,
            durability: Durability::new(state.seq(), synced, now.ms),
            issuer: Issuer::resume(state.meta(), now.wall),
            loads: Loads::default(),
            peers: Peers::default(),
            posts: Posts::default(),
            replies: Replies::default(),
            room: Room::default(),
            skeleton: Skeleton::default(),
            counters: Counters::default(),
            latest: LatestNames::default(),
            keepers: Keepers::default(),
            last_changes: LastChanges::new(state.clocks().get(config.id), CHANGES_MS),
            last_of_all: LastChanges::new(state.clocks().get(config.id), WHOLE_MS),
            beside: None,
            beside_waits: false,
            beside_goes_on: false,
            beside_said: 0,
            entailed: Vec::new(),
            todo: Todo::default(),
            config,
            state,
        }
    }

    // ---------------------------------------------------------------- decisions

    /// Decides: the state changes now, the record goes to the log. Its position.
    pub(crate) fn decide(&mut self, mut decision: Decision) -> u64 {
        self.suspect_displaced(&mut decision);
        self.note_pointers(&mut decision);
        for (dir, why) in std::mem::take(&mut decision.misfits) {
            self.durability.emit(Effect::Damaged(Damage::Misfit { dir, why }));
        }
        if decision.record.changes.is_empty() {
            // What was asked for was so already, such as an orphan that is let go of twice. The state
            // counts records by their changes: one without any would share its number with the next.
            assert!(decision.record.bodies.is_empty(), "a body changes and no row does");
            assert!(decision.entails.is_empty(), "something follows from a decision that changes nothing");
            return self.state.seq();
        }
        let seq = self.state.seq() + 1;
        let before = self.observe_before(&decision.record);
        let mut changed = UntoldChanges::default();
        let are_set = if decision.is_of_beside {
            self.note_changed(&decision.record.changes, &mut changed);
            0
        } else {
            self.witness(seq, &mut decision.record, &mut changed)
        };
        self.note_rows(&decision.record.changes);
        for change in &decision.record.changes[are_set..] {
            self.state.apply(seq, change);
        }
        self.observe_after(before);
        self.counters.records += 1;
        self.entailed.extend(decision.entails.into_iter().map(|what| (seq, what)));
        let append = Effect::Append(seq, decision.record, decision.placed);
        self.durability.decided(self.now.ms, append);
        self.tell_changed(seq, changed);
        seq
    }

    /// Changes that the records since the last call entail, with their positions.
    pub(crate) fn entailed(&mut self) -> Vec<(u64, Entails)> {
        std::mem::take(&mut self.entailed)
    }

    /// Has something happen when what happens now is done.
    pub(crate) fn next(&mut self, next: Next) {
        self.todo.push(next);
    }

    /// Asks for a sync of everything decided so far.
    pub(crate) fn want_sync(&mut self) {
        self.durability.want_sync(self.state.seq());
    }

    /// The log is synced up to here.
    pub(crate) fn log_synced(&mut self, upto: u64) {
        self.durability.log_synced(upto, self.state.seq());
        let durability = &self.durability;
        self.issuer.synced(|seq| durability.is_synced(seq));
    }

    /// Whether everything that is decided survives a power cut.
    pub(crate) const fn is_all_synced(&self) -> bool {
        self.durability.is_synced(self.state.seq())
    }

    // ------------------------------------------------- what is never given twice

    /// The next stamp of this island's clock; goes into the record that uses it.
    pub(crate) fn stamp(&mut self) -> Stamp {
        self.issuer.stamp(self.state.meta().incarnation)
    }

    /// The time of a change: later than every one before it, so that a changed file always shows.
    pub(crate) fn time(&mut self) -> Time {
        self.issuer.time(self.now.wall, self.state.meta().time)
    }

    /// A new id. Ranges are asked for long before they are needed, but a life begins without one.
    pub(crate) fn mint(&mut self) -> Result<Ino, Blocked> {
        let ino = self.issuer.mint(self.config.id);
        self.reserve_ids();
        ino.ok_or(Blocked::Ids)
    }

    /// Reserves the next range of ids while half of the last one is left.
    pub(crate) fn reserve_ids(&mut self) {
        if let Some(limit) = self.issuer.next_range(self.state.meta().mint_limit) {
            let mut decision = Decision::new();
            decision.push(atoll_proto::RowChange::MintLimit { limit });
            let seq = self.decide(decision);
            self.issuer.reserve(seq, limit);
            self.want_sync();
        }
    }

    // ------------------------------------------------------------------ messages

    /// Has a message leave when the record at `need` is committed. One that tells of directories leaves behind the entries of this
    /// island's journal that it may show: those that nobody else has yet, and those that wait for a sync. So what a power cut takes from
    /// here, who has built on it brings back; or nobody has.
    pub(crate) fn send(&mut self, need: u64, to: IslandId, peer: PeerOp) {
        let last = self.state.seq();
        if tells_places(&peer) {
            if self.posts.holds_back() && !self.durability.is_synced(last) {
                return self.send_after_sync(last, to, peer);
            }
            self.send_batched(to);
        }
        let need = if planted(Bug::SendBeforeLog) { 0 } else { need };
        let send = self.message(to, peer);
        self.durability.after_commit(need, send);
    }

    /// Has a message leave when the record at `seq` is synced, which is asked for now.
    pub(crate) fn send_synced(&mut self, seq: u64, to: IslandId, peer: PeerOp) {
        if self.durability.is_synced(seq) || planted(Bug::OutcomeBeforeSync) {
            return self.send(seq, to, peer);
        }
        self.send_after_sync(seq, to, peer);
    }

    fn send_after_sync(&mut self, seq: u64, to: IslandId, peer: PeerOp) {
        if tells_places(&peer) {
            self.send_batched(to);
        }
        let send = self.message(to, peer);
        self.durability.after_sync(seq, send);
        self.want_sync();
    }

    /// Sends a message behind all that waits for the log to be synced.
    pub(crate) fn send_behind_synced(&mut self, to: IslandId, peer: PeerOp) {
        let seq = self.state.seq();
        if self.durability.awaits_sync() || self.posts.holds_back() {
            self.send_synced(seq, to, peer)
        } else {
            self.send(seq, to, peer)
        }
    }

    fn message(&self, to: IslandId, peer: PeerOp) -> Effect {
        let vector = match &peer {
            // Only a chain of ancestors is judged by what its sender has seen.
            PeerOp::Prepare { work: ParticipantWork::Adopt { .. }, .. } => {
                self.state.public_clocks().iter().collect()
            }
            _ => Vec::new(),
        };
        let incarnation = self.state.meta().incarnation;
        Effect::Send(to, PeerMessage { from: self.config.id, incarnation, vector, op: peer })
    }

    // ------------------------------------------------------------------- answers

    /// Answers a request when the record at `need` is committed.
    pub(crate) fn answer(&mut self, call: &PendingRequest, need: u64, outcome: Outcome) {
        self.answer_data(call, need, outcome, Bytes::new());
    }

    /// The same as [`Ctx::answer`], with the bytes of `Answer::Data`.
    pub(crate) fn answer_data(&mut self, call: &PendingRequest, need: u64, outcome: Outcome, data: Bytes) {
        let (link, id, reply) = self.reply_to(call, outcome);
        let need = if planted(Bug::AnswerBeforeLog) { 0 } else { need };
        self.durability.after_commit(need, Effect::Reply { link, id, reply, data });
    }

    /// A request is over: where its answer goes, and the answer with the clocks that its client has not heard of.
    pub(crate) fn reply_to(&mut self, call: &PendingRequest, outcome: Outcome) -> (LinkId, u64, Reply) {
        let outcome = self.with_attributes(call, outcome);
        let may_keep = self.may_keep(call, &outcome);
        let (link, id) = self.end_request(call);
        let clocks = client_clocks(&self.state, &self.posts, self.config.id);
        let vector = self.replies.news(call.session(), &clocks);
        (link, id, Reply { vector, may_keep, outcome })
    }

    /// Answers when all records so far are synced. The answer tells nothing of clocks: others may leave before it.
    pub(crate) fn answer_synced(&mut self, call: &PendingRequest, outcome: Outcome) {
        let (link, id) = self.end_request(call);
        let reply = Reply::bare(outcome);
        let seq = self.state.seq();
        self.durability.after_sync(seq, Effect::Reply { link, id, reply, data: Bytes::new() });
        self.want_sync();
    }

    /// A request is over: where its answer goes.
    pub(crate) fn end_request(&mut self, call: &PendingRequest) -> (LinkId, u64) {
        let to = self.replies.end(call);
        self.end_change(call.session(), to.writes);
        (to.link, to.id)
    }

    /// A request is not under way any more, and nobody is told. Where its answer would have gone.
    pub(crate) fn forget_request(&mut self, call: &PendingRequest) -> (LinkId, u64) {
        self.replies.seen(call);
        self.end_request(call)
    }

    /// Tells a client something unasked, if it can be reached, when the record at `need` is committed.
    pub(crate) fn notify(&mut self, session: atoll_core::SessionId, need: u64, notice: atoll_proto::Notice) {
        if let Some(link) = self.replies.link_of(session) {
            self.durability.after_commit(need, Effect::Notice(link, notice));
        }
    }

    /// How a request ends about what may be missing here, until these have told. Who is away may be so for ever.
    pub(crate) fn retry_or_fail(&self, by: impl IntoIterator<Item = IslandId>) -> Blocked {
        let hears = by.into_iter().all(|island| island == self.config.id || self.peers.is_reachable(island));
        if hears { Blocked::Unheard } else { Errno::EIO.into() }
    }

    // ---------------------------------------------------------------------- rows

    /// Has something go on when these rows are in memory. It ends if one of them is damaged.
    pub(crate) fn load(&mut self, loads: Vec<RowLoad>, parked: Next) {
        if self.loads.are_damaged(&loads) {
            return self.next(Next::Unreadable(Box::new(parked)));
        }
        for load in self.loads.wait(loads, parked) {
            self.counters.loads += 1;
            self.read(load);
        }
    }

    /// Reads a row from the snapshot.
    pub(crate) fn read(&mut self, load: RowLoad) {
        self.durability.emit(Effect::Load { load, generation: self.loads.generation() });
    }

    /// Panics unless what is given, sent and kept fits the rows.
    pub(crate) fn check(&self) {
        self.durability.check(self.state.seq());
        self.issuer.check(self.state.meta());
        let clock = self.state.clocks().get(self.config.id);
        assert!(self.entailed.is_empty(), "something that follows from a record is left");
        assert!(self.todo.is_empty(), "something is still to happen");
        self.posts.check(clock, |seq| self.durability.is_synced(seq));
    }
}

/// The stamps of the islands' journals that clients are told of: what they have seen here, and another island may lack that needs it.
pub(crate) fn client_clocks<'a>(state: &'a State, posts: &Posts, me: IslandId) -> Cow<'a, ClockVector> {
    let mut clocks = Cow::Borrowed(state.public_clocks());
    if let Some(unsettled) = posts.last_unsettled() {
        clocks.to_mut().raise(me, unsettled);
    }
    clocks
}

/// Whether a message tells where directories are and their attributes, from the rows of its sender.
const fn tells_places(peer: &PeerOp) -> bool {
    match peer {
        PeerOp::Prepare { work, .. } => match work {
            ParticipantWork::Adopt { .. }
            | ParticipantWork::AddName { .. }
            | ParticipantWork::MoveName { .. }
            | ParticipantWork::PermitMove { .. } => true,
            ParticipantWork::BorrowName { chain, .. } => chain.is_some(),
            _ => false,
        },
        PeerOp::Voted { vote: Vote::Yes { seen: VoteInfo::Name { there, chain, .. }, .. }, .. } => {
            let is_dir = matches!(there, Some(Entry { stub: Some(_), .. }));
            is_dir || chain.is_some()
        }
        PeerOp::ChainOf { chain, .. } => chain.is_some(),
        PeerOp::Compared { .. } => true,
        _ => false,
    }
}
