//! A union as `Files`, for the frontends.

use std::sync::{Arc, Mutex};

use atoll_core::Ino;
use atoll_federal::Federation;
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_union::{Tag, UnionRequest};
use atoll_vfs::{
    AnswerExtras, Caching, Done, Files, Handle, OpenDone, OpenFor, Opened, RequestOptions, Scope, Ticket,
    Watcher,
};
use bytes::Bytes;

/// For how long a frontend may keep an answer, in milliseconds. Members are changed by others, too: together with what the
/// machine keeps, a change is seen within a second.
const KEPT_MS: u32 = 500;

/// The first byte of a handle; behind it the member's tag and its native handle.
const HANDLE: u8 = 1;

/// A union seen as `Files`.
pub(super) struct UnionFiles(Arc<Federation>, Mutex<Option<Arc<dyn Watcher>>>);

impl UnionFiles {
    pub(super) fn new(federation: Arc<Federation>) -> Self {
        Self(federation, Mutex::default())
    }

    /// Nothing that frontends keep counts any more.
    pub(super) fn void(&self) {
        let watcher = self.1.lock().expect("no holder panics").clone();
        if let Some(watcher) = watcher {
            watcher.recall(Scope::Everything);
        }
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
        Ticket(self.0.submit(request, Box::new(done)))
    }

    fn cancel(&self, ticket: Ticket) {
        // Only a wait for a lock can be ended: a native call cannot be interrupted.
        self.0.cancel(ticket.0);
    }

    fn forget(&self, inos: &[Ino]) {
        self.0.forget(inos);
    }

    fn handle_of(&self, ino: Ino, _: Kind) -> Option<Handle> {
        let (tag, native) = self.0.handle_of(ino)?;
        Handle::new([&[HANDLE][..], &tag.0.to_le_bytes(), &native].concat().into())
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        let Some((&[HANDLE, low, high], native)) = handle.as_bytes().split_first_chunk::<3>() else {
            return Err(Errno::ESTALE);
        };
        self.0.by_handle(Tag(u16::from_le_bytes([low, high])), Bytes::copy_from_slice(native))
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
        let opened = self.0.open(caller, ino, how.write);
        done(opened.map(|(open, backing)| Opened { open, backing }));
    }

    fn close(&self, ino: Ino, open: u64) {
        self.0.close(ino, open);
    }

    fn may_hang(&self) -> bool {
        true // A native call of a disk that is dying returns late or never.
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        tell(Caching::ForMs(KEPT_MS));
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        *self.1.lock().expect("no holder panics") = Some(Arc::clone(&watcher));
        self.0.hear(Box::new(move |names| watcher.changed(&[], names)));
    }
}
