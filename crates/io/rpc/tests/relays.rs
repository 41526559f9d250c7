//! Connections that are made through another node, which passes on what is sent.

mod common;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use atoll_core::{Encode, NodeId, SessionId, VolumeId};
use atoll_rpc::{
    Acceptor, Address, Closed, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link, Listener, Onward,
    Options, Outgoing, Reason, Relays, Role,
};
use common::*;

const VOLUME: VolumeId = VolumeId(9);
const TO: NodeId = NodeId(3);

/// A node that passes on to one other node, or says that it cannot reach it.
struct Passer {
    to: Option<Address>,
    asked: AtomicU32,
}

impl Handler for Passer {
    fn frame(&self, _link: &Arc<Link>, _frame: Frame) {
        panic!("what is passed on is not read");
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Passer {
    fn welcome(&self, _hello: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(CLUSTER, atoll_rpc::DaemonId(6), 1))
    }

    fn onward(&self, volume: VolumeId, to: NodeId) -> Result<Onward, Goodbye> {
        assert_eq!((volume, to), (VOLUME, TO));
        self.asked.fetch_add(1, Ordering::SeqCst);
        let address = self.to.clone().ok_or_else(|| Goodbye::new(Reason::NotReached, ""))?;
        Ok(Onward { address, greeting: Hello::new(Role::Relayed { volume, by: NodeId(1) }, None) })
    }
}

fn passer(to: Option<&Address>) -> (Listener, Arc<Passer>) {
    let passer = Arc::new(Passer { to: to.cloned(), asked: AtomicU32::new(0) });
    (Listener::start(&any_port(), Arc::clone(&passer) as _, Options::default()).unwrap(), passer)
}

/// An address at which nobody listens.
fn nowhere() -> Address {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().to_string().parse().unwrap()
}

fn client(address: &Address, relays: &[&Listener]) -> (Outgoing, Receiver<Event>) {
    let (send, receive) = channel();
    let others = relays.iter().enumerate().map(|(n, relay)| (NodeId(n as u16), relay.address().clone()));
    let relays = Relays { volume: VOLUME, to: TO, others: others.collect() };
    let greeting = || Hello::new(Role::Client { volume: VOLUME, session: SessionId(5) }, Some(CLUSTER));
    let handler = Arc::new(Events(send));
    let outgoing =
        Outgoing::with_relays(address.clone(), Box::new(greeting), handler, Options::default(), relays);
    outgoing.keep(true);
    (outgoing, receive)
}

struct Events(std::sync::mpsc::Sender<Event>);

impl Handler for Events {
    fn opened(&self, link: &Arc<Link>) {
        let _ = self.0.send(Event::Opened(Arc::clone(link)));
    }

    fn replaced(&self, link: &Arc<Link>, old: &Arc<Link>) {
        let _ = self.0.send(Event::Replaced(Arc::clone(link), old.id()));
    }

