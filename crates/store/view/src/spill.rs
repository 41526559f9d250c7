//! Extended attributes that the native file system refuses: each file or directory that has some gets a file of its own
//! beside the plain tree, from which `atoll rebuild` reads them. Decides nothing about what is refused.
//!
//! A file of the tree is told by its id, which its body has too. Native directories have no id, so a directory is told by
//! its native path, which is written anew when it or one above it has moved.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::io;

use atoll_core::sum::sum;
use atoll_core::{Decode, Encode, Ino, wire_struct};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_proto::Xattrs;

use crate::{LIMBO, View, is_absent, join};

/// The folder of what was refused, beneath the island's.
pub const XATTRS: &[u8] = b"xattrs";

/// First bytes of a file.
const MAGIC: &[u8; 8] = b"ATOLLXAT";
const VERSION: u32 = 1;
/// Magic, version, checksum.
const HEADER_BYTES: usize = 16;
/// More than a state keeps of one file or directory, and a path.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Permission bits of the folder, and of a file in it.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

wire_struct! {
    /// What was refused of a file or directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Spilled {
        /// Native path of a directory beneath the island's folder; empty for what a body tells by its id.
        pub path: Vec<u8>,
        /// The attributes.
        pub xattrs: Xattrs,
    }
}

impl Spilled {
    /// The bytes of its file.
    pub fn to_file(&self) -> Vec<u8> {
        let row = self.to_vec();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + row.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&sum(&row).to_le_bytes());
        bytes.extend_from_slice(&row);
        bytes
    }

    /// From the bytes of its file; an error says what they are instead.
    pub fn from_file(bytes: &[u8]) -> Result<Self, &'static str> {
        let (header, row) = bytes.split_at_checked(HEADER_BYTES).ok_or("it is too short")?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        if &header[..8] != MAGIC {
            return Err("it is no file of extended attributes");
        }
        if number(8) != VERSION {
            return Err("this file was written by a newer Atoll");
        }
        if number(12) != sum(row) {
            return Err("its checksum differs");
        }
        Self::from_slice(row).map_err(|why| why.what)
    }

    /// Reads one; none if it is not there, or as damaged as the inner error says.
    pub fn read<D: Disk>(disk: &D, path: &[u8]) -> io::Result<Option<Result<Self, &'static str>>> {
        let file = match disk.open(path, OpenHow::Read) {
            Err(error) if is_absent(&error) => return Ok(None),
            file => file?,
        };
        let size = file.stat()?.size;
        if size > FILE_BYTES_MAX {
            return Ok(Some(Err("it is too long")));
        }
        let mut bytes = vec![0; size as usize];
        if file.read_full(&mut bytes, 0)? < bytes.len() {
            return Ok(Some(Err("it is too short")));
        }
        Ok(Some(Self::from_file(&bytes)))
    }
}

/// Where what was refused of a file or directory lies.
pub fn spill_path(ino: Ino, is_dir: bool) -> Vec<u8> {
    let tag = if is_dir { 'd' } else { 'f' };
    join(XATTRS, format!("{tag}{:016x}", ino.0).as_bytes())
}

/// What has this name in the folder: an id, and whether it is a directory's.
pub fn spill_of(name: &[u8]) -> Option<(Ino, bool)> {
    let (tag, id) = name.split_first()?;
    let is_dir = match tag {
        b'd' => true,
        b'f' => false,
        _ => return None,
    };
    Some((atoll_body::ino_of(id)?, is_dir))
}

/// Names in the folder, which is not there if nothing was ever refused.
pub(crate) fn list<D: Disk>(disk: &D) -> io::Result<Vec<Vec<u8>>> {
    match disk.list(XATTRS) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        names => Ok(names?.into_iter().map(|(name, _)| name).collect()),
    }
}

/// What a spilled attribute is told by among paths that were written.
fn hash(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(path);
    hasher.finish()
}

/// Which files there are. Some bytes of memory for each.
#[derive(Debug, Default)]
pub(crate) struct Spills {
    files: BTreeSet<Ino>,
    /// With a hash of the path that was written, if it is known.
    dirs: BTreeMap<Ino, Option<u64>>,
    /// A directory has moved since all paths were written.
    moved: bool,
}

impl Spills {
    pub(crate) fn open<D: Disk>(disk: &D) -> io::Result<Self> {
        // An earlier life may have ended between a move and the path that tells of it.
        let mut spills = Self { moved: true, ..Self::default() };
        for name in list(disk)? {
            match spill_of(&name) {
                Some((ino, true)) => drop(spills.dirs.insert(ino, None)),
                Some((ino, false)) => drop(spills.files.insert(ino)),
                None => {}
            }
        }
        Ok(spills)
    }

    pub(crate) const fn a_directory_moved(&mut self) {
        self.moved = true;
    }

    pub(crate) fn has(&self, ino: Ino, is_dir: bool) -> bool {
        if is_dir { self.dirs.contains_key(&ino) } else { self.files.contains(&ino) }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Ino, bool)> + '_ {
        let files = self.files.iter().map(|ino| (*ino, false));
        files.chain(self.dirs.keys().map(|ino| (*ino, true)))
    }
}

