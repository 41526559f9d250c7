//! Native handles, which name objects over restarts, and the places of directories. Owns the handles of files that were seen;
//! never answers with an object of another file system.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use atoll_core::Name;
use atoll_posix::{Errno, Kind};
use atoll_union::{At, NativeId, NativeReply};
use bytes::Bytes;

use super::{NativeTree, ProcPath, lock, os, stat_fd};
use crate::who::{daemon, last};

/// Handles of files that are remembered, at most. Past that all of them are forgotten, and files are found by name again.
const HANDLES_MAX: usize = 65_536;

/// Longest native handle in bytes (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// A native handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handle {
    kind: i32,
    bytes: Box<[u8]>,
}

/// As the kernel has it.
#[repr(C)]
struct Raw {
    len: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

/// The handle of an open object. `EOPNOTSUPP` if its file system has none.
pub(crate) fn native_handle(fd: BorrowedFd<'_>) -> Result<Handle, Errno> {
    let mut raw = Raw { len: HANDLE_BYTES_MAX as u32, kind: 0, bytes: [0; HANDLE_BYTES_MAX] };
    let mut mount = 0i32;
    // SAFETY: the kernel writes a handle of at most `len` bytes, and a number.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done != 0 {
        let errno = last();
        return Err(if errno == Errno::EOVERFLOW { Errno::EOPNOTSUPP } else { errno });
    }
    let len = (raw.len as usize).min(HANDLE_BYTES_MAX);
    Ok(Handle { kind: raw.kind, bytes: raw.bytes[..len].into() })
}

impl Handle {
    /// The kind in one byte, then the kernel's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8];
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// `ESTALE` if these bytes are no handle.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Errno> {
        match bytes {
            [kind, bytes @ ..] if bytes.len() <= HANDLE_BYTES_MAX => {
                Ok(Self { kind: i32::from(*kind), bytes: bytes.into() })
            }
            _ => Err(Errno::ESTALE),
        }
    }

    /// Opens what it names, without a right to its bytes.
    pub(super) fn open(&self, mount: &OwnedFd) -> Result<OwnedFd, Errno> {
        daemon();
        let mut raw = Raw { len: self.bytes.len() as u32, kind: self.kind, bytes: [0; HANDLE_BYTES_MAX] };
        raw.bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: the kernel reads `len` bytes of the handle.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw const raw, flags) };
        if fd < 0 {
            let errno = last();
            return Err(if errno == Errno::EINVAL { Errno::ESTALE } else { errno });
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Handles of files that were asked for or used.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<HashMap<NativeId, Handle>>);

impl Handles {
    pub(super) fn get(&self, id: NativeId) -> Option<Handle> {
        lock(&self.0).get(&id).cloned()
    }

    fn note(&self, id: NativeId, handle: Handle) {
        let mut table = lock(&self.0);
        if table.len() >= HANDLES_MAX {
            table.clear();
        }
        table.insert(id, handle);
    }
}

impl NativeTree {
    pub(super) fn handle_of(&self, of: &At) -> Result<Bytes, Errno> {
        daemon();
        let found = self.find(of)?;
        let handle = native_handle(found.fd())?;
        let bytes = handle.to_bytes().into();
        if rustix::process::geteuid().is_root() && !self.dirs.knows(of.id) {
            self.handles.note(of.id, handle);
        }
        Ok(bytes)
    }

    pub(super) fn by_handle(&self, bytes: &[u8]) -> Result<NativeReply, Errno> {
        let handle = Handle::from_bytes(bytes)?;
        let fd = handle.open(&*self.mount_dir()?)?;
        let stat = stat_fd(fd.as_fd())?;
        if stat.nlink == 0 {
            return Err(Errno::ESTALE);
        }
        if stat.kind != Kind::Directory {
            self.handles.note(stat.id, handle);
            return Ok(NativeReply::Placed { stat, path: None });
        }
        let path = self.path_of(fd.as_fd())?;
        if let Some(name) = path.last() {
            let above = rustix::fs::statx(&fd, c"..", super::NOFOLLOW, super::MASK).map_err(os)?;
            let above = super::native_stat(&above)?.id;
            self.dirs.insert(stat.id, fd, (above, name.clone()));
        }
        Ok(NativeReply::Placed { stat, path: Some(path) })
    }

    pub(super) fn place_of(&self, dir: NativeId) -> Result<NativeReply, Errno> {
        daemon();
        let fd = self.dir(dir)?;
        let stat = stat_fd(fd.as_fd())?;
        if stat.nlink == 0 {
            return Err(Errno::ESTALE);
        }
        Ok(NativeReply::Placed { stat, path: Some(self.path_of(fd.as_fd())?) })
    }

    /// The names from the root down to an open directory. `ESTALE` if it lies elsewhere.
    pub(super) fn path_of(&self, fd: BorrowedFd<'_>) -> Result<Vec<Name>, Errno> {
        let told =
            |fd: BorrowedFd<'_>| rustix::fs::readlink(ProcPath::of(fd).as_c_str(), Vec::new()).map_err(os);
        let root = told(self.mount_dir()?.as_fd())?;
        let path = told(fd)?;
        let root = root.as_bytes().strip_suffix(b"/").unwrap_or(root.as_bytes());
        let below = path.as_bytes().strip_prefix(root).ok_or(Errno::ESTALE)?;
        if !below.is_empty() && !below.starts_with(b"/") {
            return Err(Errno::ESTALE);
        }
        let names = below.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let names: Vec<Name> =
            names.map(|name| Name::new(name).map_err(|_| Errno::ESTALE)).collect::<Result<_, _>>()?;
        if names.is_empty() && stat_fd(fd)?.id != self.root.id {
            return Err(Errno::ESTALE);
        }
        Ok(names)
    }
}
