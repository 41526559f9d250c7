//! Turns each request into an operation of the volume, and each outcome into an answer. Never waits
//! for one: the answer goes out from whichever thread completes the operation.
//!
//! Opens are answered here, without the volume. A zero-message open would be cheaper still, but
//! then the kernel sends no RELEASE, and nobody would hear that a `flock` is over: only a mount
//! whose locks are its own can have that.

use crate::abi::{self, MINOR_INC_EPOCH, Out, fopen, init, opcode, open};
use crate::accesses::{self, Accesses};
use crate::counters::Counters;
use crate::device::{Device, IO_BYTES_MAX};
use crate::dying::{Dying, interrupted, watch};
use crate::fields::{lock_range, set_attr};
use crate::fits::may_be_told;
use crate::gone;
use crate::held::{Held, Holder};
use crate::listers::Listers;
use crate::listing::{Listing, Packed};
use crate::mount::Entrance;
use crate::nodes::Nodes;
use crate::pending::Pending;
use crate::places::{Period, Place, Places};
use crate::request::{Header, Request};
use crate::session::{Config, Flush, Keep, Locks, Readers};
use crate::settle::{self, Moved, Settling};
use crate::told::Told;
use atoll_core::Ino;
use atoll_posix::{
    Allocation, Answer, Caller, Errno, Found, Kind, LockKind, LockRange, Op, RenameMode, SetAttr, Whence,
    XattrMode, mode,
};
use atoll_vfs::{Beside, Caching, Files};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// For how long the kernel may keep what is recalled before anybody else can change it.
pub(crate) const KEEP: Duration = Duration::from_secs(6);

/// Until when an answer holds: for so long in the kernel, and in this mount for the period in which no other one is
/// there, if none is.
pub(crate) type Keeping = (Duration, Option<Period>);

/// What INIT settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) minor: u32,
    pub(crate) flags: u64,
}

/// What all threads of one mount share.
pub(crate) struct Core {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) device: Arc<Device>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) places: Places,
    pub(crate) settling: Settling,
    pub(crate) entrance: Entrance,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    pub(crate) pending: Pending,
    pub(crate) dying: Dying,
    pub(crate) held: Held,
    pub(crate) counters: Counters,
    pub(crate) readers: Readers,
    pub(crate) config: Config,
    pub(crate) listers: Listers,
    pub(crate) told: Told,
    pub(crate) accesses: Accesses,
    pub(crate) handles: AtomicU64,
    /// Counts recalls.
    pub(crate) recalls: Arc<AtomicU64>,
}

/// How an outcome becomes an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing but success.
    Unit,
    /// A name's answer.
    Entry,
    /// The same for a directory at this place.
    Made(Place),
    /// The same for LOOKUP, where the absence of a name may be kept.
    Looked(Place),
    /// Nothing but success: what was meant is not there any more.
    RemovedDir {
        place: Place,
        meant: Option<Ino>,
    },
    /// What was meant by both names, too.
    Renamed {
        from: Place,
        to: Place,
        mode: RenameMode,
        meant: [Option<Ino>; 2],
    },
    /// A name's answer and an open file's. `exclusive`: the caller asked for O_EXCL.
    Created {
        flags: u32,
        exclusive: bool,
    },
    Attr,
    /// Attributes after this change.
    Changed(SetAttr),
    Statx,
    /// Bytes, at most so many.
    Data {
        max: usize,
    },
    /// Bytes, their length alone if `size` is 0; `ERANGE` if they do not fit.
    Value {
        size: usize,
    },
    Written,
    /// In 64 bits.
    WrittenWide,
    Statfs,
    Lock,
    Granted {
        ino: Ino,
        holder: Holder,
    },
    Offset,
    Listing(Listing),
}

impl Core {
    /// What the kernel may keep of what the volume allows. Older kernels cannot be made to drop all names, so
    /// nothing that is recalled is kept there.
    fn allowed(&self, caching: Caching) -> Caching {
        let recallable = self.agreed.get().is_some_and(|agreed| agreed.minor >= MINOR_INC_EPOCH);
        match caching {
            _ if self.config.keep == Keep::Nothing => Caching::Never,
            Caching::UntilRecalled if !recallable => Caching::Never,
            caching => caching,
        }
    }

    /// What the kernel may keep of a file of which the volume is not asked now. May be passed on inside `tell` only.
    fn keeping(&self, ino: Ino, mut tell: impl FnMut(Caching)) {
        self.files.keeping(ino, &mut |caching| tell(self.allowed(caching)));
    }

