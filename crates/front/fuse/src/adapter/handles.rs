//! Requests about open files and directories: opening, listing, locking and closing them.
//!
//! Opens are answered here, without the volume, unless it hears of them. Refusing OPEN for ever (a zero-message open) would cost less,
//! but then the kernel sends no RELEASE, and nobody would hear of the end of a `flock`. So only mounts with
//! local locks do that, and only if the volume hears of no opens.

use super::names::untold;
use super::{Core, Job, KEEP, Shape, opening};
use crate::abi::{self, Out, fopen, init, open};
use crate::accesses;
use crate::device::IO_BYTES_MAX;
use crate::fields::lock_range;
use crate::held::Holder;
use crate::listing::{Listing, Packed};
use crate::request::{Header, LockIn};
use crate::session::Flush;
use atoll_core::Ino;
use atoll_posix::{Caller, DirEntry, Errno, Kind, LockKind, LockRange, Op};
use atoll_vfs::Caching;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Opens a file. A truncation comes by itself, behind the kernel's own checks.
pub(super) fn open_file(core: &Arc<Core>, header: &Header, flags: u32) {
    if core.opens.is_some() {
        return opening::open_file(core, header, flags);
    }
    open_answer(core, header, flags, (core.handles.fetch_add(1, Relaxed), None));
}

/// In the numbers of handles through which the kernel reads and writes without pages of its own.
const DIRECT: u64 = 1 << 63;

/// Whether the kernel reads and writes without pages of its own, by the number of a handle.
pub(super) const fn is_direct(handle: u64) -> bool {
    handle & DIRECT != 0
}

/// The number by which the kernel knows a handle that is opened so.
pub(super) const fn number_of(handle: u64, open_flags: u32) -> u64 {
    if open_flags & fopen::DIRECT_IO != 0 { handle | DIRECT } else { handle }
}

/// The handle, by the number by which the kernel knows it.
pub(super) const fn handle_of(number: u64) -> u64 {
    number & !DIRECT
}

/// Answers an open with its handle and, if it is passed, the number of the native file. False if the kernel did not take it.
pub(super) fn open_answer(
    core: &Arc<Core>,
    header: &Header,
    flags: u32,
    (handle, passed): (u64, Option<u32>),
) -> bool {
    let (ino, reader) = (Ino(header.node), flags & open::ACCESS_MODE == 0);
    let mut taken = false;
    core.keeping(ino, |caching| {
        if reader && flags & open::NO_ACCESS_TIME == 0 && caching == Caching::UntilRecalled {
            // The kernel may have all of it, and read that without a request.
            accesses::read(core, ino, Kind::Regular);
        }
        let mut out = Out::with_capacity(abi::SMALL_OUT);
        let how = open_flags(core, flags, caching, passed);
        out.open_out(number_of(handle, how), how, passed.unwrap_or(0));
        taken = core.ok(header, &out.0);
    });
    taken
}

/// How a file is opened now.
pub(super) fn open_flags(core: &Core, flags: u32, caching: Caching, passed: Option<u32>) -> u32 {
    let agreed = core.agreed.get().map_or(0, |agreed| agreed.flags);
    let appends = flags & open::APPEND != 0 && flags & open::ACCESS_MODE != 0;
    let may_be_direct = agreed & init::DIRECT_IO_ALLOW_MMAP != 0;
    let cached = if passed.is_some() {
        fopen::PASSTHROUGH
    } else if caching == Caching::UntilRecalled && !(appends && may_be_direct) {
        fopen::KEEP_CACHE
    } else if may_be_direct {
        // Each read asks, as it would have to ask for attributes first if pages were kept. What is appended is not cut at the ends of
        // pages: between two parts of it others could append something.
        fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES
    } else {
        0
    };
    let reader = flags & open::ACCESS_MODE == 0;
    let quiet = core.config.flush == Flush::Writers && reader;
    cached | if quiet { fopen::NOFLUSH } else { 0 }
}

/// Opens a directory. If OPENDIR were refused for ever, the kernel would keep one listing for all openers.
pub(super) fn open_dir(core: &Core, header: &Header) {
    let (dir, handle) = (Ino(header.node), core.handles.fetch_add(1, Relaxed));
    core.keeping(dir, |caching| {
        let keeps = caching == Caching::UntilRecalled && core.listers.keeps(dir, handle);
        let mut out = Out::with_capacity(abi::SMALL_OUT);
        out.open_out(handle, if keeps { fopen::CACHE_DIR | fopen::KEEP_CACHE } else { 0 }, 0);
        if !core.ok(header, &out.0) {
            core.listers.closed(dir, handle);
        }
    });
}

