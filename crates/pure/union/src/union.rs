//! The machine of a union: takes operations and answers of members, gives calls and answers.
//!
//! Owns what is known, and the operations under way. Where an operation stops it keeps it, and decides it on when its calls
//! are answered. Never waits, and never says what an operation means: that is in `ops`.

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name, Time};
use atoll_posix::{Errno, Kind};
use bytes::Bytes;

use crate::dirs::{File, Home, Known, NamesMax, Part, Tick, UnionDir};
use crate::find::{Found, Holder};
use crate::frontend::{FrontendId, Told};
use crate::graves::Grave;
use crate::holds::Holds;
use crate::intent::Intent;
use crate::native::{At, Changes, NativeCall, NativeId, NativeReply, NativeStat, Tag, Who};
use crate::ops;
use crate::task::{Decided, Finished, IntentOver, Planned, Progress, Stop, Task, UnionRequest};
use crate::view::{Member, MemberState, Members, Settings};

/// More directories than these are not kept for long if no frontend knows them.
pub const PASSED_MAX: usize = 4096;

/// A moment, on the clocks of whoever drives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Milliseconds on a clock that never goes back.
    pub ms: Tick,
    /// The time of day, as file systems stamp with.
    pub wall: Time,
}

/// What the machine wants to be done.
#[derive(Debug, Clone)]
pub enum UnionEffect {
    /// Make this call, and tell [`Union::answered`] of its answer.
    Call {
        /// The operation that it belongs to.
        task: u64,
        /// Which of its calls.
        index: u32,
        /// In which member.
        tag: Tag,
        /// In whose name.
        who: Who,
        /// What.
        call: NativeCall,
        /// The bytes of a write.
        bytes: Bytes,
    },
    /// Write this down so that it survives a power cut, in place of what was written for this operation before, and tell
    /// [`Union::intended`].
    Intend {
        /// The operation that it belongs to.
        task: u64,
        /// What.
        intent: Intent,
    },
    /// What was written down for an operation is over, or stands for members that do not answer.
    IntentOver {
        /// The operation.
        task: u64,
        /// How it ended.
        over: IntentOver,
    },
    /// An operation has ended.
    Ended {
        /// Which. One that was given up ends once more when its last call has returned: nobody waits for that.
        task: u64,
        /// How.
        outcome: Result<Finished, Errno>,
    },
}

/// A union, as one process sees it.
#[derive(Debug)]
pub struct Union {
    pub(crate) settings: Settings,
    pub(crate) members: Members,
    pub(crate) known: Known,
    pub(crate) now: Moment,
    /// The frontend of the operation that is being decided.
    pub(crate) frontend: FrontendId,
    /// Whether members are asked to tell of changes.
    pub(crate) watches: bool,
    /// When the union began.
    pub(crate) began: Time,
    /// Files that have lost their last name and are held.
    pub(crate) graves: Vec<Grave>,
    tasks: BTreeMap<u64, Task>,
    waiting: Vec<u64>,
    pub(crate) holds: Holds,
}

impl Union {
    /// A union of these members, of which there is at least one.
    pub fn new(settings: Settings, members: Vec<Member>, watches: bool, now: Moment) -> Self {
        assert!(!members.is_empty(), "a union has a member");
        let mut all = Members::default();
        members.into_iter().for_each(|member| all.add(member));
        let mut union = Self {
            settings,
            members: all,
            known: Known::default(),
            now,
            frontend: FrontendId::default(),
            watches,
            began: now.wall,
            graves: Vec::new(),
            tasks: BTreeMap::new(),
            waiting: Vec::new(),
            holds: Holds::default(),
        };
        union.make_root();
        union
    }

    fn make_root(&mut self) {
        let home = |m: &Member| Home::new(m.tag, m.root.id, Part::Unsure);
        let mut homes: Vec<(Time, Home)> = self.members.iter().map(|m| (m.root.id.btime, home(m))).collect();
        homes.sort_by_key(|(btime, home)| (*btime, home.tag));
        let homes = homes.into_iter().map(|(_, home)| home).collect();
        self.known.add_dir(Ino::ROOT, UnionDir::new(Ino::ROOT, None, homes, self.now.ms));
    }

    /// Its members.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// What is known, for status and tests.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// How many operations are under way, those among them that were given up.
    pub fn under_way(&self) -> usize {
        self.tasks.len()
    }

