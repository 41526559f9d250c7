//! What members answer is taken into what is known here. Never decides an operation.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_posix::Errno;

use crate::dirs::{DirTimes, Gathered, Home, Part, Section, UnionDir};
use crate::find::TICK_NS;
use crate::native::{NativeCall, NativeId, NativeReply, Tag};
use crate::task::{Planned, Reading, Seen, Task};
use crate::union::Union;

impl Union {
    /// Notes that a call asks about names.
    pub(crate) fn ask(&mut self, Planned { tag, call, .. }: &Planned) -> Option<(Ino, u64)> {
        match call {
            NativeCall::OpenDir { dir, .. } | NativeCall::Look { dir, .. } | NativeCall::List { dir, .. } => {
                self.known.ask(*tag, *dir)
            }
            _ => None,
        }
    }

    /// Takes the answers of a task's calls into what is known.
    pub(crate) fn learn(&mut self, task: &mut Task) {
        let mut calls = std::mem::take(&mut task.calls);
        let asked = std::mem::take(&mut task.asked);
        for ((planned, answer), asked) in calls.iter_mut().zip(&asked) {
            let answer = answer.as_mut().expect("all are answered");
            let tag = planned.tag;
            if matches!(answer, Err(Errno::EIO | Errno::ETIMEDOUT)) {
                self.doubt_names(tag, &planned.call);
            }
            match &planned.call {
                NativeCall::OpenDir { dir, name } => {
                    if let Ok(NativeReply::Stat(stat)) = answer {
                        task.opened.push((tag, stat.id));
                    }
                    self.learn_name(task, tag, *dir, name, (seen(answer), *asked));
                }
                NativeCall::Look { dir, name } => {
                    self.learn_name(task, tag, *dir, name, (seen(answer), *asked));
                }
                NativeCall::Stat { of } => _ = task.objects.insert((tag, of.id), seen(answer)),
                NativeCall::Watch { dir } => {
                    let watched = *answer == Ok(NativeReply::Watched(true));
                    if let Some(ino) = self.known.dir_at(tag, dir.ino) {
                        self.known.set_watched(ino, tag, watched);
                    }
                }
                // Names are many: they are taken and not copied. An error stays, for whoever asks why.
                NativeCall::List { dir, .. } => {
                    let told = match answer {
                        Ok(reply) => Ok(std::mem::replace(reply, NativeReply::Done)),
                        Err(errno) => Err(*errno),
                    };
                    self.learn_list(task, tag, *dir, (told, *asked));
                }
                NativeCall::Access { of, want } => {
                    let granted = match answer {
                        Ok(NativeReply::Access(granted)) => Ok(*granted),
                        Ok(_) => Err(Errno::EPROTO),
                        Err(errno) => Err(*errno),
                    };
                    task.access.push(((tag, of.id), *want, granted));
                }
                NativeCall::CopyOf { .. } | NativeCall::MkdirLike { .. } => {
                    self.learn_chain(task, planned, answer);
                }
                NativeCall::Rmdir { .. } if task.unproven.is_some() => {
                    self.learn_chain(task, planned, answer);
                }
                _ => {}
            }
            if let Some((ino, _)) = asked {
                self.known.asked(*ino);
            }
        }
        task.calls = calls;
    }

    /// The directory that was asked about at this count of changes, if it still has this home.
    fn asked_about(&self, tag: Tag, dir: NativeId, asked: Option<(Ino, u64)>) -> Option<(Ino, u64)> {
        let (ino, count) = asked?;
        let there = self.known.dir(ino)?;
        let is_same = there.changes >= count && there.home(tag).is_some_and(|home| home.id == dir);
        is_same.then_some((ino, count))
    }

    /// A change may have been made although its answer was an error: nobody knows what the names mean that it was about.
    fn doubt_names(&mut self, tag: Tag, call: &NativeCall) {
        let [first, second] = match call {
            NativeCall::Make { dir, name, .. }
            | NativeCall::Mkdir { dir, name, .. }
            | NativeCall::MkdirLike { dir, name, .. }
            | NativeCall::Link { dir, name, .. }
            | NativeCall::Unlink { dir, name, .. }
            | NativeCall::Rmdir { dir, name, .. } => [Some((dir, name)), None],
            NativeCall::Rename { dir, name, new_dir, new_name, .. } => {
                [Some((dir, name)), Some((new_dir, new_name))]
            }
            _ => [None, None],
        };
        for (dir, name) in [first, second].into_iter().flatten() {
            if let Some(ino) = self.known.dir_at(tag, dir.ino) {
                self.known.hear(ino, tag, name);
            }
        }
    }

