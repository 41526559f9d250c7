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

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_causal::Writer;
use atoll_core::{Decode, Encode, Malformed};
use atoll_proto::RowChange;
use atoll_spine::Spine;
use atoll_state::{RowLoad, State};
use bytes::Bytes;

use crate::author::{BundleChange, Made};
use crate::foreign::ForeignDecision;
use crate::lives::{KnownWriters, OwnDots, WriterHistories, WriterLife, dots_of, life_of_key};
use crate::rows::{LIVES, LifeRow, PEERS, PeerRow, SiteId, WRITERS, WriterRow, life_key, remove, set};
use answering::Answering;
pub use greet::Refused;
use greet::{Remembered, Theirs, differ, judge};
use hearing::{Hearing, ToDecide};
use message::{Hello, Most, NEWS_MAX, WideMessage};
use telling::{Telling, Upto};

/// What a site has, of which others are told.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// The rows of its island.
    pub state: &'a State,
    /// Where its directories are.
    pub spine: &'a Spine,
    /// What its last records have changed.
    pub made: &'a Made,
    /// What its writer has given.
    pub given: OwnDots<'a>,
}

/// Up to where a site has the feed of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct FeedUpto {
    position: u64,
    /// The life of the other one that has made this position, as it has said.
    life: Option<u64>,
}

/// Which lives a linked site was told of.
#[derive(Debug, Clone, Copy)]
struct LivesTold {
    /// Those of this site's writer that begin up to here.
    upto: u64,
    /// So many of those of others, in the order in which they became known.
    others: u64,
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
    theirs: Theirs,
    told: LivesTold,
    telling: Telling,
    hearing: Hearing,
    answering: Answering,
}

/// Where a link stands: `Down -> Greeting -> Up`, and from each to `Down`.
#[derive(Debug, Clone)]
enum Link {
    Down,
    Greeting {
        /// What this site has said: how much it has of the other one's feed, and of lives; none if it has said nothing yet.
        said: Option<(u64, LivesTold)>,
        /// What the other one has said: how much it has of this site's feed, and what it knows of writers. It was judged.
        heard: Option<Box<(u64, Theirs)>>,
    },
    Up(Box<Live>),
}

/// Another site.
#[derive(Debug, Clone)]
struct Peer {
    /// This site has all of its feed up to here.
    taken: FeedUpto,
    /// What the row says of that, and the records that have said it and are not synced: their positions, and what they say.
    row: u64,
    unsynced: VecDeque<(u64, FeedUpto)>,
    /// What the row says that is synced.
    synced: FeedUpto,
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
    /// What was taken of each other writer.
    seen: WriterHistories,
    /// Links that are down since they were refused, on account of what came on another one.
    refusals: VecDeque<(SiteId, Refused)>,
    under_way: Option<UnderWay>,
    /// The number of the last step.
    step: u64,
    refused: u64,
}

impl WidePeers {
    /// What a site with this writer goes on with where its rows end. `rows`: of all side rows those of [`PEERS`], [`WRITERS`] and [`LIVES`]
    /// are used; `position` is that of the last record before this machine, and synced.
    pub fn open(
        volume: u64,
        own: Writer,
        window: Window,
        position: u64,
        rows: impl IntoIterator<Item = (u8, u128, Bytes)>,
    ) -> Result<Self, Malformed> {
        let mut peers = BTreeMap::new();
        let mut seen = WriterHistories::default();
        for (table, id, row) in rows {
            let number = u64::try_from(id).map_err(|_| Malformed::new("number of a site or writer"));
            match table {
                PEERS => {
                    let PeerRow::Upto { taken, life, acked } = PeerRow::from_slice(&row)?;
                    let taken = FeedUpto { position: taken, life };
                    peers.insert(SiteId(number?), Peer::new(taken, acked));
                }
                WRITERS => {
                    if let WriterRow::Seen { n } = WriterRow::from_slice(&row)? {
                        seen.raise(Writer(number?), n);
                    }
                }
                LIVES => {
                    let (writer, n) = life_of_key(id);
                    if writer != own {
                        let LifeRow::Seen { life } = LifeRow::from_slice(&row)? else {
                            return Err(Malformed::new("a life of another site's writer"));
                        };
                        let added = seen.add(WriterLife { writer, n, life });
                        added.map_err(|()| Malformed::new("lives of writers"))?;
                    }
                }
                _ => {}
            }
        }
        let (opened, synced) = (position, position);
        let (refusals, under_way, step, refused) = (VecDeque::new(), None, 0, 0);
        Ok(Self { volume, window, opened, synced, peers, seen, refusals, under_way, step, refused })
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
        self.peers.get(&site).map_or((0, 0), |peer| (peer.taken.position, peer.acked))
    }

