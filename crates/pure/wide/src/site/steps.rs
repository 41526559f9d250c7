//! The changes of objects by which steps before an operation, or with it, are written down. Owns their dots and stamps. Knows no row but those of the
//! objects.

use std::collections::BTreeMap;

use atoll_causal::{
    AttrState, DirHead, DirPart, Dot, FileBirth, FileChange, FileId, FilePart, FileState, FileVersion,
    HybridStamp, LinkPlace, Lww, Taken, XattrName, XattrValue,
};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Name, Time};
use atoll_proto::{Inode, Xattrs};
use atoll_shown::{ExplicitStep, FilePlace, NewCopy, places};
use atoll_spine::Spine;

use super::prepare::SiteStep;
use crate::author::{BundleChange, Pen};
use crate::contents::pieces::NO_BYTES;
use crate::held::{HeldObjects, SiteRows};
use crate::rows::{BodyVersion, FeedRow, FileBytes};

/// Parts of a step in the change of a file.
const STEP_PARTS_MAX: usize = 2;

/// An object, and its change.
struct Changed<S, P> {
    state: S,
    dot: Dot,
    parts: Vec<P>,
}

/// See the module.
pub(super) struct Steps<'a> {
    rows: &'a SiteRows<'a>,
    spine: &'a Spine,
    pen: Pen,
    files: BTreeMap<FileId, Changed<FileState, FilePart>>,
    dirs: BTreeMap<FileId, Changed<DirHead, DirPart>>,
    /// Those that change, in the order of their dots.
    order: Vec<FeedRow>,
    /// Changes of files that change once more, since one change has no room for all, and files that are made.
    full: Vec<BundleChange>,
    /// The stamp of the last step. Those that are far ahead of the clock do not drive it.
    last: HybridStamp,
}

impl<'a> Steps<'a> {
    pub(super) fn new(rows: &'a SiteRows<'a>, spine: &'a Spine, pen: Pen) -> Self {
        let (files, dirs, last) = (BTreeMap::new(), BTreeMap::new(), HybridStamp::ZERO);
        Self { rows, spine, pen, files, dirs, order: Vec::new(), full: Vec::new(), last }
    }

    /// One step. Each gets a later stamp than the one before.
    pub(super) fn make(&mut self, step: &SiteStep) {
        match step {
            SiteStep::Explicit(ExplicitStep::Keep(dir)) => {
                if let Some(changed) = self.dir(*dir) {
                    changed.parts.push(changed.state.keep());
                }
            }
            SiteStep::Explicit(ExplicitStep::Rename(place, name)) => self.rename(place, name),
            SiteStep::Explicit(ExplicitStep::Link(place, name)) => self.link(place, name),
            SiteStep::Explicit(ExplicitStep::Settle(_)) => unreachable!("versions are not settled yet"),
            SiteStep::Unlink { file, link, dir, name } => {
                let Some(stamp) = self.stamp(*file, *dir) else { return };
                if let Some(changed) = self.file(*file) {
                    let bury = changed.state.bury(changed.dot, stamp, *dir, name.clone());
                    changed.parts.extend([changed.state.unlink(*link), bury]);
                }
            }
            SiteStep::Remove(dir) => {
                if let Some(changed) = self.dir(*dir) {
                    changed.parts.extend(changed.state.remove(changed.dot));
                }
            }
        }
    }

    /// A version of a file over those whose bytes its users have seen. As what it is in the body.
    pub(super) fn version(
        &mut self,
        file: FileId,
        bytes: &FileBytes,
        (size, root): (u64, u128),
        mtime: Time,
    ) -> Option<BodyVersion> {
        let state = self.rows.file(file)?.state.clone();
        let seen = bytes.has.map_or_else(Vec::new, |has| {
            let is_seen = |(dot, version): &(Dot, &FileVersion)| {
                *dot == has.dot || has.is_equal(version) || planted(Bug::VersionSeesAll)
            };
            state.versions.iter().filter(is_seen).map(|(dot, _)| dot).collect()
        });
        self.last = self.pen.stamp(state.latest().max(self.last));
        let version = FileVersion { stamp: self.last, size, mtime, root };
        let changed = self.file(file)?;
        changed.parts.push(FilePart::Version { removed: seen, version });
        Some(BodyVersion::of(changed.dot, &version))
    }

