//! Which members have a name, and when it may be said that none has.
//!
//! The absence rule: a name is absent, and a listing has an end, only if every home of the directory is known to lack the
//! rest. A home that cannot be asked makes it `EIO` (its disk is gone) or `ETIMEDOUT` (it hangs).

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_posix::{Errno, Kind};

use crate::dirs::{DirTimes, Home, Part, Section, UnionDir};
use crate::native::{At, NativeCall, NativeId, NativeStat, Tag};
use crate::task::{Decided, Planned, Seen, Stop, Task};
use crate::union::Union;
use crate::view::{AwayRule, MemberState};

/// For how long what a member said of a directory counts, if the member does not tell of changes.
pub(crate) const FRESH_MS: u64 = 100;
/// A change this close before a reading may share its time with one behind it. Some file systems tell whole seconds, or every other
/// one, and those of other machines go by other clocks.
pub(crate) const TICK_NS: u64 = 2_000_000_000;
/// Bytes of names that are asked for at once.
const PORTION_BYTES: u32 = 1 << 20;
/// After so many lookups that asked members, all names of a directory are read,
const ASKED_MAX: usize = 8;
/// and after one more for so many names that it had.
const NAMES_EACH: usize = 16;

/// A member that has a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    /// Which member.
    pub tag: Tag,
    /// The directory there.
    pub dir: NativeId,
    /// Type.
    pub kind: Kind,
    /// Native inode number.
    pub ino: u64,
    /// Its attributes, if this operation has seen them.
    pub stat: Option<NativeStat>,
}

/// What is known of a name.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The members that have it and answer, in the union's order.
    pub places: Vec<Holder>,
    /// Why it cannot be said that no other member has it.
    pub gap: Option<Errno>,
    /// A member that is away had it.
    pub away: bool,
    /// Members that have it, or may have it, and cannot be asked.
    pub unasked: Vec<Tag>,
}

impl Found {
    /// Nothing has this name, which is certain.
    pub(crate) fn is_free(&self) -> bool {
        self.places.is_empty() && self.gap.is_none() && !self.away
    }
}

impl Union {
    /// The error if a member cannot be asked now.
    pub(crate) fn answers(&self, tag: Tag) -> Result<(), Errno> {
        match self.members.get(tag).map(|m| m.state) {
            Some(MemberState::Serving) => Ok(()),
            Some(MemberState::Stuck) => Err(Errno::ETIMEDOUT),
            Some(MemberState::Away) => Err(Errno::EIO),
            None => Err(Errno::ESTALE),
        }
    }

    /// A directory that is known.
    pub(crate) fn dir(&self, ino: Ino) -> Decided<&UnionDir> {
        self.known.dir(ino).ok_or(Stop::Fail(Errno::ESTALE))
    }

    /// Whether all names of a part are known now.
    pub(crate) fn is_sure(&self, task: &Task, dir: &UnionDir, home: &Home) -> bool {
        // What this operation has read counts for it, also if a change since has made it old for others.
        let is_read = |(tag, id, at): &(Tag, NativeId, u64)| {
            (*tag, *id) == (home.tag, home.id) && !dir.questions.is_lost(*at)
        };
        let is_fresh = match home.part {
            Part::Sure { at, racy, .. } => {
                (home.watched && !racy) || self.now.ms.saturating_sub(at) <= FRESH_MS
            }
            Part::Unsure => false,
        };
        is_fresh || task.read.iter().any(is_read)
    }

    /// Makes sure that a directory's homes are those that have it now.
    ///
    /// A member can get the directory, or lose it, by somebody who uses the member directly. So its name is looked at
    /// in every home of the directory above, and so on up to the root, which all members have.
    pub(crate) fn fresh_homes(&mut self, task: &mut Task, ino: Ino) -> Decided<()> {
        if ino == Ino::ROOT {
            return Ok(());
        }
        let dir = self.dir(ino)?;
        if dir.gone {
            return Ok(());
        }
        let answers = |tag: &Tag| self.answers(*tag).is_ok();
        let is_recent = dir.homes_at >= task.began || self.now.ms.saturating_sub(dir.homes_at) <= FRESH_MS;
        if is_recent && !dir.unasked.iter().any(answers) {
            return Ok(());
        }
        let (parent, Some(name)) = (dir.parent, dir.name.clone()) else { return Ok(()) };
        if self.known.dir(parent).is_none() {
            return Ok(()); // Its place is not known; whoever is in it goes on with the homes that it has.
        }
        let found = self.find(task, parent, &name)?;
        self.take_homes(task, parent, &name, &found)?;
        if let Some(dir) = self.known.dir_mut(ino) {
            dir.homes_at = self.now.ms;
        }
        Ok(())
    }

