//! The control store, as a copy sees it: reads of the group's record, and one swap of it at a time.
//!
//! Invariant: a swap ends when the revision has passed the one that it expects, and never by a read that shows that one:
//! what was sent may be done later. Until then each content that was sent may be the group's.

use atoll_core::planted::{Bug, planted};
use atoll_proto::GroupRecord;

use crate::event::{GroupEffect, SwapOutcome};

/// Pause before a swap of unknown outcome is sent again; each further one is twice as long,
const AGAIN_MS_MIN: u64 = 50;
/// up to this.
const AGAIN_MS_MAX: u64 = 1_000;
/// A read that failed is repeated after this.
const READ_AGAIN_MS: u64 = 100;

/// A swap that may be done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Swap {
    /// The revision that it expects.
    pub(crate) expect: u64,
    /// All contents that were sent.
    pub(crate) tried: Vec<GroupRecord>,
    /// Number of the one under way, and its content.
    in_flight: Option<(u64, usize)>,
    again_ms: u64,
    pause_ms: u64,
}

impl Swap {
    /// No answer is waited for: another content may be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none()
    }

    pub(crate) fn last(&self) -> &GroupRecord {
        self.tried.last().expect("something was sent")
    }
}

/// How a swap has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SwapEnd {
    /// The record is the swap's.
    Won(u64, GroupRecord),
    /// It is another one.
    Lost(u64, GroupRecord),
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    numbers: u64,
    /// The read under way.
    reading: Option<u64>,
    /// Revision and epoch that are known to have been there,
    known: (u64, u32),
    /// and those that were when the read was asked for.
    known_then: (u64, u32),
    /// Another read is to follow: what it is for came after the one under way was asked for.
    again: bool,
    /// No read before this time.
    pub(crate) read_at_ms: u64,
    pub(crate) swap: Option<Swap>,
    /// It has shown a record that is older than one before.
    pub(crate) went_back: bool,
}

impl Store {
    /// Asks for the record. Returns the number of a read that is not yet asked for, or is now.
    pub(crate) fn read(&mut self, now_ms: u64, out: &mut Vec<GroupEffect>) -> u64 {
        if self.reading.is_some() {
            self.again = true;
            return self.numbers + 1;
        }
        self.numbers += 1;
        self.reading = Some(self.numbers);
        self.again = false;
        self.known_then = self.known;
        self.read_at_ms = now_ms;
        out.push(GroupEffect::Read { number: self.numbers });
        self.numbers
    }

    /// The record has had this revision, and this epoch has begun.
    pub(crate) fn knows(&mut self, revision: u64, epoch: u32) {
        self.known = (revision, epoch);
    }

    /// Whether what was read is older than what was there before it was asked for: then the store was put back.
    pub(crate) fn is_older(&mut self, revision: u64, epoch: u32) -> bool {
        let is_older = revision < self.known_then.0 || epoch < self.known_then.1;
        self.went_back = is_older && !planted(Bug::OldRecordBelieved);
        self.went_back
    }

    /// A read has ended: whether it is the one that was asked for.
    pub(crate) fn read_done(&mut self, number: u64) -> bool {
        let is_own = self.reading == Some(number);
        if is_own {
            self.reading = None;
        }
        is_own
    }

    /// Repeats a read that is due: one that has failed, that something waits for, or the one of each `period_ms`.
    pub(crate) fn tick(&mut self, now_ms: u64, wants: bool, period_ms: u64, out: &mut Vec<GroupEffect>) {
        let pause = if wants || self.again { READ_AGAIN_MS } else { period_ms };
        if self.reading.is_none() && now_ms >= self.read_at_ms + pause {
            self.read(now_ms, out);
        }
        if let Some(swap) = &mut self.swap
            && swap.in_flight.is_none()
            && now_ms >= swap.again_ms
        {
            self.send(out);
        }
    }

    /// Something that waits for a read wants it at once.
    pub(crate) fn read_soon(&mut self, now_ms: u64, out: &mut Vec<GroupEffect>) {
        if self.again && self.reading.is_none() {
            self.read(now_ms, out);
        }
    }

    fn send(&mut self, out: &mut Vec<GroupEffect>) {
        let swap = self.swap.as_mut().expect("there is one");
        self.numbers += 1;
        let nth = swap.tried.len() - 1;
        swap.in_flight = Some((self.numbers, nth));
        out.push(GroupEffect::Swap {
            number: self.numbers,
            expect: swap.expect,
            record: swap.tried[nth].clone(),
        });
    }

    /// Whether a content may be sent: no other answer is waited for.
    pub(crate) fn may_swap(&self, revision: u64) -> bool {
        !self.went_back && self.swap.as_ref().is_none_or(|swap| swap.is_idle() && swap.expect == revision)
    }

    /// Sends a content. An earlier one of the same revision may still be done.
    pub(crate) fn swap(&mut self, revision: u64, record: GroupRecord, out: &mut Vec<GroupEffect>) {
        assert!(self.may_swap(revision), "one swap at a time");
        let swap = self.swap.get_or_insert_with(|| Swap {
            expect: revision,
            tried: Vec::new(),
            in_flight: None,
            again_ms: 0,
            pause_ms: AGAIN_MS_MIN,
        });
        // A content that was sent before is the last one again.
        swap.tried.retain(|tried| *tried != record);
        swap.tried.push(record);
        self.send(out);
    }

