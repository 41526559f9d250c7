//! Islands with several copies: what a copy's group wants done and tells others, the beacons of machines, the control
//! store of the groups' records, and how clients and machines hear who leads.
//!
//! Whoever asks an island asks the machine of which it has heard last that it leads. What comes to a copy that does not lead
//! is answered with that.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::{IslandId, NodeId};
use atoll_disk::Disk as _;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Anew, Clock, GroupCopy, GroupSetup, Laying, SeatStore, Setup, Task};
use atoll_group::{Given, GroupEvent, Role, SwapOutcome};
use atoll_island::Event;
use atoll_proto::group::Revision;
use atoll_proto::{GroupRecord, Host, NodeLife, PeerMessage, Seat};

use crate::alike::snapshot_seq;
use crate::disks;
use crate::links::Party;
use crate::machines::{CopyId, IslandCopy, Opened};
use crate::net::{Frame, Out, ToClient, ToIsland, conn_of};
use crate::store::{ControlStore, DEADLINE_US, Faults, Outcome, Request, Ticket, Told};
use crate::thread::Thread;
use crate::world::{Happening, World};

/// Microseconds from one beacon of a machine to the next, about.
const BEAT_US: u64 = 150_000;
/// By how much that differs.
const BEAT_LATE_US: u64 = 10_000;
/// Microseconds that something takes a copy which takes long.
const TASK_US: u64 = 2_000;
/// Microseconds after which an island that nobody leads is away for the others.
pub(crate) const AWAY_US: u64 = 2_500_000;

/// Something that takes a copy long.
pub(crate) type GroupTask = Task<SimDisk>;
/// What a machine is told by the control store.
pub(crate) type StoreTold = Told<IslandId, GroupRecord>;

/// A beacon on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beat {
    conn: usize,
    generation: u64,
    island: IslandId,
    pub(crate) from: NodeLife,
    copy: CopyId,
    life: u64,
    pub(crate) to: NodeId,
    epoch: u32,
    /// When it left, by the boot clock of who has sent it.
    sent_ms: u64,
}

/// The control store, and who waits for what it is asked.
#[derive(Debug)]
pub(crate) struct Recorded {
    store: ControlStore<IslandId, GroupRecord>,
    asked: BTreeMap<Ticket, Asked>,
    planned_us: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    copy: CopyId,
    life: u64,
    number: u64,
    swaps: bool,
}

impl Recorded {
    /// The process of a machine has ended.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.store.forget(node);
    }
}

impl World {
    /// Whether islands have several copies.
    pub(crate) const fn has_groups(&self) -> bool {
        self.config.copies > 1
    }

    // ------------------------------------------------------------------ beginnings

    /// The first records of all groups.
    pub(crate) fn make_records(&mut self) {
        let mut store = ControlStore::new(self.config.seed ^ 0x73_746f_7265, Faults::NONE);
        for island in self.groups.ids() {
            let mut in_sync: Vec<Seat> =
                self.ring_of(island).into_iter().map(|node| Seat { node, tenure: 1 }).collect();
            in_sync.sort_unstable();
            let wanted = self.config.copies as u8;
            let record = GroupRecord { epoch: 0, primary: None, in_sync, wanted, power_cut: false };
            store.ask(0, NodeId(0), island, Request::Swap { expect: Revision::NONE, record });
        }
        _ = store.advance(DEADLINE_US);
        self.store = Some(Recorded { store, asked: BTreeMap::new(), planned_us: None });
    }

    /// The nodes of a group, in the order in which they lead.
    pub(crate) fn ring_of(&self, island: IslandId) -> Vec<NodeId> {
        if let Some(rings) = &self.rings {
            return rings.ring_of(island);
        }
        self.copies.iter().filter(|copy| copy.island == island).map(|copy| copy.node).collect()
    }

    /// The record of an island's group, as the store has it.
    pub(crate) fn record_of(&self, island: IslandId) -> Option<GroupRecord> {
        self.store.as_ref()?.store.record(island).map(|(_, record)| record.clone())
    }

