//! What is known of directories and files: which members have them, and the names of directories that were read.
//!
//! Everything here can be lost and is then asked for again. Never says that a name is free: that is `find`'s.

mod bounds;
mod gone;
mod ids;
mod names;
mod roster;

use std::collections::{BTreeSet, VecDeque};

use atoll_core::{IdMap, Ino, Name, Time};
use atoll_posix::Kind;
use bytes::Bytes;

use crate::frontend::{FrontendId, Told};
use crate::native::{At, NativeId, NativeStat, Tag};
use crate::questions::Questions;
pub use bounds::{DIR_NAMES_BYTES_MAX, NAMES_BYTES_MAX, NamesMax};
use ids::Ids;
pub(crate) use names::{Cookie, DirNames, Gathered, NameHome, Section};

/// Number of bits of a native inode number in an id.
const NATIVE_BITS: u32 = 48;

/// The id of the object with this native inode number in this member.
pub fn ino_of(tag: Tag, native: u64) -> Ino {
    let low = if native < 1 << (NATIVE_BITS - 1) {
        native
    } else {
        // Foreign file systems number as they like. Such numbers are folded into the upper half.
        (1 << (NATIVE_BITS - 1)) | (native.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (65 - NATIVE_BITS))
    };
    Ino((u64::from(tag.0) << NATIVE_BITS) | low)
}

/// The member of a file with this id.
pub fn tag_of(file: Ino) -> Tag {
    Tag((file.0 >> NATIVE_BITS) as u16)
}

/// A point in the machine's time: milliseconds.
pub type Tick = u64;

/// What makes a directory's content the same as when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirTimes {
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl From<&NativeStat> for DirTimes {
    fn from(stat: &NativeStat) -> Self {
        Self { mtime: stat.mtime, ctime: stat.ctime }
    }
}

/// What is known of a directory's names in one of its homes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// They must be asked for.
    Unsure,
    /// All of them are known.
    Sure {
        /// Its times when it was read.
        times: DirTimes,
        /// When that was seen to hold last.
        at: Tick,
        /// A change may have come with the reading that does not show in the times. So they do not tell whether what was
        /// read still holds.
        racy: bool,
    },
}

/// A member that has the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Which member.
    pub tag: Tag,
    /// The directory there.
    pub id: NativeId,
    /// What is known of its names there.
    pub part: Part,
    /// The member tells of changes of its names.
    pub watched: bool,
    /// How many homes were known when this one became known.
    pub number: u64,
    /// The directory's count of changes when it told the names that are known.
    pub read_at: u64,
    /// It was made here for a name of a user, and the directory above may not be safe with its name.
    pub unsynced: bool,
}

impl Home {
    /// One whose changes nobody tells of yet.
    pub const fn new(tag: Tag, id: NativeId, part: Part) -> Self {
        Self { tag, id, part, watched: false, number: 0, read_at: 0, unsynced: false }
    }
}

/// A directory of the union.
#[derive(Debug, Clone)]
pub struct UnionDir {
    /// The directory above; its own id for the root.
    pub parent: Ino,
    /// Its name there, as it was seen last. None for the root.
    pub name: Option<Name>,
    /// The members that have it. The first one is its anchor: its attributes are shown.
    pub homes: Vec<Home>,
    /// When it was seen last that exactly these have it.
    pub homes_at: Tick,
    /// Members that may have it too and could not be asked then.
    pub unasked: Vec<Tag>,
    /// This union has removed it: it has no name any more, and its homes are empty. It gets no names.
    pub gone: bool,
    /// The names in those homes whose part is [`Part::Sure`], or the section of them that is kept.
    pub names: DirNames,
    /// Lookups that had to ask members, since its names were read last.
    pub asked: usize,
    /// The operation that has chosen the section of names that is read.
    pub section_by: Option<u64>,
    /// When its names were used last.
    pub used: Tick,
    /// Names that a member has told a change of, which must be looked at there.
    pub unsure: BTreeSet<(Tag, Name)>,
    /// Counts changes of its names that were seen, and questions about them.
    pub changes: u64,
    /// Questions under way about its names.
    pub(crate) questions: Questions,
    /// How many directories in it are known.
    children: u32,
    /// The frontends that were told of it, and have not forgotten it.
    told: Told,
}

