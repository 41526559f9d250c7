//! Renames. A file stays in its member: its new directory is made there, and one native rename does it. What several members
//! have is renamed in each (`several`).

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, Kind, Op, RenameMode, SetAttr};

use super::shown::Shown;
use crate::find::{Found, Holder};
use crate::holds::Held;
use crate::native::{At, NativeCall, NativeId, NativeReply, Tag};
use crate::task::{Decided, Finished, Planned, Progress, Stop, Task};
use crate::union::Union;
use crate::view::SameRule;

/// One side of a rename.
#[derive(Debug, Clone)]
pub(super) struct Side {
    pub dir: Ino,
    pub name: Name,
}

/// Held by a rename of a directory to another one, so that two of them never put each below the other. It is held last.
const MOVES_DIRECTORY: Held = Held { dir: Ino(0), name: None };

pub(super) fn rename(union: &mut Union, task: &mut Task) -> Decided<Finished> {
    let Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant } = task.request.op.clone() else {
        unreachable!("only called for it")
    };
    // A file that is shown beside another one has that one's name in its member.
    let name = task.beside.clone().map_or(name, |(native, _)| native);
    let (mut from, to) = (Side { dir, name }, Side { dir: new_dir, name: new_name });
    let held = |side: &Side| Held { dir: side.dir, name: Some(side.name.clone()) };
    union.holds.first(task.id, &[held(&from), held(&to)])?;
    if let Some(finished) = go_on(union, task, &from, &to, mode)? {
        return Ok(finished);
    }
    if let Some(finished) = union.go_on_several(task, [&from, &to])? {
        return Ok(finished);
    }
    let mut found = union.find_attrs(task, from.dir, &from.name)?;
    if found.is_free()
        && let (beside, Shown::File(place), native) = union.resolve(task, from.dir, &from.name)?
    {
        (found, from.name) = (beside, native);
        task.beside = Some((from.name.clone(), place.tag));
    } else if let Some((_, tag)) = task.beside {
        found.places.retain(|place| place.kind != Kind::Directory && place.tag == tag);
    }
    let target = union.find_attrs(task, to.dir, &to.name)?;
    Union::is_whole(&found)?;
    Union::is_whole(&target)?;
    let source = match union.shown(&found) {
        Shown::Nothing => return Err(Stop::Fail(Errno::ENOENT)),
        Shown::Dir => return rename_dir(union, task, &from, &to, [meant, new_meant]),
        Shown::File(place) => place,
    };
    let replaced = match (union.shown(&target), mode) {
        (Shown::Nothing, RenameMode::Exchange) => return Err(Stop::Fail(Errno::ENOENT)),
        (Shown::Nothing, _) => None,
        (_, RenameMode::NoReplace) => return Err(Stop::Fail(Errno::EEXIST)),
        (Shown::Dir, RenameMode::Replace) => return Err(Stop::Fail(Errno::EISDIR)),
        (Shown::Dir, RenameMode::Exchange) => return rename_dir(union, task, &from, &to, [meant, new_meant]),
        (Shown::File(place), _) => Some(place),
    };
    let tag = source.tag;
    if (from.dir, &from.name) == (to.dir, &to.name) {
        if task.beside.is_some() {
            return Err(Stop::Fail(Errno::EOPNOTSUPP)); // It would have to take the place of the shown one.
        }
        return Ok(Answer::Removed { orphan: None }.into());
    }
    // Two names of one file: POSIX has nothing happen.
    if let (Some(other), RenameMode::Replace) = (&replaced, mode)
        && (other.tag, other.ino) == (tag, source.ino)
    {
        return Ok(Answer::Removed { orphan: None }.into());
    }
    if mode == RenameMode::Exchange && replaced.is_some_and(|other| other.tag != tag) {
        return exchange(union, task, [&from, &to], [&found, &target]);
    }
    task.not_refused(tag)?;
    let into = union.chain(task, to.dir, tag)?;
    let there = target.places.iter().find(|place| place.tag == tag);
    let id = |place: &Holder| place.stat.map(|stat| stat.id).ok_or(Stop::Fail(Errno::EIO));
    let followers = followers(union, task, [&from, &to], [&found, &target], tag, mode)?;
    let mut calls = Vec::new();
    // A rename is a change: what has followed would be shown as the newest.
    if !followers.is_empty() && union.settings.same == SameRule::Newest {
        let last = [(&to, Some(source)), (&from, replaced.filter(|_| mode == RenameMode::Exchange))];
        for (side, place) in last {
            let home = union.dir(side.dir)?.home(tag).map(|home| home.id);
            let stat = place.and_then(|place| place.stat).filter(|stat| stat.kind != Kind::Symlink);
            let (Some(stat), Some(home)) = (stat, home) else { continue };
            let of = At { id: stat.id, seen: Some((home, side.name.clone())) };
            let set = SetAttr { mode: Some(stat.mode), ..SetAttr::default() };
            calls.push(Planned::look(tag, NativeCall::SetAttr { of, set }));
        }
    }
    let is_followed = |other: &Holder| followers.iter().any(|planned| planned.tag == other.tag);
    let over = replaced.filter(|other| other.tag != tag && mode == RenameMode::Replace);
    let over = over.filter(|other| !is_followed(other));
    // What stood behind the target would be shown there instead: nobody has asked that it goes.
    let hides = |other: &Holder| {
        let goes = over.is_some_and(|over| over.tag == other.tag) || is_followed(other);
        !goes && union.members.rank(other.tag) < union.members.rank(tag)
    };
    if union.settings.same != SameRule::Newest && target.places.iter().any(hides) {
        return Err(Stop::Fail(Errno::EOPNOTSUPP));
    }
    // Behind the rename, which has decided it: what the target showed goes in other members, and what stood behind the
    // source follows it, so that the old name is gone and nothing that was hidden is shown.
    calls.extend(followers);
    if let Some(other) = over {
        let call = NativeCall::Unlink { dir: other.dir, name: to.name.clone(), id: id(&other)? };
        calls.push(Planned { tag: other.tag, who: task.who(), call });
        calls.extend(union.made_safe(to.dir, tag, into));
    }
    // Others see both names when all of it is made.
    union.holds.set_moving(task.id, !calls.is_empty());
    let sides = [(source.dir, &from), (into, &to)];
    let call = step(sides, id(&source)?, there.map(id).transpose()?, mode);
    calls.push(Planned { tag, who: task.who(), call });
    if mode == RenameMode::Replace {
        calls.extend(replaced.and_then(|holder| union.keep_open(&holder)));
    }
    union.next_change(task, calls)
}

