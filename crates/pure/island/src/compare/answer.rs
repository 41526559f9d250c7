//! Answers to an island that compares: the facts that this island knows of a directory that it owns, or whose
//! parent it owns. Leaves out changes that are about to be decided, and tells nothing that a power cut can
//! take.

use atoll_core::{Ino, IslandId, Name, TxnId, portions};
use atoll_proto::{
    Ancestor, DirAnswer, DirPlace, DirQuestion, DirReport, Entry, ParticipantWork, PeerOp, RenameSpec, Stub,
    TxnState, Xattrs,
};

use crate::ctx::Ctx;
use crate::ctx::request::Blocked;
use crate::locks::names::NameLocks;
use crate::recovery::Recovery;
use crate::recovery::promised::PendingMove;
use crate::rows::moves::arrived;

/// Bytes of answers in one message; one answer may have more ([`CHAIN_BYTES_MAX`](crate::rows::path::CHAIN_BYTES_MAX)).
const TOLD_BYTES: usize = 256 << 10;

/// The facts that this island knows of the places and attributes of directories.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knowledge<'a> {
    pub(super) ctx: &'a Ctx,
    pub(super) locks: &'a NameLocks,
    pub(super) recovery: &'a Recovery,
}

/// Another island compares, and asks.
pub(crate) fn on_compare(
    ctx: &mut Ctx,
    locks: &NameLocks,
    recovery: &Recovery,
    from: IslandId,
    round: u64,
    missed: &[IslandId],
    asks: &[DirQuestion],
) -> Result<(), Blocked> {
    if !missed.iter().all(|island| recovery.told_of_lost(*island)) || recovery.has_ready() {
        // Names that were lent are not what they were, or will be. It is asked again.
        return Ok(());
    }
    let mut told = Vec::new();
    for ask in asks {
        let known = match (Knowledge { ctx, locks, recovery }).known(ask, missed) {
            Ok(Some(known)) => known,
            Err(Blocked::Load(loads)) => return Err(Blocked::Load(loads)),
            // It is asked again.
            Ok(None) | Err(_) => continue,
        };
        told.push(DirAnswer { ino: ask.ino, parent: ask.parent, known });
    }
    for told in portions(&told, TOLD_BYTES) {
        ctx.send_synced(ctx.state.seq(), from, PeerOp::Compared { round, told: told.to_vec() });
    }
    Ok(())
}

impl Knowledge<'_> {
    /// The place of a directory after moves in which this island takes part.
    pub(super) fn promised(self, ino: Ino) -> Option<PendingMove> {
        self.recovery.promised(self.ctx, self.locks, ino)
    }

    /// The facts that this island knows of a directory; none while they are about to change.
    pub(crate) fn known(self, ask: &DirQuestion, missed: &[IslandId]) -> Result<Option<DirReport>, Blocked> {
        match ask.parent {
            Some(_) => self.known_as_parent(ask, missed),
            None => self.known_as_owner(ask, missed),
        }
    }

    fn known_as_parent(self, ask: &DirQuestion, missed: &[IslandId]) -> Result<Option<DirReport>, Blocked> {
        let parent = ask.parent.expect("asked as the parent's owner");
        if self.ctx.state.dir(parent)?.is_none_or(|dir| dir.owned.is_none()) {
            return Ok(Some(DirReport::Gone));
        }
        if let Some(renaming) = self.recovery.lost_lend(parent, ask.ino) {
            // It is not done again yet: what it says is so, or will be.
            let comes = renaming.file.ino == ask.ino;
            let known = if comes { self.ctx.known_as_arrived(ask, renaming)? } else { None };
            return Ok(Some(known.unwrap_or(DirReport::Gone)));
        }
        if let Some(name) = &ask.name
            && let Some(entry) = self.ctx.state.entry(parent, name)?.filter(|entry| entry.ino == ask.ino)
        {
            return self.known_by_name(ask, name, entry, missed);
        }
        // It may be on its way here.
        for txn in self.ctx.lent_txns() {
            let Some(row) = self.ctx.state.txn(txn).filter(|row| row.state == TxnState::Prepared) else {
                continue;
            };
            if let ParticipantWork::BorrowName { renaming, .. } = &row.part.work
                && renaming.file.ino == ask.ino
                && renaming.to.dir == parent
            {
                if self.locks.is_decided_early(txn)
                    && let Some(known) = self.ctx.known_as_arrived(ask, renaming)?
                {
                    return Ok(Some(known));
                }
                if self.ctx.is_open(Some(txn), missed) {
                    return Ok(None);
                }
            }
        }
        if let Some(DirPlace { parent: at, name: Some(name), .. }) =
            self.ctx.state.dir(ask.ino)?.map(|dir| dir.place.clone())
            && at == parent
            && let Some(entry) = self.ctx.state.entry(parent, &name)?.filter(|entry| entry.ino == ask.ino)
        {
            return self.known_by_name(ask, &name, entry, missed);
        }
        let (mut rows, whole) = self.ctx.state.entries_after(parent, ask.after)?;
        if let Some((_, name, entry)) = rows.find(|(_, _, entry)| entry.ino == ask.ino) {
            return self.known_by_name(ask, name, entry, missed);
        }
        let after = self.ctx.state.known_to(parent).saturating_sub(1);
        Ok(Some(if whole { DirReport::Gone } else { DirReport::NotUpTo { after } }))
    }

    fn known_by_name(
        &self,
        ask: &DirQuestion,
        name: &Name,
        entry: &Entry,
        missed: &[IslandId],
    ) -> Result<Option<DirReport>, Blocked> {
        let parent = ask.parent.expect("asked as the parent's owner");
        let Some(stub) = &entry.stub else { return Ok(Some(DirReport::Gone)) };
        let holder = self.locks.holder(parent, name);
        if holder.is_some_and(|txn| self.locks.is_decided_early(txn)) {
            // What takes its place, or its name, has happened.
            return Ok(Some(DirReport::Gone));
        }
        if self.ctx.is_open(holder, missed) {
            return Ok(None);
        }
        if stub.place == ask.place && ask.name.as_ref() == Some(name) && !ask.wants_chain {
            return Ok(Some(DirReport::Same));
        }
        let place = DirPlace { version: stub.place, parent, name: Some(name.clone()) };
        Ok(Some(DirReport::Differs { dir: as_parent(ask.ino, stub, place), chain: self.ctx.above(ask)? }))
    }

    fn known_as_owner(self, ask: &DirQuestion, missed: &[IslandId]) -> Result<Option<DirReport>, Blocked> {
        let Some(row) = self.ctx.state.dir(ask.ino)?.filter(|row| row.owned.is_some()) else {
            return Ok(Some(DirReport::Gone));
        };
        let promised = self.promised(ask.ino).filter(|_| ask.wants_chain);
        if let Some(promised) = promised.filter(|promised| promised.place.version > row.place.version) {
            // Two islands that compare for the same journal, which this waits for, must not wait for each other.
            return Ok(Some(DirReport::Moves { place: promised.place, owner: promised.owner }));
        }
        let holder = self.locks.holds_dir(ask.ino).filter(|_| ask.wants_chain);
        if self.ctx.is_open(holder, missed) {
            return Ok(None);
        }
        if row.fixed.version == ask.fixed && row.place.version == ask.place && !ask.wants_chain {
            return Ok(Some(DirReport::Same));
        }
        let mut chain = if ask.wants_chain { self.ctx.end_of_chain(ask.ino)? } else { Vec::new() };
        chain.pop();
        Ok(Some(DirReport::Differs { dir: self.ctx.ancestor(ask.ino, row)?, chain }))
    }
}

