//! A file that grows and whose member is full is moved to another one, and then the same operation goes on.
//!
//! The copy has no name until it is whole and synced. Nobody opens the file for writing meanwhile (a lease). Its old name goes only if it
//! still is what was copied: it is renamed aside under an intent first, and comes back if somebody waits to write to it.

use atoll_core::{Ino, Name, VolumePath};
use atoll_posix::{Errno, Op, RenameMode, SetAttr, Whence};
use bytes::Bytes;

use super::rename::Side;
use crate::holds::Held;
use crate::intent::{Direction, Intent, IntentStep};
use crate::native::{At, Copied, NativeCall, NativeId, NativeReply, NativeStat, Tag};
use crate::task::{Decided, IntentOver, Planned, Progress, Stop, Task};
use crate::union::Union;

/// Bytes that are copied at a time.
const PORTION_BYTES: u64 = 4 << 20;

/// How far the move has come: what the call that is under way does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Lease,
    Describe,
    MakeCopy,
    FindData,
    FindHole,
    Read,
    Write,
    SetLen,
    SetAttributes,
    Sync,
    Compare,
    Link,
    SyncDir,
    /// The file's handle is asked for, and then the copy's: who has the old one is to find the file by it.
    Handle(bool),
    Intend,
    Aside,
    Ask,
    Unlink,
    Close(bool),
    /// It is given up: what was made is made undone.
    Undo,
}

/// A file on its way to another member.
#[derive(Debug, Clone)]
pub(crate) struct Growing {
    stage: Stage,
    ino: Ino,
    side: Side,
    /// Its path, for the intent.
    path: VolumePath,
    id: NativeId,
    from: (Tag, NativeId),
    to: (Tag, NativeId),
    /// Its attributes when nobody could open it for writing any more, and the lease.
    lease: Option<(u64, NativeStat)>,
    like: Option<Copied>,
    /// The copy.
    copy: Option<(u64, NativeId)>,
    /// The directories that the path of the copy needs to be synced, the next one last.
    syncs: Vec<NativeId>,
    /// Bytes up to here are copied, and there is data up to there.
    at: u64,
    data_end: u64,
    /// What was read.
    bytes: Bytes,
    /// The handle that the file had, and that of the copy.
    handles: Vec<Bytes>,
    /// Calls that make undone what was made, the next one last.
    undo: Vec<Planned>,
    intent: Option<Intent>,
    /// Why the file could not grow.
    full: Errno,
}

/// Whether an operation changes a file's bytes or attributes, and which file's.
pub(crate) fn changes_file(op: &Op) -> Option<Ino> {
    match op {
        Op::Link { ino, .. } => Some(*ino),
        Op::SetLock { .. } => None,
        op => op.file().filter(|_| op.changes()),
    }
}

impl Union {
    /// A file cannot grow in its member. Moves it, if that can be done; else the error.
    pub(super) fn grow(&mut self, task: &mut Task, ino: Ino, full: Errno) -> Decided<()> {
        let file = self.known.file(ino).ok_or(Stop::Fail(full))?.clone();
        let Some((dir, name)) = file.seen.clone().filter(|_| file.open.is_none()) else {
            return Err(Stop::Fail(full));
        };
        // Whoever changes it now, changes it first.
        if self.others_change(task, ino) {
            return Err(Stop::Wait);
        }
        self.holds.first(task.id, &[Held { dir, name: Some(name.clone()) }])?;
        let found = self.find_attrs(task, dir, &name).map_err(|stop| failed(stop, full))?;
        let here = found.places.iter().find(|place| place.tag == file.tag).and_then(|place| place.stat);
        let Some(stat) = here.filter(|stat| stat.id == file.id && stat.nlink == 1) else {
            return Err(Stop::Fail(full)); // It has other names, which would go on naming the old one.
        };
        let (Op::Write { .. } | Op::Fallocate { .. }) = task.request.op else { return Err(Stop::Fail(full)) };
        let more = match task.request.op {
            Op::Fallocate { len, .. } => len,
            _ => task.request.bytes.len() as u64,
        };
        let fs = |tag: Tag| self.members.get(tag).and_then(|member| member.space).map(|space| space.fs);
        let fits = |tag: &Tag| {
            let space = self.members.get(*tag).and_then(|member| member.space);
            let is_other = fs(*tag).is_none() || fs(*tag) != fs(file.tag);
            let has_room = space.is_none_or(|space| space.bytes_available > stat.blocks * 512 + more);
            let is_taken = found.places.iter().any(|place| place.tag == *tag);
            *tag != file.tag && is_other && has_room && !is_taken
        };
        let candidates = self.candidates(dir, &name, false);
        let is_refused = |tag: &Tag| task.refused.iter().any(|(refused, _)| refused == tag);
        let next = candidates.into_iter().find(|tag| fits(tag) && !is_refused(tag));
        let to = next.ok_or(Stop::Fail(full))?;
        let into = self.chain(task, dir, to).map_err(|stop| failed(stop, full))?;
        let home = self.dir(dir)?.home(file.tag).ok_or(Stop::Fail(full))?.id;
        debug_assert_ne!((file.tag, home), (to, into));
        let side = Side { dir, name };
        let path = self.path_of(&side).map_err(|stop| failed(stop, full))?;
        self.holds.grow(task.id, ino);
        let mut syncs = self.known.unsynced(dir, to);
        syncs.push(into);
        syncs.reverse();
        let growing = Growing {
            stage: Stage::Lease,
            ino,
            side,
            path,
            id: file.id,
            from: (file.tag, home),
            to: (to, into),
            lease: None,
            like: None,
            copy: None,
            syncs,
            at: 0,
            data_end: 0,
            bytes: Bytes::new(),
            undo: Vec::new(),
            intent: None,
            handles: Vec::new(),
            full,
        };
        let of = self.known.at(&file);
        task.phase = Progress::Growing(Box::new(growing));
        Err(Stop::Calls(vec![Planned::look(file.tag, NativeCall::Lease { of })]))
    }