/// One native rename. Natively nothing happens if both are names of one file: then the old one is removed.
fn step(
    [(dir, from), (new_dir, to)]: [(NativeId, &Side); 2],
    id: NativeId,
    new_id: Option<NativeId>,
    mode: RenameMode,
) -> NativeCall {
    let (name, new_name) = (from.name.clone(), to.name.clone());
    if mode != RenameMode::Exchange && new_id == Some(id) {
        return NativeCall::Unlink { dir, name, id };
    }
    let mode = if new_id.is_none() { RenameMode::NoReplace } else { mode };
    NativeCall::Rename { dir, name, id, new_dir, new_name, new_id, mode }
}

/// The renames of what stands behind the files, in the other members.
fn followers(
    union: &mut Union,
    task: &mut Task,
    [from, to]: [&Side; 2],
    [found, target]: [&Found; 2],
    decides: Tag,
    mode: RenameMode,
) -> Decided<Vec<Planned>> {
    let of = |found: &Found, tag| found.places.iter().find(|place| place.tag == tag).copied();
    let moves_back = |place: &&Holder| mode == RenameMode::Exchange && of(found, place.tag).is_none();
    let back = target.places.iter().filter(moves_back).map(|place| (*place, [to, from]));
    let there = found.places.iter().map(|place| (*place, [from, to]));
    let mut calls = Vec::new();
    for (place, [old, new]) in there.chain(back).filter(|(place, _)| place.tag != decides) {
        match task.refused.iter().find(|(refused, _)| *refused == place.tag) {
            Some((_, Errno::EEXIST)) => continue, // A file is in the way of its directory there: it stays.
            // It would be shown under the old name.
            Some((_, errno)) => return Err(Stop::Fail(*errno)),
            None => {}
        }
        let into = union.chain(task, new.dir, place.tag)?;
        let over = if std::ptr::eq(new, to) { of(target, place.tag) } else { None };
        let id = |place: Holder| place.stat.map(|stat| stat.id);
        let own = id(place).ok_or(Stop::Fail(Errno::EIO))?;
        let call = step([(place.dir, old), (into, new)], own, over.and_then(id), mode);
        calls.push(Planned { tag: place.tag, who: task.who(), call });
    }
    Ok(calls)
}

