//! The sending side of a link: whole frames, one after the other, from many threads.
//!
//! Keeps nothing for later: if a frame cannot be sent in time, the link ends.
//!
//! One thread at a time writes. A small frame that comes meanwhile is left with that thread, which sends all
//! such frames in one call. A large one waits for its turn. So a small frame never waits for another thread's
//! system call, and many of them cost less than one call each.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::stream::Stream;

/// Longest frame that is copied for the writing thread rather than waiting for a turn.
const LEFT_FRAME_BYTES_MAX: usize = 4 * 1024;

/// Most bytes that are left with the writing thread.
const LEFT_BYTES_MAX: usize = 256 * 1024;

/// How often a thread sends frames that others left with it, before it says that this takes long.
const QUICK_ROUNDS_MAX: u32 = 4;

/// Why nothing more can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The outbox was closed.
    Closed,
    /// The other side did not read in time.
    NotReading,
    /// The socket failed.
    Io(Errno),
}

#[derive(Debug, Default)]
struct Turn {
    writing: bool,
    waiting: usize,
    closed: bool,
    /// Whole frames that others left with the writing thread.
    left: Vec<u8>,
    /// Capacity for the next `left`.
    spare: Vec<u8>,
}

/// The sending side of a link.
#[derive(Debug)]
pub(crate) struct Outbox {
    turn: Mutex<Turn>,
    changed: Condvar,
    send_time_max: Duration,
}

