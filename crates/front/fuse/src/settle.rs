//! Lets the kernel move a directory to the place where a lookup has found it, if another mount has moved it.
//! Decides no answer, only when it is sent.
//!
//! The kernel moves such a directory when it is told of it at the new place, but only if it gets the lock of
//! renames and the lock of the old parent at once. Otherwise it asks everything again, and then fails with
//! ESTALE. A rename holds the first lock itself, so it fails each time.
//!
//! So a lookup that finds a directory elsewhere is answered, and a thread of this crate looks the directory
//! up through the mount as well. That waits for the locks of the asking thread. Then the kernel moves the
//! directory, with everything that is used or mounted below. Lookups by the asking thread are held back
//! meanwhile, because they are the kernel asking again. If the old parent stays busy, the thread has the
//! kernel drop the directory from there instead, and waits for the parent's lock. That detaches mounts below,
//! so it is the second choice.
//!
//! All of this is bounded in time. Nothing waits for a thread that waits for the kernel, because the kernel
//! may wait for the answer that is delayed here.

use crate::adapter::Core;
use crate::look::Looker;
use crate::places::Place;
use atoll_core::Ino;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Directories that are handled at once. Lookups of others are answered as if the kernel had them in the
/// right place.
const JOBS_MAX: usize = 16;
/// Threads whose lookups are held back for one directory.
const ASKERS_MAX: usize = 64;
/// Requests that are delayed at once.
const WAITING_MAX: usize = 1024;
/// How long lookups of the asking threads are held back, counted from the first.
const HOLD_MAX: Duration = Duration::from_millis(100);
/// How long an answer is delayed until the kernel has dropped the directory.
const ANSWER_MAX: Duration = Duration::from_millis(10);
/// How long the kernel takes at most to send FORGET for a dropped directory that is not used.
const FORGET_MAX: Duration = Duration::from_millis(1);
/// How long the thread that looks a directory up waits for one answer. The volume may have none while a node
/// is away.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// A directory, where the kernel has it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) ino: Ino,
    pub(crate) old: Place,
    pub(crate) new: Place,
}

/// A request or an answer that is delayed.
type Later = Box<dyn FnOnce() + Send>;

/// Directories that are handled, and the requests that wait for them.
#[derive(Default)]
pub(crate) struct Settling {
    state: Mutex<State>,
    /// Signals that a delayed request is due before its time.
    changed: Condvar,
    /// Number of jobs. An ordinary lookup looks at nothing else.
    jobs: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    waiting: Vec<Waiting>,
    /// Whether the thread runs. It does while anything waits.
    has_thread: bool,
}

struct Job {
    moved: Moved,
    begun: Instant,
    /// Threads that were told where the directory is, and whose kernel may ask again.
    askers: Vec<u32>,
    /// The thread that looks the directory up; 0 before it has begun.
    looker: u32,
    dropping: Dropping,
}

/// Whether the kernel has been told to drop a directory from its old place: No -> Begun -> Done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropping {
    No,
    Begun,
    Done,
}

struct Waiting {
    /// The directory of the job.
    ino: Ino,
    until: Until,
    at_most: Instant,
    run: Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The job has ended.
    Settled,
    /// The job has ended, or the kernel has dropped the directory from its old place if it was not used.
    Dropped,
}

impl Waiting {
    fn is_due(&self, jobs: &[Job], now: Instant) -> bool {
        let job = jobs.iter().find(|job| job.moved.ino == self.ino);
        let waits = |job: &Job| self.until == Until::Settled || job.dropping != Dropping::Done;
        now >= self.at_most || !job.is_some_and(waits)
    }
}

impl Job {
    fn is_young(&self) -> bool {
        self.begun.elapsed() < HOLD_MAX
    }

    /// The thread `pid` has found the directory at `new`. Returns until when its answer is delayed.
    fn asked(&mut self, core: &Arc<Core>, pid: u32, new: &Place, asks_again: bool) -> Option<Until> {
        if !self.is_young() {
            return None;
        }
        if !self.askers.contains(&pid) {
            if self.askers.len() < ASKERS_MAX {
                self.askers.push(pid);
            }
            return asks_again.then_some(Until::Settled);
        }
        if self.moved.new != *new {
            return None;
        }
        // It asks again already, and who looks the name up too waits for this answer.
        if self.dropping == Dropping::No {
            let (core, moved) = (Arc::clone(core), self.moved.clone());
            if !spawn("fuse-drop", move || drop_from_old_place(&core, &moved)) {
                return None;
            }
            self.dropping = Dropping::Begun;
        }
        Some(Until::Dropped)
    }
}

impl State {
    fn job(&mut self, ino: Ino) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.moved.ino == ino)
    }

    fn is_looker(&self, pid: u32) -> bool {
        self.jobs.iter().any(|job| job.looker == pid)
    }
}

