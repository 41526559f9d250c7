//! Operations on bodies that are under way: the bodies that each is in, and its next step. Never begins one.

use atoll_core::{Ino, TxnId};

use crate::bodies::locks::BodyAccess;
use crate::ctx::request::PendingRequest;

/// A body operation under way, and its next step.
#[derive(Debug, Clone)]
pub(crate) enum BodyOpState {
    /// Bytes are read and sent; then the body is free.
    Reading { ino: Ino },
    /// Decided work is done in the body; then the body is free.
    Changing { ino: Ino },
    /// Nobody waits: a body that goes, or more follows.
    Dropping { ino: Ino },
    /// Bytes are read for another island, to which the file moves.
    Shipping { ino: Ino, txn: TxnId, offset: u64, len: u32, size: u64 },
    /// Bytes are put in place of a file that comes from another island.
    Arriving { ino: Ino, txn: TxnId },
    /// A request goes on with the result.
    Asked { ino: Ino, how: BodyAccess, call: Option<PendingRequest>, then: AfterBody },
    /// A request goes on when the body is synced.
    Syncing { ino: Ino, call: Option<PendingRequest> },
}

/// The next step of a request when its body operation is done.
#[derive(Debug, Clone)]
pub(crate) enum AfterBody {
    /// Checksums are known: decide the write, bytes carried.
    Carry { offset: u64, size: u64 },
    /// The bytes of a write are in place: decides the write. `over_new`: it began when no sync had covered
    /// the file yet, so the bytes that it overwrites may be lost. `promised`: carried bytes below were synced first.
    Direct { to: Ino, offset: u64, len: u64, size: u64, over_new: bool, promised: bool },
    /// Checksum is known: decide the cut.
    Cut { size: u64 },
    /// Checksums are known: decide the zeroing.
    Zero { offset: u64, len: u64, size: u64 },
    /// Space is reserved: decide the length.
    Allocated { offset: u64, len: u64, keep_size: bool, size: u64 },
    /// Tell where.
    Found,
    /// Tell the bytes to the machine beside the island.
    Fetched,
}

impl BodyOpState {
    /// The file of which bytes are being put in place, or whose body grows, ahead of the record.
    pub(crate) const fn is_ahead(&self) -> Option<Ino> {
        match self {
            Self::Asked { then: AfterBody::Direct { to, .. }, .. } => Some(*to),
            Self::Asked { ino, then: AfterBody::Allocated { keep_size: false, .. }, .. } => Some(*ino),
            _ => None,
        }
    }

    /// The file of which bytes are overwritten as if no sync had ever covered them.
    pub(crate) const fn is_over_new(&self) -> Option<Ino> {
        match self {
            Self::Asked { then: AfterBody::Direct { to, over_new: true, .. }, .. } => Some(*to),
            _ => None,
        }
    }

    /// The file whose length changes when this is done.
    pub(crate) const fn cuts(&self) -> Option<Ino> {
        match self {
            Self::Asked { ino, then: AfterBody::Cut { .. }, .. } => Some(*ino),
            _ => None,
        }
    }

    /// Whether a request goes on after it that may change a row.
    pub(crate) const fn decides(&self) -> bool {
        matches!(self, Self::Asked { then, .. } if !matches!(then, AfterBody::Found | AfterBody::Fetched))
    }

    /// The file that a request changes which goes on after it.
    pub(crate) const fn changes(&self) -> Option<Ino> {
        match self {
            Self::Asked { then: AfterBody::Direct { to, .. }, .. } => Some(*to),
            Self::Asked { then: AfterBody::Found | AfterBody::Fetched, .. } => None,
            Self::Asked { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// Whose bodies it is inside of, and how.
    pub(crate) fn inside(&self) -> impl Iterator<Item = (Ino, BodyAccess)> {
        let (first, second) = match self {
            Self::Reading { ino } | Self::Shipping { ino, .. } => (Some((*ino, BodyAccess::Shared)), None),
            Self::Changing { ino } => (Some((*ino, BodyAccess::Exclusive)), None),
            Self::Arriving { ino, .. } | Self::Syncing { ino, .. } => {
                (Some((*ino, BodyAccess::Pinned)), None)
            }
            Self::Dropping { .. } => (None, None),
            Self::Asked { ino, how, then: AfterBody::Direct { to, .. }, .. } if to != ino => {
                (Some((*ino, *how)), Some((*to, BodyAccess::Exclusive)))
            }
            Self::Asked { ino, how, .. } => (Some((*ino, *how)), None),
        };
        first.into_iter().chain(second)
    }

    /// The request that goes on after it.
    pub(crate) const fn call(&self) -> Option<&PendingRequest> {
        match self {
            Self::Asked { call, .. } | Self::Syncing { call, .. } => call.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn keep(&mut self, kept: PendingRequest) {
        match self {
            Self::Asked { call, .. } | Self::Syncing { call, .. } => *call = Some(kept),
            _ => unreachable!("nobody waits for this"),
        }
    }
}

/// How safe a record must be before its work is done in the body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequiredDurability {
    Committed(u64),
    Synced(u64),
}

impl RequiredDurability {
    /// For a record that must not be lost without the change of the body: it must be synced, unless that
    /// change may be lost anyway.
    pub(crate) const fn safe(seq: u64, may_be_lost: bool) -> Self {
        if may_be_lost { Self::Committed(seq) } else { Self::Synced(seq) }
    }
}
