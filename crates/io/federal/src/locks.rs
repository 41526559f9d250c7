//! Locks that are waited for. Owns the requests that wait, and asks for each again until it is granted or cancelled. Never waits in
//! a native call: that would hold a thread, and nobody could end it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use atoll_core::Ino;
use atoll_posix::{Errno, LockKind, LockRange, Op};
use atoll_union::{Finished, FrontendId, NativeCall, Planned, Tag, UnionRequest, Who};

use crate::{Clock, Done, Federation};

/// Most locks that are waited for in a union at a time: `ENOLCK` past that.
pub const LOCK_WAITS_MAX: usize = 4_096;

/// A lock that somebody else may let go without a word is asked for again after so long. With many waits it is longer.
const RETRY: Duration = Duration::from_millis(20);
/// For each so many waits the pause is as long once more.
const RETRY_WAITS: usize = 64;

/// The waits of a union.
#[derive(Default)]
pub(crate) struct Waits {
    state: Mutex<State>,
    /// A lock of this union was let go.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// By number, so the first one is asked for first.
    waits: BTreeMap<u64, Wait>,
    /// Members that have a thread that asks again. One for each, because it may hang with the member.
    threads: BTreeSet<Tag>,
}

struct Wait {
    tag: Tag,
    request: UnionRequest,
    done: Done,
    stage: Stage,
}

/// Asking -> Waiting -> Asking, or Asking -> Cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The member is being asked.
    Asking,
    /// It was taken.
    Waiting,
    /// Nobody waits any more, and the member is being asked.
    Cancelled,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Federation {
    /// Takes a lock or lets it go. The number of the wait; 0 if there is none.
    pub(crate) fn submit_lock(
        &self,
        request: UnionRequest,
        (ino, lock, wait): (Ino, LockRange, bool),
        done: Done,
    ) -> u64 {
        let Some((tag, of)) = self.machine().place_of(ino) else {
            done(Err(Errno::ESTALE));
            return 0;
        };
        // A member that has not heard of an unlock while it hung would let go of what is taken now.
        self.close_late(tag);
        if lock.kind == LockKind::Unlock {
            let me = Weak::clone(&self.me);
            let heard = move |outcome: Result<Finished, Errno>| {
                let this = me.upgrade();
                match (&outcome, &this) {
                    (Err(Errno::ETIMEDOUT), Some(this)) => {
                        let call = NativeCall::Lock { of, lock };
                        let planned = Planned { tag, who: Who::Daemon, call };
                        this.unclosed.lock().expect("no holder panics").push(planned);
                    }
                    (_, Some(this)) => this.waits.freed.notify_all(),
                    (_, None) => {}
                }
                done(outcome);
            };
            self.begin(FrontendId::default(), request, Box::new(heard));
            return 0;
        }
        if !wait {
            self.begin(FrontendId::default(), request, done);
            return 0;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.waits.lock();
            if state.waits.len() >= LOCK_WAITS_MAX {
                drop(state);
                done(Err(Errno::ENOLCK));
                return 0;
            }
            state.waits.insert(id, Wait { tag, request: request.clone(), done, stage: Stage::Asking });
        }
        self.ask(id, request);
        id
    }

    /// Ends a wait with `EINTR`, unless the lock has been granted.
    pub fn cancel(&self, id: u64) {
        let mut state = self.waits.lock();
        let Some(wait) = state.waits.get_mut(&id) else { return };
        if wait.stage != Stage::Waiting {
            wait.stage = Stage::Cancelled;
            return;
        }
        let wait = state.waits.remove(&id);
        drop(state);
        if let Some(Wait { done, .. }) = wait {
            done(Err(Errno::EINTR));
        }
    }

    fn ask(&self, id: u64, mut request: UnionRequest) {
        if let Op::SetLock { wait, .. } = &mut request.op {
            *wait = false;
        }
        let me = Weak::clone(&self.me);
        let done = move |outcome| {
            if let Some(this) = me.upgrade() {
                this.asked(id, outcome);
            }
        };
        self.begin(FrontendId::default(), request, Box::new(done));
    }

    fn asked(&self, id: u64, outcome: Result<Finished, Errno>) {
        let mut state = self.waits.lock();
        let Some(wait) = state.waits.get_mut(&id) else { return };
        if (&outcome, wait.stage) == (&Err(Errno::EAGAIN), Stage::Asking) {
            wait.stage = Stage::Waiting;
            let tag = wait.tag;
            if matches!(self.clock, Clock::Real(_)) && !state.threads.contains(&tag) {
                let (me, waits) = (Weak::clone(&self.me), Arc::clone(&self.waits));
                let spawned = std::thread::Builder::new()
                    .name(format!("locks-{:04x}", tag.0))
                    .spawn(move || ask_on(&me, &waits, tag));
                match spawned {
                    Ok(_) => _ = state.threads.insert(tag),
                    // The next wait tries again. Until then a signal ends this one.
                    Err(why) => tracing::error!("locks are not waited for: no thread to be had: {why}"),
                }
            }
            return;
        }
        let cancelled = wait.stage == Stage::Cancelled;
        let wait = state.waits.remove(&id);
        drop(state);
        let outcome = match outcome {
            Err(Errno::EAGAIN) if cancelled => Err(Errno::EINTR),
            outcome => outcome,
        };
        if let Some(Wait { done, .. }) = wait {
            done(outcome);
        }
    }

    /// Asks once more for all locks that are waited for in a member.
    pub(crate) fn ask_again(&self, tag: Tag) {
        let due: Vec<(u64, UnionRequest)> = {
            let mut state = self.waits.lock();
            let waiting =
                state.waits.iter_mut().filter(|(_, wait)| wait.tag == tag && wait.stage == Stage::Waiting);
            waiting
                .map(|(id, wait)| {
                    wait.stage = Stage::Asking;
                    (*id, wait.request.clone())
                })
                .collect()
        };
        due.into_iter().for_each(|(id, request)| self.ask(id, request));
    }
}

/// Asks again until nothing is waited for in this member.
fn ask_on(me: &Weak<Federation>, waits: &Waits, tag: Tag) {
    loop {
        let mut state = waits.lock();
        let here = state.waits.values().filter(|wait| wait.tag == tag).count();
        let union = me.upgrade().filter(|union| here > 0 && !union.stopped.load(Ordering::Relaxed));
        if union.is_none() {
            state.threads.remove(&tag);
            return;
        }
        drop(union);
        let pause = RETRY * u32::try_from(1 + here / RETRY_WAITS).unwrap_or(u32::MAX);
        drop(waits.freed.wait_timeout(state, pause).expect("no holder panics"));
        if let Some(union) = me.upgrade() {
            union.ask_again(tag);
        }
    }
}
