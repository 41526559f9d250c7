//! Table 5 of Archipelago (section 12): which operations, and how often.
//!
//! The paper's clients take any object of the tree. Ours have some open, and look others up now and then; who reads asks for
//! attributes, too, or nobody would see what was set. A link to a directory is read by the kernel, so it has a name that
//! no other object gets, and leads to the directory that had the other name of the same number beside it.

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::{Client, MODE, Mix};
use crate::history::{Answer, Found, Kind, Op};

/// Bits of a mode that are judged.
pub(super) const MODE_BITS: u32 = 0o777;
/// What is made has this mode, whatever the mask of the process.
const MADE: u32 = 0o700;
/// An object is looked up before it is used, in per cent.
const FRESH: u64 = 25;
/// Sum of the frequencies, which are in ten-thousandths of a per cent.
const ALL: u64 = 999_999;

impl Client<'_> {
    pub(super) fn act_as_the_paper(&mut self) {
        match self.rng.below(ALL) {
            0..32_279 => self.make_dir(),
            32_279..60_523 => self.make_file(),
            60_523..79_729 => self.unlink(),
            79_729..87_799 => self.remove_link(),
            87_799..199_968 => self.read_dir(),
            199_968..331_504 => self.read_file(),
            331_504..355_713 => self.rmdir(),
            355_713..429_147 => self.resolve_link(),
            429_147..485_635 => self.set_dir_mode(),
            485_635..705_454 => self.set_file_mode(),
            705_454..713_524 => self.link_dir(),
            _ => self.write_file(),
        }
    }

    /// The mode of what is made, and what is told of it.
    pub(super) fn mode(&self) -> (Mode, Option<u32>) {
        match self.live.mix {
            Mix::Names => (MODE, None),
            Mix::Paper => (Mode::from_raw_mode(MADE), Some(MADE)),
        }
    }

    /// A directory that is open, perhaps only now.
    fn some_dir(&mut self) -> usize {
        if self.rng.percent(FRESH) {
            let (at, name) = (self.dir(), self.name());
            self.look(at, name, true);
        }
        self.dir()
    }

    /// The same of files; there may be none.
    fn some_file(&mut self) -> Option<usize> {
        if self.files.is_empty() || self.rng.percent(FRESH) {
            let (at, name) = (self.dir(), self.name());
            self.look(at, name, true);
        }
        (!self.files.is_empty()).then(|| self.rng.index(self.files.len()))
    }

    fn read_dir(&mut self) {
        let at = self.some_dir();
        self.list_dir(at);
        let (file, fd) = &self.dirs[at];
        let (file, start) = (*file, self.now());
        let done = fs::fstat(fd).map(|stat| {
            let mode = Some(stat.st_mode & MODE_BITS);
            Answer::Found(Found { kind: Some(Kind::Directory), mode, ..Found::only(stat.st_ino) })
        });
        self.record(Op::Stat { file }, start, done);
    }

    fn read_file(&mut self) {
        let Some(file) = self.some_file() else { return };
        self.read_some(file);
        self.stat_file(file);
    }

    fn write_file(&mut self) {
        let Some(file) = self.some_file() else { return };
        self.write_some(file);
    }

    fn some_mode(&mut self) -> u32 {
        // The last bits of 0o777, as who made it may go on.
        MADE | u32::try_from(self.rng.below(0o100)).expect("six bits")
    }

    fn set_dir_mode(&mut self) {
        let (at, mode) = (self.some_dir(), self.some_mode());
        let (file, fd) = &self.dirs[at];
        let (file, start) = (*file, self.now());
        let done = fs::fchmod(fd, Mode::from_raw_mode(mode));
        self.record(Op::SetMode { file, mode }, start, done.map(|()| Answer::Ok));
    }

    fn set_file_mode(&mut self) {
        let Some(at) = self.some_file() else { return };
        let mode = self.some_mode();
        let (file, start) = (self.files[at].id, self.now());
        let done = fs::fchmod(&self.files[at].fd, Mode::from_raw_mode(mode));
        self.record(Op::SetMode { file, mode }, start, done.map(|()| Answer::Ok));
    }

    /// The names of a link and of where it leads.
    fn link_names(&mut self) -> (String, String) {
        let target = self.name();
        (format!("link-{target}"), target)
    }

    fn link_dir(&mut self) {
        let (at, (link, target)) = (self.dir(), self.link_names());
        self.make_link(at, &link, &target);
    }

    fn remove_link(&mut self) {
        let (at, (link, _)) = (self.dir(), self.link_names());
        self.unlink_name(at, link);
    }

    fn resolve_link(&mut self) {
        let (at, (link, name)) = (self.dir(), self.link_names());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = self.now();
        let opened = fs::openat(&self.dirs[at].1, &link, flags, Mode::empty());
        let opened = opened.and_then(|fd| Ok((fs::fstat(&fd)?.st_ino, fd)));
        // Which of the two names was not there is not told, nor which of the directories.
        if let Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) = opened {
            return;
        }
        let found = opened
            .as_ref()
            .map(|(id, _)| Answer::Found(Found { kind: Some(Kind::Directory), ..Found::only(*id) }));
        self.record(Op::Lookup { dir: self.dirs[at].0, name }, start, found.map_err(|errno| *errno));
        if let Ok((id, fd)) = opened {
            self.keep_dir(id, fd);
            self.list_dir(self.dirs.len() - 1);
        }
    }
}
