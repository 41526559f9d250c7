//! Small files that say what the next opening of a copy has to do: a checksum, and the content. Each is replaced as a whole.

use std::io;

use atoll_core::{IslandId, sum};
use atoll_disk::{Disk, DiskFile, OpenHow};

use crate::open::OpenError;

/// Bytes of the checksum, which stands in front.
const SUM_BYTES: usize = 4;

/// The content of such a file; none if there is none.
pub(crate) fn read<D: Disk>(disk: &D, name: &[u8], island: IslandId) -> Result<Option<Vec<u8>>, OpenError> {
    let bytes = match read_all(disk, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|e| OpenError::Io(island, e))?,
    };
    let (told, content) = bytes.split_first_chunk::<SUM_BYTES>().ok_or_else(|| damaged(name, island))?;
    if u32::from_le_bytes(*told) != sum::sum(content) {
        return Err(damaged(name, island));
    }
    Ok(Some(content.to_vec()))
}

pub(crate) fn damaged(name: &[u8], island: IslandId) -> OpenError {
    OpenError::Malformed(island, format!("the file {} is damaged", name.escape_ascii()))
}

fn read_all<D: Disk>(disk: &D, name: &[u8]) -> io::Result<Vec<u8>> {
    let file = disk.open(name, OpenHow::Read)?;
    let mut bytes = vec![0; usize::try_from(file.stat()?.size).map_err(io::Error::other)?];
    let n = file.read_full(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Writes one, durably, in the place of what was there.
pub(crate) fn write<D: Disk>(disk: &D, name: &[u8], content: &[u8]) -> io::Result<()> {
    let new = [name, b".new"].concat();
    let file = disk.open(&new, OpenHow::Create { mode: 0o600 })?;
    file.set_len(0)?;
    file.write_at(&[&sum::sum(content).to_le_bytes()[..], content].concat(), 0)?;
    file.sync()?;
    disk.rename(&new, name, true)?;
    disk.sync_dir(b"")
}

/// Removes a file, if there is one.
pub(crate) fn remove<D: Disk>(disk: &D, name: &[u8]) -> io::Result<()> {
    match disk.unlink(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
