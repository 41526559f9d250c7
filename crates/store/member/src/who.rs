//! The identity in which a thread makes native calls. Owns the thread's effective ids, groups and umask while a
//! caller's call runs; never lets a foreign identity outlive a call, unless the thread asked for that.

use std::cell::RefCell;
use std::marker::PhantomData;

use atoll_posix::{Caller, Errno};
use atoll_union::Who;

/// What one thread is at the moment.
#[derive(Debug)]
struct Thread {
    /// Whom it acts for. None: for the daemon.
    acts: Option<(u32, u32)>,
    /// The caller's supplementary groups that are set.
    groups: Vec<u32>,
    /// The umask that is set, once the thread has one of its own; and the daemon's.
    umask: Option<(u32, u32)>,
    /// How many scopes keep the identity from call to call.
    kept: usize,
    /// How many calls use the identity at the moment.
    used: usize,
    /// The daemon's own ids and groups.
    own: Option<Own>,
    /// Alive while the identity is foreign: a thread that was started now would inherit it.
    foreign: Option<atoll_handover::Foreign>,
}

#[derive(Debug)]
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

thread_local! {
    static THREAD: RefCell<Thread> = const {
        RefCell::new(Thread {
            acts: None,
            groups: Vec::new(),
            umask: None,
            kept: 0,
            used: 0,
            own: None,
            foreign: None,
        })
    };
}

/// The identity of the caller; gone when dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct Taken(PhantomData<*const ()>);

/// A caller whose groups are not told has his own only, as natively.
pub(crate) fn caller_of(who: &Who) -> Caller {
    match who {
        Who::Daemon => Caller::ROOT,
        Who::Caller(caller) => Caller { groups: Some(caller.groups.clone().unwrap_or_default()), ..*caller },
    }
}

/// Keeps the identity from one call to the next, so that consecutive calls of one caller cost nothing: a switch changes a thread's
/// credentials up to three times, at more than a microsecond each. `atoll_handover::slow` and the daemon's own calls drop it. Other
/// than that the thread may act as a user until this value is dropped: it must open nothing in between and start no thread.
#[derive(Debug)]
pub struct KeptIdentity(PhantomData<*const ()>);

/// Keeps the caller's identity on this thread between calls until the value is dropped.
pub fn keep_identity() -> KeptIdentity {
    THREAD.with_borrow_mut(|thread| thread.kept += 1);
    KeptIdentity(PhantomData)
}

impl Drop for KeptIdentity {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|thread| {
            thread.kept -= 1;
            if thread.kept == 0 {
                thread.leave();
            }
        });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|thread| {
            thread.used -= 1;
            if thread.kept == 0 {
                thread.leave();
            }
        });
    }
}

/// Acts as this caller until the value is dropped. `EACCES` if the daemon is not root and the caller is somebody else.
pub(crate) fn take(caller: &Caller) -> Result<Taken, Errno> {
    THREAD.with_borrow_mut(|thread| {
        let taken = thread.take(caller);
        if taken.is_err() {
            thread.leave();
        }
        taken.map(|()| {
            thread.used += 1;
            Taken(PhantomData)
        })
    })
}

/// Leaves an identity that is kept but not in use.
fn leave_kept() {
    THREAD.with_borrow_mut(|thread| {
        if thread.used == 0 {
            thread.leave();
        }
    });
}

/// Acts as the daemon, also where an identity is kept.
pub(crate) fn daemon() {
    THREAD.with_borrow_mut(Thread::leave);
}

/// Sets the umask of this thread until [`reset_umask`].
pub(crate) fn umask(mask: u32) -> Result<(), Errno> {
    THREAD.with_borrow_mut(|thread| {
        if thread.umask.is_none() {
            // SAFETY: only the file-system information (working directory, root, umask) becomes the thread's own.
            if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
                return Err(last());
            }
            let own = set_umask(0o077);
            set_umask(own);
            thread.umask = Some((own, own));
        }
        if let Some((now, _)) = &mut thread.umask
            && *now != mask
        {
            set_umask(mask);
            *now = mask;
        }
        Ok(())
    })
}

