//! Who keeps which island: every group is apart, and everybody carries the same.

use std::collections::BTreeSet;

use atoll_core::NodeId;
use atoll_core::placement::{NextRing, NoPlace, Ring};
use proptest::prelude::*;

fn nodes(n: usize) -> Vec<NodeId> {
    (0..n).map(|node| NodeId(node as u16)).collect()
}

fn names(racks: &[usize]) -> Vec<String> {
    racks.iter().map(|rack| format!("r{rack}")).collect()
}

/// How even a placement is.
struct Counted {
    seats: Vec<usize>,
    led: Vec<usize>,
}

/// Holds every group against what was asked for.
fn counted(ring: &Ring<'_>, islands: usize) -> Counted {
    let groups = ring.place(islands).unwrap();
    assert_eq!(groups, ring.place(islands).unwrap(), "the same every time");
    assert_eq!(groups.len(), islands);
    let (mut seats, mut led) = (vec![0; ring.nodes.len()], vec![0; ring.nodes.len()]);
    let keepers = ring.keepers();
    for group in &groups {
        let apart: BTreeSet<_> = group.iter().collect();
        assert_eq!((apart.len(), group.len()), (ring.replicas, ring.replicas), "{group:?}: other nodes");
        assert!(group.iter().all(|node| keepers.contains(node)), "{group:?}");
        if !ring.racks.is_empty() {
            let racks: BTreeSet<_> = group.iter().map(|node| &ring.racks[usize::from(node.0)]).collect();
            assert_eq!(racks.len(), ring.replicas, "{group:?} in {:?}: other racks", ring.racks);
        }
        let turns = group.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(turns <= 1, "{group:?} is in the order of the ring, which closes once");
        group.iter().for_each(|node| seats[usize::from(node.0)] += 1);
        led[usize::from(group[0].0)] += 1;
    }
    assert!(groups.windows(2).all(|pair| pair[0][0] <= pair[1][0]), "who leads several leads neighbours");
    let kept = |all: Vec<usize>| keepers.iter().map(|node| all[usize::from(node.0)]).collect();
    Counted { seats: kept(seats), led: kept(led) }
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_racks_all_nodes_have_as_many_seats_and_lead_as_many(n in 1usize..40, replicas in 1usize..17, islands in 1usize..200, store: prop::sample::Index) {
        prop_assume!(replicas <= n);
        let nodes = nodes(n);
        let ring = Ring { nodes: &nodes, racks: &[], replicas, store: Some(nodes[store.index(n)]) };
        let counted = counted(&ring, islands);
        prop_assert!(spread(&counted.seats) <= 1, "{:?}", counted.seats);
        prop_assert!(spread(&counted.led) <= 1, "{:?}", counted.led);
    }

    #[test]
    fn with_racks_copies_are_in_other_racks_and_as_even_as_racks_allow(racks in prop::collection::vec(0usize..8, 2..30), replicas in 2usize..6, islands in 1usize..200, store: prop::sample::Index) {
        let nodes = nodes(racks.len());
        let store = nodes[store.index(nodes.len())];
        let racks = names(&racks);
        let ring = Ring { nodes: &nodes, racks: &racks, replicas, store: Some(store) };
        prop_assume!(ring.place(0).is_ok());
        as_even_as_racks_allow(&ring, islands);
    }
}

/// The bound that `Ring::place` promises.
fn as_even_as_racks_allow(ring: &Ring<'_>, islands: usize) {
    let Counted { seats, led } = counted(ring, islands);
    assert!(spread(&led) <= 1, "{:?}, {} copies: {led:?} lead", ring.racks, ring.replicas);
    // What a rack may have: one seat in each group.
    let rack_of = |at: usize| &ring.racks[usize::from(ring.keepers()[at].0)];
    for a in 0..seats.len() {
        for b in (0..seats.len()).filter(|b| seats[*b] + 1 < seats[a]) {
            let of_b: usize =
                (0..seats.len()).filter(|at| rack_of(*at) == rack_of(b)).map(|at| seats[at]).sum();
            assert!(
                rack_of(a) != rack_of(b) && of_b == islands,
                "{:?}, {} copies: {seats:?}",
                ring.racks,
                ring.replicas
            );
        }
    }
}

/// All ways to put nodes into racks, whatever the racks are called.
fn all_racks(n: usize, found: &mut Vec<usize>, each: &mut dyn FnMut(&[usize])) {
    if found.len() == n {
        return each(found);
    }
    for rack in 0..=found.iter().max().map_or(0, |most| most + 1) {
        found.push(rack);
        all_racks(n, found, each);
        found.pop();
    }
}

#[test]
fn every_small_ring_is_as_even_as_its_racks_allow() {
    let mut places = 0;
    for n in 2..=7 {
        let nodes = nodes(n);
        all_racks(n, &mut Vec::new(), &mut |racks| {
            let racks = names(racks);
            for replicas in 2..=n {
                let ring = Ring { nodes: &nodes, racks: &racks, replicas, store: Some(NodeId(0)) };
                if ring.place(0).is_ok() {
                    (1..=2 * n).for_each(|islands| as_even_as_racks_allow(&ring, islands));
                    places += 1;
                }
            }
        });
    }
    assert!(places > 1_000, "{places}");
}

#[test]
fn groups_of_one_lie_one_node_behind_the_other() {
    let nodes = nodes(3);
    let ring = Ring { nodes: &nodes, racks: &[], replicas: 1, store: Some(NodeId(0)) };
    let groups: Vec<u16> = ring.place(6).unwrap().into_iter().flatten().map(|node| node.0).collect();
    assert_eq!(groups, [0, 0, 1, 1, 2, 2], "the store's node keeps islands of its own too");
}

