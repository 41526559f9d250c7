//! Calls that look up, make, remove and move names. Compares what a name means with what the machine believes right before it
//! changes the name; never follows a symbolic link.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use atoll_core::{Name, Time};
use atoll_posix::{Errno, Kind, RenameMode};
use atoll_union::{At, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};

use super::feed::{Event, OwnChange};
use super::{Found, NativeTree, ProcPath, expect_name, os, stat_fd, stat_name};
use crate::who;

/// The daemon's umask again when dropped.
struct Umask;

impl Umask {
    fn set(mask: u32) -> Result<Self, Errno> {
        who::umask(mask & 0o777)?;
        Ok(Self)
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        who::reset_umask();
    }
}

/// A look of the daemon, whoever this thread acts for: everybody sees the same, or is refused. So an identity that is kept for
/// the next call is left only if it must be.
fn as_anybody<T>(look: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match look() {
        Err(Errno::EACCES) => {
            who::daemon();
            look()
        }
        told => told,
    }
}

impl NativeTree {
    pub(super) fn look(&self, who: &Who, dir: NativeId, name: &Name) -> Result<NativeStat, Errno> {
        let dir = self.dir(dir)?;
        if *who == Who::Daemon {
            return as_anybody(|| stat_name(dir.as_fd(), name));
        }
        let _as = self.act(who)?;
        stat_name(dir.as_fd(), name)
    }

    pub(super) fn stat(&self, of: &At) -> Result<NativeStat, Errno> {
        if !self.dirs.knows(of.id)
            && let Some((dir, name)) = &of.seen
            && self.files.get(of.id).is_none()
            && !self.needs_handle(of.id)
        {
            // One call, instead of opening what is only looked at.
            let looked = self
                .dir(*dir)
                .and_then(|dir| as_anybody(|| expect_name(dir.as_fd(), name, of.id)))
                .map_err(super::gone);
            // What is not at this name any more may be found by its handle.
            if looked.is_ok() || self.handles.get(of.id).is_none() {
                return looked;
            }
        }
        stat_fd(self.find(of)?.fd())
    }

