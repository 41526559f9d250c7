//! Bytes of files, syncs and space.

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_posix::{Answer, Errno, LockKind, LockRange, Op};

use crate::native::{NativeCall, NativeReply, Tag};
use crate::task::{Decided, Finished, Planned, Progress, Stop, Task};
use crate::union::Union;

/// One call at the file's home; its answer is the operation's.
pub(super) fn data(union: &mut Union, task: &mut Task, ino: Ino) -> Decided<Finished> {
    union.go_on_growing(task)?;
    if let Progress::Changing = task.phase {
        let (planned, outcome) = task.answered();
        if !task.calls.is_empty() {
            let dir = union.known.file(ino).and_then(|file| Some(file.seen.as_ref()?.0));
            synced(union, task, dir)?;
        }
        let was_moved = union.known.file(ino).is_some_and(|file| file.tag != planned.tag);
        let grows = matches!(task.request.op, Op::Write { .. } | Op::Fallocate { .. });
        match outcome {
            Err(Errno::ESTALE) if was_moved => task.decide_anew()?,
            Err(Errno::ENOSPC | Errno::EDQUOT) if grows => task.full = outcome.err(),
            outcome => return answer(outcome?),
        }
        task.phase = Progress::Decide;
    }
    if let Some(full) = task.full {
        union.grow(task, ino, full)?;
    }
    if let (Op::Fsync { .. }, true) = (&task.request.op, union.known.dir(ino).is_some()) {
        return fsync_dir(union, task, ino);
    }
    let file = union.known.file(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
    let (tag, of) = (file.tag, union.known.at(file));
    union.answers(tag)?;
    let call = match task.request.op {
        Op::Readlink { .. } => NativeCall::Readlink { of },
        Op::Read { offset, len, .. } => NativeCall::Read { of, offset, len },
        Op::Write { offset, append, kill_set_id, .. } => {
            union.note_write(ino);
            NativeCall::Write { of, offset, append, kill_set_id }
        }
        Op::Fallocate { offset, len, what, .. } => {
            union.note_write(ino);
            NativeCall::Fallocate { of, offset, len, what }
        }
        Op::Seek { offset, whence, .. } => NativeCall::Seek { of, offset, whence },
        Op::Fsync { .. } => {
            let dir = file.seen.as_ref().map(|(dir, _)| *dir);
            let above = dir.map(|dir| union.unsynced(dir, tag)).unwrap_or_default();
            union.note_sync(ino)?;
            task.phase = Progress::Changing;
            let last = Planned { tag, who: task.who(), call: NativeCall::Fsync { of } };
            return Err(Stop::Calls(above.into_iter().chain([last]).collect()));
        }
        _ => unreachable!("only these are about bytes"),
    };
    task.phase = Progress::Changing;
    Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
}

/// Takes in that the path of a directory was synced.
fn synced(union: &mut Union, task: &mut Task, dir: Option<Ino>) -> Decided<()> {
    let calls = std::mem::take(&mut task.calls);
    let tags =
        calls.into_iter().map(|(planned, answer)| answer.expect("all are answered").map(|_| planned.tag));
    for tag in tags.collect::<Result<Vec<_>, Errno>>()? {
        dir.into_iter().for_each(|dir| union.known.synced(dir, tag, task.homes));
    }
    Ok(())
}

impl Union {
    /// The syncs that a directory's path needs in a member: those of the directories above the ones that were made there for a name.
    pub(crate) fn unsynced(&self, dir: Ino, tag: Tag) -> Vec<Planned> {
        if planted(Bug::ChainUnsynced) {
            return Vec::new();
        }
        let above = self.known.unsynced(dir, tag).into_iter();
        above.map(|dir| Planned::look(tag, NativeCall::FsyncDir { dir })).collect()
    }
}

fn answer(reply: NativeReply) -> Decided<Finished> {
    Ok(match reply {
        NativeReply::Done => Answer::Done.into(),
        NativeReply::Data(bytes) => Finished { answer: Answer::Data, bytes },
        NativeReply::Wrote { len, offset } => Answer::Wrote { len, offset }.into(),
        NativeReply::Offset(offset) => Answer::Offset { offset }.into(),
        NativeReply::Lock(lock) => Answer::Lock { lock }.into(),
        _ => return Err(Stop::Fail(Errno::EPROTO)),
    })
}

/// The member's file system keeps the lock, so it holds against everybody who uses the member. Nobody waits here.
pub(super) fn lock(union: &mut Union, task: &mut Task, ino: Ino, lock: LockRange) -> Decided<Finished> {
    let file = union.known.file(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
    let (tag, of) = (file.tag, union.known.at(file));
    match std::mem::take(&mut task.phase) {
        Progress::Decide => {}
        Progress::Changing => {
            let reply = task.answered().1?;
            if task.given_up && matches!(task.request.op, Op::SetLock { .. }) {
                // Whoever asked does not know of the lock, and so would never let it go.
                let undo = LockRange { kind: LockKind::Unlock, ..lock };
                return union
                    .next_change(task, vec![Planned::look(tag, NativeCall::Lock { of, lock: undo })]);
            }
            return answer(reply);
        }
        Progress::Then(_) | Progress::Several(_) | Progress::Growing(_) => return answer(task.answered().1?),
    }
    union.answers(tag)?;
    let call = match task.request.op {
        Op::GetLock { .. } => NativeCall::TestLock { of, lock },
        _ => NativeCall::Lock { of, lock },
    };
    task.phase = Progress::Changing;
    Err(Stop::Calls(vec![Planned::look(tag, call)]))
}

/// Within a member it is native. Between members the kernel reads and writes.
pub(super) fn copy_range(union: &mut Union, task: &mut Task, from: Ino, to: Ino) -> Decided<Finished> {
    if let Progress::Changing = task.phase {
        return answer(task.answered().1?);
    }
    let Op::CopyRange { from_offset, to_offset, len, .. } = task.request.op else {
        unreachable!("only called for it")
    };
    let source = union.known.file(from).ok_or(Stop::Fail(Errno::ESTALE))?;
    let target = union.known.file(to).ok_or(Stop::Fail(Errno::ESTALE))?;
    if source.tag != target.tag {
        return Err(Stop::Fail(Errno::EXDEV));
    }
    let target_ino = to;
    let (tag, from, to) = (source.tag, union.known.at(source), union.known.at(target));
    union.answers(tag)?;
    union.note_write(target_ino);
    task.phase = Progress::Changing;
    let call = NativeCall::CopyRange { from, from_offset, to, to_offset, len };
    Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
}

/// In all homes. One that is away makes it an error: not all of it is safe.
pub(super) fn fsync_dir(union: &mut Union, task: &mut Task, dir: Ino) -> Decided<Finished> {
    if let Progress::Changing = task.phase {
        synced(union, task, Some(dir))?;
        return Ok(Answer::Done.into());
    }
    let mut calls = Vec::new();
    for home in &union.dir(dir)?.homes {
        union.answers(home.tag)?;
        calls.extend(union.unsynced(dir, home.tag));
        calls.push(Planned::look(home.tag, NativeCall::FsyncDir { dir: home.id }));
    }
    task.phase = Progress::Changing;
    Err(Stop::Calls(calls))
}

/// The sum over the members' file systems, each counted once. A member that is away is left out.
pub(super) fn statfs(union: &mut Union, task: &mut Task) -> Decided<Finished> {
    if let Progress::Changing = task.phase {
        let (mut seen, mut sum) = (Vec::new(), [0; 5]);
        for (_, answer) in task.calls.drain(..) {
            let Some(Ok(NativeReply::Space(space))) = answer else { continue };
            if !seen.contains(&space.fs) {
                seen.push(space.fs);
                let all =
                    [space.bytes, space.bytes_free, space.bytes_available, space.inodes, space.inodes_free];
                sum.iter_mut().zip(all).for_each(|(sum, more)| *sum += more);
            }
        }
        let [bytes, bytes_free, bytes_available, inodes, inodes_free] = sum;
        let fs_id = if seen.len() == 1 { seen[0] } else { 0 };
        return Ok(Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id }.into());
    }
    let serving = union.members.iter().filter(|member| union.answers(member.tag).is_ok());
    let calls: Vec<Planned> = serving.map(|member| Planned::look(member.tag, NativeCall::Space)).collect();
    if calls.is_empty() {
        return Err(Stop::Fail(Errno::EIO));
    }
    task.phase = Progress::Changing;
    Err(Stop::Calls(calls))
}
