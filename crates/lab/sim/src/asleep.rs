//! Machines that stand still for a while, with their clocks going on: suspended, stopped by a signal, or starved.

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
        self.schedule_at(until, Happening::Woken { client });
        for conn in 0..self.conns.len() {
            if self.conns[conn].from == Party::Client(client) {
                let generation = self.conns[conn].generation;
                self.schedule(SILENCE_US, Happening::GivenUp { conn, generation });
            }
        }
    }

    /// Whether a client's machine is suspended.
    pub fn is_asleep(&self, client: usize) -> bool {
        self.clients[client].asleep_until_us > 0
    }

    /// What happens to a client that is suspended happens when it runs again.
    pub(crate) fn unless_asleep(&mut self, what: Happening) -> Option<Happening> {
        let client = match &what {
            Happening::ClientTick { client }
            | Happening::Call { client, .. }
            | Happening::Recalled { client } => *client,
            Happening::Opened { conn, .. }
            | Happening::Closed { conn, .. }
            | Happening::ToClient { conn, .. } => match self.conns[*conn].from {
                Party::Client(client) => client,
                Party::Machine(_) => return Some(what),
            },
            _ => return Some(what),
        };
        let until = self.clients[client].asleep_until_us;
        if until == 0 {
            return Some(what);
        }
        match what {
            Happening::ToClient { conn, generation, frame } => {
                let now = self.now_us();
                if self.conns[conn].arrives(generation, now, false) {
                    self.clients[client].unread.push((conn, frame));
                }
            }
            what => self.schedule_at(until, what),
        }
        None
    }

    /// A client's machine runs again: what has come meanwhile is read first, or time is looked at first.
    pub(crate) fn woken(&mut self, client: usize) {
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

    /// An island has heard nothing of a client that is still suspended, and ends their link.
    pub(crate) fn given_up(&mut self, conn: usize, generation: u64) {
        let Party::Client(client) = self.conns[conn].from else { return };
        if self.is_asleep(client) && self.conns[conn].generation == generation {
            self.end_link(conn, Ending::Silent);
        }
    }
}
