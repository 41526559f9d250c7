//! A node that has begun and whose islands are not open yet.

mod common;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_core::IslandId;
use atoll_disk::real::RealDisk;
use atoll_dispatch::OpenError;
use atoll_proto::control::IslandPhase;
use atoll_proto::{ClientOp, Control, ControlReply, VolumeConfig};
use atoll_rpc::{
    Acceptor, Address, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options, Role,
};
use atoll_server::{Desk, Node, Shelf, VolumeError, reached};
use common::node::{LONG, Other, VOLUME, config, listen, node, serve, shelf};

const NOWHERE: &str = "127.0.0.1:1";

/// A disk that does not answer before it is told to.
#[derive(Default)]
struct Slow {
    answers: Mutex<bool>,
    changed: Condvar,
}

impl Slow {
    fn answer(&self) {
        *self.answers.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Opens folders when it answers, but for islands that are lost.
    fn shelf(self: &Arc<Self>, lost: &'static [u16]) -> Shelf<RealDisk> {
        let (slow, shelf) = (Arc::clone(self), shelf());
        Arc::new(move |folder, island, is_new| {
            let answers = slow.answers.lock().unwrap();
            let _answers = slow.changed.wait_while(answers, |answers| !*answers).unwrap();
            if lost.contains(&island.0) {
                return Err(VolumeError::Open(OpenError::Missing(island, "folder")));
            }
            shelf(folder, island, is_new)
        })
    }
}

/// A node in its second life, which has begun and is opening its islands.
struct Opening {
    node: Arc<Node>,
    listener: Listener,
    disk: Arc<Slow>,
    opens: JoinHandle<Vec<atoll_server::NodeError>>,
}

impl Opening {
    fn new(data: &Path, config: &VolumeConfig, lost: &'static [u16]) -> Self {
        let (first, mut listener) = serve(data, config);
        listener.stop();
        assert!(first.stop().is_empty());
        drop((first, listener));
        let disk = Arc::<Slow>::default();
        let node = node(data, 2, disk.shelf(lost));
        assert!(node.greet_all().unwrap().is_empty());
        let listener = listen(&node);
        let opening = Arc::clone(&node);
        let opens = std::thread::spawn(move || opening.open_all());
        Self { node, listener, disk, opens }
    }

    fn phases(&self) -> Vec<IslandPhase> {
        let ControlReply::Status { volumes, .. } = self.node.answer(Control::Status) else {
            panic!("no status")
        };
        assert_eq!(volumes[0].volume.problem, None);
        volumes[0].islands.iter().map(|island| island.phase).collect()
    }
}

/// Another node, which tells of the greetings that it gets.
struct Hears(Mutex<Sender<Hello>>);

impl Acceptor for Hears {
    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye> {
        let _ = self.0.lock().unwrap().send(hello.clone());
        Ok(HelloOk::new(ClusterId(1), DaemonId(2), 1))
    }
}

impl Handler for Hears {
    fn frame(&self, _: &Arc<Link>, _: Frame) {}
    fn closed(&self, _: &Arc<Link>, _: &Closed) {}
}

fn other_node() -> (Listener, Address, Receiver<Hello>) {
    let (send, hellos) = channel();
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::start(&any, Arc::new(Hears(Mutex::new(send))), Options::default()).unwrap();
    let address = listener.address().clone();
    (listener, address, hellos)
}

#[test]
fn a_node_greets_and_is_greeted_before_its_islands_are_open() {
    let data = tempfile::tempdir().unwrap();
    let (mut there, address, hellos) = other_node();
    let opening = Opening::new(data.path(), &config([&[0], &[1]], &address.to_string()), &[]);
    loop {
        let hello = hellos.recv_timeout(LONG).expect("the other node hears of the second life");
        let Role::Node { daemon, incarnation, members, .. } = hello.role else { panic!("{hello:?}") };
        assert_eq!((daemon, members), (DaemonId(1), vec![(VOLUME, atoll_core::NodeId(0))]));
        if incarnation == 2 {
            break;
        }
    }
    let other = Other::node(opening.listener.address(), 1);
    assert_eq!(other.incarnation(), 2);
    assert_eq!(other.next(), (FrameKind::Gone, 0, 0));
    other.greet(1, 0);
    assert_eq!(other.next(), (FrameKind::Gone, 0, 0), "what is said meanwhile is answered so");
    assert_eq!(opening.phases(), [IslandPhase::Opening]);
    opening.disk.answer();
    assert_eq!(other.next(), (FrameKind::Primary, 0, 0));
    let Opening { node, mut listener, opens, .. } = opening;
    assert!(opens.join().unwrap().is_empty());
    listener.stop();
    assert!(node.stop().is_empty());
    there.stop();
}

#[test]
fn a_client_that_asks_an_island_that_is_not_open_yet_is_answered_when_it_is() {
    let data = tempfile::tempdir().unwrap();
    let opening = Opening::new(data.path(), &config([&[0, 1], &[2]], NOWHERE), &[]);
    let client = Other::client(opening.listener.address());
    assert_eq!([client.next(), client.next()], [(FrameKind::Gone, 0, 0), (FrameKind::Gone, 1, 0)]);
    assert_eq!(opening.phases(), [IslandPhase::Opening, IslandPhase::Opening]);
    client.ask(1, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 1, 0));
    client.hears_nothing();
    opening.disk.answer();
    assert_eq!([client.next(), client.next()], [(FrameKind::Primary, 0, 0), (FrameKind::Primary, 1, 0)]);
    assert!(opening.phases().iter().all(|phase| *phase != IslandPhase::Opening));
    client.ask(1, 6, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Reply, 1, 6));
    let Opening { node, mut listener, opens, .. } = opening;
    assert!(opens.join().unwrap().is_empty());
    listener.stop();
    assert!(node.stop().is_empty());
}

