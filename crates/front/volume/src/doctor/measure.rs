//! Finds out what is so on this machine.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::judge::{Fuse, Space};

/// What a log writes at least.
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// The file that is synced. It has no name while it is used, so none is left.
const TRIAL: &str = ".doctor";

/// Whether the kernel takes the clock for synchronised.
pub(super) fn is_clock_synchronised() -> bool {
    // SAFETY: all zeros is a valid `timex`, and asks for no change.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which lives as long as the call.
    let state = unsafe { libc::adjtimex(&raw mut told) };
    state >= 0 && state != libc::TIME_ERROR && told.status & libc::STA_UNSYNC == 0
}

/// What mounts need.
pub(super) fn fuse(device: &Path) -> Fuse {
    let Ok(meta) = device.metadata() else { return Fuse::Missing };
    if !meta.file_type().is_char_device() {
        return Fuse::Missing;
    }
    if File::options().read(true).write(true).open(device).is_err() {
        return Fuse::Closed;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = std::env::split_paths(&path).any(|folder| folder.join("fusermount3").is_file());
    if rustix::process::geteuid().is_root() || has_helper { Fuse::Ready } else { Fuse::NoHelper }
}

/// Whether a folder is in memory.
pub(super) fn is_in_memory(folder: &Path) -> Result<bool> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let told = rustix::fs::statfs(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    Ok([TMPFS, RAMFS].contains(&told.f_type))
}

/// The room on the disk of a folder.
pub(super) fn space(folder: &Path) -> Result<Space> {
    let told = rustix::fs::statvfs(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    Ok(Space {
        bytes: told.f_blocks * told.f_frsize,
        bytes_free: told.f_bavail * told.f_frsize,
        files: told.f_files,
        files_free: told.f_favail,
    })
}

/// How long it took to sync blocks that were written one after another, at least one.
pub(super) fn syncs(folder: &Path, count_max: usize, time_max: Duration) -> Result<Vec<Duration>> {
    let path = folder.join(format!("{TRIAL}-{}", std::process::id()));
    let cannot = || format!("The disk of {} cannot be tried", folder.display());
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path).with_context(cannot)?;
    std::fs::remove_file(&path).with_context(cannot)?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() < count_max && began.elapsed() < time_max) {
        let from = Instant::now();
        file.write_all_at(&BLOCK, (times.len() * BLOCK.len()) as u64).with_context(cannot)?;
        file.sync_all().with_context(cannot)?;
        times.push(from.elapsed());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_the_disk_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(syncs(folder.path(), 3, Duration::from_secs(60)).unwrap().len(), 3);
        assert_eq!(syncs(folder.path(), 3, Duration::ZERO).unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(syncs(&folder.path().join("none"), 1, Duration::ZERO).is_err());
    }

    #[test]
    fn a_device_that_is_missing_or_is_none_is_told() {
        assert_eq!(fuse(Path::new("/dev/no-such-fuse")), Fuse::Missing);
        assert_eq!(fuse(Path::new("/etc/passwd")), Fuse::Missing);
        // A device that everybody may open.
        assert!(matches!(fuse(Path::new("/dev/null")), Fuse::Ready | Fuse::NoHelper));
    }

    #[test]
    fn a_file_system_in_memory_is_told_from_a_disk() {
        assert!(is_in_memory(Path::new("/dev/shm")).unwrap());
        assert!(!is_in_memory(Path::new("/proc")).unwrap());
        let space = space(Path::new("/dev/shm")).unwrap();
        assert!(space.bytes >= space.bytes_free && space.bytes > 0, "{space:?}");
    }
}
