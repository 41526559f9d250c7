//! Rows with the changes of a decision that is being made.

use atoll_core::{Ino, Name, TxnId};
use atoll_proto::{Dir, DirPlace, Entry, ParticipantWork, RowChange, TxnState};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;

impl Ctx {
    /// A directory's row, if it is in memory.
    pub(crate) fn in_memory(&self, dir: Ino) -> Option<Dir> {
        self.state.dir(dir).ok().flatten().cloned()
    }

    /// A directory's row, as a decision under construction leaves it.
    pub(crate) fn dir_now(&self, decision: &Decision, ino: Ino) -> Option<Dir> {
        staged(decision, ino).unwrap_or_else(|| self.in_memory(ino))
    }

    /// A name as a decision under construction leaves it.
    pub(crate) fn entry_now(&self, decision: &Decision, dir: Ino, name: &Name) -> Option<Entry> {
        let staged = decision.record.changes.iter().rev().find_map(|change| match change {
            RowChange::Entry { dir: d, name: n, row } if *d == dir && n == name => Some(row.clone()),
            _ => None,
        });
        staged.unwrap_or_else(|| self.state.entry(dir, name).ok().flatten().cloned())
    }

    /// Transactions of others for which a name of this island's is lent.
    pub(crate) fn lent_txns(&self) -> Vec<TxnId> {
        let is_lent = |txn: &TxnId| {
            let row = self.state.txn(*txn).filter(|row| row.state == TxnState::Prepared);
            row.is_some_and(|row| matches!(row.part.work, ParticipantWork::BorrowName { .. }))
        };
        self.state.txn_ids().filter(is_lent).collect()
    }

    /// Directories here may not be as their owners have them, and no journal tells: notes in a decision that all are to be
    /// compared.
    pub(crate) fn suspect_stale(&mut self, decision: &mut Decision) {
        let me = self.config.id;
        let is_noted =
            |change: &RowChange| matches!(change, RowChange::Skipped { island, .. } if *island == me);
        if decision.record.changes.iter().any(is_noted) {
            return;
        }
        let stamp = self.stamp();
        decision.stamp(stamp);
        decision.push(RowChange::Skipped { island: me, upto: stamp });
    }

    /// A directory that is owned here and gets the name of a file with another home: that island knows the directory from
    /// then on.
    pub(crate) fn note_pointers(&self, decision: &mut Decision) {
        let pointer = |change: &RowChange| match change {
            RowChange::Entry { dir, row: Some(row), .. }
                if row.stub.is_none() && row.home != self.config.id =>
            {
                Some(*dir)
            }
            _ => None,
        };
        let dirs: Vec<Ino> = decision.record.changes.iter().filter_map(pointer).collect();
        for ino in dirs {
            // A row that is damaged is made anew with the mark.
            let Some(mut row) = self.dir_now(decision, ino) else { continue };
            let Some(owned) = row.owned.as_mut().filter(|owned| !owned.others.has_pointers) else { continue };
            owned.others.has_pointers = true;
            decision.dir(ino, row);
        }
    }

    /// Notes a doubt if a decision leaves a directory of the skeleton without a name: the directory that had or got that
    /// name is not there, or will not stay there.
    pub(crate) fn suspect_displaced(&mut self, decision: &mut Decision) {
        for ino in std::mem::take(&mut decision.displaced) {
            let Some(dir) = self.dir_now(decision, ino) else { continue };
            let DirPlace { parent, name: Some(name), .. } = dir.place else { continue };
            if dir.owned.is_some_and(|owned| owned.sealed.is_some()) {
                // It is about to go: the journal of who decides that came before the outcome.
                continue;
            }
            if self.entry_now(decision, parent, &name).is_none_or(|entry| entry.ino != ino) {
                return self.suspect_stale(decision);
            }
        }
    }
}

/// A directory's row as a decision under construction leaves it, if that changes it.
pub(crate) fn staged_dir(decision: &Decision, ino: Ino) -> Option<Dir> {
    staged(decision, ino).flatten()
}

fn staged(decision: &Decision, ino: Ino) -> Option<Option<Dir>> {
    decision.record.changes.iter().rev().find_map(|change| match change {
        RowChange::Dir { ino: at, row } if *at == ino => Some(row.as_deref().cloned()),
        _ => None,
    })
}
