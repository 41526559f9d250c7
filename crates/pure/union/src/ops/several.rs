//! A rename in several members: one native rename in each. An intent is written down before the first one. If a member
//! refuses, those that were made are made undone.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, VolumePath};
use atoll_posix::{Answer, Errno, RenameMode};

use super::rename::{Side, is_at, renamed};
use crate::find::Holder;
use crate::intent::{Direction, Intent, IntentStep, Place};
use crate::native::{NativeCall, NativeId, Tag};
use crate::task::{Decided, Finished, IntentOver, Planned, Progress, Stop, Task};
use crate::union::Union;

/// How far a rename in several members has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The intent is being written.
    Intending,
    /// The members make it, one behind the other.
    Forward,
    /// It is made; empty directories that were replaced go.
    Clearing,
    /// It is being written down that it goes back.
    TurningBack(Errno),
    /// The members make it undone, one behind the other.
    Back(Errno),
}

/// A rename in several members.
#[derive(Debug, Clone)]
pub(crate) struct Several {
    intent: Intent,
    /// For each step the directories of both names.
    dirs: Vec<[NativeId; 2]>,
    stage: Stage,
    /// So many members have made it.
    done: usize,
    /// Members that did not answer when they were to make it or to make it undone.
    in_doubt: Vec<Tag>,
    /// Removals of the empty directories that it replaces, the next one last.
    clears: Vec<Planned>,
    /// One of those is removed: it does not go back any more.
    cleared: bool,
}

impl Union {
    /// The path of a directory. `ESTALE` if its place is not known.
    pub(super) fn path_of(&self, side: &Side) -> Decided<VolumePath> {
        let (mut names, mut at) = (vec![side.name.clone()], side.dir);
        while at != Ino::ROOT {
            let dir = self.dir(at)?;
            names.push(dir.name.clone().ok_or(Stop::Fail(Errno::ESTALE))?);
            at = dir.parent;
        }
        names.reverse();
        VolumePath::from_names(names).map_err(|_| Stop::Fail(Errno::ENAMETOOLONG))
    }

    /// The calls that rename what these members have.
    pub(super) fn rename_several(
        &mut self,
        task: &mut Task,
        [from, to]: [&Side; 2],
        [found, target]: [&[Holder]; 2],
        mode: RenameMode,
    ) -> Decided<Finished> {
        let of = |places: &[Holder], tag| places.iter().find(|place| place.tag == tag).copied();
        let dir = found.iter().find_map(|place| self.known.dir_at(place.tag, place.ino));
        let anchor = dir.and_then(|ino| self.known.dir(ino)).map(|dir| dir.anchor().tag);
        let mut tags: Vec<Tag> = found.iter().map(|place| place.tag).collect();
        if mode == RenameMode::Exchange {
            tags.extend(target.iter().map(|place| place.tag).filter(|tag| of(found, *tag).is_none()));
        }
        // What is shown moves first: if it may not, nothing was changed.
        tags.sort_by_key(|tag| Some(*tag) != anchor);
        let (mut steps, mut dirs) = (Vec::new(), Vec::new());
        for tag in tags {
            self.answers(tag)?;
            task.not_refused(tag)?;
            if self.members.get(tag).is_some_and(|member| member.read_only) {
                return Err(Stop::Fail(Errno::EROFS));
            }
            let id = |place: Option<Holder>| match place {
                Some(place) => place.stat.map(|stat| Some(stat.id)).ok_or(Stop::Fail(Errno::EIO)),
                None => Ok(None),
            };
            let (there, other) = (of(found, tag), of(target, tag));
            let dir = match there {
                Some(place) => place.dir,
                None => self.chain(task, from.dir, tag)?,
            };
            dirs.push([dir, self.chain(task, to.dir, tag)?]);
            steps.push(IntentStep { tag, from: id(there)?, to: id(other)? });
        }
        let replaces = mode != RenameMode::Exchange;
        // In a member that has both, the replaced one has the old name by then.
        let rmdir = |place: &Holder| {
            let at = steps.iter().position(|step| step.tag == place.tag);
            let (dir, name) = at.map_or((place.dir, &to.name), |at| (dirs[at][0], &from.name));
            let call = NativeCall::Rmdir { dir, name: name.clone(), id: place.stat?.id };
            Some(Planned { tag: place.tag, who: task.who(), call })
        };
        let clears = target.iter().filter(|_| replaces).filter_map(rmdir).collect();
        let (old, new) = (self.path_of(from)?, self.path_of(to)?);
        let intent = Intent { old, new, replaces, steps, direction: None };
        self.holds.set_moving(task.id, true);
        let several = Several {
            intent: intent.clone(),
            dirs,
            stage: Stage::Intending,
            done: 0,
            in_doubt: Vec::new(),
            clears,
            cleared: false,
        };
        if planted(Bug::IntentLate) {
            let begun =
                Box::new(Several { stage: Stage::Forward, ..several }).next(self, task, [from, to])?;
            return Ok(begun.expect("its first step is a call"));
        }
        task.phase = Progress::Several(Box::new(several));
        Err(Stop::Intend(intent))
    }

