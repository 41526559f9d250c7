//! Names that go. The union removes only what it has shown, so another file of that name stays and comes into view.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, Kind};

use super::shown::Shown;
use crate::find::{Found, Holder};
use crate::holds::Held;
use crate::native::{NativeCall, NativeReply, NativeStat};
use crate::task::{Decided, Finished, Planned, Progress, Stop, Task};
use crate::union::Union;
use crate::view::{SameRule, UnlinkRule};

pub(super) fn unlink(union: &mut Union, task: &mut Task, dir: Ino, name: &Name) -> Decided<Finished> {
    union.holds.first(task.id, &[Held { dir, name: Some(name.clone()) }])?;
    if let Some(finished) = union.go_on(task, dir)? {
        return Ok(finished);
    }
    let (found, shown, native) = union.resolve(task, dir, name)?;
    let place = match shown {
        Shown::Nothing => return Err(Stop::Fail(Union::absent(&found))),
        Shown::Dir => return Err(Stop::Fail(Errno::EISDIR)),
        Shown::File(place) => place,
    };
    // What a member that cannot be asked has of this name would come into view: nothing is removed then.
    Union::is_whole(&found)?;
    let Some(stat) = place.stat else {
        let call = NativeCall::Look { dir: place.dir, name: native };
        return Err(Stop::Calls(vec![Planned::look(place.tag, call)]));
    };
    let (place, stat) = union.original(&found, (place, stat));
    let mut going: Vec<Holder> =
        found.places.iter().filter(|p| union.goes_along(p, &stat)).copied().collect();
    going.retain(|other| other.tag != place.tag);
    // The shown one goes last. If this ends in between, nothing that was hidden is shown.
    going.push(place);
    let calls = going.into_iter().filter_map(|place| {
        let id = place.stat?.id;
        let call = NativeCall::Unlink { dir: place.dir, name: native.clone(), id };
        Some(Planned { tag: place.tag, who: task.who(), call })
    });
    let mut calls: Vec<Planned> = calls.collect();
    if !planted(Bug::ShownFirst) {
        calls.reverse();
    }
    calls.extend(union.keep_open(&place));
    calls.extend(union.grave_for(place.tag, place.dir, &native, &stat));
    union.next_change(task, calls)
}

pub(super) fn rmdir(
    union: &mut Union,
    task: &mut Task,
    dir: Ino,
    name: &Name,
    meant: Option<Ino>,
) -> Decided<Finished> {
    if let Progress::Decide = task.phase {
        let (found, shown, _) = union.resolve(task, dir, name)?;
        match shown {
            Shown::Nothing => return Err(Stop::Fail(Union::absent(&found))),
            Shown::File(_) => return Err(Stop::Fail(Errno::ENOTDIR)),
            Shown::Dir => {}
        }
        Union::is_whole(&found)?;
        let ino = union.take_homes(task, dir, name, &found)?.expect("one of them is a directory");
        if meant.is_some_and(|meant| meant != ino) {
            return Err(Stop::Fail(Errno::ESTALE));
        }
        // Nothing is made in it meanwhile.
        let names = [Held { dir, name: Some(name.clone()) }, Held { dir: ino, name: None }];
        union.holds.first(task.id, &names)?;
        // A single home knows itself whether it is empty.
        if union.dir(ino)?.homes.len() > 1 {
            if let Some(errno) = union.read_parts(task, ino, 0)? {
                return Err(Stop::Fail(errno));
            }
            if !union.dir(ino)?.names.is_empty() {
                return Err(Stop::Fail(Errno::ENOTEMPTY));
            }
        }
        // Its anchor goes last: until then it is shown as it was.
        let calls = union.dir(ino)?.homes.iter().filter_map(|home| {
            let above = union.known.dir(dir)?.home(home.tag)?.id;
            let call = NativeCall::Rmdir { dir: above, name: name.clone(), id: home.id };
            Some(Planned { tag: home.tag, who: task.who(), call })
        });
        let calls: Vec<Planned> = calls.collect();
        return union.next_change(task, calls);
    }
    match union.go_on(task, dir)? {
        Some(finished) => Ok(finished),
        None => {
            union.holds.release(task.id);
            rmdir(union, task, dir, name, meant)
        }
    }
}

impl Union {
    /// What goes if this is shown. `mv MOUNT/f MEMBER/` copies the file, and unlinks the name when the copy, which is newer, may be
    /// shown already. So of a copy that came while the union is shown and its original, which was shown until then, the original
    /// goes.
    fn original(&self, found: &Found, shown: (Holder, NativeStat)) -> (Holder, NativeStat) {
        let (copy, stat) = &shown;
        if self.settings.same == SameRule::Both || stat.ctime < self.began {
            return shown;
        }
        let is_original = |(place, other): &(Holder, NativeStat)| {
            place.tag != copy.tag && are_copies(other, stat) && other.ctime < stat.ctime
        };
        let others = found.places.iter().filter_map(|place| Some((*place, place.stat?)));
        others.filter(is_original).max_by_key(|(_, other)| other.ctime).unwrap_or(shown)
    }

