//! Raw calls to the portmapper: how a client finds NFS that knows nothing but a host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use atoll_model::{AtimeRule, ModelFiles};
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_vfs::Caching;

fn server(rule: &str) -> Server {
    let files = Arc::new(ModelFiles::new(AtimeRule::Never, Caching::Never));
    let (rules, key) = (vec![rule.parse().unwrap()], SigningKey::new([7; 16]));
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start: 1 };
    serve(files, served, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

fn call(program: u32, version: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    let head = [9, 0, 2, program, version, procedure, 0, 0, 0, 0];
    head.iter().chain(args).flat_map(|word| word.to_be_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

fn by_udp(at: SocketAddr, call: &[u8]) -> Option<Vec<u32>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.send_to(call, at).unwrap();
    let mut buffer = [0; 4096];
    socket.recv(&mut buffer).ok().map(|len| words(&buffer[..len]))
}

fn by_tcp(stream: &mut TcpStream, call: &[u8]) -> Vec<u32> {
    stream.write_all(&(call.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
    stream.write_all(call).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    words(&reply)
}

/// The head of a reply to a call that is carried out.
const OK: [u32; 6] = [9, 1, 0, 0, 0, 0];

#[test]
fn clients_find_nfs_and_mount_by_tcp_and_udp() {
    let server = server("127.0.0.1");
    let at = server.portmap("127.0.0.1:0".parse().unwrap()).unwrap();
    let (port, own) = (u32::from(server.address().port()), u32::from(at.port()));
    let mut stream = TcpStream::connect(at).unwrap();
    let mut both = |call: &[u8]| {
        let told = by_tcp(&mut stream, call);
        assert_eq!(by_udp(at, call).as_ref(), Some(&told));
        told
    };
    assert_eq!(both(&call(100_000, 2, 0, &[])), OK);
    for (asked, told) in [
        ([100_003, 3, 6], port),
        ([100_005, 3, 6], port),
        ([100_005, 1, 6], port),
        ([100_000, 2, 17], own),
        // No NFS by UDP, no version 4, no locks.
        ([100_003, 3, 17], 0),
        ([100_003, 4, 6], 0),
        ([100_021, 4, 6], 0),
    ] {
        let args = [&asked[..], &[0]].concat();
        assert_eq!(both(&call(100_000, 2, 3, &args)), [&OK[..], &[told]].concat(), "{asked:?}");
    }
    let all = both(&call(100_000, 2, 4, &[]));
    let entries: Vec<&[u32]> = all[6..all.len() - 1].chunks(5).collect();
    assert_eq!(entries.len(), 5);
    assert!(entries.contains(&&[1, 100_003, 3, 6, port][..]) && all.last() == Some(&0));
    // Version 3 and 4 are rpcbind's. Nothing is registered.
    assert_eq!(both(&call(100_000, 4, 3, &[]))[5..], [2, 2, 2]);
    assert_eq!(both(&call(100_000, 2, 1, &[100_003, 3, 6, 1]))[5..], [3]);
    assert_eq!(both(&call(100_003, 3, 0, &[]))[5..], [1]);
    assert_eq!(both(&call(100_000, 2, 3, &[100_003]))[5..], [4]);
    server.stop();
}

#[test]
fn hostile_bytes_get_no_answer_and_a_port_that_is_taken_is_told() {
    let server = server("127.0.0.1");
    let at = server.portmap("127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0xff; 1400], at).unwrap();
    for bytes in [&[0xff; 8][..], &[0x80, 0, 0, 4, 1, 2, 3, 4]] {
        let mut noise = TcpStream::connect(at).unwrap();
        noise.write_all(bytes).unwrap();
        assert_eq!(noise.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    }
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(at).unwrap()).collect();
    // Sixteen are served at a time; the others are closed.
    let served = silent.iter_mut().filter_map(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&[&[0x80, 0, 0, 40][..], &call(100_000, 2, 0, &[])].concat()).ok()?;
        stream.read_exact(&mut [0; 28]).ok()
    });
    let served = served.count();
    assert!((1..=16).contains(&served), "{served}");
    assert_eq!(by_udp(at, &call(100_000, 2, 0, &[])).unwrap(), OK);
    let taken = server.portmap(at).unwrap_err();
    assert!(taken.contains(&at.to_string()) && taken.contains("rpcbind"), "{taken}");
    server.stop();
}