    fn node_life(&self, node: NodeId) -> NodeLife {
        let machine = &self.machines[node];
        let host = Host { boot: machine.boot, inode: 100 + u64::from(node.0) };
        NodeLife { node, life: machine.life as u32, host }
    }

    /// A process begins: it has heard nothing yet.
    pub(crate) fn begin_process(&mut self, node: NodeId) {
        let machine = &mut self.machines[node];
        machine.leaders.clear();
        machine.fills = Arc::default();
        machine.ways.clear();
        let life = machine.life;
        let islands: Vec<IslandId> =
            self.copies_on(node).into_iter().map(|copy| self.copies[copy].island).collect();
        let recorded = self.recorded();
        islands.into_iter().for_each(|island| recorded.store.watch(node, island));
        let pause = self.rng.below(BEAT_US);
        self.schedule(pause, Happening::SendBeats { node, life });
    }

    fn recorded(&mut self) -> &mut Recorded {
        self.store.as_mut().expect("worlds with copies have one")
    }

    /// Opens one of several copies. False if nothing of its process goes on.
    pub(crate) fn open_member(&mut self, id: CopyId, mut setup: Setup) -> bool {
        let copy = &self.copies[id];
        let (island, node) = (copy.island, copy.node);
        let seat = copy.seat.clone().expect("a copy of a group has one");
        let mut seats = SeatStore::new(Arc::new(seat), b"seat".to_vec());
        // A copy that died before its first seat was saved has said nothing to anybody.
        let made = copy.made || matches!(seats.load(), Ok(Some(_)));
        setup.is_new = !made;
        let known = self.rings.as_ref().map(|rings| rings.known_to(node, island));
        let (ring, wanted) = known.unwrap_or_else(|| (self.ring_of(island), self.config.copies as u8));
        let group = atoll_group::Config {
            me: self.node_life(node),
            ring,
            wanted,
            tenure_min: u32::try_from(self.machines[node].clock.now().wall.secs).unwrap_or(0),
        };
        let fills = Arc::clone(&self.machines[node].fills);
        let group = GroupSetup { group, in_steps: true, fills };
        let clock: Arc<dyn Clock> = Arc::new(self.machines[node].clock.clone());
        let (disk, port) = (Arc::new(copy.disk.clone()), copy.port.clone());
        let nets = (Arc::new(port.clone()) as _, Arc::new(port) as _);
        // What cut records had changed differs until it is fetched, and the process may have died before that.
        let was_cut = disk.stat(b"log.cut").is_ok() || disk.stat(b"fill").is_ok();
        match GroupCopy::open(disk, seats, setup, group, nets, clock) {
            Ok((member, report)) => {
                let life = self.machines[node].life;
                self.note(format_args!("island {island} on {node}: life {life} begins, {report:?}"));
                let damaged = report.corrected.iter().find(|(_, what)| what.contains("Damaged"));
                if let Some((ino, what)) =
                    damaged.filter(|_| !was_cut && !self.machines[node].ailment.flipped)
                {
                    self.fail(format!("island {island} on {node}: body {ino} came back as {what}"));
                }
                self.life_ails(node);
                let copy = &mut self.copies[id];
                copy.torn_bytes = report.torn_bytes;
                copy.corrected = !report.corrected.is_empty();
                copy.made = made;
                copy.opened = Some(Opened::Member(member));
                if !self.open_tree(id) {
                    return false;
                }
                self.tick(id, life);
                true
            }
            Err(error) => self.not_opened(id, &error),
        }
    }

