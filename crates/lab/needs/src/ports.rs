//! TCP ports for servers that tests start. Never keeps a port: somebody else could take it before the server does, which
//! is unlikely.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port, and how many follow it. They are below those that the kernel gives to whoever connects: a server that is
/// down for a moment would find its port taken by a connection when it comes back.
const FIRST: u32 = 10_000;
const NUMBER: u32 = 22_000;

/// A port at 127.0.0.1 that nobody listens on: another one each time, and mostly others than those of other processes.
///
/// # Panics
/// If none is free.
pub fn free_port() -> u16 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97) % NUMBER;
    let mut ports = (0..NUMBER).map(|_| {
        let nth = LAST.fetch_add(1, Ordering::Relaxed) % NUMBER;
        (FIRST + (first + nth) % NUMBER) as u16
    });
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
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
    }
}
