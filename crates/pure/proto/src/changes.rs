//! The next configuration of a volume when other nodes shall keep its islands, or more or fewer of them
//! (`docs/design/020-filling.md`). Decides nothing but that: who may give such an order, and when, others say.

use std::collections::BTreeMap;

use atoll_core::placement::{NextRing, NoPlace};
use atoll_core::{IslandId, NodeId};

use crate::copies::{Copies, IslandGroup};
use crate::group::GroupRecord;
use crate::volume::VolumeConfig;

impl VolumeConfig {
    /// The node that has the volume's configuration and the group records, unless all nodes reach them in another way.
    pub fn store_node(&self) -> NodeId {
        let first = self.nodes.first().map(|node| node.node).unwrap_or_default();
        self.copies.as_ref().map_or(first, |copies| copies.store)
    }

    /// The same volume, of which each island has a group: of one, if it had none.
    pub fn with_groups(&self) -> Self {
        let of_one = |island| IslandGroup { island, nodes: self.group_of(island) };
        let groups = || self.islands().into_iter().map(of_one).collect();
        let copies = || Copies { wanted: 1, store: self.store_node(), groups: groups(), ..Copies::default() };
        Self { copies: Some(self.copies.clone().unwrap_or_else(copies)), ..self.clone() }
    }

    /// The next configuration, with these copies. Whoever is first in a ring leads at first.
    pub fn with_copies(&self, copies: Copies) -> Self {
        let mut next = Self { table: self.table.reassigned([]), copies: None, ..self.clone() };
        for node in &mut next.nodes {
            let first = copies.groups.iter().filter(|group| group.nodes.first() == Some(&node.node));
            node.islands = first.map(|group| group.island).collect();
        }
        next.copies = Some(copies);
        next
    }

    /// How many islands each node is to keep.
    fn seats(copies: &Copies) -> BTreeMap<NodeId, usize> {
        let mut seats = BTreeMap::new();
        let keepers = copies.groups.iter().flat_map(|group| group.keepers(copies.wanted));
        keepers.for_each(|node| *seats.entry(*node).or_default() += 1);
        seats
    }

