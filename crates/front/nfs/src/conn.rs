//! A connection: record marking, the threads that read, and how much may be under way.
//!
//! The thread that reads a call carries it out. Before it does something slow, another thread reads on.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use atoll_vfs::handover::{self, Next, Roles};
use bytes::Bytes;

use crate::outbox::{Outbox, shut};
use crate::server::Shared;

/// Longest record, in bytes: a WRITE of 1 MiB and what is around it.
pub(crate) const RECORD_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Most fragments of a record.
const FRAGMENTS_MAX: usize = 64;
/// Calls of a connection that are under way or whose answers were not sent. Then it is not read.
pub(crate) const CALLS_MAX: usize = 64;
/// Bytes that each connection may always hold: one greatest call and its answer.
pub(crate) const OWN_BYTES: usize = 2 * RECORD_BYTES_MAX;
/// Bytes beyond that, for all connections together.
pub(crate) const SHARED_BYTES_MAX: usize = 128 << 20;
/// Threads of a connection.
const THREADS_MAX: usize = 8;
/// The same if the volume's calls may hang: the 16 calls of a disk that hangs leave as many.
const THREADS_HANGING_MAX: usize = THREADS_MAX + 16;
/// If the thread that reads is busy with a call for so long, another one reads on.
pub(crate) const BUSY: Duration = Duration::from_millis(100);
/// How long a thread that nobody needs is kept.
const IDLE: Duration = Duration::from_secs(5);
/// How long a client may take no byte of an answer.
const SEND_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Load {
    calls: usize,
    bytes: usize,
}

/// A connection of a client.
pub(crate) struct Conn {
    me: Weak<Conn>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) outbox: Outbox,
    reader: Mutex<()>,
    roles: Roles,
    load: Mutex<Load>,
    lighter: Condvar,
    closed: AtomicBool,
    /// Since when the thread that reads is busy with a call, and whether it is still to read on.
    busy: Mutex<Option<(Instant, Arc<AtomicBool>)>>,
}

/// A call under way: its share of the bounds. Given back when dropped.
pub(crate) struct InFlight {
    conn: Arc<Conn>,
    bytes: usize,
    borrowed: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.conn.shared.give_back(self.borrowed);
        let mut load = self.conn.load.lock().expect("no holder of this lock panics");
        load.calls -= 1;
        load.bytes -= self.bytes;
        drop(load);
        self.conn.lighter.notify_one();
    }
}

impl Conn {
    /// Begins to serve a stream, on a thread of its own.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> std::io::Result<Arc<Self>> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_TIME_MAX))?;
        let hangs = shared.files.may_hang();
        let conn = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared: Arc::clone(shared),
            stream,
            peer,
            outbox: Outbox::default(),
            reader: Mutex::new(()),
            roles: Roles::new(if hangs { THREADS_HANGING_MAX } else { THREADS_MAX }, IDLE),
            load: Mutex::default(),
            lighter: Condvar::new(),
            closed: AtomicBool::new(false),
            busy: Mutex::default(),
        });
        let mine = Arc::clone(&conn);
        std::thread::Builder::new().name("atoll-nfs".into()).spawn(move || mine.serve())?;
        Ok(conn)
    }

    fn me(&self) -> Arc<Self> {
        self.me.upgrade().expect("whoever calls this has it")
    }

    /// Ends the connection. What is under way is carried out, and not answered.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        shut(&self.stream);
        self.lighter.notify_all();
        if self.roles.take_for_closing() {
            self.spawn();
        }
    }

    fn spawn(&self) {
        let conn = self.me();
        if std::thread::Builder::new().name("atoll-nfs".into()).spawn(move || conn.serve()).is_err() {
            self.roles.start_failed();
        }
    }

    fn serve(self: Arc<Self>) {
        let leads = Arc::new(AtomicBool::new(true));
        let (conn, flag) = (Arc::clone(&self), Arc::clone(&leads));
        handover::before_slow(move || conn.hand_over(&flag));
        let hangs = self.shared.files.may_hang();
        loop {
            let record = {
                let _reader = self.reader.lock().expect("no holder of this lock panics");
                self.read_record()
            };
            let Some((record, held)) = record else { return self.finish() };
            if hangs {
                *self.busy() = Some((Instant::now(), Arc::clone(&leads)));
            }
            crate::server::call(&self, record, held);
            if hangs {
                let mut busy = self.busy();
                if busy.as_ref().is_some_and(|(_, leader)| Arc::ptr_eq(leader, &leads)) {
                    *busy = None;
                }
            }
            if !leads.load(SeqCst) {
                if !self.roles.take() {
                    return;
                }
                leads.store(true, SeqCst);
            }
        }
    }

    fn busy(&self) -> MutexGuard<'_, Option<(Instant, Arc<AtomicBool>)>> {
        self.busy.lock().expect("no holder of this lock panics")
    }

    /// The thread with this flag does not read on: another one does.
    fn hand_over(&self, leads: &AtomicBool) {
        if leads.swap(false, SeqCst) && self.roles.give_up() == Next::Start {
            self.spawn();
        }
    }

    /// Has another thread read on if the one that reads hangs in a call that says nothing of it.
    pub(crate) fn free(&self) {
        let mut busy = self.busy();
        if let Some((since, leads)) = &*busy
            && since.elapsed() >= BUSY
        {
            self.hand_over(leads);
            *busy = None;
        }
    }

    /// The thread that reads ends.
    fn finish(&self) {
        self.closed.store(true, SeqCst);
        shut(&self.stream);
        self.outbox.close();
        self.roles.end();
        self.shared.ended(self);
    }

    /// The next call, and its share of the bounds.
    fn read_record(&self) -> Option<(Bytes, InFlight)> {
        let mut record = Vec::new();
        for _ in 0..FRAGMENTS_MAX {
            let mut mark = [0; 4];
            (&self.stream).read_exact(&mut mark).ok()?;
            let mark = u32::from_be_bytes(mark);
            let len = (mark & !(1 << 31)) as usize;
            if record.len() + len > RECORD_BYTES_MAX {
                return None;
            }
            record.reserve_exact(len);
            let got = (&self.stream).take(len as u64).read_to_end(&mut record).ok()?;
            if got < len {
                return None;
            }
            if mark >> 31 == 1 {
                // Nobody knows yet how long the answer is.
                let held = self.admit(record.len() + crate::proc::reply_bytes_max(&record))?;
                return Some((record.into(), held));
            }
        }
        None
    }

    /// Waits until a call of so many bytes may be under way. None if the connection ends.
    fn admit(&self, bytes: usize) -> Option<InFlight> {
        let mut load = self.load.lock().expect("no holder of this lock panics");
        loop {
            if self.closed.load(SeqCst) {
                return None;
            }
            let beyond = |load: &Load| (load.bytes + bytes).saturating_sub(OWN_BYTES.max(load.bytes));
            let borrowed = beyond(&load);
            if load.calls == 0 || load.calls < CALLS_MAX && self.shared.borrow(borrowed) {
                let borrowed = if load.calls == 0 { 0 } else { borrowed };
                load.calls += 1;
                load.bytes += bytes;
                return Some(InFlight { conn: self.me(), bytes, borrowed });
            }
            // Its own calls end and make room, whatever others do.
            load = self.lighter.wait(load).expect("no holder of this lock panics");
        }
    }
}
