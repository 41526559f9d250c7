//! The primary: begins its epoch, counts who has its records, says what is committed and until when it may answer, and leads
//! no longer when it cannot or shall not. What it sends is in `shipping.rs`; whom it drops and admits in `members.rs`.
//!
//! Invariant: a member is counted from before a swap that admits it is sent, until after a swap that drops it is known as done.

use std::collections::BTreeSet;

use atoll_core::NodeId;
use atoll_core::planted::{Bug, planted};
use atoll_proto::{GroupMessage, Seat};

use crate::event::{GroupEffect, LeadBy};
use crate::join::Readmission;
use crate::lease::{Promise, SOON_MS};
use crate::machine::{Doing, Group};
use crate::progress::{Admission, GroupMember, GroupProgress, Owes, WINDOW};
use crate::rounds::Rounds;

/// A round whose number is this one is the primary's own: for an admission, or before it leaves. It means all bodies.
pub(crate) const OWN_ROUND: u64 = 0;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Leading {
    pub(crate) epoch: u32,
    /// The first record of the epoch: nothing before it counts as committed by being everywhere.
    pub(crate) barrier: u64,
    /// The epoch was begun without a record: only the log knows of it.
    is_of_one: bool,
    pub(crate) progress: GroupProgress,
    pub(crate) readmission: Readmission,
    pub(crate) rounds: Rounds,
    /// Since when the own log is to be written up to a record.
    pub(crate) own_owes: Owes,
    /// It shall lead no longer: who shall, if anybody is meant.
    pub(crate) leaves: Option<Option<NodeId>>,
    /// What all had synced when that was looked at last.
    pub(crate) least_synced: u64,
}

/// Fewer copies than these decide nothing for clients.
pub(crate) const fn min_in_sync(wanted: u8) -> usize {
    if wanted <= 2 { 1 } else { 2 }
}

