//! Islands on other nodes: one managed connection a node.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use atoll_core::{IslandId, SessionId};
use atoll_posix::Errno;
use atoll_proto::control::Connection;
use atoll_proto::{Notice, Outcome, Reply, Request};
use atoll_rpc::{
    Address, Closed, ConnectError, Frame, Handler, Hello, Kind, Link, Options, Outgoing, Relays, Role,
    SendError,
};
use bytes::Bytes;

use crate::client::{Client, Sink, Wire};

/// The errno of a request that is longer than a message may be.
const E2BIG: Errno = Errno(7);

/// The way to the islands of one node.
pub struct Remote {
    outgoing: Outgoing,
    /// Whose requests these are.
    client: Arc<OnceLock<Weak<Client>>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.outgoing.address())
    }
}

/// What comes from the node, for a client that is set when it is made.
struct Incoming {
    islands: Vec<IslandId>,
    client: Arc<OnceLock<Weak<Client>>>,
}

impl Remote {
    /// Keeps a connection to the node at `address`, which holds `islands`; through another node of `relays` where it
    /// cannot be reached directly. `client` is set later, when the client that has this wire is made.
    pub fn new(
        address: Address,
        relays: Relays,
        islands: Vec<IslandId>,
        session: SessionId,
        client: Arc<OnceLock<Weak<Client>>>,
    ) -> Arc<Self> {
        let volume = relays.volume;
        let greeting = Box::new(move || Hello::new(Role::Client { volume, session }, None));
        let handler = Arc::new(Incoming { islands, client: Arc::clone(&client) });
        let outgoing = Outgoing::with_relays(address, greeting, handler, Options::default(), relays);
        Arc::new(Self { outgoing, client })
    }

    /// Connects, and stays connected. Waits for the first attempt to succeed, or for the time.
    pub fn connect(&self, time_max: Duration) -> Result<(), ConnectError> {
        self.outgoing.keep(true);
        self.outgoing.connect(time_max).map(|_| ())
    }

    /// Whether the connection is up.
    pub fn is_up(&self) -> bool {
        self.outgoing.link().is_some()
    }

    /// The connection, and whether another node passes it on.
    pub fn connection(&self) -> Connection {
        match self.outgoing.link() {
            None => Connection::Down,
            Some(link) if link.is_relayed() => Connection::Relayed,
            Some(_) => Connection::Direct,
        }
    }

    /// Ends the connection.
    pub fn stop(&self) {
        self.outgoing.stop();
    }
}

impl Wire for Remote {
    fn send(&self, island: IslandId, id: u64, request: Request, data: Bytes) {
        match self.outgoing.send(Kind::Request, island, id, &request, &data) {
            // A link that is down tells so itself, and the machine asks again.
            Ok(()) | Err(SendError::NotConnected) => {}
            // The island has not heard of it: nothing was done, and the caller is told.
            Err(SendError::TooLong(_)) => {
                if let Some(client) = self.client.get().and_then(Weak::upgrade) {
                    let outcome = Outcome::Failed { errno: E2BIG };
                    client.reply(island, id, Reply { vector: Vec::new(), outcome }, &[]);
                }
            }
        }
    }
}

impl Incoming {
    fn client(&self) -> Option<Arc<Client>> {
        self.client.get()?.upgrade()
    }

    fn reachable(&self, up: bool) {
        if let Some(client) = self.client() {
            for island in &self.islands {
                client.reachable(*island, up);
            }
        }
    }
}

impl Handler for Incoming {
    fn opened(&self, _link: &Arc<Link>) {
        self.reachable(true);
    }

    fn replaced(&self, _link: &Arc<Link>, _old: &Arc<Link>) {
        let Some(client) = self.client() else { return };
        self.islands.iter().for_each(|island| client.replaced(*island));
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let Some(client) = self.client() else { return };
        if !self.islands.contains(&frame.island) {
            return link.malformed(atoll_core::Malformed::new("an island that is not this node's"));
        }
        match frame.kind {
            Kind::Reply => match frame.decode::<Reply>() {
                Ok(reply) => client.reply(frame.island, frame.id, reply, &frame.payload),
                Err(what) => link.malformed(what),
            },
            Kind::Notice => match frame.decode::<Notice>() {
                Ok(notice) => client.notice(frame.island, notice),
                Err(what) => link.malformed(what),
            },
            Kind::Gone => client.reachable(frame.island, false),
            _ => link.malformed(atoll_core::Malformed::new("kind of frame for a client")),
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {
        self.reachable(false);
    }
}