/// The daemon's umask again. Costs nothing where the caller's is the same.
pub(crate) fn reset_umask() {
    THREAD.with_borrow_mut(|thread| {
        if let Some((now, own)) = &mut thread.umask
            && now != own
        {
            set_umask(*own);
            *now = *own;
        }
    });
}

fn set_umask(mask: u32) -> u32 {
    // SAFETY: no memory is involved.
    unsafe { libc::umask(mask) }
}

impl Thread {
    fn take(&mut self, caller: &Caller) -> Result<(), Errno> {
        let groups = caller.groups.as_deref().unwrap_or(&[]);
        if self.acts == Some((caller.uid, caller.gid)) && self.groups == groups {
            return Ok(());
        }
        if self.own.is_none() {
            let own = Own::read()?;
            self.groups.clone_from(&own.groups);
            self.own = Some(own);
        }
        let own = self.own.as_ref().ok_or(Errno::EPERM)?;
        if own.uid != 0 {
            return if caller.uid == own.uid { Ok(()) } else { Err(Errno::EACCES) };
        }
        if caller.uid == 0 && caller.gid == own.gid {
            self.leave();
            return Ok(());
        }
        let (own_uid, own_gid) = (own.uid, own.gid);
        let (uid, gid) = match self.acts {
            Some(acts) => acts,
            None => (own_uid, own_gid),
        };
        if self.foreign.is_none() {
            self.foreign = Some(atoll_handover::Foreign::begin(leave_kept));
        }
        self.acts = Some((uid, gid));
        // Only root may change the others.
        if uid != 0 {
            set_effective_uid(0)?;
            self.acts = Some((0, gid));
        }
        if self.groups != groups {
            set_groups(groups)?;
            self.groups.clear();
            self.groups.extend_from_slice(groups);
        }
        if gid != caller.gid {
            set_effective_gid(caller.gid)?;
            self.acts = Some((0, caller.gid));
        }
        if caller.uid != 0 {
            // The effective capabilities go with it, all of them: else a user could write trusted attributes, exceed a
            // quota, or use the reserve that a file system keeps for root.
            set_effective_uid(caller.uid)?;
            self.acts = Some((caller.uid, caller.gid));
        }
        Ok(())
    }

    fn leave(&mut self) {
        let Some((uid, gid)) = self.acts.take() else { return };
        let own = self.own.as_ref().expect("nobody acts for others before it knows itself");
        let back = || {
            if uid != own.uid {
                set_effective_uid(own.uid)?;
            }
            if gid != own.gid {
                set_effective_gid(own.gid)?;
            }
            if self.groups != own.groups { set_groups(&own.groups) } else { Ok(()) }
        };
        // A thread that cannot become the daemon again would go on with a user's rights.
        back().expect("root becomes root again");
        self.groups.clone_from(&own.groups);
        self.foreign = None;
    }
}

impl Own {
    fn read() -> Result<Self, Errno> {
        let groups = rustix::process::getgroups().map_err(crate::real::os)?;
        Ok(Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|group| group.as_raw()).collect(),
        })
    }
}

/// The id that stays as it is.
const SAME: u32 = u32::MAX;

/// Also the id by which file systems judge. The real and the saved ids stay, so nobody may signal or trace the daemon.
fn set_effective_uid(uid: u32) -> Result<(), Errno> {
    // SAFETY: no memory is involved. The raw call changes this thread only.
    done(unsafe { libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) })
}

fn set_effective_gid(gid: u32) -> Result<(), Errno> {
    // SAFETY: as above.
    done(unsafe { libc::syscall(libc::SYS_setresgid, SAME, gid, SAME) })
}

fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads so many numbers. The raw call changes this thread only.
    done(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
}

fn done(told: libc::c_long) -> Result<(), Errno> {
    if told == 0 { Ok(()) } else { Err(last()) }
}

/// The error of the last call of libc.
pub(crate) fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
