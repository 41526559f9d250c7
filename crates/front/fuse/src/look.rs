//! Looks paths up through the mount, as another process would, on a thread of its own. Never uses the open
//! files of this process.
//!
//! A daemon that looks paths up in its own mount could not be killed: its readers would be gone, the thread
//! would wait for them, and the connection to the kernel would stay open as long as any thread has it, so
//! that the wait would not end. So this thread has a table of open files of its own, without the connection.

use crate::mount::Entrance;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The first descriptor that the thread closes: the first one after the standard streams.
const FIRST: libc::c_uint = 3;

/// A thread that looks paths up. It ends with this.
#[derive(Debug)]
pub(crate) struct Looker {
    paths: Sender<PathBuf>,
    found: Receiver<bool>,
    thread: u32,
}

impl Looker {
    /// None if no thread can be started, or if it cannot have open files of its own (Linux before 5.9).
    pub(crate) fn new(entrance: Entrance) -> Option<Self> {
        let (paths, asked) = channel::<PathBuf>();
        let (tell_thread, thread) = channel();
        let (tell_found, found) = channel();
        let look = move || {
            if !leave_files() {
                return;
            }
            let me = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let _ = tell_thread.send(me);
            for path in asked {
                let _ = tell_found.send(entrance.look_up(&path).is_ok());
            }
        };
        std::thread::Builder::new().name("fuse-look".into()).spawn(look).ok()?;
        let thread = thread.recv().ok()?;
        Some(Self { paths, found, thread })
    }

    /// The number by which the kernel names this thread as the caller of a request.
    pub(crate) const fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether the path leads to something.
    pub(crate) fn finds(&self, path: PathBuf) -> bool {
        self.paths.send(path).is_ok() && self.found.recv().unwrap_or(false)
    }
}

/// Leaves this thread no open files but the standard streams. False if it still shares all.
fn leave_files() -> bool {
    // SAFETY: only this thread's own copy of the table is closed, since the flag makes one first. This thread
    // owns no open file and is handed none: `Looker::new` gives it paths and channels.
    let outcome =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    outcome == 0
}
