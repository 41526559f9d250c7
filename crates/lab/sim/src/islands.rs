//! Processes of machines, and in them the copies of islands: started, ticked, stepped from effect to effect, killed.

use std::sync::Arc;

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Clock, Engine, Laying, OpenError, Report, Setup};
use atoll_group::{Group, Role};
use atoll_island::{Event, MigrationConfig};
use atoll_links::BothWays;
use atoll_proto::DaemonLife;
use atoll_view::{Conflict, Why};

use crate::links::Party;
use crate::machines::{CopyId, IslandCopy, Opened};
use crate::net::{Frame, Out, Port, ToIsland, conn_of};
use crate::thread::Thread;
use crate::world::{Choice, Config, Happening, TICK_US, World};

/// How often an island lays its tree when it keeps house.
const LAYS_PERCENT: u64 = 10;
/// Files follow their names as soon as they rest for a moment.
const MOVING: MigrationConfig = MigrationConfig { rests_ms: 10, bytes_per_s: 10_000_000 };

/// Bytes of the segments of a short log.
const SHORT_BYTES: u64 = 80 << 10;

/// The log of an island. As a rule a small one, so that segments end often.
fn log_of(config: &Config, boot: u128) -> atoll_log::Config {
    let product = atoll_log::Config { boot, ..atoll_log::Config::default() };
    if config.limits_of_product {
        return product;
    }
    if config.short_logs {
        let (segment_bytes, record_bytes_max) = (SHORT_BYTES, (SHORT_BYTES - 4_096) as u32);
        return atoll_log::Config { segment_bytes, record_bytes_max, ..product };
    }
    let (segment_bytes, record_bytes_max, buffer_bytes_max) = (1 << 20, 768 << 10, 4 << 20);
    atoll_log::Config { segment_bytes, record_bytes_max, buffer_bytes_max, ..product }
}

impl World {
    /// The volume gets a table with twice as many buckets. Islands that start have it, and those that serve when they are
    /// told of it.
    pub fn double_table(&mut self) {
        self.table = self.table.doubled();
    }

    /// An island that serves is told of the volume's table.
    pub fn tell_table(&mut self, island: IslandId) {
        if self.runs(self.machine_of(island)) {
            self.tell(island, Event::Table(self.table.clone()));
        }
    }

    /// The version of the table that a client knows.
    pub fn table_version(&self, client: usize) -> u64 {
        self.clients[client].route.table().version()
    }

    /// A machine's process starts, unless it runs or has started since. It opens the copies that it keeps.
    pub(crate) fn start(&mut self, node: NodeId, life: u64) {
        if self.machines[node].life != life || self.machines[node].held_down || self.is_up(node) {
            return;
        }
        let machine = &mut self.machines[node];
        machine.life += 1;
        machine.clock.begin_life(machine.life);
        if self.has_groups() {
            self.begin_process(node);
        }
        let life = self.machines[node].life;
        for copy in self.copies_on(node) {
            // It may have died while the one before was opened.
            if !self.open(copy) || self.has_groups() && self.machines[node].life != life {
                return;
            }
        }
        if !self.is_up(node) {
            // It has opened nothing.
            return self.start_later(node);
        }
        self.open_links_of(node);
    }

