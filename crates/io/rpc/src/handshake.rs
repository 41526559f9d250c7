//! The handshake of two sides: `Hello`, then `HelloOk` or `Goodbye`.
//!
//! It is bounded in time and bytes, because nothing is known yet of the other side. It does not decide who is
//! let in. It runs on any stream; between machines TLS comes first, and says
//! whom the other side may claim to be.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use atoll_core::{Decode, Encode, IslandId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::FrameKind;
use crate::address::Address;
use crate::frame::{Frame, FrameReader};
use crate::header::{FrameError, VERSION_HIGHEST, encode_head};
use crate::hello::{ClusterId, DaemonId, Goodbye, Hello, HelloOk, Reason, Role, Versions, versions_of};
use crate::listener::Acceptor;
use crate::security::{Peer, Security, Shown, explain};
use crate::stream::Stream;
use crate::tls::ShakeError;

/// What a program without a certificate is told.
const WANTS_TLS: &str = "it wants TLS, and this program has no credentials.\n\
    Name the file that \"atoll client add\" has made: --credentials FILE.";

/// How long connecting to the target of a relay, and greeting it, may take. The target was reached a moment
/// ago.
const ONWARD_TIME_MAX: Duration = Duration::from_secs(2);

/// Why a connection to an address failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The host's name means nothing here.
    #[error(
        "{address} cannot be reached: the name is unknown ({why}).\nCheck the spelling, DNS, or /etc/hosts."
    )]
    UnknownHost {
        /// The address.
        address: Address,
        /// The resolver's error.
        why: String,
    },
    /// The connection could not be made.
    #[error(
        "{address} cannot be reached: {why}.\n\
        Is the daemon running there, and may this machine reach the port?"
    )]
    Unreachable {
        /// The address.
        address: Address,
        /// The system's error.
        why: String,
    },
    /// Nothing came in time.
    #[error(
        "{address} did not answer within {ms} ms.\nIs the machine up, and may this machine reach the port?"
    )]
    TimedOut {
        /// The address.
        address: Address,
        /// Time waited, in milliseconds.
        ms: u128,
    },
    /// Something else listens there.
    #[error("{address} is no Atoll daemon: {why}.\nCheck the port.")]
    NotAtoll {
        /// The address.
        address: Address,
        /// The reason.
        why: FrameError,
    },
    /// One of the two sides does not trust the other.
    #[error("{address} cannot be used: {why}")]
    NotTrusted {
        /// The address.
        address: Address,
        /// The reason, and the next step.
        why: String,
    },
    /// No protocol version in common.
    #[error(
        "{address} speaks protocol versions {theirs}, this program speaks {ours}.\n\
        Update the older one of the two."
    )]
    Version {
        /// The address.
        address: Address,
        /// Versions of this side.
        ours: Versions,
        /// Versions of the other side.
        theirs: Versions,
    },
    /// Another cluster's daemon listens there.
    #[error("{address} belongs to cluster {theirs}, not to {expected}.\nCheck the address.")]
    WrongCluster {
        /// The address.
        address: Address,
        /// The cluster that was expected.
        expected: ClusterId,
        /// The cluster that was found.
        theirs: ClusterId,
    },
    /// The daemon answered and refused.
    #[error("{address} refused the connection: {goodbye}.")]
    Refused {
        /// The address.
        address: Address,
        /// Its reason.
        goodbye: Goodbye,
    },
    /// The connection was asked to stop meanwhile.
    #[error("connecting to {address} was given up.")]
    GivenUp {
        /// The address.
        address: Address,
    },
}

impl ConnectError {
    /// Trying again soon cannot help: first somebody has to change something.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NotAtoll { .. }
            | Self::Version { .. }
            | Self::WrongCluster { .. }
            | Self::NotTrusted { .. } => true,
            Self::Refused { goodbye, .. } => !matches!(goodbye.reason, Reason::Full | Reason::Stopping),
            _ => false,
        }
    }
}

