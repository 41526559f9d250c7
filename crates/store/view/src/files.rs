//! Names of files: native objects for ids, links to them, removals.

use std::io;

use atoll_body::Born;
use atoll_core::map::IdSet;
use atoll_core::{Ino, Name, Time};
use atoll_disk::{Disk, FileKind, Stat};
use atoll_posix::Kind;
use atoll_proto::{Dir, Inode};

use crate::index::{FileMark, Ours};
use crate::{LIMBO, Report, Source, Subject, View, Why, is_absent, is_fatal, join};

/// A file whose native object is there.
pub(crate) struct Prepared {
    pub(crate) ino: Ino,
    pub(crate) row: Inode,
    pub(crate) stat: Stat,
    /// As it was laid before.
    pub(crate) mark: Option<FileMark>,
}

pub(crate) const fn native_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::Regular => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

pub(crate) const fn time_of((secs, nanos): (i64, u32)) -> Time {
    Time { secs, nanos }
}

impl FileMark {
    pub(crate) const fn of(stat: &Stat, state_ctime: Time, xattrs: bool) -> Self {
        Self {
            native: stat.ino,
            size: stat.size,
            mtime: time_of(stat.mtime),
            ctime: time_of(stat.ctime),
            state_ctime,
            xattrs,
            older: Vec::new(),
        }
    }

    /// The state's change time then, and all native inodes that it has had.
    fn with_older(&self) -> (Time, Vec<u64>) {
        let mut older = self.older.clone();
        if !older.contains(&self.native) {
            older.push(self.native);
        }
        (self.state_ctime, older)
    }

    /// Somebody changed it since.
    pub(crate) fn differs(&self, stat: &Stat) -> bool {
        let now = Self::of(stat, self.state_ctime, self.xattrs);
        (self.size, self.mtime, self.ctime) != (now.size, now.mtime, now.ctime)
    }
}

impl<D: Disk> View<D> {
    pub(crate) const fn makes(&self, kind: Kind) -> bool {
        !matches!(kind, Kind::CharDevice | Kind::BlockDevice) || (self.options.root && self.options.devices)
    }

