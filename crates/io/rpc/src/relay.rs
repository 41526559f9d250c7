//! Passes on the bytes of two processes that cannot connect directly (`docs/design/011-links.md`).
//!
//! Knows bytes only: the acceptor decides which connections are passed on, and to which node. Keeps at most
//! one buffer for each direction, so a side that does not read stops the other one, as it would without a
//! relay.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::address::Address;
use crate::hello::Hello;
use crate::stream::Stream;

/// Most connections that one listener passes on at once. Each costs two threads.
pub(crate) const RELAYS_MAX: usize = 128;

/// Bytes that are passed on at once, in each direction.
const BUFFER_BYTES: usize = 128 * 1024;

/// The target of a connection that is passed on.
#[derive(Debug, Clone)]
pub struct Onward {
    /// The node's address.
    pub address: Address,
    /// The greeting which says that another process's greeting follows: the role is `Relayed`.
    pub greeting: Hello,
}

/// Two connections; each gets the bytes of the other.
#[derive(Debug)]
pub(crate) struct Relay {
    here: Stream,
    there: Stream,
    send_time_max: Duration,
}

impl Relay {
    pub(crate) fn new(here: Stream, there: Stream, send_time_max: Duration) -> Arc<Self> {
        Arc::new(Self { here, there, send_time_max })
    }

    /// Passes on until either side ends, or does not read in time. The two ends then notice it by themselves.
    pub(crate) fn run(self: &Arc<Self>) {
        let relay = Arc::clone(self);
        let back = thread::Builder::new().name("atoll-relay".into()).spawn(move || {
            relay.pass_on(&relay.there, &relay.here);
            relay.end();
        });
        match back {
            Ok(back) => {
                self.pass_on(&self.here, &self.there);
                self.end();
                // It ends, since both its connections have.
                let _ = back.join();
            }
            Err(e) => {
                tracing::warn!("no thread for a connection that is passed on: {e}");
                self.end();
            }
        }
    }

    /// Ends both connections.
    pub(crate) fn end(&self) {
        self.here.shutdown();
        self.there.shutdown();
    }

    fn pass_on(&self, from: &Stream, to: &Stream) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(n @ 1..) = from.recv_some(&mut buffer) {
            if self.send(to, &buffer[..n]).is_err() {
                return;
            }
        }
    }

    fn send(&self, to: &Stream, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match to.send_some(bytes, &[]) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::AGAIN) if to.wait_writable(Instant::now() + self.send_time_max)? => {}
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
