//! Files that a frontend opens in their members. Owns the opens that are under way, and answers those that hang.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use atoll_core::{IdMap, Ino};
use atoll_posix::{Caller, Errno};
use atoll_union::{NativeCall, NativeReply, Planned, SOFT_MS, Who, tag_of};

use crate::Federation;

/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// The number of an open, and the native file if a kernel may use that directly.
type Outcome = Result<(u64, Option<Arc<OwnedFd>>), Errno>;

/// Called once with the outcome of an open.
pub type OpenDone = Box<dyn FnOnce(Outcome) + Send>;

/// The opens under way, and when each began.
#[derive(Default)]
pub(crate) struct Opens(Mutex<IdMap<u64, (u64, OpenDone)>>);

impl Opens {
    fn lock(&self) -> MutexGuard<'_, IdMap<u64, (u64, OpenDone)>> {
        self.0.lock().expect("no holder panics")
    }
}

impl Federation {
    /// Opens a file for whoever may: its reads and writes use one descriptor from now on. An open that hangs is answered with
    /// `ETIMEDOUT` by another thread.
    pub fn open(&self, caller: &Caller, ino: Ino, write: bool, done: OpenDone) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.opens.lock().insert(id, (self.clock.now().ms, done));
        let outcome = self.open_now(caller, ino, write);
        let waits = self.opens.lock().remove(&id);
        match (waits, outcome) {
            (Some((_, done)), outcome) => done(outcome),
            // Nobody knows of it, so nobody would close it.
            (None, Ok((open, _))) => self.close(ino, open),
            (None, Err(_)) => {}
        }
    }

    fn open_now(&self, caller: &Caller, ino: Ino, write: bool) -> Outcome {
        let (tag, of) = self.machine().file_at(ino, write)?;
        let who = Who::Caller(caller.clone());
        let NativeReply::Opened { open, stat } =
            self.call(tag, &who, &NativeCall::Open { of, write }, &[])?
        else {
            return Err(Errno::EPROTO);
        };
        // A kernel that writes by itself takes these bits away whoever writes.
        // Nor can a file be moved that it writes.
        let keeps = write && (stat.mode & SET_ID_BITS != 0 || self.machine().is_short(tag));
        let backing = self.tree(tag).filter(|_| !keeps).and_then(|tree| tree.backing(open));
        Ok((open, backing))
    }

    /// An open has ended.
    pub fn close(&self, ino: Ino, open: u64) {
        // A file that was moved since has lost its opens with that.
        let tag = self.machine().known().file(ino).map_or_else(|| tag_of(ino), |file| file.tag);
        self.close_opens(vec![Planned { tag, who: Who::Daemon, call: NativeCall::Close { open } }]);
    }

    /// Answers opens that have waited too long.
    pub(crate) fn give_up_opens(&self) {
        let now = self.clock.now().ms;
        let late: Vec<(u64, OpenDone)> = {
            let mut opens = self.opens.lock();
            let late: Vec<u64> = opens
                .iter()
                .filter(|(_, (began, _))| now.saturating_sub(*began) >= SOFT_MS)
                .map(|(id, _)| *id)
                .collect();
            late.iter().filter_map(|id| opens.remove(id)).collect()
        };
        late.into_iter().for_each(|(_, done)| done(Err(Errno::ETIMEDOUT)));
    }
}
