//! Links under TLS: what goes over them, and who is not let in.

#[path = "common/certificates.rs"]
mod certificates;
mod common;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use atoll_core::{NodeId, SessionId, VolumeId};
use atoll_rpc::{
    ANY_NODE, Acceptor, Address, Closed, ConnectError, Credentials, DaemonId, Frame, FrameKind, Goodbye,
    Handler, Hello, HelloOk, Link, Listener, Onward, Options, Outgoing, Peer, Relays, Role, Security,
    client_name, node_name,
};
use certificates::{Ca, secure};
use common::*;
use rcgen::date_time_ymd;

/// The node that `serve_at` answers for.
const NODE: u64 = 5;

/// A node that answers with what it is asked.
fn node(ca: &Ca) -> (Listener, Receiver<Event>) {
    serve_at(&any_port(), secure(&ca.node(NODE)), echo)
}

fn tool(address: &Address, options: Options) -> Result<Arc<Link>, ConnectError> {
    // The link goes on as long as what made it, which ends with the test.
    let (outgoing, _events) = outgoing_with(address, options, || Hello::new(Role::Tool, None));
    let link = outgoing.connect(PATIENCE);
    std::mem::forget(outgoing);
    link
}

#[test]
fn frames_of_every_size_go_both_ways_at_once_and_each_side_knows_the_other() {
    let ca = Ca::new();
    let (listener, accepted) = node(&ca);
    let greeting = || Hello::new(Role::Client { volume: VolumeId(1), session: SessionId(5) }, Some(CLUSTER));
    let (outgoing, events) = outgoing_with(listener.address(), secure(&ca.client(7)), greeting);
    let link = outgoing.connect(PATIENCE).unwrap();
    assert_eq!(link.peer(), Some(Peer::Node(DaemonId(NODE))));
    assert_eq!(next_opened(&accepted).peer(), Some(Peer::Client(7)));
    let sizes = [0, 1, 100, 4_000, 16_384, 16_385, 65_536, 70_001, 1 << 20];
    let payload = |id: u64| -> Vec<u8> {
        (0..sizes[id as usize % sizes.len()]).map(|at| (at as u64 * 31 + id) as u8).collect()
    };
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let link = &link;
            scope.spawn(move || {
                for n in 0..50 {
                    let id = n * threads + thread;
                    send(link, id, &[id as u8; 33], &payload(id));
                }
            });
        }
        let mut seen = BTreeMap::new();
        for _ in 0..50 * threads {
            let frame = next_frame(&events);
            assert_eq!(&frame.meta[..], [frame.id as u8; 33]);
            assert!(frame.payload == payload(frame.id), "frame {} came back changed", frame.id);
            assert!(seen.insert(frame.id, ()).is_none());
        }
    });
    outgoing.stop();
    assert!(matches!(next_closed(&accepted), Closed::Theirs(_)), "the last words arrive");
}

/// Each side's reason: that of whoever connects, and whether the other side let it in.
fn refused(node: Options, client: Options, role: Role) -> String {
    let (listener, accepted) = serve_at(&any_port(), node, echo);
    let hello = move || Hello::new(role.clone(), None);
    let (outgoing, _events) = outgoing_with(listener.address(), client, hello);
    let why = outgoing.connect(PATIENCE).expect_err("it is not let in").to_string();
    assert!(accepted.try_iter().all(|event| !matches!(event, Event::Opened(_))), "{why}");
    assert!(listener.links().is_empty());
    why
}

#[test]
fn whoever_has_no_certificate_of_the_cluster_is_not_let_in_and_each_is_told_why() {
    let (ca, other) = (Ca::new(), Ca::new());
    let of_node = || secure(&ca.node(NODE));
    let dated = |from, until| {
        ca.issue(vec![client_name(3)], |params| (params.not_before, params.not_after) = (from, until))
    };
    for (node, client, word) in [
        (of_node(), Options::default(), "it wants TLS, and this program has no credentials"),
        (Options::default(), secure(&ca.client(1)), "it does not speak TLS"),
        (of_node(), secure(&other.client(1)), "its certificate is of another cluster"),
        // What the other side says of a certificate of a CA that this one does not check itself.
        (of_node(), secure(&dated(date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1))), "not valid now"),
        (of_node(), secure(&dated(date_time_ymd(2100, 1, 1), date_time_ymd(2101, 1, 1))), "not valid now"),
    ] {
        let why = refused(node, client, Role::Tool);
        assert!(why.contains(word), "{why}");
        assert!(why.contains('\n'), "without a next step: {why}");
    }
}

