//! Words for scripted sequences: machines that stay away and come back one by one, pairs of machines that are
//! cut apart, disks that are slow, and what is under way between islands.
//!
//! Never judges, and has nothing happen that faults and threads of a daemon could not bring about.

use atoll_core::{Ino, IslandId, NodeId, Stamp};
use atoll_disk::sim::Fault;
use atoll_proto::{ParticipantWork, TxnState};
use atoll_state::RowKey;

use crate::cause::Failure;
use crate::links::Party;
use crate::machines::CopyId;
use crate::thread::Thread;
use crate::world::{Happening, World};

/// Machines whose disks do not get around to syncs and bodies: the threads that want one wait.
#[derive(Debug)]
pub struct SlowDisks {
    nodes: Vec<NodeId>,
    waiting: Vec<(CopyId, u64, Thread)>,
}

impl SlowDisks {
    /// Of these machines.
    pub fn new(nodes: &[NodeId]) -> Self {
        Self { nodes: nodes.to_vec(), waiting: Vec::new() }
    }

    /// Whether a thread waits.
    pub const fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl World {
    /// The machine's process ends now as `fault` says, and stays down until [`World::come_back`].
    pub fn stay_away(&mut self, node: NodeId, fault: Fault) {
        self.machines[node].held_down = true;
        self.kill(node, fault);
    }

    /// The process of a machine that stayed away starts.
    pub fn come_back(&mut self, node: NodeId) {
        let machine = &mut self.machines[node];
        machine.held_down = false;
        let life = machine.life;
        self.schedule(1000, Happening::Start { node, life });
    }

    /// Cuts two machines apart, or lets them have links again.
    pub fn cut_between(&mut self, one: NodeId, other: NodeId, cut: bool) {
        self.injected.partitions += u64::from(cut);
        self.cut_one(one, other, cut);
        self.cut_one(other, one, cut);
    }

    /// Cuts the link over which one machine sends to another, or lets it have one again.
    pub fn cut_link(&mut self, from: NodeId, to: NodeId, cut: bool) {
        self.injected.one_way += u64::from(cut);
        self.cut_one(from, to, cut);
    }

    fn cut_one(&mut self, from: NodeId, to: NodeId, cut: bool) {
        let conn = self.conn_between(Party::Machine(from), to);
        self.conns[conn].cut = cut;
        if cut {
            self.break_conn(conn);
        } else if !self.conns[conn].open {
            self.try_open(conn);
        }
    }

    /// Whether an island serves.
    pub fn serves(&self, island: IslandId) -> bool {
        self.leader(island).serves()
    }

    /// What is under way between an island and others, as its rows have it.
    pub fn works(&self, island: IslandId) -> Vec<(TxnState, ParticipantWork)> {
        let Some(engine) = self.engine_of(island) else { return Vec::new() };
        engine.with_island(|island| {
            let state = island.state();
            let rows = state.txn_ids().filter_map(|txn| state.txn(txn));
            rows.map(|row| (row.state, row.part.work.clone())).collect()
        })
    }

    /// How many clients hold a file or directory at an island, because it has no name or for a lock.
    pub fn holders(&self, island: IslandId, ino: Ino) -> usize {
        let Some(engine) = self.engine_of(island) else { return 0 };
        engine.with_island(|island| {
            let state = island.state();
            let holds = |id| state.session(id).is_some_and(|row| row.held.contains(&ino));
            state.session_ids().filter(|id| holds(*id)).count()
        })
    }

    /// Whether an island has ever doubted that it knows all directories as they are, and so compared.
    pub fn has_doubted(&self, island: IslandId) -> bool {
        self.engine_of(island).is_some_and(|engine| {
            engine.with_island(|island| island.state().skipped(island.config().id) != Stamp::default())
        })
    }

    /// The islands that home a file.
    pub fn homes(&self, ino: Ino) -> Vec<IslandId> {
        let has = |island: IslandId| {
            self.engine_of(island).is_some_and(|engine| {
                engine.with_island(|island| match island.state().inode(ino) {
                    Ok(row) => row.is_some_and(|row| row.attr.nlink > 0),
                    // It is in the snapshot.
                    Err(_) => {
                        engine.snapshot().get(&RowKey::Inode(ino).to_bytes()).is_ok_and(|row| row.is_some())
                    }
                })
            })
        };
        self.groups.ids().filter(|island| has(*island)).collect()
    }

    /// Has the next thing happen, while some disks are slow.
    pub fn step_slowly(&mut self, slow: &mut SlowDisks) -> Result<(), Failure> {
        self.step()?;
        for (id, copy) in self.copies.ids().zip(self.copies.iter_mut()) {
            if slow.nodes.contains(&copy.node) {
                let life = self.machines[copy.node].life;
                let threads = copy.threads.extract_if(.., |thread| thread.is_slow());
                slow.waiting.extend(threads.map(|thread| (id, life, thread)));
            }
        }
        Ok(())
    }

    /// The slow disks get around to what they were asked for.
    pub fn disks_catch_up(&mut self, slow: SlowDisks) {
        for (id, life, thread) in slow.waiting {
            let copy = &mut self.copies[id];
            if self.machines[copy.node].life == life {
                copy.threads.push(thread);
                self.keep_going(id);
            }
        }
    }
}
