//! Which nodes keep which island: the one place where this is chosen, for a new volume ([`Ring`]) and for one that is there
//! ([`NextRing`]).
//!
//! A group is a stretch of the ring of nodes (Ring FS 5: the successors), and the next group begins where it ends. So all
//! nodes get as many seats. If the number of nodes can be divided by that of the copies, the groups are fixed: the same nodes keep
//! the same islands, and fewer deaths of several nodes at once hit all copies of an island than with stretches that overlap.
//!
//! With racks, the ring is put in an order in which each stretch has as many racks as nodes. A rack with more nodes than that
//! allows is *crowded*: it can have one seat in each group, which its nodes take in turn.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;

/// What the choice follows from.
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a> {
    /// The nodes of the volume, in the order of the ring.
    pub nodes: &'a [NodeId],
    /// The rack of each of them: what fails together. Empty if each node fails by itself.
    pub racks: &'a [String],
    /// How many nodes shall keep each island.
    pub replicas: usize,
    /// The node that has the control store, if one of them has it. Without it no group can change.
    pub store: Option<NodeId>,
}

/// Why islands cannot be placed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// No copy at all.
    #[error("an island needs one copy at least")]
    NoCopy,
    /// Fewer nodes than copies.
    #[error("{replicas} copies need {replicas} nodes, and there are {nodes}")]
    Nodes {
        /// Copies of an island.
        replicas: usize,
        /// Nodes of the volume.
        nodes: usize,
    },
    /// A node is there twice.
    #[error("node {node} is there twice")]
    Twice {
        /// The node.
        node: NodeId,
    },
    /// The store is somewhere else.
    #[error("node {store} has the control store, and is not one of the nodes")]
    Store {
        /// Its node.
        store: NodeId,
    },
    /// Not one rack for each node.
    #[error("there are {racks} racks for {nodes} nodes")]
    RackList {
        /// Racks that are named.
        racks: usize,
        /// Nodes of the volume.
        nodes: usize,
    },
    /// Copies of an island would lie in one rack.
    #[error("{replicas} copies need {replicas} racks, and the nodes that keep islands are in {racks}")]
    Racks {
        /// Copies of an island.
        replicas: usize,
        /// Racks of the nodes that would keep islands.
        racks: usize,
        /// Racks of all nodes: there may be enough if another node has the control store.
        all: usize,
    },
}

/// A node that keeps islands: its index in the ring, and its rack.
#[derive(Debug, Clone, Copy)]
struct Keeper<'a> {
    at: usize,
    /// None: it is in no rack with others.
    rack: Option<&'a str>,
}

impl<'a> Ring<'a> {
    /// The nodes that keep islands, in the order of the ring. If there are more nodes than copies, the store's node keeps none:
    /// when it dies the groups that it is in cannot drop it, and stop.
    pub fn keepers(&self) -> Vec<NodeId> {
        self.seated().map(|keeper| self.nodes[keeper.at]).collect()
    }

    fn seated(&self) -> impl Iterator<Item = Keeper<'a>> + use<'a> {
        let Self { nodes, racks, store, replicas } = *self;
        let spares_store = replicas > 1 && nodes.len() > replicas;
        let seated = (0..nodes.len()).filter(move |at| !(spares_store && Some(nodes[*at]) == store));
        seated.map(move |at| Keeper { at, rack: racks.get(at).map(String::as_str) })
    }