#[test]
fn a_certificate_names_who_may_claim_to_be_what() {
    let ca = Ca::new();
    let role = |daemon| Role::Node {
        daemon: DaemonId(daemon),
        incarnation: 1,
        boot: 0,
        directory: 0,
        members: vec![],
    };
    let of_node = || secure(&ca.node(NODE));
    let word = "its certificate names somebody else";
    assert!(refused(of_node(), secure(&ca.node(8)), role(9)).contains(word), "another node");
    assert!(refused(of_node(), secure(&ca.client(9)), role(9)).contains(word), "a client");
    let passed_on = Role::Relayed { volume: VolumeId(1), by: NodeId(1) };
    assert!(refused(of_node(), secure(&ca.client(9)), passed_on).contains(word), "a relay is a node");
    // The listener answers as node 5.
    let why = refused_by_client(secure(&ca.node(6)), secure(&ca.client(1)));
    assert!(why.contains("another node than its certificate"), "{why}");
    // A client's certificate, even with the name of a node in it, is no server's.
    let posing = ca.issue(vec![ANY_NODE.to_owned(), node_name(DaemonId(NODE))], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    let why = refused_by_client(secure(&posing), secure(&ca.client(1)));
    assert!(why.contains("not that of a node"), "{why}");
    let strange = ca.try_issue(vec!["www.example.org".to_owned()], |_| {});
    assert!(strange.unwrap_err().0.contains("neither a node nor a client"));
}

/// Why whoever connects does not want the node. The node may have let it in a moment before.
fn refused_by_client(node: Options, client: Options) -> String {
    let (listener, _accepted) = serve_at(&any_port(), node, echo);
    tool(listener.address(), client).expect_err("it is not wanted").to_string()
}

#[test]
fn whoever_means_one_node_trusts_no_other_at_its_address() {
    let ca = Ca::new();
    let (listener, _accepted) = node(&ca);
    let meant = |node| Options { expects: Some(DaemonId(node)), ..secure(&ca.client(1)) };
    tool(listener.address(), meant(NODE)).unwrap();
    let why = tool(listener.address(), meant(NODE + 1)).unwrap_err().to_string();
    assert!(why.contains("another node of the cluster is at this address"), "{why}");
}

#[test]
fn whoever_knows_the_nodes_connects_to_no_other_and_not_by_another_key() {
    let ca = Ca::new();
    let of_node = ca.node(NODE);
    let (listener, _accepted) = serve_at(&any_port(), secure(&of_node), echo);
    let security = Arc::new(Security::new(&ca.client(1)).unwrap());
    let options = Options { security: Some(Arc::clone(&security)), ..Options::default() };
    let asks = || tool(listener.address(), options.clone()).map_err(|why| why.to_string());
    let link = asks().unwrap();
    let key = link.shown().unwrap().key;
    security.know_nodes([(DaemonId(NODE), key), (DaemonId(NODE + 1), [1; 32])].into());
    asks().unwrap();
    for known in [(NODE + 1, key), (NODE, [1; 32])] {
        security.know_nodes([(DaemonId(known.0), known.1)].into());
        let why = asks().unwrap_err();
        assert!(why.contains("no node of the cluster") && why.contains("atoll node list"), "{why}");
    }
    assert!(link.closed().is_none());
}

#[test]
fn a_renewed_certificate_is_used_by_the_next_link_and_those_that_are_up_go_on() {
    let ca = Ca::new();
    let (listener, _accepted) = node(&ca);
    let until = date_time_ymd(2020, 1, 1);
    let expired = ca.issue(vec![client_name(3)], |params| params.not_after = until);
    let security = Arc::new(Security::new(&ca.client(3)).unwrap());
    let options = Options { security: Some(Arc::clone(&security)), ..Options::default() };
    let link = tool(listener.address(), options.clone()).unwrap();
    security.renew(&expired).unwrap();
    assert!(tool(listener.address(), options.clone()).is_err());
    assert!(link.closed().is_none());
    security.renew(&ca.client(3)).unwrap();
    tool(listener.address(), options).unwrap();
    assert!(security.renew(&ca.client(4)).is_err(), "another one");
}

#[test]
fn strange_bytes_get_an_alert_and_nothing_else_and_others_are_served() {
    let ca = Ca::new();
    let options = Options { handshake_time_max: Duration::from_millis(300), ..secure(&ca.node(NODE)) };
    let (listener, accepted) = serve_at(&any_port(), options, echo);
    let hello = frame(FrameKind::Hello, 0, &[1; 40], &[]);
    let record =
        |kind: u8, bytes: u16| [&[kind, 3, 3], &bytes.to_be_bytes()[..], &vec![9; bytes.into()]].concat();
    for bytes in
        [hello, vec![0; 5000], record(22, 300), record(23, 16_000), record(21, 2), vec![22], Vec::new()]
    {
        let mut stranger = Stranger::connect(listener.address());
        stranger.write(&bytes);
        let answer = stranger.read_to_end();
        assert!(
            answer.is_empty() || (answer[..3] == [21, 3, 3] && answer.len() == 7),
            "{bytes:?}: {answer:?}"
        );
    }
    assert!(accepted.try_iter().next().is_none());
    tool(listener.address(), secure(&ca.client(1))).unwrap();
}

/// A node that passes on to another one.
struct Passer(Address);

impl Handler for Passer {
    fn frame(&self, _link: &Arc<Link>, _frame: Frame) {
        panic!("what is passed on is not read");
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Passer {
    fn welcome(&self, _hello: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(CLUSTER, DaemonId(6), 1))
    }

    fn onward(&self, volume: VolumeId, _to: NodeId) -> Result<Onward, Goodbye> {
        let greeting = Hello::new(Role::Relayed { volume, by: NodeId(1) }, None);
        Ok(Onward { address: self.0.clone(), greeting })
    }
}

/// A node that passes on to this one, and an address where nobody listens.
fn relay_to(ca: &Ca, node: &Listener) -> (Listener, Address) {
    let passer = Arc::new(Passer(node.address().clone()));
    let relay = Listener::start(&any_port(), passer, secure(&ca.node(6))).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    (relay, socket.local_addr().unwrap().to_string().parse().unwrap())
}

#[test]
fn through_a_relay_both_ends_know_each_other_and_the_relay_is_neither() {
    let ca = Ca::new();
    let (node, accepted) = node(&ca);
    let (relay, nowhere) = relay_to(&ca, &node);
    let volume = VolumeId(9);
    let relays = Relays { volume, to: NodeId(3), others: vec![(NodeId(0), relay.address().clone())] };
    let greeting = move || Hello::new(Role::Client { volume, session: SessionId(5) }, Some(CLUSTER));
    let (send_event, events) = std::sync::mpsc::channel();
    let handler = Arc::new(Server::new(send_event));
    let outgoing = Outgoing::with_relays(nowhere, Box::new(greeting), handler, secure(&ca.client(7)), relays);
    outgoing.keep(true);
    let (link, theirs) = (next_opened(&events), next_opened(&accepted));
    assert!(link.is_relayed() && theirs.is_relayed());
    assert_eq!((link.peer(), theirs.peer()), (Some(Peer::Node(DaemonId(NODE))), Some(Peer::Client(7))));
    send(&theirs, 4, b"meta", &vec![3; 300_000]);
    send(&link, 5, b"meta", &vec![3; 300_000]);
    outgoing.stop();
    next_closed(&accepted);
}

#[test]
fn one_client_takes_no_places_from_others_however_much_it_has_passed_on() {
    let ca = Ca::new();
    let (node, accepted) = node(&ca);
    let (relay, nowhere) = relay_to(&ca, &node);
    let volume = VolumeId(9);
    let connect = |who: &Credentials| {
        let relays = Relays { volume, to: NodeId(3), others: vec![(NodeId(0), relay.address().clone())] };
        let greeting = move || Hello::new(Role::Client { volume, session: SessionId(5) }, Some(CLUSTER));
        let (send_event, events) = std::sync::mpsc::channel();
        let handler = Arc::new(Server::new(send_event));
        let nowhere = nowhere.clone();
        let outgoing = Outgoing::with_relays(nowhere, Box::new(greeting), handler, secure(who), relays);
        outgoing.keep(true);
        (outgoing, events)
    };
    let greedy = ca.client(7);
    let mut passed: Vec<_> = (0..8).map(|_| connect(&greedy)).collect();
    passed.iter().for_each(|_| drop(next_opened(&accepted)));
    // As the ninth asks the relay.
    let ask = |who: &Credentials, time_max| {
        let asks = move || Hello::new(Role::Relay { volume, to: NodeId(3) }, None);
        let (outgoing, _events) = outgoing_with(relay.address(), secure(who), asks);
        outgoing.connect(time_max).map_err(|why| why.to_string())
    };
    let why = ask(&greedy, Duration::from_secs(1)).err().unwrap();
    assert!(why.contains("too many connections are passed on"), "{why}");
    ask(&ca.client(8), PATIENCE).unwrap();
    // A place that is left can be taken.
    passed.pop().unwrap().0.stop();
    ask(&greedy, PATIENCE).unwrap();
}

#[test]
fn strangers_who_say_nothing_take_no_place_from_others() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let ca = Ca::new();
    let options = Options { connections_max: 2, ..secure(&ca.node(NODE)) };
    let (listener, _accepted) = serve_at(&any_port(), options, echo);
    let there = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port(listener.address()));
    let strangers: Vec<_> = (0..100)
        .map(|_| {
            let stranger = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&stranger, &"127.0.0.9:0".parse::<std::net::SocketAddrV4>().unwrap()).unwrap();
            connect(&stranger, &there).unwrap();
            stranger
        })
        .collect();
    tool(listener.address(), secure(&ca.client(1))).unwrap();
    assert_eq!(strangers.len(), 100);
}

