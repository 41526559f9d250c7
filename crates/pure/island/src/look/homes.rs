//! Whether a transaction about a file is prepared that must end first.

use atoll_core::Ino;
use atoll_core::planted::{Bug, planted};
use atoll_proto::{EntryRef, ParticipantWork};

use super::Look;

impl<'a> Look<'a> {
    /// Another transaction has prepared something of this file that must end first.
    pub(crate) fn is_claimed(self, ino: Ino, work: &ParticipantWork) -> bool {
        if planted(Bug::CountNotClaimed) {
            return false;
        }
        let entry_refs = |work: &ParticipantWork| -> Vec<EntryRef> {
            match work {
                ParticipantWork::AddName { at, .. } | ParticipantWork::RemoveName { at, .. } => {
                    vec![at.clone()]
                }
                ParticipantWork::MoveName { from, to, .. } => vec![from.clone(), to.clone()],
                ParticipantWork::BorrowName { renaming, .. } => {
                    vec![renaming.from.clone(), renaming.to.clone()]
                }
                _ => Vec::new(),
            }
        };
        let of = |work: &ParticipantWork| {
            self.ctx.claims(work).into_iter().find(|(file, _)| *file == ino).map(|(_, c)| c)
        };
        let (mine, at) = (of(work), entry_refs(work));
        self.locks.on_file(ino).any(|txn| {
            let Some(row) = self.ctx.state.txn(txn) else { return false };
            let other = &row.part.work;
            mine.zip(of(other)).is_some_and(|(a, b)| a.meets(b))
                || entry_refs(other).iter().any(|entry_ref| at.contains(entry_ref))
        })
    }
}
