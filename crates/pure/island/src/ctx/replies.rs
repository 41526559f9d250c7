//! Addresses of answers: over which link each client is reached, and which stamps of the islands' journals it
//! was told there. Never knows what an answer says.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::map::IdMap;
use atoll_core::{ClockVector, Ino, IslandId, SessionId, Stamp};
use atoll_posix::{AttrsAround, Op};
use atoll_proto::{Record, RowChange};

use super::request::PendingRequest;
use super::write_set::WriteSet;
use crate::event::LinkId;

/// The address of the answer to a request: the link of its latest repetition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyAddress {
    pub(crate) link: LinkId,
    pub(crate) id: u64,
    /// It is told so when it would wait for a lock.
    interrupted: bool,
    /// What it changes of what mounts keep.
    pub(crate) writes: Option<WriteSet>,
}

impl ReplyAddress {
    pub(crate) fn of(call: &PendingRequest) -> Self {
        Self { link: call.link, id: call.id, interrupted: false, writes: call.writes }
    }
}

/// A change: whose, and its number.
pub(crate) type Asked = (SessionId, u64);
/// The object of an operation.
pub(crate) type Subjects = [Option<Ino>; 2];

/// A change of which the attributes around are asked for.
#[derive(Debug, Clone)]
struct Observed {
    of: Subjects,
    /// What was seen when it was decided.
    seen: Vec<AttrsAround>,
}

/// A client that is reached over a link, or was.
#[derive(Debug, Clone, Default)]
struct Client {
    link: Option<LinkId>,
    /// What it was told of the clocks on its link, and of which version.
    told: IdMap<IslandId, Stamp>,
    told_version: u64,
    /// The next answer has the clock of this island itself.
    own_clock_of: Option<IslandId>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replies {
    /// Changes under way, by session and number.
    under_way: IdMap<(SessionId, u64), ReplyAddress>,
    /// Those of them of which the attributes around are asked for, with what they are about and what was seen.
    observed: IdMap<Asked, Observed>,
    clients: BTreeMap<SessionId, Client>,
    /// Sessions that have begun to end.
    ending: BTreeSet<SessionId>,
    clocks_version: u64,
    clocks: ClockVector,
}

impl Replies {
    // ------------------------------------------------------------------ requests

    /// A change begins; its answer goes to where it came from.
    pub(crate) fn begin(&mut self, call: &PendingRequest) {
        self.under_way.insert((call.session(), call.request.seq), ReplyAddress::of(call));
        if call.options.attributes {
            let of = call.request.op.operation().map_or([None; 2], Op::subjects);
            self.observed.insert((call.session(), call.request.seq), Observed { of, seen: Vec::new() });
        }
    }

    /// What a change is about of which the attributes around are asked for. Almost always none is.
    pub(crate) fn observes(&self, record: &Record) -> Option<(Asked, Subjects)> {
        if self.observed.is_empty() {
            return None;
        }
        let of = |change: &RowChange| match change {
            RowChange::Result { session, seq, .. } => Some((*session, *seq)),
            _ => None,
        };
        let key = record.changes.iter().find_map(of)?;
        self.observed.get(&key).map(|observed| (key, observed.of))
    }

    /// What was seen of a change.
    pub(crate) fn saw(&mut self, key: Asked, around: Vec<AttrsAround>) {
        if let Some(observed) = self.observed.get_mut(&key) {
            observed.seen = around;
        }
    }

    /// What was seen of a change that is answered now.
    pub(crate) fn seen(&mut self, call: &PendingRequest) -> Vec<AttrsAround> {
        self.observed
            .remove(&(call.session(), call.request.seq))
            .map(|observed| observed.seen)
            .unwrap_or_default()
    }

    /// A change that is under way came once more: its answer goes there. False if it is not under way.
    pub(crate) fn repeat(&mut self, call: &PendingRequest) -> bool {
        let to = self.under_way.get_mut(&(call.session(), call.request.seq));
        to.map(|to| *to = ReplyAddress { writes: to.writes, ..ReplyAddress::of(call) }).is_some()
    }

    /// Whether this is under way.
    pub(crate) fn is_under_way(&self, call: &PendingRequest) -> bool {
        self.under_way.contains_key(&(call.session(), call.request.seq))
    }

    /// What other clients than this one change.
    pub(crate) fn others_change(&self, client: SessionId) -> impl Iterator<Item = WriteSet> {
        let of_others =
            move |((of, _), to): (&(SessionId, u64), &ReplyAddress)| to.writes.filter(|_| *of != client);
        self.under_way.iter().filter_map(of_others)
    }

    /// Where the answer to `call` goes, which is over with it: a repetition is answered from memory from here on.
    pub(crate) fn end(&mut self, call: &PendingRequest) -> ReplyAddress {
        match call.request.seq {
            0 => ReplyAddress::of(call),
            seq => self.under_way.remove(&(call.session(), seq)).unwrap_or_else(|| ReplyAddress::of(call)),
        }
    }

