//! Which steps come before an operation of a user, and with it: what is derived at the names that it uses is written down before it. What is
//! shown as one with something that it uses goes with it, in its record: if it is refused, nothing goes. Owns which names an operation uses.
//! Makes no change.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{Dot, FileId};
use atoll_core::{Ino, Name};
use atoll_posix::Op;
use atoll_proto::EntryRef;
use atoll_shown::{DirGroup, ExplicitStep, FilePlace, Objects, ShownObject, explicit, keep, named, places};

use crate::foreign::{OBJECTS_MAX, avoiding};
use crate::held::{HeldObjects, SiteRows};
use crate::rows::{SiteDir, near_key};
use crate::watch::{Happened, LocalObject};

/// Steps of one record, and those of one name more.
const STEPS_MAX: usize = 16;
/// Names of a file that are looked up one by one. Of a file with more, all names of its directories are looked at that something else has.
const NAMES_LOOKED_UP: usize = 64;
/// Names of a file at which something is derived, times its names: so many links are looked at for an operation. If there are more, it is
/// refused.
const LINKS_LOOKED_AT_MAX: usize = 1 << 22;
/// Steps that go with one operation. If there are more, the operation is refused.
pub(super) const TOGETHER_MAX: usize = 1_024;

/// A step before an operation, or with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SiteStep {
    /// What is derived is written down.
    Explicit(ExplicitStep),
    /// A link goes: another file with an equal one is shown at its place, or the same.
    Unlink { file: FileId, link: Dot, dir: FileId, name: Name },
    /// An empty directory goes that is shown as one with another, which is about to go.
    Remove(FileId),
}

/// How a name is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is given, or what has it stays.
    Keeps,
    /// What has it goes.
    Removes,
}

/// See the module.
pub(super) struct Needed<'a> {
    rows: &'a SiteRows<'a>,
    held: &'a HeldObjects<'a>,
    /// What comes before the operation.
    steps: Vec<SiteStep>,
    /// What goes with it. It is known when nothing comes before.
    together: Vec<SiteStep>,
    /// Too much is derived at the names of a file that has very many.
    pub(super) is_too_much: bool,
}

/// The names of directories that are shown as one, as far as more than one object has them, or one that is shown elsewhere.
struct NamesOf {
    group: DirGroup,
    /// All of them by their keys; none if they are looked up one by one.
    near: Option<BTreeSet<u128>>,
}

impl NamesOf {
    fn of(needed: &Needed<'_>, dir: FileId, is_table: bool) -> Option<Self> {
        let group = DirGroup::of(needed.held, dir)?;
        let near =
            |members: &[FileId]| members.iter().flat_map(|member| needed.rows.near_names(*member)).collect();
        let near = is_table.then(|| near(group.members()));
        Some(Self { group, near })
    }

    /// Whether what a name shows may be derived: else its entry leads to the only object that has it.
    fn has(&self, rows: &SiteRows<'_>, name: &Name) -> bool {
        let mut keys = self.group.members().iter().map(|member| near_key(*member, name));
        keys.any(|key| {
            self.near.as_ref().map_or_else(|| !rows.near_row(key).is_empty(), |near| near.contains(&key))
        })
    }
}

impl<'a> Needed<'a> {
    const fn new(rows: &'a SiteRows<'a>, held: &'a HeldObjects<'a>) -> Self {
        Self { rows, held, steps: Vec::new(), together: Vec::new(), is_too_much: false }
    }

