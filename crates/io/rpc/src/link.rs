//! One connection: frames out from any thread, frames in to a handler.
//!
//! Never connects, greets or reconnects, and keeps nothing for a peer that is gone. A peer that breaks the
//! protocol is disconnected, with a reason in the log.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use atoll_core::{Encode, IslandId, Malformed};
use rustix::io::Errno;

use crate::FrameKind;
use crate::address::Address;
use crate::alive::{self, Pulse};
use crate::frame::{Frame, FrameReader};
use crate::handshake::ConnectError;
use crate::header::{FrameError, HEADER_BYTES, encode_head};
use crate::hello::{DaemonId, Goodbye, Hello, HelloOk, Reason};
use crate::outbox::{Outbox, Stuck};
use crate::security::{Peer, Security, Shown};
use crate::stream::Stream;
use atoll_handover::{Next, Roles};

/// Capacity that a thread's buffer for encoding keeps between frames.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// Time-outs and bounds of links.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one frame may take to get into the socket's buffer. A peer that does not read for
    /// so long is disconnected.
    pub send_time_max: Duration,
    /// How long connecting and greeting may take, each.
    pub handshake_time_max: Duration,
    /// How long nothing may come from the other side, which says every second that it lives. After that it is
    /// frozen, or its packets are lost, and the link is broken.
    pub silence_max: Duration,
    /// Most threads of one link: one that reads, and others that are in a slow handler. When all
    /// are busy, reading waits.
    pub threads_max: usize,
    /// How long a thread that has nothing to do stays.
    pub spare_idle_max: Duration,
    /// Most connections of a listener.
    pub connections_max: usize,
    /// Permission bits of a listener's Unix socket: who may connect.
    pub unix_mode: u32,
    /// The certificates of this process; by default those that [`Security::install`] was given. With them all links over TCP
    /// are encrypted, and none is let in without; without them none is.
    pub security: Option<Arc<Security>>,
    /// The node that is meant, for whoever connects: another one at its address is not trusted. None: any node of the cluster.
    pub expects: Option<DaemonId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            send_time_max: Duration::from_secs(10),
            handshake_time_max: Duration::from_secs(5),
            silence_max: Duration::from_secs(4),
            threads_max: 16,
            spare_idle_max: Duration::from_secs(5),
            connections_max: 1024,
            unix_mode: 0o600,
            security: Security::of_process(),
            expects: None,
        }
    }
}

/// The receiver of a link's frames and events.
///
/// `frame` runs on the thread that read the frame. Later frames wait unless it calls [`atoll_handover::slow`]
/// first; then other threads may handle them at the same time. [`Link::send`] calls that when it has to wait.
/// So work that must happen in the order of the frames must happen before either call.
pub trait Handler: Send + Sync + 'static {
    /// The link is up. Runs before its first frame is read.
    fn opened(&self, _link: &Arc<Link>) {}

    /// A frame has come; never one of the handshake.
    fn frame(&self, link: &Arc<Link>, frame: Frame);

    /// A new link to the same process has replaced this one, which is ended now. Requests on the old link may
    /// be lost. Runs instead of `closed` for the old link and `opened` for the new one, and like `opened`
    /// before the first frame of the new one is read.
    fn replaced(&self, link: &Arc<Link>, _old: &Arc<Link>) {
        self.opened(link);
    }

    /// The link is down. Runs exactly once, unless another one has replaced it, and no frame follows; earlier ones
    /// may still be in their handlers.
    fn closed(&self, link: &Arc<Link>, why: &Closed);

    /// An [`Outgoing`](crate::Outgoing) could not connect; it goes on trying while it is wanted.
    fn unreachable(&self, _address: &Address, _why: &ConnectError) {}
}

