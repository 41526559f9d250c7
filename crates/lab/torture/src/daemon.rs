//! Starts, kills and stops `atoll up`, and whatever else has a mount of its own. Whatever becomes of a test, the
//! process and its mount go.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;

pub use crate::process::PATIENCE;
use crate::process::{LIFE_MAX, Process};

/// `f_type` of a FUSE file system.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// The `atoll` binary: `ATOLL_BIN`, or else the workspace's, built once in the life of this process
/// (for release if `ATOLL_TORTURE_RELEASE` is set).
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("ATOLL_BIN") {
        Some(path) => path.into(),
        None => build().expect("the atoll binary can be built"),
    })
}

fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "atoll-cli", "--message-format=json"]);
    if std::env::var_os("ATOLL_TORTURE_RELEASE").is_some() {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit());
    let output = command.output().context("cargo cannot be run; set ATOLL_BIN")?;
    ensure!(output.status.success(), "cargo build failed; set ATOLL_BIN to a binary");
    let text = String::from_utf8(output.stdout)?;
    let paths = text.split("\"executable\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let found = paths.map(PathBuf::from).find(|path| path.file_name().is_some_and(|name| name == "atoll"));
    found.context("cargo named no binary")
}

/// How a daemon is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Data directory.
    pub data: PathBuf,
    /// Mount point.
    pub mount: PathBuf,
    /// Islands of a new volume.
    pub islands: u16,
    /// User and group that it runs as; none: as this process.
    pub user: Option<(u32, u32)>,
    /// More arguments.
    pub more: Vec<String>,
    /// It is killed when it lives longer.
    pub life_max: Duration,
}

impl Launch {
    /// Data and mount point in `place`, four islands.
    pub fn new(place: &Path) -> Self {
        Self {
            data: place.join("data"),
            mount: place.join("mnt"),
            islands: 4,
            user: None,
            more: Vec::new(),
            life_max: LIFE_MAX,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("up").arg("--data").arg(&self.data).arg("--mount").arg(&self.mount);
        command.arg("--islands").arg(self.islands.to_string()).args(&self.more);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it and waits for nothing.
    pub fn spawn(&self) -> Result<Daemon> {
        let log = self.mount.with_extension("log");
        let process = Process::spawn(&mut self.command(), log, self.life_max)?;
        Ok(Daemon { launch: self.clone(), mount: Mount { point: self.mount.clone(), process } })
    }

    /// Starts it and waits until its volume is mounted.
    pub fn start(&self) -> Result<Daemon> {
        let mut daemon = self.spawn()?;
        daemon.wait_mounted(PATIENCE)?;
        Ok(daemon)
    }

    /// Starts what must fail: how it ended, and what it said.
    pub fn start_in_vain(&self) -> Result<(ExitStatus, String)> {
        let mut daemon = self.spawn()?;
        let status = daemon.mount.process.wait_ended(PATIENCE)?;
        Ok((status, daemon.said()))
    }
}

/// A process in the foreground that mounts a volume. Killed and unmounted when this is dropped.
#[derive(Debug)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// The process.
    pub process: Process,
}

impl Mount {
    /// Waits until the volume is mounted.
    pub fn wait_mounted(&mut self, patience: Duration) -> Result<()> {
        self.process.wait_until("mounted", patience, |_| is_fuse(&self.point))
    }

    /// Stops it in order.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop()?;
        ensure!(!is_fuse(&self.point), "it has stopped, but the mount is still there");
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill9();
        detach(&self.point);
    }
}

/// A daemon that runs. Killed and unmounted when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    launch: Launch,
    mount: Mount,
}

impl Daemon {
    /// Where its volume is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount.point
    }

    /// How it was started.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.mount.process.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        self.mount.process.said()
    }

    /// Waits until it has said a line that begins with this word: the rest of that line.
    pub fn wait_said(&mut self, word: &str, patience: Duration) -> Result<String> {
        let line = |said: String| {
            let mut rests = said.lines().filter_map(|line| line.strip_prefix(word));
            rests.next().map(|rest| rest.trim().to_owned())
        };
        let what = format!("a line {word:?}");
        self.mount.process.wait_until(&what, patience, |process| line(process.said()).is_some())?;
        line(self.said()).with_context(|| format!("it has not said {what}"))
    }

    /// Whether its volume is there, and alive.
    pub fn is_mounted(&self) -> bool {
        is_fuse(self.mount())
    }

    /// Waits until its volume is mounted.
    pub fn wait_mounted(&mut self, patience: Duration) -> Result<()> {
        self.mount.wait_mounted(patience).context("the daemon")
    }

    /// `kill -9`: true unless it had ended by itself before. The dead mount stays.
    pub fn kill9(&mut self) -> Result<bool> {
        self.mount.process.kill9()
    }

    /// Stops it in order.
    pub fn stop(mut self) -> Result<()> {
        self.mount.stop().context("the daemon")
    }

    /// Bytes of memory that it has in use (`VmRSS`).
    pub fn memory_bytes(&self) -> Result<u64> {
        self.mount.process.memory_bytes()
    }

    /// Threads that it has.
    pub fn threads(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/task", self.mount.process.id()))?.count())
    }
}

/// Whether a live FUSE file system is mounted at `path`.
pub fn is_fuse(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type as u64 == FUSE_MAGIC)
}

/// Takes away what is mounted at `path`, alive or dead.
pub fn detach(path: &Path) {
    // Not by its attributes: the kernel knows those of a dead mount for a while.
    let dead = matches!(rustix::fs::statfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED));
    if dead || is_fuse(path) {
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::FORCE;
        let _ = rustix::mount::unmount(path, flags);
    }
}

/// The commands that this `atoll` has.
pub fn has_command(name: &str) -> bool {
    let output = Command::new(binary()).arg("--help").output();
    output.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().any(|line| line.split_whitespace().next() == Some(name))
    })
}

/// Runs `atoll ARGS`, and gives back what it printed.
pub fn atoll(args: &[&str]) -> Result<String> {
    let output = match Command::new(binary()).args(args).output() {
        Err(why) if why.kind() == ErrorKind::NotFound => bail!("there is no {}", binary().display()),
        other => other?,
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "atoll {}: {}\n{text}{errors}", args.join(" "), output.status);
    Ok(text)
}