impl Group {
    pub(crate) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.state {
            Doing::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    pub(crate) fn led(&self) -> Option<&Leading> {
        match &self.state {
            Doing::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    /// Begins to lead.
    pub(crate) fn lead(&mut self, promise: &mut Promise, epoch: u32, by: LeadBy, out: &mut Vec<GroupEffect>) {
        let last = self.log.last();
        promise.refuse();
        promise.leads = Some(epoch);
        promise.seen = promise.seen.max(epoch);
        self.forced_until_ms = 0;
        self.resigned = None;
        let mut progress = GroupProgress::default();
        let seats = self.known.as_ref().map_or(&[][..], |known| &known.record.in_sync);
        for seat in seats.iter().filter(|seat| seat.node != self.me.node) {
            progress.members.insert(seat.node, GroupMember::new(seat.tenure, self.now, last.seq));
        }
        let soon = promise.beat.is_some_and(|beat| self.now < beat.at_ms + SOON_MS);
        self.state = Doing::Leading(Box::new(Leading {
            epoch,
            barrier: last.seq + 1,
            is_of_one: !self.seat.grouped,
            progress,
            readmission: Readmission::default(),
            rounds: Rounds::default(),
            own_owes: Owes::default(),
            leaves: None,
            least_synced: 0,
        }));
        let (committed, synced) = (self.committed, self.synced);
        out.push(GroupEffect::Lead { epoch, by, committed, synced, soon });
    }

    /// For whom commits, syncs and the lease wait.
    pub(crate) fn counted(&self) -> BTreeSet<Seat> {
        let mut counted: BTreeSet<Seat> = [self.own_seat()].into();
        let record = self.known.as_ref().map(|known| &known.record);
        let tried = self.store.swap.iter().flat_map(|swap| &swap.tried);
        if planted(Bug::DropUnasked)
            && let Some(swap) = &self.store.swap
        {
            counted.extend(swap.last().in_sync.iter().copied());
        } else {
            counted.extend(record.into_iter().chain(tried).flat_map(|record| record.in_sync.iter().copied()));
        }
        let members = self.led().into_iter().flat_map(|leading| &leading.progress.members);
        let joining = members.filter(|(_, member)| matches!(member.admission, Admission::Counted { .. }));
        counted.extend(joining.map(|(node, member)| Seat { node: *node, tenure: member.tenure }));
        counted
    }

    /// An order to lead no longer. Nobody can be meant who has no seat, and somebody else must be able to lead.
    pub(crate) fn leave(&mut self, to: Option<NodeId>) {
        let has_seat = |node| self.known.as_ref().is_some_and(|known| known.record.seat_of(node).is_some());
        let mut others = self.ring.iter().filter(|node| **node != self.me.node);
        if to.is_some_and(|to| !has_seat(to) || to == self.me.node) || !others.any(|node| has_seat(*node)) {
            return;
        }
        if let Some(leading) = self.leading() {
            leading.leaves = Some(to);
        }
    }

    pub(crate) fn tell_resigned(&self, epoch: u32, to: Option<NodeId>, out: &mut Vec<GroupEffect>) {
        let Some(known) = &self.known else { return };
        for node in known.record.in_sync.iter().map(|seat| seat.node).filter(|node| *node != self.me.node) {
            let message = GroupMessage::Resign { epoch, to, last: self.log.last() };
            out.push(GroupEffect::Tell { to: node, message });
        }
    }

    /// Leads no longer, by its own word: the door is shut before that is told.
    pub(crate) fn resign(&mut self, promise: &mut Promise, to: Option<NodeId>, out: &mut Vec<GroupEffect>) {
        let Some(epoch) = self.led().map(|leading| leading.epoch) else { return };
        self.step_down(promise, out);
        // The others have the time to lead.
        self.quiet_ms = self.now;
        self.tell_resigned(epoch, to, out);
    }

    /// What follows from an event: commits, syncs, rounds that end, and the end of a primary that leaves.
    pub(crate) fn advance(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let Some(barrier) = self.led().map(|leading| leading.barrier) else { return };
        let counted = self.counted();
        let me = self.me.node;
        let (own_written, own_synced) = ((me, self.log.written), (me, self.log.synced));
        let leading = self.leading().expect("it leads");
        let written = leading.progress.written(&counted, own_written);
        let least_synced = leading.progress.synced(&counted, own_synced);
        let all_synced_more = least_synced > leading.least_synced;
        leading.least_synced = least_synced;
        if (written >= barrier || planted(Bug::OldEpochCommits)) && written > self.committed {
            self.committed = written;
            out.push(GroupEffect::Committed { seq: written });
        }
        // Whatever was synced ahead of its commit is told now.
        let synced = least_synced.min(self.committed);
        if synced > self.synced
            && self.committed >= barrier
            && (all_synced_more || !planted(Bug::SyncedToldOnce))
        {
            let begins = self.synced < barrier && self.led().is_some_and(|leading| leading.is_of_one);
            self.synced = synced;
            out.push(GroupEffect::SyncedAll { seq: synced });
            if begins && synced >= barrier {
                out.push(GroupEffect::NoteWhole);
            }
        }
        let mut nodes: BTreeSet<NodeId> = counted.iter().map(|seat| seat.node).collect();
        if planted(Bug::FsyncOfOne) {
            nodes.retain(|node| *node == me);
        }
        let reached = self.synced;
        let leading = self.leading().expect("it leads");
        let ended = leading.rounds.ended(&nodes, reached);
        out.extend(
            ended.into_iter().filter(|n| *n != OWN_ROUND).map(|number| GroupEffect::RoundDone { number }),
        );
        self.ship(out);
        let is_safe = self.synced == self.log.last().seq && self.committed >= barrier;
        if let Some(to) = self.led().and_then(|leading| leading.leaves).filter(|_| is_safe) {
            self.resign(promise, to, out);
        }
    }

    pub(crate) fn tick_leading(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        if promise.beat.is_some_and(|beat| beat.epoch > self.led().expect("it leads").epoch) {
            // Another one says that it leads a later epoch: the record says whether that is so.
            self.store.read(self.now, out);
        }
        let last = self.log.last().seq;
        let wants_sync = self.led().is_some_and(|l| l.leaves.is_some() && !l.rounds.is_open(OWN_ROUND, last));
        if wants_sync && self.synced < last {
            self.sync_all(OWN_ROUND, last, Vec::new(), out);
        }
        self.raise_wanted(out);
        self.leave_if_surplus();
        self.tell_again(out);
        if self.own_is_stuck() {
            self.resign(promise, None, out);
            return;
        }
        self.drop_and_admit(out);
    }

    /// Until when what this copy tells is right, by its own boot clock; none: nothing may leave.
    pub fn lease_until(&self) -> Option<u64> {
        let leading = self.led()?;
        // If only the log knows the epoch, nothing leaves before that survives a power cut.
        let has_begun =
            self.committed >= leading.barrier && (!leading.is_of_one || self.synced >= leading.barrier);
        has_begun.then(|| leading.progress.lease_until(&self.counted(), self.me.node))
    }

    /// Whether changes of clients and of other islands may be decided: there are copies enough, and all of them keep up.
    pub fn may_decide(&self) -> bool {
        let Some(leading) = self.led().filter(|leading| leading.leaves.is_none()) else { return false };
        let (seats, wanted) =
            self.known.as_ref().map_or((1, 1), |k| (k.record.in_sync.len(), k.record.wanted));
        let last = self.log.last().seq;
        let counted = self.counted();
        let keeps_up =
            |node: &NodeId| leading.progress.members.get(node).is_none_or(|m| last < m.has + WINDOW);
        seats >= min_in_sync(wanted) && counted.iter().all(|seat| keeps_up(&seat.node))
    }

    /// Bytes that all counted disks have.
    pub fn room(&self) -> u64 {
        let counted = self.counted();
        let members = self.led().into_iter().flat_map(|leading| &leading.progress.members);
        let others = members.filter(|(node, m)| counted.contains(&Seat { node: **node, tenure: m.tenure }));
        others.map(|(_, member)| member.room).min().unwrap_or(u64::MAX).min(self.log.room)
    }

    /// The nodes whose promises the lease needs, and those that want to hear who leads.
    pub fn beacons_to(&self) -> Vec<NodeId> {
        self.ring.iter().copied().filter(|node| *node != self.me.node).collect()
    }

    /// Whether something is committed or synced only when another copy says so.
    pub fn counts_others(&self) -> bool {
        self.counted().iter().any(|seat| seat.node != self.me.node)
    }

    pub(crate) fn check_leading(&self) {
        let Some(leading) = self.led() else { return };
        assert!(leading.barrier <= self.log.last().seq + 1, "the barrier is not the next record");
        let Some(known) = &self.known else { return };
        if self.committed < leading.barrier || planted(Bug::CommitByMost) || planted(Bug::DropUnasked) {
            return;
        }
        let counted = self.counted();
        for seat in known.record.in_sync.iter().filter(|seat| seat.node != self.me.node) {
            assert!(counted.contains(seat), "{seat:?} is not counted");
            let has = leading.progress.members.get(&seat.node).map_or(0, |member| member.has);
            assert!(has >= self.committed, "{seat:?} has {has} of {} committed", self.committed);
        }
    }
}
