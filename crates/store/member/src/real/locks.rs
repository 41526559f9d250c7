//! Native locks in the name of owners, so that they hold against every program of the machine. Owns one descriptor per owner and
//! file; never waits for a lock.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

use atoll_posix::{Errno, LockKind, LockRange};
use atoll_union::{At, NativeId};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::{NativeTree, lock, os, who};

/// Most locks that a tree holds for its owners: `ENOLCK` past that.
const LOCKS_MAX: usize = 65_536;

/// What an owner holds on a file: the descriptor whose locks they are, and the ranges.
#[derive(Debug)]
struct Held {
    fd: OwnedFd,
    /// First and last bytes. They overlap where the owner's requests did.
    ranges: Vec<(u64, u64)>,
}

/// Owners and their locks. The flag tells flock(2) from fcntl(2).
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<(u64, NativeId, bool), Held>>);

impl Locks {
    pub(super) fn drop_all(&self) {
        lock(&self.0).clear();
    }
}

/// Takes `(start, end)` out of the ranges.
fn cut(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    let left = ranges.drain(..).flat_map(|(from, to)| {
        let before = (from < start).then(|| (from, to.min(start.saturating_sub(1))));
        let behind = (to > end).then(|| (from.max(end.saturating_add(1)), to));
        [before, behind].into_iter().flatten()
    });
    *ranges = left.collect();
}

fn native(lock: &LockRange) -> Result<libc::flock, Errno> {
    if lock.start > lock.end {
        return Err(Errno::EINVAL);
    }
    let start = i64::try_from(lock.start).map_err(|_| Errno::EINVAL)?;
    // 0 is the end of the file, wherever that will be.
    let len = match lock.end {
        end if end >= i64::MAX as u64 => 0,
        end => (end - lock.start + 1) as i64,
    };
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    // SAFETY: plain numbers.
    let mut native: libc::flock = unsafe { std::mem::zeroed() };
    native.l_type = kind as _;
    native.l_whence = libc::SEEK_SET as _;
    native.l_start = start;
    native.l_len = len;
    Ok(native)
}

fn fcntl(fd: &OwnedFd, command: i32, native: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the kernel reads and writes one lock.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(native)) };
    if done == 0 {
        return Ok(());
    }
    let errno = who::last();
    Err(if errno == Errno::EACCES { Errno::EAGAIN } else { errno })
}

impl NativeTree {
    /// A descriptor whose locks are nobody else's.
    fn lock_descriptor(&self, of: &At) -> Result<OwnedFd, Errno> {
        who::daemon();
        let found = self.find(of)?;
        match self.open_found(&found, OFlags::RDWR) {
            Err(Errno::EACCES | Errno::EROFS | Errno(libc::ETXTBSY)) => {
                self.open_found(&found, OFlags::RDONLY)
            }
            opened => opened,
        }
    }

    pub(super) fn lock(&self, of: &At, want: &LockRange) -> Result<(), Errno> {
        // Whoever is told of the outcome may start a thread.
        who::daemon();
        let mut wanted = native(want)?;
        let key = (want.owner, of.id, want.flock);
        let mut table = lock(&self.locks.0);
        if !table.contains_key(&key) {
            if want.kind == LockKind::Unlock {
                return Ok(());
            }
            if table.len() >= LOCKS_MAX {
                return Err(Errno::ENOLCK);
            }
            let fd = self.lock_descriptor(of)?;
            table.insert(key, Held { fd, ranges: Vec::new() });
        }
        let held = table.get_mut(&key).expect("it was put there if it was not there");
        let done = if want.flock {
            flock(&held.fd, flock_operation(want.kind)).map_err(os)
        } else if held.ranges.len() >= atoll_posix::locks::HELD_MAX && want.kind != LockKind::Unlock {
            Err(Errno::ENOLCK)
        } else {
            fcntl(&held.fd, libc::F_OFD_SETLK, &mut wanted)
        };
        if done.is_ok() {
            let (start, end) = if want.flock { (0, u64::MAX) } else { (want.start, want.end) };
            cut(&mut held.ranges, start, end);
            if want.kind != LockKind::Unlock {
                held.ranges.push((start, end));
            }
        } else if want.flock {
            // A change of kind that was refused has let the old lock go.
            held.ranges.clear();
        }
        if held.ranges.is_empty() {
            table.remove(&key);
        }
        done
    }

    pub(super) fn test_lock(&self, of: &At, want: &LockRange) -> Result<LockRange, Errno> {
        let mut wanted = native(want)?;
        let free = LockRange { kind: LockKind::Unlock, ..*want };
        if want.kind == LockKind::Unlock {
            return Ok(free);
        }
        let table = lock(&self.locks.0);
        let held = table.get(&(want.owner, of.id, want.flock));
        if want.flock {
            if held.is_some() {
                // An owner's own lock is never in its way; whether another one is, only a change would tell.
                return Ok(free);
            }
            let fd = self.lock_descriptor(of)?;
            let blocked = |kind| flock(&fd, flock_operation(kind)) == Err(rustix::io::Errno::WOULDBLOCK);
            return Ok(match want.kind {
                kind if !blocked(kind) => free,
                _ if blocked(LockKind::Read) => LockRange {
                    start: 0,
                    end: u64::MAX,
                    kind: LockKind::Write,
                    owner: 0,
                    pid: 0,
                    flock: true,
                },
                _ => {
                    LockRange { start: 0, end: u64::MAX, kind: LockKind::Read, owner: 0, pid: 0, flock: true }
                }
            });
        }
        match held {
            Some(held) => fcntl(&held.fd, libc::F_OFD_GETLK, &mut wanted)?,
            None => fcntl(&self.lock_descriptor(of)?, libc::F_OFD_GETLK, &mut wanted)?,
        }
        let kind = match i32::from(wanted.l_type) {
            libc::F_UNLCK => return Ok(free),
            libc::F_RDLCK => LockKind::Read,
            _ => LockKind::Write,
        };
        let start = wanted.l_start.unsigned_abs();
        let end = if wanted.l_len == 0 { u64::MAX } else { start + wanted.l_len.unsigned_abs() - 1 };
        // The kernel names no process for the lock of an open file.
        let pid = u32::try_from(wanted.l_pid).unwrap_or(0);
        Ok(LockRange { start, end, kind, owner: 0, pid, flock: false })
    }
}

const fn flock_operation(kind: LockKind) -> FlockOperation {
    match kind {
        LockKind::Read => FlockOperation::NonBlockingLockShared,
        LockKind::Write => FlockOperation::NonBlockingLockExclusive,
        LockKind::Unlock => FlockOperation::NonBlockingUnlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_it_is_unlocked() {
        let mut ranges = vec![(0, 99), (200, u64::MAX)];
        cut(&mut ranges, 10, 19);
        assert_eq!(ranges, [(0, 9), (20, 99), (200, u64::MAX)]);
        cut(&mut ranges, 0, 250);
        assert_eq!(ranges, [(251, u64::MAX)]);
        cut(&mut ranges, 0, u64::MAX);
        assert!(ranges.is_empty());
    }
}
