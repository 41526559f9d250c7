//! A program in the background, with its output in a file. However a test ends, the program ends too. It is
//! never started again by itself.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take until it does what it was started for, and until it has stopped.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A program is killed after this, so that whoever waits for a mount that hangs goes on and fails.
pub const LIFE_MAX: Duration = Duration::from_secs(2 * 3600);
/// How often something is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(3);

/// A program that runs. Killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    alive: Arc<(Mutex<bool>, Condvar)>,
}

impl Process {
    /// Starts it, with what it says in the file `log`; it is killed when it lives longer than `life_max`.
    pub fn spawn(command: &mut Command, log: PathBuf, life_max: Duration) -> Result<Self> {
        let out = File::create(&log).with_context(|| format!("{} cannot be made", log.display()))?;
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program} does not start"))?;
        let alive = Arc::new((Mutex::new(true), Condvar::new()));
        watch(Pid::from_child(&child), life_max, Arc::clone(&alive));
        Ok(Self { child, log, alive })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of memory that it has in use (`VmRSS`), with all that it has started.
    pub fn memory_bytes(&self) -> Result<u64> {
        self.family().into_iter().map(memory_bytes).sum()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        std::fs::read(&self.log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        // Held over the wait, so that the number is not killed after it is another's.
        let mut alive = self.alive.0.lock().expect("no panic while it is held");
        let status = self.child.try_wait()?;
        if status.is_some() {
            *alive = false;
            self.alive.1.notify_all();
        }
        Ok(status)
    }

    /// Waits until `holds` does, which is asked again and again.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + patience;
        loop {
            if holds(self) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                bail!("it ended ({status}) before {what}. It said:\n{}", self.said());
            }
            if Instant::now() > until {
                bail!("not {what} after {} s. It said:\n{}", patience.as_secs(), self.said());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for its end.
    pub fn wait_ended(&mut self, patience: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("it has not ended after {} s. It said:\n{}", patience.as_secs(), self.said());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// The process, and those that it has started, with theirs.
    fn family(&self) -> Vec<Pid> {
        let mut all = vec![Pid::from_child(&self.child)];
        let mut at = 0;
        while let Some(pid) = all.get(at).map(|pid| pid.as_raw_pid()) {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            all.extend(children.filter_map(Pid::from_raw));
            at += 1;
        }
        all
    }

    /// Stops it with all that it has started (`SIGSTOP`), or lets all of it go on.
    pub fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        for pid in self.family() {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }

    /// `kill -9` of the last of those that it has started, one by the other: a parent starts its daemon again. False if there is
    /// none.
    pub fn kill9_child(&self) -> bool {
        let family = self.family();
        family
            .get(1..)
            .and_then(<[Pid]>::last)
            .is_some_and(|child| kill_process(*child, Signal::KILL).is_ok())
    }

    /// `kill -9`, also of all that it has started: true unless it had ended by itself before.
    pub fn kill9(&mut self) -> Result<bool> {
        if self.ended()?.is_some() {
            return Ok(false);
        }
        let family = self.family();
        // The first one first: it would start the others again.
        for pid in &family {
            let _ = kill_process(*pid, Signal::KILL);
        }
        self.wait_ended(PATIENCE)?;
        // The others are no children of this process. Until they end they may use what the caller takes away next.
        let since = Instant::now();
        while family.iter().skip(1).any(|pid| runs(*pid)) {
            ensure!(since.elapsed() < PATIENCE, "kill -9 does not end what it has started");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Stops it in order, which must end well.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let status = self.wait_ended(PATIENCE)?;
        ensure!(status.success(), "it ended with {status}. It said:\n{}", self.said());
        Ok(())
    }
}

fn memory_bytes(pid: Pid) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill9();
    }
}

/// Whether a thread of a process has not ended yet: the first one may end before others. One that has ended, and of which nobody
/// has asked how, does not run.
fn runs(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name in front of the state may hold anything, also a parenthesis.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Kills a process that lives too long, unless it is known to have ended.
fn watch(pid: Pid, life_max: Duration, alive: Arc<(Mutex<bool>, Condvar)>) {
    std::thread::spawn(move || {
        let (lock, ended) = &*alive;
        let guard = lock.lock().expect("no panic while it is held");
        let (guard, time) = ended.wait_timeout_while(guard, life_max, |alive| *alive).expect("as above");
        if time.timed_out() && *guard {
            eprintln!("the process {} lives too long and is killed", pid.as_raw_pid());
            let _ = kill_process(pid, Signal::KILL);
        }
    });
}