    /// What the volume has promised: while that is passed on, the period in which no other mount is there. What the
    /// volume says holds until it ends.
    fn alone(&self, promised: Caching) -> Option<Period> {
        (promised == Caching::UntilRecalled).then(|| Period(self.recalls.load(SeqCst)))
    }

    /// A directory was removed, as the volume has just said.
    pub(crate) fn removed(&self, dir: Ino) {
        self.files.keeping(dir, &mut |promised| self.places.removed(dir, self.alone(promised)));
    }

    pub(crate) fn ok(&self, header: &Header, body: &[u8]) -> bool {
        self.device.reply(header.unique, [body, &[]])
    }

    /// The volume answered something else than was asked.
    fn misfit(&self, header: &Header) {
        tracing::warn!(opcode = header.opcode, "the volume's answer does not fit the request, which fails");
        self.fail(header, Errno::EIO);
    }

    pub(crate) fn fail(&self, header: &Header, why: Errno) {
        self.counters.failed(header.opcode, why);
        self.device.fail(header.unique, why);
    }

    /// Tells the kernel of a name's id, which is counted already.
    fn found(&self, header: &Header, found: &Found, kept: Duration) {
        let mut out = Out::with_capacity(abi::ENTRY_OUT);
        let attr = self.accesses.shown(&found.attr);
        out.entry(&attr, kept, if found.attr_current { kept } else { Duration::ZERO });
        if !self.ok(header, &out.0) {
            untold(self, &[found.attr.ino]);
        }
    }

    /// Counts a directory, and tells the kernel of it at this place, wherever it had it before.
    fn found_dir(&self, header: &Header, found: &Found, place: &Place, (kept, alone): Keeping) {
        self.nodes.raise(found.attr.ino);
        let _ = self.places.learn(found, place, alone);
        self.found(header, found, kept);
    }

    /// The directory that a thread means by a name, as far as it is known.
    fn meant(&self, thread: u32, place: &Place) -> Option<Ino> {
        self.told.take(thread, place).unwrap_or_else(|| self.places.at(place))
    }

    /// The kernel forgets an id so many times. True if it does not know it any more.
    fn lower(&self, ino: Ino, count: u64) -> bool {
        let gone = self.nodes.lower(ino, count);
        // Told of it again meanwhile, it has a place.
        if gone && !self.nodes.knows(ino) {
            self.places.forgotten(ino);
        }
        gone
    }

    /// The kernel forgets an id.
    fn forget(&self, gone: &mut Vec<Ino>, ino: u64, count: u64) {
        if self.lower(Ino(ino), count) {
            gone.push(Ino(ino));
        }
    }

    /// How a file is opened now.
    fn open_flags(&self, flags: u32, caching: Caching) -> u32 {
        let agreed = self.agreed.get().map_or(0, |agreed| agreed.flags);
        let cached = if caching == Caching::UntilRecalled {
            fopen::KEEP_CACHE
        } else if agreed & init::DIRECT_IO_ALLOW_MMAP != 0 {
            // Each read asks, as it would have to ask for attributes first if pages were kept.
            fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES
        } else {
            0
        };
        let reader = flags & open::ACCESS_MODE == 0;
        let quiet = self.config.flush == Flush::Writers && reader;
        cached | if quiet { fopen::NOFLUSH } else { 0 }
    }
}

/// Serves one request. `payload` are the bytes of a write.
pub(crate) fn serve(core: &Arc<Core>, header: Header, request: Result<Request<'_>, Errno>, payload: Bytes) {
    core.counters.came(header.opcode);
    let request = match request {
        Ok(request) => request,
        Err(_) if matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) => {
            return;
        }
        Err(why) => return core.fail(&header, why),
    };
    match translate(core, &header, request, payload) {
        Ok(Some((op, data, shape))) => {
            let caller = Caller { uid: header.uid, gid: header.gid, groups: None };
            if let Shape::Looked(place) = &shape
                && core.settling.is_busy()
            {
                let (mine, place) = (Arc::clone(core), place.clone());
                let later = Box::new(move || submit(&mine, header, caller, op, data, shape, 0));
                return settle::hold(core, header.pid, &place, later);
            }
            submit(core, header, caller, op, data, shape, 0);
        }
        Ok(None) => {}
        Err(why) => core.fail(&header, why),
    }
}

