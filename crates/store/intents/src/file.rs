//! The file of one process (`docs/FORMATS.md`, Intents of unions): records behind each other, each with its checksum. The
//! first record that is empty or does not fit its checksum is where they end, or where a write was cut off.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atoll_core::{Decode, Encode, wire_enum};
use atoll_union::Intent;

use crate::IntentMember;

/// How the names of these files end.
pub(crate) const EXTENSION: &str = "intents";
/// The first bytes; the last of them is the version.
const MAGIC: [u8; 8] = *b"ATOLINT\x01";
/// Length and checksum before each record.
const HEAD_BYTES: usize = 8;
/// A file begins with so many zeros. Where it has its blocks already, a sync writes the record and nothing of the file system's
/// own. Without an open intent it begins anew behind this.
const BYTES: u64 = 1 << 16;
/// A longer file was not written by this.
const READ_BYTES_MAX: u64 = 1 << 28;

wire_enum! {
    /// A record.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum IntentRecord {
        /// The members that the intents speak of, in place of those before. The first record.
        1 => Members {
            /// They.
            members: Vec<IntentMember>,
        },
        /// An intent, in place of the one that had this number.
        2 => Keep {
            /// Its number.
            id: u64,
            /// What is to be done.
            intent: Intent,
        },
        /// An intent is not needed any more.
        3 => Over {
            /// Its number.
            id: u64,
        },
    }
}

/// A file that this process holds.
pub(crate) struct IntentFile {
    file: File,
    path: PathBuf,
    /// Where the next record goes.
    end: u64,
    open: BTreeMap<u64, Intent>,
    /// The members that the intents speak of.
    members: Vec<IntentMember>,
}

impl IntentFile {
    /// Makes a file in a folder, which is made too.
    pub(crate) fn make(dir: &Path, members: &[IntentMember]) -> io::Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(dir)?;
        for n in 0.. {
            let path = dir.join(format!("{}-{n}.{EXTENSION}", std::process::id()));
            let mut options = OpenOptions::new();
            let file = match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => file,
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(why) => return Err(why),
            };
            // Somebody who looks for what was left may have been faster: it was empty, so it is gone.
            if !hold(&file, &path)? {
                continue;
            }
            file.write_all_at(&MAGIC, 0)?;
            let mut this = Self { file, path, end: 0, open: BTreeMap::new(), members: members.to_vec() };
            this.begin_anew()?;
            this.file.sync_all()?;
            File::open(dir)?.sync_all()?;
            return Ok(this);
        }
        unreachable!("a number is free")
    }

    /// Nothing is open: only the members stay.
    fn begin_anew(&mut self) -> io::Result<()> {
        let first = MAGIC.len() as u64;
        // If the power fails meanwhile, what is not overwritten yet are intents of renames that were made.
        self.file.write_all_at(&vec![0; (self.end.max(BYTES) - first) as usize], first)?;
        self.end = first;
        self.append(&IntentRecord::Members { members: self.members.clone() })
    }

    /// The intents from now on speak of these members; those that are open speak of some of these, too.
    pub(crate) fn set_members(&mut self, members: &[IntentMember]) -> io::Result<()> {
        self.members = members.to_vec();
        if self.open.is_empty() {
            self.begin_anew()?;
        } else {
            self.append(&IntentRecord::Members { members: members.to_vec() })?;
        }
        self.file.sync_data()
    }

    fn append(&mut self, record: &IntentRecord) -> io::Result<()> {
        let payload = record.to_vec();
        let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let crc = crc32c::crc32c(&payload);
        let bytes = [&len.to_le_bytes()[..], &crc.to_le_bytes(), &payload].concat();
        self.file.write_all_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn keep(&mut self, id: u64, intent: &Intent) -> io::Result<()> {
        self.append(&IntentRecord::Keep { id, intent: intent.clone() })?;
        self.file.sync_data()?;
        self.open.insert(id, intent.clone());
        Ok(())
    }

    pub(crate) fn over(&mut self, id: u64) -> io::Result<()> {
        self.open.remove(&id);
        if self.open.is_empty() && self.end > BYTES {
            return self.begin_anew();
        }
        self.append(&IntentRecord::Over { id })
    }

    /// Removes it if nothing in it is open.
    pub(crate) fn remove_if_over(self) {
        if self.open.is_empty() {
            // It would be found empty by whoever looks for what was left.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks a new or left file. False if somebody holds it, or has removed it meanwhile.
fn hold(file: &File, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(why)) => return Err(why),
    }
    let (held, named) = (file.metadata()?, std::fs::metadata(path));
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())))
}

/// What a process that died has left. It is held as long as this is there.
pub struct LeftIntents {
    file: IntentFile,
}

impl LeftIntents {
    /// None if a process holds it, or nothing in it is open.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        if !hold(&file, path)? {
            return Ok(None);
        }
        let len = file.metadata()?.len();
        if len > READ_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long for what it should be"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut this = Self {
            file: IntentFile {
                file,
                path: path.to_owned(),
                end: 0,
                open: BTreeMap::new(),
                members: Vec::new(),
            },
        };
        this.read(&bytes)?;
        if this.file.open.is_empty() {
            this.file.remove_if_over();
            return Ok(None);
        }
        Ok(Some(this))
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let begun = bytes.iter().zip(MAGIC).take_while(|(byte, magic)| **byte == *magic).count();
        if bytes[begun..].iter().all(|byte| *byte == 0) {
            return Ok(()); // Its first write was cut off: nothing was done yet.
        }
        if bytes.len() < MAGIC.len() || bytes[..7] != MAGIC[..7] {
            return Err(bad("it does not hold what a union writes down"));
        }
        if bytes[7] != MAGIC[7] {
            return Err(bad("another version of Atoll has written it: use that one, or remove the file"));
        }
        let mut at = MAGIC.len();
        while let Some((record, len)) = next_record(&bytes[at..])? {
            at += len;
            match record {
                IntentRecord::Members { members } => self.file.members = members,
                IntentRecord::Keep { id, intent } => _ = self.file.open.insert(id, intent),
                IntentRecord::Over { id } => _ = self.file.open.remove(&id),
            }
        }
        self.file.end = at as u64;
        self.file.file.set_len(self.file.end)
    }

    /// The members that its intents speak of.
    pub fn members(&self) -> &[IntentMember] {
        &self.file.members
    }

    /// The intents that are open, in the order in which they were written, by their numbers.
    pub fn intents(&self) -> Vec<(u64, Intent)> {
        self.file.open.iter().map(|(id, intent)| (*id, intent.clone())).collect()
    }

    /// Writes an intent down in place of the one that had this number.
    pub fn keep(&mut self, id: u64, intent: &Intent) -> io::Result<()> {
        self.file.keep(id, intent)
    }

    /// An intent is settled.
    pub fn over(&mut self, id: u64) -> io::Result<()> {
        self.file.over(id)
    }

    /// Removes the file if all is settled.
    pub fn end(self) {
        self.file.remove_if_over();
    }
}

/// The first record, and its length with its head. None where the records end, or a write was cut off.
fn next_record(bytes: &[u8]) -> io::Result<Option<(IntentRecord, usize)>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let Some(payload) = rest.get(..number(0) as usize) else { return Ok(None) };
    if crc32c::crc32c(payload) != number(4) || payload.is_empty() {
        return Ok(None);
    }
    let record = IntentRecord::from_slice(payload).map_err(io::Error::other)?;
    Ok(Some((record, HEAD_BYTES + payload.len())))
}
