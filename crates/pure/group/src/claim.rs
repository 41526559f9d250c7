//! A copy that hears no primary, and becomes one: it refuses to promise, reads the record, looks who has more, and swaps
//! itself in as the primary of the next epoch.
//!
//! Invariant: from the moment at which a copy may claim until its swap has ended it promises nothing.

use atoll_core::planted::{Bug, planted};
use atoll_core::{NodeId, Position};
use atoll_proto::{GroupMessage, GroupRecord, NodeLife, Seat};

use crate::event::{GroupEffect, LeadBy};
use crate::lease::{PLACE_MS, PROMISE_MS, Promise, YIELD_MS};
use crate::machine::{Doing, Group};

/// How much later than the one before it in the ring a copy claims when nobody has led yet: nodes come to a new volume one after
/// the other.
const FIRST_PLACE_MS: u64 = 3_000;

/// A copy that stands says so again after this.
const TELL_MS: u64 = 200;

/// An order to lead whatever is lost holds for so long: the time to claim, if nothing else hinders it.
const FORCED_MS: u64 = 10_000;

/// Why the primary of the record is no primary any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Over {
    /// Nothing was heard of it for the time of every promise.
    Silence,
    /// Its process has ended, or there was none.
    Proof,
    /// It has said so.
    Resigned,
}

/// A primary that leads no longer, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Resigned {
    pub(crate) who: NodeLife,
    pub(crate) epoch: u32,
    pub(crate) to: Option<NodeId>,
    pub(crate) last: Position,
    pub(crate) at_ms: u64,
}

/// A copy that may have lost something, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct VoidCopy {
    pub(crate) tenure: u32,
    pub(crate) last: Position,
    pub(crate) cut: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    since_ms: u64,
    why: Over,
    /// The read that was asked for since no promise is given.
    read: u64,
    /// It has ended.
    is_fresh: bool,
    /// Since when this copy waits for one that has more.
    yields_ms: Option<u64>,
    told_ms: u64,
}

impl Group {
    /// How many others claim before this copy.
    fn place(&self, after: NodeId) -> u64 {
        let at = |node| self.ring.iter().position(|other| *other == node).unwrap_or(0);
        let n = self.ring.len().max(1);
        ((at(self.me.node) + 2 * n - at(after) - 1) % n) as u64
    }

    /// Whether the primary of the record leads no longer, and why. A promise binds as long as anybody may count on it: what
    /// proves the end of a primary says nothing about the one before it, unless the proven one has led.
    fn over(&self, promise: &Promise, record: &GroupRecord, since_ms: u64) -> Option<Over> {
        let Some(leader) = record.primary else {
            // Nobody has led yet: the first of the ring begins, unless it does not start.
            let place = self.ring.iter().position(|node| *node == self.me.node).unwrap_or(0) as u64;
            return (self.now >= self.start_ms + FIRST_PLACE_MS * place).then_some(Over::Proof);
        };
        let (who, epoch) = (leader.process(), record.epoch);
        let heard = promise.beat.is_some_and(|beat| beat.epoch == epoch)
            || matches!(&self.state, Doing::Following(following) if following.epoch == epoch);
        let has_led = self.log.epochs.knows(epoch) || heard || planted(Bug::OldPromiseFree);
        let is_own = who.node == self.me.node && who.host == self.me.host && who.life < self.me.life;
        let later = self.lives.iter().any(|((node, host), life)| {
            *node == who.node && *life > who.life && (*host == who.host || planted(Bug::ProofByAnyLife))
        });
        if has_led && (is_own || later) {
            return Some(Over::Proof);
        }
        if let Some(resigned) = self.resigned.filter(|r| r.who == who && r.epoch == epoch) {
            let is_meant = resigned.to.is_none_or(|to| to == self.me.node);
            let pause = if is_meant { 0 } else { PLACE_MS * (1 + self.place(who.node)) };
            if self.now >= resigned.at_ms + pause {
                return Some(Over::Resigned);
            }
        }
        let promised = if planted(Bug::PromiseForgotten) { 0 } else { self.quiet_ms };
        let quiet = promised.max(promise.given_ms.unwrap_or(0)).max(since_ms);
        let is_quiet = self.now >= quiet + PROMISE_MS + PLACE_MS * self.place(who.node) && self.is_awake();
        is_quiet.then_some(Over::Silence)
    }

