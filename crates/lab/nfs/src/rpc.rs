//! ONC RPC over TCP: calls with AUTH_SYS, record marking, several connections, reconnecting. Knows no program.
//!
//! A call that got no answer is sent again with the same bytes on a new connection, as a hard mount does it. So a
//! server that keeps its answers tells the same one twice.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_posix::Caller;
use nfs3_types::rpc::{
    accept_stat_data, auth_unix, call_body, fragment_header, msg_body, opaque_auth, rejected_reply,
    reply_body, rpc_msg,
};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

/// Most supplementary groups in a call: more do not fit into AUTH_SYS.
pub const GROUPS_MAX: usize = 16;

/// Most bytes of a reply. A server that announces more has lost its place.
pub const REPLY_BYTES_MAX: usize = 4 << 20;

/// Without an answer for so long, a call is sent again on a new connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Between two attempts to connect.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says what the variant means")]
pub enum RpcError {
    #[error("no answer: {0}")]
    Io(#[from] io::Error),
    #[error("the answer cannot be understood: {0}")]
    Malformed(String),
    #[error("the server refuses the call: {0}")]
    Refused(String),
}

/// A server's address, and the connections to it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    patience: Duration,
    most: usize,
    state: Mutex<Links>,
    freed: Condvar,
    xid: AtomicU32,
}

#[derive(Debug, Default)]
struct Links {
    idle: Vec<TcpStream>,
    /// Idle ones and those in use.
    count: usize,
}

/// Which procedure is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// The program, such as 100003.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure in it.
    pub number: u32,
}

impl Server {
    /// A server that is called over at most so many connections. A call fails when it got no answer for
    /// `patience`. Connects with the first call.
    pub fn new(address: SocketAddr, connections: usize, patience: Duration) -> Self {
        // Anywhere: a server takes calls of one address that have the same number and bytes for one call, so the numbers of two mounts
        // must lie far apart, as those of two kernels do.
        let xid = AtomicU32::new(RandomState::new().hash_one(Instant::now()) as u32);
        let (state, freed) = (Mutex::default(), Condvar::new());
        Self { address, patience, most: connections.max(1), state, freed, xid }
    }