    /// Sets how many bytes of names are kept, for tests.
    pub fn bound_names(&mut self, max: NamesMax) {
        self.known.bound_names(max);
    }

    /// A member answers again, hangs, or is away.
    pub fn member_is(&mut self, now: Moment, tag: Tag, state: MemberState) {
        self.now = now;
        let Some(member) = self.members.get_mut(tag) else { return };
        let before = std::mem::replace(&mut member.state, state);
        if before != state {
            member.since = now.ms;
        }
        if state == MemberState::Away && before != MemberState::Away {
            member.losses += 1;
            self.known.member_gone(tag);
        }
        if state == MemberState::Serving && before != MemberState::Serving {
            self.known.doubt_member(tag);
        }
    }

    /// A member's room was told.
    pub fn space(&mut self, tag: Tag, space: crate::native::Space) {
        if let Some(member) = self.members.get_mut(tag) {
            member.space = Some(space);
        }
    }

    /// What has changed in a member's watched directories. The files and names that a frontend may have been told something
    /// else of.
    pub fn changed(&mut self, now: Moment, tag: Tag, changes: &Changes) -> Vec<(Ino, Name)> {
        self.now = now;
        if changes.lost && !planted(Bug::OverflowIgnored) {
            self.known.doubt_member(tag);
            return Vec::new();
        }
        let mut names = Vec::new();
        for changed in &changes.dirs {
            let Some(ino) = self.known.dir_at(tag, changed.dir.ino) else { continue };
            for name in &changed.names {
                self.known.hear(ino, tag, name);
                names.push((ino, name.clone()));
            }
        }
        names
    }

    /// A frontend does not know these any more. What members need not keep open for them.
    pub fn forget(&mut self, frontend: FrontendId, inos: &[Ino]) -> Vec<Planned> {
        let mut calls = Vec::new();
        for ino in inos {
            if let Some((tag, open)) = self.known.forget_file(*ino, frontend) {
                calls.push(Planned::look(tag, NativeCall::Close { open }));
            }
            self.known.untell_dir(*ino, frontend);
            self.prune(*ino);
        }
        calls.extend(self.let_go());
        calls
    }

    /// Forgets directories that were only passed by: to be called now and then. What members need not keep open for them.
    pub fn sweep(&mut self) -> Vec<Planned> {
        self.known.gone_and_untold().into_iter().for_each(|ino| self.prune(ino));
        if self.known.dirs_len() >= PASSED_MAX {
            self.known.untold().into_iter().for_each(|ino| self.prune(ino));
        }
        self.let_go()
    }

    /// What members need not keep open for anybody.
    fn let_go(&mut self) -> Vec<Planned> {
        let opens = self.known.take_unneeded().into_iter();
        let closes = opens.map(|(tag, open)| Planned::look(tag, NativeCall::Close { open }));
        let mut calls: Vec<Planned> = closes.collect();
        calls.extend(self.left());
        calls
    }

    /// An operation under way may be about to use a directory. Then it is left for the next sweep.
    fn prune(&mut self, ino: Ino) {
        if !self.uses_dirs() {
            self.known.prune(ino);
        }
    }

    /// Directories that members need not keep open. None while an operation may have opened one of them again.
    fn left(&mut self) -> Vec<Planned> {
        if self.uses_dirs() {
            return Vec::new();
        }
        let mut by_member: BTreeMap<Tag, Vec<NativeId>> = BTreeMap::new();
        self.known.take_left().into_iter().for_each(|(tag, id)| by_member.entry(tag).or_default().push(id));
        let calls = by_member.into_iter();
        calls.map(|(tag, dirs)| Planned::look(tag, NativeCall::ForgetDirs { dirs })).collect()
    }

    /// Whether an operation is under way that may use any directory. One that was given up needs none, unless it must end a change.
    fn uses_dirs(&self) -> bool {
        let uses = |task: &Task| !task.given_up || task.phase.is_changing();
        self.tasks.values().any(uses)
    }

    /// Whether an operation waits for a member, or may change something in it before it is asked again.
    pub(crate) fn is_used(&self, tag: Tag) -> bool {
        let calls =
            |task: &Task| task.calls.iter().any(|(planned, answer)| planned.tag == tag && answer.is_none());
        self.tasks.values().any(|task| task.phase.is_changing() || calls(task))
    }

