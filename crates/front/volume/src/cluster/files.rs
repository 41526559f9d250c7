//! A cluster volume's client as `Files`, for the frontends.

use std::sync::Arc;

use atoll_client::{Client, Watcher};
use atoll_core::Ino;
use atoll_posix::{Caller, Op};
use atoll_vfs::{Caching, Done, Files, Scope, Ticket};
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

    fn knows(&self, ino: Ino) -> bool {
        self.0.knows(ino)
    }
}

impl Files for ClusterFiles {
    fn submit(&self, caller: &Caller, op: Op, data: Bytes, done: Done) -> Ticket {
        Ticket(self.0.submit(caller, op, data, done))
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

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        self.0.keeping(tell);
    }

    fn set_watcher(&self, watcher: Arc<dyn atoll_vfs::Watcher>) {
        self.0.set_watcher(Arc::new(Watching(watcher)));
    }
}
