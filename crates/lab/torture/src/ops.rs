//! Operations on a tree, each one system call that changes something, and their effects: on a real tree
//! ([`Op::perform`]) and on the expectation ([`Expected::apply`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::{Errno, pwrite, write};

use crate::tree::{Content, Item, Tree};

/// A path below the top of the tree.
pub type Below = Vec<u8>;

/// A change. Paths are below the top of the tree.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// A new empty file.
    Create(Below, u32),
    /// Bytes at an offset.
    Write(Below, u64, Vec<u8>),
    /// Bytes at the end.
    Append(Below, Vec<u8>),
    /// A new length.
    Truncate(Below, u64),
    /// Zeros, without a new length.
    Punch(Below, u64, u64),
    /// Nothing but waiting for the disk.
    Fsync(Below),
    /// A new name in the same directory, instead of what has it.
    Rename(Below, Below),
    /// Two names of the same directory change places.
    Exchange(Below, Below),
    /// One more name in the same directory.
    Link(Below, Below),
    /// A name goes.
    Unlink(Below),
    /// A new directory.
    Mkdir(Below, u32),
    /// A directory goes.
    Rmdir(Below),
    /// A new symbolic link and where it points.
    Symlink(Below, Vec<u8>),
    /// A new fifo.
    Fifo(Below, u32),
    /// Other permission bits.
    Chmod(Below, u32),
    /// Another owner.
    Chown(Below, u32, u32),
    /// Other times of a file: access and change, in seconds.
    Times(Below, i64, i64),
    /// An extended attribute.
    SetXattr(Below, Vec<u8>, Vec<u8>),
    /// An extended attribute goes.
    RemoveXattr(Below, Vec<u8>),
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p = |path: &Below| path.escape_ascii().to_string();
        match self {
            Self::Create(path, mode) => write!(f, "create {} {mode:o}", p(path)),
            Self::Write(path, at, bytes) => write!(f, "write {} at {at}: {} bytes", p(path), bytes.len()),
            Self::Append(path, bytes) => write!(f, "append {}: {} bytes", p(path), bytes.len()),
            Self::Truncate(path, len) => write!(f, "truncate {} to {len}", p(path)),
            Self::Punch(path, at, len) => write!(f, "punch {} at {at}: {len} bytes", p(path)),
            Self::Fsync(path) => write!(f, "fsync {}", p(path)),
            Self::Rename(from, to) => write!(f, "rename {} {}", p(from), p(to)),
            Self::Exchange(one, two) => write!(f, "exchange {} {}", p(one), p(two)),
            Self::Link(from, to) => write!(f, "link {} {}", p(from), p(to)),
            Self::Unlink(path) => write!(f, "unlink {}", p(path)),
            Self::Mkdir(path, mode) => write!(f, "mkdir {} {mode:o}", p(path)),
            Self::Rmdir(path) => write!(f, "rmdir {}", p(path)),
            Self::Symlink(path, target) => write!(f, "symlink {} -> {}", p(path), p(target)),
            Self::Fifo(path, mode) => write!(f, "fifo {} {mode:o}", p(path)),
            Self::Chmod(path, mode) => write!(f, "chmod {} {mode:o}", p(path)),
            Self::Chown(path, uid, gid) => write!(f, "chown {} {uid}:{gid}", p(path)),
            Self::Times(path, atime, mtime) => write!(f, "times {} {atime} {mtime}", p(path)),
            Self::SetXattr(path, name, value) => {
                write!(f, "setxattr {} {} {}", p(path), p(name), value.len())
            }
            Self::RemoveXattr(path, name) => write!(f, "removexattr {} {}", p(path), p(name)),
        }
    }
}

/// The path of `below` in the tree at `top`.
pub fn full(top: &Path, below: &[u8]) -> PathBuf {
    top.join(OsStr::from_bytes(below))
}

