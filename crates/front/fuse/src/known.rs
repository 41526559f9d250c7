//! What the mount answers by itself, as long as the volume lets the kernel keep what it is told: then nobody else changes it. Goes with a
//! recall.

use crate::dir_attrs::DirAttrs;
use crate::fresh::Fresh;
use crate::learnt::Learnt;
use atoll_core::{Ino, Name};
use atoll_posix::{Answer, AttrsAround, Errno, Op};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// The attribute that holds a file's capabilities. Before the kernel lets somebody write to a file it asks for it, and again whenever it was
/// told of the file's other attributes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Files that have no capabilities, in about 20 bytes each.
    pub(crate) uncapable: Learnt<()>,
    pub(crate) fresh: Fresh,
    pub(crate) dir_attrs: DirAttrs,
    /// The last answer said that the kernel may keep it.
    is_alone: AtomicBool,
    /// A change ended without a word of its effect: it may still come. So nothing is learnt before the next recall.
    in_doubt: AtomicBool,
    recalls: AtomicU64,
}

/// What an operation may change of what is known, and how far things were when it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    dirs: [Option<Ino>; 2],
    capability_of: Option<Ino>,
    recalls: u64,
    dir_changes: u64,
    file_changes: u64,
}

impl Known {
    /// The volume is about to be asked for this. `is_dir`: whether the kernel knows a directory of this id.
    pub(crate) fn asks(&self, op: &Op, is_dir: impl Fn(Ino) -> bool) -> Asked {
        let dirs = match op {
            op if changes_names(op) => op.subjects(),
            Op::SetAttr { ino, .. } | Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. } => {
                [Some(*ino).filter(|ino| is_dir(*ino)), None]
            }
            _ => [None; 2],
        };
        let capability_of = match op {
            Op::SetXattr { ino, name, .. } if name == CAPABILITY => Some(*ino),
            _ => None,
        };
        let (dir_changes, file_changes) = (self.dir_attrs.changes(), self.uncapable.changes());
        Asked { dirs, capability_of, recalls: self.recalls.load(SeqCst), dir_changes, file_changes }
    }

    /// The volume has answered. `is_alone`: the kernel may keep the answer until it is recalled. Whether that holds from here on.
    pub(crate) fn answered(
        &self,
        asked: Asked,
        is_alone: bool,
        outcome: &Result<Answer, Errno>,
        around: &[AttrsAround],
    ) -> bool {
        if self.is_alone() != is_alone {
            self.is_alone.store(is_alone, SeqCst);
        }
        let changes = asked.dirs[0].or(asked.capability_of).is_some();
        if changes && matches!(outcome, Err(Errno::EINTR | Errno::EIO)) {
            self.in_doubt.store(true, SeqCst);
            self.forget_all();
        }
        let in_doubt = self.in_doubt.load(SeqCst);
        let holds = is_alone && !in_doubt && asked.recalls == self.recalls.load(SeqCst);
        let told = if holds && outcome.is_ok() { around } else { &[] };
        self.dir_attrs.changed(asked.dirs, asked.dir_changes, told);
        asked.capability_of.into_iter().for_each(|ino| self.uncapable.may_change(ino));
        holds
    }

    /// A file has no capabilities, by the answer to this.
    pub(crate) fn has_no_capability(&self, ino: Ino, asked: Asked) {
        self.uncapable.learn(ino, (), asked.file_changes, |()| false);
    }

    /// Whether the attributes are worth asking for that this leaves of directories. Of two the answer tells those that the island owns.
    pub(crate) fn wants_attributes(&self, op: &Op) -> bool {
        self.is_alone() && changes_names(op)
    }

    fn is_alone(&self) -> bool {
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

    /// These may have changed, with their names. What was asked for before says nothing.
    pub(crate) fn recalled_of(&self, inos: &[Ino]) {
        self.recalls.fetch_add(1, SeqCst);
        self.changed(inos, &[]);
        inos.iter().for_each(|dir| self.fresh.forget(*dir));
    }

    /// Anything may have changed. What was asked for before says nothing.
    pub(crate) fn recalled(&self) {
        self.recalls.fetch_add(1, SeqCst);
        self.forget_all();
        self.in_doubt.store(false, SeqCst);
    }

    fn forget_all(&self) {
        self.uncapable.clear();
        self.fresh.clear();
        self.dir_attrs.clear();
    }
}

/// Whether an operation changes names of directories.
const fn changes_names(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Link { .. }
            | Op::Rename { .. }
    )
}
