//! Judges the model by the kernel it imitates: the same random operations on the model and on a
//! local file system, then every attribute, time and byte compared. Needs root, because several
//! users ask, and is made for ext4; without root it says so and does nothing.
//!
//! `ATOLL_LINUX_DIR` names the directory to work in, `ATOLL_SEED` and `ATOLL_STEPS` the run.

use atoll_core::{Ino, SessionId, Time};
use atoll_model::{AtimeRule, Model, Outcome, Step, Weights, Workload};
use atoll_posix::{
    Allocation, Answer, Attr, Caller, Errno, Kind, Op, RenameMode, SetAttr, SetTime, XattrMode, mode,
};
use rustix::fs::{
    self, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags,
};
use rustix::io;
use rustix::process::{Gid, Uid};
use rustix::thread;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Errors, or bytes of a read.
type Told = Result<Vec<u8>, Errno>;

struct Local {
    /// Every object, held by descriptor as an island holds it by id.
    held: BTreeMap<Ino, OwnedFd>,
}

/// Runs `act` as `caller`: per-thread credentials, which leave the rest of the process alone.
fn as_caller<T>(caller: &Caller, act: impl FnOnce() -> T) -> T {
    let root = (Uid::ROOT, Gid::ROOT);
    let gids = |list: &[u32]| list.iter().map(|&gid| Gid::from_raw(gid)).collect::<Vec<_>>();
    thread::set_thread_groups(&gids(caller.groups.as_deref().unwrap_or(&[]))).unwrap();
    let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
    thread::set_thread_res_gid(root.1, gid, root.1).unwrap();
    thread::set_thread_res_uid(root.0, uid, root.0).unwrap();
    let told = act();
    thread::set_thread_res_uid(root.0, root.0, root.0).unwrap();
    thread::set_thread_res_gid(root.1, root.1, root.1).unwrap();
    told
}

fn time(secs: i64, nanos: u64) -> Time {
    Time { secs, nanos: nanos as u32 }
}

impl Local {
    fn dir(&self, ino: Ino) -> &OwnedFd {
        &self.held[&ino]
    }

    /// A path to the object itself, whatever its name is now.
    fn path(&self, ino: Ino) -> String {
        format!("/proc/self/fd/{}", self.held[&ino].as_raw_fd())
    }

    fn open(&self, ino: Ino) -> OwnedFd {
        fs::open(self.path(ino), OFlags::RDWR, Mode::empty()).expect("root opens every regular file")
    }

    fn hold(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let held = fs::openat(self.dir(dir), name, flags, Mode::empty()).expect("it was just made");
        self.held.insert(ino, held);
    }

