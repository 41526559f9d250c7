//! A control store that a node serves, as others reach it: group records, and the list of the cluster.
//!
//! Never asks twice by itself: a swap whose answer is lost may have been made, and is told as such.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use atoll_core::{IslandId, Malformed, VolumeId};
use atoll_proto::cluster::{Cluster, StoredCluster};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::{Address, Closed, DaemonId, Frame, FrameKind, Handler, Hello, Link, Options, Outgoing, Role};

use crate::cluster::ClusterStore;
use crate::groups::{GroupStore, WATCH_MAX};
use crate::store::{ConfigStore, ControlError};

/// How long a question may take. The store waits for its disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// The store at a node's address. Connects when it is asked, and stays connected.
pub struct ServedStore {
    outgoing: RwLock<Arc<Outgoing>>,
    node: Option<DaemonId>,
    asked: Arc<Asked>,
    patience: Duration,
    next_id: AtomicU64,
}

impl std::fmt::Debug for ServedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServedStore({})", self.outgoing().address())
    }
}

/// Questions that are under way.
#[derive(Default)]
struct Asked(Mutex<BTreeMap<u64, Question>>);

struct Question {
    /// The link on which it was asked.
    link: u64,
    answer: Sender<Result<ControlReply, String>>,
}

impl Asked {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Question>> {
        self.0.lock().expect("no panic while it is held")
    }

    fn answer(&self, id: u64, reply: Result<ControlReply, String>) {
        // Whoever has asked may have given up, and has forgotten it then.
        if let Some(question) = self.lock().remove(&id) {
            let _ = question.answer.send(reply);
        }
    }

    /// What was asked on this link is not answered any more.
    fn lost(&self, link: &Link, why: &str) {
        let lost: Vec<u64> =
            self.lock().iter().filter(|(_, asked)| asked.link == link.id()).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.answer(id, Err(why.to_owned())));
    }
}

impl Handler for Asked {
    fn replaced(&self, _link: &Arc<Link>, old: &Arc<Link>) {
        self.lost(old, "another connection has taken the place of this one");
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        if frame.kind != FrameKind::ControlReply {
            return link.malformed(Malformed::new("kind of frame for a question"));
        }
        match frame.decode() {
            Ok(reply) => self.answer(frame.id, Ok(reply)),
            Err(what) => link.malformed(what),
        }
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        self.lost(link, &why.to_string());
    }
}

impl ServedStore {
    /// The store at this address.
    pub fn new(address: Address) -> Self {
        Self::with_patience(address, PATIENCE)
    }

    /// The same; a question may take so long.
    pub fn with_patience(address: Address, patience: Duration) -> Self {
        Self::of_node(address, patience, None)
    }

    /// The same. In a cluster with certificates, `node` is the one whose store it is: another one at its address is not asked.
    pub fn of_node(address: Address, patience: Duration, node: Option<DaemonId>) -> Self {
        let asked = Arc::<Asked>::default();
        let outgoing = RwLock::new(Arc::new(outgoing(address, &asked, node)));
        Self { outgoing, node, asked, patience, next_id: AtomicU64::new(1) }
    }

    /// It is at this address from now on. What is under way at another one fails.
    pub fn move_to(&self, address: &Address) {
        let mut now = self.outgoing.write().expect("no panic while it is held");
        if now.address() != address {
            now.stop();
            *now = Arc::new(outgoing(address.clone(), &self.asked, self.node));
        }
    }

    fn outgoing(&self) -> Arc<Outgoing> {
        Arc::clone(&self.outgoing.read().expect("no panic while it is held"))
    }

