//! The threads that read requests, from INIT to the end of the mount. Knows nothing of the meaning of a
//! request.
//!
//! A reader carries a request as far as it goes, which may include reading a disk. Before it enters a call
//! that may be slow, it makes sure that another thread reads on.

use crate::abi::{init, opcode};
use crate::accesses::Accesses;
use crate::adapter::{Agreed, Core, close_all, serve, unlock};
use crate::counters::{Count, Counters};
use crate::device::{Device, Inbox};
use crate::dying::Dying;
use crate::held::Held;
use crate::kept_names::KeptNames;
use crate::known::Known;
use crate::listers::Listers;
use crate::mount::Mount;
use crate::nodes::Nodes;
use crate::opens::Opens;
use crate::passed::{Passed, Passthrough};
use crate::pending::Pending;
use crate::places::Places;
use crate::recall::Recall;
use crate::request::parse;
use crate::settle::Settling;
use crate::spins::{self, Spins};
use crate::told::Told;
use crate::watch::{self, Watch};
use atoll_core::Ino;
use atoll_vfs::{Files, handover};
use bytes::Bytes;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Most threads of one mount.
const READERS_MAX: usize = 32;
/// The same if the volume's calls may hang: seven members that hang at once in 16 calls each leave 16.
const READERS_HANGING_MAX: usize = 128;
/// Ids that are told to a volume at once when a mount ends.
const FORGET_BATCH: usize = 1024;

/// Which closes of a file tell the file system (FLUSH). Each costs one round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// All: POSIX record locks go when POSIX says so.
    #[default]
    Always,
    /// Those of files that are open for writing. A POSIX read lock that was taken through a file
    /// opened for reading only goes when nobody has that open file any more, so a child that
    /// inherited it keeps its parent's lock alive.
    Writers,
}

/// What the kernel may keep of answers: names, attributes, pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Nothing. It asks every time.
    Nothing,
    /// As much as the volume allows, until a recall.
    #[default]
    Recallable,
    /// As much as the volume allows; and the caller guarantees that nobody else opens the volume while this
    /// mount lives. Pages then survive the mount's own writes. Otherwise the kernel takes these for another
    /// mount's, and drops a file's pages when it is read after a write.
    Alone,
}

/// Who keeps file locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locks {
    /// The volume: they hold across all its mounts. The kernel must then tell of every open and
    /// close.
    #[default]
    Shared,
    /// The kernel, for this mount alone; other mounts do not see them. In exchange opens and closes
    /// cost no round trip at all.
    Local,
}

/// How a mount is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Threads that wait for requests, at most, while operations are fast. One serves one client
    /// best, because it mostly runs where the client does; the others join while requests queue up.
    /// More are added while operations are slow: up to 32, or 128 if the volume's calls may hang.
    pub readers: usize,
    /// What the kernel may keep.
    pub keep: Keep,
    /// Who keeps file locks.
    pub locks: Locks,
    /// Which closes are heard of, if locks are shared.
    pub flush: Flush,
    /// Show when files were made (`stat`'s "Birth"). Programs that ask for it, such as all that are
    /// written in Rust, then pay a round trip for each file that they look at first.
    pub birth_times: bool,
    /// Each write is synced before it returns, as [`crate::MountOptions::sync`] has the kernel do where it can.
    pub sync: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            readers: 2,
            keep: Keep::Recallable,
            locks: Locks::Shared,
            flush: Flush::Always,
            birth_times: false,
            sync: false,
        }
    }
}

/// Readers after a slow request, if so many are allowed: where one is slow the next one often is, and
/// waking a thread for each would cost more than having two read.
const SLOW_READERS: usize = 2;
/// For so many requests. Where all are quick, one reader is faster than two.
const SLOW_REQUESTS: usize = 16;

/// The readers of a mount: how many wait for requests, and how far the mount has come.
#[derive(Debug)]
pub(crate) struct Readers {
    /// As many as the present requests need, from 1 to `most`.
    wanted: AtomicUsize,
    most: usize,
    /// Never more threads than these.
    threads_max: usize,
    /// If the volume's calls may hang.
    watch: Option<Watch>,
    /// Requests until it is forgotten that one was slow.
    slow_left: AtomicUsize,
    /// Those in read(2), or on their way there.
    idle: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    threads: usize,
    parked: usize,
    /// Parked threads that were called but have not come yet.
    called: usize,
    phase: Phase,
}

/// Starting -> Serving -> Ended, or Starting -> Refused -> Ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Starting,
    Serving,
    /// The kernel speaks this version, which is too old.
    Refused(u32, u32),
    Ended,
}

/// The mount ended before it began.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    TooOld(u32, u32),
    Ended,
}

