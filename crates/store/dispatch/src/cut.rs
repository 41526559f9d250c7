//! The file `log.cut`: the files that records had changed which were cut off a copy's log. It is written before the cut. Bodies may
//! have been changed as those records say, by this life or an earlier one, and no record that is left tells it.

use std::collections::BTreeSet;

use atoll_core::{Decode, Encode, Ino, IslandId};
use atoll_disk::Disk;

use crate::noted;
use crate::open::OpenError;

const CUT: &[u8] = b"log.cut";

/// The files of all cuts since the last opening that found nothing missing; none if there was no cut.
pub(crate) fn files<D: Disk>(disk: &D, island: IslandId) -> Result<Option<Vec<Ino>>, OpenError> {
    let Some(list) = noted::read(disk, CUT, island)? else { return Ok(None) };
    Vec::from_slice(&list).map(Some).map_err(|_| noted::damaged(CUT, island))
}

/// Adds the files of a cut that begins, durably.
pub(crate) fn note<D: Disk>(disk: &D, island: IslandId, more: BTreeSet<Ino>) -> Result<(), OpenError> {
    let mut all = more;
    all.extend(files(disk, island)?.into_iter().flatten());
    let list = Encode::to_vec(&all.into_iter().collect::<Vec<_>>());
    noted::write(disk, CUT, &list).map_err(|e| OpenError::Io(island, e))
}

/// No body lacks anything that cut records had taken.
pub(crate) fn forget<D: Disk>(disk: &D, island: IslandId) -> Result<(), OpenError> {
    noted::remove(disk, CUT).map_err(|e| OpenError::Io(island, e))
}
