//! The engine: one island's machine and log behind one lock, and the way of an event through them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use atoll_body::Bodies;
use atoll_core::map::IdSet;
use atoll_core::{Ino, IslandId};
use atoll_disk::Disk;
use atoll_group::GroupEvent;
use atoll_island::{
    BesideSays, BodyOp, BodyOpId, Counters, Damage, Effect, Event, Island, LinkId, Now, Phase,
};
use atoll_log::Log;
use atoll_proto::{Notice, PeerMessage, Record, Reply};
use atoll_snapshot::Snapshot;
use atoll_state::State;

use crate::behind::{AGE_MS, Behind};
use crate::beside::{BesideMaker, BesideSetup};
use crate::door::Held;
use crate::fill::Pins;
use crate::follow::Following;
use crate::grouped::{Grouped, Rounds};
use crate::open::Reached;
use crate::role::Role;
use crate::ship::{Readers, Window};
use crate::space::{Lack, Space, SpaceState};
use crate::work::Work;

/// The receiver of answers and messages. Called without the island's lock, on the thread that brought the
/// event. It must not wait.
pub trait Net: Send + Sync + 'static {
    /// Answers request `id` of `link`. `data` are the bytes of `Answer::Data`.
    fn reply(&self, from: IslandId, link: LinkId, id: u64, reply: Reply, data: &[u8]);
    /// Tells a client unasked.
    fn notice(&self, from: IslandId, link: LinkId, notice: Notice);
    /// Sends to an island. What cannot be delivered is dropped: the machines repeat what matters.
    fn send(&self, to: IslandId, message: PeerMessage);
    /// The machine beside an island says something to another one, numbered as in [`Effect::Beside`]: it is to be delivered in that order.
    /// What cannot be delivered is dropped.
    fn beside(&self, _from: IslandId, _number: u64, _says: BesideSays) {}
    /// The island has halted: its log cannot be trusted any more.
    fn halted(&self, island: IslandId, why: &str);
    /// The island takes only what makes room from now on, because its disk is full; or everything again. Told once
    /// for each change.
    fn space(&self, island: IslandId, state: SpaceState);
    /// Bytes of a file are not what was written, or the disk does not give them: whoever asks gets
    /// `EIO`. Told once for each file.
    fn damaged(&self, island: IslandId, why: &str);
}

/// The network of an island that talks to nobody: messages and answers are dropped. For tools that look at a
/// node at rest, and tests.
#[derive(Debug)]
pub struct Nobody;

impl Net for Nobody {
    fn reply(&self, _: IslandId, _: LinkId, _: u64, _: Reply, _: &[u8]) {}
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn halted(&self, _: IslandId, _: &str) {}
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, _: &str) {}
}

/// The time, as the machine is told.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Now;
    /// Milliseconds of the machine's boot clock, which goes on while it sleeps. Promises to other machines are made by it.
    fn boot_ms(&self) -> u64;
    /// Lets so much time pass, on a thread that can wait.
    fn pass(&self, time: Duration);
}

/// The island has stopped serving after an error of its disk. Only a restart shows what the disk has.
#[derive(Debug, Clone, thiserror::Error)]
#[error("island {island} has stopped: {why}")]
pub struct Halted {
    /// The island.
    pub island: IslandId,
    /// The error.
    pub why: String,
}

