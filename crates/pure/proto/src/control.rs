//! Questions about volumes, nodes and mounts, and an administrator's orders.
//!
//! Only shapes. Nothing here belongs to the path of a file system's operations: a node answers
//! these whether or not its islands can serve.

use bytes::Bytes;

use atoll_core::{Ino, IslandId, Key, NodeId, VolumeId, wire_enum, wire_struct};

use crate::cluster::{CertificateFor, Cluster, Issued, StoredCluster};
use crate::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use crate::site::{SiteOrder, SiteReply, SiteTrace};
use crate::union::{UnionOrder, UnionReply};
use crate::volume::{VolumeConfig, VolumeKind};

wire_enum! {
    /// What an administrator's command or a mount asks of a daemon.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Control {
        /// Who are you, and which volumes do you serve? `ControlReply::Described`.
        1 => Describe,
        /// A volume's configuration, by its name. `ControlReply::Volume`.
        2 => Volume { /// The name.
            name: String },
        /// First step of making a volume: keep this, and promise to serve it when told to.
        /// `ControlReply::Done`.
        3 => Prepare { /// The volume.
            config: Box<VolumeConfig>, /// The receiver's number in it.
            node: NodeId },
        /// Second step: serve it from now on. `ControlReply::Done`, also if it is served already.
        4 => Activate { /// The volume.
            volume: VolumeId },
        /// Instead of the second step: forget it. `ControlReply::Done`, also if it is not known.
        5 => Discard { /// The volume.
            volume: VolumeId },
        /// What have you done, and how are you? `ControlReply::Status`.
        6 => Status,
        /// What do your islands have of this file or directory? `ControlReply::Traces`.
        7 => Trace { /// The volume.
            volume: VolumeId, /// The file or directory.
            ino: Ino },
        /// For the process that shows a union. `ControlReply::Union`.
        8 => Union { /// What it is about.
            order: UnionOrder },
        /// Who keeps an island? `ControlReply::Group`.
        9 => Group { /// The volume.
            volume: VolumeId, /// The island.
            island: IslandId },
        /// Put this in the place of a group record, if it is still the one of that revision. `ControlReply::Swapped`.
        10 => SwapGroup { /// The volume.
            volume: VolumeId, /// The island.
            island: IslandId, /// When the expected record was written; 0 if there was none.
            expected: Revision, /// The record.
            next: GroupRecord },
        /// Which groups of a volume have changed? Waits for a change if none has. `ControlReply::Groups`.
        11 => Groups { /// The volume.
            volume: VolumeId, /// Since then.
            since: Revision, /// How many milliseconds to wait, at most.
            wait_ms: u32 },
        /// The copy of an island on a node shall lead it. `ControlReply::Done` from that node when it does; refused without a text
        /// by a node that neither leads it nor can say why not.
        12 => MoveIsland { /// The volume.
            volume: VolumeId, /// The island.
            island: IslandId, /// The node.
            to: NodeId },
        /// The receiver's copy of an island shall lead it, whatever is lost by that. `ControlReply::Done` when the copy has taken the
        /// order: it holds for ten seconds, and `Status` says whether the copy leads.
        13 => ForceIsland { /// The volume.
            volume: VolumeId, /// The island.
            island: IslandId, /// The receiver's number in the volume: another node refuses.
            node: NodeId },
        /// Who is in the cluster? `ControlReply::Cluster`.
        14 => Cluster,
        /// Put this in the place of the cluster's list, if it is still the one of that revision. `ControlReply::Swapped`. Only
        /// the node that keeps the list does it.
        15 => SwapCluster { /// When the expected list was written.
            expected: Revision, /// The list.
            next: Box<Cluster> },
        /// Issue a certificate. `ControlReply::Issued`. Only a node with the CA's private key does it.
        16 => Certify { /// For what.
            purpose: CertificateFor, /// The public key (SubjectPublicKeyInfo, DER).
            key: Bytes },
        /// How much do your islands of a volume have? `ControlReply::Weights`. It reads all rows of files and directories.
        17 => Weigh { /// The volume.
            volume: VolumeId },
        /// What do your copies of a volume's islands remember of their groups? `ControlReply::Seats`. For an administrator whose
        /// control store has lost it.
        18 => Seats { /// The volume.
            volume: VolumeId },
        /// The newest configuration of a volume, from where it is changed. `ControlReply::Volume`.
        19 => Config { /// The volume.
            volume: VolumeId },
        /// Put this in its place, if that still has this version. `ControlReply::Swapped`.
        20 => SwapConfig { /// The version.
            expected: u64, /// The configuration.
            next: Box<VolumeConfig> },
        /// The node that keeps the cluster's list is reached at this address: read the list there. `ControlReply::Done`. Nothing is
        /// believed but what that node itself says there, by its certificate.
        21 => ListAt { /// Where, `HOST:PORT`.
            address: String },
        /// For the node that has a site of a wide volume. `ControlReply::Site`.
        22 => Site { /// What it is about.
            order: SiteOrder },
    }
}