impl Readers {
    fn new(wanted: usize, may_hang: bool) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let most = wanted.clamp(1, READERS_MAX);
        let threads_max = if may_hang { READERS_HANGING_MAX } else { READERS_MAX };
        let watch = may_hang.then(Watch::default);
        let (wanted, slow_left, idle) = (1.into(), 0.into(), 0.into());
        Self { wanted, most, threads_max, watch, slow_left, idle, state, changed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// To be called by a reader that is about to be busy for long.
    pub(crate) fn keep_one_reading(core: &Arc<Core>) {
        core.readers.slow_left.store(SLOW_REQUESTS, SeqCst);
        if core.readers.idle.load(SeqCst) == 0 {
            Self::add(core);
        }
    }

    /// No reader is idle, and none takes a request: so many more.
    pub(crate) fn add_stuck(core: &Arc<Core>, count: usize) {
        Self::keep_one_reading(core);
        (1..count).for_each(|_| Self::add(core));
    }

    /// The number of threads that should read now.
    fn wanted(&self) -> usize {
        let wanted = self.wanted.load(SeqCst);
        if self.slow_left.load(SeqCst) > 0 { wanted.max(SLOW_READERS.min(self.most)) } else { wanted }
    }

    /// One more reader.
    fn add(core: &Arc<Core>) {
        let readers = &core.readers;
        let mut state = readers.lock();
        if state.phase == Phase::Ended {
            return;
        }
        if state.parked > state.called {
            state.called += 1;
            readers.idle.fetch_add(1, SeqCst);
            drop(state);
            readers.changed.notify_all();
        } else if state.threads < readers.threads_max {
            // Without it, requests wait until this one is done: no reason to fail.
            let _ = spawn(core, &mut state);
        }
    }

    /// Requests queue up, or have stopped to: as many read as can keep up.
    fn adapt(core: &Arc<Core>, queue: &mut Queue, waited: Duration, thread: u32) {
        let wanted = core.readers.wanted.load(SeqCst);
        // One too many or too few do no harm.
        let slow_left = core.readers.slow_left.load(SeqCst);
        core.readers.slow_left.store(slow_left.saturating_sub(1), SeqCst);
        match queue.judge(waited, thread) {
            Some(true) if wanted < core.readers.most => {
                core.readers.wanted.store(wanted + 1, SeqCst);
                Self::add(core);
            }
            Some(false) if wanted > 1 => core.readers.wanted.store(wanted - 1, SeqCst),
            _ => {}
        }
    }

    /// Waits while enough others read. False when the mount has ended.
    fn park(&self) -> bool {
        if self.idle.load(SeqCst) < self.wanted() {
            self.idle.fetch_add(1, SeqCst);
            return true;
        }
        let mut state = self.lock();
        // Whoever went busy meanwhile has not seen this thread among the parked ones.
        if self.idle.load(SeqCst) < self.wanted() {
            self.idle.fetch_add(1, SeqCst);
            return true;
        }
        state.parked += 1;
        while state.called == 0 && state.phase != Phase::Ended {
            state = self.changed.wait(state).expect("no holder of this lock panics");
        }
        state.parked -= 1;
        state.called = state.called.saturating_sub(1);
        state.phase != Phase::Ended
    }

    /// Whether someone reads, or is on the way there.
    pub(crate) fn is_any_idle(&self) -> bool {
        self.idle.load(SeqCst) > 0
    }

    /// A reader has a request.
    fn received(&self) {
        self.idle.fetch_sub(1, SeqCst);
        if self.watch.as_ref().is_some_and(Watch::received) {
            // Whoever is about to sleep holds the lock until it does.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Waits so long. False when the mount has ended.
    pub(crate) fn pause(&self, so_long: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, so_long, |state| state.phase != Phase::Ended);
        waited.expect("no holder of this lock panics").1.timed_out()
    }

    /// Waits for the next request. False when the mount has ended.
    pub(crate) fn sleep(&self, watch: &Watch) -> bool {
        let state = self.lock();
        let sleeps = |state: &mut State| state.phase != Phase::Ended && watch.is_calm();
        let state = self.changed.wait_while(state, sleeps).expect("no holder of this lock panics");
        state.phase != Phase::Ended
    }

    /// INIT was answered.
    pub(crate) fn started(&self) {
        self.lock().phase = Phase::Serving;
        self.changed.notify_all();
    }

    /// The kernel speaks too old a version.
    pub(crate) fn refuse(&self, major: u32, minor: u32) {
        self.lock().phase = Phase::Refused(major, minor);
        self.changed.notify_all();
    }
}

/// A reader's recent observations of how requests come.
#[derive(Debug, Default)]
struct Queue {
    /// Positive: so many requests in a row were there already. Negative: had to be waited for.
    run: i32,
    /// The thread whose request came last.
    thread: u32,
}

impl Queue {
    /// A request that came so soon was there already.
    const WAITED: Duration = Duration::from_nanos(1_500);
    /// Requests in a row after which there is work for one more reader.
    const BUSY: i32 = 32;
    /// Requests in a row after which there is work for one less.
    const CALM: i32 = -512;

    /// Whether one more reader is needed, or one less.
    fn judge(&mut self, waited: Duration, thread: u32) -> Option<bool> {
        // A thread that is answered may run at once on this processor, and ask again before this reader reads on. One client asks
        // one thing at a time: its next request was no queue. A thread of another pid namespace has no number.
        let queued = waited < Self::WAITED && (thread != self.thread || thread == 0);
        self.thread = thread;
        self.run = match (queued, self.run) {
            (true, run) => run.max(0) + 1,
            (false, run) => run.min(0) - 1,
        };
        let verdict = match self.run {
            Self::BUSY => Some(true),
            Self::CALM => Some(false),
            _ => None,
        };
        if verdict.is_some() {
            self.run = 0;
        }
        verdict
    }
}

/// One more reader, which counts as idle from now on.
fn spawn(core: &Arc<Core>, state: &mut State) -> std::io::Result<()> {
    let mine = Arc::clone(core);
    core.readers.idle.fetch_add(1, SeqCst);
    let name = format!("fuse-{}", state.threads);
    match std::thread::Builder::new().name(name).spawn(move || read_requests(&mine)) {
        Ok(_) => {
            state.threads += 1;
            Ok(())
        }
        Err(why) => {
            core.readers.idle.fetch_sub(1, SeqCst);
            Err(why)
        }
    }
}

fn read_requests(core: &Arc<Core>) {
    let mut inbox = Inbox::new();
    let mine = Arc::clone(core);
    handover::before_slow(move || Readers::keep_one_reading(&mine));
    let (mut queue, mut spins) = (Queue::default(), Spins::default());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    loop {
        let began = Instant::now();
        if spins.is_on() && processors > 1 && core.readers.idle.load(SeqCst) == 1 {
            core.device.look(Spins::MAX);
        }
        let received = inbox.receive(&core.device);
        core.readers.received();
        if received.is_err() {
            break;
        }
        let waited = began.elapsed();
        spins.came(waited, spins::taken);
        let extended = core.agreed.get().is_some_and(|agreed| agreed.flags & init::SETXATTR_EXT != 0);
        if let Some((header, request)) = parse(inbox.message(), extended) {
            let asks = !matches!(
                header.opcode,
                opcode::FORGET | opcode::BATCH_FORGET | opcode::RELEASE | opcode::RELEASEDIR
            );
            // The kernel sends the others in nobody's name, and whoever caused them goes on.
            if asks {
                Readers::adapt(core, &mut queue, waited, header.pid);
            }
            // A write's payload leaves the buffer whole, so nothing may point into it any more.
            match request {
                Ok(crate::request::Request::Write { fh, offset, size, write_flags, flags }) => {
                    let payload = inbox.payload(size as usize);
                    let request = crate::request::Request::Write { fh, offset, size, write_flags, flags };
                    serve(core, header, Ok(request), payload);
                }
                request => serve(core, header, request, Bytes::new()),
            }
        }
        if !core.readers.park() {
            break;
        }
    }
    let last = {
        let mut state = core.readers.lock();
        state.phase = Phase::Ended;
        // The last one stays in the count until all is cleared up, for whoever waits for the end.
        if state.threads > 1 {
            state.threads -= 1;
            false
        } else {
            true
        }
    };
    if last {
        end(core);
        core.readers.lock().threads = 0;
    }
    core.readers.changed.notify_all();
}

/// The kernel has forgotten everything without an orderly end. Does what it would have asked for at such an
/// end.
fn end(core: &Arc<Core>) {
    core.pending.abandon_all(&*core.files);
    Accesses::end(core);
    for (ino, holder) in core.held.drain() {
        unlock(core, ino, holder);
    }
    close_all(core);
    let mut known = Vec::new();
    core.nodes.each(|ino| known.push(ino));
    let gone: Vec<Ino> = known.into_iter().filter(|&ino| core.nodes.lower(ino, u64::MAX)).collect();
    gone.chunks(FORGET_BATCH).for_each(|batch| core.files.forget(batch));
}

/// A connection that is being served.
pub(crate) struct Session {
    core: Arc<Core>,
}

impl Session {
    /// Starts to serve, and returns when the kernel has been told how.
    pub(crate) fn start(
        fd: OwnedFd,
        files: Arc<dyn Files>,
        config: Config,
        mount: &Mount,
    ) -> std::io::Result<Self> {
        let (device, nodes) = (Arc::new(Device::new(fd)), Arc::new(Nodes::default()));
        let agreed: Arc<OnceLock<Agreed>> = Arc::default();
        let pending = Arc::new(Pending::default());
        let known = Arc::new(Known::default());
        let kept_names = Arc::new(KeptNames::default());
        files.set_watcher(Arc::new(Recall::new(&nodes, &device, &agreed, &pending, (&known, &kept_names))));
        let readers = Readers::new(config.readers, files.may_hang());
        let opens = files.hears_opens().then(Opens::default);
        let core = Arc::new(Core {
            files,
            opens,
            device,
            nodes,
            places: Places::default(),
            settling: Settling::default(),
            entrance: mount.entrance(),
            accesses: Accesses::new(mount.table()),
            agreed,
            pending,
            dying: Dying::default(),
            held: Held::default(),
            counters: Counters::default(),
            readers,
            config,
            listers: Listers::default(),
            told: Told::default(),
            handles: AtomicU64::new(1),
            passed: Passed::default(),
            known,
            kept_names,
        });
        {
            let mut state = core.readers.lock();
            spawn(&core, &mut state)?;
        }
        if core.readers.watch.is_some() {
            let mine = Arc::clone(&core);
            let run = move || {
                if let Some(it) = &mine.readers.watch {
                    watch::run(&mine, it);
                }
            };
            std::thread::Builder::new().name("fuse-watch".into()).spawn(run)?;
        }
        Ok(Self { core })
    }

    /// Returns when the kernel has been told how it is served.
    pub(crate) fn wait_started(&self) -> Result<(), NotStarted> {
        let mut state = self.core.readers.lock();
        loop {
            match state.phase {
                Phase::Starting => {}
                Phase::Serving => return Ok(()),
                Phase::Refused(major, minor) => return Err(NotStarted::TooOld(major, minor)),
                Phase::Ended => return Err(NotStarted::Ended),
            }
            state = self.core.readers.changed.wait(state).expect("no holder of this lock panics");
        }
    }

    /// Waits until the kernel has closed the connection and every reader has gone; true if so.
    pub(crate) fn wait_ended(&self, at_most: Option<Duration>) -> bool {
        let deadline = at_most.map(|limit| Instant::now() + limit);
        let mut state = self.core.readers.lock();
        while state.threads > 0 {
            state = match deadline {
                None => self.core.readers.changed.wait(state).expect("no holder of this lock panics"),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.core
                        .readers
                        .changed
                        .wait_timeout(state, left)
                        .expect("no holder of this lock panics")
                        .0
                }
            };
        }
        true
    }

    /// Ends every operation that waits for a node that does not answer.
    pub(crate) fn abandon_all(&self) {
        self.core.pending.abandon_all(&*self.core.files);
    }

    /// Whether the kernel has closed the connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.core.readers.lock().phase == Phase::Ended
    }