/// An island that runs.
pub struct Engine<D: Disk> {
    pub(crate) id: IslandId,
    pub(crate) core: Mutex<Core<D>>,
    pub(crate) disk: Arc<D>,
    pub(crate) bodies: Arc<Bodies<D>>,
    pub(crate) snapshot: Snapshot,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) behind: Behind,
    /// Makes the machine beside the island; none if it has none.
    pub(crate) beside: Option<Arc<dyn BesideMaker>>,
    pub(crate) readers: Readers,
    /// Effects that no request's thread performs, such as checkpoints.
    pub(crate) background: Mutex<VecDeque<Effect>>,
    /// Bodies to be removed, which takes a disk long.
    pub(crate) drops: Mutex<VecDeque<(BodyOpId, Ino)>>,
    /// Counts the uses of the disk that callers wait for.
    pub(crate) disk_uses: AtomicU64,
    halted: AtomicBool,
    /// It is used no more: the copy is opened anew, or its process ends.
    closed: AtomicBool,
    /// Uses of its files that are under way.
    uses: AtomicUsize,
    /// The group of which this is a copy. Never set if it is the only copy.
    pub(crate) grouped: OnceLock<Grouped>,
    /// Syncs that all members make together, and that are under way.
    pub(crate) rounds: Mutex<Rounds>,
    /// The machine was told that it may not decide changes of clients.
    pub(crate) waits_to_decide: AtomicBool,
    /// What is decided, and may not be told yet.
    pub(crate) held: Mutex<Held>,
    /// A sync of the log has ended.
    sync_ended: Condvar,
    pub(crate) following: Mutex<Following>,
    /// Blocks of bodies that differ from their checksums, and whose bytes are yet to be fetched.
    pub(crate) differs: AtomicU32,
    /// Bytes are missing, because its rows are another copy's.
    pub(crate) fills: AtomicBool,
    /// Somebody is about to look for them.
    pub(crate) walks: AtomicBool,
    /// Snapshots from which other copies take rows.
    pub(crate) pins: Pins,
    pub(crate) space: Space,
    /// Changes of bodies that records have decided and that find no space, in order. The gate of each body is
    /// held.
    pub(crate) waiting_bodies: Mutex<VecDeque<(BodyOpId, BodyOp)>>,
    /// Rows that the next checkpoint would write, as of the last event.
    rows_dirty: AtomicUsize,
    /// Files that were reported.
    pub(crate) damaged: Mutex<IdSet<Ino>>,
    /// What else was reported.
    pub(crate) damage: Mutex<IdSet<Damage>>,
}

/// Bodies that may wait to be removed by the background thread. If there are more, the thread that brings new
/// ones removes them.
pub(crate) const DROPS_MAX: usize = 1 << 10;
/// Milliseconds after which the remaining removals wait for the next time, because the same thread does the
/// housekeeping.
const DROPS_MS: u64 = 20;
/// Whoever closes an engine looks so often whether its uses have ended.
const CLOSING: Duration = Duration::from_millis(1);
/// Whoever waits for a sync of another thread looks so often whether the log has stopped.
const SYNC_LOOK: Duration = Duration::from_millis(10);

/// The state behind the lock.
pub(crate) struct Core<D: Disk> {
    pub(crate) role: Role,
    pub(crate) log: Log<D>,
    /// The last record with changes of bodies.
    pub(crate) last_body: u64,
    out: Vec<Effect>,
    head: Vec<u8>,
    /// Records that other copies may not have yet. None if there are no other copies.
    pub(crate) window: Option<Window>,
}

impl<D: Disk> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: Disk> Engine<D> {
    pub(crate) fn assemble(
        id: IslandId,
        role: Role,
        log: Log<D>,
        disk: Arc<D>,
        bodies: Arc<Bodies<D>>,
        snapshot: Snapshot,
        (net, clock): (Arc<dyn Net>, Arc<dyn Clock>),
    ) -> Self {
        Self {
            id,
            core: Mutex::new(Core {
                role,
                log,
                last_body: 0,
                out: Vec::new(),
                head: Vec::new(),
                window: None,
            }),
            disk,
            bodies,
            snapshot,
            net,
            clock,
            behind: Behind::default(),
            beside: None,
            readers: Readers::default(),
            background: Mutex::default(),
            drops: Mutex::default(),
            disk_uses: AtomicU64::new(0),
            halted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            uses: AtomicUsize::new(0),
            grouped: OnceLock::new(),
            rounds: Mutex::default(),
            waits_to_decide: AtomicBool::new(false),
            held: Mutex::default(),
            sync_ended: Condvar::new(),
            following: Mutex::default(),
            differs: AtomicU32::new(0),
            fills: AtomicBool::new(false),
            walks: AtomicBool::new(false),
            pins: Pins::default(),
            space: Space::default(),
            waiting_bodies: Mutex::default(),
            rows_dirty: AtomicUsize::new(0),
            damaged: Mutex::default(),
            damage: Mutex::default(),
        }
    }

    /// This island.
    pub const fn id(&self) -> IslandId {
        self.id
    }

    /// The disk that it lies on.
    pub const fn disk(&self) -> &Arc<D> {
        &self.disk
    }

    /// The island's bodies.
    pub const fn bodies(&self) -> &Arc<Bodies<D>> {
        &self.bodies
    }

    /// The island's snapshot.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The island's counters.
    pub fn counters(&self) -> Counters {
        self.lock().role.island().map_or_else(Counters::default, |island| *island.counters())
    }

    /// How often clients have used the island: it changes while they do.
    pub fn uses(&self) -> u64 {
        self.disk_uses.load(Ordering::Relaxed) + self.counters().requests
    }