wire_enum! {
    /// What a daemon answers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ControlReply {
        /// It is as ordered.
        1 => Done,
        /// It is not: what, why, and what to do next, in at most three lines.
        2 => Refused { /// The text.
            text: String },
        /// Who it is.
        3 => Described { /// It.
            daemon: Daemon, /// Its volumes, in the order of their names.
            volumes: Vec<VolumeSummary> },
        /// A volume, and the answering daemon's number in it; none if it only shows it.
        4 => Volume { /// The volume.
            config: Box<VolumeConfig>, /// The number.
            node: Option<NodeId>, /// For a mount: where it got the configuration from.
            from: Vec<String>, /// The directory that the asker sees only, with what is below it, if it is limited so;
            /// and its placement key.
            root: Option<(Ino, Key)> },
        /// How it is.
        5 => Status { /// Whose.
            daemon: Daemon, /// What it serves.
            volumes: Vec<VolumeStatus>, /// What it has mounted.
            mounts: Vec<MountStatus>, /// How far its copies are that are filled; none if none is.
            filling: Option<Filling> },
        /// What its islands have.
        6 => Traces { /// One an island.
            traces: Vec<Trace> },
        /// About a union.
        7 => Union { /// That.
            reply: UnionReply },
        /// A group record; none if there is none.
        8 => Group { /// It.
            group: Option<StoredGroup> },
        /// How a swap has ended.
        9 => Swapped { /// So.
            swapped: Swapped },
        /// Groups that have changed.
        10 => Groups { /// They.
            changed: ChangedGroups },
        /// The cluster's list; none if this node is in no cluster of several.
        11 => Cluster { /// It.
            cluster: Option<Box<StoredCluster>> },
        /// A certificate.
        12 => Issued { /// It.
            issued: Box<Issued> },
        /// How much islands have.
        13 => Weights { /// Of the islands and copies that are open here.
            weights: Vec<IslandWeight> },
        /// What copies remember. One that remembers nothing, or cannot be read, is not in it.
        14 => Seats { /// One a copy.
            seats: Vec<ToldSeat> },
        /// The answer of a node that has a site.
        15 => Site { /// It.
            reply: SiteReply },
    }
}

wire_struct! {
    /// How much an island has, as of its last checkpoint.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IslandWeight {
        /// The island.
        pub island: IslandId,
        /// Directories that it owns.
        pub dirs: u64,
        /// Files that are homed there.
        pub files: u64,
        /// Bytes that the files occupy.
        pub bytes: u64,
    }
}

wire_struct! {
    /// What a copy remembers of its group, of what its file `seat` has.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ToldSeat {
        /// The island.
        pub island: IslandId,
        /// The highest epoch that it has seen.
        pub seen: u32,
        /// The group's record as it was last read.
        pub record: Option<StoredGroup>,
    }
}

wire_struct! {
    /// A process of Atoll.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Daemon {
        /// Drawn at random when its data directory was made; 0 for a mount without one.
        pub daemon: u64,
        /// Its cluster, drawn when the data directory was made; 0 for a mount without one.
        pub cluster: u64,
        /// How often it has started.
        pub incarnation: u32,
        /// Its process.
        pub pid: u32,
        /// Milliseconds since it started.
        pub up_ms: u64,
        /// Name and version of its program.
        pub software: String,
        /// Its data directory; empty for a mount without one.
        pub data: String,
        /// Where it listens.
        pub addresses: Vec<String>,
        /// Connections of others to it.
        pub links: u32,
        /// Milliseconds since 1970 by the clock of its machine.
        pub clock_ms: u64,
        /// When the certificate of its links ends, in seconds since 1970; none if they are not encrypted.
        pub certificate_until: Option<u64>,
        /// Where the control store is that all nodes of its cluster reach, for people; empty if there is none.
        pub control: String,
    }
}