    fn learn_name(
        &mut self,
        task: &mut Task,
        tag: Tag,
        dir: NativeId,
        name: &Name,
        (seen, asked): (Seen, Option<(Ino, u64)>),
    ) {
        if seen == Err(Errno::ENOTDIR) {
            // It was to be opened as a directory. Something else has the name by now, which must be looked at.
            task.names.remove(&(tag, dir, name.clone()));
            if let Some((ino, _)) = self.asked_about(tag, dir, asked) {
                self.known.set_unsure(ino, tag, name);
            }
            return;
        }
        let there = match &seen {
            Ok(stat) => {
                task.objects.insert((tag, stat.id), Ok(*stat));
                Some(Some((stat.kind, stat.id.ino)))
            }
            Err(Errno::ENOENT) => Some(None),
            Err(_) => None,
        };
        if let (Some(what), Some((ino, count))) = (there, self.asked_about(tag, dir, asked)) {
            let is_old = |dir: &UnionDir| {
                dir.questions.is_old(count, tag, name) || dir.has_read_other(count, tag, name, what)
            };
            if self.known.dir(ino).is_some_and(is_old) {
                return self.known.set_unsure(ino, tag, name); // It is asked again.
            }
            self.known.note_name(ino, tag, name, what);
        }
        task.names.insert((tag, dir, name.clone()), seen);
    }

    fn learn_list(
        &mut self,
        task: &mut Task,
        tag: Tag,
        dir: NativeId,
        (answer, asked): (Result<NativeReply, Errno>, Option<(Ino, u64)>),
    ) {
        let at = task.reading.iter().position(|r| r.tag == tag && r.dir == dir);
        let begun = at.map(|at| task.reading.remove(at));
        if let Some(begun) = &begun {
            self.known.asked(begun.ino);
        }
        if let Err(errno) = &answer {
            task.unread.push((tag, dir, *errno));
        }
        let about = self.asked_about(tag, dir, asked);
        let (Some((ino, changes)), Ok(NativeReply::Names { names, next, dir: before })) = (about, answer)
        else {
            return;
        };
        let new = || {
            let section = self.known.dir(ino).map_or(Section::behind(0), |dir| dir.names.section());
            Reading { tag, dir, names: Gathered::new(section), before, ino, changes, next: 0 }
        };
        let mut reading = begun.unwrap_or_else(new);
        reading.names.add(names, self.known.home_bytes_max(ino));
        if let Some(next) = next {
            reading.next = next;
            // All portions are one question.
            self.known.ask(tag, dir);
            task.reading.push(reading);
            return;
        }
        // Another section is wanted by now.
        let section = self.known.dir(ino).map(|dir| dir.names.section());
        if section.is_none_or(|section| section.after != reading.names.section().after) {
            return;
        }
        // A change just before it was read may have its time, and not be in what was read.
        let recent = self.now.wall.nanos_from(reading.before.mtime) < TICK_NS;
        let racy = recent && !self.known.is_watched(ino, tag) && !planted(Bug::TickTrusted);
        // Another listing that was under way at the same time may be older or newer than this one.
        let is_meanwhile = |home: &Home| home.part != Part::Unsure && home.read_at > reading.changes;
        let there = self.known.dir(ino);
        let differs = there.is_some_and(|dir| {
            dir.home(tag).is_some_and(is_meanwhile) && !dir.names.are(tag, &reading.names)
        });
        let old = there.and_then(|dir| dir.questions.old_names(reading.changes, tag));
        let sure = Part::Sure { times: DirTimes::from(&reading.before), at: task.began, racy };
        let part = if old.is_some() && !differs { sure } else { Part::Unsure };
        self.known.read(ino, tag, reading.names, part, self.now.ms);
        for name in old.unwrap_or_default() {
            self.known.set_unsure(ino, tag, &name);
        }
        let now = self.known.dir(ino).map_or(0, |dir| dir.changes);
        task.read.push((tag, dir, now));
    }
}

/// The attributes in an answer.
fn seen(answer: &Result<NativeReply, Errno>) -> Seen {
    match answer {
        Ok(NativeReply::Stat(stat)) => Ok(*stat),
        Ok(_) => Err(Errno::EPROTO),
        Err(errno) => Err(*errno),
    }
}
