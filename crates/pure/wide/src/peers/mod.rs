//! How the sites of a wide volume tell each other what they have (`docs/design/023-wide.md`, "Between sites"). Owns, for each other site,
//! how far the two have each other's feed, and what is under way. Reads rows, and hands over changes to be decided. Never decides one, and
//! knows no socket.
//!
//! How it is used. A link comes up and goes down ([`WidePeers::link_up`], [`WidePeers::link_down`]); what comes on it is [`WidePeers::heard`], and
//! what goes out is asked for by [`WidePeers::tell`] as long as the link takes more. [`WidePeers::next`] gives changes for one record; this is
//! decided by [`foreign::decide`](crate::foreign::decide), and [`WidePeers::decided`] adds its rows before the record is set.
//! [`WidePeers::synced`] says how far this site is synced.
//!
//! A row that is not in memory ends an attempt: it is to be loaded, and the call made again.

mod answering;
mod greet;
mod hearing;
mod known;
pub mod message;
mod telling;

use std::collections::{BTreeMap, VecDeque};

use atoll_causal::{Context, Writer};
use atoll_core::{Decode, Encode, Malformed};
use atoll_proto::RowChange;
use atoll_spine::Spine;
use atoll_state::{RowLoad, State};
use bytes::Bytes;

use crate::author::{BundleChange, Made};
use crate::foreign::ForeignDecision;
use crate::rows::{PEERS, PeerRow, SiteId, WRITERS, WriterRow, set};
use answering::Answering;
pub use greet::Refused;
use greet::{Remembered, judge};
use hearing::{Hearing, ToDecide};
use message::{Hello, Most, NEWS_MAX, WRITERS_MAX, WideMessage};
use telling::Telling;

/// What a site has, of which others are told.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// The rows of its island.
    pub state: &'a State,
    /// Where its directories are.
    pub spine: &'a Spine,
    /// What its last records have changed.
    pub made: &'a Made,
    /// Its writer.
    pub writer: Writer,
    /// The number of its writer's last dot.
    pub n: u64,
}

/// How much is told at once, and may be under way to a peer: sent, and not acknowledged. One message is always allowed.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Messages.
    pub messages: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Objects in one message of news, but for those of one record.
    pub news: usize,
}

impl Window {
    /// The largest one. A peer that sends more is refused.
    pub const MOST: Self = Self { messages: 1_024, bytes: 1 << 20, news: NEWS_MAX };
}

/// Changes for one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStep {
    /// The site that told of them.
    pub from: SiteId,
    /// They, at most [`OBJECTS_MAX`](crate::foreign::OBJECTS_MAX), directories behind those in which they are. Without any, the record has
    /// rows of this machine only, and may wait for a while: an acknowledgement waits for it.
    pub changes: Vec<BundleChange>,
    number: u64,
}

/// What is between the two ends of a link.
#[derive(Debug, Clone)]
struct Live {
    telling: Telling,
    hearing: Hearing,
    answering: Answering,
}

/// Where a link stands: `Down -> Greeting -> Up`, and from each to `Down`.
#[derive(Debug, Clone)]
enum Link {
    Down,
    Greeting {
        /// What this site has said of itself; none if it has said nothing yet.
        said: Option<u64>,
        /// What the other one has said: how much it has of this site's feed. It was judged.
        heard: Option<u64>,
    },
    Up(Box<Live>),
}

/// Another site.
#[derive(Debug, Clone)]
struct Peer {
    /// This site has all of its feed up to here.
    taken: u64,
    /// What the row says of that, and the records that have said it and are not synced: their positions, and what they say.
    row: u64,
    unsynced: VecDeque<(u64, u64)>,
    /// What the row says that is synced.
    synced: u64,
    /// It has this site's feed up to here, synced, as it has said.
    acked: u64,
    /// What is told it by news only: everything up to here.
    by_news: u64,
    link: Link,
}

