//! Whether an honest island could send a message. One that it could not send is refused before any part of it is carried
//! out. Claims about rows of this island are compared with these when the message is carried out ([`Decision::misfit`]).
//!
//! [`Decision::misfit`]: crate::ctx::decision::Decision::misfit

use atoll_core::{Ino, Stamp};
use atoll_posix::Kind;
use atoll_proto::{
    Ancestor, Chain, DirPlace, DirReport, Entry, JournalEntry, ParticipantWork, PeerOp, RenameSpec, Vote,
    VoteInfo,
};

/// Why a message cannot be.
type Fits = Result<(), &'static str>;

/// `Err` says what is wrong with a message.
pub(super) fn fits(peer: &PeerOp) -> Fits {
    match peer {
        PeerOp::Prepare { work, .. } => fits_work(work),
        PeerOp::Voted { vote: Vote::Yes { seen, .. }, .. } => fits_seen(seen),
        PeerOp::Decided { part: Some(part), .. } => fits_work(&part.work),
        PeerOp::CarriedOut { part, .. } => fits_work(&part.work),
        PeerOp::Journal { after, entries, .. } => fits_entries(*after, entries),
        PeerOp::ReturnedJournal { entries } => fits_entries(Stamp::default(), entries),
        PeerOp::Compared { told, .. } => told.iter().try_for_each(|told| fits_known(told.ino, &told.known)),
        PeerOp::ChainOf { chain: Some(chain), .. } => fits_chain(chain),
        _ => Ok(()),
    }
}

fn fits_work(work: &ParticipantWork) -> Fits {
    match work {
        ParticipantWork::Adopt { dir, chain, .. } => {
            if dir.ino == Ino::ROOT {
                return Err("the root is to be made");
            }
            chain.iter().chain([dir]).try_for_each(fits_ancestor)
        }
        ParticipantWork::BorrowName { renaming, chain, .. } => {
            fits_renaming(renaming)?;
            chain.as_ref().map_or(Ok(()), fits_chain)
        }
        ParticipantWork::AddName { chain, .. } | ParticipantWork::MoveName { chain, .. } => fits_chain(chain),
        ParticipantWork::PermitMove { seen, .. } => seen.iter().try_for_each(fits_chain),
        ParticipantWork::FreezeDir { ino, to, .. } => fits_place(*ino, to),
        ParticipantWork::ReceiveFile { file, .. } if file.attr.kind == Kind::Directory => {
            Err("a directory arrives as a file")
        }
        ParticipantWork::ReceiveFile { .. }
        | ParticipantWork::Seal { .. }
        | ParticipantWork::RemoveName { .. } => Ok(()),
    }
}

fn fits_seen(seen: &VoteInfo) -> Fits {
    match seen {
        VoteInfo::Name { there, chain, .. } => {
            there.as_ref().map_or(Ok(()), fits_entry)?;
            chain.as_ref().map_or(Ok(()), fits_chain)
        }
        VoteInfo::Nothing | VoteInfo::File { .. } | VoteInfo::Dir { .. } => Ok(()),
    }
}

fn fits_renaming(renaming: &RenameSpec) -> Fits {
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
            JournalEntry::StaticAttrs { ino, place, .. } => fits_place(*ino, place)?,
            JournalEntry::ClockBump => {}
        }
    }
    Ok(())
}

fn fits_known(ino: Ino, known: &DirReport) -> Fits {
    match known {
        DirReport::Differs { dir, chain } => {
            if dir.ino != ino {
                return Err("another directory is told of than was asked for");
            }
            chain.iter().chain([dir]).try_for_each(fits_ancestor)
        }
        DirReport::Moves { place, .. } => fits_place(ino, place),
        _ => Ok(()),
    }
}

fn fits_chain(chain: &Chain) -> Fits {
    chain.dirs.iter().try_for_each(fits_ancestor)
}

fn fits_ancestor(dir: &Ancestor) -> Fits {
    fits_place(dir.ino, &dir.place)
}

fn fits_place(ino: Ino, place: &DirPlace) -> Fits {
    match (ino == Ino::ROOT, place.name.is_some()) {
        (true, true) => Err("the root has a name"),
        (false, false) => Err("a directory has no name"),
        _ => Ok(()),
    }
}
