//! The view's own memory: which native inode is which id, the places of directories, and the looks of files
//! after laying. Rows over a snapshot; touches nothing in `tree/`.
//!
//! [`Index::save`] makes new values durable. A forgotten value is gone at once for this process, and durably
//! only with [`Index::settle`], when its names are durably gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use atoll_core::{Decode, Encode, Ino, Name, Time, wire_struct};
use atoll_disk::Disk;
use atoll_snapshot::{Snapshot, SnapshotError};

use crate::INDEX;

/// Rows read at once when all are wanted.
const PAGE_ROWS: usize = 1024;

wire_struct! {
    /// A file as it was laid.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileMark {
        /// Native inode number.
        pub native: u64,
        /// Native length.
        pub size: u64,
        /// Native modification time.
        pub mtime: Time,
        /// Native change time.
        pub ctime: Time,
        /// Change time in the state then.
        pub state_ctime: Time,
        /// It may have extended attributes: set before it gets any, and for good.
        pub xattrs: bool,
        /// Native inode numbers of objects that it had before: a power cut may take the name among
        /// the bodies and leave one in the tree. Until that is settled, and at most so long.
        pub older: Vec<u64>,
    }
}

wire_struct! {
    /// A directory as it was laid.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirMark {
        /// Native inode number.
        pub native: u64,
        /// Places, parent and name, in one of which it is unless it is in limbo.
        pub places: Vec<(Ino, Name)>,
        /// It may have extended attributes.
        pub xattrs: bool,
    }
}

/// Which of our objects a native inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ours {
    File(Ino),
    Dir(Ino),
}

type Key = [u8; 9];

pub(crate) struct Index {
    snapshot: Snapshot,
    set: BTreeMap<Key, Vec<u8>>,
    gone: BTreeSet<Key>,
}

