//! Links between clients and machines and among machines, as TCP makes them: in order within a link,
//! any order between links, and when a link breaks, what was sent first may still arrive.

use std::collections::VecDeque;

use atoll_core::{IslandId, NodeId, Position};
use atoll_dispatch::{GroupNet, Net, SpaceState};
use atoll_island::LinkId;
use atoll_links::Dialer;
use atoll_proto::{GroupMessage, GroupRecord, Notice, PeerMessage, Reply, Request};
use bytes::Bytes;
use std::sync::{Arc, Mutex};

use crate::links::Party;

/// A link that is opened again whenever it breaks.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Who opens it. A machine does to send to another; what comes back travels on the other one's own link.
    pub(crate) from: Party,
    pub(crate) to: NodeId,
    /// Counts openings.
    pub(crate) generation: u64,
    /// What is sent arrives.
    pub(crate) whole: bool,
    /// `from` was told that it is open.
    pub(crate) open: bool,
    /// A partition: it cannot be opened.
    pub(crate) cut: bool,
    /// What is sent to the machine, or by it, is lost on the way, and nobody is told.
    pub(crate) deaf_to: bool,
    pub(crate) deaf_from: bool,
    pub(crate) deaf_since_us: u64,
    /// It is sent again when that is over, unless the link has ended by then.
    pub(crate) lost_to: VecDeque<Frame<ToIsland>>,
    pub(crate) lost_from: VecDeque<Frame<ToClient>>,
    /// An attempt to open it directly is under way.
    pub(crate) opening: bool,
    /// When it is opened again, and by which way.
    pub(crate) dialer: Dialer,
    /// The dialer will be asked.
    pub(crate) dialing: bool,
    /// The machine that passes on what is sent, if not everything goes directly.
    pub(crate) via: Option<NodeId>,
    /// It takes the place of the one before it, and `from` was not told yet.
    pub(crate) replaces: bool,
    /// When the last message in each direction arrives.
    pub(crate) last_to_us: u64,
    pub(crate) last_from_us: u64,
    /// What still arrives of the generation that broke last: sent first, arriving until then.
    pub(crate) broken: (u64, u64, u64),
    /// The machine reads one message at a time of a link; these wait.
    pub(crate) busy: bool,
    pub(crate) unread: VecDeque<Frame<ToIsland>>,
}

impl Conn {
    pub(crate) fn new(from: Party, to: NodeId, relays: Vec<NodeId>) -> Self {
        Self {
            from,
            to,
            generation: 0,
            whole: false,
            open: false,
            cut: false,
            deaf_to: false,
            deaf_from: false,
            deaf_since_us: 0,
            lost_to: VecDeque::new(),
            lost_from: VecDeque::new(),
            opening: false,
            dialer: Dialer::new(0, relays),
            dialing: false,
            via: None,
            replaces: false,
            last_to_us: 0,
            last_from_us: 0,
            broken: (0, 0, 0),
            busy: false,
            unread: VecDeque::new(),
        }
    }

    /// Messages that go directly get lost, in some direction.
    pub(crate) const fn is_deaf(&self) -> bool {
        self.deaf_to || self.deaf_from
    }

    /// Messages of the link that there is get lost, in some direction.
    pub(crate) const fn loses(&self) -> bool {
        self.via.is_none() && self.is_deaf()
    }

    /// Nothing can be sent directly, or not be answered.
    pub(crate) const fn is_cut(&self) -> bool {
        self.cut || self.is_deaf()
    }

    /// A message of this generation would arrive now: it is lost, or waits behind one that was. Then it is
    /// kept, to be sent again.
    pub(crate) fn loses_to(&mut self, generation: u64, frame: Frame<ToIsland>) -> Option<Frame<ToIsland>> {
        let loses = self.via.is_none() && self.deaf_to;
        if generation != self.generation || (!loses && self.lost_to.is_empty()) {
            return Some(frame);
        }
        self.lost_to.push_back(frame);
        None
    }

    /// The same in the other direction.
    pub(crate) fn loses_from(&mut self, generation: u64, frame: Frame<ToClient>) -> Option<Frame<ToClient>> {
        let loses = self.via.is_none() && self.deaf_from;
        if generation != self.generation || (!loses && self.lost_from.is_empty()) {
            return Some(frame);
        }
        self.lost_from.push_back(frame);
        None
    }

    /// Whether another generation is used in place of this one, and both ends know it.
    pub(crate) const fn is_replaced(&self, generation: u64) -> bool {
        generation != self.generation && self.open && !self.replaces
    }

