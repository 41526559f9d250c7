//! `atoll umount`: takes a mount away and waits until its process has ended in order.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use atoll_proto::{Control, ControlReply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use atoll_volume::ask::{QUESTION, ask};
use atoll_volume::places::{absolute, mount_socket, mounted_at};

/// How long a process may take to bring its data to its disk.
const END_MAX: Duration = Duration::from_secs(60);

/// Most processes that are named as users of a mount.
const USERS_MAX: usize = 3;

/// umount(8): "unmount failure".
const UMOUNT_FAILED: u8 = 32;

/// Arguments of `atoll umount`.
#[derive(Debug, clap::Args)]
pub(crate) struct Umount {
    /// The mount point
    #[arg(value_name = "DIR")]
    point: PathBuf,
    /// Remove it from the tree now; it ends when no program uses it any more
    #[arg(long, short)]
    lazy: bool,
    /// For scripts: it is no error if nothing is mounted there
    #[arg(long)]
    if_mounted: bool,
}

impl Umount {
    /// Of this mount point, and now.
    pub(crate) const fn of(point: PathBuf) -> Self {
        Self { point, lazy: false, if_mounted: false }
    }

    pub(crate) fn run(self) -> ExitCode {
        match self.try_run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                crate::complain(&why);
                ExitCode::from(UMOUNT_FAILED)
            }
        }
    }

    /// The same, for other commands.
    pub(crate) fn try_run(self) -> Result<()> {
        let point = absolute(&self.point)?;
        match mounted_at(&point)? {
            None if self.if_mounted => return Ok(()),
            None if !exists(&point) => bail!("{} does not exist.", point.display()),
            None => {
                bail!("Nothing is mounted on {}.\n\"atoll status\" lists what is mounted.", point.display())
            }
            Some((mount, false)) => bail!(
                "{} is a mount of something else: {}.\nUse umount(8) for it.",
                point.display(),
                mount.source
            ),
            Some((_, true)) => {}
        }
        // Opened before the unmount, so that the number cannot have become another process's.
        let process = serving_process(&point).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.unmount(&point)?;
        if let Some(process) = process.filter(|_| !self.lazy) {
            let mut fds = [PollFd::new(&process, PollFlags::IN)];
            let time_max = Timespec { tv_sec: END_MAX.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut fds, Some(&time_max)).unwrap_or(0) == 0 {
                bail!(
                    "{} is unmounted, but its process has not ended after {} s.\nIt may wait for a slow disk; nothing acknowledged is lost if it is killed.",
                    point.display(),
                    END_MAX.as_secs()
                );
            }
        }
        Ok(())
    }

    fn unmount(&self, point: &Path) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            return self.by_helper(point);
        }
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, self.lazy);
        match rustix::mount::unmount(point, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => busy(point),
            Err(why) => Err(why).with_context(|| format!("{} cannot be unmounted", point.display())),
        }
    }

    fn by_helper(&self, point: &Path) -> Result<()> {
        let mut command = Command::new("fusermount3");
        command.arg("-u");
        if self.lazy {
            command.arg("-z");
        }
        let done = command
            .arg("--")
            .arg(point)
            .output()
            .context("fusermount3 cannot be run.\nInstall package fuse3, or unmount as root")?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("busy") {
            return busy(point);
        }
        bail!("{} cannot be unmounted: {}", point.display(), said.trim())
    }
}

fn exists(point: &Path) -> bool {
    std::fs::symlink_metadata(point).is_ok()
}

fn busy(point: &Path) -> Result<()> {
    let users = users(point);
    let who = if users.is_empty() { "a process".to_owned() } else { users.join(", ") };
    bail!(
        "{0} is busy: {who} uses it.\nEnd that first, or let go of it lazily: atoll umount -l {0}",
        point.display()
    )
}

/// The process that serves a mount, if it can be asked.
fn serving_process(point: &Path) -> Option<Pid> {
    let place = mount_socket(point).ok()?;
    match ask(&place.address, Control::Describe, QUESTION).ok()? {
        ControlReply::Described { daemon, .. } => Pid::from_raw(daemon.pid as i32),
        _ => None,
    }
}

/// Processes with a working directory or an open file in a mount.
fn users(point: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|n| n.bytes().all(|b| b.is_ascii_digit())) else { continue };
        let inside = |link: PathBuf| std::fs::read_link(link).is_ok_and(|at| at.starts_with(point));
        let files = || std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if inside(process.path().join("cwd")) || files().any(|file| inside(file.path())) {
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} ({pid})", command.trim()));
        }
        if found.len() == USERS_MAX {
            break;
        }
    }
    found
}
