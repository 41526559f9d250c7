//! Delivers answers and messages of islands: to a link, a client of this process, an island of this node, or
//! another node.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use atoll_client::Sink;
use atoll_core::{IdMap, IslandId};
use atoll_dispatch::{LeavesFilling, Net, SpaceState, Work};
use atoll_island::{BesideSays, Event, LinkId};
use atoll_posix::Errno;
use atoll_proto::{Notice, Outcome, PeerMessage, Reply};
use atoll_rpc::{FrameKind, Goodbye, Link, Outgoing, Reason, SendError};

use crate::slots::{Islands, Slots};
use crate::wide::Hears;

/// An island of this node, as others see it.
pub(crate) trait Enter: Send + Sync + 'static {
    /// See [`Engine::begin`](atoll_dispatch::Engine::begin).
    fn begin(&self, event: Event) -> Work;

    /// See [`Engine::go_on`](atoll_dispatch::Engine::go_on).
    fn go_on(&self, work: &mut Work) -> bool;

    /// Takes an event to the island and carries out everything that follows from it.
    fn enter(&self, event: Event) {
        let mut work = self.begin(event);
        while self.go_on(&mut work) {}
    }
}

/// How deep deliveries nest at most: enough for what one operation needs, and few stack frames.
const NESTED_MAX: u32 = 16;

/// Deliveries of a thread to islands of this process.
#[derive(Default)]
struct Post {
    /// Deliveries under way, each because of the one before it.
    nested: u32,
    /// Messages that would nest too deep.
    messages: VecDeque<(Arc<dyn Enter>, PeerMessage)>,
    /// Slow effects that followed from messages.
    slow: VecDeque<(Arc<dyn Enter>, Work)>,
}

thread_local! {
    static POST: RefCell<Post> = RefCell::default();
}

/// Delivers a message, and the messages that islands send each other because of it: at once, so that it
/// arrives before its sender goes on. An exchange of two islands may be longer than the stack is deep: then
/// the rest waits.
fn deliver(to: &Arc<dyn Enter>, message: PeerMessage) {
    let may_nest = POST.with_borrow(|post| post.nested < NESTED_MAX && post.messages.is_empty());
    if may_nest {
        together(|| do_fast(to, to.begin(Event::Peer(message))));
    } else {
        POST.with_borrow_mut(|post| post.messages.push_back((Arc::clone(to), message)));
    }
}

/// Runs `run`, which sends messages to islands of this process. Slow effects of these messages, such as a
/// sync, are performed at the end. So no message waits for them, and one sync serves all that need one.
pub(crate) fn together(run: impl FnOnce()) {
    let is_first = POST.with_borrow_mut(|post| {
        post.nested += 1;
        post.nested == 1
    });
    run();
    if is_first {
        drain();
    }
    POST.with_borrow_mut(|post| post.nested -= 1);
}

/// Delivers waiting messages, then waiting effects.
fn drain() {
    loop {
        if let Some((to, message)) = POST.with_borrow_mut(|post| post.messages.pop_front()) {
            do_fast(&to, to.begin(Event::Peer(message)));
        } else if let Some((at, mut work)) = POST.with_borrow_mut(|post| post.slow.pop_front()) {
            at.go_on(&mut work);
            do_fast(&at, work);
        } else {
            return;
        }
    }
}

/// Performs effects up to the first slow one, which waits.
fn do_fast(at: &Arc<dyn Enter>, mut work: Work) {
    while !work.is_slow() && at.go_on(&mut work) {}
    if !work.is_done() {
        POST.with_borrow_mut(|post| post.slow.push_back((Arc::clone(at), work)));
    }
}

/// The other end of a link.
#[derive(Clone)]
pub(crate) enum End {
    Local(Arc<dyn Sink>),
    Remote(Arc<Link>),
}

impl End {
    fn gone(&self, island: IslandId) {
        match self {
            Self::Local(sink) => sink.reachable(island, false),
            // A link that is down has told so.
            Self::Remote(link) => _ = link.gone(island),
        }
    }

    /// A link ends. Who is in this process stops by itself.
    fn end(&self) {
        if let Self::Remote(link) = self {
            link.close(Goodbye::new(Reason::NoSuchVolume, "it is no longer served here"));
        }
    }

    fn config(&self, version: u64) {
        match self {
            Self::Local(sink) => sink.config(version),
            // A link that is down has told so.
            Self::Remote(link) => _ = link.config(version),
        }
    }