    /// Opens the plain tree of a copy over the engine that it has now, in worlds that lay them.
    pub(crate) fn open_tree(&mut self, id: CopyId) -> bool {
        let copy = &mut self.copies[id];
        let Some(engine) = copy.engine().filter(|engine| self.config.lays && !engine.is_filling()) else {
            return true;
        };
        if copy.laid_by.as_ref().is_some_and(|by| Arc::ptr_eq(by, &engine)) {
            return true;
        }
        copy.laying = None;
        copy.laid_by = Some(Arc::clone(&engine));
        match Laying::open(engine, true, true) {
            Ok(laying) => {
                self.copies[id].laying = Some(laying);
                true
            }
            Err(error) => {
                self.laying_failed(id, &error);
                self.after_effects(id);
                // If its disk fails, its process goes on without.
                self.copies[id].is_open()
            }
        }
    }

    // -------------------------------------------------------------- step by step

    /// Threads take what there is to do for a copy.
    pub(crate) fn take_tasks(&mut self, id: CopyId) {
        let IslandCopy { node, .. } = self.copies[id];
        while let Some(task) = self.copies[id].member().and_then(|member| member.take_task()) {
            match task {
                Task::Work(engine, work) => {
                    self.copies[id].threads.push(Thread { engine, work: *work, reads: None, came: None });
                }
                task => {
                    let machine = &self.machines[node];
                    let (life, slow_us) = (machine.life, machine.ailment.slow_us);
                    let pause = 1 + self.rng.below(TASK_US + slow_us);
                    self.schedule(pause, Happening::Perform { copy: id, life, task: Box::new(task) });
                }
            }
        }
    }

    /// A thread of a copy gets around to what takes long.
    pub(crate) fn perform_task(&mut self, id: CopyId, life: u64, task: GroupTask) {
        let IslandCopy { island, node, .. } = self.copies[id];
        if self.machines[node].life != life {
            return;
        }
        let Some(member) = self.copies[id].member().cloned() else { return };
        self.note(format_args!("island {island} on {node}: {task:?}"));
        let opens_again = matches!(task, Task::Reopen(_));
        self.injected.fills += u64::from(matches!(task, Task::Reopen(Anew::Filled)));
        if opens_again {
            self.note_given(id);
            let copy = &mut self.copies[id];
            (copy.laying, copy.laid_by) = (None, None);
        }
        member.perform(task);
        if !self.open_tree(id) {
            return;
        }
        self.has_gone_on(id);
    }

    /// Does the next of what must be done in order for a copy, if it is chosen.
    pub(crate) fn goes_in_order(&mut self, id: CopyId) -> bool {
        let copy = &self.copies[id];
        let Some(member) = copy.member().filter(|member| member.has_todo()).cloned() else { return false };
        if !copy.threads.is_empty() && self.rng.percent(40) {
            return false;
        }
        member.do_next();
        // It may have been opened anew, to lead.
        if self.open_tree(id) {
            self.has_gone_on(id);
        }
        true
    }

    /// What follows when something was told to a copy, or done for it.
    fn has_gone_on(&mut self, id: CopyId) {
        self.take_tasks(id);
        self.after_effects(id);
        self.judge_committed(id);
        self.let_read(id);
        self.keep_going(id);
    }

    /// A group's event.
    pub(crate) fn tell_member(&mut self, id: CopyId, event: GroupEvent) {
        if let Some(member) = self.copies[id].member().cloned() {
            member.tell(event);
            self.has_gone_on(id);
        }
    }

    /// What a copy has handed over, that is its group's.
    pub(crate) fn group_out(&mut self, id: CopyId, out: Out) {
        let IslandCopy { island, node, .. } = self.copies[id];
        match out {
            Out::Group { to, message, payload } => {
                let conn = self.conn_between(Party::Machine(node), to);
                if self.conns[conn].open {
                    let link = self.conns[conn].generation;
                    self.note(format_args!("island {island}: {node} to {to}: {message:?}"));
                    let message = ToIsland::Group { link, message, payload };
                    self.send_to_island(conn, Frame { island, message });
                }
            }
            Out::ReadRecord { number } => self.ask_store(id, number, Request::Read),
            Out::SwapRecord { number, expect, record } => {
                self.note(format_args!("island {island} on {node}: swaps {expect} for {record:?}"));
                self.ask_store(id, number, Request::Swap { expect: Revision(expect), record });
            }
            Out::Leads(Some(epoch)) => self.begins_to_lead(id, epoch),
            Out::Leads(None) => {
                if self.copies[id].leads.take().is_some() {
                    self.note_lost(id);
                    self.note(format_args!("island {island}: {node} leads it no more"));
                    self.says_who_leads(id, None);
                }
            }
            Out::Cut(to) => {
                self.injected.cuts += 1;
                self.note(format_args!("island {island} on {node}: cuts its log back to {to:?}"));
            }
            Out::Trouble(why) => self.note(format_args!("island {island} on {node}: TROUBLE {why}")),
            _ => unreachable!("it is no matter of a group"),
        }
    }