    /// All links of a machine that are not open are tried.
    pub(crate) fn open_links_of(&mut self, node: NodeId) {
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if (c.to == node || c.from == Party::Machine(node)) && !c.open {
                self.try_open(conn);
                self.dial_later(conn);
            }
        }
    }

    /// Opens a copy, which its process leads or not. False if nothing of that process goes on.
    fn open(&mut self, id: CopyId) -> bool {
        let copy = &mut self.copies[id];
        let (island, node) = (copy.island, copy.node);
        let machine = &self.machines[node];
        copy.port = Port::default();
        let setup = Setup {
            volume: VolumeId(1),
            island: atoll_island::Config {
                life: DaemonLife { daemon: 1 + u64::from(node.0), incarnation: machine.life as u32 },
                rows_max: self.config.rows_max,
                outbox_max: self.config.outbox_max,
                outbox_bytes_max: self.config.outbox_bytes_max,
                moving: self.config.moves.then_some(MOVING),
                reserve_bytes: self.config.reserve_bytes,
                ..atoll_island::Config::new(
                    island,
                    self.config.seed,
                    self.table.clone(),
                    self.groups.ids().collect(),
                )
            },
            log: log_of(&self.config, machine.boot),
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new: !copy.made,
            reached: None,
            beside: None,
        };
        if self.config.copies > 1 {
            return self.open_member(id, setup);
        }
        let life = machine.life;
        let disk = Arc::new(copy.disk.clone());
        let clock: Arc<dyn Clock> = Arc::new(machine.clock.clone());
        let opened = Engine::open(disk, setup, Arc::new(copy.port.clone()), clock);
        match opened {
            Ok((engine, report)) => {
                self.note(format_args!("island {island}: life {life} begins, {report:?}"));
                let damaged = report.corrected.iter().find(|(_, what)| what.contains("Damaged"));
                self.copies[id].torn_bytes = report.torn_bytes;
                self.copies[id].corrected = !report.corrected.is_empty();
                if let Some((ino, what)) = damaged.filter(|_| !self.machines[node].ailment.flipped) {
                    self.fail(format!("island {island}: body {ino} came back as {what}"));
                }
                let engine = Arc::new(engine);
                self.judge_start(id, &engine, &report);
                self.life_ails(node);
                self.copies[id].made = true;
                self.copies[id].opened = Some(Opened::Alone(Arc::clone(&engine)));
                if self.config.lays {
                    match Laying::open(engine, true, true) {
                        Ok(laying) => self.copies[id].laying = Some(laying),
                        Err(error) => {
                            self.laying_failed(id, &error);
                            self.copies[id].halted |= self.machines[node].ailment.excuses();
                            self.after_effects(id);
                            return false;
                        }
                    }
                }
                self.tick(id, life);
                true
            }
            Err(error) => self.not_opened(id, &error),
        }
    }

    /// A copy cannot be opened. False: nothing of its process goes on, or nothing else of it is opened.
    pub(crate) fn not_opened(&mut self, id: CopyId, error: &OpenError) -> bool {
        let IslandCopy { island, node, .. } = self.copies[id];
        match error {
            _ if self.copies[id].is_dead() => {
                self.note(format_args!("island {island}: dies while it opens: {error}"));
                self.die(node);
            }
            _ if self.machines[node].ailment.flipped => {
                self.note(format_args!("island {island}: is refused: {error}"));
                self.copies[id].refused = true;
            }
            _ if self.machines[node].ailment.excuses() && !error.is_damage() => {
                self.note(format_args!("island {island}: cannot be opened: {error}"));
                self.halts += 1;
                if self.has_groups() {
                    // It hides its own island only.
                    return true;
                }
                // Its process ends with the log in use: for all that it knows, something may be lost.
                self.start_later(node);
            }
            _ => self.fail(format!("island {island} cannot be opened: {error}")),
        }
        false
    }

    /// No stamp is given twice, whatever ended the last life; and an orderly end leaves nothing to be done.
    fn judge_start(&mut self, id: CopyId, engine: &Engine<SimDisk>, report: &Report) {
        let copy = &mut self.copies[id];
        let (island, given) = (copy.island, self.groups[copy.island].given);
        if std::mem::take(&mut copy.in_order) && *report != Report::default() {
            self.fail(format!("island {island} was stopped in order, and recovers {report:?}"));
        }
        let after = engine.with_island(|island| island.gives_after().0);
        if after < given {
            self.fail(format!(
                "island {island} gives stamps again: after {after:?}, and had given {given:?}"
            ));
        }
    }

    /// A machine's process stops in order, as a daemon that is told to: its links end, what its threads have begun they
    /// do, and all of it goes into checkpoints. Then it starts again. Where its disk is slow or fails, it dies.
    pub fn stop_in_order(&mut self, node: NodeId) {
        if !self.runs(node) {
            return;
        }
        if self.has_groups() {
            return self.leave(node);
        }
        let copies = self.copies_on(node);
        let waits = copies.iter().any(|copy| self.copies[*copy].waiting > 0);
        if !waits && !self.machines[node].ailment.excuses() {
            for copy in copies {
                self.stop_copy(copy);
            }
        }
        self.kill(node, Fault::ProcessDeath);
    }

    fn stop_copy(&mut self, id: CopyId) {
        let copy = &mut self.copies[id];
        let (island, Some(engine)) = (copy.island, copy.engine()) else { return };
        engine.enter(Event::Stopping);
        for thread in &mut copy.threads {
            while !thread.is_done() {
                thread.go_on(false);
            }
        }
        copy.in_order = engine.stop().is_ok();
        // Its links have ended before that.
        drop(copy.port.take());
        let in_order = copy.in_order;
        self.injected.stops += u64::from(in_order);
        self.note(format_args!("island {island}: stops, in order: {in_order}"));
    }

    pub(crate) fn tick(&mut self, id: CopyId, life: u64) {
        let copy = &self.copies[id];
        let node = copy.node;
        if self.machines[node].life != life {
            return;
        }
        match &copy.opened {
            None => return,
            Some(Opened::Alone(engine)) => {
                engine.tick();
                engine.housekeep();
            }
            Some(Opened::Member(member)) => {
                member.tick();
                member.housekeep();
                let led_room =
                    matches!(member.role(), Role::Leading { .. }).then(|| member.with_group(Group::room));
                self.take_tasks(id);
                self.note_room(led_room.unwrap_or(u64::MAX));
            }
        }
        if self.config.lays && self.rng.percent(LAYS_PERCENT) {
            self.lay(id);
        }
        self.after_effects(id);
        if self.has_groups() {
            self.keep_going(id);
        }
        let slow_us = self.machines[node].ailment.slow_us;
        // Not for long: what is at rest is looked at a second later.
        let slow = if slow_us > 0 { self.rng.below(slow_us.min(500_000)) } else { 0 };
        let pause = TICK_US + self.rng.below(100) + slow;
        self.schedule(pause, Happening::Tick { copy: id, life });
    }

    fn lay(&mut self, id: CopyId) {
        let Some(laying) = &mut self.copies[id].laying else { return };
        match laying.round() {
            Ok(report) => self.judge_laid(id, &report.conflicts, false),
            Err(error) => self.laying_failed(id, &error),
        }
    }

    /// Nobody changes the plain trees by hand, so nothing may look as if somebody did; and at rest nothing
    /// may stand in the way. Before, an island may have two directories for one name: of the older one it
    /// has not heard yet that it is gone.
    pub(crate) fn judge_laid(&mut self, id: CopyId, conflicts: &[Conflict], at_rest: bool) {
        let bad = |c: &&Conflict| match c.why {
            Why::ChangedByHand => true,
            Why::Device | Why::Refused(_) | Why::Spilled(_) => false,
            _ => at_rest,
        };
        if let Some(conflict) = conflicts.iter().find(bad) {
            let island = self.copies[id].island;
            let place =
                if self.has_groups() { format!(" on {}", self.copies[id].node) } else { String::new() };
            self.fail(format!("island {island}{place}: laying meets {conflict:?}"));
        }
    }

    pub(crate) fn laying_failed(&mut self, id: CopyId, error: &std::io::Error) {
        let IslandCopy { island, node, .. } = self.copies[id];
        // A disk that has died is seen to after this, as after any other effect.
        if self.machines[node].ailment.excuses() {
            self.note(format_args!("island {island}: its tree is not laid: {error}"));
        } else if !self.copies[id].disk.is_dead() {
            self.fail(format!("island {island} cannot lay its tree: {error}"));
        }
    }

    /// A thread of a machine takes a message off a link, for the island whose number it has.
    pub(crate) fn read(&mut self, conn: usize, frame: Frame<ToIsland>) {
        let Some(frame) = self.for_leader(conn, frame) else {
            return self.reads_on(conn);
        };
        let copy =
            self.copy_at(frame.island, self.conns[conn].to).expect("it was sent to a machine that leads it");
        let event = match frame.message {
            ToIsland::Request { link, id, request, data } => Event::Request { link, id, request, data },
            ToIsland::Peer(message) => Event::Peer(message),
            ToIsland::Group { .. } | ToIsland::Leads { .. } => unreachable!("it is for the machine"),
        };
        self.conns[conn].busy = true;
        self.begin(copy, Some(conn), event);
    }

    /// Something happens to an island: its leader hears of it.
    pub(crate) fn tell(&mut self, island: IslandId, event: Event) {
        self.begin(self.groups[island].leader, None, event);
    }

    pub(crate) fn begin(&mut self, id: CopyId, reads: Option<usize>, event: Event) {
        let island = self.copies[id].island;
        match &event {
            Event::Request { link, id, request, .. } => {
                let (session, seq) = (request.session, request.seq);
                self.note(format_args!(
                    "island {island}: request {id} of {session} on {:?} seq {seq} {:?}",
                    conn_of(*link),
                    request.op
                ));
            }
            Event::Peer(m) => self.note(format_args!("island {island}: from {}: {:?}", m.from, m.op)),
            other => self.note(format_args!("island {island}: {other:?}")),
        }
        let Some(engine) = self.copies[id].engine() else {
            if let Some(conn) = reads {
                // Its process opens it again.
                self.reads_on(conn);
            }
            return;
        };
        let work = engine.begin(event);
        if self.transcript.takes_everything() {
            self.transcript.hash_also(format_args!("{work:?}"));
        }
        self.copies[id].threads.push(Thread { engine, work, reads, came: None });
        self.take_tasks(id);
        self.let_read(id);
        self.after_effects(id);
        self.keep_going(id);
    }

    /// Links are read on where a thread has nothing more to do, or is about to wait for the disk.
    pub(crate) fn let_read(&mut self, id: CopyId) {
        loop {
            let copy = &mut self.copies[id];
            let free = copy.threads.iter_mut().find_map(|thread| {
                if thread.is_done() || thread.is_slow() { thread.reads.take() } else { None }
            });
            copy.threads.retain(|thread| !thread.is_done());
            let Some(conn) = free else { return };
            self.reads_on(conn);
        }
    }

    pub(crate) fn reads_on(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        c.busy = false;
        if let Some(frame) = c.unread.pop_front() {
            self.read(conn, frame);
        }
    }

    pub(crate) fn keep_going(&mut self, id: CopyId) {
        let copy = &mut self.copies[id];
        let has_todo = copy.member().is_some_and(|member| member.has_todo());
        if copy.going || copy.threads.is_empty() && !has_todo {
            return;
        }
        copy.going = true;
        let life = self.machines[copy.node].life;
        let pause = self.rng.below(60);
        self.schedule(pause, Happening::Go { copy: id, life });
    }

    /// One of the copy's threads performs its next effect.
    pub(crate) fn go(&mut self, id: CopyId, life: u64) {
        let apart = self.is_chosen(Choice::Apart);
        let copy = &mut self.copies[id];
        let machine = &self.machines[copy.node];
        if machine.life != life {
            return;
        }
        copy.going = false;
        if !copy.is_open() {
            return;
        }
        if self.goes_in_order(id) {
            return;
        }
        let copy = &mut self.copies[id];
        let machine = &self.machines[copy.node];
        if !copy.threads.is_empty() {
            let chosen = self.rng.index(copy.threads.len());
            if machine.ailment.slow_us > 0 && copy.threads[chosen].is_slow() {
                let mut thread = copy.threads.swap_remove(chosen);
                // Another thread reads its link meanwhile.
                let reads = thread.reads.take();
                // Its work may be done long before the thread hears of it, or long after it has begun to wait.
                if apart && self.rng.percent(50) {
                    thread.go_on(apart);
                }
                self.wait_for_disk(id, thread);
                if let Some(conn) = reads {
                    self.reads_on(conn);
                }
            } else {
                copy.threads[chosen].go_on(apart);
            }
        }
        self.take_tasks(id);
        self.after_effects(id);
        self.let_read(id);
        self.keep_going(id);
    }

    /// Delivers what the copy has sent; buries its process if the disk has died.
    pub(crate) fn after_effects(&mut self, id: CopyId) {
        let copy = &self.copies[id];
        let IslandCopy { island, node, .. } = *copy;
        let outs = copy.port.take();
        // A process that has died with another of its copies says nothing of this one either.
        let dead = copy.is_dead() || !copy.is_open();
        // One that stopped when its plain tree was opened has not done what it began with.
        if let Some(engine) = copy.leading_engine().filter(|_| !dead && !copy.halted) {
            engine.with_island(|island| island.check());
        }
        let is_excused = self.machines[node].ailment.excuses();
        if outs.iter().any(|out| matches!(out, Out::Client(..) | Out::Peer(..))) {
            self.judge_told(id);
        }
        for out in outs {
            if self.transcript.takes_everything() {
                self.transcript.hash_also(format_args!("{out:?}"));
            }
            match out {
                Out::Client(link, message) => {
                    let (conn, generation) = conn_of(link);
                    self.send_to_client(conn, generation, Frame { island, message });
                }
                Out::Peer(to, message) if self.has_groups() => self.send_to_peer(node, to, message),
                Out::Peer(to, message) => {
                    let conn = self.conn_to(Party::Machine(node), to);
                    if self.conns[conn].open {
                        self.send_to_island(conn, Frame { island: to, message: ToIsland::Peer(message) });
                    }
                }
                Out::Halted(why) if !dead => self.halted(id, &why),
                Out::Space(state) => self.space_told(island, state),
                Out::Damaged(why) if !dead && is_excused => {
                    self.note(format_args!("island {island}: {why}"));
                }
                Out::Damaged(why) if !dead => self.fail(format!("island {island}: {why}")),
                Out::Halted(_) | Out::Damaged(_) => {}
                out => self.group_out(id, out),
            }
        }
        let copy = &self.copies[id];
        if (dead || copy.halted) && copy.is_open() {
            self.die(node);
        }
    }

    /// Stamps that a copy has given, if it leads, are never to be given again.
    pub(crate) fn note_given(&mut self, id: CopyId) {
        let copy = &self.copies[id];
        if let Some(engine) = copy.leading_engine() {
            let given = &mut self.groups[copy.island].given;
            *given = engine.with_island(|island| island.gives_after().0).max(*given);
        }
    }

    /// The process of a machine ends, and all that it did with the copies on it.
    pub(crate) fn die(&mut self, node: NodeId) {
        let fault = self.machines[node].fault;
        self.faults += 1;
        match fault {
            Fault::ProcessDeath => self.injected.deaths += 1,
            Fault::PowerCut { .. } => self.injected.power_cuts += 1,
        }
        self.note(format_args!("machine {node}: DIES, {fault:?}"));
        let copies = self.copies_on(node);
        for id in copies.iter().copied() {
            self.note_given(id);
            if self.copies[id].leads.is_some() {
                self.note_lost(id);
            }
            let copy = &mut self.copies[id];
            // First the disk: what the old life does while it is taken apart must not reach it.
            copy.disk = copy.disk.revive(fault);
            copy.seat = copy.seat.as_ref().map(|seat| seat.revive(fault));
            copy.close();
        }
        let machine = &mut self.machines[node];
        if let Fault::PowerCut { .. } = fault {
            machine.boot += 1;
            machine.clock.begin_boot();
        }
        machine.frozen_until_us = 0;
        machine.life += 1;
        if let Some(store) = &mut self.store {
            store.forget(node);
        }
        let machine = &self.machines[node];
        let (life, held) = (machine.life, machine.held_down);
        for copy in copies {
            self.hash_files(copy);
        }
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if c.to == node || c.from == Party::Machine(node) || c.via == Some(node) {
                self.break_conn(conn);
            }
        }
        self.machines[node].both.iter_mut().for_each(|both| *both = BothWays::default());
        if let Fault::PowerCut { seed } = fault
            && self.fails_together
        {
            for other in self.machines.ids().filter(|other| *other != node) {
                let seed = seed.wrapping_add(1 + u64::from(other.0));
                self.kill(other, Fault::PowerCut { seed });
            }
        }
        if !held {
            let pause = 1000 + self.rng.below(if self.rng.clone().percent(20) { 4_000_000 } else { 300_000 });
            self.schedule(pause, Happening::Start { node, life });
        }
    }
}