    /// Over which link the answer to `call` goes.
    pub(crate) fn link_of_answer(&self, call: &PendingRequest) -> LinkId {
        self.under_way.get(&(call.session(), call.request.seq)).map_or(call.link, |to| to.link)
    }

    /// The change whose answer goes there is to be interrupted; which one that is.
    pub(crate) fn interrupt(&mut self, link: LinkId, id: u64) -> Option<(SessionId, u64)> {
        let asked = self.under_way.iter_mut().find(|(_, to)| (to.link, to.id) == (link, id));
        let (key, to) = asked?;
        to.interrupted = true;
        Some(*key)
    }

    /// Whether the caller of this request has been interrupted.
    pub(crate) fn is_interrupted(&self, call: &PendingRequest) -> bool {
        self.under_way.get(&(call.session(), call.request.seq)).is_some_and(|to| to.interrupted)
    }

    // ------------------------------------------------------------------- clients

    /// A client is reached over this link; whether it is a new one. It was told nothing there.
    pub(crate) fn reached(&mut self, session: SessionId, link: LinkId) -> bool {
        let client = self.clients.entry(session).or_default();
        let is_new = client.link.replace(link) != Some(link);
        if is_new {
            (client.told, client.told_version) = (IdMap::default(), 0);
        }
        is_new
    }

    /// A link is gone. The clients that were reached over it.
    pub(crate) fn link_closed(&mut self, link: LinkId) -> Vec<SessionId> {
        let mut gone = Vec::new();
        for (session, client) in self.clients.iter_mut().filter(|(_, client)| client.link == Some(link)) {
            client.link = None;
            gone.push(*session);
        }
        gone
    }

    /// A session begins to end: its client is told nothing any more.
    pub(crate) fn begin_end(&mut self, session: SessionId) {
        self.clients.remove(&session);
        self.ending.insert(session);
    }

    /// Sessions that have begun to end, and whose end is not over.
    pub(crate) fn ending(&self) -> impl Iterator<Item = SessionId> {
        self.ending.iter().copied()
    }

    /// Whether a session has begun to end.
    pub(crate) fn is_ending(&self, session: SessionId) -> bool {
        self.ending.contains(&session)
    }

    /// A session has ended.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.ending.remove(&session);
    }

    /// The link over which a client is reached.
    pub(crate) fn link_of(&self, session: SessionId) -> Option<LinkId> {
        self.clients.get(&session)?.link
    }

    /// The next answer to a client has this island's own clock, also if it was told. `withheld`: it has not, as long as
    /// the clock stands there.
    pub(crate) fn tell_own_clock(&mut self, session: SessionId, me: IslandId, withheld: Option<Stamp>) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        match withheld {
            Some(stamp) => _ = client.told.insert(me, stamp),
            None => client.own_clock_of = Some(me),
        }
    }

    /// Stamps of the clocks that a client has not been told.
    pub(crate) fn news(&mut self, session: SessionId, clocks: &ClockVector) -> Vec<(IslandId, Stamp)> {
        if self.clocks != *clocks {
            self.clocks = clocks.clone();
            self.clocks_version += 1;
        }
        let Some(client) = self.clients.get_mut(&session) else { return Vec::new() };
        let own = client.own_clock_of.take();
        let own = own.map(|me| (me, clocks.get(me)));
        if client.told_version == self.clocks_version {
            return own.into_iter().collect();
        }
        client.told_version = self.clocks_version;
        let told = &mut client.told;
        let is_news = |(i, s): &(IslandId, Stamp)| told.get(i).is_none_or(|t| t < s) && own != Some((*i, *s));
        let news: Vec<_> = own.into_iter().chain(clocks.iter().filter(is_news)).collect();
        told.extend(news.iter().copied());
        news
    }

    /// Panics unless exactly these changes are under way, each once.
    pub(crate) fn check<'a>(&self, calls: impl Iterator<Item = &'a PendingRequest>) {
        let mut found: BTreeMap<(SessionId, u64), u32> = BTreeMap::new();
        for call in calls.filter(|call| call.request.seq != 0 && !call.again) {
            *found.entry((call.session(), call.request.seq)).or_default() += 1;
        }
        for (key, times) in &found {
            assert!(*times == 1, "{key:?} is under way {times} times");
            assert!(self.under_way.contains_key(key), "nobody knows where the answer to {key:?} goes");
        }
        for key in self.observed.keys() {
            assert!(self.under_way.contains_key(key), "{key:?} is observed, and not under way");
        }
        for key in self.under_way.keys() {
            assert!(found.contains_key(key), "{key:?} is under way and in no queue: it is never answered");
        }
    }
}
