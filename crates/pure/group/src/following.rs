//! A copy that follows: takes the records of a primary, says what it has, and cuts off what the primary's log has not.
//!
//! Invariant: what a copy says that it has of an epoch is the beginning of the log of that epoch's primary.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, NodeId, Position};
use atoll_proto::GroupMessage;

use crate::event::GroupEffect;
use crate::lease::{PROMISE_MS, Promise};
use crate::machine::{Doing, Group};
use crate::progress::WINDOW;

/// Milliseconds after which a copy asks again to come back, if nothing has come of it.
const ASK_AGAIN_MS: u64 = 20;

/// A copy asks again so late to be let in, or whether all are void.
const ASK_MS: u64 = 300;

/// So many rounds of syncs are kept. Of what is beyond that the primary asks again.
const SYNCS_MAX: usize = 64;

/// A primary's log, as far as this copy has compared it with its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    /// The epoch of the frames that are taken.
    pub(crate) epoch: u32,
    /// Who has sent them.
    pub(crate) primary: Option<NodeId>,
    /// Up to here the own log is the primary's; none: that is not known.
    pub(crate) matched: Option<u64>,
    /// When this copy has asked last.
    pub(crate) asked_ms: Option<u64>,
    /// Rounds of syncs that are asked for and not done.
    syncs: Vec<AskedSync>,
}

/// A round of syncs that the primary has asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AskedSync {
    number: u64,
    seq: u64,
    /// None: they are being synced.
    waits: Option<Vec<Ino>>,
}

/// Up to where the records of a frame are in a log, and whether the log goes on differently there.
fn compare(log: &crate::Epochs, after: Position, ends: &[Position]) -> (u64, bool) {
    let last = log.last().seq;
    let mut same = after.seq;
    for end in ends {
        let upto = end.seq.min(last);
        if same >= upto {
            break;
        }
        for own in log.runs(same, upto) {
            if own.epoch != end.epoch {
                return (same, true);
            }
            same = own.seq;
        }
    }
    (same, false)
}

impl Group {
    pub(crate) fn on_append(
        &mut self,
        promise: &mut Promise,
        from: NodeId,
        epoch: u32,
        (after, ends): (Position, &[Position]),
        (commit, synced, keep): (u64, u64, u64),
        out: &mut Vec<GroupEffect>,
    ) {
        if self.seat.is_nameless() {
            return;
        }
        let refused = GroupMessage::Refused { epoch: promise.seen };
        let count = ends.last().map_or(0, |end| end.seq.saturating_sub(after.seq));
        if !promise.is_likely(epoch) || count > WINDOW {
            return;
        }
        if epoch < promise.seen {
            out.push(GroupEffect::Tell { to: from, message: refused });
            return;
        }
        let is_known = self.known.as_ref().is_some_and(|known| known.record.epoch >= epoch);
        match &self.state {
            Doing::Leading(leading) => {
                if epoch > leading.epoch {
                    self.store.read(self.now, out);
                }
                return;
            }
            Doing::Closing => return,
            Doing::Halted => {
                out.push(GroupEffect::Tell { to: from, message: GroupMessage::Halted { epoch } });
                return;
            }
            // Who may be the next primary acknowledges nothing to the last one.
            Doing::Standing(_) | Doing::Claiming { .. } if is_known => return,
            // Another one leads a later epoch already: an own swap can only meet a conflict.
            Doing::Standing(_) | Doing::Claiming { .. } => self.follow(promise),
            Doing::Following(_) => {}
        }
        promise.seen = promise.seen.max(epoch);
        let rises = ends.iter().try_fold(after, |last, end| {
            (end.seq > last.seq && end.epoch >= last.epoch && end.epoch <= epoch).then_some(*end)
        });
        let Some(upto) = rises else { return };
        let following = self.following();
        if following.epoch != epoch {
            *following = Following { epoch, primary: Some(from), ..Following::default() };
        }
        if !self.log.epochs.has(after) {
            self.ask_to_join(from, out);
            return;
        }
        let (same, differs) = compare(&self.log.epochs, after, ends);
        if differs {
            let to = self.log.epochs.at(same).expect("it was compared");
            self.cut(promise, from, to, out);
            return;
        }
        // Whatever an earlier primary has said: this one's log reaches back to here.
        (self.must_fill, self.is_apart) = (false, false);
        // What was released once is gone.
        self.keep = self.keep.max(keep);
        let before = self.following().matched.unwrap_or(0).max(same);
        self.following().matched = Some(before);
        self.told(commit, synced, out);
        let last = self.log.last();
        if upto.seq > last.seq {
            out.push(GroupEffect::Take { after: last, upto });
            for end in ends.iter().filter(|end| end.seq > last.seq) {
                self.log.epochs.append(*end);
            }
            self.following().matched = Some(upto.seq);
            self.told(commit, synced, out);
            if planted(Bug::HasBeforeWrite) {
                self.say_has(out);
            }
        } else {
            self.say_has(out);
        }
        self.begin_syncs(out);
    }

