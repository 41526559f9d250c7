//! Runs operations in a directory, by several clients over one or more mounts of it, and records them.
//!
//! Every operation is relative to a directory that the client holds open, and touches one name or two. A file
//! system promises that such an operation is one step. A file contains blocks that are filled with one number
//! each.

mod paper;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::history::{Answer, Found, History, How, Id, Kind, Listed, Op, Record};

/// Open objects of each kind that a client keeps.
const OPEN_MAX: usize = 6;
/// Blocks of a file.
const BLOCKS_MAX: u64 = 8;
const MODE: Mode = Mode::from_raw_mode(0o777);
/// How long a client waits when nobody answered it. What is away tells everybody at once, and would have a history of
/// nothing else.
const AWAY: Duration = Duration::from_millis(200);

/// What to do.
#[derive(Debug, Clone)]
pub struct Live {
    /// The directory, over every mount of it that takes part. Clients take these in turn.
    pub dirs: Vec<PathBuf>,
    /// Threads that call.
    pub clients: u32,
    /// Operations of all of them.
    pub operations: u64,
    /// Repeats what is called, though not when.
    pub seed: u64,
    /// Names that are used in each directory.
    pub names: u64,
    /// Bytes of a block; a multiple of 8.
    pub block: usize,
    /// Blocks that are written or read at once, at most; with more than one, files also shrink. POSIX wants such
    /// requests to be atomic, and many file systems do not do it.
    pub blocks: u64,
    /// What is done how often.
    pub mix: Mix,
    /// Whether bytes are written at the end of files. With NFSv3 the client says where the end is, so two clients may both write there:
    /// `open(2)` says so of `O_APPEND`.
    pub appends: bool,
    /// After so many operations that nobody knows the outcome of it is enough: each may happen at any later time, and the
    /// orders are soon too many to try.
    pub unknown_max: u64,
}

/// What is done how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mix {
    /// Names are made, moved and removed more often than files are used, so that operations meet.
    #[default]
    Names,
    /// Table 5 of Archipelago (section 12): files and attributes, no name is moved.
    Paper,
}

/// What the file system can do, found out before.
#[derive(Debug, Clone, Copy)]
struct Able {
    rename_flags: bool,
    links: bool,
    symlinks: bool,
    /// Listings tell the numbers that `stat` tells.
    listed_ids: bool,
}

impl Live {
    /// Runs all in a new directory inside, which is left there, and looks at everything in the end.
    ///
    /// # Errors
    ///
    /// What cannot be done before the operations begin. Errors of these are part of the history.
    pub fn run(&self) -> Result<History> {
        let mut begun = self.begin()?;
        begun.work(&AtomicU64::new(self.operations))?;
        begun.look_over()?;
        Ok(begun.into_history())
    }

    /// Makes a new directory inside, for operations to come.
    ///
    /// # Errors
    ///
    /// It cannot be made, or is not the same over all mounts.
    pub fn begin(&self) -> Result<Begun<'_>> {
        ensure!(self.block > 0 && self.block.is_multiple_of(8), "a block has a multiple of 8 bytes");
        ensure!(
            self.names > 0 && self.blocks > 0 && self.clients > 0,
            "names, blocks and clients are more than 0"
        );
        let first = self.dirs.first().context("no directory is given")?;
        let name = format!("history-{}-{}", self.seed, std::process::id());
        let at = |dir: &Path| open_dir(dir).with_context(|| format!("cannot open {}", dir.display()));
        fs::mkdirat(at(first)?, &name, MODE)
            .with_context(|| format!("cannot make a directory in {}", first.display()))?;
        let able = probe(&at(&first.join(&name))?).context("trying what the file system can do")?;
        let mut roots = Vec::new();
        for dir in &self.dirs {
            let root = at(&dir.join(&name)).context("every DIR must be a mount of the same tree")?;
            roots.push(root);
        }
        let id = fs::fstat(&roots[0])?.st_ino;
        for (root, dir) in roots.iter().zip(&self.dirs) {
            let here = fs::fstat(root)?.st_ino;
            ensure!(
                here == id,
                "{} and {} are not the same directory: {name} in them has the numbers {id} and {here}",
                first.display(),
                dir.display(),
            );
        }
        Ok(Begun { live: self, able, id, roots, clock: Instant::now(), records: Vec::new() })
    }
}

