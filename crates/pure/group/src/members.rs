//! The primary changes the record of its epoch: it drops members that fail, and admits copies that have come near.
//!
//! Invariant: a copy gets its seat only when it and all who stay have synced what there was when it was first counted, and
//! it its bodies too.

use atoll_core::NodeId;
use atoll_core::planted::{Bug, planted};
use atoll_proto::{GroupRecord, Seat};

use crate::event::GroupEffect;
use crate::join::NEAR;
use crate::leading::{OWN_ROUND, min_in_sync};
use crate::lease::{OWES_MS, SILENT_MS, SYNC_OWES_MS};
use crate::machine::Group;
use crate::progress::{Admission, GroupMember};

impl Group {
    /// The members are others: whoever has left is forgotten, and whoever has a seat joins no longer. A copy that is counted
    /// before it has a seat stays counted, whatever else was swapped.
    pub(crate) fn set_changed(&mut self, out: &mut Vec<GroupEffect>) {
        let now = self.now;
        let Some(record) = self.known.as_ref().map(|known| known.record.clone()) else { return };
        let Some(leading) = self.leading() else { return };
        let readmission = &mut leading.readmission;
        leading.progress.members.retain(|node, member| {
            let has_seat = record.seat_of(*node).is_some_and(|seat| seat.tenure == member.tenure);
            if has_seat {
                member.admission = Admission::Seated;
            } else if member.admission == Admission::Seated {
                readmission.dropped(now, *node);
                return false;
            }
            true
        });
        self.ship(out);
    }

    /// The own disk does not get on with what a member has long had.
    pub(crate) fn own_is_stuck(&self) -> bool {
        let Some(leading) = self.led() else { return false };
        let is_late = leading.own_owes.is_over(self.now, self.awake_ms, OWES_MS);
        let counted = self.counted();
        let mut others = leading.progress.members.iter().filter(|(node, member)| {
            counted.contains(&Seat { node: **node, tenure: member.tenure }) && !member.stuck
        });
        let owed = leading.own_owes.upto().unwrap_or(u64::MAX);
        others.any(|(_, member)| {
            (is_late && member.has >= owed) || (self.log.stuck && member.has >= self.log.last().seq)
        })
    }

    /// Whether a member cannot be waited for any longer.
    fn has_failed(&self, member: &GroupMember, others_get_on: bool) -> bool {
        let (now, awake) = (self.now, self.awake_ms);
        let owes =
            member.owes.is_over(now, awake, OWES_MS) || member.owes_sync.is_over(now, awake, SYNC_OWES_MS);
        let is_silent = now >= member.heard_ms(awake) + SILENT_MS;
        let owes = owes && !planted(Bug::OwesForEver);
        is_silent || member.halted || member.lost || (others_get_on && (owes || member.stuck))
    }

    pub(crate) fn drop_and_admit(&mut self, out: &mut Vec<GroupEffect>) {
        let Some(known) = self.known.as_ref() else { return };
        let (record, revision) = (known.record.clone(), known.revision);
        if !self.store.may_swap(revision) {
            return;
        }
        let leading = self.led().expect("it leads");
        // Not that all wait for the same.
        let own_gets_on = !leading.own_owes.is_over(self.now, self.awake_ms, OWES_MS) && !self.log.stuck;
        let get_on = |but: NodeId| {
            own_gets_on
                || leading.progress.members.iter().any(|(node, member)| {
                    *node != but
                        && record.seat_of(*node).is_some()
                        && !member.owes.is_over(self.now, self.awake_ms, OWES_MS)
                        && !member.stuck
                })
        };
        let failed: Vec<NodeId> = leading
            .progress
            .members
            .iter()
            .filter(|(node, member)| self.has_failed(member, get_on(**node)))
            .map(|(node, _)| *node)
            .collect();
        let mut next = record.clone();
        // A seat of which nothing is known here is one that was never told to this primary.
        for seat in &record.in_sync {
            if seat.node != self.me.node && failed.contains(&seat.node) {
                next = next.without(seat.node);
            }
        }
        let sent: Vec<GroupRecord> = self.store.swap.iter().flat_map(|swap| swap.tried.clone()).collect();
        let is_one_too_many =
            next.in_sync.len() > usize::from(record.wanted) || planted(Bug::DrainedGoesFirst);
        if is_one_too_many && let Some(node) = self.surplus(&next) {
            next = next.without(node);
        }
        self.forget_failed(&failed, &record, &sent);
        if let Some(joiner) = self.ready_joiner(&failed, &next) {
            next = next.with(joiner);
        }
        let is_other = sent.last().map_or(next != record, |last| *last != next);
        if is_other {
            self.store.swap(revision, next, out);
        }
        self.count_joiner(&failed, &record, out);
    }

    /// The seat that goes first when there are more than are wanted: the last one of the ring that is not the primary's. Those of
    /// the first places stay.
    fn surplus(&self, record: &GroupRecord) -> Option<NodeId> {
        let wanted = usize::from(record.wanted);
        let others = record.in_sync.iter().map(|seat| seat.node).filter(|node| *node != self.me.node);
        others.filter(|node| self.ring_place(*node) >= wanted).max_by_key(|node| self.ring_place(*node))
    }

    /// The primary's own seat is the one that is to go: another copy leads first.
    pub(crate) fn leave_if_surplus(&mut self) {
        let Some(record) = self.known.as_ref().map(|known| &known.record) else { return };
        let wanted = usize::from(record.wanted);
        if record.in_sync.len() <= wanted
            || self.ring_place(self.me.node) < wanted
            || self.surplus(record).is_some()
        {
            return;
        }
        let keepers = self.ring.iter().take(wanted);
        let first = keepers.copied().find(|node| record.seat_of(*node).is_some());
        if let Some(to) = first {
            self.leave(Some(to));
        }
    }

