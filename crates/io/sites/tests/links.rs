//! Links between sites over real sockets, with volumes that only note what they hear.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_causal::Writer;
use atoll_sites::{JoinAsk, JoinError, Joined, SiteKey, SiteLinks, SiteVolume, join};
use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::message::Most;
use bytes::Bytes;

const VOLUME: u64 = 7;
const SECRET: u128 = 9;
const ANY: &str = "127.0.0.1:0";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Link(u64, bool),
    Heard(u64, Bytes),
}

/// What is done when something is heard, before it is noted.
type Hearing = Box<dyn Fn(&Bytes) + Send>;

struct Noting {
    me: u64,
    sites: Mutex<Vec<NumberedSite>>,
    events: Mutex<Vec<Event>>,
    hearing: Mutex<Option<Hearing>>,
}

impl SiteVolume for Noting {
    fn volume(&self) -> u64 {
        VOLUME
    }

    fn me(&self) -> u64 {
        self.me
    }

    fn sites(&self) -> Vec<NumberedSite> {
        self.sites.lock().unwrap().clone()
    }

    fn link(&self, site: u64, up: bool) {
        self.events.lock().unwrap().push(Event::Link(site, up));
    }

    fn heard(&self, site: u64, bytes: Bytes) {
        if let Some(hearing) = &*self.hearing.lock().unwrap() {
            hearing(&bytes);
        }
        self.events.lock().unwrap().push(Event::Heard(site, bytes));
    }

    fn let_in(&self, ask: JoinAsk, key: [u8; 32]) -> Result<Joined, String> {
        if ask.secret != SECRET || ask.site.member.key[..] != key {
            return Err(String::new());
        }
        let sites = Most::new(self.sites());
        Ok(Joined {
            name: "docs".into(),
            volume: VOLUME,
            seed: 1,
            site: ask.site.site,
            uid: 0,
            gid: 0,
            sites,
        })
    }
}

struct OneSite {
    volume: Arc<Noting>,
    links: Arc<SiteLinks>,
    key: Arc<SiteKey>,
    at: SocketAddr,
}

fn one_site(data: &Path, me: u64) -> OneSite {
    let key = Arc::new(SiteKey::read_or_make(data).unwrap());
    let links = Arc::new(SiteLinks::new(Arc::clone(&key)).unwrap());
    let at = links.listen(ANY.parse().unwrap()).unwrap();
    let (sites, events, hearing) = Default::default();
    let volume = Arc::new(Noting { me, sites, events, hearing });
    links.add(Arc::clone(&volume) as _, 0);
    OneSite { volume, links, key, at }
}

fn known(of: &OneSite, is_reached: bool) -> NumberedSite {
    let addresses = if is_reached { vec![of.at.to_string()] } else { Vec::new() };
    let (writer, name) = (Writer(of.volume.me), format!("s{}", of.volume.me));
    let key = Bytes::copy_from_slice(&of.key.digest());
    let member = SiteMember { version: 1, state: SiteStanding::Active, writer, name, addresses, key };
    NumberedSite { site: of.volume.me, member }
}

/// Waits until something is so. Generous: it is only waited for if it is not.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl OneSite {
    fn knows(&self, sites: Vec<NumberedSite>) {
        *self.volume.sites.lock().unwrap() = sites;
    }

    fn events(&self) -> Vec<Event> {
        self.volume.events.lock().unwrap().clone()
    }

    fn is_up(&self, site: u64) -> bool {
        self.links.state(VOLUME, site).is_up
    }
}

/// Two sites that know each other.
fn pair(dir: &Path, reached: [bool; 2]) -> [OneSite; 2] {
    let [a, b] = [1, 2].map(|me| {
        let data = dir.join(me.to_string());
        std::fs::create_dir(&data).unwrap();
        one_site(&data, me)
    });
    let all = vec![known(&a, reached[0]), known(&b, reached[1])];
    a.knows(all.clone());
    b.knows(all);
    [a, b]
}

#[test]
fn messages_arrive_in_order_between_two_that_both_connect() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), [true, true]);
    until("a link", || a.is_up(2) && b.is_up(1));
    let large = Bytes::from(vec![5; 3 << 20]);
    for n in 0..100_u8 {
        a.links.send(VOLUME, 2, Bytes::from(vec![n]), true);
        b.links.send(VOLUME, 1, Bytes::from(vec![n]), true);
    }
    a.links.send(VOLUME, 2, large.clone(), false);
    for (site, other) in [(&a, 2), (&b, 1)] {
        let urgent = |site: &OneSite| -> Vec<u8> {
            let events = site.events().into_iter();
            events
                .filter_map(|event| match event {
                    Event::Heard(_, bytes) if bytes.len() == 1 => Some(bytes[0]),
                    _ => None,
                })
                .collect()
        };
        until("all messages", || urgent(site).len() == 100);
        assert!(urgent(site).is_sorted());
        assert_eq!(site.events()[0], Event::Link(other, true), "nothing comes before the link");
    }
    until("the body", || b.events().contains(&Event::Heard(1, large.clone())));
    // Nobody's link takes the place of the other one's again and again.
    std::thread::sleep(Duration::from_secs(3));
    for site in [&a, &b] {
        assert_eq!(site.events().iter().filter(|event| matches!(event, Event::Link(_, false))).count(), 0);
    }
}

/// Found by `atoll-wan fill`: an answer waited a second each time. The socket was full when it was given bytes, and took them when it was asked
/// once more, so the sender waited for what it would hear and not for room.
#[test]
fn a_site_to_which_nothing_is_said_sends_long_messages_without_pauses() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), [true, true]);
    until("a link", || a.is_up(2) && b.is_up(1));
    let large = Bytes::from(vec![5; 3 << 20]);
    (0..60).for_each(|_| a.links.send(VOLUME, 2, large.clone(), true));
    until("all messages", || b.events().len() == 61);
}

