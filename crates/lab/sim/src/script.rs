//! Words for scripted sequences: islands that stay away and come back one by one, pairs of islands that are
//! cut apart, disks that are slow, and what is under way between islands.
//!
//! Never judges, and has nothing happen that faults and threads of a daemon could not bring about.

use atoll_core::{Ino, Stamp};
use atoll_disk::sim::Fault;
use atoll_island::Phase;
use atoll_proto::{ParticipantWork, TxnState};
use atoll_state::RowKey;

use crate::cause::Failure;
use crate::links::Party;
use crate::thread::Thread;
use crate::world::{Happening, World};

/// Islands whose disks do not get around to syncs and bodies: the threads that want one wait.
#[derive(Debug)]
pub struct SlowDisks {
    islands: Vec<usize>,
    waiting: Vec<(usize, u64, Thread)>,
}

impl SlowDisks {
    /// Of these islands.
    pub fn new(islands: &[usize]) -> Self {
        Self { islands: islands.to_vec(), waiting: Vec::new() }
    }

    /// Whether a thread waits.
    pub const fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl World {
    /// The island ends now as `fault` says, and stays down until [`World::come_back`].
    pub fn stay_away(&mut self, island: usize, fault: Fault) {
        self.nodes[island].held_down = true;
        self.kill(island, fault);
    }

    /// An island that stayed away starts.
    pub fn come_back(&mut self, island: usize) {
        let node = &mut self.nodes[island];
        node.held_down = false;
        let life = node.life;
        self.schedule(1000, Happening::Start { island, life });
    }

    /// Cuts two islands apart, or lets them have links again.
    pub fn cut_between(&mut self, one: usize, other: usize, cut: bool) {
        self.injected.partitions += u64::from(cut);
        self.cut_one(one, other, cut);
        self.cut_one(other, one, cut);
    }

    /// Cuts the link over which one island sends to another, or lets it have one again.
    pub fn cut_link(&mut self, from: usize, to: usize, cut: bool) {
        self.injected.one_way += u64::from(cut);
        self.cut_one(from, to, cut);
    }

    fn cut_one(&mut self, from: usize, to: usize, cut: bool) {
        let conn = self.conn_between(Party::Island(from), to);
        self.conns[conn].cut = cut;
        if cut {
            self.break_conn(conn);
        } else if !self.conns[conn].open {
            self.try_open(conn);
        }
    }

    /// Whether an island serves.
    pub fn serves(&self, island: usize) -> bool {
        self.nodes[island].engine.as_ref().is_some_and(|engine| engine.phase() == Phase::Normal)
    }

    /// What is under way between an island and others, as its rows have it.
    pub fn works(&self, island: usize) -> Vec<(TxnState, ParticipantWork)> {
        let Some(engine) = &self.nodes[island].engine else { return Vec::new() };
        engine.with_island(|island| {
            let state = island.state();
            let rows = state.txn_ids().filter_map(|txn| state.txn(txn));
            rows.map(|row| (row.state, row.part.work.clone())).collect()
        })
    }

    /// How many clients hold a file or directory at an island, because it has no name or for a lock.
    pub fn holders(&self, island: usize, ino: Ino) -> usize {
        let Some(engine) = &self.nodes[island].engine else { return 0 };
        engine.with_island(|island| {
            let state = island.state();
            let holds = |id| state.session(id).is_some_and(|row| row.held.contains(&ino));
            state.session_ids().filter(|id| holds(*id)).count()
        })
    }

    /// Whether an island has ever doubted that it knows all directories as they are, and so compared.
    pub fn has_doubted(&self, island: usize) -> bool {
        self.nodes[island].engine.as_ref().is_some_and(|engine| {
            engine.with_island(|island| island.state().skipped(island.config().id) != Stamp::default())
        })
    }

    /// The islands that home a file.
    pub fn homes(&self, ino: Ino) -> Vec<usize> {
        let has = |island: usize| {
            let engine = self.nodes[island].engine.as_ref();
            engine.is_some_and(|engine| {
                engine.with_island(|island| match island.state().inode(ino) {
                    Ok(row) => row.is_some_and(|row| row.attr.nlink > 0),
                    // It is in the snapshot.
                    Err(_) => {
                        engine.snapshot().get(&RowKey::Inode(ino).to_bytes()).is_ok_and(|row| row.is_some())
                    }
                })
            })
        };
        (0..self.nodes.len()).filter(|island| has(*island)).collect()
    }

    /// Has the next thing happen, while some disks are slow.
    pub fn step_slowly(&mut self, slow: &mut SlowDisks) -> Result<(), Failure> {
        self.step()?;
        for island in slow.islands.iter().copied() {
            let node = &mut self.nodes[island];
            for thread in node.threads.extract_if(.., |thread| thread.is_slow()) {
                slow.waiting.push((island, node.life, thread));
            }
        }
        Ok(())
    }

    /// The slow disks get around to what they were asked for.
    pub fn disks_catch_up(&mut self, slow: SlowDisks) {
        for (island, life, thread) in slow.waiting {
            if self.nodes[island].life == life {
                self.nodes[island].threads.push(thread);
                self.keep_going(island);
            }
        }
    }
}
