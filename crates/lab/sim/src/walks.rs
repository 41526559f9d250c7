//! Clients that have only paths, as libraries do: walks from the root, and what they cost.

use atoll_core::{Ino, VolumePath};
use atoll_posix::{Answer, Caller, Errno};

use crate::cause::Failure;
use crate::world::{PATIENCE_US, World};

impl World {
    /// Has a client walk a path to its end: what is there, and how many requests that took.
    pub fn walk(
        &mut self,
        client: usize,
        caller: &Caller,
        path: &VolumePath,
    ) -> Result<(Result<Ino, Errno>, u64), Failure> {
        let before = self.clients[client].route.counters().requests;
        let token = self.begin_walk(client, caller, path);
        let until = self.now_us() + PATIENCE_US;
        let done = loop {
            if let Some(done) = self.poll(client, token) {
                break done;
            }
            if self.now_us() > until {
                return Err(Failure::new(format!("client {client} walks {path} for ever")));
            }
            self.step()?;
        };
        let requests = self.clients[client].route.counters().requests - before;
        let found = match done {
            Ok((Answer::Found { found }, _)) => Ok(found.attr.ino),
            Ok(other) => return Err(Failure::new(format!("a walk of {path} ends with {other:?}"))),
            Err(errno) => Err(errno),
        };
        Ok((found, requests))
    }

    /// Has a client begin to walk a path; [`World::poll`] says when that ends.
    pub fn begin_walk(&mut self, client: usize, caller: &Caller, path: &VolumePath) -> u64 {
        let token = self.clients[client].begin();
        let now_ms = self.client_ms(client);
        self.note(format_args!("client {client}: walk {token} {path}"));
        self.with_client(client, &[], |route, out| {
            route.walk(now_ms, caller, path.clone(), token, out);
        });
        token
    }

    /// Hints that a client has.
    pub fn hints(&self, client: usize) -> usize {
        self.clients[client].route.hints().len()
    }
}
