//! A member of the cluster's own etcd as a child of the process that calls. Starts it, and starts it again when it has died.
//!
//! Has no threads and waits for nothing, so that it fits into a parent process that has none either: that one calls `tend` after
//! each signal and when the time has come that it was told.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::plan::{MemberPlan, Restarts};

/// Better than that of most programs: etcd's leader must not be late.
const NICE: libc::c_int = -5;
/// Best effort, highest place (`ioprio_set(2)`).
const IO_PRIORITY: libc::c_int = 2 << 13;
/// How long a member may take to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What has happened since the last call, in words for a log.
#[derive(Debug)]
pub enum Happened {
    /// It runs now.
    Started {
        /// Its process.
        pid: u32,
    },
    /// It has died.
    Died {
        /// How.
        status: ExitStatus,
        /// Pause before it is started again.
        pause: Duration,
    },
    /// It could not be started.
    NotStarted {
        /// Why.
        why: io::Error,
        /// Pause before that is tried again.
        pause: Duration,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Supervised {
    plan: MemberPlan,
    /// The process whose child the member is. One that was forked from it has a copy of this, and must leave the member alone.
    parent: u32,
    child: Option<(Child, Instant)>,
    start_at: Instant,
    restarts: Restarts,
    /// It was killed to be started by another plan.
    is_replaced: bool,
}

impl Supervised {
    /// Starts nothing yet.
    pub fn new(plan: MemberPlan) -> Self {
        let parent = std::process::id();
        Self {
            plan,
            parent,
            child: None,
            start_at: Instant::now(),
            restarts: Restarts::default(),
            is_replaced: false,
        }
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|(child, _)| child.id())
    }

    /// Runs it by this plan from now on. If it is another one, the member that runs is killed: its data is safe, and [`Self::tend`] starts
    /// it again.
    pub fn set_plan(&mut self, plan: MemberPlan) -> io::Result<()> {
        if plan == self.plan {
            return Ok(());
        }
        self.plan = plan;
        let Some((child, _)) = &mut self.child else { return Ok(()) };
        self.is_replaced = true;
        child.kill()
    }

    /// When `tend` is to be called again, if no signal comes before.
    pub fn due(&self) -> Option<Instant> {
        self.child.is_none().then_some(self.start_at)
    }

    /// Looks whether the member has died, and starts it if it is time. Waits for no other child.
    pub fn tend(&mut self) -> Vec<Happened> {
        let mut happened = Vec::new();
        if let Some((child, since)) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return happened,
                Ok(Some(_)) if std::mem::take(&mut self.is_replaced) => self.child = None,
                Ok(Some(status)) => {
                    let pause = self.restarts.died(since.elapsed());
                    happened.push(Happened::Died { status, pause });
                    self.start_at = Instant::now() + pause;
                    self.child = None;
                }
                // Somebody else has waited for it, so it has ended.
                Err(why) => {
                    let pause = self.restarts.died(since.elapsed());
                    happened.push(Happened::NotStarted { why, pause });
                    self.start_at = Instant::now() + pause;
                    self.child = None;
                }
            }
        }
        if Instant::now() < self.start_at {
            return happened;
        }
        match start(&self.plan) {
            Ok(child) => {
                happened.push(Happened::Started { pid: child.id() });
                self.child = Some((child, Instant::now()));
            }
            Err(why) => {
                let pause = self.restarts.died(Duration::ZERO);
                self.start_at = Instant::now() + pause;
                happened.push(Happened::NotStarted { why, pause });
            }
        }
        happened
    }

    /// Has it stop in order, and kills it if that takes too long. In a process that was forked since, does nothing.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some((mut child, _)) = self.child.take().filter(|_| std::process::id() == self.parent) else {
            return Ok(());
        };
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        let until = Instant::now() + STOP_MAX;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                child.kill()?;
                return child.wait().map(|_| ());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // A child that cannot be told to stop has ended.
        let _ = self.stop();
    }
}

fn start(plan: &MemberPlan) -> io::Result<Child> {
    // Not what is above it: a missing folder is more often a disk that is not mounted.
    match DirBuilder::new().mode(0o700).create(&plan.data) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        _ => {}
    }
    let mut command = Command::new(&plan.program);
    command.args(plan.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
    // What is in the environment of the parent would count like arguments.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"ETCD_")) {
        command.env_remove(name);
    }
    if let Some(log) = &plan.log {
        command.stderr(File::options().create(true).append(true).mode(0o600).open(log)?);
    }
    let parent = std::process::id();
    // SAFETY: only system calls, which take no lock and no memory.
    unsafe {
        command.pre_exec(move || {
            // The parent may have blocked signals, which its child would inherit.
            let mut none = std::mem::MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            // It ends with its parent, whose successor else would find its port and its data in use. At once: in order it takes
            // seconds, in which it looks for another leader.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // Without the right to do so it is one program among others.
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
            libc::syscall(libc::SYS_ioprio_set, 1, 0, IO_PRIORITY);
            Ok(())
        })
    };
    command.spawn()
}