/// Exchanges what lies in several members. What stands behind a file would have to stay behind it in each: that is
/// refused.
fn exchange(union: &mut Union, task: &mut Task, sides: [&Side; 2], found: [&Found; 2]) -> Decided<Finished> {
    let is_plain = |found: &&Found| match found.places.as_slice() {
        [_] => true,
        many => many.iter().all(|place| place.kind == Kind::Directory),
    };
    if task.beside.is_some() || !found.iter().all(is_plain) {
        return Err(Stop::Fail(Errno::EOPNOTSUPP));
    }
    union.rename_several(task, sides, found.map(|found| found.places.as_slice()), RenameMode::Exchange)
}

/// A rename of a directory, or an exchange with one. Where one member has all of it, one native rename does it.
fn rename_dir(
    union: &mut Union,
    task: &mut Task,
    from: &Side,
    to: &Side,
    [meant, new_meant]: [Option<Ino>; 2],
) -> Decided<Finished> {
    let Op::Rename { mode, .. } = task.request.op else { unreachable!("only called for it") };
    if from.dir != to.dir {
        union.holds.more(task.id, &[MOVES_DIRECTORY])?;
    }
    let found = union.find_attrs(task, from.dir, &from.name)?;
    let target = union.find_attrs(task, to.dir, &to.name)?;
    let ino = union.take_homes(task, from.dir, &from.name, &found)?;
    let other = union.take_homes(task, to.dir, &to.name, &target)?;
    if (meant.is_some() && meant != ino) || (new_meant.is_some() && new_meant != other) {
        return Err(Stop::Fail(Errno::ESTALE));
    }
    // A directory does not go into itself.
    if is_below(union, to.dir, ino) || (mode == RenameMode::Exchange && is_below(union, from.dir, other)) {
        return Err(Stop::Fail(Errno::EINVAL));
    }
    match (target.places.first().map(|place| place.kind), mode) {
        (None, RenameMode::Exchange) => return Err(Stop::Fail(Errno::ENOENT)),
        (Some(_), RenameMode::NoReplace) => return Err(Stop::Fail(Errno::EEXIST)),
        (Some(kind), RenameMode::Replace) if other.is_none() || kind != Kind::Directory => {
            return Err(Stop::Fail(Errno::ENOTDIR));
        }
        _ => {}
    }
    if other.is_some() && other == ino {
        return Ok(Answer::Removed { orphan: None }.into());
    }
    // Nothing is made in a directory that is about to be replaced.
    if let (Some(other), RenameMode::Replace) = (other, mode) {
        union.holds.more(task.id, &[Held { dir: other, name: None }])?;
        if let Some(errno) = union.read_parts(task, other, 0)? {
            return Err(Stop::Fail(errno));
        }
        if !union.dir(other)?.names.is_empty() {
            return Err(Stop::Fail(Errno::ENOTEMPTY));
        }
    }
    let is_elsewhere = |place: &Holder| found.places.iter().all(|source| source.tag != place.tag);
    if mode == RenameMode::Exchange && (found.places.len() > 1 || target.places.iter().any(is_elsewhere)) {
        return exchange(union, task, [from, to], [&found, &target]);
    }
    let [source] = found.places.as_slice() else {
        // A file that is shown beside the directory has its name in its member, and keeps it.
        let is_dir = |place: &&Holder| place.kind == Kind::Directory;
        let is_in_the_way = |place: &Holder| place.kind != Kind::Directory && !is_elsewhere(place);
        if target.places.iter().any(is_in_the_way) {
            return Err(Stop::Fail(Errno::ENOTDIR));
        }
        let of = |found: &Found| found.places.iter().filter(is_dir).copied().collect::<Vec<Holder>>();
        return union.rename_several(task, [from, to], [&of(&found), &of(&target)], mode);
    };
    let (here, elsewhere): (Vec<Holder>, Vec<Holder>) =
        target.places.iter().copied().partition(|place| place.tag == source.tag);
    let tag = source.tag;
    task.not_refused(tag)?;
    let new_dir = union.chain(task, to.dir, tag)?;
    let id = source.stat.map(|stat| stat.id).ok_or(Stop::Fail(Errno::EIO))?;
    let new_id = here.first().and_then(|place| place.stat).map(|stat| stat.id);
    let (name, new_name) = (from.name.clone(), to.name.clone());
    // The empty directories that it replaces in other members go behind it.
    let rmdirs = elsewhere.iter().filter_map(|place| {
        let call = NativeCall::Rmdir { dir: place.dir, name: to.name.clone(), id: place.stat?.id };
        Some(Planned { tag: place.tag, who: task.who(), call })
    });
    let mut calls: Vec<Planned> = rmdirs.collect();
    if !calls.is_empty() {
        calls.extend(union.made_safe(to.dir, tag, new_dir));
    }
    union.holds.set_moving(task.id, !calls.is_empty());
    let call = NativeCall::Rename { dir: source.dir, name, id, new_dir, new_name, new_id, mode };
    calls.push(Planned { tag, who: task.who(), call });
    union.next_change(task, calls)
}

