//! The parent of a daemon: begins it as a child, and begins it again at once if it was killed or has crashed. Its next life
//! proves to other nodes that the last one is over, so they need not wait for its silence (docs/design/018-copies.md).
//!
//! Has no threads and reads no data. It only holds what outlives the daemon: the socket in which callers wait meanwhile, and the
//! node's member of etcd, if `etcd.toml` says that it has one (docs/design/021-etcd.md).

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_etcd::{Happened, MemberPlan, Supervised};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::signals::{self, Signals};

/// After so many short lives, one after another, the daemon is not begun again.
const SHORT_LIVES_MAX: u32 = 5;
/// A life that is not short.
const LIFE_MIN: Duration = Duration::from_secs(10);

/// Runs `serve` in a child of this process, again and again until it returns or is told to end. `held` stays open from one
/// life to the next, and is given to each. Returns in each child with what `serve` returned; this process ends as the last
/// child did. Only before any thread is started.
pub(crate) fn keep_alive<H>(data: &Path, held: H, serve: impl FnOnce(H) -> Result<()>) -> Result<()> {
    let signals = signals::block_with(libc::SIGCHLD)?;
    let me = rustix::process::getpid();
    let mut short_lives = 0;
    let mut etcd = Etcd { data: std::path::absolute(data)?, member: None };
    loop {
        etcd.tend();
        let begun = Instant::now();
        // SAFETY: the process has one thread, so the child finds no lock held and no state half-changed.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error()).context("no process can be started"),
            0 => {
                end_with(me)?;
                signals::unblock(libc::SIGCHLD);
                return serve(held);
            }
            child => Pid::from_raw(child).context("a process without a number")?,
        };
        let (status, told_to_end) = wait(child, &signals, &mut etcd)?;
        // It has said why itself.
        if let Some(code) = status.code() {
            drop(etcd);
            std::process::exit(code);
        }
        if told_to_end {
            bail!(
                "The daemon died while it was stopping ({status}).\n\
                What was acknowledged is in the log, and comes back at the next start."
            );
        }
        short_lives = if begun.elapsed() < LIFE_MIN { short_lives + 1 } else { 0 };
        if short_lives == SHORT_LIVES_MAX {
            // Nobody shall wait in it.
            drop(held);
            bail!(
                "The daemon died {short_lives} times, each time within {} s of its start (the last time: {status}).\n\
                It is not started again. Its log says more; --no-restart runs it without a parent.",
                LIFE_MIN.as_secs()
            );
        }
        tracing::error!("the daemon died ({status}), and is started again");
    }
}

/// The kernel kills this process when `parent` ends, however that ends.
fn end_with(parent: Pid) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("the daemon cannot be bound to its parent")?;
    // It ended before the kernel knew.
    if rustix::process::getppid() != Some(parent) {
        std::process::exit(1);
    }
    Ok(())
}

/// Waits for the end of the child, and passes on what tells this process to end. How the child ended, and whether it was
/// told to.
fn wait(child: Pid, signals: &Signals, etcd: &mut Etcd) -> Result<(ExitStatus, bool)> {
    let mut told_to_end = false;
    loop {
        let signal = signals.wait_until(etcd.due());
        if let Some(signal) = signal.filter(|signal| *signal != libc::SIGCHLD) {
            told_to_end = true;
            // SAFETY: a system call about a process that has not been waited for, so the number is its own. A terminal may
            // have told it already, and it may have ended: both do no harm.
            unsafe { libc::kill(child.as_raw_pid(), signal) };
            continue;
        }
        // etcd's end is told by the same signal, and so is a member that the daemon has planned.
        etcd.tend();
        // A child that is only stopped, or goes on, sends the signal too.
        let ended = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
        if let Some((_, status)) = ended.context("the daemon cannot be waited for")? {
            return Ok((ExitStatus::from_raw(status.as_raw()), told_to_end));
        }
    }
}

/// The node's member of etcd. It runs as long as this process, and not as long as a daemon. In a daemon that was forked, dropping it does
/// nothing.
struct Etcd {
    data: PathBuf,
    /// None while the node has none.
    member: Option<Supervised>,
}

impl Etcd {
    /// Starts it if it is time, and notices its death.
    fn tend(&mut self) {
        // The daemon may have planned a first one, or have it run at another address.
        match (MemberPlan::read(&self.data), &mut self.member) {
            (Ok(Some(plan)), Some(member)) => {
                if let Err(why) = member.set_plan(plan) {
                    tracing::error!("etcd cannot be stopped: {why}");
                }
            }
            (Ok(plan), None) => self.member = plan.map(Supervised::new),
            (Ok(None), Some(_)) => {}
            (Err(why), None) => tracing::error!("this node's member of etcd does not run: {why}"),
            (Err(why), Some(_)) => tracing::error!("this node's member of etcd runs as before: {why}"),
        }
        for happened in self.member.iter_mut().flat_map(Supervised::tend) {
            match happened {
                Happened::Started { pid } => tracing::debug!("etcd runs, process {pid}"),
                Happened::Died { status, pause } => {
                    tracing::error!("etcd died ({status}), and is started again in {} ms", pause.as_millis());
                }
                Happened::NotStarted { why, pause } => {
                    tracing::error!(
                        "etcd cannot be started: {why}. It is tried again in {} ms",
                        pause.as_millis()
                    );
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.member.as_ref()?.due()
    }
}