type Job = (Op, Bytes, Shape);

/// The operation that a request asks for; none if it was served right here.
fn translate(
    core: &Arc<Core>,
    header: &Header,
    request: Request<'_>,
    payload: Bytes,
) -> Result<Option<Job>, Errno> {
    let ino = Ino(header.node);
    let dir = ino;
    let job = |op, shape| Ok(Some((op, Bytes::new(), shape)));
    let answered = |body: &[u8]| {
        core.ok(header, body);
        Ok(None)
    };
    match request {
        // Once and for all: the kernel has no locks to tell of.
        Request::Open { .. } | Request::Flush { .. } if core.config.locks == Locks::Local => {
            Err(Errno::ENOSYS)
        }
        Request::Lookup { name } => {
            let shape = Shape::Looked(Place { dir, name: name.clone() });
            job(Op::Lookup { dir, name }, shape)
        }
        Request::Forget { count } => {
            let mut gone = Vec::new();
            core.forget(&mut gone, header.node, count);
            if !gone.is_empty() {
                core.files.forget(&gone);
            }
            Ok(None)
        }
        Request::BatchForget { list } => {
            let mut gone = Vec::new();
            for pair in list.chunks_exact(16) {
                let (node, count) = pair.split_at(8);
                let number = |b: &[u8]| u64::from_ne_bytes(b.try_into().expect("half of sixteen bytes"));
                core.forget(&mut gone, number(node), number(count));
            }
            if !gone.is_empty() {
                core.files.forget(&gone);
            }
            Ok(None)
        }
        Request::GetAttr => job(Op::GetAttr { ino }, Shape::Attr),
        Request::Statx if core.config.birth_times => job(Op::GetAttr { ino }, Shape::Statx),
        Request::SetAttr(fields) => {
            let set = set_attr(&fields)?;
            if set.atime.is_some() {
                core.accesses.was_set(ino);
            }
            job(Op::SetAttr { ino, set }, Shape::Changed(set))
        }
        Request::Readlink => {
            accesses::read(core, ino, Kind::Symlink);
            job(Op::Readlink { ino }, Shape::Data { max: IO_BYTES_MAX })
        }
        Request::Symlink { name, target } => {
            let target = Bytes::copy_from_slice(target);
            let kind = Kind::Symlink;
            let op = Op::Create { dir, name, kind, mode: 0o777, umask: 0, rdev: 0, exclusive: true, target };
            job(op, Shape::Entry)
        }
        Request::Mknod { mode: st_mode, rdev, umask, name } => {
            // No type at all means a regular file.
            let format = if st_mode & !mode::ALL == 0 { Kind::Regular.format_bits() } else { st_mode };
            let kind =
                Kind::from_format_bits(format).filter(|k| *k != Kind::Directory).ok_or(Errno::EINVAL)?;
            let (mode, target) = (st_mode & mode::ALL, Bytes::new());
            job(Op::Create { dir, name, kind, mode, umask, rdev, exclusive: true, target }, Shape::Entry)
        }
        Request::Mkdir { mode, umask, name } => {
            let shape = Shape::Made(Place { dir, name: name.clone() });
            job(Op::Mkdir { dir, name, mode: mode & mode::ALL, umask }, shape)
        }
        Request::Unlink { name } => job(Op::Unlink { dir, name }, Shape::Unit),
        Request::Rmdir { name } => {
            let place = Place { dir, name: name.clone() };
            let meant = core.meant(header.pid, &place);
            job(Op::Rmdir { dir, name, meant }, Shape::RemovedDir { place, meant })
        }
        Request::Rename { new_dir, flags, name, new_name } => {
            let mode = match flags {
                0 => RenameMode::Replace,
                1 => RenameMode::NoReplace,
                2 => RenameMode::Exchange,
                _ => return Err(Errno::EINVAL),
            };
            let new_dir = Ino(new_dir);
            let from = Place { dir, name: name.clone() };
            let to = Place { dir: new_dir, name: new_name.clone() };
            let [meant, new_meant] = [&from, &to].map(|place| core.meant(header.pid, place));
            // Else the kernel, which knows of nothing there, is told that it is taken.
            let new_meant = new_meant.filter(|_| mode != RenameMode::NoReplace);
            let shape = Shape::Renamed { from, to, mode, meant: [meant, new_meant] };
            job(Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }, shape)
        }
        Request::Link { old, name } => job(Op::Link { ino: Ino(old), dir, name }, Shape::Entry),
        // A truncation comes by itself, behind the kernel's own checks.
        Request::Open { flags } => {
            let reader = flags & open::ACCESS_MODE == 0;
            core.keeping(ino, |caching| {
                if reader && flags & open::NO_ACCESS_TIME == 0 && caching == Caching::UntilRecalled {
                    // The kernel may have all of it, and read that without a request.
                    accesses::read(core, ino, Kind::Regular);
                }
                core.answer_open(header, flags, caching);
            });
            Ok(None)
        }
        Request::Create { flags, mode, umask, name } => {
            let (kind, mode, target) = (Kind::Regular, mode & mode::ALL, Bytes::new());
            // Always exclusive: only the kernel can judge whether a file that is there may be
            // opened and truncated. ESTALE, below, makes it look again and do so.
            let op = Op::Create { dir, name, kind, mode, umask, rdev: 0, exclusive: true, target };
            job(op, Shape::Created { flags, exclusive: flags & open::EXCLUSIVE != 0 })
        }
        Request::Read { offset, size, flags } => {
            if flags & open::NO_ACCESS_TIME == 0 {
                accesses::read(core, ino, Kind::Regular);
            }
            let max = size as usize;
            job(Op::Read { ino, offset, len: size }, Shape::Data { max })
        }
        Request::Write { offset, write_flags, flags, .. } => {
            // Pages that the kernel writes back have their place already.
            let append = flags & open::APPEND != 0 && write_flags & abi::WRITE_CACHE == 0;
            let kill_set_id = write_flags & abi::WRITE_KILL_SUIDGID != 0;
            let op = Op::Write { ino, offset, append, kill_set_id };
            Ok(Some((op, payload, Shape::Written)))
        }
        Request::Statfs => job(Op::Statfs, Shape::Statfs),
        Request::Release { fh } => {
            for holder in core.held.released(ino, fh) {
                unlock(core, ino, holder);
            }
            answered(&[])
        }
        Request::Flush { lock_owner } => {
            if !core.held.closed(ino, lock_owner) {
                return answered(&[]);
            }
            // Before the answer: whoever waits for this close may take the lock.
            let lock = everything(Holder { owner: lock_owner, fh: 0, flock: false });
            job(Op::SetLock { ino, lock, wait: false }, Shape::Unit)
        }
        Request::ReleaseDir { fh } => {
            core.listers.closed(dir, fh);
            answered(&[])
        }
        Request::Fsync => job(Op::Fsync { ino }, Shape::Unit),
        Request::FsyncDir => job(Op::FsyncDir { dir }, Shape::Unit),
        Request::SetXattr { flags, setxattr_flags, name, value } => {
            let mode = match flags {
                0 => XattrMode::Any,
                1 => XattrMode::Create,
                2 => XattrMode::Replace,
                _ => return Err(Errno::EINVAL),
            };
            let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            let kill_sgid = setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            job(Op::SetXattr { ino, name, value, mode, kill_sgid }, Shape::Unit)
        }
        Request::GetXattr { size, name } => {
            let size = size as usize;
            job(Op::GetXattr { ino, name: Bytes::copy_from_slice(name) }, Shape::Value { size })
        }
        Request::ListXattr { size } => job(Op::ListXattr { ino }, Shape::Value { size: size as usize }),
        Request::RemoveXattr { name } => {
            job(Op::RemoveXattr { ino, name: Bytes::copy_from_slice(name) }, Shape::Unit)
        }
        Request::OpenDir => {
            core.answer_open_dir(header);
            Ok(None)
        }
        Request::ReadDir { fh, offset, size, flags, plus } => {
            if core.listers.is_at_end(fh, offset) {
                return answered(&[]);
            }
            if flags & open::NO_ACCESS_TIME == 0 {
                accesses::read(core, dir, Kind::Directory);
            }
            let listing = Listing { dir, handle: fh, offset, size: (size as usize).min(IO_BYTES_MAX), plus };
            let after = listing.after();
            job(Op::ReadDir { dir, after, bytes: size, plus }, Shape::Listing(listing))
        }
        Request::GetLock(lock) => job(Op::GetLock { ino, lock: lock_range(&lock)? }, Shape::Lock),
        Request::SetLock { lock: asked, wait } => {
            let lock = lock_range(&asked)?;
            let holder = Holder { owner: asked.owner, fh: asked.fh, flock: lock.flock };
            let unlocks = lock.kind == LockKind::Unlock;
            let shape = if unlocks { Shape::Unit } else { Shape::Granted { ino, holder } };
            job(Op::SetLock { ino, lock, wait }, shape)
        }
        Request::Interrupt { unique } => {
            if let Some(waiting) = core.pending.interrupt(unique) {
                interrupted(core, waiting);
            }
            Ok(None)
        }
        Request::Fallocate { offset, length, mode } => {
            let what = match mode {
                0 => Allocation::Allocate { keep_size: false },
                0x01 => Allocation::Allocate { keep_size: true },
                0x03 => Allocation::PunchHole,
                0x10 => Allocation::ZeroRange { keep_size: false },
                0x11 => Allocation::ZeroRange { keep_size: true },
                _ => return Err(Errno::EOPNOTSUPP),
            };
            job(Op::Fallocate { ino, offset, len: length, what }, Shape::Unit)
        }
        Request::Seek { offset, whence } => {
            let whence = match whence {
                3 => Whence::Data,
                4 => Whence::Hole,
                _ => return Err(Errno::EINVAL),
            };
            job(Op::Seek { ino, offset, whence }, Shape::Offset)
        }
        Request::CopyRange { offset, to, to_offset, len, flags, wide } => {
            if flags != 0 {
                return Err(Errno::EINVAL);
            }
            let shape = if wide { Shape::WrittenWide } else { Shape::Written };
            // The short answer has 32 bits.
            let len = if wide { len } else { len.min(u64::from(u32::MAX) & !0xfff) };
            job(Op::CopyRange { from: ino, from_offset: offset, to: Ino(to), to_offset, len }, shape)
        }
        Request::Init { major, minor, max_readahead, flags } => {
            core.answer_init(header, major, minor, max_readahead, flags);
            Ok(None)
        }
        Request::Destroy => answered(&[]),
        Request::Ioctl => Err(Errno(25)), // ENOTTY
        // Once and for all: what is not known here is not asked again.
        Request::Statx | Request::Other => Err(Errno::ENOSYS),
    }
}