    fn attr(&self, ino: Ino) -> Attr {
        let stat = fs::statat(&self.held[&ino], "", AtFlags::EMPTY_PATH).unwrap();
        Attr {
            ino,
            kind: Kind::from_format_bits(stat.st_mode).unwrap(),
            mode: stat.st_mode & mode::ALL,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev as u32,
            size: stat.st_size as u64,
            blocks: 0,
            atime: Time::default(),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec as u64),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec as u64),
            btime: Time::default(),
        }
    }

    fn run(&mut self, caller: &Caller, step: &Step) -> Told {
        // Those that act on open files: the opening is root's, as permission was checked before.
        let opened = match &step.op {
            Op::Read { ino, .. } | Op::Write { ino, .. } | Op::Fallocate { ino, .. } => Some(self.open(*ino)),
            Op::CopyRange { to, .. } => Some(self.open(*to)),
            Op::SetAttr { ino, set } if set.opened => Some(self.open(*ino)),
            _ => None,
        };
        let source = if let Op::CopyRange { from, .. } = &step.op { Some(self.open(*from)) } else { None };
        as_caller(caller, || self.act(step, opened, source)).map_err(|e| Errno(e.raw_os_error()))
    }

    fn act(&self, step: &Step, opened: Option<OwnedFd>, source: Option<OwnedFd>) -> io::Result<Vec<u8>> {
        let opened = || opened.as_ref().expect("it was opened before");
        let nothing = |()| Vec::new();
        match &step.op {
            Op::Lookup { dir, name } => {
                fs::statat(self.dir(*dir), name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).map(|_| Vec::new())
            }
            Op::Create { dir, name, kind: Kind::Symlink, target, .. } => {
                fs::symlinkat(target.as_ref(), self.dir(*dir), name.as_bytes()).map(nothing)
            }
            Op::Create { dir, name, kind, mode, umask, rdev, .. } => {
                rustix::process::umask(Mode::from_raw_mode(*umask));
                let kind = FileType::from_raw_mode(kind.format_bits());
                let mode = Mode::from_raw_mode(*mode);
                fs::mknodat(self.dir(*dir), name.as_bytes(), kind, mode, u64::from(*rdev)).map(nothing)
            }
            Op::Mkdir { dir, name, mode, umask } => {
                rustix::process::umask(Mode::from_raw_mode(*umask));
                fs::mkdirat(self.dir(*dir), name.as_bytes(), Mode::from_raw_mode(*mode)).map(nothing)
            }
            Op::Unlink { dir, name } => {
                fs::unlinkat(self.dir(*dir), name.as_bytes(), AtFlags::empty()).map(nothing)
            }
            Op::Rmdir { dir, name, .. } => {
                fs::unlinkat(self.dir(*dir), name.as_bytes(), AtFlags::REMOVEDIR).map(nothing)
            }
            Op::Rename { dir, name, new_dir, new_name, mode, .. } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                let (from, to) = (self.dir(*dir), self.dir(*new_dir));
                fs::renameat_with(from, name.as_bytes(), to, new_name.as_bytes(), flags).map(nothing)
            }
            Op::Link { ino, dir, name } => {
                let to = self.dir(*dir);
                fs::linkat(fs::CWD, self.path(*ino), to, name.as_bytes(), AtFlags::SYMLINK_FOLLOW)
                    .map(nothing)
            }
            Op::Readlink { ino } => {
                fs::readlinkat(&self.held[ino], "", Vec::new()).map(std::ffi::CString::into_bytes)
            }
            Op::SetAttr { ino, set } => self.set_attr(*ino, set, set.opened.then(opened)).map(nothing),
            Op::Read { offset, len, .. } => {
                let mut bytes = vec![0; *len as usize];
                let n = io::pread(opened(), &mut bytes, *offset)?;
                bytes.truncate(n);
                Ok(bytes)
            }
            Op::Write { append, offset, .. } => {
                let offset = if *append { fs::fstat(opened())?.st_size as u64 } else { *offset };
                assert_eq!(io::pwrite(opened(), &step.data, offset)?, step.data.len());
                Ok(Vec::new())
            }
            Op::Fallocate { offset, len, what, .. } => {
                let keep = |keep| if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                let flags = match *what {
                    Allocation::Allocate { keep_size } => keep(keep_size),
                    Allocation::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Allocation::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
                };
                fs::fallocate(opened(), flags, *offset, *len).map(nothing)
            }
            Op::CopyRange { from_offset, to_offset, len, .. } => {
                let source = source.as_ref().expect("it was opened before");
                let (mut from, mut to) = (*from_offset, *to_offset);
                fs::copy_file_range(source, Some(&mut from), opened(), Some(&mut to), *len as usize)
                    .map(|_| Vec::new())
            }
            Op::GetXattr { ino, name } => {
                let mut value = vec![0; 65_536];
                let n = fs::getxattr(self.path(*ino), name.as_ref(), &mut value)?;
                value.truncate(n);
                Ok(value)
            }
            Op::SetXattr { ino, name, value, mode, .. } => {
                let flags = match mode {
                    XattrMode::Any => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                fs::setxattr(self.path(*ino), name.as_ref(), value, flags).map(nothing)
            }
            Op::RemoveXattr { ino, name } => fs::removexattr(self.path(*ino), name.as_ref()).map(nothing),
            Op::ListXattr { ino } => {
                let mut list = vec![0; 65_536];
                let n = fs::listxattr(self.path(*ino), &mut list)?;
                list.truncate(n);
                Ok(sorted(&list))
            }
            other => unreachable!("not drawn: {other:?}"),
        }
    }

    fn set_attr(&self, ino: Ino, set: &SetAttr, opened: Option<&OwnedFd>) -> io::Result<()> {
        let path = self.path(ino);
        if let Some(bits) = set.mode {
            fs::chmod(&path, Mode::from_raw_mode(bits))?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            fs::chownat(&self.held[&ino], "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let spec = |time: Option<SetTime>| match time {
                None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                Some(SetTime::To { time }) => Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() },
            };
            let times = Timestamps { last_access: spec(set.atime), last_modification: spec(set.mtime) };
            fs::utimensat(fs::CWD, &path, &times, AtFlags::empty())?;
        }
        match (set.size, opened) {
            (Some(size), Some(file)) => fs::ftruncate(file, size),
            (Some(size), None) => std::fs::File::options().write(true).open(&path).map_or_else(
                |e| Err(io::Errno::from_io_error(&e).expect("the kernel refused")),
                // Opening for writing asks what truncate(2) asks, and never marks times itself.
                |file| fs::ftruncate(&file, size),
            ),
            (None, _) => Ok(()),
        }
    }

    fn bytes(&self, ino: Ino) -> Vec<u8> {
        std::fs::read(self.path(ino)).expect("root reads every regular file")
    }
}