/// Most names of a directory that are looked at one by one. If more are unsure, all are read again.
const UNSURE_MAX: usize = 256;

impl UnionDir {
    /// A directory with these homes, its anchor first, of whose names nothing is known.
    pub fn new(parent: Ino, name: Option<Name>, homes: Vec<Home>, now: Tick) -> Self {
        let (names, unsure) = (DirNames::default(), BTreeSet::new());
        let (unasked, gone, children) = (Vec::new(), false, 0);
        let (told, questions) = (Told::default(), Questions::default());
        let (asked, section_by, used) = (0, None, now);
        Self {
            parent,
            name,
            homes,
            homes_at: now,
            unasked,
            gone,
            names,
            asked,
            section_by,
            used,
            unsure,
            changes: 0,
            questions,
            children,
            told,
        }
    }

    /// Where it is in a member.
    pub fn home(&self, tag: Tag) -> Option<&Home> {
        self.homes.iter().find(|home| home.tag == tag)
    }

    fn home_mut(&mut self, tag: Tag) -> Option<&mut Home> {
        self.homes.iter_mut().find(|home| home.tag == tag)
    }

    /// Whether this name must be looked at in a member: the member has told of a change, or the name is not among those that are
    /// kept.
    pub fn is_unsure(&self, tag: Tag, name: &Name) -> bool {
        (!self.unsure.is_empty() && self.unsure.contains(&(tag, name.clone()))) || !self.names.keeps(name)
    }

    /// Whether a listing that was told after this count of changes says something else of a name than this. Which of two answers
    /// that were under way at one time is older is not known.
    pub(crate) fn has_read_other(
        &self,
        asked: u64,
        tag: Tag,
        name: &Name,
        what: Option<(Kind, u64)>,
    ) -> bool {
        let is_later = |home: &Home| home.part != Part::Unsure && home.read_at > asked;
        self.home(tag).is_some_and(is_later) && self.names.keeps(name) && self.known_at(tag, name) != what
    }

    /// What is known of a name in a home: its type and native inode number.
    pub(crate) fn known_at(&self, tag: Tag, name: &Name) -> Option<(Kind, u64)> {
        self.names.of(name).iter().find(|home| home.tag == tag).map(|home| (home.kind, home.ino))
    }

    /// The home whose attributes are shown.
    pub fn anchor(&self) -> &Home {
        self.homes.first().expect("a directory that is known has a home")
    }
}

/// A file that a frontend knows.
#[derive(Debug, Clone)]
pub struct File {
    /// The member that has it.
    pub tag: Tag,
    /// The file there.
    pub id: NativeId,
    /// The directory and the name at which it was seen last. None if it came by a handle.
    pub seen: Option<(Ino, Name)>,
    /// It is held open, because it may be open somewhere and has lost its name.
    pub open: Option<u64>,
    /// The frontends that were told of it, and have not forgotten it.
    pub told: Told,
    /// If bytes of it were changed: its member, and that one's losses when it was last known that none was lost.
    pub wrote: Option<(Tag, u64)>,
}

/// All directories and files that are known.
#[derive(Debug, Default)]
pub struct Known {
    dirs: IdMap<Ino, UnionDir>,
    files: IdMap<Ino, File>,
    by_home: IdMap<(Tag, u64), Ino>,
    /// Homes that are not asked for any more, of which the members were not told yet.
    left: Vec<(Tag, NativeId)>,
    /// Opens for which nobody waits, of which the members were not told yet.
    unneeded: Vec<(Tag, u64)>,
    /// The memory that names take, about.
    names_bytes: usize,
    names_max: NamesMax,
    ids: Ids,
    /// Handles of files that were moved to another member, with those that they have there. The oldest first.
    moved_handles: VecDeque<[(Tag, Bytes); 2]>,
    /// Directories that have no name any more, and that a frontend knows.
    gone: Vec<Ino>,
    /// Homes that became known so far.
    homes: u64,
}

