//! TLS 1.3 under a link: both sides show a certificate of the cluster's CA.
//!
//! Only turns bytes into other bytes: the stream has the socket. One lock is held while bytes are encrypted or
//! decrypted, and never during a system call. So the thread that reads and the one that writes wait for each other's
//! arithmetic only.
//!
//! The bytes that reading produces (answers to key updates, alerts) leave with the next bytes that are written: a link says at least once a second that it lives.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use rustls::Connection;

use crate::frame::{READ_AHEAD_BYTES, Target};

/// Most bytes that are encrypted under the lock at once: four records.
const ENCRYPTED_AT_ONCE: usize = 64 * 1024;

/// Most bytes of ciphertext that are asked of the socket at once.
pub(crate) const CIPHERTEXT_BYTES: usize = 64 * 1024;

/// One connection's state of TLS.
pub(crate) struct Session {
    connection: Mutex<Connection>,
    /// Ciphertext that has arrived and was not decrypted yet. Only the thread that reads uses it.
    arrived: Mutex<Arrived>,
    /// Ciphertext that the socket has not taken yet. Only the thread whose turn it is to write uses it.
    unsent: Mutex<Vec<u8>>,
    failure: OnceLock<rustls::Error>,
}

#[derive(Default)]
struct Arrived {
    bytes: Vec<u8>,
    /// How many of them are decrypted.
    used: usize,
    /// The other side has said that nothing follows (close_notify).
    closed: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A session in which a thread panicked ends with the process.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Does the handshake over a socket. Its reads and writes have an end.
    pub(crate) fn shake_hands(
        mut connection: Connection,
        socket: &mut (impl Read + Write),
    ) -> Result<Self, ShakeError> {
        while connection.is_handshaking() || connection.wants_write() {
            match connection.complete_io(socket) {
                Ok(_) => {}
                Err(e) => return Err(ShakeError::of(e)),
            }
        }
        // Bounded by what is encrypted at once.
        connection.set_buffer_limit(None);
        Ok(Self {
            connection: Mutex::new(connection),
            arrived: Mutex::default(),
            unsent: Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    /// The certificate of the other side.
    pub(crate) fn peer(&self) -> Option<rustls_pki_types::CertificateDer<'static>> {
        Some(lock(&self.connection).peer_certificates()?.first()?.clone().into_owned())
    }

    /// Why the other side's bytes could not be decrypted, or the alert that it sent.
    pub(crate) fn failure(&self) -> Option<&rustls::Error> {
        self.failure.get()
    }

    /// Whether bytes are here that belong to nobody yet, or that the socket has not taken.
    pub(crate) fn is_idle(&self) -> bool {
        let arrived = lock(&self.arrived);
        let mut connection = lock(&self.connection);
        let nothing_to_read =
            connection.reader().fill_buf().is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        arrived.used == arrived.bytes.len()
            && lock(&self.unsent).is_empty()
            && nothing_to_read
            && !connection.wants_write()
    }

    /// Reads plaintext. `from_socket` brings ciphertext, at most as much as its argument has capacity for, and waits for it;
    /// 0 is the end.
    pub(crate) fn recv(
        &self,
        target: &mut Target<'_>,
        mut from_socket: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut arrived = lock(&self.arrived);
        loop {
            let taken = self.decrypt(&mut arrived, target)?;
            if taken > 0 || arrived.closed {
                return Ok(taken);
            }
            // All of it is in the session now.
            arrived.bytes.clear();
            arrived.used = 0;
            arrived.bytes.reserve(CIPHERTEXT_BYTES);
            if from_socket(&mut arrived.bytes)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Moves ciphertext through the session until the target is full or all is used.
    fn decrypt(&self, arrived: &mut Arrived, target: &mut Target<'_>) -> Result<usize, Errno> {
        let mut connection = lock(&self.connection);
        let mut taken = 0;
        loop {
            taken += drain(&mut connection, target, taken)?;
            if target.room(taken) == 0 || arrived.used == arrived.bytes.len() {
                return Ok(taken);
            }
            let mut rest = &arrived.bytes[arrived.used..];
            let before = rest.len();
            connection.read_tls(&mut rest).map_err(|_| Errno::BADMSG)?;
            arrived.used += before - rest.len();
            match connection.process_new_packets() {
                // What comes behind it means nothing, and the session takes none of it.
                Ok(state) if state.peer_has_closed() => {
                    arrived.closed = true;
                    arrived.used = arrived.bytes.len();
                }
                Ok(_) => {}
                Err(why) => {
                    let _ = self.failure.set(why);
                    return Err(Errno::BADMSG);
                }
            }
        }
    }

    /// Encrypts as much of two parts, in order, as is encrypted at once, and writes what was encrypted earlier. `to_socket`
    /// takes as much as it can. Returns how many bytes of the parts were taken. `AGAIN` if earlier ones are in the way.
    pub(crate) fn send_some(
        &self,
        first: &[u8],
        second: &[u8],
        mut to_socket: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut unsent = lock(&self.unsent);
        if !unsent.is_empty() {
            flush(&mut unsent, &mut to_socket)?;
            if !unsent.is_empty() {
                return Err(Errno::AGAIN);
            }
        }
        let of_first = first.len().min(ENCRYPTED_AT_ONCE);
        let of_second = second.len().min(ENCRYPTED_AT_ONCE - of_first);
        {
            let mut connection = lock(&self.connection);
            let parts = [io::IoSlice::new(&first[..of_first]), io::IoSlice::new(&second[..of_second])];
            // Without a limit all is taken. Nothing fails: the bytes go to memory.
            let done = connection.writer().write_vectored(&parts).map_err(|_| Errno::BADMSG)?;
            debug_assert_eq!(done, of_first + of_second);
            while connection.wants_write() {
                connection.write_tls(&mut *unsent).map_err(|_| Errno::BADMSG)?;
            }
        }
        flush(&mut unsent, &mut to_socket)?;
        Ok(of_first + of_second)
    }

    /// Whether the socket has yet to take ciphertext.
    pub(crate) fn has_unsent(&self) -> bool {
        !lock(&self.unsent).is_empty()
    }
}

/// Copies plaintext that is there.
fn drain(connection: &mut Connection, target: &mut Target<'_>, taken: usize) -> Result<usize, Errno> {
    let mut copied = 0;
    while target.room(taken + copied) > 0 {
        let mut reader = connection.reader();
        let n = match reader.fill_buf() {
            Ok(plain) => {
                let n = plain.len().min(target.room(taken + copied));
                target.extend(&plain[..n]);
                n
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Err(Errno::BADMSG),
        };
        if n == 0 {
            break;
        }
        reader.consume(n);
        copied += n;
    }
    Ok(copied)
}

/// Writes what the socket takes.
fn flush(
    unsent: &mut Vec<u8>,
    to_socket: &mut impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < unsent.len() {
        match to_socket(&unsent[done..]) {
            Ok(n) => done += n,
            Err(Errno::AGAIN) => break,
            Err(e) => return Err(e),
        }
    }
    unsent.drain(..done);
    unsent.shrink_to(2 * ENCRYPTED_AT_ONCE);
    Ok(())
}

impl Target<'_> {
    /// How much more fits when so many bytes were added.
    fn room(&self, taken: usize) -> usize {
        match self {
            Self::Small { .. } => READ_AHEAD_BYTES.saturating_sub(taken),
            Self::Large { bytes, .. } => bytes.saturating_sub(taken),
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        match self {
            Self::Small { buffer } => buffer.extend_from_slice(bytes),
            Self::Large { buffer, .. } => buffer.extend_from_slice(bytes),
        }
    }
}

/// Why a handshake failed.
#[derive(Debug)]
pub(crate) enum ShakeError {
    /// Nothing came in time.
    TimedOut,
    /// The other side closed the connection.
    Ended,
    /// The socket failed.
    Io(Errno),
    /// This side or the other one did not like what it saw.
    Tls(rustls::Error),
}

impl ShakeError {
    fn of(mut e: io::Error) -> Self {
        match e.kind() {
            ErrorKind::TimedOut => return Self::TimedOut,
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                return Self::Ended;
            }
            _ => {}
        }
        if let Some(tls) = e.get_mut().and_then(|inner| inner.downcast_mut::<rustls::Error>()) {
            return Self::Tls(tls.clone());
        }
        Self::Io(Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }
}