    // ------------------------------------------------------------------- messages

    /// An island sends to another one, as its machine knows the way.
    pub(crate) fn send_to_peer(&mut self, node: NodeId, to: IslandId, message: PeerMessage) {
        let Some(leader) = self.known_leader(Party::Machine(node), to) else { return };
        let frame = Frame { island: to, message: ToIsland::Peer(message) };
        if leader == node {
            let at = self.now_us() + self.rng.below(60);
            let machine = &mut self.machines[node];
            let at = at.max(machine.last_local_us);
            machine.last_local_us = at;
            let life = machine.life;
            return self.schedule_at(at, Happening::Local { node, life, frame: Box::new(frame) });
        }
        let conn = self.conn_between(Party::Machine(node), leader);
        if self.conns[conn].open {
            self.send_to_island(conn, frame);
        }
    }

    pub(crate) fn local(&mut self, node: NodeId, life: u64, frame: Frame<ToIsland>) {
        let copy = self.copy_at(frame.island, node).filter(|copy| self.copies[*copy].leads.is_some());
        let ToIsland::Peer(message) = frame.message else { return };
        if let Some(copy) = copy.filter(|_| self.machines[node].life == life) {
            self.begin(copy, None, Event::Peer(message));
        }
    }

    /// A machine takes a message: hands it back if it is for an island that it leads.
    pub(crate) fn for_leader(&mut self, conn: usize, frame: Frame<ToIsland>) -> Option<Frame<ToIsland>> {
        if !self.has_groups() {
            return Some(frame);
        }
        let (from, node, island) = (self.conns[conn].from, self.conns[conn].to, frame.island);
        let copy = self.copy_at(island, node);
        match (frame.message, from) {
            (ToIsland::Group { link, message, payload }, Party::Machine(from)) => {
                let id = copy?;
                if let Some(member) = self.copies[id].member().cloned() {
                    member.hear(from, link, message, &payload);
                    self.has_gone_on(id);
                }
                None
            }
            (ToIsland::Leads { epoch }, Party::Machine(from)) => {
                self.machine_hears(node, from, island, epoch);
                None
            }
            (message, _) if copy.is_some_and(|copy| self.copies[copy].leads.is_some()) => {
                Some(Frame { island, message })
            }
            (message, from) => {
                self.faults += 1;
                self.note(format_args!("island {island}: {node} does not lead it, and says so to {from}"));
                match (message, from) {
                    (ToIsland::Request { link, .. }, _) => {
                        let (conn, generation) = conn_of(link);
                        let message = ToClient::Leads { epoch: None };
                        self.send_to_client(conn, generation, Frame { island, message });
                    }
                    (_, Party::Machine(from)) => {
                        let back = self.conn_between(Party::Machine(node), from);
                        self.say_on(back, node, island, None);
                    }
                    _ => {}
                }
                None
            }
        }
    }

    /// A link from one machine has come up at another one, whose copies hear of it.
    pub(crate) fn group_linked(&mut self, from: NodeId, at: NodeId, link: u64) {
        let who = self.node_life(from);
        for copy in self.copies_on(at) {
            self.tell_member(copy, GroupEvent::Link { who, link });
        }
    }

    // -------------------------------------------------------------------- beacons

