//! A union in this process: a machine, its members, and the operations under way.
//!
//! The thread that brings an operation makes its native calls and gives its answer. So nothing hops between threads, and a
//! call that hangs holds only the thread that made it. If that takes too long, a thread that makes no native call gives the
//! answer in its place. Decides nothing.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod explain;
mod frontends;
mod handles;
mod intents;
mod locks;
mod members;
mod opens;
mod undelete;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use atoll_core::{IdMap, Ino, Name, Time};
use atoll_intents::Intents;
use atoll_member::{Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Op, RequestOptions};
use atoll_union::{
    Changes, Finished, FrontendId, MemberState, Moment, NativeCall, NativeReply, Planned, Settings, Tag,
    Union, UnionEffect, UnionRequest, Who,
};
use bytes::Bytes;

pub use explain::{NameSeen, NotResolved};
use frontends::Frontends;
pub use frontends::Heard;
use handles::Handles;
use intents::Written;
pub use intents::{SettledRename, Trees, settle, settle_left};
pub use locks::LOCK_WAITS_MAX;
use locks::Waits;
pub use opens::OpenDone;
use opens::Opens;
pub use undelete::NotBack;

/// How often members are asked for changes, and whether they answer.
const PERIOD: Duration = Duration::from_millis(100);
/// After so many periods a member's room is asked for again.
const SPACE_PERIODS: u32 = 50;

/// Called once with the outcome of an operation.
pub type Done = Box<dyn FnOnce(Result<Finished, Errno>) + Send>;
/// A member that is opened: its tag, whether nothing is changed in it, and its tree.
pub type Opened = (Tag, bool, Arc<dyn Tree>);

/// Where moments come from.
enum Clock {
    /// The machine's clocks, since this instant.
    Real(Instant),
    /// A test sets them.
    Set(Mutex<Moment>),
}

/// A union in this process.
pub struct Federation {
    machine: Mutex<Union>,
    trees: RwLock<Trees>,
    pending: Mutex<IdMap<u64, Done>>,
    opens: Opens,
    frontends: Frontends,
    handles: Handles,
    /// Opens and locks that a member was to let go of while it hung.
    unclosed: Mutex<Vec<Planned>>,
    written: Written,
    next: AtomicU64,
    clock: Clock,
    stopped: AtomicBool,
    /// Locks that are waited for.
    waits: Arc<Waits>,
    me: Weak<Self>,
}

impl Federation {
    /// A union of these members, in the user's order. Its housekeeping runs on threads of its own until [`Federation::stop`].
    pub fn start(settings: Settings, members: Vec<Opened>) -> Arc<Self> {
        let this = Self::new(settings, members, Clock::Real(Instant::now()));
        this.repeat("atoll-union".into(), |this, nth| {
            this.give_up_late(nth % SPACE_PERIODS == 0);
            true
        });
        this.trees().iter().for_each(|(tag, tree)| this.look_after(*tag, tree));
        this
    }

    /// Does a member's housekeeping on a thread of its own until it leaves: it makes native calls, so it may hang.
    fn look_after(self: &Arc<Self>, tag: Tag, tree: &Arc<dyn Tree>) {
        let tree = Arc::downgrade(tree);
        self.repeat(format!("union-{:04x}", tag.0), move |this, nth| {
            let stays = this.tree(tag).is_some_and(|now| Weak::ptr_eq(&Arc::downgrade(&now), &tree));
            if stays {
                this.keep_house(tag, nth % SPACE_PERIODS == 0);
            }
            stays
        });
    }

