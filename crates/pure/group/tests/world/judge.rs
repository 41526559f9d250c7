//! The judge of the small world: sees all copies and the store at once.

use std::collections::BTreeMap;

use atoll_group::LeadBy;
use atoll_proto::GroupRecord;

use super::{Rec, World};

/// What is known of a group.
#[derive(Debug, Default)]
pub struct Judged {
    /// Records that somebody was told of, or that a copy has called committed.
    pub committed: BTreeMap<u64, Rec>,
    /// Records whose answer left.
    pub acknowledged: BTreeMap<u64, Rec>,
    /// Records that some copy has called synced by all, or whose `fsync` was answered.
    pub synced: BTreeMap<u64, Rec>,
    /// Who has led which epoch: machine and life.
    pub led: BTreeMap<u32, (usize, u32)>,
    /// Records that were answered.
    pub answered: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Judge {
    pub groups: Vec<Judged>,
    /// Clients ask no more.
    pub is_over: bool,
    pub promises: u64,
    pub power_cuts: u64,
    pub promotions: u64,
    pub restarts: u64,
}

impl Judge {
    pub fn new(groups: usize) -> Self {
        let groups = (0..groups).map(|_| Judged::default()).collect();
        Self { groups, is_over: false, promises: 0, power_cuts: 0, promotions: 0, restarts: 0 }
    }

    pub fn promised(&mut self) {
        self.promises += 1;
    }
}

/// What is in a log.
fn missing<'a>(of: &'a BTreeMap<u64, Rec>, log: &[Rec]) -> Option<(&'a u64, &'a Rec)> {
    of.iter().find(|(seq, rec)| log.get(**seq as usize - 1) != Some(rec))
}

impl World {
    /// At most one copy of a group answers.
    pub fn judge_answers(&self) {
        for (group, copies) in self.groups.iter().enumerate() {
            let answers = copies.iter().filter(|copy| self.may_answer(**copy));
            let answers: Vec<usize> = answers.map(|copy| self.copies[*copy].machine).collect();
            assert!(
                answers.len() <= 1,
                "{answers:?} answer for group {group} at once: {}",
                self.describe(group)
            );
        }
    }

    /// Whether what a copy tells now would leave.
    pub fn may_answer(&self, copy: usize) -> bool {
        let c = &self.copies[copy];
        let Some(process) = &c.process else { return false };
        process.is_leading && process.group.lease_until().is_some_and(|until| self.clock(c.machine) < until)
    }

    /// A copy begins to lead; `before` is the record that its claim has replaced.
    pub fn judge_lead(&mut self, copy: usize, epoch: u32, by: LeadBy) {
        let c = &self.copies[copy];
        let (group, machine) = (c.group, c.machine);
        let life = self.machines[machine].life;
        let log = &c.process.as_ref().expect("it lives").log;
        let judged = &self.judge.groups[group];
        if let Some(other) = judged.led.get(&epoch) {
            panic!("epoch {epoch} of group {group} is led by {other:?} and by {machine}");
        }
        if judged.led.keys().any(|led| *led > epoch) {
            // It hears late that its claim was done: the epoch is dead, and nothing of it will be told.
            self.judge.groups[group].led.insert(epoch, (machine, life));
            return;
        }
        if by == LeadBy::PowerCut {
            if let Some((seq, rec)) = missing(&judged.synced, log) {
                panic!("record {seq} {rec:?} of group {group} was synced, and {machine} leads without it");
            }
            self.judge.power_cuts += 1;
        } else {
            if let Some((seq, rec)) = missing(&judged.committed, log) {
                panic!("record {seq} {rec:?} of group {group} was committed, and {machine} leads without it");
            }
            assert!(!c.disk.torn, "{machine} leads group {group}, and its bodies have bytes of cut records");
            match by {
                LeadBy::Promotion => self.judge.promotions += 1,
                _ => self.judge.restarts += 1,
            }
        }
        // What was lost by the power cut of all is what nobody has.
        let log = self.copies[copy].process.as_ref().expect("it lives").log.clone();
        let judged = &mut self.judge.groups[group];
        for of in [&mut judged.committed, &mut judged.acknowledged] {
            of.retain(|seq, rec| log.get(*seq as usize - 1) == Some(rec));
        }
        judged.led.insert(epoch, (machine, life));
    }

    /// No copy without a good seat takes over while one with a good seat is there.
    pub fn judge_cold(&self, copy: usize, before: &GroupRecord) {
        let group = self.copies[copy].group;
        for other in &self.groups[group] {
            let c = &self.copies[*other];
            let seat =
                atoll_proto::Seat { node: atoll_core::NodeId(c.machine as u16), tenure: c.disk.seat.tenure };
            let is_whole = c.disk.is_whole_in(self.machines[c.machine].boot) && !c.disk.torn;
            assert!(
                !(before.in_sync.contains(&seat) && is_whole),
                "{} begins cold, and {} is whole: {}",
                self.copies[copy].machine,
                c.machine,
                self.describe(group)
            );
            let own = &self.copies[copy];
            let is_seat = before.in_sync.iter().any(|s| usize::from(s.node.0) == c.machine);
            assert!(
                !(own.disk.torn && !c.disk.torn && is_seat),
                "{} begins cold with torn bodies",
                own.machine
            );
        }
    }

    /// A copy says that the group has committed, or synced, so much.
    pub fn judge_reached(&mut self, copy: usize, seq: u64, is_synced: bool) {
        let c = &self.copies[copy];
        let process = c.process.as_ref().expect("it lives");
        let (group, machine) = (c.group, c.machine);
        let log = &process.log;
        let begin = if is_synced { process.judged.1 } else { process.judged.0 } + 1;
        let judged = &mut self.judge.groups[group];
        let of = if is_synced { &mut judged.synced } else { &mut judged.committed };
        let from = of.keys().next_back().copied().unwrap_or(0);
        for n in begin..=seq {
            let rec = log[n as usize - 1];
            if n > from {
                of.insert(n, rec);
            } else if let Some(was) = of.get(&n) {
                assert_eq!(
                    *was, rec,
                    "record {n} of group {group} at {machine} is another one than elsewhere"
                );
            }
        }
        let process = self.copies[copy].process.as_mut().expect("it lives");
        *if is_synced { &mut process.judged.1 } else { &mut process.judged.0 } = seq;
    }
}
