//! Turns each request into an operation of the volume, and each outcome into an answer. Never waits for an
//! outcome: the thread that completes the operation sends the answer.
//!
//! The meaning of a request, and its answer, are in one file for each family of requests.

mod attrs;
mod data;
mod handles;
mod names;
mod opening;

pub(crate) use handles::unlock;
pub(crate) use names::untold;
pub(crate) use opening::close_all;

use crate::abi::{MINOR_INC_EPOCH, opcode};
use crate::accesses::{self, Accesses};
use crate::counters::Counters;
use crate::device::{Device, IO_BYTES_MAX};
use crate::dying::{Dying, interrupted, watch};
use crate::fits::may_be_told;
use crate::gone;
use crate::held::{Held, Holder};
use crate::kept_names::KeptNames;
use crate::known::{Asked, CAPABILITY, Known};
use crate::listers::Listers;
use crate::listing::Listing;
use crate::mount::Entrance;
use crate::nodes::Nodes;
use crate::opens::Opens;
use crate::passed::Passed;
use crate::pending::{Pending, What};
use crate::places::{Place, Places};
use crate::request::{Header, Request};
use crate::session::{Config, Keep, Locks, Readers};
use crate::settle::{self, Settling};
use crate::told::Told;
use atoll_core::Ino;
use atoll_posix::acl::{ACCESS_XATTR, DEFAULT_XATTR};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode, SetAttr};
use atoll_vfs::{AnswerExtras, Caching, Files, RequestOptions};
use bytes::Bytes;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// For how long the kernel may keep what is recalled before anybody else can change it.
pub(crate) const KEEP: Duration = Duration::from_secs(6);

/// The results of INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) minor: u32,
    pub(crate) flags: u64,
}

/// State that all threads of a mount share.
pub(crate) struct Core {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) device: Arc<Device>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) places: Places,
    pub(crate) settling: Settling,
    pub(crate) entrance: Entrance,
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) dying: Dying,
    pub(crate) held: Held,
    pub(crate) counters: Counters,
    pub(crate) readers: Readers,
    pub(crate) config: Config,
    pub(crate) listers: Listers,
    pub(crate) told: Told,
    pub(crate) accesses: Accesses,
    pub(crate) handles: AtomicU64,
    /// If the volume hears of opens.
    pub(crate) opens: Option<Opens>,
    pub(crate) passed: Passed,
    pub(crate) known: Arc<Known>,
    pub(crate) kept_names: Arc<KeptNames>,
}

