//! What a union must show, by docs/UNION.md: plain functions of what its members have. Knows no machine.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, Time};
use atoll_union::{AwayRule, NativeId, SameRule, ino_of};

use super::members::{Members, Node, Snapshot, below};
use super::process::{Process, tag};

/// What a path shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    Dir,
    /// The file of this member.
    File(usize, NativeId),
}

/// Members with what they have, in the union's order.
pub(super) type View<'a> = Vec<(usize, &'a Snapshot)>;

/// What the members of a union have now.
pub(super) fn present<'a>(members: &'a Members, process: &Process) -> View<'a> {
    process.of.iter().map(|at| (*at, members.now(*at))).collect()
}

/// By what the newest of several files is chosen.
pub(super) fn changed_at(node: &Node) -> (Time, Time) {
    (node.stat.ctime, node.stat.mtime)
}

/// What a path shows: the directories of that name, else the file that the rule chooses.
pub(super) fn shown(view: &View<'_>, same: SameRule, path: &str) -> Shows {
    if view.iter().any(|(_, snapshot)| snapshot.is_dir(path)) {
        return Shows::Dir;
    }
    let files = view.iter().filter_map(|(member, snapshot)| Some((*member, snapshot.file(path)?)));
    let file = match same {
        SameRule::Newest => files.rev().max_by_key(|(_, node)| changed_at(node)),
        SameRule::First | SameRule::Both => files.into_iter().next(),
    };
    file.map_or(Shows::Nothing, |(member, node)| Shows::File(member, node.stat.id))
}

/// How many files a listing shows beside what has this path.
fn beside(view: &View<'_>, same: SameRule, path: &str) -> usize {
    let files = view.iter().filter(|(_, snapshot)| snapshot.file(path).is_some()).count();
    match shown(view, same, path) {
        Shows::Dir => files,
        _ if same == SameRule::Both => files.saturating_sub(1),
        _ => 0,
    }
}

/// The names that a listing of a directory has, and how many more files it shows beside them.
pub(super) fn names<'a>(view: &View<'a>, same: SameRule, dir: &'a str) -> (BTreeSet<&'a str>, usize) {
    let all: BTreeSet<&str> = view.iter().flat_map(|(_, snapshot)| snapshot.names(dir)).collect();
    let more = all.iter().map(|name| beside(view, same, &below(dir, name))).sum();
    (all, more)
}

/// The home whose attributes a directory shows: the oldest one.
pub(super) fn anchor<'a>(view: &View<'a>, path: &str) -> Option<(usize, &'a Node)> {
    let homes = view.iter().filter(|(_, snapshot)| snapshot.is_dir(path));
    let nodes = homes.filter_map(|(member, snapshot)| Some((*member, snapshot.get(path)?)));
    nodes.min_by_key(|(member, node)| (node.stat.id.btime, tag(*member)))
}

/// Whether an id that a frontend was told of is that of this object.
pub(super) fn is_id(process: &Process, ino: Ino, member: usize, native: u64) -> bool {
    ino == ino_of(tag(member), native) || ino == process.machine.known().file_ino(tag(member), native)
}

/// Since a moment, as a union may have seen its members: each of them as it was at any time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since<'a> {
    pub(super) members: &'a Members,
    pub(super) process: &'a Process,
    pub(super) from: u64,
    /// Members that were away then, and when they went. Whoever uses such a disk elsewhere does so unseen until it is back.
    pub(super) gone: &'a BTreeMap<usize, u64>,
}