    /// Whether a message of this generation arrives at this time.
    pub(crate) const fn arrives(&self, generation: u64, now_us: u64, to_machine: bool) -> bool {
        if self.whole && generation == self.generation {
            return true;
        }
        let (broken, until_to, until_from) = self.broken;
        generation == broken && now_us <= if to_machine { until_to } else { until_from }
    }
}

/// The number of a client's link, as islands see it: connection and generation.
pub(crate) const fn link_id(conn: usize, generation: u64) -> LinkId {
    LinkId(((conn as u64) << 40) | generation)
}

/// Connection and generation of a link.
pub(crate) const fn conn_of(link: LinkId) -> (usize, u64) {
    ((link.0 >> 40) as usize, link.0 & ((1 << 40) - 1))
}

/// A message on a link. Its head names the island to which it goes, or from which it comes.
#[derive(Debug, Clone)]
pub(crate) struct Frame<M> {
    pub(crate) island: IslandId,
    pub(crate) message: M,
}

/// A message on its way to an island.
#[derive(Debug, Clone)]
pub(crate) enum ToIsland {
    Request {
        link: LinkId,
        id: u64,
        request: Request,
        data: Bytes,
    },
    Peer(PeerMessage),
    /// From another copy of the island.
    Group {
        link: u64,
        message: GroupMessage,
        payload: Bytes,
    },
    /// The machine that sends it leads the island in this epoch, or not.
    Leads {
        epoch: Option<u32>,
    },
}

/// A message on its way to a client.
#[derive(Debug)]
pub(crate) enum ToClient {
    Reply {
        id: u64,
        reply: Reply,
        data: Vec<u8>,
    },
    Notice(Notice),
    /// The machine that sends it leads the island in this epoch, or not.
    Leads {
        epoch: Option<u32>,
    },
}

/// What an island's dispatch has handed over.
#[derive(Debug)]
pub(crate) enum Out {
    Client(LinkId, ToClient),
    Peer(IslandId, PeerMessage),
    Halted(String),
    Damaged(String),
    Space(SpaceState),
    Group {
        to: NodeId,
        message: GroupMessage,
        payload: Bytes,
    },
    ReadRecord {
        number: u64,
    },
    SwapRecord {
        number: u64,
        expect: u64,
        record: GroupRecord,
    },
    /// A copy is about to cut its log back.
    Cut(Position),
    Leads(Option<u32>),
    Trouble(String),
}

/// The network as one life of a copy sees it: a list that the world empties.
#[derive(Debug, Clone, Default)]
pub(crate) struct Port(Arc<Mutex<Vec<Out>>>);

impl Port {
    fn put(&self, out: Out) {
        self.0.lock().expect("one thread").push(out);
    }

    pub(crate) fn take(&self) -> Vec<Out> {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

impl Net for Port {
    fn reply(&self, _from: IslandId, link: LinkId, id: u64, reply: Reply, data: &[u8]) {
        self.put(Out::Client(link, ToClient::Reply { id, reply, data: data.to_vec() }));
    }

    fn notice(&self, _from: IslandId, link: LinkId, notice: Notice) {
        self.put(Out::Client(link, ToClient::Notice(notice)));
    }

    fn send(&self, to: IslandId, message: PeerMessage) {
        self.put(Out::Peer(to, message));
    }

    fn halted(&self, _island: IslandId, why: &str) {
        self.put(Out::Halted(why.to_owned()));
    }

    fn space(&self, _island: IslandId, state: SpaceState) {
        self.put(Out::Space(state));
    }

    fn damaged(&self, _island: IslandId, why: &str) {
        self.put(Out::Damaged(why.to_owned()));
    }
}

impl GroupNet for Port {
    fn tell(&self, _island: IslandId, to: NodeId, message: GroupMessage, payload: Bytes) {
        self.put(Out::Group { to, message, payload });
    }

    fn read(&self, _island: IslandId, number: u64) {
        self.put(Out::ReadRecord { number });
    }

    fn swap(&self, _island: IslandId, number: u64, expect: u64, record: GroupRecord) {
        self.put(Out::SwapRecord { number, expect, record });
    }

    fn cut(&self, _island: IslandId, to: Position) {
        self.put(Out::Cut(to));
    }

    fn leads(&self, _island: IslandId, epoch: Option<u32>) {
        self.put(Out::Leads(epoch));
    }

    fn trouble(&self, _island: IslandId, why: String) {
        self.put(Out::Trouble(why));
    }
}