    fn primary(&self, island: IslandId, epoch: u32) {
        match self {
            Self::Local(sink) => sink.leads(island, epoch),
            // A link that is down has told so.
            Self::Remote(link) => _ = link.primary(island, epoch),
        }
    }
}

/// Delivers messages and answers of islands.
pub struct Switch {
    /// Name of the volume, for people.
    volume: String,
    ends: RwLock<IdMap<LinkId, End>>,
    /// All links were ended, and those that come now are too.
    has_ended: AtomicBool,
    islands: Slots<dyn Enter>,
    /// The links to the other nodes, by the islands that they hold.
    nodes: RwLock<BTreeMap<IslandId, Arc<Outgoing>>>,
    halted: RwLock<BTreeMap<IslandId, String>>,
    /// Messages and answers of each island that were longer than a frame may be. Islands cut them into pieces
    /// that fit, so each of these is a mistake, and is logged.
    too_long: Mutex<BTreeMap<IslandId, u64>>,
    /// Hears what the machine beside an island says.
    beside: OnceLock<Arc<dyn Hears>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").finish_non_exhaustive()
    }
}

impl Switch {
    pub(crate) fn new(volume: String) -> Self {
        Self {
            volume,
            ends: RwLock::default(),
            has_ended: AtomicBool::new(false),
            islands: Slots::default(),
            nodes: RwLock::default(),
            halted: RwLock::default(),
            too_long: Mutex::default(),
            beside: OnceLock::new(),
        }
    }

    /// What the machine beside an island says goes there.
    pub(crate) fn set_beside(&self, hears: Arc<dyn Hears>) {
        assert!(self.beside.set(hears).is_ok(), "it is set once");
    }

    /// The islands of this node are these from now on.
    pub(crate) fn set_islands(&self, islands: Islands<dyn Enter>) {
        self.islands.set(islands);
    }

    /// From now on an island is at this node.
    pub(crate) fn set_node(&self, island: IslandId, node: Arc<Outgoing>) {
        self.nodes.write().expect("no panic while it is held").insert(island, node);
    }

    pub(crate) fn set_nodes(&self, nodes: BTreeMap<IslandId, Arc<Outgoing>>) {
        *self.nodes.write().expect("no panic while it is held") = nodes;
    }

    pub(crate) fn connect(&self, link: LinkId, end: End) {
        self.ends.write().expect("no panic while it is held").insert(link, end.clone());
        // It was let in while the volume stopped, which may not have seen it.
        if self.has_ended.load(Ordering::SeqCst) {
            end.end();
        }
    }

    pub(crate) fn disconnect(&self, link: LinkId) {
        self.ends.write().expect("no panic while it is held").remove(&link);
    }

    fn end(&self, link: LinkId) -> Option<End> {
        self.ends.read().expect("no panic while it is held").get(&link).cloned()
    }

    /// Tells the other end of a link that an island cannot be reached any more.
    pub(crate) fn gone(&self, island: IslandId, link: LinkId) {
        if let Some(end) = self.end(link) {
            end.gone(island);
        }
    }

    /// Tells the other end of a link that an island can be reached here.
    pub(crate) fn primary(&self, island: IslandId, epoch: u32, link: LinkId) {
        if let Some(end) = self.end(link) {
            end.primary(island, epoch);
        }
    }

    fn all_ends(&self) -> Vec<End> {
        self.ends.read().expect("no panic while it is held").values().cloned().collect()
    }

    /// Ends the links of all clients and nodes.
    pub(crate) fn end_links(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.all_ends().iter().for_each(End::end);
    }

    /// Tells all clients and nodes that an island can be reached here from now on.
    pub(crate) fn tell_primary(&self, island: IslandId, epoch: u32) {
        self.all_ends().iter().for_each(|end| end.primary(island, epoch));
    }

    /// Tells all clients and nodes that the volume's configuration has this version here.
    pub(crate) fn tell_config(&self, version: u64) {
        self.all_ends().iter().for_each(|end| end.config(version));
    }

    /// An island is not here any more: all clients and nodes are told, and nothing is remembered of it.
    pub(crate) fn forget(&self, island: IslandId) {
        self.halted.write().expect("no panic while it is held").remove(&island);
        self.all_ends().iter().for_each(|end| end.gone(island));
    }

