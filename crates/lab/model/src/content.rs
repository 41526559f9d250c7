//! Bytes of a file: pages that were written, holes between them. Grows and shrinks; knows nothing
//! of times and permissions.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_posix::Whence;

use crate::rng::mix;

/// Bytes of a page: the grain of holes.
pub const PAGE_BYTES: u64 = 4096;

/// Copies of a content share what none of them changes.
type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// Bytes of a file. What was never written is a hole and reads as zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    size: u64,
    // Invariant: a page starts below `size`, and its bytes past `size` are zeros.
    pages: BTreeMap<u64, Page>,
}

/// The part of one page that a range covers: the page, and where in it.
fn parts(offset: u64, end: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let page = at / PAGE_BYTES;
            let stop = end.min((page + 1).saturating_mul(PAGE_BYTES));
            let range = (at - page * PAGE_BYTES) as usize..(stop - page * PAGE_BYTES) as usize;
            at = stop;
            (page, range)
        })
    })
}

impl Content {
    /// Length in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// 512-byte blocks of the pages that were written.
    pub fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE_BYTES / 512)
    }

    /// Up to `len` bytes from `offset`, fewer at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for (page, range) in parts(offset, end) {
            match self.pages.get(&page) {
                Some(bytes) => out.extend_from_slice(&bytes[range]),
                None => out.resize(out.len() + range.len(), 0),
            }
        }
        out
    }

    /// Puts `data` at `offset`; the file grows if it ends there.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for (page, range) in parts(offset, offset + data.len() as u64) {
            let (now, later) = rest.split_at(range.len());
            self.page(page)[range].copy_from_slice(now);
            rest = later;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    fn page(&mut self, page: u64) -> &mut [u8; PAGE_BYTES as usize] {
        Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize])))
    }

    /// Sets the length; what is cut off is gone for ever.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size);
            self.pages.split_off(&size.div_ceil(PAGE_BYTES));
        }
        self.size = size;
    }

    /// Makes zeros of the bytes from `offset` up to `end`: whole pages become holes.
    pub fn punch(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|(&page, _)| page).collect();
        for page in touched {
            let start = page * PAGE_BYTES;
            let from = offset.saturating_sub(start).min(PAGE_BYTES) as usize;
            let to = (end - start).min(PAGE_BYTES) as usize;
            if (from, to) == (0, PAGE_BYTES as usize) {
                self.pages.remove(&page);
            } else {
                self.page(page)[from..to].fill(0);
            }
        }
    }

    /// The first data at or after `offset`, which is below the size.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (&page, _) = self.pages.range(offset / PAGE_BYTES..).next()?;
        Some(offset.max(page * PAGE_BYTES))
    }

    /// Whether a file system may tell this when it is asked for data or a hole (lseek(2)): which zeros are holes is
    /// its own affair, but what is not zero is data. None is `ENXIO`.
    pub fn may_tell(&self, offset: u64, whence: Whence, told: Option<u64>) -> bool {
        let is_inside = |at: u64| (offset..self.size).contains(&at);
        match (whence, told) {
            _ if offset >= self.size => told.is_none(),
            (Whence::Data, None) => self.next_byte(offset).is_none(),
            (Whence::Data, Some(at)) => is_inside(at) && self.next_byte(offset).is_none_or(|byte| at <= byte),
            (Whence::Hole, None) => false,
            (Whence::Hole, Some(at)) => at == self.size || (is_inside(at) && self.next_byte(at) != Some(at)),
        }
    }

    /// The first byte at or after `offset` that is not zero.
    fn next_byte(&self, offset: u64) -> Option<u64> {
        self.pages.range(offset / PAGE_BYTES..).find_map(|(&page, bytes)| {
            let from = offset.saturating_sub(page * PAGE_BYTES) as usize;
            let at = bytes[from..].iter().position(|byte| *byte != 0)?;
            Some(page * PAGE_BYTES + (from + at) as u64)
        })
    }

    /// The first hole at or after `offset`, which is below the size; the end counts as one.
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset;
        while at < self.size && self.pages.contains_key(&(at / PAGE_BYTES)) {
            at = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        }
        at.min(self.size)
    }
}

/// A hash of bytes that does not see in what pieces, in what order or with what holes they came:
/// zeros count for nothing, so the length must be compared beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentHash(pub u64);

