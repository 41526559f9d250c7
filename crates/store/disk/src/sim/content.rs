//! The bytes of a simulated file, as sparse pages, and the changes that a power cut may tear.
//! Knows nothing of names, attributes or the disk around it.

use std::collections::BTreeMap;

use super::rng::{Rng, mix};

/// Bytes that take up space together.
pub(super) const PAGE: u64 = 4096;
/// Bytes that a disk writes all or not at all.
pub(super) const SECTOR: u64 = 512;

#[derive(Debug, Clone)]
enum Page {
    /// Takes space and reads as zeros: allocated, never written.
    Reserved,
    /// Was written, zeros only: as the tail of a log is.
    Zeros,
    Data(Box<[u8; PAGE as usize]>),
}

/// Length and pages. Bytes at and beyond the length are zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    len: u64,
    pages: BTreeMap<u64, Page>,
}

/// One change that was done and is not yet synced.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Box<[u8]> },
    WriteZeros { offset: u64, len: u64 },
    SetLen(u64),
    Punch { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64, keep_size: bool },
}

impl Change {
    pub(super) fn write(offset: u64, bytes: &[u8]) -> Self {
        let len = bytes.len() as u64;
        // Each is the one before it, and the first is zero.
        if len >= PAGE && bytes[0] == 0 && bytes[1..] == bytes[..bytes.len() - 1] {
            Self::WriteZeros { offset, len }
        } else {
            Self::Write { offset, bytes: bytes.into() }
        }
    }

    /// Its cost in memory.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Write { bytes, .. } => bytes.len() as u64,
            Self::WriteZeros { len, .. } => *len,
            _ => 0,
        }
    }

    /// The length after it, of a file that had `len`.
    fn len_after(&self, len: u64) -> u64 {
        match self {
            Self::Write { offset, bytes } => len.max(offset + bytes.len() as u64),
            Self::WriteZeros { offset, len: n } => len.max(offset + n),
            Self::SetLen(new) => *new,
            Self::Allocate { offset, len: n, keep_size: false } => len.max(offset + n),
            Self::Punch { .. } | Self::Allocate { .. } => len,
        }
    }
}

/// What `len` bytes from `offset` on are of each piece of `size` bytes.
fn parts(offset: u64, len: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let part = move |n| (offset.max(n * size), end.min((n + 1) * size));
    (offset / size..end.div_ceil(size)).map(part).filter(|(from, to)| from < to)
}

impl Content {
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of space taken.
    pub(super) fn space(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// True if writing this page takes no more space.
    pub(super) fn has_page(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (from, to) in parts(offset, n as u64, PAGE) {
            let start = (from % PAGE) as usize;
            let to = &mut buf[(from - offset) as usize..(to - offset) as usize];
            match self.pages.get(&(from / PAGE)) {
                Some(Page::Data(page)) => to.copy_from_slice(&page[start..start + to.len()]),
                Some(Page::Reserved | Page::Zeros) | None => to.fill(0),
            }
        }
        n
    }

    /// Does all of a change.
    pub(super) fn apply(&mut self, change: &Change) {
        self.apply_sectors(change, |_| true);
        self.reserve(change);
        self.resize(change.len_after(self.len));
    }

    /// Does the part of a change that falls into sectors for which `keep` holds; no lengths.
    fn apply_sectors(&mut self, change: &Change, keep: impl Fn(u64) -> bool) {
        match change {
            Change::Write { offset, bytes } => {
                for (from, to) in
                    parts(*offset, bytes.len() as u64, SECTOR).filter(|(at, _)| keep(at / SECTOR))
                {
                    let start = (from % PAGE) as usize;
                    let new = &bytes[(from - offset) as usize..(to - offset) as usize];
                    self.page(from / PAGE)[start..start + new.len()].copy_from_slice(new);
                }
            }
            Change::WriteZeros { offset, len } => {
                for (from, to) in parts(*offset, *len, SECTOR).filter(|(at, _)| keep(at / SECTOR)) {
                    let start = (from % PAGE) as usize;
                    match self.pages.entry(from / PAGE).or_insert(Page::Zeros) {
                        Page::Data(page) => page[start..start + (to - from) as usize].fill(0),
                        page => *page = Page::Zeros,
                    }
                }
            }
            Change::SetLen(len) => self.zero(*len, u64::MAX, keep),
            Change::Punch { offset, len } => self.zero(*offset, offset + len, keep),
            Change::Allocate { .. } => {}
        }
    }

    fn reserve(&mut self, change: &Change) {
        if let Change::Allocate { offset, len, .. } = change {
            for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
                self.pages.entry(page).or_insert(Page::Reserved);
            }
        }
    }

