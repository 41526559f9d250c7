//! Records on their way from the primary of an island to its other copies. Never says who gets them.

use atoll_log::Position;
use bytes::Bytes;

/// A record as other copies of its island need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipped {
    /// Its position.
    pub position: Position,
    /// Its bytes in the log.
    pub payload: Bytes,
    /// The bytes that it names and does not carry: they are put into the body before the record is appended. None if
    /// the body is gone, as a later record tells.
    pub placed: Option<Bytes>,
}

/// Records that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipment {
    /// The record before the first.
    pub after: Position,
    /// Records up to this one are synced at every member.
    pub synced: u64,
    /// They.
    pub records: Vec<Shipped>,
}
