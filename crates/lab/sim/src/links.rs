//! Faults and links of the world: what breaks, what is cut apart, what comes back.

use atoll_core::IslandId;
use atoll_disk::sim::Fault;
use atoll_island::Event;

use crate::net::{End, ToClient, ToIsland};
use crate::world::{Happening, World};
use atoll_proto::Peer;

/// A participant of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The client of this number.
    Client(usize),
    /// The island of this number.
    Island(usize),
}

/// Microseconds for which what a client sends, or is sent, is lost at most: less than its session lasts
/// without it. What was under way when a session ends may have been done or not.
const CLIENT_DEAF_US_MAX: u64 = 10_000_000;
/// Microseconds without a sign of life after which an end of a link gives it up.
const SILENCE_US: u64 = 4_000_000;

impl World {
    // ------------------------------------------------------------------- faults

    /// The island's disk dies at its `effects`-th effect from now.
    pub fn arm(&mut self, island: usize, effects: u64, fault: Fault) {
        self.note(format_args!("island {island}: will die at effect {effects}, {fault:?}"));
        self.nodes[island].fault = fault;
        self.nodes[island].disk.die_after(effects);
    }

    /// The island ends now, wherever it is.
    pub fn kill(&mut self, island: usize, fault: Fault) {
        self.nodes[island].fault = fault;
        if self.nodes[island].engine.is_some() {
            self.die(island);
        }
    }

    /// The island ends now, and stays down until everything is healed.
    pub fn hold_down(&mut self, island: usize) {
        self.nodes[island].held_down = true;
        self.kill(island, Fault::ProcessDeath);
    }

    /// Breaks all links of a client.
    pub fn break_client_links(&mut self, client: usize) {
        for conn in 0..self.conns.len() {
            if self.conns[conn].from == End::Client(client) {
                self.break_conn(conn);
            }
        }
    }

    /// A number that is another one when a link of a client has ended meanwhile; none while one is not whole.
    pub(crate) fn links_of(&self, client: usize) -> Option<u64> {
        let mut links = self.conns.iter().filter(|conn| conn.from == End::Client(client));
        links.try_fold(0, |sum, conn| {
            (conn.open && conn.whole && !conn.is_deaf()).then_some(sum + conn.generation)
        })
    }

    /// Whether the island runs.
    pub fn is_up(&self, island: usize) -> bool {
        self.nodes[island].engine.is_some()
    }

    /// Breaks a link in a while.
    pub fn break_later(&mut self, conn: usize, in_us: u64) {
        self.schedule(in_us, Happening::Break { conn });
    }

    /// Breaks a link.
    pub fn break_conn(&mut self, conn: usize) {
        self.end_link(conn, true);
    }

    /// A link ends; `ended`: the island is told so by the other side.
    fn end_link(&mut self, conn: usize, ended: bool) {
        let now = self.now_us();
        let (to_late, from_late, closed_late, gone_late) =
            (self.delay() - 1, self.delay() - 1, self.delay(), self.delay());
        let c = &mut self.conns[conn];
        let (from, to, generation) = (c.from, c.to, c.generation);
        if std::mem::take(&mut c.whole) {
            // What was sent before the end may still arrive, also from a process that died.
            let arrive_to = if c.deaf_to { 0 } else { now + to_late };
            let arrive_from = if c.deaf_from { 0 } else { now + from_late };
            c.broken = (generation, arrive_to, arrive_from);
            self.injected.dropped += (c.lost_to.len() + c.lost_from.len()) as u64;
            c.lost_to.clear();
            c.lost_from.clear();
            self.faults += 1;
            self.injected.breaks += 1;
            self.schedule(from_late + closed_late, Happening::Closed { conn, generation });
            if let End::Client(_) = from {
                let life = self.nodes[to].life;
                self.schedule(to_late + gone_late, Happening::LinkGone { conn, generation, life, ended });
            }
        }
        let c = &mut self.conns[conn];
        let sender_died = matches!(from, End::Island(i) if self.nodes[i].engine.is_none());
        if self.nodes[to].engine.is_none() {
            c.busy = false;
            c.unread.clear();
        }
        if sender_died {
            c.open = false;
        }
    }

