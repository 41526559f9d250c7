//! One machine by hand: its events are written down, and what it wants done is looked at.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use atoll_core::{NodeId, Position};
use atoll_group::{
    Config, Epochs, Given, Group, GroupEffect, GroupEvent, LeadBy, OpenedLog, Promise, Role, SeatFile,
    SwapOutcome,
};
use atoll_proto::{EpochTable, GroupMessage, GroupRecord, Host, NodeLife, Seat};

pub const P: NodeId = NodeId(1);
pub const M: NodeId = NodeId(2);
pub const N: NodeId = NodeId(3);

pub const fn host(node: NodeId) -> Host {
    Host { boot: 7, inode: node.0 as u64 }
}

pub const fn life(node: NodeId, life: u32) -> NodeLife {
    NodeLife { node, life, host: host(node) }
}

pub const fn seat(node: NodeId, tenure: u32) -> Seat {
    Seat { node, tenure }
}

pub const fn at(epoch: u32, seq: u64) -> Position {
    Position { epoch, seq }
}

/// A record of an epoch that the fifth life of a node has begun.
pub fn record(epoch: u32, primary: NodeId, in_sync: &[Seat]) -> GroupRecord {
    let leader = life(primary, 5).as_primary(1);
    let (in_sync, wanted) = (in_sync.to_vec(), in_sync.len().max(2) as u8);
    GroupRecord { epoch, primary: Some(leader), in_sync, wanted, power_cut: false }
}

/// A whole log with these last records of its epochs.
pub fn log(ends: &[Position]) -> OpenedLog {
    let epochs = Epochs::new(EpochTable { base: Position::default(), ends: ends.to_vec() }).unwrap();
    OpenedLog { whole: true, epochs, checkpoint: 0, first: 1, last_body: 0, differs: 0 }
}

/// See the module.
pub struct One {
    pub group: Group,
    pub promise: Promise,
    pub now: u64,
    /// What was wanted since this was looked at last.
    pub out: Vec<GroupEffect>,
    links: u64,
    /// The revision of the record.
    pub revision: u64,
}

impl One {
    /// A copy on a node of a group of these nodes, in its fifth life, at time 10,000.
    pub fn new(node: NodeId, ring: &[NodeId], file: SeatFile, log: OpenedLog) -> Self {
        let config =
            Config { me: life(node, 5), ring: ring.to_vec(), wanted: ring.len() as u8, tenure_min: 1_000 };
        let file = SeatFile { host: file.host.or(Some(host(node))), ..file };
        let (mut promise, mut out, now) = (Promise::default(), Vec::new(), 10_000);
        let group = Group::new(config, file, log, &mut promise, now, &mut out);
        Self { group, promise, now, out, links: 0, revision: 10 }
    }

    /// A member of a group, whose log is this, with links to all others.
    pub fn member(node: NodeId, ring: &[NodeId], ends: &[Position]) -> Self {
        let mut one = Self::new(node, ring, SeatFile::of_a_new_member(), log(ends));
        for other in ring.iter().filter(|other| **other != node) {
            one.link(life(*other, 5));
        }
        one
    }

    pub fn event(&mut self, event: GroupEvent) {
        self.group.handle(&mut self.promise, self.now, event, &mut self.out);
    }

    pub fn link(&mut self, who: NodeLife) {
        self.links += 1;
        let link = self.links;
        self.event(GroupEvent::Link { who, link });
    }

    pub fn hear(&mut self, from: NodeId, message: GroupMessage) {
        let link = self.links + 100;
        self.event(GroupEvent::Heard { from, link, message });
    }

