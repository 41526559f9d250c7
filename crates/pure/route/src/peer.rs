//! What a client knows of one island. Never asks it.

use atoll_proto::Lease;

use crate::serial::RequestNumbers;

/// What the client knows of an island.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) up: bool,
    /// It knows the session.
    pub(crate) attached: bool,
    pub(crate) attaching: bool,
    /// It knew the session when it was last attached.
    pub(crate) known: bool,
    /// It has told since it was attached whether it lets the mount keep what is answered.
    pub(crate) is_asked: bool,
    /// What it lets the mount keep of what is answered.
    pub(crate) lease: Lease,
    /// Its incarnation that began with its last power cut, as it said when it was attached.
    pub(crate) power: u32,
    /// Answers to requests from this number on tell whether it does.
    pub(crate) told_from: u64,
    /// The island waits to hear that everything kept is dropped.
    pub(crate) recalling: bool,
    /// Recalls of single files and directories that are not answered, each with the client's number for it, the oldest first.
    pub(crate) recalls_of: Vec<(u64, u64)>,
    /// When it last answered anything, and when its link broke.
    pub(crate) heard_ms: u64,
    pub(crate) down_ms: u64,
    /// When it was last expected to answer: its link came up, or a node that may lead it was connected.
    pub(crate) back_ms: u64,
    /// A call has waited for it until the mount's patience ended, and it is still away.
    pub(crate) given_up: bool,
    /// When the last sign of life was sent that it has answered.
    pub(crate) renewed_ms: u64,
    pub(crate) serial: RequestNumbers,
    pub(crate) told_version: u64,
    /// Calls that wait for it.
    pub(crate) waiting: Vec<u64>,
}