impl Core {
    fn answer_open(&self, header: &Header, flags: u32, caching: Caching) {
        let mut out = Out::with_capacity(16);
        out.open_out(self.handles.fetch_add(1, Relaxed), self.open_flags(flags, caching));
        self.ok(header, &out.0);
    }

    /// A zero-message open would have the kernel keep listings for all who open a directory.
    fn answer_open_dir(&self, header: &Header) {
        let (dir, handle) = (Ino(header.node), self.handles.fetch_add(1, Relaxed));
        self.keeping(dir, |caching| {
            let keeps = caching == Caching::UntilRecalled && self.listers.keeps(dir, handle);
            let mut out = Out::with_capacity(16);
            out.open_out(handle, if keeps { fopen::CACHE_DIR | fopen::KEEP_CACHE } else { 0 });
            if !self.ok(header, &out.0) {
                self.listers.closed(dir, handle);
            }
        });
    }
}

/// Takes away every lock of a holder; nobody waits for it.
pub(crate) fn unlock(core: &Arc<Core>, ino: Ino, holder: Holder) {
    let op = Op::SetLock { ino, lock: everything(holder), wait: false };
    core.files.submit(&Caller::ROOT, op, Bytes::new(), Box::new(|_, _| {}));
}

fn everything(holder: Holder) -> LockRange {
    let Holder { owner, flock, .. } = holder;
    LockRange { start: 0, end: u64::MAX, kind: LockKind::Unlock, owner, pid: 0, flock }
}