/// Lists a directory; none if the handle is at its end already.
pub(super) fn read_dir(
    core: &Arc<Core>,
    (dir, handle): (Ino, u64),
    offset: u64,
    bytes: u32,
    flags: u32,
    plus: bool,
) -> Option<Job> {
    if core.listers.is_at_end(handle, offset) {
        return None;
    }
    if flags & open::NO_ACCESS_TIME == 0 {
        accesses::read(core, dir, Kind::Directory);
    }
    let listing = Listing { dir, handle, offset, size: (bytes as usize).min(IO_BYTES_MAX), plus };
    let after = listing.after();
    Some((Op::ReadDir { dir, after, bytes, plus }, Bytes::new(), Shape::Listing(listing)))
}

/// Answers a listing with these names.
pub(super) fn listed(
    core: &Core,
    header: &Header,
    listing: &Listing,
    (mut entries, eof): (Vec<DirEntry>, bool),
    kept: Duration,
) {
    if listing.plus && !core.accesses.is_empty() {
        for found in entries.iter_mut().filter_map(|entry| entry.found.as_mut()) {
            found.attr = core.accesses.shown(&found.attr);
        }
    }
    if listing.plus {
        let found = entries.iter_mut().filter_map(|entry| entry.found.as_mut());
        found.for_each(|found| found.attr_current &= !core.passed.has_writers(found.attr.ino));
    }
    if listing.plus && kept == KEEP {
        for entry in entries.iter().filter(|entry| entry.found.is_some()) {
            core.kept_names.tell(listing.dir, &entry.name, entry.kind == Kind::Directory);
        }
    }
    match listing.pack(&entries, eof, kept, (&core.nodes, &core.places)) {
        Ok(Packed { out, learned, end }) => {
            if let Some(end) = end {
                core.listers.ended(listing.handle, end);
            }
            if !core.ok(header, &out.0) {
                untold(core, &learned);
            }
        }
        Err(why) => core.fail(header, why),
    }
}

/// A file is closed for the last time: its locks go.
pub(super) fn release(core: &Arc<Core>, ino: Ino, handle: u64) {
    for holder in core.held.released(ino, handle) {
        unlock(core, ino, holder);
    }
    opening::close(core, handle_of(handle));
}

/// A descriptor is closed: the process's POSIX locks on the file go, before the answer, as whoever waits for this close
/// may take the lock. None if it has none.
pub(super) fn flush(core: &Core, ino: Ino, owner: u64) -> Option<Job> {
    let lock = everything(Holder { owner, fh: 0, flock: false });
    let held = core.held.closed(ino, owner);
    held.then(|| (Op::SetLock { ino, lock, wait: false }, Bytes::new(), Shape::Unit))
}

/// Takes away every lock of a holder. Nobody waits for that.
pub(crate) fn unlock(core: &Arc<Core>, ino: Ino, holder: Holder) {
    let op = Op::SetLock { ino, lock: everything(holder), wait: false };
    core.files.submit(&Caller::ROOT, op, Bytes::new(), Box::new(|_, _| {}));
}

fn everything(holder: Holder) -> LockRange {
    let Holder { owner, flock, .. } = holder;
    LockRange { start: 0, end: u64::MAX, kind: LockKind::Unlock, owner, pid: 0, flock }
}

pub(super) fn get_lock(ino: Ino, lock: &LockIn) -> Result<Job, Errno> {
    Ok((Op::GetLock { ino, lock: lock_range(lock)? }, Bytes::new(), Shape::Lock))
}

pub(super) fn set_lock(ino: Ino, asked: &LockIn, wait: bool) -> Result<Job, Errno> {
    let lock = lock_range(asked)?;
    let holder = Holder { owner: asked.owner, fh: asked.fh, flock: lock.flock };
    let unlocks = lock.kind == LockKind::Unlock;
    let shape = if unlocks { Shape::Unit } else { Shape::Granted { ino, holder } };
    Ok((Op::SetLock { ino, lock, wait }, Bytes::new(), shape))
}

/// The lock that is in the way, or that none is.
pub(super) fn lock(core: &Core, header: &Header, lock: &LockRange) {
    let kind = match lock.kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
        LockKind::Unlock => 2,
    };
    let end = lock.end.min(abi::LOCK_END);
    core.ok(header, &Out::with_capacity(abi::SMALL_OUT).u64(lock.start).u64(end).u32(kind).u32(lock.pid).0);
}