    /// Versions of a file go in favour of the latest one.
    pub(super) fn settle(&mut self, file: FileId, lost: Vec<Dot>, kept: Dot) {
        if let Some(changed) = self.file(file) {
            changed.parts.push(FileState::settle(lost, kept));
        }
    }

    /// A version of a file becomes another file, under this name.
    pub(super) fn copy(&mut self, of: FileId, copy: &NewCopy, dir: FileId, name: Name) {
        let Some(file) = self.rows.file(of) else { return };
        let Some(entry) = self.dir(dir).map(|changed| changed.dot) else { return };
        let mut state = copy.state(of, &file.state, dir, name, entry);
        // Another site may make it at another place. Then the two must not take each other's for their own.
        state.context.add(self.pen.dot());
        self.full.push(BundleChange::FileBorn { id: copy.id, state: Box::new(state) });
    }

    /// A body that a file had before becomes another file, for those who have it open. It has no version with bytes yet.
    pub(super) fn left(
        &mut self,
        of: FileId,
        held: &HeldObjects<'_>,
        mtime: Time,
    ) -> Option<(FileId, BodyVersion)> {
        let file = self.rows.file(of)?;
        let dot = self.pen.dot();
        self.last = self.pen.stamp(file.state.latest().max(self.last));
        let version = FileVersion { stamp: self.last, size: 0, mtime, root: NO_BYTES };
        let copy = NewCopy { id: FileId::born(dot), dot, version };
        let is_dead = places(of, &file.state).is_empty();
        let place =
            if is_dead { copy.place_of_dead(held, &file.state) } else { copy.place(held, of, &file.state) };
        let (dir, name) = place?;
        let entry = self.dir(dir)?.dot;
        let state = copy.state(of, &file.state, dir, name, entry);
        self.full.push(BundleChange::FileBorn { id: copy.id, state: Box::new(state) });
        Some((copy.id, BodyVersion::of(dot, &version)))
    }

    /// A file is made under this name, of what is in a row that has none. It has a version of no bytes.
    pub(super) fn born(
        &mut self,
        dir: FileId,
        name: Name,
        row: &Inode,
        xattrs: Option<&Xattrs>,
    ) -> Option<(FileId, BodyVersion)> {
        let entry = self.dir(dir)?.dot;
        let stamp = self.stamp_above(dir, HybridStamp::ZERO)?;
        let (dot, target) = (self.pen.dot(), row.target.clone().unwrap_or_default());
        let birth = FileBirth { kind: row.attr.kind, rdev: 0, target, copy_of: None };
        let mut attrs = AttrState::new(stamp, row.attr.mode, row.attr.uid, row.attr.gid, row.attr.mtime);
        for (name, value) in xattrs.into_iter().flat_map(|xattrs| &xattrs.0) {
            let name = XattrName::new(name.clone()).expect("the island refuses other names");
            let value = XattrValue::new(value.clone()).expect("the island refuses longer values");
            attrs.xattrs.apply(&name, &[], dot, Some(Lww::new(stamp, value)));
        }
        let version = FileVersion { stamp, size: 0, mtime: row.attr.mtime, root: NO_BYTES };
        let place = LinkPlace { stamp, dir, name, entry };
        let state = Box::new(FileState::new(birth, dot, attrs, place, version));
        let id = FileId::born(dot);
        self.full.push(BundleChange::FileBorn { id, state });
        Some((id, BodyVersion::of(dot, &version)))
    }

    fn rename(&mut self, place: &FilePlace, name: &Name) {
        let link = place.link.expect("what is renamed has a link");
        let Some(to) = self.place(place, name) else { return };
        if let Some(changed) = self.file(place.file) {
            changed.parts.push(changed.state.relink(link, to));
        }
    }

