//! Machines that stand still for a while, with their clocks going on: suspended, stopped by a signal, or starved.

use atoll_core::NodeId;

use crate::links::{Ending, Party, SILENCE_US};
use crate::world::{Happening, World};

impl World {
    /// A client's machine is suspended: it does nothing, its clocks go on, and what it is sent waits to be read. The
    /// time for which its kernel keeps answers stands still. Islands give up its links after a while.
    pub fn suspend(&mut self, client: usize, us: u64) {
        let until = self.now_us() + us;
        self.note(format_args!("client {client}: is suspended for {us} us"));
        self.clients[client].asleep_until_us = until;
        let asleep_ms = self.client_ms(client);
        let kept_ms = self.clients[client].kept_until_ms.saturating_sub(asleep_ms);
        if kept_ms > 0 {
            self.clients[client].kept_until_ms = self.clients[client].pace.ms(until) + kept_ms;
        }
        self.schedule_at(until, Happening::Woken { party: Party::Client(client) });
        self.fall_silent(Party::Client(client));
    }

    /// A machine whose process runs stands still: that does nothing, its clocks go on, and what it is sent waits to be
    /// read. Others give up its links after a while.
    pub fn freeze(&mut self, node: NodeId, us: u64) {
        if !self.runs(node) {
            return;
        }
        let until = self.now_us() + us;
        self.note(format_args!("machine {node}: stands still for {us} us"));
        self.injected.frozen += 1;
        self.machines[node].frozen_until_us = until;
        self.schedule_at(until, Happening::Woken { party: Party::Machine(node) });
        self.fall_silent(Party::Machine(node));
        for conn in 0..self.conns.len() {
            if self.conns[conn].via == Some(node) {
                self.break_conn(conn);
            }
        }
    }

    /// Whoever has a link with it will end that, unless it runs again before.
    fn fall_silent(&mut self, party: Party) {
        for conn in 0..self.conns.len() {
            let c = &self.conns[conn];
            if c.from == party || Party::Machine(c.to) == party {
                let generation = c.generation;
                self.schedule(SILENCE_US, Happening::GivenUp { conn, generation });
            }
        }
    }

    /// When somebody who stands still runs again; 0: he runs.
    fn still_until_us(&self, party: Party) -> u64 {
        match party {
            Party::Client(client) => self.clients[client].asleep_until_us,
            Party::Machine(node) => self.machines[node].frozen_until_us,
        }
    }

    /// Whether the process of a machine is there, and does not stand still.
    pub fn runs(&self, node: NodeId) -> bool {
        self.is_up(node) && self.machines[node].frozen_until_us == 0
    }

    /// Whether a client's machine is suspended.
    pub fn is_asleep(&self, client: usize) -> bool {
        self.clients[client].asleep_until_us > 0
    }

    /// To whom something happens, if it is to one who may stand still.
    fn happens_to(&self, what: &Happening) -> [Option<Party>; 2] {
        let from = |conn: usize| Some(self.conns[conn].from);
        let to = |conn: usize| Some(Party::Machine(self.conns[conn].to));
        match what {
            Happening::ClientTick { client }
            | Happening::Call { client, .. }
            | Happening::Recalled { client }
            | Happening::RecalledOf { client, .. } => [Some(Party::Client(*client)), None],
            Happening::Tick { copy, .. } | Happening::Go { copy, .. } | Happening::DiskDone { copy, .. } => {
                [Some(Party::Machine(self.copies[*copy].node)), None]
            }
            Happening::Perform { copy, .. } => [Some(Party::Machine(self.copies[*copy].node)), None],
            Happening::Stop { node, .. }
            | Happening::Leaves { node, .. }
            | Happening::SendBeats { node, .. }
            | Happening::Told { node, .. }
            | Happening::Local { node, .. }
            | Happening::Away { node, .. } => [Some(Party::Machine(*node)), None],
            Happening::Beat(beat) => [Some(Party::Machine(beat.to)), None],
            Happening::Answered { beat, .. } => [Some(Party::Machine(beat.from.node)), None],
            Happening::Opened { conn, .. } => [from(*conn), to(*conn)],
            Happening::Closed { conn, .. } | Happening::ToClient { conn, .. } => [from(*conn), None],
            Happening::LinkGone { conn, .. } => [to(*conn), None],
            _ => [None, None],
        }
    }

    /// What happens to somebody who stands still happens when he runs again.
    pub(crate) fn unless_still(&mut self, what: Happening) -> Option<Happening> {
        let parties = self.happens_to(&what).into_iter().flatten();
        let until = parties.map(|party| self.still_until_us(party)).max().unwrap_or(0);
        if until == 0 {
            return Some(what);
        }
        match what {
            Happening::ToClient { conn, generation, frame } => {
                let now = self.now_us();
                if let Party::Client(client) = self.conns[conn].from
                    && self.conns[conn].arrives(generation, now, false)
                {
                    self.clients[client].unread.push((conn, frame));
                }
            }
            what => self.schedule_at(until, what),
        }
        None
    }

    /// Somebody runs again.
    pub(crate) fn woken(&mut self, party: Party) {
        match party {
            Party::Client(client) => self.client_woken(client),
            Party::Machine(node) if self.machines[node].frozen_until_us == self.now_us() => {
                self.machine_woken(node);
            }
            // It has died meanwhile.
            Party::Machine(_) => {}
        }
    }

    /// A machine runs again: it reads what has come meanwhile, and has links again.
    fn machine_woken(&mut self, node: NodeId) {
        self.note(format_args!("machine {node}: runs again"));
        self.machines[node].frozen_until_us = 0;
        for conn in 0..self.conns.len() {
            if self.conns[conn].to == node && !self.conns[conn].busy {
                self.reads_on(conn);
            }
            if self.conns[conn].from == Party::Machine(node) {
                self.dial_later(conn);
            }
        }
        self.open_links_of(node);
    }

    /// A client's machine runs again: what has come meanwhile is read first, or time is looked at first.
    fn client_woken(&mut self, client: usize) {
        self.note(format_args!("client {client}: runs again"));
        self.clients[client].asleep_until_us = 0;
        if self.rng.percent(30) {
            let now_ms = self.client_ms(client);
            self.with_client(client, &[], |route, out| route.tick(now_ms, out));
        }
        for (conn, frame) in std::mem::take(&mut self.clients[client].unread) {
            self.client_takes(conn, frame);
        }
    }

    /// One end of a link has heard nothing of the other one, which still stands still, and ends the link.
    pub(crate) fn given_up(&mut self, conn: usize, generation: u64) {
        let (from, to) = (self.conns[conn].from, Party::Machine(self.conns[conn].to));
        let is_still = [from, to].iter().any(|party| self.still_until_us(*party) > 0);
        if is_still && self.conns[conn].generation == generation {
            self.end_link(conn, Ending::Silent);
        }
    }
}
