//! Faults and links of the world: what breaks, what is cut apart, what comes back.

use atoll_core::{IslandId, NodeId, SessionId};
use atoll_disk::sim::Fault;
use atoll_island::Event;
use atoll_links::{BothWays, Via};
use atoll_route::{Route, RouteOut};

use crate::net::{Frame, ToClient, ToIsland, link_id};
use crate::world::{Happening, World};
use atoll_proto::PeerOp;

/// Who can be at an end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The client of this number.
    Client(usize),
    /// The machine of this number.
    Machine(NodeId),
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(client) => write!(f, "client {client}"),
            Self::Machine(node) => write!(f, "machine {node}"),
        }
    }
}

/// Microseconds for which what a client sends, or is sent, is lost at most: less than its session lasts
/// without it. What was under way when a session ends may have been done or not.
const CLIENT_DEAF_US_MAX: u64 = 10_000_000;
/// Microseconds without a sign of life after which an end of a link gives it up.
pub(crate) const SILENCE_US: u64 = 4_000_000;

/// How a single way between two parties is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The first of them cannot open links to the other one; or neither can. Both notice it at once.
    Opening {
        /// Neither.
        both: bool,
    },
    /// What the first of them sends is lost, or what both send. Nobody is told.
    Losing {
        /// What both send.
        both: bool,
    },
}

/// How a link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The connection was closed.
    Closed,
    /// Nothing came any more.
    Silent,
}

impl World {
    // ------------------------------------------------------------------- faults

    /// The machine dies at the `effects`-th effect from now of one of its copies.
    pub fn arm(&mut self, node: NodeId, effects: u64, fault: Fault) {
        self.note(format_args!("machine {node}: will die at effect {effects}, {fault:?}"));
        self.machines[node].fault = fault;
        for copy in self.copies_on(node) {
            self.copies[copy].disk.die_after(effects);
            if let Some(seat) = &self.copies[copy].seat {
                // Much less is written there.
                seat.die_after(1 + effects / 4);
            }
        }
    }

    /// The machine's process ends now, wherever it is.
    pub fn kill(&mut self, node: NodeId, fault: Fault) {
        // A process that is down has ended already: what ends the next one is for others to say.
        if self.is_up(node) {
            self.machines[node].fault = fault;
            self.die(node);
        }
    }

    /// The machine's process ends now, and stays down until everything is healed.
    pub fn hold_down(&mut self, node: NodeId) {
        self.machines[node].held_down = true;
        self.kill(node, Fault::ProcessDeath);
    }

    /// Breaks all links of a client.
    pub fn break_client_links(&mut self, client: usize) {
        for conn in 0..self.conns.len() {
            if self.conns[conn].from == Party::Client(client) {
                self.break_conn(conn);
            }
        }
    }

    /// A mount's process ends, and another begins in its place, with a session of its own. The session that ended.
    pub fn mount_dies(&mut self, client: usize) -> SessionId {
        self.injected.mounts += 1;
        // Those that the world began with are below.
        let session = SessionId(1_000 + self.injected.mounts);
        self.note(format_args!("client {client}: DIES; the next one has session {session}"));
        for conn in 0..self.conns.len() {
            if self.conns[conn].from == Party::Client(client) {
                self.break_conn(conn);
                let c = &mut self.conns[conn];
                // What is on the way to it arrives nowhere.
                (c.open, c.broken.2) = (false, 0);
                self.try_open(conn);
            }
        }
        self.begin_client(client, session)
    }

    /// A number that is another one when a link of a client has ended meanwhile; none while one is not whole.
    pub(crate) fn links_of(&self, client: usize) -> Option<u64> {
        let mut links = self.conns.iter().filter(|conn| conn.from == Party::Client(client));
        links.try_fold(self.clients[client].moves, |sum, conn| {
            (conn.open && conn.whole && !conn.loses()).then_some(sum + conn.generation)
        })
    }

    /// Breaks a link in a while.
    pub fn break_later(&mut self, conn: usize, in_us: u64) {
        self.schedule(in_us, Happening::Break { conn });
    }

    /// Stops a machine's process in order after a pause, unless it has died by then.
    pub(crate) fn stop_later(&mut self, node: NodeId, in_us: u64) {
        let life = self.machines[node].life;
        self.schedule(in_us, Happening::Stop { node, life });
    }

    /// Breaks a link.
    pub fn break_conn(&mut self, conn: usize) {
        self.end_link(conn, Ending::Closed);
    }