/// Starts an operation whose outcome answers the request, which has been tried so many times.
pub(crate) fn submit(
    core: &Arc<Core>,
    header: Header,
    caller: Caller,
    op: Op,
    data: Bytes,
    shape: Shape,
    tries: u8,
) {
    let with_groups = (caller.groups.is_none() && caller.uid != 0).then(|| (op.clone(), data.clone()));
    let done = move |core: &Arc<Core>, outcome: Result<Answer, Errno>, beside: Beside<'_>| {
        if outcome == Err(Errno::EACCES)
            && let Some((op, data)) = with_groups
        {
            let groups = supplementary_groups(&header);
            let caller = Caller { uid: header.uid, gid: header.gid, groups: Some(groups) };
            return submit(core, header, caller, op, data, shape, tries);
        }
        if outcome == Err(Errno::ESTALE) {
            return gone::stale(core, header, shape, tries);
        }
        finish(core, &header, shape, outcome, beside);
    };
    start(core, header, &caller, (op, data), done);
}

/// Starts an operation for a request, for which the caller waits.
pub(crate) fn start(
    core: &Arc<Core>,
    header: Header,
    caller: &Caller,
    (op, data): (Op, Bytes),
    done: impl FnOnce(&Arc<Core>, Result<Answer, Errno>, Beside<'_>) + Send + 'static,
) {
    let for_lock = matches!(op, Op::SetLock { wait: true, .. });
    let mine = Arc::clone(core);
    let done = move |outcome: Result<Answer, Errno>, beside: Beside<'_>| {
        mine.pending.completed(header.unique);
        done(&mine, outcome, beside);
    };
    let start = || core.files.submit(caller, op, data, Box::new(done));
    if let Some(early) = core.pending.submit((header.unique, header.pid, for_lock), start) {
        interrupted(core, early);
    } else if header.opcode == opcode::FLUSH
        && let Some(waiting) = core.pending.waiting(header.unique)
    {
        // A process closes its files when it ends, and nothing interrupts that.
        watch(core, waiting);
    } else if core.settling.is_busy() {
        settle::started(core, header.pid, header.unique);
    }
}

