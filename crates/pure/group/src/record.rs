//! The group's record as a copy knows it: takes what was read or swapped, and does what follows from it.
//!
//! Invariant: a copy leads only by the claim that it is making. A record that names it otherwise is that of a dead epoch.

use atoll_core::planted::{Bug, planted};
use atoll_proto::{GroupRecord, Primary};

use crate::event::{GroupEffect, LeadBy};
use crate::lease::Promise;
use crate::machine::{Doing, Group, KnownRecord};
use crate::store::SwapEnd;

impl Group {
    pub(crate) fn on_read(
        &mut self,
        promise: &mut Promise,
        number: u64,
        found: Option<(u64, Option<GroupRecord>)>,
        out: &mut Vec<GroupEffect>,
    ) {
        if !self.store.read_done(number) {
            return;
        }
        if let Some((0, None)) = found {
            self.claim_first(promise, out);
        } else if let Some((revision, Some(record))) = found {
            if self.store.is_older(revision, record.epoch) {
                out.push(GroupEffect::StoreWentBack { has: record.epoch, seen: promise.seen });
            } else {
                match self.store.found(revision, &record) {
                    None => self.adopt(promise, revision, record, out),
                    end => self.swap_ended(promise, end, out),
                }
                self.consider(promise, number, out);
            }
        }
        self.store.read_soon(self.now, out);
    }

    pub(crate) fn swap_ended(
        &mut self,
        promise: &mut Promise,
        end: Option<SwapEnd>,
        out: &mut Vec<GroupEffect>,
    ) {
        match end {
            None => {}
            Some(SwapEnd::Lost(revision, record)) => self.adopt(promise, revision, record, out),
            Some(SwapEnd::Won(revision, record)) => {
                let claim = match &self.state {
                    Doing::Claiming { attempt, by, .. } => Some((*attempt, *by)),
                    _ => None,
                };
                let is_own = |attempt: u32| {
                    record
                        .primary
                        .is_some_and(|leader| leader.process() == self.me && leader.attempt == attempt)
                };
                match claim {
                    Some((attempt, by)) if is_own(attempt) => {
                        let epoch = record.epoch;
                        self.know(promise, revision, record, out);
                        self.lead(promise, epoch, by, out);
                    }
                    _ => self.adopt(promise, revision, record, out),
                }
            }
        }
    }

    /// Takes a record for the group's.
    fn know(
        &mut self,
        promise: &mut Promise,
        revision: u64,
        record: GroupRecord,
        out: &mut Vec<GroupEffect>,
    ) {
        let before = self.known.as_ref();
        if before.is_some_and(|known| known.revision == revision) {
            return;
        }
        let since_ms = match before {
            Some(known) if known.record.epoch == record.epoch => known.since_ms,
            Some(_) => self.now,
            None => 0,
        };
        promise.seen = promise.seen.max(record.epoch);
        promise.recorded = promise.recorded.max(record.epoch);
        // What only messages have named is forgotten with the process: the log and the record say what must outlive it.
        self.seat.seen = self.seat.seen.max(record.epoch);
        if self.seat.is_nameless() {
            let before = record.seat_of(self.me.node).map_or(0, |seat| seat.tenure);
            if !planted(Bug::WipedKeepsSeat) {
                self.seat.tenure = self.seat.tenure.max(before + 1).max(self.tenure_min);
            }
        }
        self.seat.record = Some((revision, record.clone()));
        promise.is_blind = false;
        self.seat.makes_first = false;
        self.seat.cut &= !record.in_sync.contains(&self.own_seat());
        self.seat.lacks &= !record.in_sync.contains(&self.own_seat());
        // If it is this copy's own claim, this comes before its first record: a later life must promise nothing to an earlier
        // primary, also if a power cut takes that record.
        if !planted(Bug::LedEpochForgotten) {
            out.push(GroupEffect::SaveSeat(self.seat.clone()));
        }
        self.known = Some(KnownRecord { revision, record, since_ms });
        self.set_ring();
    }

    /// The record is this one, and no claim of this copy that is being made has made it so.
    fn adopt(
        &mut self,
        promise: &mut Promise,
        revision: u64,
        record: GroupRecord,
        out: &mut Vec<GroupEffect>,
    ) {
        let is_new = self.known.as_ref().is_none_or(|known| known.revision < revision);
        if !is_new {
            return;
        }
        let leader = record.primary;
        self.know(promise, revision, record.clone(), out);
        match &self.state {
            Doing::Leading(leading)
                if record.epoch == leading.epoch && leader.is_some_and(|l| l.process() == self.me) =>
            {
                self.set_changed(out);
            }
            Doing::Leading(leading) if record.epoch >= leading.epoch => self.step_down(promise, out),
            Doing::Claiming { .. } => self.follow(promise),
            Doing::Following(_)
                if planted(Bug::RecordNamesMe) && self.is_named_without_having_led(&record) =>
            {
                self.lead(promise, record.epoch, LeadBy::Promotion, out);
            }
            _ => {}
        }
    }

    /// Whether an earlier life of this copy has made the record, and did not hear of it.
    fn is_named_without_having_led(&self, record: &GroupRecord) -> bool {
        let is_own = |leader: Primary| leader.node == self.me.node && leader.life < self.me.life;
        record.primary.is_some_and(is_own) && !self.log.epochs.knows(record.epoch)
    }
}
