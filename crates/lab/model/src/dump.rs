//! A description of a whole tree, made by operations alone, so that the same code dumps a model, an island
//! and a cluster. Compares two descriptions and says how they differ.

use crate::answer::{attr_differences, unless_equal};
use crate::content::ContentHash;
use crate::tree::{Model, Outcome};
use atoll_core::{Ino, SessionId, Time};
use atoll_posix::{Answer, Attr, Caller, DirEntry, Errno, Kind, Op, Whence};
use bytes::Bytes;
use std::collections::BTreeMap;

pub use crate::answer::Strictness;

/// Bytes asked for in one read or listing.
const PIECE_BYTES: u32 = 1 << 20;

/// What one path of a tree leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Attributes.
    pub attr: Attr,
    /// Hash of the bytes of a regular file.
    pub content: ContentHash,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes and ACLs.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order of bytes, that leads to the same file: equal for all its names.
    pub same_as: Vec<u8>,
}

/// A tree: path to what is there. The root is the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dump {
    /// Every path, as bytes that start with '/'.
    pub items: BTreeMap<Vec<u8>, Item>,
}

/// A tree could not be dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDumped {
    /// Where it stopped.
    pub path: Vec<u8>,
    /// The operation that failed.
    pub op: Box<Op>,
    /// With this error; none if its answer was of another operation's kind.
    pub errno: Option<Errno>,
}

impl std::fmt::Display for NotDumped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?} gave {:?}", self.path.escape_ascii(), self.op, self.errno)
    }
}

impl std::error::Error for NotDumped {}

/// Runs one operation as the superuser.
type Run<'a> = &'a mut dyn FnMut(&Op) -> Result<(Answer, Vec<u8>), Errno>;

struct Walk<'a> {
    run: Run<'a>,
    dump: Dump,
    first: BTreeMap<Ino, Vec<u8>>,
}

impl Dump {
    /// Walks the whole tree. `run` runs an operation as the superuser.
    pub fn walk(run: Run<'_>) -> Result<Self, NotDumped> {
        let mut walk = Walk { run, dump: Self::default(), first: BTreeMap::new() };
        // A stack of our own: trees may be deeper than a thread's.
        let mut open = vec![(Vec::new(), Ino::ROOT)];
        while let Some((path, ino)) = open.pop() {
            if walk.visit(&path, ino)? == Kind::Directory {
                for entry in walk.list(&path, ino)? {
                    open.push(([&path, &b"/"[..], entry.name.as_bytes()].concat(), entry.ino));
                }
            }
        }
        let mut dump = walk.dump;
        let mut first: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
        for (path, item) in &mut dump.items {
            item.same_as = first.entry(item.attr.ino).or_insert_with(|| path.clone()).clone();
        }
        Ok(dump)
    }

    /// The tree of a model, which it does not change: times of access stay.
    pub fn of(model: &Model) -> Self {
        let mut copy = model.clone();
        let mut run = |op: &Op| match copy.apply(Time::default(), SessionId(0), &Caller::ROOT, op, &[])? {
            Outcome::Answered(answer, bytes) => Ok((answer, bytes)),
            Outcome::Blocked => unreachable!("a dump takes no locks"),
        };
        // Attributes are asked for before bytes, so that marks of access in the copy do not show;
        // of a file with several names they would.
        let mut dump = Self::walk(&mut run).unwrap_or_else(|e| panic!("a model refused its own dump: {e}"));
        for item in dump.items.values_mut() {
            item.attr = *model.attr(item.attr.ino).expect("it was just listed");
        }
        dump
    }

    /// One line for each difference; none if the trees are equal.
    pub fn differences(&self, got: &Self, strict: Strictness) -> Vec<String> {
        let mut out = Vec::new();
        for (path, item) in &self.items {
            let shown = show(path);
            match got.items.get(path) {
                None => out.push(format!("{shown}: missing")),
                Some(other) => {
                    out.extend(item.differences(other, strict).into_iter().map(|d| format!("{shown}: {d}")));
                }
            }
        }
        for path in got.items.keys().filter(|path| !self.items.contains_key(*path)) {
            out.push(format!("{}: should not be there", show(path)));
        }
        out
    }
}

fn show(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { path.escape_ascii().to_string() }
}

