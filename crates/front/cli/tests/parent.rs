//! A node that was killed, or has crashed, is started again by its parent.

mod common;

use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use atoll_needs::needs;
use common::{
    Cluster, Daemon, Scratch, atoll, bad, eventually, free_port, good, is_alive, run, signal, text,
};
use rustix::process::Signal;

/// The process of a node that serves.
fn child(node: &Daemon) -> u32 {
    let [child] = node.children()[..] else { panic!("not one child: {:?}", node.children()) };
    child
}

fn node(cluster: &Cluster) -> &Daemon {
    cluster.nodes[0].as_ref().unwrap()
}

/// Kills the process that serves; the number of the next one, which has begun to serve.
fn crash(node: &Daemon) -> u32 {
    let last = child(node);
    signal(last, Signal::KILL);
    node.says("volumes");
    let next = child(node);
    assert_ne!(next, last);
    next
}

fn incarnation(data: &Path) -> u32 {
    let text = std::fs::read_to_string(data.join("node.toml")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("incarnation = ")).unwrap();
    line.parse().unwrap()
}

/// A command that starts a node, with what it says in files of `scratch`.
fn serve(scratch: &Scratch, address: &str, more: &[&str]) -> Command {
    let data = scratch.path("data");
    let arguments = ["serve", "--data", text(&data), "--listen", address];
    let mut command = atoll(arguments.into_iter().chain(more.iter().copied()));
    command.stdout(Stdio::null());
    command
}

#[test]
fn a_node_that_is_killed_is_started_again_and_a_mount_goes_on() {
    needs!(Mounts);
    let cluster = Cluster::new(1);
    let mount = cluster.mount("mnt", "");
    let mut open = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mount.path("file"))
        .unwrap();
    for life in 2..5 {
        crash(node(&cluster));
        // A file that stays open, and a name that is new.
        let content = format!("written in life {life}");
        open.set_len(0)
            .and_then(|()| open.rewind())
            .and_then(|()| open.write_all(content.as_bytes()))
            .unwrap();
        assert_eq!(std::fs::read_to_string(mount.path("file")).unwrap(), content);
        std::fs::create_dir(mount.path(&content)).unwrap();
        assert_eq!(incarnation(&cluster.data(0)), life);
    }
    assert_eq!(std::fs::read_dir(&mount.0).unwrap().count(), 4);
    // On the same port.
    assert!(good(["status", &cluster.addresses[0]]).contains("home"));
}