    /// The number of the last dot that was taken of another site's writer.
    pub fn last_dot(&self, writer: Writer) -> u64 {
        self.seen.n(writer)
    }

    /// Which life of another site's writer has given a dot that was taken; none if that is not known.
    pub fn life_of(&self, writer: Writer, n: u64) -> Option<u64> {
        self.seen.of_dot(writer, n)
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
        let Live { telling, hearing, answering, .. } = &**live;
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
        let peer = self.peers.entry(site).or_insert_with(|| Peer::new(FeedUpto::default(), 0));
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
                let tellable = own.given.lives.upto(self.synced);
                let here = Remembered { volume: self.volume, tellable, taken, acked };
                let theirs = judge(own.given, &self.seen, here, hello)?;
                *heard = Some(Box::new((hello.has, theirs)));
                peer.acked = hello.has;
                peer.begin(from);
                return Ok(());
            }
            (Link::Up(live), _) => live,
            (Link::Greeting { .. } | Link::Down, _) => {
                return Err(Refused::Order("it has not said who it is"));
            }
        };
        live.compare(KnownWriters { own: own.given, others: &self.seen }, &message)?;
        match message {
            WideMessage::Hello { .. } => Err(Refused::Order("it says twice who it is")),
            WideMessage::Lives { own, others } => live.theirs.more(&own, &others),
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
                let (volume, FeedUpto { position: has, life }) = (self.volume, peer.synced);
                let tellable = own.given.lives.upto(self.synced);
                *said = Some((has, LivesTold { upto: tellable, others: self.seen.known() }));
                peer.begin(to);
                let (OwnDots { writer, n, lives: own }, writers) = (own.given, Most::new(self.seen.all()));
                // A life that is not synced has begun behind the last dot that may be told.
                let n = own.between(tellable, u64::MAX).first().map_or(n, |life| life.n - 1);
                let (own, lives) = (Most::new(own.between(0, tellable)), Most::new(self.seen.since(0)));
                let hello = Hello { volume, writer, n, own, writers, lives, has, life, synced: tellable };
                return Ok(Some(WideMessage::Hello { hello }));
            }
            Link::Up(live) => live,
        };
        // Before all that they have given.
        let tellable = own.given.lives.upto(self.synced);
        let told = LivesTold { upto: tellable, others: self.seen.known() };
        let before = std::mem::replace(&mut live.told, told);
        let own_lives = own.given.lives.between(before.upto, told.upto);
        if !own_lives.is_empty() || before.others < told.others {
            let others = Most::new(self.seen.since(before.others));
            return Ok(Some(WideMessage::Lives { own: Most::new(own_lives), others }));
        }
        if let Some(ack) = live.hearing.ack(peer.synced.position) {
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
        let upto = Upto { tellable, synced: self.synced, in_memory: self.opened };
        live.telling.next(own, upto, &mut peer.by_news, self.window)
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
        let is_due = |(site, peer): (&SiteId, &Peer)| (peer.taken.position > peer.row).then_some(*site);
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
        own: OwnDots<'_>,
        step: &PeerStep,
        position: u64,
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
        let is_due =
            step.changes.is_empty() && self.peers.values().any(|peer| peer.taken.position > peer.row);
        if !changes.is_empty() || is_due {
            self.note_seen(own, step, changes);
            for (site, peer) in &mut self.peers {
                changes.extend(peer.write(*site, position));
            }
        }
        if taken.is_err() {
            self.link_down(step.from);
        }
        taken
    }

    /// Notes the dots of changes that were taken, and the lives that have given them, as the site has said that told of them.
    fn note_seen(&mut self, own: OwnDots<'_>, step: &PeerStep, rows: &mut Vec<RowChange>) {
        let mut higher = BTreeSet::new();
        let theirs = self.peers.get(&step.from).and_then(Peer::theirs);
        let named = |change| theirs.map_or_else(|| dots_of(change), |theirs| theirs.named(change));
        for (writer, n) in step.changes.iter().flat_map(named) {
            let before = self.seen.n(writer);
            if writer == own.writer || !self.seen.raise(writer, n) {
                continue;
            }
            higher.insert(writer);
            let Some(theirs) = theirs else { continue };
            let mut goes = Vec::new();
            if before > 0 && theirs.of_dot(writer, before + 1).is_none() {
                goes = self.seen.forget_lives(writer);
            }
            for begun in theirs.between(writer, before, n) {
                match self.seen.add(begun) {
                    Ok(oldest) => {
                        let row = LifeRow::Seen { life: begun.life };
                        rows.push(set(LIVES, life_key(writer, begun.n), &row));
                        goes.extend(oldest);
                    }
                    Err(()) => goes.extend(self.seen.forget_lives(writer)),
                }
            }
            rows.extend(goes.into_iter().map(|n| remove(LIVES, life_key(writer, n))));
        }
        let row =
            |writer: &Writer| set(WRITERS, writer.0.into(), &WriterRow::Seen { n: self.seen.n(*writer) });
        rows.extend(higher.iter().map(row));
        // Others may have told of other changes under these dots, which have not been taken yet.
        let known = KnownWriters { own, others: &self.seen };
        for (site, peer) in &mut self.peers {
            let Link::Up(live) = &peer.link else { continue };
            let other = higher.iter().find(|writer| known.differs(&live.theirs.writers, **writer));
            if let Some(writer) = other {
                self.refusals.push_back((*site, differ(own, &live.theirs, *writer)));
                peer.link = Link::Down;
            }
        }
    }

    /// A link that was refused on account of what came on another one. It is down.
    pub fn refusal(&mut self) -> Option<(SiteId, Refused)> {
        self.refusals.pop_front()
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
            let (synced, taken) = (peer.synced.position, peer.taken.position);
            assert!(synced <= peer.row && peer.row <= taken, "{peer:?}");
            assert!(peer.acked <= self.synced, "nobody has what is not synced");
            if let Link::Up(live) = &peer.link {
                live.telling.check();
                live.hearing.check();
            }
        }
    }
}

