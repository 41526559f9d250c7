//! Listening, greeting, connecting and connecting again, and what each says when it cannot.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use atoll_core::{Encode, IslandId, SessionId, VolumeId};
use atoll_needs::needs;
use atoll_rpc::{
    Address, Closed, ClusterId, ConnectError, FrameKind, Goodbye, Hello, HelloOk, Listener, Options, Reason,
    Remote, Role, SendError, Versions,
};
use common::*;

fn listen_error(address: &Address) -> String {
    let (events, _keep) = std::sync::mpsc::channel();
    let server = Arc::new(Server::new(events));
    let error =
        Listener::start(address, server, Options::default()).err().expect("it must not listen").to_string();
    assert!(error.lines().count() <= 3, "{error}");
    error
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = listen_error(&format!("127.0.0.1:{port}").parse().unwrap());
    assert!(error.contains(&format!("port {port} is in use")), "{error}");
}

#[test]
fn an_address_of_another_machine_and_a_name_of_none_are_told_apart() {
    let elsewhere = listen_error(&"192.0.2.1:7100".parse().unwrap());
    assert!(elsewhere.contains("this machine has no such address"), "{elsewhere}");
    let nowhere = listen_error(&"no-such-host.invalid:7100".parse().unwrap());
    assert!(nowhere.contains("the name is unknown"), "{nowhere}");
}

#[test]
fn a_unix_socket_replaces_a_dead_one_and_no_living_one_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = Address::Unix { path: path.clone() };
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead socket stays behind");
    let (mut listener, _server) = serve_at(&address, Options::default(), echo);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(listen_error(&address).contains("another daemon listens there"));
    outgoing(&address).0.connect(PATIENCE).unwrap();
    listener.stop();
    assert!(!path.exists(), "it takes its socket away");
    std::fs::write(&path, "precious").unwrap();
    assert!(listen_error(&address).contains("taken by something that is no socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn who_comes_before_anybody_takes_connections_waits() {
    let bound = Listener::bind(&any_port(), &Options::default()).unwrap();
    let Address::Tcp { port, .. } = *bound.address() else { panic!("no port") };
    assert!(listen_error(bound.address()).contains("is in use"));
    let mut early = TcpStream::connect(("127.0.0.1", port)).unwrap();
    early.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").unwrap();
    let server = Arc::new(Server::with(echo));
    let _listener = Listener::start_on(bound, server, Options::default()).unwrap();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    // What is not Atoll is refused: the connection ends, at the latest.
    if let Err(why) = early.read(&mut [0]) {
        assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_unix_socket_that_nobody_used_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let bound = Listener::bind(&Address::Unix { path: path.clone() }, &Options::default()).unwrap();
    assert!(path.exists());
    drop(bound);
    assert!(!path.exists());
}

#[test]
fn both_sides_learn_who_the_other_is() {
    let (listener, server) = serve(echo);
    let role = Role::Client { volume: VolumeId(1), session: SessionId(2) };
    let hello = Hello::new(role.clone(), Some(CLUSTER));
    let (client, _events) = outgoing_with(listener.address(), Options::default(), move || hello.clone());
    let link = client.connect(PATIENCE).unwrap();
    assert!(matches!(link.remote(), Remote::Connected(ok) if ok.cluster == CLUSTER && ok.version == 1));
    let Event::Opened(accepted) = server.recv_timeout(PATIENCE).unwrap() else { panic!("not opened first") };
    assert!(matches!(accepted.remote(), Remote::Accepted(h) if h.role == role));
}

#[test]
fn who_is_refused_is_told_why_and_does_not_try_again() {
    let (listener, _server) = serve(echo);
    let address = listener.address().clone();
    let refused = |hello: Hello| {
        let (client, events) = outgoing_with(&address, Options::default(), move || hello.clone());
        let started = Instant::now();
        let error = client.connect(PATIENCE).unwrap_err();
        assert!(started.elapsed() < PATIENCE / 2, "it waited although nothing could change");
        assert!(matches!(events.recv().unwrap(), Event::Unreachable(e) if e == error));
        assert!(error.to_string().lines().count() <= 3, "{error}");
        error
    };

    let other = refused(Hello::new(Role::Tool, Some(ClusterId(8))));
    let wrong =
        ConnectError::WrongCluster { address: address.clone(), expected: ClusterId(8), theirs: CLUSTER };
    assert_eq!(other, wrong);

    let role = Role::Client { volume: VolumeId(404), session: SessionId(1) };
    let unknown = refused(Hello::new(role, None)).to_string();
    assert!(unknown.contains("it has no such volume: only \\\"vol\\\" is here"), "{unknown}");

    let ours = Versions { lowest: 7, highest: 9 };
    let newer = refused(Hello { versions: ours, ..Hello::new(Role::Tool, None) });
    assert_eq!(newer, ConnectError::Version { address: address.clone(), ours, theirs: Versions::OURS });
    assert!(newer.to_string().contains("speaks protocol versions 1, this program speaks 7 to 9"), "{newer}");
}

#[test]
fn a_greeting_that_only_a_newer_version_can_read_is_still_answered_with_versions() {
    let (listener, _server) = serve(echo);
    let mut stranger = Stranger::connect(listener.address());
    let mut meta = Versions { lowest: 7, highest: 9 }.to_vec();
    meta.extend_from_slice(b"nobody knows this layout");
    let mut bytes = frame(FrameKind::Hello, 0, &meta, &[]);
    bytes[4] = 9;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..32]), &meta);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    stranger.write(&bytes);
    let answer = stranger.read_to_end();
    let expected = Goodbye::new(Reason::Version { ours: Versions::OURS }, "").to_vec();
    assert_eq!((answer[6], &answer[36..]), (FrameKind::Goodbye as u8, &expected[..]));
}