/// The groups of the thread that asks, which may be none: then it is known that there are none. It
/// waits for this request, so its number still means it.
fn supplementary_groups(header: &Header) -> Vec<u32> {
    let status = match header.pid {
        // Not in this pid namespace: nobody can tell.
        0 => return Vec::new(),
        pid => std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
    };
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|g| g.parse().ok()).collect()
}

/// For how long the kernel is told to keep something.
const fn kept(caching: Caching) -> Duration {
    match caching {
        Caching::Never => Duration::ZERO,
        Caching::ForMs(ms) => Duration::from_millis(ms as u64),
        Caching::UntilRecalled => KEEP,
    }
}

/// Answers a request with the outcome of its operation.
pub(crate) fn finish(
    core: &Arc<Core>,
    header: &Header,
    shape: Shape,
    outcome: Result<Answer, Errno>,
    beside: Beside<'_>,
) {
    // Until this returns: a recall waits for promises that are being passed on.
    let (alone, caching) = (core.alone(beside.caching), core.allowed(beside.caching));
    let (bytes, kept) = (beside.bytes, kept(caching));
    let answer = match (outcome, &shape) {
        (Ok(answer), _) => answer,
        (Err(Errno::ENOENT), Shape::Looked(place)) => {
            core.told.tell(header.pid, place.clone(), None);
            if kept.is_zero() {
                return core.fail(header, Errno::ENOENT);
            }
            let mut out = Out::with_capacity(abi::ENTRY_OUT);
            core.ok(header, &out.absent(kept).0);
            return;
        }
        (Err(Errno::EEXIST), Shape::Created { exclusive: false, .. }) => {
            return core.fail(header, Errno::ESTALE);
        }
        // ENOSYS would make the kernel do without the operation for ever.
        (Err(Errno::ENOSYS), _) => return core.fail(header, Errno::EOPNOTSUPP),
        (Err(why), _) => return core.fail(header, why),
    };
    if !may_be_told(header, &shape, &answer) {
        return core.misfit(header);
    }
    let mut out = Out::with_capacity(160);
    match (shape, answer) {
        (Shape::Unit, _) => _ = core.ok(header, &[]),
        (Shape::Looked(place), Answer::Found { found }) if found.attr.kind == Kind::Directory => {
            core.told.tell(header.pid, place.clone(), Some(found.attr.ino));
            looked(core, header, &found, place, (kept, alone));
        }
        (shape @ (Shape::Entry | Shape::Looked(_)), Answer::Found { found }) => {
            if let Shape::Looked(place) = shape {
                core.told.tell(header.pid, place, None);
            }
            core.nodes.raise(found.attr.ino);
            core.found(header, &found, kept);
        }
        (Shape::Made(place), Answer::Found { found }) => {
            core.told.tell(header.pid, place.clone(), Some(found.attr.ino));
            core.found_dir(header, &found, &place, (kept, alone));
        }
        (Shape::RemovedDir { place, meant }, _) => {
            if let Some(gone) = meant {
                core.places.vacate(gone, &place);
                core.places.removed(gone, alone);
            }
            core.ok(header, &[]);
        }
        (Shape::Created { flags, .. }, Answer::Found { found }) => {
            let ino = found.attr.ino;
            out.entry(&found.attr, kept, if found.attr_current { kept } else { Duration::ZERO });
            out.open_out(core.handles.fetch_add(1, Relaxed), core.open_flags(flags, caching));
            core.nodes.raise(ino);
            if !core.ok(header, &out.0) {
                untold(core, &[ino]);
            }
        }
        (Shape::Renamed { from, to, mode, .. }, _) => {
            core.places.renamed(&from, &to, mode == RenameMode::Exchange);
            core.ok(header, &[]);
        }
        (Shape::Attr | Shape::Changed(_), Answer::Attr { attr }) => {
            core.places.saw(&attr, alone);
            core.ok(header, &out.attr_out(&core.accesses.shown(&attr), kept).0);
        }
        (Shape::Statx, Answer::Attr { attr }) => {
            core.places.saw(&attr, alone);
            core.ok(header, &out.statx_out(&core.accesses.shown(&attr), kept).0);
        }
        (Shape::Data { max }, Answer::Data) if bytes.len() <= max => _ = core.ok(header, bytes),
        (Shape::Value { size: 0 }, Answer::Data) => match u32::try_from(bytes.len()) {
            Ok(len) => _ = core.ok(header, &out.u32(len).u32(0).0),
            Err(_) => core.misfit(header),
        },
        (Shape::Value { size }, Answer::Data) if bytes.len() > size => core.fail(header, Errno::ERANGE),
        (Shape::Value { .. }, Answer::Data) => _ = core.ok(header, bytes),
        (Shape::Written, Answer::Wrote { len, .. }) => match u32::try_from(len) {
            Ok(len) => _ = core.ok(header, &out.u32(len).u32(0).0),
            Err(_) => core.misfit(header),
        },
        (Shape::WrittenWide, Answer::Wrote { len, .. }) => _ = core.ok(header, &out.u64(len).0),
        (Shape::Statfs, Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, .. }) => {
            out.statfs(bytes, bytes_free, bytes_available, inodes, inodes_free);
            core.ok(header, &out.0);
        }
        (Shape::Lock, Answer::Lock { lock }) => {
            let kind = match lock.kind {
                LockKind::Read => 0,
                LockKind::Write => 1,
                LockKind::Unlock => 2,
            };
            let end = lock.end.min(abi::LOCK_END);
            core.ok(header, &out.u64(lock.start).u64(end).u32(kind).u32(lock.pid).0);
        }
        (Shape::Granted { ino, holder }, _) => {
            core.held.granted(ino, holder);
            core.ok(header, &[]);
        }
        (Shape::Offset, Answer::Offset { offset }) => _ = core.ok(header, &out.u64(offset).0),
        (Shape::Listing(listing), Answer::Entries { mut entries, eof }) => {
            if listing.plus && !core.accesses.is_empty() {
                for found in entries.iter_mut().filter_map(|entry| entry.found.as_mut()) {
                    found.attr = core.accesses.shown(&found.attr);
                }
            }
            match listing.pack(&entries, eof, (kept, alone), (&core.nodes, &core.places)) {
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
        _ => core.misfit(header),
    }
}

/// Answers a lookup that found a directory, when the kernel can put it to this place.
fn looked(core: &Arc<Core>, header: &Header, found: &Found, place: Place, keeping: Keeping) {
    let ino = found.attr.ino;
    // Before it is learnt, so that what is forgotten meanwhile does not take the place away.
    core.nodes.raise(ino);
    let Some(old) = core.places.learn(found, &place, keeping.1) else {
        return core.found(header, found, keeping.0);
    };
    if core.lower(ino, 1) {
        // Forgotten just now: so it is nowhere.
        return core.found_dir(header, found, &place, keeping);
    }
    let (mine, header, found, new) = (Arc::clone(core), *header, found.clone(), place.clone());
    // Nothing that may be kept: a recall does not wait for an answer that is put off.
    let answer = move || mine.found_dir(&header, &found, &place, (Duration::ZERO, None));
    settle::answer(core, header.pid, Moved { ino, old, new }, Box::new(answer));
}

/// The kernel did not take the answer that told it of these ids.
pub(crate) fn untold(core: &Core, inos: &[Ino]) {
    let gone: Vec<Ino> = inos.iter().copied().filter(|&ino| core.lower(ino, 1)).collect();
    if !gone.is_empty() {
        core.files.forget(&gone);
    }
}
