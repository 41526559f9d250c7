//! The primary sends its log to the members, hears what they have, and asks them to sync. Never changes who they are.
//!
//! Invariant: what is noted of a member it has said itself, by its present tenure and on its last link.

use std::collections::BTreeSet;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, NodeId, Position};
use atoll_proto::{EpochTable, GroupMessage};

use crate::epochs::Epochs;
use crate::event::GroupEffect;
use crate::leading::OWN_ROUND;
use crate::machine::Group;
use crate::progress::{Admission, GroupMember, WINDOW};

/// Records in a frame.
const FRAME: u64 = 256;
/// What is committed is told so late if nothing else is sent.
const IDLE_MS: u64 = 50;
/// It is told again after this: nobody acknowledges what is committed, and what told it may be lost.
const REPEAT_MS: u64 = 1_000;
/// What was sent and not acknowledged is asked for again after this.
const AGAIN_MS: u64 = 300;

impl Group {
    /// The island has decided records.
    pub(crate) fn on_decided(&mut self, seq: u64, out: &mut Vec<GroupEffect>) {
        let last = self.log.last().seq;
        let Some(epoch) = self.led().map(|leading| leading.epoch).filter(|_| seq > last) else { return };
        self.log.epochs.append(Position { epoch, seq });
        self.ship(out);
    }

    /// Sends members what they do not have, as far as their windows go.
    pub(crate) fn ship(&mut self, out: &mut Vec<GroupEffect>) {
        let (last, now) = (self.log.last().seq, self.now);
        let nodes: Vec<NodeId> =
            self.led().map_or(Vec::new(), |l| l.progress.members.keys().copied().collect());
        for node in nodes {
            loop {
                let member = &self.led().expect("it leads").progress.members[&node];
                let upto = last.min(member.sent + FRAME).min(member.received + WINDOW);
                if upto <= member.sent || member.lost {
                    break;
                }
                let after = member.sent;
                // The log's table begins behind that: only a `Join` says what the member has.
                if self.log.epochs.at(after).is_none() {
                    break;
                }
                self.send_frame(node, after, upto, out);
            }
        }
        let written = self.log.written;
        if let Some(leading) = self.leading()
            && last > written
        {
            leading.own_owes.asked(now, last);
        }
    }

    /// Sends the records behind `after` up to `upto`; without any it is a question.
    fn send_frame(&mut self, to: NodeId, after: u64, upto: u64, out: &mut Vec<GroupEffect>) {
        let (now, committed, synced, keep) = (self.now, self.committed, self.synced, self.keep);
        let (Some(after), ends) = (self.log.epochs.at(after), self.log.epochs.runs(after, upto)) else {
            return;
        };
        let ends = if upto > after.seq { ends } else { Vec::new() };
        let leading = self.leading().expect("it leads");
        let epoch = leading.epoch;
        let member = leading.progress.members.get_mut(&to).expect("a member is sent to");
        if upto > member.received {
            member.owes.asked(now, upto);
        }
        member.sent = member.sent.max(upto);
        member.told = (now, committed, synced);
        let message = GroupMessage::Append { epoch, after, ends, commit: committed, synced, keep };
        out.push(GroupEffect::Tell { to, message });
    }

    /// A member has linked anew: what was under way may be lost.
    pub(crate) fn member_linked(&mut self, node: NodeId, out: &mut Vec<GroupEffect>) {
        let Some(leading) = self.leading() else { return };
        if let Some(member) = leading.progress.members.get_mut(&node) {
            // What it has acknowledged in this epoch it has; at first nothing is known, and the last record is asked for.
            if member.received > 0 {
                member.sent = member.received;
            }
            let after = member.sent;
            self.send_frame(node, after, after, out);
        }
    }

    pub(crate) fn on_promised(&mut self, node: NodeId, sent_ms: u64) {
        let sent_ms = if planted(Bug::LeaseFromAnswer) { self.now } else { sent_ms };
        if let Some(member) = self.leading().and_then(|leading| leading.progress.members.get_mut(&node)) {
            member.promised_ms = member.promised_ms.max(Some(sent_ms));
        }
    }

    pub(crate) fn on_has(
        &mut self,
        from: NodeId,
        epoch: u32,
        tenure: u32,
        (written, synced): (u64, u64),
        (room, stuck, differs): (u64, bool, u32),
    ) {
        let (now, last, base) = (self.now, self.log.last().seq, self.log.epochs.table().base.seq);
        let Some(leading) = self.leading().filter(|leading| leading.epoch == epoch) else { return };
        let Some(member) = leading.progress.members.get_mut(&from).filter(|m| m.tenure == tenure && !m.lost)
        else {
            return;
        };
        // What ends before the own table begins cannot be compared with it: nothing was said.
        if written > last || written < base {
            return;
        }
        member.received = member.received.max(written);
        member.sent = member.sent.max(written);
        (member.room, member.stuck, member.differs) = (room, stuck, differs);
        if differs == 0 {
            member.has = member.has.max(written);
            member.synced = member.synced.max(synced.min(written));
            if !planted(Bug::OwesForEver) || member.has >= last {
                member.owes.paid(now, member.has, last);
            }
            let owed = member.owes_sync.upto().unwrap_or(0);
            member.owes_sync.paid(now, member.synced, owed);
        }
    }

    pub(crate) fn on_halted(&mut self, from: NodeId) {
        if let Some(member) = self.leading().and_then(|leading| leading.progress.members.get_mut(&from)) {
            member.halted = true;
        }
    }