#[test]
fn a_port_of_another_service_is_no_daemon() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = other.local_addr().unwrap().to_string().parse().unwrap();
    let service = thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_10.0\r\n").unwrap();
        stream
    });
    let error = outgoing(&address).0.connect(PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::NotAtoll { .. }), "{error}");
    drop(service.join());
}

#[test]
fn nobody_listens_and_nobody_answers_are_told_apart() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error =
        outgoing(&free.to_string().parse().unwrap()).0.connect(Duration::from_millis(500)).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Unreachable { why, .. } if why == "Connection refused"),
        "{error}"
    );

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = silent.local_addr().unwrap().to_string().parse().unwrap();
    let options = Options { handshake_time_max: Duration::from_millis(50), ..Options::default() };
    let (client, _events) = outgoing_with(&address, options, || Hello::new(Role::Tool, None));
    let error = client.connect(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    let unknown = outgoing(&"no-such-host.invalid:1".parse().unwrap()).0.connect(Duration::from_millis(200));
    assert!(matches!(unknown, Err(ConnectError::UnknownHost { .. } | ConnectError::TimedOut { .. })));
}

#[test]
fn who_connects_and_says_nothing_is_dropped() {
    let options = Options { handshake_time_max: Duration::from_millis(100), ..Options::default() };
    let (listener, _server) = serve_at(&any_port(), options, echo);
    let mut silent = Stranger::connect(listener.address());
    let mut slow = Stranger::connect(listener.address());
    slow.write(&frame(FrameKind::Hello, 0, &[], &[])[..10]);
    for stranger in [&mut silent, &mut slow] {
        let answer = stranger.read_to_end();
        assert_eq!(answer[6], FrameKind::Goodbye as u8);
        assert_eq!(answer[36], 8, "too slow");
    }
}

#[test]
fn connections_beyond_the_limit_are_refused_and_room_is_made_when_one_ends() {
    let options = Options { connections_max: 2, ..Options::default() };
    let (listener, server) = serve_at(&any_port(), options, echo);
    let first = Stranger::greeted(listener.address());
    let _second = Stranger::greeted(listener.address());
    // A link counts a moment after it was greeted.
    let until = Instant::now() + PATIENCE;
    while listener.links().len() < 2 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(1));
    }
    let mut third = Stranger::connect(listener.address());
    assert_eq!(third.read_to_end()[36], 4, "full");
    drop(first);
    assert_eq!(next_closed(&server), Closed::Ended);
    // Its place is free once the handler has heard of the end.
    outgoing(listener.address()).0.connect(PATIENCE).unwrap();
}

#[test]
fn sending_while_down_fails_at_once_and_brings_the_link_up() {
    let (listener, _server) = serve(echo);
    let (client, events) = outgoing(listener.address());
    let ask = || client.send(FrameKind::Request, IslandId(0), 1, &Raw(vec![]), &[]);
    assert_eq!(ask(), Err(SendError::NotConnected));
    let until = Instant::now() + PATIENCE;
    while ask().is_err() {
        assert!(Instant::now() < until, "nobody connected");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(next_frame(&events).id, 1);
}

#[test]
fn a_kept_connection_comes_back_when_its_daemon_does() {
    let (mut listener, server) = serve(echo);
    let address = listener.address().clone();
    let (client, events) = outgoing(&address);
    client.keep(true);
    let first = client.connect(PATIENCE).unwrap();
    next_opened(&server);
    listener.stop();
    assert!(matches!(next_closed(&events), Closed::Theirs(Goodbye { reason: Reason::Stopping, .. })));
    assert!(matches!(next_closed(&server), Closed::Ours(_)));
    assert!(matches!(
        events.recv_timeout(PATIENCE).unwrap(),
        Event::Unreachable(ConnectError::Unreachable { .. })
    ));
    let (_listener, _server) = serve_at(&address, Options::default(), echo);
    let second = client.connect(PATIENCE).unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(
        first.send(FrameKind::Request, IslandId(0), 1, &Raw(vec![]), &[]),
        Err(SendError::NotConnected)
    );
    send(&second, 2, &[], &[]);
    assert_eq!(next_frame(&events).id, 2);
}

#[test]
fn a_link_that_nobody_wants_stays_down() {
    let (listener, server) = serve(echo);
    let (client, events) = outgoing(listener.address());
    client.connect(Duration::from_secs(1)).unwrap();
    let link = next_opened(&server);
    thread::sleep(Duration::from_millis(1100));
    link.close(Goodbye::new(Reason::Stopping, ""));
    next_closed(&events);
    thread::sleep(Duration::from_millis(200));
    assert!(client.link().is_none());
    assert!(!server.try_iter().any(|e| matches!(e, Event::Opened(_))));
}

#[test]
fn attempts_become_rarer() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (client, events) = outgoing(&free.to_string().parse().unwrap());
    client.keep(true);
    thread::sleep(Duration::from_millis(700));
    client.stop();
    let attempts = events.try_iter().count();
    // 10 + 20 + 40 + 80 + 160 + 320 ms, each give or take a quarter.
    assert!((3..=9).contains(&attempts), "{attempts} attempts");
}