    /// Its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long a call may take.
    pub const fn patience(&self) -> Duration {
        self.patience
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a procedure as `caller`, and waits for its result.
    ///
    /// # Errors
    ///
    /// [`RpcError`]: nobody answered in time, or not with a result of this type.
    pub fn call<A: Pack, R: Unpack>(&self, of: Procedure, caller: &Caller, args: &A) -> Result<R, RpcError> {
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        let record = record(xid, of, caller, args)?;
        let reply = self.exchange(xid, &record)?;
        result(xid, &reply)
    }

    /// Sends a record until somebody answers it.
    fn exchange(&self, xid: u32, record: &[u8]) -> Result<Vec<u8>, RpcError> {
        let until = Instant::now() + self.patience;
        let mut link = self.take();
        loop {
            let answer = link.take().map_or_else(|| self.connect(), Ok).and_then(|mut stream| {
                let reply = ask(&mut stream, xid, record)?;
                Ok((stream, reply))
            });
            match answer {
                Ok((stream, reply)) => {
                    self.give_back(Some(stream));
                    return Ok(reply);
                }
                Err(why) if Instant::now() >= until => {
                    self.give_back(None);
                    return Err(why.into());
                }
                Err(_) => sleep(RECONNECT_AFTER),
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, ANSWER_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(stream)
    }

    /// An idle connection, or the right to make one (none).
    fn take(&self) -> Option<TcpStream> {
        let mut links = self.lock();
        loop {
            if let Some(stream) = links.idle.pop() {
                return Some(stream);
            }
            if links.count < self.most {
                links.count += 1;
                return None;
            }
            links = self.freed.wait(links).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, stream: Option<TcpStream>) {
        let mut links = self.lock();
        match stream {
            Some(stream) => links.idle.push(stream),
            None => links.count -= 1,
        }
        drop(links);
        self.freed.notify_one();
    }
}

/// AUTH_SYS of this caller.
fn credentials(caller: &Caller) -> opaque_auth<'static> {
    let groups = caller.groups.iter().flatten().copied().take(GROUPS_MAX).collect();
    opaque_auth::auth_unix(&auth_unix {
        stamp: 0,
        machinename: Opaque::borrowed(b"atoll-lab"),
        uid: caller.uid,
        gid: caller.gid,
        gids: groups,
    })
}

fn malformed(why: impl std::fmt::Debug) -> RpcError {
    RpcError::Malformed(format!("{why:?}"))
}

/// A call as one record: its header and its bytes.
fn record(xid: u32, of: Procedure, caller: &Caller, args: &impl Pack) -> Result<Vec<u8>, RpcError> {
    let body = call_body {
        rpcvers: nfs3_types::rpc::RPC_VERSION_2,
        prog: of.program,
        vers: of.version,
        proc: of.number,
        cred: credentials(caller),
        verf: opaque_auth::default(),
    };
    let message = rpc_msg { xid, body: msg_body::CALL(body) };
    let bytes = message.packed_size() + args.packed_size();
    let mut out = Vec::with_capacity(4 + bytes);
    fragment_header::new(bytes as u32, true).pack(&mut out).map_err(malformed)?;
    message.pack(&mut out).map_err(malformed)?;
    args.pack(&mut out).map_err(malformed)?;
    Ok(out)
}

/// Sends one record and reads records until the one with this xid. Others answer calls that were given up.
fn ask(stream: &mut TcpStream, xid: u32, record: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(record)?;
    loop {
        let reply = read_record(stream)?;
        if reply.get(..4) == Some(&xid.to_be_bytes()) {
            return Ok(reply);
        }
    }
}

/// One record of one or more fragments.
fn read_record(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut header = [0; 4];
        from.read_exact(&mut header)?;
        let header = fragment_header::from(header);
        let (at, more) = (record.len(), header.fragment_length() as usize);
        if at + more > REPLY_BYTES_MAX {
            return Err(io::Error::other(format!("a reply of {} bytes", at + more)));
        }
        record.resize(at + more, 0);
        from.read_exact(&mut record[at..])?;
        if header.eof() {
            return Ok(record);
        }
    }
}

/// The result in a reply. Everything in the reply must belong to it.
fn result<R: Unpack>(xid: u32, reply: &[u8]) -> Result<R, RpcError> {
    let mut rest = Cursor::new(reply);
    let (message, _) = rpc_msg::unpack(&mut rest).map_err(malformed)?;
    let refused = |why: String| Err(RpcError::Refused(why));
    match message.body {
        _ if message.xid != xid => return Err(malformed("another call's answer")),
        msg_body::CALL(_) => return Err(malformed("a call")),
        msg_body::REPLY(reply_body::MSG_DENIED(rejected_reply::AUTH_ERROR(why))) => {
            return refused(why.to_string());
        }
        msg_body::REPLY(reply_body::MSG_DENIED(why)) => return refused(format!("{why:?}")),
        msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted)) => match accepted.reply_data {
            accept_stat_data::SUCCESS => {}
            other => return refused(format!("{other:?}")),
        },
    }
    let (result, _) = R::unpack(&mut rest).map_err(malformed)?;
    match reply.len() - rest.position() as usize {
        0 => Ok(result),
        left => Err(malformed(format!("{left} bytes behind the result"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs3_types::xdr_codec::Void;

    const NULL: Procedure = Procedure { program: 100_003, version: 3, number: 0 };

    #[test]
    fn a_record_of_several_fragments_is_one() {
        let bytes = [&[0, 0, 0, 2, 1, 2][..], &[0, 0, 0, 0], &[0x80, 0, 0, 1, 3, 9]].concat();
        assert_eq!(read_record(&mut &bytes[..]).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_before_it_is_read() {
        assert!(read_record(&mut &[0xff, 0xff, 0xff, 0xff][..]).is_err());
    }

    #[test]
    fn a_call_carries_sixteen_groups_at_most() {
        let caller = Caller { uid: 1, gid: 2, groups: Some((0..40).collect()) };
        let few = Caller { groups: Some((0..16).collect()), ..caller.clone() };
        let [many, few] = [caller, few].map(|caller| record(1, NULL, &caller, &Void).unwrap());
        assert_eq!(many, few);
    }

    #[test]
    fn bytes_behind_a_result_are_told() {
        let reply = |more: &[u8]| [&7u32.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], more].concat();
        assert!(result::<Void>(7, &reply(&[])).is_ok());
        let why = result::<Void>(7, &reply(&[0; 4])).map(drop).unwrap_err().to_string();
        assert!(why.contains("4 bytes behind the result"), "{why}");
        assert!(result::<Void>(8, &reply(&[])).is_err());
    }
}
