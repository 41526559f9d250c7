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
    fn recall(&self, scope: Scope) {
        self.watcher.recall(scope);
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

/// The same operation with the volume's ids.
fn with_ids_of_volume(mut op: Op, root: Ino) -> Op {
    let change = |ino: &mut Ino| *ino = meant(*ino, root);
    match &mut op {
        Op::Lookup { dir, .. }
        | Op::Create { dir, .. }
        | Op::Mkdir { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::FsyncDir { dir }
        | Op::ReadDir { dir, .. }
        | Op::Parent { dir }
        | Op::Tmpfile { dir, .. } => change(dir),
        Op::Rmdir { dir, meant, .. } => {
            change(dir);
            meant.iter_mut().for_each(change);
        }
        Op::Rename { dir, new_dir, meant, new_meant, .. } => {
            change(dir);
            change(new_dir);
            meant.iter_mut().chain(new_meant).for_each(change);
        }
        Op::Link { ino, dir, .. } => {
            change(ino);
            change(dir);
        }
        Op::CopyRange { from, to, .. } => {
            change(from);
            change(to);
        }
        Op::GetAttr { ino }
        | Op::SetAttr { ino, .. }
        | Op::Readlink { ino }
        | Op::Read { ino, .. }
        | Op::Write { ino, .. }
        | Op::Fallocate { ino, .. }
        | Op::Seek { ino, .. }
        | Op::Fsync { ino }
        | Op::GetXattr { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::ListXattr { ino }
        | Op::RemoveXattr { ino, .. }
        | Op::GetLock { ino, .. }
        | Op::SetLock { ino, .. }
        | Op::Accessed { ino, .. }
        | Op::Access { ino } => change(ino),
        Op::Statfs => {}
    }
    op
}

/// The same answer with the frontend's ids.
fn with_ids_of_frontend(mut answer: Answer, root: Ino) -> Answer {
    let change = |ino: &mut Ino| *ino = shown(*ino, root);
    match &mut answer {
        Answer::Found { found } => change(&mut found.attr.ino),
        Answer::Attr { attr } => change(&mut attr.ino),
        Answer::Entries { entries, .. } => {
            for entry in entries {
                change(&mut entry.ino);
                entry.found.iter_mut().for_each(|found| change(&mut found.attr.ino));
            }
        }
        Answer::Removed { orphan } => orphan.iter_mut().for_each(change),
        Answer::Done
        | Answer::Data
        | Answer::Wrote { .. }
        | Answer::Offset { .. }
        | Answer::Statfs { .. }
        | Answer::Lock { .. }
        | Answer::Access { .. } => {}
    }
    answer
}

/// Completes with the frontend's ids.
fn told(done: Done, root: Ino) -> Done {
    Box::new(move |outcome: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
        let outcome = outcome.map(|answer| with_ids_of_frontend(answer, root));
        if !beside.around.iter().any(|around| around.after.ino == root) {
            return done(outcome, beside);
        }
        let mut around: Vec<AttrsAround> = beside.around.to_vec();
        around.iter_mut().for_each(|around| around.after.ino = shown(around.after.ino, root));
        done(outcome, AnswerExtras { around: &around, ..beside });
    })
}

impl Files for Rooted {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        let op = with_ids_of_volume(op, self.root);
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
