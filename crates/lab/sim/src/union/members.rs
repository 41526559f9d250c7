//! The members of simulated unions: their trees, one clock for all of them, what each had at every moment, and the programs that
//! use them without a union. Never judges.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use atoll_core::{Name, Time};
use atoll_member::{SimTree, Tree};
use atoll_posix::{Errno, Kind, RenameMode, SetAttr};
use atoll_union::{At, NativeCall, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;

/// When a run begins, on the members' clocks.
const START_NS: u64 = 1_000_000_000_000;
/// After so long everybody must have seen a change that was made without a union, or by another one.
const SEEN_NS: u64 = 1_000_000_000;
/// Calls to a member that hangs fail at once after so long.
const STUCK_NS: u64 = 2_000_000_000;

/// A file or directory that a member has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) stat: NativeStat,
    pub(super) data: Arc<Vec<u8>>,
}

impl Node {
    pub(super) fn is_dir(&self) -> bool {
        self.stat.kind == Kind::Directory
    }
}

/// Everything that a member had at a moment, by paths; the root has the empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Snapshot(BTreeMap<String, Node>);

/// The path of a name in a directory.
pub(super) fn below(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The directory of a path, and its last name.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Snapshot {
    fn of(tree: &SimTree) -> Self {
        let text = |path: &[Name]| path.iter().map(Name::to_string).collect::<Vec<_>>().join("/");
        let all = tree.everything().into_iter();
        Self(all.map(|(path, stat, data)| (text(&path), Node { stat, data })).collect())
    }

    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.get(path).is_some_and(Node::is_dir)
    }

    pub(super) fn file(&self, path: &str) -> Option<&Node> {
        self.get(path).filter(|node| !node.is_dir())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.0.iter()
    }

    /// Where something is.
    pub(super) fn path_of(&self, id: NativeId) -> Option<&str> {
        self.0.iter().find(|(_, node)| node.stat.id == id).map(|(path, _)| path.as_str())
    }

    pub(super) fn names<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a str> {
        let inside = move |path: &'a String| {
            let (above, name) = split(path);
            (above == dir && !path.is_empty()).then_some(name)
        };
        self.0.keys().filter_map(inside)
    }
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    /// As programs use it without a union.
    pub(super) tree: SimTree,
    /// What it had from which moment on; the last one is what it has now.
    history: VecDeque<(u64, Arc<Snapshot>)>,
    pub(super) away: bool,
    pub(super) hangs_since_ns: Option<u64>,
    /// It may have no room for a while, or be read-only.
    pub(super) is_poor: bool,
    /// When something lost its number there last, in ticks.
    gone_at: u64,
}

/// A change that not every union must have seen yet.
#[derive(Debug, Clone, Copy)]
struct Unseen {
    /// The moment before it.
    before: u64,
    until_ns: u64,
    /// The union that made it.
    by: Option<usize>,
}

/// All members.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) all: Vec<Member>,
    pub(super) now_ns: u64,
    /// Nanoseconds of a tick of the members' clocks.
    pub(super) tick_ns: u64,
    /// Counts everything that has happened to members.
    pub(super) moment: u64,
    unseen: Vec<Unseen>,
    written: u64,
}

/// Whether the call may change what has a name.
pub(super) const fn is_change(call: &NativeCall) -> bool {
    matches!(
        call,
        NativeCall::Make { .. }
            | NativeCall::Mkdir { .. }
            | NativeCall::MkdirLike { .. }
            | NativeCall::Unlink { .. }
            | NativeCall::Rmdir { .. }
            | NativeCall::Rename { .. }
            | NativeCall::Link { .. }
            | NativeCall::SetAttr { .. }
            | NativeCall::Write { .. }
    )
}