    /// Sees to it that a file has its native object, and that the index knows it: none if it needs
    /// none. The index must be saved before the object gets a name.
    pub(crate) fn prepare(
        &mut self,
        ino: Ino,
        row: Inode,
        wanted: bool,
        report: &mut Report,
    ) -> io::Result<Option<Prepared>> {
        let mark = self.index.file(ino)?;
        if mark.is_none() && !wanted && row.attr.nlink == 0 {
            return Ok(None);
        }
        if !self.makes(row.attr.kind) {
            report.conflict(Subject::Id(ino), Why::Device);
            return Ok(None);
        }
        let path = self.bodies.path(ino);
        let stat = match self.look(&path)? {
            Some(stat) => stat,
            None => match self.make(ino, &row, &path).and_then(|()| self.disk.stat(&path)) {
                Ok(stat) => stat,
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    report.conflict(Subject::Id(ino), Why::Refused(error.raw_os_error().unwrap_or_default()));
                    return Ok(None);
                }
            },
        };
        if stat.kind != native_kind(row.attr.kind) {
            report.conflict(Subject::Id(ino), Why::Taken);
            return Ok(None);
        }
        let is_same = mark.as_ref().is_some_and(|mark| mark.native == stat.ino);
        if mark.as_ref().is_some_and(|mark| !is_same || !mark.older.is_empty()) {
            self.remade.insert(ino);
        }
        let known = mark.as_ref().filter(|mark| is_same && (mark.xattrs || !row.has_xattrs));
        if known.is_none() {
            let may_have = row.has_xattrs || mark.as_ref().map_or(self.index_was_lost, |mark| mark.xattrs);
            let (ctime, older) = match &mark {
                Some(mark) => mark.with_older(),
                // It may have gone and come back since the last settling: a power cut may bring its names back.
                None => (Time::default(), self.index.forgotten_file(ino)?),
            };
            if mark.is_none() && !older.is_empty() {
                self.remade.insert(ino);
            }
            let now = FileMark { older, ..FileMark::of(&stat, ctime, may_have) };
            self.index.set_file(ino, &now)?;
        }
        let mark = mark.filter(|_| is_same);
        Ok(Some(Prepared { ino, row, stat, mark }))
    }

    fn make(&mut self, ino: Ino, row: &Inode, path: &[u8]) -> io::Result<()> {
        let attr = &row.attr;
        let mode = self.native_mode(attr.kind, attr.mode);
        match attr.kind {
            Kind::Regular => {
                let born = Born { mode: attr.mode, uid: attr.uid, gid: attr.gid };
                self.bodies.ensure(ino, Some(born))?;
                return Ok(());
            }
            Kind::Symlink => self.disk.symlink(row.target.as_deref().unwrap_or_default(), path)?,
            Kind::Directory => return Err(rustix::io::Errno::ISDIR.into()),
            kind => self.disk.mknod(path, native_kind(kind), mode, attr.rdev)?,
        }
        self.bodies.made_beside(ino);
        Ok(())
    }

    /// Removes the native object of an id that is gone. Its names are gone already.
    pub(crate) fn remove_object(&mut self, ino: Ino) -> io::Result<()> {
        self.unspill(ino, false)?;
        self.index.forget_absent(ino)?;
        if self.index.file(ino)?.is_some() {
            self.bodies.drop_body(ino)?;
            self.index.forget_file(ino)?;
        }
        Ok(())
    }

    /// Removes a name that no file has in the state. `is_dir`: the state has a directory there.
    pub(crate) fn remove_name(
        &mut self,
        dir: Ino,
        name: &Name,
        is_dir: bool,
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
        restat: &mut IdSet<Ino>,
        report: &mut Report,
    ) -> io::Result<()> {
        let Some(above) = self.path(dir)? else { return Ok(()) };
        let path = join(&above, name.as_bytes());
        let Some(stat) = self.look(&path)? else { return Ok(()) };
        let ours = self.index.ours(stat.ino)?;
        match ours {
            Some(Ours::File(ino)) if stat.kind != FileKind::Directory => {
                self.disk.unlink(&path)?;
                report.unlinked += 1;
                restat.insert(ino);
                touched.insert(dir);
            }
            // Directories have their own rows. One that was laid as a record said which is gone is not listed: it is seen here.
            Some(Ours::Dir(there)) if stat.kind == FileKind::Directory => {
                let has_name = |row: Dir| row.place.parent == dir && row.place.name.as_ref() == Some(name);
                if !source.waits(there) && !source.dir(there)?.is_some_and(has_name) {
                    self.again.entry(there).or_insert(0);
                }
            }
            None if is_dir && stat.kind == FileKind::Directory => {}
            _ => report.conflict(Subject::Name(dir, name.clone()), Why::Replaced),
        }
        Ok(())
    }

    /// Gives a file a name.
    pub(crate) fn link_name(
        &mut self,
        dir: Ino,
        name: &Name,
        (ino, native): (Ino, u64),
        source: &dyn Source,
        touched: &mut IdSet<Ino>,
        restat: &mut IdSet<Ino>,
        report: &mut Report,
    ) -> io::Result<()> {
        let subject = || Subject::Name(dir, name.clone());
        let Some(above) = self.path(dir)? else {
            report.conflict(subject(), Why::NoParent);
            return Ok(());
        };
        let path = join(&above, name.as_bytes());
        let body = self.bodies.path(ino);
        match self.disk.link(&body, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let holder = self.disk.stat(&path)?;
                if holder.ino == native {
                    return Ok(());
                }
                match self.index.ours(holder.ino)? {
                    Some(Ours::File(other)) if holder.kind != FileKind::Directory => {
                        match self.replace(&body, &path, ino) {
                            Err(error) if is_absent(&error) => {
                                return self.remove_name(dir, name, false, source, touched, restat, report);
                            }
                            done => done?,
                        }
                        restat.insert(other);
                    }
                    // It comes when that has gone, which is told if it cannot.
                    Some(Ours::Dir(_)) => return Ok(()),
                    _ => {
                        report.conflict(subject(), Why::Taken);
                        return Ok(());
                    }
                }
            }
            Err(error) if is_absent(&error) => {
                // The state has gone on since it was asked: the body was there, and is dropped. What
                // had the name before must not keep it, because its id may be forgotten in this round.
                if self.look(&body)?.is_none() {
                    return self.remove_name(dir, name, false, source, touched, restat, report);
                }
                report.conflict(subject(), Why::NoParent);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        report.linked += 1;
        touched.insert(dir);
        restat.insert(ino);
        Ok(())
    }

    /// Puts a link in the place of another in one step, so that who reads the tree never misses it.
    fn replace(&mut self, body: &[u8], path: &[u8], ino: Ino) -> io::Result<()> {
        let temporary = join(LIMBO, format!("t{:016x}", ino.0).as_bytes());
        match self.disk.unlink(&temporary) {
            Err(error) if !is_absent(&error) => return Err(error),
            _ => {}
        }
        self.disk.link(body, &temporary)?;
        self.disk.rename(&temporary, path, true)?;
        Ok(())
    }

    /// A name in the state that is to be a link here: the id, if it is homed here and has a row.
    pub(crate) fn wanted(&self, dir: Ino, name: &Name, source: &dyn Source) -> io::Result<Wanted> {
        let Some(entry) = source.entry(dir, name)? else { return Ok(Wanted::Nothing) };
        if entry.kind == Kind::Directory {
            return Ok(Wanted::Directory(entry.ino));
        }
        Ok(if entry.home == self.options.island { Wanted::File(entry.ino) } else { Wanted::Nothing })
    }
}

/// The entry of the state under a name, if it belongs into the tree.
pub(crate) enum Wanted {
    Nothing,
    Directory(Ino),
    File(Ino),
}
