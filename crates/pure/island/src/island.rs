//! The machine itself: takes events and runs requests. It holds an answer back until everything that the
//! answer shows is committed, and knows where every request waits.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Stamp, Time};
use atoll_posix::{Errno, Op};
use atoll_proto::{ClientOp, Extras, Outcome, TxnState};
use atoll_state::State;

use crate::bodies::Bodies;
use crate::client::requests::Requests;
use crate::client::sessions::Sessions;
use crate::compare::AntiEntropy;
use crate::counters::Counters;
use crate::ctx::decision::Entails;
use crate::ctx::request::{Blocked, Next, PendingRequest, Step, WaitFor};
use crate::ctx::{Config, Ctx, RECOVERY_SESSION, client_clocks};
use crate::event::{Effect, Event, LinkId, Now};
use crate::journal::Journal;
use crate::links::CarriedLinks;
use crate::locks::files::FileLocks;
use crate::look::{Look, Missing};
use crate::migration::{Migration, Needs};
use crate::ops::names::Again;
use crate::quiesce::Quiesce;
use crate::recovery::Recovery;
use crate::recovery::start::{Phase, PreviousEnd};
use crate::txn::Txns;
/// Records between two checkpoints, in changed rows.
const CHECKPOINT_ROWS: usize = 40_000;
/// Time between two looks at which rows in memory are unused.
const SWEEP_MS: u64 = 1_000;
/// Changed rows are memory too: a checkpoint does not wait for more than may stay. But not for fewer.
const CHECKPOINT_ROWS_MIN: usize = 5_000;
/// Milliseconds between two checkpoints, if anything has changed.
const CHECKPOINT_MS: u64 = 10_000;

/// An island. See the crate.
#[derive(Debug, Clone)]
pub struct Island {
    pub(crate) ctx: Ctx,
    pub(crate) requests: Requests,
    pub(crate) sessions: Sessions,
    pub(crate) file_locks: FileLocks,
    pub(crate) bodies: Bodies,
    pub(crate) txns: Txns,
    pub(crate) journal: Journal,
    pub(crate) recovery: Recovery,
    pub(crate) anti_entropy: AntiEntropy,
    pub(crate) migration: Migration,
    pub(crate) quiesce: Quiesce,
    pub(crate) links: CarriedLinks,
    swept_ms: u64,
}

impl Island {
    /// An island with a state recovered from its disk, whose last life ended so.
    pub fn new(config: Config, state: State, ended: PreviousEnd, now: Now) -> Self {
        let synced = match ended {
            PreviousEnd::Promoted { synced } => synced,
            _ => state.seq(),
        };
        let mut island = Self {
            ctx: Ctx::new(config, state, synced, now),
            requests: Requests::default(),
            sessions: Sessions::default(),
            file_locks: FileLocks::default(),
            bodies: Bodies::new(now.ms),
            txns: Txns::default(),
            journal: Journal::default(),
            recovery: Recovery::default(),
            anti_entropy: AntiEntropy::default(),
            migration: Migration::default(),
            quiesce: Quiesce::default(),
            links: CarriedLinks::default(),
            swept_ms: now.ms,
        };
        island.begin(ended);
        island.run_next();
        island
    }

    /// Whether the record at `seq` survives a power cut, at every member.
    pub const fn is_synced(&self, seq: u64) -> bool {
        self.ctx.durability.is_synced(seq)
    }