impl Known {
    /// Adds a directory with its homes, its anchor first.
    pub fn add_dir(&mut self, ino: Ino, mut dir: UnionDir) {
        self.homes += 1;
        self.names_bytes += dir.names.bytes();
        for home in &mut dir.homes {
            home.number = self.homes;
            self.by_home.insert((home.tag, home.id.ino), ino);
        }
        self.count_child(ino, dir.parent, 1);
        self.dirs.insert(ino, dir);
    }

    /// A directory that is known.
    pub fn dir(&self, ino: Ino) -> Option<&UnionDir> {
        self.dirs.get(&ino)
    }

    /// The same, to change what is known of it, but not its homes.
    pub fn dir_mut(&mut self, ino: Ino) -> Option<&mut UnionDir> {
        self.dirs.get_mut(&ino)
    }

    /// The directory that has this home.
    pub fn dir_at(&self, tag: Tag, native: u64) -> Option<Ino> {
        self.by_home.get(&(tag, native)).copied()
    }

    /// A directory has one more home.
    pub fn add_home(&mut self, ino: Ino, mut home: Home) {
        self.homes += 1;
        home.number = self.homes;
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        match dir.homes.iter_mut().find(|h| h.tag == home.tag) {
            Some(old) if old.id == home.id => {}
            Some(old) => {
                let left = std::mem::replace(old, home);
                self.leave_home(ino, &left);
            }
            None => dir.homes.push(home),
        }
        self.by_home.insert((home.tag, home.id.ino), ino);
    }

    /// What must be synced in a member for the path of a directory to be safe: the directories above those that were made for a
    /// name of a user, from the top.
    pub(crate) fn unsynced(&self, mut ino: Ino, tag: Tag) -> Vec<NativeId> {
        let mut above = Vec::new();
        while let Some(dir) = self.dirs.get(&ino)
            && dir.home(tag).is_some_and(|home| home.unsynced)
        {
            above.extend(self.dirs.get(&dir.parent).and_then(|parent| parent.home(tag)).map(|home| home.id));
            ino = dir.parent;
        }
        above.reverse();
        above
    }

    /// What [`Known::unsynced`] has told is synced, by whoever began when so many homes were known.
    pub(crate) fn synced(&mut self, mut ino: Ino, tag: Tag, homes: u64) {
        while let Some(dir) = self.dirs.get_mut(&ino)
            && let Some(home) = dir.homes.iter_mut().find(|home| home.tag == tag && home.unsynced)
        {
            home.unsynced = home.number > homes;
            ino = dir.parent;
        }
    }

    /// How many homes became known so far.
    pub(crate) fn homes(&self) -> u64 {
        self.homes
    }

    /// A directory does not have this home any more. Its last home stays: whoever is in it may go on.
    pub fn drop_home(&mut self, ino: Ino, tag: Tag) {
        let Some(dir) = self.dirs.get_mut(&ino).filter(|dir| dir.homes.len() > 1) else { return };
        let Some(at) = dir.homes.iter().position(|h| h.tag == tag) else { return };
        let home = dir.homes.remove(at);
        self.change_names(ino, |dir| dir.names.remove_member(tag));
        self.leave_home(ino, &home);
    }

    /// A home of a directory is not used any more.
    fn leave_home(&mut self, ino: Ino, home: &Home) {
        let place = (home.tag, home.id.ino);
        // Another directory may have got the number since.
        if self.by_home.get(&place) == Some(&ino) {
            self.by_home.remove(&place);
        }
        self.left.push((home.tag, home.id));
    }

    fn count_child(&mut self, ino: Ino, parent: Ino, by: i32) {
        if let Some(above) = self.dirs.get_mut(&parent).filter(|_| parent != ino) {
            above.children = above.children.saturating_add_signed(by);
        }
    }

