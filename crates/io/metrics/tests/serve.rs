//! The page over real connections: whoever asks wrongly, slowly or at length gets no page and holds up nobody for long.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use atoll_core::{IslandId, NodeId, VolumeId};
use atoll_metrics::{PATIENCE, REQUEST_BYTES_MAX, serve, text};
use atoll_proto::control::{
    Connection, Daemon, Filling, FuseCount, IslandPhase, IslandStatus, Metric, MountStatus, VolumeStatus,
    VolumeSummary,
};
use atoll_proto::{ControlReply, VolumeKind};

fn start() -> SocketAddr {
    serve("127.0.0.1:0".parse().unwrap(), || "atoll_node_links 3\n".to_owned()).unwrap()
}

fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(10 * PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GOOD: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_page_is_shown_to_whoever_asks_for_it() {
    let address = start();
    for _ in 0..3 {
        let answer = ask(address, GOOD);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Length: 19\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\natoll_node_links 3\n"), "{answer}");
    }
    assert!(ask(address, b"GET /secrets HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(address, b"DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
}

#[test]
fn a_request_has_a_longest_length() {
    let mut request = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    request.resize(REQUEST_BYTES_MAX + 1, b'x');
    assert!(ask(start(), &request).starts_with("HTTP/1.1 431 "));
}

#[test]
fn who_says_nothing_or_little_holds_up_others_for_two_seconds_only() {
    let address = start();
    let mut slow = TcpStream::connect(address).unwrap();
    let drip = std::thread::spawn(move || {
        // A byte now and then keeps no connection open: a minute of them would not end sooner.
        (0..1200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            slow.write_all(b"G").is_err()
        })
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(ask(address, GOOD).starts_with("HTTP/1.1 200 "));
    assert!(drip.join().unwrap(), "its connection was closed while it still said something");
}

fn status() -> ControlReply {
    let daemon = Daemon {
        daemon: 1,
        cluster: 2,
        incarnation: 3,
        pid: 4,
        up_ms: 5,
        software: String::new(),
        data: String::new(),
        addresses: Vec::new(),
        links: 6,
        clock_ms: 7,
        certificate_until: Some(8),
        control: String::new(),
    };
    let summary = VolumeSummary {
        id: VolumeId(1),
        name: "home".into(),
        kind: VolumeKind::Cluster,
        table: 1,
        islands: 2,
        nodes: Vec::new(),
        problem: None,
    };
    let island = |number, halted| IslandStatus {
        group: None,
        fill: None,
        island: IslandId(number),
        phase: IslandPhase::Normal,
        halted,
        read_only: (number == 1).then(|| ("a record".into(), 5)),
        spilled: Vec::new(),
        metrics: vec![Metric::count(("records", 10 + u64::from(number))), Metric::now("sessions", 2)],
    };
    let volume = VolumeStatus {
        volume: summary,
        node: NodeId(0),
        store: None,
        islands: vec![island(0, None), island(1, Some("why".into()))],
        others: vec![(NodeId(1), Connection::Relayed), (NodeId(2), Connection::Down)],
        bytes: 100,
        bytes_available: 50,
    };
    let mount = MountStatus {
        volume: "home".into(),
        kind: VolumeKind::Cluster,
        point: "/a \"b\" \\c".into(),
        metrics: vec![Metric::count(("calls", 7))],
        fuse: vec![FuseCount { operation: "LOOKUP".into(), requests: 8, errors: 9 }],
        nodes: Vec::new(),
    };
    let filling = Filling {
        copies: 3,
        copies_left: 2,
        files: 9,
        bytes: 90,
        files_left: 4,
        bytes_left: 40,
        done: 500,
        bytes_per_s: 10,
        left_ms: Some(4_000),
    };
    ControlReply::Status { daemon, volumes: vec![volume], mounts: vec![mount], filling: Some(filling) }
}

#[test]
fn what_is_filled_is_told_of_the_node() {
    let page = text(&status());
    for line in ["copies_left 2", "files_left 4", "bytes_left 40", "bytes_per_s 10", "left_ms 4000"] {
        assert!(page.contains(&format!("\natoll_node_filling_{line}\n")), "{line}: {page}");
    }
}

#[test]
fn a_metric_has_its_type_once_and_all_its_lines_together() {
    let page = text(&status());
    let expected = "# TYPE atoll_island_records_total counter\n\
        atoll_island_records_total{volume=\"home\",island=\"0\"} 10\n\
        atoll_island_records_total{volume=\"home\",island=\"1\"} 11\n\
        # TYPE atoll_island_sessions gauge\n";
    assert!(page.contains(expected), "{page}");
    let mount = "{volume=\"home\",point=\"/a \\\"b\\\" \\\\c\"";
    assert!(
        page.contains(&format!("atoll_mount_kernel_errors_total{mount},operation=\"LOOKUP\"}} 9\n")),
        "{page}"
    );
    assert!(page.contains("atoll_island_normal{volume=\"home\",island=\"1\"} 0\n"), "halted is not normal");
    assert!(page.contains("atoll_island_read_only{volume=\"home\",island=\"0\"} 0\n"), "{page}");
    assert!(page.contains("atoll_island_read_only{volume=\"home\",island=\"1\"} 1\n"), "{page}");
    assert!(page.contains("atoll_node_clock_ms 7\n"), "{page}");
    assert!(page.contains("atoll_node_certificate_until_s 8\n"), "{page}");
    for (node, reachable, relayed) in [(1, 1, 1), (2, 0, 0)] {
        let of = format!("{{volume=\"home\",node=\"{node}\"}}");
        assert!(page.contains(&format!("atoll_volume_node_reachable{of} {reachable}\n")), "{page}");
        assert!(page.contains(&format!("atoll_volume_node_relayed{of} {relayed}\n")), "{page}");
    }
    assert_eq!(page.matches("# TYPE atoll_island_normal ").count(), 1);
    assert_eq!(text(&ControlReply::Done), "");
}