    fn frame(&self, _link: &Arc<Link>, frame: Frame) {
        let _ = self.0.send(Event::Frame(frame));
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        let _ = self.0.send(Event::Closed(link.id(), why.clone()));
    }
}

#[test]
fn what_cannot_be_reached_directly_is_reached_through_another_node_end_to_end() {
    let (asked, asked_in_order) = channel();
    let (node, node_events) = serve(move |link, frame: Frame| {
        asked.send(frame.id).unwrap();
        echo(link, frame);
    });
    let (relay, _passer) = passer(Some(node.address()));
    let (client, events) = client(&nowhere(), &[&relay]);
    let link = next_opened(&events);
    let accepted = next_opened(&node_events);
    assert!(link.is_relayed() && accepted.is_relayed(), "both sides know that somebody passes it on");
    assert!(!client.is_direct());
    // The greeting that the node has seen is the client's own.
    let atoll_rpc::Remote::Accepted(hello) = accepted.remote() else { panic!("it was accepted") };
    assert_eq!(hello.role, Role::Client { volume: VOLUME, session: SessionId(5) });
    let big = vec![7; 1 << 20];
    for id in 0..20 {
        send(&link, id, b"meta", &big);
    }
    // A thread that waits to send its answer lets others read on, so answers have no order.
    let mut answered = Vec::new();
    for _ in 0..20 {
        let frame = next_frame(&events);
        assert_eq!((&frame.meta[..], frame.payload.len()), (&b"meta"[..], big.len()));
        answered.push(frame.id);
    }
    answered.sort_unstable();
    assert_eq!(answered, Vec::from_iter(0..20));
    assert_eq!(
        asked_in_order.try_iter().collect::<Vec<_>>(),
        answered,
        "requests of one thread keep their order"
    );
    client.stop();
    let why = next_closed(&node_events);
    assert!(matches!(why, Closed::Theirs(_)), "last words are passed on: {why:?}");
}

#[test]
fn relays_that_are_named_later_are_used_and_others_no_longer() {
    let (node, _node_events) = serve(echo);
    let (mut first, _passer) = passer(Some(node.address()));
    let (second, _passer) = passer(Some(node.address()));
    let (client, events) = client(&nowhere(), &[]);
    client.set_relays(vec![(NodeId(0), first.address().clone())]);
    assert!(next_opened(&events).is_relayed());
    client.set_relays(vec![(NodeId(1), second.address().clone())]);
    first.stop();
    next_closed(&events);
    let link = next_opened(&events);
    send(&link, 1, b"again", b"");
    assert_eq!(&next_frame(&events).meta[..], b"again");
}

#[test]
fn a_relay_that_ends_is_replaced_by_another_one() {
    let (node, _node_events) = serve(echo);
    let (mut first, _passer) = passer(Some(node.address()));
    let (second, _passer) = passer(Some(node.address()));
    let (_client, events) = client(&nowhere(), &[&first, &second]);
    let link = next_opened(&events);
    first.stop();
    next_closed(&events);
    assert!(link.closed().is_some());
    let link = next_opened(&events);
    send(&link, 1, b"again", b"");
    assert_eq!(&next_frame(&events).meta[..], b"again");
}

#[test]
fn a_relay_that_cannot_reach_the_node_is_passed_over() {
    let (node, _node_events) = serve(echo);
    let (cannot, asked) = passer(None);
    let (can, _passer) = passer(Some(node.address()));
    let (_client, events) = client(&nowhere(), &[&cannot, &can]);
    assert!(next_opened(&events).is_relayed());
    assert!(asked.asked.load(Ordering::SeqCst) > 0);
}

#[test]
fn the_direct_way_takes_the_place_of_the_other_and_at_no_time_is_there_no_link() {
    let (node, _node_events) = serve(echo);
    let (relay, _passer) = passer(Some(node.address()));
    let address = nowhere();
    let (client, events) = client(&address, &[&relay]);
    let relayed = next_opened(&events);
    let (_direct, _direct_events) = serve_at(&address, Options::default(), echo);
    let until = Instant::now() + PATIENCE;
    let link = loop {
        assert!(client.link().is_some(), "no link for a moment");
        assert!(Instant::now() < until, "the direct way is not taken");
        match events.try_recv() {
            Ok(Event::Replaced(link, old)) if old == relayed.id() => break link,
            Ok(other) => panic!("one link takes the place of the other, not {other:?}"),
            Err(_) => {}
        }
    };
    assert!(!link.is_relayed() && client.is_direct());
    assert!(relayed.closed().is_some());
    send(&link, 1, b"", b"");
    next_frame(&events);
    // The end of the old one is not told.
    assert!(events.recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn a_relay_is_not_asked_while_the_direct_way_is_there() {
    let (node, _node_events) = serve(echo);
    let (relay, asked) = passer(Some(node.address()));
    let (client, events) = client(node.address(), &[&relay]);
    assert!(!next_opened(&events).is_relayed());
    std::thread::sleep(Duration::from_millis(2 * atoll_links::RELAY_AFTER_MS));
    assert!(client.is_direct());
    assert_eq!(asked.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_relay_that_is_frozen_does_not_keep_others_from_being_tried() {
    let (node, _node_events) = serve(echo);
    // It takes connections, and never says a word.
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    let (can, _passer) = passer(Some(node.address()));
    let frozen_address: Address = frozen.local_addr().unwrap().to_string().parse().unwrap();
    let (send, events) = channel();
    let others = vec![(NodeId(0), frozen_address), (NodeId(1), can.address().clone())];
    let relays = Relays { volume: VOLUME, to: TO, others };
    let greeting = || Hello::new(Role::Client { volume: VOLUME, session: SessionId(5) }, None);
    let handler = Arc::new(Events(send));
    let outgoing = Outgoing::with_relays(nowhere(), Box::new(greeting), handler, Options::default(), relays);
    outgoing.keep(true);
    assert!(next_opened(&events).is_relayed());
}

#[test]
fn what_is_passed_on_is_passed_on_once_and_for_nodes_and_clients_only() {
    let (node, _node_events) = serve(echo);
    let (relay, _passer) = passer(Some(node.address()));
    let refused = |hellos: &[Hello]| {
        let mut stranger = Stranger::connect(relay.address());
        for hello in hellos {
            stranger.write(&frame(FrameKind::Hello, 0, &hello.to_vec(), &[]));
            std::thread::sleep(Duration::from_millis(100));
        }
        let said = stranger.read_to_end();
        said.windows(5).any(|part| part[..4] == *b"ATOL") && {
            // The last frame is a goodbye.
            let at = (0..said.len().saturating_sub(6)).rfind(|at| said[*at..].starts_with(b"ATOL")).unwrap();
            said[at + 6] == FrameKind::Goodbye as u8
        }
    };
    let ask = Hello::new(Role::Relay { volume: VOLUME, to: TO }, None);
    let again = Hello::new(Role::Relayed { volume: VOLUME, by: NodeId(2) }, None);
    assert!(refused(&[ask.clone(), again]), "passed on twice");
    assert!(refused(&[ask.clone(), ask.clone()]), "passed on from there");
    assert!(refused(&[ask, Hello::new(Role::Tool, None)]), "a tool");
}

#[test]
fn nothing_is_passed_on_by_who_does_not_say_so() {
    let (relay, _events) = serve(echo);
    let (client, events) = client(&nowhere(), &[&relay]);
    assert!(events.recv_timeout(Duration::from_secs(2)).is_err(), "there is no link");
    assert!(client.link().is_none());
}

#[test]
fn a_listener_that_stops_ends_what_it_passes_on() {
    let (node, _node_events) = serve(echo);
    let (mut relay, _passer) = passer(Some(node.address()));
    let (_client, events) = client(&nowhere(), &[&relay]);
    next_opened(&events);
    relay.stop();
    next_closed(&events);
}
