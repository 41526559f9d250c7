//! What the mount answers by itself, as long as the volume lets the kernel keep what it is told: then nobody else changes it.

use crate::dir_attrs::DirAttrs;
use crate::fresh::Fresh;
use crate::uncapable::Uncapable;
use atoll_core::{Ino, Name};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) uncapable: Uncapable,
    pub(crate) fresh: Fresh,
    pub(crate) dir_attrs: DirAttrs,
    /// The last answer said that the kernel may keep it.
    is_alone: AtomicBool,
    recalls: AtomicU64,
}

impl Known {
    /// How often everything was forgotten. What was asked for before the last time says nothing.
    pub(crate) fn recalls(&self) -> u64 {
        self.recalls.load(SeqCst)
    }

    /// An answer says whether the kernel may keep it until it is recalled.
    pub(crate) fn told(&self, is_alone: bool) {
        if self.is_alone() != is_alone {
            self.is_alone.store(is_alone, SeqCst);
        }
    }

    /// Whether the last answer could be kept: then more that can be kept is worth asking for.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone.load(SeqCst)
    }

    /// These have changed, and names were given or taken away.
    pub(crate) fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]) {
        for ino in inos {
            self.uncapable.may_change(*ino);
            self.dir_attrs.may_change(*ino);
        }
        names.iter().for_each(|(dir, _)| self.fresh.forget(*dir));
    }

    /// The kernel has forgotten a file or directory.
    pub(crate) fn forget(&self, ino: Ino) {
        self.uncapable.forget(ino);
        self.fresh.forget(ino);
        self.dir_attrs.forget(ino);
    }

    /// Anything may have changed.
    pub(crate) fn clear(&self) {
        self.recalls.fetch_add(1, SeqCst);
        self.uncapable.clear();
        self.fresh.clear();
        self.dir_attrs.clear();
    }
}
