//! The newest configuration of each volume: where it is, and that this node follows it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_control::{ConfigStore, ControlError, ServedStore, check_config};
use atoll_core::VolumeId;
use atoll_dispatch::LeavesFilling;
use atoll_proto::group::Swapped;
use atoll_proto::{ControlReply, NodeConfig, VolumeConfig};
use atoll_rpc::{Address, DaemonId};

use crate::member;
use crate::node::{Node, Part};

/// How long a question to the node that has the configuration may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The ways to the nodes that have configurations, and their addresses.
pub(crate) type Keepers = Mutex<BTreeMap<VolumeId, (String, Arc<ServedStore>)>>;

impl Node {
    /// Where a volume's configuration is changed: by all nodes in the same place, or at one node.
    fn config_store(&self, config: &VolumeConfig) -> Result<Arc<dyn ConfigStore>, String> {
        let at = config.store_node();
        let is_here = self.part_number(config.id) == Some(at);
        if is_here || self.setup.store.for_all().is_some() {
            return Ok(Arc::clone(&self.setup.store) as _);
        }
        let node = config.nodes.iter().find(|node| node.node == at).ok_or("it has no node")?;
        // The list knows first where a node is that has moved.
        let list = self.cluster_list();
        let listed = list.as_ref().and_then(|list| list.cluster.node(node.daemon));
        let at = listed.map_or(&node.address, |listed| &listed.address);
        let mut keepers = self.keepers.lock().expect("no panic while it is held");
        if let Some((address, store)) = keepers.get(&config.id)
            && address == at
        {
            return Ok(Arc::clone(store) as _);
        }
        let address: Address = at.parse().map_err(|why: atoll_rpc::AddressError| why.to_string())?;
        let store = Arc::new(ServedStore::of_node(address, PATIENCE, DaemonId::named(node.daemon)));
        keepers.insert(config.id, (at.clone(), Arc::clone(&store)));
        Ok(store)
    }

    fn part_number(&self, id: VolumeId) -> Option<atoll_core::NodeId> {
        self.parts.read().expect("no panic while it is held").get(&id).and_then(Part::node)
    }

    fn known_config(&self, id: VolumeId) -> Option<Arc<VolumeConfig>> {
        self.parts.read().expect("no panic while it is held").get(&id).map(Part::config)
    }

    /// The newest configuration of a volume, for whoever asks.
    pub(crate) fn tell_config(&self, id: VolumeId) -> ControlReply {
        let not_found = || ControlError::NotFound { volume: id.into() }.to_string();
        let read = self.known_config(id).ok_or_else(not_found).and_then(|config| {
            let store = self.config_store(&config)?;
            store.newest_config(id).map_err(|why| why.to_string())
        });
        match read {
            Ok(config) => {
                ControlReply::Volume { config: Box::new(config), node: None, from: Vec::new(), root: None }
            }
            Err(text) => ControlReply::Refused { text },
        }
    }

    /// Puts a configuration in the place of another one, where all nodes find it.
    pub(crate) fn swap_config(&self, expected: u64, next: &VolumeConfig) -> Swapped {
        let unknown = |why: String| Swapped::Unknown { why };
        let Some(config) = self.known_config(next.id) else {
            return unknown(ControlError::NotFound { volume: next.id.into() }.to_string());
        };
        if let Err(why) = check_config(next) {
            return unknown(why.to_string());
        }
        match self.config_store(&config) {
            Ok(store) => store.swap_config(next, expected),
            Err(why) => unknown(why),
        }
    }