    /// A machine sends beacons. They take a way of their own, which is cut with that of other messages.
    pub(crate) fn send_beats(&mut self, node: NodeId, life: u64) {
        if self.machines[node].life != life {
            return;
        }
        if self.rings.is_some() && self.rng.percent(20) {
            self.care(node);
            if self.machines[node].life != life {
                return;
            }
        }
        for id in self.copies_on(node) {
            let Some(member) = self.copies[id].member().cloned() else { continue };
            let Some(epoch) = member.named() else { continue };
            for to in member.beacons_to() {
                let conn = self.conn_between(Party::Machine(node), to);
                let c = &self.conns[conn];
                if !c.open {
                    continue;
                }
                let beat = Beat {
                    conn,
                    generation: c.generation,
                    island: self.copies[id].island,
                    from: self.node_life(node),
                    copy: id,
                    life,
                    to,
                    epoch,
                    sent_ms: self.boot_ms(node),
                };
                let pause = self.delay();
                self.schedule(pause, Happening::Beat(beat));
            }
        }
        let pause = BEAT_US - BEAT_LATE_US + self.rng.below(2 * BEAT_LATE_US);
        self.schedule(pause, Happening::SendBeats { node, life });
    }

    /// A beacon arrives, unless its way was cut.
    pub(crate) fn beat(&mut self, beat: Beat) {
        let c = &self.conns[beat.conn];
        if !c.whole || c.generation != beat.generation || c.via.is_none() && c.deaf_to {
            return;
        }
        let copy = self.copy_at(beat.island, beat.to);
        let Some(member) = copy.and_then(|copy| self.copies[copy].member().cloned()) else { return };
        let given = member.beacon(beat.from, beat.epoch);
        let pause = self.delay();
        self.schedule(pause, Happening::Answered { beat, given });
    }

    /// The answer to a beacon arrives.
    pub(crate) fn beat_answered(&mut self, beat: &Beat, given: Given) {
        let c = &self.conns[beat.conn];
        let is_lost = !c.whole || c.generation != beat.generation || c.via.is_none() && c.deaf_from;
        if is_lost || self.machines[beat.from.node].life != beat.life {
            return;
        }
        let event = match given {
            Given::Promise => GroupEvent::Promised { node: beat.to, sent_ms: beat.sent_ms },
            Given::Refused(epoch) => GroupEvent::RefusedBeacon { epoch },
        };
        self.tell_member(beat.copy, event);
    }

    // ------------------------------------------------------------------- the store

    fn ask_store(&mut self, id: CopyId, number: u64, request: Request<GroupRecord>) {
        let IslandCopy { island, node, .. } = self.copies[id];
        let (now, life) = (self.now_us(), self.machines[node].life);
        let swaps = matches!(request, Request::Swap { .. });
        let recorded = self.recorded();
        let ticket = recorded.store.ask(now, node, island, request);
        recorded.asked.insert(ticket, Asked { copy: id, life, number, swaps });
        self.plan_store();
    }

    /// The store answers quickly, and nothing to it or from it is lost.
    pub(crate) fn mend_store(&mut self) {
        let now = self.now_us();
        let nodes: Vec<NodeId> = self.machines.ids().collect();
        let Some(recorded) = &mut self.store else { return };
        recorded.store.faults = Faults::NONE;
        nodes.into_iter().for_each(|node| recorded.store.cut(node, false, false));
        recorded.store.start(now);
        self.plan_store();
    }

    /// Messages of a machine to the store are lost from here on, or those to it, or both.
    pub(crate) fn cut_from_store(&mut self) {
        let (node, ways) = (self.any_machine(), self.rng.below(3));
        self.note(format_args!("machine {node}: is cut from the control store, {ways}"));
        self.injected.store_faults += 1;
        self.recorded().store.cut(node, ways != 1, ways != 0);
    }

    /// Whether a machine's copy of an island has asked the store to change the record, and waits for the answer.
    pub fn swaps(&self, node: NodeId, island: IslandId) -> bool {
        let (copy, life) = (self.copy_at(island, node), self.machines[node].life);
        let is_own = |asked: &Asked| asked.swaps && Some(asked.copy) == copy && asked.life == life;
        self.store.as_ref().is_some_and(|recorded| recorded.asked.values().any(is_own))
    }

