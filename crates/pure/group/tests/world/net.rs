//! The network of the small world: links with numbers, frames in order, beacons beside them; ways that are cut, and what is
//! lost, doubled and late.

use atoll_core::NodeId;
use atoll_group::{Given, GroupEvent};
use atoll_proto::{GroupMessage, NodeLife};

use super::{MS, What, World};

impl World {
    pub fn reaches(&self, a: usize, b: usize) -> bool {
        self.cuts.get(&(a, b)).is_none_or(|until| *until <= self.now)
    }

    /// A new link between two machines, for each group that they share.
    pub fn connect(&mut self, a: usize, b: usize) {
        if !self.reaches(a, b) || !self.reaches(b, a) {
            self.after(250 * MS, What::Reconnect { a, b });
            return;
        }
        if !self.machines[a].is_up || !self.machines[b].is_up {
            return;
        }
        for group in 0..self.groups.len() {
            let on = |world: &Self, machine| {
                world.groups[group].iter().copied().find(|copy| world.copies[*copy].machine == machine)
            };
            let (Some(at_a), Some(at_b)) = (on(self, a), on(self, b)) else { continue };
            self.counter += 1;
            let link = self.counter;
            for (copy, other) in [(at_a, b), (at_b, a)] {
                let who = self.who(other);
                self.greet(copy, who, link);
            }
        }
    }

    pub fn greet(&mut self, copy: usize, who: NodeLife, link: u64) {
        if let Some(process) = &mut self.copies[copy].process {
            process.links.insert(who.node, link);
            self.handle(copy, GroupEvent::Link { who, link });
        }
    }

    pub fn send(&mut self, copy: usize, to: NodeId, message: GroupMessage) {
        let (group, from) = (self.copies[copy].group, self.copies[copy].machine);
        let Some(process) = &self.copies[copy].process else { return };
        let Some(link) = process.links.get(&to).copied() else { return };
        let payload = match &message {
            GroupMessage::Append { after, ends, .. } => {
                let upto = ends.last().map_or(after.seq, |end| end.seq);
                process.log[after.seq as usize..upto as usize].to_vec()
            }
            _ => Vec::new(),
        };
        let target = self.copy_on(group, to);
        let to_machine = usize::from(to.0);
        if !self.reaches(from, to_machine) {
            return;
        }
        let from_node = NodeId(from as u16);
        let deliver = What::Deliver { to: target, from: from_node, link, message, payload };
        let mut at = self.now + 1 + self.rng.below(2 * MS);
        let chance = if self.is_calm { 0 } else { self.chances.loss };
        if self.rng.percent(chance) {
            match self.rng.below(4) {
                0 => return,
                1 => {
                    let later = at + self.rng.below(400 * MS);
                    self.at(later, deliver.clone());
                }
                // Not in order.
                2 => {
                    at += self.rng.below(200 * MS);
                    self.at(at, deliver);
                    return;
                }
                _ => at += self.rng.below(300 * MS),
            }
        }
        let last = self.last_on.entry((copy, target)).or_default();
        at = at.max(*last);
        *last = at;
        self.at(at, deliver);
    }

    pub fn send_beacons(&mut self, copy: usize) {
        let machine = self.copies[copy].machine;
        let sent_ms = self.clock(machine);
        let process = self.copies[copy].process.as_ref().expect("it lives");
        let Some(epoch) = process.promise.named(sent_ms) else { return };
        for node in process.group.beacons_to() {
            let to = self.copy_on(self.copies[copy].group, node);
            if self.reaches(machine, usize::from(node.0)) && !self.is_beacon_lost() {
                let pause = self.beacon_pause();
                let who = self.who(machine);
                self.after(pause, What::Beacon { to, from: copy, who, sent_ms, epoch });
            }
        }
    }

    fn is_beacon_lost(&mut self) -> bool {
        !self.is_calm && self.rng.percent(self.chances.loss)
    }

    fn beacon_pause(&mut self) -> u64 {
        let late = if !self.is_calm && self.rng.percent(3) { self.rng.below(900 * MS) } else { 0 };
        1 + self.rng.below(2 * MS) + late
    }

    /// A beacon is answered by a thread of its own: under the lock of the promise, without the machine.
    pub fn take_beacon(&mut self, to: usize, from: usize, who: NodeLife, sent_ms: u64, epoch: u32) {
        let machine = self.copies[to].machine;
        let now_ms = self.clock(machine);
        let Some(process) = &mut self.copies[to].process else { return };
        let given = process.promise.beacon(now_ms, who, epoch);
        let back = self.copies[from].machine;
        if given == Given::Promise {
            self.judge.promised();
        }
        if self.reaches(machine, back) && !self.is_beacon_lost() {
            let pause = self.beacon_pause();
            let node = NodeId(machine as u16);
            self.after(pause, What::Answer { to: from, life: who.life, node, sent_ms, given });
        }
    }
}
