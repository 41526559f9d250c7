//! The operations of the benchmark, each by itself: what it needs, and how it is done once. Counts nothing.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, getxattr, utimensat};
use rustix::io::Errno;

/// Bytes of a file that is written or read.
const FILE_BYTES: usize = 16 << 10;
/// Entries of a directory that is listed.
const ENTRIES: usize = 20;
/// Files of a directory that is renamed with them.
const FILES_WITHIN: usize = 100;
/// Bytes that are appended.
const LITTLE: &[u8] = b"abcd";

/// What the kernel knows when an operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// All names that the preparation has made.
    KnowsNames,
    /// The bytes of files too.
    KnowsAll,
    /// No names and attributes.
    ForgotNames,
    /// No bytes of files either.
    ForgotAll,
}

/// Directories to work in, and what an operation's preparation has left.
#[derive(Debug, Clone)]
pub(super) struct Dirs {
    /// Names are made here.
    pub(super) home: PathBuf,
    /// At the same island.
    pub(super) beside: PathBuf,
    /// At another island, if there are several.
    pub(super) away: Option<PathBuf>,
}

/// What one operation works on.
#[derive(Debug)]
pub(super) struct Place {
    dirs: Dirs,
    /// Of the operation, so that none meets the names of another one.
    tag: usize,
    /// Names that the kernel knows, if it has not forgotten them.
    known: Vec<PathBuf>,
    /// A file that stays open.
    open: Option<File>,
}

impl Place {
    /// Of the operation with this number.
    pub(super) fn new(dirs: Dirs, tag: usize) -> Self {
        Self { dirs, tag, known: Vec::new(), open: None }
    }

    /// Has the kernel know what it should.
    pub(super) fn know(&self) -> io::Result<()> {
        let dirs = [&self.dirs.home, &self.dirs.beside].into_iter().chain(&self.dirs.away);
        dirs.chain(&self.known).try_for_each(|path| match fs::symlink_metadata(path) {
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        })
    }

    fn named(&self, dir: &Path, what: &str, n: usize) -> PathBuf {
        dir.join(format!("{what}-{}-{n}", self.tag))
    }

    /// What the operation is done on the `n`-th time.
    fn it(&self, n: usize) -> PathBuf {
        self.named(&self.dirs.home, "it", n)
    }

    /// Where a rename or link goes to in the same directory.
    fn renamed(&self, n: usize) -> PathBuf {
        self.named(&self.dirs.home, "new", n)
    }

    /// Where a rename to another directory goes to, at another island if there are several.
    fn moved(&self, n: usize) -> PathBuf {
        self.named(self.dirs.away.as_ref().unwrap_or(&self.dirs.beside), "new", n)
    }

    fn file(&self) -> io::Result<&File> {
        self.open.as_ref().ok_or_else(|| io::Error::other("no file is open"))
    }

    /// The names that the operation is done on, which the kernel is to know.
    fn its(&mut self, times: usize) -> Vec<PathBuf> {
        let all: Vec<PathBuf> = (0..times).map(|n| self.it(n)).collect();
        self.known.extend_from_slice(&all);
        all
    }
}

type Prepare = fn(&mut Place, usize) -> io::Result<()>;
type Act = fn(&Place, usize) -> io::Result<()>;

/// An operation.
pub(super) struct Operation {
    /// What it is called in the table.
    pub(super) name: &'static str,
    /// It is done so many times less often, because its preparation takes long.
    pub(super) rarer: usize,
    /// It needs directories at several islands.
    pub(super) apart: bool,
    /// What the kernel knows before it.
    pub(super) kernel: Kernel,
    /// Makes what is needed to do it so many times.
    pub(super) prepare: Prepare,
    /// Does it for the `n`-th time.
    pub(super) act: Act,
}

impl Operation {
    const fn new(name: &'static str, prepare: Prepare, act: Act) -> Self {
        Self { name, rarer: 1, apart: false, kernel: Kernel::KnowsNames, prepare, act }
    }

    const fn rarer(self, rarer: usize) -> Self {
        Self { rarer, ..self }
    }

    const fn when(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }
}

fn nothing(_: &mut Place, _: usize) -> io::Result<()> {
    Ok(())
}

fn absent(place: &mut Place, times: usize) -> io::Result<()> {
    place.its(times);
    Ok(())
}

fn dirs(place: &mut Place, times: usize) -> io::Result<()> {
    place.its(times).iter().try_for_each(fs::create_dir)
}

fn dirs_with_dirs(place: &mut Place, times: usize) -> io::Result<()> {
    dirs(place, times)?;
    (0..times).try_for_each(|n| fs::create_dir(place.it(n).join("below")))
}

fn dirs_with(place: &mut Place, times: usize, files: usize) -> io::Result<()> {
    place.its(times).iter().try_for_each(|dir| {
        fs::create_dir(dir)?;
        (0..files).try_for_each(|n| fs::write(dir.join(n.to_string()), LITTLE))
    })
}

fn files(place: &mut Place, times: usize) -> io::Result<()> {
    place.its(times).iter().try_for_each(|file| fs::write(file, LITTLE))
}

/// Files, and as many others that they are to replace.
fn files_and_others(place: &mut Place, times: usize) -> io::Result<()> {
    files(place, times)?;
    (0..times).try_for_each(|n| {
        fs::write(place.renamed(n), LITTLE)?;
        place.known.push(place.renamed(n));
        Ok(())
    })
}

fn linked_files(place: &mut Place, times: usize) -> io::Result<()> {
    files(place, times)?;
    (0..times).try_for_each(|n| {
        fs::hard_link(place.it(n), place.renamed(n))?;
        place.known.push(place.renamed(n));
        Ok(())
    })
}

