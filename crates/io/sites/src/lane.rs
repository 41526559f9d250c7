//! One connection between two sites: TLS over TCP, frames in and out, by one thread. Never knows what a message means.
//!
//! Greetings are exchanged with a deadline. Then [`Lane::run`] sends what is in the [`Outbox`] and hands over what comes, until one end
//! has had enough. Each end says every [`ALIVE`] that it lives if it has nothing else to say, and gives up one that is silent for
//! [`SILENCE_MAX`]. The kernel is given [`UNSENT_BYTES`] ahead and no more: what is queued behind can still be overtaken or dropped.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use atoll_core::Malformed;
use bytes::{Bytes, BytesMut};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustls::Connection;
use socket2::SockRef;

use crate::greeting::{FRAME_BYTES_MAX, GREETING_BYTES_MAX, LinkFrame, next_frame};
use crate::rate::Rate;
use crate::tls::digest_of;

/// A site that has nothing to say says so.
const ALIVE: Duration = Duration::from_secs(5);
/// A site of which nothing comes for so long is away.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// How long the end of a connection may take.
const GOODBYE: Duration = Duration::from_millis(500);
/// Bytes that the kernel takes ahead of what it can send.
const UNSENT_BYTES: u32 = 128 << 10;
/// Bytes of plaintext that wait to be encrypted.
const PLAIN_BYTES: usize = 64 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// How soon it is looked again whether more may be sent.
const RATE_LOOK: Duration = Duration::from_millis(20);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneError {
    /// The system fails.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS does.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The other end breaks the form of frames.
    #[error("the other end sends what no site does: {0}")]
    Malformed(#[from] Malformed),
    /// It has ended.
    #[error("the other end has closed the connection")]
    Closed,
    /// Nothing comes.
    #[error("nothing was heard for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// This end was told to.
    #[error("{0}")]
    Told(String),
    /// The other end says why not.
    #[error("{0}")]
    Refused(String),
}

/// What waits to be sent on a connection, and whether it is to end.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Waiting>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Bytes>,
    end: Option<String>,
}

impl Outbox {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inner: Mutex::default(), wake })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.inner.lock().expect("no panic while it is held")
    }

    /// Sends a frame behind the others. The machines bound what they say before it was heard.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut waiting = self.lock();
        if waiting.end.is_none() {
            waiting.frames.push_back(frame);
            drop(waiting);
            self.wake();
        }
    }

    /// The connection is to end.
    pub(crate) fn end(&self, why: &str) {
        self.lock().end.get_or_insert_with(|| why.to_owned());
        self.wake();
    }

    /// Why it is to end, if it is.
    pub(crate) fn ended(&self) -> Option<String> {
        self.lock().end.clone()
    }

    fn wake(&self) {
        // Full only if it is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn pop(&self) -> Option<Bytes> {
        self.lock().frames.pop_front()
    }
}

/// What has gone over the connections of a link.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// How far the other end's time of day is ahead of this one's, in microseconds, at least by the time that the message took; `i64` as bits.
    pub(crate) ahead_us: AtomicU64,
}

/// See the module.
pub(crate) struct Lane {
    stream: TcpStream,
    tls: Connection,
    arrived: BytesMut,
}

/// A socket whose reads and writes end at a time.
struct Until<'a>(&'a TcpStream, Instant);

impl Until<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.1.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(Some(self.left()?))?;
        self.0.read(buffer).map_err(timed_out)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(Some(self.left()?))?;
        self.0.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket with a time-out says that it would block.
fn timed_out(why: io::Error) -> io::Error {
    if why.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { why }
}

