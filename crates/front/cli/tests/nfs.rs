//! `atoll nfs`: what is wrong with its arguments is told at once, and nothing is left behind.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use atoll_needs::needs;
use common::{Daemon, Scratch, bad, text};

#[test]
fn a_rule_that_does_not_parse_and_a_port_in_use_are_refused_at_once() {
    let scratch = Scratch::new();
    let key = scratch.path("key");
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--export", "*(zz)"]);
    assert!(said.contains("\"zz\"") && said.contains("Write "), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--listen", &address]);
    assert!(said.contains(&address) && said.contains("free port"), "{said}");
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--listen", "127.0.0.1:0"]);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    assert!(!key.exists(), "nothing is left behind");
}

/// The words of the reply to a call without arguments and credentials, behind the record mark.
fn call(at: &str, program: u32, version: u32, procedure: u32) -> Vec<u32> {
    let mut stream = TcpStream::connect(at).unwrap();
    let words = [0x8000_0028_u32, 7, 0, 2, program, version, procedure, 0, 0, 0, 0];
    stream.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// The reply of a call that was carried out and tells nothing.
const DONE: [u32; 6] = [7, 1, 0, 0, 0, 0];

#[test]
fn a_union_is_mounted_and_served_to_nfs_clients_by_one_process() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, point, key) = (scratch.dir("one"), scratch.dir("mnt"), scratch.path("key"));
    let arguments =
        ["union", text(&one), text(&point), "--foreground", "--nfs", "127.0.0.1:0", "--key", text(&key)];
    let mut daemon = Daemon::start(arguments, "stop");
    let told = daemon.told("nfs").to_owned();
    let port = told.split(['=', ',']).skip_while(|word| *word != "port").nth(1).unwrap();
    assert!(told.ends_with("127.0.0.1:/union DIR"), "{told}");
    assert_eq!(call(&format!("127.0.0.1:{port}"), 100_003, 3, 0), DONE);
    fs::write(point.join("f"), "x").unwrap();
    assert_eq!(fs::read_to_string(one.join("f")).unwrap(), "x");
    daemon.stop();
}

#[test]
fn a_portmapper_answers_beside_the_server_if_it_is_asked_for() {
    let scratch = Scratch::new();
    let (one, key, state) = (scratch.dir("one"), scratch.path("key"), scratch.dir("state"));
    let listen = "127.0.0.1:0";
    let arguments = ["nfs", "--union", text(&one), "--listen", listen, "--portmap", listen];
    let more = ["--key", text(&key), "--state", text(&state)];
    let mut daemon = Daemon::start(arguments.iter().chain(&more), "stop");
    assert_eq!(call(daemon.told("portmap"), 100_000, 2, 0), DONE);
    assert_eq!(call(daemon.told("nfs"), 100_003, 3, 0), DONE);
    daemon.stop();
}
