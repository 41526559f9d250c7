//! The changes that works of transactions ask of files that are homed here.

use atoll_core::Ino;
use atoll_posix::Kind;
use atoll_proto::{Entry, ParticipantWork};

use super::Ctx;

/// The change that a transaction asks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileClaim {
    /// One name more.
    More,
    /// One name less.
    Less,
    /// Another name.
    Other,
}

impl FileClaim {
    /// Two of them cannot be prepared together. Whether a name more and a name less leave the file without a name would depend
    /// on which of them happens. The answer to a link tells how many names the file has with it: of two links that are prepared
    /// together one may be undone, and it would have been counted.
    pub(crate) fn meets(self, other: Self) -> bool {
        matches!((self, other), (Self::More, Self::More | Self::Less) | (Self::Less, Self::More))
    }
}

impl Ctx {
    /// The change that a work asks of a file that is homed here.
    pub(crate) fn claims(&self, work: &ParticipantWork) -> Vec<(Ino, FileClaim)> {
        match work {
            ParticipantWork::Adopt { .. }
            | ParticipantWork::Seal { .. }
            | ParticipantWork::FreezeDir { .. }
            | ParticipantWork::PermitMove { .. }
            | ParticipantWork::ReceiveFile { .. } => Vec::new(),
            ParticipantWork::AddName { ino, .. } => vec![(*ino, FileClaim::More)],
            ParticipantWork::RemoveName { ino, .. } => vec![(*ino, FileClaim::Less)],
            ParticipantWork::MoveName { ino, .. } => vec![(*ino, FileClaim::Other)],
            ParticipantWork::BorrowName { renaming, .. } => {
                let here = |entry: &&Entry| entry.home == self.config.id && entry.kind != Kind::Directory;
                let less = if renaming.swaps() { FileClaim::Other } else { FileClaim::Less };
                let file = Some(&renaming.file).filter(here).map(|entry| (entry.ino, FileClaim::Other));
                let there = renaming.there.as_ref().filter(here).map(|entry| (entry.ino, less));
                file.into_iter().chain(there).collect()
            }
        }
    }
}
