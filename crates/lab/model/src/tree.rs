//! The model's tree: nodes by id, and one operation applied to them at a time. Holds what every
//! operation shares; the operations are in `names`, `node` and `file`.

use crate::content::Content;
use atoll_core::{Ino, Name, SessionId, Time};
use atoll_posix::acl::Acl;
use atoll_posix::locks::Locks;
use atoll_posix::perm::{self, AccessMode, Denied, ObjectPerms, check};
use atoll_posix::{Answer, Attr, AttrsAround, Caller, Errno, Kind, NamedObject, Op};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The length that the model gives every directory; comparisons ignore it.
pub(crate) const DIRECTORY_SIZE: u64 = 4096;
/// The cookie of the first name of a directory: smaller ones are for "." and "..".
pub(crate) const FIRST_COOKIE: u64 = 3;
/// Most names of one file; past it, `EMLINK`.
pub(crate) const LINKS_MAX: u32 = 1 << 30;

/// What came of an operation that was not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its answer, and the bytes beside it.
    Answered(Answer, Vec<u8>),
    /// A lock with `wait` is taken: apply it again when something was unlocked.
    Blocked,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        Self::Answered(answer, Vec::new())
    }
}

/// When reading marks the time of last access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtimeRule {
    /// Never, as a mount with `noatime`.
    #[default]
    Never,
    /// Always, as POSIX says.
    Always,
}

/// A directory's inside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Directory {
    pub(crate) parent: Ino,
    /// By name: the child, and the cookie that stays while the name exists.
    pub(crate) entries: BTreeMap<Name, (Ino, u64)>,
    pub(crate) last_cookie: u64,
}

/// What a node is beside its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Bytes),
    Special,
}

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) attr: Attr,
    pub(crate) acl: Option<Acl>,
    pub(crate) default_acl: Option<Acl>,
    pub(crate) xattrs: BTreeMap<Bytes, Bytes>,
    pub(crate) body: Body,
    pub(crate) locks: Locks,
}

impl Node {
    pub(crate) fn owned(&self) -> ObjectPerms {
        ObjectPerms::from(&self.attr)
    }

    pub(crate) fn allows(&self, caller: &Caller, want: AccessMode) -> Result<(), Denied> {
        check(caller, self.owned(), want, self.acl.as_ref())
    }

    pub(crate) fn directory(&self) -> Result<&Directory, Errno> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.attr.kind == Kind::Directory
    }

    /// Content changed at `now`.
    pub(crate) fn modified(&mut self, now: Time) {
        self.attr.mtime = now;
        self.attr.ctime = now;
    }
}

/// A whole POSIX tree in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub(crate) nodes: BTreeMap<Ino, Node>,
    next_ino: Ino,
    atime: AtimeRule,
    /// Whoever calls has walked to the directories already.
    pub(crate) is_walked: bool,
}

