//! The machines of a world, the copies of islands that they keep, and which copy leads each island. All three have
//! numbers of their own kind, so that none is taken for another.
//!
//! Without copies each island has one, on the machine with its number; only [`Layout::one_each`] knows that.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use atoll_core::{IslandId, NodeId, Stamp, Time};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Clock, Engine, Fills, GroupCopy, Laying};
use atoll_group::Epochs;
use atoll_island::Phase;
use atoll_links::BothWays;
use atoll_model::Rng;

use crate::clocks::{Paces, SimClock, TrueTime};
use crate::disks::{self, Ailment};
use crate::leaders::{Leader, Way};
use crate::net::Port;
use crate::thread::Thread;
use crate::world::World;

/// Machines of a world whose islands have several copies.
pub(crate) const MACHINES: u16 = 5;

/// The number of a copy, among those of all islands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopyId(u16);

/// A number of one kind of thing.
pub(crate) trait Number: Copy {
    fn of(index: usize) -> Self;
    fn index(self) -> usize;
}

macro_rules! numbers {
    ($($id:ident),*) => {
        $(impl Number for $id {
            fn of(index: usize) -> Self {
                Self(index as u16)
            }

            fn index(self) -> usize {
                usize::from(self.0)
            }
        })*
    };
}

numbers!(NodeId, IslandId, CopyId);

/// Things that are numbered from 0 on, each by its own kind of number.
#[derive(Debug, Clone)]
pub(crate) struct Numbered<N, T> {
    items: Vec<T>,
    number: PhantomData<N>,
}

impl<N: Number, T> Numbered<N, T> {
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = N> + use<N, T> {
        (0..self.items.len()).map(N::of)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
}

impl<N, T> FromIterator<T> for Numbered<N, T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { items: items.into_iter().collect(), number: PhantomData }
    }
}

impl<N: Number, T> Index<N> for Numbered<N, T> {
    type Output = T;

    fn index(&self, number: N) -> &T {
        &self.items[number.index()]
    }
}

impl<N: Number, T> IndexMut<N> for Numbered<N, T> {
    fn index_mut(&mut self, number: N) -> &mut T {
        &mut self.items[number.index()]
    }
}

/// A machine: its clocks, its disk as a device, and the process that serves from it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) clock: SimClock,
    /// Counts starts and ends of its process.
    pub(crate) life: u64,
    /// How it ends when its disk dies.
    pub(crate) fault: Fault,
    /// The life in which its process was last told to stop in order.
    pub(crate) stops_in: Option<u64>,
    /// Its process stays down until told otherwise.
    pub(crate) held_down: bool,
    /// It stands still until then, by true time; 0: it does not.
    pub(crate) frozen_until_us: u64,
    /// Counts its boots, from 1: each power cut is followed by one.
    pub(crate) boot: u128,
    /// What is wrong with its disk, for all copies on it.
    pub(crate) ailment: Ailment,
    /// What its process knows of its links with each machine.
    pub(crate) both: Numbered<NodeId, BothWays>,
    /// Who leads each island that has several copies, as its process has heard.
    pub(crate) leaders: BTreeMap<IslandId, Leader>,
    /// Whether these islands can be asked, as its own islands were told.
    pub(crate) ways: BTreeMap<IslandId, Way>,
    /// When the last message between two islands that it leads arrives.
    pub(crate) last_local_us: u64,
    /// Its copies that are filled, or fill others.
    pub(crate) fills: Arc<Fills>,
}

/// What a process has opened of a copy.
#[derive(Debug, Clone)]
pub(crate) enum Opened {
    /// The only copy of its island.
    Alone(Arc<Engine<SimDisk>>),
    /// One of several.
    Member(Arc<GroupCopy<SimDisk>>),
}

/// A copy of an island, on a machine.
#[derive(Debug)]
pub(crate) struct IslandCopy {
    pub(crate) island: IslandId,
    pub(crate) node: NodeId,
    /// Its folder on the machine's disk.
    pub(crate) disk: SimDisk,
    pub(crate) opened: Option<Opened>,
    /// The disk with its seat, beside its folder.
    pub(crate) seat: Option<SimDisk>,
    /// The epoch that it leads, as it has said.
    pub(crate) leads: Option<u32>,
    /// The engine over which its plain tree is laid, which may be an earlier one.
    pub(crate) laid_by: Option<Arc<Engine<SimDisk>>>,
    /// Its plain tree, in worlds that lay them.
    pub(crate) laying: Option<Laying<SimDisk>>,
    pub(crate) port: Port,
    pub(crate) threads: Vec<Thread>,
    pub(crate) going: bool,
    /// Threads that wait for its slow disk.
    pub(crate) waiting: usize,
    /// It was open once: nothing of it may be missing any more.
    pub(crate) made: bool,
    /// Its disk holds what was not written: it is not opened.
    pub(crate) refused: bool,
    /// What its last start has cut off its log.
    pub(crate) torn_bytes: u64,
    /// It has found bodies that were not what its rows say.
    pub(crate) corrected: bool,
    /// It has stopped serving, and its process is about to end.
    pub(crate) halted: bool,
    /// Its last life was stopped in order.
    pub(crate) in_order: bool,
}