    /// What goes with a record that does this.
    pub(super) fn with(
        rows: &'a SiteRows<'a>,
        held: &'a HeldObjects<'a>,
        happened: &[Happened],
    ) -> Vec<SiteStep> {
        let mut needed = Self::new(rows, held);
        for happened in happened {
            match happened {
                Happened::Removed { object: LocalObject::File(_), at, .. }
                | Happened::Moved { object: LocalObject::File(_), from: at, .. } => needed.used(at),
                Happened::Removed { object: LocalObject::Dir(ino), .. } => {
                    needed.group(*ino).iter().for_each(|group| needed.remove_others(group));
                }
                Happened::Exchanged { one, one_from, other, other_from } => {
                    for (object, at) in [(one, one_from), (other, other_from)] {
                        if matches!(object, LocalObject::File(_)) {
                            needed.used(at);
                        }
                    }
                }
                Happened::Linked { ino, .. }
                | Happened::Written { ino, .. }
                | Happened::AttrChanged { object: LocalObject::File(ino), .. } => needed.file(*ino),
                Happened::Moved { .. } | Happened::AttrChanged { .. } | Happened::Born { .. } => {}
            }
        }
        needed.together
    }

    /// What comes before an operation, and is known of what goes with it.
    pub(super) fn of(rows: &'a SiteRows<'a>, held: &'a HeldObjects<'a>, op: &Op) -> Self {
        let mut needed = Self::new(rows, held);
        match op {
            Op::Create { dir, name, .. } | Op::Mkdir { dir, name, .. } => {
                needed.name(*dir, name, Use::Keeps);
            }
            Op::Link { ino, dir, name } => {
                needed.file(*ino);
                needed.name(*dir, name, Use::Keeps);
            }
            Op::Unlink { dir, name } | Op::Rmdir { dir, name, .. } => needed.name(*dir, name, Use::Removes),
            Op::Rename { dir, name, new_dir, new_name, mode, .. } => {
                needed.name(*dir, name, Use::Keeps);
                let replaces = *mode == atoll_posix::RenameMode::Replace;
                needed.name(*new_dir, new_name, if replaces { Use::Removes } else { Use::Keeps });
            }
            Op::SetAttr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Fallocate { ino, .. }
            | Op::CopyRange { to: ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. } => needed.file(*ino),
            _ => {}
        }
        needed
    }

    /// What comes before the operation; if that is nothing, what goes with it. If it is more than one record takes, the topmost directories
    /// are kept first. The rest is found when this is asked for again, behind that record.
    pub(super) fn into_steps(self) -> (Vec<SiteStep>, Vec<SiteStep>) {
        let Self { mut steps, together, .. } = self;
        let is_keep = |step: &SiteStep| matches!(step, SiteStep::Explicit(ExplicitStep::Keep(_)));
        if steps.len() > OBJECTS_MAX && steps.iter().any(is_keep) {
            steps.retain(is_keep);
            steps.truncate(OBJECTS_MAX);
        }
        (steps, together)
    }

    /// The steps of further names come with the next record. Those of one name belong together: each of them gets a later stamp than the
    /// one before, and the last one keeps the name.
    const fn is_full(&self) -> bool {
        self.steps.len() >= STEPS_MAX
    }

    fn goes(&mut self, step: SiteStep) {
        if !self.together.contains(&step) {
            self.together.push(step);
        }
    }

    /// Whether there are such steps. Versions are settled when their bytes are here.
    fn explicit(&mut self, mut steps: Vec<ExplicitStep>) -> bool {
        steps.retain(|step| !matches!(step, ExplicitStep::Settle(_)));
        let are_some = !steps.is_empty();
        for step in steps.into_iter().map(SiteStep::Explicit) {
            if !self.steps.contains(&step) {
                self.steps.push(step);
            }
        }
        are_some
    }

    /// A name is used.
    fn name(&mut self, dir: Ino, name: &Name, how: Use) {
        let Some(group) = self.group(dir) else { return };
        self.explicit(keep(self.held, group.first()));
        let entry = self.rows.entry(dir, name).and_then(|entry| self.rows.entered(entry));
        let mut own: BTreeSet<Name> = BTreeSet::from([name.clone()]);
        if let Some(state) = entry.and_then(|id| Some((id, self.held.file(id)?))) {
            let (id, state) = state;
            let here = places(id, &state).into_iter().filter(|place| group.members().contains(&place.dir));
            own.extend(here.map(|place| place.name));
        }
        // What is shown under a name that follows this one may avoid it, and have a name of its own that has a mark too.
        let avoiding = avoiding(self.held, group.members(), name, &mut BTreeSet::new());
        own.extend(avoiding.into_iter().map(|(_, own)| own));
        for own in &own {
            self.own_name(&group, own);
        }
        if let Some(below) = group.below(self.held, name) {
            // It may be what revives the directory that it is in.
            for (parent, _) in below.members().iter().filter_map(|member| self.held.place(*member)) {
                self.explicit(keep(self.held, parent));
            }
            if how == Use::Removes {
                self.remove_others(&below);
            }
        }
    }