    /// The member that shows a file or directory, and where it is there. None if it is not known.
    pub fn place_of(&self, ino: Ino) -> Option<(Tag, At)> {
        if let Some(dir) = self.known.dir(ino) {
            let home = dir.anchor();
            return Some((home.tag, At { id: home.id, seen: None }));
        }
        let file = self.known.file(ino)?;
        Some((file.tag, self.known.at(file)))
    }

    /// The member of a file that is to be opened, and where it is there. `EROFS` if it is for writing and nothing is changed there;
    /// the error of a member that does not answer.
    pub fn file_at(&mut self, ino: Ino, write: bool) -> Result<(Tag, At), Errno> {
        let file = self.known.file(ino).ok_or(Errno::ESTALE)?;
        let (tag, at) = (file.tag, self.known.at(file));
        self.answers(tag)?;
        if write {
            if self.members.get(tag).is_some_and(|member| member.read_only) {
                return Err(Errno::EROFS);
            }
            // The kernel may write by itself from now on.
            self.note_write(ino);
        }
        Ok((tag, at))
    }

    /// Bytes of a file are about to change.
    pub(crate) fn note_write(&mut self, ino: Ino) {
        self.known.note_write(ino, self.losses(ino), false);
    }

    /// A file is about to be synced. `EIO` once if bytes that were written before its member was away may be lost.
    pub(crate) fn note_sync(&mut self, ino: Ino) -> Result<(), Errno> {
        let losses = self.losses(ino);
        let Some(file) = self.known.file(ino) else { return Ok(()) };
        // A file that was moved was synced by that.
        let (tag, Some((at, before))) = (file.tag, file.wrote) else { return Ok(()) };
        self.known.note_write(ino, losses, true);
        if at != tag || before == losses { Ok(()) } else { Err(Errno::EIO) }
    }

    /// A number that changes when bytes of this file that were acknowledged and not synced may be lost.
    pub fn losses(&self, ino: Ino) -> u64 {
        let tag = self.known.file(ino).map(|file| file.tag);
        tag.and_then(|tag| self.members.get(tag)).map_or(0, |member| member.losses)
    }

    /// A frontend has a directory by a handle. Its id. None if it must be walked to first.
    pub fn know_dir(&mut self, frontend: FrontendId, tag: Tag, stat: &NativeStat) -> Option<Ino> {
        let ino = self.known.dir_of(tag, stat.id)?;
        self.known.tell_dir(ino, frontend);
        Some(ino)
    }

    /// A frontend has a file or directory by a handle that is known. Its id. None if it is known no longer.
    pub fn know_again(&mut self, frontend: FrontendId, tag: Tag, stat: &NativeStat) -> Option<Ino> {
        if stat.kind == Kind::Directory {
            return self.know_dir(frontend, tag, stat);
        }
        self.known.object_at(tag, stat.id)?;
        Some(self.know_file(frontend, tag, stat))
    }

    /// A frontend has a file by a handle. Its id.
    pub fn know_file(&mut self, frontend: FrontendId, tag: Tag, stat: &NativeStat) -> Ino {
        let ino = self.known.id_for(tag, stat.id);
        let seen = self.known.file(ino).filter(|file| file.id == stat.id).and_then(|file| file.seen.clone());
        let told = Told::by(frontend);
        self.known.add_file(ino, File { tag, id: stat.id, seen, open: None, told, wrote: None });
        ino
    }

    /// Begins an operation. `id` is a number that no operation under way has.
    pub fn start(
        &mut self,
        now: Moment,
        (id, frontend): (u64, FrontendId),
        request: UnionRequest,
        out: &mut Vec<UnionEffect>,
    ) {
        self.now = now;
        let mut task = Task::new(id, frontend, request, now.ms);
        task.homes = self.known.homes();
        self.run(task, out);
    }

    /// A call has been answered.
    pub fn answered(
        &mut self,
        now: Moment,
        task: u64,
        index: u32,
        answer: Result<NativeReply, Errno>,
        out: &mut Vec<UnionEffect>,
    ) {
        self.now = now;
        let Some(there) = self.tasks.get_mut(&task) else { return };
        let call = &mut there.calls[index as usize];
        let is_member = self.members.get(call.0.tag).is_some();
        let before = call.1.replace(if is_member { answer } else { Err(Errno::ESTALE) });
        assert!(before.is_none(), "call {index} of operation {task} is answered twice");
        there.unanswered -= 1;
        there.waits = now.ms;
        if there.unanswered == 0 {
            let mut task = self.tasks.remove(&task).expect("it is there");
            self.learn(&mut task);
            self.run(task, out);
        }
    }

