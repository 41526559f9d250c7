//! What a client does: it walks to one or two paths, one name after another as a kernel does, and then does something there.

use std::collections::BTreeMap;

use atoll_core::{Ino, Name};
use atoll_model::rng::Rng;
use atoll_posix::{Kind, Op, RenameMode, SetAttr};
use atoll_union::{NativeCall, NativeId, NativeReply};
use bytes::Bytes;

use super::members::{below, name, split};

/// Names that there are.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Bytes of names that a listing asks for at once.
const LIST_BYTES: u32 = 80;

/// A random path of at most three names.
pub(super) fn path(rng: &mut Rng) -> String {
    let mut path = NAMES[rng.index(NAMES.len())].to_owned();
    for _ in 0..rng.below(3) {
        path = below(&path, NAMES[rng.index(NAMES.len())]);
    }
    path
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Lookup,
    List,
    Create,
    Mkdir,
    Write,
    Read,
    Chmod,
    Unlink,
    Rmdir,
    Rename(RenameMode),
    Link,
    Fsync,
    FsyncDir,
    /// Writes to a file that the client has open since an earlier job.
    HeldWrite,
}

const WEIGHTS: [(What, u32); 16] = [
    (What::Lookup, 14),
    (What::List, 14),
    (What::Create, 14),
    (What::Mkdir, 11),
    (What::Write, 6),
    (What::Read, 5),
    (What::Chmod, 3),
    (What::Unlink, 8),
    (What::Rmdir, 6),
    (What::Rename(RenameMode::Replace), 8),
    (What::Rename(RenameMode::NoReplace), 3),
    (What::Rename(RenameMode::Exchange), 2),
    (What::Link, 4),
    (What::Fsync, 3),
    (What::FsyncDir, 2),
    (What::HeldWrite, 3),
];

impl What {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        WEIGHTS[rng.weighted(&WEIGHTS.map(|(_, weight)| weight))].0
    }

    /// Whether the whole path is walked, and not only to the directory of its last name.
    const fn walks_all(self) -> bool {
        matches!(
            self,
            Self::Lookup
                | Self::List
                | Self::Write
                | Self::Read
                | Self::Chmod
                | Self::Link
                | Self::Fsync
                | Self::FsyncDir
        )
    }

    /// Whether it has a second path.
    pub(super) const fn has_target(self) -> bool {
        matches!(self, Self::Rename(_) | Self::Link)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) client: usize,
    pub(super) process: usize,
    pub(super) what: What,
    pub(super) from: String,
    pub(super) to: String,
    /// What it is told may be as old as this moment.
    pub(super) since: u64,
    /// Members that were away when it began, and when they went.
    pub(super) gone: BTreeMap<usize, u64>,
    /// When its last operation began.
    pub(super) began: u64,
    /// The same on the clock, in nanoseconds.
    pub(super) began_ns: u64,
    /// The paths to walk, and where those led to that were walked: the id, and whether it is a directory.
    walks: Vec<String>,
    pub(super) walked: Vec<(Ino, bool)>,
    /// How many bytes of the present walk are done, and where it is.
    pub(super) done: usize,
    pub(super) at: (Ino, bool),
    /// How many changes in members it has made.
    pub(super) changes: u64,
    /// Whether the change was made that it is about.
    pub(super) acted: bool,
    /// The native renames that it has made and not made undone, each with its member.
    pub(super) renames: Vec<(usize, [(NativeId, Name); 2])>,
    /// Something stays where it was, because its member took no change when the operation was decided already.
    pub(super) left: bool,
    /// Directories that it has made in one more member.
    pub(super) chain: Vec<(usize, NativeId)>,
    /// Directories that those were made like, each in its member.
    pub(super) like: Vec<(usize, NativeId)>,
    /// Those that it has made while no such directory had a name any more, and that it has not tried to remove.
    pub(super) back: Vec<(usize, NativeId)>,
    pub(super) names: Vec<String>,
    after: u64,
    pub(super) data: Bytes,
    /// The file that is meant by a job on an open file.
    pub(super) held: Option<(Ino, usize, NativeId)>,
    pub(super) given_up: bool,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Op(Op, Bytes),
    /// Nothing: the path does not lead there.
    Nothing,
}

impl Job {
    pub(super) fn new(client: usize, process: usize, what: What, from: &str, to: &str) -> Self {
        let whole = |path: &str| path.to_owned();
        let parent = |path: &str| split(path).0.to_owned();
        let walks = match what {
            What::HeldWrite => vec![],
            What::Link => vec![whole(from), parent(to)],
            What::Rename(_) => vec![parent(from), parent(to)],
            what if what.walks_all() => vec![whole(from)],
            _ => vec![parent(from)],
        };
        Self {
            client,
            process,
            what,
            from: from.to_owned(),
            to: to.to_owned(),
            since: 0,
            gone: BTreeMap::new(),
            began: 0,
            began_ns: 0,
            walks,
            walked: Vec::new(),
            done: 0,
            at: (Ino::ROOT, true),
            changes: 0,
            acted: false,
            renames: Vec::new(),
            left: false,
            chain: Vec::new(),
            like: Vec::new(),
            back: Vec::new(),
            names: Vec::new(),
            after: 0,
            data: Bytes::new(),
            held: None,
            given_up: false,
        }
    }

