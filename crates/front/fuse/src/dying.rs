//! Finds callers that are dying while the kernel makes them wait for an answer.
//!
//! When a request has been read, the kernel does not let its caller go, not even after `kill -9`. It says
//! only once that a signal came, and not which. So an interrupted request is watched until it is answered. If
//! its caller dies, the operation is abandoned. A signal that the caller survives ends a wait for a lock and
//! nothing else, as on a local file system.

use crate::adapter::Core;
use crate::pending::{Waiting, What};
use rustix::process::Signal;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pause between two looks at the callers.
const PAUSE: Duration = Duration::from_millis(50);

/// Requests whose callers are looked after. A thread is there while there are any.
#[derive(Debug, Default)]
pub(crate) struct Dying {
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    requests: Vec<u64>,
    has_thread: bool,
}

/// A signal has come for the caller of this request.
pub(crate) fn interrupted(core: &Arc<Core>, waiting: Waiting) {
    if waiting.what == What::Lock {
        core.files.cancel(waiting.ticket);
    }
    watch(core, waiting);
}

/// Abandons a request if its caller dies before it is answered.
pub(crate) fn watch(core: &Arc<Core>, waiting: Waiting) {
    let mut watched = core.dying.watched.lock().expect("no holder of this lock panics");
    if watched.requests.contains(&waiting.unique) {
        return;
    }
    watched.requests.push(waiting.unique);
    if !watched.has_thread {
        let core = Arc::clone(core);
        let look = move || look_after(&core);
        // Without a thread it is as if no signal had come.
        watched.has_thread = std::thread::Builder::new().name("fuse-dying".into()).spawn(look).is_ok();
    }
}

fn look_after(core: &Arc<Core>) {
    loop {
        // Nearly all are answered before the first look.
        std::thread::sleep(PAUSE);
        let requests = {
            let mut watched = core.dying.watched.lock().expect("no holder of this lock panics");
            watched.requests.retain(|unique| core.pending.waiting(*unique).is_some());
            if watched.requests.is_empty() {
                watched.has_thread = false;
                return;
            }
            watched.requests.clone()
        };
        for waiting in requests.into_iter().filter_map(|unique| core.pending.waiting(unique)) {
            if is_dying(waiting.pid) {
                core.files.abandon(waiting.ticket);
            }
        }
    }
}

/// Whether a thread dies, of which it is known that it waits. One of which nothing can be told counts
/// as dying.
fn is_dying(pid: u32) -> bool {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    // 0: not in this pid namespace.
    let (true, Some(status), Some(stat)) = (pid != 0, read("status"), read("stat")) else { return true };
    has_fatal_signal(&status) || is_exiting(&stat)
}

/// A signal in a mask of /proc.
const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Whether a signal waits that ends the process.
fn has_fatal_signal(status: &str) -> bool {
    /// The kernel puts it to every thread of a process that a signal ends.
    const KILL: u64 = bit(Signal::KILL);
    /// Those that end it with a core dump, which it makes of itself.
    const DUMP: [Signal; 10] = [
        Signal::QUIT,
        Signal::ILL,
        Signal::TRAP,
        Signal::ABORT,
        Signal::BUS,
        Signal::FPE,
        Signal::SEGV,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::SYS,
    ];
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd") | mask("ShdPnd");
    let dump = DUMP.iter().fold(0, |all, signal| all | bit(*signal));
    pending & KILL != 0 || pending & dump & !(mask("SigBlk") | mask("SigIgn") | mask("SigCgt")) != 0
}

/// Whether it has been ended already, and now closes its files.
fn is_exiting(stat: &str) -> bool {
    const EXITING: u64 = 0x4;
    // The command's name may hold anything, also a parenthesis. Flags are the seventh field behind it.
    let flags =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_end_a_process_count() {
        let status = |pending: u64, caught: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught:016x}\n"
            )
        };
        assert!(has_fatal_signal(&status(bit(Signal::KILL), 0)));
        assert!(!has_fatal_signal(&status(bit(Signal::ALARM) | bit(Signal::INT), 0)));
        assert!(has_fatal_signal(&status(bit(Signal::QUIT), 0)));
        assert!(!has_fatal_signal(&status(bit(Signal::QUIT), bit(Signal::QUIT))));
    }

    #[test]
    fn a_process_that_ends_is_told_from_one_that_lives_whatever_its_name() {
        assert!(is_exiting("12 (a) b) D 1 12 12 0 -1 4194572 0 0"));
        assert!(!is_exiting("12 (a) b) D 1 12 12 0 -1 4194560 0 0"));
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(0));
    }
}
