//! The one trait through which every frontend (FUSE, later NFS, S3) reaches every kind of volume
//! (cluster, later wide and union).
//!
//! An operation is submitted with a completion, never waited for: the thread that brings it runs
//! it as far as it goes, and whichever thread brings the last event of it calls the completion. So
//! nothing hops between threads, and an operation that waits (a lock, a lost node) holds no thread.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use atoll_core::Ino;
use atoll_posix::{Answer, Caller, Errno, Op};
use bytes::Bytes;

pub use atoll_handover as handover;

/// Called exactly once with the outcome. The bytes are those of `Answer::Data`, otherwise empty.
pub type Done = Box<dyn FnOnce(Result<Answer, Errno>, &[u8]) + Send>;

/// Names an operation under way, to cancel it. 0 is none: it was completed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ticket(pub u64);

/// How long a frontend may keep what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Until recalled: nobody else has the volume open.
    UntilRecalled,
    /// Not at all: ask again every time.
    Never,
}

/// A volume as a frontend sees it.
pub trait Files: Send + Sync + 'static {
    /// Starts an operation. `data` are the bytes of a write. The completion may run before this
    /// returns, on this thread, or later on another.
    fn submit(&self, caller: &Caller, op: Op, data: Bytes, done: Done) -> Ticket;

    /// Asks to end an operation early. Its completion still runs once: with `EINTR` if it had no
    /// effect, otherwise with its outcome.
    fn cancel(&self, ticket: Ticket);

    /// The caller of an operation dies. Its completion runs soon even if what it waits for does not
    /// answer: then with `EINTR`, whether it had an effect or not. May be asked for again.
    fn abandon(&self, ticket: Ticket) {
        self.cancel(ticket);
    }

    /// The frontend no longer knows these ids: it holds no file of them open and will not use them
    /// without looking them up again.
    fn forget(&self, inos: &[Ino]);

    /// How long answers may be kept that are given from now on.
    fn caching(&self) -> Caching;

    /// Who is told when what was kept must go. Set once, before the first operation.
    fn set_watcher(&self, watcher: std::sync::Arc<dyn Watcher>);
}

/// A frontend's side of caching.
pub trait Watcher: Send + Sync + 'static {
    /// Everything that was kept is void. Returns when nothing kept can be used any more, and soon: it
    /// never waits for operations under way, which may wait for its end. Runs on a thread of its own,
    /// never inside an operation.
    fn recall(&self);

    /// Whether the frontend still knows this id (a file may be open although it has no name).
    fn knows(&self, ino: Ino) -> bool;
}

/// Runs an operation and waits for it: for tools and tests, not for frontends.
pub fn call(files: &dyn Files, caller: &Caller, op: Op, data: Bytes) -> Result<(Answer, Vec<u8>), Errno> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let done: Done = Box::new(move |outcome, bytes| {
        let _ = send.send(outcome.map(|answer| (answer, bytes.to_vec())));
    });
    files.submit(caller, op, data, done);
    receive.recv().unwrap_or(Err(Errno::EIO))
}