    /// The engine could not take all of a frame: the log ends where it says.
    pub(crate) fn on_not_taken(&mut self, promise: &mut Promise, last: u64, out: &mut Vec<GroupEffect>) {
        // A log that is being closed tells its end when it is open again.
        if matches!(self.state, Doing::Closing) || last >= self.log.last().seq {
            return;
        }
        self.log.epochs.cut(last.max(self.log.written));
        let last = self.log.last().seq;
        (self.committed, self.synced) = (self.committed.min(last), self.synced.min(last));
        match &mut self.state {
            Doing::Following(following) => following.matched = following.matched.map(|at| at.min(last)),
            // It leads with records that it has not, so its barrier has no place.
            Doing::Leading(_) => self.step_down(promise, out),
            _ => {}
        }
    }

    fn following(&mut self) -> &mut Following {
        match &mut self.state {
            Doing::Following(following) => following,
            state => panic!("{state:?} follows nobody"),
        }
    }

    /// The primary says what is committed and synced.
    fn told(&mut self, commit: u64, synced: u64, out: &mut Vec<GroupEffect>) {
        let matched = self.following().matched.unwrap_or(0);
        if commit.min(matched) > self.committed {
            self.committed = commit.min(matched);
            out.push(GroupEffect::Committed { seq: self.committed });
        }
        // What was committed under an earlier primary need not be here any more, if all seats have lost their power since.
        let synced = synced.min(self.committed).min(matched);
        if synced > self.synced {
            self.synced = synced;
            out.push(GroupEffect::SyncedAll { seq: self.synced });
        }
    }

    /// Tells the primary what is here of its log.
    pub(crate) fn say_has(&mut self, out: &mut Vec<GroupEffect>) {
        let Doing::Following(Following { epoch, primary: Some(to), matched: Some(matched), .. }) = self.state
        else {
            return;
        };
        let written = if planted(Bug::HasBeforeWrite) { matched } else { self.log.written.min(matched) };
        let message = GroupMessage::Has {
            epoch,
            tenure: self.seat.tenure,
            written,
            synced: self.log.synced.min(matched),
            room: self.log.room,
            stuck: self.log.stuck,
            differs: self.log.differs,
        };
        out.push(GroupEffect::Tell { to, message });
    }

    fn ask_to_join(&mut self, to: NodeId, out: &mut Vec<GroupEffect>) {
        let now = self.now;
        if self.seat.is_nameless() {
            return;
        }
        let following = self.following();
        // The frames that are under way have no place either: one question is enough for all of them.
        if following.asked_ms.is_some_and(|at| now < at + ASK_AGAIN_MS) {
            return;
        }
        following.asked_ms = Some(now);
        let message = GroupMessage::Join {
            tenure: self.seat.tenure,
            checkpoint: self.log.checkpoint,
            epochs: self.log.epochs.table().clone(),
        };
        out.push(GroupEffect::Tell { to, message });
    }

    /// Cuts off what the primary's log has not.
    fn cut(&mut self, promise: &mut Promise, primary: NodeId, to: Position, out: &mut Vec<GroupEffect>) {
        if to.seq < self.log.checkpoint {
            // The snapshot cannot be taken back. The primary finds that out by what this copy has.
            self.ask_to_join(primary, out);
            return;
        }
        if to.seq < self.synced {
            // Somebody was made to lead who has less than was promised: what is here must not be thrown away too.
            self.must_fill = true;
            self.state = Doing::Halted;
            promise.refuse();
            out.push(GroupEffect::FillAnew);
            return;
        }
        // Bytes of these records are in bodies, over what was there before. Until that was fetched, this copy has lost something.
        if self.log.has_bodies_behind(to.seq) && !planted(Bug::CutKeepsSeat) {
            self.seat.tenure += 1;
            self.seat.cut = true;
            out.push(GroupEffect::SaveSeat(self.seat.clone()));
        }
        self.state = Doing::Closing;
        out.push(GroupEffect::CutTo { to });
    }

