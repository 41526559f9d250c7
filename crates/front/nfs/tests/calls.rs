//! Raw calls over a socket to a server whose volume is the model: what a client sees, and what hostile bytes cost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use atoll_core::Ino;
use atoll_model::{AtimeRule, ModelFiles};
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_vfs::{AnswerExtras, Caching, Done, Files, Handle, RequestOptions, Ticket, Watcher};
use bytes::Bytes;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn server(rule: &str) -> Server {
    serving(rule, Arc::new(ModelFiles::new(AtimeRule::Never, Caching::Never)))
}

fn serving(rule: &str, files: Arc<dyn Files>) -> Server {
    let rules = vec![rule.parse().unwrap()];
    let key = SigningKey::new([7; 16]);
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start: 1 };
    serve(files, served, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

/// XDR of numbers and bytes.
#[derive(Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn n(mut self, n: u32) -> Self {
        self.0.extend(n.to_be_bytes());
        self
    }

    fn b(mut self, bytes: &[u8]) -> Self {
        self = self.n(bytes.len() as u32);
        self.0.extend(bytes);
        while !self.0.len().is_multiple_of(4) {
            self.0.push(0);
        }
        self
    }

    /// sattr3 with a mode.
    fn mode(self, mode: u32) -> Self {
        self.n(1).n(mode).n(0).n(0).n(0).n(0).n(0)
    }
}

fn record(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let head = Xdr::default().n(xid).n(0).n(2).n(program).n(3).n(procedure);
    let cred = Xdr::default().n(0).b(b"host").n(0).n(0).n(0).0;
    let mut call = head.n(1).b(&cred).n(0).n(0).0;
    call.extend(args);
    let mut record = (call.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    record.extend(call);
    record
}

fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

fn word(reply: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(reply[at * 4..at * 4 + 4].try_into().unwrap())
}

struct Client(TcpStream, u32);

impl Client {
    fn new(to: SocketAddr) -> Self {
        Self(TcpStream::connect(to).unwrap(), 100)
    }

    /// The status and what follows it.
    fn call(&mut self, program: u32, procedure: u32, args: Xdr) -> (u32, Vec<u8>) {
        self.1 += 1;
        self.0.write_all(&record(self.1, program, procedure, &args.0)).unwrap();
        let reply = reply(&mut self.0);
        assert_eq!((word(&reply, 0), word(&reply, 1), word(&reply, 2), word(&reply, 5)), (self.1, 1, 0, 0));
        (word(&reply, 6), reply[28..].to_vec())
    }

    fn root(&mut self) -> Vec<u8> {
        let (status, body) = self.call(MOUNT, 1, Xdr::default().b(b"/main"));
        assert_eq!(status, 0);
        body[4..4 + word(&body, 0) as usize].to_vec()
    }

    /// Makes a file; its handle.
    fn create(&mut self, dir: &[u8], name: &[u8]) -> (u32, Vec<u8>) {
        let (status, body) = self.call(NFS, 8, Xdr::default().b(dir).b(name).n(1).mode(0o644));
        if status > 0 { (status, Vec::new()) } else { (0, body[8..8 + word(&body, 1) as usize].to_vec()) }
    }
}

#[test]
fn what_is_written_is_read_listed_and_removed() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut client = Client::new(server.address());
    let root = client.root();
    let (status, file) = client.create(&root, b"f");
    assert_eq!(status, 0);
    assert_eq!(client.create(&root, b"f").0, 17);
    let write = Xdr::default().b(&file).n(0).n(0).n(5).n(2).b(b"hello");
    assert_eq!(client.call(NFS, 7, write).0, 0);
    let (status, body) = client.call(NFS, 6, Xdr::default().b(&file).n(0).n(0).n(100));
    // Attributes, count, eof, length, bytes.
    assert_eq!((status, word(&body, 22), word(&body, 23)), (0, 5, 1));
    assert_eq!(&body[100..105], b"hello");
    assert_eq!(client.call(NFS, 21, Xdr::default().b(&file).n(0).n(0).n(0)).0, 0);
    let (status, body) = client.call(NFS, 16, Xdr::default().b(&root).n(0).n(0).n(0).n(0).n(4096));
    assert_eq!(status, 0);
    assert_eq!(body.windows(8).filter(|w| *w == [0, 0, 0, 1, b'f', 0, 0, 0]).count(), 1);
    assert_eq!(body[body.len() - 8..], [0, 0, 0, 0, 0, 0, 0, 1], "the list ends");
    let (status, _) = client.call(NFS, 17, Xdr::default().b(&root).n(0).n(0).n(0).n(0).n(512).n(4096));
    assert_eq!(status, 0);
    assert_eq!(client.call(NFS, 12, Xdr::default().b(&root).b(b"f")).0, 0);
    assert_eq!(client.call(NFS, 1, Xdr::default().b(&file)).0, 70, "a removed file is stale");
    for (procedure, name) in [(9, &b"d"[..]), (13, b"d")] {
        let args = Xdr::default().b(&root).b(name);
        assert_eq!(client.call(NFS, procedure, if procedure == 9 { args.mode(0o755) } else { args }).0, 0);
    }
    for procedure in [18, 19, 20] {
        assert_eq!(client.call(NFS, procedure, Xdr::default().b(&root)).0, 0);
    }
    server.stop();
}