    /// Whether another file of the name goes with the shown one: by rule, or because it is a copy of it that was there before
    /// the union began.
    fn goes_along(&self, place: &Holder, shown: &NativeStat) -> bool {
        let Some(stat) = place.stat else { return false };
        let is_file = place.kind != Kind::Directory;
        let is_twin = are_copies(&stat, shown) && stat.ctime < self.began && shown.ctime < self.began;
        let all = self.settings.unlink == UnlinkRule::All || planted(Bug::UnlinkAll);
        is_file && (all || is_twin)
    }

    /// A file that is about to lose its name here may be open, if the frontend knows it: then its member holds it open until
    /// the frontend forgets it.
    pub(crate) fn keep_open(&self, holder: &Holder) -> Option<Planned> {
        let file = self.known.file(self.known.file_ino(holder.tag, holder.ino))?;
        if file.open.is_some() || holder.stat.is_some_and(|stat| stat.id != file.id) {
            return None;
        }
        let of = self.known.at(file);
        Some(Planned::look(
            holder.tag,
            match holder.kind {
                Kind::Regular => NativeCall::Open { of, write: true },
                _ => NativeCall::Hold { of },
            },
        ))
    }

    /// Takes in the answer to [`Union::keep_open`], if that was the call. A file that cannot be opened goes all the same.
    pub(crate) fn kept_open(&mut self, planned: &Planned, answer: &Result<NativeReply, Errno>) -> bool {
        if let Ok(NativeReply::Opened { open, stat }) = answer {
            if matches!(planned.call, NativeCall::Open { write: false, .. }) {
                self.grave_opened(planned.tag, *open, *stat);
                return true;
            }
            self.known.hold_open(planned.tag, stat.id, *open);
        }
        planned.call.holds_open()
    }

    /// Makes the last of these changes, and keeps the others for later.
    pub(crate) fn next_change(&mut self, task: &mut Task, mut left: Vec<Planned>) -> Decided<Finished> {
        match left.pop() {
            Some(next) => {
                task.phase = Progress::Then(left);
                Err(Stop::Calls(vec![next]))
            }
            None => Ok(Answer::Done.into()),
        }
    }

    /// Goes on with changes that were planned, if one of them was made just now. None: it must be decided.
    pub(crate) fn go_on(&mut self, task: &mut Task, dir: Ino) -> Decided<Option<Finished>> {
        let Progress::Then(left) = std::mem::take(&mut task.phase) else { return Ok(None) };
        let (planned, answer) = task.answered();
        match answer {
            answer if self.kept_open(&planned, &answer) => self.next_change(task, left).map(Some),
            Ok(NativeReply::Done) => {
                if let NativeCall::Unlink { name, id, .. } = &planned.call {
                    self.bury(planned.tag, *id, dir, name);
                }
                if let NativeCall::Unlink { name, .. } | NativeCall::Rmdir { name, .. } = &planned.call {
                    self.known.set_name(dir, planned.tag, name, None);
                }
                if let NativeCall::Rmdir { id, .. } = &planned.call {
                    self.known.removed_home(planned.tag, *id);
                }
                let is_last = left.is_empty();
                let removed = matches!(planned.call, NativeCall::Unlink { .. });
                if is_last && removed {
                    return Ok(Some(Answer::Removed { orphan: None }.into()));
                }
                self.next_change(task, left).map(Some)
            }
            Ok(_) => Err(Stop::Fail(Errno::EPROTO)),
            Err(Errno::ESTALE | Errno::ENOENT) => {
                task.decide_anew()?;
                self.known.doubt(dir, planned.tag);
                Ok(None)
            }
            Err(errno) => Err(Stop::Fail(errno)),
        }
    }

    /// The error if not every member that may have the name can be asked.
    pub(crate) fn is_whole(found: &Found) -> Decided<()> {
        match (found.away, found.gap) {
            (_, Some(errno)) => Err(Stop::Fail(errno)),
            (true, None) => Err(Stop::Fail(Errno::EIO)),
            (false, None) => Ok(()),
        }
    }
}

/// Whether two regular files look like copies of one.
fn are_copies(one: &NativeStat, other: &NativeStat) -> bool {
    [one.kind, other.kind] == [Kind::Regular; 2] && (one.size, one.mtime) == (other.size, other.mtime)
}
