//! A connection to one address, made when it is wanted and made again when it is lost.
//!
//! Keeps no messages: a frame that cannot be sent fails at once, and its sender sends it again. Connecting
//! happens on a thread of its own, so that nobody waits for a name server or a lost machine unless they ask
//! to.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use atoll_core::{Encode, IslandId, NodeId, VolumeId};
use atoll_links::{Dialer, Via};

use crate::FrameKind;
use crate::address::Address;
use crate::frame::Frame;
use crate::handshake::{ConnectError, Greeted, Through, connect};
use crate::hello::{Goodbye, Hello, HelloOk, Reason, Role};
use crate::link::{Closed, Handler, Link, Options, Remote, SendError};
use crate::stream::Stream;

/// How long attempts to connect go on after the last wish to send.
const WANTED: Duration = Duration::from_secs(5);

/// How long each step of connecting through a relay may take: one that is frozen must not keep others from being
/// tried.
const RELAY_TIME_MAX: Duration = Duration::from_secs(2);

/// The greeting of a connection, asked for at every attempt.
pub type Greeting = Box<dyn Fn() -> Hello + Send + Sync>;

/// Relays to use if the address itself cannot be reached.
#[derive(Debug, Clone)]
pub struct Relays {
    /// The volume that all of them serve.
    pub volume: VolumeId,
    /// The node that is to be reached.
    pub to: NodeId,
    /// The others, in the order in which they are tried.
    pub others: Vec<(NodeId, Address)>,
}

