//! Whether an island is a site of a wide volume, as far as its state can be read. Changes nothing.

use std::sync::Arc;

use atoll_core::{Decode, Ino};
use atoll_disk::Disk;
use atoll_disk::overlay::Overlay;
use atoll_proto::{Dir, Inode};
use atoll_snapshot::{Snapshot, SnapshotError};
use atoll_state::RowKey;

use crate::STATE;

/// Bytes of the snapshot that stay in memory meanwhile.
const CACHE_BYTES: usize = 8 << 20;
/// Rows that are read at once.
const PAGE: usize = 4096;

/// A machine beside the island has rows of its own, or bytes beside other rows. Of a state that cannot be read it is not known.
pub(crate) fn is_site<D: Disk>(disk: &Arc<D>) -> bool {
    // The old state is set aside as it is: what changes a database by opening it stays in memory.
    let disk = Overlay::new(Arc::clone(disk));
    // Where there is none, one would be made.
    let state = disk.stat(STATE).ok().and_then(|_| Snapshot::open(&disk, STATE, CACHE_BYTES).ok());
    state.is_some_and(|state| {
        has(&state, &RowKey::Side(0, 0), |_| true)
            || has(&state, &RowKey::Inode(Ino(0)), |row| {
                Inode::from_slice(row).is_ok_and(|row| row.beside.is_some())
            })
            || has(&state, &RowKey::Dir(Ino(0)), |row| {
                Dir::from_slice(row).is_ok_and(|row| row.beside.is_some())
            })
    })
}

/// Whether there is such a row among those with keys like `first`.
fn has(state: &Snapshot, first: &RowKey, is_one: impl Fn(&[u8]) -> bool) -> bool {
    let mut from = first.to_bytes();
    let end = [from[0] + 1];
    loop {
        let page: Result<Vec<_>, SnapshotError> = state.range(&from, &end, PAGE);
        let Ok(page) = page else { return false };
        if page.iter().any(|(_, row)| is_one(row)) {
            return true;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => from = [last, &[0][..]].concat(),
            _ => return false,
        }
    }
}