#[test]
fn strangers_from_many_addresses_leave_places_to_those_who_were_there_before() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, recv, socket};
    let ca = Ca::new();
    let options = Options { handshake_time_max: PATIENCE, ..secure(&ca.node(NODE)) };
    let (listener, _accepted) = serve_at(&any_port(), options, echo);
    // From 127.0.0.1.
    tool(listener.address(), secure(&ca.client(1))).unwrap();
    let there = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port(listener.address()));
    let comes = |from: u8| {
        let stranger = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let from = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(127, 0, 0, from), 0);
        bind(&stranger, &from).unwrap();
        connect(&stranger, &there).unwrap();
        stranger
    };
    let strangers: Vec<_> = (0..260).map(|n| comes(10 + n as u8 % 5)).collect();
    // One more is shown the door at once, so the places of strangers are taken.
    let last = comes(20);
    let mut byte = [0; 1];
    assert!(matches!(recv(&last, &mut byte[..], rustix::net::RecvFlags::empty()), Ok((0, _)) | Err(_)));
    tool(listener.address(), secure(&ca.client(2))).unwrap();
    assert_eq!(strangers.len(), 260);
}

#[test]
fn one_client_takes_no_places_from_others_however_many_links_it_wants() {
    let ca = Ca::new();
    let (listener, accepted) = node(&ca);
    let greedy = ca.client(1);
    let mut links: Vec<_> = (0..64).map(|_| tool(listener.address(), secure(&greedy)).unwrap()).collect();
    links.iter().for_each(|_| drop(next_opened(&accepted)));
    // The refusal comes behind the greeting, so what is connected ends at once.
    let is_refused = |who: &Credentials| {
        let Ok(link) = tool(listener.address(), secure(who)) else { return true };
        loop {
            match accepted.recv_timeout(Duration::from_millis(5)) {
                Ok(Event::Opened(_)) => return false,
                _ if link.closed().is_some() => return true,
                _ => {}
            }
        }
    };
    assert!(is_refused(&greedy));
    assert!(!is_refused(&ca.client(2)), "another one");
    assert!(!is_refused(&ca.node(9)), "a node");
    // A place that is left can be taken.
    links.pop().unwrap().close(Goodbye::new(atoll_rpc::Reason::Stopping, ""));
    next_closed(&accepted);
    assert!(!is_refused(&greedy));
}

