//! The links of a node's sites: who listens and who connects, which of two links between a pair stays, and what their state is.
//!
//! A link has two connections, so that a message about names does not wait behind bodies: the first is for what is urgent. It is up when
//! both are there, and its end is the end of both. Its volume hears of nothing before it is up, and of nothing behind its end.
//!
//! Either site connects if it has an address of the other one. If both do at once, the link of the site with the lower number stays.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use bytes::Bytes;

use crate::greeting::{JoinAsk, Joined, LinkFrame, Purpose, VERSION};
use crate::join::{GREETING, dial};
use crate::key::SiteKey;
use crate::lane::{Lane, LaneError, Outbox, Traffic};
use crate::rate::Rate;
use crate::tls::SiteTls;

/// Connections of a link: for what is urgent, and for bodies.
const LANES: usize = 2;
/// Connections that are being greeted at once, of all addresses and of one.
const GREETINGS_MAX: usize = 256;
const GREETINGS_OF_ONE_MAX: usize = 16;
/// How often it is looked which sites are to be connected to.
const LOOK: Duration = Duration::from_millis(250);
/// The pause behind a failure to connect, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// A site that is to be connected to by the other one, and is not, is connected to after so long.
const OTHER_FIRST: Duration = Duration::from_secs(2);
/// A link that has lived for so long was no failure.
const LIVED: Duration = Duration::from_secs(10);
/// How long ending all links may take.
const STOP: Duration = Duration::from_secs(5);
/// A site hears this if the others go on without it.
const FORGOTTEN: &str = "the others have forgotten this site, and go on without it. Put aside what was changed here, \
                         and join as a new site: atoll site join LINE --adopt FOLDER";

/// A site of this node, as its links need it.
pub trait SiteVolume: Send + Sync + 'static {
    /// The volume.
    fn volume(&self) -> u64;

    /// This site's number in it.
    fn me(&self) -> u64;

    /// All sites that this one knows.
    fn sites(&self) -> Vec<NumberedSite>;

    /// The link to a site is up, or is not any more.
    fn link(&self, site: u64, up: bool);

    /// A site says something.
    fn heard(&self, site: u64, bytes: Bytes);

    /// Whoever has this key wants to be let in. An error says why not.
    fn let_in(&self, ask: JoinAsk, key: [u8; 32]) -> Result<Joined, String>;
}

/// How the link to a site is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteLinkState {
    /// Whether it is up.
    pub is_up: bool,
    /// Since when that is so, if it was ever up since the node began.
    pub since: Option<SystemTime>,
    /// Why it ended, or does not come up.
    pub why: Option<String>,
    /// Bytes that were sent on it since the node began,
    pub sent: u64,
    /// and received.
    pub received: u64,
    /// How far the other site's clock is ahead of this one's, in microseconds; less by the time that its message took.
    pub clock_ahead_us: i64,
}

/// The links of a pair of sites.
type Pair = (u64, u64);

struct OneLink {
    volume: Arc<dyn SiteVolume>,
    site: u64,
    number: u64,
    /// This site has connected to the other one.
    is_mine: bool,
    rate: Arc<Rate>,
    outboxes: [Outbox; LANES],
    phase: Mutex<Phase>,
    changed: Condvar,
    traffic: Arc<Traffic>,
}

#[derive(Default)]
struct Phase {
    /// Lanes that are here.
    lanes: BTreeSet<usize>,
    is_up: bool,
    /// Threads that are at it.
    running: usize,
}

#[derive(Default)]
struct Past {
    since: Option<SystemTime>,
    why: Option<String>,
    traffic: Arc<Traffic>,
    /// When it may be connected to again, and the pause after that.
    due: Option<Instant>,
    pause: Duration,
    is_dialing: bool,
    /// Since when there is no link.
    alone: Option<Instant>,
}

struct OneVolume {
    volume: Arc<dyn SiteVolume>,
    rate: Arc<Rate>,
}

#[derive(Default)]
struct Links {
    volumes: HashMap<u64, OneVolume>,
    up: HashMap<Pair, Arc<OneLink>>,
    past: HashMap<Pair, Past>,
    greetings: HashMap<IpAddr, usize>,
    listening: BTreeMap<SocketAddr, SocketAddr>,
    is_stopping: bool,
}

struct Shared {
    tls: SiteTls,
    links: Mutex<Links>,
    changed: Condvar,
}

/// See the module.
pub struct SiteLinks {
    shared: Arc<Shared>,
}

