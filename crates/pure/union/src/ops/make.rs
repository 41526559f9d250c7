//! New names: files, directories, links.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, Kind, Op};

use super::shown::{Shown, attr_of};
use crate::dirs::{DirTimes, File, Home, Part, UnionDir};
use crate::frontend::Told;
use crate::holds::Held;
use crate::native::{At, NativeCall, NativeReply, NativeStat, Tag};
use crate::task::{Decided, Finished, Planned, Progress, Stop, Task};
use crate::union::Union;
use atoll_posix::NamedObject;

/// Errors after which the next member is tried: this one cannot take the name, another one may.
const NEXT: &[Errno] =
    &[Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS, Errno::ENAMETOOLONG, Errno::EIO, Errno::ETIMEDOUT];

pub(super) fn make(union: &mut Union, task: &mut Task, dir: Ino, name: &Name) -> Decided<Finished> {
    union.holds.first(task.id, &[Held { dir, name: Some(name.clone()) }])?;
    if let Progress::Changing = task.phase {
        let (Planned { tag, .. }, answer) = task.answered();
        match answer {
            Ok(NativeReply::Stat(_)) if union.dir(dir)?.home(tag).is_none() => {
                return Err(Stop::Fail(Errno::ESTALE));
            }
            Ok(NativeReply::Stat(stat)) if task.given_up => {
                // Nobody is told of its id, so nobody would have it forgotten.
                union.known.set_name(dir, tag, name, Some((stat.kind, stat.id.ino)));
                return Err(Stop::Fail(Errno::ETIMEDOUT));
            }
            Ok(NativeReply::Stat(stat)) => return union.made(dir, name, tag, &stat),
            Ok(_) => return Err(Stop::Fail(Errno::EPROTO)),
            // A member has something else than was known, or the directory has gone there.
            Err(Errno::EEXIST | Errno::ENOENT | Errno::ESTALE) => {
                task.decide_anew()?;
                union.known.doubt(dir, tag);
                union.known.expire(dir);
            }
            Err(errno) if NEXT.contains(&errno) => {
                task.refused.push((tag, errno));
                task.phase = Progress::Decide;
            }
            Err(errno) => return Err(Stop::Fail(errno)),
        }
    }
    let (found, shown, _) = union.resolve(task, dir, name)?;
    match (&task.request.op, shown) {
        (Op::Create { exclusive: false, .. }, Shown::File(_) | Shown::Dir) => {
            let found = union.object(task, dir, name)?;
            return Ok(Answer::Found { found }.into());
        }
        (_, Shown::File(_) | Shown::Dir) => return Err(Stop::Fail(Errno::EEXIST)),
        (_, Shown::Nothing) if !found.is_free() => return Err(Stop::Fail(Union::absent(&found))),
        (_, Shown::Nothing) => {}
    }
    let tag = union.next_candidate(task, dir, name)?;
    let into = union.chain(task, dir, tag)?;
    let call = match &task.request.op {
        Op::Create { kind, mode, umask, rdev, target, .. } => {
            let (kind, mode, umask, rdev, target) = (*kind, *mode, *umask, *rdev, target.clone());
            NativeCall::Make { dir: into, name: name.clone(), kind, mode, umask, rdev, target }
        }
        Op::Mkdir { mode, umask, .. } => {
            NativeCall::Mkdir { dir: into, name: name.clone(), mode: *mode, umask: *umask }
        }
        _ => unreachable!("only these make a name"),
    };
    task.phase = Progress::Changing;
    Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
}

/// A file without a name, in the member that would take a new name in this directory. Its member holds it open until the frontend
/// forgets it, or gives it a name.
pub(super) fn tmpfile(union: &mut Union, task: &mut Task, dir: Ino) -> Decided<Finished> {
    if let Progress::Then(_) = task.phase {
        return Err(Stop::Fail(Errno::ETIMEDOUT));
    }
    if let Progress::Changing = task.phase {
        let (Planned { tag, .. }, answer) = task.answered();
        match answer {
            Ok(NativeReply::Opened { open, .. }) if task.given_up => {
                return union.next_change(task, vec![Planned::look(tag, NativeCall::Close { open })]);
            }
            Ok(NativeReply::Opened { open, stat }) => {
                let ino = union.known.id_for(tag, stat.id);
                union.known.add_file(
                    ino,
                    File {
                        tag,
                        id: stat.id,
                        seen: None,
                        open: Some(open),
                        told: Told::by(task.frontend),
                        wrote: None,
                    },
                );
                let attr = attr_of(ino, &stat, stat.id.btime);
                return Ok(Answer::Found { found: NamedObject { attr, attr_current: true } }.into());
            }
            Ok(_) => return Err(Stop::Fail(Errno::EPROTO)),
            Err(Errno::ENOENT | Errno::ESTALE) => {
                task.decide_anew()?;
                union.known.expire(dir);
            }
            // Not every file system has such files.
            Err(errno) if NEXT.contains(&errno) || errno == Errno::EOPNOTSUPP => {
                task.refused.push((tag, errno));
                task.phase = Progress::Decide;
            }
            Err(errno) => return Err(Stop::Fail(errno)),
        }
    }
    let Op::Tmpfile { mode, umask, .. } = task.request.op else { unreachable!("only called for it") };
    union.fresh_homes(task, dir)?;
    if union.dir(dir)?.gone {
        return Err(Stop::Fail(Errno::ENOENT));
    }
    // What stands for its name in the rules of placement.
    let name = Name::new(b"tmpfile").expect("a plain name");
    let tag = union.next_candidate(task, dir, &name)?;
    let into = union.chain(task, dir, tag)?;
    task.phase = Progress::Changing;
    let call = NativeCall::Tmpfile { dir: into, mode, umask };
    Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
}

