//! TCP ports for servers that tests start. Never keeps a port: some other program could take it before the server does, which
//! is unlikely.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port, and how many follow it. They are below those that the kernel gives to whoever connects: a server that is
/// down for a moment would find its port taken by a connection when it comes back.
const FIRST: u32 = 10_000;
const NUMBER: u32 = 22_000;

/// A port at 127.0.0.1 that nobody listens on: another one each time, and others than those of other processes that run now. So a
/// server finds it again that is down for a moment.
///
/// # Panics
/// If none is free.
pub fn free_port() -> u16 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let first = std::process::id().wrapping_mul(97) % NUMBER;
    let mut ports = (0..NUMBER).map(|_| {
        let nth = LAST.fetch_add(1, Ordering::Relaxed) % NUMBER;
        (FIRST + (first + nth) % NUMBER) as u16
    });
    let is_free = |port: &u16| {
        let Ok(claim) = claim(*port) else { return false };
        HELD.lock().expect("no holder of this lock panics").push(claim);
        TcpListener::bind(("127.0.0.1", *port)).is_ok()
    };
    ports.find(is_free).expect("a port is free")
}

/// Claims a port for this process, by a name that one process has at a time. It goes with the process.
fn claim(port: u16) -> std::io::Result<UnixListener> {
    let name = format!("atoll-test-port-{port}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given_and_no_port_is_given_twice() {
        let held = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
        assert!(!ports.contains(&held.local_addr().unwrap().port()));
        assert!(ports.iter().enumerate().all(|(at, port)| !ports[..at].contains(port)));
        assert!(ports.iter().all(|port| (10_000..32_000).contains(port)));
        assert!(ports.iter().all(|port| claim(*port).is_err()), "another process would not get them");
    }
}