#[test]
fn the_next_life_says_why_the_last_one_ended() {
    let scratch = Scratch::new();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    let (data, address) = (scratch.path("data"), format!("127.0.0.1:{}", free_port()));
    let arguments = ["serve", "--data", text(&data), "--listen", &address];
    let mut node = Daemon::start_with(arguments, "volumes", said.into());
    crash(&node);
    node.stop();
    let said = std::fs::read_to_string(scratch.path("said")).unwrap();
    assert!(said.contains("the daemon died (signal: 9 (SIGKILL)), and is started again"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn callers_wait_while_a_node_is_started_again() {
    let cluster = Cluster::bare(1);
    let node = node(&cluster);
    let parent = node.pid();
    // It does not notice yet that its child has died.
    signal(parent, Signal::STOP);
    let last = child(node);
    signal(last, Signal::KILL);
    eventually("the child is gone", || !is_alive(last));
    let mut caller = TcpStream::connect(&cluster.addresses[0]).expect("the parent keeps the port open");
    signal(parent, Signal::CONT);
    node.says("volumes");
    caller.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").unwrap();
    caller.set_read_timeout(Some(common::PATIENCE)).unwrap();
    if let Err(why) = caller.read(&mut [0]) {
        assert_eq!(why.kind(), ErrorKind::ConnectionReset, "the next life has refused it");
    }
}

#[test]
fn a_node_that_ends_in_order_is_not_started_again() {
    for how in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut cluster = Cluster::bare(1);
        let mut daemon = cluster.nodes[0].take().unwrap();
        signal(daemon.pid(), how);
        assert!(daemon.wait(), "{how:?}");
        assert_eq!(incarnation(&cluster.data(0)), 1);
    }
}

#[test]
fn a_terminal_interrupts_both_and_both_end_in_order() {
    let mut cluster = Cluster::bare(1);
    let mut daemon = cluster.nodes[0].take().unwrap();
    signal(child(&daemon), Signal::INT);
    signal(daemon.pid(), Signal::INT);
    assert!(daemon.wait());
    assert_eq!(incarnation(&cluster.data(0)), 1);
}

#[test]
fn who_is_told_to_end_without_its_parent_is_not_started_again_and_leaves_nobody_waiting() {
    let mut cluster = Cluster::bare(1);
    let mut daemon = cluster.nodes[0].take().unwrap();
    let (parent, child) = (daemon.pid(), child(&daemon));
    signal(parent, Signal::STOP);
    signal(child, Signal::TERM);
    eventually("the child is gone", || !is_alive(child));
    // The parent has the socket still.
    let refused = TcpStream::connect(&cluster.addresses[0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    signal(parent, Signal::CONT);
    assert!(daemon.wait());
    assert_eq!(incarnation(&cluster.data(0)), 1);
}

#[test]
fn a_node_that_refuses_to_start_says_so_once() {
    let scratch = Scratch::new();
    let address = format!("127.0.0.1:{}", free_port());
    std::fs::write(scratch.dir("data").join("thesis.tex"), b"precious").unwrap();
    let output = serve(&scratch, &address, &[]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("atoll: ") && said.matches("is not a data directory").count() == 1, "{said}");
    // The same in its second life, if there is a reason by then.
    std::fs::remove_file(scratch.path("data").join("thesis.tex")).unwrap();
    let said = std::fs::File::create(scratch.path("said")).unwrap();
    let data = scratch.path("data");
    let arguments = ["serve", "--data", text(&data), "--listen", &address];
    let mut daemon = Daemon::start_with(arguments, "volumes", said.into());
    std::fs::write(data.join("node.toml"), b"format = one").unwrap();
    signal(child(&daemon), Signal::KILL);
    assert!(!daemon.wait());
    let said = std::fs::read_to_string(scratch.path("said")).unwrap();
    assert_eq!(said.matches("node.toml is damaged").count(), 1, "{said}");
}

/// Sequence 44 of docs/design/018-copies.md.
#[test]
fn a_daemon_that_cannot_start() {
    let scratch = Scratch::new();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = serve(&scratch, &address, &[]);
    // SAFETY: two system calls. Whatever writes to a file is killed by the system from here on.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            let nothing = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &nothing) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("and is started again").count(), 4, "{said}");
    assert!(said.contains("atoll: The daemon died 5 times") && said.contains("SIGXFSZ"), "{said}");
    let refused = TcpStream::connect(&address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "a caller would wait in vain");
}

/// Sequence 45.
#[test]
fn the_parent_dies_first() {
    let mut cluster = Cluster::new(1);
    for life in 2..5 {
        let mut daemon = cluster.nodes[0].take().unwrap();
        let (parent, child) = (daemon.pid(), child(&daemon));
        signal(parent, Signal::KILL);
        assert!(!daemon.wait());
        // At once: it waits until the child of the other one is gone.
        cluster.start(0);
        assert!(!is_alive(child));
        assert_eq!(incarnation(&cluster.data(0)), life);
        assert!(node(&cluster).told("volumes").contains("home"));
    }
    // Others are told of the process that is to be stopped.
    let said = bad(["check", "--data", text(&cluster.data(0))]);
    assert!(said.contains(&format!("in use by process {}.", node(&cluster).pid())), "{said}");
    // A child that stands still is killed as well, and so is waited for.
    let mut daemon = cluster.nodes[0].take().unwrap();
    let child = child(&daemon);
    signal(child, Signal::STOP);
    signal(daemon.pid(), Signal::KILL);
    assert!(!daemon.wait());
    good(["check", "--data", text(&cluster.data(0))]);
    assert!(!is_alive(child));
}

/// A process that ends gives its lock of the directory free, and its port a moment later.
#[test]
fn a_node_waits_for_the_port_that_it_had_and_not_for_long() {
    let mut cluster = Cluster::new(1);
    cluster.kill(0);
    // Its child ends by itself.
    let mut held = None;
    eventually("the port is free", || {
        held = TcpListener::bind(&cluster.addresses[0]).ok();
        held.is_some()
    });
    let data = cluster.data(0);
    let said = bad(["serve", "--data", text(&data), "--listen", &cluster.addresses[0]]);
    assert!(said.contains("is in use by another program"), "{said}");
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    cluster.start(0);
    ends.join().unwrap();
    assert_eq!(incarnation(&data), 2, "the start that was refused has left nothing");
}

#[test]
fn without_a_parent_a_node_is_one_process_that_nobody_starts_again() {
    let scratch = Scratch::new();
    let (data, address) = (scratch.path("data"), format!("127.0.0.1:{}", free_port()));
    let arguments = ["serve", "--data", text(&data), "--listen", &address, "--no-restart"];
    let mut daemon = Daemon::start(arguments, "volumes");
    assert_eq!(daemon.children(), [0; 0]);
    daemon.kill();
    let refused = TcpStream::connect(&address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(incarnation(&data), 1);
    assert!(String::from_utf8_lossy(&run(["serve", "--help"]).stdout).contains("--no-restart"));
}
