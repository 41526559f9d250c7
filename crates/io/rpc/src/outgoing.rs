//! A connection to one address, made when it is wanted and made again when it is lost.
//!
//! Keeps no messages: what cannot be sent fails at once, and whoever needs it sends it again.
//! Connecting happens on a thread of its own, so that nobody waits for a name server or a machine
//! that is gone, unless they ask to.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use atoll_core::{Encode, IslandId};

use crate::address::Address;
use crate::frame::Frame;
use crate::handshake::{ConnectError, connect};
use crate::header::Kind;
use crate::hello::{Goodbye, Hello, Reason};
use crate::link::{Closed, Handler, Link, Options, Remote, SendError};

/// Pause after the first failure to connect; each further one waits twice as long.
const BACK_OFF_MIN: Duration = Duration::from_millis(10);

/// Longest pause between attempts: a daemon that is started again is soon found.
const BACK_OFF_MAX: Duration = Duration::from_millis(250);

/// A link that lived so long was a good one.
const GOOD_LINK: Duration = Duration::from_secs(1);

/// How long after somebody wanted to send attempts to connect go on.
const WANTED: Duration = Duration::from_secs(5);

/// What a connection says of itself, asked anew for every attempt.
pub type Greeting = Box<dyn Fn() -> Hello + Send + Sync>;

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    keep: bool,
    wanted_until: Option<Instant>,
    has_thread: bool,
    stopping: bool,
    /// There is reason to think that an attempt would succeed now.
    knocked: bool,
    failures: u64,
    last_failure: Option<ConnectError>,
}

impl State {
    fn is_wanted(&self) -> bool {
        self.keep || self.wanted_until.is_some_and(|until| until > Instant::now())
    }
}

