//! Asks a site of a volume to be let in.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_rpc::Address;

use crate::greeting::{JoinAsk, Joined, LinkFrame, Purpose, VERSION};
use crate::key::SiteKey;
use crate::lane::{Lane, LaneError};
use crate::tls::SiteTls;

/// How long connecting to one address, and greeting there, may take.
pub(crate) const GREETING: Duration = Duration::from_secs(10);

/// Why a site was not let in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The other site says no.
    #[error("{0}")]
    Refused(String),
    /// It cannot be reached at any of its addresses.
    #[error("{0}")]
    NotReached(String),
}

/// Connects to an address, within a time.
pub(crate) fn dial(address: &str, until: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for at in address.to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&at, left) {
            Ok(stream) => return Ok(stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Asks to be let in at one of these addresses, where a site with the key of this digest is.
pub fn join(
    key: &Arc<SiteKey>,
    addresses: &[Address],
    digest: [u8; 32],
    ask: &JoinAsk,
) -> Result<Joined, JoinError> {
    let tls = SiteTls::new(Arc::clone(key)).map_err(|why| JoinError::NotReached(why.to_string()))?;
    let mut failed = Vec::new();
    for address in addresses {
        match join_at(&tls, &address.to_string(), digest, ask) {
            Ok(joined) => return Ok(joined),
            Err(LaneError::Refused(why)) => return Err(JoinError::Refused(why)),
            Err(why) => failed.push(format!("{address}: {why}")),
        }
    }
    Err(JoinError::NotReached(failed.join("; ")))
}

fn join_at(tls: &SiteTls, address: &str, digest: [u8; 32], ask: &JoinAsk) -> Result<Joined, LaneError> {
    let until = Instant::now() + GREETING;
    let stream = dial(address, until)?;
    let (mut lane, _) = Lane::begin(stream, tls.connect(digest)?, until)?;
    lane.say(&LinkFrame::Greet { version: VERSION, purpose: Purpose::Join { ask: ask.clone() } }, until)?;
    match lane.hear(until)? {
        LinkFrame::Joined { joined } => Ok(joined),
        LinkFrame::Refused { why } => Err(LaneError::Refused(why)),
        _ => Err(LaneError::Closed),
    }
}
