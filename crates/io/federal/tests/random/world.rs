//! A union over simulated members with one clock, what a run does to them, and the specification: what members' trees show together.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_intents::SimIntents;
use atoll_member::{SimTree, Tree, TreeState};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Op, RenameMode, RequestOptions, SetAttr};
use atoll_union::{
    At, Changes, Finished, Moment, NativeCall, NativeId, NativeReply, NativeStat, Settings, Tag,
    UnionRequest, Who, ino_of,
};
use bytes::Bytes;

/// A file that a member has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) ino: u64,
    ctime: Time,
    data: Bytes,
}

/// Everything that a member has: files by their paths, and directories without one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Dump(BTreeMap<String, Option<File>>);

impl Dump {
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.0.get(path) == Some(&None)
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.0.get(path)?.as_ref()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&String, &File)> {
        self.0.iter().filter_map(|(path, file)| Some((path, file.as_ref()?)))
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(super) fn has_inode(&self, ino: u64) -> bool {
        self.files().any(|(_, file)| file.ino == ino)
    }

    pub(super) fn data(&self, ino: u64) -> Option<&Bytes> {
        self.files().find(|(_, file)| file.ino == ino).map(|(_, file)| &file.data)
    }

    /// The names in a directory.
    pub(super) fn names(&self, dir: &str) -> BTreeSet<&str> {
        let below = |path: &'_ String| match dir {
            "" => Some(0),
            dir => path.strip_prefix(dir)?.starts_with('/').then_some(dir.len() + 1),
        };
        self.0
            .keys()
            .filter_map(|path| Some(&path[below(path)?..]))
            .filter(|name| !name.contains('/'))
            .collect()
    }
}

/// What a path shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    Dir,
    /// The file of this member with this inode number.
    File(usize, u64),
}

impl Shows {
    /// Whether a lookup that told of this told the truth.
    pub(super) fn is(self, is_dir: bool, ino: Ino) -> bool {
        match self {
            Self::Nothing => false,
            Self::Dir => is_dir,
            Self::File(member, native) => !is_dir && ino == ino_of(Tag(member as u16 + 1), native),
        }
    }
}

/// What a path shows by docs/UNION.md: a directory if one of these members has one, else the file that was changed last.
pub(super) fn show(dumps: &[Dump], path: &str, of: impl Fn(usize) -> bool) -> Shows {
    let members = || dumps.iter().enumerate().filter(|(member, _)| of(*member));
    if members().any(|(_, dump)| dump.is_dir(path)) {
        return Shows::Dir;
    }
    let files = members().filter_map(|(member, dump)| Some((member, dump.file(path)?)));
    let newest = files.max_by_key(|(_, file)| file.ctime);
    newest.map_or(Shows::Nothing, |(member, file)| Shows::File(member, file.ino))
}

/// A member whose clock is that of all members: each call of any of them comes at a later time.
struct Clocked {
    tree: SimTree,
    clock: Arc<AtomicU64>,
}

impl Clocked {
    fn tick(&self) {
        let now = self.clock.fetch_add(1_000, Ordering::Relaxed);
        self.tree.set_clock(Time::from_nanos(now), 0);
    }
}

impl Tree for Clocked {
    fn call(&self, who: &Who, call: &NativeCall, bytes: &[u8]) -> Result<NativeReply, Errno> {
        self.tick();
        self.tree.call(who, call, bytes)
    }

    fn root(&self) -> NativeStat {
        self.tree.root()
    }

    fn changes(&self) -> Changes {
        self.tick();
        self.tree.changes()
    }

    fn backing(&self, open: u64) -> Option<Arc<OwnedFd>> {
        self.tree.backing(open)
    }

    fn state(&self) -> TreeState {
        self.tree.state()
    }

    fn reopen(&self) -> Result<bool, Errno> {
        self.tree.reopen()
    }
}

pub(super) struct World {
    trees: Vec<Arc<Clocked>>,
    union: Arc<Federation>,
    clock: Arc<AtomicU64>,
    /// Which members are away.
    pub(super) away: Vec<bool>,
    written: u64,
    files: Mutex<BTreeMap<Ino, Kind>>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

const START_NS: u64 = 1_000_000_000_000;

impl World {
    pub(super) fn new(members: usize) -> Self {
        let clock = Arc::new(AtomicU64::new(START_NS));
        let tree = |n: usize| {
            let made = Time::from_nanos(clock.fetch_add(1_000_000, Ordering::Relaxed));
            Arc::new(Clocked { tree: SimTree::new(n as u64, made), clock: Arc::clone(&clock) })
        };
        let trees: Vec<Arc<Clocked>> = (0..members).map(tree).collect();
        let member =
            |(n, tree): (usize, &Arc<Clocked>)| (Tag(n as u16 + 1), false, Arc::clone(tree) as Arc<dyn Tree>);
        let opened = trees.iter().enumerate().map(member).collect();
        let union = Federation::stepped(Settings::default(), opened, moment(&clock));
        union.keep_intents_in(Arc::new(SimIntents::default()));
        Self { trees, union, clock, away: vec![false; members], written: 0, files: Mutex::default() }
    }

