//! Requests that wait for what no machine of their own owns: the start of the island, the end of a transaction, a pause, a
//! sync.

use std::collections::BTreeMap;

use atoll_core::TxnId;

use crate::ctx::Bounded;
use crate::ctx::request::Call;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    /// Those that wait for the island to start.
    pub(crate) hidden: Bounded<Call>,
    pub(crate) txn_waiting: BTreeMap<TxnId, Vec<Call>>,
    /// Those that begin again, and when, in milliseconds.
    pub(crate) retry_at: Vec<(u64, Call)>,
    /// Those that wait for the record at a position to be synced.
    pub(crate) sync_waiting: Vec<(u64, Call)>,
    /// Records find no space: what would change something is refused before it is decided.
    pub(crate) log_stuck: bool,
}