impl SiteLinks {
    /// Those of a node whose sites have this key.
    pub fn new(key: Arc<SiteKey>) -> io::Result<Self> {
        let tls = SiteTls::new(key).map_err(io::Error::other)?;
        let shared = Arc::new(Shared { tls, links: Mutex::default(), changed: Condvar::new() });
        let weak = Arc::downgrade(&shared);
        thread::Builder::new().name("atoll-sites".into()).spawn(move || keep_connected(&weak))?;
        Ok(Self { shared })
    }

    /// Takes connections on an address, if it does not yet. The address, with its port.
    pub fn listen(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        let mut links = self.shared.lock();
        if let Some(bound) = links.listening.get(&at) {
            return Ok(*bound);
        }
        let listener = TcpListener::bind(at)?;
        let bound = listener.local_addr()?;
        let weak = Arc::downgrade(&self.shared);
        thread::Builder::new().name("atoll-sites-in".into()).spawn(move || accept(&listener, &weak))?;
        links.listening.insert(at, bound);
        Ok(bound)
    }

    /// Keeps the links of a site of this node from here on. So many bytes a second leave it; 0: no limit.
    pub fn add(&self, volume: Arc<dyn SiteVolume>, bytes_per_s: u64) {
        let rate = Arc::new(Rate::new(bytes_per_s));
        self.shared.lock().volumes.insert(volume.volume(), OneVolume { volume, rate });
    }

    /// Ends the links of a site of this node, and waits until they have.
    pub fn remove(&self, volume: u64) {
        let mut links = self.shared.lock();
        links.volumes.remove(&volume);
        let until = Instant::now() + STOP;
        loop {
            let own = links.up.iter().filter(|((of, _), _)| *of == volume);
            let own: Vec<Arc<OneLink>> = own.map(|(_, link)| Arc::clone(link)).collect();
            let left = until.saturating_duration_since(Instant::now());
            if own.is_empty() || left.is_zero() {
                return;
            }
            own.iter().for_each(|link| link.end("the site stops"));
            links = self.shared.changed.wait_timeout(links, left).expect("no panic while it is held").0;
        }
    }

    /// Says something to a site, if there is a link.
    pub fn send(&self, volume: u64, site: u64, bytes: Bytes, is_urgent: bool) {
        let link = self.shared.lock().up.get(&(volume, site)).cloned();
        if let Some(link) = link {
            link.outboxes[usize::from(!is_urgent)].push(LinkFrame::Message { bytes }.framed());
        }
    }

    /// Ends the link to a site.
    pub fn end(&self, volume: u64, site: u64, why: &str) {
        let link = self.shared.lock().up.get(&(volume, site)).cloned();
        if let Some(link) = link {
            link.end(why);
        }
    }

    /// How the link to a site is.
    pub fn state(&self, volume: u64, site: u64) -> SiteLinkState {
        let links = self.shared.lock();
        let pair = (volume, site);
        let is_up = links.up.get(&pair).is_some_and(|link| link.lock().is_up);
        let empty = Past::default();
        let past = links.past.get(&pair).unwrap_or(&empty);
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        SiteLinkState {
            is_up,
            since: past.since,
            why: past.why.clone().filter(|_| !is_up),
            sent: count(&past.traffic.sent),
            received: count(&past.traffic.received),
            clock_ahead_us: count(&past.traffic.ahead_us) as i64,
        }
    }
}

impl Drop for SiteLinks {
    fn drop(&mut self) {
        let mut links = self.shared.lock();
        links.is_stopping = true;
        links.up.values().for_each(|link| link.end("the node stops"));
    }
}

impl Links {
    /// A place for somebody who has connected; false if there is none.
    fn begins_greeting(&mut self, from: IpAddr) -> bool {
        let all: usize = self.greetings.values().sum();
        let of_one = self.greetings.get(&from).copied().unwrap_or(0);
        let may = all < GREETINGS_MAX && of_one < GREETINGS_OF_ONE_MAX;
        if may {
            self.greetings.insert(from, of_one + 1);
        }
        may
    }

    fn ends_greeting(&mut self, from: IpAddr) {
        match self.greetings.get_mut(&from) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => _ = self.greetings.remove(&from),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().expect("no panic while it is held")
    }
}

