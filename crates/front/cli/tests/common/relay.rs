//! A relay of TCP connections that can be cut: what is behind it is out of reach then, and goes on by itself.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Takes connections at an address of its own, and passes their bytes on to another one.
pub struct Relay {
    pub at: SocketAddr,
    passed: Arc<Mutex<Passed>>,
}

/// Open -> Cut -> Open. Either -> Ended.
enum Passed {
    /// Both ends of each connection.
    Open(Vec<TcpStream>),
    Cut,
    Ended,
}

impl Relay {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let passed = Arc::new(Mutex::new(Passed::Open(Vec::new())));
        let shared = Arc::clone(&passed);
        std::thread::spawn(move || {
            for taken in listener.incoming().map_while(Result::ok) {
                if matches!(*shared.lock().unwrap(), Passed::Ended) {
                    return;
                }
                // If it cannot be passed on, whoever connects tries again.
                let _ = pass(taken, target, &shared);
            }
        });
        Self { at, passed }
    }

    /// Ends all connections, and those that come, at once.
    pub fn cut(&self) {
        self.become_now(Passed::Cut);
    }

    /// Lets connections through again.
    pub fn heal(&self) {
        self.become_now(Passed::Open(Vec::new()));
    }

    fn become_now(&self, next: Passed) {
        let before = std::mem::replace(&mut *self.passed.lock().unwrap(), next);
        if let Passed::Open(ends) = before {
            for end in ends {
                // The other side may have ended it already.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.become_now(Passed::Ended);
        // The thread waits for a connection.
        let _ = TcpStream::connect(self.at);
    }
}

fn pass(taken: TcpStream, target: SocketAddr, passed: &Mutex<Passed>) -> io::Result<()> {
    let mut passed = passed.lock().unwrap();
    let Passed::Open(ends) = &mut *passed else { return Ok(()) };
    let other = TcpStream::connect(target)?;
    for end in [&taken, &other] {
        end.set_nodelay(true)?;
        ends.push(end.try_clone()?);
    }
    for (mut from, mut to) in [(taken.try_clone()?, other.try_clone()?), (other, taken)] {
        std::thread::spawn(move || {
            // An error is an end too.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