fn sorted(list: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = list.split_inclusive(|&b| b == 0).collect();
    names.sort_unstable();
    names.concat()
}

/// The drawn step as both sides can do it; none if they cannot.
fn comparable(model: &Model, mut step: Step) -> Option<Step> {
    let privileged = step.caller.is_root();
    let regular = |ino: &Ino| model.attr(*ino).is_some_and(|attr| attr.kind == Kind::Regular);
    // The kernel also takes set-group-id without group execute from whoever is not in the group; a
    // frontend's word to kill set-id bits does not say who asks.
    let odd = |ino: &Ino| {
        let bits = model.attr(*ino).map_or(0, |attr| attr.mode);
        bits & mode::SETGID != 0 && bits & mode::GROUP_EXEC == 0
    };
    let fits = match &mut step.op {
        Op::Create { exclusive, .. } => {
            *exclusive = true;
            true
        }
        Op::SetAttr { ino, set } => {
            let attr = model.attr(*ino)?;
            set.kill_set_id = !privileged && set.size.is_some();
            let empty = SetAttr { opened: set.opened, ..SetAttr::default() } == *set;
            let size_fits = set.size.is_none() || (regular(ino) && !odd(ino));
            let link = attr.kind == Kind::Symlink && set.mode.is_some();
            !empty && size_fits && !link
        }
        Op::Write { ino, kill_set_id, .. } => {
            *kill_set_id = !privileged;
            regular(ino) && !odd(ino)
        }
        Op::Fallocate { ino, .. } => regular(ino) && !odd(ino),
        Op::CopyRange { from, to, .. } => regular(from) && regular(to) && !odd(to),
        Op::Read { ino, .. } => regular(ino),
        // What a name is to a directory, openat would refuse before the operation.
        Op::Lookup { .. } | Op::Mkdir { .. } | Op::Unlink { .. } | Op::Rmdir { .. } => true,
        Op::Rename { .. } => true,
        // With `fs.protected_hardlinks` the VFS refuses others before the file system is asked.
        Op::Link { ino, .. } => privileged || model.attr(*ino)?.uid == step.caller.uid,
        Op::Readlink { ino } => model.attr(*ino)?.kind == Kind::Symlink,
        Op::SetXattr { kill_sgid, value, .. } => {
            *kill_sgid = false;
            // ext4 keeps all of a file's in one block.
            value.len() < 500
        }
        Op::GetXattr { .. } | Op::RemoveXattr { .. } | Op::ListXattr { .. } => true,
        _ => false,
    };
    fits.then_some(step)
}

/// What is compared of the attributes, times aside.
fn shape(attr: &Attr) -> (Kind, String, u32, u32, u32, u32, u64) {
    let size = if attr.kind == Kind::Directory { 0 } else { attr.size };
    (attr.kind, format!("{:04o}", attr.mode), attr.nlink, attr.uid, attr.gid, attr.rdev, size)
}

