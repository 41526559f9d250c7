//! A server: one volume on one TCP port. Accepts connections, sorts calls by program.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use atoll_core::{Ino, Name, VolumePath};
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_vfs::{Files, Scope, Watcher};
use bytes::Bytes;

use crate::conn::{BUSY, Conn, InFlight, SHARED_BYTES_MAX};
use crate::drc::Cache;
use crate::export::{RULES_MAX, Rule};
use crate::groups::Groups;
use crate::handle::SigningKey;
use crate::known::Known;
use crate::portmap::{self, Portmap};
use crate::rpc::{self, Refusal};
use crate::{mountd, proc};

/// Most connections of a server.
const CONNECTIONS_MAX: usize = 128;
/// Most connections of one address.
const ADDRESS_CONNECTIONS_MAX: usize = 32;
/// How long the end of a server waits for calls under way.
const END: Duration = Duration::from_secs(5);

/// What a server shows.
#[derive(Debug, Clone)]
pub struct Served {
    /// The volume's id: the file-system id that clients see, and a part of each handle.
    pub id: u64,
    /// The number of the volume's kind, a part of each handle.
    pub kind: u8,
    /// The volume's name: clients mount `/NAME`.
    pub name: String,
    /// Signs handles.
    pub key: SigningKey,
    /// Who may use what. The first rule of a directory that is for an address counts.
    pub rules: Vec<Rule>,
    /// A number that no other server process of the volume has: the write verifier is made from it.
    pub start: u64,
}

/// A directory that is exported.
pub(crate) struct Export {
    pub(crate) path: VolumePath,
    /// What handles name it by.
    pub(crate) number: u32,
    pub(crate) root: Ino,
}

/// What all connections use.
pub(crate) struct Shared {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) served: Served,
    pub(crate) exports: Vec<Export>,
    pub(crate) known: Known,
    pub(crate) drc: Cache,
    pub(crate) groups: Groups,
    conns: Mutex<Vec<Weak<Conn>>>,
    borrowed: AtomicUsize,
    over: AtomicBool,
}

impl Shared {
    /// Takes bytes from what all connections share. False if there are not so many.
    pub(crate) fn borrow(&self, bytes: usize) -> bool {
        bytes == 0
            || self
                .borrowed
                .fetch_update(SeqCst, SeqCst, |now| Some(now + bytes).filter(|all| *all <= SHARED_BYTES_MAX))
                .is_ok()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.borrowed.fetch_sub(bytes, SeqCst);
    }

    fn conns(&self) -> Vec<Arc<Conn>> {
        let conns = self.conns.lock().expect("no holder of this lock panics");
        conns.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn ended(&self, conn: &Conn) {
        let mut conns = self.conns.lock().expect("no holder of this lock panics");
        conns.retain(|other| !std::ptr::eq(other.as_ptr(), conn));
    }

    /// The rule by which an address uses an export.
    pub(crate) fn rule(&self, export: &Export, peer: SocketAddr) -> Option<&Rule> {
        let rules = self.served.rules.iter().filter(|rule| rule.path == export.path);
        let address = peer.ip();
        rules
            .into_iter()
            .find(|rule| rule.is_for(address))
            .filter(|r| r.access.takes_port(address, peer.port()))
    }

    /// What the write verifier of a file is made from: this server's part, and that of the file's home.
    pub(crate) fn epoch(&self, ino: Ino) -> [u64; 2] {
        [self.known.epoch(), self.files.losses(ino)]
    }

    /// The write verifier.
    pub(crate) fn verifier(&self, epoch: [u64; 2]) -> u64 {
        let [own, home] = epoch.map(u64::to_le_bytes);
        self.served.key.sign(&[&b"verf"[..], &own, &home].concat())
    }

    /// Walks from the volume's root, as the superuser. Links are not followed.
    pub(crate) fn walk(&self, path: &[Name]) -> Option<Ino> {
        walk(&*self.files, path)
    }
}

fn walk(files: &dyn Files, path: &[Name]) -> Option<Ino> {
    let mut ino = Ino::ROOT;
    for name in path {
        let op = Op::Lookup { dir: ino, name: name.clone() };
        match atoll_vfs::call(files, &Caller::ROOT, op, Bytes::new()) {
            Ok((Answer::Found { found }, _)) if found.attr.kind == Kind::Directory => ino = found.attr.ino,
            _ => return None,
        }
    }
    Some(ino)
}

/// NFS clients ask again by themselves, and no server can call them.
struct Silent;

impl Watcher for Silent {
    fn recall(&self, _: Scope<'_>) {}

    fn changed(&self, _: &[Ino], _: &[(Ino, Name)]) {}

    fn knows(&self, _: Ino) -> bool {
        false
    }
}

/// A server that runs.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    portmap: Mutex<Option<Portmap>>,
}

/// Serves a volume on a listener. The files must be a session of its own: this sets their watcher. The error is
/// a sentence for the user.
pub fn serve(files: Arc<dyn Files>, served: Served, listener: TcpListener) -> Result<Server, String> {
    if served.rules.len() > RULES_MAX {
        return Err(format!(
            "There are more than {RULES_MAX} export rules.\nUse networks such as 10.0.0.0/8."
        ));
    }
    files.set_watcher(Arc::new(Silent));
    let mut exports: Vec<Export> = Vec::new();
    for rule in &served.rules {
        if exports.iter().any(|export| export.path == rule.path) {
            continue;
        }
        let shown = atoll_core::ShownPath(rule.path.names()).to_string();
        let root = walk(&*files, rule.path.names()).ok_or_else(|| {
            format!(
                "The volume {} has no directory {shown} to export.\nMake it first, or change the rule.",
                served.name
            )
        })?;
        let number =
            served.key.sign(&[&b"export"[..], &served.id.to_le_bytes(), shown.as_bytes()].concat()) as u32;
        exports.push(Export { path: rule.path.clone(), number, root });
    }
    let address = listener.local_addr().map_err(|why| format!("The NFS port cannot be used: {why}."))?;
    let known = Known::new(served.start);
    let (conns, borrowed, over) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
    let (drc, groups) = (Cache::default(), Groups::default());
    let shared = Arc::new(Shared { files, served, exports, known, drc, groups, conns, borrowed, over });
    let mine = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("atoll-nfs-port".into())
        .spawn(move || accept(&mine, &listener))
        .map_err(|why| format!("No thread to be had: {why}."))?;
    if shared.files.may_hang() {
        let mine = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("atoll-nfs-watch".into())
            .spawn(move || watch(&mine))
            .map_err(|why| format!("No thread to be had: {why}."))?;
    }
    Ok(Server { shared, address, portmap: Mutex::default() })
}

/// Sees to it that every connection is read, although calls hang without a word.
fn watch(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.over.load(SeqCst)) {
        shared.conns().iter().for_each(|conn| conn.free());
        drop(shared);
        std::thread::sleep(BUSY);
    }
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers as a portmapper at an address too, so that clients need not be told the port. Its address. The error is a sentence
    /// for the user.
    pub fn portmap(&self, at: SocketAddr) -> Result<SocketAddr, String> {
        let rules = self.shared.served.rules.clone();
        let (portmap, at) = portmap::start(at, self.address.port(), rules)?;
        *self.portmap.lock().expect("no holder of this lock panics") = Some(portmap);
        Ok(at)
    }