#[test]
fn a_volume_whose_islands_cannot_be_opened_is_refused_and_what_was_noted_of_them_stays() {
    let data = tempfile::tempdir().unwrap();
    let opening = Opening::new(data.path(), &config([&[0, 1], &[2]], NOWHERE), &[0, 1]);
    let folder = data.path().join(atoll_server::ISLANDS).join("home");
    let noted = reached(&folder).unwrap();
    assert_eq!(noted.len(), 2);
    let client = Other::client(opening.listener.address());
    opening.disk.answer();
    let Opening { node, mut listener, opens, .. } = opening;
    let failed = opens.join().unwrap();
    assert!(failed.len() == 1 && failed[0].to_string().contains("cannot be served"), "{failed:?}");
    assert!(node.problem("home").is_some());
    let end = Instant::now() + LONG;
    while client.is_up() {
        assert!(Instant::now() < end, "a client that was let in stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Other::refused(listener.address()), "no client is let in any more");
    assert_eq!(reached(&folder).unwrap(), noted);
    listener.stop();
    assert!(node.stop().is_empty());
    assert_eq!(reached(&folder).unwrap(), noted);
}

#[test]
fn the_other_islands_are_served_and_what_was_noted_of_a_lost_one_stays() {
    let data = tempfile::tempdir().unwrap();
    let opening = Opening::new(data.path(), &config([&[0, 1], &[2]], NOWHERE), &[1]);
    let folder = data.path().join(atoll_server::ISLANDS).join("home");
    let noted = reached(&folder).unwrap();
    let client = Other::client(opening.listener.address());
    assert_eq!([client.next(), client.next()], [(FrameKind::Gone, 0, 0), (FrameKind::Gone, 1, 0)]);
    opening.disk.answer();
    assert_eq!(client.next(), (FrameKind::Primary, 0, 0));
    client.ask(1, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 1, 0));
    assert_eq!(opening.phases()[1], IslandPhase::Opening);
    let Opening { node, mut listener, opens, .. } = opening;
    assert!(opens.join().unwrap().is_empty() && node.problem("home").is_none());
    assert_eq!(reached(&folder).unwrap()[&IslandId(1)], noted[&IslandId(1)]);
    listener.stop();
    assert!(node.stop().is_empty());
    let after = reached(&folder).unwrap();
    assert_eq!(after[&IslandId(1)], noted[&IslandId(1)]);
    assert!(after[&IslandId(0)].incarnation > noted[&IslandId(0)].incarnation);
}

/// Keeps the link of a client, and tells nobody of it.
#[derive(Default)]
struct Keeps(Mutex<Option<Arc<Link>>>, Condvar);

impl Acceptor for Keeps {
    fn welcome(&self, _: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(1), 1))
    }
}

impl Handler for Keeps {
    fn opened(&self, link: &Arc<Link>) {
        *self.0.lock().unwrap() = Some(Arc::clone(link));
        self.1.notify_all();
    }
    fn frame(&self, _: &Arc<Link>, _: Frame) {}
    fn closed(&self, _: &Arc<Link>, _: &Closed) {}
}

/// A client was let in, and its volume stops before it is told of the link: nobody would have answered the client any more.
#[test]
fn a_link_that_comes_to_a_volume_that_has_stopped_is_ended() {
    let data = tempfile::tempdir().unwrap();
    let (node, mut listener) = serve(data.path(), &config([&[0, 1], &[2]], NOWHERE));
    let volume = node.volume("home").unwrap();
    let keeps = Arc::<Keeps>::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut other = Listener::start(&any, Arc::clone(&keeps) as _, Options::default()).unwrap();
    let client = Other::client(other.address());
    let kept = keeps.1.wait_while(keeps.0.lock().unwrap(), |link| link.is_none()).unwrap().take().unwrap();
    assert!(client.is_up());
    assert!(volume.stop().is_empty());
    volume.opened(&kept);
    let end = Instant::now() + LONG;
    while client.is_up() {
        assert!(Instant::now() < end, "it stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    other.stop();
    listener.stop();
}