pub(super) fn link(union: &mut Union, task: &mut Task, ino: Ino, dir: Ino, name: &Name) -> Decided<Finished> {
    union.holds.first(task.id, &[Held { dir, name: Some(name.clone()) }])?;
    let file = union.known.file(ino).ok_or(Stop::Fail(Errno::ESTALE))?.clone();
    let tag = file.tag;
    if let Progress::Then(_) = task.phase {
        if let (Planned { call: NativeCall::Close { open }, .. }, Err(_)) = task.answered() {
            union.known.hold_open(tag, file.id, open);
        }
        let stat = task.object(tag, file.id).ok_or(Stop::Fail(Errno::EPROTO))??;
        return union.made(dir, name, tag, &stat);
    }
    if let Progress::Changing = task.phase {
        match task.answered().1 {
            Ok(NativeReply::Stat(stat)) => match union.known.let_go(ino) {
                None => return union.made(dir, name, tag, &stat),
                // It has a name now. As long as it is open for writing, nobody can run it.
                Some(open) => {
                    task.objects.insert((tag, file.id), Ok(stat));
                    let close = NativeCall::Close { open };
                    return union.next_change(task, vec![Planned::look(tag, close)]);
                }
            },
            Ok(_) => return Err(Stop::Fail(Errno::EPROTO)),
            Err(Errno::EEXIST) => {
                task.decide_anew()?;
                union.known.doubt(dir, tag);
            }
            Err(errno) => return Err(Stop::Fail(errno)),
        }
    }
    let (found, shown, _) = union.resolve(task, dir, name)?;
    match shown {
        Shown::File(_) | Shown::Dir => return Err(Stop::Fail(Errno::EEXIST)),
        Shown::Nothing if !found.is_free() => return Err(Stop::Fail(Union::absent(&found))),
        Shown::Nothing => {}
    }
    // The file stays where it is, and its new directory is made there: so this never spans two file systems.
    union.answers(tag)?;
    task.not_refused(tag)?;
    let into = union.chain(task, dir, tag)?;
    task.phase = Progress::Changing;
    let call = NativeCall::Link { of: union.known.at(&file), dir: into, name: name.clone() };
    Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
}

impl Union {
    /// The member that takes the new name of a task: the first one that has not refused it. The last error if all have.
    fn next_candidate(&self, task: &Task, dir: Ino, name: &Name) -> Decided<Tag> {
        let is_dir = matches!(task.request.op, Op::Mkdir { .. });
        let mut candidates = self.candidates(dir, name, is_dir).into_iter();
        let next = candidates.find(|tag| task.refused.iter().all(|(refused, _)| refused != tag));
        next.ok_or_else(|| {
            let mut refused = task.refused.iter().rev().map(|(_, errno)| *errno);
            // A file that stands in the way of the directory in one member says nothing of the new name.
            let last = refused.find(|errno| *errno != Errno::EEXIST);
            // One that does not answer could perhaps.
            let writable = self.members.iter().filter(|member| !member.read_only);
            let silent = || writable.filter_map(|member| self.answers(member.tag).err()).next();
            Stop::Fail(last.or_else(silent).unwrap_or(Errno::EROFS))
        })
    }

    /// A member has made a name.
    fn made(&mut self, dir: Ino, name: &Name, tag: Tag, stat: &NativeStat) -> Decided<Finished> {
        self.known.set_name(dir, tag, name, Some((stat.kind, stat.id.ino)));
        let ino = if stat.kind == Kind::Directory {
            self.made_dir(dir, name, tag, stat)
        } else {
            self.take_file(dir, name, tag, stat)
        };
        let attr = attr_of(ino, stat, stat.id.btime);
        Ok(Answer::Found { found: NamedObject { attr, attr_current: true } }.into())
    }

    /// A new directory has no other home, and no name: nothing needs to be read. Another operation may have found it already.
    fn made_dir(&mut self, parent: Ino, name: &Name, tag: Tag, stat: &NativeStat) -> Ino {
        let ino = self.known.dir_of(tag, stat.id).unwrap_or_else(|| {
            let ino = self.known.id_for_dir(tag, stat.id);
            let part = Part::Sure { times: DirTimes::from(stat), at: self.now.ms, racy: true };
            let homes = vec![Home::new(tag, stat.id, part)];
            self.known.add_dir(ino, UnionDir::new(parent, Some(name.clone()), homes, self.now.ms));
            ino
        });
        self.known.tell_dir(ino, self.frontend);
        ino
    }

    /// Whether the caller has these of read (4), write (2) and search (1). `EACCES` if not.
    pub(crate) fn has(&mut self, task: &mut Task, tag: Tag, at: &At, want: u8) -> Decided<()> {
        match task.access(tag, at.id, want) {
            Some(Ok(granted)) if granted & want == want => Ok(()),
            Some(Ok(_)) => Err(Stop::Fail(Errno::EACCES)),
            Some(Err(errno)) => Err(Stop::Fail(errno)),
            None => {
                let call = NativeCall::Access { of: at.clone(), want };
                Err(Stop::Calls(vec![Planned { tag, who: task.who(), call }]))
            }
        }
    }
}