    /// Whether every seat of the record has said in this life that it is void, and this copy has the most of all.
    fn may_begin_cold(&self, record: &GroupRecord) -> bool {
        if self.seat.lacks && !planted(Bug::LackingLeads) {
            return false;
        }
        let Some(own) = record.seat_of(self.me.node) else { return self.is_forced() };
        if self.is_forced() {
            return true;
        }
        if self.seat.tenure <= own.tenure {
            return false;
        }
        // A copy whose bodies have bytes of cut records may lack what was synced: any other one is better.
        let rank = |cut: bool, last, node| (!cut || planted(Bug::CutMayLead), last, std::cmp::Reverse(node));
        let mine = rank(self.seat.cut, self.log.last(), self.me.node);
        record.in_sync.iter().filter(|seat| seat.node != self.me.node).all(|seat| {
            match self.voids.get(&seat.node) {
                Some(void) => void.tenure > seat.tenure && rank(void.cut, void.last, seat.node) < mine,
                None => planted(Bug::SilenceIsVoid) && self.now > self.start_ms + 5_000,
            }
        })
    }

    /// An order to lead whatever is lost by it. It holds for a while only: what it was given for may be over later.
    pub(crate) fn force(&mut self, promise: &Promise) {
        if !matches!(self.state, Doing::Leading(_)) && !self.hears_primary(promise) && !self.seat.lacks {
            self.forced_until_ms = self.now + FORCED_MS;
        }
    }

    /// Whether it has taken such an order, which holds yet.
    pub const fn is_forced(&self) -> bool {
        self.now < self.forced_until_ms
    }

    /// Begins to stand if this copy may claim, as far as it knows.
    pub(crate) fn stand_if_may(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let Some(known) = &self.known else { return };
        let (record, since_ms) = (known.record.clone(), known.since_ms);
        let may = self.has_seat() || self.may_begin_cold(&record);
        if !may
            || self.store.went_back
            || promise.seen > record.epoch
            || (self.must_fill && !self.is_forced())
        {
            return;
        }
        if record.epoch == u32::MAX {
            return;
        }
        let Some(why) = self.over(promise, &record, since_ms) else { return };
        promise.refuse();
        let read = self.store.read(self.now, out);
        let (since_ms, told_ms) = (self.now, self.now);
        self.standing.clear();
        self.state =
            Doing::Standing(Standing { since_ms, why, read, is_fresh: false, yields_ms: None, told_ms });
        self.tell_standing(true, out);
    }

    /// Tells all other seats what this copy has.
    pub(crate) fn tell_standing(&self, asks: bool, out: &mut Vec<GroupEffect>) {
        let Some(known) = &self.known else { return };
        for to in known.record.in_sync.iter().map(|seat| seat.node).filter(|node| *node != self.me.node) {
            let message = self.standing_message(asks);
            out.push(GroupEffect::Tell { to, message });
        }
    }

    fn standing_message(&self, asks: bool) -> GroupMessage {
        // What lacks bytes has nothing, whatever its log says.
        let lacks = self.seat.lacks;
        GroupMessage::Standing {
            last: if lacks { Position::default() } else { self.log.last() },
            tenure: self.seat.tenure,
            void: !self.has_seat(),
            cut: self.seat.cut || lacks,
            asks,
        }
    }

    pub(crate) fn on_standing(
        &mut self,
        from: NodeId,
        last: Position,
        copy: VoidCopy,
        (void, asks): (bool, bool),
        out: &mut Vec<GroupEffect>,
    ) {
        if void {
            self.voids.insert(from, copy);
        } else {
            self.voids.remove(&from);
            self.standing.insert(from, (last, self.now));
        }
        let answers = self.known.is_some() && matches!(self.state, Doing::Following(_) | Doing::Standing(_));
        if asks && answers {
            out.push(GroupEffect::Tell { to: from, message: self.standing_message(false) });
        }
    }

    pub(crate) fn tick_claim(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let known = self.known.as_ref().map_or(0, |known| known.record.epoch);
        let since = match &self.state {
            Doing::Standing(standing) => standing.since_ms,
            Doing::Claiming { since_ms, .. } => *since_ms,
            _ => return,
        };
        let beat = promise.beat.filter(|beat| beat.at_ms >= since);
        // Another one leads a later epoch: an own swap can only meet a conflict.
        if beat.is_some_and(|beat| beat.epoch > known) {
            self.follow(promise);
            _ = self.store.read(self.now, out);
            return;
        }
        if planted(Bug::UnknownIsNotDone) && self.store.swap.is_none() && beat.is_some() {
            self.follow(promise);
            return;
        }
        let Doing::Standing(standing) = &mut self.state else { return };
        if standing.why == Over::Silence && beat.is_some() {
            self.follow(promise);
            return;
        }
        if self.now >= standing.told_ms + TELL_MS {
            standing.told_ms = self.now;
            self.tell_standing(true, out);
        }
        self.claim_if_may(promise, out);
    }