    pub(crate) fn counters(&self) -> Vec<Count> {
        let mut counts = self.core.counters.snapshot();
        let (told, lost) = self.core.accesses.counts();
        if told + lost > 0 {
            counts.push(Count { operation: "ACCESSED", requests: told + lost, errors: lost });
        }
        counts
    }

    pub(crate) fn nodes_known(&self) -> usize {
        self.core.nodes.count()
    }

    pub(crate) fn passthrough(&self) -> Passthrough {
        let agreed = self.core.agreed.get().map_or(0, |agreed| agreed.flags);
        match (self.core.opens.is_some(), agreed & init::PASSTHROUGH != 0) {
            (false, _) => Passthrough::NotOffered,
            (true, false) => Passthrough::OldKernel,
            (true, true) if self.core.device.may_pass() => Passthrough::On,
            (true, true) => Passthrough::NotAllowed,
        }
    }

    pub(crate) fn minor(&self) -> u32 {
        self.core.agreed.get().map_or(0, |agreed| agreed.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a queue of so many requests that were there already says last, if these threads ask by turns.
    fn verdict(threads: &[u32]) -> Option<bool> {
        let mut queue = Queue::default();
        let asking = threads.iter().cycle().take(Queue::BUSY as usize);
        asking.fold(None, |_, thread| queue.judge(Duration::ZERO, *thread))
    }

    #[test]
    fn one_thread_that_asks_again_at_once_is_no_queue() {
        assert_eq!(verdict(&[7, 8]), Some(true));
        assert_eq!(verdict(&[0]), Some(true), "nobody knows whether it is one thread");
        assert_eq!(verdict(&[7]), None);
    }
}
