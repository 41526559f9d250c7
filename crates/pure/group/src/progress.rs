//! How much of the log each member has, and what is committed and synced by that: the least over all who are counted. Never
//! decides who is counted.
//!
//! Invariant: neither what is committed nor what is synced goes back, and nothing is synced that is not committed.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::NodeId;
use atoll_core::planted::{Bug, planted};
use atoll_proto::Seat;

use crate::lease::LEASE_MS;

/// Records that are sent to a member before it has acknowledged any of them.
pub const WINDOW: u64 = 1_024;

/// What one owes: since when, and what ends it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Owes(Option<(u64, u64)>);

impl Owes {
    /// The log is to be had up to `upto`.
    pub(crate) fn asked(&mut self, now_ms: u64, upto: u64) {
        self.0.get_or_insert((upto, now_ms));
    }

    /// It is there up to `has`, of `last`. Who has got on owes the rest since now.
    pub(crate) fn paid(&mut self, now_ms: u64, has: u64, last: u64) {
        if self.0.is_some_and(|(upto, _)| has >= upto) {
            self.0 = (has < last).then_some((last, now_ms));
        }
    }

    /// Whether it has been owing for so long, all of it behind `awake_ms`.
    pub(crate) fn is_over(self, now_ms: u64, awake_ms: u64, bound_ms: u64) -> bool {
        self.0.is_some_and(|(_, since)| now_ms >= since.max(awake_ms) + bound_ms)
    }

    /// What is owed first.
    pub(crate) fn upto(self) -> Option<u64> {
        self.0.map(|(upto, _)| upto)
    }
}

/// How far a member is in the group: `Back` -> `Counted` -> `Seated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Admission {
    /// It has come back, and is not counted yet.
    Back,
    /// It is counted since the last record was this one. It and all others must have synced that before it gets its seat.
    Counted { from: u64 },
    /// It has a seat.
    Seated,
}

/// Another copy, as the primary knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupMember {
    pub(crate) tenure: u32,
    pub(crate) admission: Admission,
    /// Records up to this one were sent to it.
    pub(crate) sent: u64,
    /// Its log was known to have this one when it joined.
    pub(crate) joined: u64,
    /// Records up to this one have arrived there.
    pub(crate) received: u64,
    /// Up to this one they are written there, with their bytes: process death cannot take them.
    pub(crate) has: u64,
    /// Up to this one they are synced there: a power cut cannot take them.
    pub(crate) synced: u64,
    /// So are, up to this one, all bodies that records have named since its snapshot.
    pub(crate) all_synced: u64,
    /// When the beacon left that it has answered last.
    pub(crate) promised_ms: Option<u64>,
    /// Since when it is known here.
    pub(crate) since_ms: u64,
    /// When something was sent to it last, and what it was told to be committed and synced.
    pub(crate) told: (u64, u64, u64),
    pub(crate) owes: Owes,
    pub(crate) owes_sync: Owes,
    pub(crate) room: u64,
    pub(crate) stuck: bool,
    pub(crate) differs: u32,
    pub(crate) halted: bool,
    /// It has come back with another tenure, or with less than was counted for it.
    pub(crate) lost: bool,
}

impl GroupMember {
    pub(crate) fn new(tenure: u32, now_ms: u64, sent: u64) -> Self {
        Self {
            tenure,
            admission: Admission::Seated,
            sent,
            joined: 0,
            received: 0,
            has: 0,
            synced: 0,
            all_synced: 0,
            promised_ms: None,
            since_ms: now_ms,
            told: (now_ms, 0, 0),
            owes: Owes::default(),
            owes_sync: Owes::default(),
            room: u64::MAX,
            stuck: false,
            differs: 0,
            halted: false,
            lost: false,
        }
    }

    /// When it has shown last that it lives.
    pub(crate) fn heard_ms(&self, awake_ms: u64) -> u64 {
        self.promised_ms.unwrap_or(0).max(self.since_ms).max(awake_ms)
    }
}

/// See the module. The own copy is a member too, whose log is asked directly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct GroupProgress {
    pub(crate) members: BTreeMap<NodeId, GroupMember>,
}

impl GroupProgress {
    /// The member that a seat is of.
    fn of(&self, seat: &Seat) -> Option<&GroupMember> {
        self.members.get(&seat.node).filter(|member| member.tenure == seat.tenure)
    }

    /// The least of what the counted ones have; `own` has the own copy.
    fn least(&self, counted: &BTreeSet<Seat>, own: (NodeId, u64), of: impl Fn(&GroupMember) -> u64) -> u64 {
        let mut all: Vec<u64> = counted
            .iter()
            .map(|seat| if seat.node == own.0 { own.1 } else { self.of(seat).map_or(0, &of) })
            .collect();
        all.sort_unstable();
        let nth = usize::from(planted(Bug::CommitByMost) && all.len() > 2);
        all.get(nth).copied().expect("the own copy is counted")
    }