/// The name of this text.
pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Members {
    pub(super) fn new(count: usize, tick_ns: u64) -> Self {
        let mut now_ns = START_NS;
        let mut member = |at: usize| {
            now_ns += 100_000_000;
            let tree = SimTree::new(at as u64, Time::from_nanos(now_ns));
            let history = VecDeque::from([(0, Arc::new(Snapshot::of(&tree)))]);
            Member { tree, history, away: false, hangs_since_ns: None, is_poor: false, gone_at: 0 }
        };
        let all = (0..count).map(&mut member).collect();
        Self { all, now_ns: now_ns + 100_000_000, tick_ns, moment: 0, unseen: Vec::new(), written: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether calls to a member that hangs fail at once by now.
    pub(super) fn is_stuck(&self, member: usize) -> bool {
        self.all[member].hangs_since_ns.is_some_and(|since| self.now_ns >= since + STUCK_NS)
    }

    /// When that began, or will.
    pub(super) fn stuck_at_ns(&self, member: usize) -> Option<u64> {
        self.all[member].hangs_since_ns.map(|since| since + STUCK_NS)
    }

    /// Members may have something else than before: their power was cut.
    pub(super) fn looked_again(&mut self) {
        for member in &mut self.all {
            let now = Arc::new(Snapshot::of(&member.tree));
            self.moment += 1;
            member.history.push_back((self.moment, now));
        }
    }

    /// Something has happened that is no change.
    pub(super) fn happened(&mut self) {
        self.moment += 1;
    }

    /// What a member has now.
    pub(super) fn now(&self, member: usize) -> &Snapshot {
        &self.all[member].history.back().expect("there is a present").1
    }

    /// What a member had from a moment on.
    pub(super) fn since(&self, member: usize, from: u64) -> impl Iterator<Item = &Snapshot> + Clone {
        let history = &self.all[member].history;
        let first = history.iter().rposition(|(moment, _)| *moment <= from).unwrap_or(0);
        history.iter().skip(first).map(|(_, snapshot)| &**snapshot)
    }

    /// What was before this moment is not asked for any more.
    pub(super) fn forget_before(&mut self, from: u64) {
        for member in &mut self.all {
            while member.history.get(1).is_some_and(|(moment, _)| *moment <= from) {
                member.history.pop_front();
            }
        }
    }

    /// The moment from which on a union may show what others did.
    pub(super) fn seen_from(&mut self, union: usize) -> u64 {
        let now = self.now_ns;
        self.unseen.retain(|unseen| unseen.until_ns > now);
        let others = self.unseen.iter().filter(|unseen| unseen.by != Some(union));
        others.map(|unseen| unseen.before).fold(self.moment, u64::min)
    }

    /// The oldest moment that may still be asked for.
    pub(super) fn oldest_unseen(&self) -> u64 {
        self.unseen.iter().map(|unseen| unseen.before).fold(self.moment, u64::min)
    }

    /// Others made something that unions see within a second.
    pub(super) fn unseen(&mut self, before: u64, by: Option<usize>) {
        self.unseen.push(Unseen { before, until_ns: self.now_ns + SEEN_NS, by });
    }

    /// Makes a call of a process. `by`: the union that makes it; none if it is a program of this machine.
    pub(super) fn call(
        &mut self,
        member: usize,
        process: Option<(usize, &SimTree)>,
        who: &Who,
        call: &NativeCall,
        bytes: &[u8],
    ) -> Result<NativeReply, Errno> {
        // The numbers of what has gone are given again at once. Natively that takes a tick.
        let makes =
            matches!(call, NativeCall::Make { .. } | NativeCall::Mkdir { .. } | NativeCall::MkdirLike { .. });
        self.now_ns += 1_000;
        if makes && self.now_ns / self.tick_ns == self.all[member].gone_at {
            self.now_ns = (self.now_ns / self.tick_ns + 1) * self.tick_ns;
        }
        let stamp = Time::from_nanos(self.now_ns / self.tick_ns * self.tick_ns);
        let tree = process.map_or(&self.all[member].tree, |(_, tree)| tree);
        tree.set_clock(stamp, 0);
        let answer = match process {
            Some((_, tree)) => tree.call(who, call, bytes),
            None => tree.direct(who, call, bytes),
        };
        if answer.is_ok() && is_change(call) {
            let now = Snapshot::of(&self.all[member].tree);
            if matches!(
                call,
                NativeCall::Unlink { .. } | NativeCall::Rmdir { .. } | NativeCall::Rename { .. }
            ) {
                self.all[member].gone_at = self.now_ns / self.tick_ns;
            }
            if now != *self.now(member) {
                self.unseen(self.moment, process.map(|(union, _)| union));
                self.moment += 1;
                self.all[member].history.push_back((self.moment, Arc::new(now)));
            }
        }
        answer
    }

    /// Bytes that were never written before.
    pub(super) fn fresh_bytes(&mut self) -> Bytes {
        self.written += 1;
        Bytes::from(format!("{:08}", self.written))
    }

    pub(super) fn direct(&mut self, member: usize, call: &NativeCall, bytes: &[u8]) -> Option<NativeReply> {
        self.call(member, None, &Who::Daemon, call, bytes).ok()
    }

    fn parent<'p>(&self, member: usize, path: &'p str) -> Option<(NativeId, &'p str)> {
        let (dir, last) = split(path);
        let node = self.now(member).get(dir).filter(|node| node.is_dir())?;
        Some((node.stat.id, last))
    }

    /// A program makes a file, with these bytes and times if it is a copy.
    pub(super) fn put(&mut self, member: usize, path: &str, copy: Option<&Node>) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let (kind, mode, umask, rdev, target) = (Kind::Regular, 0o644, 0, 0, Bytes::new());
        let make = NativeCall::Make { dir, name: name(last), kind, mode, umask, rdev, target };
        let Some(NativeReply::Stat(stat)) = self.direct(member, &make, &[]) else { return None };
        let of = At { id: stat.id, seen: Some((dir, name(last))) };
        let data = copy.map_or_else(|| self.fresh_bytes().to_vec(), |node| node.data.to_vec());
        let write = NativeCall::Write { of: of.clone(), offset: 0, append: false, kill_set_id: false };
        self.direct(member, &write, &data)?;
        if let Some(node) = copy {
            let mtime = Some(atoll_posix::SetTime::To { time: node.stat.mtime });
            let set = SetAttr { mtime, ..SetAttr::default() };
            self.direct(member, &NativeCall::SetAttr { of, set }, &[])?;
        }
        Some(())
    }

    pub(super) fn mkdir(&mut self, member: usize, path: &str, mode: u32) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let call = NativeCall::Mkdir { dir, name: name(last), mode, umask: 0 };
        self.direct(member, &call, &[]).map(|_| ())
    }

    pub(super) fn remove(&mut self, member: usize, path: &str) -> Option<()> {
        let (dir, last) = self.parent(member, path)?;
        let node = self.now(member).get(path)?;
        let (id, name) = (node.stat.id, name(last));
        let call = match node.is_dir() {
            true => NativeCall::Rmdir { dir, name, id },
            false => NativeCall::Unlink { dir, name, id },
        };
        self.direct(member, &call, &[]).map(|_| ())
    }

    pub(super) fn rename(&mut self, member: usize, from: &str, to: &str) -> Option<()> {
        let ((dir, last), (new_dir, new_last)) = (self.parent(member, from)?, self.parent(member, to)?);
        let id = self.now(member).get(from)?.stat.id;
        let new_id = self.now(member).get(to).map(|node| node.stat.id);
        let (name, new_name, mode) = (name(last), name(new_last), RenameMode::Replace);
        let call = NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode };
        self.direct(member, &call, &[]).map(|_| ())
    }

    /// A member goes away, or is back.
    pub(super) fn set_away(&mut self, member: usize, away: bool) {
        self.all[member].away = away;
        self.all[member].tree.set_faults(|faults| faults.away = away);
        self.unseen(self.moment, None);
        self.happened();
    }

    /// A member's calls do not return from now on, or do.
    pub(super) fn set_hangs(&mut self, member: usize, hangs: bool) {
        self.all[member].hangs_since_ns = hangs.then_some(self.now_ns);
        self.all[member].tree.set_faults(|faults| faults.hung = hangs);
        self.unseen(self.moment, None);
        self.happened();
    }
}
