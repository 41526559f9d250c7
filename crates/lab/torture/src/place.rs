//! Folders and small disks to torture in, gone afterwards; and what must be there to do so.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags};

/// A folder of its own below `ATOLL_TORTURE_DIR` (else the system's temporary one), which everybody
/// can enter. Removed when dropped; kept if the thread panics and `ATOLL_TORTURE_KEEP` is set.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    /// A new one, with `name` in its path.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("ATOLL_TORTURE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("atoll-torture-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        for below in ["mnt", "data"] {
            fs::create_dir(path.join(below))?;
        }
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// It is not removed, so that people can look into it.
    pub fn keep(self) -> PathBuf {
        std::mem::take(&mut std::mem::ManuallyDrop::new(self).0)
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("ATOLL_TORTURE_KEEP").is_some() {
            eprintln!("kept: {}", self.0.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A kind of small disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// In memory.
    Tmpfs,
    /// A file with ext4 in it, on a loop device.
    Ext4,
    /// A file with XFS in it, on a loop device; 300 MiB at least.
    Xfs,
}

/// A small file system, mounted. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// A new one of so many MiB on the folder `point`, which is made; its image lies beside it.
    pub fn new(kind: DiskKind, mib: u64, point: &Path) -> Result<Self> {
        fs::create_dir_all(point)?;
        match kind {
            DiskKind::Tmpfs => {
                let data = CString::new(format!("size={mib}m,mode=755"))?;
                let data = Some(data.as_c_str());
                rustix::mount::mount("torture", point, "tmpfs", MountFlags::empty(), data)
                    .context("tmpfs cannot be mounted")?;
            }
            DiskKind::Ext4 | DiskKind::Xfs => {
                let image = point.with_extension("img");
                fs::File::create(&image)?.set_len(mib << 20)?;
                let (program, options): (_, &[&str]) = match kind {
                    DiskKind::Xfs => ("mkfs.xfs", &["-q", "-f"]),
                    _ => ("mkfs.ext4", &["-q", "-F", "-m", "0"]),
                };
                run(Command::new(program).args(options).arg(&image))?;
                run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(point))?;
            }
        }
        Ok(Self(point.to_owned()))
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.0
    }

    /// Whatever is written from now on fails, as of a disk that has broken. Of ext4 only.
    pub fn fail(&self) -> Result<()> {
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.0)).map(drop)
    }

    /// Takes away what has failed, and mounts what has reached the disk before. Nobody may use it.
    pub fn mount_again(&self) -> Result<()> {
        run(Command::new("umount").arg(&self.0))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(self.0.with_extension("img")).arg(&self.0))
            .map(drop)
    }

    /// Makes it read-only, or writable again.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, read_only);
        rustix::mount::mount_remount(&self.0, flags, c"").context("cannot be mounted anew")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Runs a program to its end; its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}\n{}{}", args.join(" "), output.status, tail(&said), tail(&errors));
    }
    Ok(said)
}

/// The end of a long text.
pub fn tail(text: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| format!("{line}\n")).collect()
}

/// User and group numbers of a user; made if there is none and this is root.
pub fn user(name: &str) -> Result<(u32, u32)> {
    let find = || -> Option<(u32, u32)> {
        let table = fs::read_to_string("/etc/passwd").ok()?;
        let line = table.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    if let Some(found) = find() {
        return Ok(found);
    }
    run(Command::new("useradd").args(["--user-group", "--no-create-home", name]))?;
    find().with_context(|| format!("user {name} was made, but is not there"))
}
