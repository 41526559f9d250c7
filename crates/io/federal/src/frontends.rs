//! The frontends of a union. Owns who is told of changes; what a frontend knows is the machine's.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use atoll_core::{Ino, Name};
use atoll_posix::{Errno, Op};
use atoll_union::{Finished, FrontendId, UnionRequest};

use crate::{Done, Federation};

/// Told of files whose attributes or bytes, and of names whose targets have changed.
pub type Heard = Arc<dyn Fn(&[Ino], &[(Ino, Name)]) + Send + Sync>;

/// The frontends, by the order in which they came.
#[derive(Default)]
pub(crate) struct Frontends {
    opened: AtomicU8,
    heard: Mutex<Vec<(FrontendId, Heard)>>,
}

impl Frontends {
    fn lock(&self) -> MutexGuard<'_, Vec<(FrontendId, Heard)>> {
        self.heard.lock().expect("no holder panics")
    }

    /// Tells all frontends but one.
    pub(crate) fn tell(&self, but: Option<FrontendId>, inos: &[Ino], names: &[(Ino, Name)]) {
        let heard: Vec<Heard> = {
            let all = self.lock();
            all.iter()
                .filter(|(frontend, _)| Some(*frontend) != but)
                .map(|(_, heard)| Arc::clone(heard))
                .collect()
        };
        heard.iter().for_each(|heard| heard(inos, names));
    }

    /// Whether there is another frontend that hears of changes.
    fn has_others(&self, than: FrontendId) -> bool {
        self.lock().iter().any(|(frontend, _)| *frontend != than)
    }
}

impl Federation {
    /// A frontend begins to use the union. None if there are too many.
    pub fn open_frontend(&self) -> Option<FrontendId> {
        let next = |opened: u8| FrontendId::new(opened).map(|_| opened + 1);
        let opened = self.frontends.opened.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        opened.ok().and_then(FrontendId::new)
    }

    /// Sets who is told of changes that this frontend has not made.
    pub fn hear(&self, frontend: FrontendId, heard: Heard) {
        let mut all = self.frontends.lock();
        all.retain(|(other, _)| *other != frontend);
        all.push((frontend, heard));
    }

    /// The same, in which an operation tells the other frontends what it has changed, before it is answered.
    pub(crate) fn telling(&self, frontend: FrontendId, request: &UnionRequest, done: Done) -> Done {
        if !request.op.changes() || !self.frontends.has_others(frontend) {
            return done;
        }
        let ((inos, names), me) = (concerns(&request.op), Weak::clone(&self.me));
        Box::new(move |outcome: Result<Finished, Errno>| {
            if outcome.is_ok()
                && let Some(this) = me.upgrade()
            {
                this.frontends.tell(Some(frontend), &inos, &names);
            }
            done(outcome);
        })
    }
}

/// What an operation changes: objects and names.
fn concerns(op: &Op) -> (Vec<Ino>, Vec<(Ino, Name)>) {
    let inos = op.file().into_iter().chain(op.dirs().into_iter().flatten());
    let names = match op {
        Op::Create { dir, name, .. }
        | Op::Mkdir { dir, name, .. }
        | Op::Unlink { dir, name }
        | Op::Rmdir { dir, name, .. } => vec![(*dir, name.clone())],
        Op::Link { ino, dir, name } => return (vec![*ino, *dir], vec![(*dir, name.clone())]),
        Op::Rename { dir, name, new_dir, new_name, .. } => {
            vec![(*dir, name.clone()), (*new_dir, new_name.clone())]
        }
        _ => Vec::new(),
    };
    (inos.collect(), names)
}
