//! Which nodes keep which island: the one place where this is chosen. Never changes a volume that is there.
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