wire_struct! {
    /// A volume in a list.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct VolumeSummary {
        /// Its id.
        pub id: VolumeId,
        /// Its name.
        pub name: String,
        /// What it promises.
        pub kind: VolumeKind,
        /// Version of its table.
        pub table: u64,
        /// How many islands it has, on all nodes.
        pub islands: u32,
        /// Addresses of its nodes; an empty one serves its own machine only.
        pub nodes: Vec<String>,
        /// Why the daemon does not serve its part; none if it does.
        pub problem: Option<String>,
    }
}

wire_struct! {
    /// A node's part of a volume.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct VolumeStatus {
        /// The volume.
        pub volume: VolumeSummary,
        /// The node's number in it.
        pub node: NodeId,
        /// The node whose control store has the groups of its islands, if they have copies and one node has it.
        pub store: Option<NodeId>,
        /// Its islands.
        pub islands: Vec<IslandStatus>,
        /// The volume's other nodes, and this one's links to them.
        pub others: Vec<(NodeId, Connection)>,
        /// Bytes of the native file system.
        pub bytes: u64,
        /// Bytes of it that Atoll may still use.
        pub bytes_available: u64,
    }
}

wire_struct! {
    /// A number that somebody may want to watch.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Metric {
        /// Its name: lower-case words joined by `_`. `docs/OPERATIONS.md` says what each means.
        pub name: String,
        /// It counts since the process started, and only grows; otherwise it is what is so now.
        pub is_count: bool,
        /// The number.
        pub value: u64,
    }
}

impl Metric {
    /// What is so now.
    pub fn now(name: &str, value: u64) -> Self {
        Self { name: name.to_owned(), is_count: false, value }
    }

    /// What was counted.
    pub fn count((name, value): (&str, u64)) -> Self {
        Self { name: name.to_owned(), is_count: true, value }
    }
}

wire_struct! {
    /// An island.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct IslandStatus {
        /// Which.
        pub island: IslandId,
        /// How far it is.
        pub phase: IslandPhase,
        /// Why it has stopped serving, if it has.
        pub halted: Option<String>,
        /// For what its disk has no space, if it takes only what makes room meanwhile, and for how many milliseconds.
        pub read_only: Option<(String, u64)>,
        /// Some files and directories with extended attributes that the native file system refused: paths, or ids.
        pub spilled: Vec<String>,
        /// What it has done and has.
        pub metrics: Vec<Metric>,
        /// Its group, if it has several copies.
        pub group: Option<GroupStatus>,
        /// How far its copy here is, if that is filled.
        pub fill: Option<FillStatus>,
    }
}

wire_enum! {
    /// What is done to fill a copy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FillStage {
        /// Nothing yet: it waits for its primary, or until others are filled.
        0 => Waits,
        /// Rows come.
        1 => Rows,
        /// Bodies are compared with them, and fetched where they differ.
        2 => Bytes,
        /// It has everything, and waits for its seat.
        3 => Ends,
    }
}

wire_struct! {
    /// How far a copy is that is filled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FillStatus {
        /// What is done.
        pub stage: FillStage,
        /// All files. While rows come this is what the primary says; 0 if it has not said it yet.
        pub files: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Files that are yet to be looked at.
        pub files_left: u64,
        /// Their bytes. Bytes that are there already count, too.
        pub bytes_left: u64,
    }
}

wire_struct! {
    /// How far a node is with the copies that are filled, of all volumes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Filling {
        /// Copies, with those that were filled since this began.
        pub copies: u32,
        /// Those that have no seat yet.
        pub copies_left: u32,
        /// Files of all these copies.
        pub files: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Files that are yet to be looked at.
        pub files_left: u64,
        /// Their bytes.
        pub bytes_left: u64,
        /// The share of the work that is done, in thousandths.
        pub done: u32,
        /// Bytes that were looked at in a second, in the last minute.
        pub bytes_per_s: u64,
        /// Milliseconds until all copies are filled, if it goes on like this; none if that cannot be said yet.
        pub left_ms: Option<u64>,
    }
}

wire_struct! {
    /// The copies of an island, as one of them knows them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GroupStatus {
        /// What this copy does.
        pub role: CopyRole,
        /// How often a copy has begun to lead.
        pub epoch: u32,
        /// The node whose copy leads, as far as is known.
        pub primary: Option<NodeId>,
        /// The nodes whose copies have everything.
        pub in_sync: Vec<NodeId>,
        /// How many copies there shall be.
        pub wanted: u8,
        /// Nodes whose copies come back, and by how many records they are behind. Only the copy that leads knows them.
        pub joining: Vec<(NodeId, u64)>,
        /// For how many milliseconds this node has known the epoch.
        pub epoch_ms: Option<u64>,
    }
}