    /// Goes on with a move, if one is under way. Fails with the error of the full member if it was given up.
    pub(super) fn go_on_growing(&mut self, task: &mut Task) -> Decided<()> {
        let mut growing = match std::mem::take(&mut task.phase) {
            Progress::Growing(growing) => growing,
            other => {
                task.phase = other;
                return Ok(());
            }
        };
        let answer = match growing.stage {
            Stage::Intend => task.intended.take().unwrap_or(Err(Errno::EIO)).map(|()| NativeReply::Done),
            _ => task.answered().1,
        };
        growing.took(self, answer);
        if growing.stage == Stage::Link {
            self.holds.set_moving(task.id, true);
        }
        match growing.next(task) {
            Some(stop) => {
                task.carried = std::mem::take(&mut growing.bytes);
                task.phase = Progress::Growing(growing);
                Err(stop)
            }
            None => {
                self.holds.stop_growing(task.id);
                self.holds.set_moving(task.id, false);
                growing.over(task);
                task.full = None;
                task.decide_anew()?;
                if growing.stage == Stage::Undo {
                    // Another member may do.
                    task.refused.push((growing.to.0, growing.full));
                    task.full = growing.lease.map(|_| growing.full);
                    task.full.ok_or(Stop::Fail(growing.full))?;
                }
                Ok(())
            }
        }
    }

    /// Whether another operation changes this file now.
    fn others_change(&self, task: &Task, ino: Ino) -> bool {
        let mut others = self.tasks().filter(|other| other.id != task.id);
        let is_under_way = |other: &Task| other.calls.iter().any(|(_, answer)| answer.is_none());
        others.any(|other| changes_file(&other.request.op) == Some(ino) && is_under_way(other))
    }
}

/// An error on the way to the move is the one that it was to help with.
fn failed(stop: Stop, full: Errno) -> Stop {
    match stop {
        Stop::Fail(_) => Stop::Fail(full),
        stop => stop,
    }
}

impl Growing {
    /// Where the file is in its old member.
    fn of(&self) -> At {
        At { id: self.id, seen: Some((self.from.1, self.side.name.clone())) }
    }

    fn copy_of(&self) -> At {
        At { id: self.copy.map_or(self.id, |(_, id)| id), seen: None }
    }

    /// The name that it has for a moment before it goes. Nobody has such a name by chance.
    fn aside(&self) -> Name {
        let text = format!(".atoll-moving-{:x}", self.id.ino);
        Name::new(text.as_bytes()).expect("it is short")
    }

