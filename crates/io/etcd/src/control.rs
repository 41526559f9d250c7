//! The control store of a node whose cluster has its groups in etcd. Volumes stay in the node's own store.

use std::time::Duration;

use atoll_control::{ClusterStore, ControlError, ControlStore, GroupStore, VolumeRef};
use atoll_core::{IslandId, VolumeId};
use atoll_proto::VolumeConfig;
use atoll_proto::cluster::{Cluster, StoredCluster};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};

use crate::store::EtcdStore;

/// See the module.
pub struct EtcdControl {
    /// Has the first records of those volumes whose groups this node has put into etcd, as a note that it was this one: a node takes
    /// out what it has put in, and no other's.
    own: Box<dyn ControlStore>,
    groups: EtcdStore,
}

impl EtcdControl {
    /// A node with this store of its own.
    pub fn new(own: Box<dyn ControlStore>, groups: EtcdStore) -> Self {
        Self { own, groups }
    }

    fn has_put_in(&self, id: VolumeId) -> Result<bool, ControlError> {
        Ok(!self.own.groups(id, Revision::NONE, Duration::ZERO)?.groups.is_empty())
    }
}

impl GroupStore for EtcdControl {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        self.groups.group(volume, island)
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        self.groups.swap_group(volume, island, expected, next)
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        self.groups.groups(volume, since, wait)
    }
}

/// The list of the cluster stays with the node that keeps it.
impl ClusterStore for EtcdControl {
    fn cluster(&self) -> Result<Option<StoredCluster>, ControlError> {
        self.own.cluster()
    }

    fn swap_cluster(&self, expected: Revision, next: &Cluster) -> Swapped {
        self.own.swap_cluster(expected, next)
    }
}

impl ControlStore for EtcdControl {
    fn note_cluster(&self, list: &StoredCluster) -> Result<(), ControlError> {
        self.own.note_cluster(list)
    }

    fn volumes(&self) -> Result<Vec<VolumeConfig>, ControlError> {
        self.own.volumes()
    }

    fn volume(&self, volume: &VolumeRef) -> Result<VolumeConfig, ControlError> {
        self.own.volume(volume)
    }

    fn create_volume(&self, config: &VolumeConfig) -> Result<(), ControlError> {
        self.own.create_volume(config)
    }

    fn replace_volume(&self, config: &VolumeConfig, expected: u64) -> Result<(), ControlError> {
        self.own.replace_volume(config, expected)
    }

    fn remove_volume(&self, id: VolumeId) -> Result<(), ControlError> {
        if self.has_put_in(id)? {
            self.groups.remove_groups(id)?;
        }
        self.own.remove_volume(id)
    }

    fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError> {
        // With the first volume that has copies. Later an etcd without a head is one that has lost its data.
        if self.own.volumes()?.iter().all(|volume| volume.copies.is_none()) {
            self.groups.make()?;
        }
        self.own.create_groups(id, first)?;
        self.groups.create_groups(id, first)
    }

    fn discard_groups(&self, id: VolumeId) -> Result<(), ControlError> {
        match self.own.volume(&id.into()) {
            Ok(_) => return Ok(()),
            Err(ControlError::NotFound { .. }) => {}
            Err(why) => return Err(why),
        }
        if self.has_put_in(id)? {
            self.groups.remove_groups(id)?;
        }
        self.own.discard_groups(id)
    }

    fn is_for_all(&self) -> bool {
        true
    }
}