impl Live {
    /// Whether what the other site tells are the changes of each writer that are known here, as far as both know some.
    fn compare(&mut self, known: KnownWriters<'_>, message: &WideMessage) -> Result<(), Refused> {
        let named = |change| self.theirs.writers.named(change);
        let dots: Vec<(Writer, u64)> = match message {
            WideMessage::Bundle { bundle } => bundle.changes.iter().flat_map(named).collect(),
            WideMessage::State { changes, .. } => changes.iter().flat_map(named).collect(),
            WideMessage::Feed { news, .. } => news.iter().flat_map(|news| news.known.iter()).collect(),
            _ => return Ok(()),
        };
        let mut higher = BTreeSet::new();
        for (writer, n) in dots {
            if self.theirs.writers.raise(writer, n) {
                higher.insert(writer);
            }
        }
        for writer in higher {
            if known.differs(&self.theirs.writers, writer) || known.is_behind(&self.theirs.writers, writer) {
                return Err(differ(known.own, &self.theirs, writer));
            }
        }
        Ok(())
    }
}

impl Peer {
    const fn new(taken: FeedUpto, acked: u64) -> Self {
        let unsynced = VecDeque::new();
        Self { taken, row: taken.position, unsynced, synced: taken, acked, by_news: 0, link: Link::Down }
    }

    /// When both have said who they are, the rest may come.
    fn begin(&mut self, site: SiteId) {
        if let Link::Greeting { said: Some((said, told)), heard } = &mut self.link
            && let Some(heard) = heard.take()
        {
            let (said, told, (has, theirs)) = (*said, *told, *heard);
            let (telling, hearing, answering) =
                (Telling::from(site, has), Hearing::from(said), Answering::default());
            self.link = Link::Up(Box::new(Live { theirs, told, telling, hearing, answering }));
        }
    }

    /// What it has told of writers, if it is linked.
    fn theirs(&self) -> Option<&WriterHistories> {
        if let Link::Up(live) = &self.link { Some(&live.theirs.writers) } else { None }
    }

    fn note_done(&mut self) {
        if let Link::Up(live) = &mut self.link
            && let Some(done) = live.hearing.done()
            && done > self.taken.position
        {
            self.taken = FeedUpto { position: done, life: live.theirs.of_position(done) };
        }
    }

    /// The row, if it is to say something else, in the record at a position.
    fn write(&mut self, site: SiteId, position: u64) -> Option<RowChange> {
        if self.taken.position <= self.row {
            return None;
        }
        let FeedUpto { position: taken, life } = self.taken;
        self.row = taken;
        self.unsynced.push_back((position, self.taken));
        Some(set(PEERS, site.0.into(), &PeerRow::Upto { taken, life, acked: self.acked }))
    }
}

/// Takes the first of what is in the order of positions, if it is not behind `upto`.
fn pop_upto<T>(list: &mut VecDeque<(u64, T)>, upto: u64) -> Option<(u64, T)> {
    let is_first = list.front().is_some_and(|(at, _)| *at <= upto);
    if is_first { list.pop_front() } else { None }
}
