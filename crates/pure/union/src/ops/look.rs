//! Looking at names and objects.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, NamedObject};

use super::shown::{Shown, attr_of};
use crate::find::{Found, Holder};
use crate::native::NativeCall;
use crate::task::{Decided, Finished, Planned, Stop, Task};
use crate::union::Union;

impl Union {
    /// Why nothing is found under a name.
    pub(crate) fn absent(found: &Found) -> Errno {
        match (found.away, found.gap) {
            (true, _) => Errno::EIO,
            (false, Some(errno)) => errno,
            (false, None) => Errno::ENOENT,
        }
    }

    /// The file of a place, as the frontend is told of it. None if it is not there any more.
    pub(crate) fn file_object(
        &mut self,
        task: &mut Task,
        dir: Ino,
        name: &Name,
        place: &Holder,
    ) -> Decided<Option<NamedObject>> {
        let seen = match place.stat {
            Some(stat) => Some(Ok(stat)),
            None => task.name(place.tag, place.dir, name),
        };
        match seen {
            None => {
                let call = NativeCall::Look { dir: place.dir, name: name.clone() };
                Err(Stop::Calls(vec![Planned::look(place.tag, call)]))
            }
            Some(Ok(stat)) => {
                let ino = self.take_file(dir, name, place.tag, &stat);
                Ok(Some(NamedObject { attr: attr_of(ino, &stat, stat.id.btime), attr_current: true }))
            }
            Some(Err(Errno::ENOENT)) => Ok(None),
            Some(Err(errno)) => Err(Stop::Fail(errno)),
        }
    }

    /// What is shown under a name, as the frontend is told of it. The error if nothing is.
    pub(crate) fn object(&mut self, task: &mut Task, dir: Ino, name: &Name) -> Decided<NamedObject> {
        let (found, shown, native) = self.resolve(task, dir, name)?;
        match shown {
            Shown::Nothing => Err(Stop::Fail(Self::absent(&found))),
            Shown::Dir => {
                let ino = self.take_homes(task, dir, name, &found)?;
                match self.dir_object(task, ino.expect("one of them is a directory")) {
                    Err(Stop::Fail(Errno::ESTALE)) => {
                        task.decide_anew()?;
                        self.object(task, dir, name)
                    }
                    object => object,
                }
            }
            // A file that a member cannot tell of may be older or newer than this one, and is a directory perhaps.
            Shown::File(_) if found.gap.is_some() && found.places.is_empty() => {
                Err(Stop::Fail(Self::absent(&found)))
            }
            Shown::File(place) => match self.file_object(task, dir, &native, &place)? {
                Some(object) => Ok(object),
                None => {
                    task.decide_anew()?;
                    self.object(task, dir, name)
                }
            },
        }
    }
}

pub(super) fn lookup(union: &mut Union, task: &mut Task, dir: Ino, name: &Name) -> Decided<Finished> {
    let found = union.object(task, dir, name)?;
    Ok(Answer::Found { found }.into())
}

pub(super) fn parent(union: &mut Union, task: &mut Task, dir: Ino) -> Decided<Finished> {
    let parent = union.dir(dir)?.parent;
    let found = union.dir_object(task, parent)?;
    Ok(Answer::Found { found }.into())
}

pub(super) fn getattr(union: &mut Union, task: &mut Task, ino: Ino) -> Decided<Finished> {
    if union.known.dir(ino).is_some() {
        union.fresh_homes(task, ino)?;
        let object = union.dir_object(task, ino)?;
        return Ok(Answer::Attr { attr: object.attr }.into());
    }
    let file = union.known.file(ino).ok_or(Stop::Fail(Errno::ESTALE))?.clone();
    let stat = union.see(task, file.tag, &union.known.at(&file))??;
    debug_assert_eq!(union.known.file_ino(file.tag, stat.id.ino), ino, "an id is made of the native number");
    Ok(Answer::Attr { attr: attr_of(ino, &stat, stat.id.btime) }.into())
}
