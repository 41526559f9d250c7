//! Where answers and messages of islands go: a link, a client of this process, an island of this
//! node, or another node.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, RwLock};

use atoll_client::Sink;
use atoll_core::{IdMap, IslandId};
use atoll_dispatch::Net;
use atoll_island::{Event, LinkId};
use atoll_proto::{Notice, PeerMessage, Reply};
use atoll_rpc::{Kind, Link, Outgoing};

use crate::tell::{tell, tell_of};

/// An island of this node, as others see it.
pub(crate) trait Enter: Send + Sync + 'static {
    fn enter(&self, event: Event);
}

/// How deep deliveries nest at most: enough for what one operation needs, and few stack frames.
const NESTED_MAX: u32 = 16;

/// Deliveries of this thread to islands of this process.
#[derive(Default)]
struct Post {
    /// Those under way, each because of the one before it.
    nested: u32,
    /// What waits for the first of them to end.
    waiting: VecDeque<(Arc<dyn Enter>, PeerMessage)>,
}

thread_local! {
    static POST: RefCell<Post> = RefCell::default();
}

/// Delivers a message, and what islands send each other because of it: at once, so that it arrives before its sender
/// goes on to what takes long, as a sync does; but what two of them tell each other in turn may be longer than a stack
/// is deep, so the rest of that waits.
fn deliver(to: &Arc<dyn Enter>, message: PeerMessage) {
    let nested = POST.with_borrow_mut(|post| {
        let may_nest = post.nested < NESTED_MAX && post.waiting.is_empty();
        post.nested += u32::from(may_nest);
        may_nest.then_some(post.nested)
    });
    let Some(nested) = nested else {
        return POST.with_borrow_mut(|post| post.waiting.push_back((Arc::clone(to), message)));
    };
    to.enter(Event::Peer(message));
    while nested == 1
        && let Some((to, message)) = POST.with_borrow_mut(|post| post.waiting.pop_front())
    {
        to.enter(Event::Peer(message));
    }
    POST.with_borrow_mut(|post| post.nested -= 1);
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
}

type Islands = BTreeMap<IslandId, Arc<dyn Enter>>;

/// Delivers what islands send.
pub struct Switch {
    /// Name of the volume, for people.
    volume: String,
    ends: RwLock<IdMap<LinkId, End>>,
    islands: OnceLock<Islands>,
    nodes: OnceLock<BTreeMap<IslandId, Arc<Outgoing>>>,
    halted: RwLock<BTreeMap<IslandId, String>>,
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
            islands: OnceLock::new(),
            nodes: OnceLock::new(),
            halted: RwLock::default(),
        }
    }

    pub(crate) fn set_islands(&self, islands: Islands) {
        assert!(self.islands.set(islands).is_ok(), "the islands are set once");
    }

    pub(crate) fn set_nodes(&self, nodes: BTreeMap<IslandId, Arc<Outgoing>>) {
        assert!(self.nodes.set(nodes).is_ok(), "the nodes are set once");
    }

    pub(crate) fn connect(&self, link: LinkId, end: End) {
        self.ends.write().expect("no panic while it is held").insert(link, end);
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

    /// Tells everybody that an island cannot be reached any more: what they wait for will not come.
    fn tell_gone(&self, island: IslandId) {
        let ends: Vec<End> = self.ends.read().expect("no panic while it is held").values().cloned().collect();
        let others: Vec<Arc<dyn Enter>> = self
            .islands
            .get()
            .into_iter()
            .flatten()
            .filter(|(other, _)| **other != island)
            .map(|(_, enter)| Arc::clone(enter))
            .collect();
        let tell = move || {
            for other in others {
                other.enter(Event::PeerReachable { island, up: false });
            }
            for end in ends {
                end.gone(island);
            }
        };
        // Not on this thread, which may hold what the others need.
        if std::thread::Builder::new().name("atoll-gone".into()).spawn(tell).is_err() {
            eprintln!("atoll: no thread to be had: who waits for island {island} is not told.");
        }
    }

    /// Islands that have stopped serving, and why.
    pub fn halted_islands(&self) -> BTreeMap<IslandId, String> {
        self.halted.read().expect("no panic while it is held").clone()
    }
}

impl Net for Switch {
    fn reply(&self, from: IslandId, link: LinkId, id: u64, reply: Reply, data: &[u8]) {
        match self.end(link) {
            Some(End::Local(sink)) => sink.reply(from, id, reply, data),
            // A link that is down has told so; the client asks again.
            Some(End::Remote(link)) => {
                let _ = link.send(Kind::Reply, from, id, &reply, data);
            }
            None => {}
        }
    }

    fn notice(&self, from: IslandId, link: LinkId, notice: Notice) {
        match self.end(link) {
            Some(End::Local(sink)) => sink.notice(from, notice),
            Some(End::Remote(link)) => {
                let _ = link.send(Kind::Notice, from, 0, &notice, &[]);
            }
            None => {}
        }
    }

    fn send(&self, to: IslandId, message: PeerMessage) {
        if let Some(island) = self.islands.get().and_then(|i| i.get(&to)) {
            deliver(island, message);
        } else if let Some(node) = self.nodes.get().and_then(|n| n.get(&to)) {
            // What is lost is repeated by the machines.
            let _ = node.send(Kind::Peer, to, 0, &message, &[]);
        }
    }

    fn halted(&self, island: IslandId, why: &str) {
        tell(format_args!(
            "volume {} island {island} has stopped: {why}\n\
            Its directories and files cannot be reached until the daemon is started again.",
            self.volume
        ));
        self.halted.write().expect("no panic while it is held").insert(island, why.to_owned());
        // After that: a link that comes up meanwhile is told by one or the other.
        self.tell_gone(island);
    }

    fn damaged(&self, island: IslandId, why: &str) {
        tell_of(&self.volume, island, why);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicU64, Ordering};

    use atoll_proto::Peer;

    use super::*;

    /// Answers each message until it has seen so many.
    struct Player {
        other: OnceLock<Weak<Player>>,
        left: AtomicU64,
    }

    impl Enter for Player {
        fn enter(&self, _: Event) {
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err() {
                return;
            }
            let other: Arc<dyn Enter> = self.other.get().and_then(Weak::upgrade).expect("both live");
            deliver(&other, message());
        }
    }

    fn message() -> PeerMessage {
        PeerMessage { from: IslandId(0), incarnation: 1, vector: Vec::new(), peer: Peer::Hello }
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
        fn enter(&self, _: Event) {
            deliver(&self.to, message());
            self.heard_after.store(self.heard.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    struct Hears(Arc<AtomicU64>);

    impl Enter for Hears {
        fn enter(&self, _: Event) {
            self.0.fetch_add(1, Ordering::Relaxed);
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
}
