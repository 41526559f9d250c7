//! Ancestors of directories that this island did not know: whether they are new enough, and asking for them.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Stamp};
use atoll_proto::{Chain, JournalEntry, Peer, PeerMessage};

use crate::journal::Sight;
use crate::machine::{Island, Stop};

impl Island {
    /// Whether a chain has all that this island has seen, but for its own journal, which is laid over it: two
    /// islands must not wait for each other's.
    pub(crate) fn is_new_enough(&self, chain: &Chain) -> Result<bool, Stop> {
        let theirs = |island| chain.vector.iter().find(|(i, _)| *i == island).map(|(_, s)| *s);
        let older = |(i, s): (IslandId, Stamp)| i != self.config.id && theirs(i).unwrap_or_default() < s;
        Ok(self.sight(chain)? == Sight::Same || !self.state.clocks().iter().any(older))
    }

    /// Entries of this island's own journal that some island has not applied: those that the owner of a
    /// directory has not seen are among them.
    pub(crate) fn own_entries(&self) -> Vec<JournalEntry> {
        let mut entries: BTreeMap<Stamp, &JournalEntry> = BTreeMap::new();
        for island in self.others() {
            entries.extend(self.state.outbox(island));
        }
        entries.into_values().cloned().collect()
    }

    /// What laying them over a chain reads must be in memory.
    pub(crate) fn need_own_over(&self, chain: &Chain) -> Result<(), Stop> {
        for entry in self.own_entries() {
            let (JournalEntry::Place { ino, place, .. } | JournalEntry::Fixed { ino, place, .. }) = &entry;
            if chain.dirs.iter().any(|dir| dir.ino == *ino) {
                self.need_name(place)?;
            }
        }
        Ok(())
    }

    /// Tells the ancestors of a directory, as they are now.
    pub(crate) fn on_want_chain(&mut self, message: &PeerMessage, dir: Ino) -> Result<(), Stop> {
        let owned = self.state.dir(dir)?.is_some_and(|row| row.owned.is_some());
        let chain = if owned { Some(self.chain_to(dir)?) } else { None };
        self.send(self.state.seen(), message.from, Peer::ChainOf { dir, chain });
        Ok(())
    }

    pub(crate) fn on_chain_of(&mut self, dir: Ino, chain: Option<&Chain>) {
        self.journal.chains.insert(dir, chain.cloned());
        self.ask_stalled();
    }
}