/// Which changes are being decided.
#[derive(Debug, Clone)]
struct UnderWay {
    step: PeerStep,
    /// None: rows only.
    next: Option<ToDecide>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct WidePeers {
    volume: u64,
    window: Window,
    /// From this position on all that changed is in memory, as far as it did not leave.
    opened: u64,
    /// The last synced position.
    synced: u64,
    peers: BTreeMap<SiteId, Peer>,
    /// The highest number of a dot of each other writer that was taken.
    seen: BTreeMap<Writer, u64>,
    under_way: Option<UnderWay>,
    /// The number of the last step.
    step: u64,
    refused: u64,
}

impl WidePeers {
    /// What a site goes on with where its rows end. `rows`: of all side rows those of [`PEERS`] and [`WRITERS`] are used; `position` is that
    /// of the last record, and synced.
    pub fn open(
        volume: u64,
        window: Window,
        position: u64,
        rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let mut peers = BTreeMap::new();
        let mut seen = BTreeMap::new();
        for (table, id, row) in rows {
            let number = u64::try_from(id).map_err(|_| Malformed::new("number of a site or writer"));
            match table {
                PEERS => {
                    let PeerRow::Upto { taken, acked } = PeerRow::from_slice(&row)?;
                    peers.insert(SiteId(number?), Peer::new(taken, acked));
                }
                WRITERS => {
                    if let WriterRow::Seen { n } = WriterRow::from_slice(&row)? {
                        seen.insert(Writer(number?), n);
                    }
                }
                _ => {}
            }
        }
        let (opened, synced) = (position, position);
        let (under_way, step, refused) = (None, 0, 0);
        Ok(Self { volume, window, opened, synced, peers, seen, under_way, step, refused })
    }

    /// The other sites.
    pub fn sites(&self) -> Vec<SiteId> {
        self.peers.keys().copied().collect()
    }

    /// How many changes of other sites were refused: no site that keeps the rules makes them.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Up to where this site has another one's feed, and up to where that one has this site's, synced, as it has said last.
    pub fn upto(&self, site: SiteId) -> (u64, u64) {
        self.peers.get(&site).map_or((0, 0), |peer| (peer.taken, peer.acked))
    }

    /// Whether a link is up on which both have said who they are.
    pub fn is_linked(&self, site: SiteId) -> bool {
        self.peers.get(&site).is_some_and(|peer| matches!(peer.link, Link::Up(_)))
    }

    /// Whether all that was told on a link is acknowledged, and all that was heard on it is here and synced; false without a link.
    pub fn is_quiet(&self, site: SiteId) -> bool {
        let Some(Peer { link: Link::Up(live), taken, synced, .. }) = self.peers.get(&site) else {
            return false;
        };
        let Live { telling, hearing, answering } = &**live;
        telling.is_quiet() && hearing.is_quiet() && answering.is_quiet() && taken == synced
    }

    /// Whether a site has all that this one has done up to a position, and the other way round, as far as that was told. What is not synced
    /// here was told to nobody.
    pub fn is_even(&self, site: SiteId, position: u64) -> bool {
        self.synced >= position && self.is_quiet(site)
    }

    /// Whether a peer that is linked has all of this site's feed up to a position, synced, as it has said.
    pub fn has_heard(&self, site: SiteId, position: u64) -> bool {
        let Some(Peer { link: Link::Up(live), acked, .. }) = self.peers.get(&site) else { return false };
        // It acknowledges no records of which it need not hear, so these count as soon as nothing else is under way.
        position <= *acked || live.telling.has_told(position)
    }

    // ------------------------------------------------------------------- links

    /// A link is up. What was under way on one before is told again.
    pub fn link_up(&mut self, site: SiteId) {
        self.link_down(site);
        let peer = self.peers.entry(site).or_insert_with(|| Peer::new(0, 0));
        peer.link = Link::Greeting { said: None, heard: None };
    }

    /// A link is down, or was refused.
    pub fn link_down(&mut self, site: SiteId) {
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.link = Link::Down;
        }
        self.under_way.take_if(|under_way| under_way.step.from == site && under_way.next.is_some());
    }

    /// A site says something. If it is refused, the link is down.
    pub fn heard(&mut self, own: Own<'_>, from: SiteId, message: WideMessage) -> Result<(), Refused> {
        let taken = self.take(own, from, message);
        if taken.is_err() {
            self.link_down(from);
        }
        taken
    }