impl IslandCopy {
    fn new(island: IslandId, node: NodeId, disk: SimDisk) -> Self {
        Self {
            island,
            node,
            disk,
            opened: None,
            seat: None,
            leads: None,
            laid_by: None,
            laying: None,
            port: Port::default(),
            threads: Vec::new(),
            going: false,
            waiting: 0,
            made: false,
            refused: false,
            torn_bytes: 0,
            corrected: false,
            halted: false,
            in_order: false,
        }
    }

    /// Its process has ended.
    pub(crate) fn close(&mut self) {
        (self.laying, self.opened, self.leads) = (None, None, None);
        self.laid_by = None;
        self.threads.clear();
        (self.going, self.waiting, self.halted) = (false, 0, false);
    }

    /// Its process has it.
    pub(crate) const fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// The engine that it has now: none if its process does not run, or opens it again.
    pub(crate) fn engine(&self) -> Option<Arc<Engine<SimDisk>>> {
        match self.opened.as_ref()? {
            Opened::Alone(engine) => Some(Arc::clone(engine)),
            Opened::Member(member) => member.engine(),
        }
    }

    /// The same, if it leads.
    pub(crate) fn leading_engine(&self) -> Option<Arc<Engine<SimDisk>>> {
        self.engine().filter(|engine| engine.leads())
    }

    /// Its place in a group, if it is one of several copies and open.
    pub(crate) const fn member(&self) -> Option<&Arc<GroupCopy<SimDisk>>> {
        match &self.opened {
            Some(Opened::Member(member)) => Some(member),
            _ => None,
        }
    }

    /// Whether one of its disks has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.disk.is_dead() || self.seat.as_ref().is_some_and(SimDisk::is_dead)
    }

    pub(crate) fn serves(&self) -> bool {
        self.engine().is_some_and(|engine| engine.phase() == Phase::Normal)
    }
}

/// The copies of one island.
#[derive(Debug)]
pub(crate) struct Group {
    /// The one that decides and answers.
    pub(crate) leader: CopyId,
    /// In this epoch, if it has several copies.
    pub(crate) epoch: u32,
    /// The last record that any copy has called committed, and the epochs of that copy's log.
    pub(crate) committed: (u64, Epochs),
    /// The same of what any copy has called synced.
    pub(crate) synced: (u64, Epochs),
    /// The last epoch that began with what a power cut had left; 0 if there was none.
    pub(crate) cut_in: u32,
    /// The last stamp that any life of any of them has given.
    pub(crate) given: Stamp,
    /// When it lost the last copy that led it.
    pub(crate) lost_us: Option<u64>,
    /// The last time of a change that was committed.
    pub(crate) time: Time,
}

impl Group {
    fn new(leader: CopyId) -> Self {
        Self {
            leader,
            epoch: 0,
            committed: Default::default(),
            synced: Default::default(),
            cut_in: 0,
            given: Stamp::default(),
            lost_us: None,
            time: Time::default(),
        }
    }
}

/// Who keeps what.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) machines: Numbered<NodeId, Machine>,
    pub(crate) copies: Numbered<CopyId, IslandCopy>,
    pub(crate) groups: Numbered<IslandId, Group>,
}

impl Layout {
    /// A machine for each island, which keeps the one copy of it.
    pub(crate) fn one_each(
        islands: u16,
        limits_of_product: bool,
        time: &Arc<TrueTime>,
        paces: &mut Paces,
        rng: &mut Rng,
    ) -> Self {
        let copy = |island| {
            IslandCopy::new(IslandId(island), NodeId(island), disks::new(rng.bits(), limits_of_product))
        };
        let group = |island| Group::new(CopyId(island));
        Self {
            machines: (0..islands).map(|_| Machine::new(time, paces, islands)).collect(),
            copies: (0..islands).map(copy).collect(),
            groups: (0..islands).map(group).collect(),
        }
    }
}

