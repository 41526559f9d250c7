//! All of an island's state, row by row from its snapshot: for checks, and for a view that must be laid
//! again. For checks the island must be at rest, with everything in the snapshot. A copy goes on while its view is laid: what
//! changes meanwhile is listed for the view, and laid after that.

use std::io;

use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_proto::{Dir, Entry, Inode, Xattrs};
use atoll_state::{LoadedRows, RowKey, RowLoad};
use atoll_view::{Source, Whole};

use crate::engine::Engine;
use crate::lay::CommittedState;
use crate::perform::load_from;

const PAGE: usize = 4096;

/// The state of an engine, whole.
pub struct WholeState<'a, D: Disk>(pub &'a Engine<D>);

impl<D: Disk> WholeState<'_, D> {
    /// Ids of all rows with this tag, in order.
    fn ids(&self, tag: u8) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        let mut from = Some(vec![tag]);
        let pages = std::iter::from_fn(move || {
            let start = from.take()?;
            match self.0.snapshot().range(&start, &[tag + 1], PAGE) {
                Ok(rows) => {
                    if rows.len() == PAGE {
                        let mut next = rows[PAGE - 1].0.clone();
                        next.push(0);
                        from = Some(next);
                    }
                    Some(Ok(rows))
                }
                Err(error) => Some(Err(io::Error::other(error))),
            }
        });
        Box::new(pages.flat_map(|page| -> Box<dyn Iterator<Item = io::Result<Ino>>> {
            match page {
                Err(error) => Box::new(std::iter::once(Err(error))),
                Ok(rows) => Box::new(rows.into_iter().map(|(key, _)| match RowKey::from_bytes(&key) {
                    Some(RowKey::Inode(ino) | RowKey::Dir(ino)) => Ok(ino),
                    _ => Err(io::Error::other(format!("row {} is none", key.escape_ascii()))),
                })),
            }
        }))
    }
}

/// An island was closed while all of it was laid.
pub(crate) fn closed() -> io::Error {
    io::Error::other("the island was closed")
}

impl<'a, D: Disk> WholeState<'a, D> {
    /// An error if the engine is to be closed: that waits for whoever lays all of it.
    fn rows(&self) -> io::Result<CommittedState<'a, D>> {
        if self.0.is_closed() { Err(closed()) } else { Ok(CommittedState::new(self.0)) }
    }
}

impl<D: Disk> Source for WholeState<'_, D> {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        self.rows()?.inode(ino)
    }

    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        self.rows()?.dir(ino)
    }

    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        self.rows()?.entry(dir, name)
    }

    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        self.rows()?.xattrs(ino)
    }

    fn waits(&self, ino: Ino) -> bool {
        CommittedState::new(self.0).waits(ino)
    }

    fn keeps(&self, ino: Ino) -> bool {
        CommittedState::new(self.0).keeps(ino)
    }

    fn in_flux(&self, ino: Ino) -> bool {
        let rows = CommittedState::new(self.0);
        let is_in_flux = rows.in_flux(ino);
        self.0.with_state(|state| state.view_again(&rows.take_put_off(), &[]));
        is_in_flux
    }

    fn looks_at(&self, ino: Ino) {
        CommittedState::new(self.0).looks_at(ino);
    }
}

impl<D: Disk> Whole for WholeState<'_, D> {
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        self.ids(b'i')
    }

    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        // Those that records have made since the snapshot have no row there.
        let new: Vec<Ino> = self.0.with_state(|state| state.dirs_in_memory().map(|(ino, _)| ino).collect());
        let mut new: Vec<Ino> = new
            .into_iter()
            .filter(|ino| !matches!(self.0.snapshot().get(&RowKey::Dir(*ino).to_bytes()), Ok(Some(_))))
            .collect();
        new.sort_unstable();
        Box::new(self.ids(b'd').chain(new.into_iter().map(Ok)))
    }

    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_> {
        let mut from = Some(0);
        let pages = std::iter::from_fn(move || {
            let at = from.take()?;
            match load_from(self.0.snapshot(), &RowLoad::Names { dir, from: at }) {
                Ok(LoadedRows::Names { names, to }) => {
                    from = (to != u64::MAX).then_some(to);
                    Some(Ok(names))
                }
                Ok(_) => unreachable!("names were asked for"),
                Err(why) => Some(Err(io::Error::other(why))),
            }
        });
        Box::new(pages.flat_map(|page| -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>>> {
            match page {
                Err(error) => Box::new(std::iter::once(Err(error))),
                Ok(names) => Box::new(names.into_iter().map(|(_, name, row)| {
                    let entry = atoll_core::Decode::from_slice(&row).map_err(io::Error::other)?;
                    Ok((name, entry))
                })),
            }
        }))
    }
}