impl Settling {
    /// Whether any lookup may have to be held back.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs.load(SeqCst) > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// Answers a lookup by the thread `pid` that has found a directory elsewhere: now, or when the kernel can
/// move the directory.
pub(crate) fn answer(core: &Arc<Core>, pid: u32, moved: Moved, answer: Later) {
    let mut state = core.settling.lock();
    let ino = moved.ino;
    // The kernel, when it has another directory there, asks once more after the answer.
    let asks_again = core.places.at(&moved.new).is_some();
    let wait = if pid != 0 && state.is_looker(pid) {
        None
    } else if let Some(job) = state.job(ino) {
        job.asked(core, pid, &moved.new, asks_again)
    } else if begin(core, &mut state, pid, moved) {
        asks_again.then_some(Until::Settled)
    } else {
        None
    };
    match wait {
        None => {
            drop(state);
            answer();
        }
        Some(until) => {
            let at_most = Instant::now() + ANSWER_MAX;
            put_off(core, state, Waiting { ino, until, at_most, run: answer });
        }
    }
}

/// Runs a lookup of this place by the thread `pid`: now, or when the kernel has moved the directory that this
/// thread was told of.
pub(crate) fn hold(core: &Arc<Core>, pid: u32, place: &Place, lookup: Later) {
    let state = core.settling.lock();
    let concerns = |job: &&Job| job.is_young() && job.askers.contains(&pid);
    let held = state.jobs.iter().find(concerns);
    // A lookup of the place itself would hold up who looks there, since the kernel asks for it only once.
    let frees = state.jobs.iter().filter(concerns).any(|job| job.moved.new == *place);
    match held.map(|job| (job.moved.ino, job.begun)) {
        Some((ino, begun)) if !frees && !state.is_looker(pid) => {
            put_off(
                core,
                state,
                Waiting { ino, until: Until::Settled, at_most: begun + HOLD_MAX, run: lookup },
            );
        }
        _ => {
            drop(state);
            lookup();
        }
    }
}

/// A request by the thread `pid` waits for the volume. If the thread is one that looks directories up, it
/// must not wait long.
pub(crate) fn started(core: &Arc<Core>, pid: u32, unique: u64) {
    let state = core.settling.lock();
    let Some(ino) = state.jobs.iter().find(|job| job.looker == pid).map(|job| job.moved.ino) else { return };
    let mine = Arc::clone(core);
    let abandon = move || {
        if let Some(waiting) = mine.pending.waiting(unique) {
            mine.files.abandon(waiting.ticket);
        }
    };
    let at_most = Instant::now() + LOOK_MAX;
    put_off(core, state, Waiting { ino, until: Until::Settled, at_most, run: Box::new(abandon) });
}

fn put_off(core: &Arc<Core>, mut state: MutexGuard<'_, State>, waiting: Waiting) {
    if !state.has_thread {
        let core = Arc::clone(core);
        state.has_thread = spawn("fuse-settle", move || run_what_is_due(&core));
    }
    if !state.has_thread || state.waiting.len() == WAITING_MAX {
        drop(state);
        return (waiting.run)();
    }
    state.waiting.push(waiting);
    drop(state);
    core.settling.changed.notify_all();
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name.into()).spawn(run).is_ok()
}

fn run_what_is_due(core: &Core) {
    let settling = &core.settling;
    let mut state = settling.lock();
    loop {
        let now = Instant::now();
        let State { jobs, waiting, .. } = &mut *state;
        let due: Vec<Waiting> = waiting.extract_if(.., |one| one.is_due(jobs, now)).collect();
        if !due.is_empty() {
            drop(state);
            due.into_iter().for_each(|one| (one.run)());
            state = settling.lock();
            continue;
        }
        let Some(next) = waiting.iter().map(|one| one.at_most).min() else {
            state.has_thread = false;
            return;
        };
        let left = next.saturating_duration_since(now);
        state = settling.changed.wait_timeout(state, left).expect("no holder of this lock panics").0;
    }
}

/// Begins the job for a directory.
fn begin(core: &Arc<Core>, state: &mut State, pid: u32, moved: Moved) -> bool {
    let (mine, what) = (Arc::clone(core), moved.clone());
    if state.jobs.len() >= JOBS_MAX || !spawn("fuse-moved", move || settle(&mine, &what)) {
        return false;
    }
    let (begun, askers) = (Instant::now(), vec![pid]);
    state.jobs.push(Job { moved, begun, askers, looker: 0, dropping: Dropping::No });
    core.settling.jobs.store(state.jobs.len(), SeqCst);
    true
}

/// Has the kernel move a directory to its new place, or drop it from the old one.
fn settle(core: &Core, moved: &Moved) {
    let looker = Looker::new(core.entrance.clone());
    if let (Some(looker), Some(job)) = (&looker, core.settling.lock().job(moved.ino)) {
        job.looker = looker.thread();
    }
    let until = Instant::now() + HOLD_MAX;
    let is_there = loop {
        let path = core.places.path(&moved.new);
        if let (Some(looker), Some(path)) = (&looker, path)
            && looker.finds(path)
        {
            break true;
        }
        let begun = match core.settling.lock().job(moved.ino) {
            Some(job) if job.dropping == Dropping::No => {
                job.dropping = Dropping::Begun;
                true
            }
            _ => false,
        };
        if begun {
            drop_from_old_place(core, moved);
        }
        if !core.nodes.knows(moved.ino) {
            break true;
        }
        if Instant::now() >= until {
            break false;
        }
        std::thread::sleep(PAUSE);
    };
    if is_there {
        // Otherwise whoever finds it there next begins again.
        core.places.settled(moved.ino, &moved.old, &moved.new);
    }
    let mut state = core.settling.lock();
    state.jobs.retain(|job| job.moved.ino != moved.ino);
    core.settling.jobs.store(state.jobs.len(), SeqCst);
    drop(state);
    core.settling.changed.notify_all();
}

/// Has the kernel drop a directory from its old place. Waits for the lock of the directory above.
fn drop_from_old_place(core: &Core, moved: &Moved) {
    let Moved { ino, old, .. } = moved;
    // Not if another one has come there: then the kernel has dropped this one, and the other is in use.
    if core.places.at(old) == Some(*ino) {
        core.device.drop_name(old.dir, &old.name);
    }
    // What nobody uses it forgets, and then it can be told of it anywhere.
    let until = Instant::now() + FORGET_MAX;
    while core.nodes.knows(*ino) && Instant::now() < until {
        std::thread::sleep(PAUSE / 4);
    }
    if let Some(job) = core.settling.lock().job(*ino) {
        job.dropping = Dropping::Done;
    }
    core.settling.changed.notify_all();
}