    /// A link ends.
    pub(crate) fn end_link(&mut self, conn: usize, ending: Ending) {
        let now = self.now_us();
        let now_ms = now / 1000;
        let (to_late, from_late, closed_late, gone_late) =
            (self.delay() - 1, self.delay() - 1, self.delay(), self.delay());
        let c = &mut self.conns[conn];
        let (from, to, generation) = (c.from, c.to, c.generation);
        let ended = match ending {
            // A relay may have ended what the client still has.
            Ending::Closed => c.via.is_none(),
            Ending::Silent => false,
        };
        if std::mem::take(&mut c.whole) {
            c.replaces = false;
            c.dialer.closed(now_ms);
            let loses = c.loses();
            // What was sent before the end may still arrive, also from a process that died.
            let arrive_to = if loses && c.deaf_to { 0 } else { now + to_late };
            let arrive_from = if loses && c.deaf_from { 0 } else { now + from_late };
            c.broken = (generation, arrive_to, arrive_from);
            self.injected.dropped += (c.lost_to.len() + c.lost_from.len()) as u64;
            c.lost_to.clear();
            c.lost_from.clear();
            self.faults += 1;
            self.injected.breaks += 1;
            self.schedule(from_late + closed_late, Happening::Closed { conn, generation });
            let life = self.machines[to].life;
            self.schedule(to_late + gone_late, Happening::LinkGone { conn, generation, life, ended });
        }
        let (sender_died, receiver_died) = (!self.party_is_up(from), !self.is_up(to));
        let c = &mut self.conns[conn];
        if receiver_died {
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
            let (from, to) = (one_side(c.from), one_side(Party::Machine(c.to)));
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
            if let Party::Client(_) = c.from {
                let until = 1 + self.rng.below(CLIENT_DEAF_US_MAX);
                self.schedule(until, Happening::Heard { conn, since_us: now });
            }
        }
        if both {
            self.injected.partitions += u64::from(any);
        } else {
            self.injected.one_way += u64::from(any);
        }
        self.break_relayed();
    }