    /// A read has ended.
    pub(crate) fn consider(&mut self, promise: &mut Promise, number: u64, out: &mut Vec<GroupEffect>) {
        if let Doing::Standing(standing) = &mut self.state
            && number >= standing.read
        {
            standing.is_fresh = true;
            self.claim_if_may(promise, out);
        }
    }

    fn claim_if_may(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let (Doing::Standing(standing), Some(known)) = (&self.state, &self.known) else { return };
        if !standing.is_fresh {
            return;
        }
        let (record, revision, since_ms) = (known.record.clone(), known.revision, known.since_ms);
        let is_cold = !self.has_seat();
        let may = !is_cold || self.may_begin_cold(&record);
        let over = self.over(promise, &record, since_ms);
        let Some(epoch) = record.epoch.checked_add(1) else { return };
        if !may || over.is_none() || promise.seen > record.epoch {
            self.follow(promise);
            return;
        }
        if !is_cold && self.waits_for_better(&record) {
            return;
        }
        if !self.store.may_swap(revision) {
            return;
        }
        self.attempts += 1;
        let leader = self.me.as_primary(self.attempts);
        let in_sync = if is_cold { vec![self.own_seat()] } else { self.stay(&record) };

        let was_mine = record.primary.is_some_and(|old| old.node == self.me.node);
        // An epoch that was begun by a power cut and has left no record here was never told to anybody.
        let untold = record.power_cut && !self.log.epochs.knows(record.epoch) && !planted(Bug::ColdForgotten);
        let by = match (is_cold || untold, was_mine) {
            (true, _) => LeadBy::PowerCut,
            (false, true) => LeadBy::Restart,
            (false, false) => LeadBy::Promotion,
        };
        let claim = GroupRecord {
            epoch,
            primary: Some(leader),
            in_sync,
            wanted: record.wanted,
            power_cut: by == LeadBy::PowerCut,
        };
        self.state = Doing::Claiming { attempt: self.attempts, by, since_ms: self.now };
        self.store.swap(revision, claim, out);
    }

    /// There is no record. An earlier process of this copy was to make the first one, and ended before that was done: it may be
    /// done yet, and then this claim meets a conflict.
    pub(crate) fn claim_first(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let is_first = self.seat.makes_first && self.known.is_none();
        let Some(epoch) = promise.seen.checked_add(1).filter(|_| is_first && self.store.may_swap(0)) else {
            return;
        };
        if !matches!(self.state, Doing::Following(_)) {
            return;
        }
        promise.refuse();
        self.attempts += 1;
        let by = if self.is_lost { LeadBy::PowerCut } else { LeadBy::Restart };
        let claim = GroupRecord {
            epoch,
            primary: Some(self.me.as_primary(self.attempts)),
            in_sync: vec![self.own_seat()],
            wanted: self.wanted,
            power_cut: self.is_lost,
        };
        self.state = Doing::Claiming { attempt: self.attempts, by, since_ms: self.now };
        self.store.swap(0, claim, out);
    }

    /// Who stays by the claim: all but the old primary, which may have records that nobody else has. If it has resigned in favour
    /// of another one, and all that it had is here, it has nothing to cut off. If it has named nobody, it is about to end.
    fn stay(&self, record: &GroupRecord) -> Vec<Seat> {
        let old = record.primary.map(|leader| leader.node).filter(|node| *node != self.me.node);
        let stays = self.resigned.is_some_and(|resigned| {
            resigned.epoch == record.epoch && resigned.to.is_some() && self.log.epochs.has(resigned.last)
        });
        record.in_sync.iter().copied().filter(|seat| stays || Some(seat.node) != old).collect()
    }

    /// Whether a copy that lives has more, or as much and an earlier place. It is waited for once.
    fn waits_for_better(&mut self, record: &GroupRecord) -> bool {
        let mine = (self.log.last(), std::cmp::Reverse(self.me.node));
        let now = self.now;
        let Doing::Standing(standing) = &mut self.state else { return false };
        let is_better = self.standing.iter().any(|(node, (last, at_ms))| {
            record.seat_of(*node).is_some()
                && *at_ms >= standing.since_ms
                && (*last, std::cmp::Reverse(*node)) > mine
        });
        if !is_better {
            return false;
        }
        let since = *standing.yields_ms.get_or_insert(now);
        now < since + YIELD_MS
    }
}