    /// Answers the operations that have waited too long, with `ETIMEDOUT`: to be called now and then. A call that is under way
    /// cannot be taken back. When it returns, the operation ends what it has changed in part; until then it holds its names.
    pub fn give_up_late(&mut self, now: Moment, out: &mut Vec<UnionEffect>) {
        self.now = now;
        let late: Vec<u64> =
            self.tasks.values().filter(|task| task.is_late(now.ms)).map(|task| task.id).collect();
        for id in late {
            let waiting = self.waiting.len();
            self.waiting.retain(|waiting| *waiting != id);
            if self.waiting.len() < waiting {
                // It has changed nothing, and holds nothing.
                if let Some(task) = self.tasks.remove(&id) {
                    self.leave(&task);
                }
            } else if let Some(task) = self.tasks.get_mut(&id) {
                task.given_up = true;
            }
            out.push(UnionEffect::Ended { task: id, outcome: Err(Errno::ETIMEDOUT) });
        }
    }

    /// What an operation wanted to be written down was, or was not.
    pub fn intended(
        &mut self,
        now: Moment,
        task: u64,
        outcome: Result<(), Errno>,
        out: &mut Vec<UnionEffect>,
    ) {
        self.now = now;
        let Some(mut task) = self.tasks.remove(&task) else { return };
        task.intended = Some(outcome);
        self.run(task, out);
    }

    fn run(&mut self, mut task: Task, out: &mut Vec<UnionEffect>) {
        self.frontend = task.frontend;
        let decided = if task.given_up { self.settle(&mut task) } else { ops::decide(self, &mut task) };
        match decided {
            Ok(finished) => self.end(task, Ok(finished), out),
            Err(Stop::Fail(errno)) => self.end(task, Err(errno), out),
            Err(Stop::Wait) => {
                self.holds.release(task.id);
                if matches!(task.phase, Progress::Decide) {
                    task.forget_seen(); // It may wait for long.
                }
                self.waiting.push(task.id);
                self.tasks.insert(task.id, task);
            }
            Err(Stop::Intend(intent)) => {
                out.push(UnionEffect::Intend { task: task.id, intent });
                self.tasks.insert(task.id, task);
            }
            Err(Stop::Calls(calls)) => {
                assert!(!calls.is_empty(), "a stop without a call would never go on");
                for (index, Planned { tag, who, call }) in calls.iter().enumerate() {
                    let bytes = match call {
                        NativeCall::Write { .. } if matches!(task.phase, Progress::Growing(_)) => {
                            std::mem::take(&mut task.carried)
                        }
                        NativeCall::Write { .. } => task.request.bytes.clone(),
                        _ => Bytes::new(),
                    };
                    let (who, call) = (who.clone(), call.clone());
                    out.push(UnionEffect::Call {
                        task: task.id,
                        index: index as u32,
                        tag: *tag,
                        who,
                        call,
                        bytes,
                    });
                }
                task.unanswered = calls.len();
                task.asked = calls.iter().map(|planned| self.ask(planned)).collect();
                task.calls = calls.into_iter().map(|planned| (planned, None)).collect();
                task.waits = self.now.ms;
                self.tasks.insert(task.id, task);
            }
        }
    }

    /// Goes on with an operation that was given up: what is left of a change is done, and nothing else.
    fn settle(&mut self, task: &mut Task) -> Decided<Finished> {
        for (planned, answer) in &task.calls {
            self.kept_open(planned, answer.as_ref().expect("all are answered"));
        }
        let opens = !task.calls.is_empty() && task.calls.iter().all(|(planned, _)| planned.call.holds_open());
        if opens || matches!(task.phase, Progress::Decide) {
            return Err(Stop::Fail(Errno::ETIMEDOUT));
        }
        match ops::decide(self, task) {
            Err(Stop::Calls(_) | Stop::Wait | Stop::Intend(_)) if !task.phase.is_changing() => {
                Err(Stop::Fail(Errno::ETIMEDOUT))
            }
            decided => decided,
        }
    }