impl<'a> Since<'a> {
    fn states(&self, member: usize) -> impl Iterator<Item = &'a Snapshot> + Clone {
        let gone = self.gone.get(&member).copied();
        self.members.since(member, gone.map_or(self.from, |gone| gone.min(self.from)))
    }

    /// Nothing has changed since.
    pub(super) fn is_quiet(&self) -> bool {
        self.members.moment == self.from
    }

    /// A directory was renamed or removed since, so paths do not say where something is.
    pub(super) fn is_moved(&self) -> bool {
        self.process.of.iter().any(|member| {
            let mut states = self.states(*member);
            let Some(mut before) = states.next() else { return false };
            states.any(|now| {
                let dirs = before.all().filter(|(_, node)| node.is_dir());
                let is_same = |(path, node): (&String, &Node)| {
                    now.get(path).is_some_and(|there| there.stat.id == node.stat.id)
                };
                let moved = !dirs.into_iter().all(is_same);
                before = now;
                moved
            })
        })
    }

    /// Members whose absence says nothing are left out.
    fn counted(&self) -> impl Iterator<Item = usize> + '_ {
        let hides = self.process.settings.away == AwayRule::Hide;
        let of = self.process.of.iter().copied();
        of.filter(move |at| !hides || !self.process.is_troubled(self.members, *at, self.from))
    }

    /// Whether it could be said that nothing has this path.
    pub(super) fn may_lack(&self, path: &str) -> bool {
        self.counted().all(|member| self.states(member).any(|state| state.get(path).is_none()))
    }

    /// Whether it could be said that no directory has this path.
    pub(super) fn may_lack_dir(&self, path: &str) -> bool {
        self.counted().all(|member| self.states(member).any(|state| !state.is_dir(path)))
    }

    /// Whether a directory of this path could be seen.
    pub(super) fn may_be_dir(&self, path: &str) -> bool {
        self.process.of.iter().any(|member| self.states(*member).any(|state| state.is_dir(path)))
    }

    /// Whether this file could be seen under this path, by whatever rule.
    pub(super) fn may_have(&self, path: &str, ino: Ino) -> bool {
        let has = |member: usize, state: &Snapshot| {
            state.file(path).is_some_and(|node| is_id(self.process, ino, member, node.stat.id.ino))
        };
        self.process.of.iter().any(|member| self.states(*member).any(|state| has(*member, state)))
    }

    /// The same, at any path of this last name.
    pub(super) fn may_have_anywhere(&self, last: &str, ino: Ino) -> bool {
        let is_name = |path: &str| super::members::split(path).1 == last;
        let has = |member: usize, state: &Snapshot| {
            state.all().any(|(path, node)| {
                is_name(path) && !node.is_dir() && is_id(self.process, ino, member, node.stat.id.ino)
            })
        };
        self.process.of.iter().any(|member| self.states(*member).any(|state| has(*member, state)))
    }

    /// Whether a path could have shown this file of a member.
    pub(super) fn may_show(&self, path: &str, member: usize, id: NativeId) -> bool {
        let of = &self.process.of;
        let rank = |at: usize| of.iter().position(|member| *member == at);
        let mut there = self.states(member).filter_map(|state| state.file(path));
        let newest = there.clone().filter(|node| node.stat.id == id).map(changed_at).max();
        let Some(changed) = newest else { return false };
        let hides = |other: usize, state: &Snapshot| match state.get(path) {
            None => false,
            Some(node) if node.is_dir() => true,
            Some(node) => match self.process.settings.same {
                SameRule::Newest => (changed_at(node), rank(member)) > (changed, rank(other)),
                SameRule::First | SameRule::Both => rank(other) < rank(member),
            },
        };
        let others = of.iter().filter(|other| **other != member);
        let can = |other: usize| {
            self.process.is_troubled(self.members, other, self.from)
                || self.states(other).any(|state| !hides(other, state))
        };
        there.any(|node| node.stat.id == id) && others.into_iter().all(|other| can(*other))
    }

    /// Whether a file that is hidden is a copy of one that could be shown, and both were there before the union began; or the original
    /// of a newer copy.
    pub(super) fn may_be_copy(&self, path: &str, member: usize, id: NativeId) -> bool {
        let began: Time = self.process.began;
        let mut files = self.states(member).filter_map(|state| state.file(path));
        let Some(one) = files.find(|node| node.stat.id == id).map(|node| node.stat) else { return false };
        let goes_with = |node: &Node| {
            let other = node.stat;
            (other.size, other.mtime) == (one.size, one.mtime)
                && ((other.ctime < began && one.ctime < began) || other.ctime > one.ctime)
        };
        self.process.of.iter().filter(|other| **other != member).any(|other| {
            let files = self.states(*other).filter_map(|state| state.file(path));
            files.into_iter().any(goes_with)
        })
    }

    /// Whether a listing that ended may leave out this name of a directory. `ended`: with its end, not with an error.
    pub(super) fn may_hide(&self, dir: &str, name: &str, ended: bool) -> bool {
        let path = below(dir, name);
        let asked =
            self.counted().filter(|at| ended || !self.process.is_troubled(self.members, *at, self.from));
        asked.into_iter().all(|member| self.states(member).any(|state| state.get(&path).is_none()))
    }

    /// Whether a listing may have this name.
    pub(super) fn may_list(&self, dir: &str, name: &str) -> bool {
        let path = below(dir, name);
        self.process.of.iter().any(|member| self.states(*member).any(|state| state.get(&path).is_some()))
    }

    /// Whether a file could have these bytes.
    pub(super) fn may_read(&self, ino: Ino, data: &[u8]) -> bool {
        let has = |member: usize, state: &Snapshot| {
            state.all().any(|(_, node)| {
                !node.is_dir() && is_id(self.process, ino, member, node.stat.id.ino) && **node.data == *data
            })
        };
        self.process.of.iter().any(|member| self.states(*member).any(|state| has(*member, state)))
    }
}