impl OneLink {
    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().expect("no panic while it is held")
    }

    fn end(&self, why: &str) {
        self.outboxes.iter().for_each(|outbox| outbox.end(why));
        // Whoever has just looked whether it has ended waits by now.
        drop(self.lock());
        self.changed.notify_all();
    }

    fn is_ended(&self) -> bool {
        self.outboxes[0].ended().is_some()
    }

    /// Waits for a phase; false if the link ends before it, or it takes too long.
    fn wait(&self, is_there: impl Fn(&Phase) -> bool) -> bool {
        let until = Instant::now() + GREETING;
        let mut phase = self.lock();
        loop {
            if self.is_ended() {
                return false;
            }
            if is_there(&phase) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            phase = self.changed.wait_timeout(phase, left).expect("no panic while it is held").0;
        }
    }
}

// ------------------------------------------------------------------- connecting

/// Connects to each site to which there is no link, as long as there is somebody who wants that.
fn keep_connected(shared: &Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let volumes: Vec<Arc<dyn SiteVolume>> = {
            let links = shared.lock();
            if links.is_stopping {
                return;
            }
            links.volumes.values().map(|one| Arc::clone(&one.volume)).collect()
        };
        for volume in volumes {
            let sites = volume.sites();
            let has_address =
                |known: &&NumberedSite| known.site == volume.me() && !known.member.addresses.is_empty();
            let am_reached = sites.iter().any(|known| has_address(&known));
            shared.end_those_gone(&volume, &sites);
            for NumberedSite { site, member } in sites {
                if site != volume.me() && member.is_active() && !member.addresses.is_empty() {
                    connect_if_due(&shared, &volume, (site, member), am_reached);
                }
            }
        }
        drop(shared);
        thread::sleep(LOOK);
    }
}

fn connect_if_due(
    shared: &Arc<Shared>,
    volume: &Arc<dyn SiteVolume>,
    (site, member): (u64, SiteMember),
    am_reached: bool,
) {
    let pair = (volume.volume(), site);
    let mut links = shared.lock();
    if links.up.contains_key(&pair) {
        return;
    }
    let now = Instant::now();
    let past = links.past.entry(pair).or_default();
    let alone = *past.alone.get_or_insert(now);
    let is_other_first = am_reached && site < volume.me() && alone + OTHER_FIRST > now;
    if past.is_dialing || is_other_first || past.due.is_some_and(|due| due > now) {
        return;
    }
    past.is_dialing = true;
    drop(links);
    let (for_thread, of_thread) = (Arc::clone(shared), Arc::clone(volume));
    let run = move || {
        let began = Instant::now();
        let why = connect(&for_thread, &of_thread, site, &member);
        let mut links = for_thread.lock();
        let past = links.past.entry(pair).or_default();
        past.is_dialing = false;
        if let Err(why) = why {
            past.why = Some(why.to_string());
        }
        past.pause =
            if began.elapsed() > LIVED { PAUSES.0 } else { (past.pause * 2).clamp(PAUSES.0, PAUSES.1) };
        past.due = Some(Instant::now() + past.pause);
    };
    if thread::Builder::new().name("atoll-site".into()).spawn(run).is_err() {
        shared.lock().past.entry(pair).or_default().is_dialing = false;
    }
}

