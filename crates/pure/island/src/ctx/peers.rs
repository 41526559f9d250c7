//! The other islands: whether each can be reached, and its incarnation.

use std::collections::BTreeMap;

use atoll_core::IslandId;
use atoll_core::map::IdSet;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    reachable: IdSet<IslandId>,
    /// The last incarnation of each island that has said something.
    incarnations: BTreeMap<IslandId, u32>,
}

/// The incarnation of its sender in which a message was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SenderLife {
    /// One that has ended.
    Earlier,
    /// The known one.
    Same,
    /// A new one.
    New,
}

impl Peers {
    pub(crate) fn is_reachable(&self, island: IslandId) -> bool {
        self.reachable.contains(&island)
    }

    pub(crate) fn set_reachable(&mut self, island: IslandId, up: bool) {
        if up {
            self.reachable.insert(island);
        } else {
            self.reachable.remove(&island);
        }
    }

    /// The last incarnation of an island that has said something; 0: none has.
    pub(crate) fn incarnation(&self, island: IslandId) -> u32 {
        self.incarnations.get(&island).copied().unwrap_or_default()
    }

    /// An island says something in this incarnation.
    pub(crate) fn speaks(&mut self, island: IslandId, incarnation: u32) -> SenderLife {
        let known = self.incarnations.entry(island).or_default();
        if incarnation < *known {
            return SenderLife::Earlier;
        }
        let life = if incarnation > *known { SenderLife::New } else { SenderLife::Same };
        *known = incarnation;
        life
    }
}