fn key(tag: u8, n: u64) -> Key {
    let mut key = [tag; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

fn damaged(what: &str) -> io::Error {
    SnapshotError::Damaged(what.to_owned()).into()
}

impl Index {
    pub(crate) fn open<D: Disk>(disk: &D, cache_bytes: usize) -> Result<Self, SnapshotError> {
        let snapshot = Snapshot::open(disk, INDEX, cache_bytes)?;
        Ok(Self { snapshot, set: BTreeMap::new(), gone: BTreeSet::new() })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.snapshot.has_failed()
    }

    fn get<T: Decode>(&self, key: &Key) -> io::Result<Option<T>> {
        let row = match self.set.get(key) {
            Some(row) => return Ok(Some(T::from_slice(row).map_err(|e| damaged(e.what))?)),
            None if self.gone.contains(key) => None,
            None => self.snapshot.get(key)?,
        };
        row.map(|row| T::from_slice(&row).map_err(|e| damaged(e.what))).transpose()
    }

    fn put(&mut self, key: Key, row: &impl Encode) {
        self.gone.remove(&key);
        self.set.insert(key, row.to_vec());
    }

    fn forget(&mut self, key: Key) {
        self.set.remove(&key);
        self.gone.insert(key);
    }

    pub(crate) fn file(&self, ino: Ino) -> io::Result<Option<FileMark>> {
        self.get(&key(b'f', ino.0))
    }

    /// Native inode numbers of a file that was forgotten, and may be known again after a power cut.
    pub(crate) fn forgotten_file(&self, ino: Ino) -> io::Result<Vec<u64>> {
        let key = key(b'f', ino.0);
        let row = if self.gone.contains(&key) { self.snapshot.get(&key)? } else { None };
        let Some(row) = row else { return Ok(Vec::new()) };
        let mark = FileMark::from_slice(&row).map_err(|e| damaged(e.what))?;
        Ok(mark.older.into_iter().chain([mark.native]).collect())
    }

    pub(crate) fn dir(&self, ino: Ino) -> io::Result<Option<DirMark>> {
        self.get(&key(b'd', ino.0))
    }

    pub(crate) fn set_file(&mut self, ino: Ino, mark: &FileMark) -> io::Result<()> {
        let before = self.file(ino)?.map(|mark| mark.native);
        self.put(key(b'f', ino.0), mark);
        let before = before.filter(|native| !mark.older.contains(native));
        self.set_native(ino, before, mark.native)
    }

    /// Forgets objects that a file had before: nothing in the tree is a link to them any more.
    pub(crate) fn forget_older(&mut self, ino: Ino) -> io::Result<()> {
        let Some(mut mark) = self.file(ino)? else { return Ok(()) };
        for native in std::mem::take(&mut mark.older) {
            if native != mark.native {
                self.forget_native(ino, native)?;
            }
        }
        self.set_file(ino, &mark)
    }

    pub(crate) fn set_dir(&mut self, ino: Ino, mark: &DirMark) -> io::Result<()> {
        let before = self.dir(ino)?.map(|mark| mark.native);
        self.put(key(b'd', ino.0), mark);
        self.set_native(ino, before, mark.native)
    }

    fn set_native(&mut self, ino: Ino, before: Option<u64>, now: u64) -> io::Result<()> {
        if before != Some(now) {
            if let Some(before) = before {
                self.forget_native(ino, before)?;
            }
            self.put(key(b'n', now), &ino);
        }
        Ok(())
    }

    fn forget_native(&mut self, ino: Ino, native: u64) -> io::Result<()> {
        let key = key(b'n', native);
        if self.get::<Ino>(&key)? == Some(ino) {
            self.forget(key);
        }
        Ok(())
    }

    pub(crate) fn forget_file(&mut self, ino: Ino) -> io::Result<()> {
        if let Some(mark) = self.file(ino)? {
            self.forget(key(b'f', ino.0));
            for native in mark.older.into_iter().chain([mark.native]) {
                self.forget_native(ino, native)?;
            }
        }
        Ok(())
    }

    pub(crate) fn forget_dir(&mut self, ino: Ino) -> io::Result<()> {
        if let Some(mark) = self.dir(ino)? {
            self.forget(key(b'd', ino.0));
            self.forget_native(ino, mark.native)?;
        }
        Ok(())
    }

    /// Which of our objects has this native inode number.
    pub(crate) fn ours(&self, native: u64) -> io::Result<Option<Ours>> {
        let Some(ino) = self.get::<Ino>(&key(b'n', native))? else { return Ok(None) };
        // An old row may speak of a number that was given to something else since.
        if self.file(ino)?.is_some_and(|mark| mark.native == native || mark.older.contains(&native)) {
            return Ok(Some(Ours::File(ino)));
        }
        Ok(self.dir(ino)?.filter(|mark| mark.native == native).map(|_| Ours::Dir(ino)))
    }

    /// Names that an absent file had when they were to be laid. It may have lost some since.
    pub(crate) fn absent(&self, ino: Ino) -> io::Result<Vec<(Ino, Name)>> {
        Ok(self.get(&key(b'a', ino.0))?.unwrap_or_default())
    }

    pub(crate) fn set_absent(&mut self, ino: Ino, names: &[(Ino, Name)]) {
        self.put(key(b'a', ino.0), &names.to_vec());
    }

    pub(crate) fn forget_absent(&mut self, ino: Ino) -> io::Result<()> {
        if !self.absent(ino)?.is_empty() {
            self.forget(key(b'a', ino.0));
        }
        Ok(())
    }

    /// Names that the native file system refuses.
    pub(crate) fn refused(&self) -> io::Result<BTreeSet<(Ino, Name)>> {
        let names: Option<Vec<(Ino, Name)>> = self.get(&key(b'r', 0))?;
        Ok(names.unwrap_or_default().into_iter().collect())
    }

    pub(crate) fn set_refused(&mut self, names: &BTreeSet<(Ino, Name)>) -> io::Result<()> {
        if self.refused()? != *names {
            let names: Vec<(Ino, Name)> = names.iter().cloned().collect();
            if names.is_empty() { self.forget(key(b'r', 0)) } else { self.put(key(b'r', 0), &names) }
        }
        Ok(())
    }

    /// Identifies the folder that the rows are about, so that a copy of it is noticed. None until the rows
    /// are complete.
    pub(crate) fn origin(&self) -> io::Result<Option<(u64, Time)>> {
        self.get(&key(b'o', 0))
    }

    pub(crate) fn set_origin(&mut self, origin: &(u64, Time)) -> io::Result<()> {
        if self.origin()?.as_ref() != Some(origin) {
            self.put(key(b'o', 0), origin);
        }
        Ok(())
    }

    /// The rows are not complete any more, durably.
    pub(crate) fn forget_origin(&mut self) -> io::Result<()> {
        self.forget(key(b'o', 0));
        self.settle()
    }

    /// All ids of files and directories in it.
    pub(crate) fn all(&self) -> io::Result<Vec<Ino>> {
        let mut all = BTreeSet::new();
        for tag in [b'd', b'f'] {
            let mut from = key(tag, 0).to_vec();
            loop {
                let page = self.snapshot.range(&from, &[tag + 1], PAGE_ROWS)?;
                let keys = page.iter().filter_map(|(k, _)| Key::try_from(&k[..]).ok());
                all.extend(keys.filter(|k| !self.gone.contains(k)));
                match page.last() {
                    Some((last, _)) if page.len() == PAGE_ROWS => from = [last, &[0][..]].concat(),
                    _ => break,
                }
            }
        }
        all.extend(self.set.keys().filter(|k| matches!(k[0], b'd' | b'f')));
        let id = |k: &Key| Ino(u64::from_be_bytes(k[1..].try_into().expect("keys have nine bytes")));
        Ok(all.iter().map(id).collect())
    }

    /// Makes new values durable.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        if !self.set.is_empty() {
            self.snapshot.commit(self.set.iter().map(|(k, v)| (k, Some(v))))?;
            self.set.clear();
        }
        Ok(())
    }

    /// Makes new values and forgotten ones durable.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        if !self.set.is_empty() || !self.gone.is_empty() {
            let set = self.set.iter().map(|(k, v)| (k, Some(v)));
            self.snapshot.commit(set.chain(self.gone.iter().map(|k| (k, None))))?;
            self.set.clear();
            self.gone.clear();
        }
        Ok(())
    }
}