    /// Links from one side's parties to the other's cannot be opened; those the other way can.
    pub fn cut_from(&mut self, one_side: impl Fn(Party) -> bool) {
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if one_side(c.from) && !one_side(Party::Machine(c.to)) {
                any = true;
                self.conns[conn].cut = true;
                self.break_conn(conn);
            }
        }
        self.injected.one_way += u64::from(any);
        self.break_relayed();
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
        if c.generation == generation && c.loses() && c.deaf_since_us == since_us {
            // Whoever hears nothing ends the link. The other one hears that, if it hears anything.
            let ending = if c.deaf_to { Ending::Silent } else { Ending::Closed };
            self.end_link(conn, ending);
        }
    }

    pub(crate) fn again(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if c.generation != generation || c.loses() || !c.whole {
            return;
        }
        let (to, from) = (std::mem::take(&mut c.lost_to), std::mem::take(&mut c.lost_from));
        for frame in to {
            self.machine_takes(conn, frame);
        }
        for frame in from {
            self.client_takes(conn, frame);
        }
    }

    pub(crate) fn machine_takes(&mut self, conn: usize, frame: Frame<ToIsland>) {
        if !self.is_up(self.conns[conn].to) {
            self.injected.dropped += 1;
        } else if self.conns[conn].busy || !self.runs(self.conns[conn].to) {
            self.conns[conn].unread.push_back(frame);
        } else {
            self.read(conn, frame);
        }
    }

    /// Cuts every link between the two halves, or heals all.
    pub fn partition(&mut self, one_side: impl Fn(Party) -> bool) {
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            let cut = one_side(c.from) != one_side(Party::Machine(c.to));
            self.conns[conn].cut = cut;
            any |= cut;
            if cut && self.conns[conn].via.is_none() {
                self.break_conn(conn);
            } else if !cut && !self.conns[conn].open {
                self.try_open(conn);
            }
        }
        self.injected.partitions += u64::from(any);
        self.break_relayed();
    }

    /// Whatever is cut, clients can reach every machine.
    pub(crate) fn let_clients_through(&mut self) {
        for conn in self.conns.iter_mut().filter(|conn| matches!(conn.from, Party::Client(_))) {
            conn.cut = false;
        }
    }

    /// No disk will die, no link is cut, everybody starts.
    pub fn heal(&mut self) {
        for node in self.machines.ids() {
            self.machines[node].held_down = false;
            if self.is_up(node) {
                for copy in self.copies_on(node) {
                    self.copies[copy].disk.die_after(u64::MAX);
                    if let Some(seat) = &self.copies[copy].seat {
                        seat.die_after(u64::MAX);
                    }
                }
            } else {
                let life = self.machines[node].life;
                self.schedule(1000, Happening::Start { node, life });
            }
        }
        self.mend_disks();
        self.mend_store();
        self.lose_nothing();
        self.partition(|_| true);
    }

    // -------------------------------------------------------------------- links

    pub(crate) fn conn_between(&self, from: Party, to: NodeId) -> usize {
        self.conns
            .iter()
            .position(|c| c.from == from && c.to == to)
            .expect("everybody has a link to everybody")
    }

    /// The link on which somebody sends to an island: it ends at the machine that leads it.
    pub(crate) fn conn_to(&self, from: Party, island: IslandId) -> usize {
        self.conn_between(from, self.machine_of(island))
    }

    /// The same, as far as that knows who leads it.
    pub(crate) fn way_to(&self, from: Party, island: IslandId) -> Option<usize> {
        if self.has_groups() {
            return self.known_leader(from, island).map(|node| self.conn_between(from, node));
        }
        Some(self.conn_to(from, island))
    }

    pub(crate) fn party_is_up(&self, party: Party) -> bool {
        match party {
            Party::Client(_) => true,
            Party::Machine(node) => self.is_up(node),
        }
    }

    /// Whether somebody can open links. A client's kernel does also for one that is suspended.
    fn has_links(&self, party: Party) -> bool {
        match party {
            Party::Client(_) => true,
            Party::Machine(node) => self.runs(node),
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
        let possible = !c.is_cut() && self.has_links(c.from) && self.runs(c.to);
        let now_ms = self.now_us() / 1000;
        let c = &mut self.conns[conn];
        c.opening = false;
        // The end of one that has ended is told first, and one that is being opened is there soon: then this attempt is over
        // too, and the next one finds that.
        let replaces = c.open && c.whole && c.via.is_some();
        if !possible || !replaces && (c.open || c.whole) {
            c.dialer.failed(now_ms, Via::Direct);
        } else if c.dialer.connected(now_ms, Via::Direct) {
            if replaces {
                self.replace_link(conn);
            } else {
                self.establish(conn, None);
            }
        }
        self.dial_later(conn);
    }

    /// A direct link takes the place of one that is passed on: whoever opened it has both for a moment.
    fn replace_link(&mut self, conn: usize) {
        let (now, late, gone_late) = (self.now_us(), self.delay(), self.delay());
        let c = &mut self.conns[conn];
        let (to, generation) = (c.to, c.generation);
        c.replaces = true;
        c.broken = (generation, now + late, now + late);
        self.establish(conn, None);
        // The other side had the new one before it was told that the old one ends.
        let at = self.conns[conn].last_to_us.max(now + late) + gone_late;
        let life = self.machines[to].life;
        self.schedule_at(at, Happening::LinkGone { conn, generation, life, ended: true });
    }

    /// A link is opened from here on, perhaps through another machine.
    fn establish(&mut self, conn: usize, via: Option<NodeId>) {
        let at = self.now_us() + self.delay();
        let c = &mut self.conns[conn];
        c.whole = true;
        c.generation += 1;
        c.via = via;
        // What was on the way when the last one ended comes never.
        self.injected.dropped += (c.lost_to.len() + c.lost_from.len()) as u64;
        c.lost_to.clear();
        c.lost_from.clear();
        let generation = c.generation;
        c.last_to_us = at;
        c.last_from_us = at;
        self.schedule_at(at, Happening::Opened { conn, generation });
    }

    // ------------------------------------------------------------------- relays

    /// The dialer of a link is asked when it has something to try.
    pub(crate) fn dial_later(&mut self, conn: usize) {
        let now = self.now_us();
        let c = &mut self.conns[conn];
        if self.config.relays
            && !c.dialing
            && let Some(next_ms) = c.dialer.next_ms()
        {
            c.dialing = true;
            self.schedule_at(now.max(next_ms * 1000), Happening::Dial { conn });
        }
    }

    pub(crate) fn dial(&mut self, conn: usize) {
        self.conns[conn].dialing = false;
        if !self.has_links(self.conns[conn].from) {
            // It is asked when that starts, or runs again.
            return;
        }
        let now_ms = self.now_us() / 1000;
        while let Some(via) = self.conns[conn].dialer.due(now_ms) {
            match via {
                Via::Direct => self.try_open(conn),
                Via::Relay(relay) if self.may_relay(conn, relay) => {
                    let pause = self.delay() + self.delay();
                    self.schedule(pause, Happening::OpenRelayed { conn, relay });
                }
                Via::Relay(_) => self.conns[conn].dialer.failed(now_ms, via),
            }
        }
        self.dial_later(conn);
    }

    pub(crate) fn open_relayed(&mut self, conn: usize, relay: NodeId) {
        let (now_ms, via) = (self.now_us() / 1000, Via::Relay(relay));
        let may = self.may_relay(conn, relay);
        let c = &mut self.conns[conn];
        if !may {
            c.dialer.failed(now_ms, via);
        } else if c.dialer.connected(now_ms, via) {
            assert!(!c.whole, "a relay is taken where there is no link");
            if c.open {
                // The last link has ended, and whoever opened it is yet to be told: it does not take another one before.
                c.dialer.closed(now_ms);
            } else {
                self.injected.relayed += 1;
                self.establish(conn, Some(relay));
            }
        }
        self.dial_later(conn);
    }

    /// Whether a machine can pass on what is sent on a link: it reaches the other side directly.
    fn may_relay(&self, conn: usize, relay: NodeId) -> bool {
        let c = &self.conns[conn];
        let there = &self.conns[self.conn_between(Party::Machine(relay), c.to)];
        self.passes(conn, relay)
            && self.has_links(c.from)
            && self.runs(c.to)
            && self.runs(relay)
            && there.open
            && there.whole
            && there.via.is_none()
    }

    /// Whether the ways to a machine that passes something on, and from it, are whole.
    fn passes(&self, conn: usize, relay: NodeId) -> bool {
        let c = &self.conns[conn];
        let here = self.conn_between(c.from, relay);
        let there = self.conn_between(Party::Machine(relay), c.to);
        [here, there].iter().all(|leg| !self.conns[*leg].is_cut())
    }

    /// Links that are passed on end where a way to or from the machine between is cut.
    pub(crate) fn break_relayed(&mut self) {
        for conn in 0..self.conns.len() {
            if let Some(relay) = self.conns[conn].via.filter(|_| self.conns[conn].whole)
                && !self.passes(conn, relay)
            {
                self.break_conn(conn);
            }
        }
    }

    /// One way between two parties is cut, and nothing else.
    pub(crate) fn cut_way(&mut self, one: Party, other: Party, cut: Cut) {
        self.note(format_args!("between {one} and {other}: {cut:?}"));
        let now = self.now_us();
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            let (from, to) = (c.from, Party::Machine(c.to));
            let (there, back) = ((from, to) == (one, other), (from, to) == (other, one));
            match cut {
                Cut::Opening { both } if there || (back && both) => {
                    self.conns[conn].cut = true;
                    if self.conns[conn].via.is_none() {
                        self.break_conn(conn);
                    }
                }
                Cut::Losing { both } if there || back => {
                    let generation = c.generation;
                    self.schedule(SILENCE_US, Happening::Silence { conn, generation, since_us: now });
                    let c = &mut self.conns[conn];
                    c.deaf_since_us = now;
                    c.deaf_to |= there || both;
                    c.deaf_from |= back || both;
                }
                _ => {}
            }
        }
        match cut {
            Cut::Opening { both: true } | Cut::Losing { both: true } => self.injected.partitions += 1,
            _ => self.injected.one_way += 1,
        }
        self.break_relayed();
    }

    // ------------------------------------------------------------------ reached

    /// A machine learns something of its links with another one. The islands that it leads are told if those that
    /// the other one leads can be reached now, or not any more.
    pub(crate) fn judge_links(
        &mut self,
        node: NodeId,
        other: NodeId,
        change: impl FnOnce(&mut BothWays) -> Option<bool>,
    ) {
        let Some(up) = change(&mut self.machines[node].both[other]) else { return };
        if self.has_groups() {
            return self.judge_ways(node, other);
        }
        for island in self.led_by(node) {
            for other in self.led_by(other) {
                self.tell(island, Event::PeerReachable { island: other, up });
            }
        }
    }

    /// A machine learns that a link that another party has opened is gone.
    pub(crate) fn link_gone(&mut self, conn: usize, generation: u64, life: u64, ended: bool) {
        let (from, to) = (self.conns[conn].from, self.conns[conn].to);
        match from {
            _ if self.machines[to].life != life => {}
            Party::Client(_) => {
                let link = link_id(conn, generation);
                for copy in self.led_on(to) {
                    self.begin(copy, None, Event::LinkClosed { link, ended });
                }
            }
            Party::Machine(other) => self.judge_links(to, other, |both| both.ended(generation)),
        }
    }

    /// A client learns something of its link to a machine, and so of the islands that this leads.
    fn tell_client(
        &mut self,
        client: usize,
        to: NodeId,
        tell: impl Fn(&mut Route<u64>, IslandId, &mut RouteOut<u64>),
    ) {
        let islands = match self.has_groups() {
            true => self.believed_at(client, to),
            false => self.led_by(to),
        };
        for island in islands {
            self.with_client(client, &[], |route, out| tell(route, island, out));
        }
    }

    pub(crate) fn opened(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if !c.whole || c.generation != generation {
            return;
        }
        let replaces = std::mem::take(&mut c.replaces) && c.open;
        c.open = true;
        let (from, to, via) = (c.from, c.to, c.via);
        match via {
            Some(relay) => self.note(format_args!("{from} has a link to machine {to} through {relay}")),
            None => self.note(format_args!("{from} has a link to machine {to}")),
        }
        match from {
            Party::Client(client) => self.tell_client(client, to, |route, island, out| match replaces {
                true => route.replaced(island, out),
                false => route.reachable(island, true, out),
            }),
            Party::Machine(node) => {
                if self.has_groups() {
                    self.group_linked(node, to, generation);
                }
                self.judge_links(to, node, |both| both.accepted(generation));
                self.judge_links(
                    node,
                    to,
                    |both| if replaces { both.replaced() } else { both.outgoing(true) },
                );
            }
        }
        if self.has_groups() {
            self.tell_leads_on(conn);
        }
        self.dial_later(conn);
    }

    pub(crate) fn closed(&mut self, conn: usize, generation: u64) {
        let c = &mut self.conns[conn];
        if c.generation != generation || c.whole {
            return;
        }
        let was_open = std::mem::take(&mut c.open);
        let (from, to) = (c.from, c.to);
        if was_open {
            self.note(format_args!("{from} has lost its link to machine {to}"));
            match from {
                Party::Client(client) => {
                    self.tell_client(client, to, |route, island, out| route.reachable(island, false, out));
                }
                Party::Machine(node) => self.judge_links(node, to, |both| both.outgoing(false)),
            }
        }
        self.try_open(conn);
        self.dial_later(conn);
    }

    fn delay_of_message(&mut self) -> u64 {
        let delay = self.delay();
        self.injected.delayed += u64::from(delay > self.config.delay_us_max);
        delay
    }

    pub(crate) fn send_to_island(&mut self, conn: usize, frame: Frame<ToIsland>) {
        let island = frame.island;
        let frame = match self.wire.for_island(frame) {
            Ok(frame) => frame,
            Err(why) => {
                return self.fail(format!("{} to island {island}: {why}", self.conns[conn].from));
            }
        };
        let mut at = self.now_us() + self.delay_of_message();
        if self.conns[conn].via.is_some() {
            at += self.delay();
        }
        // Threads that perform the effects of one island overtake each other; but one thread sends all
        // that ends with `HelloDone`.
        let may = matches!(&frame.message, ToIsland::Peer(m) if !matches!(m.op, PeerOp::HelloDone { .. }));
        let overtakes = may && self.rng.percent(10);
        self.injected.reordered += u64::from(overtakes);
        let c = &mut self.conns[conn];
        if !overtakes {
            at = at.max(c.last_to_us);
        }
        c.last_to_us = at.max(c.last_to_us);
        let generation = c.generation;
        // A link brings nothing twice; but islands say again what may be lost, and clients never on the same link.
        let is_peer = matches!(frame.message, ToIsland::Peer(_));
        if is_peer && self.config.doubles > 0 && self.rng.percent(self.config.doubles) {
            self.injected.duplicated += 1;
            let (later, frame) = (at + self.delay(), frame.clone());
            self.conns[conn].last_to_us = later.max(self.conns[conn].last_to_us);
            self.schedule_at(later, Happening::ToIsland { conn, generation, frame });
        }
        self.schedule_at(at, Happening::ToIsland { conn, generation, frame });
    }

    pub(crate) fn send_to_client(&mut self, conn: usize, generation: u64, frame: Frame<ToClient>) {
        let island = frame.island;
        let frame = match self.wire.for_client(frame) {
            Ok(frame) => frame,
            Err(why) => {
                return self.fail(format!("island {island} to {}: {why}", self.conns[conn].from));
            }
        };
        let at = (self.now_us() + self.delay_of_message()).max(self.conns[conn].last_from_us);
        let c = &mut self.conns[conn];
        if !c.whole || c.generation != generation {
            return;
        }
        c.last_from_us = at;
        self.schedule_at(at, Happening::ToClient { conn, generation, frame });
    }
}

