//! Directories of one name that are shown as one. Owns which they are. Knows nothing of files.

use atoll_causal::{DirBirth, FileId};
use atoll_core::Name;

use crate::life::Life;
use crate::objects::Objects;

/// Directories that are shown as one, because they have one name in directories that are shown as one. At least one.
///
/// They are made from the root down, and each directory has one parent, so no directory is in two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGroup(Vec<FileId>);

impl DirGroup {
    /// That of the root: nothing else has its name.
    pub fn root() -> Self {
        Self(vec![FileId::ROOT])
    }

    /// The one that was born first: new names go there, and its attributes are shown.
    pub fn first(&self) -> FileId {
        self.0[0]
    }

    /// All of them, in the order of their births.
    pub fn members(&self) -> &[FileId] {
        &self.0
    }

    /// The group in which a directory is shown; none if it is dead, or one above it is.
    pub fn of(objects: &impl Objects, dir: FileId) -> Option<Self> {
        let mut names: Vec<Name> = Vec::new();
        let mut at = dir;
        while at != FileId::ROOT {
            if objects.life(at) == Life::Dead {
                return None;
            }
            let (parent, name) = objects.place(at)?;
            names.push(name);
            at = parent;
        }
        names.iter().rev().try_fold(Self::root(), |group, name| group.below(objects, name))
    }

    /// The group of that name in this one; none if no directory there has it.
    pub fn below(&self, objects: &impl Objects, name: &Name) -> Option<Self> {
        let mut found: Vec<(DirBirth, FileId)> = Vec::new();
        for &member in &self.0 {
            for key in objects.near(member, Some(name)) {
                let Some(head) = objects.dir(key.child) else { continue };
                let is_here = objects.place(key.child).is_some_and(|place| place == (member, name.clone()));
                if is_here && objects.life(key.child) != Life::Dead {
                    found.push((head.birth, key.child));
                }
            }
        }
        found.sort_by_key(|(birth, id)| (birth.stamp, *id));
        let members: Vec<FileId> = found.into_iter().map(|(_, id)| id).collect();
        if members.is_empty() { None } else { Some(Self(members)) }
    }
}
