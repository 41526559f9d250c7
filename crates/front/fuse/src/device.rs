//! The open /dev/fuse: receives whole requests into a reader's buffer, and sends whole answers. Never looks
//! into either.

use crate::abi::{OUT_HEADER, Out, WRITE_HEADER, notify};
use atoll_core::{Ino, Name};
use atoll_posix::Errno;
use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Most bytes of one write request, and of one read.
pub(crate) const IO_BYTES_MAX: usize = 1 << 20;
/// Payloads up to here are copied out of the reader's buffer. They may be kept for long (a log
/// carries them and writes them to their body later), and would pin a buffer of 1 MiB each.
const COPY_BYTES_MAX: usize = 32 << 10;
/// The kernel refuses to fill a buffer that could not hold the largest request.
const INBOX_BYTES: usize = IO_BYTES_MAX + 4096;

/// Answers up to here are copied into one piece before they are sent.
const SHORT_BYTES: usize = 256;

/// The offset from which pages are dropped: no pages, or all.
const NO_PAGES: u64 = u64::MAX;
const ALL_PAGES: u64 = 0;

/// Pauses of the processor between two looks for a request.
const LOOK_PAUSES: u32 = 16;

/// The connection to the kernel.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

/// Nothing more comes: the file system was unmounted or the connection aborted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Device {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    pub(crate) fn raw(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.fd)
    }

    /// Looks until there is a request, for so long at most.
    pub(crate) fn look(&self, so_long: Duration) {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let began = Instant::now();
        // An error is the reader's to find.
        while poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&NOW)) == Ok(0)
            && began.elapsed() < so_long
        {
            (0..LOOK_PAUSES).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Answers a request. False if the kernel no longer waits for it.
    pub(crate) fn reply(&self, unique: u64, parts: [&[u8]; 2]) -> bool {
        self.send(unique, 0, parts)
    }

    /// Fails a request.
    pub(crate) fn fail(&self, unique: u64, why: Errno) -> bool {
        // Whatever a volume says: the kernel takes no other numbers.
        let errno = if (1..512).contains(&why.0) { why.0 } else { Errno::EIO.0 };
        self.send(unique, -errno, [&[], &[]])
    }

    /// Tells the kernel something that it did not ask for. False if it did not take it, which is
    /// so too when it does not know the id.
    pub(crate) fn notify(&self, code: i32, body: &[u8]) -> bool {
        self.send(0, code, [body, &[]])
    }

    /// Has the kernel drop a name. Waits for the lock of its directory, which a request under way may hold.
    pub(crate) fn drop_name(&self, dir: Ino, name: &Name) {
        self.void_name(dir, name, 0);
    }

    /// Has the kernel look a name up again when it is used. Mounts below it, and working directories, stay where they are. Waits
    /// as [`Device::drop_name`] does.
    pub(crate) fn expire_name(&self, dir: Ino, name: &Name) {
        self.void_name(dir, name, notify::EXPIRE_ONLY);
    }

    /// Has the kernel drop the attributes of a file or directory. False if it does not know it.
    pub(crate) fn drop_attributes(&self, ino: Ino) -> bool {
        self.void_inode(ino, NO_PAGES)
    }

    /// The same, and its pages. Waits for those that are being read or written back.
    pub(crate) fn drop_pages(&self, ino: Ino) -> bool {
        self.void_inode(ino, ALL_PAGES)
    }

    fn void_inode(&self, ino: Ino, offset: u64) -> bool {
        let mut body = Out::with_capacity(24);
        body.u64(ino.0).u64(offset).u64(0);
        self.notify(notify::INVAL_INODE, &body.0)
    }

    /// Has the kernel look up every name again when it is used, also absent ones. Lookups under way count as earlier ones. The kernel must know
    /// how (`MINOR_INC_EPOCH`).
    pub(crate) fn drop_all_names(&self) {
        self.notify(notify::INC_EPOCH, &[]);
    }

    fn void_name(&self, dir: Ino, name: &Name, flags: u32) {
        let name = name.as_bytes();
        let mut body = Out::with_capacity(16 + name.len() + 1);
        body.u64(dir.0).u32(u32::try_from(name.len()).expect("a name has at most 255 bytes")).u32(flags);
        body.0.extend_from_slice(name);
        body.0.push(0);
        self.notify(notify::INVAL_ENTRY, &body.0);
    }

    fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) -> bool {
        let len = OUT_HEADER + parts[0].len() + parts[1].len();
        let mut header = [0; OUT_HEADER];
        header[..4].copy_from_slice(&u32::try_from(len).expect("answers are far below 4 GiB").to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        let pieces = [&header, parts[0], parts[1]];
        // The kernel takes one piece faster than three.
        let mut short = [0; SHORT_BYTES];
        let (slices, count) = match short.get_mut(..len) {
            Some(short) => {
                let mut rest = &mut *short;
                for piece in pieces {
                    rest.split_off_mut(..piece.len()).expect("it has their length").copy_from_slice(piece);
                }
                ([IoSlice::new(short), IoSlice::new(&[]), IoSlice::new(&[])], 1)
            }
            None => (pieces.map(IoSlice::new), pieces.len()),
        };
        // One call: the kernel takes an answer whole or not at all.
        loop {
            match rustix::io::writev(&self.fd, &slices[..count]) {
                Err(Os::INTR) => {}
                outcome => return outcome.is_ok(),
            }
        }
    }
}

/// A reader's buffer.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: BytesMut,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { buffer: BytesMut::with_capacity(INBOX_BYTES) }
    }

    /// Waits for a request. It is in `message` until the next call.
    pub(crate) fn receive(&mut self, device: &Device) -> Result<(), Gone> {
        self.buffer.clear();
        // The last payload may still be held by whoever writes it: then it keeps that buffer.
        if !self.buffer.try_reclaim(INBOX_BYTES) {
            self.buffer = BytesMut::with_capacity(INBOX_BYTES);
        }
        loop {
            match rustix::io::read(&device.fd, self.buffer.spare_capacity_mut()) {
                Ok((filled, _)) => {
                    let n = filled.len();
                    // SAFETY: the buffer was empty and read(2) filled the first `n` bytes of its
                    // spare capacity.
                    unsafe { self.buffer.set_len(n) };
                    return Ok(());
                }
                // ENOENT: the request was given up before it was read.
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// The request that was received.
    pub(crate) fn message(&self) -> &[u8] {
        &self.buffer
    }

    /// The payload of the write request that was received; `parse` has seen that it is there.
    pub(crate) fn payload(&mut self, bytes: usize) -> Bytes {
        if bytes <= COPY_BYTES_MAX {
            return Bytes::copy_from_slice(&self.buffer[WRITE_HEADER..WRITE_HEADER + bytes]);
        }
        self.buffer.split().freeze().slice(WRITE_HEADER..WRITE_HEADER + bytes)
    }
}
