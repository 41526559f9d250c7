//! Copies an existing folder into a new site before it has links (`atoll site join --adopt`). Files that other sites have too, with the
//! same bytes, are shown as one with theirs, and their bytes are not sent.
//!
//! Only reads the folder. What cannot be kept in a volume (sockets are, device files only for root) is counted and left out.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use atoll_core::{Ino, Name, Time};
use atoll_disk::real::RealDisk;
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow, Stat};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, SetAttr, SetTime, XattrMode};
use atoll_vfs::{Files, call};
use atoll_wide::contents::pieces::FILE_BYTES_MAX;
use bytes::Bytes;

use crate::places::walk_all;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Files and directories.
    pub objects: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// What was left out: device files without the right to make them, and attributes that no volume keeps.
    pub left_out: u64,
}

/// Fails if a file below a folder is longer than a site keeps.
pub(super) fn check_lengths(from: &Path) -> Result<()> {
    let mut too_long = None;
    walk_all(from, &mut |path, meta| {
        if meta.is_file() && meta.len() > FILE_BYTES_MAX {
            too_long = Some((path.to_owned(), meta.len()));
        }
    })?;
    let Some((path, len)) = too_long else { return Ok(()) };
    bail!(
        "{} has {} GiB, and a file in a wide volume has at most {} GiB.\n\
        Move it out of the folder, and join again.",
        path.display(),
        len.div_ceil(1 << 30),
        FILE_BYTES_MAX >> 30
    );
}

/// Copies all that is below a folder to the root of a volume. `told` hears now and then how far that is.
pub(super) fn adopt(files: &dyn Files, from: &Path, told: &mut dyn FnMut(Adopted)) -> Result<Adopted> {
    let disk =
        RealDisk::open(from).with_context(|| format!("The folder {} cannot be read", from.display()))?;
    let mut copying = Copying { files, disk, from, links: HashMap::new(), done: Adopted::default() };
    let mut dirs = vec![(Vec::new(), Ino::ROOT)];
    // Their times change as long as something comes into them.
    let mut times = Vec::new();
    while let Some((path, dir)) = dirs.pop() {
        let mut names = copying.disk.list(&path).with_context(|| copying.at(&path))?;
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, _) in names {
            let below = if path.is_empty() { name.clone() } else { [&path[..], b"/", &name].concat() };
            let stat = copying.disk.stat(&below).with_context(|| copying.at(&below))?;
            let Some(ino) = copying.copy(&below, &name, dir, &stat)? else { continue };
            if stat.kind == FileKind::Directory {
                times.push((ino, stat.mtime));
                dirs.push((below, ino));
            }
            copying.done.objects += 1;
            told(copying.done);
        }
    }
    for (ino, mtime) in times.into_iter().rev() {
        copying.set(ino, mtime_of(mtime), b"")?;
    }
    Ok(copying.done)
}

struct Copying<'a> {
    files: &'a dyn Files,
    disk: RealDisk,
    from: &'a Path,
    /// Files of several names that are here.
    links: HashMap<u64, Ino>,
    done: Adopted,
}

fn mtime_of((secs, nanos): (i64, u32)) -> SetAttr {
    SetAttr { mtime: Some(SetTime::To { time: Time { secs, nanos } }), ..SetAttr::default() }
}