    /// Called every two seconds: takes newer configurations, and does for its copies what follows from them.
    pub fn care(&self) {
        let _leaves = LeavesFilling::begin();
        let parts = self.parts.read().expect("no panic while it is held");
        let served: Vec<_> = parts
            .values()
            .filter_map(|part| if let Part::Served(volume) = part { Some(Arc::clone(volume)) } else { None })
            .collect();
        drop(parts);
        for served in served {
            let config = served.config();
            let Ok(store) = self.config_store(&config) else { continue };
            match store.newest_config(config.id) {
                Ok(newest) => self.follow(&config, &newest, &*store),
                Err(why) => tracing::debug!("the configuration of volume {} is not read: {why}", config.name),
            }
            let is_for_all = self.setup.store.for_all().is_some();
            let expected = served.config().table.version();
            let wanted = served.care(is_for_all);
            if let Some(next) = self.at_own_address(&served.config()).or(wanted) {
                match store.swap_config(&next, expected) {
                    Swapped::Done { .. } => self.follow(&config, &next, &*store),
                    // Somebody was faster, or it is tried again.
                    Swapped::Conflict => {}
                    Swapped::Unknown { why } => {
                        tracing::debug!("the configuration of volume {} is not swapped: {why}", config.name);
                    }
                }
            }
        }
    }

    /// The next configuration of a volume that has this node at another address than the cluster's list.
    fn at_own_address(&self, config: &VolumeConfig) -> Option<VolumeConfig> {
        let (me, list) = (self.setup.identity.node.0, self.cluster_list()?);
        let listed = &list.cluster.node(me)?.address;
        let is_moved = |node: &NodeConfig| node.daemon == me && node.address != *listed;
        let nth = config.nodes.iter().position(is_moved)?;
        let mut next = VolumeConfig { table: config.table.reassigned([]), ..config.clone() };
        next.nodes[nth].address.clone_from(listed);
        Some(next)
    }

    /// The newest configuration is followed. If it is older than the own one, the store was put back: it gets that.
    fn follow(&self, own: &VolumeConfig, newest: &VolumeConfig, store: &dyn ConfigStore) {
        let (version, newer) = (own.table.version(), newest.table.version());
        if newer < version {
            if let Swapped::Unknown { why } = store.swap_config(own, newer) {
                tracing::debug!("the configuration of volume {} is not put back: {why}", own.name);
            }
            return;
        }
        let me = self.part_number(own.id);
        let is_member = newest.nodes.iter().any(|node| {
            Some(node.node) == me && (node.daemon == 0 || node.daemon == self.setup.identity.node.0)
        });
        if newer > version && !is_member {
            self.leave_volume(own, newest);
        } else if newer > version
            && let Err(why) = self.take_config(newest)
        {
            tracing::error!("version {newer} of volume {} cannot be taken: {why}", own.name);
        }
    }

    /// This node is no node of a volume any more.
    fn leave_volume(&self, own: &VolumeConfig, newest: &VolumeConfig) {
        let _one = self.changing();
        let part = self.parts.write().expect("no panic while it is held").remove(&own.id);
        let Some(part) = part else { return };
        let node = part.node();
        if let Part::Served(volume) | Part::Opening { served: volume, .. } = part {
            for why in volume.stop() {
                tracing::warn!("{why}");
            }
        }
        let data = &self.setup.data;
        let folder = member::folder(data, &own.name);
        let left = member::islands_kept(&folder).unwrap_or_default();
        if left.is_empty() && newest.id == own.id {
            let forgotten = self.setup.store.leave_volume(own.id).map_err(|why| why.to_string());
            let removed =
                forgotten.and_then(|()| member::remove(data, &own.name).map_err(|why| why.to_string()));
            match removed {
                Ok(()) => tracing::info!("this node is no node of volume {} any more", own.name),
                Err(why) => tracing::error!("volume {}, of which this node is no more: {why}", own.name),
            }
            return;
        }
        let why = format!(
            "this node was taken out of the volume.\nWhat it kept of it is left in {}",
            folder.display()
        );
        tracing::error!("volume {}: {why}", own.name);
        let failed = Part::Failed { config: Arc::new(own.clone()), node, why };
        self.parts.write().expect("no panic while it is held").insert(own.id, failed);
    }
}
