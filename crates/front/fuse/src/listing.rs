//! Packs names into the space that the kernel gives for a listing. Adds "." and "..", which no volume stores.

use crate::abi::{DIRENT, ENTRY_OUT, Out, UNKNOWN_INO, padded};
use crate::nodes::Nodes;
use crate::places::{Place, Places};
use atoll_core::Ino;
use atoll_posix::{DirEntry, Errno, Kind};
use std::time::Duration;

/// Cookie of ".".
const DOT: u64 = 1;
/// Cookie of "..".
const DOT_DOT: u64 = 2;

/// One request for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) dir: Ino,
    /// The open directory.
    pub(crate) handle: u64,
    /// 0, or the cookie of the last name that the caller has seen.
    pub(crate) offset: u64,
    /// Room for the answer, in bytes.
    pub(crate) size: usize,
    /// With attributes, which makes each entry a lookup.
    pub(crate) plus: bool,
}

/// An answer to a listing.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) out: Out,
    /// The ids that the kernel learns from it, already counted in `nodes`.
    pub(crate) learned: Vec<Ino>,
    /// The cookie of the last name of all, if that is in it.
    pub(crate) end: Option<u64>,
}

impl Listing {
    /// The position at which the volume goes on.
    pub(crate) const fn after(&self) -> u64 {
        if self.offset <= DOT_DOT { 0 } else { self.offset }
    }

    /// The answer. Names that do not fit are asked for again, and are not counted.
    pub(crate) fn pack(
        &self,
        entries: &[DirEntry],
        eof: bool,
        kept: Duration,
        (nodes, places): (&Nodes, &Places),
    ) -> Result<Packed, Errno> {
        // To the kernel no bytes are the end of the directory. Less than all must not look so.
        if entries.is_empty() && !eof {
            return Err(Errno::EIO);
        }
        // Such cookies belong to "." and "..": the caller would never come past this name.
        if entries.iter().any(|entry| entry.cookie <= DOT_DOT) {
            return Err(Errno::EIO);
        }
        let mut out = Out::with_capacity(self.size.min(128 * (entries.len() + 2)));
        let mut learned = Vec::new();
        let last = entries.last().map_or(DOT_DOT, |last| last.cookie);
        let mut end = (eof && self.offset < last).then_some(last);
        let parent = if self.dir == Ino::ROOT { Ino::ROOT.0 } else { UNKNOWN_INO };
        for (cookie, ino, name) in [(DOT, self.dir.0, &b"."[..]), (DOT_DOT, parent, b"..")] {
            if self.offset < cookie {
                self.room(&out, name)?;
                if self.plus {
                    out.absent(Duration::ZERO);
                }
                out.dirent(ino, cookie, Kind::Directory.format_bits(), name);
            }
        }
        for entry in entries {
            let name = entry.name.as_bytes();
            if let Err(too_small) = self.room(&out, name) {
                if out.0.is_empty() {
                    return Err(too_small);
                }
                end = None;
                break;
            }
            match &entry.found {
                Some(found) if self.plus => {
                    nodes.raise(found.attr.ino);
                    if found.attr.kind == Kind::Directory {
                        // One that is elsewhere the kernel moves, or leaves there and says nothing.
                        let place = Place { dir: self.dir, name: entry.name.clone() };
                        let _ = places.learn(found, &place);
                    }
                    learned.push(found.attr.ino);
                    out.entry(
                        &found.attr,
                        nodes.generation(found.attr.ino),
                        kept,
                        if found.attr_current { kept } else { Duration::ZERO },
                    );
                }
                // Without attributes the kernel looks the name up when it needs it.
                None if self.plus => _ = out.absent(Duration::ZERO),
                _ => {}
            }
            out.dirent(entry.ino.0, entry.cookie, entry.kind.format_bits(), name);
        }
        Ok(Packed { out, learned, end })
    }

    fn room(&self, out: &Out, name: &[u8]) -> Result<(), Errno> {
        let entry = if self.plus { ENTRY_OUT } else { 0 } + padded(DIRENT + name.len());
        if out.0.len() + entry <= self.size { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::{Name, Time};
    use atoll_posix::{Attr, NamedObject};

    fn entry(id: u64) -> DirEntry {
        let time = Time::default();
        let attr = Attr {
            ino: Ino(id),
            kind: Kind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        DirEntry {
            name: Name::new(format!("file{id}").as_bytes()).unwrap(),
            ino: Ino(id),
            kind: Kind::Regular,
            cookie: id,
            found: Some(NamedObject { attr, attr_current: true }),
        }
    }

    #[test]
    fn an_entry_that_does_not_fit_is_no_lookup() {
        let nodes = Nodes::default();
        let entries = [entry(20), entry(21), entry(22)];
        let one = ENTRY_OUT + padded(DIRENT + 6);
        let listing = Listing { dir: Ino(9), handle: 0, offset: 2, size: 2 * one + 10, plus: true };
        let Packed { out, learned, end } =
            listing.pack(&entries, true, Duration::ZERO, (&nodes, &Places::default())).unwrap();
        assert_eq!((out.0.len(), learned, end), (2 * one, vec![Ino(20), Ino(21)], None));
        assert!(nodes.knows(Ino(21)) && !nodes.knows(Ino(22)));
    }

    #[test]
    fn dot_and_dot_dot_come_first_and_each_can_be_gone_on_from() {
        let nodes = Nodes::default();
        let len = |offset| {
            let listing = Listing { dir: Ino(9), handle: 0, offset, size: 4096, plus: false };
            listing
                .pack(&[entry(20)], true, Duration::ZERO, (&nodes, &Places::default()))
                .unwrap()
                .out
                .0
                .len()
        };
        assert_eq!([len(0), len(1), len(2)], [32 * 3, 32 * 2, 32]);
        assert_eq!(nodes.count(), 0, "a listing without attributes tells no ids");
        let at = |offset| Listing { dir: Ino(9), handle: 0, offset, size: 4096, plus: false }.after();
        assert_eq!([at(0), at(1), at(2), at(3)], [0, 0, 0, 3]);
    }

    #[test]
    fn incomplete_never_looks_like_the_end() {
        let nodes = Nodes::default();
        let listing = Listing { dir: Ino(9), handle: 0, offset: 5, size: 4096, plus: false };
        assert_eq!(
            listing.pack(&[], false, Duration::ZERO, (&nodes, &Places::default())).err(),
            Some(Errno::EIO)
        );
        let last = listing.pack(&[], true, Duration::ZERO, (&nodes, &Places::default())).unwrap();
        assert!(last.out.0.is_empty() && last.end.is_none());
        let empty = Listing { offset: 0, ..listing };
        assert_eq!(
            empty.pack(&[], true, Duration::ZERO, (&nodes, &Places::default())).unwrap().end,
            Some(DOT_DOT)
        );
        let small = Listing { size: 24, ..listing };
        assert_eq!(
            small.pack(&[entry(20)], true, Duration::ZERO, (&nodes, &Places::default())).err(),
            Some(Errno::EINVAL)
        );
    }
}