    /// A rescued file gets a link. The versions that a removal had seen go, for they would be shown again. They go in favour of that for
    /// which the file is rescued, which stays the one of the site that made it: as one of this site it would be replaced by the next
    /// one that is made here, also if nobody here has seen its bytes.
    ///
    /// A version goes only for a later one ([`ExplicitStep::Link`]). If a removal had seen a later one, that for which the file is rescued
    /// is written once more. Others that no removal had seen stay.
    fn link(&mut self, place: &FilePlace, name: &Name) {
        let Some(to) = self.place(place, name) else { return };
        let stamp = to.stamp;
        let Some(changed) = self.file(place.file) else { return };
        changed.parts.push(FileState::link(changed.dot, to));
        let state = &changed.state;
        let unburied: Vec<(Dot, FileVersion)> =
            state.unburied().map(|(dot, version)| (dot, *version)).collect();
        let latest = unburied.iter().map(|(dot, version)| (*version, *dot)).max();
        let (version, kept) = latest.expect("a rescued file has a version");
        let is_buried = |dot: Dot| !unburied.iter().any(|(other, _)| *other == dot);
        let buried: Vec<(FileVersion, Dot)> = state
            .versions
            .iter()
            .filter(|(dot, _)| is_buried(*dot))
            .map(|(dot, version)| (*version, dot))
            .collect();
        if buried.is_empty() {
            return;
        }
        let removed = buried.iter().map(|(_, dot)| *dot);
        let part = if buried.iter().all(|other| *other < (version, kept)) {
            FileState::settle(removed.collect(), kept)
        } else {
            let equal = unburied.iter().filter(|(_, other)| other.is_equal(&version));
            let removed = removed.chain(equal.map(|(dot, _)| *dot)).collect();
            FilePart::Version { removed, version: FileVersion { stamp, ..version } }
        };
        changed.parts.push(part);
    }

    /// A place under this name, in the directory of that one, which enters it.
    fn place(&mut self, at: &FilePlace, name: &Name) -> Option<LinkPlace> {
        let entry = self.dir(at.dir)?.dot;
        let stamp = self.stamp(at.file, at.dir)?;
        Some(LinkPlace { stamp, dir: at.dir, name: name.clone(), entry })
    }

    /// A stamp that is later than all of a file, and than a directory that it is in.
    fn stamp(&mut self, file: FileId, dir: FileId) -> Option<HybridStamp> {
        let latest = self.rows.file(file)?.state.latest();
        self.stamp_above(dir, latest)
    }

    /// One that is later than this one, and than a directory.
    fn stamp_above(&mut self, dir: FileId, latest: HybridStamp) -> Option<HybridStamp> {
        let head = self.rows.dir(dir)?.head.latest();
        let moved = self.spine.place(dir).map_or(HybridStamp::ZERO, |place| place.since);
        self.last = self.pen.stamp(latest.max(head).max(moved).max(self.last));
        Some(self.last)
    }

    fn file(&mut self, id: FileId) -> Option<&mut Changed<FileState, FilePart>> {
        if !self.files.contains_key(&id) {
            let (state, dot) = (self.rows.file(id)?.state.clone(), self.pen.dot());
            self.files.insert(id, Changed { state, dot, parts: Vec::new() });
            self.order.push(FeedRow::File { id });
        }
        let changed = self.files.get_mut(&id)?;
        if changed.parts.len() + STEP_PARTS_MAX > FileChange::PARTS_MAX {
            let change = changed.state.change(changed.dot, std::mem::take(&mut changed.parts));
            assert_eq!(changed.state.apply(&change), Taken::Applied, "{change:?} of {id:?}");
            self.full.push(BundleChange::FileChanged { id, change });
            changed.dot = self.pen.dot();
        }
        Some(changed)
    }

    fn dir(&mut self, id: FileId) -> Option<&mut Changed<DirHead, DirPart>> {
        if !self.dirs.contains_key(&id) {
            let (state, dot) = (self.rows.dir(id)?.head.clone(), self.pen.dot());
            self.dirs.insert(id, Changed { state, dot, parts: Vec::new() });
            self.order.push(FeedRow::Dir { id });
        }
        self.dirs.get_mut(&id)
    }

    /// The changes, those of one object in the order of their dots, and what was given out for them.
    pub(super) fn finish(mut self) -> (Vec<BundleChange>, Pen) {
        let mut changes = self.full;
        for object in self.order {
            changes.push(match object {
                FeedRow::File { id } => {
                    let Changed { state, dot, parts } = self.files.remove(&id).expect("it changes");
                    BundleChange::FileChanged { id, change: state.change(dot, parts) }
                }
                FeedRow::Dir { id } => {
                    let Changed { state, dot, parts } = self.dirs.remove(&id).expect("it changes");
                    BundleChange::DirChanged { id, change: state.change(dot, parts) }
                }
                FeedRow::Move { .. } => unreachable!("no step moves a directory"),
            });
        }
        (changes, self.pen)
    }
}
