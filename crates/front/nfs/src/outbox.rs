//! The sending side of a connection. Whoever answers never waits for the client: what the socket does not take at
//! once is sent by a thread of its own, and a client that takes nothing for a minute is cut off.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::conn::{Conn, InFlight};
use crate::xdr::padding;

#[derive(Default)]
struct Queue {
    left: VecDeque<(Vec<u8>, Option<InFlight>)>,
    writing: bool,
    closed: bool,
}

/// See the top of the file.
#[derive(Default)]
pub(crate) struct Outbox(Mutex<Queue>);

impl Outbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// Sends a reply: `head`, then `payload` with its padding. `held` is given back when it has left.
    pub(crate) fn send(&self, conn: &Arc<Conn>, head: &mut [u8], payload: &[u8], held: Option<InFlight>) {
        let pad = &[0; 3][..padding(payload.len())];
        let len = head.len() + payload.len() + pad.len();
        let mark = (len - 4) as u32 | 1 << 31;
        head[..4].copy_from_slice(&mark.to_be_bytes());
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        let sent = if queue.writing {
            0
        } else {
            let parts = [IoSlice::new(head), IoSlice::new(payload), IoSlice::new(pad)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(conn.stream.as_fd(), &parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => sent,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
                Err(_) => {
                    queue.closed = true;
                    drop(queue);
                    conn.close();
                    return;
                }
            }
        };
        if sent == len {
            return;
        }
        let mut left = Vec::with_capacity(len - sent);
        let mut skip = sent;
        for part in [&*head, payload, pad] {
            left.extend_from_slice(part.get(skip..).unwrap_or_default());
            skip = skip.saturating_sub(part.len());
        }
        queue.left.push_back((left, held));
        if !queue.writing {
            queue.writing = true;
            let mine = Arc::clone(conn);
            let started =
                std::thread::Builder::new().name("atoll-nfs-out".into()).spawn(move || write(&mine));
            if started.is_err() {
                queue.closed = true;
                queue.left.clear();
                drop(queue);
                conn.close();
            }
        }
    }

    /// Nothing more is sent, and what waits is dropped.
    pub(crate) fn close(&self) {
        let left = {
            let mut queue = self.lock();
            queue.closed = true;
            std::mem::take(&mut queue.left)
        };
        drop(left);
    }
}

/// Sends what waits, on a thread of its own, until nothing waits.
fn write(conn: &Arc<Conn>) {
    loop {
        let next = {
            let mut queue = conn.outbox.lock();
            let next = queue.left.pop_front();
            if next.is_none() {
                queue.writing = false;
            }
            next
        };
        let Some((bytes, held)) = next else { return };
        // The stream has a time-out for sending.
        if std::io::Write::write_all(&mut &conn.stream, &bytes).is_err() {
            conn.close();
            conn.outbox.close();
            return;
        }
        drop(held);
    }
}

/// Ends both directions of a stream; one that has ended already is left as it is.
pub(crate) fn shut(stream: &TcpStream) {
    // It fails only if the stream is not connected any more.
    let _ = stream.shutdown(Shutdown::Both);
}
