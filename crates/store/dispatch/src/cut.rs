//! The file `log.cut`: the files that records had changed which were cut off a copy's log. It is written before the cut. Bodies may
//! have been changed as those records say, by this life or an earlier one, and no record that is left tells it.

use std::collections::BTreeSet;
use std::io;

use atoll_core::{Decode, Encode, Ino, IslandId, sum};
use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::open::OpenError;

const CUT: &[u8] = b"log.cut";
const CUT_NEW: &[u8] = b"log.cut.new";
/// Bytes of the checksum, which stands in front of the list.
const SUM_BYTES: usize = 4;

/// The files of all cuts since the last opening that found nothing missing; none if there was no cut.
pub(crate) fn files<D: Disk>(disk: &D, island: IslandId) -> Result<Option<Vec<Ino>>, OpenError> {
    let bytes = match read(disk) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|e| OpenError::Io(island, e))?,
    };
    let damaged = || OpenError::Malformed(island, "the file log.cut is damaged".to_owned());
    let (told, list) = bytes.split_first_chunk::<SUM_BYTES>().ok_or_else(damaged)?;
    if u32::from_le_bytes(*told) != sum::sum(list) {
        return Err(damaged());
    }
    Vec::from_slice(list).map(Some).map_err(|_| damaged())
}

fn read<D: Disk>(disk: &D) -> io::Result<Vec<u8>> {
    let file = disk.open(CUT, OpenHow::Read)?;
    let mut bytes = vec![0; usize::try_from(file.stat()?.size).map_err(io::Error::other)?];
    let n = file.read_full(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Adds the files of a cut that begins, durably.
pub(crate) fn note<D: Disk>(disk: &D, island: IslandId, more: BTreeSet<Ino>) -> Result<(), OpenError> {
    let mut all = more;
    all.extend(files(disk, island)?.into_iter().flatten());
    let list = Encode::to_vec(&all.into_iter().collect::<Vec<_>>());
    let bytes = [&sum::sum(&list).to_le_bytes()[..], &list].concat();
    let write = || {
        let file = disk.open(CUT_NEW, OpenHow::Create { mode: 0o600 })?;
        file.set_len(0)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(CUT_NEW, CUT, true)?;
        disk.sync_dir(b"")
    };
    write().map_err(|e| OpenError::Io(island, e))
}

/// No body lacks anything that cut records had taken.
pub(crate) fn forget<D: Disk>(disk: &D, island: IslandId) -> Result<(), OpenError> {
    disk.unlink(CUT).map_err(|e| OpenError::Io(island, e))
}
