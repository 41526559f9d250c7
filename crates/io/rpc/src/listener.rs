//! Takes connections on an address, greets them, and keeps account of their links.
//!
//! Never decides who is let in ([`Acceptor`] does), and never handles a frame. A process that connects and
//! says nothing costs a thread until the handshake's time-out. So such connections have a bound of their own, for each address.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use atoll_core::{NodeId, VolumeId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::address::Address;
use crate::frame::Frame;
use crate::greetings::{GreetingPlace, Greetings};
use crate::handshake::{self, Welcomed, plain, welcome};
use crate::hello::{Goodbye, Hello, HelloOk, Reason};
use crate::link::{Closed, Handler, Link, Options, Remote};
use crate::relay::{Onward, RELAYS_MAX, Relay};
use crate::security::{Peer, Shown};
use crate::stream::Stream;

/// Pause after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait in a socket, at most, until they are taken.
const BACKLOG: i32 = 1024;

/// Most links of one client, so that it takes no places from others: a mount has one, and so has a command.
const LINKS_PER_CLIENT_MAX: usize = 64;

/// Most connections of one client that are passed on.
const RELAYS_PER_CLIENT_MAX: usize = 8;

/// How long stopping waits for the links to end.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// A handler that decides who may connect to it.
pub trait Acceptor: Handler {
    /// Answers a greeting. The cluster in it is compared with that of the answer afterwards.
    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye>;

    /// Whether the owner of a certificate may greet so. Without certificates everybody may, and by default those with one.
    /// Comes before [`Self::welcome`].
    fn admit(&self, _shown: Option<&Shown>, _hello: &Hello) -> Result<(), Goodbye> {
        Ok(())
    }

    /// Whether an address is that of somebody who is expected. By default none is; those from which somebody was let in are remembered
    /// anyway. It must not wait.
    fn knows(&self, _from: IpAddr) -> bool {
        false
    }

    /// The target of a connection that asks for a relay. None by default: nothing is passed on.
    fn onward(&self, _volume: VolumeId, _to: NodeId) -> Result<Onward, Goodbye> {
        Err(Goodbye::new(Reason::NotAllowed, "nothing is passed on"))
    }
}

/// Why an address cannot be listened on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Another program listens there.
    #[error(
        "cannot listen on {address}: port {port} is in use by another program.\n\
        Stop that program (see \"ss -ltnp sport = :{port}\"), or choose another port."
    )]
    PortInUse {
        /// The address.
        address: Address,
        /// The port.
        port: u16,
    },
    /// A living process listens on that socket.
    #[error("cannot listen on {address}: another daemon listens there.\nStop it, or choose another path.")]
    SocketInUse {
        /// The address.
        address: Address,
    },
    /// Something else than a socket has the path.
    #[error(
        "cannot listen on {address}: the path is taken by something that is no socket.\nChoose another path."
    )]
    PathTaken {
        /// The address.
        address: Address,
    },
    /// The host is not this machine.
    #[error(
        "cannot listen on {address}: this machine has no such address.\n\
        Use one that \"ip addr\" shows, or 0.0.0.0 for all of them."
    )]
    NotHere {
        /// The address.
        address: Address,
    },
    /// The name of the host means nothing here.
    #[error(
        "cannot listen on {address}: the name is unknown ({why}).\n\
        Check the spelling, or write the IP address."
    )]
    UnknownHost {
        /// The address.
        address: Address,
        /// The resolver's error.
        why: String,
    },
    /// Only root may.
    #[error(
        "cannot listen on {address}: permission denied.\n\
        Choose a port from 1024 on or a folder that you may write to, or run as root."
    )]
    NotAllowed {
        /// The address.
        address: Address,
    },
    /// Anything else.
    #[error("cannot listen on {address}: {why}.")]
    Failed {
        /// The address.
        address: Address,
        /// The system's error.
        why: String,
    },
}

enum Socket {
    Tcp(TcpListener),
    /// Where it is, and which file that is.
    Unix(UnixListener, PathBuf, (u64, u64)),
}

