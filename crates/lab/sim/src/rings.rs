//! Which machines keep which island, and how many, changes while a world runs (`docs/design/020-filling.md`). One place has the
//! volume's newest configuration; each machine hears of it some time later, and does for its copies what a node does.
//!
//! Each machine has a copy of each island. One that no ring names is an empty one, which takes part in nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_disk::sim::Fault;
use atoll_group::{GroupEvent, Role};
use atoll_proto::{Copies, GroupRecord, IslandGroup, NodeConfig, VolumeConfig, VolumeKind};

use crate::disks;
use crate::machines::{CopyId, IslandCopy, Layout};
use crate::world::World;

/// The most copies that are wanted.
const WANTED_MAX: u64 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Rings {
    newest: Arc<VolumeConfig>,
    /// What each machine knows. Its disk has it.
    known: BTreeMap<NodeId, Arc<VolumeConfig>>,
    /// Copies that may have something.
    held: BTreeSet<CopyId>,
}

impl Rings {
    /// Of a layout in which each machine has a copy of each island: the first ones of each island keep it.
    pub(crate) fn new(layout: &mut Layout, wanted: u16) -> Self {
        let Layout { machines, copies, groups } = layout;
        let all = |island| copies.iter().filter(move |copy| copy.island == island).map(|copy| copy.node);
        let rings: Vec<IslandGroup> = groups
            .ids()
            .map(|island| IslandGroup { island, nodes: all(island).take(usize::from(wanted)).collect() })
            .collect();
        let led = |node| rings.iter().filter(move |ring| ring.nodes[0] == node).map(|ring| ring.island);
        let node = |node| NodeConfig {
            node,
            daemon: 0,
            address: format!("m{node}:1"),
            islands: led(node).collect(),
        };
        let newest = Arc::new(VolumeConfig {
            id: VolumeId(1),
            name: "home".to_owned(),
            seed: 1,
            table: Table::new(rings.len() as u16),
            nodes: machines.ids().map(node).collect(),
            kind: VolumeKind::Cluster,
            copies: Some(Copies { wanted: wanted as u8, groups: rings, ..Copies::default() }),
            site: None,
        });
        let named = |copy: &IslandCopy| newest.group_of(copy.island).contains(&copy.node);
        let held =
            copies.ids().zip(copies.iter()).filter(|(_, copy)| named(copy)).map(|(id, _)| id).collect();
        for copy in copies.iter_mut() {
            // The others are not those that the volume begins with.
            copy.made = !newest.group_of(copy.island).contains(&copy.node);
        }
        let known = machines.ids().map(|node| (node, Arc::clone(&newest))).collect();
        Self { newest, known, held }
    }

    /// The ring of an island, and how many copies are wanted, as a machine knows them.
    pub(crate) fn known_to(&self, node: NodeId, island: IslandId) -> (Vec<NodeId>, u8) {
        let config = &self.known[&node];
        (config.group_of(island), wanted_of(config))
    }

    pub(crate) fn ring_of(&self, island: IslandId) -> Vec<NodeId> {
        self.newest.group_of(island)
    }

    /// How many copies of each island are wanted; none if they are on their way.
    pub(crate) fn settled(&self) -> Option<usize> {
        let wanted = usize::from(wanted_of(&self.newest));
        let is_short = |island: IslandId| self.newest.group_of(island).len() == wanted;
        let all_know = self.known.values().all(|known| known.table.version() == self.newest.table.version());
        (all_know && self.newest.islands().into_iter().all(is_short)).then_some(wanted)
    }

    /// The newest rings, and which configuration each machine knows, for whoever looks at a failure.
    pub(crate) fn shown(&self) -> Vec<String> {
        let newest = &self.newest;
        let rings: Vec<Vec<NodeId>> = newest.islands().into_iter().map(|i| newest.group_of(i)).collect();
        let versions: Vec<_> =
            self.known.iter().map(|(node, known)| (*node, known.table.version())).collect();
        let (wanted, version) = (wanted_of(newest), newest.table.version());
        vec![format!("rings {rings:?}, {wanted} wanted, version {version:?}; known {versions:?}")]
    }
}

fn wanted_of(config: &VolumeConfig) -> u8 {
    config.copies.as_ref().map_or(1, |copies| copies.wanted)
}

impl World {
    /// Whether a copy is one of those that are compared at rest.
    pub(crate) fn is_kept(&self, copy: &IslandCopy) -> bool {
        self.rings.as_ref().is_none_or(|rings| rings.ring_of(copy.island).contains(&copy.node))
    }

