//! Copies come to a node and go from it while it serves, as the volume's configuration and the groups' records say
//! (`docs/design/020-filling.md`). Decides when a copy's files go, and which configuration is next; never who is counted in a group.
//!
//! Invariant: a copy's files are removed only behind a read of its group's record that has no seat of this node, and that began when
//! the copy was closed.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use atoll_core::{IslandId, NodeId};
use atoll_disk::Disk;
use atoll_dispatch::OpenError;
use atoll_dispatch::seat::SeatStore;
use atoll_group::{GroupEvent, Role, SeatFile};
use atoll_proto::{Copies, GroupRecord, VolumeConfig};

use crate::cluster::Islands;
use crate::copies::seat_name;
use crate::member;
use crate::volume::{VolumeError, VolumeOptions, WallClock};

/// What a node remembers while it cares for the copies of a volume.
#[derive(Debug, Default)]
pub(crate) struct Care {
    /// The copies are as the configuration of this version says.
    arranged: u64,
    /// Since when a node that shall keep an island, and is not in sync, cannot be reached from here.
    away: BTreeMap<(IslandId, NodeId), Instant>,
    /// The volume is being stopped.
    ended: bool,
}

impl<D: Disk> Islands<D> {
    fn care(&self) -> MutexGuard<'_, Care> {
        self.care.lock().expect("no panic while it is held")
    }

    /// Nothing comes or goes any more.
    pub(crate) fn end_care(&self) {
        self.care().ended = true;
    }

    /// Islands that were alone, in a volume whose islands have groups now, get the seat of a copy that is alone. The configuration
    /// that is kept in the folder says that this is yet to be done.
    pub(crate) fn seat_those_alone(&self, next: &VolumeConfig) -> Result<(), VolumeError> {
        let Ok(kept) = member::kept_config(&self.folder) else { return Ok(()) };
        if kept.copies.is_some() || next.copies.is_none() {
            return Ok(());
        }
        let io = |island| move |e| VolumeError::Open(OpenError::Io(island, e));
        let beside = (self.beside)(&self.folder).map_err(io(IslandId(0)))?;
        for island in kept.islands_at(self.volume.node()) {
            let mut seats = SeatStore::new(Arc::clone(&beside), seat_name(island));
            if seats.load().map_err(io(island))?.is_none() {
                seats.save(&SeatFile::of_one()).map_err(io(island))?;
            }
        }
        member::keep_config(&self.folder, next).map_err(io(IslandId(0)))
    }

    /// The copies that the configuration names are here, and know their groups. What fails is tried again.
    pub(crate) fn arrange(&self) {
        let mut care = self.care();
        let config = self.volume.config();
        let version = config.table.version();
        let Some(copies) = config.copies.as_ref().filter(|_| !care.ended && care.arranged != version) else {
            return;
        };
        match self.arrange_as(&config, copies) {
            Ok(true) => care.arranged = version,
            Ok(false) => {}
            Err(why) => {
                let volume = self.volume.name();
                tracing::error!(volume, "the copies are not as version {version} of the volume says: {why}");
            }
        }
    }

    /// False if the disks of some copies still have no room.
    fn arrange_as(&self, config: &VolumeConfig, copies: &Copies) -> Result<bool, VolumeError> {
        let volume = &self.volume;
        if volume.copies.get().is_none() {
            let alone = volume.engines.all();
            // Whoever waits for an answer asks again.
            volume.set_islands(BTreeMap::new());
            for (island, engine) in &*alone {
                if let Err(why) = engine.stop() {
                    // As after the death of a process: its log has what was acknowledged.
                    tracing::warn!(volume = volume.name(), %island, "it is not stopped in order: {why}");
                }
                engine.close();
            }
            self.seat_those_alone(config)?;
            let setup = self.copies(config, copies)?;
            let ends = volume.make_copies(setup, Arc::new(WallClock::default()));
            volume.begin_copies(ends);
        }
        let mut has_room = true;
        for island in config.islands_at(volume.node()).into_iter().filter(|at| volume.copy(*at).is_none()) {
            match volume.why_unopened(island).map(VolumeError::lacks_room) {
                None => self.open_copy(island)?,
                Some(true) => match self.open_copy(island) {
                    Ok(()) => tracing::info!(
                        volume = volume.name(), %island,
                        "there is room again, and the copy of this island is opened"
                    ),
                    Err(why) if why.lacks_room() => has_room = false,
                    Err(why) => return Err(why),
                },
                // One that could not be opened at the start of the node is left as it is until the next one.
                Some(false) => {}
            }
        }
        for copy in volume.copies() {
            let ring = config.group_of(copy.island());
            copy.tell(GroupEvent::Wanted { copies: copies.wanted, ring });
        }
        for (link, who) in volume.group_links() {
            volume.tell_link(link, who);
        }
        Ok(has_room)
    }

    fn open_copy(&self, island: IslandId) -> Result<(), VolumeError> {
        let options = VolumeOptions { is_new: false, ..self.options.clone() };
        let mut shelf = |island| (self.shelf)(&self.folder, island, true);
        self.volume.open_copy(&options, island, &mut shelf)
    }

    /// Copies that are not wanted here any more, and have no seat, go with their files.
    pub(crate) fn retire(&self) {
        let care = self.care();
        let (volume, config) = (&self.volume, self.volume.config());
        let me = volume.node();
        if care.ended || config.copies.is_none() || volume.copies.get().is_none() {
            return;
        }
        let told = |island: IslandId, why: &dyn std::fmt::Display| {
            tracing::warn!(volume = volume.name(), %island, "a copy that is not wanted here is not removed: {why}");
        };
        let kept = member::end_removals(&self.folder).and_then(|()| member::islands_kept(&self.folder));
        let kept = kept.inspect_err(|why| told(IslandId(0), why)).unwrap_or_default();
        for island in kept.into_iter().filter(|island| !config.group_of(*island).contains(&me)) {
            let has_seat = volume.copy(island).is_some_and(|copy| {
                // Before it has read the record, nothing is known.
                copy.with_group(|group| group.record().is_none_or(|(_, record)| record.seat_of(me).is_some()))
            });
            if has_seat {
                continue;
            }
            if let Some(copy) = volume.take_copy(island) {
                copy.end();
                if let Err(why) = copy.stop() {
                    told(island, &why);
                }
                // Its engine is closed, so this does not take long.
                volume.views.forget(island);
            }
            match self.record_of(island) {
                Ok(record) if record.as_ref().is_none_or(|record| record.seat_of(me).is_none()) => {
                    match member::remove_copy(&self.folder, island) {
                        Ok(()) => tracing::info!(
                            volume = volume.name(), %island,
                            "the copy of this node is not wanted any more, and was removed"
                        ),
                        Err(why) => told(island, &why),
                    }
                }
                // It has got a seat in the last moment, or nobody knows.
                Ok(_) => self.open_copy(island).unwrap_or_else(|why| told(island, &why)),
                Err(why) => tracing::debug!("the record of island {island} is not read: {why}"),
            }
        }
    }

    fn record_of(&self, island: IslandId) -> Result<Option<GroupRecord>, String> {
        let store = self.volume.store.get().ok_or("there is no store")?;
        let group = store.group(self.volume.id(), island).map_err(|why| why.to_string())?;
        Ok(group.map(|group| group.record))
    }

    /// The next configuration, by what this node knows of the islands that it leads: whoever has gone is named no longer, and another
    /// node keeps an island for one that was away for too long.
    pub(crate) fn next_config(&self, is_for_all: bool) -> Option<VolumeConfig> {
        let mut care = self.care();
        let config = self.volume.config();
        let copies = config.copies.as_ref().filter(|_| !care.ended)?;
        let led: BTreeMap<IslandId, GroupRecord> = self
            .volume
            .copies()
            .filter(|copy| matches!(copy.role(), Role::Leading { begun: true, .. }) && copy.may_tell())
            .filter_map(|copy| {
                Some((copy.island(), copy.with_group(|group| group.record().map(|r| r.1.clone()))?))
            })
            .collect();
        if let Some(next) = config.shortened(|island| led.get(&island).cloned()) {
            return Some(next);
        }
        let linked: BTreeMap<NodeId, bool> =
            self.volume.others().into_iter().map(|(node, link)| (node, link.is_up())).collect();
        let is_linked = |node| node == self.volume.node() || linked.get(&node) == Some(&true);
        let now = Instant::now();
        let away: Vec<(IslandId, NodeId)> = led
            .iter()
            .flat_map(|(island, record)| {
                let group = copies.groups.iter().find(|group| group.island == *island);
                let keepers = group.map_or(&[][..], |group| group.keepers(copies.wanted)).iter().copied();
                let is_away = move |node: &NodeId| record.seat_of(*node).is_none() && !is_linked(*node);
                keepers.filter(is_away).map(|node| (*island, node))
            })
            .collect();
        care.away.retain(|key, _| away.contains(key));
        for key in away {
            care.away.entry(key).or_insert(now);
        }
        let grace = Duration::from_secs(copies.grace_s.unwrap_or(Copies::GRACE_S).into());
        let mut late = care.away.iter().filter(|(_, since)| now.duration_since(**since) >= grace);
        // One after the other: each is another version of the configuration.
        late.find_map(|((island, node), _)| {
            let next = config.with_spare(*island, *node, is_for_all, &is_linked).ok()?;
            let (volume, spare) = (self.volume.name(), next.group_of(*island));
            let spare = spare.iter().find(|spare| !config.group_of(*island).contains(spare));
            tracing::warn!(
                volume, %island,
                "node {node} was away for {} s: node {} shall keep the island in its place",
                grace.as_secs(),
                spare.map_or("none".to_owned(), ToString::to_string)
            );
            Some(next)
        })
    }
}
