//! Ancestors of directories that this island did not know: whether they are new enough, and asking for them.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, IslandId, Stamp};
use atoll_proto::{Chain, JournalEntry, PeerMessage, PeerOp};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::Blocked;

/// The journals that a sender has seen, compared with those that this island has applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VectorOrder {
    /// The same.
    Same,
    /// Less, at least of one journal.
    Older,
    /// More.
    Newer {
        /// Of these journals.
        missing: Vec<IslandId>,
    },
}

impl Ctx {
    /// An island has missed a part of this island's journal, and has not made up for it yet.
    pub(crate) fn has_journal_gap(&self, island: IslandId) -> bool {
        self.state.delivered(island) < self.state.skipped(island)
    }

    /// Up to here nothing is kept for an island.
    pub(crate) fn needs_from(&self, island: IslandId) -> Stamp {
        self.state.delivered(island).max(self.state.skipped(island))
    }

    /// How a chain of ancestors compares with the journals that this island has applied. A chain of
    /// directories that are all known says nothing new.
    pub(crate) fn order_of_chain(&self, chain: &Chain) -> Result<VectorOrder, Blocked> {
        for above in &chain.dirs {
            if self.state.dir(above.ino)?.is_none() {
                return Ok(self.order_of(&chain.vector));
            }
        }
        Ok(VectorOrder::Same)
    }

    /// How what its sender had seen compares with what was seen here. Changes that this island has seen
    /// and a chain has not were not kept here, where the directory was not known: the chain would bring
    /// the old state back. So would one that this island's own journal has not reached.
    pub(crate) fn order_of(&self, vector: &[(IslandId, Stamp)]) -> VectorOrder {
        let clocks = self.state.clocks();
        let newer = |(i, s): &&(IslandId, Stamp)| *i != self.config.id && clocks.get(*i) < *s;
        let missing: Vec<IslandId> = vector.iter().filter(newer).map(|(i, _)| *i).collect();
        if !missing.is_empty() {
            return VectorOrder::Newer { missing };
        }
        let older = self.state.public_clocks().iter().any(|(i, s)| seen_in(vector, i) < s);
        if older { VectorOrder::Older } else { VectorOrder::Same }
    }

    /// Puts a chain of ancestors into the skeleton, and over it the changes that this island itself has made
    /// since.
    pub(crate) fn merge_ancestors_over(&mut self, decision: &mut Decision, chain: &Chain) {
        self.merge_ancestors(decision, &chain.dirs);
        for entry in self.own_entries() {
            if entry.about().is_some_and(|(ino, _)| chain.dirs.iter().any(|dir| dir.ino == ino)) {
                self.apply_entry(decision, &entry);
            }
        }
    }

    /// Whether a chain has all that this island has seen, but for its own journal, which is laid over it: two
    /// islands must not wait for each other's.
    pub(crate) fn is_new_enough(&self, chain: &Chain) -> Result<bool, Blocked> {
        let older = |(i, s): (IslandId, Stamp)| i != self.config.id && seen_in(&chain.vector, i) < s;
        if self.order_of_chain(chain)? == VectorOrder::Same {
            return Ok(true);
        }
        Ok(!self.state.public_clocks().iter().any(older) && self.can_lay_over(chain)?)
    }