struct State {
    link: Option<Arc<Link>>,
    /// The last link's end is being told: the next one is told after that.
    closing: bool,
    /// Decides when to try what.
    dialer: Dialer,
    relays: Option<Relays>,
    keep: bool,
    wanted_until: Option<Instant>,
    has_thread: bool,
    stopping: bool,
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
    start: Instant,
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
        Self::new_with(address, greeting, handler, options, None)
    }

    /// The same; where the address cannot be reached, through other nodes.
    pub fn with_relays(
        address: Address,
        greeting: Greeting,
        handler: Arc<dyn Handler>,
        options: Options,
        relays: Relays,
    ) -> Self {
        Self::new_with(address, greeting, handler, options, Some(relays))
    }

    fn new_with(
        address: Address,
        greeting: Greeting,
        handler: Arc<dyn Handler>,
        options: Options,
        mut relays: Option<Relays>,
    ) -> Self {
        if let Some(relays) = &mut relays {
            keep_usable(&mut relays.others, &address);
        }
        let nodes = relays.iter().flat_map(|relays| &relays.others).map(|(node, _)| *node).collect();
        let state = Mutex::new(State {
            link: None,
            closing: false,
            dialer: Dialer::new(0, nodes),
            relays,
            keep: false,
            wanted_until: None,
            has_thread: false,
            stopping: false,
            failures: 0,
            last_failure: None,
        });
        let (start, changed) = (Instant::now(), Condvar::new());
        let shared = Shared { address, greeting, handler, options, start, state, changed };
        Self { shared: Arc::new(shared) }
    }

    /// From now on these nodes pass on what is sent, where the address itself cannot be reached. For a connection that
    /// was made with relays; a link that is up stays.
    pub fn set_relays(&self, mut others: Vec<(NodeId, Address)>) {
        keep_usable(&mut others, &self.shared.address);
        let mut state = self.shared.lock();
        if let Some(relays) = &mut state.relays {
            let nodes = others.iter().map(|(node, _)| *node).collect();
            relays.others = others;
            state.dialer.set_relays(nodes);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Its address.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// The link, if it is up.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.shared.lock().link.clone()
    }

    /// Whether the link is up without a relay.
    pub fn is_direct(&self) -> bool {
        let state = self.shared.lock();
        state.link.is_some() && state.dialer.via() == Some(Via::Direct)
    }

    /// Whether it must be connected all the time, and not only when something is sent.
    pub fn keep(&self, keep: bool) {
        let mut state = self.shared.lock();
        state.keep = keep;
        self.shared.want(state);
    }

    /// Sends on the link that is up. If none is, fails at once, and tries to connect for some
    /// seconds.
    pub fn send(
        &self,
        kind: FrameKind,
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

    /// The other side was heard from in another way: the next attempt is made at once.
    pub fn knock(&self) {
        self.shared.lock().dialer.knocked(self.shared.now_ms());
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

/// Relays that can be used: what is passed on has checksums, which Unix sockets leave out.
fn keep_usable(relays: &mut Vec<(NodeId, Address)>, address: &Address) {
    let is_tcp = |address: &Address| matches!(address, Address::Tcp { .. });
    relays.retain(|(_, relay)| is_tcp(relay) && is_tcp(address));
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

    /// The link may be wanted now: makes sure that there is a thread to connect, and that it knows.
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

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Connects whenever the link is wanted and down, and looks for a better one. Each attempt has a thread of its
    /// own: one that hangs keeps no other from being made.
    fn run(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.stopping {
            let now_ms = self.now_ms();
            if !state.is_wanted() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if let Some(via) = state.dialer.due(now_ms) {
                drop(state);
                let shared = Arc::clone(&self);
                let attempt = move || shared.attempt(via);
                if let Err(e) = thread::Builder::new().name("atoll-connect".into()).spawn(attempt) {
                    let why = e.to_string();
                    self.has_failed(via, ConnectError::Unreachable { address: self.address.clone(), why });
                }
                state = self.lock();
            } else if let Some(next_ms) = state.dialer.next_ms() {
                // Varies, so that the clients of a daemon that comes back do not all arrive at once.
                let quarters = 4 + RandomState::new().hash_one(0) % 3;
                let pause = Duration::from_millis((next_ms - now_ms) * quarters / 4 + 1);
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn attempt(self: &Arc<Self>, via: Via) {
        let id = Link::next_id();
        match self.connect(via) {
            Ok((stream, greeted)) => self.use_link(via, id, stream, greeted),
            Err(why) => self.has_failed(via, why),
        }
    }

    fn connect(&self, via: Via) -> Result<(Stream, Greeted<HelloOk>), ConnectError> {
        let (hello, time_max) = ((self.greeting)(), self.options.handshake_time_max);
        let (security, expects) = (self.options.security.as_deref(), self.options.expects);
        let Via::Relay(node) = via else {
            return connect(&self.address, None, &hello, security, expects, time_max);
        };
        let relays = self.lock().relays.clone();
        let relay = relays.and_then(|relays| {
            let (_, relay) = relays.others.iter().find(|(other, _)| *other == node)?;
            Some((relay.clone(), Role::Relay { volume: relays.volume, to: relays.to }))
        });
        let Some((relay, role)) = relay else {
            let why = format!("node {node} does not pass anything on to it any more");
            return Err(ConnectError::Unreachable { address: self.address.clone(), why });
        };
        let through = Through { relay: &relay, greeting: Hello::new(role, hello.cluster) };
        connect(&self.address, Some(&through), &hello, security, expects, time_max.min(RELAY_TIME_MAX))
    }

    fn has_failed(&self, via: Via, why: ConnectError) {
        tracing::debug!("{why}");
        if via == Via::Direct {
            self.handler.unreachable(&self.address, &why);
        }
        let mut state = self.lock();
        state.dialer.failed(self.now_ms(), via);
        if via == Via::Direct {
            state.failures += 1;
            state.last_failure = Some(why);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// An attempt has succeeded.
    fn use_link(self: &Arc<Self>, via: Via, id: u64, stream: Stream, greeted: Greeted<HelloOk>) {
        let remote = Remote::Connected(greeted.remote);
        let name = self.address.to_string();
        let handler = Arc::new(Watched(Arc::clone(self)));
        let (version, reader, options) = (greeted.version, greeted.reader, &self.options);
        let link = Link::new(id, name, remote, greeted.shown, version, stream, reader, handler, options);
        let mut state = self.lock();
        // The end of the link before it is told first: whoever hears of both must not hear of the end last.
        while state.closing && !state.stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let now_ms = self.now_ms();
        if state.stopping || !state.dialer.connected(now_ms, via) {
            drop(state);
            link.close(Goodbye::new(Reason::Stopping, "the connection is no longer needed"));
            return;
        }
        let old = state.link.replace(Arc::clone(&link));
        drop(state);
        // After that: what the handler sends from inside it, by way of `send`, has to go somewhere.
        match old {
            Some(old) => {
                old.close(Goodbye::new(Reason::Stopping, "the direct way is there again"));
                self.handler.replaced(&link, &old);
            }
            None => self.handler.opened(&link),
        }
        self.changed.notify_all();
        link.start();
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
        if state.link.as_ref().is_none_or(|current| current.id() != link.id()) {
            // Another one has replaced it, and that was told.
            return;
        }
        state.link = None;
        state.closing = true;
        state.dialer.closed(self.0.now_ms());
        drop(state);
        self.0.handler.closed(link, why);
        self.0.lock().closing = false;
        self.0.changed.notify_all();
    }
}