    /// Goes on with a rename in several members, if one is under way. None: it must be decided.
    pub(super) fn go_on_several(
        &mut self,
        task: &mut Task,
        [from, to]: [&Side; 2],
    ) -> Decided<Option<Finished>> {
        let mut several = match std::mem::take(&mut task.phase) {
            Progress::Several(several) => several,
            other => {
                task.phase = other;
                return Ok(None);
            }
        };
        let sides = [from, to];
        match several.stage {
            Stage::Intending => {
                task.intended.take().unwrap_or(Err(Errno::EIO))?;
                if task.given_up {
                    several.over(task);
                    return Err(Stop::Fail(Errno::ETIMEDOUT));
                }
                several.stage = Stage::Forward;
            }
            Stage::TurningBack(errno) => {
                // If it could not be written down, a crash now has it go where most of it is.
                let _ = task.intended.take();
                several.stage = Stage::Back(errno);
            }
            Stage::Forward => {
                let (planned, answer) = task.answered();
                match answer {
                    Ok(_) => {
                        several.note(self, sides, Direction::Forward);
                        several.done += 1;
                    }
                    Err(errno) if several.done == 0 && self.answers(planned.tag).is_ok() => {
                        several.doubt(self, sides);
                        return several.undone(self, task, errno);
                    }
                    Err(errno) => return several.turn_back(self, task, planned.tag, errno),
                }
            }
            Stage::Back(_) => {
                let (planned, answer) = task.answered();
                several.done -= 1;
                match answer {
                    Ok(_) => several.note(self, sides, Direction::Back),
                    // Somebody has taken the old name in this member: its part stays under the new one.
                    Err(Errno::EEXIST | Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR) => {}
                    // It does not answer, or nothing may be changed in it any more.
                    Err(_) => several.in_doubt.push(planned.tag),
                }
            }
            Stage::Clearing => {
                let (planned, answer) = task.answered();
                let NativeCall::Rmdir { dir, name, id } = &planned.call else {
                    // It may be lost, so what it replaces stays.
                    if answer.is_err() {
                        several.clears.clear();
                    }
                    return several.next(self, task, sides);
                };
                let was_both = is_at(self, from, planned.tag, *dir, name);
                let side = if was_both { from } else { to };
                match answer {
                    Ok(_) => {
                        several.cleared = true;
                        self.known.set_name(side.dir, planned.tag, name, None);
                        self.known.removed_home(planned.tag, *id);
                    }
                    // Somebody has put a name into it in this member just now.
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) if was_both && !several.cleared => {
                        return several.turn_back(self, task, planned.tag, Errno::ENOTEMPTY);
                    }
                    Err(_) => self.known.doubt(side.dir, planned.tag),
                }
            }
        }
        several.next(self, task, sides)
    }
}