/// Whether a directory is another one, or lies below it.
fn is_below(union: &Union, mut at: Ino, above: Option<Ino>) -> bool {
    while let Some(dir) = union.known.dir(at) {
        if Some(at) == above {
            return true;
        }
        if dir.parent == at {
            break;
        }
        at = dir.parent;
    }
    false
}

/// Takes in a change that was made just now, and goes on with the next one.
fn go_on(
    union: &mut Union,
    task: &mut Task,
    from: &Side,
    to: &Side,
    mode: RenameMode,
) -> Decided<Option<Finished>> {
    let Progress::Then(left) = &mut task.phase else { return Ok(None) };
    let mut left = std::mem::take(left);
    task.phase = Progress::Decide;
    let (planned, answer) = task.answered();
    if union.kept_open(&planned, &answer) {
        return union.next_change(task, left).map(Some);
    }
    let (tag, is_first) = (planned.tag, !task.committed);
    match (&planned.call, answer) {
        (NativeCall::Rename { dir, name, .. }, Ok(NativeReply::Done)) => {
            let is_back = mode == RenameMode::Exchange && !is_at(union, from, tag, *dir, name);
            let [old, new] = if is_back { [to, from] } else { [from, to] };
            if let NativeCall::Rename { new_id: Some(replaced), mode: RenameMode::Replace, .. } =
                &planned.call
            {
                union.known.removed_home(tag, *replaced);
            }
            let is_swap = matches!(planned.call, NativeCall::Rename { mode: RenameMode::Exchange, .. });
            let mode = if is_swap { mode } else { RenameMode::NoReplace };
            renamed(union, tag, old, new, mode);
        }
        (NativeCall::SetAttr { .. } | NativeCall::FsyncDir { .. }, Ok(_)) => {}
        // It may be lost, so what it replaces stays.
        (NativeCall::FsyncDir { .. }, Err(_)) => left.retain(|planned| !removes(&planned.call, &to.name)),
        (NativeCall::Unlink { dir, name, .. }, Ok(NativeReply::Done))
            if is_at(union, from, tag, *dir, name) =>
        {
            union.known.moved(tag, (from.dir, &from.name), (to.dir, &to.name), false);
            union.known.set_name(from.dir, tag, &from.name, None);
        }
        (NativeCall::Unlink { .. }, Ok(NativeReply::Done)) => {
            union.known.set_name(to.dir, tag, &to.name, None);
        }
        (NativeCall::Rmdir { id, .. }, Ok(NativeReply::Done)) => {
            union.known.set_name(to.dir, tag, &to.name, None);
            union.known.removed_home(tag, *id);
        }
        (_, Ok(_)) => return Err(Stop::Fail(Errno::EPROTO)),
        (_, Err(Errno::ESTALE | Errno::ENOENT | Errno::EEXIST)) if is_first => {
            task.decide_anew()?;
            union.holds.set_moving(task.id, false);
            [from, to].into_iter().for_each(|side| union.known.doubt(side.dir, tag));
            return Ok(None);
        }
        (_, Err(errno)) if is_first => return Err(Stop::Fail(errno)),
        // It has happened. What could not follow stays where it is and is looked at again.
        (_, Err(_)) => [from, to].into_iter().for_each(|side| union.known.doubt(side.dir, tag)),
    }
    task.committed = true;
    if left.is_empty() {
        return Ok(Some(Answer::Removed { orphan: None }.into()));
    }
    union.next_change(task, left).map(Some)
}

