//! Listings. An incomplete one gives the names that are known, and then an error instead of an end.

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, DirEntry, Errno, Kind};

use super::shown::Shown;
use crate::dirs::{Cookie, NameHome, Part};
use crate::find::{Found, Holder};
use crate::native::NativeCall;
use crate::task::{Decided, Finished, Planned, Stop, Task};
use crate::union::Union;

/// Bytes of an entry without its name, about.
const ENTRY_BYTES: usize = 32;
/// Bytes of an entry's attributes, about.
const ATTR_BYTES: usize = 128;
/// Most entries in one answer.
const ENTRIES_MAX: usize = 4096;

pub(super) fn read_dir(
    union: &mut Union,
    task: &mut Task,
    dir: Ino,
    cookie: u64,
    bytes: u32,
    plus: bool,
) -> Decided<Finished> {
    let Cookie { after, lacks } = Cookie::of(cookie);
    let gap = union.read_parts(task, dir, after)?.or(lacks.then_some(Errno::EIO));
    // Where the directory is gone, no name is missing.
    let lacks = gap.is_some_and(|errno| ![Errno::ENOENT, Errno::ESTALE].contains(&errno));
    let each = ENTRY_BYTES + if plus { ATTR_BYTES } else { 0 };
    let (mut left, mut cookies, mut batch) = (bytes as usize, 0, Vec::new());
    let mut whole = true;
    let node = union.dir(dir)?;
    for (cookie, name, homes) in node.names.after(after) {
        // What a member that cannot be asked had is listed if that is known to hold.
        let holds = |tag| match node.home(tag) {
            Some(home) if union.answers(tag).is_err() => {
                home.part != Part::Unsure && !node.is_unsure(tag, name)
            }
            home => home.is_some(),
        };
        let homes: Vec<NameHome> = homes.iter().filter(|home| holds(home.tag)).copied().collect();
        if homes.is_empty() {
            continue;
        }
        let size = each + name.as_bytes().len();
        // Names of one cookie stay together.
        if batch.len() >= ENTRIES_MAX || (left < size && !batch.is_empty() && cookie != cookies) {
            whole = false;
            break;
        }
        (left, cookies) = (left.saturating_sub(size), cookie);
        batch.push((cookie, name.clone(), homes));
    }
    let (section, last) = (node.names.section(), batch.last().map_or(after, |(cookie, ..)| *cookie));
    // Behind the section that is kept there are more.
    let behind = if whole { section.to } else { last };
    whole &= section.to == u64::MAX;
    let mut entries = Vec::with_capacity(batch.len());
    let mut calls = Vec::new();
    for (cookie, name, homes) in batch {
        match union.entries(task, dir, cookie, &name, &homes, plus) {
            Ok(more) => entries.extend(more),
            Err(Stop::Calls(more)) => calls.extend(more),
            Err(stop) => return Err(stop),
        }
    }
    if !calls.is_empty() {
        return Err(Stop::Calls(calls));
    }
    // What was to be listed here is gone.
    if entries.is_empty() && !whole {
        let cookie = Cookie { after: behind, lacks };
        return read_dir(union, task, dir, cookie.told(), bytes, plus);
    }
    entries.iter_mut().for_each(|entry| entry.cookie = Cookie { after: entry.cookie, lacks }.told());
    match gap {
        // Nothing is left but what cannot be told.
        Some(errno) if whole && entries.is_empty() => Err(Stop::Fail(errno)),
        gap => Ok(Answer::Entries { entries, eof: whole && gap.is_none() }.into()),
    }
}

impl Union {
    /// The entries that one name makes: itself, and files that are shown beside it.
    fn entries(
        &mut self,
        task: &mut Task,
        dir: Ino,
        cookie: u64,
        name: &Name,
        homes: &[NameHome],
        plus: bool,
    ) -> Decided<Vec<DirEntry>> {
        self.holds.not_moving(task.id, dir, name)?;
        let node = self.dir(dir)?;
        let place = |home: &NameHome| {
            let native = node.home(home.tag)?.id;
            let stat = task.name(home.tag, native, name).and_then(Result::ok);
            Some(Holder { tag: home.tag, dir: native, kind: home.kind, ino: home.ino, stat })
        };
        let mut places: Vec<Holder> = homes.iter().filter_map(place).collect();
        places.sort_by_key(|place| self.members.rank(place.tag));
        let only_file = places.len() == 1 && places[0].kind != Kind::Directory;
        let entry = |name: Name, ino, kind, found| DirEntry { name, ino, kind, cookie, found };
        if !plus && only_file {
            return Ok(vec![entry(
                name.clone(),
                self.known.file_ino(places[0].tag, places[0].ino),
                places[0].kind,
                None,
            )]);
        }
        if !plus && places.len() == 1 {
            let ino = self.known.dir_ino(places[0].tag, places[0].ino);
            return Ok(vec![entry(name.clone(), ino, Kind::Directory, None)]);
        }
        let missing: Vec<Planned> = places
            .iter()
            .filter(|p| task.name(p.tag, p.dir, name).is_none() && self.answers(p.tag).is_ok())
            .map(|p| Planned::look(p.tag, NativeCall::Look { dir: p.dir, name: name.clone() }))
            .collect();
        if !missing.is_empty() {
            return Err(Stop::Calls(missing));
        }
        // What has gone meanwhile is left out; what cannot be asked is listed without attributes.
        places.retain(|p| task.name(p.tag, p.dir, name) != Some(Err(Errno::ENOENT)));
        let found = Found { places, gap: None, away: false, unasked: Vec::new() };
        let mut entries = Vec::with_capacity(1);
        match self.shown(&found) {
            Shown::Nothing => {}
            Shown::Dir => {
                // Only what a member that answers has can be opened.
                let there = self.find(task, dir, name)?;
                let taken = self.take_homes(task, dir, name, &there)?;
                let first = found.places.iter().find(|place| place.kind == Kind::Directory);
                let place = first.expect("one of them is a directory");
                let ino = taken.unwrap_or_else(|| self.known.dir_ino(place.tag, place.ino));
                let object = match taken.filter(|_| plus).map(|ino| self.dir_object(task, ino)) {
                    Some(Ok(object)) => Some(object),
                    Some(Err(Stop::Fail(_))) | None => None,
                    Some(Err(stop)) => return Err(stop),
                };
                entries.push(entry(name.clone(), ino, Kind::Directory, object));
            }
            Shown::File(place) => {
                let object =
                    if place.stat.is_some() { self.file_object(task, dir, name, &place)? } else { None };
                let (ino, kind) = (self.known.file_ino(place.tag, place.ino), place.kind);
                entries.push(entry(name.clone(), ino, kind, object.filter(|_| plus)));
            }
        }
        for place in self.beside(&found) {
            let object = if place.stat.is_some() { self.file_object(task, dir, name, &place)? } else { None };
            let (name, ino) = (Self::name_beside(name, &place), self.known.file_ino(place.tag, place.ino));
            entries.push(entry(name, ino, place.kind, object.filter(|_| plus)));
        }
        Ok(entries)
    }
}