    /// Asks once. Without an answer the question may have been heard all the same.
    fn ask(&self, order: &Control, patience: Duration) -> Result<ControlReply, String> {
        let until = Instant::now() + patience;
        let link = self.outgoing().connect(patience).map_err(|why| why.to_string())?;
        let (answer, answered) = channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().insert(id, Question { link: link.id(), answer });
        if let Err(why) = link.send(FrameKind::Control, IslandId(0), id, order, &[]) {
            self.asked.answer(id, Err(why.to_string()));
        }
        if let Some(why) = link.closed() {
            // That it has ended may have been told before the question was there.
            self.asked.answer(id, Err(why.to_string()));
        }
        match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.asked.lock().remove(&id);
                Err(format!("no answer within {} ms", patience.as_millis()))
            }
        }
    }

    /// Gives an order, and waits for the answer. Without one it may have been heard all the same.
    pub fn order(&self, order: &Control) -> Result<ControlReply, String> {
        self.ask(order, self.patience)
    }

    fn swap(&self, order: &Control) -> Swapped {
        match self.ask(order, self.patience) {
            Ok(ControlReply::Swapped { swapped }) => swapped,
            Ok(other) => Swapped::Unknown { why: strange(other) },
            Err(why) => Swapped::Unknown { why },
        }
    }

    fn read<T>(
        &self,
        order: &Control,
        patience: Duration,
        is: impl FnOnce(ControlReply) -> Result<T, String>,
    ) -> Result<T, ControlError> {
        let read = self.ask(order, patience).and_then(is);
        read.map_err(|why| ControlError::Unavailable { place: self.outgoing().address().to_string(), why })
    }
}

fn outgoing(address: Address, asked: &Arc<Asked>, node: Option<DaemonId>) -> Outgoing {
    let greeting = Box::new(|| Hello::new(Role::Tool, None));
    let options = Options { expects: node, ..Options::default() };
    Outgoing::new(address, greeting, Arc::clone(asked) as Arc<dyn Handler>, options)
}

impl ConfigStore for ServedStore {
    fn newest_config(&self, volume: VolumeId) -> Result<VolumeConfig, ControlError> {
        self.read(&Control::Config { volume }, self.patience, |reply| match reply {
            ControlReply::Volume { config, .. } if config.id == volume => Ok(*config),
            other => Err(strange(other)),
        })
    }

    fn swap_config(&self, next: &VolumeConfig, expected: u64) -> Swapped {
        self.swap(&Control::SwapConfig { expected, next: Box::new(next.clone()) })
    }
}

impl ClusterStore for ServedStore {
    fn cluster(&self) -> Result<Option<StoredCluster>, ControlError> {
        self.read(&Control::Cluster, self.patience, |reply| match reply {
            ControlReply::Cluster { cluster } => {
                let list = cluster.map(|list| list.cluster.check().map(|()| *list)).transpose();
                list.map_err(|why| why.to_string())
            }
            other => Err(strange(other)),
        })
    }

    fn swap_cluster(&self, expected: Revision, next: &Cluster) -> Swapped {
        assert_eq!(next.check(), Ok(()), "{next:?} is no list of a cluster");
        let order = Control::SwapCluster { expected, next: Box::new(next.clone()) };
        self.swap(&order)
    }
}

/// Why an answer is none.
fn strange(reply: ControlReply) -> String {
    match reply {
        ControlReply::Refused { text } => text,
        _ => "the answer does not fit the question".to_owned(),
    }
}

impl GroupStore for ServedStore {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        self.read(&Control::Group { volume, island }, self.patience, |reply| match reply {
            ControlReply::Group { group } => Ok(group),
            other => Err(strange(other)),
        })
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        assert_eq!(next.check(), Ok(()), "{next:?} is no group");
        let order = Control::SwapGroup { volume, island, expected, next: next.clone() };
        self.swap(&order)
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        let wait = wait.min(WATCH_MAX);
        let order = Control::Groups { volume, since, wait_ms: wait.as_millis() as u32 };
        self.read(&order, self.patience + wait, |reply| match reply {
            ControlReply::Groups { changed } => Ok(changed),
            other => Err(strange(other)),
        })
    }
}
