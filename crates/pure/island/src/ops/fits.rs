//! Whether an honest island could send a message. One that it could not send is refused before any part of it is carried
//! out. Claims about rows of this island are compared with these when the message is carried out ([`Decision::misfit`]).
//!
//! [`Decision::misfit`]: crate::ctx::decision::Decision::misfit

use atoll_core::{Ino, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Ancestor, Chain, Entry, JournalEntry, Known, Peer, Place, Renaming, Seen, Vote, Work};

/// Why a message cannot be.
type Fits = Result<(), &'static str>;

/// `Err` says what is wrong with a message.
pub(super) fn fits(peer: &Peer) -> Fits {
    match peer {
        Peer::Prepare { work, .. } => fits_work(work),
        Peer::Voted { vote: Vote::Yes { seen, .. }, .. } => fits_seen(seen),
        Peer::Decided { part: Some(part), .. } => fits_work(&part.work),
        Peer::Carried { part, .. } => fits_work(&part.work),
        Peer::Journal { after, entries } => fits_entries(*after, entries),
        Peer::Returned { entries } => fits_entries(Stamp::default(), entries),
        Peer::Compared { told, .. } => told.iter().try_for_each(|told| fits_known(told.ino, &told.known)),
        Peer::ChainOf { chain: Some(chain), .. } => fits_chain(chain),
        _ => Ok(()),
    }
}

fn fits_work(work: &Work) -> Fits {
    match work {
        Work::Adopt { dir, chain, .. } => {
            if dir.ino == Ino::ROOT {
                return Err("the root is to be made");
            }
            chain.iter().chain([dir]).try_for_each(fits_ancestor)
        }
        Work::Lend { renaming, chain, .. } => {
            fits_renaming(renaming)?;
            chain.as_ref().map_or(Ok(()), fits_chain)
        }
        Work::Count { chain, .. } | Work::Renamed { chain, .. } => fits_chain(chain),
        Work::Ticket { seen, .. } => seen.iter().try_for_each(fits_chain),
        Work::Hold { ino, to, .. } => fits_place(*ino, to),
        Work::Arrive { file, .. } if file.attr.kind == Kind::Directory => {
            Err("a directory arrives as a file")
        }
        Work::Arrive { .. } | Work::Seal { .. } | Work::Drop { .. } => Ok(()),
    }
}

fn fits_seen(seen: &Seen) -> Fits {
    match seen {
        Seen::Name { there, chain, .. } => {
            there.as_ref().map_or(Ok(()), fits_entry)?;
            chain.as_ref().map_or(Ok(()), fits_chain)
        }
        Seen::Nothing | Seen::File { .. } | Seen::Dir { .. } => Ok(()),
    }
}

fn fits_renaming(renaming: &Renaming) -> Fits {
    [Some(&renaming.file), renaming.there.as_ref()].into_iter().flatten().try_for_each(fits_entry)
}

fn fits_entry(entry: &Entry) -> Fits {
    let is_dir = entry.kind == Kind::Directory;
    if is_dir == entry.stub.is_some() {
        Ok(())
    } else {
        Err("a name has a stub, and is no directory's, or has none")
    }
}

fn fits_entries(after: Stamp, entries: &[(Stamp, JournalEntry)]) -> Fits {
    let mut last = after;
    for (stamp, entry) in entries {
        if *stamp <= last {
            return Err("entries of a journal are out of order");
        }
        last = *stamp;
        match entry {
            JournalEntry::Place { ino: Ino::ROOT, .. } => return Err("the root has moved"),
            JournalEntry::Place { ino, place, chain, .. } => {
                fits_place(*ino, place)?;
                fits_chain(chain)?;
            }
            JournalEntry::Fixed { ino, place, .. } => fits_place(*ino, place)?,
            JournalEntry::Onward => {}
        }
    }
    Ok(())
}

fn fits_known(ino: Ino, known: &Known) -> Fits {
    match known {
        Known::Is { dir, chain } => {
            if dir.ino != ino {
                return Err("another directory is told of than was asked for");
            }
            chain.iter().chain([dir]).try_for_each(fits_ancestor)
        }
        Known::Goes { place, .. } => fits_place(ino, place),
        _ => Ok(()),
    }
}

fn fits_chain(chain: &Chain) -> Fits {
    chain.dirs.iter().try_for_each(fits_ancestor)
}

fn fits_ancestor(dir: &Ancestor) -> Fits {
    fits_place(dir.ino, &dir.place)
}

fn fits_place(ino: Ino, place: &Place) -> Fits {
    match (ino == Ino::ROOT, place.name.is_some()) {
        (true, true) => Err("the root has a name"),
        (false, false) => Err("a directory has no name"),
        _ => Ok(()),
    }
}