    fn take(&mut self, own: Own<'_>, from: SiteId, message: WideMessage) -> Result<(), Refused> {
        if message.encoded_len() > WideMessage::BYTES_MAX {
            return Err(Refused::Bound("bytes of a message"));
        }
        let Some(peer) = self.peers.get_mut(&from) else { return Err(Refused::Order("there is no link")) };
        let live = match (&mut peer.link, &message) {
            (Link::Greeting { heard: heard @ None, .. }, WideMessage::Hello { hello }) => {
                let (taken, acked) = (peer.taken, peer.acked);
                judge(own, Remembered { volume: self.volume, synced: self.synced, taken, acked }, hello)?;
                *heard = Some(hello.has);
                peer.acked = hello.has;
                peer.begin(from);
                return Ok(());
            }
            (Link::Up(live), _) => live,
            (Link::Greeting { .. } | Link::Down, _) => {
                return Err(Refused::Order("it has not said who it is"));
            }
        };
        match message {
            WideMessage::Hello { .. } => Err(Refused::Order("it says twice who it is")),
            WideMessage::Bundle { bundle } => live.hearing.bundle(bundle),
            WideMessage::Feed { upto, news } => live.hearing.feed(upto, news),
            WideMessage::Ack { upto } => {
                if upto <= peer.acked || upto > self.synced {
                    return Err(Refused::Order("it acknowledges what it was not told"));
                }
                peer.acked = upto;
                live.telling.acked(upto);
                Ok(())
            }
            WideMessage::Want { objects } => live.answering.ask(objects),
            WideMessage::State { changes, known, unknown } => {
                live.hearing.answer(changes.into_vec(), &known, &unknown)
            }
            // Another machine takes these.
            WideMessage::WantPlan { .. }
            | WideMessage::Plan { .. }
            | WideMessage::WantBytes { .. }
            | WideMessage::Bytes { .. }
            | WideMessage::Sites { .. }
            | WideMessage::Confirm { .. }
            | WideMessage::Confirmed { .. } => Err(Refused::Order("it is for another machine")),
        }
    }

    /// What a site is told next; nothing if there is no link, if all is told, if it is not synced, or if too much is under way.
    pub fn tell(&mut self, own: Own<'_>, to: SiteId) -> Result<Option<WideMessage>, Vec<RowLoad>> {
        let Some(peer) = self.peers.get_mut(&to) else { return Ok(None) };
        let live = match &mut peer.link {
            Link::Down => return Ok(None),
            Link::Greeting { said: Some(_), .. } => return Ok(None),
            Link::Greeting { said, .. } => {
                let (volume, has, synced) = (self.volume, peer.synced, self.synced);
                *said = Some(has);
                peer.begin(to);
                let writers = Most::new(self.seen.iter().map(|(writer, n)| (*writer, *n)).collect());
                return Ok(Some(WideMessage::Hello { hello: Hello { volume, writers, has, synced } }));
            }
            Link::Up(live) => live,
        };
        if let Some(ack) = live.hearing.ack(peer.synced) {
            return Ok(Some(ack));
        }
        if let Some(want) = live.hearing.want(own)? {
            return Ok(Some(want));
        }
        let answer = live.answering.next(own, self.synced)?;
        if answer.is_some() || !live.answering.is_quiet() {
            // A change that came before an older state of its object would be asked for, and that state taken for the answer.
            return Ok(answer);
        }
        live.telling.next(own, (self.synced, self.opened), &mut peer.by_news, self.window)
    }

    // --------------------------------------------------------------- decisions

    /// Changes for one record; none if there is nothing to decide. The same ones until they are decided, or their link goes down.
    pub fn next(&mut self, own: Own<'_>) -> Result<Option<PeerStep>, Vec<RowLoad>> {
        if let Some(UnderWay { step, next: Some(_) }) = &self.under_way {
            return Ok(Some(step.clone()));
        }
        // One site after the other.
        let last = self.under_way.take().map_or(SiteId(0), |under_way| under_way.step.from);
        let (first, then): (Vec<SiteId>, Vec<SiteId>) = self.peers.keys().partition(|site| **site > last);
        for site in first.into_iter().chain(then) {
            let Some(peer) = self.peers.get_mut(&site) else { continue };
            let Link::Up(live) = &mut peer.link else { continue };
            let next = live.hearing.next(own)?;
            peer.note_done();
            if let Some((next, changes)) = next {
                return Ok(Some(self.begin(site, Some(next), changes)));
            }
        }
        let is_due = |(site, peer): (&SiteId, &Peer)| (peer.taken > peer.row).then_some(*site);
        let due = self.peers.iter().find_map(is_due);
        Ok(due.map(|site| self.begin(site, None, Vec::new())))
    }

    fn begin(&mut self, from: SiteId, next: Option<ToDecide>, changes: Vec<BundleChange>) -> PeerStep {
        self.step += 1;
        let step = PeerStep { from, changes, number: self.step };
        self.under_way = Some(UnderWay { step: step.clone(), next });
        step
    }

    /// What could not be decided for a while is asked for once more, now and then.
    pub fn goes_on(&mut self, now_ms: u64) {
        for peer in self.peers.values_mut() {
            if let Link::Up(live) = &mut peer.link {
                live.hearing.goes_on(now_ms);
            }
        }
    }