    fn page(&mut self, page: u64) -> &mut [u8; PAGE as usize] {
        let page = self.pages.entry(page).or_insert(Page::Reserved);
        if matches!(page, Page::Reserved | Page::Zeros) {
            *page = Page::Data(Box::new([0; PAGE as usize]));
        }
        match page {
            Page::Data(bytes) => bytes,
            Page::Reserved | Page::Zeros => unreachable!("it was given bytes just now"),
        }
    }

    /// Zeros `[from, to)`; a page that lies in it wholly gives its space back.
    fn zero(&mut self, from: u64, to: u64, keep: impl Fn(u64) -> bool) {
        let mut gone = Vec::new();
        for (&index, page) in self.pages.range_mut(from / PAGE..to.div_ceil(PAGE)) {
            let base = index * PAGE;
            let mut whole = true;
            for sector in base / SECTOR..(base + PAGE) / SECTOR {
                let start = from.max(sector * SECTOR);
                let end = to.min((sector + 1) * SECTOR);
                whole &= start == sector * SECTOR && end == (sector + 1) * SECTOR && keep(sector);
                if let Page::Data(bytes) = page
                    && start < end
                    && keep(sector)
                {
                    bytes[(start - base) as usize..(end - base) as usize].fill(0);
                }
            }
            if whole {
                gone.push(index);
            }
        }
        for index in gone {
            self.pages.remove(&index);
        }
    }

    fn resize(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, u64::MAX, |_| true);
        }
        self.len = len;
    }

    /// First byte of data or of a hole at or after `offset`, as `SEEK_DATA` and `SEEK_HOLE`.
    pub(super) fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        if offset >= self.len {
            return None;
        }
        let is_data = |page: &Page| matches!(page, Page::Zeros | Page::Data(_));
        let first = offset / PAGE;
        if hole {
            let mut page = first;
            while self.pages.get(&page).is_some_and(is_data) {
                page += 1;
            }
            Some(offset.max(page * PAGE).min(self.len))
        } else {
            let (page, _) = self.pages.range(first..).find(|(_, page)| is_data(page))?;
            Some(offset.max(page * PAGE)).filter(|at| *at < self.len)
        }
    }

    /// The content of a disk after a power cut: this, and a part of each unsynced change. Every sector comes
    /// from some moment since the last sync, and so does the length, each by itself.
    pub(super) fn after_power_cut(mut self, unsynced: &[Change], rng: &mut Rng) -> Self {
        let n = unsynced.len() as u64;
        let (salt, mood) = (rng.next(), rng.below(4));
        let cut = |sector: u64| match mood {
            0 => 0,
            1 => n,
            _ => mix(salt ^ mix(sector)) % (n + 1),
        };
        let len_cut = if mood < 2 { cut(0) } else { rng.below(n + 1) };
        let mut len = self.len;
        for (i, change) in (0..).zip(unsynced) {
            self.apply_sectors(change, |sector| i < cut(sector));
            if i < len_cut {
                self.reserve(change);
                len = change.len_after(len);
            }
        }
        // Sectors beyond the length never count; the hole between old and new length is zeros.
        self.len = u64::MAX;
        self.resize(len);
        self
    }

    /// Changes one bit at rest. False beyond the end.
    pub(super) fn flip(&mut self, byte: u64, bit: u8) -> bool {
        if byte >= self.len {
            return false;
        }
        self.page(byte / PAGE)[(byte % PAGE) as usize] ^= 1 << (bit % 8);
        true
    }
}