/// The groups of as many islands as there are nodes that keep some.
fn groups(n: usize, racks: &[usize], replicas: usize) -> Vec<Vec<u16>> {
    let (nodes, racks) = (nodes(n), names(racks));
    let ring = Ring { nodes: &nodes, racks: &racks, replicas, store: Some(NodeId(0)) };
    let placed = ring.place(ring.keepers().len()).unwrap();
    placed.into_iter().map(|group| group.into_iter().map(|node| node.0).collect()).collect()
}

#[test]
fn the_node_of_the_store_keeps_nothing_if_there_are_enough_others() {
    assert_eq!(groups(4, &[], 2), [[1, 2], [2, 3], [3, 1]]);
    assert_eq!(groups(2, &[], 2), [[0, 1], [1, 0]]);
}

#[test]
fn groups_are_fixed_where_the_number_of_nodes_divides() {
    assert_eq!(groups(5, &[], 2), [[1, 2], [2, 1], [3, 4], [4, 3]]);
    let with_racks = [[1, 3], [2, 4], [3, 1], [4, 2]];
    assert_eq!(groups(5, &[9, 0, 0, 1, 1], 2), with_racks, "as far as racks allow");
}

#[test]
fn a_rack_with_more_than_its_share_has_one_seat_in_each_group() {
    // The store's rack has one node left, which has to be in every group.
    assert_eq!(groups(4, &[0, 0, 1, 1], 2), [[1, 2], [2, 1], [3, 1]]);
}

#[test]
fn what_cannot_be_placed_is_an_error() {
    let all = nodes(4);
    let twice = [NodeId(0), NodeId(1), NodeId(0)];
    let racks = |racks: &[usize]| names(racks);
    let none: Vec<String> = Vec::new();
    for (nodes, racks, replicas, store, why) in [
        (&all[..], &none, 0, 0, NoPlace::NoCopy),
        (&all[..], &none, 5, 0, NoPlace::Nodes { replicas: 5, nodes: 4 }),
        (&[][..], &none, 1, 0, NoPlace::Nodes { replicas: 1, nodes: 0 }),
        (&twice[..], &none, 2, 0, NoPlace::Twice { node: NodeId(0) }),
        (&all[..], &none, 2, 9, NoPlace::Store { store: NodeId(9) }),
        (&all[..], &racks(&[1, 2, 3]), 2, 0, NoPlace::RackList { racks: 3, nodes: 4 }),
        (&all[..], &racks(&[1, 1, 1, 1]), 2, 0, NoPlace::Racks { replicas: 2, racks: 1, all: 1 }),
        // The only node of its rack has the store.
        (&all[..], &racks(&[1, 2, 2, 2]), 2, 0, NoPlace::Racks { replicas: 2, racks: 1, all: 2 }),
    ] {
        let ring = Ring { nodes, racks, replicas, store: Some(NodeId(store)) };
        assert_eq!(ring.place(8), Err(why), "{ring:?}");
    }
}

/// The ring of an island whose nodes were `before`, of which the first two had copies.
fn changed(before: &[u16], wanted: usize, leaving: &[u16], racks: &[&str]) -> Result<Vec<u16>, NoPlace> {
    let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
    let racks: Vec<String> = racks.iter().map(|rack| (*rack).to_owned()).collect();
    let before: Vec<NodeId> = before.iter().map(|node| NodeId(*node)).collect();
    let change = NextRing {
        nodes: &nodes,
        racks: &racks,
        wanted,
        store: Some(NodeId(0)),
        leaves: &|node| leaving.contains(&node.0),
        may_get: &|_| true,
    };
    let mut seats = [(NodeId(1), 4), (NodeId(2), 4), (NodeId(3), 3), (NodeId(4), 2)].into();
    Ok(change.ring(&before, 2, &mut seats)?.into_iter().map(|node| node.0).collect())
}

#[test]
fn a_change_moves_as_few_copies_as_possible() {
    assert_eq!(changed(&[1, 2], 2, &[], &[]), Ok(vec![1, 2]));
    assert_eq!(changed(&[1, 2], 3, &[], &[]), Ok(vec![1, 2, 4]), "the one with the fewest");
    assert_eq!(changed(&[1, 2], 1, &[], &[]), Ok(vec![1, 2]), "the last one stays until it may go");
    assert_eq!(changed(&[1, 2], 1, &[1], &[]), Ok(vec![2, 1]));
    assert_eq!(changed(&[1, 2], 2, &[1], &[]), Ok(vec![4, 2, 1]), "in its place");
    assert_eq!(changed(&[4, 2, 1], 2, &[], &[]), Ok(vec![4, 2, 1]));
    // Undone: it has a copy already.
    assert_eq!(changed(&[4, 2, 1], 2, &[4], &[]), Ok(vec![1, 2, 4]));
    assert_eq!(changed(&[1, 2], 2, &[1, 3, 4], &[]), Ok(vec![0, 2, 1]), "the control store's only at last");
}

#[test]
fn a_change_that_has_no_place_is_refused() {
    assert_eq!(changed(&[1, 2], 6, &[], &[]), Err(NoPlace::Nodes { replicas: 6, nodes: 5 }));
    assert_eq!(changed(&[1, 2], 2, &[1, 0, 3, 4], &[]), Err(NoPlace::Nodes { replicas: 2, nodes: 1 }));
    let racks = ["a", "a", "b", "b", "c"];
    assert_eq!(changed(&[1, 2], 2, &[2], &racks), Ok(vec![1, 4, 2]));
    assert_eq!(changed(&[1, 2], 2, &[2, 4], &racks), Ok(vec![1, 3, 2]));
    let refused = Err(NoPlace::Racks { replicas: 4, racks: 3, all: 3 });
    assert_eq!(changed(&[1, 2], 4, &[], &racks), refused);
}