/// Why the greeting failed, without the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("nothing came in time")]
    TimedOut,
    #[error("the connection was closed")]
    Ended,
    #[error("{0}")]
    Io(Errno),
    #[error("{0}")]
    Lied(FrameError),
    #[error("it was refused: {0}")]
    Refused(Goodbye),
    /// TLS failed, for this reason.
    #[error("{0}")]
    NotTrusted(String),
}

impl GreetError {
    /// A relay was asked to connect to a node that it cannot reach.
    pub(crate) fn is_asked_in_vain(&self) -> bool {
        matches!(self, Self::Refused(goodbye) if goodbye.reason == Reason::NotReached)
    }
}

impl From<Errno> for GreetError {
    fn from(e: Errno) -> Self {
        match e {
            Errno::CONNRESET | Errno::PIPE => Self::Ended,
            e => Self::Io(e),
        }
    }
}

/// A greeted stream.
pub(crate) struct Greeted<T> {
    /// Whom its certificate names, if the stream is encrypted.
    pub(crate) shown: Option<Shown>,
    pub(crate) remote: T,
    pub(crate) version: u16,
    pub(crate) reader: FrameReader,
}

/// A relay, and the request that it gets.
pub(crate) struct Through<'a> {
    pub(crate) relay: &'a Address,
    pub(crate) greeting: Hello,
}

/// Connects and greets, perhaps through a relay.
pub(crate) fn connect(
    address: &Address,
    through: Option<&Through<'_>>,
    hello: &Hello,
    security: Option<&Security>,
    expects: Option<DaemonId>,
    time_max: Duration,
) -> Result<(Stream, Greeted<HelloOk>), ConnectError> {
    let Some(Through { relay, greeting }) = through else {
        let mut stream = connect_stream(address, time_max)?;
        let greeted = greet_as(address, &mut stream, hello, security, expects, time_max)?;
        return Ok((stream, greeted));
    };
    let mut stream = connect_stream(relay, time_max)?;
    let passed_on = greet_as(relay, &mut stream, greeting, security, None, time_max)?;
    if !passed_on.reader.is_between_frames() || !stream.bare() {
        // The node itself says nothing before it is greeted.
        let why = FrameError::Unexpected { kind: FrameKind::HelloOk };
        return Err(ConnectError::NotAtoll { address: (*relay).clone(), why });
    }
    stream.set_relayed();
    let greeted = greet_as(address, &mut stream, hello, security, expects, time_max)?;
    Ok((stream, greeted))
}

/// Greets. An error names the address.
fn greet_as(
    address: &Address,
    stream: &mut Stream,
    hello: &Hello,
    security: Option<&Security>,
    expects: Option<DaemonId>,
    time_max: Duration,
) -> Result<Greeted<HelloOk>, ConnectError> {
    let address = address.clone();
    let deadline = Instant::now() + time_max;
    let greeted = secure(stream, security, false, deadline).and_then(|shown| {
        let greeted = greet(stream, hello, shown, deadline);
        match (&greeted, stream.tls_failure()) {
            // The other side looks at this one's certificate when this side's handshake is done already.
            (Err(_), Some(why)) => Err(GreetError::NotTrusted(explain(why, false))),
            _ => greeted,
        }
    });
    let greeted = greeted.map_err(|e| match e {
        GreetError::NotTrusted(why) => ConnectError::NotTrusted { address: address.clone(), why },
        GreetError::Lied(FrameError::Encrypted) => {
            ConnectError::NotTrusted { address: address.clone(), why: WANTS_TLS.to_owned() }
        }
        GreetError::TimedOut => ConnectError::TimedOut { address: address.clone(), ms: time_max.as_millis() },
        GreetError::Ended | GreetError::Io(_) => {
            ConnectError::Unreachable { address: address.clone(), why: e.to_string() }
        }
        GreetError::Lied(why) => ConnectError::NotAtoll { address: address.clone(), why },
        GreetError::Refused(goodbye) => match goodbye.reason {
            Reason::Version { ours: theirs } => {
                ConnectError::Version { address: address.clone(), ours: hello.versions, theirs }
            }
            Reason::WrongCluster { cluster: theirs } => ConnectError::WrongCluster {
                address: address.clone(),
                expected: hello.cluster.unwrap_or_default(),
                theirs,
            },
            _ => ConnectError::Refused { address: address.clone(), goodbye },
        },
    })?;
    match hello.cluster {
        Some(expected) if expected != greeted.remote.cluster => {
            Err(ConnectError::WrongCluster { address, expected, theirs: greeted.remote.cluster })
        }
        // Whoever relies on which node it is, relies on its certificate.
        _ if greeted.shown.is_some_and(|shown| shown.peer != Peer::Node(greeted.remote.daemon)) => {
            let why = "it says that it is another node than its certificate does.".to_owned();
            Err(ConnectError::NotTrusted { address, why })
        }
        _ if expects
            .is_some_and(|node| greeted.shown.is_some_and(|shown| shown.peer != Peer::Node(node))) =>
        {
            let why =
                "another node of the cluster is at this address.\nCheck which machine has it.".to_owned();
            Err(ConnectError::NotTrusted { address, why })
        }
        _ if greeted.shown.is_some_and(|shown| !security.is_some_and(|own| own.may_be(&shown))) => {
            let why = "it is no node of the cluster: it was removed, or joined a moment ago.\n\"atoll node list\" shows those that there are."
                .to_owned();
            Err(ConnectError::NotTrusted { address, why })
        }
        _ => Ok(greeted),
    }
}

