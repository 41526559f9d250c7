//! A body against the checksums of its rows, piece by piece, without a record that says what was changed: of a copy that took its rows
//! from another one.

use atoll_core::Ino;
use atoll_core::sum::{self, BLOCK_BYTES, block_len};
use atoll_disk::{Disk, DiskFile, FileKind};

use crate::io::fill;
use crate::{Bodies, BodyError, Born};

impl<D: Disk> Bodies<D> {
    /// Makes the native file what a body of `size` bytes can be: a regular file of this length, with a hole in place of what is
    /// not there. Something else that lies there goes.
    pub fn fit(&self, ino: Ino, size: u64, born: Option<Born>) -> Result<(), BodyError> {
        match self.disk().stat(&self.path(ino)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(BodyError::io(ino, error)),
            Ok(stat) if stat.kind == FileKind::Regular => {}
            Ok(_) => self.drop_body(ino)?,
        }
        self.fit_length(ino, size, born)
    }

    /// Gives the native file exactly this length. One is made only if it has to have any.
    pub(crate) fn fit_length(&self, ino: Ino, size: u64, born: Option<Born>) -> Result<(), BodyError> {
        let io = |e| BodyError::io(ino, e);
        if let Some(open) = self.existing(ino)? {
            if open.file.stat().map_err(io)?.size != size {
                open.file.set_len(size).map_err(io)?;
            }
            self.trim(ino, &open, size)
        } else if size > 0 {
            self.cut(ino, size, 0, born)
        } else {
            Ok(())
        }
    }

    /// The blocks from `first` on that do not have these checksums, in a body of `size` bytes. `again`: the others are written
    /// once more, because a sync that failed may have left them in memory only.
    pub fn differing(
        &self,
        (ino, size): (Ino, u64),
        first: u64,
        sums: &[u32],
        again: bool,
    ) -> Result<Vec<u64>, BodyError> {
        let io = |e| BodyError::io(ino, e);
        let Some(last) = (sums.len() as u64).checked_sub(1).map(|more| first + more) else {
            return Ok(Vec::new());
        };
        let (from, to) = (first * BLOCK_BYTES, last * BLOCK_BYTES + block_len(last, size));
        let open = self.existing(ino)?;
        // A hole is not read: it may be a large one.
        let data = match &open {
            Some(open) => open.file.seek(from, false).map_err(io)?.filter(|data| *data < to),
            None => None,
        };
        let Some(open) = open.filter(|_| data.is_some()) else {
            return Ok((first..).zip(sums).filter(|(_, sum)| **sum != 0).map(|(block, _)| block).collect());
        };
        let mut bytes = vec![0; (to - from) as usize];
        fill(&open.file, &mut bytes, from).map_err(io)?;
        let mut differing = Vec::new();
        for ((block, bytes), want) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)).zip(sums) {
            if sum::sum(bytes) != *want {
                differing.push(block);
            } else if again && *want != 0 {
                open.file.write_at(bytes, block * BLOCK_BYTES).map_err(io)?;
            }
        }
        Ok(differing)
    }
}
