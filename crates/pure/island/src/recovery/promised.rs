//! Places that directories will have by moves in which this island takes part and whose journal entries it
//! has not got. Two islands that compare tell each other these places, so that they do not wait for each
//! other.

use atoll_core::{Ino, IslandId, Stamp};
use atoll_proto::{DirPlace, ParticipantWork, TxnState};

use crate::ctx::Ctx;
use crate::locks::names::NameLocks;
use crate::recovery::Recovery;
use crate::rows::moves::moving;

/// Where a directory has gone by a move that this island takes part in, which has happened, and whose place it
/// has not heard.
#[derive(Debug, Clone)]
pub(crate) struct PendingMove {
    prepared: Stamp,
    pub(crate) place: DirPlace,
    pub(crate) owner: IslandId,
}

impl Recovery {
    /// The place of a directory's stub, now or when everything that has been decided is done here too.
    pub(crate) fn place_to_be(&self, ctx: &Ctx, locks: &NameLocks, ino: Ino, place: &DirPlace) -> DirPlace {
        let promised = self.promised(ctx, locks, ino).map(|promised| promised.place);
        promised.filter(|promised| promised.version > place.version).unwrap_or_else(|| place.clone())
    }

    /// The place of a directory after moves in which this island takes part: those that it holds or lends
    /// for, and those that it has lost and not redone yet.
    pub(crate) fn promised(&self, ctx: &Ctx, locks: &NameLocks, ino: Ino) -> Option<PendingMove> {
        let me = ctx.config.id;
        let rows = ctx.state.txn_ids().filter_map(|txn| {
            let row = ctx.state.txn(txn)?;
            let is_news = match row.state {
                TxnState::Prepared => locks.is_decided_early(txn),
                TxnState::Committed => ctx.state.clocks().get(txn.coordinator) <= row.stamps.committed,
            };
            is_news.then_some((txn, row.stamps.prepared, &row.part.work))
        });
        let lost = self.redo.parts().map(|(stamp, lost)| (lost.txn, stamp, &lost.part.work));
        let mut best: Option<PendingMove> = None;
        for (txn, prepared, work) in rows.chain(lost).filter(|(txn, ..)| txn.coordinator != me) {
            let (place, owner) = match work {
                ParticipantWork::FreezeDir { ino: held, to, key, .. } if *held == ino => {
                    (to.clone(), ctx.config.owner(*key))
                }
                ParticipantWork::BorrowName { renaming, .. } => {
                    let moving = moving(renaming);
                    let Some(moving) = moving.iter().find(|moving| moving.entry.ino == ino) else { continue };
                    let owner = if moving.to == &renaming.to { me } else { txn.coordinator };
                    (moving.place(), owner)
                }
                _ => continue,
            };
            let rank = |p: &PendingMove| (p.place.version.moves, p.prepared);
            let this = PendingMove { prepared, place, owner };
            if best.as_ref().is_none_or(|best| rank(best) < rank(&this)) {
                best = Some(this);
            }
        }
        best
    }
}