    /// The next configuration, in which so many copies are wanted, on nodes that do not leave and are not drained. Only whoever may
    /// gets one that has none. `is_for_all`: no node has the control store of all.
    pub fn with_wanted(
        &self,
        wanted: u8,
        is_for_all: bool,
        leaves: &dyn Fn(NodeId) -> bool,
        may_get: &dyn Fn(IslandId, NodeId) -> bool,
    ) -> Result<Self, NoPlace> {
        let mut copies = self.with_groups().copies.expect("it has groups");
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.node).collect();
        let (mut seats, drained) = (Self::seats(&copies), copies.drained.clone());
        let store = (!is_for_all).then_some(copies.store);
        for group in &mut copies.groups {
            let island = group.island;
            let change = NextRing {
                nodes: &nodes,
                racks: &copies.racks,
                wanted: usize::from(wanted),
                store,
                leaves: &|node| leaves(node) || drained.contains(&node),
                may_get: &|node| may_get(island, node),
            };
            group.nodes = change.ring(&group.nodes, usize::from(copies.wanted), &mut seats)?;
        }
        copies.wanted = wanted;
        Ok(self.with_copies(copies))
    }

    /// The next configuration, in which another node keeps an island in the place of `away`, which keeps its copy until that is in sync.
    pub fn with_spare(
        &self,
        island: IslandId,
        away: NodeId,
        is_for_all: bool,
        may_get: &dyn Fn(NodeId) -> bool,
    ) -> Result<Self, NoPlace> {
        let wanted = self.copies.as_ref().map_or(1, |copies| copies.wanted);
        let mut copies = self.with_groups().copies.expect("it has groups");
        let others = |group: &IslandGroup| group.island != island;
        let kept: Vec<IslandGroup> = copies.groups.iter().filter(|group| others(group)).cloned().collect();
        let mut seats = Self::seats(&copies);
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.node).collect();
        let change = NextRing {
            nodes: &nodes,
            racks: &copies.racks,
            wanted: usize::from(wanted),
            store: (!is_for_all).then_some(copies.store),
            leaves: &|node| node == away,
            may_get: &|node| may_get(node) && !copies.drained.contains(&node),
        };
        let before = copies.group_of(island);
        let nodes = change.ring(before, usize::from(wanted), &mut seats)?;
        copies.groups = kept;
        copies.groups.push(IslandGroup { island, nodes });
        copies.groups.sort_unstable_by_key(|group| group.island);
        Ok(self.with_copies(copies))
    }

    /// The next configuration, in which a node that was drained may get copies again, and keeps those of which the ones in its place
    /// are not in sync.
    pub fn undrained(&self, node: NodeId, has_seat: impl Fn(IslandId, NodeId) -> bool) -> Self {
        let mut copies = self.with_groups().copies.expect("it has groups");
        copies.drained.retain(|other| *other != node);
        let wanted = usize::from(copies.wanted);
        for group in &mut copies.groups {
            let place = group.nodes.iter().position(|other| *other == node).filter(|place| *place >= wanted);
            let new = group.keepers(copies.wanted).iter().position(|other| !has_seat(group.island, *other));
            if let (Some(place), Some(new)) = (place, new) {
                group.nodes.swap(place, new);
            }
        }
        self.with_copies(copies)
    }

    /// The next configuration without a node: others are in its place already, or it keeps nothing.
    pub fn without_node(&self, node: NodeId) -> Self {
        let mut next = self.with_groups();
        let mut copies = next.copies.take().expect("it has groups");
        if !copies.racks.is_empty() {
            let racks = self.nodes.iter().zip(std::mem::take(&mut copies.racks));
            copies.racks = racks.filter(|(other, _)| other.node != node).map(|(_, rack)| rack).collect();
        }
        next.nodes.retain(|other| other.node != node);
        copies.groups.iter_mut().for_each(|group| group.nodes.retain(|other| *other != node));
        copies.drained.retain(|other| *other != node);
        if copies.store == node {
            // All nodes reach the records in another way.
            copies.store = next.nodes.first().map(|node| node.node).unwrap_or_default();
        }
        next.with_copies(copies)
    }

    /// The same without a node, as the one configuration behind `before`.
    pub fn without_node_of(&self, node: NodeId, before: &Self) -> Self {
        Self { table: before.table.reassigned([]), ..self.without_node(node) }
    }

    /// The next configuration without those nodes in the rings that are to go and have no seat any more. None if there are none.
    /// `record`: of an island of which this is to be looked at.
    pub fn shortened(&self, record: impl Fn(IslandId) -> Option<GroupRecord>) -> Option<Self> {
        let before = self.copies.as_ref()?;
        let mut copies = before.clone();
        for group in copies.groups.iter_mut().filter(|group| group.nodes.len() > usize::from(before.wanted)) {
            let Some(record) = record(group.island) else { continue };
            let keepers = group.keepers(before.wanted).to_vec();
            let has_seat = |node: &NodeId| record.seat_of(*node).is_some();
            if keepers.iter().all(has_seat) && record.wanted == before.wanted {
                group.nodes.retain(|node| keepers.contains(node) || has_seat(node));
            }
        }
        (copies != *before).then(|| self.with_copies(copies))
    }
}

#[cfg(test)]
mod tests {
    use atoll_core::{Table, VolumeId};

    use super::*;
    use crate::group::Seat;
    use crate::volume::{NodeConfig, VolumeKind};

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    /// Three nodes, of which the first two have an island each.
    fn alone() -> VolumeConfig {
        let node = |node: u16, islands: &[u16]| NodeConfig {
            daemon: 0,
            node: NodeId(node),
            address: format!("host{node}:1"),
            islands: islands.iter().map(|island| IslandId(*island)).collect(),
        };
        VolumeConfig {
            id: VolumeId(7),
            name: "home".to_owned(),
            seed: 9,
            table: Table::new(2),
            nodes: vec![node(0, &[0]), node(1, &[1]), node(2, &[])],
            kind: VolumeKind::Cluster,
            copies: None,
            site: None,
        }
    }