impl ContentHash {
    /// Adds bytes that stand at `offset`.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        // The sum of all words, each times a number of its place: parts of a word add up to it.
        let mut word = |place: u64, word: u64| {
            if word != 0 {
                self.0 = self.0.wrapping_add(word.wrapping_mul(mix(place) | 1));
            }
        };
        let mut single = |at: u64, byte: u8| word(at / 8, u64::from(byte) << (at % 8 * 8));
        let (head, rest) = bytes.split_at(bytes.len().min((offset.wrapping_neg() % 8) as usize));
        (offset..).zip(head).for_each(|(at, &byte)| single(at, byte));
        let start = offset + head.len() as u64;
        let (words, tail) = rest.as_chunks::<8>();
        let end = start + words.len() as u64 * 8;
        (end..).zip(tail).for_each(|(at, &byte)| single(at, byte));
        (start / 8..).zip(words).for_each(|(place, bytes)| word(place, u64::from_le_bytes(*bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn content_is_what_a_plain_vector_would_be() {
        let mut rng = Rng::new(7);
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for _ in 0..2000 {
            let at = rng.below(5 * PAGE_BYTES);
            let len = rng.below(2 * PAGE_BYTES);
            match rng.below(4) {
                0 => {
                    plain.resize(at as usize, 0);
                    content.truncate(at);
                }
                1 => {
                    let end = (at + len).min(plain.len() as u64).max(at);
                    if let Some(range) = plain.get_mut(at as usize..end as usize) {
                        range.fill(0);
                    }
                    content.punch(at, end);
                }
                _ => {
                    let data: Vec<u8> = (0..len).map(|_| rng.bits() as u8).collect();
                    let end = (at + len) as usize;
                    if len > 0 {
                        plain.resize(plain.len().max(end), 0);
                        plain[at as usize..end].copy_from_slice(&data);
                    }
                    content.write(at, &data);
                }
            }
            assert_eq!(content.size(), plain.len() as u64);
            assert!(content.read(0, u64::MAX) == plain);
        }
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut content = Content::default();
        content.write(0, &[1; 100]);
        content.truncate(10);
        content.truncate(20);
        assert_eq!(content.read(5, 100), [[1; 5].as_slice(), &[0; 10]].concat());
    }

    #[test]
    fn holes_and_data_are_found() {
        let mut content = Content::default();
        content.write(2 * PAGE_BYTES, b"x");
        content.truncate(5 * PAGE_BYTES);
        assert_eq!(content.next_data(0), Some(2 * PAGE_BYTES));
        assert_eq!(content.next_data(2 * PAGE_BYTES + 5), Some(2 * PAGE_BYTES + 5));
        assert_eq!(content.next_data(3 * PAGE_BYTES), None);
        assert_eq!(content.next_hole(0), 0);
        assert_eq!(content.next_hole(2 * PAGE_BYTES), 3 * PAGE_BYTES);
        content.truncate(2 * PAGE_BYTES + 1);
        assert_eq!(content.next_hole(2 * PAGE_BYTES), 2 * PAGE_BYTES + 1);
    }

    #[test]
    fn zeros_may_be_holes_or_data_and_all_else_is_data() {
        let mut content = Content::default();
        content.write(0, &[0; 10]);
        content.write(100, b"x");
        content.truncate(3 * PAGE_BYTES);
        let data = |at, told| content.may_tell(at, Whence::Data, told);
        assert!(data(0, Some(0)) && data(0, Some(100)) && !data(0, Some(101)) && !data(0, None));
        assert!(data(101, None) && data(101, Some(PAGE_BYTES)) && !data(101, Some(100)));
        let hole = |at, told| content.may_tell(at, Whence::Hole, told);
        assert!(hole(0, Some(0)) && hole(0, Some(3 * PAGE_BYTES)) && !hole(0, Some(100)) && !hole(0, None));
        assert!(!hole(3 * PAGE_BYTES, Some(3 * PAGE_BYTES)) && hole(3 * PAGE_BYTES, None));
    }

    #[test]
    fn a_hash_sees_neither_pieces_nor_holes_but_every_byte() {
        let hash = |pieces: &[(u64, &[u8])]| {
            let mut hash = ContentHash::default();
            pieces.iter().for_each(|(at, bytes)| hash.add(*at, bytes));
            hash
        };
        assert_eq!(hash(&[(0, b"ab\0\0c")]), hash(&[(4, b"c"), (0, b"a"), (1, b"b")]));
        assert_ne!(hash(&[(0, b"ab")]), hash(&[(0, b"ba")]));
        assert_ne!(hash(&[(0, b"ab")]), hash(&[(1, b"ab")]));
    }
}
