//! What a change may change of what mounts keep (`docs/design/024-leases.md`). Knows no mount.

use atoll_core::Ino;

/// The write set of a change: what it may change of what mounts keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSet {
    /// What all islands hear of, or of a kind that is not looked into.
    Everything,
    /// These files and directories, which this island decides on.
    Of([Option<Ino>; 4]),
}

impl WriteSet {
    /// Nothing that anybody can have kept.
    pub(crate) const NOTHING: Self = Self::Of([None; 4]);

    /// One file or directory.
    pub(crate) const fn of(ino: Ino) -> Self {
        Self::Of([Some(ino), None, None, None])
    }

    /// One more file or directory.
    pub(crate) fn add(&mut self, ino: Ino) {
        let Self::Of(of) = self else { return };
        if !of.contains(&Some(ino)) {
            let free = of.iter_mut().find(|of| of.is_none());
            *free.expect("two directories and two files at most") = Some(ino);
        }
    }

    /// What it names, if it is not everything.
    pub(super) fn inos(&self) -> impl Iterator<Item = Ino> + use<> {
        let of = match self {
            Self::Everything => [None; 4],
            Self::Of(of) => *of,
        };
        of.into_iter().flatten()
    }

    /// Whether what this changes is all among what `other` changes.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Everything) => true,
            (Self::Everything, Self::Of(_)) => false,
            (Self::Of(_), Self::Of(of)) => self.inos().all(|ino| of.contains(&Some(ino))),
        }
    }
}
