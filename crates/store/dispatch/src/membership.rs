//! The place of a copy in its group: the group's machine behind one lock, and what it wants done, in order. Never performs
//! anything.
//!
//! It outlives the engines of its copy. Events of an engine that was closed since do not count.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use atoll_core::{NodeId, Position};
use atoll_group::{Config, Given, Group, GroupEffect, GroupEvent, OpenedLog, Promise, Role, SeatFile};
use atoll_proto::NodeLife;
use atoll_proto::control::GroupStatus;

use crate::engine::Clock;
use crate::ship::Shipped;

/// What is to be done for a copy, each before the next one is begun.
#[derive(Debug)]
pub(crate) enum Todo {
    /// An effect of the machine; `Take` comes with its records.
    Effect(GroupEffect),
    /// Take these records behind this one.
    Take {
        /// The last record that is there.
        after: Position,
        /// The last one that the frame was to have.
        upto: Position,
        records: Vec<Shipped>,
    },
    /// Change the rows as the records say that were taken.
    Apply,
}

/// Whose event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Of the engine with this number.
    Engine(u64),
    /// Of the copy itself, of others, or of time.
    Copy,
}

struct Machine {
    group: Group,
    todo: VecDeque<Todo>,
    /// The number of the engine whose events count.
    engine: u64,
    /// A thread does what is to be done.
    is_busy: bool,
}

/// See the module.
pub(crate) struct Membership {
    machine: Mutex<Machine>,
    /// Shared with the thread of beacons, which takes no other lock.
    promise: Mutex<Promise>,
    clock: Arc<dyn Clock>,
    /// Until then the island may tell others, by the boot clock; 0: nothing may leave it.
    lease_until: AtomicU64,
    /// Changes may be decided.
    decides: AtomicBool,
    /// Bytes that all counted disks have.
    room: AtomicU64,
    /// Records up to this one are synced at every member.
    synced: AtomicU64,
    /// The log is kept from this record on, for copies that are away.
    keep: AtomicU64,
    /// The first record that a copy still needs which comes back; `u64::MAX` if there is none.
    needed: AtomicU64,
}

impl Membership {
    /// Of a copy whose log was opened.
    pub(crate) fn new(config: Config, seat: SeatFile, log: OpenedLog, clock: Arc<dyn Clock>) -> Self {
        let (mut promise, mut out) = (Promise::default(), Vec::new());
        let group = Group::new(config, seat, log, &mut promise, clock.boot_ms(), &mut out);
        let todo = out.into_iter().map(Todo::Effect).collect();
        let membership = Self {
            machine: Mutex::new(Machine { group, todo, engine: 0, is_busy: false }),
            promise: Mutex::new(promise),
            clock,
            lease_until: AtomicU64::new(0),
            decides: AtomicBool::new(false),
            room: AtomicU64::new(u64::MAX),
            synced: AtomicU64::new(0),
            keep: AtomicU64::new(0),
            needed: AtomicU64::new(u64::MAX),
        };
        membership.show(&membership.lock().group);
        membership
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // As in the engine: nothing may go on with a broken machine.
        self.machine.lock().expect("the group's machine has panicked")
    }

    fn promise(&self) -> MutexGuard<'_, Promise> {
        self.promise.lock().expect("no panic while it is held")
    }

    /// Takes an event to the machine. A frame's records are `records`.
    pub(crate) fn handle(&self, source: Source, event: GroupEvent, mut records: Vec<Shipped>) {
        let mut machine = self.lock();
        if matches!(source, Source::Engine(number) if number != machine.engine) {
            return;
        }
        let mut out = Vec::new();
        let mut promise = self.promise();
        machine.group.handle(&mut promise, self.clock.boot_ms(), event, &mut out);
        drop(promise);
        // The door is shut before anybody is told that another one may lead.
        self.show(&machine.group);
        for effect in out {
            match effect {
                GroupEffect::Take { after, upto } => {
                    let mut records = std::mem::take(&mut records);
                    records.retain(|shipped| (after.seq + 1..=upto.seq).contains(&shipped.position.seq));
                    machine.todo.push_back(Todo::Take { after, upto, records });
                }
                GroupEffect::Close | GroupEffect::CutTo { .. } | GroupEffect::Refill => {
                    machine.engine += 1;
                    machine.todo.push_back(Todo::Effect(effect));
                }
                _ => machine.todo.push_back(Todo::Effect(effect)),
            }
        }
    }

    /// What others may ask without the machine's lock.
    fn show(&self, group: &Group) {
        self.decides.store(group.may_decide(), Ordering::Release);
        self.room.store(group.room(), Ordering::Release);
        let (_, synced) = group.reached();
        self.synced.store(synced, Ordering::Release);
        self.keep.store(group.keep(), Ordering::Release);
        self.needed.store(group.needed_from().unwrap_or(u64::MAX), Ordering::Release);
        self.lease_until.store(group.lease_until().unwrap_or(0), Ordering::Release);
    }

    /// Puts this behind all that is to be done.
    pub(crate) fn push(&self, todo: Todo) {
        self.lock().todo.push_back(todo);
    }

    /// What is to be done next, if no other thread is at it. [`Membership::done`] must follow.
    pub(crate) fn take(&self) -> Option<Todo> {
        let mut machine = self.lock();
        if machine.is_busy {
            return None;
        }
        let next = machine.todo.pop_front();
        machine.is_busy = next.is_some();
        next
    }

    pub(crate) fn done(&self) {
        self.lock().is_busy = false;
    }

    /// Whether something is to be done, by whichever thread.
    pub(crate) fn has_todo(&self) -> bool {
        !self.lock().todo.is_empty()
    }

    /// The number of the engine whose events count.
    pub(crate) fn engine(&self) -> u64 {
        self.lock().engine
    }

    /// Whether what was read of the rows so far may be told: this copy leads, and no other one can.
    pub(crate) fn may_tell(&self) -> bool {
        match self.lease_until.load(Ordering::Acquire) {
            0 => false,
            u64::MAX => true,
            until => self.clock.boot_ms() < until,
        }
    }

    /// Whether changes may be decided: there are copies enough, and they keep up.
    pub(crate) fn may_decide(&self) -> bool {
        self.decides.load(Ordering::Acquire)
    }

    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Acquire)
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn keep(&self) -> u64 {
        self.keep.load(Ordering::Acquire)
    }

    pub(crate) fn needed(&self) -> u64 {
        self.needed.load(Ordering::Acquire)
    }

    /// The epoch that a beacon names now.
    pub(crate) fn named(&self) -> Option<u32> {
        self.promise().named(self.clock.boot_ms())
    }

    /// A beacon has come: its answer, which may leave when this returns.
    pub(crate) fn beacon(&self, from: NodeLife, epoch: u32) -> Given {
        self.promise().beacon(self.clock.boot_ms(), from, epoch)
    }

    pub(crate) fn role(&self) -> Role {
        let machine = self.lock();
        let promise = self.promise();
        machine.group.role(&promise)
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let machine = self.lock();
        let promise = self.promise();
        machine.group.status(&promise)
    }

    /// Looks at the machine.
    pub(crate) fn with_group<R>(&self, look: impl FnOnce(&Group) -> R) -> R {
        look(&self.lock().group)
    }

    /// The nodes to which beacons go.
    pub(crate) fn beacons_to(&self) -> Vec<NodeId> {
        self.lock().group.beacons_to()
    }
}
