//! A connected socket: bytes in, bytes out, each call one system call if possible.
//!
//! Only this file knows the carrier of a link: a Unix socket, TCP, or TLS over TCP. It never knows frames. The
//! handshake of this protocol runs inside TLS.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::frame::{READ_AHEAD_BYTES, Target};
use crate::security::{Security, Shown};
use crate::tls::{CIPHERTEXT_BYTES, Session, ShakeError};

/// Silence on a TCP connection after which the kernel asks whether the other machine is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Pause between such questions.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(2);
/// Questions without an answer after which the connection is given up.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged before the connection is given up.
const TCP_UNACKNOWLEDGED_MS_MAX: u32 = 10_000;

/// Most bytes that are thrown away when a link ends, so that closing it does not destroy the last
/// words on their way to the other side.
const DRAIN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    unix: bool,
    relayed: bool,
    session: Option<Box<Session>>,
}

impl Stream {
    /// Takes a connected TCP socket and sets what a link needs of it.
    pub(crate) fn tcp(fd: OwnedFd) -> Result<Self, Errno> {
        // A request is one write, and nothing follows that could share a packet with it.
        sockopt::set_tcp_nodelay(&fd, true)?;
        // A machine that vanished sends no farewell: idle links notice by probes, busy ones by the
        // age of what is unacknowledged.
        sockopt::set_socket_keepalive(&fd, true)?;
        sockopt::set_tcp_keepidle(&fd, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&fd, KEEPALIVE_PAUSE)?;
        sockopt::set_tcp_keepcnt(&fd, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&fd, TCP_UNACKNOWLEDGED_MS_MAX)?;
        Ok(Self { fd, unix: false, relayed: false, session: None })
    }

    /// Takes a connected Unix socket.
    pub(crate) fn unix(fd: OwnedFd) -> Self {
        Self { fd, unix: true, relayed: false, session: None }
    }

    /// It does not leave this machine.
    pub(crate) fn is_unix(&self) -> bool {
        self.unix
    }

    /// Bytes may change on the way without anybody noticing: payloads need a checksum.
    pub(crate) fn needs_checks(&self) -> bool {
        !self.unix && self.session.is_none()
    }

    /// From here on the bytes are encrypted, if there are certificates and the socket leaves this machine. `accepts` says
    /// which of the two sides this is.
    pub(crate) fn secure(
        &mut self,
        security: Option<&Security>,
        accepts: bool,
        deadline: Instant,
    ) -> Result<Option<Shown>, ShakeError> {
        let Some(security) = security.filter(|_| !self.unix) else { return Ok(None) };
        debug_assert!(self.session.is_none(), "a session within a session");
        let connection = security.connection(accepts).map_err(ShakeError::Tls)?;
        let session = Session::shake_hands(connection, &mut Bounded { stream: self, deadline })?;
        let shown = security.shown_by(session.peer().as_ref()).map_err(ShakeError::Tls)?;
        self.session = Some(Box::new(session));
        Ok(Some(shown))
    }

    /// From here on the bytes are as they come: those of others, who have encrypted them. False if bytes of this
    /// side's are on their way.
    #[must_use]
    pub(crate) fn bare(&mut self) -> bool {
        self.session.take().is_none_or(|session| session.is_idle())
    }

    /// Why TLS has failed on it, if it has.
    pub(crate) fn tls_failure(&self) -> Option<&rustls::Error> {
        self.session.as_ref()?.failure()
    }

    /// From here on a relay passes on the bytes.
    pub(crate) fn set_relayed(&mut self) {
        self.relayed = true;
    }

