//! Islands of the world: started, ticked, stepped from effect to effect, killed.

use std::sync::Arc;

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Clock, Engine, Laying, Report, Setup};
use atoll_island::{Event, MigrationConfig};
use atoll_links::BothWays;
use atoll_proto::DaemonLife;
use atoll_view::{Conflict, Why};

use crate::links::Party;
use crate::net::{Frame, Out, Port, ToIsland, conn_of};
use crate::thread::Thread;
use crate::world::{Choice, Happening, TICK_US, World};

/// How often an island lays its tree when it keeps house.
const LAYS_PERCENT: u64 = 10;
/// Files follow their names as soon as they rest for a moment.
const MOVING: MigrationConfig = MigrationConfig { rests_ms: 10, bytes_per_s: 10_000_000 };

/// The log of an island. As a rule a small one, so that segments end often.
fn log_of(limits_of_product: bool, boot: u128) -> atoll_log::Config {
    let product = atoll_log::Config { boot, ..atoll_log::Config::default() };
    if limits_of_product {
        return product;
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
    pub fn tell_table(&mut self, island: usize) {
        if self.is_up(island) {
            self.begin(island, None, Event::Table(self.table.clone()));
        }
    }

    /// The version of the table that a client knows.
    pub fn table_version(&self, client: usize) -> u64 {
        self.clients[client].route.table().version()
    }

    pub(crate) fn start_island(&mut self, island: usize, life: u64) {
        let node = &mut self.nodes[island];
        if node.life != life || node.engine.is_some() || node.held_down {
            return;
        }
        node.life += 1;
        let life = node.life;
        node.clock.begin_life(life);
        node.port = Port::default();
        let setup = Setup {
            volume: VolumeId(1),
            node: NodeId(island as u16),
            island: atoll_island::Config {
                life: DaemonLife { daemon: 1 + island as u64, incarnation: life as u32 },
                rows_max: self.config.rows_max,
                outbox_max: self.config.outbox_max,
                outbox_bytes_max: self.config.outbox_bytes_max,
                moving: self.config.moves.then_some(MOVING),
                reserve_bytes: self.config.reserve_bytes,
                ..atoll_island::Config::new(
                    IslandId(island as u16),
                    self.config.seed,
                    self.table.clone(),
                    (0..self.config.islands).map(IslandId).collect(),
                )
            },
            log: log_of(self.config.limits_of_product, node.boot),
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new: !node.made,
            reached: None,
        };
        let disk = Arc::new(node.disk.clone());
        let clock: Arc<dyn Clock> = Arc::new(node.clock.clone());
        let opened = Engine::open(disk, setup, Arc::new(node.port.clone()), clock);
        match opened {
            Ok((engine, report)) => {
                self.note(format_args!("island {island}: life {life} begins, {report:?}"));
                let damaged = report.corrected.iter().find(|(_, what)| what.contains("Damaged"));
                self.nodes[island].torn_bytes = report.torn_bytes;
                self.nodes[island].corrected = !report.corrected.is_empty();
                if let Some((ino, what)) = damaged.filter(|_| !self.nodes[island].ailment.flipped) {
                    self.fail(format!("island {island}: body {ino} came back as {what}"));
                }
                let engine = Arc::new(engine);
                self.judge_start(island, &engine, &report);
                self.nodes[island].life_ails();
                self.nodes[island].made = true;
                self.nodes[island].engine = Some(Arc::clone(&engine));
                if self.config.lays {
                    match Laying::open(engine, true, true) {
                        Ok(laying) => self.nodes[island].laying = Some(laying),
                        Err(error) => {
                            self.laying_failed(island, &error);
                            self.nodes[island].halted |= self.nodes[island].is_excused();
                            return self.after_effects(island);
                        }
                    }
                }
                self.tick_island(island, life);
                for conn in 0..self.conns.len() {
                    let c = &self.conns[conn];
                    if (c.to == island || c.from == Party::Island(island)) && !c.open {
                        self.try_open(conn);
                        self.dial_later(conn);
                    }
                }
            }
            Err(error) if self.nodes[island].disk.is_dead() => {
                self.note(format_args!("island {island}: dies while it opens: {error}"));
                self.die(island);
            }
            Err(error) if self.nodes[island].ailment.flipped => {
                self.note(format_args!("island {island}: is refused: {error}"));
                self.nodes[island].refused = true;
            }
            Err(error) if self.nodes[island].is_excused() && !error.is_damage() => {
                self.note(format_args!("island {island}: cannot be opened: {error}"));
                // It ends with its log in use: for all that it knows, something may be lost.
                self.halts += 1;
                self.open_later(island);
            }
            Err(error) => self.fail(format!("island {island} cannot be opened: {error}")),
        }
    }

    /// No stamp is given twice, whatever ended the last life; and an orderly end leaves nothing to be done.
    fn judge_start(&mut self, island: usize, engine: &Engine<SimDisk>, report: &Report) {
        let node = &mut self.nodes[island];
        let given = node.given;
        if std::mem::take(&mut node.in_order) && *report != Report::default() {
            self.fail(format!("island {island} was stopped in order, and recovers {report:?}"));
        }
        let after = engine.with_island(|machine| machine.stamps_after());
        if after < given {
            self.fail(format!(
                "island {island} gives stamps again: after {after:?}, and had given {given:?}"
            ));
        }
    }

    /// The island stops in order, as a daemon that is told to: its links end, what its threads have begun they do,
    /// and all of it goes into a checkpoint. Then it starts again. Where its disk is slow or fails, it dies.
    pub fn stop_in_order(&mut self, island: usize) {
        let node = &mut self.nodes[island];
        let Some(engine) = node.engine.clone() else { return };
        if node.waiting == 0 && !node.is_excused() {
            engine.enter(Event::Stopping);
            for thread in &mut node.threads {
                while !thread.is_done() {
                    thread.go_on(&engine, false);
                }
            }
            node.in_order = engine.stop().is_ok();
            // Its links have ended before that.
            drop(node.port.take());
            let in_order = node.in_order;
            self.injected.stops += u64::from(in_order);
            self.note(format_args!("island {island}: stops, in order: {in_order}"));
        }
        self.kill(island, Fault::ProcessDeath);
    }

    pub(crate) fn tick_island(&mut self, island: usize, life: u64) {
        let node = &self.nodes[island];
        let Some(engine) = node.engine.as_ref().filter(|_| node.life == life) else { return };
        engine.tick();
        engine.housekeep();
        if self.config.lays && self.rng.percent(LAYS_PERCENT) {
            self.lay(island);
        }
        self.after_effects(island);
        let slow_us = self.nodes[island].ailment.slow_us;
        // Not for long: what is at rest is looked at a second later.
        let slow = if slow_us > 0 { self.rng.below(slow_us.min(500_000)) } else { 0 };
        let pause = TICK_US + self.rng.below(100) + slow;
        self.schedule(pause, Happening::Tick { island, life });
    }

    fn lay(&mut self, island: usize) {
        let Some(laying) = &mut self.nodes[island].laying else { return };
        match laying.round() {
            Ok(report) => self.judge_laid(island, &report.conflicts, false),
            Err(error) => self.laying_failed(island, &error),
        }
    }

    /// Nobody changes the plain trees by hand, so nothing may look as if somebody did; and at rest nothing
    /// may stand in the way. Before, an island may have two directories for one name: of the older one it
    /// has not heard yet that it is gone.
    pub(crate) fn judge_laid(&mut self, island: usize, conflicts: &[Conflict], at_rest: bool) {
        let bad = |c: &&Conflict| match c.why {
            Why::ChangedByHand => true,
            Why::Device | Why::Refused(_) | Why::Spilled(_) => false,
            _ => at_rest,
        };
        if let Some(conflict) = conflicts.iter().find(bad) {
            self.fail(format!("island {island}: laying meets {conflict:?}"));
        }
    }

    fn laying_failed(&mut self, island: usize, error: &std::io::Error) {
        // A disk that has died is seen to after this, as after any other effect.
        if self.nodes[island].is_excused() {
            self.note(format_args!("island {island}: its tree is not laid: {error}"));
        } else if !self.nodes[island].disk.is_dead() {
            self.fail(format!("island {island} cannot lay its tree: {error}"));
        }
    }

    /// A thread of the island takes a message off a link.
    pub(crate) fn read(&mut self, conn: usize, frame: Frame<ToIsland>) {
        let to = usize::from(frame.island.0);
        let event = match frame.message {
            ToIsland::Request { link, id, request, data } => Event::Request { link, id, request, data },
            ToIsland::Peer(message) => Event::Peer(message),
        };
        self.conns[conn].busy = true;
        self.begin(to, Some(conn), event);
    }

    pub(crate) fn begin(&mut self, island: usize, reads: Option<usize>, event: Event) {
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
        let Some(engine) = &self.nodes[island].engine else { return };
        let work = engine.begin(event);
        if self.transcript.takes_everything() {
            self.transcript.hash_also(format_args!("{work:?}"));
        }
        self.nodes[island].threads.push(Thread { work, reads, came: None });
        self.let_read(island);
        self.after_effects(island);
        self.keep_going(island);
    }

    /// Links are read on where a thread has nothing more to do, or is about to wait for the disk.
    pub(crate) fn let_read(&mut self, island: usize) {
        loop {
            let node = &mut self.nodes[island];
            let free = node.threads.iter_mut().find_map(|thread| {
                if thread.is_done() || thread.is_slow() { thread.reads.take() } else { None }
            });
            node.threads.retain(|thread| !thread.is_done());
            let Some(conn) = free else { return };
            self.reads_on(conn);
        }
    }

    fn reads_on(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        c.busy = false;
        if let Some(frame) = c.unread.pop_front() {
            self.read(conn, frame);
        }
    }

    pub(crate) fn keep_going(&mut self, island: usize) {
        let node = &mut self.nodes[island];
        if node.going || node.threads.is_empty() {
            return;
        }
        node.going = true;
        let life = node.life;
        let pause = self.rng.below(60);
        self.schedule(pause, Happening::Go { island, life });
    }

    /// One of the island's threads performs its next effect.
    pub(crate) fn go(&mut self, island: usize, life: u64) {
        let apart = self.is_chosen(Choice::Apart);
        let node = &mut self.nodes[island];
        if node.life != life {
            return;
        }
        node.going = false;
        let Some(engine) = &node.engine else { return };
        if !node.threads.is_empty() {
            let chosen = self.rng.index(node.threads.len());
            if node.ailment.slow_us > 0 && node.threads[chosen].is_slow() {
                let mut thread = node.threads.swap_remove(chosen);
                // Another thread reads its link meanwhile.
                let reads = thread.reads.take();
                // Its work may be done long before the thread hears of it, or long after it has begun to wait.
                if apart && self.rng.percent(50) {
                    thread.go_on(engine, apart);
                }
                self.wait_for_disk(island, thread);
                if let Some(conn) = reads {
                    self.reads_on(conn);
                }
            } else {
                node.threads[chosen].go_on(engine, apart);
            }
        }
        self.after_effects(island);
        self.let_read(island);
        self.keep_going(island);
    }

    /// Delivers what the island has sent; buries it if its disk has died.
    pub(crate) fn after_effects(&mut self, island: usize) {
        let outs = self.nodes[island].port.take();
        let dead = self.nodes[island].disk.is_dead();
        if let Some(engine) = self.nodes[island].engine.as_ref().filter(|_| !dead) {
            engine.with_island(|machine| machine.check());
        }
        for out in outs {
            if self.transcript.takes_everything() {
                self.transcript.hash_also(format_args!("{out:?}"));
            }
            match out {
                Out::Client(link, message) => {
                    let (conn, generation) = conn_of(link);
                    self.send_to_client(conn, generation, Frame { island: IslandId(island as u16), message });
                }
                Out::Peer(to, message) => {
                    let conn = self.conn_between(Party::Island(island), usize::from(to.0));
                    if self.conns[conn].open {
                        self.send_to_island(conn, Frame { island: to, message: ToIsland::Peer(message) });
                    }
                }
                Out::Halted(why) if !dead => self.halted(island, &why),
                Out::Space(state) => self.space_told(island, state),
                Out::Damaged(why) if !dead && self.nodes[island].is_excused() => {
                    self.note(format_args!("island {island}: {why}"));
                }
                Out::Damaged(why) if !dead => self.fail(format!("island {island}: {why}")),
                Out::Halted(_) | Out::Damaged(_) => {}
            }
        }
        if (dead || self.nodes[island].halted) && self.nodes[island].engine.is_some() {
            self.die(island);
        }
    }

    pub(crate) fn die(&mut self, island: usize) {
        let fault = self.nodes[island].fault;
        self.faults += 1;
        match fault {
            Fault::ProcessDeath => self.injected.deaths += 1,
            Fault::PowerCut { .. } => self.injected.power_cuts += 1,
        }
        self.note(format_args!("island {island}: DIES, {fault:?}"));
        let node = &mut self.nodes[island];
        if let Some(engine) = &node.engine {
            node.given = node.given.max(engine.with_island(|machine| machine.stamps_after()));
        }
        // First the disk: what the old life does while it is taken apart must not reach it.
        node.disk = node.disk.revive(fault);
        node.boot += u128::from(matches!(fault, Fault::PowerCut { .. }));
        node.laying = None;
        node.engine = None;
        node.threads.clear();
        (node.waiting, node.halted) = (0, false);
        node.going = false;
        node.life += 1;
        let life = node.life;
        let held = node.held_down;
        self.hash_files(island);
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if c.to == island || c.from == Party::Island(island) || c.via == Some(island) {
                self.break_conn(conn);
            }
        }
        self.both[island].fill_with(BothWays::default);
        if !held {
            let pause = 1000 + self.rng.below(if self.rng.clone().percent(20) { 4_000_000 } else { 300_000 });
            self.schedule(pause, Happening::Start { island, life });
        }
    }
}