    /// Up to where all counted copies have the log.
    pub(crate) fn written(&self, counted: &BTreeSet<Seat>, own: (NodeId, u64)) -> u64 {
        self.least(counted, own, |member| member.has)
    }

    /// Up to where all of them have synced it.
    pub(crate) fn synced(&self, counted: &BTreeSet<Seat>, own: (NodeId, u64)) -> u64 {
        if planted(Bug::FsyncOfOne) {
            return own.1;
        }
        self.least(counted, own, |member| member.synced)
    }

    /// Until when no counted copy claims; without others for ever.
    pub(crate) fn lease_until(&self, counted: &BTreeSet<Seat>, me: NodeId) -> u64 {
        let others = counted.iter().filter(|seat| seat.node != me);
        let each = others.map(|seat| {
            let promised = self.of(seat).and_then(|member| member.promised_ms);
            promised.map_or(0, |sent_ms| sent_ms + LEASE_MS)
        });
        each.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    /// Members B and C; A is the own copy.
    fn members(nodes: &[NodeId]) -> (GroupProgress, BTreeSet<Seat>) {
        let mut progress = GroupProgress::default();
        for node in nodes.iter().filter(|node| **node != A) {
            progress.members.insert(*node, GroupMember::new(1, 0, 0));
        }
        (progress, nodes.iter().map(|node| Seat { node: *node, tenure: 1 }).collect())
    }

    fn has(progress: &mut GroupProgress, node: NodeId, has: u64, synced: u64) {
        let member = progress.members.get_mut(&node).unwrap();
        (member.has, member.synced) = (has, synced);
    }

    #[test]
    fn what_the_slowest_of_three_members_has_written_is_committed() {
        let (mut progress, counted) = members(&[A, B, C]);
        has(&mut progress, C, 12, 0);
        assert_eq!(progress.written(&counted, (A, 15)), 0, "two of three are not enough");
        has(&mut progress, B, 11, 0);
        assert_eq!(progress.written(&counted, (A, 15)), 11);
        has(&mut progress, B, 20, 0);
        assert_eq!(progress.written(&counted, (A, 15)), 12);
        has(&mut progress, C, 20, 0);
        assert_eq!(progress.written(&counted, (A, 15)), 15);
    }

    #[test]
    fn what_every_member_has_synced_counts_beside_what_is_committed() {
        let (mut progress, counted) = members(&[A, B, C]);
        has(&mut progress, B, 5, 3);
        has(&mut progress, C, 5, 4);
        assert_eq!((progress.synced(&counted, (A, 5)), progress.written(&counted, (A, 5))), (3, 5));
        assert_eq!(progress.written(&counted, (A, 6)), 5, "a sync is no write");
    }

    #[test]
    fn with_one_member_its_own_log_decides() {
        let (progress, counted) = members(&[A]);
        assert_eq!((progress.written(&counted, (A, 9)), progress.synced(&counted, (A, 8))), (9, 8));
        assert_eq!(progress.lease_until(&counted, A), u64::MAX);
    }

    #[test]
    fn a_seat_of_another_tenure_has_nothing() {
        let (mut progress, counted) = members(&[A, B]);
        has(&mut progress, B, 9, 9);
        progress.members.get_mut(&B).unwrap().tenure = 2;
        assert_eq!(progress.written(&counted, (A, 9)), 0);
        assert_eq!(progress.lease_until(&counted, A), 0);
    }

    #[test]
    fn the_lease_is_the_least_of_all_promises() {
        let (mut progress, counted) = members(&[A, B, C]);
        progress.members.get_mut(&B).unwrap().promised_ms = Some(1_000);
        assert_eq!(progress.lease_until(&counted, A), 0, "nothing was promised by the third");
        progress.members.get_mut(&C).unwrap().promised_ms = Some(1_100);
        assert_eq!(progress.lease_until(&counted, A), 1_000 + LEASE_MS);
    }

    #[test]
    fn who_gets_on_owes_since_then() {
        let mut owes = Owes::default();
        owes.asked(100, 10);
        owes.asked(200, 12);
        assert!(!owes.is_over(999, 0, 900));
        assert!(owes.is_over(1_000, 0, 900));
        assert!(!owes.is_over(1_000, 500, 900), "the asker itself stood still");
        owes.paid(300, 10, 12);
        assert!(!owes.is_over(1_100, 0, 900));
        assert!(owes.is_over(1_200, 0, 900));
        owes.paid(1_200, 12, 12);
        assert!(!owes.is_over(9_000, 0, 900));
    }
}
