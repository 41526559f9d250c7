//! Block checksums of files, in rows of many each. A row that is changed in part must be in memory. Never
//! computes a checksum.

use atoll_core::Ino;
use atoll_proto::RowChange;

use crate::key::{RowKey, SUMS_PER_CHUNK};
use crate::load::RowLoad;
use crate::state::{NotInMemory, State};

impl State {
    /// Block checksums of a file from block `first`, `count` of them; absent ones are 0.
    pub fn sums(&self, ino: Ino, first: u64, count: u64) -> Result<Vec<u32>, NotInMemory> {
        let mut out = Vec::with_capacity(count as usize);
        let mut block = first;
        while block < first + count {
            let chunk = block / SUMS_PER_CHUNK;
            let row = self
                .sums
                .get((ino, chunk), &self.seen)
                .ok_or(NotInMemory(RowLoad::Row(RowKey::Sums(ino, chunk))))?;
            let end = ((chunk + 1) * SUMS_PER_CHUNK).min(first + count);
            while block < end {
                let i = (block % SUMS_PER_CHUNK) as usize;
                out.push(row.and_then(|r| r.get(i)).copied().unwrap_or(0));
                block += 1;
            }
        }
        Ok(out)
    }

    /// A row that must be in memory before `change` can be applied, if it is not.
    pub fn needs(&self, change: &RowChange) -> Option<RowLoad> {
        let chunks = match change {
            RowChange::Sums { ino, first, sums } => {
                let last = first + sums.len().max(1) as u64 - 1;
                (*ino, first / SUMS_PER_CHUNK, last / SUMS_PER_CHUNK)
            }
            RowChange::SumsCut { ino, first, .. } => (*ino, first / SUMS_PER_CHUNK, first / SUMS_PER_CHUNK),
            _ => return None,
        };
        (chunks.1..=chunks.2)
            .find(|&c| self.sums.get((chunks.0, c), &self.seen).is_none())
            .map(|c| RowLoad::Row(RowKey::Sums(chunks.0, c)))
    }

    pub(crate) fn apply_sums(&mut self, seq: u64, ino: Ino, first: u64, sums: &[u32]) {
        let mut at = 0;
        while at < sums.len() {
            let block = first + at as u64;
            let (chunk, i) = (block / SUMS_PER_CHUNK, (block % SUMS_PER_CHUNK) as usize);
            let n = (SUMS_PER_CHUNK as usize - i).min(sums.len() - at);
            let part = &sums[at..at + n];
            let write = |row: &mut Vec<u32>| {
                if row.len() < i + n {
                    row.resize(i + n, 0);
                }
                row[i..i + n].copy_from_slice(part);
            };
            if !self.sums.modify((ino, chunk), seq, write) {
                let known = self.sums.get((ino, chunk), &self.seen);
                assert!(known.is_some(), "checksums of {ino} chunk {chunk} were not loaded");
                let mut row = Vec::new();
                write(&mut row);
                self.sums.set((ino, chunk), Some(row), seq);
            }
            at += n;
        }
    }

    pub(crate) fn cut_sums(&mut self, seq: u64, ino: Ino, first: u64, end: u64) {
        let (chunk, i) = (first / SUMS_PER_CHUNK, (first % SUMS_PER_CHUNK) as usize);
        if i > 0 {
            self.sums.modify((ino, chunk), seq, |row| row.truncate(i));
        }
        for gone in first.div_ceil(SUMS_PER_CHUNK)..end.div_ceil(SUMS_PER_CHUNK) {
            self.sums.set((ino, gone), None, seq);
        }
    }
}
