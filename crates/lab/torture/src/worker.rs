//! One worker: draws operations on a tree of its own and performs them. Afterwards it knows exactly which
//! files must be there: every operation that was acknowledged, and of the one in flight everything, nothing
//! or, for the bytes of a write, a part.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Instant;

use atoll_model::Rng;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::ops::{Below, Expected, Node, Op, full};
use crate::tree::{Content, Detail, Tree, differences, list};

/// Above so many names, removing is drawn instead of making.
const NAMES_MAX: usize = 120;
/// Bytes of the largest write: over what travels inside a record.
const WRITE_BYTES_MAX: u64 = 150_000;
/// No file grows beyond.
const FILE_BYTES_MAX: u64 = 600_000;
/// Operations that a failure shows.
const SHOWN: usize = 30;
/// Deepest directory.
const DEPTH_MAX: usize = 4;

/// What a worker may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Change owners, and take all rights away from files and directories that are still used.
    pub root: bool,
    /// Set extended attributes of users.
    pub xattrs: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { root: rustix::process::geteuid().is_root(), xattrs: true }
    }
}

/// Why a step was not done.
#[derive(Debug)]
pub enum Stopped {
    /// The mount is dead: the operation is in flight for ever.
    Dead,
    /// `EIO`: wrong, but of a daemon that is being killed. If it dies while the kernel copies its
    /// answer, the kernel makes that an `EIO`.
    Io(String),
    /// `ENOSPC`: a part of its bytes may be there. [`Worker::verify`] finds out.
    Full,
    /// It failed, which it must not.
    Failed(String),
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    rng: Rng,
    rules: Rules,
    expected: Expected,
    /// Was asked for, and not answered.
    in_flight: Option<Op>,
    /// Belongs together: a file that is saved under another name and renamed.
    planned: VecDeque<Op>,
    last: VecDeque<Op>,
    acknowledged: u64,
}

impl Worker {
    /// One that starts with an empty tree, in which its files belong to `owner`.
    pub fn new(seed: u64, owner: (u32, u32), rules: Rules) -> Self {
        // Of the whole process: what is made gets the mode that was asked for.
        rustix::process::umask(rustix::fs::Mode::empty());
        Self {
            rng: Rng::new(seed),
            rules,
            expected: Expected::new(owner),
            in_flight: None,
            planned: VecDeque::new(),
            last: VecDeque::new(),
            acknowledged: 0,
        }
    }

    /// What must be there, if nothing is in flight.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Operations that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Performs one operation on the tree at `top`.
    pub fn step(&mut self, top: &Path) -> Result<(), Stopped> {
        assert!(self.in_flight.is_none(), "first find out what became of the last one");
        let op = self.planned.pop_front().unwrap_or_else(|| self.draw());
        self.in_flight = Some(op.clone());
        let begun = Instant::now();
        match op.perform(top) {
            Ok(()) => {
                self.expected.apply(&op);
                self.in_flight = None;
                self.acknowledged += 1;
                self.last.push_back(op);
                if self.last.len() > SHOWN {
                    self.last.pop_front();
                }
                Ok(())
            }
            Err(Errno::NOTCONN | Errno::CONNABORTED) => Err(Stopped::Dead),
            Err(Errno::NOSPC) => Err(Stopped::Full),
            Err(why) => {
                let ms = begun.elapsed().as_millis();
                let said = format!("{op:?}: {why}, after {ms} ms\n{}", self.history());
                Err(if why == Errno::IO { Stopped::Io(said) } else { Stopped::Failed(said) })
            }
        }
    }

    /// Compares the tree at `top` with what must be there, and settles what became of the operation in
    /// flight. What is wrong, a line each. Changes nothing if the tree cannot be listed.
    pub fn verify(&mut self, top: &Path) -> io::Result<Vec<String>> {
        let seen = list(top, Detail { bytes: true, atime: false })?;
        let before = self.expected.tree(&seen);
        if seen == before && self.in_flight.is_none() {
            return Ok(Vec::new());
        }
        let mut after = self.expected.clone();
        if let Some(op) = &self.in_flight {
            after.apply(op);
            if seen == after.tree(&seen) {
                self.settle(after);
                return Ok(Vec::new());
            }
            if seen == before {
                let before = self.expected.clone();
                self.settle(before);
                return Ok(Vec::new());
            }
            if let Some(between) = between(&self.expected, &after, op, &seen) {
                self.settle(between);
                return Ok(Vec::new());
            }
        }
        let mut wrong = vec!["expected (left) and there (right) differ:".to_owned()];
        wrong.extend(differences(&before, &seen));
        if let Some(op) = &self.in_flight {
            wrong.push(format!("in flight: {op:?}; with it:"));
            wrong.extend(differences(&after.tree(&seen), &seen));
        }
        wrong.push(self.history());
        Ok(wrong)
    }

    fn settle(&mut self, expected: Expected) {
        self.expected = expected;
        self.in_flight = None;
        self.planned.clear();
    }

    fn history(&self) -> String {
        let last: Vec<_> = self.last.iter().map(|op| format!("  {op:?}\n")).collect();
        format!("the last operations that were acknowledged:\n{}", last.concat())
    }