/// How an outcome becomes an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing but success.
    Unit,
    /// A name's answer.
    Entry,
    /// The same for an object that was made.
    New,
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
        /// An ACL was asked for, by which the kernel may judge who is allowed what.
        acl: bool,
        /// The file's capabilities were asked for.
        capability: bool,
    },
    Written,
    /// The same, when they are synced.
    WrittenThrough {
        ino: Ino,
    },
    /// So many bytes were written before, and are synced now.
    Synced {
        len: u64,
    },
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

    /// Answers by `tell` what is known, without asking the volume. False if it is not known, or others may change it.
    fn answers_alone<T>(
        &self,
        ino: Ino,
        known: impl Fn() -> Option<T>,
        mut tell: impl FnMut(T, Duration),
    ) -> bool {
        let mut is_told = false;
        if known().is_some() {
            self.keeping(ino, |caching| {
                // Once more: a recall may have been between.
                if let Some(known) = known().filter(|_| caching == Caching::UntilRecalled) {
                    tell(known, kept(caching));
                    is_told = true;
                }
            });
        }
        is_told
    }

    /// For how long the kernel may keep attributes. A program that writes without a request changes them at any time.
    fn attr_kept(&self, ino: Ino, kept: Duration) -> Duration {
        if self.passed.has_writers(ino) { Duration::ZERO } else { kept }
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
            let caller = header.caller(None);
            names::note(core, &op);
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
    let answered = || {
        core.ok(header, &[]);
        Ok(None)
    };
    match request {
        // Once and for all: the kernel has no locks to tell of.
        Request::Flush { .. } if core.config.locks == Locks::Local => Err(Errno::ENOSYS),
        Request::Open { .. } if core.config.locks == Locks::Local && core.opens.is_none() => {
            Err(Errno::ENOSYS)
        }
        Request::Lookup { name } if names::is_absent(core, header, dir, &name) => Ok(None),
        Request::Lookup { name } => Ok(Some(names::lookup(dir, name))),
        Request::Forget { count } => {
            names::forget(core, std::iter::once((ino, count)));
            Ok(None)
        }
        Request::BatchForget { list } => {
            names::forget(core, names::pairs(list));
            // The kernel wants its memory back, or nobody uses what it knew.
            core.kept_names.expire();
            Ok(None)
        }
        Request::Readlink => {
            accesses::read(core, ino, Kind::Symlink);
            job(Op::Readlink { ino }, Shape::Data { max: IO_BYTES_MAX })
        }
        Request::Symlink { name, target } => Ok(Some(names::symlink(dir, name, target))),
        Request::Mknod { mode, rdev, umask, name } => names::mknod(dir, name, mode, umask, rdev).map(Some),
        Request::Mkdir { mode, umask, name } => Ok(Some(names::mkdir(dir, name, mode, umask))),
        Request::Create { flags, mode, umask, name } => {
            Ok(Some(names::create(dir, name, mode, umask, flags)))
        }
        Request::Tmpfile { flags, mode, umask } => Ok(Some(names::tmpfile(dir, mode, umask, flags))),
        Request::Unlink { name } => job(Op::Unlink { dir, name }, Shape::Unit),
        Request::Rmdir { name } => Ok(Some(names::rmdir(core, header, dir, name))),
        Request::Rename { new_dir, flags, name, new_name } => {
            let places = [Place { dir, name }, Place { dir: Ino(new_dir), name: new_name }];
            names::rename(core, header, flags, places).map(Some)
        }
        Request::Link { old, name } => job(Op::Link { ino: Ino(old), dir, name }, Shape::Entry),

        Request::GetAttr if attrs::is_known_dir(core, header) => Ok(None),
        Request::GetAttr => job(Op::GetAttr { ino }, Shape::Attr),
        Request::Statx if core.config.birth_times => job(Op::GetAttr { ino }, Shape::Statx),
        Request::SetAttr(fields) => attrs::set_attr(core, ino, &fields).map(Some),
        Request::Statfs => job(Op::Statfs, Shape::Statfs),
        Request::SetXattr { flags, setxattr_flags, name, value } => {
            attrs::set_xattr(ino, (name, value), flags, setxattr_flags).map(Some)
        }
        Request::GetXattr { name, .. } if name == CAPABILITY && attrs::has_no_capability(core, header) => {
            Ok(None)
        }
        Request::GetXattr { size, name } => {
            let acl = name == ACCESS_XATTR || name == DEFAULT_XATTR;
            let capability = name == CAPABILITY;
            let shape = Shape::Value { size: size as usize, acl, capability };
            job(Op::GetXattr { ino, name: Bytes::copy_from_slice(name) }, shape)
        }
        Request::ListXattr { size } => {
            job(Op::ListXattr { ino }, Shape::Value { size: size as usize, acl: false, capability: false })
        }
        Request::RemoveXattr { name } => {
            job(Op::RemoveXattr { ino, name: Bytes::copy_from_slice(name) }, Shape::Unit)
        }

        Request::Read { offset, size, flags } => Ok(Some(data::read(core, ino, offset, size, flags))),
        Request::Write { fh, offset, write_flags, flags, .. } => {
            Ok(Some(data::write(core, (ino, fh), offset, payload, flags, write_flags)))
        }
        Request::Fsync => job(Op::Fsync { ino }, Shape::Unit),
        Request::FsyncDir => job(Op::FsyncDir { dir }, Shape::Unit),
        Request::Fallocate { offset, length, mode } => data::fallocate(ino, offset, length, mode).map(Some),
        Request::Seek { offset, whence } => data::seek(ino, offset, whence).map(Some),
        Request::CopyRange { offset, to, to_offset, len, flags, wide } => {
            data::copy((ino, offset), (Ino(to), to_offset), len, flags, wide).map(Some)
        }

        Request::Open { flags } => {
            handles::open_file(core, header, flags);
            Ok(None)
        }
        Request::OpenDir => {
            handles::open_dir(core, header);
            Ok(None)
        }
        Request::ReadDir { fh, offset, size, flags, plus } => {
            let listing = handles::read_dir(core, (dir, fh), offset, size, flags, plus);
            if listing.is_some() { Ok(listing) } else { answered() }
        }
        Request::Flush { lock_owner } => {
            let unlock = handles::flush(core, ino, lock_owner);
            if unlock.is_some() { Ok(unlock) } else { answered() }
        }
        Request::Release { fh } => {
            handles::release(core, ino, fh);
            answered()
        }
        Request::ReleaseDir { fh } => {
            core.listers.closed(dir, fh);
            answered()
        }
        Request::GetLock(lock) => handles::get_lock(ino, &lock).map(Some),
        Request::SetLock { lock, wait } => handles::set_lock(ino, &lock, wait).map(Some),

        Request::Interrupt { unique } => {
            if let Some(waiting) = core.pending.interrupt(unique) {
                interrupted(core, waiting);
            }
            Ok(None)
        }
        Request::Init { major, minor, max_readahead, flags } => {
            core.answer_init(header, major, minor, max_readahead, flags);
            Ok(None)
        }
        Request::Destroy => answered(),
        Request::Ioctl => Err(Errno(25)), // ENOTTY
        // Once and for all: what is not known here is not asked again.
        Request::Statx | Request::Other => Err(Errno::ENOSYS),
    }
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
    let asked = core.known.asks(&op, |ino| core.places.is_dir(ino));
    let learnt = names::learnt(&op);
    let was_kept = names::note_asked(core, &op, &learnt);
    let with_groups = (caller.groups.is_none() && caller.uid != 0).then(|| (op.clone(), data.clone()));
    let done = move |core: &Arc<Core>, outcome: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
        let is_alone = core.allowed(beside.caching) == Caching::UntilRecalled;
        let holds = core.known.answered(asked, is_alone, &outcome, beside.around);
        if outcome == Err(Errno::EACCES)
            && let Some((op, data)) = with_groups
        {
            let groups = supplementary_groups(&header);
            let caller = header.caller(Some(groups));
            return submit(core, header, caller, op, data, shape, tries);
        }
        if outcome == Err(Errno::ESTALE) {
            return gone::stale(core, header, shape, tries);
        }
        names::note_answered(core, (&learnt, was_kept), &outcome, is_alone);
        finish(core, &header, (shape, holds.then_some(asked)), outcome, beside);
    };
    start(core, header, &caller, (op, data), done);
}

