//! A union as `Files`, for the frontends.

use std::sync::{Arc, Mutex};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_union::{FrontendId, Tag, UnionRequest};
use atoll_vfs::{
    AnswerExtras, Caching, Done, Files, Handle, OpenDone, OpenFor, Opened, RequestOptions, Scope, Ticket,
    Watcher,
};
use bytes::Bytes;

/// For how long a frontend may keep an answer, in milliseconds. Members are changed by others, too: together with the 100 ms for
/// which the machine keeps what nobody tells of, a change is seen within a second.
const KEPT_MS: u32 = 900;

/// The first byte of a handle; behind it the member's tag and its native handle.
const HANDLE: u8 = 1;

/// A union seen as `Files`.
pub(super) struct UnionFiles(Arc<Federation>, FrontendId, Watchers);

/// The watchers of all frontends of a union.
type Watchers = Arc<Mutex<Vec<Arc<dyn Watcher>>>>;

impl UnionFiles {
    /// For the first frontend. None if there are too many.
    pub(super) fn new(federation: Arc<Federation>) -> Option<Self> {
        Self::with(federation, Watchers::default())
    }

    /// For one more frontend. None if there are too many.
    pub(super) fn another(&self) -> Option<Self> {
        Self::with(Arc::clone(&self.0), Arc::clone(&self.2))
    }

    fn with(federation: Arc<Federation>, watchers: Watchers) -> Option<Self> {
        let frontend = federation.open_frontend()?;
        Some(Self(federation, frontend, watchers))
    }

    /// Nothing that frontends keep counts any more.
    pub(super) fn void(&self) {
        let watchers = self.2.lock().expect("no holder panics").clone();
        watchers.iter().for_each(|watcher| watcher.recall(Scope::Everything));
    }
}

impl Files for UnionFiles {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, bytes: Bytes, done: Done) -> Ticket {
        let request = UnionRequest { caller: caller.clone(), options, op, bytes };
        let done = move |outcome: Result<atoll_union::Finished, Errno>| {
            let caching = Caching::ForMs(KEPT_MS);
            match outcome {
                Ok(finished) => {
                    let beside = AnswerExtras { bytes: &finished.bytes, caching, around: &[] };
                    done(Ok(finished.answer), beside);
                }
                Err(errno) => done(Err(errno), AnswerExtras { bytes: &[], caching, around: &[] }),
            }
        };
        Ticket(self.0.submit_for(self.1, request, Box::new(done)))
    }

    fn cancel(&self, ticket: Ticket) {
        // Only a wait for a lock can be ended: a native call cannot be interrupted.
        self.0.cancel(ticket.0);
    }

    fn forget(&self, inos: &[Ino]) {
        self.0.forget_for(self.1, inos);
    }

    fn handle_of(&self, ino: Ino, _: Kind) -> Option<Handle> {
        let (tag, native) = self.0.handle_of(ino)?;
        Handle::new([&[HANDLE][..], &tag.0.to_le_bytes(), &native].concat().into())
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        let Some((&[HANDLE, low, high], native)) = handle.as_bytes().split_first_chunk::<3>() else {
            return Err(Errno::ESTALE);
        };
        self.0.by_handle(self.1, Tag(u16::from_le_bytes([low, high])), Bytes::copy_from_slice(native))
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        match self.known(handle) {
            Ok(ino) => self.submit(&Caller::ROOT, Op::GetAttr { ino }, Bytes::new(), done),
            Err(errno) => {
                done(Err(errno), AnswerExtras::default());
                Ticket::default()
            }
        }
    }

    fn hears_opens(&self) -> bool {
        true
    }

    fn open(&self, caller: &Caller, ino: Ino, how: OpenFor, done: OpenDone) {
        let done = |outcome: Result<_, _>| done(outcome.map(|(open, backing)| Opened { open, backing }));
        self.0.open(caller, ino, how.write, Box::new(done));
    }

    fn close(&self, ino: Ino, open: u64) {
        self.0.close(ino, open);
    }

    fn losses(&self, ino: Ino) -> u64 {
        self.0.machine().losses(ino)
    }

    fn may_hang(&self) -> bool {
        true // A native call of a disk that is dying returns late or never.
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        tell(Caching::ForMs(KEPT_MS));
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.2.lock().expect("no holder panics").push(Arc::clone(&watcher));
        self.0.hear(self.1, Arc::new(move |inos, names| watcher.changed(inos, names)));
    }
}
