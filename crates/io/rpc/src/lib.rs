//! Frames and links between daemons, mounts and tools, over TCP and Unix sockets.
//!
//! A [`Link`] carries [`Frame`]s both ways; [`Listener`] takes connections, [`Outgoing`] makes and remakes
//! them. Nothing here knows what a message means, sends one twice or waits for a reply: the machines do that.
//! If a frame is lost with a link, the machine that needs it sends it again.
//!
//! Links are served by blocking threads and not by an async runtime. A link belongs to a process and not to a
//! request, so there are few links. Each has one thread that reads: it wakes when bytes arrive, and runs the
//! handler itself. A runtime would wake its poller first, and then the task. On a machine where a wake-up
//! costs more than the rest of a request, the second wake-up would be more than half of the cost. Before a
//! handler makes a slow call, the thread hands its reading role to another one ([`atoll_handover`]), so that
//! no frame waits behind a slow one.
//!
//! If a connection cannot be made directly, it is made through a relay, which passes on its bytes
//! (`docs/design/011-links.md`).
//!
//! Between machines a link is encrypted, if the process has a certificate ([`Security`]).
//!
//! The layout of frames is in `docs/FORMATS.md`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod address;
mod alive;
pub mod frame;
mod greetings;
mod handshake;
pub mod hello;
pub mod hostile;
pub mod link;
pub mod listener;
mod outbox;
pub mod outgoing;
mod pool;
mod relay;
mod security;
mod stream;
mod tls;

pub use address::{Address, AddressError};
pub use atoll_links::header;
pub use frame::{Frame, FrameReader};
pub use handshake::ConnectError;
pub use header::{FrameError, FrameKind, Header};
pub use hello::{ClusterId, DaemonId, Goodbye, Hello, HelloOk, Reason, Role, Versions};
pub use link::{Closed, Handler, Link, Options, Remote, SendError};
pub use listener::{Acceptor, Bound, ListenError, Listener};
pub use outgoing::{Outgoing, Relays};
pub use relay::Onward;
pub use security::{
    ANY_NODE, BadCredentials, Credentials, GUEST, Peer, Security, Shown, Trust, client_name, guest_number,
    node_name, sha256,
};
