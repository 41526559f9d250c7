//! Takes the results of a comparison, from the root down, when all of them are known.

use atoll_core::Ino;
use atoll_proto::{PeerOp, RowChange};

use super::round::{CHANGES_PER_RECORD, Difference, NameLeads, Round};
use crate::compare::AntiEntropy;
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next};
use crate::rows::path::DEPTH_MAX;

impl AntiEntropy {
    /// All is as it was when the coordinators told: their journals go on from there.
    pub(super) fn compared(&mut self, ctx: &mut Ctx) {
        let Some(comparing) = self.round.take() else { return };
        let (me, mut decision) = (ctx.config.id, Decision::new());
        for (island, stamp) in &comparing.upto {
            decision.push(if *island == me {
                RowChange::Delivered { island: me, upto: *stamp }
            } else {
                RowChange::Clock { island: *island, stamp: *stamp }
            });
        }
        if comparing.has_found {
            ctx.suspect_stale(&mut decision);
        }
        let seq = ctx.decide(decision);
        for (island, stamp) in comparing.upto.into_iter().filter(|(island, _)| *island != me) {
            ctx.next(Next::ConfirmLater(island, seq, stamp));
            ctx.send(0, island, PeerOp::Applied { upto: stamp, synced: false });
            ctx.send(0, island, PeerOp::Resend { after: stamp });
        }
        ctx.next(Next::CaughtUp);
        ctx.next(Next::Serve);
        ctx.next(Next::CompareDoubts);
    }
}

impl Ctx {
    /// Takes the results, from the root down; true when all are taken.
    pub(super) fn take_found(&mut self, comparing: &mut Round) -> Result<bool, Blocked> {
        let mut order = Vec::new();
        for (ino, found) in &comparing.found {
            let depth = if found.is_stub { None } else { self.depth(comparing, *ino)? };
            order.push((depth.unwrap_or(usize::MAX), *ino));
        }
        order.sort_unstable();
        for order in order.chunks(CHANGES_PER_RECORD) {
            for (_, ino) in order {
                self.differences_must_be_loaded(&comparing.found[ino])?;
            }
            let mut decision = Decision::new();
            // What is left by one may be what another goes to: nothing is pruned before all are there.
            decision.prunes_nothing = true;
            for (_, ino) in order {
                let found = comparing.found.remove(ino).expect("just listed");
                comparing.met.extend(self.in_memory(*ino).map(|dir| dir.place.parent));
                // What was known here, and is no more, was pruned meanwhile.
                if comparing.met.contains(ino) || found.is_stub || self.dir_now(&decision, *ino).is_some() {
                    self.take_one(&mut decision, &found);
                }
            }
            decision.prunes_nothing = false;
            comparing.has_found |= !decision.record.changes.is_empty();
            self.decide(decision);
        }
        // What was above others, and is above nothing here.
        let mut met: Vec<Ino> = comparing.met.iter().copied().collect();
        while let Some(ino) = met.pop() {
            if self.state.dir(ino)?.is_some() {
                self.skeleton_must_be_loaded(ino)?;
                let mut decision = Decision::new();
                self.prune(&mut decision, ino);
                self.decide(decision);
            }
            comparing.met.remove(&ino);
        }
        Ok(true)
    }

    pub(super) fn take_one(&mut self, decision: &mut Decision, Difference { dir, is_stub }: &Difference) {
        if *is_stub {
            return self.apply_to_stub(decision, dir.ino, &dir.place, &dir.fixed);
        }
        if dir.ino != Ino::ROOT && self.dir_now(decision, dir.place.parent).is_none() {
            // It was pruned meanwhile, with what was above it.
            return;
        }
        let old = self.dir_now(decision, dir.ino).map(|row| row.place);
        self.add_skeleton(decision, dir, None);
        if let Some(row) = self.dir_now(decision, dir.ino)
            && matches!(self.name_leads(dir.ino, &row), Ok(NameLeads::Nowhere))
            && old.as_ref() == Some(&row.place)
        {
            self.skeleton_name(decision, &row.place, dir.ino, true);
        }
        self.apply_to_stub(decision, dir.ino, &dir.place, &dir.fixed);
        self.apply_to_lent(decision, dir.ino, &dir.fixed);
        if let Some(old) = old.filter(|old| old.parent != dir.place.parent) {
            self.apply_to_stub(decision, dir.ino, &old, &dir.fixed);
        }
    }

    /// The directories above one, as they will be, and whether there is an end to them.
    pub(super) fn depth(&self, comparing: &Round, ino: Ino) -> Result<Option<usize>, Blocked> {
        let mut at = ino;
        for depth in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return Ok(Some(depth));
            }
            at = match comparing.found.get(&at).filter(|found| !found.is_stub) {
                Some(found) => found.dir.place.parent,
                None => match self.state.dir(at)? {
                    Some(dir) => dir.place.parent,
                    None => return Ok(None),
                },
            };
        }
        Ok(None)
    }

    pub(super) fn is_tree(&self, comparing: &Round) -> Result<bool, Blocked> {
        for (ino, found) in &comparing.found {
            if !found.is_stub && self.depth(comparing, *ino)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn differences_must_be_loaded(
        &self,
        Difference { dir, .. }: &Difference,
    ) -> Result<(), Blocked> {
        self.acls_must_be_loaded(dir.ino)?;
        self.state.dir(dir.place.parent)?;
        self.entry_must_be_loaded(&dir.place)?;
        if let Some(row) = self.state.dir(dir.ino)? {
            self.entry_must_be_loaded(&row.place)?;
            self.skeleton_must_be_loaded(dir.ino)?;
        }
        Ok(())
    }
}