    pub(super) fn make(
        &self,
        who: &Who,
        dir: NativeId,
        name: &Name,
        kind: Kind,
        mode: u32,
        umask: u32,
        rdev: u32,
        target: &Bytes,
    ) -> Result<NativeStat, Errno> {
        let own = self.feed.own(dir, name, Event::Made);
        let dir = self.dir(dir)?;
        let taken = self.act(who)?;
        let mask = Umask::set(umask)?;
        let bits = Mode::from_raw_mode(mode & atoll_posix::mode::ALL);
        let file_type = match kind {
            Kind::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&*dir, name.as_bytes(), flags, bits).map_err(os);
                let fd = match made {
                    Err(Errno(libc::EMFILE | libc::ENFILE)) => {
                        self.files.close_unpinned();
                        rustix::fs::openat(&*dir, name.as_bytes(), flags, bits).map_err(os)?
                    }
                    made => made?,
                };
                own.made();
                drop((mask, taken));
                let stat = stat_fd(fd.as_fd())?;
                // Whatever its mode, its maker can open it right afterwards: this descriptor is there.
                self.files.insert(stat.id, fd, true);
                return Ok(stat);
            }
            Kind::Directory => return Err(Errno::EINVAL),
            Kind::Symlink => {
                rustix::fs::symlinkat(&target[..], &*dir, name.as_bytes()).map_err(os)?;
                own.made();
                return stat_name(dir.as_fd(), name);
            }
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
        };
        let dev = rustix::fs::makedev((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00));
        rustix::fs::mknodat(&*dir, name.as_bytes(), file_type, bits, dev).map_err(os)?;
        own.made();
        drop((mask, taken));
        stat_name(dir.as_fd(), name)
    }

    pub(super) fn mkdir(
        &self,
        who: &Who,
        dir: NativeId,
        name: &Name,
        mode: u32,
        umask: u32,
    ) -> Result<NativeStat, Errno> {
        let above = self.dir(dir)?;
        let taken = self.act(who)?;
        let mask = Umask::set(umask)?;
        let own = self.feed.own(dir, name, Event::Made);
        rustix::fs::mkdirat(&*above, name.as_bytes(), Mode::from_raw_mode(mode & 0o1777)).map_err(os)?;
        own.made();
        drop((mask, taken));
        self.open_dir(dir, name)
    }

    pub(super) fn tmpfile(
        &self,
        who: &Who,
        dir: NativeId,
        mode: u32,
        umask: u32,
    ) -> Result<NativeReply, Errno> {
        let dir = self.dir(dir)?;
        let taken = self.act(who)?;
        let mask = Umask::set(umask)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let bits = Mode::from_raw_mode(mode & atoll_posix::mode::ALL);
        let fd = rustix::fs::openat(&*dir, c".", flags, bits).map_err(os)?;
        drop((mask, taken));
        let stat = stat_fd(fd.as_fd())?;
        let open = self.files.pin(stat.id, &Arc::new(fd), true);
        Ok(NativeReply::Opened { open, stat })
    }

    pub(super) fn unlink(&self, who: &Who, dir: NativeId, name: &Name, id: NativeId) -> Result<(), Errno> {
        let own = self.feed.own(dir, name, Event::Removed);
        let dir = self.dir(dir)?;
        let _as = self.act(who)?;
        if expect_name(dir.as_fd(), name, id)?.kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        rustix::fs::unlinkat(&*dir, name.as_bytes(), AtFlags::empty()).map_err(os)?;
        own.made();
        self.files.let_go(id);
        Ok(())
    }

    pub(super) fn rmdir(&self, who: &Who, dir: NativeId, name: &Name, id: NativeId) -> Result<(), Errno> {
        let own = self.feed.own(dir, name, Event::Removed);
        let dir = self.dir(dir)?;
        let _as = self.act(who)?;
        expect_name(dir.as_fd(), name, id)?;
        rustix::fs::unlinkat(&*dir, name.as_bytes(), AtFlags::REMOVEDIR).map_err(os)?;
        own.made();
        Ok(())
    }

    pub(super) fn rename(
        &self,
        who: &Who,
        (dir, name): (NativeId, &Name),
        id: NativeId,
        (new_dir, new_name): (NativeId, &Name),
        new_id: Option<NativeId>,
        mode: RenameMode,
    ) -> Result<(), Errno> {
        // Between two names of one file nothing happens. An exchange moves both names away.
        let moves = new_id != Some(id);
        let away = moves.then(|| self.feed.own(dir, name, Event::MovedAway));
        let swaps = moves && mode == RenameMode::Exchange;
        let back = swaps.then(|| self.feed.own(new_dir, new_name, Event::MovedAway));
        let (from, to) = (self.dir(dir)?, self.dir(new_dir)?);
        let _as = self.act(who)?;
        expect_name(from.as_fd(), name, id)?;
        let rename = |flags| {
            rustix::fs::renameat_with(&*from, name.as_bytes(), &*to, new_name.as_bytes(), flags).map_err(os)
        };
        if let (Some(new_id), RenameMode::Replace | RenameMode::Exchange) = (new_id, mode) {
            expect_name(to.as_fd(), new_name, new_id).map_err(super::gone)?;
        }
        match (mode, new_id) {
            (RenameMode::NoReplace, _) => rename(RenameFlags::NOREPLACE)?,
            (RenameMode::Exchange, Some(_)) => rename(RenameFlags::EXCHANGE)?,
            (RenameMode::Exchange, None) => {
                return Err(stat_name(to.as_fd(), new_name).map_or_else(|e| e, |_| Errno::ESTALE));
            }
            (RenameMode::Replace, Some(_)) => match rename(RenameFlags::empty()) {
                // POSIX lets a file system say either of a directory that is not empty, and XFS says this.
                Err(Errno::EEXIST) => return Err(Errno::ENOTEMPTY),
                done => done?,
            },
            // Nothing was believed to be there. The file system itself sees to it that nothing is.
            (RenameMode::Replace, None) => match rename(RenameFlags::NOREPLACE) {
                Err(Errno::EEXIST) => return Err(Errno::ESTALE),
                Err(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                    match stat_name(to.as_fd(), new_name) {
                        Err(Errno::ENOENT) => rename(RenameFlags::empty())?,
                        Ok(_) => return Err(Errno::ESTALE),
                        Err(e) => return Err(e),
                    }
                }
                done => done?,
            },
        }
        away.into_iter().chain(back).for_each(OwnChange::made);
        self.dirs.moved(id, (new_dir, new_name.clone()));
        match (mode, new_id) {
            (RenameMode::Exchange, Some(new_id)) => self.dirs.moved(new_id, (dir, name.clone())),
            (RenameMode::Replace, Some(new_id)) if new_id != id => self.files.let_go(new_id),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn link(&self, who: &Who, of: &At, dir: NativeId, name: &Name) -> Result<NativeStat, Errno> {
        let found = self.find(of)?;
        let own = self.feed.own(dir, name, Event::Made);
        let dir = self.dir(dir)?;
        let taken = self.act(who)?;
        // Root may link what it has open, which takes no path. Others are told that there is nothing.
        let by_fd =
            || rustix::fs::linkat(found.fd(), c"", &*dir, name.as_bytes(), AtFlags::EMPTY_PATH).map_err(os);
        let by_path = || {
            let (path, follow) = (ProcPath::of(found.fd()), AtFlags::SYMLINK_FOLLOW);
            rustix::fs::linkat(rustix::fs::CWD, path.as_c_str(), &*dir, name.as_bytes(), follow).map_err(os)
        };
        let is_root = match who {
            Who::Daemon => true,
            Who::Caller(caller) => caller.uid == 0,
        };
        match if is_root { by_fd() } else { Err(Errno::ENOENT) } {
            Err(Errno::ENOENT) => by_path()?,
            linked => linked?,
        }
        own.made();
        drop(taken);
        stat_fd(found.fd())
    }

    /// An ordinary descriptor of a regular file, from the table or opened now as the daemon. `ESTALE`; `EINVAL` and `EISDIR` for
    /// other kinds.
    pub(super) fn file(&self, of: &At, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.files.get_for(of.id, write) {
            return Ok(fd);
        }
        who::daemon();
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        if let Some(fd) = self.open_seen(of, access) {
            return Ok(self.files.insert(of.id, fd, write));
        }
        let found = self.find(of)?;
        match stat_fd(found.fd())?.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        let fd = self.open_found(&found, access)?;
        Ok(self.files.insert(of.id, fd, write))
    }

    /// Whether only its handle tells an object from a later one with its number: its file system does not tell when it was made.
    fn needs_handle(&self, id: NativeId) -> bool {
        id.btime == Time::default() && self.handles.get(id).is_some()
    }

    /// Opens a regular file by the name at which it was seen, with one call. None if it is to be found in another way, or is not
    /// there.
    fn open_seen(&self, of: &At, access: OFlags) -> Option<OwnedFd> {
        let (dir, name) = of.seen.as_ref()?;
        if self.files.get(of.id).is_some() || self.needs_handle(of.id) {
            return None;
        }
        let dir = self.dir(*dir).ok()?;
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&*dir, name.as_bytes(), flags, Mode::empty()).ok()?;
        let stat = stat_fd(fd.as_fd()).ok()?;
        (stat.id == of.id && stat.kind == Kind::Regular).then_some(fd)
    }

    /// Opens what was found once more, as this thread may.
    pub(super) fn open_found(&self, found: &Found, access: OFlags) -> Result<OwnedFd, Errno> {
        let path = ProcPath::of(found.fd());
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path.as_c_str(), flags, Mode::empty()).map_err(os);
        match opened {
            Err(Errno(libc::EMFILE | libc::ENFILE)) => {
                self.files.close_unpinned();
                self.dirs.close_oldest(64);
                rustix::fs::open(path.as_c_str(), flags, Mode::empty()).map_err(os)
            }
            opened => opened,
        }
    }

    pub(super) fn hold(&self, of: &At) -> Result<NativeReply, Errno> {
        let fd = match self.find(of)? {
            Found::Shared(fd) => fd,
            Found::Own(fd) => Arc::new(fd),
        };
        let stat = stat_fd(fd.as_fd())?;
        if stat.kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        let open = self.files.pin(of.id, &fd, false);
        Ok(NativeReply::Opened { open, stat })
    }

    pub(super) fn open_file(&self, who: &Who, of: &At, write: bool) -> Result<NativeReply, Errno> {
        let opened = self.file(of, write);
        let fd = match (opened, who) {
            // A file system that does not trust root, such as NFS, may trust the caller.
            (Err(Errno::EACCES), Who::Caller(caller)) if caller.uid != 0 => {
                let found = self.find(of)?;
                let taken = self.act(who)?;
                let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
                let fd = self.open_found(&found, access)?;
                drop(taken);
                self.files.insert(of.id, fd, write)
            }
            (opened, _) => opened?,
        };
        // The frontend may make it a backing file, which is the daemon's to do.
        who::daemon();
        let stat = stat_fd(fd.as_fd())?;
        let open = self.files.pin(of.id, &fd, write);
        Ok(NativeReply::Opened { open, stat })
    }
}