fn compare(seed: u64, steps: usize, root: &std::path::Path) {
    let root_fd = fs::open(root, OFlags::PATH, Mode::empty()).unwrap();
    let mut local = Local { held: BTreeMap::from([(Ino::ROOT, root_fd)]) };
    let mut model = Model::new(Time::from_nanos(1), AtimeRule::Never);
    let locks = Weights { get_lock: 0, set_lock: 0, ..Weights::default() };
    let mut workload = Workload::new(seed, locks);
    let mut before: BTreeMap<Ino, (Attr, Attr)> =
        BTreeMap::from([(Ino::ROOT, (*model.attr(Ino::ROOT).unwrap(), local.attr(Ino::ROOT)))]);
    let mut compared = 0;
    for at in 0..steps {
        let Some(step) = comparable(&model, workload.next(&model)) else { continue };
        let mut context = format!("ATOLL_SEED={seed}, step {at}: by {:?} {:?}", step.caller, step.op);
        context.truncate(600);
        let now = Time::from_nanos(1_000_000 + at as u64);
        let expected = local.run(&step.caller, &step);
        // A file system may move and link within one directory only: then nothing has happened.
        let between = match &step.op {
            Op::Rename { dir, new_dir, .. } => dir != new_dir,
            Op::Link { .. } => true,
            _ => false,
        };
        if between && expected == Err(Errno(io::Errno::XDEV.raw_os_error())) {
            continue;
        }
        let outcome = model.apply(now, SessionId(1), &step.caller, &step.op, &step.data);
        let got = outcome.map(|outcome| match outcome {
            Outcome::Answered(answer, bytes) => {
                if let (Answer::Found { found }, Op::Create { dir, name, .. } | Op::Mkdir { dir, name, .. }) =
                    (&answer, &step.op)
                    && expected.is_ok()
                {
                    local.hold(found.attr.ino, *dir, name.as_bytes());
                }
                if matches!(step.op, Op::ListXattr { .. }) { sorted(&bytes) } else { bytes }
            }
            Outcome::Blocked => unreachable!("no locks are drawn"),
        });
        assert!(expected == got, "{context}: Linux {expected:?}, model {got:?}");
        compared += 1;
        let mut after = BTreeMap::new();
        for ino in model.inos() {
            let (ours, theirs) = (*model.attr(ino).unwrap(), local.attr(ino));
            assert_eq!(shape(&theirs), shape(&ours), "{context}: Linux (left) and model on {ino}");
            if let Some((our_last, their_last)) = before.get(&ino) {
                let moved = |new: &Attr, old: &Attr| (new.mtime != old.mtime, new.ctime != old.ctime);
                let (linux, mine) = (moved(&theirs, their_last), moved(&ours, our_last));
                // ext4 does not mark it when an attribute is set to what it is.
                let to_itself = matches!(&step.op, Op::SetXattr { ino: set, .. } if *set == ino)
                    && (linux, mine) == ((false, false), (false, true));
                assert!(
                    linux == mine || to_itself,
                    "{context}: (mtime, ctime) of {ino} moved: Linux {linux:?}, model {mine:?}"
                );
            }
            after.insert(ino, (ours, theirs));
        }
        before = after;
        forget_orphans(&mut model, &mut local, &mut before);
    }
    assert!(compared * 2 > steps, "only {compared} of {steps} steps could be compared");
    for ino in model.inos().collect::<Vec<_>>() {
        if model.attr(ino).unwrap().kind == Kind::Regular {
            let read = Op::Read { ino, offset: 0, len: u32::MAX };
            let told = model.apply(Time::default(), SessionId(1), &Caller::ROOT, &read, &[]);
            let Ok(Outcome::Answered(_, bytes)) = told else { panic!("{told:?}") };
            assert!(bytes == local.bytes(ino), "ATOLL_SEED={seed}: bytes of {ino} differ");
        }
    }
}

/// Keeps some that have no name, so that operations on them are compared too.
fn forget_orphans(model: &mut Model, local: &mut Local, before: &mut BTreeMap<Ino, (Attr, Attr)>) {
    let orphans: Vec<Ino> = model.inos().filter(|ino| model.attr(*ino).unwrap().nlink == 0).collect();
    for ino in orphans.iter().take(orphans.len().saturating_sub(8)) {
        model.forget(*ino);
        local.held.remove(ino);
        before.remove(ino);
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

#[test]
fn the_model_does_what_linux_does() {
    atoll_needs::needs!(Root);
    let above =
        std::env::var_os("ATOLL_LINUX_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let steps = number("ATOLL_STEPS").unwrap_or(2500) as usize;
    let seeds = match number("ATOLL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("ATOLL_SEEDS").unwrap_or(6) + 1,
    };
    for seed in seeds {
        let root = above.join(format!("linux-{}-{seed}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        fs::chmod(&root, Mode::from_raw_mode(0o755)).unwrap();
        // Whatever comes, the directory goes.
        let outcome = std::panic::catch_unwind(|| compare(seed, steps, &root));
        std::fs::remove_dir_all(&root).unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }
}