    /// How many sessions there are, and how many of them are mounts.
    pub fn sessions(&self) -> (u64, u64) {
        self.with_state(|state| {
            let mounts = state.session_ids().filter(|s| state.session(*s).is_some_and(|row| row.mount));
            (state.session_ids().count() as u64, mounts.count() as u64)
        })
    }

    /// What it lets in: nothing if it follows.
    pub fn phase(&self) -> Phase {
        self.lock().role.island().map_or(Phase::Hidden, |island| island.phase())
    }

    /// Sends what is decided from here on to other copies, too.
    pub fn begin_shipping(&self) {
        let mut core = self.lock();
        core.window = Some(Window::behind(core.log.last()));
    }

    /// Whether there are other copies.
    pub(crate) fn ships(&self) -> bool {
        self.lock().window.is_some()
    }

    /// It leads from here on: it decides, and answers.
    pub(crate) fn lead(&self) -> Result<(), String> {
        *self.following.lock().expect("no panic while it is held") = Following::default();
        self.begin_to_lead(&mut self.lock().role)
    }

    /// A copy decides from here on, and so does the machine beside it, if the island is to have one.
    pub(crate) fn begin_to_lead(&self, role: &mut Role) -> Result<(), String> {
        let maker = self.beside.clone();
        let beside =
            maker.map(|maker| BesideSetup::read(maker, role.state_mut(), &self.snapshot)).transpose()?;
        role.lead(self.clock.now(), beside)
    }

    /// Rows in memory that no checkpoint has, about. They stay there until one is made.
    pub fn rows_dirty(&self) -> usize {
        self.rows_dirty.load(Ordering::Relaxed)
    }

    /// Makes everything that it has decided so far survive a power cut; how far that is.
    pub fn reach(&self) -> Result<Reached, Halted> {
        // What was decided when it was opened goes to the log with the first event.
        self.tick();
        let seq = self.with_state(|state| state.seq());
        self.sync_upto(seq).map_err(|why| Halted { island: self.id, why })?;
        Ok(self.reached())
    }

    /// The incarnation, and the last record that is synced.
    pub fn reached(&self) -> Reached {
        let core = self.lock();
        Reached { incarnation: core.role.state().meta().incarnation, seq: core.log.synced_upto() }
    }

    /// Milliseconds of its clock now.
    pub fn now_ms(&self) -> u64 {
        self.clock.now().ms
    }

    /// Whether it takes every operation or, on a full disk, only those that make room.
    pub fn space_state(&self) -> SpaceState {
        self.space.state()
    }

    /// Notes whether `lack` has found space. If that changes what the island takes, tells the network.
    pub(crate) fn note_space(&self, lack: Lack, found_none: bool) {
        if let Some(state) = self.space.note(lack, found_none, self.clock.now().ms) {
            self.net.space(self.id, state);
        }
    }

    /// Whether it decides, and has not stopped.
    pub fn is_leading(&self) -> bool {
        !self.is_halted() && self.lock().role.island().is_some()
    }