    /// Tells all clients and nodes that an island cannot be reached any more: the answers that they wait for
    /// will not come.
    fn tell_gone(&self, island: IslandId) {
        let ends = self.all_ends();
        let others: Vec<Arc<dyn Enter>> = self
            .islands
            .now()
            .iter()
            .filter(|(other, _)| **other != island)
            .map(|(_, enter)| Arc::clone(enter))
            .collect();
        let tell = move || {
            let _leaves = LeavesFilling::begin();
            for other in others {
                other.enter(Event::PeerReachable { island, up: false });
            }
            for end in ends {
                end.gone(island);
            }
        };
        // Not on this thread, which may hold what the others need.
        if std::thread::Builder::new().name("atoll-gone".into()).spawn(tell).is_err() {
            tracing::error!(
                "no thread can be started: requests that wait for island {island} are not told that it stopped"
            );
        }
    }

    /// Islands that have stopped serving, and why.
    pub fn halted_islands(&self) -> BTreeMap<IslandId, String> {
        self.halted.read().expect("no panic while it is held").clone()
    }
}

impl Switch {
    /// Number of messages and answers of an island that were too long to be sent.
    pub fn too_long(&self, island: IslandId) -> u64 {
        self.too_long.lock().expect("no panic while it is held").get(&island).copied().unwrap_or(0)
    }

    /// Logs once for each island that a message or answer was too long to be sent, and counts it. True if it
    /// was.
    pub(crate) fn is_too_long(&self, from: IslandId, what: &str, sent: Result<(), SendError>) -> bool {
        let Err(SendError::TooLong(why)) = sent else {
            // A link that is down has told so: whoever waits for an answer asks again, and what islands tell each
            // other is repeated by them.
            return false;
        };
        let mut too_long = self.too_long.lock().expect("no panic while it is held");
        let count = too_long.entry(from).or_default();
        *count += 1;
        let is_first = *count == 1;
        drop(too_long);
        if is_first {
            tracing::error!(
                volume = %self.volume, island = %from,
                "{what} cannot be sent: {why}\nThis is a mistake in Atoll; further ones are counted in `atoll status`."
            );
        }
        true
    }
}

impl Net for Switch {
    fn reply(&self, from: IslandId, link: LinkId, id: u64, reply: Reply, data: &[u8]) {
        match self.end(link) {
            Some(End::Local(sink)) => sink.reply(from, id, reply, data),
            Some(End::Remote(link)) => {
                let sent = link.send(FrameKind::Reply, from, id, &reply, data);
                if self.is_too_long(from, "an answer", sent) {
                    // Whoever waits must not wait for ever.
                    let outcome = Outcome::Failed { errno: Errno::EIO };
                    let sent = link.send(FrameKind::Reply, from, id, &Reply::bare(outcome), &[]);
                    self.is_too_long(from, "an error", sent);
                }
            }
            None => {}
        }
    }

    fn notice(&self, from: IslandId, link: LinkId, notice: Notice) {
        match self.end(link) {
            Some(End::Local(sink)) => sink.notice(from, notice),
            Some(End::Remote(link)) => {
                let sent = link.send(FrameKind::Notice, from, 0, &notice, &[]);
                self.is_too_long(from, "a notice", sent);
            }
            None => {}
        }
    }

    fn send(&self, to: IslandId, message: PeerMessage) {
        if let Some(island) = self.islands.now().get(&to) {
            deliver(island, message);
            return;
        }
        let node = self.nodes.read().expect("no panic while it is held").get(&to).cloned();
        if let Some(node) = node {
            let sent = node.send(FrameKind::Peer, to, 0, &message, &[]);
            self.is_too_long(message.from, "a message to another island", sent);
        }
    }

    fn beside(&self, _: IslandId, number: u64, says: BesideSays) {
        if let Some(hears) = self.beside.get() {
            hears.says(number, says);
        }
    }

    fn halted(&self, island: IslandId, why: &str) {
        tracing::error!(
            volume = %self.volume, %island,
            "the island has stopped: {why}\n\
            Its directories and files cannot be reached until the daemon is started again."
        );
        self.halted.write().expect("no panic while it is held").insert(island, why.to_owned());
        // After that: a link that comes up meanwhile is told by one or the other.
        self.tell_gone(island);
    }