    /// An administrator wants more copies or fewer, or others.
    pub(crate) fn change_rings(&mut self) {
        let (node, island) = (self.any_machine(), self.any_island());
        let (draw, wanted) = (self.rng.below(100), 1 + self.rng.below(WANTED_MAX) as u8);
        let Some(rings) = &mut self.rings else { return };
        let next = match draw {
            0..40 => rings.newest.with_wanted(wanted, true, &|_| false, &|_, _| true),
            40..80 => {
                let wanted = wanted_of(&rings.newest);
                rings.newest.with_wanted(wanted, true, &|other| other == node, &|_, _| true)
            }
            _ => rings.newest.with_spare(island, node, true, &|_| true),
        };
        let Ok(next) = next else { return };
        let shown: Vec<Vec<NodeId>> =
            next.islands().into_iter().map(|island| next.group_of(island)).collect();
        let wanted = wanted_of(&next);
        rings.newest = Arc::new(next);
        self.injected.rings += 1;
        self.note(format_args!("the rings are {shown:?}, and {wanted} copies are wanted"));
    }

    /// A machine reads the newest configuration, and does what follows from it. It may end by that.
    pub(crate) fn care(&mut self, node: NodeId) {
        let Some(rings) = &mut self.rings else { return };
        let newest = Arc::clone(&rings.newest);
        let before = rings.known.insert(node, Arc::clone(&newest)).map(|known| known.table.version());
        if before != Some(newest.table.version()) {
            self.tell_rings(node, &newest);
        }
        for id in self.copies_on(node) {
            let IslandCopy { island, .. } = self.copies[id];
            let is_held = self.rings.as_ref().is_some_and(|rings| rings.held.contains(&id));
            let stays = newest.group_of(island);
            let stays = if planted(Bug::RemovedAtOnce) {
                &stays[..usize::from(wanted_of(&newest))]
            } else {
                &stays[..]
            };
            if is_held && !stays.contains(&node) && self.may_remove(id) {
                return self.remove_copy(id);
            }
        }
        let led: BTreeMap<IslandId, GroupRecord> =
            self.copies_on(node).into_iter().filter_map(|id| self.led_record(id)).collect();
        let next = newest.shortened(|island| led.get(&island).cloned());
        if let (Some(next), Some(rings)) = (next, &mut self.rings) {
            rings.newest = Arc::new(next);
        }
    }

    fn tell_rings(&mut self, node: NodeId, config: &VolumeConfig) {
        for id in self.copies_on(node) {
            let ring = config.group_of(self.copies[id].island);
            if let Some(rings) = self.rings.as_mut().filter(|_| ring.contains(&node)) {
                rings.held.insert(id);
            }
            self.tell_member(id, GroupEvent::Wanted { copies: wanted_of(config), ring });
        }
    }

    /// Whether the record, read now, has no seat of a copy's machine.
    fn may_remove(&self, id: CopyId) -> bool {
        let IslandCopy { island, node, .. } = self.copies[id];
        let Some(member) = self.copies[id].member() else { return false };
        let has_seat = |record: &GroupRecord| record.seat_of(node).is_some();
        let may_have = member.with_group(|group| group.record().is_none_or(|(_, record)| has_seat(record)));
        let has = self.record_of(island).is_none_or(|record| has_seat(&record));
        planted(Bug::RemovedAtOnce) || (!may_have && !has)
    }

    /// A copy that is not wanted any more and is yet to be removed. Its process ends with it, whatever else is served there.
    pub(crate) fn unwanted_copy(&self) -> Option<&IslandCopy> {
        let held = self.rings.iter().flat_map(|rings| &rings.held);
        held.map(|id| &self.copies[*id]).find(|copy| !self.is_kept(copy))
    }

    /// A copy that is not wanted any more goes with its files. Its process ends with it: so whatever was under way there is void.
    fn remove_copy(&mut self, id: CopyId) {
        let IslandCopy { island, node, .. } = self.copies[id];
        self.kill(node, Fault::ProcessDeath);
        self.note(format_args!("island {island} on {node}: is not wanted, and removed"));
        self.injected.removed += 1;
        let (disk, seat) = (disks::new(self.rng.bits(), false), disks::new(self.rng.bits(), false));
        let copy = &mut self.copies[id];
        (copy.disk, copy.seat, copy.made) = (disk, Some(seat), true);
        if let Some(rings) = &mut self.rings {
            rings.held.remove(&id);
        }
    }

    /// The record of an island that a copy leads, as it knows it.
    fn led_record(&self, id: CopyId) -> Option<(IslandId, GroupRecord)> {
        let member = self.copies[id].member()?;
        let leads = matches!(member.role(), Role::Leading { begun: true, .. }) && member.may_tell();
        let record = member.with_group(|group| group.record().map(|(_, record)| record.clone()));
        Some((self.copies[id].island, record.filter(|_| leads)?))
    }
}