    /// True after an error of the disk, and when it was closed.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire)
    }

    /// Ends it: nothing more is decided, told, read or written by it. Returns when whatever was under way has ended. The
    /// copy can be opened anew then.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        while self.uses.load(Ordering::SeqCst) > 0 {
            self.clock.pass(CLOSING);
        }
        *self.held.lock().expect("no panic while it is held") = Held::default();
        self.snapshot.close();
    }

    /// While it lives the files are used, and the engine is not closed. None if it was.
    pub(crate) fn in_use(&self) -> Option<InUse<'_>> {
        self.uses.fetch_add(1, Ordering::SeqCst);
        let used = InUse(&self.uses);
        (!self.closed.load(Ordering::SeqCst)).then_some(used)
    }

    /// It was closed, or is to be when nobody uses the files any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether it leads: it has a machine that decides.
    pub fn leads(&self) -> bool {
        self.lock().role.island().is_some()
    }

    /// Looks at the machine.
    ///
    /// # Panics
    /// If the copy follows: then it has none.
    pub fn with_island<R>(&self, look: impl FnOnce(&mut Island) -> R) -> R {
        look(self.lock().role.island().expect("a follower has no machine"))
    }

    /// Looks at the rows, or takes the view's lists from them.
    pub fn with_state<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(self.lock().role.state_mut())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core<D>> {
        // A panic inside the machine is a broken invariant: nothing may go on with its state.
        self.core.lock().expect("the island's machine has panicked")
    }

    /// Takes an event through the machine and performs its effects, on this thread.
    pub fn enter(&self, event: Event) {
        let mut work = self.begin(event);
        while self.go_on(&mut work) {}
    }

    /// The first half of [`Engine::enter`]: the effects are left to [`Engine::go_on`], so that a simulation
    /// can run other threads between any two effects.
    pub fn begin(&self, event: Event) -> Work {
        let mut work = Work::default();
        self.step(event, &mut work);
        work
    }

    /// Performs the next effect, and takes its result to the machine. False: no effect was left, and what takes long for
    /// the island's group is done too.
    pub fn go_on(&self, work: &mut Work) -> bool {
        let goes_on = self.go_on_here(work);
        if !goes_on {
            self.finish();
        }
        goes_on
    }

    /// The same, and leaves what takes long for the group to others.
    pub(crate) fn go_on_here(&self, work: &mut Work) -> bool {
        if work.is_done() {
            return false;
        }
        if let Some(event) = self.perform_next(work) {
            self.step(event, work);
        }
        true
    }

    /// The first half of [`Engine::go_on`]: performs the next effect and returns its result, for
    /// [`Engine::tell`]. So a simulation can run other threads between the two, as a daemon may.
    pub fn perform_next(&self, work: &mut Work) -> Option<Event> {
        if work.done.is_empty() || work.has_messages() {
            match work.next()? {
                Effect::Body(ticket, BodyOp::Sync { ino }) => {
                    let syncs = work.syncs((ticket, ino));
                    work.done.extend(self.sync_bodies(&syncs));
                }
                effect => return self.perform(effect),
            }
        }
        work.done.pop_front()
    }

    /// The second half: tells the machine the result of an effect.
    pub fn tell(&self, event: Event, work: &mut Work) {
        self.step(event, work);
    }

    /// One event into the machine; then the log is written as far as nobody else is at it. Answers
    /// that waited for that are among the effects.
    fn step(&self, event: Event, work: &mut Work) {
        if self.is_halted() {
            return;
        }
        if let Err(why) = self.try_step(event, work) {
            self.halt(&why);
        }
    }

    fn try_step(&self, event: Event, work: &mut Work) -> Result<(), String> {
        let Some(_used) = self.in_use() else { return Ok(()) };
        let flush = matches!(event, Event::Tick { .. });
        let mut core = self.lock();
        // Under the lock: a thread that was stopped before it must not judge by an old time.
        let now = self.clock.now();
        core.handle(now, event, work)?;
        self.rows_dirty.store(core.role.state().dirty_len(), Ordering::Relaxed);
        if flush || core.role.island().is_some_and(|island| island.wants_write()) {
            drop(self.write(core, now, work)?);
        }
        Ok(())
    }

    /// Writes the log, unless another thread does, without the lock, until no record waits.
    fn write<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core<D>>,
        now: Now,
        work: &mut Work,
    ) -> Result<MutexGuard<'a, Core<D>>, String> {
        while let Some(batch) = core.log.take_batch().map_err(|e| e.to_string())? {
            let leads = core.role.island().is_some();
            drop(core);
            if leads {
                // The other copies write while this one does.
                self.tell_group(GroupEvent::Decided { seq: batch.last().seq });
            }
            let performed = batch.perform();
            core = self.lock();
            let upto = core.log.written(performed).map_err(|e| e.to_string())?;
            let stuck = core.log.is_stuck();
            if stuck != self.space.lacks(Lack::Record) {
                self.note_space(Lack::Record, stuck);
                core.handle(now, Event::LogStuck(stuck), work)?;
            }
            if self.is_grouped() {
                let last_body = core.last_body;
                drop(core);
                self.tell_group(GroupEvent::Written { seq: upto, last_body });
                core = self.lock();
            } else {
                core.handle(now, Event::Committed(upto), work)?;
            }
        }
        Ok(core)
    }

    /// Writes records that nobody waits for.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let Some(_used) = self.in_use() else { return Err("it is closed".to_owned()) };
        let mut work = Work::default();
        drop(self.write(self.lock(), self.clock.now(), &mut work)?);
        while self.go_on_here(&mut work) {}
        Ok(())
    }

    /// Syncs the log as far as it is written: how far that is. None if another thread is at it, nothing is to be synced, or
    /// the log has stopped.
    pub(crate) fn sync(&self) -> Option<u64> {
        let _used = self.in_use()?;
        let sync = match self.lock().log.take_sync() {
            Ok(sync) => sync?,
            Err(error) => {
                self.halt(&error.to_string());
                return None;
            }
        };
        atoll_handover::slow();
        let done = sync.perform();
        let synced = self.lock().log.synced(done);
        self.sync_ended.notify_all();
        match synced {
            Ok(upto) => {
                self.tell_group(GroupEvent::Synced { seq: upto });
                Some(upto)
            }
            Err(error) => {
                // After a failed fsync nothing more is promised.
                self.halt(&error.to_string());
                None
            }
        }
    }

    /// Makes every record up to `seq` survive a power cut, by this thread or another.
    pub(crate) fn sync_upto(&self, seq: u64) -> Result<(), String> {
        loop {
            let core = self.lock();
            if core.log.synced_upto() >= seq {
                return Ok(());
            }
            if core.log.is_stuck() {
                return Err("the log finds no space".to_owned());
            }
            drop(core);
            self.flush()?;
            match self.sync() {
                Some(upto) => self.know_synced_alone(upto),
                None if self.is_halted() => return Err("the log has stopped".to_owned()),
                // What was decided outside of an event goes to the log with the next one.
                None if seq > self.last().seq => self.tick(),
                None => self.await_sync(seq),
            }
        }
    }

    /// Waits for the sync that another thread makes, unless it has ended meanwhile.
    fn await_sync(&self, seq: u64) {
        let core = self.lock();
        if core.log.synced_upto() < seq {
            drop(self.sync_ended.wait_timeout(core, SYNC_LOOK));
        }
    }

    /// Tells the time to the machine, which begins what is due. Called a few times a second.
    pub fn tick(&self) {
        if !self.is_halted() {
            let event = self.time();
            self.enter(event);
        }
    }

    /// The event by which the machine hears that time has passed.
    pub(crate) fn time(&self) -> Event {
        let mut bytes_available = self.room();
        if self.space.lacks(Lack::Record) && self.space.is_due(Lack::Record, self.clock.now().ms) {
            self.lock().log.try_again();
        }
        if let Some(grouped) = self.grouped.get() {
            self.tell_disk();
            bytes_available = bytes_available.min(grouped.place.room());
        }
        Event::Tick { bytes_available }
    }

    /// Bytes that this disk has for the island.
    pub(crate) fn room(&self) -> u64 {
        if self.space.state() != SpaceState::Normal {
            return 0;
        }
        // What waits to be put in place is promised, with as much again for blocks and inodes.
        let promised = self.behind.waiting_bytes().saturating_mul(2);
        self.disk.space().map_or(0, |space| space.bytes_available.saturating_sub(promised))
    }

    /// Puts all bytes that wait in place.
    pub(crate) fn settle_bodies(&self) -> Result<(), String> {
        let settled = self.behind.settle_older(&self.bodies, u64::MAX);
        settled.and_then(|()| self.settle_followed()).map_err(|e| e.to_string())
    }

    pub(crate) fn halt(&self, why: &str) {
        // What ends with a closed engine says nothing about the disk.
        if !self.closed.load(Ordering::Acquire) && !self.halted.swap(true, Ordering::AcqRel) {
            self.net.halted(self.id, why);
            self.note_for_group(GroupEvent::Stopped);
        }
    }

    // ------------------------------------------------------------- housekeeping

    /// Does the work that no request waits for: checkpoints and the log's next segment. Called by one thread,
    /// after each [`Engine::tick`].
    pub fn housekeep(&self) {
        let Some(_used) = self.in_use().filter(|_| !self.is_halted()) else { return };
        let now = self.clock.now().ms;
        // Without space, the log and memory have them: they wait for some.
        let placed = match self.behind.settle_older(&self.bodies, now.saturating_sub(AGE_MS)) {
            Err(error) if !error.is_no_space() => return self.halt(&error.to_string()),
            placed => placed.is_ok(),
        };
        self.drop_bodies();
        let performed = self.perform_waiting();
        self.note_space(Lack::Bodies, !(placed && performed));
        while self.space.is_due(Lack::Checkpoint, self.clock.now().ms) {
            let next = self.background.lock().expect("no panic while it is held").pop_front();
            let Some(effect) = next else { break };
            // One that waits for space is tried again at the next tick.
            let Some(event) = self.perform_background(effect) else { break };
            self.enter(event);
        }
        if self.space.is_due(Lack::Segment, now) {
            self.prepare_segment();
        }
    }

    /// Makes the log's next segment. Without space for one, and with the last one half full, what is left is for what
    /// makes room; a checkpoint lets go of segments, and the next one is made from these.
    fn prepare_segment(&self) {
        let Some(preparation) = self.lock().log.preparation() else { return };
        let prepared = preparation.perform();
        let mut core = self.lock();
        let low = core.log.prepared(prepared).is_err() && core.log.is_half_full();
        drop(core);
        let was_low = self.space.lacks(Lack::Segment);
        self.note_space(Lack::Segment, low);
        if low && !was_low {
            self.enter(Event::CheckpointWanted);
        }
    }

    /// Does the changes of bodies that found no space before. True if none is left.
    fn perform_waiting(&self) -> bool {
        loop {
            let next = self.waiting_bodies.lock().expect("no panic while it is held").pop_front();
            let Some((ticket, op)) = next else { return true };
            match self.change_body(ticket, op) {
                Ok(None) => return false,
                Ok(Some(event)) => self.enter(event),
                Err(why) => {
                    self.halt(&why);
                    return false;
                }
            }
        }
    }

    /// Removes bodies that have gone, for a while; all of them if a checkpoint waits for that.
    fn drop_bodies(&self) {
        let awaited = self.lock().role.island().is_some_and(|island| island.is_making_checkpoint());
        let until = if awaited { u64::MAX } else { self.clock.now().ms + DROPS_MS };
        while self.clock.now().ms < until {
            let next = self.drops.lock().expect("no panic while it is held").pop_front();
            let Some((ticket, ino)) = next else { break };
            if let Some(event) = self.drop_body(ticket, ino) {
                self.enter(event);
            }
        }
    }

    /// Sets rows of an island at rest, which nobody uses, with a record of its own, and waits until that
    /// survives a power cut. The island is to be stopped again afterwards.
    pub fn amend(&self, changes: Vec<atoll_proto::RowChange>) -> Result<(), Halted> {
        let halted = |why| Halted { island: self.id, why };
        for change in &changes {
            self.load_needed(change).map_err(halted)?;
        }
        self.with_island(|island| island.correct(changes, Vec::new()));
        // What was decided outside of an event goes to the log with the next one.
        self.tick();
        let seq = self.with_state(|state| state.seq());
        self.sync_upto(seq).map_err(halted)
    }
}