    /// Takes an event. Its effects are added to `out`, in order.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Vec<Effect>) {
        self.ctx.now = now;
        // Mostly a client's thread brings these. What the machine beside the island does would keep the client's next request waiting.
        let is_of_clients = matches!(
            event,
            Event::Request { .. } | Event::Committed(_) | Event::Synced(_) | Event::BodyDone(..)
        );
        match event {
            Event::Request { link, id, mut request, data } => {
                self.ctx.counters.requests += 1;
                let (op, Extras { options, by }) = request.op.without_extras();
                request.op = op;
                let since_ms = now.ms;
                let upto = self.ctx.state.seq();
                self.arrive(PendingRequest {
                    link,
                    id,
                    request,
                    options,
                    by,
                    data,
                    since_ms,
                    attempts: 0,
                    upto,
                    again: false,
                    asked: None,
                    writes: None,
                });
            }
            Event::Peer(message) => {
                self.ctx.counters.peer_messages += 1;
                self.peer(message);
            }
            Event::PeerReachable { island, up } => self.peer_reachable(island, up),
            Event::LinkClosed { link, ended } => self.link_closed(link, ended),
            Event::Committed(upto) => self.ctx.durability.commit(upto),
            Event::Synced(upto) => self.synced(upto),
            Event::Loaded { load, generation, loaded } => self.loaded(load, generation, loaded),
            Event::BodyDone(ticket, result) => self.body_done(ticket, result),
            Event::CheckpointDone => {
                self.bodies.checkpoint_done(&mut self.ctx);
                self.journal.rows_may_be_whole();
            }
            Event::Tick { bytes_available } => {
                self.ctx.room.set(bytes_available.saturating_sub(self.ctx.config.reserve_bytes));
                self.tick();
            }
            Event::CheckpointWanted => self.bodies.begin_checkpoint(&mut self.ctx),
            Event::Table(table) => self.ctx.config.take_table(table),
            Event::LogStuck(stuck) => self.requests.set_log_stuck(&mut self.ctx, stuck),
            Event::Decides(decides) => {
                self.requests.set_decides(decides);
                self.let_in();
            }
            Event::Beside(event) => self.ctx.beside.iter_mut().for_each(|beside| beside.hear(event.clone())),
            Event::Stopping => self.migration.stop_moving(&mut self.ctx),
        }
        self.run_next();
        if !is_of_clients || self.ctx.beside_goes_on {
            self.beside_acts();
        }
        self.ctx.prune_rest();
        self.settle();
        self.bodies.bodies_go(&mut self.ctx);
        let Self { quiesce, recovery, txns, bodies, .. } = self;
        quiesce.tell_when_quiescent(&mut self.ctx, |ctx| {
            // Nothing is half-way here: no transaction that is not decided or not carried out, no change of a client that
            // has begun, nothing that is done again after a power cut.
            let prepared = |txn| ctx.state.txn(txn).is_some_and(|row| row.state == TxnState::Prepared);
            recovery.is_serving()
                && !txns.has_begun()
                && !bodies.may_decide()
                && !recovery.has_ready()
                && !ctx.state.txn_ids().any(prepared)
        });
        // With what was decided before the first event, when the island began.
        self.ctx.durability.take(out);
    }

    /// Begins a life.
    fn begin(&mut self, ended: PreviousEnd) {
        self.recovery.begin(&mut self.ctx, ended);
        self.sessions.resume(&mut self.ctx);
        self.txns.resume(&self.ctx);
        self.migration.resume(&self.ctx);
        self.journal.resume(&self.ctx);
        self.ctx.posts.durable_after(self.ctx.state.seq(), self.ctx.state.clocks().get(self.ctx.config.id));
        self.links.resume(&self.ctx);
        self.ctx.begin_skeleton();
        self.ctx.next(Next::Redo);
    }

    /// A view of the data that an operation reads.
    pub(crate) const fn look(&self) -> Look<'_> {
        Look { ctx: &self.ctx, locks: self.txns.locks(), missing: &self.recovery }
    }

    // --------------------------------------------------------------- inspection

    /// This island's id.
    pub const fn id(&self) -> IslandId {
        self.ctx.config.id
    }

    /// Whatever stamp, and whatever time of a change, it gives from here on is later than these.
    pub fn gives_after(&self) -> (Stamp, Time) {
        let meta = self.ctx.state.meta();
        let times = self.ctx.issuer.times_after(self.ctx.now.wall, meta.time);
        (self.ctx.issuer.stamps_after(meta.incarnation), times)
    }

    /// Its state, to be read.
    pub const fn state(&self) -> &State {
        &self.ctx.state
    }

    /// Its state, for the view's lists.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.ctx.state
    }

    /// A checkpoint is being made, or waits for work on bodies.
    pub const fn is_making_checkpoint(&self) -> bool {
        self.bodies.is_making_checkpoint()
    }

    /// The bytes of a file are being changed, ahead of the record that says so or behind it.
    pub fn is_body_changing(&self, ino: Ino) -> bool {
        self.bodies.is_changing(ino)
    }

    /// Somebody is inside a body: it must not go, though its file may be gone.
    pub fn is_body_used(&self, ino: Ino) -> bool {
        self.bodies.is_inside(ino)
    }

    /// Whether it lets requests in.
    pub const fn phase(&self) -> Phase {
        self.recovery.phase()
    }

    /// Its counters.
    pub const fn counters(&self) -> &Counters {
        &self.ctx.counters
    }

    /// Its configuration.
    pub const fn config(&self) -> &Config {
        &self.ctx.config
    }

    // ----------------------------------------------------------------- requests

    pub(crate) fn arrive(&mut self, call: PendingRequest) {
        if call.is_of_beside() {
            return self.begin_beside(call);
        }
        if !self.recovery.is_serving() || !self.requests.may_begin(&call) {
            return self.requests.wait_outside(&mut self.ctx, call);
        }
        if call.request.table < self.ctx.config.table.version() {
            let table = self.ctx.config.table.clone();
            return self.ctx.answer(&call, 0, Outcome::StaleTable { table });
        }
        if matches!(call.request.op, ClientOp::Renew | ClientOp::Lease) {
            // By it the client finds out what others have made up about this island's journal.
            let me = self.ctx.config.id;
            let kept = (!self.recovery.has_moved_on())
                .then(|| client_clocks(&self.ctx.state, &self.ctx.posts, me).get(me));
            self.ctx.replies.tell_own_clock(call.session(), me, kept);
        }
        let Self { ctx, sessions, migration, journal, .. } = self;
        let applied = |ctx: &Ctx, stamp| journal.is_applied_by_all(ctx, stamp);
        let Some(call) = sessions.session_request(ctx, migration, &applied, journal.last_ask(), call) else {
            return;
        };
        let Some(call) = self.clear(call) else { return };
        let Some(call) = self.repeated(call) else { return };
        if self.requests.is_log_stuck() && call.request.seq != 0 {
            return self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::ENOSPC });
        }
        self.admit(call);
    }

    /// Begins a request, when this island has seen all that its client has.
    fn admit(&mut self, call: PendingRequest) {
        let journal = &self.journal;
        let seen = self.sessions.seen_by(call.session(), |of, since, seen| journal.is_lie(of, since, seen));
        let knows_paths = !self.anti_entropy.has_missed(&self.ctx);
        if let Some(call) = self.journal.catch_up(&mut self.ctx, seen, knows_paths, call) {
            self.start(call, false);
        }
    }

    /// Answers a repeated request with its first result. Notes where the answer of a new one goes.
    fn repeated(&mut self, call: PendingRequest) -> Option<PendingRequest> {
        let seq = call.request.seq;
        if seq == 0 {
            return Some(call);
        }
        if !planted(Bug::RepeatedWhileUnderWay) && self.ctx.replies.repeat(&call) {
            // The first one is still under way, perhaps decided already: its answer goes to where
            // this one came from.
            return None;
        }
        let session = self.ctx.state.session(call.session()).expect("checked by the caller");
        let waits_for_lock = matches!(&call.request.op, ClientOp::Fs { op: Op::SetLock { wait: true, .. } });
        if seq < session.acked && !waits_for_lock {
            // The client has this result already, or has done very much since: nobody waits for another. Of a lock
            // somebody may wait for so long; to set it twice is to set it once.
            self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::ESTALE });
            return None;
        }
        if let Ok(i) = session.results.binary_search_by_key(&seq, |(n, _)| *n) {
            let result = session.results[i].1.clone();
            self.ctx.state.begin_reads();
            self.ctx.upto = call.upto;
            let look = self.look();
            match look.may_ask(&call).and_then(|()| look.again(&call, &result)) {
                // What was committed before is shown only when committed: wait for all there is.
                Ok(Again { outcome, is_posted: false }) => {
                    self.ctx.answer(&call, self.ctx.state.seq(), outcome)
                }
                // The first one waited for the other islands. Its entry is not remembered, but not behind the last one.
                Ok(Again { outcome, is_posted: true }) => {
                    self.ctx.replies.begin(&call);
                    let upto = self.ctx.posts.last();
                    self.journal.await_applied(&mut self.ctx, call, upto, outcome);
                }
                Err(stop) => self.park(PendingRequest { again: true, ..call }, stop, false),
            }
            return None;
        }
        self.ctx.replies.begin(&call);
        Some(call)
    }

    /// Runs a request as far as it goes. `turn`: it was the first in a body's queue.
    pub(crate) fn start(&mut self, call: PendingRequest, turn: bool) {
        if call.again {
            self.ctx.end_change(call.session(), call.writes);
            return self.arrive(PendingRequest { again: false, writes: None, ..call });
        }
        if call.request.seq != 0 && !self.ctx.is_attached(call.session()) {
            // It ended while this waited: nobody would hold what this brings, or is told of it.
            return self.ctx.answer(&call, self.ctx.state.seq(), Outcome::NoSession);
        }
        self.ctx.state.begin_reads();
        self.ctx.upto = call.upto;
        if let Err(stop) = self.look().may_ask(&call) {
            return self.park(call, stop, turn);
        }
        if self.must_be_cleared_again(&call) {
            // It may have come once more meanwhile, on another link.
            let (link, id) = self.ctx.forget_request(&call);
            return self.ctx.next(Next::Arrive(PendingRequest { link, id, writes: None, ..call }));
        }
        let Some(call) = self
            .quiesce
            .hold_back(&mut self.ctx, call)
            .and_then(|call| self.quiesce.request(&mut self.ctx, call))
        else {
            return;
        };
        match self.beside_prepares(&call).and_then(|()| self.run(&call, turn)) {
            Ok(Step::Looked(outcome)) => self.ctx.answer(&call, self.ctx.state.seen(), outcome),
            Ok(Step::Decided(outcome)) => self.ctx.answer(&call, self.ctx.state.seq(), outcome),
            Ok(Step::Wait(later)) => self.keep(call, later),
            Ok(Step::Answered) => {}
            Err(stop) => self.park(call, stop, turn),
        }
    }

    fn keep(&mut self, call: PendingRequest, later: WaitFor) {
        match later {
            WaitFor::Txn(txn) => self.txns.keep(txn, call),
            WaitFor::Body(ticket) => self.bodies.keep(ticket, call),
            WaitFor::Applied(stamp, outcome) => {
                self.journal.await_applied(&mut self.ctx, call, stamp, outcome)
            }
            WaitFor::Synced(seq) => self.requests.await_synced(&mut self.ctx, seq, call),
        }
    }

    pub(crate) fn park(&mut self, call: PendingRequest, stop: Blocked, turn: bool) {
        match stop {
            Blocked::Fail(errno) => self.ctx.answer(&call, self.ctx.state.seen(), Outcome::Failed { errno }),
            Blocked::NeedGroups => self.ctx.answer(&call, 0, Outcome::NeedGroups),
            Blocked::NotNow | Blocked::Unheard => self.ctx.answer(&call, 0, Outcome::NotNow),
            Blocked::CutLost(why) => self.ctx.answer(&call, 0, Outcome::CutLost { why }),
            Blocked::Moved { to, moves } => self.ctx.answer(&call, 0, Outcome::Moved { to, moves }),
            Blocked::Load(loads) => self.ctx.load(loads, Next::Start(call)),
            Blocked::BodyLocked(ino) => self.bodies.wait_at_body(&mut self.ctx, ino, call, turn),
            Blocked::Txn(txn) => self.requests.await_txn(txn, call),
            Blocked::Ids => self.requests.await_ids(&mut self.ctx, call),
            Blocked::Locked(_) if self.ctx.replies.is_interrupted(&call) => {
                self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EINTR });
            }
            // Who has begun to wait was no cause of a circle then, and is none when it asks again.
            Blocked::Locked(_) if call.attempts == 0 && self.file_locks.is_circular(&self.ctx, &call) => {
                self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EDEADLK });
            }
            Blocked::Locked(ino) => self.file_locks.wait(ino, call),
        }
    }

    // ---------------------------------------------------------------- what is next

    /// Carries out the next steps: in order, each with everything that follows from it.
    pub(crate) fn run_next(&mut self) {
        self.settle();
        while let Some(next) = self.ctx.todo.pop() {
            self.do_next(next);
            self.settle();
        }
    }

    fn do_next(&mut self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Unreadable(next) => self.unreadable(*next),
            Next::Arrive(call) => self.arrive(call),
            Next::CatchUp(call) => self.admit(call),
            Next::Start(call) => self.start(call, false),
            Next::Peer(message) => self.peer(message),
            Next::BodyDone(ticket, result) => self.body_done(ticket, result),
            Next::Park(call, stop) => self.park(call, stop, false),
            Next::AwaitSynced(seq, call) => self.requests.await_synced(&mut self.ctx, seq, call),
            Next::ReadToShip(piece) => self.bodies.read_to_ship(&mut self.ctx, *piece),
            Next::HasRead(txn, chunk) => self.migration.has_read(&mut self.ctx, txn, chunk),
            Next::Ship { stamp, to, work } => self.txns.ship(&mut self.ctx, stamp, to, *work),
            Next::PutInPlace { ino, txn, seq, op } => {
                self.bodies.put_in_place(&mut self.ctx, ino, txn, seq, *op);
            }
            Next::Pull(txn) => self.migration.pull(&mut self.ctx, txn),
            Next::VoteArrival { to, txn, at, prepared } => {
                self.txns.vote_arrival(&mut self.ctx, to, txn, at, prepared);
            }
            Next::Turn(ino) => self.wake(ino),
            Next::LockFreed(ino) => self.file_locks.freed(&mut self.ctx, ino),
            Next::TxnEnded(txn) => self.requests.let_waiters_in(&mut self.ctx, txn),
            Next::Commit(txn) => self.commit(txn),
            Next::Abort(txn, outcome) => self.txns.abort(&mut self.ctx, txn, outcome),
            Next::NotShipped(txn) => self.migration.not_shipped(&self.ctx, txn),
            Next::Pause(at_ms, call) => self.requests.pause(at_ms, call),
            Next::Confirm { partner, txn, committed } => {
                self.txns.queue_stable(&mut self.ctx, partner, txn, committed);
            }
            Next::Stable => self.send_stable(),
            Next::FileLeft(ino) => self.migration.has_left(ino),
            Next::FallBehind(missing, message) => {
                self.journal.wait_to_catch_up(&mut self.ctx, &missing, Next::Peer(message));
            }
            Next::ConfirmLater(island, seq, stamp) => self.journal.confirm_later(island, seq, stamp),
            Next::BringBack(stamp, lost) => self.recovery.add_lost(&mut self.ctx, stamp, *lost),
            Next::AllTold => {
                self.sessions.end_session(&mut self.ctx, &self.migration, RECOVERY_SESSION, None);
            }
            Next::WitnessEnded => self.recovery.witness_ended(&mut self.ctx),
            Next::AskAgain => self.anti_entropy.ask_again(&mut self.ctx),
            Next::CaughtUp => self.journal.caught_up(&mut self.ctx),
            Next::Redo => self.recovery.redo_lost(&mut self.ctx, self.txns.locks()),
            Next::RedoAgain => self.recovery.redo_again(&mut self.ctx, self.txns.locks()),
            Next::MoveOn => self.recovery.move_on(&mut self.ctx),
            Next::ToldAll(island) => self.recovery.told_all(&mut self.ctx, island),
            Next::CompareSkipped => self.anti_entropy.compare_skipped(&mut self.ctx, &self.recovery),
            Next::Compare => self.anti_entropy.compare(&mut self.ctx, self.txns.locks(), &self.recovery),
            Next::CompareDoubts => self.anti_entropy.compare_doubts(&mut self.ctx, &self.recovery),
            Next::Serve => self.serve(),
            Next::SessionEnded(session) => self.quiesce.session_ended(&mut self.ctx, session),
            Next::CancelLock(link, request) => self.file_locks.cancel(&mut self.ctx, link, request),
            Next::ShipNothing => self.migration.ship_nothing(&mut self.ctx),
            Next::EndSession(session) => {
                self.sessions.ending_loaded(&mut self.ctx, &self.migration, session);
            }
            Next::Checkpoint => self.bodies.continue_checkpoint(&mut self.ctx),
            // It takes its next step when all that happens now is done.
            Next::Beside => self.ctx.beside_waits = false,
        }
    }

    // ---------------------------------------------------------------- decisions

    /// Carries out the changes that follow from the records since the last call: parts that look at every
    /// record see them, and each machine hears of changes that it must remember.
    pub(crate) fn settle(&mut self) {
        for effect in self.ctx.durability.observe() {
            if let Effect::Append(_, record, _) = effect {
                self.quiesce.record_decided(record);
                self.links.record_decided(&self.ctx.config, &self.ctx.state, record);
                self.ctx.latest.record_decided(self.ctx.config.id, record);
            }
        }
        for (seq, what) in self.ctx.entailed() {
            match what {
                Entails::DirPlaced(ino) => self.anti_entropy.compare_also(ino),
                Entails::BodyGoes(ino) => self.bodies.drop_body(&mut self.ctx, ino, seq),
                Entails::NameElsewhere { ino, at } => self.migration.may_move_to(&self.ctx, ino, &at),
            }
        }
    }

    // --------------------------------------------------------------------- time

    fn tick(&mut self) {
        if self.ctx.durability.is_sync_due(self.ctx.now.ms) {
            self.ctx.want_sync();
        }
        let dirty = self.ctx.state.dirty_len();
        let due = self.ctx.now.ms >= self.bodies.last_checkpoint_ms() + CHECKPOINT_MS
            && self.ctx.state.seq() > self.ctx.state.meta().seq;
        if dirty >= CHECKPOINT_ROWS.min(self.ctx.config.rows_max.max(CHECKPOINT_ROWS_MIN)) || due {
            self.bodies.begin_checkpoint(&mut self.ctx);
        }
        self.bodies.continue_checkpoint(&mut self.ctx);
        if self.ctx.now.ms >= self.swept_ms + SWEEP_MS {
            self.swept_ms = self.ctx.now.ms;
            self.ctx.state.sweep(self.ctx.config.rows_max);
        }
        self.requests.begin_again(&mut self.ctx);
        let parts: [fn(&mut Self); 9] = [
            Self::tick_txns,
            |island| island.journal.tick(&mut island.ctx),
            Self::tick_posts,
            |island| island.sessions.tick(&mut island.ctx, &island.migration),
            |island| island.recovery.tick(&mut island.ctx),
            |island| island.quiesce.tick(&mut island.ctx),
            |island| island.migration.allow(&mut island.ctx),
            Self::tick_migration,
            |island| island.links.tick(&mut island.ctx),
        ];
        for part in parts {
            self.run_next();
            part(self);
        }
    }

    fn tick_txns(&mut self) {
        self.txns.end_late(&mut self.ctx);
        self.requests.end_late(&mut self.ctx);
        self.txns.tell_again(&mut self.ctx, &self.migration);
    }

    fn tick_migration(&mut self) {
        let is_quiescing = self.quiesce.is_quiescing();
        let may_begin = self.recovery.is_serving() && !self.recovery.is_incomplete() && !is_quiescing;
        let needs = Needs {
            locks: self.txns.locks(),
            file_locks: &self.file_locks,
            bodies: &self.bodies,
            is_quiescing,
        };
        self.migration.tick(&mut self.ctx, needs, may_begin);
    }

    /// The log is synced up to here.
    fn synced(&mut self, upto: u64) {
        self.ctx.log_synced(upto);
        self.requests.synced(&mut self.ctx);
        self.bodies.synced(&mut self.ctx);
        self.bodies.continue_checkpoint(&mut self.ctx);
        self.ctx.send_posted();
        self.ctx.durability.leave_synced();
        self.migration.tell_moved(&mut self.ctx);
        self.send_stable();
    }

    /// Tells other islands which records are synced now.
    fn send_stable(&mut self) {
        self.txns.tell_stable(&mut self.ctx);
        self.journal.confirm_applied(&mut self.ctx);
        self.recovery.tell_kept(&mut self.ctx);
    }

    /// A starting island lets requests in.
    fn serve(&mut self) {
        if !self.recovery.is_serving() && !self.recovery.is_waiting() {
            self.recovery.serve();
            self.let_in();
        }
    }

    /// Requests that have waited outside come again.
    fn let_in(&mut self) {
        for call in self.requests.let_in() {
            self.ctx.next(Next::Arrive(call));
        }
    }

    /// Lets requests in that wait for a body, as many as can be inside together.
    fn wake(&mut self, ino: Ino) {
        let Some((call, waiting)) = self.bodies.next_at(ino) else { return };
        self.start(call, true);
        // Otherwise it is back at the front of the queue: it is not its turn yet.
        if self.bodies.waiting_at(ino) < waiting {
            self.ctx.next(Next::Turn(ino));
        }
    }

    fn link_closed(&mut self, link: LinkId, ended: bool) {
        self.quiesce.link_closed(&mut self.ctx, link);
        self.requests.link_closed(link);
        let reached = self.ctx.replies.link_closed(link);
        self.sessions.link_closed(&mut self.ctx, link, &reached, ended);
        self.file_locks.link_closed(&mut self.ctx, link);
        self.bodies.link_closed(link);
    }
}