    /// Messages of this machine to the store, and those to it, are lost from here on, or are not.
    pub fn cut_store(&mut self, node: NodeId, cut: bool) {
        self.recorded().store.cut(node, cut, cut);
    }

    /// What goes wrong with the store, or the ways to it, from here on.
    pub(crate) fn trouble_store(&mut self) {
        let node = self.any_machine();
        let (what, ways) = (self.rng.below(10), self.rng.below(4));
        let recorded = self.recorded();
        match what {
            0..4 => recorded.store.faults = Faults::ALL,
            4..7 => recorded.store.cut(node, ways & 1 == 0, ways & 2 == 0),
            _ => recorded.store.stop(),
        }
        self.note(format_args!("the control store: trouble {what} {ways}, machine {node}"));
        self.injected.store_faults += 1;
    }

    fn plan_store(&mut self) {
        let now = self.now_us();
        let recorded = self.recorded();
        if let Some(next) = recorded.store.next_us()
            && recorded.planned_us.is_none_or(|planned| next < planned)
        {
            recorded.planned_us = Some(next);
            self.schedule_at(next.max(now), Happening::Store);
        }
    }

    pub(crate) fn store_goes_on(&mut self) {
        let now = self.now_us();
        let recorded = self.recorded();
        if recorded.planned_us.is_some_and(|planned| planned <= now) {
            recorded.planned_us = None;
        }
        for told in recorded.store.advance(now) {
            let (Told::Answer { to: node, .. } | Told::Hint { to: node, .. }) = told;
            let life = self.machines[node].life;
            self.schedule(0, Happening::Told { node, life, told: Box::new(told) });
        }
        self.plan_store();
    }

    pub(crate) fn told_by_store(&mut self, node: NodeId, life: u64, told: StoreTold) {
        if self.machines[node].life != life {
            return;
        }
        match told {
            Told::Hint { key, .. } => {
                if let Some(copy) = self.copy_at(key, node) {
                    self.tell_member(copy, GroupEvent::RecordChanged);
                }
            }
            Told::Answer { ticket, outcome, .. } => {
                let Some(asked) = self.recorded().asked.remove(&ticket) else { return };
                if asked.life != life {
                    return;
                }
                let number = asked.number;
                let event = match outcome {
                    Outcome::Read(found) => {
                        let found = found.map_or((0, None), |(revision, record)| (revision.0, Some(record)));
                        GroupEvent::ReadDone { number, found: Some(found) }
                    }
                    Outcome::Unknown if !asked.swaps => GroupEvent::ReadDone { number, found: None },
                    Outcome::Unknown => GroupEvent::Swapped { number, outcome: SwapOutcome::Unknown },
                    Outcome::Conflict => GroupEvent::Swapped { number, outcome: SwapOutcome::Conflict },
                    Outcome::Done(revision) => {
                        GroupEvent::Swapped { number, outcome: SwapOutcome::Done(revision.0) }
                    }
                };
                self.tell_member(asked.copy, event);
            }
        }
    }

    // --------------------------------------------------------------------- judging

    /// No two copies of an island may tell others something, and none may while another one leads a later epoch.
    pub(crate) fn judge_groups(&mut self) {
        let may_tell = |copy: &&IslandCopy| copy.member().is_some_and(|member| member.may_tell());
        let mut last: Option<(IslandId, NodeId)> = None;
        let mut broken = None;
        for copy in self.copies.iter().filter(may_tell) {
            if let Some((island, node)) = last
                && island == copy.island
            {
                broken = Some(format!("island {island}: machines {node} and {} may tell", copy.node));
            }
            last = Some((copy.island, copy.node));
            let now = self.groups[copy.island].epoch;
            if let Some(own) = copy.leads.filter(|own| *own < now) {
                let (island, node) = (copy.island, copy.node);
                broken =
                    Some(format!("island {island}: {node} may tell in epoch {own}, and epoch {now} is led"));
            }
        }
        if let Some(broken) = broken {
            self.fail(broken);
        }
    }

