//! Bytes that were written and not yet committed. They are kept, because a server that has lost them says so by
//! another verifier, and then they are written again. Asks nobody.

use std::collections::HashMap;

use atoll_core::Ino;
use bytes::Bytes;
use nfs3_types::nfs3::writeverf3;

/// Most bytes that are kept of all files. Whoever brings more must commit first.
pub(crate) const UNSTABLE_BYTES_MAX: usize = 64 << 20;

/// One write, as it was answered.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    pub(crate) verifier: writeverf3,
}

/// The writes of all files, in their order.
#[derive(Debug, Default)]
pub(crate) struct Unstable {
    files: HashMap<Ino, Vec<Written>>,
    bytes: usize,
}

impl Unstable {
    pub(crate) fn add(&mut self, ino: Ino, written: Written) {
        self.bytes += written.data.len();
        self.files.entry(ino).or_default().push(written);
    }

    /// Whether so much is kept that something must be committed.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes > UNSTABLE_BYTES_MAX
    }

    /// The files of which something is kept.
    pub(crate) fn files(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }

    /// Takes what is kept of a file.
    pub(crate) fn take(&mut self, ino: Ino) -> Vec<Written> {
        let taken = self.files.remove(&ino).unwrap_or_default();
        self.bytes -= taken.iter().map(|written| written.data.len()).sum::<usize>();
        taken
    }

    /// Gives back what was taken, in front of what has come since.
    pub(crate) fn put_back(&mut self, ino: Ino, mut taken: Vec<Written>) {
        if !taken.is_empty() {
            self.bytes += taken.iter().map(|written| written.data.len()).sum::<usize>();
            let since = self.files.entry(ino).or_default();
            taken.append(since);
            *since = taken;
        }
    }
}

/// The writes that a commit with this verifier does not cover.
pub(crate) fn lost(taken: &[Written], verifier: writeverf3) -> Vec<Written> {
    // From the first one on: a later write of the same bytes must come after it again.
    let first = taken.iter().position(|written| written.verifier != verifier);
    first.map_or_else(Vec::new, |first| taken[first..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(offset: u64, verifier: u8) -> Written {
        Written { offset, data: Bytes::from_static(&[1; 10]), verifier: writeverf3([verifier; 8]) }
    }

    #[test]
    fn what_is_given_back_comes_before_what_has_come_since() {
        let mut unstable = Unstable::default();
        unstable.add(Ino(9), written(0, 1));
        let taken = unstable.take(Ino(9));
        assert!(!unstable.has(Ino(9)));
        unstable.add(Ino(9), written(10, 1));
        unstable.put_back(Ino(9), taken);
        assert_eq!(unstable.take(Ino(9)).iter().map(|w| w.offset).collect::<Vec<_>>(), [0, 10]);
        assert_eq!(unstable.bytes, 0);
    }

    #[test]
    fn everything_from_the_first_lost_write_on_is_written_again() {
        let taken = [written(0, 2), written(10, 1), written(20, 2)];
        let again = lost(&taken, writeverf3([2; 8]));
        assert_eq!(again.iter().map(|w| w.offset).collect::<Vec<_>>(), [10, 20]);
        assert!(lost(&taken[..1], writeverf3([2; 8])).is_empty());
    }

    #[test]
    fn more_than_the_bound_must_be_committed() {
        let mut unstable = Unstable::default();
        let mib = Written { data: vec![0; 1 << 20].into(), ..written(0, 1) };
        (0..64).for_each(|at| unstable.add(Ino(at), mib.clone()));
        assert!(!unstable.is_full());
        unstable.add(Ino(100), mib);
        assert!(unstable.is_full());
    }
}