    /// The name to look up next and its whole path, if the job is still walking.
    pub(super) fn step(&self) -> Option<(&str, &str)> {
        let walk = self.walks.get(self.walked.len())?;
        let rest = walk.get(self.done..)?.trim_start_matches('/');
        let last = rest.split('/').next().filter(|last| !last.is_empty())?;
        let end = walk.len() - rest.len() + last.len();
        Some((last, &walk[..end]))
    }

    /// The last step has led there.
    pub(super) fn stepped(&mut self, ino: Ino, is_dir: bool) {
        let end = self.step().map(|(_, path)| path.len());
        self.at = (ino, is_dir);
        self.done = end.unwrap_or(self.done);
    }

    /// The next operation. Walks end by themselves.
    pub(super) fn next(&mut self) -> Next {
        while self.walked.len() < self.walks.len() {
            match self.step() {
                // The kernel goes on only below directories.
                Some(_) if !self.at.1 => return Next::Nothing,
                Some((last, _)) => {
                    return Next::Op(Op::Lookup { dir: self.at.0, name: name(last) }, Bytes::new());
                }
                None => {
                    self.walked.push(self.at);
                    (self.done, self.at) = (0, (Ino::ROOT, true));
                }
            }
        }
        self.act().map_or(Next::Nothing, |op| Next::Op(op, self.data.clone()))
    }

    fn act(&self) -> Option<Op> {
        let last = |path: &str| name(split(path).1);
        let (ino, is_dir) = self.walked.first().copied().unwrap_or((Ino::ROOT, false));
        let in_dir = || is_dir.then_some(ino);
        let of_file = || (!is_dir).then_some(ino);
        let target = || self.walked.get(1).filter(|(_, is_dir)| *is_dir).map(|(ino, _)| *ino);
        let write = |ino| Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        Some(match self.what {
            What::Lookup => return None,
            What::List => {
                let (after, plus) = (self.after, self.from.len() % 2 == 1);
                Op::ReadDir { dir: in_dir()?, after, bytes: LIST_BYTES, plus }
            }
            What::Create => {
                let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
                let (dir, name, target) = (in_dir()?, last(&self.from), Bytes::new());
                Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }
            }
            What::Mkdir => Op::Mkdir { dir: in_dir()?, name: last(&self.from), mode: 0o755, umask: 0 },
            What::Write => write(of_file()?),
            What::HeldWrite => write(self.held?.0),
            What::Read => Op::Read { ino: of_file()?, offset: 0, len: 100 },
            What::Chmod => {
                let mode = Some(0o700 + self.from.len() as u32);
                Op::SetAttr { ino, set: SetAttr { mode, ..SetAttr::default() } }
            }
            What::Unlink => Op::Unlink { dir: in_dir()?, name: last(&self.from) },
            What::Rmdir => Op::Rmdir { dir: in_dir()?, name: last(&self.from), meant: None },
            What::Rename(mode) => Op::Rename {
                dir: in_dir()?,
                name: last(&self.from),
                new_dir: target()?,
                new_name: last(&self.to),
                mode,
                meant: None,
                new_meant: None,
            },
            What::Link => Op::Link { ino: of_file()?, dir: target()?, name: last(&self.to) },
            What::Fsync => Op::Fsync { ino: of_file()? },
            What::FsyncDir => Op::FsyncDir { dir: in_dir()? },
        })
    }

    /// A change was made in a member for it.
    pub(super) fn changed(&mut self, member: usize, call: &NativeCall, reply: &NativeReply) {
        match call {
            NativeCall::MkdirLike { .. } => {
                if let NativeReply::Stat(made) = reply {
                    self.chain.push((member, made.id));
                }
            }
            NativeCall::Rmdir { id, .. } if self.chain.contains(&(member, *id)) => {}
            NativeCall::SetAttr { .. } => {}
            NativeCall::Rename { dir, name, new_dir, new_name, mode, .. } => {
                let [old, new] = [(*dir, name.clone()), (*new_dir, new_name.clone())];
                // An exchange is made undone by the same exchange.
                let is_undone = |(at, [from, to]): &(usize, [(NativeId, Name); 2])| {
                    let again = *mode == RenameMode::Exchange && (from, to) == (&old, &new);
                    *at == member && (again || (from, to) == (&new, &old))
                };
                match self.renames.iter().position(is_undone) {
                    Some(at) => drop(self.renames.remove(at)),
                    None => self.renames.push((member, [old, new])),
                }
                self.acted = !self.renames.is_empty();
            }
            _ => self.acted = true,
        }
    }

    /// A portion of a listing.
    pub(super) fn listed(&mut self, names: impl IntoIterator<Item = (u64, String)>) {
        for (cookie, name) in names {
            self.after = cookie;
            self.names.push(name);
        }
    }

    /// Whether its walks are over and its own operation is under way.
    pub(super) fn is_acting(&self) -> bool {
        self.walked.len() == self.walks.len()
    }
}
