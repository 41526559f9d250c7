//! The portmapper (RFC 1833, version 2), over TCP and UDP: tells clients that ask at port 111 where NFS and MOUNT are. Tells of this
//! server alone, and takes no registrations.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;

use crate::export::Rule;
use crate::rpc::{self, Refusal};
use crate::xdr::Writer;
use crate::{mountd, proc};

const PROGRAM: u32 = 100_000;
/// Its usual port.
pub const PORT: u16 = 111;
const VERSION: u32 = 2;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// Longest call, in bytes: credentials and four numbers.
const CALL_BYTES_MAX: usize = 1024;
/// Most TCP connections at a time; one more is closed.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(5);
/// How often the threads look whether they are to end.
const LOOK: Duration = Duration::from_millis(200);

/// What is told, and to whom.
struct Map {
    /// Program, version, protocol, port.
    entries: Vec<[u32; 4]>,
    rules: Vec<Rule>,
    connections: AtomicUsize,
    over: AtomicBool,
}

/// A portmapper that runs until it is dropped.
pub(crate) struct Portmap(Arc<Map>);

impl Drop for Portmap {
    fn drop(&mut self) {
        self.0.over.store(true, SeqCst);
    }
}

/// Answers at an address for a server at a port. The error is a sentence for the user.
pub(crate) fn start(
    at: SocketAddr,
    nfs_port: u16,
    rules: Vec<Rule>,
) -> Result<(Portmap, SocketAddr), String> {
    let failed = |why: std::io::Error| {
        format!(
            "A portmapper cannot be had at {at}: {why}.\nWithout --portmap, clients mount with port= and mountport=. If \
             rpcbind runs, stop it first."
        )
    };
    let tcp = TcpListener::bind(at).map_err(failed)?;
    let at = tcp.local_addr().map_err(failed)?;
    let udp = UdpSocket::bind(at).map_err(failed)?;
    tcp.set_nonblocking(true).map_err(failed)?;
    udp.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let (own, nfs) = (u32::from(at.port()), u32::from(nfs_port));
    let entries = vec![
        [PROGRAM, VERSION, TCP, own],
        [PROGRAM, VERSION, UDP, own],
        [proc::PROGRAM, 3, TCP, nfs],
        [mountd::PROGRAM, 1, TCP, nfs],
        [mountd::PROGRAM, 3, TCP, nfs],
    ];
    let (connections, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let map = Arc::new(Map { entries, rules, connections, over });
    let portmap = Portmap(Arc::clone(&map));
    let other = Arc::clone(&map);
    spawn(move || other.serve_udp(&udp)).map_err(failed)?;
    spawn(move || map.serve_tcp(&tcp)).map_err(failed)?;
    Ok((portmap, at))
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("atoll-portmap".into()).spawn(work).map(|_| ())
}

impl Map {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn serves(&self, client: IpAddr) -> bool {
        self.rules.iter().any(|rule| rule.is_for(client))
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; CALL_BYTES_MAX];
        while !self.is_over() {
            match socket.recv_from(&mut buffer) {
                Ok((len, client)) if self.serves(client.ip()) => {
                    if let Some(reply) = self.answer(&buffer[..len]) {
                        // Whoever gets no answer asks again. The first word is TCP's record mark.
                        let _ = socket.send_to(&reply.0[4..], client);
                    }
                }
                // Nobody in particular, or nothing yet.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn serve_tcp(self: &Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            let Ok((stream, client)) = listener.accept() else {
                std::thread::sleep(LOOK);
                continue;
            };
            if !self.serves(client.ip()) || self.connections.load(SeqCst) >= CONNECTIONS_MAX {
                continue;
            }
            self.connections.fetch_add(1, SeqCst);
            let mine = Arc::clone(self);
            let spawned = spawn(move || {
                mine.converse(stream);
                mine.connections.fetch_sub(1, SeqCst);
            });
            if spawned.is_err() {
                self.connections.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Answers the calls of a connection until it ends, says nothing, or says what is no call.
    fn converse(&self, mut stream: TcpStream) {
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(SILENCE)));
        if ready.and_then(|()| stream.set_write_timeout(Some(SILENCE))).is_err() {
            return;
        }
        let mut mark = [0; 4];
        while !self.is_over() && stream.read_exact(&mut mark).is_ok() {
            let mark = u32::from_be_bytes(mark);
            let len = (mark & !(1 << 31)) as usize;
            if mark >> 31 == 0 || len > CALL_BYTES_MAX {
                return;
            }
            let mut call = vec![0; len];
            if stream.read_exact(&mut call).is_err() {
                return;
            }
            let Some(mut reply) = self.answer(&call) else { return };
            let mark = (reply.0.len() - 4) as u32 | 1 << 31;
            reply.0[..4].copy_from_slice(&mark.to_be_bytes());
            if stream.write_all(&reply.0).is_err() {
                return;
            }
        }
    }

    /// The reply, with room for a record mark before it. None if this is no call.
    fn answer(&self, call: &[u8]) -> Option<Writer> {
        let mut head = rpc::read_head(Bytes::copy_from_slice(call)).ok()?;
        let refuse = |why| Some(rpc::refuse(head.xid, why));
        if head.rpc_version != 2 {
            return refuse(Refusal::RpcMismatch);
        }
        if head.program != PROGRAM {
            return refuse(Refusal::ProgUnavail);
        }
        if head.version != VERSION {
            return refuse(Refusal::ProgMismatch(VERSION, VERSION));
        }
        let mut w = rpc::reply(head.xid);
        match head.procedure {
            0 => {}
            3 => {
                let (Ok(program), Ok(version), Ok(protocol), Ok(_)) =
                    (head.args.u32(), head.args.u32(), head.args.u32(), head.args.u32())
                else {
                    return refuse(Refusal::GarbageArgs);
                };
                let asked = [program, version, protocol];
                let found = self.entries.iter().find(|entry| entry[..3] == asked);
                w.u32(found.map_or(0, |entry| entry[3]));
            }
            4 => {
                for entry in &self.entries {
                    w.flag(true);
                    entry.iter().for_each(|word| _ = w.u32(*word));
                }
                w.flag(false);
            }
            _ => return refuse(Refusal::ProcUnavail),
        }
        Some(w)
    }
}