fn symlinks(place: &mut Place, times: usize) -> io::Result<()> {
    place.its(times).iter().try_for_each(|link| std::os::unix::fs::symlink("/nowhere", link))
}

fn full_files(place: &mut Place, times: usize) -> io::Result<()> {
    place.its(times).iter().try_for_each(|file| fs::write(file, [7; FILE_BYTES]))
}

/// Files that were read, so that access times are changed by no further read.
fn read_files(place: &mut Place, times: usize) -> io::Result<()> {
    full_files(place, times)?;
    (0..times).try_for_each(|n| read(place, n))
}

fn open_file(place: &mut Place, _: usize) -> io::Result<()> {
    let file = File::options().append(true).create_new(true).open(place.it(0))?;
    (&file).write_all(LITTLE)?;
    place.open = Some(file);
    Ok(())
}

fn stat(place: &Place, n: usize) -> io::Result<()> {
    fs::symlink_metadata(place.it(n)).map(drop)
}

fn stat_absent(place: &Place, n: usize) -> io::Result<()> {
    match fs::symlink_metadata(place.it(n)) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
        Ok(_) => Err(io::Error::other("a name is there that nobody has made")),
    }
}

fn list(place: &Place, n: usize) -> io::Result<()> {
    let mut seen = 0;
    for entry in fs::read_dir(place.it(n))? {
        fs::symlink_metadata(entry?.path())?;
        seen += 1;
    }
    if seen == ENTRIES { Ok(()) } else { Err(io::Error::other(format!("{seen} entries, not {ENTRIES}"))) }
}

fn read(place: &Place, n: usize) -> io::Result<()> {
    let mut bytes = [0; FILE_BYTES];
    File::open(place.it(n))?.read_exact(&mut bytes)
}

fn utimes(place: &Place, n: usize) -> io::Result<()> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, place.it(n), &times, AtFlags::empty())?)
}

fn absent_attribute(place: &Place, n: usize) -> io::Result<()> {
    match getxattr(place.it(n), "user.absent", &mut [0u8; 64][..]) {
        Err(Errno::NODATA) => Ok(()),
        Err(why) => Err(why.into()),
        Ok(_) => Err(io::Error::other("an attribute is there that nobody has set")),
    }
}

fn chmod(place: &Place, n: usize) -> io::Result<()> {
    fs::set_permissions(place.it(n), Permissions::from_mode(0o700))
}

fn move_it(place: &Place, n: usize) -> io::Result<()> {
    fs::rename(place.it(n), place.moved(n))
}

/// All of them. The kernel forgets what it knows of everything, so those before which it does are the last ones.
pub(super) fn all() -> Vec<Operation> {
    let op = Operation::new;
    vec![
        op("mkdir", nothing, |place, n| fs::create_dir(place.it(n))),
        op("chmod of a directory", dirs, chmod),
        op("chmod of a directory with directories", dirs_with_dirs, chmod),
        op("create, close", nothing, |place, n| File::create_new(place.it(n)).map(drop)),
        op("chmod of a file", files, chmod),
        op("utimes of a file", files, utimes),
        op("stat, warm", files, stat),
        op("lookup of an absent name, cold", nothing, stat_absent),
        op("lookup of an absent name, warm", absent, stat_absent),
        op("getxattr of an absent attribute", files, absent_attribute),
        op("readlink", symlinks, |place, n| fs::read_link(place.it(n)).map(drop)),
        op("open, close", files, |place, n| File::open(place.it(n)).map(drop)),
        op("open, read 16 KiB, close, warm", read_files, read).when(Kernel::KnowsAll),
        op("create, write 16 KiB, close", nothing, |place, n| {
            File::create_new(place.it(n))?.write_all(&[7; FILE_BYTES])
        }),
        op("append 4 bytes to an open file", open_file, |place, _| place.file()?.write_all(LITTLE)),
        op("open, append 4 bytes, close", files, |place, n| {
            File::options().append(true).open(place.it(n))?.write_all(LITTLE)
        }),
        op("append 4 bytes to an open file, fsync", open_file, |place, _| {
            let mut file = place.file()?;
            file.write_all(LITTLE)?;
            file.sync_all()
        }),
        op("rename in a directory", files, |place, n| fs::rename(place.it(n), place.renamed(n))),
        op("rename over a file", files_and_others, |place, n| fs::rename(place.it(n), place.renamed(n))),
        op("rename to a directory of the same island", files, |place, n| {
            fs::rename(place.it(n), place.named(&place.dirs.beside, "new", n))
        }),
        Operation { apart: true, ..op("rename to a directory of another island", files, move_it) },
        op("link", files, |place, n| fs::hard_link(place.it(n), place.renamed(n))),
        op("unlink of a second name", linked_files, |place, n| fs::remove_file(place.renamed(n))),
        op("unlink", files, |place, n| fs::remove_file(place.it(n))),
        op("rmdir", dirs, |place, n| fs::remove_dir(place.it(n))),
        op("rename of an empty directory to another parent", dirs, move_it),
        op("rename of a directory with 100 files", |p, n| dirs_with(p, n, FILES_WITHIN), move_it).rarer(10),
        op("stat, cold", files, stat).when(Kernel::ForgotNames),
        op("list and stat 20 entries, cold", |p, n| dirs_with(p, n, ENTRIES), list)
            .rarer(10)
            .when(Kernel::ForgotNames),
        op("open, read 16 KiB, close, cold", full_files, read).when(Kernel::ForgotAll),
    ]
}