    /// A swap has been answered.
    pub(crate) fn swapped(
        &mut self,
        now_ms: u64,
        number: u64,
        outcome: SwapOutcome,
        out: &mut Vec<GroupEffect>,
    ) -> Option<SwapEnd> {
        let swap = self.swap.as_mut()?;
        let (_, nth) = swap.in_flight.filter(|(own, _)| *own == number)?;
        swap.in_flight = None;
        swap.again_ms = now_ms + swap.pause_ms;
        swap.pause_ms = (swap.pause_ms * 2).min(AGAIN_MS_MAX);
        let content = swap.tried[nth].clone();
        match outcome {
            SwapOutcome::Done(revision) => {
                self.swap = None;
                return Some(SwapEnd::Won(revision, content));
            }
            SwapOutcome::Unknown if planted(Bug::UnknownIsDone) => {
                let expect = swap.expect;
                self.swap = None;
                return Some(SwapEnd::Won(expect + 1, content));
            }
            SwapOutcome::Unknown if planted(Bug::UnknownIsNotDone) => self.swap = None,
            // What was sent may be done at any time: it is sent again, until the revision has passed.
            SwapOutcome::Unknown => {}
            SwapOutcome::Conflict => {}
        }
        self.read(now_ms, out);
        None
    }

    /// The record was read.
    pub(crate) fn found(&mut self, revision: u64, record: &GroupRecord) -> Option<SwapEnd> {
        let swap = self.swap.as_ref().filter(|swap| revision > swap.expect)?;
        let is_own = swap.tried.contains(record);
        self.swap = None;
        let record = record.clone();
        Some(if is_own { SwapEnd::Won(revision, record) } else { SwapEnd::Lost(revision, record) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_core::NodeId;
    use atoll_proto::Seat;

    fn record(nodes: &[u16]) -> GroupRecord {
        let in_sync = nodes.iter().map(|node| Seat { node: NodeId(*node), tenure: 1 }).collect();
        GroupRecord { epoch: 7, primary: None, in_sync, wanted: 3, power_cut: false }
    }

    fn number(out: &[GroupEffect]) -> u64 {
        match out.iter().rev().find(|effect| matches!(effect, GroupEffect::Swap { .. })) {
            Some(GroupEffect::Swap { number, .. }) => *number,
            _ => panic!("no swap in {out:?}"),
        }
    }

    #[test]
    fn an_unknown_swap_is_sent_again_until_the_revision_has_passed() {
        let (mut store, mut out) = (Store::default(), Vec::new());
        store.swap(10, record(&[1, 2]), &mut out);
        assert_eq!(store.swapped(0, number(&out), SwapOutcome::Unknown, &mut out), None);
        assert_eq!(store.found(10, &record(&[1])), None, "it may still be done");
        out.clear();
        store.tick(AGAIN_MS_MIN, false, 2_000, &mut out);
        assert!(matches!(&out[..], [.., GroupEffect::Swap { expect: 10, .. }]), "{out:?}");
        assert_eq!(store.swapped(60, number(&out), SwapOutcome::Conflict, &mut out), None);
        let end = store.found(11, &record(&[1, 2]));
        assert_eq!(end, Some(SwapEnd::Won(11, record(&[1, 2]))), "the first one was done");
    }

    #[test]
    fn of_two_contents_for_one_revision_either_may_be_done() {
        let (mut store, mut out) = (Store::default(), Vec::new());
        store.swap(10, record(&[1, 2]), &mut out);
        assert!(!store.may_swap(10), "an answer is waited for");
        store.swapped(0, number(&out), SwapOutcome::Unknown, &mut out);
        store.swap(10, record(&[1]), &mut out);
        assert_eq!(store.swap.as_ref().map(|swap| swap.tried.len()), Some(2));
        // A link flaps while the store is away.
        for turn in 0..20 {
            store.swapped(0, number(&out), SwapOutcome::Unknown, &mut out);
            store.swap(10, if turn % 2 == 0 { record(&[1, 2]) } else { record(&[1]) }, &mut out);
            assert_eq!(store.swap.as_ref().map(|swap| swap.tried.len()), Some(2), "turn {turn}");
        }
        assert_eq!(store.found(11, &record(&[1, 2])), Some(SwapEnd::Won(11, record(&[1, 2]))));
    }

    #[test]
    fn an_answer_to_an_earlier_question_is_none() {
        let (mut store, mut out) = (Store::default(), Vec::new());
        store.swap(10, record(&[1]), &mut out);
        let first = number(&out);
        assert_eq!(store.swapped(0, first + 7, SwapOutcome::Done(11), &mut out), None);
        assert_eq!(
            store.swapped(0, first, SwapOutcome::Done(11), &mut out),
            Some(SwapEnd::Won(11, record(&[1])))
        );
    }
}