#[test]
fn a_retry_gets_the_answer_of_the_first_time_also_by_another_connection() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut client = Client::new(server.address());
    let root = client.root();
    client.create(&root, b"f");
    let remove = record(7, NFS, 12, &Xdr::default().b(&root).b(b"f").0);
    client.0.write_all(&remove).unwrap();
    let first = reply(&mut client.0);
    let mut other = Client::new(server.address());
    other.0.write_all(&remove).unwrap();
    assert_eq!(reply(&mut other.0), first);
    assert_eq!(word(&first, 6), 0);
    assert_eq!(client.call(NFS, 12, Xdr::default().b(&root).b(b"f")).0, 2, "another call is carried out");
}

#[test]
fn an_exclusive_create_that_comes_twice_succeeds_and_another_one_does_not() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut client = Client::new(server.address());
    let root = client.root();
    let create = |verifier: u32| Xdr::default().b(&root).b(b"x").n(2).n(verifier).n(9);
    assert_eq!(client.call(NFS, 8, create(1)).0, 0);
    assert_eq!(client.call(NFS, 8, create(1)).0, 0);
    assert_eq!(client.call(NFS, 8, create(2)).0, 17);
}

#[test]
fn a_read_only_export_refuses_changes_and_root_is_nobody() {
    let server = server("127.0.0.1(ro)");
    let mut client = Client::new(server.address());
    let root = client.root();
    assert_eq!(client.create(&root, b"f").0, 30);
    let squashed = self::server("127.0.0.1");
    let mut client = Client::new(squashed.address());
    let root = client.root();
    assert_eq!(client.create(&root, b"f").0, 13);
}

#[test]
fn forged_handles_and_names_that_cannot_be_are_refused() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut client = Client::new(server.address());
    let root = client.root();
    let mut forged = root.clone();
    forged[8] ^= 1;
    assert_eq!(client.call(NFS, 1, Xdr::default().b(&forged)).0, 10_001);
    for (name, status) in [(&b"a/b"[..], 22), (b"", 22), (b"..", 22), (&[b'x'; 256], 63)] {
        assert_eq!(client.create(&root, name).0, status);
    }
    let (status, body) = client.call(NFS, 3, Xdr::default().b(&root).b(b".."));
    assert_eq!((status, &body[4..4 + root.len()]), (0, &root[..]), "above the root is the root");
}