impl Model {
    /// An empty tree, whose root belongs to uid 0, has mode 0755 and was made at `now`.
    pub fn new(now: Time, atime: AtimeRule) -> Self {
        let attr = Attr {
            ino: Ino::ROOT,
            kind: Kind::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: DIRECTORY_SIZE,
            blocks: 8,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let root = Node {
            attr,
            acl: None,
            default_acl: None,
            xattrs: BTreeMap::new(),
            body: Body::Directory(Directory { parent: Ino::ROOT, ..Directory::default() }),
            locks: Locks::default(),
        };
        let nodes = BTreeMap::from([(Ino::ROOT, root)]);
        Self { nodes, next_ino: Ino(Ino::FIRST_COUNTER), atime, is_walked: false }
    }

    /// From now on the permission to walk is not asked for: a kernel has seen to that before it calls, and
    /// who may walk can have changed since.
    #[must_use]
    pub fn walked(self) -> Self {
        Self { is_walked: true, ..self }
    }

    /// The id that the next file or directory gets; counts up from there. A judge sets it to what
    /// the judged one minted, so that ids need no translation. It must be free.
    pub fn set_next_ino(&mut self, ino: Ino) {
        assert!(!self.nodes.contains_key(&ino), "{ino} is taken");
        self.next_ino = ino;
    }

    /// Applies one operation of `session` that is decided at `now`. `data` are the bytes of a
    /// write. An error means that nothing changed, except that asking for another kind of flock
    /// gives up the old one, as on Linux.
    ///
    /// Where groups decide that were not sent (`Caller::groups` is `None`), it is `EACCES`: ask again
    /// with them, even if there are none.
    pub fn apply(
        &mut self,
        now: Time,
        session: SessionId,
        caller: &Caller,
        op: &Op,
        data: &[u8],
    ) -> Result<Outcome, Errno> {
        self.dispatch(now, session, caller, op, data).map_err(|denied| match denied {
            Denied::Errno(errno) => errno,
            Denied::NeedGroups => Errno::EACCES,
        })
    }

    /// What an operation is about, as it was here and is in `after`: of a change both, otherwise what is alone.
    pub fn around(&self, after: &Self, op: &Op) -> Vec<AttrsAround> {
        let around = |ino| {
            let (before, after) = (self.attr(ino)?, after.attr(ino)?);
            Some(AttrsAround::new(op.changes().then_some(before), *after))
        };
        op.subjects().into_iter().flatten().filter_map(around).collect()
    }

    /// Whether an operation may be applied for a caller for whom nobody has walked to its objects or opened them.
    pub fn may_use(&self, caller: &Caller, op: &Op) -> Result<(), Errno> {
        for (ino, need) in perm::needs(op).into_iter().flatten() {
            let Ok(node) = self.node(ino) else { continue };
            need.check(caller, node.owned(), node.acl.as_ref()).map_err(|denied| match denied {
                Denied::Errno(errno) => errno,
                Denied::NeedGroups => Errno::EACCES,
            })?;
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        now: Time,
        session: SessionId,
        caller: &Caller,
        op: &Op,
        data: &[u8],
    ) -> Result<Outcome, Denied> {
        match op {
            Op::Lookup { dir, name } => self.lookup(caller, *dir, name),
            Op::GetAttr { ino } => self.get_attr(*ino),
            Op::SetAttr { ino, set } => self.set_attr(now, caller, *ino, set),
            Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target } => {
                let new = crate::names::New { kind: *kind, mode: *mode, umask: *umask, rdev: *rdev, target };
                self.create(now, caller, *dir, name, &new, *exclusive)
            }
            Op::Mkdir { dir, name, mode, umask } => self.mkdir(now, caller, *dir, name, *mode, *umask),
            Op::Unlink { dir, name } => self.unlink(now, caller, *dir, name),
            Op::Rmdir { dir, name, meant } => self.rmdir(now, caller, *dir, name, *meant),
            Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant } => {
                let (from, to) = ((*dir, name), (*new_dir, new_name));
                self.rename(now, caller, from, to, *mode, (*meant, *new_meant))
            }
            Op::Link { ino, dir, name } => self.link(now, caller, *ino, *dir, name),
            Op::Readlink { ino } => self.readlink(now, *ino),
            Op::Read { ino, offset, len } => self.read(now, *ino, *offset, *len),
            Op::Write { ino, offset, append, kill_set_id } => {
                self.write(now, caller, *ino, if *append { None } else { Some(*offset) }, *kill_set_id, data)
            }
            Op::Fallocate { ino, offset, len, what } => {
                self.fallocate(now, caller, *ino, *offset, *len, *what)
            }
            Op::Seek { ino, offset, whence } => self.seek(*ino, *offset, *whence),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range(now, caller, (*from, *from_offset), (*to, *to_offset), *len)
            }
            Op::Fsync { ino } => self.node(*ino).map(|_| Answer::Done.into()).map_err(Denied::from),
            Op::FsyncDir { dir } => Ok(self.node(*dir)?.directory().map(|_| Answer::Done.into())?),
            Op::ReadDir { dir, after, bytes, plus } => self.read_dir(now, *dir, *after, *bytes, *plus),
            Op::GetXattr { ino, name } => self.get_xattr(caller, *ino, name),
            Op::SetXattr { ino, name, value, mode, kill_sgid } => {
                self.set_xattr(now, caller, *ino, (name, value), *mode, *kill_sgid)
            }
            Op::ListXattr { ino } => self.list_xattr(caller, *ino),
            Op::RemoveXattr { ino, name } => self.remove_xattr(now, caller, *ino, name),
            Op::Statfs => Ok(self.statfs()),
            Op::GetLock { ino, lock } => self.get_lock(session, *ino, lock),
            Op::SetLock { ino, lock, wait } => self.set_lock(session, *ino, lock, *wait),
            Op::Tmpfile { .. } => Err(Errno::EOPNOTSUPP.into()),
            Op::Access { ino } => {
                let node = self.node(*ino)?;
                let granted = perm::granted(caller, node.owned(), node.acl.as_ref())?;
                Ok(Answer::Access { granted }.into())
            }
            Op::Parent { dir } => {
                self.node(*dir)?.directory()?;
                let above = self.parent(*dir).ok_or(Errno::ESTALE)?;
                Ok(Answer::Found { found: NamedObject { attr: self.node(above)?.attr, attr_current: true } }
                    .into())
            }
            Op::Accessed { ino, access } => {
                let attr = self.node(*ino)?.attr;
                self.known(*ino).attr.atime = access.atime(&attr);
                Ok(Answer::Done.into())
            }
        }
    }

    /// No mount knows this id any more: if it has no name, it goes.
    pub fn forget(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.attr.nlink == 0) {
            self.nodes.remove(&ino);
        }
    }

    /// The client of `session` is gone, and so are its locks. Says whether there were any.
    pub fn end_session(&mut self, session: SessionId) -> bool {
        self.nodes.values_mut().fold(false, |any, node| node.locks.drop_session(session) | any)
    }

    /// Ids of everything that exists, named or not.
    pub fn inos(&self) -> impl Iterator<Item = Ino> + '_ {
        self.nodes.keys().copied()
    }

    /// Attributes of what exists.
    pub fn attr(&self, ino: Ino) -> Option<&Attr> {
        Some(&self.nodes.get(&ino)?.attr)
    }

    /// Names in a directory and what they name; none if it is no directory.
    pub fn children(&self, dir: Ino) -> impl Iterator<Item = (&Name, Ino)> + '_ {
        let directory = self.nodes.get(&dir).and_then(|node| node.directory().ok());
        directory.into_iter().flat_map(|d| d.entries.iter().map(|(name, (ino, _))| (name, *ino)))
    }

    /// Names of what a file or directory has of extended attributes, without ACLs.
    pub fn xattr_names(&self, ino: Ino) -> impl Iterator<Item = &Bytes> + '_ {
        self.nodes.get(&ino).into_iter().flat_map(|node| node.xattrs.keys())
    }

    /// The directory above a directory; the root's is the root.
    pub fn parent(&self, dir: Ino) -> Option<Ino> {
        Some(self.nodes.get(&dir)?.directory().ok()?.parent)
    }

    /// How many directories there are from the root to `dir`, which is one.
    pub fn depth(&self, dir: Ino) -> usize {
        let mut at = dir;
        let mut depth = 0;
        while at != Ino::ROOT {
            at = self.parent(at).expect("every directory has a parent");
            depth += 1;
        }
        depth
    }

    /// Panics if the tree is none: a name of nothing, a wrong count of names, a directory that is
    /// not below the root.
    pub fn check(&self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        for (ino, node) in &self.nodes {
            node.locks.check();
            let Ok(directory) = node.directory() else { continue };
            let mut subdirectories = 0;
            for (child, cookie) in directory.entries.values() {
                let there =
                    self.nodes.get(child).unwrap_or_else(|| panic!("{ino} names {child}, which is gone"));
                *names.entry(*child).or_default() += 1;
                assert!(*cookie >= FIRST_COOKIE && *cookie <= directory.last_cookie);
                if there.is_directory() {
                    subdirectories += 1;
                    assert_eq!(self.parent(*child), Some(*ino), "parent of {child}");
                }
            }
            let dead = node.attr.nlink == 0;
            assert!(!dead || directory.entries.is_empty(), "removed directory {ino} has names");
            assert!(dead || node.attr.nlink == 2 + subdirectories, "link count of {ino}");
            if !dead {
                self.depth(*ino);
            }
        }
        for (ino, node) in &self.nodes {
            let count = names.get(ino).copied().unwrap_or(0);
            if node.is_directory() {
                let named = *ino != Ino::ROOT && node.attr.nlink > 0;
                assert_eq!(count, u32::from(named), "names of directory {ino}");
            } else {
                assert_eq!(count, node.attr.nlink, "link count of {ino}");
            }
            if let Body::File(content) = &node.body {
                assert_eq!(content.size(), node.attr.size, "length of {ino}");
            }
        }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::ESTALE)
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    /// A node that a name or an earlier look at this operation proved to exist.
    pub(crate) fn known(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap_or_else(|| panic!("{ino} vanished"))
    }

    pub(crate) fn accessed(&mut self, ino: Ino, now: Time) {
        if self.atime == AtimeRule::Always {
            self.known(ino).attr.atime = now;
        }
    }

    pub(crate) fn mint(&mut self) -> Ino {
        while self.nodes.contains_key(&self.next_ino) {
            self.next_ino.0 += 1;
        }
        let ino = self.next_ino;
        self.next_ino.0 += 1;
        ino
    }
}