    /// A name of a file is used.
    fn used(&mut self, at: &EntryRef) {
        if let Some(group) = self.group(at.dir) {
            self.own_name(&group, &at.name);
        }
    }

    /// What has a name of its own gets the name under which it is shown. Then what is shown as one with the first file of a name goes.
    fn own_name(&mut self, group: &DirGroup, own: &Name) {
        if self.is_full() || self.explicit(explicit(self.held, group, own)) {
            return;
        }
        for shown in named(self.held, group, own) {
            let ShownObject::File(files) = shown.object else { continue };
            for place in &files {
                self.explicit(keep(self.held, place.dir));
            }
            for FilePlace { file, link, dir, name, .. } in files.into_iter().skip(1) {
                let link = link.expect("what is rescued has got a link");
                self.goes(SiteStep::Unlink { file, link, dir, name });
            }
        }
    }

    /// Of directories that are shown as one and empty the others go with the first one.
    fn remove_others(&mut self, group: &DirGroup) {
        let number = self.rows.dir(group.first()).and_then(|dir| dir.number);
        let row = number.and_then(|number| self.rows.dir_row(number));
        if row.and_then(|row| row.owned.as_ref()).is_some_and(|owned| owned.entries == 0) {
            group.members()[1..].iter().for_each(|member| self.goes(SiteStep::Remove(*member)));
        }
    }

    /// A file's bytes or attributes change. It will be like other files than before, at each of its places.
    fn file(&mut self, ino: Ino) {
        if !self.rows.is_known_file(ino) && self.rows.dir_row(ino).is_some() {
            return self.dir(ino);
        }
        // What has no name is nobody's.
        let Some(row) = self.rows.inode(ino).filter(|row| row.attr.nlink > 0) else { return };
        let Some(id) = row.beside.as_ref().map(SiteRows::file_beside) else { return };
        let Some(state) = self.held.file(id) else { return };
        let places = places(id, &state);
        let is_far = places.len() > NAMES_LOOKED_UP;
        let mut groups: BTreeMap<FileId, Option<NamesOf>> = BTreeMap::new();
        let mut derived = Vec::new();
        for FilePlace { link, dir, name, .. } in &places {
            let names = groups.entry(*dir).or_insert_with(|| NamesOf::of(self, *dir, is_far));
            let Some(names) = names else { continue };
            if link.is_none() || names.has(self.rows, name) {
                derived.push((names.group.clone(), name));
            }
        }
        if derived.len().saturating_mul(places.len()) > LINKS_LOOKED_AT_MAX {
            self.is_too_much = true;
            return;
        }
        for (dir, _) in groups.into_iter().filter(|(_, names)| names.is_some()) {
            self.explicit(keep(self.held, dir));
        }
        derived.into_iter().for_each(|(group, name)| self.own_name(&group, name));
    }

    /// The attributes of a directory change, and of those that are shown as one with it: their states are in memory from here on. What is
    /// removed may be a working directory still.
    fn dir(&self, ino: Ino) {
        let members = self.group(ino).into_iter().flat_map(|group| group.members().to_vec());
        members.for_each(|member| drop(self.rows.dir(member)));
    }

    /// The directories that have a number.
    fn group(&self, dir: Ino) -> Option<DirGroup> {
        let row = self.rows.dir_row(dir)?;
        DirGroup::of(self.held, SiteDir::of(dir, row).id)
    }
}