impl Ctx {
    /// Whether a participant waits for the outcome with an island that can tell it, or whose journal has it.
    fn is_open(&self, txn: Option<TxnId>, missed: &[IslandId]) -> bool {
        txn.is_some_and(|txn| {
            let by = txn.coordinator;
            by != self.config.id && (missed.contains(&by) || self.peers.is_reachable(by))
        })
    }

    /// A directory whose new name here was lent, as it is there.
    fn known_as_arrived(
        &self,
        ask: &DirQuestion,
        renaming: &RenameSpec,
    ) -> Result<Option<DirReport>, Blocked> {
        let Some(stub) = arrived(&renaming.file, renaming).stub else { return Ok(None) };
        let to = &renaming.to;
        let place = DirPlace { version: stub.place, parent: to.dir, name: Some(to.name.clone()) };
        Ok(Some(DirReport::Differs { dir: as_parent(ask.ino, &stub, place), chain: self.above(ask)? }))
    }

    /// The directories above the place of the directory, if they are wanted.
    fn above(&self, ask: &DirQuestion) -> Result<Vec<Ancestor>, Blocked> {
        match ask.parent.filter(|_| ask.wants_chain) {
            Some(parent) => self.end_of_chain(parent),
            None => Ok(Vec::new()),
        }
    }
}

/// A child directory as its parent's owner knows it.
pub(crate) fn as_parent(ino: Ino, stub: &Stub, place: DirPlace) -> Ancestor {
    let (key, fixed, xattrs) = (stub.key, stub.fixed, Xattrs::default());
    // What its path was is not looked at in a stub.
    Ancestor { ino, key, birth_bytes: 0, place, fixed, xattrs, suspected: false }
}

#[cfg(test)]
mod tests {
    use atoll_core::{Key, SessionId, Stamp, Time};
    use atoll_posix::Caller;
    use atoll_proto::{OwnedDir, RequestId, Txn, TxnPart, TxnStamps};

    use super::*;
    use crate::ctx::decision::Decision;
    use crate::rows::heard_late::tests::{ONE, above, at, island};
    use crate::rows::skeleton::new_row;

    #[test]
    fn whoever_compares_is_told_where_a_directory_goes_that_is_held_for_a_move_which_has_happened() {
        let (mut island, other) = island();
        let (old, to) = (at(Ino::ROOT, "old", 1), at(Ino::ROOT, "new", 5));
        let mut decision = Decision::new();
        decision.dir(ONE, new_row(&above(ONE, old.clone(), false), Some(OwnedDir::empty(Time::default()))));
        // The hold was lost, and is done again. The journal that brings the place is not here yet.
        let work = ParticipantWork::FreezeDir { ino: ONE, caller: Caller::ROOT, to: to.clone(), key: Key(0) };
        let part = TxnPart { request: RequestId { session: SessionId(5), seq: 1 }, work };
        let stamps = TxnStamps { prepared: Stamp::new(1, 3), committed: Stamp::new(1, 5) };
        let txn = TxnId { coordinator: other, stamp: Stamp::new(1, 2) };
        decision.txn(txn, Some(Txn { state: TxnState::Committed, partner: other, stamps, part }));
        island.ctx.decide(decision);
        let fixed = Stamp(0);
        let ask = DirQuestion {
            ino: ONE,
            parent: None,
            name: None,
            after: 0,
            place: old.version,
            fixed,
            wants_chain: true,
        };
        let knows = Knowledge { ctx: &island.ctx, locks: island.txns.locks(), recovery: &island.recovery };
        let known = knows.known(&ask, &[other]).expect("in memory");
        let owner = island.ctx.config.owner(Key(0));
        assert_eq!(known, Some(DirReport::Moves { place: to, owner }));
    }
}
