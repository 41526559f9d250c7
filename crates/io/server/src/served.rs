//! A node's part of a volume of any kind, as the node needs it.

use std::path::Path;
use std::sync::Arc;

use atoll_client::{Sink, Wire};
use atoll_control::ControlStore;
use atoll_core::{Ino, IslandId, NodeId};
use atoll_proto::control::{Connection, Filling, IslandStatus, IslandWeight, ToldSeat, Trace};
use atoll_proto::{SiteOrder, SiteReply, VolumeConfig};
use atoll_rpc::{Address, Handler};

use crate::node::NodeError;
use crate::volume::VolumeError;

/// Serves the parts of nodes in volumes of one kind.
pub trait Serve: Send + Sync + 'static {
    /// Begins a node's part: it greets the other nodes, and none of its islands can be asked anything before
    /// [`Served::begin`].
    fn serve(&self, at: &Place<'_>) -> Result<Arc<dyn Served>, NodeError>;
}

/// The place of a node's part of a volume.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The volume.
    pub config: &'a VolumeConfig,
    /// The node's number in it.
    pub node: NodeId,
    /// The node's data directory.
    pub data: &'a Path,
    /// The volume's folder in it.
    pub folder: &'a Path,
    /// Nothing was made in the folder yet. Otherwise a missing part is lost, and is not made.
    pub is_new: bool,
    /// The node's control store.
    pub store: &'a Arc<dyn ControlStore>,
}

/// A node's part of a volume. As a [`Handler`] it takes the frames of clients and of other nodes that were
/// let in to the volume.
pub trait Served: Handler {
    /// The volume.
    fn config(&self) -> Arc<VolumeConfig>;

    /// Whether `next` is a newer configuration that it can be served by without being started again. An error says what
    /// cannot change.
    fn may_take(&self, next: &VolumeConfig) -> Result<bool, VolumeError>;

    /// Serves by this configuration from now on, if it is newer, as [`Served::may_take`] allows.
    fn take_config(&self, next: &VolumeConfig) -> Result<bool, VolumeError>;

    /// Called from time to time: copies come and go as the configuration and the groups' records say. The next configuration, if this
    /// node sees that there is to be one. `is_for_all`: all nodes reach the records of groups by themselves.
    fn care(&self, _is_for_all: bool) -> Option<VolumeConfig> {
        None
    }

    /// The node's number in it.
    fn node(&self) -> NodeId;

    /// Islands of this node.
    fn islands(&self) -> Vec<IslandId>;

    /// Called once: opens its islands, which may take long. Nobody can ask them anything yet.
    fn open(&self) -> Result<(), NodeError>;

    /// Called once, behind [`Served::open`] and when it is noted in the folder that everything was made: its islands can
    /// be asked from now on.
    fn begin(&self) -> std::io::Result<()>;

    /// Whether it is another node of the volume.
    fn has_other(&self, node: NodeId) -> bool;

    /// The address of another node, if it can be reached without a relay at the moment.
    fn direct_address(&self, to: NodeId) -> Option<Address>;

    /// A connection for a client of this process.
    fn local(&self) -> Arc<dyn LocalWay>;

    /// Its status.
    fn status(&self) -> ServedStatus;

    /// Has the copy of an island on node `to` lead it. Fine if that is so already, and `to` is this node. An error says why it cannot
    /// be; it is empty if only another node knows.
    fn move_island(&self, _island: IslandId, _to: NodeId) -> Result<(), String> {
        Err("Its islands have one copy each.".to_owned())
    }

    /// Has the copy of an island on this node lead it, whatever is lost by that. An error says why the copy takes no such order.
    fn force_island(&self, _island: IslandId) -> Result<(), String> {
        Err("Its islands have one copy each.".to_owned())
    }

    /// An order to the site of a wide volume. An error says what to do next.
    fn order_site(&self, _order: SiteOrder) -> Result<SiteReply, String> {
        let config = self.config();
        Err(format!("Volume {} is of the kind {}, which has no sites.", config.name, config.kind))
    }

    /// What its copies remember of their groups. One that remembers nothing, or cannot be read, is not in it.
    fn seats(&self) -> Vec<ToldSeat> {
        Vec::new()
    }

    /// The traces of a file or directory at its islands.
    fn trace(&self, ino: Ino) -> Vec<Trace>;

    /// How much its islands have. None of those that cannot be counted at the moment.
    fn weigh(&self) -> Vec<IslandWeight> {
        Vec::new()
    }

    /// Before it stops, while links are up: other nodes lead what they can.
    fn leave(&self);

    /// Stops in order; returns errors. Links that others have to it end.
    fn stop(&self) -> Vec<String>;
}

/// The connection of a client of this process to a node's part of a volume.
pub trait LocalWay: Wire {
    /// Connects the client that has this wire; islands can be reached from now on.
    fn connect(&self, sink: Arc<dyn Sink>);

    /// Ends the connection.
    fn disconnect(&self);
}

/// The status of a node's part of a volume.
#[derive(Debug, Default)]
pub struct ServedStatus {
    /// Its islands.
    pub islands: Vec<IslandStatus>,
    /// The volume's other nodes, and whether they can be reached from here.
    pub others: Vec<(NodeId, Connection)>,
    /// Bytes of the native file system.
    pub bytes: u64,
    /// Bytes of it that Atoll may still use.
    pub bytes_available: u64,
    /// How far the node is with copies that are filled, of all volumes of this kind; none if none is.
    pub filling: Option<Filling>,
}