    /// What a copy tells is right: no other copy of its island may tell something by now.
    pub(crate) fn judge_told(&mut self, id: CopyId) {
        let IslandCopy { island, node, .. } = self.copies[id];
        let may_tell = |copy: &IslandCopy| copy.member().is_some_and(|member| member.may_tell());
        let other =
            self.copies.iter().find(|copy| copy.island == island && copy.node != node && may_tell(copy));
        if let Some(other) = other.map(|copy| copy.node) {
            self.fail(format!("island {island}: {node} tells something, and {other} leads it"));
        }
    }

    /// Whatever a copy calls committed, all others that call so much committed have, too. A copy that has not heard of a power
    /// cut may still call committed what that has taken.
    fn judge_committed(&mut self, id: CopyId) {
        let copy = &self.copies[id];
        let (island, node) = (copy.island, copy.node);
        let Some(member) = copy.member() else { return };
        let group = &mut self.groups[island];
        let (known, epochs) = &group.committed;
        let broken = member.with_group(|own| {
            let (committed, synced) = own.reached();
            let own_epochs = own.epochs();
            if own_epochs.last().epoch < group.cut_in {
                return (None, None);
            }
            let both = committed.min(*known);
            let is_same = own_epochs.at(both).zip(epochs.at(both)).is_none_or(|(own, other)| own == other);
            let shown = format!("{:?}, where {:?} was known", own_epochs.at(both), epochs.at(both));
            let more = (committed > *known).then(|| (committed, own_epochs.clone()));
            if synced > group.synced.0 {
                group.synced = (synced, own_epochs.clone());
            }
            ((!is_same || synced > committed).then_some(shown), more)
        });
        let (broken, more) = broken;
        if let Some(more) = more {
            if let Some(engine) = copy.leading_engine()
                && engine.last().seq == more.0
            {
                // It has decided nothing since.
                group.time = engine.with_island(|island| island.state().meta().time).max(group.time);
            }
            group.committed = more;
        }
        if let Some(shown) = broken {
            self.fail(format!("island {island}: {node} calls {shown} committed"));
        }
    }

    /// Whether each island has all its copies in sync, and they follow its leader.
    pub(crate) fn are_groups_whole(&self) -> bool {
        self.unwhole_group().is_none()
    }

    /// What an island lacks of having all its copies in sync, which follow its leader; none if no island lacks anything.
    pub(crate) fn unwhole_group(&self) -> Option<String> {
        let recorded = self.store.as_ref()?;
        let wanted =
            self.rings.as_ref().map_or(Some(usize::from(self.config.copies)), |rings| rings.settled());
        let Some(wanted) = wanted else {
            return Some("not all machines know the newest rings, or a ring is too long".to_owned());
        };
        self.groups.ids().find_map(|island| {
            let leader = self.leader(island);
            let record = recorded.store.record(island).map(|(_, record)| record);
            let has_all = record.is_some_and(|record| {
                Some(record.epoch) == leader.leads
                    && record.in_sync.len() == wanted
                    && usize::from(record.wanted) == wanted
            });
            if !has_all {
                return Some(format!("island {island}: not all {wanted} copies are in sync"));
            }
            if !leader.member().is_some_and(|member| member.may_tell()) {
                return Some(format!("island {island}: its leader {} may not tell", leader.node));
            }
            let follows = |copy: &&IslandCopy| {
                copy.member().is_some_and(|member| match member.role() {
                    Role::Leading { begun, .. } => begun && copy.node == leader.node,
                    Role::Following { primary, .. } => primary == Some(leader.node),
                    _ => false,
                })
            };
            let mut kept = self.copies.iter().filter(|copy| copy.island == island && self.is_kept(copy));
            let other = kept.find(|copy| !follows(copy))?;
            Some(format!("island {island}: its copy on {} does not follow {}", other.node, leader.node))
        })
    }

