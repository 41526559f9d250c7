//! What daemons and mounts have to say reaches somebody, and not a thousand times.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use atoll_needs::needs;
use common::{Cluster, Daemon, Scratch, atoll, detach, eventually, free_port, run, text};

/// A node whose standard error goes to a file, and its address.
fn node(scratch: &Scratch, options: &[&str]) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let data = scratch.path("data");
    let arguments = ["serve", "--data", text(&data), "--listen", &address].into_iter();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    (Daemon::start_with(arguments.chain(options.iter().copied()), "volumes", said.into()), address)
}

fn said(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("said")).unwrap()
}

/// Somebody who speaks another protocol; returns when it is refused.
fn stranger(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn who_is_not_let_in_is_told_of() {
    let scratch = Scratch::new();
    let (mut daemon, address) = node(&scratch, &[]);
    stranger(&address);
    eventually("a line about it", || said(&scratch).contains("not let in"));
    daemon.stop();
    let said = said(&scratch);
    let line = said.lines().next().unwrap();
    assert!(line.starts_with("20") && line.contains("Z atoll: warning: from 127.0.0.1:"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_said_too_often_is_cut_off_and_counted() {
    let scratch = Scratch::new();
    let (mut daemon, address) = node(&scratch, &[]);
    for _ in 0..50 {
        stranger(&address);
    }
    daemon.stop();
    let said = said(&scratch);
    let written = |line: &&str| line.contains("from 127.0.0.1") && line.contains(": not let in: ");
    assert_eq!(said.lines().filter(written).count(), 20, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("30 more lines like this were left out: not let in: "), "{said}");
}

#[test]
fn the_log_is_json_and_as_detailed_as_it_is_asked_for() {
    let scratch = Scratch::new();
    let (mut daemon, address) = node(&scratch, &["--log", "json"]);
    stranger(&address);
    eventually("a line about it", || said(&scratch).contains("not let in"));
    daemon.stop();
    for line in said(&scratch).lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["level"], "warn");
        assert_eq!(object["target"], "atoll_rpc::listener");
        assert!(object["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(object["message"].as_str().unwrap().starts_with("not let in: "), "{line}");
    }
    let (mut daemon, address) = node(&scratch, &["--log-level", "error"]);
    stranger(&address);
    daemon.stop();
    assert_eq!(said(&scratch), "", "a warning is no error");
    // The option counts more than the environment, and what names no level is refused.
    let data = scratch.path("data");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let command = |level: &str| {
        let mut command = atoll(["serve", "--data", text(&data), "--listen", &taken]);
        let output = command.env("ATOLL_LOG", level).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(command("loud").contains("ATOLL_LOG=loud names no level of the log: write off, error,"));
    assert!(!command("debug").contains("ATOLL_LOG"));
    let refused = run(["serve", "--data", text(&data), "--listen", "a:1", "--log", "xml"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("write text, json or journald"));
}

#[test]
fn a_mount_in_the_background_writes_to_the_journal() {
    needs!(Mounts, Programs(&["unshare", "mount", "bash"]));
    let cluster = Cluster::new(1);
    let (folder, point) = (cluster.scratch.dir("journal"), cluster.scratch.dir("mnt"));
    let journal = UnixDatagram::bind(folder.join("socket")).unwrap();
    journal.set_read_timeout(Some(common::PATIENCE)).unwrap();
    // In a mount namespace of its own, in which the journal is ours; the mount itself is seen outside, too.
    let script = format!(
        "set -e; mkdir -p /run/systemd; mount -t tmpfs none /run/systemd
         mkdir /run/systemd/journal; mount --bind {} /run/systemd/journal
         exec {} mount {} {}",
        text(&folder),
        env!("CARGO_BIN_EXE_atoll"),
        cluster.source(),
        text(&point)
    );
    let done = Command::new("unshare").args(["--mount", "bash", "-c", &script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let socket = mount_socket(&point);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").unwrap();
    let entry = loop {
        let mut entry = vec![0; 65536];
        let n = journal.recv(&mut entry).expect("an entry comes");
        if n > 0 {
            break String::from_utf8_lossy(&entry[..n]).into_owned();
        }
        // An empty one only tried whether the journal is there.
    };
    // A value that may have several lines stands behind its length, of eight bytes.
    for wanted in [
        "PRIORITY\n\u{1}\0\0\0\0\0\0\u{0}4\n",
        "SYSLOG_IDENTIFIER\n",
        "not let in: ",
        "ATOLL_FROM\n",
        "unix:/run/atoll/",
    ] {
        assert!(entry.contains(wanted), "{wanted:?}: {entry:?}");
    }
    drop(stream);
    end_serving(&socket);
    detach(&point);
}

/// The socket of the process that serves a mount: by the same rule as the program has.
fn mount_socket(point: &Path) -> std::path::PathBuf {
    let point = std::fs::canonicalize(point).unwrap();
    let hash = text(&point).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("/run/atoll/mount-{hash:016x}.sock").into()
}

/// Ends the process that serves a mount which only another mount namespace has.
fn end_serving(socket: &Path) {
    let stream = UnixStream::connect(socket).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    rustix::process::kill_process(peer.pid, rustix::process::Signal::TERM).unwrap();
    eventually("the process of the mount ends", || {
        rustix::process::test_kill_process(peer.pid).is_err()
            || std::fs::read_to_string(format!("/proc/{}/stat", peer.pid))
                .is_ok_and(|stat| stat.contains(") Z "))
    });
}
