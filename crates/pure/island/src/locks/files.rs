//! POSIX and flock locks at a file's home. Granted locks are rows, so they survive a restart. Waiting
//! requests are kept in memory, and ask again when a lock was freed.

use std::collections::{BTreeMap, VecDeque};

use atoll_core::map::IdMap;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, SessionId};
use atoll_posix::locks::{LockOwner, LockRefused, Locks};
use atoll_posix::{Answer, Errno, Kind, LockKind, LockRange, Op};
use atoll_proto::{ClientOp, Outcome, RequestResult, RowChange};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, PendingRequest, Step};
use crate::event::LinkId;
use crate::rows::path::{done, ok};

/// Requests that wait for locks at an island, with more of which no new one is looked at for a deadlock.
const LOOKED_AT_MAX: usize = 1024;

/// The requests that wait for a lock, by file, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileLocks {
    waiting: IdMap<Ino, VecDeque<PendingRequest>>,
}

impl Ctx {
    pub(crate) fn set_lock(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        lock: &LockRange,
        wait: bool,
    ) -> Result<Step, Blocked> {
        let mut locks = self.lockable(ino)?;
        let before = locks.clone();
        let given_up = match locks.set(call.session(), lock) {
            Ok(given_up) => given_up,
            Err(LockRefused::Blocked { released, .. }) => {
                if released {
                    // The old kind of lock went before the new one was had: others may go on.
                    let on = self.holds_on(call.session(), ino, &locks)?;
                    let mut decision = Decision::new();
                    decision.locks(ino, locks);
                    decision.push(RowChange::Held { session: call.session(), ino, on });
                    self.decide(decision);
                    self.next(Next::LockFreed(ino));
                }
                return Err(if wait { Blocked::Locked(ino) } else { Errno::EAGAIN.into() });
            }
            Err(LockRefused::BadRange) => return Err(Errno::EINVAL.into()),
            Err(LockRefused::TooMany) => return Err(Errno::ENOLCK.into()),
        };
        if locks == before && lock.kind == LockKind::Unlock {
            return Ok(Step::Looked(done()));
        }
        let session = call.session();
        let on = self.holds_on(session, ino, &locks)?;
        let mut decision = Decision::new();
        if !planted(Bug::LockForgotten) {
            decision.locks(ino, locks);
        }
        decision.push(RowChange::Held { session, ino, on });
        decision.remember_for(call, RequestResult::Done);
        self.decide(decision);
        if given_up {
            self.next(Next::LockFreed(ino));
        }
        Ok(Step::Decided(done()))
    }

    fn lockable(&self, ino: Ino) -> Result<Locks, Blocked> {
        // Directories can be locked with flock(2); what the lock is on plays no part here.
        let kind = match self.state.inode(ino)? {
            Some(row) => row.attr.kind,
            None => match self.state.dir(ino)? {
                Some(_) => Kind::Directory,
                None => return Err(Errno::ESTALE.into()),
            },
        };
        if matches!(kind, Kind::Symlink) {
            return Err(Errno::EBADF.into());
        }
        Ok(self.state.locks(ino)?.cloned().unwrap_or_default())
    }

    pub(crate) fn get_lock(&self, session: SessionId, ino: Ino, lock: &LockRange) -> Result<Step, Blocked> {
        let lock = self.lockable(ino)?.test(session, lock);
        Ok(Step::Looked(ok(Answer::Lock { lock }, None)))
    }

    /// Whether a session has locks on a file, or keeps it alive.
    fn holds_on(&self, session: SessionId, ino: Ino, locks: &Locks) -> Result<bool, Blocked> {
        let orphan = self.state.inode(ino)?.is_some_and(|row| row.orphan_of.contains(&session));
        Ok(orphan || locks.held().any(|(who, _)| who.session == session))
    }
}

/// The lock that a request waits for, or would, and whose it is to be; none if it is one of flock(2).
fn asked(call: &PendingRequest) -> Option<(LockOwner, Ino, LockRange)> {
    match call.request.op {
        ClientOp::Fs { op: Op::SetLock { ino, lock, .. } } if !lock.flock => {
            Some((LockOwner { session: call.session(), owner: lock.owner }, ino, lock))
        }
        _ => None,
    }
}

impl FileLocks {
    /// A request waits until a lock on a file is given up.
    pub(crate) fn wait(&mut self, ino: Ino, mut call: PendingRequest) {
        call.attempts += 1;
        self.waiting.entry(ino).or_default().push_back(call);
    }

    /// Whether who asks for a lock would wait for himself (`EDEADLK` of fcntl(2)): somebody with a lock in its way waits for one of his, or
    /// for somebody who does. Only locks of this island are looked at. As in Linux, those of flock(2) are not.
    pub(crate) fn is_circular(&self, ctx: &Ctx, call: &PendingRequest) -> bool {
        let Some(first) = asked(call).filter(|_| self.calls().count() <= LOOKED_AT_MAX) else { return false };
        let mut by_owner: BTreeMap<LockOwner, Vec<(Ino, LockRange)>> = BTreeMap::new();
        for (who, ino, lock) in self.calls().filter_map(asked) {
            by_owner.entry(who).or_default().push((ino, lock));
        }
        let (who, ..) = first;
        let mut left = vec![first];
        while let Some((waits, ino, lock)) = left.pop() {
            let Some(locks) = ctx.state.locks(ino).ok().flatten() else { continue };
            for blocker in locks.blockers(&lock, waits) {
                if blocker == who {
                    return true;
                }
                // Each once.
                let for_these = by_owner.remove(&blocker).unwrap_or_default();
                left.extend(for_these.into_iter().map(|(ino, lock)| (blocker, ino, lock)));
            }
        }
        false
    }

    /// Whether a request waits for a lock on a file.
    pub(crate) fn is_awaited(&self, ino: Ino) -> bool {
        self.waiting.contains_key(&ino)
    }

    /// The requests that wait.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest> {
        self.waiting.values().flatten()
    }

    /// Panics if nobody waits for a lock that is waited for.
    pub(crate) fn check(&self) {
        for waiting in self.waiting.values() {
            assert!(!waiting.is_empty(), "nobody waits for a lock that is waited for");
        }
    }

    /// Requests that wait for a lock on this file ask again, in the order in which they came.
    pub(crate) fn freed(&mut self, ctx: &mut Ctx, ino: Ino) {
        if planted(Bug::LockNotWoken) {
            return;
        }
        for call in self.waiting.remove(&ino).unwrap_or_default() {
            ctx.next(Next::Start(call));
        }
    }

    /// Clients that wait for a lock will ask again on a new link, if they have not done so already.
    pub(crate) fn link_closed(&mut self, ctx: &mut Ctx, link: LinkId) {
        for waiting in self.waiting.values_mut() {
            let here = |call: &PendingRequest| ctx.replies.link_of_answer(call) == link;
            let (gone, stay) = std::mem::take(waiting).into_iter().partition(here);
            *waiting = stay;
            let gone: VecDeque<PendingRequest> = gone;
            for call in gone {
                ctx.forget_request(&call);
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// Ends a request that waits for a lock, also if it only comes to that later.
    pub(crate) fn cancel(&mut self, ctx: &mut Ctx, link: LinkId, id: u64) {
        let Some((session, seq)) = ctx.replies.interrupt(link, id) else { return };
        let mut found = None;
        for waiting in self.waiting.values_mut() {
            let it = |call: &PendingRequest| (call.session(), call.request.seq) == (session, seq);
            if let Some(i) = waiting.iter().position(it) {
                found = waiting.remove(i);
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        if let Some(call) = found {
            ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EINTR });
        }
    }
}