    /// Takes in the answer to the call of this stage.
    fn took(&mut self, union: &mut Union, answer: Result<NativeReply, Errno>) {
        let (tag, dir) = self.to;
        self.stage = match (self.stage, answer) {
            (Stage::Lease, Ok(NativeReply::Opened { open, stat })) if stat.nlink == 1 => {
                self.lease = Some((open, stat));
                self.undo.push(Planned::look(self.from.0, NativeCall::Close { open }));
                Stage::Describe
            }
            (Stage::Lease, Ok(NativeReply::Opened { open, .. })) => {
                self.undo.push(Planned::look(self.from.0, NativeCall::Close { open }));
                Stage::Undo
            }
            (Stage::Describe, Ok(NativeReply::Copied(like))) => {
                self.like = Some(like);
                Stage::MakeCopy
            }
            (Stage::MakeCopy, Ok(NativeReply::Opened { open, stat })) => {
                self.copy = Some((open, stat.id));
                self.undo.push(Planned::look(tag, NativeCall::Close { open }));
                Stage::FindData
            }
            (Stage::FindData, Ok(NativeReply::Offset(at))) => {
                self.at = at;
                Stage::FindHole
            }
            (Stage::FindData, Err(Errno::ENXIO)) => Stage::SetLen,
            (Stage::FindHole, Ok(NativeReply::Offset(end))) => {
                self.data_end = end;
                Stage::Read
            }
            (Stage::Read, Ok(NativeReply::Data(bytes))) if bytes.is_empty() => Stage::FindData,
            (Stage::Read, Ok(NativeReply::Data(bytes))) => {
                self.bytes = bytes;
                Stage::Write
            }
            (Stage::Write, Ok(NativeReply::Wrote { len, .. })) if len > 0 => {
                self.at += len;
                if self.at < self.data_end { Stage::Read } else { Stage::FindData }
            }
            (Stage::SetLen, Ok(_)) => Stage::SetAttributes,
            (Stage::SetAttributes, Ok(_)) => Stage::Sync,
            (Stage::Sync, Ok(_)) => Stage::Compare,
            (Stage::Compare, Ok(NativeReply::Stat(now))) if self.is_same(&now) => Stage::Link,
            (Stage::Link, Ok(NativeReply::Stat(stat))) => {
                let call = NativeCall::Unlink { dir, name: self.side.name.clone(), id: stat.id };
                self.undo.push(Planned::look(tag, call));
                union.known.set_name(self.side.dir, tag, &self.side.name, Some((stat.kind, stat.id.ino)));
                Stage::SyncDir
            }
            (Stage::SyncDir, Ok(_)) if !self.syncs.is_empty() => Stage::SyncDir,
            (Stage::SyncDir, Ok(_)) => Stage::Handle(false),
            // A file system that has no handles has given none away.
            (Stage::Handle(of_copy), told) => {
                if let Ok(NativeReply::Data(handle)) = told {
                    self.handles.push(handle);
                }
                if of_copy { Stage::Intend } else { Stage::Handle(true) }
            }
            (Stage::Intend, Ok(_)) => Stage::Aside,
            (Stage::Aside, Ok(_)) => {
                let id = self.id;
                let (dir, name) = (self.from.1, self.aside());
                let (new_dir, new_name) = (dir, self.side.name.clone());
                let mode = RenameMode::NoReplace;
                let call = NativeCall::Rename { dir, name, id, new_dir, new_name, new_id: None, mode };
                self.undo.push(Planned::look(self.from.0, call));
                Stage::Ask
            }
            (Stage::Ask, Ok(_)) => Stage::Unlink,
            (Stage::Unlink, Ok(_)) => {
                self.moved(union);
                Stage::Close(false)
            }
            (Stage::Close(false), _) => Stage::Close(true),
            (Stage::Close(true), _) => Stage::Close(true),
            (Stage::Undo, _) => {
                union.known.doubt(self.side.dir, tag);
                union.known.doubt(self.side.dir, self.from.0);
                Stage::Undo
            }
            _ => Stage::Undo,
        };
    }

    /// Whether the file is what it was when it was leased.
    fn is_same(&self, now: &NativeStat) -> bool {
        let what = |stat: &NativeStat| (stat.id, stat.size, stat.mtime, stat.ctime, stat.nlink);
        self.lease.as_ref().is_some_and(|(_, before)| what(before) == what(now))
    }

    /// Whoever knows the file finds it in its new member from now on.
    fn moved(&self, union: &mut Union) {
        union.known.set_name(self.side.dir, self.from.0, &self.side.name, None);
        let id = self.copy_of().id;
        if let [old, new] = &self.handles[..] {
            union.known.handle_moved((self.from.0, old.clone()), (self.to.0, new.clone()));
        }
        union.known.moved_to(self.ino, self.to.0, id, (self.side.dir, self.side.name.clone()));
    }

