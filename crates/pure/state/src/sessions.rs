//! Changes of parts of a client's row: results, and files that it holds.

use atoll_core::Ino;
use atoll_proto::{RequestResult, Session};

/// Results that are kept for one client, of some 40 bytes each. A client that waits for an earlier request, as for a lock,
/// keeps those of all later ones: beyond this the oldest go, as if it had said that it has them.
pub const RESULTS_MAX: usize = 16 << 10;

/// Remembers the result of a request; the client has those of all below `acked`.
pub(crate) fn remember(row: &mut Session, request: u64, acked: u64, result: RequestResult) {
    row.acked = row.acked.max(acked);
    let gone = row.results.partition_point(|(n, _)| *n < row.acked);
    row.results.drain(..gone);
    let at = row.results.partition_point(|(n, _)| *n < request);
    row.results.insert(at, (request, result));
    if row.results.len() > RESULTS_MAX {
        // Some at once, as the others move up.
        let gone = row.results.drain(..RESULTS_MAX / 16).next_back();
        row.acked = row.acked.max(gone.map_or(0, |(n, _)| n + 1));
    }
}

/// The client begins or ends to hold a file.
pub(crate) fn hold(row: &mut Session, ino: Ino, on: bool) {
    match (row.held.binary_search(&ino), on) {
        (Err(at), true) => row.held.insert(at, ino),
        (Ok(at), false) => _ = row.held.remove(at),
        _ => {}
    }
}