    /// Whether what a chain lacks of this island's own journal can be laid over it: it is still kept, and leads to
    /// directories that are known. Otherwise whoever told it applies that journal first, which depends on nothing
    /// later.
    fn can_lay_over(&self, chain: &Chain) -> Result<bool, Blocked> {
        let theirs = seen_in(&chain.vector, self.config.id);
        let is_behind = theirs < self.state.public_clocks().get(self.config.id);
        let gone = self.config.others().map(|island| self.needs_from(island)).min();
        if is_behind && gone.is_some_and(|gone| theirs < gone) {
            return Ok(false);
        }
        let in_chain = |ino: Ino| chain.dirs.iter().any(|dir| dir.ino == ino);
        for entry in self.own_entries() {
            if let JournalEntry::Place { ino, place, .. } = &entry
                && chain.dirs.iter().any(|dir| dir.ino == *ino && dir.place.version < place.version)
                && !in_chain(place.parent)
                && self.state.dir(place.parent)?.is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Entries of this island's own journal that some island has not applied: those that the owner of a
    /// directory has not seen are among them. Of several about one directory the last place and the last attributes:
    /// what is laid by them goes into one record.
    pub(crate) fn own_entries(&self) -> Vec<JournalEntry> {
        let mut entries: BTreeMap<Stamp, &JournalEntry> = BTreeMap::new();
        for island in self.config.others() {
            entries.extend(self.state.outbox(island));
        }
        let mut seen = BTreeSet::new();
        let is_last = |entry: &&JournalEntry| match entry {
            JournalEntry::Place { ino, .. } => seen.insert((*ino, true)),
            JournalEntry::StaticAttrs { ino, .. } => seen.insert((*ino, false)),
            JournalEntry::ClockBump => false,
        };
        let mut last: Vec<JournalEntry> = entries.into_values().rev().filter(is_last).cloned().collect();
        last.reverse();
        last
    }

    /// Makes sure that the rows which [`Ctx::merge_ancestors_over`] reads of this island's own entries are in
    /// memory.
    pub(crate) fn own_over_must_be_loaded(&self, chain: &Chain) -> Result<(), Blocked> {
        for entry in self.own_entries() {
            if let Some((ino, place)) = entry.about()
                && chain.dirs.iter().any(|dir| dir.ino == ino)
            {
                self.acls_must_be_loaded(ino)?;
                self.entry_must_be_loaded(place)?;
            }
        }
        Ok(())
    }

    /// Tells the ancestors of a directory, as they are now.
    pub(crate) fn on_want_chain(&mut self, message: &PeerMessage, dir: Ino) -> Result<(), Blocked> {
        let owned = self.state.dir(dir)?.is_some_and(|row| row.owned.is_some());
        // If they are too many to be told, what the asker has must do, as if the directory were gone.
        let chain = match self.chain_to(dir) {
            Ok(chain) => Some(chain).filter(|_| owned),
            Err(Blocked::Fail(_)) => None,
            Err(stop) => return Err(stop),
        };
        self.send(self.state.seen(), message.from, PeerOp::ChainOf { dir, chain });
        Ok(())
    }
}

/// The stamp up to which a sender had seen an island's journal.
pub(crate) fn seen_in(vector: &[(IslandId, Stamp)], island: IslandId) -> Stamp {
    let known = vector.iter().find(|(of, _)| *of == island);
    known.map_or(Stamp::default(), |(_, stamp)| *stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctx::Config;
    use crate::ctx::lost::LostPart;
    use crate::event::{Event, Now};
    use crate::island::Island;
    use crate::recovery::start::PreviousEnd;
    use atoll_core::{Key, Name, SessionId, Table, Time, TxnId};
    use atoll_posix::{Attr, Kind};
    use atoll_proto::{
        Ancestor, DirPlace, EntryRef, Inode, ParticipantWork, PlaceVersion, RequestId, RowChange,
        StaticAttrs, TxnPart, TxnStamps, Xattrs,
    };
    use atoll_state::State;

    const DIR: Ino = Ino(77);

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    fn attr(ino: Ino) -> Attr {
        let (kind, time) = (Kind::Regular, Time::default());
        let (mode, nlink, uid, gid, rdev, size, blocks) = (0o644, 1, 0, 0, 0, 0, 0);
        let (atime, mtime, ctime, btime) = (time, time, time, time);
        Attr { ino, kind, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime }
    }

    /// A directory in the root, by the name that it had or has.
    fn at(called: &str, stamp: Stamp) -> DirPlace {
        let version = PlaceVersion { moves: 0, stamp };
        DirPlace { version, parent: Ino::ROOT, name: Some(name(called)) }
    }

    #[test]
    fn a_redo_takes_a_chain_that_lacks_only_its_own_journal_and_lays_that_over_it() {
        let me = IslandId(0);
        let config = Config::new(me, 1, Table::new(2), vec![me, IslandId(1)]);
        let mut island = Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default());
        let file = Ino::mint(me, 20);
        let stamp = island.ctx.stamp();
        let (from, time) = (EntryRef { dir: Ino::ROOT, name: name("before") }, Time::default());
        let (place, chain) = (at("after", stamp), Chain::default());
        let renamed = JournalEntry::Place { ino: DIR, place, from, replaced: None, chain, time };
        let row = Inode {
            attr: attr(file),
            target: None,
            has_xattrs: false,
            has_acl: false,
            orphan_of: vec![],
            moves: 0,
            beside: None,
            is_absent: false,
        };
        island.correct(
            vec![
                RowChange::Inode { ino: file, row: Some(Box::new(row)) },
                RowChange::Clock { island: me, stamp },
                RowChange::Posted { stamp, entry: renamed },
            ],
            Vec::new(),
        );
        // The directory's owner has not heard of its new name.
        let fixed = StaticAttrs { version: Stamp(0), mode: 0o755, uid: 0, gid: 0 };
        let root = island.ctx.chain(Ino::ROOT).expect("in memory").remove(0);
        let (key, place, xattrs) = (Key(1), at("before", Stamp(0)), Xattrs::default());
        let dirs =
            vec![root, Ancestor { ino: DIR, key, birth_bytes: 0, place, fixed, xattrs, suspected: false }];
        let chain = Chain { vector: Vec::new(), dirs };
        let work = ParticipantWork::AddName {
            ino: file,
            at: EntryRef { dir: DIR, name: name("f") },
            time,
            chain,
            within: None,
        };
        let part = TxnPart { request: RequestId { session: SessionId(1), seq: 1 }, work };
        let txn = TxnId { coordinator: IslandId(1), stamp: Stamp(5) };
        let stamps = TxnStamps { prepared: Stamp(1), committed: Stamp(6) };
        let lost = LostPart { from: IslandId(1), txn, stamps, part };
        let done = loop {
            match island.recovery.redo_part(&mut island.ctx, island.txns.locks(), Stamp(1), &lost) {
                Err(Blocked::Load(loads)) => {
                    for load in loads {
                        let loaded = load.nothing();
                        island.ctx.state.load(load, loaded).expect("well formed");
                    }
                }
                done => break done,
            }
        };
        assert!(matches!(done, Ok(true)), "it waits for itself: {done:?}");
        let laid = island.ctx.in_memory(DIR).expect("it has a name of a file in it");
        assert_eq!(laid.place, at("after", stamp));
        island.handle(Now::default(), Event::Tick { bytes_available: 1 << 40 }, &mut Vec::new());
    }
}
