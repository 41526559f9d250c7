//! What another site of a wide volume says.

use std::cell::RefCell;

use atoll_causal::Writer;
use atoll_core::{Encode, Ino, IslandId, Name, SessionId, Table};
use atoll_island::{BesideEvent, Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Caller, Op};
use atoll_proto::{ClientOp, Request};
use atoll_state::State;
use atoll_wide::members::{SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::{Hello, Most, WideMessage};
use atoll_wide::rows::SiteId;
use atoll_wide::site::{Site, SiteConfig};
use bytes::Bytes;

use crate::read::same;

/// The site that says it.
const PEER: u64 = 2;
/// The volume of both.
const VOLUME: u64 = 1;

/// The only client of the site.
const CLIENT: SessionId = SessionId(1);

/// Messages of another site, each with its length in two bytes before it. They come over a link on which both have greeted each other: a
/// site that has nothing yet hears them, decides what it can, and answers. Then its users make directories.
pub fn site(bytes: &[u8]) {
    let mut victim = VICTIM.with(|victim| victim.borrow().clone());
    let mut rest = bytes;
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(behind.len());
        let (message, behind) = behind.split_at(len);
        rest = behind;
        drop(same::<WideMessage>(message));
        victim.hears(Bytes::copy_from_slice(message));
    }
    victim.users_make_directories();
}

thread_local! {
    static VICTIM: RefCell<Victim> = RefCell::new(Victim::new());
}

/// A site beside its island, which has no rows but those of the root.
#[derive(Clone)]
struct Victim {
    island: Island,
    ms: u64,
    /// The client's last request.
    seq: u64,
}

/// A site of the volume.
fn member(writer: u64) -> SiteMember {
    let (name, addresses, key) = (format!("s{writer}"), Vec::new(), vec![1; 32].into());
    SiteMember { version: 1, state: SiteStanding::Active, writer: Writer(writer), name, addresses, key }
}

impl Victim {
    fn new() -> Self {
        let (site, island, window, copies_max) = (SiteId(1), IslandId(0), Window::MOST, 2);
        let (members, trash_bytes) = (vec![(site, member(1)), (SiteId(2), member(2))], 1 << 20);
        let life = 1;
        let config =
            SiteConfig { volume: VOLUME, site, island, life, members, window, copies_max, trash_bytes };
        let site = Site::open(config, 0, []).expect("it has no rows");
        let config = Config::new(IslandId(0), 1, Table::new(1), vec![IslandId(0)]);
        let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        island.set_beside(Box::new(site));
        let mut victim = Self { island, ms: 1, seq: 0 };
        victim.passes();
        victim.asks(ClientOp::Attach { mount: false });
        victim.event(Event::Beside(BesideEvent::Link { peer: PEER, up: true }));
        let (writer, n, has, life, synced) = (Writer(PEER), 0, 0, None, 1 << 40);
        let (own, writers, lives) = (Most::default(), Most::default(), Most::default());
        let hello = Hello { volume: VOLUME, writer, n, own, writers, lives, has, life, synced };
        victim.hears(WideMessage::Hello { hello }.to_vec().into());
        victim
    }

    /// What the other site has said is no reason that they cannot.
    fn users_make_directories(&mut self) {
        for name in [&b"u"[..], b"v"] {
            self.seq += 1;
            let name = Name::new(name).expect("it is a name");
            self.asks(ClientOp::Fs { op: Op::Mkdir { dir: Ino::ROOT, name, mode: 0o755, umask: 0 } });
        }
    }

    fn asks(&mut self, op: ClientOp) {
        let (session, seq, table) = (CLIENT, self.seq, self.island.config().table.version());
        let caller = Caller::ROOT;
        let request = Request { session, seq, acked: seq, table, vector: Vec::new(), caller, op };
        let (link, data) = (LinkId(session.0), Bytes::new());
        self.event(Event::Request { link, id: seq, request, data });
        self.passes();
    }

    fn hears(&mut self, bytes: Bytes) {
        self.event(Event::Beside(BesideEvent::Message { peer: PEER, bytes }));
        self.passes();
    }

    fn passes(&mut self) {
        self.ms += 250;
        self.event(Event::Tick { bytes_available: 1 << 40 });
    }

    /// Something happens. All that follows is done at once.
    fn event(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.island.handle(Now { ms: self.ms, ..Now::default() }, event, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Append(seq, ..) => events.push(Event::Committed(seq)),
                    Effect::Sync => events.push(Event::Synced(self.island.state().seq())),
                    Effect::Load { load, generation } => {
                        let loaded = load.nothing();
                        events.push(Event::Loaded { load, generation, loaded });
                    }
                    Effect::Body(ticket, _) => {
                        events.push(Event::BodyDone(ticket, Ok(atoll_island::BodyDone::Done)));
                    }
                    // What it says to the other site, which does not listen; what it answers; and a checkpoint that never ends, so no row
                    // leaves memory.
                    Effect::Beside(..) | Effect::Reply { .. } | Effect::Checkpoint { .. } => {}
                    other => panic!("nobody has asked for {other:?}"),
                }
            }
        }
        self.island.check();
    }
}