/// A history that is being made.
#[derive(Debug)]
pub struct Begun<'a> {
    live: &'a Live,
    able: Able,
    id: Id,
    roots: Vec<OwnedFd>,
    clock: Instant,
    records: Vec<Record>,
}

impl Begun<'_> {
    fn client(&self, number: u32, root: &OwnedFd) -> std::io::Result<Client<'_>> {
        Ok(Client::new(number, self.live, self.able, self.clock, (self.id, root.try_clone()?)))
    }

    /// Runs operations until none is `left`, whoever takes them from it.
    ///
    /// # Errors
    ///
    /// A client cannot begin.
    pub fn work(&mut self, left: &AtomicU64) -> Result<()> {
        let clients = (0..self.live.clients)
            .map(|number| self.client(number, &self.roots[number as usize % self.roots.len()]))
            .collect::<std::io::Result<Vec<_>>>()?;
        let one_less = |left: u64| left.checked_sub(1);
        let unknown = AtomicU64::new(0);
        let records: Vec<Record> = std::thread::scope(|scope| {
            let work = |mut client: Client<'_>| {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                    client.act();
                    if client.records.last().is_some_and(Record::is_unknown) {
                        if unknown.fetch_add(1, Ordering::Relaxed) >= self.live.unknown_max {
                            left.store(0, Ordering::Relaxed);
                        }
                        std::thread::sleep(AWAY);
                    }
                }
                client.records
            };
            let threads: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || work(client))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a client does not panic")).collect()
        });
        self.records.extend(records);
        Ok(())
    }

    /// Looks at everything over each mount, as further clients. How many operations had no answer.
    ///
    /// # Errors
    ///
    /// A client cannot begin.
    pub fn look_over(&mut self) -> Result<usize> {
        let mut all = Vec::new();
        for (root, number) in self.roots.iter().zip(self.live.clients..) {
            let mut client = self.client(number, root)?;
            client.look_over(&mut BTreeSet::from([self.id]));
            all.extend(client.records);
        }
        let unknown = all.iter().filter(|record| record.is_unknown()).count();
        self.records.extend(all);
        Ok(unknown)
    }

    /// What was done so far.
    pub fn into_history(self) -> History {
        History { root: self.id, records: self.records }
    }
}

fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Tries in an empty directory, which is empty again afterwards.
fn probe(dir: &OwnedFd) -> Result<Able> {
    let file = fs::openat(dir, "a", OFlags::CREATE | OFlags::RDWR, MODE)?;
    let listed_ids =
        list(dir, true)?.iter().any(|entry| entry.id == fs::fstat(&file).ok().map(|stat| stat.st_ino));
    let links = fs::linkat(dir, "a", dir, "b", AtFlags::empty()).is_ok();
    let symlinks = fs::symlinkat("target", dir, "c").is_ok();
    let rename_flags = fs::renameat_with(dir, "a", dir, "d", RenameFlags::NOREPLACE).is_ok();
    for name in ["a", "b", "c", "d"] {
        match fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Able { rename_flags, links, symlinks, listed_ids })
}

fn list(dir: &OwnedFd, ids: bool) -> rustix::io::Result<Vec<Listed>> {
    let here = fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut entries = fs::RawDir::new(here, buffer.spare_capacity_mut());
    let mut listed = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            listed.push(Listed { name, id: ids.then_some(entry.ino()) });
        }
    }
    Ok(listed)
}

/// SplitMix64.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("an index is small")
    }
}

/// A file that is open, twice: the second time to append.
#[derive(Debug)]
struct Opened {
    id: Id,
    fd: OwnedFd,
    append: Option<OwnedFd>,
}

struct Client<'a> {
    number: u32,
    live: &'a Live,
    able: Able,
    rng: Rng,
    clock: Instant,
    dirs: Vec<(Id, OwnedFd)>,
    files: Vec<Opened>,
    writes: u64,
    records: Vec<Record>,
}

type Done = rustix::io::Result<Answer>;

