//! Sees to it that the kernel can put a directory to where it is found, when another mount has moved it
//! from where the kernel has it. Decides no answer, only when it goes out.
//!
//! The kernel moves such a directory when it is told of it at the new place, but only if it gets the lock
//! of renames and that of the old parent at once. Else it asks everything again, and then says ESTALE.
//! Whoever renames holds the first lock himself, so he fails each time.
//!
//! So each lookup that finds a directory elsewhere is answered, and a thread looks the directory up too,
//! through the mount: it waits for the locks of whoever asked, and then the kernel moves the directory,
//! with all that is used or mounted below. What the asker looks up meanwhile is held back: it is the
//! kernel asking again. Where somebody keeps the old parent busy, the thread has the kernel drop the
//! directory from there instead, for which it waits for the parent's lock; that takes away what is mounted
//! below, so it comes second.
//!
//! All of this is bounded in time, and nothing waits for a thread that waits for the kernel: what the
//! kernel waits for may be the answer that is put off here.

use crate::adapter::Core;
use crate::look::Looker;
use crate::places::Place;
use atoll_core::Ino;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Directories that are looked after at once. Others are answered as if they were where they should be.
const JOBS_MAX: usize = 16;
/// Threads whose lookups are held back for one directory.
const ASKERS_MAX: usize = 64;
/// Requests that are put off at once.
const WAITING_MAX: usize = 1024;
/// How long lookups of who asked are held back, since it was first asked for.
const HOLD_MAX: Duration = Duration::from_millis(100);
/// How long an answer is put off until the kernel has dropped the directory.
const ANSWER_MAX: Duration = Duration::from_millis(10);
/// How long the kernel takes, at most, to tell that it has forgotten what it has dropped, if nobody uses it.
const FORGET_MAX: Duration = Duration::from_millis(1);
/// How long who looks a directory up waits for one answer: the volume may have none for as long as a node is
/// away.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// A directory, where the kernel has it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) ino: Ino,
    pub(crate) old: Place,
    pub(crate) new: Place,
}

/// A request or an answer that is put off.
type Later = Box<dyn FnOnce() + Send>;

/// Directories that are looked after, and what waits for that.
#[derive(Default)]
pub(crate) struct Settling {
    state: Mutex<State>,
    /// Something is due sooner than by its time.
    changed: Condvar,
    /// How many jobs there are: all that an ordinary lookup looks at.
    jobs: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    waiting: Vec<Waiting>,
    /// A thread is there while anything waits.
    has_thread: bool,
}

struct Job {
    moved: Moved,
    begun: Instant,
    /// Threads that were told where the directory is, and whose kernel may ask again.
    askers: Vec<u32>,
    /// The thread that looks it up; 0 before it has begun.
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
    /// For the job of this directory.
    ino: Ino,
    until: Until,
    at_most: Instant,
    run: Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The job has ended.
    Settled,
    /// Or the kernel has dropped the directory from its old place, if nobody uses it.
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

    /// The thread `pid` has found the directory at `new`: until when its answer is put off.
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
/// put it there.
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

/// Runs a lookup of this place by the thread `pid`: now, or when the kernel has put the directory away that
/// this thread was told of.
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

/// A request by the thread `pid` waits for the volume. If that is one that looks a directory up, it is not to
/// wait long.
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

/// Begins to look after a directory.
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

/// Has the kernel put a directory to its new place, or drop it from the old one.
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

/// Has the kernel drop a directory from where it has it. Waits for the lock of the directory above.
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