    /// Whether a relay passes on the bytes.
    pub(crate) fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// Reads what is there, waiting for the first byte of it; 0 at the end.
    pub(crate) fn recv_some(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        retry(|| rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty())).map(|(n, _)| n)
    }

    /// Reads what is there, waiting for the first byte of it; 0 at the end.
    pub(crate) fn recv(&self, target: Target<'_>) -> Result<usize, Errno> {
        match &self.session {
            None => self.recv_plain(target, RecvFlags::WAITALL),
            Some(session) => self.recv_by(session, target, None),
        }
    }

    /// The same; `TIMEDOUT` at the deadline.
    pub(crate) fn recv_until(&self, target: Target<'_>, deadline: Instant) -> Result<usize, Errno> {
        match &self.session {
            Some(session) => self.recv_by(session, target, Some(deadline)),
            // A part of a large frame is returned, since the rest may come after the deadline.
            None if self.wait_readable(deadline)? => self.recv_plain(target, RecvFlags::empty()),
            None => Err(Errno::TIMEDOUT),
        }
    }

    fn recv_by(
        &self,
        session: &Session,
        mut target: Target<'_>,
        deadline: Option<Instant>,
    ) -> Result<usize, Errno> {
        session.recv(&mut target, |arrived| {
            if let Some(deadline) = deadline
                && !self.wait_readable(deadline)?
            {
                return Err(Errno::TIMEDOUT);
            }
            let n = recv_into(
                &self.fd,
                &mut arrived.spare_capacity_mut()[..CIPHERTEXT_BYTES],
                RecvFlags::empty(),
            )?;
            // SAFETY: the first `n` bytes of the spare capacity were written by the kernel.
            unsafe { arrived.set_len(arrived.len() + n) };
            Ok(n)
        })
    }

    fn recv_plain(&self, target: Target<'_>, of_large: RecvFlags) -> Result<usize, Errno> {
        match target {
            Target::Small { buffer } => {
                let spare = buffer.spare_capacity_mut();
                let room = spare.len().min(READ_AHEAD_BYTES);
                let n = recv_into(&self.fd, &mut spare[..room], RecvFlags::empty())?;
                // SAFETY: the first `n` bytes of the spare capacity were written by the kernel.
                unsafe { buffer.set_len(buffer.len() + n) };
                Ok(n)
            }
            Target::Large { buffer, bytes } => {
                // Never more than this frame, so the buffer's capacity alone is no bound to go by.
                let spare = buffer.spare_capacity_mut();
                let n = recv_into(&self.fd, &mut spare[..bytes], of_large)?;
                // SAFETY: as above.
                unsafe { buffer.set_len(buffer.len() + n) };
                Ok(n)
            }
        }
    }

    /// Writes as much of two parts, in order, as fits into the socket's buffer. `AGAIN` if nothing fits. What was taken may
    /// still have to leave: see [`Self::has_unsent`].
    pub(crate) fn send_some(&self, first: &[u8], second: &[u8]) -> Result<usize, Errno> {
        match &self.session {
            None => self.send_plain(first, second),
            Some(session) => session.send_some(first, second, |bytes| self.send_plain(bytes, &[])),
        }
    }

    /// Bytes that were taken wait for room in the socket's buffer. They leave with the next call of [`Self::send_some`], of
    /// nothing if need be.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_unsent())
    }

    fn send_plain(&self, first: &[u8], second: &[u8]) -> Result<usize, Errno> {
        let both = [IoSlice::new(first), IoSlice::new(second)];
        let parts = if second.is_empty() { &both[..1] } else { &both };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry(|| rustix::net::sendmsg(&self.fd, parts, &mut SendAncillaryBuffer::default(), flags))
    }

    /// Waits until something can be written; false at the deadline.
    pub(crate) fn wait_writable(&self, deadline: Instant) -> Result<bool, Errno> {
        wait(self.fd.as_fd(), PollFlags::OUT, deadline)
    }

    /// Waits until something can be read; false at the deadline.
    pub(crate) fn wait_readable(&self, deadline: Instant) -> Result<bool, Errno> {
        wait(self.fd.as_fd(), PollFlags::IN, deadline)
    }

    /// Whether something can be written now.
    pub(crate) fn is_writable(&self) -> bool {
        wait(self.fd.as_fd(), PollFlags::OUT, Instant::now()).unwrap_or(false)
    }

    /// Whether something has arrived that was not read yet, if only the end.
    pub(crate) fn has_unread(&self) -> bool {
        wait(self.fd.as_fd(), PollFlags::IN, Instant::now()).unwrap_or(false)
    }

    /// Ends both directions: a thread that waits in a call on the socket wakes.
    pub(crate) fn shutdown(&self) {
        // Fails only if the other side was faster.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Throws away bytes that have arrived. A socket that is closed over unread bytes resets the connection,
    /// and the other side then loses the goodbye that it has not read yet.
    pub(crate) fn drain(&self) {
        let mut scrap = [0; READ_AHEAD_BYTES];
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX {
            match retry(|| rustix::net::recv(&self.fd, &mut scrap, RecvFlags::DONTWAIT)) {
                Ok((n, _)) if n > 0 => drained += n,
                _ => return,
            }
        }
    }
}

/// A socket whose reads and writes end at a time.
struct Bounded<'a> {
    stream: &'a Stream,
    deadline: Instant,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.stream.wait_readable(self.deadline)? {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(self.stream.recv_some(buffer)?)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.send_plain(bytes, &[]) {
                Err(Errno::AGAIN) if self.stream.wait_writable(self.deadline)? => {}
                Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
                done => return Ok(done?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for an event on a descriptor; false at the deadline.
pub(crate) fn wait(fd: BorrowedFd<'_>, event: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // What is left never exceeds a named time-out, far below what a timespec can say.
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(fd, event)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Receives into memory that holds nothing yet; how many bytes of its front were written.
fn recv_into(fd: &OwnedFd, spare: &mut [MaybeUninit<u8>], flags: RecvFlags) -> Result<usize, Errno> {
    retry(|| rustix::net::recv(fd, &mut *spare, flags).map(|((filled, _), _)| filled.len()))
}

/// Repeats a call that a signal has interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
