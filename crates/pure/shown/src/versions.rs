//! Versions of one file that did not know of each other: which one the file keeps, and the copies that the others become. Owns
//! the id and the state of a copy, which are the same whoever makes it. Moves no bytes.

use atoll_causal::{Dot, DotMap, FileBirth, FileGrave, FileId, FileState, FileVersion, LinkPlace, Lww};
use atoll_core::Name;
use atoll_core::planted::{Bug, planted};

use crate::group::DirGroup;
use crate::life::{FilePlace, places};
use crate::listing::is_claimed;
use crate::names::{Mark, beside, hash_128};
use crate::objects::Objects;

/// Copies of one file that conflicts have made. Past this the oldest goes to the trash.
pub const COPIES_MAX: usize = 10;

/// How the versions of a file are settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The versions that go from the file: all whose bytes are not those of the latest. Who wrote the same bytes as another one keeps
    /// the file alive as well, against a removal that has seen the other one only.
    pub settled: Vec<Dot>,
    /// The latest one.
    pub kept: Dot,
    /// Those of them that become files beside it, the latest first. The others have bytes of one of these, or are too many.
    pub copies: Vec<NewCopy>,
    /// Earlier copies that are unlinked, because there are too many now.
    pub unlinked: Vec<FileId>,
}

/// A version that becomes a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCopy {
    /// The id of the file.
    pub id: FileId,
    /// The version: the change that made it is the birth of the copy.
    pub dot: Dot,
    /// What it is.
    pub version: FileVersion,
}

/// The versions that users may have seen: of a file with links all of them, of one without those that no removal had seen. The
/// latest first.
pub fn live_versions(file: &FileState) -> Vec<(Dot, FileVersion)> {
    let mut live: Vec<(Dot, FileVersion)> = if file.links.is_empty() {
        file.unburied().map(|(dot, version)| (dot, *version)).collect()
    } else {
        file.versions.iter().map(|(dot, version)| (dot, *version)).collect()
    };
    live.sort_by_key(|(dot, version)| std::cmp::Reverse((*version, *dot)));
    live
}

/// Whether a file has versions with different bytes, which are to be [settled](settle).
pub fn is_in_conflict(file: &FileState) -> bool {
    let live = live_versions(file);
    live.iter().any(|(_, version)| !version.is_equal(&live[0].1))
}

/// The id of the copy that a version of a file becomes. All sites compute it alike, so a copy that was removed stays removed.
pub fn copy_id(file: FileId, dot: Dot) -> FileId {
    let bytes = [&file.0.to_le_bytes()[..], &dot.writer.0.to_le_bytes(), &dot.n.to_le_bytes()].concat();
    FileId(hash_128(0x636f_7079, &bytes))
}

/// How the versions of a file are settled by the change `by` of it; none if all have the same bytes, or the file
/// is dead. `copies` are the
/// copies of the file that are shown, each with its version.
pub fn settle(id: FileId, file: &FileState, by: Dot, copies: &[(FileId, FileVersion)]) -> Option<Settlement> {
    let live = live_versions(file);
    let (kept_dot, kept) = *live.first()?;
    let losers: Vec<(Dot, FileVersion)> =
        live.into_iter().filter(|(_, version)| !version.is_equal(&kept)).collect();
    if losers.is_empty() {
        return None;
    }
    let mut bytes: Vec<FileVersion> = Vec::new();
    let mut new: Vec<NewCopy> = Vec::new();
    for &(dot, version) in &losers {
        if bytes.iter().any(|other| other.is_equal(&version)) {
            continue;
        }
        bytes.push(version);
        let id = if planted(Bug::CopyIsNew) { FileId::born(by) } else { copy_id(id, dot) };
        new.push(NewCopy { id, dot, version });
    }
    let mut by_age: Vec<(FileVersion, FileId)> = copies.iter().map(|(id, version)| (*version, *id)).collect();
    by_age.extend(new.iter().map(|copy| (copy.version, copy.id)));
    by_age.sort();
    by_age.dedup();
    let too_many = &by_age[..by_age.len().saturating_sub(COPIES_MAX)];
    let is_too_many = |id: FileId| too_many.iter().any(|(_, other)| *other == id);
    new.retain(|copy| !is_too_many(copy.id));
    let unlinked = copies.iter().map(|(id, _)| *id).filter(|id| is_too_many(*id)).collect();
    let settled = losers.iter().map(|(dot, _)| *dot).collect();
    Some(Settlement { settled, kept: kept_dot, copies: new, unlinked })
}

impl NewCopy {
    /// The place of the copy: beside the first place at which the file is shown. None if that is not shown.
    pub fn place(&self, objects: &impl Objects, id: FileId, file: &FileState) -> Option<(FileId, Name)> {
        let beside_it = places(id, file).into_iter().min_by_key(|place| place.link)?;
        let FilePlace { dir, name, .. } = beside_it;
        let group = DirGroup::of(objects, dir)?;
        let free = self.beside(objects, &group, &name)?;
        Some((dir, free))
    }

    /// The place of the copy of a file that is dead: the one that it had last, or beside that if the name is taken. None if nothing
    /// says where it was. The directory may be removed: what comes there revives it.
    pub fn place_of_dead(&self, objects: &impl Objects, file: &FileState) -> Option<(FileId, Name)> {
        let FileGrave { dir, name, .. } = file.grave.as_ref()?;
        let group = DirGroup::of(objects, *dir).filter(|group| is_claimed(objects, group, name));
        let free = match group {
            Some(group) => self.beside(objects, &group, name)?,
            None => name.clone(),
        };
        Some((*dir, free))
    }

    /// The first name beside this one that nothing has.
    fn beside(&self, objects: &impl Objects, group: &DirGroup, name: &Name) -> Option<Name> {
        let stamp = self.version.stamp;
        let site = objects.site(stamp.writer);
        let mark = Mark { site: &site, stamp, file: self.id, link: None };
        beside(name, mark).find(|name| !is_claimed(objects, group, name))
    }

    /// The copy's state. `entry` is the change of the directory that enters it.
    ///
    /// Its birth is the change that made the version. So whoever removes a copy has removed what every other site makes of that
    /// version. Where two sites make it at different places, the higher place stays.
    pub fn state(&self, id: FileId, file: &FileState, dir: FileId, name: Name, entry: Dot) -> FileState {
        let birth = FileBirth { copy_of: Some(id), ..file.birth.clone() };
        let stamp = self.version.stamp;
        let mut xattrs = DotMap::default();
        for (name, values) in file.attrs.xattrs.iter() {
            xattrs.apply(name, &[], self.dot, values.highest().map(|(_, value)| value.clone()));
        }
        let mut attrs = file.attrs.clone();
        attrs.xattrs = xattrs;
        attrs.mtime = Lww::new(stamp, self.version.mtime);
        FileState::new(birth, self.dot, attrs, LinkPlace { stamp, dir, name, entry }, self.version)
    }
}
