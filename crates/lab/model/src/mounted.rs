//! A volume made of a model. A frontend mounts it to be judged, or to judge the model by a test suite. Adds a
//! clock, a lock around the model, and the queue of requests that wait for file locks.

use crate::tree::{AtimeRule, Model, Outcome};
use atoll_core::{Decode, Encode, Ino, SessionId, Time};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_vfs::{AnswerExtras, AttrsAround, Caching, Done, Files, Handle, RequestOptions, Ticket, Watcher};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// An operation that waits for a lock.
struct Waiting {
    ticket: Ticket,
    session: SessionId,
    caller: Caller,
    op: Op,
    done: Done,
}

/// What an operation that ends now tells to whom.
type Ended = (Done, Result<(Answer, Vec<u8>), Errno>, Vec<AttrsAround>);

struct State {
    model: Model,
    waiting: Vec<Waiting>,
    watchers: BTreeMap<SessionId, Arc<dyn Watcher>>,
    tickets: u64,
    last: Time,
}

/// One client's view of a volume that is a model. Clones made with `session` share the tree.
pub struct ModelFiles {
    state: Arc<Mutex<State>>,
    session: SessionId,
    caching: Caching,
}

impl ModelFiles {
    /// A new empty volume.
    pub fn new(atime: AtimeRule, caching: Caching) -> Self {
        let now = wall_clock();
        let state = State {
            model: Model::new(now, atime),
            waiting: Vec::new(),
            watchers: BTreeMap::new(),
            tickets: 0,
            last: now,
        };
        Self { state: Arc::new(Mutex::new(state)), session: SessionId(1), caching }
    }

    /// Another client of the same volume; both must not cache.
    pub fn session(&self, session: SessionId) -> Self {
        Self { state: Arc::clone(&self.state), session, caching: Caching::Never }
    }

