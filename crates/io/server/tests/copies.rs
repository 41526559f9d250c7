//! Dangerous sequences of `docs/design/018-copies.md`, by their names there: a node that keeps a copy and follows, with real links.
//! The other node, which leads, is the test.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_control::{GroupStore, ServedStore};
use atoll_core::{IslandId, NodeId};
use atoll_disk::real::RealDisk;
use atoll_dispatch::OpenError;
use atoll_proto::control::IslandPhase;
use atoll_proto::group::{Host, Primary, Swapped};
use atoll_proto::{
    ClientOp, Control, ControlReply, Copies, GroupRecord, IslandGroup, Promised, VolumeConfig,
};
use atoll_rpc::{
    Acceptor, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options,
};
use atoll_server::{Desk, Node, Shelf, VolumeError};
use common::node::{LONG, Other, VOLUME, config, listen, node, shelf};

const ISLAND: IslandId = IslandId(0);
/// Which life of the other node leads.
const LIFE: u32 = 5;
/// A copy claims no earlier than so long after it has promised, but for a moment.
const PROMISED: Duration = Duration::from_millis(1_100);

/// The other node, which tells of the frames that it gets.
struct Hears(Mutex<Sender<Frame>>);

impl Acceptor for Hears {
    fn welcome(&self, _: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(2), LIFE))
    }
}

impl Handler for Hears {
    fn frame(&self, _: &Arc<Link>, frame: Frame) {
        let _ = self.0.lock().unwrap().send(frame);
    }
    fn closed(&self, _: &Arc<Link>, _: &Closed) {}
}

/// Node 0, which keeps a copy of the only island and its group's record. Node 1 leads by that.
struct Follower {
    node: Arc<Node>,
    listener: Listener,
    there: Listener,
    frames: Receiver<Frame>,
    store: ServedStore,
    _data: tempfile::TempDir,
}

impl Follower {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let (send, frames) = channel();
        let any = "127.0.0.1:0".parse().unwrap();
        let there = Listener::start(&any, Arc::new(Hears(Mutex::new(send))), Options::default()).unwrap();
        let nodes = vec![NodeId(1), NodeId(0)];
        let groups = vec![IslandGroup { island: ISLAND, nodes }];
        let copies =
            Some(Copies { wanted: 2, store: NodeId(0), groups, racks: Vec::new(), ..Copies::default() });
        let config = VolumeConfig { copies, ..config([&[], &[0]], &there.address().to_string()) };
        let node = node(data.path(), 1, shelf());
        node.prepare(&config, NodeId(0)).unwrap();
        let listener = listen(&node);
        let store = ServedStore::with_patience(listener.address().clone(), LONG);
        let first = store.group(VOLUME, ISLAND).unwrap().expect("it was made with the volume");
        let host = Host { boot: 1, inode: 1 };
        let primary = Some(Primary { node: NodeId(1), life: LIFE, host, attempt: 1 });
        let record = GroupRecord { epoch: 1, primary, ..first.record };
        let swapped = store.swap_group(VOLUME, ISLAND, first.revision, &record);
        assert!(matches!(swapped, Swapped::Done { .. }), "{swapped:?}");
        node.activate(config.id).unwrap();
        Self { node, listener, there, frames, store, _data: data }
    }

    fn record(&self) -> GroupRecord {
        self.store.group(VOLUME, ISLAND).unwrap().unwrap().record
    }

    /// Node 1 sends a beacon until it is promised something; when that beacon left.
    fn promises(&self, other: &Other) -> Instant {
        let end = Instant::now() + LONG;
        for token in 1.. {
            assert!(Instant::now() < end, "nothing is promised");
            let sent = Instant::now();
            other.beacon(token, ISLAND, 1);
            while let Ok(frame) = self.frames.recv_timeout(Duration::from_millis(100)) {
                if frame.kind == FrameKind::Promised
                    && frame.decode::<Promised>().is_ok_and(|p| p.token == token && p.refused.is_empty())
                {
                    return sent;
                }
            }
        }
        unreachable!("tokens do not end")
    }

    fn end(mut self) {
        self.listener.stop();
        assert!(self.node.stop().is_empty());
        self.there.stop();
    }
}

