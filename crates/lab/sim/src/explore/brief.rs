//! Messages in few words, for sequences that are told.

use super::*;

/// A message, as somebody needs it who follows a sequence.
pub(super) fn brief(peer: &PeerOp) -> String {
    let of = |txn: &TxnId| format!("txn {}.{}", txn.coordinator, txn.stamp.n());
    let seen = |chain: &Chain| {
        let dirs: Vec<String> = chain.dirs.iter().map(|dir| dir.ino.to_string()).collect();
        let clocks: Vec<String> = chain.vector.iter().map(|(i, s)| format!("{i}:{}", s.n())).collect();
        format!("[{}] seen {}", dirs.join(" "), clocks.join(" "))
    };
    match peer {
        PeerOp::Prepare { txn, work, .. } => {
            let work = match work {
                ParticipantWork::BorrowName { renaming, .. } => {
                    let RenameSpec { from, to, file, mode, .. } = &**renaming;
                    format!(
                        "Lend {} from {}/{} to {}/{} {mode:?}",
                        file.ino, from.dir, from.name, to.dir, to.name
                    )
                }
                ParticipantWork::PermitMove { moved, above, seen: chains, .. } => {
                    let chains: Vec<String> = chains.iter().map(seen).collect();
                    format!("Ticket moved {moved:?} above {above:?} {}", chains.join("; "))
                }
                ParticipantWork::FreezeDir { ino, .. } => format!("Hold {ino}"),
                ParticipantWork::Seal { ino, .. } => format!("Seal {ino}"),
                work => format!("{work:?}"),
            };
            format!("Prepare {}: {work}", of(txn))
        }
        PeerOp::Voted { txn, vote: Vote::Yes { seen: VoteInfo::Name { there, chain, .. }, .. } } => format!(
            "Voted {}: yes, there is {:?}, chain {}",
            of(txn),
            there.as_ref().map(|entry| entry.ino),
            chain.as_ref().map(seen).unwrap_or_default()
        ),
        PeerOp::Voted { txn, vote: Vote::Yes { .. } } => format!("Voted {}: yes", of(txn)),
        PeerOp::Voted { txn, vote } => format!("Voted {}: {vote:?}", of(txn)),
        PeerOp::Decided { txn, stamps: Some(at), .. } => {
            format!("Decided {}: commit at {}", of(txn), at.committed.n())
        }
        PeerOp::Decided { txn, stamps: None, .. } => format!("Decided {}: abort", of(txn)),
        PeerOp::ProvisionalCommit { txn } => format!("Happened {}", of(txn)),
        PeerOp::Journal { after, entries, .. } => {
            let entries = entries.iter().map(|(stamp, entry)| match entry {
                JournalEntry::Place { ino, place, chain, .. } => format!(
                    "{}: {ino} is in {} (moves {}), {}",
                    stamp.n(),
                    place.parent,
                    place.version.moves,
                    seen(chain)
                ),
                entry => format!("{}: {entry:?}", stamp.n()),
            });
            format!("Journal after {}: {}", after.n(), entries.collect::<Vec<_>>().join("; "))
        }
        PeerOp::Applied { upto, synced } => format!("Applied {} synced {synced}", upto.n()),
        PeerOp::Resend { after } => format!("Resend after {}", after.n()),
        PeerOp::ChainOf { dir, chain } => {
            format!("ChainOf {dir}: {}", chain.as_ref().map(seen).unwrap_or_default())
        }
        peer => format!("{peer:?}"),
    }
}