    /// Why a directory may have more homes than are known, and in which members.
    fn more_homes(&self, dir: &UnionDir) -> (Option<Errno>, Vec<Tag>) {
        let why = |tag: Tag| match self.answers(tag) {
            Err(Errno::EIO) if self.settings.away == AwayRule::Hide => None,
            Err(errno) => Some((errno, tag)),
            Ok(()) => Some((Errno::EIO, tag)), // Its answer was an error.
        };
        let (errors, tags): (Vec<Errno>, Vec<Tag>) = dir.unasked.iter().filter_map(|tag| why(*tag)).unzip();
        (errors.first().copied(), tags)
    }

    /// Which members have a name of a directory.
    pub(crate) fn find(&mut self, task: &mut Task, ino: Ino, name: &Name) -> Decided<Found> {
        self.holds.not_moving(task.id, ino, name)?;
        self.fresh_homes(task, ino)?;
        let dir = self.dir(ino)?;
        if dir.gone {
            return Err(Stop::Fail(Errno::ENOENT));
        }
        let (gap, unasked) = self.more_homes(dir);
        let mut found = Found { places: Vec::new(), gap, away: false, unasked };
        let mut calls = Vec::new();
        let kept = dir.names.of(name);
        for home in &dir.homes {
            let there = kept.iter().find(|k| k.tag == home.tag);
            let place = |kind, ino, stat| Holder { tag: home.tag, dir: home.id, kind, ino, stat };
            match (self.answers(home.tag), task.name(home.tag, home.id, name)) {
                (Err(errno), _) => {
                    let is_unsure = dir.is_unsure(home.tag, name);
                    self.assume(home, [there.is_some(), is_unsure], errno, &mut found);
                }
                (Ok(()), Some(Ok(stat))) => found.places.push(place(stat.kind, stat.id.ino, Some(stat))),
                (Ok(()), Some(Err(Errno::ENOENT))) => {}
                (Ok(()), Some(Err(errno))) => {
                    found.gap = Some(errno);
                    found.unasked.push(home.tag);
                }
                (Ok(()), None) if self.is_sure(task, dir, home) && !dir.is_unsure(home.tag, name) => {
                    found.places.extend(there.map(|k| place(k.kind, k.ino, None)));
                }
                (Ok(()), None) => {
                    let call = NativeCall::Look { dir: home.id, name: name.clone() };
                    calls.push(Planned::look(home.tag, call));
                }
            }
        }
        if !calls.is_empty() && self.reads_instead(task, ino)? {
            return self.find(task, ino, name);
        }
        if !calls.is_empty() {
            return Err(Stop::Calls(calls));
        }
        found.places.sort_by_key(|place| self.members.rank(place.tag));
        Ok(found)
    }

    /// Whether all names of a directory were read instead of asking its members for one name more: that is
    /// cheaper when it was done often. Whoever has one file to find does not wait for a large directory to be read.
    fn reads_instead(&mut self, task: &mut Task, ino: Ino) -> Decided<bool> {
        let Some(dir) = self.known.dir_mut(ino) else { return Ok(false) };
        let is_whole = dir.names.section() == Section::behind(0);
        if !is_whole || task.read.iter().any(|(tag, id, _)| dir.home(*tag).is_some_and(|home| home.id == *id))
        {
            return Ok(false);
        }
        dir.asked += 1;
        if dir.asked < ASKED_MAX + dir.names.len() / NAMES_EACH {
            return Ok(false);
        }
        self.read_parts(task, ino, 0)?;
        // What could not be read is asked for one by one.
        if let Some(dir) = self.known.dir_mut(ino) {
            dir.asked = 0;
        }
        Ok(true)
    }

    /// What a member that cannot be asked has of a name.
    fn assume(&self, home: &Home, [had_it, is_unsure]: [bool; 2], errno: Errno, found: &mut Found) {
        let is_hidden = self.settings.away == AwayRule::Hide || planted(Bug::AwayIsEmpty);
        if errno == Errno::EIO && is_hidden {
            return;
        }
        // A disk that is gone is changed by nobody: what was known of it when it went still holds.
        let known = errno == Errno::EIO && matches!(home.part, Part::Sure { racy: false, .. }) && !is_unsure;
        if !known || had_it {
            found.unasked.push(home.tag);
        }
        match (known, had_it) {
            (true, true) => found.away = true,
            (true, false) => {}
            (false, _) => found.gap = Some(errno),
        }
    }