#[test]
fn a_site_that_has_much_to_decide_answers_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), [true, true]);
    until("a link", || a.is_up(2) && b.is_up(1));
    let (answers, of_a) = (Arc::clone(&b.links), Arc::clone(&a.volume));
    let answer = Bytes::from_static(b"answer");
    let has_answer = {
        let answer = answer.clone();
        move || of_a.events.lock().unwrap().contains(&Event::Heard(2, answer.clone()))
    };
    let hearing = {
        let answer = answer.clone();
        move |bytes: &Bytes| match bytes[0] {
            // All others have arrived by then.
            0 => std::thread::sleep(Duration::from_millis(500)),
            1 => answers.send(VOLUME, 1, answer.clone(), true),
            2 => until("the answer, although much is to be heard", &has_answer),
            _ => {}
        }
    };
    *b.volume.hearing.lock().unwrap() = Some(Box::new(hearing));
    (0..20).for_each(|n| a.links.send(VOLUME, 2, Bytes::from(vec![n]), true));
    until("all messages", || b.events().len() == 21);
    *b.volume.hearing.lock().unwrap() = None;
    assert!(a.is_up(2) && b.is_up(1));
}

#[test]
fn a_site_that_cannot_be_reached_connects_itself_and_a_link_that_ends_comes_back() {
    for reached in [[true, false], [false, true]] {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = pair(dir.path(), reached);
        until("a link", || a.is_up(2) && b.is_up(1));
        a.links.end(VOLUME, 2, "tried out");
        let ups = |site: &OneSite, up| {
            site.events().iter().filter(|event| matches!(event, Event::Link(_, is) if *is == up)).count()
        };
        until("two links", || ups(&a, true) == 2 && ups(&b, true) == 2);
        assert_eq!((ups(&a, false), ups(&b, false)), (1, 1));
        // A site that stops is away at the other one.
        a.links.remove(VOLUME);
        assert_eq!(ups(&a, false), 2);
        until("it is away", || ups(&b, false) == 2 && !b.is_up(1));
        assert!(b.links.state(VOLUME, 1).why.is_some());
    }
}

#[test]
fn who_has_another_key_or_has_left_or_is_forgotten_is_no_site() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), [true, false]);
    // It knows another key of that site.
    let mut stranger = known(&b, false);
    stranger.member.key = vec![1; 32].into();
    a.knows(vec![known(&a, true), stranger]);
    let why = |b: &OneSite| b.links.state(VOLUME, 1).why;
    until("a refusal", || why(&b).is_some_and(|why| why.contains("none of those")));
    let mut left = known(&b, false);
    left.member.state = SiteStanding::Left;
    a.knows(vec![known(&a, true), left]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(why(&b).is_some_and(|why| why.contains("none of those")));
    let mut forgotten = known(&b, false);
    forgotten.member.state = SiteStanding::Forgotten;
    a.knows(vec![known(&a, true), forgotten]);
    until("it hears that it was forgotten", || why(&b).is_some_and(|why| why.contains("have forgotten")));
    assert!(a.events().is_empty() && b.events().is_empty());
    // At its address is somebody else.
    let mut other = known(&a, true);
    other.member.key = vec![1; 32].into();
    b.knows(vec![other, known(&b, false)]);
    // What it has begun before by the right key is over.
    std::thread::sleep(Duration::from_secs(1));
    a.knows(vec![known(&a, true), known(&b, false)]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(a.events().is_empty() && b.events().is_empty());
    b.knows(vec![known(&a, true), known(&b, false)]);
    until("a link", || a.is_up(2) && b.is_up(1));
}

#[test]
fn a_line_lets_one_in_who_knows_its_secret_at_the_site_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let host = one_site(dir.path(), 1);
    host.knows(vec![known(&host, true)]);
    let data = dir.path().join("guest");
    std::fs::create_dir(&data).unwrap();
    let key = Arc::new(SiteKey::read_or_make(&data).unwrap());
    let mut site = known(&host, false);
    (site.site, site.member.writer) = (2, Writer(2));
    site.member.key = Bytes::copy_from_slice(&key.digest());
    let address = host.at.to_string().parse().unwrap();
    let ask = |secret| JoinAsk { secret, site: site.clone() };
    let joined = join(&key, &[address], host.key.digest(), &ask(SECRET)).unwrap();
    assert_eq!((joined.name.as_str(), joined.sites.len()), ("docs", 1));
    let address = || host.at.to_string().parse().unwrap();
    let refused = join(&key, &[address()], host.key.digest(), &ask(SECRET + 1)).unwrap_err();
    assert!(matches!(&refused, JoinError::Refused(why) if why.contains("line")), "{refused}");
    assert!(matches!(join(&key, &[address()], [3; 32], &ask(SECRET)), Err(JoinError::NotReached(_))));
}

#[test]
fn whoever_speaks_something_else_is_nobody_and_disturbs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = pair(dir.path(), [true, false]);
    until("a link", || a.is_up(2) && b.is_up(1));
    let noise = [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 255, 255], &[0; 4096]];
    // One that says nothing takes a place, and only for a while.
    let silent: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(a.at).ok()).collect();
    for bytes in noise {
        let mut stream = TcpStream::connect(a.at).unwrap();
        // It may be refused meanwhile.
        let _ = stream.write_all(bytes);
    }
    a.links.send(VOLUME, 2, Bytes::from_static(b"x"), true);
    until("a message", || b.events().contains(&Event::Heard(1, Bytes::from_static(b"x"))));
    drop(silent);
    assert!(a.is_up(2));
}