    /// A directory is found under this name now.
    pub fn set_place(&mut self, ino: Ino, parent: Ino, name: &Name) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        dir.name = Some(name.clone());
        let before = std::mem::replace(&mut dir.parent, parent);
        if before != parent {
            self.count_child(ino, before, -1);
            self.count_child(ino, parent, 1);
        }
    }

    /// A frontend is told of a directory.
    pub fn tell_dir(&mut self, ino: Ino, frontend: FrontendId) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.told.add(Told::by(frontend));
        }
    }

    /// A frontend has forgotten it.
    pub fn untell_dir(&mut self, ino: Ino, frontend: FrontendId) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.told.forget(frontend);
        }
    }

    /// Forgets a directory that no frontend knows and below which none is known, and those above it of which that is true then.
    pub fn prune(&mut self, mut ino: Ino) {
        while let Some(dir) = self.dirs.get(&ino)
            && ino != Ino::ROOT
            && dir.told.is_nobody()
            && dir.children == 0
        {
            let above = dir.parent;
            self.forget_dir(ino);
            ino = above;
        }
    }

    /// An operation has opened a directory in a member and does not go on. It need not stay open, if nothing that is known has it.
    pub(crate) fn leave_opened(&mut self, tag: Tag, id: NativeId) {
        if self.dir_of(tag, id).is_none() && !self.is_gone_home(tag, id) {
            self.left.push((tag, id));
        }
    }

    /// Homes that members need not keep open any more. Each is told once.
    pub fn take_left(&mut self) -> Vec<(Tag, NativeId)> {
        let mut left = std::mem::take(&mut self.left);
        left.retain(|(tag, id)| self.dir_of(*tag, *id).is_none());
        left
    }

    /// Directories that no frontend knows.
    pub fn untold(&self) -> Vec<Ino> {
        self.dirs.iter().filter(|(_, dir)| dir.told.is_nobody()).map(|(ino, _)| *ino).collect()
    }

    /// How many directories are known.
    pub fn dirs_len(&self) -> usize {
        self.dirs.len()
    }

    /// Forgets a directory.
    pub fn forget_dir(&mut self, ino: Ino) {
        let Some(dir) = self.dirs.remove(&ino) else { return };
        self.names_bytes -= dir.names.bytes();
        self.count_child(ino, dir.parent, -1);
        for home in &dir.homes {
            self.leave_home(ino, home);
        }
        if !dir.gone {
            self.keep_id_of_dir(ino, &dir.homes);
        }
    }

    /// What is known of a directory's names in a home.
    pub fn set_part(&mut self, ino: Ino, tag: Tag, part: Part) {
        if let Some(home) = self.dirs.get_mut(&ino).and_then(|dir| dir.home_mut(tag)) {
            home.part = part;
        }
    }

    /// Whether a member tells of changes of a directory.
    pub fn is_watched(&self, ino: Ino, tag: Tag) -> bool {
        self.dirs.get(&ino).and_then(|dir| dir.home(tag)).is_some_and(|home| home.watched)
    }

    /// In how many directories a member's names are known, and tell of changes; and in how many its times are compared.
    pub fn noticed(&self, tag: Tag) -> [u64; 2] {
        let homes =
            self.dirs.values().filter_map(|dir| dir.home(tag)).filter(|home| home.part != Part::Unsure);
        homes.fold([0, 0], |[watched, checked], home| match home.watched {
            true => [watched + 1, checked],
            false => [watched, checked + 1],
        })
    }

    /// A member tells of changes of a directory from now on, or does not.
    pub fn set_watched(&mut self, ino: Ino, tag: Tag, watched: bool) {
        if let Some(home) = self.dirs.get_mut(&ino).and_then(|dir| dir.home_mut(tag)) {
            home.watched = watched;
        }
    }

    /// A name in a home was seen to be this, or nothing.
    pub fn note_name(&mut self, ino: Ino, tag: Tag, name: &Name, what: Option<(Kind, u64)>) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.home(tag).is_none_or(|home| home.part == Part::Unsure) {
            return;
        }
        dir.unsure.remove(&(tag, name.clone()));
        if dir.known_at(tag, name) != what {
            dir.changes += 1;
            dir.questions.changed(dir.changes, tag, name);
            self.change_names(ino, |dir| dir.names.set(tag, name, what));
        }
    }

    /// A name in a home was made to be this, or nothing.
    pub fn set_name(&mut self, ino: Ino, tag: Tag, name: &Name, what: Option<(Kind, u64)>) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        dir.unsure.remove(&(tag, name.clone()));
        dir.changes += 1;
        dir.questions.changed(dir.changes, tag, name);
        if dir.home(tag).is_some_and(|home| home.part != Part::Unsure) {
            self.change_names(ino, |dir| dir.names.set(tag, name, what));
        }
    }

    /// A member tells that a name may mean something else now.
    pub fn hear(&mut self, ino: Ino, tag: Tag, name: &Name) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        dir.changes += 1;
        dir.questions.changed(dir.changes, tag, name);
        self.set_unsure(ino, tag, name);
    }

    /// A name must be looked at when it is used.
    pub(crate) fn set_unsure(&mut self, ino: Ino, tag: Tag, name: &Name) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.home(tag).is_some_and(|home| home.part != Part::Unsure) {
            dir.unsure.insert((tag, name.clone()));
            if dir.unsure.len() > UNSURE_MAX {
                self.doubt(ino, tag);
            }
        }
    }

    /// A question about the names of a home is under way. The directory, and its count of changes.
    pub(crate) fn ask(&mut self, tag: Tag, dir: NativeId) -> Option<(Ino, u64)> {
        let ino = self.dir_at(tag, dir.ino)?;
        let there = self.dirs.get_mut(&ino)?;
        there.questions.begin();
        there.changes += 1;
        Some((ino, there.changes))
    }

    /// It is answered, or is not asked any more.
    pub(crate) fn asked(&mut self, ino: Ino) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.questions.end();
        }
    }

    /// Nothing that is known of a member's names counts any more.
    pub fn doubt_member(&mut self, tag: Tag) {
        for dir in self.dirs.values_mut() {
            if let Some(home) = dir.home_mut(tag) {
                (home.part, home.watched) = (Part::Unsure, false);
            }
            dir.changes += 1;
            dir.questions.all_changed(dir.changes);
        }
    }

    /// Which members have a directory must be asked again, and all the way up.
    pub fn expire(&mut self, mut ino: Ino) {
        while let Some(dir) = self.dirs.get_mut(&ino) {
            dir.homes_at = 0;
            if dir.parent == ino {
                break;
            }
            ino = dir.parent;
        }
    }

    /// A member has gone. What its feed would not have told may have changed just before.
    pub fn member_gone(&mut self, tag: Tag) {
        for home in self.dirs.values_mut().filter_map(|dir| dir.home_mut(tag)) {
            if !home.watched {
                home.part = Part::Unsure;
            }
        }
    }

    /// Nothing that is known of a directory's names in a home counts any more.
    pub fn doubt(&mut self, ino: Ino, tag: Tag) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.changes += 1;
            dir.questions.all_changed(dir.changes);
            dir.unsure.retain(|(of, _)| *of != tag);
            if let Some(home) = dir.home_mut(tag) {
                home.part = Part::Unsure;
            }
        }
    }

    /// A frontend is told of a file.
    pub fn add_file(&mut self, ino: Ino, mut file: File) {
        if let Some(known) = self.files.get(&ino).filter(|known| known.id == file.id) {
            file.open = known.open;
            file.told.add(known.told);
            file.wrote = known.wrote;
        }
        self.files.insert(ino, file);
    }

    /// A file that is about to lose a name is held open by its member.
    pub fn hold_open(&mut self, tag: Tag, id: NativeId, open: u64) {
        let ino = self.file_ino(tag, id.ino);
        match self.files.get_mut(&ino).filter(|file| (file.tag, file.id, file.open) == (tag, id, None)) {
            Some(file) => file.open = Some(open),
            // Every frontend has forgotten it meanwhile.
            None => self.unneeded.push((tag, open)),
        }
    }

    /// Opens that members need not keep. Each is told once.
    pub(crate) fn take_unneeded(&mut self) -> Vec<(Tag, u64)> {
        std::mem::take(&mut self.unneeded)
    }

    /// Bytes of it are about to change, or were synced while its member's losses were these.
    pub fn note_write(&mut self, ino: Ino, losses: u64, synced: bool) {
        if let Some(file) = self.files.get_mut(&ino)
            && (file.wrote.is_none() || synced)
        {
            file.wrote = Some((file.tag, losses));
        }
    }

    /// A file that was held open has a name again: what its member need not keep open.
    pub fn let_go(&mut self, ino: Ino) -> Option<u64> {
        self.files.get_mut(&ino)?.open.take()
    }

    /// A file that a frontend knows.
    pub fn file(&self, ino: Ino) -> Option<&File> {
        self.files.get(&ino)
    }

    /// The directory that has this home.
    pub(crate) fn dir_of(&self, tag: Tag, id: NativeId) -> Option<Ino> {
        let ino = self.dir_at(tag, id.ino)?;
        self.dir(ino)?.home(tag).filter(|home| home.id == id).map(|_| ino)
    }

    /// The id of a directory with this native number in a member, also if it is not known.
    pub(crate) fn dir_ino(&self, tag: Tag, native: u64) -> Ino {
        self.dir_at(tag, native).unwrap_or_else(|| self.file_ino(tag, native))
    }

    /// Where to find a file or directory with this identity in a member. None if it is not known.
    pub fn object_at(&self, tag: Tag, id: NativeId) -> Option<At> {
        if self.dir_of(tag, id).is_some() {
            return Some(At { id, seen: None });
        }
        let file = self.file(self.file_ino(tag, id.ino))?;
        ((file.tag, file.id) == (tag, id)).then(|| self.at(file))
    }

    /// A file lies in another member now.
    pub fn moved_to(&mut self, ino: Ino, tag: Tag, id: NativeId, seen: (Ino, Name)) {
        if let Some(file) = self.files.get_mut(&ino) {
            (file.tag, file.id, file.seen) = (tag, id, Some(seen));
            self.keep_id(tag, id, ino);
        }
    }

    /// A frontend does not know it any more. What its member need not hold open for any.
    pub fn forget_file(&mut self, ino: Ino, frontend: FrontendId) -> Option<(Tag, u64)> {
        if !self.files.get_mut(&ino)?.told.forget(frontend) {
            return None;
        }
        let file = self.files.remove(&ino)?;
        Some((file.tag, file.open?))
    }

    /// Where to find a file in its member.
    pub fn at(&self, file: &File) -> At {
        let seen = file.seen.as_ref().and_then(|(dir, name)| {
            let home = self.dirs.get(dir)?.home(file.tag)?;
            Some((home.id, name.clone()))
        });
        At { id: file.id, seen }
    }

    /// An object has moved from one name to another in a member, or two have swapped.
    pub fn moved(&mut self, tag: Tag, from: (Ino, &Name), to: (Ino, &Name), exchange: bool) {
        let at =
            |(dir, name): (Ino, &Name)| self.dirs.get(&dir)?.known_at(tag, name).map(|(_, native)| native);
        let (moved, other) = (at(from), at(to).filter(|_| exchange));
        for (native, (dir, name)) in [(moved, to), (other, from)] {
            let Some(native) = native else { continue };
            let file_ino = self.file_ino(tag, native);
            if let Some(ino) = self.dir_at(tag, native) {
                self.set_place(ino, dir, name);
            } else if let Some(file) = self.files.get_mut(&file_ino) {
                file.seen = Some((dir, name.clone()));
            }
        }
    }

    /// How many files and directories are known.
    pub fn len(&self) -> usize {
        self.dirs.len() + self.files.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