wire_enum! {
    /// What a copy of an island does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CopyRole {
        /// It decides and answers.
        1 => Leads,
        /// It is about to.
        2 => Begins,
        /// It has everything, and follows.
        3 => Follows,
        /// It has not everything, or may have lost something: it comes back.
        4 => ComesBack,
        /// It hears nobody who leads, and looks whether it may.
        5 => Stands,
        /// The copy that leads has less than was promised here: it is left as it is.
        6 => Lacks,
        /// It has stopped.
        7 => Halted,
        /// It leads, and may answer nothing: another copy that has everything is silent, and was not dropped.
        8 => Waits,
        /// It lacks rows or bytes, and gets them from the copy that leads.
        9 => Fills,
    }
}

wire_enum! {
    /// How far an island of a node has come since the node was started.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum IslandPhase {
        /// Its state is being read, and it can be asked nothing.
        0 => Opening,
        /// It hears from the other islands first.
        1 => Starting,
        /// It serves.
        2 => Normal,
        /// It has everything, and a copy on another node serves.
        3 => Follows,
    }
}

wire_struct! {
    /// A mount.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MountStatus {
        /// Name of the volume.
        pub volume: String,
        /// What the volume promises.
        pub kind: VolumeKind,
        /// Where it is mounted.
        pub point: String,
        /// What it has done and has.
        pub metrics: Vec<Metric>,
        /// What the kernel asked for.
        pub fuse: Vec<FuseCount>,
        /// The volume's nodes and whether they are connected; an empty address is this process.
        pub nodes: Vec<NodeLink>,
    }
}

wire_struct! {
    /// A mount's connection to a node.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeLink {
        /// The node's number.
        pub node: NodeId,
        /// Where it listens.
        pub address: String,
        /// The islands that it holds.
        pub islands: Vec<IslandId>,
        /// The connection.
        pub connection: Connection,
    }
}

wire_enum! {
    /// A link to a node.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Connection {
        /// There is none.
        0 => Down,
        /// To the node itself.
        1 => Direct,
        /// Through another node, which passes on what is sent.
        2 => Relayed,
    }
}

impl Connection {
    /// The node can be reached.
    pub fn is_up(self) -> bool {
        self != Self::Down
    }
}

wire_struct! {
    /// How often the kernel asked for an operation.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FuseCount {
        /// The kernel's name of it.
        pub operation: String,
        /// Requests.
        pub requests: u64,
        /// Those that were answered with an error.
        pub errors: u64,
    }
}

wire_struct! {
    /// What an island, or one of its copies, has of a file or directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Trace {
        /// The island.
        pub island: IslandId,
        /// The node.
        pub node: NodeId,
        /// It owns the directory: it has its names.
        pub owns: bool,
        /// The directory is in its skeleton.
        pub skeleton: bool,
        /// The file's inode and body are here.
        pub home: bool,
        /// The native folder of the island's plain tree, as the node names it.
        pub tree: String,
        /// Where the body lies, as the node names it, if the file is at home here.
        pub body: Option<String>,
        /// The island's group, if it has several copies.
        pub group: Option<GroupStatus>,
        /// What a site of a wide volume knows of it.
        pub site: Option<SiteTrace>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::NodeConfig;
    use atoll_core::{Decode, Encode, Table};

    #[test]
    fn an_order_comes_back_as_it_went() {
        let config = VolumeConfig {
            id: VolumeId(7),
            name: "home".to_owned(),
            seed: 9,
            table: Table::new(2),
            nodes: vec![NodeConfig {
                daemon: 0,
                node: NodeId(0),
                address: "a:1".to_owned(),
                islands: vec![IslandId(0), IslandId(1)],
            }],
            kind: VolumeKind::Cluster,
            copies: None,
            site: None,
        };
        let order = Control::Prepare { config: Box::new(config), node: NodeId(0) };
        let bytes = order.to_vec();
        assert_eq!(Control::from_slice(&bytes), Ok(order));
        assert!(Control::from_slice(&bytes[..bytes.len() - 1]).is_err(), "a short order is refused");
        assert!(Control::from_slice(&[99]).is_err(), "an order of a newer version is refused");
    }
}