    /// What one side sends to the other is lost from now on, and nobody is told; what the other sends
    /// arrives, unless both are to be lost. The ends of a link notice when nothing has come for a while.
    pub fn lose_between(&mut self, one_side: impl Fn(Party) -> bool, both: bool) {
        let now = self.now_us();
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &mut self.conns[conn];
            let (from, to) = (one_side(c.from.party()), one_side(Party::Island(c.to)));
            if from == to {
                continue;
            }
            any = true;
            if !c.is_deaf() {
                c.deaf_since_us = now;
                let generation = c.generation;
                self.schedule(SILENCE_US, Happening::Silence { conn, generation, since_us: now });
            }
            let c = &mut self.conns[conn];
            c.deaf_to |= from || both;
            c.deaf_from |= to || both;
            if let End::Client(_) = c.from {
                let until = 1 + self.rng.below(CLIENT_DEAF_US_MAX);
                self.schedule(until, Happening::Heard { conn, since_us: now });
            }
        }
        if both {
            self.injected.partitions += u64::from(any);
        } else {
            self.injected.one_way += u64::from(any);
        }
    }

    /// Links from one side's parties to the other's cannot be opened; those the other way can.
    pub fn cut_from(&mut self, one_side: impl Fn(Party) -> bool) {
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if one_side(c.from.party()) && !one_side(Party::Island(c.to)) {
                any = true;
                self.conns[conn].cut = true;
                self.break_conn(conn);
            }
        }
        self.injected.one_way += u64::from(any);
    }

    /// Nothing is lost any more: what was, and whose link has not ended, is sent again.
    pub(crate) fn lose_nothing(&mut self) {
        for conn in 0..self.conns.len() {
            if self.conns[conn].is_deaf() {
                self.heard(conn);
            }
        }
    }

    /// Messages arrive again on a link.
    pub(crate) fn heard(&mut self, conn: usize) {
        let pause = self.delay();
        let c = &mut self.conns[conn];
        (c.deaf_to, c.deaf_from) = (false, false);
        let (generation, open) = (c.generation, c.open);
        self.schedule(pause, Happening::Again { conn, generation });
        if !open {
            self.try_open(conn);
        }
    }

    pub(crate) fn silence(&mut self, conn: usize, generation: u64, since_us: u64) {
        let c = &self.conns[conn];
        if c.generation == generation && c.is_deaf() && c.deaf_since_us == since_us {
            // Whoever hears nothing ends the link. The other one hears that, if it hears anything.
            let ended = !c.deaf_to;
            self.end_link(conn, ended);
        }
    }

    pub(crate) fn again(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if c.generation != generation || c.is_deaf() || !c.whole {
            return;
        }
        let (to, from) = (std::mem::take(&mut c.lost_to), std::mem::take(&mut c.lost_from));
        for message in to {
            self.island_takes(conn, message);
        }
        for message in from {
            self.client_takes(conn, message);
        }
    }

    pub(crate) fn island_takes(&mut self, conn: usize, message: ToIsland) {
        let c = &mut self.conns[conn];
        if self.nodes[c.to].engine.is_none() {
            self.injected.dropped += 1;
        } else if c.busy {
            c.unread.push_back(message);
        } else {
            self.read(conn, message);
        }
    }

    /// Cuts every link between the two halves, or heals all.
    pub fn partition(&mut self, one_side: impl Fn(Party) -> bool) {
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            let cut = one_side(c.from.party()) != one_side(Party::Island(c.to));
            self.conns[conn].cut = cut;
            any |= cut;
            if cut {
                self.break_conn(conn);
            } else if !self.conns[conn].open {
                self.try_open(conn);
            }
        }
        self.injected.partitions += u64::from(any);
    }

    /// Whatever is cut, clients can reach every island.
    pub(crate) fn let_clients_through(&mut self) {
        for conn in self.conns.iter_mut().filter(|conn| matches!(conn.from, End::Client(_))) {
            conn.cut = false;
        }
    }

    /// No disk will die, no link is cut, everybody starts.
    pub fn heal(&mut self) {
        for island in 0..self.nodes.len() {
            let node = &mut self.nodes[island];
            node.held_down = false;
            if node.engine.is_some() {
                node.disk.die_after(u64::MAX);
            } else {
                let life = node.life;
                self.schedule(1000, Happening::Start { island, life });
            }
        }
        self.mend_disks();
        self.lose_nothing();
        self.partition(|_| true);
    }

    // -------------------------------------------------------------------- links

    pub(crate) fn conn_between(&self, from: End, to: usize) -> usize {
        self.conns
            .iter()
            .position(|c| c.from == from && c.to == to)
            .expect("everybody has a link to everybody")
    }

    pub(crate) fn end_is_up(&self, end: End) -> bool {
        match end {
            End::Client(_) => true,
            End::Island(i) => self.nodes[i].engine.is_some(),
        }
    }

    pub(crate) fn try_open(&mut self, conn: usize) {
        if !std::mem::replace(&mut self.conns[conn].opening, true) {
            let pause = self.delay();
            self.schedule(pause, Happening::Open { conn });
        }
    }

    pub(crate) fn open_conn(&mut self, conn: usize) {
        let c = &self.conns[conn];
        let possible = !c.cut && !c.is_deaf() && self.end_is_up(c.from) && self.nodes[c.to].engine.is_some();
        let at = self.now_us() + self.delay();
        let c = &mut self.conns[conn];
        c.opening = false;
        if possible && !c.open && !c.whole {
            c.whole = true;
            c.generation += 1;
            // What was on the way when the last one ended comes never.
            self.injected.dropped += (c.lost_to.len() + c.lost_from.len()) as u64;
            c.lost_to.clear();
            c.lost_from.clear();
            let generation = c.generation;
            c.last_to_us = at;
            c.last_from_us = at;
            self.schedule_at(at, Happening::Opened { conn, generation });
        }
    }

    pub(crate) fn opened(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if !c.whole || c.generation != generation {
            return;
        }
        c.open = true;
        let (from, island) = (c.from, IslandId(c.to as u16));
        self.note(format_args!("{from:?} has a link to island {island}"));
        match from {
            End::Client(client) => {
                self.with_client(client, &[], |route, out| route.reachable(island, true, out));
            }
            End::Island(i) => self.begin(i, None, Event::PeerReachable { island, up: true }),
        }
    }

    pub(crate) fn closed(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if c.generation != generation || c.whole {
            return;
        }
        let was_open = std::mem::take(&mut c.open);
        let (from, island) = (c.from, IslandId(c.to as u16));
        if was_open {
            self.note(format_args!("{from:?} has lost its link to island {island}"));
            match from {
                End::Client(client) => {
                    self.with_client(client, &[], |route, out| route.reachable(island, false, out));
                }
                End::Island(i) => self.begin(i, None, Event::PeerReachable { island, up: false }),
            }
        }
        self.try_open(conn);
    }

    fn delay_of_message(&mut self) -> u64 {
        let delay = self.delay();
        self.injected.delayed += u64::from(delay > self.config.delay_us_max);
        delay
    }

    pub(crate) fn send_to_island(&mut self, conn: usize, message: ToIsland) {
        let message = match self.wire.for_island(message) {
            Ok(message) => message,
            Err(why) => {
                return self
                    .fail(format!("{:?} to island {}: {why}", self.conns[conn].from, self.conns[conn].to));
            }
        };
        let mut at = self.now_us() + self.delay_of_message();
        // Threads that perform the effects of one island overtake each other; but one thread sends all
        // that ends with `HelloDone`.
        let may = matches!(&message, ToIsland::Peer(m) if !matches!(m.peer, Peer::HelloDone));
        let overtakes = may && self.rng.percent(10);
        self.injected.reordered += u64::from(overtakes);
        let c = &mut self.conns[conn];
        if !overtakes {
            at = at.max(c.last_to_us);
        }
        c.last_to_us = at.max(c.last_to_us);
        let generation = c.generation;
        // A link brings nothing twice; but islands say again what may be lost, and clients never on the same link.
        let is_peer = matches!(message, ToIsland::Peer(_));
        if is_peer && self.config.doubles > 0 && self.rng.percent(self.config.doubles) {
            self.injected.duplicated += 1;
            let (later, message) = (at + self.delay(), message.clone());
            self.conns[conn].last_to_us = later.max(self.conns[conn].last_to_us);
            self.schedule_at(later, Happening::ToIsland { conn, generation, message });
        }
        self.schedule_at(at, Happening::ToIsland { conn, generation, message });
    }

    pub(crate) fn send_to_client(&mut self, conn: usize, generation: u64, message: ToClient) {
        let message = match self.wire.for_client(message) {
            Ok(message) => message,
            Err(why) => {
                return self
                    .fail(format!("island {} to {:?}: {why}", self.conns[conn].to, self.conns[conn].from));
            }
        };
        let at = (self.now_us() + self.delay_of_message()).max(self.conns[conn].last_from_us);
        let c = &mut self.conns[conn];
        if !c.whole || c.generation != generation {
            return;
        }
        c.last_from_us = at;
        self.schedule_at(at, Happening::ToClient { conn, generation, message });
    }
}