/// Why a link is down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The other side closed the connection without a word.
    #[error("the other side closed the connection")]
    Ended,
    /// The other side closed the connection amid a frame: it was probably killed.
    #[error("the other side closed the connection amid a frame")]
    CutShort,
    /// The other side said why.
    #[error("the other side ended the link: {0}")]
    Theirs(Goodbye),
    /// This side ended it.
    #[error("ended by this side: {}", .0.text)]
    Ours(Goodbye),
    /// The other side broke the protocol.
    #[error("the other side broke the protocol: {0}")]
    Lied(FrameError),
    /// The other side did not read in time.
    #[error("the other side did not read in time")]
    NotReading,
    /// Nothing came from the other side any more: it is frozen, or its packets are lost.
    #[error("nothing came from the other side any more")]
    Silent,
    /// The connection failed, such as `ETIMEDOUT` when the other machine has vanished.
    #[error("the connection failed: {0}")]
    Io(Errno),
}

/// Why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is down. Earlier frames may or may not have arrived.
    #[error("not connected")]
    NotConnected,
    /// The message is longer than frames may be. The link goes on.
    #[error("cannot be sent: {0}")]
    TooLong(FrameError),
}

/// The greeting of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// It connected here.
    Accepted(Hello),
    /// This side connected to it.
    Connected(HelloOk),
}