impl Op {
    /// Does it to the tree at `top`.
    pub fn perform(&self, top: &Path) -> Result<(), Errno> {
        let at = |below: &Below| full(top, below);
        let open = |below: &Below, flags| fs::open(at(below), flags | OFlags::NOFOLLOW, Mode::empty());
        match self {
            Self::Create(path, mode) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                fs::open(at(path), flags, Mode::from_raw_mode(*mode)).map(drop)
            }
            Self::Write(path, offset, bytes) => {
                let file = open(path, OFlags::WRONLY)?;
                whole(bytes, |left, done| pwrite(&file, left, *offset + done))
            }
            Self::Append(path, bytes) => {
                let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
                whole(bytes, |left, _| write(&file, left))
            }
            Self::Truncate(path, len) => fs::ftruncate(open(path, OFlags::WRONLY)?, *len),
            Self::Punch(path, offset, len) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(open(path, OFlags::WRONLY)?, flags, *offset, *len)
            }
            Self::Fsync(path) => fs::fsync(open(path, OFlags::WRONLY)?),
            Self::Rename(from, to) => fs::rename(at(from), at(to)),
            Self::Exchange(one, two) => fs::renameat_with(CWD, at(one), CWD, at(two), RenameFlags::EXCHANGE),
            Self::Link(from, to) => fs::link(at(from), at(to)),
            Self::Unlink(path) => fs::unlink(at(path)),
            Self::Mkdir(path, mode) => fs::mkdir(at(path), Mode::from_raw_mode(*mode)),
            Self::Rmdir(path) => fs::rmdir(at(path)),
            Self::Symlink(path, target) => fs::symlink(target.as_slice(), at(path)),
            Self::Fifo(path, mode) => {
                fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(*mode), 0)
            }
            Self::Chmod(path, mode) => fs::chmod(at(path), Mode::from_raw_mode(*mode)),
            Self::Chown(path, uid, gid) => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                fs::chownat(CWD, at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            Self::Times(path, atime, mtime) => {
                let spec = |secs| Timespec { tv_sec: secs, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: spec(*atime), last_modification: spec(*mtime) };
                fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Self::SetXattr(path, name, value) => {
                fs::lsetxattr(at(path), name.as_slice(), value, XattrFlags::empty())
            }
            Self::RemoveXattr(path, name) => fs::lremovexattr(at(path), name.as_slice()),
        }
    }

    /// The file whose bytes it changes.
    pub fn writes(&self) -> Option<&Below> {
        match self {
            Self::Write(path, ..)
            | Self::Append(path, _)
            | Self::Truncate(path, _)
            | Self::Punch(path, ..) => Some(path),
            _ => None,
        }
    }
}

/// Writes all: the kernel may cut a write into several, of which the last ones fail.
fn whole(bytes: &[u8], mut write: impl FnMut(&[u8], u64) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match write(&bytes[done..], done as u64)? {
            0 => return Err(Errno::IO),
            some => done += some,
        }
    }
    Ok(())
}

/// What a file, link or fifo is expected to be. A directory, too, which has no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Kind and permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Times, where they were set and nothing has changed them since.
    pub times: Option<(i64, i64)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is in it.
    pub content: Content,
}

impl Node {
    /// What kind of thing it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    /// Its bytes, if it is a file.
    pub fn bytes(&self) -> Option<&Vec<u8>> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// What a tree is expected to be.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Names and the numbers of what they name.
    pub names: BTreeMap<Below, u64>,
    /// What they name.
    pub nodes: BTreeMap<u64, Node>,
    /// Who makes files here.
    pub owner: (u32, u32),
    next: u64,
}

impl Expected {
    /// An empty tree, in which `owner` makes files.
    pub fn new(owner: (u32, u32)) -> Self {
        Self { owner, ..Self::default() }
    }

    /// What is at a path.
    pub fn node(&self, path: &Below) -> Option<&Node> {
        self.nodes.get(self.names.get(path)?)
    }

    fn node_mut(&mut self, path: &Below) -> &mut Node {
        let id = self.names.get(path).expect("only what is there is changed");
        self.nodes.get_mut(id).expect("a name names something")
    }

    fn add(&mut self, path: &Below, kind: FileType, mode: u32, content: Content) {
        self.next += 1;
        let mode = kind.as_raw_mode() | mode;
        let node = Node { mode, owner: self.owner, times: None, xattrs: BTreeMap::new(), content };
        self.nodes.insert(self.next, node);
        self.names.insert(path.clone(), self.next);
    }

    fn remove(&mut self, path: &Below) {
        let Some(id) = self.names.remove(path) else { return };
        if !self.names.values().any(|other| *other == id) {
            self.nodes.remove(&id);
        }
    }

    /// The paths below a directory.
    fn below(&self, dir: &Below) -> Vec<Below> {
        let mut prefix = dir.clone();
        prefix.push(b'/');
        let from = self.names.range(prefix.clone()..);
        from.map(|(path, _)| path.clone()).take_while(|path| path.starts_with(&prefix)).collect()
    }

    /// Takes a path and all below it out, as (rest of the path, number).
    fn take(&mut self, path: &Below) -> Vec<(Below, u64)> {
        let mut paths = self.below(path);
        paths.push(path.clone());
        paths
            .into_iter()
            .map(|p| (p[path.len()..].to_vec(), self.names.remove(&p).expect("it was listed")))
            .collect()
    }

    fn put(&mut self, path: &Below, taken: Vec<(Below, u64)>) {
        for (rest, id) in taken {
            self.names.insert([path.clone(), rest].concat(), id);
        }
    }