#[test]
fn hostile_bytes_end_their_connection_and_cost_nobody_else_anything() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut good = Client::new(server.address());
    let root = good.root();
    // A record of 2 GiB, a half record that stays, and what is not a call.
    let mut huge = Client::new(server.address());
    huge.0.write_all(&[0xff; 4]).unwrap();
    assert_eq!(huge.0.read(&mut [0; 1]).unwrap_or(0), 0);
    let mut half = Client::new(server.address());
    half.0.write_all(&record(1, NFS, 1, &[0; 64])[..50]).unwrap();
    let mut noise = Client::new(server.address());
    noise.0.write_all(&[0x80, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(noise.0.read(&mut [0; 1]).unwrap_or(0), 0);
    // A million groups in a credential, and a name of 4 GiB.
    let mut bad = Client::new(server.address());
    let cred = Xdr::default().n(0).b(b"").n(0).n(0).n(1_000_000).0;
    let head = Xdr::default().n(9).n(0).n(2).n(NFS).n(3).n(1).n(1).b(&cred).n(0).n(0).b(&root).0;
    bad.0.write_all(&(head.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
    bad.0.write_all(&head).unwrap();
    let refused = reply(&mut bad.0);
    assert_eq!((word(&refused, 2), word(&refused, 3), word(&refused, 4)), (1, 1, 1), "AUTH_BADCRED");
    bad.0.write_all(&record(10, NFS, 3, &Xdr::default().b(&root).n(u32::MAX).0)).unwrap();
    assert_eq!(word(&reply(&mut bad.0), 5), 4, "GARBAGE_ARGS");
    assert_eq!(good.call(NFS, 1, Xdr::default().b(&root)).0, 0);
    server.stop();
}

#[test]
fn a_client_that_never_reads_is_not_read_any_more_and_others_go_on() {
    let server = server("127.0.0.1(no_root_squash)");
    let mut client = Client::new(server.address());
    let root = client.root();
    let (_, file) = client.create(&root, b"f");
    let bytes = vec![7; 1 << 20];
    let write = Xdr::default().b(&file).n(0).n(0).n(1 << 20).n(0).b(&bytes);
    assert_eq!(client.call(NFS, 7, write).0, 0);
    // More answers than any bound holds.
    let mut deaf = Client::new(server.address());
    deaf.0.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let read = record(1, NFS, 6, &Xdr::default().b(&file).n(0).n(0).n(1 << 20).0);
    let sent = (0..100_000).take_while(|_| deaf.0.write_all(&read).is_ok()).count();
    assert!(sent < 100_000, "it is read although it does not read");
    assert_eq!(client.call(NFS, 1, Xdr::default().b(&root)).0, 0);
    server.stop();
}

#[test]
fn programs_versions_and_procedures_that_are_not_there_are_told() {
    let server = server("127.0.0.1");
    let mut client = Client::new(server.address());
    for (program, procedure, stat) in [(100_021, 0, 1), (NFS, 22, 3), (MOUNT, 9, 3)] {
        client.0.write_all(&record(1, program, procedure, &[])).unwrap();
        assert_eq!(word(&reply(&mut client.0), 5), stat);
    }
}

#[test]
fn one_address_has_thirty_two_connections_and_an_address_without_a_rule_has_none() {
    let server = server("127.0.0.1");
    let mut all: Vec<Client> = (0..32).map(|_| Client::new(server.address())).collect();
    all.iter_mut().for_each(|client| _ = client.root());
    let mut more = Client::new(server.address());
    assert_eq!(more.0.read(&mut [0; 1]).unwrap_or(0), 0, "one too many is closed");
    all[0].root();
    let elsewhere = self::server("10.1.2.3");
    let mut stranger = Client::new(elsewhere.address());
    assert_eq!(stranger.0.read(&mut [0; 1]).unwrap_or(0), 0);
}

/// The model on a disk that hangs: reads return when they are let go. Or it goes away and comes back.
struct Disk {
    model: ModelFiles,
    /// How often it was away.
    losses: AtomicU64,
    /// How many reads hang, and whether they are let go.
    reads: Mutex<(usize, bool)>,
    changed: Condvar,
    /// Whatever is made is removed before its attributes are set.
    removes: AtomicBool,
    /// Files are not where their handles say until they are looked for.
    moved: AtomicBool,
}

impl Disk {
    fn new() -> Self {
        let model = ModelFiles::new(AtimeRule::Never, Caching::Never);
        let (losses, reads, removes) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
        Self { model, losses, reads, changed: Condvar::new(), removes, moved: AtomicBool::new(false) }
    }
}

impl Files for Disk {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        if let Op::Read { .. } = op {
            let mut reads = self.reads.lock().unwrap();
            reads.0 += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(reads, |(_, let_go)| !*let_go).unwrap());
        }
        let hidden = matches!(op, Op::Link { .. }) && self.moved.load(SeqCst);
        if hidden || matches!(op, Op::SetAttr { .. }) && self.removes.load(SeqCst) {
            done(Err(Errno::ESTALE), AnswerExtras::default());
            return Ticket::default();
        }
        self.model.start(caller, options, op, data, done)
    }

    fn cancel(&self, ticket: Ticket) {
        self.model.cancel(ticket);
    }

    fn forget(&self, inos: &[Ino]) {
        self.model.forget(inos);
    }

    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle> {
        self.model.handle_of(ino, kind)
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        self.model.known(handle)
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        self.moved.store(false, SeqCst);
        self.model.find(handle, done)
    }

    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching)) {
        self.model.keeping(ino, tell);
    }

    fn losses(&self, _: Ino) -> u64 {
        self.losses.load(SeqCst)
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.model.set_watcher(watcher);
    }
}