    /// A copy that joins, fails, and was never in a content that was sent is counted no more.
    fn forget_failed(&mut self, failed: &[NodeId], record: &GroupRecord, sent: &[GroupRecord]) {
        let now = self.now;
        let leading = self.leading().expect("it leads");
        for node in failed {
            let was_sent = sent.iter().chain([record]).any(|record| record.seat_of(*node).is_some());
            let Some(member) = leading.progress.members.get(node).filter(|_| !was_sent) else { continue };
            if matches!(member.admission, Admission::Counted { .. }) {
                leading.readmission.dropped(now, *node);
                leading.progress.members.remove(node);
            }
        }
    }

    /// A counted copy that gets its seat: it, and all who stay, have synced what there was when it was first counted.
    fn ready_joiner(&self, failed: &[NodeId], stay: &GroupRecord) -> Option<Seat> {
        let leading = self.led()?;
        let members = &leading.progress.members;
        let others = |from: u64| {
            let seats = stay.in_sync.iter().filter(|seat| seat.node != self.me.node);
            let all = seats.map(|seat| members.get(&seat.node).map_or(0, |member| member.synced));
            all.chain([self.log.synced]).all(|synced| synced >= from)
        };
        members.iter().find_map(|(node, member)| {
            let Admission::Counted { from } = member.admission else { return None };
            if failed.contains(node) {
                return None;
            }
            // Its log alone is not enough: it took the bytes of bodies without syncing them.
            let is_synced = (member.synced.min(member.all_synced) >= from && others(from))
                || planted(Bug::AdmittedUnsynced);
            let is_due = self.committed >= leading.barrier && is_synced;
            is_due.then_some(Seat { node: *node, tenure: member.tenure })
        })
    }

    /// Counts one more copy, if there shall be more and one is near.
    fn count_joiner(&mut self, failed: &[NodeId], record: &GroupRecord, out: &mut Vec<GroupEffect>) {
        let (now, last, barrier) = (self.now, self.log.last().seq, self.led().expect("it leads").barrier);
        let (counted, wanted) = (self.counted(), usize::from(record.wanted));
        // The last seats go when all that are wanted are in: never before.
        let replaces =
            counted.len() == wanted && counted.iter().any(|seat| self.ring_place(seat.node) >= wanted);
        if (counted.len() >= wanted && !replaces) || self.store.swap.is_some() || self.committed < barrier {
            return;
        }
        let keepers: Vec<NodeId> = self.ring.iter().copied().take(wanted).collect();
        // As long as too few are in, nothing is served, and nothing is won by a pause.
        let is_short = record.in_sync.len() < min_in_sync(record.wanted);
        let leading = self.leading().expect("it leads");
        let readmission = &leading.readmission;
        let near = leading.progress.members.iter_mut().find(|(node, member)| {
            let is_out = member.admission == Admission::Back;
            let is_there = member.promised_ms.is_some_and(|at| now < at + SILENT_MS / 2);
            let is_well = member.differs == 0 && !member.stuck && !member.halted && !member.lost;
            let is_near = member.has > 0 && member.has + NEAR >= last;
            is_out
                && (!replaces || keepers.contains(node))
                && is_there
                && is_well
                && is_near
                && (is_short || readmission.may(now, **node))
                && !failed.contains(node)
        });
        let Some((_, member)) = near else { return };
        member.admission = Admission::Counted { from: last };
        member.since_ms = now;
        self.sync_all(OWN_ROUND, last, Vec::new(), out);
    }

    /// A group of one whose island shall have more copies, or one elsewhere, gets a record.
    pub(crate) fn raise_wanted(&mut self, out: &mut Vec<GroupEffect>) {
        let (attempt, seat) = (self.attempts, self.own_seat());
        // More than two at once would stop all changes until there are two.
        let in_sync = self.known.as_ref().map_or(1, |known| known.record.in_sync.len());
        let has = self.known.as_ref().map_or(1, |known| known.record.wanted);
        let is_too_many = has <= 2 && in_sync < min_in_sync(self.wanted) && !planted(Bug::WantedAtOnce);
        let wanted = if is_too_many { 2 } else { self.wanted };
        let epoch = self.led().expect("it leads").epoch;
        match &self.known {
            None if (wanted > 1 || self.ring.len() > 1)
                && self.store.may_swap(0)
                && self.store.swap.is_none() =>
            {
                if !self.seat.grouped {
                    // Before the first record can be there: a later life must not count an epoch that others count too.
                    self.seat.grouped = true;
                    self.seat.makes_first = true;
                    self.seat.seen = self.seat.seen.max(epoch);
                    out.push(GroupEffect::SaveSeat(self.seat.clone()));
                }
                let leader = self.me.as_primary(attempt);
                let record = GroupRecord {
                    epoch,
                    primary: Some(leader),
                    in_sync: vec![seat],
                    wanted,
                    power_cut: false,
                };
                self.store.swap(0, record, out);
            }
            Some(known)
                if known.record.wanted != wanted && self.store.swap.is_none() && !self.store.went_back =>
            {
                let (revision, record) = (known.revision, GroupRecord { wanted, ..known.record.clone() });
                self.store.swap(revision, record, out);
            }
            _ => {}
        }
    }
}
