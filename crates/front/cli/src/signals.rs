//! Ends the process in order on SIGINT, SIGTERM and SIGHUP. All threads block these signals, and one thread
//! waits for them.

use anyhow::{Result, bail};

/// The signals that end a daemon, blocked from now on.
pub(crate) struct Signals(libc::sigset_t);

/// Blocks them in this thread and all that it starts. Called before any other thread is.
pub(crate) fn block() -> Result<Signals> {
    // SAFETY: the set is initialised by `sigemptyset` before anything reads it, and every pointer is
    // to a live local.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            bail!("signals cannot be blocked");
        }
        Ok(Signals(set))
    }
}

impl Signals {
    /// Waits for one of them.
    pub(crate) fn wait(&self) {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe {
            libc::sigwait(&self.0, &mut signal);
        }
    }
}

/// Wakes the thread that waits, as if somebody had asked the process to end.
pub(crate) fn end_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
}
