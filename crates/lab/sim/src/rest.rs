//! A world at rest: nothing is under way any more. Waits for that, and says what is in its way.

use atoll_core::{IslandId, NodeId};
use atoll_island::Event;
use atoll_view::Finding;

use crate::cause::Failure;
use crate::machines::IslandCopy;
use crate::net::Conn;
use crate::world::{PATIENCE_US, TICK_US, World};

impl World {
    /// Whether every island serves and every link is open.
    pub fn is_calm(&self) -> bool {
        self.disorder().is_none()
    }

    /// What does not serve, or is not open; none if everything is.
    fn disorder(&self) -> Option<String> {
        let is_whole = |c: &&Conn| c.open && c.whole && !c.is_deaf() && c.lost_to.is_empty();
        if let Some(conn) = self.conns.iter().find(|c| !is_whole(c)) {
            return Some(format!("{} has no whole link to machine {}", conn.from, conn.to));
        }
        if let Some(island) = self.groups.ids().find(|island| !self.leader(*island).serves()) {
            return Some(format!("island {island} does not serve"));
        }
        if let Some(node) = self.machines.ids().find(|node| !self.runs(*node)) {
            return Some(format!("machine {node} does not run"));
        }
        if let Some(client) = self.clients.iter().position(|c| !c.route.is_ready()) {
            return Some(format!("client {client} is not ready"));
        }
        self.unwhole_group()
    }

    /// What is still under way, although nothing is in its way; none if all is at rest.
    fn restless(&self) -> Option<String> {
        if let Some(why) = self.disorder() {
            return Some(why);
        }
        if self.conns.iter().any(|c| c.via.is_some()) {
            // It is replaced when the direct way is tried again: for a moment its machine is away then.
            return Some("a link goes through a relay".to_owned());
        }
        let stops = |node: &NodeId| self.machines[*node].stops_in == Some(self.machines[*node].life);
        if let Some(node) = self.machines.ids().find(stops) {
            return Some(format!("machine {node} is about to stop in order"));
        }
        if let Some(copy) = self.unwanted_copy() {
            return Some(format!(
                "the copy of island {} on machine {} is yet to be removed",
                copy.island, copy.node
            ));
        }
        for copy in self.copies.iter() {
            let i = copy.island;
            if !copy.threads.is_empty() || copy.waiting > 0 {
                return Some(format!("island {i} has threads at work"));
            }
            if let Some(why) = self.lags(copy) {
                return Some(format!("island {i}: {why}"));
            }
            let Some(engine) = copy.leading_engine() else { continue };
            let why = engine.with_island(|island| {
                let state = island.state();
                if !island.is_idle() {
                    return Some("is not idle".to_owned());
                }
                if !island.links_are_told() {
                    return Some("has links to directories that others do not know".to_owned());
                }
                if let Some(txn) = state.txn_ids().next() {
                    return Some(format!("keeps {txn:?}: {:?}", state.txn(txn)));
                }
                state.first_posted().map(|stamp| format!("still keeps journal entry {stamp:?}"))
            });
            if let Some(why) = why {
                return Some(format!("island {i} {why}"));
            }
        }
        None
    }

    /// The second phase of a run: nothing fails any more. Within a bound of virtual time every operation
    /// ends, the islands converge, and their rows hold together.
    pub fn converge(&mut self) -> Result<(), Failure> {
        self.heal();
        let until = self.now_us() + PATIENCE_US;
        while let Some(client) = self.clients.iter().position(|client| client.under_way() > 0) {
            if self.now_us() > until {
                return Err(Failure::new(format!("an operation of client {client} never ends")));
            }
            self.step()?;
        }
        crate::invariants(self)
    }

    /// Heals everything and waits until nothing is under way any more: that must come to pass.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.heal();
        let until = self.now_us() + PATIENCE_US;
        loop {
            self.run_for(20_000)?;
            let Some(why) = self.restless() else {
                self.machines.iter_mut().for_each(|machine| machine.ailment.was_full = false);
                return Ok(());
            };
            if self.now_us() > until {
                if self.has_groups() {
                    for line in self.groups_shown() {
                        self.note(format_args!("{line}"));
                    }
                }
                return Err(Failure::new(format!("the world does not come to rest: {why}")));
            }
        }
    }

    /// Has every island write a checkpoint, so that its snapshot holds all rows.
    pub fn checkpoint_all(&mut self) -> Result<(), Failure> {
        const ROUNDS_MAX: u32 = 20;
        for _ in 0..ROUNDS_MAX {
            self.settle()?;
            let newer = |island: &IslandId| {
                let engine = self.engine_of(*island).expect("settled");
                engine.with_island(|i| i.state().seq() > i.state().meta().seq)
            };
            let behind: Vec<IslandId> = self.groups.ids().filter(newer).collect();
            if behind.is_empty() && self.has_groups() && !self.have_snapshots() {
                // Its other copies come to it by themselves, or with the next one.
                self.run_for(1_000_000)?;
                if !self.have_snapshots() {
                    self.islands().into_iter().for_each(|island| self.checkpoint(island));
                    self.run_for(1_000_000)?;
                }
                continue;
            }
            if behind.is_empty() {
                return Ok(());
            }
            for island in behind {
                self.checkpoint(island);
            }
            self.run_for(3 * TICK_US)?;
        }
        Err(Failure::new("checkpoints never catch up with the state"))
    }

    /// Has every copy lay what is left, and compares the plain trees with the states.
    pub fn audit_all(&mut self) -> Result<(), Failure> {
        let kept: Vec<_> = self.copies.ids().filter(|id| self.is_kept(&self.copies[*id])).collect();
        for copy in kept {
            let IslandCopy { island, node, laying, .. } = &mut self.copies[copy];
            let (island, node) = (*island, *node);
            let Some(laying) = laying else { continue };
            let failed =
                |e: std::io::Error| Failure::new(format!("island {island} cannot lay its tree: {e}"));
            let report = laying.drain().map_err(failed)?;
            let findings = laying.audit().map_err(failed)?;
            self.judge_laid(copy, &report.conflicts, true);
            // What a power cut took may have left its bytes, see the design's known holes.
            let may_leave = self.machines[node].boot > 1;
            let is_left_over = |finding: &Finding| may_leave && matches!(finding, Finding::OrphanBody { .. });
            if let Some(finding) = findings.iter().find(|finding| !is_left_over(finding)) {
                let place = if self.has_groups() { format!(" on {node}") } else { String::new() };
                return Err(Failure::new(format!("island {island}{place}: plain tree: {finding:?}")));
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Has one island make a checkpoint now, if it is up.
    pub fn checkpoint(&mut self, island: IslandId) {
        if self.runs(self.machine_of(island)) {
            self.tell(island, Event::CheckpointWanted);
        }
    }

    /// Has the islands that a machine leads make checkpoints now, if it is up.
    pub(crate) fn checkpoint_on(&mut self, node: NodeId) {
        for island in self.led_by(node) {
            self.checkpoint(island);
        }
    }
}
