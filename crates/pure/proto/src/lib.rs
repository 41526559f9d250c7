//! The shapes that go over the wire, into the log and into the snapshot: messages, records, rows.
//!
//! This crate has only shapes and their bytes; the machines decide what they cause. `docs/FORMATS.md` lists
//! the layouts, and golden files in the tests make sure that they do not change.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod changes;
pub mod cluster;
pub mod control;
pub mod copies;
pub mod group;
mod handle;
mod lease;
mod listing;
pub mod members;
pub mod message;
mod options;
pub mod record;
mod reply;
pub mod row;
pub mod site;
pub mod union;
pub mod volume;

pub use cluster::{
    CertificateFor, Cluster, ClusterClient, ClusterNode, ControlPlace, Grant, Invitation, Issued,
    StoredCluster, Subtree,
};
pub use control::{Control, ControlReply};
pub use copies::{Copies, IslandGroup};
pub use group::{GroupRecord, Host, Primary, Seat};
pub use handle::FileHandle;
pub use lease::{Lease, MayKeep};
pub use listing::{CutLost, FileAt, ListedName};
pub use members::{Beacon, BodyBlocks, EpochTable, FetchedPiece, GroupMessage, NodeLife, Promised};
pub use message::{
    Ancestor, Chain, ClientOp, DirAnswer, DirQuestion, DirReport, EntryRef, Hint, JournalEntry, KeyOverride,
    LinkTarget, Notice, Outcome, ParticipantWork, PeerMessage, PeerOp, RenameSpec, Request, RequestId,
    Resolved, TxnPart, TxnStamps, Vote, VoteInfo,
};
pub use options::{Extras, FoundBy, Within};
pub use record::{BodyChange, LifeEnd, Record, RowChange};
pub use reply::Reply;
pub use row::{
    CarriedLink, DaemonLife, Dir, DirPlace, Entry, Forward, Inode, JournalClock, KnownToOthers, OwnedDir,
    PlaceVersion, RequestResult, Session, StaticAttrs, Stub, Txn, TxnState, Xattrs, names_of,
};
pub use site::{
    SettledOutcome, SettledTold, SiteCondition, SiteOrder, SiteReply, SiteSettings, SiteTold, SiteTrace,
    TrashTold,
};
pub use union::{UnionOrder, UnionReply};
pub use volume::{BadConfig, Fixed, NodeConfig, VolumeConfig, VolumeKind, reserve_bytes};
