//! Ends the process in order on SIGINT, SIGTERM and SIGHUP. All threads block these signals, and one thread
//! waits for them.

use std::time::Instant;

use anyhow::{Result, bail};

/// The signals that end a daemon.
const ENDS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Signals that are blocked from now on.
pub(crate) struct Signals(libc::sigset_t);

/// Blocks those that end a daemon, in this thread and all that it starts. Called before any other thread is.
pub(crate) fn block() -> Result<Signals> {
    block_all(&ENDS)
}

/// The same with one more, which has its default action here from now on, whatever this process has inherited.
pub(crate) fn block_with(signal: libc::c_int) -> Result<Signals> {
    // SAFETY: no handler is set.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let [a, b, c] = ENDS;
    block_all(&[a, b, c, signal])
}

fn block_all(signals: &[libc::c_int]) -> Result<Signals> {
    let set = set_of(signals);
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } != 0 {
        bail!("signals cannot be blocked");
    }
    Ok(Signals(set))
}

/// Takes a signal back to what it was in this thread.
pub(crate) fn unblock(signal: libc::c_int) {
    // SAFETY: the pointer is to a live local. It fails for no set of signals.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of(&[signal]), std::ptr::null_mut()) };
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the set is initialised by `sigemptyset` before anything reads it, and every pointer is to a live local.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

impl Signals {
    /// Waits for one of them.
    pub(crate) fn wait(&self) -> libc::c_int {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe {
            libc::sigwait(&self.0, &mut signal);
        }
        signal
    }
}

impl Signals {
    /// Waits for one of them until then; none: it has come to nothing.
    pub(crate) fn wait_until(&self, until: Option<Instant>) -> Option<libc::c_int> {
        let Some(until) = until else { return Some(self.wait()) };
        let left = until.saturating_duration_since(Instant::now());
        let left = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos() as libc::c_long,
        };
        // SAFETY: both pointers are to live values, and nobody asks for what comes with the signal.
        let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &left) };
        (signal > 0).then_some(signal)
    }
}

/// Wakes the thread that waits, as if somebody had asked the process to end.
pub(crate) fn end_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
}