/// Begins TLS on a stream, if there are certificates.
fn secure(
    stream: &mut Stream,
    security: Option<&Security>,
    accepts: bool,
    deadline: Instant,
) -> Result<Option<Shown>, GreetError> {
    stream.secure(security, accepts, deadline).map_err(|why| match why {
        ShakeError::TimedOut => GreetError::TimedOut,
        ShakeError::Ended => GreetError::Ended,
        ShakeError::Io(e) => GreetError::from(e),
        ShakeError::Tls(why) => GreetError::NotTrusted(explain(&why, accepts)),
    })
}

fn connect_stream(address: &Address, time_max: Duration) -> Result<Stream, ConnectError> {
    let unreachable = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => {
            ConnectError::TimedOut { address: address.clone(), ms: time_max.as_millis() }
        }
        _ => ConnectError::Unreachable { address: address.clone(), why: plain(&e) },
    };
    let (host, port) = match address {
        Address::Tcp { host, port } => (host.as_str(), *port),
        Address::Unix { path } => {
            return connect_unix(path, time_max).map_err(|e| unreachable(e.into()));
        }
    };
    let unknown = |why: String| ConnectError::UnknownHost { address: address.clone(), why };
    let mut last = unknown("it has no address".to_owned());
    for found in (host, port).to_socket_addrs().map_err(|e| unknown(plain(&e)))? {
        match TcpStream::connect_timeout(&found, time_max) {
            Ok(stream) => return Stream::tcp(OwnedFd::from(stream)).map_err(|e| unreachable(e.into())),
            Err(e) => last = unreachable(e),
        }
    }
    Err(last)
}

fn connect_unix(path: &std::path::Path, time_max: Duration) -> Result<Stream, Errno> {
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A listener whose queue is full makes connect wait.
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(time_max))?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, None)?;
    Ok(Stream::unix(fd))
}

/// An error of the system without its number behind it.
pub(crate) fn plain(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.split_once(" (os error") {
        Some((front, _)) => front.to_owned(),
        None => text,
    }
}

/// Greets as the side that connected.
fn greet(
    stream: &Stream,
    hello: &Hello,
    shown: Option<Shown>,
    deadline: Instant,
) -> Result<Greeted<HelloOk>, GreetError> {
    write(stream, FrameKind::Hello, hello, deadline)?;
    let mut reader = FrameReader::new(stream.needs_checks());
    let frame = read(stream, &mut reader, deadline)?;
    match frame.kind {
        FrameKind::HelloOk => {}
        FrameKind::Goodbye => return Err(GreetError::Refused(decode(&frame)?)),
        kind => return Err(GreetError::Lied(FrameError::Unexpected { kind })),
    }
    let ok: HelloOk = decode(&frame)?;
    if hello.versions.common(Versions { lowest: ok.version, highest: ok.version }).is_none() {
        return Err(GreetError::Lied(FrameError::Version { theirs: ok.version }));
    }
    reader.agree(ok.version);
    Ok(Greeted { shown, version: ok.version, remote: ok, reader })
}