impl<D: Disk> View<D> {
    /// How many files and directories have extended attributes that the native file system refused, and the first `most` of
    /// them.
    pub fn spilled(&self, most: usize) -> (usize, Vec<Ino>) {
        let count = self.spills.files.len() + self.spills.dirs.len();
        (count, self.spills.all().map(|(ino, _)| ino).take(most).collect())
    }

    /// What was refused of a file or directory, as far as it can be read.
    pub(crate) fn spilled_of(&self, ino: Ino, is_dir: bool) -> io::Result<Option<Spilled>> {
        if !self.spills.has(ino, is_dir) {
            return Ok(None);
        }
        Ok(Spilled::read(&*self.disk, &spill_path(ino, is_dir))?.and_then(Result::ok))
    }

    /// Keeps what was refused of a file, or of the directory with this native path; nothing, if nothing was.
    pub(crate) fn spill(&mut self, ino: Ino, dir: Option<&[u8]>, xattrs: Xattrs) -> io::Result<()> {
        let is_dir = dir.is_some();
        if xattrs.0.is_empty() {
            return self.unspill(ino, is_dir);
        }
        let spilled = Spilled { path: dir.unwrap_or_default().to_vec(), xattrs };
        if self.spilled_of(ino, is_dir)?.as_ref() != Some(&spilled) {
            self.write_spill(ino, is_dir, &spilled)?;
        }
        match dir {
            Some(path) => drop(self.spills.dirs.insert(ino, Some(hash(path)))),
            None => drop(self.spills.files.insert(ino)),
        }
        Ok(())
    }

    /// Nothing of a file or directory is refused, or it is gone.
    pub(crate) fn unspill(&mut self, ino: Ino, is_dir: bool) -> io::Result<()> {
        if !self.spills.has(ino, is_dir) {
            return Ok(());
        }
        match self.disk.unlink(&spill_path(ino, is_dir)) {
            Err(error) if !is_absent(&error) => return Err(error),
            _ => {}
        }
        if is_dir {
            self.spills.dirs.remove(&ino);
        } else {
            self.spills.files.remove(&ino);
        }
        Ok(())
    }

    /// Writes the paths of directories anew that have moved, or of which one above has.
    pub(crate) fn refresh_spills(&mut self) -> io::Result<()> {
        if !self.spills.moved {
            return Ok(());
        }
        for ino in self.spills.dirs.keys().copied().collect::<Vec<_>>() {
            // What is not laid at the moment comes with its path when it is.
            let Some(path) = self.path(ino)? else { continue };
            let now = Some(hash(&path));
            if self.spills.dirs.get(&ino) == Some(&now) {
                continue;
            }
            // One that is damaged is written when its directory is laid.
            if let Some(mut spilled) = self.spilled_of(ino, true)? {
                if spilled.path != path {
                    spilled.path = path;
                    self.write_spill(ino, true, &spilled)?;
                }
                self.spills.dirs.insert(ino, now);
            }
        }
        self.spills.moved = false;
        Ok(())
    }

    /// In one step, so that there is always a whole one. It survives a power cut as all else that is laid.
    fn write_spill(&mut self, ino: Ino, is_dir: bool, spilled: &Spilled) -> io::Result<()> {
        let temporary = join(LIMBO, format!("t{:016x}", ino.0).as_bytes());
        match self.disk.unlink(&temporary) {
            Err(error) if !is_absent(&error) => return Err(error),
            _ => {}
        }
        let file = self.disk.open(&temporary, OpenHow::CreateNew { mode: FILE_MODE })?;
        file.write_at(&spilled.to_file(), 0)?;
        if self.index_was_lost {
            // A rebuild has no log from which a torn one would be laid again.
            file.sync()?;
        }
        drop(file);
        match self.disk.mkdir(XATTRS, FOLDER_MODE) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.disk.rename(&temporary, &spill_path(ino, is_dir), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Spilled {
        let mut xattrs = Xattrs::default();
        xattrs.set((&b"user.a"[..]).into(), (&b"value"[..]).into());
        Spilled { path: b"tree/d".to_vec(), xattrs }
    }

    #[test]
    fn the_bytes_are_what_the_formats_say() {
        let bytes = sample().to_file();
        let golden = "41544f4c4c584154\
             01000000\
             efa629f1\
             06000000747265652f64\
             0100000006000000757365722e610500000076616c7565";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(Spilled::from_file(&bytes), Ok(sample()));
    }

    #[test]
    fn what_is_not_whole_is_refused_and_what_is_newer_is_called_so() {
        let good = sample().to_file();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Spilled::from_file(&bad).is_err(), "byte {at}");
            assert!(Spilled::from_file(&good[..at]).is_err(), "{at} bytes");
        }
        let mut newer = good;
        newer[8] = 2;
        assert_eq!(Spilled::from_file(&newer), Err("this file was written by a newer Atoll"));
    }

    #[test]
    fn names_lead_to_ids_and_back() {
        for (ino, is_dir) in [(Ino(1), true), (Ino(0xabc_0000_0000_0010), false)] {
            let path = spill_path(ino, is_dir);
            assert_eq!(spill_of(&path[XATTRS.len() + 1..]), Some((ino, is_dir)));
        }
        for bad in [&b"x0000000000000001"[..], b"f1", b"", b"d000000000000000g"] {
            assert_eq!(spill_of(bad), None);
        }
    }
}