impl Layout {
    /// Five machines, or as few as one island needs, which keep so many copies of each island. Each machine has some.
    pub(crate) fn with_copies(
        islands: u16,
        copies: u16,
        time: &Arc<TrueTime>,
        paces: &mut Paces,
        rng: &mut Rng,
    ) -> Self {
        let machines = if islands == 1 { copies } else { MACHINES };
        let mut all = Vec::new();
        for island in 0..islands {
            for copy in 0..copies {
                let node = NodeId((island * machines / islands + copy) % machines);
                let disk = disks::new(rng.bits(), false);
                let seat = Some(disks::new(rng.bits(), false));
                all.push(IslandCopy { seat, ..IslandCopy::new(IslandId(island), node, disk) });
            }
        }
        let group = |island| Group::new(CopyId(island * copies));
        Self {
            machines: (0..machines).map(|_| Machine::new(time, paces, machines)).collect(),
            copies: all.into_iter().collect(),
            groups: (0..islands).map(group).collect(),
        }
    }
}

impl Machine {
    fn new(time: &Arc<TrueTime>, paces: &mut Paces, machines: u16) -> Self {
        Self {
            clock: SimClock::new(Arc::clone(time), paces.next()),
            life: 0,
            fault: Fault::ProcessDeath,
            stops_in: None,
            held_down: false,
            frozen_until_us: 0,
            boot: 1,
            ailment: Ailment::default(),
            both: (0..machines).map(|_| BothWays::default()).collect(),
            leaders: BTreeMap::new(),
            ways: BTreeMap::new(),
            last_local_us: 0,
            fills: Arc::default(),
        }
    }
}

impl World {
    // ------------------------------------------------------------ who keeps what

    /// The copy that decides and answers for an island. Whatever is sent to an island goes to it.
    pub(crate) fn leader(&self, island: IslandId) -> &IslandCopy {
        &self.copies[self.groups[island].leader]
    }

    /// The machine that leads an island.
    pub fn machine_of(&self, island: IslandId) -> NodeId {
        self.leader(island).node
    }

    /// The islands that a machine leads.
    pub(crate) fn led_by(&self, node: NodeId) -> Vec<IslandId> {
        self.groups.ids().filter(|island| self.machine_of(*island) == node).collect()
    }

    /// The copies on a machine that lead their islands.
    pub(crate) fn led_on(&self, node: NodeId) -> Vec<CopyId> {
        if self.has_groups() {
            let leads = |copy: &CopyId| self.copies[*copy].leads.is_some();
            return self.copies_on(node).into_iter().filter(leads).collect();
        }
        self.led_by(node).into_iter().map(|island| self.groups[island].leader).collect()
    }

    /// The copies on a machine.
    pub(crate) fn copies_on(&self, node: NodeId) -> Vec<CopyId> {
        self.copies.ids().filter(|copy| self.copies[*copy].node == node).collect()
    }

    /// The copy of an island on a machine.
    pub(crate) fn copy_at(&self, island: IslandId, node: NodeId) -> Option<CopyId> {
        let is = |copy: &IslandCopy| copy.island == island && copy.node == node;
        self.copies.ids().find(|copy| is(&self.copies[*copy]))
    }

    /// Milliseconds by a machine's boot clock, which does not begin anew with a process.
    pub fn boot_ms(&self, node: NodeId) -> u64 {
        self.machines[node].clock.boot_ms()
    }

    /// Whether the process of a machine runs.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.copies.iter().any(|copy| copy.node == node && copy.is_open())
    }

    /// The engine that leads an island, if it is up.
    pub(crate) fn engine_of(&self, island: IslandId) -> Option<Arc<Engine<SimDisk>>> {
        self.leader(island).leading_engine()
    }

    // ------------------------------------------------------------------- drawing

    /// One of the machines.
    pub(crate) fn any_machine(&mut self) -> NodeId {
        let machines = self.machines.iter().len();
        NodeId::of(self.rng.index(machines))
    }

    /// One of the machines, but not this one.
    pub(crate) fn any_other(&mut self, node: NodeId) -> NodeId {
        let machines = self.machines.iter().len();
        NodeId::of((node.index() + 1 + self.rng.index(machines - 1)) % machines)
    }

    /// One of the islands.
    pub(crate) fn any_island(&mut self) -> IslandId {
        let islands = self.groups.iter().len();
        IslandId::of(self.rng.index(islands))
    }
}