    /// So many milliseconds pass, and the housekeeping runs.
    pub(super) fn step(&mut self, ms: u64) {
        self.clock.fetch_add(ms * 1_000_000, Ordering::Relaxed);
        self.union.step(moment(&self.clock));
    }

    /// Time passes between two operations, most of the time without housekeeping.
    pub(super) fn pass(&self) {
        self.clock.fetch_add(1_000_000, Ordering::Relaxed);
        self.union.set_clock(moment(&self.clock));
    }

    pub(super) fn set_away(&mut self, member: usize, away: bool) {
        self.away[member] = away;
        self.trees[member].tree.set_faults(|faults| faults.away = away);
        self.step(1);
    }

    fn op(&self, op: Op, bytes: Bytes) -> Result<Finished, Errno> {
        let (send, receive) = sync_channel(1);
        let request = UnionRequest { caller: Caller::ROOT, options: RequestOptions::default(), op, bytes };
        self.union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
        receive.try_recv().expect("an operation over simulated members ends at once")
    }

    fn done(&self, op: Op) -> Result<(), Errno> {
        if let Answer::Found { found } = self.op(op, Bytes::new())?.answer {
            self.told(found.attr);
        }
        Ok(())
    }

    fn told(&self, attr: Attr) -> Attr {
        self.files.lock().unwrap().insert(attr.ino, attr.kind);
        attr
    }

    pub(super) fn is_file(&self, ino: Ino) -> bool {
        self.files.lock().unwrap().get(&ino) == Some(&Kind::Regular)
    }

