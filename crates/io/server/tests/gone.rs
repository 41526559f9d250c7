//! Frames about islands that are not at the node that they come to: they are answered, and end no link.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_client::{Client, NodePlace, Nodes};
use atoll_core::{IslandId, NodeId, SessionId, Table};
use atoll_proto::{ClientOp, Lease, MayKeep, NodeConfig, Outcome, Reply, Request, VolumeConfig};
use atoll_rpc::{
    Acceptor, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options,
};
use common::node::{LONG, Other, VOLUME, config, serve};

/// No thread listens there.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn a_request_to_an_island_of_another_node_is_answered_and_ends_no_link() {
    let data = tempfile::tempdir().unwrap();
    let (node, mut listener) = serve(data.path(), &config([&[0], &[1]], NOWHERE));
    let client = Other::client(listener.address());
    client.ask(1, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 1, 0));
    client.ask(0, 6, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Reply, 0, 6), "the link goes on");
    listener.stop();
    assert!(node.stop().is_empty());
}

#[test]
fn a_request_to_an_island_that_the_volume_has_not_ends_its_link() {
    let data = tempfile::tempdir().unwrap();
    let (node, mut listener) = serve(data.path(), &config([&[0], &[1]], NOWHERE));
    let client = Other::client(listener.address());
    client.ask(2, 5, ClientOp::Attach { mount: false });
    let end = Instant::now() + LONG;
    while client.is_up() {
        assert!(Instant::now() < end, "the link stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    listener.stop();
    assert!(node.stop().is_empty());
}

#[test]
fn a_message_to_an_island_of_another_node_is_answered_and_ends_no_link() {
    let data = tempfile::tempdir().unwrap();
    let (node, mut listener) = serve(data.path(), &config([&[0], &[1, 2]], NOWHERE));
    let other = Other::node(listener.address(), 1);
    other.greet(1, 2);
    assert_eq!(other.next(), (FrameKind::Gone, 2, 0));
    other.greet(1, 1);
    assert_eq!(other.next(), (FrameKind::Gone, 1, 0), "the link goes on");
    listener.stop();
    assert!(node.stop().is_empty());
}

/// Node 1 has heard that it holds island 2 now; node 0 hears it later.
#[test]
fn what_an_island_says_before_its_place_is_known_is_said_again_and_ends_no_link() {
    let data = tempfile::tempdir().unwrap();
    let old = VolumeConfig { table: Table::new(3), ..config([&[0], &[1]], NOWHERE) };
    let (address, islands) = (NOWHERE.to_owned(), vec![IslandId(2)]);
    let third = NodeConfig { daemon: 0, node: NodeId(2), address, islands };
    let old = VolumeConfig { nodes: [old.nodes.clone(), vec![third]].concat(), ..old };
    let (node, mut listener) = serve(data.path(), &old);
    let other = Other::node(listener.address(), 1);
    other.greet(2, 0);
    other.greet(1, 1);
    assert_eq!(
        other.next(),
        (FrameKind::Gone, 1, 0),
        "nothing is answered to island 2, and the link goes on"
    );
    let mut new = VolumeConfig { table: old.table.doubled(), ..old.clone() };
    let moves = new.nodes[2].islands.pop().unwrap();
    new.nodes[1].islands.push(moves);
    node.take_config(&new).unwrap();
    // The islands of node 1 begin anew with island 0, as after a lost link.
    assert_eq!([other.next(), other.next()], [(FrameKind::Gone, 0, 0), (FrameKind::Primary, 0, 0)]);
    node.take_config(&new).unwrap();
    other.hears_nothing();
    listener.stop();
    assert!(node.stop().is_empty());
}

/// A node whose islands are where it says.
#[derive(Default)]
struct Says {
    asked: AtomicU32,
    /// Island 1 is here.
    is_here: AtomicBool,
    links: Mutex<Vec<Arc<Link>>>,
}

impl Acceptor for Says {
    fn welcome(&self, _: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(5), 1))
    }
}

impl Handler for Says {
    fn opened(&self, link: &Arc<Link>) {
        self.links.lock().unwrap().push(Arc::clone(link));
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        frame.decode::<Request>().unwrap();
        self.asked.fetch_add(1, SeqCst);
        if !self.is_here.load(SeqCst) {
            return link.gone(frame.island).unwrap();
        }
        let outcome = Outcome::Attached { lease: Lease::No, power: 1 };
        let reply = Reply::bare(outcome);
        link.send(FrameKind::Reply, frame.island, frame.id, &reply, &[]).unwrap();
    }

    fn closed(&self, _: &Arc<Link>, _: &Closed) {}
}

#[test]
fn a_client_asks_an_island_that_is_gone_again_when_it_is_back_and_not_before() {
    let says = Arc::new(Says::default());
    let any = "127.0.0.1:0".parse().unwrap();
    let mut listener = Listener::start(&any, Arc::clone(&says) as _, Options::default()).unwrap();
    let place = NodePlace {
        node: NodeId(0),
        daemon: 0,
        address: listener.address().clone(),
        islands: vec![IslandId(1)],
        copies: Vec::new(),
    };
    let nodes = Nodes::new(VOLUME, SessionId(3), &[place]);
    let route = atoll_route::Config {
        seed: 42,
        table: Table::new(2),
        islands: vec![IslandId(1)],
        session: SessionId(3),
        mount: false,
        keeps: false,
        patience_ms: Some(5_000),
        scope: None,
    };
    let client = Client::new(route, nodes.wires());
    nodes.connect(&client);
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + LONG;
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("it never asks", &|| says.asked.load(SeqCst) > 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(says.asked.load(SeqCst), 1, "it asks although the island is gone");
    let link = Arc::clone(&says.links.lock().unwrap()[0]);
    // What is not the client's business ends no link either.
    let reply = Reply { vector: Vec::new(), may_keep: MayKeep::Yes, outcome: Outcome::NoSession };
    link.send(FrameKind::Reply, IslandId(7), 1, &reply, &[]).unwrap();
    link.gone(IslandId(7)).unwrap();
    says.is_here.store(true, SeqCst);
    link.primary(IslandId(1), 0).unwrap();
    until("it does not ask again", &|| says.asked.load(SeqCst) >= 2);
    assert!(client.wait_ready(LONG), "it is not attached");
    assert!(link.closed().is_none(), "the link has ended: {:?}", link.closed());
    assert_eq!(says.links.lock().unwrap().len(), 1);
    client.stop();
    nodes.stop();
    listener.stop();
}
