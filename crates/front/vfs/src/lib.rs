//! The one trait through which every frontend (FUSE, later NFS, S3) reaches every kind of volume (cluster,
//! later wide and union).
//!
//! An operation is submitted with a completion and never waited for. The thread that submits it runs it as
//! far as it goes. The thread that brings its last event calls the completion. So work does not hop between
//! threads, and an operation that waits (for a lock, for a lost node) holds no thread.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use bytes::Bytes;

pub use atoll_handover as handover;
pub use atoll_posix::{AnswerExtras, AttrsAround, CHANGED_MAX, Caching, RequestOptions};

/// Called exactly once, with the outcome and the data beside it. If the outcome allows a frontend to keep it,
/// that promise may be passed on until this returns, and not later.
pub type Done = Box<dyn FnOnce(Result<Answer, Errno>, AnswerExtras<'_>) + Send>;

/// Names an operation under way, to cancel it. 0 is none: it was completed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ticket(pub u64);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFor {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written.
    pub write: bool,
}

/// An open file of a volume that hears of opens.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Names this open in [`Files::close`]. The volume chooses it, and may give every open the same.
    pub open: u64,
    /// The native file that has the bytes, for a frontend that can let a kernel use it directly. Reads and writes of
    /// such an open may or may not come to the volume, those of all its opens of a file in the same way.
    pub backing: Option<Arc<OwnedFd>>,
}

/// Called exactly once, with the outcome of an open.
pub type OpenDone = Box<dyn FnOnce(Result<Opened, Errno>) + Send>;

/// Most bytes of a handle. NFS has 64 for it, and its envelope takes 14.
pub const HANDLE_BYTES_MAX: usize = 50;

/// Bytes that name a file or directory for years, whichever process serves it. Each kind of volume has its
/// own. Nothing in them is secret, and everybody who knows an id can make a handle. So a frontend with
/// untrusted clients must sign it.
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
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket;

    /// The same for a caller for whom a kernel has walked and opened, without options.
    fn submit(&self, caller: &Caller, op: Op, data: Bytes, done: Done) -> Ticket {
        self.start(caller, RequestOptions::default(), op, data, done)
    }

    /// Asks to end an operation early. Its completion still runs once: with `EINTR` if it had no
    /// effect, otherwise with its outcome. A long range that is zeroed may be zeroed in part when that is `EINTR`.
    fn cancel(&self, ticket: Ticket);

    /// The caller of an operation is dying. The completion runs soon even if a node does not answer. It then
    /// says `EINTR`, whether the operation had an effect or not. May be called again.
    fn abandon(&self, ticket: Ticket) {
        self.cancel(ticket);
    }

    /// The frontend no longer knows these ids: it holds no file of them open and will not use them
    /// without looking them up again.
    fn forget(&self, inos: &[Ino]);

    /// The handle of a file or directory of this kind that the frontend was told of. None if the volume does
    /// not know it: then it must be looked up first. Asks no island.
    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle>;

    /// The id of a handle's file or directory. Operations can use it until the frontend calls
    /// [`Files::forget`]. `ESTALE` if these bytes name nothing. Asks no island, so an operation may still
    /// fail with `ESTALE`. For a file, [`Files::find`] then tells whether it is gone.
    fn known(&self, handle: &Handle) -> Result<Ino, Errno>;

    /// Looks everywhere for a handle's file or directory. The outcome is `Answer::Attr`. It is `ESTALE` if
    /// the file is nowhere, and only if every island that might have it was asked.
    fn find(&self, handle: &Handle, done: Done) -> Ticket;

    /// Calls `tell` once, at once, with the time for which the kernel may keep an answer about `ino` that the
    /// frontend gives by itself. The promise may be passed on until `tell` returns, and not later.
    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching));

    /// Whether the volume wants to hear of every open and close of a file. Asked once, before the first
    /// operation. Volumes that need none are not told, because that may cost their users a round trip.
    fn hears_opens(&self) -> bool {
        false
    }

    /// A file is opened; called only if the volume hears of opens. The frontend has judged already whether the
    /// caller may: whoever makes a read-only file may write to it through the open that made it. An error
    /// reaches the caller of open(2), and then nothing is open. `done` may run before this returns, on this
    /// thread, or later on another. May be called inside the completion of the operation that made the file.
    fn open(&self, _caller: &Caller, _ino: Ino, _how: OpenFor, done: OpenDone) {
        done(Ok(Opened { open: 0, backing: None }));
    }

    /// An open of this file has ended: the last of its descriptors was closed, whoever opened never learnt of
    /// it, or the frontend has ended. Called exactly once for each success of [`Files::open`], before the id
    /// is forgotten unless that success came after the frontend's end. Nobody waits for it.
    fn close(&self, _ino: Ino, _open: u64) {}

    /// Whether an operation may hang inside the call that starts it, as in a native call to a disk that does
    /// not answer, without a word through [`handover`]. The frontend then sees to it that other requests are
    /// still served.
    fn may_hang(&self) -> bool {
        false
    }

    /// A number that changes when bytes of this file that were acknowledged and not synced may be lost although this process has gone
    /// on: the disk was away, for example. A volume whose fsync fails then need not have one.
    fn losses(&self, _ino: Ino) -> u64 {
        0
    }

    /// Sets the object that is told of recalls. To be called once, before the first operation.
    fn set_watcher(&self, watcher: Arc<dyn Watcher>);
}

/// The part of a volume that a recall concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything of the volume.
    Everything,
    /// These files, and directories with their names: more than [`CHANGED_MAX`] stand for everything.
    Of(&'a [Ino]),
}

/// A frontend's side of caching.
pub trait Watcher: Send + Sync + 'static {
    /// Answers about this scope are void, and no promise about it is being passed on any more. Returns when
    /// the frontend can use none of them, and soon: it never waits for operations under way, because they may
    /// wait for its end. Runs on a thread of its own, never inside an operation.
    fn recall(&self, scope: Scope<'_>);

    /// The attributes or bytes of these files, or the targets of these names, have changed: more than [`CHANGED_MAX`] stand for
    /// everything. Every promise that was given before has been passed on. Returns at once; old answers go soon afterwards, and
    /// nobody waits for that.
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