impl Several {
    fn places<'a>(&self, step: usize, [from, to]: [&'a Side; 2]) -> (Place<'a>, Place<'a>) {
        let [dir, new_dir] = self.dirs[step];
        (Place { dir, name: &from.name }, Place { dir: new_dir, name: &to.name })
    }

    /// Makes the next call.
    fn next(
        mut self: Box<Self>,
        union: &mut Union,
        task: &mut Task,
        sides: [&Side; 2],
    ) -> Decided<Option<Finished>> {
        let steps = self.intent.steps.len();
        let planned = loop {
            match self.stage {
                Stage::Forward if self.done < steps => {
                    break self.step(task, self.done, sides, Direction::Forward);
                }
                Stage::Forward => {
                    task.committed = true;
                    self.stage = Stage::Clearing;
                    // Where one member is safe, a power cut has all of it go forward.
                    if !self.clears.is_empty() {
                        let (tag, home) = (self.intent.steps[0].tag, self.dirs[0][1]);
                        self.clears.extend(union.made_safe(sides[1].dir, tag, home));
                    }
                }
                Stage::Clearing => match self.clears.pop() {
                    Some(planned) => break planned,
                    None => {
                        self.over(task);
                        return Ok(Some(Answer::Removed { orphan: None }.into()));
                    }
                },
                Stage::Back(errno) if self.done == 0 => {
                    self.doubt(union, sides);
                    return self.undone(union, task, errno);
                }
                Stage::Back(_) => {
                    let tag = self.intent.steps[self.done - 1].tag;
                    if union.answers(tag).is_ok() {
                        break self.step(task, self.done - 1, sides, Direction::Back);
                    }
                    self.in_doubt.push(tag);
                    self.done -= 1;
                }
                Stage::Intending | Stage::TurningBack(_) => {
                    unreachable!("they end with what was written down")
                }
            }
        };
        task.phase = Progress::Several(self);
        Err(Stop::Calls(vec![planned]))
    }

    fn step(&self, task: &Task, at: usize, sides: [&Side; 2], direction: Direction) -> Planned {
        let (old, new) = self.places(at, sides);
        let step = &self.intent.steps[at];
        Planned { tag: step.tag, who: task.who(), call: step.call(old, new, direction) }
    }

    /// A member has made the step that stands in `done`, or made it undone.
    fn note(&self, union: &mut Union, [from, to]: [&Side; 2], direction: Direction) {
        let step = &self.intent.steps[self.done];
        let mode = match (step.from, step.to) {
            (Some(_), Some(_)) => RenameMode::Exchange,
            _ => RenameMode::NoReplace,
        };
        // What has the old name before a rename forward goes to the new one; without it, the other way round.
        let there = step.from.is_some() == (direction == Direction::Forward);
        let [old, new] = if there { [from, to] } else { [to, from] };
        renamed(union, step.tag, old, new, mode);
    }

    /// Nothing that is known of the two names counts any more.
    fn doubt(&self, union: &mut Union, sides: [&Side; 2]) {
        for step in &self.intent.steps {
            sides.into_iter().for_each(|side| union.known.doubt(side.dir, step.tag));
            for id in [step.from, step.to].into_iter().flatten() {
                if let Some(ino) = union.known.dir_at(step.tag, id.ino) {
                    union.known.expire(ino);
                }
            }
        }
    }

    /// All members that answer have what they had before. If one had something else than was known it is decided anew.
    fn undone(&self, union: &mut Union, task: &mut Task, errno: Errno) -> Decided<Option<Finished>> {
        self.over(task);
        let is_other = matches!(errno, Errno::ESTALE | Errno::ENOENT | Errno::EEXIST);
        if !is_other || !self.in_doubt.is_empty() {
            return Err(Stop::Fail(errno));
        }
        task.decide_anew()?;
        union.holds.set_moving(task.id, false);
        Ok(None)
    }

    /// A member has refused, or does not answer: those that have made it make it undone.
    fn turn_back(
        mut self: Box<Self>,
        union: &Union,
        task: &mut Task,
        tag: Tag,
        errno: Errno,
    ) -> Decided<Option<Finished>> {
        if union.answers(tag).is_err() {
            self.in_doubt.push(tag);
        }
        self.stage = Stage::TurningBack(errno);
        self.intent.direction = Some(Direction::Back);
        let intent = self.intent.clone();
        task.phase = Progress::Several(self);
        Err(Stop::Intend(intent))
    }

    /// It has ended.
    fn over(&self, task: &mut Task) {
        let tags = self.intent.steps.iter().map(|step| step.tag);
        let dirs = tags.zip(&self.dirs).flat_map(|(tag, dirs)| dirs.map(|dir| (tag, dir))).collect();
        let (intent, in_doubt) = (self.intent.clone(), self.in_doubt.clone());
        task.intent_over = Some(IntentOver { intent, in_doubt, dirs });
    }
}