#[test]
fn calls_that_hang_without_a_word_stop_no_other_call_of_their_connection() {
    let files = Arc::new(Disk::new());
    let server = serving("127.0.0.1(no_root_squash)", Arc::clone(&files) as Arc<dyn Files>);
    let mut client = Client::new(server.address());
    let root = client.root();
    let (_, file) = client.create(&root, b"f");
    for xid in 1..=16 {
        let read = record(xid, NFS, 6, &Xdr::default().b(&file).n(0).n(0).n(1).0);
        client.0.write_all(&read).unwrap();
    }
    let reads = files.reads.lock().unwrap();
    drop(files.changed.wait_while(reads, |(hanging, _)| *hanging < 16).unwrap());
    assert_eq!(client.call(NFS, 1, Xdr::default().b(&root)).0, 0);
    files.reads.lock().unwrap().1 = true;
    files.changed.notify_all();
    let mut xids: Vec<u32> = (0..16).map(|_| word(&reply(&mut client.0), 0)).collect();
    xids.sort_unstable();
    assert!(xids.into_iter().eq(1..=16), "each is answered once");
    assert_eq!(client.call(NFS, 1, Xdr::default().b(&root)).0, 0);
    server.stop();
}

#[test]
fn a_file_that_somebody_removes_while_it_is_made_was_made() {
    let files = Arc::new(Disk::new());
    let server = serving("127.0.0.1(no_root_squash)", Arc::clone(&files) as Arc<dyn Files>);
    let mut client = Client::new(server.address());
    let root = client.root();
    files.removes.store(true, SeqCst);
    // Told anything else, a client makes it once more.
    let create = Xdr::default().b(&root).b(b"x").n(2).n(1).n(9);
    assert_eq!(client.call(NFS, 8, create).0, 0);
    server.stop();
}

#[test]
fn a_file_that_moved_before_the_server_started_is_looked_for_when_it_is_linked() {
    let files = Arc::new(Disk::new());
    let server = serving("127.0.0.1(no_root_squash)", Arc::clone(&files) as Arc<dyn Files>);
    let mut client = Client::new(server.address());
    let root = client.root();
    let (_, file) = client.create(&root, b"f");
    files.moved.store(true, SeqCst);
    assert_eq!(client.call(NFS, 15, Xdr::default().b(&file).b(&root).b(b"link")).0, 0);
    // One that is nowhere is stale.
    for name in [b"f".as_slice(), b"link"] {
        assert_eq!(client.call(NFS, 12, Xdr::default().b(&root).b(name)).0, 0);
    }
    files.moved.store(true, SeqCst);
    assert_eq!(client.call(NFS, 15, Xdr::default().b(&file).b(&root).b(b"again")).0, 70);
    server.stop();
}

#[test]
fn bytes_that_a_disk_took_with_it_are_sent_again() {
    let files = Arc::new(Disk::new());
    let server = serving("127.0.0.1(no_root_squash)", Arc::clone(&files) as Arc<dyn Files>);
    let mut client = Client::new(server.address());
    let root = client.root();
    let (_, file) = client.create(&root, b"f");
    // The verifier is at the end of both answers.
    let verifier = |(status, body): (u32, Vec<u8>)| {
        assert_eq!(status, 0);
        body[body.len() - 8..].to_vec()
    };
    let write = Xdr::default().b(&file).n(0).n(0).n(5).n(0).b(b"hello");
    let written = verifier(client.call(NFS, 7, write));
    let commit = || Xdr::default().b(&file).n(0).n(0).n(0);
    assert_eq!(verifier(client.call(NFS, 21, commit())), written);
    files.losses.fetch_add(1, SeqCst);
    assert_ne!(verifier(client.call(NFS, 21, commit())), written);
    server.stop();
}