impl<'a> Client<'a> {
    fn new(number: u32, live: &'a Live, able: Able, clock: Instant, root: (Id, OwnedFd)) -> Self {
        let rng = Rng(live.seed.wrapping_mul(0x1_0000_0001).wrapping_add(u64::from(number)));
        let (dirs, files) = (vec![root], Vec::new());
        Self { number, live, able, rng, clock, dirs, files, writes: 0, records: Vec::new() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).expect("less than centuries")
    }

    fn record(&mut self, op: Op, start: u64, done: Done) {
        let answer = done.unwrap_or_else(|errno| Answer::Error(error_name(errno)));
        let end = Some(self.now());
        self.records.push(Record { client: self.number, start, end, op, answer });
    }

    /// One of the directories that are open; the first is the root, which is taken more often.
    fn dir(&mut self) -> usize {
        if self.rng.percent(30) { 0 } else { self.rng.index(self.dirs.len()) }
    }

    fn name(&mut self) -> String {
        format!("n{}", self.rng.below(self.live.names))
    }

    fn act(&mut self) {
        match self.live.mix {
            Mix::Names => self.act_on_names(),
            Mix::Paper => self.act_as_the_paper(),
        }
    }

    fn act_on_names(&mut self) {
        match self.rng.below(100) {
            0..12 => self.make_file(),
            12..20 => self.make_other(),
            20..34 => self.lookup(),
            34..44 => self.unlink(),
            44..50 => self.rmdir(),
            50..66 => self.rename(),
            66..72 if self.able.links => self.link(),
            72..76 => self.list(),
            76..80 => self.stat(),
            _ => self.data(),
        }
    }

    fn make_file(&mut self) {
        let (at, name, exclusive) = (self.dir(), self.name(), self.rng.percent(60));
        let dir = self.dirs[at].0;
        let (mode, told) = self.mode();
        let op = Op::Make { dir, name: name.clone(), kind: Kind::File, exclusive, mode: told };
        let mut flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags.set(OFlags::EXCL, exclusive);
        let start = self.now();
        let fd = fs::openat(&self.dirs[at].1, &name, flags, mode);
        // A symbolic link is in the way, which is not what was asked for.
        if fd.as_ref().is_err_and(|errno| *errno == Errno::LOOP) {
            return;
        }
        let done = fd.map(|fd| (fs::fstat(&fd), fd));
        // It is open, and was removed before it was asked for its number. If it was there before, nothing was made.
        if let Ok((Err(Errno::STALE), _)) = done {
            return self.record(op, start, Ok(if exclusive { Answer::Ok } else { Answer::Unknown }));
        }
        let done = done.and_then(|(stat, fd)| Ok((stat?.st_ino, fd)));
        let answer = done.as_ref().map(|(id, _)| Answer::Found(Found::only(*id))).map_err(|errno| *errno);
        self.record(op, start, answer);
        if let Ok((id, fd)) = done {
            self.keep_file(id, fd);
        }
    }

    fn keep_dir(&mut self, id: Id, fd: OwnedFd) {
        if self.dirs.len() == OPEN_MAX {
            let at = 1 + self.rng.index(OPEN_MAX - 1);
            self.dirs.swap_remove(at);
        }
        self.dirs.push((id, fd));
    }

    fn keep_file(&mut self, id: Id, fd: OwnedFd) {
        if self.files.len() == OPEN_MAX {
            let at = self.rng.index(OPEN_MAX);
            self.files.swap_remove(at);
        }
        self.files.push(Opened { id, fd, append: None });
    }

    /// A directory or symbolic link: nobody tells which number it got.
    fn make_other(&mut self) {
        if !self.able.symlinks || self.rng.percent(75) {
            return self.make_dir();
        }
        let (at, name) = (self.dir(), self.name());
        if self.make_link(at, &name, "target") {
            self.look_at(at, name);
        }
    }

    fn make_dir(&mut self) {
        let (at, name) = (self.dir(), self.name());
        let (mode, told) = self.mode();
        let (dir, kind) = (self.dirs[at].0, Kind::Directory);
        let op = Op::Make { dir, name: name.clone(), kind, exclusive: true, mode: told };
        let start = self.now();
        let done = fs::mkdirat(&self.dirs[at].1, &name, mode);
        self.record(op, start, done.map(|()| Answer::Ok));
        if done.is_ok() {
            self.look_at(at, name);
        }
    }

