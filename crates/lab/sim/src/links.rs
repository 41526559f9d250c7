//! Faults and links of the world: what breaks, what is cut apart, what comes back.

use atoll_core::{IslandId, NodeId, SessionId};
use atoll_disk::sim::Fault;
use atoll_island::Event;
use atoll_links::{BothWays, Via};

use crate::net::{Frame, ToClient, ToIsland};
use crate::world::{Happening, World};
use atoll_proto::PeerOp;

/// Who can be at an end of a link.
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
        links.try_fold(0, |sum, conn| {
            (conn.open && conn.whole && !conn.loses()).then_some(sum + conn.generation)
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

    /// Stops an island in order after a pause, unless it has died by then.
    pub(crate) fn stop_later(&mut self, island: usize, in_us: u64) {
        let life = self.nodes[island].life;
        self.schedule(in_us, Happening::Stop { island, life });
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
            let life = self.nodes[to].life;
            self.schedule(to_late + gone_late, Happening::LinkGone { conn, generation, life, ended });
        }
        let c = &mut self.conns[conn];
        let sender_died = matches!(from, Party::Island(i) if self.nodes[i].engine.is_none());
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
            let (from, to) = (one_side(c.from), one_side(Party::Island(c.to)));
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
            if one_side(c.from) && !one_side(Party::Island(c.to)) {
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
            self.island_takes(conn, frame);
        }
        for frame in from {
            self.client_takes(conn, frame);
        }
    }

    pub(crate) fn island_takes(&mut self, conn: usize, frame: Frame<ToIsland>) {
        let c = &mut self.conns[conn];
        if self.nodes[c.to].engine.is_none() {
            self.injected.dropped += 1;
        } else if c.busy {
            c.unread.push_back(frame);
        } else {
            self.read(conn, frame);
        }
    }

    /// Cuts every link between the two halves, or heals all.
    pub fn partition(&mut self, one_side: impl Fn(Party) -> bool) {
        let mut any = false;
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            let cut = one_side(c.from) != one_side(Party::Island(c.to));
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

    /// Whatever is cut, clients can reach every island.
    pub(crate) fn let_clients_through(&mut self) {
        for conn in self.conns.iter_mut().filter(|conn| matches!(conn.from, Party::Client(_))) {
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

    pub(crate) fn conn_between(&self, from: Party, to: usize) -> usize {
        self.conns
            .iter()
            .position(|c| c.from == from && c.to == to)
            .expect("everybody has a link to everybody")
    }

    pub(crate) fn party_is_up(&self, party: Party) -> bool {
        match party {
            Party::Client(_) => true,
            Party::Island(i) => self.nodes[i].engine.is_some(),
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
        let possible = !c.is_cut() && self.party_is_up(c.from) && self.nodes[c.to].engine.is_some();
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
        let life = self.nodes[to].life;
        self.schedule_at(at, Happening::LinkGone { conn, generation, life, ended: true });
    }

    /// A link is opened from here on, perhaps through another island.
    fn establish(&mut self, conn: usize, via: Option<usize>) {
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
        if !self.party_is_up(self.conns[conn].from) {
            // It is asked when that starts.
            return;
        }
        let now_ms = self.now_us() / 1000;
        while let Some(via) = self.conns[conn].dialer.due(now_ms) {
            match via {
                Via::Direct => self.try_open(conn),
                Via::Relay(relay) if self.may_relay(conn, usize::from(relay.0)) => {
                    let pause = self.delay() + self.delay();
                    self.schedule(pause, Happening::OpenRelayed { conn, relay: usize::from(relay.0) });
                }
                Via::Relay(_) => self.conns[conn].dialer.failed(now_ms, via),
            }
        }
        self.dial_later(conn);
    }

    pub(crate) fn open_relayed(&mut self, conn: usize, relay: usize) {
        let (now_ms, via) = (self.now_us() / 1000, Via::Relay(NodeId(relay as u16)));
        let may = self.may_relay(conn, relay);
        let c = &mut self.conns[conn];
        if !may {
            c.dialer.failed(now_ms, via);
        } else if c.dialer.connected(now_ms, via) {
            assert!(!c.open && !c.whole, "a relay is taken where there is no link");
            self.injected.relayed += 1;
            self.establish(conn, Some(relay));
        }
        self.dial_later(conn);
    }

    /// Whether an island can pass on what is sent on a link: it reaches the other side directly.
    fn may_relay(&self, conn: usize, relay: usize) -> bool {
        let c = &self.conns[conn];
        let there = &self.conns[self.conn_between(Party::Island(relay), c.to)];
        let is_up = |island: usize| self.nodes[island].engine.is_some();
        self.passes(conn, relay)
            && self.party_is_up(c.from)
            && is_up(c.to)
            && is_up(relay)
            && there.open
            && there.whole
            && there.via.is_none()
    }

    /// Whether the ways to an island that passes something on, and from it, are whole.
    fn passes(&self, conn: usize, relay: usize) -> bool {
        let c = &self.conns[conn];
        let here = self.conn_between(c.from, relay);
        let there = self.conn_between(Party::Island(relay), c.to);
        [here, there].iter().all(|leg| !self.conns[*leg].is_cut())
    }

    /// Links that are passed on end where a way to or from the island between is cut.
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
        self.note(format_args!("between {one:?} and {other:?}: {cut:?}"));
        let now = self.now_us();
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            let (from, to) = (c.from, Party::Island(c.to));
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

    /// An island learns something of its links with another one, and is told if that one can be reached now, or
    /// not any more.
    pub(crate) fn judge_links(
        &mut self,
        island: usize,
        other: usize,
        change: impl FnOnce(&mut BothWays) -> Option<bool>,
    ) {
        if let Some(up) = change(&mut self.both[island][other]) {
            self.begin(island, None, Event::PeerReachable { island: IslandId(other as u16), up });
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
            Some(relay) => self.note(format_args!("{from:?} has a link to island {to} through {relay}")),
            None => self.note(format_args!("{from:?} has a link to island {to}")),
        }
        match from {
            Party::Client(client) => {
                let island = IslandId(to as u16);
                self.with_client(client, &[], |route, out| match replaces {
                    true => route.replaced(island, out),
                    false => route.reachable(island, true, out),
                });
            }
            Party::Island(i) => {
                self.judge_links(to, i, |both| both.accepted(generation));
                self.judge_links(i, to, |both| if replaces { both.replaced() } else { both.outgoing(true) });
            }
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
            self.note(format_args!("{from:?} has lost its link to island {to}"));
            match from {
                Party::Client(client) => {
                    let island = IslandId(to as u16);
                    self.with_client(client, &[], |route, out| route.reachable(island, false, out));
                }
                Party::Island(i) => self.judge_links(i, to, |both| both.outgoing(false)),
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
        let frame = match self.wire.for_island(frame) {
            Ok(frame) => frame,
            Err(why) => {
                return self
                    .fail(format!("{:?} to island {}: {why}", self.conns[conn].from, self.conns[conn].to));
            }
        };
        let mut at = self.now_us() + self.delay_of_message();
        if self.conns[conn].via.is_some() {
            at += self.delay();
        }
        // Threads that perform the effects of one island overtake each other; but one thread sends all
        // that ends with `HelloDone`.
        let may = matches!(&frame.message, ToIsland::Peer(m) if !matches!(m.op, PeerOp::HelloDone));
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
        let frame = match self.wire.for_client(frame) {
            Ok(frame) => frame,
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
        world.cut_way(Party::Client(0), Party::Island(0), Cut::Opening { both: true });
        world.run_for(2_000_000).unwrap();
        let conn = world.conn_between(Party::Client(0), 0);
        assert!(world.conns[conn].open && world.conns[conn].via.is_some(), "{}", world.tail(20));
        world
    }

    #[test]
    fn the_end_of_a_relayed_link_is_silence_to_its_island() {
        let mut world = relayed();
        let conn = world.conn_between(Party::Client(0), 0);
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
        let conn = world.conn_between(Party::Client(0), 0);
        assert!(world.conns[conn].open && world.conns[conn].via.is_none(), "{}", world.tail(20));
    }

    #[test]
    fn an_attempt_at_the_direct_way_is_over_also_while_the_end_of_a_relayed_link_is_not_told() {
        let mut world = relayed();
        world.partition(|_| true);
        let conn = world.conn_between(Party::Client(0), 0);
        let due_ms = world.conns[conn].dialer.next_ms().expect("the direct way is tried again");
        assert_eq!(world.conns[conn].dialer.due(due_ms), Some(Via::Direct));
        world.break_conn(conn);
        assert!(world.conns[conn].open && !world.conns[conn].whole);
        world.open_conn(conn);
        world.run_for(40_000_000).unwrap();
        assert!(world.conns[conn].open && world.conns[conn].via.is_none(), "{}", world.tail(20));
    }
}
