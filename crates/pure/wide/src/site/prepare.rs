//! Which steps come before an operation of a user, and with it: what is derived at the names that it uses is written down before it. What is
//! shown as one with something that it uses goes with it, in its record: if it is refused, nothing goes. Owns which names an operation uses.
//! Makes no change.

use std::collections::BTreeSet;

use atoll_causal::{Dot, FileId};
use atoll_core::{Ino, Name};
use atoll_posix::Op;
use atoll_proto::EntryRef;
use atoll_shown::{DirGroup, ExplicitStep, FilePlace, Objects, ShownObject, explicit, keep, named, places};

use crate::held::{HeldObjects, SiteRows};
use crate::rows::SiteDir;
use crate::watch::{Happened, LocalObject};

/// Steps of one record, and those of one name more.
const STEPS_MAX: usize = 16;
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
}

impl<'a> Needed<'a> {
    const fn new(rows: &'a SiteRows<'a>, held: &'a HeldObjects<'a>) -> Self {
        Self { rows, held, steps: Vec::new(), together: Vec::new() }
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

    /// What comes before the operation; if that is nothing, what goes with it.
    pub(super) fn into_steps(self) -> (Vec<SiteStep>, Vec<SiteStep>) {
        (self.steps, self.together)
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
        // A directory's attributes are those of the first; nothing follows from them. What has no name is nobody's.
        let Some(row) = self.rows.inode(ino) else { return };
        let Some(id) = row.beside.as_ref().map(SiteRows::file_beside) else { return };
        let Some(state) = self.held.file(id) else { return };
        for place in places(id, &state) {
            if let Some(group) = DirGroup::of(self.held, place.dir) {
                self.own_name(&group, &place.name);
            }
        }
    }

    /// The directories that have a number.
    fn group(&self, dir: Ino) -> Option<DirGroup> {
        let row = self.rows.dir_row(dir)?;
        DirGroup::of(self.held, SiteDir::of(dir, row).id)
    }
}