    fn make_link(&mut self, at: usize, name: &str, target: &str) -> bool {
        let (dir, kind) = (self.dirs[at].0, Kind::Symlink);
        let op = Op::Make { dir, name: name.to_owned(), kind, exclusive: true, mode: None };
        let start = self.now();
        let done = fs::symlinkat(target, &self.dirs[at].1, name);
        self.record(op, start, done.map(|()| Answer::Ok));
        done.is_ok()
    }

    fn lookup(&mut self) {
        let (at, name) = (self.dir(), self.name());
        self.look_at(at, name);
    }

    fn look_at(&mut self, at: usize, name: String) {
        let open = self.rng.percent(60);
        self.look(at, name, open);
    }

    fn look(&mut self, at: usize, name: String, open: bool) {
        let op = Op::Lookup { dir: self.dirs[at].0, name: name.clone() };
        let start = self.now();
        let fd = &self.dirs[at].1;
        let stat = if open {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fs::openat(fd, &name, flags, Mode::empty()).and_then(|fd| Ok((fs::fstat(&fd)?, Some(fd))))
        } else {
            fs::statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat, None))
        };
        let kind = |mode| match FileType::from_raw_mode(mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::File,
        };
        // It had the name and was removed before it was asked for its number.
        if open && matches!(stat, Err(Errno::STALE)) {
            return;
        }
        // How many names it has is of a later moment than which object it is.
        let found = stat
            .as_ref()
            .map(|(stat, _)| Found { kind: Some(kind(stat.st_mode)), ..Found::only(stat.st_ino) });
        self.record(op, start, found.map(Answer::Found).map_err(|errno| *errno));
        let Ok((stat, Some(fd))) = stat else { return };
        let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
        match kind(stat.st_mode) {
            Kind::Directory => {
                if let Ok(fd) = open_dir(Path::new(&again)) {
                    self.keep_dir(stat.st_ino, fd);
                }
            }
            Kind::File => {
                if let Ok(fd) = fs::open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                    self.keep_file(stat.st_ino, fd);
                }
            }
            Kind::Symlink => {}
        }
    }

    fn unlink(&mut self) {
        let (at, name) = (self.dir(), self.name());
        self.unlink_name(at, name);
    }

    fn unlink_name(&mut self, at: usize, name: String) {
        let op = Op::Unlink { dir: self.dirs[at].0, name: name.clone() };
        let start = self.now();
        let done = fs::unlinkat(&self.dirs[at].1, &name, AtFlags::empty());
        self.record(op, start, done.map(|()| Answer::Ok));
    }

    fn rmdir(&mut self) {
        let (at, name) = (self.dir(), self.name());
        let op = Op::Rmdir { dir: self.dirs[at].0, name: name.clone() };
        let start = self.now();
        let done = fs::unlinkat(&self.dirs[at].1, &name, AtFlags::REMOVEDIR);
        self.record(op, start, done.map(|()| Answer::Ok));
    }

    fn rename(&mut self) {
        let (from, to) = (self.dir(), self.dir());
        let (name, new_name) = (self.name(), self.name());
        let how = match self.rng.below(8) {
            0 if self.able.rename_flags => How::NoReplace,
            1 if self.able.rename_flags => How::Exchange,
            _ => How::Replace,
        };
        let flags = match how {
            How::Replace => RenameFlags::empty(),
            How::NoReplace => RenameFlags::NOREPLACE,
            How::Exchange => RenameFlags::EXCHANGE,
        };
        let (dir, new_dir) = (self.dirs[from].0, self.dirs[to].0);
        let op = Op::Rename { dir, name: name.clone(), new_dir, new_name: new_name.clone(), how };
        let start = self.now();
        let done = fs::renameat_with(&self.dirs[from].1, &name, &self.dirs[to].1, &new_name, flags);
        self.record(op, start, done.map(|()| Answer::Ok));
    }

    fn link(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let (file, at, name) = (self.rng.index(self.files.len()), self.dir(), self.name());
        let opened = &self.files[file];
        let op = Op::Link { file: opened.id, dir: self.dirs[at].0, name: name.clone() };
        let path = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
        let start = self.now();
        let done = fs::linkat(fs::CWD, path, &self.dirs[at].1, &name, AtFlags::SYMLINK_FOLLOW);
        self.record(op, start, done.map(|()| Answer::Ok));
    }

    fn list(&mut self) {
        let at = self.dir();
        self.list_dir(at);
    }

    fn list_dir(&mut self, at: usize) {
        let op = Op::List { dir: self.dirs[at].0, atomic: false };
        let start = self.now();
        let done = list(&self.dirs[at].1, self.able.listed_ids);
        self.record(op, start, done.map(Answer::Names));
    }

    fn stat(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let at = self.rng.index(self.files.len());
        self.stat_file(at);
    }

    fn stat_file(&mut self, at: usize) {
        let Opened { id, fd, .. } = &self.files[at];
        let (id, block) = (*id, self.live.block as u64);
        let start = self.now();
        let done = fs::fstat(fd).map(|stat| {
            let size = Some(stat.st_size.cast_unsigned() / block);
            let mode = Some(stat.st_mode & paper::MODE_BITS);
            Answer::Found(Found { nlink: Some(stat.st_nlink), size, mode, ..Found::only(stat.st_ino) })
        });
        self.record(Op::Stat { file: id }, start, done);
    }

    fn data(&mut self) {
        if self.files.is_empty() {
            return self.make_file();
        }
        let file = self.rng.index(self.files.len());
        if self.rng.percent(50) { self.write_some(file) } else { self.read_some(file) }
    }

    fn read_some(&mut self, file: usize) {
        let (at, len) = self.range();
        self.read(file, at, len);
    }

    fn write_some(&mut self, file: usize) {
        let (at, len) = self.range();
        match self.rng.below(10) {
            0 | 1 if self.live.appends => self.append(file, len),
            2 if self.live.blocks > 1 => self.truncate(file, at),
            _ => self.write(file, at, len),
        }
    }

    /// Blocks of a file.
    fn range(&mut self) -> (u64, u64) {
        (self.rng.below(BLOCKS_MAX), 1 + self.rng.below(self.live.blocks))
    }

    /// Numbers that nobody else writes, and the bytes for them.
    fn blocks(&mut self, len: u64) -> (Vec<u64>, Vec<u8>) {
        let mut numbers = Vec::new();
        let mut bytes = Vec::new();
        self.writes += 1;
        let number = (u64::from(self.number) + 1) << 32 | self.writes;
        for _ in 0..len {
            numbers.push(number);
            for _ in 0..self.live.block / 8 {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        (numbers, bytes)
    }

    fn write(&mut self, file: usize, at: u64, len: u64) {
        let (data, bytes) = self.blocks(len);
        let op = Op::Write { file: self.files[file].id, at, data };
        let start = self.now();
        let done = rustix::io::pwrite(&self.files[file].fd, &bytes, at * self.live.block as u64);
        self.record(op, start, done.and_then(|wrote| whole(wrote, bytes.len())));
    }

    fn append(&mut self, file: usize, len: u64) {
        let (data, bytes) = self.blocks(len);
        let opened = &mut self.files[file];
        if opened.append.is_none() {
            let path = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
            let Ok(fd) = fs::open(path, flags, Mode::empty()) else { return };
            opened.append = Some(fd);
        }
        let fd = opened.append.as_ref().expect("it was just opened");
        let op = Op::Append { file: opened.id, data };
        let start = u64::try_from(self.clock.elapsed().as_nanos()).expect("less than centuries");
        let done = rustix::io::write(fd, &bytes);
        self.record(op, start, done.and_then(|wrote| whole(wrote, bytes.len())));
    }

    fn truncate(&mut self, file: usize, size: u64) {
        let op = Op::Truncate { file: self.files[file].id, size };
        let start = self.now();
        let done = fs::ftruncate(&self.files[file].fd, size * self.live.block as u64);
        self.record(op, start, done.map(|()| Answer::Ok));
    }

    fn read(&mut self, file: usize, at: u64, len: u64) {
        let block = self.live.block;
        let op = Op::Read { file: self.files[file].id, at, len };
        let mut bytes = vec![0; block * usize::try_from(len).expect("a few blocks")];
        let start = self.now();
        let done = rustix::io::pread(&self.files[file].fd, &mut bytes, at * block as u64);
        let answer = done.map(|read| Answer::Data(bytes[..read].chunks(block).map(number_of).collect()));
        self.record(op, start, answer);
    }

    /// Looks at the first open directory and at all below.
    fn look_over(&mut self, seen: &mut BTreeSet<Id>) {
        self.list_dir(0);
        let Some(Record { answer: Answer::Names(listed), .. }) = self.records.last() else { return };
        let names: Vec<String> = listed.iter().map(|entry| entry.name.clone()).collect();
        for name in names {
            self.files.clear();
            self.dirs.truncate(1);
            self.look(0, name, true);
            if !self.files.is_empty() {
                self.stat_file(0);
                (0..BLOCKS_MAX).for_each(|at| self.read(0, at, 1));
            }
            if let Some(dir) = self.dirs.pop_if(|(id, _)| seen.insert(*id)) {
                let above = std::mem::replace(&mut self.dirs[0], dir);
                self.look_over(seen);
                self.dirs = vec![above];
            }
        }
    }
}

/// All was written. The rest is not known: perhaps it was written, too.
fn whole(wrote: usize, len: usize) -> Done {
    if wrote == len { Ok(Answer::Ok) } else { Ok(Answer::Unknown) }
}

/// The number that fills a block. One that nobody writes, if it is not filled with one.
fn number_of(block: &[u8]) -> u64 {
    let mut words = block.chunks(8).map(|word| {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    let first = words.next().unwrap_or(0);
    if block.len().is_multiple_of(8) && words.all(|word| word == first) { first } else { first | 1 << 63 }
}

/// How often each operation ended in which way.
pub fn tally(history: &History) -> BTreeMap<(String, String), u64> {
    let mut all = BTreeMap::new();
    for record in &history.records {
        let op = match &record.op {
            Op::Lookup { .. } => "lookup",
            Op::Make { .. } => "make",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::Rename { .. } => "rename",
            Op::Link { .. } => "link",
            Op::List { .. } => "list",
            Op::Stat { .. } => "stat",
            Op::SetMode { .. } => "chmod",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Read { .. } => "read",
            Op::Truncate { .. } => "truncate",
        };
        let answer = match &record.answer {
            Answer::Error(error) => error.clone(),
            Answer::Unknown => "unknown".to_owned(),
            _ => "ok".to_owned(),
        };
        *all.entry((op.to_owned(), answer)).or_insert(0) += 1;
    }
    all
}

/// The name of an error; its number, if it is none that file operations have.
pub fn error_name(errno: Errno) -> String {
    let name = match errno {
        Errno::NOENT => "ENOENT",
        Errno::EXIST => "EEXIST",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::INVAL => "EINVAL",
        Errno::STALE => "ESTALE",
        Errno::IO => "EIO",
        Errno::INTR => "EINTR",
        Errno::ACCESS => "EACCES",
        Errno::PERM => "EPERM",
        Errno::NOSPC => "ENOSPC",
        Errno::DQUOT => "EDQUOT",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        Errno::NOMEM => "ENOMEM",
        Errno::ROFS => "EROFS",
        Errno::FBIG => "EFBIG",
        Errno::MLINK => "EMLINK",
        Errno::BUSY => "EBUSY",
        Errno::LOOP => "ELOOP",
        Errno::AGAIN => "EAGAIN",
        Errno::XDEV => "EXDEV",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::NOTCONN => "ENOTCONN",
        Errno::CONNRESET => "ECONNRESET",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::HOSTDOWN => "EHOSTDOWN",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::PIPE => "EPIPE",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}

/// Writes a history to a file.
///
/// # Errors
///
/// Those of the file.
pub fn save(history: &History, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    history.write(std::io::BufWriter::new(file)).with_context(|| format!("cannot write {}", path.display()))
}