    /// A copy wants to come back, or the records do not follow on its log.
    pub(crate) fn on_join(
        &mut self,
        from: NodeId,
        tenure: u32,
        checkpoint: u64,
        epochs: EpochTable,
        out: &mut Vec<GroupEffect>,
    ) {
        let (now, last, first) = (self.now, self.log.last().seq, self.log.first);
        let Some(theirs) = Epochs::new(epochs) else { return };
        let common = self.log.epochs.common(&theirs);
        let is_counted = self.counted().iter().any(|seat| seat.node == from);
        let Some(leading) = self.leading() else { return };
        let epoch = leading.epoch;
        if let Some(member) = leading.progress.members.get_mut(&from) {
            let is_less = common.is_none_or(|common| common.seq < member.received);
            if tenure < member.tenure && is_counted {
                return;
            }
            // A lower one is of a copy that was wiped twice within a second: what comes on an earlier link is not heard here.
            let has_lost = tenure != member.tenure || (is_less && !planted(Bug::LessIsCounted));
            if is_counted && has_lost {
                member.lost = true;
                return;
            }
            if has_lost {
                leading.progress.members.remove(&from);
            }
        }
        let both = common;
        let Some(common) = common.filter(|common| common.seq + 1 >= first && common.seq >= checkpoint) else {
            out.push(GroupEffect::Tell { to: from, message: GroupMessage::Released { epoch, common: both } });
            return;
        };
        let member = leading.progress.members.entry(from).or_insert_with(|| GroupMember {
            admission: Admission::Back,
            ..GroupMember::new(tenure, now, last)
        });
        member.sent = common.seq;
        member.joined = common.seq;
        member.halted = false;
        self.send_frame(from, common.seq, common.seq, out);
        self.ship(out);
    }

    pub(crate) fn on_synced_to(&mut self, from: NodeId, epoch: u32, tenure: u32, (number, seq): (u64, u64)) {
        let Some(leading) = self.leading().filter(|leading| leading.epoch == epoch) else { return };
        let member = leading.progress.members.get_mut(&from);
        if let Some(member) = member.filter(|member| member.tenure == tenure && !member.lost) {
            leading.rounds.done(number, seq, from);
            if number == OWN_ROUND {
                member.all_synced = member.all_synced.max(seq);
            }
        }
    }

    /// A round of syncs at all who are counted.
    pub(crate) fn sync_all(&mut self, number: u64, seq: u64, bodies: Vec<Ino>, out: &mut Vec<GroupEffect>) {
        let now = self.now;
        let counted: BTreeSet<NodeId> = self.counted().iter().map(|seat| seat.node).collect();
        let Some(leading) = self.leading() else { return };
        let epoch = leading.epoch;
        for (node, member) in &mut leading.progress.members {
            if counted.contains(node) {
                member.owes_sync.asked(now, seq);
                let message = GroupMessage::SyncTo { epoch, number, seq, bodies: bodies.clone() };
                out.push(GroupEffect::Tell { to: *node, message });
            }
        }
        leading.rounds.begin(now, number, seq, bodies.clone());
        out.push(GroupEffect::Sync { epoch, number, seq, bodies });
    }

    /// A round is done here. If it was asked for in an earlier epoch, it says nothing about a round of this one.
    pub(crate) fn on_sync_done(&mut self, epoch: u32, (number, seq): (u64, u64), out: &mut Vec<GroupEffect>) {
        let me = self.me.node;
        match self.leading() {
            Some(leading) if leading.epoch == epoch => leading.rounds.done(number, seq, me),
            Some(_) => {}
            None => self.say_synced(epoch, (number, seq), out),
        }
    }

    /// The own log has got on, or its disk is another one.
    pub(crate) fn own_log_moved(&mut self, out: &mut Vec<GroupEffect>) {
        let (now, written, last) = (self.now, self.log.written, self.log.last().seq);
        match self.leading() {
            Some(leading) => leading.own_owes.paid(now, written, last),
            None => {
                self.say_has(out);
                self.begin_syncs(out);
            }
        }
    }

    /// What was lost on the way, or is to be told although nothing else is sent.
    pub(crate) fn tell_again(&mut self, out: &mut Vec<GroupEffect>) {
        let (now, committed, synced) = (self.now, self.committed, self.synced);
        let counted: BTreeSet<NodeId> = self.counted().iter().map(|seat| seat.node).collect();
        let leading = self.leading().expect("it leads");
        let epoch = leading.epoch;
        let mut questions = Vec::new();
        for (node, member) in leading.progress.members.iter_mut().filter(|(_, member)| !member.lost) {
            let (at, c, s) = member.told;
            let is_behind = member.received < member.sent;
            let news = (c, s) != (committed, synced);
            let is_due = now >= at + REPEAT_MS || (news && now >= at + IDLE_MS);
            if is_due || (is_behind && now >= at + AGAIN_MS) {
                if is_behind && now >= at + AGAIN_MS && member.received > 0 {
                    member.sent = member.received;
                }
                questions.push((*node, member.sent));
            }
        }
        for (number, round) in leading.rounds.again(now, AGAIN_MS) {
            let members = leading
                .progress
                .members
                .iter()
                .filter(|(node, member)| counted.contains(node) && !member.lost && round.is_open(**node));
            out.extend(members.map(|(to, _)| {
                let (seq, bodies) = (round.seq, round.bodies.clone());
                GroupEffect::Tell { to: *to, message: GroupMessage::SyncTo { epoch, number, seq, bodies } }
            }));
        }
        for (node, after) in questions {
            self.send_frame(node, after, after, out);
        }
    }
}
