//! Copies that let another one lead, because they are told to: an island that is moved, and a process that stops in order.

use std::sync::Arc;

use atoll_core::NodeId;
use atoll_disk::sim::Fault;
use atoll_group::{GroupEvent, Role};

use crate::machines::{CopyId, IslandCopy};
use crate::world::{Happening, World};

/// A process that stops waits so long for other copies to lead, and looks so often.
const LEAVE_US: u64 = 1_000_000;
const LOOK_US: u64 = 5_000;

impl World {
    /// An island shall be led on another machine: by one that is named, which may be none of its group's, or by whichever can.
    pub(crate) fn move_island(&mut self) {
        let (island, node) = (self.any_island(), self.any_machine());
        let to = self.rng.percent(70).then_some(node);
        self.note(format_args!("island {island}: is to be moved to {to:?}"));
        self.injected.moves += 1;
        self.tell_member(self.groups[island].leader, GroupEvent::Leave { to });
    }

    /// The process of a machine stops in order: it leads no longer, and then ends.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.note(format_args!("machine {node}: stops in order"));
        let life = self.machines[node].life;
        self.machines[node].stops_in = Some(life);
        for copy in self.copies_on(node) {
            self.tell_member(copy, GroupEvent::Leave { to: None });
        }
        let until_us = self.now_us() + LEAVE_US;
        self.schedule(LOOK_US, Happening::Leaves { node, life, until_us });
    }

    /// Whether another copy leads is looked at again. If it does, or none does in time, the process ends.
    pub(crate) fn leaves(&mut self, node: NodeId, life: u64, until_us: u64) {
        if self.machines[node].life != life {
            return;
        }
        let copies = self.copies_on(node);
        let leads = |copy: &CopyId| {
            let member = self.copies[*copy].member();
            member.is_some_and(|member| matches!(member.role(), Role::Leading { .. }))
        };
        if self.now_us() < until_us && copies.iter().any(leads) {
            return self.schedule(LOOK_US, Happening::Leaves { node, life, until_us });
        }
        if !self.machines[node].ailment.excuses() {
            for copy in copies {
                self.stop_member(copy);
            }
        }
        self.kill(node, Fault::ProcessDeath);
    }

    /// What its threads have begun they do, its tree is laid, and what it has is synced.
    fn stop_member(&mut self, id: CopyId) {
        let IslandCopy { island, node, .. } = self.copies[id];
        let Some(member) = self.copies[id].member().cloned() else { return };
        for thread in &mut self.copies[id].threads {
            while !thread.is_done() {
                thread.go_on(false);
            }
        }
        member.end();
        while member.do_next() {}
        while let Some(task) = member.take_task() {
            member.perform(task);
            while member.do_next() {}
        }
        if self.copies[id].is_dead() {
            return;
        }
        let copy = &mut self.copies[id];
        let is_current = copy.engine().zip(copy.laid_by.clone()).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
        if let Some(laying) = copy.laying.as_mut().filter(|_| is_current) {
            match laying.drain() {
                Ok(report) => self.judge_laid(id, &report.conflicts, false),
                Err(error) => self.laying_failed(id, &error),
            }
        }
        let stopped = member.stop();
        // Its links have ended before that.
        drop(self.copies[id].port.take());
        self.injected.stops += u64::from(stopped.is_ok());
        self.note(format_args!("island {island} on {node}: stops, {stopped:?}"));
    }
}
