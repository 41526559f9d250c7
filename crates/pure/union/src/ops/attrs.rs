//! Attributes, extended attributes and permissions.

use atoll_core::Ino;
use atoll_posix::{Answer, Errno, Op, perm};

use super::shown::attr_of;
use crate::native::{At, NativeCall, NativeReply, Tag};
use crate::task::{Decided, Finished, Planned, Progress, Stop, Task};
use crate::union::Union;

/// Read, write, and execute or search.
const ALL: u8 = 7;

impl Union {
    /// The homes of a file or directory; the first one is shown.
    fn homes_of(&mut self, task: &mut Task, ino: Ino) -> Decided<Vec<(Tag, At)>> {
        if self.known.dir(ino).is_some() {
            self.fresh_homes(task, ino)?;
            let homes = self.dir(ino)?.homes.iter();
            return Ok(homes.map(|home| (home.tag, At { id: home.id, seen: None })).collect());
        }
        let file = self.known.file(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        Ok(vec![(file.tag, self.known.at(file))])
    }

    /// The shown home of a file or directory.
    pub(crate) fn shown_home(&mut self, task: &mut Task, ino: Ino) -> Decided<(Tag, At)> {
        let homes = self.homes_of(task, ino)?;
        let serving = homes.iter().find(|(tag, _)| self.answers(*tag).is_ok());
        let (tag, at) = serving.unwrap_or(&homes[0]).clone();
        self.answers(tag)?;
        Ok((tag, at))
    }
}

/// If nobody has walked or opened for the caller: what that would have checked.
pub(super) fn check_skipped(union: &mut Union, task: &mut Task) -> Decided<()> {
    if !task.request.options.unchecked || !matches!(task.phase, Progress::Decide) {
        return Ok(());
    }
    let needs = perm::needs(&task.request.op);
    for (ino, check) in needs.into_iter().flatten() {
        let (tag, at) = union.shown_home(task, ino)?;
        let (want, owner) = match check {
            perm::SkippedCheck::Search => (1, false),
            perm::SkippedCheck::List => (4, false),
            perm::SkippedCheck::ListAttributes => (5, false),
            perm::SkippedCheck::Read => (4, true),
            perm::SkippedCheck::Write => (2, true),
        };
        if owner && union.see(task, tag, &at)??.uid == task.request.caller.uid {
            continue;
        }
        match union.has(task, tag, &at, want) {
            // A program is paged in by who may only execute it.
            Err(Stop::Fail(Errno::EACCES)) if check == perm::SkippedCheck::Read => {
                union.has(task, tag, &at, 1)?;
            }
            verdict => verdict?,
        }
    }
    Ok(())
}

pub(super) fn access(union: &mut Union, task: &mut Task, ino: Ino) -> Decided<Finished> {
    let (tag, at) = union.shown_home(task, ino)?;
    match task.access(tag, at.id, ALL) {
        Some(granted) => Ok(Answer::Access { granted: granted? }.into()),
        None => {
            let call = NativeCall::Access { of: at, want: ALL };
            Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
        }
    }
}

/// Reads or changes attributes. A directory changes in all its homes, the shown one first.
pub(super) fn attrs(union: &mut Union, task: &mut Task, ino: Ino) -> Decided<Finished> {
    if let Progress::Then(left) = std::mem::take(&mut task.phase) {
        let (planned, answer) = task.answered();
        return match (answer?, left) {
            (NativeReply::Data(bytes), _) => Ok(Finished { answer: Answer::Data, bytes }),
            (NativeReply::Done | NativeReply::Stat(_), left) if !left.is_empty() => {
                union.next_change(task, left)
            }
            (NativeReply::Done, _) => Ok(Answer::Done.into()),
            (NativeReply::Stat(stat), _) if union.known.dir(ino).is_some() => {
                task.objects.insert((planned.tag, stat.id), Ok(stat));
                let object = union.dir_object(task, ino)?;
                Ok(Answer::Attr { attr: object.attr }.into())
            }
            (NativeReply::Stat(stat), _) => {
                Ok(Answer::Attr { attr: attr_of(ino, &stat, stat.id.btime) }.into())
            }
            _ => Err(Stop::Fail(Errno::EPROTO)),
        };
    }
    let op = task.request.op.clone();
    let homes = match &op {
        Op::GetXattr { .. } | Op::ListXattr { .. } => vec![union.shown_home(task, ino)?],
        _ => union.homes_of(task, ino)?,
    };
    for (tag, _) in &homes {
        union.answers(*tag)?;
    }
    let call = |of: At| match &op {
        Op::SetAttr { set, .. } => NativeCall::SetAttr { of, set: *set },
        Op::SetXattr { name, value, mode, kill_sgid, .. } => {
            let (name, value, mode, kill_sgid) = (name.clone(), value.clone(), *mode, *kill_sgid);
            NativeCall::SetXattr { of, name, value, mode, kill_sgid }
        }
        Op::RemoveXattr { name, .. } => NativeCall::RemoveXattr { of, name: name.clone() },
        Op::GetXattr { name, .. } => NativeCall::GetXattr { of, name: name.clone() },
        _ => NativeCall::ListXattr { of },
    };
    let planned = homes.into_iter().rev().map(|(tag, at)| Planned { tag, who: task.who(), call: call(at) });
    let calls: Vec<Planned> = planned.collect();
    union.next_change(task, calls)
}