    pub(super) fn lookup(&self, dir: Ino, text: &str) -> Result<Attr, Errno> {
        match self.op(Op::Lookup { dir, name: name(text) }, Bytes::new())?.answer {
            Answer::Found { found } => Ok(self.told(found.attr)),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn create(&self, dir: Ino, text: &str) -> Result<(), Errno> {
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let target = Bytes::new();
        self.done(Op::Create { dir, name: name(text), kind, mode, umask, rdev, exclusive, target })
    }

    pub(super) fn mkdir(&self, dir: Ino, text: &str) -> Result<(), Errno> {
        self.done(Op::Mkdir { dir, name: name(text), mode: 0o755, umask: 0 })
    }

    pub(super) fn unlink(&self, dir: Ino, text: &str) -> Result<(), Errno> {
        self.done(Op::Unlink { dir, name: name(text) })
    }

    pub(super) fn rmdir(&self, dir: Ino, text: &str) -> Result<(), Errno> {
        self.done(Op::Rmdir { dir, name: name(text), meant: None })
    }

    pub(super) fn link(&self, ino: Ino, dir: Ino, text: &str) -> Result<(), Errno> {
        self.done(Op::Link { ino, dir, name: name(text) })
    }

    pub(super) fn chmod(&self, ino: Ino) -> Result<(), Errno> {
        self.done(Op::SetAttr { ino, set: SetAttr { mode: Some(0o700), ..SetAttr::default() } })
    }

    /// Writes what was never written before.
    pub(super) fn write(&mut self, ino: Ino) -> Result<(), Errno> {
        self.written += 1;
        let bytes = Bytes::from(format!("{:08}", self.written));
        let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        self.op(write, bytes.clone())?;
        let read = self.op(Op::Read { ino, offset: 0, len: 100 }, Bytes::new())?.bytes;
        assert_eq!(read, bytes, "what was written is read");
        Ok(())
    }

    pub(super) fn rename(&self, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Result<(), Errno> {
        let (dir, new_dir, new_name) = (from.0, to.0, name(to.1));
        let name = name(from.1);
        self.done(Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None })
    }

    /// The names, and whether the listing has an end.
    pub(super) fn list(&self, dir: Ino) -> (Vec<String>, Result<(), Errno>) {
        let (mut names, mut after) = (Vec::new(), 0);
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        loop {
            match self.op(Op::ReadDir { dir, after, bytes: 80, plus: after % 2 == 1 }, Bytes::new()) {
                Err(errno) => return (sorted(names), Err(errno)),
                Ok(Finished { answer: Answer::Entries { entries, eof }, .. }) => {
                    assert!(eof || !entries.is_empty(), "an answer without a name is taken for the end");
                    after = entries.last().map_or(after, |entry| entry.cookie);
                    names.extend(entries.into_iter().map(|entry| entry.name.to_string()));
                    if eof {
                        return (sorted(names), Ok(()));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn direct(&self, member: usize, call: &NativeCall, bytes: &[u8]) -> Option<NativeReply> {
        self.trees[member].tick();
        self.trees[member].tree.direct(&Who::Daemon, call, bytes).ok()
    }

    fn stat(&self, member: usize, dir: NativeId, text: &str) -> Option<NativeStat> {
        match self.direct(member, &NativeCall::Look { dir, name: name(text) }, &[])? {
            NativeReply::Stat(stat) => Some(stat),
            other => panic!("{other:?}"),
        }
    }

    fn parent<'p>(&self, member: usize, path: &'p str) -> Option<(NativeId, &'p str)> {
        let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
        let mut steps = dir.split('/').filter(|step| !step.is_empty());
        let root = self.trees[member].root().id;
        let dir = steps.try_fold(root, |dir, step| {
            self.stat(member, dir, step).filter(|stat| stat.kind == Kind::Directory).map(|stat| stat.id)
        })?;
        Some((dir, last))
    }

    pub(super) fn direct_put(&mut self, member: usize, path: &str) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let (kind, mode, umask, rdev, target) = (Kind::Regular, 0o644, 0, 0, Bytes::new());
        self.direct(
            member,
            &NativeCall::Make { dir, name: name(last), kind, mode, umask, rdev, target },
            &[],
        )?;
        let id = self.stat(member, dir, last)?.id;
        let of = At { id, seen: Some((dir, name(last))) };
        self.written += 1;
        let write = NativeCall::Write { of, offset: 0, append: false, kill_set_id: false };
        self.direct(member, &write, format!("{:08}", self.written).as_bytes()).map(|_| ())
    }

    pub(super) fn direct_mkdir(&mut self, member: usize, path: &str) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let call = NativeCall::Mkdir { dir, name: name(last), mode: 0o755, umask: 0 };
        self.direct(member, &call, &[]).map(|_| ())
    }

    pub(super) fn direct_remove(&mut self, member: usize, path: &str, is_dir: bool) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let (id, name) = (self.stat(member, dir, last)?.id, name(last));
        let call =
            if is_dir { NativeCall::Rmdir { dir, name, id } } else { NativeCall::Unlink { dir, name, id } };
        self.direct(member, &call, &[]).map(|_| ())
    }

    pub(super) fn direct_rename(&mut self, member: usize, from: &str, to: &str) -> Option<()> {
        let ((dir, last), (new_dir, new_last)) = (self.parent(member, from)?, self.parent(member, to)?);
        let id = self.stat(member, dir, last)?.id;
        let new_id = self.stat(member, new_dir, new_last).map(|stat| stat.id);
        let (name, new_name, mode) = (name(last), name(new_last), RenameMode::Replace);
        self.direct(member, &NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode }, &[])
            .map(|_| ())
    }

    /// What each member has, also one that is away.
    pub(super) fn dumps(&self) -> Vec<Dump> {
        (0..self.trees.len())
            .map(|member| {
                let mut dump = Dump::default();
                self.dump(member, self.trees[member].root().id, "", &mut dump);
                dump
            })
            .collect()
    }

    fn dump(&self, member: usize, dir: NativeId, path: &str, into: &mut Dump) {
        let list = NativeCall::List { dir, from: 0, bytes: 1 << 20 };
        let Some(NativeReply::Names { names, next: None, .. }) = self.direct(member, &list, &[]) else {
            panic!("it is listed at once")
        };
        for entry in names {
            let text = entry.name.to_string();
            let stat = self.stat(member, dir, &text).expect("it is there");
            let below = if path.is_empty() { text.clone() } else { format!("{path}/{text}") };
            if stat.kind == Kind::Directory {
                into.0.insert(below.clone(), None);
                self.dump(member, stat.id, &below, into);
                continue;
            }
            let of = At { id: stat.id, seen: Some((dir, entry.name)) };
            let read = NativeCall::Read { of, offset: 0, len: 100 };
            let Some(NativeReply::Data(data)) = self.direct(member, &read, &[]) else { panic!("no bytes") };
            into.0.insert(below, Some(File { ino: stat.id.ino, ctime: stat.ctime, data }));
        }
    }
}

fn moment(clock: &AtomicU64) -> Moment {
    let now = clock.load(Ordering::Relaxed);
    Moment { ms: now / 1_000_000, wall: Time::from_nanos(now) }
}