    /// Does this every 100 ms on a thread of this name, which is told how often it was done before, until it says false.
    fn repeat(self: &Arc<Self>, name: String, work: impl Fn(&Self, u32) -> bool + Send + 'static) {
        let (keeper, mut nth) = (Arc::downgrade(self), 0_u32);
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            while let Some(this) = keeper.upgrade()
                && !this.stopped.load(Ordering::Relaxed)
                && work(&this, nth)
            {
                nth = nth.wrapping_add(1);
                drop(this);
                std::thread::sleep(PERIOD);
            }
        });
        if let Err(why) = spawned {
            tracing::error!(
                "changes that others make in a member are seen later, or operations that hang are not answered: no thread \
                 to be had: {why}"
            );
        }
    }

    /// A union whose clock and housekeeping a test drives: it has no thread. `now.ms` is not 0.
    pub fn stepped(settings: Settings, members: Vec<Opened>, now: Moment) -> Arc<Self> {
        Self::new(settings, members, Clock::Set(Mutex::new(now)))
    }

    fn new(settings: Settings, members: Vec<Opened>, clock: Clock) -> Arc<Self> {
        let now = clock.now();
        let shown = members.iter().map(|opened| members::serving(opened, now));
        let machine = Union::new(settings, shown.collect(), true, now);
        let trees = members.into_iter().map(|(tag, _, tree)| (tag, tree)).collect();
        Arc::new_cyclic(|me| Self {
            machine: Mutex::new(machine),
            trees: RwLock::new(trees),
            pending: Mutex::default(),
            opens: Opens::default(),
            frontends: Frontends::default(),
            handles: Handles::default(),
            unclosed: Mutex::default(),
            written: Written::default(),
            next: AtomicU64::new(1),
            clock,
            stopped: AtomicBool::new(false),
            waits: Arc::default(),
            me: Weak::clone(me),
        })
    }

    /// Sets the clock of a union that a test drives. Panics if the union runs by the machine's clocks.
    pub fn set_clock(&self, now: Moment) {
        let Clock::Set(clock) = &self.clock else { panic!("this union has its own clock") };
        *clock.lock().expect("no holder panics") = now;
    }

    /// The same, and does what its housekeeping does every 100 ms.
    pub fn step(&self, now: Moment) {
        self.set_clock(now);
        self.give_up_late(true);
        for (tag, _) in self.trees() {
            self.keep_house(tag, true);
            self.ask_again(tag);
        }
    }

    /// Ends its housekeeping.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.trees().iter().for_each(|(tag, tree)| self.written.sync(*tag, tree));
    }

    /// Where it writes down what it renames in several members. Without it such renames are `EXDEV`.
    pub fn keep_intents_in(&self, store: Arc<dyn Intents>) {
        self.written.keep_in(store);
    }

    fn trees(&self) -> Trees {
        self.trees.read().expect("no holder panics").clone()
    }

    /// Its machine, for status and explanations.
    pub fn machine(&self) -> MutexGuard<'_, Union> {
        self.machine.lock().expect("a broken machine ends the process")
    }

    /// Now, on the clock that its machine goes by.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Starts an operation of the first frontend. `done` may run on this thread before this returns. The number is for
    /// [`Federation::cancel`].
    pub fn submit(&self, request: UnionRequest, done: Done) -> u64 {
        self.submit_for(FrontendId::default(), request, done)
    }

    /// The same for any frontend.
    pub fn submit_for(&self, frontend: FrontendId, request: UnionRequest, done: Done) -> u64 {
        match request.op {
            Op::SetLock { ino, lock, wait } => self.submit_lock(request, (ino, lock, wait), done),
            _ => {
                let done = self.telling(frontend, &request, done);
                self.begin(frontend, request, done);
                0
            }
        }
    }

    fn begin(&self, frontend: FrontendId, request: UnionRequest, done: Done) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().expect("no holder panics").insert(id, done);
        let mut effects = Vec::new();
        self.machine().start(self.clock.now(), (id, frontend), request, &mut effects);
        self.perform(effects);
    }

    /// Walks one step, in the name of the daemon.
    fn look_up(&self, frontend: FrontendId, dir: Ino, name: Name) -> Result<Ino, Errno> {
        match self.inquire(frontend, Op::Lookup { dir, name })? {
            Answer::Found { found } => Ok(found.attr.ino),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Asks something in the name of the daemon, for this frontend, and waits for it.
    fn inquire(&self, frontend: FrontendId, op: Op) -> Result<Answer, Errno> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let options = RequestOptions::default();
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
        let done = move |outcome: Result<Finished, Errno>| {
            // Whoever asks waits for it.
            let _ = send.send(outcome);
        };
        self.begin(frontend, request, Box::new(done));
        Ok(receive.recv().unwrap_or(Err(Errno::EIO))?.answer)
    }

    /// The first frontend does not know these any more.
    pub fn forget(&self, inos: &[Ino]) {
        self.forget_for(FrontendId::default(), inos);
    }

    /// The same for any frontend.
    pub fn forget_for(&self, frontend: FrontendId, inos: &[Ino]) {
        let mut machine = self.machine();
        let calls = machine.forget(frontend, inos);
        self.let_go(machine, calls);
    }

    /// Directories are closed while the machine is held: an operation would open one of them again just before it is closed.
    fn let_go(&self, machine: MutexGuard<'_, Union>, calls: Vec<Planned>) {
        let is_dirs = |planned: &Planned| matches!(planned.call, NativeCall::ForgetDirs { .. });
        let (dirs, others): (Vec<Planned>, Vec<Planned>) = calls.into_iter().partition(is_dirs);
        for Planned { tag, who, call } in dirs {
            if let Some(tree) = self.tree(tag) {
                // A member that is away has let go already.
                let _ = tree.call(&who, &call, &[]);
            }
        }
        drop(machine);
        self.close_opens(others);
    }

    fn close_opens(&self, opens: Vec<Planned>) {
        for planned in opens {
            if self.call(planned.tag, &planned.who, &planned.call, &[]) == Err(Errno::ETIMEDOUT) {
                self.unclosed.lock().expect("no holder panics").push(planned);
            }
        }
    }

    /// Closes what a member has not closed while it hung.
    fn close_late(&self, tag: Tag) {
        let unclosed: Vec<Planned> = {
            let mut unclosed = self.unclosed.lock().expect("no holder panics");
            unclosed.extract_if(.., |planned| planned.tag == tag).collect()
        };
        self.close_opens(unclosed);
    }

    fn tree(&self, tag: Tag) -> Option<Arc<dyn Tree>> {
        self.trees.read().expect("no holder panics").get(&tag).cloned()
    }

    fn call(&self, tag: Tag, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let tree = self.tree(tag).ok_or(Errno::ESTALE)?;
        let answer = tree.call(who, call, bytes);
        // Whether it serves again is found by the housekeeping, which settles first what is in doubt there.
        if matches!(answer, Err(Errno::EIO | Errno::ETIMEDOUT)) && tree.state() != TreeState::Serving {
            self.note_state(tag, tree.state());
        }
        answer
    }

    fn note_state(&self, tag: Tag, state: TreeState) {
        let state = match state {
            TreeState::Serving => MemberState::Serving,
            TreeState::Stuck => MemberState::Stuck,
            TreeState::Away => MemberState::Away,
        };
        let before = self.machine().members().get(tag).map(|member| member.state);
        if before != Some(state) {
            if state == MemberState::Serving && !self.written.settle(tag, &self.trees()) {
                return; // It does not serve before that.
            }
            self.machine().member_is(self.clock.now(), tag, state);
            tracing::warn!("member {:04x} is {state:?} now", tag.0);
        }
    }

    fn perform(&self, effects: Vec<UnionEffect>) {
        let mut left = VecDeque::from(effects);
        let mut more = Vec::new();
        while let Some(effect) = left.pop_front() {
            match effect {
                UnionEffect::Call { task, index, tag, who, call, bytes } => {
                    let answer = self.call(tag, &who, &call, &bytes);
                    self.machine().answered(self.clock.now(), task, index, answer, &mut more);
                    left.extend(more.drain(..));
                }
                UnionEffect::Intend { task, intent } => {
                    let outcome = self.written.keep(task, &intent);
                    self.machine().intended(self.clock.now(), task, outcome, &mut more);
                    left.extend(more.drain(..));
                }
                UnionEffect::IntentOver { task, over } => self.written.over(task, over),
                UnionEffect::Ended { task, outcome } => {
                    let done = self.pending.lock().expect("no holder panics").remove(&task);
                    if let Some(done) = done {
                        done(outcome);
                    }
                }
            }
        }
    }

    /// Answers operations that have waited too long, and forgets what nobody knows. Makes no call that can hang.
    fn give_up_late(&self, with_sweep: bool) {
        let mut late = Vec::new();
        let mut machine = self.machine();
        machine.give_up_late(self.clock.now(), &mut late);
        if with_sweep {
            let calls = machine.sweep();
            self.let_go(machine, calls);
        } else {
            drop(machine);
        }
        self.perform(late);
        self.give_up_opens();
        for (tag, tree) in self.trees() {
            self.note_state(tag, tree.state());
        }
    }

    /// Looks what has changed in a member, and whether it answers. May hang with it.
    fn keep_house(&self, tag: Tag, with_space: bool) {
        let Some(tree) = self.tree(tag) else { return };
        if tree.state() == TreeState::Away && tree.reopen() != Ok(true) {
            return self.note_state(tag, TreeState::Away);
        }
        self.note_state(tag, tree.state());
        let changes = tree.changes();
        let names = self.machine().changed(self.clock.now(), tag, &changes);
        if !names.is_empty() {
            self.frontends.tell(None, &[], &names);
        }
        if tree.state() != TreeState::Serving {
            return;
        }
        self.close_late(tag);
        let due = self.machine().graves_due(self.clock.now(), tag);
        self.close_opens(due);
        if with_space {
            self.written.sync(tag, &tree);
            // A member in which nothing could be changed for a while has never been away.
            if self.written.doubts(tag) && self.written.settle(tag, &self.trees()) {
                self.machine().changed(self.clock.now(), tag, &Changes { lost: true, dirs: Vec::new() });
            }
        }
        if with_space && let Ok(NativeReply::Space(space)) = tree.call(&Who::Daemon, &NativeCall::Space, &[])
        {
            self.machine().space(tag, space);
        }
    }
}

impl Clock {
    fn now(&self) -> Moment {
        match self {
            Self::Set(moment) => *moment.lock().expect("no holder panics"),
            Self::Real(started) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // Later than 0, which stands for "never".
                let ms = started.elapsed().as_millis() as u64 + 60_000;
                Moment { ms, wall: Time::from_nanos(since.as_nanos() as u64) }
            }
        }
    }
}