/// Whether a call removes what has this name.
fn removes(call: &NativeCall, meant: &Name) -> bool {
    matches!(call, NativeCall::Unlink { name, .. } | NativeCall::Rmdir { name, .. } if name == meant)
}

impl Union {
    /// Syncs of a new name, the first one last. What it replaces in another member is removed behind them: after a power cut the
    /// one or the other is there.
    pub(super) fn made_safe(&self, dir: Ino, tag: Tag, home: NativeId) -> Vec<Planned> {
        if planted(Bug::ReplacedUnsynced) {
            return Vec::new();
        }
        let mut calls = self.unsynced(dir, tag);
        calls.push(Planned::look(tag, NativeCall::FsyncDir { dir: home }));
        calls.reverse();
        calls
    }
}

/// Whether a name in a directory of a member is this side.
pub(super) fn is_at(union: &Union, side: &Side, tag: Tag, dir: NativeId, name: &Name) -> bool {
    let home = union.known.dir(side.dir).and_then(|node| node.home(tag));
    *name == side.name && home.is_some_and(|home| home.id == dir)
}

/// A native rename was made in a member.
pub(super) fn renamed(union: &mut Union, tag: Tag, from: &Side, to: &Side, mode: RenameMode) {
    let what = |side: &Side| union.known.dir(side.dir)?.known_at(tag, &side.name);
    let (moved, other) = (what(from), what(to));
    let back = if mode == RenameMode::Exchange { other } else { None };
    union.known.moved(tag, (from.dir, &from.name), (to.dir, &to.name), mode == RenameMode::Exchange);
    union.known.set_name(from.dir, tag, &from.name, back);
    union.known.set_name(to.dir, tag, &to.name, moved);
    // A name that was not known by its directory's listing is looked at when it is used.
    for (side, known) in [(to, moved), (from, back)] {
        if known.is_none() {
            union.known.hear(side.dir, tag, &side.name);
        }
    }
}
