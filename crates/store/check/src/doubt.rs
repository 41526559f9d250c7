//! The files, directories and names that transactions under way are about: for these, the rows of islands may
//! show half of a change. Decides nothing.

use std::collections::BTreeSet;

use atoll_core::{Ino, Name};
use atoll_proto::{Ancestor, Chain, EntryRef, ParticipantWork, Txn, TxnState};

use crate::Rows;

/// The files, directories and names that a transaction's work is about.
#[derive(Default)]
struct About {
    inos: BTreeSet<Ino>,
    entry_refs: BTreeSet<EntryRef>,
}

impl About {
    fn of(txn: &Txn) -> Self {
        let mut about = Self::default();
        about.work(&txn.part.work);
        about
    }

    fn work(&mut self, work: &ParticipantWork) {
        match work {
            ParticipantWork::Adopt { dir, time: _, chain } => {
                self.inos.extend([dir.ino, dir.place.parent]);
                self.ancestors(chain);
            }
            ParticipantWork::Seal { ino, parent, name } => {
                self.inos.insert(*ino);
                self.entry_ref(&EntryRef { dir: *parent, name: name.clone() });
            }
            ParticipantWork::BorrowName {
                renaming,
                caller: _,
                new_meant: _,
                denied: _,
                chain,
                wants_chain: _,
                scope: _,
            } => {
                self.inos.insert(renaming.file.ino);
                self.inos.extend(renaming.there.as_ref().map(|there| there.ino));
                self.entry_ref(&renaming.from);
                self.entry_ref(&renaming.to);
                chain.iter().for_each(|chain| self.chain(chain));
            }
            ParticipantWork::AddName { ino, at, time: _, chain, within: _ } => {
                self.inos.insert(*ino);
                self.entry_ref(at);
                self.chain(chain);
            }
            ParticipantWork::RemoveName { ino, at, by: _, had: _, time: _ } => {
                self.inos.insert(*ino);
                self.entry_ref(at);
            }
            ParticipantWork::FreezeDir { ino, .. } => {
                self.inos.insert(*ino);
            }
            ParticipantWork::ReceiveFile { at, file, xattrs: _, mounts: _ } => {
                self.inos.insert(file.attr.ino);
                self.entry_ref(at);
            }
            ParticipantWork::PermitMove { moved, above: _, owners: _, seen: _, exchange: _ } => {
                self.inos.extend(moved)
            }
            ParticipantWork::MoveName { ino, from, to, by: _, had: _, time: _, chain } => {
                self.inos.insert(*ino);
                self.entry_ref(from);
                self.entry_ref(to);
                self.chain(chain);
            }
        }
    }

    fn entry_ref(&mut self, entry_ref: &EntryRef) {
        self.inos.insert(entry_ref.dir);
        self.entry_refs.insert(entry_ref.clone());
    }

    /// Skeleton directories come and go with the rows that need them.
    fn chain(&mut self, chain: &Chain) {
        self.ancestors(&chain.dirs);
    }

    fn ancestors(&mut self, dirs: &[Ancestor]) {
        self.inos.extend(dirs.iter().map(|above| above.ino));
    }
}

impl Rows {
    /// Whether a transaction under way concerns this file or directory: it may be half of something.
    pub fn in_doubt(&self, ino: Ino) -> bool {
        self.txns.values().any(|txn| About::of(txn).inos.contains(&ino))
    }

    /// Whether a transaction under way concerns this name.
    pub fn name_in_doubt(&self, dir: Ino, name: &Name) -> bool {
        let entry_ref = EntryRef { dir, name: name.clone() };
        self.txns.values().any(|txn| About::of(txn).entry_refs.contains(&entry_ref))
    }

    /// Whether something about this file or directory is prepared here and waits for its outcome.
    pub(crate) fn is_promised(&self, ino: Ino) -> bool {
        let prepared = self.txns.values().filter(|txn| txn.state == TxnState::Prepared);
        prepared.map(About::of).any(|about| about.inos.contains(&ino))
    }
}