/// Starts an operation for a request, for which the caller waits.
pub(crate) fn start(
    core: &Arc<Core>,
    header: Header,
    caller: &Caller,
    (op, data): (Op, Bytes),
    done: impl FnOnce(&Arc<Core>, Result<Answer, Errno>, AnswerExtras<'_>) + Send + 'static,
) {
    let what = match op {
        Op::SetLock { wait: true, .. } => What::Lock,
        Op::Read { ino, .. } | Op::Write { ino, .. } => What::Bytes(ino),
        _ => What::Other,
    };
    let mine = Arc::clone(core);
    let done = move |outcome: Result<Answer, Errno>, beside: AnswerExtras<'_>| {
        mine.pending.completed(header.unique);
        done(&mine, outcome, beside);
    };
    // The kernel asks for them before the next change.
    let attributes = core.known.wants_attributes(&op);
    let options = RequestOptions { attributes, ..RequestOptions::default() };
    let start = || core.files.start(caller, options, op, data, Box::new(done));
    if let Some(early) = core.pending.submit((header.unique, header.pid, what), start) {
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

/// Answers a request with the outcome of its operation. `holds`: nobody else changes what it says before a recall.
pub(crate) fn finish(
    core: &Arc<Core>,
    header: &Header,
    (shape, holds): (Shape, Option<Asked>),
    outcome: Result<Answer, Errno>,
    beside: AnswerExtras<'_>,
) {
    // Until this returns: a recall waits for promises that are being passed on.
    let caching = core.allowed(beside.caching);
    let (bytes, kept) = (beside.bytes, kept(caching));
    let answer = match (outcome, &shape) {
        (Ok(answer), _) => answer,
        (Err(Errno::ENOENT), Shape::Looked(place)) => return names::absent(core, header, place, kept),
        (Err(Errno::EEXIST), Shape::Created { exclusive: false, .. }) => {
            return core.fail(header, Errno::ESTALE);
        }
        (Err(Errno::ENODATA), Shape::Value { capability: true, .. }) => {
            if let Some(asked) = holds {
                core.known.has_no_capability(Ino(header.node), asked);
            }
            return core.fail(header, Errno::ENODATA);
        }
        // ENOSYS would make the kernel do without the operation for ever.
        (Err(Errno::ENOSYS), _) => return core.fail(header, Errno::EOPNOTSUPP),
        (Err(why), _) => return core.fail(header, why),
    };
    if !may_be_told(header, &shape, &answer) {
        return core.misfit(header);
    }
    match (shape, answer) {
        (Shape::Unit, _) => _ = core.ok(header, &[]),

        (Shape::Looked(place), Answer::Found { found }) => {
            names::looked(core, header, &found, place, kept);
        }
        (Shape::Entry, Answer::Found { found }) => names::entry(core, header, &found, kept),
        (Shape::New, Answer::Found { found }) => names::new_entry(core, header, &found, kept),
        (Shape::Made(place), Answer::Found { found }) => {
            if holds.is_some() {
                core.known.fresh.made(found.attr.ino);
            }
            names::made(core, header, &found, &place, kept);
        }
        (Shape::Created { flags, .. }, Answer::Found { found }) => {
            if let Some(asked) = holds {
                core.known.has_no_capability(found.attr.ino, asked);
            }
            opening::created(core, header, found, (kept, caching), flags);
        }
        (Shape::RemovedDir { place, meant }, _) => {
            if let Some(gone) = meant {
                core.known.dir_attrs.may_change(gone);
                core.places.vacate(gone, &place);
                core.places.removed(gone);
            }
            core.ok(header, &[]);
        }
        (Shape::Renamed { from, to, mode, meant }, _) => {
            meant.into_iter().flatten().for_each(|dir| core.known.dir_attrs.may_change(dir));
            core.places.renamed(&from, &to, mode == RenameMode::Exchange);
            core.ok(header, &[]);
        }

        (Shape::Attr | Shape::Changed(_), Answer::Attr { attr }) => attrs::attr(core, header, &attr, kept),
        (Shape::Statx, Answer::Attr { attr }) => attrs::statx(core, header, &attr, kept),
        (Shape::Value { size, .. }, Answer::Data) => attrs::value(core, header, bytes, size),
        (Shape::Statfs, answer) if attrs::statfs(core, header, &answer) => {}

        (Shape::Data { max }, Answer::Data) if bytes.len() <= max => _ = core.ok(header, bytes),
        (Shape::Written, Answer::Wrote { len, .. }) => data::written(core, header, len),
        (Shape::WrittenThrough { ino }, Answer::Wrote { len, .. }) => data::sync(core, *header, ino, len),
        (Shape::Synced { len }, _) => data::written(core, header, len),
        (Shape::WrittenWide, Answer::Wrote { len, .. }) => data::number(core, header, len),
        (Shape::Offset, Answer::Offset { offset }) => data::number(core, header, offset),

        (Shape::Listing(listing), Answer::Entries { entries, eof }) => {
            handles::listed(core, header, &listing, (entries, eof), kept);
        }
        (Shape::Lock, Answer::Lock { lock }) => handles::lock(core, header, &lock),
        (Shape::Granted { ino, holder }, _) => {
            core.held.granted(ino, holder);
            core.ok(header, &[]);
        }
        _ => core.misfit(header),
    }
}