impl Lane {
    /// Does the handshake. The digest of the other end's key.
    pub(crate) fn begin(
        stream: TcpStream,
        mut tls: Connection,
        until: Instant,
    ) -> Result<(Self, [u8; 32]), LaneError> {
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut Until(&stream, until))?;
        }
        let digest = digest_of(&tls).ok_or(LaneError::Closed)?;
        tls.set_buffer_limit(Some(PLAIN_BYTES));
        Ok((Self { stream, tls, arrived: BytesMut::new() }, digest))
    }

    /// Says something before the connection is in use.
    pub(crate) fn say(&mut self, frame: &LinkFrame, until: Instant) -> Result<(), LaneError> {
        let bytes = frame.framed();
        let mut rest = &bytes[..];
        while !rest.is_empty() || self.tls.wants_write() {
            let taken = self.tls.writer().write(rest)?;
            rest = &rest[taken..];
            self.tls.write_tls(&mut Until(&self.stream, until))?;
        }
        Ok(())
    }

    /// Hears something before the connection is in use.
    pub(crate) fn hear(&mut self, until: Instant) -> Result<LinkFrame, LaneError> {
        loop {
            // It may have come with the end of the handshake.
            self.decrypt()?;
            if let Some(frame) = next_frame(&mut self.arrived, GREETING_BYTES_MAX)? {
                return Ok(frame);
            }
            if self.tls.read_tls(&mut Until(&self.stream, until))? == 0 {
                return Err(LaneError::Closed);
            }
        }
    }

    /// Takes what has arrived out of TLS. False at the end.
    fn decrypt(&mut self) -> Result<bool, LaneError> {
        self.tls.process_new_packets()?;
        let mut buffer = [0; 16 << 10];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(n) => self.arrived.extend_from_slice(&buffer[..n]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Sends and hears until one end has had enough; why.
    pub(crate) fn run(
        mut self,
        outbox: &Outbox,
        (rate, is_urgent): (&Rate, bool),
        traffic: &Traffic,
        mut heard: impl FnMut(Bytes),
    ) -> LaneError {
        match self.go_on(outbox, (rate, is_urgent), traffic, &mut heard) {
            Err(why) => why,
            Ok(why) => {
                // Whoever does not hear it sees the end of the connection.
                let _ = self.say_goodbye(&why);
                LaneError::Told(why)
            }
        }
    }

    /// Says why the connection ends. What the other end has sent is read to its end, or the system would reset the connection, and the
    /// other end lose what it has not read yet.
    fn say_goodbye(&mut self, why: &str) -> Result<(), LaneError> {
        let until = Instant::now() + GOODBYE;
        self.stream.set_nonblocking(false)?;
        self.say(&LinkFrame::refused(why), until)?;
        self.tls.send_close_notify();
        self.tls.write_tls(&mut Until(&self.stream, until))?;
        self.stream.shutdown(Shutdown::Write)?;
        let mut scrap = vec![0; READ_BYTES];
        while Until(&self.stream, until).read(&mut scrap)? > 0 {}
        Ok(())
    }

    fn go_on(
        &mut self,
        outbox: &Outbox,
        (rate, is_urgent): (&Rate, bool),
        traffic: &Traffic,
        heard: &mut dyn FnMut(Bytes),
    ) -> Result<String, LaneError> {
        self.stream.set_nonblocking(true)?;
        // What is being sent, and what is left of it.
        let mut frame = Bytes::new();
        let (mut last_sent, mut last_heard) = (Instant::now(), Instant::now());
        // Nothing more comes than what has arrived.
        let mut is_closed = false;
        loop {
            // One at a time: what is heard may take long, and the other end is to hear of this one meanwhile.
            let next = next_frame(&mut self.arrived, FRAME_BYTES_MAX)?;
            let has_heard = next.is_some();
            match next {
                None if is_closed => return Err(LaneError::Closed),
                None => {}
                Some(LinkFrame::Message { bytes }) => heard(bytes),
                Some(LinkFrame::Alive { wall_us }) => {
                    let ahead = wall_us as i64 - wall_now_us() as i64;
                    traffic.ahead_us.store(ahead as u64, Ordering::Relaxed);
                }
                Some(LinkFrame::Refused { why }) => return Err(LaneError::Refused(why)),
                Some(_) => return Err(Malformed::new("a greeting on a connection in use").into()),
            }
            if let Some(why) = outbox.ended() {
                return Ok(why);
            }
            let mut waits_for_rate = false;
            let is_full = loop {
                // What this says is what is waited for: asked once more, the socket may say something else.
                if self.flush()? {
                    break true;
                }
                if frame.is_empty() {
                    match outbox.pop() {
                        Some(next) => frame = next,
                        None if last_sent.elapsed() >= ALIVE => {
                            frame = LinkFrame::Alive { wall_us: wall_now_us() }.framed();
                        }
                        None => break false,
                    }
                    last_sent = Instant::now();
                }
                let may = rate.take(frame.len().min(PLAIN_BYTES), is_urgent);
                if may == 0 {
                    waits_for_rate = true;
                    break false;
                }
                let taken = self.tls.writer().write(&frame[..may])?;
                traffic.sent.fetch_add(taken as u64, Ordering::Relaxed);
                frame = frame.slice(taken..);
            };
            let timeout = match (has_heard, waits_for_rate) {
                // There may be another frame.
                (true, _) => Duration::ZERO,
                (false, true) => RATE_LOOK,
                (false, false) => Duration::from_secs(1),
            };
            self.wait(outbox, is_full, timeout)?;
            if has_heard {
                last_heard = Instant::now();
            }
            // What is whole is handed over before more is read.
            while !is_closed && self.arrived.len() <= FRAME_BYTES_MAX {
                match self.tls.read_tls(&mut Limited(&self.stream, READ_BYTES)) {
                    Ok(0) => is_closed = true,
                    Ok(n) => {
                        traffic.received.fetch_add(n as u64, Ordering::Relaxed);
                        last_heard = Instant::now();
                        is_closed = !self.decrypt()?;
                    }
                    Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Err(why) => return Err(why.into()),
                }
            }
            if last_heard.elapsed() > SILENCE_MAX {
                return Err(LaneError::Silent);
            }
        }
    }

    /// Gives the socket what it takes. Whether it is full.
    fn flush(&mut self) -> Result<bool, LaneError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.stream) {
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(false)
    }

    /// Waits until something can be read, or sent.
    fn wait(&self, outbox: &Outbox, is_full: bool, timeout: Duration) -> Result<(), LaneError> {
        let wanted = if is_full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds =
            [PollFd::from_borrowed_fd(self.stream.as_fd(), wanted), PollFd::new(&outbox.wake, PollFlags::IN)];
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(io::Error::from(why).into()),
        }
        // Empty if nobody has woken it.
        let _ = rustix::io::read(&outbox.wake, &mut [0; 8]);
        Ok(())
    }
}

/// A socket that is read by at most so many bytes at once.
struct Limited<'a>(&'a TcpStream, usize);

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

/// The time of day, in microseconds since 1970.
pub(crate) fn wall_now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}
