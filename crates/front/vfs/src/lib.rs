//! The one trait through which every frontend (FUSE, later NFS, S3) reaches every kind of volume
//! (cluster, later wide and union).
//!
//! An operation is submitted with a completion, never waited for: the thread that brings it runs
//! it as far as it goes, and whichever thread brings the last event of it calls the completion. So
//! nothing hops between threads, and an operation that waits (a lock, a lost node) holds no thread.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use bytes::Bytes;

pub use atoll_handover as handover;
pub use atoll_posix::{Around, Beside, Caching, Wish};

/// Called exactly once with the outcome, and what comes beside it. What the outcome allows to keep may be passed on until
/// this returns, and not later.
pub type Done = Box<dyn FnOnce(Result<Answer, Errno>, Beside<'_>) + Send>;

/// Names an operation under way, to cancel it. 0 is none: it was completed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ticket(pub u64);

/// Most bytes of a handle. NFS has 64 for it, and its envelope takes 14.
pub const HANDLE_BYTES_MAX: usize = 50;

/// What names a file or directory for years, whoever serves it. Its bytes are those of the kind of volume. Nothing in it is
/// secret, and whoever knows an id can make one: a frontend whose clients are not to be trusted signs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle(Bytes);

impl Handle {
    /// None if these are too many bytes for a handle.
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.len() <= HANDLE_BYTES_MAX).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A volume as a frontend sees it.
pub trait Files: Send + Sync + 'static {
    /// Starts an operation. `data` are the bytes of a write. The completion may run before this
    /// returns, on this thread, or later on another.
    fn start(&self, caller: &Caller, wish: Wish, op: Op, data: Bytes, done: Done) -> Ticket;

    /// The same for a caller for whom a kernel has walked and opened, without a wish.
    fn submit(&self, caller: &Caller, op: Op, data: Bytes, done: Done) -> Ticket {
        self.start(caller, Wish::default(), op, data, done)
    }

    /// Asks to end an operation early. Its completion still runs once: with `EINTR` if it had no
    /// effect, otherwise with its outcome. A long range that is zeroed may be zeroed in part when that is `EINTR`.
    fn cancel(&self, ticket: Ticket);

    /// The caller of an operation dies. Its completion runs soon even if what it waits for does not
    /// answer: then with `EINTR`, whether it had an effect or not. May be asked for again.
    fn abandon(&self, ticket: Ticket) {
        self.cancel(ticket);
    }

    /// The frontend no longer knows these ids: it holds no file of them open and will not use them
    /// without looking them up again.
    fn forget(&self, inos: &[Ino]);

    /// The handle of something that the frontend was told of, of this kind. None if the volume cannot tell: then it is to
    /// be looked up first. Asks nobody.
    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle>;

    /// The id of what a handle names, with which operations can be started until the frontend says [`Files::forget`].
    /// `ESTALE` if these bytes name nothing. Asks nobody, so the operation may yet say `ESTALE`: of a file, then
    /// [`Files::find`] tells whether it is true.
    fn known(&self, handle: &Handle) -> Result<Ino, Errno>;

    /// Looks everywhere for what a handle names. `Answer::Attr`; `ESTALE` if it is nowhere, which is said only if
    /// everybody who might have it was asked.
    fn find(&self, handle: &Handle, done: Done) -> Ticket;

    /// Calls `tell` once, at once, with how long that may be kept which the frontend answers about `ino` by itself,
    /// without asking. The promise may be passed on until `tell` returns, and not later.
    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching));

    /// Who is told when what was kept must go. Set once, before the first operation.
    fn set_watcher(&self, watcher: Arc<dyn Watcher>);
}

/// What a recall is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything of the volume.
    Everything,
}

/// Most ids and names that [`Watcher::changed`] names at once; of more the frontend takes everything for changed.
pub const CHANGED_MAX: usize = 4096;

/// A frontend's side of caching.
pub trait Watcher: Send + Sync + 'static {
    /// What was kept of this is void, and no promise of it is being passed on any more. Returns when nothing kept can be
    /// used, and soon: it never waits for operations under way, which may wait for its end. Runs on a thread of its own,
    /// never inside an operation.
    fn recall(&self, scope: Scope);

    /// The attributes or bytes of these files, and what these names lead to, are not what was told. Returns at once: what
    /// was kept goes soon afterwards, and nobody waits for that.
    fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]);

    /// Whether the frontend still knows this id (a file may be open although it has no name).
    fn knows(&self, ino: Ino) -> bool;
}

/// Runs an operation and waits for it: for tools and tests, not for frontends.
pub fn call(files: &dyn Files, caller: &Caller, op: Op, data: Bytes) -> Result<(Answer, Vec<u8>), Errno> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let done: Done = Box::new(move |outcome, beside| {
        let _ = send.send(outcome.map(|answer| (answer, beside.bytes.to_vec())));
    });
    files.submit(caller, op, data, done);
    receive.recv().unwrap_or(Err(Errno::EIO))
}