    /// Time passes, in steps of 50 ms.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.now = (self.now + 50).min(until);
            self.event(GroupEvent::Tick);
        }
    }

    /// Answers reads that were asked for.
    pub fn answer_reads(&mut self, record: &GroupRecord) {
        let number = |effect: &GroupEffect| match effect {
            GroupEffect::Read { number } => Some(*number),
            _ => None,
        };
        loop {
            let reads: Vec<u64> = self.out.iter().filter_map(number).collect();
            self.out.retain(|effect| number(effect).is_none());
            if reads.is_empty() {
                return;
            }
            for number in reads {
                let found = Some((self.revision, Some(record.clone())));
                self.event(GroupEvent::ReadDone { number, found });
            }
        }
    }

    /// The record was read.
    pub fn knows(&mut self, record: &GroupRecord) {
        self.event(GroupEvent::RecordChanged);
        self.answer_reads(record);
    }

    /// What was swapped last, and its number.
    pub fn swap(&mut self) -> Option<(u64, u64, GroupRecord)> {
        let swap = self.out.iter().rposition(|effect| matches!(effect, GroupEffect::Swap { .. }))?;
        match self.out.remove(swap) {
            GroupEffect::Swap { number, expect, record } => Some((number, expect, record)),
            _ => None,
        }
    }

    pub fn swapped(&mut self, number: u64, outcome: SwapOutcome) {
        if let SwapOutcome::Done(revision) = outcome {
            self.revision = revision;
        }
        self.event(GroupEvent::Swapped { number, outcome });
    }

    /// A beacon comes, and is answered.
    pub fn beacon(&mut self, from: NodeId, epoch: u32) -> Given {
        self.promise.beacon(self.now, life(from, 5), epoch)
    }

    /// A node promises on a beacon that leaves now.
    pub fn promised(&mut self, node: NodeId) {
        let sent_ms = self.now;
        self.event(GroupEvent::Promised { node, sent_ms });
    }

    pub fn role(&self) -> Role {
        self.group.role(&self.promise)
    }

    pub fn leads(&mut self) -> Option<(u32, LeadBy)> {
        let leads = self.out.iter().find_map(|effect| match effect {
            GroupEffect::Lead { epoch, by, .. } => Some((*epoch, *by)),
            _ => None,
        });
        self.out.retain(|effect| !matches!(effect, GroupEffect::Lead { .. }));
        leads
    }

    /// The member leads: nothing was heard, the read shows this record, and the swap is done.
    pub fn lead_after(&mut self, before: &GroupRecord) -> u32 {
        self.knows(before);
        self.pass(1_600);
        self.answer_reads(before);
        let (number, expect, _) = self.swap().expect("a claim");
        self.swapped(number, SwapOutcome::Done(expect + 1));
        let (epoch, _) = self.leads().expect("it leads");
        epoch
    }

    /// Records are decided up to this one, and written here.
    pub fn decide(&mut self, seq: u64) {
        self.event(GroupEvent::Decided { seq });
        self.event(GroupEvent::Written { seq, last_body: 0 });
    }

    /// A member has so much of an epoch.
    pub fn has(&mut self, from: NodeId, epoch: u32, tenure: u32, written: u64, synced: u64) {
        let (room, stuck, differs) = (u64::MAX, false, 0);
        self.hear(from, GroupMessage::Has { epoch, tenure, written, synced, room, stuck, differs });
    }

    /// A member has synced all bodies up to a record.
    pub fn all_synced(&mut self, from: NodeId, epoch: u32, tenure: u32, seq: u64) {
        self.hear(from, GroupMessage::SyncedTo { epoch, tenure, number: 0, seq });
    }

    /// Takes what was told to a node.
    pub fn told(&mut self, node: NodeId) -> Vec<GroupMessage> {
        let mut told = Vec::new();
        self.out.retain(|effect| match effect {
            GroupEffect::Tell { to, message } if *to == node => {
                told.push(message.clone());
                false
            }
            _ => true,
        });
        told
    }

    pub fn committed(&self) -> u64 {
        self.group.reached().0
    }

    pub fn synced(&self) -> u64 {
        self.group.reached().1
    }

    /// The last tenure that was written down.
    pub fn saved(&self) -> Option<SeatFile> {
        self.out.iter().rev().find_map(|effect| match effect {
            GroupEffect::SaveSeat(seat) => Some(seat.clone()),
            _ => None,
        })
    }

    pub fn wants(&self, wanted: impl Fn(&GroupEffect) -> bool) -> bool {
        self.out.iter().any(wanted)
    }
}

/// A frame with these records.
pub fn append(epoch: u32, after: Position, ends: &[Position], commit: u64) -> GroupMessage {
    GroupMessage::Append { epoch, after, ends: ends.to_vec(), commit, synced: 0, keep: 1 }
}

pub const fn standing(last: Position, tenure: u32, void: bool, cut: bool) -> GroupMessage {
    GroupMessage::Standing { last, tenure, void, cut, asks: false }
}

pub fn join(tenure: u32, ends: &[Position]) -> GroupMessage {
    let epochs = EpochTable { base: Position::default(), ends: ends.to_vec() };
    GroupMessage::Join { tenure, checkpoint: 0, epochs }
}

pub fn two() -> Vec<Seat> {
    vec![seat(P, 1), seat(M, 1)]
}

pub fn three() -> Vec<Seat> {
    vec![seat(P, 1), seat(M, 1), seat(N, 1)]
}

/// The primary of a group of two or three, whose barrier (record 11 of epoch 8) is committed.
pub fn primary(nodes: &[NodeId]) -> One {
    let mut p = One::member(P, nodes, &[at(7, 10)]);
    let seats = nodes.iter().map(|node| seat(*node, 1)).collect::<Vec<_>>();
    // Its fourth life has led epoch 7.
    let before = GroupRecord { primary: Some(life(P, 4).as_primary(1)), ..record(7, P, &seats) };
    assert_eq!(p.lead_after(&before), 8);
    p.decide(11);
    for node in nodes.iter().filter(|node| **node != P) {
        p.promised(*node);
        p.has(*node, 8, 1, 11, 0);
    }
    assert_eq!(p.committed(), 11);
    p.out.clear();
    p
}

/// Keeps members alive while time passes.
pub fn pass_with(p: &mut One, ms: u64, nodes: &[NodeId]) {
    for _ in 0..ms / 50 {
        nodes.iter().for_each(|node| p.promised(*node));
        p.pass(50);
    }
}