    /// The group of each of `islands` islands: its nodes in the order of the ring, first the one that shall lead at first.
    /// Islands that a node leads are next to each other.
    ///
    /// Each group has `replicas` nodes in as many racks. Of two nodes that keep islands, none leads more than one more than the
    /// other, and none has more than one seat more, unless a rack is crowded. Then this holds for the seats of the nodes of one
    /// crowded rack, and for those of the nodes of all racks that are not. A node of a crowded rack has fewer seats than others,
    /// or one more at most.
    pub fn place(&self, islands: usize) -> Result<Vec<Vec<NodeId>>, NoPlace> {
        self.check()?;
        let mut ring: Vec<Keeper<'_>> = self.seated().collect();
        let (mut crowded, mut left) = (Vec::new(), self.replicas);
        while let Some(rack) = crowded_rack(&ring, left) {
            let (inside, outside): (Vec<_>, Vec<_>) =
                ring.iter().partition(|keeper| keeper.rack == Some(rack));
            (ring, left) = (outside, left - 1);
            crowded.push(inside);
        }
        let ring = in_turn(ring, left);
        let mut led = vec![0_usize; self.nodes.len()];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for island in 0..islands {
            let stretch = (0..left).map(|next| ring[(island * left + next) % ring.len()].at);
            let others = crowded.iter().map(|rack| rack[island % rack.len()].at);
            let mut group: Vec<usize> = stretch.chain(others).collect();
            let leader = group.iter().copied().min_by_key(|at| led[*at]).expect("a group has nodes");
            led[leader] += 1;
            group.sort_unstable_by_key(|at| (at + self.nodes.len() - leader) % self.nodes.len());
            groups.push(group);
        }
        groups.sort_by_key(|group| group[0]);
        Ok(groups.into_iter().map(|group| group.into_iter().map(|at| self.nodes[at]).collect()).collect())
    }

    fn check(&self) -> Result<(), NoPlace> {
        let (replicas, nodes) = (self.replicas, self.nodes.len());
        let mut seen = BTreeSet::new();
        if let Some(node) = self.nodes.iter().find(|node| !seen.insert(**node)) {
            return Err(NoPlace::Twice { node: *node });
        }
        if replicas == 0 {
            return Err(NoPlace::NoCopy);
        }
        if replicas > nodes {
            return Err(NoPlace::Nodes { replicas, nodes });
        }
        if let Some(store) = self.store.filter(|store| !self.nodes.contains(store)) {
            return Err(NoPlace::Store { store });
        }
        if !self.racks.is_empty() && self.racks.len() != nodes {
            return Err(NoPlace::RackList { racks: self.racks.len(), nodes });
        }
        let racks = self.seated().filter_map(|keeper| keeper.rack).collect::<BTreeSet<_>>().len();
        if !self.racks.is_empty() && racks < replicas {
            let all = self.racks.iter().collect::<BTreeSet<_>>().len();
            return Err(NoPlace::Racks { replicas, racks, all });
        }
        Ok(())
    }
}

/// The number of nodes in each rack.
fn sizes<'a>(ring: &[Keeper<'a>]) -> BTreeMap<&'a str, usize> {
    let mut sizes = BTreeMap::new();
    ring.iter().filter_map(|keeper| keeper.rack).for_each(|rack| *sizes.entry(rack).or_default() += 1);
    sizes
}

/// A rack of which stretches of so many nodes would have two: it has more nodes than there are whole stretches in the ring.
fn crowded_rack<'a>(ring: &[Keeper<'a>], replicas: usize) -> Option<&'a str> {
    sizes(ring).into_iter().find(|(_, nodes)| nodes * replicas > ring.len()).map(|(rack, _)| rack)
}

/// The ring in an order in which each stretch of so many nodes has as many racks: in its own order, if that is one.
fn in_turn(ring: Vec<Keeper<'_>>, replicas: usize) -> Vec<Keeper<'_>> {
    let n = ring.len();
    let is_apart = |a: &Keeper<'_>, b: &Keeper<'_>| a.rack.is_none() || a.rack != b.rack;
    let mut pairs = (0..n).flat_map(|at| (1..replicas).map(move |next| (at, (at + next) % n)));
    if pairs.all(|(a, b)| is_apart(&ring[a], &ring[b])) {
        return ring;
    }
    // The racks one behind the other, the largest first, are dealt out to rounds, of which there are as many as whole
    // stretches. No rack has more nodes, so each round gets one of it at most. Two nodes of a rack that are in neighbouring
    // rounds have the same place there, or a rack lies between them: so they are as far apart as a stretch is long.
    let (sizes, rounds) = (sizes(&ring), n / replicas);
    let mut sorted = ring;
    sorted.sort_by_key(|keeper| {
        let rack = keeper.rack.unwrap_or_default();
        (std::cmp::Reverse(sizes.get(rack).copied().unwrap_or(1)), rack)
    });
    let round = |first: usize| sorted.iter().skip(first).step_by(rounds).copied();
    (0..rounds).flat_map(round).collect()
}

/// Another ring for an island of a volume that is there: as few copies move as possible.
pub struct NextRing<'a> {
    /// The nodes of the volume, in its order.
    pub nodes: &'a [NodeId],
    /// The rack of each of them. Empty if each node fails by itself.
    pub racks: &'a [String],
    /// How many nodes shall keep the island.
    pub wanted: usize,
    /// The node that has the control store, if one of them has it: it gets a copy only if no other one can.
    pub store: Option<NodeId>,
    /// Whether a node shall not keep it any more.
    pub leaves: &'a dyn Fn(NodeId) -> bool,
    /// Whether a node may get a copy.
    pub may_get: &'a dyn Fn(NodeId) -> bool,
}