/// The result of an accepted connection.
pub(crate) enum Welcomed {
    /// A link.
    Link(Box<Greeted<Hello>>),
    /// The bytes of the connection, whose other side has shown this, must be passed on over this connection, and back.
    Relay(Stream, Option<Shown>),
}

/// Greets as the side that accepted. `may_relay`: there is room for a connection of somebody that is passed on.
pub(crate) fn welcome(
    stream: &mut Stream,
    acceptor: &dyn Acceptor,
    security: Option<&Security>,
    may_relay: &dyn Fn(Option<Peer>) -> bool,
    deadline: Instant,
) -> Result<Welcomed, GreetError> {
    let result = welcome_silently(stream, acceptor, security, may_relay, deadline);
    let goodbye = match &result {
        Ok(_) | Err(GreetError::Ended | GreetError::Io(_) | GreetError::NotTrusted(_)) => return result,
        Err(GreetError::Refused(goodbye)) => goodbye.clone(),
        Err(GreetError::TimedOut) => Goodbye::new(Reason::TooSlow, ""),
        // Something that is not Atoll would not understand.
        Err(GreetError::Lied(FrameError::NotAtoll)) => return result,
        Err(GreetError::Lied(e)) => Goodbye::new(Reason::Malformed, e.to_string()),
    };
    refuse(stream, security, &goodbye);
    result
}

fn welcome_silently(
    stream: &mut Stream,
    acceptor: &dyn Acceptor,
    security: Option<&Security>,
    may_relay: &dyn Fn(Option<Peer>) -> bool,
    deadline: Instant,
) -> Result<Welcomed, GreetError> {
    let refused = |reason, text: &str| GreetError::Refused(Goodbye::new(reason, text));
    let mut shown = secure(stream, security, true, deadline)?;
    let mut reader = FrameReader::new(stream.needs_checks());
    loop {
        let (hello, version) = read_hello(stream, &mut reader, deadline)?;
        if !shown.is_none_or(|shown| may_claim(shown.peer, &hello.role)) {
            return Err(refused(Reason::NotAllowed, "its certificate names somebody else"));
        }
        acceptor.admit(shown.as_ref(), &hello).map_err(GreetError::Refused)?;
        let mut ok = acceptor.welcome(&hello).map_err(GreetError::Refused)?;
        ok.version = version;
        if let Some(expected) = hello.cluster
            && expected != ok.cluster
        {
            return Err(refused(Reason::WrongCluster { cluster: ok.cluster }, ""));
        }
        let is_about_relays = matches!(hello.role, Role::Relay { .. } | Role::Relayed { .. });
        if is_about_relays && (stream.is_relayed() || stream.is_unix()) {
            // Twice would be a loop; and what comes over a Unix socket may have no checksums.
            return Err(refused(Reason::NotAllowed, "it is passed on once, and between TCP addresses"));
        }
        match &hello.role {
            Role::Relay { volume, to } => {
                if !may_relay(shown.map(|shown| shown.peer)) {
                    return Err(refused(Reason::Full, "too many connections are passed on"));
                }
                let onward = acceptor.onward(*volume, *to).map_err(GreetError::Refused)?;
                let there = connect(&onward.address, None, &onward.greeting, security, None, ONWARD_TIME_MAX);
                let (mut there, greeted) =
                    there.map_err(|why| refused(Reason::NotReached, &why.to_string()))?;
                if there.is_unix() || !greeted.reader.is_between_frames() || !reader.is_between_frames() {
                    return Err(refused(Reason::NotReached, "it cannot be passed on"));
                }
                write(stream, FrameKind::HelloOk, &ok, deadline)?;
                // The two ends encrypt what is passed on.
                if !stream.bare() || !there.bare() {
                    return Err(GreetError::Lied(FrameError::Unexpected { kind: FrameKind::Hello }));
                }
                return Ok(Welcomed::Relay(there, shown));
            }
            Role::Relayed { .. } => {
                write(stream, FrameKind::HelloOk, &ok, deadline)?;
                stream.set_relayed();
                if security.is_some() {
                    if !reader.is_between_frames() || !stream.bare() {
                        return Err(GreetError::Lied(FrameError::Unexpected { kind: FrameKind::Hello }));
                    }
                    shown = secure(stream, security, true, deadline)?;
                }
            }
            Role::Tool if stream.is_relayed() => {
                return Err(refused(Reason::NotAllowed, "tools ask directly"));
            }
            Role::Tool | Role::Client { .. } | Role::Node { .. } => {
                write(stream, FrameKind::HelloOk, &ok, deadline)?;
                reader.agree(version);
                return Ok(Welcomed::Link(Box::new(Greeted { remote: hello, shown, version, reader })));
            }
        }
    }
}