    /// Ends it: no more calls are read. Waits a while until those under way are carried out.
    pub fn stop(&self) {
        self.shared.over.store(true, SeqCst);
        drop(self.portmap.lock().expect("no holder of this lock panics").take());
        // Wakes whoever accepts; if it fails there is nobody to wake.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        let conns = self.shared.conns();
        conns.iter().for_each(|conn| conn.close());
        let weak: Vec<Weak<Conn>> = conns.iter().map(Arc::downgrade).collect();
        drop(conns);
        let until = std::time::Instant::now() + END;
        while weak.iter().any(|conn| conn.strong_count() > 0) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        if shared.over.load(SeqCst) {
            return;
        }
        match accepted {
            Ok((stream, peer)) => admit(shared, stream, peer),
            // Out of descriptors, or the client has gone: neither ends the server.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Takes a connection if a rule is for its address and there are not too many. Otherwise it is closed.
fn admit(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    let of = |address: IpAddr| address.to_canonical();
    if !shared.served.rules.iter().any(|rule| rule.is_for(peer.ip())) {
        return;
    }
    let mut conns = shared.conns.lock().expect("no holder of this lock panics");
    conns.retain(|conn| conn.strong_count() > 0);
    let same = conns.iter().filter_map(Weak::upgrade).filter(|c| of(c.peer.ip()) == of(peer.ip())).count();
    if conns.len() >= CONNECTIONS_MAX || same >= ADDRESS_CONNECTIONS_MAX {
        return;
    }
    match Conn::start(shared, stream, peer) {
        Ok(conn) => conns.push(Arc::downgrade(&conn)),
        Err(why) => tracing::warn!(%peer, "an NFS connection could not be served: {why}"),
    }
}

/// Carries out a call.
pub(crate) fn call(conn: &Arc<Conn>, record: Bytes, held: InFlight) {
    let Ok(head) = rpc::read_head(record.clone()) else {
        // Not a call: whatever speaks there does not speak RPC.
        return conn.close();
    };
    if head.rpc_version != 2 {
        return refuse(conn, head.xid, held, Refusal::RpcMismatch);
    }
    match (head.program, head.version) {
        (proc::PROGRAM, 3) => proc::call(conn, &record, head, held),
        (proc::PROGRAM, _) => refuse(conn, head.xid, held, Refusal::ProgMismatch(3, 3)),
        (mountd::PROGRAM, 1 | 3) => mountd::call(conn, head, held),
        (mountd::PROGRAM, _) => refuse(conn, head.xid, held, Refusal::ProgMismatch(1, 3)),
        _ => refuse(conn, head.xid, held, Refusal::ProgUnavail),
    }
}

/// Answers a call that is not carried out.
pub(crate) fn refuse(conn: &Arc<Conn>, xid: u32, held: InFlight, why: Refusal) {
    let mut reply = rpc::refuse(xid, why);
    conn.outbox.send(conn, &mut reply.0, &[], Some(held));
}