/// One connection.
pub struct Link {
    me: Weak<Link>,
    id: u64,
    name: String,
    remote: Remote,
    shown: Option<Shown>,
    version: u16,
    stream: Stream,
    outbox: Outbox,
    reader: Mutex<FrameReader>,
    roles: Roles,
    handler: Arc<dyn Handler>,
    closed: OnceLock<Closed>,
    context: OnceLock<Box<dyn Any + Send + Sync>>,
    pulse: Pulse,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({} {})", self.id, self.name)
    }
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Link {
    /// The number of the next link. Taken before the handshake: a client that opens a link after it has
    /// lost another has the later number.
    pub(crate) fn next_id() -> u64 {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    /// A link over a stream on which the handshake is done. [`Self::start`] or [`Self::serve`]
    /// must follow.
    pub(crate) fn new(
        id: u64,
        name: String,
        remote: Remote,
        shown: Option<Shown>,
        version: u16,
        stream: Stream,
        reader: FrameReader,
        handler: Arc<dyn Handler>,
        options: &Options,
    ) -> Arc<Self> {
        let link = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            id,
            name,
            remote,
            shown,
            version,
            stream,
            outbox: Outbox::new(options.send_time_max),
            reader: Mutex::new(reader),
            roles: Roles::new(options.threads_max, options.spare_idle_max),
            handler,
            closed: OnceLock::new(),
            context: OnceLock::new(),
            pulse: Pulse::new(options.silence_max),
        });
        alive::watch(&link);
        link
    }

    /// Some time has passed: says that this side lives, and sees whether the other one does. False
    /// when the link is down.
    pub(crate) fn beat(&self) -> bool {
        if self.closed.get().is_some() {
            return false;
        }
        if self.pulse.is_due() {
            let mut frame = Vec::with_capacity(HEADER_BYTES);
            encode_head(self.version, FrameKind::Alive, IslandId(0), 0, &Nothing, &[], false, &mut frame)
                .expect("a frame without content is short");
            // What cannot be sent is noticed by those who have something to say.
            let _ = self.outbox.send_if_idle(&self.stream, &frame);
        }
        // What has come and was not read yet is this side's delay.
        if self.pulse.is_silent() && !self.stream.has_unread() {
            self.end(Closed::Silent);
            return false;
        }
        true
    }

    /// A number that no other link of this process has or had. Later ones have higher numbers.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the other side, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The greeting of the other side.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Whom the certificate of the other side names; none if the link is not encrypted.
    pub fn peer(&self) -> Option<Peer> {
        self.shown.map(|shown| shown.peer)
    }

    /// The same, with its public key.
    pub fn shown(&self) -> Option<&Shown> {
        self.shown.as_ref()
    }

    /// A relay passes this connection on. If the connection ends, perhaps the relay has ended, and not the
    /// other side.
    pub fn is_relayed(&self) -> bool {
        self.stream.is_relayed()
    }

    /// Why the link is down, if it is.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.get()
    }

    /// Attaches a value that the handler gets with every frame of this link. Only once: false if there was
    /// one.
    pub fn set_context(&self, context: impl Any + Send + Sync) -> bool {
        self.context.set(Box::new(context)).is_ok()
    }

    /// The attached value, if it is a `T`.
    pub fn context<T: Any>(&self) -> Option<&T> {
        self.context.get()?.downcast_ref()
    }

    /// Sends a frame: header and meta part from a buffer that is used again, the payload from where
    /// it lies. Frames of one thread arrive in order. Returns when the frame is in the socket's
    /// buffer, or is with a thread that will put it there next; blocks at most for the time-out
    /// of each frame before it.
    pub fn send(
        &self,
        kind: FrameKind,
        island: IslandId,
        id: u64,
        meta: &impl Encode,
        payload: &[u8],
    ) -> Result<(), SendError> {
        if self.closed.get().is_some() {
            return Err(SendError::NotConnected);
        }
        self.pulse.sent();
        // Taken out rather than borrowed: `slow` may run anything while it is in use.
        let mut head = SCRATCH.take();
        head.clear();
        let check = self.stream.needs_checks();
        let result = match encode_head(self.version, kind, island, id, meta, payload, check, &mut head) {
            Ok(()) => self.outbox.send(&self.stream, &head, payload).map_err(|stuck| {
                match stuck {
                    Stuck::Closed => {}
                    Stuck::NotReading => self.end(Closed::NotReading),
                    Stuck::Io(e) => self.end(broken(e)),
                }
                SendError::NotConnected
            }),
            Err(too_long) => Err(SendError::TooLong(too_long)),
        };
        head.clear();
        head.shrink_to(SCRATCH_BYTES_MAX);
        SCRATCH.set(head);
        result
    }

    /// Tells the other side that an island cannot be asked at this node.
    pub fn gone(&self, island: IslandId) -> Result<(), SendError> {
        self.send(FrameKind::Gone, island, 0, &Nothing, &[])
    }

    /// Whether the socket takes some bytes at the moment, so that a small frame makes its thread wait for nothing.
    pub fn has_room(&self) -> bool {
        self.stream.is_writable()
    }

    /// Tells the other side that an island can be asked at this node, since this epoch; 0 if it has no other copies.
    pub fn primary(&self, island: IslandId, epoch: u32) -> Result<(), SendError> {
        self.send(FrameKind::Primary, island, 0, &epoch, &[])
    }

    /// Tells the other side that the volume's configuration has this version here.
    pub fn config(&self, version: u64) -> Result<(), SendError> {
        self.send(FrameKind::Config, IslandId(0), 0, &version, &[])
    }

    /// Ends the link and tells the other side why, if that is possible at once. The handler's
    /// `closed` runs soon, on another thread. Of several reasons the first counts.
    pub fn close(&self, goodbye: Goodbye) {
        self.end(Closed::Ours(goodbye));
    }

    /// Ends the link because a frame's content was malformed.
    pub fn malformed(&self, what: Malformed) {
        self.end(Closed::Lied(FrameError::Malformed(what)));
    }

    fn end(&self, why: Closed) {
        let goodbye = match &why {
            Closed::Ours(goodbye) => Some(goodbye.clone()),
            Closed::Lied(e) => Some(Goodbye::new(Reason::Malformed, e.to_string())),
            _ => None,
        };
        if self.closed.set(why).is_err() {
            return;
        }
        let mut last = Vec::new();
        if let Some(goodbye) = goodbye {
            encode_head(self.version, FrameKind::Goodbye, IslandId(0), 0, &goodbye, &[], false, &mut last)
                .expect("a goodbye is short");
        }
        self.outbox.close_with(&self.stream, &last);
        self.stream.shutdown();
        self.see_closed();
    }

    /// Serves the link, on a thread of its own.
    pub(crate) fn start(self: &Arc<Self>) {
        let link = Arc::clone(self);
        if let Err(e) = thread::Builder::new().name("atoll-link".into()).spawn(move || link.serve()) {
            self.end(Closed::Io(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)));
            self.finish();
        }
    }

    /// Reads and handles frames on this thread, which holds the reading role, as long as it is
    /// needed for that.
    pub(crate) fn serve(self: Arc<Self>) {
        let leads = Rc::new(Cell::new(true));
        let hook = {
            let (link, leads) = (Arc::clone(&self), Rc::clone(&leads));
            move || {
                if leads.replace(false) {
                    link.hand_over();
                }
            }
        };
        atoll_handover::before_slow(hook);
        loop {
            match self.read() {
                Some(frame) => self.handler.frame(&self, frame),
                None => return self.finish(),
            }
            if !leads.get() {
                if !self.roles.take() {
                    return;
                }
                leads.set(true);
            }
        }
    }

    /// Gives the reading role up, to a thread that is there or is started now.
    fn hand_over(&self) {
        match self.roles.give_up() {
            Next::Start => self.spawn(),
            Next::Nothing => self.see_closed(),
        }
    }

    /// Makes sure that a thread notices that the link is closed, when its threads are all busy: they may be
    /// waiting for an effect of `Handler::closed`.
    fn see_closed(&self) {
        if self.closed.get().is_some() && self.roles.take_for_closing() {
            self.spawn();
        }
    }

    /// Starts a thread that holds the reading role.
    fn spawn(&self) {
        let link = self.me.upgrade().expect("whoever calls this has the link");
        let started = thread::Builder::new().name("atoll-link".into()).spawn(move || link.serve());
        if let Err(e) = started {
            tracing::warn!(link = %self.name, "no thread could be started, reading waits: {e}");
            self.roles.start_failed();
        }
    }

    /// The next frame for the handler; none when the link is down.
    fn read(&self) -> Option<Frame> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        while self.closed.get().is_none() {
            match reader.next_frame() {
                Ok(Some(frame)) if frame.kind == FrameKind::Alive => {}
                Ok(Some(frame)) => match self.sort(frame) {
                    Ok(frame) => return Some(frame),
                    Err(why) => self.end(why),
                },
                Ok(None) => match self.stream.recv(reader.target()) {
                    Ok(0) if reader.is_between_frames() => self.end(Closed::Ended),
                    Ok(0) => self.end(Closed::CutShort),
                    Ok(_) => self.pulse.heard(),
                    Err(e) => self.end(broken(e)),
                },
                Err(e) => self.end(Closed::Lied(e)),
            }
        }
        None
    }

    /// Tells frames for the handler from those that end the link.
    fn sort(&self, frame: Frame) -> Result<Frame, Closed> {
        match frame.kind {
            FrameKind::Goodbye => Err(match frame.decode() {
                Ok(goodbye) => Closed::Theirs(goodbye),
                Err(e) => Closed::Lied(e.into()),
            }),
            FrameKind::Hello | FrameKind::HelloOk => {
                Err(Closed::Lied(FrameError::Unexpected { kind: frame.kind }))
            }
            _ => Ok(frame),
        }
    }

    /// The thread with the reading role ends it.
    fn finish(self: &Arc<Self>) {
        let why = self.closed.get().expect("only a link that is down is finished");
        match why {
            Closed::Lied(_) | Closed::NotReading | Closed::Silent | Closed::Io(_) => {
                tracing::warn!(link = %self.name, "disconnected: {why}");
            }
            _ => tracing::debug!(link = %self.name, "disconnected: {why}"),
        }
        self.stream.drain();
        self.roles.end();
        self.handler.closed(self, why);
    }
}

/// A frame's content that says nothing.
struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn encoded_len(&self) -> usize {
        0
    }
}

/// A connection that the other side's machine reset is one that was closed.
fn broken(e: Errno) -> Closed {
    match e {
        Errno::CONNRESET | Errno::PIPE => Closed::Ended,
        e => Closed::Io(e),
    }
}