/// See [`Engine::in_use`].
pub(crate) struct InUse<'a>(&'a AtomicUsize);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<D: Disk> Core<D> {
    /// Takes an event through the machine. One that comes to a follower is not for it.
    fn handle(&mut self, now: Now, event: Event, work: &mut Work) -> Result<(), String> {
        let Some(island) = self.role.island() else { return Ok(()) };
        island.handle(now, event, &mut self.out);
        // The record that begins an incarnation is the first of it.
        let epoch = island.state().meta().incarnation;
        for effect in self.out.drain(..) {
            match effect {
                Effect::Append(seq, record, placed) => {
                    if !record.bodies.is_empty() {
                        self.last_body = seq;
                    }
                    let carried = append(&mut self.log, &mut self.head, epoch, seq, &record)?;
                    if let Some(window) = &mut self.window {
                        let payload = [&self.head[..], &carried.concat()].concat().into();
                        window.push(self.log.last(), payload, &record, placed);
                    }
                }
                other => work.push(other),
            }
        }
        Ok(())
    }
}

/// Appends a record, whose payload is `head` and then the bytes that it carries: these.
fn append<'a, D: Disk>(
    log: &mut Log<D>,
    head: &mut Vec<u8>,
    epoch: u32,
    seq: u64,
    record: &'a Record,
) -> Result<Vec<&'a [u8]>, String> {
    head.clear();
    let carried: Vec<&[u8]> = record.encode_head(head).collect();
    debug_assert_eq!(
        Record::decode_whole(&[head, carried.concat().as_slice()].concat()).as_ref(),
        Ok(record),
        "a recovery would read another record"
    );
    let position = match carried.as_slice() {
        [] => log.append(epoch, &[head]),
        [one] => log.append(epoch, &[head, one]),
        many => {
            let mut pieces: Vec<&[u8]> = vec![head];
            pieces.extend(many);
            log.append(epoch, &pieces)
        }
    }
    .map_err(|e| e.to_string())?;
    assert_eq!(position.seq, seq, "machine and log count differently");
    Ok(carried)
}
