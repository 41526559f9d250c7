//! Messages in few words, for sequences that are told.

use super::*;

/// A message, as somebody needs it who follows a sequence.
pub(super) fn brief(peer: &Peer) -> String {
    let of = |txn: &TxnId| format!("txn {}.{}", txn.coordinator, txn.stamp.n());
    let seen = |chain: &Chain| {
        let dirs: Vec<String> = chain.dirs.iter().map(|dir| dir.ino.to_string()).collect();
        let clocks: Vec<String> = chain.vector.iter().map(|(i, s)| format!("{i}:{}", s.n())).collect();
        format!("[{}] seen {}", dirs.join(" "), clocks.join(" "))
    };
    match peer {
        Peer::Prepare { txn, work, .. } => {
            let work = match work {
                Work::Lend { renaming, .. } => {
                    let Renaming { from, to, file, mode, .. } = &**renaming;
                    format!(
                        "Lend {} from {}/{} to {}/{} {mode:?}",
                        file.ino, from.dir, from.name, to.dir, to.name
                    )
                }
                Work::Ticket { moved, above, seen: chains } => {
                    let chains: Vec<String> = chains.iter().map(seen).collect();
                    format!("Ticket moved {moved:?} above {above:?} {}", chains.join("; "))
                }
                Work::Hold { ino, .. } => format!("Hold {ino}"),
                Work::Seal { ino, .. } => format!("Seal {ino}"),
                work => format!("{work:?}"),
            };
            format!("Prepare {}: {work}", of(txn))
        }
        Peer::Voted { txn, vote: Vote::Yes { seen: Seen::Name { there, chain, .. }, .. } } => format!(
            "Voted {}: yes, there is {:?}, chain {}",
            of(txn),
            there.as_ref().map(|entry| entry.ino),
            chain.as_ref().map(seen).unwrap_or_default()
        ),
        Peer::Voted { txn, vote: Vote::Yes { .. } } => format!("Voted {}: yes", of(txn)),
        Peer::Voted { txn, vote } => format!("Voted {}: {vote:?}", of(txn)),
        Peer::Decided { txn, moments: Some(at), .. } => {
            format!("Decided {}: commit at {}", of(txn), at.committed.n())
        }
        Peer::Decided { txn, moments: None, .. } => format!("Decided {}: abort", of(txn)),
        Peer::Happened { txn } => format!("Happened {}", of(txn)),
        Peer::Journal { after, entries } => {
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
        Peer::Applied { upto, synced } => format!("Applied {} synced {synced}", upto.n()),
        Peer::Resend { after } => format!("Resend after {}", after.n()),
        Peer::ChainOf { dir, chain } => {
            format!("ChainOf {dir}: {}", chain.as_ref().map(seen).unwrap_or_default())
        }
        peer => format!("{peer:?}"),
    }
}
