//! Names that have led to symbolic links until a moment ago. While the owner of a name is away, other islands show a link as it was
//! when that owner was last heard, less what it did in the last moment (`docs/design/006-symlinks.md`). Never judges anything else.

use atoll_core::{Ino, Name};
use atoll_model::Model;
use atoll_posix::{Answer, Kind, Op};

use crate::client::Done;
use crate::world::World;

/// Microseconds without trouble after which all islands have been told.
const TOLD_US: u64 = 500_000;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LostLinks {
    /// A directory, the name in it, the link to which it has led, and when it was lost.
    lost: Vec<(Ino, Name, Ino, u64)>,
    /// When something was away last.
    trouble_us: u64,
}

fn child(model: &Model, dir: Ino, name: &Name) -> Option<Ino> {
    model.children(dir).find(|(of, _)| *of == name).map(|(_, ino)| ino)
}

/// The names that an operation may take from links which have them now.
pub(crate) fn linked_by(model: &Model, op: &Op) -> Vec<(Ino, Name, Ino)> {
    let names = match op {
        Op::Unlink { dir, name } => vec![(*dir, name)],
        Op::Rename { dir, name, new_dir, new_name, .. } => vec![(*dir, name), (*new_dir, new_name)],
        _ => Vec::new(),
    };
    let is_link = |ino: &Ino| model.attr(*ino).is_some_and(|attr| attr.kind == Kind::Symlink);
    let link = |(dir, name): (Ino, &Name)| {
        child(model, dir, name).filter(is_link).map(|link| (dir, name.clone(), link))
    };
    names.into_iter().filter_map(link).collect()
}

impl LostLinks {
    /// An operation is about to be asked: what all islands have been told by now is forgotten.
    pub(crate) fn forget_told(&mut self, world: &World) {
        let now = world.now_us();
        if !world.is_calm() {
            self.trouble_us = now;
        }
        let trouble_us = self.trouble_us;
        self.lost.retain(|(.., lost_us)| now < trouble_us.max(*lost_us) + TOLD_US);
    }

    /// An operation has happened, before which these names led to links.
    pub(crate) fn note(&mut self, before: Vec<(Ino, Name, Ino)>, model: &Model, now_us: u64) {
        let lost = before.into_iter().filter(|(dir, name, link)| child(model, *dir, name) != Some(*link));
        self.lost.extend(lost.map(|(dir, name, link)| (dir, name, link, now_us)));
    }

    /// Whether an answer shows a link under a name that it has lost, as one that may be old.
    pub(crate) fn explain(&self, op: &Op, got: &Done) -> bool {
        let (Op::Lookup { dir, name }, Ok((Answer::Found { found }, _))) = (op, got) else { return false };
        let is_it = |lost: &(Ino, Name, Ino, u64)| (lost.0, &lost.1, lost.2) == (*dir, name, found.attr.ino);
        !found.attr_current && self.lost.iter().any(is_it)
    }
}