    fn rings(config: &VolumeConfig) -> Vec<Vec<NodeId>> {
        config.copies.as_ref().unwrap().groups.iter().map(|group| group.nodes.clone()).collect()
    }

    fn record(wanted: u8, nodes: &[NodeId]) -> GroupRecord {
        let in_sync = nodes.iter().map(|node| Seat { node: *node, tenure: 1 }).collect();
        GroupRecord { epoch: 0, primary: None, in_sync, wanted, power_cut: false }
    }

    fn wanted(config: &VolumeConfig, wanted: u8, leaving: &[NodeId]) -> Result<VolumeConfig, NoPlace> {
        config.with_wanted(wanted, false, &|node| leaving.contains(&node), &|_, _| true)
    }

    #[test]
    fn one_copy_becomes_two_and_three_and_one_again() {
        let first = alone();
        let two = wanted(&first, 2, &[]).unwrap();
        assert_eq!(rings(&two), [[A, C], [B, C]], "the node of the store gets none");
        assert_eq!(first.is_replaced_by(&two), Ok(true));
        let three = wanted(&two, 3, &[]).unwrap();
        assert_eq!(rings(&three), [[A, C, B], [B, C, A]]);
        let one = wanted(&three, 1, &[]).unwrap();
        assert_eq!(
            (rings(&one), one.copies.as_ref().unwrap().wanted),
            (rings(&three), 1),
            "they go when they may"
        );
        let all = [A, B, C];
        assert_eq!(one.shortened(|_| Some(record(1, &all))), None, "they have seats");
        assert_eq!(one.shortened(|_| Some(record(3, &all[..2]))), None, "the record does not say so yet");
        let first_only = one.shortened(|island| (island == IslandId(0)).then(|| record(1, &[A]))).unwrap();
        assert_eq!(rings(&first_only), [vec![A], vec![B, C, A]]);
        assert_eq!(one.is_replaced_by(&first_only), Ok(true));
        assert!(wanted(&first, 4, &[]).is_err());
    }

    #[test]
    fn a_node_that_leaves_has_another_one_in_its_place_and_may_be_taken_out_then() {
        let two = wanted(&alone(), 2, &[]).unwrap();
        let moved = wanted(&two, 2, &[B]).unwrap();
        assert_eq!(rings(&moved), [vec![A, C], vec![A, C, B]]);
        assert_eq!(moved.node_of(IslandId(1)).map(|node| node.node), Some(A));
        let undone = moved.undrained(B, |_, node| node != A);
        assert_eq!(rings(&undone), [vec![A, C], vec![B, C, A]], "A has it not yet");
        assert_eq!(rings(&moved.undrained(B, |_, _| true)), rings(&moved));
        assert_eq!(moved.shortened(|_| Some(record(2, &[B, C]))), None, "A has no seat yet");
        let short = moved.shortened(|_| Some(record(2, &[A, C]))).unwrap();
        assert_eq!(rings(&short), [[A, C], [A, C]]);
        let out = short.without_node(B);
        assert_eq!((out.nodes.len(), out.islands(), rings(&out)), (2, short.islands(), rings(&short)));
        assert!(wanted(&out, 2, &[C]).is_err());
    }

    #[test]
    fn a_spare_takes_the_place_of_a_node_that_is_away() {
        let two = wanted(&alone(), 2, &[]).unwrap();
        let spared = two.with_spare(IslandId(1), B, false, &|node| node == A).unwrap();
        assert_eq!(rings(&spared), [vec![A, C], vec![A, C, B]]);
        assert!(two.with_spare(IslandId(1), B, false, &|_| false).is_err());
        let mut drained = two;
        drained.copies.as_mut().unwrap().drained = vec![A];
        assert!(drained.with_spare(IslandId(1), B, false, &|_| true).is_err());
    }
}