impl Outbox {
    pub(crate) fn new(send_time_max: Duration) -> Self {
        Self { turn: Mutex::default(), changed: Condvar::new(), send_time_max }
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        // Nothing in here panics between two changes that belong together.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame whose payload lies apart. Frames of one thread arrive in order. After any
    /// error but `Closed` the caller closes the link.
    pub(crate) fn send(&self, stream: &Stream, head: &[u8], payload: &[u8]) -> Result<(), Stuck> {
        let bytes = head.len() + payload.len();
        let mut turn = self.lock();
        while turn.writing && !turn.closed {
            if bytes <= LEFT_FRAME_BYTES_MAX && turn.left.len() + bytes <= LEFT_BYTES_MAX {
                turn.left.extend_from_slice(head);
                turn.left.extend_from_slice(payload);
                return Ok(());
            }
            turn.waiting += 1;
            drop(turn);
            // Whoever writes may be waiting for a peer that waits for this thread to read.
            atoll_handover::slow();
            turn = self.lock();
            // Bounded by the writer's time-outs, after which it closes the outbox.
            while turn.writing && !turn.closed {
                turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            turn.waiting -= 1;
        }
        if turn.closed {
            return Err(Stuck::Closed);
        }
        turn.writing = true;
        drop(turn);
        self.write_in_turn(stream, head, payload)
    }

    /// The caller's thread writes: its own frame, then the frames that others left with it.
    fn write_in_turn(&self, stream: &Stream, head: &[u8], payload: &[u8]) -> Result<(), Stuck> {
        let mut result = self.write(stream, head, payload);
        let mut rounds = 0;
        loop {
            let mut turn = self.lock();
            if result.is_err() || turn.closed {
                turn.closed = true;
                turn.left = Vec::new();
            }
            if turn.left.is_empty() {
                turn.writing = false;
                let anyone = turn.waiting > 0;
                drop(turn);
                if anyone {
                    self.changed.notify_all();
                }
                return result;
            }
            let spare = std::mem::take(&mut turn.spare);
            let mut left = std::mem::replace(&mut turn.left, spare);
            drop(turn);
            rounds += 1;
            if rounds == QUICK_ROUNDS_MAX {
                atoll_handover::slow();
            }
            result = self.write(stream, &left, &[]);
            left.clear();
            self.lock().spare = left;
        }
    }

    /// Sends a frame of a few bytes if that is possible at once. If another frame is being sent, that serves
    /// as well.
    pub(crate) fn send_if_idle(&self, stream: &Stream, frame: &[u8]) -> Result<(), Stuck> {
        let mut turn = self.lock();
        // A socket that takes anything has room for a few bytes.
        if turn.writing || turn.closed || !stream.is_writable() {
            return Ok(());
        }
        turn.writing = true;
        drop(turn);
        self.write_in_turn(stream, frame, &[])
    }

    /// Sends the last frame (may be empty), if that is possible at once and not amid another, and
    /// nothing any more. Does not wait for a thread that writes.
    pub(crate) fn close_with(&self, stream: &Stream, last: &[u8]) {
        let mut turn = self.lock();
        if !turn.closed && !turn.writing && !last.is_empty() {
            // A part of it says as little as nothing; either way the stream ends here.
            let _ = stream.send_some(last, &[]);
        }
        turn.closed = true;
        drop(turn);
        self.changed.notify_all();
    }

    fn write(&self, stream: &Stream, mut first: &[u8], mut second: &[u8]) -> Result<(), Stuck> {
        let mut deadline = None;
        loop {
            match stream.send_some(first, second) {
                Ok(n) => {
                    let of_first = n.min(first.len());
                    first = &first[of_first..];
                    second = &second[n - of_first..];
                }
                Err(Errno::AGAIN) => {}
                Err(e) => return Err(Stuck::Io(e)),
            }
            if first.is_empty() && second.is_empty() && !stream.has_unsent() {
                return Ok(());
            }
            // The socket's buffer is full. The other side may be in the same place: somebody must
            // go on reading here, or both would wait for the other.
            let deadline = *deadline.get_or_insert_with(|| {
                atoll_handover::slow();
                Instant::now() + self.send_time_max
            });
            match stream.wait_writable(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(Stuck::NotReading),
                Err(e) => return Err(Stuck::Io(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Stream::unix(OwnedFd::from(ours)), theirs)
    }

    fn count_slow() -> Rc<Cell<u32>> {
        let count = Rc::new(Cell::new(0));
        let seen = Rc::clone(&count);
        atoll_handover::before_slow(move || seen.set(seen.get() + 1));
        count
    }

    #[test]
    fn a_thread_says_so_before_it_waits_for_room_and_gives_up_in_time() {
        let (stream, _silent) = pair();
        let outbox = Outbox::new(Duration::from_millis(50));
        let slow = count_slow();
        outbox.send(&stream, b"head", b"fits").unwrap();
        assert_eq!(slow.get(), 0);
        let large = vec![0; 64 * 1024 * 1024];
        assert_eq!(outbox.send(&stream, b"head", &large), Err(Stuck::NotReading));
        assert_eq!(slow.get(), 1);
        assert_eq!(outbox.send(&stream, b"head", b""), Err(Stuck::Closed));
    }

    #[test]
    fn while_one_thread_writes_small_frames_are_left_with_it_and_large_ones_wait() {
        let (stream, mut theirs) = pair();
        let outbox = Arc::new(Outbox::new(Duration::from_secs(20)));
        let first = vec![1; 8 * 1024 * 1024];
        let second = vec![3; LEFT_FRAME_BYTES_MAX];
        thread::scope(|scope| {
            scope.spawn(|| outbox.send(&stream, b"", &first).unwrap());
            while !outbox.lock().writing {
                thread::yield_now();
            }
            let slow = count_slow();
            outbox.send(&stream, &[2], &[2; 9]).unwrap();
            assert_eq!((outbox.lock().left.len(), slow.get()), (10, 0));
            let waits = scope.spawn(|| {
                let slow = count_slow();
                outbox.send(&stream, &[3], &second).unwrap();
                slow.get()
            });
            while outbox.lock().waiting == 0 {
                thread::yield_now();
            }
            let mut all = vec![0; first.len() + 10 + 1 + second.len()];
            theirs.read_exact(&mut all).unwrap();
            assert!(all[..first.len()].iter().all(|b| *b == 1));
            assert_eq!(all[first.len()..first.len() + 10], [2; 10]);
            assert!(all[first.len() + 10..].iter().all(|b| *b == 3));
            assert_eq!(waits.join().unwrap(), 1);
        });
    }

    #[test]
    fn no_more_is_left_with_a_thread_than_the_bound_says() {
        let (stream, theirs) = pair();
        let outbox = Outbox::new(Duration::from_secs(20));
        let first = vec![1; 8 * 1024 * 1024];
        thread::scope(|scope| {
            let writer = scope.spawn(|| outbox.send(&stream, b"", &first));
            while !outbox.lock().writing {
                thread::yield_now();
            }
            let small = &[0; LEFT_FRAME_BYTES_MAX][..];
            for _ in 0..LEFT_BYTES_MAX / small.len() {
                outbox.send(&stream, small, b"").unwrap();
            }
            let beyond = scope.spawn(|| outbox.send(&stream, small, b""));
            while outbox.lock().waiting == 0 {
                thread::yield_now();
            }
            assert_eq!(outbox.lock().left.len(), LEFT_BYTES_MAX);
            drop(theirs);
            assert!(matches!(writer.join().unwrap(), Err(Stuck::Io(_))));
            assert_eq!(beyond.join().unwrap(), Err(Stuck::Closed));
        });
    }
}