    /// The same with the attributes of each of them.
    pub(crate) fn find_attrs(&mut self, task: &mut Task, ino: Ino, name: &Name) -> Decided<Found> {
        let found = self.find(task, ino, name)?;
        let missing = found.places.iter().filter(|place| place.stat.is_none());
        let call = |place: &Holder| NativeCall::Look { dir: place.dir, name: name.clone() };
        let calls: Vec<Planned> = missing.map(|place| Planned::look(place.tag, call(place))).collect();
        if calls.is_empty() { Ok(found) } else { Err(Stop::Calls(calls)) }
    }

    /// Attributes of an object, as this operation sees them.
    pub(crate) fn see(&self, task: &Task, tag: Tag, at: &At) -> Decided<Seen> {
        match (self.answers(tag), task.object(tag, at.id)) {
            (Err(errno), _) => Ok(Err(errno)),
            (Ok(()), Some(seen)) => Ok(seen),
            (Ok(()), None) => Err(Stop::Calls(vec![Planned::look(tag, NativeCall::Stat { of: at.clone() })])),
        }
    }

    /// Makes every part of a directory known whose member answers, at least the names that follow a cookie. The error of a member
    /// that does not, unless what it had is known.
    pub(crate) fn read_parts(&mut self, task: &mut Task, ino: Ino, after: u64) -> Decided<Option<Errno>> {
        self.fresh_homes(task, ino)?;
        let dir = self.dir(ino)?;
        if dir.gone {
            return Ok(None); // It has no names, and gets none.
        }
        if !dir.names.section().goes_on(after) {
            // One at a time: two that read by turns would never end.
            if dir.section_by.is_some_and(|by| by != task.id && self.is_under_way(by)) {
                return Err(Stop::Wait);
            }
            let homes: Vec<(Tag, NativeId)> = dir.homes.iter().map(|home| (home.tag, home.id)).collect();
            task.read.retain(|(tag, id, _)| !homes.contains(&(*tag, *id)));
            let left = task.reading.extract_if(.., |reading| homes.contains(&(reading.tag, reading.dir)));
            left.for_each(|reading| self.known.asked(reading.ino));
            self.known.restart_names(ino, after, Some(task.id));
        }
        let (mut calls, mut gap) = (Vec::new(), self.more_homes(self.dir(ino)?).0);
        for home in self.dir(ino)?.homes.clone() {
            if let Err(errno) = self.answers(home.tag) {
                // Also if all of its names are known: a program that compares trees must notice that files are missing.
                if errno != Errno::EIO || self.settings.away != AwayRule::Hide {
                    gap = Some(errno);
                }
                continue;
            }
            if self.is_sure(task, self.dir(ino)?, &home) {
                let unsure = self.dir(ino)?.unsure.iter().filter(|(tag, _)| *tag == home.tag);
                let look = |(_, name): &(Tag, Name)| NativeCall::Look { dir: home.id, name: name.clone() };
                calls.extend(unsure.map(|unsure| Planned::look(home.tag, look(unsure))));
                continue;
            }
            if let Some(reading) = task.reading.iter().find(|r| r.tag == home.tag && r.dir == home.id) {
                let call = NativeCall::List { dir: home.id, from: reading.next, bytes: PORTION_BYTES };
                calls.push(Planned::look(home.tag, call));
                continue;
            }
            if let Some(error) = Self::read_failed(task, &home) {
                gap = Some(error);
                continue;
            }
            // Its times may say that nothing has changed since it was read.
            if let Part::Sure { times, racy: false, .. } = home.part {
                match self.see(task, home.tag, &At { id: home.id, seen: None }) {
                    Ok(Ok(stat)) if DirTimes::from(&stat) == times => {
                        // It was seen since this operation began; the other answers may have come late.
                        let part = Part::Sure { times, at: task.began, racy: false };
                        self.known.set_part(ino, home.tag, part);
                        continue;
                    }
                    Ok(_) => {}
                    Err(Stop::Calls(more)) => {
                        calls.extend(more);
                        continue;
                    }
                    Err(stop) => return Err(stop),
                }
            }
            if !home.watched && self.watches {
                calls.push(Planned::look(home.tag, NativeCall::Watch { dir: home.id }));
            }
            let call = NativeCall::List { dir: home.id, from: 0, bytes: PORTION_BYTES };
            calls.push(Planned::look(home.tag, call));
        }
        if calls.is_empty() { Ok(gap) } else { Err(Stop::Calls(calls)) }
    }

    /// Why the reading of a home failed in this operation.
    fn read_failed(task: &Task, home: &Home) -> Option<Errno> {
        let is_home = |(tag, dir, _): &&(Tag, NativeId, Errno)| (*tag, *dir) == (home.tag, home.id);
        task.unread.iter().find(is_home).map(|(.., errno)| *errno)
    }
}