impl Item {
    fn differences(&self, got: &Self, strict: Strictness) -> Vec<String> {
        let mut out = attr_differences(&self.attr, &got.attr, strict, true);
        unless_equal(&mut out, "content", self.content, got.content);
        unless_equal(&mut out, "target", show(&self.target), show(&got.target));
        unless_equal(&mut out, "same file as", show(&self.same_as), show(&got.same_as));
        let names: std::collections::BTreeSet<_> = self.xattrs.keys().chain(got.xattrs.keys()).collect();
        for name in names {
            let value = |item: &Self| item.xattrs.get(name).map(|v| v.escape_ascii().to_string());
            unless_equal(&mut out, &format!("xattr {}", name.escape_ascii()), value(self), value(got));
        }
        out
    }
}

impl Walk<'_> {
    fn ask<T>(
        &mut self,
        path: &[u8],
        op: Op,
        take: impl FnOnce(Answer, Vec<u8>) -> Option<T>,
    ) -> Result<T, NotDumped> {
        let failed = |op, errno| NotDumped { path: path.to_vec(), op: Box::new(op), errno };
        match (self.run)(&op) {
            Ok((answer, bytes)) => take(answer, bytes).ok_or_else(|| failed(op, None)),
            Err(errno) => Err(failed(op, Some(errno))),
        }
    }

    fn data(&mut self, path: &[u8], op: Op) -> Result<Vec<u8>, NotDumped> {
        self.ask(path, op, |answer, bytes| (answer == Answer::Data).then_some(bytes))
    }

    fn visit(&mut self, path: &[u8], ino: Ino) -> Result<Kind, NotDumped> {
        let attr = self.ask(path, Op::GetAttr { ino }, |answer, _| match answer {
            Answer::Attr { attr } => Some(attr),
            _ => None,
        })?;
        // The bytes of a file with many names are read once.
        let seen = self.first.get(&ino).and_then(|first| self.dump.items.get(first)).cloned();
        let item = match seen {
            Some(item) => Item { attr, ..item },
            None => self.read_item(path, attr)?,
        };
        self.first.entry(ino).or_insert_with(|| path.to_vec());
        self.dump.items.insert(path.to_vec(), item);
        Ok(attr.kind)
    }

    fn read_item(&mut self, path: &[u8], attr: Attr) -> Result<Item, NotDumped> {
        let ino = attr.ino;
        let mut xattrs = BTreeMap::new();
        let list = self.data(path, Op::ListXattr { ino })?;
        for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let op = Op::GetXattr { ino, name: Bytes::copy_from_slice(name) };
            let value = self.data(path, op)?;
            xattrs.insert(name.to_vec(), value);
        }
        let target =
            if attr.kind == Kind::Symlink { self.data(path, Op::Readlink { ino })? } else { Vec::new() };
        let content =
            if attr.kind == Kind::Regular { self.hash(path, &attr)? } else { ContentHash::default() };
        Ok(Item { attr, content, target, xattrs, same_as: Vec::new() })
    }

    fn hash(&mut self, path: &[u8], attr: &Attr) -> Result<ContentHash, NotDumped> {
        let ino = attr.ino;
        let mut hash = ContentHash::default();
        let mut at = 0;
        while at < attr.size {
            let Some(start) = self.seek(path, Op::Seek { ino, offset: at, whence: Whence::Data })? else {
                break;
            };
            let hole = self.seek(path, Op::Seek { ino, offset: start, whence: Whence::Hole })?;
            let end = hole.unwrap_or(attr.size);
            at = start;
            while at < end {
                let len = (end - at).min(u64::from(PIECE_BYTES)) as u32;
                let bytes = self.data(path, Op::Read { ino, offset: at, len })?;
                if bytes.is_empty() {
                    return Ok(hash);
                }
                hash.add(at, &bytes);
                at += bytes.len() as u64;
            }
        }
        Ok(hash)
    }

    fn seek(&mut self, path: &[u8], op: Op) -> Result<Option<u64>, NotDumped> {
        let found = self.ask(path, op, |answer, _| match answer {
            Answer::Offset { offset } => Some(offset),
            _ => None,
        });
        match found {
            Err(NotDumped { errno: Some(Errno::ENXIO), .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    fn list(&mut self, path: &[u8], dir: Ino) -> Result<Vec<DirEntry>, NotDumped> {
        let mut all: Vec<DirEntry> = Vec::new();
        loop {
            let after = all.last().map_or(0, |entry| entry.cookie);
            let op = Op::ReadDir { dir, after, bytes: PIECE_BYTES, plus: false };
            let (entries, eof) = self.ask(path, op, |answer, _| match answer {
                Answer::Entries { entries, eof } if eof || !entries.is_empty() => Some((entries, eof)),
                _ => None,
            })?;
            all.extend(entries);
            if eof {
                return Ok(all);
            }
        }
    }
}
