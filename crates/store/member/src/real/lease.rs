//! Leases of files: nobody opens a file for writing while the union moves it. Owns no file; the kernel ends a lease with its descriptor.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use atoll_posix::{Errno, Kind};
use atoll_union::{At, NativeReply};
use rustix::fs::OFlags;

use super::{NativeTree, stat_fd};
use crate::who;

/// `F_SETSIG`, on all processors.
const F_SETSIG: i32 = 10;

impl NativeTree {
    pub(super) fn lease(&self, of: &At) -> Result<NativeReply, Errno> {
        who::daemon();
        let found = self.find(of)?;
        if stat_fd(found.fd())?.kind != Kind::Regular {
            return Err(Errno::EINVAL);
        }
        // Our own descriptors for writing would stand in the way.
        self.files.close_file(of.id);
        let fd = self.open_found(&found, OFlags::RDONLY)?;
        drop(found);
        // A broken lease is asked for. Its signal would end the process, unless it is one that is ignored.
        control(&fd, F_SETSIG, libc::SIGURG)?;
        match control(&fd, libc::F_SETLEASE, libc::F_RDLCK) {
            Err(Errno::EAGAIN) => return Err(Errno::EBUSY),
            Err(Errno::EINVAL) => return Err(Errno::EOPNOTSUPP),
            done => done?,
        };
        let stat = stat_fd(fd.as_fd())?;
        let open = self.files.pin(of.id, &Arc::new(fd), false);
        Ok(NativeReply::Opened { open, stat })
    }

    pub(super) fn lease_holds(&self, open: u64) -> Result<(), Errno> {
        let fd = self.files.backing(open).ok_or(Errno::EBADF)?;
        if control(&fd, libc::F_GETLEASE, 0)? == libc::F_RDLCK { Ok(()) } else { Err(Errno::EBUSY) }
    }
}

fn control(fd: &OwnedFd, command: i32, argument: i32) -> Result<i32, Errno> {
    // SAFETY: these commands take a number.
    let told = unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) };
    if told < 0 { Err(who::last()) } else { Ok(told) }
}