    /// A step was decided: its record gets rows, unless it is empty, and is set at `position` if it has some then. If the link is refused
    /// because of the decision, it is down; the record is to be set all the same.
    pub fn decided(
        &mut self,
        step: &PeerStep,
        position: u64,
        writer: Writer,
        decision: &mut ForeignDecision,
    ) -> Result<(), Refused> {
        let is_last = |under_way: &&mut UnderWay| under_way.step.number == step.number;
        let next = self.under_way.as_mut().filter(is_last).map(|under_way| under_way.next.take());
        let mut taken = Ok(());
        if let Some(Peer { link: Link::Up(live), .. }) = self.peers.get_mut(&step.from)
            && let Some(Some(next)) = next
        {
            taken = live.hearing.decided(next, decision);
        }
        self.refused += decision.refused as u64;
        if let Some(peer) = self.peers.get_mut(&step.from) {
            peer.note_done();
        }
        let changes = &mut decision.record.changes;
        let is_due = step.changes.is_empty() && self.peers.values().any(|peer| peer.taken > peer.row);
        if !changes.is_empty() || is_due {
            self.note_seen(&step.changes, writer, changes);
            for (site, peer) in &mut self.peers {
                changes.extend(peer.write(*site, position));
            }
        }
        if taken.is_err() {
            self.link_down(step.from);
        }
        taken
    }

    /// Notes the dots of changes that were taken.
    fn note_seen(&mut self, changes: &[BundleChange], own: Writer, rows: &mut Vec<RowChange>) {
        let mut higher = BTreeMap::new();
        let mut note = |writer: Writer, n: u64| {
            let is_new = writer != own && n > self.seen.get(&writer).copied().unwrap_or(0);
            if is_new && (self.seen.len() < WRITERS_MAX || self.seen.contains_key(&writer)) {
                self.seen.insert(writer, n);
                higher.insert(writer, n);
            }
        };
        let mut all = |context: &Context| context.iter().for_each(|(writer, n)| note(writer, n));
        for change in changes {
            match change {
                BundleChange::FileBorn { state, .. } => all(&state.context),
                BundleChange::DirBorn { head, .. } => all(&head.context),
                BundleChange::FileChanged { change, .. } => all(&Context::from_iter([change.dot])),
                BundleChange::DirChanged { change, .. } => all(&Context::from_iter([change.dot])),
                BundleChange::DirsMoved { .. } => {}
            }
        }
        rows.extend(
            higher.into_iter().map(|(writer, n)| set(WRITERS, writer.0.into(), &WriterRow::Seen { n })),
        );
    }

    /// This site is synced up to a position.
    pub fn synced(&mut self, position: u64) {
        self.synced = self.synced.max(position);
        for peer in self.peers.values_mut() {
            while let Some((_, taken)) = pop_upto(&mut peer.unsynced, position) {
                peer.synced = taken;
            }
        }
    }

    /// Asserts what holds between all calls.
    pub fn check(&self) {
        for peer in self.peers.values() {
            assert!(peer.synced <= peer.row && peer.row <= peer.taken, "{peer:?}");
            assert!(peer.acked <= self.synced, "nobody has what is not synced");
            if let Link::Up(live) = &peer.link {
                live.telling.check();
                live.hearing.check();
            }
        }
        assert!(self.seen.len() <= WRITERS_MAX);
    }
}

impl Peer {
    const fn new(taken: u64, acked: u64) -> Self {
        let unsynced = VecDeque::new();
        Self { taken, row: taken, unsynced, synced: taken, acked, by_news: 0, link: Link::Down }
    }

    /// When both have said who they are, the rest may come.
    fn begin(&mut self, site: SiteId) {
        if let Link::Greeting { said: Some(said), heard: Some(heard) } = self.link {
            let (telling, hearing) = (Telling::from(site, heard), Hearing::from(said));
            self.link = Link::Up(Box::new(Live { telling, hearing, answering: Answering::default() }));
        }
    }

    fn note_done(&mut self) {
        if let Link::Up(live) = &mut self.link
            && let Some(done) = live.hearing.done()
        {
            self.taken = self.taken.max(done);
        }
    }

    /// The row, if it is to say something else, in the record at a position.
    fn write(&mut self, site: SiteId, position: u64) -> Option<RowChange> {
        if self.taken <= self.row {
            return None;
        }
        self.row = self.taken;
        self.unsynced.push_back((position, self.taken));
        Some(set(PEERS, site.0.into(), &PeerRow::Upto { taken: self.taken, acked: self.acked }))
    }
}

/// Takes the first of what is in the order of positions, if it is not behind `upto`.
fn pop_upto<T>(list: &mut VecDeque<(u64, T)>, upto: u64) -> Option<(u64, T)> {
    let is_first = list.front().is_some_and(|(at, _)| *at <= upto);
    if is_first { list.pop_front() } else { None }
}