    /// Does to the expectation what `op`, which succeeds, does to the tree.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Create(path, mode) => {
                self.add(path, FileType::RegularFile, *mode, Content::Bytes(Vec::new()));
            }
            Op::Mkdir(path, mode) => self.add(path, FileType::Directory, *mode, Content::None),
            Op::Fifo(path, mode) => self.add(path, FileType::Fifo, *mode, Content::None),
            Op::Symlink(path, target) => {
                self.add(path, FileType::Symlink, 0o777, Content::Target(target.clone()));
            }
            Op::Write(path, offset, bytes) => self.change(path, |content| {
                let (from, end) = (*offset as usize, *offset as usize + bytes.len());
                content.resize(content.len().max(end), 0);
                content[from..end].copy_from_slice(bytes);
            }),
            Op::Append(path, bytes) => self.change(path, |content| content.extend_from_slice(bytes)),
            Op::Truncate(path, len) => self.change(path, |content| content.resize(*len as usize, 0)),
            Op::Punch(path, offset, len) => self.change(path, |content| {
                let end = content.len().min((offset + len) as usize);
                let from = end.min(*offset as usize);
                content[from..end].fill(0);
            }),
            Op::Fsync(_) => {}
            Op::Rename(from, to) => {
                // Two names of one file: nothing happens.
                if self.names.get(from) != self.names.get(to) {
                    let taken = self.take(from);
                    self.remove(to);
                    self.put(to, taken);
                }
            }
            Op::Exchange(one, two) => {
                let (first, second) = (self.take(one), self.take(two));
                self.put(one, second);
                self.put(two, first);
            }
            Op::Link(from, to) => {
                let id = self.names[from];
                self.names.insert(to.clone(), id);
            }
            Op::Unlink(path) | Op::Rmdir(path) => self.remove(path),
            Op::Chmod(path, mode) => {
                let node = self.node_mut(path);
                node.mode = node.kind().as_raw_mode() | mode;
            }
            Op::Chown(path, uid, gid) => self.node_mut(path).owner = (*uid, *gid),
            Op::Times(path, atime, mtime) => self.node_mut(path).times = Some((*atime, *mtime)),
            Op::SetXattr(path, name, value) => {
                self.node_mut(path).xattrs.insert(name.clone(), value.clone());
            }
            Op::RemoveXattr(path, name) => {
                self.node_mut(path).xattrs.remove(name);
            }
        }
    }

    fn change(&mut self, path: &Below, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.node_mut(path);
        node.times = None;
        let Content::Bytes(bytes) = &mut node.content else { panic!("only files are written") };
        change(bytes);
    }

    /// As [`crate::tree::list`] would show it. Where a time is not known, that of `seen` is taken.
    pub fn tree(&self, seen: &Tree) -> Tree {
        let mut names_of: BTreeMap<u64, (u64, Below)> = BTreeMap::new();
        for (path, id) in &self.names {
            names_of.entry(*id).or_insert((0, path.clone())).0 += 1;
        }
        let item = |(path, id): (&Below, &u64)| {
            let node = &self.nodes[id];
            let directory = node.kind() == FileType::Directory;
            let (nlink, same_as) = if directory { (0, Below::new()) } else { names_of[id].clone() };
            let mtime = match node.times {
                Some((_, mtime)) if !directory => Some((mtime, 123_456_789)),
                _ => seen.get(path).and_then(|item| item.mtime),
            };
            let item = Item {
                mode: node.mode,
                owner: node.owner,
                rdev: 0,
                nlink,
                same_as,
                mtime,
                atime: None,
                xattrs: node.xattrs.clone(),
                content: node.content.clone(),
            };
            (path.clone(), item)
        };
        self.names.iter().map(item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(path: &str) -> Below {
        path.as_bytes().to_vec()
    }

    #[test]
    fn a_directory_takes_what_is_below_it_along_and_its_neighbours_stay() {
        let mut expected = Expected::new((0, 0));
        for op in [
            Op::Mkdir(p("a"), 0o755),
            Op::Create(p("a/f"), 0o644),
            Op::Link(p("a/f"), p("a/g")),
            Op::Create(p("a.x"), 0o644),
            Op::Write(p("a/g"), 2, p("xy")),
            Op::Rename(p("a"), p("b")),
            Op::Unlink(p("b/g")),
        ] {
            expected.apply(&op);
        }
        let names: Vec<_> = expected.names.keys().cloned().collect();
        assert_eq!(names, [p("a.x"), p("b"), p("b/f")]);
        assert_eq!(expected.node(&p("b/f")).unwrap().bytes().unwrap(), b"\0\0xy");
        assert_eq!(expected.nodes.len(), 3);
    }

    #[test]
    fn every_operation_does_to_a_real_tree_what_is_expected_of_it() {
        let place = crate::place::Place::new("ops").unwrap();
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let top = place.join("data");
        let mut worker = crate::worker::Worker::new(7, owner, crate::worker::Rules::default());
        for _ in 0..1500 {
            worker.step(&top).unwrap();
        }
        let wrong = worker.verify(&top).unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // And a difference is found.
        let path = worker.expected().names.keys().next().unwrap().clone();
        fs::chownat(CWD, full(&top, &path), Some(Uid::from_raw(77)), None, AtFlags::SYMLINK_NOFOLLOW)
            .map_or_else(|_| assert!(owner.0 != 0), |()| assert!(!worker.verify(&top).unwrap().is_empty()));
    }
}