impl Copying<'_> {
    /// A path, for people.
    fn at(&self, path: &[u8]) -> String {
        use std::os::unix::ffi::OsStrExt;
        format!("{}", self.from.join(std::ffi::OsStr::from_bytes(path)).display())
    }

    fn call(&self, op: Op, data: Bytes, path: &[u8]) -> Result<Answer> {
        self.try_call(op, data).map_err(|errno| anyhow!("{} cannot be copied: {errno}.", self.at(path)))
    }

    fn try_call(&self, op: Op, data: Bytes) -> Result<Answer, Errno> {
        call(self.files, &Caller::ROOT, op, data).map(|(answer, _)| answer)
    }

    fn set(&self, ino: Ino, set: SetAttr, path: &[u8]) -> Result<()> {
        self.call(Op::SetAttr { ino, set }, Bytes::new(), path).map(drop)
    }

    /// Makes one file or directory; none if it cannot be made.
    fn copy(&mut self, path: &[u8], name: &[u8], dir: Ino, stat: &Stat) -> Result<Option<Ino>> {
        let name = Name::new(name).map_err(|why| anyhow!("{} cannot be copied: {why}.", self.at(path)))?;
        if let Some(ino) = self.links.get(&stat.ino).filter(|_| stat.nlink > 1) {
            self.call(Op::Link { ino: *ino, dir, name }, Bytes::new(), path)?;
            return Ok(Some(*ino));
        }
        let mode = stat.mode & 0o7777;
        let kind = match stat.kind {
            FileKind::Regular => Kind::Regular,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
            FileKind::CharDevice => Kind::CharDevice,
            FileKind::BlockDevice => Kind::BlockDevice,
        };
        let op = if kind == Kind::Directory {
            Op::Mkdir { dir, name, mode, umask: 0 }
        } else {
            let target = if kind == Kind::Symlink { self.disk.readlink(path)?.into() } else { Bytes::new() };
            Op::Create { dir, name, kind, mode, umask: 0, rdev: stat.rdev, exclusive: true, target }
        };
        let ino = match self.try_call(op, Bytes::new()) {
            Ok(Answer::Found { found }) => found.attr.ino,
            Err(Errno::EEXIST) => bail!(
                "{} is in the volume already, and nothing may be there.\n\
                Leave the volume and join again: atoll site leave",
                self.at(path)
            ),
            Err(Errno::EPERM) if matches!(kind, Kind::CharDevice | Kind::BlockDevice) => {
                self.done.left_out += 1;
                return Ok(None);
            }
            Ok(_) => bail!("{} cannot be copied: the volume gives another answer.", self.at(path)),
            Err(errno) => bail!("{} cannot be copied: {errno}.", self.at(path)),
        };
        if stat.nlink > 1 && kind != Kind::Directory {
            self.links.insert(stat.ino, ino);
        }
        if kind == Kind::Regular {
            self.copy_bytes(path, ino)?;
        }
        // The owner first: it takes away set-id bits.
        let owner = SetAttr { uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttr::default() };
        self.set(ino, owner, path)?;
        if kind != Kind::Symlink {
            for (name, value) in self.disk.xattrs(path).with_context(|| self.at(path))? {
                let (name, value, mode) = (Bytes::from(name), Bytes::from(value), XattrMode::Any);
                let set = Op::SetXattr { ino, name, value, mode, kill_sgid: false };
                self.done.left_out += u64::from(self.try_call(set, Bytes::new()).is_err());
            }
            self.set(ino, SetAttr { mode: Some(mode), ..SetAttr::default() }, path)?;
        }
        self.set(ino, mtime_of(stat.mtime), path)?;
        Ok(Some(ino))
    }

    fn copy_bytes(&mut self, path: &[u8], ino: Ino) -> Result<()> {
        let file = self.disk.open(path, OpenHow::Read).with_context(|| self.at(path))?;
        let (mut offset, mut buffer) = (0, vec![0; CHUNK]);
        let len = file.stat().with_context(|| self.at(path))?.size;
        loop {
            // Holes stay holes.
            let Some(data) = file.seek(offset, false).with_context(|| self.at(path))? else { break };
            offset = data;
            let end = file.seek(offset, true).with_context(|| self.at(path))?.unwrap_or(len);
            while offset < end {
                let most = CHUNK.min((end - offset) as usize);
                let n = file.read_full(&mut buffer[..most], offset).with_context(|| self.at(path))?;
                if n == 0 {
                    return Ok(());
                }
                let write = Op::Write { ino, offset, append: false, kill_set_id: false };
                self.call(write, Bytes::copy_from_slice(&buffer[..n]), path)?;
                offset += n as u64;
                self.done.bytes += n as u64;
            }
        }
        self.set(ino, SetAttr { size: Some(len), ..SetAttr::default() }, path)
    }
}
