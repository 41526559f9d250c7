//! The changes that works of transactions ask of files that are homed here.

use atoll_core::Ino;
use atoll_posix::Kind;
use atoll_proto::{Entry, Work};

use super::Ctx;

/// The change that a transaction asks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// One name more.
    More,
    /// One name less.
    Less,
    /// Another name.
    Other,
}

impl Claim {
    /// Two of them cannot be prepared together: whether the file is left without a name would depend on
    /// which of them happens.
    pub(crate) fn meets(self, other: Self) -> bool {
        matches!((self, other), (Self::More, Self::Less) | (Self::Less, Self::More))
    }
}

impl Ctx {
    /// The change that a work asks of a file that is homed here.
    pub(crate) fn claims(&self, work: &Work) -> Vec<(Ino, Claim)> {
        match work {
            Work::Adopt { .. }
            | Work::Seal { .. }
            | Work::Hold { .. }
            | Work::Ticket { .. }
            | Work::Arrive { .. } => Vec::new(),
            Work::Count { ino, .. } => vec![(*ino, Claim::More)],
            Work::Drop { ino, .. } => vec![(*ino, Claim::Less)],
            Work::Renamed { ino, .. } => vec![(*ino, Claim::Other)],
            Work::Lend { renaming, .. } => {
                let here = |entry: &&Entry| entry.home == self.config.id && entry.kind != Kind::Directory;
                let less = if renaming.swaps() { Claim::Other } else { Claim::Less };
                let file = Some(&renaming.file).filter(here).map(|entry| (entry.ino, Claim::Other));
                let there = renaming.there.as_ref().filter(here).map(|entry| (entry.ino, less));
                file.into_iter().chain(there).collect()
            }
        }
    }
}