    /// The tree as it is now.
    pub fn model(&self) -> Model {
        self.lock().model.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the model is a bug that the panic itself reports; the others go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wall_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

impl State {
    /// A time later than every one before.
    fn now(&mut self) -> Time {
        self.last = wall_clock().max(self.last.next());
        self.last
    }

    /// Tries everyone who waits again, in order, until nobody gets on.
    fn wake(&mut self, ended: &mut Vec<Ended>) {
        let mut at = 0;
        while at < self.waiting.len() {
            let now = self.now();
            let waiting = &self.waiting[at];
            match self.model.apply(now, waiting.session, &waiting.caller, &waiting.op, &[]) {
                Ok(Outcome::Blocked) => at += 1,
                outcome => {
                    let done = self.waiting.remove(at).done;
                    ended.push((done, outcome.map(answered), Vec::new()));
                    // A lock that was converted may have let an earlier one go.
                    at = 0;
                }
            }
        }
    }
}

fn answered(outcome: Outcome) -> (Answer, Vec<u8>) {
    match outcome {
        Outcome::Answered(answer, bytes) => (answer, bytes),
        Outcome::Blocked => unreachable!("who is blocked is not answered"),
    }
}

/// Outside the lock: a completion may submit the next operation.
fn complete(ended: Vec<Ended>, caching: Caching) {
    for (done, outcome, around) in ended {
        match outcome {
            Ok((answer, bytes)) => done(Ok(answer), AnswerExtras { bytes: &bytes, caching, around: &around }),
            Err(errno) => done(Err(errno), AnswerExtras { caching, ..AnswerExtras::default() }),
        }
    }
}

impl Files for ModelFiles {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        let mut ended = Vec::new();
        let mut ticket = Ticket::default();
        {
            let mut state = self.lock();
            let now = state.now();
            let before = options.attributes.then(|| state.model.clone());
            let may = if options.unchecked { state.model.may_use(caller, &op) } else { Ok(()) };
            match may.and_then(|()| state.model.apply(now, self.session, caller, &op, &data)) {
                Ok(Outcome::Blocked) => {
                    state.tickets += 1;
                    ticket = Ticket(state.tickets);
                    let (session, caller) = (self.session, caller.clone());
                    state.waiting.push(Waiting { ticket, session, caller, op: op.clone(), done });
                }
                outcome => {
                    let around = before.map(|before| before.around(&state.model, &op)).unwrap_or_default();
                    ended.push((done, outcome.map(answered), around));
                }
            }
            // Also after a refusal or while waiting: a conversion gave up the old lock.
            if matches!(op, Op::SetLock { .. }) {
                state.wake(&mut ended);
            }
        }
        complete(ended, self.caching);
        ticket
    }

    fn cancel(&self, ticket: Ticket) {
        let mut ended = Vec::new();
        {
            let mut state = self.lock();
            if let Some(at) = state.waiting.iter().position(|waiting| waiting.ticket == ticket) {
                ended.push((state.waiting.remove(at).done, Err(Errno::EINTR), Vec::new()));
            }
        }
        complete(ended, self.caching);
    }

    fn forget(&self, inos: &[Ino]) {
        // Watchers are asked outside the lock: they may be inside an operation of their own.
        let others: Vec<_> = {
            let state = self.lock();
            let others = state.watchers.iter().filter(|(session, _)| **session != self.session);
            others.map(|(_, watcher)| Arc::clone(watcher)).collect()
        };
        let unknown: Vec<_> =
            inos.iter().filter(|ino| !others.iter().any(|watcher| watcher.knows(**ino))).collect();
        let mut state = self.lock();
        unknown.into_iter().for_each(|ino| state.model.forget(*ino));
    }

    fn handle_of(&self, ino: Ino, _: Kind) -> Option<Handle> {
        Handle::new(ino.to_vec().into())
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        Ino::from_slice(handle.as_bytes()).map_err(|_| Errno::ESTALE)
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

    fn keeping(&self, _: Ino, tell: &mut dyn FnMut(Caching)) {
        tell(self.caching);
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.lock().watchers.insert(self.session, watcher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::Name;
    use atoll_posix::{LockKind, LockRange};
    use atoll_vfs::call;
    use std::sync::mpsc::{Receiver, channel};

    fn lock_op(ino: Ino, kind: LockKind, wait: bool, flock: bool) -> Op {
        let lock = LockRange { start: 0, end: 9, kind, owner: 7, pid: 1, flock };
        Op::SetLock { ino, lock, wait }
    }

    fn with_file() -> (ModelFiles, ModelFiles, Ino) {
        let files = ModelFiles::new(AtimeRule::Never, Caching::Never);
        let op = Op::Create {
            dir: Ino::ROOT,
            name: Name::new(b"f").unwrap(),
            kind: Kind::Regular,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target: Bytes::new(),
        };
        let Ok((Answer::Found { found }, _)) = call(&files, &Caller::ROOT, op, Bytes::new()) else {
            panic!("not created")
        };
        let other = files.session(SessionId(2));
        (files, other, found.attr.ino)
    }

    fn submit(files: &ModelFiles, op: Op) -> (Ticket, Receiver<Result<Answer, Errno>>) {
        let (send, receive) = channel();
        let done: Done = Box::new(move |outcome, _| send.send(outcome).unwrap());
        (files.submit(&Caller::ROOT, op, Bytes::new(), done), receive)
    }

    #[test]
    fn who_waits_for_a_lock_gets_it_at_unlock_and_holds_no_thread() {
        let (files, other, ino) = with_file();
        submit(&files, lock_op(ino, LockKind::Write, false, false)).1.recv().unwrap().unwrap();
        let (ticket, waits) = submit(&other, lock_op(ino, LockKind::Read, true, false));
        assert_ne!(ticket, Ticket::default());
        assert!(waits.try_recv().is_err());
        submit(&files, lock_op(ino, LockKind::Unlock, false, false)).1.recv().unwrap().unwrap();
        assert_eq!(waits.try_recv().unwrap(), Ok(Answer::Done));
        let (_, refused) = submit(&files, lock_op(ino, LockKind::Write, false, false));
        assert_eq!(refused.recv().unwrap(), Err(Errno::EAGAIN));
    }

    #[test]
    fn a_wait_that_is_cancelled_ends_once_and_takes_nothing() {
        let (files, other, ino) = with_file();
        submit(&files, lock_op(ino, LockKind::Write, false, true)).1.recv().unwrap().unwrap();
        let (ticket, waits) = submit(&other, lock_op(ino, LockKind::Write, true, true));
        other.cancel(ticket);
        other.cancel(ticket);
        assert_eq!(waits.try_recv().unwrap(), Err(Errno::EINTR));
        submit(&files, lock_op(ino, LockKind::Unlock, false, true)).1.recv().unwrap().unwrap();
        assert!(waits.try_recv().is_err());
        submit(&files, lock_op(ino, LockKind::Write, false, true)).1.recv().unwrap().unwrap();
    }

    #[test]
    fn a_conversion_that_must_wait_lets_others_who_wait_go() {
        let (files, other, ino) = with_file();
        let third = files.session(SessionId(3));
        for one in [&files, &other] {
            submit(one, lock_op(ino, LockKind::Read, false, true)).1.recv().unwrap().unwrap();
        }
        let (_, third_waits) = submit(&third, lock_op(ino, LockKind::Write, true, true));
        let (_, first_waits) = submit(&files, lock_op(ino, LockKind::Write, true, true));
        assert!(third_waits.try_recv().is_err() && first_waits.try_recv().is_err());
        submit(&other, lock_op(ino, LockKind::Unlock, false, true)).1.recv().unwrap().unwrap();
        assert_eq!(third_waits.try_recv().unwrap(), Ok(Answer::Done));
        assert!(first_waits.try_recv().is_err());
    }

    struct Knows(Ino);

    impl Watcher for Knows {
        fn recall(&self, _: atoll_vfs::Scope<'_>) {}

        fn changed(&self, _: &[Ino], _: &[(Ino, Name)]) {}
        fn knows(&self, ino: Ino) -> bool {
            ino == self.0
        }
    }

    #[test]
    fn an_orphan_lives_while_a_client_knows_it() {
        let (files, other, ino) = with_file();
        other.set_watcher(Arc::new(Knows(ino)));
        let unlink = Op::Unlink { dir: Ino::ROOT, name: Name::new(b"f").unwrap() };
        let gone = call(&files, &Caller::ROOT, unlink, Bytes::new()).unwrap().0;
        assert_eq!(gone, Answer::Removed { orphan: Some(ino) });
        files.forget(&[ino]);
        assert!(files.model().attr(ino).is_some());
        other.forget(&[ino]);
        assert!(files.model().attr(ino).is_none());
    }
}