#[cfg(test)]
mod tests {
    use crate::world::Config;

    use super::*;

    /// A world of three islands and a client that reaches island 0 through another one.
    fn relayed() -> World {
        let config = Config { relays: true, ..Config::new(1, 3) };
        let mut world = World::new(config).unwrap();
        world.cut_way(Party::Client(0), Party::Machine(NodeId(0)), Cut::Opening { both: true });
        world.run_for(2_000_000).unwrap();
        let conn = world.conn_between(Party::Client(0), NodeId(0));
        assert!(world.conns[conn].open && world.conns[conn].via.is_some(), "{}", world.tail(20));
        world
    }

    /// Found as `groups_store --seed 300567`: the machine took the island for away, for ever.
    #[test]
    fn who_leads_is_not_heard_late_on_a_link_that_was_replaced() {
        let config = Config { copies: 2, relays: true, ..Config::new(1, 3) };
        let mut world = World::new(config).unwrap();
        world.run_for(2_000_000).unwrap();
        let (node, to) = (NodeId(1), NodeId(0));
        let conn = world.conn_between(Party::Machine(node), to);
        let led = world.led_on(node)[0];
        let island = world.copies[led].island;
        assert_eq!(world.known_leader(Party::Machine(to), island), Some(node));
        let generation = world.conns[conn].generation;
        world.replace_link(conn);
        world.run_for(1_000_000).unwrap();
        assert_ne!(world.conns[conn].generation, generation);
        let now = world.now_us();
        world.conns[conn].broken = (generation, now + 10, now + 10);
        let frame = Frame { island, message: ToIsland::Leads { epoch: None } };
        world.schedule_at(now + 5, Happening::ToIsland { conn, generation, frame });
        world.run_for(10_000).unwrap();
        assert_eq!(world.known_leader(Party::Machine(to), island), Some(node), "{}", world.tail(50));
    }

