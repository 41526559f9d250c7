//! The identity in which a thread makes native calls. Owns the thread's file-system ids, groups, capabilities and umask while a
//! caller's call runs; never lets a foreign identity outlive a call, unless the thread asked for that.

use std::cell::RefCell;
use std::marker::PhantomData;

use atoll_posix::{Caller, Errno};

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
    /// The daemon's own ids, groups and capabilities.
    own: Option<Own>,
    /// Alive while the identity is foreign: a thread that was started now would inherit it.
    foreign: Option<atoll_handover::Foreign>,
}

#[derive(Debug)]
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    caps: Caps,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

type Caps = [CapData; 2];

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAP_VERSION: u32 = 0x2008_0522;

thread_local! {
    static THREAD: RefCell<Thread> = const {
        RefCell::new(Thread { acts: None, groups: Vec::new(), umask: None, kept: 0, own: None, foreign: None })
    };
}

/// The identity of the caller; gone when dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct Taken(PhantomData<*const ()>);

/// Keeps the identity from one call to the next, so that consecutive calls of one caller cost nothing. The thread must do nothing
/// but calls of members meanwhile: until this is dropped it may act as a user.
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
        taken.map(|()| Taken(PhantomData))
    })
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
        self.leave();
        let own = match &self.own {
            Some(own) => own,
            None => self.own.insert(Own::read()?),
        };
        if own.uid != 0 {
            return if caller.uid == own.uid { Ok(()) } else { Err(Errno::EACCES) };
        }
        if caller.uid == 0 && caller.gid == own.gid {
            return Ok(());
        }
        self.foreign = Some(atoll_handover::Foreign::begin());
        self.acts = Some((caller.uid, caller.gid));
        self.groups.clear();
        self.groups.extend_from_slice(groups);
        if groups != own.groups {
            set_groups(groups)?;
        }
        set_fs_id(libc::SYS_setfsgid, caller.gid)?;
        if caller.uid != 0 {
            set_fs_id(libc::SYS_setfsuid, caller.uid)?;
            // setfsuid takes the capabilities about files away. The others let a user write trusted attributes, exceed
            // a quota, or use the reserve that a file system keeps for root.
            let mut caps = own.caps;
            for half in &mut caps {
                half.effective = 0;
            }
            set_caps(&caps)?;
        }
        Ok(())
    }

    fn leave(&mut self) {
        let Some((uid, _)) = self.acts.take() else { return };
        let own = self.own.as_ref().expect("nobody acts for others before it knows itself");
        let back = || {
            if uid != 0 {
                set_fs_id(libc::SYS_setfsuid, own.uid)?;
                set_caps(&own.caps)?;
            }
            set_fs_id(libc::SYS_setfsgid, own.gid)?;
            if self.groups != own.groups {
                set_groups(&own.groups)?;
            }
            Ok::<(), Errno>(())
        };
        // A thread that cannot become the daemon again would go on with a user's rights.
        back().expect("root becomes root again");
        self.groups.clear();
        self.foreign = None;
    }
}

impl Own {
    fn read() -> Result<Self, Errno> {
        let groups = rustix::process::getgroups().map_err(crate::real::os)?;
        let header = CapHeader { version: CAP_VERSION, pid: 0 };
        let mut caps = Caps::default();
        // SAFETY: both are laid out as the kernel has them in version 3.
        if unsafe { libc::syscall(libc::SYS_capget, &raw const header, caps.as_mut_ptr()) } != 0 {
            return Err(last());
        }
        Ok(Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|group| group.as_raw()).collect(),
            caps,
        })
    }
}

fn set_fs_id(call: libc::c_long, id: u32) -> Result<(), Errno> {
    // SAFETY: no memory is involved. The raw call changes this thread only.
    unsafe { libc::syscall(call, id) };
    // It tells the old id, also when it fails: asked again with an id that nobody has, it tells the present one.
    // SAFETY: as above.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if now == i64::from(id) { Ok(()) } else { Err(Errno::EPERM) }
}

fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads so many numbers. The raw call changes this thread only.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(last()) }
}

fn set_caps(caps: &Caps) -> Result<(), Errno> {
    let header = CapHeader { version: CAP_VERSION, pid: 0 };
    // SAFETY: both are laid out as the kernel has them in version 3. The raw call changes this thread only.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, caps.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(last()) }
}

/// The error of the last call of libc.
pub(crate) fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