impl Socket {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(l) => l.as_fd(),
            Self::Unix(l, ..) => l.as_fd(),
        }
    }

    /// Nobody is let in any more, whoever else has this socket.
    fn close_to_all(&self) {
        // Fails only if it does not listen.
        let _ = rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Both);
    }

    /// A connection and where it comes from; `WouldBlock` if there is none.
    fn accept(&self) -> io::Result<(Stream, String, Option<IpAddr>)> {
        match self {
            Self::Tcp(l) => {
                let (stream, from) = l.accept()?;
                Ok((Stream::tcp(OwnedFd::from(stream))?, from.to_string(), Some(from.ip())))
            }
            Self::Unix(l, path, _) => {
                let (stream, _) = l.accept()?;
                Ok((Stream::unix(OwnedFd::from(stream)), format!("unix:{}", path.display()), None))
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have put its own there, as this one did not listen any more.
        if let Self::Unix(_, path, id) = self
            && file_id(path).is_some_and(|there| there == *id)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that listens. Connections wait in it until a [`Listener`] takes them, which may be one of a child of this process.
pub struct Bound {
    address: Address,
    socket: Socket,
}

impl Bound {
    /// Its address, with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

#[derive(Default)]
struct Account {
    stopping: bool,
    /// Connections that have not been greeted yet.
    greetings: Greetings,
    links: HashMap<u64, Arc<Link>>,
    /// Connections that are passed on to another node, and who is at their other end.
    relays: HashMap<u64, (Option<Peer>, Arc<Relay>)>,
}

impl Account {
    fn is_full(&self, options: &Options) -> bool {
        self.links.len() + self.relays.len() >= options.connections_max
    }

    /// Whether a client, or a guest, has as many connections of this kind as it may have. Nodes are bounded by their number.
    fn has_its_share(&self, peer: Option<Peer>, is_relay: bool) -> bool {
        if !matches!(peer, Some(Peer::Client(_) | Peer::Guest(_))) {
            return false;
        }
        match is_relay {
            true => self.relays.values().filter(|(of, _)| *of == peer).count() >= RELAYS_PER_CLIENT_MAX,
            false => self.links.values().filter(|link| link.peer() == peer).count() >= LINKS_PER_CLIENT_MAX,
        }
    }
}

struct Shared {
    acceptor: Arc<dyn Acceptor>,
    options: Options,
    account: Mutex<Account>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes connections until it is stopped or dropped.
pub struct Listener {
    address: Address,
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts to listen. Port 0 takes any free one; [`Self::address`] tells which.
    pub fn start(
        address: &Address,
        acceptor: Arc<dyn Acceptor>,
        options: Options,
    ) -> Result<Self, ListenError> {
        Self::start_on(Self::bind(address, &options)?, acceptor, options)
    }

    /// Listens, and takes no connections yet: they wait.
    pub fn bind(address: &Address, options: &Options) -> Result<Bound, ListenError> {
        let (socket, address) = match address {
            Address::Tcp { host, port } => bind_tcp(address, host, *port)?,
            Address::Unix { path } => (bind_unix(address, path, options.unix_mode)?, address.clone()),
        };
        Ok(Bound { address, socket })
    }

    /// Starts to take the connections of a socket.
    pub fn start_on(
        bound: Bound,
        acceptor: Arc<dyn Acceptor>,
        options: Options,
    ) -> Result<Self, ListenError> {
        let Bound { address, socket } = bound;
        let failed = |e: io::Error| ListenError::Failed { address: address.clone(), why: plain(&e) };
        // Again, because a process that had it before may have closed it to all.
        rustix::net::listen(socket.fd(), BACKLOG).map_err(|e| failed(e.into()))?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
        let shared =
            Arc::new(Shared { acceptor, options, account: Mutex::default(), changed: Condvar::new() });
        let accepting = {
            let (shared, wake) = (Arc::clone(&shared), Arc::clone(&wake));
            move || accept_all(&socket, &shared, &wake)
        };
        let thread = thread::Builder::new().name("atoll-accept".into()).spawn(accepting).map_err(failed)?;
        Ok(Self { address, shared, wake, thread: Some(thread) })
    }

    /// Its address, with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The links that are up.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.shared.lock().links.values().cloned().collect()
    }

    /// Takes no more connections, ends all links, and waits, within bounds, until their handlers
    /// have seen that. Must not be called from a handler.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.lock().stopping = true;
        // An eventfd takes more writes than there will ever be.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        let _ = thread.join();
        for link in self.links() {
            link.close(Goodbye::new(Reason::Stopping, "the daemon stops"));
        }
        self.shared.lock().relays.values().for_each(|(_, relay)| relay.end());
        let until = Instant::now() + STOP_TIME_MAX;
        let mut account = self.shared.lock();
        while !(account.links.is_empty() && account.relays.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("{} links did not end in time", account.links.len() + account.relays.len());
                return;
            }
            account =
                self.shared.changed.wait_timeout(account, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bind_tcp(address: &Address, host: &str, port: u16) -> Result<(Socket, Address), ListenError> {
    let unknown = |why: String| ListenError::UnknownHost { address: address.clone(), why };
    let found: Vec<_> = (host, port).to_socket_addrs().map_err(|e| unknown(plain(&e)))?.collect();
    if found.is_empty() {
        return Err(unknown("it has no address".to_owned()));
    }
    let bind = || {
        let listener = TcpListener::bind(&found[..])?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((Socket::Tcp(listener), Address::Tcp { host: host.to_owned(), port }))
    };
    bind().map_err(|e: io::Error| match e.kind() {
        ErrorKind::AddrInUse => ListenError::PortInUse { address: address.clone(), port },
        ErrorKind::AddrNotAvailable => ListenError::NotHere { address: address.clone() },
        ErrorKind::PermissionDenied => ListenError::NotAllowed { address: address.clone() },
        _ => ListenError::Failed { address: address.clone(), why: plain(&e) },
    })
}

/// Which file is at a path: its device and number.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

fn bind_unix(address: &Address, path: &Path, mode: u32) -> Result<Socket, ListenError> {
    let failed = |e: io::Error| match e.kind() {
        ErrorKind::PermissionDenied => ListenError::NotAllowed { address: address.clone() },
        _ => ListenError::Failed { address: address.clone(), why: plain(&e) },
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(ListenError::PathTaken { address: address.clone() });
        }
        // A daemon that was killed leaves its socket behind; only one that lives accepts.
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(failed(e)),
            _ => return Err(ListenError::SocketInUse { address: address.clone() }),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let bind = || {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let listener = bind().map_err(|e: io::Error| match e.kind() {
        ErrorKind::AddrInUse => ListenError::SocketInUse { address: address.clone() },
        _ => failed(e),
    })?;
    let id = file_id(path).unwrap_or_default();
    Ok(Socket::Unix(listener, path.to_owned(), id))
}

fn accept_all(socket: &Socket, shared: &Arc<Shared>, wake: &OwnedFd) {
    loop {
        let mut fds =
            [PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        // Only a signal ends it early, and then there is nothing to accept.
        let _ = poll(&mut fds, None);
        if shared.lock().stopping {
            break;
        }
        match socket.accept() {
            Ok((stream, from, ip)) => admit(stream, from, ip, shared),
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => {
                    tracing::warn!("a connection cannot be accepted: {}", plain(&e));
                    thread::sleep(ACCEPT_PAUSE);
                }
            },
        }
    }
    socket.close_to_all();
}

/// Gives a new connection a thread of its own, if there is room.
fn admit(stream: Stream, from: String, ip: Option<IpAddr>, shared: &Arc<Shared>) {
    let mut account = shared.lock();
    let place = match account.is_full(&shared.options) {
        true => None,
        false => account.greetings.begin(ip, |ip| shared.acceptor.knows(ip)),
    };
    let Some(place) = place else {
        let (open, greeting) = (account.links.len() + account.relays.len(), account.greetings.len());
        drop(account);
        tracing::warn!(%from, "refused: {open} connections are open already, and {greeting} are being greeted");
        handshake::refuse(&stream, shared.options.security.as_deref(), &Goodbye::new(Reason::Full, ""));
        return;
    };
    drop(account);
    let place = Taken { place: Some(place), shared: Arc::clone(shared) };
    let greeting = {
        let shared = Arc::clone(shared);
        move || greet(stream, from, place, &shared)
    };
    if let Err(e) = thread::Builder::new().name("atoll-link".into()).spawn(greeting) {
        tracing::warn!("no thread for a connection: {}", plain(&e));
    }
}

/// The place of a connection that is being greeted. It is given back in any case.
struct Taken {
    place: Option<GreetingPlace>,
    shared: Arc<Shared>,
}

impl Taken {
    fn end(mut self, account: &mut Account, was_let_in: bool) {
        if let Some(place) = self.place.take() {
            account.greetings.end(place, was_let_in);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.lock().greetings.end(place, false);
        }
    }
}

/// Greets a new connection, and serves it as its first thread.
fn greet(mut stream: Stream, from: String, place: Taken, shared: &Arc<Shared>) {
    let deadline = Instant::now() + shared.options.handshake_time_max;
    let id = Link::next_id();
    let may_relay = |peer| {
        let account = shared.lock();
        account.relays.len() < RELAYS_MAX && !account.has_its_share(peer, true)
    };
    let greeted =
        welcome(&mut stream, &*shared.acceptor, shared.options.security.as_deref(), &may_relay, deadline);
    let mut account = shared.lock();
    place.end(&mut account, greeted.is_ok());
    let greeted = match greeted {
        Ok(greeted) => greeted,
        Err(why) => {
            drop(account);
            if why.is_asked_in_vain() {
                // Others look for a way to a node that is away from here, too: again and again.
                tracing::debug!(%from, "not passed on: {why}");
                return;
            }
            tracing::warn!(%from, "not let in: {why}");
            return;
        }
    };
    let (peer, is_relay) = match &greeted {
        Welcomed::Link(greeted) => (greeted.shown.map(|shown| shown.peer), false),
        Welcomed::Relay(_, shown) => (shown.map(|shown| shown.peer), true),
    };
    let has_its_share = account.has_its_share(peer, is_relay);
    if account.stopping || account.is_full(&shared.options) || has_its_share {
        let goodbye = match account.stopping {
            true => Goodbye::new(Reason::Stopping, "the daemon stops"),
            false if has_its_share => {
                Goodbye::new(Reason::Full, "this client has all the connections that one may have")
            }
            false => Goodbye::new(Reason::Full, ""),
        };
        drop(account);
        handshake::refuse(&stream, shared.options.security.as_deref(), &goodbye);
        return;
    }
    let greeted = match greeted {
        Welcomed::Link(greeted) => *greeted,
        Welcomed::Relay(there, _) => {
            let relay = Relay::new(stream, there, shared.options.send_time_max);
            account.relays.insert(id, (peer, Arc::clone(&relay)));
            drop(account);
            relay.run();
            shared.lock().relays.remove(&id);
            shared.changed.notify_all();
            return;
        }
    };
    let remote = Remote::Accepted(greeted.remote);
    let counted = Arc::new(Counted(Arc::clone(shared)));
    let (version, reader, options) = (greeted.version, greeted.reader, &shared.options);
    let link = Link::new(id, from, remote, greeted.shown, version, stream, reader, counted, options);
    account.links.insert(link.id(), Arc::clone(&link));
    drop(account);
    shared.acceptor.opened(&link);
    link.serve();
}

/// The acceptor, for a link that is to be taken off the account when it is down.
struct Counted(Arc<Shared>);

impl Handler for Counted {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        self.0.acceptor.frame(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        self.0.acceptor.closed(link, why);
        self.0.lock().links.remove(&link.id());
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_ends_late_leaves_that_of_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let address = Address::Unix { path: path.clone() };
        let first = bind_unix(&address, &path, 0o600).unwrap();
        first.close_to_all();
        let second = bind_unix(&address, &path, 0o600).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }
}