    /// The call of this stage. None: it has ended.
    fn next(&mut self, task: &Task) -> Option<Stop> {
        if task.given_up && !matches!(self.stage, Stage::Unlink | Stage::Close(_)) {
            self.stage = Stage::Undo;
        }
        let (from, to) = (self.from.0, self.to.0);
        let lease = self.lease.as_ref().map(|(open, stat)| (*open, *stat));
        let call = match self.stage {
            Stage::Lease => unreachable!("it is the first call"),
            Stage::Describe => (from, NativeCall::CopyOf { of: self.of() }),
            Stage::MakeCopy => (to, NativeCall::Tmpfile { dir: self.to.1, mode: 0o600, umask: 0 }),
            Stage::FindData => {
                (from, NativeCall::Seek { of: self.of(), offset: self.at, whence: Whence::Data })
            }
            Stage::FindHole => {
                (from, NativeCall::Seek { of: self.of(), offset: self.at, whence: Whence::Hole })
            }
            Stage::Read => {
                let len = self.data_end.saturating_sub(self.at).min(PORTION_BYTES) as u32;
                (from, NativeCall::Read { of: self.of(), offset: self.at, len })
            }
            Stage::Write => {
                let (of, offset) = (self.copy_of(), self.at);
                (to, NativeCall::Write { of, offset, append: false, kill_set_id: false })
            }
            Stage::SetLen => {
                let set = SetAttr { size: Some(lease?.1.size), ..SetAttr::default() };
                (to, NativeCall::SetAttr { of: self.copy_of(), set })
            }
            Stage::SetAttributes => (to, NativeCall::Become { of: self.copy_of(), like: self.like.clone()? }),
            Stage::Sync => (to, NativeCall::Fsync { of: self.copy_of() }),
            Stage::Compare => (from, NativeCall::Stat { of: self.of() }),
            Stage::Link => {
                let (dir, name) = (self.to.1, self.side.name.clone());
                (to, NativeCall::Link { of: self.copy_of(), dir, name })
            }
            Stage::SyncDir => (to, NativeCall::FsyncDir { dir: self.syncs.pop()? }),
            Stage::Handle(false) => (from, NativeCall::HandleOf { of: self.of() }),
            Stage::Handle(true) => (to, NativeCall::HandleOf { of: self.copy_of() }),
            Stage::Intend => {
                let intent = self.intent();
                self.intent = Some(intent.clone());
                return Some(Stop::Intend(intent));
            }
            Stage::Aside => {
                let (dir, name, id) = (self.from.1, self.side.name.clone(), self.id);
                let (new_dir, new_name, mode) = (dir, self.aside(), RenameMode::NoReplace);
                (from, NativeCall::Rename { dir, name, id, new_dir, new_name, new_id: None, mode })
            }
            Stage::Ask => (from, NativeCall::LeaseHolds { open: lease?.0 }),
            Stage::Unlink => {
                let (dir, name, id) = (self.from.1, self.aside(), self.id);
                (from, NativeCall::Unlink { dir, name, id })
            }
            Stage::Close(false) => (from, NativeCall::Close { open: lease?.0 }),
            Stage::Close(true) => (to, NativeCall::Close { open: self.copy.take()?.0 }),
            Stage::Undo => return Some(Stop::Calls(vec![self.undo.pop()?])),
        };
        Some(Stop::Calls(vec![Planned::look(call.0, call.1)]))
    }

    /// If the process dies while the file is aside, it gets its name back. The copy beside it is equal.
    fn intent(&self) -> Intent {
        let (above, _) = self.path.split_last().expect("a file has a name");
        let names = above.iter().cloned().chain([self.aside()]).collect();
        let new = VolumePath::from_names(names).unwrap_or_else(|_| self.path.clone());
        let step = IntentStep { tag: self.from.0, from: Some(self.id), to: None };
        let direction = Some(Direction::Back);
        Intent { old: self.path.clone(), new, replaces: false, steps: vec![step], direction }
    }

    fn over(&self, task: &mut Task) {
        if let Some(intent) = self.intent.clone() {
            task.intent_over = Some(IntentOver { intent, in_doubt: Vec::new(), dirs: vec![self.from] });
        }
    }
}
