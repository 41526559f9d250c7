//! Random operations that mostly hit something: few names, so that they collide; several clients
//! with different rights; what exists is picked from the model's tree. A seed repeats the stream as
//! long as the same operations are applied between the draws.

use crate::rng::Rng;
use crate::tree::Model;
use atoll_core::{Ino, Name, SessionId, Time};
use atoll_posix::acl::{ACCESS_XATTR, DEFAULT_XATTR};
use atoll_posix::{
    Allocation, Caller, Kind, LockKind, LockRange, Op, RenameMode, SetAttr, SetTime, Whence, XattrMode,
};
use bytes::Bytes;

/// Directories are not made deeper than this.
const DEPTH_MAX: usize = 6;
/// Above so many objects, removing is drawn instead of making.
const OBJECTS_MAX: usize = 300;
/// Bytes of the largest write.
const WRITE_BYTES_MAX: u64 = 80_000;
/// Furthest byte that a write, truncate or lock starts at.
const OFFSET_MAX: u64 = 300_000;

/// One operation to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The client that sends it.
    pub session: SessionId,
    /// Who asks there.
    pub caller: Caller,
    /// What is asked.
    pub op: Op,
    /// Bytes of a write.
    pub data: Bytes,
}

macro_rules! weights {
    ($($(#[$meta:meta])* $field:ident = $default:literal => $draw:ident),* $(,)?) => {
        /// How often each kind of operation is drawn, relative to the others; 0 is never.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Weights { $($(#[$meta])* pub $field: u32),* }

        impl Default for Weights {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl Weights {
            /// Nothing at all: the base of a workload of a few kinds.
            pub const NONE: Self = Self { $($field: 0),* };
        }

        impl Workload {
            fn draw(&mut self, model: &Model) -> Op {
                let w = self.weights;
                type Draw = fn(&mut Workload, &Model) -> Op;
                let draws: &[Draw] = &[$(Workload::$draw),*];
                draws[self.rng.weighted(&[$(w.$field),*])](self, model)
            }
        }
    };
}

weights! {
    /// Find a name.
    lookup = 8 => lookup,
    /// Ask for attributes.
    get_attr = 8 => get_attr,
    /// Change attributes.
    set_attr = 8 => set_attr,
    /// Make a file.
    create = 14 => create,
    /// Make a directory.
    mkdir = 7 => mkdir,
    /// Remove a file's name.
    unlink = 8 => unlink,
    /// Remove a directory.
    rmdir = 4 => rmdir,
    /// Change a name.
    rename = 14 => rename,
    /// One more name.
    link = 6 => link,
    /// Target of a link.
    readlink = 1 => readlink,
    /// Read bytes.
    read = 6 => read,
    /// Write bytes.
    write = 14 => write,
    /// Reserve, punch, zero.
    fallocate = 3 => fallocate,
    /// Find data or a hole.
    seek = 2 => seek,
    /// Copy from file to file.
    copy_range = 2 => copy_range,
    /// Make a file last.
    fsync = 2 => fsync,
    /// Make names last.
    fsync_dir = 1 => fsync_dir,
    /// List a directory.
    read_dir = 4 => read_dir,
    /// Read an extended attribute.
    get_xattr = 2 => get_xattr,
    /// Set an extended attribute or ACL.
    set_xattr = 4 => set_xattr,
    /// List extended attributes.
    list_xattr = 1 => list_xattr,
    /// Remove an extended attribute or ACL.
    remove_xattr = 2 => remove_xattr,
    /// Ask for a lock.
    get_lock = 1 => get_lock,
    /// Take or give up a lock, never waiting.
    set_lock = 4 => set_lock,
}

/// A stream of operations.
#[derive(Debug, Clone)]
pub struct Workload {
    rng: Rng,
    weights: Weights,
    clients: Vec<(SessionId, Caller)>,
    names: Vec<Name>,
    /// Callers say what they mean by names. A stream of its own: the operations stay the same ones.
    meaning: Option<Rng>,
}

impl Workload {
    /// The stream of `seed` with four clients: root, two users who share a group, and a stranger.
    pub fn new(seed: u64, weights: Weights) -> Self {
        let user = |uid, gid, groups: &[u32]| Caller { uid, gid, groups: Some(groups.to_vec()) };
        let clients = vec![
            (SessionId(1), Caller::ROOT),
            (SessionId(2), user(1000, 1000, &[2000])),
            (SessionId(3), user(1001, 1001, &[1001, 2000])),
            (SessionId(4), user(1002, 1002, &[])),
        ];
        Self { rng: Rng::new(seed), weights, clients, names: names(), meaning: None }
    }

    /// The same with other clients.
    pub fn with_clients(mut self, clients: Vec<(SessionId, Caller)>) -> Self {
        assert!(!clients.is_empty(), "somebody must ask");
        self.clients = clients;
        self
    }

    /// The same, but of what is removed or renamed callers sometimes say what they mean, rightly or not.
    pub fn with_meaning(mut self) -> Self {
        self.meaning = Some(Rng::new(self.rng.clone().bits()));
        self
    }

    /// Draws the next operation, given the tree as it is now.
    pub fn next(&mut self, model: &Model) -> Step {
        let full = model.inos().nth(OBJECTS_MAX).is_some();
        let mut op = match self.draw(model) {
            Op::Create { .. } if full => self.unlink(model),
            Op::Mkdir { .. } if full => self.rmdir(model),
            op => op,
        };
        self.mean(model, &mut op);
        // Half of all is root's, or refusals would be most of what happens.
        let (session, caller) =
            if self.rng.percent(50) { self.clients[0].clone() } else { self.rng.pick(&self.clients).clone() };
        let data = match op {
            Op::Write { .. } => self.data(),
            _ => Bytes::new(),
        };
        Step { session, caller, op, data }
    }

    fn mean(&mut self, model: &Model, op: &mut Op) {
        let Some(rng) = &mut self.meaning else { return };
        let mut say = |dir: Ino, name: &Name| match rng.below(10) {
            0..3 => model.children(dir).find(|(n, _)| *n == name).map(|(_, ino)| ino),
            3 => model.inos().nth(rng.index(model.inos().count())),
            _ => None,
        };
        match op {
            Op::Rmdir { dir, name, meant } => *meant = say(*dir, name),
            Op::Rename { dir, name, new_dir, new_name, meant, new_meant, .. } => {
                *meant = say(*dir, name);
                *new_meant = say(*new_dir, new_name);
            }
            _ => {}
        }
    }

    fn data(&mut self) -> Bytes {
        let len = match self.rng.below(10) {
            0 => 0,
            1..=5 => self.rng.below(200),
            6 | 7 => self.rng.below(9000),
            8 => *self.rng.pick(&[4096, 8192, 32_768, 32_769, 65_536]),
            _ => self.rng.below(WRITE_BYTES_MAX),
        };
        let seed = self.rng.bits();
        // Bytes that tell their write and their place apart when found somewhere wrong.
        (0..len).map(|at| (seed.rotate_left((at % 8) as u32 * 8) ^ (at >> 3)) as u8).collect()
    }

    fn existing(&mut self, model: &Model, wanted: impl Fn(Kind) -> bool) -> Option<Ino> {
        let all: Vec<Ino> =
            model.inos().filter(|ino| model.attr(*ino).is_some_and(|attr| wanted(attr.kind))).collect();
        if all.is_empty() { None } else { Some(*self.rng.pick(&all)) }
    }

    /// Mostly of the kind that makes sense; sometimes anything.
    fn some(&mut self, model: &Model, wanted: impl Fn(Kind) -> bool) -> Ino {
        let wild = self.rng.percent(4);
        self.existing(model, |kind| wild || wanted(kind)).unwrap_or(Ino::ROOT)
    }

    fn dir(&mut self, model: &Model) -> Ino {
        self.some(model, |kind| kind == Kind::Directory)
    }

    fn file(&mut self, model: &Model) -> Ino {
        self.some(model, |kind| kind == Kind::Regular)
    }

    fn any(&mut self, model: &Model) -> Ino {
        self.some(model, |_| true)
    }

    fn name(&mut self) -> Name {
        self.rng.pick(&self.names).clone()
    }

    /// A name that exists, as a rule.
    fn place(&mut self, model: &Model) -> (Ino, Name) {
        let dir = self.dir(model);
        let there: Vec<&Name> = model.children(dir).map(|(name, _)| name).collect();
        if there.is_empty() || self.rng.percent(10) {
            return (dir, self.name());
        }
        (dir, (*self.rng.pick(&there)).clone())
    }

    /// The same, of a child of a certain kind if the directory has one.
    fn place_of(&mut self, model: &Model, directory: bool) -> (Ino, Name) {
        for _ in 0..4 {
            let (dir, name) = self.place(model);
            let child = model.children(dir).find(|(n, _)| **n == name).map(|(_, ino)| ino);
            let kind = child.and_then(|ino| model.attr(ino)).map(|attr| attr.kind);
            if kind.is_some_and(|kind| (kind == Kind::Directory) == directory) {
                return (dir, name);
            }
        }
        self.place(model)
    }

    fn mode(&mut self) -> u32 {
        *self
            .rng
            .pick(&[0o644, 0o755, 0o777, 0o700, 0o000, 0o640, 0o2775, 0o1777, 0o4755, 0o6711, 0o705, 0o2664])
    }

    fn offset(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => 0,
            1 => self.rng.below(100),
            2 => self.rng.below(OFFSET_MAX / 4096) * 4096,
            _ => self.rng.below(OFFSET_MAX),
        }
    }

    fn lookup(&mut self, model: &Model) -> Op {
        let (dir, name) = self.place(model);
        Op::Lookup { dir, name }
    }

    fn get_attr(&mut self, model: &Model) -> Op {
        Op::GetAttr { ino: self.any(model) }
    }

    fn set_attr(&mut self, model: &Model) -> Op {
        let mut set = SetAttr::default();
        let what = self.rng.below(5);
        match what {
            0 => set.mode = Some(self.mode()),
            1 => {
                set.uid = self.rng.percent(50).then(|| *self.rng.pick(&[0, 1000, 1001, 1002]));
                set.gid = self.rng.percent(70).then(|| *self.rng.pick(&[0, 1000, 1001, 2000]));
            }
            2 => {
                set.atime = self.time();
                set.mtime = self.time();
            }
            _ => {
                set.size = Some(self.offset());
                set.opened = self.rng.percent(50);
                set.kill_set_id = self.rng.percent(20);
            }
        }
        let ino = if what > 2 { self.file(model) } else { self.any(model) };
        Op::SetAttr { ino, set }
    }

    fn time(&mut self) -> Option<SetTime> {
        match self.rng.below(3) {
            0 => None,
            1 => Some(SetTime::Now),
            _ => {
                let secs = self.rng.below(1 << 33) as i64 - (1 << 31);
                let nanos = self.rng.below(1_000_000_000) as u32;
                Some(SetTime::To { time: Time { secs, nanos } })
            }
        }
    }

    fn create(&mut self, model: &Model) -> Op {
        let kind = match self.rng.below(20) {
            0 | 1 => Kind::Symlink,
            2 => *self.rng.pick(&[Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice]),
            _ => Kind::Regular,
        };
        let target = match kind {
            Kind::Symlink => {
                let names: Vec<Vec<u8>> =
                    (0..1 + self.rng.below(4)).map(|_| self.name().as_bytes().to_vec()).collect();
                match names.len() {
                    // Half of them surely lead to a directory, but for those in the root that lead out.
                    3 => Bytes::from_static(b"."),
                    4 => Bytes::from_static(b".."),
                    _ => Bytes::from(names.join(&b'/')),
                }
            }
            _ => Bytes::new(),
        };
        let (dir, name) = (self.dir(model), self.name());
        let (mode, umask) = (self.mode(), *self.rng.pick(&[0, 0o022, 0o077]));
        let (rdev, exclusive) = (self.rng.below(3) as u32, self.rng.percent(60));
        Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target }
    }

    fn mkdir(&mut self, model: &Model) -> Op {
        let mut dir = self.dir(model);
        while model.parent(dir).is_some() && model.attr(dir).is_some_and(|attr| attr.nlink > 0) {
            if model.depth(dir) < DEPTH_MAX {
                break;
            }
            dir = model.parent(dir).expect("it was just there");
        }
        let (name, mode, umask) = (self.name(), self.mode(), *self.rng.pick(&[0, 0o022, 0o077]));
        Op::Mkdir { dir, name, mode, umask }
    }

    fn unlink(&mut self, model: &Model) -> Op {
        let (dir, name) = self.place_of(model, false);
        Op::Unlink { dir, name }
    }

    fn rmdir(&mut self, model: &Model) -> Op {
        let (dir, name) = self.place_of(model, true);
        Op::Rmdir { dir, name, meant: None }
    }

    fn rename(&mut self, model: &Model) -> Op {
        let directory = self.rng.percent(40);
        let (dir, name) = self.place_of(model, directory);
        let onto = self.rng.percent(40);
        let (mut new_dir, new_name) =
            if onto { self.place_of(model, directory) } else { (self.dir(model), self.name()) };
        if self.rng.percent(40) {
            new_dir = dir;
        }
        let mode = match self.rng.below(10) {
            0 => RenameMode::NoReplace,
            1 | 2 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
    }

    fn link(&mut self, model: &Model) -> Op {
        let ino = self.some(model, |kind| kind != Kind::Directory);
        Op::Link { ino, dir: self.dir(model), name: self.name() }
    }

    fn readlink(&mut self, model: &Model) -> Op {
        Op::Readlink { ino: self.some(model, |kind| kind == Kind::Symlink) }
    }

    fn read(&mut self, model: &Model) -> Op {
        let (ino, offset) = (self.file(model), self.offset());
        Op::Read { ino, offset, len: self.rng.below(2 * WRITE_BYTES_MAX) as u32 }
    }

    fn write(&mut self, model: &Model) -> Op {
        let (ino, offset) = (self.file(model), self.offset());
        Op::Write { ino, offset, append: self.rng.percent(30), kill_set_id: self.rng.percent(20) }
    }

    fn fallocate(&mut self, model: &Model) -> Op {
        let keep_size = self.rng.percent(50);
        let what = match self.rng.below(3) {
            0 => Allocation::Allocate { keep_size },
            1 => Allocation::PunchHole,
            _ => Allocation::ZeroRange { keep_size },
        };
        let (ino, offset) = (self.file(model), self.offset());
        Op::Fallocate { ino, offset, len: self.rng.below(20_000), what }
    }

    fn seek(&mut self, model: &Model) -> Op {
        let whence = if self.rng.percent(50) { Whence::Data } else { Whence::Hole };
        Op::Seek { ino: self.file(model), offset: self.offset(), whence }
    }

    fn copy_range(&mut self, model: &Model) -> Op {
        let (from, to) = (self.file(model), self.file(model));
        let (from_offset, to_offset) = (self.offset(), self.offset());
        Op::CopyRange { from, from_offset, to, to_offset, len: self.rng.below(100_000) }
    }

    fn fsync(&mut self, model: &Model) -> Op {
        Op::Fsync { ino: self.file(model) }
    }

    fn fsync_dir(&mut self, model: &Model) -> Op {
        Op::FsyncDir { dir: self.dir(model) }
    }

    /// Always whole, so that it can be compared.
    fn read_dir(&mut self, model: &Model) -> Op {
        Op::ReadDir { dir: self.dir(model), after: 0, bytes: 1 << 20, plus: self.rng.percent(50) }
    }

    fn xattr_name(&mut self) -> Bytes {
        let names: [&[u8]; 6] =
            [b"user.a", b"user.b\xff", b"trusted.t", b"security.s", ACCESS_XATTR, DEFAULT_XATTR];
        if self.rng.percent(3) {
            return Bytes::from_static(b"other.x");
        }
        Bytes::from_static(names[self.rng.index(names.len())])
    }

    /// One that exists, as a rule.
    fn xattr(&mut self, model: &Model) -> (Ino, Bytes) {
        let there: Vec<(Ino, &Bytes)> =
            model.inos().flat_map(|ino| model.xattr_names(ino).map(move |name| (ino, name))).collect();
        if there.is_empty() || self.rng.percent(40) {
            return (self.any(model), self.xattr_name());
        }
        let (ino, name) = self.rng.pick(&there);
        (*ino, (*name).clone())
    }

    fn get_xattr(&mut self, model: &Model) -> Op {
        let (ino, name) = self.xattr(model);
        Op::GetXattr { ino, name }
    }

    fn set_xattr(&mut self, model: &Model) -> Op {
        let (ino, name) = (self.any(model), self.xattr_name());
        let value = if name == ACCESS_XATTR || name == DEFAULT_XATTR {
            self.acl()
        } else {
            let len = *self.rng.pick(&[0, 1, 20, 300, 5000]);
            Bytes::from(vec![self.rng.bits() as u8; len])
        };
        let mode = *self.rng.pick(&[XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace]);
        Op::SetXattr { ino, name, value, mode, kill_sgid: self.rng.percent(10) }
    }

    /// The value of an ACL: minimal, or with a user, a group and a mask; seldom nonsense.
    fn acl(&mut self) -> Bytes {
        let mut out = 2u32.to_le_bytes().to_vec();
        let mut put = |tag: u16, perm: u64, id: u32| {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&(perm as u16).to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        };
        let named = self.rng.percent(70);
        put(1, self.rng.below(8), u32::MAX);
        if named {
            put(2, self.rng.below(8), *self.rng.pick(&[1000, 1001, 1002]));
        }
        put(4, self.rng.below(8), u32::MAX);
        if named {
            put(8, self.rng.below(8), *self.rng.pick(&[1001, 2000]));
            put(16, self.rng.below(8), u32::MAX);
        }
        put(32, self.rng.below(8), u32::MAX);
        if self.rng.percent(3) {
            out.truncate(out.len() - 8);
        }
        Bytes::from(out)
    }

    fn list_xattr(&mut self, model: &Model) -> Op {
        Op::ListXattr { ino: self.any(model) }
    }

    fn remove_xattr(&mut self, model: &Model) -> Op {
        let (ino, name) = self.xattr(model);
        Op::RemoveXattr { ino, name }
    }

    fn lock(&mut self) -> LockRange {
        let start = self.rng.below(100);
        let end = if self.rng.percent(20) { u64::MAX } else { start + self.rng.below(30) };
        let kind = *self.rng.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
        let owner = 1 + self.rng.below(3);
        LockRange { start, end, kind, owner, pid: owner as u32, flock: self.rng.percent(30) }
    }

    fn get_lock(&mut self, model: &Model) -> Op {
        Op::GetLock { ino: self.file(model), lock: self.lock() }
    }

    fn set_lock(&mut self, model: &Model) -> Op {
        Op::SetLock { ino: self.file(model), lock: self.lock(), wait: false }
    }
}

/// Few, so that they collide, and such as programs forget: control bytes, invalid UTF-8, the
/// longest, dots, and what Atoll itself uses for names in doubt.
fn names() -> Vec<Name> {
    let long = [b'n'; Name::BYTES_MAX];
    let names: [&[u8]; 12] = [
        b"a",
        b"b",
        b"c",
        b"d",
        b"file",
        b"...",
        b" ",
        b"\xff\xfe",
        b"new\nline",
        b"-rf",
        b"a.atoll-1",
        &long,
    ];
    names.iter().map(|name| Name::new(name).expect("each is a name")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::{Dump, Strictness};
    use crate::tree::{AtimeRule, Outcome};
    use atoll_core::{Decode, Encode};
    use atoll_posix::Errno;

    type History = Vec<(Step, Result<Outcome, Errno>)>;

    fn run(seed: u64, steps: usize) -> (Model, History) {
        let mut model = Model::new(Time::from_nanos(1), AtimeRule::Never);
        let mut workload = Workload::new(seed, Weights::default());
        let mut history = Vec::new();
        for at in 0..steps {
            let step = workload.next(&model);
            let now = Time::from_nanos(1000 + at as u64);
            let outcome = model.apply(now, step.session, &step.caller, &step.op, &step.data);
            if at % 16 == 0 {
                model.check();
            }
            history.push((step, outcome));
        }
        model.check();
        (model, history)
    }

    #[test]
    fn a_seed_repeats_the_stream_and_the_tree() {
        let ((one, first), (two, second)) = (run(5, 1500), run(5, 1500));
        assert!(first == second);
        assert_eq!(Dump::of(&one).differences(&Dump::of(&two), Strictness::FULL), Vec::<String>::new());
        assert!(run(6, 50).1 != first[..50]);
    }

    #[test]
    fn every_kind_of_operation_succeeds_and_is_refused() {
        let mut succeeded = std::collections::BTreeMap::<u8, (u32, u32)>::new();
        for seed in 0..8 {
            for (step, outcome) in run(seed, 3000).1 {
                let bytes = step.op.to_vec();
                assert_eq!(Op::from_slice(&bytes), Ok(step.op), "seed {seed}");
                let counts = succeeded.entry(bytes[0]).or_default();
                if outcome.is_ok() { counts.0 += 1 } else { counts.1 += 1 }
            }
        }
        // All but Statfs (23), which nothing depends on.
        let tags: Vec<u8> = succeeded.keys().copied().collect();
        assert_eq!(tags, (1..=25).filter(|tag| *tag != 23).collect::<Vec<_>>());
        for (tag, (good, bad)) in succeeded {
            assert!(good >= 20, "operation {tag} succeeded {good} times only");
            // Questions about what exists are refused to nobody.
            assert!(bad >= 1 || matches!(tag, 2 | 16 | 21 | 24), "operation {tag} was never refused");
        }
    }

    #[test]
    fn a_dump_sees_every_planted_difference() {
        let (model, _) = run(11, 2500);
        let whole = Dump::of(&model);
        assert!(whole.items.len() > 30, "a tree of {} is no test", whole.items.len());
        for (path, item) in &whole.items {
            let mut other = whole.clone();
            let planted = other.items.get_mut(path).unwrap();
            planted.attr.mode ^= 0o100;
            planted.content.0 ^= 1;
            planted.xattrs.insert(b"user.planted".to_vec(), Vec::new());
            assert_eq!(whole.differences(&other, Strictness::FULL).len(), 3, "{}", path.escape_ascii());
            other.items.remove(path);
            let differences = whole.differences(&other, Strictness::SHAPE);
            assert!(differences.len() == 1 && differences[0].ends_with("missing"), "{item:?}");
        }
    }
}