/// Connects to a site, and keeps the link until it ends.
fn connect(
    shared: &Arc<Shared>,
    volume: &Arc<dyn SiteVolume>,
    site: u64,
    member: &SiteMember,
) -> Result<(), LaneError> {
    let digest: [u8; 32] = member.key[..].try_into().map_err(|_| LaneError::Closed)?;
    let number = random();
    let mut last = LaneError::Closed;
    for address in &member.addresses {
        let greet = |lane: usize| -> Result<Lane, LaneError> {
            let until = Instant::now() + GREETING;
            let (mut connection, _) = Lane::begin(dial(address, until)?, shared.tls.connect(digest)?, until)?;
            let (volume, from) = (volume.volume(), volume.me());
            let purpose = Purpose::Lane { volume, site: from, to: site, link: number, lane: lane as u32 };
            connection.say(&LinkFrame::Greet { version: VERSION, purpose }, until)?;
            match connection.hear(until)? {
                LinkFrame::Welcome => Ok(connection),
                LinkFrame::Refused { why } => Err(LaneError::Refused(why)),
                _ => Err(LaneError::Closed),
            }
        };
        match greet(0) {
            Ok(urgent) => {
                let link = shared.enter(volume, site, number, true).map_err(LaneError::Refused)?;
                let of_bodies = greet(1);
                let (for_thread, of_thread) = (Arc::clone(shared), Arc::clone(&link));
                let second = match of_bodies {
                    Ok(lane) => thread::Builder::new()
                        .name("atoll-site".into())
                        .spawn(move || for_thread.run_lane(&of_thread, 1, lane))
                        .map_err(LaneError::Io),
                    Err(why) => Err(why),
                };
                if let Err(why) = &second {
                    link.end(&why.to_string());
                }
                shared.run_lane(&link, 0, urgent);
                return second.map(drop);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

// ------------------------------------------------------------------- being connected to

fn accept(listener: &TcpListener, shared: &Weak<Shared>) {
    /// Pause after a connection could not be taken, such as for want of file descriptors.
    const PAUSE: Duration = Duration::from_millis(100);
    // So that the end of the node is noticed.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    loop {
        let taken = listener.accept();
        let Some(shared) = shared.upgrade() else { return };
        let mut links = shared.lock();
        if links.is_stopping {
            return;
        }
        let Ok((stream, from)) = taken else {
            drop(links);
            drop(shared);
            thread::sleep(PAUSE);
            continue;
        };
        if !links.begins_greeting(from.ip()) {
            continue;
        }
        drop(links);
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                if let Err(why) = welcome(&shared, stream, from.ip()) {
                    tracing::debug!(%from, "a connection of a site ended: {why}");
                }
            }
        };
        if thread::Builder::new().name("atoll-site".into()).spawn(run).is_err() {
            shared.lock().ends_greeting(from.ip());
        }
    }
}

/// Greets who has connected, and keeps the connection until it ends.
fn welcome(shared: &Arc<Shared>, stream: TcpStream, from: IpAddr) -> Result<(), LaneError> {
    let greeted = greet(shared, stream);
    shared.lock().ends_greeting(from);
    if let Some((link, lane, connection)) = greeted? {
        shared.run_lane(&link, lane, connection);
    }
    Ok(())
}

fn greet(shared: &Arc<Shared>, stream: TcpStream) -> Result<Option<(Arc<OneLink>, usize, Lane)>, LaneError> {
    let until = Instant::now() + GREETING;
    stream.set_nonblocking(false)?;
    let (mut connection, key) = Lane::begin(stream, shared.tls.accept()?, until)?;
    let LinkFrame::Greet { version, purpose } = connection.hear(until)? else {
        return Err(LaneError::Closed);
    };
    let found = if version == VERSION {
        shared.answer(purpose, key)
    } else {
        Err(format!("this site speaks version {VERSION} of the sites' protocol, and the other one {version}"))
    };
    match found {
        Ok(Answer::Joined(joined)) => {
            connection.say(&LinkFrame::Joined { joined }, until)?;
            Ok(None)
        }
        Ok(Answer::Lane(link, lane)) => match connection.say(&LinkFrame::Welcome, until) {
            Ok(()) => Ok(Some((link, lane, connection))),
            Err(why) => {
                link.end(&why.to_string());
                // Nobody is at it yet, or the other lane ends it.
                shared.leave_if_empty(&link);
                Err(why)
            }
        },
        Err(why) => {
            connection.say(&LinkFrame::refused(&why), until)?;
            Err(LaneError::Refused(why))
        }
    }
}

enum Answer {
    Joined(Joined),
    Lane(Arc<OneLink>, usize),
}

impl Shared {
    fn answer(&self, purpose: Purpose, key: [u8; 32]) -> Result<Answer, String> {
        match purpose {
            Purpose::Join { ask } => {
                let volumes =
                    self.lock().volumes.values().map(|one| Arc::clone(&one.volume)).collect::<Vec<_>>();
                let mut why = "no site here has made that line, or it was used".to_owned();
                for volume in volumes {
                    match volume.let_in(ask.clone(), key) {
                        Ok(joined) => return Ok(Answer::Joined(joined)),
                        Err(no) if !no.is_empty() => why = no,
                        Err(_) => {}
                    }
                }
                Err(why)
            }
            Purpose::Lane { volume, site, to, link, lane } => {
                let found = self.lock().volumes.get(&volume).map(|one| Arc::clone(&one.volume));
                let not_here = || "the volume is not served here".to_owned();
                let found = found.filter(|found| found.me() == to).ok_or_else(not_here)?;
                let known = found.sites().into_iter().find(|known| known.site == site);
                match known.filter(|known| known.member.key[..] == key).map(|known| known.member.state) {
                    Some(SiteStanding::Active) => {}
                    Some(SiteStanding::Forgotten) => return Err(FORGOTTEN.to_owned()),
                    Some(SiteStanding::Left) | None => {
                        return Err(
                            "the site is none of those that take part, as far as this one knows".to_owned()
                        );
                    }
                }
                let lane = lane as usize;
                if lane >= LANES {
                    return Err("there is no such connection of a link".to_owned());
                }
                if lane > 0 {
                    let links = self.lock();
                    let of_link = links.up.get(&(volume, site)).filter(|up| up.number == link && !up.is_mine);
                    let of_link = of_link.cloned().ok_or("its link has ended")?;
                    return Ok(Answer::Lane(of_link, lane));
                }
                self.enter(&found, site, link, false).map(|link| Answer::Lane(link, 0))
            }
        }
    }

    /// Ends the links to sites that do not take part any more. One that has left tells so itself, as long as somebody lets it in.
    fn end_those_gone(&self, volume: &Arc<dyn SiteVolume>, sites: &[NumberedSite]) {
        let takes_part = |site: u64| sites.iter().any(|known| known.site == site && known.member.is_active());
        // Nothing is known of any before the site is open.
        if !sites.is_empty() {
            let links = self.lock();
            let own = links.up.iter().filter(|((of, site), _)| *of == volume.volume() && !takes_part(*site));
            own.for_each(|(_, link)| link.end("it takes part no longer"));
        }
    }

    /// A new link to a site, in place of one that is to give way.
    fn enter(
        &self,
        volume: &Arc<dyn SiteVolume>,
        site: u64,
        number: u64,
        is_mine: bool,
    ) -> Result<Arc<OneLink>, String> {
        let (pair, until) = ((volume.volume(), site), Instant::now() + STOP);
        let stops = || "the site stops".to_owned();
        let mut links = self.lock();
        while let Some(there) = links.up.get(&pair) {
            let is_of_lower = is_mine == (volume.me() < site);
            if there.is_mine != is_mine && !is_of_lower {
                return Err("there is a link already".to_owned());
            }
            there.end("another link takes its place");
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("an earlier link has not ended yet".to_owned());
            }
            links = self.changed.wait_timeout(links, left).expect("no panic while it is held").0;
        }
        let one = links.volumes.get(&pair.0).filter(|_| !links.is_stopping).ok_or_else(stops)?;
        let rate = Arc::clone(&one.rate);
        let outbox = || Outbox::new().map_err(|why| why.to_string());
        let traffic = Arc::clone(&links.past.entry(pair).or_default().traffic);
        let link = Arc::new(OneLink {
            volume: Arc::clone(volume),
            site,
            number,
            is_mine,
            rate,
            outboxes: [outbox()?, outbox()?],
            phase: Mutex::default(),
            changed: Condvar::new(),
            traffic,
        });
        links.up.insert(pair, Arc::clone(&link));
        Ok(link)
    }

    /// Keeps one connection of a link until the link ends.
    fn run_lane(&self, link: &Arc<OneLink>, lane: usize, connection: Lane) {
        let is_first = {
            let mut phase = link.lock();
            phase.running += 1;
            phase.lanes.insert(lane)
        };
        link.changed.notify_all();
        let is_urgent = lane == 0;
        let is_whole = is_first && link.wait(|phase| phase.lanes.len() == LANES);
        if is_whole && is_urgent {
            link.volume.link(link.site, true);
            {
                let mut links = self.lock();
                let past = links.past.entry((link.volume.volume(), link.site)).or_default();
                (past.since, past.why, past.alone) = (Some(SystemTime::now()), None, None);
            }
            link.lock().is_up = true;
            link.changed.notify_all();
        }
        if is_whole && link.wait(|phase| phase.is_up) {
            let heard = |bytes| link.volume.heard(link.site, bytes);
            let why = connection.run(&link.outboxes[lane], (&link.rate, is_urgent), &link.traffic, heard);
            link.end(&why.to_string());
        } else {
            link.end("its connections were not made in time");
        }
        link.lock().running -= 1;
        self.leave_if_empty(link);
    }

    /// Who leaves a link last tells that it is down.
    fn leave_if_empty(&self, link: &Arc<OneLink>) {
        let was_up = {
            let mut phase = link.lock();
            if phase.running > 0 {
                return;
            }
            std::mem::take(&mut phase.is_up)
        };
        if was_up {
            link.volume.link(link.site, false);
        }
        let pair = (link.volume.volume(), link.site);
        let mut links = self.lock();
        if links.up.get(&pair).is_some_and(|there| Arc::ptr_eq(there, link)) {
            links.up.remove(&pair);
            let past = links.past.entry(pair).or_default();
            past.why = link.outboxes[0].ended();
            past.alone = Some(Instant::now());
            if was_up {
                past.since = Some(SystemTime::now());
            }
        }
        drop(links);
        self.changed.notify_all();
    }
}

/// A number that nobody has had.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