/// Links of a primary end, and it links again. Neither is taken for its death: only its silence is, when the promise is over.
#[test]
fn a_reset_proves_nothing() {
    let follower = Follower::new();
    let other = Other::node(follower.listener.address(), LIFE);
    let promised = follower.promises(&other);
    drop(other);
    let again = Other::node(follower.listener.address(), LIFE);
    drop(again);
    let record = loop {
        let record = follower.record();
        if record.epoch > 1 {
            break record;
        }
        assert!(promised.elapsed() < LONG, "it never leads");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(promised.elapsed() > PROMISED, "it claims after {:?}", promised.elapsed());
    assert_eq!(record.primary.map(|primary| primary.node), Some(NodeId(0)));
    follower.end();
    // A later life over the same directory is a proof, also while promises are asked for and given.
    let follower = Follower::new();
    let other = Other::node(follower.listener.address(), LIFE);
    let promised = follower.promises(&other);
    let later = Other::node(follower.listener.address(), LIFE + 1);
    while follower.record().epoch == 1 {
        assert!(promised.elapsed() < LONG, "it never leads");
        other.beacon(u64::MAX, ISLAND, 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(later);
    follower.end();
}

/// A client asks the copy that follows: it is told so, its link goes on, and on that link it hears when the copy leads.
#[test]
fn a_frame_for_a_follower_ends_no_link() {
    let follower = Follower::new();
    let other = Other::node(follower.listener.address(), LIFE);
    follower.promises(&other);
    let client = Other::client(follower.listener.address());
    client.ask(0, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 0, 0));
    other.greet(0, 0);
    drop(other);
    let word = std::iter::repeat_with(|| client.next()).find(|word| word.0 != FrameKind::Gone);
    assert_eq!(word.map(|word| (word.0, word.1)), Some((FrameKind::Primary, 0)));
    client.ask(0, 6, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Reply, 0, 6));
    follower.end();
}

/// The disk of a node is full when it starts: its copy is opened when there is room, without another start.
#[test]
fn a_copy_that_found_no_room_at_the_start_of_its_node_is_opened_when_there_is_some() {
    let (data, is_full) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let groups = vec![IslandGroup { island: ISLAND, nodes: vec![NodeId(0)] }];
    let copies = Some(Copies { wanted: 1, store: NodeId(0), groups, racks: Vec::new(), ..Copies::default() });
    let config = VolumeConfig { copies, ..config([&[0], &[]], "127.0.0.1:1") };
    let (opens, full) = (shelf(), Arc::clone(&is_full));
    let shelf: Shelf<RealDisk> = Arc::new(move |folder, island, is_new| {
        if full.load(Ordering::Relaxed) {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(VolumeError::Open(OpenError::Io(island, error)));
        }
        opens(folder, island, is_new)
    });
    let first = node(data.path(), 1, Arc::clone(&shelf));
    first.prepare(&config, NodeId(0)).unwrap();
    first.activate(config.id).unwrap();
    assert!(first.stop().is_empty());
    drop(first);
    is_full.store(true, Ordering::Relaxed);
    let node = node(data.path(), 2, shelf);
    assert!(node.greet_all().unwrap().is_empty());
    let listener = listen(&node);
    assert!(node.open_all().is_empty(), "the node serves without it");
    let phase = || {
        let ControlReply::Status { volumes, .. } = node.answer(Control::Status) else { panic!("no status") };
        assert_eq!(volumes[0].volume.problem, None);
        volumes[0].islands.iter().map(|island| island.phase).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        node.care();
        assert_ne!(phase(), [IslandPhase::Normal]);
    }
    is_full.store(false, Ordering::Relaxed);
    let end = Instant::now() + LONG;
    while phase() != [IslandPhase::Normal] {
        assert!(Instant::now() < end, "it is not opened: {:?}", phase());
        node.care();
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(listener);
    assert!(node.stop().is_empty());
}
