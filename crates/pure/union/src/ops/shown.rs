//! Names that several members have: what of them is shown, and how.

use atoll_core::{Ino, Name, Time};
use atoll_posix::{Attr, Errno, Kind, NamedObject};

use crate::dirs::ino_of;
use crate::find::{Found, Holder};
use crate::native::{At, NativeStat, Tag};
use crate::task::{Decided, Stop, Task};
use crate::union::Union;
use crate::view::SameRule;

/// What a name shows.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    /// Nothing.
    Nothing,
    /// The directories of that name, as one.
    Dir,
    /// This file. The others stand behind it.
    File(Holder),
}

/// Attributes as the union shows them.
pub(crate) fn attr_of(ino: Ino, stat: &NativeStat, btime: Time) -> Attr {
    let NativeStat { kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, .. } = *stat;
    Attr { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime }
}

impl Union {
    /// What a name shows. Each place must have its attributes if there are several files.
    pub(crate) fn shown(&self, found: &Found) -> Shown {
        if found.places.iter().any(|place| place.kind == Kind::Directory) {
            return Shown::Dir;
        }
        let files = found.places.iter();
        let file = match self.settings.same {
            // Places are in the union's order, and the last maximum counts.
            // Clocks tick, so two changes may have one time: then the newer content counts.
            SameRule::Newest => {
                files.rev().max_by_key(|place| place.stat.map(|stat| (stat.ctime, stat.mtime)))
            }
            SameRule::First | SameRule::Both => found.places.first(),
        };
        file.map_or(Shown::Nothing, |place| Shown::File(*place))
    }

    /// Files of a name that are shown under other names, beside it.
    pub(crate) fn beside(&self, found: &Found) -> Vec<Holder> {
        let is_dir = found.places.iter().any(|place| place.kind == Kind::Directory);
        let files = found.places.iter().filter(|place| place.kind != Kind::Directory);
        match (is_dir, self.settings.same) {
            (true, _) => files.copied().collect(),
            (false, SameRule::Both) => files.skip(1).copied().collect(),
            (false, _) => Vec::new(),
        }
    }

    /// The name under which a file is shown beside the one that has its name.
    pub(crate) fn name_beside(name: &Name, place: &Holder) -> Name {
        name.beside(ino_of(place.tag, place.ino)).next().expect("there are endless names")
    }

    /// The name that a name of a file beside it is made of, and that file's id.
    pub(crate) fn parse_beside(name: &Name) -> Option<(Name, Ino)> {
        let bytes = name.as_bytes();
        let at = bytes.windows(MARK.len()).rposition(|window| window == MARK)?;
        let digits = std::str::from_utf8(&bytes[at + MARK.len()..]).ok()?;
        let ino = u64::from_str_radix(digits, 16).ok()?;
        Some((Name::new(&bytes[..at]).ok()?, Ino(ino)))
    }

    /// The file that a name leads to, and the name that it has in its member; or that it shows a directory or nothing.
    pub(crate) fn resolve(
        &mut self,
        task: &mut Task,
        dir: Ino,
        name: &Name,
    ) -> Decided<(Found, Shown, Name)> {
        let found = self.find(task, dir, name)?;
        let several = found.places.len() > 1;
        let found = if several { self.find_attrs(task, dir, name)? } else { found };
        let shown = self.shown(&found);
        if matches!(shown, Shown::Nothing)
            && let Some((base, ino)) = Self::parse_beside(name)
        {
            let there = self.find_attrs(task, dir, &base)?;
            let place = self.beside(&there).into_iter().find(|p| ino_of(p.tag, p.ino) == ino);
            if let Some(place) = place {
                let only = Found { places: vec![place], gap: None, away: false, unasked: Vec::new() };
                return Ok((only, Shown::File(place), base));
            }
        }
        Ok((found, shown, name.clone()))
    }

    /// What a directory's homes look like, each seen by this operation. The member of the first one is shown.
    pub(crate) fn dir_stats(&mut self, task: &mut Task, ino: Ino) -> Decided<(Vec<(Tag, NativeStat)>, bool)> {
        let homes = self.dir(ino)?.homes.clone();
        let (mut stats, mut calls, mut whole, mut error) = (Vec::new(), Vec::new(), true, None);
        for home in &homes {
            if let Err(errno) = self.answers(home.tag) {
                (whole, error) = (false, error.or(Some(errno)));
                continue;
            }
            match self.see(task, home.tag, &At { id: home.id, seen: None }) {
                Ok(Ok(stat)) => stats.push((home.tag, stat)),
                Ok(Err(errno)) => {
                    (whole, error) = (false, error.or(Some(errno)));
                    // Listings tell numbers only, and another directory may have this one's by now.
                    let node = self.dir(ino)?;
                    if let (Errno::ESTALE, parent, Some(name)) = (errno, node.parent, node.name.clone()) {
                        self.known.set_unsure(parent, home.tag, &name);
                    }
                }
                Err(Stop::Calls(more)) => calls.extend(more),
                Err(stop) => return Err(stop),
            }
        }
        if !calls.is_empty() {
            return Err(Stop::Calls(calls));
        }
        if stats.is_empty() {
            return Err(Stop::Fail(error.unwrap_or(Errno::ESTALE)));
        }
        Ok((stats, whole))
    }

    /// A directory as it is shown: its anchor's attributes, the greatest times, the sums of sizes.
    pub(crate) fn dir_object(&mut self, task: &mut Task, ino: Ino) -> Decided<NamedObject> {
        let (stats, attr_current) = self.dir_stats(task, ino)?;
        self.known.tell_dir(ino, task.frontend);
        let (_, anchor) = stats[0];
        let mut attr = attr_of(ino, &anchor, anchor.id.btime);
        let more = &stats[1..];
        for (_, stat) in more {
            attr.mtime = attr.mtime.max(stat.mtime);
            attr.ctime = attr.ctime.max(stat.ctime);
            attr.size += stat.size;
            attr.blocks += stat.blocks;
        }
        // A subdirectory in several members counts several times: too many never hides one from a program that stops
        // looking for them.
        if !more.is_empty() && attr.nlink >= 2 {
            attr.nlink += more.iter().map(|(_, stat)| stat.nlink.saturating_sub(2)).sum::<u32>();
        }
        Ok(NamedObject { attr, attr_current })
    }
}

/// What stands between a file's name and its id, if it is shown beside another one ([`Name::beside`]).
const MARK: &[u8] = b".atoll-";
