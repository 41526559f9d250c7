//! A directory of a cluster volume as a whole tree: what a client that sees a subtree mounts. Frontends know the root by an id of
//! its own, and that stands for the directory here.

use std::sync::Arc;

use atoll_core::Ino;
use atoll_posix::{Answer, AttrsAround, Caller, Errno, Kind, Op};
use atoll_vfs::{AnswerExtras, Caching, Done, Files, Handle, RequestOptions, Scope, Ticket};
use bytes::Bytes;

use super::files::ClusterFiles;

/// See the module.
#[derive(Debug)]
pub(super) struct Rooted {
    pub(super) files: ClusterFiles,
    /// The directory.
    pub(super) root: Ino,
}

/// A frontend's watcher, which knows the directory as the root.
struct Watching {
    watcher: Arc<dyn atoll_vfs::Watcher>,
    root: Ino,
}

impl atoll_vfs::Watcher for Watching {
    fn recall(&self, scope: Scope<'_>) {
        match scope {
            Scope::Everything => self.watcher.recall(scope),
            Scope::Of(inos) => {
                let inos: Vec<Ino> = inos.iter().map(|ino| shown(*ino, self.root)).collect();
                self.watcher.recall(Scope::Of(&inos));
            }
        }
    }

    fn changed(&self, inos: &[Ino], names: &[(Ino, atoll_core::Name)]) {
        let inos: Vec<Ino> = inos.iter().map(|ino| shown(*ino, self.root)).collect();
        let names: Vec<_> = names.iter().map(|(dir, name)| (shown(*dir, self.root), name.clone())).collect();
        self.watcher.changed(&inos, &names);
    }

    fn knows(&self, ino: Ino) -> bool {
        self.watcher.knows(shown(ino, self.root))
    }
}

/// The volume's id of what a frontend names.
fn meant(ino: Ino, root: Ino) -> Ino {
    if ino == Ino::ROOT { root } else { ino }
}

/// The frontend's id of what the volume names. The volume's own root is outside, so no answer is about it.
fn shown(ino: Ino, root: Ino) -> Ino {
    if ino == root { Ino::ROOT } else { ino }
}

/// Completes with the frontend's ids.
fn told(done: Done, root: Ino) -> Done {
    Box::new(move |outcome: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
        let outcome = outcome.map(|mut answer| {
            answer.change_ids(|ino| *ino = shown(*ino, root));
            answer
        });
        if !beside.around.iter().any(|around| around.after.ino == root) {
            return done(outcome, beside);
        }
        let mut around: Vec<AttrsAround> = beside.around.to_vec();
        around.iter_mut().for_each(|around| around.after.ino = shown(around.after.ino, root));
        done(outcome, AnswerExtras { around: &around, ..beside });
    })
}

impl Files for Rooted {
    fn start(&self, caller: &Caller, options: RequestOptions, mut op: Op, data: Bytes, done: Done) -> Ticket {
        op.change_ids(|ino| *ino = meant(*ino, self.root));
        self.files.start(caller, options, op, data, told(done, self.root))
    }

    fn cancel(&self, ticket: Ticket) {
        self.files.cancel(ticket);
    }

    fn abandon(&self, ticket: Ticket) {
        self.files.abandon(ticket);
    }

    fn forget(&self, inos: &[Ino]) {
        match inos.contains(&Ino::ROOT) {
            false => self.files.forget(inos),
            true => self.files.forget(&inos.iter().map(|ino| meant(*ino, self.root)).collect::<Vec<_>>()),
        }
    }

    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle> {
        self.files.handle_of(meant(ino, self.root), kind)
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        self.files.known(handle).map(|ino| shown(ino, self.root))
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        self.files.find(handle, told(done, self.root))
    }

    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching)) {
        self.files.keeping(meant(ino, self.root), tell);
    }

    fn set_watcher(&self, watcher: Arc<dyn atoll_vfs::Watcher>) {
        self.files.set_watcher(Arc::new(Watching { watcher, root: self.root }));
    }
}