    fn some(&mut self, fits: impl Fn(&Below, &Node) -> bool) -> Option<Below> {
        let all = self.expected.names.iter();
        let fitting: Vec<_> =
            all.filter(|(path, id)| fits(path, &self.expected.nodes[id])).map(|(path, _)| path).collect();
        if fitting.is_empty() { None } else { Some((*self.rng.pick(&fitting)).clone()) }
    }

    fn file(&mut self) -> Option<Below> {
        let root = self.rules.root;
        self.some(|_, node| node.bytes().is_some() && (root || node.mode & 0o600 == 0o600))
    }

    /// A directory in which something can be made; the top is the empty path.
    fn dir(&mut self) -> Below {
        let mut dirs = vec![Below::new()];
        let depth = |path: &Below| path.iter().filter(|b| **b == b'/').count();
        for (path, id) in &self.expected.names {
            if self.expected.nodes[id].kind() == FileType::Directory && depth(path) + 1 < DEPTH_MAX {
                dirs.push(path.clone());
            }
        }
        self.rng.pick(&dirs).clone()
    }

    /// A name that is free in `dir`.
    fn free(&mut self, dir: &Below) -> Below {
        const ODD: &[&[u8]] = &[b" ", b"\xff\xfe", b"*?\n", b"\xc3\xa4", b"..x", b"\\\"'"];
        loop {
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(format!("n{}", self.rng.below(400)).as_bytes());
            if self.rng.percent(15) {
                path.extend_from_slice(ODD[self.rng.index(ODD.len())]);
            }
            if self.rng.percent(2) {
                path.extend(std::iter::repeat_n(b'x', 200));
            }
            if !self.expected.names.contains_key(&path) {
                return path;
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0 => self.rng.below(WRITE_BYTES_MAX),
            1..=3 => self.rng.below(20_000),
            _ => self.rng.below(600),
        } as usize;
        let mut bytes = vec![0; len + 1];
        let mut rng = Rng::new(self.rng.bits());
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&rng.bits().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    fn mode(&mut self, dir: bool) -> u32 {
        let least = match (self.rules.root, dir) {
            (true, _) => 0,
            (false, true) => 0o700,
            (false, false) => 0o600,
        };
        least | *self.rng.pick(&[0, 0o644, 0o600, 0o777, 0o751, 0o440])
    }

    fn draw(&mut self) -> Op {
        loop {
            let full = self.expected.names.len() > NAMES_MAX;
            let drawn = match self.rng.below(if full { 36 } else { 30 }) {
                0..3 => self.draw_new(),
                3..9 => self.draw_write(),
                9 => self.draw_new_dir(),
                10..13 => self.draw_save(),
                13..16 => self.draw_rename(),
                16..18 => self.draw_attributes(),
                18 => self.draw_xattr(),
                19 => self.file().map(Op::Fsync),
                20 => self.draw_link(),
                21..23 => self.draw_remove(),
                23 => self.draw_rmdir(),
                24..30 => self.draw_append(),
                _ => {
                    if self.rng.percent(60) {
                        self.draw_remove()
                    } else {
                        self.draw_rmdir()
                    }
                }
            };
            if let Some(op) = drawn {
                return op;
            }
        }
    }

    fn draw_new(&mut self) -> Option<Op> {
        let dir = self.dir();
        let path = self.free(&dir);
        Some(match self.rng.below(10) {
            0 => Op::Symlink(path, b"../somewhere/else".to_vec()),
            1 => Op::Fifo(path, self.mode(false)),
            _ => Op::Create(path, self.mode(false)),
        })
    }

    fn draw_new_dir(&mut self) -> Option<Op> {
        let dir = self.dir();
        let path = self.free(&dir);
        Some(Op::Mkdir(path, self.mode(true)))
    }

    fn len(&self, path: &Below) -> u64 {
        self.expected.node(path).and_then(Node::bytes).map_or(0, |bytes| bytes.len() as u64)
    }

    fn draw_write(&mut self) -> Option<Op> {
        let path = self.file()?;
        let len = self.len(&path);
        Some(match self.rng.below(8) {
            0 => Op::Truncate(path, self.rng.below(len * 2 + 1).min(FILE_BYTES_MAX)),
            1 => {
                let from = self.rng.below(len + 1);
                Op::Punch(path, from, 1 + self.rng.below(len + 1))
            }
            _ => {
                let most = FILE_BYTES_MAX - WRITE_BYTES_MAX - 1;
                let offset = self.rng.below(len + len / 4 + 1).min(most);
                Op::Write(path, offset, self.bytes())
            }
        })
    }

    fn draw_append(&mut self) -> Option<Op> {
        let path = self.file()?;
        let room = FILE_BYTES_MAX.saturating_sub(self.len(&path));
        let bytes = self.bytes();
        (bytes.len() as u64 <= room).then_some(Op::Append(path, bytes))
    }

    /// As editors do: a new file with all its bytes takes the name of the old one.
    fn draw_save(&mut self) -> Option<Op> {
        let old = self.some(|_, node| node.bytes().is_some())?;
        let dir = parent(&old);
        let new = self.free(&dir);
        let bytes = self.bytes();
        let mode = self.mode(false) | 0o600;
        self.planned.push_back(Op::Write(new.clone(), 0, bytes));
        if self.rng.percent(30) {
            self.planned.push_back(Op::Fsync(new.clone()));
        }
        self.planned.push_back(Op::Rename(new.clone(), old));
        Some(Op::Create(new, mode))
    }

    fn draw_rename(&mut self) -> Option<Op> {
        let from = self.some(|_, _| true)?;
        let dir = parent(&from);
        let directory = |node: &Node| node.kind() == FileType::Directory;
        let is_dir = directory(self.expected.node(&from)?);
        let other = self.some(|path, _| parent(path) == dir)?;
        match self.rng.below(3) {
            0 if other != from => Some(Op::Exchange(from, other)),
            1 if !is_dir && !directory(self.expected.node(&other)?) => Some(Op::Rename(from, other)),
            _ => {
                let to = self.free(&dir);
                Some(Op::Rename(from, to))
            }
        }
    }

    fn draw_link(&mut self) -> Option<Op> {
        let from = self.some(|_, node| node.bytes().is_some())?;
        let to = self.free(&parent(&from));
        Some(Op::Link(from, to))
    }

    fn draw_attributes(&mut self) -> Option<Op> {
        let path = self.some(|_, node| node.kind() != FileType::Symlink)?;
        let dir = self.expected.node(&path)?.kind() == FileType::Directory;
        Some(match self.rng.below(if self.rules.root { 3 } else { 2 }) {
            0 => Op::Chmod(path, self.mode(dir)),
            1 if dir => return None,
            1 => {
                let mtime = 1_000_000_000 + self.rng.below(100_000_000) as i64;
                Op::Times(path, mtime + 5, mtime)
            }
            _ => Op::Chown(path, self.rng.below(3) as u32 * 1000, self.rng.below(3) as u32 * 1000),
        })
    }

    fn draw_xattr(&mut self) -> Option<Op> {
        if !self.rules.xattrs {
            return None;
        }
        let root = self.rules.root;
        let path = self.some(|_, node| {
            matches!(node.kind(), FileType::RegularFile | FileType::Directory)
                && (root || node.mode & 0o200 != 0)
        })?;
        let node = self.expected.node(&path)?;
        let name = node.xattrs.keys().next().cloned();
        Some(match name {
            Some(name) if self.rng.percent(30) => Op::RemoveXattr(path, name),
            _ => {
                let name = format!("user.x{}", self.rng.below(3)).into_bytes();
                let len = self.rng.below(300) as usize;
                Op::SetXattr(path, name, vec![b'v'; len])
            }
        })
    }

    fn draw_remove(&mut self) -> Option<Op> {
        self.some(|_, node| node.kind() != FileType::Directory).map(Op::Unlink)
    }

    fn draw_rmdir(&mut self) -> Option<Op> {
        let names = &self.expected.names;
        let used: std::collections::BTreeSet<Below> = names.keys().map(parent).collect();
        self.some(|path, node| node.kind() == FileType::Directory && !used.contains(path)).map(Op::Rmdir)
    }
}

/// The directory of a path; the top is the empty path.
fn parent(path: &Below) -> Below {
    path.iter().rposition(|b| *b == b'/').map_or(Below::new(), |at| path[..at].to_vec())
}

/// A write in flight may have left some of its bytes: the tree as it was, but for that one file, in
/// which every byte is the old or the new one, and as long as one of both or between.
fn between(before: &Expected, after: &Expected, op: &Op, seen: &Tree) -> Option<Expected> {
    let path = op.writes()?;
    let Content::Bytes(there) = &seen.get(path)?.content else { return None };
    let (old, new) = (before.node(path)?.bytes()?, after.node(path)?.bytes()?);
    let lens = old.len().min(new.len())..=old.len().max(new.len());
    let fits = |at: usize| {
        let byte = there.get(at);
        byte == old.get(at) || byte == new.get(at) || (at >= old.len() && byte == Some(&0))
    };
    if !lens.contains(&there.len()) || !(0..there.len()).all(fits) {
        return None;
    }
    let mut between = after.clone();
    let id = between.names[path];
    let node = between.nodes.get_mut(&id).expect("it has a name");
    node.content = Content::Bytes(there.clone());
    (between.tree(seen) == *seen).then_some(between)
}

/// Removes all that a worker has made at `top`.
pub fn clear(top: &Path, worker: &mut Worker) -> Result<(), Errno> {
    let names: Vec<Below> = worker.expected.names.keys().rev().cloned().collect();
    for path in names {
        let directory = worker.expected.node(&path).is_some_and(|n| n.kind() == FileType::Directory);
        if directory {
            rustix::fs::rmdir(full(top, &path))?
        } else {
            rustix::fs::unlink(full(top, &path))?
        }
        let op = if directory { Op::Rmdir(path) } else { Op::Unlink(path) };
        worker.expected.apply(&op);
    }
    Ok(())
}