    /// Whether an island has a copy that is up and in sync on another machine than these, also if what is on its way to the
    /// store is made first: one of these may have asked that the other copy no longer counts.
    pub(crate) fn keeps_whole(&self, island: IslandId, but: &[NodeId]) -> bool {
        let Some(recorded) = &self.store else { return false };
        let Some((_, record)) = recorded.store.record(island) else { return false };
        if recorded.store.is_changing(island) {
            return false;
        }
        self.copies.iter().filter(|copy| copy.island == island && !but.contains(&copy.node)).any(|copy| {
            // A disk that fails or has failed may not have what was synced.
            if self.machines[copy.node].ailment.fails {
                return false;
            }
            let tenure = copy.member().map(|member| member.with_group(|group| group.seat().tenure));
            tenure.is_some_and(|tenure| record.in_sync.contains(&Seat { node: copy.node, tenure }))
        })
    }

    /// The process of a copy's machine ends, and the copy's files are lost: all of them, or some.
    pub(crate) fn wipe(&mut self, id: CopyId, parts: u64) {
        let IslandCopy { island, node, .. } = self.copies[id];
        self.kill(node, Fault::ProcessDeath);
        self.note(format_args!("island {island} on {node}: is WIPED, {parts}"));
        self.injected.wiped += 1;
        let (disk, seat) = (disks::new(self.rng.bits(), false), disks::new(self.rng.bits(), false));
        let copy = &mut self.copies[id];
        // One that has said something was made, whatever is left of it.
        copy.made |= copy.seat.as_ref().is_some_and(|seat| seat.stat(b"seat").is_ok());
        if parts != 1 {
            copy.disk = disk;
        }
        if parts != 2 {
            copy.seat = Some(seat);
        }
    }

    /// What a copy has not done yet that its leader has; none if it has everything, or is the only one.
    pub(crate) fn lags(&self, copy: &IslandCopy) -> Option<String> {
        if !self.is_kept(copy) {
            return None;
        }
        let (member, leader) = (copy.member()?, self.leader(copy.island).member()?);
        let (last, wanted) =
            (member.with_group(|group| group.last()), leader.with_group(|group| group.last()));
        let (committed, _) = member.with_group(|group| group.reached());
        if member.has_todo() {
            Some(format!("its copy on {} has something to do", copy.node))
        } else if last != wanted {
            Some(format!("its copy on {} has {last:?} of {wanted:?}", copy.node))
        } else if committed != last.seq {
            Some(format!("its copy on {} has committed {committed} of {last:?}", copy.node))
        } else {
            None
        }
    }

    /// Whether the snapshots of all copies are as of their islands' last records.
    pub(crate) fn have_snapshots(&self) -> bool {
        self.copies.iter().filter(|copy| self.is_kept(copy)).all(|copy| {
            let (own, leader) = (copy.engine(), self.engine_of(copy.island));
            own.zip(leader).is_some_and(|(own, leader)| snapshot_seq(&own) == snapshot_seq(&leader))
        })
    }

    /// Where each group stands, for whoever looks at a failure.
    pub(crate) fn groups_shown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for copy in self.copies.iter() {
            let Some(member) = copy.member() else {
                lines.push(format!("island {} on {}: down", copy.island, copy.node));
                continue;
            };
            let (last, reached) = member.with_group(|group| (group.last(), group.reached()));
            let record = member.with_group(|group| format!("{:?}", group.record()));
            lines.push(format!(
                "island {} on {}: {:?}, last {last:?}, reached {reached:?}, may tell {}",
                copy.island,
                copy.node,
                member.role(),
                member.may_tell(),
            ));
            lines.push(record);
        }
        lines.extend(self.rings.iter().flat_map(|rings| rings.shown()));
        if let Some(recorded) = &self.store {
            lines.extend(recorded.store.records().map(|(island, record)| format!("{island}: {record:?}")));
        }
        lines
    }
}
