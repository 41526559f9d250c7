//! Reading the bytes of native files. Decides nothing.

use std::io;

use atoll_core::Name;
use atoll_core::sum::{BLOCK_BYTES, sum};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_state::key::SUMS_PER_CHUNK;

use crate::plan::alike;
use crate::unite::{DirAt, FileAt, Tree};
use crate::{Disks, RebuildError, at};

/// Bytes that are read at once: those whose checksums share a row.
pub(crate) const READ_BYTES: u64 = SUMS_PER_CHUNK * BLOCK_BYTES;

/// Whether two native objects of one name are the same thing, such as a file and a copy of it that a
/// hand put into another island's tree.
pub(crate) fn same_content<D: Disk>(
    disks: &Disks<D>,
    tree: &Tree,
    a: FileAt,
    b: FileAt,
    dir: DirAt,
    name: &Name,
) -> Result<bool, RebuildError> {
    if !alike(tree, a, b) {
        return Ok(false);
    }
    if tree.files[a].stat.kind != FileKind::Regular {
        return Ok(true);
    }
    let path = tree.native(dir, name.as_bytes());
    let (island, other) = (tree.files[a].island, tree.files[b].island);
    let open = |island| disks[&island].open(&path, OpenHow::Read).map_err(at(island, &path));
    let (one, two) = (open(island)?, open(other)?);
    let mut bufs = [vec![0; READ_BYTES as usize], vec![0; READ_BYTES as usize]];
    let mut offset = 0;
    loop {
        let [buf, other_buf] = &mut bufs;
        let n = one.read_full(buf, offset).map_err(at(island, &path))?;
        let m = two.read_full(other_buf, offset).map_err(at(other, &path))?;
        if buf[..n] != other_buf[..m] {
            return Ok(false);
        }
        if n < buf.len() {
            return Ok(true);
        }
        offset += n as u64;
    }
}

/// Checksums of a file's blocks, chunk by chunk; chunks that are all zeros are passed over. False if
/// the file does not have `size` bytes.
pub(crate) fn sums_of<F: DiskFile>(
    file: &F,
    size: u64,
    mut chunk: impl FnMut(u64, Vec<u32>),
) -> io::Result<bool> {
    let mut buf = Vec::new();
    let mut offset = 0;
    while offset < size {
        // Holes have the sum 0, and need no reading.
        match file.seek(offset, false)? {
            None => break,
            Some(data) => offset = data / READ_BYTES * READ_BYTES,
        }
        if offset >= size {
            break;
        }
        buf.resize((size - offset).min(READ_BYTES) as usize, 0);
        if file.read_full(&mut buf, offset)? < buf.len() {
            return Ok(false);
        }
        let sums: Vec<u32> = buf.chunks(BLOCK_BYTES as usize).map(sum).collect();
        if sums.iter().any(|sum| *sum != 0) {
            chunk(offset / READ_BYTES, sums);
        }
        offset += READ_BYTES;
    }
    Ok(file.stat()?.size == size)
}