/// Whether a process with this certificate may have this role.
fn may_claim(peer: Peer, role: &Role) -> bool {
    match role {
        Role::Node { daemon, .. } => peer == Peer::Node(*daemon),
        Role::Relayed { .. } => matches!(peer, Peer::Node(_)),
        Role::Tool => true,
        Role::Client { .. } | Role::Relay { .. } => !matches!(peer, Peer::Guest(_)),
    }
}

/// A greeting, and the version that both sides speak.
fn read_hello(
    stream: &Stream,
    reader: &mut FrameReader,
    deadline: Instant,
) -> Result<(Hello, u16), GreetError> {
    let frame = read(stream, reader, deadline)?;
    if frame.kind != FrameKind::Hello {
        return Err(GreetError::Lied(FrameError::Unexpected { kind: frame.kind }));
    }
    // Before anything else: a newer greeting may not be readable.
    let theirs = versions_of(&frame.meta).map_err(|e| GreetError::Lied(e.into()))?;
    let Some(version) = Versions::OURS.common(theirs) else {
        return Err(GreetError::Refused(Goodbye::new(Reason::Version { ours: Versions::OURS }, "")));
    };
    Ok((decode(&frame)?, version))
}

/// Says goodbye to a side that is not let in, if that is possible at once. Whoever has shown no certificate where one is
/// wanted is told nothing.
pub(crate) fn refuse(stream: &Stream, security: Option<&Security>, goodbye: &Goodbye) {
    if security.is_some() && stream.needs_checks() {
        return stream.shutdown();
    }
    let _ = write(stream, FrameKind::Goodbye, goodbye, Instant::now());
    stream.shutdown();
    stream.drain();
}

fn decode<T: Decode>(frame: &Frame) -> Result<T, GreetError> {
    frame.decode().map_err(|e| GreetError::Lied(e.into()))
}

fn write(stream: &Stream, kind: FrameKind, meta: &impl Encode, deadline: Instant) -> Result<(), GreetError> {
    let mut bytes = Vec::with_capacity(256);
    encode_head(VERSION_HIGHEST, kind, IslandId(0), 0, meta, &[], false, &mut bytes)
        .map_err(GreetError::Lied)?;
    let mut rest = &bytes[..];
    while !rest.is_empty() || stream.has_unsent() {
        match stream.send_some(rest, &[]) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::AGAIN) if stream.wait_writable(deadline)? => {}
            Err(Errno::AGAIN) => return Err(GreetError::TimedOut),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn read(stream: &Stream, reader: &mut FrameReader, deadline: Instant) -> Result<Frame, GreetError> {
    loop {
        if let Some(frame) = reader.next_frame().map_err(GreetError::Lied)? {
            return Ok(frame);
        }
        match stream.recv_until(reader.target(), deadline) {
            Ok(0) => return Err(GreetError::Ended),
            Ok(_) => {}
            Err(Errno::TIMEDOUT) => return Err(GreetError::TimedOut),
            Err(e) => return Err(e.into()),
        }
    }
}