/// The first bytes of a client that greets.
fn client_hello(ca: &Ca) -> Vec<u8> {
    use std::io::Read;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = socket.local_addr().unwrap().to_string().parse().unwrap();
    let (outgoing, _events) = outgoing_with(&address, secure(&ca.client(1)), || Hello::new(Role::Tool, None));
    outgoing.keep(true);
    let (mut stream, _) = socket.accept().unwrap();
    let mut bytes = vec![0; 16 * 1024];
    let n = stream.read(&mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

#[test]
fn a_greeting_with_any_byte_changed_gets_no_more_than_tls_says_before_it_knows_anybody() {
    let ca = Ca::new();
    let options = Options { handshake_time_max: Duration::from_millis(200), ..secure(&ca.node(NODE)) };
    let (listener, accepted) = serve_at(&any_port(), options, echo);
    let good = client_hello(&ca);
    assert_eq!(good[..2], [22, 3], "a record of the handshake");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    std::thread::scope(|scope| {
        // Those that wait for more wait side by side.
        for _ in 0..8 {
            let cases: Vec<Vec<u8>> = (0..40)
                .map(|_| {
                    let mut bytes = good.clone();
                    match draw(5) {
                        0 => bytes.truncate(draw(good.len())),
                        1 => bytes.splice(0..0, good.iter().copied().take(draw(good.len()))).for_each(drop),
                        2 => bytes.extend((0..draw(400)).map(|_| draw(256) as u8).collect::<Vec<_>>()),
                        3 => bytes[5..].fill(draw(256) as u8),
                        _ => (0..=draw(8)).for_each(|_| bytes[draw(good.len())] = draw(256) as u8),
                    }
                    bytes
                })
                .collect();
            let address = listener.address();
            scope.spawn(move || {
                for bytes in cases {
                    let mut stranger = Stranger::connect(address);
                    stranger.write(&bytes);
                    let answer = stranger.read_to_end();
                    // An alert; or the server's part of the handshake, which is encrypted behind the first record: no word of ours.
                    assert!(
                        answer.is_empty() || matches!(answer[..2], [20..=23, 3]),
                        "{bytes:?}: {answer:?}"
                    );
                    assert!(!answer.windows(4).any(|four| four == b"ATOL"), "{bytes:?}: {answer:?}");
                }
            });
        }
    });
    assert!(accepted.try_iter().next().is_none());
    tool(listener.address(), secure(&ca.client(1))).unwrap();
}

/// A client that greets, says that nothing follows, and then sends more all the same.
fn ends_and_goes_on(ca: &Ca, address: &Address, greets: bool, more: usize) {
    use std::io::{Read, Write};
    let credentials = ca.client(1);
    let atoll_rpc::Trust::Ca(root) = &credentials.trust else { panic!("it names its CA") };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![credentials.certificate.clone()], credentials.key.clone_key())
        .unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), ANY_NODE.try_into().unwrap()).unwrap();
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port(address))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).unwrap();
    }
    if greets {
        let hello = atoll_core::Encode::to_vec(&Hello::new(Role::Tool, None));
        tls.writer().write_all(&frame(FrameKind::Hello, 0, &hello, &[])).unwrap();
        tls.complete_io(&mut socket).unwrap();
        tls.complete_io(&mut socket).unwrap();
    }
    tls.send_close_notify();
    let mut last = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut last).unwrap();
    }
    last.extend(vec![7; more]);
    socket.write_all(&last).unwrap();
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
}

#[test]
fn bytes_behind_the_end_of_a_session_stop_nobody() {
    let ca = Ca::new();
    let (listener, accepted) = node(&ca);
    for greets in [false, true] {
        for more in [0, 1, 8_000] {
            ends_and_goes_on(&ca, listener.address(), greets, more);
        }
    }
    // The links have ended, and their threads are free.
    for _ in 0..3 {
        assert_eq!(next_closed(&accepted), Closed::Ended);
    }
    tool(listener.address(), secure(&ca.client(1))).unwrap();
}
