//! The operations and answers of clients: the input of the checker, and its form as lines of JSON.
//!
//! Names are relative to a directory that the client holds open (as in `openat`), because a walk along a path
//! is not one operation. An object has the number that the file system tells (`st_ino`), which may be used
//! again for a new object when the old one is gone. A client that uses a number was told of it by an earlier
//! answer.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

/// The number of a file or directory, as the file system tells it.
pub type Id = u64;

/// After these nobody knows whether it has happened.
const MAY_HAVE_HAPPENED: [&str; 12] = [
    "EIO",
    "EINTR",
    "ETIMEDOUT",
    "ENOTCONN",
    "ECONNRESET",
    "ECONNABORTED",
    "ECONNREFUSED",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ESHUTDOWN",
    "EPIPE",
];

/// One operation of one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who called. The operations of a client need not follow each other.
    pub client: u32,
    /// When it was called, in nanoseconds of a clock that all clients share.
    pub start: u64,
    /// When the answer was there. Nothing: it was never heard, so it may happen at any later time, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// What was asked.
    #[serde(flatten)]
    pub op: Op,
    /// What was told.
    pub answer: Answer,
}

impl Record {
    /// Nobody knows whether it has happened.
    pub fn is_unknown(&self) -> bool {
        match &self.answer {
            Answer::Unknown => true,
            Answer::Error(error) => MAY_HAVE_HAPPENED.contains(&error.as_str()),
            _ => false,
        }
    }
}

/// Operations. Sizes and places in a file are counted in blocks of whatever size the recorder reads and writes at
/// once; what is in a block is told by a number, 0 for zeros.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Op {
    /// Which object has this name.
    Lookup {
        /// In this directory.
        dir: Id,
        /// The name.
        name: String,
    },
    /// Makes an object of this kind, or, if that is not exclusive, opens the one that is there.
    Make {
        /// In this directory.
        dir: Id,
        /// The name.
        name: String,
        /// A file, directory or symbolic link.
        kind: Kind,
        /// Refused if the name is there.
        #[serde(default)]
        exclusive: bool,
        /// Its mode, if later answers tell it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    /// Removes a name that is not a directory's.
    Unlink {
        /// In this directory.
        dir: Id,
        /// The name.
        name: String,
    },
    /// Removes an empty directory.
    Rmdir {
        /// In this directory.
        dir: Id,
        /// The name.
        name: String,
    },
    /// Gives a name to what has another, which it loses.
    Rename {
        /// From this directory.
        dir: Id,
        /// The old name.
        name: String,
        /// Into this directory.
        new_dir: Id,
        /// The new name.
        new_name: String,
        /// What becomes of what has the new name.
        #[serde(default)]
        how: How,
    },
    /// Gives a file one more name.
    Link {
        /// The file.
        file: Id,
        /// In this directory.
        dir: Id,
        /// The new name.
        name: String,
    },
    /// Names of a directory. Each of them is looked at at some moment of the operation, as POSIX has it.
    List {
        /// The directory.
        dir: Id,
        /// All are looked at at the same moment.
        #[serde(default)]
        atomic: bool,
    },
    /// Attributes of an object that is open.
    Stat {
        /// The object.
        file: Id,
    },
    /// Sets the mode.
    SetMode {
        /// The object.
        file: Id,
        /// All bits of the mode.
        mode: u32,
    },
    /// Writes blocks, at once.
    Write {
        /// The file.
        file: Id,
        /// The first block.
        at: u64,
        /// What is written.
        data: Vec<u64>,
    },
    /// Writes blocks at the end of the file, at once.
    Append {
        /// The file.
        file: Id,
        /// What is written.
        data: Vec<u64>,
    },
    /// Reads blocks, at once.
    Read {
        /// The file.
        file: Id,
        /// The first block.
        at: u64,
        /// How many; less are told only at the end of the file.
        len: u64,
    },
    /// Sets the size.
    Truncate {
        /// The file.
        file: Id,
        /// In blocks.
        size: u64,
    },
}

impl Op {
    /// The objects that the caller named by number.
    pub fn ids(&self) -> Vec<Id> {
        match self {
            Self::Lookup { dir, .. }
            | Self::Make { dir, .. }
            | Self::Unlink { dir, .. }
            | Self::Rmdir { dir, .. }
            | Self::List { dir, .. } => vec![*dir],
            Self::Rename { dir, new_dir, .. } => vec![*dir, *new_dir],
            Self::Link { file, dir, .. } => vec![*file, *dir],
            Self::Stat { file }
            | Self::SetMode { file, .. }
            | Self::Write { file, .. }
            | Self::Append { file, .. }
            | Self::Read { file, .. }
            | Self::Truncate { file, .. } => vec![*file],
        }
    }
}

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file, or anything else without names or target in it.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// What a rename does about the new name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// What has it loses it.
    #[default]
    Replace,
    /// Refused if something has it.
    NoReplace,
    /// Both swap names.
    Exchange,
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It has happened. Of what was made, the number is not told.
    Ok,
    /// Nothing is known: it may have happened, until `end` if there is one, or later.
    Unknown,
    /// It has happened, and this is the object.
    Found(Found),
    /// The names of a directory, but for `.` and `..`.
    Names(Vec<Listed>),
    /// The blocks that were read.
    Data(Vec<u64>),
    /// Refused, by the name of the error: `ENOENT`.
    Error(String),
}

/// What an answer tells of an object. What is not told is not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Which.
    pub id: Id,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How many names it has. Not judged of directories, as file systems count them differently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nlink: Option<u64>,
    /// In blocks. Not judged of directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// All bits of the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

impl Found {
    /// Tells only which object it is.
    pub fn only(id: Id) -> Self {
        Self { id, kind: None, nlink: None, size: None, mode: None }
    }
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// Which object has it, if that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// A history, and the directory that it begins with, which is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The directory in which everything happens.
    pub root: Id,
    /// In any order.
    pub records: Vec<Record>,
}

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    root: Id,
}

impl History {
    /// Reads a line with the root, as `{"root":2}`, then one record a line.
    ///
    /// # Errors
    ///
    /// What cannot be read, with the number of its line.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut root = None;
        let mut records = Vec::new();
        for (at, line) in input.lines().enumerate() {
            let line = line?;
            let bad = |why: serde_json::Error| {
                let what = if at == 0 { "the root" } else { "an operation" };
                io::Error::new(io::ErrorKind::InvalidData, format!("line {}: not {what}: {why}", at + 1))
            };
            if line.trim().is_empty() {
                continue;
            }
            if root.is_none() {
                root = Some(serde_json::from_str::<Header>(&line).map_err(bad)?.root);
            } else {
                records.push(serde_json::from_str(&line).map_err(bad)?);
            }
        }
        let root = root.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "line 1: the root is missing: {\"root\":NUMBER}")
        })?;
        Ok(Self { root, records })
    }

    /// Writes what `read` reads.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut output, &Header { root: self.root })?;
        output.write_all(b"\n")?;
        for record in &self.records {
            serde_json::to_writer(&mut output, record)?;
            output.write_all(b"\n")?;
        }
        output.flush()
    }
}
