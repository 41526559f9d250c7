//! The part of a control store that has the group records of islands: compare-and-swap, revisions, a watch. It asks for no
//! more than etcd gives: keys with revisions, transactions that compare one, and watches. No leases.

use std::time::Duration;

use atoll_core::{IslandId, VolumeId};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};

use crate::store::ControlError;

/// Longest time for which a watch waits. It is a hint only, so that whoever needs more asks again.
pub const WATCH_MAX: Duration = Duration::from_secs(2);

/// Keeps a group record for each island, for all nodes of a cluster. May be called from many threads at once; any call
/// may wait for a disk or a network.
///
/// All calls are linearizable: each takes effect at one moment between its beginning and its end. A swap whose outcome is
/// unknown may take effect later, once at most.
pub trait GroupStore: Send + Sync + 'static {
    /// The record of an island, if there is one.
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError>;

    /// Puts `next` in the place of the record that was written at `expected`, [`Revision::NONE`] if there was none.
    /// `next` must be one that a group can have ([`GroupRecord::check`]).
    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped;

    /// The records of a volume that were written after `since`. If there are none, waits for one, but not longer than
    /// `wait` and [`WATCH_MAX`]. It may come back early without one.
    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError>;
}