    #[test]
    fn the_end_of_a_relayed_link_is_silence_to_its_island() {
        let mut world = relayed();
        let conn = world.conn_between(Party::Client(0), NodeId(0));
        let relay = world.conns[conn].via.expect("it is relayed");
        let link = crate::net::link_id(conn, world.conns[conn].generation);
        // The client may still have its end of it: what it keeps is waited for.
        world.kill(relay, Fault::ProcessDeath);
        world.run_for(1_000_000).unwrap();
        let told = format!("island 0: {:?}", Event::LinkClosed { link, ended: false });
        assert!(world.tail(3000).contains(&told), "{}", world.tail(3000));
    }

    #[test]
    fn the_direct_way_is_taken_again_when_it_is_there() {
        let mut world = relayed();
        world.partition(|_| true);
        world.run_for(40_000_000).unwrap();
        let conn = world.conn_between(Party::Client(0), NodeId(0));
        assert!(world.conns[conn].open && world.conns[conn].via.is_none(), "{}", world.tail(20));
    }

    #[test]
    fn an_attempt_at_the_direct_way_is_over_also_while_the_end_of_a_relayed_link_is_not_told() {
        let mut world = relayed();
        world.partition(|_| true);
        let conn = world.conn_between(Party::Client(0), NodeId(0));
        let due_ms = world.conns[conn].dialer.next_ms().expect("the direct way is tried again");
        assert_eq!(world.conns[conn].dialer.due(due_ms), Some(Via::Direct));
        world.break_conn(conn);
        assert!(world.conns[conn].open && !world.conns[conn].whole);
        world.open_conn(conn);
        world.run_for(40_000_000).unwrap();
        assert!(world.conns[conn].open && world.conns[conn].via.is_none(), "{}", world.tail(20));
    }
}
