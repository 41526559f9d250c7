//! A cluster volume's client as `Files`, for the frontends.

use std::sync::Arc;

use atoll_client::{Client, Watcher};
use atoll_core::{Decode, Encode, Ino, Name};
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_proto::FileHandle;
use atoll_vfs::{AnswerExtras, Caching, Done, Files, Handle, RequestOptions, Scope, Ticket};
use bytes::Bytes;

/// A client seen as `Files`.
#[derive(Debug)]
pub(super) struct ClusterFiles(pub(super) Arc<Client>);

/// A frontend's watcher as the client knows it.
struct Watching(Arc<dyn atoll_vfs::Watcher>);

impl Watcher for Watching {
    fn recall(&self) {
        self.0.recall(Scope::Everything);
    }

    fn recall_of(&self, inos: &[Ino]) {
        self.0.recall(Scope::Of(inos));
    }

    fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]) {
        self.0.changed(inos, names);
    }

    fn knows(&self, ino: Ino) -> bool {
        self.0.knows(ino)
    }
}

/// The handle that these bytes are.
fn read(handle: &Handle) -> Result<FileHandle, Errno> {
    FileHandle::from_slice(handle.as_bytes()).map_err(|_| Errno::ESTALE)
}

impl Files for ClusterFiles {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        if let Op::Tmpfile { .. } = op {
            done(Err(Errno::EOPNOTSUPP), AnswerExtras::default());
            return Ticket::default();
        }
        Ticket(self.0.start(caller, options, op, data, done))
    }

    fn cancel(&self, ticket: Ticket) {
        self.0.cancel(ticket.0);
    }

    fn abandon(&self, ticket: Ticket) {
        self.0.abandon(ticket.0);
    }

    fn forget(&self, inos: &[Ino]) {
        self.0.forget(inos);
    }

    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle> {
        Handle::new(self.0.handle_of(ino, kind)?.to_vec().into())
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        self.0.know(&read(handle)?)
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        match read(handle) {
            Ok(handle) => Ticket(self.0.find(&handle, done)),
            Err(errno) => {
                done(Err(errno), AnswerExtras::default());
                Ticket::default()
            }
        }
    }

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        self.0.keeping(tell);
    }

    fn set_watcher(&self, watcher: Arc<dyn atoll_vfs::Watcher>) {
        self.0.set_watcher(Arc::new(Watching(watcher)));
    }
}
