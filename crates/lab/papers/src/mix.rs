//! Archipelago's second operation mix (its Table 6), on as many shared directories and files as there (13.2). Works through a mounted
//! directory alone. Measures nothing.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use atoll_model::Rng;

/// Directories of the mix (Archipelago 13.2).
const DIRS: usize = 2_000;
/// Files of the mix, somewhere in them (Archipelago 13.2).
const FILES: usize = 2_000;
/// Bytes of one read or write.
const BLOCK_BYTES: usize = 8 * 1024;

/// Makes the directories of the mix in `base`.
pub(crate) fn make_dirs(base: &Path) -> io::Result<Vec<PathBuf>> {
    let dirs: Vec<PathBuf> = (0..DIRS).map(|n| base.join(format!("d{n}"))).collect();
    dirs.iter().try_for_each(fs::create_dir)?;
    Ok(dirs)
}

/// An operation of the mix.
#[derive(Debug, Clone, Copy)]
enum Kind {
    CreateDir,
    CreateFile,
    DeleteFile,
    ReadDir,
    ReadFile,
    RemoveDir,
    SetDirAttr,
    SetFileAttr,
    WriteFile,
}

/// Archipelago, Table 6, mix 2, in hundredths of a percent; symbolic links to directories (12) are left out.
const WEIGHTS: [(Kind, u32); 9] = [
    (Kind::CreateDir, 5),
    (Kind::CreateFile, 357),
    (Kind::DeleteFile, 244),
    (Kind::ReadDir, 1565),
    (Kind::ReadFile, 1528),
    (Kind::RemoveDir, 2),
    (Kind::SetDirAttr, 7),
    (Kind::SetFileAttr, 2928),
    (Kind::WriteFile, 3352),
];

/// The directories and files of the mix, and what comes next.
pub(crate) struct Mix {
    dirs: Vec<PathBuf>,
    /// For each directory, its island.
    islands: Vec<usize>,
    files: Vec<(usize, u64)>,
    below: Vec<PathBuf>,
    next: u64,
    rng: Rng,
    buffer: Vec<u8>,
}

/// An error, and of what.
fn of(what: fmt::Arguments<'_>, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

impl Mix {
    /// Files in these directories, of which each is at the island that stands in `islands`.
    pub(crate) fn new(dirs: Vec<PathBuf>, islands: Vec<usize>) -> io::Result<Self> {
        let (files, below) = (Vec::new(), Vec::new());
        // The same in every run.
        let (rng, buffer) = (Rng::new(1), vec![7; BLOCK_BYTES]);
        let mut mix = Self { dirs, islands, files, below, next: 0, rng, buffer };
        mix.settle()?;
        Ok(mix)
    }

    /// As many files and directories as at the beginning: the mix makes more than it removes, and what a listing takes
    /// depends on how many there are.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.below.drain(..).try_for_each(fs::remove_dir)?;
        while self.files.len() > FILES {
            let nth = self.rng.index(self.files.len());
            let file = self.files.swap_remove(nth);
            fs::remove_file(self.path(file))?;
        }
        while self.files.len() < FILES {
            self.create()?;
        }
        Ok(())
    }

    fn path(&self, (dir, name): (usize, u64)) -> PathBuf {
        self.dirs[dir].join(format!("f{name}"))
    }

    fn create(&mut self) -> io::Result<()> {
        let file = (self.rng.index(self.dirs.len()), self.next);
        self.next += 1;
        let mut open = File::create_new(self.path(file))?;
        self.files.push(file);
        open.write_all(&self.buffer)
    }

    /// Renames a file, to another island's directory.
    pub(crate) fn rename(&mut self) -> io::Result<()> {
        let at = self.rng.index(self.files.len());
        let (dir, name) = self.files[at];
        let to = loop {
            let to = self.rng.index(self.dirs.len());
            if self.islands[to] != self.islands[dir] {
                break to;
            }
        };
        let (from, into) = (self.path((dir, name)), self.path((to, name)));
        fs::rename(&from, &into).map_err(|e| of(format_args!("rename {from:?} to {into:?}"), e))?;
        self.files[at] = (to, name);
        Ok(())
    }

    /// One operation of the mix.
    pub(crate) fn step(&mut self) -> io::Result<()> {
        let (kind, _) = WEIGHTS[self.rng.weighted(&WEIGHTS.map(|(_, weight)| weight))];
        let dir = self.rng.index(self.dirs.len());
        let nth = self.rng.index(self.files.len());
        let file = self.path(self.files[nth]);
        let odd = self.rng.below(2) as u32;
        let done = match kind {
            Kind::CreateDir => {
                let path = self.dirs[dir].join(format!("x{}", self.next));
                self.next += 1;
                fs::create_dir(&path).map(|()| self.below.push(path))
            }
            Kind::RemoveDir => self.below.pop().map_or(Ok(()), fs::remove_dir),
            Kind::CreateFile => self.create(),
            Kind::DeleteFile if self.files.len() > FILES / 2 => {
                self.files.swap_remove(nth);
                fs::remove_file(&file)
            }
            Kind::DeleteFile => self.create(),
            Kind::ReadDir => {
                fs::read_dir(&self.dirs[dir]).and_then(|mut all| all.try_for_each(|entry| entry.map(drop)))
            }
            Kind::ReadFile => match File::open(&file).and_then(|mut open| open.read(&mut self.buffer)) {
                Ok(BLOCK_BYTES) => Ok(()),
                Ok(_) => Err(io::Error::other("it is too short")),
                Err(error) => Err(error),
            },
            Kind::SetDirAttr => {
                fs::set_permissions(&self.dirs[dir], Permissions::from_mode(0o750 | (odd * 5)))
            }
            Kind::SetFileAttr => fs::set_permissions(&file, Permissions::from_mode(0o640 | (odd * 4))),
            Kind::WriteFile => {
                let block = self.rng.below(8);
                let open = File::options().write(true).open(&file);
                open.and_then(|open| open.write_all_at(&self.buffer, block * BLOCK_BYTES as u64))
            }
        };
        done.map_err(|e| of(format_args!("{kind:?} {:?} or {file:?}", self.dirs[dir]), e))
    }

    /// So many of a hundred times, as a part of all.
    pub(crate) fn happens(&mut self, percent: f64) -> bool {
        self.rng.bits() as f64 / u64::MAX as f64 * 100.0 < percent
    }
}
