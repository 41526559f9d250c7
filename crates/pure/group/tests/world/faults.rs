//! What goes wrong in the small world, by chance.

use atoll_core::NodeId;
use atoll_group::GroupEvent;
use atoll_proto::{Host, NodeLife};

use super::{MACHINES, MS, What, World};

impl World {
    /// The process of a machine dies.
    pub fn kill(&mut self, machine: usize) {
        if !self.machines[machine].is_up {
            return;
        }
        self.say(|| format!("machine {machine} is killed"));
        self.machines[machine].is_up = false;
        self.machines[machine].crash_in = None;
        for copy in self.copies.iter_mut().filter(|copy| copy.machine == machine) {
            copy.process = None;
        }
        let pause = match self.rng.below(3) {
            0 => 30 * MS + self.rng.below(100 * MS),
            1 => 30 * MS + self.rng.below(1_000 * MS),
            _ => 30 * MS + self.rng.below(5_000 * MS),
        };
        let pause = if self.is_calm { 50 * MS } else { pause };
        self.after(pause, What::Start { machine });
    }

    /// A machine loses its power: what was not synced may be gone.
    pub fn cut_power(&mut self, machine: usize) {
        self.say(|| format!("machine {machine} loses its power"));
        self.kill(machine);
        self.machines[machine].boot += 1_000;
        self.machines[machine].disk_until = 0;
        self.machines[machine].frozen_until = 0;
        for copy in 0..self.copies.len() {
            if self.copies[copy].machine != machine {
                continue;
            }
            let disk = &self.copies[copy].disk;
            let unsynced = disk.log.len() - disk.synced;
            let keep = disk.synced + self.rng.index(unsynced + 1);
            let noted = unsynced == 0 && self.rng.percent(50);
            let boot = self.machines[machine].boot;
            let disk = &mut self.copies[copy].disk;
            disk.log.truncate(keep);
            if noted && disk.boot + 1_000 == boot {
                disk.boot = boot;
            }
        }
    }

    pub fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        let pause = 20 * MS + self.rng.below(self.chances.pause);
        self.after(pause, What::Fault);
        let c = self.chances;
        let chances = [
            c.kill,
            c.power,
            c.power_of_all,
            c.freeze,
            c.cut,
            c.store,
            c.disk,
            c.clone,
            c.order,
            c.put_back,
            c.crash,
        ];
        let mut n = self.rng.below(chances.iter().sum());
        let which = chances.iter().position(|chance| {
            let is_it = n < *chance;
            n = n.saturating_sub(*chance);
            is_it
        });
        let machine = self.rng.index(MACHINES);
        let length = match self.rng.below(3) {
            0 => self.rng.below(300 * MS),
            1 => self.rng.below(2_000 * MS),
            _ => self.rng.below(6_000 * MS),
        };
        let until = self.now + length;
        match which.expect("one of them") {
            0 => self.kill(machine),
            1 => self.cut_power(machine),
            2 => {
                // One after the other within a moment, or all at once.
                (0..MACHINES).for_each(|machine| self.cut_power(machine));
            }
            3 => {
                self.say(|| format!("machine {machine} stands still until {}", until / MS));
                self.machines[machine].frozen_until = until;
            }
            4 => self.cut_ways(machine, until),
            5 if self.rng.percent(50) => {
                self.say(|| format!("the store is away until {}", until / MS));
                self.store.away_until = until;
            }
            5 => {
                let way = if self.rng.percent(50) { (machine, MACHINES) } else { (MACHINES, machine) };
                self.say(|| format!("way {way:?} is cut until {}", until / MS));
                self.cuts.insert(way, until);
            }
            6 => {
                self.say(|| format!("the disk of {machine} sleeps until {}", until / MS));
                self.machines[machine].disk_until = until;
            }
            7 => self.clone_greets(machine),
            8 => self.order(),
            9 => self.put_back(),
            _ => self.machines[machine].crash_in = Some(1 + self.rng.below(60)),
        }
    }

    fn cut_ways(&mut self, machine: usize, until: u64) {
        let other = (machine + 1 + self.rng.index(MACHINES - 1)) % MACHINES;
        let ways = match self.rng.below(3) {
            0 => vec![(machine, other)],
            1 => vec![(machine, other), (other, machine)],
            _ => (0..=MACHINES).flat_map(|o| [(machine, o), (o, machine)]).collect(),
        };
        self.say(|| format!("ways {ways:?} are cut until {}", until / MS));
        for (a, b) in ways {
            self.cuts.insert((a, b), until);
            if a < MACHINES && b < MACHINES && a != b {
                self.at(until, What::Reconnect { a, b });
            }
        }
    }

    /// A second machine with the data directory of one greets all others by a higher life; then the first one is back.
    fn clone_greets(&mut self, machine: usize) {
        self.say(|| format!("a clone of machine {machine} greets"));
        let host = Host { boot: 77, inode: self.machines[machine].inode };
        let who = NodeLife { node: NodeId(machine as u16), life: self.machines[machine].life + 1, host };
        for copy in 0..self.copies.len() {
            let c = &self.copies[copy];
            if c.machine != machine && c.ring.contains(&who.node) {
                self.counter += 1;
                let link = self.counter;
                self.greet(copy, who, link);
            }
        }
        for other in 0..MACHINES {
            if other != machine {
                self.after(100 * MS, What::Reconnect { a: machine, b: other });
            }
        }
    }

    /// The store is restored from a copy. Whoever has not seen the present epoch could not know.
    fn put_back(&mut self) {
        let group = self.rng.index(self.groups.len());
        let epoch = self.store.records[group].1.epoch;
        let all_know = self.groups[group].iter().all(|copy| self.copies[*copy].disk.seat.seen >= epoch);
        let which = self.rng.below(1_000);
        if all_know {
            self.say(|| format!("the store's record of group {group} is put back"));
            self.store.put_back(group, which);
        }
    }

    /// An administrator moves an island, or stops a node in order.
    fn order(&mut self) {
        let group = self.rng.index(self.groups.len());
        let to = self.rng.percent(50).then(|| {
            let copies = &self.groups[group];
            NodeId(self.copies[copies[self.rng.index(copies.len())]].machine as u16)
        });
        for copy in self.groups[group].clone() {
            if self.copies[copy].process.as_ref().is_some_and(|process| process.is_leading) {
                self.say(|| format!("group {group} shall be led by {to:?}"));
                self.handle(copy, GroupEvent::Leave { to });
            }
        }
    }

    /// Everything is as it should be from now on.
    pub fn calm(&mut self) {
        self.say(|| "all faults end".to_owned());
        self.is_calm = true;
        self.store.mend();
        self.cuts.clear();
        self.store.away_until = 0;
        for machine in 0..MACHINES {
            self.machines[machine].frozen_until = 0;
            self.machines[machine].disk_until = 0;
            self.machines[machine].crash_in = None;
            self.after(30 * MS, What::Start { machine });
            for other in 0..machine {
                self.after(100 * MS, What::Reconnect { a: machine, b: other });
            }
        }
    }
}