impl std::fmt::Debug for NextRing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextRing")
            .field("nodes", &self.nodes)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl NextRing<'_> {
    /// The ring in place of `before`, of which the first `keepers` are to have a copy each. First those that shall keep one, each as
    /// far as possible in its place; a node that is new takes the place of one that leaves. Behind them those that were there and
    /// shall not: they keep what they have until the others have it.
    ///
    /// `seats`: how many islands each node shall keep. What changes is counted there.
    pub fn ring(
        &self,
        before: &[NodeId],
        keepers: usize,
        seats: &mut BTreeMap<NodeId, usize>,
    ) -> Result<Vec<NodeId>, NoPlace> {
        let keepers = &before[..keepers.min(before.len())];
        let mut slots: Vec<Option<NodeId>> =
            keepers.iter().map(|node| Some(*node).filter(|node| !(self.leaves)(*node))).collect();
        while slots.len() > self.wanted {
            // Those that leave go first, and then the last ones.
            let at = slots.iter().rposition(Option::is_none).unwrap_or(slots.len() - 1);
            slots.remove(at);
        }
        slots.resize(self.wanted, None);
        for at in 0..slots.len() {
            if slots[at].is_none() {
                slots[at] = Some(self.spare(before, &slots, seats)?);
            }
        }
        let mut ring: Vec<NodeId> = slots.into_iter().flatten().collect();
        keepers.iter().filter(|node| !ring.contains(node)).for_each(|node| {
            seats.entry(*node).and_modify(|seats| *seats = seats.saturating_sub(1));
        });
        ring.iter()
            .filter(|node| !keepers.contains(node))
            .for_each(|node| *seats.entry(*node).or_default() += 1);
        let others: Vec<NodeId> = before.iter().copied().filter(|node| !ring.contains(node)).collect();
        ring.extend(others);
        Ok(ring)
    }

    fn rack_of(&self, node: NodeId) -> Option<&str> {
        let at = self.nodes.iter().position(|other| *other == node)?;
        self.racks.get(at).map(String::as_str)
    }

    /// A node for a copy beside these: one that has it already, else the one with the fewest.
    fn spare(
        &self,
        before: &[NodeId],
        slots: &[Option<NodeId>],
        seats: &BTreeMap<NodeId, usize>,
    ) -> Result<NodeId, NoPlace> {
        let keeps = |node: &NodeId| slots.contains(&Some(*node));
        let may = |node: &NodeId| !(self.leaves)(*node) && (self.may_get)(*node);
        let free: Vec<NodeId> = self.nodes.iter().copied().filter(|node| may(node) && !keeps(node)).collect();
        let kept = slots.iter().flatten().count();
        if free.is_empty() {
            return Err(NoPlace::Nodes { replicas: self.wanted, nodes: kept });
        }
        let racks: BTreeSet<&str> = slots.iter().flatten().filter_map(|node| self.rack_of(*node)).collect();
        let is_apart = |node: &NodeId| self.rack_of(*node).is_none_or(|rack| !racks.contains(rack));
        let rank = |node: &NodeId| {
            let is_store = Some(*node) == self.store;
            (!before.contains(node), is_store, seats.get(node).copied().unwrap_or(0), *node)
        };
        free.into_iter().filter(is_apart).min_by_key(rank).ok_or_else(|| NoPlace::Racks {
            replicas: self.wanted,
            racks: racks.len(),
            all: self.racks.iter().collect::<BTreeSet<_>>().len(),
        })
    }
}
