//! The control store of a node whose cluster has its groups in etcd. Volumes stay in the node's own store.

use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use atoll_control::{
    ClusterStore, ConfigStore, ControlError, ControlStore, GroupStore, VolumeRef, check_config,
};
use atoll_core::{IslandId, VolumeId};
use atoll_proto::VolumeConfig;
use atoll_proto::cluster::{Cluster, StoredCluster};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};

use crate::store::EtcdStore;

/// The version of a volume that was made just now.
const FIRST_VERSION: u64 = 1;

/// The first records of a volume are put in again for so long, while etcd does not answer: after the last node has joined, members are
/// added, and each time there is no leader for a moment.
const PUT_IN_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PUT_IN_PAUSE: Duration = Duration::from_millis(200);

/// See the module.
pub struct EtcdControl {
    /// Has the first records of those volumes whose groups this node has put into etcd, as a note that it was this one: a node takes
    /// out what it has put in, and no other's.
    own: Box<dyn ControlStore>,
    groups: RwLock<Arc<EtcdStore>>,
}

impl EtcdControl {
    /// A node with this store of its own.
    pub fn new(own: Box<dyn ControlStore>, groups: EtcdStore) -> Self {
        Self { own, groups: RwLock::new(Arc::new(groups)) }
    }

    /// From now on etcd is asked by `groups`: it has other members, or other certificates. It must be the same etcd.
    pub fn go_on_with(&self, groups: EtcdStore) {
        let before = std::mem::replace(
            &mut *self.groups.write().expect("no panic while it is held"),
            Arc::new(groups),
        );
        // Whoever waits in it ends first.
        drop(before);
    }

    fn etcd(&self) -> Arc<EtcdStore> {
        Arc::clone(&self.groups.read().expect("no panic while it is held"))
    }

    fn has_put_in(&self, id: VolumeId) -> Result<bool, ControlError> {
        Ok(!self.own.groups(id, Revision::NONE, Duration::ZERO)?.groups.is_empty())
    }
}

impl GroupStore for EtcdControl {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        self.etcd().group(volume, island)
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        self.etcd().swap_group(volume, island, expected, next)
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        self.etcd().groups(volume, since, wait)
    }
}

/// What was never changed while the volume was in use is the same in the store of each of its nodes, and nowhere else.
impl ConfigStore for EtcdControl {
    fn newest_config(&self, volume: VolumeId) -> Result<VolumeConfig, ControlError> {
        if let Some(config) = self.etcd().config(volume)? {
            return Ok(config);
        }
        let own = self.own.volume(&volume.into())?;
        if own.table.version() > FIRST_VERSION {
            // It was changed, so etcd has lost it. Of several nodes whoever has the newest one is right in the end.
            if let Swapped::Unknown { why } = self.etcd().swap_config(&own, None) {
                tracing::debug!("the configuration of volume {} is not in etcd: {why}", own.name);
            }
        }
        Ok(own)
    }

    fn swap_config(&self, next: &VolumeConfig, expected: u64) -> Swapped {
        if let Err(why) = check_config(next) {
            return Swapped::Unknown { why: why.to_string() };
        }
        match self.etcd().config(next.id) {
            Ok(Some(_)) => self.etcd().swap_config(next, Some(expected)),
            Ok(None) => match self.own.volume(&next.id.into()) {
                Ok(own) if own.table.version() == expected => self.etcd().swap_config(next, None),
                Ok(_) => Swapped::Conflict,
                Err(why) => Swapped::Unknown { why: why.to_string() },
            },
            Err(why) => Swapped::Unknown { why: why.to_string() },
        }
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
            self.etcd().remove_groups(id)?;
        }
        self.own.remove_volume(id)
    }

    fn leave_volume(&self, id: VolumeId) -> Result<(), ControlError> {
        self.own.remove_volume(id)
    }

    fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError> {
        // An etcd without a head is one that has lost its data: the head was made with the cluster.
        self.own.create_groups(id, first)?;
        let until = Instant::now() + PUT_IN_MAX;
        let mut done = self.etcd().create_groups(id, first);
        while matches!(done, Err(ControlError::Unavailable { .. })) && Instant::now() < until {
            thread::sleep(PUT_IN_PAUSE);
            // An attempt without an answer may have put in some of them. Nobody else has a volume of this id.
            done = self.etcd().remove_groups(id).and_then(|()| self.etcd().create_groups(id, first));
        }
        done
    }

    fn discard_groups(&self, id: VolumeId) -> Result<(), ControlError> {
        match self.own.volume(&id.into()) {
            Ok(_) => return Ok(()),
            Err(ControlError::NotFound { .. }) => {}
            Err(why) => return Err(why),
        }
        if self.has_put_in(id)? {
            self.etcd().remove_groups(id)?;
        }
        self.own.discard_groups(id)
    }

    fn for_all(&self) -> Option<String> {
        Some(self.etcd().place().to_owned())
    }
}