    fn space(&self, island: IslandId, state: SpaceState) {
        match state {
            SpaceState::ReadOnly { lack, .. } => tracing::warn!(
                volume = %self.volume, %island,
                "the disk has no space for {lack}\n\
                Until there is some, the island takes only what makes room. It goes on by itself then."
            ),
            SpaceState::Normal => tracing::warn!(
                volume = %self.volume, %island,
                "the disk has space again: the island takes everything"
            ),
        }
    }

    fn damaged(&self, island: IslandId, why: &str) {
        tracing::error!(volume = %self.volume, %island, "{why}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};

    use atoll_island::Effect;
    use atoll_proto::PeerOp;

    use super::*;

    /// Answers each message until it has seen so many.
    struct Player {
        other: OnceLock<Weak<Player>>,
        left: AtomicU64,
    }

    impl Enter for Player {
        fn begin(&self, _: Event) -> Work {
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err() {
                return Work::default();
            }
            let other: Arc<dyn Enter> = self.other.get().and_then(Weak::upgrade).expect("both live");
            deliver(&other, message());
            Work::default()
        }

        fn go_on(&self, _: &mut Work) -> bool {
            false
        }
    }

    fn message() -> PeerMessage {
        PeerMessage { from: IslandId(0), incarnation: 1, vector: Vec::new(), op: PeerOp::Hello }
    }

    #[test]
    fn a_long_exchange_between_two_islands_of_a_process_needs_no_deep_stack() {
        let player = || Arc::new(Player { other: OnceLock::new(), left: AtomicU64::new(100_000) });
        let (a, b) = (player(), player());
        assert!(a.other.set(Arc::downgrade(&b)).is_ok() && b.other.set(Arc::downgrade(&a)).is_ok());
        let to: Arc<dyn Enter> = a.clone();
        deliver(&to, message());
        assert_eq!(
            [a, b].map(|p| p.left.load(Ordering::Relaxed)),
            [0, 0],
            "all is delivered when it returns"
        );
    }

    /// Sends a message on, and says whether it had arrived when that returned.
    struct Relay {
        to: Arc<dyn Enter>,
        heard: Arc<AtomicU64>,
        heard_after: AtomicU64,
    }

    impl Enter for Relay {
        fn begin(&self, _: Event) -> Work {
            deliver(&self.to, message());
            self.heard_after.store(self.heard.load(Ordering::Relaxed), Ordering::Relaxed);
            Work::default()
        }

        fn go_on(&self, _: &mut Work) -> bool {
            false
        }
    }

    struct Hears(Arc<AtomicU64>);

    impl Enter for Hears {
        fn begin(&self, _: Event) -> Work {
            self.0.fetch_add(1, Ordering::Relaxed);
            Work::default()
        }

        fn go_on(&self, _: &mut Work) -> bool {
            false
        }
    }

    #[test]
    fn what_an_island_sends_arrives_before_it_goes_on() {
        let heard = Arc::<AtomicU64>::default();
        let to: Arc<dyn Enter> = Arc::new(Hears(Arc::clone(&heard)));
        let relay = Arc::new(Relay { to, heard, heard_after: AtomicU64::default() });
        let first: Arc<dyn Enter> = relay.clone();
        deliver(&first, message());
        assert_eq!(relay.heard_after.load(Ordering::Relaxed), 1);
    }

    /// Has to sync whatever it hears.
    #[derive(Default)]
    struct Syncs(Arc<Mutex<Vec<&'static str>>>);

    impl Enter for Syncs {
        fn begin(&self, _: Event) -> Work {
            self.0.lock().unwrap().push("heard");
            let mut work = Work::default();
            work.push(Effect::Sync);
            work
        }

        fn go_on(&self, work: &mut Work) -> bool {
            let is_done = std::mem::take(work).is_done();
            self.0.lock().unwrap().extend((!is_done).then_some("synced"));
            !is_done
        }
    }

    #[test]
    fn what_takes_long_is_done_when_all_have_heard() {
        let seen = Arc::<Mutex<Vec<&str>>>::default();
        let to: Arc<dyn Enter> = Arc::new(Syncs(Arc::clone(&seen)));
        together(|| (0..2).for_each(|_| deliver(&to, message())));
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), ["heard", "heard", "synced", "synced"]);
        (0..2).for_each(|_| deliver(&to, message()));
        assert_eq!(*seen.lock().unwrap(), ["heard", "synced", "heard", "synced"]);
    }
}