struct Shared {
    address: Address,
    greeting: Greeting,
    handler: Arc<dyn Handler>,
    options: Options,
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection that comes back.
pub struct Outgoing {
    shared: Arc<Shared>,
}

impl Outgoing {
    /// Connects when it is first wanted.
    pub fn new(address: Address, greeting: Greeting, handler: Arc<dyn Handler>, options: Options) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { address, greeting, handler, options, state, changed }) }
    }

    /// Where it leads.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// The link, if it is up.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.shared.lock().link.clone()
    }

    /// Whether it is to be connected all the time, and not only when somebody sends.
    pub fn keep(&self, keep: bool) {
        let mut state = self.shared.lock();
        state.keep = keep;
        self.shared.want(state);
    }

    /// Sends on the link that is up. If none is, fails at once, and tries to connect for some
    /// seconds.
    pub fn send(
        &self,
        kind: Kind,
        island: IslandId,
        id: u64,
        meta: &impl Encode,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut state = self.shared.lock();
        let Some(link) = state.link.clone() else {
            state.wanted_until = Some(Instant::now() + WANTED);
            self.shared.want(state);
            return Err(SendError::NotConnected);
        };
        drop(state);
        link.send(kind, island, id, meta, payload)
    }

    /// The other side was heard of in another way: the next attempt is made at once.
    pub fn knock(&self) {
        let mut state = self.shared.lock();
        state.knocked = state.link.is_none();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until the link is up, over as many attempts as the time allows. Fails early if trying
    /// again cannot help.
    pub fn connect(&self, time_max: Duration) -> Result<Arc<Link>, ConnectError> {
        let until = Instant::now() + time_max;
        let mut state = self.shared.lock();
        let failures_before = state.failures;
        state.wanted_until = state.wanted_until.max(Some(until));
        self.shared.want(state);
        let mut state = self.shared.lock();
        loop {
            if let Some(link) = &state.link {
                return Ok(Arc::clone(link));
            }
            let address = self.shared.address.clone();
            if state.stopping {
                return Err(ConnectError::GivenUp { address });
            }
            let failure = state.last_failure.as_ref().filter(|_| state.failures > failures_before);
            if let Some(lasting) = failure.filter(|f| f.is_lasting()) {
                return Err(lasting.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let timed_out = ConnectError::TimedOut { address, ms: time_max.as_millis() };
                return Err(failure.cloned().unwrap_or(timed_out));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the link, and connects no more. The handler may still hear of the end afterwards.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let link = state.link.clone();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(link) = link {
            link.close(Goodbye::new(Reason::Stopping, "the connection is no longer needed"));
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody may want the link now: sees to it that there is a thread to connect, and that it
    /// knows.
    fn want(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.stopping || state.link.is_some() || !state.is_wanted() {
            return;
        }
        if !state.has_thread {
            let shared = Arc::clone(self);
            let started = thread::Builder::new().name("atoll-connect".into()).spawn(move || shared.run());
            match started {
                Ok(_) => state.has_thread = true,
                Err(e) => {
                    state.failures += 1;
                    let why = e.to_string();
                    state.last_failure =
                        Some(ConnectError::Unreachable { address: self.address.clone(), why });
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Connects whenever the link is wanted and down.
    fn run(self: Arc<Self>) {
        let mut pause = BACK_OFF_MIN;
        let mut up_since: Option<Instant> = None;
        loop {
            let mut state = self.lock();
            while !state.stopping && (state.link.is_some() || !state.is_wanted()) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopping {
                return;
            }
            drop(state);
            match up_since.take() {
                Some(since) if since.elapsed() >= GOOD_LINK => pause = BACK_OFF_MIN,
                // A link that goes down as soon as it is up is as good as none.
                Some(_) => self.pause(&mut pause),
                None => {}
            }
            match self.attempt() {
                Ok(()) => up_since = Some(Instant::now()),
                Err(why) => {
                    tracing::debug!("{why}");
                    self.handler.unreachable(&self.address, &why);
                    let mut state = self.lock();
                    state.failures += 1;
                    state.last_failure = Some(why);
                    drop(state);
                    self.changed.notify_all();
                    self.pause(&mut pause);
                }
            }
        }
    }

    fn attempt(self: &Arc<Self>) -> Result<(), ConnectError> {
        let id = Link::next_id();
        let (stream, greeted) = connect(&self.address, &(self.greeting)(), self.options.handshake_time_max)?;
        let remote = Remote::Connected(greeted.remote);
        let name = self.address.to_string();
        let handler = Arc::new(Watched(Arc::clone(self)));
        let (version, reader, options) = (greeted.version, greeted.reader, &self.options);
        let link = Link::new(id, name, remote, version, stream, reader, handler, options);
        let mut state = self.lock();
        if state.stopping {
            link.close(Goodbye::new(Reason::Stopping, "the connection is no longer needed"));
        } else {
            state.link = Some(Arc::clone(&link));
        }
        drop(state);
        // After that: what the handler sends from inside it, by way of `send`, has to go somewhere.
        self.handler.opened(&link);
        self.changed.notify_all();
        link.start();
        Ok(())
    }

    /// Waits before the next attempt, and lets the one after wait longer. Varies, so that the
    /// clients of a daemon that comes back do not all arrive at once.
    fn pause(&self, pause: &mut Duration) {
        let quarters = 3 + RandomState::new().hash_one(0) % 3;
        let until = Instant::now() + *pause * quarters as u32 / 4;
        *pause = (*pause * 2).min(BACK_OFF_MAX);
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if std::mem::take(&mut state.knocked) {
                *pause = BACK_OFF_MIN;
                return;
            }
            if state.stopping || left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The handler, for a link that is to be made again when it is down.
struct Watched(Arc<Shared>);

impl Handler for Watched {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        self.0.handler.frame(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        let mut state = self.0.lock();
        if state.link.as_ref().is_some_and(|l| l.id() == link.id()) {
            state.link = None;
        }
        drop(state);
        self.0.handler.closed(link, why);
        self.0.changed.notify_all();
    }
}