    pub(crate) fn on_sync_to(
        &mut self,
        epoch: u32,
        number: u64,
        seq: u64,
        bodies: Vec<Ino>,
        out: &mut Vec<GroupEffect>,
    ) {
        let Doing::Following(following) = &mut self.state else { return };
        // The primary asks again what may have been lost.
        let is_known = following.syncs.iter().any(|sync| (sync.number, sync.seq) == (number, seq));
        if following.epoch != epoch || is_known || following.syncs.len() >= SYNCS_MAX {
            return;
        }
        following.syncs.push(AskedSync { number, seq, waits: Some(bodies) });
        self.begin_syncs(out);
    }

    /// Begins the syncs whose records are here: the bytes of others would not be synced.
    pub(crate) fn begin_syncs(&mut self, out: &mut Vec<GroupEffect>) {
        let Doing::Following(Following { epoch, matched, syncs, .. }) = &mut self.state else { return };
        let has = matched.unwrap_or(0).min(self.log.written);
        for sync in syncs.iter_mut().filter(|sync| sync.seq <= has) {
            let (number, seq) = (sync.number, sync.seq);
            let bodies = sync.waits.take();
            out.extend(bodies.map(|bodies| GroupEffect::Sync { epoch: *epoch, number, seq, bodies }));
        }
    }

    pub(crate) fn say_synced(&mut self, of: u32, (number, seq): (u64, u64), out: &mut Vec<GroupEffect>) {
        if let Doing::Following(Following { epoch, primary: Some(to), syncs, .. }) = &mut self.state
            && *epoch == of
        {
            syncs.retain(|sync| (sync.number, sync.seq) != (number, seq));
            let (epoch, to) = (*epoch, *to);
            let message = GroupMessage::SyncedTo { epoch, tenure: self.seat.tenure, number, seq };
            out.push(GroupEffect::Tell { to, message });
        }
    }

    /// The primary's log does not reach back to this copy's. Who has a seat has all that was committed, and can lead.
    pub(crate) fn on_released(
        &mut self,
        from: NodeId,
        epoch: u32,
        common: Option<Position>,
        out: &mut Vec<GroupEffect>,
    ) {
        let is_followed = matches!(&self.state, Doing::Following(following)
            if following.epoch == epoch && following.primary == Some(from));
        if !is_followed || self.has_seat() {
            return;
        }
        // Somebody was made to lead who has less than was promised: what is here must not be thrown away.
        let promised = self.synced.max(self.log.checkpoint);
        self.is_apart = !self.seat.lacks
            && common.is_some_and(|common| common.seq < promised)
            && !planted(Bug::FilledOverPromised);
        if !std::mem::replace(&mut self.must_fill, true) {
            out.push(GroupEffect::FillAnew);
        }
    }

    /// The rows of the primary are here. What this copy has had goes with its log.
    pub(crate) fn on_filled(&mut self, out: &mut Vec<GroupEffect>) {
        if self.fills_from().is_none() {
            return;
        }
        self.seat.tenure += 1;
        self.seat.lacks = true;
        out.push(GroupEffect::SaveSeat(self.seat.clone()));
        self.state = Doing::Closing;
        out.push(GroupEffect::Refill);
    }

    /// Whether a primary has been heard within the time of a promise.
    pub(crate) fn hears_primary(&self, promise: &Promise) -> bool {
        promise.beat.is_some_and(|beat| beat.epoch >= promise.seen && self.now < beat.at_ms + PROMISE_MS)
    }

    pub(crate) fn tick_following(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let (now, hears) = (self.now, self.hears_primary(promise));
        let following = self.following();
        let is_due = following.asked_ms.is_none_or(|at| now >= at + ASK_MS);
        if let Some(beat) = promise.beat.filter(|_| hears) {
            if beat.epoch > following.epoch {
                *following =
                    Following { epoch: beat.epoch, primary: Some(beat.who.node), ..Following::default() };
            }
            let is_apart = self.following().matched.is_none() || !self.has_seat();
            if is_apart && is_due && beat.who.node != self.me.node {
                self.ask_to_join(beat.who.node, out);
            }
        } else if is_due && !self.has_seat() && self.known.is_some() {
            self.following().asked_ms = Some(now);
            self.tell_standing(true, out);
        }
        self.stand_if_may(promise, out);
    }
}