#[test]
fn each_end_is_told_exactly_once() {
    let (mut listener, server) = serve(echo);
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    // A listener that is stopped before its side is open refuses the link, and is told of none.
    let first = [next_opened(&events).id(), next_opened(&server).id()];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| link.close(Goodbye::new(Reason::Stopping, "enough")));
        }
        scope.spawn(|| while link.send(FrameKind::Request, IslandId(0), 1, &Raw(vec![]), &[]).is_ok() {});
    });
    client.stop();
    listener.stop();
    // A second link may have come up in between; it ends once as well.
    for (side, events, first) in [("client", events, first[0]), ("server", server, first[1])] {
        let (mut opened, mut closed) = (vec![first], Vec::new());
        // Until everything has ended, and a moment longer for what must not come.
        let quiet = Duration::from_millis(300);
        let time = |opened: usize, closed| if closed < opened { PATIENCE } else { quiet };
        while let Ok(event) = events.recv_timeout(time(opened.len(), closed.len())) {
            match event {
                Event::Opened(link) => opened.push(link.id()),
                Event::Closed(id, _) => closed.push(id),
                _ => {}
            }
        }
        opened.sort_unstable();
        closed.sort_unstable();
        assert_eq!(opened, closed, "{side}");
    }
}

#[test]
fn a_machine_that_vanishes_is_noticed_by_an_idle_link_and_by_a_busy_one() {
    needs!(Networks, Programs(&["ip"]));
    // A network of this thread's own, of which the only wire can be cut.
    let thread = thread::spawn(|| {
        // SAFETY: only the network of this thread and those that it starts.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("root");
        let wire = |state| {
            let done = std::process::Command::new("ip").args(["link", "set", "lo", state]).status().unwrap();
            assert!(done.success());
        };
        wire("up");
        let (listener, server) = serve(|_, _| {});
        let (busy, busy_events) = outgoing(listener.address());
        let (idle, idle_events) = outgoing(listener.address());
        let link = busy.connect(PATIENCE).unwrap();
        idle.connect(PATIENCE).unwrap();
        next_opened(&server);
        next_opened(&server);
        wire("down");
        send(&link, 1, &[], &[]);
        for events in [busy_events, idle_events] {
            let why = next_closed(&events);
            assert!(matches!(why, Closed::Silent), "{why}");
        }
        for _ in 0..2 {
            let why = next_closed(&server);
            assert!(matches!(why, Closed::Silent), "{why}");
        }
    });
    thread.join().unwrap();
}

/// What the other side of a link does once it has greeted: nothing at all, not even closing.
fn frozen_after_greeting() -> (Address, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("127.0.0.1:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let serve = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut ok = HelloOk::new(CLUSTER, atoll_rpc::DaemonId(5), 1);
        ok.version = atoll_rpc::header::VERSION_HIGHEST;
        stream.write_all(&frame(FrameKind::HelloOk, 0, &ok.to_vec(), &[])).unwrap();
        // Until the other side gives it up.
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    });
    (address, serve)
}

#[test]
fn a_peer_that_says_nothing_any_more_is_given_up_within_seconds() {
    let (address, frozen) = frozen_after_greeting();
    let (client, events) = outgoing(&address);
    let link = client.connect(PATIENCE).unwrap();
    let since = Instant::now();
    send(&link, 1, b"is anybody there?", &[]);
    let why = next_closed(&events);
    assert!(matches!(why, Closed::Silent), "{why}");
    let took = since.elapsed();
    assert!(took > Duration::from_secs(3), "{took:?}");
    frozen.join().unwrap();
}

#[test]
fn links_on_which_nothing_is_said_stay_up() {
    let (listener, _server) = serve(echo);
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    thread::sleep(Options::default().silence_max + Duration::from_secs(2));
    assert!(link.closed().is_none(), "{:?}", link.closed());
    let said: Vec<Event> = events.try_iter().filter(|e| !matches!(e, Event::Opened(_))).collect();
    assert!(said.is_empty(), "signs of life are not for handlers: {said:?}");
}
