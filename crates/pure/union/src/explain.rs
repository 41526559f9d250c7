//! What is told of names to people: who has one, which is shown, and where a new one would go. Asks nobody.

use atoll_core::{Ino, Name};
use atoll_posix::{Errno, Kind};

use crate::find::{Found, Holder};
use crate::native::{NativeCall, NativeId, NativeReply, NativeStat, Tag};
use crate::ops::Shown;
use crate::task::Planned;
use crate::union::Union;

/// What of a name a member's file or directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeRole {
    /// This file is shown.
    Shown,
    /// This directory is shown as one with the others.
    Part,
    /// This file is shown beside the one that has the name, under this one.
    Beside(Name),
    /// This file stands behind the one that is shown.
    Behind,
    /// The same, and it is a copy of it: it has the same size and the same time of change.
    Twin,
}

/// What a member has under a name: in this directory there, this.
pub type SeenHome = (Tag, NativeId, NativeStat);

impl Union {
    /// Names of a directory of which several members have something, and not all of them a directory: about `max` of those
    /// behind a cookie, as far as its names are known; and where the next portion begins.
    pub fn names_in_several(&self, dir: Ino, after: u64, max: usize) -> (Vec<Name>, Option<u64>) {
        let (mut names, mut last) = (Vec::new(), after);
        let Some(dir) = self.known().dir(dir) else { return (names, None) };
        for (cookie, name, homes) in dir.names.after(after) {
            if homes.len() < 2 || homes.iter().all(|home| home.kind == Kind::Directory) {
                continue;
            }
            // Names of one cookie stay together.
            if names.len() >= max && cookie != last {
                return (names, Some(last));
            }
            names.push(name.clone());
            last = cookie;
        }
        (names, None)
    }

    /// The members that have a directory, and where; its anchor first. Members that may have it and cannot be asked.
    pub fn dir_homes(&self, dir: Ino) -> (Vec<(Tag, NativeId)>, Vec<Tag>) {
        let Some(dir) = self.known().dir(dir) else { return Default::default() };
        (dir.homes.iter().map(|home| (home.tag, home.id)).collect(), dir.unasked.clone())
    }

    /// What of a name each of these is, in the union's order.
    pub fn roles(&self, name: &Name, seen: &[SeenHome]) -> Vec<(Tag, HomeRole)> {
        let place = |(tag, dir, stat): &SeenHome| Holder {
            tag: *tag,
            dir: *dir,
            kind: stat.kind,
            ino: stat.id.ino,
            stat: Some(*stat),
        };
        let mut places: Vec<Holder> = seen.iter().map(place).collect();
        places.sort_by_key(|place| self.members().rank(place.tag));
        let found = Found { places, gap: None, away: false, unasked: Vec::new() };
        let (shown, beside) = (self.shown(&found), self.beside(&found));
        let same = |one: &NativeStat, other: &NativeStat| {
            one.kind == Kind::Regular
                && other.kind == Kind::Regular
                && (one.size, one.mtime) == (other.size, other.mtime)
        };
        let role = |place: &Holder| match (&shown, place.stat) {
            _ if place.kind == Kind::Directory => HomeRole::Part,
            (Shown::File(first), _) if first.tag == place.tag => HomeRole::Shown,
            _ if beside.iter().any(|beside| beside.tag == place.tag) => {
                HomeRole::Beside(Self::name_beside(name, place))
            }
            (Shown::File(Holder { stat: Some(first), .. }), Some(stat)) if same(first, &stat) => {
                HomeRole::Twin
            }
            _ => HomeRole::Behind,
        };
        found.places.iter().map(|place| (place.tag, role(place))).collect()
    }

    /// The name in the members, if this is one under which a file is shown beside another one.
    pub fn name_beneath(name: &Name) -> Option<Name> {
        Self::parse_beside(name).map(|(base, _)| base)
    }

    /// The members that a new name would go to, best first.
    pub fn place_order(&self, dir: Ino, name: &Name, is_dir: bool) -> Vec<Tag> {
        self.candidates(dir, name, is_dir)
    }

    /// Somebody has changed a name in a member by hand.
    pub fn name_changed(&mut self, dir: Ino, tag: Tag, name: &Name) {
        self.known.hear(dir, tag, name);
    }

    /// A file that somebody removes by hand may be open, if the frontend knows it: the call that has its member hold it open. Its
    /// answer goes to [`Union::holds_open`].
    pub fn to_hold_open(&self, (tag, dir, stat): &SeenHome) -> Option<Planned> {
        let (tag, dir, kind, ino) = (*tag, *dir, stat.kind, stat.id.ino);
        self.keep_open(&Holder { tag, dir, kind, ino, stat: Some(*stat) })
    }

    /// Takes in the answer to that call. A file that cannot be opened goes all the same.
    pub fn holds_open(&mut self, planned: &Planned, answer: &Result<NativeReply, Errno>) {
        self.kept_open(planned, answer);
    }

    /// The call that removes a file by hand, if it is still this one.
    pub fn to_remove((tag, dir, stat): &SeenHome, name: &Name) -> Planned {
        Planned::look(*tag, NativeCall::Unlink { dir: *dir, name: name.clone(), id: stat.id })
    }
}
