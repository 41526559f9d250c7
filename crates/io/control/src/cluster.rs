//! The part of a control store that has the cluster's list: who is a node, who is a client, who is invited.

use atoll_proto::cluster::{Cluster, StoredCluster};
use atoll_proto::group::{Revision, Swapped};

use crate::store::ControlError;

/// Keeps the list of a cluster, for all its nodes. Both calls are linearizable, as those for groups are.
pub trait ClusterStore: Send + Sync + 'static {
    /// The list, if there is one.
    fn cluster(&self) -> Result<Option<StoredCluster>, ControlError>;

    /// Puts `next` in the place of the list that was written at `expected`. `next` must be one that a cluster can have
    /// ([`Cluster::check`]).
    fn swap_cluster(&self, expected: Revision, next: &Cluster) -> Swapped;
}