    fn end(&mut self, mut task: Task, outcome: Result<Finished, Errno>, out: &mut Vec<UnionEffect>) {
        self.holds.release(task.id);
        self.leave(&task);
        if let Some(over) = task.intent_over.take() {
            out.push(UnionEffect::IntentOver { task: task.id, over });
        }
        out.push(UnionEffect::Ended { task: task.id, outcome });
        // Few operations wait, so each is simply decided anew.
        for id in std::mem::take(&mut self.waiting) {
            if let Some(waiting) = self.tasks.remove(&id) {
                self.run(waiting, out);
            }
        }
    }

    /// Whether an operation, other than the one that is decided now, has not ended.
    pub(crate) fn is_under_way(&self, id: u64) -> bool {
        self.tasks.contains_key(&id)
    }

    /// An operation does not go on: what it was reading, and what it has opened in members, is not used for it any more.
    fn leave(&mut self, task: &Task) {
        task.reading.iter().for_each(|reading| self.known.asked(reading.ino));
        task.opened.iter().for_each(|(tag, id)| self.known.leave_opened(*tag, *id));
    }

    /// The operations under way.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// The directory that these homes make together, with exactly them. Opens homes that are new.
    pub(crate) fn take_homes(
        &mut self,
        task: &mut Task,
        parent: Ino,
        name: &Name,
        found: &Found,
    ) -> Decided<Option<Ino>> {
        let dirs: Vec<&Holder> = found.places.iter().filter(|p| p.kind == Kind::Directory).collect();
        if dirs.is_empty() {
            return Ok(None);
        }
        let known = dirs.iter().find_map(|place| self.known.dir_at(place.tag, place.ino));
        let is_home = |place: &Holder| {
            let home = known.and_then(|ino| self.known.dir(ino)).and_then(|dir| dir.home(place.tag));
            home.is_some_and(|home| {
                home.id.ino == place.ino && place.stat.is_none_or(|stat| stat.id == home.id)
            })
        };
        let (mut calls, mut new) = (Vec::new(), Vec::new());
        for place in dirs.iter().filter(|place| !is_home(place)) {
            let opened = |stat: &NativeStat| task.opened.contains(&(place.tag, stat.id));
            match place.stat.filter(opened) {
                Some(stat) => {
                    new.push(Home::new(place.tag, stat.id, Part::Unsure));
                }
                None => {
                    let call = NativeCall::OpenDir { dir: place.dir, name: name.clone() };
                    calls.push(Planned::look(place.tag, call));
                }
            }
        }
        if !calls.is_empty() {
            return Err(Stop::Calls(calls));
        }
        let ino = match known {
            Some(ino) => {
                for home in new {
                    if let Some(other) =
                        self.known.dir_at(home.tag, home.id.ino).filter(|other| *other != ino)
                    {
                        self.known.drop_home(other, home.tag);
                    }
                    self.known.add_home(ino, home);
                }
                // What another operation has made since is not gone.
                let seen = self.dir(ino)?.homes.iter().filter(|home| home.number <= task.homes);
                let seen: Vec<Tag> = seen.map(|home| home.tag).collect();
                for tag in seen {
                    let gone = dirs.iter().all(|place| place.tag != tag);
                    if gone && self.answers(tag).is_ok() {
                        self.known.drop_home(ino, tag);
                    }
                }
                ino
            }
            None => {
                new.sort_by_key(|home| (home.id.btime, home.tag));
                let first = new.first().expect("a directory has a home");
                let ino = self.known.id_for_dir(first.tag, first.id);
                self.known.add_dir(ino, UnionDir::new(parent, Some(name.clone()), new, self.now.ms));
                ino
            }
        };
        if let Some(dir) = self.known.dir_mut(ino)
            && ino != Ino::ROOT
        {
            dir.unasked = found.unasked.iter().copied().filter(|tag| dir.home(*tag).is_none()).collect();
            dir.homes_at = self.now.ms;
            self.known.set_place(ino, parent, name);
        }
        Ok(Some(ino))
    }

    /// The frontend is told of a file.
    pub(crate) fn take_file(&mut self, dir: Ino, name: &Name, tag: Tag, stat: &NativeStat) -> Ino {
        let ino = self.known.id_for(tag, stat.id);
        let told = Told::by(self.frontend);
        if !told.is_nobody() {
            let seen = Some((dir, name.clone()));
            self.known.add_file(ino, File { tag, id: stat.id, seen, open: None, told, wrote: None });
        }
        ino
    }
}
